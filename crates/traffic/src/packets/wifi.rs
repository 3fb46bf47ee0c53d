//! 802.11 frames from a card in monitor mode or an access point. Unencrypted data is read.

use super::others::Other;
use super::segment::{Content, Parsed, be16, be32};

const ENCRYPTED: Parsed<'static> = Parsed::Other(Other::Named("wifi, encrypted"));
const NO_DATA: Parsed<'static> = Parsed::Other(Other::Named("wifi without data"));

/// An 802.11 frame, starting at its control field.
pub fn wifi(frame: &[u8], wire_bytes: usize) -> Parsed<'_> {
    let [control, flags, ..] = *frame else { return Parsed::Cut };
    // Data, and not only the sign that there is none.
    if control & 0x0c != 0x08 || control & 0x40 != 0 {
        return NO_DATA;
    }
    if flags & 0x40 != 0 {
        return ENCRYPTED;
    }
    let mut at = if flags & 3 == 3 { 30 } else { 24 };
    if control & 0x80 != 0 {
        if frame.get(at).is_some_and(|quality| quality & 0x80 != 0) {
            return Parsed::Other(Other::Named("wifi, several packets in a frame"));
        }
        at += if flags & 0x80 != 0 { 6 } else { 2 };
    }
    // Some cards align what follows.
    for at in [at, at + 2] {
        if let Some([0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, high, low, rest @ ..]) = frame.get(at..) {
            let protocol = u16::from_be_bytes([*high, *low]);
            return Parsed::Inside(Content::Network(protocol), rest, wire_bytes.saturating_sub(at + 8));
        }
    }
    if frame.len() < at + 10 { Parsed::Cut } else { NO_DATA }
}

/// The header that the capturing program puts before such a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    None,
    Radiotap,
    Prism,
    Avs,
}

/// A frame after such a header.
pub fn captured(head: Head, frame: &[u8], wire_bytes: usize) -> Parsed<'_> {
    let length = match head {
        Head::None => Some(0),
        Head::Radiotap => be16(frame, 2).map(|length| length.swap_bytes().into()),
        // It has its length in the byte order of the host.
        Head::Prism => be32(frame, 4).map(|length| length.min(length.swap_bytes()) as usize),
        Head::Avs => be32(frame, 4).map(|length| length as usize),
    };
    match length.and_then(|length| Some((frame.get(length..)?, length))) {
        Some((rest, length)) => wifi(rest, wire_bytes.saturating_sub(length)),
        None => Parsed::Cut,
    }
}

/// PPI: a header with a little-endian length and link type.
pub fn behind_ppi(frame: &[u8]) -> Option<(u16, usize)> {
    let length = usize::from(be16(frame, 2)?.swap_bytes());
    let link = u16::try_from(be32(frame, 4)?.swap_bytes()).ok()?;
    (length >= 8 && length <= frame.len()).then_some((link, length))
}

/// ERF, from capture cards: a record header, extension headers, and two bytes before the Ethernet frame.
pub fn behind_erf(frame: &[u8]) -> Option<usize> {
    let mut kind = *frame.get(8)?;
    if !matches!(kind & 0x7f, 2 | 11 | 16 | 20) {
        return None;
    }
    let mut at = 16;
    while kind & 0x80 != 0 {
        kind = *frame.get(at)?;
        at += 8;
    }
    (at + 2 <= frame.len()).then_some(at + 2)
}
