//! From a captured frame to a segment of TCP: link layers, VLAN tags, IPv4 and IPv6.
//!
//! Checksums are never looked at: with offloads the sending host captures its packets before the card fills them in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// More tags than are ever stacked.
const MOST_TAGS: usize = 4;
const TCP: u8 = 6;
/// Linux's number of a loopback device in cooked captures, and of packets on their way out.
const LOOPBACK_DEVICE: u16 = 772;
const OUTGOING: u8 = 4;
/// More extension headers than any real packet has.
const MOST_EXTENSIONS: usize = 8;

/// What a frame begins with: the link type of tcpdump.org's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Ethernet,
    /// BSD loopback: four bytes of address family, in either byte order.
    Loopback,
    /// IP with nothing before it.
    Raw,
    /// Linux `-i any`, the old and the new header.
    Cooked,
    Cooked2,
    Unknown(u16),
}

impl Link {
    #[must_use]
    pub fn from_number(number: u16) -> Self {
        match number {
            1 => Link::Ethernet,
            0 | 108 => Link::Loopback,
            12 | 14 | 101 | 228 | 229 => Link::Raw,
            113 => Link::Cooked,
            276 => Link::Cooked2,
            other => Link::Unknown(other),
        }
    }
}

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
}

impl Segment<'_> {
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

#[derive(Debug)]
pub enum Parsed<'a> {
    Segment(Segment<'a>),
    /// No TCP.
    Other,
    /// The outgoing copy of a packet on a loopback device: it comes in as well.
    Copy,
    /// The snap length cut it inside its headers.
    Cut,
    /// The rest of a packet of TCP that was sent in fragments; its first fragment is a segment.
    Fragment,
    Damaged(&'static str),
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads one frame; `wire_bytes` is its length before the snap length cut it.
#[must_use]
pub fn parse(link: Link, frame: &[u8], wire_bytes: usize) -> Parsed<'_> {
    let start = match link {
        Link::Ethernet => be16(frame, 12).map(|protocol| (protocol, 14)),
        Link::Raw => return ip(frame, wire_bytes),
        Link::Loopback => {
            let Some(family) = be32(frame, 0) else { return Parsed::Cut };
            // 2 is AF_INET everywhere; AF_INET6 is 10 on Linux, 24, 28 or 30 on the BSDs.
            let family = family.min(family.swap_bytes());
            return match family {
                2 | 10 | 24 | 28 | 30 => ip(&frame[4..], wire_bytes.saturating_sub(4)),
                _ => Parsed::Other,
            };
        }
        Link::Cooked => {
            if be16(frame, 0) == Some(OUTGOING.into()) && be16(frame, 2) == Some(LOOPBACK_DEVICE) {
                return Parsed::Copy;
            }
            be16(frame, 14).map(|protocol| (protocol, 16))
        }
        Link::Cooked2 => {
            if frame.get(10) == Some(&OUTGOING) && be16(frame, 8) == Some(LOOPBACK_DEVICE) {
                return Parsed::Copy;
            }
            (frame.len() >= 20).then(|| be16(frame, 0).map(|protocol| (protocol, 20))).flatten()
        }
        Link::Unknown(_) => return Parsed::Other,
    };
    match start {
        Some((protocol, at)) => network(protocol, &frame[at..], wire_bytes.saturating_sub(at)),
        None => Parsed::Cut,
    }
}

/// What follows an EtherType.
#[must_use]
pub fn network(mut protocol: u16, mut bytes: &[u8], mut wire_bytes: usize) -> Parsed<'_> {
    for _ in 0..MOST_TAGS {
        if !VLAN_TAGS.contains(&protocol) {
            break;
        }
        let Some(inner) = be16(bytes, 2) else { return Parsed::Cut };
        protocol = inner;
        bytes = &bytes[4..];
        wire_bytes = wire_bytes.saturating_sub(4);
    }
    match protocol {
        IPV4 | IPV6 => ip(bytes, wire_bytes),
        _ => Parsed::Other,
    }
}

