//! Names that are values by their place: of users, hosts and roles, of savepoints and prepared statements.
//!
//! A user is named with a string, in backticks, in double quotes or as a plain word: only the words before it tell what
//! it is. They are those of MySQL 5.5 to 9 and MariaDB 5.5 to 12: CREATE, ALTER, DROP and RENAME USER, CREATE and DROP
//! ROLE, GRANT, REVOKE, SET ROLE, SET DEFAULT ROLE, SET PASSWORD, SET SESSION AUTHORIZATION, SHOW GRANTS, SHOW CREATE
//! USER, KILL USER, CLONE INSTANCE, EXECUTE AS, PRIVILEGE_CHECKS_USER, and DEFINER of all that has one.

use super::lexer::{Kind, Token};
use super::readings::{Source, Tokens};

/// Whether a statement that begins with a word in lower case, and goes on with `rest`, may have such names.
pub fn may_have_names(verb: &[u8], rest: &[u8]) -> bool {
    let next = || rest.iter().find(|byte| **byte > b' ').map(u8::to_ascii_lowercase);
    match verb {
        b"select" | b"insert" | b"update" | b"delete" | b"replace" | b"commit" | b"with" | b"use"
        | b"call" | b"do" | b"load" | b"table" | b"values" | b"truncate" | b"lock" | b"unlock" | b"start"
        | b"explain" | b"describe" | b"desc" => false,
        b"begin" | b"rollback" => next().is_some_and(|byte| byte != b';'),
        // ROLE, DEFAULT ROLE, PASSWORD, STATEMENT ... FOR, SESSION AUTHORIZATION; or a comment.
        b"set" => next().is_some_and(|byte| b"rdps/#-".contains(&byte)),
        b"show" => next().is_some_and(|byte| b"gc/#-".contains(&byte)),
        _ => true,
    }
}

/// Longer words are no keywords.
const LONGEST: usize = 24;
/// Tokens of a GRANT that are looked at for its ON; with more before it, it is about roles.
const LOOKAHEAD: usize = 64;

/// What a statement is about, as far as names depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum About {
    /// Its first word is next.
    #[default]
    Start,
    Other,
    Create,
    Alter,
    Drop,
    Rename,
    /// Behind CREATE USER and its like.
    Users,
    Grant,
    Set,
    SetStatement,
    SetRole,
    SetPassword,
    Show,
    ShowGrants,
    Kill,
    Change,
    Clone,
    Release,
    Rollback,
}

/// What the next name would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Other,
    /// A user or a role.
    Account,
    /// Behind a user: a host may follow.
    At,
    Host,
    Label,
    /// Behind DEFINER: an equals sign.
    Equals,
}

/// What a token is.
enum Role {
    Plain,
    Account,
    Label,
    /// `@host`, which a lexer takes for a variable.
    AtHost,
}

/// What is known up to the next token.
#[derive(Clone, Copy, Debug, Default)]
struct Names<'a> {
    about: About,
    next: Next,
    /// A comma brings another account.
    is_list: bool,
    /// Up to the kind of what is created: DEFINER names an account there.
    is_header: bool,
    /// A GRANT of roles, not of privileges; and behind its TO or FROM.
    is_of_roles: bool,
    is_behind_to: bool,
    /// There may be statements inside a statement, behind BEGIN, THEN, DO and the like.
    is_compound: bool,
    is_behind_dot: bool,
    depth: usize,
    last: &'a [u8],
}

impl<'a> Names<'a> {
    fn take(&mut self, text: &'a [u8], token: Token, ahead: &Source<'_>) -> Role {
        let is_behind_dot = std::mem::replace(&mut self.is_behind_dot, token.kind == Kind::Dot);
        match token.kind {
            Kind::Semicolon => *self = Self { is_compound: self.is_compound, ..Self::default() },
            // It may hold the end of a statement.
            Kind::Disputed => *self = Self { about: About::Other, ..Self::default() },
            _ => {
                if let Some(role) = self.name(text, token, ahead) {
                    return role;
                }
                self.other(text, token, ahead, is_behind_dot);
            }
        }
        Role::Plain
    }

