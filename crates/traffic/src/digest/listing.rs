//! A digest as it is written: the classes with the most time, and the rest as one.

use std::borrow::Cow;

use crate::digest::Digest;
use crate::digest::class_stats::ClassStats;
use crate::digest::classes::{Class, join};
use crate::digest::names::Names;
use crate::digest::parts::in_parts;

/// What a digest comes to.
pub struct Listing<'d> {
    pub digest: &'d Digest,
    /// Users, hosts and databases of everything.
    pub names: [Names; 3],
    /// Keys and classes, the most time first.
    pub listed: Vec<(&'d [u8], &'d Class)>,
    /// All that are not listed, with those that memory had no room for.
    pub others: Option<Box<ClassStats>>,
    /// How many classes the others are; `None` if that is not known.
    pub other_classes: Option<usize>,
    /// A class that is not listed has no more time, in ns.
    pub unlisted_most_ns: u64,
    /// A class that is listed lacks no more time, in ns.
    pub lost_most_ns: u64,
    /// All classes together: everything but names, slices and the example.
    pub totals: ClassStats,
    pub shift: u32,
}

impl Digest {
    /// All that was counted so far.
    pub fn listing(&mut self) -> Listing<'_> {
        self.count_waiting();
        let names = self.everybody.names().map(Clone::clone);
        let by_bytes = self.transactions.is_some();
        self.classes.settle(self.options.most_listed, by_bytes, self.options.threads);
        let digest = &*self;
        let (classes, shift) = (&digest.classes, digest.classes.shift());
        let mut listed = classes.ranked(by_bytes);
        let rest = listed.split_off(listed.len().min(digest.options.most_listed));
        let mut others = classes.others().cloned().map(Box::new);
        for (_, class) in &rest {
            join(others.get_or_insert_default(), class, shift);
        }
        let parts = in_parts(&mut listed, digest.options.threads, |listed| {
            let mut totals = ClassStats::default();
            for (_, class) in listed {
                totals.merge_counts(&class.stats(shift));
            }
            totals
        });
        let mut totals = ClassStats::default();
        parts.iter().for_each(|part| totals.merge_counts(part));
        others.iter().for_each(|others| totals.merge_counts(others));
        let lost_most_ns = classes.lost_most_ns();
        let largest_ns = rest.iter().map(|(_, class)| class.rank(false).0.0).max().unwrap_or(0);
        let largest_ns = u64::try_from(largest_ns).unwrap_or(u64::MAX);
        Listing {
            digest,
            names,
            other_classes: classes.others().is_none().then_some(rest.len()),
            unlisted_most_ns: largest_ns.saturating_add(lost_most_ns).saturating_add(classes.unnamed_ns()),
            lost_most_ns,
            listed,
            others,
            totals,
            shift,
        }
    }
}

impl Listing<'_> {
    /// What was counted of each class, and of the others.
    pub fn all(&self) -> impl Iterator<Item = Cow<'_, ClassStats>> {
        let listed = self.listed.iter().map(|(_, class)| class.stats(self.shift));
        listed.chain(self.others.as_deref().map(Cow::Borrowed))
    }

    /// The share of all time, or of all calls where no time is known, that is in no class of its own.
    pub fn others_share(&self) -> f64 {
        let Some(others) = &self.others else { return 0.0 };
        let (part, whole) = match self.totals.response.sum_ns {
            0 => (others.count as f64, self.totals.count as f64),
            whole_ns => (others.response.sum_ns as f64, whole_ns as f64),
        };
        if whole > 0.0 { part / whole } else { 0.0 }
    }
}
