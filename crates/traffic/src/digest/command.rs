//! `headrace-agent digest`: files, pipes and growing files in, one digest (or one an interval) out.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::binlog::transaction::{Log, Transaction};
use crate::capture::{self, CaptureOptions};
use crate::coverage::Coverage;
use crate::digest::altered;
use crate::digest::group::Dimension;
use crate::digest::lines::Source;
use crate::digest::progress::Progress;
use crate::digest::{Digest, DigestOptions};
use crate::event::{Event, Sink};
use crate::filter::{Filter, Selection, parse_moment_or_ago};
use crate::packets::PacketOptions;
use crate::repeats::{Repeats, Seen};
use crate::sources::together::{grouped, name_of, read_group};
use crate::sources::{self, Expected, Kind, SourceOptions};
use crate::wire::{Decoder, WireOptions};
use crate::{input, slow_log};
use base::duration::parse_duration;
use base::error::AgentError;
use base::output::create;
use base::stop::StopSignal;
use sql::Mode;

const MOST_WORKERS: usize = 64;

/// Sum up traffic by query class, as JSON lines (docs/reference/digest-format.md) or as a table
#[derive(Args)]
pub struct DigestArguments {
    /// Slow logs, general logs, binary logs, captures (pcap, pcapng), recordings, also compressed; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-", conflicts_with = "interface")]
    files: Vec<PathBuf>,
    /// Capture packets of this interface until SIGINT or SIGTERM; any for all of them (needs root, or CAP_NET_RAW)
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Fingerprints: headrace's own, or those and the ids of pt-query-digest
    #[arg(long, value_enum, default_value_t = ModeName::Strict)]
    mode: ModeName,
    /// Digits and hashes in the names of tables and databases are values: orders_2024_01 and orders_2024_02 are one table
    #[arg(long)]
    fold_names: bool,
    /// What makes a class: any of class, user, host, database, table (all tables of a statement), session, command
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Dimension::Class])]
    group: Vec<Dimension>,
    /// Only events that began then or later: UTC such as 2026-11-21T09:30:00Z, seconds since 1970, or 1h for an hour ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment_or_ago)]
    since: Option<u64>,
    /// Only events that began before then
    #[arg(long, value_name = "TIME", value_parser = parse_moment_or_ago)]
    until: Option<u64>,
    /// Only such events, all given ones together: user=app, database!=test, text~orders, response>=100ms, error=any, class=ID
    #[arg(long, value_name = "CONDITION")]
    filter: Vec<Filter>,
    /// What the files are, as pt-query-digest names it; the content tells, and a contradiction is an error
    #[arg(long = "type", value_name = "KIND", value_enum)]
    expected: Option<Expected>,
    /// Wait for more at the end of the file, until SIGINT or SIGTERM
    #[arg(long)]
    follow: bool,
    /// A whole digest of each interval; they merge
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    every: Option<Duration>,
    /// Threads for plain slow logs; all cores if not given
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Keep no statement as an example
    #[arg(long)]
    no_samples: bool,
    /// Classes to list, those with the most time; all others are counted as one
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    classes: u32,
    /// Port of the servers in a capture [default: 3306, or the first port on which a server of MySQL greets]
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<u16>,
    /// JSON lines, or a table for a terminal
    #[arg(long, value_enum, default_value_t = Format::Lines)]
    format: Format,
    /// Classes in the table
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Write there; zstd where it ends in .zst
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeName {
    Strict,
    Pt,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Lines,
    Table,
}

