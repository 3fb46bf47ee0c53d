//! One connection of TCP: both directions put back in order.
//!
//! Data continues as soon as everything that it follows has: the bytes before it, and those of the other direction that
//! its sender had acknowledged. So an answer never overtakes its question, in whatever order a capture has them.

use std::collections::BTreeMap;

use super::segment::{ACK, Endpoint, FIN, SYN, Segment};
use crate::coverage::Coverage;
use crate::stream::{Opened, Side, Streams};

/// What a held packet costs beside its bytes.
const HELD_OVERHEAD: usize = 96;
/// Further from what is expected than any window of real connections lets packets be.
const FAR: u64 = 1 << 26;
/// As far from it as packets of the same connection are that were captured at two places.
const NEAR: u64 = 1 << 22;

/// Where things go, and what may be held in all.
pub struct Output<'a, S> {
    pub streams: &'a mut S,
    pub coverage: &'a mut Coverage,
    pub held_bytes: &'a mut usize,
    pub max_held_bytes: usize,
}

/// A packet that came before something it follows.
struct Held {
    time_ns: u64,
    acknowledged: u64,
    length: u32,
    data: Box<[u8]>,
}

/// One direction. Offsets are sequence numbers that do not wrap: their low 32 bits are those of the packets.
#[derive(Default)]
struct Half {
    is_known: bool,
    /// What comes next.
    next: u64,
    /// How far the other side says it has everything, and when it last said something.
    acknowledged: u64,
    acknowledged_ns: u64,
    /// Where it ends.
    end: Option<u64>,
    is_finished: bool,
    held: BTreeMap<u64, Held>,
}

impl Half {
    fn begin(&mut self, sequence: u32) {
        self.is_known = true;
        // So far from zero that an older packet has an offset too.
        self.next = (1 << 32) + u64::from(sequence);
        self.acknowledged = self.next;
    }

    fn offset(&self, sequence: u32) -> u64 {
        let distance = sequence.wrapping_sub(self.next as u32).cast_signed();
        self.next.wrapping_add_signed(distance.into())
    }

    fn is_far(&self, sequence: u32) -> bool {
        self.is_known && self.offset(sequence).abs_diff(self.next) > FAR
    }

    fn is_near(&self, sequence: u32) -> bool {
        self.offset(sequence).abs_diff(self.next) <= NEAR
    }

    fn is_stalled(&self) -> bool {
        self.acknowledged > self.next || !self.held.is_empty()
    }

    /// Keeps a copy for later, unless a packet that is held has all of it.
    fn hold(&mut self, start: u64, held: Held, total: &mut usize) -> bool {
        let end = start + u64::from(held.length);
        let before = self.held.range(..=start).next_back();
        if before.is_some_and(|(&at, other)| at + u64::from(other.length) >= end) {
            return false;
        }
        *total += held.data.len() + HELD_OVERHEAD;
        if let Some(shorter) = self.held.insert(start, held) {
            *total -= shorter.data.len() + HELD_OVERHEAD;
        }
        true
    }

    fn take_first(&mut self, total: &mut usize) -> Option<(u64, Held)> {
        let (start, held) = self.held.pop_first()?;
        *total -= held.data.len() + HELD_OVERHEAD;
        Some((start, held))
    }

