//! The items: the key and value of a number. They depend only on the number, so that load, run and clean use the same
//! ones.

use serde::Deserialize;

use crate::mix::mix;

/// Distinguishes our keys from others in the same cache.
const PREFIX: &[u8] = b"hr:";
/// memcached's own limit.
const LONGEST_KEY: usize = 250;
/// The largest that `memcached -I` may be told to take.
const LARGEST_VALUE: usize = 1 << 30;
/// At how many offsets of the pool values start. Few, so that the pool of small values stays in the L1 cache.
const STARTS: u64 = 4096;

/// Lengths of keys, all equally likely.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyBytes {
    pub min: usize,
    pub max: usize,
}

impl Default for KeyBytes {
    fn default() -> Self {
        Self { min: 16, max: 32 }
    }
}

/// Lengths of values.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum ValueBytes {
    Fixed {
        bytes: usize,
    },
    /// All lengths equally likely.
    Uniform {
        min: usize,
        max: usize,
    },
    /// Rounded up. Lengths above `max` are drawn again, which makes the mean smaller than `mean`.
    Exponential {
        mean: f64,
        max: usize,
    },
}

impl Default for ValueBytes {
    fn default() -> Self {
        ValueBytes::Fixed { bytes: 100 }
    }
}

impl ValueBytes {
    fn largest(self) -> usize {
        match self {
            ValueBytes::Fixed { bytes } => bytes,
            ValueBytes::Uniform { max, .. } | ValueBytes::Exponential { max, .. } => max,
        }
    }

    fn is_possible(self) -> bool {
        let least = match self {
            ValueBytes::Uniform { min, .. } => min,
            ValueBytes::Exponential { mean, .. } if mean.is_nan() || mean <= 0.0 => return false,
            ValueBytes::Fixed { .. } | ValueBytes::Exponential { .. } => 1,
        };
        (1..=self.largest()).contains(&least) && self.largest() <= LARGEST_VALUE
    }

    /// `bits` are random.
    fn length(self, bits: u64) -> usize {
        match self {
            ValueBytes::Fixed { bytes } => bytes,
            ValueBytes::Uniform { min, max } => min + scaled(bits, (max - min + 1) as u64) as usize,
            ValueBytes::Exponential { mean, max } => {
                // The inverse of the distribution function, cut off at `max`.
                let below_max = -(-(max as f64) / mean).exp_m1();
                let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
                let length = -mean * (-unit * below_max).ln_1p();
                (length.ceil() as usize).clamp(1, max)
            }
        }
    }
}

/// Three independent draws from an item's number.
#[derive(Clone, Copy)]
enum Draw {
    KeyLength,
    ValueLength,
    Start,
}

impl Draw {
    fn bits(self, item: u64) -> u64 {
        mix(mix(item).wrapping_add(self as u64))
    }
}

/// Writes the requests of the items 0..count.
pub struct Items {
    count: u64,
    key_bytes: KeyBytes,
    value_bytes: ValueBytes,
    /// Random bytes; every value is a slice of them.
    pool: Vec<u8>,
}

