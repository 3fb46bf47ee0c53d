//! Control groups: the limits of a process, by version 1, 2 or both.

use std::collections::{BTreeMap, HashMap};

use serde::{Serialize, Serializer};

use super::files::Folder;
use crate::mountinfo::{self, Mount};

/// A limit that may be switched off: `"max"`, as in cgroup v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    Value(u64),
    Max,
}

impl Limit {
    /// Understands `max`, `unlimited`, and cgroup v1's values for no limit: -1, or a number of bytes near 2^63.
    pub fn parse(text: &str) -> Option<Limit> {
        match text.trim() {
            "max" | "unlimited" | "-1" => Some(Limit::Max),
            number => number
                .parse()
                .ok()
                .map(|value| if value >= 1 << 62 { Limit::Max } else { Limit::Value(value) }),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::Value(value) => serializer.serialize_u64(*value),
            Limit::Max => serializer.serialize_str("max"),
        }
    }
}

/// The limits that hold for one process: the tightest of its own group and all groups above.
/// Null if the controller is off, or its files cannot be read.
#[derive(Serialize)]
pub struct Limits {
    /// Controller -> group; `""` is version 2.
    groups: BTreeMap<String, String>,
    /// Controller -> the group's folder, as the sampler `cgroup` names it.
    folders: BTreeMap<String, String>,
    cpu_quota_us: Option<Limit>,
    cpu_period_us: Option<u64>,
    /// Of its own group: `cpu.weight`, 1 to 10,000, or `cpu.shares` of version 1.
    cpu_weight: Option<u64>,
    cpu_shares: Option<u64>,
    /// Of its own group and those above, its own first: a group shares what the one above gets.
    cpu_weights: Vec<Weight>,
    io_weights: Vec<Weight>,
    /// major:minor of the devices on which `io.weight` counts (`io.cost.qos`).
    io_cost_devices: Vec<String>,
    cpuset_cpus: Option<String>,
    cpuset_mems: Option<String>,
    memory_max_bytes: Option<Limit>,
    memory_high_bytes: Option<Limit>,
    /// Version 2: only swap. Version 1: memory and swap together.
    memory_swap_max_bytes: Option<Limit>,
    memory_and_swap_max_bytes: Option<Limit>,
    /// Threads and processes of the group together.
    pids_max: Option<Limit>,
    io: Vec<IoLimit>,
}

#[derive(Serialize)]
struct Weight {
    /// The group's folder, and the file in it.
    path: String,
    file: &'static str,
    weight: u64,
}

#[derive(Serialize)]
struct IoLimit {
    /// The folder of the group that has this limit.
    path: String,
    /// major:minor
    device_number: String,
    read_bytes_s: Option<Limit>,
    write_bytes_s: Option<Limit>,
    read_ios_s: Option<Limit>,
    write_ios_s: Option<Limit>,
}

/// Where the hierarchies are mounted, for the reader and then as a process sees them: controller (`""` for version
/// 2) -> (mount point, group mounted there).
pub struct Hierarchies(Vec<HashMap<String, (String, String)>>);

impl Hierarchies {
    pub fn of(mounts: &[Mount]) -> Hierarchies {
        Hierarchies(vec![Hierarchies::mounted(mounts, "")])
    }

    /// These, and for groups that they do not show those of the process's own mounts: of a server in another
    /// container only its own mounts may lead to its group.
    pub fn and_of(&self, process: &Folder) -> Hierarchies {
        let mounts = mountinfo::parse(&process.text("mountinfo").unwrap_or_default());
        let mut all = self.0.clone();
        all.push(Hierarchies::mounted(&mounts, &format!("{}/root", process.path())));
        Hierarchies(all)
    }

    fn mounted(mounts: &[Mount], below: &str) -> HashMap<String, (String, String)> {
        let mut mounted = HashMap::new();
        for mount in mounts {
            let place = (format!("{below}{}", mount.mount_point), mount.root.clone());
            match mount.kind.as_str() {
                "cgroup2" => drop(mounted.insert(String::new(), place)),
                "cgroup" => {
                    mounted.extend(mount.super_options.iter().map(|option| (option.clone(), place.clone())))
                }
                _ => {}
            }
        }
        mounted
    }

