//! One error tree: what is wrong, where, what to do; and the exit code that tells a script the same.

use std::error::Error;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Of a target that cannot be reached, or a command on it that failed.
pub const UNREACHABLE: u8 = 6;
/// Of a disk without room.
const FULL: u8 = 8;

/// An error that a caller can act on; everything else is `anyhow` with context and exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Doing this could harm the host, or the value is not one this host accepts.
    #[error("refused: {0}")]
    Refused(String),
    /// Another controller holds this host.
    #[error("busy: {0}")]
    Busy(String),
    /// It could not run as asked, so the result would be worthless.
    #[error("too late: {0}")]
    Late(String),
    /// An argument is wrong, or something given on standard input.
    #[error("bad input: {0}")]
    Input(String),
    /// A file, a SPEC or an address that the caller named cannot be used.
    #[error("bad input: {0}")]
    Named(String),
    /// This machine lacks a privilege or a program that the work needs.
    #[error("not ready: {0}")]
    NotReady(String),
    /// A server cannot be reached, or did not do what it was asked for.
    #[error("{0}")]
    Unreachable(String),
    /// A file of ours is not whole.
    #[error("{0}")]
    Damaged(String),
    /// A signal asked it to end before it was done.
    #[error("{0}")]
    Stopped(String),
}

impl AgentError {
    /// The error for a file that the caller named and that cannot be opened. A failure while reading it is the
    /// machine's fault, not the caller's.
    #[must_use]
    pub fn unreadable(what: &str, path: &Path, error: &io::Error) -> Self {
        Self::Named(format!("cannot read {what}{}: {error}", path.display()))
    }

    /// The error for a file that the caller wants written and that cannot be made. A full disk is the machine's fault.
    #[must_use]
    pub fn unwritable(path: &Path, error: io::Error) -> anyhow::Error {
        if is_full(&error) {
            return anyhow::Error::new(error).context(format!("cannot write {}", path.display()));
        }
        Self::Named(format!("cannot write {}: {error}", path.display())).into()
    }

    /// The numbers are those of `headrace` itself, so that one table documents both.
    fn exit_code(&self) -> u8 {
        match self {
            AgentError::Input(_) => 2,
            AgentError::Named(_) => 3,
            AgentError::NotReady(_) => 4,
            AgentError::Refused(_) => 5,
            AgentError::Unreachable(_) => UNREACHABLE,
            AgentError::Busy(_) => 7,
            AgentError::Damaged(_) => 9,
            AgentError::Late(_) => 14,
            AgentError::Stopped(_) => 130,
        }
    }
}

/// Text from others, safe to show on a terminal: control characters become escapes, so that no server can write to the
/// user's screen.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && letter != '\n' && letter != '\t' {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The exit code of the first cause that has one, else 1. `known` gives those of other crates' errors.
fn code_of(error: &anyhow::Error, known: impl Fn(&(dyn Error + 'static)) -> Option<u8>) -> u8 {
    let of_one = |cause: &(dyn Error + 'static)| {
        let full = cause.downcast_ref::<io::Error>().filter(|error| is_full(error)).map(|_| FULL);
        full.or_else(|| cause.downcast_ref().map(AgentError::exit_code)).or_else(|| known(cause))
    };
    error.chain().find_map(of_one).unwrap_or(1)
}

/// Prints the error with its chain of causes on standard error and gives the process's exit code; `known` as above.
pub fn exit_code(
    result: anyhow::Result<()>,
    known: impl Fn(&(dyn Error + 'static)) -> Option<u8>,
) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    // A reader that closed the pipe (`| head`) is not an error.
    if error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
    {
        return ExitCode::SUCCESS;
    }
    eprintln!("headrace-agent: {}", printable(&format!("{error:#}")));
    ExitCode::from(code_of(&error, known))
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn what_a_server_says_moves_no_cursor() {
        let said = "\u{1b}]0;x\u{7}\r\u{9b}2Jno table 't\u{e9}'\n\tin it";
        assert_eq!(printable(said), "\\u{1b}]0;x\\u{7}\\r\\u{9b}2Jno table 't\u{e9}'\n\tin it");
    }
}
