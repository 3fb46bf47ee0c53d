//! Every literal holds a canary, as clients write literals under each mode and character set that changes where strings
//! end. Wherever the text is cut, no canary is left in what is kept.

use proptest::collection::vec;
use proptest::prelude::*;
use sql::{Mode, Scheme, anonymise, fingerprint, tables, used_database};

/// Letters enough that no pseudonym is this by chance. Fingerprints have not even the beginning.
const CANARY: &str = "zqjxkvwp";
const BEGINNING: usize = 3;

/// How the server that gets these statements reads them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    Usual,
    NoBackslashEscapes,
    Gbk,
}

/// Contents of strings, as a client escapes them for that server: `~` stands for the first byte of a character whose
/// second byte is a backslash, `_` for a whole character without one.
fn contents(server: Server) -> &'static [&'static str] {
    match server {
        Server::Usual => &[
            "§",
            r"it\'s §",
            r"\'§\'",
            r"§\\",
            r"a\\\'§",
            r#"{\"a\": \"§\"}"#,
            "§''s",
            "-- §",
            "/* §",
            "# §",
            r"§\' or \'x",
        ],
        Server::NoBackslashEscapes => &[
            "§",
            r"C:\§\",
            r"§\",
            "it''s §",
            r"\\host\§\",
            r"§\''s",
            "-- §",
            ", §",
            " § # ",
            ") § (",
            r"\''§",
        ],
        Server::Gbk => {
            &["§", r"§~\", r"~\§", r"_\'§", r"__\'§", r"~\\'§", "§_", r"§~\''s", ", §", " § # ", "-- §"]
        }
    }
}

const TEMPLATES: &[&str] = &[
    "select a from t where b = § and c in ( § , § ) or d = §",
    "insert into t ( a , b ) values ( § , § ) , ( § , now( ) )",
    "update t set a = § , b = concat( § , a ) where c like § order by d limit 5",
    "select § , § as x , f( § , a ) from t join u on t.a = u.b where u.c = §",
    "set @a = § ; select * from t where a = § ; call p( § , § )",
    "select case when a = § then § else § end from `t`",
    "replace into d.t select § , `a` from `u` where b between § and §",
    "create table t ( a varchar( 10 ) default § comment § ) comment §",
    "use d ; insert into t values ( § , § ) ; use d ; select §",
];

fn statement() -> impl Strategy<Value = (Server, Vec<u8>)> {
    let servers = prop::sample::select(&[Server::Usual, Server::NoBackslashEscapes, Server::Gbk][..]);
    let parts = vec((0..64usize, any::<bool>(), 0..8usize), 12);
    (servers, prop::sample::select(TEMPLATES), parts).prop_map(|(server, template, parts)| {
        let mut text = Vec::new();
        let mut parts = parts.iter().cycle();
        for letter in template.chars() {
            let (number, is_double, blank) = parts.next().expect("a cycle has no end");
            match letter {
                '§' => {
                    let contents = contents(server);
                    let content = contents[number % contents.len()].replace('§', CANARY);
                    let is_double = *is_double && !content.contains(['\'', '"']);
                    let quote = if is_double { b'"' } else { b'\'' };
                    text.push(quote);
                    for byte in content.bytes() {
                        match byte {
                            b'~' => text.push(0xBF),
                            b'_' => text.extend([0xC4, 0xE3]),
                            byte => text.push(byte),
                        }
                    }
                    text.push(quote);
                }
                ' ' => text.extend_from_slice(match blank {
                    0 => b"\n",
                    1 => b" /* zqjxkvwp */ ",
                    _ => b" ",
                }),
                other => text.extend(other.to_string().bytes()),
            }
        }
        (server, text)
    })
}

fn has(text: &[u8], what: &str) -> bool {
    memchr::memmem::find(text, what.as_bytes()).is_some()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_canary_is_left_wherever_the_text_ends((server, text) in statement()) {
        let shown = |text: &[u8]| text.escape_ascii().to_string();
        let mut out = Vec::new();
        for end in 0..=text.len() {
            let is_cut = end < text.len();
            let text = &text[..end];
            fingerprint(Mode::Strict, text, is_cut, &mut out);
            prop_assert!(!has(&out, &CANARY[..BEGINNING]), "{server:?}: {} -> {}", shown(text), shown(&out));
            let names = tables(text).join(&b' ');
            prop_assert!(!has(&names, &CANARY[..BEGINNING]), "{server:?}: {} -> {}", shown(text), shown(&names));
            let name = used_database(text).unwrap_or_default();
            prop_assert!(!has(&name, &CANARY[..BEGINNING]), "{server:?}: {} -> {}", shown(text), shown(&name));
            anonymise(text, is_cut, &Scheme::default(), &mut out);
            prop_assert!(!has(&out, CANARY), "{server:?}: {} -> {}", shown(text), shown(&out));
        }
    }
}

#[test]
fn statements_of_other_modes() {
    for text in [
        br"insert into t values ('C:\Data\',' hunter2 # note')".as_slice(),
        br"select a from t where b = 'C:\' and c = ' hunter2 '",
        b"insert into t values ('\xBF\\',' hunter2 # note')",
        b"select a from `x\x81`` where `b` = 'hunter2' and `c` = 1",
    ] {
        let mut out = Vec::new();
        fingerprint(Mode::Strict, text, true, &mut out);
        assert!(!has(&out, "hunter2"), "{}", String::from_utf8_lossy(&out));
        anonymise(text, true, &Scheme::default(), &mut out);
        assert!(!has(&out, "hunter2"), "{}", String::from_utf8_lossy(&out));
    }
}
