//! The lines before a statement.

use memchr::{memchr, memmem};

use super::account::{self, Account};
use super::boundary::{Line, classify};
use super::time::{self, Stamp};
use crate::traffic::pieces::without_return;

/// More seconds than this are no duration, but a server's subtraction that went below zero.
const LONGEST_S: u64 = 1_000_000_000;
const NS_PER_S: u64 = 1_000_000_000;
pub(super) const COMMAND: &[u8] = b"# administrator command: ";

/// What the lines say; `None` where they say nothing.
#[derive(Default)]
pub(super) struct Header<'a> {
    pub(super) time: Option<Stamp>,
    pub(super) account: Option<Account<'a>>,
    pub(super) thread: Option<u64>,
    /// Of the event itself; empty for none.
    pub(super) schema: Option<&'a [u8]>,
    /// The file's, from here on.
    pub(super) used: Option<&'a [u8]>,
    pub(super) query_ns: Option<u64>,
    pub(super) lock_ns: Option<u64>,
    pub(super) rows_sent: Option<u64>,
    pub(super) rows_examined: Option<u64>,
    pub(super) rows_affected: Option<u64>,
    pub(super) bytes_sent: Option<u64>,
    pub(super) errno: Option<u16>,
    /// `Start:` of MySQL's log_slow_extra.
    pub(super) start: Option<Stamp>,
    /// `SET timestamp=`, in ns; its fraction is that of the text.
    pub(super) timestamp_ns: Option<u64>,
    /// The last line that is either of the header or the statement itself: `use x;`, `SET timestamp=1;`.
    pub(super) last: Option<&'a [u8]>,
}

/// Reads the header that begins `text`. Gives it with the offset of what follows, or nothing if the buffer ends before.
pub(super) fn parse(text: &[u8], at_end: bool) -> Option<(Header<'_>, usize)> {
    let mut header = Header::default();
    let mut at = 0;
    while text.get(at) == Some(&b'#') {
        let (line, next) = line(text, at, at_end)?;
        if line.starts_with(COMMAND) {
            return Some((header, at));
        }
        if at > 0 && header.begins_another(text, at, line, at_end)? {
            return Some((header, at));
        }
        header.comment(line);
        at = next;
    }
    header.statements(text, at, at_end)
}

/// The line at `at` without its end, and where the next begins.
fn line(text: &[u8], at: usize, at_end: bool) -> Option<(&[u8], usize)> {
    match memchr(b'\n', &text[at..]) {
        Some(length) => Some((without_return(&text[at..at + length]), at + length + 1)),
        None if at_end => Some((without_return(&text[at..]), text.len())),
        None => None,
    }
}

impl<'a> Header<'a> {
    /// Whether a line is not of this header, but begins the next event: then this one has no statement.
    fn begins_another(&self, text: &[u8], at: usize, line: &[u8], at_end: bool) -> Option<bool> {
        let is_again = match line.get(2) {
            Some(b'T') => (self.time.is_some() || self.account.is_some()) && line.starts_with(b"# Time: "),
            Some(b'U') => self.account.is_some() && line.starts_with(b"# User@Host: "),
            _ => false,
        };
        if !is_again && !super::boundary::ends_statement(&text[..at]) {
            return Some(false);
        }
        match classify(&text[at..], at_end) {
            Line::Unknown => None,
            kind => Some(kind == Line::First),
        }
    }

    fn comment(&mut self, line: &'a [u8]) {
        match line.get(2) {
            Some(b'T') if line.starts_with(b"# Time: ") => {
                let Some((stamp, rest)) = time::stamp(&line[8..]) else { return };
                self.time = Some(stamp);
                if let Some(rest) = rest.trim_ascii_start().strip_prefix(b"# User@Host: ") {
                    self.account = account::parse(rest);
                }
            }
            Some(b'U') if line.starts_with(b"# User@Host: ") => self.account = account::parse(&line[13..]),
            Some(b' ' | b'A'..=b'Z') => self.fields(&line[1..]),
            // A plan, line by line, as MariaDB writes it; it holds names of the client's choice.
            _ => {}
        }
    }

    /// `Key: value  Key: value`, with one blank or two between.
    fn fields(&mut self, mut rest: &'a [u8]) {
        while let Some(colon) = memchr(b':', rest) {
            let key = &rest[..colon];
            let key = &key[memchr::memrchr(b' ', key).map_or(0, |blank| blank + 1)..];
            rest = &rest[colon + 1..];
            rest = rest.strip_prefix(b" ").unwrap_or(rest);
            let length = if key == b"Schema" { schema_length(rest) } else { value_length(rest) };
            self.field(key, &rest[..length]);
            rest = &rest[length..];
        }
    }

