//! Statements that differ in nothing but plain literals have one strict fingerprint: it is looked up, not made again.
//!
//! A shape is the text of a statement in which some parts may vary: numbers and strings, lists of them behind IN, and
//! what is in a comment. All other bytes are compared, so two classes are never taken for one. What a lexer has to think
//! about (a backslash, a byte beyond ASCII in a string, any literal of another form) has no shape: such a statement
//! is read token by token. Whoever changes `lexer` or `strict` so that the fingerprint depends on what is in a literal
//! must take that literal out of here; a property below compares the two.

use memchr::{memchr2, memmem};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::classes::IN_WORD;
use super::lexer::{Kind, Lexer, Token};

/// Longer statements, and those of more parts, are as fast to read as to compare.
const LONGEST: usize = 16 << 10;
const MOST_PARTS: usize = 64;
/// Deeper in parentheses a list is no list for the fingerprint.
const DEEPEST_LIST: usize = 8;
/// So much of the beginning finds the shapes to compare.
const KEY_BYTES: usize = 40;
/// Shapes of one beginning that are compared.
const MOST_TRIED: usize = 16;
/// Bounds of memory.
const MOST_SHAPES: usize = 1 << 15;
const MOST_BYTES: usize = 8 << 20;

/// Bytes that may begin what varies.
const MAY_VARY: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut digit = b'0';
    while digit <= b'9' {
        bytes[digit as usize] = true;
        digit += 1;
    }
    bytes[b'\'' as usize] = true;
    bytes[b'/' as usize] = true;
    bytes
};

/// What may vary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gap {
    /// Nothing: the statement ends.
    End,
    /// `1`, `1.5`
    Number,
    /// `'it''s'`
    Text,
    /// One or more of these, with commas and spaces between.
    List,
    /// What is between `/*` and `*/`.
    Comment,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    hash: u64,
    /// Where the shape begins, and 1; 0 for no entry.
    shape: u32,
    value: u32,
}

/// Shapes of statements, each with a number that the caller gave it.
#[derive(Default)]
pub struct Shapes {
    /// For each part its length, its bytes, and the gap behind it.
    bytes: Vec<u8>,
    /// Open addressing; a power of two.
    table: Vec<Entry>,
    count: usize,
    seed: u64,
}

