//! `headrace-agent recording ...`: what is in a recording, and recordings made of others.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::describe;
use super::edit::{self, Edited};
use super::place::Destination;
use super::reader::Reader;
use crate::filter::{Filter, Selection, parse_moment};
use base::error::AgentError;
use sql::{Order, Scheme};

#[derive(Subcommand)]
pub enum RecordingCommand {
    /// Print what is in a recording, as one JSON object
    Info(InfoArguments),
    /// Read every byte of a recording and say what is damaged, as one JSON object
    Verify(VerifyArguments),
    /// Keep a stretch of time, and what its sessions need to be played
    Cut(CutArguments),
    /// Keep what fits all conditions, and what its sessions need to be played
    Filter(FilterArguments),
    /// Make one recording of several, in the order of their starts
    Merge(MergeArguments),
    /// Replace literals, parameters, users and hosts by pseudonyms
    Anonymise(AnonymiseArguments),
}

#[derive(Args)]
pub struct InfoArguments {
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// Only what headers and index tell, whatever the size of the file
    #[arg(long)]
    quick: bool,
}

#[derive(Args)]
pub struct VerifyArguments {
    #[arg(value_name = "FILE")]
    path: PathBuf,
}

#[derive(Args)]
struct OutputArguments {
    /// The new recording
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    force: bool,
}

impl OutputArguments {
    fn destination(&self) -> anyhow::Result<Destination<'_>> {
        Destination::stoppable(&self.output, self.force)
    }
}

#[derive(Args)]
pub struct CutArguments {
    #[arg(value_name = "FILE")]
    path: PathBuf,
    #[command(flatten)]
    output: OutputArguments,
    /// Starts at or after: a moment (UTC, or seconds since 1970), or +30s after the first event
    #[arg(long, value_name = "TIME", default_value = "+0s")]
    since: String,
    /// Starts before: as above
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

#[derive(Args)]
pub struct FilterArguments {
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// Such as user=app, database!=test, text~orders, response>=100ms, error=any, read_only=yes
    #[arg(value_name = "CONDITION", required = true)]
    conditions: Vec<Filter>,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Args)]
pub struct MergeArguments {
    #[arg(value_name = "FILE", required = true, num_args = 1..)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Args)]
pub struct AnonymiseArguments {
    #[arg(value_name = "FILE")]
    path: PathBuf,
    #[command(flatten)]
    output: OutputArguments,
    /// 32 bytes that make the same pseudonyms again; without it, a random key that is not kept
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Comma-separated: pseudonyms of these keep their order, so that ranges select what they did
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',')]
    keep_order: Vec<Ordered>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ordered {
    /// All move by the same number of weeks; times of day stay
    Dates,
    /// With gaps between them; small ones and digits behind the point stay
    Numbers,
}

/// Does what the command says; prints one JSON object.
///
/// # Errors
/// As documented with each; `verify` fails where anything is damaged.
pub fn run(command: &RecordingCommand) -> anyhow::Result<()> {
    match command {
        RecordingCommand::Info(arguments) => {
            base::output::print_line(describe::info(&arguments.path, arguments.quick)?)?;
            Ok(())
        }
        RecordingCommand::Verify(arguments) => verify(&arguments.path),
        RecordingCommand::Cut(arguments) => cut(arguments),
        RecordingCommand::Filter(arguments) => {
            let selection = Selection { filters: arguments.conditions.clone(), ..Selection::default() };
            let output = arguments.output.destination()?;
            let how = format!("filtered by {}", selection.text());
            let mut accepts = selection.acceptor();
            let edited = edit::select(&arguments.path, &output, &how, |event| accepts(event))?;
            say(output.path, &edited)
        }
        RecordingCommand::Merge(arguments) => {
            let output = arguments.output.destination()?;
            say(output.path, &edit::merge(&arguments.paths, &output)?)
        }
        RecordingCommand::Anonymise(arguments) => {
            let keeps = |kind| arguments.keep_order.contains(&kind);
            let order = Order { numbers: keeps(Ordered::Numbers), dates: keeps(Ordered::Dates) };
            let scheme = Scheme { key: super::anonymise::key(arguments.key_file.as_deref())?, order };
            let output = arguments.output.destination()?;
            let edited = super::anonymise::run(&arguments.path, &output, &scheme)?;
            say(output.path, &edited)
        }
    }
}

fn verify(path: &Path) -> anyhow::Result<()> {
    let (found, damage) = describe::verify(path)?;
    base::output::print_line(&found)?;
    if found["is_whole"] == json!(true) {
        return Ok(());
    }
    let places = damage.damaged;
    Err(AgentError::Damaged(format!("{} is damaged in {places} places", path.display())).into())
}

fn cut(arguments: &CutArguments) -> anyhow::Result<()> {
    let first_ns = Reader::open(&arguments.path)?.span_ns().map_or(0, |span| span.0);
    let since_ns = moment(&arguments.since, first_ns)?;
    let until_ns = arguments.until.as_deref().map_or(Ok(u64::MAX), |until| moment(until, first_ns))?;
    if since_ns >= until_ns {
        return Err(AgentError::Input("--since is not before --until".to_owned()).into());
    }
    let output = arguments.output.destination()?;
    let until = arguments.until.as_deref().unwrap_or("its end");
    let how = format!("cut from {} until {until}", arguments.since);
    let edited =
        edit::select(&arguments.path, &output, &how, |event| (since_ns..until_ns).contains(&event.start_ns))?;
    say(output.path, &edited)
}

/// In ns since 1970.
fn moment(text: &str, first_ns: u64) -> anyhow::Result<u64> {
    if let Some(after) = text.strip_prefix('+') {
        let after = base::duration::parse_duration(after).map_err(AgentError::Input)?;
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        return Ok(first_ns.saturating_add(after_ns));
    }
    parse_moment(text).map_err(|reason| AgentError::Input(reason).into())
}

fn say(output: &Path, edited: &Edited) -> anyhow::Result<()> {
    let bytes = base::door::length(output)?;
    let summary = json!({
        "file": output.display().to_string(),
        "bytes": bytes,
        "events": edited.kept,
        "events_read": edited.read,
        "state_events": edited.totals.state_events,
        "state_events_forgotten": edited.forgotten,
        "damaged": edited.totals.coverage.damaged,
    });
    base::output::print_line(&summary)?;
    Ok(())
}
