//! Columns of a block: runs of varints and of bytes, each read by a cursor that never leaves its column.

use crate::measures::Measure;

/// What is wrong with a block whose checksum is right: written by another program, or by an attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The columns of a block of events, in their order in the file. Behind them is one for each measure, in the order of
/// their table, and behind the places of all measures that there can be `CONNECTION`.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    Start,
    Session,
    NewSession,
    Who,
    Names,
    Text,
    TextLength,
    TextBytes,
    NumberLength,
    NumberBytes,
    StringLength,
    StringBytes,
    Known,
    Command,
    Outcome,
    Response,
    FirstByte,
    Statement,
    Checksum,
    ParameterCount,
    ParameterLength,
    ParameterTypes,
    ParameterValues,
}

const FIRST_MEASURE: usize = Column::ParameterValues as usize + 1;
/// As many measures as an event can have, in this version and in later ones.
const MOST_MEASURES: usize = 32;
/// For each new session of the block its connection's number on the server.
pub const CONNECTION: usize = FIRST_MEASURE + MOST_MEASURES;
pub const COLUMNS: usize = CONNECTION + 1;
const _: () = assert!(Measure::ALL.len() <= MOST_MEASURES, "a place for each");

/// The column of the measure at this place of the table.
pub fn measure_column(place: usize) -> usize {
    FIRST_MEASURE + place
}

/// Appends a number, seven bits a byte, the lowest first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        #[allow(clippy::cast_possible_truncation)]
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    #[allow(clippy::cast_possible_truncation)]
    out.push(value as u8);
}

/// A difference of any two numbers as one that is small where they are close, either way.
pub fn zigzag(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from).cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

/// The other way round: what `to` was.
pub fn unzigzag(from: u64, coded: u64) -> u64 {
    from.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg())
}

/// Where in a block's bytes a column is read next, and where it ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    at: usize,
    end: usize,
}

impl Cursor {
    /// Nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.at == self.end
    }

    pub fn varint(&mut self, raw: &[u8]) -> Result<u64, Malformed> {
        let column = raw.get(self.at..self.end).ok_or(Malformed)?;
        let mut value = 0u64;
        for (index, &byte) in column.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if index == 9 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << (7 * index);
            if byte < 0x80 {
                self.at += index + 1;
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// The range of the next `length` bytes.
    pub fn bytes(&mut self, length: u64) -> Result<(usize, usize), Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        if length > self.end - self.at {
            return Err(Malformed);
        }
        let start = self.at;
        self.at += length;
        Ok((start, self.at))
    }
}

/// Puts columns one after another, their lengths before them.
pub fn join(columns: &[Vec<u8>; COLUMNS], out: &mut Vec<u8>) {
    out.clear();
    put_varint(out, COLUMNS as u64);
    for column in columns {
        put_varint(out, column.len() as u64);
    }
    for column in columns {
        out.extend_from_slice(column);
    }
}

/// Finds the columns again. Those of a later version, after ours, are passed over; measures that an earlier one did
/// not know are empty.
pub fn split(raw: &[u8]) -> Result<[Cursor; COLUMNS], Malformed> {
    let mut head = Cursor { at: 0, end: raw.len() };
    let count = usize::try_from(head.varint(raw)?).map_err(|_| Malformed)?;
    if !(FIRST_MEASURE..=1024).contains(&count) {
        return Err(Malformed);
    }
    let mut lengths = [0; COLUMNS];
    for place in 0..count {
        let length = head.varint(raw)?;
        if let Some(slot) = lengths.get_mut(place) {
            *slot = length;
        }
    }
    let mut cursors = [Cursor::default(); COLUMNS];
    for (cursor, length) in cursors.iter_mut().zip(lengths) {
        let (at, end) = head.bytes(length)?;
        *cursor = Cursor { at, end };
    }
    Ok(cursors)
}
