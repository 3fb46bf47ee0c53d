//! Changes of every kind: all of one call or none, and the original of each in the journal before it is written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::commands::Commands;
use super::deadline::Deadline;
use super::journal::{Journal, Undo, VariableValue};
use super::kernel_files::{self, KernelFiles};
use super::keys::{keys, must_be_free};
use super::undo::{self, Foreigners, Restarts};
use super::variables::{self, Server};
use super::{remounts, watcher, whole_files, world};
use base::error::AgentError;
use mysql::ServerArguments;

/// A setting to apply, as a caller writes it.
#[derive(Deserialize, Clone, Debug, PartialEq)]
#[serde(untagged, deny_unknown_fields)]
pub enum Change {
    /// A file of /sys or /proc.
    Kernel { path: String, value: String },
    /// A variable of the server.
    Variable { variable: String, value: String },
    /// A whole file; without content it is taken away.
    File { file: PathBuf, content: Option<String> },
    /// The caller restarts the server with the files of this call, which are therefore written at once: names of
    /// variables that only a restart changes, and how the host may do it itself.
    Restart {
        restart: Vec<String>,
        #[serde(default)]
        commands: Option<Box<Commands>>,
    },
    /// Options of a mount.
    Mount { mount: PathBuf, options: String },
}

/// What `apply` did; `before` and `after` are what the kernel or the server said.
#[derive(Serialize, Debug, PartialEq)]
pub struct Applied {
    pub path: String,
    pub before: String,
    pub after: String,
    /// What the kernel or the server took along.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Applied>,
}

/// The host, and its server once a change needs it.
pub struct Hands<'a> {
    pub kernel: &'a KernelFiles,
    pub login: &'a ServerArguments,
    server: Option<Server>,
}

