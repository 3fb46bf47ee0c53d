//! Records of `journalctl -o export`: a field a line, `NAME=value`; a value that is no plain text stands behind its length.
//! An empty line ends a record.

use std::io::{self, Read};

use memchr::memchr;

use super::bytes::Bytes;
use super::record::{Next, Record, Value};
use crate::slow_log::MAX_EVENT_BYTES;

/// How each record begins.
const BEGIN: &[u8] = b"__CURSOR=";

pub(super) fn is_journal(head: &[u8]) -> bool {
    head.starts_with(BEGIN)
}

pub(super) struct JournalRecords<R> {
    pub(super) bytes: Bytes<R>,
    line: Vec<u8>,
    value: Vec<u8>,
}

impl<R: Read> JournalRecords<R> {
    pub(super) fn new(bytes: Bytes<R>) -> Self {
        Self { bytes, line: Vec::new(), value: Vec::new() }
    }

    pub(super) fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        record.clear();
        let mut is_any = false;
        while self.read_line(record)? {
            if self.line.is_empty() {
                if is_any {
                    return Ok(Next::Record);
                }
                continue;
            }
            is_any = true;
            match memchr(b'=', &self.line) {
                Some(end) => record.push(&self.line[..end], Value::Text(&self.line[end + 1..])),
                None if !is_name(&self.line) => {
                    self.recover(record)?;
                    return Ok(Next::Broken("a line that is no field of a journal"));
                }
                None if self.read_value(record)? => record.push(&self.line, Value::Text(&self.value)),
                None => return Ok(Next::Broken("a record that is cut off")),
            }
        }
        Ok(if is_any { Next::Record } else { Next::End })
    }

    /// Reads the next line without its end; false at the end of the input.
    fn read_line(&mut self, record: &mut Record) -> io::Result<bool> {
        let is_cut = self.bytes.read_line(&mut self.line, MAX_EVENT_BYTES)?;
        record.is_cut |= is_cut == Some(true);
        Ok(is_cut.is_some())
    }

    /// Reads a value behind its length; false where the input ends before.
    fn read_value(&mut self, record: &mut Record) -> io::Result<bool> {
        let mut length = [0; 8];
        for byte in &mut length {
            let Some(next) = self.bytes.next()? else { return Ok(false) };
            *byte = next;
        }
        let mut left = u64::from_le_bytes(length);
        self.value.clear();
        while left > 0 {
            if self.bytes.peek()?.is_none() {
                return Ok(false);
            }
            let ahead = self.bytes.ahead();
            let count = ahead.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let room = MAX_EVENT_BYTES.saturating_sub(self.value.len());
            record.is_cut |= count > room;
            self.value.extend_from_slice(&ahead[..count.min(room)]);
            self.bytes.take(count);
            left -= count as u64;
        }
        // The end of line behind it.
        Ok(self.bytes.next()?.is_some())
    }

    /// Goes on behind the next empty line.
    fn recover(&mut self, record: &mut Record) -> io::Result<()> {
        while self.read_line(record)? && !self.line.is_empty() {}
        Ok(())
    }
}

fn is_name(line: &[u8]) -> bool {
    line.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
}
