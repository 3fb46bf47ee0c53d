//! Files in folders where others may write: a plain one is opened by what it is, not by its name.
//!
//! Whoever may write to a folder can put a link, a pipe, a device or somebody's file under any name in it, and change
//! that between any two calls. So each folder of the way is held open and no name is resolved twice; links are followed
//! only if root or this user made them; a file is opened for its content only after it was seen to be a plain file of
//! root, of this user or of the folder's owner, with one name. Then what was checked is what is read.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use base::error::AgentError;
use clap::Args;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde_json::json;

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;
const MOST_BYTES: u64 = 1 << 20;
/// Of all files of one call.
const MOST_ALTOGETHER: u64 = 8 << 20;
const MOST_NAMES: usize = 10_000;
/// File systems whose files the kernel makes as they are read: proc, sysfs, tracefs, debugfs, cgroup2, bpf and
/// securityfs, by linux/magic.h.
const KERNELS: [i64; 7] =
    [0x9fa0, 0x6265_6572, 0x7472_6163, 0x6462_6720, 0x6367_7270, 0xcafe_4a11, 0x7363_6673];

#[derive(Args)]
pub struct FileArguments {
    /// Where absolute paths and links begin, such as /proc/PID/root
    #[arg(long, default_value = "/", hide_default_value = true)]
    root: PathBuf,
    /// Absolute paths of plain files of root, of this user or of their folder's owner; a folder is listed
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Print files as JSON: `files[]` with `path` and `content`, `names` of a folder, `missing` or why one is `refused`.
///
/// # Errors
/// Refused, after all were printed, if one was.
pub fn run(arguments: &FileArguments) -> anyhow::Result<()> {
    let (mut files, mut first, mut left) = (Vec::new(), None, MOST_ALTOGETHER);
    let root = Root::hold(&arguments.root).with_context(|| arguments.root.display().to_string());
    let root = root.map_err(|error| AgentError::NotReady(format!("{error:#}")))?;
    for path in &arguments.paths {
        let path_text = path.to_string_lossy();
        files.push(match root.look(path, left) {
            Ok(Seen { owner, mode, what: What::File(bytes) }) => {
                left -= bytes.len() as u64;
                let content = String::from_utf8_lossy(&bytes);
                json!({ "path": path_text, "content": content, "owner": owner, "mode": mode })
            }
            Ok(Seen { owner, mode, what: What::Folder(names) }) => {
                json!({ "path": path_text, "names": names, "owner": owner, "mode": mode })
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                json!({ "path": path_text, "missing": true })
            }
            Err(error) => {
                let why = error.to_string();
                first.get_or_insert(format!("{path_text}: {why}"));
                json!({ "path": path_text, "refused": why })
            }
        });
    }
    println!("{}", json!({ "files": files }));
    first.map_or(Ok(()), |why| Err(AgentError::Refused(why).into()))
}

/// A file, or a folder by the names in it.
struct Seen {
    owner: u32,
    mode: u32,
    what: What,
}

enum What {
    File(Vec<u8>),
    Folder(Vec<String>),
}

/// Where paths begin, held open, and whose links are followed.
struct Root {
    folder: OwnedFd,
    ours: [u32; 3],
}

impl Root {
    fn hold(root: &Path) -> io::Result<Self> {
        let folder = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // In a container's root, its own root counts as root does here.
        let its = fstat(&folder)?.st_uid;
        Ok(Self { folder, ours: [0, geteuid().as_raw(), its] })
    }

    fn look(&self, path: &Path, most: u64) -> io::Result<Seen> {
        let (folder, name) = self.follow(path)?;
        let held = openat(&folder, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&held)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return self.list(&held);
        }
        let what = What::File(read_held(&held, &found, &fstat(&folder)?, &self.ours, most.min(MOST_BYTES))?);
        Ok(Seen { owner: found.st_uid, mode: found.st_mode & 0o7777, what })
    }

    /// The names in a folder, in their order: what they are is for whoever reads them.
    fn list(&self, held: &OwnedFd) -> io::Result<Seen> {
        let found = fstat(held)?;
        let mut names = Vec::new();
        for each in std::fs::read_dir(path_of(held))? {
            names.push(each?.file_name().to_string_lossy().into_owned());
            if names.len() > MOST_NAMES {
                return Err(refused("holds more than 10,000 names"));
            }
        }
        names.sort();
        Ok(Seen { owner: found.st_uid, mode: found.st_mode & 0o7777, what: What::Folder(names) })
    }

