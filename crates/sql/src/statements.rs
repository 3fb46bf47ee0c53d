//! What a statement does: its verb, and whether it only reads.

use memchr::memchr;

use super::functions::only_computes;
use super::lexer::{Kind, Lexer, Token};
use super::readings;

/// What may begin a statement.
const VERBS: &[&str] = &[
    "select",
    "insert",
    "update",
    "delete",
    "replace",
    "begin",
    "commit",
    "rollback",
    "set",
    "call",
    "show",
    "use",
    "with",
    "explain",
    "describe",
    "desc",
    "table",
    "values",
    "do",
    "create",
    "alter",
    "drop",
    "truncate",
    "rename",
    "start",
    "savepoint",
    "release",
    "lock",
    "unlock",
    "load",
    "import",
    "handler",
    "prepare",
    "execute",
    "deallocate",
    "grant",
    "revoke",
    "analyze",
    "check",
    "checksum",
    "optimize",
    "repair",
    "flush",
    "kill",
    "reset",
    "change",
    "stop",
    "purge",
    "xa",
    "install",
    "uninstall",
    "binlog",
    "cache",
    "clone",
    "help",
    "shutdown",
    "restart",
    "signal",
    "resignal",
    "get",
    "backup",
    "end",
    "if",
    "declare",
    "return",
    "administrator",
    "mysqldump",
];

/// What a statement begins with, in lower case: for WITH that of the statement it belongs to; `other` where that is no
/// word we know, empty where there is no statement.
#[must_use]
pub fn verb(text: &[u8]) -> &'static [u8] {
    let mut words = Words::new(Lexer::new(text), text);
    while words.token().is_some_and(|token| matches!(token.kind, Kind::Open | Kind::Semicolon)) {
        words.step();
    }
    let Some(token) = words.token() else { return b"" };
    if token.kind != Kind::Word {
        return b"other";
    }
    let known = VERBS.iter().find(|verb| words.is(verb)).map_or("other", |verb| verb);
    if known == "with" { words.with_verb().as_bytes() } else { known.as_bytes() }
}

/// Whether a statement of a text is PREPARE or EXECUTE, also IMMEDIATE.
#[must_use]
pub fn is_dynamic(text: &[u8]) -> bool {
    let are_several = memchr(b';', text).is_some();
    let mut begins = true;
    let mut lexer = Lexer::new(text);
    while let Some(token) = lexer.next() {
        let word = &text[token.start..token.end];
        match token.kind {
            Kind::Semicolon => begins = true,
            Kind::Word if begins && is_prepare(word) => return true,
            _ if !are_several => return false,
            _ => begins = false,
        }
    }
    false
}

/// Whether a text begins with EXECUTE IMMEDIATE.
#[must_use]
pub fn is_execute_immediate(text: &[u8]) -> bool {
    let mut words = Words::new(Lexer::new(text), text);
    ["execute", "immediate"].iter().all(|word| {
        let is_it = words.is(word);
        words.step();
        is_it
    })
}

fn is_prepare(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"prepare") || word.eq_ignore_ascii_case(b"execute")
}

/// Whether a statement only reads: it changes no data, takes no lock that outlasts it and that others see, and does
/// nothing to the server. Whatever is not known to be so counts as a write.
///
/// - SELECT, TABLE, VALUES, SHOW, DESCRIBE, HELP, CHECKSUM read. With FOR UPDATE, FOR SHARE, LOCK IN SHARE MODE, INTO
///   OUTFILE or DUMPFILE, NEXT VALUE FOR, or a function that is not known to compute only (stored functions, GET_LOCK,
///   RELEASE_LOCK, NEXTVAL, SETVAL) they do not. SLEEP and BENCHMARK do: they only take time.
/// - User variables belong to the session: setting them (`:=`, INTO @x) reads. So does SET of session variables, names
///   and character sets; of GLOBAL, PERSIST, PASSWORD, DEFAULT ROLE and of a STATEMENT it does not.
/// - EXPLAIN reads whatever it explains; ANALYZE (MariaDB) and EXPLAIN ANALYZE run it, so that must read.
/// - BEGIN, START TRANSACTION, COMMIT, ROLLBACK, SAVEPOINT, RELEASE SAVEPOINT and USE read: alone they change nothing.
/// - CALL, DO, PREPARE, EXECUTE, HANDLER, LOCK, XA and all others are writes.
/// - Of several statements each must read. WITH is what its statement is.
/// - In executable comments only modifiers of SELECT are allowed: which servers run the rest is not known.
/// - Text that ends in a string, or that is another statement as some servers may read it, is a write.
#[must_use]
pub fn is_read_only(text: &[u8]) -> bool {
    let mut words = Words::new(Lexer::new(text), text);
    let reads = words.read_only();
    if reads && words.lexer.doubtful_at().is_some() {
        return readings::others(text).into_iter().all(|lexer| {
            let mut other = Words::new(lexer, text);
            let mut all = Words { ..other };
            while all.token().is_some() {
                all.step();
            }
            // A server with this reading refuses it.
            all.broken || other.read_only()
        });
    }
    reads
}

