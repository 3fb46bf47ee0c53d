//! Names in folders of others: each folder on the way is opened by what it is, and held open while it is used.
//!
//! Root reads and writes in folders that belong to other users. Whoever owns one of them can put a link, another folder
//! or a pipe in the place of a name between any two of our calls. So a name is taken apart and each folder is opened
//! beneath the one before. A link that another user made is followed only to what that user owns: nobody is led to a
//! file that is not the link's maker's own.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat, openat, readlinkat, stat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Links that lead to links: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// How far a name is opened.
struct Way {
    at: OwnedFd,
    /// The folder above the last step.
    above: Option<Stat>,
    /// Who else made a link on the way.
    makers: Vec<u32>,
    /// Whether the last step was through an open file of a process, such as /dev/stdin or what a shell's <(...) is.
    is_of_a_process: bool,
}

/// A folder that is held open, and a name in it that may be whatever it is.
pub struct Held {
    folder: Option<OwnedFd>,
    path: PathBuf,
}

impl Held {
    /// Of a path whose folder must be there. It stays the same folder as long as this is held.
    ///
    /// # Errors
    /// The folder cannot be opened, or another user's link leads to one that is not that user's.
    pub fn of(path: &Path) -> io::Result<Self> {
        let Some(name) = path.file_name() else {
            return Ok(Self { folder: None, path: path.to_owned() });
        };
        let way = walk(&std::path::absolute(path)?, 1)?;
        way.check(&fstat(&way.at)?)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", way.at.as_raw_fd())).join(name);
        Ok(Self { folder: Some(way.at), path })
    }

    pub(crate) fn folder(&self) -> io::Result<Stat> {
        Ok(match &self.folder {
            Some(folder) => fstat(folder)?,
            None => stat(&self.path)?,
        })
    }

    /// A name that leads there from any thread of this process.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens a plain file for reading; whatever else has the name is not even opened. `may_be_pipe`: nor is a pipe that a
/// process holds open refused, such as /dev/stdin or a shell's <(...).
///
/// # Errors
/// It cannot be opened, or is no plain file.
pub fn open(path: &Path, may_be_pipe: bool) -> io::Result<File> {
    let way = walk(&std::path::absolute(path)?, 0)?;
    let found = fstat(&way.at)?;
    way.check(&found)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    let is_pipe = may_be_pipe && way.is_of_a_process && kind == FileType::Fifo;
    if kind == FileType::Directory {
        return Err(Errno::ISDIR.into());
    }
    if kind != FileType::RegularFile && !is_pipe {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("is {}, not a plain file", word(kind)),
        ));
    }
    way.check_single(&found)?;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(format!("/proc/self/fd/{}", way.at.as_raw_fd()))?;
    // Only opening may not wait.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// How many bytes a plain file has. By its name alone another user's link would tell the size of any file.
///
/// # Errors
/// As [`open`].
pub fn length(path: &Path) -> io::Result<u64> {
    Ok(open(path, false)?.metadata()?.len())
}

/// The text of a small file, as [`open`] opens it.
///
/// # Errors
/// As there; or it is larger than `most_bytes`, or not UTF-8.
pub fn read_to_string(path: &Path, most_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, most_bytes)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// The content of a small file, as [`open`] opens it.
///
/// # Errors
/// As there; or it is larger than `most_bytes`.
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if open(path, true)?.take(most_bytes + 1).read_to_end(&mut bytes)? as u64 > most_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "is larger than any of these"));
    }
    Ok(bytes)
}

impl Way {
    fn check(&self, found: &Stat) -> io::Result<()> {
        if self.makers.iter().all(|maker| *maker == found.st_uid) {
            return Ok(());
        }
        Err(refused("a link on the way is another user's, and leads to what is not theirs"))
    }

    fn check_single(&self, found: &Stat) -> io::Result<()> {
        self.above.map_or(Ok(()), |above| check_single(found, &above))
    }
}

