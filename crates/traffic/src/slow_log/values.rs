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
    if text.get(at).is_none_or(|byte| is_blank(*byte)) && (1..=19).contains(&at) {
        return (Some(value), &text[at..]);
    }
    (None, &text[value_length(text)..])
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
    (seconds(value), rest)
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
