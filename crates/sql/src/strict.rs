//! The strict fingerprint: a statement's tokens in one canonical form, every value a `?`.
//!
//! - Whatever is not quoted is in lower case; names in backticks are kept as written, backticks included.
//! - Comments and hints are dropped; what executable comments hold stays.
//! - Signs in front of a value, charset introducers and neighbours of a string belong to the value. NULL, TRUE and
//!   FALSE are values except behind IS and NOT.
//! - Values that follow each other in parentheses become `?+`; so does a single one in the lists of IN and VALUES.
//!   Of VALUES only the first row is kept; of equal elements of an IN list only the first.
//! - UNIONs with the same SELECT, and repeated statements, are kept twice at most.
//!
//! A fingerprint is its own fingerprint. It is never longer than twice its text and a few bytes.

use memchr::memmem;

use super::finder::has_quoted_names;
use super::lexer::{Kind, Lexer, Token};
use super::names::{Named, may_have_names};
use super::readings::Tokens;
use super::words::{comes_before_operand, comes_before_parenthesis, ends_with_values, lower_onto};

/// Deeper parentheses are kept as they are; their lists are not looked at.
const DEPTH: usize = 16;
/// Elements of an IN list are looked for among those before while these are no longer than this: hostile lists of
/// a million different elements cost no more than others.
const SEARCHED: usize = 1024;

/// Replaces what `out` holds by the fingerprint of `text`. `is_cut` says that the text may end before its statement does.
/// True for a text of one reading, without names that are values by their place: what is in its literals changes nothing.
pub fn fingerprint(text: &[u8], is_cut: bool, out: &mut Vec<u8>) -> bool {
    out.clear();
    // No server takes statements over 1 GiB: positions fit 32 bits.
    let text = &text[..text.len().min(1 << 30)];
    let mut lexer = Lexer::new(text);
    let mut writer = Writer::new(text, out);
    while let Some(token) = lexer.next() {
        writer.token(token, &mut lexer);
    }
    writer.finish();
    let has_doubt = lexer.doubtful_at().is_some() || writer.may_have_names;
    let is_close = has_doubt || writer.may_have_quoted_names && has_quoted_names(Lexer::new(text), text);
    if is_close {
        closely(text, is_cut, out);
    }
    !is_close
}

/// The fingerprint of a text that has names by their place, or several readings: of what all of these agree on. What they
/// do not is a value, and may be anything.
#[cold]
fn closely(text: &[u8], is_cut: bool, out: &mut Vec<u8>) {
    out.clear();
    let mut tokens = Named::new(text, is_cut);
    let mut writer = Writer::new(text, out);
    while let Some(token) = tokens.next() {
        writer.token(token, &mut tokens);
    }
    writer.finish();
}

/// Whether a backtick behind a byte of a name may be taken for the second half of a character, as in GBK and Shift-JIS: no
/// double quote can be. Then the name would end elsewhere than it does.
#[cold]
fn would_swallow_backtick(name: &[u8], text: &[u8]) -> bool {
    let is_before = |at: usize| name.get(at + 1).is_none_or(|next| *next == b'`');
    let is_open = name.iter().enumerate().any(|(at, byte)| !byte.is_ascii() && is_before(at));
    is_open && std::str::from_utf8(text).is_err()
}

/// What was written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Start,
    Word,
    /// A quoted name or a variable.
    Name,
    Literal,
    /// `?+`
    List,
    Open,
    Close,
    Comma,
    Dot,
    At,
    /// A sign of what follows, not between two operands.
    Unary,
    Operator,
    /// Not written yet: nothing may follow.
    Semicolon,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Other,
    /// `in (`
    In,
    /// A row of `values`.
    Row,
}

/// One open parenthesis; the first is the statement itself.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    inside: Inside,
    /// Where its first and its last element begin in the fingerprint.
    first: u32,
    element: u32,
    /// Where the last two `union ...` begin; 0 for none.
    union_before: u32,
    union: u32,
}

