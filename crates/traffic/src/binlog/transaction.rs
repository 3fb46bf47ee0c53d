//! What a binary log says besides its statements: where transactions end, and what each log was.

use super::gtid::{Gtid, GtidSet};

/// What is kept of a statement's text: a longer one is cut.
pub const TEXT_BYTES: usize = 2 << 10;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Committed,
    /// Logged although it was rolled back, because it had changed tables without transactions.
    RolledBack,
    /// XA PREPARE: its commit is a transaction of its own.
    Prepared,
    /// The log ends, or is damaged, before its end; or it began before what was read.
    Unfinished,
}

impl End {
    /// Of the event that ends what a client began with XA START: prepared, or committed at once.
    #[must_use]
    pub fn of_xa(is_one_phase: bool) -> Self {
        if is_one_phase { End::Committed } else { End::Prepared }
    }
}

/// Whether a table has a primary key, as the log tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Primary,
    None,
    /// Only `binlog_row_metadata=FULL` writes it.
    Unknown,
}

/// What is done to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Insert,
    Update,
    Delete,
}

/// Changes of one kind to the rows of one table.
#[derive(Clone, Debug)]
pub struct Change {
    pub kind: Kind,
    /// `database.table`, quoted where need be. Empty: the log has its definition before what was read.
    pub table: std::sync::Arc<[u8]>,
    pub key: Key,
    pub statements: u64,
    /// None where the rows of an event could not be counted.
    pub rows: Option<u64>,
    pub bytes: u64,
}

/// One transaction, or a statement outside of any.
#[derive(Clone, Debug)]
pub struct Transaction<'a> {
    pub log: &'a str,
    /// Of its first event; the server's own position, also in a piece of a log.
    pub position: u64,
    pub gtid: Gtid,
    pub end: End,
    /// Start of its first statement, in ns since 1970; whole seconds but for statements that use microseconds.
    pub start_ns: Option<u64>,
    /// When the server whose clients sent it had committed it. MySQL 8.0 and later.
    pub commit_ns: Option<u64>,
    /// From the start of its first statement to its commit, in whole seconds.
    pub duration_s: Option<u64>,
    /// `duration_s` is the time to the start of its last statement: the log has no time of the commit.
    pub is_at_least: bool,
    /// From the commit on the first server to the commit on the server that wrote this log; None where that is the same.
    pub lag_ns: Option<u64>,
    /// Of row events; None if it has none, or of one the rows could not be counted.
    pub rows: Option<u64>,
    /// Of its events, before compression.
    pub bytes: u64,
    /// In the log.
    pub log_bytes: u64,
    pub statements: u64,
    pub changes: &'a [Change],
    /// Its largest statement as text, where the log has it; cut.
    pub text: &'a [u8],
}

/// How a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// It names the next one.
    Rotated(String),
    /// The server was shut down.
    Stopped,
    /// The server had not closed it: it was writing, or crashed.
    InUse,
    /// In the middle of an event.
    Cut,
    /// None of these: a piece of a log.
    Open,
}

/// One log, or a piece of one.
#[derive(Clone, Debug)]
pub struct Log {
    pub name: String,
    /// As its header says it; empty without one.
    pub version: String,
    pub is_relay: bool,
    pub end: LogEnd,
    /// Transactions before it, as its header says; None where it does not.
    pub before: Option<GtidSet>,
    pub seen: GtidSet,
    /// Names of the kinds of events, how many of each, their bytes.
    pub kinds: Vec<(String, u64, u64)>,
    /// Of compressed transactions and events: bytes in the log, and what they are without compression.
    pub compressed_bytes: u64,
    pub expanded_bytes: u64,
}
