//! Where traffic is read from: files, compressed or not, standard input, and files that are still being written.

mod follow;
#[cfg(fuzzing)]
pub mod fuzzing;
mod wide;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;

use self::follow::{FollowedFile, FollowedPipe};
use self::wide::Wide;
use crate::rewritten::Rewritten;
use base::door;
use base::error::AgentError;
use base::stop::StopSignal;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A zstd file may begin with a frame that is not data; these are the last three bytes of its magic.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
const MAGIC_BYTES: usize = 4;
/// What a file begins with that is not read here, what that is, and the command that makes it readable.
const OTHERS: [(&[u8], &str, &str); 6] = [
    (&[0xfd, b'7', b'z', b'X'], "compressed with xz", "xz -dc"),
    (b"BZh", "compressed with bzip2", "bzip2 -dc"),
    (&[0x04, 0x22, 0x4d, 0x18], "compressed with lz4", "lz4 -dc"),
    (b"PK\x03\x04", "a zip archive", "unzip -p"),
    (&[0xff, 0xfe, 0, 0], "UTF-32 text", "iconv -f UTF-32 -t UTF-8"),
    (&[0, 0, 0xfe, 0xff], "UTF-32 text", "iconv -f UTF-32 -t UTF-8"),
];

/// Bytes after decompression. Compressed files may have several members or frames, one after the other.
///
/// A damaged file gives what can be read and then an error of which [`is_damage`] is true.
pub struct Input {
    name: String,
    source: Source,
}

enum Source {
    Plain(Start),
    /// What a decoder gives.
    Decoded(Start),
    /// Text of UTF-16, as PowerShell's `>` writes it, compressed or not.
    Wide(Box<Rewritten<BufReader<Start>, Wide>>),
    File(FollowedFile),
}

/// A file whose first bytes were looked at already.
struct Start {
    magic: [u8; MAGIC_BYTES],
    /// How many of them there are, and how many were given.
    length: usize,
    given: usize,
    /// Compressed data that is damaged before there is a first byte, or soon after: given once what is before it was.
    problem: Option<io::Error>,
    rest: Box<dyn Read + Send>,
}

/// What a decoder gives, with errors that name the format.
struct Decoded<D>(&'static str, D);

impl<D: Read> Read for Decoded<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1.read(buffer).map_err(|error| damage(self.0, &error))
    }
}

/// Opens a file, or standard input for `-`. `follow` waits for more at its end, until SIGTERM, SIGINT or SIGHUP,
/// through rotation (renamed, copied and truncated, or deleted); from a pipe it only ends early when asked to.
///
/// # Errors
/// The file cannot be opened or read, or is compressed and to be followed.
pub fn open(path: &Path, follow: bool) -> anyhow::Result<Input> {
    let stop = if follow { Some(StopSignal::install()?) } else { None };
    open_until(path, stop)
}

fn open_until(path: &Path, stop: Option<StopSignal>) -> anyhow::Result<Input> {
    let is_standard_input = path == Path::new("-");
    let name = if is_standard_input { "standard input".to_owned() } else { path.display().to_string() };
    let source = source(path, is_standard_input, stop).with_context(|| name.clone())?;
    Ok(Input { name, source })
}

fn source(path: &Path, is_standard_input: bool, stop: Option<StopSignal>) -> anyhow::Result<Source> {
    let file = if is_standard_input {
        // Not `Stdin`: its buffer would hide from `poll` what was read ahead.
        File::from(io::stdin().as_fd().try_clone_to_owned()?)
    } else {
        open_file(path)?
    };
    let Some(stop) = stop else { return of_file(file) };
    if is_standard_input || !file.metadata()?.is_file() {
        return decompress(Start::of(Box::new(FollowedPipe::new(file, stop)))?);
    }
    if !matches!(of_file(file)?, Source::Plain(_)) {
        bail!(AgentError::Named("a compressed file, or one of UTF-16, cannot be followed".to_owned()));
    }
    Ok(Source::File(FollowedFile::open(path, stop)?))
}

/// The caller named the file: if it cannot be opened or is a directory, the caller was wrong.
fn open_file(path: &Path) -> Result<File, AgentError> {
    door::open(path, true).map_err(unreadable)
}

#[allow(clippy::needless_pass_by_value)]
fn unreadable(error: io::Error) -> AgentError {
    AgentError::Named(error.to_string())
}

