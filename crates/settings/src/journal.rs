//! The journal file: `journal.jsonl` in the state folder, one JSON line an event, appended and synced.
//!
//! A line may declare scratch folders, add undo entries and mark entries as done. All that one call adds
//! is on one line, so it is there whole or not at all. A last line that cannot be read was being written
//! when the machine or the process died: the write had not returned, nobody acted on it, it is dropped.
//! When no entry is open the file is emptied.

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::commands::Commands;
use super::deadline::Deadline;
use super::lock;
use super::world::fs::{self, DirBuilder, DirBuilderExt, File, MetadataExt, OpenOptions, OpenOptionsExt};
use super::world::since_epoch;
use base::error::AgentError;
use mysql::ServerArguments;

/// 2: server variables, whole files, remounts, deadlines. 3: arrays, mapped devices. 4: which start of a server,
/// NULL, what a change became. 5: later deadlines of earlier entries. 6: the mark of processes. 7: restarts.
const FORMAT: u32 = 7;
pub const FILE_NAME: &str = "journal.jsonl";
/// No journal has counted so far: a line with such a number is damaged, and the next number could not be given.
const TOO_MANY: u64 = 1 << 62;

/// How to undo one change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Undo {
    /// Unmount whatever is mounted at this path.
    Mount { path: PathBuf },
    /// Detach every loop device with this backing file.
    Loop { backing: PathBuf },
    /// Reset and remove this zram device.
    Zram { device: String },
    /// Stop the md array whose members carry this UUID; `name` is what it was to be called.
    Array { uuid: String, name: String },
    /// Remove this device of the device mapper.
    Mapped { name: String },
    /// End every process that carries this owner's mark, or that of one of its parts. Until format 5 as `owner`, which an entry
    /// has already.
    Process {
        #[serde(alias = "owner")]
        mark: String,
    },
    /// Remove this file or folder and all below it.
    Remove { path: PathBuf },
    /// Wipe the file system with this UUID off a device that carried none before.
    Wipe { device: PathBuf, uuid: String },
    /// Write these values, in this order. More than one where the kernel couples files.
    Setting { restore: Vec<FileValue> },
    /// Give a server's variables these values, within the start of the server that they were read in. More than one
    /// where the server couples them.
    Variable {
        login: ServerArguments,
        restore: Vec<VariableValue>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<ServerStart>,
    },
    /// Give a whole file this content, or remove it and the folders that were made for it.
    File { path: PathBuf, content: Option<String>, made: Vec<PathBuf> },
    /// Give a mount these options.
    Remount { path: PathBuf, options: String },
    /// Have the server of this start restarted once these files are back, so that the variables have these values. With
    /// commands the host does it itself, otherwise a person.
    Restart {
        login: ServerArguments,
        start: ServerStart,
        restore: Vec<VariableValue>,
        files: Vec<PathBuf>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commands: Option<Box<Commands>>,
    },
}

impl Undo {
    pub fn is_restart(&self) -> bool {
        matches!(self, Undo::Restart { .. })
    }
}

/// One run of one server: variables set in it are lost when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStart {
    pub server: String,
    /// By the server's own clock, since 1970.
    pub started_s: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariableValue {
    pub name: String,
    /// None is NULL.
    pub value: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileValue {
    pub path: String,
    pub value: String,
}

/// An undo entry of the journal that was not undone yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    pub id: u64,
    pub owner: String,
    pub t_ns: u64,
    /// The boot in which it was journaled; empty where the host does not tell.
    pub boot_id: String,
    /// Undone automatically from then on, unless confirmed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// What was written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wrote: String,
    /// What the values of `undo` were after the write, in their order; empty if the writer was killed before
    /// it could note them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub became: Vec<Option<String>>,
    /// A file of the same call makes the value hold again after a boot, or a restart of the server.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lasts: bool,
    #[serde(flatten)]
    pub undo: Undo,
}

#[derive(Serialize, Deserialize)]
struct Line {
    format: u32,
    t_ns: u64,
    owner: String,
    #[serde(default)]
    boot_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<Deadline>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scratch: Vec<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    undo: Vec<Numbered>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    became: Vec<Became>,
    /// Earlier entries that have the deadline of this line from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    due: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    done: Vec<u64>,
}

