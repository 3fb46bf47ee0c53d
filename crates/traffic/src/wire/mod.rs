//! The wire: MySQL's protocol, read by a listener. Both directions of any number of connections go in,
//! one event a request comes out.
//!
//! Requests are kept until their answers are whole (`max_text_bytes` a session at most); answers are counted by the
//! headers of their packets and never held. Where bytes are missing, or no packets can be seen in them, a session is
//! lost until a client's packet looks like the start of a request again; what was open ends as `Unanswered`.
//!
//! One request is one event, whatever number of results it has. COM_STMT_SEND_LONG_DATA makes none: its data is in
//! the execution's parameters and its bytes in `request_bytes`. Compressed connections count the
//! compressed bytes.

mod answer;
mod beginning;
mod client;
mod connection;
pub(crate) mod foreign;
mod inflate;
mod known;
mod login;
mod origin;
mod proxied;
mod request;
mod resync;
mod server;
mod session;
mod shared;
mod sides;
mod statements;
#[cfg(test)]
mod tests;

pub(crate) use self::proxied::{Header as BalancerHeader, Step as HeaderStep};
use crate::coverage::Coverage;
use crate::event::Sink;
use crate::numbers::Numbers;
use crate::stream::{Opened, Side, Streams};
pub use known::{Known, Standing};
use request::Request;
use session::Session;
use shared::Shared;
pub use shared::WireOptions;

/// Reads both directions of any number of connections.
pub struct Decoder<S> {
    sink: S,
    options: WireOptions,
    coverage: Coverage,
    sessions: Numbers<u64, Box<Session>>,
    spare: Vec<Request>,
    inflated: Vec<u8>,
    /// Bytes taken so far, the offset of a place of damage.
    offset: u64,
}

impl<S: Sink> Decoder<S> {
    pub fn new(sink: S) -> Self {
        Self::with_options(sink, WireOptions::default())
    }

    pub fn with_options(sink: S, options: WireOptions) -> Self {
        Decoder {
            sink,
            options,
            coverage: Coverage::default(),
            sessions: Numbers::default(),
            spare: Vec::new(),
            inflated: Vec::new(),
            offset: 0,
        }
    }

    /// Ends what is still open. Counts of events, damage, TLS, replication and mid-stream sessions, unknown statements,
    /// unanswered requests and skipped bytes; the caller counts sessions, bytes and packets.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(self) -> anyhow::Result<Coverage> {
        self.finish_with_sink().map(|(coverage, _)| coverage)
    }

    /// As `finish`; the sink, too.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish_with_sink(mut self) -> anyhow::Result<(Coverage, S)> {
        let mut open: Vec<u64> = self.sessions.keys().copied().collect();
        open.sort_unstable();
        for number in open {
            if let Some(mut session) = self.sessions.remove(&number) {
                session.cut(&mut self.shared().0)?;
            }
        }
        Ok((self.coverage, self.sink))
    }

    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    fn shared(&mut self) -> (Shared<'_>, &mut Numbers<u64, Box<Session>>, &mut Vec<u8>) {
        let shared = Shared {
            sink: &mut self.sink,
            options: &self.options,
            coverage: &mut self.coverage,
            spare: &mut self.spare,
            offset: self.offset,
        };
        (shared, &mut self.sessions, &mut self.inflated)
    }
}

impl<S: Sink> Streams for Decoder<S> {
    fn opened(&mut self, _time_ns: u64, opened: &Opened) -> anyhow::Result<()> {
        let mut session = Box::new(Session::new(opened));
        if opened.is_midstream {
            session.know(opened.client, &mut self.shared().0);
        }
        if let Some(mut before) = self.sessions.insert(opened.session, session) {
            before.cut(&mut self.shared().0)?;
        }
        Ok(())
    }

    fn bytes(&mut self, time_ns: u64, session: u64, from: Side, bytes: &[u8]) -> anyhow::Result<()> {
        let (mut shared, sessions, inflated) = self.shared();
        if let Some(session) = sessions.get_mut(&session) {
            session.bytes(time_ns, from, bytes, inflated, &mut shared)?;
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn gap(&mut self, time_ns: u64, session: u64, from: Side, missing: Option<u64>) -> anyhow::Result<()> {
        let (mut shared, sessions, _) = self.shared();
        sessions.get_mut(&session).map_or(Ok(()), |session| session.gap(time_ns, from, missing, &mut shared))
    }

    fn closed(&mut self, time_ns: u64, session: u64) -> anyhow::Result<()> {
        let (mut shared, sessions, _) = self.shared();
        sessions.remove(&session).map_or(Ok(()), |mut session| session.closed(time_ns, &mut shared))
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        let (mut shared, sessions, _) = self.shared();
        sessions.remove(&session).map_or(Ok(()), |mut session| session.cut(&mut shared))
    }
}