/// Root uses no file by a second name that another user may have given it.
///
/// # Errors
/// It is one.
pub(crate) fn check_single(found: &Stat, above: &Stat) -> io::Result<()> {
    let may_be_theirs = above.st_uid != found.st_uid || above.st_mode & 0o022 != 0;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if is_file && found.st_nlink > 1 && geteuid().is_root() && may_be_theirs {
        return Err(refused("has a second name, and others may write to its directory"));
    }
    Ok(())
}

/// Opens all of an absolute path but the last `less` parts.
fn walk(path: &Path, less: usize) -> io::Result<Way> {
    let folder = |name: &Path| openat(CWD, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let mut left = parts(path);
    left.drain(..less.min(left.len()));
    let mut way =
        Way { at: folder(Path::new("/"))?, above: None, makers: Vec::new(), is_of_a_process: false };
    let mut links = 0;
    while let Some(part) = left.pop() {
        let above = fstat(&way.at)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let mut step = openat(&way.at, &part, flags | OFlags::NOFOLLOW, Mode::empty())?;
        let found = fstat(&step)?;
        way.is_of_a_process = false;
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            if let Some(maker) = other_maker(&found, &above) {
                way.makers.push(maker);
            }
            if is_of_a_process(&found, &above) {
                step = openat(&way.at, &part, flags, Mode::empty())?;
                way.is_of_a_process = true;
            } else {
                let target = OsString::from_vec(readlinkat(&step, "", Vec::new())?.into_bytes());
                left.extend(parts(Path::new(&target)));
                if !Path::new(&target).is_absolute() {
                    continue;
                }
                step = folder(Path::new("/"))?;
            }
        }
        way.above = Some(above);
        way.at = step;
    }
    Ok(way)
}

/// Who else may have put a link there: a second name of one that root made was given to it by whoever may write there.
pub(crate) fn other_maker(link: &Stat, above: &Stat) -> Option<u32> {
    let ours = [0, geteuid().as_raw()];
    if !ours.contains(&link.st_uid) {
        return Some(link.st_uid);
    }
    let is_shared = !ours.contains(&above.st_uid) || above.st_mode & 0o022 != 0;
    (link.st_nlink > 1 && is_shared).then_some(u32::MAX)
}

/// The last one first. A `..` is a folder of its own: that of what is open.
fn parts(path: &Path) -> Vec<OsString> {
    let named = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(named).collect()
}

/// Whether a link is one of /proc that leads to an open file, not to a name; /proc/self and others of the top are names.
fn is_of_a_process(link: &Stat, above: &Stat) -> bool {
    stat("/proc").is_ok_and(|top| link.st_dev == top.st_dev && above.st_ino != top.st_ino)
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use rustix::fs::mknodat;

    use super::*;

    #[test]
    fn links_of_ours_are_followed_and_what_is_no_file_is_not_opened() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        fs::write(at("folder/file"), "text").unwrap();
        symlink("folder/../folder", at("way")).unwrap();
        symlink(at("way/file"), at("link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(read_to_string(&at("link"), 4).unwrap(), "text");
        assert_eq!(read_to_string(&at("link"), 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(open(&at("pipe"), true).unwrap_err().to_string().contains("is a pipe"));
        assert!(open(Path::new("/dev/zero"), true).unwrap_err().to_string().contains("is a device"));
        assert_eq!(open(&at("folder"), true).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(open(&at("none"), true).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(open(&at("loop"), true).is_err());
        fs::write(Held::of(&at("way/new")).unwrap().path(), "made").unwrap();
        assert_eq!(fs::read_to_string(at("folder/new")).unwrap(), "made");
    }

    #[test]
    fn a_pipe_of_a_process_is_read() {
        let mut says = Command::new("printf").arg("text").stdout(Stdio::piped()).spawn().unwrap();
        let reader = says.stdout.take().unwrap();
        says.wait().unwrap();
        let name = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        assert_eq!(read_to_string(&name, 10).unwrap(), "text");
        assert!(open(&name, false).is_err());
    }
}