/// A statement's tokens, one ahead.
struct Words<'a> {
    lexer: Lexer<'a>,
    text: &'a [u8],
    ahead: Option<Token>,
    /// The text ends in a string, or has a backslash outside of them.
    broken: bool,
    /// An executable comment holds something.
    executable: bool,
}

impl<'a> Words<'a> {
    fn new(lexer: Lexer<'a>, text: &'a [u8]) -> Self {
        let mut words = Self { lexer, text, ahead: None, broken: false, executable: false };
        words.step();
        words
    }

    fn token(&self) -> Option<Token> {
        self.ahead
    }

    fn part(&self) -> &'a [u8] {
        self.ahead.map_or(b"", |token| &self.text[token.start..token.end])
    }

    fn step(&mut self) {
        self.ahead = self.lexer.next();
        if let Some(token) = self.ahead {
            self.broken |= matches!(token.kind, Kind::Unterminated | Kind::Stray);
            self.executable |=
                self.lexer.is_executable() && !(token.kind == Kind::Word && self.is_any(MODIFIERS));
        }
    }

    fn is(&self, word: &str) -> bool {
        self.ahead.is_some_and(|token| token.kind == Kind::Word)
            && self.part().eq_ignore_ascii_case(word.as_bytes())
    }

    fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    fn take(&mut self, word: &str) -> bool {
        let is = self.is(word);
        if is {
            self.step();
        }
        is
    }

    /// From WITH to the verb behind its parts.
    fn with_verb(&mut self) -> &'static str {
        const MAIN: &[&str] = &["select", "insert", "update", "delete", "replace", "table", "values"];
        let mut depth = 0;
        while let Some(token) = self.token() {
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth -= 1,
                Kind::Semicolon => break,
                Kind::Word if depth == 0 => {
                    if let Some(verb) = MAIN.iter().find(|verb| self.is(verb)) {
                        return verb;
                    }
                }
                _ => {}
            }
            self.step();
        }
        "with"
    }

    fn read_only(&mut self) -> bool {
        let mut statements = 0;
        loop {
            while self.token().is_some_and(|token| token.kind == Kind::Semicolon) {
                self.step();
            }
            if self.token().is_none() {
                return statements > 0 && !self.broken && !self.executable;
            }
            if !self.statement_reads() || !self.rest_reads() {
                return false;
            }
            statements += 1;
        }
    }

    /// Judges a statement by its first words.
    fn statement_reads(&mut self) -> bool {
        while self.token().is_some_and(|token| token.kind == Kind::Open) {
            self.step();
        }
        if self.take("set") {
            return self.set_reads();
        }
        if self.take("explain") || self.take("describe") || self.take("desc") {
            // What is explained runs only with ANALYZE.
            return if self.is("analyze") { self.analyzed_reads() } else { self.skip_statement() };
        }
        if self.is("analyze") {
            return self.analyzed_reads();
        }
        if self.take("start") {
            return self.take("transaction");
        }
        if self.take("release") {
            return self.take("savepoint") && self.skip_statement();
        }
        if self.is_any(&["use", "savepoint", "show", "help", "checksum"]) {
            return self.skip_statement();
        }
        if self.is_any(&["begin", "commit", "rollback"]) {
            self.step();
            // A block of statements begins so as well.
            return self.token().is_none()
                || self.token().is_some_and(|token| token.kind == Kind::Semicolon)
                || self.is_any(&["work", "and", "to", "no", "chain", "release"]) && self.skip_statement();
        }
        if self.is("with") {
            return matches!(Words { ..*self }.with_verb(), "select" | "table" | "values");
        }
        self.is_any(&["select", "table", "values"])
    }

    /// Passes a statement that changes nothing whatever it holds.
    fn skip_statement(&mut self) -> bool {
        while self.token().is_some_and(|token| token.kind != Kind::Semicolon) {
            self.step();
        }
        true
    }

    fn analyzed_reads(&mut self) -> bool {
        self.step();
        if self.take("format") {
            self.step();
            self.step();
        }
        while self.token().is_some_and(|token| token.kind == Kind::Open) {
            self.step();
        }
        match self.is("with") {
            true => matches!(Words { ..*self }.with_verb(), "select" | "table" | "values"),
            false => self.is("select"),
        }
    }

    /// Behind SET: variables of the session, each with its expression.
    fn set_reads(&mut self) -> bool {
        let mut is_name = true;
        loop {
            let Some(token) = self.token() else { return true };
            match token.kind {
                Kind::Semicolon => return true,
                Kind::Word if is_name => {
                    if self.is_any(&[
                        "global",
                        "persist",
                        "persist_only",
                        "password",
                        "default",
                        "statement",
                        "resource",
                    ]) {
                        return false;
                    }
                    is_name = self.is_any(&["session", "local", "transaction"]);
                }
                Kind::Variable if is_name => {
                    let name = self.part().to_ascii_lowercase();
                    if name.starts_with(b"@@global") || name.starts_with(b"@@persist") {
                        return false;
                    }
                    is_name = false;
                }
                Kind::Comma => is_name = true,
                _ => is_name = false,
            }
            if !self.token_reads() {
                return false;
            }
        }
    }

    /// The rest of a statement that reads by its first words.
    fn rest_reads(&mut self) -> bool {
        while self.token().is_some_and(|token| token.kind != Kind::Semicolon) {
            if !self.token_reads() {
                return false;
            }
        }
        true
    }

    /// Judges one token, with the next ones where it needs them, and steps on.
    fn token_reads(&mut self) -> bool {
        let Some(token) = self.token() else { return true };
        let part = self.part();
        let is_call = |words: &Self| words.token().is_some_and(|token| token.kind == Kind::Open);
        match token.kind {
            Kind::Word => {
                let begins = |word: &str| part.eq_ignore_ascii_case(word.as_bytes());
                self.step();
                if begins("for") {
                    return !self.is_any(&["update", "share"]);
                }
                if begins("lock") {
                    return !self.is("in");
                }
                if begins("next") {
                    return !self.is("value");
                }
                if begins("into") {
                    return self.token().is_some_and(|token| matches!(token.kind, Kind::Variable | Kind::At));
                }
                if begins("nextval") || begins("setval") {
                    return false;
                }
                if begins("with") || begins("recursive") {
                    // The name of a part, and its columns.
                    if self.token().is_some_and(|token| token.kind == Kind::Word) && !self.is("recursive") {
                        self.step();
                    }
                    return true;
                }
                !is_call(self) || only_computes(part)
            }
            // A function's name may be quoted, and qualified.
            Kind::Quoted | Kind::String => {
                self.step();
                !is_call(self)
            }
            Kind::Dot => {
                self.step();
                let is_name =
                    self.token().is_some_and(|token| matches!(token.kind, Kind::Word | Kind::Quoted));
                if is_name {
                    let is_sequence = self.is_any(&["nextval", "currval"]);
                    self.step();
                    return !is_call(self) && !is_sequence;
                }
                true
            }
            _ => {
                self.step();
                true
            }
        }
    }
}

