//! What is in events: each parser takes a body, and gives nothing where it is not whole.

use std::io::Read;

use super::gtid::{Gtid, GtidSet, Source, Stream};
use super::kinds;

/// A compressed statement or row is not expanded beyond this.
pub const MOST_EXPANDED_BYTES: u64 = 64 << 20;

/// Takes values from the front of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// An integer of so many bytes, 8 at most, the lowest first.
    pub fn integer(&mut self, bytes: usize) -> Option<u64> {
        let taken = self.take(bytes)?;
        Some(taken.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    pub fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// An integer with its length in its first byte, as in the protocol.
    pub fn packed(&mut self) -> Option<u64> {
        match self.byte()? {
            small @ 0..=250 => Some(small.into()),
            252 => self.integer(2),
            253 => self.integer(3),
            254 => self.integer(8),
            _ => None,
        }
    }

    /// An integer of MySQL's serialisation library: as many bytes more as the first one has ones at its low end.
    fn varying(&mut self) -> Option<u64> {
        let first = self.byte()?;
        let more = first.trailing_ones() as usize;
        let high = self.integer(more)?;
        let bits = 8_u32.saturating_sub(more as u32 + 1);
        let low = if more >= 7 { 0 } else { u64::from(first) >> (more + 1) };
        Some(low | if more == 8 { high } else { high << bits })
    }

    /// The same with a sign, which is the lowest bit.
    fn varying_signed(&mut self) -> Option<i64> {
        let value = self.varying()?;
        let half = (value >> 1) as i64;
        Some(if value & 1 == 1 { !half } else { half })
    }
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    pub thread: u32,
    pub exec_s: u32,
    pub error: u16,
    pub database: &'a [u8],
    /// µs of the second at which it began, if it used them.
    pub micros: Option<u32>,
    pub text: &'a [u8],
}

/// `post_bytes` is the length of the fixed part, as the log's description tells.
pub fn query(body: &[u8], post_bytes: usize) -> Option<Query<'_>> {
    let mut fixed = Cursor(body.get(..post_bytes)?);
    let thread = fixed.integer(4)? as u32;
    let exec_s = fixed.integer(4)? as u32;
    let database_bytes = usize::from(fixed.byte()?);
    let error = fixed.integer(2)? as u16;
    let status_bytes = fixed.integer(2).unwrap_or(0) as usize;
    let mut rest = Cursor(&body[post_bytes..]);
    let micros = micros(rest.take(status_bytes)?);
    let database = rest.take(database_bytes)?;
    rest.byte()?;
    Some(Query { thread, exec_s, error, database, micros, text: rest.0 })
}

/// The microseconds among the variables of a statement. They are searched up to the first that is not known.
fn micros(status: &[u8]) -> Option<u32> {
    let mut rest = Cursor(status);
    loop {
        let bytes = match rest.byte()? {
            0 | 3 => 4,
            1 | 9 | 17 | 129 => 8,
            2 => usize::from(rest.byte()?) + 1,
            4 => 6,
            5 | 6 => usize::from(rest.byte()?),
            7 | 8 | 18 => 2,
            10 => 4,
            11 => {
                let user = usize::from(rest.byte()?);
                rest.take(user)?;
                usize::from(rest.byte()?)
            }
            12 => {
                let names = rest.byte()?;
                for _ in 0..if names == 254 { 0 } else { names } {
                    let end = memchr::memchr(0, rest.0)?;
                    rest.take(end + 1)?;
                }
                0
            }
            16 | 19 | 20 => 1,
            13 | 128 => return Some(rest.integer(3)? as u32).filter(|micros| *micros < 1_000_000),
            _ => return None,
        };
        rest.take(bytes)?;
    }
}

/// The start of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct GtidEvent {
    pub gtid: Gtid,
    /// Commit on the first server, and on the one that wrote this log, in µs since 1970.
    pub original_us: Option<u64>,
    pub immediate_us: Option<u64>,
    /// It has one event and no end (MariaDB).
    pub is_alone: bool,
    /// It may be one event (MySQL does not say).
    pub may_be_alone: bool,
}

pub fn gtid(kind: u8, server: u32, body: &[u8]) -> Option<GtidEvent> {
    match kind {
        kinds::GTID | kinds::ANONYMOUS_GTID => mysql_gtid(kind, body),
        kinds::GTID_TAGGED => tagged_gtid(body),
        _ => {
            let mut rest = Cursor(body);
            let sequence = rest.integer(8)?;
            let domain = rest.integer(4)? as u32;
            let is_alone = rest.byte()? & 1 != 0;
            let gtid = Gtid::MariaDb { domain, server, sequence };
            Some(GtidEvent { gtid, is_alone, ..GtidEvent::default() })
        }
    }
}

/// The bit of a commit's time that tells that another time follows.
const HAS_ORIGINAL: u64 = 1 << 55;

fn mysql_gtid(kind: u8, body: &[u8]) -> Option<GtidEvent> {
    let mut rest = Cursor(body);
    rest.byte()?;
    let uuid = rest.take(16)?.try_into().ok()?;
    let number = rest.integer(8)?;
    let gtid = if kind == kinds::GTID {
        Gtid::Mysql { source: Source::new(uuid, b"")?, number }
    } else {
        Gtid::None
    };
    let mut found = GtidEvent { gtid, may_be_alone: true, ..GtidEvent::default() };
    // Logical timestamps since 5.7, the times of commits since 8.0.
    if rest.byte() == Some(2) && rest.take(16).is_some() {
        let immediate = rest.integer(7).filter(|value| *value > 0);
        found.immediate_us = immediate.map(|value| value & !HAS_ORIGINAL);
        found.original_us = match immediate {
            Some(value) if value & HAS_ORIGINAL != 0 => rest.integer(7).filter(|value| *value > 0),
            _ => found.immediate_us,
        };
    }
    Some(found)
}

