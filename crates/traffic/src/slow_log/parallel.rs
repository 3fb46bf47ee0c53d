//! One file read by several threads, each event by exactly one of them, as if it were read from end to end.
//!
//! Threads take windows in the order of the file. The events of a window are those from its first firm boundary to
//! the next window's. What a log says once for all that follows (`use db;`) is looked for in a window before its
//! events are read, because the window after it waits for that.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use anyhow::Context;
use base::door;
use memchr::{memchr_iter, memmem};

use super::boundary::LINE_BYTES;
use super::event::Carried;
use super::look::last_change;
use super::parser::{CONTEXT_BYTES, Parser};
use super::reader::read;
use crate::coverage::{Coverage, Place};
use crate::event::Sink;
use crate::input;
use crate::pieces::{Buffer, drive};

/// Large enough that its edges do not matter.
const WINDOW_BYTES: u64 = 2 << 20;
/// How much of a window is read at once where it need not be there as a whole: with what is made of it, it stays in a
/// core's cache.
const PIECE_BYTES: usize = 256 << 10;
/// How much of the next window is read at once, because the last event of a window mostly ends there.
const TAIL_BYTES: u64 = 16 << 10;

/// Reads a log with several threads. `make` makes a sink for each; the counts of the coverages add. What cannot be read
/// in parts (a pipe, a compressed file) is read by one.
///
/// # Errors
/// Reading failed, or a sink refused an event.
pub fn read_parallel<S: Sink + Send>(
    path: &Path,
    workers: usize,
    make: impl Fn() -> S + Sync,
) -> anyhow::Result<Vec<(S, Coverage)>> {
    let name = path.display().to_string();
    if workers < 2 || !input::is_plain(path).with_context(|| name.clone())? {
        let input = input::open(path, false)?;
        let mut sink = make();
        let coverage = read(input, &name, &mut sink)?;
        return Ok(vec![(sink, coverage)]);
    }
    let file = door::open(path, false).with_context(|| name.clone())?;
    read_windows(&file, &name, workers, WINDOW_BYTES, make)
}

