//! From bytes to events, with nothing left unaccounted.

use memchr::{memchr_iter, memmem};

use super::boundary::{By, End, LINE_BYTES, Lexer, Line, classify, ends_statement};
use super::event::{Carried, event};
use super::header::{self, Header};
use super::repeated;
use super::returns;
use super::settings;
use super::statement::{self, Found, without_terminator};
use super::touched;
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
/// How much of what came before must be there to know a boundary: a banner's three lines, and blank ones.
pub(super) const CONTEXT_BYTES: usize = 4 * LINE_BYTES + 16;

/// Takes a log in pieces of any size and gives its events.
pub(crate) struct Parser<'n> {
    name: &'n str,
    pub(crate) coverage: Coverage,
    pub(super) carried: Carried,
    /// A banner came after the last event.
    is_reopened: bool,
    /// What was said before this part of a log: asked for once, when an event needs it.
    inherited: Option<&'n dyn Fn() -> Carried>,
    mode: Mode,
    /// How long the text must be before a look at the header that begins it is worth while.
    header_from: usize,
    scan: Scan,
    /// Up to here in the input a line like a header is one: the literal that it seems to be in is never closed. Else
    /// each such line would be followed to where that is known, by one event after the other.
    unclosed_until: u64,
    /// The last event's statement had no `;` at its end.
    is_unterminated: bool,
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
    /// In lines that end with `\r` alone.
    Returns,
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

