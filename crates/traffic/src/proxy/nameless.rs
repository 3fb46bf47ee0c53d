//! On a Unix socket the server sees the user that this process runs as, whoever the client is: accounts of
//! `unix_socket` (MariaDB) and `auth_socket` (MySQL) would admit every client of the proxy as that user, without a
//! password. So the threads that connect there take a user without a name. Both plugins look the name of the peer's
//! user up (`getpwuid_r`) and admit nobody where there is none.

use std::path::Path;

use anyhow::anyhow;
use base::error::AgentError;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

/// In a range that systemd reserves as never to be used, so no distribution or directory service has a name for it.
/// Source: systemd, "Users, Groups, UIDs and GIDs on systemd Systems".
const NAMELESS: u32 = 0xFFFF_FFF0;

/// From now on the calling thread is nobody. Its real user stays: only the effective one is what a peer sees.
pub fn take() -> rustix::io::Result<()> {
    set_thread_res_uid(None, Uid::from_raw(NAMELESS), None)
}

/// Whether threads of ours could connect to this socket.
///
/// # Errors
/// Refused without the right to change the user, NotReady where the socket is not open to everybody.
pub fn check(socket: &Path) -> anyhow::Result<()> {
    std::fs::metadata(socket).map_err(|error| {
        AgentError::Unreachable(format!("the server's socket {}: {error}", socket.display()))
    })?;
    let path = socket.to_owned();
    // In its own thread: this one must stay who it is.
    let trial = std::thread::spawn(move || -> Result<(), AgentError> {
        take().map_err(|error| {
            AgentError::Refused(format!(
                "--server-socket: unix_socket and auth_socket accounts would log every client in as this process's \
                 user, without a password; run the proxy as root (it then connects as a user without a name; here: \
                 {error}) or use --server HOST:PORT"
            ))
        })?;
        accessat(CWD, &path, Access::WRITE_OK, AtFlags::EACCESS).map_err(|error| {
            AgentError::NotReady(format!(
                "--server-socket {}: the proxy connects as a user without a name, which may not open it ({error}); \
                 use --server HOST:PORT",
                path.display()
            ))
        })
    });
    Ok(trial.join().map_err(|_| anyhow!("a thread of the proxy panicked"))??)
}
