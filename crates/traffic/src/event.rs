//! One Event whatever the source: what a client asked for, when, and what came back.
//!
//! An event borrows everything from its source's buffers: millions a second pass, and most are only counted.

use super::binlog::transaction::{Log, Transaction};
use super::measures::Measures;
use base::error::AgentError;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// A session begins: the whole login, from the first byte of the client to the server's verdict.
    Connect,
    /// A session ended: COM_QUIT, or the connection was closed; that nobody asked for it, `Outcome::Unanswered` says.
    Quit,
    /// A statement as text.
    Query,
    /// A statement is prepared; `text` has its placeholders.
    Prepare,
    /// A prepared statement is executed; `text` is that of the statement where it is known.
    Execute,
    /// MariaDB's execution of a prepared statement for many rows at once (COM_STMT_BULK_EXECUTE).
    BulkExecute,
    /// Rows of an open cursor.
    Fetch,
    /// A prepared statement is closed. Nobody answers.
    Close,
    /// A prepared statement's parameters and cursor are reset.
    ResetStatement,
    /// The default database changes to `database`.
    InitDb,
    /// Another user logs in on the same connection.
    ChangeUser,
    /// The session's state is forgotten, its login is not.
    ResetConnection,
    Ping,
    /// Rows of a table were changed, as a binary log in row format has it; `text` is the class: a kind of change and a
    /// table.
    Rows,
    /// Any other command of the protocol, by its byte.
    Other(u8),
}

impl Command {
    /// Whether `Event::text` may be the statement's.
    #[must_use]
    pub fn has_text(self) -> bool {
        use Command::{BulkExecute, Close, Execute, Fetch, Prepare, Query, ResetStatement};
        matches!(self, Query | Prepare | Execute | BulkExecute | Fetch | Close | ResetStatement)
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The source does not say (a general log; a slow log without the error's number).
    Unknown,
    Ok,
    /// The server's error.
    Error(u16),
    /// The connection ended, or the capture did, before the answer was whole.
    Unanswered,
}

/// One request and its answer. What a source does not know is `None`, or empty for names: never a zero.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// First byte of the request, in ns since 1970. A slow log stamps the end: its readers subtract.
    pub start_ns: u64,
    /// From the first byte of the request to the last byte of the answer.
    pub response_ns: Option<u64>,
    /// From the first byte of the request to the first byte of the answer.
    pub first_byte_ns: Option<u64>,
    /// One number a connection, unique in its source.
    pub session: u64,
    /// The connection's number on the server, which KILL takes.
    pub connection: Option<u64>,
    pub user: &'a [u8],
    /// The client's host or address.
    pub host: &'a [u8],
    /// The default database.
    pub database: &'a [u8],
    pub command: Command,
    pub outcome: Outcome,
    /// The statement. It still holds passwords: code that keeps it calls `sql::redact`.
    pub text: &'a [u8],
    /// Only the beginning of the statement is here: good for a class, never to be sent again.
    pub is_cut: bool,
    /// The server's number of a prepared statement, unique in the session while it lives; of COM_PROCESS_KILL the
    /// connection that it names.
    pub statement: Option<u32>,
    /// For `Execute`: what followed the iteration count, with the types always present and long data in its place
    /// (null bitmap, 0x01, two bytes of type a parameter, values). For `BulkExecute`: flags, types (always), the rows as
    /// they were sent. Empty without parameters.
    pub parameters: &'a [u8],
    pub parameter_count: u16,
    /// Rows, bytes, waits: whatever is a number and adds up.
    pub measures: Measures,
    /// Checksum of the rows as the client saw them (see `wire`), where the source saw them whole.
    pub checksum: Option<u64>,
    /// It happened before what was cut out of a recording, and is there only so that a replay can bring the
    /// session into its state. Never counted.
    pub is_state: bool,
    /// The server opened its log just before, because it started or was asked to (FLUSH LOGS). Only who reads a log from
    /// its beginning to its end is told so.
    pub is_log_reopened: bool,
}

impl Event<'_> {
    /// Whether a client asked for it. The others only set up and end the sessions of a replay: state from before the
    /// recording, and connections that were closed without COM_QUIT.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let is_silent = self.command == Command::Quit && self.outcome == Outcome::Unanswered;
        !self.is_state && !is_silent
    }

    /// An event of which nothing is known but when and what.
    #[must_use]
    pub fn new(start_ns: u64, session: u64, command: Command) -> Self {
        Event {
            start_ns,
            response_ns: None,
            first_byte_ns: None,
            session,
            connection: None,
            user: b"",
            host: b"",
            database: b"",
            command,
            outcome: Outcome::Unknown,
            text: b"",
            is_cut: false,
            statement: None,
            parameters: b"",
            parameter_count: 0,
            measures: Measures::default(),
            checksum: None,
            is_state: false,
            is_log_reopened: false,
        }
    }
}

/// What a server summed up of many calls itself: of no single one anything is known. What is not known is `None`.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// The statement, its literals replaced by the server; `None` for all statements that found no room in its table.
    pub text: Option<&'a [u8]>,
    /// Tells apart statements of which `text` is only the beginning; empty if it is whole.
    pub cut_id: &'a [u8],
    /// One of the calls with its values, the moment that it was seen (0 if unknown), how long it took.
    pub sample: Option<(&'a [u8], u64, Option<u64>)>,
    pub database: &'a [u8],
    pub count: u64,
    pub failed: Option<u64>,
    pub sum_ns: u64,
    pub min_ns: Option<u64>,
    pub max_ns: Option<u64>,
    /// The 95th, 99th and 99.9th percentile, as the server has them.
    pub quantiles_ns: [Option<u64>; 3],
    /// Sums over the calls.
    pub measures: Measures,
    /// When the statement was first and last seen; 0 if unknown.
    pub first_ns: u64,
    pub last_ns: u64,
}

/// Takes events, in the order of their ends within a session.
pub trait Sink {
    /// # Errors
    /// What stops the reading for good: a disk that is full, a reader that left.
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()>;

    /// Takes what a server summed up. Only a digest can: nothing else is made of sums.
    ///
    /// # Errors
    /// What stops the reading for good, or why this cannot be made of a summary.
    fn summary(&mut self, _: &Summary<'_>) -> anyhow::Result<()> {
        let reason = "this is a server's summary of its statements, which has no single call: it can be digested as a whole \
                      (without --every), but neither printed as events nor recorded or replayed; take a slow log \
                      or a capture for that";
        Err(AgentError::Named(reason.to_owned()).into())
    }

    /// A transaction of a binary log: its events came before it.
    ///
    /// # Errors
    /// As above.
    fn transaction(&mut self, _transaction: &Transaction<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    /// A binary log has ended, or a piece of one.
    ///
    /// # Errors
    /// As above.
    fn log(&mut self, _log: &Log) -> anyhow::Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&Event<'_>) -> anyhow::Result<()>> Sink for F {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self(event)
    }
}
