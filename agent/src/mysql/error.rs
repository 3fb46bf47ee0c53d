//! What can go wrong between us and a server.

use std::io;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused or could not do what we asked; the connection can be used on, once it was open.
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
    #[error("cannot log in: {0}")]
    Login(String),
    #[error("TLS: {0}")]
    Tls(String),
}

impl Error {
    /// The server's error number, such as 1045 (access denied).
    pub fn code(&self) -> Option<u16> {
        match self {
            Error::Server { code, .. } => Some(*code),
            _ => None,
        }
    }
}
