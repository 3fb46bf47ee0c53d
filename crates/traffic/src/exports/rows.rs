//! Rows of mysql.slow_log and mysql.general_log, and what clouds and shippers make of the slow log.
//!
//! - `start_time` of the table is when the row was written, which is the end of the statement, in MySQL; in MariaDB,
//!   whose table has `rows_affected`, it is the start. Azure's is documented as the start; Elastic's `@timestamp` is the
//!   log's `SET timestamp`, which is the end in whole seconds except since MySQL 8.0.14.
//! - Times without a zone are the server's, or those of the session that exported them.
//! - Commands without a statement are named in `sql_text`: `Quit`, `Ping`.

use super::record::{Record, Value};
use super::sessions::{self, Servers};
use super::shape::{QUERY_TIME, SQL_TEXT, Shape};
use super::values::{Coding, count, decoded, duration_ns, has_fraction, is_placeholder, moment};
use crate::commands;
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome, Sink};
use crate::general_log;
use crate::measures::{Measure, Measures};
use crate::slow_log::time::Stamp;
use crate::slow_log::{Account, parse_account, throttled};

/// Why a row is no event, if so.
pub(super) type Read = Result<(), &'static str>;

pub(super) struct Rows<'n> {
    name: &'n str,
    shape: Shape,
    servers: Servers,
    general: general_log::Parser<'n>,
    pub(super) coverage: Coverage,
    local_times: bool,
    /// Query times that are 0, and whether any has a fraction of a second.
    zeros: u64,
    has_fractions: bool,
    /// The time of the last row of a general log, and how many were newer, and older, than the one before.
    last_ns: u64,
    steps: (u64, u64),
    pub(super) placeholders: u64,
    /// How arguments are written, once one tells.
    coding: Option<Coding>,
}

impl<'n> Rows<'n> {
    pub(super) fn new(name: &'n str, shape: Shape) -> Self {
        Self {
            name,
            shape,
            servers: Servers::default(),
            general: general_log::Parser::new(name, &general_log::Options::default()),
            coverage: Coverage::default(),
            local_times: false,
            zeros: 0,
            has_fractions: false,
            last_ns: 0,
            steps: (0, 0),
            placeholders: 0,
            coding: None,
        }
    }

    /// Gives the event of a row.
    pub(super) fn row(&mut self, record: &Record, sink: &mut dyn Sink) -> anyhow::Result<Read> {
        match self.shape {
            Shape::GeneralRow => self.general_row(record, sink),
            Shape::Ecs => self.document(record, sink),
            _ => self.slow_row(record, sink),
        }
    }

    /// What was seen, with what is to be said of all rows.
    pub(super) fn finish(mut self) -> Coverage {
        self.coverage.merge(&self.general.coverage);
        if self.local_times {
            self.coverage.note(self.name, "its times have no zone and are taken as UTC");
        }
        if self.steps.1 > self.steps.0 {
            self.coverage.note(
                self.name,
                "its newest rows come first: the database of a statement, which its session named before, \
                 is not known; export them with ORDER BY event_time",
            );
        }
        if !self.has_fractions && self.zeros > 0 {
            self.coverage.note(
                self.name,
                "its query times are whole seconds: what took less than one counts as 0; export them with \
                 TIME_TO_SEC(query_time)",
            );
        }
        if self.servers.count() > 1 {
            let count = self.servers.count();
            self.coverage.note(self.name, format!("it has the statements of {count} servers"));
        }
        self.coverage
    }

    fn slow_row(&mut self, record: &Record, sink: &mut dyn Sink) -> anyhow::Result<Read> {
        let Some(took) = record.text(QUERY_TIME) else { return Ok(Err("a row without a query time")) };
        let Some(response_ns) = duration_ns(took) else {
            return Ok(Err("a query time that is no length of time"));
        };
        let Some(text) = record.text(SQL_TEXT) else { return Ok(Err("a row without a statement")) };
        if is_placeholder(text) {
            self.placeholders += 1;
            return Ok(Err("a BLOB that the client did not export"));
        }
        let is_azure = record.has(&["event_class"]) || record.has(&["category"]);
        let is_start = is_azure || record.has(&["rows_affected"]);
        let stamp = record.text(&["start_time", "timegenerated", "time"]).and_then(moment);
        let account = record.text(&["user_host"]).and_then(parse_account).unwrap_or_default();
        let who = Who {
            user: record.text(&["user"]).unwrap_or(account.user),
            host: record.text(&["host", "ip"]).unwrap_or(account.host),
            database: record.text(&["db", "database", "schema"]).unwrap_or_default(),
            thread: record.text(&["thread_id"]).and_then(count).or(account.id),
            server: record
                .text(&["logicalservername", "resourceid", "_resourceid", "resource", "server_id"])
                .unwrap_or_default(),
        };
        let measures = measures(record, &SLOW_MEASURES);
        self.has_fractions |= has_fraction(took);
        let decoded = decoded(text);
        let timed = Timed { stamp, is_start, response_ns: Some(response_ns) };
        self.give(decoded.as_deref().unwrap_or(text), &timed, &who, measures, record, sink)?;
        Ok(Ok(()))
    }

