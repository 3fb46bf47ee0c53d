//! Pseudonyms of single literals, by what they look like: numbers, dates, hex digits, JSON, any other text.

use super::order::{self, Scheme};
use super::pseudonyms::{self, keyed};

/// Numbers without end that only who has the key can foretell.
struct Draw(u64);

impl Draw {
    /// For one value of one kind.
    fn new(key: &[u8; 32], kind: u8, value: impl Iterator<Item = u8>) -> Self {
        let hash = keyed(key, kind, value);
        Self(hash.iter().take(8).fold(0, |number, &byte| (number << 8) | u64::from(byte)))
    }

    /// The next number below `limit` (splitmix64).
    fn below(&mut self, limit: u8) -> u8 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        // The high half times the limit: even to one in 2^24.
        (((mixed >> 32) * u64::from(limit)) >> 32) as u8
    }

    fn digit(&mut self) -> u8 {
        b'0' + self.below(10)
    }
}

/// A decimal number: other digits, none in front that was not there, and zero stays zero.
pub fn number(key: &[u8; 32], part: &mut [u8], is_negative: bool) {
    let mantissa = part.iter().position(|byte| byte | 0x20 == b'e').unwrap_or(part.len());
    let before = (mantissa < part.len() && is_finite(part)).then(|| part.to_vec());
    if !pseudonyms::digits(key, &mut part[..mantissa], is_negative) {
        drawn_digits(key, part, mantissa);
    }
    // The largest DOUBLE has no digit to spare.
    if let Some(before) = before
        && !is_finite(part)
    {
        part.copy_from_slice(&before);
    }
}

fn is_finite(number: &[u8]) -> bool {
    std::str::from_utf8(number).is_ok_and(|text| text.parse::<f64>().is_ok_and(f64::is_finite))
}

fn drawn_digits(key: &[u8; 32], part: &mut [u8], mantissa: usize) {
    let mut draw = Draw::new(key, b'n', part.iter().copied());
    let mut leads = true;
    for byte in &mut part[..mantissa] {
        match byte {
            b'0' if leads => {}
            b'1'..=b'9' if leads => {
                *byte = b'1' + draw.below(9);
                leads = false;
            }
            b'0'..=b'9' => *byte = draw.digit(),
            _ => {}
        }
    }
}

/// Puts the pseudonym of a number that is in `out[from..to]` in its place. In order it may have one digit more.
pub fn put_number(scheme: &Scheme, out: &mut Vec<u8>, from: usize, to: usize, is_negative: bool) {
    match scheme.order.numbers.then(|| in_order(&scheme.key, &out[from..to])).flatten() {
        Some(replaced) => drop(out.splice(from..to, replaced)),
        None => number(&scheme.key, &mut out[from..to], is_negative),
    }
}

/// A number whose pseudonym is larger than those of smaller ones. Digits behind the point stay. `None` where it has too
/// many digits.
fn in_order(key: &[u8; 32], part: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(part).ok()?;
    let is_double = text.bytes().any(|byte| byte | 0x20 == b'e');
    let mut plain = text.to_owned();
    if is_double {
        let number: f64 = text.parse().ok()?;
        if !(4096.0..1e37).contains(&number) {
            return Some(part.to_vec());
        }
        plain = number.to_string();
    }
    let (before, behind) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let significant = before.trim_start_matches('0');
    if !before.bytes().all(|byte| byte.is_ascii_digit()) || significant.len() > pseudonyms::MOST_DIGITS {
        return None;
    }
    let value = significant.parse().unwrap_or(0);
    let width = before.len();
    let behind = if is_double { format!("{behind}e0") } else { behind.to_owned() };
    Some(match order::whole(key, value) {
        same if same == value => part.to_vec(),
        other => format!("{other:0width$}{behind}").into_bytes(),
    })
}

/// The digits of `0x..` or `0b..`, from the letter on.
pub fn digits_of_bits(key: &[u8; 32], part: &mut [u8]) {
    let is_hex = part[0] | 0x20 == b'x';
    let digits = &mut part[1..];
    if if is_hex { pseudonyms::letters(key, digits, 6) } else { pseudonyms::bits(key, digits) } {
        return;
    }
    let mut draw = Draw::new(key, b'h', digits.iter().map(u8::to_ascii_lowercase));
    for byte in digits.iter_mut().filter(|byte| byte.is_ascii_alphanumeric()) {
        *byte = if is_hex { hex(*byte, &mut draw) } else { b'0' + draw.below(2) };
    }
}

