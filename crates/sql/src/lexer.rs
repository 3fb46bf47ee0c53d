//! MySQL's and MariaDB's lexical rules over bytes, without allocation. Every input has tokens; none makes it fail.
//!
//! What the text alone cannot tell is decided so that a literal is never taken for a name:
//! - `"..."` is a string, though under ANSI_QUOTES it is a name, where nothing shows which (`readings`).
//! - A backslash escapes, though under NO_BACKSLASH_ESCAPES it does not, nor as the second byte of a character in GBK,
//!   SJIS or Big5. `doubtful_at` says where that mattered first; `readings` has what the other readings make of it.
//! - What executable comments hold is code, whatever version they ask for.
//! - Bytes from 0x80 belong to names and strings, as in UTF-8 and Latin 1.

use memchr::{memchr, memchr2, memmem};

use super::classes::{CLASSES, Class, IN_WORD};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keyword or plain name; after a dot also one that begins with a digit.
    Word,
    /// A name in backticks, or in double quotes where they quote names.
    Quoted,
    /// In quotes, with a prefix (`N`, `x`, `b`) or without, or between dollar tags (MySQL 9).
    String,
    /// Decimal, without its sign.
    Number,
    /// `0x..` or `0b..`.
    Bits,
    /// `\N`
    Null,
    /// `?`
    Placeholder,
    /// `?+` in front of a comma or a parenthesis: a list in one of our own fingerprints.
    List,
    /// `@name`, `@@name`, `@@scope.name`; before quotes only the signs.
    Variable,
    /// `@` before quotes or on its own.
    At,
    Open,
    Close,
    Comma,
    Dot,
    Semicolon,
    /// `+` or `-`
    Sign,
    Operator,
    /// A string or quoted name that the text ends in.
    Unterminated,
    /// Not from a lexer: a user, a host or a role, quoted or not.
    Account,
    /// Not from a lexer: the name of a savepoint or of a prepared statement.
    Label,
    /// Not from a lexer: text of which readings make different tokens, and so a value for all that is known.
    Disputed,
    /// A backslash outside strings: no statement has one, so a string before it may have ended elsewhere.
    Stray,
}

impl Kind {
    /// Whether its text is a value.
    #[must_use]
    pub fn is_literal(self) -> bool {
        matches!(
            self,
            Kind::String
                | Kind::Number
                | Kind::Bits
                | Kind::Null
                | Kind::Unterminated
                | Kind::Account
                | Kind::Label
                | Kind::Disputed
        )
    }
}

/// A token and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

/// How a server may read backslashes and bytes from 0x80.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    Usual,
    /// Under NO_BACKSLASH_ESCAPES.
    NoEscapes,
    /// In GBK, SJIS and Big5, where a byte from 0x81 takes the next one with it.
    Pairs,
}

/// Gives tokens one after another; spaces and comments are passed over.
#[derive(Clone, Copy, Debug)]
pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    /// How many executable comments are open.
    executable: u32,
    /// Where a name ended, so that a dot right behind it makes a name of what follows.
    name_end: usize,
    /// Where a word begins for certain, digit or not: right behind such a dot.
    word_at: usize,
    reading: Reading,
    /// `"..."` is a name.
    has_quoted_names: bool,
    /// Where the first string begins whose end another reading may see elsewhere.
    doubtful_at: Option<usize>,
}

