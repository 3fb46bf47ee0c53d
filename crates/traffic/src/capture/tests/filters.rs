//! The kernel's filter on packets made here.

use std::net::{IpAddr, Ipv4Addr};

use crate::capture::filter::filter;
use crate::packets::PacketOptions;

const OUTGOING: u32 = 4;
const LOOPBACK: u32 = 772;
const ETHERNET: u32 = 1;

/// Runs a program of classic BPF as the kernel does; true if it keeps the packet.
fn runs(program: &[libc::sock_filter], beside: [u32; 3], packet: &[u8]) -> bool {
    let (mut a, mut x, mut at) = (0, 0, 0);
    let bytes = |start: u32, count: usize| {
        let found = packet.get(start as usize..start as usize + count)?;
        Some(found.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    };
    loop {
        let libc::sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let loaded = match code {
            0x20 if k >= 0xffff_f000 => {
                Some(beside[[0, 4, 28].iter().position(|at| *at == k - 0xffff_f000).unwrap()])
            }
            0x20 => bytes(k, 4),
            0x28 => bytes(k, 2),
            0x30 => bytes(k, 1),
            0x48 => bytes(x + k, 2),
            0x50 => bytes(x + k, 1),
            0xb1 => {
                let Some(first) = bytes(k, 1) else { return false };
                x = 4 * (first & 15);
                continue;
            }
            0x05 => {
                at += k as usize;
                continue;
            }
            0x15 | 0x45 => {
                let is_true = if code == 0x15 { a == k } else { a & k != 0 };
                at += usize::from(if is_true { jt } else { jf });
                continue;
            }
            0x06 => return k > 0,
            other => panic!("an instruction {other:#x}"),
        };
        // The kernel drops what a load reaches beyond.
        let Some(value) = loaded else { return false };
        a = value;
    }
}

fn tcp(from: u16, to: u16) -> Vec<u8> {
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0; 16]].concat()
}

fn ipv4(from: [u8; 4], to: [u8; 4], options: usize, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45 + options as u8, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
    bytes.extend([&from[..], &to, &vec![1; options * 4], payload].concat());
    bytes
}

fn ipv6(next: u8, last: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 20, next, 64];
    let address = |last| [&[0xfd; 15][..], &[last]].concat();
    bytes.extend([&address(1), &address(last), payload].concat());
    bytes
}

#[test]
fn filter_keeps_the_servers_packets() {
    let options = PacketOptions { ports: vec![3306, 3307], ..PacketOptions::default() };
    let program = filter(&options).unwrap();
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    for options in [0, 1, 10] {
        assert!(runs(&program, [0x0800, 0, ETHERNET], &ipv4(a, b, options, &tcp(40_000, 3306))));
        assert!(runs(&program, [0x0800, OUTGOING, ETHERNET], &ipv4(a, b, options, &tcp(3307, 40_000))));
        assert!(!runs(&program, [0x0800, 0, ETHERNET], &ipv4(a, b, options, &tcp(40_000, 3308))));
    }
    let good = ipv4(a, b, 0, &tcp(40_000, 3306));
    assert!(runs(&program, [0x0800, 0, LOOPBACK], &good));
    assert!(!runs(&program, [0x0800, OUTGOING, LOOPBACK], &good), "it comes in as well");
    assert!(!runs(&program, [0x0806, 0, ETHERNET], &good));
    let mut udp = good.clone();
    udp[9] = 17;
    assert!(!runs(&program, [0x0800, 0, ETHERNET], &udp));
    let mut fragment = good.clone();
    fragment[7] = 1;
    assert!(!runs(&program, [0x0800, 0, ETHERNET], &fragment));
    assert!(!runs(&program, [0x0800, 0, ETHERNET], &good[..21]), "cut off");
    assert!(runs(&program, [0x86dd, 0, ETHERNET], &ipv6(6, 2, &tcp(3306, 40_000))));
    assert!(!runs(&program, [0x86dd, 0, ETHERNET], &ipv6(6, 2, &tcp(3305, 40_000))));
    assert!(!runs(&program, [0x86dd, 0, ETHERNET], &ipv6(17, 2, &tcp(3306, 40_000))));
    assert!(runs(&program, [0x86dd, 0, ETHERNET], &ipv6(44, 2, &[6, 0, 0, 1])), "looked at by us");
    for outer in [0x8100, 0x88a8, 0x9100] {
        let tagged = [&[0, 7, 8, 0][..], &good].concat();
        assert!(runs(&program, [outer, 0, ETHERNET], &tagged));
        let twice = [&[0, 7, 0x81, 0, 0, 7, 0x86, 0xdd][..], &ipv6(6, 2, &tcp(40_000, 3306))].concat();
        assert!(runs(&program, [outer, 0, ETHERNET], &twice));
        let other = [&[0, 7, 8, 6][..], &good].concat();
        assert!(!runs(&program, [outer, 0, ETHERNET], &other));
    }
}

