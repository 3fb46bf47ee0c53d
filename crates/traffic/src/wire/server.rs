//! The server's bytes: rows are passed over by their headers, other packets are looked at.

use super::request::{KEPT_BUFFER, Request};
use super::session::{Phase, Session};
use super::shared::Shared;
use mysql::frames::{HEADER, LARGEST_FRAME};
use mysql::protocol::parse_greeting;
use mysql::reply::{END, ERROR, Stage, Step};

/// So much is looked at of a packet that is not a row; what lies behind it is passed over.
const LOOKED_AT: usize = 64 * 1024;
/// So much is kept of an answer that comes before its request: captures may see packets out of order.
const MOST_HELD: usize = 64 * 1024;

/// How the next packet can be told apart, and how long it is.
#[derive(Clone, Copy)]
struct Head {
    length: usize,
    sequence: u8,
    is_row: bool,
}

impl Session {
    pub fn server_bytes(
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
            if self.server.skip > 0 {
                let (here, rest) = input.split_at(self.server.skip.min(input.len()));
                self.server.skip -= here.len();
                self.pass(here, shared.options.checksum);
                input = rest;
            }
            if input.is_empty() && self.server.partial.is_empty() {
                return Ok(());
            }
            if self.answer.reply.stage == Stage::Idle && self.phase != Phase::Start {
                return self.hold(first_ns, input, shared);
            }
            if self.server.partial.is_empty() {
                let used = self.rows(input, first_ns, shared.options.checksum);
                input = &input[used..];
                let Some(head) = self.head(input).ok().filter(|_| !input.is_empty()) else {
                    self.server.partial.extend_from_slice(input);
                    self.server.partial_ns = first_ns;
                    return Ok(());
                };
                let used = self.packet(head, input, first_ns, now_ns, shared)?;
                input = &input[used..];
                continue;
            }
            match self.head(&self.server.partial) {
                Err(missing) => {
                    let (here, rest) = input.split_at(missing.min(input.len()));
                    self.server.partial.extend_from_slice(here);
                    input = rest;
                    if here.len() < missing {
                        return Ok(());
                    }
                }
                Ok(head) => {
                    let mut partial = std::mem::take(&mut self.server.partial);
                    let first_ns = self.server.partial_ns;
                    let used = self.packet(head, &partial, first_ns, now_ns, shared)?;
                    partial.drain(..used);
                    if matches!(self.phase, Phase::Lost | Phase::Ignored) {
                        shared.coverage.skipped_bytes += partial.len() as u64;
                        continue;
                    }
                    partial.shrink_to(KEPT_BUFFER);
                    self.server.partial = partial;
                }
            }
        }
    }

    /// Keeps what comes before the request that it answers.
    fn hold(&mut self, first_ns: u64, input: &[u8], shared: &mut Shared<'_>) -> anyhow::Result<()> {
        if self.server.partial.is_empty() {
            self.server.partial_ns = first_ns;
        }
        let held = self.server.partial.len();
        if held + input.len() > MOST_HELD {
            shared.coverage.skipped_bytes += input.len() as u64;
            return self.lose(Some("an unexpected answer"), shared);
        }
        self.server.partial.extend_from_slice(input);
        Ok(())
    }

    /// Passes over whole rows; how many bytes they took. This loop sees most of all bytes.
    fn rows(&mut self, input: &[u8], first_ns: u64, sums: bool) -> usize {
        if self.answer.reply.stage != Stage::Rows || self.server.continues {
            return 0;
        }
        let answer = &mut self.answer;
        let (mut at, mut rows, mut sequence) = (0, 0, answer.sequence);
        while let Some(&[a, b, c, number, first]) = input.get(at..at + HEADER + 1) {
            let length = u32::from_le_bytes([a, b, c, 0]) as usize;
            let end = at + HEADER + length;
            if first >= END
                || number != sequence
                || length == 0
                || end > input.len()
                || length == LARGEST_FRAME
            {
                break;
            }
            if sums {
                answer.checksum.add(&input[at + HEADER..end]);
            }
            rows += 1;
            sequence = sequence.wrapping_add(1);
            at = end;
        }
        if rows > 0 {
            answer.first_byte_ns.get_or_insert(first_ns);
            answer.sequence = sequence;
            answer.reply.rows += rows;
            if self.compression.is_none() {
                answer.bytes += at as u64;
            }
        }
        at
    }

    /// The next packet, where enough of it is here; otherwise how many bytes are missing.
    fn head(&self, bytes: &[u8]) -> Result<Head, usize> {
        let [a, b, c, sequence, ref payload @ ..] = *bytes else { return Err(HEADER - bytes.len()) };
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        let mut head = Head { length, sequence, is_row: self.server.continues };
        if self.server.continues {
            return Ok(head);
        }
        if matches!(self.answer.reply.stage, Stage::Rows | Stage::ColumnsEnd) && length > 0 {
            let first = *payload.first().ok_or(1_usize)?;
            head.is_row = self.answer.reply.is_row(first, length);
        }
        let wanted = length.min(LOOKED_AT);
        if head.is_row || payload.len() >= wanted { Ok(head) } else { Err(wanted - payload.len()) }
    }

    /// Takes one packet; how many bytes of it were here.
    fn packet(
        &mut self,
        head: Head,
        bytes: &[u8],
        first_ns: u64,
        now_ns: u64,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<usize> {
        let Head { length, sequence, is_row } = head;
        let here = length.min(bytes.len() - HEADER);
        let payload = &bytes[HEADER..HEADER + here];
        if self.answer.reply.stage == Stage::MaybeEnd {
            let is_end = payload.first() == Some(&END) && length == 5 && sequence == self.answer.sequence;
            self.dialect.deprecates_eof = Some(!is_end);
            if !is_end {
                self.finish(self.answer.last_byte_ns, shared)?;
                return Ok(0);
            }
            self.answer.bytes += if self.compression.is_none() { (HEADER + length) as u64 } else { 0 };
            self.finish(now_ns, shared)?;
            return Ok(HEADER + here);
        }
        if self.phase == Phase::Start {
            self.server.skip = length - here;
            self.greeting(payload, sequence, first_ns, shared)?;
            return Ok(HEADER + here);
        }
        // A server that ends the connection by itself says why under a number of its own.
        let is_farewell = sequence == 0 && payload.first() == Some(&ERROR);
        let is_out_of_order = sequence != self.answer.sequence && !is_farewell;
        if is_out_of_order || (length == LARGEST_FRAME && !is_row) {
            shared.coverage.skipped_bytes += (HEADER + here) as u64;
            self.lose(Some("a server's packet is out of order"), shared)?;
            return Ok(HEADER + here);
        }
        self.answer.first_byte_ns.get_or_insert(first_ns);
        self.answer.sequence = sequence.wrapping_add(1);
        if self.compression.is_none() {
            self.answer.bytes += (HEADER + length) as u64;
        }
        self.server.skip = length - here;
        self.server.is_row = is_row;
        if is_row {
            self.row(payload, length, shared.options.checksum);
            return Ok(HEADER + here);
        }
        match self.answer.reply.take(payload, length, &mut self.dialect) {
            Ok(Step::More) if self.answer.reply.stage == Stage::MaybeEnd => self.answer.last_byte_ns = now_ns,
            Ok(Step::More | Step::Column) => {}
            Ok(Step::File) => self.client.is_file = true,
            Ok(Step::Done) => self.finish(now_ns, shared)?,
            Err(error) => {
                shared.coverage.skipped_bytes += (HEADER + here) as u64;
                self.lose(Some(&error.to_string()), shared)?;
            }
        }
        Ok(HEADER + here)
    }

    /// The first bytes of a row's frame.
    fn row(&mut self, payload: &[u8], length: usize, sums: bool) {
        if !self.server.continues {
            self.answer.reply.row(&mut self.dialect);
        }
        self.server.continues = length == LARGEST_FRAME;
        self.pass(payload, sums);
    }

    /// Bytes of a packet that is not read.
    fn pass(&mut self, bytes: &[u8], sums: bool) {
        if !sums || !self.server.is_row {
            return;
        }
        let hasher = self.server.hasher.get_or_insert_default();
        hasher.update(bytes);
        if self.server.skip == 0 && !self.server.continues {
            self.answer.checksum.add_hash(hasher.digest());
            hasher.reset();
        }
    }

    fn greeting(
        &mut self,
        payload: &[u8],
        sequence: u8,
        first_ns: u64,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        if payload.first() == Some(&ERROR) && sequence == 0 {
            // Refused before it could say who it is: too many connections, a blocked host.
            self.requests.push_back(Request::at(first_ns));
            self.answer.expect(Stage::Login, 0);
            self.phase = Phase::LoggingIn;
            self.answer.bytes = (HEADER + payload.len()) as u64;
            return match self.answer.reply.take(payload, payload.len(), &mut self.dialect) {
                Ok(_) => self.finish(first_ns, shared),
                Err(error) => self.lose(Some(&error.to_string()), shared),
            };
        }
        match parse_greeting(payload) {
            Ok(greeting) => {
                self.server_flags = greeting.capabilities;
                self.connection = Some(greeting.connection.into());
                self.phase = Phase::Greeted;
                self.greeted();
                Ok(())
            }
            Err(error) => {
                self.missed();
                self.lose(Some(&error.to_string()), shared)
            }
        }
    }
}
