//! Sessions that are still open, that a balancer announced, and that are none of MySQL.

use proptest::prelude::{any, prop_assert, proptest};

use super::commands::everything;
use super::{Kept, NEW, OK, OLD, Talk, asked, commands, decode, decode_as, greeting, hello, keep, opened};
use crate::coverage::Coverage;
use crate::event::{Command, Event};
use crate::stream::{Side, Streams};
use crate::wire::Decoder;

fn turns(talk: &Talk) -> impl Iterator<Item = (u64, Side, &[u8])> {
    talk.said.iter().enumerate().map(|(at, (side, bytes))| (at as u64, *side, &bytes[..]))
}

fn said(turns: &[(Side, &[u8])]) -> Talk {
    Talk { said: turns.iter().map(|(side, bytes)| (*side, bytes.to_vec())).collect() }
}

#[test]
fn a_session_that_is_still_open_has_not_ended() {
    let mut talk = Talk::new(NEW);
    talk.query("select 1", &[OK]).query("select 2", &[]);
    for is_cut in [true, false] {
        let mut events = Vec::new();
        let sink = |event: &Event<'_>| {
            events.push(keep(event));
            Ok(())
        };
        let mut decoder = Decoder::new(sink);
        decoder.opened(0, &opened(false)).unwrap();
        for (time_ns, side, bytes) in turns(&talk) {
            decoder.bytes(time_ns, 1, side, bytes).unwrap();
        }
        if is_cut {
            decoder.cut(1).unwrap();
        }
        let coverage = decoder.finish().unwrap();
        assert_eq!(commands(&events), [Command::Connect, Command::Query, Command::Query]);
        assert_eq!((coverage.events, coverage.unanswered), (3, 1));
    }
}

const PROXIED: [(&[u8], &str, &str); 3] = [
    (b"PROXY TCP4 203.0.113.9 127.0.0.1 45678 3306\r\n", "PROXY v1", "203.0.113.9"),
    (
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10\xcb\0\x71\x09\x7f\0\0\x01\xb2\x6e\x0c\xea\x04\0\x01\0",
        "PROXY v2",
        "203.0.113.9",
    ),
    (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", "PROXY v2 LOCAL", "127.0.0.1"),
];

#[test]
fn a_balancers_header_names_the_client() {
    for (header, kind, host) in PROXIED {
        for size in 1..=header.len() {
            let mut talk = Talk::default();
            talk.said.extend(header.chunks(size).map(|piece| (Side::Client, piece.to_vec())));
            talk.said.extend(everything(NEW).said);
            let mut hosts = Vec::new();
            let mut decoder = Decoder::new(|event: &Event<'_>| {
                hosts.push((event.host.to_vec(), event.user.to_vec(), event.database.to_vec()));
                Ok(())
            });
            decoder.opened(0, &opened(false)).unwrap();
            for (time_ns, side, bytes) in turns(&talk) {
                decoder.bytes(time_ns, 1, side, bytes).unwrap();
            }
            let coverage = decoder.finish().unwrap();
            assert_eq!((coverage.midstream_sessions, coverage.proxied_sessions.get(kind)), (0, 1), "{kind}");
            assert!(hosts.iter().all(|(name, ..)| name == host.as_bytes()));
            assert_eq!((&hosts[0].1[..], &hosts[0].2[..]), (&b"app"[..], &b"shop"[..]));
            // Nothing else differs from the session without it.
            assert_eq!(hosts.len(), everything(NEW).events().0.len());
        }
    }
}

/// A proxy that ends encryption takes the request for it away, so that the login has the next number.
#[test]
fn a_login_behind_the_end_of_encryption_is_one() {
    let mut talk = Talk::default();
    talk.server(0, &[&greeting(NEW)]).client(2, &hello(NEW)).server(3, &[OK]).query("select 1", &[OK]);
    let (events, coverage) = talk.events();
    assert_eq!(commands(&events), [Command::Connect, Command::Query, Command::Quit]);
    assert_eq!(coverage.foreign_sessions.total(), 0);
}

/// The balancer next to the server puts its header before that of the one next to the client.
#[test]
fn of_several_balancers_the_first_one_names_the_client() {
    let header = b"PROXY TCP4 10.0.0.1 127.0.0.1 45678 3306\r\n";
    for size in [1, 7, 1000] {
        let all = [header, PROXIED[0].0].concat();
        let mut talk = Talk::default();
        talk.said.extend(all.chunks(size).map(|piece| (Side::Client, piece.to_vec())));
        talk.said.extend(everything(NEW).said);
        let mut hosts = Vec::new();
        let mut decoder = Decoder::new(|event: &Event<'_>| {
            hosts.push(event.host.to_vec());
            Ok(())
        });
        decoder.opened(0, &opened(false)).unwrap();
        for (time_ns, side, bytes) in turns(&talk) {
            decoder.bytes(time_ns, 1, side, bytes).unwrap();
        }
        let coverage = decoder.finish().unwrap();
        assert_eq!(
            (coverage.midstream_sessions, coverage.proxied_sessions.get("PROXY v1")),
            (0, 2),
            "{size}"
        );
        assert!(hosts.iter().all(|host| host == b"203.0.113.9"));
    }
}

