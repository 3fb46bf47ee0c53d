//! A client of a server, without its socket: the engine gives it bytes, and it gives the engine bytes.

use std::borrow::Cow;

use mysql::Error;
use rustls::ClientConnection;

/// The generator of one connection. Not for secrets: small and quick.
pub type Random = rand::rngs::SmallRng;

/// The driver's own error codes, those of libmysqlclient where it has one.
pub const CANNOT_CONNECT: u16 = 2002;
pub const CONNECTION_LOST: u16 = 2013;
pub const MALFORMED: u16 = 2027;
pub const NO_ANSWER: u16 = 3024;
/// The script could make no sense of a reply.
pub const UNEXPECTED_REPLY: u16 = 2000;

/// Deadlock, lock wait timeout, changed row: sysbench retries these, too.
const LOST_RACES: [u16; 3] = [1213, 1205, 1020];

/// One connection's client, of any protocol. It lives through reconnects.
pub trait Client {
    /// A new connection stands: begin anew. What is to be said first goes to `out`.
    fn connected(&mut self, out: &mut Vec<u8>) -> Progress;

    /// The encryption that the client asked for has begun.
    fn encrypted(&mut self, _out: &mut Vec<u8>) {}

    /// Takes all of the bytes that came; what is to be said next goes to `out`.
    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>, random: &mut Random) -> Progress;

    /// Why the operation at work has failed already, where the client was still cleaning up behind it when the
    /// connection was lost.
    fn first_failure(&mut self) -> Option<Failure> {
        None
    }

    /// Chooses the next operation.
    fn choose(&mut self, random: &mut Random) -> Choice;

    /// Begins the chosen operation, or begins it anew: its first request goes to `out`.
    fn begin(&mut self, out: &mut Vec<u8>, random: &mut Random) -> Progress;

    /// What comes next, where the work is given (`EngineConfig::is_assigned`) instead of chosen. `since_ns` is when the client
    /// became free.
    fn turn(&mut self, _since_ns: u64) -> Turn {
        Turn::Nothing
    }

    /// There has been no connection for too long: gives up the next operation, if it was to begin by `now`.
    fn give_up(&mut self, _now: u64) -> Option<Assignment> {
        None
    }

    /// Takes leave of the server, which will close the connection.
    fn farewell(&mut self, _out: &mut Vec<u8>) {}
}

/// An operation that was given to a client, and when it is to begin, in ns of the driver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub operation: usize,
    pub intended_ns: u64,
}

/// What a client that is given its work does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Begin(Assignment),
    /// It has to let others go first: it is asked again and again.
    Held,
    /// It is asked again at this instant.
    Rest(u64),
    /// It waits for work: whoever brings some wakes it.
    Nothing,
    /// There will be no more.
    Over,
}

/// The next operation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its place among the names of the operations.
    pub operation: usize,
    /// How long the client rests before it; None leaves that to the trial's pacing.
    pub pause_ns: Option<u64>,
}

/// How far a client has come.
pub enum Progress {
    /// More must come from the server.
    Waiting,
    /// What comes and goes from now on is encrypted.
    Encrypt(Box<ClientConnection>),
    /// Logged in; it can begin an operation.
    Ready,
    /// The operation has ended well.
    Ended { rows: u64, bytes: u64 },
    /// The operation has failed; the connection is good for the next one.
    Failed(Failure),
    /// The connection is of no more use, and with it the operation at work.
    Broken(Failure),
}

/// Why an operation or a connection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: u16,
    pub message: Cow<'static, str>,
    /// Another client won a race (deadlock, lock wait, changed row): the same operation may be begun anew.
    pub is_lost_race: bool,
}

impl Failure {
    pub fn new(code: u16, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), is_lost_race: false }
    }
}

/// What an error of the protocol is to the driver.
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