    /// The group's folder and those above it, its own first.
    pub fn lineage<'a>(&self, host: &Folder<'a>, controller: &str, group: &str) -> Option<Vec<Folder<'a>>> {
        self.0.iter().find_map(|mounts| {
            let (mount_point, mounted) = mounts.get(controller)?;
            // In a container the mount shows only the container's part of the tree.
            let below = if mounted == "/" { group } else { group.strip_prefix(mounted.as_str())? };
            // `/../other` is outside of the reader's control group namespace: the top here is not above it.
            if below.split('/').any(|part| part == "..") || !(below.is_empty() || below.starts_with('/')) {
                return None;
            }
            let top = host.absolute(mount_point);
            let mut folders = vec![top.clone()];
            for part in below.split('/').filter(|part| !part.is_empty()) {
                folders.push(folders.last().unwrap_or(&top).join(part));
            }
            folders.reverse();
            Some(folders)
        })
    }
}

/// `text` is /proc/PID/cgroup.
pub fn read(host: &Folder, hierarchies: &Hierarchies, text: &str) -> Limits {
    let groups = parse_groups(text);
    let unified = groups.get("").and_then(|group| hierarchies.lineage(host, "", group));
    let enabled =
        unified.as_ref().and_then(|folders| folders.last()?.line("cgroup.controllers")).unwrap_or_default();
    let v2 =
        |controller: &str| unified.as_deref().filter(|_| enabled.split(' ').any(|name| name == controller));
    // The top group has no files, nor has one below that version 2 does not control: both mean no limit.
    const NO_QUOTA: Option<(Limit, u64)> = Some((Limit::Max, 100_000));
    let v1 = |controller: &str| hierarchies.lineage(host, controller, groups.get(controller)?);

    let (mut quota, mut weight, mut shares, mut weights) = (None, None, None, Vec::new());
    if let Some(folders) = v2("cpu") {
        quota = tightest_quota(folders, |folder| parse_cpu_max(&folder.line("cpu.max")?)).or(NO_QUOTA);
        weight = folders[0].number("cpu.weight");
        weights = weights_of(folders, &["cpu.weight"]);
    } else if let Some(folders) = v1("cpu") {
        quota = tightest_quota(&folders, |folder| {
            Some((Limit::parse(&folder.line("cpu.cfs_quota_us")?)?, folder.number("cpu.cfs_period_us")?))
        });
        shares = folders[0].number("cpu.shares");
        weights = weights_of(&folders, &["cpu.shares"]);
    }
    let (mut cpus, mut mems) = (None, None);
    if let Some(folders) = v2("cpuset") {
        // A group without its own files has the limits of its parent.
        cpus = folders.iter().find_map(|folder| folder.line("cpuset.cpus.effective"));
        mems = folders.iter().find_map(|folder| folder.line("cpuset.mems.effective"));
    } else if let Some(folders) = v1("cpuset") {
        cpus = folders[0].line("cpuset.effective_cpus").or_else(|| folders[0].line("cpuset.cpus"));
        mems = folders[0].line("cpuset.effective_mems").or_else(|| folders[0].line("cpuset.mems"));
    }
    let memory = memory_of(v2("memory"), v1("memory"));
    let pids = match v2("pids") {
        Some(folders) => tightest(folders, "pids.max").or(Some(Limit::Max)),
        None => v1("pids").and_then(|folders| tightest(&folders, "pids.max").or(Some(Limit::Max))),
    };
    let (mut io, mut io_weights, mut io_cost_devices) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(folders) = v2("io") {
        io = folders.iter().flat_map(io_max).collect();
        io_weights = weights_of(folders, &["io.weight", "io.bfq.weight"]);
        io_cost_devices = folders.last().map(io_cost).unwrap_or_default();
    } else if let Some(folders) = v1("blkio") {
        io = folders.iter().flat_map(blkio_throttle).collect();
        io_weights = weights_of(&folders, &["blkio.bfq.weight", "blkio.weight"]);
    }
    let folder_of = |(controller, group): (&String, &String)| {
        let own = hierarchies.lineage(host, controller, group)?.swap_remove(0);
        Some((controller.clone(), own.path().to_owned()))
    };
    Limits {
        folders: groups.iter().filter_map(folder_of).collect(),
        cpu_quota_us: quota.map(|(quota, _)| quota),
        cpu_period_us: quota.map(|(_, period_us)| period_us),
        cpu_weight: weight,
        cpu_shares: shares,
        cpu_weights: weights,
        io_weights,
        io_cost_devices,
        cpuset_cpus: cpus,
        cpuset_mems: mems,
        memory_max_bytes: memory.most,
        memory_high_bytes: memory.high,
        memory_swap_max_bytes: memory.swap,
        memory_and_swap_max_bytes: memory.both,
        pids_max: pids,
        io,
        groups,
    }
}

