//! Ending the processes of an owner: whatever carries its mark in the environment.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const MARK: &str = "HEADRACE_OWNER=";
const POLITE: Duration = Duration::from_secs(5);
/// After KILL only a process inside the kernel stays, and that is a matter of its disk.
const FORCED: Duration = Duration::from_secs(10);
/// The longest a program may take to start on a machine with other work.
const STARTING: Duration = Duration::from_secs(2);

/// End every process of `owner` and of its parts, but never `spared`, us or our ancestors. How many there were.
pub fn end_all(owner: &str, spared: Option<u32>) -> anyhow::Result<usize> {
    let mut spared: HashSet<u32> = spared.into_iter().chain(ancestors(std::process::id())).collect();
    spared.insert(std::process::id());
    let mut seen = HashSet::new();
    for (signal, patience) in [(Signal::TERM, POLITE), (Signal::KILL, FORCED)] {
        let mut told = HashSet::new();
        let began = Instant::now();
        loop {
            let (alive, starting) = find(owner, &spared);
            if alive.is_empty() && (!starting || began.elapsed() > STARTING) {
                return Ok(seen.len());
            }
            for pid in &alive {
                // Again and again, because a process that ends may still start others.
                if told.insert(*pid) {
                    tell(*pid, owner, signal);
                }
            }
            seen.extend(alive);
            if began.elapsed() > patience {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let stuck: Vec<String> = find(owner, &spared).0.iter().map(|pid| pid.to_string()).collect();
    anyhow::ensure!(stuck.is_empty(), "not ended by SIGKILL: process {}", stuck.join(", "));
    Ok(seen.len())
}

fn tell(pid: u32, owner: &str, signal: Signal) {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // The descriptor names this very process; the mark is read again, because the number may be another's by now.
    if let Ok(process) = pidfd_open(number, PidfdFlags::empty())
        && mark(pid, owner) == Mark::Ours
    {
        // It may have ended, or not be ours to signal: then it is found again, and reported.
        let _ = pidfd_send_signal(process, signal);
    }
}

/// The processes of `owner`, and whether some process is between two programs and may turn out to be one.
fn find(owner: &str, spared: &HashSet<u32>) -> (Vec<u32>, bool) {
    let Ok(entries) = fs::read_dir("/proc") else { return (vec![], false) };
    let (mut ours, mut starting) = (vec![], false);
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if spared.contains(&pid) {
            continue;
        }
        match mark(pid, owner) {
            Mark::Ours => ours.push(pid),
            Mark::Starting => starting = true,
            Mark::Foreign => {}
        }
    }
    (ours, starting)
}

#[derive(PartialEq)]
enum Mark {
    Ours,
    /// Before or in the middle of execve: it still shows our environment, or the new one is not there yet.
    Starting,
    /// This, too, for what we may not look into: another user's process cannot have been started by us.
    Foreign,
}

fn mark(pid: u32, owner: &str) -> Mark {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}"));
    let Ok(mut environment) = read("environ") else { return Mark::Foreign };
    if environment.is_empty() {
        // A program may have no environment, but it has a name; kernel threads and zombies have no file.
        if read("cmdline").is_ok_and(|line| line.is_empty()) {
            let starting = fs::read_link(format!("/proc/{pid}/exe")).is_ok();
            return if starting { Mark::Starting } else { Mark::Foreign };
        }
        // It has started since.
        environment = read("environ").unwrap_or_default();
    }
    let ours = environment.split(|b| *b == 0).any(|variable| {
        std::str::from_utf8(variable)
            .ok()
            .and_then(|text| text.strip_prefix(MARK))
            .is_some_and(|name| super::owner::belongs_to(name, owner))
    });
    match ours {
        true => Mark::Ours,
        false if is_our_fork(pid) => Mark::Starting,
        false => Mark::Foreign,
    }
}

/// A child of ours that has not called execve yet (`PF_FORKNOEXEC` of linux/sched.h, in proc_pid_stat(5)'s flags).
fn is_our_fork(pid: u32) -> bool {
    let Some(fields) = stat(pid) else { return false };
    let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u32>().ok());
    field(1) == Some(std::process::id()) && field(6).is_some_and(|flags| flags & 0x40 != 0)
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
    stat(pid)?.get(1)?.parse().ok()
}

/// The fields after the name, which may itself hold parentheses and spaces; the first is the state.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split_whitespace().map(str::to_owned).collect())
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
    fn a_program_that_is_starting_is_not_a_foreign_one() {
        // On one CPU a child that has just been spawned is still between two programs.
        let mut one = rustix::thread::CpuSet::new();
        one.set(rustix::thread::sched_getcpu());
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        let me = format!("starting-{}", std::process::id());
        for _ in 0..50 {
            let mut child = sleeper(&me, "exec sleep 60");
            let known = mark(child.id(), &me) != Mark::Foreign;
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(known);
        }
    }

    #[test]
    fn our_own_line_is_spared() {
        let pids = ancestors(std::process::id());
        assert!(pids.contains(&std::os::unix::process::parent_id()) && pids.contains(&1));
    }
}
