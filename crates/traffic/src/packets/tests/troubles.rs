//! TCP's troubles, one by one.

use super::generate::{Call, Packet, START_NS, Talk};
use super::read_packets;
use crate::coverage::Coverage;
use crate::packets::segment::{ACK, FIN, RST, SYN};
use crate::stream::Side::{Client, Server};

/// Handshake, greeting, one question and its answer, the end.
fn whole() -> Talk {
    let mut talk = Talk::new(40_000, 1000, 9000);
    talk.shake();
    talk.say(Server, b"hello");
    talk.say(Client, b"question one");
    talk.say(Server, b"the answer");
    talk.say(Server, b", and more");
    talk.say(Client, b"question two");
    talk.say(Server, b"fin");
    talk.end();
    talk
}

const CLIENT: &[u8] = b"question onequestion two";
const SERVER: &[u8] = b"hellothe answer, and morefin";

fn nothing_lost(coverage: &Coverage) {
    assert_eq!((coverage.gaps, coverage.damaged, coverage.skipped_bytes), (0, 0, 0), "{coverage:?}");
}

#[test]
fn in_order() {
    let talk = whole();
    let (calls, coverage) = read_packets(&talk.packets);
    let opened = calls.opened();
    assert_eq!((opened.len(), opened[0].client, opened[0].server), (1, talk.client, talk.server));
    assert!(!opened[0].is_midstream);
    assert_eq!(calls.said(1, Client), CLIENT);
    assert_eq!(calls.said(1, Server), SERVER);
    assert_eq!(coverage.packets, talk.packets.len() as u64);
    assert_eq!((coverage.retransmitted_packets, coverage.other_packets), (0, 0));
    nothing_lost(&coverage);
    let time = |call: &Call| if let Call::Bytes(time_ns, ..) = call { Some(*time_ns) } else { None };
    let times: Vec<u64> = calls.calls.iter().filter_map(time).map(|time| (time - START_NS) / 1000).collect();
    assert_eq!(times, [4, 5, 6, 7, 8, 9]);
}

fn all_of(talk: &Talk) -> Coverage {
    let (calls, coverage) = read_packets(&talk.packets);
    assert_eq!(calls.opened().len(), 1);
    assert_eq!(String::from_utf8_lossy(&calls.said(1, Client)), String::from_utf8_lossy(CLIENT));
    assert_eq!(String::from_utf8_lossy(&calls.said(1, Server)), String::from_utf8_lossy(SERVER));
    nothing_lost(&coverage);
    coverage
}

#[test]
fn numbers_wrap() {
    for client_isn in [u32::MAX - 1, u32::MAX, u32::MAX - 13, 0] {
        for server_isn in [u32::MAX, u32::MAX - 4, u32::MAX - 12, 0x7fff_fffc] {
            let mut talk = Talk::new(40_000, client_isn, server_isn);
            talk.shake();
            talk.say(Server, b"hello");
            talk.say(Client, b"question one");
            talk.say(Server, b"the answer");
            talk.packets.swap(5, 4);
            talk.say(Server, b", and more");
            talk.say(Client, b"question two");
            talk.say(Server, b"fin");
            talk.end();
            all_of(&talk);
        }
    }
}

#[test]
fn overtaken_answer_waits_for_its_question() {
    let mut talk = whole();
    talk.packets.swap(4, 5);
    let (calls, coverage) = read_packets(&talk.packets);
    let order: Vec<_> = calls
        .calls
        .iter()
        .filter_map(|call| match call {
            Call::Bytes(time_ns, _, from, _) => Some((*from, (time_ns - START_NS) / 1000)),
            _ => None,
        })
        .collect();
    assert_eq!(order[..3], [(Server, 4), (Client, 5), (Server, 6)], "in order, each with its own time");
    nothing_lost(&coverage);
}

#[test]
fn late_bytes_have_the_time_of_the_last_they_waited_for() {
    let mut talk = whole();
    // The first packet of the answer was lost on the network and sent again after the second.
    let lost = talk.packets[5].clone();
    talk.packets[5] = talk.packets[6].clone();
    talk.packets[6] = lost;
    talk.packets[6].time_ns = talk.packets[5].time_ns + 300;
    let (calls, coverage) = read_packets(&talk.packets);
    let times: Vec<u64> = calls
        .calls
        .iter()
        .filter_map(|call| match call {
            Call::Bytes(time_ns, _, Server, _) => Some(time_ns - START_NS),
            _ => None,
        })
        .collect();
    assert_eq!(times, [4000, 7300, 7300, 9000]);
    assert_eq!(calls.said(1, Server), SERVER);
    nothing_lost(&coverage);
}

