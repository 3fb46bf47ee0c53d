//! General query logs of MySQL, Percona Server and MariaDB: what clients sent, as it came.
//!
//! A line is `time TAB thread command TAB argument`, with the time in front of each since MySQL 5.7 and once a second
//! before that and in MariaDB, where two TABs stand in its place and it is the server's local time. MySQL 5.0 pads commands
//! to twelve columns instead of ending them with a TAB, and logs that went through an editor have blanks for TABs: there,
//! only the names of commands that exist begin an event. Nothing tells where
//! an argument ends: it continues until a line that looks like another event. What no general log knows is `None`: how
//! long it took, what came back. Who is asking is on the line of the login and is remembered for each thread.
//! Values are part of the text of executed statements. A login that is refused has two lines: `Connect`, and `Connect`
//! with "Access denied". SQL's PREPARE and EXECUTE have the statement that they prepare or run in lines behind their own,
//! as `Prepare` and `Execute`: one event, because the client sent one statement. A database that is refused has a line
//! `Init DB` with "Access denied": behind a login that is the login's second line, behind a USE it is the USE.

mod sessions;

use std::io::Read;

use memchr::{memchr, memchr_iter, memchr2, memchr2_iter, memmem};

use self::sessions::{DENIED, Dynamic, Last, Sessions, denied_database};
use super::commands;
use super::coverage::Coverage;
use super::event::{Command, Event, Outcome, Sink};
use super::pieces::{Buffer, Pieces, drive, without_banners, without_return};
use super::slow_log::time::{self, Stamp};
use super::slow_log::{self, Lexer, MAX_EVENT_BYTES};

const BUFFER_BYTES: usize = 512 << 10;
/// What is before an argument is not longer.
const PREFIX_BYTES: usize = 96;
/// Columns of a command with the blanks behind it, up to MySQL 5.0.
const PADDED_BYTES: usize = 12;
/// To so many columns at least servers pad the number of a thread.
const NUMBER_COLUMNS: usize = 5;
const ACCESS_DENIED: u16 = 1045;
const DATABASE_DENIED: u16 = 1044;

/// How to read what the log does not say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How far the server's local time is ahead of UTC. Only logs without a zone need it.
    pub utc_offset_s: i32,
}

/// Reads a whole log; local time is taken for UTC. `name` is in the places of damage.
///
/// # Errors
/// Reading failed, or the sink refused an event.
pub fn read(input: impl Read, name: &str, sink: &mut dyn Sink) -> anyhow::Result<Coverage> {
    read_with(input, name, &Options::default(), sink)
}

/// The same, with options.
///
/// # Errors
/// Reading failed, or the sink refused an event.
pub fn read_with(
    input: impl Read,
    name: &str,
    options: &Options,
    sink: &mut dyn Sink,
) -> anyhow::Result<Coverage> {
    let mut parser = Parser::new(name, options);
    let mut sink = |event: &Event<'_>| sink.event(event);
    drive(input, &mut Buffer::new(BUFFER_BYTES), &mut parser, &mut sink)?;
    Ok(parser.coverage)
}

/// Whether a line begins an event: to tell this kind of log from others.
#[must_use]
pub fn is_event(line: &[u8]) -> bool {
    // The last line of a banner, behind the number of a line, has the name of a command.
    let is_banner = |command: &[u8]| command == b"Time" && line.trim_ascii_end().ends_with(b"Argument");
    matches!(prefix(line, true), Found::It(found) if !is_banner(found.command))
}

pub(crate) struct Parser<'n> {
    name: &'n str,
    utc_offset_s: i32,
    pub(crate) coverage: Coverage,
    sessions: Sessions,
    /// A banner came after the last event.
    is_reopened: bool,
    dynamic: Dynamic,
    /// The last time that stood before a line.
    time_ns: u64,
    /// Times are the server's local ones, which was told.
    has_local_times: bool,
    /// Of the next byte, and how many lines end before it.
    offset: u64,
    lines: u64,
    /// Outside of any event, and whether that was told.
    skips: Option<bool>,
    /// How far the event that begins the buffer was searched for its end.
    searched: usize,
}

