//! Link layers: from a captured frame to a TCP packet.

use super::network::{content, ethernet, ip, network};
use super::others::Other;
use super::path::Path;
use super::segment::{Content, Parsed, be16, be32, inside};
use super::wifi::{Head, behind_erf, behind_ppi, captured};

/// In Linux cooked captures: the number for a loopback device, and for outgoing packets.
const LOOPBACK_DEVICE: u16 = 772;
const OUTGOING: u8 = 4;

/// What a frame begins with: a link type from tcpdump.org's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Ethernet,
    /// BSD loopback: four bytes of address family, in either byte order.
    Loopback,
    /// Raw IP.
    Raw,
    /// Linux `-i any`, with the old or the new header.
    Cooked,
    Cooked2,
    /// PPP, also with a PPPoE or Cisco header before it.
    Ppp,
    PppOverEthernet,
    CiscoHdlc,
    /// Packets copied by a rule of the Linux firewall (NFLOG).
    Nflog,
    /// macOS `-i any`: a header that names the link type after it.
    Pktap,
    Wifi(Head),
    /// A header before 802.11 frames that names the link type after it.
    Ppi,
    /// From capture cards.
    Erf,
    /// From the BSD firewall, and BSD IPsec after decryption.
    Pflog,
    Enc,
    Mpls,
    /// PPP after one byte with the direction.
    DirectedPpp,
    /// This many bytes before an Ethernet frame.
    Behind(usize),
    /// A hex dump that leaves out the link layer: it begins with a tag, or with something that is not IP.
    Tagged,
    NoIp,
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
            9 | 50 => Link::Ppp,
            51 => Link::PppOverEthernet,
            104 => Link::CiscoHdlc,
            239 => Link::Nflog,
            149 | 258 => Link::Pktap,
            105 => Link::Wifi(Head::None),
            119 => Link::Wifi(Head::Prism),
            127 => Link::Wifi(Head::Radiotap),
            163 => Link::Wifi(Head::Avs),
            192 => Link::Ppi,
            197 => Link::Erf,
            117 => Link::Pflog,
            109 => Link::Enc,
            219 => Link::Mpls,
            166 | 204 => Link::DirectedPpp,
            240 => Link::Behind(4),
            other => Link::Unknown(other),
        }
    }
}

/// Reads one frame; `wire_bytes` is its length before the snap length cut it. Afterwards `path` describes this frame.
#[must_use]
pub fn parse<'a>(link: Link, frame: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    path.clear();
    let parsed = match link {
        Link::Ethernet => ethernet(frame, wire_bytes, path),
        Link::Pktap => match pktap(frame) {
            Some((link, at)) if link != Link::Pktap => {
                return parse(link, &frame[at..], wire_bytes.saturating_sub(at), path);
            }
            _ => Parsed::Other(Other::Link(258)),
        },
        Link::Ppi => match behind_ppi(frame).map(|(number, at)| (Link::from_number(number), at)) {
            Some((link, at)) if link != Link::Ppi => {
                return parse(link, &frame[at..], wire_bytes.saturating_sub(at), path);
            }
            _ => Parsed::Other(Other::Link(192)),
        },
        link => other_link(link, frame, wire_bytes, path),
    };
    match parsed {
        Parsed::Inside(..) => content(parsed, path),
        parsed => parsed,
    }
}

fn other_link<'a>(link: Link, frame: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    let start = match link {
        Link::Raw => return ip(frame, wire_bytes, path),
        Link::Loopback => {
            let Some(family) = be32(frame, 0) else { return Parsed::Cut };
            // 2 is AF_INET everywhere; AF_INET6 is 10 on Linux, 24, 28 or 30 on the BSDs.
            let family = family.min(family.swap_bytes());
            return match family {
                2 | 10 | 24 | 28 | 30 => ip(&frame[4..], wire_bytes.saturating_sub(4), path),
                _ => Parsed::Other(Other::Named("no IP on a loopback device")),
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
        Link::Ppp => return Parsed::Inside(Content::Ppp, frame, wire_bytes),
        Link::DirectedPpp => return inside(Content::Ppp, frame, wire_bytes, 1),
        Link::Wifi(head) => return captured(head, frame, wire_bytes),
        Link::Erf => match behind_erf(frame) {
            Some(at) => return inside(Content::Ethernet, frame, wire_bytes, at),
            None => return Parsed::Other(Other::Link(197)),
        },
        Link::Pflog => {
            let Some(&length) = frame.first() else { return Parsed::Cut };
            return inside(Content::Ip, frame, wire_bytes, usize::from(length).next_multiple_of(4));
        }
        Link::Enc => return inside(Content::Ip, frame, wire_bytes, 12),
        Link::Behind(at) => return inside(Content::Ethernet, frame, wire_bytes, at),
        Link::Mpls => (!frame.is_empty()).then_some((super::tunnels::MPLS, 0)),
        Link::PppOverEthernet => (!frame.is_empty()).then_some((0x8864, 0)),
        Link::CiscoHdlc => be16(frame, 2).map(|protocol| (protocol, 4)),
        Link::Nflog => return nflog(frame, wire_bytes, path),
        Link::Tagged => (!frame.is_empty()).then_some((0x8100, 0)),
        Link::NoIp => return Parsed::Other(Other::Named("no IP in a text of tcpdump")),
        Link::Unknown(number) => return Parsed::Other(Other::Link(number)),
        Link::Ethernet | Link::Pktap | Link::Ppi => None,
    };
    match start {
        Some((protocol, at)) => network(protocol, &frame[at..], wire_bytes.saturating_sub(at), path),
        None => Parsed::Cut,
    }
}

/// The header's length, a type, and the link type, all little-endian.
fn pktap(frame: &[u8]) -> Option<(Link, usize)> {
    let word = |at| be32(frame, at).map(u32::swap_bytes);
    let at = word(0)? as usize;
    let link = Link::from_number(u16::try_from(word(8)?).ok()?);
    (at >= 12 && at <= frame.len()).then_some((link, at))
}

/// Attributes set by the capturing host; one of them is the packet.
fn nflog<'a>(frame: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    const PAYLOAD: u16 = 9;
    let mut at = 4;
    while let Some(head) = frame.get(at..at + 4) {
        let native = |high: u8, low: u8| u16::from_le_bytes([high, low]);
        let (length, kind) = (usize::from(native(head[0], head[1])), native(head[2], head[3]));
        if length < 4 {
            break;
        }
        if kind & 0x7fff == PAYLOAD {
            let end = frame.len().min(at + length);
            return ip(&frame[at + 4..end], (length - 4).min(wire_bytes), path);
        }
        at += length.next_multiple_of(4);
    }
    Parsed::Cut
}
