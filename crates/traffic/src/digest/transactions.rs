//! Transactions of binary logs: how large they are, the largest, which tables they change, what is missing between logs.
//!
//! All of it adds up but the largest, of which the first few are kept: those of the whole are among those of its parts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sql::Mode;

use super::class_stats::Times;
use crate::binlog::gtid::GtidSet;
use crate::binlog::transaction::{End, Key, Kind, Log, LogEnd, TEXT_BYTES, Transaction};

/// The largest transactions that are kept.
const MOST_LARGEST: usize = 20;
/// Of one of these: changes of tables that are named.
const NAMED_CHANGES: usize = 8;
/// Tables that are kept apart; those that come later are counted as one.
const MOST_TABLES: usize = 10_000;
/// What is said about missing transactions and logs; all are counted.
const MOST_GAPS: usize = 20;
const SECOND_NS: u64 = 1_000_000_000;

/// All that is counted of transactions.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    /// Those that were seen whole, in any end.
    pub count: u64,
    pub rolled_back: u64,
    pub prepared: u64,
    /// Their end, or their beginning, was not seen: in none of the figures but here.
    pub unfinished: u64,
    /// Of those with row events.
    pub rows: Times,
    pub bytes: Times,
    pub log_bytes: u64,
    pub statements: Times,
    /// In ns, of whole seconds; and how many are only the time to the start of the last statement.
    pub duration: Times,
    pub at_least: u64,
    pub lag: Times,
    pub largest: Vec<Large>,
    pub(super) tables: HashMap<Arc<[u8]>, Table>,
    pub(super) other_tables: Table,
    /// Name of a kind of event: how many, their bytes.
    pub(super) kinds: BTreeMap<String, (u64, u64)>,
    pub(super) compressed_bytes: u64,
    pub(super) expanded_bytes: u64,
    pub(super) logs: Logs,
}

/// Kind, table, rows, bytes.
pub type LargeChange = (Kind, Arc<[u8]>, Option<u64>, u64);

/// One of the largest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Large {
    pub log: String,
    pub position: u64,
    pub gtid: String,
    pub start_ns: Option<u64>,
    pub commit_ns: Option<u64>,
    pub duration_s: Option<u64>,
    pub is_at_least: bool,
    pub lag_ns: Option<u64>,
    pub rows: Option<u64>,
    pub bytes: u64,
    pub log_bytes: u64,
    pub statements: u64,
    /// Kind, table, rows, bytes; the largest first.
    pub changes: Vec<LargeChange>,
    /// Of its largest statement, where the log has its text.
    pub fingerprint: Vec<u8>,
}

impl Large {
    /// Largest first.
    fn rank(&self) -> (std::cmp::Reverse<u64>, &str, u64) {
        (std::cmp::Reverse(self.bytes), &self.log, self.position)
    }
}

/// Changes to one table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Statements and rows: insert, update, delete.
    pub(super) kinds: [(u64, u64); 3],
    /// Statements of which the rows could not be counted.
    pub(super) uncounted: u64,
    pub(super) bytes: u64,
    /// Statements by what the log told of its key: has one, has none, not told.
    pub(super) keys: [u64; 3],
}

/// The logs in the order in which they were read.
#[derive(Clone, Debug, Default)]
pub(super) struct Logs {
    pub(super) count: u64,
    pub(super) relay: u64,
    first: Option<(String, Option<GtidSet>)>,
    last: Option<(String, LogEnd)>,
    /// Transactions that are in the logs or were before the first.
    all: GtidSet,
    gaps: Vec<String>,
    gap_count: u64,
}

impl Transactions {
    pub fn add(&mut self, transaction: &Transaction<'_>, mode: Mode) {
        if transaction.end == End::Unfinished {
            self.unfinished += 1;
        } else {
            self.count += 1;
            self.rolled_back += u64::from(transaction.end == End::RolledBack);
            self.prepared += u64::from(transaction.end == End::Prepared);
            self.measure(transaction);
        }
        for change in transaction.changes {
            let place = (change.kind as usize, change.key as usize);
            let table = self.table(&change.table);
            table.kinds[place.0].0 += change.statements;
            table.kinds[place.0].1 += change.rows.unwrap_or(0);
            table.uncounted += u64::from(change.rows.is_none()) * change.statements;
            table.bytes += change.bytes;
            table.keys[place.1] += change.statements;
        }
        let is_full = self.largest.len() >= MOST_LARGEST;
        if !is_full || self.largest.last().is_some_and(|last| transaction.bytes >= last.bytes) {
            self.keep(large(transaction, mode));
        }
    }