#[derive(Default)]
struct Memory {
    most: Option<Limit>,
    high: Option<Limit>,
    swap: Option<Limit>,
    both: Option<Limit>,
}

fn memory_of(v2: Option<&[Folder]>, v1: Option<Vec<Folder>>) -> Memory {
    match (v2, v1) {
        (Some(folders), _) => Memory {
            most: tightest(folders, "memory.max").or(Some(Limit::Max)),
            high: tightest(folders, "memory.high").or(Some(Limit::Max)),
            swap: tightest(folders, "memory.swap.max").or(Some(Limit::Max)),
            both: None,
        },
        (None, Some(folders)) => Memory {
            most: tightest(&folders, "memory.limit_in_bytes"),
            both: tightest(&folders, "memory.memsw.limit_in_bytes"),
            ..Memory::default()
        },
        (None, None) => Memory::default(),
    }
}

/// Lines `4:cpu,cpuacct:/group` and, for version 2, `0::/group`.
pub fn parse_groups(text: &str) -> BTreeMap<String, String> {
    let mut groups = BTreeMap::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        if let (Some(controllers), Some(group)) = (parts.next(), parts.next()) {
            groups.extend(controllers.split(',').map(|name| (name.to_owned(), group.to_owned())));
        }
    }
    groups
}

fn tightest(folders: &[Folder], name: &str) -> Option<Limit> {
    folders.iter().filter_map(|folder| Limit::parse(&folder.line(name)?)).min()
}

fn tightest_quota(
    folders: &[Folder],
    read: impl Fn(&Folder) -> Option<(Limit, u64)>,
) -> Option<(Limit, u64)> {
    let share = |&(quota, period_us): &(Limit, u64)| match quota {
        Limit::Value(quota_us) => quota_us as f64 / period_us.max(1) as f64,
        Limit::Max => f64::INFINITY,
    };
    folders.iter().filter_map(read).min_by(|a, b| share(a).total_cmp(&share(b)))
}

/// Weights for I/O have the form `default 100` in version 2.
fn weights_of(folders: &[Folder], files: &[&'static str]) -> Vec<Weight> {
    let weight = |folder: &Folder, file: &'static str| {
        let line = folder.line(file)?;
        let weight = line.lines().next()?.trim_start_matches("default ").parse().ok()?;
        Some(Weight { path: folder.path().to_owned(), file, weight })
    };
    folders.iter().flat_map(|folder| files.iter().filter_map(move |file| weight(folder, file))).collect()
}

/// Lines `8:16 enable=1 ctrl=auto rpct=0.00 ...` of the top group.
fn io_cost(top: &Folder) -> Vec<String> {
    let text = top.text("io.cost.qos").unwrap_or_default();
    let device = |line: &str| line.split_once(' ').map(|(device, _)| device.to_owned());
    text.lines().filter(|line| line.contains(" enable=1")).filter_map(device).collect()
}

/// `max 100000` or `150000 100000`.
fn parse_cpu_max(line: &str) -> Option<(Limit, u64)> {
    let (quota, period) = line.split_once(' ')?;
    Some((Limit::parse(quota)?, period.parse().ok()?))
}