/// What is before an argument.
struct Prefix<'a> {
    time: Option<Stamp>,
    thread: u64,
    command: &'a [u8],
    length: usize,
}

enum Found<'a> {
    It(Prefix<'a>),
    Nothing,
    /// The buffer ends too early to tell.
    Unknown,
}

fn prefix(text: &[u8], at_end: bool) -> Found<'_> {
    let window = &text[..text.len().min(PREFIX_BYTES)];
    // Most lines that begin with a blank are a statement's: these are told without a look for their ends.
    if window.first() == Some(&b' ')
        && window.iter().find(|byte| **byte != b' ').is_some_and(|byte| !matches!(byte, b'\t' | b'0'..=b'9'))
    {
        return Found::Nothing;
    }
    let line = match memchr2(b'\n', b'\r', window) {
        Some(length) => &window[..length],
        None if at_end || window.len() == PREFIX_BYTES => window,
        None if window
            .first()
            .is_none_or(|first| matches!(first, b'\t' | b' ') || first.is_ascii_digit()) =>
        {
            return Found::Unknown;
        }
        None => return Found::Nothing,
    };
    parts(line).map_or(Found::Nothing, Found::It)
}

fn parts(line: &[u8]) -> Option<Prefix<'_>> {
    let is_blank = |byte: &u8| matches!(byte, b'\t' | b' ');
    let (time, rest) = match line.first()? {
        b'\t' | b' ' => (None, line),
        b'0'..=b'9' if begins_trimmed(line) => return trimmed(line),
        _ => time::stamp(line).map(|(stamp, rest)| (Some(stamp), rest))?,
    };
    let blanks = rest.iter().take_while(|byte| is_blank(byte)).count();
    // A ticket or a wiki made one blank of several: where each line has its time, the name of a command tells.
    let is_collapsed = blanks == 1 && time.is_some_and(|stamp| !stamp.is_local);
    let has_tabs = if time.is_some() { rest.starts_with(b"\t") } else { rest.starts_with(b"\t\t") };
    if blanks < 2 && !has_tabs && !is_collapsed {
        return None;
    }
    let rest = &rest[blanks..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 19 {
        return None;
    }
    let thread = rest[..digits].iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let rest = rest[digits..].strip_prefix(b" ")?;
    let begin = line.len() - rest.len();
    if let Some((command, length)) = padded(rest) {
        return Some(Prefix { time, thread, command, length: begin + length });
    }
    // A command without an argument still has its TAB, unless an editor took it.
    let tab = memchr(b'\t', rest);
    let width = blanks + digits;
    let is_wide = time.is_some() || width >= 2 + NUMBER_COLUMNS;
    // Without a time, only as wide as two TABs of 1, 2, 4 or 8 columns make it: statements have such lines, too.
    let is_expanded = time.is_some()
        || [1, 2, 4, 8]
            .iter()
            .any(|tab| (NUMBER_COLUMNS..=NUMBER_COLUMNS + 1).contains(&(width.saturating_sub(2 * tab))));
    if tab.is_none()
        && is_expanded
        && let Some((command, length)) = before_blank(rest)
    {
        return Some(Prefix { time, thread, command, length: begin + length });
    }
    let length = tab.unwrap_or_else(|| without_return(rest).len());
    let command = &rest[..length];
    let is_word = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b' ' | b'_');
    // A statement's own line may be two TABs, a number and words: of a command that is not known, servers' padding is
    // asked for.
    let is_new = has_tabs && tab.is_some() && is_wide && command.iter().all(is_word);
    let is_command = commands::is_name(command) || is_new && command.first()?.is_ascii_alphabetic();
    is_command.then(|| Prefix { time, thread, command, length: (begin + length + 1).min(line.len()) })
}

/// Whether a line begins with the number of a thread: an editor took the blanks before it.
fn begins_trimmed(line: &[u8]) -> bool {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits != 6
        && line[digits..].starts_with(b" ")
        && line[digits + 1..].first().is_some_and(u8::is_ascii_uppercase)
}

