//! Text of UTF-16, given as UTF-8; also where only some lines of a file are: PowerShell's `>>` appends such to any file, and
//! other shells append UTF-8 to what its `>` wrote.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memchr::{memchr, memmem};

use crate::rewritten::Rewrite;

/// So many bytes at the beginning of a line tell what it is.
const LOOK_BYTES: usize = 32;
/// Fewer at the end of the input.
const LEAST_BYTES: usize = 8;
/// How many places of a file are looked at; the last is its end.
const PLACES: u64 = 32;
/// A line that is longer is given in pieces.
const PIECE_BYTES: usize = 64 << 10;

/// Which byte of a unit comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// The order of a text of which these are the first bytes: by its mark, or because every other byte is zero.
pub(super) fn order(magic: &[u8]) -> Option<Order> {
    match *magic {
        [0xff, 0xfe, ..] => Some(Order::Little),
        [0xfe, 0xff, ..] => Some(Order::Big),
        [_, _, _, _, ..] => of_letters(&magic[..4]),
        _ => None,
    }
}

/// Letters of the Latin alphabet and signs, in two bytes each.
fn of_letters(text: &[u8]) -> Option<Order> {
    let mut pairs = text.chunks_exact(2);
    match text {
        [_, 0, ..] => pairs.all(|pair| is_text(pair[0]) && pair[1] == 0).then_some(Order::Little),
        [0, ..] => pairs.all(|pair| pair[0] == 0 && is_text(pair[1])).then_some(Order::Big),
        _ => None,
    }
}

/// Text of UTF-8, whose last character may be cut.
fn is_of_bytes(text: &[u8]) -> bool {
    let is_whole = std::str::from_utf8(text).map_or_else(|error| error.error_len().is_none(), |_| true);
    is_whole && !text.contains(&0)
}

fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~')
}

/// Whether a file has lines of UTF-16, as far as a look at some of its places tells.
pub(super) fn is_in(file: &File) -> bool {
    let Ok(length) = file.metadata().map(|found| if found.is_file() { found.len() } else { 0 }) else {
        return false;
    };
    let mut window = [0; 2 * LOOK_BYTES];
    (1..=PLACES).any(|place| {
        let at =
            (length / PLACES * place + length % PLACES * place / PLACES).saturating_sub(window.len() as u64);
        let count = file.read_at(&mut window, at).unwrap_or(0);
        let text = &window[..count];
        // A place may be between the bytes of a unit.
        count > LOOK_BYTES && (of_letters(text).is_some() || of_letters(&text[1..]).is_some())
    })
}

/// What is no character becomes U+FFFD, as usual.
pub(super) struct Wide {
    /// `None` for lines of bytes.
    order: Option<Order>,
    left: Vec<u8>,
    is_line: bool,
}

impl Wide {
    pub(super) fn new(order: Option<Order>) -> Self {
        Self { order, left: Vec::new(), is_line: true }
    }

    /// Takes the next line, or a piece of one. Gives how many bytes that were; 0 if more are needed.
    fn step(&mut self, text: &[u8], at_end: bool, out: &mut Vec<u8>) -> usize {
        if std::mem::replace(&mut self.is_line, false) {
            if text.len() < LOOK_BYTES && !at_end {
                self.is_line = true;
                return 0;
            }
            let look = &text[..text.len().min(LOOK_BYTES)];
            if look.starts_with(&[0xff, 0xfe]) || look.starts_with(&[0xfe, 0xff]) {
                (self.order, self.is_line) = (order(look), true);
                return 2;
            }
            if look.len() >= LEAST_BYTES {
                match of_letters(look) {
                    Some(order) => self.order = Some(order),
                    None if is_of_bytes(look) => self.order = None,
                    None => {}
                }
            }
        }
        match self.order {
            None => self.bytes(text, at_end, out),
            Some(order) => self.units(order, text, at_end, out),
        }
    }

    fn bytes(&mut self, text: &[u8], at_end: bool, out: &mut Vec<u8>) -> usize {
        let length = match memchr(b'\n', text) {
            Some(end) => {
                self.is_line = true;
                end + 1
            }
            None if at_end || text.len() >= PIECE_BYTES => text.len(),
            None => 0,
        };
        out.extend_from_slice(&text[..length]);
        length
    }