fn hex(byte: u8, draw: &mut Draw) -> u8 {
    match byte {
        b'0'..=b'9' => draw.digit(),
        b'A'..=b'Z' => b'A' + draw.below(6),
        b'a'..=b'z' => b'a' + draw.below(6),
        other => other,
    }
}

/// A string with its quotes and prefix, from `start` to the end of `out`.
pub fn quoted(scheme: &Scheme, out: &mut Vec<u8>, start: usize) {
    let part = &mut out[start..];
    let Some(quote) = part.iter().position(|byte| matches!(byte, b'\'' | b'"')) else {
        return plain(&scheme.key, part, false);
    };
    if part[0] == b'$' {
        // Between dollar tags, whose letters stay.
        let tag = 2 + part[1..].iter().position(|&byte| byte == b'$').unwrap_or(0);
        let end = part.len().saturating_sub(tag).max(tag);
        return plain(&scheme.key, &mut part[tag..end], false);
    }
    if quote == 1 && matches!(part[0] | 0x20, b'x' | b'b') {
        // As `0x..`: the letter in front of the digits.
        let end = part.len() - usize::from(part.len() > 2 && part[part.len() - 1] == part[1]);
        let (letter, mark) = (part[0], part[1]);
        part[1] = letter;
        digits_of_bits(&scheme.key, &mut part[1..end]);
        part[1] = mark;
        return;
    }
    let mark = part[quote];
    let is_closed = part.len() > quote + 1 && part.last() == Some(&mark);
    let end = part.len() - usize::from(is_closed);
    let inner = &mut part[quote + 1..end];
    if is_number(inner) {
        let is_negative = inner[0] == b'-';
        let from = start + quote + 1 + usize::from(is_negative);
        return put_number(scheme, out, from, start + end, is_negative);
    }
    content(scheme, inner, false);
}

/// What is in quotes, by its form.
fn content(scheme: &Scheme, text: &mut [u8], in_json: bool) {
    let key = &scheme.key;
    if text.is_empty() || is_no_date(text) {
        return;
    }
    if is_number(text) {
        let sign = usize::from(text[0] == b'-');
        number(key, &mut text[sign..], sign > 0);
    } else if is_date(text) {
        date(scheme, text);
    } else if is_time(text) {
        time(scheme, text);
    } else if text.len() >= 16
        && text.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
        && text.iter().any(u8::is_ascii_digit)
    {
        if !pseudonyms::letters(key, text, 6) {
            let mut draw = Draw::new(key, b's', text.iter().map(u8::to_ascii_lowercase));
            text.iter_mut().for_each(|byte| *byte = hex(*byte, &mut draw));
        }
    } else if (!json_shape(text) || !json(scheme, text)) && !path(scheme, text) {
        plain(key, text, in_json);
    }
}

/// `0000-00-00`, and a time of as many zeroes.
fn is_no_date(text: &[u8]) -> bool {
    text.starts_with(b"0000-00-00")
        && text[10..].iter().all(|byte| matches!(byte, b' ' | b'T' | b'0' | b':' | b'.'))
}

fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let points = digits.iter().filter(|&&byte| byte == b'.').count();
    let is_digits = digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    is_digits && points <= 1 && digits.len() > points && !digits.is_empty()
}

fn fits(text: &[u8], form: &[u8]) -> bool {
    text.len() >= form.len()
        && form.iter().zip(text).all(|(form, byte)| match form {
            b'd' => byte.is_ascii_digit(),
            form => form == byte,
        })
}

/// `2020-01-31`, and a time behind it.
fn is_date(text: &[u8]) -> bool {
    fits(text, b"dddd-dd-dd")
        && (text.len() == 10
            || matches!(text[10], b' ' | b'T') && is_time(&text[11..text.len() - zone(text)]))
        && text[5..7] <= b"12"[..]
        && text[8..10] <= b"31"[..]
}

/// `23:59` or `23:59:59.999`
fn is_time(text: &[u8]) -> bool {
    let is_short = text.len() == 5 && fits(text, b"dd:dd");
    let is_long = fits(text, b"dd:dd:dd")
        && (text.len() == 8 || text[8] == b'.' && text[9..].iter().all(u8::is_ascii_digit));
    (is_short || is_long) && text[..2] <= b"23"[..] && text[3..5] <= b"59"[..]
}

