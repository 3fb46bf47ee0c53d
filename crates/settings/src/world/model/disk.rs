//! A disk: what was written, and what of it a power cut would leave.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::chance::Chance;

pub struct Disk {
    pub nodes: Vec<Node>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    /// Changes of names that no sync of their folder has made last, oldest first.
    unsynced: Vec<Rename>,
}

pub struct Node {
    pub is_folder: bool,
    pub mode: u32,
    pub now: Vec<u8>,
    synced: Vec<u8>,
}

impl Node {
    fn lose_a_part(&mut self, chance: &mut Chance) {
        if !self.now.starts_with(&self.synced) {
            if chance.one_in(2) {
                self.now.clone_from(&self.synced);
            }
            return;
        }
        let (old, new) = (self.synced.len(), self.now.len());
        let kept = old + chance.below(new - old + 1);
        match chance.below(4) {
            0 => self.now.truncate(old),
            1 => self.now.truncate(kept),
            // The length was written, the data was not.
            2 => self.now[kept..].fill(0),
            _ => {}
        }
    }
}

/// How much of what was not synced is there after a power cut.
enum Share {
    Nothing,
    All,
    Part,
}

impl Share {
    fn any(chance: &mut Chance) -> Share {
        match chance.below(3) {
            0 => Share::Nothing,
            1 => Share::All,
            _ => Share::Part,
        }
    }

    /// Whether the next change of a name is lost.
    fn is_lost(&self, chance: &mut Chance) -> bool {
        match self {
            Share::Nothing => true,
            Share::All => false,
            Share::Part => chance.one_in(3),
        }
    }
}

#[derive(Clone)]
struct Rename {
    from: Option<PathBuf>,
    to: Option<(PathBuf, usize)>,
}

impl Rename {
    fn folder(&self) -> &Path {
        let path = self.from.as_ref().or(self.to.as_ref().map(|(to, _)| to));
        path.and_then(|path| path.parent()).unwrap_or(Path::new("/"))
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        if let Some(from) = &self.from {
            names.remove(from);
        }
        if let Some((to, node)) = &self.to {
            names.insert(to.clone(), *node);
        }
    }
}

impl Disk {
    /// The folders that every host has.
    pub fn new() -> Disk {
        let mut disk =
            Disk { nodes: vec![], names: BTreeMap::new(), synced_names: BTreeMap::new(), unsynced: vec![] };
        for path in ["/", "/host", "/host/etc", "/host/etc/sysctl.d", "/host/etc/mysql", "/var", "/var/lib"] {
            disk.add(Path::new(path), true, 0o755);
        }
        disk.sync_all();
        disk
    }

    pub fn find(&self, path: &Path) -> Option<usize> {
        self.names.get(path).copied()
    }

    fn change(&mut self, change: Rename) {
        change.apply(&mut self.names);
        self.unsynced.push(change);
    }

    pub fn add(&mut self, path: &Path, is_folder: bool, mode: u32) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node { is_folder, mode, now: vec![], synced: vec![] });
        self.change(Rename { from: None, to: Some((path.to_owned(), node)) });
        node
    }

    pub fn has_entries(&self, folder: &Path) -> bool {
        self.names.keys().any(|path| path.parent() == Some(folder))
    }

    pub fn remove(&mut self, path: &Path) {
        self.change(Rename { from: Some(path.to_owned()), to: None });
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let node = self.find(from).ok_or(Errno::NOENT)?;
        self.change(Rename { from: Some(from.to_owned()), to: Some((to.to_owned(), node)) });
        Ok(())
    }

    pub fn sync(&mut self, node: usize) {
        if self.nodes[node].is_folder {
            let path = self.names.iter().find(|(_, n)| **n == node).map(|(path, _)| path.clone());
            let (ours, others) = std::mem::take(&mut self.unsynced)
                .into_iter()
                .partition(|r| Some(r.folder()) == path.as_deref());
            self.unsynced = others;
            let ours: Vec<Rename> = ours;
            ours.iter().for_each(|change| change.apply(&mut self.synced_names));
        } else {
            let node = &mut self.nodes[node];
            node.synced.clone_from(&node.now);
        }
    }

    pub fn sync_all(&mut self) {
        self.unsynced.clear();
        self.synced_names.clone_from(&self.names);
        for node in &mut self.nodes {
            node.synced.clone_from(&node.now);
        }
    }

    /// What was synced stays; of the rest nothing, all, or any beginning of the changes of each folder and of each file's
    /// writes.
    pub fn cut_power(&mut self, chance: &mut Chance) {
        let share = Share::any(chance);
        let mut ended: Vec<PathBuf> = vec![];
        for change in std::mem::take(&mut self.unsynced) {
            let folder = change.folder().to_owned();
            if ended.contains(&folder) || share.is_lost(chance) {
                ended.push(folder);
            } else {
                change.apply(&mut self.synced_names);
            }
        }
        // A name whose folder was lost is lost.
        let names = std::mem::take(&mut self.synced_names);
        self.names = names
            .iter()
            .filter(|(path, _)| path.ancestors().all(|p| names.contains_key(p)))
            .map(|(p, n)| (p.clone(), *n))
            .collect();
        let share = Share::any(chance);
        for node in self.nodes.iter_mut().filter(|node| node.now != node.synced) {
            match share {
                Share::Nothing => node.now.clone_from(&node.synced),
                Share::All => {}
                Share::Part => node.lose_a_part(chance),
            }
        }
        self.sync_all();
    }

    /// The files below a folder, and what is in them.
    pub fn files_below(&self, folder: &Path) -> BTreeMap<PathBuf, String> {
        let inside = self
            .names
            .iter()
            .filter(|(path, node)| path.starts_with(folder) && !self.nodes[**node].is_folder);
        let text = |node: &usize| String::from_utf8_lossy(&self.nodes[*node].now).into_owned();
        inside.map(|(path, node)| (path.clone(), text(node))).collect()
    }

    /// Somebody writes a whole file, and sees to it that it stays.
    pub fn put(&mut self, path: &Path, text: &str) {
        let node = self.find(path).unwrap_or_else(|| self.add(path, false, 0o644));
        self.nodes[node].now = text.as_bytes().to_vec();
        self.sync(node);
        path.parent().and_then(|folder| self.find(folder)).into_iter().for_each(|folder| self.sync(folder));
    }

    /// The text of all files in a folder, as a boot reads them.
    pub fn text_below(&self, folder: &Path) -> String {
        let files = self.files_below(folder).into_iter();
        files.filter(|(path, _)| !path.ends_with(".headrace.part")).map(|(_, text)| text).collect()
    }
}
