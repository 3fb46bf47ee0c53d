//! Statements that are not as they were sent, as far as their classes show it: a page or an editor replaced their quotes,
//! a sheet put them in quotes, or a hole is in them.

use memchr::memmem;

use crate::digest::classes::Classes;

/// As `strict` and `pt` write what was `&lt;`. SQL has no `;` behind a name.
const ENTITIES: [&str; 6] = ["lt;", "gt;", "quot;", "amp;", "apos;", "nbsp;"];
/// Quotes of typography. They may stand in names, and nobody names a column so.
const QUOTES: [&str; 4] = ["\u{2018}", "\u{2019}", "\u{201c}", "\u{201d}"];
const ADVICE: &str = "a page or an editor changed this text, so that values are part of these classes; read it as it was \
                      (for a page: python3 -c 'import html, sys; sys.stdout.write(html.unescape(sys.stdin.read()))')";
const SHEET: &str = "export the log itself, or name its column `message` in a first line";
const HOLE: &str = "a statement has a run of zeros in it, which a crash leaves, or a log that was cut while its server \
                    wrote on: it is not as it was sent";
/// So many zeros, one behind the other, are no value: clients write each as `\\0`.
const HOLE_BYTES: usize = 64;

/// What Markdown and wikis escape, and SQL has nowhere outside of literals.
const ESCAPED: [&str; 3] = ["\\ *", "\\ _", "\\_"];

/// What is to be known of texts that are not as they were sent. `has_hole`: one of them has.
pub(super) fn notes(classes: &Classes, has_hole: bool) -> Vec<String> {
    let count = |is_so: fn(&[u8]) -> bool| classes.iter().filter(|(text, _)| is_so(text)).count();
    let counted = |count: usize| match count {
        0 => None,
        1 => Some("1 class has".to_owned()),
        _ => Some(format!("{count} classes have")),
    };
    let signs = counted(count(is_altered)).map(|what| {
        format!("{what} &lt;, &#39;, backslashes or quotes of typography outside of literals: {ADVICE}")
    });
    let quoted = counted(count(is_quoted))
        .map(|what| format!("{what} nothing but one text in quotes, as lines of a sheet have: {SHEET}"));
    signs.into_iter().chain(quoted).chain(has_hole.then(|| HOLE.to_owned())).collect()
}

/// Whether a statement has a hole in it.
pub(super) fn has_hole(text: &[u8]) -> bool {
    let Some(at) = memchr::memchr(0, text) else { return false };
    text[at..].split(|byte| *byte != 0).any(|zeros| zeros.len() >= HOLE_BYTES)
}

/// Whether a statement is one text in quotes: a line of a sheet.
fn is_quoted(fingerprint: &[u8]) -> bool {
    fingerprint == b"?"
}

fn is_altered(fingerprint: &[u8]) -> bool {
    let text = fingerprint.trim_ascii_end();
    // `= &#39;x&#39;`: a sign, and a comment to the end of the line.
    let is_number = text.ends_with(b"&");
    let is_entity = |behind: &[u8]| {
        let behind = behind.trim_ascii_start();
        ENTITIES.iter().any(|entity| behind.starts_with(entity.as_bytes()))
    };
    is_number
        || memchr::memchr_iter(b'&', text).any(|at| is_entity(&text[at + 1..]))
        || ESCAPED.iter().any(|mark| memmem::find(text, mark.as_bytes()).is_some())
        || QUOTES.iter().any(|quote| memmem::find(text, quote.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::{has_hole, is_altered};
    use sql::Mode;

    #[test]
    fn entities_and_quotes_outside_of_literals_are_seen() {
        let is = |mode, text: &str| {
            let mut fingerprint = Vec::new();
            sql::fingerprint(mode, text.as_bytes(), false, &mut fingerprint);
            is_altered(&fingerprint)
        };
        for altered in [
            "a = &#39;x&#39;",
            "a &lt; 5",
            "a = &quot;x&quot; and b = 1",
            "a = \u{2018}x\u{2019}",
            "a &gt;= 1",
        ] {
            let text = format!("select a from t where {altered}");
            assert!(is(Mode::Strict, &text) && is(Mode::Pt, &text), "{text}");
        }
        assert!(
            is(Mode::Strict, "select a from t where a \\* 2 = 1") && is(Mode::Strict, "select b\\_c from t")
        );
        for own in ["a = '&lt; \u{2019} &#39;'", "a & 5", "a & b = 1", "a = \"\u{2018}\" and b & c"] {
            let text = format!("select a from t where {own}");
            assert!(!is(Mode::Strict, &text) && !is(Mode::Pt, &text), "{text}");
        }
    }

    #[test]
    fn a_run_of_zeros_is_a_hole_and_a_zero_is_a_value() {
        assert!(has_hole(&[b"select".as_slice(), &[0; 64], b"1"].concat()));
        assert!(!has_hole(&[b"select '".as_slice(), &[0; 63], b"'"].concat()) && !has_hole(b"select 1"));
    }
}
