//! When a sampler is left out of a tick: because its kind is not due, or because its source is not there.

use std::time::{Duration, Instant};

/// How long a sampler rests whose source this host or server does not have.
const ABSENT: Duration = Duration::from_secs(60);
/// What does not sample every tick takes at most this part of the time: 1%.
const COST_PART: u64 = 100;

/// A server's sampler of every tick takes at most this part: 0.25%, because there are several of them.
const TICK_PART: u64 = 400;
/// What would rest less than this samples every tick: on a busy host an answer waits some milliseconds for a CPU, which
/// costs the server nothing.
const SHORTEST: Duration = Duration::from_secs(10);
/// Nothing that samples every tick rests longer: a minute's watch needs more than its first and its last sample.
const LONGEST: Duration = Duration::from_secs(15);
/// The cheapest of so many samples in a row is what one costs: one that waits in a stall is not dear.
const RECENT: usize = 3;

pub struct Rest {
    every: Duration,
    /// What the source's last samples cost, where it is not ours alone that pays.
    recent_ns: Option<[u64; RECENT]>,
    samples: usize,
    until: Option<Instant>,
    is_absent: bool,
}

impl Rest {
    /// `every` is zero for what samples every tick.
    pub fn new(every: Duration) -> Self {
        Self { every, recent_ns: None, samples: 0, until: None, is_absent: false }
    }

    /// The same for questions to a server: the larger it is, the more their answers cost it.
    pub fn of_server(every: Duration) -> Self {
        Self { recent_ns: Some([0; RECENT]), ..Self::new(every) }
    }

    /// Whether it rests. On the last tick nothing does but what is absent, so that counters span the whole time.
    pub fn is_on(&self, now: Instant, is_last: bool) -> bool {
        self.until.is_some_and(|end| now < end) && (self.is_absent || !is_last)
    }

    /// After a sample: it is due a little sooner than it says, else a tick that came early would cost a whole round.
    pub fn after_sample(&mut self, start: Instant, cost_ns: u64) {
        self.is_absent = false;
        if self.every.is_zero() {
            self.until = self.rest_of_tick(cost_ns).map(|rest| start + rest.mul_f64(0.95));
            return;
        }
        let rest = self.every.max(Duration::from_nanos(cost_ns.saturating_mul(COST_PART)));
        self.until = Some(start + rest.mul_f64(0.95));
    }

    fn rest_of_tick(&mut self, cost_ns: u64) -> Option<Duration> {
        let recent_ns = self.recent_ns.as_mut()?;
        recent_ns[self.samples % RECENT] = cost_ns;
        self.samples += 1;
        // Until there are as many, some are 0.
        let least_ns = recent_ns.iter().min()?;
        let rest = Duration::from_nanos(least_ns.saturating_mul(TICK_PART));
        (rest >= SHORTEST).then_some(rest.min(LONGEST))
    }

    /// After the source was found missing; the error's message with what becomes of it.
    pub fn after_absence(&mut self, start: Instant, message: &str) -> String {
        self.until = Some(start + ABSENT);
        self.is_absent = true;
        format!("{message}; tried again every {} s", ABSENT.as_secs())
    }

    /// Ends it: another server may have what the old one had not.
    pub fn end(&mut self) {
        self.until = None;
        self.recent_ns = self.recent_ns.map(|_| [0; RECENT]);
    }
}

#[cfg(test)]
mod tests {
    use super::Rest;
    use std::time::{Duration, Instant};

    #[test]
    fn a_dear_server_is_asked_less_often_but_not_because_of_one_stall() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut rest = Rest::of_server(Duration::ZERO);
        let mut costs = |costs_ms: [u64; 3]| {
            for cost_ms in costs_ms {
                rest.after_sample(start, cost_ms * 1_000_000);
            }
            [1, 3, 9, 14].map(|seconds| rest.is_on(at(seconds), false)).into_iter().filter(|on| *on).count()
        };
        assert_eq!(costs([1, 2, 1]), 0);
        assert_eq!(costs([1, 5_000, 5_000]), 0, "a stall of two samples");
        assert_eq!(costs([20, 22, 20]), 0, "as on a busy host");
        assert_eq!(costs([26, 28, 26]), 3, "for 10 s");
        assert_eq!(costs([90, 100, 90]), 4, "for 15 s at most");
        assert_eq!(costs([1, 100, 100]), 0);
        assert!(!rest.is_on(at(14), true), "on the last tick all are asked");
    }

    #[test]
    fn a_dear_source_rests_longer_and_the_last_tick_waits_for_absent_ones_only() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut always = Rest::new(Duration::ZERO);
        always.after_sample(start, 10_000_000_000);
        assert!(!always.is_on(start, false));
        let mut slow = Rest::new(Duration::from_secs(5));
        slow.after_sample(start, 1_000_000);
        assert!(slow.is_on(at(4), false) && !slow.is_on(at(5), false) && !slow.is_on(at(1), true));
        slow.after_sample(start, 200_000_000);
        assert!(slow.is_on(at(18), false) && !slow.is_on(at(20), false));
        assert_eq!(slow.after_absence(start, "gone"), "gone; tried again every 60 s");
        assert!(slow.is_on(at(59), true));
        slow.end();
        assert!(!slow.is_on(at(1), false));
    }
}
