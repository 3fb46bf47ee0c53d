//! Logins in which the other side may say anything: of the client, and of a connection through the proxy.
//!
//! An odd first byte is for the proxy. Otherwise its next bits say how the client connects, and the rest is a list of what
//! the server says: a byte that is even for a payload, which gets a right header, and odd for bytes as they are; a length
//! of two bytes, little-endian; the bytes.

#![no_main]

use std::time::Duration;

use mysql::frames::encode;
use mysql::handshake::{Handshake, HandshakeState};
use mysql::options::{Password, TlsMode};
use mysql::{Endpoint, Options};

/// Passwords, keys and names of plugins are short.
const MOST_ANSWERED: usize = 64 << 10;

fn client(kind: u8, mut data: &[u8]) {
    let endpoint = match kind & 2 {
        0 => Endpoint::Socket("/nowhere".into()),
        _ => Endpoint::Tcp { host: "localhost".to_owned(), port: 3306 },
    };
    let options = Options {
        endpoint,
        user: "u".to_owned(),
        password: Password::new(if kind & 4 == 0 { b"secret".to_vec() } else { vec![] }),
        database: (kind & 8 != 0).then(|| "d".to_owned()),
        tls: if kind & 16 == 0 { TlsMode::Disabled } else { TlsMode::Preferred },
        tls_ca: None,
        connect_timeout: Duration::MAX,
        read_timeout: Duration::MAX,
    };
    let mut handshake = Handshake::new(&options);
    let mut sequence = 0;
    while let [kind, low, high, rest @ ..] = data {
        let (said, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        data = rest;
        let (mut input, mut out) = (Vec::new(), Vec::new());
        if kind % 2 == 0 {
            encode(said, &mut sequence, &mut input);
        } else {
            input.extend_from_slice(said);
        }
        match handshake.receive(&input, &mut out) {
            Ok(HandshakeState::Waiting) => {}
            // What follows is the plain text of it.
            Ok(HandshakeState::Encrypt(_)) => handshake.encrypted(&mut out),
            Ok(HandshakeState::Done) | Err(_) => return,
        }
        assert!(out.len() < MOST_ANSWERED);
        // A server's numbers go on from those of the packet that it answers.
        if let Some(last) = out.get(3) {
            sequence = last.wrapping_add(1);
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [kind, rest @ ..] = data else { return };
    match kind % 2 {
        1 => traffic::proxy::fuzzing::login(rest),
        _ => client(*kind, rest),
    }
});
