//! The lines before a statement.

use memchr::{memchr, memmem};

use super::account::{self, Account};
use super::boundary::{Line, classify};
use super::settings::{self, COMMAND, Name};
use super::time::{self, Stamp};
use super::touched;
use super::values::{is_blank, number, skip_blanks, take_flag, take_number, take_seconds, value_length};
use crate::measures::{Measure, Measures, Unit};
use crate::pieces::{line_end, without_return};

/// More seconds than this are no duration, but a server's subtraction that went below zero.
const LONGEST_S: u64 = 1_000_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// How far behind a header its `SET timestamp` is looked for where it is not at its place.
const LATE_BYTES: usize = 2048;
const MOST_LATE_LINES: usize = 16;
/// Of `use` in one line, and of `SET` before there is a timestamp, not more are read.
const MOST_SETTINGS: usize = 4;

/// What the lines say; `None` where they say nothing.
#[derive(Default)]
pub(super) struct Header<'a> {
    pub(super) time: Option<Stamp>,
    pub(super) account: Option<Account<'a>>,
    pub(super) thread: Option<u64>,
    /// Of the event itself; empty for none.
    pub(super) schema: Option<&'a [u8]>,
    /// The file's, from here on.
    pub(super) used: Option<Name<'a>>,
    pub(super) query_ns: Option<u64>,
    pub(super) measures: Measures,
    pub(super) errno: Option<u16>,
    /// The log has one statement, or session, in so many.
    pub(super) rate_limit: Option<u64>,
    /// It has a `# Time:` that cannot be read: no other event's time is this one's.
    pub(super) has_unread_time: bool,
    /// It has a `# User@Host:` that cannot be read.
    pub(super) has_unread_account: bool,
    /// Lines that are not as servers write them, and were read all the same.
    pub(super) touched_lines: u64,
    /// `Start:` of MySQL's log_slow_extra.
    pub(super) start: Option<Stamp>,
    /// `SET timestamp=`, in ns; its fraction is that of the text.
    pub(super) timestamp_ns: Option<u64>,
    /// The last line that is either of the header or the statement itself: `use x;`, `SET timestamp=1;`.
    pub(super) last: Option<&'a [u8]>,
}

/// Names of fields are shorter, with what is before them.
const LONGEST_KEY: usize = 32;

/// Reads the header that begins `text`. Gives it with the offset of what follows, or nothing if the buffer ends before.
pub(super) fn parse(text: &[u8], at_end: bool) -> Option<(Header<'_>, usize)> {
    let mut header = Header::default();
    header.read(text, at_end).map(|body| (header, body))
}

/// The fields of the line at `at`, and where the next begins, if it is one as every event has them, behind and before lines
/// that are whole: it begins no other event, no editor wrapped it, and nothing is between.
#[inline]
fn plain(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let is_own = match text.get(at..at + 6)? {
        b"# Quer" | b"# Thre" | b"# Rows" | b"# Byte" | b"# Sche" => at >= 2,
        _ => false,
    };
    if !is_own || !matches!(text[at - 2], b'0'..=b'9' | b'a'..=b'z' | b']') {
        return None;
    }
    let end = at + line_end(&text[at..])?;
    let is_whole = text[end - 1].is_ascii_alphanumeric();
    (is_whole && !matches!(text.get(end + 1)?, b'\n' | b'\r')).then(|| (&text[at + 2..end], end + 1))
}

/// Where the next line of a header begins behind blank ones, which editors and mails put there; else `at`.
fn over_blanks(text: &[u8], at: usize, at_end: bool) -> Option<usize> {
    let is_key = |rest: &[u8]| begins_with_key(&rest[..rest.len().min(LONGEST_KEY)]);
    behind_blanks(text, at, at_end, LONGEST_KEY, |rest| {
        settings::is_use(rest)
            || settings::is_set(rest)
            || rest.strip_prefix(b"# ").map(skip_blanks).is_some_and(is_key)
    })
}

/// Where a command begins behind blank lines that somebody put before it; else `at`. A statement may have blanks before it,
/// but a command would be read as a comment.
fn before_command(text: &[u8], at: usize, at_end: bool) -> Option<usize> {
    behind_blanks(text, at, at_end, COMMAND.len(), |rest| settings::command(rest).is_some())
}