struct Writer<'a> {
    text: &'a [u8],
    out: &'a mut Vec<u8>,
    last: Last,
    frames: [Frame; DEPTH],
    depth: usize,
    /// The last word: where its space began, where it began itself, and what was before it.
    word_space: usize,
    word: usize,
    before_word: Last,
    /// Where unary signs began, and what was before them.
    signs: usize,
    before_signs: Last,
    /// The last value is a whole element so far; and right behind another one.
    whole: bool,
    joins: bool,
    /// Where the last comma is, and whether a value that was a whole element is right before it, or a row.
    comma: usize,
    follows_value: bool,
    follows_row: bool,
    /// The last parenthesis closed a row.
    row_closed: bool,
    /// Where the last two statements begin.
    statement_before: usize,
    statement: usize,
    /// A statement may have names that are values by their place; `"..."` may be a name.
    may_have_names: bool,
    may_have_quoted_names: bool,
}

impl<'a> Writer<'a> {
    fn new(text: &'a [u8], out: &'a mut Vec<u8>) -> Self {
        Self {
            text,
            out,
            last: Last::Start,
            frames: [Frame::default(); DEPTH],
            depth: 0,
            word_space: 0,
            word: 0,
            before_word: Last::Start,
            signs: 0,
            before_signs: Last::Start,
            whole: false,
            joins: false,
            comma: 0,
            follows_value: false,
            follows_row: false,
            row_closed: false,
            statement_before: 0,
            statement: 0,
            may_have_names: false,
            may_have_quoted_names: false,
        }
    }

    #[inline(always)]
    fn token(&mut self, token: Token, tokens: &mut impl Tokens) {
        match token.kind {
            Kind::Word => self.word(token),
            Kind::String => {
                if self.text[token.start] == b'"' {
                    self.double_quotes(token);
                }
                self.literal();
            }
            Kind::Unterminated
            | Kind::Account
            | Kind::Label
            | Kind::Disputed
            | Kind::Number
            | Kind::Bits
            | Kind::Null
            | Kind::Placeholder => self.literal(),
            Kind::List => self.list(),
            Kind::Quoted => self.quoted(token),
            Kind::Variable => {
                self.space();
                lower_onto(self.out, self.text, token.start, token.end);
                self.last = Last::Name;
            }
            Kind::At => {
                if !matches!(self.last, Last::Literal | Last::List | Last::Name) {
                    self.space();
                }
                self.out.push(b'@');
                self.last = Last::At;
            }
            Kind::Open => self.open(tokens),
            Kind::Close => self.close(),
            Kind::Comma => self.comma(),
            Kind::Dot => {
                self.write_semicolon();
                // Right behind a variable it would belong to the name.
                if self.last == Last::At || self.last == Last::Name && !self.out.ends_with(b"`") {
                    self.out.push(b' ');
                }
                self.out.push(b'.');
                self.last = Last::Dot;
            }
            Kind::Semicolon => self.semicolon(),
            Kind::Sign => self.sign(token),
            Kind::Operator | Kind::Stray => self.operator(token, Last::Operator),
        }
    }

    /// Takes back what was written from `end` on.
    #[inline(always)]
    fn cut(&mut self, end: usize) {
        self.out.truncate(end);
    }

    /// Writes the semicolon that something follows.
    #[inline(always)]
    fn write_semicolon(&mut self) {
        if self.last == Last::Semicolon {
            self.out.push(b';');
        }
    }

    /// The space in front of most tokens.
    #[inline(always)]
    fn space(&mut self) {
        match self.last {
            Last::Start | Last::Open | Last::Dot => {}
            Last::Semicolon => self.out.extend_from_slice(b"; "),
            _ => self.out.push(b' '),
        }
    }