pub(super) fn read_windows<S: Sink + Send>(
    file: &File,
    name: &str,
    workers: usize,
    window_bytes: u64,
    make: impl Fn() -> S + Sync,
) -> anyhow::Result<Vec<(S, Coverage)>> {
    // What is appended meanwhile is not ours: threads would disagree about the end.
    let length = file.metadata()?.len();
    let windows = length.div_ceil(window_bytes).max(1);
    let reading = Reading {
        file,
        name,
        length,
        window_bytes,
        windows,
        next: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        needs_change: !has_schemas(file)?,
        changes: Mutex::new(Vec::new()),
        published: Condvar::new(),
    };
    let workers = workers.min(usize::try_from(windows).unwrap_or(usize::MAX)).max(1);
    let mut results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|_| {
                scope.spawn(|| {
                    let mut sink = make();
                    let result = reading.work(&mut sink);
                    if result.is_err() {
                        reading.fail();
                    }
                    result.map(|coverage| (sink, coverage))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    number_places(file, results.iter_mut().map(|(_, coverage)| coverage))?;
    Ok(results)
}

/// Whether each event names its own database: then changes are not asked for.
fn has_schemas(file: &File) -> io::Result<bool> {
    let mut head = vec![0; 64 << 10];
    let count = file.read_at(&mut head, 0)?;
    Ok(memmem::find(&head[..count], b"  Schema: ")
        .or_else(|| memmem::find(&head[..count], b"\n# Schema: "))
        .is_some())
}

struct Reading<'f> {
    file: &'f File,
    name: &'f str,
    length: u64,
    window_bytes: u64,
    windows: u64,
    next: AtomicU64,
    failed: AtomicBool,
    needs_change: bool,
    /// What each window changes, once that is known.
    changes: Mutex<Vec<Option<Carried>>>,
    published: Condvar,
}

impl Reading<'_> {
    fn work(&self, sink: &mut impl Sink) -> anyhow::Result<Coverage> {
        let mut coverage = Coverage::default();
        let whole = usize::try_from(CONTEXT_BYTES as u64 + self.window_bytes + TAIL_BYTES)?;
        let mut buffer = Buffer::new(if self.needs_change { whole } else { whole.min(PIECE_BYTES) });
        // A panic of another thread must not leave us waiting for what it would have published.
        let guard = Guard(self);
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.windows || self.failed.load(Ordering::Relaxed) {
                break;
            }
            coverage.merge(&self.window(index, &mut buffer, sink)?);
        }
        std::mem::forget(guard);
        Ok(coverage)
    }

    fn window(&self, index: u64, buffer: &mut Buffer, sink: &mut impl Sink) -> anyhow::Result<Coverage> {
        let start = index * self.window_bytes;
        let limit = if index + 1 == self.windows { u64::MAX } else { start + self.window_bytes };
        let from = start.saturating_sub(CONTEXT_BYTES as u64);
        let behind = start + self.window_bytes + TAIL_BYTES;
        let mut part = Part { file: self.file, position: from, behind, end: self.length };
        buffer.clear();
        // A buffer that a long event made larger is not filled for that.
        buffer.fill(&mut part.by_ref().take(behind - from))?;
        let mut is_published = false;
        if self.needs_change
            && let Some(change) =
                last_change(buffer.bytes(), from, start, limit, part.position == self.length)
        {
            self.publish(index, change);
            is_published = true;
        }
        let inherit = || self.carried(index);
        let mut parser = Parser::part(self.name, start, limit, &inherit);
        drive(part, buffer, &mut parser, sink)?;
        let Parser { carried, coverage, .. } = parser;
        if !is_published {
            self.publish(index, carried);
        }
        Ok(coverage)
    }

    fn publish(&self, index: u64, change: Carried) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let index = index as usize;
        if changes.len() <= index {
            changes.resize_with(index + 1, || None);
        }
        changes[index] = Some(change);
        self.published.notify_all();
    }

    /// What holds at the beginning of a window.
    fn carried(&self, index: u64) -> Carried {
        let mut carried = Carried::default();
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        for before in (0..index as usize).rev() {
            let change = loop {
                if self.failed.load(Ordering::Relaxed) {
                    return carried;
                }
                match changes.get(before) {
                    Some(Some(change)) => break change,
                    _ => changes = self.published.wait(changes).unwrap_or_else(PoisonError::into_inner),
                }
            };
            carried.inherit(change);
            if carried.is_complete() {
                break;
            }
        }
        carried
    }

    fn fail(&self) {
        let _changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.failed.store(true, Ordering::Relaxed);
        self.published.notify_all();
    }
}

struct Guard<'r>(&'r Reading<'r>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// A file from a position on, as long as it was when the reading began.
struct Part<'f> {
    file: &'f File,
    position: u64,
    /// What comes from here on is mostly not needed, so that little of it is read at once.
    behind: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let until = match self.behind.checked_sub(self.position) {
            None | Some(0) => self.position + TAIL_BYTES,
            Some(_) => self.behind,
        };
        let left = usize::try_from(until.min(self.end) - self.position).unwrap_or(usize::MAX);
        let room = buffer.len().min(left);
        let count = self.file.read_at(&mut buffer[..room], self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// Gives the first coverage the first places of all, with the numbers of their lines.
fn number_places<'c>(file: &File, coverages: impl Iterator<Item = &'c mut Coverage>) -> io::Result<()> {
    let mut coverages: Vec<_> = coverages.collect();
    let mut places: Vec<Place> =
        coverages.iter_mut().flat_map(|coverage| std::mem::take(&mut coverage.places)).collect();
    places.sort_by_key(|place| place.offset);
    let mut buffer = vec![0; 256 << 10];
    let (mut offset, mut lines) = (0u64, 0u64);
    for place in &mut places {
        while offset < place.offset {
            let room = buffer.len().min(usize::try_from(place.offset - offset).unwrap_or(usize::MAX));
            let count = file.read_at(&mut buffer[..room], offset)?;
            if count == 0 {
                break;
            }
            lines += memchr_iter(b'\n', &buffer[..count]).count() as u64;
            offset += count as u64;
        }
        place.item = lines + 1;
    }
    if let Some(first) = coverages.first_mut() {
        let rest = Coverage { places, ..Coverage::default() };
        first.merge(&rest);
    }
    Ok(())
}

const _: () = assert!(WINDOW_BYTES > LINE_BYTES as u64);

#[cfg(test)]
pub(super) mod tests;
