//! Capture files of tcpdump: a header, then one record a packet.

use std::io::Read;

use super::frame::{Frame, Frames, MOST_CAPTURED};
use super::link::Link;
use super::window::Window;

const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16;
/// A packet further than this from the one before, in s, is not a reason to believe in a record that was searched for.
const NEAR_S: u32 = 86_400;

#[derive(Clone, Copy)]
pub struct Format {
    is_big_endian: bool,
    /// ns that one unit of the fraction of a second stands for.
    fraction_ns: u32,
}

impl Format {
    #[must_use]
    pub fn from_magic(magic: [u8; 4]) -> Option<Self> {
        let (is_big_endian, fraction_ns) = match magic {
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1000),
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
            _ => return None,
        };
        Some(Self { is_big_endian, fraction_ns })
    }

    fn word(self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        if self.is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    fn record(self, bytes: &[u8]) -> Record {
        Record {
            seconds: self.word(bytes, 0),
            fraction: self.word(bytes, 4),
            captured: self.word(bytes, 8),
            length: self.word(bytes, 12),
        }
    }
}

#[derive(Clone, Copy)]
struct Record {
    seconds: u32,
    fraction: u32,
    captured: u32,
    length: u32,
}

impl Record {
    fn is_possible(self, most: u32) -> bool {
        self.captured <= most
            && self.length > 0
            && self.captured <= self.length
            && self.fraction < 1_000_000_000
    }

    fn is_near(self, seconds: u32) -> bool {
        self.seconds.abs_diff(seconds) <= NEAR_S
    }
}

/// What a file's header says of its packets.
fn header(format: Format, bytes: &[u8]) -> (Link, u32) {
    // A file may say that it cuts at less than it does; what no capture has is a damaged record.
    let most = format.word(bytes, 16).clamp(1 << 18, MOST_CAPTURED);
    (Link::from_number((format.word(bytes, 20) & 0xffff) as u16), most)
}

/// The format of another file's header, where somebody appended a capture to this one. Its first words are no record of a
/// packet, which is never empty.
fn appended<R: Read>(window: &mut Window<R>) -> anyhow::Result<Option<Format>> {
    if !window.fill(HEADER_BYTES)? {
        return Ok(None);
    }
    let bytes = window.bytes();
    let format = bytes.first_chunk().and_then(|magic| Format::from_magic(*magic));
    let is_version = |format: &Format| {
        let version = if format.is_big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
        bytes[4..8] == version
    };
    Ok(format.filter(is_version))
}

/// Reads a whole file; the window is at its magic.
pub fn read<R: Read>(
    mut format: Format,
    window: &mut Window<R>,
    frames: &mut impl Frames,
) -> anyhow::Result<()> {
    if !window.fill(HEADER_BYTES)? {
        let left = window.bytes().len();
        frames.damage(0, 0, left as u64, "the file ends inside its header");
        return Ok(());
    }
    let (mut link, mut most) = header(format, window.bytes());
    window.consume(HEADER_BYTES);
    let mut item = 0;
    let mut last_s = None;
    while window.fill(RECORD_BYTES)? {
        let record = format.record(window.bytes());
        if !record.is_possible(most)
            && let Some(other) = appended(window)?
        {
            format = other;
            (link, most) = header(format, window.bytes());
            window.consume(HEADER_BYTES);
            last_s = None;
            continue;
        }
        item += 1;
        if !record.is_possible(most) {
            resynchronise(format, window, frames, item, most, last_s)?;
            continue;
        }
        let size = RECORD_BYTES + record.captured as usize;
        if !window.fill(size)? {
            item -= 1;
            break;
        }
        last_s = Some(record.seconds);
        let fraction_ns = u64::from(record.fraction) * u64::from(format.fraction_ns);
        let frame = Frame {
            time_ns: u64::from(record.seconds) * 1_000_000_000 + fraction_ns,
            link,
            data: &window.bytes()[RECORD_BYTES..size],
            wire_bytes: record.length as usize,
            offset: window.offset(),
            item,
        };
        frames.frame(&frame)?;
        window.consume(size);
    }
    let left = window.bytes().len();
    if left > 0 {
        frames.damage(window.offset(), item + 1, left as u64, "the file ends inside a packet");
    }
    Ok(())
}

/// After a record that cannot be: the next place where two records in a row can, near the time of the last one.
fn resynchronise<R: Read>(
    format: Format,
    window: &mut Window<R>,
    frames: &mut impl Frames,
    item: u64,
    most: u32,
    last_s: Option<u32>,
) -> anyhow::Result<()> {
    let offset = window.offset();
    window.consume(1);
    while window.fill(RECORD_BYTES)? {
        // Zeros begin no record: its times are not those of 1970.
        if window.skip_zeros()? > 0 {
            continue;
        }
        let record = format.record(window.bytes());
        let is_good = |record: Record| {
            record.is_possible(most) && record.captured > 0 && last_s.is_none_or(|last| record.is_near(last))
        };
        if is_good(record) {
            let size = RECORD_BYTES + record.captured as usize;
            let has_next = window.fill(size + RECORD_BYTES)?;
            let bytes = window.bytes();
            let is_last = !has_next && bytes.len() == size;
            if is_last || (has_next && is_good(format.record(&bytes[size..]))) {
                break;
            }
        }
        window.consume(1);
    }
    if window.bytes().len() < RECORD_BYTES {
        let left = window.bytes().len();
        window.consume(left);
    }
    frames.damage(offset, item, window.offset() - offset, "no packet begins here");
    Ok(())
}
