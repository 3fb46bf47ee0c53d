//! A checksum of rows that does not depend on their order: a statement without ORDER BY promises none.

use xxhash_rust::xxh3::xxh3_64;

/// Sums the hashes of row payloads as they are on the wire (text and binary rows of the same data differ).
#[derive(Clone, Copy, Debug, Default)]
pub struct RowsChecksum {
    sum: u64,
}

impl RowsChecksum {
    pub fn add(&mut self, row_payload: &[u8]) {
        self.add_hash(xxh3_64(row_payload));
    }

    /// Adds a row by its xxh3_64, for rows that are never in memory as a whole.
    pub fn add_hash(&mut self, row_hash: u64) {
        // A sum, not an exclusive or: the same row twice must count twice.
        self.sum = self.sum.wrapping_add(row_hash);
    }

    #[must_use]
    pub fn value(self) -> u64 {
        self.sum
    }
}
