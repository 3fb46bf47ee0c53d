//! Scripts of both sides, and what is counted of them.

use serde_json::{Value, json};

use super::Decoder;
use super::pattern::{Shown, fold};
use crate::coverage::Coverage;
use crate::stream::Side::{Client, Server};
use crate::stream::{Opened, Side, Streams};
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

const STEP_NS: u64 = 1000;

struct Talk(Decoder, u64);

impl Talk {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(words: &[&str]) -> Self {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        Self(Decoder::new("a test".to_owned(), Shown::new(&words), true), 0)
    }

    fn open(mut self, is_midstream: bool) -> Self {
        let client = ([10, 0, 0, 7], 40_000).into();
        let server = ([10, 0, 0, 1], 11_211).into();
        self.0.opened(0, &Opened { session: 1, client, server, is_midstream }).unwrap();
        self
    }

    fn say(mut self, from: Side, bytes: &[u8]) -> Self {
        self.1 += STEP_NS;
        self.0.bytes(self.1, 1, from, bytes).unwrap();
        self
    }

    fn gap(mut self, from: Side, missing: Option<u64>) -> Self {
        self.0.gap(self.1, 1, from, missing).unwrap();
        self
    }

    fn end(mut self) -> (Value, Coverage) {
        self.0.end_input();
        assert_eq!(self.0.shared.held_bytes, 0);
        (self.0.shared.table.take_json(), self.0.shared.coverage)
    }
}

fn talk(script: &[(Side, &[u8])]) -> (Value, Coverage) {
    script.iter().fold(Talk::new().open(false), |talk, (from, bytes)| talk.say(*from, bytes)).end()
}

/// `command pattern: requests keys found missed refused failed silent unanswered`, in the order of the names.
fn classes(found: &Value) -> Vec<String> {
    let line = |class: &Value| {
        let names = ["requests", "keys", "found", "missed", "refused", "failed", "silent", "unanswered"];
        let counts: Vec<_> = names.iter().map(|name| class[*name].to_string()).collect();
        format!(
            "{} {}: {}",
            class["command"].as_str().unwrap(),
            class["pattern"].as_str().unwrap(),
            counts.join(" ")
        )
    };
    let mut lines: Vec<_> = found["classes"].as_array().unwrap().iter().map(line).collect();
    lines.sort();
    lines
}

