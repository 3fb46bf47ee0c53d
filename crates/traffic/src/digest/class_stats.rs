//! All that is counted of one class: integers only, so that sums are the same in any order.

use std::cmp::Reverse;

use crate::digest::measured::Measured;
use crate::digest::names::{KEPT_PER_CLASS, Names, Sender};
use crate::digest::pages::Pages;
use crate::digest::slices::{Activity, Slices, second_of};
use crate::event::{Event, Outcome, Summary};
use crate::measures::Measures;

/// How many numbers of errors a class keeps.
const KEPT_ERRORS: usize = 64;

/// Errors by number: the lowest are kept, which depends on nothing but the numbers seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Ascending by number.
    kept: Vec<(u16, u64)>,
    pub other: u64,
}

impl Errors {
    fn add(&mut self, number: u16, count: u64) {
        match self.kept.binary_search_by_key(&number, |(kept, _)| *kept) {
            Ok(place) => self.kept[place].1 += count,
            Err(KEPT_ERRORS) => self.other += count,
            Err(place) => {
                self.kept.insert(place, (number, count));
                if self.kept.len() > KEPT_ERRORS {
                    self.other += self.kept.pop().map_or(0, |(_, count)| count);
                }
            }
        }
    }

    fn merge(&mut self, other: &Errors) {
        self.other += other.other;
        for (number, count) in &other.kept {
            self.add(*number, *count);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.kept.iter().copied()
    }
}

/// Times: exact sums and the histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    pub count: u64,
    pub sum_ns: u128,
    /// Of the squares, in ns².
    pub sum_squares: u128,
    pub min_ns: u64,
    pub max_ns: u64,
    pub pages: Pages,
}

impl Default for Times {
    fn default() -> Self {
        Self { count: 0, sum_ns: 0, sum_squares: 0, min_ns: u64::MAX, max_ns: 0, pages: Pages::default() }
    }
}

impl Times {
    #[inline]
    pub fn add(&mut self, value_ns: u64) {
        self.count += 1;
        self.sum_ns += u128::from(value_ns);
        // Saturating sums of what is not negative are the same in any order too.
        self.sum_squares = self.sum_squares.saturating_add(u128::from(value_ns).pow(2));
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
        self.pages.record(value_ns);
    }

    pub fn merge(&mut self, other: &Times) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.sum_squares = self.sum_squares.saturating_add(other.sum_squares);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.pages.merge(&other.pages);
    }

    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        self.pages.percentile_ns(share, self.max_ns)
    }

    /// Variance to mean in s, as pt-query-digest's V/M.
    pub fn variance_to_mean_s(&self) -> f64 {
        if self.count == 0 || self.sum_ns == 0 {
            return 0.0;
        }
        let mean_ns = self.sum_ns as f64 / self.count as f64;
        let variance = (self.sum_squares as f64 / self.count as f64 - mean_ns * mean_ns).max(0.0);
        variance / mean_ns / 1e9
    }
}

/// One event as an example. The smallest by its order is kept: the slowest, then the earliest, then by text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    pub response_ns: Reverse<Option<u64>>,
    pub start_ns: u64,
    /// Its passwords are gone; cut.
    pub text: Vec<u8>,
    pub text_bytes: usize,
    pub is_cut: bool,
    pub is_redacted: bool,
    pub session: u64,
    pub user: Vec<u8>,
    pub host: Vec<u8>,
    pub database: Vec<u8>,
    pub command: String,
    pub error: Option<u16>,
    pub measures: Measures,
}

/// What is counted of an event, apart from who sent it and its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// 0 where it is not known.
    pub start_ns: u64,
    pub response_ns: Option<u64>,
    pub first_byte_ns: Option<u64>,
    pub outcome: Outcome,
    pub measures: Measures,
}

impl Moment {
    #[inline]
    pub fn of(event: &Event<'_>) -> Self {
        Self {
            start_ns: event.start_ns,
            response_ns: event.response_ns,
            first_byte_ns: event.first_byte_ns,
            outcome: event.outcome,
            measures: event.measures,
        }
    }

