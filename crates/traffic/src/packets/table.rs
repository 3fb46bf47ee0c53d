//! All connections: found by their addresses, begun, ended, and the idlest forgotten when there are too many.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};

use super::connection::{Connection, Output, State};
use super::options::{PacketOptions, Servers};
use super::segment::{ACK, Endpoint, RST, SYN, Segment};
use crate::coverage::Coverage;
use crate::stream::{Side, Streams};

/// How long data that the receiver acknowledged may still turn up: queues of a card are captured one after the other.
const GRACE_NS: u64 = 10_000_000;
/// How long a hole stays open when the other direction is not captured at all.
const HOLE_NS: u64 = 10_000_000_000;
/// Closed connections that are remembered, for what still arrives of them.
const REMEMBERED: usize = 8192;
const NOBODY: u32 = u32::MAX;
/// Connections of the same addresses that came in different tunnels.
const MOST_ALIKE: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    low: Endpoint,
    high: Endpoint,
}

impl Key {
    fn of(segment: &Segment<'_>) -> Self {
        let (a, b) = (segment.source, segment.destination);
        if a < b { Self { low: a, high: b } } else { Self { low: b, high: a } }
    }
}

/// Multiplies what it is given into 64 bits. Its seed is secret, so that a client cannot aim at one bucket.
#[derive(Clone)]
struct Folding {
    state: u64,
    seed: u64,
}

impl Folding {
    fn fold(&mut self, value: u64) {
        let product = u128::from(self.state ^ value) * u128::from(self.seed | 1);
        self.state = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.fold(byte.into());
        }
    }

    fn write_u16(&mut self, value: u16) {
        self.fold(value.into());
    }

    fn write_u128(&mut self, value: u128) {
        self.fold(value as u64);
        self.fold((value >> 64) as u64);
    }
}

impl BuildHasher for Folding {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        self.clone()
    }
}

struct Slot {
    connection: Connection,
    key: Key,
    /// The tunnels in which its packets come: one, or one a direction.
    paths: [u64; 2],
    /// Another one of the same addresses.
    alike: u32,
    older: u32,
    newer: u32,
}

struct Watched {
    since_ns: u64,
    slot: u32,
    session: u64,
}

pub struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    found: HashMap<Key, u32, Folding>,
    oldest: u32,
    newest: u32,
    /// Closed ones, and those with something missing: each in the order in which they came to it.
    closed: VecDeque<(u32, u64)>,
    watched: VecDeque<Watched>,
    last_session: u64,
    held_bytes: usize,
    max_connections: usize,
    max_held_bytes: usize,
}