impl std::fmt::Debug for Shapes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shapes").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Shapes {
    /// The seed keeps strangers from choosing what collides.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The number of a statement's shape, if it was learnt.
    #[inline]
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        self.find_hashed(text, self.hash(text))
    }

    /// Looks at the place at which a statement with this hash is looked for first: what that gives, `touch` takes. Who asks
    /// for several does not wait for the memory of each.
    #[inline]
    #[must_use]
    pub fn touch_place(&self, hash: u64) -> u32 {
        let mask = self.table.len().wrapping_sub(1);
        self.table.get(hash as usize & mask).map_or(0, |entry| entry.shape)
    }

    /// Looks at the shape that is there.
    #[inline]
    #[must_use]
    pub fn touch(&self, place: u32) -> u8 {
        self.bytes.get((place as usize).wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// The same as `find`, with the hash of the statement.
    #[inline]
    #[must_use]
    pub fn find_hashed(&self, text: &[u8], hash: u64) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        for _ in 0..MOST_TRIED {
            let entry = self.table[at];
            if entry.shape == 0 {
                return None;
            }
            if entry.hash == hash && is_of(&self.bytes[entry.shape as usize - 1..], text) {
                return Some(entry.value);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Learns the shape of a statement whose class has this number; false for one that has none.
    pub fn learn(&mut self, text: &[u8], value: u32) -> bool {
        if text.len() > LONGEST || self.count >= MOST_SHAPES || self.bytes.len() > MOST_BYTES {
            return false;
        }
        let start = self.bytes.len();
        if write_shape(text, &mut self.bytes).is_none() || !is_of(&self.bytes[start..], text) {
            self.bytes.truncate(start);
            return false;
        }
        if 2 * (self.count + 1) > self.table.len() {
            let length = (2 * self.table.len()).max(64);
            for entry in std::mem::replace(&mut self.table, vec![Entry::default(); length]) {
                if entry.shape > 0 {
                    self.put(entry);
                }
            }
        }
        self.count += 1;
        self.put(Entry { hash: self.hash(text), shape: start as u32 + 1, value });
        true
    }

    fn put(&mut self, entry: Entry) {
        let mask = self.table.len() - 1;
        let mut at = entry.hash as usize & mask;
        while self.table[at].shape > 0 {
            at = (at + 1) & mask;
        }
        self.table[at] = entry;
    }

    /// Of the beginning of a statement, behind its first comment, up to what may vary. The same for all of a shape.
    #[inline]
    #[must_use]
    pub fn hash(&self, text: &[u8]) -> u64 {
        let start = match text {
            [b'/', b'*', ..] => memmem::find(&text[2..], b"*/").map_or(text.len(), |at| at + 4),
            _ => 0,
        };
        let key = &text[start..text.len().min(start + KEY_BYTES)];
        let follows_word = |at: usize| at > 0 && IN_WORD[usize::from(key[at - 1])];
        let varies =
            |at: &usize| MAY_VARY[usize::from(key[*at])] && !(key[*at].is_ascii_digit() && follows_word(*at));
        let end = (0..key.len()).find(varies).unwrap_or(key.len());
        xxh3_64_with_seed(&key[..end], self.seed)
    }
}

/// Whether a statement has the shape that begins `shape`.
#[inline]
fn is_of(mut shape: &[u8], text: &[u8]) -> bool {
    let mut at = 0;
    loop {
        let Some(([low, high, gap], rest)) = shape.split_first_chunk::<3>() else { return false };
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (Some(part), Some(found)) = (rest.get(..length), text.get(at..at + length)) else { return false };
        if part != found {
            return false;
        }
        at += length;
        shape = &rest[length..];
        let end = match *gap {
            gap if gap == Gap::End as u8 => return at == text.len(),
            gap if gap == Gap::Number as u8 => number_end(text, at),
            gap if gap == Gap::Text as u8 => string_end(text, at),
            gap if gap == Gap::List as u8 => list_end(text, at),
            _ => comment_end(text, at),
        };
        match end {
            Some(end) => at = end,
            None => return false,
        }
    }
}

/// The end of a number with a digit at its beginning and nothing behind it that could belong to it.
#[inline]
fn number_end(text: &[u8], at: usize) -> Option<usize> {
    let digits_end = |mut at: usize| {
        while text.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = digits_end(at);
    if end == at {
        return None;
    }
    if text.get(end) == Some(&b'.') {
        end = digits_end(end + 1);
    }
    let goes_on = text.get(end).is_some_and(|byte| IN_WORD[usize::from(*byte)] || *byte == b'.');
    (!goes_on).then_some(end)
}

/// The end of a string in single quotes that every reading sees at one place.
#[inline]
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at) != Some(&b'\'') {
        return None;
    }
    let mut end = at + 1;
    loop {
        end += memchr2(b'\'', b'\\', text.get(end..)?)?;
        if text[end] == b'\\' {
            return None;
        }
        end += 1;
        if text.get(end) != Some(&b'\'') {
            break;
        }
        end += 1;
    }
    // Right behind it there could be more of a literal.
    let goes_on =
        text.get(end).is_some_and(|byte| IN_WORD[usize::from(*byte)] || matches!(byte, b'"' | b'\\'));
    (!goes_on && text[at..end].is_ascii()).then_some(end)
}

#[inline]
fn list_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = number_end(text, at).or_else(|| string_end(text, at))?;
        let mut next = at;
        while text.get(next) == Some(&b' ') {
            next += 1;
        }
        if text.get(next) != Some(&b',') {
            return Some(at);
        }
        next += 1;
        while text.get(next) == Some(&b' ') {
            next += 1;
        }
        at = next;
    }
}

/// Where `*/` begins. What is executable, or a hint, is no comment.
#[inline]
fn comment_end(text: &[u8], at: usize) -> Option<usize> {
    if matches!(text.get(at), None | Some(b'!' | b'M' | b'm' | b'+')) {
        return None;
    }
    memmem::find(&text[at..], b"*/").map(|length| at + length)
}

/// Appends the shape of a statement, if it has one.
fn write_shape(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut lexer = Lexer::new(text);
    let mut tokens = Vec::new();
    let mut depth = 0_usize;
    while let Some(token) = lexer.next() {
        if lexer.is_executable() || !may_be_fixed(token.kind) && !is_plain(text, token) {
            return None;
        }
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        tokens.push((token, depth));
    }
    if lexer.doubtful_at().is_some() {
        return None;
    }
    let mut shape = Writer { text, from: 0, parts: 0, out };
    let (mut at, mut end) = (0, 0);
    while let Some(&(token, depth)) = tokens.get(at) {
        shape.comments(end, token.start)?;
        let listed = is_list(text, &tokens[..at], depth).then(|| list_length(&tokens[at..])).flatten();
        if let Some(length) = listed {
            end = tokens[at + length - 1].0.end;
            shape.gap(token.start, end, Gap::List)?;
            at += length;
            continue;
        }
        end = token.end;
        match token.kind {
            Kind::Number => shape.gap(token.start, end, Gap::Number)?,
            Kind::String => shape.gap(token.start, end, Gap::Text)?,
            _ => {}
        }
        at += 1;
    }
    shape.comments(end, text.len())?;
    shape.gap(text.len(), text.len(), Gap::End)
}

