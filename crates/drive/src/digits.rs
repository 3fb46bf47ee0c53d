//! sysbench's columns `c` and `pad`: groups of eleven random digits, joined by hyphens.

use rand::RngExt;

use crate::script::Random;

const GROUP: usize = 11;
/// A group and its hyphen.
const STRIDE: usize = GROUP + 1;

/// Length of a value of `c`: ten groups.
pub const C_LENGTH: usize = 10 * STRIDE - 1;
/// Length of a value of `pad`: five groups.
pub const PAD_LENGTH: usize = 5 * STRIDE - 1;

/// Random groups of digits, as long as the array.
#[must_use]
pub fn groups<const LENGTH: usize>(random: &mut Random) -> [u8; LENGTH] {
    let mut text = [b'-'; LENGTH];
    for group in text.chunks_mut(STRIDE) {
        // The fraction's next decimal digit is the carry of a multiplication by ten: one random number of 64 bits
        // gives all eleven, with a bias of less than one in a hundred million.
        let mut fraction: u64 = random.random();
        for digit in &mut group[..GROUP] {
            let product = u128::from(fraction) * 10;
            *digit = b'0' + (product >> 64) as u8;
            fraction = product as u64;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{C_LENGTH, PAD_LENGTH, groups};
    use crate::script::Random;
    use rand::SeedableRng;

    #[test]
    fn values_look_as_sysbench_makes_them() {
        let mut random = Random::seed_from_u64(1);
        let c = groups::<C_LENGTH>(&mut random);
        let pad = groups::<PAD_LENGTH>(&mut random);
        assert_eq!((c.len(), pad.len()), (119, 59));
        for (text, count) in [(&c[..], 10), (&pad[..], 5)] {
            let groups: Vec<&[u8]> = text.split(|byte| *byte == b'-').collect();
            assert_eq!(groups.len(), count);
            assert!(groups.iter().all(|group| group.len() == 11 && group.iter().all(u8::is_ascii_digit)));
        }
    }

    #[test]
    fn every_digit_is_as_likely_in_every_place() {
        let mut random = Random::seed_from_u64(1);
        let mut counts = [[0_u32; 10]; 11];
        for _ in 0..10_000 {
            for (place, digit) in groups::<11>(&mut random).iter().enumerate() {
                counts[place][usize::from(digit - b'0')] += 1;
            }
        }
        // 1,000 expected, with a standard deviation of 30.
        assert!(counts.iter().flatten().all(|count| count.abs_diff(1000) < 150), "{counts:?}");
    }
}
