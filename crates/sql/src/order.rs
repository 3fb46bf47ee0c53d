//! Pseudonyms in the order of their values: numbers with gaps between them that only the key knows, dates moved back by
//! as many weeks as the key says.
//!
//! As many different values, in order and within the same type, leave only one map: each value to itself. So something
//! has to give. Here small numbers stay, and the largest sixteenth of a type may no longer fit it.

use super::pseudonyms::{Words, days_of};

/// Which pseudonyms keep the order of their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    pub numbers: bool,
    pub dates: bool,
}

/// What pseudonyms depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheme {
    pub key: [u8; 32],
    pub order: Order,
}

/// Numbers below 2^12 stay: truth values, states, quantities and years fill their types.
const FIRST_OCTAVE: u32 = 12;
/// No gaps from 2^56 on: numbers of 64 bits then move by a part of 2^-4 of 2^56 at most, and nearly all of them still fit.
const END_OCTAVE: u32 = 56;
/// At most a sixteenth of an octave is gaps, at least half as many.
const PART: u64 = 16;
/// The largest 64-bit integers, signed and not: nothing passes them.
const ENDS: [u128; 2] = [1 << 63, 1 << 64];

/// A whole number, not below zero: strictly larger than the pseudonym of any smaller one, but for the last 2^53 of 63 and
/// of 64 bits, which may be equal.
pub fn whole(key: &[u8; 32], value: u128) -> u128 {
    if value < 1 << FIRST_OCTAVE {
        return value;
    }
    let words = Words::new(key, b'o', std::iter::empty());
    let octave = 127 - value.leading_zeros();
    let below: u128 =
        (FIRST_OCTAVE..octave.min(END_OCTAVE)).map(|octave| u128::from(all_gaps(&words, octave))).sum();
    let within = if octave < END_OCTAVE { gaps_before(&words, octave, value as u64) } else { 0 };
    let moved = value + below + u128::from(within);
    ENDS.into_iter().find(|end| value < *end).map_or(moved, |end| moved.min(end - 1))
}

/// How many numbers are left out between 2^octave and twice that.
fn all_gaps(words: &Words, octave: u32) -> u64 {
    let most = (1 << octave) / PART;
    most / 2 + words.word(u64::from(octave), 0) % (most / 2 + 1)
}

/// How many of them come before `value`: halves of the octave get a share that the key decides, then halves of these.
fn gaps_before(words: &Words, octave: u32, value: u64) -> u64 {
    let (mut start, mut size) = (1_u64 << octave, 1_u64 << octave);
    let (mut gaps, mut before) = (all_gaps(words, octave), 0);
    while size > 1 && gaps > 0 {
        size /= 2;
        let middle = start + size;
        // A quarter at least on either side, so that they do not pile up.
        let least = gaps / 4;
        let left = least + words.word(middle, size) % (gaps - 2 * least + 1);
        if value < middle {
            gaps = left;
        } else {
            before += left;
            gaps -= left;
            start = middle;
        }
    }
    before
}

/// One to eight years, in weeks: a Monday stays one.
const WEEKS: (u64, u64) = (53, 417);

/// A date, in days since 1970: earlier by as many days as all others. From the year 9999 on, which means "for ever", and
/// before 1009 it stays.
pub fn days(key: &[u8; 32], days: i64) -> i64 {
    let first = days_of(1009, 1, 1);
    if days < first || days >= days_of(9999, 1, 1) {
        return days;
    }
    let words = Words::new(key, b'w', std::iter::empty());
    let weeks = WEEKS.0 + words.word(0, 0) % (WEEKS.1 - WEEKS.0);
    (days - 7 * weeks as i64).max(first)
}

#[cfg(test)]
mod tests {
    use super::{days, whole};
    use crate::pseudonyms::days_of;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn dense_numbers_keep_their_order_and_differ() {
        let key = [7; 32];
        let mut last = None;
        let mut moved = 0;
        // Across powers of two and of ten, as the numbers of rows are.
        for value in (0..12_000).chain(98_000..102_000).chain(131_000..132_000) {
            let replaced = whole(&key, value);
            assert!(last < Some(replaced), "{value}");
            last = Some(replaced);
            moved += u32::from(replaced != value);
        }
        assert!(moved > 12_000, "{moved}");
        assert_ne!(whole(&key, 100_000), whole(&[8; 32], 100_000));
        // Gaps are everywhere, not in one place.
        let widths: Vec<_> = (0..9)
            .map(|at| whole(&key, 70_000 + 1000 * (at + 1)) - whole(&key, 70_000 + 1000 * at))
            .collect();
        assert!(widths.iter().all(|width| (1000..1400).contains(width)), "{widths:?}");
        assert!(widths.iter().max() > widths.iter().min(), "{widths:?}");
    }

    #[test]
    fn the_largest_numbers_stay_within_64_bits() {
        let key = [3; 32];
        for end in [1_u128 << 63, 1 << 64] {
            assert_eq!(whole(&key, end - 1), end - 1);
            assert!(whole(&key, end) > end);
            assert!(whole(&key, end - (1 << 53)) < whole(&key, end - (1 << 53) + 1));
        }
    }

    proptest! {
        #[test]
        fn a_larger_number_has_a_larger_pseudonym(
            key in any::<[u8; 32]>(), a in any::<u64>(), by in any::<u64>(), shift in 0..64_u32, by_shift in 0..64_u32,
        ) {
            let a = u128::from(a >> shift);
            let b = a + u128::from(by >> by_shift);
            let (low, high) = (whole(&key, a), whole(&key, b));
            prop_assert_eq!(a == b, low == high, "{} {} {} {}", a, b, low, high);
            prop_assert!(low <= high);
            // What is not in the last sixteenth of a type's numbers fits it.
            let end = (a + 1).next_power_of_two();
            prop_assert!((a..=a + end / 16).contains(&low), "{} {}", a, low);
        }

        #[test]
        fn a_later_date_has_a_later_pseudonym_and_distances_stay(
            key in any::<[u8; 32]>(), day in days_of(1020, 1, 1)..days_of(9998, 1, 1), by in 0..36_500_i64,
        ) {
            let later = (day + by).min(days_of(9998, 12, 31));
            prop_assert_eq!(days(&key, later) - days(&key, day), later - day);
            prop_assert!((day - 8 * 366..=day - 365).contains(&days(&key, day)));
            prop_assert_eq!((day - days(&key, day)) % 7, 0);
            prop_assert!(days(&key, later) < days(&key, days_of(9999, 12, 31)));
        }
    }
}
