//! Reads a recording in the order of start, from any time on.

use std::path::Path;

use anyhow::Context;

use super::decode::Block;
use super::frame::{HEADER_BYTES, Header, Kind, VERSION};
use super::info::Info;
use super::source::{Entry, Source};
use crate::coverage::Coverage;
use crate::event::Event;
use base::error::AgentError;

/// Blocks that are read side by side where their times overlap, which those of late events do. Beyond it events come
/// out of order, and are counted.
const MAX_OPEN_BLOCKS: usize = 24;
/// Buffers of closed blocks that are used again.
const MAX_SPARE_BUFFERS: usize = 4;
/// An info block is small; one that claims more is not ours.
const MAX_INFO_BYTES: u32 = 4 << 20;

/// A recording that is being read.
pub struct Reader {
    source: Source,
    /// All blocks in the order of the file, and those of events in the order of their first start.
    entries: Vec<Entry>,
    order: Vec<Entry>,
    next_block: usize,
    open: Vec<OpenBlock>,
    from_ns: u64,
    last_ns: u64,
    infos: Vec<Info>,
    damage: Coverage,
    unordered: u64,
    has_index: bool,
    stored: Vec<u8>,
    spare: Vec<Vec<u8>>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

struct OpenBlock {
    block: Block,
    entry: Entry,
    /// Its place in the order: what starts at the same time comes in this order.
    index: usize,
}

impl Reader {
    /// # Errors
    /// The file cannot be read, has no block of a recording, or is of a later version.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        Self::of(Source::open(path)?)
    }

    /// # Errors
    /// As with `open`.
    pub fn of_bytes(bytes: Vec<u8>) -> anyhow::Result<Self> {
        Self::of(Source::Bytes(bytes))
    }

    fn of(source: Source) -> anyhow::Result<Self> {
        let mut reader = Reader {
            source,
            entries: Vec::new(),
            order: Vec::new(),
            next_block: 0,
            open: Vec::new(),
            from_ns: 0,
            last_ns: 0,
            infos: Vec::new(),
            damage: Coverage::default(),
            unordered: 0,
            has_index: false,
            stored: Vec::new(),
            spare: Vec::new(),
            decompressor: zstd::bulk::Decompressor::new()?,
        };
        reader.find_blocks()?;
        Ok(reader)
    }

    fn find_blocks(&mut self) -> anyhow::Result<()> {
        let context = format!("cannot read {}", self.source.name());
        if let Some(entries) = self.read_index().context(context.clone())? {
            self.entries = entries;
            self.has_index = true;
        } else {
            self.entries = self.source.scan(&mut self.damage).context(context)?;
        }
        let name = self.source.name();
        let Some(first) = self.entries.first() else {
            return Err(AgentError::Named(format!("{name} is no recording: it has no block of one")).into());
        };
        if first.header.version > VERSION {
            let version = first.header.version;
            let reason =
                format!("{name} has version {version} of the format; this agent reads up to {VERSION}");
            return Err(AgentError::Named(reason).into());
        }
        let is_of_events = |entry: &&Entry| entry.header.kind == Kind::Events && entry.header.events > 0;
        self.order = self.entries.iter().filter(is_of_events).copied().collect();
        self.order.sort_by_key(|entry| entry.header.first_ns);
        self.read_infos()
    }

    /// The blocks as the index has them, where there is one and it is whole.
    fn read_index(&mut self) -> std::io::Result<Option<Vec<Entry>>> {
        let Some(last) = self.source.len().checked_sub(HEADER_BYTES as u64) else {
            return Ok(None);
        };
        let Some(end) = self.source.entry_at(last)?.filter(|entry| entry.header.kind == Kind::End) else {
            return Ok(None);
        };
        let index =
            self.source.entry_at(end.header.first_ns)?.filter(|entry| entry.header.kind == Kind::Index);
        let Some(index) = index.filter(|index| index.end() == last) else {
            return Ok(None);
        };
        let mut raw = Vec::new();
        if self.read_block(&index, &mut raw)?.is_err() {
            return Ok(None);
        }
        Ok(entries_of_index(&raw, index.offset))
    }