/// MariaDB greets as soon as it accepts, which may be before the balancer's header is there.
#[test]
fn a_balancers_header_behind_the_greeting() {
    let plain = everything(NEW);
    for (header, kind, host) in PROXIED {
        for size in 1..=header.len() + 1 {
            let mut talk = Talk { said: plain.said[..1].to_vec() };
            if size <= header.len() {
                talk.said.extend(header.chunks(size).map(|piece| (Side::Client, piece.to_vec())));
                talk.said.extend_from_slice(&plain.said[1..]);
            } else {
                // The login is in the same packet.
                talk.said.push((Side::Client, [header, &plain.said[1].1[..]].concat()));
                talk.said.extend_from_slice(&plain.said[2..]);
            }
            let (events, coverage) = talk.events();
            assert_eq!(coverage.proxied_sessions.get(kind), 1, "{size}: {coverage:?}");
            assert_eq!((coverage.skipped_bytes, coverage.damaged), (0, 0), "{coverage:?}");
            assert_eq!(commands(&events), commands(&plain.events().0));
            let mut hosts = Vec::new();
            let mut decoder = Decoder::new(|event: &Event<'_>| {
                hosts.push(event.host.to_vec());
                Ok(())
            });
            decoder.opened(0, &opened(false)).unwrap();
            for (time_ns, side, bytes) in turns(&talk) {
                decoder.bytes(time_ns, 1, side, bytes).unwrap();
            }
            decoder.finish().unwrap();
            assert!(hosts.iter().all(|name| name == host.as_bytes()));
        }
        // It ends inside of the header.
        let talk =
            Talk { said: vec![plain.said[0].clone(), (Side::Client, header[..header.len() - 1].to_vec())] };
        let (events, coverage) = talk.events();
        assert_eq!((events.len(), coverage.skipped_bytes), (0, header.len() as u64 - 1));
    }
}

