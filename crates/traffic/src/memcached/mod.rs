//! memcached's text and meta protocols, read by a listener: keys by pattern, sizes, hits and times; no value is kept.
//!
//! Requests wait for their answers in the order in which memcached gives these. A request that may stay unanswered
//! (`noreply`, `q`) is over once an answer fits a later one. Where bytes are missing, or an answer fits no request, a
//! session is lost until a client begins to ask again after the server has spoken.

pub mod command;
mod pattern;
mod reply;
mod request;
mod session;
mod table;
#[cfg(test)]
mod tests;

use crate::coverage::Coverage;
use crate::numbers::Numbers;
use crate::stream::{Opened, Side, Streams};
use pattern::Shown;
use session::{Session, Shared};
use table::Table;

/// Reads both directions of any number of connections.
pub struct Decoder {
    shared: Shared,
    sessions: Numbers<u64, Box<Session>>,
}

impl Decoder {
    /// `name` is the input's; `shown` are the words of keys to show; `names_keys` keeps hot keys as they are.
    fn new(name: String, shown: Shown, names_keys: bool) -> Self {
        let table = Table::new(shown, names_keys);
        let shared = Shared { table, coverage: Coverage::default(), name, held_bytes: 0 };
        Self { shared, sessions: Numbers::default() }
    }

    /// Ends what is still open, as at the end of an input.
    fn end_input(&mut self) {
        let mut open: Vec<u64> = self.sessions.keys().copied().collect();
        open.sort_unstable();
        for number in open {
            self.end(number);
        }
    }

    fn end(&mut self, number: u64) {
        if let Some(mut session) = self.sessions.remove(&number) {
            session.end(&mut self.shared);
        }
    }
}

impl Streams for Decoder {
    fn opened(&mut self, _time_ns: u64, opened: &Opened) -> anyhow::Result<()> {
        self.end(opened.session);
        self.shared.coverage.midstream_sessions += u64::from(opened.is_midstream);
        self.sessions.insert(opened.session, Box::new(Session::new(opened)));
        Ok(())
    }

    fn bytes(&mut self, time_ns: u64, session: u64, from: Side, bytes: &[u8]) -> anyhow::Result<()> {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.bytes(time_ns, from, bytes, &mut self.shared);
        }
        Ok(())
    }

    fn gap(&mut self, time_ns: u64, session: u64, from: Side, missing: Option<u64>) -> anyhow::Result<()> {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.gap(time_ns, from, missing, &mut self.shared);
        }
        Ok(())
    }

    fn closed(&mut self, _time_ns: u64, session: u64) -> anyhow::Result<()> {
        self.end(session);
        Ok(())
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        self.end(session);
        Ok(())
    }
}
