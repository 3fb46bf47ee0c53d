//! Packets in tunnels: every kind, nested at random, mirrored twice, in pieces, and others beside them.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::generate::{Calls, Packet, Talk, ipv4, ipv6, pcap};
use super::{formats, read_bytes, read_packets};
use crate::coverage::Coverage;
use crate::packets::{PacketOptions, read};
use crate::stream::Side::{self, Client, Server};

const OUTER: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
const OUTER6: (Ipv6Addr, Ipv6Addr) =
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));

/// What the bytes of a packet begin with.
#[derive(Clone, Debug)]
enum Made {
    Ethernet(Vec<u8>),
    Ip(Vec<u8>),
}

impl Made {
    fn bytes(&self) -> &[u8] {
        match self {
            Made::Ethernet(bytes) | Made::Ip(bytes) => bytes,
        }
    }

    fn is_ethernet(&self) -> bool {
        matches!(self, Made::Ethernet(_))
    }

    /// By its EtherType.
    fn protocol(&self) -> [u8; 2] {
        match self {
            Made::Ethernet(_) => [0x65, 0x58],
            Made::Ip(bytes) if bytes[0] >> 4 == 4 => [0x08, 0],
            Made::Ip(_) => [0x86, 0xdd],
        }
    }

    fn ethernet(self) -> Vec<u8> {
        match self {
            Made::Ethernet(bytes) => bytes,
            Made::Ip(ref bytes) => frame(self.protocol(), bytes),
        }
    }
}

fn frame(protocol: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &protocol, payload].concat()
}

#[derive(Clone, Debug)]
enum Layer {
    Tags(Vec<u16>),
    Vxlan(u32, u16),
    Geneve(u32, u8),
    Gre { key: Option<u32>, has_sequence: bool, has_sum: bool },
    Erspan(u8, u16),
    IpInIp,
    GtpU(u32),
    Mpls(Vec<u32>),
    Pppoe(u16),
    Nsh,
    Tzsp,
    MacInMac(u32),
    EtherIp,
    Authenticated,
}

fn layers() -> impl Strategy<Value = Layer> {
    prop_oneof![
        prop::collection::vec(0..4096_u16, 1..3).prop_map(Layer::Tags),
        (0..1_u32 << 24, prop_oneof![Just(4789_u16), Just(8472), 1024..u16::MAX])
            .prop_filter("ports of others", |(_, port)| ![2152, 6081, 6635, 4754, 4790, 37008].contains(port))
            .prop_map(|(network, port)| Layer::Vxlan(network, port)),
        (0..1_u32 << 24, 0..5_u8).prop_map(|(network, words)| Layer::Geneve(network, words)),
        (any::<Option<u32>>(), any::<bool>(), any::<bool>())
            .prop_map(|(key, has_sequence, has_sum)| Layer::Gre { key, has_sequence, has_sum }),
        (1..=3_u8, 0..1024_u16).prop_map(|(kind, session)| Layer::Erspan(kind, session)),
        Just(Layer::IpInIp),
        any::<u32>().prop_map(Layer::GtpU),
        prop::collection::vec(0..1_u32 << 20, 1..4).prop_map(Layer::Mpls),
        any::<u16>().prop_map(Layer::Pppoe),
        Just(Layer::Nsh),
        Just(Layer::Tzsp),
        (0..1_u32 << 24).prop_map(Layer::MacInMac),
        Just(Layer::EtherIp),
        Just(Layer::Authenticated),
    ]
}

fn ip(is_ipv6: bool, protocol: u8, payload: &[u8]) -> Made {
    Made::Ip(if is_ipv6 {
        ipv6(OUTER6.0, OUTER6.1, protocol, payload)
    } else {
        ipv4(OUTER.0, OUTER.1, protocol, &[], payload)
    })
}

fn udp(is_ipv6: bool, port: u16, payload: &[u8]) -> Made {
    let length = (payload.len() as u16 + 8).to_be_bytes();
    ip(is_ipv6, 17, &[&[0xc3, 0x50][..], &port.to_be_bytes(), &length, &[0, 0], payload].concat())
}

fn be24(value: u32) -> [u8; 3] {
    let [_, rest @ ..] = value.to_be_bytes();
    rest
}

