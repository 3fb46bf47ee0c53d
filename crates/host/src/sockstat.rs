//! /proc/net/sockstat: sockets of each protocol, orphans, TIME_WAIT, and the pages that TCP holds.

use anyhow::{Context, ensure};

use super::sample::sampler::Kind;
use super::sample::source::text;
use super::sample::values::Values;

pub const SOCKSTAT: Kind = Kind::host(
    "sockstat",
    "sockets in use, orphans, TIME_WAIT and TCP's memory in pages (/proc/net/sockstat)",
    |host| text(&host.root, "proc/net/sockstat", write),
);

/// Writes `TCP.orphan` and the like: `TCP: inuse 27 orphan 0 tw 3 alloc 31 mem 2`.
fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    ensure!(!text.is_empty(), "/proc/net/sockstat is empty");
    for line in text.lines() {
        let (group, rest) =
            line.split_once(':').with_context(|| format!("a line without a group: {line:?}"))?;
        let mut words = rest.split_ascii_whitespace();
        while let Some(name) = words.next() {
            let number = words.next().unwrap_or_default();
            let number = number.parse().with_context(|| format!("{group}.{name} is {number:?}"))?;
            values.single(&format!("{group}.{name}"), number);
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
    fn each_number_has_its_groups_name() {
        let text = "sockets: used 290\nTCP: inuse 27 orphan 1 tw 3 alloc 31 mem 2\nFRAG: inuse 0 memory 0\n";
        let values = collect(|values| write(text, values).unwrap());
        assert_eq!(values["sockets.used"], json!({"": 290}));
        assert_eq!(values["TCP.orphan"], json!({"": 1}));
        assert_eq!(values["TCP.tw"], json!({"": 3}));
        assert_eq!(values["FRAG.memory"], json!({"": 0}));
    }

    #[test]
    fn something_else_is_an_error() {
        for text in ["", "TCP inuse 1\n", "TCP: inuse\n", "TCP: inuse many\n"] {
            assert!(write(text, &mut Values::default()).is_err(), "{text:?}");
        }
    }
}
