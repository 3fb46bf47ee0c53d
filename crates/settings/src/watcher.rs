//! The dead man's hand: what is not confirmed in time is undone on the host itself, whichever side lost the connection.
//!
//! The deadline is in the journal, so the next call that opens it, even after a reboot, undoes what is overdue. A
//! process of its own watches meanwhile; it needs nothing but the journal. Where systemd is, it is a unit of its own,
//! which systemd starts again if it is killed.

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;

use super::deadline::Deadline;
use super::history;
use super::journal::{self, Journal, Open, Undo};
use super::kernel_files::KernelFiles;
use super::owner::belongs_to;
use super::stopped;
use super::supervisor;
use super::survival;
use super::undo::{self, Foreigners, Restarts, Undone};
use super::world::{self, since_boot, sleep};
use base::error::AgentError;

const GLANCE: Duration = Duration::from_secs(1);
/// A failed undo (the server is down) is retried with growing pauses, for a day after the deadline, then left to the
/// next command.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const READY: &str = "watching\n";

/// Whether it was not confirmed in time. A host that was booted since was not confirmed, either.
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

/// Undo what is overdue, regardless of why the journal was opened, and say so.
pub fn revert_overdue(
    journal: &mut Journal,
    kernel: &KernelFiles,
    restarts: Restarts,
) -> anyhow::Result<Vec<Undone>> {
    if overdue(&journal.content.open)?.is_empty() {
        return Ok(vec![]);
    }
    history::finish(journal)?;
    let overdue = overdue(&journal.content.open)?;
    // A server that the host itself restarts may have to be returned to service, too.
    let is_ours = |entry: &Open| {
        let is_left = matches!(&entry.undo, Undo::Restart { commands: Some(_), .. });
        overdue.contains(&entry.id) && (restarts == Restarts::CarryOut || !is_left)
    };
    let undone = undo::rollback_those(journal, kernel, Foreigners::Keep, restarts, is_ours)?;
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

/// Extends the deadline of the open changes of `owner`, and never shortens it. Returns their number.
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

/// The caller restarts the server of `owner` itself, and undoes all else: the host does so only after that time.
pub fn put_off_restart(journal: &mut Journal, owner: &str, patience: Duration) -> anyhow::Result<()> {
    let is_due = |entry: &&Open| belongs_to(&entry.owner, owner) && entry.undo.is_restart();
    let due: Vec<u64> = journal.content.open.iter().filter(is_due).map(|entry| entry.id).collect();
    if due.is_empty() { Ok(()) } else { journal.set_deadline(owner, due, &Deadline::after(patience)) }
}

/// Start the process that undoes the changes of `owner` at their deadline, before the first of them is journaled.
pub fn start(state: &Path, owner: &str, root: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding our own program")?;
    let mut words: Vec<OsString> = ["journal", "watch", "--owner", owner, "--state"].map(Into::into).into();
    words.extend([std::path::absolute(state)?.into(), "--root".into(), std::path::absolute(root)?.into()]);
    // What is under another root is not this host's.
    if root == Path::new("/") && supervisor::start(&program, &words, owner) {
        return Ok(());
    }
    let mut command = Command::new(program);
    command
        .args(words)
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
pub fn watch(state: &Path, owner: &str, kernel: &KernelFiles, is_unit: bool) -> anyhow::Result<()> {
    if !is_unit {
        survival::outlive_the_unit();
    }
    survival::outlive_a_shortage();
    say_ready();
    let mut watch = Watch::new(state, owner);
    let mut next = Next::Look { after: Duration::ZERO };
    while next != Next::Leave {
        match next {
            Next::Look { after } => sleep(after),
            Next::MakeSure | Next::Undo => stopped::release(&state.join(journal::FILE_NAME)),
            Next::Leave => {}
        }
        next = watch.step(next, kernel);
    }
    Ok(())
}

/// What a watcher does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Read the journal, without its lock.
    Look { after: Duration },
    /// Nothing seems to be left: make sure of it with the journal's lock.
    MakeSure,
    /// Something is overdue.
    Undo,
    /// Nothing is left to be watched, or a day has passed since the last deadline.
    Leave,
}

/// A watcher between two steps. It sleeps in none of them but to wait for the journal's lock.
pub struct Watch {
    state: PathBuf,
    owner: String,
    pause: Duration,
    give_up: Duration,
}

impl Watch {
    pub fn new(state: &Path, owner: &str) -> Watch {
        let give_up = since_boot() + TIMEOUT;
        Watch { state: state.to_owned(), owner: owner.to_owned(), pause: GLANCE, give_up }
    }

    pub fn step(&mut self, next: Next, kernel: &KernelFiles) -> Next {
        match next {
            Next::Look { .. } => self.look(),
            Next::MakeSure => self.make_sure(),
            Next::Undo => self.undo(kernel),
            Next::Leave => Next::Leave,
        }
    }

    fn look(&mut self) -> Next {
        if since_boot() >= self.give_up {
            return Next::Leave;
        }
        // The cause of a failed read (no descriptors, a failing disk) may be temporary.
        let Ok(open) = journal::read_open(&self.state) else { return Next::Look { after: GLANCE } };
        let ours: Vec<&Open> = open.iter().filter(|entry| is_watched(entry, &self.owner)).collect();
        let deadlines_ns = || ours.iter().filter_map(|entry| Some(entry.deadline.as_ref()?.uptime_ns));
        let (Some(next_ns), Some(last_ns)) = (deadlines_ns().min(), deadlines_ns().max()) else {
            return Next::MakeSure;
        };
        // Never earlier than before: while a change is being made its deadline is the start of the machine, and
        // where that is longer ago than our patience, the watcher would leave before the change has its own.
        self.give_up = self.give_up.max(Duration::from_nanos(last_ns) + TIMEOUT);
        if overdue(ours).map_or(true, |late| !late.is_empty()) {
            return Next::Undo;
        }
        Next::Look { after: Duration::from_nanos(next_ns).saturating_sub(since_boot()).min(GLANCE) }
    }

    /// We start before the first entry exists: the process that adds it holds the journal's lock.
    fn make_sure(&self) -> Next {
        match Journal::open(&self.state) {
            Ok(journal) if journal.content.open.iter().all(|entry| !is_watched(entry, &self.owner)) => {
                Next::Leave
            }
            _ => Next::Look { after: GLANCE },
        }
    }

    fn undo(&mut self, kernel: &KernelFiles) -> Next {
        // Not `open_as`: another controller's lock must not keep an unconfirmed change.
        let failed = Journal::open(&self.state)
            .and_then(|mut journal| revert_overdue(&mut journal, kernel, Restarts::CarryOut))
            .map_or(1, |undone| undone.iter().filter(|u| !u.done).count());
        if failed == 0 {
            return Next::Look { after: Duration::ZERO };
        }
        let after = self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Next::Look { after }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::model::{self, Machine};

    const OWNER: &str = "apply/1";
    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A journal on a machine that has been up for a month, with a change of which the deadline is the start of the
    /// machine: it is being made.
    fn a_change_being_made(work: impl FnOnce(&Path, &mut Journal, Vec<u64>)) {
        let mut machine = Machine::new(1);
        machine.turn_to(30 * DAY);
        model::swap(Some(machine));
        let state = Path::new("/var/lib/headrace");
        let mut journal = Journal::open(state).unwrap();
        let undo = journal::Undo::Mount { path: "/scratch".into() };
        let id = journal.add_change(OWNER, Some(&Deadline::passed()), "1", false, undo).unwrap();
        work(state, &mut journal, vec![id]);
        model::swap(None);
    }

    #[test]
    fn a_change_that_is_being_made_is_watched_however_long_the_machine_is_up() {
        a_change_being_made(|state, journal, ids| {
            let mut watch = Watch::new(state, OWNER);
            assert_eq!(watch.look(), Next::Undo, "it is overdue until it is made");
            journal.set_deadline(OWNER, ids, &Deadline::after(Duration::from_secs(60))).unwrap();
            assert_eq!(watch.look(), Next::Look { after: GLANCE });
        });
    }

    #[test]
    fn patience_ends_a_day_after_the_last_deadline() {
        a_change_being_made(|state, journal, ids| {
            let mut watch = Watch::new(state, OWNER);
            journal.set_deadline(OWNER, ids, &Deadline::after(DAY)).unwrap();
            for (days, next) in [(30, Next::Look { after: GLANCE }), (31, Next::Undo), (32, Next::Leave)] {
                model::on(|machine| machine.turn_to(days * DAY + Duration::from_secs(1)));
                assert_eq!(watch.look(), next, "day {days}");
            }
        });
    }
}
