//! /proc/diskstats: the I/O of each block device.

use anyhow::bail;

use super::sample::sampler::Kind;
use super::sample::source::{numbers, text};
use super::sample::values::Values;

pub const DISK: Kind = Kind::host(
    "disk",
    "reads, writes, times and queue of each block device that has done any I/O (/proc/diskstats)",
    |host| text(&host.root, "proc/diskstats", write),
);

/// Column after the device's name. 11 until 4.17; discards came with 4.18 (15), flushes with 5.5 (17).
const COLUMNS: [(&str, usize); 15] = [
    ("reads", 0),
    ("reads_merged", 1),
    ("sectors_read", 2),
    ("read_ms", 3),
    ("writes", 4),
    ("writes_merged", 5),
    ("sectors_written", 6),
    ("write_ms", 7),
    ("in_flight", 8),
    ("io_ms", 9),
    ("weighted_io_ms", 10),
    ("discards", 11),
    ("discard_ms", 14),
    ("flushes", 15),
    ("flush_ms", 16),
];
const MOST_COLUMNS: usize = 17;
/// Partitions before 2.6.25 had four columns with other meanings.
const FEWEST_COLUMNS: usize = 11;

fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    let mut devices = Vec::new();
    let mut unread = Vec::new();
    let mut is_any = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let Some((name, rest)) = split_name(line) else {
            unread.push((line.trim(), [1]));
            continue;
        };
        is_any = true;
        let mut row = [0; MOST_COLUMNS];
        let mut count = 0;
        for (cell, number) in row.iter_mut().zip(numbers(rest)) {
            *cell = number;
            count += 1;
        }
        // A machine has dozens of unused loop and ram devices.
        if count >= FEWEST_COLUMNS && row.iter().any(|number| *number > 0) {
            devices.push((name, row, count));
        }
    }
    if let (false, Some((line, _))) = (is_any, unread.first()) {
        bail!("/proc/diskstats has a line without a device: {line:?}");
    }
    for (metric, column) in COLUMNS {
        values.metric(metric);
        for (name, row, count) in &devices {
            if column < *count {
                values.value(name, row[column]);
            }
        }
    }
    values.table(&["unread"], &unread);
    Ok(())
}

/// `   8       0 sda 1 2 3` -> `sda`, ` 1 2 3`.
fn split_name(line: &str) -> Option<(&str, &str)> {
    let (_major, rest) = line.trim_ascii_start().split_once(' ')?;
    let (_minor, rest) = rest.trim_ascii_start().split_once(' ')?;
    let name = rest.split_ascii_whitespace().next()?;
    Some((name, &rest.trim_ascii_start()[name.len()..]))
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::sample::values::{Values, collect};
    use serde_json::json;

    #[test]
    fn a_kernel_of_today_has_discards_and_flushes() {
        let text = "\
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 675197 12515 12157426 184752 91557 31753 5846392 21344 0 24124 208586 9587 50 972488 842 21000 1648
 259       1 nvme0n1p1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17
";
        let values = collect(|values| write(text, values).unwrap());
        assert_eq!(values["reads"], json!({"vda": 675197, "nvme0n1p1": 1}));
        assert_eq!(values["weighted_io_ms"], json!({"vda": 208586, "nvme0n1p1": 11}));
        assert_eq!(values["discards"], json!({"vda": 9587, "nvme0n1p1": 12}));
        assert_eq!(values["discard_ms"], json!({"vda": 842, "nvme0n1p1": 15}));
        assert_eq!(values["flushes"], json!({"vda": 21000, "nvme0n1p1": 16}));
        assert_eq!(values["flush_ms"], json!({"vda": 1648, "nvme0n1p1": 17}));
    }

    #[test]
    fn kernel_3_13_has_eleven_columns() {
        let text = "\
   1       0 ram0 0 0 0 0 0 0 0 0 0 0 0
 202      16 xvdb 81235 1020 5234234 43564 923423 12343 83453454 9384543 2 723444 9428172
   9       0 md0 92000 0 5250000 0 930000 0 83500000 0 0 0 0
";
        let values = collect(|values| write(text, values).unwrap());
        assert_eq!(values["write_ms"], json!({"xvdb": 9384543, "md0": 0}));
        assert_eq!(values["in_flight"], json!({"xvdb": 2, "md0": 0}));
        assert!(values.get("discards").is_none());
        assert!(values.get("flushes").is_none());
    }

    #[test]
    fn a_partition_of_2_6_18_has_other_columns_and_is_left_out() {
        let text = "   8    0 sda 1 2 3 4 5 6 7 8 9 10 11\n   8    1 sda1 10 20 30 40\n";
        let values = collect(|values| write(text, values).unwrap());
        assert_eq!(values["reads"], json!({"sda": 1}));
    }

    #[test]
    fn a_host_without_disks_is_no_error_but_nonsense_is() {
        assert_eq!(collect(|values| write("", values).unwrap()), json!({}));
        assert!(write("nonsense\n", &mut Values::default()).is_err());
    }

    #[test]
    fn a_line_without_a_device_costs_no_other_one() {
        let values = collect(|values| write("nonsense\n 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n", values).unwrap());
        assert_eq!(values["reads"], json!({"sda": 1}));
        assert_eq!(values["unread"], json!({"nonsense": 1}));
    }
}
