//! What a client asked for, until it is answered.

use super::statements::Bound;
use crate::event::Command;

/// What a session keeps of a buffer that it needed once: thousands of them share the memory.
pub const KEPT_BUFFER: usize = 4096;

#[derive(Debug)]
pub struct Request {
    pub command: Command,
    /// The payload with its first byte; for a login the login itself.
    pub body: Vec<u8>,
    /// Not all of the payload is in `body`.
    pub is_cut: bool,
    pub start_ns: u64,
    pub wire_bytes: u64,
    /// The number that the answer's first packet must have.
    pub sequence: u8,
    pub text_at: usize,
    pub statement: Option<u32>,
    pub bound: Option<Bound>,
    pub parameters: Vec<u8>,
    pub parameter_count: u16,
}

impl Default for Request {
    fn default() -> Self {
        Request {
            command: Command::Connect,
            body: Vec::new(),
            is_cut: false,
            start_ns: 0,
            wire_bytes: 0,
            sequence: 0,
            text_at: 1,
            statement: None,
            bound: None,
            parameters: Vec::new(),
            parameter_count: 0,
        }
    }
}

impl Request {
    pub fn at(start_ns: u64) -> Self {
        Request { start_ns, ..Request::default() }
    }

    /// A request of which nothing is known, with the buffers of this one.
    pub fn reused(mut self) -> Self {
        let (mut body, mut parameters) =
            (std::mem::take(&mut self.body), std::mem::take(&mut self.parameters));
        for buffer in [&mut body, &mut parameters] {
            buffer.clear();
            buffer.shrink_to(KEPT_BUFFER);
        }
        Request { body, parameters, ..Request::default() }
    }

    pub fn text(&self) -> &[u8] {
        self.body.get(self.text_at..).unwrap_or(b"")
    }

    pub fn parameters(&self) -> &[u8] {
        match self.bound {
            Some(Bound::AsSent(start)) => self.body.get(start..).unwrap_or(b""),
            Some(Bound::Rewritten) => &self.parameters,
            None => b"",
        }
    }
}
