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
    /// What the caller gave is not valid input.
    #[error("bad input: {0}")]
    Input(String),
}

impl AgentError {
    /// The numbers are those of `headrace` itself, so that one table documents both.
    fn exit_code(&self) -> u8 {
        match self {
            AgentError::Input(_) => 2,
            AgentError::Refused(_) => 5,
            AgentError::Busy(_) => 7,
        }
    }
}

/// Prints the error with its chain of causes on standard error and gives the process's exit code.
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    // A reader that went away (`| head`) is no error of ours.
    if error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    }) {
        return ExitCode::SUCCESS;
    }
    eprintln!("headrace-agent: {error:#}");
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::StorageFull)
    };
    if error.chain().any(is_full) {
        return ExitCode::from(8);
    }
    ExitCode::from(error.downcast_ref::<AgentError>().map_or(1, AgentError::exit_code))
}
