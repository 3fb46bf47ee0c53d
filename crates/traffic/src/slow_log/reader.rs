//! One file read from end to end.

use std::io::Read;

use super::parser::Parser;
use crate::coverage::Coverage;
use crate::event::{Event, Sink};
use crate::pieces::{Buffer, drive};

pub(super) const BUFFER_BYTES: usize = 512 << 10;

/// Reads a whole log. `name` is in the places of damage.
///
/// # Errors
/// Reading failed, or the sink refused an event.
pub fn read(input: impl Read, name: &str, sink: &mut dyn Sink) -> anyhow::Result<Coverage> {
    let mut parser = Parser::new(name);
    drive(input, &mut Buffer::new(BUFFER_BYTES), &mut parser, &mut |event: &Event<'_>| sink.event(event))?;
    Ok(parser.coverage)
}
