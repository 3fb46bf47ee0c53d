//! Takes the prefix off each line, and gives what is left to the readers of logs: one for each that wrote lines.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufRead, BufReader, Read};

use memchr::memchr;

use super::form::{self, First, Form};
use super::returns::Restored;
use crate::coverage::Coverage;
use crate::event::{Event, Sink};
use crate::input::is_damage;
use crate::pieces::{Pieces, is_of_banner, without_return};
use crate::rewritten::Rewritten;
use crate::slow_log::supervised;
use crate::{general_log, slow_log};

const BUFFER_BYTES: usize = 256 << 10;
/// A longer line is taken in pieces of this size.
const LINE_BYTES: usize = 1 << 20;
/// Text that is kept until it is worth while to read it.
const PIECE_BYTES: usize = 64 << 10;
/// Each holds an event at most; the lines of further ones are counted as left out.
const MOST_WRITERS: usize = 16;

/// Reads a log whose lines have prefixes.
pub(super) fn read(
    form: &Form,
    input: impl Read,
    name: &str,
    follow: bool,
    sink: &mut dyn Sink,
) -> anyhow::Result<Coverage> {
    let mut reading = Reading {
        form,
        name,
        follow,
        writers: Vec::new(),
        by_name: HashMap::new(),
        program: None,
        begun: HashMap::new(),
        other_lines: 0,
        bare_lines: 0,
        is_behind_gap: false,
        lines: 0,
    };
    let mut input =
        BufReader::with_capacity(BUFFER_BYTES, Rewritten::new(input, Restored::new(form.changed.ends)));
    let mut bytes = 0;
    let problem = reading.lines(&mut input, &mut bytes, sink)?;
    reading.finish(bytes + input.get_ref().rewrite.dropped, problem, sink)
}

struct Reading<'f> {
    form: &'f Form,
    name: &'f str,
    follow: bool,
    writers: Vec<Writer<'f>>,
    by_name: HashMap<Box<[u8]>, usize>,
    /// Whose output follows, where supervisord tells.
    program: Option<Vec<u8>>,
    /// The last line of each of its programs that wrote none of a log yet.
    begun: HashMap<Vec<u8>, Vec<u8>>,
    lines: u64,
    /// Of those that wrote no line of a log, or are too many.
    other_lines: u64,
    /// Without the prefix.
    bare_lines: u64,
    /// The last line is empty and has no prefix: what follows without one is the mail's own text.
    is_behind_gap: bool,
}

/// A container, a host, a program.
struct Writer<'f> {
    name: String,
    text: Vec<u8>,
    /// How much of the text was there when it was read last, and was not taken.
    left: usize,
    log: Log<'f>,
}

