//! Documents of JSON, one in each line, behind what a shipper writes before them: fluentd's time and tag, a container's name,
//! syslog's host and program. What names the origin becomes a member of its document.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use crate::slow_log::time;

/// What is before a document is not longer.
const PREFIX_BYTES: usize = 512;
const PIECE_BYTES: usize = 64 << 10;
/// The member that names the origin.
pub(super) const TAG: &str = "@tag";

/// Where a document may begin in a line.
pub(super) fn places(line: &[u8]) -> impl Iterator<Item = usize> {
    let window = &line[..line.len().min(PREFIX_BYTES)];
    memchr::memchr_iter(b'{', window).filter(|at| *at > 0 && begins(&window[..*at]))
}

fn begins(prefix: &[u8]) -> bool {
    prefix.last().is_some_and(|last| matches!(last, b' ' | b'\t'))
}

/// What is left of a prefix without its times: who wrote the line.
fn origin(prefix: &[u8]) -> Vec<u8> {
    const MONTHS: &[u8] = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec";
    let mut out = Vec::new();
    for word in prefix.split(u8::is_ascii_whitespace) {
        let is_month = word.len() == 3 && memchr::memmem::find(MONTHS, word).is_some();
        if is_month || !word.iter().any(u8::is_ascii_alphabetic) || time::stamp(word).is_some() {
            continue;
        }
        if !out.is_empty() {
            out.push(b' ');
        }
        out.extend(word.iter().map(|byte| match byte {
            b'"' | b'\\' | 0x80.. | ..0x20 => b'_',
            byte => *byte,
        }));
    }
    out
}

/// A beginning as fluent-bit prints its records to a terminal: `{"log"=>"text"}`.
pub(super) fn is_hash(text: &[u8]) -> bool {
    memchr::memmem::find(&text[..text.len().min(PREFIX_BYTES)], b"\"=>").is_some()
}

enum State {
    /// In what is before a document.
    Before(Vec<u8>),
    /// Behind its first brace, which a name must follow.
    Open(Vec<u8>),
    Inside,
    /// Behind a document that others follow in the line.
    Behind,
}

/// Where a hash is read.
#[derive(Clone, Copy, Default)]
struct Hash {
    depth: usize,
    is_string: bool,
    is_escaped: bool,
}

/// Gives the documents.
pub(super) struct Tagged<R> {
    input: R,
    state: State,
    /// Documents are hashes, with `=>` for a colon, and something behind them.
    hash: Option<Hash>,
    /// Bytes of the input.
    pub(super) read: Rc<Cell<u64>>,
    raw: Vec<u8>,
    text: Vec<u8>,
    given: usize,
}

impl<R: Read> Tagged<R> {
    pub(super) fn new(input: R, is_hash: bool) -> Self {
        Self {
            input,
            state: State::Before(Vec::new()),
            hash: is_hash.then(Hash::default),
            read: Rc::default(),
            raw: vec![0; PIECE_BYTES],
            text: Vec::new(),
            given: 0,
        }
    }

    fn take(&mut self, byte: u8) {
        match &mut self.state {
            State::Before(prefix) if byte == b'{' && (prefix.is_empty() || begins(prefix)) => {
                self.state = State::Open(std::mem::take(prefix));
            }
            State::Before(prefix) => {
                prefix.push(byte);
                if byte == b'\n' || prefix.len() >= PREFIX_BYTES {
                    self.text.append(prefix);
                    self.state = if byte == b'\n' { State::Before(Vec::new()) } else { State::Inside };
                }
            }
            State::Open(_) if matches!(byte, b' ' | b'\t') => {}
            State::Open(prefix) if byte == b'"' => {
                self.text.extend_from_slice(b"{\"");
                self.text.extend_from_slice(TAG.as_bytes());
                self.text.extend_from_slice(b"\":\"");
                self.text.extend_from_slice(&origin(prefix));
                self.text.extend_from_slice(b"\",\"");
                self.state = State::Inside;
                self.hash = self.hash.map(|_| Hash { depth: 1, is_string: true, is_escaped: false });
            }
            State::Open(prefix) => {
                let mut prefix = std::mem::take(prefix);
                prefix.push(b'{');
                self.state = State::Before(prefix);
                self.take(byte);
            }
            State::Inside => self.inside(byte),
            State::Behind => {
                if byte == b'\n' {
                    self.text.push(byte);
                    self.state = State::Before(Vec::new());
                }
            }
        }
    }

