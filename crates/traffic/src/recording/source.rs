//! The bytes of a recording and the blocks in them, found by their headers alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use base::door;
use base::error::AgentError;
use memchr::memmem;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::frame::{HEADER_BYTES, Header, MAGIC};
use crate::coverage::Coverage;

/// How much is read at once where the next block has to be looked for: first, and at most.
const FIRST_SEARCH_BYTES: usize = 4 << 10;
const SEARCH_BYTES: usize = 1 << 20;

/// A file, or bytes in memory.
pub enum Source {
    File { file: File, length: u64, name: String },
    Bytes(Vec<u8>),
}

/// Where a block begins, and its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub offset: u64,
    pub header: Header,
}

impl Entry {
    /// Offset of what follows the block.
    pub fn end(&self) -> u64 {
        self.offset + HEADER_BYTES as u64 + u64::from(self.header.stored_bytes)
    }
}

impl Source {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot read {}", path.display());
        let file = door::open(path, false).map_err(|error| AgentError::unreadable("", path, &error))?;
        let metadata = file.metadata().with_context(context)?;
        Ok(Source::File { file, length: metadata.len(), name: path.display().to_string() })
    }

    /// The same file, opened again to append, even if its name belongs to another file by now.
    pub fn to_write(&self) -> io::Result<File> {
        match self {
            Source::File { file, .. } => {
                OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
            }
            Source::Bytes(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub fn len(&self) -> u64 {
        match self {
            Source::File { length, .. } => *length,
            Source::Bytes(bytes) => bytes.len() as u64,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Source::File { name, .. } => name,
            Source::Bytes(_) => "memory",
        }
    }

    /// Fills the buffer from the offset on.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Source::File { file, .. } => file.read_exact_at(buffer, offset),
            Source::Bytes(bytes) => {
                let part = usize::try_from(offset)
                    .ok()
                    .and_then(|start| bytes.get(start..start.checked_add(buffer.len())?))
                    .ok_or(io::ErrorKind::UnexpectedEof)?;
                buffer.copy_from_slice(part);
                Ok(())
            }
        }
    }

    /// The header at an offset, if a whole block of this source begins there.
    pub fn entry_at(&self, offset: u64) -> io::Result<Option<Entry>> {
        Ok(self.header_at(offset)?.filter(|entry| entry.end() <= self.len()))
    }

    /// The header at an offset, whether or not all of its block is there.
    fn header_at(&self, offset: u64) -> io::Result<Option<Entry>> {
        if self.len().saturating_sub(offset) < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES];
        self.read_at(&mut bytes, offset)?;
        Ok(Header::decode(&bytes).map(|header| Entry { offset, header }))
    }

    /// How many events the block at an offset has, if its header is whole but its end is cut off.
    fn cut_events_at(&self, offset: u64, next: u64) -> io::Result<Option<u32>> {
        let cut = if next == self.len() { self.header_at(offset)? } else { None };
        Ok(cut.map(|entry| entry.header.events).filter(|events| *events > 0))
    }

    /// All blocks, in the order of the file. What belongs to none is counted as damage.
    pub fn scan(&self, damage: &mut Coverage) -> io::Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut offset = 0;
        let mut expected = 0;
        while offset < self.len() {
            let Some(entry) = self.entry_at(offset)? else {
                let next = self.search(offset + 1)?;
                let reason = match self.cut_events_at(offset, next)? {
                    Some(lost) => {
                        damage.lost_events += u64::from(lost);
                        format!("the last block is cut off: {lost} events are lost")
                    }
                    None if next == self.len() => "the last block is cut off".to_owned(),
                    None => "no block begins here".to_owned(),
                };
                damage.damage(self.name(), offset, entries.len() as u64, &reason);
                damage.skipped_bytes += next - offset;
                offset = next;
                // What was lost is counted by its place already.
                expected = u64::MAX;
                continue;
            };
            if expected != u64::MAX && entry.header.sequence != expected {
                let reason = format!("block {expected} is missing: {} follows", entry.header.sequence);
                damage.damage(self.name(), offset, entries.len() as u64, reason);
            }
            expected = entry.header.sequence.wrapping_add(1);
            offset = entry.end();
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Offset of the next whole block at or after an offset, or the end.
    fn search(&self, from: u64) -> io::Result<u64> {
        let finder = memmem::Finder::new(&MAGIC);
        // What is damaged often is short: a search that began with a large piece would read it anew for every block.
        let mut piece_bytes = FIRST_SEARCH_BYTES;
        let mut buffer = Vec::new();
        let mut at = self.next_data(from);
        while self.len().saturating_sub(at) >= HEADER_BYTES as u64 {
            let length = usize::try_from(self.len() - at).unwrap_or(piece_bytes).min(piece_bytes);
            buffer.resize(length, 0);
            self.read_at(&mut buffer, at)?;
            let mut searched = 0;
            while let Some(found) = finder.find(&buffer[searched..]) {
                let offset = at + (searched + found) as u64;
                if self.entry_at(offset)?.is_some() {
                    return Ok(offset);
                }
                searched += found + 1;
            }
            // A magic may lie across the border.
            at = self.next_data(at + (length - (MAGIC.len() - 1)) as u64);
            piece_bytes = SEARCH_BYTES.min(2 * piece_bytes);
        }
        Ok(self.len())
    }

    /// Passes over a hole of a sparse file.
    fn next_data(&self, offset: u64) -> u64 {
        let Source::File { file, length, .. } = self else {
            return offset;
        };
        match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            // A magic may begin in zeros only by its last bytes never: its first byte is none.
            Ok(data) => data.max(offset),
            Err(Errno::NXIO) => *length,
            Err(_) => offset,
        }
    }
}
