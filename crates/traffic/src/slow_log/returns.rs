//! Parts of a log whose lines end with `\r` only, after lines that end with `\n`: pieces from several editors, joined.

use memchr::{memchr, memchr_iter, memmem};

use super::boundary::{LINE_BYTES, Lexer, Line, classify};
use crate::pieces::without_banners;

/// Where such a part begins within an event, outside of literals. The event's statement begins at `body`.
pub(super) fn begins(text: &[u8], body: usize) -> Option<usize> {
    let statement = text.get(body..)?;
    let first = memchr(b'\r', statement)?;
    let mut lexer = Lexer::default();
    for found in memmem::find_iter(&statement[first..], b"\r#") {
        let end = first + found;
        // The line that ends here is of a header already, or the next one is the first.
        let line = memchr::memrchr2(b'\n', b'\r', &statement[..end]).map_or(0, |at| at + 1);
        for begin in [line, end + 1] {
            if is_first(&statement[begin..]) && !lexer.is_inside(statement, begin) {
                // What a server wrote when it opened its log is of the part.
                return Some(body + without_banners(&restored(&statement[..begin])).len());
            }
        }
    }
    None
}

/// Whether a part begins like an event, in lines that end with `\r`.
fn is_first(text: &[u8]) -> bool {
    let window = &text[..text.len().min(LINE_BYTES)];
    let is_of_returns = memchr::memchr2(b'\r', b'\n', window)
        .is_some_and(|end| window[end] == b'\r' && window.get(end + 1) != Some(&b'\n'));
    is_of_returns && matches!(classify(&restored(window), true), Line::First | Line::Touched)
}

/// The same bytes with each `\r` replaced by `\n`.
pub(super) fn restored(text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    for at in memchr_iter(b'\r', text) {
        if text.get(at + 1) != Some(&b'\n') {
            out[at] = b'\n';
        }
    }
    out
}

/// The end of a part whose last lines belong to the header that follows at `end`, because its last `\r` was lost.
pub(super) fn without_header(text: &[u8], end: usize) -> usize {
    let mut end = end;
    // `# Time:` and `# User@Host:`.
    for _ in 0..2 {
        let before = text[..end].strip_suffix(b"\n").or_else(|| text[..end].strip_suffix(b"\r"));
        let begin = before.and_then(|before| memchr::memrchr2(b'\n', b'\r', before)).map_or(0, |at| at + 1);
        let is_header =
            [&b"# Time: "[..], b"# User@Host: "].iter().any(|key| text[begin..end].starts_with(key));
        if begin == 0 || !is_header {
            break;
        }
        end = begin;
    }
    end
}