impl<'a> Hands<'a> {
    pub fn new(kernel: &'a KernelFiles, login: &'a ServerArguments) -> Hands<'a> {
        Hands { kernel, login, server: None }
    }

    /// Apply all changes or none. With a `deadline` they are undone automatically unless confirmed.
    pub fn apply(
        &mut self,
        journal: &mut Journal,
        owner: &str,
        changes: &[Change],
        deadline: Option<&Deadline>,
    ) -> anyhow::Result<Vec<Applied>> {
        for change in changes {
            self.check(change, changes)?;
        }
        for change in changes {
            // Also if the value is already set: undoing the other change would remove it.
            let before = self.read(change)?;
            let undo = self.undo(change, before.as_deref(), changes)?;
            must_be_free(journal, owner, &keys(&undo))?;
            if !self.holds(change, before.as_deref())? {
                self.prove_way_back(&undo)?;
            }
        }
        let mut ids = Vec::new();
        let applied = self.apply_each(journal, owner, changes, deadline, &mut ids);
        let Err(mut error) = applied else {
            return applied;
        };
        // A connection that broke must not stand between us and the restoring of the server.
        self.server = None;
        // What cannot be restored now stays open in the journal, and the others are restored all the same.
        let undone =
            undo::rollback_those(journal, self.kernel, Foreigners::Keep, Restarts::Leave, |entry| {
                ids.contains(&entry.id)
            })?;
        for failure in undone.into_iter().filter_map(|each| each.error) {
            error = error.context(format!("not undone, stays in the journal: {failure}"));
        }
        Err(error)
    }

    fn apply_each(
        &mut self,
        journal: &mut Journal,
        owner: &str,
        changes: &[Change],
        deadline: Option<&Deadline>,
        ids: &mut Vec<u64>,
    ) -> anyhow::Result<Vec<Applied>> {
        let mut applied: Vec<(usize, Applied)> = Vec::new();
        // Until all are made, any later call that finds them without this process undoes them.
        let over = deadline.map(|_| Deadline::passed());
        for at in self.order(changes)? {
            let change = &changes[at];
            let before = self.read(change)?;
            let mut also = Vec::new();
            if !self.holds(change, before.as_deref())? {
                let undo = self.undo(change, before.as_deref(), changes)?;
                if ids.is_empty() && deadline.is_some() {
                    watcher::start(&journal.state, owner, self.kernel.root())?;
                }
                let lasts = change.can_last() && changes.iter().any(Change::is_file);
                let id = journal.add_change(owner, over.as_ref(), change.wanted(), lasts, undo.clone())?;
                ids.push(id);
                if change.is_deferred(deadline, changes) {
                    let text = before.clone().unwrap_or_default();
                    let row = Applied::new(change.subject(), text.clone(), text);
                    applied.push((at, row));
                    continue;
                }
                self.write(change)?;
                if let Undo::Variable { restore, .. } = &undo {
                    self.server()?.prove_new_session(restore)?;
                }
                let became = self.became(&undo)?;
                also = taken_along(&undo, &became, changes);
                if !became.is_empty() {
                    journal.note_became(owner, id, became)?;
                }
            }
            self.settle(change, before.as_deref())?;
            let after = self.verify(change, change.maker())?;
            let shown = |text: Option<String>| text.unwrap_or_else(|| change.absent().to_owned());
            let (before, after) = (shown(before), shown(after));
            applied.push((at, Applied { also, ..Applied::new(change.subject(), before, after) }));
        }
        // A later change may have undone an earlier one: nr_requests, then scheduler.
        for change in changes.iter().filter(|change| !change.is_deferred(deadline, changes)) {
            self.verify(change, "a later setting of this call made it")?;
        }
        if let Some(deadline) = deadline.filter(|deadline| !ids.is_empty() && !deadline.has_passed()) {
            journal.set_deadline(owner, ids.clone(), deadline)?;
        }
        applied.sort_by_key(|(at, _)| *at);
        Ok(applied.into_iter().map(|(_, applied)| applied).collect())
    }

    /// As the caller wrote them, but the higher of a pair first where it makes room for the lower: MySQL cuts
    /// innodb_io_capacity at innodb_io_capacity_max, whatever comes after.
    fn order(&mut self, changes: &[Change]) -> anyhow::Result<Vec<usize>> {
        let mut order: Vec<usize> = (0..changes.len()).collect();
        for (low, high) in variables::PAIRS {
            let place = |name: &str| changes.iter().position(|c| c.is_variable(name));
            let (Some(low_at), Some(high_at)) = (place(low), place(high)) else { continue };
            let now = self.server()?.read(low)?.and_then(|text| text.parse().ok()).unwrap_or(0.0);
            let makes_room = changes[high_at].wanted().parse().unwrap_or(0.0) >= now;
            if makes_room == (low_at < high_at) {
                order.swap(low_at, high_at);
            }
        }
        Ok(order)
    }

    /// Wait for a change that the server makes in the background.
    fn settle(&mut self, change: &Change, before: Option<&str>) -> anyhow::Result<()> {
        if !variables::SETTLING.iter().any(|name| change.is_variable(name)) {
            return Ok(());
        }
        let deadline = world::since_boot() + variables::STATEMENT;
        // Another value than both is its answer, too: it rounds.
        while self.read(change)?.as_deref() == before && world::since_boot() < deadline {
            world::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// As `Change::holds`; what a variable is told in other words its server knows.
    fn holds(&mut self, change: &Change, seen: Option<&str>) -> anyhow::Result<bool> {
        match change {
            Change::Variable { variable, value } => self.server()?.has(variable, value, seen),
            _ => Ok(change.holds(seen)),
        }
    }

    fn verify(&mut self, change: &Change, who: &str) -> anyhow::Result<Option<String>> {
        let seen = self.read(change)?;
        if self.holds(change, seen.as_deref())? {
            return Ok(seen);
        }
        let seen = seen.unwrap_or_else(|| change.absent().to_owned());
        let wanted = change.wanted();
        Err(AgentError::Refused(format!("{}: wrote {wanted:?}, but {who} {seen:?}", change.subject())).into())
    }

    /// What can be said about a change before anything is written.
    fn check(&mut self, change: &Change, all: &[Change]) -> anyhow::Result<()> {
        if all.iter().filter(|other| other.subject() == change.subject()).count() > 1 {
            let text = format!("{}: two settings of this call contradict each other", change.subject());
            return Err(AgentError::Input(text).into());
        }
        match change {
            Change::Kernel { path, value } => {
                let others = |name: &str| all.iter().any(|c| c.subject() == name);
                self.kernel.check(path, value, others)
            }
            Change::Variable { variable, .. } => self.server()?.read(variable).map(drop),
            Change::File { file, content } => {
                // The journal notes what is written, and the empty text for a file that is taken away.
                if content.as_deref() == Some("") {
                    let text = format!("{}: empty: without content it is taken away", file.display());
                    return Err(AgentError::Input(text).into());
                }
                whole_files::missing_folders(self.kernel.root(), file)?;
                whole_files::read(self.kernel.root(), file).map(drop)
            }
            Change::Mount { mount, options } => remounts::check(mount, options),
            Change::Restart { commands, .. } => {
                // Undone last, and only once there is a file to undo.
                if all.first() != Some(change) || !all.iter().any(Change::is_file) {
                    let text = "restart: must be the first change, with a file after it";
                    return Err(AgentError::Input(text.to_owned()).into());
                }
                commands.as_ref().map_or(Ok(()), |commands| commands.check())
            }
        }
    }

    fn read(&mut self, change: &Change) -> anyhow::Result<Option<String>> {
        Ok(match change {
            Change::Kernel { path, .. } => Some(self.kernel.chosen(path)?),
            Change::Variable { variable, .. } => self.server()?.read(variable)?,
            Change::File { file, .. } => whole_files::read(self.kernel.root(), file)?,
            Change::Mount { mount, .. } => Some(remounts::read(mount)?),
            Change::Restart { .. } => None,
        })
    }

    fn undo(&mut self, change: &Change, before: Option<&str>, all: &[Change]) -> anyhow::Result<Undo> {
        let text = before.unwrap_or_default();
        Ok(match change {
            Change::Kernel { path, .. } => Undo::Setting { restore: self.kernel.restoring(path, text)? },
            Change::Variable { variable, .. } => self.server()?.undo(variable, before)?,
            Change::File { file, .. } => Undo::File {
                path: file.clone(),
                content: before.map(str::to_owned),
                made: whole_files::missing_folders(self.kernel.root(), file)?,
            },
            Change::Mount { mount, options } => remounts::undo(mount, options, text),
            Change::Restart { restart, commands } => {
                let server = self.server()?;
                let mut restore = Vec::new();
                for name in restart {
                    restore.push(VariableValue { name: name.clone(), value: server.read(name)? });
                }
                let (login, start) = (server.login().clone(), server.start()?);
                // One that has its content already has no undo, either.
                let files: Vec<&Change> = all.iter().filter(|change| change.is_file()).collect();
                let mut changed = Vec::new();
                for file in files {
                    if !file.holds(self.read(file)?.as_deref()) {
                        changed.push(PathBuf::from(file.subject()));
                    }
                }
                Undo::Restart { login, start, restore, files: changed, commands: commands.clone() }
            }
        })
    }

    /// Refuse a change of which the original could not be written again. What only we write, and mounts, of which the
    /// same call gives and takes options, need no proof.
    fn prove_way_back(&mut self, undo: &Undo) -> anyhow::Result<()> {
        match undo {
            Undo::Setting { restore } => self.kernel.prove_way_back(restore),
            Undo::Variable { restore, .. } => self.server()?.prove_way_back(restore),
            _ => Ok(()),
        }
    }

    fn write(&mut self, change: &Change) -> anyhow::Result<()> {
        let root = self.kernel.root();
        match change {
            Change::Kernel { path, value } => self.kernel.write(path, value),
            Change::Variable { variable, value } => self.server()?.write(variable, Some(value)),
            Change::File { file, content: Some(text) } => whole_files::write(root, file, text),
            Change::File { file, content: None } => whole_files::restore(root, file, None, &[]),
            Change::Mount { mount, options } => remounts::remount(mount, options),
            Change::Restart { .. } => Ok(()),
        }
    }

    /// What the values of an undo are after the write; nothing where that is what was written.
    fn became(&mut self, undo: &Undo) -> anyhow::Result<Vec<Option<String>>> {
        match undo {
            Undo::Setting { restore } => self.kernel.read_all(restore),
            Undo::Variable { restore, .. } => self.server()?.read_all(restore),
            _ => Ok(vec![]),
        }
    }

    fn server(&mut self) -> anyhow::Result<&mut Server> {
        let server = match self.server.take() {
            Some(server) => server,
            None => Server::connect(self.login)?,
        };
        Ok(self.server.insert(server))
    }
}

impl Applied {
    fn new(path: String, before: String, after: String) -> Applied {
        Applied { path, before, after, also: vec![] }
    }
}

/// The companions of a change that are not what they were, but for those that the caller sets as well.
fn taken_along(undo: &Undo, became: &[Option<String>], changes: &[Change]) -> Vec<Applied> {
    let text = |value: Option<&str>| value.unwrap_or("NULL").to_owned();
    let before: Vec<(&str, Option<&str>)> = match undo {
        Undo::Setting { restore } => {
            restore.iter().map(|v| (v.path.as_str(), Some(v.value.as_str()))).collect()
        }
        Undo::Variable { restore, .. } => {
            restore.iter().map(|v| (v.name.as_str(), v.value.as_deref())).collect()
        }
        _ => vec![],
    };
    let all = before.into_iter().zip(became);
    all.filter(|((name, before), now)| {
        // Gone with its owner, as a scheduler's tunables are: there is nothing to read.
        let is_there = now.is_some() || matches!(undo, Undo::Variable { .. });
        is_there && *before != now.as_deref() && changes.iter().all(|change| change.subject() != *name)
    })
    .map(|((name, before), now)| Applied::new(name.to_owned(), text(before), text(now.as_deref())))
    .collect()
}

impl Change {
    /// What it is about: a path, a variable, a mount point.
    pub fn subject(&self) -> String {
        let shown = |path: &Path| path.display().to_string();
        match self {
            Change::Kernel { path, .. } => path.clone(),
            Change::Variable { variable, .. } => variable.clone(),
            Change::File { file, .. } => shown(file),
            Change::Mount { mount, .. } => shown(mount),
            Change::Restart { .. } => "restart".to_owned(),
        }
    }

    fn is_file(&self) -> bool {
        matches!(self, Change::File { .. })
    }

    /// Whether a file can make it hold again after a boot or a restart. Of a mount fstab would, which is not ours.
    fn can_last(&self) -> bool {
        matches!(self, Change::Kernel { .. } | Change::Variable { .. })
    }

    /// What lasts is written when it is confirmed: a boot before that must not find it. But a server that the caller
    /// restarts must.
    fn is_deferred(&self, deadline: Option<&Deadline>, all: &[Change]) -> bool {
        let is_restarted = all.iter().any(|change| matches!(change, Change::Restart { .. }));
        let is_restart = matches!(self, Change::Restart { .. });
        is_restart || (self.is_file() && deadline.is_some() && !is_restarted)
    }

    fn is_variable(&self, name: &str) -> bool {
        matches!(self, Change::Variable { variable, .. } if variable == name)
    }

    fn wanted(&self) -> &str {
        match self {
            Change::Kernel { value, .. } | Change::Variable { value, .. } => value,
            Change::File { content, .. } => content.as_deref().unwrap_or_default(),
            Change::Mount { options, .. } => options,
            Change::Restart { .. } => "",
        }
    }

    fn maker(&self) -> &'static str {
        if matches!(self, Change::Variable { .. }) { "the server made it" } else { "the kernel made it" }
    }

    /// How to say that there is no value.
    fn absent(&self) -> &'static str {
        if matches!(self, Change::Variable { .. }) { "NULL" } else { "" }
    }

    fn holds(&self, seen: Option<&str>) -> bool {
        let text = seen.unwrap_or_default();
        match self {
            Change::Kernel { path, value } => kernel_files::same(path, value, text),
            Change::Variable { value, .. } => variables::is(Some(value), seen),
            Change::File { content, .. } => content.as_deref() == seen,
            Change::Mount { options, .. } => remounts::holds(options, text),
            Change::Restart { .. } => false,
        }
    }
}
