//! Digest: query classes with exact counts, sums and histograms, which merge to the same whole however they were split.
//!
//! `docs/reference/digest-format.md` tells what goes out and how each field merges.

pub mod class_stats;
pub mod command;
pub mod group;
pub mod lines;
pub mod measured;
pub mod names;
pub mod pages;
mod progress;
pub mod slices;
mod span;
pub mod table;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::digest::class_stats::{ClassStats, Sample};
use crate::digest::group::{Dimension, command_name, fingerprint, write_key};
use crate::digest::names::{Everybody, cut};
use crate::digest::pages::Pages;
use crate::digest::slices::{MOST_OF_CLASSES, Slices, WIDEST, second_of, shift_for_span};
use crate::event::{Event, Outcome, Sink};
use crate::filter::Selection;
use sql::{self, Mode};

/// Bytes of an example that are kept, and of all keys together.
const SAMPLE_BYTES: usize = 8 << 10;
const KEY_BYTES: usize = 32 << 20;
/// Statements whose id and tables are remembered where a filter or the group asks for them.
const REMEMBERED_STATEMENTS: usize = 10_000;

/// What is counted and how.
#[derive(Clone, Debug)]
pub struct DigestOptions {
    pub mode: Mode,
    /// Ascending, no dimension twice.
    pub group: Vec<Dimension>,
    pub selection: Selection,
    pub keeps_samples: bool,
    /// Classes beyond are counted as one.
    pub most_classes: usize,
    /// Slices of all classes together, at most; the same in all digests that are merged.
    pub most_slices: usize,
}

impl Default for DigestOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Strict,
            group: vec![Dimension::Class],
            selection: Selection::default(),
            keeps_samples: true,
            most_classes: 50_000,
            most_slices: MOST_OF_CLASSES,
        }
    }
}

/// Counts events by class.
#[derive(Debug)]
pub struct Digest {
    options: DigestOptions,
    places: HashMap<Box<[u8]>, u32, Seeded>,
    /// Bytes of the keys in `places`.
    key_bytes: usize,
    classes: Vec<ClassStats>,
    others: Option<Box<ClassStats>>,
    everybody: Everybody,
    heat: Slices<Pages>,
    /// Slices of all classes.
    slices: usize,
    /// Seconds of the first and the last dated event.
    seconds: Option<(u64, u64)>,
    /// Powers of two seconds: the width of slices of classes, and of the heat.
    shift: u32,
    heat_shift: u32,
    events: u64,
    filtered: u64,
    undated: u64,
    statements: HashMap<Box<[u8]>, Statement, Seeded>,
    fingerprint: Vec<u8>,
    key: Vec<u8>,
}

/// What a fingerprint tells.
#[derive(Debug)]
struct Statement {
    id: String,
    /// Joined by commas.
    tables: Vec<u8>,
}

impl Digest {
    #[must_use]
    pub fn new(options: &DigestOptions) -> Self {
        Self {
            options: options.clone(),
            places: HashMap::with_hasher(Seeded::new()),
            key_bytes: 0,
            classes: Vec::new(),
            others: None,
            everybody: Everybody::default(),
            heat: Slices::default(),
            slices: 0,
            seconds: None,
            shift: 0,
            heat_shift: 0,
            events: 0,
            filtered: 0,
            undated: 0,
            statements: HashMap::with_hasher(Seeded::new()),
            fingerprint: Vec::new(),
            key: Vec::new(),
        }
    }

    pub fn count(&mut self, event: &Event<'_>) {
        if event.is_state {
            return;
        }
        let selection = &self.options.selection;
        if !selection.is_everything() && !selection.accepts(event) {
            self.filtered += 1;
            return;
        }
        fingerprint(self.options.mode, event, &mut self.fingerprint);
        if self.options.group.len() == 1
            && self.options.group[0] == Dimension::Class
            && !selection.needs_class()
        {
            std::mem::swap(&mut self.fingerprint, &mut self.key);
        } else if !self.find_key(event) {
            self.filtered += 1;
            return;
        }
        self.events += 1;
        let number = self.date(event);
        let place = self.place();
        let who = self.everybody.count(event, event.response_ns.unwrap_or(0));
        let stats = match place {
            Some(place) => &mut self.classes[place],
            None => self.others.get_or_insert_default(),
        };
        stats.add(event, who);
        if let Some(number) = number {
            self.slices += usize::from(stats.add_dated(event, number));
        }
        if self.options.keeps_samples && stats.sample.as_ref().is_none_or(|sample| sample.may_yield(event)) {
            stats.offer(sample_of(event));
        }
        if self.slices > self.options.most_slices && self.shift < WIDEST {
            self.coarsen_classes(self.shift + 1);
        }
    }

    /// The key, where it is not the fingerprint alone; false if the event's class is not asked for.
    fn find_key(&mut self, event: &Event<'_>) -> bool {
        let options = &self.options;
        let needs_class = options.selection.needs_class();
        if !needs_class && !options.group.contains(&Dimension::Table) {
            write_key(&options.group, event, &self.fingerprint, b"", &mut self.key);
            return true;
        }
        if !self.statements.contains_key(self.fingerprint.as_slice()) {
            if self.statements.len() >= REMEMBERED_STATEMENTS {
                self.statements.clear();
            }
            let tables = sql::tables(&self.fingerprint).join(b",".as_slice());
            let id = sql::class_id(options.mode, &self.fingerprint);
            self.statements.insert(self.fingerprint.as_slice().into(), Statement { id, tables });
        }
        let statement = &self.statements[self.fingerprint.as_slice()];
        if needs_class && !options.selection.accepts_class(&statement.id, &statement.tables) {
            return false;
        }
        write_key(&options.group, event, &self.fingerprint, &statement.tables, &mut self.key);
        true
    }

