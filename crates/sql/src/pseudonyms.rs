//! Pseudonyms that differ where values do: permutations, under a key, of all values of one form. What is unique in a
//! column stays unique, and what fits its type still fits.

use sha2::{Digest, Sha256};

/// Where whole numbers stop fitting a type: before the first and behind the last YEAR, of integers, and what a DOUBLE
/// holds exactly.
#[rustfmt::skip]
const TYPE_BOUNDS: [u128; 13] = [
    1 << 7, 1 << 8, 1901, 2156, 1 << 15, 1 << 16, 1 << 23, 1 << 24, 1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64,
];
/// Digits of the longest numbers that are permuted.
pub const MOST_DIGITS: usize = 38;
/// Days since 1970: what a TIMESTAMP can hold, and what a DATE can.
const TIMESTAMP_DAYS: (i64, i64) = (1, 24_855);
const DATE_DAYS: (i64, i64) = (-354_285, 2_932_897);
const SECONDS_PER_DAY: u128 = 86_400;
const ROUNDS: u64 = 8;

/// A hash of one value of one kind that only who has the key can foretell.
pub fn keyed(key: &[u8; 32], kind: u8, value: impl Iterator<Item = u8>) -> [u8; 32] {
    // As in HMAC: the key goes into two rounds, so that no value can go on where another one ended.
    let mut inner = Sha256::new();
    inner.update(key.map(|byte| byte ^ 0x36));
    inner.update([kind]);
    let mut block = [0; 64];
    let mut length = 0;
    for byte in value {
        block[length] = byte;
        length += 1;
        if length == block.len() {
            inner.update(block);
            length = 0;
        }
    }
    inner.update(&block[..length]);
    let mut outer = Sha256::new();
    outer.update(key.map(|byte| byte ^ 0x5C));
    outer.update(inner.finalize());
    outer.finalize().into()
}

/// Words under a key: SipHash-2-4 of two others, and what is made of it, a permutation of all values of one form.
pub struct Words {
    keys: [u64; 2],
}

impl Words {
    pub fn new(key: &[u8; 32], kind: u8, form: impl Iterator<Item = u8>) -> Self {
        let hash = keyed(key, kind, form);
        let word = |at: usize| u64::from_le_bytes(hash[at..at + 8].try_into().expect("eight bytes"));
        Self { keys: [word(0), word(8)] }
    }

    /// The place of `value` among those below `size`, which is at most 2^127: a Feistel network, gone through until it
    /// ends below `size`.
    fn of(&self, mut value: u128, size: u128) -> u128 {
        if size < 2 {
            return value;
        }
        let half = (128 - (size - 1).leading_zeros()).div_ceil(2);
        let mask = u64::MAX >> (64 - half);
        loop {
            let (mut left, mut right) = ((value >> half) as u64, value as u64 & mask);
            for round in 0..ROUNDS {
                (left, right) = (right, left ^ (self.word(round, right) & mask));
            }
            value = (u128::from(left) << half) | u128::from(right);
            if value < size {
                return value;
            }
        }
    }

