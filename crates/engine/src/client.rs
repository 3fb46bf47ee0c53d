//! A client of a server, without its socket: the engine gives it bytes, and it gives the engine bytes.

use std::borrow::Cow;

use mysql::Error;
use rustls::ClientConnection;

/// The random generator of one connection: small and fast, not for secrets.
pub type Random = rand::rngs::SmallRng;

/// The driver's own error codes: libmysqlclient's where it has one.
pub const CANNOT_CONNECT: u16 = 2002;
pub const CONNECTION_LOST: u16 = 2013;
pub const MALFORMED: u16 = 2027;
pub const NO_ANSWER: u16 = 3024;
/// The script did not understand a reply.
pub const UNEXPECTED_REPLY: u16 = 2000;

/// Deadlock, lock wait timeout, changed row: sysbench also retries these.
const LOST_RACES: [u16; 3] = [1213, 1205, 1020];

/// The client of one connection, for any protocol. It survives reconnects.
pub trait Client {
    /// A new connection is open: start again. The first message goes to `out`.
    fn connected(&mut self, out: &mut Vec<u8>) -> Progress;

    /// The encryption that the client asked for is in place.
    fn encrypted(&mut self, _out: &mut Vec<u8>) {}

    /// Takes all received bytes; the next message goes to `out`.
    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>, random: &mut Random) -> Progress;

    /// Why the current operation had already failed, if the client was still cleaning up after it when the
    /// connection was lost.
    fn first_failure(&mut self) -> Option<Failure> {
        None
    }

    /// The connection is lost. True if that was the work of other clients: then nothing failed with it.
    fn lost(&mut self) -> bool {
        false
    }

    /// Chooses the next operation.
    fn choose(&mut self, random: &mut Random) -> Choice;

    /// Starts or restarts the chosen operation: its first request goes to `out`.
    fn begin(&mut self, out: &mut Vec<u8>, random: &mut Random) -> Progress;

    /// What comes next, if the work is assigned (`EngineConfig::is_assigned`) instead of chosen. `since_ns` is when
    /// the client became free.
    fn turn(&mut self, _since_ns: u64) -> Turn {
        Turn::Nothing
    }

    /// There has been no connection for too long: gives up the next operation, if it was due by `now`.
    fn give_up(&mut self, _now: u64) -> Option<Assignment> {
        None
    }

    /// Says goodbye to the server, which will close the connection.
    fn farewell(&mut self, _out: &mut Vec<u8>) {}
}

/// An operation assigned to a client, and when it is due, in ns of the driver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub operation: usize,
    pub intended_ns: u64,
}

/// What a client with assigned work does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Begin(Assignment),
    /// It has to let others go first: it is asked again soon.
    Held,
    /// Ask again at this instant.
    Rest(u64),
    /// It waits for work: new work wakes it.
    Nothing,
    /// There is no more work.
    Over,
}

/// The next operation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its index among the names of the operations.
    pub operation: usize,
    /// How long the client rests before it; None leaves that to the trial's pacing.
    pub pause_ns: Option<u64>,
}

/// What a client needs or has reached.
pub enum Progress {
    /// It waits for the server.
    Waiting,
    /// From now on the connection is encrypted.
    Encrypt(Box<ClientConnection>),
    /// Logged in; it can start an operation.
    Ready,
    /// The operation succeeded.
    Ended { rows: u64, bytes: u64 },
    /// The operation failed; the connection can run the next one.
    Failed(Failure),
    /// The connection is unusable; the current operation failed with it.
    Broken(Failure),
}

/// Why an operation or a connection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: u16,
    pub message: Cow<'static, str>,
    /// Another client won a race (deadlock, lock wait, changed row): the same operation may be retried.
    pub is_lost_race: bool,
}

impl Failure {
    pub fn new(code: u16, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), is_lost_race: false }
    }
}

/// How the driver reports an error of the protocol.
impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        match error {
            Error::Server { code, message, .. } => Failure {
                code: *code,
                message: message.clone().into(),
                is_lost_race: LOST_RACES.contains(code),
            },
            Error::Closed | Error::Broken(_) => Failure::new(CONNECTION_LOST, error.to_string()),
            Error::Connect { .. } | Error::Login(_) | Error::Tls(_) => {
                Failure::new(CANNOT_CONNECT, error.to_string())
            }
            Error::Timeout(_) => Failure::new(NO_ANSWER, error.to_string()),
            Error::Malformed(_) | Error::TooLong(_) => Failure::new(MALFORMED, error.to_string()),
        }
    }
}