/// Where the text behind blank lines at `at` begins if it is what is asked for, which takes `needed` bytes to tell; else `at`.
fn behind_blanks(
    text: &[u8],
    at: usize,
    at_end: bool,
    needed: usize,
    is_it: impl Fn(&[u8]) -> bool,
) -> Option<usize> {
    if !matches!(text.get(at), Some(b'\n' | b'\r' | b';')) {
        return Some(at);
    }
    // A line that is nothing but `;` is as blank as others.
    let mut blanks = 0;
    while let Some(byte) = text.get(at + blanks) {
        blanks += match byte {
            b'\n' | b'\r' => 1,
            b';' => match settings::behind_lone_end(&text[at + blanks..]) {
                Some(length) => length,
                None if text.len() - at - blanks < 3 && !at_end => return None,
                None => break,
            },
            _ => break,
        }
    }
    let rest = &text[at + blanks..];
    if rest.len() < needed && !at_end {
        return None;
    }
    Some(if is_it(rest) { at + blanks } else { at })
}

/// Whether a line without `#` is of the header all the same.
fn is_touched(text: &[u8], at: usize, at_end: bool) -> Option<bool> {
    let rest = &text[at..];
    if rest.starts_with(b"SET ") || rest.starts_with(b"use ") {
        return Some(false);
    }
    let window = &rest[..rest.len().min(touched::LOOK_BYTES)];
    let is_short = window.len() < touched::LOOK_BYTES && !at_end && memchr(b'\n', window).is_none();
    (!is_short).then(|| touched::fields(window).is_some())
}

/// The line at `at`, with the next one if somebody's editor wrapped it, and where the one after them begins.
fn wrapped(text: &[u8], at: usize, at_end: bool) -> Option<(&[u8], usize)> {
    let (first, next) = line(text, at, at_end)?;
    let name = first.strip_prefix(b"# User@Host: ").filter(|name| !account::is_whole(name));
    if name.is_none() && !first.ends_with(b":") && !first.ends_with(b": ") {
        return Some((first, next));
    }
    let (second, after) = match line(text, next, at_end) {
        Some(found) => found,
        None if text.len() - at > super::boundary::LINE_BYTES => return Some((first, next)),
        None => return None,
    };
    let both = &text[at..next + second.len()];
    let is_one = !super::boundary::may_be_firm(text, next)
        && (touched::is_wrapped(first, second) || name.is_some() && account::parse(&both[13..]).is_some());
    Some(if is_one { (both, after) } else { (first, next) })
}

/// The line at `at` without its end, and where the next begins.
fn line(text: &[u8], at: usize, at_end: bool) -> Option<(&[u8], usize)> {
    match line_end(&text[at..]) {
        Some(length) => Some((without_return(&text[at..at + length]), at + length + 1)),
        None if at_end => Some((without_return(&text[at..]), text.len())),
        None => None,
    }
}

/// What `# Time:` says, with the account that stands behind it before MySQL 5.1. Nothing where anything else is behind it,
/// which may change its meaning.
pub(super) fn time_of(text: &[u8]) -> Option<(Stamp, Option<Account<'_>>)> {
    let (stamp, rest) = time::stamp(text.trim_ascii_start())?;
    if rest.trim_ascii().is_empty() {
        return Some((stamp, None));
    }
    let account = touched::user(rest).and_then(account::parse)?;
    Some((stamp, Some(account)))
}

impl<'a> Header<'a> {
    /// Reads the header that begins `text` into this empty one. Gives the offset of what follows.
    #[inline]
    pub(super) fn read(&mut self, text: &'a [u8], at_end: bool) -> Option<usize> {
        let mut at = 0;
        while text.get(at) == Some(&b'#') || is_touched(text, at, at_end)? {
            if let Some((rest, next)) = plain(text, at) {
                self.fields(rest);
                at = next;
                continue;
            }
            let (line, next) = wrapped(text, at, at_end)?;
            if settings::command(line).is_some() {
                return Some(at);
            }
            if at > 0 && self.begins_another(text, at, line, at_end)? {
                return Some(at);
            }
            self.comment(line);
            at = over_blanks(text, next, at_end)?;
        }
        self.statements(text, at, at_end)
    }

    /// Whether a server wrote it that sets a timestamp before each statement: it writes times with a zone, or numbers of
    /// threads.
    pub(super) fn is_since_5_1(&self) -> bool {
        self.time.is_some_and(|time| !time.is_local)
            || self.thread.is_some()
            || self.account.is_some_and(|account| account.id.is_some())
    }

