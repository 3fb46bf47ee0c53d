//! Fills tables over several connections at once.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, anyhow, bail};

use super::progress::Progress;
pub use super::rows::{Method, Rows};
use super::workers::{Ended, WorkerPool};
use base::error::AgentError;
use base::stop::StopSignal;
use mysql::{BULK_EXECUTE, Connection, Done, Error, Options, QUERY};

/// The file name given to the server as the source of rows. There is no such file.
const FILE_NAME: &str = "rows of headrace-agent";
/// How much is sent at a time while the server reads the rows of one LOAD DATA.
const PIECE_BYTES: usize = 64 * 1024;
/// How often a batch is retried after a lost race.
const RETRIES: u32 = 10;
const LOST_RACES: [u16; 3] = [1213, 1205, 1020];
/// The disk is full while a temporary file is written; the table is full.
const FULL: [u16; 2] = [1021, 1114];
/// The request contains the types of a BULK_EXECUTE's values.
const WITH_TYPES: u16 = 128;

/// A range of one table, which one connection fills in order.
pub struct Part<'a> {
    /// The table's name in SQL.
    pub table: String,
    /// Its columns, separated by commas.
    pub columns: &'a str,
    /// Numbers of items in the order of the primary key. An item is a row, or a few (the lines of an order).
    pub items: Range<u64>,
    /// Writes the rows of an item, always the same ones: a lost race repeats a batch.
    pub write: &'a (dyn Fn(u64, &mut Rows) + Sync),
}

/// How to load. The default suits most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    /// Connections; 0: as many as suit the server and this machine.
    pub threads: usize,
    /// None: the cheapest that the server allows.
    pub method: Option<Method>,
    /// Progress on standard error even if that is not a terminal.
    pub shows_progress: bool,
}

/// What was loaded.
#[derive(Debug)]
pub struct Filled {
    pub rows: u64,
    /// Bytes sent to the server.
    pub bytes: u64,
    pub method: Method,
    pub connections: usize,
}

