//! What happens to a connection: bytes of either side, bytes that are missing, its end.

use super::resync;
use super::session::{Phase, Session, of_client};
use super::shared::Shared;
use crate::event::{Command, Outcome};
use crate::stream::Side;

impl Session {
    pub fn bytes(
        &mut self,
        time_ns: u64,
        from: Side,
        bytes: &[u8],
        inflated: &mut Vec<u8>,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let before = self.last_side.replace(from);
        let (mut bytes, behind) = (bytes, self.behind_header(from, bytes, shared));
        if let Some(behind) = &behind {
            bytes = behind;
            if bytes.is_empty() {
                self.last_side = before;
                return Ok(());
            }
        }
        if self.phase == Phase::Start && !self.begins(from, bytes) {
            self.missed();
            self.phase = Phase::Lost;
        }
        if self.is_foreign_after(from, bytes, before != Some(from)) {
            self.phase = Phase::Ignored;
        }
        let follows_quiet = before != Some(Side::Client);
        if self.phase == Phase::Lost && resync::is_tls(bytes) {
            shared.coverage.tls_sessions += 1;
            self.settle_origin(shared);
            self.phase = Phase::Ignored;
        }
        if self.phase == Phase::Lost && from == Side::Client && follows_quiet {
            self.resume(bytes, inflated);
            // In a session that is seen from its middle, it is unknown whether they were requests.
            shared.coverage.lost_events += u64::from(self.phase == Phase::Lost && self.is_logged_in);
        }
        if matches!(self.phase, Phase::Lost | Phase::Ignored) {
            shared.coverage.skipped_bytes += bytes.len() as u64;
            return Ok(());
        }
        if self.compression.is_some() {
            return self.compressed(time_ns, from, bytes, inflated, shared);
        }
        self.plain(time_ns, time_ns, from, bytes, shared)
    }

    fn plain(
        &mut self,
        first_ns: u64,
        now_ns: u64,
        from: Side,
        bytes: &[u8],
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        match from {
            Side::Client => self.client_bytes(first_ns, now_ns, bytes, shared),
            Side::Server => self.server_bytes(first_ns, now_ns, bytes, shared),
        }
    }

    fn compressed(
        &mut self,
        time_ns: u64,
        from: Side,
        mut bytes: &[u8],
        inflated: &mut Vec<u8>,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        while let (Some(compression), false) = (&mut self.compression, bytes.is_empty()) {
            let inflate = match from {
                Side::Client => &mut compression.client,
                Side::Server => &mut compression.server,
            };
            let frame = match inflate.next(bytes, time_ns, inflated) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let said = if from == Side::Client { of_client(&error) } else { error.to_string() };
                    return self.lose(Some(&said), shared);
                }
            };
            bytes = &bytes[frame.used..];
            match from {
                Side::Client => self.client.frame_bytes += frame.wire_bytes,
                Side::Server => {
                    self.answer.bytes += frame.wire_bytes;
                    self.follow_flush(frame.number, inflated);
                }
            }
            self.plain(frame.first_ns, time_ns, from, inflated, shared)?;
            if matches!(self.phase, Phase::Lost | Phase::Ignored) {
                shared.coverage.skipped_bytes += bytes.len() as u64;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Behind each flush, as between two results of one request, servers number packets on from the compression's frames:
    /// the packet that begins such a frame has its number.
    fn follow_flush(&mut self, frame: u8, content: &[u8]) {
        if self.server.is_between_packets() && self.server.skip == 0 && content.get(3) == Some(&frame) {
            self.answer.sequence = frame;
        }
    }

    /// Whether a connection may begin with these bytes: the server speaks first.
    fn begins(&self, from: Side, bytes: &[u8]) -> bool {
        let has_more = !self.server.is_between_packets();
        from == Side::Server && (has_more || bytes.len() < 5 || resync::is_greeting(bytes))
    }

    /// Goes on where a request begins.
    fn resume(&mut self, bytes: &[u8], inflated: &mut Vec<u8>) {
        let is_plain = self.compression.is_none() && resync::is_request(bytes);
        if !is_plain {
            let may_be = self.compression.is_some() || !self.is_logged_in;
            if !may_be || !resync::is_compressed_request(bytes, inflated) {
                return;
            }
            self.compression = Some(Box::default());
        }
        self.phase = Phase::Commands;
        self.is_verified = false;
    }

    pub fn gap(
        &mut self,
        now_ns: u64,
        from: Side,
        missing: Option<u64>,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        match self.phase {
            Phase::Ignored | Phase::Lost => return Ok(()),
            Phase::Start => self.missed_bytes(),
            Phase::Greeted | Phase::LoggingIn | Phase::Commands => {}
        }
        let missing = missing.and_then(|missing| usize::try_from(missing).ok());
        self.last_side = Some(from);
        // Bytes that would not have been read are not missed; of a request, only its text is.
        if let (Some(missing), None) = (missing, &self.compression) {
            match from {
                Side::Server if self.server.pass_unseen(missing) => return Ok(()),
                Side::Client => match self.client.pass_unseen(missing) {
                    Some(true) => return self.end_frame(now_ns, shared),
                    Some(false) => return Ok(()),
                    None => {}
                },
                Side::Server => {}
            }
        }
        self.lose(None, shared)
    }

    pub fn closed(&mut self, time_ns: u64, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        let was_known = self.is_logged_in && self.phase != Phase::Ignored;
        // Behind a request that nobody answers, as when the connection was killed, it has not been an event yet. It is
        // the end below, and no other one.
        let count = self.requests.len();
        self.requests.retain(|request| request.command != Command::Quit);
        let has_asked = self.requests.len() < count;
        self.end_open(shared)?;
        self.count_origin(shared);
        if was_known {
            let mut event = self.event(time_ns, Command::Quit);
            event.outcome = if has_asked { Outcome::Unknown } else { Outcome::Unanswered };
            shared.emit(&event)?;
        }
        Ok(())
    }

    /// Nothing more is seen of it, which says nothing about the connection's end.
    pub fn cut(&mut self, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        self.end_open(shared)?;
        self.count_origin(shared);
        Ok(())
    }
}
