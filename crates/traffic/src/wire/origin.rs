//! How a session began, and whether it is MySQL's protocol at all.

use super::foreign::{self, LOOKED_AT};
use super::proxied::Header;
use crate::stream::Side;

/// What is known of a session's beginning, until an answer fits a request.
#[derive(Debug, Default)]
pub struct Origin {
    /// The connection's handshake was seen, so its first bytes are the first that were said.
    pub is_seen: bool,
    /// The greeting was not: the session began before the capture, or is none of MySQL.
    pub is_missed: bool,
    pub header: Header,
    /// Whether a side has spoken: the client, the server.
    pub has_spoken: [bool; 2],
    /// The first bytes of who spoke first, where the handshake was seen.
    first: Vec<u8>,
    first_side: Option<Side>,
    /// What each side seems to speak, by how its turns begin.
    client: Option<&'static str>,
    server: Option<&'static str>,
    /// Both sides speak it, or the beginning leaves no doubt.
    pub foreign: Option<&'static str>,
    has_greeted: bool,
}

impl Origin {
    pub fn new(is_midstream: bool) -> Self {
        Self { is_seen: !is_midstream, ..Self::default() }
    }

    /// Looks at the next bytes of a session that is not understood; `is_turn` if the other side spoke before.
    pub fn look(&mut self, from: Side, bytes: &[u8], is_turn: bool) {
        self.has_spoken[from as usize] = true;
        if self.has_greeted && from == Side::Client {
            let room = LOOKED_AT - self.first.len();
            self.first.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        if self.foreign.is_some() || self.has_greeted {
            return;
        }
        if self.is_seen && self.has_more_first(from) {
            self.first_side = Some(from);
            let room = LOOKED_AT - self.first.len();
            self.first.extend_from_slice(&bytes[..bytes.len().min(room)]);
            self.foreign = foreign::protocol(from, &self.first);
            return;
        }
        if is_turn {
            let said = match from {
                Side::Client => &mut self.client,
                Side::Server => &mut self.server,
            };
            *said = foreign::protocol(from, bytes).or(*said);
            // TLS has records that tell nothing of who began it.
            if self.client == self.server {
                self.foreign = self.client;
            }
        }
    }

    /// The server's greeting came: nothing is in doubt any more.
    pub fn greeted(&mut self) {
        *self = Self { has_greeted: true, ..Self::default() };
    }

    /// What the client of a server that greeted seems to speak, if that is no login.
    pub fn client_speaks(&self) -> &'static str {
        foreign::protocol(Side::Client, &self.first).unwrap_or(foreign::UNKNOWN)
    }

    /// Whether the other side has said nothing yet.
    fn has_more_first(&self, from: Side) -> bool {
        self.first_side.is_none_or(|first| first == from) && self.first.len() < LOOKED_AT
    }

    /// The first bytes of all, as far as they are looked at, are certain not to be MySQL's.
    pub fn other_protocol(&self) -> Option<&'static str> {
        // A login without a greeting: only the client's direction was captured.
        let is_mysql = self.first_side == Some(Side::Client) && foreign::is_login(&self.first);
        let is_unknown = self.is_seen && self.first_side.is_some() && !is_mysql;
        self.foreign.or(is_unknown.then_some(foreign::UNKNOWN)).filter(|_| self.is_missed)
    }

    pub fn is_one_sided(&self) -> bool {
        self.is_missed && self.has_spoken[0] != self.has_spoken[1]
    }
}