/// Lines `8:16 rbps=2097152 wbps=max riops=max wiops=120`.
fn io_max(folder: &Folder) -> Vec<IoLimit> {
    let text = folder.text("io.max").unwrap_or_default();
    let parse = |line: &str| {
        let (device, rest) = line.split_once(' ')?;
        let value = |key: &str| {
            rest.split_whitespace().find_map(|word| Limit::parse(word.strip_prefix(key)?.strip_prefix('=')?))
        };
        Some(IoLimit {
            path: folder.path().to_owned(),
            device_number: device.to_owned(),
            read_bytes_s: value("rbps"),
            write_bytes_s: value("wbps"),
            read_ios_s: value("riops"),
            write_ios_s: value("wiops"),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// One file per kind of limit, with lines `8:16 2097152` only for the limited devices.
fn blkio_throttle(folder: &Folder) -> Vec<IoLimit> {
    let table = |name: &str| -> BTreeMap<String, Limit> {
        let text = folder.text(&format!("blkio.throttle.{name}_device")).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.filter_map(|(device, value)| Some((device.to_owned(), Limit::parse(value)?))).collect()
    };
    let [read_bps, write_bps, read_iops, write_iops] =
        ["read_bps", "write_bps", "read_iops", "write_iops"].map(table);
    let mut devices: Vec<&String> =
        [&read_bps, &write_bps, &read_iops, &write_iops].into_iter().flat_map(BTreeMap::keys).collect();
    devices.sort();
    devices.dedup();
    let limit = |table: &BTreeMap<String, Limit>, device: &str| {
        Some(table.get(device).copied().unwrap_or(Limit::Max))
    };
    devices
        .into_iter()
        .map(|device| IoLimit {
            path: folder.path().to_owned(),
            device_number: device.clone(),
            read_bytes_s: limit(&read_bps, device),
            write_bytes_s: limit(&write_bps, device),
            read_ios_s: limit(&read_iops, device),
            write_ios_s: limit(&write_iops, device),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Hierarchies, Limit, read};
    use crate::facts::files::Files;
    use crate::mountinfo;
    use serde_json::{Value, json};
    use std::fs;

    fn limits(mounts: &str, cgroup: &str, tree: &[(&str, &str)]) -> Value {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in tree {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = Files::open(Some(root.path())).unwrap();
        let hierarchies = Hierarchies::of(&mountinfo::parse(mounts));
        let limits = serde_json::to_value(read(&files.root(), &hierarchies, cgroup)).unwrap();
        assert!(files.into_errors().is_empty());
        limits
    }

    #[test]
    fn limit_spellings() {
        assert_eq!(Limit::parse("max\n"), Some(Limit::Max));
        assert_eq!(Limit::parse("-1"), Some(Limit::Max));
        assert_eq!(Limit::parse("9223372036854771712"), Some(Limit::Max));
        assert_eq!(Limit::parse("4096"), Some(Limit::Value(4096)));
        assert_eq!(Limit::parse("many"), None);
    }

    #[test]
    fn version_2_takes_the_tightest_of_all_groups_above() {
        let found = limits(
            "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "0::/system.slice/mysql.service\n",
            &[
                ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
                ("sys/fs/cgroup/io.cost.qos", "8:16 enable=1 ctrl=auto\n8:32 enable=0 ctrl=auto\n"),
                ("sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n"),
                ("sys/fs/cgroup/system.slice/cpu.weight", "20\n"),
                ("sys/fs/cgroup/system.slice/mysql.service/io.weight", "default 10\n8:16 500\n"),
                ("sys/fs/cgroup/system.slice/memory.max", "max\n"),
                ("sys/fs/cgroup/system.slice/mysql.service/cpu.max", "400000 100000\n"),
                ("sys/fs/cgroup/system.slice/mysql.service/cpu.weight", "100\n"),
                ("sys/fs/cgroup/system.slice/pids.max", "9000\n"),
                ("sys/fs/cgroup/system.slice/mysql.service/pids.max", "max\n"),
                ("sys/fs/cgroup/system.slice/mysql.service/memory.max", "8589934592\n"),
                ("sys/fs/cgroup/system.slice/mysql.service/cpuset.cpus.effective", "0-3\n"),
                (
                    "sys/fs/cgroup/system.slice/mysql.service/io.max",
                    "259:0 rbps=max wbps=1048576 riops=max wiops=max\n",
                ),
            ],
        );
        assert_eq!(found["folders"], json!({"": "/sys/fs/cgroup/system.slice/mysql.service"}));
        assert_eq!(found["cpu_quota_us"], 150_000);
        assert_eq!(found["cpu_weight"], 100);
        let slice = "/sys/fs/cgroup/system.slice";
        let service = format!("{slice}/mysql.service");
        assert_eq!(
            found["cpu_weights"],
            json!([{"path": service, "file": "cpu.weight", "weight": 100},
                   {"path": slice, "file": "cpu.weight", "weight": 20}])
        );
        assert_eq!(found["io_weights"], json!([{"path": service, "file": "io.weight", "weight": 10}]));
        assert_eq!(found["io_cost_devices"], json!(["8:16"]));
        assert_eq!(found["memory_max_bytes"], 8_589_934_592_u64);
        assert_eq!(found["memory_high_bytes"], "max");
        assert_eq!(found["pids_max"], 9000);
        assert_eq!(found["cpuset_cpus"], "0-3");
        assert_eq!(found["io"][0]["write_bytes_s"], 1_048_576);
        assert_eq!(found["io"][0]["read_bytes_s"], "max");
    }

    #[test]
    fn version_1_in_a_container_without_a_namespace() {
        let found = limits(
            "32 31 0:29 /docker/ab /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             33 31 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n",
            "4:cpu,cpuacct:/docker/ab\n5:blkio:/docker/ab\n6:memory:/docker/ab\n",
            &[
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.shares", "1024\n"),
                ("sys/fs/cgroup/blkio/docker/ab/blkio.throttle.read_iops_device", "254:0 1000\n"),
                ("sys/fs/cgroup/blkio/docker/blkio.bfq.weight", "50\n"),
                ("sys/fs/cgroup/blkio/blkio.weight", "500\n"),
            ],
        );
        // Memory is not mounted, and the container's own group is the top of what it sees.
        let folders = ["cpu", "cpuacct"].map(|name| (name, "/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(
            found["folders"],
            json!({folders[0].0: folders[0].1, folders[1].0: folders[1].1, "blkio": "/sys/fs/cgroup/blkio/docker/ab"})
        );
        assert_eq!(found["cpu_quota_us"], 50_000);
        assert_eq!(found["cpu_shares"], 1024);
        assert_eq!(
            found["cpu_weights"],
            json!([{"path": folders[0].1, "file": "cpu.shares", "weight": 1024}])
        );
        let blkio = "/sys/fs/cgroup/blkio";
        assert_eq!(
            found["io_weights"],
            json!([{"path": format!("{blkio}/docker"), "file": "blkio.bfq.weight", "weight": 50},
                   {"path": blkio, "file": "blkio.weight", "weight": 500}])
        );
        assert_eq!(found["memory_max_bytes"], Value::Null, "the controller is not mounted");
        assert_eq!(found["io"][0]["read_ios_s"], 1000);
        assert_eq!(found["io"][0]["write_ios_s"], "max");
    }

    #[test]
    fn a_group_beside_the_readers_is_found_by_its_own_processs_mounts() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let own = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        write("sys/fs/cgroup/cgroup.controllers", "cpu\n");
        write("sys/fs/cgroup/cpu.max", "10000 100000\n"); // the reader's
        write("proc/7/mountinfo", "31 23 0:28 /../db /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("proc/7/root/sys/fs/cgroup/cgroup.controllers", "cpu\n");
        write("proc/7/root/sys/fs/cgroup/cpu.max", "150000 100000\n");
        let files = Files::open(Some(root.path())).unwrap();
        let hierarchies = Hierarchies::of(&mountinfo::parse(own));
        let host = files.root();
        let quota = |pid: &str| {
            let known = hierarchies.and_of(&host.join(&format!("proc/{pid}")));
            serde_json::to_value(read(&host, &known, "0::/../db\n")).unwrap()
        };
        assert_eq!(quota("7")["cpu_quota_us"], 150_000);
        assert_eq!(quota("7")["folders"], json!({"": "/proc/7/root/sys/fs/cgroup"}));
        assert_eq!(quota("8")["cpu_quota_us"], Value::Null, "never the reader's own");
    }

    #[test]
    fn the_top_group_has_no_limits() {
        let found = limits(
            "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "0::/\n",
            &[("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")],
        );
        assert_eq!(found["cpu_quota_us"], "max");
        assert_eq!(found["memory_max_bytes"], "max");
        assert_eq!(found["groups"], json!({"": "/"}));
    }
}
