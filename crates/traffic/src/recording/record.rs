//! `headrace-agent record`: any sources into one recording, until they end, a limit is reached, or it is stopped.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::again::Again;
use super::edit::{apart, refuse_same_file};
use super::info::{Info, Totals};
use super::place;
use super::position::{self, Position};
use super::reader::Reader;
use super::standing;
use super::writer::{Writer, WriterOptions};
use crate::capture::{self, CaptureOptions, Limits};
use crate::coverage::Coverage;
use crate::event::{Event, Sink};
use crate::guard::{self, Pulse};
use crate::packets::PacketOptions;
use crate::repeats::{Repeats, Seen};
use crate::sources::SourceOptions;
use crate::sources::together::{grouped, name_of, read_group};
use crate::wire::{Decoder, Known, WireOptions};
use base::door;
use base::duration::parse_duration;
use base::error::AgentError;
use base::output::print_line;
use base::stop::StopSignal;
use mysql::ServerArguments;

#[derive(Args)]
pub struct RecordArguments {
    /// Captures, slow logs, general logs or recordings, compressed or not; - for a pipe (tcpdump -w -)
    #[arg(value_name = "SOURCE", required_unless_present = "interface")]
    sources: Vec<PathBuf>,
    /// Capture packets of this interface; any for all of them (needs root, or CAP_NET_RAW)
    #[arg(long, value_name = "NAME", conflicts_with = "sources")]
    interface: Option<String>,
    /// The recording (docs/reference/recording-format.md); it is readable by you alone
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Go on at the end of FILE
    #[arg(long, conflicts_with = "force")]
    append: bool,
    /// Write over a FILE that is there
    #[arg(long)]
    force: bool,
    /// Keep statements with their values, which a replay needs; passwords are removed all the same
    #[arg(long)]
    with_literals: bool,
    /// Wait for more at the end of a source, through rotation, until stopped
    #[arg(long)]
    follow: bool,
    /// Port of a server in captured packets, can be given more than once [default: 3306; in files, if nothing is of that
    /// port, the first on which a server of MySQL greets]
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<u16>,
    /// Stop a capture that needs more of one core than this for seconds, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    max_cpu: u32,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Stop when the recording has this many MiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    size: Option<u64>,
    /// Every so often, one JSON line on standard error
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    progress: Option<Duration>,
    #[command(flatten)]
    server: ServerArguments,
}

/// What the reading side and the clock share.
struct Shared {
    writer: Mutex<Option<Writer>>,
    /// Somebody or a limit says that it is enough.
    is_over: AtomicBool,
    /// What waited could not be written.
    failure: Mutex<Option<anyhow::Error>>,
    sessions_from: AtomicU64,
    pulse: Arc<Pulse>,
}

impl Shared {
    /// Writes an event of one of several sources.
    fn keep(&self, event: &Event<'_>, index: usize, count: usize) -> anyhow::Result<()> {
        let from = self.sessions_from.load(Ordering::Relaxed);
        let session = apart(event.session, index, count).wrapping_add(from);
        self.pulse.beat();
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match writer.as_mut() {
            // Numbers of several servers would be taken for each other's.
            Some(writer) => {
                let connection = event.connection.filter(|_| count == 1);
                writer.event(&Event { session, connection, ..event.clone() })
            }
            None => Err(Stopped.into()),
        }
    }
}

/// Ends the reading of a source that does not listen to signals.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct Stopped;

/// Records; prints one JSON object at the end.
///
/// # Errors
/// A source cannot be read, or the file cannot be written.
pub fn run(arguments: &RecordArguments) -> anyhow::Result<()> {
    refuse_same_file(&arguments.output, &arguments.sources)?;
    // Before the file is there: from now on a signal ends it well.
    let stop = StopSignal::install()?;
    let is_new = !(arguments.append && arguments.output.exists());
    // Refused before a server is asked.
    let sessions_from = if is_new {
        place::check(&arguments.output, arguments.force)?;
        0
    } else {
        sessions_end(&arguments.output)?
    };
    let server = position::connect(&arguments.server)?;
    if server.is_some() && arguments.interface.is_none() {
        let message =
            "a position is of now, and a file's events are older: name a server only with --interface";
        return Err(AgentError::Input(message.to_owned()).into());
    }
    let (position, known) = match server {
        Some(mut server) => (Some(position::ask(&mut server)), standing::ask(&mut server)),
        None => (None, Known::default()),
    };
    let writer = open(arguments, is_new, position.clone())?;
    let result = record(arguments, writer, sessions_from, &stop, (position.as_ref(), known));
    let is_empty = || !Reader::open(&arguments.output).is_ok_and(|reader| reader.span_ns().is_some());
    if result.is_err() && is_new && is_empty() {
        // There is nothing to keep, and what is there would stand in the way of the next attempt.
        let _ = door::Held::of(&arguments.output).and_then(|held| std::fs::remove_file(held.path()));
    }
    result
}

