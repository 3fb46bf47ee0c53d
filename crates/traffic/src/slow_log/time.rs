//! Times as servers write them into their logs.

const NS_PER_S: u64 = 1_000_000_000;
const S_PER_DAY: i64 = 86_400;
/// Zones are whole multiples of this away from each other.
const ZONE_STEP_S: i64 = 900;

/// Between date and clock there is one blank, or one more where the hour has one digit; editors add some.
const MAX_BLANKS: usize = 4;

/// A moment in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// In ns since 1970; of a `local` one as if its zone were UTC.
    pub ns: u64,
    /// It has no time zone: it is the server's local time.
    pub is_local: bool,
}

/// `2024-01-31T12:00:00.123456Z`, with an offset in place of the Z, or `070131  1:02:03[.123456]`. Gives the moment
/// and what follows it.
#[must_use]
pub fn stamp(text: &[u8]) -> Option<(Stamp, &[u8])> {
    if matches!(text.get(4), Some(b'-' | b'/')) { iso(text) } else { old(text) }
}

fn iso(text: &[u8]) -> Option<(Stamp, &[u8])> {
    let head = text.get(..19)?;
    if head[7] != head[4] || !matches!(head[10], b'T' | b' ') || head[13] != b':' || head[16] != b':' {
        return None;
    }
    let year = two(&head[0..2])? * 100 + two(&head[2..4])?;
    let date = days(year, two(&head[5..7])?, two(&head[8..10])?)?;
    let seconds = clock(two(&head[11..13])?, two(&head[14..16])?, two(&head[17..19])?)?;
    let (fraction_ns, rest) = fraction(&text[19..])?;
    let (offset_s, is_local, rest) = zone(rest)?;
    let seconds = u64::try_from(date * S_PER_DAY + seconds - offset_s).ok()?;
    // 64 bits of ns end in the year 2554.
    Some((Stamp { ns: seconds.checked_mul(NS_PER_S)?.checked_add(fraction_ns)?, is_local }, rest))
}

/// The year has two digits, the hour one or two, with a blank before.
fn old(text: &[u8]) -> Option<(Stamp, &[u8])> {
    let head = text.get(..7)?;
    if head[6] != b' ' {
        return None;
    }
    let year = two(&head[0..2])?;
    let date = days(if year < 70 { 2000 + year } else { 1900 + year }, two(&head[2..4])?, two(&head[4..6])?)?;
    let blanks = text[7..].iter().take_while(|byte| **byte == b' ').count();
    let rest = text.get(7 + blanks.min(MAX_BLANKS)..)?;
    if let Some(clock) = rest.get(..6).filter(|clock| clock.iter().all(u8::is_ascii_digit)) {
        // Scripts that write mysql.slow_log as text leave out the colons.
        let seconds = clock_at(clock)?;
        let (fraction_ns, rest) = fraction(&rest[6..])?;
        return local(date, seconds, fraction_ns, rest);
    }
    let (hour, rest) = if rest.get(1) == Some(&b':') {
        (digit(rest[0])?, &rest[1..])
    } else {
        (two(rest.get(..2)?)?, &rest[2..])
    };
    let rest = rest.get(..6).filter(|clock| clock[0] == b':' && clock[3] == b':').map(|_| rest)?;
    let seconds = clock(hour, two(&rest[1..3])?, two(&rest[4..6])?)?;
    let (fraction_ns, rest) = fraction(&rest[6..])?;
    local(date, seconds, fraction_ns, rest)
}

fn local(date: i64, seconds: i64, fraction_ns: u64, rest: &[u8]) -> Option<(Stamp, &[u8])> {
    let seconds = u64::try_from(date * S_PER_DAY + seconds).ok()?;
    Some((Stamp { ns: seconds * NS_PER_S + fraction_ns, is_local: true }, rest))
}

/// Whether two moments, in seconds, can be the same one in two zones.
#[must_use]
pub fn same_but_for_zone(local_s: u64, utc_s: u64) -> bool {
    let difference = local_s.abs_diff(utc_s);
    difference.is_multiple_of(ZONE_STEP_S.unsigned_abs()) && difference <= 15 * 3600
}