    /// Whether a line is not of this header, but begins the next event: then this one has no statement.
    fn begins_another(&self, text: &[u8], at: usize, line: &[u8], at_end: bool) -> Option<bool> {
        let is_again = match line.get(2) {
            Some(b'T') if line.starts_with(b"# Time: ") => self.has_time() || self.account.is_some(),
            Some(b'U') if line.starts_with(b"# User@Host: ") => self.account.is_some(),
            _ => self.is_touched_again(line),
        };
        if !is_again && !super::boundary::ends_statement(&text[..at]) {
            return Some(false);
        }
        match classify(&text[at..], at_end) {
            Line::Unknown => None,
            kind => Some(kind == Line::First || is_again && kind == Line::Touched),
        }
    }

    fn has_time(&self) -> bool {
        self.time.is_some() || self.has_unread_time
    }

    fn is_touched_again(&self, line: &[u8]) -> bool {
        let begins = |key| touched::begins_with(line, key);
        (self.account.is_some() && (begins(b"time:") || begins(b"user@host:")))
            || (self.has_time() && begins(b"time:"))
    }

    fn comment(&mut self, line: &'a [u8]) {
        match line.get(2) {
            Some(b'T') if line.starts_with(b"# Time: ") => return self.time(&line[8..]),
            Some(b'U') if line.starts_with(b"# User@Host: ") => return self.account(&line[13..]),
            Some(b' ' | b'A'..=b'Z') if line.starts_with(b"# ") => self.fields(&line[1..]),
            // A plan, line by line, as MariaDB writes it; it holds names of the client's choice.
            _ if line.starts_with(b"# explain:") => {}
            _ => self.touched(line),
        }
        if self.account.is_none() && !self.has_unread_account {
            self.account = unnamed_account(line);
        }
    }

    fn time(&mut self, text: &'a [u8]) {
        match time_of(text) {
            Some((stamp, account)) => {
                self.time = Some(stamp);
                if account.is_some() {
                    self.known_account(account);
                }
            }
            None => self.has_unread_time = true,
        }
    }

    fn account(&mut self, text: &'a [u8]) {
        self.known_account(account::parse(text));
        self.has_unread_account |= self.account.is_none();
    }

    /// Of an account with damaged names only the number is known.
    fn known_account(&mut self, account: Option<Account<'a>>) {
        let is_damaged = account.as_ref().is_some_and(account::is_damaged);
        self.has_unread_account = is_damaged;
        self.account =
            account.map(
                |account| if is_damaged { Account { id: account.id, ..Account::default() } } else { account },
            );
    }

    /// A line that somebody changed.
    fn touched(&mut self, line: &'a [u8]) {
        let Some(rest) = touched::fields(line) else { return };
        self.touched_lines += 1;
        self.fields(rest);
    }

    /// `Key: value  Key: value`, with one blank or two between. The keys that are in every event come first and in
    /// their order: these need no search.
    fn fields(&mut self, rest: &'a [u8]) {
        let mut rest = skip_blanks(rest);
        if let Some(after) = rest.strip_prefix(b"Query_time: ") {
            (self.query_ns, rest) = take_seconds(skip_blanks(after));
            rest = self.after_key(rest, b"Lock_time: ", Measure::LockNs);
            rest = self.after_key(rest, b"Rows_sent: ", Measure::RowsSent);
            rest = self.after_key(rest, b"Rows_examined: ", Measure::RowsExamined);
        } else if let Some(after) = rest.strip_prefix(b"Rows_affected: ") {
            rest = skip_blanks(self.measure(Measure::RowsAffected, skip_blanks(after)));
            rest = self.after_key(rest, b"Bytes_sent: ", Measure::ResponseBytes);
        } else if let Some(after) = rest.strip_prefix(b"Thread_id: ") {
            (self.thread, rest) = take_number(skip_blanks(after));
            rest = skip_blanks(rest);
            let name = rest.strip_prefix(b"Schema: ").and_then(|rest| rest.strip_suffix(b"  QC_hit: No"));
            if let Some(name) = name {
                self.schema = Some(name.trim_ascii());
                return;
            }
        } else if !begins_with_key(rest) {
            // A warning, as MariaDB writes it: its text has values of the client's choice.
            return;
        }
        while let Some(colon) = memchr(b':', rest) {
            let key = &rest[..colon];
            rest = &rest[colon + 1..];
            rest = rest.strip_prefix(b" ").unwrap_or(rest);
            let key = if touched::is_changed(key) { touched::canonical(key).unwrap_or(key) } else { key };
            rest = skip_blanks(self.field(key, rest));
        }
    }