    /// Counts the event in the heat; the number of its slice for its class. `None` where its time is not known.
    #[inline]
    fn date(&mut self, event: &Event<'_>) -> Option<u64> {
        if event.start_ns == 0 {
            self.undated += 1;
            return None;
        }
        let second = second_of(event.start_ns);
        let is_known = self.seconds.is_some_and(|(first, last)| (first..=last).contains(&second));
        if !is_known {
            self.widen(second, second);
        }
        if let Some(response_ns) = event.response_ns {
            self.heat.at(second >> self.heat_shift).0.record(response_ns);
        }
        Some(second >> self.shift)
    }

    /// Makes the span reach these seconds, and slices wide enough for it.
    fn widen(&mut self, from: u64, to: u64) {
        let (first, last) = self.seconds.map_or((from, to), |(first, last)| (first.min(from), last.max(to)));
        self.seconds = Some((first, last));
        let heat_shift = shift_for_span(self.heat_shift, first, last);
        self.heat.coarsen(heat_shift - self.heat_shift);
        self.heat_shift = heat_shift;
        let shift = shift_for_span(self.shift, first, last);
        if shift > self.shift {
            self.coarsen_classes(shift);
        }
    }

    /// Slices of classes with at least this shift, and few enough of them.
    fn coarsen_classes(&mut self, mut shift: u32) {
        loop {
            let by = shift - self.shift;
            self.shift = shift;
            self.slices = 0;
            for stats in self.classes.iter_mut().chain(self.others.as_deref_mut()) {
                stats.slices.coarsen(by);
                self.slices += stats.slices.count();
            }
            if self.slices <= self.options.most_slices || shift >= WIDEST {
                return;
            }
            shift += 1;
        }
    }

    /// The place of the class with the key at hand, a new one if need be; `None` for the others.
    #[inline]
    fn place(&mut self) -> Option<usize> {
        if let Some(place) = self.places.get(self.key.as_slice()) {
            return Some(*place as usize);
        }
        let place = self.room_for(self.key.len())?;
        self.key_bytes += self.key.len();
        self.places.insert(self.key.as_slice().into(), place as u32);
        self.classes.push(ClassStats::default());
        Some(place)
    }

    fn room_for(&self, key_bytes: usize) -> Option<usize> {
        let has_room =
            self.classes.len() < self.options.most_classes && self.key_bytes + key_bytes <= KEY_BYTES;
        has_room.then_some(self.classes.len())
    }

    /// Adds another part of the same traffic, counted with the same mode and group.
    pub fn merge(&mut self, mut other: Digest) {
        self.events += other.events;
        self.filtered += other.filtered;
        self.undated += other.undated;
        self.everybody.merge(&mut other.everybody);
        if let Some((first, last)) = other.seconds {
            self.widen(first, last);
        }
        other.heat.coarsen(self.heat_shift.saturating_sub(other.heat_shift));
        self.heat.merge(&other.heat);
        if other.shift > self.shift {
            self.coarsen_classes(other.shift);
        }
        let by = self.shift - other.shift;
        if let Some(mut others) = other.others.take() {
            others.slices.coarsen(by);
            self.others.get_or_insert_default().merge(*others);
        }
        for (key, place) in other.places.drain() {
            let mut stats = std::mem::take(&mut other.classes[place as usize]);
            stats.slices.coarsen(by);
            if let Some(ours) = self.places.get(&key) {
                self.classes[*ours as usize].merge(stats);
            } else if let Some(place) = self.room_for(key.len()) {
                self.key_bytes += key.len();
                self.places.insert(key, place as u32);
                self.classes.push(stats);
            } else {
                self.others.get_or_insert_default().merge(stats);
            }
        }
        self.coarsen_classes(self.shift);
    }

    /// Keys and what was counted of them.
    fn classes(&self) -> impl Iterator<Item = (&[u8], &ClassStats)> {
        self.places.iter().map(|(key, place)| (&**key, &self.classes[*place as usize]))
    }

    /// All classes together: everything but names, slices and the example.
    fn totals(&self) -> ClassStats {
        let mut totals = ClassStats::default();
        for stats in self.classes.iter().chain(self.others.as_deref()) {
            totals.merge_counts(stats);
        }
        totals
    }
}

impl Sink for Digest {
    #[inline]
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self.count(event);
        Ok(())
    }
}

#[cold]
fn sample_of(event: &Event<'_>) -> Sample {
    let mut text = Vec::new();
    let is_redacted = sql::redact(event.text, &mut text);
    let is_cut = text.len() > SAMPLE_BYTES;
    text.truncate(SAMPLE_BYTES);
    text.shrink_to_fit();
    Sample {
        response_ns: Reverse(event.response_ns),
        start_ns: event.start_ns,
        text,
        text_bytes: event.text.len(),
        is_cut,
        is_redacted,
        session: event.session,
        user: cut(event.user).to_vec(),
        host: cut(event.host).to_vec(),
        database: cut(event.database).to_vec(),
        command: command_name(event.command).into_owned(),
        error: match event.outcome {
            Outcome::Error(number) => Some(number),
            _ => None,
        },
        measures: event.measures,
    }
}

/// Hashes whole byte strings. The seed is of the process, because text is hostile.
#[derive(Clone, Debug)]
struct Seeded(u64);

impl Seeded {
    fn new() -> Self {
        Self(std::hash::RandomState::new().hash_one(0_u8))
    }
}

impl BuildHasher for Seeded {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(self.0)
    }
}

struct SeededHasher(u64);

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    // Lengths of slices come before their bytes.
    fn write_usize(&mut self, number: usize) {
        self.0 ^= number as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
