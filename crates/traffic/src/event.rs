//! One Event whatever the source: what a client asked for, when, and what came back.
//!
//! An event borrows everything from its source's buffers: millions a second pass, and most are only counted.

use super::measures::Measures;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// A session begins: the whole login, from the first byte of the client to the server's verdict.
    Connect,
    /// A session ended: COM_QUIT, or the connection was closed.
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
}

impl Event<'_> {
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
        }
    }
}

/// Takes events, in the order of their ends within a session.
pub trait Sink {
    /// # Errors
    /// What stops the reading for good: a disk that is full, a reader that left.
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()>;
}

impl<F: FnMut(&Event<'_>) -> anyhow::Result<()>> Sink for F {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self(event)
    }
}
