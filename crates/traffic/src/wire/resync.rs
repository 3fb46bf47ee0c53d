//! Bytes whose past was not seen: what a greeting, a request or TLS looks like.

use super::inflate::{HEADER as FRAME_HEADER, decompress};
use super::statements::text_start;
use mysql::frames::HEADER;

/// A request that continues behind this packet is believed only if the packet is about as long as packets get.
const SHORTEST_FULL_PACKET: usize = 500;
/// So much of a text is looked at.
const LOOKED_AT: usize = 32;
/// So many requests of one packet are looked at.
const CHAIN: usize = 4;

/// The first packet of a server: a greeting of protocol 10, or an error.
pub fn is_greeting(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, 0, 0, 0x0A | 0xFF, ..])
}

/// Whether all of it is records of TLS.
pub fn is_tls(mut bytes: &[u8]) -> bool {
    let mut records = 0;
    while let [0x14..=0x17, 3, 0..=4, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        records += 1;
        if rest.len() <= length {
            return length > 0 && (rest.len() == length || records > 1 || rest.len() > SHORTEST_FULL_PACKET);
        }
        bytes = &rest[length..];
    }
    false
}

/// Whether this is how a packet of a client looks that begins with a request.
pub fn is_request(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for _ in 0..CHAIN {
        let [a, b, c, 0, body @ ..] = rest else { return false };
        let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let is_whole = body.len() >= length;
        if !is_plausible(&body[..length.min(body.len())], length) {
            return false;
        }
        if !is_whole {
            return bytes.len() >= SHORTEST_FULL_PACKET;
        }
        rest = &body[length..];
        if rest.len() <= HEADER {
            return rest.is_empty() || rest.get(3).is_none_or(|sequence| *sequence == 0);
        }
    }
    true
}

fn is_plausible(body: &[u8], length: usize) -> bool {
    match body {
        // COM_QUERY with attributes, which no text looks like.
        [0x03, 0, 1, ..] => text_start(body).is_ok_and(|start| is_text(&body[start..])),
        [0x03 | 0x16, text @ ..] => is_text(text),
        [0x02, name @ ..] => length <= 257 && is_text(name),
        [0x01 | 0x09 | 0x0E | 0x1F] => length == 1,
        [0x19 | 0x1A, ..] => length == 5,
        [0x1C, ..] => length == 9,
        // The iteration count is always 1.
        [0x17, _, _, _, _, 0..=0x0F, 1, 0, 0, 0, ..] => true,
        [0xFA, _, _, _, _, _, 0, ..] => true,
        _ => false,
    }
}

fn is_text(text: &[u8]) -> bool {
    let start = &text[..text.len().min(LOOKED_AT)];
    let is_clean =
        start.iter().all(|byte| *byte >= 0x20 && *byte != 0x7F || matches!(byte, b'\t' | b'\n' | b'\r'));
    let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
    is_clean && first.is_some_and(u8::is_ascii)
}

/// Whether this is how a request looks in a compressed connection.
pub fn is_compressed_request(bytes: &[u8], scratch: &mut Vec<u8>) -> bool {
    let [a, b, c, 0, ..] = *bytes else { return false };
    let length = FRAME_HEADER + u32::from_le_bytes([a, b, c, 0]) as usize;
    let Some(frame) = bytes.get(..length) else { return false };
    decompress(frame, scratch).is_ok() && is_request(scratch)
}
