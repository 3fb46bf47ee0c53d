//! From bytes to events, with nothing left unaccounted.

use memchr::{memchr, memchr_iter, memmem};

use super::boundary::{LINE_BYTES, Lexer, Line, classify, ends_statement};
use super::event::{Carried, Statement, event};
use super::header::{self, COMMAND, Header};
use super::repeated;
use crate::coverage::Coverage;
use crate::event::Sink;
use crate::pieces::{Pieces, without_banners};

/// An event with its header is kept up to this size; the rest of its statement is skipped, and counted.
pub const MAX_EVENT_BYTES: usize = 16 << 20;
/// A header alone: MariaDB may write a plan into it, a line of some hundred bytes for each table.
pub const MAX_HEADER_BYTES: usize = 1 << 20;
/// A header longer than this is looked at again only once it has grown by a quarter, not with every piece that comes: the
/// work stays in proportion to its length.
const LONG_HEADER_BYTES: usize = 64 << 10;
/// How much of what came before must be there to know a boundary: a banner's three lines.
pub(super) const CONTEXT_BYTES: usize = 3 * LINE_BYTES + 16;

/// Takes a log in pieces of any size and gives its events.
pub(super) struct Parser<'n> {
    name: &'n str,
    pub(super) coverage: Coverage,
    pub(super) carried: Carried,
    /// What was said before this part of a log: asked for once, when an event needs it.
    inherited: Option<&'n dyn Fn() -> Carried>,
    mode: Mode,
    /// How long the text must be before a look at the header that begins it is worth while.
    header_from: usize,
    scan: Scan,
    /// Up to here in the input a line like a header is one: the literal that it seems to be in is never closed. Else
    /// each such line would be followed to where that is known, by one event after the other.
    unclosed_until: u64,
    /// Of the next byte in the input, and how many lines end before it.
    pub(super) offset: u64,
    lines: Option<u64>,
    /// No event before this is ours; a firm boundary from `limit` on ends the reading.
    start: u64,
    limit: u64,
    is_finished: bool,
    /// Bytes of events, and of banners.
    pub(super) understood_bytes: u64,
}

enum Mode {
    Event,
    Skip(Skip),
}

/// Looking for the next boundary.
struct Skip {
    /// Loose boundaries count as well.
    is_loose: bool,
    /// What is skipped belongs to nobody else, and nobody said so yet.
    is_counted: bool,
    is_told: bool,
}

/// How far the statement that begins the buffer was searched, from the event's first byte.
#[derive(Default)]
struct Scan {
    /// Where it begins, once that is known: its header need not be read with every piece.
    body: Option<usize>,
    from: usize,
    lexer: Lexer,
    /// The first line inside a literal that looked like a header.
    refused: Option<usize>,
}

impl Scan {
    /// Whether the statement that begins at `body` is inside a literal or a comment at `end`.
    fn is_open(&mut self, text: &[u8], body: usize, end: usize) -> bool {
        self.lexer.is_inside(&text[body..], end - body)
    }
}

/// Where an event ends, and by what.
struct End {
    at: usize,
    is_firm: bool,
    by: By,
}

#[derive(PartialEq, Eq)]
enum By {
    Header,
    Limit,
    Input,
}

impl<'n> Parser<'n> {
    /// Begins at the beginning of a log.
    pub(super) fn new(name: &'n str) -> Self {
        let skip = Skip { is_loose: true, is_counted: true, is_told: false };
        Self { lines: Some(0), ..Self::with(name, 0, u64::MAX, skip) }
    }

    /// Begins at the first firm boundary from `start` on, and ends at the first from `limit` on. The pieces begin
    /// `CONTEXT_BYTES` before `start`, or at 0.
    pub(super) fn part(name: &'n str, start: u64, limit: u64, inherited: &'n dyn Fn() -> Carried) -> Self {
        let is_first = start == 0;
        let skip = Skip { is_loose: is_first, is_counted: is_first, is_told: !is_first };
        Self { inherited: Some(inherited), ..Self::with(name, start, limit, skip) }
    }

    fn with(name: &'n str, start: u64, limit: u64, skip: Skip) -> Self {
        Self {
            name,
            coverage: Coverage::default(),
            carried: Carried::default(),
            inherited: None,
            mode: Mode::Skip(skip),
            header_from: 0,
            scan: Scan::default(),
            unclosed_until: 0,
            offset: start.saturating_sub(CONTEXT_BYTES as u64),
            lines: None,
            start,
            limit,
            is_finished: false,
            understood_bytes: 0,
        }
    }
}

