//! /proc/softirqs: how often each soft interrupt ran on each CPU.

use anyhow::ensure;

use super::sample::sampler::Kind;
use super::sample::source::{numbers, text};
use super::sample::values::Values;

pub const SOFTIRQS: Kind =
    Kind::host("softirqs", "runs of each soft interrupt on each CPU (/proc/softirqs)", |host| {
        text(&host.root, "proc/softirqs", write)
    });

fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    let mut lines = text.lines();
    // Offline CPUs have no column, so a column's number is not its CPU.
    let cpus: Vec<String> =
        lines.next().unwrap_or_default().split_whitespace().map(str::to_ascii_lowercase).collect();
    ensure!(cpus.first().is_some_and(|name| name.starts_with("cpu")), "/proc/softirqs has no line of CPUs");
    for line in lines {
        let Some((name, counts)) = line.split_once(':') else { continue };
        values.metric(name.trim_start());
        for (cpu, count) in cpus.iter().zip(numbers(counts)) {
            values.value(cpu, count);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::sample::values::{Values, collect};
    use serde_json::json;

    #[test]
    fn columns_are_the_cpus_of_the_first_line() {
        let text = "                    CPU0       CPU2       \n      NET_RX:       7825      14579\n         RCU:          0         26\n";
        let values = collect(|values| write(text, values).unwrap());
        assert_eq!(values, json!({"NET_RX": {"cpu0": 7825, "cpu2": 14579}, "RCU": {"cpu0": 0, "cpu2": 26}}));
        assert!(write("", &mut Values::default()).is_err());
    }
}
