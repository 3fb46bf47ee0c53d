//! Events that are there twice: a copy of a log under another name, its compressed form beside it, pieces of a rotation
//! that overlap, or what a shipper delivered again in one file. They would count twice, and nothing in the figures would show
//! it.
//!
//! An event is known by its time, its session, its response time and its text. Of each file a sample is kept, which is the same
//! in all files, and, if there are several, the first and the last events by time, where pieces overlap.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::coverage::{Coverage, counted};
use crate::event::{Command, Event};

/// Events of the sample: all of a file that has no more.
const MOST_SAMPLED: usize = 1 << 16;
/// Of the first and of the last events, so many are kept at least.
const EDGE: usize = 1 << 12;
const SECOND_NS: u64 = 1_000_000_000;
/// Fewer events than these, and than one in so many, may be alike by chance.
const MANY: u64 = 10;
const ONE_IN: u64 = 100;

/// What tells an event, and its time.
type Mark = (u64, u64);

/// Events at one end of a file's time.
#[derive(Debug, Default)]
struct Edge(Vec<Mark>);

impl Edge {
    fn keep(&mut self, mark: Mark, rank: impl Fn(u64) -> u64) {
        self.0.push(mark);
        if self.0.len() >= 2 * EDGE {
            self.0.select_nth_unstable_by_key(EDGE, |(_, start_ns)| rank(*start_ns));
            self.0.truncate(EDGE);
        }
    }
}

/// What is remembered of the events of one file.
#[derive(Debug)]
pub struct Seen {
    /// There are other files, whose events may be the same.
    has_others: bool,
    /// Hashes of the numbers that begin with fewer zeros are not in the sample.
    zeros: u32,
    /// By what tells an event: its time, and the hash of its numbers.
    sample: HashMap<u64, Mark>,
    /// Of the sample, events that came again.
    again: u64,
    first: Edge,
    last: Edge,
    span_ns: Option<(u64, u64)>,
    events: u64,
    /// Of the numbers of all events, and of the texts of those that have no time of their own.
    sums: (u64, u64),
    /// Some of its times have fractions: where all are whole seconds, events of one may be alike by chance.
    is_fine: bool,
}

/// Events of one file that another has.
struct Shared {
    events: u64,
    is_estimate: bool,
    are_all: bool,
}

