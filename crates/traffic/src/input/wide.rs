//! Text of UTF-16, given as UTF-8.

use std::io;

use crate::rewritten::Rewrite;

/// Which byte of a unit comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// The order of a text of which these are the first bytes: by its mark, or because every other byte is zero.
pub(super) fn order(magic: &[u8]) -> Option<Order> {
    let is_text = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    match *magic {
        [0xff, 0xfe, ..] => Some(Order::Little),
        [0xfe, 0xff, ..] => Some(Order::Big),
        [a, 0, b, 0] if is_text(a) && is_text(b) => Some(Order::Little),
        [0, a, 0, b] if is_text(a) && is_text(b) => Some(Order::Big),
        _ => None,
    }
}

/// What is no character becomes U+FFFD, as usual.
pub(super) struct Wide {
    order: Order,
    /// Half of a unit, or of a character of two units.
    left: Vec<u8>,
    is_begin: bool,
}

impl Wide {
    pub(super) fn new(order: Order) -> Self {
        Self { order, left: Vec::new(), is_begin: true }
    }
}

impl Rewrite for Wide {
    fn take(&mut self, piece: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.left);
        bytes.extend_from_slice(piece);
        let mut units: Vec<u16> = bytes
            .chunks_exact(2)
            .map(|pair| match self.order {
                Order::Little => u16::from_le_bytes([pair[0], pair[1]]),
                Order::Big => u16::from_be_bytes([pair[0], pair[1]]),
            })
            .collect();
        // The first of two units waits for the second.
        if !piece.is_empty() && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            units.pop();
        }
        let taken = units.len() * 2;
        let mut encoded = [0; 4];
        for character in char::decode_utf16(units) {
            let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
            if !(std::mem::take(&mut self.is_begin) && character == '\u{feff}') {
                out.extend_from_slice(character.encode_utf8(&mut encoded).as_bytes());
            }
        }
        self.left = bytes.split_off(taken);
        if piece.is_empty() && !self.left.is_empty() {
            self.left.clear();
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the UTF-16 text ends inside a character",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::rewritten::{InPieces, Rewritten};

    #[test]
    fn text_comes_whole_in_pieces_of_any_size() {
        let text = "# Time: \u{1f600}\u{e9}\n".repeat(9);
        for (mark, order) in [("\u{feff}", Order::Little), ("", Order::Big)] {
            let bytes: Vec<u8> = format!("{mark}{text}")
                .encode_utf16()
                .flat_map(|unit| if order == Order::Little { unit.to_le_bytes() } else { unit.to_be_bytes() })
                .collect();
            assert_eq!(super::order(&bytes[..4]), Some(order));
            for size in [1, 2, 3, 7, 4096] {
                let mut out = String::new();
                Rewritten::new(InPieces(&bytes, size), Wide::new(order)).read_to_string(&mut out).unwrap();
                assert_eq!(out, text, "{size}");
                let mut cut = Rewritten::new(InPieces(&bytes[..bytes.len() - 1], size), Wide::new(order));
                assert!(cut.read_to_end(&mut Vec::new()).is_err());
            }
        }
        assert_eq!(super::order(b"# Ti"), None);
    }
}
