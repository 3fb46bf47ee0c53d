//! Maps whose keys are numbers that others count up: a look-up is in the way of every event.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub type Numbers<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// Spreads a key by one multiplication.
#[derive(Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // The table takes the upper bits as well as the lower ones.
        let product = u128::from(self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
