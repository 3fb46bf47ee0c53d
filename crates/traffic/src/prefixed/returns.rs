//! Ends of lines that are none of Unix or of Windows.

use std::io;

use memchr::{memchr, memmem};

use crate::rewritten::Rewrite;

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
        if self == Ends::Usual {
            return text.to_vec();
        }
        let mut restored = Restored::new(self);
        let mut out = Vec::new();
        restored.put(text, &mut out);
        restored.put(b"", &mut out);
        out
    }
}

/// Gives the usual ends of lines.
pub(super) struct Restored {
    ends: Ends,
    /// A `\r`, of which the next byte tells what becomes.
    is_held: bool,
    /// Bytes of the input that were not given.
    pub(super) dropped: u64,
}

impl Restored {
    pub(super) fn new(ends: Ends) -> Self {
        Self { ends, is_held: false, dropped: 0 }
    }

    /// Appends what a piece becomes; the last one is empty.
    fn put(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        for byte in piece {
            if std::mem::take(&mut self.is_held) {
                match (self.ends, byte) {
                    // Of the usual end, and of two returns, the first is left out.
                    (_, b'\n') | (Ends::Doubled, b'\r') => self.dropped += 1,
                    (Ends::Returns, _) => out.push(b'\n'),
                    _ => out.push(b'\r'),
                }
            }
            if *byte == b'\r' {
                self.is_held = true;
            } else {
                out.push(*byte);
            }
        }
        if piece.is_empty() && std::mem::take(&mut self.is_held) {
            out.push(if self.ends == Ends::Returns { b'\n' } else { b'\r' });
        }
    }
}

impl Rewrite for Restored {
    fn take(&mut self, piece: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.put(piece, out);
        Ok(())
    }

    fn is_nothing(&self) -> bool {
        self.ends == Ends::Usual
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