enum Log<'f> {
    Slow(Box<slow_log::Parser<'f>>),
    General(Box<general_log::Parser<'f>>),
}

impl<'f> Reading<'f> {
    /// Reads all lines. Gives why the input ended early, if it did.
    fn lines(
        &mut self,
        input: &mut BufReader<impl Read>,
        bytes: &mut u64,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<Option<String>> {
        let mut line = Vec::new();
        // The writer of a line that goes on.
        let mut inside: Option<Option<usize>> = None;
        loop {
            if self.follow && input.buffer().is_empty() {
                self.feed_all(false, sink)?;
            }
            match next_line(input, &mut line) {
                Ok(0) => return Ok(None),
                Ok(count) => *bytes += count as u64,
                Err(error) if is_damage(&error) => return Ok(Some(error.to_string())),
                Err(error) => return Err(error.into()),
            }
            let is_whole = line.ends_with(b"\n");
            let (writer, is_partial) = match inside {
                Some(writer) => (writer, false),
                None => self.begin(&mut line),
            };
            if is_partial && is_whole {
                line.truncate(without_return(&line[..line.len() - 1]).len());
            }
            if let Some(writer) = writer {
                self.push(writer, &mut line, sink)?;
            }
            inside = if is_whole { None } else { Some(writer) };
        }
    }

    /// Takes the prefix off a line; gives who wrote it, if that is a server, and whether it goes on in the next line.
    fn begin(&mut self, line: &mut Vec<u8>) -> (Option<usize>, bool) {
        self.lines += 1;
        if self.form.is_supervised {
            return (self.supervised(line), false);
        }
        let Some((who, is_partial)) = self.form.take_off(line) else {
            let is_empty = without_return(line.strip_suffix(b"\n").unwrap_or(line)).is_empty();
            self.bare_lines += u64::from(!is_empty && self.form.is_of_all_lines());
            // As if the last one had written it, unless several did.
            self.is_behind_gap = self.form.is_mail() && (is_empty || self.is_behind_gap);
            let writer = match self.writers.len() {
                0 => self.writer(&[], line),
                1 if !self.is_behind_gap => Some(0),
                _ => None,
            };
            self.other_lines += u64::from(writer.is_none() && is_something(line));
            return (writer, false);
        };
        self.is_behind_gap = false;
        let writer = self.writer(&who, line);
        self.other_lines += u64::from(writer.is_none() && is_something(line));
        (writer, is_partial)
    }

    /// Who wrote a line under supervisord.
    fn supervised(&mut self, line: &mut Vec<u8>) -> Option<usize> {
        let inner = without_return(line.strip_suffix(b"\n").unwrap_or(line));
        if supervised::is_line(inner) {
            // It has put an end of line behind the output, which may have ended inside of a line.
            if let Some(text) = self.program.take().and_then(|name| self.text_of(&name))
                && text.ends_with(b"\n")
            {
                text.pop();
            }
            self.program = supervised::output(inner).map(<[u8]>::to_vec);
            self.other_lines += u64::from(self.program.is_none());
            return None;
        }
        let name = self.program.clone()?;
        if let Some(writer) = self.by_name.get(name.as_slice()) {
            return Some(*writer);
        }
        // Its first lines may come in pieces as well.
        let begun = self.begun.entry(name.clone()).or_default();
        if begun.ends_with(b"\n") || begun.len() > LINE_BYTES {
            self.other_lines += u64::from(is_something(begun));
            begun.clear();
        }
        begun.append(line);
        std::mem::swap(begun, line);
        let writer = self.writer(&name, line);
        if writer.is_none() {
            self.begun.insert(name, std::mem::take(line));
        }
        writer
    }

    /// What there is of the text of a program.
    fn text_of(&mut self, name: &[u8]) -> Option<&mut Vec<u8>> {
        match self.by_name.get(name) {
            Some(writer) => Some(&mut self.writers[*writer].text),
            None => self.begun.get_mut(name),
        }
    }

    /// The writer of a name; a new one as soon as it writes a line of a log.
    fn writer(&mut self, who: &[u8], line: &[u8]) -> Option<usize> {
        if let Some(writer) = self.by_name.get(who) {
            return Some(*writer);
        }
        if self.writers.len() >= MOST_WRITERS {
            return None;
        }
        let whole = if line.ends_with(b"\n") { line.to_vec() } else { [line, b"\n"].concat() };
        let log = match form::first(&whole, true) {
            Some((First::SlowLog, _)) => Log::Slow(Box::new(slow_log::Parser::new(self.name))),
            Some((First::GeneralLog, _)) => {
                Log::General(Box::new(general_log::Parser::new(self.name, &general_log::Options::default())))
            }
            _ => return None,
        };
        let name = String::from_utf8_lossy(who).into_owned();
        self.writers.push(Writer { name, text: Vec::new(), left: 0, log });
        self.by_name.insert(who.into(), self.writers.len() - 1);
        Some(self.writers.len() - 1)
    }

    fn push(&mut self, index: usize, text: &mut Vec<u8>, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let writer = &mut self.writers[index];
        writer.text.append(text);
        // An open event is looked at again only once there is twice as much: the work stays in proportion.
        if writer.text.len() >= writer.left + writer.left.max(PIECE_BYTES) {
            writer.feed(index, false, sink)?;
        }
        Ok(())
    }

    fn feed_all(&mut self, at_end: bool, sink: &mut dyn Sink) -> anyhow::Result<()> {
        for (index, writer) in self.writers.iter_mut().enumerate() {
            if at_end || writer.text.len() > writer.left {
                writer.feed(index, at_end, sink)?;
            }
        }
        Ok(())
    }

    fn finish(
        mut self,
        bytes: u64,
        problem: Option<String>,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<Coverage> {
        self.feed_all(true, sink)?;
        let mut coverage = Coverage::default();
        if self.writers.is_empty() && self.other_lines > 0 {
            coverage.skipped_bytes = bytes;
            coverage.damage(self.name, 0, 1, "behind what begins this line, no line is one of a log");
        }
        let of = match self.writers.len() {
            0 | 1 => String::new(),
            count => {
                let names: Vec<_> = self.writers.iter().map(|writer| writer.name.as_str()).collect();
                format!("; {count} wrote them, and are read apart: {}", names.join(", "))
            }
        };
        coverage.note(self.name, format!("{}{of}", self.form.description()));
        if self.bare_lines > 0 {
            coverage
                .note(self.name, format!("{} of {} lines have no such prefix", self.bare_lines, self.lines));
        }
        for writer in self.writers {
            let is_one = writer.name.is_empty();
            let mut part = match writer.log {
                Log::Slow(parser) => parser.coverage,
                Log::General(parser) => parser.coverage,
            };
            for place in part.places.iter_mut().filter(|place| place.item > 0) {
                let who = if is_one { String::new() } else { format!(" of {}", writer.name) };
                place.input = format!("{}, the text without prefixes{who}", self.name);
            }
            coverage.merge(&part);
        }
        // Positions and sizes of events are those of the text; the input was longer.
        coverage.bytes = bytes;
        let begun = self.begun.values().filter(|line| is_something(line)).count() as u64;
        coverage.other_lines += self.other_lines + begun;
        if let Some(problem) = problem {
            coverage.damage(self.name, bytes, self.lines + 1, problem);
        }
        Ok(coverage)
    }
}

impl Writer<'_> {
    fn feed(&mut self, index: usize, at_end: bool, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let mut give = |event: &Event<'_>| {
            // Numbers of threads are those of one server.
            let mut event = event.clone();
            event.session = session(event.session, index);
            sink.event(&event)
        };
        let taken = match &mut self.log {
            Log::Slow(parser) => parser.feed(&self.text, at_end, &mut give)?,
            Log::General(parser) => parser.feed(&self.text, at_end, &mut give)?,
        };
        self.text.drain(..taken);
        self.left = self.text.len();
        Ok(())
    }
}

/// Whether a line that no server is known to have written is one of another program: a banner is the server's.
fn is_something(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    !line.is_empty() && !is_of_banner(line)
}

/// A session's number among those of all servers.
fn session(number: u64, server: usize) -> u64 {
    if server == 0 {
        return number;
    }
    let mut hasher = xxhash_rust::xxh3::Xxh3Builder::new().with_seed(server as u64).build_hasher();
    hasher.write_u64(number);
    hasher.finish()
}

/// Reads a line with its end, or a piece of a long one. Gives its length; 0 at the end.
fn next_line(input: &mut BufReader<impl Read>, line: &mut Vec<u8>) -> io::Result<usize> {
    line.clear();
    loop {
        let ahead = match input.fill_buf() {
            Ok(ahead) => ahead,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // What was read before it is given first.
            Err(_) if !line.is_empty() => return Ok(line.len()),
            Err(error) => return Err(error),
        };
        let room = LINE_BYTES - line.len();
        let window = &ahead[..ahead.len().min(room)];
        let length = memchr(b'\n', window).map_or(window.len(), |end| end + 1);
        line.extend_from_slice(&window[..length]);
        let is_end = length == 0 || line.ends_with(b"\n") || line.len() >= LINE_BYTES;
        input.consume(length);
        if is_end {
            return Ok(line.len());
        }
    }
}
