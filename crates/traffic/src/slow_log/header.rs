//! The lines before a statement.

use memchr::{memchr, memmem};

use super::account::{self, Account};
use super::boundary::{Line, classify};
use super::time::{self, Stamp};
use crate::measures::{Measure, Measures, Unit};
use crate::pieces::without_return;

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
    pub(super) measures: Measures,
    pub(super) errno: Option<u16>,
    /// The log has one statement, or session, in so many.
    pub(super) rate_limit: Option<u64>,
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

    /// `Key: value  Key: value`, with one blank or two between. The keys that are in every event come first and in
    /// their order: these need no search.
    fn fields(&mut self, rest: &'a [u8]) {
        let mut rest = skip_blanks(rest);
        if let Some(after) = rest.strip_prefix(b"Query_time: ") {
            (self.query_ns, rest) = take_seconds(after);
            rest = self.after_key(rest, b"Lock_time: ", Measure::LockNs);
            rest = self.after_key(rest, b"Rows_sent: ", Measure::RowsSent);
            rest = self.after_key(rest, b"Rows_examined: ", Measure::RowsExamined);
        } else if let Some(after) = rest.strip_prefix(b"Thread_id: ") {
            (self.thread, rest) = take_number(after);
            rest = skip_blanks(rest);
        } else if !begins_with_key(rest) {
            // A warning, as MariaDB writes it: its text has values of the client's choice.
            return;
        }
        while let Some(colon) = memchr(b':', rest) {
            let key = &rest[..colon];
            rest = &rest[colon + 1..];
            rest = rest.strip_prefix(b" ").unwrap_or(rest);
            rest = skip_blanks(self.field(key, rest));
        }
    }

    /// Takes the value of a key; gives what follows it.
    fn field(&mut self, key: &[u8], rest: &'a [u8]) -> &'a [u8] {
        if let Some(measure) = Measure::of_slow_log(key) {
            return self.measure(measure, rest);
        }
        match key {
            b"Query_time" => {
                let (query_ns, rest) = take_seconds(rest);
                self.query_ns = query_ns;
                return rest;
            }
            b"Thread_id" => {
                let (thread, rest) = take_number(rest);
                self.thread = thread;
                return rest;
            }
            b"Schema" => {
                let (schema, rest) = rest.split_at(schema_length(rest));
                self.schema = Some(schema);
                return rest;
            }
            b"Stored_routine" => return b"",
            _ => {}
        }
        let (value, rest) = rest.split_at(value_length(rest));
        match key {
            b"Errno" => self.errno = number(value).and_then(|errno| u16::try_from(errno).ok()),
            b"Log_slow_rate_limit" => self.rate_limit = number(value).filter(|limit| *limit > 1),
            b"Start" => self.start = time::stamp(value).map(|(stamp, _)| stamp),
            _ => {}
        }
        rest
    }

    /// Takes a measure's value if its key comes next.
    fn after_key(&mut self, rest: &'a [u8], key: &[u8], measure: Measure) -> &'a [u8] {
        let rest = skip_blanks(rest);
        match rest.strip_prefix(key) {
            Some(after) => skip_blanks(self.measure(measure, after)),
            None => rest,
        }
    }

    #[inline]
    fn measure(&mut self, measure: Measure, text: &'a [u8]) -> &'a [u8] {
        let (value, rest) = match measure.row().unit {
            Unit::Count | Unit::Bytes => take_number(text),
            Unit::Ns => {
                let (ns, rest) = take_seconds(text);
                (ns.and_then(duration), rest)
            }
            Unit::Flag => take_flag(text),
        };
        self.measures.set(measure, value);
        rest
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
            let end = if keyword == b"use " { use_length(rest, at_end) } else { memchr(b'\n', rest) };
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

/// Length of the line `use db;`. The name is not quoted: where the line does not end like one, it continues to `SET`, but
/// not past a line that begins another event. `None` where the buffer ends too early to tell.
fn use_length(text: &[u8], at_end: bool) -> Option<usize> {
    let first = memchr(b'\n', text)?;
    if without_return(&text[..first]).ends_with(b";") {
        return Some(first);
    }
    let window = &text[..text.len().min(super::boundary::LINE_BYTES)];
    let next = memmem::find(window, b"\n# ");
    match memmem::find(&window[..next.unwrap_or(window.len())], b";\nSET ") {
        Some(at) => Some(at + 1),
        None if at_end || next.is_some() || window.len() == super::boundary::LINE_BYTES => Some(first),
        None => None,
    }
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
    for end in [&b"  QC_hit: No"[..], b"  Last_errno: 0  Killed: 0"] {
        if text.ends_with(end) {
            return text.len() - end.len();
        }
    }
    let next =
        [&b"  QC_hit: "[..], b"  Last_errno: "].iter().filter_map(|key| memmem::rfind(text, key)).max();
    next.unwrap_or(text.len())
}

fn begins_with_key(text: &[u8]) -> bool {
    text.iter().find(|byte| matches!(byte, b':' | b' ')) == Some(&b':')
}

fn value_length(text: &[u8]) -> usize {
    memchr(b' ', text).unwrap_or(text.len())
}

fn skip_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

fn take_number(text: &[u8]) -> (Option<u64>, &[u8]) {
    let mut value = 0u64;
    let mut at = 0;
    while let Some(byte @ b'0'..=b'9') = text.get(at) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        at += 1;
    }
    if matches!(text.get(at), None | Some(b' ')) && (1..=19).contains(&at) {
        return (Some(value), &text[at..]);
    }
    (None, &text[value_length(text)..])
}

fn take_seconds(text: &[u8]) -> (Option<u64>, &[u8]) {
    let (value, rest) = text.split_at(text.iter().position(|byte| *byte == b' ').unwrap_or(text.len()));
    (seconds(value), rest)
}

fn take_flag(text: &[u8]) -> (Option<u64>, &[u8]) {
    let (value, rest) = text.split_at(value_length(text));
    let flag = match value {
        b"Yes" => Some(1),
        b"No" => Some(0),
        _ => None,
    };
    (flag, rest)
}

fn number(text: &[u8]) -> Option<u64> {
    take_number(text).0
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
