//! Capture files of Wireshark: blocks in sections, each with its interfaces. Blocks of other kinds are passed over.

use std::io::Read;

use super::frame::{Frame, Frames, MOST_CAPTURED};
use super::link::Link;
use super::window::Window;

/// The type of a section's header reads the same in both byte orders.
pub const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Type and length before a block, and its length again behind it.
const HEAD_BYTES: usize = 8;
const FRAME_BYTES: usize = 12;
/// Longest block that is looked into; others of any length are passed over.
const MOST_BLOCK: usize = MOST_CAPTURED as usize + 65_536;
/// More interfaces than any machine has.
const MOST_INTERFACES: usize = 65_536;
const S_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy)]
enum Resolution {
    Multiply(u64),
    Divide(u128),
    Shift(u32),
}

struct Interface {
    link: Link,
    snap_bytes: usize,
    resolution: Resolution,
    offset_s: i64,
    /// Packets lost: as the packets tell it, and as the statistics do.
    told_dropped: u64,
    dropped: Option<u64>,
}

impl Interface {
    fn time_ns(&self, ticks: u64) -> u64 {
        let ns = match self.resolution {
            Resolution::Multiply(by) => u128::from(ticks) * u128::from(by),
            Resolution::Divide(by) => u128::from(ticks) / by,
            Resolution::Shift(bits) => (u128::from(ticks) * u128::from(S_NS)) >> bits,
        };
        // At most 94 bits, so no sign is lost.
        let ns = ns.cast_signed() + i128::from(self.offset_s) * i128::from(S_NS);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

struct Reader<'a, F> {
    frames: &'a mut F,
    is_big_endian: bool,
    interfaces: Vec<Interface>,
    item: u64,
    last_ns: u64,
    has_told_untimed: bool,
}

/// Reads a whole file; the window is at its first block.
pub fn read<R: Read>(window: &mut Window<R>, frames: &mut impl Frames) -> anyhow::Result<()> {
    let mut reader = Reader {
        frames,
        is_big_endian: false,
        interfaces: Vec::new(),
        item: 0,
        last_ns: 0,
        has_told_untimed: false,
    };
    let result = reader.blocks(window);
    reader.end_section();
    result
}

impl<F: Frames> Reader<'_, F> {
    fn word(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let word = *bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    }

