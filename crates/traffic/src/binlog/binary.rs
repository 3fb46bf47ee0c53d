//! The files themselves: each event is taken apart and given to the assembler.

use std::collections::HashMap;
use std::io::{BufReader, Read};

use super::assemble::{Assembler, Place};
use super::bodies::{self, Query, description, expand, gtid, gtid_list, payload, previous_gtids, rotate};
use super::frames::{ARTIFICIAL, Event, Frame, Frames, Header, IN_USE, MAGIC, RELAY, without_sum};
use super::kinds;
use super::rows::rows;
use super::tables::{Table, table};
use super::transaction::{End, LogEnd};
use crate::coverage::Coverage;
use crate::event::Sink;
use base::error::AgentError;

/// Definitions of tables that are kept, and their bytes: when there are more, all are forgotten.
const MOST_TABLES: usize = 4096;
const MOST_TABLE_BYTES: usize = 32 << 20;
/// With this number of a table an event only ends a statement.
const NO_TABLE: u64 = 0xff_ffff;
const QUERY_POST_BYTES: usize = 13;
const LOAD_POST_BYTES: usize = 26;
/// An expanded zstd frame may look back so far: more than any server writes.
const WINDOW_LOG: u32 = 27;

/// Reads a binary log, several in sequence, or a piece of one.
///
/// # Errors
/// It cannot be read, is encrypted or older than MySQL 5.0, or the sink refused an event. Damage is counted.
pub fn read(input: impl Read, name: &str, sink: &mut dyn Sink) -> anyhow::Result<Coverage> {
    let mut frames = Frames::new(input);
    if frames.is_encrypted()? {
        return Err(encrypted(name, "binlog_encryption=ON"));
    }
    let mut log = BinaryLog::new(name);
    loop {
        let is_over = log.frame(frames.next()?, sink)?;
        if is_over {
            break;
        }
    }
    let BinaryLog { mut assembler, .. } = log;
    assembler.coverage.bytes = frames.offset();
    assembler.finish(sink)
}

fn encrypted(name: &str, setting: &str) -> anyhow::Error {
    let reason = format!(
        "{name} is an encrypted binary log ({setting}): only its server can read it. Let the server send it: \
         mysqlbinlog --read-from-remote-server --host=... --verbose --base64-output=DECODE-ROWS LOG | headrace digest -"
    );
    AgentError::Named(reason).into()
}

/// The state of the reading.
pub(super) struct BinaryLog<'n> {
    pub assembler: Assembler<'n>,
    tables: HashMap<u64, Table>,
    table_bytes: usize,
    /// Lengths of the fixed parts of events, by kind from 1 on.
    post_bytes: Vec<u8>,
    expanded: Vec<u8>,
    /// Offset at which the log begins; None for a piece.
    begin: Option<u64>,
    /// Where the last event said that it ends.
    last_end: u32,
    events: u64,
}

/// How an event was taken.
enum Taken {
    Well,
    /// It is not what its kind should be.
    Badly,
}

impl<'n> BinaryLog<'n> {
    pub fn new(name: &'n str) -> Self {
        Self {
            assembler: Assembler::new(name),
            tables: HashMap::new(),
            table_bytes: 0,
            post_bytes: Vec::new(),
            expanded: Vec::new(),
            begin: None,
            last_end: 0,
            events: 0,
        }
    }

    /// Takes what comes next; true at the end.
    fn frame(&mut self, frame: Frame<'_>, sink: &mut dyn Sink) -> anyhow::Result<bool> {
        match frame {
            Frame::Begin => {
                if self.events > 0 {
                    self.assembler.end_log(sink)?;
                }
                self.begin = Some(self.begin.map_or(0, |_| self.events_end()));
                self.assembler.is_lost = false;
                self.last_end = MAGIC.len() as u32;
            }
            Frame::Event(event) => {
                self.events += 1;
                self.look_for_gap(&event, sink)?;
                let place = self.place(&event);
                self.event(&event, &place, false, sink)?;
                self.assembler.coverage.bytes = event.offset + u64::from(event.header.length);
            }
            Frame::Damage { offset, bytes, reason } => self.damage(offset, bytes, reason, sink)?,
            Frame::Cut { offset, bytes, problem } => {
                self.cut(offset, bytes, problem);
                return Ok(true);
            }
            Frame::End => return Ok(true),
        }
        Ok(false)
    }

    fn events_end(&self) -> u64 {
        self.assembler.coverage.bytes
    }