/// How long the zone is that a date and time end with: `Z` or `+02:00`.
fn zone(text: &[u8]) -> usize {
    let signed = text.len().checked_sub(6).filter(|&at| at > 10);
    match text {
        [.., b'Z'] => 1,
        _ if signed.is_some_and(|at| fits(&text[at..], b"+dd:dd") || fits(&text[at..], b"-dd:dd")) => 6,
        _ => 0,
    }
}

fn two_digits(text: &mut [u8], number: u8) {
    text[0] = b'0' + number / 10;
    text[1] = b'0' + number % 10;
}

fn date(scheme: &Scheme, text: &mut [u8]) {
    let key = &scheme.key;
    if text.len() > 10 {
        let end = text.len() - zone(text);
        time(scheme, &mut text[11..end]);
    }
    if scheme.order.dates
        && let Some(days) = pseudonyms::days_in(text)
    {
        return pseudonyms::put_days(text, order::days(key, days));
    }
    if pseudonyms::date(key, &mut text[..10]) {
        return;
    }
    let mut draw = Draw::new(key, b'd', text[..10].iter().copied());
    // The years of TIMESTAMP, the days of every month.
    let year = 71 + draw.below(66);
    text[..2].copy_from_slice(if year >= 100 { b"20" } else { b"19" });
    two_digits(&mut text[2..4], year % 100);
    two_digits(&mut text[5..7], 1 + draw.below(12));
    two_digits(&mut text[8..10], 1 + draw.below(28));
}

fn time(scheme: &Scheme, text: &mut [u8]) {
    let key = &scheme.key;
    // Midnight says that there is no time. In order each moment of a day has only one place.
    if scheme.order.dates || text.iter().all(|byte| matches!(byte, b'0' | b':' | b'.')) {
        return;
    }
    if pseudonyms::time(key, text) {
        return;
    }
    let mut draw = Draw::new(key, b't', text.iter().copied());
    two_digits(&mut text[..2], draw.below(24));
    two_digits(&mut text[3..5], draw.below(60));
    if text.len() > 5 {
        two_digits(&mut text[6..8], draw.below(60));
        text[8..].iter_mut().filter(|byte| byte.is_ascii_digit()).for_each(|byte| *byte = draw.digit());
    }
}

