//! Users, hosts and databases: counted exactly for as many as a bound allows, the same ones in whatever order they came.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::event::Event;

/// How many names of each kind a class keeps, and all classes together.
pub const KEPT_PER_CLASS: usize = 32;
pub const KEPT_IN_ALL: usize = 1024;
/// Longer ones are no names of a server; they are cut so that memory stays bounded.
const LONGEST_NAME: usize = 255;
const REMEMBERED: usize = 4096;

/// A name and its place in the order by which names are kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    hash: u64,
    text: Arc<[u8]>,
}

impl Name {
    fn new(text: &[u8]) -> Self {
        let text = cut(text);
        Self { hash: xxh3_64(text), text: text.into() }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

pub fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(LONGEST_NAME)]
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: Name,
    pub count: u64,
    pub sum_ns: u64,
}

/// The names with the smallest hashes. One that is kept at the end was never dropped before, in any part: its counts
/// are exact however the events were split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Ascending by name's order.
    entries: Vec<Entry>,
}

impl Names {
    #[inline]
    pub fn add(&mut self, name: &Name, count: u64, sum_ns: u64, kept: usize) {
        if name.text.is_empty() {
            return;
        }
        // Most classes have a few names: a look at their hashes in a row beats a search.
        let place = if self.entries.len() <= KEPT_PER_CLASS {
            self.entries.iter().position(|entry| entry.name.hash >= name.hash).unwrap_or(self.entries.len())
        } else {
            self.entries.partition_point(|entry| entry.name.hash < name.hash)
        };
        match self.entries.get_mut(place) {
            Some(entry) if is_same(&entry.name, name) => {
                entry.count += count;
                entry.sum_ns = entry.sum_ns.saturating_add(sum_ns);
            }
            _ => self.insert(name, count, sum_ns, kept),
        }
    }

    #[cold]
    fn insert(&mut self, name: &Name, count: u64, sum_ns: u64, kept: usize) {
        match self.entries.binary_search_by(|entry| entry.name.cmp(name)) {
            // Two names of one hash: the second is found here.
            Ok(place) => {
                self.entries[place].count += count;
                self.entries[place].sum_ns = self.entries[place].sum_ns.saturating_add(sum_ns);
            }
            Err(place) if place < kept => {
                self.entries.truncate(kept - 1);
                self.entries.insert(place, Entry { name: name.clone(), count, sum_ns });
            }
            Err(_) => {}
        }
    }

    pub fn merge(&mut self, other: &Names, kept: usize) {
        for entry in &other.entries {
            self.add(&entry.name, entry.count, entry.sum_ns, kept);
        }
    }

    /// The kept names, those of most events first.
    pub fn by_count(&self) -> Vec<&Entry> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.text.cmp(&b.name.text)));
        entries
    }
}

#[inline]
fn is_same(a: &Name, b: &Name) -> bool {
    a.hash == b.hash && (Arc::ptr_eq(&a.text, &b.text) || a.text == b.text)
}

/// Who sent an event.
#[derive(Debug, PartialEq)]
pub struct Sender {
    pub user: Name,
    pub host: Name,
    pub database: Name,
}

/// A sender, and what they sent in all classes since they were last remembered.
#[derive(Debug)]
struct Who {
    sender: Arc<Sender>,
    count: u64,
    sum_ns: u64,
}

impl Sender {
    #[inline]
    fn is_of(&self, event: &Event<'_>) -> bool {
        *self.user.text == *cut(event.user)
            && *self.host.text == *cut(event.host)
            && *self.database.text == *cut(event.database)
    }
}

/// All classes together: a name is hashed and kept once, not for each event.
#[derive(Debug)]
pub struct Everybody {
    remembered: Vec<Option<Box<Who>>>,
    users: Names,
    hosts: Names,
    databases: Names,
}

impl Default for Everybody {
    fn default() -> Self {
        let remembered = std::iter::repeat_with(|| None).take(REMEMBERED).collect();
        Self { remembered, users: Names::default(), hosts: Names::default(), databases: Names::default() }
    }
}

impl Everybody {
    /// Counts an event and tells whose it is.
    #[inline]
    pub fn count(&mut self, event: &Event<'_>, sum_ns: u64) -> &Arc<Sender> {
        self.count_many(event, 1, sum_ns)
    }

    /// The same for so many events of the same names.
    #[inline]
    pub fn count_many(&mut self, event: &Event<'_>, count: u64, sum_ns: u64) -> &Arc<Sender> {
        let place = place_of(event);
        if !self.remembered[place].as_ref().is_some_and(|who| who.sender.is_of(event)) {
            self.forget(place);
            let sender = Arc::new(Sender {
                user: Name::new(event.user),
                host: Name::new(event.host),
                database: Name::new(event.database),
            });
            self.remembered[place] = Some(Box::new(Who { sender, count: 0, sum_ns: 0 }));
        }
        let who = self.remembered[place].as_mut().expect("just put there");
        who.count += count;
        who.sum_ns = who.sum_ns.saturating_add(sum_ns);
        &who.sender
    }

    fn forget(&mut self, place: usize) {
        if let Some(who) = self.remembered[place].take() {
            let Sender { user, host, database } = &*who.sender;
            self.users.add(user, who.count, who.sum_ns, KEPT_IN_ALL);
            self.hosts.add(host, who.count, who.sum_ns, KEPT_IN_ALL);
            self.databases.add(database, who.count, who.sum_ns, KEPT_IN_ALL);
        }
    }

    /// Users, hosts and databases of everything counted so far.
    pub fn names(&mut self) -> [&Names; 3] {
        (0..REMEMBERED).for_each(|place| self.forget(place));
        [&self.users, &self.hosts, &self.databases]
    }

    pub fn merge(&mut self, other: &mut Everybody) {
        self.names();
        let [users, hosts, databases] = other.names();
        self.users.merge(users, KEPT_IN_ALL);
        self.hosts.merge(hosts, KEPT_IN_ALL);
        self.databases.merge(databases, KEPT_IN_ALL);
    }
}

/// Where an event's names are remembered: any cheap mixture of them will do, for they are compared.
#[inline]
fn place_of(event: &Event<'_>) -> usize {
    let mut mixed = 0_u64;
    for name in [event.user, event.host, event.database] {
        mixed = (mixed.rotate_left(21) ^ xxh3_64(cut(name))).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    (mixed >> 52) as usize % REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::{Name, Names};
    use proptest::prelude::{prop_assert_eq, proptest};
    use std::collections::BTreeMap;

    const KEPT: usize = 5;

    proptest! {
        #[test]
        fn any_split_keeps_the_same_names_with_exact_counts(
            events in proptest::collection::vec((0_u8..20, 0_usize..3), 0..200),
        ) {
            let mut parts = vec![Names::default(); 3];
            let (mut whole, mut model) = (Names::default(), BTreeMap::new());
            for (number, part) in events {
                let name = Name::new(&[number]);
                whole.add(&name, 1, u64::from(number), KEPT);
                parts[part].add(&name, 1, u64::from(number), KEPT);
                *model.entry(name).or_insert(0) += 1;
            }
            let mut merged = Names::default();
            parts.iter().rev().for_each(|part| merged.merge(part, KEPT));
            prop_assert_eq!(&merged, &whole);
            let kept: Vec<_> = whole.entries.into_iter().map(|entry| (entry.name, entry.count)).collect();
            prop_assert_eq!(kept, model.into_iter().take(KEPT).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_empty_name_is_none() {
        let mut names = Names::default();
        names.add(&Name::new(b""), 1, 1, KEPT);
        assert!(names.by_count().is_empty());
    }
}
