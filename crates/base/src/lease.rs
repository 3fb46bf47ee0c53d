//! The end of a program whose controller is gone, also where neither a signal nor a broken pipe says so: a connection
//! that nobody knows to be dead takes what is written to it for hours.

use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::Timespec;

use crate::error::AgentError;

/// How long the program may take to stop once it was asked to.
pub const GRACE: Duration = Duration::from_secs(2);
const SHORTEST: Duration = Duration::from_secs(1);

/// Asks this process to stop (SIGTERM) once standard input ends, or brings nothing for so long. If it does not stop
/// within `GRACE`, because it waits for a reader, it ends with exit code 1.
///
/// # Errors
/// If standard input is a terminal: nobody would type that often.
pub fn keep(silence: Duration) -> anyhow::Result<()> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(
            AgentError::Input("--lease is for programs: standard input is a terminal".to_owned()).into()
        );
    }
    let watch = move || {
        until_silent(input.as_fd(), silence);
        let _ = kill_process(getpid(), Signal::TERM);
        std::thread::sleep(GRACE);
        std::process::exit(1);
    };
    std::thread::Builder::new()
        .name("lease".to_owned())
        .spawn(watch)
        .context("cannot start the thread for the lease")?;
    Ok(())
}

/// A lease as an argument.
///
/// # Errors
/// If it is no length of time, or a shorter one than a controller keeps.
pub fn parse(text: &str) -> Result<Duration, String> {
    match crate::duration::parse_duration(text)? {
        lease if lease < SHORTEST => Err("the shortest lease is 1s".to_owned()),
        lease => Ok(lease),
    }
}

/// Returns at the end of the input, or when nothing has come for so long.
fn until_silent(input: BorrowedFd, silence: Duration) {
    let mut heard = [0; 256];
    let mut end = Instant::now() + silence;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // A lease is not longer than an argument can say: it fits.
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::from_borrowed_fd(input, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return,
            Ok(_) => match rustix::io::read(input, &mut heard) {
                Ok(0) => return,
                Ok(_) => end = Instant::now() + silence,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return,
            },
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, until_silent};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    #[test]
    fn each_word_of_the_controller_begins_the_lease_anew() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let start = Instant::now();
        let silence = Duration::from_millis(400);
        std::thread::scope(|scope| {
            scope.spawn(|| until_silent(ours.as_fd(), silence));
            for _ in 0..4 {
                std::thread::sleep(silence / 4);
                theirs.write_all(b"\n").unwrap();
            }
        });
        assert!(start.elapsed() >= 2 * silence);
        drop(theirs);
    }

    #[test]
    fn the_end_of_the_input_ends_the_lease() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        until_silent(ours.as_fd(), Duration::from_secs(3600));
    }

    #[test]
    fn a_lease_has_a_lower_bound() {
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert!(parse("999ms").unwrap_err().contains("1s"));
    }
}
