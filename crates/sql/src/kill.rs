//! KILL: what a statement would end beyond its own session.
//!
//! A KILL names a connection of the server it was meant for; on another server that number is a stranger's.

use super::lexer::{Kind, Lexer, Token};
use super::readings;
use super::redact::is_any;

/// Statements in strings are followed no deeper than this.
const DEEPEST: u32 = 2;

/// What a statement ends that is not its own session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A KILL and nothing else, of one connection by its number.
    Connection(Kill),
    /// MariaDB's KILL USER: all connections of an account.
    User,
    /// MariaDB's KILL QUERY ID: a statement by a number that only the server knows.
    QueryId,
    /// The number is computed: a function, a variable, a placeholder, a string.
    Expression,
    /// A KILL among other statements, in an executable comment, in a stored program, prepared, or by a cloud's procedure.
    Among,
    /// SHUTDOWN, RESTART.
    Server,
}

/// `KILL [HARD | SOFT] [CONNECTION | QUERY] connection`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    pub connection: u64,
    /// Ends only the statement that runs.
    pub is_query: bool,
    pub manner: Manner,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    #[default]
    Unsaid,
    Hard,
    Soft,
}

impl Kill {
    /// The same for another connection.
    #[must_use]
    pub fn to_sql(&self, connection: u64) -> String {
        let manner = match self.manner {
            Manner::Unsaid => "",
            Manner::Hard => "HARD ",
            Manner::Soft => "SOFT ",
        };
        format!("KILL {manner}{} {connection}", if self.is_query { "QUERY" } else { "CONNECTION" })
    }
}

/// What a statement ends beyond its own session; None for what ends nothing. What a stored program does when it is called,
/// and text that is put together from rows, cannot be seen here.
#[must_use]
pub fn ending(text: &[u8]) -> Option<Ending> {
    ending_in(text, 0)
}

/// Whether a statement may leave the text of a KILL in a variable.
#[must_use]
pub fn mentions_kill(text: &[u8]) -> bool {
    let mut strings = Vec::new();
    let mut lexer = Lexer::new(text);
    while let Some(token) = lexer.next() {
        add_string(text, token, &mut strings);
    }
    has_kill(&strings)
}

/// Whether bytes hold the letters of KILL.
#[must_use]
pub fn has_kill(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|letters| letters.eq_ignore_ascii_case(b"kill"))
}

/// Whether a statement runs, or prepares, a text that is not in it: PREPARE FROM and EXECUTE IMMEDIATE of an expression.
#[must_use]
pub fn runs_other_text(text: &[u8]) -> bool {
    let mut lexer = Lexer::new(text);
    let mut seen = Dynamic::default();
    while let Some(token) = lexer.next() {
        let is_behind = seen.is_behind;
        seen.take(text, token);
        if is_behind && token.kind != Kind::String {
            return true;
        }
    }
    false
}

fn ending_in(text: &[u8], depth: u32) -> Option<Ending> {
    let lexer = Lexer::new(text);
    let (found, is_doubtful) = look(lexer, text, depth);
    if !is_doubtful {
        return found;
    }
    // Another reading may also hold a KILL: then it is unknown which one the server would run.
    let mut others = readings::others(text).into_iter().filter_map(|lexer| look(lexer, text, depth).0);
    match others.next() {
        Some(_) => Some(Ending::Among),
        None => found,
    }
}

/// What one reading of a text ends, and whether there are others.
fn look(mut lexer: Lexer<'_>, text: &[u8], depth: u32) -> (Option<Ending>, bool) {
    let mut whole = Whole::default();
    let mut dynamic = Dynamic::default();
    let mut strings = Vec::new();
    let mut before: Option<Token> = None;
    let mut ends = None;
    while let Some(token) = lexer.next() {
        let word = &text[token.start..token.end];
        whole.take(token, word, lexer.is_executable());
        dynamic.take(text, token);
        if dynamic.is_any && add_string(text, token, &mut strings) && depth < DEEPEST {
            let inner = &strings[strings.len() - inner_bytes(text, token).len()..];
            if ending_in(inner, depth + 1).is_some() {
                ends = Some(Ending::Among);
            }
        }
        if token.kind == Kind::Word {
            let is_member = before.is_some_and(|before| matches!(before.kind, Kind::Dot));
            if is_any(word, &["kill"]) && !is_member && !is_assigned(lexer) {
                ends.get_or_insert(Ending::Among);
            } else if is_any(word, &["shutdown", "restart"]) && begins(before, text) {
                ends.get_or_insert(Ending::Server);
            } else if is_any(word, &["rds_kill", "rds_kill_query", "az_kill", "az_kill_query"]) {
                ends.get_or_insert(Ending::Among);
            }
        }
        before = Some(token);
    }
    if dynamic.is_any && has_kill(&strings) {
        ends.get_or_insert(Ending::Among);
    }
    let ends = ends.map(|ends| if ends == Ending::Among { whole.ending().unwrap_or(ends) } else { ends });
    (ends, lexer.doubtful_at().is_some())
}