impl Layer {
    fn around(&self, inner: Made, is_ipv6: bool) -> Made {
        let protocol = inner.protocol();
        let bytes = inner.bytes().to_vec();
        match self {
            Layer::Tags(tags) => {
                let whole = inner.ethernet();
                let tags: Vec<u8> =
                    tags.iter().flat_map(|tag| [0x81, 0, (tag >> 8) as u8, *tag as u8]).collect();
                Made::Ethernet([&whole[..12], &tags, &whole[12..]].concat())
            }
            Layer::Vxlan(network, port) => {
                let header = [&[8, 0, 0, 0][..], &be24(*network), &[0]].concat();
                udp(is_ipv6, *port, &[header, inner.ethernet()].concat())
            }
            Layer::Geneve(network, words) => {
                let options = vec![7; usize::from(*words) * 4];
                let header = [&[*words, 0][..], &protocol, &be24(*network), &[0], &options].concat();
                udp(is_ipv6, 6081, &[header, bytes].concat())
            }
            Layer::Gre { key, has_sequence, has_sum } => {
                let flags = [(*has_sum, 0x80), (key.is_some(), 0x20), (*has_sequence, 0x10)];
                let flags = flags.iter().map(|(is, flag)| if *is { *flag } else { 0 }).sum();
                let mut header = vec![flags, 0];
                header.extend(protocol);
                header.extend(vec![0; if *has_sum { 4 } else { 0 }]);
                header.extend(key.iter().flat_map(|key| key.to_be_bytes()));
                header.extend(vec![9; if *has_sequence { 4 } else { 0 }]);
                ip(is_ipv6, 47, &[header, bytes].concat())
            }
            Layer::Erspan(kind, session) => {
                let session = session.to_be_bytes();
                let header = match kind {
                    1 => vec![0, 0, 0x88, 0xbe],
                    2 => [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 7][..], &session, &[0; 4]].concat(),
                    _ => [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 7][..], &session, &[0; 8]].concat(),
                };
                ip(is_ipv6, 47, &[header, inner.ethernet()].concat())
            }
            Layer::IpInIp if inner.is_ethernet() => ip(is_ipv6, 143, &bytes),
            Layer::IpInIp => ip(is_ipv6, if protocol == [0x08, 0] { 4 } else { 41 }, &bytes),
            Layer::GtpU(_) if inner.is_ethernet() => inner,
            Layer::GtpU(tunnel) => {
                let length = (bytes.len() as u16 + 8).to_be_bytes();
                // With a sequence and one extension header.
                let header = [&[0x36, 255][..], &length, &tunnel.to_be_bytes(), &[0, 1, 0, 0x85, 1, 0, 9, 0]];
                udp(is_ipv6, 2152, &[header.concat(), bytes].concat())
            }
            Layer::Tzsp => {
                udp(is_ipv6, 37008, &[vec![1, 0, 0, 1, 0, 10, 1, 9, 1], inner.ethernet()].concat())
            }
            Layer::EtherIp => ip(is_ipv6, 97, &[vec![0x30, 0], inner.ethernet()].concat()),
            Layer::Mpls(_) | Layer::Pppoe(_) | Layer::Nsh | Layer::MacInMac(_) | Layer::Authenticated => {
                self.around_without_ip(inner)
            }
        }
    }

    /// Layers without a header of IP of their own.
    fn around_without_ip(&self, inner: Made) -> Made {
        let protocol = inner.protocol();
        let bytes = inner.bytes().to_vec();
        match self {
            Layer::Mpls(labels) => {
                let last = labels.len() - 1;
                let entry = |(at, label): (usize, &u32)| {
                    (label << 12 | u32::from(at == last) << 8 | 64).to_be_bytes()
                };
                let mut stack: Vec<u8> = labels.iter().enumerate().flat_map(entry).collect();
                if inner.is_ethernet() {
                    // A control word.
                    stack.extend([0; 4]);
                }
                Made::Ethernet(frame([0x88, 0x47], &[stack, bytes].concat()))
            }
            Layer::Pppoe(_) if inner.is_ethernet() => inner,
            Layer::Pppoe(session) => {
                let ppp = if protocol == [0x08, 0] { [0, 0x21] } else { [0, 0x57] };
                let length = (bytes.len() as u16 + 2).to_be_bytes();
                let header = [&[0x11, 0][..], &session.to_be_bytes(), &length, &ppp].concat();
                Made::Ethernet(frame([0x88, 0x64], &[header, bytes].concat()))
            }
            Layer::Nsh => {
                let next = match protocol {
                    [0x08, 0] => 1,
                    [0x86, 0xdd] => 2,
                    _ => 3,
                };
                let header = [&[0, 6, 1, next, 0, 0, 7, 255][..], &[0; 16]].concat();
                Made::Ethernet(frame([0x89, 0x4f], &[header, bytes].concat()))
            }
            Layer::MacInMac(service) => {
                let header = [&[0][..], &be24(*service)].concat();
                Made::Ethernet(frame([0x88, 0xe7], &[header, inner.ethernet()].concat()))
            }
            Layer::Authenticated => match inner {
                Made::Ip(bytes) if bytes[0] >> 4 == 4 => {
                    let header =
                        [bytes[9], 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3];
                    let ends = [&bytes[12..16], &bytes[16..20]].map(|end| <[u8; 4]>::try_from(end).unwrap());
                    Made::Ip(ipv4(
                        ends[0].into(),
                        ends[1].into(),
                        51,
                        &[],
                        &[&header[..], &bytes[20..]].concat(),
                    ))
                }
                inner => inner,
            },
            _ => panic!("a layer with a header of IP"),
        }
    }
}