fn pattern(key: &str, words: &[&str]) -> String {
    let mut out = Vec::new();
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    fold(key.as_bytes(), &Shown::new(&words), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn patterns_show_kinds_and_hide_whose() {
    for (key, expected) in [
        ("user:1234:profile", "user:<n>:profile"),
        ("user1234_cart", "user<n>_cart"),
        ("session:8f14e45fceea167a5a36dedd4bea2543", "session:<hex>"),
        ("s/550e8400-e29b-41d4-a716-446655440000/x", "s/<uuid>/<word>"),
        ("user:alice", "user:<word>"),
        ("alice", "<word>"),
        ("mail:alice.b-c+x@example.org:inbox", "mail:<mail>:inbox"),
        ("user:alice%40example.org", "user:<text>.org"),
        ("user:j\u{fc}rgen", "user:<text>"),
        ("tok:a8Xk29fPq", "<word>:<id>"),
        ("ids:1,2,3,4,5:list", "ids:<n>,<n>...:list"),
        ("ip:10.1.2.3", "ip:<n>.<n>..."),
        ("a\x07\x1bb", "a??<word>"),
        ("settings", "settings"),
        ("deadbeefcafe", "<hex>"),
        ("cache:@home", "cache:<mail>"),
        ("v2", "v<n>"),
    ] {
        assert_eq!(pattern(key, &[]), expected, "{key}");
    }
    assert_eq!(pattern("Shop:alice:1", &["shop"]), "Shop:<word>:<n>");
    assert_eq!(pattern("shop:alice:a@b.c:77", &["all"]), "shop:alice:<mail>:<n>");
}

proptest! {
    /// Nothing of a key is shown but usual words and separators, so no two keys that differ in digits differ.
    #[test]
    fn a_pattern_has_no_digit_and_no_unusual_word(key in "[ -~]{1,80}") {
        let folded = pattern(&key, &[]);
        prop_assert!(!folded.bytes().any(|byte| byte.is_ascii_digit()), "{}", folded);
        prop_assert!(folded.len() <= 8 * key.len());
        let digits = |with| key.replace(|c: char| c.is_ascii_digit(), with);
        prop_assert_eq!(pattern(&digits("7"), &[]), pattern(&digits("3"), &[]));
    }
}

#[test]
fn text_commands_are_counted_by_key() {
    let (found, coverage) = talk(&[
        (Client, b"set user:1 0 0 5\r\nget a\r\nget user:1 user:2 item:3\r\n"),
        (Server, b"STORED\r\nVALUE user:1 0 5\r\nEND\r\n\r\nEND\r\n"),
        (Client, b"add user:1 0 0 1\r\nx\r\ncas user:1 0 0 1 7\r\nx\r\ncas user:9 0 0 1 7\r\nx\r\n"),
        (Server, b"NOT_STORED\r\nEXISTS\r\nNOT_FOUND\r\n"),
        (
            Client,
            b"delete user:1\r\ndelete user:1\r\nincr count:1 5\r\ntouch user:1 0\r\nflush_all\r\nstats\r\n",
        ),
        (Server, b"DELETED\r\nNOT_FOUND\r\n17  \r\nTOUCHED\r\nOK\r\nSTAT a 1\r\nSTAT b 2\r\nEND\r\n"),
        (Client, b"set user:3 0 0 2 noreply\r\nxx\r\nbogus\r\nset user:3 0 0 9999999\r\n"),
        (Server, b"ERROR\r\n"),
        (Client, &[b'x'; 9_999_999]),
        (Client, b"\r\nget user:3\r\n"),
        (Server, b"SERVER_ERROR object too large for cache\r\nEND\r\n"),
    ]);
    assert_eq!(
        classes(&found),
        [
            "(unknown) : 1 0 0 0 0 1 0 0",
            "add user:<n>: 1 1 0 0 1 0 0 0",
            "cas user:<n>: 2 2 0 1 1 0 0 0",
            "delete user:<n>: 2 2 1 1 0 0 0 0",
            "flush_all : 1 0 1 0 0 0 0 0",
            "get item:<n>: 1 1 0 1 0 0 0 0",
            "get user:<n>: 2 3 1 2 0 0 0 0",
            "incr count:<n>: 1 1 1 0 0 0 0 0",
            "set user:<n>: 3 3 1 0 0 1 1 0",
            "stats : 1 0 1 0 0 0 0 0",
            "touch user:<n>: 1 1 1 0 0 0 0 0",
        ]
    );
    assert_eq!((coverage.damaged, coverage.skipped_bytes, coverage.unanswered), (0, 0, 0));
    assert_eq!((found["requests"].as_u64(), found["keys"].as_u64()), (Some(15), Some(14)));
    // The value that looks like a request is none.
    let set = found["classes"].as_array().unwrap().iter().find(|class| class["command"] == "set").unwrap();
    assert_eq!(set["value_bytes"], json!({"count": 3, "p50": 5, "p99": 9_999_999, "max": 9_999_999}));
    let bytes: u64 = found["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|class| class["request_bytes"].as_u64().unwrap())
        .sum();
    assert!(bytes > 10_000_000);
}

#[test]
fn meta_commands_and_silence() {
    let (found, coverage) = talk(&[
        (Client, b"ms a:1 2 q\r\nxx\r\nmg a:1 q v k O1\r\nmg a:2 q v k O2\r\nmg b:2 v k O3\r\nmn\r\n"),
        (Server, b"VA 2 ka:1 O1\r\nxx\r\nEN kb:2 O3\r\nMN\r\n"),
        (Client, b"md a:1 q\r\nmd a:2 q\r\nma n:1 N0 v\r\nms a:1 2 ME q\r\nxx\r\nmn\r\n"),
        (Server, b"NF\r\nVA 1\r\n0\r\nNS\r\nMN\r\n"),
        (Client, b"mg a:9 N30 v t\r\nms YWI= 2 b\r\nxx\r\nme a:1\r\nms a:1 S2\r\n"),
        (Server, b"VA 0 t30 W\r\n\r\nHD\r\nEN\r\nCLIENT_ERROR bad command line format\r\n"),
    ]);
    assert_eq!(
        classes(&found),
        [
            // Which of the two deletions was told is not known: the first that it fits.
            "ma <word>:<n>: 1 1 1 0 0 0 0 0",
            "md a:<n>: 2 2 0 1 0 0 1 0",
            "me a:<n>: 1 1 0 1 0 0 0 0",
            "mg <word>:<n>: 1 1 0 1 0 0 0 0",
            "mg a:<n>: 3 3 1 2 0 0 0 0",
            "mn : 2 0 2 0 0 0 0 0",
            "ms <base64>: 1 1 1 0 0 0 0 0",
            "ms a:<n>: 3 3 1 0 1 1 0 0",
        ]
    );
    assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0));
    assert_eq!(found["keys_with_hidden_words"], 2);
}

#[test]
fn an_error_after_noreply_is_that_of_the_silent_request() {
    let (found, coverage) = talk(&[
        (Client, b"set a:1 0 0 1 noreply\r\nx\r\nget a:1\r\n"),
        (Server, b"SERVER_ERROR out of memory storing object\r\nEND\r\n"),
    ]);
    assert_eq!(classes(&found), ["get a:<n>: 1 1 0 1 0 0 0 0", "set a:<n>: 1 1 0 0 0 1 0 0"]);
    assert_eq!(coverage.damaged, 0);
}

#[test]
fn a_request_takes_from_its_first_byte_to_the_last_of_its_answer() {
    let (found, _) = talk(&[
        (Client, b"get a:1 "),
        (Client, b"a:2\r\n"),
        (Server, b"VALUE a:1 0 3\r\nx"),
        (Server, b"xx\r\nEND\r"),
        (Server, b"\n"),
    ]);
    assert_eq!(
        found["latency_ns"],
        json!({"count": 1, "p50": 4 * STEP_NS, "p99": 4 * STEP_NS, "max": 4 * STEP_NS})
    );
    let class = &found["classes"][0];
    // Every byte of both sides is some key's.
    assert_eq!((&class["request_bytes"], &class["response_bytes"]), (&json!(13), &json!(15 + 5 + 5)));
    assert_eq!((&class["share_of_time"], &class["hit_rate"]), (&json!(1.0), &json!(0.5)));
}

#[test]
fn other_protocols_are_named_and_left_alone() {
    let named = |from, bytes: &[u8]| talk(&[(from, bytes), (Server, b"END\r\n")]).1;
    let binary = [&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 12], b"k"].concat();
    assert_eq!(named(Client, &binary).foreign_sessions.get("memcached's binary protocol"), 1);
    assert_eq!(named(Client, &[0x16, 3, 1, 0, 9, 1, 0, 0, 5]).tls_sessions, 1);
    assert_eq!(named(Client, b"GET / HTTP/1.1\r\n\r\n").foreign_sessions.get("HTTP"), 1);
    assert_eq!(named(Client, b"*1\r\n$4\r\nPING\r\n").foreign_sessions.get("Redis"), 1);
    assert_eq!(
        named(Server, b"ERROR Too many open connections\r\n").foreign_sessions.get("refused by memcached"),
        1
    );
    let told = named(Client, b"watch fetchers\r\n");
    assert_eq!((told.foreign_sessions.total(), told.damaged, told.events), (0, 0, 1));
    // Whole in the middle of a connection, too.
    let middle = Talk::new().open(true).say(Server, &[0x17, 3, 3, 0, 1, 9]).end().1;
    assert_eq!(middle.tls_sessions, 1);
}

