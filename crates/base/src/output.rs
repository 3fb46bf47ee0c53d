//! Where the lines go: standard output, a file, or a zstd-compressed file.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use rustix::fs::{Mode, OFlags, fstat, open, readlinkat, stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::AgentError;

/// Links that lead to links: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Opens a file to write it anew; a new one gets `mode`. Links are followed only if root or this user made them: root
/// writes where others may, too, and a planted link must not lead to a file of the system.
///
/// # Errors
/// It cannot be opened, or is a link that another user made.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let options = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode).custom_flags(flags.bits().cast_signed());
        options
    };
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match options(OFlags::NOFOLLOW).open(&path) {
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {}
            opened => return opened,
        }
        // Check the open link itself: its name may lead elsewhere by now.
        let link = open(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let about = fstat(&link)?;
        if about.st_uid != 0 && about.st_uid != geteuid().as_raw() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is a link that another user made",
            ));
        }
        // Such as the end of /dev/stdout: it leads to an open file, not to a name.
        if stat("/proc/self").is_ok_and(|proc| proc.st_dev == about.st_dev) {
            return options(OFlags::empty()).open(&path);
        }
        let target = readlinkat(&link, "", Vec::new())?;
        path = path.parent().unwrap_or(Path::new("")).join(OsStr::from_bytes(target.as_bytes()));
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
