//! Programs that work on a device, such as `wipefs`, and hang if it does.

use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A program that is stuck on a dead device cannot even be killed, but the rest must still be undone.
const LIMIT: Duration = Duration::from_secs(60);

/// Its output and exit status. Fails if the program is missing or does not end.
pub fn output(package: &str, program: &str, arguments: &[&str]) -> anyhow::Result<Output> {
    output_within(LIMIT, package, program, arguments)
}

fn output_within(
    limit: Duration,
    package: &str,
    program: &str,
    arguments: &[&str],
) -> anyhow::Result<Output> {
    let path = std::env::var("PATH").unwrap_or_default();
    let child = Command::new(program)
        .args(arguments)
        // Debian keeps them where only root's own shell looks.
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{program} (package {package})"))?;
    // Its number may belong to another process by the time it is killed.
    let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(limit) {
        Ok(ended) => ended.with_context(|| program.to_owned()),
        Err(RecvTimeoutError::Timeout) => {
            let _ = handle.and_then(|child| pidfd_send_signal(child, Signal::KILL));
            anyhow::bail!("{program}: no answer within {limit:.0?}: does the device hang?")
        }
        Err(RecvTimeoutError::Disconnected) => anyhow::bail!("{program}: lost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_printed_and_how_it_ended() {
        let output = output("dash", "sh", &["-c", "echo out; echo err >&2; exit 3"]).unwrap();
        assert_eq!(output.stdout, b"out\n");
        assert_eq!(output.stderr, b"err\n");
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn one_that_is_not_there_names_its_package() {
        let error = output("util-linux", "no-such-program", &[]).unwrap_err();
        assert!(format!("{error:#}").starts_with("no-such-program (package util-linux): "), "{error:#}");
    }

    #[test]
    fn one_that_never_ends_is_given_up() {
        let error = output_within(Duration::from_millis(50), "coreutils", "sleep", &["1000"]).unwrap_err();
        assert_eq!(error.to_string(), "sleep: no answer within 50ms: does the device hang?");
    }
}