    fn measure(&mut self, transaction: &Transaction<'_>) {
        if let Some(rows) = transaction.rows {
            self.rows.add(rows);
        }
        self.bytes.add(transaction.bytes);
        self.statements.add(transaction.statements);
        self.log_bytes += transaction.log_bytes;
        if let Some(duration_s) = transaction.duration_s {
            self.duration.add(duration_s.saturating_mul(SECOND_NS));
            self.at_least += u64::from(transaction.is_at_least);
        }
        if let Some(lag_ns) = transaction.lag_ns {
            self.lag.add(lag_ns);
        }
    }

    fn table(&mut self, name: &Arc<[u8]>) -> &mut Table {
        if !self.tables.contains_key(name) {
            if self.tables.len() >= MOST_TABLES {
                return &mut self.other_tables;
            }
            self.tables.insert(name.clone(), Table::default());
        }
        self.tables.entry(name.clone()).or_default()
    }

    fn keep(&mut self, large: Large) {
        let place = self.largest.partition_point(|kept| kept.rank() < large.rank());
        self.largest.insert(place, large);
        self.largest.truncate(MOST_LARGEST);
    }

    pub fn add_log(&mut self, log: &Log) {
        for (name, count, bytes) in &log.kinds {
            let kind = self.kinds.entry(name.clone()).or_default();
            *kind = (kind.0 + count, kind.1 + bytes);
        }
        self.compressed_bytes += log.compressed_bytes;
        self.expanded_bytes += log.expanded_bytes;
        self.logs.add(log);
    }

    pub fn merge(&mut self, other: Transactions) {
        self.count += other.count;
        self.rolled_back += other.rolled_back;
        self.prepared += other.prepared;
        self.unfinished += other.unfinished;
        self.rows.merge(&other.rows);
        self.bytes.merge(&other.bytes);
        self.log_bytes += other.log_bytes;
        self.statements.merge(&other.statements);
        self.duration.merge(&other.duration);
        self.at_least += other.at_least;
        self.lag.merge(&other.lag);
        for large in other.largest {
            self.keep(large);
        }
        for (name, table) in &other.tables {
            self.table(name).merge(table);
        }
        self.other_tables.merge(&other.other_tables);
        for (name, (count, bytes)) in other.kinds {
            let kind = self.kinds.entry(name).or_default();
            *kind = (kind.0 + count, kind.1 + bytes);
        }
        self.compressed_bytes += other.compressed_bytes;
        self.expanded_bytes += other.expanded_bytes;
        self.logs.merge(other.logs);
    }

    /// What is missing between the logs, and how many such places there are.
    pub fn gaps(&self) -> (u64, Vec<String>) {
        self.logs.gaps()
    }

    /// Tables without a primary key whose rows are updated or deleted, the most rows first: name, rows.
    pub fn scanned(&self) -> Vec<(&[u8], u64)> {
        let mut found: Vec<_> = self.tables.iter().filter(|(_, table)| table.is_scanned()).collect();
        found.sort_unstable_by(|a, b| b.1.found_rows().cmp(&a.1.found_rows()).then_with(|| a.0.cmp(b.0)));
        found.into_iter().map(|(name, table)| (&**name, table.found_rows())).collect()
    }

    /// Whether the log told of any table whether it has a key.
    pub fn tells_keys(&self) -> bool {
        self.tables
            .values()
            .any(|table| table.keys[Key::Primary as usize] + table.keys[Key::None as usize] > 0)
    }

    pub fn changes_rows(&self) -> bool {
        !self.tables.is_empty()
    }
}

impl Table {
    fn merge(&mut self, other: &Table) {
        for (ours, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            *ours = (ours.0 + theirs.0, ours.1 + theirs.1);
        }
        for (ours, theirs) in self.keys.iter_mut().zip(&other.keys) {
            *ours += theirs;
        }
        self.uncounted += other.uncounted;
        self.bytes += other.bytes;
    }

    /// Rows that a replica has to find.
    fn found_rows(&self) -> u64 {
        self.kinds[Kind::Update as usize].1 + self.kinds[Kind::Delete as usize].1
    }

    fn is_scanned(&self) -> bool {
        let statements = self.kinds[Kind::Update as usize].0 + self.kinds[Kind::Delete as usize].0;
        self.keys[Key::None as usize] > 0 && statements > 0
    }
}

