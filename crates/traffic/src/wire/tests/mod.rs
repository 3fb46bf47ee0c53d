//! Scripts of both sides, byte by byte, and what must come out of them.

mod commands;
mod damage;
mod others;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use mysql_common::constants::CapabilityFlags as Flags;

use super::{Decoder, WireOptions};
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome};
use crate::measures::Measure::{RequestBytes, ResponseBytes, RowsAffected, RowsSent, Warnings};
use crate::stream::{Opened, Side, Streams};
use mysql::frames::encode;

pub const COLUMN: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x2d\0\0\x01\0\0\xfd\0\0\0\0\0";
pub const EOF: &[u8] = &[0xFE, 0, 0, 2, 0];
/// What ends rows where EOF is deprecated.
pub const END: &[u8] = &[0xFE, 0, 0, 2, 0, 0, 0];
pub const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

pub const OLD: Flags = Flags::CLIENT_PROTOCOL_41
    .union(Flags::CLIENT_SECURE_CONNECTION)
    .union(Flags::CLIENT_PLUGIN_AUTH)
    .union(Flags::CLIENT_CONNECT_WITH_DB);
pub const NEW: Flags = OLD.union(Flags::CLIENT_DEPRECATE_EOF).union(Flags::CLIENT_SESSION_TRACK);

/// What is left of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub command: Command,
    pub outcome: Outcome,
    pub text: String,
    pub user: String,
    pub database: String,
    pub start_ns: u64,
    pub response_ns: Option<u64>,
    pub first_byte_ns: Option<u64>,
    pub rows: Option<u64>,
    pub affected: Option<u64>,
    pub bytes: (Option<u64>, Option<u64>),
    pub connection: Option<u64>,
    pub statement: Option<u32>,
    pub parameters: Vec<u8>,
    pub warnings: Option<u64>,
    pub checksum: Option<u64>,
}

/// How many a client asked for: a connection closed without COM_QUIT only ends its session.
pub fn asked(events: &[Kept]) -> u64 {
    let is_silent = |event: &&Kept| event.command == Command::Quit && event.outcome == Outcome::Unanswered;
    events.len() as u64 - events.iter().filter(is_silent).count() as u64
}

fn keep(event: &Event<'_>) -> Kept {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Kept {
        command: event.command,
        outcome: event.outcome,
        text: text(event.text),
        user: text(event.user),
        database: text(event.database),
        start_ns: event.start_ns,
        response_ns: event.response_ns,
        first_byte_ns: event.first_byte_ns,
        rows: event.measures.get(RowsSent),
        affected: event.measures.get(RowsAffected),
        bytes: (event.measures.get(RequestBytes), event.measures.get(ResponseBytes)),
        connection: event.connection,
        statement: event.statement,
        parameters: event.parameters.to_vec(),
        warnings: event.measures.get(Warnings),
        checksum: event.checksum,
    }
}

/// Both sides of a connection as they speak in turn.
#[derive(Clone, Default)]
pub struct Talk {
    pub said: Vec<(Side, Vec<u8>)>,
}

impl Talk {
    /// With greeting and login.
    pub fn new(flags: Flags) -> Self {
        let mut talk = Talk::default();
        talk.server(0, &[&greeting(flags)]);
        talk.client(1, &hello(flags));
        talk.server(2, &[OK]);
        talk
    }

    pub fn client(&mut self, mut sequence: u8, payload: &[u8]) -> &mut Self {
        let mut bytes = Vec::new();
        encode(payload, &mut sequence, &mut bytes);
        self.said.push((Side::Client, bytes));
        self
    }

    pub fn server(&mut self, mut sequence: u8, payloads: &[&[u8]]) -> &mut Self {
        let mut bytes = Vec::new();
        for payload in payloads {
            encode(payload, &mut sequence, &mut bytes);
        }
        self.said.push((Side::Server, bytes));
        self
    }

