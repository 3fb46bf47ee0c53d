//! What an undo is about, whatever it would write: two changes of one key are undone in order, or not at all.

use super::journal::{Journal, Undo};
use super::owner::{are_one, ways_out};
use base::error::AgentError;

/// Everything the undo would write, including coupled settings; empty for what a trial builds.
pub fn keys(undo: &Undo) -> Vec<String> {
    match undo {
        Undo::Setting { restore } => restore.iter().map(|value| value.path.clone()).collect(),
        Undo::Variable { restore, start, .. } => {
            // A host may have several servers.
            let server = start.as_ref().map_or(String::new(), |start| format!(" of {}", start.server));
            restore.iter().map(|value| format!("{}{server}", value.name)).collect()
        }
        Undo::File { path, .. } => vec![path.display().to_string()],
        // The files decide what it restarts with: they are undone first.
        Undo::Restart { files, .. } => files.iter().map(|path| path.display().to_string()).collect(),
        Undo::Remount { path, .. } => vec![format!("mount {}", path.display())],
        _ => vec![],
    }
}

/// Refuse keys that a change of another owner has open: its undo would take ours along, and ours would keep its.
pub fn must_be_free(journal: &Journal, owner: &str, wanted: &[String]) -> anyhow::Result<()> {
    for entry in journal.content.open.iter().filter(|entry| !are_one(&entry.owner, owner)) {
        if let Some(key) = keys(&entry.undo).iter().find(|key| wanted.contains(key)) {
            let (theirs, ways) = (&entry.owner, ways_out(&entry.owner));
            let text = format!("{key}: changes of {theirs} that hold it are not confirmed yet: {ways}");
            return Err(AgentError::Refused(text).into());
        }
    }
    Ok(())
}
