//! The real machine: the standard library.

use std::ffi::{CStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, XattrFlags, chmod, fchmod, fchown, fsetxattr, getxattr, listxattr, openat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsPickFlags, MountFlags, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fspick,
    mount_remount,
};
use rustix::time::{ClockId, clock_gettime};

use crate::plain;

#[cfg(not(test))]
pub use mysql::Connection;
#[cfg(not(test))]
pub use rustix::fs::flock as lock;
pub use std::thread::sleep;

#[cfg(not(test))]
pub mod fs {
    pub use std::fs::*;
    pub use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
}

/// The kernel's own limit, of a value and of a list of names.
const LONGEST_ATTRIBUTE: usize = 64 << 10;

const LONGEST_COMMAND: Duration = Duration::from_secs(10);

/// The calendar's time.
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time since boot, suspended or not, which cannot be set.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Start a program without waiting for it. What it prints.
pub fn start(command: &mut Command) -> io::Result<impl Read + use<>> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    child.stdout.take().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}

/// Run a program that prints nothing of use. One that takes too long is killed: then it did not succeed.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = quiet.spawn() else { return false };
    let until = since_boot() + LONGEST_COMMAND;
    loop {
        match child.try_wait() {
            Ok(None) if since_boot() < until => sleep(Duration::from_millis(10)),
            Ok(Some(status)) => return status.success(),
            _ => {
                let _ = child.kill();
                // One that is stuck in the kernel does not even end then.
                std::thread::spawn(move || child.wait());
                return false;
            }
        }
    }
}

/// A folder that stays the same one, whatever takes its name.
pub struct Held(OwnedFd);

/// Hold a folder below a root, if no part of its way is a link.
pub fn hold_folder(root: &Path, folder: &Path) -> io::Result<Held> {
    Ok(Held(plain::hold_folder(root, folder)?))
}

impl Held {
    /// A way to it that nobody can redirect, as long as it is held.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// The content of a plain file in it; None where there is none.
    pub fn read(&self, name: &OsString) -> io::Result<Option<String>> {
        plain::read_in(&self.0, name)
    }
}

/// What a person should know although the command continues.
pub fn warn(text: &str) {
    eprintln!("headrace-agent: {text}");
}

/// Give a new file the owner, mode and extended attributes of the one that it is to replace. Where there is none,
/// everybody may read it, whatever the umask.
pub fn dress(file: &std::fs::File, replaced: &Path) -> io::Result<()> {
    let held = match openat(CWD, replaced, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(fchmod(file, Mode::from_raw_mode(0o644))?),
        held => held?,
    };
    let (old, new) = (rustix::fs::fstat(&held)?, rustix::fs::fstat(file)?);
    // Somebody else's file by a second name, or no file: nobody's rights are taken from it.
    if FileType::from_raw_mode(old.st_mode) != FileType::RegularFile || old.st_nlink != 1 {
        return Ok(fchmod(file, Mode::from_raw_mode(0o644))?);
    }
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid) {
        let (owner, group) = (rustix::fs::Uid::from_raw(old.st_uid), rustix::fs::Gid::from_raw(old.st_gid));
        fchown(file, Some(owner), Some(group))?;
    }
    fchmod(file, Mode::from_raw_mode(old.st_mode & 0o777))?;
    let place = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    for name in attributes(&place)? {
        let mut value = vec![0; LONGEST_ATTRIBUTE];
        let length = getxattr(&place, &*name, &mut value)?;
        fsetxattr(file, &*name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

/// The names of a file's extended attributes; none where the file system has no such thing.
fn attributes(path: &Path) -> io::Result<Vec<std::ffi::CString>> {
    let mut names = vec![0; LONGEST_ATTRIBUTE];
    let length = match listxattr(path, &mut names) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    let ends = names[..length].split_inclusive(|byte| *byte == 0);
    Ok(ends.filter_map(|name| CStr::from_bytes_with_nul(name).ok()).map(CStr::to_owned).collect())
}

/// Everybody may enter and read a folder, whatever the umask.
pub fn open_to_readers(folder: &Path) -> io::Result<()> {
    Ok(chmod(folder, Mode::from_raw_mode(0o755))?)
}

/// mount(2) with MS_REMOUNT: every flag that is not given is taken away, with MS_BIND of this place only.
pub fn remount(path: &Path, flags: MountFlags, data: &CStr) -> io::Result<()> {
    Ok(mount_remount(path, flags, data)?)
}

/// Whether this kernel can configure a file system apart from the place where it is mounted: Linux 5.2 and later.
pub fn can_reconfigure(path: &Path) -> io::Result<bool> {
    match fspick(rustix::fs::CWD, path, FsPickFlags::FSPICK_CLOEXEC) {
        Err(Errno::NOSYS) => Ok(false),
        picked => Ok(picked.map(|_| true)?),
    }
}

/// Changes these options of the file system mounted here, in one step, and nothing else.
pub fn reconfigure(path: &Path, options: &[String]) -> io::Result<()> {
    let picked = fspick(rustix::fs::CWD, path, FsPickFlags::FSPICK_CLOEXEC)?;
    for option in options {
        match option.split_once('=') {
            Some((name, value)) => fsconfig_set_string(picked.as_fd(), name, value)?,
            None => fsconfig_set_flag(picked.as_fd(), option.as_str())?,
        }
    }
    Ok(fsconfig_reconfigure(picked.as_fd())?)
}
