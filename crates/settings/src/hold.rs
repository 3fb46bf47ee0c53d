//! Holds the host's lock for a controller, local or remote, while it lives; when it is gone, what it left ends.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::journal::{Journal, Open};
use super::kernel_files::KernelFiles;
use super::owner::belongs_to;
use super::undo::{Foreigners, Restarts, rollback_those};
use super::{lock, processes};

/// What a controller says before it ends its side.
const FREE: &str = "free";

#[derive(Debug, PartialEq)]
enum End {
    /// It let go of the host.
    Free,
    /// Its side ended without a word. `is_remote`: it may be the connection that ended.
    Gone { is_remote: bool },
    /// It was silent for longer than it said it might be.
    Silent { seconds: i64 },
}

/// Take the lock, print `held`, and keep it until the controller says `free`, or is gone.
///
/// A controller far away writes a number of seconds there, and again before they are over: a connection that
/// nobody knows to be dead would hold the host for ever. Of one on this machine that is gone, and of one that fell
/// silent, the processes are ended and the changes undone, as the next one to hold the host would.
pub fn hold(state: &Path, owner: &str, kernel: &KernelFiles, out: &mut dyn Write) -> anyhow::Result<()> {
    // The journal's own lock is taken first, so that nobody takes the host in the middle of a rollback.
    let journal = Journal::open(state)?;
    let taken = lock::take(state, owner)?;
    drop(journal);

    out.write_all(b"held\n")?;
    out.flush()?;
    match listen(std::io::stdin().as_fd())? {
        // A connection that ended may be made again, and others may want the host now: the next to hold it cleans.
        End::Free | End::Gone { is_remote: true } => Ok(()),
        End::Gone { is_remote: false } => clean(state, owner, kernel, taken),
        End::Silent { seconds } => {
            clean(state, owner, kernel, taken)?;
            anyhow::bail!("nothing was heard of the controller for {seconds} s: this host is free");
        }
    }
}

/// End the processes of a controller that is gone, then undo its changes.
fn clean(state: &Path, owner: &str, kernel: &KernelFiles, taken: impl Sized) -> anyhow::Result<()> {
    let mut journal = Journal::open(state)?;
    // Whoever takes the host now waits for the journal, and finds it as it was.
    drop(taken);
    processes::end_all(owner, None)?;
    // Deadlines are kept by their watchers. A restart interrupts others: that is left to a person.
    let is_left = |entry: &Open| {
        belongs_to(&entry.owner, owner) && entry.deadline.is_none() && !entry.undo.is_restart()
    };
    let undone = rollback_those(&mut journal, kernel, Foreigners::Keep, Restarts::Leave, is_left)?;
    let failed = undone.iter().filter(|each| !each.done).count();
    anyhow::ensure!(failed == 0, "{failed} of {} changes could not be undone", undone.len());
    Ok(())
}

/// Return how the controller's side ended.
fn listen(input: BorrowedFd) -> anyhow::Result<End> {
    let (mut lease, mut is_free): (Option<Timespec>, bool) = (None, false);
    let mut heard = [0; 256];
    loop {
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], lease.as_ref()) {
            Ok(0) => return Ok(End::Silent { seconds: lease.map_or(0, |lease| lease.tv_sec) }),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error).context("standard input"),
        }
        match rustix::io::read(input, &mut heard) {
            Ok(0) if is_free => return Ok(End::Free),
            Ok(0) => return Ok(End::Gone { is_remote: lease.is_some() }),
            Ok(length) => {
                is_free |= lines(&heard[..length]).any(|line| line == FREE);
                lease = seconds(&heard[..length]).or(lease);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("standard input"),
        }
    }
}

fn lines(heard: &[u8]) -> impl DoubleEndedIterator<Item = &str> {
    std::str::from_utf8(heard).unwrap_or_default().lines()
}

/// The last number that is on a line of its own.
fn seconds(heard: &[u8]) -> Option<Timespec> {
    let number = lines(heard).rev().find_map(|line| line.parse::<u32>().ok())?;
    Some(Timespec { tv_sec: number.into(), tv_nsec: 0 })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_controller_that_falls_silent_loses_the_host() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"600\nno number\n1\n").unwrap();
        assert_eq!(listen(ours.as_fd()).unwrap(), End::Silent { seconds: 1 });
    }

    #[test]
    fn only_a_word_lets_go_of_the_host() {
        for (said, end) in [
            ("", End::Gone { is_remote: false }),
            ("900\n", End::Gone { is_remote: true }),
            ("freedom\n", End::Gone { is_remote: false }),
            ("free\n", End::Free),
            ("900\nfree\n", End::Free),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(said.as_bytes()).unwrap();
            drop(theirs);
            assert_eq!(listen(ours.as_fd()).unwrap(), end);
        }
    }
}
