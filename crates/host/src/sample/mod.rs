//! `sample`: raw counters of the host and its server every interval, never rates, as lines of JSON.
//!
//! Readers of the lines derive the rates, so that a wrong formula never costs a second run. Every sampler reports
//! its own success and cost; one that fails never stops the others.

mod changes;
pub mod itself;
mod rest;
pub mod sampler;
pub mod selection;
mod server;
pub mod session;
pub mod source;
pub(crate) mod ticker;
pub mod values;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;

use self::rest::Rest;
use self::sampler::{Host, Kind, Missed, Sample, Source};
use self::selection::{FOLLOWED, Listing, Selection};
use self::ticker::{Ticker, elapsed_ns, now_ns};
use self::values::{Values, write_failure};
use base::duration::parse_duration;
use base::lease;
use base::output::Output;
use base::stop::StopSignal;
use mysql::ServerArguments;

#[derive(Args)]
pub struct SampleArguments {
    /// Time between samples: 250ms, 1s, 1m
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Stop after this time (0s: one sample); without it, at SIGTERM or SIGINT
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Also stop when standard input ends, or brings no line for this long: the controller is gone
    #[arg(long, value_parser = lease::parse)]
    lease: Option<Duration>,
    /// Comma-separated samplers; `list` prints them all. Default: all that can run
    #[arg(long)]
    samplers: Option<String>,
    /// Write to this file instead of standard output, compressed if it ends in .zst
    #[arg(long)]
    output: Option<PathBuf>,
    /// Read this folder as the root of the host
    #[arg(long, default_value = "/")]
    root: PathBuf,
    /// Which processes the sampler `process` lists
    #[arg(long, value_enum, default_value_t)]
    processes: Listing,
    /// Comma-separated names of processes to list on every tick
    #[arg(long, default_value = FOLLOWED)]
    follow: String,
    /// Ask the server on every tick, whatever its answers cost it
    #[arg(long)]
    every_tick: bool,
    /// Sample and ask as often as planned and everything, whatever it costs the host and the server
    #[arg(long)]
    thorough: bool,
    /// After a sampler's first line write only the values that changed, as `changed`, until its series change
    #[arg(long)]
    changes: bool,
    #[command(flatten)]
    server: Box<ServerArguments>,
}