    /// A document of Elastic's common schema, with the names of Filebeat's module in its versions.
    fn document(&mut self, record: &Record, sink: &mut dyn Sink) -> anyhow::Result<Read> {
        let Some(text) = record.text(&["mysql.slowlog.query"]) else {
            return Ok(Err("a document without a statement"));
        };
        let seconds = record.text(&["mysql.slowlog.query_time.sec", "mysql.slowlog.query_time"]);
        let response_ns = match record.text(&["event.duration"]) {
            Some(ns) => count(ns),
            None => seconds.and_then(duration_ns),
        };
        let Some(response_ns) = response_ns else { return Ok(Err("a document without a query time")) };
        let stamp = record.text(&["@timestamp"]).and_then(moment);
        let who = Who {
            user: record
                .text(&["mysql.slowlog.current_user", "user.name", "mysql.slowlog.user"])
                .unwrap_or_default(),
            host: record
                .text(&["source.domain", "source.ip", "mysql.slowlog.host", "mysql.slowlog.ip"])
                .unwrap_or_default(),
            database: record.text(&["mysql.slowlog.schema"]).unwrap_or_default(),
            thread: record.text(&["mysql.thread_id", "mysql.slowlog.id"]).and_then(count),
            server: record
                .text(&["service.address", "host.name", "host.hostname", "agent.name"])
                .unwrap_or_default(),
        };
        let measures = measures(record, &DOCUMENT_MEASURES);
        self.has_fractions = true;
        let timed = Timed { stamp, is_start: false, response_ns: Some(response_ns) };
        self.give(text, &timed, &who, measures, record, sink)?;
        Ok(Ok(()))
    }

    fn give(
        &mut self,
        text: &[u8],
        timed: &Timed,
        who: &Who<'_>,
        measures: Measures,
        record: &Record,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<()> {
        if let Some(left_out) = throttled(text) {
            self.coverage.throttled(left_out, timed.response_ns);
            return Ok(());
        }
        self.zeros += u64::from(timed.response_ns == Some(0));
        self.local_times |= timed.stamp.is_some_and(|(_, has_zone)| !has_zone);
        let server = self.servers.number(who.server);
        let session = who.thread.unwrap_or_else(|| by_name(who.user, who.host));
        // A command without a statement is named in place of it.
        let command = if commands::is_name(text) { commands::by_name(text) } else { Command::Query };
        let mut event = Event::new(timed.start_ns(), session, command);
        event.connection = who.thread;
        event.text = if command == Command::Query { text } else { b"" };
        event.is_cut = record.is_cut || is_shortened(text);
        event.response_ns = timed.response_ns;
        (event.user, event.host, event.database) = (who.user, who.host, who.database);
        event.measures = measures;
        event.outcome = match record.text(&["errno", "error_code"]).and_then(count).map(u16::try_from) {
            Some(Ok(0)) => Outcome::Ok,
            Some(Ok(number)) => Outcome::Error(number),
            _ => Outcome::Unknown,
        };
        self.coverage.events += 1;
        sessions::give(&event, server, sink)
    }

    fn general_row(&mut self, record: &Record, sink: &mut dyn Sink) -> anyhow::Result<Read> {
        let Some(command) = record.text(&["command_type"]) else { return Ok(Err("a row without a command")) };
        let Some(thread) = record.text(&["thread_id"]).and_then(count) else {
            return Ok(Err("a row without a thread"));
        };
        let argument = record.get(&["argument"]).and_then(Value::text).unwrap_or_default();
        if is_placeholder(argument) {
            self.placeholders += 1;
            return Ok(Err("a BLOB that the client did not export"));
        }
        self.coding = self.coding.or_else(|| Coding::of(argument));
        let decoded = decoded(argument).or_else(|| self.coding.and_then(|coding| coding.decoded(argument)));
        let stamp = record.text(&["event_time"]).and_then(moment);
        let time = stamp.map(|(ns, has_zone)| Stamp { ns, is_local: !has_zone });
        let account = record.text(&["user_host"]).and_then(parse_account).unwrap_or_default();
        let server = self.servers.number(record.text(&["server_id"]).unwrap_or_default());
        let time_ns = time.map_or(self.last_ns, |time| time.ns);
        if self.last_ns > 0 {
            self.steps.0 += u64::from(time_ns > self.last_ns);
            self.steps.1 += u64::from(time_ns < self.last_ns);
        }
        self.last_ns = time_ns;
        let (is_backwards, mut unknown) = (self.steps.1 > self.steps.0, 0);
        let mut give = |event: &Event<'_>| {
            let mut event = with_account(event, &account);
            // What a session said in a row before this one, it said later.
            if is_backwards && !matches!(event.command, Command::Connect | Command::InitDb) {
                unknown += 1;
                event.database = b"";
            }
            sessions::give(&event, server, sink)
        };
        // Threads of several servers must not be taken for each other's.
        let thread = sessions::session(server, thread);
        let argument = decoded.as_deref().unwrap_or(argument);
        self.general.entry(
            time,
            thread,
            command,
            argument,
            record.is_cut || is_shortened(argument),
            &mut give,
        )?;
        self.coverage.unknown_databases += unknown;
        Ok(Ok(()))
    }
}

