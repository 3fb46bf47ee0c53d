//! Pieces of any size, beginnings that were missed, bytes that are missing, and bytes that mean nothing.

use std::io::Write;

use mysql_common::constants::CapabilityFlags as Flags;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::commands::everything;
use super::{COLUMN, EOF, Kept, NEW, OK, OLD, Talk, asked, decode, decode_as, keep, opened};
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome};
use crate::stream::{Side, Streams};
use crate::wire::{Decoder, WireOptions};

/// Without times: pieces have others.
fn timeless(events: Vec<Kept>) -> Vec<Kept> {
    let none = |event| Kept { start_ns: 0, response_ns: None, first_byte_ns: None, ..event };
    events.into_iter().map(none).collect()
}

fn pieces(talk: &Talk, sizes: &[usize]) -> Vec<(Side, Vec<u8>)> {
    let (mut all, mut turn) = (Vec::new(), 0);
    for (side, bytes) in &talk.said {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes[turn % sizes.len()].min(rest.len()));
            all.push((*side, piece.to_vec()));
            (rest, turn) = (after, turn + 1);
        }
    }
    all
}

fn decode_pieces(pieces: &[(Side, Vec<u8>)]) -> (Vec<Kept>, Coverage) {
    decode(pieces.iter().map(|(side, bytes)| (5, *side, &bytes[..])))
}

#[test]
fn pieces_of_every_size_give_the_same_events() {
    for flags in [OLD, NEW] {
        let talk = everything(flags);
        let (whole, _) = talk.events();
        for size in 1..40 {
            let (events, coverage) = decode_pieces(&pieces(&talk, &[size]));
            assert_eq!(timeless(events), timeless(whole.clone()), "{size}");
            assert_eq!(coverage.damaged, 0);
        }
    }
}

#[test]
fn a_capture_may_end_at_every_byte() {
    let talk = everything(NEW);
    let (whole, _) = talk.events();
    let bytes: Vec<(Side, u8)> =
        talk.said.iter().flat_map(|(side, bytes)| bytes.iter().map(|byte| (*side, *byte))).collect();
    for end in 0..bytes.len() {
        let single: Vec<_> = bytes[..end].iter().map(|(side, byte)| (*side, vec![*byte])).collect();
        let (events, coverage) = decode_pieces(&single);
        let answered =
            events.iter().filter(|event| event.outcome == Outcome::Ok && event.command != Command::Quit);
        let expected =
            whole.iter().filter(|event| event.outcome == Outcome::Ok && event.command != Command::Quit);
        for (event, expected) in
            timeless(answered.cloned().collect()).iter().zip(timeless(expected.cloned().collect()))
        {
            assert_eq!(*event, expected, "cut at {end}");
        }
        assert!(coverage.unanswered <= 1);
        assert_eq!(coverage.damaged, 0, "cut at {end}: {coverage:?}");
    }
}

/// Every event must be one of the session's own, if it says that it was answered.
fn none_is_invented(events: &[Kept], whole: &[Kept]) {
    for event in events.iter().filter(|event| matches!(event.outcome, Outcome::Ok | Outcome::Error(_))) {
        let own = whole.iter().any(|known| {
            known.command == event.command
                && (event.text.is_empty() || known.text == event.text)
                && known.rows == event.rows
                && known.affected == event.affected
                && known.outcome == event.outcome
        });
        assert!(own || event.command == Command::Quit, "{event:?}");
    }
}

#[test]
fn a_session_may_be_joined_at_every_turn() {
    for flags in [OLD, NEW] {
        let talk = everything(flags);
        let (whole, _) = talk.events();
        for start in 1..talk.said.len() {
            let turns = talk.said[start..].iter().enumerate();
            let (events, coverage) =
                decode_as(true, turns.map(|(at, (side, bytes))| (at as u64, *side, &bytes[..])));
            assert_eq!(coverage.midstream_sessions, 1, "{start}");
            none_is_invented(&events, &whole);
            let left =
                talk.said[start..].iter().filter(|(_, bytes)| bytes.get(3..5) == Some(&[0, 3])).count();
            let queries = events.iter().filter(|event| event.command == Command::Query).count();
            assert_eq!(queries, left, "joined at {start}: {events:?}");
        }
    }
}