    /// The number of its slice, where it has a time.
    #[inline]
    pub fn slice(&self, shift: u32) -> Option<u64> {
        (self.start_ns != 0).then(|| second_of(self.start_ns) >> shift)
    }
}

/// The calls of a class that a server summed up itself: in its counts, sums and extremes, and in nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summarised {
    pub calls: u64,
    /// Rows of the server's table. The percentiles of one row are the class's; those of several say nothing together.
    pub rows: u64,
    pub quantiles_ns: [Option<u64>; 3],
    /// The shortest, or the longest, call of some of them is not known.
    pub lacks_min: bool,
    pub lacks_max: bool,
}

impl Summarised {
    fn merge(&mut self, other: &Summarised) {
        let quantiles_ns = if self.rows == 0 { other.quantiles_ns } else { self.quantiles_ns };
        self.calls += other.calls;
        self.rows += other.rows;
        self.quantiles_ns = if self.rows == 1 { quantiles_ns } else { [None; 3] };
        self.lacks_min |= other.lacks_min;
        self.lacks_max |= other.lacks_max;
    }
}

/// What is counted of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassStats {
    pub count: u64,
    pub failed: u64,
    pub unanswered: u64,
    /// Events of which the source does not say whether they failed.
    pub unjudged: u64,
    pub errors: Errors,
    pub response: Times,
    pub first_byte: Option<Box<Times>>,
    pub summarised: Option<Box<Summarised>>,
    pub measures: Measured,
    /// u64::MAX and 0 without a dated event.
    pub first_ns: u64,
    pub last_ns: u64,
    pub slices: Slices<Activity>,
    pub users: Names,
    pub hosts: Names,
    pub databases: Names,
    pub sample: Option<Box<Sample>>,
}

impl Default for ClassStats {
    fn default() -> Self {
        Self {
            count: 0,
            failed: 0,
            unanswered: 0,
            unjudged: 0,
            errors: Errors::default(),
            response: Times::default(),
            first_byte: None,
            summarised: None,
            measures: Measured::default(),
            first_ns: u64::MAX,
            last_ns: 0,
            slices: Slices::default(),
            users: Names::default(),
            hosts: Names::default(),
            databases: Names::default(),
            sample: None,
        }
    }
}

impl ClassStats {
    /// Counts all but the example; true if the slice is new.
    #[inline]
    pub fn add(&mut self, moment: &Moment, sender: &Sender, shift: u32) -> bool {
        self.count += 1;
        match moment.outcome {
            Outcome::Error(number) => {
                self.failed += 1;
                self.errors.add(number, 1);
            }
            Outcome::Unanswered => self.unanswered += 1,
            Outcome::Unknown => self.unjudged += 1,
            Outcome::Ok => {}
        }
        if let Some(response_ns) = moment.response_ns {
            self.response.add(response_ns);
        }
        if let Some(first_byte_ns) = moment.first_byte_ns {
            self.first_byte.get_or_insert_default().add(first_byte_ns);
        }
        self.measures.add(&moment.measures);
        let sum_ns = moment.response_ns.unwrap_or(0);
        self.users.add(&sender.user, 1, sum_ns, KEPT_PER_CLASS);
        self.hosts.add(&sender.host, 1, sum_ns, KEPT_PER_CLASS);
        self.databases.add(&sender.database, 1, sum_ns, KEPT_PER_CLASS);
        moment.slice(shift).is_some_and(|number| self.add_dated(moment, number))
    }

    /// Counts what a server summed up: all but the names and the sample.
    pub fn add_summary(&mut self, summary: &Summary<'_>) {
        self.count += summary.count;
        match summary.failed {
            Some(failed) => self.failed += failed,
            None => self.unjudged += summary.count,
        }
        self.response.count += summary.count;
        self.response.sum_ns += u128::from(summary.sum_ns);
        self.response.min_ns = self.response.min_ns.min(summary.min_ns.unwrap_or(u64::MAX));
        self.response.max_ns = self.response.max_ns.max(summary.max_ns.unwrap_or(0));
        self.measures.add_sums(&summary.measures, summary.count);
        if summary.first_ns > 0 && summary.last_ns > 0 {
            self.first_ns = self.first_ns.min(summary.first_ns);
            self.last_ns = self.last_ns.max(summary.last_ns);
        }
        self.summarised.get_or_insert_default().merge(&Summarised {
            calls: summary.count,
            rows: 1,
            quantiles_ns: summary.quantiles_ns,
            lacks_min: summary.min_ns.is_none(),
            lacks_max: summary.max_ns.is_none(),
        });
    }

