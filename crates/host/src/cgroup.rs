//! How control groups limited a server: CPU time refused, memory limits hit, tasks, requests to devices whose rate is
//! limited. For its own group and those above.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::facts::cgroup::{Hierarchies, parse_groups};
use super::facts::files::{Files, Folder};
use super::mountinfo;
use super::sample::sampler::{Host, Kind, Sample};
use super::sample::values::Values;
use super::servers::Servers;

pub const CGROUP: Kind = Kind::host(
    "cgroup",
    "CPU throttling, memory events, tasks, and I/O where it is limited, of the servers' control groups and those \
     above; label group, for I/O GROUP MAJOR:MINOR",
    |host: &Host| Box::new(Groups { root: host.root.clone(), servers: Servers::new(&host.root) }),
)
.every(10);

struct Groups {
    root: PathBuf,
    servers: Servers,
}

/// Metric -> group -> number. A group has the counters of its version and controllers.
type Counters = BTreeMap<&'static str, BTreeMap<String, u64>>;

const NS_PER_US: u64 = 1000;

impl Sample for Groups {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        let is_live = self.root.as_os_str() == "/";
        let files = Files::open((!is_live).then_some(self.root.as_path()))?;
        let host = files.root();
        let mounts = mountinfo::parse(&host.text("proc/self/mountinfo").unwrap_or_default());
        let hierarchies = Hierarchies::of(&mounts);
        let mut counters = Counters::new();
        for (_, label) in self.servers.now() {
            let pid = label.split('/').next().unwrap_or_default();
            let process = host.join(&format!("proc/{pid}"));
            let Some(groups) = process.text("cgroup") else { continue };
            let hierarchies = hierarchies.and_of(&process);
            for (controller, group) in parse_groups(&groups) {
                read_all(&host, &hierarchies, &controller, &group, &mut counters);
            }
        }
        for (metric, groups) in counters {
            values.metric(metric);
            for (group, number) in groups {
                values.value(&group, number);
            }
        }
        Ok(())
    }
}

fn read_all(
    host: &Folder,
    hierarchies: &Hierarchies,
    controller: &str,
    group: &str,
    counters: &mut Counters,
) {
    for folder in hierarchies.lineage(host, controller, group).unwrap_or_default() {
        match controller {
            "" => {
                read_cpu(&folder, counters);
                for (key, metric) in [
                    ("oom", "memory_oom"),
                    ("oom_kill", "memory_oom_kill"),
                    ("high", "memory_high"),
                    ("max", "memory_max"),
                ] {
                    add(&folder, "memory.events", key, metric, 1, counters);
                }
                read_tasks(&folder, counters);
                read_io(&folder, counters);
            }
            "blkio" => read_throttled(&folder, counters),
            "pids" => read_tasks(&folder, counters),
            "cpu" => read_cpu(&folder, counters),
            "memory" => {
                insert(&folder, "memory_max", folder.number("memory.failcnt"), counters);
                add(&folder, "memory.oom_control", "oom_kill", "memory_oom_kill", 1, counters);
            }
            _ => {}
        }
    }
}

/// Threads count as tasks. A group without a limit has `max` instead of a number.
fn read_tasks(folder: &Folder, counters: &mut Counters) {
    let limit = folder.line("pids.max").and_then(|limit| limit.trim().parse().ok());
    if let Some(limit) = limit {
        insert(folder, "tasks", folder.number("pids.current"), counters);
        insert(folder, "tasks_limit", Some(limit), counters);
        add(folder, "pids.events", "max", "tasks_refused", 1, counters);
    }
}

fn read_cpu(folder: &Folder, counters: &mut Counters) {
    add(folder, "cpu.stat", "nr_periods", "nr_periods", 1, counters);
    add(folder, "cpu.stat", "nr_throttled", "nr_throttled", 1, counters);
    add(folder, "cpu.stat", "throttled_usec", "throttled_us", 1, counters);
    // Version 1 counts ns.
    add(folder, "cpu.stat", "throttled_time", "throttled_us", NS_PER_US, counters);
}

/// Lines `8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0`.
fn read_io(folder: &Folder, counters: &mut Counters) {
    if folder.text("io.max").unwrap_or_default().is_empty() {
        return;
    }
    for line in folder.text("io.stat").unwrap_or_default().lines() {
        let Some((device, numbers)) = line.split_once(' ') else { continue };
        for (key, metric) in
            [("rbytes", "read_bytes"), ("wbytes", "write_bytes"), ("rios", "read_ios"), ("wios", "write_ios")]
        {
            let number = numbers
                .split_whitespace()
                .find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok());
            insert_of_device(folder, metric, device, number, counters);
        }
    }
}

