//! Where a statement names a table.

use super::lexer::{Kind, Lexer, Token};

/// More tables than any join has; hostile lists cost no more.
const MOST: usize = 256;
/// Parts of names whose places are kept.
const MOST_PLACES: usize = 1024;
/// Deeper parentheses are read as if they were this deep.
const DEPTH: usize = 32;

/// The tables, and whether other readings exist.
pub fn tables_in(lexer: Lexer<'_>, text: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut finder = Finder::new(lexer, text);
    finder.run();
    (finder.tables, finder.lexer.doubtful_at().is_some())
}

/// Where the parts of tables' names and of databases' are, in the order of the text.
pub fn name_places(lexer: Lexer<'_>, text: &[u8]) -> Vec<Token> {
    let mut finder = Finder::new(lexer, text);
    finder.run();
    finder.places
}

/// Whether `"..."` is anywhere in a text where no string can be: it is a name then, and so is every other one.
pub fn has_quoted_names(lexer: Lexer<'_>, text: &[u8]) -> bool {
    let mut finder = Finder::new(lexer, text);
    finder.run();
    finder.has_quoted_names
}

/// What the next name would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Other,
    /// A table; then a comma brings another one if `is_list`.
    Table,
    /// A part of WITH.
    Part,
}

/// An open parenthesis; the first is the statement.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    next: Next,
    is_list: bool,
    /// In the list of WITH.
    is_with: bool,
    /// FROM names tables here: it has a SELECT, DELETE or SHOW.
    has_from: bool,
}

struct Finder<'a> {
    lexer: Lexer<'a>,
    text: &'a [u8],
    frames: [Frame; DEPTH],
    depth: usize,
    tables: Vec<Vec<u8>>,
    parts: Vec<Vec<u8>>,
    /// The last word, and the statement's first.
    last: &'a [u8],
    first: &'a [u8],
    /// The last token was that word.
    is_behind_word: bool,
    /// Nothing is between this and a parenthesis.
    starts_parenthesis: bool,
    /// Where table names were found, 1,024 at most.
    places: Vec<Token>,
    /// What of these is right before the next token, for what `"..."` there would be.
    before: Before,
    has_quoted_names: bool,
}

/// What is right before a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Before {
    #[default]
    Other,
    /// `"..."`
    Quotes,
    Dot,
    /// The table behind INTO, and the parenthesis behind that.
    Into,
    Columns,
    Set,
    /// USE, DATABASE or SCHEMA: a database's name follows.
    Database,
    /// CALL, and what CREATE, ALTER, DROP and SHOW are about besides tables: a name follows.
    Name,
}

impl<'a> Finder<'a> {
    fn new(lexer: Lexer<'a>, text: &'a [u8]) -> Self {
        Self {
            lexer,
            text,
            frames: [Frame::default(); DEPTH],
            depth: 0,
            tables: Vec::new(),
            parts: Vec::new(),
            last: b"",
            first: b"",
            is_behind_word: false,
            starts_parenthesis: false,
            places: Vec::new(),
            before: Before::Other,
            has_quoted_names: false,
        }
    }

    fn run(&mut self) {
        while let Some(token) = self.lexer.next() {
            let part = &self.text[token.start..token.end];
            let starts = std::mem::take(&mut self.starts_parenthesis);
            let before = std::mem::take(&mut self.before);
            match token.kind {
                Kind::Word => {
                    if !self.keyword(part, starts) {
                        self.name(token);
                    }
                    self.before = self.word_before(part, token, before);
                    self.last = part;
                    if self.first.is_empty() {
                        self.first = part;
                    }
                    self.is_behind_word = true;
                    continue;
                }
                Kind::Quoted => {
                    if before == Before::Database {
                        self.places.push(token);
                    }
                    self.name(token);
                }
                Kind::String if part[0] == b'"' => {
                    self.has_quoted_names |= self.is_quoted_name(before);
                    self.before = Before::Quotes;
                    self.name(token);
                }
                Kind::Dot => {
                    self.has_quoted_names |= before == Before::Quotes;
                    self.before = Before::Dot;
                    self.frame().next = Next::Other;
                }
                Kind::Open => {
                    let outer = *self.frame();
                    self.depth += 1;
                    self.starts_parenthesis = true;
                    if before == Before::Into || self.begins_names() {
                        self.before = Before::Columns;
                    }
                    // FROM (a, b) and FROM (SELECT ...) begin alike.
                    let is_list = outer.next == Next::Table && outer.has_from;
                    *self.frame() = Frame {
                        next: if is_list { Next::Table } else { Next::Other },
                        is_list,
                        ..Frame::default()
                    };
                    self.frame().has_from = is_list;
                }
                Kind::Close => {
                    self.depth = self.depth.saturating_sub(1);
                    self.frame().next = Next::Other;
                }
                Kind::Comma => {
                    let frame = self.frame();
                    frame.next = match (frame.is_with, frame.is_list) {
                        (true, _) => Next::Part,
                        (false, true) => Next::Table,
                        _ => Next::Other,
                    };
                }
                Kind::Semicolon => {
                    self.depth = 0;
                    self.frames[0] = Frame::default();
                    (self.first, self.last) = (b"", b"");
                }
                _ => self.frame().next = Next::Other,
            }
            self.is_behind_word = false;
        }
    }

