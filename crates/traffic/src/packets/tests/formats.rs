//! Files and link layers.

use std::io::{self, Read};
use std::net::{Ipv6Addr, SocketAddr};

use super::generate::{self, Packet, START_NS, Talk, ipv4, ipv6, pcap, pcap_as};
use super::{Calls, read_bytes};
use crate::coverage::{Coverage, Place};
use crate::packets::{PacketOptions, read};
use crate::rewritten::InPieces;
use crate::stream::Side::{Client, Server};

pub fn talk() -> Talk {
    let mut talk = Talk::new(40_000, 1000, 9000);
    talk.shake();
    talk.say(Server, b"hello");
    talk.say(Client, b"question");
    talk.say(Server, &[b'a'; 1400]);
    talk.end();
    talk
}

fn check(calls: &Calls) {
    assert_eq!(calls.opened().len(), 1);
    assert_eq!(calls.said(1, Client), b"question");
    assert_eq!(calls.said(1, Server), [b"hello".to_vec(), vec![b'a'; 1400]].concat());
}

fn framed(link: u32, frame: impl Fn(&Packet) -> Vec<u8>) -> Coverage {
    let packets = talk().packets;
    let (calls, coverage) =
        read_bytes(&pcap(link, packets.iter().map(|packet| (packet.time_ns, frame(packet)))));
    check(&calls);
    assert_eq!((coverage.packets, coverage.damaged), (packets.len() as u64, 0));
    coverage
}

/// Blocks of a pcapng file.
struct Blocks {
    is_big: bool,
    bytes: Vec<u8>,
}

impl Blocks {
    fn word(&self, value: u32) -> [u8; 4] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn half(&self, value: u16) -> [u8; 2] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn long(&self, value: u64) -> [u8; 8] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn block(&mut self, kind: u32, parts: &[&[u8]]) {
        let mut body = parts.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.word(body.len() as u32 + 12);
        self.bytes.extend([&self.word(kind)[..], &length, &body, &length].concat());
    }

