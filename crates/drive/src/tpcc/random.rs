//! Random values as clauses 2.1.5, 2.1.6, 4.3.2 and 4.3.3 of the TPC-C specification define them.

use rand::{RngExt, SeedableRng};

use super::schema::CUSTOMERS;
use crate::mix::mix;
use crate::script::Random;

const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// How many characters the 64 bits of one random number give, with a bias below 1 in 1,000.
const CHARACTERS_A_NUMBER: usize = 9;
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const ORIGINAL: &[u8] = b"ORIGINAL";

/// NURand(A, x, y) of clause 2.1.6, with its constant C. The constants are the same in every trial, so that trials
/// have the same popular rows and can be compared, and in every driver of a trial, as the clause demands.
pub struct NonUniform {
    a: i64,
    x: i64,
    y: i64,
    c: i64,
}

pub const CUSTOMER_ID: NonUniform = NonUniform { a: 1023, x: 1, y: CUSTOMERS, c: 259 };
pub const ITEM_ID: NonUniform = NonUniform { a: 8191, x: 1, y: super::schema::ITEMS, c: 7911 };
const LAST_NAME_LOAD: NonUniform = NonUniform { a: 255, x: 0, y: 999, c: 157 };
/// Its C differs from the load's by 66: clause 2.1.6.1 wants 65 to 119, but not 96 and not 112.
const LAST_NAME_RUN: NonUniform = NonUniform { c: LAST_NAME_LOAD.c + 66, ..LAST_NAME_LOAD };

impl NonUniform {
    pub fn draw(&self, random: &mut Random) -> i64 {
        let mixed = random.random_range(0..=self.a) | random.random_range(self.x..=self.y);
        (mixed + self.c) % (self.y - self.x + 1) + self.x
    }
}

/// A short text without heap memory.
#[derive(Clone, Copy)]
pub struct Text<const SIZE: usize> {
    bytes: [u8; SIZE],
    length: usize,
}