fn within(packet: &Packet, layers: &[Layer], is_ipv6: bool) -> Made {
    layers.iter().fold(Made::Ip(packet.ip()), |inner, layer| layer.around(inner, is_ipv6))
}

type Pieces = Vec<Vec<u8>>;

/// Cuts a packet of IPv4 into pieces whose content has at most so many bytes.
fn pieces(packet: &[u8], size: usize, number: u16) -> Pieces {
    let content = &packet[20..];
    let size = size.next_multiple_of(8);
    let count = content.chunks(size).count();
    let piece = |(at, bytes): (usize, &[u8])| {
        let ends = [&packet[12..16], &packet[16..20]].map(|end| <[u8; 4]>::try_from(end).unwrap());
        let mut piece = ipv4(ends[0].into(), ends[1].into(), packet[9], &[], bytes);
        piece[4..6].copy_from_slice(&number.to_be_bytes());
        let more = if at + 1 < count { 0x2000 } else { 0 };
        piece[6..8].copy_from_slice(&(more | (at * size / 8) as u16).to_be_bytes());
        piece
    };
    content.chunks(size).enumerate().map(piece).collect()
}

fn ethernet(frames: impl IntoIterator<Item = Made>) -> Vec<u8> {
    let stamped = frames.into_iter().enumerate();
    pcap(1, stamped.map(|(at, frame)| (super::generate::START_NS + at as u64 * 1000, frame.ethernet())))
}

fn check(calls: &Calls) {
    assert_eq!(calls.opened().len(), 1);
    assert_eq!(calls.said(1, Client), b"question");
    assert_eq!(calls.said(1, Server), [b"hello".to_vec(), vec![b'a'; 1400]].concat());
}

fn read_made(frames: impl IntoIterator<Item = Made>) -> (Calls, Coverage) {
    read_bytes(&ethernet(frames))
}

#[test]
fn every_tunnel_is_read_and_named() {
    let gre = |key| Layer::Gre { key, has_sequence: false, has_sum: false };
    for (layers, name) in [
        (vec![Layer::Vxlan(42, 4789)], "VXLAN (VNI 42)"),
        (vec![Layer::Vxlan(7, 12_345)], "VXLAN (VNI 7)"),
        (vec![Layer::Geneve(7, 2)], "Geneve (VNI 7)"),
        (vec![gre(None)], "GRE"),
        (vec![gre(Some(5))], "GRE (key 5)"),
        (vec![Layer::Tags(vec![5]), gre(None)], "GRE"),
        (vec![Layer::Erspan(1, 0)], "ERSPAN I"),
        (vec![Layer::Erspan(2, 9)], "ERSPAN II (session 9)"),
        (vec![Layer::Erspan(3, 9)], "ERSPAN III (session 9)"),
        (vec![Layer::IpInIp], "IP in IP"),
        (vec![Layer::GtpU(77)], "GTP-U"),
        (vec![Layer::Mpls(vec![16, 17])], "MPLS"),
        (vec![Layer::Pppoe(3)], "PPPoE (session 3)"),
        (vec![Layer::Nsh], "NSH (path 7)"),
        (vec![Layer::Tzsp], "TZSP"),
        (vec![Layer::MacInMac(8)], "802.1ah (I-SID 8)"),
        (vec![Layer::EtherIp], "EtherIP"),
        (vec![Layer::Vxlan(5, 4789), gre(Some(1))], "GRE (key 1) > VXLAN (VNI 5)"),
    ] {
        let packets = formats::talk().packets;
        let (calls, coverage) = read_made(packets.iter().map(|packet| within(packet, &layers, false)));
        check(&calls);
        assert_eq!((coverage.tunnels.get(name), coverage.damaged), (9, 0), "{name}: {coverage:?}");
        assert_eq!((coverage.tunnels.total(), coverage.other_packets), (9, 0), "{name}");
    }
}

