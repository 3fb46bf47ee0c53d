//! `drive run`: the threads, the agreed start, and the output.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use serde_json::Map;

use crate::spec::{Pacing, Spec};
use base::clock::{epoch_offset_ns, now_ns};
use base::error::AgentError;
use base::output::Output;
use base::stop::StopSignal;
use engine::arrivals::Think;
use engine::client::{Client, Failure};
use engine::lines::{CLOSED, Lines, ThreadEnd, Title};
use engine::needs::Needs;
use engine::net::Address;
use engine::recorder::Second;
use engine::stopping::{StopsAtEnd, watch};
use engine::usage::Usage;
use engine::{Engine, EngineConfig, Schedule};

const SECOND_NS: f64 = 1e9;
/// Time between the last login and the start, if no start was given.
const START_DELAY_NS: u64 = 10_000_000;
/// How often the stop signal is checked.
const STOP_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Clients per thread before another thread is worth its cost: one thread drives about 100,000 point selects per
/// second, which 32 clients rarely reach.
const CLIENTS_A_THREAD: usize = 32;
/// A closed loop with at most this many clients gets a thread on each core: with a single thread, the other cores wait for
/// it. Measured on 2 cores: 1.9 times the point selects with 2 clients, 1.1 times with 6, no more with 8.
const FEW_CLIENTS: usize = 6;

/// Messages from a thread to the one that writes.
enum Message {
    Connected,
    Refused(Failure),
    Second(Second),
    Ended(Box<ThreadEnd>),
}

/// The load, for any protocol.
pub struct Load<'a, M> {
    pub spec: &'a Spec,
    pub address: Address,
    pub operations: Vec<String>,
    /// Makes the client with this number; clients are counted over all drivers of the trial.
    pub make: M,
    /// What the schedule needs of the cores, where that is known. Asked for once all clients are connected: it may need
    /// connections of its own, and must not take theirs.
    pub needs: &'a (dyn Fn(&AtomicBool) -> Option<Needs> + Sync),
}

/// Drives and writes the lines to `output`, or to standard output.
pub fn run<C: Client, M: Fn(usize) -> C + Sync>(
    load: &Load<'_, M>,
    output: Option<&Path>,
    shows_progress: bool,
) -> anyhow::Result<()> {
    let stop_signal = StopSignal::install()?;
    let stop = AtomicBool::new(false);
    let clients = load.spec.share.clients(load.spec.connections);
    let threads = thread_count(load.spec, clients.len());
    let output = Output::open(output)?;
    std::thread::scope(|scope| {
        let (sender, messages) = channel();
        let mut starts = Vec::new();
        for index in 0..threads {
            let (start, on_start) = channel();
            starts.push(start);
            let part = (index, threads);
            let (sender, stop, clients) = (sender.clone(), &stop, clients.clone());
            scope.spawn(move || {
                let ended = drive_part(load, part, clients, stop, &sender, &on_start);
                // The receiver is gone only if the other side has failed, which reports its own error.
                let _ = sender.send(ended.unwrap_or_else(Message::Refused));
            });
        }
        drop(sender);
        let watched = scope.spawn(|| watch(&stop_signal, &stop));
        let ending = StopsAtEnd(&stop);
        let result = conduct(load, threads, &messages, starts, &output, &stop, shows_progress);
        drop(ending);
        watched.join().map_err(|_| anyhow!("the thread that waits for signals panicked"))?;
        result
    })?;
    output.finish()
}

