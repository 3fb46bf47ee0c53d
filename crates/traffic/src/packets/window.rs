//! A window over an input: whole records are looked at where they lie, and read as they come.

use std::io::{ErrorKind, Read};

const FIRST_CAPACITY: usize = 1 << 20;
static ZEROS: [u8; 4096] = [0; 4096];

pub struct Window<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the input of what `start` points at.
    offset: u64,
    is_ended: bool,
}

impl<R: Read> Window<R> {
    pub fn new(input: R) -> Self {
        Self { input, buffer: vec![0; FIRST_CAPACITY], start: 0, end: 0, offset: 0, is_ended: false }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What is there now.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Waits until `count` bytes are there; false when the input ended before. Reads no more than comes at once,
    /// so that what a pipe brings is handed on while it is new.
    pub fn fill(&mut self, count: usize) -> std::io::Result<bool> {
        while self.end - self.start < count {
            if self.is_ended {
                return Ok(false);
            }
            if self.start + count > self.buffer.len() || self.end == self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            if self.end == self.buffer.len() {
                // Doubled only when it is full of real bytes: a length in a record proves nothing.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Passes over zeros, as in the holes of a sparse file, but for the last few: what follows may begin with some.
    /// How many were passed.
    pub fn skip_zeros(&mut self) -> std::io::Result<u64> {
        let begun = self.offset;
        loop {
            let bytes = self.bytes();
            let zeros_of = |bytes: &[u8], size: usize| {
                bytes.chunks_exact(size).take_while(|chunk| **chunk == ZEROS[..size]).count() * size
            };
            let pages = zeros_of(bytes, ZEROS.len());
            let zeros = pages + zeros_of(&bytes[pages..], 16);
            let is_all = bytes.len() - zeros < 16;
            self.consume(zeros.saturating_sub(16));
            if !is_all || !self.fill(self.end - self.start + 1)? {
                return Ok(self.offset - begun);
            }
        }
    }

    /// Passes over bytes without keeping them; how many there were.
    pub fn skip(&mut self, count: u64) -> std::io::Result<u64> {
        let mut left = count;
        while left > 0 {
            let now = left.min((self.end - self.start) as u64);
            self.consume(now as usize);
            left -= now;
            if left > 0 && !self.fill(1)? {
                break;
            }
        }
        Ok(count - left)
    }
}
