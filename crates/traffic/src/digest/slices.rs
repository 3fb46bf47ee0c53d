//! Time slices: powers of two seconds aligned to 1970, so that those of any two digests nest.

use crate::digest::pages::Pages;

const SECOND_NS: u64 = 1_000_000_000;
/// The most slices from the first event to the last.
pub const MOST_IN_SPAN: u64 = 512;
/// The most slices of all classes together that are not empty.
pub const MOST_OF_CLASSES: usize = 1 << 18;
/// The shift of a slice that holds all of time: nothing is left to win.
pub const WIDEST: u32 = 35;

#[must_use]
pub fn width_ns(shift: u32) -> u64 {
    SECOND_NS << shift
}

#[inline]
pub fn second_of(time_ns: u64) -> u64 {
    time_ns / SECOND_NS
}

/// The smallest shift not below `shift` with which these seconds span few enough slices.
#[inline]
pub fn shift_for_span(mut shift: u32, first_second: u64, last_second: u64) -> u32 {
    while (last_second >> shift) - (first_second >> shift) >= MOST_IN_SPAN {
        shift += 1;
    }
    shift
}

/// What a slice holds.
pub trait Content: Default {
    fn merge(&mut self, other: &Self);
}

/// What a class did in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    pub count: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
    pub failed: u64,
}

impl Content for Activity {
    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.failed += other.failed;
    }
}

impl Content for Pages {
    fn merge(&mut self, other: &Self) {
        Pages::merge(self, other);
    }
}

/// Those with an event, ascending by number.
#[derive(Clone, Debug, PartialEq)]
pub struct Slices<T>(Vec<(u64, T)>);

impl<T> Default for Slices<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Content> Slices<T> {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The slice of this number; true if it is new.
    #[inline]
    pub fn at(&mut self, number: u64) -> (&mut T, bool) {
        // Events come nearly in order: those that began before a second's end may come after those of the next.
        let place = match &self.0[..] {
            [.., (last, _)] if *last == number => self.0.len() - 1,
            [.., (before, _), _] if *before == number => self.0.len() - 2,
            all => all.partition_point(|(other, _)| *other < number),
        };
        let is_new = self.0.get(place).is_none_or(|(other, _)| *other != number);
        if is_new {
            self.0.insert(place, (number, T::default()));
        }
        (&mut self.0[place].1, is_new)
    }

    /// Makes slices wider by so many powers of two.
    pub fn coarsen(&mut self, by: u32) {
        if by == 0 {
            return;
        }
        self.0.iter_mut().for_each(|(number, _)| *number >>= by);
        self.0.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                kept.1.merge(&later.1);
            }
            is_same
        });
        // What is left mostly grows again: to give the room back each time costs more than it is worth.
        if self.0.capacity() > 4 * self.0.len() {
            self.0.shrink_to_fit();
        }
    }

    /// Adds slices of the same width.
    pub fn merge(&mut self, other: &Self) {
        for (number, content) in &other.0 {
            self.at(*number).0.merge(content);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &(u64, T)> {
        self.0.iter()
    }
}
