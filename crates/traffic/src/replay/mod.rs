//! Replay: what a recording says clients sent is sent again, and the answers are compared.
//!
//! `dispatch` turns events into what sessions send, under one cap of memory (`queue`); `timeline` says when,
//! `order` who has to wait for whom; `session` plays one session on the driver's engine; `play` has the threads,
//! `results` and `stats` what comes out.

mod accounts;
mod answers;
mod classes;
mod dispatch;
mod kills;
mod limits;
mod order;
mod play;
mod queue;
mod rate;
mod refusals;
mod results;
mod session;
mod stats;
mod timeline;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mysql_common::constants::CapabilityFlags;

use self::accounts::Accounts;
use self::answers::{AnswerWriter, RecordedAnswers, Scope};
use self::dispatch::Plan;
use self::limits::{Asked, Limits};
use self::play::Replay;
use self::queue::Request;
use self::refusals::Refusal;
use self::results::Verdict;
use self::timeline::Speed;
use crate::recording::{Info, Reader};
use base::duration::parse_duration;
use base::error::AgentError;
use engine::net::Address;
use mysql::{Connection, ServerArguments};

/// What the process takes beside its queues: the recording's blocks, histograms, buffers of connections.
const BASE_BYTES: usize = 96 << 20;
const SMALLEST_QUEUES: usize = 8 << 20;

#[derive(Args)]
pub struct ReplayArguments {
    /// The recording, made with literals
    recording: PathBuf,
    /// Write to this file instead of standard output, compressed if it ends in .zst
    #[arg(long)]
    output: Option<PathBuf>,
    /// Show how far it is on standard error, also where that is not a terminal
    #[arg(long)]
    progress: bool,
    /// So many times as fast as recorded, or max: each session as fast as the server answers it
    #[arg(long, default_value = "1", value_name = "FACTOR")]
    speed: Speed,
    /// Shorten stretches in which nothing was at work to this length
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    skip_idle: Option<Duration>,
    /// Play each session so often at once, on connections of its own: x4
    #[arg(long, default_value = "x1", value_parser = parse_copies, value_name = "xN")]
    sessions: u32,
    /// Copies of a session may write: they collide with each other
    #[arg(long)]
    scale_writes: bool,
    /// A statement that writes waits for all that were recorded to have ended before it began
    #[arg(long)]
    commit_order: bool,
    /// Leave out statements that do more than read
    #[arg(long)]
    read_only: bool,
    /// Begin here: ns since 1970, or a time after the recording's beginning such as +30s
    #[arg(long, value_name = "TIME")]
    since: Option<Instant>,
    /// End here, as --since
    #[arg(long, value_name = "TIME")]
    until: Option<Instant>,
    /// The most memory that the process may take, in MB
    #[arg(long, default_value = "200MB", value_parser = parse_megabytes, value_name = "SIZE")]
    memory: usize,
    /// Compare rows, checksums, errors and warnings with the recording
    #[arg(long)]
    check: bool,
    /// Keep this server's answers in a new file, for --answers
    #[arg(long, value_name = "FILE")]
    keep_answers: Option<PathBuf>,
    /// Compare with the answers that another server gave to the same replay, and not with the recorded ones
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    answers: Option<PathBuf>,
    /// Play what was sent to database A in database B
    #[arg(long, value_parser = parse_pair, value_name = "A=B")]
    database_map: Vec<(String, String)>,
    /// File of accounts, readable by its owner only: a section [USER] for each recorded user, with user and password
    #[arg(long, value_name = "FILE")]
    user_map: Option<PathBuf>,
    /// Count rows that an UPDATE found, not those it changed, as JDBC and others ask the server to
    #[arg(long)]
    found_rows: bool,
    /// What is sent in the first part of the replay is not counted
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "TIME")]
    warmup: Duration,
    /// End so long after the warm-up, however much is left [default: at the recording's end]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// A statement that takes longer fails, and its connection with it
    #[arg(long, default_value = "10m", value_parser = parse_duration, value_name = "TIME")]
    timeout: Duration,
    /// The replay is invalid where 1% of the statements are sent later than this, also if the server is to blame
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    max_lag: Option<Duration>,
    /// Threads that play [default: one for most cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    server: ServerArguments,
}

/// A time of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instant {
    Absolute(u64),
    AfterBegin(Duration),
}

impl std::str::FromStr for Instant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('+') {
            Some(duration) => parse_duration(duration).map(Instant::AfterBegin),
            None => text.parse().map(Instant::Absolute).map_err(|_| "ns since 1970, or +TIME".to_owned()),
        }
    }
}

impl Instant {
    fn ns(self, first_ns: u64) -> u64 {
        match self {
            Instant::Absolute(ns) => ns,
            Instant::AfterBegin(after) => first_ns.saturating_add(after.as_nanos() as u64),
        }
    }
}

fn parse_copies(text: &str) -> Result<u32, String> {
    let copies = text.strip_prefix('x').unwrap_or(text).parse();
    copies.ok().filter(|copies| (1..=1_000).contains(copies)).ok_or_else(|| "x1 to x1000".to_owned())
}

