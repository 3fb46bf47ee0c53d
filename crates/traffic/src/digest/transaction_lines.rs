//! Transactions as a line of the digest: `docs/reference/digest-format.md`.

use serde_json::{Value, json};

use super::class_stats::Times;
use super::lines::{buckets, text, wide};
use super::transactions::{Large, Table, Transactions, word};
use crate::binlog::transaction::Key;

impl Transactions {
    /// Everything as a line of the digest.
    #[must_use]
    pub fn line(&self) -> Value {
        let mut tables: Vec<_> = self.tables.iter().map(|(name, table)| (Some(name), table)).collect();
        tables.sort_unstable_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
        if self.other_tables.bytes > 0 {
            tables.push((None, &self.other_tables));
        }
        let (gap_count, gaps) = self.logs.gaps();
        json!({
            "type": "transactions",
            "count": self.count,
            "rolled_back": self.rolled_back,
            "prepared": self.prepared,
            "unfinished": self.unfinished,
            "rows": spread(&self.rows),
            "bytes": spread(&self.bytes),
            "statements": spread(&self.statements),
            "duration_ns": spread(&self.duration),
            "lag_ns": spread(&self.lag),
            "at_least": self.at_least,
            "log_bytes": self.log_bytes,
            "compressed_bytes": self.compressed_bytes,
            "expanded_bytes": self.expanded_bytes,
            "logs": self.logs.count,
            "relay_logs": self.logs.relay,
            "kinds": self.kinds.iter().map(|(name, (count, bytes))| json!([name, count, bytes])).collect::<Value>(),
            "tables": tables.into_iter().map(|(name, table)| table.value(name.map(|name| &**name))).collect::<Value>(),
            "largest": self.largest.iter().map(value_of).collect::<Value>(),
            "gap_count": gap_count,
            "gaps": gaps,
        })
    }
}

impl Table {
    fn value(&self, name: Option<&[u8]>) -> Value {
        let [insert, update, delete] = self.kinds;
        json!({
            "table": name.map_or(Value::Null, text),
            "insert": [insert.0, insert.1],
            "update": [update.0, update.1],
            "delete": [delete.0, delete.1],
            "uncounted": self.uncounted,
            "bytes": self.bytes,
            "with_key": self.keys[Key::Primary as usize],
            "without_key": self.keys[Key::None as usize],
            "key_not_told": self.keys[Key::Unknown as usize],
        })
    }
}

fn value_of(large: &Large) -> Value {
    let changes =
        large.changes.iter().map(|(kind, table, rows, bytes)| json!([word(*kind), text(table), rows, bytes]));
    json!({
        "log": large.log,
        "position": large.position,
        "gtid": if large.gtid.is_empty() { Value::Null } else { large.gtid.as_str().into() },
        "start_ns": large.start_ns,
        "commit_ns": large.commit_ns,
        "duration_s": large.duration_s,
        "is_at_least": large.is_at_least,
        "lag_ns": large.lag_ns,
        "rows": large.rows,
        "bytes": large.bytes,
        "log_bytes": large.log_bytes,
        "statements": large.statements,
        "changes": changes.collect::<Value>(),
        "fingerprint": if large.fingerprint.is_empty() { Value::Null } else { text(&large.fingerprint) },
    })
}

fn spread(times: &Times) -> Value {
    if times.count == 0 {
        return Value::Null;
    }
    json!({
        "known": times.count,
        "sum": wide(times.sum_ns),
        "sum_squares": times.sum_squares.to_string(),
        "min": times.min_ns,
        "max": times.max_ns,
        "buckets": buckets(&times.pages),
    })
}