fn open(arguments: &RecordArguments, is_new: bool, position: Option<Position>) -> anyhow::Result<Writer> {
    let files = arguments.sources.iter().map(|path| path.display().to_string());
    let interface = arguments.interface.iter().map(|name| format!("interface {name}"));
    let info = Info { sources: files.chain(interface).collect(), position, ..Info::of_this_host() };
    let options = WriterOptions {
        with_literals: arguments.with_literals,
        force: arguments.force,
        info,
        ..WriterOptions::default()
    };
    if is_new {
        return Writer::create(&arguments.output, &options);
    }
    Writer::append(&arguments.output, &options)
}

fn record(
    arguments: &RecordArguments,
    writer: Writer,
    sessions_from: u64,
    stop: &StopSignal,
    (position, known): (Option<&Position>, Known),
) -> anyhow::Result<()> {
    let shared = Shared {
        writer: Mutex::new(Some(writer)),
        is_over: AtomicBool::new(false),
        failure: Mutex::new(None),
        sessions_from: AtomicU64::new(sessions_from),
        pulse: Arc::default(),
    };
    let began = Instant::now();
    let (done, is_done) = channel::<()>();
    let (coverage, failure) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let _done = done;
            match &arguments.interface {
                Some(name) => capture_all(name, known, arguments, &shared, stop),
                None => read_all(arguments, &shared),
            }
        });
        watch(arguments, &shared, stop, &is_done);
        reader.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the reader of a source panicked")))
    })?;
    let unwritten = shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    let writer = shared.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Some(writer) = writer else {
        anyhow::bail!("the recording is gone");
    };
    let totals = writer.finish(&coverage)?;
    print_line(summary(arguments, &totals, began.elapsed(), position)?)?;
    unwritten.or(failure).map_or(Ok(()), Err)
}

/// Reads source after source. An error of one is given back beside what was covered until then: what was recorded
/// is finished all the same.
fn read_all(
    arguments: &RecordArguments,
    shared: &Shared,
) -> anyhow::Result<(Coverage, Option<anyhow::Error>)> {
    let mut coverage = Coverage::default();
    let groups = grouped(&arguments.sources, arguments.follow, &mut coverage);
    let mut repeats = Repeats::default();
    for (index, group) in groups.iter().enumerate() {
        if shared.is_over.load(Ordering::Relaxed) {
            break;
        }
        if let Some(writer) = shared.writer.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            writer.begin_source();
        }
        let (name, is_pipe) = (name_of(group), group[0].as_os_str() == "-");
        let options = SourceOptions {
            // A pipe ends well only if it listens to signals.
            follow: arguments.follow || is_pipe,
            ports: arguments.ports.clone(),
            checksum: arguments.with_literals,
            state: true,
            ..SourceOptions::default()
        };
        let mut events = 0;
        let (mut again, mut seen) = (Again::default(), Seen::new(groups.len() > 1));
        let mut keep = |event: &Event<'_>| shared.keep(event, index, groups.len());
        let mut sink = |event: &Event<'_>| {
            if shared.is_over.load(Ordering::Relaxed) && !options.follow {
                return Err(Stopped.into());
            }
            events += 1;
            seen.event(event);
            again.take(event, &mut keep)
        };
        let read = read_group(group, &options, &mut sink);
        let finished = again.finish(&mut keep);
        again.say(&name, &mut coverage);
        repeats.next(&name, seen, false, &mut coverage);
        match read.and_then(|read| finished.map(|()| read)) {
            Ok(read) => coverage.merge(&read),
            Err(error) => {
                coverage.events += events;
                coverage.damage(&name, 0, events, format!("reading ended here: {error:#}"));
                if error.downcast_ref::<Stopped>().is_none() {
                    return Ok((coverage, Some(error)));
                }
            }
        }
    }
    let inputs: Vec<_> = arguments.sources.iter().map(|path| path.display().to_string()).collect();
    let named = |why| AgentError::Named(format!("{}: {why}", inputs.join(", "))).into();
    let unreadable = coverage.unreadable().map(named);
    Ok((coverage, unreadable))
}

