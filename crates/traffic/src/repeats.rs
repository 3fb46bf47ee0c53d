//! Events that more than one of the files has: a copy under another name, its compressed form beside it, pieces of a
//! rotation that overlap. They would count twice, and nothing in the figures would show it.
//!
//! An event is known by its time, its session, its response time and its text. Of each file a sample by hash is kept, which
//! is the same in all files, and the first and the last events by time, where pieces overlap.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::coverage::{Coverage, counted};
use crate::event::Event;

/// Events of the sample: all of a file that has no more.
const MOST_SAMPLED: usize = 1 << 16;
/// Of the first and of the last events, so many are kept at least.
const EDGE: usize = 1 << 12;
const SECOND_NS: u64 = 1_000_000_000;

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
#[derive(Debug, Default)]
pub struct Seen {
    /// Hashes below this many bits of zeros are left out of the sample.
    zeros: u32,
    sample: HashMap<u64, u64>,
    first: Edge,
    last: Edge,
    span_ns: Option<(u64, u64)>,
    events: u64,
    sum: u64,
    /// Its times are whole seconds and it has no response times: events of one second may be alike by chance.
    is_coarse: bool,
}

/// Events of one file that another has.
struct Shared {
    events: u64,
    is_estimate: bool,
    are_all: bool,
}

impl Seen {
    pub fn event(&mut self, event: &Event<'_>) {
        let start_ns = event.start_ns;
        let numbers = [start_ns, event.response_ns.unwrap_or(u64::MAX), event.session];
        let seed = numbers
            .iter()
            .fold(0, |seed: u64, number| (seed.rotate_left(29) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mark = (xxh3_64_with_seed(event.text, seed), start_ns);
        self.events += 1;
        self.sum = self.sum.wrapping_add(mark.0);
        // Rows of a binary log have the text of their class, and no more than a second.
        if start_ns == 0 || event.command == crate::event::Command::Rows {
            return;
        }
        self.is_coarse |= event.response_ns.is_none() && start_ns.is_multiple_of(SECOND_NS);
        let (first_ns, last_ns) = self.span_ns.unwrap_or((start_ns, start_ns));
        self.span_ns = Some((first_ns.min(start_ns), last_ns.max(start_ns)));
        self.sampled(mark);
        self.first.keep(mark, |start_ns| start_ns);
        self.last.keep(mark, |start_ns| u64::MAX - start_ns);
    }

    fn sampled(&mut self, (hash, start_ns): Mark) {
        if hash.leading_zeros() < self.zeros {
            return;
        }
        self.sample.insert(hash, start_ns);
        while self.sample.len() > MOST_SAMPLED {
            self.zeros += 1;
            let zeros = self.zeros;
            self.sample.retain(|hash, _| hash.leading_zeros() >= zeros);
        }
    }

    /// Adds what another thread saw of the same file.
    pub fn merge(&mut self, other: Seen) {
        self.events += other.events;
        self.sum = self.sum.wrapping_add(other.sum);
        self.is_coarse |= other.is_coarse;
        self.zeros = self.zeros.max(other.zeros);
        let zeros = self.zeros;
        self.sample.retain(|hash, _| hash.leading_zeros() >= zeros);
        other.sample.into_iter().for_each(|mark| self.sampled(mark));
        other.first.0.into_iter().for_each(|mark| self.first.keep(mark, |start_ns| start_ns));
        other.last.0.into_iter().for_each(|mark| self.last.keep(mark, |start_ns| u64::MAX - start_ns));
        self.span_ns = match (self.span_ns, other.span_ns) {
            (Some(one), Some(two)) => Some((one.0.min(two.0), one.1.max(two.1))),
            (one, two) => one.or(two),
        };
    }

    /// Which of its events another file has.
    fn shared_with(&self, other: &Seen) -> Option<Shared> {
        if self.events > 0 && (self.events, self.sum) == (other.events, other.sum) {
            return Some(Shared { events: self.events, is_estimate: false, are_all: true });
        }
        let ((first, last), (other_first, other_last)) = (self.span_ns?, other.span_ns?);
        if last < other_first || other_last < first {
            return None;
        }
        let zeros = self.zeros.max(other.zeros);
        let in_sample: Vec<Mark> = self
            .sample
            .iter()
            .filter(|(hash, _)| hash.leading_zeros() >= zeros && other.sample.contains_key(hash))
            .map(|(hash, start_ns)| (*hash, *start_ns))
            .collect();
        let edges: HashMap<u64, u64> = other.first.0.iter().chain(&other.last.0).copied().collect();
        let mut at_edges: Vec<Mark> = self.first.0.iter().chain(&self.last.0).copied().collect();
        at_edges.retain(|(hash, _)| edges.contains_key(hash));
        at_edges.sort_unstable();
        at_edges.dedup();
        let times = || in_sample.iter().chain(&at_edges).map(|(_, start_ns)| *start_ns);
        let (first, last) = (times().min()?, times().max()?);
        if (self.is_coarse || other.is_coarse) && last - first < 2 * SECOND_NS {
            return None;
        }
        // All that the sample has may be at the edges.
        let is_at_edges = in_sample.iter().all(|mark| at_edges.binary_search(mark).is_ok());
        let estimate = if is_at_edges { 0 } else { (in_sample.len() as u64) << zeros };
        let are_all = zeros == 0 && in_sample.len() == self.sample.len() && self.events <= other.events;
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
        let mut seen = Seen::default();
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
            let mut all = Seen::default();
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
            let mut seen = Seen::default();
            (0..count).for_each(|_| seen.event(&Event::new(0, 1, Command::Query)));
            seen
        };
        assert!(said(undated(5), undated(5)).0);
        assert_eq!(said(undated(5), undated(6)), (false, 0, String::new()));
    }
}
