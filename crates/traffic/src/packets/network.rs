//! From an EtherType to a packet of TCP: tags, IPv4 and IPv6, and the tunnels in them.
//!
//! Checksums are never looked at: with offloads the sending host captures its packets before the card fills them in.

use std::net::Ipv4Addr;

use super::others::Other;
use super::path::{Kind, Path};
use super::segment::{Content, Endpoint, Fragment, Parsed, Segment, be16, be32, inside};
use super::tunnels::{IPV4, IPV6, MPLS, TOO_DEEP, above_ip, below_ip};

const VLAN_TAGS: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
/// Smaller numbers are the length of an older frame.
const FIRST_ETHERTYPE: u16 = 0x0600;
const TCP: u8 = 6;
/// More extension headers than any real packet has.
const MOST_EXTENSIONS: usize = 8;

/// The content of a layer, until there is no further one.
#[must_use]
pub fn content<'a>(mut parsed: Parsed<'a>, path: &mut Path) -> Parsed<'a> {
    // Each turn has entered a layer, or is one of the few steps between two; so it ends without this, too.
    for _ in 0..64 {
        parsed = match parsed {
            Parsed::Inside(Content::Ethernet, bytes, wire_bytes) => ethernet(bytes, wire_bytes, path),
            Parsed::Inside(Content::Network(protocol), bytes, wire_bytes) => {
                network(protocol, bytes, wire_bytes, path)
            }
            Parsed::Inside(Content::Ip, bytes, wire_bytes) => ip(bytes, wire_bytes, path),
            Parsed::Inside(Content::Ppp, bytes, wire_bytes) => ppp(bytes, wire_bytes, path),
            parsed => return parsed,
        };
    }
    TOO_DEEP
}

#[inline]
#[must_use]
pub fn ethernet<'a>(bytes: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    match be16(bytes, 12) {
        Some(protocol) => network(protocol, &bytes[14..], wire_bytes.saturating_sub(14), path),
        None => Parsed::Cut,
    }
}

/// What follows an EtherType.
#[inline]
#[must_use]
pub fn network<'a>(
    mut protocol: u16,
    mut bytes: &'a [u8],
    mut wire_bytes: usize,
    path: &mut Path,
) -> Parsed<'a> {
    while VLAN_TAGS.contains(&protocol) {
        let (Some(tag), Some(inner)) = (be16(bytes, 0), be16(bytes, 2)) else { return Parsed::Cut };
        if !path.enter(Kind::Vlan, (tag & 0xfff).into()) {
            return TOO_DEEP;
        }
        protocol = inner;
        bytes = &bytes[4..];
        wire_bytes = wire_bytes.saturating_sub(4);
    }
    match protocol {
        IPV4 | IPV6 => ip(bytes, wire_bytes, path),
        ..FIRST_ETHERTYPE => match bytes {
            // A frame with a length has its protocol behind two headers.
            [0xaa, 0xaa, 3, 0, 0, 0, high, low, rest @ ..] => Parsed::Inside(
                Content::Network(u16::from_be_bytes([*high, *low])),
                rest,
                wire_bytes.saturating_sub(8),
            ),
            _ => Parsed::Other(Other::Named("LLC (spanning tree and the like)")),
        },
        _ => below_ip(protocol, bytes, wire_bytes, path).unwrap_or(Parsed::Other(Other::Ether(protocol))),
    }
}

fn ppp<'a>(bytes: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    // Address and control may be left out, and the first byte of the protocol.
    let start = if bytes.starts_with(&[0xff, 3]) { 2 } else { 0 };
    let rest = &bytes[start..];
    let (protocol, at) = match rest {
        [first, ..] if first & 1 == 1 => (u16::from(*first), 1),
        [high, low, ..] => (u16::from_be_bytes([*high, *low]), 2),
        _ => return Parsed::Cut,
    };
    match protocol {
        0x21 | 0x57 => ip(&rest[at..], wire_bytes.saturating_sub(start + at), path),
        0x281 | 0x283 => inside(Content::Network(MPLS), bytes, wire_bytes, start + at),
        // Of 802.3, with flags and its type in front.
        0x31 if matches!(rest.get(at + 1), Some(1)) => {
            inside(Content::Ethernet, bytes, wire_bytes, start + at + 2)
        }
        0x53 | 0x55 => Parsed::Other(Other::Named("PPP, encrypted")),
        0xfd | 0xfb => Parsed::Other(Other::Named("PPP, compressed or encrypted")),
        0x3d => Parsed::Other(Other::Named("PPP in several links")),
        0x2d | 0x2f => Parsed::Other(Other::Named("PPP with headers of TCP compressed")),
        _ => Parsed::Other(Other::Named("PPP without IP")),
    }
}

#[inline]
#[must_use]
pub fn ip<'a>(bytes: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => ipv4(bytes, wire_bytes, path),
        Some(6) => ipv6(bytes, wire_bytes, path),
        Some(_) => Parsed::Damaged("neither IPv4 nor IPv6"),
        None => Parsed::Cut,
    }
}

