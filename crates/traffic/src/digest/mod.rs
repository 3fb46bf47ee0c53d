//! Digest: query classes with exact counts, sums and histograms, which merge to the same whole however they were split.
//!
//! `docs/reference/digest-format.md` tells what goes out and how each field merges.

mod altered;
mod changes_table;
pub mod class_stats;
pub mod classes;
pub mod command;
mod folding;
pub mod group;
mod kept;
mod known;
pub mod lines;
mod listing;
pub mod measured;
pub mod names;
pub mod pages;
mod parts;
mod progress;
pub(crate) mod seeded;
pub mod slices;
mod span;
mod summary;
pub mod table;
mod together;
mod transaction_lines;
pub mod transactions;
mod waiting;

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::binlog::transaction::{Log, Transaction};
use crate::digest::class_stats::Sample;
use crate::digest::classes::{Bounds, Classes};
use crate::digest::group::{Dimension, command_name, fingerprint, tables, write_key};
use crate::digest::known::Known;
use crate::digest::names::{Everybody, cut};
use crate::digest::pages::Pages;
use crate::digest::seeded::Seeded;
use crate::digest::slices::{MOST_OF_CLASSES, Slices, second_of, shift_for_span};
use crate::digest::transactions::Transactions;
use crate::digest::waiting::Waiting;
use crate::event::{Event, Outcome, Sink, Summary};
use crate::filter::Selection;
use crate::repeats::Seen;
use sql::{self, Mode};

/// Bytes of an example that are kept.
const SAMPLE_BYTES: usize = 8 << 10;
/// Classes that are counted, at most: of a flood of generated names, each class with an event or a few, and of classes
/// with more. A flood takes 180 MB; busy classes take 5 kB each.
const MOST_CLASSES: usize = 1 << 18;
const MOST_BUSY: usize = 1 << 16;
/// Bytes of all keys and examples together.
const MOST_BYTES: usize = 96 << 20;
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
    /// Another file may have the same events.
    pub is_one_of_several: bool,
    /// Classes that are listed, those with the most time; the rest is one more.
    pub most_listed: usize,
    /// What memory has room for; the same in all digests that are merged.
    pub bounds: Bounds,
    /// That merge digests and write them.
    pub threads: usize,
}

impl Default for DigestOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Strict,
            group: vec![Dimension::Class],
            selection: Selection::default(),
            keeps_samples: true,
            is_one_of_several: false,
            most_listed: 50_000,
            bounds: Bounds {
                most_classes: MOST_CLASSES,
                most_busy: MOST_BUSY,
                most_bytes: MOST_BYTES,
                most_slices: MOST_OF_CLASSES,
            },
            threads: 1,
        }
    }
}

