//! When a sampler is left out of a tick: because its kind is not due, or because its source is not there.

use std::time::{Duration, Instant};

/// How long a sampler rests whose source this host or server does not have.
const ABSENT: Duration = Duration::from_secs(60);
/// What does not sample every tick takes at most this part of the time: 1%.
const COST_PART: u64 = 100;

pub struct Rest {
    every: Duration,
    until: Option<Instant>,
    is_absent: bool,
}

impl Rest {
    /// `every` is zero for what samples every tick.
    pub fn new(every: Duration) -> Self {
        Self { every, until: None, is_absent: false }
    }

    /// Whether it rests. On the last tick nothing does but what is absent, so that counters span the whole time.
    pub fn is_on(&self, now: Instant, is_last: bool) -> bool {
        self.until.is_some_and(|end| now < end) && (self.is_absent || !is_last)
    }

    /// After a sample: it is due a little sooner than it says, else a tick that came early would cost a whole round.
    pub fn after_sample(&mut self, start: Instant, cost_ns: u64) {
        let rest = self.every.max(Duration::from_nanos(cost_ns.saturating_mul(COST_PART)));
        self.until = (!self.every.is_zero()).then(|| start + rest.mul_f64(0.95));
        self.is_absent = false;
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
    }
}

#[cfg(test)]
mod tests {
    use super::Rest;
    use std::time::{Duration, Instant};

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