    fn place(&self, event: &Event<'_>) -> Place {
        let (end, length) = (event.header.end, event.header.length);
        let position = match self.begin {
            Some(begin) => event.offset - begin.min(event.offset),
            None if end != 0 => end.wrapping_sub(length).into(),
            None => event.offset,
        };
        let bytes = length.into();
        Place { position, time_s: event.header.time_s.into(), bytes, log_bytes: bytes }
    }

    /// In the log of a server each event begins where the one before it ended.
    fn look_for_gap(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let header = event.header;
        let begins = header.end.wrapping_sub(header.length);
        let is_told = header.end != 0 && header.flags & ARTIFICIAL == 0 && !self.assembler.log.is_relay;
        let is_relay = header.kind == kinds::FORMAT_DESCRIPTION && header.flags & RELAY != 0;
        if is_told && !is_relay && self.last_end != 0 && begins != self.last_end && event.offset > 0 {
            let missing = begins.wrapping_sub(self.last_end);
            let reason = format!("the events between positions {} and {begins} are missing", self.last_end);
            if missing < 1 << 31 {
                self.assembler.coverage.damage(self.assembler.name, event.offset, self.events, reason);
                self.assembler.interrupt(sink)?;
            }
        }
        self.last_end = header.end;
        Ok(())
    }

    fn damage(&mut self, offset: u64, bytes: u64, reason: &str, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let coverage = &mut self.assembler.coverage;
        coverage.skipped_bytes += bytes;
        if offset == 0 && self.begin.is_none() {
            let reason =
                format!("a piece of a log: {bytes} bytes of an event that began before it were skipped");
            coverage.note(self.assembler.name, reason);
        } else {
            coverage.damage(self.assembler.name, offset, self.events + 1, reason);
        }
        self.last_end = 0;
        self.assembler.interrupt(sink)
    }

    fn cut(&mut self, offset: u64, bytes: u64, problem: Option<String>) {
        let Assembler { coverage, log, name, .. } = &mut self.assembler;
        coverage.skipped_bytes += bytes;
        match (problem, log.end == LogEnd::InUse) {
            (Some(problem), _) => coverage.damage(name, offset, self.events + 1, problem),
            (None, true) => {
                coverage.note(name, "the server was writing this log: its last event is not whole")
            }
            (None, false) => {
                log.end = LogEnd::Cut;
                coverage.damage(name, offset, self.events + 1, "the log ends in the middle of an event");
            }
        }
    }

