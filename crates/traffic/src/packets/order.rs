//! The order of a capture's packets.
//!
//! Connections are put together in the order in which packets come, and small disorder is no trouble there. A capture
//! that was turned round, or of which the packets were mixed, is none of that: its connections end before they begin.
//! The first packets show it, and such a capture is sorted by time, as far as memory goes. What is older than others
//! before it all the same is counted and said, because connections may be split by it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::frame::{Frame, Frames};
use super::link::Link;
use crate::coverage::counted;

/// So many packets are looked at before the first is handed on.
const LOOKED_AT: usize = 64;
/// More steps back than one in so many show a capture that is not in order: queues of a card make fewer, a clock that was
/// set back makes one.
const IN_ORDER: usize = 4;
/// Bytes of packets that a sort may hold.
pub const MOST_HELD: usize = 128 << 20;
/// What one costs beside its bytes.
const HELD_OVERHEAD: usize = 96;
/// Steps back that connections forgive.
const FORGIVEN_NS: u64 = 10_000_000;

struct Kept {
    time_ns: u64,
    link: Link,
    data: Box<[u8]>,
    wire_bytes: usize,
    offset: u64,
    item: u64,
}

/// Packets by their time, and those of one time as they came.
struct Entry {
    sorted_ns: u64,
    number: u64,
    kept: Kept,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.sorted_ns, self.number).cmp(&(other.sorted_ns, other.number))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Looking,
    AsTheyCome,
    Sorting,
}

/// Hands frames on in the order of their times, where the order in which they come is none.
pub struct Ordered<'a, F> {
    frames: &'a mut F,
    mode: Mode,
    held: BinaryHeap<Reverse<Entry>>,
    held_bytes: usize,
    most_held: usize,
    number: u64,
    last_ns: u64,
    steps_back: usize,
    /// Of what was handed on: the newest time, and how many are older than that, by how much at most.
    newest_ns: u64,
    late: u64,
    latest_by_ns: u64,
}

impl<'a, F: Frames> Ordered<'a, F> {
    pub fn new(frames: &'a mut F, most_held: usize) -> Self {
        Self {
            frames,
            mode: Mode::Looking,
            held: BinaryHeap::new(),
            held_bytes: 0,
            most_held,
            number: 0,
            last_ns: 0,
            steps_back: 0,
            newest_ns: 0,
            late: 0,
            latest_by_ns: 0,
        }
    }

    fn keep(&mut self, frame: &Frame<'_>) {
        self.number += 1;
        self.steps_back += usize::from(frame.time_ns > 0 && frame.time_ns < self.last_ns);
        // Where packets have no time, they follow the one before them.
        let sorted_ns = if frame.time_ns > 0 { frame.time_ns } else { self.last_ns };
        self.last_ns = sorted_ns;
        self.held_bytes += frame.data.len() + HELD_OVERHEAD;
        let kept = Kept {
            time_ns: frame.time_ns,
            link: frame.link,
            data: frame.data.into(),
            wire_bytes: frame.wire_bytes,
            offset: frame.offset,
            item: frame.item,
        };
        self.held.push(Reverse(Entry { sorted_ns, number: self.number, kept }));
    }

    fn decide(&mut self) -> anyhow::Result<()> {
        if self.steps_back * IN_ORDER > self.held.len() {
            self.mode = Mode::Sorting;
            return Ok(());
        }
        self.mode = Mode::AsTheyCome;
        let mut held = std::mem::take(&mut self.held).into_vec();
        held.sort_unstable_by_key(|Reverse(entry)| entry.number);
        held.into_iter().try_for_each(|Reverse(entry)| self.hand_on(&entry))
    }

    fn hand_on(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let kept = &entry.kept;
        let frame = Frame {
            time_ns: kept.time_ns,
            link: kept.link,
            data: &kept.data,
            wire_bytes: kept.wire_bytes,
            offset: kept.offset,
            item: kept.item,
        };
        self.pass(&frame)
    }

    fn pass(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        if frame.time_ns >= self.newest_ns {
            self.newest_ns = frame.time_ns;
        } else if frame.time_ns > 0 && self.newest_ns - frame.time_ns > FORGIVEN_NS {
            self.late += 1;
            self.latest_by_ns = self.latest_by_ns.max(self.newest_ns - frame.time_ns);
        }
        self.frames.frame(frame)
    }

    fn hand_on_oldest(&mut self) -> anyhow::Result<()> {
        let Some(Reverse(entry)) = self.held.pop() else { return Ok(()) };
        self.held_bytes -= entry.kept.data.len() + HELD_OVERHEAD;
        self.hand_on(&entry)
    }

    /// Hands on what is left and says what the order was.
    pub fn finish(mut self) -> anyhow::Result<()> {
        if self.mode == Mode::Looking {
            self.decide()?;
        }
        while !self.held.is_empty() {
            self.hand_on_oldest()?;
        }
        if self.mode == Mode::Sorting {
            self.frames.note("the packets are not in the order of their times; they were sorted by them");
        }
        if self.late > 0 {
            let seconds = self.latest_by_ns.div_ceil(1_000_000) as f64 / 1e3;
            self.frames.note(&format!(
                "{} came behind others that are up to {seconds} s newer: connections may be split (`reordercap` of \
                 Wireshark sorts a capture)",
                counted(self.late, "packet")
            ));
        }
        Ok(())
    }
}

impl<F: Frames> Frames for Ordered<'_, F> {
    fn frame(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        match self.mode {
            Mode::AsTheyCome => return self.pass(frame),
            Mode::Looking => {
                self.keep(frame);
                if self.held.len() >= LOOKED_AT {
                    self.decide()?;
                }
            }
            Mode::Sorting => self.keep(frame),
        }
        while self.held_bytes > self.most_held && self.mode == Mode::Sorting {
            self.hand_on_oldest()?;
        }
        Ok(())
    }

    fn damage(&mut self, offset: u64, item: u64, skipped: u64, reason: &str) {
        self.frames.damage(offset, item, skipped, reason);
    }

    fn note(&mut self, note: &str) {
        self.frames.note(note);
    }

    fn dropped(&mut self, packets: u64) {
        self.frames.dropped(packets);
    }
}
