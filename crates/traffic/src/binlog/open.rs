//! The transaction that is open, and the statement in it: what adds up until they end.

use std::sync::Arc;

use super::bodies::GtidEvent;
use super::transaction::{Change, End, Key, Kind, TEXT_BYTES, Transaction};

/// Tables that a transaction's changes are kept apart for; of others only the sums are.
const MOST_CHANGES: usize = 256;
const SECOND_NS: u64 = 1_000_000_000;

/// What ends the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// XID, COMMIT, ROLLBACK, XA PREPARE.
    WithItsEnd,
    /// Its only statement.
    WithStatement,
    /// Its first event tells: BEGIN, or a statement that is alone.
    AsItBegins,
}

/// The open transaction.
#[derive(Debug)]
pub struct Open {
    pub ends: Ends,
    position: u64,
    gtid: GtidEvent,
    /// Seconds: of the first and the last event behind the GTID, and the end of the longest statement.
    first_s: Option<u64>,
    last_s: u64,
    micros: u32,
    pub thread: u32,
    rows: Option<u64>,
    has_rows: bool,
    pub bytes: u64,
    pub log_bytes: u64,
    pub statements: u64,
    changes: Vec<Change>,
    text: Vec<u8>,
    text_of_bytes: u64,
    /// Its beginning was not seen.
    pub is_headless: bool,
}

impl Open {
    pub fn new(position: u64, ends: Ends, gtid: GtidEvent) -> Self {
        Self {
            ends,
            position,
            gtid,
            first_s: None,
            last_s: 0,
            micros: 0,
            thread: 0,
            rows: Some(0),
            has_rows: false,
            bytes: 0,
            log_bytes: 0,
            statements: 0,
            changes: Vec::new(),
            text: Vec::new(),
            text_of_bytes: 0,
            is_headless: false,
        }
    }

    /// An event of it began at this second; a statement took so many.
    pub fn date(&mut self, time_s: u64, micros: Option<u32>, took_s: u64) {
        // Servers write no time into some events.
        if time_s == 0 {
            return;
        }
        if self.first_s.is_none_or(|first| time_s < first) {
            (self.first_s, self.micros) = (Some(time_s), micros.unwrap_or(0));
        }
        self.last_s = self.last_s.max(time_s + took_s);
    }

    /// Adds a statement's changes, and its text if it is the largest.
    pub fn add(&mut self, changes: &[Change], text: &[u8]) {
        self.statements += 1;
        let bytes = changes.iter().map(|change| change.bytes).sum();
        if !text.is_empty() && (self.text.is_empty() || bytes > self.text_of_bytes) {
            self.text.clear();
            self.text.extend_from_slice(&text[..text.len().min(TEXT_BYTES)]);
            self.text_of_bytes = bytes;
        }
        for change in changes {
            self.has_rows = true;
            self.rows = self.rows.zip(change.rows).map(|(sum, rows)| sum + rows);
            let has_room = self.changes.len() < MOST_CHANGES;
            let known = self
                .changes
                .iter_mut()
                .find(|known| known.kind == change.kind && known.table == change.table);
            match known {
                Some(known) => {
                    known.statements += change.statements;
                    known.rows = known.rows.zip(change.rows).map(|(sum, rows)| sum + rows);
                    known.bytes += change.bytes;
                    known.key = change.key;
                }
                None if has_room => self.changes.push(change.clone()),
                None => {}
            }
        }
    }

    /// The whole, as it ended.
    pub fn transaction<'a>(&'a self, log: &'a str, end: End) -> Transaction<'a> {
        let (original_us, immediate_us) = (self.gtid.original_us, self.gtid.immediate_us);
        let commit_s = original_us.map(|us| us / 1_000_000);
        let last_s = commit_s.unwrap_or(self.last_s);
        let is_whole = !self.is_headless && end != End::Unfinished;
        let lag_us = immediate_us.zip(original_us).and_then(|(here, there)| here.checked_sub(there));
        Transaction {
            log,
            position: self.position,
            gtid: self.gtid.gtid,
            end: if self.is_headless { End::Unfinished } else { end },
            start_ns: self.first_s.map(|first| first * SECOND_NS + u64::from(self.micros) * 1000),
            commit_ns: original_us.map(|us| us.saturating_mul(1000)),
            // A session that sets its own time may be before the commit by years, or behind.
            duration_s: self.first_s.and_then(|first| last_s.checked_sub(first)).filter(|_| is_whole),
            is_at_least: commit_s.is_none(),
            lag_ns: lag_us.filter(|us| *us > 0).map(|us| us.saturating_mul(1000)),
            rows: self.rows.filter(|_| self.has_rows),
            bytes: self.bytes,
            log_bytes: self.log_bytes,
            statements: self.statements,
            changes: &self.changes,
            text: &self.text,
        }
    }
}

/// The statement whose row events come.
#[derive(Debug, Default)]
pub struct Statement {
    pub changes: Vec<Change>,
    /// Of events that belong to it and change nothing: definitions of tables, its text, its variables.
    pub more_bytes: u64,
    pub time_s: u64,
    pub text: Vec<u8>,
    pub databases: Vec<Arc<[u8]>>,
}

impl Statement {
    pub fn keep_text(&mut self, text: &[u8]) {
        self.text.clear();
        self.text.extend_from_slice(&text[..text.len().min(TEXT_BYTES)]);
    }

    pub fn change(
        &mut self,
        kind: Kind,
        table: &Arc<[u8]>,
        database: &Arc<[u8]>,
        key: Key,
        rows: Option<u64>,
        bytes: u64,
    ) {
        let known = self.changes.iter_mut().find(|known| known.kind == kind && known.table == *table);
        if let Some(known) = known {
            known.rows = known.rows.zip(rows).map(|(sum, rows)| sum + rows);
            known.bytes += bytes;
            return;
        }
        self.changes.push(Change { kind, table: table.clone(), key, statements: 1, rows, bytes });
        self.databases.push(database.clone());
    }

    /// Forgets all but the room.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.databases.clear();
        self.text.clear();
        (self.more_bytes, self.time_s) = (0, 0);
    }
}