    fn half(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let half = *bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) })
    }

    fn long(&self, bytes: &[u8]) -> Option<u64> {
        let long = *bytes.first_chunk()?;
        Some(if self.is_big_endian { u64::from_be_bytes(long) } else { u64::from_le_bytes(long) })
    }

    fn blocks<R: Read>(&mut self, window: &mut Window<R>) -> anyhow::Result<()> {
        while window.fill(FRAME_BYTES)? {
            let Some((kind, length)) = self.head(window.bytes()) else {
                self.resynchronise(window)?;
                continue;
            };
            let is_known =
                matches!(kind, SECTION | INTERFACE | OLD_PACKET | SIMPLE_PACKET | STATISTICS | PACKET);
            if !is_known {
                let passed = window.skip(length as u64)?;
                if passed < length as u64 {
                    let offset = window.offset() - passed;
                    self.damage(offset, passed, "the file ends inside a block");
                }
                continue;
            }
            if length > MOST_BLOCK {
                self.resynchronise(window)?;
                continue;
            }
            if !window.fill(length)? {
                break;
            }
            let block = &window.bytes()[..length];
            if self.word(block, length - 4) != Some(length as u32) {
                self.resynchronise(window)?;
                continue;
            }
            let body = &block[HEAD_BYTES..length - 4];
            match self.block(kind, body, window.offset())? {
                Some(reason) => self.damage(window.offset(), length as u64, reason),
                None if kind == PACKET || kind == OLD_PACKET || kind == SIMPLE_PACKET => self.item += 1,
                None => {}
            }
            window.consume(length);
        }
        let left = window.bytes().len();
        if left > 0 {
            self.damage(window.offset(), left as u64, "the file ends inside a block");
        }
        Ok(())
    }

    /// Type and length of the block that begins here, if one can; takes over the byte order of a new section.
    fn head(&mut self, bytes: &[u8]) -> Option<(u32, usize)> {
        if bytes.starts_with(&MAGIC) {
            self.is_big_endian = match bytes.get(8..12)? {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => return None,
            };
        }
        let (kind, length) = (self.word(bytes, 0)?, self.word(bytes, 4)? as usize);
        (length >= FRAME_BYTES && length.is_multiple_of(4)).then_some((kind, length))
    }

    fn damage(&mut self, offset: u64, skipped: u64, reason: &str) {
        self.frames.damage(offset, self.item + 1, skipped, reason);
    }

    /// After a block that cannot be: the next place where a whole one lies.
    fn resynchronise<R: Read>(&mut self, window: &mut Window<R>) -> anyhow::Result<()> {
        let offset = window.offset();
        window.consume(4);
        while window.fill(FRAME_BYTES)? {
            if window.skip_zeros()? > 0 {
                continue;
            }
            let is_big_endian = self.is_big_endian;
            let found = self.head(window.bytes()).filter(|(kind, length)| {
                matches!(*kind, SECTION | INTERFACE..=PACKET) && *length <= MOST_BLOCK
            });
            if let Some((_, length)) = found
                && window.fill(length)?
                && self.word(window.bytes(), length - 4) == Some(length as u32)
            {
                break;
            }
            self.is_big_endian = is_big_endian;
            window.consume(4);
        }
        if window.bytes().len() < FRAME_BYTES {
            window.consume(FRAME_BYTES);
        }
        self.damage(offset, window.offset() - offset, "no block begins here");
        Ok(())
    }

    /// Reads one block; the reason if it makes no sense.
    fn block(&mut self, kind: u32, body: &[u8], offset: u64) -> anyhow::Result<Option<&'static str>> {
        let is_read = match kind {
            SECTION => {
                self.end_section();
                Some(())
            }
            INTERFACE => self.interface(body),
            STATISTICS => self.statistics(body),
            SIMPLE_PACKET => return self.simple_packet(body, offset),
            _ => return self.packet(kind, body, offset),
        };
        Ok(if is_read.is_none() {
            Some("a block too short, or of an interface that is not described")
        } else {
            None
        })
    }

    fn end_section(&mut self) {
        for interface in self.interfaces.drain(..) {
            self.frames.dropped(interface.dropped.unwrap_or(interface.told_dropped));
        }
    }

    /// Calls `take` with each option's number and value.
    fn options(&self, mut bytes: &[u8], mut take: impl FnMut(u16, &[u8])) {
        while let (Some(number), Some(length)) = (self.half(bytes, 0), self.half(bytes, 2)) {
            let length = usize::from(length);
            let Some(value) = bytes.get(4..4 + length).filter(|_| number != 0) else { return };
            take(number, value);
            bytes = bytes.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    fn interface(&mut self, body: &[u8]) -> Option<()> {
        let link = Link::from_number(self.half(body, 0)?);
        let snap_bytes = match self.word(body, 4)? {
            0 => usize::MAX,
            snap_bytes => snap_bytes as usize,
        };
        let mut resolution = Resolution::Multiply(1000);
        let mut offset_s = 0;
        self.options(&body[8..], |number, value| match (number, value) {
            (9, [bits, ..]) if bits & 0x80 != 0 => resolution = Resolution::Shift(u32::from(bits & 0x7f)),
            (9, [digits @ 0..=9, ..]) => {
                resolution = Resolution::Multiply(10_u64.pow(9 - u32::from(*digits)))
            }
            // No tick count reaches further than 10^28 of a ns.
            (9, [digits, ..]) => resolution = Resolution::Divide(10_u128.pow(u32::from(*digits - 9).min(28))),
            (14, _) => offset_s = self.long(value).unwrap_or(0).cast_signed(),
            _ => {}
        });
        if self.interfaces.len() < MOST_INTERFACES {
            let interface =
                Interface { link, snap_bytes, resolution, offset_s, told_dropped: 0, dropped: None };
            self.interfaces.push(interface);
        }
        Some(())
    }

    fn statistics(&mut self, body: &[u8]) -> Option<()> {
        let number = self.word(body, 0)? as usize;
        let mut dropped = None;
        self.options(body.get(12..)?, |number, value| {
            if number == 5 || number == 7 {
                dropped = Some(dropped.unwrap_or(0_u64).saturating_add(self.long(value).unwrap_or(0)));
            }
        });
        // They count from the start of the capture, so the last ones are all.
        let interface = self.interfaces.get_mut(number)?;
        interface.dropped = dropped.or(interface.dropped);
        Some(())
    }

    fn packet(&mut self, kind: u32, body: &[u8], offset: u64) -> anyhow::Result<Option<&'static str>> {
        let fields = || Some((self.word(body, 4)?, self.word(body, 8)?, self.word(body, 12)?));
        let (Some((high, low, captured)), Some(wire_bytes)) = (fields(), self.word(body, 16)) else {
            return Ok(Some("a block too short for its kind"));
        };
        let (number, old_dropped) = if kind == OLD_PACKET {
            let dropped = self.half(body, 2).filter(|&dropped| dropped != u16::MAX);
            (self.half(body, 0).map_or(0, u32::from), dropped.unwrap_or(0))
        } else {
            (self.word(body, 0).unwrap_or(0), 0)
        };
        let captured = captured as usize;
        let Some(data) = body[20..].get(..captured) else {
            return Ok(Some("a packet longer than its block"));
        };
        let mut dropped = u64::from(old_dropped);
        if let Some(options) = body.get(20 + captured.next_multiple_of(4)..).filter(|rest| rest.len() > 4) {
            self.options(options, |number, value| {
                if number == 4 {
                    dropped = self.long(value).unwrap_or(0);
                }
            });
        }
        let Some(interface) = self.interfaces.get_mut(number as usize) else {
            return Ok(Some("a packet of an interface that is not described"));
        };
        interface.told_dropped = interface.told_dropped.saturating_add(dropped);
        self.last_ns = interface.time_ns(u64::from(high) << 32 | u64::from(low));
        let frame = Frame {
            time_ns: self.last_ns,
            link: interface.link,
            data,
            wire_bytes: wire_bytes as usize,
            offset,
            item: self.item + 1,
        };
        self.frames.frame(&frame)?;
        Ok(None)
    }

    /// A packet without a time: it gets that of the one before.
    fn simple_packet(&mut self, body: &[u8], offset: u64) -> anyhow::Result<Option<&'static str>> {
        let (Some(wire_bytes), Some(interface)) = (self.word(body, 0), self.interfaces.first()) else {
            return Ok(Some("a packet of an interface that is not described"));
        };
        let wire_bytes = wire_bytes as usize;
        let Some(data) = body[4..].get(..wire_bytes.min(interface.snap_bytes)) else {
            return Ok(Some("a packet longer than its block"));
        };
        let (time_ns, link) = (self.last_ns, interface.link);
        if !std::mem::replace(&mut self.has_told_untimed, true) {
            self.damage(offset, 0, "packets without times: response times of what they carry mean nothing");
        }
        self.frames.frame(&Frame { time_ns, link, data, wire_bytes, offset, item: self.item + 1 })?;
        Ok(None)
    }
}
