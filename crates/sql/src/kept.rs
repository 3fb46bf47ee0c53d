//! Which literals of a statement are no data and stay: how many rows, how long, how precise, which column.

use super::definition::Definition;
use super::lexer::{Kind, Lexer, Token};

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

/// Functions whose numbers are times and counts of work, or digits of a second; types with digits, in CAST.
#[rustfmt::skip]
const NO_DATA: &[&str] = &[
    "sleep", "benchmark", "get_lock", "master_pos_wait", "source_pos_wait", "master_gtid_wait",
    "wait_for_executed_gtid_set", "wait_until_sql_thread_after_gtids", "now", "current_timestamp", "current_time",
    "curtime", "localtime", "localtimestamp", "sysdate", "utc_time", "utc_timestamp", "decimal", "dec", "numeric",
    "datetime",
];
/// Types with a length or digits, which are functions elsewhere: behind AS only.
const TYPES: &[&str] = &["char", "character", "nchar", "varchar", "binary", "time", "float", "double"];
/// Words behind which a number says how many rows, how many seconds to wait for a lock, or how many days to add.
const LIMITS: &[&str] = &["limit", "offset", "fetch", "examined", "wait", "interval"];
/// Words between these and their number.
const BETWEEN: &[&str] = &["first", "next", "rows"];
/// What ends a list of ORDER BY or GROUP BY in which a number is a column's place.
const ENDS: &[&str] = &["select", "having", "limit", "union", "values", "on", "for", "where", "set", "into"];
/// Digits of a column's place: a table has at most 4,096 columns.
const PLACE_DIGITS: usize = 4;

/// What is known of a statement up to the next token.
#[derive(Debug, Default)]
pub struct Statement {
    has_begun: bool,
    /// So far it is CREATE, CREATE OR, CREATE OR REPLACE, or the first word of a statement that may be about accounts.
    may_be_of_accounts: bool,
    is_set: bool,
    definition: Option<Definition>,
    is_limit: bool,
    /// Of two numbers: LIMIT 10, 20.
    is_pair: bool,
    /// It may have a sign, or be in quotes: INTERVAL '1 12' DAY_HOUR.
    is_interval: bool,
    is_user_variable: bool,
    /// The setting at hand names accounts, hosts or statements.
    is_of_people: bool,
    /// Of accounts or replication: its numbers are limits, times, ports and positions.
    is_of_accounts: bool,
    /// Behind IDENTIFIED; behind its WITH or VIA a plugin is named, in quotes or not.
    is_identified: bool,
    is_plugin: bool,
    /// A function whose numbers are no data is before its parenthesis.
    takes_none: bool,
    /// Parentheses open since its own.
    open: usize,
    /// The last word was AS.
    is_behind_as: bool,
    by: By,
}

impl Statement {
    fn follow_parentheses(&mut self, kind: Kind) {
        match kind {
            Kind::Open if self.open > 0 || self.takes_none => self.open += 1,
            Kind::Close => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        self.takes_none &= kind == Kind::Word;
    }

    fn follow_word(&mut self, word: &[u8]) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let is_any = |names: &[&str]| names.iter().any(|name| is(name));
        let is_type = std::mem::replace(&mut self.is_behind_as, is("as")) && is_any(TYPES);
        self.takes_none = self.open == 0 && (is_type || is_any(NO_DATA));
        self.is_plugin = self.is_identified && is_any(&["with", "via"]);
        self.is_identified = is("identified");
        self.follow_account_words(word);
        self.is_of_people |= self.is_set && names_people(word);
        if !self.has_begun {
            self.has_begun = true;
            self.is_set = is("set");
            self.is_of_accounts = is_any(&["grant", "revoke", "change"]);
            self.may_be_of_accounts = is_any(&["create", "alter", "drop", "rename", "set"]);
            self.definition = (is("create") || is("alter")).then(Definition::default);
        } else if self.is_set && is("for") {
            // SET STATEMENT ... FOR another statement.
            *self = Self::default();
            return;
        } else if is("select") {
            self.is_set = false;
        }
        self.is_limit = is_any(LIMITS) || self.is_limit && is_any(BETWEEN);
        self.is_pair = is("limit");
        self.is_interval = is("interval");
    }

