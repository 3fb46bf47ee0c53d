//! Fingerprints and pseudonyms over statements of every form: no literal is left, and nothing fails.

use proptest::collection::vec;
use proptest::prelude::*;
use sql::{Mode, Order, Scheme, anonymise, class_id, fingerprint, is_read_only, redact, tables, verb};

fn strict(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    fingerprint(Mode::Strict, text, false, &mut out);
    out
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// What every literal holds somewhere: no name, no keyword and no number of our statements has it.
const MARK: &str = "zqj";
/// The same in numbers and hex.
const NUMBER: &str = "7713";

/// A literal as a client may write it, some with a word in front.
fn literal() -> impl Strategy<Value = String> {
    prop_oneof![25 => bare_literal(), 1 => words().prop_map(|text| format!("date '{text}'"))]
}

/// A text for between quotes, with the mark somewhere in it.
fn words() -> impl Strategy<Value = String> {
    let inside = "[ -&(-\\[\\]-~éß日本😀\n\t]{0,12}".prop_map(|text| text.replace(['"', '`'], "."));
    (inside.clone(), inside).prop_map(|(a, b)| format!("{a}{MARK}{b}"))
}

/// The same without what begins a comment or a tag: behind an escaped quote it would, where nothing escapes.
fn plain_words() -> impl Strategy<Value = String> {
    words().prop_map(|text| text.replace(['#', '-', '/', '$'], "."))
}

/// A literal that says nothing of itself: any of them may stand for any other.
fn bare_literal() -> impl Strategy<Value = String> {
    let words = words().boxed();
    prop_oneof![
        words.clone().prop_map(|text| format!("'{text}'")),
        words.clone().prop_map(|text| format!("\"{text}\"")),
        words.clone().prop_map(|text| format!("'{text}''{MARK}'")),
        plain_words().prop_map(|text| format!(r"'\'{text}\\'")),
        plain_words().prop_map(|text| format!(r"'{text}\\\'{MARK}'")),
        words.clone().prop_map(|text| format!("N'{text}'")),
        words.clone().prop_map(|text| format!("_utf8mb4'{text}'")),
        words.clone().prop_map(|text| format!("_latin1 '{text}'")),
        words.clone().prop_map(|text| format!("'{text}' '{MARK}'")),
        words.clone().prop_map(|text| format!("'$.{text}'")),
        words.clone().prop_map(|text| format!("'{{\"a\": \"{text}\"}}'")),
        words.clone().prop_map(|text| format!("'-- {text}'")),
        words.clone().prop_map(|text| format!("'/* {text}'")),
        Just(format!("x'{NUMBER}AF'")),
        Just(format!("0x{NUMBER}af")),
        Just(format!("X'{NUMBER}'")),
        Just(format!("_binary 0x{NUMBER}")),
        (0..99u32, any::<bool>())
            .prop_map(|(n, minus)| format!("{}{NUMBER}{n}", if minus { "-" } else { "" })),
        (0..99u32).prop_map(|n| format!("{n}.{NUMBER}")),
        (0..99u32).prop_map(|n| format!(".{NUMBER}e-{n}")),
        (0..99u32).prop_map(|n| format!("{NUMBER}{n}E+{n}")),
        Just(format!("- +{NUMBER}")),
        Just("NULL".to_owned()),
        Just("true".to_owned()),
        Just("?".to_owned()),
    ]
}

/// What may be between two tokens.
fn blank() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        6 => Just(" "),
        1 => Just("\n\t "),
        1 => Just("/* zqj 'it''s */"),
        1 => Just(" -- zqj '\n"),
        1 => Just("# zqj\n"),
        1 => Just(" /*+ zqj(7713) */ "),
        1 => Just("/**/"),
    ]
}

