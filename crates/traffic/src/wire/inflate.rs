//! Compressed connections: frames of their own around a piece of the packets' stream.

use super::request::KEPT_BUFFER;
use mysql::Error;

pub const HEADER: usize = 7;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// One direction of a compressed connection.
#[derive(Default)]
pub struct Inflate {
    /// A frame that is not whole yet.
    partial: Vec<u8>,
    partial_ns: u64,
}

/// One frame: when its first byte came, its number, its bytes on the wire, and those of `input` that it took.
pub struct Frame {
    pub number: u8,
    pub first_ns: u64,
    pub wire_bytes: u64,
    pub used: usize,
}

impl Inflate {
    /// Takes from `input` what belongs to the next frame; its content goes to `out`. None where the frame continues
    /// behind the input, which is then kept.
    pub fn next(&mut self, input: &[u8], now_ns: u64, out: &mut Vec<u8>) -> Result<Option<Frame>, Error> {
        if self.partial.is_empty() {
            self.partial_ns = now_ns;
            if let Some(length) = whole(input) {
                decompress(&input[..length], out)?;
                let (number, wire_bytes) = (input[3], length as u64);
                return Ok(Some(Frame { first_ns: now_ns, number, wire_bytes, used: length }));
            }
        }
        let mut used = 0;
        loop {
            let wanted = match frame_length(&self.partial) {
                Some(length) => length,
                None => HEADER,
            };
            let count = (wanted - self.partial.len()).min(input.len() - used);
            self.partial.extend_from_slice(&input[used..used + count]);
            used += count;
            if whole(&self.partial).is_some() {
                decompress(&self.partial, out)?;
                let (number, wire_bytes) = (self.partial[3], self.partial.len() as u64);
                self.partial.clear();
                self.partial.shrink_to(KEPT_BUFFER);
                return Ok(Some(Frame { first_ns: self.partial_ns, number, wire_bytes, used }));
            }
            if used == input.len() {
                return Ok(None);
            }
        }
    }
}

fn frame_length(bytes: &[u8]) -> Option<usize> {
    match *bytes {
        [a, b, c, _, _, _, _, ..] => Some(HEADER + u32::from_le_bytes([a, b, c, 0]) as usize),
        _ => None,
    }
}

fn whole(bytes: &[u8]) -> Option<usize> {
    frame_length(bytes).filter(|length| *length <= bytes.len())
}

/// `frame` has its header. What comes out is at most as long as the header says: 16 MiB. Which algorithm it is shows:
/// no zlib stream begins as a zstd frame does.
pub fn decompress(frame: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let bad = Error::Malformed("a compressed frame");
    let Some((header, content)) = frame.split_at_checked(HEADER) else { return Err(bad) };
    let length = u32::from_le_bytes([header[4], header[5], header[6], 0]) as usize;
    out.clear();
    if length == 0 {
        out.extend_from_slice(content);
        return Ok(());
    }
    // One byte more, so that a frame with more in it than it says is seen to be one.
    out.reserve(length + 1);
    let is_good = if content.starts_with(&ZSTD_MAGIC) {
        zstd::bulk::Decompressor::new()
            .and_then(|mut inflate| inflate.decompress_to_buffer(content, out))
            .is_ok_and(|count| count == length)
    } else {
        let mut inflate = flate2::Decompress::new(true);
        let status = inflate.decompress_vec(content, out, flate2::FlushDecompress::Finish);
        out.len() == length && status.is_ok_and(|status| status == flate2::Status::StreamEnd)
    };
    if is_good { Ok(()) } else { Err(bad) }
}