/// Whether a token's bytes are compared.
fn may_be_fixed(kind: Kind) -> bool {
    use Kind::{
        Close, Comma, Dot, List, Open, Operator, Placeholder, Quoted, Semicolon, Sign, Variable, Word,
    };
    matches!(
        kind,
        Word | Quoted
            | Placeholder
            | List
            | Variable
            | Open
            | Close
            | Comma
            | Dot
            | Semicolon
            | Sign
            | Operator
    )
}

/// Whether a token is a literal that may vary.
fn is_plain(text: &[u8], token: Token) -> bool {
    match token.kind {
        Kind::Number => number_end(text, token.start) == Some(token.end),
        Kind::String => string_end(text, token.start) == Some(token.end),
        _ => false,
    }
}

/// Whether a list of IN begins behind these tokens.
fn is_list(text: &[u8], before: &[(Token, usize)], depth: usize) -> bool {
    let [rest @ .., (word, _), (open, _)] = before else { return false };
    open.kind == Kind::Open
        && depth <= DEEPEST_LIST
        && word.kind == Kind::Word
        && text[word.start..word.end].eq_ignore_ascii_case(b"in")
        && rest.last().is_some_and(|(token, _)| matches!(token.kind, Kind::Word | Kind::Quoted))
}

/// How many tokens a list takes that has nothing but values and ends with its parenthesis.
fn list_length(tokens: &[(Token, usize)]) -> Option<usize> {
    let mut length = 0;
    loop {
        let (value, _) = tokens.get(length)?;
        if !matches!(value.kind, Kind::Number | Kind::String) {
            return None;
        }
        length += 1;
        match tokens.get(length)?.0.kind {
            Kind::Comma => length += 1,
            Kind::Close => return Some(length),
            _ => return None,
        }
    }
}

