//! Looks up the classes of several events at once.
//!
//! With thousands of classes each event causes four cache misses, and each address is known only after the miss before it. So
//! the first address is read for every waiting event, then the second, and so on: the CPU handles several misses at once,
//! and the wait is about that of one.

use std::hint::black_box;

use crate::digest::classes::{Mark, Place, worth};
use crate::digest::kept::Kept;
use crate::digest::waiting::{MOST, Waiter, Waiting};
use crate::digest::{Digest, sample_of};
use crate::event::{Command, Event};

impl Digest {
    /// Adds an event to those that wait for their class.
    pub(super) fn wait(&mut self, event: &Event<'_>) {
        let sender = self.everybody.count(event, event.response_ns.unwrap_or(0));
        let waiting = &mut self.waiting;
        waiting.events.push(Waiter {
            kept: Kept::of(event, sender),
            mark: Mark { worth: worth(event), response_ns: event.response_ns, start_ns: event.start_ns },
            session: event.session,
            hash: self.known.shapes().hash(event.text),
            begin: waiting.texts.len() as u32,
            end: (waiting.texts.len() + event.text.len()) as u32,
        });
        waiting.texts.extend_from_slice(event.text);
        if waiting.events.len() >= MOST {
            self.count_waiting();
        }
    }

    /// Counts the waiting events.
    pub(super) fn count_waiting(&mut self) {
        if self.waiting.events.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let numbers = self.numbers(&waiting);
        for (waiter, number) in waiting.events.drain(..).zip(numbers) {
            self.count_waiter(waiter, number, &waiting.texts);
        }
        waiting.texts.clear();
        self.waiting = waiting;
    }

    /// The numbers of the events' fingerprints. Afterwards their classes' memory is in the cache.
    fn numbers(&self, waiting: &Waiting) -> [Option<u32>; MOST] {
        let shapes = self.known.shapes();
        let mut places = [0; MOST];
        for (place, waiter) in places.iter_mut().zip(&waiting.events) {
            *place = shapes.touch_place(waiter.hash);
        }
        black_box(places.iter().fold(0_u8, |all, place| all ^ shapes.touch(*place)));
        let mut numbers = [None; MOST];
        for (number, waiter) in numbers.iter_mut().zip(&waiting.events) {
            *number = self.known.number(waiter.text(&waiting.texts), waiter.hash);
        }
        let at = numbers.map(|number| number.map_or_else(Place::default, |number| self.known.place(number)));
        let classes = at.map(|place| self.classes.touch(place));
        black_box(
            classes.iter().flatten().fold(0, |all, (kept, worth)| all ^ u64::from(kept.touch()) ^ worth),
        );
        numbers
    }

    fn count_waiter(&mut self, waiter: Waiter, number: Option<u32>, texts: &[u8]) {
        let text = waiter.text(texts);
        let Waiter { kept, mark, session, .. } = waiter;
        let sample = |kept: &Kept| with_event(kept, session, text, sample_of);
        let sample = self.options.keeps_samples.then_some(sample);
        if let Some(number) = number {
            let (key, place) = self.known.at(number);
            self.classes.count_kept(place, key, kept, &mark, sample);
            return;
        }
        with_event(&kept, session, text, |event| {
            if self.fingerprint_of(event) {
                self.learn(event);
            }
        });
        self.classes.count_kept(&mut Place::default(), &self.fingerprint, kept, &mark, sample);
    }
}

/// Calls `then` with the stored event.
fn with_event<T>(kept: &Kept, session: u64, text: &[u8], then: impl FnOnce(&Event<'_>) -> T) -> T {
    let (moment, sender) = (kept.moment(), kept.sender());
    then(&Event {
        response_ns: moment.response_ns,
        first_byte_ns: moment.first_byte_ns,
        outcome: moment.outcome,
        measures: moment.measures,
        user: sender.user.text(),
        host: sender.host.text(),
        database: sender.database.text(),
        text,
        ..Event::new(moment.start_ns, session, Command::Query)
    })
}

#[cfg(test)]
mod tests {
    use crate::digest::lines::Source;
    use crate::digest::{Digest, DigestOptions};
    use crate::event::{Command, Event, Outcome};
    use crate::measures::Measure;

    const CLASSES: u64 = 1700;
    const EVENTS: u64 = 30 * CLASSES;

    /// A digest of the events whose numbers `is_of` accepts, in shuffled order.
    fn digest(threads: usize, is_of: impl Fn(u64) -> bool) -> Digest {
        let mut digest = Digest::new(&DigestOptions { threads, ..DigestOptions::default() });
        for number in (0..EVENTS).map(|number| number * 7919 % EVENTS).filter(|number| is_of(*number)) {
            let (text, user) =
                (format!("SELECT {number} FROM t{}", number % CLASSES), format!("u{}", number % 3));
            let start_ns = 1_700_000_000_000_000_000 + number * 40_000_000;
            let mut event = Event::new(start_ns, number % 9, Command::Query);
            event.response_ns = (number % 11 > 0).then_some(number % 5 * 2_000_000_000 + number);
            event.outcome = if number.is_multiple_of(13) { Outcome::Error(1064) } else { Outcome::Unknown };
            event.measures.set(Measure::RowsSent, (number % 4) << (number % 40));
            (event.text, event.user, event.is_cut) =
                (text.as_bytes(), user.as_bytes(), number.is_multiple_of(17));
            digest.count(&event);
        }
        digest
    }

    fn lines(digest: &mut Digest) -> String {
        let mut out = Vec::new();
        digest.write_lines(&Source::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// In the first case each part has too few classes for any event to wait.
    #[test]
    fn many_classes_are_counted_as_few_are() {
        let mut whole = digest(1, |_| true);
        assert!(whole.classes.are_many() && !whole.waiting.events.is_empty());
        let expected = lines(&mut whole);
        assert!(expected.contains(&format!(r#""events":{EVENTS}"#)));
        for threads in [1, 3] {
            let [mut merged, other] =
                [0, 1].map(|part| digest(threads, |number| number % CLASSES % 2 == part));
            assert!(!merged.classes.are_many() && !other.classes.are_many());
            merged.merge(other);
            assert_eq!(lines(&mut merged), expected);
            // Here both parts have every class.
            let [mut merged, other] =
                [0, 1].map(|part| digest(threads, |number| number / CLASSES % 2 == part));
            assert!(merged.classes.are_many() && other.classes.are_many());
            merged.merge(other);
            assert_eq!(lines(&mut merged), expected);
        }
    }
}