    /// The folder of a path, held open, and the name in it that is no link. Links of root and of this user are
    /// followed.
    fn follow(&self, path: &Path) -> io::Result<(OwnedFd, OsString)> {
        if !path.is_absolute() {
            return Err(refused("is not an absolute path"));
        }
        let (mut way, mut folders, mut links) = (names(path), vec![self.folder.try_clone()?], 0);
        loop {
            let Some(name) = way.pop_front() else {
                return Ok((folders.pop().expect("the root stays"), ".".into()));
            };
            if name == ".." {
                if folders.len() > 1 {
                    folders.pop();
                }
                continue;
            }
            let folder = folders.last().expect("the root stays");
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = openat(folder, &name, flags, Mode::empty())?;
            let found = fstat(&held)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Symlink => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    // A second name could have been put here by anybody.
                    if !self.ours.contains(&found.st_uid)
                        || (found.st_nlink != 1 && is_shared(&fstat(folder)?, &self.ours))
                    {
                        return Err(refused("is, or is behind, a link that another user made"));
                    }
                    let to = readlinkat(&held, "", Vec::new())?.into_bytes();
                    let to = PathBuf::from(OsString::from_vec(to));
                    if to.is_absolute() {
                        folders.truncate(1);
                    }
                    for part in names(&to).into_iter().rev() {
                        way.push_front(part);
                    }
                }
                FileType::Directory if !way.is_empty() => folders.push(held),
                _ if way.is_empty() => return Ok((folders.pop().expect("the root stays"), name)),
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
    }
}

/// The content of a plain file in a folder that is held open. A link under its name is refused.
fn read_at(folder: &OwnedFd, name: &OsString) -> io::Result<Vec<u8>> {
    let held = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    read_held(&held, &fstat(&held)?, &fstat(folder)?, &[0, geteuid().as_raw()], MOST_BYTES)
}

/// The content of what is held, if it is a plain file.
fn read_held(held: &OwnedFd, found: &Stat, folder: &Stat, ours: &[u32], most: u64) -> io::Result<Vec<u8>> {
    check_plain(found, folder, ours)?;
    // An option file may include one of these: some block, and some are empty after the first read.
    if KERNELS.contains(&fstatfs(held)?.f_type) {
        return Err(refused("is a file of the kernel, not one of a disk"));
    }
    // The file that was checked, whatever has its name by now.
    let file =
        openat(CWD, path_of(held), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let mut content = Vec::new();
    std::fs::File::from(file).take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(refused(if most == MOST_BYTES {
            "is larger than 1 MiB"
        } else {
            "is too much with the others"
        }));
    }
    Ok(content)
}

/// A way to what is held that nobody can redirect.
fn path_of(held: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))
}

fn check_plain(found: &Stat, folder: &Stat, ours: &[u32]) -> io::Result<()> {
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind == FileType::Directory {
        return Err(Errno::ISDIR.into());
    }
    if kind != FileType::RegularFile {
        return Err(refused(match kind {
            FileType::Fifo => "is a pipe, not a plain file",
            FileType::Symlink => "is a link that another user may change",
            FileType::Socket => "is a socket, not a plain file",
            _ => "is a device, not a plain file",
        }));
    }
    if is_shared(folder, ours) {
        if found.st_nlink != 1 {
            return Err(refused("has a second name: it may be somebody else's file"));
        }
        // It may have had a second name until it was replaced under its own.
        if found.st_uid != folder.st_uid && !is_readable(found, folder) {
            return Err(refused("is not readable by those who may write to its folder"));
        }
        if !ours.contains(&found.st_uid) && found.st_uid != folder.st_uid {
            return Err(refused("belongs to another user"));
        }
    }
    // Where nobody else may put a name, a file that was given away, as to the server's user, is still the one meant.
    Ok(())
}

/// Whether others may put names into a folder.
fn is_shared(folder: &Stat, ours: &[u32]) -> bool {
    !ours.contains(&folder.st_uid) || folder.st_mode & 0o022 != 0
}

/// Whether the owner of a folder may read a file of another user anyway.
fn is_readable(found: &Stat, folder: &Stat) -> bool {
    found.st_mode & 0o004 != 0 || (found.st_mode & 0o040 != 0 && found.st_gid == folder.st_gid)
}