/// A line that lost the blanks at its beginning and kept the TAB behind its command.
fn trimmed(line: &[u8]) -> Option<Prefix<'_>> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let thread = std::str::from_utf8(&line[..digits]).ok()?.parse().ok()?;
    let rest = &line[digits + 1..];
    // With nothing behind it, it lost its TAB, too.
    let length = memchr(b'\t', rest).unwrap_or_else(|| without_return(rest).len());
    let (command, begin) = (&rest[..length], digits + 1 + length);
    let is_alone = begin == without_return(line).len();
    let is_command =
        commands::is_name(command) && (!is_alone || matches!(command, b"Quit" | b"Ping" | b"Statistics"));
    is_command.then(|| Prefix { time: None, thread, command, length: (begin + 1).min(line.len()) })
}

/// A command that blanks follow, and the length of both.
fn padded(rest: &[u8]) -> Option<(&[u8], usize)> {
    let word = rest.iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b' ').count();
    // Names have single blanks in them.
    let length = memmem::find(&rest[..word], b"  ").unwrap_or(word.min(PADDED_BYTES - 1));
    let command = rest[..length].trim_ascii_end();
    let end = rest.len().min(PADDED_BYTES);
    let is_padded = end > command.len() && rest[command.len()..end].iter().all(|byte| *byte == b' ');
    (is_padded && commands::is_name(command)).then_some((command, end))
}

/// A command where an editor made blanks of the TAB behind it, and the length of both.
fn before_blank(rest: &[u8]) -> Option<(&[u8], usize)> {
    // Names have one word or two.
    let ends = memchr_iter(b' ', rest).take(2).filter(|end| commands::is_name(&rest[..*end]));
    let command = &rest[..ends.max()?];
    let behind = &rest[command.len()..];
    Some((command, rest.len() - behind.trim_ascii_start().len()))
}

/// Whether lines that continue nothing follow a command: names of databases have any, too.
fn has_strange_lines(command: &[u8], lines: &[u8]) -> bool {
    let has_none =
        matches!(command, b"Connect" | b"Quit" | b"Ping" | b"Statistics" | b"Close stmt" | b"Reset stmt");
    has_none && !lines.trim_ascii().is_empty()
}

/// What ends a block in a ticket, a wiki or a page.
const CLOSING: [&[u8]; 9] =
    [b"```", b"~~~", b"{noformat}", b"{code}", b"{quote}", b"</pre>", b"[/code]", b"]]>", b"Script done on "];

/// A statement without the end of the block that the log was pasted into and what follows that, and how many lines these
/// are. Nothing else tells where a statement ends.
fn without_closing(text: &[u8]) -> (&[u8], u64) {
    let closes = |at: &usize| {
        CLOSING.iter().any(|mark| text[at + 1..].starts_with(mark)) && !Lexer::default().is_inside(text, *at)
    };
    match memchr_iter(b'\n', text).find(closes) {
        Some(at) => (&text[..=at], memchr_iter(b'\n', &text[at + 1..]).count().max(1) as u64),
        None => (text, 0),
    }
}

/// The statement behind the `[number]` that MySQL up to 5.1 writes before prepared ones.
fn without_number(argument: &[u8]) -> &[u8] {
    let Some(rest) = argument.strip_prefix(b"[") else { return argument };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest[digits..].strip_prefix(b"] ").filter(|_| digits > 0).unwrap_or(argument)
}

impl<'n> Parser<'n> {
    pub(crate) fn new(name: &'n str, options: &Options) -> Self {
        Self {
            name,
            utc_offset_s: options.utc_offset_s,
            coverage: Coverage::default(),
            sessions: Sessions::default(),
            dynamic: Dynamic::default(),
            time_ns: 0,
            has_local_times: false,
            offset: 0,
            lines: 0,
            skips: Some(false),
            searched: 0,
            is_reopened: false,
        }
    }

    /// Takes an event whose parts are apart already, as a row of mysql.general_log has them.
    pub(crate) fn entry(
        &mut self,
        time: Option<Stamp>,
        thread: u64,
        command: &[u8],
        argument: &[u8],
        is_cut: bool,
        sink: &mut impl Sink,
    ) -> anyhow::Result<()> {
        self.event(&Prefix { time, thread, command, length: 0 }, argument, is_cut, sink)
    }