    #[inline(always)]
    fn operator(&mut self, token: Token, last: Last) {
        self.space();
        self.out.extend_from_slice(&self.text[token.start..token.end]);
        self.last = last;
    }

    #[inline(always)]
    fn word(&mut self, token: Token) {
        let mut space = self.out.len();
        // Digits right behind a dot could be read as a number, were there no name in front of it.
        if self.last == Last::Dot && self.text[token.start].is_ascii_digit() && !self.dot_follows_name() {
            if self.out.ends_with(b"?.") {
                return self.literal();
            }
            self.out.push(b' ');
        } else {
            self.space();
        }
        let mut start = self.out.len();
        lower_onto(self.out, self.text, token.start, token.end);
        match &self.out[start..] {
            // Most words.
            word if !matches!(word.len(), 4..=6) => {}
            // A dot right behind it makes a name of it, and of what follows.
            b"null" | b"true" | b"false" if self.text.get(token.end) == Some(&b'.') => {}
            b"null" | b"true" | b"false" if self.last != Last::Dot && !self.is_behind_is() => {
                self.cut(space);
                return self.literal();
            }
            b"union" => {
                let dropped = self.union(space);
                (space, start) = (space - dropped, start - dropped);
            }
            b"select" if self.last == Last::Open && self.depth < DEPTH => {
                self.frames[self.depth].inside = Inside::Other;
            }
            _ => {}
        }
        if matches!(self.last, Last::Start | Last::Semicolon) {
            self.may_have_names |= may_have_names(&self.out[start..], &self.text[token.end..]);
        }
        let is_introducer = self.out.get(start) == Some(&b'_') && self.last != Last::Dot;
        // Introducers in a row go together, so that nothing is left of them.
        if !(is_introducer && self.last == Last::Word && self.out[self.word] == b'_') {
            self.before_word = self.last;
            self.word_space = space;
            self.word = start;
        }
        self.last = Last::Word;
    }

    fn dot_follows_name(&self) -> bool {
        let before = self.out[..self.out.len() - 1].last();
        before.is_some_and(|&byte| {
            byte == b'`' || byte == b'_' || byte == b'$' || byte >= 0x80 || byte.is_ascii_alphanumeric()
        })
    }

    fn is_behind_is(&self) -> bool {
        self.last == Last::Word && matches!(&self.out[self.word..self.word_end()], b"is" | b"not")
    }

    /// The end of the last word: what was written since may be a space and a word.
    fn word_end(&self) -> usize {
        self.out[self.word..].iter().position(|&byte| byte == b' ').map_or(self.out.len(), |n| self.word + n)
    }

    #[inline(always)]
    fn quoted(&mut self, token: Token) {
        if self.text[token.start] == b'"' {
            return self.double_quoted(token);
        }
        if self.last != Last::At {
            self.space();
        }
        self.out.extend_from_slice(&self.text[token.start..token.end]);
        self.last = Last::Name;
    }

    /// A name in double quotes, as if it were in backticks. No column is in VALUES and in lists of IN: there it is a value.
    #[cold]
    fn double_quoted(&mut self, token: Token) {
        let is_element = matches!(self.last, Last::Open | Last::Comma) && self.inside() != Inside::Other;
        let name = &self.text[token.start + 1..token.end - 1];
        if is_element || would_swallow_backtick(name, self.text) {
            return self.literal();
        }
        if self.last != Last::At {
            self.space();
        }
        self.out.push(b'`');
        let mut bytes = name.iter();
        while let Some(&byte) = bytes.next() {
            self.out.push(byte);
            match byte {
                b'`' => self.out.push(byte),
                b'"' => drop(bytes.next()),
                _ => {}
            }
        }
        self.out.push(b'`');
        self.last = Last::Name;
    }

