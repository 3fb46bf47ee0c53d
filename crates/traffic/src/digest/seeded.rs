//! A hash of whole byte strings. Its seed is of the process, because text is hostile.

use std::hash::{BuildHasher, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    pub fn new() -> Self {
        Self(std::hash::RandomState::new().hash_one(0_u8))
    }

    pub fn seed(&self) -> u64 {
        self.0
    }
}

impl BuildHasher for Seeded {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(self.0)
    }
}

pub struct SeededHasher(u64);

impl Hasher for SeededHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    // Lengths of slices come before their bytes.
    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.0 ^= number as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
