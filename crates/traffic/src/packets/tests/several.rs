//! Several captures of one traffic: pieces in any order, and what two interfaces saw.

use super::generate::{Calls, Packet, Talk, ethernet};
use crate::coverage::Coverage;
use crate::packets::PacketOptions;
use crate::packets::several::{Capture, read_together};
use crate::stream::Side::{Client, Server};

fn talk() -> Talk {
    let mut talk = Talk::new(40_000, 1000, 9000);
    talk.shake();
    for (side, said) in [(Server, "hello"), (Client, "question"), (Server, "the answer"), (Client, "again")] {
        talk.say(side, said.as_bytes());
    }
    talk.end();
    talk
}

/// All that was said in the one session of captures that have these packets.
fn read_parts(parts: &[&[Packet]]) -> (Vec<u8>, Vec<u8>, Coverage) {
    let captures: Vec<_> = parts
        .iter()
        .enumerate()
        .map(|(number, packets)| {
            let bytes = ethernet(packets);
            let open = move || -> anyhow::Result<Box<dyn std::io::Read + Send>> {
                Ok(Box::new(std::io::Cursor::new(bytes.clone())))
            };
            Capture { name: format!("{number}.pcap"), open: Box::new(open) }
        })
        .collect();
    let mut calls = Calls::default();
    let coverage = read_together(&captures, &PacketOptions::default(), &mut calls).unwrap();
    assert_eq!((calls.opened().len(), calls.closed(), coverage.sessions), (1, 1, 1));
    (calls.said(1, Client), calls.said(1, Server), coverage)
}

#[test]
fn a_session_goes_on_from_one_capture_to_the_next() {
    let packets = talk().packets;
    for at in 1..packets.len() {
        let (first, last) = packets.split_at(at);
        for parts in [[first, last], [last, first]] {
            let (client, server, coverage) = read_parts(&parts);
            assert_eq!((&client[..], &server[..]), (&b"questionagain"[..], &b"hellothe answer"[..]), "{at}");
            assert_eq!((coverage.packets, coverage.retransmitted_packets), (packets.len() as u64, 0));
            assert_eq!((coverage.gaps, coverage.skipped_bytes, coverage.damaged), (0, 0, 0), "{at}");
        }
    }
}

#[test]
fn what_two_captures_saw_counts_once() {
    let packets = talk().packets;
    let of = |keeps: fn(usize) -> bool| -> Vec<Packet> {
        let kept = packets.iter().enumerate().filter(|(number, _)| keeps(*number));
        kept.map(|(_, packet)| packet.clone()).collect()
    };
    for parts in [
        [packets.clone(), packets.clone()],
        [of(|number| number % 2 > 0), of(|number| number % 2 == 0)],
        [of(|number| number % 3 > 0), of(|number| number % 3 < 2)],
    ] {
        let (client, server, coverage) = read_parts(&[&parts[0], &parts[1]]);
        assert_eq!((&client[..], &server[..]), (&b"questionagain"[..], &b"hellothe answer"[..]));
        assert_eq!(coverage.gaps, 0);
    }
}

#[test]
fn a_damaged_capture_does_not_end_the_others() {
    let packets = talk().packets;
    let (first, last) = packets.split_at(6);
    let mut cut = ethernet(first);
    cut.truncate(cut.len() - 5);
    let open = |bytes: Vec<u8>| -> Capture {
        let open = move || -> anyhow::Result<Box<dyn std::io::Read + Send>> {
            Ok(Box::new(std::io::Cursor::new(bytes.clone())))
        };
        Capture { name: "a.pcap".to_owned(), open: Box::new(open) }
    };
    let mut calls = Calls::default();
    let captures = [open(ethernet(last)), open(cut), open(Vec::new())];
    let coverage = read_together(&captures, &PacketOptions::default(), &mut calls).unwrap();
    assert_eq!(coverage.damaged, 2, "{coverage:?}");
    assert_eq!(coverage.packets, packets.len() as u64 - 1);
}
