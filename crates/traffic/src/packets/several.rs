//! Several captures read as one: pieces of a rotation (`tcpdump -C`, `-G`) in whatever order they are named, and captures
//! of several interfaces or hosts at the same time. Connections go on from one to the next, and a packet that several of
//! them have counts once.
//!
//! Each file is read by a thread from the time on at which its first packet is due; packets are handed on by their times.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use super::early::Early;
use super::frame::{Frame, Frames};
use super::link::Link;
use super::order::{MOST_HELD, Ordered};
use super::window::Window;
use super::{PacketOptions, Packets, read_frames};
use crate::coverage::Coverage;
use crate::stream::Streams;

/// Packets that a thread sends at once, by their number and bytes, and how often before the other side takes some.
const BATCH_FRAMES: usize = 256;
const BATCH_BYTES: usize = 256 << 10;
const BATCHES: usize = 4;
/// Files are opened so long before they are due: their first packets may not be the oldest.
const EARLY_NS: u64 = 1_000_000_000;

/// A capture, and what opens it.
pub struct Capture {
    pub name: String,
    pub open: Box<dyn Fn() -> anyhow::Result<Box<dyn Read + Send>> + Send + Sync>,
}

struct Kept {
    time_ns: u64,
    link: Link,
    data: Box<[u8]>,
    wire_bytes: usize,
    offset: u64,
    item: u64,
}

/// What a thread finds in its file.
enum Found {
    Frame(Kept),
    Damage { offset: u64, item: u64, skipped: u64, reason: String },
    Note(String),
    Dropped(u64),
    End { bytes: u64 },
    Failed(anyhow::Error),
}

/// Ends the reading of a file of which enough is known.
#[derive(Debug, thiserror::Error)]
#[error("enough is known")]
struct Enough;

/// Sends what is found, some at once.
struct Sending {
    to: SyncSender<Vec<Found>>,
    batch: Vec<Found>,
    bytes: usize,
}

impl Sending {
    fn send(&mut self) -> anyhow::Result<()> {
        self.bytes = 0;
        // The other side is gone where reading failed elsewhere.
        Ok(self.to.send(std::mem::take(&mut self.batch)).map_err(|_| Enough)?)
    }
}

impl Frames for Sending {
    fn frame(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        self.bytes += frame.data.len();
        self.batch.push(Found::Frame(Kept {
            time_ns: frame.time_ns,
            link: frame.link,
            data: frame.data.into(),
            wire_bytes: frame.wire_bytes,
            offset: frame.offset,
            item: frame.item,
        }));
        if self.batch.len() >= BATCH_FRAMES || self.bytes >= BATCH_BYTES { self.send() } else { Ok(()) }
    }

    fn damage(&mut self, offset: u64, item: u64, skipped: u64, reason: &str) {
        self.batch.push(Found::Damage { offset, item, skipped, reason: reason.to_owned() });
    }

    fn note(&mut self, note: &str) {
        self.batch.push(Found::Note(note.to_owned()));
    }

    fn dropped(&mut self, packets: u64) {
        self.batch.push(Found::Dropped(packets));
    }
}

/// Takes the time of the first packet, and no more.
#[derive(Default)]
struct FirstTime(u64);

impl Frames for FirstTime {
    fn frame(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        self.0 = frame.time_ns;
        Err(Enough.into())
    }

    fn damage(&mut self, _: u64, _: u64, _: u64, _: &str) {}

    fn note(&mut self, _: &str) {}

    fn dropped(&mut self, _: u64) {}
}

/// A file that is being read, and what was found in it and not handed on.
struct Active {
    index: usize,
    from: Receiver<Vec<Found>>,
    found: VecDeque<Found>,
}

impl Active {
    /// Time of its next packet; what is no packet comes at once.
    fn due_ns(&mut self) -> u64 {
        if self.found.is_empty() {
            let end = || vec![Found::Failed(anyhow::anyhow!("the reader of a capture broke down"))];
            self.found.extend(self.from.recv().unwrap_or_else(|_| end()));
        }
        match self.found.front() {
            Some(Found::Frame(kept)) => kept.time_ns,
            _ => 0,
        }
    }
}

