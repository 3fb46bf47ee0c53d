//! Statements whose quotes and signs a page or an editor replaced: their literals cannot be told, and so are part of classes.

use memchr::memmem;

use crate::digest::Digest;
use crate::digest::classes::Classes;

/// As `strict` and `pt` write what was `&lt;`. SQL has no `;` behind a name.
const ENTITIES: [&str; 6] = ["lt;", "gt;", "quot;", "amp;", "apos;", "nbsp;"];
/// Quotes of typography. They may stand in names, and nobody names a column so.
const QUOTES: [&str; 4] = ["\u{2018}", "\u{2019}", "\u{201c}", "\u{201d}"];
const ADVICE: &str = "a page or an editor changed this text, so that values are part of these classes; read it as it was \
                      (for a page: python3 -c 'import html, sys; sys.stdout.write(html.unescape(sys.stdin.read()))')";

impl Digest {
    /// What is to be known if any class has such characters outside of its literals.
    pub(super) fn altered(&self) -> Option<String> {
        altered(&self.classes)
    }
}

fn altered(classes: &Classes) -> Option<String> {
    let count = classes.iter().filter(|(fingerprint, _)| is_altered(fingerprint)).count();
    let what = if count == 1 { "1 class has" } else { &format!("{count} classes have") };
    (count > 0).then(|| format!("{what} &lt;, &#39; or quotes of typography outside of literals: {ADVICE}"))
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
        || QUOTES.iter().any(|quote| memmem::find(text, quote.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::is_altered;
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
        for own in ["a = '&lt; \u{2019} &#39;'", "a & 5", "a & b = 1", "a = \"\u{2018}\" and b & c"] {
            let text = format!("select a from t where {own}");
            assert!(!is(Mode::Strict, &text) && !is(Mode::Pt, &text), "{text}");
        }
    }
}
