//! Definitions of tables, as row events need them: how wide columns are, and whether there is a primary key.

use std::sync::Arc;

use super::bodies::Cursor;
use super::transaction::Key;

/// How the bytes of a value are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Fixed(u32),
    /// So many bytes have the length of the rest.
    Prefixed(u8),
    /// A document: as above, and in partial updates it may be a list of changes.
    Json(u8),
    /// Nothing tells: rows with such a value cannot be counted.
    Unknown,
}

/// A table as an event has defined it.
#[derive(Clone, Debug)]
pub struct Table {
    /// `database.table`, quoted where need be.
    pub name: Arc<[u8]>,
    pub database: Arc<[u8]>,
    pub columns: Vec<Width>,
    pub key: Key,
    /// The event's body behind the table's number, to see that it is the same again.
    pub source: Vec<u8>,
}

/// Reads a definition behind the number of its table.
pub fn table(source: &[u8]) -> Option<Table> {
    let mut rest = Cursor(source);
    rest.integer(2)?;
    let database = name(&mut rest)?;
    let table = name(&mut rest)?;
    let count = usize::try_from(rest.packed()?).ok()?;
    let kinds = rest.take(count)?;
    let metadata_bytes = usize::try_from(rest.packed()?).ok()?;
    let mut metadata = Cursor(rest.take(metadata_bytes)?);
    let columns = kinds.iter().map(|kind| width(*kind, &mut metadata)).collect::<Option<_>>()?;
    rest.take(count.div_ceil(8))?;
    Some(Table {
        name: full_name(database, table).into(),
        database: database.into(),
        columns,
        key: key(rest),
        source: source.to_vec(),
    })
}

fn name<'a>(rest: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let length = usize::try_from(rest.packed()?).ok()?;
    let name = rest.take(length)?;
    rest.byte()?;
    Some(name)
}

/// `database.table`; a name that is no plain word is in backticks.
#[must_use]
pub fn full_name(database: &[u8], table: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(database.len() + table.len() + 1);
    for (place, part) in [database, table].into_iter().enumerate() {
        if place > 0 {
            out.push(b'.');
        }
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        if !part.is_empty() && part.iter().all(is_plain) && !part.iter().all(u8::is_ascii_digit) {
            out.extend_from_slice(part);
            continue;
        }
        out.push(b'`');
        for byte in part {
            if *byte == b'`' {
                out.push(b'`');
            }
            out.push(*byte);
        }
        out.push(b'`');
    }
    out
}

/// The width of a column's values; None if the metadata ends too early.
fn width(kind: u8, metadata: &mut Cursor<'_>) -> Option<Width> {
    use Width::{Fixed, Json, Prefixed, Unknown};
    Some(match kind {
        1 | 13 => Fixed(1),
        2 => Fixed(2),
        3 | 7 => Fixed(4),
        4 | 5 => Fixed(metadata.byte()?.into()),
        6 => Fixed(0),
        8 | 12 => Fixed(8),
        9 | 10 | 11 | 14 => Fixed(3),
        // The metadata is the most bytes that a value may have.
        15 | 141 | 253 => Prefixed(if metadata.integer(2)? > 255 { 2 } else { 1 }),
        16 => {
            let (bits, bytes) = (metadata.byte()?, metadata.byte()?);
            Fixed(u32::from(bytes) + u32::from(bits > 0))
        }
        // Half a byte for each digit of the second's fraction.
        17 => Fixed(4 + u32::from(metadata.byte()?).div_ceil(2)),
        18 => Fixed(5 + u32::from(metadata.byte()?).div_ceil(2)),
        19 => Fixed(3 + u32::from(metadata.byte()?).div_ceil(2)),
        245 => Json(metadata.byte()?),
        246 => Fixed(decimal(metadata.byte()?, metadata.byte()?)),
        247 | 248 => {
            metadata.byte()?;
            Fixed(metadata.byte()?.into())
        }
        140 | 242 | 249..=252 | 255 => Prefixed(metadata.byte()?),
        254 => string(metadata.byte()?, metadata.byte()?),
        _ => Unknown,
    })
}

/// CHAR, BINARY, ENUM and SET share a kind; the real one is in the metadata, with bits of the length in it.
fn string(first: u8, second: u8) -> Width {
    let (real, high) = if first & 0x30 == 0x30 { (first, 0) } else { (first | 0x30, (first & 0x30) ^ 0x30) };
    match real {
        247 | 248 => Width::Fixed(second.into()),
        _ => Width::Prefixed(if usize::from(high) << 4 | usize::from(second) > 255 { 2 } else { 1 }),
    }
}

/// Nine digits take four bytes, the rest of each side fewer.
fn decimal(precision: u8, scale: u8) -> u32 {
    const BYTES: [u32; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
    let side = |digits: u8| u32::from(digits / 9) * 4 + BYTES[usize::from(digits % 9)];
    side(precision.saturating_sub(scale)) + side(scale)
}

/// Only logs with the names of columns also have the primary key, where there is one.
fn key(mut rest: Cursor<'_>) -> Key {
    let mut has_names = false;
    while let Some(field) = rest.byte() {
        let Some(length) = rest.packed().and_then(|length| usize::try_from(length).ok()) else { break };
        if rest.take(length).is_none() {
            break;
        }
        match field {
            4 => has_names = true,
            8 | 9 => return Key::Primary,
            _ => {}
        }
    }
    if has_names { Key::None } else { Key::Unknown }
}
