//! Rows that a script asked to keep, in buffers that are reused for every reply.

use std::ops::Range;

use crate::Error;
use crate::reader::Reader;
use crate::types::{
    DATE, DATETIME, DOUBLE, FLOAT, INT24, LONG, LONGLONG, NULL, SHORT, TIME, TIMESTAMP, TINY, YEAR,
};

const BINARY_ROW: u8 = 0x00;
const UNSIGNED: u16 = 0x20;

/// A value of a row. DECIMAL comes as text; a date in a binary row as the protocol encodes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    Null,
    Int(i64),
    Float(f64),
    Bytes(&'a [u8]),
}

#[derive(Clone, Copy)]
struct Column {
    kind: u8,
    is_unsigned: bool,
}

enum Value {
    Null,
    Int(i64),
    Float(f64),
    Bytes(Range<usize>),
}

/// The rows of one result.
#[derive(Default)]
pub struct Rows {
    columns: Vec<Column>,
    values: Vec<Value>,
    bytes: Vec<u8>,
}

impl Rows {
    pub fn clear(&mut self) {
        self.columns.clear();
        self.values.clear();
        self.bytes.clear();
    }

    pub fn count(&self) -> usize {
        self.values.len().checked_div(self.columns.len()).unwrap_or(0)
    }

    pub fn cell(&self, row: usize, column: usize) -> Option<Cell<'_>> {
        if column >= self.columns.len() {
            return None;
        }
        Some(match self.values.get(row * self.columns.len() + column)? {
            Value::Null => Cell::Null,
            Value::Int(value) => Cell::Int(*value),
            Value::Float(value) => Cell::Float(*value),
            Value::Bytes(range) => Cell::Bytes(&self.bytes[range.clone()]),
        })
    }

    /// Takes a column's definition: six texts, then a length, collation, size, type, flags, decimals.
    pub fn add_column(&mut self, payload: &[u8]) -> Result<(), Error> {
        let mut reader = Reader { payload, at: 0 };
        for _ in 0..6 {
            reader.text()?;
        }
        reader.length()?;
        reader.take(6)?;
        let kind = reader.take(1)?[0];
        let flags = u16::from_le_bytes(reader.array()?);
        self.columns.push(Column { kind, is_unsigned: flags & UNSIGNED != 0 });
        Ok(())
    }

    /// Takes a row of the text protocol: every value is text.
    pub fn add_text_row(&mut self, payload: &[u8]) -> Result<(), Error> {
        let mut reader = Reader { payload, at: 0 };
        for _ in 0..self.columns.len() {
            if reader.payload.get(reader.at) == Some(&0xFB) {
                reader.at += 1;
                self.values.push(Value::Null);
            } else {
                let text = reader.text()?;
                self.push_bytes(text);
            }
        }
        reader.end()
    }

    /// Takes a row of the binary protocol: a bitmap of NULLs (offset by two bits), then the values by type.
    pub fn add_binary_row(&mut self, payload: &[u8]) -> Result<(), Error> {
        let mut reader = Reader { payload, at: 0 };
        if reader.take(1)?[0] != BINARY_ROW {
            return Err(Error::Malformed("a binary row"));
        }
        let bitmap = reader.take((self.columns.len() + 7 + 2) / 8)?;
        for place in 0..self.columns.len() {
            let bit = place + 2;
            if bitmap[bit / 8] & (1 << (bit % 8)) != 0 {
                self.values.push(Value::Null);
                continue;
            }
            let value = match self.columns[place] {
                Column { kind: NULL, .. } => Value::Null,
                Column { kind: TINY, is_unsigned: true } => Value::Int(reader.array::<1>()?[0].into()),
                Column { kind: TINY, .. } => Value::Int(i8::from_le_bytes(reader.array()?).into()),
                Column { kind: YEAR, .. } | Column { kind: SHORT, is_unsigned: true } => {
                    Value::Int(u16::from_le_bytes(reader.array()?).into())
                }
                Column { kind: SHORT, .. } => Value::Int(i16::from_le_bytes(reader.array()?).into()),
                Column { kind: LONG | INT24, is_unsigned: true } => {
                    Value::Int(u32::from_le_bytes(reader.array()?).into())
                }
                Column { kind: LONG | INT24, .. } => Value::Int(i32::from_le_bytes(reader.array()?).into()),
                Column { kind: LONGLONG, is_unsigned: true } => {
                    let value = u64::from_le_bytes(reader.array()?);
                    i64::try_from(value).map_or(Value::Float(value as f64), Value::Int)
                }
                Column { kind: LONGLONG, .. } => Value::Int(i64::from_le_bytes(reader.array()?)),
                Column { kind: FLOAT, .. } => Value::Float(f32::from_le_bytes(reader.array()?).into()),
                Column { kind: DOUBLE, .. } => Value::Float(f64::from_le_bytes(reader.array()?)),
                Column { kind: DATE | TIME | DATETIME | TIMESTAMP, .. } => {
                    let length = reader.take(1)?[0];
                    let bytes = reader.take(length.into())?;
                    self.push_bytes(bytes);
                    continue;
                }
                // Texts, blobs, DECIMAL, JSON, BIT, ENUM, SET and geometry are all bytes with a length.
                Column { .. } => {
                    let bytes = reader.text()?;
                    self.push_bytes(bytes);
                    continue;
                }
            };
            self.values.push(value);
        }
        reader.end()
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.values.push(Value::Bytes(start..self.bytes.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Rows};
    use proptest::prelude::{any, prop_assert, proptest};

    fn column(kind: u8, flags: u8) -> Vec<u8> {
        let mut payload = b"\x03def\0\0\0\x01a\0\x0c\x2d\0\0\x01\0\0".to_vec();
        payload.extend([kind, flags, 0, 0, 0, 0]);
        payload
    }

    #[test]
    fn values_of_a_binary_row() {
        let mut rows = Rows::default();
        for (kind, flags) in [(8, 0), (3, 0x20), (0xF6, 0), (5, 0), (0x0C, 0), (1, 0), (0xFD, 0)] {
            rows.add_column(&column(kind, flags)).unwrap();
        }
        let mut payload = vec![0, 0b0000_0000, 0b1];
        payload.extend((-5_i64).to_le_bytes());
        payload.extend(4_000_000_000_u32.to_le_bytes());
        payload.extend(b"\x0512.34");
        payload.extend(0.5_f64.to_le_bytes());
        payload.extend([4, 0xEA, 7, 11, 21]);
        payload.push(0xFF);
        rows.add_binary_row(&payload).unwrap();
        let cells: Vec<_> = (0..8).map(|place| rows.cell(0, place)).collect();
        assert_eq!(
            cells,
            [
                Some(Cell::Int(-5)),
                Some(Cell::Int(4_000_000_000)),
                Some(Cell::Bytes(b"12.34")),
                Some(Cell::Float(0.5)),
                Some(Cell::Bytes(&[0xEA, 7, 11, 21])),
                Some(Cell::Int(-1)),
                Some(Cell::Null),
                None,
            ]
        );
        assert_eq!((rows.count(), rows.cell(1, 0)), (1, None));
        payload.push(0);
        assert!(rows.add_binary_row(&payload).is_err());
    }

    #[test]
    fn values_of_a_text_row() {
        let mut rows = Rows::default();
        rows.add_column(&column(3, 0)).unwrap();
        rows.add_column(&column(3, 0)).unwrap();
        rows.add_text_row(b"\x0212\xfb").unwrap();
        assert_eq!(rows.cell(0, 0), Some(Cell::Bytes(b"12")));
        assert_eq!(rows.cell(0, 1), Some(Cell::Null));
        assert!(rows.add_text_row(b"\x0212").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_can_break_the_rows(
            kinds in proptest::collection::vec((any::<u8>(), any::<u8>()), 0..12),
            payload in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut rows = Rows::default();
            let _ = rows.add_column(&payload);
            rows.clear();
            for (kind, flags) in kinds {
                rows.add_column(&column(kind, flags)).unwrap();
            }
            if rows.add_binary_row(&[&[0], &payload[..]].concat()).is_ok() {
                prop_assert!(rows.columns.is_empty() || rows.count() == 1);
            }
            let _ = rows.add_text_row(&payload);
            for column in 0..13 {
                let _ = rows.cell(0, column);
            }
        }
    }
}
