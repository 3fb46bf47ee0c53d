//! The tables that a statement names.

use super::lexer::{Kind, Lexer};
use super::readings;

/// More tables than any join has; hostile lists cost no more.
const MOST: usize = 256;
/// Deeper parentheses are read as if they were this deep.
const DEPTH: usize = 32;

/// Tables of a statement, `table` or `database.table`, in the order in which they appear, each once and 256 at most. Names are as
/// written, without their quotes. Names of WITH are no tables.
#[must_use]
pub fn tables(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut tables, is_doubtful) = read_by(Lexer::new(text), text);
    if is_doubtful {
        // A name that some readings lack may be part of a value.
        for other in readings::others(text) {
            let (same, _) = read_by(other, text);
            tables.retain(|table| same.contains(table));
        }
    }
    tables
}

/// The tables, and whether other readings exist.
fn read_by(lexer: Lexer<'_>, text: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut finder = Finder {
        lexer,
        text,
        frames: [Frame::default(); DEPTH],
        depth: 0,
        tables: Vec::new(),
        parts: Vec::new(),
        last: b"",
        first: b"",
        starts_parenthesis: false,
    };
    finder.run();
    (finder.tables, finder.lexer.doubtful_at().is_some())
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
    /// Nothing is between this and a parenthesis.
    starts_parenthesis: bool,
}

impl<'a> Finder<'a> {
    fn run(&mut self) {
        while let Some(token) = self.lexer.next() {
            let part = &self.text[token.start..token.end];
            let starts = std::mem::take(&mut self.starts_parenthesis);
            match token.kind {
                Kind::Word => {
                    if !self.keyword(part, starts) {
                        self.name(part);
                    }
                    self.last = part;
                    if self.first.is_empty() {
                        self.first = part;
                    }
                }
                Kind::Quoted => self.name(part),
                Kind::String if part[0] == b'"' => self.name(part),
                Kind::Open => {
                    let outer = *self.frame();
                    self.depth += 1;
                    self.starts_parenthesis = true;
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
                let is_table = self.frame().has_from && !self.was(b"distinct") && !self.is_database_of_show();
                self.expect(if is_table { Next::Table } else { Next::Other }, is_table)
            }
            b"join" | b"straight_join" => {
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
    fn name(&mut self, part: &'a [u8]) {
        let frame = *self.frame();
        self.frame().next = Next::Other;
        match frame.next {
            Next::Other => {}
            Next::Part if self.parts.len() < MOST => self.parts.push(bare(part)),
            Next::Part => {}
            Next::Table => {
                let mut table = bare(part);
                let mut ahead = self.lexer;
                let mut dots = 0;
                while dots < 2 && ahead.next().is_some_and(|token| token.kind == Kind::Dot) {
                    let Some(token) = ahead.next() else { break };
                    if !matches!(token.kind, Kind::Word | Kind::Quoted | Kind::String) {
                        break;
                    }
                    table.push(b'.');
                    table.extend(bare(&self.text[token.start..token.end]));
                    self.lexer = ahead;
                    dots += 1;
                }
                let mut ahead = self.lexer;
                let is_function = frame.has_from
                    && frame.is_list
                    && ahead.next().is_some_and(|token| token.kind == Kind::Open);
                if !is_function
                    && self.tables.len() < MOST
                    && !self.parts.contains(&table)
                    && !self.tables.contains(&table)
                {
                    self.tables.push(table);
                }
            }
        }
    }
}

/// A name without its quotes.
pub(super) fn bare(part: &[u8]) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
    use super::tables;

    #[test]
    fn tables_are_found() {
        for (text, expected) in [
            ("select c from sbtest1 where id=1", "sbtest1"),
            (
                "SELECT * FROM `my db`.`a``b` x, c AS y LEFT JOIN d.e ON f(y.a, 2) = x.b, g WHERE 1",
                "my db.a`b c d.e g",
            ),
            (
                "select (select max(a) from u), extract(year from d) from t where x in (select y from v, w)",
                "u t v w",
            ),
            (
                "with recursive c (n) as (select 1 from base union select n from c), d as (select 1 from c) select * from c, d, t",
                "base t",
            ),
            ("insert into t (a, b) select a, b from u on duplicate key update a = values(a)", "t u"),
            ("INSERT IGNORE t VALUES (1)", "t"),
            ("replace low_priority into a.b set x = replace(y, 'from z', '')", "a.b"),
            ("update a, b join c using (id) set a.x = 1, b.y = 2 where z in (1)", "a b c"),
            ("delete a, b from x as a join y as b on a.i = b.i where a.c = 1", "x y"),
            ("delete from a using t1 as a join t2", "a t1 t2"),
            (
                "create table if not exists t (id int, key (id), foreign key (a) references o (id) on delete cascade)",
                "t o",
            ),
            ("create table a like b", "a b"),
            ("create index i on t (a)", "t"),
            ("drop table if exists a, b.c", "a b.c"),
            ("truncate table t", "t"),
            ("truncate t", "t"),
            ("alter table t add column x int, add index (x)", "t"),
            ("rename table a to b, c to d", "a b c d"),
            ("lock tables a write, b as x read", "a b"),
            ("show columns from t from d", "t"),
            ("show tables from d", ""),
            ("load data infile 'x' into table t", "t"),
            ("select a into @x from t", "t"),
            ("select * from (select * from a) b join (c, d) on 1", "a c d"),
            ("select * from t where a is distinct from b for update", "t"),
            ("select 1 from dual", ""),
            ("select * from a use index (x, y) where b = 1 limit 3, 4", "a"),
            ("select * from json_table('[1]', '$[*]' columns (a int path '$')) j, t", "t"),
            ("select a from t union all select b from u", "t u"),
            ("select 1; delete from t; update u set x = 1", "t u"),
            ("insert into t values (?+)", "t"),
            ("explain select * from t", "t"),
            ("desc t", "t"),
            ("call p(1)", ""),
            ("/*!50001 select */ 1 from t", "t"),
        ] {
            let found = tables(text.as_bytes());
            let found: Vec<_> = found.iter().map(|name| String::from_utf8_lossy(name)).collect();
            let wanted = if text.contains("my db") {
                vec!["my db.a`b", "c", "d.e", "g"]
            } else {
                expected.split(' ').filter(|name| !name.is_empty()).collect()
            };
            assert_eq!(found, wanted, "{text}");
        }
    }
}