#[test]
fn filter_keeps_packets_in_tunnels() {
    let options = PacketOptions { ports: vec![3306, 3307], ..PacketOptions::default() };
    let program = filter(&options).unwrap();
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let inner = |port: u16| ipv4(a, b, 0, &tcp(40_000, port));
    let carried = |protocol: u8, options: usize, payload: &[u8]| {
        let mut packet = ipv4(a, b, options, payload);
        packet[9] = protocol;
        packet
    };
    let keeps = |protocol: u32, packet: &[u8]| runs(&program, [protocol, 0, ETHERNET], packet);
    let udp = |port: u16, payload: &[u8]| {
        [&50_000_u16.to_be_bytes()[..], &port.to_be_bytes(), &[0; 4], payload].concat()
    };
    let frame = |port: u16| [&[2; 12][..], &[8, 0], &inner(port)].concat();
    let vxlan = |port: u16| [&[8, 0, 0, 0, 0, 0, 7, 0][..], &frame(port)].concat();
    for options in [0, 2] {
        for outer in [4789, 8472] {
            assert!(keeps(0x0800, &carried(17, options, &udp(outer, &vxlan(3307)))));
            assert!(!keeps(0x0800, &carried(17, options, &udp(outer, &vxlan(80)))), "what clusters say");
        }
        assert!(
            keeps(0x0800, &carried(4, options, &inner(3306)))
                && !keeps(0x0800, &carried(4, options, &inner(80)))
        );
        for outer in [6081, 2152, 37008] {
            assert!(keeps(0x0800, &carried(17, options, &udp(outer, &frame(3306)))));
        }
        assert!(!keeps(0x0800, &carried(17, options, &udp(53, &frame(3306)))));
        assert!(
            keeps(0x0800, &carried(47, options, &[0, 0, 0x65, 0x58]))
                && keeps(0x0800, &carried(41, options, &[]))
        );
    }
    let mut answer = vxlan(80);
    answer[8 + 14 + 20..][..2].copy_from_slice(&3306_u16.to_be_bytes());
    assert!(keeps(0x0800, &carried(17, 0, &udp(4789, &answer))));
    let mut fragment = carried(17, 0, &udp(53, &[]));
    fragment[7] = 1;
    assert!(keeps(0x0800, &fragment), "of what may be a tunnel");
    assert!(keeps(0x86dd, &ipv6(17, 2, &udp(4789, &vxlan(3306)))) && keeps(0x86dd, &ipv6(47, 2, &[0; 8])));
    assert!(!keeps(0x86dd, &ipv6(17, 2, &udp(53, &[]))));
    for protocol in [0x8847, 0x8864] {
        assert!(keeps(protocol, &[0; 8]));
        assert!(keeps(0x8100, &[&[0, 7][..], &(protocol as u16).to_be_bytes(), &[0; 8]].concat()));
    }
}

#[test]
fn filter_keeps_the_servers_addresses() {
    let addresses: Vec<IpAddr> = vec![
        [10, 0, 0, 9].into(),
        [10, 0, 0, 2].into(),
        [[0xfd; 15].as_slice(), &[9]].concat().try_into().map(|a: [u8; 16]| a.into()).unwrap(),
    ];
    let program = filter(&PacketOptions { addresses, ..PacketOptions::default() }).unwrap();
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let four = |from, to, ports: (u16, u16)| {
        runs(&program, [0x0800, 0, ETHERNET], &ipv4(from, to, 0, &tcp(ports.0, ports.1)))
    };
    assert!(four(client, server, (40_000, 3306)) && four(server, client, (3306, 40_000)));
    assert!(!four(server, client, (40_000, 3306)), "the port of another server");
    assert!(!four(client, [10, 0, 0, 3], (40_000, 3306)) && !four([10, 0, 0, 3], client, (3306, 40_000)));
    assert!(four(server, [10, 0, 0, 3], (3306, 3306)), "one of two servers");
    assert!(runs(&program, [0x86dd, 0, ETHERNET], &ipv6(6, 9, &tcp(40_000, 3306))));
    assert!(!runs(&program, [0x86dd, 0, ETHERNET], &ipv6(6, 8, &tcp(40_000, 3306))));
    let many = (0..5000_u32).map(|at| Ipv4Addr::from(at).into()).collect();
    assert!(filter(&PacketOptions { addresses: many, ..PacketOptions::default() }).is_none());
}
