//! A machine in memory that stands in for the real one: deterministic, killed and refused wherever a test says so.
//!
//! One per thread. Where none is set up, everything here is the real machine.

mod chance;
mod connection;
mod disk;
pub mod fs;
mod kernel;
mod machine;
mod mounts;
mod server;

use std::ffi::{CStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::real;
use fs::File;
use machine::{Call, call, is_model};

pub use chance::Chance;
pub use connection::Connection;
pub use machine::{Course, Fault, FaultKind, Killed, Machine, Waits, on, swap};

pub fn since_epoch() -> Duration {
    let now = |machine: &mut Machine| {
        machine.up += Duration::from_micros(1);
        machine.now()
    };
    on(now).unwrap_or_else(real::since_epoch)
}

pub fn since_boot() -> Duration {
    on(|machine| machine.up).unwrap_or_else(real::since_boot)
}

pub fn sleep(time: Duration) {
    on(|machine| machine.up += time).unwrap_or_else(|| real::sleep(time));
}

pub fn lock(file: &File, operation: FlockOperation) -> Result<(), Errno> {
    let (node, handle) = match file {
        File::Real(file) => return rustix::fs::flock(file, operation),
        File::Model(open) => (open.node(), open.id),
    };
    call(Call::Lock, Path::new("")).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let exclusive = matches!(operation, FlockOperation::NonBlockingLockExclusive);
    let taken = on(|machine| {
        let free =
            machine.locks.iter().all(|(n, h, alone)| *n != node || *h == handle || !(exclusive || *alone));
        if free {
            machine.locks.push((node, handle, exclusive));
        }
        (free, machine.waits_aside)
    });
    match taken {
        Some((false, true)) => resume_unwind(Box::new(Waits)),
        Some((false, false)) => Err(Errno::WOULDBLOCK),
        _ => Ok(()),
    }
}

pub enum Held {
    Real(real::Held),
    Model(PathBuf),
}

pub fn hold_folder(root: &Path, folder: &Path) -> io::Result<Held> {
    if !is_model() {
        return real::hold_folder(root, folder).map(Held::Real);
    }
    fs::canonicalize(root.join(folder.strip_prefix("/").unwrap_or(folder))).map(Held::Model)
}

impl Held {
    pub fn path(&self) -> PathBuf {
        match self {
            Held::Real(held) => held.path(),
            Held::Model(path) => path.clone(),
        }
    }

    pub fn read(&self, name: &OsString) -> io::Result<Option<String>> {
        match self {
            Held::Real(held) => held.read(name),
            Held::Model(path) => match fs::read_to_string(path.join(name)) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
        }
    }
}

/// The model's files have no attributes.
pub fn dress(file: &File, replaced: &Path) -> io::Result<()> {
    if let File::Real(file) = file { real::dress(file, replaced) } else { Ok(()) }
}

pub fn open_to_readers(folder: &Path) -> io::Result<()> {
    if is_model() { Ok(()) } else { real::open_to_readers(folder) }
}

fn mount<R>(
    path: &Path,
    is_old_enough: bool,
    work: impl FnOnce(&mut mounts::Mount) -> Result<R, Errno>,
) -> io::Result<R> {
    call(Call::Mount, path)?;
    let point = path.to_str().unwrap_or_default();
    let done = on(|machine| match machine.kernel.is_old && !is_old_enough {
        true => Err(Errno::NOSYS),
        false => machine.kernel.mount_at(point).and_then(work),
    });
    Ok(done.unwrap_or(Err(Errno::NOSYS))?)
}

pub fn remount(path: &Path, flags: MountFlags, data: &CStr) -> io::Result<()> {
    if !is_model() {
        return real::remount(path, flags, data);
    }
    mount(path, true, |mount| mount.remount(flags, &data.to_string_lossy()))
}

pub fn can_reconfigure(path: &Path) -> io::Result<bool> {
    if !is_model() {
        return real::can_reconfigure(path);
    }
    match mount(path, false, |_| Ok(true)) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSYS) => Ok(false),
        found => found,
    }
}

pub fn reconfigure(path: &Path, options: &[String]) -> io::Result<()> {
    if is_model() {
        mount(path, false, |mount| mount.reconfigure(options))
    } else {
        real::reconfigure(path, options)
    }
}

/// In the model this is the watcher: the test lets it run.
pub fn start(command: &mut Command) -> io::Result<Box<dyn Read + '_>> {
    if !is_model() {
        return real::start(command).map(|out| Box::new(out) as Box<dyn Read>);
    }
    call(Call::Start, Path::new(""))?;
    let arguments: Vec<&str> = command.get_args().filter_map(|a| a.to_str()).collect();
    let owner = arguments.iter().skip_while(|a| **a != "--owner").nth(1);
    let said = on(|machine| {
        machine.watchers.extend(owner.map(|owner| (*owner).to_owned()));
        "watching\n".as_bytes()
    });
    Ok(Box::new(said.unwrap_or_default()))
}

/// The model has no other programs.
pub fn succeeds(command: &mut Command) -> bool {
    !is_model() && real::succeeds(command)
}

pub fn warn(text: &str) {
    let said = |machine: &mut Machine| machine.said.push(text.to_owned());
    on(said).unwrap_or_else(|| real::warn(text));
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> i32 {
        match self {
            File::Real(file) => file.as_raw_fd(),
            File::Model(_) => -1,
        }
    }
}
