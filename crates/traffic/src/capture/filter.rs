//! What the kernel is to hand over, as a program of classic BPF: so that other traffic costs next to nothing.
//!
//! It runs on packets that begin with their network header. The kernel takes most VLAN tags off; two are looked
//! through. IPv6 with extension headers passes, and is looked at here. So do packets in tunnels, because mirrored traffic comes
//! in them; but of VXLAN and IP in IP, which clusters have between their hosts, TCP of other ports does not.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::packets::PacketOptions;
use crate::packets::tunnels::{ABOVE_IP, BELOW_IP, UDP_PORTS, VXLAN_PORTS};

// Loads of what the kernel knows beside the bytes.
const PROTOCOL: u32 = 0xffff_f000;
const PACKET_TYPE: u32 = PROTOCOL + 4;
const DEVICE_TYPE: u32 = PROTOCOL + 28;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_BYTE_INDEXED: u16 = 0x50;
const INDEX_HEADER_LENGTH: u16 = 0xb1;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// No packet is longer; the kernel cuts there.
const WHOLE: u32 = 1 << 20;
/// The kernel takes no longer programs.
const MOST_INSTRUCTIONS: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Label {
    Accept,
    Reject,
    /// What follows a number of VLAN tags.
    Tagged(u32),
    Ipv4(u32),
    Ipv6(u32),
    Ipv4Tcp(u32),
    Ipv6Tcp(u32),
    Ipv4Udp(u32),
    Ipv6Udp(u32),
    Vxlan(u32),
    IpInIp(u32),
    /// Whether the address of the side at this place is one of the servers'.
    Address {
        base: u32,
        is_ipv6: bool,
        is_source: bool,
    },
    /// The side that sent it is looked at after the one it goes to.
    Source {
        base: u32,
        is_ipv6: bool,
    },
    /// The next address in a list.
    Next(u32),
}

#[derive(Default)]
struct Program {
    instructions: Vec<libc::sock_filter>,
    labels: HashMap<Label, usize>,
    jumps: Vec<(usize, Label)>,
}

impl Program {
    fn put(&mut self, code: u16, value: u32) {
        self.instructions.push(libc::sock_filter { code, jt: 0, jf: 0, k: value });
    }

    fn label(&mut self, label: Label) {
        self.labels.insert(label, self.instructions.len());
    }

    fn jump(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(JUMP, 0);
    }

    /// Jumps if the test holds. Conditional jumps reach 255 instructions only, so they step over one that reaches all.
    fn jump_if(&mut self, test: u16, value: u32, label: Label) {
        self.instructions.push(libc::sock_filter { code: test, jt: 0, jf: 1, k: value });
        self.jump(label);
    }

    fn finish(mut self) -> Option<Vec<libc::sock_filter>> {
        for (at, label) in self.jumps {
            self.instructions[at].k = u32::try_from(self.labels.get(&label)? - at - 1).ok()?;
        }
        (self.instructions.len() <= MOST_INSTRUCTIONS).then_some(self.instructions)
    }
}

/// Packets of TCP from or to the servers, those that may be in tunnels, and of what comes twice on loopback only the one that comes in. None if
/// there are so many ports and addresses that the kernel would not take it.
pub fn filter(options: &PacketOptions) -> Option<Vec<libc::sock_filter>> {
    let mut program = Program::default();
    program.put(LOAD_WORD, PACKET_TYPE);
    // Not outgoing: over the two that look at the device.
    program.instructions.push(libc::sock_filter {
        code: JUMP_EQUAL,
        jt: 0,
        jf: 3,
        k: u32::from(libc::PACKET_OUTGOING),
    });
    program.put(LOAD_WORD, DEVICE_TYPE);
    program.jump_if(JUMP_EQUAL, u32::from(libc::ARPHRD_LOOPBACK), Label::Reject);
    for tags in 0..=2 {
        program.label(Label::Tagged(tags));
        let base = tags * 4;
        if tags == 0 {
            program.put(LOAD_WORD, PROTOCOL);
        } else {
            program.put(LOAD_HALF, base - 2);
        }
        program.jump_if(JUMP_EQUAL, 0x0800, Label::Ipv4(base));
        program.jump_if(JUMP_EQUAL, 0x86dd, Label::Ipv6(base));
        if tags < 2 {
            for protocol in [0x8100, 0x88a8, 0x9100] {
                program.jump_if(JUMP_EQUAL, protocol, Label::Tagged(tags + 1));
            }
        }
        for protocol in BELOW_IP {
            program.jump_if(JUMP_EQUAL, protocol.into(), Label::Accept);
        }
        program.jump(Label::Reject);
    }
    for base in [0, 4, 8] {
        program.label(Label::Ipv4(base));
        program.put(LOAD_BYTE, base + 9);
        program.jump_if(JUMP_EQUAL, 6, Label::Ipv4Tcp(base));
        program.jump_if(JUMP_EQUAL, 17, Label::Ipv4Udp(base));
        program.jump_if(JUMP_EQUAL, 4, Label::IpInIp(base));
        for protocol in ABOVE_IP {
            program.jump_if(JUMP_EQUAL, protocol.into(), Label::Accept);
        }
        program.jump(Label::Reject);
        program.label(Label::Ipv4Tcp(base));
        // The rest of a fragmented packet has no ports.
        program.put(LOAD_HALF, base + 6);
        program.jump_if(JUMP_ANY_BIT, 0x1fff, Label::Reject);
        program.put(INDEX_HEADER_LENGTH, base);
        sides(&mut program, options, base, false);
        program.label(Label::Ipv6(base));
        program.put(LOAD_BYTE, base + 6);
        program.jump_if(JUMP_EQUAL, 6, Label::Ipv6Tcp(base));
        program.jump_if(JUMP_EQUAL, 17, Label::Ipv6Udp(base));
        for extension in [0, 43, 44, 51, 60, 135].into_iter().chain(ABOVE_IP.map(u32::from)) {
            program.jump_if(JUMP_EQUAL, extension, Label::Accept);
        }
        program.jump(Label::Reject);
        program.label(Label::Ipv6Tcp(base));
        sides(&mut program, options, base, true);
        tunnels(&mut program, options, base);
    }
    program.label(Label::Accept);
    program.put(RETURN, WHOLE);
    program.label(Label::Reject);
    program.put(RETURN, 0);
    program.finish()
}

