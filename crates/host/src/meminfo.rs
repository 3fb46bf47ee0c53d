//! /proc/meminfo.

use anyhow::ensure;

use super::sample::sampler::Kind;
use super::sample::source::{numbers, text};
use super::sample::values::Values;

pub const MEMORY: Kind =
    Kind::host("memory", "every line of /proc/meminfo, in bytes; HugePages counts in pages", |host| {
        text(&host.root, "proc/meminfo", write)
    });

/// Name and value of every line; values in kB become bytes, the HugePages counts stay numbers of pages.
pub fn parse(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let value = numbers(rest).next()?;
        Some((name, if rest.ends_with("kB") { value * 1024 } else { value }))
    })
}

fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    ensure!(text.starts_with("Mem"), "/proc/meminfo does not start with MemTotal");
    for (name, value) in parse(text) {
        values.single(name, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::sample::values::{Values, collect};
    use serde_json::json;

    #[test]
    fn bytes_and_pages() {
        let text = "MemTotal:       24689068 kB\nActive(anon):     102400 kB\nHugePages_Total:       3\nHugepagesize:       2048 kB\n";
        let values = collect(|values| write(text, values).unwrap());
        assert_eq!(
            values,
            json!({
                "MemTotal": {"": 25281605632_u64}, "Active(anon)": {"": 104857600}, "HugePages_Total": {"": 3},
                "Hugepagesize": {"": 2097152},
            })
        );
        assert!(write("", &mut Values::default()).is_err());
    }
}