#[test]
fn retransmissions_count_once() {
    let mut talk = whole();
    for at in [0, 1, 4, 5, 8, 10] {
        let again = talk.packets[at].clone();
        talk.packets.insert(at + 1, again);
    }
    let mut seen = std::collections::HashSet::new();
    talk.packets.retain(|packet| seen.insert((packet.time_ns, packet.flags)) || packet.data.len() != 3);
    let coverage = all_of(&talk);
    // Empty packets are no retransmission, but a SYN is.
    assert_eq!(coverage.retransmitted_packets, 4);
}

#[test]
fn overlaps_are_trimmed() {
    let mut talk = whole();
    let mut again = talk.packets[6].clone();
    // Ten bytes known, ten new.
    again.sequence = again.sequence.wrapping_sub(10);
    again.data = b"the answer, and more".to_vec();
    talk.packets[6] = again;
    assert_eq!(all_of(&talk).retransmitted_packets, 1);
    // The same while both wait for what comes before them.
    let mut talk = whole();
    let mut wide = talk.packets[6].clone();
    wide.sequence = wide.sequence.wrapping_sub(3);
    wide.data = b"wer, and more".to_vec();
    let answer = talk.packets.remove(5);
    talk.packets.insert(5, wide);
    talk.packets.insert(7, answer);
    all_of(&talk);
}

#[test]
fn probes_are_no_data() {
    let mut talk = whole();
    let mut probe = talk.packets[5].clone();
    // Keep-alive: the byte before the next one, with and without a byte of rubbish.
    probe.sequence = talk.packets[6].sequence.wrapping_sub(1);
    probe.data = b"?".to_vec();
    talk.packets.insert(6, probe.clone());
    probe.data.clear();
    talk.packets.insert(6, probe.clone());
    // Of a window that is closed: the next byte alone, which is sent again with those behind it.
    let mut probe = talk.packets[8].clone();
    probe.data.truncate(1);
    talk.packets.insert(8, probe);
    assert_eq!(all_of(&talk).retransmitted_packets, 1);
}

#[test]
fn acknowledged_hole_is_a_gap() {
    let mut talk = whole();
    talk.packets.remove(6);
    for packet in &mut talk.packets[6..] {
        packet.time_ns += 100_000_000;
    }
    let (calls, coverage) = read_packets(&talk.packets);
    assert_eq!(calls.said(1, Client), CLIENT);
    assert_eq!(calls.said(1, Server), b"hellothe answer~~~~~~~~~fin");
    assert_eq!((coverage.gaps, coverage.gap_bytes, coverage.damaged), (1, 10, 0));
    let gap = calls.calls.iter().position(|call| matches!(call, Call::Gap(..))).unwrap();
    let question = Call::Bytes(talk.packets[6].time_ns, 1, Client, b"question two".to_vec());
    assert_eq!(calls.calls[gap + 1], question, "the gap is told before what was sent after it");
}

#[test]
fn lost_question_is_a_gap_before_its_answer() {
    let mut talk = whole();
    talk.packets.remove(4);
    let (calls, coverage) = read_packets(&talk.packets);
    assert_eq!(calls.said(1, Client), b"~~~~~~~~~question two");
    assert_eq!(calls.said(1, Server), SERVER);
    assert_eq!(coverage.gap_bytes, 12);
    assert_eq!(calls.calls[2], Call::Gap(1, Client, Some(12)));
}

#[test]
fn hole_stays_open_while_the_other_side_asks_for_it() {
    let mut talk = Talk::new(40_000, 1, 1);
    talk.shake();
    talk.say(Server, b"one ");
    let missing = talk.packet(Server, ACK, b"two ").clone();
    talk.packets.pop();
    let acknowledged = missing.sequence;
    for _ in 0..40 {
        talk.time_ns += 1_000_000_000;
        talk.say(Server, b"more");
        let repeat = talk.packet(Client, ACK, b"");
        repeat.acknowledged = acknowledged;
    }
    talk.packets.push(missing);
    let (calls, coverage) = read_packets(&talk.packets);
    nothing_lost(&coverage);
    assert_eq!(calls.said(1, Server), [b"one two ".to_vec(), b"more".repeat(40)].concat());
}