    /// CREATE USER and its like, and SET PASSWORD, which is no setting.
    fn follow_account_words(&mut self, word: &[u8]) {
        let is_any = |names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
        if std::mem::take(&mut self.may_be_of_accounts) {
            self.is_of_accounts = is_any(&["user", "role", "password", "default"]);
            self.is_set &= !self.is_of_accounts;
            self.may_be_of_accounts = self.definition.is_some() && is_any(&["or", "replace"]);
        }
    }

    /// Whether a token is not data.
    pub fn keeps(&mut self, text: &[u8], token: Token) -> bool {
        let part = &text[token.start..token.end];
        let is_form = self.definition.as_mut().is_some_and(|definition| definition.keeps(part, token.kind));
        let is_place = self.by.is_place(part, token.kind);
        self.follow_parentheses(token.kind);
        match token.kind {
            Kind::Word => self.follow_word(part),
            Kind::Variable => {
                self.is_user_variable = !part.starts_with(b"@@");
                self.is_of_people |= names_people(part);
            }
            Kind::Semicolon => *self = Self::default(),
            // It may contain the end of the statement: treat everything from here on as data.
            Kind::Disputed => *self = Self { has_begun: true, ..Self::default() },
            Kind::Comma if self.is_limit && self.is_pair => {}
            Kind::Placeholder if self.is_limit => {}
            Kind::Sign if self.is_interval => {}
            Kind::String if self.is_interval || std::mem::take(&mut self.is_plugin) => return true,
            Kind::Number if self.is_of_accounts => return true,
            Kind::Comma => {
                self.is_user_variable = false;
                self.is_of_people = false;
                (self.is_limit, self.is_interval) = (false, false);
            }
            Kind::Number if self.is_limit || is_form || is_place || self.open > 0 => return true,
            Kind::Number | Kind::Bits | Kind::String | Kind::Unterminated => {
                return self.is_set && !self.is_user_variable && !self.is_of_people;
            }
            _ => (self.is_limit, self.is_interval) = (false, false),
        }
        false
    }
}

/// Whether a setting's value names accounts, hosts, roles or statements: `server_audit_incl_users`, `init_connect`.
fn names_people(setting: &[u8]) -> bool {
    const PARTS: &[&[u8]] =
        &[b"user", b"host", b"role", b"address", b"network", b"auth", b"init_", b"report_"];
    let setting = setting.to_ascii_lowercase();
    PARTS.iter().any(|part| memchr::memmem::find(&setting, part).is_some())
}

/// A list of ORDER BY or GROUP BY.
#[derive(Debug, Default)]
struct By {
    /// Parentheses open, and how many were at its beginning; `None` outside.
    depth: usize,
    start: Option<usize>,
    /// The last word was ORDER or GROUP.
    is_near: bool,
    /// The last token was BY, or a comma of the list.
    is_next: bool,
}

impl By {
    /// Whether a number is a column's place: the first of an item.
    fn is_place(&mut self, part: &[u8], kind: Kind) -> bool {
        let is_any = |names: &[&str]| names.iter().any(|name| part.eq_ignore_ascii_case(name.as_bytes()));
        let is_next = std::mem::take(&mut self.is_next);
        let is_near = std::mem::take(&mut self.is_near);
        match kind {
            Kind::Word if is_near && is_any(&["by"]) => {
                self.start = Some(self.depth);
                self.is_next = true;
            }
            Kind::Word => {
                self.is_near = is_any(&["order", "group"]);
                if is_any(ENDS) {
                    self.start = None;
                }
            }
            Kind::Open => self.depth += 1,
            Kind::Close => {
                self.depth = self.depth.saturating_sub(1);
                self.start = self.start.filter(|start| *start <= self.depth);
            }
            Kind::Comma => self.is_next = self.start == Some(self.depth),
            Kind::Semicolon => *self = Self::default(),
            Kind::Number => return is_next && part.len() <= PLACE_DIGITS,
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::kept_placeholders;

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
}