#[inline]
fn ipv4<'a>(bytes: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    let Some(header) = bytes.first_chunk::<20>() else { return Parsed::Cut };
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
        // The card was to cut it into packets: longer than the field can say.
        0 => wire_bytes,
        total => total,
    };
    let protocol = header[9];
    if header_bytes < 20 || total < header_bytes {
        return match protocol {
            TCP => Parsed::Damaged("lengths of IPv4 that cannot be"),
            _ => Parsed::Other(Other::Ip(protocol)),
        };
    }
    let mapped = |address: [u8; 4]| u128::from(Ipv4Addr::from(address).to_ipv6_mapped());
    let source = mapped([header[12], header[13], header[14], header[15]]);
    let destination = mapped([header[16], header[17], header[18], header[19]]);
    let captured = bytes.len().min(total);
    let Some(rest) = bytes.get(header_bytes..captured) else { return Parsed::Cut };
    let place = u16::from_be_bytes([header[6], header[7]]);
    if place & 0x3fff != 0 {
        let number = u32::from(u16::from_be_bytes([header[4], header[5]]));
        let (offset, has_more) = (usize::from(place & 0x1fff) * 8, place & 0x2000 != 0);
        let fragment = Fragment { source, destination, protocol, number, offset, has_more, bytes: rest };
        return piece(fragment, total - header_bytes, path);
    }
    if protocol == TCP {
        return tcp((source, destination), rest, total - header_bytes, path.key());
    }
    payload((source, destination), protocol, rest, total - header_bytes, path)
}

/// A piece of a packet. One that the snap length cut is of use only if it is the first.
fn piece<'a>(fragment: Fragment<'a>, wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    if fragment.bytes.len() == wire_bytes {
        return Parsed::Fragment(fragment);
    }
    match fragment.offset {
        0 => {
            let ends = (fragment.source, fragment.destination);
            payload(ends, fragment.protocol, fragment.bytes, wire_bytes, path)
        }
        _ => Parsed::Cut,
    }
}

fn ipv6<'a>(bytes: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    let Some(header) = bytes.first_chunk::<40>() else { return Parsed::Cut };
    let total = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        // As above, or a jumbogram: its length is in an option and is that of the packet.
        0 => wire_bytes.saturating_sub(40),
        length => length,
    };
    let rest = &bytes[40..bytes.len().min(40 + total)];
    let address = |at: usize| header[at..].first_chunk().map_or(0, |a| u128::from_be_bytes(*a));
    payload((address(8), address(24)), header[6], rest, total, path)
}

/// What follows a header of IP: `total` bytes on the wire, of which `bytes` were captured.
#[must_use]
pub fn payload<'a>(
    ends: (u128, u128),
    protocol: u8,
    bytes: &'a [u8],
    mut total: usize,
    path: &mut Path,
) -> Parsed<'a> {
    let (mut next, mut rest) = (protocol, bytes);
    for _ in 0..MOST_EXTENSIONS {
        if next == TCP {
            return tcp(ends, rest, total, path.key());
        }
        let length = match next {
            // Hop by hop, routing, destination options, mobility.
            0 | 43 | 60 | 135 => rest.get(1).map(|&units| (usize::from(units) + 1) * 8),
            44 => match (be16(rest, 2), be32(rest, 4)) {
                (Some(place), Some(number)) if place & 0xfff9 != 0 => {
                    let fragment = Fragment {
                        source: ends.0,
                        destination: ends.1,
                        protocol: rest[0],
                        number,
                        offset: usize::from(place & 0xfff8),
                        has_more: place & 1 != 0,
                        bytes: &rest[8..],
                    };
                    return piece(fragment, total.saturating_sub(8), path);
                }
                (Some(_), Some(_)) => Some(8),
                _ => None,
            },
            // Authentication.
            51 => rest.get(1).map(|&units| (usize::from(units) + 2) * 4),
            _ => {
                path.between(ends.0, ends.1);
                let is_ipv6 = ends.0 >> 32 != 0xffff;
                return above_ip(next, is_ipv6, rest, total, path).unwrap_or(Parsed::Other(Other::Ip(next)));
            }
        };
        match (length, length.and_then(|length| rest.get(length..))) {
            (Some(length), Some(after)) => {
                next = rest[0];
                rest = after;
                total -= length.min(total);
            }
            _ if rest.len() < total => return Parsed::Cut,
            _ => return Parsed::Damaged("an extension header of IP longer than its packet"),
        }
    }
    Parsed::Damaged("too many extension headers of IPv6")
}

/// `total` is the length of TCP's header and data on the wire; `bytes` what was captured of it.
#[inline]
fn tcp(ends: (u128, u128), bytes: &[u8], total: usize, path: u64) -> Parsed<'_> {
    let Some(header) = bytes.first_chunk::<20>() else {
        return if total < 20 { Parsed::Damaged("too short for TCP") } else { Parsed::Cut };
    };
    let header_bytes = usize::from(header[12] >> 4) * 4;
    if header_bytes < 20 || header_bytes > total {
        return Parsed::Damaged("a length of TCP's header that cannot be");
    }
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Parsed::Segment(Segment {
        source: Endpoint { address: ends.0, port: u16::from_be_bytes([header[0], header[1]]) },
        destination: Endpoint { address: ends.1, port: u16::from_be_bytes([header[2], header[3]]) },
        sequence: word(4),
        acknowledged: word(8),
        flags: header[13],
        data: bytes.get(header_bytes..).unwrap_or_default(),
        length: u32::try_from(total - header_bytes).unwrap_or(0),
        path,
    })
}