/// Whether a file is a plain one: no pipe, no device, not compressed. Only such a file can be read in parts.
///
/// # Errors
/// It cannot be opened or read.
pub fn is_plain(path: &Path) -> anyhow::Result<bool> {
    if path == Path::new("-") {
        return Ok(false);
    }
    // A pipe must not be opened: its writer would find it closed.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Ok(false);
    }
    Ok(matches!(of_file(open_file(path)?)?, Source::Plain(_)))
}

/// Whether reading failed because of what is in the file, not because it could not be read.
#[must_use]
pub fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

impl Input {
    /// What people know it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.source {
            Source::Plain(start) | Source::Decoded(start) => start.read(buffer),
            Source::Wide(text) => text.read(buffer),
            Source::File(file) => file.read(buffer),
        }
    }
}

/// Decoders name their errors in several ways; those of the file beneath have a number of the system.
fn damage(format: &str, error: &io::Error) -> io::Error {
    if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Interrupted {
        return io::Error::new(error.kind(), error.to_string());
    }
    io::Error::new(io::ErrorKind::InvalidData, format!("the {format} data is damaged or cut off: {error}"))
}

/// What begins as text may have lines of UTF-16.
fn of_file(file: File) -> anyhow::Result<Source> {
    let is_mixed = wide::is_in(&file);
    Ok(match decompress(Start::of(Box::new(file))?)? {
        Source::Plain(start) if is_mixed && start.is_text() => {
            Source::Wide(Box::new(Rewritten::new(BufReader::new(start), Wide::new(None))))
        }
        source => source,
    })
}

fn decompress(start: Start) -> anyhow::Result<Source> {
    if let Some((what, how)) = start.other() {
        bail!(AgentError::Named(format!("this is {what}: run `{how}` on it first, or pipe that into -")));
    }
    let decoded: Box<dyn Read + Send> = if start.is_gzip() {
        Box::new(Decoded("gzip", MultiGzDecoder::new(BufReader::new(start))))
    } else if start.is_zstd() {
        Box::new(Decoded("zstd", zstd::Decoder::with_buffer(BufReader::new(start))?))
    } else {
        return Ok(text(start, Source::Plain));
    };
    // What was compressed may be UTF-16 or something that is not read, as a file of its own may.
    let inner = Start::of(decoded)?;
    if let Some((what, how)) = inner.other() {
        let reason =
            format!("what is compressed here is {what}: unpack it, run `{how}` on that, and pipe it into -");
        bail!(AgentError::Named(reason));
    }
    Ok(text(inner, Source::Decoded))
}

/// Text of UTF-16, or bytes as they are.
fn text(start: Start, plain: fn(Start) -> Source) -> Source {
    match wide::order(&start.magic[..start.length]) {
        Some(order) => Source::Wide(Box::new(Rewritten::new(BufReader::new(start), Wide::new(Some(order))))),
        None => plain(start),
    }
}

impl Start {
    fn of(mut rest: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut magic = [0; MAGIC_BYTES];
        let mut length = 0;
        let mut problem = None;
        while length < MAGIC_BYTES {
            match rest.read(&mut magic[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_damage(&error) => {
                    problem = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self { magic, length, given: 0, problem, rest })
    }

    /// What this is that is not read, and the command that makes it readable.
    fn other(&self) -> Option<(&'static str, &'static str)> {
        let begins = |magic: &[u8]| self.magic[..self.length].starts_with(magic);
        OTHERS.iter().find(|(magic, ..)| begins(magic)).map(|(_, what, how)| (*what, *how))
    }

    fn is_text(&self) -> bool {
        let begin = &self.magic[..self.length];
        begin == b"\xef\xbb\xbf#"
            || begin.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~'))
    }

    fn is_gzip(&self) -> bool {
        self.magic[..self.length].starts_with(&GZIP)
    }

    fn is_zstd(&self) -> bool {
        let skippable = self.magic[0] & 0xf0 == 0x50 && self.magic[1..] == ZSTD_SKIPPABLE;
        self.length == MAGIC_BYTES && (self.magic == ZSTD || skippable)
    }
}

impl Read for Start {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.length {
            if let Some(problem) = self.problem.take() {
                return Err(problem);
            }
            return self.rest.read(buffer);
        }
        let count = (self.length - self.given).min(buffer.len());
        buffer[..count].copy_from_slice(&self.magic[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
