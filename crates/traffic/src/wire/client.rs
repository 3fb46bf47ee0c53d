//! The client's bytes: packets, and the requests that they are.

use super::login::Hello;
use super::request::Request;
use super::session::{Phase, Session, of_client};
use super::shared::Shared;
use super::sides::Target;
use crate::event::Command;
use mysql::frames::{HEADER, LARGEST_FRAME};
use mysql::reply::Stage;
use mysql_common::constants::CapabilityFlags as Flags;

/// No login is as long: its longest part, the attributes, has at most 64 KiB.
const LONGEST_LOGIN: usize = 1 << 16;

impl Session {
    pub fn client_bytes(
        &mut self,
        first_ns: u64,
        now_ns: u64,
        mut input: &[u8],
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        loop {
            if matches!(self.phase, Phase::Lost | Phase::Ignored) {
                shared.coverage.skipped_bytes += input.len() as u64;
                return Ok(());
            }
            if self.client.left.is_none() {
                if input.is_empty() {
                    return Ok(());
                }
                if self.client.have == 0 && !self.client.continues {
                    self.client.request.start_ns = first_ns;
                }
                let count = (HEADER - self.client.have).min(input.len());
                let have = self.client.have;
                self.client.header[have..have + count].copy_from_slice(&input[..count]);
                self.client.have += count;
                input = &input[count..];
                if self.client.have < HEADER {
                    return Ok(());
                }
                self.begin_frame(shared)?;
                continue;
            }
            let side = &mut self.client;
            let left = side.left.unwrap_or(0);
            let count = left.min(input.len());
            if side.target == Target::Request && !side.request.is_cut {
                let room = shared.options.max_text_bytes.saturating_sub(side.request.body.len()).min(count);
                side.request.body.extend_from_slice(&input[..room]);
                if room < count {
                    side.request.is_cut = true;
                    shared.damage(self.id, "a request is longer than is kept");
                }
            }
            let side = &mut self.client;
            input = &input[count..];
            side.left = Some(left - count);
            if left > count {
                return Ok(());
            }
            self.end_frame(now_ns, shared)?;
        }
    }

    fn begin_frame(&mut self, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        let side = &mut self.client;
        let [a, b, c, sequence] = side.header;
        side.have = 0;
        side.length = u32::from_le_bytes([a, b, c, 0]) as usize;
        side.left = Some(side.length);
        if self.compression.is_none() {
            side.request.wire_bytes += (HEADER + side.length) as u64;
        }
        let expected = std::mem::replace(&mut side.sequence, sequence.wrapping_add(1));
        if side.continues {
            if sequence != expected {
                return self.lose(Some("a client's packet is out of order"), shared);
            }
            return Ok(());
        }
        let is_login = self.phase == Phase::LoggingIn
            || (sequence != 0 && self.requests.front().is_some_and(|r| r.command == Command::ChangeUser));
        side.target = match self.phase {
            // Two where a proxy ended the encryption: it took the request for it away. A record of TLS has a two there,
            // too, and would be longer than any login.
            Phase::Greeted if sequence == 1 || (sequence == 2 && side.length < LONGEST_LOGIN) => {
                Target::Request
            }
            Phase::Greeted => {
                self.not_a_login(shared);
                return Ok(());
            }
            _ if side.is_file || is_login => Target::Part,
            _ if sequence == 0 => Target::Request,
            _ => return self.lose(Some("a client's packet is out of order"), shared),
        };
        Ok(())
    }

    pub(super) fn end_frame(&mut self, now_ns: u64, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        let side = &mut self.client;
        side.left = None;
        let was_full = side.length == LARGEST_FRAME;
        let continued = std::mem::replace(&mut side.continues, was_full);
        if was_full {
            return Ok(());
        }
        let wire_bytes = side.request.wire_bytes + std::mem::take(&mut side.frame_bytes);
        if side.target == Target::Part {
            side.request.wire_bytes = 0;
            // An empty packet ends the file.
            side.is_file &= side.length > 0 || continued;
            self.answer.sequence = side.sequence;
            if let Some(request) = self.requests.front_mut() {
                request.wire_bytes += wire_bytes;
            }
            return Ok(());
        }
        let next = shared.spare.pop().unwrap_or_default();
        let mut request = std::mem::replace(&mut side.request, next);
        request.wire_bytes = wire_bytes;
        request.sequence = side.sequence;
        if self.phase == Phase::Greeted {
            return self.hello(request, shared);
        }
        self.ask(request, shared)?;
        // What the server said may have been seen before what it answers.
        if self.answer.reply.stage != Stage::Idle && !self.server.is_between_packets() {
            return self.server_bytes(now_ns, now_ns, &[], shared);
        }
        Ok(())
    }

    /// The login, or the request for TLS in its place.
    fn hello(&mut self, mut request: Request, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        let hello = match Hello::parse(&request.body) {
            Ok(hello) => hello,
            Err(error) => return self.lose(Some(&of_client(&error)), shared),
        };
        if hello.asks_for_tls(request.body.len()) {
            shared.coverage.tls_sessions += 1;
            self.phase = Phase::Ignored;
            shared.recycle(request);
            return Ok(());
        }
        let flags = hello.flags & self.server_flags;
        self.dialect.flags = flags;
        self.dialect.deprecates_eof = Some(flags.contains(Flags::CLIENT_DEPRECATE_EOF));
        self.dialect.has_attributes = Some(flags.contains(Flags::CLIENT_QUERY_ATTRIBUTES));
        (self.user, self.database) = (hello.user.to_vec(), hello.database.to_vec());
        // The answer to the challenge is useless afterwards.
        request.body.clear();
        request.command = Command::Connect;
        self.phase = Phase::LoggingIn;
        self.requests.push_back(request);
        self.next_request(shared)
    }
}
