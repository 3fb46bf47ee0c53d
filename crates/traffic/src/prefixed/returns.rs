//! Ends of lines that are none of Unix or of Windows.

use std::io;

use memchr::{memchr, memmem};

use crate::general_log;
use crate::pieces;
use crate::rewritten::Rewrite;
use crate::slow_log::is_header_line;

/// What a text has for the end of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ends {
    #[default]
    Usual,
    /// `\r` alone.
    Returns,
    /// `\r\r\n`: what had `\r\n` was written as text once more.
    Doubled,
    /// Also behind so many characters: copied from a terminal, or printed.
    Wrapped(usize),
}

/// A terminal is not narrower; lines that are longer than the widest are the log's own.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=1000;
/// Of mails, terminals and printers.
const USUAL_WIDTHS: [usize; 8] = [72, 76, 78, 79, 80, 100, 120, 132];
/// What stands in a line behind the one that a header's line was wrapped in.
const OF_HEADERS: [&[u8]; 6] = [b"] ", b"_sent: ", b"_examined: ", b"_time: ", b"_affected: ", b": 0"];
/// As much of a line as tells whether it begins one of the log's own.
const BEGIN_BYTES: usize = 14;

impl Ends {
    pub(super) fn of(head: &[u8]) -> Self {
        if let Some(width) = wrapped(head) {
            return Ends::Wrapped(width);
        }
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
            Ends::Wrapped(_) => Some("lines that were broken at the width of a terminal"),
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

/// The width at which every line of a header that goes on was broken, if there is one: no line is longer, and words are
/// cut in two. Where programs break lines of a mail, they do so at blanks, and the lines differ in length.
fn wrapped(head: &[u8]) -> Option<usize> {
    let lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').map(crate::pieces::without_return).collect();
    if is_padded(&lines) {
        return None;
    }
    let mut width = None;
    let mut is_told = false;
    for pair in lines.windows(2) {
        let [line, next] = pair else { continue };
        if !line.starts_with(b"# ") || next.is_empty() || begins_own(next) {
            continue;
        }
        // Before MySQL 5.1, the statement stands behind the header.
        if *width.get_or_insert(characters(line)) != characters(line) {
            return None;
        }
        is_told |= OF_HEADERS.iter().any(|mark| memmem::find(next, mark).is_some());
    }
    match width.filter(|width| is_told && WIDTHS.contains(width)) {
        Some(width) => lines.iter().all(|line| characters(line) <= width).then_some(width),
        None => of_statements(&lines).or_else(|| of_words(&lines)),
    }
}

/// Whether most lines were filled with blanks to one width, as in what is copied of a terminal: none of them goes on.
fn is_padded(lines: &[&[u8]]) -> bool {
    let width = lines.iter().map(|line| characters(line)).max().unwrap_or(0);
    let padded = lines.iter().filter(|line| line.ends_with(b"  ") && characters(line) == width).count();
    2 * padded > lines.len()
}

/// The same where no line of a header is so wide: every line of a statement that goes on is as long as the longest of all,
/// and two of them follow each other, which no statement's own lines do.
fn of_statements(lines: &[&[u8]]) -> Option<usize> {
    let width = lines.iter().map(|line| characters(line)).max().filter(|width| WIDTHS.contains(width))?;
    let (mut is_told, mut before) = (false, false);
    for pair in lines.windows(2) {
        let [line, next] = pair else { continue };
        let is_statement = !begins_own(line) || is_stamp(line) || line.starts_with(b"\t\t");
        let goes_on = is_statement
            && !next.is_empty()
            && !begins_own(next)
            && !pieces::is_of_banner(line)
            && !pieces::is_of_banner(next);
        if goes_on && characters(line) != width {
            return None;
        }
        is_told |= goes_on && before;
        before = goes_on;
    }
    is_told.then_some(width)
}

/// The same where statements have ends of lines of their own: a full line ends inside of a word, as none of theirs does. One
/// such line is enough at a width that clients have.
fn of_words(lines: &[&[u8]]) -> Option<usize> {
    let width = lines.iter().map(|line| characters(line)).max().filter(|width| WIDTHS.contains(width))?;
    let is_cut = |pair: &&[&[u8]]| {
        let (line, next) = (pair[0], pair[1]);
        let is_of_log = |line: &[u8]| line.starts_with(b"# ") || pieces::is_of_banner(line);
        characters(line) == width
            && !is_of_log(line)
            && !is_of_log(next)
            && !begins_own(next)
            && cuts_word(line, next)
    };
    // What is before each line may end at any width.
    let is_bare =
        lines.iter().any(|line| is_header_line(line) || general_log::is_event(&[line, &b"\n"[..]].concat()));
    let cuts = if is_bare { lines.windows(2).filter(is_cut).count() } else { 0 };
    (cuts > 1 || cuts == 1 && USUAL_WIDTHS.contains(&width)).then_some(width)
}

/// Whether the end of a line is inside of a word, or of a number: both of its parts are none that stand side by side.
fn cuts_word(line: &[u8], next: &[u8]) -> bool {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
    let begin = line.iter().rposition(|byte| !is_of_word(byte)).map_or(0, |at| at + 1);
    let end = next.iter().position(|byte| !is_of_word(byte)).unwrap_or(next.len());
    let (first, last) = (&line[begin..], &next[..end]);
    let is_keyword = sql::readings::is_keyword;
    // Text of a comment has words side by side.
    let is_comment = memmem::find(line, b"-- ").is_some() || memchr(b'#', line).is_some();
    !first.is_empty()
        && !last.is_empty()
        && !is_comment
        && (!is_keyword(first) && !is_keyword(last) || is_keyword(&[first, last].concat()))
}

/// Whether a line of a general log or of a shipper begins here: such lines begin with a time.
fn is_stamp(text: &[u8]) -> bool {
    let form = b"0000-00-00T00";
    text.len() >= form.len()
        && form.iter().zip(text).all(|(wanted, byte)| match wanted {
            b'0' => byte.is_ascii_digit(),
            _ => wanted == byte,
        })
}

/// The same before MySQL 5.7 and in MariaDB: `240301 10:32:03`, `240301  9:32:03`.
fn is_short_stamp(text: &[u8]) -> bool {
    let form = b"000000 .0:00:0";
    text.len() >= form.len()
        && form.iter().zip(text).all(|(wanted, byte)| match wanted {
            b'0' => byte.is_ascii_digit(),
            b'.' => *byte == b' ' || byte.is_ascii_digit(),
            _ => wanted == byte,
        })
}

/// Of a text in UTF-8.
fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// Whether a line cannot be what another one was broken into.
fn begins_own(text: &[u8]) -> bool {
    [&b"# "[..], b"SET timestamp=", b"use ", b"\t\t"].iter().any(|own| text.starts_with(own))
        || is_stamp(text)
        || is_short_stamp(text)
}

/// Gives the usual ends of lines.
pub(super) struct Restored {
    ends: Ends,
    /// Characters of the line until now, where they count.
    width: usize,
    /// Behind a full line: its end, and what follows, until that tells.
    pending: Vec<u8>,
    /// A `\r`, of which the next byte tells what becomes.
    is_held: bool,
    /// Bytes of the input that were not given.
    pub(super) dropped: u64,
}

impl Restored {
    pub(super) fn new(ends: Ends) -> Self {
        Self { ends, width: 0, pending: Vec::new(), is_held: false, dropped: 0 }
    }

    /// Appends what a piece becomes; the last one is empty.
    fn put(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if let Ends::Wrapped(width) = self.ends {
            self.unwrap(width, piece, out);
            return;
        }
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

impl Restored {
    /// Joins lines of this width with what follows.
    fn unwrap(&mut self, width: usize, piece: &[u8], out: &mut Vec<u8>) {
        for byte in piece {
            if !self.pending.is_empty() {
                self.pending.push(*byte);
                let follows = self.follows();
                if follows.len() >= BEGIN_BYTES || follows.contains(&b'\n') {
                    self.decide(width, out);
                }
                continue;
            }
            match byte {
                b'\n' if self.width == width => self.pending.push(*byte),
                b'\n' => {
                    out.push(*byte);
                    self.width = 0;
                }
                b'\r' => out.push(*byte),
                _ => {
                    out.push(*byte);
                    self.width += usize::from(*byte & 0xc0 != 0x80);
                }
            }
        }
        if piece.is_empty() && !self.pending.is_empty() {
            self.decide(width, out);
        }
    }

    /// What follows the end of a full line.
    fn follows(&self) -> &[u8] {
        &self.pending[1..]
    }

    fn decide(&mut self, width: usize, out: &mut Vec<u8>) {
        let pending = std::mem::take(&mut self.pending);
        let follows = &pending[1..];
        self.width = 0;
        if follows.is_empty() || follows.starts_with(b"\n") || begins_own(follows) {
            out.push(b'\n');
        } else {
            // A return before the end goes with it.
            let returns = out.iter().rev().take_while(|byte| **byte == b'\r').count();
            out.truncate(out.len() - returns);
            self.dropped += 1 + returns as u64;
        }
        self.unwrap(width, follows, out);
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

    #[test]
    fn lines_of_headers_that_a_terminal_broke_tell_its_width() {
        let account = "# User@Host: application[application] @ a.host.of.some.net []  Id:    11";
        let times = "# Query_time: 0.000371  Lock_time: 0.000175  Rows_sent: 1  Rows_examined: 1";
        let statement = "select aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, bbb;";
        // As long as the terminal is wide.
        let own = "select ccccccccccccccccccccccccccccccccccccccccccccc";
        let log = [
            account,
            times,
            "use shop;",
            "SET timestamp=1;",
            statement,
            own,
            "# Time: 2",
            "SET timestamp=2;",
            own,
            "",
        ]
        .join("\n");
        let broken = |width: usize, end: &str| -> String {
            let pieces = |line: &str| {
                let parts = line.as_bytes().chunks(width).map(String::from_utf8_lossy).collect::<Vec<_>>();
                parts.join(end) + end
            };
            log.lines().map(pieces).collect()
        };
        for end in ["\n", "\r\n"] {
            let text = broken(own.len(), end);
            assert_eq!(Ends::of(text.as_bytes()), Ends::Wrapped(own.len()), "{text}");
            let restored = Ends::Wrapped(own.len()).restored(text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&restored).replace('\r', ""), log);
        }
        // Only statements are so wide, of a slow log or of a general one.
        let long = "select a, bb, ccc from dddd join eeeee using (ffffff) where ggggggg = 1 and hhhhhhhh = 2 limit 9;";
        let slow =
            format!("# Query_time: 0.1  Lock_time: 0\nSET timestamp=1;\n{long}\n# Query_time: 0.2\n{long}\n");
        let general =
            format!("2026-11-30T12:00:00.1Z\t    5 Query\t{long}\n2026-11-30T12:00:01.1Z\t    5 Quit\t\n");
        for text in [slow, general] {
            let pieces = |line: &str| {
                let parts = line.as_bytes().chunks(40).map(String::from_utf8_lossy).collect::<Vec<_>>();
                parts.join("\n") + "\n"
            };
            let broken: String = text.lines().map(pieces).collect();
            assert_eq!(Ends::of(broken.as_bytes()), Ends::Wrapped(40), "{broken}");
            let restored = Ends::Wrapped(40).restored(broken.as_bytes());
            assert_eq!(String::from_utf8_lossy(&restored), text);
        }
        // Two lines that are as long, and a longest one before another: those may be a statement's own.
        let own = "# Query_time: 0.1\nselect aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, b\nfrom t;\n".repeat(3);
        assert_eq!(Ends::of(own.as_bytes()), Ends::Usual);
        // At blanks, as in a mail; before MySQL 5.1; and as the server wrote it.
        let mail = format!("{}\n[]  Id:    11\n{times}\nselect 1;\n", account.split(" []").next().unwrap());
        let old = format!("{times}\nselect 1;\n").repeat(3);
        for text in [mail, old, log] {
            assert_eq!(Ends::of(text.as_bytes()), Ends::Usual, "{text}");
        }
    }

    #[test]
    fn one_line_that_ends_inside_a_word_at_a_usual_width_was_broken() {
        // Once, beside a statement with lines of its own; in a literal, in a keyword, in a number.
        let header = "# Query_time: 0.1  Lock_time: 0\nSET timestamp=1;\n";
        for (before, cut) in [
            ("from orders where na", "me = 3"),
            ("from customers or", "der by b"),
            ("from t where id = 1", "2"),
        ] {
            let line = format!("select {}{before}", "a, ".repeat(99));
            let line = &line[line.len() - 80..];
            let text = format!("{header}update t\nset a = 1\n where b = 2;\n{header}{line}\n{cut};\n");
            assert_eq!(Ends::of(text.as_bytes()), Ends::Wrapped(80), "{text}");
            let restored = Ends::Wrapped(80).restored(text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&restored), text.replace(&format!("\n{cut}"), cut));
        }
        for (before, own) in [
            ("from orders", "where a = 3"),
            ("select a,", "b from t"),
            ("-- what a person", "said\nselect 1"),
        ] {
            let line = format!("{}{before}", " ".repeat(80 - before.len()));
            let text = format!("{header}{line}\n{own};\n");
            assert_eq!(Ends::of(text.as_bytes()), Ends::Usual, "{text}");
        }
    }
}
