//! When operations of an open loop start, regardless of the server: a Poisson process or even steps, at a rate that
//! is constant or follows a profile.
//!
//! Arrivals of unit rate are carried through the inverse of the cumulative rate, so one generator serves every
//! profile. Positions are relative to the current piece of the profile, so rounding errors do not add up over
//! hours.

use rand::{RngExt, SeedableRng};
use serde::Deserialize;

use crate::client::Random;

/// How arrivals at a given rate are spread.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Law {
    /// Independent of each other, like the requests of many users.
    #[default]
    Poisson,
    /// Evenly spaced.
    Constant,
}

/// How long a client of a closed loop rests between its operations.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Think {
    #[default]
    Constant,
    Exponential,
}

/// A part of a profile over which the rate changes linearly.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    pub seconds: f64,
    pub from_ops_s: f64,
    pub to_ops_s: f64,
}

impl Piece {
    /// The expected number of arrivals in it.
    fn arrivals(self) -> f64 {
        (self.from_ops_s + self.to_ops_s) / 2.0 * self.seconds
    }

    /// The time in s by which `arrivals` have come; at most the whole piece.
    fn time_of(self, arrivals: f64) -> f64 {
        let slope = (self.to_ops_s - self.from_ops_s) / self.seconds;
        // The root of from * t + slope * t^2 / 2 = arrivals, in the form that neither divides by a small slope
        // nor subtracts numbers that are nearly equal.
        let root = (self.from_ops_s.powi(2) + 2.0 * slope * arrivals).max(0.0).sqrt();
        let time = 2.0 * arrivals / (self.from_ops_s + root);
        if time.is_nan() { 0.0 } else { time.min(self.seconds) }
    }
}

/// The arrivals of one part of the load, in ns since the start of the warm-up, ascending. It never ends.
#[derive(Debug)]
pub struct Arrivals {
    law: Law,
    pieces: Vec<Piece>,
    /// Arrivals of the whole load per arrival of this part.
    of: f64,
    place: usize,
    /// When the piece at work began.
    piece_start_s: f64,
    whole_rounds_ns: u64,
    /// Arrivals of the whole load since then, up to this part's next one.
    position: f64,
    random: Random,
}