#[test]
fn the_session_goes_on_behind_a_gap() {
    for flags in [OLD, NEW] {
        let talk = everything(flags);
        let (whole, _) = talk.events();
        for missing in 3..talk.said.len() {
            let mut events = Vec::new();
            let sink = |event: &Event<'_>| {
                events.push(keep(event));
                Ok(())
            };
            let options = WireOptions { checksum: true, ..WireOptions::default() };
            let mut decoder = Decoder::with_options(sink, options);
            decoder.opened(0, &opened(false)).unwrap();
            for (at, (side, bytes)) in talk.said.iter().enumerate() {
                if at == missing {
                    decoder.gap(at as u64, 1, *side, Some(bytes.len() as u64)).unwrap();
                } else {
                    decoder.bytes(at as u64, 1, *side, bytes).unwrap();
                }
            }
            decoder.closed(99, 1).unwrap();
            let coverage = decoder.finish().unwrap();
            none_is_invented(&events, &whole);
            assert_eq!(coverage.damaged, 0, "{missing}: {coverage:?}");
            let last =
                events.iter().rev().find(|event| event.command == Command::Query).map(|e| e.text.as_str());
            assert!(missing + 3 >= talk.said.len() || last == Some("select 1"), "{missing}: {events:?}");
        }
    }
}

#[test]
fn what_is_missing_of_rows_and_texts_is_counted_all_the_same() {
    let mut talk = Talk::new(OLD);
    let row = [&[0xFC, 0xE8, 3][..], &[b'x'; 1000]].concat();
    talk.query(&"y".repeat(500), &[&[1], COLUMN, EOF, &row, b"\x01z", EOF]);
    let mut events = Vec::new();
    let sink = |event: &Event<'_>| {
        events.push((keep(event), event.is_cut));
        Ok(())
    };
    let mut decoder = Decoder::with_options(sink, WireOptions { checksum: true, ..WireOptions::default() });
    decoder.opened(0, &opened(false)).unwrap();
    for (at, (side, bytes)) in talk.said.iter().enumerate() {
        if at < 3 {
            decoder.bytes(at as u64, 1, *side, bytes).unwrap();
            continue;
        }
        decoder.bytes(at as u64, 1, *side, &bytes[..200]).unwrap();
        decoder.gap(at as u64, 1, *side, Some(290)).unwrap();
        decoder.bytes(at as u64, 1, *side, &bytes[490..]).unwrap();
    }
    decoder.finish().unwrap();
    let (event, is_cut) = &events[1];
    assert_eq!((event.rows, event.checksum, event.outcome), (Some(2), None, Outcome::Ok));
    assert!(*is_cut && event.text == "y".repeat(195));
}

#[test]
fn what_was_asked_while_nothing_was_understood_is_counted() {
    let mut talk = Talk::new(OLD);
    talk.query("select 1", &[&[1][..], COLUMN, EOF, b"\x011", EOF]);
    talk.client(0, b"\x03select 2").server(7, &[OK]);
    // No request that is known when a session begins in its middle.
    talk.client(0, b"\x04t\0").server(1, &[EOF]).client(0, b"\x04u\0").server(1, &[EOF]);
    talk.query("select 3", &[&[1][..], COLUMN, EOF, b"\x013", EOF]);
    let (events, coverage) = talk.events();
    assert_eq!((coverage.damaged, coverage.unanswered, coverage.lost_events), (1, 1, 2), "{coverage:?}");
    assert_eq!(events.iter().filter(|event| event.outcome == Outcome::Ok).count(), 3);
}

#[test]
fn packets_behind_a_flush_are_numbered_as_the_frames() {
    let frame = |number: u8, content: &[u8]| {
        let length = content.len() as u8;
        [&[length, 0, 0, number, 0, 0, 0][..], content].concat()
    };
    let packet = |number: u8, payload: &[u8]| {
        let (mut bytes, mut number) = (Vec::new(), number);
        mysql::frames::encode(payload, &mut number, &mut bytes);
        bytes
    };
    let mut talk = Talk::new(OLD | Flags::CLIENT_COMPRESS);
    talk.said.push((Side::Client, frame(0, &packet(0, b"\x03select 1; do 1; select 2"))));
    let rows = [&[1][..], COLUMN, EOF, b"\x01a", &[0xFE, 0, 0, 10, 0]];
    let first: Vec<u8> = rows.iter().zip(1..).flat_map(|(payload, number)| packet(number, payload)).collect();
    let done = packet(2, &[0, 0, 0, 10, 0, 0, 0]);
    let last: Vec<u8> = [&[1][..], COLUMN, EOF, b"\x01a", EOF]
        .iter()
        .zip(3..)
        .flat_map(|(payload, number)| packet(number, payload))
        .collect();
    let answer = [frame(1, &first), frame(2, &done), frame(3, &last)].concat();
    talk.said.push((Side::Server, answer));
    for size in [1, 5, 1000] {
        let (events, coverage) = decode_pieces(&pieces(&talk, &[size]));
        assert_eq!(
            (events[1].rows, events[1].outcome, coverage.damaged),
            (Some(2), Outcome::Ok, 0),
            "{size}"
        );
    }
}

