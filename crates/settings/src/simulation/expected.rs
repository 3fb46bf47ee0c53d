//! What a host must look like at rest, from what its users did and heard.
//!
//! A command that was killed may have done its work or not: then there are two worlds, and one of them must be true.

use std::collections::{BTreeMap, BTreeSet};

use super::host::{Change, Rest, Values};

/// None: there is no such file.
type Text = Option<String>;

pub struct Expected {
    worlds: Vec<World>,
}

#[derive(Clone)]
pub struct World {
    /// What each key may be once all that is open was undone. A key that is missing here must not exist.
    rest: BTreeMap<String, BTreeSet<Text>>,
    sets: Vec<Set>,
}

/// What one owner changed.
#[derive(Clone)]
struct Set {
    owner: String,
    is_kept: bool,
    /// What keys were, and what the change made them, as long as no stranger has set them.
    was: BTreeMap<String, BTreeSet<Text>>,
    made: BTreeMap<String, Text>,
    /// What the change made them, regardless of later writes: its file sets them again.
    wrote: BTreeMap<String, Text>,
    asked: BTreeSet<String>,
    /// Its command ended well.
    heard: bool,
}

fn is_file(key: &str) -> bool {
    key.starts_with("/etc/")
}

/// No file of ours makes it hold again: fstab is somebody else's.
fn is_mount(key: &str) -> bool {
    key.starts_with("mount ")
}

impl Set {
    /// A file makes this key hold again after a start.
    fn lasts(&self, key: &str) -> bool {
        !is_mount(key) && self.asked.iter().any(|key| is_file(key))
    }

    fn may_hold(&self, key: &str) -> bool {
        let came_along = self.asked.iter().any(|asked| companions(asked).iter().any(|other| other == key));
        self.made.contains_key(key) || came_along || !self.heard && self.asked.contains(key)
    }

    /// Whether the journal knows what `key` should be: what came along with a change is noted after it, and counts until
    /// the change itself is undone.
    fn knows(&self, key: &str) -> bool {
        let came_along = self.asked.iter().any(|asked| companions(asked).iter().any(|other| other == key));
        let noted = self.heard && self.asked.iter().all(|asked| self.made.contains_key(asked));
        noted || self.asked.contains(key) && !came_along
    }
}

/// What the kernel changes along with a key.
fn companions(key: &str) -> Vec<String> {
    let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
    if let Some((name, server)) = key.split_once(" of ") {
        let other = match name {
            "innodb_io_capacity" => "innodb_io_capacity_max",
            "innodb_io_capacity_max" => "innodb_io_capacity",
            _ => return vec![],
        };
        return vec![format!("{other} of {server}")];
    }
    let names: &[&str] = match key.rsplit('/').next() {
        Some("scheduler") => &["nr_requests", "iosched/read_expire", "iosched/read_lat_nsec"],
        Some("max_sectors_kb") => &["read_ahead_kb"],
        Some("dirty_ratio") => &["dirty_bytes"],
        Some("dirty_bytes") => &["dirty_ratio"],
        _ => &[],
    };
    names.iter().map(|name| format!("{folder}/{name}")).collect()
}

impl Expected {
    pub fn new(now: Values) -> Expected {
        let rest = now.into_iter().map(|(key, value)| (key, [Some(value)].into())).collect();
        Expected { worlds: vec![World { rest, sets: vec![] }] }
    }

    fn all(&mut self, event: impl Fn(&mut World)) {
        self.worlds.iter_mut().for_each(event);
    }

    /// It happened, or not.
    pub fn perhaps(&mut self, event: impl Fn(&mut World)) {
        let mut others = self.worlds.clone();
        others.iter_mut().for_each(event);
        self.worlds.extend(others);
    }

    /// `seen` is the host before and after.
    pub fn applied(&mut self, owner: &str, changes: &[Change], seen: [&Values; 2], heard: bool) {
        self.all(|world| world.applied(owner, changes, seen, heard));
    }

    pub fn confirmed(&mut self, owner: &str) {
        self.all(|world| world.confirmed(owner));
    }

    pub fn undone(&mut self, owner: &str) {
        self.all(|world| world.undone(owner));
    }

    /// A command was killed or failed, which may have begun to undo what is open.
    pub fn disturbed(&mut self) {
        self.all(|world| world.sets.iter_mut().filter(|set| !set.is_kept).for_each(|set| set.heard = false));
    }

    pub fn undone_everything(&mut self) {
        self.all(|world| world.sets.retain(|set| set.is_kept));
    }

    /// A stranger set `key`, which may have changed others along.
    pub fn foreign(&mut self, before: &Values, after: &Values, key: &str) {
        let differ = before.keys().chain(after.keys()).filter(|k| before.get(*k) != after.get(*k));
        let changed: BTreeSet<&String> = differ.collect();
        self.all(|world| {
            for changed in &changed {
                let now = after.get(*changed).cloned();
                let mut pending = world.sets.iter().filter(|set| !set.is_kept && set.may_hold(changed));
                // What came along with a stranger's value may be undone with ours.
                let may_be_undone = pending.any(|set| *changed != key || !set.knows(key));
                let rest = world.rest.entry((*changed).clone()).or_insert_with(|| [None].into());
                if !may_be_undone {
                    rest.clear();
                }
                rest.insert(now);
                // Once a stranger has brought a change's original back, what came along with the change is restored.
                let brought_back = |set: &&Set| !set.is_kept && set.asked.contains(*changed);
                for set in world.sets.iter().filter(brought_back) {
                    for other in companions(changed) {
                        let was = set.was.get(&other).cloned().unwrap_or_default();
                        world.rest.entry(other).or_insert_with(|| [None].into()).extend(was);
                    }
                }
                for set in &mut world.sets {
                    set.made.remove(*changed);
                }
            }
        });
    }