#[test]
fn one_direction_alone() {
    let mut talk = whole();
    talk.packets.retain(|packet| packet.from.port() == 3306);
    let (calls, _) = read_packets(&talk.packets);
    assert_eq!(calls.said(1, Server), SERVER);
    assert_eq!(calls.said(1, Client), b"~~~~~~~~~~~~~~~~~~");
    // A hole that cannot be acknowledged is given up in the end.
    talk.packets.remove(2);
    talk.packets.iter_mut().skip(3).for_each(|packet| packet.time_ns += 20_000_000_000);
    let (calls, coverage) = read_packets(&talk.packets);
    assert_eq!(calls.said(1, Server), b"hello~~~~~~~~~, and morefin");
    assert_eq!(coverage.gaps, 3);
}

#[test]
fn joins_in_mid_stream() {
    for first in 3..9 {
        let mut talk = whole();
        talk.packets.drain(..first);
        let (calls, coverage) = read_packets(&talk.packets);
        let opened = calls.opened();
        assert_eq!((opened.len(), opened[0].server, opened[0].is_midstream), (1, talk.server, true));
        assert!(CLIENT.ends_with(&calls.said(1, Client)));
        assert!(SERVER.ends_with(&calls.said(1, Server)));
        nothing_lost(&coverage);
    }
    // Without the SYN the server's answer to it tells all.
    let mut talk = whole();
    talk.packets.remove(0);
    let (calls, _) = read_packets(&talk.packets);
    assert!(!calls.opened()[0].is_midstream);
    assert_eq!(calls.said(1, Client), CLIENT);
    // The rest of a connection that ended is none.
    talk.packets.drain(..8);
    assert_eq!(read_packets(&talk.packets).0.calls, []);
}

#[test]
fn addresses_are_used_again() {
    for lost in 0..6 {
        let mut first = whole();
        let mut second = whole();
        for packet in &mut second.packets {
            packet.time_ns += 1_000_000_000;
            let shift = if packet.from.port() == 3306 { 3_000_000_000 } else { 2_000_000_000 };
            packet.sequence = packet.sequence.wrapping_add(shift);
            packet.acknowledged =
                packet.acknowledged.wrapping_add(5_000_000_000_u64.wrapping_sub(shift.into()) as u32);
        }
        second.packets[0].acknowledged = 0;
        // Neither side's end was seen; then also not the SYN; then not the handshake at all.
        match lost {
            0 => {}
            1 => first.packets.truncate(9),
            2 => {
                first.packets.truncate(9);
                second.packets.remove(0);
            }
            3 => {
                first.packets.truncate(9);
                second.packets.remove(1);
            }
            4 => {
                first.packets.truncate(9);
                second.packets.drain(..3);
            }
            _ => {
                first.packets.truncate(9);
                first.reset(Client);
            }
        }
        let (calls, coverage) = read_packets(&[first.packets, second.packets].concat());
        assert_eq!(calls.opened().len(), 2, "{lost}");
        assert_eq!(calls.opened()[1].is_midstream, lost == 4);
        for session in [1, 2] {
            assert_eq!(calls.said(session, Client), CLIENT, "{lost} {session}");
            assert_eq!(calls.said(session, Server), SERVER, "{lost} {session}");
        }
        nothing_lost(&coverage);
    }
}

#[test]
fn forged_packets_change_nothing() {
    for (flags, shift) in [(SYN, 0), (SYN, 0x7000_0000), (RST, 0x7000_0000), (ACK, 0x7000_0000)] {
        let mut talk = whole();
        let mut forged = talk.packets[4].clone();
        forged.flags = flags;
        forged.sequence = forged.sequence.wrapping_add(shift);
        forged.acknowledged = forged.acknowledged.wrapping_add(1000);
        forged.data.clear();
        talk.packets.insert(5, forged);
        talk.packets.iter_mut().skip(6).for_each(|packet| packet.time_ns += 30_000_000_000);
        all_of(&talk);
    }
}

#[test]
fn reset_ends_it() {
    let mut talk = whole();
    talk.packets.truncate(7);
    talk.reset(Server);
    let mut late = talk.packets[4].clone();
    late.sequence = talk.client_next;
    talk.packets.push(late);
    let (calls, coverage) = read_packets(&talk.packets);
    assert_eq!(calls.said(1, Server), b"hellothe answer, and more");
    assert_eq!(calls.calls.last(), Some(&Call::Closed(1)));
    assert_eq!(calls.opened().len(), 1, "what comes late begins no connection");
    assert_eq!(coverage.skipped_bytes, 12);
    // Refused before it began.
    let mut talk = Talk::new(40_000, 1, 0);
    talk.packet(Client, SYN, b"");
    talk.packet(Server, RST | ACK, b"");
    assert_eq!(read_packets(&talk.packets).0.calls, []);
}

