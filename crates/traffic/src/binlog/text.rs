//! What mysqlbinlog and mariadb-binlog print: with base64, with rows as comments (`--verbose`), or both.
//!
//! Events as base64 are taken as they are in the log. Where there are none (`--base64-output=DECODE-ROWS`), rows are the
//! comments that begin them. Sizes are the distances between the ends of events. Times are local ones, whose zone is told
//! by the times that statements set.

use std::collections::HashMap;
use std::io::Read;

use super::assemble::Place;
use super::binary::BinaryLog;
use super::bodies::{GtidEvent, Query};
use super::ends;
use super::gtid::{Gtid, Stream};
use super::lines::MOST_BYTES;
use super::tables::{Table, full_name};
use super::text_header::{Head, base64, gtid, number, table};
use super::transaction::{End, Key, Kind, LogEnd};
use crate::coverage::{Coverage, counted};
use crate::event::Sink;

const MOST_TABLES: usize = 4096;
const MOST_BEGINS: usize = 4096;
const DELIMITER: &[u8] = b"/*!*/;";
const SECONDS_OF_ZONES: i64 = 15 * 3600;

/// Whether a line of text is of such output.
#[must_use]
pub fn is_text(line: &[u8]) -> bool {
    Head::read(line.trim_ascii_end()).is_some()
}

/// Reads what mysqlbinlog has printed.
///
/// # Errors
/// It cannot be read, or the sink refused an event. Damage is counted.
pub fn read(input: impl Read, name: &str, sink: &mut dyn Sink) -> anyhow::Result<Coverage> {
    let mut text = Text::new(name);
    let lines = ends::read(input, &mut |line, is_cut, offset| text.line(line, is_cut, offset, sink))?;
    text.finish(lines.offset, lines.problem, sink)
}

/// What the lines behind the head of an event belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Nothing,
    Gtid,
    Query,
    Previous,
    Statement,
}

/// What an event is, where its bytes were printed before that: mariadb-binlog writes `# Event: ` there, mysqlbinlog `# `.
fn behind_dump(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(b"# Event: ")
        .or_else(|| line.strip_prefix(b"# ").filter(|rest| rest.starts_with(b"\t")))
}

/// Row events of a statement that were not given as base64 yet.
#[derive(Debug)]
struct Waiting {
    place: Place,
    kind: Kind,
    table: u64,
    ends_statement: bool,
}

struct Text<'n> {
    log: BinaryLog<'n>,
    of: Of,
    /// Local time less UTC, once that is known.
    zone_s: Option<i64>,
    place: Place,
    /// Where the last event ended; where the next one begins, if that was printed.
    last_end: u64,
    query: Option<(u64, u64, u64)>,
    database: Vec<u8>,
    micros: Option<u32>,
    gtid: Option<(Place, GtidEvent)>,
    statement: Vec<u8>,
    is_cut: bool,
    /// Base64 that is coming, and what it decodes to.
    encoded: Option<Vec<u8>>,
    tables: HashMap<u64, Table>,
    mapped: Option<u64>,
    waiting: Vec<Waiting>,
    /// Rows that comments have, by kind and table.
    shown: HashMap<(Kind, Vec<u8>), u64>,
    /// Positions that were printed, of events whose heads are still to come.
    begins: Vec<u64>,
    /// `--hexdump`: an event's first line, until the line that names its type follows the bytes.
    dumped: Option<Vec<u8>>,
    items: u64,
    is_packed: bool,
    are_sizes_unknown: bool,
    /// Statements without the head of an event, and row events without their rows.
    headless: u64,
    unshown: u64,
}

impl<'n> Text<'n> {
    fn new(name: &'n str) -> Self {
        Self {
            log: BinaryLog::new(name),
            of: Of::Nothing,
            zone_s: None,
            place: Place::default(),
            last_end: 4,
            query: None,
            database: Vec::new(),
            micros: None,
            gtid: None,
            statement: Vec::new(),
            is_cut: false,
            encoded: None,
            tables: HashMap::new(),
            mapped: None,
            waiting: Vec::new(),
            shown: HashMap::new(),
            begins: Vec::new(),
            dumped: None,
            items: 0,
            is_packed: false,
            are_sizes_unknown: false,
            headless: 0,
            unshown: 0,
        }
    }

