//! Holds the host's lock for a controller, local or remote, while it lives.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::journal::Journal;
use super::lock;

/// Take the lock, print `held`, and keep it until standard input ends or this process dies.
///
/// A controller far away writes a number of seconds there, and again before they are over: a connection that
/// nobody knows to be dead would hold the host for ever.
pub fn hold(state: &Path, owner: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    // The journal's own lock is taken first, so that nobody takes the host in the middle of a rollback.
    let journal = Journal::open(state)?;
    let _taken = lock::take(state, owner)?;
    drop(journal);

    out.write_all(b"held\n")?;
    out.flush()?;
    listen(std::io::stdin().as_fd())
}

/// Return when the controller ends its side, or fail when it is silent for longer than it said it might be.
fn listen(input: BorrowedFd) -> anyhow::Result<()> {
    let mut lease: Option<Timespec> = None;
    let mut heard = [0; 256];
    loop {
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], lease.as_ref()) {
            Ok(0) => {
                let silent_s = lease.map_or(0, |lease| lease.tv_sec);
                anyhow::bail!("nothing was heard of the controller for {silent_s} s: this host is free");
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error).context("standard input"),
        }
        match rustix::io::read(input, &mut heard) {
            Ok(0) => return Ok(()),
            Ok(length) => lease = seconds(&heard[..length]).or(lease),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("standard input"),
        }
    }
}

/// The last number that is on a line of its own.
fn seconds(heard: &[u8]) -> Option<Timespec> {
    let number = std::str::from_utf8(heard).ok()?.lines().rev().find_map(|line| line.parse::<u32>().ok())?;
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
        let error = listen(ours.as_fd()).unwrap_err();
        assert!(error.to_string().contains("for 1 s"), "{error}");
    }

    #[test]
    fn a_controller_that_ends_its_side_is_no_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        listen(ours.as_fd()).unwrap();
    }
}
