//! Comments, which statements lose before they are shown.

use memchr::{memchr, memmem};

/// Appends what is between two tokens without its comments: spaces, and the marks of executable ones.
pub fn without_comments(between: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&byte) = between.get(at) {
        let rest = &between[at..];
        let end = match (byte, rest.get(1), rest.get(2), rest.get(3)) {
            (b'/', Some(b'*'), Some(b'!'), _)
            | (b'/', Some(b'*'), Some(b'M' | b'm'), Some(b'!'))
            | (b'*', Some(b'/'), ..) => {
                out.extend_from_slice(&rest[..2]);
                at += 2;
                continue;
            }
            (b'/', Some(b'*'), ..) => memmem::find(&rest[2..], b"*/").map(|length| at + length + 4),
            (b'#' | b'-', ..) => memchr(b'\n', rest).map(|length| at + length),
            _ => {
                out.push(byte);
                at += 1;
                continue;
            }
        };
        out.push(b' ');
        at = end.unwrap_or(between.len());
    }
}
