//! /proc/interrupts: how often each CPU handled each interrupt.

use anyhow::ensure;

use super::sample::sampler::Kind;
use super::sample::source::{numbers, text};
use super::sample::values::Values;

pub const INTERRUPTS: Kind = Kind::host(
    "interrupts",
    "counts of each interrupt on each CPU, where not zero; label irq/cpuN (/proc/interrupts)",
    |host| text(&host.root, "proc/interrupts", write),
);

/// The table: `cpus` are the numbers of the online CPUs in column order.
pub struct Interrupts<'a> {
    pub cpus: Vec<u32>,
    pub rows: Vec<Row<'a>>,
}

/// One interrupt: `irq` is a number or a name (`NMI`), `counts` has one per CPU of `cpus`, `description` the rest.
pub struct Row<'a> {
    pub irq: &'a str,
    pub counts: Vec<u64>,
    pub description: &'a str,
}

/// Parses the file's text. Rows with fewer counts than CPUs (`ERR`, `MIS`) keep what they have.
pub fn parse(text: &str) -> Interrupts<'_> {
    let mut lines = text.lines();
    let cpus = parse_cpus(lines.next().unwrap_or_default());
    let rows = lines
        .filter_map(|line| {
            let (irq, rest) = line.split_once(':')?;
            let counts: Vec<u64> = numbers(rest).take(cpus.len()).collect();
            let mut description = rest;
            for _ in &counts {
                description = description.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
            }
            Some(Row { irq: irq.trim(), counts, description: description.trim() })
        })
        .collect();
    Interrupts { cpus, rows }
}

fn parse_cpus(heading: &str) -> Vec<u32> {
    heading.split_whitespace().filter_map(|name| name.strip_prefix("CPU")?.parse().ok()).collect()
}

/// A host of 128 CPUs has thousands of counts per tick: none of them allocates.
fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    let mut lines = text.lines();
    let labels: Vec<String> =
        parse_cpus(lines.next().unwrap_or_default()).iter().map(|cpu| format!("/cpu{cpu}")).collect();
    ensure!(!labels.is_empty(), "/proc/interrupts has no line of CPUs");
    values.metric("count");
    let mut label = String::new();
    for line in lines {
        let Some((irq, counts)) = line.split_once(':') else { continue };
        label.clear();
        label.push_str(irq.trim_start());
        let name = label.len();
        // ERR and MIS have one count for the whole machine, not per CPU.
        let is_total = labels.len() > 1 && numbers(counts).nth(1).is_none();
        for (cpu, count) in labels.iter().zip(numbers(counts)).filter(|(_, count)| *count > 0) {
            label.truncate(name);
            label.push_str(if is_total { "/all" } else { cpu });
            values.value(&label, count);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{parse, write};
    use crate::sample::values::{Values, collect};
    use serde_json::json;

    const TEXT: &str = "            CPU0       CPU2       
   1:          0         10   IO-APIC   1-edge      i8042
  24:     167699          0  PCI-MSIX-0000:00:01.0   0-edge      virtio0-config
 LOC:      18314      14576   Local timer interrupts
 ERR:          3
 MIS:          0
";

    #[test]
    fn rows_keep_their_description() {
        let table = parse(TEXT);
        assert_eq!(table.cpus, [0, 2]);
        assert_eq!(table.rows[1].irq, "24");
        assert_eq!(table.rows[1].counts, [167_699, 0]);
        assert_eq!(table.rows[1].description, "PCI-MSIX-0000:00:01.0   0-edge      virtio0-config");
        assert_eq!(table.rows[3].counts, [3]);
        assert_eq!(table.rows[3].description, "");
    }

    #[test]
    fn counts_that_are_not_zero_are_sampled() {
        let values = collect(|values| write(TEXT, values).unwrap());
        assert_eq!(
            values,
            json!({"count": {
                "1/cpu2": 10, "24/cpu0": 167699, "LOC/cpu0": 18314, "LOC/cpu2": 14576, "ERR/all": 3,
            }})
        );
        assert!(write("", &mut Values::default()).is_err());
    }
}
