//! What one server answered, kept so that another can be compared with it: 40 bytes for each event of a recording, in
//! the recording's order.
//!
//! The place of an answer is its event's number, so threads write in any order and memory is not needed.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use anyhow::Context;

use super::queue::Expected;
use super::stats::Got;
use crate::event::Outcome;
use base::door::{self, Held};
use base::error::AgentError;

const SIZE: usize = 40;
const MAGIC: [u8; 8] = *b"HRANSWR1";

/// The number of what has no answer of its own: copies of sessions, and what we ask ourselves.
pub const NO_NUMBER: u64 = u64::MAX;

/// Which events the numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// First start and last end of the recording, and what of it is played; in ns since 1970.
    pub first_ns: u64,
    pub last_ns: u64,
    pub since_ns: u64,
    pub until_ns: u64,
}

impl Scope {
    fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        let numbers = [self.first_ns, self.last_ns, self.since_ns, self.until_ns];
        for (slot, number) in bytes[8..].chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

/// The file that is being written.
pub struct AnswerWriter {
    file: File,
    failure: OnceLock<std::io::Error>,
}

impl AnswerWriter {
    /// A new file, readable by its owner only. One that is there is never overwritten.
    pub fn create(path: &Path, scope: Scope) -> anyhow::Result<Self> {
        let create =
            |held: Held| OpenOptions::new().write(true).create_new(true).mode(0o600).open(held.path());
        let file = Held::of(path).and_then(create);
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                AgentError::Refused(format!("{} exists already", path.display())).into()
            }
            _ => AgentError::unwritable(path, error),
        })?;
        file.write_all_at(&scope.to_bytes(), 0).with_context(|| path.display().to_string())?;
        Ok(Self { file, failure: OnceLock::new() })
    }

    pub fn keep(&self, number: u64, got: &Got, service_ns: u64) {
        if number == NO_NUMBER {
            return;
        }
        if let Err(error) = self.file.write_all_at(&packed(got, service_ns), offset(number)) {
            let _ = self.failure.set(error);
        }
    }

    /// Fails where any answer could not be written.
    pub fn finish(self) -> anyhow::Result<()> {
        match self.failure.into_inner() {
            Some(error) => Err(error).context("the answers could not be kept"),
            None => Ok(self.file.sync_all()?),
        }
    }
}

/// A file that was written before.
pub struct RecordedAnswers {
    file: File,
}

impl RecordedAnswers {
    /// Refuses answers to something else than what is played now.
    pub fn open(path: &Path, scope: Scope) -> anyhow::Result<Self> {
        let wrong = |message: &str| AgentError::Named(format!("{}: {message}", path.display()));
        let file = door::open(path, false).map_err(|error| wrong(&error.to_string()))?;
        let mut head = [0; SIZE];
        file.read_exact_at(&mut head, 0).map_err(|_| wrong("no answers of a replay"))?;
        if head[..8] != MAGIC {
            return Err(wrong("no answers of a replay").into());
        }
        if head != scope.to_bytes() {
            return Err(wrong("answers to another recording, or to another part of it").into());
        }
        Ok(Self { file })
    }

    /// What was answered to an event; nothing is known of what was not sent or not answered.
    pub fn answer(&self, number: u64) -> anyhow::Result<Expected> {
        let mut bytes = [0; SIZE];
        match self.file.read_exact_at(&mut bytes, offset(number)) {
            Ok(()) => Ok(unpacked(&bytes)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(Expected::NOTHING),
            Err(error) => Err(error).context("the kept answers cannot be read"),
        }
    }
}

fn offset(number: u64) -> u64 {
    // The first place is the head's; events are counted from 1.
    number.saturating_mul(SIZE as u64)
}

fn packed(got: &Got, service_ns: u64) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    bytes[0] = if got.error.is_some() { 2 } else { 1 };
    bytes[1] = u8::from(got.warnings.is_some());
    bytes[2] = u8::from(got.checksum.is_some());
    bytes[4..6].copy_from_slice(&got.error.unwrap_or(0).to_le_bytes());
    bytes[6..8].copy_from_slice(&got.warnings.unwrap_or(0).to_le_bytes());
    let numbers = [got.rows, got.affected, got.checksum.unwrap_or(0), service_ns];
    for (slot, number) in bytes[8..].chunks_exact_mut(8).zip(numbers) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn unpacked(bytes: &[u8; SIZE]) -> Expected {
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let outcome = match bytes[0] {
        1 => Outcome::Ok,
        2 => Outcome::Error(short(4)),
        _ => return Expected::NOTHING,
    };
    Expected {
        outcome,
        response_ns: Some(long(32)),
        rows_sent: Some(long(8)),
        rows_affected: Some(long(16)),
        warnings: (bytes[1] == 1).then(|| short(6).into()),
        checksum: (bytes[2] == 1).then(|| long(24)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: Scope = Scope { first_ns: 1, last_ns: 9, since_ns: 0, until_ns: u64::MAX };

    fn got(rows: u64) -> Got {
        Got { error: None, rows, affected: 3, warnings: Some(2), checksum: Some(77) }
    }

    #[test]
    fn answers_come_back_by_their_numbers_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers");
        let answer_writer = AnswerWriter::create(&path, SCOPE).unwrap();
        answer_writer.keep(5, &got(50), 500);
        answer_writer.keep(1, &Got { error: Some(1062), warnings: None, checksum: None, ..got(0) }, 100);
        answer_writer.keep(NO_NUMBER, &got(1), 1);
        answer_writer.finish().unwrap();
        let kept = RecordedAnswers::open(&path, SCOPE).unwrap();
        let fifth = kept.answer(5).unwrap();
        assert_eq!((fifth.outcome, fifth.rows_sent, fifth.response_ns), (Outcome::Ok, Some(50), Some(500)));
        assert_eq!((fifth.rows_affected, fifth.warnings, fifth.checksum), (Some(3), Some(2), Some(77)));
        let first = kept.answer(1).unwrap();
        assert_eq!((first.outcome, first.warnings, first.checksum), (Outcome::Error(1062), None, None));
        assert_eq!(kept.answer(2).unwrap().outcome, Outcome::Unknown);
        assert_eq!(kept.answer(6).unwrap().outcome, Outcome::Unknown);
    }

    #[test]
    fn answers_to_something_else_are_refused_and_a_file_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers");
        AnswerWriter::create(&path, SCOPE).unwrap().finish().unwrap();
        assert!(AnswerWriter::create(&path, SCOPE).is_err());
        assert!(RecordedAnswers::open(&path, Scope { since_ns: 4, ..SCOPE }).is_err());
        std::fs::write(folder.path().join("other"), b"short").unwrap();
        assert!(RecordedAnswers::open(&folder.path().join("other"), SCOPE).is_err());
    }
}
