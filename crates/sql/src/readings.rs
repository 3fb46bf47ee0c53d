//! Statements that servers may read in several ways: what all of them make of it.
//!
//! The text does not say whether a backslash escapes, nor which bytes make a character. Most statements are the same
//! either way. For the others each way is tried; a way that no server accepts is dropped, and a token counts only if it
//! is one in every way that is left. The rest may be part of a value.

use memchr::{memchr, memchr2};

use super::finder::has_quoted_names;
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

/// The tokens of a text, however many readings of it are left.
#[derive(Clone)]
pub enum Source<'a> {
    One(Lexer<'a>),
    Several(Agreed<'a>),
}

impl<'a> Source<'a> {
    /// `is_cut` says that the text may end before its statement does.
    #[must_use]
    pub fn new(text: &'a [u8], is_cut: bool) -> Self {
        let mut lexer = Lexer::new(text);
        while lexer.next().is_some() {}
        let readings = match lexer.doubtful_at() {
            Some(_) => left(text, is_cut),
            None => vec![Reading::Usual],
        };
        let has_quoted_names = memchr(b'"', text).is_some()
            && readings.iter().all(|reading| has_quoted_names(Lexer::with_reading(text, *reading), text));
        let mut lexers = readings.iter().map(|reading| match has_quoted_names {
            true => Lexer::with_reading(text, *reading).with_quoted_names(),
            false => Lexer::with_reading(text, *reading),
        });
        match readings.len() {
            1 => Source::One(lexers.next().unwrap_or(lexer)),
            _ => Source::Several(Agreed::of(lexers)),
        }
    }
}

impl Tokens for Source<'_> {
    fn next(&mut self) -> Option<Token> {
        match self {
            Source::One(lexer) => lexer.next(),
            Source::Several(agreed) => agreed.next(),
        }
    }
}

/// The ways to read `text` that are left besides the usual one, if it may have been cut.
#[cold]
#[must_use]
pub fn others(text: &[u8]) -> Vec<Lexer<'_>> {
    let is_other = |reading: &Reading| *reading != Reading::Usual;
    left(text, true).into_iter().filter(is_other).map(|reading| Lexer::with_reading(text, reading)).collect()
}

/// The ways to read `text` that are left. A whole statement leaves no string open, no parenthesis, and no quote in a
/// comment where another way has none; one that was cut may.
fn left(text: &[u8], is_cut: bool) -> Vec<Reading> {
    // A text cut in the middle of a character counts as UTF-8, too.
    let is_utf8 = std::str::from_utf8(text).map_or_else(|error| error.error_len().is_none(), |_| true);
    let mut all = vec![Reading::Usual, Reading::NoEscapes];
    if !is_utf8 {
        all.push(Reading::Pairs);
    }
    let sense_of = |reading: Reading| sense(Lexer::with_reading(text, reading), text);
    if is_cut {
        // Of a text that was cut within a string nothing can be dropped.
        if matches!(sense_of(Reading::Usual), Sense::None | Sense::Cut) {
            return all;
        }
        all.retain(|reading| sense_of(*reading) != Sense::None);
        return all;
    }
    let senses: Vec<_> = all.iter().map(|reading| (*reading, sense_of(*reading))).collect();
    for best in [Sense::Whole, Sense::QuoteInComment] {
        let found = senses.iter().filter(|(_, sense)| *sense == best).map(|(reading, _)| *reading);
        let found: Vec<_> = found.collect();
        if !found.is_empty() {
            return found;
        }
    }
    all
}

/// What a server may make of the tokens of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sense {
    /// No statement.
    None,
    /// The beginning of one: it ends within a string.
    Cut,
    /// One of which parentheses do not match.
    Open,
    /// One with a quote in a comment: more likely, the quote begins or ends a string.
    QuoteInComment,
    Whole,
}

/// Whether a server may take these tokens for a statement, as far as strings and their neighbours show. Letters of a
/// value taken for a statement hardly ever pass: outside of strings there is no backslash, no `'it\'s`, and no value
/// behind a value.
fn sense(mut lexer: Lexer<'_>, text: &[u8]) -> Sense {
    let is_name = |token: Token| token.kind == Kind::Word && !is_keyword(&text[token.start..token.end]);
    let mut before: [Option<Token>; 2] = [None, None];
    let (mut depth, mut behind) = (0_i64, 0);
    let mut found = Sense::Whole;
    while let Some(token) = lexer.next() {
        let last = before[1];
        let touches = last.is_some_and(|last| last.end == token.start);
        let is_behind_string = last.is_some_and(|last| last.kind == Kind::String);
        let is_behind_alias =
            last.is_some_and(is_name) && before[0].is_some_and(|before| before.kind == Kind::String);
        let is_wrong = match token.kind {
            Kind::Stray => true,
            Kind::Word if is_behind_string && touches => is_name(token),
            // The host of an account may be right behind its user.
            Kind::Variable if is_behind_string => !touches || text[token.start..].starts_with(b"@@"),
            Kind::Number | Kind::Bits | Kind::Null if is_behind_string => true,
            Kind::String | Kind::Unterminated if touches && text[token.start] != b'`' => {
                last.is_some_and(|last| is_name(last) && text[last.start] != b'_')
            }
            _ => is_behind_alias && (token.kind.is_literal() || is_name(token)),
        };
        if is_wrong {
            return Sense::None;
        }
        match token.kind {
            Kind::Unterminated => return Sense::Cut,
            Kind::Open => depth += 1,
            Kind::Close => depth -= 1,
            _ => {}
        }
        if memchr2(b'\'', b'"', &text[behind..token.start]).is_some() {
            found = Sense::QuoteInComment;
        }
        behind = token.end;
        before = [last, Some(token)];
    }
    match depth {
        0 if memchr2(b'\'', b'"', &text[behind..]).is_some() => Sense::QuoteInComment,
        0 => found,
        _ => Sense::Open,
    }
}

/// Words that may be right before or behind a string.
pub fn is_keyword(word: &[u8]) -> bool {
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
#[derive(Clone)]
pub struct Agreed<'a> {
    lexers: [Lexer<'a>; MOST],
    heads: [Option<Token>; MOST],
}

impl<'a> Agreed<'a> {
    /// Of at least one reading.
    fn of(readings: impl Iterator<Item = Lexer<'a>> + Clone) -> Self {
        let mut lexers = [Lexer::new(b""); MOST];
        for (slot, reading) in lexers.iter_mut().zip(readings.cycle()) {
            *slot = reading;
        }
        let heads = lexers.each_mut().map(Lexer::next);
        Self { lexers, heads }
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
    use super::{KEYWORDS, Source, Tokens};

    /// None if there is only one reading.
    fn agreed(text: &[u8]) -> Option<Vec<String>> {
        let mut tokens = Source::new(text, true);
        if matches!(tokens, Source::One(_)) {
            return None;
        }
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
