//! When to sample: an absolute schedule on CLOCK_MONOTONIC that no slow tick can shift.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use base::stop::StopSignal;

/// Yields the ticks of one loop. The kernel's timer keeps the schedule: a late tick skips and counts the missed
/// moments, and the next one is on time again.
pub struct Ticker {
    timer: OwnedFd,
    stop: StopSignal,
    missed: Arc<AtomicU64>,
    elapsed: u64,
    last: u64,
}

impl Ticker {
    /// `last` is the number of the last tick; the first one, immediate, is 0.
    pub fn start(
        interval: Duration,
        last: u64,
        stop: StopSignal,
        missed: Arc<AtomicU64>,
    ) -> anyhow::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let period =
            Timespec { tv_sec: interval.as_secs().try_into()?, tv_nsec: interval.subsec_nanos().into() };
        let now = clock_gettime(ClockId::Monotonic);
        let spec = Itimerspec { it_interval: period, it_value: now + period };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(Self { timer, stop, missed, elapsed: 0, last })
    }

    /// Whether no tick follows this one.
    pub fn is_last(&self) -> bool {
        self.elapsed >= self.last
    }

    /// Sleeps until the next tick; false when there is none: asked to stop, or that was the last.
    pub fn wait(&mut self) -> anyhow::Result<bool> {
        if self.elapsed >= self.last {
            return Ok(false);
        }
        loop {
            let mut files = [
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.timer.as_fd(), PollFlags::IN),
            ];
            match poll(&mut files, None) {
                Ok(_) if !files[0].revents().is_empty() => return Ok(false),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut expirations = [0_u8; 8];
        rustix::io::read(&self.timer, &mut expirations)?;
        let expirations = u64::from_ne_bytes(expirations);
        self.elapsed += expirations;
        // Moments after the last tick were never due.
        let due = expirations - self.elapsed.saturating_sub(self.last).min(expirations);
        let is_tick = self.elapsed <= self.last;
        self.missed.fetch_add(due - u64::from(is_tick), Ordering::Relaxed);
        Ok(is_tick)
    }
}

/// CLOCK_REALTIME: samples are joined with what other programs wrote on the same host.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{StopSignal, Ticker};
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn a_late_tick_is_counted_and_does_not_shift_the_schedule() {
        let (stop, _writer) = StopSignal::pair();
        let missed = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let interval = Duration::from_millis(100);
        let mut ticker = Ticker::start(interval, 6, stop, missed.clone()).unwrap();
        assert!(ticker.wait().unwrap());
        std::thread::sleep(Duration::from_millis(250));
        assert!(ticker.wait().unwrap());
        assert!(missed.load(Ordering::Relaxed) >= 1);
        let mut count = 0;
        while ticker.wait().unwrap() {
            count += 1;
        }
        assert_eq!(ticker.elapsed, 6);
        assert_eq!(2 + count + missed.load(Ordering::Relaxed), 6, "each moment was a tick or was missed");
        assert!(start.elapsed() >= 6 * interval);
    }

    #[test]
    fn a_stop_ends_the_sleep() {
        let (stop, mut writer) = StopSignal::pair();
        let missed = Arc::new(AtomicU64::new(0));
        let mut ticker = Ticker::start(Duration::from_secs(3600), u64::MAX, stop, missed).unwrap();
        writer.write_all(b"x").unwrap();
        assert!(!ticker.wait().unwrap());
    }
}
