//! Passwords taken out of statements.
//!
//! Taken out are the strings and hex values
//! - behind IDENTIFIED (BY, AS, WITH ... BY, VIA ... USING, REPLACE), up to the next account or option;
//! - of SET PASSWORD, and behind any name with `passw`, `passphrase`, `secret`, `auth_string`, `authentication_string` or
//!   `sst_auth` in it (MASTER_PASSWORD, SOURCE_PASSWORD, OPTIONS (PASSWORD ...), columns and variables called so), or with `pass`
//!   or `pwd` at its end;
//! - in the places of such columns in VALUES and SELECT of an INSERT or REPLACE that lists its columns;
//! - in calls of functions that encrypt, decrypt or make passwords, and of the procedures by which clouds set up a replica,
//!   whatever the argument;
//! - that are hashes of passwords by their look, or, in statements that are not about rows, addresses with a password or
//!   SQL that is about passwords itself; then the strings behind it, too, of which a statement may be put together.
//!
//! Comments go where they speak of passwords.
//!
//! Values of an INSERT without a list of columns are not found.

use memchr::memmem;

use super::comments::without_comments;
use super::finder::has_quoted_names;
use super::lexer::{Kind, Lexer, Token};
use super::places::Places;
use super::readings;

/// What is in place of a password.
const HIDDEN: &[u8] = b"'***'";

/// Replaces what `out` holds by `text` without its passwords; true if there were any.
pub fn redact(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut lexer = Lexer::new(text);
    if memchr::memchr(b'"', text).is_some() && has_quoted_names(lexer, text) {
        lexer = lexer.with_quoted_names();
    }
    let usual = redact_reading(lexer, text, out);
    let Some(doubt) = usual.doubtful_at else { return usual.is_secret };
    let mut ignored = Vec::new();
    let others = readings::others(text);
    let is_secret =
        usual.is_secret || others.iter().any(|&other| redact_reading(other, text, &mut ignored).is_secret);
    if is_secret && !others.is_empty() {
        // Strings may not end where we think: with a password about, nothing from there on is kept.
        redact_reading(Lexer::new(&text[..doubt]), &text[..doubt], out);
        out.extend_from_slice(HIDDEN);
    }
    is_secret
}

/// Whether `redact` took a password out of a text. Sent again, it would set a wrong one.
#[must_use]
pub fn is_redacted(text: &[u8]) -> bool {
    memchr::memmem::find(text, HIDDEN).is_some() && redact(text, &mut Vec::new())
}

/// The result of one reading of a text.
struct Redacted {
    /// It contained passwords, or named something that may take one.
    is_secret: bool,
    doubtful_at: Option<usize>,
}

fn redact_reading(mut lexer: Lexer<'_>, text: &[u8], out: &mut Vec<u8>) -> Redacted {
    out.clear();
    let mut search = Search::default();
    let (mut copied, mut behind) = (0, 0);
    let mut is_secret = false;
    while let Some(token) = lexer.next() {
        let between = &text[behind..token.start];
        behind = token.end;
        if between.len() > 8 && speaks_of_passwords(between) {
            out.extend_from_slice(&text[copied..token.start - between.len()]);
            without_comments(between, out);
            copied = token.start;
            is_secret = true;
        }
        if search.hides(text, token) {
            out.extend_from_slice(&text[copied..token.start]);
            out.extend_from_slice(HIDDEN);
            copied = token.end;
            is_secret = true;
        }
    }
    if text.len() - behind > 8 && speaks_of_passwords(&text[behind..]) {
        out.extend_from_slice(&text[copied..behind]);
        without_comments(&text[behind..], out);
        is_secret = true;
    } else {
        out.extend_from_slice(&text[copied..]);
    }
    Redacted { is_secret, doubtful_at: lexer.doubtful_at() }
}