    /// A token where a name is looked for; `None` if it is none.
    fn name(&mut self, text: &'a [u8], token: Token, ahead: &Source<'_>) -> Option<Role> {
        use Kind::{Bits, List, Number, Placeholder, Quoted, String, Unterminated, Word};
        let part = &text[token.start..token.end];
        match (self.next, token.kind) {
            (Next::Other, _) | (Next::Account, Kind::Comma) => None,
            (Next::Account, Word) => self.word_for_account(part, ahead),
            (Next::Account | Next::Host, Quoted | String | Unterminated) => Some(self.account()),
            (Next::Host, Word) => Some(self.account()),
            (Next::Account | Next::Host, Placeholder | List | Number | Bits) => {
                self.account();
                Some(Role::Plain)
            }
            // More of the same value.
            (Next::At, String | Placeholder | List | Number | Bits) => Some(Role::Plain),
            (Next::At, Word) if part[0] == b'_' || is_value(part) => Some(Role::Plain),
            (Next::At, Kind::At) => {
                self.next = Next::Host;
                Some(Role::Plain)
            }
            (Next::At, Kind::Variable) if !part.starts_with(b"@@") => {
                self.next = Next::Other;
                Some(Role::AtHost)
            }
            (Next::Label, Word | Quoted) => self.label(part),
            (Next::Equals, Kind::Operator) if part == b"=" => {
                self.next = Next::Account;
                Some(Role::Plain)
            }
            _ => {
                self.next = Next::Other;
                None
            }
        }
    }

    fn account(&mut self) -> Role {
        self.next = if self.next == Next::Account { Next::At } else { Next::Other };
        Role::Account
    }

    fn label(&mut self, part: &'a [u8]) -> Option<Role> {
        let is = |word: &str| part.eq_ignore_ascii_case(word.as_bytes());
        let is_behind = |word: &str| self.last.eq_ignore_ascii_case(word.as_bytes());
        if self.about == About::Rollback && is("savepoint") && is_behind("to") {
            self.last = part;
            return Some(Role::Plain);
        }
        self.next = Next::Other;
        if is_behind("execute") && (is("immediate") || is("as")) {
            self.next = if is("as") { Next::Account } else { Next::Other };
            return Some(Role::Plain);
        }
        Some(Role::Label)
    }

    /// A plain word where a user or a role is looked for.
    fn word_for_account(&mut self, part: &'a [u8], ahead: &Source<'_>) -> Option<Role> {
        let mut buffer = [0; LONGEST];
        let lower = lower(part, &mut buffer);
        let next = || {
            let mut ahead = ahead.clone();
            ahead.next().map_or(Kind::Semicolon, |token| token.kind)
        };
        let is_of_privileges = self.is_of_roles && !self.is_behind_to;
        match lower {
            b"if" | b"not" | b"exists" => {}
            b"all" | b"privileges" | b"grant" | b"option" if is_of_privileges => {}
            b"admin" if is_of_privileges && next() == Kind::Word => {}
            b"current_user" | b"current_role" | b"session_user" | b"none" | b"all" | b"default"
            | b"public" => {
                self.next = Next::Other;
            }
            b"user" if next() == Kind::Open => self.next = Next::Other,
            // Reserved: no name.
            b"to" | b"from" | b"for" | b"with" | b"using" | b"as" | b"on" | b"except" | b"set"
            | b"require" => {
                self.next = Next::Other;
                return None;
            }
            _ => return Some(self.account()),
        }
        self.last = part;
        Some(Role::Plain)
    }

    /// A token that is no name of an account.
    fn other(&mut self, text: &'a [u8], token: Token, ahead: &Source<'_>, is_behind_dot: bool) {
        let part = &text[token.start..token.end];
        match token.kind {
            Kind::Open => self.depth += 1,
            Kind::Close => self.depth = self.depth.saturating_sub(1),
            Kind::Comma if self.depth == 0 && self.is_list => self.next = Next::Account,
            Kind::Word if !is_behind_dot => {
                let mut buffer = [0; LONGEST];
                let lower = lower(part, &mut buffer);
                self.word(text, lower, ahead);
                self.last = part;
            }
            Kind::Quoted => self.is_header = false,
            _ => {}
        }
        if self.about == About::Start && !matches!(token.kind, Kind::Word | Kind::Open) {
            // No statement begins so.
            self.about = About::Other;
        }
    }