/// Version 1: lines `8:16 Read 192` of two files.
fn read_throttled(folder: &Folder, counters: &mut Counters) {
    let is_limited =
        |what| !folder.text(&format!("blkio.throttle.{what}_device")).unwrap_or_default().is_empty();
    if !["read_bps", "write_bps", "read_iops", "write_iops"].into_iter().any(is_limited) {
        return;
    }
    for (file, read, write) in [
        ("blkio.throttle.io_serviced", "read_ios", "write_ios"),
        ("blkio.throttle.io_service_bytes", "read_bytes", "write_bytes"),
    ] {
        for line in folder.text(file).unwrap_or_default().lines() {
            let mut words = line.split_whitespace();
            let (Some(device), Some(what), Some(number)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let metric = match what {
                "Read" => read,
                "Write" => write,
                _ => continue,
            };
            insert_of_device(folder, metric, device, number.parse().ok(), counters);
        }
    }
}

fn insert_of_device(
    folder: &Folder,
    metric: &'static str,
    device: &str,
    number: Option<u64>,
    counters: &mut Counters,
) {
    if let Some(number) = number {
        let label = format!("{} {device}", folder.path());
        counters.entry(metric).or_default().insert(label, number);
    }
}

/// The number of a line `key number`.
fn add(folder: &Folder, file: &str, key: &str, metric: &'static str, divisor: u64, counters: &mut Counters) {
    let text = folder.text(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    insert(
        folder,
        metric,
        line.and_then(|number| Some(number.trim().parse::<u64>().ok()? / divisor)),
        counters,
    );
}

fn insert(folder: &Folder, metric: &'static str, number: Option<u64>, counters: &mut Counters) {
    if let Some(number) = number {
        counters.entry(metric).or_default().insert(folder.path().to_owned(), number);
    }
}

#[cfg(test)]
mod tests {
    use super::{Groups, Sample, Servers};
    use crate::sample::values::collect;
    use serde_json::json;
    use std::fs;
    use std::path::Path;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn server(root: &Path, mounts: &str, groups: &str) {
        write(root, "proc/self/mountinfo", mounts);
        write(root, "proc/7/comm", "mysqld\n");
        write(root, "proc/7/stat", "");
        write(root, "proc/7/cgroup", groups);
    }

    fn sample(root: &Path) -> serde_json::Value {
        let mut groups = Groups { root: root.to_owned(), servers: Servers::new(root) };
        collect(|values| groups.sample(values).unwrap())
    }

    #[test]
    fn version_2_also_above_the_server() {
        let root = tempfile::tempdir().unwrap();
        server(root.path(), "30 1 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/db/mysql\n");
        let cpu = "usage_usec 9\nnr_periods 40\nnr_throttled 12\nthrottled_usec 34567\nnr_bursts 0\n";
        write(root.path(), "sys/fs/cgroup/db/cpu.stat", cpu);
        write(
            root.path(),
            "sys/fs/cgroup/db/mysql/memory.events",
            "low 0\nhigh 3\nmax 5\noom 1\noom_kill 2\n",
        );
        write(root.path(), "sys/fs/cgroup/db/pids.current", "31\n");
        write(root.path(), "sys/fs/cgroup/db/pids.max", "max\n");
        write(root.path(), "sys/fs/cgroup/db/mysql/pids.current", "30\n");
        write(root.path(), "sys/fs/cgroup/db/mysql/pids.max", "32\n");
        write(root.path(), "sys/fs/cgroup/db/mysql/pids.events", "max 4\n");
        write(root.path(), "sys/fs/cgroup/db/mysql/io.max", "8:16 rbps=max wbps=max riops=max wiops=150\n");
        write(
            root.path(),
            "sys/fs/cgroup/db/mysql/io.stat",
            "8:16 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n",
        );
        // Without a limit nobody asks.
        write(root.path(), "sys/fs/cgroup/db/io.max", "");
        write(root.path(), "sys/fs/cgroup/db/io.stat", "8:16 rbytes=5 wbytes=5 rios=5 wios=5\n");
        assert_eq!(
            sample(root.path()),
            json!({
                "nr_periods": {"/sys/fs/cgroup/db": 40}, "nr_throttled": {"/sys/fs/cgroup/db": 12},
                "throttled_us": {"/sys/fs/cgroup/db": 34567},
                "memory_high": {"/sys/fs/cgroup/db/mysql": 3}, "memory_max": {"/sys/fs/cgroup/db/mysql": 5},
                "memory_oom": {"/sys/fs/cgroup/db/mysql": 1}, "memory_oom_kill": {"/sys/fs/cgroup/db/mysql": 2},
                "tasks": {"/sys/fs/cgroup/db/mysql": 30}, "tasks_limit": {"/sys/fs/cgroup/db/mysql": 32},
                "tasks_refused": {"/sys/fs/cgroup/db/mysql": 4},
                "read_bytes": {"/sys/fs/cgroup/db/mysql 8:16": 4096},
                "write_bytes": {"/sys/fs/cgroup/db/mysql 8:16": 8192},
                "read_ios": {"/sys/fs/cgroup/db/mysql 8:16": 1}, "write_ios": {"/sys/fs/cgroup/db/mysql 8:16": 2},
            })
        );
    }

    #[test]
    fn version_1() {
        let root = tempfile::tempdir().unwrap();
        let mounts = "32 1 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n33 1 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n\
            34 1 0:33 / /cg/blkio rw - cgroup cgroup rw,blkio\n";
        server(root.path(), mounts, "4:memory:/db\n1:cpu:/db\n2:blkio:/db\n");
        write(root.path(), "cg/blkio/db/blkio.throttle.write_iops_device", "8:16 150\n");
        let served = "8:16 Read 3\n8:16 Write 4\n8:16 Sync 7\n8:16 Total 7\nTotal 7\n";
        write(root.path(), "cg/blkio/db/blkio.throttle.io_serviced", served);
        write(root.path(), "cg/cpu/db/cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 5000999\n");
        write(root.path(), "cg/memory/db/memory.failcnt", "17\n");
        write(
            root.path(),
            "cg/memory/db/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        );
        assert_eq!(
            sample(root.path()),
            json!({
                "nr_periods": {"/cg/cpu/db": 4}, "nr_throttled": {"/cg/cpu/db": 2}, "throttled_us": {"/cg/cpu/db": 5000},
                "memory_max": {"/cg/memory/db": 17}, "memory_oom_kill": {"/cg/memory/db": 1},
                "read_ios": {"/cg/blkio/db 8:16": 3}, "write_ios": {"/cg/blkio/db 8:16": 4},
            })
        );
    }
}
