//! A small MySQL client: it connects, runs a statement and hands out its rows as text.
//!
//! `frames` and `protocol` know the wire and do no I/O; `auth` answers the server's challenges; `connection`
//! is the blocking client on a socket. A load driver can put the first three on sockets of its own.

mod auth;
mod connection;
mod error;
mod frames;
mod options;
mod protocol;
mod tls;

pub use connection::Connection;
pub use error::Error;
pub use options::{Endpoint, Options, Password, TlsMode, read_defaults};
pub use protocol::Row;
