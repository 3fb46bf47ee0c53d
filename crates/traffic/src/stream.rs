//! What lies between packets (or a proxy's sockets) and the protocol: both directions of a connection, in order.

use std::net::SocketAddr;

/// Who sent the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    Client,
    Server,
}

/// One connection as it was seen to begin.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// One number a connection, unique in its source, never used again.
    pub session: u64,
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// Its handshake of TCP was not seen: it began before the capture did.
    pub is_midstream: bool,
}

/// Takes what connections carry. For each session: `opened`, then any of the middle two, then `closed` or
/// `cut`, once.
pub trait Streams {
    /// # Errors
    /// What stops the reading for good, as with `Sink`.
    fn opened(&mut self, time_ns: u64, opened: &Opened) -> anyhow::Result<()>;

    /// The next bytes of one direction, whole and in order; `time_ns` is when their packet was seen.
    ///
    /// # Errors
    /// As above.
    fn bytes(&mut self, time_ns: u64, session: u64, from: Side, bytes: &[u8]) -> anyhow::Result<()>;

    /// Bytes of one direction are missing for good (lost, or cut by the snap length); how many, where that is known.
    ///
    /// # Errors
    /// As above.
    fn gap(&mut self, time_ns: u64, session: u64, from: Side, missing: Option<u64>) -> anyhow::Result<()>;

    /// The connection ended, or was reset.
    ///
    /// # Errors
    /// As above.
    fn closed(&mut self, time_ns: u64, session: u64) -> anyhow::Result<()>;

    /// Nothing more is seen of the connection, which says nothing about its end: the capture ended, or the connection
    /// was idle too long to keep.
    ///
    /// # Errors
    /// As above.
    fn cut(&mut self, session: u64) -> anyhow::Result<()>;
}
