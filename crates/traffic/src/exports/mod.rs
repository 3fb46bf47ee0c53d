//! Exports: what clients, clouds and shippers make of a server's logs and tables.
//!
//! The same rows come as JSON (one document or many), as CSV in several dialects, as tabs of the command-line clients and
//! as text with something before each event; and what they hold is either text of a log, piece by piece, or rows that are
//! events, or rows that a server summed up. So there are two steps: `json`, `journal`, `separated` and `tail` make records of
//! bytes, `shape` tells by the names of their fields what they are, and `streams`, `rows` and `summary` read them. Memory
//! is bounded whatever comes.

mod bytes;
mod columns;
mod dates;
mod journal;
mod json;
mod printed;
mod record;
mod rows;
mod separated;
mod sessions;
mod shape;
mod streams;
mod summary;
mod tagged;
mod tail;
mod taker;
mod values;
mod window;

use std::io::{Cursor, Read};

use self::bytes::Bytes;
use self::journal::JournalRecords;
use self::json::JsonRecords;
use self::printed::PrintedRecords;
use self::record::{Next, Record};
use self::separated::{Dialect, SeparatedRecords};
use self::shape::Shape;
use self::tagged::Tagged;
use self::tail::{Form, Tail};
use self::taker::Taker;
use crate::coverage::Coverage;
use crate::event::Sink;
use crate::pieces::without_return;
use crate::rewritten::Rewritten;
use crate::{general_log, slow_log};

/// Paths of records, and records of each, that are looked at to tell what a document is.
const MOST_PATHS: usize = 16;
const LOOKED_AT: usize = 50;
/// Of a line with a document behind something, so many bytes are looked at, from so many places on.
const LOOKED_AT_BYTES: usize = 16 << 10;
const MOST_PLACES: usize = 4;
/// Lines before the names of columns: what a client says before its output.
const LINES_BEFORE: usize = 5;

/// How an export is written, and what it holds.
#[derive(Debug, PartialEq, Eq)]
enum Export {
    Json {
        path: Vec<u8>,
        shape: Shape,
        /// They are texts with nothing around them.
        are_texts: bool,
    },
    /// A document in each line, behind something.
    Tagged {
        shape: Shape,
        is_hash: bool,
    },
    Separated {
        skipped: usize,
        dialect: Dialect,
        columns: Vec<&'static str>,
        shape: Shape,
    },
    Printed {
        form: printed::Form,
        shape: Shape,
    },
    Journal,
    Tail(Form),
}

/// Whether the beginning of a file is that of an export that can be read.
#[must_use]
pub fn is_export(head: &[u8]) -> bool {
    Export::of(head).is_some()
}

/// Reads an export, of which the beginning was read already. `follow` gives what is there without waiting for more.
///
/// # Errors
/// Reading failed, the sink refused an event, or there is no text of a log in what says that it has some.
pub fn read(
    head: Vec<u8>,
    input: impl Read,
    name: &str,
    follow: bool,
    sink: &mut dyn Sink,
) -> anyhow::Result<Coverage> {
    let Some(export) = Export::of(&head) else { return Ok(Coverage::default()) };
    let mut input = Cursor::new(head).chain(input);
    match export {
        Export::Json { path, shape, are_texts } => {
            let mut bytes = Bytes::new(input);
            bytes.skip_mark()?;
            let mut records = JsonRecords::new(bytes, &path);
            records.are_texts = are_texts;
            // A document ends; only lines may come for ever, and those come in order.
            drive(&mut records, Taker::new(name, shape), name, follow && path.is_empty(), sink)
        }
        Export::Tagged { shape, is_hash } => {
            let tagged = Tagged::new(is_hash);
            let read = tagged.read.clone();
            let mut records = JsonRecords::new(Bytes::new(Rewritten::new(input, tagged)), b"");
            let mut coverage = drive(&mut records, Taker::new(name, shape), name, follow, sink)?;
            coverage.bytes = read.get();
            Ok(coverage)
        }
        Export::Separated { skipped, dialect, columns, shape } => {
            std::io::copy(&mut input.by_ref().take(skipped as u64), &mut std::io::sink())?;
            let mut records = SeparatedRecords::new(Bytes::new(input), dialect, &columns)?;
            let mut coverage = drive(&mut records, Taker::new(name, shape), name, follow, sink)?;
            coverage.bytes += skipped as u64;
            Ok(coverage)
        }
        Export::Printed { form, shape } => {
            let mut records = PrintedRecords::new(Bytes::new(input), form);
            drive(&mut records, Taker::new(name, shape), name, follow, sink)
        }
        Export::Journal => {
            let mut records = JournalRecords::new(Bytes::new(input));
            drive(&mut records, Taker::new(name, Shape::Text), name, follow, sink)
        }
        Export::Tail(form) => {
            let mut tail = Tail::new(Bytes::new(input), form);
            let mut taker = Taker::new(name, Shape::Text);
            while tail.next()? {
                taker.piece(&tail.stream, &tail.text, sink)?;
                if follow && tail.bytes.is_drained() {
                    taker.flush(sink)?;
                }
            }
            finish(taker, &mut tail.bytes, name, sink)
        }
    }
}

