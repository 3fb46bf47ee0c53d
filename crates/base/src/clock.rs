//! The driver's clock: CLOCK_MONOTONIC in ns, and its offset from the time of day.

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC: the times of operations. It does not jump.
#[inline]
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// CPU time of this thread.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// CPU time of this process, all threads.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// What to add to a time of the driver's clock for ns since the epoch. Read once a trial: an adjustment of the
/// time of day in between must not bend the trial's own times.
pub fn epoch_offset_ns() -> i64 {
    // The smaller of two readings around it: we may be interrupted between the clocks.
    (0..5).map(|_| offset()).min().map_or(0, |(_, offset)| offset)
}

/// The same from a single reading, cheap enough to repeat. None if it took longer than the limit.
pub fn epoch_offset_within(limit_ns: u64) -> Option<i64> {
    let (took_ns, offset_ns) = offset();
    (took_ns <= limit_ns).then_some(offset_ns)
}

/// How long it took to read both clocks, and their offset.
fn offset() -> (u64, i64) {
    let before = now_ns();
    let epoch = read(ClockId::Realtime);
    let took_ns = now_ns() - before;
    (took_ns, epoch as i64 - (before + took_ns / 2) as i64)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