/// A server of MySQL greets whoever comes: checks of health, and clients of something else on the wrong port.
#[test]
fn what_is_no_login_behind_a_greeting_is_named() {
    let greeted = Talk { said: everything(NEW).said[..1].to_vec() };
    for (name, bytes) in [
        ("HTTP", &b"GET /health HTTP/1.1\r\nHost: db\r\n\r\n"[..]),
        ("Redis", b"*1\r\n$4\r\nPING\r\n"),
        ("TLS from the first byte", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03abcdefgh"),
        ("PostgreSQL", b"\0\0\0\x08\x04\xd2\x16\x2f"),
        ("an unknown protocol", b"\x99abcdefghijklmnop"),
    ] {
        for size in [1, 3, bytes.len()] {
            let mut talk = Talk { said: greeted.said.clone() };
            talk.said.extend(bytes.chunks(size).map(|piece| (Side::Client, piece.to_vec())));
            let (events, coverage) = talk.events();
            // In pieces there may be too little to tell what it is.
            let found = if size == bytes.len() { name } else { "an unknown protocol" };
            let named = coverage.foreign_sessions.get(name) + coverage.foreign_sessions.get(found);
            assert!(named > 0, "{name}, {size}: {coverage:?}");
            assert_eq!((events.len(), coverage.foreign_sessions.total()), (0, 1), "{coverage:?}");
            assert_eq!(coverage.skipped_bytes, bytes.len() as u64, "{name}: {coverage:?}");
        }
    }
}

#[test]
fn a_balancers_check_is_no_session_of_another_protocol() {
    for (header, kind, _) in PROXIED {
        let mut talk = said(&[(Side::Client, header)]);
        talk.server(0, &[&greeting(OLD)]);
        for end in 1..=2 {
            let part = Talk { said: talk.said[..end].to_vec() };
            let (events, coverage) = part.events();
            assert_eq!((events.len(), coverage.proxied_sessions.get(kind)), (0, 1));
            assert_eq!((coverage.foreign_sessions.total(), coverage.midstream_sessions), (0, 0));
        }
        let cut = said(&[(Side::Client, &header[..header.len() - 1])]);
        assert_eq!(cut.events().1.proxied_sessions.total(), 0);
    }
}

/// First bytes of clients and servers of other protocols.
fn foreign() -> Vec<(&'static str, Talk)> {
    use Side::{Client, Server};
    let mongo: &[u8] =
        b"\x3c\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\x27\0\0\0\x10isMaster\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0";
    let mongo_answer: &[u8] =
        b"\x26\0\0\0\x02\0\0\0\x01\0\0\0\xdd\x07\0\0\0\0\0\0\0\x11\0\0\0\x01ok\0\0\0\0\0\0\0\xf0\x3f\0";
    let startup: &[u8] = b"\0\0\0\x23\0\x03\0\0user\0app\0database\0shop\0\0";
    let hello: &[u8] = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03abcdefgh";
    vec![
        (
            "MySQL's X protocol",
            said(&[
                (Server, b"\x05\0\0\0\x0b\x08\x05\x1a\0"),
                (Client, b"\x01\0\0\0\x01"),
                (Server, b"\x12\0\0\0\x02\x0a\x0f\x0a\x03tls\x12\x08\x08\x01\x12\x04\x08\x07\x40\0"),
                (Client, b"\x1e\0\0\0\x0c\x12\x1bselect * from t where a = 1"),
                (Server, b"\x03\0\0\0\x0c\x08\x01\x04\0\0\0\x0d\x0a\x01\x02\x01\0\0\0\x0e\x01\0\0\0\x11"),
                (Client, b"\x01\0\0\0\x03"),
                (Server, b"\x01\0\0\0\0"),
            ]),
        ),
        (
            "MySQL's X protocol",
            said(&[(Client, b"\x01\0\0\0\x01"), (Server, b"\x12\0\0\0\x02\x0a\x0f\x0a\x03tls\x12\x08\x08\x01\x12\x04\x08\x07\x40\0")]),
        ),
        ("TLS from the first byte", said(&[(Client, hello), (Server, b"\x16\x03\x03\0\x05hello")])),
        ("HTTP", said(&[(Client, b"GET / HTTP/1.1\r\nHost: db\r\n\r\n"), (Server, b"HTTP/1.1 400 Bad Request\r\n\r\n")])),
        ("HTTP/2", said(&[(Client, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"), (Server, b"\0\0\0\x04\0\0\0\0\0")])),
        ("Redis", said(&[(Client, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"), (Server, b"$1\r\nb\r\n")])),
        ("memcached", said(&[(Client, b"get a\r\n"), (Server, b"VALUE a 0 1\r\nb\r\nEND\r\n")])),
        ("PostgreSQL", said(&[(Client, startup), (Server, b"R\0\0\0\x08\0\0\0\0")])),
        ("PostgreSQL", said(&[(Client, b"Q\0\0\0\x0dselect 1\0"), (Server, b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I")])),
        ("MongoDB", said(&[(Client, mongo), (Server, mongo_answer)])),
        ("SSH", said(&[(Server, b"SSH-2.0-OpenSSH_9.2\r\n"), (Client, b"SSH-2.0-Go\r\n")])),
        (
            "SQL Server (TDS)",
            said(&[(Client, b"\x12\x01\0\x2f\0\0\x01\0\0\0\x1a\0\x06\x01\0 \0\x01\x02\0!\0\x01\x03\0\x22\0\x04\x04\0&\0\x01\xff"),
                   (Server, b"\x04\x01\0\x30\0\0\x01\0\0\0\x1f")]),
        ),
        (
            "SQL Server (TDS)",
            said(&[
                (Client, b"\x01\x01\0\x1c\0\0\x01\0\x16\0\0\0\x12\0\0\0\x02\0\0\0\0\0\0\0\0\0\x01\0"),
                (Server, b"\x04\x01\0\x15\0\x35\x01\0\xfd\x01\0\xf9\0\0\0\0\0\0\0\0\0"),
            ]),
        ),
        (
            "Cassandra (CQL)",
            said(&[(Client, b"\x04\0\0\x01\x05\0\0\0\0"), (Server, b"\x84\0\0\x01\x06\0\0\0\x02\0\0")]),
        ),
        (
            "Oracle (TNS)",
            said(&[(Client, b"\0\x14\0\0\x01\0\0\0\x01\x3b\x01\x2c\0\x41\x20\0\xff\xff\x4f\x98"), (Server, b"\0\x08\0\0\x0b\0\0\0")]),
        ),
        (
            "Db2 (DRDA)",
            said(&[(Client, b"\0\x0e\xd0\x41\0\x01\0\x08\x10\x41abcd"), (Server, b"\0\x0e\xd0\x43\0\x01\0\x08\x14\x43abcd")]),
        ),
        ("Kafka", said(&[(Client, b"\0\0\0\x18\0\x12\0\x03\0\0\0\x01\0\x08consumer\0\x01\x02")])),
        ("an unknown protocol", said(&[(Server, b"220 mail ESMTP\r\n"), (Client, b"EHLO me\r\n")])),
        ("an unknown protocol", said(&[(Client, &[7; 40]), (Server, &[9; 3])])),
    ]
}

#[test]
fn other_protocols_are_named_and_make_no_event() {
    for (name, talk) in foreign() {
        let (events, coverage) = talk.events();
        assert_eq!(events.len(), 0, "{name}: {events:?}");
        assert_eq!(coverage.foreign_sessions.get(name), 1, "{name}: {coverage:?}");
        assert_eq!(
            (coverage.midstream_sessions, coverage.tls_sessions, coverage.damaged),
            (0, 0, 0),
            "{name}"
        );
    }
}

/// Joined in their middle, both sides must speak the same protocol before it is believed.
#[test]
fn other_protocols_that_are_joined_are_named_if_both_sides_speak_them() {
    for (name, talk) in foreign() {
        let (events, coverage) = decode_as(true, turns(&talk));
        assert_eq!(events.len(), 0, "{name}: {events:?}");
        let named = u64::from(!["Kafka", "an unknown protocol", "TLS from the first byte"].contains(&name));
        assert_eq!(coverage.foreign_sessions.get(name), named, "{name}: {coverage:?}");
        assert_eq!(coverage.midstream_sessions, 1 - named, "{name}");
        assert_eq!(coverage.damaged, 0, "{name}: {coverage:?}");
    }
}

/// Four bytes of any content are no message of the X protocol.
#[test]
fn bytes_of_another_protocol_are_not_the_x_protocol() {
    use Side::{Client, Server};
    let answer = [&b"\x45\x4b\0\0\x02\x06\x01\x55"[..], &[0x9e; 60]].concat();
    let talk = said(&[(Client, b"KE\0\0\x02\x06\x01\x55\0\0\x03\x9e"), (Server, &answer)]);
    let (_, coverage) = talk.events();
    assert_eq!(coverage.foreign_sessions.get("an unknown protocol"), 1, "{coverage:?}");
}

#[test]
fn a_lone_quit_of_a_session_that_was_joined_is_no_proof() {
    let (events, coverage) = decode_as(true, turns(&said(&[(Side::Client, b"\x01\0\0\0\x01")])));
    assert_eq!((events.len(), coverage.midstream_sessions, coverage.foreign_sessions.total()), (0, 1, 0));
    // What nobody answers counts as soon as an answer shows that it is MySQL.
    let mut talk = Talk::default();
    talk.client(0, b"\x19\x07\0\0\0").query("select 1", &[OK]).client(0, b"\x01");
    let (events, coverage) = decode_as(true, turns(&talk));
    assert_eq!(commands(&events), [Command::Close, Command::Query, Command::Quit]);
    assert_eq!((coverage.midstream_sessions, coverage.skipped_bytes), (1, 0));
}

#[test]
fn one_direction_of_mysql_is_not_another_protocol() {
    let talk = everything(NEW);
    for side in [Side::Client, Side::Server] {
        let only = Talk { said: talk.said.iter().filter(|(from, _)| *from == side).cloned().collect() };
        let (events, coverage) = only.events();
        assert_eq!(coverage.foreign_sessions.total(), 0, "{side:?}: {coverage:?}");
        assert!(events.is_empty(), "{side:?}: {events:?}");
        if side == Side::Client {
            assert_eq!(coverage.one_sided_sessions, 1, "{coverage:?}");
        }
    }
    let tls = hello(NEW)[..32].to_vec();
    let mut talk = Talk::default();
    talk.client(1, &tls);
    assert_eq!(talk.events().1.foreign_sessions.total(), 0);
}

/// No session of MySQL may be taken for something else, wherever it is joined and however its bytes are cut.
fn is_never_foreign(events: &[Kept], coverage: &Coverage) -> bool {
    coverage.foreign_sessions.total() == 0
        && (coverage.midstream_sessions <= 1)
        && asked(events) == coverage.events
}

#[test]
fn mysql_is_never_named_something_else() {
    for flags in [OLD, NEW] {
        let talk = everything(flags);
        for start in 0..talk.said.len() {
            for end in start..=talk.said.len() {
                let part = Talk { said: talk.said[start..end].to_vec() };
                let (events, coverage) = decode_as(true, turns(&part));
                assert!(is_never_foreign(&events, &coverage), "{start} to {end}: {coverage:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn mysql_is_never_named_something_else_at_any_byte(start in 0..5000_usize, size in 1..300_usize, is_old in any::<bool>()) {
        let talk = everything(if is_old { OLD } else { NEW });
        let mut left = start;
        let mut part = Talk::default();
        for (side, bytes) in &talk.said {
            let skipped = left.min(bytes.len());
            left -= skipped;
            part.said.extend(bytes[skipped..].chunks(size).map(|piece| (*side, piece.to_vec())));
        }
        let (events, coverage) = decode_as(true, turns(&part));
        prop_assert!(is_never_foreign(&events, &coverage), "{:?}", coverage);
        let (events, coverage) = decode(turns(&talk));
        prop_assert!(is_never_foreign(&events, &coverage), "{:?}", coverage);
    }
}
