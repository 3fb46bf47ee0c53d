//! Who may change this host: one controller at a time, by a lock that dies with its process.

use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::world::fs::{File, OpenOptions, OpenOptionsExt};
use super::world::{self, since_boot, since_epoch};
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

/// Take the host for this process, or fail because another one has it. Its death frees it.
pub fn take(state: &Path, owner: &str) -> anyhow::Result<File> {
    let mut file = open(state)?;
    match world::lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(read(&mut file)?.busy().into()),
        Err(error) => return Err(error).context("locking the host"),
    }
    let since_s = since_epoch().as_secs();
    let holder = Holder { pid: std::process::id(), owner: owner.to_owned(), since_s };
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(&holder)?).context("writing the lock")?;
    Ok(file)
}

/// Who holds the host now. Ask with the journal open: then the answer stays true.
pub fn holder(state: &Path) -> anyhow::Result<Option<Holder>> {
    let mut file = open(state)?;
    match world::lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => Ok(Some(read(&mut file)?)),
        Err(error) => Err(error).context("asking for the host's lock"),
    }
}

/// Lock the journal file itself, for the length of one command.
pub fn wait_for(file: &File, path: &Path) -> anyhow::Result<()> {
    let deadline = since_boot() + JOURNAL_WAIT;
    loop {
        match world::lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if since_boot() < deadline => {
                world::sleep(Duration::from_millis(10));
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
    use super::*;

    #[test]
    fn utc_is_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_798_761_599), "2026-12-31T23:59:59Z");
    }

    #[test]
    fn nobody_holds_a_fresh_host() {
        let folder = tempfile::tempdir().unwrap();
        assert!(holder(folder.path()).unwrap().is_none());
    }
}