fn digit(byte: u8) -> Option<i64> {
    byte.is_ascii_digit().then(|| i64::from(byte - b'0'))
}

fn two(text: &[u8]) -> Option<i64> {
    Some(digit(text[0])? * 10 + digit(text[1])?)
}

fn clock(hour: i64, minute: i64, second: i64) -> Option<i64> {
    // 60 is a leap second.
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

/// `hhmmss`.
fn clock_at(digits: &[u8]) -> Option<i64> {
    clock(two(&digits[..2])?, two(&digits[2..4])?, two(&digits[4..])?)
}

/// Days since 1970 of a date, by the usual count from the first of March of the year 0.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468)
}

/// `.123456`, or nothing.
fn fraction(text: &[u8]) -> Option<(u64, &[u8])> {
    let Some(rest) = text.strip_prefix(b".") else { return Some((0, text)) };
    let (ns, length) = fraction_ns(rest);
    (length > 0).then(|| (ns, &rest[length..]))
}

/// Digits after a decimal point in ns, and how many there are; those after the ninth count for nothing.
pub(crate) fn fraction_ns(text: &[u8]) -> (u64, usize) {
    let (mut ns, mut unit, mut length) = (0, NS_PER_S / 10, 0);
    while let Some(byte @ b'0'..=b'9') = text.get(length) {
        ns += u64::from(byte - b'0') * unit;
        unit /= 10;
        length += 1;
    }
    (ns, length)
}

/// `Z`, `+02:00`, or nothing, which says that it is local. Other programs write `+0200` and ` UTC`.
fn zone(text: &[u8]) -> Option<(i64, bool, &[u8])> {
    match text.first() {
        Some(b'Z') => Some((0, false, &text[1..])),
        Some(sign @ (b'+' | b'-')) => {
            let colon = usize::from(text.get(3) == Some(&b':'));
            let seconds = clock(two(text.get(1..3)?)?, two(text.get(3 + colon..5 + colon)?)?, 0)?;
            Some((if *sign == b'-' { -seconds } else { seconds }, false, &text[5 + colon..]))
        }
        Some(b' ') if text.starts_with(b" UTC") || text.starts_with(b" GMT") => Some((0, false, &text[4..])),
        _ => Some((0, true, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(text: &str, ns: u64, is_local: bool) {
        assert_eq!(stamp(text.as_bytes()), Some((Stamp { ns, is_local }, &b""[..])), "{text}");
    }

    #[test]
    fn both_forms_and_their_zones() {
        is("1970-01-01T00:00:00Z", 0, false);
        is("2024-02-29T23:59:59.123456Z", 1_709_251_199_123_456_000, false);
        is("2024-03-01T01:59:59.5+02:00", 1_709_251_199_500_000_000, false);
        is("2024-02-29T18:29:59-05:30", 1_709_251_199_000_000_000, false);
        is("2024-02-29 23:59:59", 1_709_251_199_000_000_000, true);
        is("2024-03-01T01:59:59+0200", 1_709_251_199_000_000_000, false);
        is("2024/02/29 23:59:59", 1_709_251_199_000_000_000, true);
        is("2024-02-29 23:59:59.5 UTC", 1_709_251_199_500_000_000, false);
        is("240229 23:59:59", 1_709_251_199_000_000_000, true);
        is("070101  1:02:03", 1_167_613_323_000_000_000, true);
        is("070101 010203", 1_167_613_323_000_000_000, true);
        is("070101 01:02:03.000001", 1_167_613_323_000_001_000, true);
        assert_eq!(stamp(b"071015 21:43:52  # User").unwrap().1, b"  # User");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "5402-01-31T12:00:02",
            "2024",
            "2024-13-01T00:00:00Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01X00:00:00Z",
            "0702 1:02:03",
            "070101 25:02:03",
            "070101 1:02",
            "2024-01-01T00:00:00+02",
            "2024-01/01T00:00:00Z",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(stamp(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn moments_in_two_zones() {
        assert!(same_but_for_zone(7200, 0) && same_but_for_zone(0, 19_800) && !same_but_for_zone(7201, 0));
    }
}
