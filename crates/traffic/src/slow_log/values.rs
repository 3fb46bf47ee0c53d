//! Values of a header: numbers, durations and flags, between blanks.

use super::time;

const NS_PER_S: u64 = 1_000_000_000;

pub(super) fn is_blank(byte: u8) -> bool {
    // A line that is wrapped has its end in it; some people put marks between values.
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b';' | b'|')
}

pub(super) fn value_length(text: &[u8]) -> usize {
    text.iter().position(|byte| is_blank(*byte)).unwrap_or(text.len())
}

pub(super) fn skip_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\n' | b'\r' | b',' | b';' | b'|', rest @ ..] = text {
        text = rest;
    }
    text
}

#[inline(always)]
pub(super) fn take_number(text: &[u8]) -> (Option<u64>, &[u8]) {
    let mut value = 0u64;
    let mut at = 0;
    while let Some(byte @ b'0'..=b'9') = text.get(at) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        at += 1;
    }
    if text.get(at).is_none_or(|byte| is_blank(*byte)) && (1..=19).contains(&at) && !goes_on(&text[at..]) {
        return (Some(value), &text[at..]);
    }
    grouped(text)
}

/// Whether a comma is within a number, and not behind it.
#[inline(always)]
fn goes_on(text: &[u8]) -> bool {
    matches!(text, [b',', b'0'..=b'9', ..])
}

/// `1,234,567`, as a spreadsheet may have it; any other value is none.
#[cold]
#[inline(never)]
fn grouped(text: &[u8]) -> (Option<u64>, &[u8]) {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b',').count();
    let (whole, rest) = text.split_at(length);
    let is_value = rest.first().is_none_or(|byte| is_blank(*byte)) && whole.contains(&b',');
    let rest = if is_value { rest } else { &rest[value_length(rest)..] };
    let mut groups = whole.split(|byte| *byte == b',');
    let is_grouped = groups.next().is_some_and(|first| (1..=3).contains(&first.len()))
        && groups.all(|group| group.len() == 3);
    let digits = || whole.iter().filter(|byte| **byte != b',');
    let value = |digits: u64, byte: &u8| digits.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    (if is_value && is_grouped { digits().try_fold(0, value) } else { None }, rest)
}

/// Powers of ten: what a digit behind the point is worth in ns.
const TENS: [u64; 10] = [NS_PER_S, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];

#[inline(always)]
pub(super) fn take_seconds(text: &[u8]) -> (Option<u64>, &[u8]) {
    plain_seconds(text).unwrap_or_else(|| any_seconds(text))
}

/// `12.345678`, as nearly every line has it: looked at once.
#[inline(always)]
fn plain_seconds(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let digits = |from: usize| {
        let (mut value, mut at) = (0_u64, from);
        while let Some(byte @ b'0'..=b'9') = text.get(at).filter(|_| at - from < 9) {
            value = value * 10 + u64::from(byte - b'0');
            at += 1;
        }
        (value, at)
    };
    let (whole, point) = digits(0);
    if point == 0 || text.get(point) != Some(&b'.') {
        return None;
    }
    let (fraction, end) = digits(point + 1);
    let is_all = end > point + 1 && text.get(end).is_none_or(|byte| is_blank(*byte));
    is_all.then(|| (Some(whole * NS_PER_S + fraction * TENS[end - point - 1]), &text[end..]))
}

#[cold]
#[inline(never)]
fn any_seconds(text: &[u8]) -> (Option<u64>, &[u8]) {
    let (value, rest) = text.split_at(value_length(text));
    if !goes_on(rest) {
        return (seconds(value), rest);
    }
    // `0,500000`: the point of many languages. With a point behind it, it is none that can be told.
    let length = 1 + value_length(&rest[1..]);
    let (fraction, rest) = rest.split_at(length);
    (seconds(&[value, b".", &fraction[1..]].concat()), rest)
}

/// Whether a text begins with a duration and goes on with another key.
pub(super) fn begins_with_seconds(text: &[u8]) -> bool {
    let (found, rest) = take_seconds(text);
    found.is_some() && skip_blanks(rest).get(..10).is_some_and(|key| key.eq_ignore_ascii_case(b"Lock_time:"))
}

pub(super) fn take_flag(text: &[u8]) -> (Option<u64>, &[u8]) {
    let (value, rest) = text.split_at(value_length(text));
    let flag = match value {
        b"Yes" => Some(1),
        b"No" => Some(0),
        _ => None,
    };
    (flag, rest)
}

pub(super) fn number(text: &[u8]) -> Option<u64> {
    take_number(text).0
}

/// `12.345678` in ns.
pub(super) fn seconds(text: &[u8]) -> Option<u64> {
    let mut whole = 0u64;
    let mut at = 0;
    while let Some(byte @ b'0'..=b'9') = text.get(at) {
        whole = whole.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let (ns, length) = match text.get(at) {
        Some(b'.') => time::fraction_ns(&text[at + 1..]),
        _ => (0, 0),
    };
    let end = if length > 0 { at + 1 + length } else { at };
    (end == text.len()).then_some(())?;
    whole.checked_mul(NS_PER_S)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::{take_number, take_seconds};

    #[test]
    fn a_comma_within_a_number_is_part_of_it() {
        for (text, ns, rest) in [
            ("0,500000  Lock_time: 1", Some(500_000_000), "  Lock_time: 1"),
            ("2,Lock_time: 1", Some(2_000_000_000), ",Lock_time: 1"),
            ("1,5", Some(1_500_000_000), ""),
            ("1,234.5 x", None, " x"),
            ("1,x", Some(1_000_000_000), ",x"),
        ] {
            assert_eq!(take_seconds(text.as_bytes()), (ns, rest.as_bytes()), "{text}");
        }
        for (text, value, rest) in [
            ("1,234,567 Rows", Some(1_234_567), " Rows"),
            ("12, Rows", Some(12), ", Rows"),
            ("1,23 x", None, " x"),
            ("1234,567 x", None, " x"),
            ("1,234.5 x", None, " x"),
            ("12|x", Some(12), "|x"),
            ("x1 y", None, " y"),
            ("", None, ""),
        ] {
            assert_eq!(take_number(text.as_bytes()), (value, rest.as_bytes()), "{text}");
        }
    }
}
