//! What is done with the records of an export, by what they are.

use std::collections::HashMap;

use super::bytes::Bytes;
use super::json::JsonRecords;
use super::record::{Next, Record, shown};
use super::rows::{Read, Rows};
use super::shape::{STREAM, Shape, TEXT, TIME};
use super::streams::Streams;
use super::summary::Summaries;
use super::values::moment;
use super::window::Window;
use crate::coverage::Coverage;
use crate::event::Sink;
use crate::slow_log::MAX_EVENT_BYTES;
use base::error::AgentError;

/// A text that is a document itself is not longer.
const MOST_INNER_BYTES: usize = 1 << 20;
/// Streams whose text goes on; of further ones each piece counts as a line.
const MOST_PARTIAL: usize = 1024;
/// Docker's pieces of a longer line.
const DOCKER_BYTES: usize = 16 << 10;

pub(super) struct Taker<'n> {
    name: &'n str,
    pub(super) coverage: Coverage,
    work: Work<'n>,
}

enum Work<'n> {
    Texts(Box<Texts<'n>>),
    Rows(Box<Rows<'n>>),
    Summaries(Box<Summaries<'n>>),
}

struct Texts<'n> {
    streams: Streams<'n>,
    window: Window,
    /// Whether texts are lines without their ends; told by the first one.
    are_lines: Option<bool>,
    stream: Vec<u8>,
    inner: Record,
    /// Of each stream whose last text goes on in its next one: the text until then.
    partial: HashMap<Box<[u8]>, Vec<u8>>,
}

impl<'n> Taker<'n> {
    pub(super) fn new(name: &'n str, shape: Shape) -> Self {
        let work = match shape {
            Shape::Text => Work::Texts(Box::new(Texts {
                streams: Streams::new(name),
                window: Window::default(),
                are_lines: None,
                stream: Vec::new(),
                inner: Record::default(),
                partial: HashMap::new(),
            })),
            Shape::SlowRow | Shape::Ecs | Shape::GeneralRow => Work::Rows(Box::new(Rows::new(name, shape))),
            Shape::Summary | Shape::Analysis => Work::Summaries(Box::new(Summaries::new(name, shape))),
        };
        Self { name, coverage: Coverage::default(), work }
    }

    /// Takes a record; why it is none that can be read, if so.
    pub(super) fn record(
        &mut self,
        record: &Record,
        outer: &[u8],
        sink: &mut dyn Sink,
    ) -> anyhow::Result<Read> {
        match &mut self.work {
            Work::Texts(texts) => texts.record(record, outer, sink),
            Work::Rows(rows) => rows.row(record, sink),
            Work::Summaries(summaries) => summaries.row(record, sink),
        }
    }

    /// Takes a piece of text as it is, in the order in which it was written.
    pub(super) fn piece(&mut self, stream: &[u8], text: &[u8], sink: &mut dyn Sink) -> anyhow::Result<()> {
        match &mut self.work {
            Work::Texts(texts) => texts.streams.push(stream, text, false, sink),
            _ => Ok(()),
        }
    }

    /// Gives what there is, because nothing may come for long.
    pub(super) fn flush(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        if let Work::Texts(texts) = &mut self.work {
            texts.window.end(&mut texts.streams, sink)?;
            texts.streams.flush(sink)?;
        }
        Ok(())
    }

    pub(super) fn finish(self, sink: &mut dyn Sink) -> anyhow::Result<Coverage> {
        let Taker { name, mut coverage, work } = self;
        match work {
            Work::Texts(mut texts) => {
                texts.end_partial(sink)?;
                texts.window.end(&mut texts.streams, sink)?;
                texts.streams.end(sink)?;
                texts.window.note(name, &mut coverage);
                coverage.merge(&texts.streams.coverage);
                if coverage.events == 0
                    && let Some(stranger) = texts.streams.stranger
                {
                    return Err(AgentError::Named(no_log(name, &stranger)).into());
                }
            }
            Work::Rows(rows) => {
                let placeholders = rows.placeholders;
                coverage.merge(&rows.finish());
                if coverage.events == 0 && placeholders > 0 {
                    return Err(AgentError::Named(no_statements(name)).into());
                }
            }
            Work::Summaries(summaries) => coverage.merge(&summaries.finish()),
        }
        Ok(coverage)
    }
}

fn no_log(name: &str, text: &[u8]) -> String {
    // Accounts as mysql.slow_log and mysql.general_log have them in a column.
    if memchr::memmem::find(text, b"] @ ").is_some() && memchr::memmem::find(text, b"User@Host").is_none() {
        return format!(
            "{name} has rows of a log without the names of their columns in each: write them as records (pandas: \
             to_json(orient='records')), or as CSV with the names in its first line"
        );
    }
    let what =
        crate::unreadable::sentence(text).map_or_else(String::new, |sentence| format!(" ({sentence})"));
    format!("{name} has texts of a log, but not of a slow log or general log: {:?}{what}", shown(text, 80))
}

fn no_statements(name: &str) -> String {
    format!(
        "{name}: the client exported its statements as the word BLOB; export them with SELECT ..., CONVERT(sql_text USING \
         utf8mb4) AS sql_text ... (of mysql.general_log: argument)"
    )
}

impl Texts<'_> {
    fn record(&mut self, record: &Record, outer: &[u8], sink: &mut dyn Sink) -> anyhow::Result<Read> {
        let Some(mut text) = record.text(TEXT) else { return Ok(Err("a record without a text")) };
        let time_ns = record.text(TIME).and_then(moment).map_or(0, |(ns, _)| ns);
        self.stream.clear();
        self.stream.extend_from_slice(outer);
        name_stream(record, &mut self.stream);
        self.inner.clear();
        if text.starts_with(b"{") && text.len() <= MOST_INNER_BYTES && self.inner.read_of(text) {
            // A shipper's document in a cloud's: the text is in the inner one.
            name_stream(&self.inner, &mut self.stream);
            text = self.inner.text(TEXT).unwrap_or(text);
        }
        // Docker keeps the end of each line, and writes a long line in pieces without one; RDS gives pieces of a file.
        let is_piece = text.ends_with(b"\n") || text.len() == DOCKER_BYTES;
        let is_verbatim = record.has(&["log"]) && is_piece || record.has(&["logfiledata"]);
        let are_lines = *self.are_lines.get_or_insert(!is_verbatim);
        if !are_lines {
            self.streams.push(&self.stream, text, false, sink)?;
        } else if (goes_on(record) || goes_on(&self.inner)) && self.partial.len() < MOST_PARTIAL {
            let partial = self.partial.entry(self.stream.as_slice().into()).or_default();
            partial.extend_from_slice(&text[..text.len().min(MAX_EVENT_BYTES.saturating_sub(partial.len()))]);
            if partial.len() >= MAX_EVENT_BYTES {
                return Ok(Err("a line in more pieces than can be kept"));
            }
        } else if let Some(mut whole) = self.partial.remove(self.stream.as_slice()) {
            whole.extend_from_slice(text);
            self.window.push(time_ns, &self.stream, &whole, &mut self.streams, sink)?;
        } else {
            self.window.push(time_ns, &self.stream, text, &mut self.streams, sink)?;
        }
        Ok(if record.is_cut { Err("a text that is too long: its end is not read") } else { Ok(()) })
    }

    /// Pieces after which none came.
    fn end_partial(&mut self, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let mut left: Vec<_> = self.partial.drain().collect();
        left.sort_unstable();
        for (stream, text) in left {
            self.window.push(0, &stream, &text, &mut self.streams, sink)?;
        }
        Ok(())
    }
}

impl Record {
    /// Makes it the first record of a document; whether that has a text.
    fn read_of(&mut self, document: &[u8]) -> bool {
        let bytes = Bytes::with_buffer(document, document.len());
        let is_record = matches!(JsonRecords::new(bytes, b"").next(self), Ok(Next::Record));
        is_record && self.text(TEXT).is_some()
    }
}

/// Whether a line goes on in the next record: fluentd's driver of Docker says so, and the tag of containerd and CRI-O.
fn goes_on(record: &Record) -> bool {
    let is = |name: &str, wanted: &[u8]| record.text(&[name]).is_some_and(|value| value == wanted);
    is("partial_message", b"true") && !is("partial_last", b"true") || is("logtag", b"P") || is("_p", b"P")
}

/// All that says whose text it is, one after the other.
fn name_stream(record: &Record, stream: &mut Vec<u8>) {
    for name in STREAM {
        if let Some(value) = record.text(&[name]) {
            if !stream.is_empty() {
                stream.push(b' ');
            }
            stream.extend_from_slice(&value[..value.len().min(256)]);
        }
    }
}