/// Samples with those of `all` that the arguments name.
///
/// # Errors
/// If a list names none of `all`, or if the output fails.
pub fn run(arguments: &SampleArguments, all: &[&'static Kind]) -> anyhow::Result<()> {
    if arguments.samplers.as_deref() == Some("list") {
        return list(all, std::io::stdout());
    }
    let server = arguments.server.options(server::READ_TIMEOUT)?;
    let kinds = sampler::select(all, arguments.samplers.as_deref(), server.is_some())?;
    let last_tick = arguments.duration.map_or(u64::MAX, |duration| {
        u64::try_from(duration.as_nanos() / arguments.interval.as_nanos()).unwrap_or(u64::MAX)
    });
    let stop = StopSignal::install()?;
    arguments.lease.map_or(Ok(()), lease::keep)?;
    let output = Arc::new(Output::open(arguments.output.as_deref())?);
    let missed = Missed::default();
    let host = Host {
        root: arguments.root.clone(),
        processes: Selection::new(arguments.processes, &arguments.follow),
        missed: missed.clone(),
    };
    let values = if arguments.changes { Values::of_changes } else { Values::default };
    let server_loop = match server {
        Some(options) if kinds.iter().any(|kind| kind.is_server()) => {
            let ticker = Ticker::start(arguments.interval, last_tick, stop.clone(), missed.server.clone())?;
            let rest = match (arguments.thorough, arguments.every_tick) {
                (true, _) => Rest::thorough,
                (false, true) => Rest::new,
                (false, false) => Rest::of_server,
            };
            let asking = server::Asking {
                rest,
                is_thorough: arguments.thorough,
                missed: missed.clone(),
                interval: arguments.interval,
                values,
            };
            Some(server::spawn(options, &kinds, asking, ticker, stop.clone(), output.clone())?)
        }
        _ => None,
    };
    let ticker = Ticker::start(arguments.interval, last_tick, stop, missed.host)?;
    let rest = if arguments.thorough { Rest::thorough } else { Rest::new };
    let result = sample_host(&kinds, &host, rest, values(), ticker, &output);
    let server_result = server_loop.map_or(Ok(()), server::ServerLoop::finish);
    result.and(server_result).and(output.finish())
}

fn list(all: &[&Kind], mut output: impl std::io::Write) -> anyhow::Result<()> {
    for kind in all {
        writeln!(output, "{:<15} {}", kind.name, kind.doc)?;
    }
    Ok(())
}

/// Samples until the last tick. Fails only if the output does.
fn sample_host(
    kinds: &[&'static Kind],
    host: &Host,
    rest: fn(Duration) -> Rest,
    mut values: Values,
    mut ticker: Ticker,
    output: &Output,
) -> anyhow::Result<()> {
    let mut samplers: Vec<Running> = kinds
        .iter()
        .filter_map(|kind| match kind.source {
            Source::Host(open) => Some(Running::new(kind, open(host), rest(kind.every), host.missed.clone())),
            Source::Server(_) => None,
        })
        .collect();
    let mut lines = Vec::new();
    loop {
        lines.clear();
        for sampler in &mut samplers {
            sampler.tick(&mut values, &mut lines, ticker.is_last());
        }
        output.write(&lines)?;
        if !ticker.wait()? {
            return Ok(());
        }
    }
}

struct Running {
    name: &'static str,
    sampler: Box<dyn Sample>,
    rest: Rest,
    missed: Missed,
}

impl Running {
    fn new(kind: &Kind, sampler: Box<dyn Sample>, rest: Rest, missed: Missed) -> Self {
        Self { name: kind.name, sampler, rest, missed }
    }

    /// Appends the line of this sampler, unless it rests.
    fn tick(&mut self, values: &mut Values, lines: &mut Vec<u8>, is_last: bool) {
        let start = Instant::now();
        if self.rest.is_on(start, is_last) {
            if self.rest.is_spared(start) {
                self.missed.spare(self.name);
            }
            return;
        }
        let time_ns = now_ns();
        let result = self.sampler.sample(values);
        let cost_ns = elapsed_ns(start);
        self.rest.after_sample(start, cost_ns);
        match result {
            Ok(()) => values.write_line(lines, self.name, time_ns, cost_ns),
            Err(error) => {
                values.clear();
                let mut message = format!("{error:#}");
                if is_absent(&error) {
                    message = self.rest.after_absence(start, &message);
                }
                write_failure(lines, self.name, time_ns, cost_ns, &message);
            }
        }
    }
}

/// Whether a host has no such source: the file is missing, or the kernel was booted without the feature.
fn is_absent(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|io| {
        matches!(io.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::Unsupported)
    })
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        // Below this a tick costs more than the time it has.
        interval if interval < Duration::from_millis(10) => Err("the shortest interval is 10ms".to_owned()),
        interval => Ok(interval),
    }
}

#[cfg(test)]
mod tests {
    use super::rest::Rest;
    use super::sampler::{Host, Missed, Source};
    use super::selection::{Listing, Selection};
    use super::values::Values;
    use super::{Running, parse_interval};
    use crate::samplers;
    use proptest::prelude::{ProptestConfig, any, proptest};
    use std::fs;

    const FILES: [&str; 15] = [
        "proc/stat",
        "proc/interrupts",
        "proc/softirqs",
        "proc/net/softnet_stat",
        "proc/diskstats",
        "proc/meminfo",
        "proc/vmstat",
        "proc/pressure/cpu",
        "proc/pressure/memory",
        "proc/pressure/io",
        "proc/net/dev",
        "proc/net/snmp",
        "proc/net/netstat",
        "proc/7/stat",
        "sys/block/md0/md/sync_action",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Two ticks of every sampler on a host whose files are nonsense: each gives a line of JSON.
        #[test]
        fn no_file_can_break_a_sampler(
            text in "((cpu|CPU|Mem|Tcp|some total=|7 \\(|eth0|md0)?[ :()\\n0-9a-fé-]{0,12}){0,30}",
            bytes in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let root = tempfile::tempdir().unwrap();
            for file in FILES {
                let path = root.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, [text.as_bytes(), &bytes].concat()).unwrap();
            }
            let processes = Selection::new(Listing::All, "a");
            let host = Host { root: root.path().to_owned(), processes, missed: Missed::default() };
            let mut lines = Vec::new();
            for kind in samplers() {
                if let Source::Host(open) = kind.source {
                    let mut sampler = Running::new(kind, open(&host), Rest::new(kind.every), Missed::default());
                    for _ in 0..2 {
                        sampler.tick(&mut Values::default(), &mut lines, true);
                    }
                }
            }
            for line in String::from_utf8(lines).unwrap().lines() {
                let record: serde_json::Value = serde_json::from_str(line).unwrap();
                assert!(record["values"].is_object() == record["ok"].as_bool().unwrap(), "{line}");
            }
        }
    }

    #[test]
    fn an_interval_has_a_lower_bound() {
        assert!(parse_interval("9ms").is_err());
        assert!(parse_interval("10ms").is_ok());
    }
}
