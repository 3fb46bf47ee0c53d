//! Tunnel headers: what they carry and where it begins. Mirrored traffic arrives in them: VXLAN from clouds, GRE and ERSPAN
//! from switches, Geneve from gateway load balancers.
//!
//! Sources: RFC 7348 (VXLAN), draft-ietf-nvo3-vxlan-gpe, RFC 8926 (Geneve), RFC 2784, 2890 and 7637 (GRE, its key,
//! NVGRE), RFC 2637 (PPTP), draft-foschiano-erspan, 3GPP TS 29.281 (GTP-U), RFC 3032 (MPLS), RFC 8300 (NSH).

pub use super::layers::{IPV4, IPV6, MPLS, NSH, TOO_DEEP};
use super::layers::{enter, is_frame};
use super::others::{Other, seen_in_udp};
use super::path::{Kind, Path};
use super::rarer;
use super::segment::{Content, Parsed, be16, be32, inside};

pub const BRIDGED: u16 = 0x6558;
const PPP: u16 = 0x880b;
/// What a live capture's filter accepts without looking inside: UDP ports, IP protocols and EtherTypes.
pub const UDP_PORTS: [u16; 8] = [VXLAN_PORTS[0], VXLAN_PORTS[1], 4790, 6081, 2152, 6635, 4754, 37008];
pub const VXLAN_PORTS: [u16; 2] = [4789, 8472];
pub const ABOVE_IP: [u8; 6] = [4, 41, 47, 97, 137, 143];
pub const BELOW_IP: [u16; 9] = [MPLS, 0x8848, 0x8864, BRIDGED, NSH, 0x88e7, 0x22f3, 0x8926, 0x893f];
const UDP_HEADER: usize = 8;

/// A UDP packet: a tunnel if its port and its header agree, or if its content alone leaves no doubt.
pub fn udp<'a>(bytes: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    let (Some(source), Some(destination)) = (be16(bytes, 0), be16(bytes, 2)) else { return Parsed::Cut };
    let Some(payload) = bytes.get(UDP_HEADER..) else { return Parsed::Cut };
    let whole = (payload, wire_bytes.saturating_sub(UDP_HEADER));
    let found = match destination {
        4790 => vxlan(whole, path, true),
        4789 | 8472 => vxlan(whole, path, false),
        6081 => geneve(whole, path, false),
        2152 => gtp(whole, path),
        6635 => inner_mpls(whole),
        4754 => Some(gre(payload, whole.1, path)),
        37008 => tzsp(whole, path),
        _ => None,
    };
    let found = found
        .or_else(|| is_certain_vxlan(payload).then(|| vxlan(whole, path, false))?)
        .or_else(|| geneve(whole, path, true))
        .or_else(|| rarer::udp([source, destination], whole, path));
    found.unwrap_or_else(|| Parsed::Other(Other::Udp(source.min(destination), seen_in_udp(payload, whole.1))))
}

/// A header without undefined bits, followed by a frame with IP or a VLAN tag.
fn is_certain_vxlan(payload: &[u8]) -> bool {
    matches!(payload, [8, 0, 0, 0, _, _, _, 0, frame @ ..] if is_frame(frame))
}

fn vxlan<'a>(whole: (&'a [u8], usize), path: &mut Path, is_generic: bool) -> Option<Parsed<'a>> {
    let header = whole.0.first_chunk::<8>()?;
    if header[0] & 0x08 == 0 {
        return None;
    }
    let content = match header[3] {
        _ if !is_generic && header[0] & 0x04 == 0 => Content::Ethernet,
        // Receivers ignore what is reserved, whatever senders put there.
        _ if !is_generic && !(1..=5).contains(&header[3]) && is_frame(&whole.0[8..]) => Content::Ethernet,
        1 => Content::Network(IPV4),
        2 => Content::Network(IPV6),
        3 => Content::Ethernet,
        4 => Content::Network(NSH),
        5 => Content::Network(MPLS),
        _ => return None,
    };
    let network = u32::from_be_bytes([0, header[4], header[5], header[6]]);
    Some(enter(path, (Kind::Vxlan, network), content, whole, 8))
}

/// `is_guess` if the port says nothing about it.
fn geneve<'a>(whole: (&'a [u8], usize), path: &mut Path, is_guess: bool) -> Option<Parsed<'a>> {
    let header = whole.0.first_chunk::<8>()?;
    let at = 8 + usize::from(header[0] & 0x3f) * 4;
    let protocol = u16::from_be_bytes([header[2], header[3]]);
    if header[0] & 0xc0 != 0 || !matches!(protocol, BRIDGED | IPV4 | IPV6 | MPLS | NSH) {
        return None;
    }
    if is_guess {
        let inner = whole.0.get(at..)?;
        let is_inner = match protocol {
            BRIDGED => is_frame(inner),
            IPV4 => inner.first().is_some_and(|first| (0x45..=0x4f).contains(first)),
            IPV6 => inner.first().is_some_and(|first| first >> 4 == 6),
            _ => false,
        };
        if header[1] & 0x3f != 0 || header[7] != 0 || !is_inner {
            return None;
        }
    }
    let network = u32::from_be_bytes([0, header[4], header[5], header[6]]);
    // Gateways of clouds leave the number 0 and name the endpoint in an option.
    let options = whole.0.get(8..at).unwrap_or_default();
    let found = enter(path, (Kind::Geneve, network), Content::Network(protocol), whole, at);
    for word in options.chunks_exact(4) {
        path.mix(u64::from(be32(word, 0).unwrap_or(0)));
    }
    Some(found)
}

