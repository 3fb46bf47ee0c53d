//! The time to which rates and loads of a digest refer.
//!
//! `headrace.traffic.digests.classes.Digest.span_ns` has the same rule for digests that were kept and merged; a test compares the
//! two.

use std::cmp::Reverse;

use crate::digest::class_stats::ClassStats;
use crate::digest::listing::Listing;
use crate::digest::slices::width_ns;

const SECOND_NS: u64 = 1_000_000_000;

impl Listing<'_> {
    /// Start and end, ns since 1970; None if no event has a time.
    ///
    /// From the first start to the last end (see `ClassStats::end_ns`). If the source's times are whole seconds, so are
    /// both, rounded outwards. With `--since` and `--until` it is the time between these.
    #[must_use]
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        let (mut start_ns, last_ns) = (self.totals.first_ns, self.totals.last_ns);
        if last_ns == 0 {
            return None;
        }
        // Judged by the one call of each class whose time is known exactly.
        let (mut end_ns, mut has_stamps, mut are_whole) = (0, false, true);
        for stats in self.all() {
            if let Some(stamp_ns) = stats.stamp_ns() {
                has_stamps = true;
                are_whole &= stamp_ns % SECOND_NS == 0;
            }
            if stats.last_ns > 0 {
                end_ns = end_ns.max(stats.end_ns(self.shift));
            }
        }
        if has_stamps && are_whole {
            // The end is never too early, and the true one is a whole second.
            start_ns -= start_ns % SECOND_NS;
            end_ns = (end_ns - end_ns % SECOND_NS).max(start_ns.saturating_add(SECOND_NS));
        }
        let selection = &self.digest.options.selection;
        if let (Some(since_ns), Some(until_ns)) = (selection.since_ns, selection.until_ns) {
            start_ns = start_ns.min(since_ns);
            // Calls that started before run past it.
            end_ns = if last_ns < until_ns { until_ns } else { end_ns };
        }
        Some((start_ns, end_ns))
    }
}

impl ClassStats {
    /// Start and response time of the slowest call (0 if the source has none); None without a time.
    fn slowest_ns(&self) -> Option<(u64, u64)> {
        let sample = self.sample.as_deref().filter(|sample| sample.start_ns > 0)?;
        let Reverse(response_ns) = sample.response_ns;
        Some((sample.start_ns, response_ns.unwrap_or(0)))
    }

    /// When the source says that one of the calls ended (or started, without a response time), if known.
    fn stamp_ns(&self) -> Option<u64> {
        if let Some((start_ns, response_ns)) = self.slowest_ns() {
            return Some(start_ns.saturating_add(response_ns));
        }
        let is_known = self.count == 1 && self.last_ns > 0;
        is_known
            .then(|| self.first_ns.saturating_add(u64::try_from(self.response.sum_ns).unwrap_or(u64::MAX)))
    }

    /// When the last of the calls ended.
    ///
    /// Exact for the slowest call, and for the last one to start if it is alone in its slice. Any other call is only
    /// known by its slice, and counts as if it had started last there: it may be too late by up to the width of a slice,
    /// but it is never too early.
    fn end_ns(&self, shift: u32) -> u64 {
        let slowest = self.slowest_ns();
        let mut end_ns = self.last_ns;
        if let Some((start_ns, response_ns)) = slowest {
            end_ns = end_ns.max(start_ns.saturating_add(response_ns));
        }
        for (number, slice) in self.slices.iter() {
            let slice_start_ns = number.saturating_mul(width_ns(shift));
            let slice_last_ns = slice_start_ns.saturating_add(width_ns(shift) - 1);
            let mut took_ns = slice.max_ns;
            if let Some((start_ns, response_ns)) = slowest
                && (slice_start_ns..=slice_last_ns).contains(&start_ns)
                && took_ns == response_ns
            {
                // Of the others in its slice only the sum is known.
                took_ns = took_ns.min(slice.sum_ns.saturating_sub(response_ns));
            }
            end_ns = end_ns.max(slice_last_ns.min(self.last_ns).saturating_add(took_ns));
        }
        end_ns
    }
}

#[cfg(test)]
mod tests {
    use super::SECOND_NS;
    use crate::digest::{Digest, DigestOptions};
    use crate::event::{Command, Event};
    use crate::filter::Selection;

    const START_NS: u64 = 1_700_000_000_000_000_000;

    /// Of each event: ns from `START_NS` to its start, and its response time in ns.
    fn digest(options: &DigestOptions, events: &[(u64, u64)]) -> Digest {
        let mut digest = Digest::new(options);
        for (after_ns, response_ns) in events {
            let mut event = Event::new(START_NS + after_ns, 1, Command::Query);
            (event.text, event.response_ns) = (b"SELECT 1", Some(*response_ns));
            digest.count(&event);
        }
        digest
    }

    fn span_ns(options: &DigestOptions, events: &[(u64, u64)]) -> (u64, u64) {
        let (start_ns, end_ns) = digest(options, events).listing().span_ns().unwrap();
        (start_ns - START_NS, end_ns - START_NS)
    }

    #[test]
    fn it_runs_to_the_last_end_or_as_was_asked() {
        let options = DigestOptions::default();
        assert_eq!(Digest::new(&options).listing().span_ns(), None);
        assert_eq!(span_ns(&options, &[(5, 60 * SECOND_NS)]), (5, 60 * SECOND_NS + 5), "one call");
        let events = [(5, 7 * SECOND_NS), (2 * SECOND_NS, 3)];
        assert_eq!(span_ns(&options, &events), (5, 7 * SECOND_NS + 5), "the first to start ends last");
        let window = Selection {
            since_ns: Some(START_NS),
            until_ns: Some(START_NS + 9 * SECOND_NS),
            ..Selection::default()
        };
        let options = DigestOptions { selection: window, ..options };
        assert_eq!(span_ns(&options, &events), (0, 9 * SECOND_NS));
    }

    #[test]
    fn whole_seconds_are_rounded_outwards() {
        // A log that stamps the end: the start is what is left after the response time.
        let ms = 1_000_000;
        let events: Vec<_> = (0..40).map(|place| (SECOND_NS - (place + 1) * ms, (place + 1) * ms)).collect();
        assert_eq!(span_ns(&DigestOptions::default(), &events), (0, SECOND_NS));
    }
}
