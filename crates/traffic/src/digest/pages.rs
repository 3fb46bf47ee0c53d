//! A histogram that stays small: pages of one power of two, each only as wide as its largest count needs.
//!
//! Ten thousand classes have two histograms each in every worker, and most buckets of most classes hold a handful.

use base::histogram::{bucket_bounds, bucket_of};

const PAGE_BITS: u32 = 7;
const PAGE: usize = 1 << PAGE_BITS;

/// The counts of 128 buckets.
#[derive(Clone, Debug, Default)]
enum Page {
    #[default]
    Empty,
    Bytes(Box<[u8; PAGE]>),
    Shorts(Box<[u16; PAGE]>),
    Words(Box<[u32; PAGE]>),
    Longs(Box<[u64; PAGE]>),
}

/// Counts of latencies in the buckets of `histogram`, exact up to 2^64.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// The number of `pages[0]`.
    first: u32,
    pages: Vec<Page>,
}

impl Pages {
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        self.add_bucket(bucket_of(value_ns), 1);
    }

    #[inline]
    pub fn add_bucket(&mut self, bucket: u32, count: u64) {
        let page = bucket >> PAGE_BITS;
        let place = page.wrapping_sub(self.first) as usize;
        if place >= self.pages.len() {
            self.grow(page);
        }
        let page = &mut self.pages[(page - self.first) as usize];
        page.add(bucket as usize % PAGE, count);
    }

    #[cold]
    fn grow(&mut self, page: u32) {
        if self.pages.is_empty() {
            self.first = page;
            self.pages = vec![Page::Empty];
        } else if page < self.first {
            let missing = (self.first - page) as usize;
            self.pages.splice(0..0, std::iter::repeat_with(Page::default).take(missing));
            self.first = page;
        } else {
            let length = (page - self.first) as usize + 1;
            self.pages.reserve_exact(length - self.pages.len());
            self.pages.resize_with(length, Page::default);
        }
    }

    pub fn merge(&mut self, other: &Pages) {
        for (number, page) in (other.first..).zip(&other.pages) {
            page.each(|place, count| self.add_bucket((number << PAGE_BITS) + place, count));
        }
    }

    /// Buckets with a count, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (self.first..).zip(&self.pages).flat_map(|(number, page)| {
            let length = if matches!(page, Page::Empty) { 0 } else { PAGE };
            (0..length)
                .map(move |place| ((number << PAGE_BITS) + place as u32, page.get(place)))
                .filter(|(_, count)| *count > 0)
        })
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The smallest latency in ns, to its bucket's upper bound, below which at least this share lies; never above
    /// `max_ns`.
    pub fn percentile_ns(&self, share: f64, max_ns: u64) -> Option<u64> {
        let count: u64 = self.iter().map(|(_, count)| count).sum();
        let rank = ((share * count as f64).ceil() as u64).max(1);
        let mut reached = 0;
        for (bucket, count) in self.iter() {
            reached += count;
            if reached >= rank {
                return Some(bucket_bounds(bucket).1.min(max_ns));
            }
        }
        None
    }
}

impl PartialEq for Pages {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Page {
    #[inline]
    fn add(&mut self, place: usize, count: u64) {
        let is_added = match self {
            Page::Empty => false,
            Page::Bytes(counts) => add_to(&mut counts[place], count),
            Page::Shorts(counts) => add_to(&mut counts[place], count),
            Page::Words(counts) => add_to(&mut counts[place], count),
            Page::Longs(counts) => {
                counts[place] = counts[place].saturating_add(count);
                true
            }
        };
        if !is_added {
            self.widen(place, count);
        }
    }

    #[cold]
    fn widen(&mut self, place: usize, count: u64) {
        let needed = self.get(place).saturating_add(count);
        *self = if u8::try_from(needed).is_ok() {
            Page::Bytes(self.copied())
        } else if u16::try_from(needed).is_ok() {
            Page::Shorts(self.copied())
        } else if u32::try_from(needed).is_ok() {
            Page::Words(self.copied())
        } else {
            Page::Longs(self.copied())
        };
        self.add(place, count);
    }

    /// Gives each count that is not 0, ascending by place.
    fn each(&self, mut take: impl FnMut(u32, u64)) {
        fn each_of<T: Copy + Into<u64>>(counts: &[T], take: &mut impl FnMut(u32, u64)) {
            for (place, count) in (0..).zip(counts) {
                let count = (*count).into();
                if count > 0 {
                    take(place, count);
                }
            }
        }
        match self {
            Page::Empty => {}
            Page::Bytes(counts) => each_of(&counts[..], &mut take),
            Page::Shorts(counts) => each_of(&counts[..], &mut take),
            Page::Words(counts) => each_of(&counts[..], &mut take),
            Page::Longs(counts) => each_of(&counts[..], &mut take),
        }
    }

    fn get(&self, place: usize) -> u64 {
        match self {
            Page::Empty => 0,
            Page::Bytes(counts) => counts[place].into(),
            Page::Shorts(counts) => counts[place].into(),
            Page::Words(counts) => counts[place].into(),
            Page::Longs(counts) => counts[place],
        }
    }

    /// The counts in a wider type, where all of them fit.
    fn copied<T: Copy + Default + TryFrom<u64>>(&self) -> Box<[T; PAGE]> {
        let mut wide = Box::new([T::default(); PAGE]);
        for (place, count) in wide.iter_mut().enumerate() {
            *count = T::try_from(self.get(place)).unwrap_or_default();
        }
        wide
    }
}

/// False, and nothing done, where the sum does not fit.
#[inline]
fn add_to<T: Copy + Into<u64> + TryFrom<u64>>(counter: &mut T, count: u64) -> bool {
    let current: u64 = (*counter).into();
    current.checked_add(count).and_then(|sum| T::try_from(sum).ok()).is_some_and(|sum| {
        *counter = sum;
        true
    })
}

#[cfg(test)]
mod tests {
    use super::Pages;
    use base::histogram::bucket_of;
    use proptest::prelude::{any, prop_assert_eq, proptest};
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn counts_are_those_of_a_map(adds in proptest::collection::vec(
            (any::<u64>(), 0_u32..64, proptest::sample::select(vec![1_u64, 3, 254, 255, 65_000, 1 << 32])), 0..80,
        )) {
            let (mut pages, mut model) = (Pages::default(), BTreeMap::new());
            for (value, shift, count) in adds {
                let bucket = bucket_of(value >> shift);
                pages.add_bucket(bucket, count);
                *model.entry(bucket).or_insert(0) += count;
            }
            prop_assert_eq!(pages.iter().collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_percentile_is_never_above_the_largest() {
        let mut pages = Pages::default();
        [5, 7, 1_000_003].into_iter().for_each(|value| pages.record(value));
        assert_eq!(pages.percentile_ns(0.5, 1_000_003), Some(7));
        assert_eq!(pages.percentile_ns(1.0, 1_000_003), Some(1_000_003));
        assert_eq!(Pages::default().percentile_ns(0.5, 0), None);
    }
}