/// A new entry, as its line holds it.
#[derive(Serialize, Deserialize)]
struct Numbered {
    id: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    wrote: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    became: Vec<Option<String>>,
    #[serde(default, skip_serializing_if = "is_false")]
    lasts: bool,
    #[serde(flatten)]
    undo: Undo,
}

/// What the values of an earlier entry were after its write.
#[derive(Serialize, Deserialize)]
struct Became {
    id: u64,
    values: Vec<Option<String>>,
}

#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// What a journal file says: pure, so that tests can cut it anywhere.
#[derive(Default, Debug, PartialEq)]
pub struct Content {
    pub open: Vec<Open>,
    pub scratch: Vec<PathBuf>,
    /// Numbers of lines that cannot be read though later ones can: the disk lost them.
    pub damaged: Vec<usize>,
    next_id: u64,
    /// Bytes up to the end of the last line that counts.
    valid_bytes: usize,
}

impl Content {
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Content> {
        let mut content = Content { next_id: 1, ..Content::default() };
        let mut end = 0;
        let mut unreadable = Vec::new();
        for (index, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
            end += line.len();
            let complete = line.ends_with(b"\n");
            if let Ok(Version { format }) = serde_json::from_slice::<Version>(line)
                && format > FORMAT
            {
                anyhow::bail!(
                    "the journal was written by a newer headrace-agent (format {format}): use that one"
                );
            }
            match serde_json::from_slice::<Line>(line) {
                Ok(line) if complete && line.undo.iter().all(|entry| entry.id < TOO_MANY) => {
                    content.take(line);
                    content.valid_bytes = end;
                    content.damaged.append(&mut unreadable);
                }
                _ => unreadable.push(index + 1),
            }
        }
        // More than the one torn line at the end cannot come from a write that was cut short.
        if unreadable.len() > 1 {
            content.valid_bytes = bytes.len();
            content.damaged.append(&mut unreadable);
        }
        Ok(content)
    }

    /// Numbers of new entries are new, and what is dropped as torn says nothing.
    #[cfg(fuzzing)]
    pub fn check(&self, bytes: &[u8]) {
        assert!(self.open.iter().all(|entry| entry.id < self.next_id));
        assert!(self.valid_bytes <= bytes.len());
        let whole = Content::parse(&bytes[..self.valid_bytes]).expect("what was read before");
        assert_eq!(whole, *self);
    }

    fn take(&mut self, line: Line) {
        self.scratch.extend(line.scratch);
        for Numbered { id, wrote, became, lasts, undo } in line.undo {
            self.next_id = self.next_id.max(id + 1);
            let (owner, boot_id) = (line.owner.clone(), line.boot_id.clone());
            let deadline = line.deadline.clone();
            self.open.push(Open {
                id,
                owner,
                t_ns: line.t_ns,
                boot_id,
                deadline,
                wrote,
                became,
                lasts,
                undo,
            });
        }
        for Became { id, values } in line.became {
            if let Some(entry) = self.open.iter_mut().find(|entry| entry.id == id) {
                entry.became = values;
            }
        }
        for entry in self.open.iter_mut().filter(|entry| line.due.contains(&entry.id)) {
            entry.deadline.clone_from(&line.deadline);
        }
        self.open.retain(|entry| !line.done.contains(&entry.id));
    }
}

/// The open journal. While it lives no other process reads-then-writes it or takes the host's lock.
#[derive(Debug)]
pub struct Journal {
    file: File,
    boot_id: String,
    pub state: PathBuf,
    pub content: Content,
}

impl Journal {
    /// Open for `owner`, or fail because another controller holds the host.
    pub fn open_as(state: &Path, owner: &str) -> anyhow::Result<Journal> {
        let journal = Journal::open(state)?;
        match lock::holder(state)? {
            Some(holder) if !super::owner::belongs_to(owner, &holder.owner) => Err(holder.busy().into()),
            _ => Ok(journal),
        }
    }

