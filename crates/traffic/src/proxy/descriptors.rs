//! Two descriptors a session: as many sessions as the limit of open files has room for, and an answer for the rest.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::shared::refuse;
use base::error::AgentError;

const DEFAULT_SESSIONS: usize = 10_000;
/// For the recording, the threads, and what libraries open briefly.
const RESERVED: u64 = 64;
/// A vanished peer holds two descriptors until it is detected, after two minutes.
const KEEP_IDLE: Duration = Duration::from_secs(60);
const KEEP_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_COUNT: u32 = 4;

/// How many sessions there may be: those asked for, or by default as many as there is room for.
pub fn sessions(asked: Option<usize>) -> anyhow::Result<usize> {
    let wanted = asked.unwrap_or(DEFAULT_SESSIONS);
    let limit = raised_limit();
    let room = usize::try_from(limit.saturating_sub(RESERVED) / 2).unwrap_or(usize::MAX);
    if wanted <= room {
        return Ok(wanted);
    }
    let needed = 2 * wanted as u64 + RESERVED;
    if asked.is_some() || room == 0 {
        let reason = format!(
            "--max-sessions {wanted} needs {needed} open files and the limit is {limit}: raise it (ulimit -Hn, \
             LimitNOFILE in a unit), or ask for {room} sessions at most"
        );
        return Err(AgentError::Refused(reason).into());
    }
    eprintln!(
        "headrace-agent: {room} clients at once, because the limit of open files is {limit}; {wanted} need {needed}"
    );
    Ok(room)
}

/// The limit of open files, raised as far as allowed.
fn raised_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    now.current.unwrap_or(u64::MAX)
}

/// Detects peers that vanished without closing; other sockets than TCP need no keepalive.
pub fn keep_alive(socket: impl AsFd) {
    let socket = socket.as_fd();
    let _ = set_socket_keepalive(socket, true);
    let _ = set_tcp_keepidle(socket, KEEP_IDLE);
    let _ = set_tcp_keepintvl(socket, KEEP_INTERVAL);
    let _ = set_tcp_keepcnt(socket, KEEP_COUNT);
}

pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// A spare descriptor: when none is left, it serves to accept a client and refuse it with an error.
pub struct Spare(Option<File>);

impl Spare {
    pub fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// True if a client was told.
    pub fn refuse(&mut self, listener: &TcpListener) -> bool {
        self.0 = None;
        let accepted = listener.accept();
        if let Ok((socket, _)) = &accepted {
            refuse(socket);
        }
        let is_told = accepted.is_ok();
        drop(accepted);
        *self = Self::new();
        is_told
    }
}
