//! Recordings made of recordings: parts, selections, several as one.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::info::{Info, Totals};
use super::place::Destination;
use super::reader::Reader;
use super::state::States;
use super::writer::{Writer, WriterOptions};
use crate::coverage::Coverage;
use crate::event::{Event, Sink};
use crate::sources;
use base::error::AgentError;

/// Readers of several recordings that are read as one.
const MAX_INPUTS: usize = 256;

/// What was read and what was written.
#[derive(Debug)]
pub struct Edited {
    pub totals: Totals,
    /// Events of the inputs, and those of them that are in the output.
    pub read: u64,
    pub kept: u64,
    /// Events that a replay would need to restore sessions, and that found no room in memory.
    pub forgotten: u64,
}

/// Refuses to write over what is read.
///
/// # Errors
/// Both are the same file.
pub fn refuse_same_file(output: &Path, inputs: &[PathBuf]) -> anyhow::Result<()> {
    let Ok(there) = std::fs::metadata(output) else {
        return Ok(());
    };
    for input in inputs {
        let is_same = std::fs::metadata(input)
            .is_ok_and(|input| (input.dev(), input.ino()) == (there.dev(), there.ino()));
        if is_same {
            let reason = format!("{} would be written over while it is read", input.display());
            return Err(AgentError::Refused(reason).into());
        }
    }
    Ok(())
}

/// Writes the events that are accepted, and before the first of each session what brings it into its state.
///
/// # Errors
/// A file cannot be read or written.
pub fn select(
    input: &Path,
    output: &Destination<'_>,
    how: &str,
    mut accepts: impl FnMut(&Event<'_>) -> bool,
) -> anyhow::Result<Edited> {
    refuse_same_file(output.path, &[input.to_owned()])?;
    let mut reader = Reader::open(input)?;
    let options = options_like(&[&reader], &[input.to_owned()], output.force, how)?;
    let mut writer = Writer::create(output.path, &options)?;
    let mut states = States::default();
    let (mut read, mut kept) = (0, 0);
    while let Some(event) = reader.next()? {
        output.check(read)?;
        let is_kept = !event.is_state && accepts(&event);
        read += u64::from(!event.is_state);
        kept += u64::from(is_kept);
        states.pass(&event, is_kept, &mut writer)?;
    }
    let mut coverage = sources::coverage_of(&reader, &input.display().to_string());
    coverage.events = kept;
    let totals = writer.finish(&coverage)?;
    Ok(Edited { totals, read, kept, forgotten: states.forgotten })
}

/// Writes several recordings as one, by their starts. Sessions get new numbers: those of each file stay apart.
///
/// # Errors
/// As above; or some keep literals and others do not.
pub fn merge(inputs: &[PathBuf], output: &Destination<'_>) -> anyhow::Result<Edited> {
    refuse_same_file(output.path, inputs)?;
    if inputs.len() > MAX_INPUTS {
        return Err(AgentError::Input(format!("at most {MAX_INPUTS} recordings at once")).into());
    }
    let mut readers = inputs.iter().map(|path| Reader::open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let options = options_like(&readers.iter().collect::<Vec<_>>(), inputs, output.force, "merged")?;
    let mut writer = Writer::create(output.path, &options)?;
    let mut starts: Vec<Option<u64>> = Vec::new();
    for reader in &mut readers {
        starts.push(reader.next_start_ns()?);
    }
    let mut kept = 0;
    while let Some((_, index)) =
        starts.iter().enumerate().filter_map(|(at, start)| Some(((*start)?, at))).min()
    {
        output.check(kept)?;
        let reader = &mut readers[index];
        if let Some(event) = reader.next()? {
            kept += u64::from(!event.is_state);
            let session = apart(event.session, index, inputs.len());
            // Numbers of several servers would be taken for each other's.
            let connection = event.connection.filter(|_| inputs.len() == 1);
            writer.event(&Event { session, connection, ..event })?;
        }
        starts[index] = reader.next_start_ns()?;
    }
    let mut coverage = Coverage::default();
    for (reader, input) in readers.iter().zip(inputs) {
        coverage.merge(&sources::coverage_of(reader, &input.display().to_string()));
    }
    coverage.events = kept;
    let totals = writer.finish(&coverage)?;
    Ok(Edited { totals, read: kept, kept, forgotten: 0 })
}

/// One number for a session of one of several sources: no two of them get the same.
#[must_use]
pub fn apart(session: u64, index: usize, count: usize) -> u64 {
    let (index, count) = (index as u64, count.max(1) as u64);
    // A number this high is a hash: mixed, it stays as unlikely to meet another.
    session
        .checked_mul(count)
        .and_then(|session| session.checked_add(index))
        .unwrap_or_else(|| xxhash_rust::xxh3::xxh3_64_with_seed(&session.to_le_bytes(), index + 1) | 1 << 63)
}

/// Options that keep what the inputs keep, and say what was done to them.
///
/// # Errors
/// Some keep literals and others do not.
pub fn options_like(
    readers: &[&Reader],
    inputs: &[PathBuf],
    force: bool,
    how: &str,
) -> anyhow::Result<WriterOptions> {
    let infos = || readers.iter().flat_map(|reader| reader.info());
    let with_literals = infos().all(|info| info.with_literals);
    if !with_literals && infos().any(|info| info.with_literals) {
        let reason = "recordings with and without literals cannot be merged";
        return Err(AgentError::Refused(reason.to_owned()).into());
    }
    let mut sources: Vec<String> = infos().flat_map(|info| info.sources.iter().cloned()).collect();
    sources.extend(inputs.iter().map(|path| format!("{how}: {}", path.display())));
    let is_anonymised = infos().all(|info| info.is_anonymised);
    let first = infos().next().cloned().unwrap_or_default();
    let info = Info {
        is_anonymised,
        sources,
        // The clock that stamped the events, not that of the machine that edits them.
        host: first.host,
        kernel: first.kernel,
        clock_source: first.clock_source,
        // A part asks for later data, several servers have several positions, and the names in one are a host's own.
        position: first.position.filter(|_| how.starts_with("filtered")),
        ..Info::of_this_host()
    };
    // Half a recording looks like one whose recorder was killed, and half a day like a quiet day.
    Ok(WriterOptions { with_literals, force, only_whole: true, info, ..WriterOptions::default() })
}
