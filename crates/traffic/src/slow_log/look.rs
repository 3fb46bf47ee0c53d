//! Finds how a window of a log changes the state for what follows, without reading its events.

use memchr::memmem;

use super::boundary::{Line, classify, ends_statement};
use super::event::{Carried, end_ns};
use super::header;
use super::settings;
use super::touched;
use crate::pieces::{without_banner, without_return};

/// The window is searched from its end in pieces of this size, each forward, which is the faster direction.
const BLOCK_BYTES: usize = 64 << 10;

/// The change by the events from the first firm boundary at or after `start` to the first at or after `limit`.
/// `buffer` begins at `offset`, early enough. `None` when only reading them all can tell.
pub(super) fn last_change(
    buffer: &[u8],
    offset: u64,
    start: u64,
    limit: u64,
    at_end: bool,
) -> Option<Carried> {
    let index = |position: u64| usize::try_from(position.saturating_sub(offset)).unwrap_or(usize::MAX);
    let from = if start == 0 { 0 } else { firm(buffer, index(start), at_end)? };
    let to =
        if limit == u64::MAX { at_end.then_some(buffer.len())? } else { firm(buffer, index(limit), at_end)? };
    if from >= to {
        return Some(Carried::default());
    }
    // Lines that end with `\r` alone have changes as well.
    if memmem::find(&buffer[from..to], b"\r# ").is_some() {
        return None;
    }
    let region = Region { buffer, from, to };
    let mut used = region.last(b"\nuse ", Region::used)?;
    // What people and programs make of it: in another case, behind blanks and comments.
    for touched in [&b"\nU"[..], b"\nu", b"\n ", b"\n\t", b"\n/"] {
        let after = Region { buffer, from: used.as_ref().map_or(from, |(line, ..)| *line), to };
        used = after.last(touched, Region::used)?.or(used);
    }
    let after = Region { buffer, from: used.as_ref().map_or(from, |(line, ..)| *line), to };
    let database = match after.last(b"\nTime ", Region::banner)? {
        Some(()) => Some((Vec::new(), 0)),
        None => used.map(|(_, database, said_ns)| (database, said_ns)),
    };
    let said_ns = database.as_ref().map_or(0, |(_, said_ns)| *said_ns);
    let database = database.map(|(name, _)| name);
    let time = region.last(b"\n# Time: ", Region::time)?;
    let after = Region { buffer, from: time.map_or(from, |(line, _)| line), to };
    if after.has_touched_time() {
        return None;
    }
    Some(Carried { database, said_ns, time_ns: time.map(|(_, ns)| ns) })
}

/// The first firm boundary at or after `from`; the end of the input where there is none.
fn firm(buffer: &[u8], from: usize, at_end: bool) -> Option<usize> {
    let mut from = from.saturating_sub(1);
    while let Some(found) = memmem::find(buffer.get(from..)?, b"\n#") {
        let line = from + found + 1;
        match classify(&buffer[line..], at_end) {
            Line::Unknown => return None,
            Line::First if ends_statement(&buffer[..line]) => return Some(line),
            _ => from = line,
        }
    }
    at_end.then_some(buffer.len())
}

struct Region<'b> {
    buffer: &'b [u8],
    from: usize,
    to: usize,
}

/// What a candidate turns out to be.
enum Found<T> {
    It(T),
    Nothing,
    Unclear,
}

