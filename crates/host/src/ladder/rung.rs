//! A rung, and the summary of its repetitions.

use std::time::{Duration, Instant};

use serde::Serialize;

/// A latency that is measured repeatedly. `measure` runs until `until`, and pushes how many ns each repetition took.
pub trait Rung {
    fn about(&self) -> About;

    /// At least one repetition, then as many as fit.
    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()>;
}

/// What a reader must know to interpret the numbers.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    pub rung: &'static str,
    /// How it was measured; one repetition is what `per` says.
    pub method: String,
    /// One repetition: one operation, or the mean of enough to make the clock's own cost negligible.
    pub operations_per_repetition: usize,
    /// What could make these numbers misleading.
    pub spoiled_by: Vec<String>,
}

/// A rung that cannot be measured here, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    pub rung: &'static str,
    pub reason: String,
}

/// What can be measured, and what cannot.
pub type Rungs = (Vec<Box<dyn Rung>>, Vec<Missing>);

#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    pub repetitions: usize,
    pub median_ns: f64,
    pub p99_ns: f64,
    pub min_ns: f64,
    pub round_medians_ns: Vec<f64>,
    /// Of the median: between the order statistics of the rounds' medians, which no distribution is assumed for.
    pub low_ns: f64,
    pub high_ns: f64,
    /// The confidence that this interval has, for rounds that are independent.
    pub confidence: f64,
}

/// None without a repetition.
pub fn summarise(rounds: &[Vec<f64>]) -> Option<Summary> {
    let mut all: Vec<f64> = rounds.iter().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    let round_medians_ns: Vec<f64> = rounds.iter().filter_map(|round| median(round)).collect();
    let mut sorted = round_medians_ns.clone();
    sorted.sort_by(f64::total_cmp);
    let (depth, confidence) = sign_interval(sorted.len());
    Some(Summary {
        repetitions: all.len(),
        median_ns: quantile(&all, 0.5)?,
        p99_ns: quantile(&all, 0.99)?,
        min_ns: *all.first()?,
        low_ns: *sorted.get(depth)?,
        high_ns: *sorted.get(sorted.len() - 1 - depth)?,
        round_medians_ns,
        confidence,
    })
}

/// The interval of the sign test: from the value number `depth` (from 0) to the one as far from the end. The narrowest
/// of at least 95%, or the widest there is. (Conover, Practical Nonparametric Statistics, 3.2.)
fn sign_interval(rounds: usize) -> (usize, f64) {
    let mut tail = 0.5_f64.powi(rounds as i32);
    let mut term = tail;
    let mut best = (0, (1.0 - 2.0 * tail).max(0.0));
    for depth in 1..rounds / 2 {
        term *= (rounds - depth + 1) as f64 / depth as f64;
        tail += term;
        if 1.0 - 2.0 * tail < 0.95 {
            break;
        }
        best = (depth, 1.0 - 2.0 * tail);
    }
    best
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// The smallest value that at least this share of the values does not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// Runs `operation` until `until`, at least once, and times each.
pub fn time_each(
    until: Instant,
    into: &mut Vec<f64>,
    mut operation: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    loop {
        let start = Instant::now();
        operation()?;
        let end = Instant::now();
        into.push(nanoseconds(end - start));
        if end >= until {
            return Ok(());
        }
    }
}

pub fn nanoseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::{quantile, sign_interval, summarise};

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        assert_eq!(sign_interval(5), (0, 0.9375));
        assert_eq!(sign_interval(7), (0, 1.0 - 2.0 / 128.0));
        // Tables of the sign test give the third of 12 and the sixth of 20.
        assert_eq!(sign_interval(12).0, 2);
        assert_eq!(sign_interval(20).0, 5);
        assert_eq!(sign_interval(1), (0, 0.0));
        assert_eq!(sign_interval(0).0, 0);
    }

    #[test]
    fn a_summary_of_rounds() {
        let rounds = vec![vec![1.0, 3.0, 2.0], vec![5.0, 4.0, 6.0]];
        let summary = summarise(&rounds).unwrap();
        assert_eq!(summary.repetitions, 6);
        assert_eq!((summary.min_ns, summary.median_ns, summary.p99_ns), (1.0, 3.0, 6.0));
        assert_eq!(summary.round_medians_ns, [2.0, 5.0]);
        assert_eq!((summary.low_ns, summary.high_ns, summary.confidence), (2.0, 5.0, 0.5));
        assert!(summarise(&[vec![], vec![]]).is_none());
        assert!(summarise(&[]).is_none());
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), Some(50.0));
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
    }
}
