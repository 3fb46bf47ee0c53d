//! The classes of a digest, as many as memory allows: which ones are heavy is known only at the end.
//!
//! Generated names can make nearly every event a class of its own. So a class first stores its events as they arrive, which
//! takes little memory, and counts them in batches once there are more. All classes are kept until the digest is written,
//! and those with the most time are listed: the same ones for any order of events and any split into parts.
//!
//! Memory is limited. If one more class would exceed `Bounds`, the median worth of all classes (their time, plus 1 ns for
//! each call) is subtracted from each, and those with nothing left join "others". Half of the classes lose that much each
//! time, so the total subtracted, `lost_most`, is at most twice the whole time divided by the number of classes that fit.
//! A class with more time than that is always kept, in any order of events, and lacks at most that much. The totals add up
//! when digests are merged (Misra and Gries 1982; Agarwal et al., Mergeable summaries, 2012).

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::digest::class_stats::{ClassStats, Moment, Sample};
use crate::digest::kept::Kept;
use crate::digest::names::{KEPT_PER_CLASS, Name, Sender};
use crate::digest::parts::in_parts;
use crate::digest::seeded::Seeded;
use crate::digest::slices::WIDEST;
use crate::event::{Event, Summary};
use crate::measures::Measure;

/// How many events a class stores before it is given counters.
const KEPT_EVENTS: usize = 8;
/// The size of a batch in a class with counters: once the counters are in the cache, each further event costs little.
const KEPT_WHILE_BUSY: usize = 24;
/// With fewer classes than this, all counters are in the cache and an event is counted at once. With more, events are
/// counted in batches, because fetching a class's memory takes longer than counting.
const MOST_IN_CACHE: usize = 1024;

/// How much is kept in memory.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Classes, and how many of them have counters.
    pub most_classes: usize,
    pub most_busy: usize,
    /// Bytes of keys and examples.
    pub most_bytes: usize,
    /// Slices of all classes together.
    pub most_slices: usize,
}

/// One class, while it is counted.
#[derive(Debug, Default)]
pub struct Class {
    /// Response times, and 1 ns for each event.
    worth: u64,
    /// How much had been subtracted from every class when this one was added.
    since: u64,
    /// The example's worth, to reject most events as examples without reading it.
    best: Option<(Reverse<Option<u64>>, u64)>,
    /// Events that are not in `stats` yet.
    kept: Vec<Kept>,
    stats: Option<Box<ClassStats>>,
    example: Option<Box<Sample>>,
}

impl Class {
    /// Counts an event and returns how many slices that added.
    #[inline]
    fn add(&mut self, event: &Event<'_>, sender: &Arc<Sender>, shift: u32, at_once: bool) -> usize {
        if at_once && let Some(stats) = &mut self.stats {
            return usize::from(stats.add(&Moment::of(event), sender, shift));
        }
        self.keep(Kept::of(event, sender), shift)
    }

    #[inline]
    fn keep(&mut self, kept: Kept, shift: u32) -> usize {
        let length = self.kept.len();
        let most = if self.stats.is_some() { KEPT_WHILE_BUSY } else { KEPT_EVENTS };
        let slices = if length >= most { self.fold(shift) } else { 0 };
        if length == self.kept.capacity() {
            // Most classes of a flood have one event.
            self.kept.reserve_exact((KEPT_WHILE_BUSY - length).min(length).max(1));
        }
        self.kept.push(kept);
        slices
    }

    /// Counts the stored events and returns how many slices that added.
    #[inline(never)]
    fn fold(&mut self, shift: u32) -> usize {
        let stats = self.stats.get_or_insert_default();
        let count = |kept: Kept| usize::from(stats.add(&kept.moment(), kept.sender(), shift));
        self.kept.drain(..).map(count).sum()
    }

    #[inline]
    fn may_be_example(&self, response_ns: Option<u64>, start_ns: u64) -> bool {
        self.best.is_none_or(|best| (Reverse(response_ns), start_ns) <= best)
    }

    /// Keeps the better of two examples and returns by how many bytes the example grew.
    fn offer(&mut self, sample: Box<Sample>) -> isize {
        let before = self.example.as_ref().map_or(0, |kept| kept.text.len());
        if self.example.as_ref().is_none_or(|kept| sample < *kept) {
            self.best = Some((sample.response_ns, sample.start_ns));
            self.example = Some(sample);
        }
        self.example_bytes() as isize - before as isize
    }