/// Parts of statements: `§` stands for a literal, `¤` for many of them, a space for any blank.
const STATEMENTS: &[&str] = &[
    "SELECT c FROM sbtest1 WHERE id = §",
    "select § , § from t where a = § and b != § or ( c < § )",
    "select * from t where a in ( ¤ )",
    "select * from t where a not in ( § , now( ) , ¤ ) limit §",
    "select * from t where ( a , b ) in ( ( ¤ ) , ( ¤ ) )",
    "select * from t where a in ( lower( § ) , lower( § ) )",
    "insert into t ( a , b ) values ( ¤ ) , ( ¤ ) , ( § , now( ) )",
    "INSERT INTO t VALUES ( § , f( ¤ ) , default ) , ( ¤ ) on duplicate key update a = values( a ) , b = §",
    "values row( ¤ ) , row( ¤ )",
    "replace into `db`.`t``x` set a = § , b = a + §",
    "update t set a = a - § , doc = json_set( doc , § , § ) where b between § and §",
    "delete from t where a like § escape § limit § , §",
    "select doc -> § , doc ->> § , a ->> § from t",
    "select § union all select § union all select § order by §",
    "( select a from t where b = § ) union ( select a from t where b = § ) union ( select a from t where b = § )",
    "select case when a = § then § else § end , if( a , § , ¤ ) from t",
    "call p( ¤ )",
    "set @a := § , @b = § , session x = §",
    "select a b , count( * ) c , t.1a , ! a , ~ § , - a , a - - § from t as `x` where a is not null and b is true",
    "load data infile § into table t fields terminated by §",
    "select /*!50001 SQL_NO_CACHE */ § /*!40000 , § */ from t",
    "create table t ( a varchar(§) default § comment § , e enum( ¤ ) )",
    "update t set a = § ; update t set a = § ; update t set a = § ;",
    "grant all on *.* to § @ §",
    "select exists ( select § from t where a = any ( select § ) ) , row( § , § ) = row( ¤ )",
    "with c ( n ) as ( select § ) select n from c where n > § collate utf8mb4_bin",
    "select a from t where b = § ) ) ( (",
];

/// Those whose class no literal changes: a list of literals outside IN and VALUES is one of its length, and so are the
/// words of LOAD DATA and of a column.
fn of_one_class() -> Vec<&'static str> {
    STATEMENTS.iter().copied().filter(|text| !text.contains("load") && !text.contains("create")).collect()
}

fn statement() -> impl Strategy<Value = String> {
    let parts = vec((literal(), blank()), 64);
    (0..STATEMENTS.len(), parts, 1..40usize).prop_map(|(number, parts, many)| {
        let mut parts = parts.iter().cycle();
        let mut text = String::new();
        for letter in STATEMENTS[number].chars() {
            match letter {
                '§' => text.push_str(&parts.next().expect("a cycle has no end").0),
                '¤' => {
                    for number in 0..many {
                        let (literal, blank) = parts.next().expect("a cycle has no end");
                        text += &format!("{}{literal}{blank}", if number > 0 { "," } else { "" });
                    }
                }
                ' ' => text.push_str(parts.next().expect("a cycle has no end").1),
                other => text.push(other),
            }
        }
        text
    })
}