/// A row says whose it is, even if the login was long ago.
fn with_account<'e>(event: &Event<'e>, account: &Account<'e>) -> Event<'e> {
    let mut event = event.clone();
    if event.user.is_empty() {
        (event.user, event.host) = (account.user, account.host);
    }
    event
}

/// Who sent a statement, and to which server.
struct Who<'r> {
    user: &'r [u8],
    host: &'r [u8],
    database: &'r [u8],
    thread: Option<u64>,
    server: &'r [u8],
}

/// When, in ns since 1970 and whether the zone is known.
struct Timed {
    stamp: Option<(u64, bool)>,
    is_start: bool,
    response_ns: Option<u64>,
}

impl Timed {
    /// 0 where it is not known.
    fn start_ns(&self) -> u64 {
        let Some((ns, _)) = self.stamp else { return 0 };
        if self.is_start { ns } else { ns.saturating_sub(self.response_ns.unwrap_or(0)) }
    }
}

/// Names of the fields of each measure. A length of time is in seconds, or a TIME.
type Names = [(Measure, &'static [&'static str])];

const SLOW_MEASURES: [(Measure, &[&str]); 4] = [
    (Measure::LockNs, &["lock_time"]),
    (Measure::RowsSent, &["rows_sent"]),
    (Measure::RowsExamined, &["rows_examined"]),
    (Measure::RowsAffected, &["rows_affected"]),
];

const DOCUMENT_MEASURES: [(Measure, &[&str]); 12] = [
    (Measure::LockNs, &["mysql.slowlog.lock_time.sec"]),
    (Measure::RowsSent, &["mysql.slowlog.rows_sent"]),
    (Measure::RowsExamined, &["mysql.slowlog.rows_examined"]),
    (Measure::RowsAffected, &["mysql.slowlog.rows_affected"]),
    (Measure::ResponseBytes, &["mysql.slowlog.bytes_sent"]),
    (Measure::TmpTables, &["mysql.slowlog.tmp_tables"]),
    (Measure::TmpDiskTables, &["mysql.slowlog.tmp_disk_tables"]),
    (Measure::SortMergePasses, &["mysql.slowlog.merge_passes", "mysql.slowlog.sort_merge_passes"]),
    (Measure::IsFullScan, &["mysql.slowlog.full_scan"]),
    (Measure::IsFullJoin, &["mysql.slowlog.full_join"]),
    (Measure::PagesRead, &["mysql.slowlog.innodb.io_r_ops"]),
    (Measure::RowLockNs, &["mysql.slowlog.innodb.rec_lock_wait.sec"]),
];

fn measures(record: &Record, names: &Names) -> Measures {
    let known = names.iter().filter_map(|(measure, names)| {
        let text = record.text(names)?;
        let value = match measure.row().unit {
            crate::measures::Unit::Ns => duration_ns(text),
            crate::measures::Unit::Flag => flag(text),
            _ => count(text),
        };
        Some((*measure, value?))
    });
    known.collect()
}

fn flag(text: &[u8]) -> Option<u64> {
    match text.to_ascii_lowercase().as_slice() {
        b"true" | b"yes" | b"1" => Some(1),
        b"false" | b"no" | b"0" => Some(0),
        _ => None,
    }
}

/// Without a thread, all of one user and host count as one session.
fn by_name(user: &[u8], host: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&[user, b"@", host].concat()) | 1 << 63
}

/// Whether a statement was shortened for display: no whole one ends in three dots.
fn is_shortened(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    text.ends_with(b"...") || text.ends_with("\u{2026}".as_bytes())
}