    fn example_bytes(&self) -> usize {
        self.example.as_ref().map_or(0, |kept| kept.text.len())
    }

    /// Its slices at this shift; some are listed more than once.
    fn slice_numbers(&self, shift: u32) -> Vec<u64> {
        let counted = self.stats.iter().flat_map(|stats| stats.slices.iter().map(|(number, _)| *number));
        counted.chain(self.kept.iter().filter_map(|kept| kept.moment().slice(shift))).collect()
    }

    fn slices(&self) -> usize {
        self.stats.as_ref().map_or(0, |stats| stats.slices.count())
    }

    /// Its worth, less what was subtracted since it was added.
    fn left(&self, taken_off: u64) -> u64 {
        self.worth.saturating_sub(taken_off - self.since)
    }

    /// The order of a digest's classes: the most time first, or the most bytes of events, then the most calls.
    pub fn rank(&self, by_bytes: bool) -> Reverse<(u128, u64)> {
        let of_stats = |stats: &ClassStats| match by_bytes {
            true => stats.measures.sum(Measure::EventBytes).into(),
            false => stats.response.sum_ns,
        };
        let of_kept = |moment: Moment| match by_bytes {
            true => moment.measures.get(Measure::EventBytes),
            false => moment.response_ns,
        };
        let counted = self.stats.as_deref().map_or(0, of_stats);
        let kept: u128 = self.kept.iter().filter_map(|kept| of_kept(kept.moment())).map(u128::from).sum();
        let count = self.stats.as_ref().map_or(0, |stats| stats.count) + self.kept.len() as u64;
        Reverse((counted + kept, count))
    }

    /// All that is counted of it, with its example.
    pub fn stats(&self, shift: u32) -> Cow<'_, ClassStats> {
        match &self.stats {
            Some(stats) if self.kept.is_empty() && self.example.is_none() => Cow::Borrowed(stats),
            stats => {
                let mut whole = stats.as_deref().cloned().unwrap_or_default();
                for kept in &self.kept {
                    whole.add(&kept.moment(), kept.sender(), shift);
                }
                if let Some(example) = &self.example {
                    whole.offer_copy(example);
                }
                Cow::Owned(whole)
            }
        }
    }

    /// Takes another part of the class.
    fn merge(&mut self, other: Class, shift: u32) {
        self.worth = self.worth.saturating_add(other.worth);
        if let Some(example) = other.example {
            self.offer(example);
        }
        self.kept.extend(other.kept);
        let is_busy = self.stats.is_some() || other.stats.is_some() || self.kept.len() > KEPT_EVENTS;
        if is_busy {
            self.fold(shift);
        }
        if let (Some(stats), Some(theirs)) = (&mut self.stats, other.stats) {
            stats.merge(&theirs);
        }
    }
}

/// What an event is worth when memory is short: its time, or its bytes in a binary log, whose rows have no times; plus 1.
#[inline]
pub fn worth(event: &Event<'_>) -> u64 {
    let bytes = event.measures.get(Measure::EventBytes);
    bytes.or(event.response_ns).unwrap_or(0).saturating_add(1)
}

/// The part of an event that decides whether its class and its text are kept.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub worth: u64,
    pub response_ns: Option<u64>,
    pub start_ns: u64,
}

/// Where a class was when it was last counted: valid until the classes are moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    number: u32,
    /// The `round` of `Classes` in which it was there; 0 for no place.
    round: u32,
}

/// All classes of a digest.
#[derive(Debug)]
pub struct Classes {
    bounds: Bounds,
    /// How often the classes were moved, from 1.
    round: u32,
    places: HashMap<Box<[u8]>, u32, Seeded>,
    all: Vec<Class>,
    others: Option<Box<ClassStats>>,
    /// Of keys and examples.
    bytes: usize,
    busy: usize,
    /// Slices of classes with counters. The others have few, which are made when the digest is written.
    slices: usize,
    shift: u32,
    lost_most: u64,
    unnamed_ns: u64,
}

