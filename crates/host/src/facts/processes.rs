//! The servers that run on the host, and irqbalance.

use std::collections::BTreeMap;

use serde::Serialize;

use super::block::BlockDevice;
use super::cgroup::{self, Hierarchies, Limit, Limits};
use super::files::Folder;
use super::filesystems::{self, FileSystem};
use super::namespaces;
use super::redact;
use super::sockets;
use super::tasks::{self, status_value};
use crate::mountinfo;

const SERVERS: [&str; 3] = ["mariadbd", "memcached", "mysqld"];

/// Parts of a library's file name -> its allocator.
const ALLOCATORS: [(&str, &str); 3] =
    [("libjemalloc", "jemalloc"), ("libtcmalloc", "tcmalloc"), ("libmimalloc", "mimalloc")];

#[derive(Serialize)]
pub struct Server {
    pid: u32,
    /// `mysqld`, `mariadbd` or `memcached`.
    program: String,
    exe: Option<String>,
    /// The data folder, once a MySQL-family server is up.
    working_directory: Option<String>,
    /// Of the file system that it is on, `254:0`: what was mounted over it since then has another. Null of a saved
    /// host, and where the process may not be looked at.
    working_device_number: Option<String>,
    /// Without whatever looks like a password.
    command_line: Vec<String>,
    /// The argument; null where the data folder comes from an option file.
    datadir: Option<String>,
    /// Unix sockets on which it listens, as paths that work on this host.
    sockets: Vec<String>,
    user_id: Option<u32>,
    threads: Option<u64>,
    rss_bytes: Option<u64>,
    swap_bytes: Option<u64>,
    huge_pages_bytes: Option<u64>,
    nofile_soft: Option<Limit>,
    nofile_hard: Option<Limit>,
    memlock_soft_bytes: Option<Limit>,
    oom_score_adj: Option<i32>,
    /// Of the first thread, from which the others inherit it.
    nice: Option<i32>,
    /// Of the same thread: `other`, `batch`, `idle`, `fifo`, `rr`, `deadline`.
    scheduling_policy: Option<&'static str>,
    /// What traces one of its threads with ptrace, and its name; 0 if nothing does.
    tracer_pid: Option<u32>,
    tracer: Option<String>,
    traced_threads: Option<u64>,
    /// Threads by the priority of their I/O, in the words of `ionice`: `none`, `best-effort/7`, `idle`.
    io_priorities: Option<BTreeMap<String, u64>>,
    cpus_allowed_list: Option<String>,
    mems_allowed_list: Option<String>,
    /// Of the process (numactl), not of single mappings (innodb_numa_interleave): `default`, `interleave:0-1`.
    numa_policy: Option<String>,
    allocator: Option<Allocator>,
    cgroup: Option<Limits>,
    /// The namespaces in which it is not in ours, as /proc/PID/ns names them; null if unknown.
    namespaces: Option<Vec<String>>,
    /// Its `/` by our paths, if that is another one than ours in the same mount namespace (chroot).
    root: Option<String>,
    /// What it has mounted where, by its own paths; null if it has the same mounts as we, or they are unknown.
    file_systems: Option<Vec<FileSystem>>,
}

/// By the process's maps: LD_PRELOAD may name a missing file. A statically linked allocator is not visible and
/// counts as the system's.
#[derive(Serialize, Debug, PartialEq)]
struct Allocator {
    name: &'static str,
    /// The library; the C library for `system`.
    path: Option<String>,
}

#[derive(Serialize)]
pub struct Irqbalance {
    /// Null if it does not run.
    pid: Option<u32>,
    version: Option<String>,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it is a MySQL-family server.
    pub fn is_database(&self) -> bool {
        self.program != "memcached"
    }

