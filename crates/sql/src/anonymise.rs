//! Statements with pseudonyms in place of their literals, to be shown or replayed elsewhere.
//!
//! A pseudonym has the type and, unless order is kept, the length in bytes of what it stands for, and under one key is always the same for
//! the same value, so that rows that were equal stay equal. It cannot be turned back without the key.
//! - Letters become letters of the same case ('Bob' and 'bob' stay alike), digits digits; other characters of ASCII,
//!   escapes, and so `%`, `_` and the form of addresses stay. Characters of UTF-8 become others of the same length.
//! - Different numbers, dates, times and short texts of ASCII have different pseudonyms (`pseudonyms`): what is unique stays so.
//! - Numbers keep their sign, point, exponent, count of digits and type; a number in quotes is as without. Zeroes stay.
//! - Dates stay dates and times times. Hex digits stay hex digits, bits bits.
//! - JSON stays JSON, its names and values each by their own pseudonyms, and paths fit them.
//! - Comments are dropped. NULL, TRUE, FALSE, and numbers that are no data stay (`kept`).
//!
//! What it cannot keep: order among numbers of as many digits (ranges hit other rows) and dates unless asked for (`order`), prefixes
//! (LIKE 'a%' fits nothing), lengths of numbers show sizes.

use super::comments::without_comments;
use super::inner;
use super::kept::Statement;
use super::kill::Dynamic;
use super::lexer::Kind;
use super::literals::{digits_of_bits, put_number, quoted};
use super::names::Named;
use super::order::Scheme;
use super::readings::Tokens;

/// A statement in a string of a statement may have one itself; deeper ones are data.
const DEEPEST: usize = 3;

/// Replaces what `out` holds by `text` with pseudonyms. `is_cut` says that the text may end before its statement does.
pub fn anonymise(text: &[u8], is_cut: bool, scheme: &Scheme, out: &mut Vec<u8>) {
    out.clear();
    statement(text, is_cut, scheme, 0, out);
}

/// Replaces what `out` holds by the pseudonym that `name` has as a string: of a user or a host, quoted or not.
pub fn anonymise_name(name: &[u8], scheme: &Scheme, out: &mut Vec<u8>) {
    let mut string = Vec::with_capacity(name.len() + 2);
    string.push(b'\'');
    for &byte in name {
        if byte == b'\'' || byte == b'\\' {
            string.push(b'\\');
        }
        string.push(byte);
    }
    string.push(b'\'');
    quoted(scheme, &mut string, 0);
    out.clear();
    let mut bytes = string[1..string.len() - 1].iter();
    while let Some(&byte) = bytes.next() {
        out.push(if byte == b'\\' { bytes.next().copied().unwrap_or(byte) } else { byte });
    }
    // In order a number may have one digit more.
    let is_longer_number =
        scheme.order.numbers && out.iter().all(|byte| byte.is_ascii_digit() || b"-.".contains(byte));
    if out.len() != name.len() && !is_longer_number {
        out.clear();
        out.resize(name.len(), b'x');
    }
}

/// Appends a text with pseudonyms; `depth` is how many strings it is in.
fn statement(text: &[u8], is_cut: bool, scheme: &Scheme, depth: usize, out: &mut Vec<u8>) {
    let mut tokens = Named::new(text, is_cut);
    let mut statement = Statement::default();
    let mut dynamic = Dynamic::default();
    let mut behind = 0;
    let mut is_behind_minus = false;
    while let Some(token) = tokens.next() {
        without_comments(&text[behind..token.start], out);
        behind = token.end;
        let start = out.len();
        let part = &text[token.start..token.end];
        let is_kept = statement.keeps(text, token);
        let is_negative = std::mem::replace(&mut is_behind_minus, part == b"-");
        let is_statement = dynamic.is_behind && token.kind == Kind::String && depth < DEEPEST;
        dynamic.take(text, token);
        match token.kind {
            Kind::Disputed => out.push(b'?'),
            Kind::Account => account(part, scheme, out),
            Kind::String if is_statement => in_string(part, scheme, depth, out),
            _ => out.extend_from_slice(part),
        }
        if is_kept || is_statement {
            continue;
        }
        let end = out.len();
        match token.kind {
            Kind::Number => put_number(scheme, out, start, end, is_negative),
            Kind::Bits => digits_of_bits(&scheme.key, &mut out[start + 1..]),
            Kind::String | Kind::Unterminated => quoted(scheme, out, start),
            _ => {}
        }
    }
    without_comments(&text[behind..], out);
}

/// A user, a host or a role: in its own quotes, or in backticks where it had none, because it might be a keyword.
fn account(part: &[u8], scheme: &Scheme, out: &mut Vec<u8>) {
    let mut name = Vec::new();
    anonymise_name(&inner::content(part), scheme, &mut name);
    let quote = part.first().copied().filter(|byte| b"'\"`".contains(byte)).unwrap_or(b'`');
    inner::put_quoted(quote, &name, out);
}

