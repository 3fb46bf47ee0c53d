//! Where the proxy's events go: a recording, JSON lines, or nowhere but into the counts.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::Context;
use serde_json::json;

use super::ProxyArguments;
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome, Sink};
use crate::recording::{Info, Writer, WriterOptions};
use sql;

pub enum Out {
    Recording(Box<Writer>),
    Lines { out: Box<dyn Write + Send>, text: Vec<u8> },
    Nowhere,
}

impl Out {
    pub fn open(arguments: &ProxyArguments) -> anyhow::Result<Self> {
        if let Some(path) = &arguments.output {
            let info = Info { sources: vec!["proxy".to_owned()], ..Info::of_this_host() };
            let (with_literals, force) = (arguments.with_literals, arguments.force);
            let options = WriterOptions { with_literals, force, info, ..WriterOptions::default() };
            return Ok(Out::Recording(Box::new(Writer::create(path, &options)?)));
        }
        let Some(path) = &arguments.events else { return Ok(Out::Nowhere) };
        let out: Box<dyn Write + Send> = if path.as_os_str() == "-" {
            Box::new(BufWriter::new(io::stdout()))
        } else {
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
            Box::new(BufWriter::new(file.with_context(|| format!("cannot write {}", path.display()))?))
        };
        Ok(Out::Lines { out, text: Vec::new() })
    }

    pub fn tick(&mut self) -> anyhow::Result<()> {
        match self {
            Out::Recording(writer) => writer.tick(),
            Out::Lines { out, .. } => out.flush().context("cannot write the events"),
            Out::Nowhere => Ok(()),
        }
    }

    pub fn finish(self, coverage: &mut Coverage) -> anyhow::Result<()> {
        match self {
            Out::Recording(writer) => writer.finish(coverage).map(drop),
            Out::Lines { mut out, .. } => out.flush().context("cannot write the events"),
            Out::Nowhere => Ok(()),
        }
    }
}

impl Sink for Out {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        match self {
            Out::Recording(writer) => writer.event(event),
            Out::Lines { out, text } => {
                let is_redacted = sql::redact(event.text, text);
                let shown = if is_redacted { &text[..] } else { event.text };
                writeln!(out, "{}", line(event, shown)).context("cannot write the events")
            }
            Out::Nowhere => Ok(()),
        }
    }
}

fn line(event: &Event<'_>, text: &[u8]) -> serde_json::Value {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let outcome = match event.outcome {
        Outcome::Unknown => json!("unknown"),
        Outcome::Ok => json!("ok"),
        Outcome::Error(code) => json!(code),
        Outcome::Unanswered => json!("unanswered"),
    };
    let command = match event.command {
        Command::Other(byte) => format!("Other({byte})"),
        command => format!("{command:?}"),
    };
    let mut parameters = String::with_capacity(2 * event.parameters.len());
    for byte in event.parameters {
        let _ = write!(parameters, "{byte:02x}");
    }
    json!({
        "session": event.session,
        "start_ns": event.start_ns,
        "response_ns": event.response_ns,
        "first_byte_ns": event.first_byte_ns,
        "user": lossy(event.user),
        "host": lossy(event.host),
        "database": lossy(event.database),
        "command": command,
        "outcome": outcome,
        "text": lossy(text),
        "is_cut": event.is_cut,
        "statement": event.statement,
        "parameters": parameters,
        "parameter_count": event.parameter_count,
        "rows_sent": event.rows_sent,
        "rows_affected": event.rows_affected,
        "request_bytes": event.request_bytes,
        "response_bytes": event.response_bytes,
        "warnings": event.warnings,
        "checksum": event.checksum,
    })
}
