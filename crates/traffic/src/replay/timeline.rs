//! When each event of a recording is sent: recorded time, idle stretches shortened, made faster or slower.

/// How fast a recording is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times as fast as it was recorded.
    Factor(f64),
    /// Each session sends its next statement as soon as it has the answer to the last.
    Max,
}

impl std::str::FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        let factor = text.strip_suffix('x').unwrap_or(text).parse::<f64>();
        match factor {
            Ok(factor) if (0.001..=1000.0).contains(&factor) => Ok(Speed::Factor(factor)),
            _ => Err("a factor from 0.001 to 1000, or max".to_owned()),
        }
    }
}

/// From recorded instants to those of the replay. Fed in the order of the recording.
#[derive(Debug)]
pub struct Timeline {
    speed: Speed,
    longest_idle_ns: Option<u64>,
    first_ns: Option<u64>,
    /// The latest instant at which anything was known to be at work.
    busy_until_ns: u64,
    cut_ns: u64,
}

impl Timeline {
    pub fn new(speed: Speed, longest_idle_ns: Option<u64>) -> Self {
        Self { speed, longest_idle_ns, first_ns: None, busy_until_ns: 0, cut_ns: 0 }
    }

    /// When an event is to be sent, in ns since the replay's start. `response_ns` is how long it took when it was
    /// recorded: while a client waits for an answer the server is not idle.
    pub fn instant(&mut self, start_ns: u64, response_ns: Option<u64>) -> u64 {
        let first_ns = *self.first_ns.get_or_insert(start_ns);
        if let Some(longest_ns) = self.longest_idle_ns
            && self.busy_until_ns > 0
        {
            let idle_ns = start_ns.saturating_sub(self.busy_until_ns);
            self.cut_ns += idle_ns.saturating_sub(longest_ns);
        }
        let end_ns = start_ns.saturating_add(response_ns.unwrap_or(0));
        self.busy_until_ns = self.busy_until_ns.max(end_ns);
        match self.speed {
            Speed::Max => 0,
            // An event out of order may lie before the first.
            Speed::Factor(factor) => {
                let since_ns = start_ns.saturating_sub(first_ns).saturating_sub(self.cut_ns);
                if factor == 1.0 { since_ns } else { (since_ns as f64 / factor) as u64 }
            }
        }
    }

    /// How much recorded time was left out.
    pub fn cut_ns(&self) -> u64 {
        self.cut_ns
    }
}

#[cfg(test)]
mod tests {
    use super::{Speed, Timeline};
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn speeds_in_words() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("2".parse(), Ok(Speed::Factor(2.0)));
        assert_eq!("0.5x".parse(), Ok(Speed::Factor(0.5)));
        for wrong in ["", "0", "-1", "nan", "inf", "fast"] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn idle_stretches_are_shortened_and_busy_ones_are_not() {
        let mut timeline = Timeline::new(Speed::Factor(2.0), Some(5 * SECOND));
        let start = 1_000 * SECOND;
        // The first takes 100 s: the server is not idle meanwhile.
        assert_eq!(timeline.instant(start, Some(100 * SECOND)), 0);
        assert_eq!(timeline.instant(start + 60 * SECOND, Some(1)), 30 * SECOND);
        // 20 s after the answer: 15 of them go.
        assert_eq!(timeline.instant(start + 120 * SECOND, None), 105 * SECOND / 2);
        assert_eq!(timeline.cut_ns(), 15 * SECOND);
    }

    proptest! {
        #[test]
        fn order_stays_and_speed_divides(
            gaps in proptest::collection::vec(0_u64..100 * SECOND, 1..50), skip in 0_u64..50 * SECOND,
        ) {
            let mut plain = Timeline::new(Speed::Factor(1.0), Some(skip));
            let mut fast = Timeline::new(Speed::Factor(4.0), Some(skip));
            let (mut now, mut last) = (SECOND, 0);
            for gap in gaps {
                now += gap;
                let at = plain.instant(now, None);
                prop_assert!(at >= last && at - last <= skip.max(gap.min(skip)), "{last} {at}");
                prop_assert_eq!(fast.instant(now, None), (at as f64 / 4.0) as u64);
                last = at;
            }
        }
    }
}