/// How many threads drive so many clients.
pub fn thread_count(spec: &Spec, clients: usize) -> usize {
    thread_count_of(spec, clients, std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

fn thread_count_of(spec: &Spec, clients: usize, cores: usize) -> usize {
    let wanted = match spec.threads {
        // Not in an open loop: a thread's arrivals cannot use the free clients of another.
        0 if clients <= FEW_CLIENTS && matches!(spec.pacing, Pacing::Closed { .. }) => cores,
        0 => clients.div_ceil(CLIENTS_A_THREAD).min(cores),
        threads => threads,
    };
    wanted.clamp(1, clients)
}

/// One thread's life: connect, wait for the start, drive.
fn drive_part<C: Client, M: Fn(usize) -> C>(
    load: &Load<'_, M>,
    (index, of): (usize, usize),
    clients: std::ops::Range<usize>,
    stop: &AtomicBool,
    sender: &Sender<Message>,
    on_start: &Receiver<Schedule>,
) -> Result<Message, Failure> {
    let spec = load.spec;
    let failure = |error: &dyn std::fmt::Display| Failure::new(0, error.to_string());
    let (think_ns, think) = match spec.pacing {
        Pacing::Closed { think_time_s, think_distribution } => {
            ((think_time_s * SECOND_NS) as u64, think_distribution)
        }
        Pacing::Open { .. } => (0, Think::Constant),
    };
    let config = EngineConfig {
        address: load.address.clone(),
        arrivals: spec.arrivals(index, of).map_err(|e| failure(&e))?,
        is_assigned: false,
        think_ns,
        think,
        timeout_ns: (spec.operation_timeout_s * SECOND_NS) as u64,
        retries: spec.retries,
        operations: load.operations.len(),
        seed: spec.seed,
    };
    let mine = clients.skip(index).step_by(of).map(|number| (number, (load.make)(number)));
    let mut engine = Engine::new(config, mine, stop).map_err(|error| failure(&format!("{error:#}")))?;
    engine.connect_all()?;
    let _ = sender.send(Message::Connected);
    let Ok(schedule) = on_start.recv() else { return Err(failure(&"stopped before the start")) };
    let mut usage = Usage::begin();
    let outcome = engine.drive(schedule, &mut (), |second| {
        // CPU time of the warm-up does not count for the window.
        if second.number == -1 {
            usage = Usage::begin();
        }
        let _ = sender.send(Message::Second(second));
    });
    Ok(Message::Ended(Box::new(ThreadEnd::new(outcome, usage.end()))))
}

/// Waits for the threads, agrees on the start, writes their results.
fn conduct<M>(
    load: &Load<'_, M>,
    threads: usize,
    messages: &Receiver<Message>,
    starts: Vec<Sender<Schedule>>,
    output: &Output,
    stop: &AtomicBool,
    shows_progress: bool,
) -> anyhow::Result<()> {
    for _ in 0..threads {
        match messages.recv() {
            Ok(Message::Connected) => {}
            Ok(Message::Refused(failure)) => {
                stop.store(true, Ordering::Relaxed);
                return Err(explain(&failure, &load.address));
            }
            Ok(_) | Err(_) => bail!("a thread of the driver ended before the start"),
        }
    }
    let needs = (load.needs)(stop);
    let offset_ns = epoch_offset_ns();
    let start_ns = agree_on_start(load.spec, offset_ns, stop)?;
    let window_start_ns = start_ns + (load.spec.warmup_s * SECOND_NS) as u64;
    let end_ns = window_start_ns + (load.spec.seconds * SECOND_NS) as u64;
    let schedule = Schedule { start_ns, window_start_ns, end_ns };
    let title = Title {
        operations: &load.operations,
        threads,
        schedule,
        offset_ns,
        connections: load.spec.share.clients(load.spec.connections).len(),
        pacing: match load.spec.pacing {
            Pacing::Closed { .. } => CLOSED,
            Pacing::Open { .. } => "open",
        },
        has_faster_warmup: load.spec.has_faster_warmup(),
        has_peak_before: load.spec.has_peak_before(),
        needs,
        doubts: &[],
    };
    let mut lines = Lines::begin(output, &title, shows_progress)?;
    for start in starts {
        let _ = start.send(schedule);
    }
    let mut running = threads;
    while running > 0 {
        match messages.recv() {
            Ok(Message::Second(second)) => lines.add(second)?,
            Ok(Message::Ended(end)) => {
                lines.end_thread(*end);
                running -= 1;
            }
            Ok(Message::Refused(failure)) => return Err(explain(&failure, &load.address)),
            Ok(Message::Connected) => {}
            Err(_) => bail!("a thread of the driver panicked"),
        }
    }
    lines.finish(stop.load(Ordering::Relaxed), Map::new())
}

fn explain(failure: &Failure, address: &Address) -> anyhow::Error {
    match failure.code {
        0 => anyhow!("{}", failure.message),
        code => AgentError::Unreachable(format!(
            "cannot connect to {address}: {} (error {code})",
            failure.message
        ))
        .into(),
    }
}

/// The start in ns of the driver's clock.
fn agree_on_start(spec: &Spec, offset_ns: i64, stop: &AtomicBool) -> anyhow::Result<u64> {
    let agreed = if spec.waits_for_start { Some(ask_for_start(stop)?) } else { spec.start_at_ns };
    let Some(at_ns) = agreed else { return Ok(now_ns() + START_DELAY_NS) };
    let start_ns = at_ns.checked_add_signed(-offset_ns).filter(|start| *start >= now_ns());
    start_ns.ok_or_else(|| {
        AgentError::Late(format!("the start, {at_ns} ns since the epoch, was over when all clients stood"))
            .into()
    })
}

/// Reports that all clients are connected, and reads the instant at which every driver of the trial starts.
fn ask_for_start(stop: &AtomicBool) -> anyhow::Result<u64> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Start {
        start_at_ns: u64,
    }
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{{\"kind\":\"ready\"}}").and_then(|()| stdout.flush()).context("cannot say ready")?;
    let mut stdin = std::io::stdin().lock();
    // The stop signal may interrupt the wait itself.
    while let Ok(0) | Err(Errno::INTR) = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&STOP_CHECK)) {
        if stop.load(Ordering::Relaxed) {
            return Err(AgentError::Stopped("stopped before the start".to_owned()).into());
        }
    }
    let mut line = String::new();
    stdin.read_line(&mut line).context("cannot read the start")?;
    let start: Start = serde_json::from_str(&line)
        .map_err(|error| AgentError::Input(format!("the start on standard input: {error}")))?;
    Ok(start.start_at_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_by_clients_and_cores() {
        let threads = |pacing: &str, clients, cores| {
            let text = format!(r#"{{"workload": {{"kind": "oltp"}}, "connections": 1, "pacing": {pacing}}}"#);
            thread_count_of(&serde_json::from_str(&text).unwrap(), clients, cores)
        };
        let closed = |clients, cores| threads(r#"{"kind": "closed"}"#, clients, cores);
        assert_eq!([1, 2, 6, 7, 32, 33, 1000].map(|clients| closed(clients, 4)), [1, 2, 4, 1, 1, 2, 4]);
        assert_eq!([1, 2, 6, 33].map(|clients| closed(clients, 1)), [1, 1, 1, 1]);
        assert_eq!(threads(r#"{"kind": "open", "rate_ops_s": 10}"#, 6, 4), 1);
    }
}