#[test]
fn equal_addresses_in_two_tunnels_are_two_connections() {
    let (mut one, mut other) = (Talk::new(40_000, 1000, 9000), Talk::new(40_000, 77_000_000, 5));
    for (talk, text) in [(&mut one, b"one"), (&mut other, b"two")] {
        talk.shake();
        talk.say(Client, text);
        talk.say(Server, text);
    }
    for layer in [|n| Layer::Vxlan(n, 4789), |n: u32| Layer::Tags(vec![n as u16]), |n| Layer::Mpls(vec![n])] {
        // Alternately, from their beginnings or joined.
        for from in [0, 3] {
            let mixed = one.packets[from..].iter().zip(&other.packets[from..]);
            let frames =
                mixed.flat_map(|(a, b)| [within(a, &[layer(1)], false), within(b, &[layer(2)], false)]);
            let (calls, coverage) = read_made(frames);
            assert_eq!((coverage.sessions, coverage.gaps), (2, 0));
            for (session, text) in [(1, b"one"), (2, b"two")] {
                assert_eq!(calls.said(session, Client), text);
                assert_eq!(calls.said(session, Server), text);
            }
        }
    }
}

#[test]
fn one_connection_may_come_in_a_tunnel_a_direction_and_twice() {
    let packets = formats::talk().packets;
    for from in [0, 3] {
        let a_direction = |packet: &Packet| {
            let number = if packet.from.port() == 3306 { 1 } else { 2 };
            within(packet, &[Layer::Vxlan(number, 4789)], false)
        };
        let (calls, coverage) = read_made(packets[from..].iter().map(a_direction));
        check(&calls);
        assert_eq!((coverage.sessions, coverage.tunnels.total()), (1, 9 - from as u64));
        // Mirrored where it leaves and where it arrives.
        let twice = packets[from..]
            .iter()
            .flat_map(|packet| [1, 2, 3].map(|number| within(packet, &[Layer::Vxlan(number, 4789)], false)));
        let (calls, coverage) = read_made(twice);
        check(&calls);
        assert_eq!((coverage.sessions, coverage.damaged, coverage.gaps), (1, 0, 0));
    }
}

#[test]
fn pieces_of_the_outer_packet_are_put_together() {
    let packets = formats::talk().packets;
    for size in [8, 48, 600] {
        let cut = |(number, packet): (usize, &Packet)| {
            let outer = within(packet, &[Layer::Vxlan(42, 4789)], false);
            pieces(outer.bytes(), size, number as u16)
        };
        let all: Vec<Pieces> = packets.iter().enumerate().map(cut).collect();
        let orders: [fn(Pieces) -> Pieces; 3] = [
            |pieces| pieces,
            |pieces| pieces.into_iter().rev().collect(),
            |pieces| pieces.clone().into_iter().chain(pieces).collect(),
        ];
        for order in orders {
            let frames = all.iter().flat_map(|pieces| order(pieces.clone())).map(Made::Ip);
            let (calls, coverage) = read_made(frames);
            check(&calls);
            assert_eq!(coverage.damaged, 0, "{size}");
            assert!(coverage.tunnels.get("VXLAN (VNI 42)") >= 9, "{size}");
        }
        // One of them is missing: the packet with the long answer.
        let frames = all.iter().flat_map(|pieces| {
            let missing = if pieces.len() > 2 && pieces.len() * size > 1400 { 1 } else { usize::MAX };
            pieces
                .iter()
                .enumerate()
                .filter(move |(at, _)| *at != missing)
                .map(|(_, piece)| Made::Ip(piece.clone()))
        });
        let (calls, coverage) = read_made(frames);
        assert_eq!(calls.said(1, Client), b"question");
        assert!((1..=9).contains(&coverage.damaged) && coverage.gaps >= 1, "{coverage:?}");
    }
}