    /// Takes a byte of a hash.
    fn inside(&mut self, byte: u8) {
        let Some(hash) = &mut self.hash else { return self.text.push(byte) };
        match byte {
            b'\n' => self.state = State::Before(Vec::new()),
            _ if hash.is_escaped => hash.is_escaped = false,
            b'\\' if hash.is_string => hash.is_escaped = true,
            b'"' => hash.is_string = !hash.is_string,
            b'=' if !hash.is_string => return,
            b'>' if !hash.is_string => return self.text.push(b':'),
            b'{' if !hash.is_string => hash.depth += 1,
            b'}' if !hash.is_string => {
                hash.depth = hash.depth.saturating_sub(1);
                if hash.depth == 0 {
                    self.state = State::Behind;
                }
            }
            _ => {}
        }
        self.text.push(byte);
    }

    /// Reads on; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let count = self.input.read(&mut self.raw)?;
        self.read.set(self.read.get() + count as u64);
        self.text.clear();
        self.given = 0;
        let raw = std::mem::take(&mut self.raw);
        let mut rest = &raw[..count];
        while let Some(byte) = rest.first() {
            // Most of a line is its document.
            if matches!(self.state, State::Inside) && self.hash.is_none() {
                let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
                self.text.extend_from_slice(&rest[..end]);
                if rest[..end].ends_with(b"\n") {
                    self.state = State::Before(Vec::new());
                }
                rest = &rest[end..];
            } else {
                self.take(*byte);
                rest = &rest[1..];
            }
        }
        self.raw = raw;
        if count == 0
            && let State::Before(prefix) | State::Open(prefix) = &mut self.state
        {
            self.text.append(prefix);
        }
        Ok(count > 0)
    }
}

impl<R: Read> Read for Tagged<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
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

    #[track_caller]
    fn given(text: &str, is_hash: bool) -> String {
        let mut out = String::new();
        let mut tagged = Tagged::new(text.as_bytes(), is_hash);
        let read = tagged.read.clone();
        tagged.read_to_string(&mut out).unwrap();
        assert_eq!(read.get(), text.len() as u64);
        out
    }

    #[test]
    fn documents_name_their_origin() {
        for (text, expected) in [
            (
                "2026-03-01T10:32:03+00:00\tmysql.slow\t{\"log\":\"{a\\n\"}\nx\n",
                "{\"@tag\":\"mysql.slow\",\"log\":\"{a\\n\"}\nx\n",
            ),
            ("Mar  1 10:32:03 db1 a[8]: {} {\"a\":1}\n", "{\"@tag\":\"db1 a[8]:\",\"a\":1}\n"),
            ("db-1  | { \"a\\\"\": 1}", "{\"@tag\":\"db-1\",\"a\\\"\": 1}"),
            ("x{ {", "x{ "),
            ("{\"a\":1}\nb", "{\"@tag\":\"\",\"a\":1}\nb"),
        ] {
            assert_eq!(given(text, false), expected, "{text}");
        }
    }

    #[test]
    fn hashes_become_documents() {
        let line = |text: &str| {
            format!("[0] tail.0: [[1772361120.000000000, {{}}], {{\"log\"=>{text}, \"n\"=>{{\"a\"=>1}}}}]\n")
        };
        let text = line("\"a => {b} \\\" }\"") + &line("\"c\"");
        let origin = "tail.0:";
        let expected = |text: &str| format!("{{\"@tag\":\"{origin}\",\"log\":{text}, \"n\":{{\"a\":1}}}}\n");
        assert_eq!(given(&text, true), expected("\"a => {b} \\\" }\"") + &expected("\"c\""));
    }
}
