//! Statements with pseudonyms in place of their literals, to be shown or replayed elsewhere.
//!
//! A pseudonym has the type and the length in bytes of what it stands for, and under one key is always the same for
//! the same value, so that rows that were equal stay equal. It cannot be turned back without the key.
//! - Letters become letters of the same case ('Bob' and 'bob' stay alike), digits digits; other characters of ASCII,
//!   escapes, and so `%`, `_` and the form of addresses stay. Characters of UTF-8 become others of the same length.
//! - Different numbers, dates, times and short texts of ASCII have different pseudonyms (`pseudonyms`): what is unique stays so.
//! - Numbers keep their sign, point, exponent, count of digits and type; a number in quotes is as without. Zeroes stay.
//! - Dates stay dates and times times. Hex digits stay hex digits, bits bits.
//! - JSON stays JSON, its names and values each by their own pseudonyms, and paths fit them.
//! - Comments are dropped. NULL, TRUE, FALSE, numbers behind LIMIT and OFFSET, lengths and options of CREATE and ALTER, and what SET
//!   sets (other than user variables) stay: they are no data. So do the numbers that SLEEP, BENCHMARK and GET_LOCK take.
//!
//! What it cannot keep: order among numbers of as many digits (ranges hit other rows), prefixes (LIKE 'a%' fits
//! nothing), lengths of numbers show sizes.

use super::comments::without_comments;
use super::definition::Definition;
use super::lexer::{Kind, Lexer, Token};
use super::literals::{digits_of_bits, number, quoted};
use super::readings::{Agreed, Tokens};

/// Replaces what `out` holds by `text` with pseudonyms under `key`.
pub fn anonymise(text: &[u8], key: &[u8; 32], out: &mut Vec<u8>) {
    let mut lexer = Lexer::new(text);
    tokens(text, &mut lexer, key, out);
    if lexer.doubtful_at().is_some()
        && let Some(mut agreed) = Agreed::new(text)
    {
        tokens(text, &mut agreed, key, out);
    }
}

/// Replaces what `out` holds by the pseudonym of one string with its quotes, in which a backslash escapes.
pub fn anonymise_string(string: &[u8], key: &[u8; 32], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(string);
    quoted(key, out);
}

fn tokens(text: &[u8], tokens: &mut impl Tokens, key: &[u8; 32], out: &mut Vec<u8>) {
    out.clear();
    let mut statement = Statement::default();
    let mut behind = 0;
    while let Some(token) = tokens.next() {
        without_comments(&text[behind..token.start], out);
        behind = token.end;
        let start = out.len();
        let part = &text[token.start..token.end];
        let is_kept = statement.keeps(text, token);
        if token.kind == Kind::Disputed {
            out.push(b'?');
            continue;
        }
        out.extend_from_slice(part);
        if is_kept {
            continue;
        }
        let part = &mut out[start..];
        match token.kind {
            Kind::Number => number(key, part),
            Kind::Bits => digits_of_bits(key, &mut part[1..]),
            Kind::String | Kind::Unterminated => quoted(key, part),
            _ => {}
        }
    }
    without_comments(&text[behind..], out);
}

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

/// Functions whose numbers are times and counts of work.
const TAKE_TIME: [&str; 3] = ["sleep", "benchmark", "get_lock"];

/// What is known of a statement up to the next token.
#[derive(Debug, Default)]
struct Statement {
    has_begun: bool,
    is_set: bool,
    definition: Option<Definition>,
    is_limit: bool,
    is_user_variable: bool,
    /// A function that takes time stands before its parenthesis.
    takes_time: bool,
    /// Parentheses open since its own.
    open: usize,
}

