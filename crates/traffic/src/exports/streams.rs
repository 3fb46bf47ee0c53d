//! Texts of logs that came in pieces, of one server or of several at once: each stream has its own reader.

use std::collections::HashMap;

use super::sessions::{self, Servers};
use crate::coverage::Coverage;
use crate::event::{Event, Sink};
use crate::general_log;
use crate::pieces::Pieces;
use crate::prefixed::{self, First, Form};
use crate::slow_log;

/// Text that is kept until it is worth while to read it.
const PIECE_BYTES: usize = 64 << 10;
/// So much text tells which log it is of; what does not is skipped, piece by piece.
const HEAD_BYTES: usize = 64 << 10;
/// All texts that wait for their events to end: a stream has 16 MiB of them at most.
const MOST_BYTES: usize = 96 << 20;
/// Streams that are read at once. Further ones are counted as skipped.
const MOST_STREAMS: usize = 1024;

pub(super) struct Streams<'n> {
    name: &'n str,
    streams: HashMap<Box<[u8]>, Stream<'n>>,
    servers: Servers,
    /// What was taken off the lines of texts.
    prefixes: Vec<String>,
    waiting_bytes: usize,
    pub(super) coverage: Coverage,
    pub(super) texts: u64,
    /// The beginning of the first text that is of no log, to say what it may be.
    pub(super) stranger: Option<Vec<u8>>,
}

struct Stream<'n> {
    server: u64,
    text: Vec<u8>,
    /// How much of it was there when it was last read, and not taken: an event that is still open.
    left: usize,
    reader: Reader<'n>,
}