#[test]
fn one_side_ends_before_the_other() {
    let mut talk = Talk::new(40_000, 1000, 9000);
    talk.shake();
    talk.packet(Client, FIN | ACK, b"all I ask");
    talk.say(Server, b"one");
    talk.packet(Client, ACK, b"");
    talk.packet(Server, FIN | ACK, b"two");
    talk.packet(Client, ACK, b"");
    let (calls, coverage) = read_packets(&talk.packets);
    assert_eq!(calls.said(1, Client), b"all I ask");
    assert_eq!(calls.said(1, Server), b"onetwo");
    nothing_lost(&coverage);
    // The end was lost by the capture, but acknowledged: it is not a byte.
    talk.packets.remove(6);
    talk.packets.remove(3);
    let (calls, coverage) = read_packets(&talk.packets);
    assert_eq!(calls.said(1, Server), b"one~~~~");
    assert_eq!(coverage.gaps, 2);
}

#[test]
fn data_with_the_first_packet() {
    for is_accepted in [true, false] {
        let mut talk = Talk::new(40_000, 1000, 9000);
        let data = b"early question";
        talk.packet(Client, SYN, data);
        talk.client_next = if is_accepted { 1001 + data.len() as u32 } else { 1001 };
        talk.packet(Server, SYN | ACK, b"");
        talk.packet(Client, ACK, if is_accepted { b"" } else { data });
        talk.say(Server, b"answer");
        let (calls, coverage) = read_packets(&talk.packets);
        assert_eq!(calls.said(1, Client), data);
        assert_eq!(calls.said(1, Server), b"answer");
        assert_eq!(coverage.retransmitted_packets, u64::from(!is_accepted));
        nothing_lost(&coverage);
    }
}

#[test]
fn clock_set_back() {
    let mut talk = whole();
    talk.packets.remove(4);
    talk.packets.iter_mut().skip(6).for_each(|packet| packet.time_ns -= 3_600_000_000_000);
    // Long after, by the clock that was set back; another connection makes the time go on.
    let mut other = Talk::new(40_001, 1, 1);
    other.time_ns = START_NS - 3_600_000_000_000 + 1_000_000_000;
    other.shake();
    let (calls, coverage) = read_packets(&[talk.packets[..8].to_vec(), other.packets].concat());
    assert_eq!((coverage.gaps, coverage.gap_bytes), (1, 12));
    let gap = calls.calls.iter().position(|call| matches!(call, Call::Gap(..)));
    assert!(
        gap < calls.calls.iter().position(|call| matches!(call, Call::Opened(opened) if opened.session == 2))
    );
}

fn some_order() -> Vec<Packet> {
    let mut talk = whole();
    // Further apart than what connections forgive.
    talk.packets.iter_mut().zip(0..).for_each(|(packet, at)| packet.time_ns = START_NS + at * 1_000_000_000);
    talk.packets
}

#[test]
fn packets_that_are_in_no_order_are_sorted() {
    let packets = some_order();
    let count = packets.len();
    for order in 0..3 {
        let mut mixed = packets.clone();
        match order {
            0 => mixed.reverse(),
            1 => mixed.sort_by_key(|packet| packet.time_ns / 1_000_000_000 * 5 % count as u64),
            _ => mixed.chunks_mut(2).for_each(<[_]>::reverse),
        }
        let (calls, coverage) = read_packets(&mixed);
        assert_eq!((calls.said(1, Client), calls.said(1, Server)), (CLIENT.to_vec(), SERVER.to_vec()));
        nothing_lost(&coverage);
        assert!(coverage.places[0].reason.contains("sorted"), "{coverage:?}");
    }
}

#[test]
fn what_is_older_than_others_before_it_is_counted() {
    let mut packets = some_order();
    packets.rotate_left(6);
    let (_, coverage) = read_packets(&packets);
    assert!(
        coverage.places[0].reason.starts_with("6 packets came behind others that are up to 11 s newer"),
        "{coverage:?}"
    );
    let (_, coverage) = read_packets(&some_order());
    assert_eq!(coverage.places, []);
}
