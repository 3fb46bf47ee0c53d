//! /proc/net/softnet_stat: the network receive path of each CPU. Hexadecimal, without a heading.

use anyhow::{Context, ensure};

use super::sample::sampler::Kind;
use super::sample::source::text;
use super::sample::values::Values;

pub const SOFTNET: Kind = Kind::host(
    "softnet",
    "packets processed, dropped and left over on each CPU (/proc/net/softnet_stat)",
    |host| text(&host.root, "proc/net/softnet_stat", write),
);

/// The column of each metric in net/core/net-procfs.c; received_rps came with 2.6.35, flow_limit with 3.11.
const COLUMNS: [(&str, usize); 5] =
    [("processed", 0), ("dropped", 1), ("time_squeeze", 2), ("received_rps", 9), ("flow_limit", 10)];
/// The number of the line's CPU, since 5.10. Before that only the order of the lines identifies it.
const CPU_COLUMN: usize = 12;
const MOST_COLUMNS: usize = 16;

fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    let mut cpus = Vec::new();
    for (position, line) in text.lines().enumerate() {
        let mut row = [0; MOST_COLUMNS];
        let mut count = 0;
        for (number, word) in row.iter_mut().zip(line.split_ascii_whitespace()) {
            *number = u32::from_str_radix(word, 16)
                .with_context(|| format!("{word:?} in /proc/net/softnet_stat is not hexadecimal"))?;
            count += 1;
        }
        let cpu = row[..count].get(CPU_COLUMN).map_or(position, |cpu| *cpu as usize);
        cpus.push((format!("cpu{cpu}"), row, count));
    }
    ensure!(!cpus.is_empty(), "/proc/net/softnet_stat is empty");
    for (name, column) in COLUMNS {
        values.metric(name);
        for (cpu, row, count) in &cpus {
            if column < *count {
                values.value(cpu, row[column].into());
            }
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
    fn a_kernel_of_today_names_its_cpus() {
        let text = "\
0000001b 00000002 00000003 00000000 00000000 00000000 00000000 00000000 00000000 0000000a 0000000b 00000000 00000000 00000000 00000000
00005ed9 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000005 00000000 00000000
";
        let values = collect(|values| write(text, values).unwrap());
        assert_eq!(values["processed"], json!({"cpu0": 27, "cpu5": 24281}));
        assert_eq!(values["received_rps"], json!({"cpu0": 10, "cpu5": 0}));
        assert_eq!(values["flow_limit"], json!({"cpu0": 11, "cpu5": 0}));
    }

    #[test]
    fn kernel_3_13_has_eleven_columns_and_2_6_18_nine() {
        let row_3_13 = "04b2a3c1 00000000 0000001f 00000000 00000000 00000000 00000000 00000000 00000000 00ab12cd 00000000\n";
        let values = collect(|values| write(&format!("{row_3_13}{row_3_13}"), values).unwrap());
        assert_eq!(values["received_rps"], json!({"cpu0": 0xab_12cd, "cpu1": 0xab_12cd}));
        let row_2_6 = "04b2a3c1 00000000 0000001f 00000000 00000000 00000000 00000000 00000000 00000000\n";
        let values = collect(|values| write(row_2_6, values).unwrap());
        assert_eq!(
            values,
            json!({"processed": {"cpu0": 0x4b2_a3c1}, "dropped": {"cpu0": 0}, "time_squeeze": {"cpu0": 31}})
        );
    }

    #[test]
    fn something_else_is_an_error() {
        assert!(write("", &mut Values::default()).is_err());
        assert!(write("xyz\n", &mut Values::default()).is_err());
    }
}
