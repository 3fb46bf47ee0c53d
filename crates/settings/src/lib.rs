//! Changing a host so that it can always be put back: the undo is on disk before the change is made.
//!
//! The caller names what it is about to do (`record`) or lets us do it (`apply`); `rollback` undoes whatever
//! is still open, at any later time, whatever was killed in between. `hold` keeps other controllers out.

mod apply;
mod arrays;
mod busy;
mod commands;
mod deadline;
mod foreign;
#[cfg(fuzzing)]
pub mod fuzzing;
mod history;
mod hold;
mod journal;
mod kernel_files;
mod keys;
pub mod leased;
mod leftovers;
mod lock;
mod loops;
mod mounts;
mod owner;
pub mod plain;
mod processes;
mod remounts;
mod remove;
mod restart;
mod signature;
mod stopped;
mod supervisor;
mod survival;
mod tools;
mod undo;
mod variables;
mod watcher;
mod whole_files;
mod world;
mod zram;

use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde::Deserialize;

use apply::{Change, Hands};
use base::duration::parse_duration;
use base::error::AgentError;
use deadline::Deadline;
use journal::Journal;
use kernel_files::KernelFiles;
use mysql::ServerArguments;
use undo::{Foreigners, Restarts};
use world::fs;

#[derive(Subcommand)]
pub enum JournalCommand {
    /// Take this host's lock, print `held`, keep it until standard input says `free` and ends. If it ends without, end
    /// the processes of ID and undo its changes
    Hold {
        #[command(flatten)]
        caller: Caller,
        #[command(flatten)]
        root: Root,
    },
    /// Write a JSON array of undo entries (standard input) to the journal, before the caller acts
    Record(Caller),
    /// Make a JSON array of changes (standard input), all of them or none: {"path","value"}, {"variable","value"},
    /// {"file","content"}, {"mount","options"}; first of all {"restart"} if the caller then restarts the server
    Apply {
        #[command(flatten)]
        caller: Caller,
        #[command(flatten)]
        root: Root,
        /// Undo them after this time, on the host itself, unless `confirm` comes before
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        confirm_within: Option<std::time::Duration>,
        /// Confirm them in this same call. If it is killed, the host undoes what it had made
        #[arg(long, conflicts_with = "confirm_within")]
        keep: bool,
        #[command(flatten)]
        server: Box<ServerArguments>,
    },
    /// Keep the changes of ID: they leave the journal and are in the history
    Confirm {
        #[command(flatten)]
        caller: Caller,
        #[command(flatten)]
        root: Root,
    },
    /// Put off the deadline of the open changes of ID: TIME from now, unless `confirm` comes before
    Extend {
        #[command(flatten)]
        caller: Caller,
        #[command(flatten)]
        root: Root,
        /// Never earlier than the deadline they have
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        confirm_within: std::time::Duration,
    },
    /// Undo the changes of ID at their deadline; `apply --confirm-within` starts it
    #[command(hide = true)]
    Watch {
        #[command(flatten)]
        caller: Caller,
        #[command(flatten)]
        root: Root,
        /// It is a unit of systemd, which starts it again if it is killed
        #[arg(long)]
        is_unit: bool,
    },
    /// Print the kept sets of changes as a JSON array, oldest first
    History(State),
    /// Undo what is open, newest first. Without --owner: everything, and only if nobody holds the lock
    Rollback(Rollback),
    /// Print the open entries as a JSON array
    Show(State),
}

