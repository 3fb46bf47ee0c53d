//! Ending the processes of an owner: whatever carries its mark in the environment.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const MARK: &str = "HEADRACE_OWNER=";
const POLITE: Duration = Duration::from_secs(5);
/// After KILL only a process inside the kernel stays, and that is a matter of its disk.
const FORCED: Duration = Duration::from_secs(10);

/// End every process of `owner` and of its parts, but never `spared`, us or our ancestors. How many there were.
pub fn end_all(owner: &str, spared: Option<u32>) -> anyhow::Result<usize> {
    let mut spared: HashSet<u32> = spared.into_iter().chain(ancestors(std::process::id())).collect();
    spared.insert(std::process::id());
    let mut seen = HashSet::new();
    for (signal, patience) in [(Signal::TERM, POLITE), (Signal::KILL, FORCED)] {
        let mut told = HashSet::new();
        let deadline = Instant::now() + patience;
        loop {
            let alive = find(owner, &spared);
            if alive.is_empty() {
                return Ok(seen.len());
            }
            for pid in &alive {
                // Again and again, because a process that ends may still start others.
                if told.insert(*pid) {
                    tell(*pid, owner, signal);
                }
            }
            seen.extend(alive);
            if Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let stuck: Vec<String> = find(owner, &spared).iter().map(|pid| pid.to_string()).collect();
    anyhow::ensure!(stuck.is_empty(), "not ended by SIGKILL: process {}", stuck.join(", "));
    Ok(seen.len())
}

fn tell(pid: u32, owner: &str, signal: Signal) {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // The descriptor names this very process; the mark is read again, because the number may be another's by now.
    if let Ok(process) = pidfd_open(number, PidfdFlags::empty())
        && is_marked(pid, owner)
    {
        // It may have ended, or not be ours to signal: then it is found again, and reported.
        let _ = pidfd_send_signal(process, signal);
    }
}

fn find(owner: &str, spared: &HashSet<u32>) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| !spared.contains(pid) && is_marked(*pid, owner))
        .collect()
}

/// False, too, for what we may not look into: another user's process cannot have been started by us.
fn is_marked(pid: u32, owner: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|b| *b == 0).any(|variable| {
        std::str::from_utf8(variable)
            .ok()
            .and_then(|text| text.strip_prefix(MARK))
            .is_some_and(|name| super::owner::belongs_to(name, owner))
    })
}

fn ancestors(mut pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    while let Some(parent) = parent(pid).filter(|parent| *parent > 0) {
        found.push(parent);
        pid = parent;
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold parentheses and spaces.
    stat.rsplit_once(") ")?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Up to three processes that have something open below `path`, for a message.
pub fn users_of(path: &std::path::Path) -> String {
    let Ok(entries) = fs::read_dir("/proc") else { return String::new() };
    let mut users = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let folder = entry.path();
        let open = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten().map(|fd| fd.path());
        let links = ["cwd", "root", "exe"].map(|name| folder.join(name));
        let uses =
            links.into_iter().chain(open).any(|l| fs::read_link(l).is_ok_and(|to| to.starts_with(path)));
        if uses {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            users.push(format!("{pid} {}", name.trim()));
        }
        if users.len() == 3 {
            break;
        }
    }
    users.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper(owner: &str, script: &str) -> Child {
        Command::new("sh").args(["-c", script]).env("HEADRACE_OWNER", owner).spawn().unwrap()
    }

    #[test]
    fn only_the_owners_processes_end_and_the_deaf_ones_by_force() {
        let me = format!("unit-{}", std::process::id());
        let mut ours = sleeper(&me, "exec sleep 60");
        let mut part = sleeper(&format!("{me}/part"), "exec sleep 60");
        let mut other = sleeper(&format!("{me}-other"), "exec sleep 60");
        let mut spared = sleeper(&me, "exec sleep 60");
        // A zombie has no environment, so waiting for our own children is not needed for them to count as gone.
        assert_eq!(end_all(&me, Some(spared.id())).unwrap(), 2);
        assert!(!ours.wait().unwrap().success());
        assert!(!part.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        assert!(spared.try_wait().unwrap().is_none());
        for child in [&mut other, &mut spared] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn our_own_line_is_spared() {
        let pids = ancestors(std::process::id());
        assert!(pids.contains(&std::os::unix::process::parent_id()) && pids.contains(&1));
    }
}
