//! What can go wrong between this client and a server.

use std::io;
use std::time::Duration;

use base::error::printable;

/// SELECT (or the like) denied on a table; a global privilege is missing; a command is denied.
const DENIED: [u16; 4] = [1044, 1142, 1143, 1227];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused or failed the request; a connection that was open stays usable.
    #[error("{message} (server error {code}, SQLSTATE {state})")]
    Server { code: u16, state: String, message: String },
    #[error("cannot connect to {place}: {cause}")]
    Connect { place: String, cause: io::Error },
    #[error("the server did not answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    #[error("the server closed the connection")]
    Closed,
    #[error("the server sent a malformed packet: {0}")]
    Malformed(&'static str),
    #[error("the server sent an answer of more than {} MiB", .0 >> 20)]
    TooLong(usize),
    #[error("cannot log in: {0}")]
    Login(String),
    #[error("TLS: {0}")]
    Tls(String),
}

impl Error {
    /// Decodes an error packet (its first byte is 0xFF). Before the login it has no SQLSTATE.
    pub fn from_packet(payload: &[u8]) -> Self {
        let [_, low, high, rest @ ..] = payload else { return Error::Malformed("an error") };
        let (state, message) = match rest {
            [b'#', rest @ ..] if rest.len() >= 5 => rest.split_at(5),
            _ => (&b"HY000"[..], rest),
        };
        Error::Server {
            code: u16::from_le_bytes([*low, *high]),
            state: printable(&String::from_utf8_lossy(state)),
            message: printable(&String::from_utf8_lossy(message)),
        }
    }

    /// The server's error number, such as 1045 (access denied).
    pub fn code(&self) -> Option<u16> {
        match self {
            Error::Server { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the server refused because the account lacks a privilege.
    pub fn is_denied(&self) -> bool {
        self.code().is_some_and(|code| DENIED.contains(&code))
    }
}