    fn option(&self, number: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [&self.half(number)[..], &self.half(value.len() as u16), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn section(&mut self) {
        let magic = self.word(0x1a2b_3c4d);
        let version = [self.half(1), self.half(0)].concat();
        self.block(0x0a0d_0d0a, &[&magic, &version, &[0xff; 8], &self.option(4, b"a program"), &[0; 4]]);
    }

    fn interface(&mut self, link: u16, options: &[u8]) {
        self.block(1, &[&self.half(link), &[0; 2], &self.word(0), options, &[0; 4]]);
    }

    fn packet(&mut self, interface: u32, ticks: u64, frame: &[u8], options: &[u8]) {
        let length = self.word(frame.len() as u32);
        let padding = vec![0; frame.len().next_multiple_of(4) - frame.len()];
        let times = [self.word((ticks >> 32) as u32), self.word(ticks as u32)].concat();
        self.block(6, &[&self.word(interface), &times, &length, &length, frame, &padding, options]);
    }
}

/// Two sections of both byte orders, each with interfaces of several resolutions and offsets; blocks nobody knows.
pub fn pcapng() -> Vec<u8> {
    let packets = talk().packets;
    let mut bytes = Vec::new();
    for (is_big, half) in [(false, &packets[..4]), (true, &packets[4..])] {
        let mut blocks = Blocks { is_big, bytes: Vec::new() };
        blocks.section();
        blocks.interface(1, &[]);
        blocks.interface(113, &[blocks.option(2, b"any"), blocks.option(9, &[9])].concat());
        let offset = blocks.option(14, &blocks.long(1_600_000_000));
        blocks.interface(101, &[blocks.option(9, &[0x80 | 20]), offset].concat());
        blocks.interface(1, &blocks.option(9, &[12]));
        blocks.block(0x0bad, &[b"nobody knows this one"]);
        for (number, packet) in half.iter().enumerate() {
            let (time_ns, lost) = (packet.time_ns, blocks.option(4, &blocks.long(2)));
            match number % 4 {
                0 => blocks.packet(0, time_ns / 1000, &packet.ethernet(), &lost),
                1 => blocks.packet(1, time_ns, &packet.cooked(0, 1), &lost),
                2 => {
                    let ticks = u128::from(time_ns - 1_600_000_000_000_000_000) << 20;
                    blocks.packet(2, (ticks / 1_000_000_000) as u64, &packet.ip(), &[]);
                }
                // A picosecond does not reach to 1970; the clock of this one began later.
                _ => blocks.packet(3, (time_ns - START_NS) * 1000, &packet.ethernet(), &[]),
            }
        }
        let dropped = blocks.option(5, &blocks.long(7));
        blocks.block(5, &[&blocks.word(0), &[0; 8], &dropped, &[0; 4]]);
        bytes.extend(blocks.bytes);
    }
    bytes
}

#[test]
fn pcap_of_both_orders_and_resolutions() {
    for is_big in [false, true] {
        for has_ns in [false, true] {
            let packets = talk().packets;
            let frames = packets.iter().map(|packet| (packet.time_ns + 123_456_000, packet.ethernet()));
            let (calls, _) = read_bytes(&pcap_as(1, has_ns, is_big, 1 << 18, frames));
            check(&calls);
            let super::generate::Call::Bytes(time_ns, ..) = calls.calls[1] else { panic!() };
            assert_eq!(time_ns, START_NS + 123_460_000);
        }
    }
}

/// `cat a.pcap b.pcap`: of any order of bytes, resolution and link layer.
#[test]
fn captures_that_were_appended_are_read_whole() {
    let packets = talk().packets;
    let (first, rest) = packets.split_at(3);
    let (second, third) = rest.split_at(rest.len() / 2);
    let ethernet = |packet: &Packet| (packet.time_ns, packet.ethernet());
    for is_big in [false, true] {
        let bytes = [
            pcap(1, first.iter().map(ethernet)),
            pcap_as(1, false, is_big, 1 << 18, second.iter().map(ethernet)),
            pcap(101, third.iter().map(|packet| (packet.time_ns, packet.ethernet()[14..].to_vec()))),
            pcap(1, []),
        ];
        let (calls, coverage) = read_bytes(&bytes.concat());
        check(&calls);
        assert_eq!((coverage.packets, coverage.damaged), (packets.len() as u64, 0));
    }
}

#[test]
fn pcapng_with_all_that_it_has() {
    let capture = pcapng();
    let (calls, coverage) = read_bytes(&capture);
    check(&calls);
    assert_eq!((coverage.packets, coverage.damaged), (9, 0));
    // Statistics of the first interface, what the packets tell of the second: in two sections.
    assert_eq!(coverage.dropped_packets, 7 + 2 + 7 + 2);
    let times = calls.calls.iter().filter_map(|call| match call {
        super::generate::Call::Bytes(time_ns, ..) => Some(*time_ns),
        _ => None,
    });
    // The last one by the clock of 2^-20 s.
    assert_eq!(
        times.map(|time| time.wrapping_sub(START_NS)).collect::<Vec<_>>(),
        [4000_u64.wrapping_sub(START_NS), 5000, 6000]
    );
}

#[test]
fn simple_packets_have_no_time() {
    let mut blocks = Blocks { is_big: false, bytes: Vec::new() };
    blocks.section();
    blocks.interface(1, &[]);
    for packet in talk().packets {
        let frame = packet.ethernet();
        blocks.block(3, &[&blocks.word(frame.len() as u32), &frame]);
    }
    let (calls, coverage) = read_bytes(&blocks.bytes);
    check(&calls);
    assert_eq!(coverage.damaged, 1);
    assert!(coverage.places[0].reason.contains("without times"));
}

#[test]
fn link_layers() {
    framed(1, Packet::ethernet);
    framed(1, |packet| packet.tagged(&[[0x81, 0]]));
    framed(1, |packet| packet.tagged(&[[0x88, 0xa8], [0x81, 0]]));
    framed(0, |packet| [&[2, 0, 0, 0], &packet.ip()[..]].concat());
    framed(0, |packet| [&[0, 0, 0, 2], &packet.ip()[..]].concat());
    framed(108, |packet| [&[0, 0, 0, 2], &packet.ip()[..]].concat());
    framed(101, Packet::ip);
    framed(113, |packet| packet.cooked(4, 1));
    framed(276, |packet| packet.cooked2(4, 1));
}

#[test]
fn copies_on_loopback_count_as_other() {
    let packets = talk().packets;
    for is_new in [false, true] {
        let frame =
            |packet: &Packet, kind| if is_new { packet.cooked2(kind, 772) } else { packet.cooked(kind, 772) };
        let both = |packet: &Packet| [4, 0].map(|kind| (packet.time_ns, frame(packet, kind)));
        let (calls, coverage) =
            read_bytes(&pcap(if is_new { 276 } else { 113 }, packets.iter().flat_map(both)));
        check(&calls);
        assert_eq!((coverage.packets, coverage.other_packets, coverage.retransmitted_packets), (18, 9, 0));
    }
}

#[test]
fn ip_of_all_kinds() {
    framed(101, |packet| {
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (packet.from, packet.to) else { panic!() };
        ipv4(*from.ip(), *to.ip(), 6, &[1; 8], &packet.tcp())
    });
    let six = |last: u16| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    for extensions in [0, 1, 3] {
        let packets = talk().packets.into_iter().map(|mut packet| {
            let number = |address: SocketAddr| if address.port() == 3306 { 2 } else { 1 };
            packet.from.set_ip(six(number(packet.from)).into());
            packet.to.set_ip(six(number(packet.to)).into());
            let mut payload = packet.tcp();
            let mut next = 6;
            // Hop by hop, a fragment header of a packet in one piece, destination options.
            for header in [60, 44, 0].into_iter().take(extensions) {
                payload = [&[next, 0, 0, 0, 0, 0, 0, 0][..], &payload].concat();
                next = header;
            }
            (packet.time_ns, ipv6(six(number(packet.from)), six(number(packet.to)), next, &payload))
        });
        let (calls, coverage) = read_bytes(&pcap(101, packets));
        check(&calls);
        assert_eq!(coverage.damaged, 0);
        assert_eq!(calls.opened()[0].server, SocketAddr::new(six(2).into(), 3306));
    }
}

#[test]
fn packets_longer_than_their_field() {
    let mut talk = Talk::new(40_000, 1000, 9000);
    talk.shake();
    let much: Vec<u8> = (0..200_000).map(|at: u32| (at % 251) as u8).collect();
    talk.say(Server, &much);
    talk.say(Client, b"thanks");
    let (calls, coverage) = super::read_packets(&talk.packets);
    assert_eq!(calls.said(1, Server), much);
    assert_eq!((coverage.gaps, coverage.damaged), (0, 0));
}

#[test]
fn fragments_are_a_gap() {
    let mut talk = Talk::new(40_000, 1000, 9000);
    talk.shake();
    talk.say(Client, b"0123456789");
    talk.say(Server, b"answer");
    let frames = talk.packets.iter().flat_map(|packet| {
        let frame = packet.ethernet();
        if packet.data.len() != 10 {
            return vec![(packet.time_ns, frame)];
        }
        let (mut first, mut second) = (frame[..14 + 56].to_vec(), frame[..34].to_vec());
        second.extend(&frame[14 + 56..]);
        first[16..18].copy_from_slice(&56_u16.to_be_bytes());
        first[20] = 0x20;
        second[16..18].copy_from_slice(&26_u16.to_be_bytes());
        second[20..22].copy_from_slice(&[0, 5]);
        vec![(packet.time_ns, first), (packet.time_ns, second)]
    });
    let (calls, coverage) = read_bytes(&pcap(1, frames));
    assert_eq!(calls.said(1, Client), b"0123~~~~~~");
    assert_eq!(calls.said(1, Server), b"answer");
    assert_eq!((coverage.damaged, coverage.gap_bytes), (1, 6));
}

#[test]
fn snap_length_cuts() {
    for snap_bytes in 0..1500 {
        let frames = talk().packets.into_iter().map(|packet| (packet.time_ns, packet.ethernet()));
        let (calls, coverage) = read_bytes(&pcap_as(1, true, false, snap_bytes, frames));
        assert_eq!(coverage.damaged, 0);
        // Ethernet, IPv4 and TCP's own header, then twelve bytes of options.
        if snap_bytes < 54 {
            assert_eq!((calls.calls.len(), coverage.cut_packets), (0, 9));
            continue;
        }
        let kept = (snap_bytes.saturating_sub(66)).min(1400);
        assert_eq!(coverage.cut_packets, u64::from(kept < 5) + u64::from(kept < 8) + u64::from(kept < 1400));
        let missing = 1413 - kept.min(5) - kept.min(8) - kept;
        assert_eq!(coverage.gap_bytes, missing as u64);
        assert!(calls.said(1, Server).starts_with(&b"hello"[..kept.min(5)]));
    }
}

#[test]
fn other_traffic_is_counted() {
    let mut other = talk();
    other.server.set_port(3307);
    other.packets.clear();
    other.shake();
    let mut frames: Vec<_> = other.packets.iter().map(|packet| (packet.time_ns, packet.ethernet())).collect();
    frames.push((START_NS, [&[1; 12][..], &[0x08, 0x06], &[0; 28]].concat()));
    frames.push((
        START_NS,
        [&[1; 12][..], &[0x08, 0], &ipv4([1; 4].into(), [2; 4].into(), 17, &[], &[0; 8])].concat(),
    ));
    let (calls, coverage) = read_bytes(&pcap(1, frames));
    assert!(calls.calls.is_empty());
    assert_eq!((coverage.packets, coverage.other_packets, coverage.damaged), (5, 5, 0));
    // A wrong port looks like a silent server.
    assert!(
        coverage.places[0].reason.starts_with("no packet of a server; its busiest ports: "),
        "{coverage:?}"
    );
    let (_, coverage) = read_bytes(&pcap(143, [(START_NS, vec![0; 60])]));
    assert_eq!(coverage.other_kinds.get("DOCSIS (link type 143, which is not read)"), 1);
}

#[test]
fn pieces_are_as_good_as_the_whole() {
    for capture in [generate::ethernet(&talk().packets), pcapng()] {
        let whole = read_bytes(&capture);
        for size in [1, 2, 3, 7, 100] {
            let mut calls = Calls::default();
            let options = PacketOptions::default();
            let coverage = read(InPieces(&capture, size), "test", &options, &mut calls).unwrap();
            assert_eq!((&calls.calls, coverage), (&whole.0.calls, whole.1.clone()));
        }
    }
}

#[test]
fn cut_at_every_byte() {
    for capture in [generate::ethernet(&talk().packets), pcapng()] {
        let mut whole = read_bytes(&capture).0.calls;
        whole.retain(|call| !matches!(call, generate::Call::Closed(_) | generate::Call::Cut(_)));
        let mut packets = 0;
        for length in 0..capture.len() {
            let mut calls = Calls::default();
            let result = read(&capture[..length], "test", &PacketOptions::default(), &mut calls);
            let coverage = match result {
                Ok(coverage) => coverage,
                Err(_) => panic!("an error at {length}"),
            };
            assert_eq!(coverage.bytes, length as u64);
            assert!(coverage.damaged <= 1 && coverage.packets >= packets);
            packets = coverage.packets;
            let is_damage = |place: &&Place| !place.reason.contains("came behind others");
            if let Some(place) = coverage.places.iter().find(is_damage) {
                assert!(place.offset + coverage.skipped_bytes == length as u64, "{place:?} at {length}");
            }
            calls.calls.retain(|call| !matches!(call, generate::Call::Closed(_) | generate::Call::Cut(_)));
            assert!(whole.starts_with(&calls.calls), "what was whole counts, at {length}");
        }
    }
}

#[test]
fn goes_on_after_damage() {
    let packets = talk().packets;
    let frames = |count| packets.iter().take(count).map(|packet| (packet.time_ns, packet.ethernet()));
    let good = pcap(1, frames(9));
    let before = pcap(1, frames(4)).len();
    for rubbish in [vec![0xff; 40], vec![0; 5000], b"no packet at all, but text".to_vec(), vec![0; 40_000]] {
        let capture = [&good[..before], &rubbish, &good[before..]].concat();
        let (calls, coverage) = read_bytes(&capture);
        check(&calls);
        assert_eq!((coverage.packets, coverage.damaged), (9, 1));
        assert_eq!(coverage.skipped_bytes, rubbish.len() as u64);
        assert_eq!(coverage.places[0].offset, before as u64);
    }
    let good = pcapng();
    // After the unknown block.
    let before = good.windows(8).position(|bytes| bytes == b"is one\0\0").unwrap() + 13;
    for rubbish in [vec![0xff; 40], vec![0; 5000], vec![0x0a; 400]] {
        let capture = [&good[..before], &rubbish, &good[before..]].concat();
        let (calls, coverage) = read_bytes(&capture);
        check(&calls);
        assert_eq!((coverage.packets, coverage.damaged), (9, 1));
        assert_eq!(coverage.skipped_bytes, rubbish.len() as u64);
    }
}

#[test]
fn what_is_no_capture_is_told() {
    let error = read(&b"# Time: 2024"[..], "slow.log", &PacketOptions::default(), &mut Calls::default());
    assert_eq!(
        format!("{:#}", error.unwrap_err()),
        "cannot read the capture slow.log: bad input: neither pcap nor pcapng"
    );
}

#[test]
fn memory_is_bounded() {
    let options = PacketOptions { max_connections: 10, max_held_bytes: 10_000, ..PacketOptions::default() };
    let mut packets = Vec::new();
    for port in 1..100 {
        let mut talk = Talk::new(port, 1, 1);
        talk.shake();
        talk.say(Client, b"a");
        packets.extend(talk.packets);
    }
    let mut holed = Talk::new(999, 1, 1);
    holed.shake();
    holed.say(Client, b"lost");
    holed.packets.pop();
    for _ in 0..20 {
        holed.say(Client, &[b'b'; 1000]);
    }
    packets.extend(holed.packets);
    let mut calls = Calls::default();
    let coverage = read(&generate::ethernet(&packets)[..], "test", &options, &mut calls).unwrap();
    assert_eq!((calls.opened().len(), calls.closed()), (100, 100));
    let first = calls.calls.iter().position(|call| *call == generate::Call::Cut(1)).unwrap();
    let eleventh = calls
        .calls
        .iter()
        .position(|call| matches!(call, generate::Call::Opened(opened) if opened.session == 11));
    assert!(Some(first) < eleventh, "the idlest goes when an eleventh comes");
    assert_eq!((coverage.gaps, coverage.gap_bytes), (1, 4));
    assert_eq!(calls.said(100, Client).len(), 20_004);
}

#[test]
fn sixteen_gigabytes_of_nothing() {
    // As the hole of a sparse file reads, between two halves of a capture.
    const HOLE: u64 = 16 << 30;
    let good = generate::ethernet(&talk().packets);
    let begin =
        pcap(1, talk().packets.iter().take(4).map(|packet| (packet.time_ns, packet.ethernet()))).len();
    let sparse = good[..begin].chain(io::repeat(0).take(HOLE)).chain(&good[begin..]);
    let mut calls = Calls::default();
    let coverage = read(sparse, "sparse", &PacketOptions::default(), &mut calls).unwrap();
    check(&calls);
    assert_eq!((coverage.packets, coverage.damaged, coverage.skipped_bytes), (9, 1, HOLE));
    // Nothing else, and in the other format.
    for header in [&pcap(1, [])[..], &pcapng()[..28]] {
        let zeros = header.chain(io::repeat(0).take(1 << 26));
        let coverage = read(zeros, "zeros", &PacketOptions::default(), &mut Calls::default()).unwrap();
        assert_eq!((coverage.packets, coverage.damaged), (0, 1));
        assert!(coverage.skipped_bytes >= 1 << 26);
    }
}