/// Runs `headrace-agent digest`.
pub fn run(arguments: &DigestArguments) -> anyhow::Result<()> {
    if arguments.fold_names && arguments.mode == ModeName::Pt {
        let reason =
            "--fold-names is for strict classes: those of pt-query-digest have no digits in names anyway";
        return Err(AgentError::Input(reason.to_owned()).into());
    }
    let options = options(arguments);
    let mut out = Out::open(arguments.output.as_deref())?;
    if let Some(every) = arguments.every {
        return run_every(arguments, &options, every, &mut out);
    }
    let mut source = Source { inputs: inputs(arguments), ..Source::default() };
    let mut whole = Digest::new(&options);
    if let Some(interface) = &arguments.interface {
        let (coverage, ended) = capture_on(interface, arguments, &mut whole)?;
        source.coverage = coverage;
        write(&mut whole, &source, arguments, &mut out)?;
        out.finish()?;
        return Ok(ended?);
    }
    let progress = Progress::start(&arguments.files, arguments.follow);
    read_files(arguments, &options, &mut whole, &mut source.coverage)?;
    progress.end();
    source.coverage.note_mixed_lines();
    for note in altered::notes(&whole.classes, whole.has_hole) {
        source.coverage.note(&source.inputs.join(", "), note);
    }
    write(&mut whole, &source, arguments, &mut out)?;
    out.finish()?;
    // A report of nothing must not look like one of an idle server.
    source
        .coverage
        .unreadable()
        .map_or(Ok(()), |why| Err(AgentError::Named(format!("{}: {why}", source.inputs.join(", "))).into()))
}

/// Reads files, each event once where that can be told.
fn read_files(
    arguments: &DigestArguments,
    options: &DigestOptions,
    whole: &mut Digest,
    coverage: &mut Coverage,
) -> anyhow::Result<()> {
    let groups = grouped(&arguments.files, arguments.follow, coverage);
    let mut repeats = Repeats::default();
    let options = DigestOptions { is_one_of_several: groups.len() > 1, ..options.clone() };
    for group in &groups {
        let (mut seen, mut digests) = (Seen::new(false), Vec::new());
        let mut of_group = Coverage::default();
        for (mut digest, of_part) in read(group, arguments, &options)? {
            seen.merge(digest.take_seen());
            digests.push(digest);
            of_group.merge(&of_part);
        }
        if repeats.next(&name_of(group), seen, true, coverage) {
            continue;
        }
        coverage.merge(&of_group);
        digests.into_iter().for_each(|digest| whole.merge(digest));
    }
    Ok(())
}

fn options(arguments: &DigestArguments) -> DigestOptions {
    let mut group = arguments.group.clone();
    group.sort_unstable();
    group.dedup();
    DigestOptions {
        mode: match arguments.mode {
            ModeName::Strict if arguments.fold_names => Mode::Folded,
            ModeName::Strict => Mode::Strict,
            ModeName::Pt => Mode::Pt,
        },
        group,
        selection: Selection {
            since_ns: arguments.since,
            until_ns: arguments.until,
            filters: arguments.filter.clone(),
        },
        keeps_samples: !arguments.no_samples,
        most_listed: arguments.classes as usize,
        threads: workers(arguments),
        ..DigestOptions::default()
    }
}

fn inputs(arguments: &DigestArguments) -> Vec<String> {
    match &arguments.interface {
        Some(interface) => vec![format!("interface {interface}")],
        None => arguments.files.iter().map(|path| name_of(std::slice::from_ref(path))).collect(),
    }
}

fn workers(arguments: &DigestArguments) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    arguments.workers.unwrap_or(cores).clamp(1, MOST_WORKERS)
}

/// One digest a worker, each with its part of the coverage.
fn read(
    group: &[PathBuf],
    arguments: &DigestArguments,
    options: &DigestOptions,
) -> anyhow::Result<Vec<(Digest, Coverage)>> {
    if let [path] = group
        && !arguments.follow
        && input::is_plain(path).with_context(|| name_of(group))?
        && sources::kind(path)? == Kind::SlowLog
    {
        if let Some(expected) = arguments.expected {
            expected.check(Kind::SlowLog, &name_of(group))?;
        }
        return slow_log::read_parallel(path, workers(arguments), || Digest::new(options));
    }
    let mut digest = Digest::new(options);
    let coverage = read_group(group, &source_options(arguments), &mut digest)?;
    Ok(vec![(digest, coverage)])
}