    /// Takes the value of a key; gives what follows it.
    fn field(&mut self, key: &[u8], rest: &'a [u8]) -> &'a [u8] {
        if let Some(measure) = Measure::of_slow_log(key) {
            return self.measure(measure, skip_blanks(rest));
        }
        match key {
            b"Query_time" => {
                let rest = skip_blanks(rest);
                let (query_ns, rest) = take_seconds(rest);
                self.query_ns = query_ns;
                return rest;
            }
            b"Time" => {
                self.time(rest);
                return b"";
            }
            b"User@Host" => {
                self.account(rest.trim_ascii_start());
                return b"";
            }
            b"Thread_id" | b"Id" => {
                let (thread, rest) = take_number(skip_blanks(rest));
                self.thread = thread;
                return rest;
            }
            b"Schema" => {
                let (schema, rest) = rest.split_at(schema_length(rest));
                self.schema = Some(schema.trim_ascii());
                return rest;
            }
            b"Stored_routine" => return b"",
            _ => {}
        }
        let value = skip_blanks(rest);
        let (value, rest) = match value.split_at(value_length(value)) {
            // A key without a value, and the next one.
            (next, _) if next.ends_with(b":") => return value,
            found => found,
        };
        match key {
            b"Errno" => self.errno = number(value).and_then(|errno| u16::try_from(errno).ok()),
            b"Log_slow_rate_limit" => self.rate_limit = number(value).filter(|limit| *limit > 1),
            b"Start" => self.start = time::stamp(value).map(|(stamp, _)| stamp),
            _ => {}
        }
        rest
    }

    /// Takes a measure's value if its key comes next.
    #[inline(always)]
    fn after_key(&mut self, rest: &'a [u8], key: &[u8], measure: Measure) -> &'a [u8] {
        let rest = skip_blanks(rest);
        match rest.strip_prefix(key) {
            Some(after) => skip_blanks(self.measure(measure, skip_blanks(after))),
            None => rest,
        }
    }

    #[inline(always)]
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

    /// `use db;` and `SET timestamp=1;`, in this order.
    fn statements(&mut self, text: &'a [u8], mut at: usize, at_end: bool) -> Option<usize> {
        if let Some((timestamp_ns, line)) = settings::plain(&text[at..]) {
            (self.timestamp_ns, self.last) = (Some(timestamp_ns), Some(&line[..line.len() - 2]));
            return self.before_statement(text, at + line.len(), at_end);
        }
        // Of several in one line, the last name counts.
        for number in 0..MOST_SETTINGS {
            let begin = over_blanks(text, at, at_end)?;
            let is_line = begin == 0 || text[begin - 1] == b'\n';
            if number > 0 && is_line {
                break;
            }
            let Some(found) = settings::used(&text[begin..], at_end)? else { break };
            (self.used, self.last) = (Some(found.value), Some(found.text));
            self.touched_lines += u64::from(found.is_touched);
            at = begin + found.length;
        }
        for _ in 0..MOST_SETTINGS {
            let begin = over_blanks(text, at, at_end)?;
            let Some(found) = settings::set(&text[begin..], at_end)? else { break };
            (self.timestamp_ns, self.last) = (found.value, Some(found.text));
            self.touched_lines += u64::from(found.is_touched);
            at = begin + found.length;
            if found.value.is_some() {
                return self.before_statement(text, at, at_end);
            }
        }
        self.late(text, at, at_end)
    }

    /// Where the statement begins: behind blank lines before a command, and behind a `;` that somebody's editor put before it.
    fn before_statement(&mut self, text: &'a [u8], at: usize, at_end: bool) -> Option<usize> {
        let length = match text.get(at) {
            Some(b';') => match settings::behind_lone_end(&text[at..]) {
                Some(length) => length,
                None if text.len() - at < 3 && !at_end => return None,
                None => return Some(at),
            },
            // The server's own values of the statement may be in a line of their own, too.
            _ if settings::is_set(&text[at..]) => match settings::set(&text[at..], at_end)? {
                Some(found) if found.value.is_none() => found.length,
                _ => return Some(at),
            },
            _ => return before_command(text, at, at_end),
        };
        // An empty statement is logged like this, and clients set these values as well: then nothing follows.
        match classify(&text[at + length..], at_end) {
            Line::Unknown => None,
            Line::Other if !text[at + length..].trim_ascii_start().is_empty() => {
                self.touched_lines += 1;
                Some(at + length)
            }
            Line::Other if !at_end => None,
            _ => Some(at),
        }
    }

    /// Finds a `SET timestamp` that is not as a server writes it, or behind lines that somebody changed so that they are no
    /// longer known as those of a header. Behind the end of a statement there is none of this event.
    fn late(&mut self, text: &'a [u8], at: usize, at_end: bool) -> Option<usize> {
        let window = &text[at..text.len().min(at + LATE_BYTES)];
        let (mut from, mut used) = (0, None);
        for _ in 0..MOST_LATE_LINES {
            let (length, next) = match memchr(b'\n', &window[from..]) {
                Some(length) => (length, from + length + 1),
                None if window.len() < LATE_BYTES && !at_end => return None,
                None => break,
            };
            let line = window[from..from + length].trim_ascii_end();
            if let Some(Some(found)) = settings::set(line, true)
                && let Some(timestamp_ns) = found.value
                && found.length == line.len()
            {
                for line in window[..from].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    self.unknown(line);
                }
                (self.timestamp_ns, self.last, self.used) =
                    (Some(timestamp_ns), Some(found.text), used.or(self.used));
                return Some(at + next);
            }
            if let Some(name) = settings::name_of(line) {
                used = Some(name);
            } else if line.ends_with(b";") || touched::begins_event(line, true) == Some(true) {
                break;
            }
            from = next;
        }
        Some(at)
    }

    /// A line of a header that is none by its looks: numbers that can be told are taken.
    fn unknown(&mut self, line: &[u8]) {
        if settings::is_use(line) {
            return;
        }
        self.touched_lines += 1;
        let begin = line.iter().position(u8::is_ascii_alphanumeric).unwrap_or(line.len());
        let text: Vec<u8> = line[begin..].iter().copied().filter(|byte| *byte != b'\\').collect();
        let text = String::from_utf8_lossy(&text).replace(" :", ":");
        let mut header = Header::default();
        header.fields(text.as_bytes());
        for (measure, value) in header.measures.iter() {
            self.measures.set(measure, value);
        }
    }
}

/// The account behind a key that was changed: programs that hide or link addresses of mail take `User@Host` for one.
fn unnamed_account(line: &[u8]) -> Option<Account<'_>> {
    memmem::find(line, b"] @ ")?;
    memmem::find_iter(line, b": ").find_map(|at| account::parse(line[at + 2..].trim_ascii_start()))
}