fn hash(numbers: [u64; 4]) -> u64 {
    let mixed = numbers
        .iter()
        .fold(0, |sum: u64, number| (sum.rotate_left(29) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Seen {
    #[must_use]
    pub fn new(has_others: bool) -> Self {
        Self {
            has_others,
            zeros: 0,
            sample: HashMap::new(),
            again: 0,
            first: Edge::default(),
            last: Edge::default(),
            span_ns: None,
            events: 0,
            sums: (0, 0),
            is_fine: false,
        }
    }

    #[inline]
    pub fn event(&mut self, event: &Event<'_>) {
        let (start_ns, response_ns) = (event.start_ns, event.response_ns);
        let is_prepare = u64::from(event.command == Command::Prepare);
        let numbers = hash([start_ns, response_ns.unwrap_or(u64::MAX), event.session, is_prepare]);
        self.events += 1;
        self.sums.0 = self.sums.0.wrapping_add(numbers);
        let text = || xxh3_64_with_seed(event.text, numbers);
        // Rows of a binary log have the text of their class, and whole seconds.
        if start_ns == 0 || event.command == Command::Rows {
            self.sums.1 = self.sums.1.wrapping_add(text());
            return;
        }
        self.is_fine |= !(start_ns.saturating_add(response_ns.unwrap_or(0))).is_multiple_of(SECOND_NS);
        if self.has_others {
            let (first_ns, last_ns) = self.span_ns.unwrap_or((start_ns, start_ns));
            self.span_ns = Some((first_ns.min(start_ns), last_ns.max(start_ns)));
            let mark = (text(), start_ns);
            self.first.keep(mark, |start_ns| start_ns);
            self.last.keep(mark, |start_ns| u64::MAX - start_ns);
        }
        if numbers.leading_zeros() >= self.zeros {
            self.sampled(text(), (start_ns, numbers));
        }
    }

    fn sampled(&mut self, event: u64, mark: Mark) {
        if mark.1.leading_zeros() < self.zeros {
            return;
        }
        self.again += u64::from(self.sample.insert(event, mark).is_some());
        while self.sample.len() > MOST_SAMPLED {
            self.zeros += 1;
            let zeros = self.zeros;
            self.sample.retain(|_, (_, numbers)| numbers.leading_zeros() >= zeros);
            // About as many are left of those that came again.
            self.again /= 2;
        }
    }

    /// Adds what another thread saw of the same file.
    pub fn merge(&mut self, other: Seen) {
        self.has_others |= other.has_others;
        self.events += other.events;
        self.sums = (self.sums.0.wrapping_add(other.sums.0), self.sums.1.wrapping_add(other.sums.1));
        self.is_fine |= other.is_fine;
        let zeros = self.zeros.max(other.zeros);
        self.again = (self.again >> (zeros - self.zeros)) + (other.again >> (zeros - other.zeros));
        self.zeros = zeros;
        self.sample.retain(|_, (_, numbers)| numbers.leading_zeros() >= zeros);
        other.sample.into_iter().for_each(|(event, mark)| self.sampled(event, mark));
        other.first.0.into_iter().for_each(|mark| self.first.keep(mark, |start_ns| start_ns));
        other.last.0.into_iter().for_each(|mark| self.last.keep(mark, |start_ns| u64::MAX - start_ns));
        self.span_ns = match (self.span_ns, other.span_ns) {
            (Some(one), Some(two)) => Some((one.0.min(two.0), one.1.max(two.1))),
            (one, two) => one.or(two),
        };
    }

    /// How many events came again in this file.
    fn came_again(&self) -> u64 {
        let events = self.again << self.zeros;
        let is_chance = !self.is_fine || events < MANY && events * ONE_IN < self.events;
        if is_chance { 0 } else { events }
    }

    /// Which of its events another file has.
    fn shared_with(&self, other: &Seen) -> Option<Shared> {
        let zeros = self.zeros.max(other.zeros);
        let of_sample = || self.sample.iter().filter(|(_, (_, numbers))| numbers.leading_zeros() >= zeros);
        let is_same = (self.events, self.sums) == (other.events, other.sums)
            && of_sample().all(|(event, _)| other.sample.contains_key(event));
        if is_same && self.events > 0 {
            return Some(Shared { events: self.events, is_estimate: false, are_all: true });
        }
        let ((first, last), (other_first, other_last)) = (self.span_ns?, other.span_ns?);
        if last < other_first || other_last < first {
            return None;
        }
        let in_sample: Vec<Mark> = of_sample()
            .filter(|(event, _)| other.sample.contains_key(event))
            .map(|(event, (start_ns, _))| (*event, *start_ns))
            .collect();
        let edges: HashMap<u64, u64> = other.first.0.iter().chain(&other.last.0).copied().collect();
        let mut at_edges: Vec<Mark> = self.first.0.iter().chain(&self.last.0).copied().collect();
        at_edges.retain(|(hash, _)| edges.contains_key(hash));
        at_edges.sort_unstable();
        at_edges.dedup();
        let times = || in_sample.iter().chain(&at_edges).map(|(_, start_ns)| *start_ns);
        let (first, last) = (times().min()?, times().max()?);
        if !(self.is_fine && other.is_fine) && last - first < 2 * SECOND_NS {
            return None;
        }
        // All that the sample has may be at the edges.
        let is_at_edges = in_sample.iter().all(|mark| at_edges.binary_search(mark).is_ok());
        let estimate = if is_at_edges { 0 } else { (in_sample.len() as u64) << zeros };
        let are_all = zeros == 0
            && in_sample.len() == self.sample.len()
            && self.events <= other.events
            && self.sums.1 == other.sums.1;
        let events = if are_all { self.events } else { estimate.max(at_edges.len() as u64).min(self.events) };
        Some(Shared { events, is_estimate: zeros > 0 && !is_at_edges, are_all })
    }
}

/// What was seen of several files.
#[derive(Default)]
pub struct Repeats(Vec<(String, Seen)>);

impl Repeats {
    /// Takes what was seen of the next file and says which of its events another file had before. Whether these are all,
    /// so that it can be left out.
    pub fn next(&mut self, name: &str, seen: Seen, can_leave_out: bool, coverage: &mut Coverage) -> bool {
        let again = seen.came_again();
        if again > 0 {
            let about = if seen.zeros > 0 { "about " } else { "" };
            let events = counted(again, "event");
            coverage.repeated_events += again;
            coverage
                .note(name, format!("{about}{events} of {} came again in it, and count twice", seen.events));
        }
        let shared = self.0.iter().filter_map(|(other, before)| Some((other, seen.shared_with(before)?)));
        let Some((other, shared)) = shared.max_by_key(|(_, shared)| (shared.are_all, shared.events)) else {
            self.0.push((name.to_owned(), seen));
            return false;
        };
        let is_left_out = shared.are_all && can_leave_out;
        let about = if shared.is_estimate { "about " } else { "" };
        let share = counted(shared.events, "event");
        if is_left_out {
            coverage.note(name, format!("left out: {other} has all of it ({share})"));
            return true;
        }
        coverage.repeated_events += shared.events;
        coverage
            .note(name, format!("{about}{share} of {} are in {other}, too, and count twice", seen.events));
        self.0.push((name.to_owned(), seen));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{Repeats, SECOND_NS, Seen};
    use crate::coverage::Coverage;
    use crate::event::{Command, Event};

    fn seen(numbers: std::ops::Range<u64>, step_ns: u64, is_timed: bool) -> Seen {
        let mut seen = Seen::new(true);
        for number in numbers {
            let text = format!("select {}", number % 3);
            let event = Event {
                text: text.as_bytes(),
                response_ns: is_timed.then_some(number % 1000),
                ..Event::new(1_700_000_000 * SECOND_NS + number * step_ns, number % 7, Command::Query)
            };
            seen.event(&event);
        }
        seen
    }

    fn said(one: Seen, two: Seen) -> (bool, u64, String) {
        let (mut repeats, mut coverage) = (Repeats::default(), Coverage::default());
        assert!(!repeats.next("a", one, true, &mut coverage));
        assert_eq!(coverage, Coverage::default());
        let is_left_out = repeats.next("b", two, true, &mut coverage);
        let said = coverage.places.first().map_or(String::new(), |place| place.reason.clone());
        (is_left_out, coverage.repeated_events, said)
    }

    #[test]
    fn events_of_two_files_are_said() {
        let of = |numbers| seen(numbers, 1_234_567, true);
        for (one, two, expected) in [
            (0..1000, 0..1000, (true, 0, "left out: a has all of it (1000 events)")),
            (0..1000, 200..300, (true, 0, "left out: a has all of it (100 events)")),
            (0..1000, 900..1200, (false, 100, "100 events of 300 are in a, too, and count twice")),
            (200..300, 0..1000, (false, 100, "100 events of 1000 are in a, too, and count twice")),
            (0..1000, 1000..2000, (false, 0, "")),
            // The overlap of large pieces is found at their edges.
            (
                0..300_000,
                299_900..600_000,
                (false, 100, "100 events of 300100 are in a, too, and count twice"),
            ),
        ] {
            let found = said(of(one.clone()), of(two.clone()));
            assert_eq!((found.0, found.1, found.2.as_str()), expected, "{one:?} {two:?}");
        }
        let (_, events, said) = said(of(0..300_000), of(100_000..400_000));
        assert!((180_000..220_000).contains(&events) && said.starts_with("about"), "{said}");
    }

    #[test]
    fn what_is_alike_by_chance_is_not_said() {
        // A general log with whole seconds, rotated within one: each session says the same again and again.
        let of = |numbers: std::ops::Range<u64>| {
            let mut all = Seen::new(true);
            for number in numbers {
                all.merge(seen(number / 100..number / 100 + 1, SECOND_NS, false));
            }
            all
        };
        assert_eq!(said(of(0..950), of(950..2000)), (false, 0, String::new()));
        let (_, events, _) = said(of(0..950), of(400..2000));
        assert!(events > 0);
        // Undated events, and rows of binary logs: only the whole file tells.
        let undated = |count: u64| {
            let mut seen = Seen::new(true);
            (0..count).for_each(|_| seen.event(&Event::new(0, 1, Command::Query)));
            seen
        };
        assert!(said(undated(5), undated(5)).0);
        assert_eq!(said(undated(5), undated(6)), (false, 0, String::new()));
    }

    #[test]
    fn what_a_shipper_delivered_again_is_said() {
        let told = |parts: &[std::ops::Range<u64>], is_coarse: bool| {
            let mut seen = Seen::new(false);
            for number in parts.iter().cloned().flatten() {
                let text = format!("select {number}");
                let response_ns = 1000 * (number % 7919);
                let start_ns = 1_700_000_000 * SECOND_NS + number * 1_234_000;
                let end_ns = if is_coarse { start_ns - start_ns % SECOND_NS } else { start_ns };
                seen.event(&Event {
                    text: text.as_bytes(),
                    response_ns: Some(response_ns),
                    ..Event::new(end_ns - response_ns, number % 7, Command::Query)
                });
            }
            let mut coverage = Coverage::default();
            Repeats::default().next("a", seen, true, &mut coverage);
            (coverage.repeated_events, coverage.places.first().map(|place| place.reason.clone()))
        };
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(
            told(&[0..1000, 900..1000], false),
            (100, said("100 events of 1100 came again in it, and count twice"))
        );
        assert_eq!(
            told(&[0..50, 49..50], false),
            (1, said("1 event of 51 came again in it, and count twice"))
        );
        assert_eq!(told(&[0..1000, 999..1000], false), (0, None));
        assert_eq!(told(&[0..1000, 900..1000], true), (0, None));
        let (events, text) = told(&[0..300_000, 0..300_000], false);
        assert!((250_000..350_000).contains(&events) && text.unwrap().starts_with("about"), "{events}");
        assert_eq!(told(&[0..200_000, 200_000..300_000], false), (0, None));
    }

    #[test]
    fn a_log_of_whole_seconds_may_be_alike_by_chance() {
        let of = |numbers: std::ops::Range<u64>| {
            let mut seen = Seen::new(true);
            for number in numbers {
                let response_ns = 1000 * (number % 5);
                let end_ns = (1_700_000_000 + number / 100) * SECOND_NS;
                let (start_ns, text) = (end_ns - response_ns, b"select 1".as_slice());
                let response_ns = Some(response_ns);
                seen.event(&Event { text, response_ns, ..Event::new(start_ns, number % 3, Command::Query) });
            }
            seen
        };
        assert_eq!(said(of(0..950), of(950..2000)), (false, 0, String::new()));
    }
}