    fn word(&mut self, text: &[u8], word: &[u8], ahead: &Source<'_>) {
        const OPENERS: &[&[u8]] = &[b"begin", b"then", b"else", b"do", b"loop", b"repeat", b"atomic"];
        let is_behind = |other: &str| self.last.eq_ignore_ascii_case(other.as_bytes());
        if self.about == About::Start {
            return self.begin(text, word, ahead);
        }
        if self.is_compound && OPENERS.contains(&word) {
            self.about = About::Start;
            return;
        }
        match (self.about, word) {
            (About::Create, b"user" | b"role") if is_behind("create") || is_behind("replace") => self.users(),
            (About::Alter, b"user") if is_behind("alter") => self.users(),
            (About::Drop, b"user" | b"role") if is_behind("drop") => self.users(),
            (About::Rename, b"user") if is_behind("rename") => self.users(),
            (About::Drop, b"prepare") => self.next = Next::Label,
            (About::Release, b"savepoint") | (About::Rollback, b"to") => self.next = Next::Label,
            (About::Create | About::Alter, b"definer") if self.is_header => self.next = Next::Equals,
            (About::Create | About::Alter, _) if self.is_header && HEADER.contains(&word) => {}
            // The body of a routine or a trigger; these words are reserved.
            (
                About::Create,
                b"grant" | b"revoke" | b"drop" | b"alter" | b"rename" | b"kill" | b"set" | b"show",
            ) if self.depth == 0 => {
                self.begin(text, word, ahead);
            }
            (About::Create, b"create") if self.depth == 0 => self.begin(text, word, ahead),
            (About::Create | About::Alter, _) => self.is_header = false,
            (About::Users, b"to") => self.next = Next::Account,
            (About::Users, b"role") if is_behind("default") => self.next = Next::Account,
            (About::Users, b"admin") if is_behind("with") => self.next = Next::Account,
            (About::Grant, b"on") if is_behind("proxy") && !self.is_behind_to => self.next = Next::Account,
            (About::Grant, b"for") if self.is_of_roles && !self.is_behind_to => self.next = Next::Account,
            (About::Grant, b"to" | b"from") if !self.is_behind_to => {
                (self.is_behind_to, self.is_list, self.next) = (true, true, Next::Account);
            }
            (About::Grant, b"as" | b"role" | b"except") if self.is_behind_to => self.next = Next::Account,
            _ => self.session_word(word),
        }
    }

    /// A word of SET, SHOW and other statements about a session.
    fn session_word(&mut self, word: &[u8]) {
        let is_behind = |other: &str| self.last.eq_ignore_ascii_case(other.as_bytes());
        match (self.about, word) {
            (About::Set, b"role") if is_behind("set") || is_behind("default") => {
                (self.about, self.is_list, self.next) = (About::SetRole, true, Next::Account);
            }
            (About::Set, b"password") if is_behind("set") => self.about = About::SetPassword,
            (About::Set, b"statement") if is_behind("set") => self.about = About::SetStatement,
            (About::Set, b"authorization") if is_behind("session") => self.next = Next::Account,
            (About::SetStatement, b"for") => self.about = About::Start,
            (About::SetRole, b"to" | b"for" | b"except") | (About::SetPassword, b"for") => {
                self.next = Next::Account;
            }
            (About::Show, b"grants") if is_behind("show") => self.about = About::ShowGrants,
            (About::ShowGrants, b"for" | b"using") => {
                (self.is_list, self.next) = (true, Next::Account);
            }
            (About::Show, b"user") if is_behind("create") => self.next = Next::Account,
            (About::Kill, b"user") => self.next = Next::Account,
            (About::Change, b"privilege_checks_user") => self.next = Next::Equals,
            (About::Clone, b"from") if is_behind("instance") => self.next = Next::Account,
            _ => {}
        }
    }

    fn users(&mut self) {
        (self.about, self.is_list, self.next) = (About::Users, true, Next::Account);
    }