/// Any text, character by character.
fn plain(key: &[u8; 32], text: &mut [u8], in_json: bool) {
    if pseudonyms::letters(key, text, 26) {
        return;
    }
    let mut draw = Draw::new(key, b's', text.iter().map(u8::to_ascii_lowercase));
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        match byte {
            b'a'..=b'z' => text[at] = b'a' + draw.below(26),
            b'A'..=b'Z' => text[at] = b'A' + draw.below(26),
            b'0'..=b'9' => text[at] = draw.digit(),
            // An escape is not a letter. JSON's have their backslash twice.
            b'\\' if in_json && text[at..].starts_with(b"\\\\u") && text.len() >= at + 7 => {
                other_escape(&mut text[at + 3..at + 7], &mut draw);
                at += 6;
            }
            b'\\' if in_json && text[at..].starts_with(b"\\\\") => at += 2,
            b'\\' => {
                at += 1;
                if let Some(escaped) = text.get_mut(at)
                    && escaped.is_ascii_alphanumeric()
                    && !matches!(*escaped, b'n' | b't' | b'r' | b'b' | b'0' | b'Z')
                {
                    *escaped = b'x';
                }
            }
            0x80.. => {
                let length = utf8_length(&text[at..]);
                other_character(&mut text[at..at + length], &mut draw);
                at += length;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// How long a character is; 1 for what is none.
fn utf8_length(text: &[u8]) -> usize {
    let length = match text[0] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if text.get(..length).is_some_and(|character| std::str::from_utf8(character).is_ok()) {
        length
    } else {
        1
    }
}

fn other_character(character: &mut [u8], draw: &mut Draw) {
    match character {
        // à to þ
        [first, second] => (*first, *second) = (0xC3, 0xA0 + draw.below(31)),
        // U+5000 to U+8FFF
        [first, second, third] => {
            (*first, *second, *third) = (0xE5 + draw.below(4), 0x80 + draw.below(64), 0x80 + draw.below(64));
        }
        // U+1F600 to U+1F63F
        [first, second, third, fourth] => {
            (*first, *second, *third, *fourth) = (0xF0, 0x9F, 0x98, 0x80 + draw.below(64));
        }
        other => other.fill(b'x'),
    }
}

/// The four digits of JSON's `\u`: Cyrillic, or the halves of U+1F600 to U+1F63F.
fn other_escape(digits: &mut [u8], draw: &mut Draw) {
    let digit = |number: u8| b"0123456789abcdef"[usize::from(number)];
    let is_surrogate = digits[0] | 0x20 == b'd' && digits[1].to_ascii_lowercase() >= b'8';
    let (start, third): (&[u8], u8) = match (is_surrogate, digits[1].to_ascii_lowercase() >= b'c') {
        (true, false) => return digits.copy_from_slice(b"d83d"),
        (true, true) => (b"de", digit(draw.below(4))),
        (false, _) => (b"04", b'3'),
    };
    digits[..2].copy_from_slice(start);
    (digits[2], digits[3]) = (third, digit(draw.below(16)));
}

fn json_shape(text: &[u8]) -> bool {
    let trimmed = text.trim_ascii();
    matches!((trimmed.first(), trimmed.last()), (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')))
}

/// JSON, as written in a string of SQL: `"` may have a backslash in front. False, and nothing changed, if it is none.
fn json(scheme: &Scheme, text: &mut [u8]) -> bool {
    let first = text.iter().position(|&byte| byte == b'"').unwrap_or(0);
    let mark: &[u8] = if first > 0 && text[first - 1] == b'\\' { b"\\\"" } else { b"\"" };
    // Twice: the first time only to see whether all of it can be read.
    for is_real in [false, true] {
        let mut at = 0;
        while at < text.len() {
            let end = if text[at..].starts_with(mark) {
                let start = at + mark.len();
                let Some(end) = json_string_end(text, start, mark) else { return false };
                if is_real {
                    content(scheme, &mut text[start..end], true);
                }
                end + mark.len()
            } else if text[at].is_ascii_digit() {
                let end = end_of(text, at, |byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-')
                });
                if is_real {
                    let is_negative = at > 0 && text[at - 1] == b'-';
                    number(&scheme.key, &mut text[at..end], is_negative);
                }
                end
            } else if text[at].is_ascii_alphabetic() {
                let end = end_of(text, at, |byte| byte.is_ascii_alphanumeric());
                if !matches!(&text[at..end], b"true" | b"false" | b"null") {
                    return false;
                }
                end
            } else if matches!(
                text[at],
                b'{' | b'}' | b'[' | b']' | b':' | b',' | b'-' | b' ' | b'\n' | b'\t' | b'\r'
            ) {
                at + 1
            } else if text[at] == b'\\' && matches!(text.get(at + 1), Some(b'n' | b't' | b'r')) {
                at + 2
            } else {
                return false;
            };
            at = end;
        }
    }
    true
}

fn end_of(text: &[u8], at: usize, inside: impl Fn(u8) -> bool) -> usize {
    text[at..].iter().position(|&byte| !inside(byte)).map_or(text.len(), |length| at + length)
}

fn find(text: &[u8], what: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find(&text[from..], what).map(|length| from + length)
}

/// Where a string of JSON ends: escapes in it have two backslashes, one for SQL.
fn json_string_end(text: &[u8], from: usize, mark: &[u8]) -> Option<usize> {
    let mut at = from;
    while at < text.len() {
        if text[at..].starts_with(mark) {
            return Some(at);
        }
        if text[at..].starts_with(b"\\\\") {
            // The pair, and the escape's letter or the pair in front of a quote.
            at += 2;
            at += if text.get(at) == Some(&b'\\') { 2 } else { 1 };
        } else if text[at] == b'\\' {
            at += 2;
        } else {
            at += 1;
        }
    }
    None
}

/// A path of JSON (`$.name[0]."other name"`): its names as those of the documents. False if it is none.
fn path(scheme: &Scheme, text: &mut [u8]) -> bool {
    if text[0] != b'$' || !matches!(text.get(1), None | Some(b'.' | b'[')) {
        return false;
    }
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'[' => at = end_of(text, at, |byte| byte != b']'),
            b'"' => {
                let Some(end) = find(text, b"\"", at + 1) else {
                    plain(&scheme.key, &mut text[at..], false);
                    return true;
                };
                content(scheme, &mut text[at + 1..end], false);
                at = end + 1;
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80 => {
                let end =
                    end_of(text, at, |byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80);
                content(scheme, &mut text[at..end], false);
                at = end;
            }
            _ => at += 1,
        }
    }
    true
}
