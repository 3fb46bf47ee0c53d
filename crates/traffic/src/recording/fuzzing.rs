//! What the fuzzer calls: a recording of any bytes, and a block of any bytes whose checksums are right.

use super::frame::{Header, Kind};
use super::reader::Reader;

/// Reads whatever there is; a panic or a hang is a bug.
pub fn recording(data: &[u8]) {
    read(data.to_vec());
    let Some((&[low, high], payload)) = data.split_first_chunk() else {
        return;
    };
    let events = u32::from(u16::from_le_bytes([low, high]));
    let mut frame = Vec::new();
    let Ok(mut compressor) = zstd::bulk::Compressor::new(1) else {
        return;
    };
    for kind in [Kind::Events, Kind::Info, Kind::Index] {
        if Header::frame(kind, 0, events, (1, u64::MAX), payload, &mut compressor, &mut frame).is_ok() {
            read(frame.clone());
        }
    }
}

fn read(bytes: Vec<u8>) {
    let Ok(mut reader) = Reader::of_bytes(bytes) else {
        return;
    };
    let mut bytes = 0;
    while let Ok(Some(event)) = reader.next() {
        bytes += event.text.len() + event.parameters.len() + event.user.len();
    }
    reader.seek(bytes as u64);
    while let Ok(Some(_)) = reader.next() {}
}
