//! What is behind a header: a statement, a command that has none, or something that no client sent.

use memchr::{memchr, memmem};

use super::account;
use super::boundary::{By, End, Lexer};
use super::event::Statement;
use super::header::Header;
use super::settings;
use super::supervised;
use super::time;
use crate::coverage::NO_STATEMENT;

/// Of a line that sums up what a server left out, so much is looked at.
const SUMMARY_BYTES: usize = 200;

/// A statement, and what was found of its end.
pub(super) struct Found<'a> {
    pub(super) statement: Statement<'a>,
    /// How many bytes of what is behind the header are the statement, or lines of `other_lines`.
    pub(super) kept: usize,
    /// It has no `;`: the header behind it ends it.
    pub(super) is_unterminated: bool,
    /// Its end is the last `;` that there is before what is no statement: it may be one in a literal that was cut off.
    pub(super) is_end_guessed: bool,
    /// Lines of the server's error log, or of `tail`, that follow.
    pub(super) other_lines: u64,
}

impl<'a> Found<'a> {
    fn whole(statement: Statement<'a>, kept: usize) -> Self {
        Self { statement, kept, is_unterminated: false, is_end_guessed: false, other_lines: 0 }
    }
}

/// Reads what is behind a header. `has_banner`: a server began to write behind it. `needs_no_end`: the statement before had
/// no `;` either, or there is none before, so that the last one of the input needs none.
pub(super) fn find<'a>(
    rest: &'a [u8],
    header: &Header<'a>,
    end: &End,
    has_banner: bool,
    needs_no_end: bool,
) -> Result<Found<'a>, &'static str> {
    let (inner, other_lines) = without_others(rest);
    let found = |statement, is_unterminated| Found {
        is_unterminated,
        other_lines,
        ..Found::whole(statement, rest.len())
    };
    let is_ended = match end.by {
        By::Header => !end.is_open && !has_banner && inner.ends_with(b"\n"),
        By::Input => needs_no_end && !end.is_open && inner.ends_with(b"\n"),
        By::Limit => false,
    };
    if let Some(name) = settings::command(rest) {
        return command(rest, name, inner, is_ended, other_lines);
    }
    if inner.trim_ascii().is_empty() {
        // What looked like the header's is the statement, unless every server that wrote such a header sets a timestamp
        // before each one.
        return match header.last {
            Some(last) if end.by == By::Header && !(header.is_since_5_1() && last.starts_with(b"SET ")) => {
                Ok(Found { other_lines, ..Found::whole(Statement::Text(last), rest.len()) })
            }
            _ => Err(NO_STATEMENT),
        };
    }
    if let Some(at) = other_log(rest) {
        let text = without_terminator(&rest[..at]).ok_or("a statement that lines of another log follow")?;
        return Ok(Found::whole(Statement::Text(text), at));
    }
    if let Some(text) = without_terminator(inner) {
        return Ok(found(Statement::Text(text), false));
    }
    // After a crash, blocks that were never written are full of zeros.
    let zeros = memmem::find(rest, b";\n\0").map(|at| at + 2);
    let last = || {
        let ends = [&b";\n"[..], b";\r\n"].map(|end| memmem::rfind(rest, end).map(|at| at + end.len()));
        ends.into_iter().max().flatten()
    };
    let is_behind = match end.by {
        By::Header => true,
        // What somebody wrote under the log. But a stored program has such ends in it.
        By::Input => !begins_program(rest) && last().is_some_and(|at| !Lexer::default().is_inside(rest, at)),
        By::Limit => false,
    };
    match zeros.or_else(|| if is_behind { last() } else { None }) {
        Some(kept) => Ok(Found {
            is_end_guessed: true,
            ..Found::whole(Statement::Text(without_terminator(&rest[..kept]).unwrap_or(&rest[..kept])), kept)
        }),
        None if end.by == By::Limit => Ok(Found::whole(Statement::Text(rest), rest.len())),
        None if is_ended => Ok(found(Statement::Text(without_client_end(inner.trim_ascii_end())), true)),
        None => Err("a statement that is cut off"),
    }
}

/// Whether a statement may have other statements in it.
fn begins_program(text: &[u8]) -> bool {
    let mut text = text.trim_ascii_start();
    // What stands in a comment of a client's own begins nothing; servers execute what is in `/*!`.
    while text.starts_with(b"/*")
        && !matches!(text.get(2), Some(b'!' | b'M'))
        && let Some(end) = memmem::find(text, b"*/")
    {
        text = text[end + 2..].trim_ascii_start();
    }
    [&b"create"[..], b"alter", b"begin", b"declare", b"delimiter", b"/*"]
        .iter()
        .any(|word| text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word)))
}

/// Where lines of another log begin in a statement: one whose lines have something before them, so that none of its headers
/// ended the statement.
pub(super) fn other_log(text: &[u8]) -> Option<usize> {
    // Most statements are one line: these are not searched.
    memchr(b'\n', text.trim_ascii_end())?;
    memmem::find_iter(text, b"# User@Host: ").find_map(|at| {
        let begin = memchr::memrchr(b'\n', &text[..at])? + 1;
        let end = memchr(b'\n', &text[at..]).map_or(text.len(), |length| at + length);
        let is_log = begin < at && account::parse(&text[at + 13..end]).is_some();
        let is_outside = is_log && !Lexer::default().is_inside(text, begin);
        // The line of the time, before it.
        let time =
            memmem::rfind(&text[..at], b"# Time: ").and_then(|time| memchr::memrchr(b'\n', &text[..time]));
        is_outside.then(|| time.map_or(begin, |time| time + 1))
    })
}