fn ip(bytes: &[u8], wire_bytes: usize) -> Parsed<'_> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => ipv4(bytes, wire_bytes),
        Some(6) => ipv6(bytes, wire_bytes),
        Some(_) => Parsed::Damaged("neither IPv4 nor IPv6"),
        None => Parsed::Cut,
    }
}

fn ipv4(bytes: &[u8], wire_bytes: usize) -> Parsed<'_> {
    let Some(header) = bytes.first_chunk::<20>() else { return Parsed::Cut };
    if header[9] != TCP {
        return Parsed::Other;
    }
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
        // The card was to cut it into packets: longer than the field can say.
        0 => wire_bytes,
        total => total,
    };
    if header_bytes < 20 || total < header_bytes {
        return Parsed::Damaged("lengths of IPv4 that cannot be");
    }
    if u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
        return Parsed::Fragment;
    }
    let mapped = |address: [u8; 4]| u128::from(Ipv4Addr::from(address).to_ipv6_mapped());
    let source = mapped([header[12], header[13], header[14], header[15]]);
    let destination = mapped([header[16], header[17], header[18], header[19]]);
    let captured = bytes.len().min(total);
    match bytes.get(header_bytes..captured) {
        Some(rest) => tcp(source, destination, rest, total - header_bytes),
        None => Parsed::Cut,
    }
}

fn ipv6(bytes: &[u8], wire_bytes: usize) -> Parsed<'_> {
    let Some(header) = bytes.first_chunk::<40>() else { return Parsed::Cut };
    let mut total = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        // As above, or a jumbogram: its length is in an option and is that of the packet.
        0 => wire_bytes.saturating_sub(40),
        length => length,
    };
    let mut rest = &bytes[40..bytes.len().min(40 + total)];
    let mut next = header[6];
    for _ in 0..MOST_EXTENSIONS {
        if next == TCP {
            let address = |at: usize| header[at..].first_chunk().map_or(0, |a| u128::from_be_bytes(*a));
            return tcp(address(8), address(24), rest, total);
        }
        let length = match next {
            // Hop by hop, routing, destination options, mobility.
            0 | 43 | 60 | 135 => rest.get(1).map(|&units| (usize::from(units) + 1) * 8),
            44 => match be16(rest, 2) {
                Some(place) if place & 0xfff8 != 0 && rest[0] == TCP => return Parsed::Fragment,
                Some(_) => Some(8),
                None => None,
            },
            // Authentication.
            51 => rest.get(1).map(|&units| (usize::from(units) + 2) * 4),
            _ => return Parsed::Other,
        };
        match (length, length.and_then(|length| rest.get(length..))) {
            (Some(length), Some(after)) => {
                next = rest[0];
                rest = after;
                total -= length.min(total);
            }
            _ if rest.len() < total => return Parsed::Cut,
            _ => return Parsed::Damaged("an extension header of IPv6 longer than its packet"),
        }
    }
    Parsed::Damaged("too many extension headers of IPv6")
}

/// `total` is the length of TCP's header and data on the wire; `bytes` what was captured of it.
fn tcp(source: u128, destination: u128, bytes: &[u8], total: usize) -> Parsed<'_> {
    let Some(header) = bytes.first_chunk::<20>() else {
        return if total < 20 { Parsed::Damaged("too short for TCP") } else { Parsed::Cut };
    };
    let header_bytes = usize::from(header[12] >> 4) * 4;
    if header_bytes < 20 || header_bytes > total {
        return Parsed::Damaged("a length of TCP's header that cannot be");
    }
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Parsed::Segment(Segment {
        source: Endpoint { address: source, port: u16::from_be_bytes([header[0], header[1]]) },
        destination: Endpoint { address: destination, port: u16::from_be_bytes([header[2], header[3]]) },
        sequence: word(4),
        acknowledged: word(8),
        flags: header[13],
        data: bytes.get(header_bytes..).unwrap_or_default(),
        length: u32::try_from(total - header_bytes).unwrap_or(0),
    })
}
