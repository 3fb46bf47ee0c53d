//! Reads a payload from its start; every read may find that it is too short.

use super::Error;

pub struct Reader<'a> {
    pub payload: &'a [u8],
    pub at: usize,
}

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.payload.len());
        let end = end.ok_or(Error::Malformed("a packet is too short"))?;
        let bytes = &self.payload[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        Ok(self.take(N)?.try_into().expect("as long as asked"))
    }

    /// A length-encoded integer.
    pub fn length(&mut self) -> Result<u64, Error> {
        let first = self.take(1)?[0];
        let size = match first {
            0..=0xFA => return Ok(first.into()),
            0xFC => 2,
            0xFD => 3,
            0xFE => 8,
            _ => return Err(Error::Malformed("a length")),
        };
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(self.take(size)?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Bytes preceded by their length.
    pub fn text(&mut self) -> Result<&'a [u8], Error> {
        let length = self.length()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// The same for a parameter: of a length of eight bytes servers read the lower four, and mysql2 for Node writes the
    /// lower four twice.
    pub fn parameter(&mut self) -> Result<&'a [u8], Error> {
        let length = self.length()? & u64::from(u32::MAX);
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Bytes up to a NUL, which is also consumed.
    pub fn until_nul(&mut self) -> Result<&'a [u8], Error> {
        let length = memchr::memchr(0, self.rest()).ok_or(Error::Malformed("a name without an end"))?;
        let bytes = self.take(length)?;
        self.at += 1;
        Ok(bytes)
    }

    pub fn rest(&self) -> &'a [u8] {
        &self.payload[self.at..]
    }

    pub fn end(&self) -> Result<(), Error> {
        if self.at == self.payload.len() { Ok(()) } else { Err(Error::Malformed("a packet is too long")) }
    }
}
