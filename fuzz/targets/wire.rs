//! The wire's decoder against clients and servers that may say anything: no panic, no event out of nowhere.
//!
//! Input is a list of pieces: a byte whose bits are side, gap, new session and end of it; a length of two bytes,
//! little-endian; the bytes.

#![no_main]

use std::net::SocketAddr;

use traffic::event::Event;
use traffic::stream::{Opened, Side, Streams};
use traffic::wire::{Decoder, WireOptions};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let mut events = 0_u64;
    let sink = |_: &Event<'_>| {
        events += 1;
        Ok(())
    };
    let options = WireOptions { checksum: true, max_text_bytes: 4096, ..WireOptions::default() };
    let mut decoder = Decoder::with_options(sink, options);
    let address = SocketAddr::from(([127, 0, 0, 1], 3306));
    let opened = |session| Opened { session, client: address, server: address, is_midstream: session > 1 };
    let mut session = 1;
    decoder.opened(0, &opened(session)).unwrap();
    let mut time_ns = 0;
    while let [kind, low, high, rest @ ..] = data {
        let (piece, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        data = rest;
        time_ns += 1;
        let side = if kind & 1 == 0 { Side::Client } else { Side::Server };
        if kind & 8 != 0 {
            decoder.closed(time_ns, session).unwrap();
        }
        if kind & 4 != 0 {
            session += 1;
            decoder.opened(time_ns, &opened(session)).unwrap();
        }
        if kind & 2 != 0 {
            let missing = (kind & 16 != 0).then_some(piece.len() as u64);
            decoder.gap(time_ns, session, side, missing).unwrap();
        } else {
            decoder.bytes(time_ns, session, side, piece).unwrap();
        }
    }
    let coverage = decoder.finish().unwrap();
    assert_eq!(coverage.events, events);
});