    /// Reads its namespaces, and what it has mounted, if that is not what we have.
    pub fn look_into(&mut self, host: &Folder, devices: &[BlockDevice]) {
        self.namespaces = namespaces::of_its_own(self.pid);
        self.working_device_number = namespaces::device_of_work(self.pid);
        self.root = host.link(&format!("proc/{}/root", self.pid)).filter(|path| path != "/");
        let has_own_mounts = self.namespaces.as_ref().is_some_and(|own| own.iter().any(|kind| kind == "mnt"));
        if has_own_mounts || self.root.is_some() {
            let process = host.join(&format!("proc/{}", self.pid));
            let mounts = mountinfo::parse(&process.text("mountinfo").unwrap_or_default());
            let found = filesystems::read(&process.join("root"), &mounts, devices);
            self.file_systems = (!found.is_empty()).then_some(found);
        }
    }
}

pub struct Processes {
    pub servers: Vec<Server>,
    pub irqbalance_pid: Option<u32>,
}

pub fn read(host: &Folder, hierarchies: &Hierarchies, live: bool) -> Processes {
    let proc = host.join("proc");
    let mut processes = Processes { servers: Vec::new(), irqbalance_pid: None };
    for name in proc.names("") {
        let Ok(pid) = name.parse() else { continue };
        let process = proc.join(&name);
        let comm = process.line("comm").unwrap_or_default();
        if comm == "irqbalance" {
            processes.irqbalance_pid = processes.irqbalance_pid.or(Some(pid));
        } else if let Some((program, arguments)) = server_program(&process, &comm) {
            let tasks = tasks::read(&process, live);
            processes.servers.push(server(host, &process, hierarchies, pid, program, &arguments, tasks));
        }
    }
    processes
}

/// The server's name and the process's arguments, if it is a server.
fn server_program(process: &Folder, comm: &str) -> Option<(&'static str, Vec<String>)> {
    let server = |name: &str| SERVERS.into_iter().find(|&server| server == name);
    // A server of another distribution runs under its own loader, so the process has the loader's name.
    let by_loader = comm.starts_with("ld-") || comm.starts_with("ld.so");
    if server(comm).is_none() && !by_loader {
        return None;
    }
    let content = process.bytes("cmdline")?;
    let text = String::from_utf8_lossy(&content);
    let arguments: Vec<String> = text.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
    let named = || arguments.iter().find_map(|argument| server(argument.rsplit('/').next()?));
    let program = server(comm).or_else(named)?;
    Some((program, arguments))
}

fn server(
    host: &Folder,
    process: &Folder,
    hierarchies: &Hierarchies,
    pid: u32,
    program: &str,
    arguments: &[String],
    tasks: tasks::Tasks,
) -> Server {
    let status = process.text("status").unwrap_or_default();
    let limits = process.text("limits").unwrap_or_default();
    let (nofile_soft, nofile_hard) = limit(&limits, "Max open files");
    let numa = process.head("numa_maps", NUMA_MAPS_HEAD_BYTES);
    let working_directory = process.link("cwd");
    let stat = process.text("stat").unwrap_or_default();
    let tracer =
        tasks.tracer_pid.filter(|&pid| pid != 0).and_then(|pid| host.line(&format!("proc/{pid}/comm")));
    Server {
        pid,
        program: program.to_owned(),
        exe: process.link("exe"),
        sockets: sockets::listening(host, process, working_directory.as_deref()),
        working_directory,
        working_device_number: None,
        command_line: redact::command_line(arguments),
        datadir: datadir(arguments),
        user_id: status_value(&status, "Uid").and_then(|uids| uids.split_whitespace().next()?.parse().ok()),
        threads: status_value(&status, "Threads").and_then(|threads| threads.parse().ok()),
        rss_bytes: status_bytes(&status, "VmRSS"),
        swap_bytes: status_bytes(&status, "VmSwap"),
        huge_pages_bytes: status_bytes(&status, "HugetlbPages"),
        nofile_soft,
        nofile_hard,
        memlock_soft_bytes: limit(&limits, "Max locked memory").0,
        oom_score_adj: process.number("oom_score_adj"),
        nice: nice(&stat),
        scheduling_policy: scheduling_policy(&stat),
        tracer_pid: tasks.tracer_pid,
        tracer,
        traced_threads: tasks.traced,
        io_priorities: tasks.io_priorities,
        cpus_allowed_list: status_value(&status, "Cpus_allowed_list").map(str::to_owned),
        mems_allowed_list: status_value(&status, "Mems_allowed_list").map(str::to_owned),
        numa_policy: numa
            .and_then(|head| Some(String::from_utf8_lossy(&head).split_whitespace().nth(1)?.to_owned())),
        allocator: process.text("maps").and_then(|maps| allocator(&maps)),
        cgroup: process.text("cgroup").map(|text| cgroup::read(host, &hierarchies.and_of(process), &text)),
        namespaces: None,
        root: None,
        file_systems: None,
    }
}