/// Digests what passes, until it is stopped or would cost the host too much; the latter is an error that leaves what
/// was seen until then.
fn capture_on(
    name: &str,
    arguments: &DigestArguments,
    sink: &mut dyn Sink,
) -> anyhow::Result<(Coverage, Result<(), AgentError>)> {
    let options = CaptureOptions {
        interface: (name != "any").then(|| name.to_owned()),
        packets: PacketOptions::on(&arguments.ports),
        ..CaptureOptions::default()
    };
    let wire = WireOptions { name: format!("interface {name}"), ..WireOptions::default() };
    let mut decoder = Decoder::with_options(|event: &Event<'_>| sink.event(event), wire);
    let captured = capture::capture(&options, &StopSignal::install()?, &mut decoder)?;
    let mut coverage = captured.coverage;
    coverage.merge(&decoder.finish()?);
    Ok((coverage, captured.ended.as_asked(name)))
}

fn source_options(arguments: &DigestArguments) -> SourceOptions {
    SourceOptions {
        follow: arguments.follow,
        ports: arguments.ports.clone(),
        expected: arguments.expected,
        ..SourceOptions::default()
    }
}

/// The digest of the interval that runs.
struct Current<'a>(&'a Mutex<Digest>);

impl Sink for Current<'_> {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).event(event)
    }

    fn transaction(&mut self, transaction: &Transaction<'_>) -> anyhow::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).transaction(transaction)
    }

    fn log(&mut self, log: &Log) -> anyhow::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).log(log)
    }
}

/// A digest an interval, while one thread reads. What was covered is known at the end, and is in the last one.
fn run_every(
    arguments: &DigestArguments,
    options: &DigestOptions,
    every: Duration,
    out: &mut Out,
) -> anyhow::Result<()> {
    if every < Duration::from_millis(100) {
        return Err(AgentError::Input("--every must be at least 100ms".to_owned()).into());
    }
    let current = Mutex::new(Digest::new(options));
    let take = || {
        std::mem::replace(&mut *current.lock().unwrap_or_else(PoisonError::into_inner), Digest::new(options))
    };
    let mut source = Source { inputs: inputs(arguments), ..Source::default() };
    let (done, is_done) = channel::<()>();
    let (coverage, ended) = std::thread::scope(|scope| -> anyhow::Result<_> {
        let reader = scope.spawn(|| {
            // Dropped when the reading is over, however it ended.
            let _done = done;
            let mut coverage = Coverage::default();
            let mut sink = Current(&current);
            if let Some(interface) = &arguments.interface {
                return capture_on(interface, arguments, &mut sink);
            }
            for group in &grouped(&arguments.files, arguments.follow, &mut coverage) {
                coverage.merge(&read_group(group, &source_options(arguments), &mut sink)?);
            }
            Ok((coverage, Ok(())))
        });
        let mut next = Instant::now() + every;
        while let Err(RecvTimeoutError::Timeout) =
            is_done.recv_timeout(next.saturating_duration_since(Instant::now()))
        {
            next += every;
            write(&mut take(), &source, arguments, out)?;
        }
        reader.join().map_err(|_| anyhow::anyhow!("the reader of the input broke down"))?
    })?;
    source.coverage = coverage;
    write(&mut take(), &source, arguments, out)?;
    out.finish()?;
    Ok(ended?)
}

fn write(
    digest: &mut Digest,
    source: &Source,
    arguments: &DigestArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    match arguments.format {
        Format::Lines => digest.write_lines(source, out),
        Format::Table => {
            let columns =
                rustix::termios::tcgetwinsize(io::stdout()).map_or(160, |size| usize::from(size.ws_col));
            let table = digest.table(source, arguments.top, columns.clamp(100, 1000));
            Ok(out.write_all(table.as_bytes()).and_then(|()| out.flush())?)
        }
    }
}

/// Where the digest goes.
enum Out {
    Plain(BufWriter<Box<dyn Write>>),
    Zstd(Box<zstd::Encoder<'static, File>>),
}

impl Out {
    fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Out::Plain(BufWriter::new(Box::new(io::stdout())))) };
        let file = create(path, 0o600).map_err(|error| AgentError::unwritable(path, error))?;
        if path.extension().is_some_and(|extension| extension == "zst") {
            return Ok(Out::Zstd(Box::new(zstd::Encoder::new(file, 3)?)));
        }
        Ok(Out::Plain(BufWriter::new(Box::new(file))))
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        match self {
            Out::Plain(writer) => writer.flush()?,
            Out::Zstd(encoder) => encoder.do_finish()?,
        }
        Ok(())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Out::Plain(writer) => writer.write(bytes),
            Out::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Out::Plain(writer) => writer.flush(),
            Out::Zstd(encoder) => encoder.flush(),
        }
    }
}