/// Packets of UDP to the ports of tunnels, and IP in IP.
fn tunnels(program: &mut Program, options: &PacketOptions, base: u32) {
    program.label(Label::Ipv6Udp(base));
    program.put(LOAD_HALF, base + 42);
    for port in UDP_PORTS {
        program.jump_if(JUMP_EQUAL, port.into(), Label::Accept);
    }
    program.jump(Label::Reject);
    program.label(Label::Ipv4Udp(base));
    // What mirrors a full packet has to cut its own in pieces, of which only the first has ports.
    program.put(LOAD_HALF, base + 6);
    program.jump_if(JUMP_ANY_BIT, 0x1fff, Label::Accept);
    program.put(INDEX_HEADER_LENGTH, base);
    program.put(LOAD_HALF_INDEXED, base + 2);
    for port in UDP_PORTS {
        let to = if VXLAN_PORTS.contains(&port) { Label::Vxlan(base) } else { Label::Accept };
        program.jump_if(JUMP_EQUAL, port.into(), to);
    }
    program.jump(Label::Reject);
    program.label(Label::Vxlan(base));
    program.put(LOAD_HALF_INDEXED, base + 8 + 8 + 12);
    program.instructions.push(libc::sock_filter { code: JUMP_EQUAL, jt: 1, jf: 0, k: 0x0800 });
    program.jump(Label::Accept);
    inner(program, options, base + 8 + 8 + 14);
    program.label(Label::IpInIp(base));
    program.put(LOAD_HALF, base + 6);
    program.jump_if(JUMP_ANY_BIT, 0x1fff, Label::Accept);
    program.put(INDEX_HEADER_LENGTH, base);
    inner(program, options, base);
}

/// A packet of IPv4 in another one: only that it is TCP of other ports can be told here.
fn inner(program: &mut Program, options: &PacketOptions, at: u32) {
    for (place, expected) in [(0, 0x45), (9, 6)] {
        program.put(LOAD_BYTE_INDEXED, at + place);
        program.instructions.push(libc::sock_filter { code: JUMP_EQUAL, jt: 1, jf: 0, k: expected });
        program.jump(Label::Accept);
    }
    program.put(LOAD_HALF_INDEXED, at + 6);
    program.jump_if(JUMP_ANY_BIT, 0x1fff, Label::Accept);
    for place in [22, 20] {
        program.put(LOAD_HALF_INDEXED, at + place);
        for port in &options.ports {
            program.jump_if(JUMP_EQUAL, u32::from(*port), Label::Accept);
        }
    }
    program.jump(Label::Reject);
}

/// Where a port of a server is, its address must be one too. The side it goes to first, then the one it is from.
fn sides(program: &mut Program, options: &PacketOptions, base: u32, is_ipv6: bool) {
    for is_source in [false, true] {
        let place = Label::Address { base, is_ipv6, is_source };
        let after = if is_source { Label::Reject } else { Label::Source { base, is_ipv6 } };
        let port_at = base + if is_source { 0 } else { 2 };
        if is_ipv6 {
            program.put(LOAD_HALF, port_at + 40);
        } else {
            program.put(LOAD_HALF_INDEXED, port_at);
        }
        let found = if options.addresses.is_empty() { Label::Accept } else { place };
        for port in &options.ports {
            program.jump_if(JUMP_EQUAL, u32::from(*port), found);
        }
        program.jump(after);
        program.label(place);
        for address in &options.addresses {
            match address {
                IpAddr::V4(address) if !is_ipv6 => {
                    program.put(LOAD_WORD, base + if is_source { 12 } else { 16 });
                    program.jump_if(JUMP_EQUAL, (*address).into(), Label::Accept);
                }
                IpAddr::V6(address) if is_ipv6 => {
                    ipv6_address(program, base + if is_source { 8 } else { 24 }, *address);
                }
                _ => {}
            }
        }
        program.jump(after);
        if !is_source {
            program.label(after);
        }
    }
}

fn ipv6_address(program: &mut Program, at: u32, address: Ipv6Addr) {
    let next = Label::Next(program.instructions.len() as u32);
    for (place, word) in address.octets().chunks_exact(4).enumerate() {
        program.put(LOAD_WORD, at + place as u32 * 4);
        let word = word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        program.instructions.push(libc::sock_filter { code: JUMP_EQUAL, jt: 1, jf: 0, k: word });
        program.jump(next);
    }
    program.jump(Label::Accept);
    program.label(next);
}