/// Enough for the address and the policy of the first mapping. The kernel walks the page tables of every
/// mapping that it prints, which takes seconds for a large buffer pool: so read no further.
const NUMA_MAPS_HEAD_BYTES: u64 = 64;

fn datadir(arguments: &[String]) -> Option<String> {
    let mut arguments = arguments.iter().skip(1);
    while let Some(argument) = arguments.next() {
        if let Some(value) = argument.strip_prefix("--datadir=") {
            return Some(value.to_owned());
        }
        if argument == "--datadir" || argument == "-h" {
            return arguments.next().cloned();
        }
    }
    None
}

/// The 19th field.
fn nice(stat: &str) -> Option<i32> {
    field(stat, 19)?.parse().ok()
}

/// The 41st field, by the names of `chrt` and of systemd.
fn scheduling_policy(stat: &str) -> Option<&'static str> {
    let policies = [(0, "other"), (1, "fifo"), (2, "rr"), (3, "batch"), (5, "idle"), (6, "deadline")];
    let number: u32 = field(stat, 41)?.parse().ok()?;
    policies.into_iter().find(|&(policy, _)| policy == number).map(|(_, name)| name)
}

/// A field of /proc/PID/stat after the second, which is a name in brackets and may hold spaces and brackets.
pub(super) fn field(stat: &str, number: usize) -> Option<&str> {
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(number - 3)
}

fn status_bytes(status: &str, key: &str) -> Option<u64> {
    status_value(status, key)?.strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Soft and hard limit of a line of /proc/PID/limits.
fn limit(limits: &str, name: &str) -> (Option<Limit>, Option<Limit>) {
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let mut words = line.split_whitespace();
    (words.next().and_then(Limit::parse), words.next().and_then(Limit::parse))
}

/// `None` without maps: the process ended, or belongs to another user.
fn allocator(maps: &str) -> Option<Allocator> {
    let libraries = || maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let path = |library: &str| Some(library.trim_end_matches(" (deleted)").to_owned());
    let file = |library: &str| library.rsplit('/').next().unwrap_or_default().to_owned();
    for library in libraries() {
        if let Some((_, name)) = ALLOCATORS.iter().find(|(prefix, _)| file(library).starts_with(prefix)) {
            return Some(Allocator { name, path: path(library) });
        }
    }
    let is_c_library = |library: &&str| {
        let file = file(library);
        file.starts_with("libc.so") || file.starts_with("libc-2.") || file.starts_with("ld-musl")
    };
    libraries().next()?;
    Some(Allocator { name: "system", path: libraries().find(is_c_library).and_then(path) })
}

pub fn irqbalance(host: &Folder, pid: Option<u32>, live: bool) -> Irqbalance {
    let status = host.text("var/lib/dpkg/status").unwrap_or_default();
    let packaged = package_version(&status, "irqbalance").map(str::to_owned);
    // Other distributions have no such file. Not by PATH: that of a remote shell has no /usr/sbin in it.
    let may_ask = live && host.exists("usr/sbin/irqbalance");
    Irqbalance { pid, version: packaged.or_else(|| if may_ask { ask_irqbalance() } else { None }) }
}

/// The version of an installed Debian package.
fn package_version<'a>(status: &'a str, package: &str) -> Option<&'a str> {
    let first = format!("Package: {package}\n");
    let paragraph = status.split("\n\n").find(|paragraph| paragraph.starts_with(&first))?;
    let value = |key: &str| paragraph.lines().find_map(|line| line.strip_prefix(key));
    // A removed package stays in the file as long as its configuration does.
    value("Status: ").filter(|state| state.ends_with(" installed"))?;
    value("Version: ")
}

