//! A window over an input: whole records are looked at where they lie, and read as they come.

use std::io::{ErrorKind, Read};

const FIRST_CAPACITY: usize = 1 << 20;

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

    /// Skips zeros, as in the holes of a sparse file; true if any other byte follows.
    pub fn skip_zeros(&mut self) -> std::io::Result<bool> {
        loop {
            let bytes = self.bytes();
            let words =
                bytes.chunks_exact(64).take_while(|chunk| chunk.iter().fold(0, |a, b| a | b) == 0).count();
            let rest = &bytes[words * 64..];
            let zeros = words * 64 + rest.iter().take_while(|&&byte| byte == 0).count();
            let is_all = zeros == bytes.len();
            self.consume(zeros);
            if !is_all {
                return Ok(true);
            }
            if !self.fill(1)? {
                return Ok(false);
            }
        }
    }
}
