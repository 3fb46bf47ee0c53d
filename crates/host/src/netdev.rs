//! /proc/net/dev: bytes, packets, errors and drops of each network interface.
//!
//! Its drops are two counters in one: packets that the kernel did not want, and those for which the card had no
//! room. The second has its own file in /sys, which is read only for cards. An interface whose line has no numbers
//! (`eth0:1: No statistics available.`) is named by the metric `unread`, and costs no other one.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::ensure;

use super::sample::sampler::{Kind, Sample};
use super::sample::source::{KeptFile, numbers};
use super::sample::values::Values;

pub const NETWORK: Kind = Kind::host(
    "network",
    "bytes, packets, errors, drops of each interface (/proc/net/dev); rx_missed of cards (/sys/class/net)",
    |host| {
        Box::new(Interfaces {
            devices: KeptFile::new(&host.root, "proc/net/dev"),
            missed: HashMap::new(),
            root: host.root.clone(),
        })
    },
);

struct Interfaces {
    devices: KeptFile,
    /// For each interface: its counter of packets without room; None if it is not a card.
    missed: HashMap<String, Option<KeptFile>>,
    root: PathBuf,
}

impl Sample for Interfaces {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        let text = self.devices.read()?;
        write(text, values)?;
        let names = text.lines().skip(2).filter_map(|line| Some(row(line).ok()?.0));
        values.metric("rx_missed");
        for name in names {
            let counter = self.missed.entry(name.to_owned()).or_insert_with(|| {
                let folder = self.root.join("sys/class/net").join(name);
                let is_card = folder.join("device").exists();
                is_card.then(|| KeptFile::new(&folder, "statistics/rx_missed_errors"))
            });
            // A card may disappear between two files.
            let text = counter.as_mut().and_then(|file| file.read().ok());
            if let Some(count) = text.and_then(|text| text.trim().parse().ok()) {
                values.value(name, count);
            }
        }
        Ok(())
    }
}

const COLUMNS: [&str; 16] = [
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "rx_fifo",
    "rx_frame",
    "rx_compressed",
    "rx_multicast",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_fifo",
    "tx_collisions",
    "tx_carrier",
    "tx_compressed",
];

fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    let mut interfaces = Vec::new();
    let mut unread = Vec::new();
    for line in text.lines().skip(2).filter(|line| !line.trim().is_empty()) {
        match row(line) {
            Ok(interface) => interfaces.push(interface),
            Err(name) => unread.push((name, [1])),
        }
    }
    ensure!(!interfaces.is_empty(), "/proc/net/dev has no interface with 16 numbers");
    values.table(&COLUMNS, &interfaces);
    values.table(&["unread"], &unread);
    Ok(())
}

/// An interface's name and numbers; its name alone if it does not have all of them.
fn row(line: &str) -> Result<(&str, [u64; COLUMNS.len()]), &str> {
    // The last colon: an old alias interface is called eth0:1.
    let (name, rest) = line.rsplit_once(':').unwrap_or((line, ""));
    let mut row = [0; COLUMNS.len()];
    let count = row.iter_mut().zip(numbers(rest)).map(|(cell, number)| *cell = number).count();
    if count == COLUMNS.len() { Ok((name.trim(), row)) } else { Err(name.trim()) }
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::sample::values::{Values, collect};
    use serde_json::json;

    const HEAD: &str = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n";

    #[test]
    fn sixteen_columns_an_interface() {
        let text = format!(
            "{HEAD}    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0\n  eth0:612991848   24279    1    2    3     4          5         6  1156870   11684    7    8    9     10       11          12\n"
        );
        let values = collect(|values| write(&text, values).unwrap());
        assert_eq!(values["rx_bytes"], json!({"lo": 3193, "eth0": 612991848}));
        assert_eq!(values["rx_multicast"], json!({"lo": 0, "eth0": 6}));
        assert_eq!(values["tx_bytes"], json!({"lo": 3193, "eth0": 1156870}));
        assert_eq!(values["tx_compressed"], json!({"lo": 0, "eth0": 12}));
    }

    #[test]
    fn an_interface_without_numbers_costs_no_other_one() {
        let good = "  eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        for bad in ["eth0:1: No statistics available.", "wlan0: 1 2 3", "nonsense", "sit0:"] {
            let values = collect(|values| write(&format!("{HEAD}{bad}\n{good}"), values).unwrap());
            assert_eq!(values["rx_bytes"], json!({"eth0": 1}));
            let (name, _) = bad.rsplit_once(':').unwrap_or((bad, ""));
            assert_eq!(values["unread"], json!({name: 1}));
        }
    }

    #[test]
    fn something_else_is_an_error() {
        assert!(write(HEAD, &mut Values::default()).is_err());
        assert!(write(&format!("{HEAD}eth0: 1 2 3\n"), &mut Values::default()).is_err());
    }
}