/// What a SELECT may have in an executable comment.
const MODIFIERS: &[&str] = &[
    "sql_no_cache",
    "sql_cache",
    "sql_calc_found_rows",
    "sql_buffer_result",
    "sql_big_result",
    "sql_small_result",
    "high_priority",
    "straight_join",
];

#[cfg(test)]
mod tests {
    use super::{is_dynamic, is_execute_immediate, is_read_only, verb};

    #[test]
    fn what_prepares_or_executes() {
        for text in [
            "PREPARE s FROM 'select 1'",
            "/* a */ execute s using @a;",
            "Execute immediate concat('a', @b)",
            "set @a = 1; execute s",
            ";; execute s",
        ] {
            assert!(is_dynamic(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            ";",
            "select 'execute s'",
            "select `execute` from prepare",
            "deallocate prepare s; select 1",
            "'; execute s'",
        ] {
            assert!(!is_dynamic(text.as_bytes()), "{text}");
        }
        for text in ["/* a */ execute\nImmediate @a", "EXECUTE IMMEDIATE 'select 1' USING 2"] {
            assert!(is_execute_immediate(text.as_bytes()), "{text}");
        }
        for text in ["", "execute s", "execute `immediate`", "select 1; execute immediate 'select 2'"] {
            assert!(!is_execute_immediate(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_only_reads() {
        for text in [
            "select c from t where id = 1",
            "(select 1) union (select 2)",
            "select count(*), max(a) from t where a in (1) and (b or c) group by d with rollup",
            "with c (n) as (select 1) select * from c",
            "select /*!40001 SQL_NO_CACHE */ * from `t`",
            "show tables",
            "explain update t set a = 1",
            "explain analyze select 1",
            "analyze format=json select 1",
            "select @a := 1, sleep(1)",
            "select a into @x from t",
            "set names utf8mb4; set @x = 1, session sql_mode = '', @@session.x = 1, autocommit = 0",
            "begin; select 1; commit",
            "start transaction with consistent snapshot",
            "rollback to savepoint a",
            "use db",
            "select 'it\\'s; delete from t'",
            "select cast(a as decimal(10,2)), row_number() over (order by b) from t use index for join (x)",
            "table t",
            "values row(1), row(2)",
            "select 1;",
        ] {
            assert!(is_read_only(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_writes_or_might() {
        for text in [
            "",
            "insert into t values (1)",
            "with c as (select 1) delete from t",
            "select 1 from t for update",
            "select 1 from t for share",
            "select 1 from t lock in share mode",
            "select 1 into outfile 'x'",
            "select 1 into dumpfile 'x' from t",
            "select get_lock('a', 1)",
            "select release_lock('a')",
            "select nextval(s), lastval(s)",
            "select next value for s",
            "select s.nextval from dual",
            "select my_function(1)",
            "select `my_function`(1)",
            "select db.sleep(1)",
            "select 1; delete from t",
            "set global x = 1",
            "set @@global.x = 1",
            "set persist x = 1",
            "set @a = 1, global x = 1",
            "set @a = get_lock('x', 1)",
            "set password = 'x'",
            "set default role x to y",
            "set statement max_statement_time = 1 for delete from t",
            "analyze update t set a = 1",
            "analyze table t",
            "explain analyze delete from t",
            "/*!99999 explain */ delete from t",
            "/*! delete from t */",
            "select 1 /*!50000 into outfile 'x' */",
            "select 'a\\' ; delete from t -- '",
            "select 'open",
            "begin not atomic delete from t; end",
            "call p()",
            "do sleep(1)",
            "xa commit 'x'",
            "kill 1",
            "flush tables",
            "lock tables t read",
            "load data infile 'x' into table t",
            "execute s",
            "handler t read first",
            "create table t (a int)",
            "nonsense",
        ] {
            assert!(!is_read_only(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn verbs() {
        for (text, expected) in [
            ("SELECT 1", "select"),
            (" /* c */ ((select 1))", "select"),
            ("with a as (select 1), b as (values (1)) DELETE from t", "delete"),
            ("with a as (select 1) select 1", "select"),
            ("; insert into t", "insert"),
            ("xyz", "other"),
            ("1", "other"),
            ("", ""),
            ("-- only a comment", ""),
            ("administrator command: Ping", "administrator"),
        ] {
            assert_eq!(verb(text.as_bytes()), expected.as_bytes(), "{text}");
        }
    }
}