#[derive(Args)]
pub struct State {
    /// Folder of the journal and the lock; made with mode 0700
    #[arg(long = "state", value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Args)]
pub struct Caller {
    #[command(flatten)]
    state: State,
    /// Who asks. ID/part is the same controller as ID, with changes that can be undone by themselves
    #[arg(long, value_name = "ID", value_parser = owner::parse)]
    owner: String,
}

#[derive(Args)]
pub struct Root {
    /// Where /sys, /proc and /etc are, for tests
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

#[derive(Args)]
pub struct Rollback {
    #[command(flatten)]
    state: State,
    /// Who asks: undoes the changes of ID and of ID/...
    #[arg(long, value_name = "ID", value_parser = owner::parse)]
    owner: Option<String>,
    /// Undo the changes of every owner; --owner then only says who asks
    #[arg(long)]
    everyone: bool,
    /// Undo kept changes, too: those of this ID, or with `last` those that were kept last
    #[arg(long, value_name = "ID|last", value_parser = owner::parse, conflicts_with = "everyone")]
    kept: Option<String>,
    /// Undo only what no confirmation can keep any more: past its deadline, or left by a call that was killed
    #[arg(long, conflicts_with_all = ["everyone", "kept", "restart_within"])]
    overdue: bool,
    /// Close the entries whose value was set from outside since; that value is left in any case
    #[arg(long)]
    accept_foreign: bool,
    /// Undo all but a restart of the server, which the caller does now: the host does it only after TIME
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "owner", conflicts_with_all = ["everyone", "kept"])]
    restart_within: Option<std::time::Duration>,
    #[command(flatten)]
    root: Root,
}

pub fn run(command: &JournalCommand) -> anyhow::Result<()> {
    answer(command, &mut std::io::stdin(), &mut std::io::stdout().lock())
}

fn answer(command: &JournalCommand, input: &mut dyn Read, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        JournalCommand::Hold { caller, root } => {
            hold::hold(&caller.state.dir, &caller.owner, &KernelFiles::new(&root.root), out)
        }
        JournalCommand::Record(caller) => {
            let requests = read_json(input)?;
            undo::record(&mut Journal::open_as(&caller.state.dir, &caller.owner)?, &caller.owner, requests)
        }
        JournalCommand::Apply { caller, root, confirm_within, keep, server } => {
            let changes: Vec<Change> = read_json(input)?;
            let kernel = KernelFiles::new(&root.root);
            let mut journal = Journal::open_as(&caller.state.dir, &caller.owner)?;
            watcher::revert_overdue(&mut journal, &kernel, Restarts::Leave)?;
            leftovers::must_be_none(&journal, &caller.owner)?;
            // Until this call confirms, its deadline is over: a later call that finds the entry without this process undoes it.
            let deadline = if *keep { Some(Deadline::passed()) } else { confirm_within.map(Deadline::after) };
            let mut hands = Hands::new(&kernel, server);
            let applied = hands.apply(&mut journal, &caller.owner, &changes, deadline.as_ref())?;
            if *keep && journal.content.open.iter().any(|entry| entry.owner == caller.owner) {
                keep_or_undo(&mut journal, &caller.owner, &kernel)?;
            }
            print_json(out, &applied)
        }
        JournalCommand::Confirm { caller, root } => {
            let mut journal = Journal::open_as(&caller.state.dir, &caller.owner)?;
            let kernel = KernelFiles::new(&root.root);
            watcher::revert_overdue(&mut journal, &kernel, Restarts::Leave)?;
            watcher::must_be_in_time(&journal, &caller.owner)?;
            print_json(out, &history::confirm(&mut journal, &caller.owner, &kernel)?)
        }
        JournalCommand::Extend { caller, root, confirm_within } => {
            let mut journal = Journal::open_as(&caller.state.dir, &caller.owner)?;
            watcher::revert_overdue(&mut journal, &KernelFiles::new(&root.root), Restarts::Leave)?;
            watcher::must_be_in_time(&journal, &caller.owner)?;
            print_json(out, &watcher::extend(&mut journal, &caller.owner, *confirm_within)?)
        }
        JournalCommand::Watch { caller, root, is_unit } => {
            watcher::watch(&caller.state.dir, &caller.owner, &KernelFiles::new(&root.root), *is_unit)
        }
        JournalCommand::History(state) => print_json(out, &history::read(&state.dir)?),
        JournalCommand::Rollback(arguments) => rollback(arguments, out),
        JournalCommand::Show(state) => print_json(out, &journal::read_open(&state.dir)?),
    }
}

