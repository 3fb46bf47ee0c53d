//! The input of a reader of records, a byte at a time, with its place.

use std::io::{self, Read};

use memchr::{memchr, memchr_iter};

use crate::input::is_damage;
use crate::pieces::BYTE_ORDER_MARK;

const BUFFER_BYTES: usize = 256 << 10;

pub(super) struct Bytes<R> {
    input: R,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Of the first byte of the buffer.
    offset: u64,
    /// How many lines end before `counted` in the buffer.
    lines: u64,
    counted: usize,
    is_ended: bool,
    /// The input is damaged from its end on.
    pub(super) problem: Option<String>,
}

impl<R: Read> Bytes<R> {
    pub(super) fn new(input: R) -> Self {
        Self::with_buffer(input, BUFFER_BYTES)
    }

    /// For small inputs of which there are many.
    pub(super) fn with_buffer(input: R, bytes: usize) -> Self {
        let buffer = vec![0; bytes];
        Self {
            input,
            buffer,
            from: 0,
            to: 0,
            offset: 0,
            lines: 0,
            counted: 0,
            is_ended: false,
            problem: None,
        }
    }

    /// Skips what editors put at the beginning of text.
    pub(super) fn skip_mark(&mut self) -> io::Result<()> {
        if self.peek()? == Some(BYTE_ORDER_MARK[0]) && self.ahead().starts_with(BYTE_ORDER_MARK) {
            self.from += BYTE_ORDER_MARK.len();
        }
        Ok(())
    }

    /// What was read and not taken yet; not empty after [`Bytes::peek`] gave a byte.
    #[inline]
    pub(super) fn ahead(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize) {
        self.from += count;
    }

    /// The next byte; `None` at the end.
    #[inline]
    pub(super) fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.from == self.to && !self.fill()? {
            return Ok(None);
        }
        Ok(Some(self.buffer[self.from]))
    }

    #[inline]
    pub(super) fn next(&mut self) -> io::Result<Option<u8>> {
        let byte = self.peek()?;
        self.from += usize::from(byte.is_some());
        Ok(byte)
    }

    /// Reads the next line into `line`, without its end and what is beyond `most` bytes. Whether there was more than that;
    /// `None` at the end of the input.
    pub(super) fn read_line(&mut self, line: &mut Vec<u8>, most: usize) -> io::Result<Option<bool>> {
        line.clear();
        let mut is_cut = None;
        while self.peek()?.is_some() {
            let ahead = self.ahead();
            let end = memchr(b'\n', ahead);
            let text = &ahead[..end.unwrap_or(ahead.len())];
            let room = most.saturating_sub(line.len());
            is_cut = Some(is_cut == Some(true) || text.len() > room);
            line.extend_from_slice(&text[..text.len().min(room)]);
            let length = text.len() + usize::from(end.is_some());
            self.take(length);
            if end.is_some() {
                break;
            }
        }
        Ok(is_cut)
    }

    #[cold]
    fn fill(&mut self) -> io::Result<bool> {
        if self.is_ended {
            return Ok(false);
        }
        self.line();
        self.offset += self.to as u64;
        (self.from, self.to, self.counted) = (0, 0, 0);
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(count) => {
                    self.to = count;
                    self.is_ended = count == 0;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_damage(&error) => {
                    self.problem = Some(error.to_string());
                    self.is_ended = true;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the next byte has to be read, which may take as long as whoever writes it.
    pub(super) fn is_drained(&self) -> bool {
        self.from == self.to
    }

    /// Bytes before the next one.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.from as u64
    }

    /// The line of the next byte, counted from 1.
    pub(super) fn line(&mut self) -> u64 {
        self.lines += memchr_iter(b'\n', &self.buffer[self.counted..self.from]).count() as u64;
        self.counted = self.from;
        self.lines + 1
    }
}
