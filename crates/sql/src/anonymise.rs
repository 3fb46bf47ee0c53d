//! Statements with pseudonyms in place of their literals, to be shown or replayed elsewhere.
//!
//! A pseudonym has the type and the length in bytes of what it stands for, and under one key is always the same for the
//! same value, so that rows that were equal stay equal. It cannot be turned back without the key.
//! - Letters become letters of the same case ('Bob' and 'bob' stay alike), digits digits; other characters of ASCII,
//!   escapes, and so `%`, `_` and the form of addresses stay. Characters of UTF-8 become others of the same length.
//! - Different numbers, dates, times and short texts of ASCII have different pseudonyms (`pseudonyms`): what is unique stays so.
//! - Numbers keep their sign, point, exponent, count of digits and type; a number in quotes is as without. Zeroes stay.
//! - Dates stay dates and times times. Hex digits stay hex digits, bits bits.
//! - JSON stays JSON, its names and values each by their own pseudonyms, and paths fit them.
//! - Comments are dropped. NULL, TRUE, FALSE, numbers behind LIMIT and OFFSET, lengths and options of CREATE and ALTER, and what SET
//!   sets (other than user variables) stay: they are no data. So do the numbers that SLEEP, BENCHMARK and GET_LOCK take.
//!
//! What it cannot keep: order among numbers of as many digits (ranges hit other rows), prefixes (LIKE 'a%' fits nothing), lengths of numbers show sizes.

use super::definition::Definition;
use super::lexer::{Kind, Lexer, Token, without_comments};
use super::pseudonyms::{self, keyed};
use super::readings::{Agreed, Tokens};

/// Replaces what `out` holds by `text` with pseudonyms under `key`.
pub fn anonymise(text: &[u8], key: &[u8; 32], out: &mut Vec<u8>) {
    let mut lexer = Lexer::new(text);
    tokens(text, &mut lexer, key, out);
    if lexer.doubtful_at().is_some()
        && let Some(mut agreed) = Agreed::new(text)
    {
        tokens(text, &mut agreed, key, out);
    }
}

/// Replaces what `out` holds by the pseudonym of one string with its quotes, in which a backslash escapes.
pub fn anonymise_string(string: &[u8], key: &[u8; 32], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(string);
    quoted(key, out);
}

fn tokens(text: &[u8], tokens: &mut impl Tokens, key: &[u8; 32], out: &mut Vec<u8>) {
    out.clear();
    let mut statement = Statement::default();
    let mut behind = 0;
    while let Some(token) = tokens.next() {
        without_comments(&text[behind..token.start], out);
        behind = token.end;
        let start = out.len();
        let part = &text[token.start..token.end];
        let is_kept = statement.keeps(text, token);
        if token.kind == Kind::Disputed {
            out.push(b'?');
            continue;
        }
        out.extend_from_slice(part);
        if is_kept {
            continue;
        }
        let part = &mut out[start..];
        match token.kind {
            Kind::Number => number(key, part),
            Kind::Bits => digits_of_bits(key, &mut part[1..]),
            Kind::String | Kind::Unterminated => quoted(key, part),
            _ => {}
        }
    }
    without_comments(&text[behind..], out);
}

/// Of each `?`, in order: whether a number there is no data but a limit, a time or a count of work, so that its
/// parameter stays. Empty for text of which readings differ.
#[must_use]
pub fn kept_placeholders(text: &[u8]) -> Vec<bool> {
    let mut lexer = Lexer::new(text);
    let mut statement = Statement::default();
    let mut found = Vec::new();
    while let Some(token) = lexer.next() {
        statement.keeps(text, token);
        if token.kind == Kind::Placeholder {
            found.push(statement.is_limit || statement.open > 0);
        }
    }
    if lexer.doubtful_at().is_some() {
        found.clear();
    }
    found
}

/// Functions whose numbers are times and counts of work.
const TAKE_TIME: [&str; 3] = ["sleep", "benchmark", "get_lock"];

/// What is known of a statement up to the next token.
#[derive(Debug, Default)]
struct Statement {
    has_begun: bool,
    is_set: bool,
    definition: Option<Definition>,
    is_limit: bool,
    is_user_variable: bool,
    /// A function that takes time stands before its parenthesis.
    takes_time: bool,
    /// Parentheses open since its own.
    open: usize,
}

