//! What is mounted where, and unmounting it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::processes;

const PATIENCE: Duration = Duration::from_secs(5);

/// Mount points of our mount namespace, with the octal escapes of mountinfo resolved.
pub fn mount_points() -> anyhow::Result<Vec<PathBuf>> {
    let text = fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let fifth = |line: &[u8]| line.split(|b| *b == b' ').nth(4).map(unescape);
    Ok(text.split(|b| *b == b'\n').filter_map(fifth).collect())
}

fn unescape(field: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        match octal {
            Some(value) if byte == b'\\' => {
                bytes.push(value);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

pub fn is_mounted(path: &Path) -> anyhow::Result<bool> {
    Ok(mount_points()?.iter().any(|point| point == path))
}

/// Unmount everything that is stacked on this path; lazily what stays busy, which the note says.
pub fn unmount_all(path: &Path) -> anyhow::Result<Option<String>> {
    let deadline = Instant::now() + PATIENCE;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_escapes() {
        assert_eq!(unescape(br"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(b"/plain"), Path::new("/plain"));
    }
}