/// Keep what was just made. If its files cannot be written, the values of now must not outlive the error: they are put
/// back at once. What is in the history by then is kept: the next call says so in the journal, too.
fn keep_or_undo(journal: &mut Journal, owner: &str, kernel: &KernelFiles) -> anyhow::Result<()> {
    let Err(mut error) = history::confirm(journal, owner, kernel) else { return Ok(()) };
    if !history::is_open_alone(journal, owner).unwrap_or(false) {
        return Err(error);
    }
    let undone = undo::rollback(journal, Some(owner), kernel, Foreigners::Keep)?;
    let failures: Vec<String> = undone.into_iter().filter_map(|each| each.error).collect();
    for failure in &failures {
        error = error.context(format!("not undone, stays in the journal: {failure}"));
    }
    if failures.is_empty() { Err(error.context("undone, because it could not be kept")) } else { Err(error) }
}

fn rollback(arguments: &Rollback, out: &mut dyn Write) -> anyhow::Result<()> {
    let Rollback { state, owner, everyone, kept, overdue, accept_foreign, restart_within, root } = arguments;
    // Nothing was ever changed from here, and asking must leave nothing behind.
    if !fs::exists(&state.dir).with_context(|| state.dir.display().to_string())? {
        return print_json(out, &[(); 0]);
    }
    let kernel = KernelFiles::new(&root.root);
    let mut journal = match owner {
        Some(owner) => Journal::open_as(&state.dir, owner)?,
        None => Journal::open_unheld(&state.dir)?,
    };
    history::finish(&mut journal)?;
    if let (Some(owner), Some(patience)) = (owner, restart_within) {
        watcher::put_off_restart(&mut journal, owner, *patience)?;
    }
    let foreign = if *accept_foreign { Foreigners::Accept } else { Foreigners::Keep };
    let mut undone = match (kept, everyone) {
        // All of these are undone below, so a failure is reported once.
        (None, true) => vec![],
        _ => watcher::revert_overdue(&mut journal, &kernel, Restarts::Leave)?,
    };
    // Of the others a failure is reported below.
    undone.retain(|each| each.done || *overdue);
    undone.extend(match kept {
        None if *overdue => vec![],
        // The last change was what the killed call left; undoing more is a separate decision.
        Some(id) if id == "last" && !undone.is_empty() => vec![],
        Some(id) => undo_kept(&mut journal, id, &kernel, foreign)?,
        None if restart_within.is_some() => {
            let is_chosen = |e: &journal::Open| {
                !e.undo.is_restart() && owner.as_ref().is_some_and(|owner| owner::belongs_to(&e.owner, owner))
            };
            undo::rollback_those(&mut journal, &kernel, foreign, Restarts::Leave, is_chosen)?
        }
        None => {
            let whose = if *everyone { None } else { owner.as_deref() };
            undo::rollback(&mut journal, whose, &kernel, foreign)?
        }
    });
    print_json(out, &undone)?;
    let failed = undone.iter().filter(|u| !u.done).count();
    anyhow::ensure!(failed == 0, "{failed} of {} changes could not be undone", undone.len());
    Ok(())
}

/// Undo the open or kept changes of `id`; with `last` the ones that were kept last.
fn undo_kept(
    journal: &mut Journal,
    id: &str,
    kernel: &KernelFiles,
    foreign: Foreigners,
) -> anyhow::Result<Vec<undo::Undone>> {
    let is_open = journal.content.open.iter().any(|entry| owner::belongs_to(&entry.owner, id));
    let found = match id {
        "last" => history::reopen(journal, None)?,
        _ if is_open => Some(id.to_owned()),
        _ => history::reopen(journal, Some(id))?,
    };
    let Some(owner) = found else {
        let left = leftovers::of(journal, id)?.map_or(String::new(), |left| format!("; {left}"));
        return Err(AgentError::Refused(format!("{id}: no such changes are kept{left}")).into());
    };
    undo::rollback(journal, Some(&owner), kernel, foreign)
}

fn read_json<T: for<'a> Deserialize<'a>>(input: &mut dyn Read) -> anyhow::Result<Vec<T>> {
    let mut text = String::new();
    input.read_to_string(&mut text).context("standard input")?;
    serde_json::from_str(&text).map_err(|e| AgentError::Input(format!("standard input: {e}")).into())
}

fn print_json<T: serde::Serialize + ?Sized>(out: &mut dyn Write, value: &T) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod simulation;
