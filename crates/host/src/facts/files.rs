//! Reading files of a host, live or a folder that holds one.
//!
//! What a kernel, driver or device does not have is `None`; a file that cannot be read or parsed is `None` and
//! an entry in the list of errors. So callers never handle an error, and one unreadable file never costs the
//! rest of the facts.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context;
use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, StatVfs, openat, openat2, readlinkat, statvfs};
use rustix::io::Errno;
use serde::Serialize;

use base::error::AgentError;

/// A file that exists and could not be read.
#[derive(Serialize)]
pub struct ReadError {
    pub path: String,
    pub error: String,
}

/// The files of one host.
pub struct Files {
    root: OwnedFd,
    live: bool,
    errors: RefCell<Vec<ReadError>>,
}

impl Files {
    /// The host below `root`; without it the running one.
    pub fn open(root: Option<&Path>) -> anyhow::Result<Files> {
        let path = root.unwrap_or(Path::new("/"));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| AgentError::Input(format!("--root {}: {errno}", path.display())))?;
        if root.is_some() {
            openat2(&folder, ".", flags, Mode::empty(), ResolveFlags::IN_ROOT)
                .context("--root needs openat2 (Linux 5.6), which keeps symbolic links inside the folder")?;
        }
        Ok(Files { root: folder, live: root.is_none(), errors: RefCell::default() })
    }

    /// The running host, not a copy of one's files: system calls and commands refer to the same host.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// The host's `/`.
    pub fn root(&self) -> Folder<'_> {
        Folder { files: self, path: String::new() }
    }

    pub fn into_errors(self) -> Vec<ReadError> {
        self.errors.into_inner()
    }

    fn open_path(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let relative = path.trim_start_matches('/');
        let relative = if relative.is_empty() { "." } else { relative };
        let flags = flags | OFlags::CLOEXEC;
        if self.live {
            openat(&self.root, relative, flags, Mode::empty())
        } else {
            openat2(&self.root, relative, flags, Mode::empty(), ResolveFlags::IN_ROOT)
        }
    }

    fn note(&self, path: &str, error: impl ToString) {
        self.errors.borrow_mut().push(ReadError { path: path.to_owned(), error: error.to_string() });
    }

    /// `None` for an error, which is noted unless it only means that the host has no such thing.
    fn known<T>(&self, path: &str, result: Result<T, Errno>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(errno) => {
                // Attributes fail with EINVAL, ENODEV or EOPNOTSUPP if the driver has no value (the
                // speed of a NIC without link); ESRCH is a process that ended; EISDIR is a folder among files.
                let absent = matches!(
                    errno,
                    Errno::NOENT
                        | Errno::ISDIR
                        | Errno::NOTDIR
                        | Errno::NODEV
                        | Errno::NXIO
                        | Errno::INVAL
                        | Errno::OPNOTSUPP
                        | Errno::SRCH
                );
                if !absent {
                    self.note(path, errno);
                }
                None
            }
        }
    }
}

/// A folder of a host. Names may hold slashes.
#[derive(Clone)]
pub struct Folder<'a> {
    files: &'a Files,
    path: String,
}

/// A file of the form `always [madvise] never`: the words, and the one in brackets.
#[derive(Serialize)]
pub struct Choice {
    pub selected: Option<String>,
    pub available: Vec<String>,
}

impl<'a> Folder<'a> {
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A name in this folder; the folder itself for `""`, because with a slash at its end a path means what
    /// the link points to.
    pub fn join(&self, name: &str) -> Folder<'a> {
        let path = if name.is_empty() { self.path.clone() } else { format!("{}/{name}", self.path) };
        Folder { files: self.files, path }
    }

    /// A path from the host's `/`, regardless of this folder.
    pub fn absolute(&self, path: &str) -> Folder<'a> {
        Folder { files: self.files, path: path.trim_end_matches('/').to_owned() }
    }

    pub fn exists(&self, name: &str) -> bool {
        self.files.open_path(&self.join(name).path, OFlags::PATH).is_ok()
    }

    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.head(name, u64::MAX)
    }

    /// At most the first `limit_bytes`, in reads no larger than that.
    pub fn head(&self, name: &str, limit_bytes: u64) -> Option<Vec<u8>> {
        let path = self.join(name).path;
        let mut content = Vec::new();
        let read = self.files.open_path(&path, OFlags::RDONLY).and_then(|fd| {
            File::from(fd)
                .take(limit_bytes)
                .read_to_end(&mut content)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        });
        self.files.known(&path, read).map(|_| content)
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).map(|content| String::from_utf8_lossy(&content).into_owned())
    }

    /// The text without white space around it; `None` if nothing is left.
    pub fn line(&self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        let line = text.trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// The first word as a number: md adds the old value in parentheses while an array is reshaped.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        let line = self.line(name)?;
        let word = line.split_whitespace().next()?;
        let number = word.parse().ok();
        if number.is_none() {
            self.files.note(&self.join(name).path, format!("{word:?} is not a number in range"));
        }
        number
    }

    /// A switch: `0` or `1`.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.number::<u8>(name).map(|value| value != 0)
    }

    pub fn choice(&self, name: &str) -> Option<Choice> {
        self.line(name).map(|line| parse_choice(&line))
    }

    /// The names in a folder, sorted, numbers in them by value (`rx-2` before `rx-10`).
    pub fn names(&self, name: &str) -> Vec<String> {
        let path = self.join(name).path;
        let listed = self.files.open_path(&path, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|fd| {
            Dir::new(fd)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        });
        let mut names: Vec<String> = self.files.known(&path, listed).unwrap_or_default();
        // A fixture keeps its empty folders with a hidden file.
        names.retain(|name| !name.starts_with('.'));
        names.sort_by_cached_key(|name| natural_key(name));
        names
    }

    /// The target of a symbolic link.
    pub fn link(&self, name: &str) -> Option<String> {
        let path = self.join(name).path;
        let target = self
            .files
            .open_path(&path, OFlags::PATH | OFlags::NOFOLLOW)
            .and_then(|fd| readlinkat(fd, "", Vec::new()));
        // A checkout without symbolic links (git's core.symlinks=false) holds the target as the file's text.
        // On a live host the same error means that the name is not a link.
        if !self.files.live && matches!(target, Err(Errno::NOENT | Errno::INVAL)) {
            return self.line(name);
        }
        let target = self.files.known(&path, target)?;
        Some(String::from_utf8_lossy(target.as_bytes()).into_owned())
    }

    /// Size and free space of the file system at this folder, which only a running kernel knows.
    pub fn space(&self) -> Option<StatVfs> {
        if !self.files.live {
            return None;
        }
        let path = if self.path.is_empty() { "/" } else { &self.path };
        self.files.known(path, statvfs(path))
    }

    /// The last part of a link's target: the name of a driver, a device, a master.
    pub fn link_name(&self, name: &str) -> Option<String> {
        self.link(name)?.rsplit('/').next().map(str::to_owned)
    }
}