fn speaks_of_passwords(text: &[u8]) -> bool {
    contains_any_case(text, b"identified") || contains_any_case(text, b"passw")
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Armed {
    #[default]
    No,
    /// Right behind a secret's name: an operator, a parenthesis or the value follows.
    Name,
    /// Behind its operator: everything to the end of the expression.
    Value,
    /// In the parentheses of a function.
    Call,
    /// Behind IDENTIFIED.
    Identified,
    /// SET PASSWORD, before and behind the equals sign.
    SetPassword,
    SetPasswordValue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Words {
    #[default]
    Other,
    Set,
    SetPassword,
}

#[derive(Debug, Default)]
struct Search {
    armed: Armed,
    depth: i32,
    /// The depth at which it was armed.
    base: i32,
    /// Whether the statement is about rows, set at its first word.
    is_about_rows: Option<bool>,
    is_set: bool,
    last_is_set: bool,
    /// The last words, anywhere in a statement.
    words: Words,
    /// A part of SQL about passwords was in a string: what follows may be the rest of it.
    is_put_together: bool,
    places: Places,
    function: bool,
    /// Something secret was named in the text.
    was_secret: bool,
}

impl Search {
    /// Looks at the next token; true if it must not be seen.
    fn hides(&mut self, text: &[u8], token: Token) -> bool {
        let part = &text[token.start..token.end];
        let last_is_set = std::mem::take(&mut self.last_is_set);
        let has_its_place = self.places.is_secret(part, token, is_secret_name);
        match token.kind {
            Kind::Word => self.word(part, last_is_set),
            Kind::Quoted | Kind::Variable => self.name(part),
            Kind::String | Kind::Bits | Kind::Unterminated => {
                if has_its_place || self.armed_for_value() || self.is_put_together || self.looks_secret(part)
                {
                    return true;
                }
                if part[0] == b'"' {
                    // Under ANSI_QUOTES it is a name.
                    self.name(part);
                }
            }
            Kind::Operator => match self.armed {
                Armed::Name => self.armed = Armed::Value,
                Armed::SetPassword if part == b"=" || part == b":=" => self.armed = Armed::SetPasswordValue,
                _ => {}
            },
            // The host of a user whose name sounds like a password.
            Kind::At if self.armed == Armed::Name => self.armed = Armed::No,
            Kind::Open => {
                self.depth += 1;
                if self.armed == Armed::Name && self.function {
                    self.arm(Armed::Call);
                }
            }
            Kind::Close => {
                self.depth -= 1;
                let is_end = self.depth < self.base;
                if is_end
                    && matches!(self.armed, Armed::Call | Armed::Value | Armed::Name | Armed::Identified)
                {
                    self.armed = Armed::No;
                }
            }
            Kind::Comma => {
                let ends = matches!(self.armed, Armed::Name | Armed::Value | Armed::Identified);
                if ends && self.depth <= self.base {
                    self.armed = Armed::No;
                }
            }
            Kind::Semicolon => {
                *self = Self { was_secret: self.was_secret, ..Self::default() };
            }
            _ => {}
        }
        self.function = token.kind == Kind::Word;
        false
    }

    fn arm(&mut self, armed: Armed) {
        self.armed = armed;
        self.base = self.depth;
        self.was_secret = true;
    }

    fn armed_for_value(&self) -> bool {
        !matches!(self.armed, Armed::No | Armed::SetPassword)
    }

    fn word(&mut self, word: &[u8], last_is_set: bool) {
        self.words = match self.words {
            Words::Set if is_any(word, &["password"]) => Words::SetPassword,
            Words::SetPassword if is_any(word, &["for"]) => {
                self.words = Words::Other;
                return self.arm(Armed::SetPassword);
            }
            _ if is_any(word, &["set"]) => Words::Set,
            _ => Words::Other,
        };
        if self.is_about_rows.is_none() {
            self.is_set = word.eq_ignore_ascii_case(b"set");
            self.last_is_set = self.is_set;
            self.is_about_rows =
                Some(is_any(word, &["select", "insert", "update", "delete", "replace", "with", "values"]));
            return;
        }
        if is_any(word, &["identified"]) {
            return self.arm(Armed::Identified);
        }
        if last_is_set && is_any(word, &["password"]) {
            return self.arm(Armed::SetPassword);
        }
        match self.armed {
            Armed::No | Armed::Name | Armed::Value if is_secret_name(word) => self.arm(Armed::Name),
            Armed::Identified if self.depth <= self.base && is_any(word, OPTIONS) => self.armed = Armed::No,
            Armed::Name if !is_any(word, BETWEEN) => self.armed = Armed::No,
            Armed::Value if self.depth <= self.base && is_any(word, ENDS) => self.armed = Armed::No,
            _ => {}
        }
    }

    fn name(&mut self, name: &[u8]) {
        match self.armed {
            Armed::No | Armed::Name | Armed::Value if is_secret_name(name) => self.arm(Armed::Name),
            Armed::Name => self.armed = Armed::No,
            _ => {}
        }
    }

    /// Secret by its own look.
    fn looks_secret(&mut self, string: &[u8]) -> bool {
        let content = string.get(1..string.len().saturating_sub(1)).unwrap_or_default();
        if let [b'*', digits @ ..] = content
            && digits.len() == 40
            && digits.iter().all(u8::is_ascii_hexdigit)
        {
            return true;
        }
        if content.starts_with(b"$A$005$") {
            return true;
        }
        if self.is_about_rows != Some(false) {
            return false;
        }
        // user:password@host, or a statement in a string.
        let address = memmem::find(content, b"://").is_some_and(|at| {
            let rest = &content[at + 3..];
            let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            memchr::memchr(b'@', &rest[..end]).is_some_and(|at| rest[..at].contains(&b':'))
        });
        self.is_put_together = speaks_of_passwords(content);
        address || self.is_put_together
    }
}

/// What ends the secrets of an account.
const OPTIONS: &[&str] =
    &["require", "account", "comment", "attribute", "default", "failed_login_attempts", "password_lock_time"];
/// What may be between a name and its value.
const BETWEEN: &[&str] = &[
    "like", "in", "not", "is", "for", "binary", "rlike", "regexp", "between", "to", "as", "using", "by",
    "with", "value", "values",
];
/// What ends an expression.
const ENDS: &[&str] = &[
    "and",
    "or",
    "xor",
    "where",
    "from",
    "set",
    "when",
    "then",
    "else",
    "end",
    "limit",
    "order",
    "group",
    "having",
    "union",
    "on",
    "join",
    "as",
    "for",
    "returning",
    "select",
];

/// Whether it is one of them, in any letter case.
pub(super) fn is_any(word: &[u8], words: &[&str]) -> bool {
    words.iter().any(|any| word.eq_ignore_ascii_case(any.as_bytes()))
}

/// What names of passwords and of functions that encrypt have in them.
const PARTS: &[&str] =
    &["passw", "passphrase", "secret", "sst_auth", "auth_string", "authentication_string", "crypt"];
/// Of each byte, which of `PARTS` have it first, and second: a bit each. Most names are done after these.
const FIRST: [u8; 256] = parts_with(0);
const SECOND: [u8; 256] = parts_with(1);

const fn parts_with(place: usize) -> [u8; 256] {
    let mut table = [0; 256];
    let mut part = 0;
    while part < PARTS.len() {
        let byte = PARTS[part].as_bytes()[place];
        table[byte as usize] |= 1 << part;
        table[byte.to_ascii_uppercase() as usize] |= 1 << part;
        part += 1;
    }
    table
}

/// Names of passwords, and of functions whose arguments are keys or passwords.
fn is_secret_name(name: &[u8]) -> bool {
    if has_secret_end(name) {
        return true;
    }
    if name.len() < 6 {
        return false;
    }
    let is_part = name.windows(2).enumerate().any(|(at, pair)| {
        FIRST[usize::from(pair[0])] & SECOND[usize::from(pair[1])] != 0
            && PARTS.iter().any(|part| starts(&name[at..], part))
    });
    is_part
        || CLOUDS.iter().any(|cloud| starts(name, cloud))
        || is_any(name, &["encode", "decode", "keyring_key_store", "create_asymmetric_priv_key", "kdf"])
}

/// `pwd`, `user_pass`; not `bypass`.
fn has_secret_end(name: &[u8]) -> bool {
    let name = match name {
        [b'`' | b'"', inner @ .., b'`' | b'"'] => inner,
        name => name,
    };
    ["pwd", "pass"].iter().any(|end| {
        let Some(at) = name.len().checked_sub(end.len()) else { return false };
        starts(&name[at..], end) && (at == 0 || matches!(name[at - 1], b'_' | b'@' | b'.'))
    })
}

/// How the names of procedures begin that take an account of another server, with its password: of Amazon RDS, Azure and Google
/// Cloud SQL.
const CLOUDS: &[&str] =
    &["rds_set_external_", "rds_import_binlog_ssl", "az_replication_change_", "setupexternalsource"];

fn starts(text: &[u8], with: &str) -> bool {
    text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
}

/// Whether `text` has `what`, which is in lower case.
fn contains_any_case(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window.eq_ignore_ascii_case(what))
}

#[cfg(test)]
mod tests {
    use super::redact;

    fn redacted(text: &str) -> (String, bool) {
        let mut out = Vec::new();
        let was = redact(text.as_bytes(), &mut out);
        (String::from_utf8(out).unwrap(), was)
    }

    #[test]
    fn no_password_is_left() {
        for text in [
            "CREATE USER 'bob'@'%' IDENTIFIED BY 'hunter2'",
            "create user a identified by 'hunter2' , b identified by \"hunter2\" require ssl",
            "CREATE USER a IDENTIFIED WITH caching_sha2_password BY 'hunter2' PASSWORD EXPIRE INTERVAL 90 DAY",
            "CREATE USER a IDENTIFIED WITH caching_sha2_password AS 0x68756E74657232 /* hunter? */",
            "CREATE USER a IDENTIFIED VIA ed25519 USING 'hunter2' OR mysql_native_password USING PASSWORD('hunter2')",
            "ALTER USER a IDENTIFIED BY 'hunter2' REPLACE 'hunter2' RETAIN CURRENT PASSWORD",
            "ALTER USER a ADD 2 FACTOR IDENTIFIED WITH x BY 'hunter2' ADD 3 FACTOR IDENTIFIED BY 'hunter2'",
            "GRANT ALL ON *.* TO 'bob'@'%' IDENTIFIED BY PASSWORD 'hunter2' WITH GRANT OPTION",
            "SET PASSWORD = 'hunter2'",
            "set password for 'bob'@'%' = password('hunter2')",
            "SET PASSWORD FOR 'bob' = 'hunter2' REPLACE 'hunter2'",
            "SET PASSWORD := 'hunter2'",
            "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SET PASSWORD FOR bob@localhost = 'hunter2'",
            "EXECUTE IMMEDIATE CONCAT('SET PASSWORD FOR ', 'bob', ' = ''hunter2''')",
            "CHANGE MASTER TO MASTER_HOST='h', MASTER_PASSWORD='hunter2', MASTER_PORT=3306",
            "CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD = \"hunter2\"",
            "START GROUP_REPLICATION USER='u', PASSWORD='hunter2'",
            "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD 'hunter2', HOST 'h')",
            "CREATE TABLE f (a int) ENGINE=FEDERATED CONNECTION='mysql://u:hunter2@h:3306/d/t'",
            "SELECT AES_ENCRYPT('data', 'hunter2'), aes_decrypt (c, concat('hunter2', 'x')) from t",
            "SELECT * FROM u WHERE password = sha2(concat('hunter2', salt), 256) and x = 1",
            "SELECT * FROM u WHERE name='a' AND `password`='hunter2'",
            "SELECT * FROM u WHERE u.password IN ('hunter2', 'hunter2')",
            "SELECT * FROM u WHERE name='a' AND `user_pass` = 'hunter2' AND 1",
            "INSERT INTO wp_users (user_login, user_pass) VALUES ('bob', 'hunter2')",
            "UPDATE u SET Pwd='hunter2' WHERE id = 1",
            "CALL mysql.rds_set_external_master ('h', 3306, 'u', 'hunter2', 'f', 120, 0)",
            "call mysql.rds_set_external_source_with_auto_position('h',3306,'u','hunter2',0)",
            "CALL mysql.rds_import_binlog_ssl_material('{\"ssl_key\":\"hunter2\"}')",
            "CALL mysql.az_replication_change_master('h', 'u', 'hunter2', 3306, 'f', 4, '')",
            "CALL mysql.setupExternalSourceAutoPosition('h', 3306, 'u', 'hunter2', '', '', '')",
            "INSERT INTO users (name, password) VALUES ('bob','hunter2')",
            "insert into d.users (`password`, name) values ('hunter2', 'bob'), (concat('hunter2', 'x'), 'eve')",
            "replace users partition (p0) (name, u.password) value row('bob', 'hunter2')",
            "insert into users (name, secret) select 'bob', 'hunter2' from dual union select 'eve', 'hunter2'",
            "insert into users (name, secret) (select f('a', 'b'), 'hunter2')",
            "explain insert into users (password) values (x'68756E74657232')",
            "insert into users (name, password) values ('bob', 'hunter2",
            r"insert into users (path, password) values ('C:\', 'hunter2')",
            "create trigger t before insert on a for each row begin insert into u (a, passwd) values (1, 'hunter2'); end",
            "SELECT * FROM u WHERE \"password\" = 'hunter2'",
            "INSERT INTO \"users\" (\"name\", \"password\") VALUES ('bob','hunter2')",
            "update \"u\" set \"passwd\" = 'hunter2', a = 'b'",
            "UPDATE mysql.user SET authentication_string = 'hunter2' WHERE user='x'",
            "SET @app_password := 'hunter2'",
            "SET GLOBAL wsrep_sst_auth = 'root:hunter2'",
            "PREPARE s FROM 'alter user a identified by ''hunter2'''",
            "SET @s = 'SET PASSWORD = \"hunter2\"'",
            "select 1; create user a identified by 'hunter2'",
            "/*!50001 create user a identified by 'hunter2' */",
            "create user a identified by 'hunter2",
            "create user 'it\\'s' identified by 'hunter2\\', 'b' identified by 'hunter2'",
            "select aes_encrypt('a', x'68756E74657232'), 1",
            "clone instance from 'u'@'h':3306 identified by 'hunter2'",
            "select decode(x, 'hunter2'), 'b'",
            "select 1 /* identified by 'hunter2' */ + 1",
            "select 1 -- set password = 'hunter2'",
        ] {
            let (out, was) = redacted(text);
            assert!(was, "{text}");
            assert!(!out.contains("hunter2") && !out.contains("68756E"), "{text} -> {out}");
            let mut again = Vec::new();
            redact(out.as_bytes(), &mut again);
            assert_eq!(out.as_bytes(), again, "not the same twice");
        }
    }

    #[test]
    fn what_is_none_stays() {
        for text in [
            "select c from sbtest1 where id = 'x' and y = \"z\"",
            "insert into t values ('a', 'b'), (x'41', 'password')",
            "insert into t (a, b) values ('a', 'b') on duplicate key update b = 'c'",
            "select replace(a, 'b', 'c'), insert('a', 1, 2, 'b') from t",
            "select a from t where b = \"password\" and c in (\"secret\", 'd')",
            "CREATE USER a PASSWORD EXPIRE INTERVAL 90 DAY COMMENT 'hello'",
            "update u set password_changed = now(), name = 'bob'",
            "set names 'utf8mb4'",
            "grant select on d.* to secretary@'10.1.%', passwd_admin@'%'",
            "show grants for secretary@'10.1.%'",
            "select bypass from t where bypass = 'x' and compass='y' and passes = 'z'",
            "create table t (password varchar(255) not null, b varchar(10) default 'x')",
        ] {
            assert_eq!(redacted(text), (text.to_owned(), false), "{text}");
        }
        assert_eq!(
            redacted(
                "CREATE USER 'bob'@'%' IDENTIFIED BY 'x', 'eve'@'h' IDENTIFIED BY 'y' REQUIRE ISSUER 'ca'"
            )
            .0,
            "CREATE USER 'bob'@'%' IDENTIFIED BY '***', 'eve'@'h' IDENTIFIED BY '***' REQUIRE ISSUER 'ca'"
        );
        assert_eq!(
            redacted("select * from u where password='x' and name='bob' and 'a' = 1").0,
            "select * from u where password='***' and name='bob' and 'a' = 1"
        );
        assert_eq!(
            redacted("insert into u (password, name) values ('x', 'bob'), ('y', f('a', 'b')) on duplicate key update name = 'z'").0,
            "insert into u (password, name) values ('***', 'bob'), ('***', f('a', 'b')) on duplicate key update name = 'z'"
        );
        assert_eq!(redacted("select '*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19'").0, "select '***'");
    }
}
