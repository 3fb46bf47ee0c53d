//! The measures of a class: exact sums and extremes, sums of squares, and histograms.
//!
//! Each event of each class comes here, and the memory of ten thousand classes is in no cache. So what is 0 or 1, as most
//! values are, is only counted, and all other values of a class share one table of counts.

use base::histogram::bucket_of;

use crate::measures::{Measure, Measures, Unit};

const COUNT: usize = Measure::ALL.len();

/// Sub-buckets of a power of two, as bits: a bucket is at most 6.3% wide. The values are no latencies, and the table stays
/// small.
const COARSE_BITS: u32 = 4;

/// The coarse bucket of a value. Exact below 32.
#[inline]
fn coarse_of(value: u64) -> u32 {
    let shift = (64 - value.leading_zeros()).saturating_sub(COARSE_BITS + 1);
    (shift << COARSE_BITS) + (value >> shift) as u32
}

/// The bucket of `histogram` in which the middle of a coarse bucket lies: one scale for all who read.
fn fine_of(coarse: u32) -> u32 {
    let shift = (coarse >> COARSE_BITS).saturating_sub(1);
    let low = u64::from(coarse - (shift << COARSE_BITS)) << shift;
    bucket_of(low + ((1_u64 << shift) >> 1))
}

/// The measures of the events of which they are known, by their places in the table.
#[derive(Clone, Debug)]
pub struct Measured {
    known: [u64; COUNT],
    positive: [Positive; COUNT],
    counts: Counts,
    /// Of `known`, those of which there is only a sum.
    summed: Option<Box<[u64; COUNT]>>,
}

/// The values above 0.
#[derive(Clone, Copy, Debug)]
struct Positive {
    sum: u64,
    min: u64,
    max: u64,
    ones: u64,
    /// Of the values above 1.
    sum_squares: u128,
}

/// One measure of a class, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summed {
    pub known: u64,
    /// Of these, those of which there is only the sum: then that is all that is known of the measure.
    pub summed: u64,
    pub sum: u64,
    pub sum_squares: u128,
    pub min: u64,
    pub max: u64,
    /// In the buckets of `histogram`, of each coarse bucket its middle; none of a flag, whose sum says it all.
    pub buckets: Vec<(u32, u64)>,
}

impl Default for Measured {
    fn default() -> Self {
        let nothing = Positive { sum: 0, min: u64::MAX, max: 0, ones: 0, sum_squares: 0 };
        Self { known: [0; COUNT], positive: [nothing; COUNT], counts: Counts::default(), summed: None }
    }
}

impl Measured {
    #[inline]
    pub fn add(&mut self, measures: &Measures) {
        for (measure, value) in measures.iter() {
            let place = measure as usize;
            self.known[place] += 1;
            if value == 0 {
                continue;
            }
            let positive = &mut self.positive[place];
            positive.sum = positive.sum.saturating_add(value);
            positive.min = positive.min.min(value);
            positive.max = positive.max.max(value);
            if value == 1 {
                positive.ones += 1;
                continue;
            }
            positive.sum_squares = positive.sum_squares.saturating_add(u128::from(value).pow(2));
            self.counts.add(key(place, coarse_of(value)), 1);
        }
    }

    /// Adds sums over so many events.
    pub fn add_sums(&mut self, sums: &Measures, events: u64) {
        for (measure, sum) in sums.iter() {
            let place = measure as usize;
            self.known[place] += events;
            self.summed.get_or_insert_default()[place] += events;
            self.positive[place].sum = self.positive[place].sum.saturating_add(sum);
        }
    }

    pub fn merge(&mut self, other: &Measured) {
        if let Some(others) = &other.summed {
            let summed = self.summed.get_or_insert_default();
            summed.iter_mut().zip(others.iter()).for_each(|(ours, theirs)| *ours += theirs);
        }
        for (known, other) in self.known.iter_mut().zip(&other.known) {
            *known += other;
        }
        for (positive, other) in self.positive.iter_mut().zip(&other.positive) {
            positive.sum = positive.sum.saturating_add(other.sum);
            positive.min = positive.min.min(other.min);
            positive.max = positive.max.max(other.max);
            positive.ones += other.ones;
            positive.sum_squares = positive.sum_squares.saturating_add(other.sum_squares);
        }
        for (key, count) in other.counts.iter() {
            self.counts.add(key, count);
        }
    }

    /// 0 where no event has it.
    pub fn sum(&self, measure: Measure) -> u64 {
        self.positive[measure as usize].sum
    }

    /// None where no event has it.
    pub fn get(&self, measure: Measure) -> Option<Summed> {
        let place = measure as usize;
        let (known, positive) = (self.known[place], &self.positive[place]);
        if known == 0 {
            return None;
        }
        let first = key(place, 0);
        let own = self.counts.iter().filter(|(key, _)| key & !COARSE_MASK == first);
        let mut buckets: Vec<_> =
            own.map(|(key, count)| (fine_of(u32::from(key & COARSE_MASK)), count)).collect();
        let more: u64 = buckets.iter().map(|(_, count)| count).sum();
        let summed = self.summed.as_deref().map_or(0, |summed| summed[place]);
        let zeros = known.saturating_sub(more + positive.ones + summed);
        buckets.extend([(0, zeros), (1, positive.ones)].into_iter().filter(|(_, count)| *count > 0));
        buckets.sort_unstable();
        if measure.row().unit == Unit::Flag {
            buckets.clear();
        }
        Some(Summed {
            known,
            summed,
            sum: positive.sum,
            sum_squares: positive.sum_squares.saturating_add(u128::from(positive.ones)),
            min: if zeros > 0 { 0 } else { positive.min },
            max: positive.max,
            buckets,
        })
    }
}