fn parse_choice(line: &str) -> Choice {
    let mut choice = Choice { selected: None, available: Vec::new() };
    for word in line.split_whitespace() {
        let bare = word.trim_start_matches('[').trim_end_matches(']');
        if bare.len() < word.len() {
            choice.selected = Some(bare.to_owned());
        }
        choice.available.push(bare.to_owned());
    }
    // Kernels print a choice of one without brackets.
    if choice.available.len() == 1 {
        choice.selected = choice.available.first().cloned();
    }
    choice
}

/// Text and number alternate, so that comparing keys compares the numbers by value.
fn natural_key(name: &str) -> Vec<(String, u64)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits_at = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(digits_at);
        let number_end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        key.push((text.to_owned(), tail[..number_end].parse().unwrap_or(u64::MAX)));
        rest = &tail[number_end..];
    }
    key
}

#[cfg(test)]
mod tests {
    use super::{Files, parse_choice};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_choice_is_the_word_in_brackets_or_the_only_one() {
        let choice = parse_choice("none [mq-deadline] kyber bfq");
        assert_eq!(choice.selected.as_deref(), Some("mq-deadline"));
        assert_eq!(choice.available, ["none", "mq-deadline", "kyber", "bfq"]);
        assert_eq!(parse_choice("none").selected.as_deref(), Some("none"));
        assert_eq!(parse_choice("a b").selected, None);
    }

    #[test]
    fn absence_is_silent_and_nonsense_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("size"), "many\n").unwrap();
        fs::write(folder.path().join("layout"), "2 (1)\n").unwrap();
        let files = Files::open(Some(folder.path())).unwrap();
        assert_eq!(files.root().number::<u64>("missing"), None);
        assert_eq!(files.root().number::<u64>("size/below"), None);
        assert_eq!(files.root().number::<u64>("layout"), Some(2));
        assert_eq!(files.root().number::<u64>("size"), None);
        let errors = files.into_errors();
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].path, "/size");
        assert!(errors[0].error.contains("many"));
    }

    #[test]
    fn links_never_leave_the_root() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "outside").unwrap();
        let folder = tempfile::tempdir().unwrap();
        symlink(outside.path().join("secret"), folder.path().join("absolute")).unwrap();
        symlink("../../../../../../etc/passwd", folder.path().join("upwards")).unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        fs::write(folder.path().join("etc/name"), "inside").unwrap();
        symlink("/etc/name", folder.path().join("within")).unwrap();
        let files = Files::open(Some(folder.path())).unwrap();
        assert_eq!(files.root().text("absolute"), None);
        assert_eq!(files.root().text("upwards"), None);
        assert_eq!(files.root().text("within").as_deref(), Some("inside"));
    }

    #[test]
    fn a_link_may_be_a_plain_file_with_the_target() {
        let folder = tempfile::tempdir().unwrap();
        symlink("../../drivers/nvme", folder.path().join("link")).unwrap();
        fs::write(folder.path().join("plain"), "../../drivers/vbd\n").unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        let files = Files::open(Some(folder.path())).unwrap();
        assert_eq!(files.root().link_name("link").as_deref(), Some("nvme"));
        assert_eq!(files.root().link_name("plain").as_deref(), Some("vbd"));
        assert_eq!(files.root().link_name("folder"), None);
        assert_eq!(files.root().link_name("missing"), None);
        assert!(files.into_errors().is_empty());
    }

    #[test]
    fn names_sort_by_number() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["rx-10", "rx-2", "tx-0", ".gitkeep"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let files = Files::open(Some(folder.path())).unwrap();
        assert_eq!(files.root().names(""), ["rx-2", "rx-10", "tx-0"]);
    }

    #[test]
    fn a_file_without_permission_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("closed");
        fs::write(&path, "1").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        if fs::read(&path).is_ok() {
            return; // root reads everything
        }
        let files = Files::open(Some(folder.path())).unwrap();
        assert_eq!(files.root().text("closed"), None);
        assert_eq!(files.into_errors().len(), 1);
    }
}