    /// Open for a call without an owner: only while no owner holds the host.
    pub fn open_unheld(state: &Path) -> anyhow::Result<Journal> {
        let journal = Journal::open(state)?;
        lock::holder(state)?.map_or(Ok(journal), |holder| Err(holder.busy().into()))
    }

    /// Open regardless of who holds the host: for `hold` itself.
    pub fn open(state: &Path) -> anyhow::Result<Journal> {
        make_private_folder(state)?;
        let path = state.join(FILE_NAME);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        lock::wait_for(&file, &path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| path.display().to_string())?;
        if bytes.is_empty() {
            // Whoever made the file or the folder may have been killed before this.
            sync_folder(state)?;
            sync_folder(state.parent().unwrap_or(Path::new("/")))?;
        }
        let content = Content::parse(&bytes).with_context(|| path.display().to_string())?;
        if content.valid_bytes < bytes.len() {
            file.set_len(content.valid_bytes as u64).context("dropping the torn last line")?;
        }
        Ok(Journal { file, boot_id: this_boot()?, state: state.to_owned(), content })
    }

    /// Add undo entries (and scratch folders): on disk when this returns. The ids of the entries.
    pub fn add(&mut self, owner: &str, scratch: Vec<PathBuf>, undo: Vec<Undo>) -> anyhow::Result<Vec<u64>> {
        let undo = undo.into_iter().map(|undo| Numbered::new(String::new(), undo)).collect();
        self.add_line(Line { scratch, ..self.line(owner) }, undo)
    }

    /// Add how to undo one change, with what is about to be written: on disk when this returns. Its id.
    pub fn add_change(
        &mut self,
        owner: &str,
        deadline: Option<&Deadline>,
        wrote: &str,
        lasts: bool,
        undo: Undo,
    ) -> anyhow::Result<u64> {
        let line = Line { deadline: deadline.cloned(), ..self.line(owner) };
        Ok(self.add_line(line, vec![Numbered { lasts, ..Numbered::new(wrote.to_owned(), undo) }])?[0])
    }

    /// Note what the values of an entry are after its write: from then on any other value is foreign.
    pub fn note_became(&mut self, owner: &str, id: u64, values: Vec<Option<String>>) -> anyhow::Result<()> {
        self.append(Line { became: vec![Became { id, values }], ..self.line(owner) })
    }

    /// From now on these entries have this deadline: on disk when this returns.
    pub fn set_deadline(&mut self, owner: &str, due: Vec<u64>, deadline: &Deadline) -> anyhow::Result<()> {
        self.append(Line { due, deadline: Some(deadline.clone()), ..self.line(owner) })
    }

    /// Open again what was confirmed, as old as it is: on disk when this returns. To be undone by whoever comes next,
    /// if not by us.
    pub fn reopen(&mut self, entries: &[Open]) -> anyhow::Result<()> {
        for entry in entries {
            // Opened before, by a call that was killed or failed.
            if self.is_reopened(entry) {
                continue;
            }
            let (boot_id, deadline) = (entry.boot_id.clone(), Some(Deadline::passed()));
            let line = Line { boot_id, deadline, t_ns: entry.t_ns, ..self.line(&entry.owner) };
            let became = entry.became.clone();
            let lasts = entry.lasts;
            let again = Numbered { became, lasts, ..Numbered::new(entry.wrote.clone(), entry.undo.clone()) };
            self.add_line(line, vec![again])?;
        }
        Ok(())
    }

    /// Whether a kept entry was opened again.
    pub fn is_reopened(&self, kept: &Open) -> bool {
        let is_it =
            |open: &Open| open.t_ns == kept.t_ns && open.owner == kept.owner && open.undo == kept.undo;
        self.content.open.iter().any(is_it)
    }

    fn add_line(&mut self, line: Line, mut undo: Vec<Numbered>) -> anyhow::Result<Vec<u64>> {
        if let Some(line) = self.content.damaged.first() {
            anyhow::bail!(
                "{}: line {line} is damaged: `rollback` undoes what can still be read; then mend or remove the file",
                self.state.join(FILE_NAME).display()
            );
        }
        for (id, entry) in (self.content.next_id..).zip(&mut undo) {
            entry.id = id;
        }
        let ids = undo.iter().map(|u| u.id).collect();
        self.append(Line { undo, ..line })?;
        Ok(ids)
    }