enum Reader<'n> {
    /// It is not clear yet which log this is.
    Unknown,
    Prefixed(Box<Prefixed>),
    Slow(Box<slow_log::Parser<'n>>),
    General(Box<general_log::Parser<'n>>),
}

/// A text whose lines have something before them, as containers and syslog put it there: for each that wrote lines there is
/// a stream, which is read for itself.
struct Prefixed {
    form: Form,
    inner: Vec<Box<[u8]>>,
}

impl<'n> Streams<'n> {
    pub(super) fn new(name: &'n str) -> Self {
        Self {
            name,
            streams: HashMap::new(),
            servers: Servers::default(),
            prefixes: Vec::new(),
            waiting_bytes: 0,
            coverage: Coverage::default(),
            texts: 0,
            stranger: None,
        }
    }

    /// Takes the next text of a stream; with `is_line`, an end of line that shippers took off is put back.
    pub(super) fn push(
        &mut self,
        stream: &[u8],
        text: &[u8],
        is_line: bool,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<()> {
        self.texts += 1;
        if !self.streams.contains_key(stream) {
            if self.streams.len() >= MOST_STREAMS {
                self.coverage.skipped_bytes += text.len() as u64;
                self.coverage.damage(self.name, 0, 0, "more than 1,024 streams: a text of another one");
                return Ok(());
            }
            // Who wrote the only lines is the server that the stream is of.
            let server = self.servers.number(stream.strip_suffix(INNER).unwrap_or(stream));
            let fresh = Stream { server, text: Vec::new(), left: 0, reader: Reader::Unknown };
            self.streams.insert(stream.into(), fresh);
        }
        let entry = self.streams.get_mut(stream).expect("just put there");
        let before = entry.text.len();
        entry.text.extend_from_slice(text);
        if is_line && !text.ends_with(b"\n") {
            entry.text.push(b'\n');
        }
        self.waiting_bytes += entry.text.len() - before;
        // An open event is looked at again only once there is twice as much: the work stays in proportion.
        if entry.text.len() >= entry.left + entry.left.max(PIECE_BYTES) {
            self.read(stream, false, sink)?;
        }
        if self.waiting_bytes > MOST_BYTES {
            self.cut_longest(sink)?;
        }
        Ok(())
    }

    /// Reads what there is of all streams.
    pub(super) fn flush(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        self.read_all(false, sink)
    }

    /// Ends all streams. What comes then begins anew.
    pub(super) fn end(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        self.read_all(true, sink)
    }

    /// Ends one stream.
    pub(super) fn end_one(&mut self, stream: &[u8], sink: &mut dyn Sink) -> anyhow::Result<()> {
        self.read(stream, true, sink)
    }

    fn read_all(&mut self, at_end: bool, sink: &mut dyn Sink) -> anyhow::Result<()> {
        // In an order that does not depend on a hash.
        let mut names: Vec<(u64, Box<[u8]>)> =
            self.streams.iter().map(|(name, stream)| (stream.server, name.clone())).collect();
        names.sort_unstable();
        for (_, name) in names {
            self.read(&name, at_end, sink)?;
        }
        Ok(())
    }

    /// What waits is too much: the longest text is read to its end, as if nothing followed.
    fn cut_longest(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let longest = self.streams.iter().max_by_key(|(name, stream)| (stream.text.len(), *name));
        if let Some(name) = longest.map(|(name, _)| name.clone()) {
            self.read(&name, true, sink)?;
        }
        Ok(())
    }

    fn read(&mut self, name: &[u8], at_end: bool, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let Some(stream) = self.streams.get_mut(name) else { return Ok(()) };
        let before = stream.text.len();
        if matches!(stream.reader, Reader::Unknown) {
            stream.reader = reader(&stream.text, self.name, is_inner(name));
        }
        if matches!(stream.reader, Reader::Prefixed(_)) {
            return self.read_prefixed(name, at_end, sink);
        }
        let server = stream.server;
        let mut give = |event: &Event<'_>| sessions::give(event, server, sink);
        let text = &stream.text;
        let taken = match &mut stream.reader {
            Reader::Slow(parser) => parser.feed(text, at_end, &mut give)?,
            Reader::General(parser) => parser.feed(text, at_end, &mut give)?,
            Reader::Unknown | Reader::Prefixed(_) => unknown(text, at_end),
        };
        if matches!(stream.reader, Reader::Unknown) && taken > 0 {
            self.coverage.skipped_bytes += taken as u64;
            self.coverage.damage(self.name, 0, 0, "a text that is of no slow log and no general log");
            self.stranger.get_or_insert_with(|| text[..taken.min(4096)].to_vec());
        }
        stream.text.drain(..taken);
        stream.left = stream.text.len();
        if at_end {
            let read = std::mem::replace(&mut stream.reader, Reader::Unknown);
            (stream.text, stream.left) = (Vec::new(), 0);
            self.merge(name, read);
        }
        let after = self.streams.get(name).map_or(0, |stream| stream.text.len());
        self.waiting_bytes = self.waiting_bytes + after - before;
        Ok(())
    }

    /// Takes what is before each line off a text, and gives what is left to the streams of those that wrote it.
    fn read_prefixed(&mut self, name: &[u8], at_end: bool, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let Some(stream) = self.streams.get_mut(name) else { return Ok(()) };
        let reader = std::mem::replace(&mut stream.reader, Reader::Unknown);
        let Reader::Prefixed(mut prefixed) = reader else { return Ok(()) };
        let ended = memchr::memrchr(b'\n', &stream.text).map_or(0, |end| end + 1);
        let taken = if at_end { stream.text.len() } else { ended };
        let text: Vec<u8> = stream.text.drain(..taken).collect();
        stream.left = stream.text.len();
        self.waiting_bytes -= taken;
        let description = prefixed.form.description();
        if !self.prefixes.contains(&description) {
            self.coverage.note(self.name, &description);
            self.prefixes.push(description);
        }
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let mut line = line.to_vec();
            let found = prefixed.form.take_off(&mut line);
            let inner = match &found {
                Some((who, _)) => [name, INNER, who].concat().into_boxed_slice(),
                // As if the last one had written it.
                None => prefixed.inner.last().cloned().unwrap_or_else(|| [name, INNER].concat().into()),
            };
            if found.is_some_and(|(_, is_partial)| is_partial) && line.ends_with(b"\n") {
                line.truncate(crate::pieces::without_return(&line[..line.len() - 1]).len());
            }
            prefixed.inner.retain(|other| *other != inner);
            prefixed.inner.push(inner.clone());
            self.push(&inner, &line, false, sink)?;
        }
        let mut inner = prefixed.inner.clone();
        inner.sort_unstable();
        if !at_end && let Some(stream) = self.streams.get_mut(name) {
            stream.reader = Reader::Prefixed(prefixed);
        }
        for name in inner {
            self.read(&name, at_end, sink)?;
        }
        Ok(())
    }

    /// Adds what a reader saw. Places are those in the text, not in what it was wrapped in.
    fn merge(&mut self, stream: &[u8], reader: Reader<'n>) {
        let mut coverage = match reader {
            Reader::Slow(parser) => parser.coverage,
            Reader::General(parser) => parser.coverage,
            Reader::Unknown | Reader::Prefixed(_) => return,
        };
        coverage.bytes = 0;
        for place in &mut coverage.places {
            let of = if stream.is_empty() {
                String::new()
            } else {
                format!(" of {}", super::record::shown(stream, 60))
            };
            place.input = format!("{}, the text{of}", self.name);
        }
        self.coverage.merge(&coverage);
    }
}

/// Between the name of a stream and that of a writer of its lines.
const INNER: &[u8] = b"\0";

fn is_inner(name: &[u8]) -> bool {
    memchr::memmem::find(name, INNER).is_some()
}

fn reader<'n>(text: &[u8], name: &'n str, is_inner: bool) -> Reader<'n> {
    for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        // rsyslog's messages begin with the blank that follows a tag: that is taken off all lines, or none.
        let is_indented = matches!(line.first(), Some(b' ' | b'\t'));
        if !is_indented && slow_log::is_header_line(line) {
            return Reader::Slow(Box::new(slow_log::Parser::new(name)));
        }
        if general_log::is_event(line) {
            return Reader::General(Box::new(general_log::Parser::new(
                name,
                &general_log::Options::default(),
            )));
        }
    }
    // Before the first whole header nothing is told.
    match prefixed::first_form(text, true) {
        Some((First::Prefixed, form)) if !is_inner && memchr::memchr(b'\n', text).is_some() => {
            Reader::Prefixed(Box::new(Prefixed { form, inner: Vec::new() }))
        }
        _ => Reader::Unknown,
    }
}

/// How much of a text of no log is skipped: whole lines, and only once there is enough.
fn unknown(text: &[u8], at_end: bool) -> usize {
    if at_end {
        return text.len();
    }
    if text.len() < HEAD_BYTES { 0 } else { memchr::memrchr(b'\n', text).map_or(text.len(), |end| end + 1) }
}