impl Table {
    pub fn new(options: &PacketOptions) -> Self {
        let seed = RandomState::new().hash_one(0);
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            found: HashMap::with_hasher(Folding { state: seed.rotate_left(32), seed }),
            oldest: NOBODY,
            newest: NOBODY,
            closed: VecDeque::new(),
            watched: VecDeque::new(),
            last_session: 0,
            held_bytes: 0,
            max_connections: options.max_connections.clamp(1, NOBODY as usize - 1),
            max_held_bytes: options.max_held_bytes,
        }
    }

    pub fn segment<S: Streams>(
        &mut self,
        time_ns: u64,
        segment: &Segment<'_>,
        servers: &Servers,
        streams: &mut S,
        coverage: &mut Coverage,
    ) -> anyhow::Result<()> {
        self.watch(time_ns, streams, coverage)?;
        let key = Key::of(segment);
        let slot = match self.find(&key, segment) {
            Some(slot) => slot,
            None => {
                // What is left of a connection that ended before we looked begins none.
                if segment.has(RST) || (segment.length == 0 && !segment.has(SYN)) {
                    return Ok(());
                }
                let (client, server) = servers.roles(segment);
                self.limit_alike(&key, streams, coverage)?;
                let slot = self.take_slot(streams, coverage)?;
                self.begin(slot, key, segment.path, (client, server), time_ns);
                slot
            }
        };
        self.touch(slot);
        if !self.handshake(slot, time_ns, segment, servers, streams, coverage)? {
            return Ok(());
        }
        let (connection, mut output) = self.split(slot, streams, coverage);
        let from = connection.side(segment.source);
        if segment.has(RST) {
            if connection.is_reset(from, segment.sequence) {
                self.close(slot, time_ns, streams, coverage)?;
            }
            return Ok(());
        }
        if connection.state == State::Asked && (!segment.has(SYN) || segment.has(ACK) || segment.length > 0) {
            connection.open(&mut output)?;
        }
        if connection.state == State::Open {
            connection.segment(time_ns, from, segment, &mut output)?;
        }
        if connection.is_finished() {
            return self.close(slot, time_ns, streams, coverage);
        }
        if connection.is_stalled() {
            connection.stalled_ns.get_or_insert(time_ns);
            if !std::mem::replace(&mut connection.is_watched, true) {
                let session = connection.session;
                self.watched.push_back(Watched { since_ns: time_ns, slot, session });
                self.forget_unwatched();
            }
        } else {
            connection.stalled_ns = None;
        }
        Ok(())
    }

    /// What SYNs mean for the connection of these addresses; false if the packet is done with.
    fn handshake<S: Streams>(
        &mut self,
        slot: u32,
        time_ns: u64,
        segment: &Segment<'_>,
        servers: &Servers,
        streams: &mut S,
        coverage: &mut Coverage,
    ) -> anyhow::Result<bool> {
        let connection = &mut self.slots[slot as usize].connection;
        let from = connection.side(segment.source);
        let isn = segment.sequence;
        if segment.has(SYN) && !segment.has(ACK) {
            if connection.client_isn == Some(isn) && from == Side::Client {
                coverage.retransmitted_packets += 1;
                return Ok(false);
            }
            let is_over = connection.state != State::Open || connection.has_finished_half();
            if !is_over {
                // It may be old, or forged: the server's answer, or the client's next packet, tells.
                connection.next_syn = Some((isn, time_ns));
                return Ok(false);
            }
            self.restart(slot, time_ns, segment.source, segment.destination, streams, coverage)?;
            self.slots[slot as usize].connection.asked(isn);
            return Ok(true);
        }
        if let Some((next_isn, asked_ns)) = connection.next_syn {
            let expected = next_isn.wrapping_add(1);
            let is_answer = segment.has(SYN) && segment.acknowledged == expected;
            if is_answer || (!segment.has(SYN) && segment.sequence == expected) {
                let client = if is_answer { segment.destination } else { segment.source };
                let server = if is_answer { segment.source } else { segment.destination };
                self.restart(slot, asked_ns, client, server, streams, coverage)?;
                self.slots[slot as usize].connection.asked(next_isn);
            }
        }
        let connection = &mut self.slots[slot as usize].connection;
        if segment.has(SYN) {
            if connection.server_isn == Some(isn) {
                coverage.retransmitted_packets += 1;
                return Ok(false);
            }
            let is_other = connection.server_isn.is_some()
                || from == Side::Client
                || connection.state == State::Closed
                || (connection.state == State::Open && connection.client_isn.is_none());
            if is_other {
                self.restart(slot, time_ns, segment.destination, segment.source, streams, coverage)?;
            }
            self.slots[slot as usize].connection.answered(isn, segment.acknowledged);
            return Ok(true);
        }
        if connection.state == State::Closed {
            coverage.skipped_bytes += u64::from(segment.length);
            return Ok(false);
        }
        if segment.length > 0 && connection.is_foreign(from, segment) {
            let (client, server) = servers.roles(segment);
            self.restart(slot, time_ns, client, server, streams, coverage)?;
        }
        Ok(true)
    }

    /// Looks again at connections with something missing.
    fn watch<S: Streams>(
        &mut self,
        time_ns: u64,
        streams: &mut S,
        coverage: &mut Coverage,
    ) -> anyhow::Result<()> {
        while let Some(first) = self.watched.front_mut() {
            // A clock that was set back: it waits from then on.
            first.since_ns = first.since_ns.min(time_ns);
            if time_ns - first.since_ns < GRACE_NS {
                break;
            }
            let Some(Watched { since_ns: asked_ns, slot, session }) = self.watched.pop_front() else { break };
            let (connection, mut output) = self.split(slot, streams, coverage);
            if connection.session != session {
                continue;
            }
            let Some(since_ns) = connection.stalled_ns.filter(|_| connection.state == State::Open) else {
                connection.is_watched = false;
                continue;
            };
            let since_ns = since_ns.min(asked_ns);
            connection.stalled_ns = Some(since_ns);
            let waited_ns = time_ns - since_ns;
            if waited_ns >= GRACE_NS {
                let is_hopeless = waited_ns >= HOLE_NS && !connection.is_heard_since(since_ns);
                connection.force(is_hopeless, &mut output)?;
            }
            if connection.is_finished() {
                self.close(slot, time_ns, streams, coverage)?;
            } else if connection.is_stalled() {
                connection.stalled_ns.get_or_insert(time_ns);
                self.watched.push_back(Watched { since_ns: time_ns, slot, session });
            } else {
                connection.stalled_ns = None;
                connection.is_watched = false;
            }
        }
        Ok(())
    }

    /// Entries of connections that are gone go when their time comes; where the time stands still, here.
    fn forget_unwatched(&mut self) {
        if self.watched.len() > 2 * self.slots.len() {
            let slots = &self.slots;
            self.watched.retain(|entry| slots[entry.slot as usize].connection.session == entry.session);
        }
    }

    /// Lets go of all that is left, in the order in which it began.
    pub fn finish<S: Streams>(mut self, streams: &mut S, coverage: &mut Coverage) -> anyhow::Result<()> {
        let mut slots: Vec<u32> = self.found.values().flat_map(|&first| self.alike(first)).collect();
        slots.sort_unstable_by_key(|&slot| self.slots[slot as usize].connection.session);
        for slot in slots {
            let (connection, mut output) = self.split(slot, streams, coverage);
            connection.cut(&mut output)?;
        }
        Ok(())
    }

    fn split<'a, S: Streams>(
        &'a mut self,
        slot: u32,
        streams: &'a mut S,
        coverage: &'a mut Coverage,
    ) -> (&'a mut Connection, Output<'a, S>) {
        let output = Output {
            streams,
            coverage,
            held_bytes: &mut self.held_bytes,
            max_held_bytes: self.max_held_bytes,
        };
        (&mut self.slots[slot as usize].connection, output)
    }

    /// The connection of a packet. The same addresses in another tunnel are another network's, unless the packet's
    /// numbers are those that the connection expects: then each direction has its tunnel, or it was mirrored twice.
    fn find(&mut self, key: &Key, segment: &Segment<'_>) -> Option<u32> {
        let first = *self.found.get(key)?;
        if self.slots[first as usize].paths.contains(&segment.path) {
            return Some(first);
        }
        let same = self.alike(first).find(|&slot| self.slots[slot as usize].paths.contains(&segment.path));
        if same.is_some() {
            return same;
        }
        let slot = self.alike(first).find(|&slot| self.slots[slot as usize].connection.expects(segment))?;
        let paths = &mut self.slots[slot as usize].paths;
        if paths[1] == paths[0] {
            paths[1] = segment.path;
        }
        Some(slot)
    }

    /// A connection and all others of its addresses.
    fn alike(&self, first: u32) -> impl Iterator<Item = u32> {
        let next = |slot: &u32| Some(self.slots[*slot as usize].alike).filter(|&next| next != NOBODY);
        std::iter::successors(Some(first), next)
    }

    fn begin(&mut self, slot: u32, key: Key, path: u64, ends: (Endpoint, Endpoint), time_ns: u64) {
        self.last_session += 1;
        let connection = Connection::new(self.last_session, ends.0, ends.1, time_ns);
        let alike = self.found.get(&key).copied().unwrap_or(NOBODY);
        let entry = Slot { connection, key, paths: [path; 2], alike, older: NOBODY, newer: NOBODY };
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = entry,
            None => self.slots.push(entry),
        }
        self.found.insert(key, slot);
        self.link_newest(slot);
    }

    /// The same addresses, another connection.
    fn restart<S: Streams>(
        &mut self,
        slot: u32,
        time_ns: u64,
        client: Endpoint,
        server: Endpoint,
        streams: &mut S,
        coverage: &mut Coverage,
    ) -> anyhow::Result<()> {
        let (connection, mut output) = self.split(slot, streams, coverage);
        // One that was never opened can lend its number.
        let was_told = connection.state != State::Asked;
        connection.close(time_ns, &mut output)?;
        self.last_session += u64::from(was_told);
        let connection = &mut self.slots[slot as usize].connection;
        let session = if was_told { self.last_session } else { connection.session };
        *connection = Connection::new(session, client, server, time_ns);
        Ok(())
    }

    fn close<S: Streams>(
        &mut self,
        slot: u32,
        time_ns: u64,
        streams: &mut S,
        coverage: &mut Coverage,
    ) -> anyhow::Result<()> {
        let (connection, mut output) = self.split(slot, streams, coverage);
        if connection.state == State::Closed {
            return Ok(());
        }
        connection.close(time_ns, &mut output)?;
        let session = connection.session;
        self.closed.push_back((slot, session));
        if self.closed.len() > REMEMBERED
            && let Some((slot, session)) = self.closed.pop_front()
        {
            let connection = &self.slots[slot as usize].connection;
            if connection.session == session && connection.state == State::Closed {
                self.remove(slot);
            }
        }
        Ok(())
    }

    /// Lets go of the oldest of many connections with the same addresses.
    fn limit_alike<S: Streams>(
        &mut self,
        key: &Key,
        streams: &mut S,
        coverage: &mut Coverage,
    ) -> anyhow::Result<()> {
        let Some(&first) = self.found.get(key) else { return Ok(()) };
        let Some(last) = self.alike(first).nth(MOST_ALIKE - 1) else { return Ok(()) };
        let (connection, mut output) = self.split(last, streams, coverage);
        connection.cut(&mut output)?;
        self.remove(last);
        Ok(())
    }

    /// A free place; when there are too many connections, that of the idlest one.
    fn take_slot<S: Streams>(&mut self, streams: &mut S, coverage: &mut Coverage) -> anyhow::Result<u32> {
        if self.slots.len() - self.free.len() >= self.max_connections {
            let oldest = self.oldest;
            let (connection, mut output) = self.split(oldest, streams, coverage);
            connection.cut(&mut output)?;
            self.remove(oldest);
        }
        // Below NOBODY, by the limit on connections.
        Ok(self.free.pop().unwrap_or(self.slots.len() as u32))
    }

    fn remove(&mut self, slot: u32) {
        self.unlink(slot);
        let entry = &mut self.slots[slot as usize];
        // No session has this number, so nothing that still names the place finds it.
        entry.connection.session = 0;
        let (key, alike) = (entry.key, entry.alike);
        match self.found.get(&key).copied() {
            Some(first) if first != slot => {
                let before = self.alike(first).find(|&other| self.slots[other as usize].alike == slot);
                if let Some(before) = before {
                    self.slots[before as usize].alike = alike;
                }
            }
            _ if alike == NOBODY => drop(self.found.remove(&key)),
            _ => drop(self.found.insert(key, alike)),
        }
        self.free.push(slot);
    }

    fn touch(&mut self, slot: u32) {
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    fn link_newest(&mut self, slot: u32) {
        self.slots[slot as usize].older = self.newest;
        self.slots[slot as usize].newer = NOBODY;
        match self.newest {
            NOBODY => self.oldest = slot,
            newest => self.slots[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { older, newer, .. } = self.slots[slot as usize];
        match older {
            NOBODY => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NOBODY => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
    }
}
