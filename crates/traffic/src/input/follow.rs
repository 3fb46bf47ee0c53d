//! A file that is still being written, and that may be renamed, truncated or deleted meanwhile.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use base::door;
use base::stop::StopSignal;

/// How long a reader at the end sleeps before it looks again.
const PAUSE_MS: i64 = 100;
/// How many of the last bytes read are kept, to know a file again that was truncated and has grown since.
const TAIL_BYTES: usize = 256;
/// What a pipe may hold that was written before the signal.
const PIPE_BYTES: usize = 1 << 20;

pub(super) struct FollowedFile {
    path: PathBuf,
    file: File,
    position: u64,
    /// The last bytes read of this file.
    tail: Vec<u8>,
    stop: StopSignal,
    /// Once asked to stop: where reading ends, which is how long the file was then.
    end: Option<u64>,
}

impl FollowedFile {
    pub(super) fn open(path: &Path, stop: StopSignal) -> io::Result<Self> {
        let file = door::open(path, false)?;
        Ok(Self { path: path.to_owned(), file, position: 0, tail: Vec::new(), stop, end: None })
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.position));
            let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = match self.file.read_at(&mut buffer[..room], self.position) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if count > 0 || buffer.is_empty() {
                // Truncated since it was looked at, and longer than before by now: this is the middle of something else.
                if !self.is_same()? {
                    self.begin(None);
                    continue;
                }
                self.position += count as u64;
                self.remember(&buffer[..count]);
                return Ok(count);
            }
            if self.end.is_some() {
                return Ok(0);
            }
            let is_last = pause(&self.stop)?;
            self.look_again()?;
            if is_last {
                self.end = Some(self.file.metadata()?.len().max(self.position));
            }
        }
    }

    fn remember(&mut self, bytes: &[u8]) {
        if bytes.len() >= TAIL_BYTES {
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[bytes.len() - TAIL_BYTES..]);
        } else {
            let surplus = (self.tail.len() + bytes.len()).saturating_sub(TAIL_BYTES);
            self.tail.drain(..surplus);
            self.tail.extend_from_slice(bytes);
        }
    }

    /// At the end of the file: is it still the one that is written?
    fn look_again(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        if own.len() < self.position || !self.is_same()? {
            self.begin(None);
            return Ok(());
        }
        // A server keeps writing to a renamed file until it is told to open its logs again. Once the new file has
        // something in it, the old one is complete.
        let Ok(new) = std::fs::metadata(&self.path) else { return Ok(()) };
        if (new.dev(), new.ino()) == (own.dev(), own.ino()) || new.len() == 0 {
            return Ok(());
        }
        if self.file.metadata()?.len() > self.position {
            return Ok(());
        }
        if let Ok(file) = door::open(&self.path, false) {
            self.begin(Some(file));
        }
        Ok(())
    }

    fn begin(&mut self, file: Option<File>) {
        if let Some(file) = file {
            self.file = file;
        }
        self.position = 0;
        self.tail.clear();
    }

    fn is_same(&self) -> io::Result<bool> {
        let mut now = vec![0; self.tail.len()];
        let from = self.position - self.tail.len() as u64;
        match self.file.read_exact_at(&mut now, from) {
            Ok(()) => Ok(now == self.tail),
            // Truncated between two looks.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A pipe of a program that writes as things happen.
pub(super) struct FollowedPipe {
    file: File,
    stop: StopSignal,
    /// Once asked to stop: how much may still be read.
    left: Option<usize>,
}

impl FollowedPipe {
    pub(super) fn new(file: File, stop: StopSignal) -> Self {
        Self { file, stop, left: None }
    }
}

impl Read for FollowedPipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut files = [
                PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            ];
            match poll(&mut files, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let is_readable = !files[0].revents().is_empty();
            if !files[1].revents().is_empty() {
                let left = self.left.get_or_insert(PIPE_BYTES);
                if !is_readable || *left == 0 {
                    return Ok(0);
                }
                let room = buffer.len().min(*left);
                let count = self.file.read(&mut buffer[..room])?;
                *left -= count;
                return Ok(count);
            }
            if is_readable {
                return self.file.read(buffer);
            }
        }
    }
}

/// True when asked to stop.
fn pause(stop: &StopSignal) -> io::Result<bool> {
    let mut files = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: PAUSE_MS * 1_000_000 };
    match poll(&mut files, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
