//! Logs read in pieces: what a parser cannot take yet stays in the buffer.

use std::io::{self, Read};

use memchr::{memmem, memrchr};

use super::event::Sink;
use super::input::is_damage;

/// Takes a log piece by piece.
pub(super) trait Pieces {
    /// Takes what it can of `bytes`, which begin where the last piece was left. Gives how much that was.
    fn feed(&mut self, bytes: &[u8], at_end: bool, sink: &mut impl Sink) -> anyhow::Result<usize>;
    fn is_finished(&self) -> bool;
    /// The input is damaged from here on.
    fn input_ended_early(&mut self, problem: &str);
}

/// What editors put at the beginning of a text.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Where a line ends that is probably short: what every processor of this kind has, in line, beats a call of the widest
/// search.
#[inline(always)]
pub(super) fn line_end(text: &[u8]) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if let Some(search) = memchr::arch::x86_64::sse2::memchr::One::new(b'\n') {
        return search.find(text);
    }
    memchr::memchr(b'\n', text)
}

/// What was read and not yet taken.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl Buffer {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], from: 0, to: 0 }
    }

    pub(super) fn clear(&mut self) {
        (self.from, self.to) = (0, 0);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Reads once; 0 at the end. An event that does not fit makes more room.
    fn read(&mut self, input: &mut impl Read) -> io::Result<usize> {
        if self.to == self.bytes.len() {
            self.bytes.copy_within(self.from.., 0);
            self.to -= self.from;
            self.from = 0;
            if self.to > self.bytes.len() / 2 {
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
        loop {
            match input.read(&mut self.bytes[self.to..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => {
                    let count = other?;
                    self.to += count;
                    return Ok(count);
                }
            }
        }
    }

    /// Reads until it is full or the input ends.
    pub(super) fn fill(&mut self, input: &mut impl Read) -> io::Result<()> {
        while self.to < self.bytes.len() && self.read(input)? > 0 {}
        Ok(())
    }
}

/// Feeds a parser with what the buffer holds and the input gives, until that ends or the parser has enough.
pub(super) fn drive(
    mut input: impl Read,
    buffer: &mut Buffer,
    parser: &mut impl Pieces,
    sink: &mut impl Sink,
) -> anyhow::Result<()> {
    let mut at_end = false;
    loop {
        buffer.from += parser.feed(buffer.bytes(), at_end, sink)?;
        if at_end || parser.is_finished() {
            return Ok(());
        }
        match buffer.read(&mut input) {
            Ok(count) => at_end = count == 0,
            Err(error) if is_damage(&error) => {
                buffer.from += parser.feed(buffer.bytes(), true, sink)?;
                parser.input_ended_early(&error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Lines of a banner are not longer.
pub(super) const LINE_BYTES: usize = 4096;

/// The text without the banners at its end: the lines that a server writes when it opens a log. Empty lines behind one are
/// somebody's.
pub(super) fn without_banners(mut text: &[u8]) -> &[u8] {
    while without_blanks(text).ends_with(b"Argument") {
        let shorter = without_banner(text);
        if shorter.len() == text.len() {
            break;
        }
        text = shorter;
    }
    text
}

/// The lines of a banner, the last one first.
const BANNER: [fn(&[u8]) -> bool; 3] = [
    |line| line.starts_with(b"Time") && line.ends_with(b"Argument"),
    |line| line.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"tcp port:")),
    |line| {
        memmem::find(line, b", Version: ").is_some()
            && (line.ends_with(b"started with:") || line.ends_with(b"embedded library"))
    },
];

/// Whether a line, without its end, is one of a banner.
pub(super) fn is_of_banner(line: &[u8]) -> bool {
    BANNER.iter().any(|check| check(line))
}

/// "…, Version: … started with:", "Tcp port: …", "Time … Argument".
pub(super) fn without_banner(text: &[u8]) -> &[u8] {
    let mut left = without_blanks(text);
    for check in BANNER {
        match last_line(left) {
            Some((before, line)) if check(line) => left = before,
            _ => return text,
        }
    }
    left
}

/// The text without empty lines at its end, as far as these are looked at.
fn without_blanks(text: &[u8]) -> &[u8] {
    let from = text.len().saturating_sub(LINE_BYTES);
    &text[..from + text[from..].trim_ascii_end().len()]
}

/// What is before the last line, and that line without its end.
fn last_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if text.is_empty() {
        return None;
    }
    let inner = text.strip_suffix(b"\n").unwrap_or(text);
    let window = inner.len().saturating_sub(LINE_BYTES);
    let from = window + memrchr(b'\n', &inner[window..]).map_or(0, |at| at + 1);
    Some((&text[..from], without_return(&inner[from..])))
}

pub(super) fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