    /// A parenthesis right behind USING, INDEX or KEY has names in it: of columns, of indexes.
    fn begins_names(&self) -> bool {
        self.is_behind_word && ["using", "index", "key", "join"].iter().any(|word| self.was(word.as_bytes()))
    }

    /// What a word, the token at hand, is for the next one.
    fn word_before(&mut self, word: &[u8], token: Token, before: Before) -> Before {
        let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
        match before {
            Before::Database if is("if") || is("not") || is("exists") => Before::Database,
            Before::Database => {
                self.places.push(token);
                Before::Other
            }
            _ if is("set") || is("update") && self.was(b"key") => Before::Set,
            _ if self.first.is_empty() && is("call") || self.is_of_definition() && is_defined(word) => {
                Before::Name
            }
            _ if self.first.is_empty() && is("use") => Before::Database,
            _ if (is("database") || is("schema")) && self.is_about_database() => Before::Database,
            _ => self.before,
        }
    }

    fn is_of_definition(&self) -> bool {
        ["create", "drop", "alter", "show"].iter().any(|word| self.is_first_word(word.as_bytes()))
    }

    /// CREATE, DROP or ALTER is right before the word at hand.
    fn is_about_database(&self) -> bool {
        ["create", "drop", "alter", "replace"].iter().any(|word| self.was(word.as_bytes()))
    }

    /// Whether `"..."`, the token at hand, can be no string.
    fn is_quoted_name(&self, before: Before) -> bool {
        match before {
            Before::Dot | Before::Columns | Before::Database | Before::Name => true,
            // SET NAMES and SET CHARACTER SET have a string, but no equals sign.
            Before::Set => {
                let mut ahead = self.lexer;
                ahead.next().is_some_and(|token| self.text[token.start..token.end].ends_with(b"="))
            }
            _ => self.frames[self.depth.min(DEPTH - 1)].next == Next::Table,
        }
    }

    fn frame(&mut self) -> &mut Frame {
        &mut self.frames[self.depth.min(DEPTH - 1)]
    }

    fn expect(&mut self, next: Next, is_list: bool) -> bool {
        let frame = self.frame();
        (frame.next, frame.is_list) = (next, is_list);
        true
    }

    /// What a word changes; false if it may be a name.
    fn keyword(&mut self, word: &[u8], starts: bool) -> bool {
        let mut lower = [0; 16];
        let Some(lower) = lower.get_mut(..word.len()) else { return false };
        lower.copy_from_slice(word);
        lower.make_ascii_lowercase();
        let is_first = self.first.is_empty() || starts;
        match &*lower {
            b"select" | b"delete" | b"show" => {
                self.frame().is_with = false;
                self.frame().has_from = true;
                self.expect(Next::Other, false)
            }
            b"with" if self.begins_parts() => {
                self.frame().is_with = true;
                self.expect(Next::Part, false)
            }
            b"from" => {
                let is_comparison = self.is_behind_word && self.was(b"distinct");
                let is_table = self.frame().has_from && !is_comparison && !self.is_database_of_show();
                self.expect(if is_table { Next::Table } else { Next::Other }, is_table)
            }
            // Not that of USE INDEX FOR JOIN.
            b"join" | b"straight_join" if !self.was(b"for") => {
                let is_list = self.frame().is_list;
                self.expect(Next::Table, is_list)
            }
            b"update" => {
                let is_statement = is_first || self.frame().is_with;
                self.frame().is_with = false;
                self.frame().has_from |= is_statement;
                self.expect(if is_statement { Next::Table } else { Next::Other }, is_statement)
            }
            b"insert" | b"replace" | b"truncate" | b"describe" | b"desc" | b"explain" | b"handler" => {
                self.frame().is_with = false;
                self.expect(if is_first { Next::Table } else { Next::Other }, false)
            }
            b"into" => self.expect(Next::Table, false),
            b"table" | b"tables" if !self.was(b"show") => {
                let is_list = !self.was(b"create") && !self.was(b"alter");
                self.expect(Next::Table, is_list)
            }
            b"references" => self.expect(Next::Table, false),
            b"on" if self.is_about_index() => self.expect(Next::Table, false),
            b"using" if self.is_first_word(b"delete") => self.expect(Next::Table, true),
            b"to" if self.is_first_word(b"rename") => self.expect(Next::Table, true),
            b"like" if self.is_first_word(b"create") => self.expect(Next::Table, false),
            b"outfile" | b"dumpfile" | b"lateral" | b"dual" | b"json_table" | b"values" | b"value"
            | b"set" | b"where" | b"on" | b"using" | b"group" | b"order" | b"limit" | b"having"
            | b"window" | b"union" | b"except" | b"intersect" | b"format" | b"analyze" | b"partition"
            | b"procedure" | b"for" => {
                let is_list = self.frame().is_list
                    && matches!(
                        &*lower,
                        b"on" | b"using" | b"partition" | b"for" | b"lateral" | b"json_table"
                    );
                self.expect(Next::Other, is_list)
            }
            // Between a verb and its table.
            b"low_priority" | b"high_priority" | b"delayed" | b"ignore" | b"quick" | b"only" | b"if"
            | b"not" | b"exists" | b"recursive" | b"temporary" | b"local" | b"infile" | b"extended" => true,
            _ => false,
        }
    }

