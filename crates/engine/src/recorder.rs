//! What a thread counts: one histogram per operation per second, passed on when the second is over.

use std::collections::HashMap;

use serde::Serialize;

use crate::client::{Failure, NO_ANSWER};
use crate::schedule::Schedule;
use base::histogram::{Histogram, Sparse};

const SECOND_NS: u64 = 1_000_000_000;

/// One operation over one second, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    pub count: u64,
    pub errors: u64,
    pub retries: u64,
    pub timeouts: u64,
    pub rows: u64,
    pub bytes: u64,
    pub response: Sparse,
    pub service: Sparse,
    pub failed: Sparse,
}

impl Row {
    pub fn add(&mut self, other: &Row) {
        self.count += other.count;
        self.errors += other.errors;
        self.retries += other.retries;
        self.timeouts += other.timeouts;
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.response.add(&other.response);
        self.service.add(&other.service);
        self.failed.add(&other.failed);
    }
}

/// The rows of one second, one per operation. Second 0 starts with the window; those of the warm-up are negative. The
/// last one is shorter if the window does not end with a second.
pub struct Second {
    pub number: i64,
    /// Not a second, but all that ended after the window's planned end.
    pub is_drain: bool,
    pub rows: Vec<Row>,
}

/// The counts of one operation in this second so far.
#[derive(Default)]
struct Counts {
    row: Row,
    response: Histogram,
    service: Histogram,
    failed: Histogram,
}

/// The times of an operation, in ns of the driver's clock.
#[derive(Clone, Copy)]
pub struct Times {
    /// When it was due.
    pub intended_ns: u64,
    /// When its first request was sent.
    pub sent_ns: u64,
    pub ended_ns: u64,
}

/// Operation and error code -> the first message, and the number of errors.
pub type Errors = HashMap<(usize, u16), (String, u64)>;

/// Of the whole window: errors by operation and code, and the driver's own delays.
pub struct Whole {
    pub errors: Errors,
    pub lateness: Sparse,
    pub unseen: Sparse,
    pub lag: Sparse,
    /// Operations that were due before the window and could only be sent in it.
    pub left_over: u64,
    /// Those that were due in the window and could only be sent after it.
    pub left_behind: u64,
}

/// The recorder of one thread.
pub struct Recorder {
    window_start_ns: u64,
    window_end_ns: u64,
    second: i64,
    is_drain: bool,
    operations: Vec<Counts>,
    /// Of the window.
    errors: Errors,
    lateness: Histogram,
    /// Replies, by the longest time they may have waited to be read.
    unseen: Histogram,
    /// Delay against an assigned schedule, whatever its cause.
    lag: Histogram,
    left_over: u64,
    left_behind: u64,
    last_end_ns: u64,
}

impl Recorder {
    /// `operations` is their number; the times are of the driver's clock.
    #[must_use]
    pub fn new(operations: usize, schedule: Schedule) -> Self {
        Self {
            window_start_ns: schedule.window_start_ns,
            window_end_ns: schedule.end_ns,
            second: second_of(schedule.start_ns, schedule.window_start_ns),
            is_drain: false,
            operations: (0..operations).map(|_| Counts::default()).collect(),
            errors: HashMap::new(),
            lateness: Histogram::default(),
            unseen: Histogram::default(),
            lag: Histogram::default(),
            left_over: 0,
            left_behind: 0,
            last_end_ns: 0,
        }
    }

    /// When the current second is over: then call `take_second`.
    #[must_use]
    pub fn second_end_ns(&self) -> u64 {
        if self.is_drain {
            return u64::MAX;
        }
        let end_ns = self.window_start_ns.saturating_add_signed((self.second + 1) * SECOND_NS as i64);
        end_ns.min(self.window_end_ns)
    }

    /// Returns the current second and starts the next.
    pub fn take_second(&mut self) -> Second {
        let is_last = self.second_end_ns() == self.window_end_ns;
        let rows = self.operations.iter_mut().map(|counts| Row {
            response: counts.response.take(),
            service: counts.service.take(),
            failed: counts.failed.take(),
            ..std::mem::take(&mut counts.row)
        });
        let second = Second { number: self.second, is_drain: self.is_drain, rows: rows.collect() };
        self.second += 1;
        self.is_drain |= is_last;
        second
    }

    /// An operation that succeeded.
    #[inline]
    pub fn ended(&mut self, operation: usize, times: Times, rows: u64, bytes: u64) {
        let counts = &mut self.operations[operation];
        counts.row.count += 1;
        counts.row.rows += rows;
        counts.row.bytes += bytes;
        counts.response.record(times.ended_ns.saturating_sub(times.intended_ns));
        counts.service.record(times.ended_ns.saturating_sub(times.sent_ns));
        self.over(times);
    }

