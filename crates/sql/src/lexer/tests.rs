use super::{Kind, Lexer, Reading};

fn kinds(text: &str) -> Vec<(Kind, &str)> {
    let mut lexer = Lexer::new(text.as_bytes());
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next() {
        tokens.push((token.kind, &text[token.start..token.end]));
    }
    tokens
}

fn one(text: &str) -> Kind {
    let tokens = kinds(text);
    assert_eq!(tokens.len(), 1, "{text}: {tokens:?}");
    assert_eq!(tokens[0].1, text);
    tokens[0].0
}

#[test]
fn strings_of_every_form() {
    for text in [
        "'it''s'",
        r"'it\'s'",
        r"'\\'",
        r#""say ""hi""""#,
        "''",
        "'😀'",
        "x'00ff'",
        "X'4D'",
        "b'01'",
        "N'é'",
        "n'a'",
        "$$ a 'b' $$",
        "$js$ let a = '$$'; $js$",
        "'--'",
        "'/*'",
        "'a\0b'",
    ] {
        assert_eq!(one(text), Kind::String, "{text}");
    }
    for text in ["'open", r"'open\'", "\"", "`open", "`a``", "x'1", "$$open", "$a$ open $b$"] {
        assert_eq!(one(text), Kind::Unterminated, "{text}");
    }
}

#[test]
fn numbers_and_names_that_look_like_them() {
    for text in ["0", "10", "1.5", "1.", ".5", "1e5", "1E+5", "1.5e-7", ".5e3"] {
        assert_eq!(one(text), Kind::Number, "{text}");
    }
    for text in ["1_000_000", "1__", "1e", "12E"] {
        assert_eq!(one(text), Kind::Number, "{text}");
    }
    for text in ["4111OR", "4111or", "12ELSE"] {
        let tokens = kinds(text);
        assert_eq!((tokens[0].0, tokens[1].0), (Kind::Number, Kind::Word), "{text}");
    }
    for text in ["0xDEADbeef", "0b0101", "0x41AND", "0b12"] {
        assert_eq!(one(text), Kind::Bits, "{text}");
    }
    for text in ["1abc", "2fa_codes", "0xg", "0b2", "1em", "été", "$x", "_utf8mb4"] {
        assert_eq!(one(text), Kind::Word, "{text}");
    }
    assert_eq!(
        kinds("t.1e5 .5"),
        [(Kind::Word, "t"), (Kind::Dot, "."), (Kind::Word, "1e5"), (Kind::Number, ".5")]
    );
    assert_eq!(kinds("t.2024_01"), [(Kind::Word, "t"), (Kind::Dot, "."), (Kind::Word, "2024_01")]);
}

#[test]
fn comments_are_passed_and_executable_ones_are_code() {
    for text in ["a/* ; */b", "a -- ' \nb", "a#`\nb", "/**/a/***/b/* open", "a b --", "a/*+ hint('x') */b"] {
        assert_eq!(kinds(text), [(Kind::Word, "a"), (Kind::Word, "b")], "{text}");
    }
    for text in ["a/*!50001 b*/", "a/*!b */", "/*M!100100 a*/ b", "a/*!999999b*/", "a /*! b /* c */ */"] {
        assert_eq!(kinds(text), [(Kind::Word, "a"), (Kind::Word, "b")], "{text}");
    }
    assert_eq!(kinds("1--1").len(), 4);
    assert_eq!(kinds("a */ b").len(), 4);
}

#[test]
fn variables_and_operators() {
    for text in ["@a", "@a.b$c", "@@x", "@@global.max_connections"] {
        assert_eq!(one(text), Kind::Variable, "{text}");
    }
    assert_eq!(kinds("@'a'")[0].0, Kind::At);
    for text in ["<=>", "->>", "->", ":=", "||", "&&", "<>", "!=", "<<", ">>", "<=", ">=", "=", "%", "/"] {
        assert_eq!(one(text), Kind::Operator, "{text}");
    }
    assert_eq!(one("\\N"), Kind::Null);
    assert_eq!(one("\\"), Kind::Stray);
    assert_eq!(kinds("?+)")[0].0, Kind::List);
    assert_eq!(kinds("?+1")[0].0, Kind::Placeholder);
}

#[test]
fn where_escapes_matter_is_known() {
    for (text, at) in [
        (br"a 'b\\' 'c\'d' 'e\''".as_slice(), Some(8)),
        (br"a 'b\n' `c`", None),
        (b"a '\xBF\\' b'", Some(2)),
        (b"a '\xBF\\\\' b'", Some(2)),
    ] {
        let mut lexer = Lexer::new(text);
        while lexer.next().is_some() {}
        assert_eq!(lexer.doubtful_at(), at, "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn the_second_byte_of_a_pair_is_no_escape() {
    let end = |text: &[u8], reading| Lexer::with_reading(text, reading).next().map(|token| token.end);
    // The backslash belongs to the character, or the character before it is whole.
    assert_eq!(end(b"'\xBF\\' b'", Reading::Pairs), Some(4));
    assert_eq!(end(b"'\xBF\xBF\\' b'", Reading::Pairs), Some(8));
    assert_eq!(end(b"'\xBF\\' b'", Reading::Usual), Some(7));
    assert_eq!(end(b"'\xBF\\\\' b'", Reading::Pairs), Some(8));
    for (text, is_name) in [(b"`\x81`".as_slice(), false), (b"`\x81\x81`", true), ("`日`".as_bytes(), true)]
    {
        let kind = Lexer::new(text).next().map(|token| token.kind);
        assert_eq!(kind == Some(Kind::Quoted), is_name, "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(end(b"'b\\' c'", Reading::NoEscapes), Some(4));
}