#[test]
fn a_session_is_found_again_behind_a_hole() {
    let (found, coverage) = Talk::new()
        .open(true)
        .say(Server, b"of a value\r\nEND\r\n")
        .say(Client, b"get a:1\r\n")
        .say(Server, b"END\r\n")
        .say(Client, b"get a:1\r\n")
        .gap(Server, Some(100))
        .say(Server, b"ue\r\nEND\r\n")
        // Not the begin of a request, though it looks so: the server has not spoken since.
        .say(Client, b"set a:1 0 0 10\r\n")
        .gap(Client, None)
        .say(Client, b"get a:9\r\n")
        .say(Server, b"STORED\r\n")
        .say(Client, b"get a:1\r\n")
        .say(Server, b"STORED\r\n")
        .say(Client, b"get a:1\r\n")
        .say(Server, b"VALUE a:2 0 1\r\nx\r\nEND\r\n")
        .say(Client, b"get a:1\r\n")
        .say(Server, b"VALUE a:1 0 300\r\n")
        .gap(Server, Some(290))
        .say(Server, b"0123456789\r\nEND\r\n")
        .end();
    assert_eq!(classes(&found), ["get a:<n>: 5 5 1 1 0 0 0 3", "set a:<n>: 1 1 0 0 0 0 0 1"]);
    assert_eq!((coverage.damaged, coverage.unanswered, coverage.midstream_sessions), (4, 4, 1));
    assert!(
        coverage.places[3].reason.contains("a value of a key that was not asked for"),
        "{:?}",
        coverage.places
    );
}

