//! Packets of IP that came in pieces: put together in bounded memory.
//!
//! A tunnel's packets are longer than what they carry, so their senders cut them. Pieces may come in any order, and
//! twice; what is not whole when room is needed, or at the end, counts as damage, its first piece as a packet that
//! was cut.

use std::collections::{HashMap, VecDeque};

use xxhash_rust::xxh3::xxh3_64;

use super::path::Path;
use super::segment::Fragment;

/// Packets that may be incomplete, or were completed a short time ago; and the bytes of all.
const MOST_PACKETS: usize = 1024;
const MOST_BYTES: usize = 16 << 20;
/// How long pieces wait for the others, which are sent at once: bytes that are acknowledged are missed soon after.
const WAIT_NS: u64 = 5_000_000;
/// No packet of IP has more bytes, or so many pieces.
const LONGEST: usize = 65_535;
const MOST_PIECES: usize = 8192;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    path: u64,
    ends: (u128, u128),
    protocol: u8,
    number: u32,
}

/// A packet that was put together, or as much of it as came.
pub struct Packet {
    pub time_ns: u64,
    pub path: Path,
    pub ends: (u128, u128),
    pub protocol: u8,
    pub bytes: Vec<u8>,
    pub is_whole: bool,
}

struct Partial {
    path: Path,
    time_ns: u64,
    /// Pieces by their place: what they carry, and its hash.
    pieces: Vec<(usize, u64, Box<[u8]>)>,
    /// Its length, once the last piece came.
    length: Option<usize>,
    is_done: bool,
    bytes: usize,
}

/// What became of a piece.
pub enum Taken {
    Waits,
    /// It came before.
    Again,
    Whole(Box<Packet>),
    Damaged(&'static str),
}

#[derive(Default)]
pub struct Fragments {
    partials: HashMap<Key, Partial>,
    /// By their age.
    order: VecDeque<Key>,
    bytes: usize,
    /// Incomplete ones whose number was used again.
    replaced: VecDeque<Packet>,
}

impl Fragments {
    /// Takes a piece. `path` is that of its packet.
    pub fn take(&mut self, time_ns: u64, fragment: &Fragment<'_>, path: &Path) -> Taken {
        let ends = (fragment.source, fragment.destination);
        let (protocol, number) = (fragment.protocol, fragment.number);
        let key = Key { path: path.key(), ends, protocol, number };
        let end = fragment.offset + fragment.bytes.len();
        if end > LONGEST || fragment.bytes.is_empty() {
            return Taken::Damaged("a fragment of IP that cannot be");
        }
        let hash = xxh3_64(fragment.bytes);
        let known = self.partials.get(&key);
        let before = known.and_then(|known| known.pieces.iter().find(|piece| piece.0 == fragment.offset));
        if before.is_some_and(|before| before.1 == hash) {
            return Taken::Again;
        }
        // The number is used again for another packet: the one before is over.
        let is_over = known.is_some_and(|known| known.is_done) || before.is_some();
        if known.is_none() {
            self.order.push_back(key);
        }
        if is_over && let Some(incomplete) = self.forget(&key) {
            self.replaced.push_back(incomplete);
        }
        let fresh =
            || Partial { path: *path, time_ns, pieces: Vec::new(), length: None, is_done: false, bytes: 0 };
        let partial = self.partials.entry(key).or_insert_with(fresh);
        if partial.pieces.len() >= MOST_PIECES {
            return Taken::Damaged("a packet of IP in more pieces than it can have");
        }
        partial.pieces.push((fragment.offset, hash, fragment.bytes.into()));
        partial.bytes += fragment.bytes.len();
        self.bytes += fragment.bytes.len();
        if !fragment.has_more {
            partial.length = Some(end);
        }
        // Only then can it be whole: sorting each time would cost a stranger little and us much.
        if partial.length.is_none_or(|length| partial.bytes < length) {
            return Taken::Waits;
        }
        partial.pieces.sort_by_key(|piece| piece.0);
        let bytes = partial.contiguous();
        if partial.length != Some(bytes.len()) {
            return Taken::Waits;
        }
        partial.is_done = true;
        partial.pieces.iter_mut().for_each(|piece| piece.2 = Box::default());
        self.bytes -= std::mem::take(&mut partial.bytes);
        Taken::Whole(Box::new(Packet { time_ns, path: partial.path, ends, protocol, bytes, is_whole: true }))
    }

    fn forget(&mut self, key: &Key) -> Option<Packet> {
        let mut partial = self.partials.remove(key)?;
        self.bytes -= partial.bytes;
        if partial.is_done {
            return None;
        }
        partial.pieces.sort_by_key(|piece| piece.0);
        let bytes = partial.contiguous();
        let Partial { path, time_ns, .. } = partial;
        Some(Packet { time_ns, path, ends: key.ends, protocol: key.protocol, bytes, is_whole: false })
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The oldest one, if it waited too long or there are more than are kept; at the end, without a time, any. None when
    /// that is done, and nothing in it for one that had been completed.
    pub fn give_up(&mut self, now_ns: Option<u64>) -> Option<Option<Packet>> {
        if let Some(replaced) = self.replaced.pop_front() {
            return Some(Some(replaced));
        }
        let oldest = *self.order.front()?;
        let is_old = now_ns
            .zip(self.partials.get(&oldest))
            .is_none_or(|(now_ns, partial)| now_ns.saturating_sub(partial.time_ns) > WAIT_NS);
        if !is_old && self.partials.len() <= MOST_PACKETS && self.bytes <= MOST_BYTES {
            return None;
        }
        self.order.pop_front();
        Some(self.forget(&oldest))
    }
}

impl Partial {
    /// The bytes from the start to the first hole.
    fn contiguous(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (offset, _, piece) in &self.pieces {
            let Some(known) = bytes.len().checked_sub(*offset) else { break };
            bytes.extend_from_slice(piece.get(known..).unwrap_or_default());
        }
        bytes
    }
}