fn parse_megabytes(text: &str) -> Result<usize, String> {
    let number = text.strip_suffix("MB").unwrap_or(text).parse::<usize>();
    match number {
        Ok(number) if (104..=1_000_000).contains(&number) => Ok(number * 1_000_000),
        _ => Err("from 104MB".to_owned()),
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.to_owned(), to.to_owned())),
        _ => Err("two names with = between them".to_owned()),
    }
}

/// From here on an allocation is mapped on its own, in bytes.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 128 << 10;

/// Long statements are made by the reader and freed by those who play, in another order. glibc raises its limit for
/// mapped allocations with each that is freed, and then they leave holes that nothing else fills: 320 MB of memory
/// for 190 MB of statements.
fn map_long_statements() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a parameter of the allocator; no other thread of ours runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

/// The recording, if it can be replayed as the arguments say.
fn open_checked(arguments: &ReplayArguments) -> anyhow::Result<Reader> {
    if arguments.sessions > 1 && !arguments.read_only && !arguments.scale_writes {
        let message = "copies of a session write the same rows: they wait for each other and collide where the \
                       recorded ones did not. Give --read-only, or --scale-writes if that is meant";
        return Err(AgentError::Input(message.to_owned()).into());
    }
    let reader = Reader::open(&arguments.recording)?;
    if let Some(info) = reader.info().iter().find(|info| !info.with_literals) {
        let message = format!(
            "{} was made without literals (part {}): its statements have no values to send. Record again with \
             --with-literals",
            arguments.recording.display(),
            info.segment
        );
        return Err(AgentError::Named(message).into());
    }
    Ok(reader)
}

pub fn run(arguments: &ReplayArguments) -> anyhow::Result<()> {
    map_long_statements();
    let mut reader = open_checked(arguments)?;
    let Some((first_ns, last_ns)) = reader.span_ns() else {
        return Err(AgentError::Named(format!("{} has no events", arguments.recording.display())).into());
    };
    let since_ns = arguments.since.map_or(0, |since| since.ns(first_ns));
    let until_ns = arguments.until.map_or(u64::MAX, |until| until.ns(first_ns));
    let span_ns = last_ns.min(until_ns).saturating_sub(first_ns.max(since_ns));
    if since_ns > 0 {
        reader.seek(since_ns);
    }
    let scope = Scope { first_ns, last_ns, since_ns, until_ns };
    let answers = arguments.answers.as_deref().map(|path| RecordedAnswers::open(path, scope)).transpose()?;
    let missing = || AgentError::Input("no server: give --mysql-socket or --mysql-host".to_owned());
    let options = arguments.server.options(arguments.timeout)?.ok_or_else(missing)?;
    let accounts = Accounts::read(options, arguments.user_map.as_deref())?;
    let Server { max_allowed_packet, can_bulk, doubts } = ask_server(arguments, &accounts, reader.info())?;
    let answer_writer =
        arguments.keep_answers.as_deref().map(|path| AnswerWriter::create(path, scope)).transpose()?;
    let is_checked = arguments.check || answers.is_some();
    let mut capabilities = CapabilityFlags::CLIENT_MULTI_STATEMENTS;
    capabilities.set(CapabilityFlags::CLIENT_FOUND_ROWS, arguments.found_rows);
    let map =
        arguments.database_map.iter().map(|(from, to)| (from.clone().into_bytes(), to.clone().into_bytes()));
    let replay = Replay {
        plan: Plan {
            speed: arguments.speed,
            longest_idle_ns: arguments.skip_idle.map(|idle| idle.as_nanos() as u64),
            copies: arguments.sessions,
            is_read_only: arguments.read_only,
            keeps_commit_order: arguments.commit_order,
            can_bulk,
            since_ns,
            until_ns,
            databases: map.collect::<HashMap<_, _>>(),
        },
        address: Address::found(&accounts.options[0].endpoint)?,
        accounts: &accounts,
        threads: arguments.threads.unwrap_or_else(default_threads).max(1),
        warmup_ns: arguments.warmup.as_nanos() as u64,
        duration_ns: arguments.duration.map(|length| length.as_nanos() as u64),
        timeout_ns: arguments.timeout.as_nanos() as u64,
        queue_bytes: arguments.memory.saturating_sub(BASE_BYTES).max(SMALLEST_QUEUES),
        is_checked,
        answers: answers.as_ref(),
        answer_writer: answer_writer.as_ref(),
        capabilities,
        max_allowed_packet: usize::try_from(max_allowed_packet).unwrap_or(usize::MAX),
        doubts,
        planned_ns: planned_ns(arguments, span_ns),
        rate: rate_ops_s(arguments, &reader, (since_ns, until_ns), span_ns),
        verdict: Verdict {
            max_lag_ns: arguments.max_lag.map(|lag| lag.as_nanos() as u64),
            is_checked,
            has_database: accounts.options[0].database.is_some(),
            has_schedule: arguments.speed != Speed::Max,
            hurries: hurries(arguments),
            began_ns: first_ns,
            position: reader.info().first().and_then(|info| info.position.clone()),
        },
        shows_progress: arguments.progress,
    };
    play::run(&replay, &mut reader, arguments.output.as_deref())?;
    answer_writer.map_or(Ok(()), AnswerWriter::finish)
}

