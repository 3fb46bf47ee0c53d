//! Changes that were kept: `history.jsonl` beside the journal, one JSON line a set of changes, oldest first.
//!
//! Nothing undoes them by itself, but everything that undoes them is here. The file is rewritten whole.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::journal::{Journal, Open, Undo, sync_folder};
use super::kernel_files::KernelFiles;
use super::keys::{keys, must_be_free};
use super::owner::belongs_to;
use super::remounts;
use super::variables;
use super::whole_files;
use super::world::fs::{self, OpenOptions, OpenOptionsExt};
use super::world::since_epoch;
use base::error::AgentError;

const FILE_NAME: &str = "history.jsonl";
/// Sets of changes that are kept: years of a host's life.
const LONGEST: usize = 500;

/// All that one owner changed and then kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub owner: String,
    /// When it was confirmed.
    pub t_ns: u64,
    pub entries: Vec<Open>,
}

impl Kept {
    /// Whether an open entry is one of this set. It has no restarts, which nobody undoes once they are kept.
    fn has(&self, entry: &Open) -> bool {
        self.entries.contains(entry) || (entry.owner == self.owner && entry.undo.is_restart())
    }
}

/// The kept sets, oldest first. A line that cannot be read is an error: what it holds could not be undone.
pub fn read(state: &Path) -> anyhow::Result<Vec<Kept>> {
    let path = state.join(FILE_NAME);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    parse(&text).with_context(|| path.display().to_string())
}

pub fn parse(text: &str) -> anyhow::Result<Vec<Kept>> {
    let lines = text.lines().enumerate();
    lines.map(|(at, line)| serde_json::from_str(line).with_context(|| format!("line {}", at + 1))).collect()
}

/// Keep the open changes of `owner`: only a rollback by name undoes them from now on. Returns the set.
///
/// Files of a change that awaited this are written now. Killed in between, all of it is still to be confirmed.
pub fn confirm(journal: &mut Journal, owner: &str, kernel: &KernelFiles) -> anyhow::Result<Kept> {
    let entries: Vec<Open> =
        journal.content.open.iter().filter(|e| belongs_to(&e.owner, owner)).cloned().collect();
    if entries.is_empty() {
        let text = format!("{owner} has nothing to confirm: it was confirmed, or undone, before");
        return Err(AgentError::Refused(text).into());
    }
    if let Some(other) = entries.iter().find(|e| !is_change(&e.undo)) {
        let text = format!("{owner} has more than settings to undo ({:?}): that cannot be kept", other.undo);
        return Err(AgentError::Refused(text).into());
    }
    must_be_whole(&entries)?;
    for entry in &entries {
        match &entry.undo {
            Undo::Setting { restore } => kernel.must_not_be_restored(restore)?,
            Undo::Variable { login, restore, start } => {
                variables::must_not_be_restored(login, restore, start.as_ref())?;
            }
            Undo::Remount { path, options } => remounts::must_not_be_restored(path, &entry.wrote, options)?,
            _ => {}
        }
    }
    let root = kernel.root();
    for entry in entries.iter().filter(|entry| entry.deadline.is_some()) {
        if let Undo::File { path, content, made } = &entry.undo {
            whole_files::check_foreign(root, path, content.as_deref(), &entry.wrote)?;
            if entry.wrote.is_empty() {
                whole_files::restore(root, path, None, made)?;
            } else {
                whole_files::write(root, path, &entry.wrote)?;
            }
        }
    }
    let ids = entries.iter().map(|entry| entry.id).collect();
    // The server runs with what is kept now: a later rollback restores the files, and restarts nothing.
    let entries = entries.into_iter().filter(|entry| !entry.undo.is_restart()).collect();
    let kept = Kept { owner: owner.to_owned(), t_ns: since_epoch().as_nanos() as u64, entries };
    // First into the history: a process that dies in between leaves an open entry, never a change without an undo.
    let mut sets = read(&journal.state)?;
    sets.retain(|set| set.owner != owner);
    sets.push(kept.clone());
    let surplus = sets.len().saturating_sub(LONGEST);
    write(&journal.state, &sets[surplus..])?;
    journal.all_done(owner, ids)?;
    journal.tidy()?;
    Ok(kept)
}

