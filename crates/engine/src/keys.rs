//! Which keys are accessed: the distributions from which a key is drawn.

use rand::RngExt;
use rand_distr::{Distribution as _, Zipf};
use serde::Deserialize;

use crate::client::Random;

/// How many uniform draws sysbench averages for its gaussian distribution (its default iterations); they make a
/// bell from end to end.
const GAUSSIAN_DRAWS: u32 = 12;
/// sysbench's defaults for its special distribution: the share of the draws that are special, and the share of the
/// keys that these hit.
const SPECIAL_DRAWS: f64 = 0.75;
const SPECIAL_KEYS: f64 = 0.01;

/// A distribution over keys. Except for `gaussian` and `special`, which favour the middle, low keys are the popular
/// ones, as in sysbench: neighbours in popularity are neighbours in the primary key, so popular rows share pages.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Distribution {
    #[default]
    Uniform,
    /// A share 1 - h of the draws falls on a share h of the keys, and so on within these.
    Pareto {
        #[serde(default = "pareto_h")]
        h: f64,
    },
    /// The key of rank r is drawn in proportion to r to the power of -exponent.
    Zipf {
        #[serde(default = "zipf_exponent")]
        exponent: f64,
    },
    /// The mean of 12 uniform draws.
    Gaussian,
    /// sysbench 1.0's default: three draws in four fall on a hundredth of the keys in the middle, evenly, the
    /// others as in `gaussian`. As there, one uniform draw decides which and then where, so that only the upper
    /// three quarters of the hundredth are hit.
    Special,
    /// A share of the keys gets a share of the operations; both groups are uniform.
    Hot {
        #[serde(default = "hot_keys")]
        keys: f64,
        #[serde(default = "hot_operations")]
        operations: f64,
    },
}

/// Draws keys between two bounds, both included.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    low: i64,
    count: u64,
    law: Law,
}

#[derive(Clone, Copy, Debug)]
enum Law {
    Uniform,
    Pareto { power: f64 },
    Zipf(Zipf<f64>),
    Gaussian,
    Special,
    Hot { hot: u64, operations: f64 },
}

impl Keys {
    /// Fails with what is wrong with the distribution or the bounds.
    pub fn new(distribution: &Distribution, low: i64, high: i64) -> Result<Self, String> {
        if high < low {
            return Err(format!("there is no key between {low} and {high}"));
        }
        let count = high.abs_diff(low).checked_add(1).ok_or("too many keys")?;
        let law = match *distribution {
            Distribution::Uniform => Law::Uniform,
            Distribution::Pareto { h } if h > 0.0 && h < 1.0 => {
                Law::Pareto { power: h.ln() / (1.0 - h).ln() }
            }
            Distribution::Pareto { h } => return Err(format!("h = {h}: must be between 0 and 1")),
            Distribution::Zipf { exponent } if exponent > 0.0 && exponent.is_finite() => {
                Law::Zipf(Zipf::new(count as f64, exponent).map_err(|error| error.to_string())?)
            }
            Distribution::Zipf { exponent } => return Err(format!("exponent = {exponent}: must be above 0")),
            Distribution::Gaussian => Law::Gaussian,
            Distribution::Special => Law::Special,
            Distribution::Hot { keys, operations } => {
                for (name, share) in [("keys", keys), ("operations", operations)] {
                    if !(0.0..=1.0).contains(&share) {
                        return Err(format!("{name} = {share}: must be a share from 0 to 1"));
                    }
                }
                let hot = ((keys * count as f64).round() as u64).clamp(1, count);
                Law::Hot { hot, operations }
            }
        };
        Ok(Self { low, count, law })
    }

    /// How many keys there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    pub fn draw(&self, random: &mut Random) -> i64 {
        let offset = match &self.law {
            Law::Uniform => random.random_range(0..self.count),
            Law::Pareto { power } => self.scaled(random.random::<f64>().powf(*power)),
            // Ranks begin at 1.
            Law::Zipf(zipf) => zipf.sample(random) as u64 - 1,
            Law::Gaussian => self.scaled(bell(random)),
            Law::Special => {
                let span = (self.count - 1) as f64;
                let unit = random.random::<f64>();
                if unit < 1.0 - SPECIAL_DRAWS {
                    (bell(random) * span) as u64
                } else {
                    let band = SPECIAL_KEYS * span;
                    ((span - band) / 2.0 + unit * (band + 1.0)) as u64
                }
            }
            Law::Hot { hot, operations } => {
                if *hot == self.count || random.random::<f64>() < *operations {
                    random.random_range(0..*hot)
                } else {
                    random.random_range(*hot..self.count)
                }
            }
        };
        // Rounding may reach the upper bound but must not exceed it.
        self.low.wrapping_add_unsigned(offset.min(self.count - 1))
    }

    fn scaled(&self, unit: f64) -> u64 {
        (unit * self.count as f64) as u64
    }
}

/// The mean of some uniform draws.
fn bell(random: &mut Random) -> f64 {
    (0..GAUSSIAN_DRAWS).map(|_| random.random::<f64>()).sum::<f64>() / f64::from(GAUSSIAN_DRAWS)
}

