//! Latency buckets: log-linear, 128 sub-buckets per power of two, so a bucket is at most 0.8% wide.
//!
//! `src/headrace/base/buckets.py` has the same formula; a test there compares the two through the hidden subcommand
//! `buckets`.

use std::io::{BufRead, Write};

use serde::Serialize;

use crate::error::AgentError;

const SUB_BUCKET_BITS: u32 = 7;

/// The bucket of a latency in ns. Exact below 256 ns.
#[must_use]
pub fn bucket_of(value_ns: u64) -> u32 {
    let shift = (64 - value_ns.leading_zeros()).saturating_sub(SUB_BUCKET_BITS + 1);
    (shift << SUB_BUCKET_BITS) + u32::try_from(value_ns >> shift).expect("at most 255 after the shift")
}

/// The smallest and the largest latency in ns that falls into a bucket.
#[must_use]
pub fn bucket_bounds(bucket: u32) -> (u64, u64) {
    let shift = (bucket >> SUB_BUCKET_BITS).saturating_sub(1);
    let low = u64::from(bucket - (shift << SUB_BUCKET_BITS)) << shift;
    (low, low + ((1 << shift) - 1))
}

/// Latencies in ns in the buckets of `histogram`, with their exact extremes. It grows to its largest value.
#[derive(Default)]
pub struct Histogram {
    counts: Vec<u32>,
    count: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Histogram {
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        self.record_many(value_ns, 1);
    }

    #[inline]
    pub fn record_many(&mut self, value_ns: u64, times: u32) {
        let bucket = bucket_of(value_ns) as usize;
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += times;
        if self.count == 0 {
            self.min_ns = value_ns;
            self.max_ns = value_ns;
        } else {
            self.min_ns = self.min_ns.min(value_ns);
            self.max_ns = self.max_ns.max(value_ns);
        }
        self.count += u64::from(times);
    }

    /// Returns what was recorded and starts again from empty.
    pub fn take(&mut self) -> Sparse {
        if self.count == 0 {
            return Sparse::default();
        }
        let first = bucket_of(self.min_ns) as usize;
        let last = bucket_of(self.max_ns) as usize;
        let mut buckets = Vec::new();
        for (bucket, count) in self.counts[first..=last].iter_mut().enumerate() {
            if *count > 0 {
                buckets.push(((first + bucket) as u32, u64::from(*count)));
                *count = 0;
            }
        }
        self.count = 0;
        Sparse { min_ns: Some(self.min_ns), max_ns: Some(self.max_ns), buckets }
    }
}

/// A histogram as it is sent: only buckets with a count, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sparse {
    pub min_ns: Option<u64>,
    pub max_ns: Option<u64>,
    pub buckets: Vec<(u32, u64)>,
}

impl Sparse {
    pub fn add(&mut self, other: &Sparse) {
        self.min_ns = [self.min_ns, other.min_ns].into_iter().flatten().min();
        self.max_ns = [self.max_ns, other.max_ns].into_iter().flatten().max();
        let mut merged = Vec::with_capacity(self.buckets.len() + other.buckets.len());
        let (mut ours, mut theirs) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        loop {
            let next = match (ours.peek(), theirs.peek()) {
                (Some(a), Some(b)) if a.0 == b.0 => (a.0, ours.next().unwrap().1 + theirs.next().unwrap().1),
                (Some(a), Some(b)) if a.0 < b.0 => *ours.next().unwrap(),
                (_, Some(_)) => *theirs.next().unwrap(),
                (Some(_), None) => *ours.next().unwrap(),
                (None, None) => break,
            };
            merged.push(next);
        }
        self.buckets = merged;
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The latency that at least this share does not exceed, rounded up to its bucket's upper bound; never above the
    /// largest recorded one.
    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        let rank = ((share * self.count() as f64).ceil() as u64).max(1);
        let mut reached = 0;
        for (bucket, count) in &self.buckets {
            reached += count;
            if reached >= rank {
                return self.max_ns.map(|max| bucket_bounds(*bucket).1.min(max));
            }
        }
        None
    }
}

/// For each number of ns on a line of `input`, one line `value bucket low high`.
pub fn print_buckets(input: impl BufRead, mut output: impl Write) -> anyhow::Result<()> {
    for line in input.lines() {
        let line = line?;
        let value: u64 =
            line.trim().parse().map_err(|_| AgentError::Input(format!("{line:?} is not a number of ns")))?;
        let bucket = bucket_of(value);
        let (low, high) = bucket_bounds(bucket);
        writeln!(output, "{value} {bucket} {low} {high}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Histogram, Sparse, bucket_bounds, bucket_of};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn small_values_are_exact_and_buckets_are_contiguous() {
        for value in 0..256 {
            assert_eq!(bucket_of(value), u32::try_from(value).unwrap());
        }
        for bucket in 0..bucket_of(u64::MAX) {
            assert_eq!(bucket_bounds(bucket).1 + 1, bucket_bounds(bucket + 1).0, "after bucket {bucket}");
        }
        assert_eq!(bucket_bounds(bucket_of(u64::MAX)).1, u64::MAX);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_and_the_bucket_is_narrow(value in any::<u64>()) {
            let (low, high) = bucket_bounds(bucket_of(value));
            prop_assert!(low <= value && value <= high);
            prop_assert!((high - low) as f64 <= low as f64 / 128.0);
        }
    }

    fn sparse(values: &[u64]) -> Sparse {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram.take()
    }

    proptest! {
        #[test]
        fn merging_is_the_same_as_recording_together(
            a in proptest::collection::vec(0_u64..1 << 45, 0..60),
            b in proptest::collection::vec(0_u64..1 << 45, 0..60),
        ) {
            let mut merged = sparse(&a);
            merged.add(&sparse(&b));
            prop_assert_eq!(&merged, &sparse(&[a.clone(), b.clone()].concat()));
            prop_assert_eq!(merged.count() as usize, a.len() + b.len());
        }

        #[test]
        fn a_percentile_is_within_a_bucket_of_the_true_one(
            mut values in proptest::collection::vec(any::<u32>(), 1..200), share in 0.001..=1.0_f64,
        ) {
            let found = sparse(&values.iter().map(|v| u64::from(*v)).collect::<Vec<_>>()).percentile_ns(share);
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).max(1);
            prop_assert_eq!(bucket_of(found.unwrap()), bucket_of(values[rank - 1].into()));
        }
    }

    #[test]
    fn a_histogram_begins_anew() {
        let mut histogram = Histogram::default();
        histogram.record(7);
        histogram.record(4_000_000_000_000);
        assert_eq!(histogram.take().max_ns, Some(4_000_000_000_000));
        assert_eq!(histogram.take(), Sparse::default());
        histogram.record(9);
        assert_eq!(histogram.take(), Sparse { min_ns: Some(9), max_ns: Some(9), buckets: vec![(9, 1)] });
    }
}