    #[inline]
    fn over(&mut self, times: Times) {
        let window = self.window_start_ns;
        let is_over = |border_ns| u64::from(times.intended_ns < border_ns && times.sent_ns >= border_ns);
        self.left_over += is_over(window);
        self.left_behind += is_over(self.window_end_ns);
        self.last_end_ns = times.ended_ns;
    }

    /// An error. `is_retried`: the operation is started again.
    pub fn error(&mut self, operation: usize, failure: &Failure, is_retried: bool) {
        let row = &mut self.operations[operation].row;
        row.errors += 1;
        row.retries += u64::from(is_retried);
        row.timeouts += u64::from(failure.code == NO_ANSWER);
        if self.second >= 0 {
            let first = || (failure.message.to_string(), 0);
            self.errors.entry((operation, failure.code)).or_insert_with(first).1 += 1;
        }
    }

    /// An operation that failed, after `error` has counted why.
    pub fn failed(&mut self, operation: usize, times: Times) {
        self.operations[operation].failed.record(times.ended_ns.saturating_sub(times.intended_ns));
        self.over(times);
    }

    /// A client that reconnected, or an attempt that failed, under the number after the last operation.
    pub fn connected(&mut self, times: Times) {
        let counts = self.operations.last_mut().expect("the reconnects");
        counts.row.count += 1;
        counts.response.record(times.ended_ns - times.intended_ns);
        counts.service.record(times.ended_ns - times.sent_ns);
    }

    pub fn connect_failed(&mut self, times: Times, failure: &Failure) {
        let place = self.operations.len() - 1;
        self.error(place, failure, false);
        self.operations[place].failed.record(times.ended_ns - times.intended_ns);
    }

    /// How much later than possible an operation was sent.
    #[inline]
    pub fn late(&mut self, lateness_ns: u64) {
        if self.second >= 0 {
            self.lateness.record(lateness_ns);
        }
    }

    /// This many replies may have waited this long to be read.
    #[inline]
    pub fn unseen(&mut self, longest_ns: u64, replies: u32) {
        if self.second >= 0 && replies > 0 {
            self.unseen.record_many(longest_ns, replies);
        }
    }

    /// How much later than assigned an operation was sent.
    #[inline]
    pub fn lagged(&mut self, lag_ns: u64) {
        if self.second >= 0 {
            self.lag.record(lag_ns);
        }
    }

    /// The last end of an operation, in ns of the driver's clock; 0 before the first.
    pub fn last_end_ns(&self) -> u64 {
        self.last_end_ns
    }

    /// What was counted over the whole window.
    pub fn finish(mut self) -> Whole {
        Whole {
            errors: self.errors,
            lateness: self.lateness.take(),
            unseen: self.unseen.take(),
            lag: self.lag.take(),
            left_over: self.left_over,
            left_behind: self.left_behind,
        }
    }
}

fn second_of(time_ns: u64, window_start_ns: u64) -> i64 {
    let since = time_ns as i64 - window_start_ns as i64;
    since.div_euclid(SECOND_NS as i64)
}

#[cfg(test)]
mod tests {
    use super::{Recorder, Times};
    use crate::client::Failure;
    use crate::schedule::Schedule;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn seconds_begin_with_the_warm_up() {
        let schedule =
            Schedule { start_ns: 10 * SECOND + 1, window_start_ns: 12 * SECOND, end_ns: 20 * SECOND };
        let mut recorder = Recorder::new(2, schedule);
        let failure = Failure::new(1064, "no");
        recorder.error(0, &failure, false);
        assert_eq!(recorder.second_end_ns(), 11 * SECOND);
        assert_eq!(recorder.take_second().number, -2);
        assert_eq!(recorder.take_second().number, -1);
        let times = Times { intended_ns: 12 * SECOND, sent_ns: 12 * SECOND + 5, ended_ns: 12 * SECOND + 25 };
        recorder.ended(1, times, 3, 100);
        recorder.error(0, &failure, true);
        let second = recorder.take_second();
        assert_eq!(second.number, 0);
        assert_eq!(second.rows[1].response.min_ns, Some(25));
        assert_eq!(second.rows[1].service.min_ns, Some(20));
        assert_eq!((second.rows[0].errors, second.rows[0].retries), (1, 1));
        // Errors of the warm-up are in its rows, not in the sum.
        assert_eq!(recorder.finish().errors[&(0, 1064)], ("no".to_owned(), 1));
    }

    #[test]
    fn what_ends_after_the_window_is_apart() {
        for (end_ns, seconds) in [(2 * SECOND, 2), (2 * SECOND + 1, 3)] {
            let mut recorder = Recorder::new(1, Schedule { start_ns: 0, window_start_ns: 0, end_ns });
            for number in 0..seconds {
                assert!(recorder.second_end_ns() <= end_ns);
                let second = recorder.take_second();
                assert_eq!((second.number, second.is_drain), (number, false));
            }
            // However long it takes.
            assert_eq!(recorder.second_end_ns(), u64::MAX);
            assert!(recorder.take_second().is_drain);
        }
    }
}