/// Whether this owner has open changes, none of which is in the history: a confirmation that failed later than that is
/// one all the same, and `finish` ends it.
pub fn is_open_alone(journal: &Journal, owner: &str) -> anyhow::Result<bool> {
    let sets = read(&journal.state)?;
    let open: Vec<&Open> = journal.content.open.iter().filter(|e| belongs_to(&e.owner, owner)).collect();
    Ok(!open.is_empty() && !sets.iter().any(|set| open.iter().any(|entry| set.has(entry))))
}

/// Finish what a killed call had begun between the history and the journal: a confirmation that had written its set is
/// one, and of a set that was being opened again nothing is kept any more.
pub fn finish(journal: &mut Journal) -> anyhow::Result<()> {
    if !journal.content.open.iter().any(|entry| is_change(&entry.undo)) {
        return Ok(());
    }
    // It may have been killed before its new history was sure to stay.
    sync_folder(&journal.state)?;
    let mut sets = match read(&journal.state) {
        Ok(sets) => sets,
        // If it cannot be read now, fail. If it is damaged, still allow undoing open changes.
        Err(error) if is_unread(&error) => return Err(error),
        Err(_) => return Ok(()),
    };
    for set in &sets {
        let ids: Vec<u64> =
            journal.content.open.iter().filter(|e| set.has(e)).map(|entry| entry.id).collect();
        if !ids.is_empty() {
            journal.all_done(&set.owner, ids)?;
            journal.tidy()?;
        }
    }
    let reopened = |set: &Kept| set.entries.iter().any(|kept| journal.is_reopened(kept));
    let Some(at) = sets.iter().position(reopened) else { return Ok(()) };
    let set = sets.remove(at);
    journal.reopen(&set.entries)?;
    write(&journal.state, &sets)
}

/// Refuse to keep the restart of files that are back already.
fn must_be_whole(entries: &[Open]) -> anyhow::Result<()> {
    let is_open =
        |file: &PathBuf| entries.iter().any(|e| matches!(&e.undo, Undo::File { path, .. } if path == file));
    for entry in entries {
        if let Undo::Restart { files, .. } = &entry.undo
            && let Some(file) = files.iter().find(|file| !is_open(file))
        {
            let text = format!("{}: {} was undone already", entry.owner, file.display());
            return Err(AgentError::Refused(text).into());
        }
    }
    Ok(())
}

fn is_unread(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() != ErrorKind::InvalidData)
}

/// Open a kept set again, so that a rollback undoes it. `None` is the last one. Its owner.
pub fn reopen(journal: &mut Journal, owner: Option<&str>) -> anyhow::Result<Option<String>> {
    let mut sets = read(&journal.state)?;
    let Some(at) = (match owner {
        Some(owner) => sets.iter().position(|set| set.owner == owner),
        None => sets.len().checked_sub(1),
    }) else {
        return Ok(None);
    };
    let ours: Vec<String> = sets[at].entries.iter().flat_map(|entry| keys(&entry.undo)).collect();
    for set in &sets[at + 1..] {
        let theirs = set.entries.iter().flat_map(|entry| keys(&entry.undo));
        if let Some(what) = theirs.into_iter().find(|key| ours.contains(key)) {
            let text = format!("{what} was changed again by {}: roll that back first", set.owner);
            return Err(AgentError::Refused(text).into());
        }
    }
    must_be_free(journal, &sets[at].owner, &ours)?;
    let set = sets.remove(at);
    journal.reopen(&set.entries)?;
    write(&journal.state, &sets)?;
    Ok(Some(set.owner))
}

/// Whether it undoes a setting; what a trial builds is never kept.
fn is_change(undo: &Undo) -> bool {
    matches!(
        undo,
        Undo::Setting { .. }
            | Undo::Variable { .. }
            | Undo::File { .. }
            | Undo::Remount { .. }
            | Undo::Restart { .. }
    )
}

fn write(state: &Path, sets: &[Kept]) -> anyhow::Result<()> {
    let path = state.join(FILE_NAME);
    let draft: PathBuf = state.join(format!(".{FILE_NAME}.part"));
    let mut text = Vec::new();
    for set in sets {
        serde_json::to_writer(&mut text, set)?;
        text.push(b'\n');
    }
    let place = || path.display().to_string();
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .with_context(place)?;
    file.write_all(&text).and_then(|()| file.sync_all()).with_context(place)?;
    fs::rename(&draft, &path).with_context(place)?;
    sync_folder(state)
}