impl<'n> Parser<'n> {
    /// Begins at the beginning of a log.
    pub(crate) fn new(name: &'n str) -> Self {
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
            is_reopened: false,
            inherited: None,
            mode: Mode::Skip(skip),
            header_from: 0,
            scan: Scan::default(),
            unclosed_until: 0,
            is_unterminated: false,
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
                Mode::Returns => self.returns(buffer, at, at_end, sink)?,
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
        let mut header = Header::default();
        let Some(body) = header.read(window, at_end && window.len() == text.len()) else {
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
        let (end, has_returns) = match returns::begins(&text[..end.at], body) {
            Some(at) => (End { at, is_firm: false, by: By::Header, is_open: false }, true),
            None => (end, false),
        };
        let is_repeated =
            if has_returns { Some(false) } else { is_repeated(text, &header, body, &end, at_end) };
        let Some(is_repeated) = is_repeated else {
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
            self.is_reopened = true;
        }
        if has_returns {
            self.mode = Mode::Returns;
            self.place(buffer, at + end.at, "lines end with \\r alone from here on, and were read like that");
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
            if text.get(line).is_some_and(|first| !touched::may_begin(*first)) {
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
                Line::First | Line::Touched => {
                    let is_open = start + (line as u64) < self.unclosed_until;
                    let is_inside = |scan: &mut Scan| {
                        scan.is_open(text, body, line) && !statement::has_others(&text[body..line])
                    };
                    if line < body || is_open || !is_inside(&mut self.scan) {
                        // Nothing ends a statement with a literal that had a header in it: it was cut off before that.
                        let cut = self.scan.refused.filter(|refused| {
                            line >= body
                                && !is_open
                                && (!statement::has_others(&text[body..line])
                                    || self.is_cut_before(text, body, *refused, line))
                        });
                        if let Some(refused) = cut {
                            return Some(self.cut_at(refused, start, line));
                        }
                        let is_open = is_open && line > body && self.scan.is_open(text, body, line);
                        return Some(End { at: line, is_firm: false, by: By::Header, is_open });
                    }
                    self.scan.refused.get_or_insert(line);
                }
            }
        }
        if text.len() > MAX_EVENT_BYTES {
            return Some(End { at: MAX_EVENT_BYTES, is_firm: false, by: By::Limit, is_open: false });
        }
        self.scan.from = text.len().saturating_sub(1).max(body.saturating_sub(1));
        let refused = self.scan.refused;
        at_end.then(|| match refused {
            Some(line) if !ends_statement(text) || self.is_cut_before(text, body, line, text.len()) => {
                self.cut_at(line, start, text.len())
            }
            _ => {
                let is_open =
                    (self.is_unterminated || start == 0) && self.scan.is_open(text, body, text.len());
                End { at: text.len(), is_firm: false, by: By::Input, is_open }
            }
        })
    }

    fn firm_end(&mut self, text: &[u8], start: u64, body: usize, line: usize) -> End {
        let refused = self.scan.refused;
        match refused {
            Some(refused) if self.is_cut_before(text, body, refused, line) => {
                self.cut_at(refused, start, line)
            }
            _ => End { at: line, is_firm: true, by: By::Header, is_open: false },
        }
    }

    /// Whether a line like a header, which seems to be in a literal, is one: the literal is still open where the statement
    /// ends, or what follows the line is a whole event. Else a cut literal and the next statement's quotes make a pair,
    /// and what was a literal there is outside of one.
    fn is_cut_before(&mut self, text: &[u8], body: usize, line: usize, end: usize) -> bool {
        if self.scan.is_open(text, body, end) {
            return true;
        }
        let found = header::parse(&text[line..end], true).filter(|(header, _)| header.query_ns.is_some());
        found.is_some_and(|(_, length)| {
            let statement = &text[line + length..end];
            !Lexer::default().is_inside(statement, statement.len())
        })
    }

    /// The end of a statement that is cut off in a literal: up to `known`, lines that seemed to be in it are headers.
    fn cut_at(&mut self, line: usize, start: u64, known: usize) -> End {
        self.unclosed_until = start + known as u64;
        End { at: line, is_firm: false, by: By::Header, is_open: true }
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
        let behind = &event_bytes[body.min(event_bytes.len())..];
        let rest = without_banners(behind);
        if self.carried.lacks(header)
            && let Some(inherited) = self.inherited.take()
        {
            self.carried.inherit(&inherited());
        }
        // What begins the input and ends with it is alone there.
        let needs_no_end = std::mem::take(&mut self.is_unterminated) || self.offset + at as u64 == 0;
        if let Some(count) = statement::throttled(rest) {
            self.coverage.throttled(count, header.query_ns.and_then(header::duration));
            self.understood_bytes += event_bytes.len() as u64;
            return Ok(true);
        }
        let has_banner = rest.len() < behind.len();
        let found = match statement::find(rest, header, end, has_banner, needs_no_end) {
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
        let kept = found.kept;
        if kept < rest.len() {
            self.coverage.skipped_bytes += (rest.len() - kept) as u64;
            let reason = if statement::other_log(rest).is_some() {
                "a log whose lines have something before them begins here: give it as a file of its own"
            } else {
                "no part of a statement, and no event"
            };
            self.damage(buffer, at + body + kept, reason);
        } else if end.by == By::Limit {
            self.damage(buffer, at, "a statement longer than 16 MiB: cut there");
        }
        self.understood_bytes += (event_bytes.len() - (rest.len() - kept)) as u64;
        self.is_unterminated = found.is_unterminated;
        self.count(header, &found);
        let mut event = event(header, &self.carried, &found.statement);
        let may_be_cut = found.is_unterminated || found.is_end_guessed;
        event.is_cut =
            (end.by == By::Limit && kept == rest.len()) || (may_be_cut && ends_elsewhere_if_cut(event.text));
        let has_open_end = found.is_unterminated && !event.is_cut && has_open_parenthesis(event.text);
        event.is_cut |= has_open_end;
        event.is_log_reopened = std::mem::take(&mut self.is_reopened);
        sink.event(&event)?;
        if has_open_end {
            self.damage(
                buffer,
                at + body,
                "a statement whose line was cut off: its class is that of what is left",
            );
        }
        Ok(kept < rest.len())
    }

    /// Counts an event, and what is unusual of it.
    fn count(&mut self, header: &Header<'_>, found: &Found<'_>) {
        self.coverage.events += 1;
        if let Some(limit) = header.rate_limit {
            self.coverage.sampled_events += 1;
            self.coverage.represented_events = self.coverage.represented_events.saturating_add(limit);
        }
        self.coverage.touched_lines += header.touched_lines;
        self.coverage.unread_times += u64::from(header.has_unread_time);
        self.coverage.unread_accounts += u64::from(header.has_unread_account);
        self.coverage.unterminated_events += u64::from(found.is_unterminated);
        self.coverage.unknown_databases += u64::from(self.carried.is_of_others(header));
        self.coverage.other_lines += found.other_lines;
    }

    /// Reads the part that begins at `at`, up to the first line of a header with the usual end. `None`: more is needed.
    fn returns(
        &mut self,
        buffer: &[u8],
        at: usize,
        at_end: bool,
        sink: &mut impl Sink,
    ) -> anyhow::Result<Option<usize>> {
        let text = &buffer[at..];
        let window = &text[..text.len().min(MAX_EVENT_BYTES)];
        let mut end = None;
        for found in memchr_iter(b'\n', window.get(self.scan.from..).unwrap_or_default()) {
            let line = self.scan.from + found + 1;
            match classify(&text[line..], at_end) {
                Line::Unknown => {
                    self.scan.from = line - 1;
                    return Ok(None);
                }
                Line::Other => {}
                kind => {
                    end = Some((line, kind == Line::First && ends_statement(&text[..line])));
                    break;
                }
            }
        }
        self.scan.from = window.len();
        let is_whole = end.is_some() || at_end && window.len() == text.len();
        if !is_whole && text.len() < MAX_EVENT_BYTES {
            return Ok(None);
        }
        let (end, is_firm) = end.unwrap_or((window.len(), false));
        let end = if is_firm { end } else { returns::without_header(text, end) };
        let taken = self.part_of_returns(buffer, at, end, is_whole, sink)?;
        self.scan.from = 0;
        if is_whole {
            self.mode = Mode::Event;
            self.is_finished = is_firm && self.offset + (at + end) as u64 >= self.limit;
        }
        Ok(Some(at + taken))
    }

    /// Reads what there is of a part. Gives how much was taken.
    fn part_of_returns(
        &mut self,
        buffer: &[u8],
        at: usize,
        length: usize,
        is_whole: bool,
        sink: &mut impl Sink,
    ) -> anyhow::Result<usize> {
        let mut inner = Parser::new(self.name);
        inner.offset = self.offset + at as u64;
        inner.carried = std::mem::take(&mut self.carried);
        inner.inherited = self.inherited.take();
        inner.is_reopened = std::mem::take(&mut self.is_reopened);
        let text = returns::restored(&buffer[at..at + length]);
        if matches!(classify(&text, true), Line::First | Line::Touched) {
            inner.mode = Mode::Event;
        }
        let mut taken = inner.feed(&text, is_whole, sink)?;
        if taken == 0 {
            taken = inner.feed(&text, true, sink)?;
        }
        self.carried = inner.carried;
        self.inherited = inner.inherited;
        self.is_reopened = inner.is_reopened;
        self.understood_bytes += inner.understood_bytes;
        for place in &mut inner.coverage.places {
            // Lines are those of the file.
            let behind = usize::try_from(place.offset - self.offset).unwrap_or(at).min(buffer.len());
            place.item = self.line(buffer, behind);
        }
        self.coverage.merge(&inner.coverage);
        Ok(taken)
    }

    /// Finds the next boundary.
    fn skip(&mut self, buffer: &[u8], at: usize, at_end: bool) -> Option<usize> {
        let Mode::Skip(skip) = &self.mode else { return Some(at) };
        let is_loose = skip.is_loose;
        // The first line of the input has no end of line before it.
        let mut candidate =
            if at == 0 && self.offset == 0 { Some(0) } else { next_line(buffer, at.max(1) - 1, is_loose) };
        self.is_unterminated = false;
        while let Some(line) = candidate {
            let is_before = self.offset + (line as u64) < self.start;
            match classify(&buffer[line..], at_end) {
                Line::Unknown => break,
                kind @ (Line::First | Line::Touched)
                    if !is_before && (is_loose || kind == Line::First && ends_statement(&buffer[..line])) =>
                {
                    self.skipped(buffer, at, line, true);
                    self.mode = Mode::Event;
                    let is_firm = kind == Line::First && line > 0 && ends_statement(&buffer[..line]);
                    self.is_finished = is_firm && self.offset + line as u64 >= self.limit;
                    return Some(line);
                }
                _ => candidate = next_line(buffer, line, is_loose),
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
            self.is_reopened = true;
        }
        let garbage = if garbage.trim_ascii().is_empty() { b"" } else { garbage };
        self.coverage.bytes += bytes.len() as u64;
        self.coverage.skipped_bytes += garbage.len() as u64;
        self.understood_bytes += (bytes.len() - garbage.len()) as u64;
        if !garbage.is_empty() && !std::mem::replace(&mut skip.is_told, true) {
            self.damage(buffer, from, "nothing here is an event of a slow log");
        }
    }

    fn damage(&mut self, buffer: &[u8], at: usize, reason: &str) {
        self.coverage.damaged += 1;
        self.place(buffer, at, reason);
    }

    /// Keeps a place, if there is room.
    fn place(&mut self, buffer: &[u8], at: usize, reason: &str) {
        if self.coverage.keeps_places() {
            let line = self.line(buffer, at);
            self.coverage.place(self.name, self.offset + at as u64, line, reason);
        }
    }

    /// The number of the line at a place in the buffer; 0 in a part of a log.
    fn line(&self, buffer: &[u8], at: usize) -> u64 {
        self.lines.map_or(0, |lines| lines + 1 + memchr_iter(b'\n', &buffer[..at]).count() as u64)
    }
}

/// The beginning of the next line that begins like a header, after an end of line at or after `from`: as servers write it, or
/// as people leave it.
fn next_line(buffer: &[u8], from: usize, is_loose: bool) -> Option<usize> {
    let text = buffer.get(from..)?;
    let found = if is_loose {
        memchr_iter(b'\n', text).find(|at| text.get(at + 1).is_none_or(|first| touched::may_begin(*first)))
    } else {
        memmem::find(text, b"\n#")
    };
    found.map(|found| from + found + 1).filter(|line| *line < buffer.len())
}

/// Whether the statement of the event that begins `text` comes again in a later one. `None`: more is needed.
fn is_repeated(text: &[u8], header: &Header<'_>, body: usize, end: &End, at_end: bool) -> Option<bool> {
    let rest = text.get(body..end.at).unwrap_or_default();
    let is_whole = rest.is_empty() || without_terminator(rest).is_some() && settings::command(rest).is_none();
    if end.by == By::Header && is_whole && repeated::may_be(header) {
        return repeated::by_next(header, rest, &text[end.at..], at_end);
    }
    Some(false)
}

/// Whether a statement ends within parentheses.
fn has_open_parenthesis(text: &[u8]) -> bool {
    let mut fingerprint = Vec::new();
    sql::fingerprint(sql::Mode::Strict, text, false, &mut fingerprint);
    let count = |sign: u8| memchr_iter(sign, &fingerprint).count();
    count(b'(') > count(b')')
}

/// Whether a statement that nothing ends reads otherwise if a shipper cut it off: then it is not sure what a string is.
fn ends_elsewhere_if_cut(text: &[u8]) -> bool {
    let (mut whole, mut cut) = (Vec::new(), Vec::new());
    sql::fingerprint(sql::Mode::Strict, text, false, &mut whole);
    sql::fingerprint(sql::Mode::Strict, text, true, &mut cut);
    whole != cut
}