impl Classes {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            round: 1,
            places: HashMap::with_hasher(Seeded::new()),
            all: Vec::new(),
            others: None,
            bytes: 0,
            busy: 0,
            slices: 0,
            shift: 0,
            lost_most: 0,
            unnamed_ns: 0,
        }
    }

    /// The width of slices, as a power of two seconds.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Events of classes that were not kept.
    pub fn others(&self) -> Option<&ClassStats> {
        self.others.as_deref()
    }

    /// In ns: the most time that a missing class can have, and that a listed class can lack.
    pub fn lost_most_ns(&self) -> u64 {
        self.lost_most
    }

    /// Time of calls whose class the server does not tell.
    pub fn unnamed_ns(&self) -> u64 {
        self.unnamed_ns
    }

    /// Keys and classes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Class)> {
        self.places.iter().map(|(key, place)| (&**key, &self.all[*place as usize]))
    }

    pub fn has(&self, key: &[u8]) -> bool {
        self.places.contains_key(key)
    }

    /// Counts an event of the class with this key. `sample` makes an example of the event.
    #[inline]
    pub fn count(
        &mut self,
        key: &[u8],
        event: &Event<'_>,
        sender: &Arc<Sender>,
        sample: Option<fn(&Event<'_>) -> Sample>,
    ) {
        self.count_at(&mut Place::default(), key, event, sender, sample);
    }

    /// Like `count`, trying first the place where the class was last.
    #[inline]
    pub fn count_at(
        &mut self,
        last: &mut Place,
        key: &[u8],
        event: &Event<'_>,
        sender: &Arc<Sender>,
        sample: Option<fn(&Event<'_>) -> Sample>,
    ) {
        let (place, is_new) = self.find(last, key);
        let at_once = !self.are_many();
        let class = &mut self.all[place];
        let was_busy = class.stats.is_some();
        class.worth = class.worth.saturating_add(worth(event));
        self.slices += class.add(event, sender, self.shift, at_once);
        let sample = sample.filter(|_| class.may_be_example(event.response_ns, event.start_ns));
        let example = sample.map(|sample| Box::new(sample(event)));
        self.counted(place, is_new, was_busy, example);
    }

    /// Like `count`, for a stored event and its mark.
    #[inline]
    pub fn count_kept(
        &mut self,
        last: &mut Place,
        key: &[u8],
        kept: Kept,
        mark: &Mark,
        sample: Option<impl FnOnce(&Kept) -> Sample>,
    ) {
        let (place, is_new) = self.find(last, key);
        let class = &mut self.all[place];
        let was_busy = class.stats.is_some();
        class.worth = class.worth.saturating_add(mark.worth);
        let sample = sample.filter(|_| class.may_be_example(mark.response_ns, mark.start_ns));
        let example = sample.map(|sample| Box::new(sample(&kept)));
        self.slices += class.keep(kept, self.shift);
        self.counted(place, is_new, was_busy, example);
    }

    /// Whether there are too many classes for their counters to stay in the cache.
    #[inline]
    pub fn are_many(&self) -> bool {
        self.all.len() > MOST_IN_CACHE
    }

    /// Reads the class at a place, if it is still there, so that it is in the cache. Several calls in a row overlap.
    #[inline]
    pub fn touch(&self, place: Place) -> Option<(&Kept, u64)> {
        let class = self.all.get(place.number as usize)?;
        class.kept.last().map(|kept| (kept, class.worth))
    }

    /// The place of a class; true if it is new.
    #[inline]
    fn find(&mut self, last: &mut Place, key: &[u8]) -> (usize, bool) {
        let known = match last.round == self.round {
            true => Some(last.number as usize),
            false => self.places.get(key).map(|place| *place as usize),
        };
        let place = known.unwrap_or_else(|| {
            let since = self.lost_most;
            self.insert(key.into(), Class { since, ..Class::default() })
        });
        *last = Place { number: place as u32, round: self.round };
        (place, known.is_none())
    }

    /// Updates the totals after an event of the class at this place was counted.
    #[inline]
    fn counted(&mut self, place: usize, is_new: bool, was_busy: bool, example: Option<Box<Sample>>) {
        let class = &mut self.all[place];
        let is_busier = !was_busy && class.stats.is_some();
        if let Some(example) = example {
            self.bytes = self.bytes.saturating_add_signed(class.offer(example));
        }
        if is_new || is_busier {
            self.busy += usize::from(is_busier);
            self.make_room();
        }
        if self.slices > self.bounds.most_slices && self.shift < WIDEST {
            self.coarsen(self.shift + 1);
        }
    }

    /// Adds a server's own totals of one class; without a key, those of all statements that did not fit in its table.
    pub fn count_summary(
        &mut self,
        key: Option<&[u8]>,
        summary: &Summary<'_>,
        database: &Name,
        example: Option<Box<Sample>>,
    ) {
        let Some(key) = key else {
            self.unnamed_ns = self.unnamed_ns.saturating_add(summary.sum_ns);
            let others = self.others.get_or_insert_default();
            others.add_summary(summary);
            others.databases.add(database, summary.count, summary.sum_ns, KEPT_PER_CLASS);
            return;
        };
        let known = self.places.get(key).map(|place| *place as usize);
        let place = known.unwrap_or_else(|| {
            let since = self.lost_most;
            self.insert(key.into(), Class { since, ..Class::default() })
        });
        let class = &mut self.all[place];
        class.worth = class.worth.saturating_add(summary.sum_ns.saturating_add(summary.count));
        self.busy += usize::from(class.stats.is_none());
        let stats = class.stats.get_or_insert_default();
        stats.add_summary(summary);
        stats.databases.add(database, summary.count, summary.sum_ns, KEPT_PER_CLASS);
        if let Some(example) = example {
            self.bytes = self.bytes.saturating_add_signed(class.offer(example));
        }
        self.make_room();
    }

    fn insert(&mut self, key: Box<[u8]>, class: Class) -> usize {
        let place = self.all.len();
        self.bytes += key.len() + class.example_bytes();
        self.busy += usize::from(class.stats.is_some());
        self.slices += class.slices();
        self.places.insert(key, place as u32);
        self.all.push(class);
        place
    }

    fn make_room(&mut self) {
        while self.all.len() > 1
            && (self.all.len() > self.bounds.most_classes
                || self.busy > self.bounds.most_busy
                || self.bytes > self.bounds.most_bytes)
        {
            self.drop_lightest();
        }
    }

    #[cold]
    fn drop_lightest(&mut self) {
        let mut left: Vec<_> = self.all.iter().map(|class| class.left(self.lost_most)).collect();
        let middle = left.len() / 2;
        let (_, median, _) = left.select_nth_unstable(middle);
        self.lost_most = self.lost_most.saturating_add(*median);
        let mut all = std::mem::take(&mut self.all);
        (self.bytes, self.busy, self.slices) = (0, 0, 0);
        for (key, place) in self.take_places() {
            let class = std::mem::take(&mut all[place as usize]);
            if class.left(self.lost_most) > 0 {
                self.insert(key, class);
            } else {
                let others = self.others.get_or_insert_default();
                join(others, &class, self.shift);
            }
        }
    }

    /// Empties the table.
    fn take_places(&mut self) -> HashMap<Box<[u8]>, u32, Seeded> {
        self.round += 1;
        let empty = HashMap::with_hasher(self.places.hasher().clone());
        std::mem::replace(&mut self.places, empty)
    }

    /// The slices, at least this wide, and wide enough for there to be few.
    pub fn coarsen(&mut self, mut shift: u32) {
        loop {
            let by = shift - self.shift;
            self.shift = shift;
            self.slices = 0;
            for stats in self.all.iter_mut().filter_map(|class| class.stats.as_deref_mut()) {
                stats.slices.coarsen(by);
                self.slices += stats.slices.count();
            }
            if let Some(others) = &mut self.others {
                others.slices.coarsen(by);
            }
            if self.slices <= self.bounds.most_slices || shift >= WIDEST {
                return;
            }
            shift += 1;
        }
    }

    /// Adds the classes of another part, using up to `threads` threads.
    pub fn merge(&mut self, mut other: Classes, threads: usize) {
        let shift = self.shift.max(other.shift);
        self.coarsen(shift);
        other.coarsen(shift);
        // A part that was coarsened further because of its slices makes the whole as coarse.
        self.coarsen(other.shift);
        let shift = self.shift;
        let (ours_lost, theirs_lost) = (self.lost_most, other.lost_most);
        self.lost_most = ours_lost.saturating_add(theirs_lost);
        self.all.iter_mut().for_each(|class| class.since += theirs_lost);
        self.unnamed_ns = self.unnamed_ns.saturating_add(other.unnamed_ns);
        if let Some(others) = other.others.take() {
            self.others.get_or_insert_default().merge(&others);
        }
        let mut shared: Vec<Option<Class>> = Vec::new();
        shared.resize_with(self.all.len(), || None);
        for (key, place) in other.take_places() {
            let mut class = std::mem::take(&mut other.all[place as usize]);
            match self.places.get(&key) {
                Some(ours) => shared[*ours as usize] = Some(class),
                None => {
                    class.since += ours_lost;
                    self.insert(key, class);
                }
            }
        }
        let mut pairs: Vec<_> =
            self.all.iter_mut().zip(shared).filter_map(|(ours, theirs)| Some((ours, theirs?))).collect();
        let changes = in_parts(&mut pairs, threads, |pairs| {
            pairs.iter_mut().fold((0, 0, 0), |(slices, bytes, busy), (ours, theirs)| {
                let was_busy = ours.stats.is_some();
                let before = (ours.slices() as isize, ours.example_bytes() as isize);
                // What was taken off adds up.
                let since = (ours.since - theirs_lost) + theirs.since;
                ours.merge(std::mem::take(theirs), shift);
                ours.since = since;
                let is_busier = !was_busy && ours.stats.is_some();
                (
                    slices + ours.slices() as isize - before.0,
                    bytes + ours.example_bytes() as isize - before.1,
                    busy + usize::from(is_busier),
                )
            })
        });
        for (slices, bytes, busy) in changes {
            self.slices = self.slices.saturating_add_signed(slices);
            self.bytes = self.bytes.saturating_add_signed(bytes);
            self.busy += busy;
        }
        self.make_room();
        self.coarsen(self.shift);
    }

    /// Counts the stored events of classes with counters, and widens slices until the first classes and the rest, taken as
    /// one, have few enough.
    pub fn settle(&mut self, most_listed: usize, by_bytes: bool, threads: usize) {
        let shift = self.shift;
        in_parts(&mut self.all, threads, |classes| {
            for class in classes.iter_mut().filter(|class| class.stats.is_some()) {
                class.fold(shift);
                if let (Some(stats), Some(example)) = (&mut class.stats, class.example.take()) {
                    stats.offer(example);
                }
            }
        });
        self.coarsen(shift);
        let mut shift = self.shift;
        let of_others = self.others.as_ref().map_or(0, |others| others.slices.count());
        let most: usize = self.all.iter().map(|class| class.slices() + class.kept.len()).sum();
        // Mostly it is seen without a look at each that they are.
        if most + of_others > self.bounds.most_slices {
            let ranked = self.ranked(by_bytes);
            let (listed, rest) = ranked.split_at(most_listed.min(ranked.len()));
            let others =
                self.others.iter().flat_map(|others| others.slices.iter().map(|(number, _)| *number));
            let of_others: Vec<_> =
                others.chain(rest.iter().flat_map(|(_, class)| class.slice_numbers(self.shift))).collect();
            let of_listed: Vec<_> = listed.iter().map(|(_, class)| class.slice_numbers(self.shift)).collect();
            let count = |shift: u32| {
                let by = shift - self.shift;
                let lists = of_listed.iter().chain(std::iter::once(&of_others));
                lists.map(|numbers| distinct(numbers.iter().map(|number| number >> by))).sum::<usize>()
            };
            while count(shift) > self.bounds.most_slices && shift < WIDEST {
                shift += 1;
            }
        }
        self.coarsen(shift);
    }

    /// Keys and classes, those with the most time or bytes first.
    pub fn ranked(&self, by_bytes: bool) -> Vec<(&[u8], &Class)> {
        let mut ranked: Vec<_> = self.iter().map(|(key, class)| (class.rank(by_bytes), key, class)).collect();
        ranked.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        ranked.into_iter().map(|(_, key, class)| (key, class)).collect()
    }
}

fn distinct(numbers: impl Iterator<Item = u64>) -> usize {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len()
}

/// Adds a class to the others.
pub fn join(others: &mut ClassStats, class: &Class, shift: u32) {
    for kept in &class.kept {
        others.add(&kept.moment(), kept.sender(), shift);
    }
    if let Some(stats) = &class.stats {
        others.merge(stats);
    }
    if let Some(example) = &class.example {
        others.offer_copy(example);
    }
}
