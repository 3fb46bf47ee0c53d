//! Statements that servers may read in several ways: what all of them make of it.
//!
//! The text does not say whether a backslash escapes, nor which bytes make a character. Most statements are the same
//! either way. For the others each way is tried; a way that no server accepts is dropped, and a token counts only if it
//! is one in every way that is left. The rest may be part of a value.

use super::lexer::{Kind, Lexer, Reading, Token};

/// A source of tokens.
pub trait Tokens {
    fn next(&mut self) -> Option<Token>;
}

impl Tokens for Lexer<'_> {
    #[inline(always)]
    fn next(&mut self) -> Option<Token> {
        Lexer::next(self)
    }
}

/// The ways to read `text` that are left besides the usual one.
#[cold]
#[must_use]
pub fn others(text: &[u8]) -> Vec<Lexer<'_>> {
    // A text cut in the middle of a character counts as UTF-8, too.
    let is_utf8 = std::str::from_utf8(text).map_or_else(|error| error.error_len().is_none(), |_| true);
    let is_usual = makes_sense(Lexer::new(text), text, false);
    [Reading::NoEscapes, Reading::Pairs]
        .into_iter()
        .filter(|reading| *reading != Reading::Pairs || !is_utf8)
        .map(|reading| Lexer::with_reading(text, reading))
        // The text may have been cut within a string.
        .filter(|lexer| !is_usual || makes_sense(*lexer, text, true))
        .collect()
}

/// Whether a server may take these tokens for a statement, as far as strings and their neighbours show. Letters of a
/// value taken for a statement hardly ever pass: outside of strings there is no backslash, no `'it\'s`, and no value
/// behind a value.
fn makes_sense(mut lexer: Lexer<'_>, text: &[u8], may_be_cut: bool) -> bool {
    let is_name = |token: Token| token.kind == Kind::Word && !is_keyword(&text[token.start..token.end]);
    let mut before: [Option<Token>; 2] = [None, None];
    while let Some(token) = lexer.next() {
        let last = before[1];
        let touches = last.is_some_and(|last| last.end == token.start);
        let is_behind_string = last.is_some_and(|last| last.kind == Kind::String);
        let is_behind_alias =
            last.is_some_and(is_name) && before[0].is_some_and(|before| before.kind == Kind::String);
        let is_wrong = match token.kind {
            Kind::Stray => true,
            Kind::Unterminated if !may_be_cut => true,
            Kind::Word if is_behind_string && touches => is_name(token),
            Kind::Number | Kind::Bits | Kind::Null | Kind::Variable if is_behind_string => true,
            Kind::String | Kind::Unterminated if touches && text[token.start] != b'`' => {
                last.is_some_and(|last| is_name(last) && text[last.start] != b'_')
            }
            _ => is_behind_alias && (token.kind.is_literal() || is_name(token)),
        };
        if is_wrong {
            return false;
        }
        before = [last, Some(token)];
    }
    true
}

/// Words that may be right before or behind a string.
fn is_keyword(word: &[u8]) -> bool {
    let mut lower = [0; 13];
    let Some(lower) = lower.get_mut(..word.len()) else { return false };
    lower.copy_from_slice(word);
    lower.make_ascii_lowercase();
    KEYWORDS.binary_search_by(|keyword| keyword.as_bytes().cmp(lower)).is_ok()
}

#[rustfmt::skip]
const KEYWORDS: &[&str] = &[
    "all", "and", "any", "as", "asc", "at", "attribute", "before", "between", "binary", "by", "case", "character",
    "charset", "collate", "comment", "connection", "date", "day", "default", "desc", "distinct", "div", "do", "else",
    "enclosed", "end", "engine", "escape", "escaped", "except", "exists", "for", "format", "from", "group", "having",
    "hour", "identified", "if", "ignore", "in", "index", "inner", "intersect", "interval", "into", "is", "join", "left",
    "like", "limit", "lines", "lock", "member", "microsecond", "minute", "mod", "month", "not", "null", "of", "offset",
    "on", "or", "order", "outer", "outfile", "over", "partition", "password", "procedure", "quarter", "regexp",
    "replace", "require", "return", "returning", "right", "rlike", "second", "select", "separator", "set", "sounds",
    "starting", "straight_join", "table", "terminated", "then", "time", "timestamp", "to", "union", "unique", "update",
    "use", "using", "value", "values", "week", "when", "where", "while", "window", "with", "xor", "year",
];

/// The most readings that are compared.
const MOST: usize = 3;

/// The tokens on which all readings agree; what is between them as one `Disputed`.
pub struct Agreed<'a> {
    lexers: [Lexer<'a>; MOST],
    heads: [Option<Token>; MOST],
}

impl<'a> Agreed<'a> {
    /// None if there is only one reading.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Option<Self> {
        let others = others(text);
        let mut lexers = [Lexer::new(text); MOST];
        for (slot, other) in lexers[1..].iter_mut().zip(others.iter().cycle()) {
            *slot = *other;
        }
        let heads = lexers.each_mut().map(Lexer::next);
        (!others.is_empty()).then_some(Self { lexers, heads })
    }

    fn agree(&self) -> bool {
        self.heads.iter().all(|head| *head == self.heads[0])
    }
}

impl Tokens for Agreed<'_> {
    fn next(&mut self) -> Option<Token> {
        if self.agree() {
            let token = self.heads[0];
            self.heads = self.lexers.each_mut().map(Lexer::next);
            return token;
        }
        let (mut start, mut end) = (usize::MAX, 0);
        while !self.agree() {
            let place = |index: &usize| self.heads[*index].map_or(usize::MAX, |head| head.start);
            let first = (0..MOST).min_by_key(place)?;
            let token = self.heads[first]?;
            (start, end) = (start.min(token.start), end.max(token.end));
            self.heads[first] = self.lexers[first].next();
        }
        Some(Token { kind: Kind::Disputed, start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::{Agreed, KEYWORDS, Tokens};

    fn agreed(text: &[u8]) -> Option<Vec<String>> {
        let mut tokens = Agreed::new(text)?;
        let mut found = Vec::new();
        while let Some(token) = tokens.next() {
            found.push(String::from_utf8_lossy(&text[token.start..token.end]).into_owned());
        }
        Some(found)
    }

    #[test]
    fn keywords_are_sorted() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn ordinary_escapes_have_one_reading() {
        for text in [
            r"select 'it\'s', 'a \'quoted\' word', 'O\'Brien' from t where a = 5",
            r#"insert into t values ("{\"a\": \"b\"}", 'boys\' toys', 5)"#,
            r"select concat('\'', a, '\''), 'l\'été' from t",
            r"update t set a = '5\' 10 inches' where b = 5",
        ] {
            assert_eq!(agreed(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_has_two_readings_is_kept_up_to_there() {
        let text = br"select a, ('C:\Data\',' hunter2 # note') from t";
        assert_eq!(agreed(text).unwrap(), ["select", "a", ",", "(", r"'C:\Data\',' hunter2 # note') from t"]);
    }
}