fn command<'a>(
    rest: &'a [u8],
    name: &'a [u8],
    inner: &'a [u8],
    is_ended: bool,
    other_lines: u64,
) -> Result<Found<'a>, &'static str> {
    let line = memchr(b'\n', name).map_or(name.len(), |length| length + 1);
    let whole = rest.len() - name.len() + line;
    // Its `;` may be in a line of its own.
    let behind = inner.get(whole..).unwrap_or_default().trim_ascii();
    let is_alone = behind.iter().all(|byte| *byte == b';');
    let kept = if is_alone { rest.len() } else { whole };
    let (name, is_unterminated) = match without_terminator(&name[..line]) {
        Some(name) => (name, false),
        None if is_alone && !behind.is_empty() => (name[..line].trim_ascii_end(), false),
        None if is_ended && is_alone => (without_client_end(name[..line].trim_ascii_end()), true),
        None => return Err("an administrator command that is cut off"),
    };
    let other_lines = if is_alone { other_lines } else { 0 };
    Ok(Found { is_unterminated, other_lines, ..Found::whole(Statement::Command(name), kept) })
}

/// The text before `;`, which blanks and empty lines may follow.
pub(super) fn without_terminator(text: &[u8]) -> Option<&[u8]> {
    text.strip_suffix(b";\n")
        .or_else(|| text.strip_suffix(b";\r\n"))
        .or_else(|| text.trim_ascii_end().strip_suffix(b";"))
}

/// The text before `\G`, which the client takes for an end, and people paste.
fn without_client_end(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\\G").or_else(|| text.strip_suffix(b"\\g")).unwrap_or(text).trim_ascii_end()
}

/// How many statements a server left out of its log, where that is what it wrote in the place of a statement:
/// `throttle: 39 'index not used' warning(s) suppressed.` (log_throttle_queries_not_using_indexes).
pub(super) fn throttled(rest: &[u8]) -> Option<u64> {
    let (begin, count) = rest.trim_ascii_start().split_at_checked(9)?;
    if !begin.eq_ignore_ascii_case(b"throttle:") {
        return None;
    }
    let count = count.trim_ascii();
    // A sheet may have put the digits in groups.
    let is_of_number = |byte: &&u8| byte.is_ascii_digit() || **byte == b',';
    let digits = count.iter().take_while(is_of_number).count();
    let (number, what) = count.split_at_checked(digits).filter(|_| (1..=19).contains(&digits))?;
    // Its quotes and its end may be another program's: `&#39;`, quotes of typography, cut off behind the reason.
    let what = what[..what.len().min(SUMMARY_BYTES)].trim_ascii_start().to_ascii_lowercase();
    let is_quoted =
        what.first().is_some_and(|byte| matches!(byte, b'\'' | b'"' | b'`' | b'\\' | b'&' | 0x80..));
    let is_summary = is_quoted
        && [&b"index not used"[..], b"suppressed"].iter().any(|part| memmem::find(&what, part).is_some());
    let digits = number.iter().filter(|byte| byte.is_ascii_digit());
    (is_summary && number[0].is_ascii_digit()).then(|| {
        digits.fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    })
}

/// Whether lines of other logs follow a whole statement: their quotes open no literal.
pub(super) fn has_others(text: &[u8]) -> bool {
    let (inner, lines) = without_others(text);
    lines > 0 && without_terminator(inner).is_some()
}

/// The text without lines at its end that are of no slow log, and how many there are: where a container writes both of its
/// logs to one stream, and where `tail` follows several files.
pub(super) fn without_others(mut text: &[u8]) -> (&[u8], u64) {
    let mut lines = 0;
    loop {
        let Some(inner) = text.trim_ascii_end().last().map(|_| text.trim_ascii_end()) else {
            return (text, lines);
        };
        if inner.ends_with(b";") {
            return (text, lines);
        }
        let begin = memchr::memrchr(b'\n', inner).map_or(0, |at| at + 1);
        if !is_other(&inner[begin..]) {
            return (text, lines);
        }
        lines += 1;
        text = &text[..begin];
    }
}

fn is_other(line: &[u8]) -> bool {
    if line.starts_with(b"==> ") {
        return line.ends_with(b" <==");
    }
    // 2024-01-05T20:11:50.970826Z 12 [Note] [MY-010914] [Server] Aborted connection
    let Some((_, rest)) = time::stamp(line) else { return false };
    if rest.starts_with(b",") {
        return supervised::is_line(line);
    }
    let rest = rest.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = rest[digits..].trim_ascii_start();
    [&b"[Note]"[..], b"[Warning]", b"[ERROR]", b"[Error]", b"[System]"]
        .iter()
        .any(|level| rest.starts_with(level))
}