    /// Takes one event; `is_inner` of a compressed transaction.
    fn event(
        &mut self,
        event: &Event<'_>,
        place: &Place,
        is_inner: bool,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<()> {
        let kind = event.header.kind;
        let name = kinds::name(kind).unwrap_or("Unknown");
        self.assembler.count(name, place.bytes);
        if matches!(self.assembler.log.end, LogEnd::Rotated(_)) && kind != kinds::ROTATE {
            self.assembler.log.end = LogEnd::Open;
        }
        let taken = match kind {
            kinds::QUERY | kinds::EXECUTE_LOAD_QUERY | kinds::MARIADB_QUERY_COMPRESSED => {
                self.query(event, place, sink)?
            }
            kinds::TABLE_MAP => self.table(event, place),
            _ if kinds::changes_rows(kind) => self.rows(event, place, sink)?,
            kinds::XID => self.commit(place, End::Committed, sink)?,
            kinds::XA_PREPARE => self.commit(place, End::of_xa(event.body.first() == Some(&1)), sink)?,
            kinds::GTID | kinds::ANONYMOUS_GTID | kinds::GTID_TAGGED | kinds::MARIADB_GTID => {
                match gtid(kind, event.header.server, event.body) {
                    Some(found) => self.assembler.gtid(place, found, sink).map(|()| Taken::Well)?,
                    None => Taken::Badly,
                }
            }
            kinds::ROWS_QUERY => self.before(place, event.body.get(1..).unwrap_or_default()),
            kinds::MARIADB_ANNOTATE_ROWS => self.before(place, event.body),
            kinds::INTVAR | kinds::RAND | kinds::USER_VAR | 6..=12 | 17 => self.before(place, b""),
            kinds::TRANSACTION_PAYLOAD if !is_inner => self.payload(event, place, sink)?,
            kinds::MARIADB_START_ENCRYPTION => {
                return Err(encrypted(self.assembler.name, "encrypt_binlog=ON"));
            }
            _ => self.of_log(event)?,
        };
        if matches!(taken, Taken::Badly) {
            self.assembler.coverage.skipped_bytes += place.log_bytes;
            let reason = format!("a {name} event that is not what it should be");
            self.assembler.coverage.damage(self.assembler.name, event.offset, self.events, reason);
        }
        Ok(())
    }

    fn before(&mut self, place: &Place, text: &[u8]) -> Taken {
        self.assembler.before_statement(place, text);
        Taken::Well
    }

    fn commit(&mut self, place: &Place, end: End, sink: &mut dyn Sink) -> anyhow::Result<Taken> {
        self.assembler.commit(place, end, sink)?;
        Ok(Taken::Well)
    }

    /// Events that mysqlbinlog printed as base64; the description's time, if it is among them.
    pub fn encoded(
        &mut self,
        mut bytes: &[u8],
        place: &Place,
        is_packed: bool,
        item: u64,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<Option<u32>> {
        let mut described = None;
        while !bytes.is_empty() {
            let header = Header::read(bytes);
            let Some((header, event)) =
                header.zip(header.and_then(|header| bytes.get(..header.length as usize)))
            else {
                let reason = "base64 that is no event";
                self.assembler.coverage.damage(self.assembler.name, place.position, item, reason);
                return Ok(described);
            };
            bytes = &bytes[event.len()..];
            if header.kind == kinds::FORMAT_DESCRIPTION {
                described = Some(header.time_s);
                continue;
            }
            let length = u64::from(header.length);
            let log_bytes = if is_packed { 0 } else { length };
            let place = Place { time_s: header.time_s.into(), bytes: length, log_bytes, ..*place };
            let body = without_sum(event);
            self.event(
                &Event { header, offset: place.position, body, is_cut: false },
                &place,
                is_packed,
                sink,
            )?;
        }
        Ok(described)
    }

    /// What is about the log, not about a transaction.
    fn of_log(&mut self, event: &Event<'_>) -> anyhow::Result<Taken> {
        let Assembler { coverage, log, name, .. } = &mut self.assembler;
        match event.header.kind {
            kinds::FORMAT_DESCRIPTION => {
                let Some((format, version, post_bytes)) = description(event.body) else {
                    return Ok(Taken::Badly);
                };
                let version = String::from_utf8_lossy(version).into_owned();
                if format != 4 {
                    let reason = format!(
                        "{name} is a binary log of format {format} (server {version}): only format 4, of MySQL 5.0 and \
                         later, is read"
                    );
                    return Err(AgentError::Named(reason).into());
                }
                self.post_bytes = post_bytes.to_vec();
                log.is_relay |= event.header.flags & RELAY != 0;
                log.version = version;
                if event.header.flags & IN_USE != 0 && log.end == LogEnd::Open {
                    log.end = LogEnd::InUse;
                }
            }
            kinds::ROTATE if event.header.flags & ARTIFICIAL == 0 => {
                let Some(next) = rotate(event.body) else { return Ok(Taken::Badly) };
                log.end = LogEnd::Rotated(String::from_utf8_lossy(next).into_owned());
            }
            kinds::STOP => log.end = LogEnd::Stopped,
            kinds::PREVIOUS_GTIDS | kinds::MARIADB_GTID_LIST => {
                let is_list = event.header.kind == kinds::MARIADB_GTID_LIST;
                let found = if is_list { gtid_list(event.body) } else { previous_gtids(event.body) };
                let Some(found) = found else { return Ok(Taken::Badly) };
                log.before = log.before.take().or(Some(found));
            }
            kinds::INCIDENT => {
                let reason =
                    "an incident: the server could not log what happened before this, and replicas stop here";
                coverage.damage(name, event.offset, self.events, reason);
            }
            _ => {}
        }
        Ok(Taken::Well)
    }

    fn query(&mut self, event: &Event<'_>, place: &Place, sink: &mut dyn Sink) -> anyhow::Result<Taken> {
        let kind = event.header.kind;
        let post_bytes = match kind {
            kinds::EXECUTE_LOAD_QUERY => LOAD_POST_BYTES,
            _ => self.post_bytes(kinds::QUERY).filter(|bytes| *bytes == 11).unwrap_or(QUERY_POST_BYTES),
        };
        let Some(mut query) = bodies::query(event.body, post_bytes) else { return Ok(Taken::Badly) };
        let mut place = *place;
        if kind == kinds::MARIADB_QUERY_COMPRESSED {
            if event.is_cut || expand(query.text, &mut self.expanded).is_none() {
                return Ok(Taken::Badly);
            }
            let compressed = query.text.len() as u64;
            self.compressed(compressed, self.expanded.len() as u64);
            place.bytes = (place.bytes + self.expanded.len() as u64).saturating_sub(compressed);
            query = Query { text: &self.expanded, ..query };
        }
        self.assembler.query(&place, &query, event.is_cut, sink)?;
        Ok(Taken::Well)
    }

    fn post_bytes(&self, kind: u8) -> Option<usize> {
        self.post_bytes.get(usize::from(kind).checked_sub(1)?).map(|bytes| usize::from(*bytes))
    }

    fn compressed(&mut self, bytes: u64, expanded_bytes: u64) {
        self.assembler.log.compressed_bytes += bytes;
        self.assembler.log.expanded_bytes += expanded_bytes;
    }

    /// The number of a table has six bytes, before MySQL 5.1.4 four.
    fn number_bytes(&self, kind: u8) -> usize {
        if self.post_bytes(kind) == Some(6) { 4 } else { 6 }
    }

    fn table(&mut self, event: &Event<'_>, place: &Place) -> Taken {
        self.assembler.before_statement(place, b"");
        let Some((number, source)) = event.body.split_at_checked(self.number_bytes(kinds::TABLE_MAP)) else {
            return Taken::Badly;
        };
        let number = number.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        if self.tables.get(&number).is_some_and(|known| known.source == source) {
            return Taken::Well;
        }
        if let Some(old) = self.tables.remove(&number) {
            self.table_bytes -= old.source.len();
        }
        let Some(table) = table(source).filter(|_| !event.is_cut) else { return Taken::Badly };
        if self.tables.len() >= MOST_TABLES || self.table_bytes + source.len() > MOST_TABLE_BYTES {
            self.tables.clear();
            self.table_bytes = 0;
        }
        self.table_bytes += source.len();
        self.tables.insert(number, table);
        Taken::Well
    }

    fn rows(&mut self, event: &Event<'_>, place: &Place, sink: &mut dyn Sink) -> anyhow::Result<Taken> {
        let kind = event.header.kind;
        let number_bytes = self.number_bytes(kind);
        let Some(found) = rows(kind, event.body, number_bytes) else { return Ok(Taken::Badly) };
        let table = self.tables.get(&found.table);
        if table.is_none() && found.table == NO_TABLE {
            self.assembler.before_statement(place, b"");
            self.assembler.end_statement(sink)?;
            return Ok(Taken::Well);
        }
        let counted = match table {
            Some(table) if !event.is_cut => found.count(table, &mut self.expanded),
            _ => None,
        };
        self.assembler.undefined += u64::from(table.is_none());
        self.assembler.uncounted += u64::from(table.is_some() && counted.is_none());
        let mut place = *place;
        let saved_bytes = counted.map_or(0, |counted| counted.saved_bytes);
        if saved_bytes > 0 {
            let expanded = self.expanded.len() as u64;
            place.bytes += saved_bytes;
            self.assembler.log.compressed_bytes += expanded - saved_bytes;
            self.assembler.log.expanded_bytes += expanded;
        }
        let change = (found.kind, table, counted.map(|counted| counted.rows));
        self.assembler.rows(&place, change, found.ends_statement, sink)?;
        Ok(Taken::Well)
    }

    /// A transaction in one compressed event (MySQL 8.0.20 and later).
    fn payload(&mut self, event: &Event<'_>, place: &Place, sink: &mut dyn Sink) -> anyhow::Result<Taken> {
        self.assembler.payload(place);
        let Some(found) = payload(event.body).filter(|_| !event.is_cut) else { return Ok(Taken::Badly) };
        let before = self.assembler.log.expanded_bytes;
        if found.is_zstd {
            let mut decoder = zstd::Decoder::with_buffer(BufReader::new(found.content))?;
            decoder.window_log_max(WINDOW_LOG)?;
            self.inner(decoder, place, sink)?;
        } else {
            self.inner(found.content, place, sink)?;
        }
        self.assembler.log.compressed_bytes += found.content.len() as u64;
        let expanded = self.assembler.log.expanded_bytes - before;
        let is_whole = found.expanded_bytes.is_none_or(|claimed| claimed == expanded);
        Ok(if is_whole { Taken::Well } else { Taken::Badly })
    }

    fn inner(&mut self, input: impl Read, outer: &Place, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let mut frames = Frames::inner(input);
        // Damage ends it: its size is then not what was claimed.
        while let Frame::Event(event) = frames.next()? {
            let bytes = u64::from(event.header.length);
            let time_s = event.header.time_s.into();
            self.assembler.log.expanded_bytes += bytes;
            self.event(&event, &Place { time_s, bytes, log_bytes: 0, ..*outer }, true, sink)?;
        }
        Ok(())
    }
}