    /// What a start gives its first values again: the kernel's files, or the variables of the server that started.
    pub fn started(&mut self, now: &Values, has_started: impl Fn(&str) -> bool) {
        self.all(|world| {
            let keys: BTreeSet<String> = world.rest.keys().chain(now.keys()).cloned().collect();
            for key in keys.into_iter().filter(|key| has_started(key)) {
                let mut rest: BTreeSet<Text> = [now.get(&key).cloned()].into();
                for set in &mut world.sets {
                    if set.lasts(&key) && !set.is_kept {
                        // A file that was written before it was confirmed: what it set is undone.
                        rest.extend(set.was.get(&key).cloned().unwrap_or_default());
                    }
                    // Only what a file has set again is ours, also if a stranger had changed it before the start.
                    set.made.remove(&key);
                    let value = now.get(&key).cloned();
                    if set.lasts(&key) && set.asked.contains(&key) && set.wrote.get(&key) == Some(&value) {
                        set.made.insert(key.clone(), value);
                    }
                }
                world.rest.insert(key, rest);
            }
        });
    }

    pub fn check(&self, mut rest: Rest) -> Result<(), String> {
        let along: Vec<String> = rest.reported.iter().flat_map(|key| companions(key)).collect();
        rest.reported.extend(along);
        let wrong: Vec<String> = self.worlds.iter().filter_map(|world| world.differs(&rest)).collect();
        if wrong.len() < self.worlds.len() { Ok(()) } else { Err(wrong.join("\nor ")) }
    }
}

impl World {
    pub fn applied(&mut self, owner: &str, changes: &[Change], [before, now]: [&Values; 2], heard: bool) {
        let mut keys: Vec<String> = changes.iter().map(|(key, _)| key.clone()).collect();
        keys.extend(changes.iter().flat_map(|(key, _)| companions(key)));
        let asked = changes.iter().map(|(key, _)| key.clone()).collect();
        let [made, wrote] = [BTreeMap::new(), BTreeMap::new()];
        let mut set =
            Set { owner: owner.to_owned(), is_kept: false, was: BTreeMap::new(), made, wrote, asked, heard };
        for key in keys {
            let was = self.rest.get(&key).cloned().unwrap_or_else(|| [None].into());
            // A file is written when it is confirmed.
            let wanted = changes.iter().find(|(other, _)| *other == key && is_file(key.as_str()));
            let value = wanted.map(|(_, text)| text.clone()).or_else(|| now.get(&key).cloned());
            // Where it could have been either, it is what it was seen to be.
            if !was.contains(&value) || was.len() > 1 && before.get(&key) != value.as_ref() {
                set.made.insert(key.clone(), value);
            }
            set.was.insert(key, was);
        }
        set.wrote.clone_from(&set.made);
        if !set.made.is_empty() || !heard {
            self.sets.push(set);
        }
    }

    pub fn confirmed(&mut self, owner: &str) {
        let Some(at) = self.sets.iter().position(|set| set.owner == owner && !set.is_kept) else { return };
        let mut set = self.sets.remove(at);
        set.is_kept = true;
        for (key, value) in &set.made {
            self.rest.insert(key.clone(), [value.clone()].into());
        }
        // In the order of their confirmations.
        self.sets.push(set);
    }

    /// Its undo has begun: the next call finishes it.
    pub fn reopened(&mut self, owner: &str) {
        let Some(set) = self.sets.iter_mut().find(|set| set.owner == owner && set.is_kept) else { return };
        (set.is_kept, set.heard) = (false, false);
        for (key, was) in &set.was {
            if set.made.contains_key(key) {
                self.rest.insert(key.clone(), was.clone());
            } else if !set.asked.contains(key) {
                // What came along with a stranger's value may be undone with ours.
                self.rest.entry(key.clone()).or_insert_with(|| [None].into()).extend(was.clone());
            }
        }
    }

    pub fn undone(&mut self, owner: &str) {
        self.reopened(owner);
        self.sets.retain(|set| set.owner != owner);
    }

    fn differs(&self, Rest { values: now, reported, kept }: &Rest) -> Option<String> {
        let ours: Vec<&String> = self.sets.iter().filter(|set| set.is_kept).map(|set| &set.owner).collect();
        if !ours.iter().copied().eq(kept) {
            return Some(format!("kept is {kept:?} and should be {ours:?}"));
        }
        let keys: BTreeSet<&String> = now.keys().chain(self.rest.keys()).collect();
        for key in keys.into_iter().filter(|key| !reported.contains(key)) {
            let value = now.get(key).cloned();
            let may_be = self.rest.get(key).cloned().unwrap_or_else(|| [None].into());
            if !may_be.contains(&value) {
                return Some(format!("{key} is {value:?} and should be {may_be:?}"));
            }
        }
        None
    }
}