impl Pieces for Parser<'_> {
    fn feed(&mut self, buffer: &[u8], at_end: bool, sink: &mut impl Sink) -> anyhow::Result<usize> {
        let mut at = 0;
        while !self.is_finished {
            let next = match self.mode {
                Mode::Event => self.one(buffer, at, at_end, sink)?,
                Mode::Skip(_) => self.skip(buffer, at, at_end),
            };
            let Some(next) = next else { break };
            at = next;
            if at == buffer.len() {
                break;
            }
        }
        if let Mode::Skip(_) = self.mode
            && !at_end
            && !self.is_finished
        {
            at = self.leave(buffer, at);
        }
        if let Some(lines) = &mut self.lines {
            *lines += memchr_iter(b'\n', &buffer[..at]).count() as u64;
        }
        self.offset += at as u64;
        Ok(at)
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn input_ended_early(&mut self, problem: &str) {
        self.coverage.damage(self.name, self.offset, self.lines.map_or(0, |lines| lines + 1), problem);
    }
}

/// `None` in what these give: more of the input is needed.
impl Parser<'_> {
    /// Reads the event that begins at `at`.
    fn one(
        &mut self,
        buffer: &[u8],
        at: usize,
        at_end: bool,
        sink: &mut impl Sink,
    ) -> anyhow::Result<Option<usize>> {
        let text = &buffer[at..];
        let start = self.offset + at as u64;
        let mut end = None;
        if let Some(body) = self.scan.body {
            end = self.end(text, start, body, at_end);
            if end.is_none() {
                return Ok(None);
            }
        }
        if text.len() < self.header_from && !at_end {
            return Ok(None);
        }
        let window = &text[..text.len().min(MAX_HEADER_BYTES)];
        let Some((header, body)) = header::parse(window, at_end && window.len() == text.len()) else {
            if text.len() >= MAX_HEADER_BYTES {
                return Ok(Some(self.give_up(buffer, at)));
            }
            let long = (text.len() + text.len() / 4).min(MAX_HEADER_BYTES);
            self.header_from = if text.len() > LONG_HEADER_BYTES { long } else { 0 };
            return Ok(None);
        };
        self.header_from = 0;
        let Some(end) = end.or_else(|| self.end(text, start, body, at_end)) else {
            self.scan.body = Some(body);
            return Ok(None);
        };
        let Some(is_repeated) = is_repeated(text, &header, body, &end, at_end) else {
            // That this event ends here is found again at once.
            (self.scan.body, self.scan.from) = (Some(body), (end.at - 1).max(body.saturating_sub(1)));
            return Ok(None);
        };
        self.scan = Scan::default();
        self.carried.update(&header);
        let is_whole = if is_repeated {
            self.coverage.bytes += end.at as u64;
            self.understood_bytes += end.at as u64;
            true
        } else {
            self.finish(buffer, at, &header, body, &end, sink)?
        };
        if without_banners(&text[..end.at]).len() < end.at {
            self.carried.reopen();
        }
        if end.by == By::Limit {
            self.mode = Mode::Skip(Skip { is_loose: is_whole, is_counted: true, is_told: true });
        }
        self.is_finished = end.is_firm && self.offset + (at + end.at) as u64 >= self.limit;
        Ok(Some(at + end.at))
    }

    /// Leaves a header that does not end, with all that was read of it: what follows its first line would be read as
    /// often as it has lines.
    fn give_up(&mut self, buffer: &[u8], at: usize) -> usize {
        self.damage(buffer, at, "a header longer than 1 MiB");
        self.mode = Mode::Skip(Skip { is_loose: true, is_counted: true, is_told: true });
        self.header_from = 0;
        let end = at + MAX_HEADER_BYTES;
        self.skipped(buffer, at, end, false);
        end
    }

    /// Finds the end of the event that begins `text`, which is at `start` in the input, and whose statement begins at `body`.
    fn end(&mut self, text: &[u8], start: u64, body: usize, at_end: bool) -> Option<End> {
        // From the end of the header's last line, because there may be no statement.
        let from = self.scan.from.max(body.saturating_sub(1));
        let window = &text[..text.len().min(MAX_EVENT_BYTES)];
        for found in memchr_iter(b'\n', window.get(from..).unwrap_or_default()) {
            let line = from + found + 1;
            if text.get(line).is_some_and(|first| *first != b'#') {
                continue;
            }
            match classify(&text[line..], at_end) {
                Line::Unknown => {
                    self.scan.from = line - 1;
                    return None;
                }
                Line::Other => {}
                Line::First if ends_statement(&text[..line]) => {
                    return Some(self.firm_end(text, start, body, line));
                }
                Line::First => {
                    let is_header = line < body || start + (line as u64) < self.unclosed_until;
                    if is_header || !self.scan.lexer.is_inside(&text[body..], line - body) {
                        return Some(End { at: line, is_firm: false, by: By::Header });
                    }
                    self.scan.refused.get_or_insert(line);
                }
            }
        }
        if text.len() > MAX_EVENT_BYTES {
            return Some(End { at: MAX_EVENT_BYTES, is_firm: false, by: By::Limit });
        }
        self.scan.from = text.len().saturating_sub(1).max(body.saturating_sub(1));
        let refused = self.scan.refused;
        at_end.then(|| match refused {
            Some(line) if self.scan.is_open(text, body, text.len()) => {
                self.unclosed_until = start + text.len() as u64;
                End { at: line, is_firm: false, by: By::Header }
            }
            _ => End { at: text.len(), is_firm: false, by: By::Input },
        })
    }

    /// A literal that is still open at the end of a statement was never closed: the lines that seemed to be in it
    /// were headers.
    fn firm_end(&mut self, text: &[u8], start: u64, body: usize, line: usize) -> End {
        let refused = self.scan.refused;
        match refused {
            Some(refused) if self.scan.is_open(text, body, line) => {
                self.unclosed_until = start + line as u64;
                End { at: refused, is_firm: false, by: By::Header }
            }
            _ => End { at: line, is_firm: true, by: By::Header },
        }
    }

    /// Gives the event, or says why there is none. True if its statement ended before the limit of an event did.
    fn finish(
        &mut self,
        buffer: &[u8],
        at: usize,
        header: &Header<'_>,
        body: usize,
        end: &End,
        sink: &mut impl Sink,
    ) -> anyhow::Result<bool> {
        let event_bytes = &buffer[at..at + end.at];
        self.coverage.bytes += event_bytes.len() as u64;
        let rest = without_banners(&event_bytes[body.min(event_bytes.len())..]);
        if self.carried.lacks(header)
            && let Some(inherited) = self.inherited.take()
        {
            self.carried.inherit(&inherited());
        }
        let (statement, kept) = match statement(rest, header, end) {
            Ok(found) if header.query_ns.is_some() => found,
            other => {
                self.coverage.skipped_bytes += event_bytes.len() as u64;
                self.damage(
                    buffer,
                    at,
                    other.err().unwrap_or("an event without a Query_time that is a number"),
                );
                return Ok(false);
            }
        };
        if kept < rest.len() {
            self.coverage.skipped_bytes += (rest.len() - kept) as u64;
            self.damage(buffer, at + body + kept, "no part of a statement, and no event");
        } else if end.by == By::Limit {
            self.damage(buffer, at, "a statement longer than 16 MiB: cut there");
        }
        self.understood_bytes += (event_bytes.len() - (rest.len() - kept)) as u64;
        self.coverage.events += 1;
        if let Some(limit) = header.rate_limit {
            self.coverage.sampled_events += 1;
            self.coverage.represented_events = self.coverage.represented_events.saturating_add(limit);
        }
        let mut event = event(header, &self.carried, &statement);
        event.is_cut = end.by == By::Limit && kept == rest.len();
        sink.event(&event)?;
        Ok(kept < rest.len())
    }

    /// Finds the next boundary.
    fn skip(&mut self, buffer: &[u8], at: usize, at_end: bool) -> Option<usize> {
        let Mode::Skip(skip) = &self.mode else { return Some(at) };
        let is_loose = skip.is_loose;
        // The first line of the input has no end of line before it.
        let mut candidate =
            if at == 0 && self.offset == 0 { Some(0) } else { next_line(buffer, at.max(1) - 1) };
        while let Some(line) = candidate {
            let is_before = self.offset + (line as u64) < self.start;
            match classify(&buffer[line..], at_end) {
                Line::Unknown => break,
                Line::First if !is_before && (is_loose || ends_statement(&buffer[..line])) => {
                    self.skipped(buffer, at, line, true);
                    self.mode = Mode::Event;
                    let is_firm = line > 0 && ends_statement(&buffer[..line]);
                    self.is_finished = is_firm && self.offset + line as u64 >= self.limit;
                    return Some(line);
                }
                _ => candidate = next_line(buffer, line),
            }
        }
        at_end.then(|| {
            self.skipped(buffer, at, buffer.len(), true);
            buffer.len()
        })
    }

    /// While skipping: how much of the buffer no boundary can need any more.
    fn leave(&mut self, buffer: &[u8], at: usize) -> usize {
        let keep = buffer.len().saturating_sub(CONTEXT_BYTES + LINE_BYTES).max(at);
        self.skipped(buffer, at, keep, false);
        let Mode::Skip(Skip { is_counted, .. }) = self.mode else { return keep };
        self.is_finished |= !is_counted && self.offset + keep as u64 >= self.limit;
        keep
    }

    /// Accounts for what was skipped; the end of it may be a banner.
    fn skipped(&mut self, buffer: &[u8], from: usize, to: usize, is_last: bool) {
        let Mode::Skip(skip) = &mut self.mode else { return };
        let bytes = &buffer[from..to];
        if !skip.is_counted || bytes.is_empty() {
            return;
        }
        let garbage = if is_last { without_banners(bytes) } else { bytes };
        if garbage.len() < bytes.len() {
            self.carried.reopen();
        }
        self.coverage.bytes += bytes.len() as u64;
        self.coverage.skipped_bytes += garbage.len() as u64;
        self.understood_bytes += (bytes.len() - garbage.len()) as u64;
        if !garbage.is_empty() && !std::mem::replace(&mut skip.is_told, true) {
            self.damage(buffer, from, "nothing here is an event of a slow log");
        }
    }

    fn damage(&mut self, buffer: &[u8], at: usize, reason: &str) {
        // Lines are counted from the start of the buffer, so only for places that are kept.
        let lines = self.lines.filter(|_| self.coverage.keeps_places());
        let line = lines.map_or(0, |lines| lines + 1 + memchr_iter(b'\n', &buffer[..at]).count() as u64);
        self.coverage.damage(self.name, self.offset + at as u64, line, reason);
    }
}

