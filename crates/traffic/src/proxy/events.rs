//! Where the proxy's events go: a recording, JSON lines, or nowhere but into the counts.

use std::io::{self, BufWriter, Write};

use anyhow::Context;

use super::arguments::ProxyArguments;
use crate::coverage::Coverage;
use crate::event::{Event, Sink};
use crate::json::Object;
use crate::recording::{Info, Writer, WriterOptions};
use base::error::AgentError;
use base::output::create;
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
            let file = create(path, 0o600).map_err(|error| AgentError::unwritable(path, error))?;
            Box::new(BufWriter::new(file))
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
                serde_json::to_writer(&mut *out, &Object { event, text: shown })
                    .map_err(io::Error::from)
                    .context("cannot write the events")?;
                out.write_all(b"\n").context("cannot write the events")
            }
            Out::Nowhere => Ok(()),
        }
    }
}