impl Statement {
    fn follow_parentheses(&mut self, kind: Kind) {
        match kind {
            Kind::Open if self.open > 0 || self.takes_time => self.open += 1,
            Kind::Close => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        self.takes_time &= kind == Kind::Word;
    }

    /// Whether a token is no data.
    fn keeps(&mut self, text: &[u8], token: Token) -> bool {
        let part = &text[token.start..token.end];
        let is = |word: &str| part.eq_ignore_ascii_case(word.as_bytes());
        let is_form = self.definition.as_mut().is_some_and(|definition| definition.keeps(part, token.kind));
        self.follow_parentheses(token.kind);
        match token.kind {
            Kind::Word => {
                self.takes_time = self.open == 0 && TAKE_TIME.iter().any(|name| is(name));
                if !self.has_begun {
                    self.has_begun = true;
                    self.is_set = is("set");
                    self.definition = (is("create") || is("alter")).then(Definition::default);
                }
                self.is_limit = is("limit") || is("offset");
            }
            Kind::Variable => self.is_user_variable = !part.starts_with(b"@@"),
            Kind::Semicolon => *self = Self::default(),
            // It may contain the end of the statement: treat everything from here on as data.
            Kind::Disputed => *self = Self { has_begun: true, ..Self::default() },
            Kind::Comma | Kind::Placeholder if self.is_limit => {}
            Kind::Comma => self.is_user_variable = false,
            Kind::Number if self.is_limit || is_form || self.open > 0 => return true,
            Kind::Number | Kind::Bits | Kind::String | Kind::Unterminated => {
                return self.is_set && !self.is_user_variable;
            }
            _ => self.is_limit = false,
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{anonymise, kept_placeholders};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    fn anonymous(text: &str) -> String {
        let mut out = Vec::new();
        anonymise(text.as_bytes(), &[7; 32], &mut out);
        String::from_utf8(out).unwrap()
    }

    fn literal(text: &str) -> String {
        let whole = anonymous(&format!("select {text}"));
        whole.strip_prefix("select ").unwrap().to_owned()
    }

    #[test]
    fn forms_stay() {
        let form = |text: &str| -> String {
            text.chars()
                .map(|letter| match letter {
                    'a'..='z' => 'a',
                    'A'..='Z' => 'A',
                    '0'..='9' => '0',
                    other => other,
                })
                .collect()
        };
        for text in [
            "'Bob Miller'",
            "'it''s'",
            r"'a\nb\\\'c'",
            "'50%_x%'",
            "12345",
            "1.50",
            "'bob@example.com'",
            "N'abc'",
            "x'4D4A'",
            "0xDEADBEEF",
            "b'0101'",
            "-17.25",
            "_utf8mb4'abc'",
            "\"say \"\"hi\"\"\"",
            "$$ let a = 'secret' $$",
            r#"'{"name": "Bob", "age": 42, "ok": true, "tags": ["a", null, -1.5]}'"#,
            "'$.name[3].\"last name\"'",
        ] {
            let out = literal(text);
            assert_ne!(out, text);
            if !text.contains("0xDEAD") && !text.contains("x'4D") {
                assert_eq!(form(&out), form(text), "{text} -> {out}");
            }
            assert_eq!(out.len(), text.len());
        }
        for text in [
            "select 0, NULL, true, `a1` from t1 limit 10, 20",
            "SET NAMES 'utf8mb4'",
            "create table t (a varchar(10), b decimal(10, 2) not null, c datetime(6) default current_timestamp(6), \
             unique key k (`a`(20), b), primary key (b)) key_block_size=8 partition by hash (b) partitions 16",
            "alter table t add d varchar(100), add index (d(12))",
        ] {
            assert_eq!(anonymous(text), text);
        }
        for text in [
            "create table t (a int default 41414141)",
            "create table t (a int, check (a > 41414141 and f(41414141) = 1))",
            "alter table t add constraint check (a in (41414141))",
            "create table t (a int, b int as (a + 41414141), key (a))",
            "create table t (a int) auto_increment=41414141 partition by list (a) (partition p values in (5, 41414141))",
            "alter table t add partition (partition p values less than (41414141))",
            "create view v as select * from t where a = 41414141",
        ] {
            let shown = anonymous(text);
            assert!(!shown.contains("41414141") && shown.len() == text.len(), "{shown}");
        }
        assert_eq!(anonymous("select /* bob */ a -- eve\n from t"), "select   a  \n from t");
    }

    #[test]
    fn the_same_value_has_one_pseudonym() {
        assert_eq!(literal("'12345'"), format!("'{}'", literal("12345")));
        assert_eq!(literal("'bob'").to_lowercase(), literal("'Bob'").to_lowercase());
        let (name, path) = (literal(r#"'{"surname": 1}'"#), literal("'$.surname'"));
        assert!(name.contains(path.trim_matches(['\'', '$', '.'])), "{name} {path}");
        let mut other = Vec::new();
        anonymise(b"select 'a name'", &[8; 32], &mut other);
        assert_ne!(anonymous("select 'a name'").as_bytes(), other);
    }

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

    #[test]
    fn nothing_takes_longer() {
        let text = "select sleep(5), benchmark(100000, sha1('x')), get_lock('z', 10), (7)";
        let hidden = anonymous(text);
        assert!(
            hidden.starts_with("select sleep(5), benchmark(100000, sha1(") && hidden.contains(", 10), (")
        );
        assert_eq!(anonymous("select sleep from t where a = 71234567").len(), 38);
        assert!(!anonymous("select sleep from t where a in (71234567)").contains("71234567"));
    }

    #[test]
    fn json_stays_json() {
        let document =
            r#"{"a\u00e9": "b\"c", "n": [1, 20, -0.5, 1e10, 100], "é": {"x": "2020-01-31"}, "t": false}"#;
        let sql = document.replace('\\', "\\\\");
        for (sql, unescape) in [(sql.clone(), false), (sql.replace('"', "\\\""), true)] {
            let out = literal(&format!("'{sql}'"));
            let mut json = out.trim_matches('\'').to_owned();
            if unescape {
                json = json.replace("\\\"", "\"");
            }
            json = json.replace("\\\\", "\\");
            serde_json::from_str::<serde_json::Value>(&json)
                .unwrap_or_else(|error| panic!("{error}: {json}"));
            assert_ne!(json, document);
        }
    }

    proptest! {
        #[test]
        fn dates_stay_dates(year in 1000..9999, month in 1..=12, day in 1..=28, time in any::<Option<(u8, u8, u8)>>()) {
            let time = time.map(|(h, m, s)| format!(" {:02}:{:02}:{:02}.250", h % 24, m % 60, s % 60)).unwrap_or_default();
            let out = literal(&format!("'{year:04}-{month:02}-{day:02}{time}'"));
            let numbers: Vec<u32> =
                out.trim_matches('\'').split(['-', ' ', ':', '.']).map(|part| part.parse().unwrap()).collect();
            // What fits a TIMESTAMP still does.
            prop_assert!(!(1971..=2037).contains(&year) || (1970..=2038).contains(&numbers[0]));
            prop_assert!( (1..=12).contains(&numbers[1]) && (1..=31).contains(&numbers[2]));
            if !time.is_empty() {
                prop_assert!(numbers[3] < 24 && numbers[4] < 60 && numbers[5] < 60 && out.len() == 25);
            }
        }

        #[test]
        fn lengths_stay_and_nothing_fails(text in any::<Vec<u8>>(), word in "[a-z]{12,40}") {
            let mut out = Vec::new();
            anonymise(&text, &[1; 32], &mut out);
            let quoted = format!("'{word}'");
            let hidden = literal(&quoted);
            prop_assert_eq!(hidden.len(), quoted.len());
            prop_assert!(!hidden.contains(&word));
        }
    }
}