impl PartialEq for Measured {
    fn eq(&self, other: &Self) -> bool {
        Measure::ALL.into_iter().all(|measure| self.get(measure) == other.get(measure))
    }
}

const KEY_BITS: u32 = 16;
/// Coarse buckets have numbers below 2^10.
const COARSE_KEY_BITS: u32 = 10;
const COARSE_MASK: u16 = (1 << COARSE_KEY_BITS) - 1;
const MAX_COUNT: u64 = (1 << (64 - KEY_BITS)) - 1;
const _: () = assert!((64 - COARSE_BITS) << COARSE_BITS < 1 << COARSE_KEY_BITS, "bucket numbers fit");
const _: () = assert!(COUNT < 1 << (KEY_BITS - COARSE_KEY_BITS), "measures fit");

fn key(place: usize, coarse: u32) -> u16 {
    ((place as u16) << COARSE_KEY_BITS) | coarse as u16
}

/// Counts by key: open addressing, key and count in one word. A count is never 0, so an empty place is.
#[derive(Clone, Debug, Default)]
struct Counts {
    places: Vec<u64>,
    used: usize,
}

impl Counts {
    #[inline]
    fn add(&mut self, key: u16, count: u64) {
        if self.used * 4 >= self.places.len() * 3 {
            self.grow();
        }
        let mask = self.places.len() - 1;
        // Neighbours stay neighbours: they are in one line of the cache.
        let mut at = usize::from(key ^ (key >> COARSE_KEY_BITS).wrapping_mul(0x9E5)) & mask;
        loop {
            let found = self.places[at];
            if found == 0 {
                self.places[at] = word(key, count);
                self.used += 1;
                return;
            }
            if found as u16 == key {
                self.places[at] = word(key, (found >> KEY_BITS).saturating_add(count));
                return;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let length = (2 * self.places.len()).max(8);
        let old = std::mem::replace(&mut self.places, vec![0; length]);
        self.used = 0;
        for found in old.into_iter().filter(|found| *found > 0) {
            self.add(found as u16, found >> KEY_BITS);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.places.iter().filter(|found| **found > 0).map(|found| (*found as u16, found >> KEY_BITS))
    }
}

#[inline]
fn word(key: u16, count: u64) -> u64 {
    (count.min(MAX_COUNT) << KEY_BITS) | u64::from(key)
}

#[cfg(test)]
mod tests {
    use super::{Measured, coarse_of, fine_of};
    use crate::measures::{Measure, Measures};
    use base::histogram::bucket_bounds;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_coarse_bucket_is_read_to_within_4_percent(value in any::<u64>(), shift in 0_u32..64) {
            let value = value >> shift;
            let (low, high) = bucket_bounds(fine_of(coarse_of(value)));
            let read = low + (high - low) / 2;
            prop_assert!(read.abs_diff(value) as f64 <= 0.04 * value as f64, "{value} is read as {read}");
            prop_assert!(value >= 32 || read == value);
        }

        #[test]
        fn any_parts_come_to_what_a_list_comes_to(
            values in proptest::collection::vec((any::<u64>(), 20_u32..64, any::<bool>()), 1..200), cut in 0_usize..200,
        ) {
            let (mut whole, mut parts) = (Measured::default(), [Measured::default(), Measured::default()]);
            let mut lists = [Vec::new(), Vec::new()];
            for (number, (value, shift, is_both)) in values.iter().enumerate() {
                let value = value >> shift;
                let mut measures = Measures::default();
                measures.set(Measure::RowsExamined, value);
                lists[0].push(value);
                if *is_both {
                    measures.set(Measure::LockNs, value / 3);
                    lists[1].push(value / 3);
                }
                whole.add(&measures);
                parts[usize::from(number < cut)].add(&measures);
            }
            let [mut merged, other] = parts;
            merged.merge(&other);
            prop_assert_eq!(&merged, &whole);
            for (measure, list) in [(Measure::RowsExamined, &lists[0]), (Measure::LockNs, &lists[1])] {
                let Some(found) = whole.get(measure) else {
                    prop_assert!(list.is_empty());
                    continue;
                };
                let mut buckets = BTreeMap::new();
                list.iter().for_each(|value| *buckets.entry(fine_of(coarse_of(*value))).or_insert(0) += 1);
                prop_assert_eq!(found.known as usize, list.len());
                prop_assert_eq!(found.sum, list.iter().sum::<u64>());
                prop_assert_eq!(found.sum_squares, list.iter().map(|value| u128::from(*value).pow(2)).sum());
                prop_assert_eq!((Some(&found.min), Some(&found.max)), (list.iter().min(), list.iter().max()));
                prop_assert_eq!(found.buckets, buckets.into_iter().collect::<Vec<_>>());
            }
            prop_assert_eq!(whole.get(Measure::Warnings), None);
        }
    }
}