fn gtp<'a>(whole: (&'a [u8], usize), path: &mut Path) -> Option<Parsed<'a>> {
    let header = whole.0.first_chunk::<8>()?;
    // Version 1, GTP and not GTP', user data.
    if header[0] & 0xf0 != 0x30 || header[1] != 255 {
        return None;
    }
    let tunnel = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let mut at = 8;
    if header[0] & 7 != 0 {
        at += 4;
        let mut next = *whole.0.get(at - 1)?;
        while header[0] & 4 != 0 && next != 0 {
            let length = usize::from(*whole.0.get(at)?) * 4;
            if length == 0 {
                return None;
            }
            at += length;
            next = *whole.0.get(at - 1)?;
        }
    }
    Some(enter(path, (Kind::GtpU, tunnel), Content::Ip, whole, at))
}

fn inner_mpls(whole: (&[u8], usize)) -> Option<Parsed<'_>> {
    Some(Parsed::Inside(Content::Network(MPLS), whole.0, whole.1))
}

/// TZSP, as MikroTik's sniffer sends it: tags, then a frame.
fn tzsp<'a>(whole: (&'a [u8], usize), path: &mut Path) -> Option<Parsed<'a>> {
    let [1, 0 | 1, 0, 1, tags @ ..] = whole.0 else { return None };
    let mut at = 4;
    let mut tags = tags;
    loop {
        let used = match *tags {
            [0, ..] => 1,
            [1, ..] => return Some(enter(path, (Kind::Tzsp, 0), Content::Ethernet, whole, at + 1)),
            [_, length, ..] => 2 + usize::from(length),
            _ => return None,
        };
        at += used;
        tags = tags.get(used..)?;
    }
}

/// GRE, starting at its flags.
pub fn gre<'a>(bytes: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    let whole = (bytes, wire_bytes);
    let (Some(flags), Some(protocol)) = (be16(bytes, 0), be16(bytes, 2)) else { return Parsed::Cut };
    let (has_sum, has_routing) = (flags & 0x8000 != 0, flags & 0x4000 != 0);
    let (has_key, has_sequence) = (flags & 0x2000 != 0, flags & 0x1000 != 0);
    let mut at = 4 + if has_sum { 4 } else { 0 };
    let key = be32(bytes, at);
    at += if has_key { 4 } else { 0 };
    at += if has_sequence { 4 } else { 0 };
    match (flags & 7, protocol) {
        (1, PPP) if has_key => {
            at += if flags & 0x80 != 0 { 4 } else { 0 };
            let call = key.unwrap_or(0) & 0xffff;
            return enter(path, (Kind::Pptp, call), Content::Ppp, whole, at);
        }
        (0, _) if !has_routing => {}
        _ => return Parsed::Other(Other::Named("GRE of an unknown version")),
    }
    let layer = match key {
        Some(key) if has_key => (Kind::KeyedGre, key),
        None if has_key => return Parsed::Cut,
        _ => (Kind::Gre, 0),
    };
    match protocol {
        0x88be | 0x22eb => erspan(protocol, has_sequence, whole, at, path),
        // Web caches put four bytes of their own before the packet.
        0x883e => {
            let has_more = bytes.get(at).is_some_and(|first| first >> 4 != 4);
            enter(path, layer, Content::Network(IPV4), whole, at + if has_more { 4 } else { 0 })
        }
        PPP => enter(path, layer, Content::Ppp, whole, at),
        _ => enter(path, layer, Content::Network(protocol), whole, at),
    }
}

/// ERSPAN: without its own header, or with the short or the long one.
fn erspan<'a>(
    protocol: u16,
    has_sequence: bool,
    whole: (&'a [u8], usize),
    at: usize,
    path: &mut Path,
) -> Parsed<'a> {
    if protocol == 0x88be && !has_sequence {
        return enter(path, (Kind::ErspanI, 0), Content::Ethernet, whole, at);
    }
    let Some(header) = whole.0.get(at..) else { return Parsed::Cut };
    let (Some(version), Some(session)) = (be16(header, 0), be16(header, 2)) else { return Parsed::Cut };
    let session = u32::from(session & 0x3ff);
    match version >> 12 {
        1 => enter(path, (Kind::ErspanII, session), Content::Ethernet, whole, at + 8),
        2 => {
            let Some(rest) = be16(header, 10) else { return Parsed::Cut };
            let content = match rest >> 10 & 0x1f {
                2 => Content::Ip,
                _ => Content::Ethernet,
            };
            let has_more = rest & 1 != 0;
            enter(path, (Kind::ErspanIII, session), content, whole, at + if has_more { 20 } else { 12 })
        }
        _ => Parsed::Other(Other::Named("ERSPAN of an unknown version")),
    }
}

