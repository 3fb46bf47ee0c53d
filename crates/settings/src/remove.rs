//! `rm -r` that cannot go wrong: below the scratch folder only, no symbolic link followed, no mount crossed.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::mounts::mount_points;
use base::error::AgentError;

/// Folders that are no scratch folder, whatever the caller says.
const SYSTEM: &[&str] = &[
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc",
    "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/tmp",
];

/// The real path of a folder that may be declared as scratch.
pub fn scratch(path: &Path) -> anyhow::Result<PathBuf> {
    let place = || path.display().to_string();
    let real = path.canonicalize().with_context(place)?;
    let kernel = ["/proc", "/sys", "/etc", "/usr", "/boot"].iter().any(|p| real.starts_with(p));
    if !path.is_absolute() || !real.is_dir() || kernel || SYSTEM.iter().any(|p| real == Path::new(p)) {
        return Err(AgentError::Refused(format!("{}: no scratch folder", path.display())).into());
    }
    Ok(real)
}

/// The path with its folder's symbolic links resolved; the last part is taken as it is.
pub fn real_parent(path: &Path) -> anyhow::Result<PathBuf> {
    if !path.is_absolute()
        || path.file_name().is_none()
        || path.components().any(|c| c == Component::ParentDir)
    {
        let text = format!("{}: must be an absolute path without `..`", path.display());
        return Err(AgentError::Input(text).into());
    }
    // Part of the folder may not be there yet: then nothing in it can be a link, either.
    let folders = path.ancestors().skip(1);
    let (folder, real) = folders
        .filter_map(|folder| Some((folder, folder.canonicalize().ok()?)))
        .next()
        .with_context(|| path.display().to_string())?;
    Ok(real.join(path.strip_prefix(folder)?))
}

/// The scratch folder that `path` lies below.
pub fn scratch_of<'a>(path: &Path, scratch: &'a [PathBuf]) -> anyhow::Result<&'a Path> {
    let inside = |folder: &&PathBuf| path != folder.as_path() && path.starts_with(folder);
    scratch.iter().find(inside).map(PathBuf::as_path).ok_or_else(|| {
        let text = format!("{}: not below a scratch folder that was declared", path.display());
        AgentError::Refused(text).into()
    })
}

/// Remove `path` and all below it; it may be gone already.
pub fn remove(path: &Path, scratch: &[PathBuf]) -> anyhow::Result<()> {
    let scratch = scratch_of(path, scratch)?;
    if let Some(mounted) = mount_points()?.into_iter().find(|point| point.starts_with(path)) {
        return Err(AgentError::Refused(format!("{}: is mounted", mounted.display())).into());
    }
    let mut parts: Vec<&OsStr> = path.strip_prefix(scratch)?.iter().collect();
    let name = parts.pop().context("an empty path")?;
    let place = || path.display().to_string();
    let mut folder = match open_folder(CWD, scratch.as_os_str()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other.with_context(|| scratch.display().to_string())?,
    };
    let device = fstat(&folder)?.st_dev;
    for part in parts {
        folder = match open_folder(folder.as_fd(), part) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.with_context(place)?,
        };
        same_device(folder.as_fd(), device, path)?;
    }
    remove_at(folder.as_fd(), &CString::new(name.as_bytes())?, device, path)
}

fn remove_at(folder: BorrowedFd, name: &CString, device: u64, path: &Path) -> anyhow::Result<()> {
    let place = || format!("{} ({})", path.display(), name.to_string_lossy());
    let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        other => other.with_context(place)?,
    };
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if is_folder {
        let inner = open_folder(folder, OsStr::from_bytes(name.as_bytes())).with_context(place)?;
        same_device(inner.as_fd(), device, path)?;
        for entry in Dir::read_from(&inner).with_context(place)? {
            let entry = entry.with_context(place)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                remove_at(inner.as_fd(), &entry.file_name().to_owned(), device, path)?;
            }
        }
    }
    let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match unlinkat(folder, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        other => other.with_context(place),
    }
}

fn open_folder(at: BorrowedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Folders only: an overlay gives its files the numbers of the layers below.
fn same_device(folder: BorrowedFd, device: u64, path: &Path) -> anyhow::Result<()> {
    if fstat(folder)?.st_dev == device {
        return Ok(());
    }
    Err(AgentError::Refused(format!("{}: another file system begins here", path.display())).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn scratch_folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        fs::create_dir(path.join("scratch")).unwrap();
        (folder, path)
    }

    #[test]
    fn a_tree_goes_but_not_what_its_links_point_to() {
        let (_keep, top) = scratch_folder();
        let scratch = top.join("scratch");
        fs::create_dir_all(scratch.join("x/deep/er")).unwrap();
        fs::write(scratch.join("x/deep/file"), "1").unwrap();
        fs::create_dir(top.join("precious")).unwrap();
        fs::write(top.join("precious/file"), "2").unwrap();
        symlink(top.join("precious"), scratch.join("x/link")).unwrap();
        symlink(top.join("precious"), scratch.join("way")).unwrap();
        let folders = [scratch.clone()];

        remove(&scratch.join("x"), &folders).unwrap();
        remove(&scratch.join("x"), &folders).unwrap();
        remove(&scratch.join("never/was"), &folders).unwrap();
        assert!(remove(&scratch.join("way/file"), &folders).is_err());
        remove(&scratch.join("way"), &folders).unwrap();
        assert_eq!(fs::read_to_string(top.join("precious/file")).unwrap(), "2");
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
    }

    #[test]
    fn only_below_scratch() {
        let (_keep, top) = scratch_folder();
        let folders = [top.join("scratch")];
        for path in [top.join("scratch"), top.join("other"), top.clone(), top.join("scratch2")] {
            assert!(remove(&path, &folders).unwrap_err().to_string().contains("not below"), "{path:?}");
        }
        for path in ["/", "/etc", "/var/lib", "/proc/self", "/sys/block", "/usr/share"] {
            assert!(scratch(Path::new(path)).is_err(), "{path}");
        }
        for path in ["relative", "/a/../b", "/"] {
            assert!(real_parent(Path::new(path)).is_err(), "{path}");
        }
    }
}
