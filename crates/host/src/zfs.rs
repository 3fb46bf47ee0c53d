//! /proc/spl/kstat/zfs/arcstats: ZFS's own cache of files, which the kernel counts as used memory.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, ensure};

use super::sample::sampler::{Kind, Sample};
use super::sample::values::Values;

/// Sizes in bytes, and counters since the module was loaded: arcstat(1), zfs(4).
const KEPT: [&str; 11] = [
    "size",
    "c",
    "c_min",
    "c_max",
    "hits",
    "misses",
    "demand_data_hits",
    "demand_data_misses",
    "memory_throttle_count",
    "memory_direct_count",
    "memory_indirect_count",
];

pub const ZFS: Kind = Kind::host(
    "zfs",
    "size, target, limits, hits and misses of ZFS's cache; nothing without ZFS (/proc/spl/kstat/zfs/arcstats)",
    |host| Box::new(Cache { path: host.root.join("proc/spl/kstat/zfs/arcstats") }),
);

struct Cache {
    path: PathBuf,
}

impl Sample for Cache {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        match fs::read_to_string(&self.path) {
            Ok(text) => write(&text, values),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        }
    }
}

/// `size    4    5368709120`: name, type, value, after a line of numbers and one of titles.
fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    let mut found = 0;
    for line in text.lines().skip(2) {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(_), Some(number)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if KEPT.contains(&name) {
            values.single(name, number.parse().with_context(|| format!("{name} is {number:?}"))?);
            found += 1;
        }
    }
    ensure!(found > 0, "arcstats has none of the values looked for");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Cache, write};
    use crate::sample::sampler::Sample;
    use crate::sample::values::{Values, collect};
    use serde_json::json;

    const TEXT: &str = "13 1 0x01 147 39984 5211434183 1234567890123\nname                            type data\n\
        hits                            4    9000\nmisses                          4    1000\n\
        c_min                           4    2102624384\nsize                            4    51539607552\n";

    #[test]
    fn sizes_and_counters() {
        let values = collect(|values| write(TEXT, values).unwrap());
        assert_eq!(values["size"], json!({"": 51_539_607_552_u64}));
        assert_eq!(values["c_min"], json!({"": 2_102_624_384_u64}));
        assert_eq!(values["misses"], json!({"": 1000}));
    }

    #[test]
    fn a_host_without_zfs_has_no_values_and_no_error() {
        let root = tempfile::tempdir().unwrap();
        let mut cache = Cache { path: root.path().join("arcstats") };
        cache.sample(&mut Values::default()).unwrap();
    }

    #[test]
    fn something_else_is_an_error() {
        for text in ["", "13 1\nname type data\nother 4 1\n", "13 1\nname type data\nsize 4 many\n"] {
            assert!(write(text, &mut Values::default()).is_err(), "{text:?}");
        }
    }
}
