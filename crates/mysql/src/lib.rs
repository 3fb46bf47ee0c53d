//! A small MySQL client: it connects, runs a statement and hands out its rows as text.
//!
//! `frames` and `protocol` know the wire and do no I/O; `auth` answers the server's challenges; `connection`
//! is the blocking client on a socket. A load driver can put the first three on sockets of its own.

pub mod answers;
mod arguments;
pub mod auth;
pub mod checksum;
mod connection;
mod error;
pub mod fields;
pub mod frames;
pub mod handshake;
pub mod options;
pub mod protocol;
pub mod reader;
pub mod reply;
pub mod request;
pub mod tls;
pub mod types;
mod wire;

pub use arguments::{CONNECT_TIMEOUT, ServerArguments};
pub use connection::{BULK_EXECUTE, Closer, Connection, Done, QUERY};
pub use error::Error;
pub use options::{Endpoint, Options};
pub use protocol::Row;