/// `kill` is reserved: only where it is given a value may it be a name, to a server of another kind.
fn is_assigned(mut ahead: Lexer<'_>) -> bool {
    ahead.next().is_some_and(|token| token.kind == Kind::Operator)
}

/// Whether a statement begins behind this token.
fn begins(before: Option<Token>, text: &[u8]) -> bool {
    const OPENERS: &[&str] = &["begin", "atomic", "then", "else", "do", "loop", "repeat"];
    before.is_none_or(|token| match token.kind {
        Kind::Semicolon => true,
        Kind::Word => is_any(&text[token.start..token.end], OPENERS),
        _ => false,
    })
}

/// A statement that is a KILL from its first word to its last.
#[derive(Default)]
struct Whole {
    step: Step,
    manner: Manner,
    is_query: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Start,
    Manner,
    What,
    /// Behind QUERY or CONNECTION.
    Number,
    Ended(Ending),
    Other,
}

impl Whole {
    fn take(&mut self, token: Token, word: &[u8], is_executable: bool) {
        let is = |name: &str| token.kind == Kind::Word && word.eq_ignore_ascii_case(name.as_bytes());
        if is_executable {
            // Which servers run it depends on their versions.
            self.step = Step::Other;
        }
        self.step = match self.step {
            Step::Start if token.kind == Kind::Semicolon => Step::Start,
            Step::Start if is("kill") => Step::Manner,
            Step::Manner if is("hard") || is("soft") => {
                self.manner = if is("hard") { Manner::Hard } else { Manner::Soft };
                Step::What
            }
            Step::Manner | Step::What if is("connection") || is("query") => {
                self.is_query = is("query");
                Step::Number
            }
            Step::Manner | Step::What | Step::Number if is("user") => Step::Ended(Ending::User),
            Step::Manner | Step::What | Step::Number if is("id") => Step::Ended(Ending::QueryId),
            Step::Manner | Step::What | Step::Number => Step::Ended(self.number(token, word)),
            Step::Ended(ending) if token.kind == Kind::Semicolon => Step::Ended(ending),
            // One number is the connection's; more of it is an expression.
            Step::Ended(Ending::Connection(_)) => Step::Ended(Ending::Expression),
            Step::Ended(ending) => Step::Ended(ending),
            Step::Start | Step::Other => Step::Other,
        };
    }

    fn number(&self, token: Token, word: &[u8]) -> Ending {
        let digits = std::str::from_utf8(word).ok().filter(|word| word.bytes().all(|b| b.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(connection) if token.kind == Kind::Number => {
                Ending::Connection(Kill { connection, is_query: self.is_query, manner: self.manner })
            }
            _ => Ending::Expression,
        }
    }

    /// What it ends, if it was nothing but a KILL.
    fn ending(&self) -> Option<Ending> {
        match self.step {
            Step::Ended(ending) => Some(ending),
            Step::Manner | Step::What | Step::Number => Some(Ending::Expression),
            Step::Start | Step::Other => None,
        }
    }
}

/// PREPARE name FROM, and EXECUTE IMMEDIATE.
#[derive(Default)]
pub struct Dynamic {
    words: [Option<Token>; 2],
    /// There is one of them.
    is_any: bool,
    /// The token before was the last word of one.
    pub is_behind: bool,
}

impl Dynamic {
    pub fn take(&mut self, text: &[u8], token: Token) {
        let is = |token: Option<Token>, name: &str| {
            token.is_some_and(|token| {
                token.kind == Kind::Word && text[token.start..token.end].eq_ignore_ascii_case(name.as_bytes())
            })
        };
        let [first, second] = self.words;
        self.is_behind = is(second, "execute") && is(Some(token), "immediate")
            || is(first, "prepare") && is(Some(token), "from");
        self.is_any |= self.is_behind;
        self.words = [second, Some(token)];
    }
}

/// The bytes of a string between its quotes, of any kind.
fn inner_bytes(text: &[u8], token: Token) -> &[u8] {
    let word = &text[token.start..token.end];
    let start = word.iter().position(|byte| matches!(byte, b'\'' | b'"')).map_or(0, |at| at + 1);
    let end = word.len() - usize::from(word.len() > start && token.kind == Kind::String);
    word.get(start..end).unwrap_or(b"")
}

/// Appends what a string says; false for what is none.
fn add_string(text: &[u8], token: Token, strings: &mut Vec<u8>) -> bool {
    let is_hex = |prefix: &[u8]| {
        text.get(token.start..token.start + prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix))
    };
    match token.kind {
        Kind::Bits if is_hex(b"0x") => add_hex(&text[token.start + 2..token.end], strings),
        Kind::String if is_hex(b"x'") => add_hex(inner_bytes(text, token), strings),
        Kind::String | Kind::Unterminated => {
            strings.extend_from_slice(inner_bytes(text, token));
            return true;
        }
        _ => {}
    }
    false
}

