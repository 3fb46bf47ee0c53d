//! Makes captures: packets of TCP in frames of any link layer, in files of any format.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::packets::segment::{ACK, FIN, RST, SYN};
use crate::stream::{Opened, Side, Streams};

pub const START_NS: u64 = 1_700_000_000_000_000_000;

#[derive(Clone, Debug)]
pub struct Packet {
    pub time_ns: u64,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
    pub data: Vec<u8>,
}

impl Packet {
    pub fn tcp(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.from.port().to_be_bytes());
        bytes.extend(self.to.port().to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledged.to_be_bytes());
        // Twelve bytes of options, and a checksum that is wrong.
        bytes.extend([0x80, self.flags, 0xff, 0xff, 0xde, 0xad, 0, 0]);
        bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        bytes.extend(&self.data);
        bytes
    }

    pub fn ip(&self) -> Vec<u8> {
        let tcp = self.tcp();
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, 6, &[], &tcp),
            (IpAddr::V6(from), IpAddr::V6(to)) => ipv6(from, to, 6, &tcp),
            _ => panic!("addresses of two kinds"),
        }
    }

    fn protocol(&self) -> [u8; 2] {
        if self.from.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] }
    }

    pub fn ethernet(&self) -> Vec<u8> {
        self.tagged(&[])
    }

    pub fn tagged(&self, tags: &[[u8; 2]]) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        for tag in tags {
            bytes.extend(tag);
            bytes.extend([0x20, 0x07]);
        }
        bytes.extend(self.protocol());
        bytes.extend(self.ip());
        // As a card pads it.
        bytes.resize(bytes.len().max(60), 0);
        bytes
    }

    pub fn cooked(&self, kind: u8, device: u16) -> Vec<u8> {
        let mut bytes = vec![0, kind];
        bytes.extend(device.to_be_bytes());
        bytes.extend([0, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(self.protocol());
        bytes.extend(self.ip());
        bytes
    }

    pub fn cooked2(&self, kind: u8, device: u16) -> Vec<u8> {
        let mut bytes = self.protocol().to_vec();
        bytes.extend([0, 0, 0, 0, 0, 1]);
        bytes.extend(device.to_be_bytes());
        bytes.extend([kind, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(self.ip());
        bytes
    }
}

pub fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let header_bytes = 20 + options.len();
    // Too long for its field: as with segmentation offload.
    let total = u16::try_from(header_bytes + payload.len()).unwrap_or(0);
    let mut bytes = vec![0x40 | (header_bytes / 4) as u8, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 7, 0x40, 0, 64, protocol, 0, 0]);
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

pub fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(u16::try_from(payload.len()).unwrap_or(0).to_be_bytes());
    bytes.extend([next, 64]);
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    bytes.extend(payload);
    bytes
}

/// One connection whose packets are made in the order in which they are sent.
#[derive(Clone)]
pub struct Talk {
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub client_next: u32,
    pub server_next: u32,
    pub time_ns: u64,
    pub packets: Vec<Packet>,
}

impl Talk {
    pub fn new(port: u16, client_isn: u32, server_isn: u32) -> Self {
        Self {
            client: SocketAddr::from(([10, 0, 0, 1], port)),
            server: SocketAddr::from(([10, 0, 0, 2], 3306)),
            client_next: client_isn,
            server_next: server_isn,
            time_ns: START_NS,
            packets: Vec::new(),
        }
    }

    pub fn packet(&mut self, side: Side, flags: u8, data: &[u8]) -> &mut Packet {
        self.time_ns += 1000;
        let (from, to, sequence, acknowledged) = match side {
            Side::Client => (self.client, self.server, self.client_next, self.server_next),
            Side::Server => (self.server, self.client, self.server_next, self.client_next),
        };
        let acknowledged = if flags & ACK != 0 { acknowledged } else { 0 };
        let takes = data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        let next = match side {
            Side::Client => &mut self.client_next,
            Side::Server => &mut self.server_next,
        };
        *next = next.wrapping_add(takes);
        let data = data.to_vec();
        let time_ns = self.time_ns;
        self.packets.push(Packet { time_ns, from, to, sequence, acknowledged, flags, data });
        self.packets.last_mut().unwrap()
    }

    pub fn shake(&mut self) {
        self.packet(Side::Client, SYN, b"");
        self.packet(Side::Server, SYN | ACK, b"");
        self.packet(Side::Client, ACK, b"");
    }

    pub fn say(&mut self, side: Side, data: &[u8]) {
        self.packet(side, ACK, data);
    }

    pub fn end(&mut self) {
        self.packet(Side::Client, FIN | ACK, b"");
        self.packet(Side::Server, FIN | ACK, b"");
        self.packet(Side::Client, ACK, b"");
    }

    pub fn reset(&mut self, side: Side) {
        self.packet(side, RST | ACK, b"");
    }
}

/// A file of tcpdump's older format.
pub fn pcap(link: u32, frames: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Vec<u8> {
    pcap_as(link, true, false, 1 << 18, frames)
}

pub fn pcap_as(
    link: u32,
    has_ns: bool,
    is_big: bool,
    snap_bytes: usize,
    frames: impl IntoIterator<Item = (u64, Vec<u8>)>,
) -> Vec<u8> {
    let word = |value: u32| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut bytes = Vec::new();
    bytes.extend(word(if has_ns { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
    bytes.extend(word(if is_big { 0x0002_0004 } else { 0x0004_0002 }));
    for value in [0, 0, snap_bytes as u32, link] {
        bytes.extend(word(value));
    }
    for (time_ns, frame) in frames {
        let captured = frame.len().min(snap_bytes);
        let fraction = (time_ns % 1_000_000_000) as u32 / if has_ns { 1 } else { 1000 };
        for value in [(time_ns / 1_000_000_000) as u32, fraction, captured as u32, frame.len() as u32] {
            bytes.extend(word(value));
        }
        bytes.extend(&frame[..captured]);
    }
    bytes
}

pub fn ethernet(packets: &[Packet]) -> Vec<u8> {
    pcap(1, packets.iter().map(|packet| (packet.time_ns, packet.ethernet())))
}

/// What streams carried, a line a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Opened(Opened2),
    Bytes(u64, u64, Side, Vec<u8>),
    Gap(u64, Side, Option<u64>),
    Closed(u64),
    Cut(u64),
}

/// `Opened`, comparable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Opened2 {
    pub session: u64,
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub is_midstream: bool,
}

/// Keeps all calls, and checks that they keep to the contract.
#[derive(Default)]
pub struct Calls {
    pub calls: Vec<Call>,
    open: std::collections::HashSet<u64>,
    last_session: u64,
}

impl Streams for Calls {
    fn opened(&mut self, _time_ns: u64, opened: &Opened) -> anyhow::Result<()> {
        let Opened { session, client, server, is_midstream } = *opened;
        assert!(session > 0 && self.open.insert(session), "a session that was there already");
        self.last_session = session;
        self.calls.push(Call::Opened(Opened2 { session, client, server, is_midstream }));
        Ok(())
    }

    fn bytes(&mut self, time_ns: u64, session: u64, from: Side, bytes: &[u8]) -> anyhow::Result<()> {
        assert!(self.open.contains(&session) && !bytes.is_empty());
        self.calls.push(Call::Bytes(time_ns, session, from, bytes.to_vec()));
        Ok(())
    }

    fn gap(&mut self, _time_ns: u64, session: u64, from: Side, missing: Option<u64>) -> anyhow::Result<()> {
        assert!(self.open.contains(&session) && missing != Some(0));
        self.calls.push(Call::Gap(session, from, missing));
        Ok(())
    }

    fn closed(&mut self, _time_ns: u64, session: u64) -> anyhow::Result<()> {
        assert!(self.open.remove(&session), "closed twice, or never open");
        self.calls.push(Call::Closed(session));
        Ok(())
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        assert!(self.open.remove(&session), "closed before, or never open");
        self.calls.push(Call::Cut(session));
        Ok(())
    }
}

impl Calls {
    /// What one side of a session said, in one piece; a gap is that many `~`, at most 9.
    pub fn said(&self, session: u64, side: Side) -> Vec<u8> {
        let mut said = Vec::new();
        for call in &self.calls {
            match call {
                Call::Bytes(_, of, from, bytes) if (*of, *from) == (session, side) => said.extend(bytes),
                Call::Gap(of, from, missing) if (*of, *from) == (session, side) => {
                    said.extend(vec![b'~'; missing.unwrap_or(9).min(9) as usize]);
                }
                _ => {}
            }
        }
        said
    }

    pub fn opened(&self) -> Vec<Opened2> {
        let opened = |call: &Call| if let Call::Opened(opened) = call { Some(*opened) } else { None };
        self.calls.iter().filter_map(opened).collect()
    }

    /// Sessions that ended, or were let go of.
    pub fn closed(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call, Call::Closed(_) | Call::Cut(_))).count()
    }
}
