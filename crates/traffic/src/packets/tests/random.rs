//! Random talks over a random network: what comes out is what was said, byte for byte.

use proptest::prelude::*;

use super::generate::{Call, Calls, Packet, Talk, ethernet};
use super::{formats, read_packets};
use crate::packets::segment::ACK;
use crate::packets::{PacketOptions, read};
use crate::stream::Side::{self, Client, Server};

/// What may happen to a packet, each in percent.
#[derive(Clone, Debug)]
struct Network {
    duplicated: u32,
    again: u32,
    late: u32,
    /// How many packets may overtake one.
    distance: usize,
    lost: u32,
}

fn network(lost: u32) -> impl Strategy<Value = Network> {
    (0..30_u32, 0..30_u32, 0..40_u32, 1..12_usize, 0..=lost).prop_map(
        |(duplicated, again, late, distance, lost)| Network { duplicated, again, late, distance, lost },
    )
}

/// Sides and lengths of what is said, in turn.
fn messages() -> impl Strategy<Value = Vec<(bool, usize)>> {
    prop::collection::vec((any::<bool>(), prop_oneof![1..20_usize, 1..3000_usize]), 1..40)
}

/// Initial numbers: anywhere, and often where they soon wrap.
fn isn() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), (u32::MAX - 5000)..=u32::MAX]
}

/// No two bytes near each other are the same, and both sides differ.
fn byte(side: Side, at: usize) -> u8 {
    (at % 251) as u8 ^ if side == Client { 0 } else { 0xff }
}

struct Said {
    packets: Vec<Packet>,
    /// How much each side had said when a message of the other began: (side, its offset, offset of the other).
    order: Vec<(Side, usize, usize)>,
    lengths: [usize; 2],
}

fn talk(messages: &[(bool, usize)], isns: (u32, u32), cuts: &mut impl FnMut(usize) -> usize) -> Said {
    let mut talk = Talk::new(40_000, isns.0, isns.1);
    talk.shake();
    let (mut order, mut lengths) = (Vec::new(), [0, 0]);
    for &(is_client, length) in messages {
        let (side, mine) = if is_client { (Client, 0) } else { (Server, 1) };
        order.push((side, lengths[mine], lengths[1 - mine]));
        let data: Vec<u8> = (lengths[mine]..lengths[mine] + length).map(|at| byte(side, at)).collect();
        lengths[mine] += length;
        let mut rest = &data[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + cuts(rest.len().min(1460)));
            talk.say(side, now);
            rest = later;
        }
    }
    talk.end();
    Said { packets: talk.packets, order, lengths }
}

/// What a capture sees of it; the handshake is left alone.
fn through(network: &Network, packets: &[Packet], random: &mut impl FnMut(usize) -> usize) -> Vec<Packet> {
    let mut seen: Vec<(usize, Packet)> = Vec::new();
    for (at, packet) in packets.iter().enumerate() {
        let mut chance = |percent: u32| at >= 3 && random(100) < percent as usize;
        if chance(network.lost) {
            continue;
        }
        let (is_twice, is_again, is_late) =
            (chance(network.duplicated), chance(network.again), chance(network.late));
        let place = at * 16 + if is_late { random(network.distance * 16) } else { 0 };
        seen.push((place, packet.clone()));
        if is_twice {
            seen.push((place + 1, packet.clone()));
        }
        if is_again && packet.data.len() > 1 {
            // Sent again later, cut elsewhere.
            let mut again = packet.clone();
            let cut = random(again.data.len());
            again.data.drain(..cut);
            again.sequence = again.sequence.wrapping_add(cut as u32);
            seen.push((place + random(100), again));
        }
    }
    seen.sort_by_key(|(place, _)| *place);
    let first_ns = packets[0].time_ns;
    let stamped = seen
        .into_iter()
        .enumerate()
        .map(|(at, (_, packet))| Packet { time_ns: first_ns + at as u64 * 1000, ..packet });
    stamped.collect()
}

/// Checks every byte against what was said; gives the offsets that were reached, and the bytes that were missing.
fn check(calls: &Calls, said: &Said, is_ordered: bool) -> ([usize; 2], u64) {
    let (mut reached, mut missing) = ([0, 0], 0);
    for call in &calls.calls {
        match call {
            Call::Bytes(_, 1, from, bytes) => {
                let (mine, theirs) = if *from == Client { (0, 1) } else { (1, 0) };
                for (at, &found) in bytes.iter().enumerate() {
                    assert_eq!(found, byte(*from, reached[mine] + at), "{from:?} at {}", reached[mine] + at);
                }
                let before =
                    said.order.iter().rev().find(|(side, at, _)| side == from && *at <= reached[mine]);
                if is_ordered {
                    assert!(before.is_some_and(|before| before.2 <= reached[theirs]), "an answer came first");
                }
                reached[mine] += bytes.len();
            }
            Call::Gap(1, from, Some(count)) => {
                reached[usize::from(*from == Server)] += *count as usize;
                missing += count;
            }
            Call::Opened(opened) => assert!(opened.session == 1 && !opened.is_midstream),
            Call::Closed(1) | Call::Cut(1) => {}
            other => panic!("{other:?}"),
        }
    }
    (reached, missing)
}