    /// A percentile of the response times; `None` where it is not known of all calls together.
    #[must_use]
    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        let Some(summarised) = &self.summarised else { return self.response.percentile_ns(share) };
        let place = [0.95, 0.99, 0.999].iter().position(|known: &f64| (known - share).abs() < 1e-9)?;
        if summarised.calls == self.response.count { summarised.quantiles_ns[place] } else { None }
    }

    /// Variance to mean in s; `None` where the squares of some calls are not known.
    #[must_use]
    pub fn variance_to_mean_s(&self) -> Option<f64> {
        self.summarised.is_none().then(|| self.response.variance_to_mean_s())
    }

    #[inline]
    fn add_dated(&mut self, moment: &Moment, number: u64) -> bool {
        self.first_ns = self.first_ns.min(moment.start_ns);
        self.last_ns = self.last_ns.max(moment.start_ns);
        let (slice, is_new) = self.slices.at(number);
        let response_ns = moment.response_ns.unwrap_or(0);
        slice.count += 1;
        slice.sum_ns = slice.sum_ns.saturating_add(response_ns);
        slice.max_ns = slice.max_ns.max(response_ns);
        slice.failed += u64::from(matches!(moment.outcome, Outcome::Error(_)));
        is_new
    }

    /// Keeps the better example of the two.
    pub fn offer(&mut self, sample: Box<Sample>) {
        if self.is_better(&sample) {
            self.sample = Some(sample);
        }
    }

    /// The same of one that somebody else keeps.
    pub fn offer_copy(&mut self, sample: &Sample) {
        if self.is_better(sample) {
            self.sample = Some(Box::new(sample.clone()));
        }
    }

    fn is_better(&self, sample: &Sample) -> bool {
        self.sample.as_ref().is_none_or(|kept| sample < &**kept)
    }

    /// Adds everything but slices and samples.
    pub fn merge_counts(&mut self, other: &ClassStats) {
        self.count += other.count;
        self.failed += other.failed;
        self.unanswered += other.unanswered;
        self.unjudged += other.unjudged;
        self.errors.merge(&other.errors);
        self.response.merge(&other.response);
        if let Some(first_byte) = &other.first_byte {
            self.first_byte.get_or_insert_default().merge(first_byte);
        }
        if let Some(summarised) = &other.summarised {
            self.summarised.get_or_insert_default().merge(summarised);
        }
        self.measures.merge(&other.measures);
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    /// Adds another part of the class, with slices of the same width.
    pub fn merge(&mut self, other: &ClassStats) {
        self.merge_counts(other);
        self.slices.merge(&other.slices);
        self.users.merge(&other.users, KEPT_PER_CLASS);
        self.hosts.merge(&other.hosts, KEPT_PER_CLASS);
        self.databases.merge(&other.databases, KEPT_PER_CLASS);
        if let Some(sample) = &other.sample {
            self.offer_copy(sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Errors, KEPT_ERRORS};

    #[test]
    fn the_lowest_numbers_of_errors_are_kept_in_any_order() {
        let numbers: Vec<u16> = (0..100).map(|place| 1000 + place * 7 % 100).collect();
        let mut whole = Errors::default();
        numbers.iter().chain(&numbers).for_each(|number| whole.add(*number, 1));
        let mut merged = Errors::default();
        for part in numbers.rchunks(9).chain(numbers.chunks(17)) {
            let mut errors = Errors::default();
            part.iter().for_each(|number| errors.add(*number, 1));
            merged.merge(&errors);
        }
        assert_eq!(merged, whole);
        assert_eq!(
            whole.iter().collect::<Vec<_>>(),
            (1000..1064).map(|number| (number, 2)).collect::<Vec<_>>()
        );
        assert_eq!((whole.other, KEPT_ERRORS), (72, 64));
    }
}