#[test]
fn pieces_without_end_take_bounded_memory() {
    let piece = |number: u32| {
        let mut piece = ipv4(OUTER.0, OUTER.1, 17, &[], &[7; 1400]);
        piece[4..6].copy_from_slice(&(number as u16).to_be_bytes());
        piece[6] = 0x20;
        piece[15] = (number >> 16) as u8;
        Made::Ip(piece)
    };
    let (_, coverage) = read_made((0..20_000).map(piece));
    assert_eq!((coverage.damaged, coverage.sessions), (20_000, 0));
}

#[test]
fn what_is_not_read_is_named() {
    let udp_of = |port: u16, payload: &[u8]| udp(false, port, payload);
    let wireguard = [&[4, 0, 0, 0][..], &[9; 44]].concat();
    for (made, name) in [
        (ip(false, 50, &[1; 40]), "ESP (IPsec, encrypted)"),
        (ip(true, 50, &[1; 40]), "ESP (IPsec, encrypted)"),
        (ip(false, 1, &[8; 40]), "ICMP"),
        (ip(false, 99, &[8; 40]), "IP protocol 99"),
        (Made::Ethernet(frame([8, 6], &[0; 28])), "ARP"),
        (Made::Ethernet(frame([0x88, 0xe5], &[0x2c; 28])), "MACsec (encrypted)"),
        (Made::Ethernet(frame([0x12, 0x34], &[0; 28])), "EtherType 0x1234"),
        (Made::Ethernet(frame([0, 38], &[0x42; 38])), "LLC (spanning tree and the like)"),
        (udp_of(53, b"whatever"), "UDP of port 53 (DNS)"),
        (udp_of(7777, b"whatever"), "UDP of port 7777"),
        (udp_of(41_000, &wireguard), "WireGuard, encrypted (UDP of port 41000)"),
        (udp_of(443, &[0xc3, 0, 0, 0, 1, 8, 1, 2, 3]), "QUIC, encrypted (UDP of port 443)"),
        (udp_of(4789, b"no header of VXLAN"), "UDP of port 4789 (no VXLAN)"),
    ] {
        let (calls, coverage) = read_made([made]);
        assert_eq!((coverage.other_kinds.get(name), coverage.other_packets), (1, 1), "{name}: {coverage:?}");
        assert!(calls.calls.is_empty() && coverage.unreadable().is_some_and(|why| why.contains(name)));
    }
}

/// A client that sends a balancer's header, and a server on that port that greets.
fn greeting_on(port: u16, client: u16) -> Vec<Packet> {
    let mut talk = Talk::new(client, 1, 1);
    talk.server.set_port(port);
    talk.shake();
    talk.say(Client, b"PROXY TCP4 192.0.2.7 192.0.2.8 5 6\r\n");
    let greeting = [
        &b"\x4a\0\0\0\x0a8.0.36\0\x07\0\0\0abcdefgh\0\xff\xf7\x2d\x02\0\xff\x81\x15"[..],
        &[0; 10],
        b"ijklmnopqrst\0caching_sha2_password\0",
    ]
    .concat();
    talk.say(Server, &greeting);
    talk.packets
}

#[test]
fn a_server_on_another_port_is_named_where_a_port_was_asked_for() {
    let (_, coverage) = read_packets(&greeting_on(3307, 40_000));
    assert!(coverage.places[0].reason.contains("greet on other ports, too: 3307"), "{:?}", coverage.places);
    assert_eq!(coverage.other_kinds.get("TCP of other ports"), 5);
}

#[test]
fn the_first_server_that_greets_is_read_with_what_came_before_where_no_port_was_asked_for() {
    let read_any = |packets: &[Packet]| {
        let mut calls = Calls::default();
        let coverage =
            read(&super::ethernet(packets)[..], "test", &PacketOptions::on(&[]), &mut calls).unwrap();
        let said = coverage.places.iter().map(|place| place.reason.clone()).collect::<Vec<_>>().join("|");
        (calls, coverage, said)
    };
    let (mut first, second) = (greeting_on(3307, 40_000), greeting_on(3308, 40_001));
    let packets = [second[..4].to_vec(), first.clone(), second[4..].to_vec()].concat();
    let (calls, coverage, said) = read_any(&packets);
    assert_eq!((coverage.server_packets, coverage.other_kinds.get("TCP of other ports")), (5, 5), "{said}");
    assert!(said.contains("greets on port 3307, so that was read") && !said.contains("before"), "{said}");
    assert!(said.contains("greet on other ports, too: 3308"), "{said}");
    let opened = calls.opened();
    assert!(calls.said(opened[0].session, Client).starts_with(b"PROXY TCP4"), "{opened:?}");
    // A packet of the usual port before it: that server is the one that is meant.
    first.splice(0..0, greeting_on(3306, 40_002));
    let (_, coverage, said) = read_any(&first);
    assert_eq!(coverage.server_packets, 5);
    assert!(said.contains("greet on other ports, too: 3307"), "{said}");
}