impl Region<'_> {
    /// The last place where `needle` counts. The outer `None`: that is unclear.
    fn last<T>(&self, needle: &[u8], check: fn(&Self, usize) -> Found<T>) -> Option<Option<T>> {
        let mut end = self.to;
        while end > self.from {
            let begin = end.saturating_sub(BLOCK_BYTES).max(self.from.saturating_sub(1));
            let window = &self.buffer[begin..(end + needle.len() - 1).min(self.to)];
            let candidates: Vec<_> = memmem::find_iter(window, needle).map(|at| begin + at + 1).collect();
            for line in candidates.into_iter().rev() {
                match check(self, line) {
                    Found::It(found) => return Some(Some(found)),
                    Found::Nothing => {}
                    Found::Unclear => return None,
                }
            }
            if begin < self.from {
                break;
            }
            end = begin;
        }
        // The first line of a file has no end of line before it.
        if self.from == 0 && self.buffer.starts_with(&needle[1..]) {
            return match check(self, 0) {
                Found::It(found) => Some(Some(found)),
                Found::Nothing => Some(None),
                Found::Unclear => None,
            };
        }
        Some(None)
    }

    /// The first line of the event to whose header the line at `line` belongs.
    fn first_line(&self, line: usize) -> Found<usize> {
        let mut at = line;
        let (mut is_header, mut has_fields) = (false, false);
        loop {
            let kind = classify(&self.buffer[at..], true);
            if kind == Line::First {
                is_header = true;
                if at == 0 || ends_statement(&self.buffer[..at]) {
                    return Found::It(at);
                }
            }
            if at <= self.from {
                break;
            }
            let before = memchr::memrchr(b'\n', &self.buffer[..at - 1]).map_or(0, |end| end + 1);
            let line = &self.buffer[before..at];
            // Blank lines that somebody put there are no end of a header.
            if line.trim_ascii().is_empty() || line.trim_ascii() == b";" {
                at = before;
                continue;
            }
            let is_field = touched::fields(line).is_some();
            if line[0] != b'#' {
                // Of a line that somebody changed or wrapped only reading it tells.
                is_header |= is_field || has_fields || line[0].is_ascii_digit();
                break;
            }
            has_fields |= is_field;
            at = before;
        }
        // A header after something broken, as it seems.
        if is_header { Found::Unclear } else { Found::Nothing }
    }

    fn used(&self, line: usize) -> Found<(usize, Vec<u8>, u64)> {
        if !settings::is_use(&self.buffer[line..]) {
            return Found::Nothing;
        }
        let first = match self.first_line(line) {
            Found::It(first) => first,
            Found::Nothing => return Found::Nothing,
            Found::Unclear => return Found::Unclear,
        };
        match header::parse(&self.buffer[first..], false) {
            Some((header, body)) if first + body > line => match header.used {
                Some(used) => Found::It((line, used.to_vec(), end_ns(&header).unwrap_or(0))),
                None => Found::Nothing,
            },
            _ => Found::Unclear,
        }
    }

    /// Whether a line can be a time in a form that no server writes.
    fn has_touched_time(&self) -> bool {
        const FORMS: [&[u8]; 6] =
            [b"\nTime: ", b"\n#Time:", b"\n# time:", b"\ntime:", b"\n#time:", b"\n# TIME:"];
        let text = &self.buffer[self.from..self.to];
        FORMS.iter().any(|form| text.starts_with(&form[1..]) || memmem::find(text, form).is_some())
    }

    fn time(&self, line: usize) -> Found<(usize, u64)> {
        let is_first = classify(&self.buffer[line..], true) == Line::First;
        match self.first_line(line) {
            Found::It(first) if first == line => {
                let text = &self.buffer[line + 8..];
                let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
                let time = header::time_of(without_return(&text[..end]));
                Found::It((line, time.map_or(0, |(stamp, _)| stamp.ns)))
            }
            Found::It(_) | Found::Nothing if !is_first => Found::Nothing,
            _ => Found::Unclear,
        }
    }

    /// After a server reopens its log, no database has been written yet.
    fn banner(&self, line: usize) -> Found<()> {
        let Some(length) = memchr::memchr(b'\n', &self.buffer[line..]) else { return Found::Unclear };
        let end = line + length + 1;
        if without_banner(&self.buffer[..end]).len() == end {
            return Found::Nothing;
        }
        let is_last = end == self.to || classify(&self.buffer[end..], true) == Line::First;
        if is_last { Found::It(()) } else { Found::Unclear }
    }
}
