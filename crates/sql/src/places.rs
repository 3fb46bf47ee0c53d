//! Values that reach a column by their place: `insert into users (name, password) values ('bob', 'hunter2')`.

use super::lexer::{Kind, Token};

/// The most columns a table can have.
const MOST_COLUMNS: usize = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Not an INSERT or REPLACE, or without secret columns.
    #[default]
    Off,
    /// Behind the verb, before the list of columns; whether a name has come.
    Table {
        is_named: bool,
    },
    Columns {
        is_empty: bool,
    },
    /// Behind a list of columns.
    Behind,
    /// Behind VALUES.
    Rows,
    /// In the list of a SELECT.
    Select,
}

/// Which values of an INSERT or REPLACE are for columns with a secret in them.
#[derive(Debug, Default)]
pub struct Places {
    stage: Stage,
    depth: i32,
    /// The depth at which the elements are that are counted, and the number of the present one.
    base: i32,
    element: usize,
    /// The elements that are secret, in ascending order.
    secret: Vec<usize>,
}

impl Places {
    /// Looks at the next token; `is_secret_name` says so of a name. True if the token is in the place of a secret.
    #[inline]
    pub fn is_secret(&mut self, part: &[u8], token: Token, is_secret_name: impl Fn(&[u8]) -> bool) -> bool {
        if self.stage == Stage::Off {
            // Most tokens of most statements.
            if token.kind == Kind::Word && matches!(part.len(), 6 | 7) {
                self.begin(part);
            }
            return false;
        }
        self.follow(part, token, is_secret_name)
    }

    #[inline(never)]
    fn begin(&mut self, word: &[u8]) {
        if word.eq_ignore_ascii_case(b"insert") || word.eq_ignore_ascii_case(b"replace") {
            *self = Self { stage: Stage::Table { is_named: false }, ..Self::default() };
        }
    }

    #[inline(never)]
    fn follow(&mut self, part: &[u8], token: Token, is_secret_name: impl Fn(&[u8]) -> bool) -> bool {
        match token.kind {
            Kind::Word | Kind::Quoted => self.name(part, token.kind == Kind::Word, is_secret_name),
            Kind::Open => self.open(),
            Kind::Close => {
                self.depth -= 1;
                if matches!(self.stage, Stage::Columns { .. }) && self.depth < self.base {
                    self.stage = Stage::Behind;
                }
            }
            Kind::Comma if self.depth == self.base => self.element = self.element.saturating_add(1),
            Kind::Semicolon => self.stage = Stage::Off,
            _ if token.kind.is_literal() => {
                return matches!(self.stage, Stage::Rows | Stage::Select)
                    && self.depth >= self.base
                    && self.secret.binary_search(&self.element).is_ok();
            }
            _ => {}
        }
        false
    }

    fn name(&mut self, name: &[u8], is_plain: bool, is_secret_name: impl Fn(&[u8]) -> bool) {
        let is = |word: &str| is_plain && name.eq_ignore_ascii_case(word.as_bytes());
        match self.stage {
            Stage::Columns { is_empty: true } if is("select") => self.rows(Stage::Select, self.depth),
            Stage::Columns { is_empty } => {
                if is_empty {
                    self.secret.clear();
                    self.stage = Stage::Columns { is_empty: false };
                }
                if self.element < MOST_COLUMNS
                    && self.secret.last() != Some(&self.element)
                    && is_secret_name(name)
                {
                    self.secret.push(self.element);
                }
            }
            Stage::Table { .. } | Stage::Behind if is("values") || is("value") => self.rows(Stage::Rows, 1),
            Stage::Table { .. } => self.stage = Stage::Table { is_named: true },
            Stage::Behind if is("select") => self.rows(Stage::Select, self.depth),
            Stage::Behind => {}
            Stage::Rows if self.depth == 0 && !is("row") => self.stage = Stage::Off,
            Stage::Select if self.depth == self.base && is("select") => self.element = 0,
            Stage::Select if self.depth == self.base && is("from") => self.element = usize::MAX,
            Stage::Off | Stage::Rows | Stage::Select => {}
        }
    }

    fn rows(&mut self, stage: Stage, base: i32) {
        self.stage = if self.secret.is_empty() { Stage::Off } else { stage };
        (self.base, self.element) = (base, 0);
    }

    fn open(&mut self) {
        self.depth += 1;
        match self.stage {
            // A function of that name.
            Stage::Table { is_named: false } => self.stage = Stage::Off,
            // The list behind PARTITION comes before that of the columns, and SELECT may be in parentheses.
            Stage::Table { .. } | Stage::Behind => {
                self.stage = Stage::Columns { is_empty: true };
                (self.base, self.element) = (self.depth, 0);
            }
            Stage::Rows if self.depth == self.base => self.element = 0,
            _ => {}
        }
    }
}