/// Captures until it is stopped or a limit is reached. What was seen by then is kept in both cases.
fn capture_all(
    name: &str,
    known: Known,
    arguments: &RecordArguments,
    shared: &Shared,
    stop: &StopSignal,
) -> anyhow::Result<(Coverage, Option<anyhow::Error>)> {
    let wire = WireOptions {
        checksum: arguments.with_literals,
        name: name.to_owned(),
        known,
        ..WireOptions::default()
    };
    let mut decoder = Decoder::with_options(|event: &Event<'_>| shared.keep(event, 0, 1), wire);
    let options = CaptureOptions {
        interface: (name != "any").then(|| name.to_owned()),
        packets: PacketOptions::on(&arguments.ports),
        limits: Limits { max_cpu_share: f64::from(arguments.max_cpu) / 100.0, ..Limits::default() },
        pulse: shared.pulse.clone(),
        ..CaptureOptions::default()
    };
    let captured = capture::capture(&options, stop, &mut decoder)?;
    let mut coverage = captured.coverage;
    coverage.merge(&decoder.finish()?);
    Ok((coverage, captured.ended.as_asked(name).err().map(anyhow::Error::from)))
}

/// Looks at limits and signals, writes what has waited, and says how it goes, until the reading is over. It never waits
/// for the reading, which may hold the writer for as long as it likes.
fn watch(
    arguments: &RecordArguments,
    shared: &Shared,
    stop: &StopSignal,
    is_done: &std::sync::mpsc::Receiver<()>,
) {
    let began = Instant::now();
    let mut said = began;
    let (mut events, mut bytes, mut events_said) = (0, 0, 0);
    guard::watch(is_done, &shared.pulse, || {
        (events, bytes) = tick(shared).unwrap_or((events, bytes));
        let has_failed = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let reason = if has_failed {
            Some("the recording could not be written")
        } else if arguments.duration.is_some_and(|limit| began.elapsed() >= limit) {
            Some("its time was over")
        } else if arguments.size.is_some_and(|mib| bytes >= mib << 20) {
            Some("the recording was as large as it was to be")
        } else {
            stop.is_set().then_some("it was asked to stop")
        };
        if reason.is_some() && !shared.is_over.swap(true, Ordering::Relaxed) {
            // Whatever waits for its next bytes listens to this.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
        }
        if let Some(interval) = arguments.progress
            && said.elapsed() >= interval
        {
            // Nobody may be there to read it any more: that is not a reason to end the recording.
            let line = progress(began.elapsed(), said.elapsed(), events, events - events_said, bytes);
            let _ = writeln!(std::io::stderr(), "{line}");
            (said, events_said) = (Instant::now(), events);
        }
        reason
    });
}

/// Writes buffered events; returns events and bytes so far, or None while the reader holds the writer.
fn tick(shared: &Shared) -> Option<(u64, u64)> {
    let mut writer = match shared.writer.try_lock() {
        Ok(writer) => writer,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    let writer = writer.as_mut()?;
    if let Err(error) = writer.tick() {
        *shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
    Some((writer.totals().events, writer.bytes()))
}

/// CPU time of this process so far: what recording costs its host.
#[allow(clippy::cast_precision_loss)]
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    ((time.tv_sec as f64 + time.tv_nsec as f64 / 1e9) * 1000.0).round() / 1000.0
}

#[allow(clippy::cast_precision_loss)]
fn progress(elapsed: Duration, interval: Duration, events: u64, new: u64, bytes: u64) -> Value {
    let per_second = (new as f64 / interval.as_secs_f64()).round();
    let t_s = (elapsed.as_secs_f64() * 10.0).round() / 10.0;
    json!({"t_s": t_s, "events": events, "events_per_s": per_second, "bytes": bytes, "cpu_s": cpu_s()})
}

fn summary(
    arguments: &RecordArguments,
    totals: &Totals,
    elapsed: Duration,
    position: Option<&Position>,
) -> anyhow::Result<Value> {
    let bytes = door::length(&arguments.output)?;
    #[allow(clippy::cast_precision_loss)]
    let per_event =
        (totals.events > 0).then(|| (bytes as f64 / totals.events as f64 * 100.0).round() / 100.0);
    Ok(json!({
        "file": arguments.output.display().to_string(),
        "bytes": bytes,
        "bytes_per_event": per_event,
        "cpu_s": cpu_s(),
        "duration_s": (elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
        "with_literals": arguments.with_literals,
        "totals": totals,
        "position": position,
    }))
}

/// The first number that no session of a recording has: a capture counts them from the beginning each time.
fn sessions_end(path: &std::path::Path) -> anyhow::Result<u64> {
    let mut reader = Reader::open(path)?;
    let mut end = 0;
    while let Some(event) = reader.next()? {
        end = end.max(event.session.saturating_add(1));
    }
    if end == u64::MAX {
        let reason = format!("{}: its sessions have no numbers that can be counted on", path.display());
        return Err(AgentError::Refused(reason).into());
    }
    Ok(end)
}
