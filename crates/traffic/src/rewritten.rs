//! Input whose bytes change on their way in: another encoding, other ends of lines, what a shipper wrote around documents.

use std::io::{self, Read};

const PIECE_BYTES: usize = 64 << 10;

/// How bytes change.
pub(crate) trait Rewrite {
    /// Takes a piece of the input, which is empty at its end, and appends what it becomes.
    ///
    /// # Errors
    /// `InvalidData` if the input ends where it must not.
    fn take(&mut self, piece: &[u8], out: &mut Vec<u8>) -> io::Result<()>;

    /// Nothing changes.
    fn is_nothing(&self) -> bool {
        false
    }
}

/// Gives what `W` makes of an input.
pub(crate) struct Rewritten<R, W> {
    input: R,
    pub(crate) rewrite: W,
    raw: Vec<u8>,
    text: Vec<u8>,
    given: usize,
}

impl<R: Read, W: Rewrite> Rewritten<R, W> {
    pub(crate) fn new(input: R, rewrite: W) -> Self {
        let raw = if rewrite.is_nothing() { Vec::new() } else { vec![0; PIECE_BYTES] };
        Self { input, rewrite, raw, text: Vec::new(), given: 0 }
    }

    /// Reads on; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let count = self.input.read(&mut self.raw)?;
        self.text.clear();
        self.given = 0;
        self.rewrite.take(&self.raw[..count], &mut self.text)?;
        Ok(count > 0)
    }
}

impl<R: Read, W: Rewrite> Read for Rewritten<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rewrite.is_nothing() {
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

/// Gives out what it has in pieces of a few bytes, as a pipe may.
#[cfg(any(test, fuzzing))]
pub(crate) struct InPieces<'a>(pub(crate) &'a [u8], pub(crate) usize);

#[cfg(any(test, fuzzing))]
impl Read for InPieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(buffer.len()).min(self.0.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}