fn add_hex(digits: &[u8], strings: &mut Vec<u8>) {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
    strings
        .extend(digits.rchunks(2).rev().map(|pair| pair.iter().fold(0, |sum, byte| sum << 4 | digit(*byte))));
}

#[cfg(test)]
mod tests {
    use super::{Ending, Kill, Manner, ending, mentions_kill, runs_other_text};

    fn of(connection: u64, is_query: bool, manner: Manner) -> Option<Ending> {
        Some(Ending::Connection(Kill { connection, is_query, manner }))
    }

    #[test]
    fn a_kill_by_number_can_be_mapped_however_it_is_spelt() {
        for text in [
            "KILL 5",
            " kill\n5 ;",
            "kill/**/5",
            "/* why */ KiLl connection/* it */5 -- now",
            "KILL 5;;",
            "# first\nkill 5",
        ] {
            assert_eq!(ending(text.as_bytes()), of(5, false, Manner::Unsaid), "{text}");
        }
        assert_eq!(ending(b"KILL QUERY 77"), of(77, true, Manner::Unsaid));
        assert_eq!(ending(b"kill soft query 77"), of(77, true, Manner::Soft));
        assert_eq!(ending(b"kill hard 77"), of(77, false, Manner::Hard));
        let kill = Kill { connection: 5, is_query: true, manner: Manner::Hard };
        assert_eq!(kill.to_sql(9), "KILL HARD QUERY 9");
        assert_eq!(ending(kill.to_sql(9).as_bytes()), of(9, true, Manner::Hard));
    }

    #[test]
    fn what_names_no_connection_by_its_number() {
        for (text, expected) in [
            ("KILL USER bob", Ending::User),
            ("kill soft connection user 'bob'@'%'", Ending::User),
            ("KILL QUERY ID 5", Ending::QueryId),
            ("KILL ?", Ending::Expression),
            ("KILL CONNECTION_ID()", Ending::Expression),
            ("kill query @id", Ending::Expression),
            ("kill 5 + 1", Ending::Expression),
            ("kill (5)", Ending::Expression),
            ("kill '5'", Ending::Expression),
            ("kill 0x5", Ending::Expression),
            ("kill 5.0", Ending::Expression),
            ("kill 99999999999999999999999", Ending::Expression),
            ("kill", Ending::Expression),
            ("SHUTDOWN", Ending::Server),
            ("restart", Ending::Server),
            ("begin not atomic shutdown; end", Ending::Server),
        ] {
            assert_eq!(ending(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_kill_among_others_is_seen() {
        for text in [
            "/*!50000 KILL 5*/",
            "/*!KILL*/ 5",
            "KILL /*!99999 6 */ 5",
            "/*M!100100 kill 5 */",
            "select 1; KILL 5",
            "KILL 5; KILL 6",
            "KILL 5; select 1",
            "CALL mysql.rds_kill(5)",
            "call `mysql`.rds_kill_query(5)",
            "begin not atomic kill 5; end",
            "if 1 then kill query 5; end if",
            "create procedure p() kill 5",
            "create event e on schedule every 1 day do kill 5",
            "prepare s from 'KILL 5'",
            "PREPARE s FROM 'select 1; /**/kill 5'",
            "execute immediate \"kill 5\"",
            "execute immediate concat('KI', 'LL ', 5)",
            "execute immediate 0x4B494C4C2035",
            "prepare s from x'6b696c6c2035'",
            "begin not atomic execute immediate 'kill 5'; end",
            // A string under NO_BACKSLASH_ESCAPES that ends before.
            r"set @a = 'c:\'; kill 5 -- '",
        ] {
            let found = ending(text.as_bytes());
            assert!(matches!(found, Some(Ending::Among | Ending::Expression)), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_ends_nothing() {
        for text in [
            "select 'kill 5'",
            "select `kill` from t",
            "select t.kill from t",
            "update t set kill = 1",
            "-- kill 5",
            "/* kill 5 */ select 1",
            "skill",
            "select @kill",
            "",
            "select shutdown, restart from t",
            "insert into films values ('Kill Bill')",
            "prepare s from 'select ?'",
            "set @s = 'kill 5'",
        ] {
            assert_eq!(ending(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn text_that_is_run_from_a_variable() {
        for text in ["prepare s from @s", "EXECUTE IMMEDIATE @s", "execute immediate concat(@a, 'x')"] {
            assert!(runs_other_text(text.as_bytes()), "{text}");
        }
        for text in ["prepare s from 'select 1'", "execute s", "select 1", "execute immediate 'select 1'"] {
            assert!(!runs_other_text(text.as_bytes()), "{text}");
        }
        for text in
            ["set @s = 'kill 5'", "select concat('Ki', 'll ', id) into @s from t", "set @s = 0x6B494C4C"]
        {
            assert!(mentions_kill(text.as_bytes()), "{text}");
        }
        assert!(!mentions_kill(b"set @s = 'select 1'"));
    }
}
