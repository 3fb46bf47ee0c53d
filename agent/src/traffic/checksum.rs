//! A checksum of rows that does not depend on their order: a statement without ORDER BY promises none.

use xxhash_rust::xxh3::xxh3_64;

/// Sums the hashes of row payloads as they are on the wire (text and binary rows of the same data differ).
#[derive(Clone, Copy, Debug, Default)]
pub struct RowsChecksum {
    sum: u64,
}

impl RowsChecksum {
    pub fn add(&mut self, row_payload: &[u8]) {
        // A sum, not an exclusive or: the same row twice must count twice.
        self.sum = self.sum.wrapping_add(xxh3_64(row_payload));
    }

    #[must_use]
    pub fn value(self) -> u64 {
        self.sum
    }
}