/// The statement in a string, in the same quotes.
fn in_string(part: &[u8], scheme: &Scheme, depth: usize, out: &mut Vec<u8>) {
    let Some(quote) = inner::quote(part) else {
        out.extend_from_slice(part);
        let start = out.len() - part.len();
        return quoted(scheme, out, start);
    };
    let mut text = Vec::new();
    statement(&inner::content(part), false, scheme, depth + 1, &mut text);
    inner::put_quoted(quote, &text, out);
}

#[cfg(test)]
mod tests {
    use super::anonymise;
    use crate::order::{Order, Scheme};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use std::collections::HashSet;

    fn under(scheme: &Scheme, text: &str) -> String {
        let mut out = Vec::new();
        anonymise(text.as_bytes(), false, scheme, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn anonymous(text: &str) -> String {
        under(&Scheme { key: [7; 32], ..Scheme::default() }, text)
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
        let other = Scheme { key: [8; 32], ..Scheme::default() };
        assert_ne!(anonymous("select 'a name'"), under(&other, "select 'a name'"));
    }

    /// Different texts, and that as many come out.
    fn are_apart(texts: impl Iterator<Item = String>) {
        let texts: Vec<_> = texts.collect();
        let found: HashSet<_> = texts.iter().map(|text| literal(text)).collect();
        assert_eq!(found.len(), texts.len());
        assert!(texts.iter().all(|text| literal(text).len() == text.len()));
    }

    #[test]
    fn different_values_have_different_pseudonyms() {
        are_apart((0..2000).map(|id| id.to_string()));
        are_apart((0..2000).map(|id| format!("-{id}")));
        are_apart((0..2000).map(|id| format!("'{id}.{}5'", id % 10)));
        are_apart((0..2000).map(|id| format!("0x{id:04X}")));
        are_apart((0..2000).map(|id| format!("x'{id:06x}'")));
        are_apart((0..2000).map(|id| format!("b'{id:011b}'")));
        are_apart((0..2000).map(|id| (i64::MIN + id).to_string()));
        are_apart((0..2000).map(|id| (u64::MAX - id).to_string()));
    }

    #[test]
    fn the_extremes_of_types_fit_them() {
        for (least, most) in [
            (i128::from(i8::MIN), i128::from(u8::MAX)),
            (i128::from(i16::MIN), i128::from(u16::MAX)),
            (-(1 << 23), (1 << 24) - 1),
            (i128::from(i32::MIN), i128::from(u32::MAX)),
            (i128::from(i64::MIN), i128::from(u64::MAX)),
        ] {
            let parsed = |number: i128| literal(&number.to_string()).parse::<i128>().unwrap();
            // All around the ends of the signed type and the unsigned one.
            for number in (least..least + 20).chain(most - 19..=most) {
                assert!((least..=most).contains(&parsed(number)), "{number}");
                assert_eq!(literal(&format!("'{number}'")), format!("'{}'", parsed(number)));
            }
            for number in -least - 20..-least {
                assert!(parsed(number) < -least, "{number}");
            }
        }
        for year in 1901..2156 {
            assert!((1901..2156).contains(&literal(&year.to_string()).parse().unwrap()), "{year}");
        }
        for double in ["1.7976931348623157e308", "9.9e307", "-1.79e308", "2.2250738585072014e-308"] {
            assert!(literal(double).parse::<f64>().unwrap().is_finite(), "{double} {}", literal(double));
        }
    }

    #[test]
    fn zeroes_that_end_a_fraction_are_no_part_of_the_value() {
        let (short, long) = (literal("73.5"), literal("73.500"));
        assert_eq!(long, format!("{short}00"));
        assert_eq!(literal("8191.00"), format!("{}.00", literal("8191")));
        assert!(short != "73.5" && !short.ends_with('0'), "{short}");
    }

    #[test]
    fn numbers_that_are_no_data_stay() {
        for text in [
            "select a from t limit 10 offset 20",
            "select a from t order by b offset 5 rows fetch next 10 rows only",
            "select a from t limit rows examined 100000",
            "select a from t limit 5 rows examined 100000",
            "select a from t for update wait 5",
            "select a, count(*) from t group by 1, 2 order by 2 desc, 1",
            "select now(6), current_timestamp(3), cast(a as decimal(10, 2)), cast(a as char(20)), cast(a as datetime(6))",
            "select convert(a, decimal(10, 2)), master_pos_wait(a, 4, 10)",
            "set statement max_statement_time=10 for select a from t limit 5",
            "select sleep(5), benchmark(100000, a), get_lock(a, 10)",
            "select a from t where b > now() - interval 7 day and c < d + interval -3 hour",
            "select a + interval '1 12' day_hour, date_sub(a, interval 90 second)",
            "select a from t where b > '0000-00-00 00:00:00.000000'",
            "alter user `%` add 2 factor identified with 'caching_sha2_password' password history 5 account lock",
            "create or replace user `%` identified via 'ed25519' with max_user_connections 70 password expire interval 90 day",
            "grant usage on *.* to `%` with max_queries_per_hour 500",
            "change master to master_port = 3307, master_log_pos = 41414141",
        ] {
            assert_eq!(anonymous(text), text);
        }
        for text in [
            "set statement max_statement_time=10 for select a from t where b = 41414141",
            "select offset, 41414141 from t",
            "select offset - 41414141 from t",
            "select interval(41414141, 1, 41414141), a + interval 1 day = 41414141, a + interval 1 day - 41414141",
            "select wait, 41414141 from t",
            "select a from t order by field(a, 41414141, 41414141)",
            "select a from t group by a union select b, 41414141",
            "select row_number() over (order by a), 41414141 from t order by 41414141",
            "select char(41414141), time(41414141), cast(41414141 as char(3))",
            "set @a = (select b from t where c = 41414141)",
            "set session a = (select b from t where c = 41414141)",
            "set global server_audit_incl_users = 'bob41414141'",
            "set @@global.init_connect = 'insert into t values (41414141)'",
            "set sql_mode = '', report_host = \"db41414141\", mandatory_roles='r41414141'",
            "select user from t where a = 41414141",
            "create or replace view user as select 41414141",
            "create temporary table user (a int default 41414141)",
            "alter table user add check (a > 41414141)",
            "set password = password('41414141')",
            "set password for a = '41414141'",
            "create user a identified with 'p' by '41414141'",
            "create user a identified via 'p' using '41414141' comment '41414141'",
        ] {
            assert!(!anonymous(text).contains("41414141"), "{}", anonymous(text));
        }
    }

    #[test]
    fn dates_with_a_zone_stay_dates() {
        for (plain, zone) in [
            ("2021-03-04T05:06:07", "Z"),
            ("2021-03-04 05:06:07.123", "+02:00"),
            ("2021-03-04 05:06:07", "-11:30"),
        ] {
            let whole = literal(&format!("'{plain}'"));
            assert_eq!(
                literal(&format!("'{plain}{zone}'")),
                format!("{}{zone}'", whole.trim_end_matches('\''))
            );
        }
    }

    fn ordered(text: &str) -> String {
        let scheme = Scheme { key: [7; 32], order: Order { numbers: true, dates: true } };
        under(&scheme, &format!("select {text}"))["select ".len()..].to_owned()
    }

    #[test]
    fn order_is_kept_where_asked() {
        let numbers: Vec<f64> = [
            "-9e18",
            "-70000.5",
            "-70000",
            "-5000",
            "-1",
            "0",
            "0.5",
            "1.25",
            "128",
            "4095.99",
            "4096",
            "9999",
            "0010000",
            "10000.01",
            "99999",
            "1e5",
            "100001",
            "123456.789e1",
            "2147483647",
            "2147483648",
            "9007199254740993",
            "1e16",
            "9223372036854775807",
            "1.5e30",
        ]
        .map(|text| ordered(text).parse().unwrap())
        .into();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert_eq!(ordered("'70000'"), format!("'{}'", ordered("70000")));
        assert_eq!(ordered("N'-70000.50'"), format!("N'-{}.50'", ordered("70000")));
        assert_ne!(ordered("70000"), "70000");
        assert_eq!(ordered("0099999"), format!("0{}", ordered("99999")));
        assert_ne!(ordered("0x12345678"), "0x12345678");
        assert_ne!(ordered("'Miller'"), "'Miller'");

        let dates = [
            "'1000-01-01'",
            "'1969-12-31 23:59:59'",
            "'1970-01-01'",
            "'2020-02-28'",
            "'2020-02-28 00:00:01'",
            "'2020-02-29'",
            "'2020-02-31'",
            "'2020-03-05T12:00:00'",
            "'2020-03-06 11:59:59.999'",
            "'2038-01-19'",
            "'9999-12-31'",
        ]
        .map(|date| ordered(date).trim_matches('\'').to_owned());
        assert!(dates.is_sorted_by(|a, b| a < b), "{dates:?}");
        assert_eq!((&*dates[0], &*dates[10]), ("1000-01-01", "9999-12-31"));
        assert_ne!(dates[3], "2020-02-28");
        assert_eq!(ordered("'11:30:00'"), "'11:30:00'");
        // Only what was asked for.
        let scheme = Scheme { key: [7; 32], order: Order { numbers: false, dates: true } };
        let text = "select 70000, '2020-02-28'";
        let out = under(&scheme, text);
        assert!(out.contains(&literal("70000")) && out.contains(&dates[3]), "{out}");
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
        fn lengths_stay_and_nothing_fails(
            text in any::<Vec<u8>>(), word in "[a-z]{12,40}", numbers in any::<bool>(), dates in any::<bool>(),
        ) {
            let order = Order { numbers, dates };
            let mut out = Vec::new();
            anonymise(&text, true, &Scheme { key: [1; 32], order }, &mut out);
            let quoted = format!("'{word}'");
            let hidden = literal(&quoted);
            prop_assert_eq!(hidden.len(), quoted.len());
            prop_assert!(!hidden.contains(&word));
        }
    }
}
