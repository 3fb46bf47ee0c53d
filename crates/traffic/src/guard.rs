//! Limits that hold whatever the reading does: a thread that waits for nothing ends the process when a limit has been
//! reached and the work neither ends nor continues. What was written by then is whole blocks.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often limits are checked and buffered events are written.
const TICK: Duration = Duration::from_millis(100);
/// Work that should end but makes no progress for this long is abandoned.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// Counts steps of the work, to distinguish slow from stuck.
#[derive(Debug, Default)]
pub struct Pulse(AtomicU64);

impl Pulse {
    pub fn beat(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub fn beats(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Work that was asked to end, and when it was last seen to go on.
#[derive(Debug, Default)]
pub struct Ending(Option<(Instant, u64)>);

impl Ending {
    /// Whether the work, asked to end before the first call, has not moved for too long.
    pub fn is_stuck(&mut self, pulse: &Pulse) -> bool {
        let beats = pulse.beats();
        match self.0 {
            Some((since, before)) if before == beats => since.elapsed() >= TIMEOUT,
            _ => {
                self.0 = Some((Instant::now(), beats));
                false
            }
        }
    }
}

/// Asks `limit` every tick until `is_done` hears from the work, or of its end. Once `limit` names a reason to end, the work has to end
/// or go on by itself; the process ends if it does neither.
pub fn watch<Reason: Display>(
    is_done: &Receiver<()>,
    pulse: &Pulse,
    mut limit: impl FnMut() -> Option<Reason>,
) {
    let mut ending = Ending::default();
    let mut reason = None;
    while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(TICK) {
        let now = limit();
        reason = reason.or(now);
        if let Some(reason) = &reason
            && ending.is_stuck(pulse)
        {
            end(reason);
        }
    }
}

/// Ends the process, because the thread that would clean up is stuck.
fn end(reason: &impl Display) -> ! {
    eprintln!(
        "headrace-agent: {reason}, and the decoder did not end: what it had not written yet is lost; please report \
         the traffic that did this"
    );
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::{Ending, Pulse, TIMEOUT};

    #[test]
    fn slow_work_is_waited_for_and_stuck_work_is_not() {
        let (pulse, mut ending) = (Pulse::default(), Ending::default());
        for _ in 0..3 {
            pulse.beat();
            std::thread::sleep(TIMEOUT / 2 + TIMEOUT / 10);
            assert!(!ending.is_stuck(&pulse), "it goes on");
        }
        std::thread::sleep(TIMEOUT);
        assert!(ending.is_stuck(&pulse));
    }
}
