//! Things of which the kernel may have far too many, and walks all of them: mounts and control groups.
//!
//! A control group that was removed stays in the kernel while a page is charged to it. Tens of thousands of these make
//! every reclaim, and every reading of memory statistics, a walk through all of them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::sample::sampler::{Host, Kind, Sample};
use super::sample::values::Values;

pub const OBJECTS: Kind = Kind::host(
    "objects",
    "mounts of this mount namespace; control groups by controller (/proc/cgroups); those below the root, and those \
     that were removed and still exist (cgroup.stat)",
    |host: &Host| Box::new(Objects { root: host.root.clone() }),
)
.every(10);

/// Where control groups of version 2 are mounted, alone or beside those of version 1.
const UNIFIED: [&str; 2] = ["sys/fs/cgroup/cgroup.stat", "sys/fs/cgroup/unified/cgroup.stat"];
/// Lines of cgroup.stat, and the metrics' names. The last is there since Linux 6.12.
const STAT: [(&str, &str); 3] = [
    ("nr_descendants", "groups"),
    ("nr_dying_descendants", "dying_groups"),
    ("nr_dying_subsys_memory", "dying_memory_groups"),
];

struct Objects {
    root: PathBuf,
}

impl Sample for Objects {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        let path = self.root.join("proc/self/mountinfo");
        values.single("mounts", lines(&path).with_context(|| format!("cannot read {}", path.display()))?);
        if let Ok(text) = fs::read_to_string(self.root.join("proc/cgroups")) {
            by_controller(&text, values);
        }
        if let Some(text) = UNIFIED.iter().find_map(|path| fs::read_to_string(self.root.join(path)).ok()) {
            of_root(&text, values);
        }
        Ok(())
    }
}

/// Counted as it is read: with a hundred thousand mounts this is a file of many megabytes.
fn lines(path: &Path) -> std::io::Result<u64> {
    let mut file = fs::File::open(path)?;
    let (mut buffer, mut lines) = (vec![0; 1 << 16], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(lines),
            count => lines += buffer[..count].iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>(),
        }
    }
}

/// `memory  0  251  1`: controller, hierarchy, groups, whether it is on.
fn by_controller(text: &str, values: &mut Values) {
    values.metric("groups_by_controller");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_ascii_whitespace();
        if let (Some(name), Some(count)) = (words.next(), words.nth(1).and_then(|word| word.parse().ok())) {
            values.value(name, count);
        }
    }
}

fn of_root(text: &str, values: &mut Values) {
    for line in text.lines() {
        let Some((name, count)) = line.split_once(' ') else { continue };
        let metric = STAT.iter().find(|(known, _)| *known == name);
        if let (Some((_, metric)), Ok(count)) = (metric, count.trim().parse()) {
            values.single(metric, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Objects;
    use crate::sample::sampler::Sample;
    use crate::sample::values::{Values, collect};
    use serde_json::json;
    use std::fs;

    #[test]
    fn mounts_and_groups_are_counted() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["proc/self", "sys/fs/cgroup"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let mut objects = Objects { root: root.path().to_owned() };
        assert!(objects.sample(&mut Values::default()).is_err());
        fs::write(root.path().join("proc/self/mountinfo"), "29 1 8:1 / / rw - xfs /dev/sda rw\n".repeat(3))
            .unwrap();
        let values = collect(|values| objects.sample(values).unwrap());
        assert_eq!(values, json!({"mounts": {"": 3}}));
        fs::write(
            root.path().join("proc/cgroups"),
            "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t120\t1\nmemory\t0\t50123\t1\n",
        )
        .unwrap();
        fs::write(
            root.path().join("sys/fs/cgroup/cgroup.stat"),
            "nr_descendants 120\nnr_subsys_memory 118\nnr_dying_descendants 50003\nnr_dying_subsys_memory 50001\n",
        )
        .unwrap();
        let values = collect(|values| objects.sample(values).unwrap());
        assert_eq!(values["groups_by_controller"], json!({"cpu": 120, "memory": 50_123}));
        assert_eq!(values["groups"], json!({"": 120}));
        assert_eq!(values["dying_groups"], json!({"": 50_003}));
        assert_eq!(values["dying_memory_groups"], json!({"": 50_001}));
    }

    #[test]
    fn this_host_has_mounts() {
        let values = collect(|values| Objects { root: "/".into() }.sample(values).unwrap());
        assert!(values["mounts"][""].as_u64().unwrap() > 0);
    }
}
