//! Types of the binary protocol (com_field_types) and the sizes of their values.

use super::Error;
use super::reader::Reader;

pub const TINY: u8 = 0x01;
pub const SHORT: u8 = 0x02;
pub const LONG: u8 = 0x03;
pub const FLOAT: u8 = 0x04;
pub const DOUBLE: u8 = 0x05;
pub const NULL: u8 = 0x06;
pub const LONGLONG: u8 = 0x08;
pub const INT24: u8 = 0x09;
pub const YEAR: u8 = 0x0D;
/// Dates and times: one byte with the length, then that many bytes.
pub const TIMESTAMP: u8 = 0x07;
pub const DATE: u8 = 0x0A;
pub const TIME: u8 = 0x0B;
pub const DATETIME: u8 = 0x0C;

/// Takes the bytes of one value, after its length if it has one.
pub fn take_value<'a>(reader: &mut Reader<'a>, kind: u8) -> Result<&'a [u8], Error> {
    let start = reader.at;
    match kind {
        NULL => {}
        TINY => reader.at += 1,
        SHORT | YEAR => reader.at += 2,
        LONG | INT24 | FLOAT => reader.at += 4,
        LONGLONG | DOUBLE => reader.at += 8,
        TIMESTAMP | DATE | TIME | DATETIME => reader.at += usize::from(reader.take(1)?[0]),
        // Texts, blobs, DECIMAL, JSON, BIT, ENUM, SET and geometry are all bytes with a length.
        _ => {
            reader.parameter()?;
        }
    }
    reader.payload.get(start..reader.at).ok_or(Error::Malformed("a value is too short"))
}
