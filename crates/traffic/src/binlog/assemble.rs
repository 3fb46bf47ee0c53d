//! Events of a log into statements and transactions, whatever form the log has.
//!
//! A transaction begins with its GTID, with BEGIN, or is a statement outside of these; it ends with XID, COMMIT, ROLLBACK
//! or XA PREPARE. A statement in rows format is its row events up to the one that says so.

use std::collections::HashMap;
use std::sync::Arc;

use super::bodies::{GtidEvent, Query};
use super::gtid::GtidSet;
use super::open::{Ends, Open, Statement};
use super::tables::Table;
use super::transaction::{End, Key, Kind, Log, LogEnd};
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome, Sink};
use crate::measures::Measure;

const SECOND_NS: u64 = 1_000_000_000;
/// Tables of one statement that are kept apart at a time: a hostile one costs no more.
const MOST_OF_STATEMENT: usize = 256;

/// Where an event is in its log, and how large.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    pub position: u64,
    pub time_s: u64,
    /// Before compression, and in the log (0 inside of a compressed transaction).
    pub bytes: u64,
    pub log_bytes: u64,
}

/// Puts transactions together.
pub struct Assembler<'n> {
    pub name: &'n str,
    pub coverage: Coverage,
    pub log: Log,
    open: Option<Open>,
    /// The beginning of what comes may have been missed: a statement outside of a transaction may be inside of one.
    pub is_lost: bool,
    statement: Statement,
    kinds: HashMap<&'static str, (u64, u64)>,
    /// Row events whose rows could not be counted, and those of tables that were defined before what was read.
    pub uncounted: u64,
    pub undefined: u64,
    class: Vec<u8>,
}

impl<'n> Assembler<'n> {
    pub fn new(name: &'n str) -> Self {
        Self {
            name,
            coverage: Coverage::default(),
            log: empty_log(name),
            open: None,
            is_lost: true,
            statement: Statement::default(),
            kinds: HashMap::new(),
            uncounted: 0,
            undefined: 0,
            class: Vec::new(),
        }
    }

    /// Counts an event by the name of its kind.
    pub fn count(&mut self, kind: &'static str, bytes: u64) {
        let (count, sum) = self.kinds.entry(kind).or_default();
        *count += 1;
        *sum += bytes;
    }

    /// Adds an event to the open transaction; one that has no beginning opens here.
    fn open_at(&mut self, place: &Place) -> &mut Open {
        let open = self.open.get_or_insert_with(|| {
            let mut open = Open::new(place.position, Ends::WithItsEnd, GtidEvent::default());
            open.is_headless = true;
            open
        });
        open.bytes += place.bytes;
        open.log_bytes += place.log_bytes;
        open
    }

    /// The GTID before a transaction.
    pub fn gtid(&mut self, place: &Place, gtid: GtidEvent, sink: &mut dyn Sink) -> anyhow::Result<()> {
        self.end(End::Unfinished, sink)?;
        self.is_lost = false;
        self.log.seen.add(&gtid.gtid);
        let ends = match (gtid.is_alone, gtid.may_be_alone) {
            (true, _) => Ends::WithStatement,
            (_, true) => Ends::AsItBegins,
            _ => Ends::WithItsEnd,
        };
        let mut open = Open::new(place.position, ends, gtid);
        (open.bytes, open.log_bytes) = (place.bytes, place.log_bytes);
        self.open = Some(open);
        Ok(())
    }

