//! Tunnels that rarely carry mirrored traffic (of providers, access points and hosts), and tags of switches.
//!
//! Sources: RFC 2661 and 3931 (L2TP), RFC 4380 (Teredo), RFC 9300 (LISP), RFC 5415 (CAPWAP), IEEE 802.1AE (MACsec),
//! draft-ietf-intarea-gue (GUE), IEC 62439-3 (HSR), IEEE 802.1CB.

use super::layers::{IPV4, TOO_DEEP, enter, is_frame};
use super::path::{Kind, Path};
use super::segment::{Content, Parsed, be16, be32, inside};
use super::wifi::wifi;

/// Chosen by the UDP ports, if the header fits.
pub fn udp<'a>(ports: [u16; 2], whole: (&'a [u8], usize), path: &mut Path) -> Option<Parsed<'a>> {
    let of = |port: u16| ports.contains(&port);
    match ports {
        _ if of(1701) => l2tp(whole, path),
        _ if of(3544) => teredo(whole, path),
        _ if of(4341) => ip_behind(whole, 8, (Kind::Lisp, 0), path),
        _ if of(5247) => capwap(whole, path),
        _ if of(6080) => gue(whole, path),
        // FOU: a packet of IP and nothing else; no port is its own.
        _ if is_whole_ip(whole.0, whole.1) => ip_behind(whole, 0, (Kind::Fou, 0), path),
        _ => None,
    }
}

/// Whether the first byte and the length can only be those of an IP packet with TCP.
fn is_whole_ip(bytes: &[u8], wire_bytes: usize) -> bool {
    match bytes {
        [0x45..=0x4f, _, high, low, _, _, _, _, _, 6, ..] => {
            usize::from(u16::from_be_bytes([*high, *low])) == wire_bytes
        }
        [0x60..=0x6f, _, _, _, high, low, 6, ..] => {
            usize::from(u16::from_be_bytes([*high, *low])) + 40 == wire_bytes
        }
        _ => false,
    }
}

fn ip_behind<'a>(
    whole: (&'a [u8], usize),
    at: usize,
    layer: (Kind, u32),
    path: &mut Path,
) -> Option<Parsed<'a>> {
    let is_ip = whole.0.get(at).is_some_and(|first| matches!(first, 0x45..=0x4f | 0x60..=0x6f));
    is_ip.then(|| enter(path, layer, Content::Ip, whole, at))
}

fn teredo<'a>(whole: (&'a [u8], usize), path: &mut Path) -> Option<Parsed<'a>> {
    let mut at = 0;
    // Who authenticates, and where it came from.
    if let Some([0, 1, name, value, ..]) = whole.0.get(at..) {
        at += 13 + usize::from(*name) + usize::from(*value);
    }
    if let Some([0, 0, ..]) = whole.0.get(at..) {
        at += 8;
    }
    ip_behind(whole, at, (Kind::Teredo, 0), path)
}

fn gue<'a>(whole: (&'a [u8], usize), path: &mut Path) -> Option<Parsed<'a>> {
    let [first, protocol, ..] = *whole.0 else { return None };
    match first >> 6 {
        1 => ip_behind(whole, 0, (Kind::Gue, 0), path),
        0 if first & 0x20 == 0 && matches!(protocol, 4 | 41) => {
            ip_behind(whole, 4 + usize::from(first & 0x1f) * 4, (Kind::Gue, 0), path)
        }
        _ => None,
    }
}

/// Version 2 carries PPP. Version 3 carries what the peers agreed on, after a cookie whose length they agreed on, too.
fn l2tp<'a>(whole: (&'a [u8], usize), path: &mut Path) -> Option<Parsed<'a>> {
    let flags = be16(whole.0, 0)?;
    if flags & 0x8000 != 0 {
        return None;
    }
    if flags & 0xf == 3 {
        return l2tp3(whole, 4, path);
    }
    let mut at = if flags & 0x4000 != 0 { 4 } else { 2 };
    let session = be16(whole.0, at + 2)?;
    at += if flags & 0x0800 != 0 { 8 } else { 4 };
    if flags & 0x0200 != 0 {
        at += 2 + usize::from(be16(whole.0, at)?);
    }
    (flags & 0xf == 2).then(|| enter(path, (Kind::L2tp, session.into()), Content::Ppp, whole, at))
}

/// Starting at the session number, which is 0 for control messages.
pub fn l2tp3<'a>(whole: (&'a [u8], usize), at: usize, path: &mut Path) -> Option<Parsed<'a>> {
    let session = be32(whole.0, at).filter(|session| *session != 0)?;
    // No cookie, a short or a long one; then perhaps a header of four bytes.
    for start in [4, 8, 12, 16].map(|length| at + length) {
        let rest = whole.0.get(start..)?;
        if is_frame(rest) {
            return Some(enter(path, (Kind::L2tp, session), Content::Ethernet, whole, start));
        }
        if matches!(rest, [0xff, 3, 0, 0x21 | 0x57, ..]) {
            return Some(enter(path, (Kind::L2tp, session), Content::Ppp, whole, start));
        }
    }
    None
}

/// CAPWAP: frames between an access point and its controller, as 802.11 or converted to Ethernet.
fn capwap<'a>((bytes, wire_bytes): (&'a [u8], usize), path: &mut Path) -> Option<Parsed<'a>> {
    let [0, length, kind, flags, ..] = *bytes else { return None };
    let at = usize::from(length >> 3) * 4;
    // A piece, or a sign of life.
    if flags & 0x88 != 0 || at < 8 {
        return None;
    }
    if !path.enter(Kind::Capwap, 0) {
        return Some(TOO_DEEP);
    }
    match (kind & 1, kind >> 1 & 0x1f) {
        (0, _) => Some(inside(Content::Ethernet, bytes, wire_bytes, at)),
        (1, 1) => Some(wifi(bytes.get(at..)?, wire_bytes.saturating_sub(at))),
        _ => None,
    }
}

/// Switch tags, and the EtherType after them; `None` for anything else.
pub fn below_ip<'a>(
    protocol: u16,
    bytes: &'a [u8],
    wire_bytes: usize,
    path: &mut Path,
) -> Option<Parsed<'a>> {
    let tag_bytes = match protocol {
        // Cisco's security groups, redundant rings, streams that are sent twice.
        0x8909 => 6,
        0x892f | 0xf1c1 => 4,
        0x88e5 => {
            let flags = *bytes.first()?;
            if flags & 0x0c != 0 {
                return None;
            }
            if flags & 0x20 != 0 { 14 } else { 6 }
        }
        // FabricPath: a number and a number of hops, then the frame.
        0x8903 => return Some(enter(path, (Kind::Vlan, 0), Content::Ethernet, (bytes, wire_bytes), 2)),
        _ => return None,
    };
    let Some(next) = be16(bytes, tag_bytes) else { return Some(Parsed::Cut) };
    let kind = if protocol == 0x88e5 { Kind::Macsec } else { Kind::Vlan };
    Some(enter(path, (kind, 0), Content::Network(next), (bytes, wire_bytes), tag_bytes + 2))
}

/// IP protocols: an older number for IP in IP, and L2TP without UDP.
pub fn above_ip<'a>(protocol: u8, whole: (&'a [u8], usize), path: &mut Path) -> Option<Parsed<'a>> {
    match protocol {
        94 => Some(enter(path, (Kind::Ipv4InIpv4, 0), Content::Network(IPV4), whole, 0)),
        115 => l2tp3(whole, 0, path),
        _ => None,
    }
}
