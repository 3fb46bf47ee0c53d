//! Raw bytes in strings: a statement that is whole keeps what is behind them, and so its class.

use proptest::collection::vec;
use proptest::prelude::*;
use sql::{Mode, Scheme, anonymise, fingerprint};

/// How clients write bytes into a string, and how the server reads it.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// `mysql_real_escape_string`
    Escaping,
    /// Under NO_BACKSLASH_ESCAPES.
    Doubling,
    /// In GBK or SJIS: a backslash that is the second byte of a character is not escaped.
    Gbk,
}

fn quoted(client: Client, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    let mut bytes = bytes.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let is_first = matches!(client, Client::Gbk) && byte > 0x80;
        if is_first && let Some(second) = bytes.next_if(|second| matches!(second, 0x40..=0x7E | 0x80..=0xFE))
        {
            out.extend_from_slice(&[byte, second]);
            continue;
        }
        let escaped = match (client, byte) {
            (Client::Doubling, b'\'') => Some(b"''"),
            (Client::Doubling, _) => None,
            (_, b'\'') => Some(br"\'"),
            (_, b'"') => Some(br#"\""#),
            (_, b'\\') => Some(br"\\"),
            (_, b'\n') => Some(br"\n"),
            (_, b'\r') => Some(br"\r"),
            (_, 0) => Some(br"\0"),
            (_, 26) => Some(br"\Z"),
            _ => None,
        };
        match escaped {
            Some(escaped) => out.extend_from_slice(escaped),
            // The first byte of no character.
            None if is_first => out.extend_from_slice(&[b'\\', byte]),
            None => out.push(byte),
        }
    }
    out.push(b'\'');
    out
}

/// Statements, `§` a value, and their classes.
const STATEMENTS: &[(&str, &str)] = &[
    (
        "select order_id from x where contact_id = § order by created_at desc",
        "select order_id from x where contact_id = ? order by created_at desc",
    ),
    ("insert into b (a, c) values (_binary§, 5)", "insert into b(a, c) values (?+)"),
    ("update b set a = §, c = c + 1 where id = §", "update b set a = ?, c = c + ? where id = ?"),
    ("delete from b where id in (§, §) limit 1", "delete from b where id in (?+) limit ?"),
];

fn strict(text: &[u8], is_cut: bool) -> Vec<u8> {
    let mut out = Vec::new();
    fingerprint(Mode::Strict, text, is_cut, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_make_no_class(
        client in prop::sample::select(&[Client::Escaping, Client::Doubling][..]), number in 0..STATEMENTS.len(),
        values in vec(prop_oneof![vec(any::<u8>(), 16), vec(prop::sample::select(&b"\\'\"\xBF\xE3#-/* a,)"[..]), 0..24)], 2),
    ) {
        let (statement, class) = STATEMENTS[number];
        let mut text = Vec::new();
        let mut values = values.iter();
        for part in statement.split_inclusive('§') {
            text.extend_from_slice(part.trim_end_matches('§').as_bytes());
            if part.ends_with('§') {
                text.extend(quoted(client, values.next().expect("two values")));
            }
        }
        let found = strict(&text, false);
        // What two servers take for two statements has the beginning of its class.
        let class = class.as_bytes();
        let is_beginning = class.starts_with(&found[..found.len().min(class.len()).saturating_sub(2)]);
        prop_assert!(found == class || is_beginning, "{} -> {}", text.escape_ascii(), found.escape_ascii());
        let mut out = Vec::new();
        anonymise(&text, false, &Scheme::default(), &mut out);
    }
}

/// Random bytes of a UUID and of a small BLOB: none in ten thousand may lose the rest of its statement.
#[test]
fn random_bytes_leave_no_string_open() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    for (client, length, count) in [
        (Client::Escaping, 16, 10_000),
        (Client::Escaping, 2048, 300),
        (Client::Doubling, 16, 10_000),
        (Client::Doubling, 2048, 300),
        (Client::Gbk, 16, 10_000),
    ] {
        let mut wrong = 0;
        for number in 0..count {
            let (statement, class) = STATEMENTS[number % 2];
            let bytes: Vec<u8> = (0..length).map(|_| random()).collect();
            let (before, behind) = statement.split_once('§').expect("a value");
            let text = [before.as_bytes(), &quoted(client, &bytes), behind.as_bytes()].concat();
            wrong += usize::from(strict(&text, false) != class.as_bytes());
        }
        println!("{client:?} {length} {wrong} of {count}");
        assert!(wrong * 1000 <= count, "{client:?} {length}: {wrong} of {count}");
    }
}

#[test]
fn statements_of_the_logs_that_lost_their_rest() {
    let text = b"select order_id from x where contact_id = '\xc3\x94\\\\\xac^f\xff\xfe\xe4\xb3\xe3l\\\\\xbd\\\\' order by created_at desc";
    assert_eq!(strict(text, false).escape_ascii().to_string(), STATEMENTS[0].1);
    // Cut, it may be anything.
    assert_eq!(strict(&text[..text.len() - 3], true), b"select order_id from x where contact_id = ?");
    let text = b"insert into b values (_binary'\\0\x01;\n# Time: zz\n\x1a\\'\xbf\\\\')";
    assert_eq!(strict(text, false), b"insert into b values (?+)");
}