impl Statement {
    fn follow_parentheses(&mut self, kind: Kind) {
        match kind {
            Kind::Open if self.open > 0 || self.takes_time => self.open += 1,
            Kind::Close => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        self.takes_time &= kind == Kind::Word;
    }

    /// Whether a token is no data.
    fn keeps(&mut self, text: &[u8], token: Token) -> bool {
        let part = &text[token.start..token.end];
        let is = |word: &str| part.eq_ignore_ascii_case(word.as_bytes());
        let is_form = self.definition.as_mut().is_some_and(|definition| definition.keeps(part, token.kind));
        self.follow_parentheses(token.kind);
        match token.kind {
            Kind::Word => {
                self.takes_time = self.open == 0 && TAKE_TIME.iter().any(|name| is(name));
                if !self.has_begun {
                    self.has_begun = true;
                    self.is_set = is("set");
                    self.definition = (is("create") || is("alter")).then(Definition::default);
                }
                self.is_limit = is("limit") || is("offset");
            }
            Kind::Variable => self.is_user_variable = !part.starts_with(b"@@"),
            Kind::Semicolon => *self = Self::default(),
            // It may contain the end of the statement: treat everything from here on as data.
            Kind::Disputed => *self = Self { has_begun: true, ..Self::default() },
            Kind::Comma | Kind::Placeholder if self.is_limit => {}
            Kind::Comma => self.is_user_variable = false,
            Kind::Number if self.is_limit || is_form || self.open > 0 => return true,
            Kind::Number | Kind::Bits | Kind::String | Kind::Unterminated => {
                return self.is_set && !self.is_user_variable;
            }
            _ => self.is_limit = false,
        }
        false
    }
}

/// Numbers without end that only who has the key can foretell.
struct Draw(u64);

impl Draw {
    /// For one value of one kind.
    fn new(key: &[u8; 32], kind: u8, value: impl Iterator<Item = u8>) -> Self {
        let hash = keyed(key, kind, value);
        Self(hash.iter().take(8).fold(0, |number, &byte| (number << 8) | u64::from(byte)))
    }

    /// The next number below `limit` (splitmix64).
    fn below(&mut self, limit: u8) -> u8 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        // The high half times the limit: even to one in 2^24.
        (((mixed >> 32) * u64::from(limit)) >> 32) as u8
    }

    fn digit(&mut self) -> u8 {
        b'0' + self.below(10)
    }
}

/// A decimal number: other digits, none in front that was not there, and zero stays zero.
fn number(key: &[u8; 32], part: &mut [u8]) {
    let mantissa = part.iter().position(|byte| byte | 0x20 == b'e').unwrap_or(part.len());
    if pseudonyms::digits(key, &mut part[..mantissa]) {
        return;
    }
    let mut draw = Draw::new(key, b'n', part.iter().copied());
    let mut leads = true;
    for byte in &mut part[..mantissa] {
        match byte {
            b'0' if leads => {}
            b'1'..=b'9' if leads => {
                *byte = b'1' + draw.below(9);
                leads = false;
            }
            b'0'..=b'9' => *byte = draw.digit(),
            _ => {}
        }
    }
}

/// The digits of `0x..` or `0b..`, from the letter on.
fn digits_of_bits(key: &[u8; 32], part: &mut [u8]) {
    let is_hex = part[0] | 0x20 == b'x';
    let mut draw = Draw::new(key, b'h', part[1..].iter().map(u8::to_ascii_lowercase));
    for byte in part[1..].iter_mut().filter(|byte| byte.is_ascii_alphanumeric()) {
        *byte = if is_hex { hex(*byte, &mut draw) } else { b'0' + draw.below(2) };
    }
}

fn hex(byte: u8, draw: &mut Draw) -> u8 {
    match byte {
        b'0'..=b'9' => draw.digit(),
        b'A'..=b'Z' => b'A' + draw.below(6),
        b'a'..=b'z' => b'a' + draw.below(6),
        other => other,
    }
}

