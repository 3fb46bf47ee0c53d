//! One session in tunnels that are rare, nested, and in captures of other link types: read whole and named, or named.

use std::net::Ipv4Addr;

use super::generate::{START_NS, ipv4, pcap};
use super::{formats, read_bytes};
use crate::stream::Side::{Client, Server};

type Bytes = Vec<u8>;
type Wrap = fn(Bytes) -> Bytes;

const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

fn over(head: &[u8], inner: &[u8]) -> Bytes {
    [head, inner].concat()
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Bytes {
    let length = payload.len() as u16 + 8;
    let head = [ports[0], ports[1], length, 0].map(u16::to_be_bytes).concat();
    ipv4(ENDS[0], ENDS[1], 17, &[], &over(&head, payload))
}

fn to(port: u16, head: &[u8], inner: &[u8]) -> Bytes {
    udp([50_000, port], &over(head, inner))
}

fn in_ip(protocol: u8, head: &[u8], inner: &[u8]) -> Bytes {
    ipv4(ENDS[0], ENDS[1], protocol, &[], &over(head, inner))
}

/// A frame around a packet of IPv4.
fn ethernet(ip: Bytes) -> Bytes {
    with_type(0x0800, &ip)
}

fn with_type(protocol: u16, inner: &[u8]) -> Bytes {
    [&[2; 12][..], &protocol.to_be_bytes(), inner].concat()
}

/// A frame of wifi: the bytes of its control field, what is behind its addresses, then LLC.
fn wifi(control: [u8; 2], more: &[u8], ip: &[u8]) -> Bytes {
    [&control[..], &[0; 22], more, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip].concat()
}

/// From a packet of IPv4 to a frame of the link type, and the name of the tunnels.
const READ: &[(u32, &str, Wrap)] = &[
    (1, "VXLAN (VNI 7)", |ip| ethernet(to(65_330, &[8, 0, 0, 0, 0, 0, 7, 0], &ethernet(ip)))),
    (1, "VXLAN (VNI 7)", |ip| ethernet(to(4789, &[0xff, 1, 0xd1, 0xf2, 0, 0, 7, 0], &ethernet(ip)))),
    (1, "VXLAN (VNI 7)", |ip| ethernet(to(8472, &[8, 0, 0, 0, 0, 0, 7, 0], &ethernet(ip)))),
    (1, "VXLAN (VNI 7)", |ip| ethernet(to(4790, &[0x0c, 0, 0, 1, 0, 0, 7, 0], &ip))),
    (1, "VXLAN (VNI 7) > NSH (path 9)", |ip| {
        let nsh = over(
            &[0x0f, 0xc6, 1, 3, 0, 0, 9, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &ethernet(ip),
        );
        ethernet(to(4790, &[0x0c, 0, 0, 4, 0, 0, 7, 0], &nsh))
    }),
    (1, "Geneve (VNI 5)", |ip| ethernet(to(6081, &[2, 0, 8, 0, 0, 0, 5, 0, 1, 8, 1, 1, 9, 9, 9, 9], &ip))),
    (1, "GRE (key 3)", |ip| ethernet(in_ip(47, &[0xb0, 0, 8, 0, 1, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1], &ip))),
    (1, "GRE > ERSPAN II (session 4)", |ip| {
        let span = in_ip(47, &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 1, 0, 4, 0, 0, 0, 0], &ethernet(ip));
        ethernet(in_ip(47, &[0, 0, 8, 0], &span))
    }),
    (1, "802.1ah (I-SID 6) > MPLS", |ip| {
        let labels = with_type(0x8847, &over(&[0, 1, 0, 0, 0, 1, 1, 64], &ip));
        with_type(0x88e7, &over(&[0, 0, 0, 6], &labels))
    }),
    // A wire of Ethernet, with a control word.
    (1, "MPLS", |ip| with_type(0x8847, &over(&[0, 1, 1, 64, 0, 0, 0, 0], &ethernet(ip)))),
    (1, "PPPoE (session 2) > L2TP", |ip| {
        let inner = to(1701, &[0, 2, 0, 1, 0, 9, 0xff, 3, 0, 0x21], &ip);
        let length = (inner.len() as u16 + 2).to_be_bytes();
        let head =
            [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x88, 0x64, 0x11, 0, 0, 2, length[0], length[1], 0, 0x21];
        [&[2; 12][..], &head, &inner].concat()
    }),
    (1, "L2TP", |ip| ethernet(to(1701, &[0x4a, 2, 0, 99, 0, 1, 0, 9, 0, 1, 0, 2, 0, 1, 0xee, 0x21], &ip))),
    (1, "L2TP", |ip| ethernet(udp([1701, 1701], &over(&[0, 3, 0, 0, 0, 0, 0, 9], &ethernet(ip))))),
    (1, "L2TP", |ip| ethernet(in_ip(115, &[0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8], &ethernet(ip)))),
    (1, "GTP-U", |ip| ethernet(to(2152, &[0x34, 255, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 1, 0], &ip))),
    (1, "Teredo > IPv4 in IPv6", |ip| {
        let inner = super::generate::ipv6([7_u16; 8].into(), [8_u16; 8].into(), 4, &ip);
        ethernet(udp([3544, 50_000], &over(&[0, 0, 1, 2, 3, 4, 5, 6], &inner)))
    }),
    (1, "LISP", |ip| ethernet(to(4341, &[0x80, 1, 2, 3, 0, 0, 0, 1], &ip))),
    (1, "GUE", |ip| ethernet(to(6080, &[1, 4, 0, 0, 9, 9, 9, 9], &ip))),
    (1, "GUE", |ip| ethernet(to(6080, &[], &ip))),
    (1, "IP in UDP", |ip| ethernet(to(5555, &[], &ip))),
    (1, "IP in IP", |ip| ethernet(in_ip(94, &[], &ip))),
    (1, "CAPWAP", |ip| ethernet(to(5247, &[0, 0x10, 2, 0, 0, 0, 0, 0], &ethernet(ip)))),
    (1, "CAPWAP", |ip| {
        ethernet(udp([5247, 9], &over(&[0, 0x10, 3, 0, 0, 0, 0, 0], &wifi([8, 2], &[], &ip))))
    }),
    (1, "MACsec", |ip| {
        with_type(0x88e5, &[&[0x20, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 0][..], &ip].concat())
    }),
    (1, "TZSP", |ip| ethernet(to(37_008, &[1, 0, 0, 1, 10, 1, 5, 1], &ethernet(ip)))),
    (1, "EtherIP", |ip| ethernet(in_ip(97, &[0x30, 0], &ethernet(ip)))),
    (1, "", |ip| with_type(0x8909, &over(&[1, 1, 0, 1, 0, 7, 8, 0], &ip))),
    (1, "", |ip| with_type(0x892f, &over(&[0, 52, 0, 1, 8, 0], &ip))),
    (1, "", |ip| with_type(0x8903, &over(&[0, 0x60], &ethernet(ip)))),
    (1, "", |ip| with_type(0xf1c1, &over(&[0, 0, 0, 1, 8, 0], &ip))),
    (9, "", |ip| over(&[0xff, 3, 0x02, 0x81, 0, 1, 1, 64], &ip)),
    (105, "", |ip| wifi([8, 1], &[], &ip)),
    (127, "", |ip| over(&[0, 0, 8, 0, 0, 0, 0, 0], &wifi([0x88, 1], &[0, 0], &ip))),
    (127, "", |ip| over(&[0, 0, 8, 0, 0, 0, 0, 0], &wifi([0x88, 3], &[9, 9, 9, 9, 9, 9, 0, 0, 0, 0], &ip))),
    (192, "", |ip| over(&[0, 0, 8, 0, 105, 0, 0, 0], &wifi([8, 2], &[], &ip))),
    (117, "", |ip| over(&[&[61, 2][..], &[0; 62]].concat(), &ip)),
    (109, "", |ip| over(&[2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &ip)),
    (113, "GRE", |ip| over(&[&[0; 14][..], &[8, 0]].concat(), &in_ip(47, &[0, 0, 8, 0], &ip))),
    (276, "VXLAN (VNI 7)", |ip| {
        over(&[&[8, 0][..], &[0; 18]].concat(), &to(4789, &[8, 0, 0, 0, 0, 0, 7, 0], &ethernet(ip)))
    }),
    (204, "", |ip| over(&[0, 0xff, 3, 0, 0x21], &ip)),
    (219, "MPLS", |ip| over(&[0, 1, 1, 64], &ip)),
    (197, "", |ip| {
        over(
            &[&[0; 8][..], &[0x82, 0, 0, 0, 0, 0, 0, 0], &[4, 0, 0, 0, 0, 0, 0, 0], &[0, 0]].concat(),
            &ethernet(ip),
        )
    }),
    (240, "", |ip| over(&[0; 4], &ethernet(ip))),
];

#[test]
fn every_rare_tunnel_is_read_and_named() {
    for (at, (link, name, wrap)) in READ.iter().enumerate() {
        let packets = formats::talk().packets;
        let frames = packets.iter().map(|packet| (packet.time_ns, wrap(packet.ip())));
        let (calls, coverage) = read_bytes(&pcap(*link, frames));
        let place = format!("row {at}, {name} of link type {link}: {coverage:?}");
        assert_eq!(calls.opened().len(), 1, "{place}");
        assert_eq!(calls.said(1, Client), b"question", "{place}");
        assert_eq!(calls.said(1, Server).len(), 1405, "{place}");
        assert_eq!((coverage.damaged, coverage.other_packets), (0, 0), "{place}");
        if !name.is_empty() {
            let tunnels = coverage.tunnels.get(name);
            assert_eq!(
                (tunnels, coverage.tunnels.total()),
                (packets.len() as u64, packets.len() as u64),
                "{place}"
            );
        }
    }
}

#[test]
fn what_of_them_cannot_be_read_is_named() {
    let rows: &[(u32, &str, Bytes)] = &[
        (1, "MACsec (encrypted)", with_type(0x88e5, &[0x2c; 60])),
        (
            1,
            "UDP of port 1701 (L2TP without a packet)",
            ethernet(to(1701, &[0xc8, 2, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0], &[])),
        ),
        (1, "L2TPv3 without a packet", ethernet(in_ip(115, &[0; 40], &[]))),
        (1, "UDP of port 3544 (Teredo without IPv6)", ethernet(to(3544, &[9; 40], &[]))),
        (1, "UDP of port 5247 (CAPWAP without data)", ethernet(to(5247, &[1; 40], &[]))),
        (1, "B.A.T.M.A.N.", with_type(0x4305, &[0; 40])),
        (9, "PPP, encrypted", vec![0xff, 3, 0, 0x53, 1, 2, 3, 4]),
        (9, "PPP with headers of TCP compressed", vec![0xff, 3, 0, 0x2d, 1, 2, 3, 4]),
        (105, "wifi, encrypted", wifi([8, 0x41], &[], &[0; 40])),
        (105, "wifi without data", [&[0x80, 0][..], &[0; 60]].concat()),
        (105, "wifi, several packets in a frame", wifi([0x88, 1], &[0x80, 0], &[0; 40])),
        (107, "Frame Relay (link type 107, which is not read)", vec![0; 60]),
        (197, "ERF without Ethernet (link type 197, which is not read)", vec![0; 60]),
    ];
    for (link, name, frame) in rows {
        let (calls, coverage) = read_bytes(&pcap(*link, [(START_NS, frame.clone())]));
        assert_eq!((coverage.other_kinds.get(name), coverage.other_packets), (1, 1), "{name}: {coverage:?}");
        assert!(calls.calls.is_empty());
    }
}