impl<'a> Lexer<'a> {
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            executable: 0,
            name_end: usize::MAX,
            word_at: usize::MAX,
            reading: Reading::Usual,
            has_quoted_names: false,
            doubtful_at: None,
        }
    }

    #[must_use]
    pub fn with_reading(text: &'a [u8], reading: Reading) -> Self {
        Self { reading, ..Self::new(text) }
    }

    /// The same where `"..."` is a name, as under ANSI_QUOTES.
    #[must_use]
    pub fn with_quoted_names(self) -> Self {
        Self { has_quoted_names: true, ..self }
    }

    /// Whether what comes next is in an executable comment.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.executable > 0
    }

    /// Where the first string begins whose end depends on the reading.
    #[inline(always)]
    #[must_use]
    pub fn doubtful_at(&self) -> Option<usize> {
        self.doubtful_at
    }

    #[cold]
    fn doubt(&mut self, start: usize) {
        self.doubtful_at = self.doubtful_at.or(Some(start));
    }

    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        // A zero is a space, so that the end of the text ends whatever is there.
        self.text.get(at).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn word_end(&self, mut at: usize) -> usize {
        while at < self.text.len() && IN_WORD[usize::from(self.text[at])] {
            at += 1;
        }
        at
    }

    #[inline(always)]
    fn digits_end(&self, mut at: usize) -> usize {
        while at < self.text.len() && self.text[at].is_ascii_digit() {
            at += 1;
        }
        at
    }

    #[inline(always)]
    fn token(&mut self, kind: Kind, start: usize, end: usize) -> Option<Token> {
        self.at = end;
        Some(Token { kind, start, end })
    }

    #[inline(always)]
    fn name(&mut self, kind: Kind, start: usize, end: usize) -> Option<Token> {
        self.name_end = end;
        self.token(kind, start, end)
    }

    /// The next token, if any is left.
    // Not an iterator: looking ahead copies the lexer.
    #[allow(clippy::should_implement_trait)]
    #[inline(always)]
    pub fn next(&mut self) -> Option<Token> {
        loop {
            let mut start = self.at;
            let mut byte = *self.text.get(start)?;
            // One space is between most tokens: no other branch is taken as often.
            if byte == b' ' {
                start += 1;
                self.at = start;
                byte = *self.text.get(start)?;
            }
            match CLASSES[usize::from(byte)] {
                Class::Space => self.at += 1,
                Class::Letter => {
                    let end = self.word_end(start + 1);
                    return self.name(Kind::Word, start, end);
                }
                Class::Prefix => {
                    if matches!(self.byte(start + 1), b'\'' | b'"') {
                        return self.string(start, start + 1);
                    }
                    let end = self.word_end(start + 1);
                    return self.name(Kind::Word, start, end);
                }
                Class::Dollar => return self.dollar(start),
                Class::Digit => return self.number(start),
                Class::Quote => return self.string(start, start),
                Class::Backtick => return self.backticks(start),
                Class::At => return self.variable(start),
                Class::Dot => return self.dot(start),
                Class::Open => return self.token(Kind::Open, start, start + 1),
                Class::Close => return self.token(Kind::Close, start, start + 1),
                Class::Comma => return self.token(Kind::Comma, start, start + 1),
                Class::Semicolon => return self.token(Kind::Semicolon, start, start + 1),
                Class::Plus => return self.token(Kind::Sign, start, start + 1),
                Class::Minus => {
                    if self.byte(start + 1) == b'-' && self.byte(start + 2) <= b' ' {
                        self.skip_line();
                    } else if self.byte(start + 1) == b'>' {
                        return self.operator(start);
                    } else {
                        return self.token(Kind::Sign, start, start + 1);
                    }
                }
                Class::Hash => self.skip_line(),
                Class::Slash => {
                    if self.byte(start + 1) != b'*' {
                        return self.token(Kind::Operator, start, start + 1);
                    }
                    self.comment();
                }
                Class::Star => {
                    if self.executable > 0 && self.byte(start + 1) == b'/' {
                        self.executable -= 1;
                        self.at += 2;
                    } else {
                        return self.token(Kind::Operator, start, start + 1);
                    }
                }
                Class::Question => {
                    if self.byte(start + 1) == b'+' && matches!(self.byte(start + 2), b')' | b',') {
                        return self.token(Kind::List, start, start + 2);
                    }
                    return self.token(Kind::Placeholder, start, start + 1);
                }
                Class::Backslash => {
                    if self.byte(start + 1) == b'N' && !IN_WORD[usize::from(self.byte(start + 2))] {
                        return self.token(Kind::Null, start, start + 2);
                    }
                    return self.token(Kind::Stray, start, start + 1);
                }
                Class::Other => return self.operator(start),
            }
        }
    }

    fn skip_line(&mut self) {
        self.at = memchr(b'\n', &self.text[self.at..]).map_or(self.text.len(), |length| self.at + length + 1);
    }

    /// Passes a comment, or the mark that opens an executable one.
    fn comment(&mut self) {
        let inner = self.at + 2;
        let code = match self.byte(inner) {
            b'!' => Some(inner + 1),
            b'M' | b'm' if self.byte(inner + 1) == b'!' => Some(inner + 2),
            _ => None,
        };
        if let Some(code) = code {
            // A version has five digits, or six; what follows them is code.
            let digits = self.digits_end(code) - code;
            self.at = code + if digits >= 5 { digits.min(6) } else { 0 };
            self.executable += 1;
        } else {
            self.at =
                memmem::find(&self.text[inner..], b"*/").map_or(self.text.len(), |length| inner + length + 2);
        }
    }

    /// A string whose quote is at `quote`; its prefix starts at `start`.
    #[inline]
    fn string(&mut self, start: usize, quote: usize) -> Option<Token> {
        let mark = self.text[quote];
        if self.has_quoted_names && mark == b'"' && start == quote {
            return self.quoted_name(start);
        }
        let mut at = quote + 1;
        while let Some(length) = memchr2(mark, b'\\', &self.text[at.min(self.text.len())..]) {
            at += length;
            if self.text[at] == b'\\' {
                let next = self.byte(at + 1);
                if next == mark || next == b'\\' && self.text[at - 1] > 0x80 {
                    self.doubt(start);
                }
                at += if self.is_escape(quote + 1, at) { 2 } else { 1 };
            } else if self.byte(at + 1) == mark {
                at += 2;
            } else {
                return self.token(Kind::String, start, at + 1);
            }
        }
        self.token(Kind::Unterminated, start, self.text.len())
    }

    /// A name in `"..."`, in which a backslash is a letter.
    #[cold]
    fn quoted_name(&mut self, start: usize) -> Option<Token> {
        let mut at = start + 1;
        while let Some(length) = memchr(b'"', &self.text[at..]) {
            at += length + 1;
            if self.byte(at) != b'"' {
                return self.name(Kind::Quoted, start, at);
            }
            at += 1;
        }
        self.token(Kind::Unterminated, start, self.text.len())
    }

    /// Whether the backslash at `at`, in a string whose content begins at `from`, changes what the next byte means.
    #[inline(always)]
    fn is_escape(&self, from: usize, at: usize) -> bool {
        match self.reading {
            Reading::Usual => true,
            Reading::NoEscapes => false,
            Reading::Pairs => !self.is_second(from, at),
        }
    }

    /// Whether the byte at `at` is the second of a pair: in a run of bytes from 0x81 on all are in pairs.
    #[cold]
    fn is_second(&self, from: usize, at: usize) -> bool {
        self.text[from..at].iter().rev().take_while(|&&byte| byte > 0x80).count() % 2 == 1
    }

    #[inline(always)]
    fn backticks(&mut self, start: usize) -> Option<Token> {
        let is_behind_ascii = start.checked_sub(1).is_none_or(|before| self.text[before] < 0x80);
        if let Some(length) = memchr(b'`', &self.text[start + 1..])
            && is_behind_ascii
            && self.text[start + length] < 0x80
            && self.byte(start + length + 2) != b'`'
        {
            return self.name(Kind::Quoted, start, start + length + 2);
        }
        self.rare_backticks(start)
    }

    /// Names with backticks in them, and with bytes from 0x80 before one.
    #[cold]
    fn rare_backticks(&mut self, start: usize) -> Option<Token> {
        let mut at = start + 1;
        let mut is_certain = !self.may_be_second(start);
        while let Some(length) = memchr(b'`', &self.text[at..]) {
            at += length + 1;
            is_certain &= !self.may_be_second(at - 1);
            if self.byte(at) != b'`' && is_certain {
                return self.name(Kind::Quoted, start, at);
            }
            at += usize::from(self.byte(at) == b'`');
        }
        self.token(Kind::Unterminated, start, self.text.len())
    }

    /// Whether the backtick at `at` may belong to the character before it, as in GBK. Then nothing from there on
    /// can be told from a name. What is whole characters of UTF-8 is not GBK.
    fn may_be_second(&self, at: usize) -> bool {
        at > 0 && self.text[at - 1] > 0x80 && self.is_second(0, at) && {
            let ascii = self.text[..at].iter().rposition(u8::is_ascii).map_or(0, |last| last + 1);
            std::str::from_utf8(&self.text[ascii..at]).is_err()
        }
    }

    /// `$$...$$` and `$tag$...$tag$` are strings; a `$` that opens no tag is a letter. A tag that nothing closes
    /// has the rest of the text: it may hold what was cut off, and searching on for others would make the work
    /// quadratic.
    #[cold]
    fn dollar(&mut self, start: usize) -> Option<Token> {
        let mut at = start + 1;
        while IN_WORD[usize::from(self.byte(at))] && self.byte(at) != b'$' {
            at += 1;
        }
        if self.byte(at) != b'$' {
            return self.name(Kind::Word, start, at);
        }
        at += 1;
        let tag = &self.text[start..at];
        while let Some(length) = memchr(b'$', &self.text[at..]) {
            at += length;
            // Any letter case: fingerprints have lower-case words, and must have the same tokens.
            if self.text.len() - at >= tag.len() && self.text[at..at + tag.len()].eq_ignore_ascii_case(tag) {
                return self.token(Kind::String, start, at + tag.len());
            }
            at += 1;
        }
        self.token(Kind::Unterminated, start, self.text.len())
    }

    fn number(&mut self, start: usize) -> Option<Token> {
        if self.word_at == start {
            let end = self.word_end(start);
            return self.name(Kind::Word, start, end);
        }
        let mut end = self.digits_end(start + 1);
        match self.byte(end) {
            b'.' => {
                end = self.digits_end(end + 1);
                end = self.exponent_end(end).unwrap_or(end);
            }
            b'e' | b'E' => match self.exponent_end(end) {
                Some(after) => end = after,
                None => return self.digits_then_letters(start),
            },
            next if IN_WORD[usize::from(next)] => return self.digits_then_letters(start),
            _ => {}
        }
        self.token(Kind::Number, start, end)
    }

    fn exponent_end(&self, at: usize) -> Option<usize> {
        if !matches!(self.byte(at), b'e' | b'E') {
            return None;
        }
        let digits = at + 1 + usize::from(matches!(self.byte(at + 1), b'+' | b'-'));
        self.byte(digits).is_ascii_digit().then(|| self.digits_end(digits))
    }

    /// `0xFF`, `0b01`, or a name that begins with digits. Servers refuse `1_000`, `1OR` and `1e` unless there is a
    /// column of that name; who wrote it meant a number.
    fn digits_then_letters(&mut self, start: usize) -> Option<Token> {
        let end = self.word_end(start);
        let digits = self.digits_end(start);
        match (&self.text[start..end], &self.text[digits..end]) {
            ([b'0', b'x' | b'X', digit, ..], _) if digit.is_ascii_hexdigit() => {
                self.token(Kind::Bits, start, end)
            }
            ([b'0', b'b' | b'B', b'0' | b'1', ..], _) => self.token(Kind::Bits, start, end),
            (_, [b'e' | b'E']) => self.token(Kind::Number, start, end),
            (_, rest) if rest.iter().all(|byte| *byte == b'_' || byte.is_ascii_digit()) => {
                self.token(Kind::Number, start, end)
            }
            (_, rest) if goes_on(rest) => self.token(Kind::Number, start, digits),
            _ => self.name(Kind::Word, start, end),
        }
    }

    fn dot(&mut self, start: usize) -> Option<Token> {
        let next = self.byte(start + 1);
        if self.name_end == start && IN_WORD[usize::from(next)] {
            self.word_at = start + 1;
        } else if next.is_ascii_digit() {
            let digits = self.digits_end(start + 1);
            let end = self.exponent_end(digits).unwrap_or(digits);
            return self.token(Kind::Number, start, end);
        }
        self.token(Kind::Dot, start, start + 1)
    }

    fn variable(&mut self, start: usize) -> Option<Token> {
        let signs = 1 + usize::from(self.byte(start + 1) == b'@');
        let mut end = start + signs;
        while IN_WORD[usize::from(self.byte(end))] || self.byte(end) == b'.' {
            end += 1;
        }
        let kind = if end == start + 1 { Kind::At } else { Kind::Variable };
        self.token(kind, start, end)
    }

    fn operator(&mut self, start: usize) -> Option<Token> {
        let length = match (self.byte(start), self.byte(start + 1), self.byte(start + 2)) {
            (b'<', b'=', b'>') | (b'-', b'>', b'>') => 3,
            (b'<', b'=' | b'>' | b'<', _)
            | (b'>', b'=' | b'>', _)
            | (b'!' | b':', b'=', _)
            | (b'|', b'|', _)
            | (b'&', b'&', _)
            | (b'-', b'>', _) => 2,
            _ => 1,
        };
        self.token(Kind::Operator, start, start + length)
    }
}

/// Words that follow a value and do not start a name.
#[cold]
fn goes_on(word: &[u8]) -> bool {
    const WORDS: [&str; 30] = [
        "and", "as", "asc", "between", "by", "desc", "div", "else", "end", "escape", "for", "from", "group",
        "having", "in", "into", "is", "like", "limit", "mod", "not", "offset", "on", "or", "order", "then",
        "union", "when", "where", "xor",
    ];
    WORDS.iter().any(|other| word.eq_ignore_ascii_case(other.as_bytes()))
}

#[cfg(test)]
mod tests;