/// What gives records.
trait Records {
    type Input: Read;

    fn next(&mut self, record: &mut Record) -> std::io::Result<Next>;
    fn bytes(&mut self) -> &mut Bytes<Self::Input>;
    /// The stream that the document names outside of its records.
    fn outer(&self) -> &[u8];
}

impl<R: Read> Records for JsonRecords<R> {
    type Input = R;

    fn next(&mut self, record: &mut Record) -> std::io::Result<Next> {
        JsonRecords::next(self, record)
    }

    fn bytes(&mut self) -> &mut Bytes<R> {
        &mut self.bytes
    }

    fn outer(&self) -> &[u8] {
        &self.outer
    }
}

impl<R: Read> Records for SeparatedRecords<R> {
    type Input = R;

    fn next(&mut self, record: &mut Record) -> std::io::Result<Next> {
        SeparatedRecords::next(self, record)
    }

    fn bytes(&mut self) -> &mut Bytes<R> {
        &mut self.bytes
    }

    fn outer(&self) -> &[u8] {
        b""
    }
}

impl<R: Read> Records for PrintedRecords<R> {
    type Input = R;

    fn next(&mut self, record: &mut Record) -> std::io::Result<Next> {
        PrintedRecords::next(self, record)
    }

    fn bytes(&mut self) -> &mut Bytes<R> {
        &mut self.bytes
    }

    fn outer(&self) -> &[u8] {
        b""
    }
}

impl<R: Read> Records for JournalRecords<R> {
    type Input = R;

    fn next(&mut self, record: &mut Record) -> std::io::Result<Next> {
        JournalRecords::next(self, record)
    }

    fn bytes(&mut self) -> &mut Bytes<R> {
        &mut self.bytes
    }

    fn outer(&self) -> &[u8] {
        b""
    }
}

fn drive(
    records: &mut impl Records,
    mut taker: Taker<'_>,
    name: &str,
    follow: bool,
    sink: &mut dyn Sink,
) -> anyhow::Result<Coverage> {
    let mut record = Record::default();
    loop {
        let (offset, line) = (records.bytes().offset(), records.bytes().line());
        let trouble = match records.next(&mut record)? {
            Next::End => break,
            Next::Broken(why) => Some(why),
            Next::Record => taker.record(&record, records.outer(), sink)?.err(),
        };
        if let Some(why) = trouble {
            let skipped = records.bytes().offset() - offset;
            taker.coverage.skipped_bytes += skipped;
            taker.coverage.damage(name, offset, line, why);
        }
        if follow && records.bytes().is_drained() {
            taker.flush(sink)?;
        }
    }
    finish(taker, records.bytes(), name, sink)
}

fn finish<R: Read>(
    taker: Taker<'_>,
    bytes: &mut Bytes<R>,
    name: &str,
    sink: &mut dyn Sink,
) -> anyhow::Result<Coverage> {
    let mut coverage = taker.finish(sink)?;
    coverage.bytes += bytes.offset();
    if let Some(problem) = bytes.problem.take() {
        coverage.damage(name, bytes.offset(), bytes.line(), problem);
    }
    Ok(coverage)
}

impl Export {
    fn of(head: &[u8]) -> Option<Export> {
        if journal::is_journal(head) {
            return Some(Export::Journal);
        }
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
        // It begins each text of a JSON sequence.
        let text = text.strip_prefix(b"\x1e").unwrap_or(text);
        if matches!(text.first(), Some(b'{' | b'[')) {
            // What stands before a document may be in brackets.
            let tagged = || tagged_export(text).filter(|_| text.starts_with(b"["));
            return json_export(text).or_else(tagged);
        }
        if let Some(export) = tagged_export(text) {
            return Some(export);
        }
        if let Some(form) = Form::of(head) {
            return Some(Export::Tail(form));
        }
        if let Some(form) = printed::Form::of(head) {
            return printed_export(head, form);
        }
        named_columns(head).or_else(|| single_column(head)).or_else(|| nameless_columns(head))
    }
}

/// A beginning is looked at many times.
fn small(text: &[u8]) -> Bytes<&[u8]> {
    Bytes::with_buffer(text, text.len().clamp(1, 16 << 10))
}

