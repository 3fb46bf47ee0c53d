//! Where a recording is made: under its name from the start, or under another one until it is whole.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use base::door::Held;
use base::error::AgentError;
use base::stop::StopSignal;

/// A stop signal is looked for after so many events.
const CHECK_EVENTS: u64 = 4096;

/// The recording that a command makes of others.
pub struct Destination<'a> {
    pub path: &'a Path,
    /// Write over a file that is there.
    pub force: bool,
    stop: Option<StopSignal>,
}

impl<'a> Destination<'a> {
    #[must_use]
    pub fn new(path: &'a Path, force: bool) -> Self {
        Self { path, force, stop: None }
    }

    /// One that is given up when the process is asked to stop.
    ///
    /// # Errors
    /// The signals cannot be taken over.
    pub fn stoppable(path: &'a Path, force: bool) -> anyhow::Result<Self> {
        Ok(Self { stop: Some(StopSignal::install()?), ..Self::new(path, force) })
    }

    /// To be called with the number of every event that is read.
    ///
    /// # Errors
    /// The process was asked to stop.
    pub fn check(&self, events: u64) -> Result<(), AgentError> {
        let is_stopped =
            events.is_multiple_of(CHECK_EVENTS) && self.stop.as_ref().is_some_and(StopSignal::is_set);
        if is_stopped {
            return Err(AgentError::Stopped(format!("stopped; {} was not made", self.path.display())));
        }
        Ok(())
    }
}

/// Creates the file of a recording, with mode 0600.
///
/// # Errors
/// It is there and `force` is not set, or it cannot be written.
pub fn create(path: &Path, force: bool) -> anyhow::Result<File> {
    let held = Held::of(path).map_err(|error| AgentError::unwritable(path, error))?;
    if is_there(path, held.path(), force)? {
        // Removed rather than truncated: another process may be reading it, or it may have another mode.
        std::fs::remove_file(held.path()).map_err(|error| AgentError::unwritable(path, error))?;
    }
    new(held.path()).map_err(|error| explain(path, error))
}

/// Whether a recording may be created at this path, judged by its name alone.
///
/// # Errors
/// As with [`create`].
pub fn check(path: &Path, force: bool) -> anyhow::Result<()> {
    let held = Held::of(path).map_err(|error| AgentError::unwritable(path, error))?;
    is_there(path, held.path(), force).map(|_| ())
}

/// Whether there is a file that may be replaced.
fn is_there(path: &Path, held: &Path, force: bool) -> anyhow::Result<bool> {
    let found = match std::fs::symlink_metadata(held) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(AgentError::unwritable(path, error)),
        Ok(found) => found,
    };
    // Root could put a file into the place of /dev/null.
    if !found.is_file() && !found.is_symlink() {
        return Err(AgentError::Named(format!("cannot write {}: it is not a file", path.display())).into());
    }
    if force { Ok(true) } else { Err(exists(path)) }
}

fn exists(path: &Path) -> anyhow::Error {
    AgentError::Refused(format!("{} exists already; --force writes over it", path.display())).into()
}

fn new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn explain(path: &Path, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => AgentError::unwritable(path, error),
    }
}

/// A recording that is not whole: it has another name until it is, and is removed if that never happens.
pub struct Part {
    part: PathBuf,
    path: PathBuf,
    /// The folder of both, which is written to whatever becomes of its name.
    held: Held,
    force: bool,
}

impl Part {
    /// Creates `.NAME.PID.part` beside the file, with mode 0600.
    ///
    /// # Errors
    /// As with [`create`].
    pub fn create(path: &Path, force: bool) -> anyhow::Result<(File, Self)> {
        let held = Held::of(path).map_err(|error| AgentError::unwritable(path, error))?;
        is_there(path, held.path(), force)?;
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.part", std::process::id()));
        let part = held.path().with_file_name(name);
        let file = new(&part).map_err(|error| AgentError::unwritable(path, error))?;
        Ok((file, Self { part, path: path.to_owned(), held, force }))
    }

    /// Gives the file its name, when all of it is on the disk.
    ///
    /// # Errors
    /// Another file has that name by now, or the names cannot be written.
    pub fn publish(self) -> anyhow::Result<()> {
        // Looked at again: with `force`, too, it must not be a device.
        is_there(&self.path, self.held.path(), self.force)?;
        self.rename().map_err(|error| explain(&self.path, error))?;
        File::open(self.held.path().parent().unwrap_or(Path::new(".")))
            .and_then(|folder| folder.sync_all())
            .map_err(|error| AgentError::unwritable(&self.path, error))
    }

    fn rename(&self) -> io::Result<()> {
        if self.force {
            return std::fs::rename(&self.part, self.held.path());
        }
        match renameat_with(CWD, &self.part, CWD, self.held.path(), RenameFlags::NOREPLACE) {
            // NFS and others do not know this; a link does not replace a file either.
            Err(Errno::INVAL | Errno::NOSYS) => std::fs::hard_link(&self.part, self.held.path()),
            renamed => Ok(renamed?),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Gone where it was renamed; second name of the file where it was linked.
        let _ = std::fs::remove_file(&self.part);
    }
}
