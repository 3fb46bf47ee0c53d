//! /proc/vmstat: the memory manager's counters. Their names differ between kernels and are passed on unchanged.

use anyhow::Context;

use super::sample::sampler::Kind;
use super::sample::source::{numbers, text};
use super::sample::values::Values;

pub const VMSTAT: Kind =
    Kind::host("vmstat", "paging, reclaim, compaction and dirty pages (/proc/vmstat)", |host| {
        text(&host.root, "proc/vmstat", write)
    });

fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    anyhow::ensure!(!text.is_empty(), "/proc/vmstat is empty");
    for line in text.lines() {
        let number = line.split_once(' ').and_then(|(name, rest)| Some((name, numbers(rest).next()?)));
        let (name, number) = number.with_context(|| format!("/proc/vmstat has no number in {line:?}"))?;
        values.single(name, number);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::sample::values::{Values, collect};
    use serde_json::json;

    #[test]
    fn each_line_is_a_metric() {
        let values = collect(|values| write("nr_free_pages 5213\npgmajfault 77\n", values).unwrap());
        assert_eq!(values, json!({"nr_free_pages": {"": 5213}, "pgmajfault": {"": 77}}));
        assert!(write("nr_free_pages\n", &mut Values::default()).is_err());
        assert!(write("", &mut Values::default()).is_err());
    }
}