/// The beginning of the next line that begins like a header, after an end of line at or after `from`.
fn next_line(buffer: &[u8], from: usize) -> Option<usize> {
    memmem::find(buffer.get(from..)?, b"\n#").map(|found| from + found + 1)
}

/// Whether the statement of the event that begins `text` comes again in a later one. `None`: more is needed.
fn is_repeated(text: &[u8], header: &Header<'_>, body: usize, end: &End, at_end: bool) -> Option<bool> {
    let rest = text.get(body..end.at).unwrap_or_default();
    let is_whole = rest.is_empty() || without_terminator(rest, false).is_some() && !rest.starts_with(COMMAND);
    if end.by == By::Header && is_whole && repeated::may_be(header) {
        return repeated::by_next(header, rest, &text[end.at..], at_end);
    }
    Some(false)
}

/// The statement that `rest` holds, and how many of its bytes that took.
fn statement<'a>(
    rest: &'a [u8],
    header: &Header<'a>,
    end: &End,
) -> Result<(Statement<'a>, usize), &'static str> {
    if let Some(name) = rest.strip_prefix(COMMAND) {
        let line = memchr(b'\n', name).map_or(name.len(), |length| length + 1);
        let name =
            without_terminator(&name[..line], true).ok_or("an administrator command that is cut off")?;
        return Ok((Statement::Command(name), COMMAND.len() + line));
    }
    if rest.is_empty() {
        // What looked like the header's is the statement.
        return match header.last {
            Some(last) if end.by == By::Header => Ok((Statement::Text(last), 0)),
            _ => Err("an event without a statement"),
        };
    }
    if let Some(text) = without_terminator(rest, end.by == By::Input) {
        return Ok((Statement::Text(text), rest.len()));
    }
    // After a crash, blocks that were never written are full of zeros.
    let zeros = memmem::find(rest, b";\n\0").map(|at| at + 2);
    let last = || memmem::rfind(rest, b";\n").map(|at| at + 2);
    let is_cut_here = end.by == By::Header;
    match zeros.or_else(|| if is_cut_here { last() } else { None }) {
        Some(kept) => Ok((Statement::Text(&rest[..kept - 2]), kept)),
        None if end.by == By::Limit => Ok((Statement::Text(rest), rest.len())),
        None => Err("a statement that is cut off"),
    }
}

/// The text before `;` and an end of line, which may lack at the end of the input.
fn without_terminator(text: &[u8], at_end: bool) -> Option<&[u8]> {
    text.strip_suffix(b";\n")
        .or_else(|| text.strip_suffix(b";\r\n"))
        // A copied log may end with empty lines.
        .or_else(|| if at_end { text.trim_ascii_end().strip_suffix(b";") } else { None })
}