/// Fills all parts, in this order, several concurrently.
///
/// An error names the table and the items of the batch that failed. A stop signal is also an error, which reports
/// how much was loaded.
pub fn fill(
    options: &Options,
    parts: &[Part<'_>],
    effort: &Effort,
    stop: &StopSignal,
) -> anyhow::Result<Filled> {
    let limits = Limits::ask(options, effort)?;
    let connections = effort.connections(parts, limits.is_mariadb);
    let pool = WorkerPool::new(options, connections, stop);
    let loaded = Loaded::default();
    let total = parts.iter().map(|part| part.items.end - part.items.start).sum();
    let mut progress = Progress::new(effort.shows_progress, total);
    let ended = pool.work(
        parts.len(),
        &|connection, number| fill_part(connection, &parts[number], &limits, &pool, &loaded),
        || progress.tick(loaded.items.load(Relaxed), loaded.rows.load(Relaxed)),
    );
    progress.end();
    let (items, rows) = (loaded.items.load(Relaxed), loaded.rows.load(Relaxed));
    let so_far = format!("{rows} rows are loaded ({items} of {total} items); `drive clean` drops the tables");
    match ended.with_context(|| so_far.clone())? {
        Ended::Stopped => Err(AgentError::Stopped(format!("asked to stop: {so_far}")).into()),
        Ended::Whole => {
            Ok(Filled { rows, bytes: loaded.bytes.load(Relaxed), method: limits.method, connections })
        }
    }
}

/// Runs statements without rows, started in this order, several concurrently.
pub fn execute_all(
    options: &Options,
    statements: &[String],
    effort: &Effort,
    stop: &StopSignal,
) -> anyhow::Result<()> {
    let threads = if effort.threads > 0 { effort.threads } else { processors() };
    let pool = WorkerPool::new(options, threads, stop);
    let ended = pool.work(
        statements.len(),
        &|connection, number| {
            let sql = &statements[number];
            connection.execute(sql).map(drop).map_err(explain).with_context(|| format!("cannot {sql}"))
        },
        || {},
    );
    match ended? {
        Ended::Whole => Ok(()),
        Ended::Stopped => {
            Err(AgentError::Stopped("asked to stop; `drive clean` drops the tables".to_owned()).into())
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Effort {
    /// Two per processor: while one batch waits for its commit, another is prepared. MariaDB locks a whole index while
    /// one of its pages splits, so a third connection in one table only adds waits.
    fn connections(&self, parts: &[Part<'_>], is_mariadb: bool) -> usize {
        if self.threads > 0 {
            return self.threads.min(parts.len());
        }
        let tables = parts.iter().map(|part| &part.table).collect::<HashSet<_>>().len();
        let useful = if is_mariadb { 2 * tables } else { usize::MAX };
        (2 * processors()).min(useful).min(parts.len())
    }
}

#[derive(Default)]
struct Loaded {
    items: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
}

/// What suits the server.
struct Limits {
    is_mariadb: bool,
    method: Method,
    /// The size of a statement, which is a transaction.
    batch_bytes: usize,
}

impl Limits {
    fn ask(options: &Options, effort: &Effort) -> anyhow::Result<Self> {
        let mut connection = Connection::open_for_bulk(options)?;
        let mut answer = [0; 2];
        connection.query("SELECT @@local_infile, @@max_allowed_packet", |_, row| {
            answer = [0, 1].map(|column| {
                row.get(column).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0)
            });
        })?;
        let [local_infile, max_allowed_packet] = answer;
        let method = match effort.method {
            Some(method) => method,
            None if connection.can_bulk() => Method::BulkExecute,
            None if local_infile == 1 => Method::LoadData,
            None => Method::Insert,
        };
        // Larger ones gain nothing, and are slower once the undo log of a batch grows.
        let batch_bytes = match method {
            Method::BulkExecute => (2 << 20).min(max_allowed_packet / 2),
            Method::LoadData => 1 << 20,
            Method::Insert => (512 << 10).min(max_allowed_packet / 2),
        };
        Ok(Self { is_mariadb: connection.is_mariadb(), method, batch_bytes })
    }
}

fn fill_part(
    connection: &mut Connection,
    part: &Part<'_>,
    limits: &Limits,
    pool: &WorkerPool<'_>,
    loaded: &Loaded,
) -> anyhow::Result<()> {
    // Binary text is not converted, which costs MariaDB a third more. unique_checks stays: with both checks off
    // MariaDB locks an empty table whole and sorts its first rows on disk, which is slower.
    let session = "SET sql_mode = 'STRICT_ALL_TABLES', foreign_key_checks = 0, character_set_client = binary, \
        character_set_connection = binary";
    connection.execute(session).context("cannot prepare the session")?;
    let mut batch = Batch::new(connection, part, limits)?;
    while batch.items.end < part.items.end && !pool.is_over() {
        batch.items.start = batch.items.end;
        let mut races = 0;
        loop {
            match batch.send(connection) {
                Err(Error::Server { code, .. }) if LOST_RACES.contains(&code) && races < RETRIES => {
                    races += 1
                }
                Err(error) => return Err(explain(error).context(batch.place())),
                Ok(done) => break batch.check(&done, connection).with_context(|| batch.place())?,
            }
        }
        loaded.items.fetch_add(batch.items.end - batch.items.start, Relaxed);
        loaded.rows.fetch_add(batch.rows.count(), Relaxed);
        loaded.bytes.fetch_add(batch.bytes, Relaxed);
    }
    if limits.method == Method::BulkExecute {
        connection.close_statement(batch.statement)?;
    }
    Ok(())
}

/// One statement, which is one transaction.
struct Batch<'a> {
    part: &'a Part<'a>,
    method: Method,
    limit_bytes: usize,
    columns: usize,
    /// The number of the prepared statement, or 0.
    statement: u32,
    /// The start of the statement.
    head: Vec<u8>,
    rows: Rows,
    items: Range<u64>,
    bytes: u64,
}

impl<'a> Batch<'a> {
    fn new(connection: &mut Connection, part: &'a Part<'a>, limits: &Limits) -> anyhow::Result<Self> {
        let Part { table, columns, items, .. } = part;
        let count = columns.split(',').count();
        let mut batch = Self {
            part,
            method: limits.method,
            limit_bytes: limits.batch_bytes,
            columns: count,
            statement: 0,
            head: Vec::new(),
            rows: Rows::new(limits.method),
            items: items.start..items.start,
            bytes: 0,
        };
        match limits.method {
            Method::BulkExecute => {
                let marks = vec!["?"; count].join(",");
                let sql = format!("INSERT INTO {table} ({columns}) VALUES ({marks})");
                batch.statement =
                    connection.prepare(&sql).map_err(explain).with_context(|| format!("cannot {sql}"))?;
                batch.head.push(BULK_EXECUTE);
                batch.head.extend_from_slice(&batch.statement.to_le_bytes());
                batch.head.extend_from_slice(&WITH_TYPES.to_le_bytes());
            }
            Method::Insert => {
                batch.head.push(QUERY);
                batch.head.extend_from_slice(format!("INSERT INTO {table} ({columns}) VALUES ").as_bytes());
            }
            Method::LoadData => {}
        }
        Ok(batch)
    }

    /// Sends items, starting with `items.start`, until the batch is full; `items.end` becomes the one after its last.
    fn send(&mut self, connection: &mut Connection) -> Result<Done, Error> {
        self.items.end = self.items.start;
        self.rows.start(&self.head, self.columns);
        if self.method != Method::LoadData {
            self.write_until(self.limit_bytes);
            self.bytes = self.rows.bytes().len() as u64;
            return connection.command(self.rows.bytes());
        }
        let Part { table, columns, items, .. } = self.part;
        let sql = format!(
            "LOAD DATA LOCAL INFILE '{FILE_NAME}' INTO TABLE {table} CHARACTER SET binary ({columns})"
        );
        let mut upload = connection.upload(&sql, FILE_NAME)?;
        self.bytes = 0;
        while self.items.end < items.end && self.bytes < self.limit_bytes as u64 {
            self.write_until(PIECE_BYTES);
            upload.send(self.rows.bytes())?;
            self.bytes += self.rows.bytes().len() as u64;
            self.rows.clear_bytes();
        }
        upload.finish()
    }

    fn write_until(&mut self, bytes: usize) {
        while self.items.end < self.part.items.end && self.rows.bytes().len() < bytes {
            (self.part.write)(self.items.end, &mut self.rows);
            self.items.end += 1;
        }
    }

    /// With LOAD DATA LOCAL a bad row is only a warning, because the server cannot stop its client half-way.
    fn check(&self, done: &Done, connection: &mut Connection) -> anyhow::Result<()> {
        let wanted = self.rows.count();
        if done.affected_rows == wanted && done.warnings == 0 {
            return Ok(());
        }
        let mut first = String::new();
        connection.query("SHOW WARNINGS LIMIT 1", |_, row| {
            first = String::from_utf8_lossy(row.get(2).unwrap_or_default()).into_owned();
        })?;
        let Done { affected_rows, warnings } = done;
        bail!("the server took {affected_rows} of {wanted} rows, with {warnings} warnings: {first}")
    }

    fn place(&self) -> String {
        format!("cannot load {}, items {} to {}", self.part.table, self.items.start, self.items.end - 1)
    }
}

/// The server's full disk gets the same exit code as a local one.
fn explain(error: Error) -> anyhow::Error {
    let is_full = match &error {
        Error::Server { code, message, .. } => {
            // ENOSPC comes with many codes: 3, 1026, 1030 and others name it in their text only.
            let names = ["No space left", "error 28", "Errcode: 28", "errno: 28"];
            FULL.contains(code) || names.iter().any(|name| message.contains(name))
        }
        _ => false,
    };
    if is_full { anyhow!(io::Error::new(ErrorKind::StorageFull, error)) } else { anyhow!(error) }
}

#[cfg(test)]
mod tests {
    use super::{Effort, Part, explain};
    use mysql::Error;
    use std::io::ErrorKind;

    #[test]
    fn a_full_disk_has_many_names() {
        let of = |code, message: &str| {
            let error = Error::Server { code, state: "HY000".to_owned(), message: message.to_owned() };
            explain(error).downcast_ref::<std::io::Error>().map(std::io::Error::kind)
        };
        assert_eq!(of(1114, "The table 'sbtest1' is full"), Some(ErrorKind::StorageFull));
        let text = "Error writing file '/tmp/x' (Errcode: 28 \"No space left on device\")";
        assert_eq!(of(3, text), Some(ErrorKind::StorageFull));
        assert_eq!(of(1030, "Got error 28 from storage engine"), Some(ErrorKind::StorageFull));
        assert_eq!(of(1062, "Duplicate entry '28' for key 'PRIMARY'"), None);
        assert!(explain(Error::Closed).downcast_ref::<Error>().is_some());
    }

    #[test]
    fn connections_follow_the_tables() {
        let part =
            |table: &str| Part { table: table.to_owned(), columns: "a", items: 0..1, write: &|_, _| {} };
        let one: Vec<_> = (0..100).map(|_| part("a")).collect();
        let effort = Effort::default();
        assert_eq!(effort.connections(&one, true), 2);
        assert_eq!(effort.connections(&one[..1], true), 1);
        assert!(effort.connections(&one, false) >= 2);
        assert_eq!(Effort { threads: 7, ..effort }.connections(&one, true), 7);
    }
}
