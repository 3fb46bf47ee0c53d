//! Where the lines go: standard output, a file, or a zstd-compressed file.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use rustix::fs::{FileType, Mode, OFlags, fstat, open, readlinkat, stat};
use rustix::io::Errno;

use crate::door::{Held, check_single, other_maker};
use crate::error::AgentError;

/// Links that lead to links: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Opens a file to write it anew; a new one gets `mode`. Root writes where others may, too: its folder is held open,
/// links are followed only if root or this user made them, and no pipe or lease of another user is waited for.
///
/// # Errors
/// It cannot be opened, is another user's link or pipe, or is a file of root that has a second name there.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let held = Held::of(&path)?;
        let mut options = OpenOptions::new();
        options.write(true).mode(mode);
        let flags = |flags: OFlags| flags.bits().cast_signed();
        let new = options.clone().create_new(true).custom_flags(flags(OFlags::NOFOLLOW)).open(held.path());
        if new.as_ref().map_or_else(|error| error.kind() != io::ErrorKind::AlreadyExists, |_| true) {
            return new;
        }
        // Check what is open, not its name: that may lead elsewhere by now.
        let there = open(held.path(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let (about, folder) = (fstat(&there)?, held.folder()?);
        let other = other_maker(&about, &folder).is_some();
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Symlink if other => return refused("it is a link that another user made"),
            // Such as the end of /dev/stdout: it leads to an open file, not to a name.
            FileType::Symlink if stat("/proc/self").is_ok_and(|proc| proc.st_dev == about.st_dev) => {
                return options.truncate(true).open(held.path());
            }
            FileType::Symlink => {
                let target = readlinkat(&there, "", Vec::new())?;
                path = path.parent().unwrap_or(Path::new("")).join(OsStr::from_bytes(target.as_bytes()));
            }
            FileType::Fifo if other => return refused("it is another user's pipe"),
            kind => {
                check_single(&about, &folder)?;
                if kind == FileType::RegularFile {
                    options.custom_flags(flags(OFlags::NONBLOCK));
                }
                return options.truncate(true).open(format!("/proc/self/fd/{}", there.as_raw_fd()));
            }
        }
    }
    Err(Errno::LOOP.into())
}

/// Makes a write beyond `ulimit -f` an error; otherwise a signal ends the process.
///
/// # Panics
/// Never: this signal may be handled.
pub fn survive_file_limits() {
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())
        .expect("a signal that may be handled");
}

/// A line on standard output. A reader that is gone, or a full disk, is an error, where `println!` would panic.
pub fn print_line(text: impl std::fmt::Display) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// The shared end of all sampling loops.
pub struct Output(Mutex<Option<Writer>>);

enum Writer {
    Plain(Box<dyn Write + Send>),
    Zstd(zstd::Encoder<'static, File>),
    /// A write failed: with this error every later one does.
    Broken(io::ErrorKind),
}

impl Output {
    /// Standard output where `path` is None; zstd where it ends in `.zst`. An existing file is overwritten.
    pub fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self(Mutex::new(Some(Writer::Plain(Box::new(io::stdout()))))));
        };
        let file = create(path, 0o600).map_err(|error| AgentError::unwritable(path, error))?;
        let writer = if path.extension().is_some_and(|extension| extension == "zst") {
            Writer::Zstd(zstd::Encoder::new(file, 1)?)
        } else {
            Writer::Plain(Box::new(file))
        };
        Ok(Self(Mutex::new(Some(writer))))
    }

    /// Writes whole lines through to the file, so that a killed sampler loses at most those of its last tick.
    ///
    /// Once a write of any loop failed, this fails for all of them, also with nothing to write: a loop without lines
    /// of its own would never hear of it.
    pub fn write(&self, lines: &[u8]) -> anyhow::Result<()> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match &mut *writer {
            Some(Writer::Plain(file)) => file.write_all(lines).and_then(|()| file.flush()),
            Some(Writer::Zstd(encoder)) => encoder.write_all(lines).and_then(|()| encoder.flush()),
            Some(Writer::Broken(kind)) => Err((*kind).into()),
            // The other loop finished after the end: its line is dropped.
            None => Ok(()),
        };
        if let Err(error) = &result {
            *writer = Some(Writer::Broken(error.kind()));
        }
        result.context("cannot write the samples")
    }

    /// Ends the stream; later writes are dropped.
    pub fn finish(&self) -> anyhow::Result<()> {
        let writer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match writer {
            Some(Writer::Plain(mut file)) => file.flush(),
            Some(Writer::Zstd(encoder)) => encoder.finish().map(drop),
            Some(Writer::Broken(_)) | None => Ok(()),
        }
        .context("cannot end the file of samples")
    }
}