    /// A statement as text, or what marks a transaction's ends.
    pub fn query(
        &mut self,
        place: &Place,
        query: &Query<'_>,
        is_cut: bool,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<()> {
        let text = query.text.trim_ascii();
        if is_begin(text) {
            return self.begin(place, query, sink);
        }
        // Left over from row events without an end.
        if !self.statement.changes.is_empty() {
            self.end_statement(sink)?;
        }
        if is_xa_end(text) {
            self.open_at(place);
            return Ok(());
        }
        if text == b"COMMIT" || text == b"ROLLBACK" {
            let end = if text == b"COMMIT" { End::Committed } else { End::RolledBack };
            self.open_at(place).date(place.time_s, None, 0);
            return self.end(end, sink);
        }
        let is_begun = self.open.is_some();
        if !is_begun && !self.is_lost {
            self.open = Some(Open::new(place.position, Ends::WithStatement, GtidEvent::default()));
        }
        let more_bytes = std::mem::take(&mut self.statement.more_bytes);
        let open = self.open_at(place);
        if open.ends == Ends::AsItBegins {
            open.ends = if ends_in_start(text) { Ends::WithItsEnd } else { Ends::WithStatement };
        }
        open.date(place.time_s, query.micros, query.exec_s.into());
        if !is_begun {
            // Its variables came before it.
            (open.bytes, open.log_bytes) = (open.bytes + more_bytes, open.log_bytes + more_bytes);
        }
        open.add(&[], text);
        let is_alone = open.ends == Ends::WithStatement;
        self.statement.clear();
        self.coverage.events += 1;
        sink.event(&statement_event(place, query, is_cut, place.bytes + more_bytes))?;
        if is_alone { self.end(End::Committed, sink) } else { Ok(()) }
    }

    fn begin(&mut self, place: &Place, query: &Query<'_>, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let is_awaited =
            self.open.as_ref().is_some_and(|open| open.ends == Ends::AsItBegins && open.statements == 0);
        self.is_lost = false;
        if !is_awaited {
            self.end(End::Unfinished, sink)?;
            self.open = Some(Open::new(place.position, Ends::WithItsEnd, GtidEvent::default()));
        }
        let open = self.open_at(place);
        open.ends = Ends::WithItsEnd;
        open.thread = query.thread;
        open.date(place.time_s, query.micros, 0);
        Ok(())
    }

    /// What belongs to the next statement: a variable, a part of a file, its text.
    pub fn before_statement(&mut self, place: &Place, text: &[u8]) {
        if let Some(open) = &mut self.open {
            (open.bytes, open.log_bytes) = (open.bytes + place.bytes, open.log_bytes + place.log_bytes);
            open.date(place.time_s, None, 0);
        }
        self.statement.more_bytes += place.bytes;
        if !text.is_empty() {
            self.statement.keep_text(text);
        }
    }

    /// The text of the next statement, whose event came already.
    pub fn text(&mut self, text: &[u8]) {
        self.statement.keep_text(text);
    }

    /// Changes to a table's rows; `None` for a table that is not known.
    pub fn rows(
        &mut self,
        place: &Place,
        (kind, table, rows): (Kind, Option<&Table>, Option<u64>),
        ends_statement: bool,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<()> {
        let open = self.open_at(place);
        open.date(place.time_s, None, 0);
        if open.ends == Ends::AsItBegins {
            open.ends = Ends::WithItsEnd;
        }
        if self.statement.time_s == 0 {
            self.statement.time_s = place.time_s;
        }
        let (name, database, key) = match table {
            Some(table) => (table.name.clone(), table.database.clone(), table.key),
            None => (Arc::default(), Arc::default(), Key::Unknown),
        };
        self.statement.change(kind, &name, &database, key, rows, place.bytes);
        if ends_statement || self.statement.changes.len() >= MOST_OF_STATEMENT {
            self.end_statement(sink)?;
        }
        Ok(())
    }

    /// Gives an event for each table that the statement changed, and kind of change.
    pub fn end_statement(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let more_bytes = std::mem::take(&mut self.statement.more_bytes);
        if let Some(first) = self.statement.changes.first_mut() {
            first.bytes += more_bytes;
        }
        let thread = self.open.as_ref().map_or(0, |open| open.thread);
        let statement = &self.statement;
        for (change, database) in statement.changes.iter().zip(&statement.databases) {
            write_class(change.kind, &change.table, &mut self.class);
            let mut event = Event::new(statement.time_s * SECOND_NS, thread.into(), Command::Rows);
            (event.text, event.database) = (&self.class, database);
            // What fails is not logged.
            event.outcome = Outcome::Ok;
            event.measures.set(Measure::RowsAffected, change.rows);
            event.measures.set(Measure::EventBytes, change.bytes);
            self.coverage.events += 1;
            sink.event(&event)?;
        }
        if let Some(open) = &mut self.open
            && !statement.changes.is_empty()
        {
            open.add(&statement.changes, &statement.text);
        }
        self.statement.clear();
        Ok(())
    }

    /// XID or XA PREPARE.
    pub fn commit(&mut self, place: &Place, end: End, sink: &mut dyn Sink) -> anyhow::Result<()> {
        self.open_at(place).date(place.time_s, None, 0);
        self.end(end, sink)
    }

    /// A compressed transaction's own event: its bytes are in the log, what is in it comes.
    pub fn payload(&mut self, place: &Place) {
        self.open_at(&Place { bytes: 0, ..*place });
    }

    /// Ends what is open.
    pub fn end(&mut self, end: End, sink: &mut dyn Sink) -> anyhow::Result<()> {
        if !self.statement.changes.is_empty() {
            self.end_statement(sink)?;
        }
        self.statement.clear();
        if let Some(open) = self.open.take() {
            self.is_lost &= end == End::Unfinished;
            sink.transaction(&open.transaction(self.name, end))?;
        }
        Ok(())
    }

    /// Bytes of the log are missing here: what was open may have ended there.
    pub fn interrupt(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        self.is_lost = true;
        self.end(End::Unfinished, sink)
    }

    /// One log ends, another one may begin in the same input.
    pub fn end_log(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let mut log = std::mem::replace(&mut self.log, empty_log(self.name));
        log.kinds =
            self.kinds.drain().map(|(name, (count, bytes))| (name.to_owned(), count, bytes)).collect();
        log.kinds.sort_unstable();
        if log.kinds.is_empty() && log.before.is_none() { Ok(()) } else { sink.log(&log) }
    }

    /// What was read, and what could not be counted.
    pub fn finish(mut self, sink: &mut dyn Sink) -> anyhow::Result<Coverage> {
        self.end(End::Unfinished, sink)?;
        self.end_log(sink)?;
        if self.undefined > 0 {
            let note = format!(
                "{} row events are of tables that were defined before what was read: `(unknown table)`; their rows \
                 cannot be counted",
                self.undefined
            );
            self.coverage.note(self.name, note);
        }
        if self.uncounted > 0 {
            let note = format!(
                "the rows of {} row events could not be counted: a kind of column that is not known, or damage",
                self.uncounted
            );
            self.coverage.note(self.name, note);
        }
        Ok(self.coverage)
    }
}

fn empty_log(name: &str) -> Log {
    Log {
        name: name.to_owned(),
        version: String::new(),
        is_relay: false,
        end: LogEnd::Open,
        before: None,
        seen: GtidSet::default(),
        kinds: Vec::new(),
        compressed_bytes: 0,
        expanded_bytes: 0,
    }
}

fn statement_event<'a>(place: &Place, query: &Query<'a>, is_cut: bool, bytes: u64) -> Event<'a> {
    let micros = u64::from(query.micros.unwrap_or(0));
    let mut event = Event::new(place.time_s * SECOND_NS + micros * 1000, query.thread.into(), Command::Query);
    event.connection = Some(query.thread.into());
    event.response_ns = Some(u64::from(query.exec_s) * SECOND_NS);
    event.database = query.database;
    event.outcome = if query.error == 0 { Outcome::Ok } else { Outcome::Error(query.error) };
    (event.text, event.is_cut) = (query.text, is_cut);
    event.measures.set(Measure::EventBytes, bytes);
    event
}

/// The class of changes to rows: `UPDATE shop.orders (rows)`.
pub fn write_class(kind: Kind, table: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(match kind {
        Kind::Insert => b"INSERT INTO ",
        Kind::Update => b"UPDATE ",
        Kind::Delete => b"DELETE FROM ",
    });
    out.extend_from_slice(if table.is_empty() { b"(unknown table)" } else { table });
    out.extend_from_slice(b" (rows)");
}

/// Servers write these themselves, always so.
fn is_begin(text: &[u8]) -> bool {
    text == b"BEGIN" || text == b"START TRANSACTION" || text.starts_with(b"XA START ")
}

/// The commit of a prepared transaction is a statement of its own; this one belongs to what was prepared.
fn is_xa_end(text: &[u8]) -> bool {
    text.starts_with(b"XA END ")
}

/// CREATE TABLE ... SELECT of MySQL 8.0.21 and later: its rows follow.
fn ends_in_start(text: &[u8]) -> bool {
    text.ends_with(b"START TRANSACTION")
}