#[test]
fn packets_that_were_cut_in_their_value_are_whole_requests() {
    let (found, coverage) = Talk::new()
        .open(false)
        .say(Client, b"get a:1 a:2\r\n")
        .say(Server, b"VALUE a:1 0 300\r\n01234")
        .gap(Server, Some(295 + 2 + 5))
        .say(Client, b"set a:1 0 0 300\r\n01234")
        .gap(Client, Some(295 + 2))
        .say(Server, b"STORED\r\n")
        .say(Client, b"mg a:1 v\r\n")
        .say(Server, b"VA 300\r\n01234")
        .gap(Server, Some(295 + 2))
        .say(Client, b"get a:3\r\n")
        .say(Server, b"END\r\n")
        .end();
    let expected = ["get a:<n>: 2 3 1 2 0 0 0 0", "mg a:<n>: 1 1 1 0 0 0 0 0", "set a:<n>: 1 1 1 0 0 0 0 0"];
    assert_eq!(classes(&found), expected);
    assert_eq!((coverage.damaged, found["latency_ns"]["count"].as_u64()), (0, Some(4)));
}

#[test]
fn one_direction_alone_is_named() {
    assert_eq!(talk(&[(Client, b"get a\r\n")]).1.one_sided_sessions, 1);
    assert_eq!(talk(&[(Server, b"END\r\n")]).1.one_sided_sessions, 1);
    assert_eq!(talk(&[(Client, b"delete a noreply\r\nquit\r\n")]).1.one_sided_sessions, 0);
}