struct Writer<'a> {
    text: &'a [u8],
    /// Where the part begins that is not written yet.
    from: usize,
    parts: usize,
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    /// Writes the part up to `start`; what is between `start` and `end` may vary.
    fn gap(&mut self, start: usize, end: usize, gap: Gap) -> Option<()> {
        self.parts += 1;
        let part = self.text.get(self.from..start)?;
        if self.parts > MOST_PARTS {
            return None;
        }
        self.out.extend_from_slice(&u16::try_from(part.len()).ok()?.to_le_bytes());
        self.out.push(gap as u8);
        self.out.extend_from_slice(part);
        self.from = end;
        Some(())
    }

    /// Comments between two tokens: what is in them may vary. Those that end with their line are compared.
    fn comments(&mut self, from: usize, to: usize) -> Option<()> {
        let mut at = from;
        while at < to {
            match &self.text[at..to] {
                [b'/', b'*', ..] => {
                    let end = comment_end(self.text, at + 2)?;
                    self.gap(at + 2, end, Gap::Comment)?;
                    at = end + 2;
                }
                [b'#' | b'-', rest @ ..] => {
                    at += 1 + memchr::memchr(b'\n', rest)? + 1;
                }
                _ => at += 1,
            }
        }
        (at == to).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::Shapes;
    use crate::{Mode, fingerprint};
    use proptest::prelude::*;

    fn class(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        fingerprint(Mode::Strict, text.as_bytes(), false, &mut out);
        out
    }

    #[track_caller]
    fn knows(learnt: &str, text: &str, expected: bool) {
        let mut shapes = Shapes::new(7);
        shapes.learn(learnt.as_bytes(), 3);
        assert_eq!(shapes.find(text.as_bytes()).is_some(), expected, "{learnt} and {text}");
        if expected {
            assert_eq!(class(learnt), class(text), "{learnt} and {text}");
        }
    }

    #[test]
    fn literals_and_comments_vary_and_nothing_else() {
        let select = "/* a:1 */ SELECT `c1`, t2.x FROM t2 WHERE id = 5 AND s='it''s' AND b IN (1, 2,'c')";
        knows(select, "/* b:22 */ SELECT `c1`, t2.x FROM t2 WHERE id = 57.5 AND s='' AND b IN ('x')", true);
        for other in [
            "/* b */ SELECT `c2`, t2.x FROM t2 WHERE id = 57 AND s='' AND b IN (1)",
            "/* b */ SELECT `c1`, t3.x FROM t2 WHERE id = 57 AND s='' AND b IN (1)",
            "/*! b */ SELECT `c1`, t2.x FROM t2 WHERE id = 57 AND s='' AND b IN (1)",
            "/* b */ SELECT `c1`, t2.x FROM t2 WHERE id = 57 AND s='' AND b IN (1, a)",
            "/* b */ SELECT `c1`, t2.x FROM t2 WHERE id = 57 AND s='' AND b IN ()",
            "/* b */ SELECT `c1`, t2.x FROM t2 WHERE id = 57e AND s='' AND b IN (1)",
            "/* b */ SELECT `c1`, t2.x FROM t2 WHERE id = 5 OR 6 AND s='' AND b IN (1)",
            r"/* b */ SELECT `c1`, t2.x FROM t2 WHERE id = 5 AND s='\'' AND b IN (1)",
            "/* b */ SELECT `c1`, t2.x FROM t2 WHERE id = 5 AND s='é' AND b IN (1)",
        ] {
            knows(select, other, false);
        }
        knows("select f(1)", "select f(1, 2)", false);
        knows("select 5", "select 5.e", false);
        knows("select 5", "select 5 ", false);
        for none in [
            "select 0x1f",
            "select x'00'",
            "select 'open",
            "select 1e5",
            "select \"a\"",
            "select '\\n'",
            "/*!1*/ select 1",
        ] {
            knows(none, none, false);
        }
    }

    /// Parts of statements that a lexer takes for something else beside each other.
    #[rustfmt::skip]
    const PARTS: &[&str] = &[
        "select", "in", "IN", "values", "(", ")", ",", ".", ";", "t1", "`a`", "`1'`", "@x", "@", "?", "?+", "-", "--", "-- c\n",
        "#", "# 'x\n", "/*", "*/", "/* 5 */", "/*!", "/*!50000", "'", "''", "'a'", "'b''c'", "'\\'", "'é'", "\"", "\"b\"",
        "$$", "$a$", "x'1f'", "N'a'", "_utf8", "0x1", "1", "23", "4.5", "6.", ".7", "8e1", "9_0", "1OR", "null", "is", "not",
        "union", "row", "=", "<", "\\N", "\\", " ", "  ", "\n", "é", "\0", "where id = 5 and b in (1, 2)", "limit 5, 6",
    ];

    fn statement() -> impl Strategy<Value = String> {
        let part = (0..PARTS.len(), any::<bool>());
        proptest::collection::vec(part, 1..14).prop_map(|parts| {
            parts
                .into_iter()
                .map(|(part, has_space)| format!("{}{}", PARTS[part], if has_space { " " } else { "" }))
                .collect()
        })
    }

    /// Another text with other numbers, strings and comments, where these seem to be.
    fn varied(text: &str, numbers: &[u16]) -> String {
        let mut out = String::new();
        let mut numbers = numbers.iter().cycle();
        for letter in text.chars() {
            let number = numbers.next().unwrap();
            match letter {
                '0'..='9' if number.is_multiple_of(3) => out.push_str(&number.to_string()),
                'a'..='c' if number.is_multiple_of(5) => {
                    out.push_str(PARTS[usize::from(*number) % PARTS.len()])
                }
                ')' if number.is_multiple_of(4) => out.push_str(", 7)"),
                letter => out.push(letter),
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_has_a_known_shape_is_of_its_class(
            first in statement(), second in statement(), numbers in proptest::collection::vec(any::<u16>(), 1..40),
        ) {
            for learnt in [&first, &format!("select c from t where id = {}", first), &format!("select a from t where x in (1, 2) and {first} = 5")] {
                let mut shapes = Shapes::new(1);
                shapes.learn(learnt.as_bytes(), 1);
                for text in [learnt.clone(), varied(learnt, &numbers), second.clone(), format!("{second}{first}")] {
                    if shapes.find(text.as_bytes()).is_some() {
                        prop_assert_eq!(class(learnt), class(&text), "{:?} and {:?}", learnt, text);
                    }
                }
            }
        }
    }
}