fn pareto_h() -> f64 {
    0.2
}

fn zipf_exponent() -> f64 {
    0.8
}

fn hot_keys() -> f64 {
    0.01
}

fn hot_operations() -> f64 {
    0.75
}

#[cfg(test)]
mod tests {
    use super::{Distribution, Keys};
    use crate::client::Random;
    use proptest::prelude::{Just, Strategy, any, prop_assert, prop_oneof, proptest};
    use rand::SeedableRng;

    const DRAWS: usize = 200_000;

    /// Which share of the draws falls on the lowest `share` of 1,000 keys.
    fn share_below(distribution: Distribution, share: f64) -> f64 {
        let keys = Keys::new(&distribution, 1, 1000).unwrap();
        let mut random = Random::seed_from_u64(7);
        let below = (0..DRAWS).filter(|_| keys.draw(&mut random) as f64 <= share * 1000.0).count();
        below as f64 / DRAWS as f64
    }

    fn assert_near(found: f64, expected: f64) {
        // Four standard deviations of a share of 200,000 draws are below 0.005.
        assert!((found - expected).abs() < 0.005, "{found} is not {expected}");
    }

    #[test]
    fn shares_are_those_of_the_laws() {
        assert_near(share_below(Distribution::Uniform, 0.2), 0.2);
        assert_near(share_below(Distribution::Pareto { h: 0.2 }, 0.2), 0.8);
        assert_near(share_below(Distribution::Pareto { h: 0.2 }, 0.04), 0.64);
        assert_near(share_below(Distribution::Hot { keys: 0.1, operations: 0.75 }, 0.1), 0.75);
        assert_near(share_below(Distribution::Hot { keys: 0.1, operations: 0.75 }, 0.55), 0.875);
        let weight = |rank: u32| f64::from(rank).powf(-0.8);
        let expected = (1..=100).map(weight).sum::<f64>() / (1..=1000).map(weight).sum::<f64>();
        assert_near(share_below(Distribution::Zipf { exponent: 0.8 }, 0.1), expected);
        // The mean of 12 draws has a standard deviation of 1/12: one of them below the middle are 15.9%.
        assert_near(share_below(Distribution::Gaussian, 0.5), 0.5);
        assert_near(share_below(Distribution::Gaussian, 0.5 - 1.0 / 12.0), 0.159);
    }

    #[test]
    fn the_special_law_is_that_of_sysbench() {
        // `sysbench.rand.special(1, 1000)` of sysbench 1.0.20, 200,000 draws: these keys, and how many fell on each.
        let found =
            [(498, 13835), (499, 18474), (502, 18346), (505, 18222), (506, 9054), (488, 280), (496, 226)];
        let keys = Keys::new(&Distribution::Special, 1, 1000).unwrap();
        let mut random = Random::seed_from_u64(7);
        let mut counts = vec![0_u64; 1001];
        for _ in 0..DRAWS {
            counts[keys.draw(&mut random) as usize] += 1;
        }
        for (key, expected) in found {
            let off = counts[key].abs_diff(expected);
            // The two differ by chance: four standard deviations of a difference.
            assert!(off.pow(2) < 16 * 2 * expected, "{key}: {} and not {expected}", counts[key]);
        }
        assert!(counts[..150].iter().chain(&counts[850..]).sum::<u64>() < 20);
    }

    #[test]
    fn what_is_no_law_is_refused() {
        for distribution in [
            Distribution::Pareto { h: 0.0 },
            Distribution::Pareto { h: 1.0 },
            Distribution::Zipf { exponent: -1.0 },
            Distribution::Zipf { exponent: f64::NAN },
            Distribution::Hot { keys: 1.5, operations: 0.5 },
            Distribution::Hot { keys: 0.5, operations: f64::NAN },
        ] {
            assert!(Keys::new(&distribution, 1, 10).is_err(), "{distribution:?}");
        }
        assert!(Keys::new(&Distribution::Uniform, 2, 1).is_err());
        assert!(Keys::new(&Distribution::Uniform, i64::MIN, i64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn the_bounds_are_never_left(
            low in any::<i32>(), count in 1_i64..2_000_000_000, seed in any::<u64>(),
            distribution in prop_oneof![
                Just(Distribution::Uniform),
                (0.001..0.999).prop_map(|h| Distribution::Pareto { h }),
                (0.01..5.0).prop_map(|exponent| Distribution::Zipf { exponent }),
                Just(Distribution::Gaussian),
                Just(Distribution::Special),
                (0.0..=1.0, 0.0..=1.0).prop_map(|(keys, operations)| Distribution::Hot { keys, operations }),
            ],
        ) {
            let low = i64::from(low);
            let keys = Keys::new(&distribution, low, low + count - 1).unwrap();
            let mut random = Random::seed_from_u64(seed);
            for _ in 0..50 {
                let key = keys.draw(&mut random);
                prop_assert!((low..low + count).contains(&key));
            }
        }
    }
}
