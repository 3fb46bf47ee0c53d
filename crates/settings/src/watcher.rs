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

use super::deadline::uptime;
use super::history;
use super::journal::{self, Journal, Open, this_boot};
use super::kernel_files::KernelFiles;
use super::survival;
use super::undo::{self, Foreigners, Undone};

const GLANCE: Duration = Duration::from_secs(1);
/// A failed undo (the server is down) is retried with growing pauses, for a day after the deadline, then left to the
/// next command.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
const READY: &str = "watching\n";

/// Whether nobody confirmed it in time. A host that was booted since was not confirmed, either.
fn is_overdue(entry: &Open) -> bool {
    let boot = this_boot();
    let same_boot = entry.boot_id == boot || entry.boot_id.is_empty() || boot.is_empty();
    entry
        .deadline
        .as_ref()
        .is_some_and(|deadline| !same_boot || uptime().as_nanos() >= u128::from(deadline.uptime_ns))
}

/// Undo what is overdue, whoever opened the journal and for whatever reason, and say so.
pub fn revert_overdue(journal: &mut Journal, kernel: &KernelFiles) -> anyhow::Result<Vec<Undone>> {
    if !journal.content.open.iter().any(is_overdue) {
        return Ok(vec![]);
    }
    history::finish_confirmed(journal)?;
    let overdue: Vec<u64> = journal.content.open.iter().filter(|e| is_overdue(e)).map(|e| e.id).collect();
    let undone =
        undo::rollback_those(journal, kernel, Foreigners::Keep, |entry| overdue.contains(&entry.id))?;
    for each in &undone {
        eprintln!("headrace-agent: not confirmed in time, or by a call that was killed: {each}");
    }
    Ok(undone)
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
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // SAFETY: setsid is async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let mut child = command.spawn().context("starting the watcher")?;
    // Nothing is written to the host before the watcher is safe from what could end us.
    let mut said = String::new();
    let out = child.stdout.take().context("starting the watcher")?;
    std::io::BufReader::new(out).read_line(&mut said).context("the watcher")?;
    anyhow::ensure!(said == READY, "the watcher of the deadline did not start");
    Ok(())
}

/// The watcher itself: ends when there is nothing left to watch, or a day after the last deadline.
pub fn watch(state: &Path, owner: &str, kernel: &KernelFiles) -> anyhow::Result<()> {
    survival::outlive_the_unit();
    survival::outlive_a_shortage();
    say_ready();
    let mut pause = GLANCE;
    let mut give_up = uptime() + PATIENCE;
    while uptime() < give_up {
        // The cause of a failed read (no descriptors, a failing disk) may be temporary.
        let Ok(open) = journal::read_open(state) else {
            std::thread::sleep(GLANCE);
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
                _ => std::thread::sleep(GLANCE),
            }
            continue;
        };
        give_up = Duration::from_nanos(*last_ns) + PATIENCE;
        if open.iter().any(|entry| is_watched(entry, owner) && is_overdue(entry)) {
            // Not `open_as`: another controller's lock must not keep an unconfirmed change.
            let failed = Journal::open(state)
                .and_then(|mut journal| revert_overdue(&mut journal, kernel))
                .map_or(1, |undone| undone.iter().filter(|u| !u.done).count());
            if failed > 0 {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        } else {
            std::thread::sleep(Duration::from_nanos(*next_ns).saturating_sub(uptime()).min(GLANCE));
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
