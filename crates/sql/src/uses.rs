//! USE: the databases that a text makes the default one.

use memchr::{memchr, memchr2_iter};

use super::finder::bare;
use super::lexer::{Kind, Lexer, Token};

/// The default database behind a text, which may have several statements; None where no USE is among them.
#[must_use]
pub fn used_database(text: &[u8]) -> Option<Vec<u8>> {
    names(text).last().map(|name| bare(&text[name.start..name.end]))
}

/// The text with the databases behind USE renamed, where `renamed` has another name for any of them.
#[must_use]
pub fn rename_used<'a>(text: &[u8], renamed: impl Fn(&[u8]) -> Option<&'a [u8]>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut copied = 0;
    for Token { start, end, .. } in names(text) {
        let Some(name) = renamed(&bare(&text[start..end])) else { continue };
        out.extend_from_slice(&text[copied..start]);
        out.push(b'`');
        for &byte in name {
            out.push(byte);
            if byte == b'`' {
                out.push(byte);
            }
        }
        out.push(b'`');
        copied = end;
    }
    (copied > 0).then(|| {
        out.extend_from_slice(&text[copied..]);
        out
    })
}

/// The names behind USE, in their order. None where servers may read the text in several ways: what one reads as a name
/// may be part of a value.
fn names(text: &[u8]) -> Vec<Token> {
    #[derive(PartialEq)]
    enum Step {
        Begin,
        Use,
        Name,
        Other,
    }
    let mut names = Vec::new();
    if !may_use(text) {
        return names;
    }
    let mut lexer = Lexer::new(text);
    let mut step = Step::Begin;
    while let Some(token) = lexer.next() {
        let part = &text[token.start..token.end];
        if step == Step::Name && token.kind != Kind::Semicolon {
            names.pop();
        }
        let is_name = match token.kind {
            Kind::Word | Kind::Quoted => true,
            // `2024_01`, and a name under ANSI_QUOTES.
            Kind::Number => part.contains(&b'_'),
            Kind::String => part[0] == b'"',
            _ => false,
        };
        step = match step {
            _ if token.kind == Kind::Semicolon => Step::Begin,
            Step::Begin if token.kind == Kind::Word && part.eq_ignore_ascii_case(b"use") => Step::Use,
            Step::Use if is_name => {
                names.push(token);
                Step::Name
            }
            _ => Step::Other,
        };
    }
    if lexer.doubtful_at().is_some() {
        names.clear();
    }
    names
}

/// False for most texts, at a glance.
fn may_use(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let is_use = |at: usize| text.get(at..at + 3).is_some_and(|word| word.eq_ignore_ascii_case(b"use"));
    match text {
        [] => false,
        _ if is_use(0) => true,
        // Behind a comment, or another statement.
        [b'/' | b'#' | b'-', ..] => memchr2_iter(b'u', b'U', text).any(is_use),
        [inner @ .., _] => memchr(b';', inner).is_some() && memchr2_iter(b'u', b'U', text).any(is_use),
    }
}

#[cfg(test)]
mod tests {
    use super::{rename_used, used_database};

    #[test]
    fn a_database_is_the_name_behind_use_and_nothing_else() {
        for (text, database) in [
            ("USE shop", Some("shop")),
            (" use\tshop ; ", Some("shop")),
            ("use`my``shop`", Some("my`shop")),
            ("USE \"shop\"", Some("shop")),
            ("use 2024_01", Some("2024_01")),
            ("/* app:7 */ USE shop", Some("shop")),
            ("-- now\nuse shop -- 'secret'", Some("shop")),
            ("/*!50001 use shop */", Some("shop")),
            ("use a; insert into t values ('secret'); use b; select 1", Some("b")),
            ("select 1; use shop", Some("shop")),
            ("use a; insert into t values ('secret')", Some("a")),
            ("use shop insert", None),
            ("use shop.t", None),
            ("use", None),
            ("use 'shop'", None),
            ("user shop", None),
            ("select 'a; use b;'", None),
            ("select a from t use index (b); select 2", None),
            (r"insert into t values ('a\', 'b'); use c", None),
            ("", None),
        ] {
            let found = used_database(text.as_bytes());
            assert_eq!(found.as_deref(), database.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn all_uses_of_a_text_are_renamed() {
        let renamed = |text: &str| {
            let name = |name: &[u8]| (name == b"shop").then_some(&b"shop`2"[..]);
            rename_used(text.as_bytes(), name).map(|text| String::from_utf8(text).unwrap())
        };
        assert_eq!(
            renamed("/* a */ use shop; delete from shop; USE `shop`; use b").as_deref(),
            Some("/* a */ use `shop``2`; delete from shop; USE `shop``2`; use b")
        );
        assert_eq!((renamed("use b"), renamed("select 'use shop'")), (None, None));
    }
}
