//! What fuzzers drive: a host whose files may hold anything. Compiled for `cargo fuzz` only.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use super::facts;
use super::sample::sampler::{Host, Missed, Source};
use super::sample::selection::{FOLLOWED, Listing, Selection};
use super::sample::values::Values;

/// A server has the number 10. What is here is never empty, so that one file is enough to reach its reader.
const ALWAYS: &[(&str, &str)] = &[
    ("proc/10/comm", "mariadbd\n"),
    ("proc/10/cmdline", "/usr/sbin/mariadbd\0"),
    (
        "proc/10/stat",
        "10 (mariadbd) S 1 1 1 0 -1 0 5 0 0 0 7 3 0 0 20 0 1 0 9 1000 10 18446744073709551615\n",
    ),
    ("proc/10/cgroup", "0::/db\n"),
    (
        "proc/self/mountinfo",
        "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n30 23 8:0 / / rw - xfs /dev/sda rw\n",
    ),
];

const FILES: &[&str] = &[
    "proc/stat",
    "proc/interrupts",
    "proc/softirqs",
    "proc/net/softnet_stat",
    "proc/diskstats",
    "proc/meminfo",
    "proc/vmstat",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/net/dev",
    "proc/net/snmp",
    "proc/net/netstat",
    "proc/net/sockstat",
    "proc/spl/kstat/zfs/arcstats",
    "proc/sys/kernel/tainted",
    "proc/self/mountinfo",
    "proc/self/cgroup",
    "proc/cpuinfo",
    "proc/swaps",
    "proc/uptime",
    "proc/cmdline",
    "proc/10/comm",
    "proc/10/cmdline",
    "proc/10/environ",
    "proc/10/stat",
    "proc/10/status",
    "proc/10/schedstat",
    "proc/10/io",
    "proc/10/cgroup",
    "proc/10/limits",
    "proc/10/maps",
    "proc/10/task/11/stat",
    "proc/10/task/11/comm",
    "proc/10/task/11/wchan",
    "proc/10/task/11/schedstat",
    "proc/irq/24/smp_affinity_list",
    "etc/os-release",
    "sys/block/sda/queue/scheduler",
    "sys/block/sda/queue/read_ahead_kb",
    "sys/block/sda/dev",
    "sys/block/md0/md/level",
    "sys/block/md0/md/sync_action",
    "sys/block/md0/md/sync_completed",
    "sys/class/net/eth0/speed",
    "sys/class/thermal/thermal_zone0/temp",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",
    "sys/devices/system/node/node0/meminfo",
    "sys/devices/system/node/node0/cpulist",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/fs/cgroup/cgroup.controllers",
    "sys/fs/cgroup/db/cpu.max",
    "sys/fs/cgroup/db/cpu.stat",
    "sys/fs/cgroup/db/io.max",
    "sys/fs/cgroup/db/memory.max",
    "sys/fs/cgroup/db/memory.events",
    "sys/fs/cgroup/db/cpuset.cpus.effective",
];

thread_local! {
    static ROOT: Root = Root::new();
}

struct Root {
    folder: PathBuf,
    written: RefCell<Vec<&'static str>>,
}

impl Root {
    fn new() -> Root {
        let folder = std::env::temp_dir().join(format!("headrace-fuzz-{}", std::process::id()));
        for path in FILES {
            fs::create_dir_all(folder.join(path).parent().expect("a folder")).expect("a folder to write in");
        }
        Root { folder, written: RefCell::default() }
    }

    fn write(&self, path: &'static str, content: &[u8]) {
        fs::write(self.folder.join(path), content).expect("a file to write");
        self.written.borrow_mut().push(path);
    }

    fn clear(&self) {
        for path in self.written.borrow_mut().drain(..) {
            let _ = fs::remove_file(self.folder.join(path));
        }
    }
}

/// The facts and every sampler of a host. `data` is a list of files: a byte that names one, a length of two bytes,
/// little-endian; the bytes.
///
/// # Panics
///
/// That is what it looks for; also where what is printed is not JSON.
pub fn host(mut data: &[u8]) {
    ROOT.with(|root| {
        for (path, content) in ALWAYS {
            root.write(path, content.as_bytes());
        }
        while let [file, low, high, rest @ ..] = data {
            let (content, rest) =
                rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
            data = rest;
            root.write(FILES[usize::from(*file) % FILES.len()], content);
        }
        read(&root.folder);
        root.clear();
    });
}

fn read(root: &Path) {
    let facts = facts::printed(root).expect("a folder that can be read");
    serde_json::from_slice::<serde_json::Value>(&facts).expect("facts are JSON");
    let mut values = Values::default();
    for kind in super::samplers() {
        let Source::Host(open) = kind.source else { continue };
        let processes = Selection::new(Listing::All, FOLLOWED);
        let mut sampler = open(&Host { root: root.to_owned(), processes, missed: Missed::default() });
        // The second has what the first remembers.
        for _ in 0..2 {
            if sampler.sample(&mut values).is_err() {
                values.clear();
                continue;
            }
            let mut line = Vec::new();
            values.write_line(&mut line, kind.name, 1, 1);
            serde_json::from_slice::<serde_json::Value>(&line).expect("a sample is JSON");
        }
    }
}
