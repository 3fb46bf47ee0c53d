//! What each byte may begin, and which bytes make up words.

/// What a byte may begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Space,
    Letter,
    /// Letters that may be before a quote and belong to the string.
    Prefix,
    Dollar,
    Digit,
    Quote,
    Backtick,
    At,
    Dot,
    Open,
    Close,
    Comma,
    Semicolon,
    Plus,
    Minus,
    Hash,
    Slash,
    Star,
    Question,
    Backslash,
    Other,
}

pub const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            0..=b' ' | 0x7F => Class::Space,
            b'n' | b'N' | b'x' | b'X' | b'b' | b'B' => Class::Prefix,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => Class::Letter,
            b'$' => Class::Dollar,
            b'0'..=b'9' => Class::Digit,
            b'\'' | b'"' => Class::Quote,
            b'`' => Class::Backtick,
            b'@' => Class::At,
            b'.' => Class::Dot,
            b'(' => Class::Open,
            b')' => Class::Close,
            b',' => Class::Comma,
            b';' => Class::Semicolon,
            b'+' => Class::Plus,
            b'-' => Class::Minus,
            b'#' => Class::Hash,
            b'/' => Class::Slash,
            b'*' => Class::Star,
            b'?' => Class::Question,
            b'\\' => Class::Backslash,
            _ => Class::Other,
        };
        byte += 1;
    }
    classes
};

pub const IN_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(CLASSES[byte], Class::Letter | Class::Prefix | Class::Dollar | Class::Digit);
        byte += 1;
    }
    table
};
