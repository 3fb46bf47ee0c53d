//! `ladder`: the latencies that a database waits for on this machine, from a cache access to a commit.

mod device;
mod network;
mod processor;
mod rung;
mod server;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::meminfo;
use base::error::AgentError;
use base::stop::StopSignal;
use mysql::{Connection, Options, ServerArguments};

use self::rung::{About, Missing, Rung, Summary, summarise};

/// Our statements take longer only if the server is stalled.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest round: a repetition still running at its end must not be its only one.
const SHORTEST_TURN: Duration = Duration::from_millis(5);

#[derive(Args)]
pub struct LadderArguments {
    /// Folder for files of our own, to measure the device below it; they have no name, so nothing is left behind
    #[arg(long, value_name = "FOLDER")]
    file: Option<PathBuf>,
    /// Size of the file that is read and written at random
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..=65536))]
    file_size: u64,
    /// The other end of a network path: how long does a connection take?
    #[arg(long, value_name = "HOST:PORT")]
    target_address: Option<String>,
    /// The other end sends back what it gets (an echo service): measure 2 KB there and back
    #[arg(long, requires = "target_address")]
    target_echoes: bool,
    /// Time for all rungs together, after the preparation
    #[arg(long, value_name = "S", default_value_t = 20.0, value_parser = seconds)]
    seconds: f64,
    /// Rounds; each measures every rung once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(5..=1000))]
    rounds: u32,
    #[command(flatten)]
    server: ServerArguments,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (1.0..=3600.0).contains(seconds))
        .ok_or_else(|| "give a number of seconds from 1 to 3600".to_owned())
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    Start {
        seconds: f64,
        rounds: u32,
        rungs: Vec<&'a str>,
        spoiled_by: Vec<String>,
        memory: Memory,
        server: Option<&'a server::ServerFacts>,
        file_system: Option<&'a str>,
        device: Option<&'a str>,
    },
    Round {
        round: u32,
        left_s: f64,
    },
    Rung {
        #[serde(flatten)]
        about: &'a About,
        #[serde(flatten)]
        summary: Summary,
    },
    Missing(&'a Missing),
    End {
        elapsed_s: f64,
    },
}

#[derive(Default, Serialize)]
struct Memory {
    total_bytes: Option<u64>,
    available_bytes: Option<u64>,
}

impl Memory {
    fn read(root: &Path) -> Self {
        let text = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let value = |wanted| meminfo::parse(&text).find(|(name, _)| *name == wanted).map(|(_, bytes)| bytes);
        Self { total_bytes: value("MemTotal"), available_bytes: value("MemAvailable") }
    }
}

/// Measures, and prints JSON lines: start, one line per round, one per rung, end.
pub fn run(arguments: &LadderArguments) -> anyhow::Result<()> {
    let begun = Instant::now();
    let stop = StopSignal::install()?;
    let mut ladder = Ladder::prepare(arguments, &stop)?;
    let budget = Duration::from_secs_f64(arguments.seconds);
    let place = ladder.place.as_ref();
    write(&Line::Start {
        seconds: arguments.seconds,
        rounds: arguments.rounds,
        rungs: ladder.rungs.iter().map(|rung| rung.about.rung).collect(),
        spoiled_by: processor::spoiled_everywhere(Path::new("/")),
        memory: Memory::read(Path::new("/")),
        server: ladder.server.as_ref(),
        file_system: place.map(|place| place.file_system.as_str()),
        device: place.map(|place| place.source.as_str()),
    })?;
    ladder.measure(budget, arguments.rounds, &stop)?;
    for rung in &ladder.rungs {
        match summarise(&rung.rounds) {
            Some(summary) => write(&Line::Rung { about: &rung.about, summary })?,
            None => ladder
                .missing
                .push(Missing { rung: rung.about.rung, reason: "no repetition ended".to_owned() }),
        }
    }
    for missing in &ladder.missing {
        write(&Line::Missing(missing))?;
    }
    write(&Line::End { elapsed_s: begun.elapsed().as_secs_f64() })
}

fn write(line: &Line<'_>) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&text)?;
    Ok(stdout.flush()?)
}

struct Standing {
    rung: Box<dyn Rung>,
    about: About,
    rounds: Vec<Vec<f64>>,
}

struct Ladder {
    rungs: Vec<Standing>,
    missing: Vec<Missing>,
    place: Option<device::Place>,
    server: Option<server::ServerFacts>,
}