/// By the first records, wherever they are; the outermost path at which some are known.
fn json_export(text: &[u8]) -> Option<Export> {
    let paths = JsonRecords::new(small(text), b"").paths(MOST_PATHS);
    let mut record = Record::default();
    // A member of an object is a part of it, not one of many.
    for path in paths.into_iter().filter(|path| path.is_empty() || path.ends_with(b"[]")) {
        let mut records = JsonRecords::new(small(text), &path);
        for _ in 0..LOOKED_AT {
            let next = records.next(&mut record).ok()?;
            // What there is of a record that is cut tells as well.
            // Of two texts, the first is a time only where it is none of a log.
            let are_texts = record.text(&["ts"]).is_some_and(is_of_log);
            if let Some(shape) = Shape::of(&record).filter(|_| !are_texts) {
                return Some(Export::Json { path, shape, are_texts: false });
            }
            if next == Next::End {
                break;
            }
        }
    }
    json_texts(text)
}

/// By the first texts of an array of texts, as a query for nothing but them gives it.
fn json_texts(text: &[u8]) -> Option<Export> {
    let mut record = Record::default();
    for mut path in JsonRecords::new(small(text), b"").paths(MOST_PATHS) {
        path.extend_from_slice(b"[]");
        let mut records = JsonRecords::new(small(text), &path);
        records.are_texts = true;
        for _ in 0..LOOKED_AT {
            let next = records.next(&mut record).ok()?;
            if record.text(shape::TEXT).is_some_and(is_of_log) {
                return Some(Export::Json { path, shape: Shape::Text, are_texts: true });
            }
            if next != Next::Record {
                break;
            }
        }
    }
    None
}

fn is_of_log(text: &[u8]) -> bool {
    slow_log::is_header_line(text) || general_log::is_event(&[text, b"\n"].concat())
}

/// By the first document behind something, in the first lines.
fn tagged_export(text: &[u8]) -> Option<Export> {
    let lines = text.split_inclusive(|byte| *byte == b'\n').take(LINES_BEFORE);
    let is_log = |line: &[u8]| slow_log::is_header_line(line) || general_log::is_event(line);
    for line in lines.take_while(|line| line.ends_with(b"\n") && !is_log(line)) {
        let line = &line[..line.len().min(LOOKED_AT_BYTES)];
        for at in tagged::places(line).take(MOST_PLACES) {
            let is_hash = tagged::is_hash(&line[at..]);
            let mut document = Vec::new();
            // Reading from memory does not fail.
            let _ = Rewritten::new(&line[at..], Tagged::new(is_hash)).read_to_end(&mut document);
            match json_export(&document) {
                Some(Export::Json { path, shape, .. }) if path.is_empty() => {
                    return Some(Export::Tagged { shape, is_hash });
                }
                _ => {}
            }
        }
    }
    None
}

/// By the names of the first row.
fn printed_export(head: &[u8], form: printed::Form) -> Option<Export> {
    let mut record = Record::default();
    let next = PrintedRecords::new(Bytes::new(head), form).next(&mut record).ok()?;
    let shape = Shape::of(&record).filter(|_| next == Next::Record)?;
    Some(Export::Printed { form, shape })
}

fn named_columns(head: &[u8]) -> Option<Export> {
    let mut skipped = 0;
    for line in head.split_inclusive(|byte| *byte == b'\n').take(LINES_BEFORE) {
        if !line.ends_with(b"\n") {
            break;
        }
        let text = &head[skipped..];
        for dialect in Dialect::all(text) {
            let records = SeparatedRecords::new(Bytes::with_buffer(line, 4096), dialect, &[]).ok()?;
            let header = records.header();
            if let Some(shape) = Shape::of(&header) {
                return Some(Export::Separated { skipped, dialect, columns: Vec::new(), shape });
            }
        }
        skipped += line.len();
    }
    None
}

/// By the name of the only column: a sheet of a log's lines, of which only some are in quotes.
fn single_column(head: &[u8]) -> Option<Export> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let line = without_return(&head[..memchr::memchr(b'\n', head)?]);
    let name = line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\"")).unwrap_or(line);
    let is_text = shape::TEXT.iter().any(|text| name.eq_ignore_ascii_case(text.as_bytes()));
    is_text.then_some(Export::Separated {
        skipped: 0,
        dialect: separated::SINGLE,
        columns: Vec::new(),
        shape: Shape::Text,
    })
}

/// By the values of the first row.
fn nameless_columns(head: &[u8]) -> Option<Export> {
    for dialect in Dialect::all(head).chain([separated::SERVERS]) {
        let mut records = SeparatedRecords::new(small(head), dialect, &["-"]).ok()?;
        let values = records.values().ok()??;
        if let Some((shape, columns)) = columns::of(&values) {
            return Some(Export::Separated { skipped: 0, dialect, columns, shape });
        }
    }
    None
}

#[cfg(test)]
mod tests;