    pub fn entry(&self, id: u64) -> Option<&Open> {
        self.content.open.iter().find(|open| open.id == id)
    }

    /// Mark an entry as undone: on disk when this returns.
    pub fn done(&mut self, owner: &str, id: u64) -> anyhow::Result<()> {
        self.all_done(owner, vec![id])
    }

    /// Mark several at once: all of them or none.
    pub fn all_done(&mut self, owner: &str, done: Vec<u64>) -> anyhow::Result<()> {
        self.append(Line { done, ..self.line(owner) })
    }

    /// Empty the file when nothing in it matters any more.
    pub fn tidy(&mut self) -> anyhow::Result<()> {
        if self.content.open.is_empty() && self.content.damaged.is_empty() {
            self.file.set_len(0).context("emptying the journal")?;
            self.file.sync_data().context("emptying the journal")?;
            self.content = Content { next_id: 1, ..Content::default() };
        }
        Ok(())
    }

    /// The process that holds the host, if any.
    pub fn holder_pid(&self) -> anyhow::Result<Option<u32>> {
        Ok(lock::holder(&self.state)?.map(|holder| holder.pid))
    }

    fn line(&self, owner: &str) -> Line {
        Line {
            format: FORMAT,
            t_ns: since_epoch().as_nanos() as u64,
            owner: owner.to_owned(),
            boot_id: self.boot_id.clone(),
            deadline: None,
            scratch: vec![],
            undo: vec![],
            became: vec![],
            due: vec![],
            done: vec![],
        }
    }

    fn append(&mut self, line: Line) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // The caller will not act, so half a line (the disk is full) must not stay before the next one.
            self.file.set_len(self.content.valid_bytes as u64).context("dropping a half-written line")?;
            return Err(error).with_context(|| self.state.join(FILE_NAME).display().to_string());
        }
        self.content.valid_bytes += bytes.len();
        self.content.take(line);
        Ok(())
    }
}

impl Numbered {
    /// The id is assigned when the entry is added.
    fn new(wrote: String, undo: Undo) -> Numbered {
        Numbered { id: 0, wrote, became: vec![], lasts: false, undo }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Open {
    /// Whether the host was booted since; false if either boot is unknown.
    pub fn is_of_another_boot(&self) -> anyhow::Result<bool> {
        let boot = this_boot()?;
        Ok(!self.boot_id.is_empty() && !boot.is_empty() && self.boot_id != boot)
    }
}

/// What tells this boot from every other; empty where the kernel does not say.
pub fn this_boot() -> anyhow::Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).context(path),
    }
}

/// The open entries, without a lock: a line that is being written now is a torn last line to us.
pub fn read_open(state: &Path) -> anyhow::Result<Vec<Open>> {
    let path = state.join(FILE_NAME);
    match fs::read(&path) {
        Ok(bytes) => Ok(Content::parse(&bytes).with_context(|| path.display().to_string())?.open),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// The journal says what root will undo, so only root may be able to write it.
fn make_private_folder(state: &Path) -> anyhow::Result<()> {
    let place = || state.display().to_string();
    if fs::metadata(state).is_err() {
        let parent = state.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).with_context(place)?;
        match DirBuilder::new().mode(0o700).create(state) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error).with_context(place),
            _ => {}
        }
    }
    let metadata = fs::metadata(state).with_context(place)?;
    let us = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != us || metadata.mode() & 0o022 != 0 {
        return Err(AgentError::Refused(format!(
            "{}: must be a folder of user {us} that nobody else may write",
            state.display()
        ))
        .into());
    }
    Ok(())
}

pub fn sync_folder(folder: &Path) -> anyhow::Result<()> {
    File::open(folder).and_then(|f| f.sync_all()).with_context(|| folder.display().to_string())
}

#[cfg(test)]
mod tests;