    pub fn query(&mut self, text: &str, answer: &[&[u8]]) -> &mut Self {
        self.client(0, &[b"\x03", text.as_bytes()].concat()).server(1, answer)
    }

    /// What comes out where each turn is one packet.
    pub fn events(&self) -> (Vec<Kept>, Coverage) {
        decode(self.said.iter().enumerate().map(|(at, (side, bytes))| (at as u64, *side, &bytes[..])))
    }
}

pub fn greeting(flags: Flags) -> Vec<u8> {
    let bits = flags.bits().to_le_bytes();
    let mut payload = b"\x0a8.0.36\0\x07\0\0\0abcdefgh\0".to_vec();
    payload.extend([bits[0], bits[1], 45, 2, 0, bits[2], bits[3], 21]);
    payload.extend([0; 10]);
    payload.extend(b"ijklmnopqrst\0mysql_native_password\0");
    payload
}

pub fn hello(flags: Flags) -> Vec<u8> {
    let mut payload = flags.bits().to_le_bytes().to_vec();
    payload.extend([0, 0, 0, 1, 45]);
    payload.extend([0; 23]);
    payload.extend(b"app\0\x03xyzshop\0mysql_native_password\0");
    payload
}

pub fn opened(is_midstream: bool) -> Opened {
    let address = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    Opened { session: 1, client: address(40_000), server: address(3306), is_midstream }
}

/// Feeds pieces with their times and closes.
pub fn decode<'a>(pieces: impl Iterator<Item = (u64, Side, &'a [u8])>) -> (Vec<Kept>, Coverage) {
    decode_as(false, pieces)
}

/// The same of a connection whose beginning was seen, or not.
pub fn decode_as<'a>(
    is_midstream: bool,
    pieces: impl Iterator<Item = (u64, Side, &'a [u8])>,
) -> (Vec<Kept>, Coverage) {
    let mut events = Vec::new();
    let options = WireOptions { checksum: true, ..WireOptions::default() };
    let sink = |event: &Event<'_>| {
        events.push(keep(event));
        Ok(())
    };
    let mut decoder = Decoder::with_options(sink, options);
    decoder.opened(0, &opened(is_midstream)).unwrap();
    let mut last = 0;
    for (time_ns, side, bytes) in pieces {
        decoder.bytes(time_ns, 1, side, bytes).unwrap();
        last = time_ns;
    }
    decoder.closed(last, 1).unwrap();
    let coverage = decoder.finish().unwrap();
    (events, coverage)
}

fn commands(events: &[Kept]) -> Vec<Command> {
    events.iter().map(|event| event.command).collect()
}

#[test]
fn a_session_of_queries() {
    for (flags, result) in [
        (OLD, &[&[1][..], COLUMN, EOF, b"\x01a", b"\x01b", EOF][..]),
        (NEW, &[&[1], COLUMN, b"\x01a", b"\x01b", END]),
    ] {
        let mut talk = Talk::new(flags);
        talk.query("select a", result).query("bad", &[b"\xff\x28\x04#42000no"]);
        talk.query("update t", &[&[0, 3, 0, 2, 0, 1, 0]]);
        talk.client(0, b"\x01");
        let (events, coverage) = talk.events();
        let all = [Command::Connect, Command::Query, Command::Query, Command::Query, Command::Quit];
        assert_eq!(commands(&events), all);
        assert!(events.iter().all(|event| event.user == "app" && event.database == "shop"));
        assert_eq!(
            (events[1].text.as_str(), events[1].rows, events[1].affected),
            ("select a", Some(2), None)
        );
        assert_eq!((events[1].start_ns, events[1].response_ns), (3, Some(1)));
        assert_eq!(events[1].bytes, (Some(13), Some(talk.said[4].1.len() as u64)));
        assert_eq!(events[2].outcome, Outcome::Error(1064));
        assert_eq!((events[3].affected, events[3].warnings), (Some(3), Some(1)));
        assert_eq!(coverage, Coverage { events: 5, ..Coverage::default() });
    }
}
