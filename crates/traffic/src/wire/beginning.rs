//! The beginning of a session: a balancer's header, and what the session is counted as.

use std::net::SocketAddr;

use super::known::parameters;
use super::proxied::{Header, Step};
use super::session::{Phase, Session};
use super::shared::Shared;
use crate::stream::Side;

impl Session {
    /// Takes what the server said of a session that began before the capture.
    pub fn know(&mut self, client: SocketAddr, shared: &mut Shared<'_>) {
        let Some(standing) = shared.options.known.take(client) else { return };
        self.connection = Some(standing.connection);
        (self.user, self.database, self.is_known) = (standing.user, standing.database, true);
        for (id, text) in standing.statements {
            if let Some(parameters) = parameters(&text) {
                self.statements.insert(id, (&text, false), parameters, shared.options.max_text_bytes);
            }
        }
    }

    /// What of a session's first bytes is behind a balancer's header; nothing while all of them may belong to one, None
    /// if there cannot be one.
    pub fn behind_header(&mut self, from: Side, bytes: &[u8], shared: &mut Shared<'_>) -> Option<Vec<u8>> {
        // A server that greets at once may be seen before the balancer's header.
        let may_be = match self.phase {
            Phase::Start => true,
            Phase::Greeted => !self.client.is_inside(),
            _ => false,
        };
        let origin = self.origin.as_mut().filter(|_| may_be && from == Side::Client)?;
        let mut rest = bytes;
        loop {
            let held = origin.header.held().to_vec();
            match origin.header.take(rest) {
                Step::More => return Some(Vec::new()),
                Step::Other => {
                    origin.header = Header::default();
                    return Some([&held, rest].concat());
                }
                Step::Done(used) => {
                    if let Some(named) = origin.header.named() {
                        shared.coverage.proxied_sessions.add(named.kind, 1);
                        if let Some(host) = &named.host {
                            self.host = host.clone().into_bytes();
                        }
                    }
                    // Of several balancers the last header is that of the first one, which knows the client.
                    (origin.header, rest) = (Header::default(), &rest[used..]);
                    if rest.is_empty() {
                        return Some(Vec::new());
                    }
                }
            }
        }
    }

    /// The server's greeting came.
    pub fn greeted(&mut self) {
        if let Some(origin) = &mut self.origin {
            origin.greeted();
        }
    }

    /// What came in the place of a login is none: who asks a server of MySQL for something else, as checks of health do.
    pub fn not_a_login(&mut self, shared: &mut Shared<'_>) {
        if let Some(origin) = self.origin.take() {
            shared.coverage.foreign_sessions.add(origin.client_speaks(), 1);
        }
        self.phase = Phase::Ignored;
    }

    /// The greeting was not seen.
    pub fn missed(&mut self) {
        if let Some(origin) = &mut self.origin {
            origin.is_missed = true;
        }
    }

    /// Bytes are missing before anything was understood: what comes first now did not come first.
    pub fn missed_bytes(&mut self) {
        if let Some(origin) = &mut self.origin {
            origin.is_missed = true;
            origin.is_seen = false;
        }
    }

    /// An answer fitted a request, so that it is MySQL whatever its first bytes looked like; or it is encrypted.
    pub fn settle_origin(&mut self, shared: &mut Shared<'_>) {
        if let Some(origin) = self.origin.take() {
            self.count_missed(origin.is_missed, shared);
        }
    }

    /// A session that began before the capture, by whether the server said who it is.
    fn count_missed(&self, is_missed: bool, shared: &mut Shared<'_>) {
        let coverage = &mut *shared.coverage;
        let count =
            if self.is_known { &mut coverage.joined_sessions } else { &mut coverage.midstream_sessions };
        *count += u64::from(is_missed);
    }

    /// Looks at bytes of a session that is not understood yet; true from where there is no doubt that it is another
    /// protocol, and nothing of it is to be read.
    pub fn is_foreign_after(&mut self, from: Side, bytes: &[u8], is_turn: bool) -> bool {
        let Some(origin) = &mut self.origin else { return false };
        origin.look(from, bytes, is_turn);
        self.phase == Phase::Lost && origin.is_seen && origin.foreign.is_some()
    }

    /// Counts a session that is over and was never understood.
    pub fn count_origin(&mut self, shared: &mut Shared<'_>) {
        let Some(origin) = self.origin.take() else { return };
        // Of a balancer's header there is its beginning only.
        shared.coverage.skipped_bytes += origin.header.held().len() as u64;
        if self.phase == Phase::Start && !origin.has_spoken[1] {
            return;
        }
        match origin.other_protocol() {
            Some(name) => shared.coverage.foreign_sessions.add(name, 1),
            None => {
                self.count_missed(origin.is_missed, shared);
                shared.coverage.one_sided_sessions += u64::from(origin.is_one_sided());
            }
        }
    }
}