fn compress(talk: &Talk, zstd: bool) -> Talk {
    let mut compressed = talk.clone();
    for (_, bytes) in compressed.said.iter_mut().skip(3) {
        let mut out = Vec::new();
        for (sequence, piece) in bytes.chunks(50).enumerate() {
            let packed = match (piece.len() < 10, zstd) {
                (true, _) => piece.to_vec(),
                (false, true) => zstd::bulk::compress(piece, 3).unwrap(),
                (false, false) => {
                    let mut encoder =
                        flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                    encoder.write_all(piece).unwrap();
                    encoder.finish().unwrap()
                }
            };
            let plain_length = if piece.len() < 10 { 0 } else { piece.len() };
            out.extend_from_slice(&(packed.len() as u32).to_le_bytes()[..3]);
            out.push(sequence as u8);
            out.extend_from_slice(&(plain_length as u32).to_le_bytes()[..3]);
            out.extend_from_slice(&packed);
        }
        *bytes = out;
    }
    compressed
}

#[test]
fn compressed_sessions_give_the_same_events() {
    for (flag, zstd) in [(Flags::CLIENT_COMPRESS, false), (Flags::CLIENT_ZSTD_COMPRESSION_ALGORITHM, true)] {
        let plain = everything(NEW | flag);
        let talk = compress(&plain, zstd);
        let sizeless = |events: Vec<Kept>| -> Vec<Kept> {
            timeless(events).into_iter().map(|event| Kept { bytes: (None, None), ..event }).collect()
        };
        let (expected, _) = everything(NEW).events();
        for size in [1, 3, 7, 100, 10_000] {
            let (events, coverage) = decode_pieces(&pieces(&talk, &[size]));
            assert_eq!(coverage.damaged, 0, "{coverage:?}");
            let all: u64 = events.iter().filter_map(|event| event.bytes.0).sum();
            let client = talk.said.iter().filter(|(side, _)| *side == Side::Client);
            assert_eq!(all, client.map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
            assert_eq!(sizeless(events), sizeless(expected.clone()));
        }
        // Joined in the middle, it is seen to be compressed.
        let turns = talk.said[5..].iter().map(|(side, bytes)| (1, *side, &bytes[..]));
        let (events, _) = decode_as(true, turns);
        assert!(events.iter().any(|event| event.text == "call p()" && event.rows == Some(2)), "{events:?}");
    }
}

proptest! {
    #[test]
    fn any_pieces_give_the_same_events(sizes in proptest::collection::vec(1..200_usize, 1..20), is_old in any::<bool>()) {
        let talk = everything(if is_old { OLD } else { NEW });
        let (events, _) = decode_pieces(&pieces(&talk, &sizes));
        prop_assert_eq!(timeless(events), timeless(talk.events().0));
    }

    #[test]
    fn no_bytes_can_break_the_decoder(
        pieces in proptest::collection::vec(
            (any::<bool>(), prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..60),
                proptest::collection::vec(any::<u8>(), 0..30).prop_map(|payload| framed(&payload)),
                Just(framed(b"\x03select 1")), Just(framed(OK)), Just(framed(EOF)), Just(framed(&[1])),
                Just(framed(COLUMN)), Just(framed(b"\x16select ?")), Just(framed(&[0, 7, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0])),
            ]),
            0..60,
        ),
        starts_in_session in any::<bool>(),
    ) {
        let mut talk = if starts_in_session { Talk::new(NEW) } else { Talk::default() };
        for (is_client, bytes) in pieces {
            talk.said.push((if is_client { Side::Client } else { Side::Server }, bytes));
        }
        let (events, coverage) = talk.events();
        prop_assert_eq!(asked(&events), coverage.events);
    }

    #[test]
    fn damaged_sessions_do_not_invent(at in 3..60_usize, byte in any::<u8>(), place in 0..40_usize) {
        let mut talk = everything(NEW);
        let turn = at % talk.said.len();
        let bytes = &mut talk.said[turn].1;
        let place = place % bytes.len();
        bytes[place] = byte;
        let (events, coverage) = talk.events();
        prop_assert!(coverage.events == asked(&events));
    }
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sequence = u8::from(!payload.first().is_some_and(|first| matches!(first, 3 | 0x16 | 0x17)));
    mysql::frames::encode(payload, &mut sequence, &mut bytes);
    bytes
}