fn randomness(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_where_nothing_was(
        messages in messages(), network in network(0), isns in (isn(), isn()), seed in any::<u64>(),
    ) {
        let mut random = randomness(seed);
        let said = talk(&messages, isns, &mut random);
        let (calls, coverage) = read_packets(&through(&network, &said.packets, &mut random));
        let (reached, missing) = check(&calls, &said, true);
        prop_assert_eq!((reached, missing), (said.lengths, 0));
        prop_assert_eq!((coverage.gaps, coverage.damaged), (0, 0));
    }

    #[test]
    fn what_was_lost_is_told(
        messages in messages(), network in network(30), isns in (isn(), isn()), seed in any::<u64>(),
    ) {
        let mut random = randomness(seed);
        let said = talk(&messages, isns, &mut random);
        let (calls, coverage) = read_packets(&through(&network, &said.packets, &mut random));
        let (reached, missing) = check(&calls, &said, false);
        prop_assert_eq!(coverage.gap_bytes, missing);
        // A lost last packet may be only the end, or data that is not acknowledged in the capture.
        prop_assert!(reached[0] <= said.lengths[0] + 1 && reached[1] <= said.lengths[1] + 1);
    }

    #[test]
    fn joins_anywhere(messages in messages(), isns in (isn(), isn()), seed in any::<u64>(), first in 0..200_usize) {
        let mut random = randomness(seed);
        let said = talk(&messages, isns, &mut random);
        let (calls, coverage) = read_packets(&said.packets[first.min(said.packets.len())..]);
        prop_assert!(calls.opened().len() <= 1);
        prop_assert_eq!(coverage.gaps, 0);
        for (side, length) in [(Client, said.lengths[0]), (Server, said.lengths[1])] {
            let got = calls.said(1, side);
            prop_assert!(got.len() <= length);
            prop_assert!(got.iter().enumerate().all(|(at, &found)| found == byte(side, length - got.len() + at)));
        }
    }

    #[test]
    fn hostile_files_are_survived(
        is_ng in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut capture = if is_ng { formats::pcapng() } else { ethernet(&formats::talk().packets) };
        for (at, value) in changes {
            // The magic stays, or there is nothing to read.
            let at = 4 + at.index(capture.len() - 4);
            capture[at] = value;
        }
        capture.truncate(cut.index(capture.len()) + 1);
        let mut calls = Calls::default();
        if let Ok(coverage) = read(&capture[..], "test", &PacketOptions::default(), &mut calls) {
            prop_assert_eq!(coverage.bytes, capture.len() as u64);
            prop_assert_eq!(calls.opened().len(), calls.closed());
        }
    }

    #[test]
    fn hostile_packets_are_survived(
        packets in prop::collection::vec(
            (any::<bool>(), 0..4_u32, 0..64_u8, any::<u16>(), any::<u16>(), 0..40_usize, 0..30_000_000_u64), 1..200),
    ) {
        let mut talk = Talk::new(40_000, u32::MAX, 7);
        for (is_client, far, flags, sequence, acknowledged, length, wait_ns) in packets {
            talk.time_ns += wait_ns;
            let side = if is_client { Client } else { Server };
            let packet = talk.packet(side, flags, &vec![b'x'; length]);
            packet.sequence = u32::from(sequence) << (far * 5);
            packet.acknowledged = u32::from(acknowledged) << (far * 5);
        }
        let options = PacketOptions { max_held_bytes: 2000, ..PacketOptions::default() };
        let mut calls = Calls::default();
        let coverage = read(&ethernet(&talk.packets)[..], "test", &options, &mut calls).unwrap();
        prop_assert_eq!(coverage.damaged, 0);
        prop_assert_eq!(calls.opened().len(), calls.closed());
        let gaps = calls.calls.iter().filter(|call| matches!(call, Call::Gap(..))).count();
        prop_assert_eq!(coverage.gaps, gaps as u64);
    }
}

#[test]
fn thousand_packets_backwards() {
    let mut talk = Talk::new(40_000, 1, 1);
    talk.shake();
    for at in 0..1000_usize {
        let packet = talk.packet(Client, ACK, &[byte(Client, at)]);
        packet.time_ns = super::generate::START_NS;
    }
    talk.packets[3..].reverse();
    let said = Said { packets: talk.packets, order: vec![(Client, 0, 0)], lengths: [1000, 0] };
    let (calls, coverage) = read_packets(&said.packets);
    assert_eq!(check(&calls, &said, true), ([1000, 0], 0));
    assert_eq!(coverage.retransmitted_packets, 0);
}
