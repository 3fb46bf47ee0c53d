//! What is mounted where, and unmounting it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::processes;
use super::world::fs;
use host::mountinfo::unescaped;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Mount points of our mount namespace; as bytes, because a path need not be UTF-8.
pub fn mount_points() -> anyhow::Result<Vec<PathBuf>> {
    let text = fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescaped(field)));
    let fifth = |line: &[u8]| line.split(|b| *b == b' ').nth(4).map(path);
    Ok(text.split(|b| *b == b'\n').filter_map(fifth).collect())
}

pub fn is_mounted(path: &Path) -> anyhow::Result<bool> {
    Ok(mount_points()?.iter().any(|point| point == path))
}

/// Unmount everything that is stacked on this path; lazily what stays busy, which the note says.
pub fn unmount_all(path: &Path) -> anyhow::Result<Option<String>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut note = None;
    // Mounts may be stacked on one path.
    while is_mounted(path)? {
        match unmount(path, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            Err(Errno::BUSY) => {
                let users = processes::users_of(path);
                let users = if users.is_empty() { "somebody unknown".to_owned() } else { users };
                unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
                    .with_context(|| format!("in use by {users}"))?;
                note = Some(format!("lazily: {users} still uses it"));
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    Ok(note)
}
