//! Changes without a deadline whose owner does not hold the host: of an experiment that was killed, or of a script
//! that has yet to confirm them. Nothing may be built on them.

use super::journal::Journal;
use super::lock;
use super::owner::{are_one, belongs_to, ways_out};
use super::undo::subject;
use base::error::AgentError;

/// Refuse to change a host on which another owner's changes are left.
pub fn must_be_none(journal: &Journal, owner: &str) -> anyhow::Result<()> {
    of(journal, owner)?.map_or(Ok(()), |text| Err(AgentError::Refused(text).into()))
}

/// What is left of owners other than `owner`, and the command that settles it; None where nothing is.
pub fn of(journal: &Journal, owner: &str) -> anyhow::Result<Option<String>> {
    let holder = lock::holder(&journal.state)?;
    let is_held = |name: &str| holder.as_ref().is_some_and(|holder| belongs_to(name, &holder.owner));
    let left: Vec<_> = journal
        .content
        .open
        .iter()
        .filter(|entry| entry.deadline.is_none() && !are_one(&entry.owner, owner) && !is_held(&entry.owner))
        .collect();
    let Some(first) = left.first() else { return Ok(None) };
    let (whose, what, more) = (&first.owner, subject(&first.undo), left.len() - 1);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ok(Some(format!("changes of {whose} were left behind ({what}{more}): {}", ways_out(whose))))
}