fn ask_irqbalance() -> Option<String> {
    let output = std::process::Command::new("/usr/sbin/irqbalance").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{
        Allocator, Limit, allocator, datadir, limit, nice, package_version, scheduling_policy, status_bytes,
    };

    #[test]
    fn the_allocator_is_what_the_maps_show() {
        let libc = "7f00-7f01 r--p 00000000 fd:00 1 /usr/lib/x86_64-linux-gnu/libc.so.6\n";
        let heap = "5600-5601 rw-p 00000000 00:00 0 [heap]\n";
        let jemalloc = "7f02-7f03 r-xp 00000000 fd:00 2 /usr/lib/libjemalloc.so.2 (deleted)\n";
        let expected = |name, path: &str| Some(Allocator { name, path: Some(path.to_owned()) });
        assert_eq!(
            allocator(&format!("{heap}{libc}")),
            expected("system", "/usr/lib/x86_64-linux-gnu/libc.so.6")
        );
        assert_eq!(
            allocator(&format!("{libc}{jemalloc}")),
            expected("jemalloc", "/usr/lib/libjemalloc.so.2")
        );
        assert_eq!(
            allocator("7f-80 r-xp 0 0:0 1 /opt/lib/libtcmalloc_minimal.so.4\n"),
            expected("tcmalloc", "/opt/lib/libtcmalloc_minimal.so.4")
        );
        assert_eq!(allocator(""), None);
    }

    #[test]
    fn limits_of_a_process() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 unlimited            files     \n";
        assert_eq!(limit(text, "Max open files"), (Some(Limit::Value(1024)), Some(Limit::Max)));
        assert_eq!(limit("", "Max open files"), (None, None));
    }

    #[test]
    fn the_priority_stands_behind_any_name() {
        let rest = "S 1 2 3 4 -1 6 7 8 9 10 11 12 13 14 39 19 80 0 5555";
        assert_eq!(nice(&format!("7 (my (sql) d) {rest}")), Some(19));
        assert_eq!(nice("7 (mysqld) S 1"), None);
        assert_eq!(nice(""), None);
    }

    #[test]
    fn the_policy_has_the_name_that_chrt_gives_it() {
        let stat = |policy: &str| format!("7 (mysqld) S {} {policy} 0", ["0"; 37].join(" "));
        assert_eq!(scheduling_policy(&stat("0")), Some("other"));
        assert_eq!(scheduling_policy(&stat("5")), Some("idle"));
        assert_eq!(scheduling_policy(&stat("4")), None);
        assert_eq!(scheduling_policy("7 (mysqld) S 1"), None);
    }

    #[test]
    fn a_key_is_matched_whole() {
        let status = "VmRSSx:\t7 kB\nVmRSS:\t    1024 kB\nThreads:\t3\n";
        assert_eq!(status_bytes(status, "VmRSS"), Some(1 << 20));
        assert_eq!(status_bytes(status, "VmSwap"), None);
    }

    #[test]
    fn the_data_folder_in_its_spellings() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(datadir(&words("mysqld --datadir=/a")).as_deref(), Some("/a"));
        assert_eq!(datadir(&words("mysqld --datadir /a")).as_deref(), Some("/a"));
        assert_eq!(datadir(&words("mysqld -h /a")).as_deref(), Some("/a"));
        assert_eq!(datadir(&words("mysqld --port=1")), None);
    }

    #[test]
    fn only_an_installed_package_has_a_version() {
        let status = "Package: irqbalance-ui\nStatus: install ok installed\nVersion: 9\n\n\
                      Package: irqbalance\nStatus: install ok installed\nVersion: 1.9.2-3\n\n\
                      Package: fio\nStatus: deinstall ok config-files\nVersion: 3.33-3\n";
        assert_eq!(package_version(status, "irqbalance"), Some("1.9.2-3"));
        assert_eq!(package_version(status, "irqbalance-ui"), Some("9"));
        assert_eq!(package_version(status, "fio"), None);
        assert_eq!(package_version(status, "mdadm"), None);
    }
}