proptest! {
    #[test]
    fn no_literal_is_left(text in statement()) {
        let found = strict(text.as_bytes());
        prop_assert!(!shown(&found).contains(MARK), "{text:?} -> {}", shown(&found));
        prop_assert!(!shown(&found).contains(NUMBER), "{text:?} -> {}", shown(&found));
        prop_assert!(!found.iter().any(|byte| matches!(byte, b'\'' | b'"')), "{text:?} -> {}", shown(&found));
    }

    #[test]
    fn a_fingerprint_is_its_own(text in statement()) {
        let found = strict(text.as_bytes());
        prop_assert_eq!(shown(&strict(&found)), shown(&found), "{:?}", text);
    }

    #[test]
    fn any_bytes_have_one_that_is_its_own(text in vec(any::<u8>(), 0..200)) {
        let found = strict(&text);
        prop_assert_eq!(shown(&strict(&found)), shown(&found), "{:?}", shown(&text));
        prop_assert!(found.len() <= 2 * text.len() + 8);
    }

    #[test]
    fn any_tokens_have_one_that_is_its_own(
        parts in vec(prop::sample::select(PARTS), 0..30), spaces in vec(any::<bool>(), 30),
    ) {
        let mut text = String::new();
        for (part, space) in parts.iter().zip(spaces) {
            text += part;
            if space {
                text.push(' ');
            }
        }
        let found = strict(text.as_bytes());
        prop_assert_eq!(shown(&strict(&found)), shown(&found), "{:?}", text);
        let mut out = Vec::new();
        redact(text.as_bytes(), &mut out);
        anonymise(text.as_bytes(), false, &Scheme { key: [3; 32], order: Order { numbers: true, dates: true } }, &mut out);
        fingerprint(Mode::Pt, text.as_bytes(), false, &mut out);
        let _ = (tables(text.as_bytes()), verb(text.as_bytes()), is_read_only(text.as_bytes()));
    }

    #[test]
    fn literals_and_blanks_make_no_class(
        statement in prop::sample::select(of_one_class()), a in vec((bare_literal(), blank()), 64), many in 2..9usize,
    ) {
        let of = |literals: bool| {
            let mut parts = a.iter().cycle();
            let mut text = String::new();
            for letter in statement.chars() {
                let (literal, blank) = parts.next().expect("a cycle has no end");
                match letter {
                    '§' => text += if literals { literal } else { "1" },
                    '¤' => text += &vec![if literals { literal.as_str() } else { "1" }; if literals { many } else { 2 }].join(","),
                    ' ' => text += if literals { blank } else { " " },
                    other => text.push(other),
                }
            }
            text
        };
        let (with, without) = (of(true), of(false));
        prop_assert_eq!(shown(&strict(with.as_bytes())), shown(&strict(without.as_bytes())), "{:?}", with);
    }

    #[test]
    fn nothing_fails_on_any_bytes(text in vec(any::<u8>(), 0..300)) {
        let mut out = Vec::new();
        fingerprint(Mode::Pt, &text, false, &mut out);
        redact(&text, &mut out);
        anonymise(&text, false, &Scheme::default(), &mut out);
        let _ = (tables(&text), verb(&text), is_read_only(&text));
    }
}

/// Pieces that lexers and writers stumble over.
const PARTS: &[&str] = &[
    "a",
    "_x",
    "_utf8",
    "in",
    "IN",
    "values",
    "row",
    "union",
    "union all",
    "select",
    "null",
    "is",
    "not",
    "true",
    "limit",
    "order by a",
    "x",
    "n",
    "b",
    "1",
    "0x1",
    "1.",
    ".5",
    "1a",
    "1e",
    "$$",
    "$a$",
    "$",
    "?",
    "?+",
    "'s'",
    "'",
    "'\\''",
    "\"",
    "`q`",
    "`",
    "\\",
    "\\N",
    "@",
    "@@",
    "@v",
    "@'",
    "(",
    "(",
    "(",
    ")",
    ")",
    ")",
    ",",
    ",",
    ",",
    ".",
    ";",
    "+",
    "-",
    "--",
    "-- ",
    "*",
    "/",
    "/*",
    "*/",
    "/*!",
    "#",
    "\n",
    "=",
    "<",
    ">",
    ":",
    "!",
    "|",
    "é",
    "\u{0}",
    "\u{7f}",
    "{",
    "date",
    "update",
    "from",
    "identified by",
    "password",
    "with",
    "as",
];

