//! One error tree: what is wrong, where, what to do; and the exit code that tells a script the same.

use std::process::ExitCode;

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
    /// What the caller gave is not valid input.
    #[error("bad input: {0}")]
    Input(String),
}

impl AgentError {
    /// The error for a file that the caller named and that cannot be opened. A failure while reading it is the
    /// machine's fault, not the caller's.
    #[must_use]
    pub fn unreadable(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Input(format!("cannot read {what}{}: {error}", path.display()))
    }

    /// The numbers are those of `headrace` itself, so that one table documents both.
    fn exit_code(&self) -> u8 {
        match self {
            AgentError::Input(_) => 2,
            AgentError::Refused(_) => 5,
            AgentError::Busy(_) => 7,
            AgentError::Late(_) => 14,
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

/// Prints the error with its chain of causes on standard error and gives the process's exit code.
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    // A reader that closed the pipe (`| head`) is not an error.
    if error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    }) {
        return ExitCode::SUCCESS;
    }
    eprintln!("headrace-agent: {}", printable(&format!("{error:#}")));
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::StorageFull)
    };
    if error.chain().any(is_full) {
        return ExitCode::from(8);
    }
    ExitCode::from(error.downcast_ref::<AgentError>().map_or(1, AgentError::exit_code))
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