    /// The line after `from` that begins an event. `None` if there is none in the buffer; then the number is where to
    /// look again.
    fn next(text: &[u8], from: usize, at_end: bool) -> Result<usize, usize> {
        // What an editor of another system saved has `\r` alone for ends of lines.
        for end in memchr2_iter(b'\n', b'\r', &text[from..]) {
            let line = from + end + 1;
            if text[line - 1] == b'\r' && text.get(line) == Some(&b'\n') {
                continue;
            }
            match prefix(&text[line..], at_end) {
                Found::It(_) => return Ok(line),
                Found::Nothing => {}
                Found::Unknown if at_end => {}
                Found::Unknown => return Err(line - 1),
            }
        }
        Err(text.len().saturating_sub(1).max(from))
    }

    /// Skips to the first line of an event.
    fn skip(&mut self, buffer: &[u8], at: usize, at_end: bool) -> Option<usize> {
        let is_first = self.offset == 0 && at == 0;
        let is_event = |at_end| prefix(&buffer[at..], at_end);
        match (is_first, is_event(at_end)) {
            (true, Found::It(_)) => {
                self.skips = None;
                return Some(at);
            }
            (true, Found::Unknown) if !at_end => return None,
            _ => {}
        }
        // What is left may end with a banner, so its lines are kept.
        let next = Self::next(buffer, at, at_end);
        let to = match next {
            Ok(line) => line,
            Err(_) if at_end => buffer.len(),
            Err(_) => buffer.len().saturating_sub(4 * super::pieces::LINE_BYTES).max(at),
        };
        let bytes = &buffer[at..to];
        let garbage = if next.is_ok() || at_end { without_banners(bytes) } else { bytes };
        self.coverage.bytes += bytes.len() as u64;
        self.coverage.skipped_bytes += garbage.len() as u64;
        self.is_reopened |= garbage.len() < bytes.len();
        if !garbage.is_empty() && self.skips == Some(false) {
            self.skips = Some(true);
            self.damage(buffer, at, "nothing here is an event of a general log");
        }
        if next.is_ok() {
            self.skips = None;
        }
        (to > at).then_some(to)
    }

    /// Reads the event that begins at `at`.
    fn one(
        &mut self,
        buffer: &[u8],
        at: usize,
        at_end: bool,
        sink: &mut impl Sink,
    ) -> anyhow::Result<Option<usize>> {
        let text = &buffer[at..];
        let window = &text[..text.len().min(MAX_EVENT_BYTES)];
        let (end, is_cut) = match Self::next(window, self.searched, at_end || text.len() > window.len()) {
            Ok(end) => (end, false),
            Err(_) if text.len() > MAX_EVENT_BYTES => (MAX_EVENT_BYTES, true),
            Err(_) if at_end => (text.len(), false),
            Err(searched) => {
                self.searched = searched;
                return Ok(None);
            }
        };
        self.searched = 0;
        let Found::It(prefix) = prefix(text, true) else {
            self.skips = Some(false);
            return Ok(Some(at));
        };
        self.coverage.bytes += end as u64;
        let whole = &text[..end];
        // DOS ends a text with one more letter.
        let whole =
            if at_end && end == text.len() { whole.strip_suffix(b"\x1a").unwrap_or(whole) } else { whole };
        let whole = without_banners(whole);
        let is_followed_by_banner = whole.len() + 1 < end;
        let argument = whole.get(prefix.length..).unwrap_or_default();
        // Where a container writes both of its logs to one stream, lines of the error log follow a statement.
        let (argument, other_lines) = slow_log::without_other_lines(argument);
        let (argument, closing_lines) = without_closing(argument);
        let other_lines = other_lines + closing_lines;
        self.coverage.other_lines += other_lines;
        let is_ended =
            closing_lines > 0 || whole.ends_with(b"\n") || whole.ends_with(b"\r") && end < text.len();
        if is_cut {
            self.damage(buffer, at, "a statement longer than 16 MiB: cut there");
            self.skips = Some(true);
        } else if !is_ended {
            self.coverage.skipped_bytes += end as u64;
            self.damage(buffer, at, "an event that is cut off");
            return Ok(Some(at + end));
        }
        let argument = without_return(argument.strip_suffix(b"\n").unwrap_or(argument));
        if memchr(b'\n', argument).is_some_and(|end| has_strange_lines(prefix.command, &argument[end..])) {
            self.damage(
                buffer,
                at,
                "lines behind a command that has no statement: the log's lines were mixed",
            );
        }
        self.event(&prefix, argument, is_cut, sink)?;
        self.is_reopened |= is_followed_by_banner;
        Ok(Some(at + end))
    }