    fn line(&mut self, line: &[u8], is_cut: bool, offset: u64, sink: &mut dyn Sink) -> anyhow::Result<()> {
        if self.encoded.is_some() {
            return self.encoded(line, sink);
        }
        if self.statement.is_empty() {
            if let Some(head) = Head::read(line) {
                self.undumped(b"", sink)?;
                if head.what.is_empty() {
                    self.dumped = Some(line.to_vec());
                    return Ok(());
                }
                return self.head(&head, sink);
            }
            if let Some(what) = self.dumped.as_ref().and_then(|_| behind_dump(line)) {
                return self.undumped(what, sink);
            }
            if line.starts_with(b"BINLOG '") {
                self.encoded = Some(Vec::new());
                return Ok(());
            }
            if line.starts_with(b"#") {
                self.comment(line);
                return Ok(());
            }
            if line.is_empty() || line.starts_with(b"DELIMITER ") {
                return Ok(());
            }
        } else if line.starts_with(b"# at ") && self.of != Of::Query {
            // Lines that are of no event: nothing ends them.
            self.statement.clear();
            return Ok(());
        }
        let room = MOST_BYTES.saturating_sub(self.statement.len());
        self.is_cut |= is_cut || line.len() > room;
        if !self.statement.is_empty() {
            self.statement.push(b'\n');
        }
        self.statement.extend_from_slice(&line[..line.len().min(room)]);
        let is_ended = line.ends_with(DELIMITER) || self.of != Of::Query && line.ends_with(b";");
        if !is_ended {
            return Ok(());
        }
        let statement = std::mem::take(&mut self.statement);
        let is_cut = std::mem::take(&mut self.is_cut);
        let text = statement.strip_suffix(DELIMITER).unwrap_or(&statement).trim_ascii();
        self.log.assembler.coverage.bytes = offset;
        self.sql(text, is_cut, sink)?;
        self.statement = statement;
        self.statement.clear();
        Ok(())
    }

    /// The event whose bytes were printed is this one; nothing if none were.
    fn undumped(&mut self, what: &[u8], sink: &mut dyn Sink) -> anyhow::Result<()> {
        let Some(line) = self.dumped.take() else { return Ok(()) };
        match Head::read(&line) {
            Some(head) => self.head(&Head { what: what.trim_ascii(), ..head }, sink),
            None => Ok(()),
        }
    }

    /// A new event: what waited for more of the last one goes on.
    fn head(&mut self, head: &Head<'_>, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let what = head.what;
        let word = &what[..what
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            .count()];
        let rows = kind_of(word);
        let belongs = rows.is_some() || word == b"Table_map";
        let is_next = rows.is_none() && self.waiting.last().is_some_and(|last| last.ends_statement);
        if !belongs || is_next {
            self.give_rows(sink)?;
        }
        self.items += 1;
        self.headless(head.end);
        let size =
            head.end.checked_sub(self.last_end).filter(|size| *size < 1 << 31 && head.end != 0).unwrap_or(0);
        self.place = Place {
            position: head.end.saturating_sub(size),
            time_s: self.time_s(head.local_s),
            bytes: size,
            log_bytes: if self.is_packed { 0 } else { size },
        };
        self.last_end = head.end;
        let name = label(word);
        if !belongs && word != b"Transaction_Payload" && word != b"Start" {
            self.log.assembler.count(name, size);
        }
        if word != b"GTID" && word != b"Anonymous_GTID" && word != b"Query" {
            self.give_gtid(sink)?;
        }
        if matches!(self.log.assembler.log.end, LogEnd::Rotated(_)) && word != b"Rotate" {
            self.log.assembler.log.end = LogEnd::Open;
        }
        self.of = Of::Nothing;
        match word {
            b"GTID" | b"Anonymous_GTID" => self.begin(head, sink)?,
            b"Query" | b"Query_compressed" | b"Execute_load_query" => {
                let value = |key: &[u8]| head.value(key).unwrap_or(0);
                self.query = Some((value(b"thread_id="), value(b"exec_time="), value(b"error_code=")));
                (self.of, self.micros) = (Of::Query, None);
            }
            b"Table_map" => self.map(what),
            b"Xid" => self.log.assembler.commit(&self.place, End::Committed, sink)?,
            b"XA" | b"XID" => {
                self.log.assembler.commit(&self.place, End::of_xa(what.starts_with(b"XA COMMIT ")), sink)?;
            }
            b"Annotate_rows" | b"Rows_query" => {
                self.log.assembler.before_statement(&self.place, b"");
                self.of = Of::Statement;
            }
            b"Intvar" | b"Rand" | b"User_var" | b"Append_block" | b"Begin_load_query" => {
                self.log.assembler.before_statement(&self.place, b"");
            }
            b"Transaction_Payload" => self.payload(head),
            b"Previous-GTIDs" => self.of = Of::Previous,
            _ => self.of_log(head, word, sink)?,
        }
        if let Some(kind) = rows {
            let table =
                what.windows(9).position(|part| part == b"table id ").map(|at| number(&what[at + 9..]));
            let table = table.flatten().map_or(0, |(id, _)| id);
            let ends_statement = memchr::memmem::find(what, b"STMT_END_F").is_some();
            self.waiting.push(Waiting { place: self.place, kind, table, ends_statement });
        }
        Ok(())
    }