/// MySQL 8.3: fields with numbers, in ascending order.
fn tagged_gtid(body: &[u8]) -> Option<GtidEvent> {
    let mut rest = Cursor(body);
    let version = rest.varying()?;
    let _bytes = rest.varying()?;
    let _last_field = rest.varying()?;
    if version != 1 {
        return None;
    }
    let (mut uuid, mut tag, mut number) = ([0_u8; 16], &b""[..], 0);
    let mut found = GtidEvent { may_be_alone: true, ..GtidEvent::default() };
    while !rest.0.is_empty() {
        match rest.varying()? {
            0 => drop(rest.varying()?),
            1 => {
                for byte in &mut uuid {
                    *byte = rest.varying()? as u8;
                }
            }
            2 => number = u64::try_from(rest.varying_signed()?).ok()?,
            3 => {
                let bytes = usize::try_from(rest.varying()?).ok()?;
                tag = rest.take(bytes)?;
            }
            4 | 5 => drop(rest.varying_signed()?),
            6 => found.immediate_us = Some(rest.varying()?),
            7 => found.original_us = Some(rest.varying()?),
            8..=11 => drop(rest.varying()?),
            _ => break,
        }
    }
    found.original_us = found.original_us.or(found.immediate_us);
    found.gtid = Gtid::Mysql { source: Source::new(uuid, tag)?, number };
    Some(found)
}

/// MySQL: what was executed before a log; with tags since 8.3, which the first number tells.
pub fn previous_gtids(body: &[u8]) -> Option<GtidSet> {
    let mut rest = Cursor(body);
    let head = rest.integer(8)?;
    let is_tagged = head >> 56 == 1;
    let sources = if is_tagged { head >> 8 & 0xffff_ffff_ffff } else { head };
    let mut set = GtidSet::default();
    for _ in 0..sources {
        let uuid = rest.take(16)?.try_into().ok()?;
        let tag = if is_tagged {
            let bytes = usize::try_from(rest.varying()?).ok()?;
            rest.take(bytes)?
        } else {
            b""
        };
        let source = Source::new(uuid, tag)?;
        for _ in 0..rest.integer(8)? {
            let (first, end) = (rest.integer(8)?, rest.integer(8)?);
            set.add_range(Stream::Mysql(source), first, end.checked_sub(1)?);
        }
    }
    Some(set)
}

/// MariaDB: the last transaction of each domain (and server) before a log.
pub fn gtid_list(body: &[u8]) -> Option<GtidSet> {
    let mut rest = Cursor(body);
    let count = rest.integer(4)? & 0x0fff_ffff;
    let mut set = GtidSet::default();
    for _ in 0..count {
        let domain = rest.integer(4)? as u32;
        rest.integer(4)?;
        let sequence = rest.integer(8)?;
        if sequence > 0 {
            set.add_range(Stream::Domain(domain), 1, sequence);
        }
    }
    Some(set)
}

/// The name of the next log.
pub fn rotate(body: &[u8]) -> Option<&[u8]> {
    body.get(8..).filter(|name| !name.is_empty())
}

/// The version of the server that wrote the log, and the lengths of the fixed parts of events by kind, from 1 on.
pub fn description(body: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let mut rest = Cursor(body);
    let format = rest.integer(2)? as u16;
    let version = rest.take(50)?;
    rest.take(5)?;
    Some((format, version.split(|byte| *byte == 0).next()?, rest.0))
}

/// A compressed transaction: how it is compressed, its size before, and the rest.
#[derive(Debug)]
pub struct Payload<'a> {
    pub is_zstd: bool,
    pub expanded_bytes: Option<u64>,
    pub content: &'a [u8],
}

pub fn payload(body: &[u8]) -> Option<Payload<'_>> {
    let mut rest = Cursor(body);
    let (mut compression, mut expanded_bytes) = (None, None);
    loop {
        let field = rest.packed()?;
        if field == 0 {
            break;
        }
        let bytes = usize::try_from(rest.packed()?).ok()?;
        let mut value = Cursor(rest.take(bytes)?);
        match field {
            2 => compression = Some(value.packed()?),
            3 => expanded_bytes = Some(value.packed()?),
            _ => {}
        }
    }
    let is_zstd = match compression? {
        0 => true,
        255 => false,
        _ => return None,
    };
    Some(Payload { is_zstd, expanded_bytes, content: rest.0 })
}

/// Expands what MariaDB compressed with zlib into `out`; gives the size that it claims. None if it is damaged or too
/// large.
pub fn expand(compressed: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = Cursor(compressed);
    let head = rest.byte()?;
    if head & 0xe0 != 0x80 || head & 0x07 > 4 {
        return None;
    }
    let length = rest.take(usize::from(head & 0x07))?;
    let length = length.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    if head & 0x18 != 0 || length > MOST_EXPANDED_BYTES {
        return None;
    }
    out.clear();
    // One byte more than is right, to notice that there are more.
    let mut reader = flate2::read::ZlibDecoder::new(rest.0).take(length + 1);
    reader.read_to_end(out).ok()?;
    (out.len() as u64 == length).then_some(())
}
