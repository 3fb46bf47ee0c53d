//! Signals that ask the process to stop.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

/// Becomes readable, and stays so, when the process is asked to stop. Shared by all loops.
#[derive(Clone)]
pub struct StopSignal(Arc<UnixStream>);

impl StopSignal {
    /// Takes over SIGTERM, SIGINT and SIGHUP (the SSH connection went away): each asks for a clean end.
    pub fn install() -> anyhow::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP]
        {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self(Arc::new(reader)))
    }

    /// Whether the process was asked to stop.
    pub fn is_set(&self) -> bool {
        self.is_set_within(Duration::ZERO)
    }

    /// Sleeps so long; true at once when the process is asked to stop.
    pub fn is_set_within(&self, time: Duration) -> bool {
        let mut file = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let limit = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        poll(&mut file, Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// For tests: set by a byte on the stream, or by its end, instead of a signal.
    ///
    /// # Panics
    /// If the process has no file descriptors left.
    #[must_use]
    pub fn pair() -> (Self, UnixStream) {
        let (reader, writer) = UnixStream::pair().expect("a pair of sockets");
        (Self(Arc::new(reader)), writer)
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
