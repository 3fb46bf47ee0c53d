//! `headrace-agent events`: what a file of traffic holds, one JSON line an event. For tests, and for a close look.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use super::coverage::Coverage;
use super::event::{Event, Sink};
use super::input;
use super::json::Object;
use super::slow_log;
use super::sources::{self, Kind, SourceOptions};

#[derive(clap::Args)]
pub struct EventsArguments {
    /// A capture, a log or a recording; `-` is standard input
    file: PathBuf,
    /// Wait for more at the end of the file, until a signal
    #[arg(long)]
    follow: bool,
    /// Ports of the servers, for captures [default: 3306, or the first port on which a server of MySQL greets]
    #[arg(long, value_delimiter = ',')]
    ports: Vec<u16>,
    /// Print only how many events there are
    #[arg(long)]
    count: bool,
    /// Threads that read a plain slow log; only with --count, because they keep no order
    #[arg(long, default_value_t = 1, requires = "count")]
    workers: usize,
}

/// Prints the events, and the coverage as the last line.
///
/// # Errors
/// The file cannot be read or is nothing known, or nobody reads what is printed.
pub fn run(arguments: &EventsArguments) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let coverage = if arguments.count { count(arguments)? } else { print(arguments, &mut out)? };
    serde_json::to_writer(&mut out, &serde_json::json!({ "coverage": coverage })).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

fn options(arguments: &EventsArguments) -> SourceOptions {
    SourceOptions { follow: arguments.follow, ports: arguments.ports.clone(), ..SourceOptions::default() }
}

/// Only counts.
struct Nothing;

impl Sink for Nothing {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        std::hint::black_box(event.start_ns);
        Ok(())
    }
}

fn count(arguments: &EventsArguments) -> anyhow::Result<Coverage> {
    let path = &arguments.file;
    let in_parts = arguments.workers > 1 && !arguments.follow && input::is_plain(path)?;
    if !in_parts || sources::kind(path)? != Kind::SlowLog {
        return sources::read(path, &options(arguments), &mut Nothing);
    }
    let mut sum = Coverage::default();
    for (_, coverage) in slow_log::read_parallel(path, arguments.workers, || Nothing)? {
        sum.merge(&coverage);
    }
    Ok(sum)
}

fn print(arguments: &EventsArguments, out: &mut impl Write) -> anyhow::Result<Coverage> {
    let follow = arguments.follow;
    let mut sink = |event: &Event<'_>| {
        line(event, out)?;
        // Whoever follows wants to see it now.
        if follow { Ok(out.flush()?) } else { Ok(()) }
    };
    sources::read(&arguments.file, &options(arguments), &mut sink)
}

fn line(event: &Event<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    // With the kind of the failed write: a reader that is gone is no error.
    serde_json::to_writer(&mut *out, &Object { event, text: event.text }).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}