    /// Texts of statements have a position but no head, unless they are asked for (MySQL).
    fn headless(&mut self, end: u64) {
        let hidden =
            self.begins.iter().copied().filter(|begin| (self.last_end + 1..end).contains(begin)).max();
        self.begins.retain(|begin| *begin >= end);
        if let Some(begin) = hidden.filter(|_| !self.is_packed) {
            let bytes = begin - self.last_end;
            let place = Place { position: self.last_end, time_s: 0, bytes, log_bytes: bytes };
            self.log.assembler.count("Not printed", bytes);
            self.log.assembler.before_statement(&place, b"");
            self.last_end = begin;
        }
    }

    fn begin(&mut self, head: &Head<'_>, sink: &mut dyn Sink) -> anyhow::Result<()> {
        self.give_gtid(sink)?;
        self.is_packed = false;
        self.of = Of::Gtid;
        let immediate_us = head.value(b"immediate_commit_timestamp=").filter(|us| *us > 0);
        let original_us = head.value(b"original_committed_timestamp=").filter(|us| *us > 0);
        let mariadb = head
            .what
            .strip_prefix(b"GTID ")
            .map(|rest| gtid(rest.split(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default()));
        let gtid = mariadb.unwrap_or(Gtid::None);
        let is_mariadb = matches!(gtid, Gtid::MariaDb { .. });
        self.gtid = Some((
            self.place,
            GtidEvent {
                gtid,
                original_us: original_us.or(immediate_us),
                immediate_us,
                // Until BEGIN or its like says otherwise.
                is_alone: is_mariadb,
                may_be_alone: !is_mariadb,
            },
        ));
        Ok(())
    }

    fn give_gtid(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        match self.gtid.take() {
            Some((place, gtid)) => self.log.assembler.gtid(&place, gtid, sink),
            None => Ok(()),
        }
    }

    /// UTC of a local time, as far as that is known.
    fn time_s(&self, local_s: u64) -> u64 {
        local_s.saturating_add_signed(-self.zone_s.unwrap_or(0))
    }

    fn payload(&mut self, head: &Head<'_>) {
        self.log.assembler.payload(&self.place);
        let sizes = (head.value(b"payload_size="), head.value(b"uncompressed_size="));
        if let (Some(compressed), Some(expanded)) = sizes {
            self.log.assembler.log.compressed_bytes += compressed;
            self.log.assembler.log.expanded_bytes += expanded;
        }
        self.is_packed = true;
        self.are_sizes_unknown = true;
    }

    fn of_log(&mut self, head: &Head<'_>, word: &[u8], sink: &mut dyn Sink) -> anyhow::Result<()> {
        match word {
            b"Start" => {
                self.log.assembler.end_log(sink)?;
                self.log.assembler.is_lost = false;
                self.log.assembler.count("Format_desc", self.place.bytes);
                let version = memchr::memmem::find(head.what, b"server v ").map(|at| &head.what[at + 9..]);
                let version =
                    version.and_then(|rest| rest.split(|byte| *byte == b' ').next()).unwrap_or_default();
                self.log.assembler.log.version = String::from_utf8_lossy(version).into_owned();
            }
            b"Rotate" => {
                let next = head
                    .what
                    .strip_prefix(b"Rotate to ")
                    .and_then(|rest| rest.split(|byte| *byte == b' ').next());
                let next = String::from_utf8_lossy(next.unwrap_or_default()).into_owned();
                self.log.assembler.log.end = LogEnd::Rotated(next);
                // The next event is of another log.
                self.last_end = 4;
            }
            b"Stop" => self.log.assembler.log.end = LogEnd::Stopped,
            b"Incident" => {
                let coverage = &mut self.log.assembler.coverage;
                let reason =
                    "an incident: the server could not log what happened before this, and replicas stop here";
                coverage.damage(self.log.assembler.name, self.place.position, self.items, reason);
            }
            b"Gtid" => {
                // MariaDB: `Gtid list [0-7-5, 1-7-2]`.
                let list = head.what.split(|byte| matches!(byte, b'[' | b']' | b',' | b' '));
                let mut before = self.log.assembler.log.before.take().unwrap_or_default();
                for found in list.map(gtid) {
                    if let Gtid::MariaDb { domain, sequence, .. } = found {
                        before.add_range(Stream::Domain(domain), 1, sequence);
                    }
                }
                self.log.assembler.log.before = Some(before);
            }
            _ => {}
        }
        Ok(())
    }

    fn map(&mut self, what: &[u8]) {
        let Some((database, name, rest)) =
            what.split(|byte| *byte == b' ').next().and_then(|word| table(what.get(word.len() + 1..)?))
        else {
            return;
        };
        let id = rest.strip_prefix(b" mapped to number ").and_then(number).map(|(id, _)| id);
        let Some(id) = id else { return };
        if self.tables.len() >= MOST_TABLES {
            self.tables.clear();
        }
        let name = full_name(&database, &name).into();
        self.tables.insert(
            id,
            Table {
                name,
                database: database.into(),
                columns: Vec::new(),
                key: Key::Unknown,
                source: Vec::new(),
            },
        );
        self.mapped = Some(id);
        let place = self.place;
        self.waiting.push(Waiting { place, kind: Kind::Insert, table: u64::MAX, ends_statement: false });
    }

    /// Row events that came without base64: their rows are the comments.
    fn give_rows(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let has_shown = !self.shown.is_empty();
        for one in waiting {
            if one.table == u64::MAX {
                self.log.assembler.count("Table_map", one.place.bytes);
                self.log.assembler.before_statement(&one.place, b"");
                continue;
            }
            let table = self.tables.get(&one.table);
            let name = match one.kind {
                Kind::Insert => "Write_rows",
                Kind::Update => "Update_rows",
                Kind::Delete => "Delete_rows",
            };
            self.log.assembler.count(name, one.place.bytes);
            // All rows of a statement are shown behind its last event.
            let shown = table.map(|table| self.shown.remove(&(one.kind, table.name.to_vec())).unwrap_or(0));
            let rows = shown.filter(|_| has_shown);
            self.unshown += u64::from(!has_shown);
            self.log.assembler.uncounted += u64::from(rows.is_none() && has_shown);
            self.log.assembler.rows(&one.place, (one.kind, table, rows), one.ends_statement, sink)?;
        }
        self.shown.clear();
        Ok(())
    }

    fn comment(&mut self, line: &[u8]) {
        if let Some(rest) = line.strip_prefix(b"### ") {
            let kinds: [(&[u8], Kind); 3] = [
                (b"INSERT INTO ", Kind::Insert),
                (b"UPDATE ", Kind::Update),
                (b"DELETE FROM ", Kind::Delete),
            ];
            for (begin, kind) in kinds {
                if let Some((database, name, _)) = rest.strip_prefix(begin).and_then(table) {
                    *self.shown.entry((kind, full_name(&database, &name))).or_default() += 1;
                }
            }
        } else if let Some((begin, b"")) = line.strip_prefix(b"# at ").and_then(number) {
            if self.begins.len() < MOST_BEGINS {
                self.begins.push(begin);
            }
        } else if line.starts_with(b"# Warning: this binlog is either in use") {
            self.log.assembler.log.end = LogEnd::InUse;
        } else if self.of == Of::Statement {
            let text = line.strip_prefix(b"#Q> ").or_else(|| line.strip_prefix(b"# ")).unwrap_or_default();
            self.log.assembler.text(text);
            self.of = Of::Nothing;
        } else if self.of == Of::Previous {
            self.previous(line);
        } else if let Some(id) = self.mapped {
            // mysqlbinlog --print-table-metadata.
            let key = if line.starts_with(b"# Primary Key(") { Key::Primary } else { Key::None };
            let is_told = key == Key::Primary || line.starts_with(b"# Columns(`");
            if let Some(table) = self.tables.get_mut(&id).filter(|_| is_told) {
                table.key = key;
            }
        }
    }

    /// `# 4ee93922-eb2f-11f1-8145-02fc00000001:1-5:7,`
    fn previous(&mut self, line: &[u8]) {
        let mut before = self.log.assembler.log.before.take().unwrap_or_default();
        let line = line.trim_ascii_start();
        let text = line.strip_prefix(b"# ").unwrap_or(line);
        let text = text.strip_suffix(b",").unwrap_or(text);
        let mut source = None;
        for part in text.split(|byte| *byte == b':') {
            let range = number(part).map(|(first, rest)| match rest.strip_prefix(b"-").and_then(number) {
                Some((last, b"")) => Some((first, last)),
                _ => rest.is_empty().then_some((first, first)),
            });
            match (range.flatten(), source) {
                (Some((first, last)), Some(source)) => before.add_range(Stream::Mysql(source), first, last),
                (None, None) => source = super::gtid::Source::parse(part),
                (None, Some(known)) => source = super::gtid::Source::new(known.uuid, part),
                _ => {}
            }
        }
        self.log.assembler.log.before = Some(before);
    }

    /// What is between two delimiters: the statement itself, or what the session needs before it.
    fn sql(&mut self, text: &[u8], is_cut: bool, sink: &mut dyn Sink) -> anyhow::Result<()> {
        if let Some(rest) = text.strip_prefix(b"SET TIMESTAMP=") {
            // It stands before each statement, behind the head of its event.
            self.headless += u64::from(self.of != Of::Query);
            self.set_time(rest);
            return Ok(());
        }
        if let Some(rest) = text.strip_prefix(b"SET @@SESSION.GTID_NEXT=") {
            let value = rest
                .trim_ascii()
                .strip_prefix(b"'")
                .and_then(|rest| rest.split(|byte| *byte == b'\'').next());
            if let (Some((_, found)), Some(value)) = (&mut self.gtid, value)
                && self.of == Of::Gtid
            {
                found.gtid = gtid(value);
            }
            return Ok(());
        }
        if self.of == Of::Gtid && (text == b"START TRANSACTION" || text == b"BEGIN") {
            if let Some((_, gtid)) = &mut self.gtid {
                gtid.is_alone = false;
            }
            return Ok(());
        }
        if self.of != Of::Query {
            return Ok(());
        }
        if text.starts_with(b"use `") {
            self.database = text[5..].strip_suffix(b"`").unwrap_or_default().to_vec();
            return Ok(());
        }
        let settings: [&[u8]; 5] = [b"SET @@session.", b"/*!\\C ", b"/*!80", b"/*!100", b"/*M!"];
        if settings.iter().any(|begin| text.starts_with(begin)) && text.len() < 1024 {
            return Ok(());
        }
        self.give_gtid(sink)?;
        let (thread, exec_s, error) = self.query.take().unwrap_or_default();
        self.of = Of::Nothing;
        let query = Query {
            thread: thread as u32,
            exec_s: exec_s as u32,
            error: error as u16,
            database: &self.database,
            micros: self.micros,
            text,
        };
        self.log.assembler.query(&self.place, &query, is_cut, sink)
    }

    /// `1795871017` or `1795871017.123456`: UTC, which tells the zone of all other times.
    fn set_time(&mut self, text: &[u8]) {
        let Some((seconds, rest)) = number(text) else { return };
        let local_s = self.place.time_s.saturating_add_signed(self.zone_s.unwrap_or(0));
        let zone_s = local_s.cast_signed().saturating_sub(seconds.cast_signed());
        if zone_s.abs() <= SECONDS_OF_ZONES {
            self.zone_s = Some(zone_s);
        }
        self.place.time_s = seconds;
        if let Some((fraction, _)) = rest.strip_prefix(b".").and_then(number) {
            self.micros = u32::try_from(fraction).ok().filter(|micros| *micros < 1_000_000);
        }
    }

    /// A line of base64, or its end.
    fn encoded(&mut self, line: &[u8], sink: &mut dyn Sink) -> anyhow::Result<()> {
        let Some(mut bytes) = self.encoded.take() else { return Ok(()) };
        if !line.starts_with(b"'") {
            let has_room = bytes.len() < 2 * super::frames::MOST_EVENT_BYTES;
            if !has_room || !base64(line, &mut bytes) {
                let coverage = &mut self.log.assembler.coverage;
                let reason = "a line of base64 that is none, or too many of them";
                coverage.damage(self.log.assembler.name, self.place.position, self.items, reason);
                return Ok(());
            }
            self.encoded = Some(bytes);
            return Ok(());
        }
        let has_described = self.log.encoded(&bytes, &self.place, self.is_packed, self.items, sink)?;
        if let Some(time_s) = has_described {
            // The log's description: the same time in both forms.
            let local_s = self.place.time_s.saturating_add_signed(self.zone_s.unwrap_or(0));
            let zone_s = local_s.cast_signed() - i64::from(time_s);
            self.zone_s = self.zone_s.or((zone_s.abs() <= SECONDS_OF_ZONES).then_some(zone_s));
        } else {
            self.waiting.clear();
            self.are_sizes_unknown = false;
        }
        Ok(())
    }

    fn finish(
        mut self,
        bytes: u64,
        problem: Option<String>,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<Coverage> {
        self.undumped(b"", sink)?;
        self.give_rows(sink)?;
        self.give_gtid(sink)?;
        let name = self.log.assembler.name;
        let coverage = &mut self.log.assembler.coverage;
        coverage.bytes = bytes;
        if let Some(problem) = problem {
            coverage.damage(name, bytes, self.items, problem);
        } else if !self.statement.is_empty() && self.of == Of::Query || self.encoded.is_some() {
            coverage.damage(name, bytes, self.items, "the text ends in the middle of an event");
        }
        if self.headless > 0 {
            let said = counted(self.headless, "statement")
                + " without times and sizes, as in the short form of mysqlbinlog: leave out --short-form (-s)";
            coverage.damage(name, 0, 1, said);
            // Of heads alone nothing comes: then it is a text that cannot be read.
            match coverage.events {
                0 => coverage.skipped_bytes = bytes,
                _ => coverage.lost_events += self.headless,
            }
        }
        if self.unshown > 0 {
            let said = counted(self.unshown, "row event");
            coverage.note(name, said + " without rows, which mysqlbinlog prints with --verbose (-v)");
        }
        if self.zone_s.is_none() && self.items > 0 {
            coverage.note(
                name,
                "times have no zone: taken as UTC, but they are those of whoever ran mysqlbinlog",
            );
        }
        if self.are_sizes_unknown {
            let note = "sizes of events in compressed transactions are only in base64, which --base64-output=DECODE-ROWS \
                        leaves out: they count as 0 bytes";
            coverage.note(name, note);
        }
        self.log.assembler.finish(sink)
    }
}

/// What is done to rows, by the word of an event.
fn kind_of(word: &[u8]) -> Option<Kind> {
    memchr::memmem::find(word, b"rows")?;
    let kinds: [(&[u8], Kind); 3] =
        [(b"Write_", Kind::Insert), (b"Update_", Kind::Update), (b"Delete_", Kind::Delete)];
    kinds.into_iter().find(|(begin, _)| word.starts_with(begin)).map(|(_, kind)| kind)
}

/// The same names as in the log itself, where the words differ.
fn label(word: &[u8]) -> &'static str {
    match word {
        b"GTID" => "Gtid",
        b"Anonymous_GTID" => "Anonymous_Gtid",
        b"Previous-GTIDs" => "Previous_gtids",
        b"Gtid" => "Gtid_list",
        b"Binlog" => "Binlog_checkpoint",
        b"Rand" => "RAND",
        b"XA" | b"XID" => "XA_prepare",
        b"Query" => "Query",
        b"Query_compressed" => "Query_compressed",
        b"Xid" => "Xid",
        b"Rotate" => "Rotate",
        b"Stop" => "Stop",
        b"Intvar" => "Intvar",
        b"User_var" => "User_var",
        b"Annotate_rows" => "Annotate_rows",
        b"Rows_query" => "Rows_query",
        b"Incident" => "Incident",
        b"Append_block" => "Append_block",
        b"Begin_load_query" => "Begin_load_query",
        b"Execute_load_query" => "Execute_load_query",
        _ => "Other",
    }
}
