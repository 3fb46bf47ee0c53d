//! Limits that hold whatever the reading does: a thread that waits for nothing ends the process when a limit has been
//! reached and the work neither ends nor continues. What was written by then is whole blocks.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often limits are checked and buffered events are written.
const TICK: Duration = Duration::from_millis(100);
/// Work that should end but makes no progress for this long is abandoned.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// Counts steps of the work, to distinguish slow from stuck.
#[derive(Debug, Default)]
pub struct Pulse {
    beats: AtomicU64,
    is_waiting: AtomicBool,
}

impl Pulse {
    pub fn beat(&self) {
        self.beats.fetch_add(1, Relaxed);
    }

    pub fn beats(&self) -> u64 {
        self.beats.load(Relaxed)
    }

    /// Waits for more work, which does not count as being stuck.
    pub fn wait<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.is_waiting.store(true, Relaxed);
        let waited = wait();
        self.is_waiting.store(false, Relaxed);
        waited
    }
}

/// Work that was asked to end: its beats at the last look, when that was, and how long there was no progress.
#[derive(Debug, Default)]
pub struct Ending(Option<(u64, Instant, Duration)>);

impl Ending {
    /// Whether the work, asked to end before the first call, has made no progress for too long. Between two calls at
    /// most two ticks count: the whole process may have been stopped.
    pub fn is_stuck(&mut self, pulse: &Pulse) -> bool {
        let (beats, now) = (pulse.beats(), Instant::now());
        let still = match self.0 {
            Some((before, looked, still)) if before == beats && !pulse.is_waiting.load(Relaxed) => {
                still + now.duration_since(looked).min(2 * TICK)
            }
            _ => Duration::ZERO,
        };
        self.0 = Some((beats, now, still));
        still >= TIMEOUT
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
    // Not eprintln: a test captures that, and what it captured ends with the process.
    let _ = writeln!(
        std::io::stderr(),
        "headrace-agent: {reason}, and the decoder did not end: what it had not written yet is lost; please report \
         the traffic that did this"
    );
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every tick, as the guard does, until the work is stuck or so many ticks are over.
    fn is_stuck_within(ticks: u32, ending: &mut Ending, pulse: &Pulse) -> bool {
        (0..ticks).any(|_| {
            std::thread::sleep(TICK);
            ending.is_stuck(pulse)
        })
    }

    #[test]
    fn slow_work_is_waited_for_and_stuck_work_is_not() {
        let (pulse, mut ending) = (Pulse::default(), Ending::default());
        for _ in 0..3 {
            pulse.beat();
            assert!(!is_stuck_within(6, &mut ending, &pulse), "it goes on");
        }
        assert!(is_stuck_within(20, &mut ending, &pulse));
    }

    #[test]
    fn whoever_waits_for_work_is_not_stuck() {
        let (pulse, mut ending) = (Pulse::default(), Ending::default());
        assert!(!pulse.wait(|| is_stuck_within(20, &mut ending, &pulse)));
        assert!(is_stuck_within(20, &mut ending, &pulse), "it has work again");
    }

    #[test]
    fn a_pause_of_the_process_is_not_the_works() {
        let (pulse, mut ending) = (Pulse::default(), Ending::default());
        assert!(!ending.is_stuck(&pulse));
        std::thread::sleep(TIMEOUT + TICK);
        assert!(!ending.is_stuck(&pulse));
    }
}