/// Counts events by class.
#[derive(Debug)]
pub struct Digest {
    options: DigestOptions,
    classes: Classes,
    everybody: Everybody,
    heat: Slices<Pages>,
    /// Seconds of the first and the last dated event.
    seconds: Option<(u64, u64)>,
    /// Powers of two seconds: the width of slices of the heat.
    heat_shift: u32,
    events: u64,
    filtered: u64,
    undated: u64,
    /// Of binary logs.
    transactions: Option<Box<Transactions>>,
    /// `events` when the last transaction ended.
    events_before: u64,
    statements: HashMap<Box<[u8]>, Statement, Seeded>,
    known: Known,
    waiting: Waiting,
    seen: Box<Seen>,
    has_hole: bool,
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
            classes: Classes::new(Bounds {
                most_classes: options.bounds.most_classes.max(2 * options.most_listed),
                most_busy: options.bounds.most_busy.max(options.most_listed + options.most_listed / 4),
                ..options.bounds
            }),
            everybody: Everybody::default(),
            heat: Slices::default(),
            seconds: None,
            heat_shift: 0,
            events: 0,
            filtered: 0,
            undated: 0,
            transactions: None,
            events_before: 0,
            statements: HashMap::with_hasher(Seeded::new()),
            known: Known::new(),
            waiting: Waiting::default(),
            seen: Box::new(Seen::new(options.is_one_of_several)),
            has_hole: false,
            fingerprint: Vec::new(),
            key: Vec::new(),
        }
    }

    pub fn count(&mut self, event: &Event<'_>) {
        if !event.is_asked() {
            return;
        }
        let selection = &self.options.selection;
        if !selection.is_everything() && !selection.accepts(event) {
            self.filtered += 1;
            return;
        }
        self.seen.event(event);
        let sample = self.options.keeps_samples.then_some(sample_of as fn(&Event<'_>) -> Sample);
        let is_plain = self.is_plain();
        if is_plain && self.classes.are_many() && Waiting::takes(event) {
            self.events += 1;
            self.date(event);
            self.wait(event);
            return;
        }
        let known = self.known.find(event);
        if is_plain && let Some((key, place)) = known {
            let sender = self.everybody.count(event, event.response_ns.unwrap_or(0));
            self.classes.count_at(place, key, event, sender, sample);
            self.events += 1;
            self.date(event);
            return;
        }
        let may_learn = match known {
            Some((known, _)) => {
                self.fingerprint.clear();
                self.fingerprint.extend_from_slice(known);
                false
            }
            None => self.fingerprint_of(event),
        };
        if may_learn && is_plain {
            self.learn(event);
        }
        if !self.key_of(event) {
            self.filtered += 1;
            return;
        }
        self.events += 1;
        self.date(event);
        let sender = self.everybody.count(event, event.response_ns.unwrap_or(0));
        self.classes.count(&self.key, event, sender, sample);
    }

    /// What was seen of a file, to be compared with others before this is merged.
    pub(crate) fn take_seen(&mut self) -> Seen {
        *std::mem::replace(&mut self.seen, Box::new(Seen::new(false)))
    }

    /// Makes the fingerprint of an event; true where any statement of its shape has the same one.
    fn fingerprint_of(&mut self, event: &Event<'_>) -> bool {
        self.has_hole |= altered::has_hole(event.text);
        fingerprint(self.options.mode, event, &mut self.fingerprint)
    }

    /// Learns an event's shape. What comes once, as with names that a program makes, is not worth it.
    fn learn(&mut self, event: &Event<'_>) {
        if self.classes.has(&self.fingerprint) {
            self.known.learn(event, &self.fingerprint);
        }
    }

    /// Whether the key of an event is its fingerprint.
    #[inline]
    fn is_plain(&self) -> bool {
        self.options.group.len() == 1
            && self.options.group[0] == Dimension::Class
            && !self.options.selection.needs_class()
    }

    /// Makes the key of an event out of its fingerprint; false if its class is not asked for.
    #[inline]
    fn key_of(&mut self, event: &Event<'_>) -> bool {
        if self.is_plain() {
            std::mem::swap(&mut self.fingerprint, &mut self.key);
            return true;
        }
        self.find_key(event)
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
            let tables = tables(&self.fingerprint).join(b",".as_slice());
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

    /// Counts the event in the heat.
    #[inline]
    fn date(&mut self, event: &Event<'_>) {
        if event.start_ns == 0 {
            self.undated += 1;
            return;
        }
        let second = second_of(event.start_ns);
        let is_known = self.seconds.is_some_and(|(first, last)| (first..=last).contains(&second));
        if !is_known {
            self.widen(second, second);
        }
        if let Some(response_ns) = event.response_ns {
            self.heat.at(second >> self.heat_shift).0.record(response_ns);
        }
    }

    /// Makes the span reach these seconds, and slices wide enough for it.
    fn widen(&mut self, from: u64, to: u64) {
        let (first, last) = self.seconds.map_or((from, to), |(first, last)| (first.min(from), last.max(to)));
        self.seconds = Some((first, last));
        let heat_shift = shift_for_span(self.heat_shift, first, last);
        self.heat.coarsen(heat_shift - self.heat_shift);
        self.heat_shift = heat_shift;
        let shift = shift_for_span(self.classes.shift(), first, last);
        if shift > self.classes.shift() {
            self.classes.coarsen(shift);
        }
    }

    /// Adds another part of the same traffic, counted with the same mode and group.
    pub fn merge(&mut self, mut other: Digest) {
        self.count_waiting();
        other.count_waiting();
        if self.events + self.filtered == 0 && self.transactions.is_none() {
            std::mem::swap(self, &mut other);
        }
        self.events += other.events;
        self.filtered += other.filtered;
        self.undated += other.undated;
        self.has_hole |= other.has_hole;
        self.everybody.merge(&mut other.everybody);
        if let Some(transactions) = other.transactions.take() {
            self.transactions.get_or_insert_default().merge(*transactions);
        }
        if let Some((first, last)) = other.seconds {
            self.widen(first, last);
        }
        other.heat.coarsen(self.heat_shift.saturating_sub(other.heat_shift));
        self.heat.merge(&other.heat);
        self.classes.merge(other.classes, self.options.threads);
    }
}

impl Sink for Digest {
    #[inline]
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self.count(event);
        Ok(())
    }

    fn summary(&mut self, summary: &Summary<'_>) -> anyhow::Result<()> {
        self.summarise(summary)
    }

    /// Counts a transaction if one of its statements was counted: its figures are those of the whole.
    fn transaction(&mut self, transaction: &Transaction<'_>) -> anyhow::Result<()> {
        let is_chosen = self.options.selection.is_everything() || self.events > self.events_before;
        self.events_before = self.events;
        if is_chosen {
            self.transactions.get_or_insert_default().add(transaction, self.options.mode);
        }
        Ok(())
    }

    fn log(&mut self, log: &Log) -> anyhow::Result<()> {
        self.transactions.get_or_insert_default().add_log(log);
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

#[cfg(test)]
mod tests;