    /// The first word of a statement.
    fn begin(&mut self, text: &[u8], word: &[u8], ahead: &Source<'_>) {
        let is_compound = self.is_compound;
        *self = Self { about: About::Other, is_compound, last: self.last, ..Self::default() };
        match word {
            b"create" | b"alter" => {
                self.about = if word == b"create" { About::Create } else { About::Alter };
                (self.is_header, self.is_compound) = (true, true);
            }
            // What mysqldump writes around a view may come in pieces: `/*!50013 DEFINER=... */`.
            b"definer" => {
                (self.about, self.is_header, self.next) = (About::Create, true, Next::Equals);
            }
            b"drop" | b"deallocate" => self.about = About::Drop,
            b"rename" => self.about = About::Rename,
            b"grant" | b"revoke" => {
                self.about = About::Grant;
                self.is_of_roles = is_of_roles(text, ahead.clone());
                (self.is_list, self.next) = (self.is_of_roles, Next::Other);
                if self.is_of_roles {
                    self.next = Next::Account;
                }
            }
            b"set" => self.about = About::Set,
            b"show" => self.about = About::Show,
            b"kill" => self.about = About::Kill,
            b"change" => self.about = About::Change,
            b"clone" => self.about = About::Clone,
            b"release" => self.about = About::Release,
            b"rollback" => self.about = About::Rollback,
            b"prepare" | b"execute" | b"savepoint" => self.next = Next::Label,
            b"not" | b"atomic" if is_compound => self.about = About::Start,
            b"begin" => (self.about, self.is_compound) = (About::Start, true),
            b"if" | b"while" | b"loop" | b"repeat" | b"declare" | b"case" | b"for" => self.is_compound = true,
            _ => {}
        }
    }
}

/// Words between CREATE and what is created.
const HEADER: &[&[u8]] = &[
    b"or",
    b"replace",
    b"algorithm",
    b"undefined",
    b"merge",
    b"temptable",
    b"sql",
    b"security",
    b"definer",
    b"invoker",
    b"aggregate",
    b"current_user",
    b"current_role",
];

/// Whether a GRANT or REVOKE whose rest is ahead has no ON: then its names are roles.
#[cold]
fn is_of_roles(text: &[u8], mut ahead: Source<'_>) -> bool {
    let (mut depth, mut seen) = (0_usize, 0);
    while let Some(token) = ahead.next() {
        seen += 1;
        let word = &text[token.start..token.end];
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            Kind::Semicolon => return true,
            Kind::Word if depth == 0 && word.eq_ignore_ascii_case(b"on") => return false,
            Kind::Word
                if depth == 0 && (word.eq_ignore_ascii_case(b"to") || word.eq_ignore_ascii_case(b"from")) =>
            {
                return true;
            }
            _ => {}
        }
        if seen == LOOKAHEAD {
            return true;
        }
    }
    true
}

fn is_value(word: &[u8]) -> bool {
    [&b"null"[..], b"true", b"false"].iter().any(|value| word.eq_ignore_ascii_case(value))
}

/// A word in lower case; empty for one that is too long for a keyword.
fn lower<'b>(part: &[u8], buffer: &'b mut [u8; LONGEST]) -> &'b [u8] {
    let Some(lower) = buffer.get_mut(..part.len()) else { return b"" };
    lower.copy_from_slice(part);
    lower.make_ascii_lowercase();
    lower
}

/// The tokens of a text, of which names that are values are `Kind::Account` or `Kind::Label`.
pub struct Named<'a> {
    text: &'a [u8],
    source: Source<'a>,
    names: Names<'a>,
    /// A host, right behind its `@`.
    host: Option<Token>,
}

impl<'a> Named<'a> {
    #[must_use]
    pub fn new(text: &'a [u8], is_cut: bool) -> Self {
        Self { text, source: Source::new(text, is_cut), names: Names::default(), host: None }
    }
}

impl Tokens for Named<'_> {
    fn next(&mut self) -> Option<Token> {
        if let Some(host) = self.host.take() {
            return Some(host);
        }
        let token = self.source.next()?;
        Some(match self.names.take(self.text, token, &self.source) {
            Role::Plain => token,
            Role::Account => Token { kind: Kind::Account, ..token },
            Role::Label => Token { kind: Kind::Label, ..token },
            Role::AtHost => {
                let at = token.start + 1;
                self.host = Some(Token { kind: Kind::Account, start: at, end: token.end });
                Token { kind: Kind::At, start: token.start, end: at }
            }
        })
    }
}