impl Arrivals {
    /// Part `index` of `of`. The profile repeats.
    pub fn new(law: Law, pieces: &[Piece], index: usize, of: usize, seed: u64) -> Result<Self, String> {
        for (place, piece) in pieces.iter().enumerate() {
            let Piece { seconds, from_ops_s, to_ops_s } = *piece;
            if !(seconds > 0.0 && seconds < 1e9) {
                return Err(format!("piece {place} of the profile: {seconds} s is no length"));
            }
            for rate in [from_ops_s, to_ops_s] {
                if !(0.0..=1e9).contains(&rate) {
                    return Err(format!("piece {place} of the profile: {rate}/s is no rate"));
                }
            }
        }
        if pieces.iter().map(|piece| piece.arrivals()).sum::<f64>() < 1e-6 {
            return Err("the profile has no arrivals".to_owned());
        }
        let of_total = of as f64;
        let mut random = Random::seed_from_u64(seed.wrapping_add(1 + index as u64));
        let position = match law {
            Law::Poisson => random.sample::<f64, _>(rand_distr::Exp1) * of_total,
            // The even steps of the parts alternate.
            Law::Constant => index as f64,
        };
        Ok(Self {
            law,
            pieces: pieces.to_vec(),
            of: of_total,
            place: 0,
            piece_start_s: 0.0,
            whole_rounds_ns: 0,
            position,
            random,
        })
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let mut piece = self.pieces[self.place];
        while self.position >= piece.arrivals() {
            self.position -= piece.arrivals();
            self.piece_start_s += piece.seconds;
            self.place += 1;
            if self.place == self.pieces.len() {
                self.place = 0;
                self.whole_rounds_ns += (self.piece_start_s * 1e9) as u64;
                self.piece_start_s = 0.0;
            }
            piece = self.pieces[self.place];
        }
        let time_s = self.piece_start_s + piece.time_of(self.position);
        self.position += match self.law {
            Law::Poisson => self.random.sample::<f64, _>(rand_distr::Exp1) * self.of,
            Law::Constant => self.of,
        };
        Some(self.whole_rounds_ns + (time_s * 1e9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrivals, Law, Piece};
    use proptest::prelude::{any, prop_assert, proptest};

    const SECOND: u64 = 1_000_000_000;

    fn steady(rate: f64) -> Vec<Piece> {
        vec![Piece { seconds: 10.0, from_ops_s: rate, to_ops_s: rate }]
    }

    fn until(law: Law, pieces: &[Piece], index: usize, of: usize, end_ns: u64) -> Vec<u64> {
        Arrivals::new(law, pieces, index, of, 3).unwrap().take_while(|at| *at < end_ns).collect()
    }

    #[test]
    fn even_steps_do_not_drift() {
        let arrivals = until(Law::Constant, &steady(3.0), 0, 1, 100_000 * SECOND);
        assert_eq!(arrivals.len(), 300_000);
        // There is an arrival at every whole second, even after ten thousand rounds.
        assert!(arrivals.iter().step_by(3).enumerate().all(|(s, at)| at.abs_diff(s as u64 * SECOND) < 10));
    }

    #[test]
    fn even_steps_of_parts_lie_between_each_other() {
        let mut all: Vec<u64> =
            (0..4).flat_map(|index| until(Law::Constant, &steady(1000.0), index, 4, SECOND)).collect();
        all.sort_unstable();
        assert_eq!(all.len(), 1000);
        assert!(all.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(1_000_000) < 10));
    }

    #[test]
    fn poisson_arrivals_come_at_the_rate_and_are_spread_as_such() {
        let mut counts = vec![0_f64; 2000];
        for index in 0..2 {
            for at in until(Law::Poisson, &steady(50.0), index, 2, 2000 * SECOND) {
                counts[(at / SECOND) as usize] += 1.0;
            }
        }
        let mean = counts.iter().sum::<f64>() / 2000.0;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 1999.0;
        // The standard error of the mean is 0.16; of the variance, 1.6.
        assert!((mean - 50.0).abs() < 0.8, "{mean}");
        assert!((variance - 50.0).abs() < 8.0, "{variance}");
    }

    #[test]
    fn a_profile_has_its_arrivals_where_its_rate_is() {
        let pieces = [
            Piece { seconds: 10.0, from_ops_s: 0.0, to_ops_s: 200.0 },
            Piece { seconds: 5.0, from_ops_s: 0.0, to_ops_s: 0.0 },
            Piece { seconds: 5.0, from_ops_s: 200.0, to_ops_s: 0.0 },
        ];
        let arrivals = until(Law::Constant, &pieces, 0, 1, 40 * SECOND);
        let between = |from: u64, to: u64| {
            arrivals.iter().filter(|at| (from * SECOND..to * SECOND).contains(at)).count() as i64
        };
        // The integral of the rate: half of a ramp has a quarter of its arrivals.
        for (from, to, expected) in [(0, 5, 250), (5, 10, 750), (10, 15, 0), (15, 20, 500), (20, 25, 250)] {
            assert!((between(from, to) - expected).abs() <= 1, "{from} to {to}: {}", between(from, to));
        }
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        for (seconds, from_ops_s, to_ops_s) in [
            (0.0, 1.0, 1.0),
            (1.0, -1.0, 1.0),
            (1.0, 0.0, 0.0),
            (f64::NAN, 1.0, 1.0),
            (1.0, 1.0, f64::INFINITY),
        ] {
            let pieces = [Piece { seconds, from_ops_s, to_ops_s }];
            assert!(Arrivals::new(Law::Poisson, &pieces, 0, 1, 1).is_err());
        }
        assert!(Arrivals::new(Law::Poisson, &[], 0, 1, 1).is_err());
    }

    proptest! {
        #[test]
        fn arrivals_ascend(
            pieces in proptest::collection::vec((0.001..100.0_f64, 0.0..1e5_f64, 0.0..1e5_f64), 1..5),
            is_poisson in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let pieces: Vec<Piece> = pieces
                .into_iter()
                .map(|(seconds, from_ops_s, to_ops_s)| Piece { seconds, from_ops_s, to_ops_s })
                .collect();
            let law = if is_poisson { Law::Poisson } else { Law::Constant };
            let Ok(arrivals) = Arrivals::new(law, &pieces, 0, 1, seed) else { return Ok(()) };
            let arrivals: Vec<u64> = arrivals.take(1000).collect();
            prop_assert!(arrivals.windows(2).all(|pair| pair[0] <= pair[1]));
        }
    }
}