fn first_ns(capture: &Capture) -> anyhow::Result<u64> {
    let mut first = FirstTime::default();
    let mut window = Window::new((capture.open)()?);
    // Whatever is wrong with the file is found again where it is read.
    let _ = read_frames(&mut window, &mut first);
    Ok(first.0)
}

fn send_all(capture: &Capture, to: SyncSender<Vec<Found>>) {
    let mut sending = Sending { to, batch: Vec::new(), bytes: 0 };
    let end = match read_one(capture, &mut sending) {
        Ok(bytes) => Found::End { bytes },
        Err(error) if error.downcast_ref::<Enough>().is_some() => return,
        Err(error) => Found::Failed(error),
    };
    sending.batch.push(end);
    // Nobody may be there to take it.
    let _ = sending.send();
}

fn read_one(capture: &Capture, frames: &mut impl Frames) -> anyhow::Result<u64> {
    let mut window = Window::new((capture.open)()?);
    let mut ordered = Ordered::new(frames, MOST_HELD);
    super::read_ordered(&mut window, &mut ordered, &capture.name)?;
    ordered.finish()?;
    Ok(window.offset() + window.bytes().len() as u64)
}

fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    (index, capture): (usize, &'env Capture),
) -> Active {
    let (to, from) = sync_channel(BATCHES);
    scope.spawn(move || send_all(capture, to));
    Active { index, from, found: VecDeque::new() }
}

/// Reads captures as one, as `read` does a single one.
///
/// # Errors
/// As with `read`.
pub fn read_together(
    captures: &[Capture],
    options: &PacketOptions,
    streams: &mut impl Streams,
) -> anyhow::Result<Coverage> {
    let mut waiting: Vec<(u64, usize)> = Vec::new();
    for (index, capture) in captures.iter().enumerate() {
        waiting.push((first_ns(capture)?, index));
    }
    // The earliest is the last.
    waiting.sort_unstable_by(|a, b| b.cmp(a));
    let mut packets = Packets::new(&captures[0].name, options, streams);
    // Which port is a server's is found out in each file.
    let mut early: Vec<Option<Early>> =
        captures.iter().map(|_| options.finds_port.then(Early::default)).collect();
    let mut bytes = 0;
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let mut active: Vec<Active> = Vec::new();
        loop {
            let due = active.iter_mut().enumerate().map(|(place, file)| (file.due_ns(), place)).min();
            if let Some((first_ns, index)) = waiting.last().copied()
                && due.is_none_or(|(due_ns, _)| first_ns <= due_ns.saturating_add(EARLY_NS))
            {
                waiting.pop();
                active.push(start(scope, (index, &captures[index])));
                continue;
            }
            let Some((_, place)) = due else { return Ok(()) };
            let index = active[place].index;
            packets.name = &captures[index].name;
            std::mem::swap(&mut packets.early, &mut early[index]);
            let found = active[place].found.pop_front();
            match found {
                Some(Found::Frame(kept)) => packets.frame(&Frame {
                    time_ns: kept.time_ns,
                    link: kept.link,
                    data: &kept.data,
                    wire_bytes: kept.wire_bytes,
                    offset: kept.offset,
                    item: kept.item,
                })?,
                Some(Found::Damage { offset, item, skipped, reason }) => {
                    packets.damage(offset, item, skipped, &reason);
                }
                Some(Found::Note(note)) => packets.note(&note),
                Some(Found::Dropped(count)) => packets.dropped(count),
                Some(Found::End { bytes: of_file }) => {
                    bytes += of_file;
                    active.swap_remove(place);
                }
                Some(Found::Failed(error)) => return Err(error),
                None => {}
            }
            std::mem::swap(&mut packets.early, &mut early[index]);
        }
    })?;
    let mut coverage = packets.finish()?;
    coverage.bytes = bytes;
    Ok(coverage)
}