#[cfg(test)]
mod tests {
    use super::{Output, create};
    use std::fs::File;
    use std::io::{self, Read};
    use std::path::Path;

    #[test]
    fn each_write_can_be_decoded_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.zst");
        let output = Output::open(Some(&path)).unwrap();
        output.write(b"one\n").unwrap();
        output.write(b"two\n").unwrap();
        let decoded = |path| {
            let mut text = Vec::new();
            // The error of a stream that is cut off is expected; the text before it must be whole.
            let result =
                zstd::Decoder::new(std::fs::File::open(path).unwrap()).unwrap().read_to_end(&mut text);
            (text, result.is_ok())
        };
        assert_eq!(decoded(&path), (b"one\ntwo\n".to_vec(), false));
        output.finish().unwrap();
        assert_eq!(decoded(&path), (b"one\ntwo\n".to_vec(), true));
        output.write(b"late\n").unwrap();
        assert_eq!(decoded(&path), (b"one\ntwo\n".to_vec(), true));
    }

    #[test]
    fn a_write_that_failed_ends_also_the_loops_that_write_nothing() {
        let output = Output::open(Some(Path::new("/dev/full"))).unwrap();
        output.write(b"").unwrap();
        assert!(output.write(b"one\n").is_err());
        let error = output.write(b"").unwrap_err();
        let error = error.downcast_ref::<io::Error>().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_file_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.jsonl");
        std::fs::write(&path, "of another trial, and longer\n").unwrap();
        Output::open(Some(&path)).unwrap().write(b"new\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
    }

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [victim, planted, own] = ["victim", "planted", "own"].map(|name| folder.path().join(name));
        std::fs::write(&victim, "of the system").unwrap();
        std::os::unix::fs::symlink(&victim, &planted).unwrap();
        std::os::unix::fs::symlink("planted", &own).unwrap();
        Output::open(Some(&own)).unwrap().write(b"ours\n").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "ours\n");
        // Only root can give a link away.
        if std::os::unix::fs::lchown(&planted, Some(65534), None).is_err() {
            return;
        }
        for path in [&planted, &own] {
            let error = create(path, 0o666).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "ours\n");
    }

    #[test]
    fn nothing_of_root_is_written_by_a_name_in_a_folder_of_another_user() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        std::fs::create_dir(at("theirs")).unwrap();
        std::fs::create_dir(at("ours")).unwrap();
        std::fs::write(at("ours/x"), "of the system").unwrap();
        // A folder that became a link, a second name of a file and of a link of root, and a pipe that nobody reads.
        std::os::unix::fs::symlink(at("ours"), at("theirs/way")).unwrap();
        std::fs::hard_link(at("ours/x"), at("theirs/second")).unwrap();
        std::os::unix::fs::symlink(at("ours/x"), at("link")).unwrap();
        std::fs::hard_link(at("link"), at("theirs/link")).unwrap();
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("theirs/pipe"), kind, rustix::fs::Mode::RUSR, 0).unwrap();
        for name in ["theirs", "theirs/way", "theirs/pipe"] {
            // Only root can give them away.
            if std::os::unix::fs::lchown(at(name), Some(65534), None).is_err() {
                return;
            }
        }
        for name in ["theirs/way/x", "theirs/second", "theirs/link", "theirs/pipe"] {
            let error = create(&at(name), 0o666).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}");
            assert!(crate::door::read(&at(name), 99).is_err(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(at("ours/x")).unwrap(), "of the system");
        create(&at("theirs/new"), 0o666).unwrap();
        assert_eq!(std::fs::read_to_string(at("theirs/new")).unwrap(), "");
    }

    #[test]
    fn an_open_file_is_written_to_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("out")).unwrap();
        let link = folder.path().join("link");
        let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        std::os::unix::fs::symlink(name, &link).unwrap();
        Output::open(Some(&link)).unwrap().write(b"text\n").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("out")).unwrap(), "text\n");
    }
}