/// What the replay must know of the server.
struct Server {
    max_allowed_packet: u64,
    can_bulk: bool,
    doubts: Vec<String>,
}

/// Logs in with each account, and asks for limits and databases.
///
/// # Errors
/// The server refuses one of them.
fn ask_server(arguments: &ReplayArguments, accounts: &Accounts, infos: &[Info]) -> anyhow::Result<Server> {
    let asked = Asked::of(infos, arguments.sessions);
    let mut found = Server { max_allowed_packet: u64::MAX, can_bulk: false, doubts: Vec::new() };
    for account in &accounts.options {
        let refused =
            |error: mysql::Error| match Refusal::of_login(&error, &account.user, account.database.as_deref())
            {
                Some(refusal) => refusal.into(),
                None => anyhow::Error::from(error),
            };
        let mut connection = Connection::open(account).map_err(refused)?;
        // An account with an expired password, or without queries left this hour, logs in and is refused here.
        let limits = Limits::ask(&mut connection).map_err(refused)?;
        (found.max_allowed_packet, found.doubts) = (limits.max_allowed_packet, limits.doubts(asked));
        found.can_bulk = connection.can_bulk();
        if arguments.user_map.is_none() {
            found.doubts.extend(needs_databases(arguments, infos, &mut connection, &account.user)?);
        }
    }
    Ok(found)
}

/// Asks for each database of the recording before anything is sent. The words about those that the server refuses, where
/// the replay may never come to them.
///
/// # Errors
/// The server refuses one of the databases, and the whole recording is played.
fn needs_databases(
    arguments: &ReplayArguments,
    infos: &[Info],
    connection: &mut Connection,
    user: &str,
) -> anyhow::Result<Option<String>> {
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in
        infos.iter().filter_map(|info| info.totals.as_ref()).flat_map(|all| all.databases.names())
    {
        *names.entry(name).or_default() += count;
    }
    let mut refusals = Vec::new();
    for &recorded in names.keys() {
        let pair = arguments.database_map.iter().find(|(from, _)| from == recorded);
        let name = pair.map_or(recorded, |(_, to)| to.as_str());
        if let Err(error) = connection.execute(&format!("USE `{}`", name.replace('`', "``"))) {
            let request = Request::InitDb(name.as_bytes().into());
            match Refusal::of_answer(&error, &request, user) {
                Some(refusal) => refusals.push((recorded, refusal)),
                None => return Err(error.into()),
            }
        }
    }
    let Some((_, first)) = refusals.first() else { return Ok(None) };
    let missing: Vec<&str> = refusals.iter().map(|(name, _)| *name).collect();
    let listed: Vec<String> = names.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let is_part = arguments.since.is_some() || arguments.until.is_some() || arguments.duration.is_some();
    let consequence = match is_part {
        true => "which ends the replay where a session needs it",
        false => "so nothing was sent",
    };
    let words = format!(
        "{}. The recording's databases, with their events: {}; refused: {}",
        first.with(consequence).replace("RECORDED=", &format!("{}=", missing[0])),
        listed.join(", "),
        missing.join(", ")
    );
    if is_part { Ok(Some(words)) } else { Err(AgentError::Unreachable(words).into()) }
}

/// What makes sessions late whatever the server does, in words; None for a replay as it was recorded.
fn hurries(arguments: &ReplayArguments) -> Option<String> {
    match arguments.speed {
        Speed::Factor(factor) if factor > 1.0 => {
            Some(format!("a session has no time for its statements at {factor} times the speed"))
        }
        _ => arguments.commit_order.then(|| "statements waited for the commits of other sessions".to_owned()),
    }
}

/// Events a second in the busiest second, and on average; None as fast as possible.
fn rate_ops_s(
    arguments: &ReplayArguments,
    reader: &Reader,
    range_ns: (u64, u64),
    span_ns: u64,
) -> Option<(f64, f64)> {
    let Speed::Factor(factor) = arguments.speed else { return None };
    // A second of the replay is so much of the recording.
    let (peak, total) = rate::busiest(reader.event_blocks(), range_ns, (factor * 1e9) as u64);
    let copies = f64::from(arguments.sessions);
    Some((copies * peak, copies * total * factor / (span_ns as f64 / 1e9).max(1.0)))
}

/// How long it will take where the server is as fast as the recorded one, in ns.
fn planned_ns(arguments: &ReplayArguments, span_ns: u64) -> u64 {
    let whole_ns = match arguments.speed {
        Speed::Factor(factor) => (span_ns as f64 / factor) as u64,
        Speed::Max => span_ns,
    };
    let wanted = arguments.duration.map(|length| (arguments.warmup + length).as_nanos() as u64);
    whole_ns.min(wanted.unwrap_or(u64::MAX))
}

/// One core is left to the reader and the server.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).saturating_sub(1).clamp(1, 8)
}