    fn field(&mut self, key: &[u8], value: &'a [u8]) {
        match key {
            b"Query_time" => self.query_ns = seconds(value),
            b"Lock_time" => self.lock_ns = seconds(value),
            b"Rows_sent" => self.rows_sent = number(value),
            b"Rows_examined" => self.rows_examined = number(value),
            b"Rows_affected" => self.rows_affected = number(value),
            b"Bytes_sent" => self.bytes_sent = number(value),
            b"Thread_id" => self.thread = number(value),
            b"Errno" => self.errno = number(value).and_then(|errno| u16::try_from(errno).ok()),
            b"Start" => self.start = time::stamp(value).map(|(stamp, _)| stamp),
            b"Schema" => self.schema = Some(value),
            _ => {}
        }
    }

    /// `use db;` and `SET timestamp=1;`, each at most once and in this order.
    fn statements(mut self, text: &'a [u8], mut at: usize, at_end: bool) -> Option<(Self, usize)> {
        for keyword in [&b"use "[..], b"SET "] {
            let rest = &text[at..];
            if !rest.starts_with(keyword) {
                if rest.len() < keyword.len() && !at_end && keyword.starts_with(rest) {
                    return None;
                }
                continue;
            }
            let end = if keyword == b"use " { use_length(rest) } else { memchr(b'\n', rest) };
            let (length, next) = match end {
                Some(length) => (length, length + 1),
                None if at_end => (rest.len(), rest.len()),
                // A statement like these, and a long one.
                None if rest.len() > super::boundary::LINE_BYTES => return Some((self, at)),
                None => return None,
            };
            let line = without_return(&rest[..length]);
            let Some(inner) = line.strip_suffix(b";") else { continue };
            if keyword == b"use " {
                self.used = Some(&inner[4..]);
            } else if let Some(timestamp_ns) = setting(&inner[4..]) {
                self.timestamp_ns = timestamp_ns;
            } else {
                continue;
            }
            self.last = Some(inner);
            at += next;
        }
        Some((self, at))
    }
}

/// Length of the line `use db;`. The name is not quoted: where the line does not end like one, it goes on to `SET`.
fn use_length(text: &[u8]) -> Option<usize> {
    let first = memchr(b'\n', text)?;
    if without_return(&text[..first]).ends_with(b";") {
        return Some(first);
    }
    let window = &text[..text.len().min(super::boundary::LINE_BYTES)];
    Some(memmem::find(window, b";\nSET ").map_or(first, |at| at + 1))
}

/// The values of a `SET` that the server wrote: its timestamp if it has one. `None` for any other `SET`.
fn setting(text: &[u8]) -> Option<Option<u64>> {
    let mut timestamp_ns = None;
    for part in text.split(|byte| *byte == b',') {
        let equals = memchr(b'=', part)?;
        let value = &part[equals + 1..];
        match &part[..equals] {
            b"timestamp" => timestamp_ns = Some(seconds(value)?),
            b"last_insert_id" | b"insert_id" => {
                let digits = value.strip_prefix(b"-").unwrap_or(value);
                if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(timestamp_ns)
}

/// A name is not quoted, so it ends where the last key that servers write after it begins.
fn schema_length(text: &[u8]) -> usize {
    let next =
        [&b"  QC_hit: "[..], b"  Last_errno: "].iter().filter_map(|key| memmem::rfind(text, key)).max();
    next.unwrap_or(text.len())
}

fn value_length(text: &[u8]) -> usize {
    memchr(b' ', text).unwrap_or(text.len())
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        if !byte.is_ascii_digit() {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
    })
}

/// `12.345678` in ns.
fn seconds(text: &[u8]) -> Option<u64> {
    let mut whole = 0u64;
    let mut at = 0;
    while let Some(byte @ b'0'..=b'9') = text.get(at) {
        whole = whole.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let (ns, length) = match text.get(at) {
        Some(b'.') => time::fraction_ns(&text[at + 1..]),
        _ => (0, 0),
    };
    let end = if length > 0 { at + 1 + length } else { at };
    (end == text.len()).then_some(())?;
    whole.checked_mul(NS_PER_S)?.checked_add(ns)
}

/// How long it took, where that can be.
pub(super) fn duration(ns: u64) -> Option<u64> {
    (ns <= LONGEST_S * NS_PER_S).then_some(ns)
}

#[cfg(test)]
mod tests;
