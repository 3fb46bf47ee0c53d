//! How the threads of a load learn that they must stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::stop::StopSignal;

/// Stops all threads of a trial, also if the conducting one panics: it would wait for them forever.
pub struct StopsAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Turns a signal into the stop flag, until the flag is set otherwise.
pub fn watch(signal: &StopSignal, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if signal.is_set() {
            stop.store(true, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