impl Ladder {
    /// What cannot be measured here becomes a line with its reason; only what the user named wrongly is an error.
    fn prepare(arguments: &LadderArguments, stop: &StopSignal) -> anyhow::Result<Self> {
        let place = arguments.file.as_deref().map(device::Place::new).transpose()?;
        let options = arguments.server.options(READ_TIMEOUT)?;
        let (mut rungs, mut missing) = processor::rungs(Path::new("/"));
        network_rungs(arguments, &mut rungs, &mut missing);
        let server = options.and_then(|options| server_rung(&options, &mut rungs, &mut missing));
        if arguments.server.options(READ_TIMEOUT)?.is_none() {
            missing.push(Missing {
                rung: "server",
                reason: "no server named: --mysql-socket or --mysql-host".to_owned(),
            });
        }
        match &place {
            Some(place) => match device::rungs(place, arguments.file_size << 20, stop) {
                Ok((more, less)) => {
                    rungs.extend(more);
                    missing.extend(less);
                }
                Err(error) if error.is::<AgentError>() => return Err(error),
                Err(error) => {
                    let reason = format!("{error:#}");
                    missing.extend(device::RUNGS.map(|rung| Missing { rung, reason: reason.clone() }));
                }
            },
            None => {
                let reason = "no folder named: --file FOLDER, on the device of the data";
                missing.extend(device::RUNGS.map(|rung| Missing { rung, reason: reason.to_owned() }));
            }
        }
        let rungs = rungs
            .into_iter()
            .map(|rung| Standing { about: rung.about(), rung, rounds: Vec::new() })
            .collect();
        Ok(Self { rungs, missing, place, server })
    }

    /// One discarded warm-up round, then the rounds; each measures every rung, in a rotated order, so that no rung
    /// always starts.
    fn measure(&mut self, budget: Duration, rounds: u32, stop: &StopSignal) -> anyhow::Result<()> {
        let turns = f64::from(rounds + 1) * self.rungs.len().max(1) as f64;
        let turn = budget.div_f64(turns).max(SHORTEST_TURN);
        for round in 0..=rounds {
            let count = self.rungs.len();
            let mut failed = Vec::new();
            for step in 0..count {
                if stop.is_set() {
                    anyhow::bail!("stopped before the end; nothing is left behind");
                }
                let index = (step + round as usize) % count;
                let standing = &mut self.rungs[index];
                let mut times = Vec::new();
                if let Err(error) = standing.rung.measure(Instant::now() + turn, &mut times) {
                    failed.push((index, format!("{error:#}")));
                }
                if round > 0 {
                    standing.rounds.push(times);
                }
            }
            failed.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
            for (index, reason) in failed {
                let gone = self.rungs.remove(index);
                self.missing.push(Missing { rung: gone.about.rung, reason });
            }
            let left_s = (turn * self.rungs.len() as u32 * (rounds - round)).as_secs_f64();
            write(&Line::Round { round, left_s })?;
        }
        Ok(())
    }
}

fn network_rungs(arguments: &LadderArguments, rungs: &mut Vec<Box<dyn Rung>>, missing: &mut Vec<Missing>) {
    match network::Echo::loopback() {
        Ok(echo) => rungs.push(Box::new(echo)),
        Err(error) => missing.push(Missing { rung: "loopback_2kb", reason: format!("{error:#}") }),
    }
    match &arguments.target_address {
        Some(address) => match network::to_target(address, arguments.target_echoes) {
            Ok(rung) => rungs.push(rung),
            Err(gone) => missing.push(gone),
        },
        None => missing.push(Missing {
            rung: "network_connect",
            reason: "no other end named: --target-address HOST:PORT".to_owned(),
        }),
    }
}

fn server_rung(
    options: &Options,
    rungs: &mut Vec<Box<dyn Rung>>,
    missing: &mut Vec<Missing>,
) -> Option<server::ServerFacts> {
    match Connection::open(options) {
        Ok(mut connection) => {
            let facts = server::ServerFacts::ask(&mut connection, options);
            rungs.push(Box::new(server::RoundTrip::new(connection, options)));
            Some(facts)
        }
        Err(error) => {
            missing.push(Missing { rung: "server", reason: format!("{}: {error}", options.endpoint) });
            None
        }
    }
}