    pub fn word(&self, first: u64, second: u64) -> u64 {
        let [low, high] = self.keys;
        let mut state = [
            low ^ 0x736F_6D65_7073_6575,
            high ^ 0x646F_7261_6E64_6F6D,
            low ^ 0x6C79_6765_6E65_7261,
            high ^ 0x7465_6462_7974_6573,
        ];
        for word in [first, second, 16 << 56] {
            state[3] ^= word;
            mix(&mut state);
            mix(&mut state);
            state[0] ^= word;
        }
        state[2] ^= 0xFF;
        (0..4).for_each(|_| mix(&mut state));
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

fn mix([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

/// The digits of a decimal number: as many significant ones as before, and of a whole number within the same type. Zeroes in
/// front, and those that end a fraction, are no part of the value and stay. False, and nothing changed, where there are
/// too many.
pub fn digits(key: &[u8; 32], part: &mut [u8], is_negative: bool) -> bool {
    let Some(start) = part.iter().position(|byte| matches!(byte, b'1'..=b'9')) else { return true };
    let point = part.iter().position(|byte| *byte == b'.').unwrap_or(part.len());
    let last = part.iter().rposition(|byte| matches!(byte, b'1'..=b'9')).unwrap_or(start);
    let end = if last < point { point } else { last + 1 };
    let part = &mut part[start..end];
    let count = part.iter().filter(|byte| byte.is_ascii_digit()).count();
    if count > MOST_DIGITS {
        return false;
    }
    let value = part
        .iter()
        .filter(|byte| byte.is_ascii_digit())
        .fold(0, |sum, byte| sum * 10 + u128::from(byte - b'0'));
    let mut left = if end <= point {
        whole(key, value, count, is_negative)
    } else {
        fraction(key, value, count, end - point)
    };
    for byte in part.iter_mut().rev().filter(|byte| byte.is_ascii_digit()) {
        *byte = b'0' + (left % 10) as u8;
        left /= 10;
    }
    true
}

/// Another whole number of as many digits that fits the same types.
fn whole(key: &[u8; 32], value: u128, digits: usize, is_negative: bool) -> u128 {
    let most = 10_u128.pow(digits as u32);
    let (mut least, mut end) = (most / 10, most);
    for bound in TYPE_BOUNDS {
        // The least number of a signed type is one further from zero than the largest.
        let bound = bound + u128::from(is_negative);
        if bound <= value {
            least = least.max(bound);
        } else {
            end = end.min(bound);
        }
    }
    let form = least.to_le_bytes().into_iter().chain([digits as u8]).chain(0_usize.to_le_bytes());
    least + Words::new(key, b'n', form).of(value - least, end - least)
}

/// The digits of another number with as many of them before and behind the point, of which the last is not a zero either.
fn fraction(key: &[u8; 32], value: u128, digits: usize, behind_point: usize) -> u128 {
    let form = [digits as u8].into_iter().chain(behind_point.to_le_bytes());
    let words = Words::new(key, b'n', form);
    let Some(between) = digits.checked_sub(2) else { return 1 + words.of(value - 1, 9) };
    let least = 10_u128.pow(between as u32);
    let place = words.of((value / 10 - least) * 9 + value % 10 - 1, 9 * least * 9);
    (place / 9 + least) * 10 + place % 9 + 1
}

/// Letters and digits of a text of ASCII, letters of either case alike; `letters` is how many there are of them. False,
/// and nothing changed, for other texts and for long ones, whose pseudonyms differ by chance.
pub fn letters(key: &[u8; 32], text: &mut [u8], letters: u8) -> bool {
    characters(key, letters, text, |byte| match byte {
        b'0'..=b'9' => Some((b'0', 10)),
        b'a'..=b'z' => Some((b'a', letters)),
        b'A'..=b'Z' => Some((b'A', letters)),
        _ => None,
    })
}

/// Digits of base 2, as `letters`.
pub fn bits(key: &[u8; 32], text: &mut [u8]) -> bool {
    characters(key, 0, text, |byte| matches!(byte, b'0' | b'1').then_some((b'0', 2)))
}

/// Characters that `place` has the first of their kind for, and how many there are of it.
fn characters(key: &[u8; 32], form: u8, text: &mut [u8], place: impl Fn(u8) -> Option<(u8, u8)>) -> bool {
    let (mut value, mut size) = (0_u128, 1_u128);
    for &byte in &*text {
        if byte >= 0x80 || byte == b'\\' {
            return false;
        }
        let Some((first, radix)) = place(byte) else { continue };
        if byte.to_ascii_lowercase() - first.to_ascii_lowercase() >= radix {
            return false;
        }
        match size.checked_mul(u128::from(radix)) {
            Some(product) if product <= 1 << 127 => size = product,
            _ => return false,
        }
        value = value * u128::from(radix) + u128::from(byte - first);
    }
    let kinds = text.iter().map(|&byte| place(byte).map_or(byte, |(first, _)| first.to_ascii_lowercase()));
    let mut left = Words::new(key, b's', kinds.chain([form])).of(value, size);
    for byte in text.iter_mut().rev() {
        if let Some((first, radix)) = place(*byte) {
            *byte = first + (left % u128::from(radix)) as u8;
            left /= u128::from(radix);
        }
    }
    true
}

/// A date, `2020-01-31`: another one of those that a TIMESTAMP holds, or else of those before or behind them. False, and
/// nothing changed, where there is no such day.
pub fn date(key: &[u8; 32], text: &mut [u8]) -> bool {
    let Some(days) = days_in(text) else { return false };
    if date_of(days) != numbers_of(text) || days < DATE_DAYS.0 {
        return false;
    }
    let (least, end) = match days {
        days if days < TIMESTAMP_DAYS.0 => (DATE_DAYS.0, TIMESTAMP_DAYS.0),
        days if days < TIMESTAMP_DAYS.1 => TIMESTAMP_DAYS,
        _ => (TIMESTAMP_DAYS.1, DATE_DAYS.1),
    };
    let form = least.to_le_bytes().into_iter();
    let place = Words::new(key, b'd', form).of((days - least) as u128, (end - least) as u128);
    put_days(text, least + place as i64);
    true
}

/// Year, month and day of `2020-01-31`.
fn numbers_of(text: &[u8]) -> (i64, i64, i64) {
    let number = |range: std::ops::Range<usize>| {
        text[range].iter().fold(0, |sum, byte| sum * 10 + i64::from(byte - b'0'))
    };
    (number(0..4), number(5..7), number(8..10))
}

/// Days since 1970 of `2020-01-31`; a day too many for its month is one of the next. `None` without a month or a day.
pub fn days_in(text: &[u8]) -> Option<i64> {
    let (year, month, day) = numbers_of(text);
    ((1..=12).contains(&month) && day > 0).then(|| days_of(year, month, day))
}

pub fn put_days(text: &mut [u8], days: i64) {
    let (year, month, day) = date_of(days);
    put(&mut text[..4], year as u128);
    put(&mut text[5..7], month as u128);
    put(&mut text[8..10], day as u128);
}

/// A time of day, `23:59` or `23:59:59.999`, but for midnight. False, and nothing changed, for one that is none.
pub fn time(key: &[u8; 32], text: &mut [u8]) -> bool {
    let fraction = text.len().saturating_sub(9);
    let number = |part: &[u8]| part.iter().fold(0, |sum, byte| sum * 10 + u128::from(byte - b'0'));
    let seconds = if text.len() > 5 { number(&text[6..8]) } else { 0 };
    if seconds > 59 || fraction > 9 {
        return false;
    }
    let unit = 10_u128.pow(fraction as u32);
    let step = if text.len() > 5 { unit } else { 60 };
    let moment = number(&text[..2]) * 3600 + number(&text[3..5]) * 60 + seconds;
    // A clock without seconds counts minutes.
    let (value, size) = match text.len() {
        5 => (moment / step, SECONDS_PER_DAY / step),
        _ => (moment * step + number(text.get(9..).unwrap_or_default()), SECONDS_PER_DAY * step),
    };
    let place = 1 + Words::new(key, b't', [text.len() as u8].into_iter()).of(value - 1, size - 1);
    let moment = if text.len() == 5 { place * step } else { place / step };
    put(&mut text[..2], moment / 3600);
    put(&mut text[3..5], moment / 60 % 60);
    if text.len() > 5 {
        put(&mut text[6..8], moment % 60);
    }
    if fraction > 0 {
        put(&mut text[9..], place % unit);
    }
    true
}

fn put(digits: &mut [u8], mut number: u128) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Days since 1970 of a date, by the usual count from the first of March of the year 0.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::{DATE_DAYS, TIMESTAMP_DAYS, date, date_of, days_of, digits, letters, time};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use std::collections::HashSet;

    const KEY: [u8; 32] = [7; 32];

    fn changed(change: impl Fn(&mut [u8]) -> bool, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        assert!(change(&mut bytes), "{text}");
        String::from_utf8(bytes).unwrap()
    }

    /// That as many come out as went in.
    fn are_apart(change: impl Fn(&mut [u8]) -> bool, texts: impl Iterator<Item = String>) {
        let texts: Vec<_> = texts.collect();
        let found: HashSet<_> = texts.iter().map(|text| changed(&change, text)).collect();
        assert_eq!(found.len(), texts.len());
        assert!(texts.iter().any(|text| changed(&change, text) != *text));
    }

    #[test]
    fn different_values_have_different_pseudonyms() {
        are_apart(|part| digits(&KEY, part, false), (1..3000).map(|number| number.to_string()));
        are_apart(
            |part| digits(&KEY, part, false),
            (100..3000).map(|cents| format!("{}.{:02}", cents / 100, cents % 100)),
        );
        are_apart(|text| letters(&KEY, text, 26), ('a'..='z').map(String::from));
        are_apart(
            |text| letters(&KEY, text, 26),
            (0..1_000_u16).map(|number| {
                let [a, b] = [number / 26 % 26, number % 26].map(|place| char::from(b'a' + place as u8));
                format!("{a}{b}-{}", number / 676)
            }),
        );
        let days = (TIMESTAMP_DAYS.0..4000).map(|days| {
            let (year, month, day) = date_of(days);
            format!("{year:04}-{month:02}-{day:02}")
        });
        are_apart(|text| date(&KEY, text), days);
        are_apart(
            |text| time(&KEY, text),
            (1..1440).map(|minute| format!("{:02}:{:02}", minute / 60, minute % 60)),
        );
        are_apart(|text| time(&KEY, text), (0..999).map(|part| format!("12:00:59.{part:03}")));
    }

    #[test]
    fn bounds_of_dates_are_days() {
        assert_eq!(DATE_DAYS, (days_of(1000, 1, 1), days_of(10_000, 1, 1)));
        assert_eq!(TIMESTAMP_DAYS, (days_of(1970, 1, 2), days_of(2038, 1, 19)));
        assert!(!date(&KEY, &mut b"2023-02-31".to_vec()) && !date(&KEY, &mut b"2023-00-00".to_vec()));
    }

    proptest! {
        #[test]
        fn numbers_fit_the_types_that_they_fitted(number in any::<u64>(), shift in 0..64_u32) {
            let number = number >> shift;
            let replaced: u64 = changed(|part| digits(&KEY, part, false), &number.to_string()).parse().unwrap();
            for bits in [7, 8, 15, 16, 23, 24, 31, 32, 63] {
                prop_assert_eq!(number >> bits == 0, replaced >> bits == 0, "{} {}", number, replaced);
            }
            prop_assert_eq!(number.to_string().len(), replaced.to_string().len());
        }

        #[test]
        fn dates_are_days_of_the_same_range(days in DATE_DAYS.0..DATE_DAYS.1) {
            let (year, month, day) = date_of(days);
            prop_assert_eq!(days_of(year, month, day), days);
            let text = changed(|text| date(&KEY, text), &format!("{year:04}-{month:02}-{day:02}"));
            let parts: Vec<i64> = text.split('-').map(|part| part.parse().unwrap()).collect();
            let replaced = days_of(parts[0], parts[1], parts[2]);
            prop_assert_eq!(date_of(replaced), (parts[0], parts[1], parts[2]));
            prop_assert_eq!(days < TIMESTAMP_DAYS.0, replaced < TIMESTAMP_DAYS.0);
            prop_assert_eq!(days < TIMESTAMP_DAYS.1, replaced < TIMESTAMP_DAYS.1);
        }

        #[test]
        fn letters_keep_their_case_and_both_cases_are_alike(text in "[A-Za-z0-9 _.@-]{1,20}") {
            let out = changed(|text| letters(&KEY, text, 26), &text);
            let alike = changed(|text| letters(&KEY, text, 26), &text.to_lowercase());
            prop_assert_eq!(out.to_lowercase(), alike);
            prop_assert!(text.bytes().zip(out.bytes()).all(|(a, b)| a.is_ascii_uppercase() == b.is_ascii_uppercase()));
        }
    }
}