    /// The payload of a block, or what is wrong with it.
    fn read_block(&mut self, entry: &Entry, raw: &mut Vec<u8>) -> std::io::Result<Result<(), &'static str>> {
        self.stored.resize(entry.header.stored_bytes as usize, 0);
        self.source.read_at(&mut self.stored, entry.offset + HEADER_BYTES as u64)?;
        Ok(entry.header.open(&self.stored, &mut self.decompressor, raw))
    }

    fn read_infos(&mut self) -> anyhow::Result<()> {
        let infos: Vec<Entry> =
            self.entries.iter().filter(|entry| entry.header.kind == Kind::Info).copied().collect();
        let mut raw = Vec::new();
        for entry in infos {
            if entry.header.raw_bytes > MAX_INFO_BYTES {
                self.damaged(&entry, "an info block is too large");
                continue;
            }
            match self.read_block(&entry, &mut raw)? {
                Ok(()) => match serde_json::from_slice::<Info>(&raw) {
                    // The end of a segment says all that its beginning said, and the totals.
                    Ok(info) => match self.infos.last_mut() {
                        Some(last) if last.segment == info.segment && last.totals.is_none() => *last = info,
                        _ => self.infos.push(info),
                    },
                    Err(error) => self.damaged(&entry, &format!("an info block makes no sense: {error}")),
                },
                Err(reason) => self.damaged(&entry, reason),
            }
        }
        Ok(())
    }

    fn damaged(&mut self, entry: &Entry, reason: &str) {
        let name = self.source.name().to_owned();
        self.damage.damage(&name, entry.offset, entry.header.sequence, reason);
    }

    /// What the recording says of itself, one a segment.
    #[must_use]
    pub fn info(&self) -> &[Info] {
        &self.infos
    }

    /// What was found damaged until now: blocks are looked at when they are read.
    #[must_use]
    pub fn damage(&self) -> &Coverage {
        &self.damage
    }

    /// Events that came out of order, because too many blocks overlap.
    #[must_use]
    pub fn unordered(&self) -> u64 {
        self.unordered
    }

    /// All blocks, in the order of the file.
    #[must_use]
    pub fn blocks(&self) -> Vec<(u64, Header)> {
        self.entries.iter().map(|entry| (entry.offset, entry.header)).collect()
    }

    /// Whether the index at the end was there and whole.
    #[must_use]
    pub fn has_index(&self) -> bool {
        self.has_index
    }

    /// Start of the first and of the last event by the blocks' headers; None without events.
    #[must_use]
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        let first = self.order.first()?.header.first_ns;
        self.order.iter().map(|entry| entry.header.last_ns).max().map(|last| (first, last))
    }

    /// First start, last start and number of events of each block, without reading it.
    pub fn event_blocks(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        self.order.iter().map(|entry| (entry.header.first_ns, entry.header.last_ns, entry.header.events))
    }

    /// The next event read is the first that starts at this time or later.
    pub fn seek(&mut self, start_ns: u64) {
        self.from_ns = start_ns;
        self.last_ns = 0;
        self.next_block = 0;
        self.open.clear();
    }

    /// The next event in the order of start, or None at the end.
    ///
    /// # Errors
    /// The file cannot be read any more. Damage is not an error: it is counted, and the rest is read.
    // An Iterator cannot lend what it gives.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> anyhow::Result<Option<Event<'_>>> {
        let index = loop {
            let Some(index) = self.earliest()? else {
                return Ok(None);
            };
            let open = &mut self.open[index];
            let start_ns = open.block.next_start_ns().unwrap_or(0);
            match open.block.advance() {
                Ok(true) if start_ns >= self.from_ns => {
                    if start_ns < self.last_ns {
                        self.unordered += 1;
                    }
                    self.last_ns = start_ns;
                    break index;
                }
                Ok(true) => {}
                Ok(false) => self.close(index),
                Err(_) => {
                    let (entry, left) = (open.entry, open.block.left());
                    self.damage.lost_events += u64::from(left);
                    self.damaged(&entry, &format!("a block makes no sense: its last {left} events are lost"));
                    self.close(index);
                }
            }
        };
        Ok(Some(self.open[index].block.event()))
    }

    /// When the next event starts; None at the end.
    ///
    /// # Errors
    /// As with `next`.
    pub fn next_start_ns(&mut self) -> anyhow::Result<Option<u64>> {
        let index = self.earliest()?;
        Ok(index.and_then(|index| self.open[index].block.next_start_ns()))
    }

    /// The open block with the earliest event, after opening all that begin before it.
    fn earliest(&mut self) -> anyhow::Result<Option<usize>> {
        loop {
            let mut best: Option<(u64, usize, usize)> = None;
            for at in (0..self.open.len()).rev() {
                let open = &self.open[at];
                match open.block.next_start_ns() {
                    Some(start_ns) => {
                        let key = (start_ns, open.index, at);
                        best = Some(best.map_or(key, |best| best.min(key)));
                    }
                    // The event that was given last borrows from it no more: we are called again. The places of
                    // those after it change, so look again.
                    None => {
                        self.close(at);
                        best = None;
                        break;
                    }
                }
            }
            if best.is_none() && !self.open.is_empty() {
                continue;
            }
            let Some(next) = self.order.get(self.next_block) else {
                return Ok(best.map(|(_, _, at)| at));
            };
            if let Some((start_ns, _, at)) = best
                && (next.header.first_ns > start_ns || self.open.len() >= MAX_OPEN_BLOCKS)
            {
                return Ok(Some(at));
            }
            self.open_next()?;
        }
    }

    fn open_next(&mut self) -> anyhow::Result<()> {
        let (index, entry) = (self.next_block, self.order[self.next_block]);
        self.next_block += 1;
        if entry.header.last_ns < self.from_ns {
            return Ok(());
        }
        let mut raw = self.spare.pop().unwrap_or_default();
        let result = self
            .read_block(&entry, &mut raw)
            .with_context(|| format!("cannot read {} at {}", self.source.name(), entry.offset))?;
        let opened = match result {
            Ok(()) => Block::new(&entry.header, raw).map_err(|(_, raw)| ("a block makes no sense", raw)),
            Err(reason) => Err((reason, raw)),
        };
        match opened {
            Ok(block) => self.open.push(OpenBlock { block, entry, index }),
            Err((reason, raw)) => {
                self.keep_buffer(raw);
                let lost = entry.header.events;
                self.damage.lost_events += u64::from(lost);
                self.damaged(&entry, &format!("{reason}: {lost} events are lost"));
                self.damage.skipped_bytes += u64::from(entry.header.stored_bytes);
            }
        }
        Ok(())
    }

    fn close(&mut self, at: usize) {
        let raw = self.open.swap_remove(at).block.into_raw();
        self.keep_buffer(raw);
    }

    fn keep_buffer(&mut self, raw: Vec<u8>) {
        // A buffer of an uncommonly large block is not worth its memory.
        if self.spare.len() < MAX_SPARE_BUFFERS && raw.capacity() <= 8 << 20 {
            self.spare.push(raw);
        }
    }
}

/// The entries of an index that is at `end`; None where they cannot be what was written.
fn entries_of_index(raw: &[u8], end: u64) -> Option<Vec<Entry>> {
    const ENTRY_BYTES: usize = 8 + HEADER_BYTES;
    if !raw.len().is_multiple_of(ENTRY_BYTES) {
        return None;
    }
    let mut at = 0;
    let mut entries = Vec::with_capacity(raw.len() / ENTRY_BYTES);
    for bytes in raw.chunks_exact(ENTRY_BYTES) {
        let (offset, header) = bytes.split_at(8);
        let offset = u64::from_le_bytes(offset.try_into().ok()?);
        let entry = Entry { offset, header: Header::decode(header.try_into().ok()?)? };
        // A hole is damage from before the last append: a scan finds it and says so.
        if offset != at {
            return None;
        }
        at = entry.end();
        entries.push(entry);
    }
    (at == end).then_some(entries)
}
