//! Documents of JSON, one in each line, behind what a shipper writes before them: fluentd's time and tag, a container's name,
//! syslog's host and program. What names the origin becomes a member of its document.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use crate::rewritten::Rewrite;
use crate::slow_log::time;

/// What is before a document is not longer.
const PREFIX_BYTES: usize = 512;
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
pub(super) struct Tagged {
    state: State,
    /// Documents are hashes, with `=>` for a colon, and something behind them.
    hash: Option<Hash>,
    /// Bytes of the input.
    pub(super) read: Rc<Cell<u64>>,
}

impl Tagged {
    pub(super) fn new(is_hash: bool) -> Self {
        Self { state: State::Before(Vec::new()), hash: is_hash.then(Hash::default), read: Rc::default() }
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match &mut self.state {
            State::Before(prefix) if byte == b'{' && (prefix.is_empty() || begins(prefix)) => {
                self.state = State::Open(std::mem::take(prefix));
            }
            State::Before(prefix) => {
                prefix.push(byte);
                if byte == b'\n' || prefix.len() >= PREFIX_BYTES {
                    out.append(prefix);
                    self.state = if byte == b'\n' { State::Before(Vec::new()) } else { State::Inside };
                }
            }
            State::Open(_) if matches!(byte, b' ' | b'\t') => {}
            State::Open(prefix) if byte == b'"' => {
                out.extend_from_slice(b"{\"");
                out.extend_from_slice(TAG.as_bytes());
                out.extend_from_slice(b"\":\"");
                out.extend_from_slice(&origin(prefix));
                out.extend_from_slice(b"\",\"");
                self.state = State::Inside;
                self.hash = self.hash.map(|_| Hash { depth: 1, is_string: true, is_escaped: false });
            }
            State::Open(prefix) => {
                let mut prefix = std::mem::take(prefix);
                prefix.push(b'{');
                self.state = State::Before(prefix);
                self.byte(byte, out);
            }
            State::Inside => self.inside(byte, out),
            State::Behind => {
                if byte == b'\n' {
                    out.push(byte);
                    self.state = State::Before(Vec::new());
                }
            }
        }
    }

    /// Takes a byte of a hash.
    fn inside(&mut self, byte: u8, out: &mut Vec<u8>) {
        let Some(hash) = &mut self.hash else { return out.push(byte) };
        match byte {
            b'\n' => self.state = State::Before(Vec::new()),
            _ if hash.is_escaped => hash.is_escaped = false,
            b'\\' if hash.is_string => hash.is_escaped = true,
            b'"' => hash.is_string = !hash.is_string,
            b'=' if !hash.is_string => return,
            b'>' if !hash.is_string => return out.push(b':'),
            b'{' if !hash.is_string => hash.depth += 1,
            b'}' if !hash.is_string => {
                hash.depth = hash.depth.saturating_sub(1);
                if hash.depth == 0 {
                    self.state = State::Behind;
                }
            }
            _ => {}
        }
        out.push(byte);
    }
}

impl Rewrite for Tagged {
    fn take(&mut self, piece: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.read.set(self.read.get() + piece.len() as u64);
        let mut rest = piece;
        while let Some(byte) = rest.first() {
            // Most of a line is its document.
            if matches!(self.state, State::Inside) && self.hash.is_none() {
                let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
                out.extend_from_slice(&rest[..end]);
                if rest[..end].ends_with(b"\n") {
                    self.state = State::Before(Vec::new());
                }
                rest = &rest[end..];
            } else {
                self.byte(*byte, out);
                rest = &rest[1..];
            }
        }
        if piece.is_empty()
            && let State::Before(prefix) | State::Open(prefix) = &mut self.state
        {
            out.append(prefix);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::rewritten::Rewritten;

    #[track_caller]
    fn given(text: &str, is_hash: bool) -> String {
        let mut out = String::new();
        let tagged = Tagged::new(is_hash);
        let read = tagged.read.clone();
        Rewritten::new(text.as_bytes(), tagged).read_to_string(&mut out).unwrap();
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
