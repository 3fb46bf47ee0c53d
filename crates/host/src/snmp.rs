//! /proc/net/snmp and /proc/net/netstat: the counters of IP, TCP, UDP; pairs of lines, names and numbers.

use anyhow::Context;

use super::sample::sampler::{Kind, Sample};
use super::sample::source::KeptFile;
use super::sample::values::Values;

pub const SNMP: Kind =
    Kind::host("snmp", "counters of IP, TCP, UDP and TcpExt (/proc/net/snmp, /proc/net/netstat)", |host| {
        Box::new(Snmp {
            files: ["proc/net/snmp", "proc/net/netstat"].map(|path| KeptFile::new(&host.root, path)),
            name: String::new(),
        })
    });

struct Snmp {
    files: [KeptFile; 2],
    name: String,
}

impl Sample for Snmp {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        for file in &mut self.files {
            write(file.read()?, &mut self.name, values)?;
        }
        Ok(())
    }
}

/// Writes `Tcp.RetransSegs` and the like. `name` is a buffer.
fn write(text: &str, name: &mut String, values: &mut Values) -> anyhow::Result<()> {
    let mut lines = text.lines();
    while let Some(heads) = lines.next() {
        let (group, heads) =
            heads.split_once(':').with_context(|| format!("a line without a group: {heads:?}"))?;
        let numbers = lines
            .next()
            .and_then(|line| line.strip_prefix(group)?.strip_prefix(':'))
            .with_context(|| format!("no numbers for the group {group}"))?;
        for (head, number) in heads.split_ascii_whitespace().zip(numbers.split_ascii_whitespace()) {
            // Tcp.MaxConn is -1 without a limit; it is not a counter.
            if number.starts_with('-') {
                continue;
            }
            let number = number.parse().with_context(|| format!("{group}.{head} is {number:?}"))?;
            name.clear();
            name.push_str(group);
            name.push('.');
            name.push_str(head);
            values.single(name, number);
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
    fn names_are_joined_with_their_group() {
        let text = "\
Tcp: RtoAlgorithm MaxConn RetransSegs
Tcp: 1 -1 42
IcmpMsg: InType3
IcmpMsg: 1
TcpExt: SyncookiesSent ListenOverflows
TcpExt: 0 9
";
        let values = collect(|values| write(text, &mut String::new(), values).unwrap());
        assert_eq!(
            values,
            json!({
                "Tcp.RtoAlgorithm": {"": 1}, "Tcp.RetransSegs": {"": 42}, "IcmpMsg.InType3": {"": 1},
                "TcpExt.SyncookiesSent": {"": 0}, "TcpExt.ListenOverflows": {"": 9},
            })
        );
    }

    #[test]
    fn a_cut_file_is_an_error() {
        for text in ["Tcp: A B\n", "Tcp: A\nUdp: 1\n", "Tcp\n1\n", "Tcp: A\nTcp: x\n"] {
            assert!(write(text, &mut String::new(), &mut Values::default()).is_err(), "{text}");
        }
    }
}