/// A string with its quotes and prefix.
fn quoted(key: &[u8; 32], part: &mut [u8]) {
    let Some(quote) = part.iter().position(|byte| matches!(byte, b'\'' | b'"')) else {
        return plain(key, part, false);
    };
    if part[0] == b'$' {
        // Between dollar tags, whose letters stay.
        let tag = 2 + part[1..].iter().position(|&byte| byte == b'$').unwrap_or(0);
        let end = part.len().saturating_sub(tag).max(tag);
        return plain(key, &mut part[tag..end], false);
    }
    if quote == 1 && matches!(part[0] | 0x20, b'x' | b'b') {
        // As `0x..`: the letter in front of the digits.
        let end = part.len() - usize::from(part.len() > 2 && part[part.len() - 1] == part[1]);
        let (letter, mark) = (part[0], part[1]);
        part[1] = letter;
        digits_of_bits(key, &mut part[1..end]);
        part[1] = mark;
        return;
    }
    let mark = part[quote];
    let is_closed = part.len() > quote + 1 && part.last() == Some(&mark);
    let end = part.len() - usize::from(is_closed);
    content(key, &mut part[quote + 1..end], false);
}

/// What stands in quotes, by its form.
fn content(key: &[u8; 32], text: &mut [u8], in_json: bool) {
    if text.is_empty() || text == b"0000-00-00" || text == b"0000-00-00 00:00:00" {
        return;
    }
    if is_number(text) {
        let sign = usize::from(text[0] == b'-');
        number(key, &mut text[sign..]);
    } else if is_date(text) {
        date(key, text);
    } else if is_time(text) {
        time(key, text);
    } else if text.len() >= 16
        && text.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
        && text.iter().any(u8::is_ascii_digit)
    {
        if !pseudonyms::letters(key, text, 6) {
            let mut draw = Draw::new(key, b's', text.iter().map(u8::to_ascii_lowercase));
            text.iter_mut().for_each(|byte| *byte = hex(*byte, &mut draw));
        }
    } else if (!json_shape(text) || !json(key, text)) && !path(key, text) {
        plain(key, text, in_json);
    }
}

fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let points = digits.iter().filter(|&&byte| byte == b'.').count();
    let is_digits = digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    is_digits && points <= 1 && digits.len() > points && !digits.is_empty()
}

fn fits(text: &[u8], form: &[u8]) -> bool {
    text.len() >= form.len()
        && form.iter().zip(text).all(|(form, byte)| match form {
            b'd' => byte.is_ascii_digit(),
            form => form == byte,
        })
}

/// `2020-01-31`, and a time behind it.
fn is_date(text: &[u8]) -> bool {
    fits(text, b"dddd-dd-dd")
        && (text.len() == 10 || matches!(text[10], b' ' | b'T') && is_time(&text[11..]))
        && text[5..7] <= b"12"[..]
        && text[8..10] <= b"31"[..]
}

/// `23:59` or `23:59:59.999`
fn is_time(text: &[u8]) -> bool {
    let is_short = text.len() == 5 && fits(text, b"dd:dd");
    let is_long = fits(text, b"dd:dd:dd")
        && (text.len() == 8 || text[8] == b'.' && text[9..].iter().all(u8::is_ascii_digit));
    (is_short || is_long) && text[..2] <= b"23"[..] && text[3..5] <= b"59"[..]
}

fn two_digits(text: &mut [u8], number: u8) {
    text[0] = b'0' + number / 10;
    text[1] = b'0' + number % 10;
}

fn date(key: &[u8; 32], text: &mut [u8]) {
    if text.len() > 10 {
        time(key, &mut text[11..]);
    }
    if pseudonyms::date(key, &mut text[..10]) {
        return;
    }
    let mut draw = Draw::new(key, b'd', text[..10].iter().copied());
    // The years of TIMESTAMP, the days of every month.
    let year = 71 + draw.below(66);
    text[..2].copy_from_slice(if year >= 100 { b"20" } else { b"19" });
    two_digits(&mut text[2..4], year % 100);
    two_digits(&mut text[5..7], 1 + draw.below(12));
    two_digits(&mut text[8..10], 1 + draw.below(28));
}

fn time(key: &[u8; 32], text: &mut [u8]) {
    if text.iter().all(|byte| matches!(byte, b'0' | b':' | b'.')) {
        // Midnight says that there is no time.
        return;
    }
    if pseudonyms::time(key, text) {
        return;
    }
    let mut draw = Draw::new(key, b't', text.iter().copied());
    two_digits(&mut text[..2], draw.below(24));
    two_digits(&mut text[3..5], draw.below(60));
    if text.len() > 5 {
        two_digits(&mut text[6..8], draw.below(60));
        text[8..].iter_mut().filter(|byte| byte.is_ascii_digit()).for_each(|byte| *byte = draw.digit());
    }
}

