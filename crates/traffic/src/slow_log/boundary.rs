//! Where one event of a slow log ends and the next begins.
//!
//! Servers write `;` and an end of line after each statement, and the next event begins with `# Time: ` or
//! `# User@Host: `. A *firm* boundary is that: it depends on nothing before it, so that a file can be read in parts. A
//! statement whose literal holds such lines looks the same, and is cut there (by pt-query-digest as well). A *loose*
//! one is a line of that kind after anything else. It counts unless it is inside a literal or a comment, so that
//! what is broken costs one event.

use memchr::{memchr, memmem};

use super::{time, touched};
/// A longer line is not a header line.
pub(super) use crate::pieces::LINE_BYTES;
use crate::pieces::{without_banner, without_return};

const TIME: &[u8] = b"# Time: ";
const USER: &[u8] = b"# User@Host: ";
const QUERY_TIME: &[u8] = b"# Query_time: ";

/// What is at the beginning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The first line of an event.
    First,
    /// The first line of an event, but not in the server's form: never a firm boundary.
    Touched,
    Other,
    /// The buffer ends too early to tell.
    Unknown,
}

/// Where an event ends, and by what.
pub(super) struct End {
    pub(super) at: usize,
    pub(super) is_firm: bool,
    pub(super) by: By,
    /// A literal in the statement is never closed: the statement was cut off.
    pub(super) is_open: bool,
}

#[derive(PartialEq, Eq)]
pub(super) enum By {
    Header,
    Limit,
    Input,
}

/// Classifies the first line of `text`; `at_end` if nothing will follow it.
pub(super) fn classify(text: &[u8], at_end: bool) -> Line {
    let prefix = |prefix: &[u8]| text.starts_with(prefix);
    if !prefix(TIME) && !prefix(USER) && !prefix(QUERY_TIME) {
        return if text.len() < 3 && !at_end && b"# ".starts_with(&text[..text.len().min(2)]) {
            Line::Unknown
        } else {
            match touched::begins_event(text, at_end) {
                Some(true) => Line::Touched,
                Some(false) => Line::Other,
                None => Line::Unknown,
            }
        };
    }
    let window = &text[..text.len().min(LINE_BYTES)];
    let unknown = if window.len() == LINE_BYTES { Line::Other } else { Line::Unknown };
    let Some((end, next)) = line_end(window, 0, at_end) else { return unknown };
    if is_first(&window[..end]) {
        return Line::First;
    }
    // Of a time that cannot be read, and of an account that is wrapped, the next line tells.
    let Some((next_end, _)) = line_end(window, next, at_end) else { return unknown };
    let is_before = if prefix(USER) {
        !may_be_firm(window, next) && is_account(&window[USER.len()..next_end])
    } else {
        // A whole part whose lines end with `\r` is no time.
        prefix(TIME)
            && memchr(b'\r', &window[..end]).is_none()
            && window[next..next_end].strip_prefix(USER).is_some_and(is_account)
    };
    if is_before { Line::First } else { Line::Other }
}

/// Whether the line at `at` can be a firm boundary: then it must not continue the line before it, which a reader that starts
/// here does not see.
pub(super) fn may_be_firm(text: &[u8], at: usize) -> bool {
    let begins = |prefix: &[u8]| text[at..].starts_with(prefix);
    (begins(TIME) || begins(USER) || begins(QUERY_TIME)) && ends_statement(&text[..at])
}

/// Where the line at `at` ends, without its end, and where the next begins. `None`: the buffer ends before.
fn line_end(window: &[u8], at: usize, at_end: bool) -> Option<(usize, usize)> {
    let rest = window.get(at..)?;
    match crate::pieces::line_end(rest) {
        Some(end) => Some((at + without_return(&rest[..end]).len(), at + end + 1)),
        None => (at_end && window.len() < LINE_BYTES).then_some((window.len(), window.len())),
    }
}

fn is_first(line: &[u8]) -> bool {
    if let Some(rest) = line.strip_prefix(TIME) {
        return time::stamp(rest).is_some_and(|(_, rest)| {
            let rest = rest.trim_ascii();
            rest.is_empty() || rest.strip_prefix(USER).is_some_and(is_account)
        });
    }
    if let Some(rest) = line.strip_prefix(USER) {
        return is_account(rest);
    }
    // Without --log-short-format's missing lines this is never the first.
    line.strip_prefix(QUERY_TIME).is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit))
}

fn is_account(text: &[u8]) -> bool {
    super::account::parse(text).is_some()
}

/// Whether `before` ends with a complete statement, so that the next line can begin an event. Blank lines that were inserted
/// between events are ignored.
pub(super) fn ends_statement(before: &[u8]) -> bool {
    if before.ends_with(b";\n") || before.ends_with(b";\r\n") {
        return true;
    }
    if !before.ends_with(b"\n") {
        return false;
    }
    let text = before[before.len().saturating_sub(LINE_BYTES)..].trim_ascii_end();
    text.ends_with(b";") || text.ends_with(b"Argument") && without_banner(before).len() < before.len()
}

/// Whether a place in a statement is inside a literal or a comment: asked for places further and further on.
#[derive(Default)]
pub(crate) struct Lexer {
    position: usize,
    inside: Option<Inside>,
}

#[derive(Clone, Copy)]
enum Inside {
    Quotes(u8),
    Comment,
    Line,
}

impl Lexer {
    /// Reads up to `end` and returns whether that is inside a literal or a comment.
    pub(crate) fn is_inside(&mut self, text: &[u8], end: usize) -> bool {
        while self.position < end {
            self.position += match self.inside {
                None => self.outside(&text[self.position..end]),
                Some(Inside::Quotes(quote)) => self.quoted(&text[self.position..end], quote),
                Some(Inside::Comment) => self.until(&text[self.position..end], b"*/"),
                Some(Inside::Line) => self.until(&text[self.position..end], b"\n"),
            };
        }
        self.inside.is_some()
    }

    fn outside(&mut self, text: &[u8]) -> usize {
        let special = |byte: &u8| matches!(byte, b'\'' | b'"' | b'`' | b'#' | b'-' | b'/');
        let Some(at) = text.iter().position(special) else { return text.len() };
        let rest = &text[at..];
        let (inside, length) = match rest[0] {
            b'#' => (Some(Inside::Line), 1),
            b'-' if rest.starts_with(b"-- ") => (Some(Inside::Line), 3),
            b'/' if rest.starts_with(b"/*") => (Some(Inside::Comment), 2),
            b'-' | b'/' => (None, 1),
            quote => (Some(Inside::Quotes(quote)), 1),
        };
        self.inside = inside;
        at + length
    }

    /// A doubled quote ends one literal and begins another, which gives the same result.
    fn quoted(&mut self, text: &[u8], quote: u8) -> usize {
        let found = if quote == b'`' { memchr(quote, text) } else { memchr::memchr2(quote, b'\\', text) };
        match found {
            None => text.len(),
            Some(at) if text[at] == b'\\' => (at + 2).min(text.len()),
            Some(at) => {
                self.inside = None;
                at + 1
            }
        }
    }

    fn until(&mut self, text: &[u8], end: &[u8]) -> usize {
        memmem::find(text, end).map_or(text.len(), |at| {
            self.inside = None;
            at + end.len()
        })
    }
}