    fn event(
        &mut self,
        prefix: &Prefix<'_>,
        argument: &[u8],
        is_cut: bool,
        sink: &mut impl Sink,
    ) -> anyhow::Result<()> {
        if let Some(stamp) = prefix.time {
            if stamp.is_local && self.utc_offset_s == 0 && !std::mem::replace(&mut self.has_local_times, true)
            {
                self.coverage.note(self.name, "its times have no zone and are taken as UTC");
            }
            let offset_ns = if stamp.is_local { i64::from(self.utc_offset_s) * 1_000_000_000 } else { 0 };
            self.time_ns = stamp.ns.saturating_add_signed(-offset_ns);
        }
        let mut command = commands::by_name(prefix.command);
        // Blanks around it and empty lines behind it are an editor's.
        let argument = if command == Command::InitDb { argument.trim_ascii() } else { argument };
        let is_refused = command == Command::InitDb && argument.starts_with(DENIED);
        if is_refused {
            match self.sessions.refused(prefix.thread) {
                Last::Use(_) => return Ok(()),
                Last::Login => command = Command::Connect,
                Last::Other => {}
            }
        }
        if self.dynamic.repeats(prefix.thread, command, argument) {
            return Ok(());
        }
        let session = self.sessions.update(prefix.thread, command, argument);
        let mut event = Event::new(self.time_ns, prefix.thread, command);
        event.connection = Some(prefix.thread);
        event.is_cut = is_cut;
        event.is_log_reopened = std::mem::take(&mut self.is_reopened);
        event.text = match command {
            Command::Query => argument,
            Command::Prepare | Command::Execute => without_number(argument),
            _ => b"",
        };
        if let Some(session) = session {
            event.user = session.user();
            event.host = session.host();
            event.database = session.database();
        }
        if is_refused {
            event.outcome = Outcome::Error(DATABASE_DENIED);
            event.database = denied_database(argument).unwrap_or_default();
        } else if command == Command::Connect && argument.starts_with(b"Access denied") {
            event.outcome = Outcome::Error(ACCESS_DENIED);
        }
        self.coverage.events += 1;
        sink.event(&event)?;
        self.sessions.after(prefix.thread, command, argument);
        Ok(())
    }

    fn damage(&mut self, buffer: &[u8], at: usize, reason: &str) {
        // Lines are counted from the start of the buffer, so only for places that are kept.
        let is_kept = self.coverage.keeps_places();
        let line =
            if is_kept { self.lines + 1 + memchr_iter(b'\n', &buffer[..at]).count() as u64 } else { 0 };
        self.coverage.damage(self.name, self.offset + at as u64, line, reason);
    }
}

impl Pieces for Parser<'_> {
    fn feed(&mut self, bytes: &[u8], at_end: bool, sink: &mut impl Sink) -> anyhow::Result<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let next = match self.skips {
                Some(_) => self.skip(bytes, at, at_end),
                None => self.one(bytes, at, at_end, sink)?,
            };
            let Some(next) = next else { break };
            at = next;
        }
        self.lines += memchr_iter(b'\n', &bytes[..at]).count() as u64;
        self.offset += at as u64;
        Ok(at)
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn input_ended_early(&mut self, problem: &str) {
        self.coverage.damage(self.name, self.offset, self.lines + 1, problem);
    }
}

#[cfg(test)]
mod tests;