/// Any text, character by character.
fn plain(key: &[u8; 32], text: &mut [u8], in_json: bool) {
    if pseudonyms::letters(key, text, 26) {
        return;
    }
    let mut draw = Draw::new(key, b's', text.iter().map(u8::to_ascii_lowercase));
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        match byte {
            b'a'..=b'z' => text[at] = b'a' + draw.below(26),
            b'A'..=b'Z' => text[at] = b'A' + draw.below(26),
            b'0'..=b'9' => text[at] = draw.digit(),
            // An escape is no letter. JSON's have their backslash twice.
            b'\\' if in_json && text[at..].starts_with(b"\\\\u") && text.len() >= at + 7 => {
                other_escape(&mut text[at + 3..at + 7], &mut draw);
                at += 6;
            }
            b'\\' if in_json && text[at..].starts_with(b"\\\\") => at += 2,
            b'\\' => {
                at += 1;
                if let Some(escaped) = text.get_mut(at)
                    && escaped.is_ascii_alphanumeric()
                    && !matches!(*escaped, b'n' | b't' | b'r' | b'b' | b'0' | b'Z')
                {
                    *escaped = b'x';
                }
            }
            0x80.. => {
                let length = utf8_length(&text[at..]);
                other_character(&mut text[at..at + length], &mut draw);
                at += length;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// How long a character is; 1 for what is none.
fn utf8_length(text: &[u8]) -> usize {
    let length = match text[0] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if text.get(..length).is_some_and(|character| std::str::from_utf8(character).is_ok()) {
        length
    } else {
        1
    }
}

fn other_character(character: &mut [u8], draw: &mut Draw) {
    match character {
        // à to þ
        [first, second] => (*first, *second) = (0xC3, 0xA0 + draw.below(31)),
        // U+5000 to U+8FFF
        [first, second, third] => {
            (*first, *second, *third) = (0xE5 + draw.below(4), 0x80 + draw.below(64), 0x80 + draw.below(64));
        }
        // U+1F600 to U+1F63F
        [first, second, third, fourth] => {
            (*first, *second, *third, *fourth) = (0xF0, 0x9F, 0x98, 0x80 + draw.below(64));
        }
        other => other.fill(b'x'),
    }
}

/// The four digits of JSON's `\u`: Cyrillic, or the halves of U+1F600 to U+1F63F.
fn other_escape(digits: &mut [u8], draw: &mut Draw) {
    let digit = |number: u8| b"0123456789abcdef"[usize::from(number)];
    let is_surrogate = digits[0] | 0x20 == b'd' && digits[1].to_ascii_lowercase() >= b'8';
    let (start, third): (&[u8], u8) = match (is_surrogate, digits[1].to_ascii_lowercase() >= b'c') {
        (true, false) => return digits.copy_from_slice(b"d83d"),
        (true, true) => (b"de", digit(draw.below(4))),
        (false, _) => (b"04", b'3'),
    };
    digits[..2].copy_from_slice(start);
    (digits[2], digits[3]) = (third, digit(draw.below(16)));
}

fn json_shape(text: &[u8]) -> bool {
    let trimmed = text.trim_ascii();
    matches!((trimmed.first(), trimmed.last()), (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')))
}

/// JSON, as written in a string of SQL: `"` may have a backslash in front. False, and nothing changed, if it is none.
fn json(key: &[u8; 32], text: &mut [u8]) -> bool {
    let first = text.iter().position(|&byte| byte == b'"').unwrap_or(0);
    let mark: &[u8] = if first > 0 && text[first - 1] == b'\\' { b"\\\"" } else { b"\"" };
    // Twice: the first time only to see whether all of it can be read.
    for is_real in [false, true] {
        let mut at = 0;
        while at < text.len() {
            let end = if text[at..].starts_with(mark) {
                let start = at + mark.len();
                let Some(end) = json_string_end(text, start, mark) else { return false };
                if is_real {
                    content(key, &mut text[start..end], true);
                }
                end + mark.len()
            } else if text[at].is_ascii_digit() {
                let end = end_of(text, at, |byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-')
                });
                if is_real {
                    number(key, &mut text[at..end]);
                }
                end
            } else if text[at].is_ascii_alphabetic() {
                let end = end_of(text, at, |byte| byte.is_ascii_alphanumeric());
                if !matches!(&text[at..end], b"true" | b"false" | b"null") {
                    return false;
                }
                end
            } else if matches!(
                text[at],
                b'{' | b'}' | b'[' | b']' | b':' | b',' | b'-' | b' ' | b'\n' | b'\t' | b'\r'
            ) {
                at + 1
            } else if text[at] == b'\\' && matches!(text.get(at + 1), Some(b'n' | b't' | b'r')) {
                at + 2
            } else {
                return false;
            };
            at = end;
        }
    }
    true
}

fn end_of(text: &[u8], at: usize, inside: impl Fn(u8) -> bool) -> usize {
    text[at..].iter().position(|&byte| !inside(byte)).map_or(text.len(), |length| at + length)
}

fn find(text: &[u8], what: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find(&text[from..], what).map(|length| from + length)
}

/// Where a string of JSON ends: escapes in it have two backslashes, one for SQL.
fn json_string_end(text: &[u8], from: usize, mark: &[u8]) -> Option<usize> {
    let mut at = from;
    while at < text.len() {
        if text[at..].starts_with(mark) {
            return Some(at);
        }
        if text[at..].starts_with(b"\\\\") {
            // The pair, and the escape's letter or the pair in front of a quote.
            at += 2;
            at += if text.get(at) == Some(&b'\\') { 2 } else { 1 };
        } else if text[at] == b'\\' {
            at += 2;
        } else {
            at += 1;
        }
    }
    None
}

/// A path of JSON (`$.name[0]."other name"`): its names as those of the documents. False if it is none.
fn path(key: &[u8; 32], text: &mut [u8]) -> bool {
    if text[0] != b'$' || !matches!(text.get(1), None | Some(b'.' | b'[')) {
        return false;
    }
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'[' => at = end_of(text, at, |byte| byte != b']'),
            b'"' => {
                let Some(end) = find(text, b"\"", at + 1) else {
                    plain(key, &mut text[at..], false);
                    return true;
                };
                content(key, &mut text[at + 1..end], false);
                at = end + 1;
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80 => {
                let end =
                    end_of(text, at, |byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80);
                content(key, &mut text[at..end], false);
                at = end;
            }
            _ => at += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{anonymise, kept_placeholders};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    fn anonymous(text: &str) -> String {
        let mut out = Vec::new();
        anonymise(text.as_bytes(), &[7; 32], &mut out);
        String::from_utf8(out).unwrap()
    }

    fn literal(text: &str) -> String {
        let whole = anonymous(&format!("select {text}"));
        whole.strip_prefix("select ").unwrap().to_owned()
    }

    #[test]
    fn forms_stay() {
        let form = |text: &str| -> String {
            text.chars()
                .map(|letter| match letter {
                    'a'..='z' => 'a',
                    'A'..='Z' => 'A',
                    '0'..='9' => '0',
                    other => other,
                })
                .collect()
        };
        for text in [
            "'Bob Miller'",
            "'it''s'",
            r"'a\nb\\\'c'",
            "'50%_x%'",
            "12345",
            "1.50",
            "'bob@example.com'",
            "N'abc'",
            "x'4D4A'",
            "0xDEADBEEF",
            "b'0101'",
            "-17.25",
            "_utf8mb4'abc'",
            "\"say \"\"hi\"\"\"",
            "$$ let a = 'secret' $$",
            r#"'{"name": "Bob", "age": 42, "ok": true, "tags": ["a", null, -1.5]}'"#,
            "'$.name[3].\"last name\"'",
        ] {
            let out = literal(text);
            assert_ne!(out, text);
            if !text.contains("0xDEAD") && !text.contains("x'4D") {
                assert_eq!(form(&out), form(text), "{text} -> {out}");
            }
            assert_eq!(out.len(), text.len());
        }
        for text in [
            "select 0, NULL, true, `a1` from t1 limit 10, 20",
            "SET NAMES 'utf8mb4'",
            "create table t (a varchar(10), b decimal(10, 2) not null, c datetime(6) default current_timestamp(6), \
             unique key k (`a`(20), b), primary key (b)) key_block_size=8 partition by hash (b) partitions 16",
            "alter table t add d varchar(100), add index (d(12))",
        ] {
            assert_eq!(anonymous(text), text);
        }
        for text in [
            "create table t (a int default 41414141)",
            "create table t (a int, check (a > 41414141 and f(41414141) = 1))",
            "alter table t add constraint check (a in (41414141))",
            "create table t (a int, b int as (a + 41414141), key (a))",
            "create table t (a int) auto_increment=41414141 partition by list (a) (partition p values in (5, 41414141))",
            "alter table t add partition (partition p values less than (41414141))",
            "create view v as select * from t where a = 41414141",
        ] {
            let shown = anonymous(text);
            assert!(!shown.contains("41414141") && shown.len() == text.len(), "{shown}");
        }
        assert_eq!(anonymous("select /* bob */ a -- eve\n from t"), "select   a  \n from t");
    }

    #[test]
    fn the_same_value_has_one_pseudonym() {
        assert_eq!(literal("'12345'"), format!("'{}'", literal("12345")));
        assert_eq!(literal("'bob'").to_lowercase(), literal("'Bob'").to_lowercase());
        let (name, path) = (literal(r#"'{"surname": 1}'"#), literal("'$.surname'"));
        assert!(name.contains(path.trim_matches(['\'', '$', '.'])), "{name} {path}");
        let mut other = Vec::new();
        anonymise(b"select 'a name'", &[8; 32], &mut other);
        assert_ne!(anonymous("select 'a name'").as_bytes(), other);
    }

    #[test]
    fn parameters_that_are_no_data() {
        let found = |text: &str| kept_placeholders(text.as_bytes());
        assert_eq!(found("select sleep(?), a from t where b = ? limit ?, ?"), [true, false, true, true]);
        assert_eq!(
            found("select get_lock(?, ?), (?), benchmark(? + (?), a)"),
            [true, true, false, true, true]
        );
        assert_eq!(found("select ? from t limit 5 offset ?"), [false, true]);
        assert_eq!(found("select sleep from t where a in (?); select ?"), [false, false]);
        assert!(found("select 1").is_empty());
    }

    #[test]
    fn nothing_takes_longer() {
        let text = "select sleep(5), benchmark(100000, sha1('x')), get_lock('z', 10), (7)";
        let hidden = anonymous(text);
        assert!(
            hidden.starts_with("select sleep(5), benchmark(100000, sha1(") && hidden.contains(", 10), (")
        );
        assert_eq!(anonymous("select sleep from t where a = 71234567").len(), 38);
        assert!(!anonymous("select sleep from t where a in (71234567)").contains("71234567"));
    }

    #[test]
    fn json_stays_json() {
        let document =
            r#"{"a\u00e9": "b\"c", "n": [1, 20, -0.5, 1e10, 100], "é": {"x": "2020-01-31"}, "t": false}"#;
        let sql = document.replace('\\', "\\\\");
        for (sql, unescape) in [(sql.clone(), false), (sql.replace('"', "\\\""), true)] {
            let out = literal(&format!("'{sql}'"));
            let mut json = out.trim_matches('\'').to_owned();
            if unescape {
                json = json.replace("\\\"", "\"");
            }
            json = json.replace("\\\\", "\\");
            serde_json::from_str::<serde_json::Value>(&json)
                .unwrap_or_else(|error| panic!("{error}: {json}"));
            assert_ne!(json, document);
        }
    }

    proptest! {
        #[test]
        fn dates_stay_dates(year in 1000..9999, month in 1..=12, day in 1..=28, time in any::<Option<(u8, u8, u8)>>()) {
            let time = time.map(|(h, m, s)| format!(" {:02}:{:02}:{:02}.250", h % 24, m % 60, s % 60)).unwrap_or_default();
            let out = literal(&format!("'{year:04}-{month:02}-{day:02}{time}'"));
            let numbers: Vec<u32> =
                out.trim_matches('\'').split(['-', ' ', ':', '.']).map(|part| part.parse().unwrap()).collect();
            // What fits a TIMESTAMP still does.
            prop_assert!(!(1971..=2037).contains(&year) || (1970..=2038).contains(&numbers[0]));
            prop_assert!( (1..=12).contains(&numbers[1]) && (1..=31).contains(&numbers[2]));
            if !time.is_empty() {
                prop_assert!(numbers[3] < 24 && numbers[4] < 60 && numbers[5] < 60 && out.len() == 25);
            }
        }

        #[test]
        fn lengths_stay_and_nothing_fails(text in any::<Vec<u8>>(), word in "[a-z]{12,40}") {
            let mut out = Vec::new();
            anonymise(&text, &[1; 32], &mut out);
            let quoted = format!("'{word}'");
            let hidden = literal(&quoted);
            prop_assert_eq!(hidden.len(), quoted.len());
            prop_assert!(!hidden.contains(&word));
        }
    }
}
