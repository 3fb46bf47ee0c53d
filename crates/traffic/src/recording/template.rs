//! A statement as what it shares with others and what is its own: numbers and strings leave holes in it. This is for
//! compression alone; it needs no SQL, because any split can be undone.

/// Holes in a template. A statement that has these bytes itself is not split.
pub const NUMBER_HOLE: u8 = 0x00;
pub const STRING_HOLE: u8 = 0x01;

/// Begins an entry of the dictionary: a statement as it is, or a template.
pub const PLAIN: u8 = b'P';
pub const TEMPLATE: u8 = b'T';

/// Splits a statement. `template` begins with its mark; `hole` is called with each number and string, in order.
pub fn split(text: &[u8], template: &mut Vec<u8>, mut hole: impl FnMut(u8, &[u8])) {
    template.clear();
    if memchr::memchr2(NUMBER_HOLE, STRING_HOLE, text).is_some() {
        plain(text, template);
        return;
    }
    template.push(TEMPLATE);
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if is_of_word(byte) {
            let length = text[at..].iter().take_while(|byte| is_of_word(**byte)).count();
            let word = &text[at..at + length];
            if byte.is_ascii_digit() {
                template.push(NUMBER_HOLE);
                hole(NUMBER_HOLE, word);
            } else {
                template.extend_from_slice(word);
            }
            at += length;
        } else if byte == b'\'' || byte == b'"' {
            let length = string_length(&text[at + 1..], byte);
            template.extend_from_slice(&[byte, STRING_HOLE]);
            hole(STRING_HOLE, &text[at + 1..at + 1 + length]);
            at += 1 + length;
            if at < text.len() {
                template.push(byte);
                at += 1;
            }
        } else {
            template.push(byte);
            at += 1;
        }
    }
}

/// The entry of a statement that is not split.
pub fn plain(text: &[u8], template: &mut Vec<u8>) {
    template.clear();
    template.push(PLAIN);
    template.extend_from_slice(text);
}

/// Bytes before the quote that ends a string, or all of them.
fn string_length(text: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(quote, b'\\', &text[at..]) {
        if text[at + found] == quote {
            return at + found;
        }
        at = (at + found + 2).min(text.len());
    }
    text.len()
}