    fn finish_at_end(&mut self) {
        if self.end == Some(self.next) {
            self.next += 1;
            self.is_finished = true;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Asked for, not answered yet.
    Asked,
    Open,
    Closed,
}

pub struct Connection {
    pub session: u64,
    pub client: Endpoint,
    pub server: Endpoint,
    pub state: State,
    /// First sequence numbers, where the handshake was seen.
    pub client_isn: Option<u32>,
    pub server_isn: Option<u32>,
    /// The SYN of what may become the next connection of these addresses, and its time.
    pub next_syn: Option<(u32, u64)>,
    pub stalled_ns: Option<u64>,
    /// Whether the table is to look at it again for that.
    pub is_watched: bool,
    began_ns: u64,
    /// When a side said that it has nothing more to say.
    ended_ns: Option<u64>,
    halves: [Half; 2],
}

fn index(side: Side) -> usize {
    match side {
        Side::Client => 0,
        Side::Server => 1,
    }
}

const SIDES: [Side; 2] = [Side::Client, Side::Server];

impl Connection {
    pub fn new(session: u64, client: Endpoint, server: Endpoint, began_ns: u64) -> Self {
        Self {
            session,
            client,
            server,
            state: State::Asked,
            client_isn: None,
            server_isn: None,
            next_syn: None,
            stalled_ns: None,
            is_watched: false,
            began_ns,
            ended_ns: None,
            halves: [Half::default(), Half::default()],
        }
    }

    pub fn side(&self, sender: Endpoint) -> Side {
        if sender == self.client { Side::Client } else { Side::Server }
    }

    pub fn has_finished_half(&self) -> bool {
        self.halves.iter().any(|half| half.is_finished)
    }

    pub fn is_finished(&self) -> bool {
        self.halves.iter().all(|half| half.is_finished)
    }

    pub fn is_stalled(&self) -> bool {
        self.halves[0].is_stalled() || self.halves[1].is_stalled()
    }

    /// The client's SYN: its data begins after it.
    pub fn asked(&mut self, isn: u32) {
        self.client_isn = Some(isn);
        self.halves[0].begin(isn.wrapping_add(1));
    }

    /// The server's SYN, which tells of both.
    pub fn answered(&mut self, isn: u32, acknowledged: u32) {
        self.server_isn = Some(isn);
        if !self.halves[1].is_known {
            self.halves[1].begin(isn.wrapping_add(1));
        }
        if !self.halves[0].is_known {
            self.client_isn = Some(acknowledged.wrapping_sub(1));
            self.halves[0].begin(acknowledged);
        }
    }

    /// Both numbers of the packet have nothing to do with this connection: it is another one of the same addresses,
    /// whose beginning was missed.
    pub fn is_foreign(&self, from: Side, segment: &Segment<'_>) -> bool {
        let (mine, theirs) = (&self.halves[index(from)], &self.halves[1 - index(from)]);
        segment.has(ACK) && mine.is_far(segment.sequence) && theirs.is_far(segment.acknowledged)
    }

    /// Whether a packet that came another way belongs to this connection: its numbers are those that are expected. Those
    /// of another connection would be near by chance once in 100,000 times, of a handshake never.
    pub fn expects(&self, segment: &Segment<'_>) -> bool {
        let from = self.side(segment.source);
        let (mine, theirs) = (&self.halves[index(from)], &self.halves[1 - index(from)]);
        if segment.has(SYN) && !segment.has(ACK) {
            return from == Side::Client && self.client_isn == Some(segment.sequence);
        }
        if segment.has(SYN) {
            let is_answer = self.client_isn.is_some_and(|isn| segment.acknowledged == isn.wrapping_add(1));
            return from == Side::Server && (self.server_isn == Some(segment.sequence) || is_answer);
        }
        match (mine.is_known, theirs.is_known) {
            (true, true) => {
                segment.has(ACK) && mine.is_near(segment.sequence) && theirs.is_near(segment.acknowledged)
            }
            (true, false) => mine.next as u32 == segment.sequence,
            (false, true) => segment.has(ACK) && theirs.next as u32 == segment.acknowledged,
            (false, false) => false,
        }
    }

    /// A reset counts if its number is near: others are leftovers, or forged.
    pub fn is_reset(&self, from: Side, sequence: u32) -> bool {
        !self.halves[index(from)].is_far(sequence)
    }

    pub fn open<S: Streams>(&mut self, output: &mut Output<'_, S>) -> anyhow::Result<()> {
        self.state = State::Open;
        output.coverage.sessions += 1;
        let opened = Opened {
            session: self.session,
            client: self.client.socket(),
            server: self.server.socket(),
            is_midstream: self.client_isn.is_none() && self.server_isn.is_none(),
        };
        output.streams.opened(self.began_ns, &opened)
    }

    /// One packet, of an open connection; resets are the caller's.
    pub fn segment<S: Streams>(
        &mut self,
        time_ns: u64,
        from: Side,
        segment: &Segment<'_>,
        output: &mut Output<'_, S>,
    ) -> anyhow::Result<()> {
        let (mine, theirs) = (index(from), 1 - index(from));
        let mut acknowledged = 0;
        // A forged packet must not tell us to skip what is still to come.
        if segment.has(ACK) && !self.halves[mine].is_far(segment.sequence) {
            let half = &mut self.halves[theirs];
            if !half.is_known {
                half.begin(segment.acknowledged);
            }
            acknowledged = half.offset(segment.acknowledged);
            half.acknowledged = half.acknowledged.max(acknowledged);
            half.acknowledged_ns = time_ns;
        }
        let sequence = segment.sequence.wrapping_add(u32::from(segment.has(SYN)));
        let half = &mut self.halves[mine];
        if !half.is_known {
            half.begin(sequence);
        }
        let start = half.offset(sequence);
        if segment.has(FIN) && half.end.is_none() && start + u64::from(segment.length) >= half.next {
            half.end = Some(start + u64::from(segment.length));
        }
        let next = half.next;
        if segment.length > 0 {
            self.data(time_ns, from, start, acknowledged, segment, output)?;
        }
        self.halves[mine].finish_at_end();
        if segment.has(FIN) && self.has_finished_half() {
            self.ended_ns.get_or_insert(time_ns);
        }
        if self.is_stalled() {
            let mut late = [0, 0];
            if self.halves[mine].next != next {
                late[mine] = time_ns;
            }
            if self.drain(late, output)? {
                self.stalled_ns = None;
            }
        }
        Ok(())
    }

    fn data<S: Streams>(
        &mut self,
        time_ns: u64,
        from: Side,
        start: u64,
        acknowledged: u64,
        segment: &Segment<'_>,
        output: &mut Output<'_, S>,
    ) -> anyhow::Result<()> {
        let theirs_next = self.halves[1 - index(from)].next;
        let half = &mut self.halves[index(from)];
        let end = start + u64::from(segment.length);
        if end <= half.next {
            // The one byte of a keep-alive probe is not data.
            if !(segment.length == 1 && end == half.next) {
                output.coverage.retransmitted_packets += 1;
            }
            return Ok(());
        }
        if start <= half.next && acknowledged <= theirs_next {
            output.coverage.retransmitted_packets += u64::from(start < half.next);
            return self.deliver(time_ns, from, start, segment.length, segment.data, output);
        }
        let held = Held { time_ns, acknowledged, length: segment.length, data: segment.data.into() };
        if !half.hold(start, held, output.held_bytes) {
            output.coverage.retransmitted_packets += 1;
        }
        if *output.held_bytes > output.max_held_bytes {
            self.force(true, output)?;
        }
        Ok(())
    }

    /// Hands on what of a packet is new; `start` is not behind a hole.
    fn deliver<S: Streams>(
        &mut self,
        time_ns: u64,
        from: Side,
        start: u64,
        length: u32,
        data: &[u8],
        output: &mut Output<'_, S>,
    ) -> anyhow::Result<()> {
        let half = &mut self.halves[index(from)];
        let end = start + u64::from(length);
        let known = (half.next - start) as usize;
        half.next = end;
        let fresh = data.get(known..).unwrap_or_default();
        if !fresh.is_empty() {
            output.streams.bytes(time_ns, self.session, from, fresh)?;
        }
        let missing = length as usize - known.max(data.len());
        if missing > 0 {
            self.gap(time_ns, from, missing as u64, output)?;
        }
        Ok(())
    }

    fn gap<S: Streams>(
        &mut self,
        time_ns: u64,
        from: Side,
        missing: u64,
        output: &mut Output<'_, S>,
    ) -> anyhow::Result<()> {
        output.coverage.gaps += 1;
        output.coverage.gap_bytes += missing;
        output.streams.gap(time_ns, self.session, from, Some(missing))
    }

    /// Hands on what is held and waits for nothing any more. `late` is when the byte that was waited for came, for
    /// each side: the stream's reader also had to wait for it. True if there was any.
    fn drain<S: Streams>(&mut self, mut late: [u64; 2], output: &mut Output<'_, S>) -> anyhow::Result<bool> {
        let mut has_moved = false;
        loop {
            let mut is_moving = false;
            for from in SIDES {
                while self.is_ready(from) {
                    is_moving = true;
                    let at = index(from);
                    self.deliver_first(from, &mut late[at], output)?;
                }
                let half = &mut self.halves[index(from)];
                half.finish_at_end();
            }
            if !is_moving {
                return Ok(has_moved);
            }
            has_moved = true;
        }
    }

    fn is_ready(&self, from: Side) -> bool {
        let (mine, theirs) = (&self.halves[index(from)], &self.halves[1 - index(from)]);
        let first = mine.held.first_key_value();
        first.is_some_and(|(&start, held)| start <= mine.next && held.acknowledged <= theirs.next)
    }

    fn deliver_first<S: Streams>(
        &mut self,
        from: Side,
        late_ns: &mut u64,
        output: &mut Output<'_, S>,
    ) -> anyhow::Result<()> {
        let half = &mut self.halves[index(from)];
        let Some((start, held)) = half.take_first(output.held_bytes) else { return Ok(()) };
        *late_ns = (*late_ns).max(held.time_ns);
        if start + u64::from(held.length) <= half.next {
            output.coverage.retransmitted_packets += 1;
            return Ok(());
        }
        self.deliver(*late_ns, from, start, held.length, &held.data, output)
    }

    /// Gives up what will not come: what the receiver has already said it got, so that the capture lost it; or, with
    /// `all`, whatever is missing before what is held.
    pub fn force<S: Streams>(&mut self, all: bool, output: &mut Output<'_, S>) -> anyhow::Result<()> {
        let before = self.halves[0].next + self.halves[1].next;
        self.force_all(all, output)?;
        if self.halves[0].next + self.halves[1].next != before {
            self.stalled_ns = None;
        }
        Ok(())
    }

    fn force_all<S: Streams>(&mut self, all: bool, output: &mut Output<'_, S>) -> anyhow::Result<()> {
        loop {
            let mut is_moving = false;
            for from in SIDES {
                is_moving |= self.give_up(from, all, output)?;
                self.drain([0, 0], output)?;
            }
            if is_moving {
                continue;
            }
            // Each waits for the other: a capture that lost the order. The earlier goes first.
            let waiting = |from: &Side| {
                let half = &self.halves[index(*from)];
                let first = half.held.first_key_value();
                first.filter(|(start, _)| **start <= half.next).map(|(_, held)| held.time_ns)
            };
            let first = SIDES.into_iter().filter_map(|from| waiting(&from).map(|time| (time, from)));
            match first.min_by_key(|(time, _)| *time) {
                Some((_, from)) => self.deliver_first(from, &mut 0, output)?,
                None => return Ok(()),
            }
        }
    }

    fn give_up<S: Streams>(
        &mut self,
        from: Side,
        all: bool,
        output: &mut Output<'_, S>,
    ) -> anyhow::Result<bool> {
        let theirs = &self.halves[1 - index(from)];
        let waiting = theirs.held.first_key_value().filter(|(start, _)| **start <= theirs.next);
        let needed = waiting.map_or(0, |(_, held)| held.acknowledged);
        let half = &mut self.halves[index(from)];
        let first = half.held.first_key_value().map(|(&start, held)| (start, held.time_ns));
        let mut target = match first {
            Some((start, _)) if all => start,
            Some((start, _)) => half.acknowledged.min(start),
            None => half.acknowledged,
        };
        if needed > half.next {
            // Only what the next packet of the other side came after: a gap a question, not one of all questions.
            target = target.min(needed);
        }
        if target <= half.next {
            return Ok(false);
        }
        if first.is_none() && target == half.next + 1 {
            // The end of the stream takes a number as a byte does; commands of one byte there are none.
            half.next = target;
            half.is_finished = true;
            return Ok(true);
        }
        let missing = target - half.next;
        half.next = target;
        let time_ns = first.map_or(half.acknowledged_ns, |(_, time_ns)| time_ns);
        self.gap(time_ns, from, missing, output)?;
        Ok(true)
    }

    /// Whether the other side still tells what it got, so that a hole may yet be filled.
    pub fn is_heard_since(&self, time_ns: u64) -> bool {
        let holed = |half: &&Half| !half.held.is_empty();
        self.halves.iter().filter(holed).all(|half| half.acknowledged_ns > time_ns)
    }

    /// Nothing more will be seen of it, whether it goes on or not.
    pub fn cut<S: Streams>(&mut self, output: &mut Output<'_, S>) -> anyhow::Result<()> {
        if let Some(ended_ns) = self.ended_ns {
            return self.close(ended_ns, output);
        }
        if self.state == State::Open {
            self.force(true, output)?;
            output.streams.cut(self.session)?;
        }
        self.state = State::Closed;
        Ok(())
    }

    pub fn close<S: Streams>(&mut self, time_ns: u64, output: &mut Output<'_, S>) -> anyhow::Result<()> {
        if self.state == State::Open {
            self.force(true, output)?;
            output.streams.closed(time_ns, self.session)?;
        }
        self.state = State::Closed;
        Ok(())
    }
}
