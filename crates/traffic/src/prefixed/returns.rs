//! Ends of lines that are none of Unix or of Windows.

use std::io::{self, Read};

use memchr::{memchr, memmem};

/// What a text has for the end of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ends {
    #[default]
    Usual,
    /// `\r` alone.
    Returns,
    /// `\r\r\n`: what had `\r\n` was written as text once more.
    Doubled,
}

impl Ends {
    pub(super) fn of(head: &[u8]) -> Self {
        let first = memchr(b'\n', head).map_or(head, |end| &head[..=end]);
        if first.ends_with(b"\r\r\n") {
            return Ends::Doubled;
        }
        let inner = crate::pieces::without_return(first.strip_suffix(b"\n").unwrap_or(first));
        let is_one_line =
            first.len() == head.len() && !first.ends_with(b"\n") && memchr(b'\r', inner).is_some();
        if is_one_line || memmem::find(inner, b"\r# ").is_some() { Ends::Returns } else { Ends::Usual }
    }

    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Ends::Usual => None,
            Ends::Returns => Some("\\r for ends of lines"),
            Ends::Doubled => Some("\\r\\r\\n for ends of lines"),
        }
    }

    /// A text with the usual ends.
    pub(super) fn restored(self, text: &[u8]) -> Vec<u8> {
        let mut restored = Restored::new(text, self);
        let mut out = Vec::new();
        // Reading from memory does not fail.
        let _ = restored.read_to_end(&mut out);
        out
    }
}

/// Gives the usual ends of lines.
pub(super) struct Restored<R> {
    input: R,
    ends: Ends,
    /// A `\r`, of which the next byte tells what becomes.
    is_held: bool,
    /// Bytes of the input that were not given.
    pub(super) dropped: u64,
    raw: Vec<u8>,
    text: Vec<u8>,
    given: usize,
}

const PIECE_BYTES: usize = 64 << 10;

impl<R: Read> Restored<R> {
    pub(super) fn new(input: R, ends: Ends) -> Self {
        let raw = if ends == Ends::Usual { Vec::new() } else { vec![0; PIECE_BYTES] };
        Self { input, ends, is_held: false, dropped: 0, raw, text: Vec::new(), given: 0 }
    }

    /// Reads on; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let count = self.input.read(&mut self.raw)?;
        (self.text, self.given) = (std::mem::take(&mut self.text), 0);
        self.text.clear();
        for byte in &self.raw[..count] {
            if std::mem::take(&mut self.is_held) {
                match (self.ends, byte) {
                    // Of the usual end, and of two returns, the first is left out.
                    (_, b'\n') | (Ends::Doubled, b'\r') => self.dropped += 1,
                    (Ends::Returns, _) => self.text.push(b'\n'),
                    _ => self.text.push(b'\r'),
                }
            }
            if *byte == b'\r' {
                self.is_held = true;
            } else {
                self.text.push(*byte);
            }
        }
        if count == 0 && std::mem::take(&mut self.is_held) {
            self.text.push(if self.ends == Ends::Returns { b'\n' } else { b'\r' });
        }
        Ok(count > 0)
    }
}

impl<R: Read> Read for Restored<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ends == Ends::Usual {
            return self.input.read(buffer);
        }
        while self.given == self.text.len() {
            if !self.fill()? && self.text.is_empty() {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.text.len() - self.given);
        buffer[..count].copy_from_slice(&self.text[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_lines_are_told_and_put_back() {
        for (text, ends, restored) in [
            ("# Time: 1\r# User\rx\r", Ends::Returns, "# Time: 1\n# User\nx\n"),
            ("# Time: 1\r# User\rx\r\ny\n", Ends::Returns, "# Time: 1\n# User\nx\ny\n"),
            ("a\r\r\nb\r\r\n\r\r\n", Ends::Doubled, "a\nb\n\n"),
            ("a\r\nb\rc\n", Ends::Usual, "a\r\nb\rc\n"),
            ("a\nb\r\r\n", Ends::Usual, "a\nb\r\r\n"),
        ] {
            assert_eq!(Ends::of(text.as_bytes()), ends, "{text:?}");
            assert_eq!(ends.restored(text.as_bytes()), restored.as_bytes(), "{text:?}");
        }
    }
}