impl Items {
    pub fn new(count: u64, key_bytes: KeyBytes, value_bytes: ValueBytes) -> Result<Self, String> {
        let KeyBytes { min, max } = key_bytes;
        let needed = PREFIX.len() + count.saturating_sub(1).to_string().len();
        if max > LONGEST_KEY {
            return Err(format!("key_bytes.max = {max}: memcached takes up to {LONGEST_KEY}"));
        }
        if min > max {
            return Err(format!("key_bytes.min = {min}: must not be above max, {max}"));
        }
        if min < needed {
            let prefix = String::from_utf8_lossy(PREFIX);
            return Err(format!(
                "key_bytes.min = {min}: {count} keys need {needed} bytes, {prefix:?} and a number"
            ));
        }
        if !value_bytes.is_possible() {
            return Err(format!("value_bytes: {value_bytes:?} gives no length from 1 to {LARGEST_VALUE}"));
        }
        let words = (value_bytes.largest() + STARTS as usize).div_ceil(size_of::<u64>());
        let pool = (0..words as u64).flat_map(|word| mix(word).to_le_bytes()).collect();
        Ok(Self { count, key_bytes, value_bytes, pool })
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The prefix, and the number padded with zeros to the key's length: all keys differ.
    pub fn write_key(&self, item: u64, out: &mut Vec<u8>) {
        let KeyBytes { min, max } = self.key_bytes;
        let length = min + scaled(Draw::KeyLength.bits(item), (max - min + 1) as u64) as usize;
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(item).as_bytes();
        out.extend_from_slice(PREFIX);
        out.resize(out.len() + length - PREFIX.len() - digits.len(), b'0');
        out.extend_from_slice(digits);
    }

    fn value(&self, item: u64) -> &[u8] {
        let start = scaled(Draw::Start.bits(item), STARTS) as usize;
        let length = self.value_bytes.length(Draw::ValueLength.bits(item));
        &self.pool[start..start + length]
    }

    pub fn write_get(&self, item: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"get ");
        self.write_key(item, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Always the same value, without expiry.
    pub fn write_set(&self, item: u64, out: &mut Vec<u8>) {
        let value = self.value(item);
        out.extend_from_slice(b"set ");
        self.write_key(item, out);
        out.extend_from_slice(b" 0 0 ");
        out.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    pub fn write_delete(&self, item: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"delete ");
        self.write_key(item, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// From 0 to below `count`, evenly.
fn scaled(bits: u64, count: u64) -> u64 {
    ((u128::from(bits) * u128::from(count)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::{Items, KeyBytes, ValueBytes};
    use std::collections::HashSet;

    const COUNT: u64 = 50_000;

    fn items(value_bytes: ValueBytes) -> Items {
        Items::new(COUNT, KeyBytes { min: 8, max: 12 }, value_bytes).unwrap()
    }

    fn key(items: &Items, item: u64) -> Vec<u8> {
        let mut key = Vec::new();
        items.write_key(item, &mut key);
        key
    }

    #[test]
    fn keys_differ_and_use_all_lengths_alike() {
        let items = items(ValueBytes::default());
        let mut counts = [0_u32; 13];
        let mut seen = HashSet::new();
        for item in 0..COUNT {
            let key = key(&items, item);
            counts[key.len()] += 1;
            assert!(key.starts_with(b"hr:") && key[3..].iter().all(u8::is_ascii_digit));
            assert!(seen.insert(key), "{item}");
        }
        assert_eq!(counts[..8], [0; 8]);
        // Each 10,000 with a standard deviation of 90.
        assert!(counts[8..].iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
    }

    #[test]
    fn items_are_the_same_in_every_version() {
        let items = items(ValueBytes::Uniform { min: 1, max: 20 });
        let mut out = Vec::new();
        items.write_get(7, &mut out);
        items.write_delete(49_999, &mut out);
        assert_eq!(out, b"get hr:00000007\r\ndelete hr:000049999\r\n");
        let mut out = Vec::new();
        items.write_set(7, &mut out);
        assert_eq!(out, b"set hr:00000007 0 0 4\r\n\x54\xf1\x23\x25\r\n");
    }

    #[test]
    fn lengths_of_values_follow_their_law() {
        let lengths = |law: ValueBytes| -> Vec<usize> {
            let items = items(law);
            (0..COUNT).map(|item| items.value(item).len()).collect()
        };
        let mean = |lengths: &[usize]| lengths.iter().sum::<usize>() as f64 / COUNT as f64;
        assert!(lengths(ValueBytes::Fixed { bytes: 3 }).iter().all(|length| *length == 3));
        let uniform = lengths(ValueBytes::Uniform { min: 10, max: 19 });
        assert_eq!((uniform.iter().min(), uniform.iter().max()), (Some(&10), Some(&19)));
        assert!((mean(&uniform) - 14.5).abs() < 0.1);
        // Never cut off in so few draws; rounding up adds half a byte.
        let exponential = lengths(ValueBytes::Exponential { mean: 300.0, max: 100_000 });
        assert!((mean(&exponential) - 300.5).abs() < 6.0, "{}", mean(&exponential));
        // Cut off at its mean m: m - m / (e - 1), which is 0.418 m.
        let cut = lengths(ValueBytes::Exponential { mean: 300.0, max: 300 });
        assert!((mean(&cut) - (0.418 * 300.0 + 0.5)).abs() < 2.0, "{}", mean(&cut));
        assert!(cut.iter().all(|length| (1..=300).contains(length)));
        // No heap at the end: the last tenth of the lengths is the rarest.
        assert!(cut.iter().filter(|length| **length > 270).count() < COUNT as usize / 10);
        let tiny = lengths(ValueBytes::Exponential { mean: 1e-9, max: 5 });
        assert!(tiny.iter().all(|length| *length == 1));
        let flat = lengths(ValueBytes::Exponential { mean: 1e12, max: 5 });
        assert!((mean(&flat) - 3.0).abs() < 0.05, "{}", mean(&flat));
    }

    #[test]
    fn values_are_random_bytes_of_their_own() {
        let items = items(ValueBytes::Fixed { bytes: 100 });
        let distinct: HashSet<&[u8]> = (0..1000).map(|item| items.value(item)).collect();
        assert!(distinct.len() > 850, "{}", distinct.len());
        let bytes: HashSet<u8> = (0..100).flat_map(|item| items.value(item)).copied().collect();
        assert_eq!(bytes.len(), 256);
    }
}