#[test]
fn memory_is_bounded() {
    // Patterns beyond all bounds.
    let mut talk = Talk::with(&["all"]).open(false);
    for number in 0..3000_u32 {
        let word: String = number.to_string().bytes().map(|digit| char::from(b'p' + digit - b'0')).collect();
        talk = talk.say(Client, format!("get {word}\r\n").as_bytes()).say(Server, b"END\r\n");
    }
    let (found, _) = talk.end();
    let classes = found["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 1001);
    let others = classes.iter().find(|class| class["pattern"] == "(other patterns)").unwrap();
    assert_eq!(others["keys"], 2000);
    // Requests that nobody answers, and lines that do not end.
    let flood = vec![b'x'; 1 << 16];
    let quiet = b"delete a:1 noreply\r\n".repeat(50_000);
    let (found, coverage) = Talk::new().open(false).say(Client, &quiet).say(Client, b"get ").end();
    assert_eq!((coverage.damaged, found["requests"].as_u64()), (0, Some(50_000)));
    let many = b"get a:1\r\n".repeat(20_000);
    let mut talk = Talk::new().open(false).say(Client, &many);
    for _ in 0..40 {
        talk = talk.say(Server, b"?").say(Client, b"get ").say(Client, &flood);
        assert!(talk.0.shared.held_bytes < 2 << 20);
    }
    assert!(talk.end().1.damaged >= 2);
}

#[test]
fn hot_keys_are_within_their_bound() {
    let mut talk = Talk::new().open(false);
    for round in 0..4000 {
        let request = format!("get hot:1 hot:2 cold:{round} cold:{}\r\n", round + 100_000);
        talk = talk.say(Client, request.as_bytes()).say(Server, b"END\r\n");
    }
    let (found, _) = talk.end();
    let keys = found["hot_keys"]["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2);
    for key in keys {
        let (least, most) = (key["requests_least"].as_u64().unwrap(), key["requests_most"].as_u64().unwrap());
        assert!(least <= 4000 && 4000 <= most && most - least <= 16_000 / 1024, "{key}");
        assert!(key["key"].as_str().unwrap().starts_with("hot:"));
    }
}

/// A request, its answer, and whether the client waits for it.
fn exchange() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    // Values that look like the protocol.
    let value = prop_oneof![
        Just(b"END\r\nget a:1\r\nVALUE a:1 0 5\r\nSTORED\r\n".to_vec()),
        Just(b"set a:1 0 0 100\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..60),
    ];
    (0..8_u8, 0..50_u32, value).prop_map(|(kind, key, value)| {
        let with = |head: String| [head.as_bytes(), &value, b"\r\n"].concat();
        let length = value.len();
        match kind {
            0 => (with(format!("set user:{key} 0 0 {length}\r\n")), b"STORED\r\n".to_vec()),
            1 => (with(format!("set user:{key} 0 0 {length} noreply\r\n")), Vec::new()),
            2 => (format!("get user:{key}\r\n").into(), b"END\r\n".to_vec()),
            3 => {
                let answer = with(format!("VALUE user:{key} 0 {length}\r\n"));
                (format!("get item:{key} user:{key}\r\n").into(), [&answer[..], b"END\r\n"].concat())
            }
            4 => (format!("mg user:{key} v k\r\n").into(), with(format!("VA {length} kuser:{key}\r\n"))),
            5 => (format!("mg user:{key} v q k O{key}\r\n").into(), Vec::new()),
            6 => (b"mn\r\n".to_vec(), b"MN\r\n".to_vec()),
            _ => (with(format!("ms user:{key} {length} T9\r\n")), b"HD\r\n".to_vec()),
        }
    })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(96))]

    /// However the bytes are cut, and however far the client is ahead, the same is counted; only times differ.
    #[test]
    fn any_pieces_are_counted_alike(
        exchanges in proptest::collection::vec(exchange(), 1..25),
        sizes in proptest::collection::vec(1..40_usize, 1..20),
        ahead in 1..6_usize,
    ) {
        let expected = {
            let mut talk = Talk::new().open(false);
            for (request, answer) in &exchanges {
                talk = talk.say(Client, request).say(Server, answer);
            }
            talk.end()
        };
        let mut talk = Talk::new().open(false);
        let mut sizes = sizes.iter().cycle();
        for group in exchanges.chunks(ahead) {
            for side in [Client, Server] {
                let of = |(request, answer): &(Vec<u8>, Vec<u8>)| if side == Client { request.clone() } else { answer.clone() };
                let bytes: Vec<u8> = group.iter().flat_map(of).collect();
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (piece, behind) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                    talk = talk.say(side, piece);
                    rest = behind;
                }
            }
        }
        let found = talk.end();
        prop_assert_eq!(classes(&found.0), classes(&expected.0));
        prop_assert_eq!(found.1.damaged, 0);
        prop_assert_eq!(found.1.events, exchanges.len() as u64);
    }

    /// Any bytes, holes and beginnings: nothing breaks, nothing is held, and each byte is a request's or skipped.
    #[test]
    fn anything_may_come(
        pieces in proptest::collection::vec((any::<bool>(), any::<u8>(), exchange(), proptest::collection::vec(any::<u8>(), 0..30)), 0..60),
        is_midstream in any::<bool>(),
    ) {
        let mut talk = Talk::new().open(is_midstream);
        for (is_client, kind, (request, answer), noise) in &pieces {
            let from = if *is_client { Client } else { Server };
            talk = match kind % 8 {
                0 => talk.gap(from, Some(u64::from(*kind))),
                1 => talk.gap(from, None),
                2 => talk.say(from, noise),
                3 => talk.say(Client, &request[..request.len() / 2]),
                4 => talk.say(from, answer),
                _ => talk.say(Client, request).say(Server, answer),
            };
        }
        let (found, coverage) = talk.end();
        let counted: u64 = found["classes"].as_array().unwrap().iter().map(|class| class["requests"].as_u64().unwrap()).sum();
        prop_assert!(counted >= coverage.events);
    }
}