    /// Notes whether `"..."`, taken for a string, may be a name.
    fn double_quotes(&mut self, token: Token) {
        const BEFORE_VALUES: &[&[u8]] = &[
            b"like", b"and", b"or", b"between", b"then", b"else", b"when", b"as", b"select", b"by",
            b"comment",
        ];
        self.may_have_quoted_names |= match self.last {
            Last::Dot => true,
            Last::Open | Last::Comma => self.inside() == Inside::Other,
            Last::Word => !BEFORE_VALUES.contains(&&self.out[self.word..]),
            _ => self.text.get(token.end) == Some(&b'.'),
        };
    }

    /// A value: with what belongs to it, it becomes a `?`.
    #[inline(always)]
    fn literal(&mut self) {
        if matches!(self.last, Last::Word | Last::Unary | Last::Literal | Last::List) {
            if self.last == Last::Word && self.before_word != Last::Dot && self.out[self.word] == b'_' {
                self.cut(self.word_space);
                self.last = self.before_word;
            }
            if self.last == Last::Unary {
                self.cut(self.signs);
                self.last = self.before_signs;
            }
            if matches!(self.last, Last::Literal | Last::List) {
                return;
            }
        }
        self.whole = matches!(self.last, Last::Open | Last::Comma);
        self.joins = self.last == Last::Comma && self.follows_value;
        if self.last != Last::At {
            self.space();
        }
        self.out.push(b'?');
        self.last = Last::Literal;
    }

    fn list(&mut self) {
        self.literal();
        if self.last == Last::Literal {
            self.out.push(b'+');
            self.last = Last::List;
        }
    }

    fn sign(&mut self, token: Token) {
        let is_unary = match self.last {
            Last::Name | Last::Literal | Last::List | Last::Close => false,
            Last::Word => self.before_word != Last::Dot && comes_before_operand(&self.out[self.word..]),
            _ => true,
        };
        if is_unary && self.last != Last::Unary {
            self.signs = self.out.len();
            self.before_signs = self.last;
        }
        self.operator(token, if is_unary { Last::Unary } else { Last::Operator });
    }

    /// Ends an element at a comma or a closing parenthesis.
    #[inline(always)]
    fn end_element(&mut self) {
        let inside = self.inside();
        if matches!(self.last, Last::Literal | Last::List) && self.whole && self.depth > 0 {
            if self.joins {
                self.cut(self.comma);
                if self.out.last() == Some(&b'?') {
                    self.out.push(b'+');
                }
                self.last = Last::List;
                return;
            }
            if inside != Inside::Other && self.last == Last::Literal {
                self.out.push(b'+');
                self.last = Last::List;
            }
        }
        if inside == Inside::In {
            self.drop_if_repeated();
        }
    }

    /// Drops the last element of an IN list if it is there already.
    fn drop_if_repeated(&mut self) {
        let frame = self.frames[self.depth];
        let (first, start) = (frame.first as usize, frame.element as usize);
        if start <= first + 2 || self.out.len() <= start {
            return;
        }
        let (before, element) = self.out.split_at(start);
        // With the comma in front of it, the comma behind it, and what is in front of the first one.
        let before = &before[first..];
        let is_repeated = before.starts_with(element) && before[element.len()..].starts_with(b", ")
            || before.len() <= SEARCHED
                && memmem::find_iter(before, element).any(|at| {
                    before[..at].ends_with(b", ") && before[at + element.len()..].starts_with(b", ")
                });
        if is_repeated {
            self.cut(start - 2);
            self.last = Last::Close;
            self.row_closed = false;
        }
    }

    #[inline(always)]
    fn inside(&self) -> Inside {
        if self.depth > 0 && self.depth < DEPTH { self.frames[self.depth].inside } else { Inside::Other }
    }

    #[inline(always)]
    fn comma(&mut self) {
        self.end_element();
        self.write_semicolon();
        self.follows_value = self.depth > 0 && self.whole && matches!(self.last, Last::Literal | Last::List);
        self.follows_row = self.last == Last::Close && self.row_closed;
        self.comma = self.out.len();
        self.out.push(b',');
        self.last = Last::Comma;
        if self.depth < DEPTH {
            // Elements begin behind the space that follows.
            self.frames[self.depth].element = self.out.len() as u32 + 1;
        }
    }

