//! When a sampler skips a tick: because its kind is not due, or because its source is missing.

use std::time::{Duration, Instant};

/// How long a sampler rests if this host or server does not have its source.
const ABSENT: Duration = Duration::from_secs(60);
/// A sampler that does not run on every tick takes at most this part of the time: 1%.
const COST_PART: u64 = 100;

/// A server's sampler that runs on every tick takes at most this part: 0.25%, because there are several of them.
const TICK_PART: u64 = 400;
/// A sampler that would rest less than this does not rest: on a busy host an answer waits some milliseconds for a CPU,
/// which costs the server nothing.
const SHORTEST: Duration = Duration::from_secs(10);
/// The longest rest of a sampler of every tick: watching for a minute needs more than a first and a last sample.
const LONGEST: Duration = Duration::from_secs(15);
/// The cost is the cheapest of this many samples in a row: a sample that is delayed by a stall is not expensive.
const RECENT: usize = 3;

pub struct Rest {
    every: Duration,
    /// Whether it rests longer for what it costs.
    is_sparing: bool,
    /// When it would have been due but for that.
    due: Option<Instant>,
    /// The cost of the last samples, if the server also pays for it.
    recent_ns: Option<[u64; RECENT]>,
    samples: usize,
    until: Option<Instant>,
    is_absent: bool,
}

impl Rest {
    /// `every` is zero for a sampler of every tick.
    pub fn new(every: Duration) -> Self {
        Self {
            every,
            is_sparing: true,
            due: None,
            recent_ns: None,
            samples: 0,
            until: None,
            is_absent: false,
        }
    }

    /// The same for queries to a server, which cost more the larger it is.
    pub fn of_server(every: Duration) -> Self {
        Self { recent_ns: Some([0; RECENT]), ..Self::new(every) }
    }

    /// Never longer than `every`, whatever it costs.
    pub fn thorough(every: Duration) -> Self {
        Self { is_sparing: false, ..Self::new(every) }
    }

    /// Whether it rests only because of what it costs.
    pub fn is_spared(&self, now: Instant) -> bool {
        !self.is_absent && self.due.is_some_and(|due| due <= now)
    }

    /// Whether it rests. On the last tick only absent sources do, so that counters span the whole time.
    pub fn is_on(&self, now: Instant, is_last: bool) -> bool {
        self.until.is_some_and(|end| now < end) && (self.is_absent || !is_last)
    }

    /// After a sample: due slightly early, otherwise a tick that comes early would cost a whole round.
    pub fn after_sample(&mut self, start: Instant, cost_ns: u64) {
        self.is_absent = false;
        let due = start + self.every.mul_f64(0.95);
        self.due = Some(due);
        if !self.is_sparing {
            self.until = Some(due);
            return;
        }
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

    /// The source is missing; the error's message and when it is tried again.
    pub fn after_absence(&mut self, start: Instant, message: &str) -> String {
        self.until = Some(start + ABSENT);
        self.is_absent = true;
        format!("{message}; tried again every {} s", ABSENT.as_secs())
    }

    /// Ends the rest: another server may have the source.
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
    fn what_is_spared_is_known_and_asked_if_wanted() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut slow = Rest::new(Duration::from_secs(5));
        slow.after_sample(start, 200_000_000);
        let mut tick = Rest::of_server(Duration::ZERO);
        (0..3).for_each(|_| tick.after_sample(start, 100_000_000));
        for (rest, seconds, is_on, is_spared) in [
            (&slow, 4, true, false),
            (&slow, 6, true, true),
            (&slow, 20, false, true),
            (&tick, 1, true, true),
        ] {
            assert_eq!(
                (rest.is_on(at(seconds), false), rest.is_spared(at(seconds))),
                (is_on, is_spared),
                "{seconds}"
            );
        }
        slow.after_absence(start, "gone");
        assert!(slow.is_on(at(20), false) && !slow.is_spared(at(20)));
        for every in [0, 5] {
            let mut rest = Rest::thorough(Duration::from_secs(every));
            (0..3).for_each(|_| rest.after_sample(start, 60_000_000_000));
            assert!(!rest.is_on(at(every + 1), false));
            assert_eq!(rest.is_on(at(1), false), every > 1);
        }
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