impl<const SIZE: usize> Text<SIZE> {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The last name of a number from 0 to 999: a syllable for each of its three digits (clause 4.3.2.3).
pub fn last_name(number: i64) -> Text<15> {
    let mut name = Text { bytes: [0; 15], length: 0 };
    for unit in [100, 10, 1] {
        let syllable = SYLLABLES[(number / unit % 10) as usize].as_bytes();
        name.bytes[name.length..name.length + syllable.len()].copy_from_slice(syllable);
        name.length += syllable.len();
    }
    name
}

/// The last name of a loaded customer: the first thousand of a district have each name once.
pub fn last_name_to_load(customer: i64, random: &mut Random) -> Text<15> {
    last_name(if customer <= 1000 { customer - 1 } else { LAST_NAME_LOAD.draw(random) })
}

/// The number of a last name that a transaction asks for.
pub fn last_name_to_ask(random: &mut Random) -> i64 {
    LAST_NAME_RUN.draw(random)
}

/// Letters and digits, of a random length (an a-string).
pub fn alphanumeric<const SIZE: usize>(random: &mut Random, shortest: usize) -> Text<SIZE> {
    let mut text = Text { bytes: [0; SIZE], length: random.random_range(shortest..=SIZE) };
    fill(random, ALPHANUMERIC, &mut text.bytes[..text.length]);
    text
}

/// Digits (an n-string).
pub fn digits<const SIZE: usize>(random: &mut Random) -> Text<SIZE> {
    let mut text = Text { bytes: [0; SIZE], length: SIZE };
    fill(random, b"0123456789", &mut text.bytes);
    text
}

fn fill(random: &mut Random, characters: &[u8], out: &mut [u8]) {
    for group in out.chunks_mut(CHARACTERS_A_NUMBER) {
        // The fraction's next digit, to the base of how many characters there are, is the carry of a multiplication.
        let mut fraction: u64 = random.random();
        for character in group {
            let product = u128::from(fraction) * characters.len() as u128;
            *character = characters[(product >> 64) as usize];
            fraction = product as u64;
        }
    }
}

/// I_DATA and S_DATA: one in ten contains ORIGINAL at a random position.
pub fn data(random: &mut Random) -> Text<50> {
    let mut text = alphanumeric::<50>(random, 26);
    if random.random_range(0..10) == 0 {
        let at = random.random_range(0..=text.length - ORIGINAL.len());
        text.bytes[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    text
}

/// A ZIP code: four random digits and 11111 (clause 4.3.2.7).
pub fn zip(random: &mut Random) -> Text<9> {
    let mut text = Text { bytes: [b'1'; 9], length: 9 };
    fill(random, b"0123456789", &mut text.bytes[..4]);
    text
}

/// The generator of one row. A row never depends on earlier rows: parts are loaded in parallel, and a batch that
/// lost a race is written again.
pub fn of_row(seed: u64, table: u64, row: u64) -> Random {
    Random::seed_from_u64(mix(mix(seed ^ mix(table)) ^ row))
}

/// The customer whose order this is: orders 1 to 3,000 of a district are those of a random permutation of its
/// customers. `key` names the district and the seed.
///
/// A Feistel network permutes 12 bits; a value that is not a customer goes through it again, until it is one.
pub fn permuted_customer(key: u64, order: i64) -> i64 {
    let mut value = (order - 1) as u64;
    loop {
        let (mut left, mut right) = (value >> 6, value & 63);
        for round in 0..6 {
            (left, right) = (right, left ^ (mix(key ^ (round << 6 | right)) & 63));
        }
        value = left << 6 | right;
        if value < CUSTOMERS as u64 {
            return value as i64 + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        CUSTOMER_ID, ITEM_ID, LAST_NAME_LOAD, LAST_NAME_RUN, alphanumeric, data, digits, last_name,
        last_name_to_load, of_row, permuted_customer, zip,
    };
    use rand::RngExt;

    #[test]
    fn last_names_are_syllables_of_digits() {
        // The specification's own examples.
        assert_eq!(last_name(371).bytes(), b"PRICALLYOUGHT");
        assert_eq!(last_name(40).bytes(), b"BARPRESBAR");
        assert_eq!((0..1000).map(|number| last_name(number).bytes().len()).max(), Some(15));
        let mut random = of_row(1, 1, 1);
        assert_eq!(last_name_to_load(372, &mut random).bytes(), b"PRICALLYOUGHT");
    }

    #[test]
    fn nurand_covers_its_range_and_prefers_some_values() {
        let mut random = of_row(1, 1, 1);
        for (law, draws) in [(CUSTOMER_ID, 400_000), (LAST_NAME_RUN, 200_000), (LAST_NAME_LOAD, 200_000)] {
            let mut counts = vec![0; (law.y - law.x + 1) as usize];
            for _ in 0..draws {
                counts[(law.draw(&mut random) - law.x) as usize] += 1;
            }
            let mean = draws / counts.len();
            // An OR of two numbers has many ones: some values are frequent, some rare.
            assert!(*counts.iter().max().unwrap() > 8 * mean);
            let seen = counts.iter().filter(|count| **count > 0).count();
            assert!(seen > counts.len() * 9 / 10, "{seen} of {}", counts.len());
        }
        for _ in 0..10_000 {
            assert!((1..=100_000).contains(&ITEM_ID.draw(&mut random)));
        }
    }

    #[test]
    fn nurand_is_the_formula() {
        let (mut ours, mut plain) = (of_row(7, 1, 1), of_row(7, 1, 1));
        for _ in 0..1000 {
            let (a, b) = (plain.random_range(0..=1023_i64), plain.random_range(1..=3000_i64));
            assert_eq!(CUSTOMER_ID.draw(&mut ours), ((a | b) + 259) % 3000 + 1);
        }
    }

    #[test]
    fn the_constants_keep_the_distance_of_clause_2_1_6_1() {
        let delta = (LAST_NAME_RUN.c - LAST_NAME_LOAD.c).abs();
        assert!((65..=119).contains(&delta) && delta != 96 && delta != 112);
        for law in [CUSTOMER_ID, ITEM_ID, LAST_NAME_LOAD, LAST_NAME_RUN] {
            assert!((0..=law.a).contains(&law.c));
        }
    }

    #[test]
    fn a_permutation_has_every_customer_once_and_is_the_districts_own() {
        let of = |key| (1..=3000).map(|order| permuted_customer(key, order)).collect::<Vec<_>>();
        let (first, second) = (of(1), of(2));
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (1..=3000).collect::<Vec<_>>());
        let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
        let still = first.iter().zip(1..).filter(|(customer, order)| **customer == *order).count();
        // About one of 3,000 is expected of either.
        assert!(same < 10 && still < 10, "{same} {still}");
        let rising = first.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(rising.abs_diff(1500) < 100, "{rising}");
    }

    #[test]
    fn texts_have_their_lengths_and_characters() {
        let mut lengths = [0; 25];
        let mut originals = 0;
        for row in 0..10_000 {
            let mut random = of_row(1, 2, row);
            let text = alphanumeric::<24>(&mut random, 14);
            assert!(text.bytes().iter().all(u8::is_ascii_alphanumeric));
            lengths[text.bytes().len()] += 1;
            let data = data(&mut random);
            assert!((26..=50).contains(&data.bytes().len()));
            originals += usize::from(data.bytes().windows(8).any(|window| window == b"ORIGINAL"));
            assert!(digits::<16>(&mut random).bytes().iter().all(u8::is_ascii_digit));
            assert!(zip(&mut random).bytes().ends_with(b"11111"));
        }
        assert!(lengths[..14].iter().all(|count| *count == 0));
        assert!(lengths[14..].iter().all(|count| *count > 700), "{lengths:?}");
        assert!((850..1150).contains(&originals), "{originals}");
        // The same row is the same again; its neighbour is another.
        let first = |row| alphanumeric::<24>(&mut of_row(1, 2, row), 24).bytes().to_vec();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}
