//! What interrupting another core takes: at most this is what each packet costs both cores if RPS moves it.
//!
//! `membarrier` interrupts every core that runs a thread of this process and waits for their answers, so its time is
//! that of one interrupt there and back. Sending one, or serving one, takes less.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::ends::stay_on;
use base::clock::now_ns;

/// From linux/membarrier.h.
const PRIVATE_EXPEDITED: libc::c_long = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_long = 1 << 4;

const CALLS: usize = 500;
/// On a busy host fewer have to do.
const LEAST: usize = 50;
const TIMEOUT: Duration = Duration::from_millis(500);

/// The median, in ns, from core `near` to core `far`. None if the kernel cannot, or a core is not ours to use.
pub fn round_trip_ns(near: usize, far: usize) -> Option<u64> {
    if near == far || !membarrier(REGISTER_PRIVATE_EXPEDITED) {
        return None;
    }
    let (turns, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if stay_on(far).is_ok() {
                while !is_over.load(Ordering::Relaxed) {
                    turns.fetch_add(1, Ordering::Relaxed);
                    std::hint::spin_loop();
                }
            }
        });
        let caller = scope.spawn(|| if stay_on(near).is_ok() { calls(&turns) } else { Vec::new() });
        let mut took = caller.join().unwrap_or_default();
        is_over.store(true, Ordering::Relaxed);
        took.sort_unstable();
        (took.len() >= LEAST).then(|| took[took.len() / 2])
    })
}

/// The time of each call. Only a core that runs a thread of ours is interrupted: each call waits for a sign of it.
fn calls(turns: &AtomicU64) -> Vec<u64> {
    let end = now_ns() + TIMEOUT.as_nanos() as u64;
    let mut took = Vec::with_capacity(CALLS);
    while took.len() < CALLS {
        let turn = turns.load(Ordering::Relaxed);
        while turns.load(Ordering::Relaxed) == turn {
            if now_ns() > end {
                return took;
            }
            std::hint::spin_loop();
        }
        let start = now_ns();
        if !membarrier(PRIVATE_EXPEDITED) {
            return Vec::new();
        }
        took.push(now_ns() - start);
    }
    took
}

fn membarrier(command: libc::c_long) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::round_trip_ns;

    #[test]
    fn a_core_does_not_interrupt_itself_and_a_missing_one_does_not_answer() {
        assert_eq!(round_trip_ns(0, 0), None);
        assert_eq!(round_trip_ns(0, 1023), None);
    }
}
