//! A program that ends with its controller: whatever kills that, and whatever becomes of the connection.
//!
//! The program leads a group of its own, so all that it starts ends with it.

use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use base::lease;
use base::stop::StopSignal;
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::Timespec;

/// Shorter than what `lease::keep` leaves this process.
const GRACE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(200);

#[derive(Args)]
pub struct LeasedArguments {
    /// End the program once standard input ends, or brings nothing for this long
    #[arg(long, value_parser = lease::parse)]
    lease: Duration,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    program: Vec<std::ffi::OsString>,
}

/// Run a program until it ends, or until its lease does.
///
/// # Errors
/// If it cannot be started.
pub fn run(arguments: &LeasedArguments) -> anyhow::Result<()> {
    let stop = StopSignal::install()?;
    let (program, rest) = arguments.program.split_first().context("no program")?;
    let mut child = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| program.display().to_string())?;
    if let Err(error) = lease::keep(arguments.lease) {
        end(&mut child);
        return Err(error);
    }
    let status = watch(&mut child, &stop);
    std::process::exit(status.map_or(1, |status| {
        status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
    }))
}

/// Its status; None if it was ended because we were asked to stop.
fn watch(child: &mut Child, stop: &StopSignal) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            signal(child, Signal::KILL);
            return Some(status);
        }
        let _ = poll(
            &mut [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)],
            Timespec::try_from(LOOK).ok().as_ref(),
        );
        if stop.is_set() {
            end(child);
            return None;
        }
    }
}

fn end(child: &mut Child) {
    signal(child, Signal::TERM);
    let until = Instant::now() + GRACE;
    while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Also if it ended: what it started may ignore the first signal.
    signal(child, Signal::KILL);
}

fn signal(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn started(script: &str) -> Child {
        Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    #[test]
    fn all_that_it_started_ends_with_the_lease_and_with_the_program() {
        for (script, status) in
            [("trap '' TERM; sleep 1000 & sleep 1000 & wait", None), ("sleep 1000 & exit 3", Some(3))]
        {
            let mut child = started(script);
            let (stop, ask) = StopSignal::pair();
            if status.is_none() {
                drop(ask);
            } else {
                std::mem::forget(ask);
            }
            assert_eq!(watch(&mut child, &stop).and_then(|status| status.code()), status);
            // The pipe ends only when every process of the group is gone.
            let mut said = String::new();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        }
    }
}
