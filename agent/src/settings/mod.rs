//! Changing a host so that it can always be put back: the undo is on disk before the change is made.
//!
//! The caller names what it is about to do (`record`) or lets us do it (`apply`); `rollback` undoes whatever
//! is still open, at any later time, whatever was killed in between. `hold` keeps other controllers out.

mod journal;
mod kernel_files;
mod lock;
mod processes;
mod remove;
mod signature;
mod undo;

use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::error::AgentError;
use journal::Journal;
use kernel_files::{Change, KernelFiles};

#[derive(Subcommand)]
pub enum JournalCommand {
    /// Take this host's lock, print `held`, keep it until standard input ends
    Hold(Caller),
    /// Write a JSON array of undo entries (standard input) to the journal, before the caller acts
    Record(Caller),
    /// Set a JSON array of {"path","value"} (standard input); all of them or none
    Apply {
        #[command(flatten)]
        caller: Caller,
        #[command(flatten)]
        root: Root,
    },
    /// Undo what is open, newest first. Without --owner: everything, and only if nobody holds the lock
    Rollback {
        #[command(flatten)]
        state: State,
        /// Who asks: undoes the changes of ID and of ID/...
        #[arg(long, value_name = "ID", value_parser = owner)]
        owner: Option<String>,
        /// Undo the changes of every owner; --owner then only says who asks
        #[arg(long)]
        everyone: bool,
        #[command(flatten)]
        root: Root,
    },
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
    #[arg(long, value_name = "ID", value_parser = owner)]
    owner: String,
}

#[derive(Args)]
pub struct Root {
    /// Where /sys and /proc/sys are, for tests
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// The owner stands in environments, in file names and on lines of text.
fn owner(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+".contains(c);
    if text.is_empty() || text.len() > 200 || text.ends_with('/') || !text.chars().all(plain) {
        return Err("must be 1 to 200 letters, digits or any of - _ . / : @ +".into());
    }
    Ok(text.to_owned())
}

pub fn run(command: &JournalCommand) -> anyhow::Result<()> {
    match command {
        JournalCommand::Hold(caller) => lock::hold(&caller.state.dir, &caller.owner),
        JournalCommand::Record(caller) => {
            let requests = standard_input()?;
            undo::record(&mut Journal::open_as(&caller.state.dir, &caller.owner)?, &caller.owner, requests)
        }
        JournalCommand::Apply { caller, root } => {
            let changes: Vec<Change> = standard_input()?;
            let mut journal = Journal::open_as(&caller.state.dir, &caller.owner)?;
            print_json(&KernelFiles::new(&root.root).apply(&mut journal, &caller.owner, &changes)?)
        }
        JournalCommand::Rollback { state, owner, everyone, root } => {
            // Nothing was ever changed from here, and asking must leave nothing behind.
            if !state.dir.try_exists().with_context(|| state.dir.display().to_string())? {
                return print_json(&[(); 0]);
            }
            let mut journal = match owner {
                Some(owner) => Journal::open_as(&state.dir, owner)?,
                None => Journal::open_unheld(&state.dir)?,
            };
            let whose = if *everyone { None } else { owner.as_deref() };
            let undone = undo::rollback(&mut journal, whose, &KernelFiles::new(&root.root))?;
            print_json(&undone)?;
            let failed = undone.iter().filter(|u| !u.done).count();
            anyhow::ensure!(failed == 0, "{failed} of {} changes could not be undone", undone.len());
            Ok(())
        }
        JournalCommand::Show(state) => print_json(&journal::read_open(&state.dir)?),
    }
}

fn standard_input<T: for<'a> Deserialize<'a>>() -> anyhow::Result<Vec<T>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("standard input")?;
    serde_json::from_str(&text).map_err(|e| AgentError::Input(format!("standard input: {e}")).into())
}

fn print_json<T: serde::Serialize + ?Sized>(value: &T) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Whether `name` is `owner` itself or one of its parts.
fn belongs_to(name: &str, owner: &str) -> bool {
    name.strip_prefix(owner).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