#[test]
fn statements_of_a_megabyte() {
    let word = "zqj'' \\' é".repeat(100_000);
    let rows = (0..20_000).map(|n| format!("({n}, 'zqj{n}', now())")).collect::<Vec<_>>().join(",");
    let list = (0..200_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    for (text, expected) in [
        (format!("insert into t (a) values ('{word}')"), "insert into t(a) values (?+)"),
        (format!("insert into t values {rows}"), "insert into t values (?+, now())"),
        (format!("select 1 from t where a in ({list})"), "select ? from t where a in (?+)"),
        (format!("select 1 from t where a in ('{word}"), "select ? from t where a in (?"),
    ] {
        assert_eq!(shown(&strict(text.as_bytes())), expected);
    }
}

#[test]
fn classes_as_they_are_named() {
    for (text, expected) in [
        ("SELECT a=a+1, a = a + 1 FROM T", "select a = a + ?, a = a + ? from t"),
        (
            "select count( * ),max(x) from `T` t2 where t2 . a>=-5",
            "select count(*), max(x) from `T` t2 where t2.a >= ?",
        ),
        (
            "select 'it''s', \"a\" 'b', x'41', 0xFF, _utf8mb4'x', N'y', -1.5e-3, null, true",
            "select ?, ?, ?, ?, ?, ?, ?, ?, ?",
        ),
        ("select a-1, -1, a - -1, (-1)", "select a - ?, ?, a - ?, (?)"),
        ("select * from t where a in (1)", "select * from t where a in (?+)"),
        ("select * from t where a in (1,2 , -3)", "select * from t where a in (?+)"),
        ("select * from t where a in (now(), 1, now(), 2)", "select * from t where a in (now(), ?+)"),
        ("select * from t where (a,b) in ((1,2),(3,4))", "select * from t where (a, b) in ((?+))"),
        ("insert into t(a,b) values(1,'x'),(2,'y')", "insert into t(a, b) values (?+)"),
        ("insert into t(a,b) values(1,now()),(2,now())", "insert into t(a, b) values (?+, now())"),
        ("select f(1), f(1,2), f(a,1,2,b), f(1,2+a)", "select f(?), f(?+), f(a, ?+, b), f(?, ? + a)"),
        ("select 1 union all select 2 union all select 3", "select ? union all select ?"),
        (
            "select a from t union select a from u union select a from u union select a from u order by a limit 5",
            "select a from t union select a from u order by a limit ?",
        ),
        (
            "select a is null, b is not null, c is true from t",
            "select a is null, b is not null, c is true from t",
        ),
        ("select /*!40001 SQL_NO_CACHE */ a /* x */ from t -- y", "select sql_no_cache a from t"),
        ("update t set a=1; update t set a=2; update t set a=3;", "update t set a = ?; update t set a = ?"),
        ("set @A:=1, @@GLOBAL.x='y'", "set @a := ?, @@global.x = ?"),
        ("grant all on *.* to 'bob'@'%'", "grant all on *.* to ?@?"),
        ("select doc->>'$.a', @'x', t.1e5, 1abc from t", "select doc ->> ?, @?, t.1e5, 1abc from t"),
        ("select a from t where b=4111OR c=2", "select a from t where b = ? or c = ?"),
        ("select 1_000_000, 0x4D4AND, a from 2fa_codes", "select ?, ?, a from 2fa_codes"),
        ("select 'open", "select ?"),
        ("select $$ open, b from secret", "select ?"),
        ("select $a$ it's $a$, b from t where $x = 1", "select ?, b from t where $x = ?"),
        (
            "select 'a\\', b from secret where c = 'x' and d = 'y'",
            "select ?, b from secret where c = ? and d = ?",
        ),
        ("", ""),
        (";", ""),
        ("/* nothing */", ""),
    ] {
        assert_eq!(shown(&strict(text.as_bytes())), expected, "{text}");
    }
}

#[test]
fn ids_never_change() {
    assert_eq!(
        class_id(Mode::Strict, b"select ?"),
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64(b"select ?"))
    );
    assert_eq!(class_id(Mode::Strict, b"select c from t where id = ?"), "749da7219164c7f1");
    assert_eq!(class_id(Mode::Pt, b""), "D41D8CD98F00B204E9800998ECF8427E");
}