impl Logs {
    fn add(&mut self, log: &Log) {
        let mut all = log.before.clone().unwrap_or_default();
        all.merge(&log.seen);
        self.merge(Logs {
            count: 1,
            relay: u64::from(log.is_relay),
            first: Some((log.name.clone(), log.before.clone())),
            last: Some((log.name.clone(), log.end.clone())),
            all,
            gaps: Vec::new(),
            gap_count: 0,
        });
    }

    /// Adds those that were read after these.
    fn merge(&mut self, other: Logs) {
        if let (Some((last, end)), Some((first, before))) = (&self.last, &other.first) {
            let found = between(last, end, first, before.as_ref(), &self.all);
            found.into_iter().for_each(|gap| self.gap(gap));
        }
        self.count += other.count;
        self.relay += other.relay;
        self.first = self.first.take().or(other.first);
        self.last = other.last.or_else(|| self.last.take());
        self.all.merge(&other.all);
        self.gap_count += other.gap_count - other.gaps.len() as u64;
        other.gaps.into_iter().for_each(|gap| self.gap(gap));
    }

    fn gap(&mut self, gap: String) {
        self.gap_count += 1;
        if self.gaps.len() < MOST_GAPS {
            self.gaps.push(gap);
        }
    }

    pub(super) fn gaps(&self) -> (u64, Vec<String>) {
        let before = self.first.as_ref().and_then(|(_, before)| before.clone()).unwrap_or_default();
        let holes = self.all.holes_behind(&before);
        let mut gaps = self.gaps.clone();
        if holes.count > 0 {
            gaps.push(format!(
                "{} GTIDs between the first and the last are in none of these logs ({holes}): parts are missing, or \
                 their transactions were filtered, skipped or logged out of order",
                holes.count
            ));
        }
        (self.gap_count + u64::from(holes.count > 0), gaps)
    }
}

/// What is missing between two logs that were read one after the other.
fn between(last: &str, end: &LogEnd, first: &str, before: Option<&GtidSet>, seen: &GtidSet) -> Vec<String> {
    let mut found = Vec::new();
    if last == first {
        return found;
    }
    match end {
        LogEnd::Rotated(next) if !may_be(next, first) => {
            found.push(format!("{last} is followed by {}, but {first} was read next", base(next)));
        }
        LogEnd::InUse => found.push(format!(
            "{last} was not closed by its server: it was being written, or the server crashed; whether {first} follows it \
             is not known"
        )),
        _ => {}
    }
    if let Some(before) = before
        && !seen.is_empty()
    {
        let missing = seen.missing_of(before);
        if missing.count > 0 {
            found.push(format!(
                "{} transactions between {last} and {first} are in neither ({missing})",
                missing.count
            ));
        }
    }
    found
}

/// Whether a file may be the log of this name: copies are given other names, but keep the number.
fn may_be(name: &str, file: &str) -> bool {
    let number = |name| base(name).rsplit_once('.').and_then(|(_, number)| number.parse::<u64>().ok());
    base(name) == base(file) || number(name).is_some() && number(name) == number(file)
}

/// The name of a log without directories, and without what compressed it.
fn base(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

fn large(transaction: &Transaction<'_>, mode: Mode) -> Large {
    let mut changes: Vec<_> = transaction
        .changes
        .iter()
        .map(|change| (change.kind, change.table.clone(), change.rows, change.bytes))
        .collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.3));
    changes.truncate(NAMED_CHANGES);
    let mut fingerprint = Vec::new();
    if !transaction.text.is_empty() {
        sql::fingerprint(mode, transaction.text, transaction.text.len() >= TEXT_BYTES, &mut fingerprint);
    }
    Large {
        log: transaction.log.to_owned(),
        position: transaction.position,
        gtid: transaction.gtid.to_string(),
        start_ns: transaction.start_ns,
        commit_ns: transaction.commit_ns,
        duration_s: transaction.duration_s,
        is_at_least: transaction.is_at_least,
        lag_ns: transaction.lag_ns,
        rows: transaction.rows,
        bytes: transaction.bytes,
        log_bytes: transaction.log_bytes,
        statements: transaction.statements,
        changes,
        fingerprint,
    }
}

/// The word of a kind of change.
pub fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Insert => "insert",
        Kind::Update => "update",
        Kind::Delete => "delete",
    }
}
