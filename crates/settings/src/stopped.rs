//! An agent that was stopped (SIGSTOP) while it held the journal: until it ends, nobody can undo what it did.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const GLANCE: Duration = Duration::from_millis(100);
/// Whoever stopped it may let it go on meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);

/// Wait for the journal as long as an agent that runs has it. One that is stopped is killed after a while: as if it had
/// been killed at that moment, its changes are then undone.
pub fn release(journal: &Path) {
    let mut stopped: Option<(Holder, Instant)> = None;
    while is_locked(journal) {
        let now = holder(journal).filter(Holder::is_stopped);
        stopped = match (stopped, now) {
            (Some((known, since)), Some(now)) if known.pid == now.pid => {
                if since.elapsed() >= PATIENCE && known.is_stopped() {
                    // It may have ended by itself, which is as good.
                    let _ = pidfd_send_signal(&known.process, Signal::KILL);
                }
                Some((known, since))
            }
            (_, now) => now.map(|now| (now, Instant::now())),
        };
        std::thread::sleep(GLANCE);
    }
}

/// A process as one number, which no other process gets while this lives.
struct Holder {
    pid: i32,
    process: OwnedFd,
}

impl Holder {
    fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The name before it may have any characters.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }
}

fn is_locked(journal: &Path) -> bool {
    let Ok(file) = fs::File::open(journal) else { return false };
    // Closing the file frees it again.
    flock(&file, FlockOperation::NonBlockingLockShared)
        .is_err_and(|error| error == rustix::io::Errno::WOULDBLOCK)
}

/// The agent that has locked the journal, if it is one that we may see.
fn holder(journal: &Path) -> Option<Holder> {
    let journal = fs::canonicalize(journal).ok()?;
    let own = std::process::id();
    let pids =
        fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own && is_agent(*pid)).find_map(|pid| {
        let pid = i32::try_from(pid).ok()?;
        // First this, so that what is then seen is of this process.
        let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        has_locked(pid, &journal).then_some(Holder { pid, process })
    })
}

fn is_agent(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("headrace-agent"))
}

fn has_locked(pid: i32, journal: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let is_it = fs::read_link(descriptor.path()).is_ok_and(|path| path == journal);
        let info = || PathBuf::from(format!("/proc/{pid}/fdinfo")).join(descriptor.file_name());
        is_it && fs::read_to_string(info()).is_ok_and(|text| text.contains("FLOCK"))
    })
}
