//! Who may change this host: one controller at a time, by a lock that dies with its process.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use base::error::AgentError;

/// Longer than any undo takes that makes progress.
const JOURNAL_WAIT: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize, Debug)]
pub struct Holder {
    pub pid: u32,
    pub owner: String,
    since_s: u64,
}

impl Holder {
    pub fn busy(&self) -> AgentError {
        AgentError::Busy(format!(
            "process {} holds this host for {} since {}",
            self.pid,
            self.owner,
            utc(self.since_s)
        ))
    }
}

/// Take the lock, say so, keep it until standard input ends. Our death, too, frees it.
///
/// A controller far away writes a number of seconds there, and again before they are over: a connection that
/// nobody knows to be dead would hold the host for ever.
pub fn hold(state: &Path, owner: &str) -> anyhow::Result<()> {
    // The journal's own lock is taken first, so that nobody takes the host in the middle of a rollback.
    let journal = Journal::open(state)?;
    let mut file = open(state)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(read(&mut file)?.busy().into()),
        Err(error) => return Err(error).context("locking the host"),
    }
    let since_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let holder = Holder { pid: std::process::id(), owner: owner.to_owned(), since_s };
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(&holder)?).context("writing the lock")?;
    drop(journal);

    let mut out = std::io::stdout().lock();
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

/// The last number that stands on a line of its own.
fn seconds(heard: &[u8]) -> Option<Timespec> {
    let number = std::str::from_utf8(heard).ok()?.lines().rev().find_map(|line| line.parse::<u32>().ok())?;
    Some(Timespec { tv_sec: number.into(), tv_nsec: 0 })
}

/// Who holds the host now. Ask with the journal open: then the answer stays true.
pub fn holder(state: &Path) -> anyhow::Result<Option<Holder>> {
    let mut file = open(state)?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => Ok(Some(read(&mut file)?)),
        Err(error) => Err(error).context("asking for the host's lock"),
    }
}

/// Lock the journal file itself, for the length of one command.
pub fn wait_for(file: &File, path: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + JOURNAL_WAIT;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => {
                let text = format!("{}: another headrace-agent works on it", path.display());
                return Err(AgentError::Busy(text).into());
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
}

fn open(state: &Path) -> anyhow::Result<File> {
    let path = state.join("lock");
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(|| path.display().to_string())
}

fn read(file: &mut File) -> anyhow::Result<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).context("reading the lock")?;
    serde_json::from_str(&text).context("the lock is held, but does not say by whom")
}

/// `2026-01-31T12:00:00Z`. Howard Hinnant's civil_from_days, which no crate of ours brings.
fn utc(since_epoch_s: u64) -> String {
    let (days, seconds) = (since_epoch_s / 86_400 + 719_468, since_epoch_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn utc_is_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_798_761_599), "2026-12-31T23:59:59Z");
    }

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

    #[test]
    fn nobody_holds_a_fresh_host() {
        let folder = tempfile::tempdir().unwrap();
        assert!(holder(folder.path()).unwrap().is_none());
    }
}