/// MPLS, starting at its first label.
pub fn mpls<'a>(bytes: &'a [u8], wire_bytes: usize, path: &mut Path) -> Parsed<'a> {
    let mut at = 0;
    loop {
        let Some(entry) = be32(bytes, at) else { return Parsed::Cut };
        at += 4;
        if entry & 0x100 != 0 {
            if !path.enter(Kind::Mpls, entry >> 12) {
                return TOO_DEEP;
            }
            break;
        }
        if at > 64 {
            return TOO_DEEP;
        }
    }
    let inner = &bytes[at..];
    match inner.first().map(|first| first >> 4) {
        Some(4 | 6) if !is_frame(inner) => inside(Content::Ip, bytes, wire_bytes, at),
        // A wire of Ethernet, with a control word or without.
        Some(0) if inner.get(4..).is_some_and(is_frame) => {
            inside(Content::Ethernet, bytes, wire_bytes, at + 4)
        }
        Some(_) if is_frame(inner) => inside(Content::Ethernet, bytes, wire_bytes, at),
        Some(_) => Parsed::Other(Other::Ether(MPLS)),
        None => Parsed::Cut,
    }
}

/// Other EtherTypes that carry packets; `None` for those that carry nothing readable.
pub fn below_ip<'a>(
    protocol: u16,
    bytes: &'a [u8],
    wire_bytes: usize,
    path: &mut Path,
) -> Option<Parsed<'a>> {
    let whole = (bytes, wire_bytes);
    Some(match protocol {
        BRIDGED => Parsed::Inside(Content::Ethernet, bytes, wire_bytes),
        MPLS | 0x8848 => mpls(bytes, wire_bytes, path),
        PPP => Parsed::Inside(Content::Ppp, bytes, wire_bytes),
        0x8864 => {
            let Some(session) = be16(bytes, 2) else { return Some(Parsed::Cut) };
            if bytes[..2] != [0x11, 0] {
                return None;
            }
            enter(path, (Kind::Pppoe, session.into()), Content::Ppp, whole, 6)
        }
        NSH => {
            let (Some(first), Some(service)) = (be32(bytes, 0), be32(bytes, 4)) else {
                return Some(Parsed::Cut);
            };
            let content = match first & 0xff {
                1 => Content::Network(IPV4),
                2 => Content::Network(IPV6),
                3 => Content::Ethernet,
                5 => Content::Network(MPLS),
                _ => return None,
            };
            let at = (first >> 16 & 0x3f) as usize * 4;
            enter(path, (Kind::Nsh, service >> 8), content, whole, at.max(8))
        }
        // Provider backbone bridges: the service, then the customer's frame.
        0x88e7 => {
            let Some(tag) = be32(bytes, 0) else { return Some(Parsed::Cut) };
            enter(path, (Kind::MacInMac, tag & 0xff_ffff), Content::Ethernet, whole, 4)
        }
        0x22f3 => {
            let Some(flags) = be16(bytes, 0) else { return Some(Parsed::Cut) };
            let options = usize::from(flags >> 6 & 0x1f) * 4;
            enter(path, (Kind::Trill, 0), Content::Ethernet, whole, 6 + options)
        }
        // Tags of adapters and port extenders, with the EtherType of the packet behind them.
        0x8926 | 0x893f => {
            let tag_bytes = if protocol == 0x8926 { 4 } else { 6 };
            let Some(next) = be16(bytes, tag_bytes) else { return Some(Parsed::Cut) };
            enter(path, (Kind::Vlan, 0), Content::Network(next), whole, tag_bytes + 2)
        }
        _ => return rarer::below_ip(protocol, bytes, wire_bytes, path),
    })
}

/// IP protocols that carry another packet.
pub fn above_ip<'a>(
    protocol: u8,
    is_ipv6: bool,
    bytes: &'a [u8],
    wire_bytes: usize,
    path: &mut Path,
) -> Option<Parsed<'a>> {
    let whole = (bytes, wire_bytes);
    Some(match (protocol, is_ipv6) {
        (4, false) => enter(path, (Kind::Ipv4InIpv4, 0), Content::Network(IPV4), whole, 0),
        (4, true) => enter(path, (Kind::Ipv4InIpv6, 0), Content::Network(IPV4), whole, 0),
        (41, false) => enter(path, (Kind::Ipv6InIpv4, 0), Content::Network(IPV6), whole, 0),
        (41, true) => enter(path, (Kind::Ipv6InIpv6, 0), Content::Network(IPV6), whole, 0),
        (17, _) => udp(bytes, wire_bytes, path),
        (47, _) => gre(bytes, wire_bytes, path),
        (97, _) => enter(path, (Kind::EtherIp, 0), Content::Ethernet, whole, 2),
        (137, _) => mpls(bytes, wire_bytes, path),
        (143, _) => enter(path, (Kind::EthernetInIp, 0), Content::Ethernet, whole, 0),
        _ => return rarer::above_ip(protocol, whole, path),
    })
}
