//! What comes out of a frame: a packet of TCP, or what there is instead.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::others::Other;

/// One end of a connection. An IPv4 address is in its mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub address: u128,
    pub port: u16,
}

impl Endpoint {
    #[must_use]
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.address).to_canonical()
    }

    #[must_use]
    pub fn socket(self) -> SocketAddr {
        SocketAddr::new(self.ip(), self.port)
    }
}

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const ACK: u8 = 0x10;

/// One packet of TCP.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    pub source: Endpoint,
    pub destination: Endpoint,
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
    /// What was captured of its data, and how much it had.
    pub data: &'a [u8],
    pub length: u32,
    /// The tunnels and tags that it came in; 0 for none.
    pub path: u64,
}

impl Segment<'_> {
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A piece of a packet of IP.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    pub source: u128,
    pub destination: u128,
    pub protocol: u8,
    /// The packet's number, the same in all its pieces.
    pub number: u32,
    /// Where the bytes belong in the packet.
    pub offset: usize,
    pub has_more: bool,
    pub bytes: &'a [u8],
}

/// What a tunnel's header is followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Ethernet,
    /// By an EtherType.
    Network(u16),
    Ip,
    Ppp,
}

#[derive(Debug)]
pub enum Parsed<'a> {
    Segment(Segment<'a>),
    /// No TCP.
    Other(Other),
    /// The outgoing copy of a packet on a loopback device: it comes in as well.
    Copy,
    /// The snap length cut it inside its headers.
    Cut,
    Fragment(Fragment<'a>),
    Damaged(&'static str),
    /// Another packet: its bytes, and its length before the snap length cut it.
    Inside(Content, &'a [u8], usize),
}

/// The content of a tunnel, which begins at `at`.
#[must_use]
pub fn inside(content: Content, bytes: &[u8], wire_bytes: usize, at: usize) -> Parsed<'_> {
    match bytes.get(at..) {
        Some(rest) => Parsed::Inside(content, rest, wire_bytes.saturating_sub(at)),
        None => Parsed::Cut,
    }
}

pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