/// A folder below a root, held open, of whose way no part is a link.
pub fn hold_folder(root: &Path, folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut held = openat(CWD, root, flags, Mode::empty())?;
    for name in names(folder) {
        if name == ".." {
            return Err(refused("is not below its root"));
        }
        held =
            openat(&held, &name, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| match error {
                Errno::LOOP | Errno::NOTDIR => refused("a symbolic link leads elsewhere"),
                other => other.into(),
            })?;
    }
    Ok(held)
}

/// The content of a plain file of a folder that is held open; None where there is none.
pub fn read_in(folder: &impl AsFd, name: &OsString) -> io::Result<Option<String>> {
    let folder = folder.as_fd().try_clone_to_owned()?;
    match read_at(&folder, name) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| refused("is no text")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(OsString::from_vec(name.as_bytes().to_vec())),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use rustix::fs::{FileType, Mode, mknodat};

    use super::*;

    fn read(path: &Path) -> io::Result<Vec<u8>> {
        match Root::hold(Path::new("/"))?.look(path, MOST_ALTOGETHER)?.what {
            What::File(bytes) => Ok(bytes),
            What::Folder(_) => Err(Errno::ISDIR.into()),
        }
    }

    fn why(path: &Path) -> String {
        read(path).unwrap_err().to_string()
    }

    #[test]
    fn only_a_plain_file_is_read_and_nothing_waits() {
        let place = tempfile::tempdir().unwrap();
        // A link of the way to it must not decide.
        let folder = fs::canonicalize(place.path()).unwrap();
        let at = |name: &str| folder.join(name);
        fs::write(at("plain"), "x = 1\n").unwrap();
        assert_eq!(read(&at("plain")).unwrap(), b"x = 1\n");
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(why(&at("pipe")).contains("pipe"));
        let _socket = UnixListener::bind(at("socket")).unwrap();
        assert!(why(&at("socket")).contains("socket"));
        fs::write(at("one"), "").unwrap();
        fs::hard_link(at("one"), at("two")).unwrap();
        assert_eq!(read(&at("two")).unwrap(), b"", "nobody else may put a name into this folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(why(&at("two")).contains("second name"));
        symlink("/dev/zero", at("zero")).unwrap();
        assert!(why(&at("zero")).contains("device"));
        fs::write(at("large"), vec![b'x'; (MOST_BYTES + 1) as usize]).unwrap();
        assert!(why(&at("large")).contains("1 MiB"));
        symlink(at("loop"), at("loop")).unwrap();
        assert!(read(&at("loop")).is_err());
        assert_eq!(read(&at("nothing")).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(read(&folder).is_err());
        assert!(why(Path::new("plain")).contains("absolute"));
        // Our own links lead where they say, also upward.
        fs::create_dir(at("inner")).unwrap();
        symlink("../plain", at("inner/up")).unwrap();
        symlink(at("inner"), at("way")).unwrap();
        assert_eq!(read(&at("way/up")).unwrap(), b"x = 1\n");
        assert_eq!(read(Path::new("/proc/self/../..")).unwrap_err().kind(), ErrorKind::IsADirectory);
    }

    #[test]
    fn a_folder_is_held_only_if_no_part_of_its_way_is_a_link() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("etc/real.d")).unwrap();
        symlink("real.d", place.path().join("etc/link.d")).unwrap();
        fs::write(place.path().join("etc/file"), "").unwrap();
        let folder = hold_folder(place.path(), Path::new("/etc/real.d")).unwrap();
        for bad in ["/etc/link.d", "/etc/file", "/etc/../etc/real.d"] {
            assert!(hold_folder(place.path(), Path::new(bad)).is_err(), "{bad}");
        }
        assert_eq!(read_in(&folder, &"x".into()).unwrap(), None);
        // The folder that is held stays the same one, whatever takes its name.
        fs::rename(place.path().join("etc/real.d"), place.path().join("etc/moved")).unwrap();
        symlink("/", place.path().join("etc/real.d")).unwrap();
        fs::write(place.path().join("etc/moved/x"), "held").unwrap();
        assert_eq!(read_in(&folder, &"x".into()).unwrap().as_deref(), Some("held"));
        symlink("moved/x", place.path().join("etc/moved/y")).unwrap();
        assert!(read_in(&folder, &"y".into()).is_err());
    }
}