    fn units(&mut self, order: Order, text: &[u8], at_end: bool, out: &mut Vec<u8>) -> usize {
        let unit = |pair: &[u8]| match order {
            Order::Little => u16::from_le_bytes([pair[0], pair[1]]),
            Order::Big => u16::from_be_bytes([pair[0], pair[1]]),
        };
        let mark = if order == Order::Little { [b'\n', 0] } else { [0, b'\n'] };
        let end = memmem::find_iter(text, &mark).find(|at| at % 2 == 0);
        let mut units: Vec<u16> = match end {
            Some(end) => text[..end + 2].chunks_exact(2).map(unit).collect(),
            None if at_end || text.len() >= PIECE_BYTES => text.chunks_exact(2).map(unit).collect(),
            None => return 0,
        };
        self.is_line = end.is_some();
        // The first of two units waits for the second.
        if !at_end && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            units.pop();
        }
        let taken = units.len() * 2;
        let mut encoded = [0; 4];
        for character in char::decode_utf16(units) {
            let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
            out.extend_from_slice(character.encode_utf8(&mut encoded).as_bytes());
        }
        taken
    }
}

impl Rewrite for Wide {
    fn take(&mut self, piece: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let at_end = piece.is_empty();
        let mut text = std::mem::take(&mut self.left);
        text.extend_from_slice(piece);
        let mut at = 0;
        while at < text.len() {
            match self.step(&text[at..], at_end, out) {
                0 => break,
                length => at += length,
            }
        }
        text.drain(..at);
        if at_end && !text.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the UTF-16 text ends inside a character",
            ));
        }
        self.left = text;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::rewritten::{InPieces, Rewritten};

    fn encoded(text: &str, order: Order) -> Vec<u8> {
        text.encode_utf16()
            .flat_map(|unit| if order == Order::Little { unit.to_le_bytes() } else { unit.to_be_bytes() })
            .collect()
    }

    #[test]
    fn text_comes_whole_in_pieces_of_any_size() {
        let text = "# Time: \u{1f600}\u{e9}\n".repeat(9);
        for (mark, order) in [("\u{feff}", Order::Little), ("", Order::Big)] {
            let bytes = encoded(&format!("{mark}{text}"), order);
            assert_eq!(super::order(&bytes[..4]), Some(order));
            for size in [1, 2, 3, 7, 4096] {
                let mut out = String::new();
                let wide = Wide::new(Some(order));
                Rewritten::new(InPieces(&bytes, size), wide).read_to_string(&mut out).unwrap();
                assert_eq!(out, text, "{size}");
                let cut = InPieces(&bytes[..bytes.len() - 1], size);
                assert!(Rewritten::new(cut, Wide::new(Some(order))).read_to_end(&mut Vec::new()).is_err());
            }
        }
        assert_eq!(super::order(b"# Ti"), None);
    }

    /// What one shell appended to what another one wrote.
    #[test]
    fn lines_in_either_encoding_are_told_where_they_begin() {
        let (one, other) = (
            "# Time: \u{e9} 2026-11-30T12:00:00\nselect 'a\u{4e2d}';\n",
            "# Time: 2026-11-30T12:00:01\r\nselect 2;\r\n",
        );
        let (bytes, little) = (one.as_bytes(), encoded(other, Order::Little));
        let marked = encoded(&format!("\u{feff}{other}"), Order::Little);
        for (first, parts) in [
            (None, vec![bytes, &little]),
            (None, vec![bytes, &marked, bytes, &little]),
            (Some(Order::Little), vec![&marked, other.as_bytes(), &little]),
            (Some(Order::Big), vec![&encoded(one, Order::Big), other.as_bytes()]),
        ] {
            let file = parts.concat();
            for size in [1, 5, 4096] {
                let mut out = String::new();
                Rewritten::new(InPieces(&file, size), Wide::new(first)).read_to_string(&mut out).unwrap();
                let lines = parts
                    .iter()
                    .map(|part| if *part == bytes || part.starts_with(&[0, b'#']) { one } else { other });
                assert_eq!(out, lines.collect::<String>(), "{size}");
            }
        }
    }

    #[test]
    fn a_file_tells_its_lines_of_utf_16_wherever_they_are() {
        let (plain, wide) =
            ("select 'some text of a log'\n".repeat(40), encoded(&"select 2\r\n".repeat(99), Order::Little));
        for (content, expected) in [
            ([plain.as_bytes(), &wide].concat(), true),
            ([plain.as_bytes(), b"x", &wide, plain.as_bytes()].concat(), true),
            (plain.as_bytes().to_vec(), false),
            (vec![0; 4096], false),
            (Vec::new(), false),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, &content).unwrap();
            assert_eq!(is_in(&file), expected);
        }
    }
}