    fn open(&mut self, tokens: &mut impl Tokens) {
        let mut inside = Inside::Other;
        match self.last {
            Last::Comma if self.follows_row => return self.skip_row(tokens),
            Last::Word if self.before_word != Last::Dot => match &self.out[self.word..] {
                b"row" if self.before_word == Last::Comma && self.follows_row => {
                    return self.skip_row(tokens);
                }
                b"row" if ends_with_values(&self.out[..self.word_space]) => inside = Inside::Row,
                b"in" => inside = Inside::In,
                b"values" | b"value" => inside = Inside::Row,
                _ => {}
            },
            _ => {}
        }
        match self.last {
            Last::Name => {}
            Last::Word
                if self.before_word == Last::Dot || !comes_before_parenthesis(&self.out[self.word..]) => {}
            _ => self.space(),
        }
        self.out.push(b'(');
        self.last = Last::Open;
        self.depth += 1;
        if self.depth < DEPTH {
            let first = self.out.len() as u32;
            self.frames[self.depth] = Frame { inside, first, element: first, union_before: 0, union: 0 };
        }
    }

    /// Drops a row that is not the first, with its comma.
    fn skip_row(&mut self, tokens: &mut impl Tokens) {
        self.cut(self.comma);
        self.last = Last::Close;
        let mut open = 1;
        while open > 0
            && let Some(token) = tokens.next()
        {
            match token.kind {
                Kind::Open => open += 1,
                Kind::Close => open -= 1,
                _ => {}
            }
        }
    }

    fn close(&mut self) {
        self.end_element();
        self.row_closed = self.inside() == Inside::Row;
        if self.depth > 0 {
            self.end_unions();
        }
        self.write_semicolon();
        self.out.push(b')');
        self.last = Last::Close;
        self.depth = self.depth.saturating_sub(1);
    }

    /// A `union` whose space begins at `at`: what is before it goes if it is what was before that. Bytes dropped.
    fn union(&mut self, at: usize) -> usize {
        if self.depth >= DEPTH || self.last == Last::Dot {
            return 0;
        }
        let frame = &mut self.frames[self.depth];
        let (before, start) = (frame.union_before as usize, frame.union as usize);
        if before > 0 && start <= at && self.out[before..start] == self.out[start..at] {
            self.out.drain(start..at);
            return at - start;
        }
        frame.union_before = frame.union;
        frame.union = at as u32;
        0
    }

    /// The last UNION goes as well, whatever order and limit are behind all of them.
    fn end_unions(&mut self) {
        if self.depth >= DEPTH {
            return;
        }
        let frame = self.frames[self.depth];
        let (before, start) = (frame.union_before as usize, frame.union as usize);
        if before == 0 || start > self.out.len() {
            return;
        }
        let rest = self.out[start..].strip_prefix(&self.out[before..start]);
        if rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with(b" order by ") || rest.starts_with(b" limit ")
        }) {
            self.out.drain(before..start);
        }
    }

    fn semicolon(&mut self) {
        if matches!(self.last, Last::Start | Last::Semicolon) {
            return;
        }
        self.end_statement();
        self.last = Last::Semicolon;
    }

    fn end_statement(&mut self) {
        if self.depth == 0 {
            self.end_unions();
        }
        self.depth = 0;
        self.frames[0] = Frame::default();
        let (before, start) = (self.statement_before, self.statement);
        if before > 0 && self.out[before..start] == self.out[start..] {
            self.cut(start);
        } else {
            self.statement_before = start;
            self.statement = self.out.len();
        }
    }

    fn finish(&mut self) {
        if self.last != Last::Semicolon {
            self.end_statement();
        }
    }
}