    fn was(&self, word: &[u8]) -> bool {
        self.last.eq_ignore_ascii_case(word)
    }

    fn is_first_word(&self, word: &[u8]) -> bool {
        self.first.eq_ignore_ascii_case(word)
    }

    /// CREATE INDEX, DROP INDEX, CREATE TRIGGER ... ON.
    fn is_about_index(&self) -> bool {
        self.depth == 0
            && !self.frame_ref().has_from
            && (self.is_first_word(b"create") || self.is_first_word(b"drop"))
            && !self.was(b"key")
    }

    fn frame_ref(&self) -> &Frame {
        &self.frames[self.depth.min(DEPTH - 1)]
    }

    /// SHOW TABLES FROM names a database, and so does a second FROM.
    fn is_database_of_show(&self) -> bool {
        self.depth == 0
            && self.is_first_word(b"show")
            && (!self.tables.is_empty()
                || !["columns", "fields", "index", "indexes", "keys"]
                    .iter()
                    .any(|word| self.was(word.as_bytes())))
    }

    /// `name as (` or `name (a, b) as (`, as parts of WITH begin.
    fn begins_parts(&self) -> bool {
        let mut ahead = self.lexer;
        let mut next = || ahead.next().map(|token| (token.kind, &self.text[token.start..token.end]));
        let mut name = next();
        if name.is_some_and(|(_, part)| part.eq_ignore_ascii_case(b"recursive")) {
            name = next();
        }
        let is_name = name.is_some_and(|(kind, _)| matches!(kind, Kind::Word | Kind::Quoted));
        is_name
            && match next() {
                Some((Kind::Open, _)) => true,
                Some((Kind::Word, part)) if part.eq_ignore_ascii_case(b"as") => {
                    next().is_some_and(|(kind, _)| kind == Kind::Open)
                }
                _ => false,
            }
    }

    /// A name where one is looked for, with what follows its dot.
    fn name(&mut self, token: Token) {
        let frame = *self.frame();
        self.frame().next = Next::Other;
        match frame.next {
            Next::Other => {}
            Next::Part if self.parts.len() < MOST => {
                self.parts.push(bare(&self.text[token.start..token.end]));
            }
            Next::Part => {}
            Next::Table => self.table(token, frame),
        }
    }

    fn table(&mut self, first: Token, frame: Frame) {
        let mut table = bare(&self.text[first.start..first.end]);
        let mut places = [first; 3];
        let mut count = 1;
        let mut ahead = self.lexer;
        while count < places.len() && ahead.next().is_some_and(|token| token.kind == Kind::Dot) {
            let Some(token) = ahead.next() else { break };
            if !matches!(token.kind, Kind::Word | Kind::Quoted | Kind::String) {
                break;
            }
            self.has_quoted_names |= self.text[token.start] == b'"';
            table.push(b'.');
            table.extend(bare(&self.text[token.start..token.end]));
            self.lexer = ahead;
            places[count] = token;
            count += 1;
        }
        self.has_quoted_names |= count > 1 && self.text[first.start] == b'"';
        let mut ahead = self.lexer;
        let is_function =
            frame.has_from && frame.is_list && ahead.next().is_some_and(|token| token.kind == Kind::Open);
        if is_function || self.parts.contains(&table) {
            return;
        }
        if self.last.eq_ignore_ascii_case(b"into") {
            self.before = Before::Into;
        }
        if self.places.len() < MOST_PLACES {
            self.places.extend_from_slice(&places[..count]);
        }
        if self.tables.len() < MOST && !self.tables.contains(&table) {
            self.tables.push(table);
        }
    }
}

/// What a statement may define besides tables and databases.
fn is_defined(word: &[u8]) -> bool {
    ["view", "procedure", "function", "trigger", "event", "sequence"]
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// A name without its quotes.
pub fn bare(part: &[u8]) -> Vec<u8> {
    let Some(&quote) = part.first().filter(|quote| matches!(quote, b'`' | b'"' | b'\'')) else {
        return part.to_vec();
    };
    let inner = &part[1..part.len() - 1];
    let mut name = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        name.push(byte);
        if byte == quote {
            bytes.next();
        }
    }
    name
}