/// A name is not quoted, so it ends where the last key that servers write after it begins: behind two blanks, or one where
/// somebody collapsed them.
fn schema_length(text: &[u8]) -> usize {
    for end in [&b"  QC_hit: No"[..], b"  Last_errno: 0  Killed: 0"] {
        if text.ends_with(end) {
            return text.len() - end.len();
        }
    }
    let last = |keys: [&[u8]; 2]| keys.iter().filter_map(|key| memmem::rfind(text, key)).max();
    last([b"  QC_hit: ", b"  Last_errno: "]).unwrap_or_else(|| collapsed_schema_length(text))
}

fn collapsed_schema_length(text: &[u8]) -> usize {
    let is_key = |at: usize, key: &[u8]| {
        text.get(at..at + key.len()).is_some_and(|found| found.eq_ignore_ascii_case(key))
            && (at == 0 || is_blank(text[at - 1]))
    };
    let keys: [&[u8]; 6] =
        [b"QC_hit:", b"Last_errno:", b"Killed:", b"Query_time:", b"Rows_sent:", b"Bytes_sent:"];
    let begins = |at: &usize| keys.iter().any(|key| is_key(*at, key));
    // The last of the two keys that follow a name; the others only where these are on another line.
    let last = |keys: &[&[u8]]| (0..text.len()).rev().find(|at| keys.iter().any(|key| is_key(*at, key)));
    let length = last(&keys[..2]).or_else(|| (0..text.len()).find(begins)).unwrap_or(text.len());
    // A mark that somebody put between values is no part of the name.
    let is_mark = |byte: &u8| is_blank(*byte);
    text[..length].iter().rposition(|byte| !is_mark(byte)).map_or(0, |at| at + 1)
}

fn begins_with_key(text: &[u8]) -> bool {
    text.iter().find(|byte| matches!(byte, b':' | b' ')) == Some(&b':')
}

/// How long it took, where that can be.
pub(super) fn duration(ns: u64) -> Option<u64> {
    (ns <= LONGEST_S * NS_PER_S).then_some(ns)
}

#[cfg(test)]
mod tests;
