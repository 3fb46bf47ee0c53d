//! Lines of text of any length.

use std::io::Read;

use memchr::memchr;

use crate::input::is_damage;

/// Longer lines and statements are cut.
pub const MOST_BYTES: usize = 16 << 20;

/// Lines of any length, of which the beginning is kept.
pub struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    pub line: Vec<u8>,
    pub is_cut: bool,
    /// Behind the line.
    pub offset: u64,
    pub problem: Option<String>,
}

impl<R: Read> Lines<R> {
    pub fn new(input: R) -> Self {
        let (buffer, line) = (vec![0; 256 << 10], Vec::new());
        Self { input, buffer, from: 0, to: 0, line, is_cut: false, offset: 0, problem: None }
    }

    /// Reads the next line; false at the end.
    pub fn next(&mut self) -> anyhow::Result<bool> {
        self.line.clear();
        self.is_cut = false;
        loop {
            let there = &self.buffer[self.from..self.to];
            let end = memchr(b'\n', there);
            let taken = end.map_or(there.len(), |end| end + 1);
            let room = MOST_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&there[..end.unwrap_or(taken).min(room)]);
            self.is_cut |= end.unwrap_or(taken) > room;
            self.from += taken;
            self.offset += taken as u64;
            if end.is_some() {
                break;
            }
            (self.from, self.to) = (0, 0);
            match self.input.read(&mut self.buffer) {
                Ok(0) => return Ok(!self.line.is_empty()),
                Ok(read) => self.to = read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if is_damage(&error) => {
                    self.problem = Some(error.to_string());
                    return Ok(!self.line.is_empty());
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.line.ends_with(b"\r") {
            self.line.pop();
        }
        Ok(true)
    }
}
