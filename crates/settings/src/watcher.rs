//! The dead man's hand: what nobody confirms in time is undone on the host itself, whoever lost the connection.
//!
//! The deadline stands in the journal, so whoever opens it later, after a reboot too, undoes what is overdue. A
//! process of its own watches meanwhile; it needs nothing but the journal.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;

use super::deadline::Deadline;
use super::history;
use super::journal::{self, Journal, Open};
use super::kernel_files::KernelFiles;
use super::owner::belongs_to;
use super::survival;
use super::undo::{self, Foreigners, Undone};
use super::world::{self, since_boot, sleep};
use base::error::AgentError;

const GLANCE: Duration = Duration::from_secs(1);
/// A failed undo (the server is down) is retried with growing pauses, for a day after the deadline, then left to the
/// next command.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const READY: &str = "watching\n";

/// Whether nobody confirmed it in time. A host that was booted since was not confirmed, either.
fn is_overdue(entry: &Open) -> anyhow::Result<bool> {
    let Some(deadline) = &entry.deadline else { return Ok(false) };
    Ok(deadline.has_passed() || entry.is_of_another_boot()?)
}

/// The numbers of the overdue ones among these.
fn overdue<'a>(entries: impl IntoIterator<Item = &'a Open>) -> anyhow::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in entries {
        if is_overdue(entry)? {
            found.push(entry.id);
        }
    }
    Ok(found)
}

/// Undo what is overdue, whoever opened the journal and for whatever reason, and say so.
pub fn revert_overdue(journal: &mut Journal, kernel: &KernelFiles) -> anyhow::Result<Vec<Undone>> {
    if overdue(&journal.content.open)?.is_empty() {
        return Ok(vec![]);
    }
    history::finish(journal)?;
    let overdue = overdue(&journal.content.open)?;
    let undone =
        undo::rollback_those(journal, kernel, Foreigners::Keep, |entry| overdue.contains(&entry.id))?;
    for each in &undone {
        world::warn(&format!("not confirmed in time, or by a call that was killed: {each}"));
    }
    Ok(undone)
}

/// Refuse to confirm what should have been undone, all or in part.
pub fn must_be_in_time(journal: &Journal, owner: &str) -> anyhow::Result<()> {
    let ours = journal.content.open.iter().filter(|entry| belongs_to(&entry.owner, owner));
    let late = overdue(ours)?;
    let Some(entry) = late.first().and_then(|id| journal.entry(*id)) else { return Ok(()) };
    let what = undo::subject(&entry.undo);
    let text = format!(
        "{owner}: too late to confirm: an undo of it has begun ({what} is still open): `headrace rollback --everyone` finishes it"
    );
    Err(AgentError::Refused(text).into())
}

/// Put off the deadline of the open changes of `owner`, never to an earlier one. How many there are.
///
/// Their watcher reads the journal again every second.
pub fn extend(journal: &mut Journal, owner: &str, patience: Duration) -> anyhow::Result<usize> {
    let later = Deadline::after(patience);
    let ours: Vec<&Open> = journal.content.open.iter().filter(|entry| is_watched(entry, owner)).collect();
    if ours.is_empty() {
        let text =
            format!("{owner} has nothing that awaits confirmation: it was confirmed, or undone, before");
        return Err(AgentError::Refused(text).into());
    }
    let is_earlier = |entry: &&&Open| entry.deadline.as_ref().is_some_and(|d| d.uptime_ns < later.uptime_ns);
    let due: Vec<u64> = ours.iter().filter(is_earlier).map(|entry| entry.id).collect();
    let found = ours.len();
    if !due.is_empty() {
        journal.set_deadline(owner, due, &later)?;
    }
    Ok(found)
}

/// Start the process that undoes the changes of `owner` at their deadline, before the first of them is journaled.
pub fn start(state: &Path, owner: &str, root: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding our own program")?;
    let mut command = Command::new(program);
    command
        .args(["journal", "watch", "--owner", owner, "--state"])
        .arg(std::path::absolute(state)?)
        .arg("--root")
        .arg(std::path::absolute(root)?)
        // A rollback kills every process with its controller's mark, but not the watcher.
        .env_remove("HEADRACE_OWNER")
        // And a command that lost its controller is ended by its mark: the watcher is there for just that.
        .env_remove("HEADRACE_COMMAND")
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: setsid is async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let out = world::start(&mut command).context("starting the watcher")?;
    // Nothing is written to the host before the watcher is safe from what could end us.
    let mut said = String::new();
    std::io::BufReader::new(out).read_line(&mut said).context("the watcher")?;
    anyhow::ensure!(said == READY, "the watcher of the deadline did not start");
    Ok(())
}

/// The watcher itself.
pub fn watch(state: &Path, owner: &str, kernel: &KernelFiles) -> anyhow::Result<()> {
    survival::outlive_the_unit();
    survival::outlive_a_shortage();
    say_ready();
    keep_watch(state, owner, kernel)
}

/// Watch until nothing is left to be watched, or a day after the last deadline.
pub fn keep_watch(state: &Path, owner: &str, kernel: &KernelFiles) -> anyhow::Result<()> {
    let mut pause = GLANCE;
    let mut give_up = since_boot() + TIMEOUT;
    while since_boot() < give_up {
        // The cause of a failed read (no descriptors, a failing disk) may be temporary.
        let Ok(open) = journal::read_open(state) else {
            sleep(GLANCE);
            continue;
        };
        let deadlines_ns: Vec<u64> = open
            .iter()
            .filter(|entry| is_watched(entry, owner))
            .filter_map(|entry| Some(entry.deadline.as_ref()?.uptime_ns))
            .collect();
        let (Some(next_ns), Some(last_ns)) = (deadlines_ns.iter().min(), deadlines_ns.iter().max()) else {
            // We start before the first entry exists: the process that adds it holds the journal's lock.
            match Journal::open(state) {
                Ok(journal) if journal.content.open.iter().all(|entry| !is_watched(entry, owner)) => {
                    return Ok(());
                }
                _ => sleep(GLANCE),
            }
            continue;
        };
        // Never earlier than before: while a change is being made its deadline is the start of the machine, and
        // where that is longer ago than our patience, the watcher would leave before the change has its own.
        give_up = give_up.max(Duration::from_nanos(*last_ns) + TIMEOUT);
        let ours = open.iter().filter(|entry| is_watched(entry, owner));
        if overdue(ours).map_or(true, |late| !late.is_empty()) {
            // Not `open_as`: another controller's lock must not keep an unconfirmed change.
            let failed = Journal::open(state)
                .and_then(|mut journal| revert_overdue(&mut journal, kernel))
                .map_or(1, |undone| undone.iter().filter(|u| !u.done).count());
            if failed > 0 {
                sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        } else {
            sleep(Duration::from_nanos(*next_ns).saturating_sub(since_boot()).min(GLANCE));
        }
    }
    Ok(())
}

fn is_watched(entry: &Open, owner: &str) -> bool {
    entry.owner == owner && entry.deadline.is_some()
}

/// Tell the parent, which may be gone by then, and close the pipe.
fn say_ready() {
    let mut out = std::io::stdout();
    let _ = out.write_all(READY.as_bytes()).and_then(|()| out.flush());
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}
