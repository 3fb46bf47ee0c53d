//! Latency buckets: log-linear, 128 sub-buckets a power of two, so a bucket is at most 0.8% wide.
//!
//! The same formula stands in `src/headrace/store.py`; a test there holds the two together by way of
//! the hidden subcommand `buckets`.

use std::io::{BufRead, Write};

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
    use super::{bucket_bounds, bucket_of};
    use proptest::prelude::{any, prop_assert, proptest};

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
}
