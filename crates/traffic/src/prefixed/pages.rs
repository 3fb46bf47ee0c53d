//! Text that was copied out of a page: characters that HTML writes as entities, and its marks around lines.

use memchr::{memchr, memmem};

/// What somebody's program put behind each line; the first five are those of pages.
pub(super) const ENDS: [&[u8]; 8] = [b"<br>", b"<br/>", b"<br />", b"</p>", b"</div>", b"^M$", b"^M", b"$"];
pub(super) const PAGE_ENDS: u8 = 5;
/// Marks around text that is kept as it is.
const MARKS: [&[u8]; 8] = [b"pre", b"code", b"tt", b"span", b"html", b"body", b"div", b"p"];

/// What is behind a line of a header: its place in [`ENDS`], counted from 1; 0 for nothing.
pub(super) fn end_of(line: &[u8]) -> u8 {
    let found = ENDS.iter().position(|end| line.len() > end.len() && line.ends_with(end));
    found.map_or(0, |place| place as u8 + 1)
}

/// Whether a line is of a page that keeps text as it is.
pub(super) fn is_page(line: &[u8]) -> bool {
    MARKS[..2].iter().any(|name| {
        memmem::find_iter(&line.to_ascii_lowercase(), name).any(|at| {
            at > 0 && line[at - 1] == b'<' && matches!(line.get(at + name.len()), Some(b'>' | b' '))
        })
    })
}

/// Takes an end off a line, which may have its end of line.
pub(super) fn take_end(end: u8, line: &mut Vec<u8>) {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let text = crate::pieces::without_return(text).len();
    let Some(end) = usize::from(end).checked_sub(1).map(|place| ENDS[place]) else { return };
    if line[..text].ends_with(end) {
        line.drain(text - end.len()..text);
        // `cat -A`, which puts a `$` there, shows TABs like this.
        while end.ends_with(b"$")
            && let Some(at) = memmem::find(line, b"^I")
        {
            line.splice(at..at + 2, *b"\t");
        }
    }
}

/// The text of a line of a page.
pub(super) fn plain(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = memchr::memchr2(b'&', b'<', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let length = match (entity(rest), mark(rest)) {
            (Some((letter, length)), _) => {
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                length
            }
            (None, Some(length)) => length,
            (None, None) => {
                out.push(rest[0]);
                1
            }
        };
        rest = &rest[length..];
    }
    out.extend_from_slice(rest);
    out
}

pub(super) fn is_entity(text: &[u8]) -> bool {
    entity(text).is_some()
}

/// `&lt;`, `&#39;`, `&#x27;`: the letter, and the length.
fn entity(text: &[u8]) -> Option<(char, usize)> {
    let inner = text.strip_prefix(b"&")?;
    let length = memchr(b';', &inner[..inner.len().min(9)])?;
    let name = std::str::from_utf8(&inner[..length]).ok()?;
    let letter = match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        _ => {
            let number = name.strip_prefix('#')?;
            let hex = number.strip_prefix(['x', 'X']);
            let code = hex.map_or_else(|| number.parse(), |hex| u32::from_str_radix(hex, 16)).ok()?;
            char::from_u32(if code == 0xa0 { 32 } else { code }).filter(|letter| *letter != '\0')?
        }
    };
    Some((letter, length + 2))
}

/// `<pre>`, `</code>`, `<span class="x">`: its length.
fn mark(text: &[u8]) -> Option<usize> {
    let inner = text.strip_prefix(b"<")?;
    let name = inner.strip_prefix(b"/").unwrap_or(inner);
    let found = MARKS.iter().find(|mark| {
        name.get(..mark.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(mark))
            && matches!(name.get(mark.len()), Some(b'>' | b' '))
    });
    found.and_then(|_| memchr(b'>', text)).map(|end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_pages() {
        let line = b"<PRE class=\"x\">a &lt; &#39;b&#x27; &amp;&amp; c&nbsp;<d> & e;</pre>";
        assert_eq!(plain(line), b"a < 'b' && c <d> & e;");
        assert!(is_page(b"<body><pre>") && is_page(b"<pre class=x># Time") && !is_page(b"<prefix>"));
        let mut line = b"select 1;<br />\r\n".to_vec();
        take_end(end_of(b"x<br />"), &mut line);
        assert_eq!(line, b"select 1;\r\n");
        let mut line = b"select a,^I^Ib$\n".to_vec();
        take_end(end_of(b"x$"), &mut line);
        assert_eq!(line, b"select a,\t\tb\n");
        assert_eq!(end_of(b"# Time: 1"), 0);
    }
}