/// What was said is a prefix or all of what comes out, whatever is around it.
fn is_true(calls: &Calls) -> bool {
    calls.opened().iter().all(|opened| {
        let is_said = |side: Side, said: &[u8]| {
            calls.said(opened.session, side).is_empty() || calls.said(opened.session, side) == said
        };
        is_said(Client, b"question") && is_said(Server, &[b"hello".to_vec(), vec![b'a'; 1400]].concat())
    })
}

proptest! {
    #[test]
    fn tunnels_nested_at_random_are_read_whole(
        layers in prop::collection::vec(layers(), 0..7), is_ipv6 in any::<bool>(), size in 100..1500_usize,
    ) {
        let packets = formats::talk().packets;
        let made = packets.iter().map(|packet| within(packet, &layers, is_ipv6));
        let (calls, coverage) = read_made(made.clone());
        // More tags and tunnels than are followed.
        let too_deep = coverage.other_kinds.get("tunnels nested too deep");
        if too_deep == 0 {
            check(&calls);
            prop_assert_eq!((coverage.damaged, coverage.other_packets), (0, 0));
            let is_tunnel = coverage.tunnels.total() == 9;
            prop_assert!(is_tunnel || coverage.tunnels.total() == 0, "{:?}", coverage);
        } else {
            prop_assert_eq!((too_deep, calls.opened().len()), (9, 0));
        }
        // The same in pieces.
        let cut = made.enumerate().flat_map(|(number, made)| match made {
            Made::Ip(bytes) if bytes[0] == 0x45 => pieces(&bytes, size, number as u16).into_iter().map(Made::Ip).collect(),
            made => vec![made],
        });
        let (again, _) = read_made(cut);
        prop_assert_eq!(again.opened().len(), calls.opened().len());
        prop_assert!(is_true(&again));
    }

    #[test]
    fn bytes_of_an_unknown_kind_before_it_are_named(
        layers in prop::collection::vec(layers(), 0..4), prefix in prop::collection::vec(any::<u8>(), 1..40),
        place in 0..4_usize, as_ethernet in any::<bool>(),
    ) {
        let packets = formats::talk().packets;
        let hidden = packets.iter().map(|packet| {
            let (inner, outer) = layers.split_at(place.min(layers.len()));
            let made = within(packet, inner, false);
            let bytes = [prefix.clone(), made.ethernet()].concat();
            let made = if as_ethernet { Made::Ethernet(bytes) } else { ip(false, 253, &bytes) };
            outer.iter().fold(made, |inner, layer| layer.around(inner, false))
        });
        let (calls, coverage) = read_made(hidden);
        prop_assert!(is_true(&calls), "{:?}", calls.calls);
        if calls.opened().is_empty() {
            let named = coverage.other_kinds.total() + coverage.damaged + coverage.cut_packets;
            prop_assert!(named >= 9, "{:?}", coverage);
        }
    }

    #[test]
    fn hostile_tunnels_are_survived(
        layers in prop::collection::vec(layers(), 1..6), is_ipv6 in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let packets = formats::talk().packets;
        let frames = packets.iter().map(|packet| {
            let mut bytes = within(packet, &layers, is_ipv6).ethernet();
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            let length = cut.as_ref().map_or(bytes.len(), |cut| cut.index(bytes.len()) + 1);
            (packet.time_ns, bytes[..length].to_vec())
        });
        let capture = pcap(1, frames);
        let mut calls = Calls::default();
        let coverage = read(&capture[..], "test", &PacketOptions::default(), &mut calls).unwrap();
        prop_assert_eq!(coverage.packets, 9);
        prop_assert_eq!(calls.opened().len(), calls.closed());
    }
}
