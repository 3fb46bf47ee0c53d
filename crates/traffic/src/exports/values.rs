//! Values as servers, clients and clouds write them into exports. What is none is `None`, never 0.

use memchr::memmem;

use crate::slow_log::time;

const NS_PER_S: u64 = 1_000_000_000;
/// A TIME of a server is not longer: 838:59:59.
const LONGEST_S: u64 = 3600 * 839;
/// Longer texts are no numbers.
const MOST_DIGITS: usize = 64;

/// A whole number: `12`, `12.0`, `1.2e1`, `1,234` (as spreadsheets write it).
pub(super) fn count(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    if text.is_empty() || text.len() > MOST_DIGITS {
        return None;
    }
    if text.iter().all(u8::is_ascii_digit) {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    if let Some(whole) = grouped(text) {
        return whole;
    }
    let value = real(text)?;
    ((0.0..9.0e18).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// `1,234,567`: groups of three.
fn grouped(text: &[u8]) -> Option<Option<u64>> {
    let mut groups = text.split(|byte| *byte == b',');
    let first = groups.next()?;
    let is_digits = |group: &[u8]| !group.is_empty() && group.iter().all(u8::is_ascii_digit);
    let rest: Vec<_> = groups.collect();
    if rest.is_empty()
        || !is_digits(first)
        || first.len() > 3
        || !rest.iter().all(|group| group.len() == 3 && is_digits(group))
    {
        return None;
    }
    let digits: Vec<u8> = text.iter().copied().filter(|byte| *byte != b',').collect();
    Some(std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok()))
}

fn real(text: &[u8]) -> Option<f64> {
    let is_number = text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E'));
    let value: f64 = std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// A length of time in ns: seconds (`1.25`, `2.5e-4`), or a TIME (`00:00:01.250000`).
pub(super) fn duration_ns(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    if text.len() > MOST_DIGITS {
        return None;
    }
    // What pandas makes of a TIME.
    let (days, text) = match memmem::find(text, b" days ") {
        Some(at) => (digits(&text[..at])?, &text[at + b" days ".len()..]),
        None => (0, text),
    };
    let parts: Vec<&[u8]> = text.split(|byte| *byte == b':').collect();
    let whole_s = match parts[..] {
        [_] => 0,
        [hours, minutes, _] => {
            let (hours, minutes) = (digits(hours)?, digits(minutes).filter(|minutes| *minutes < 60)?);
            hours.checked_mul(3600)? + minutes * 60
        }
        _ => return None,
    };
    let last = parts[parts.len() - 1];
    let ns = match decimal_ns(last) {
        Some(ns) => ns,
        None if parts.len() == 1 => exponent_ns(last)?,
        None => return None,
    };
    if parts.len() == 3 && ns >= 60 * NS_PER_S {
        return None;
    }
    let whole_s = days.checked_mul(86_400)?.checked_add(whole_s)?;
    whole_s.checked_mul(NS_PER_S)?.checked_add(ns).filter(|ns| *ns <= LONGEST_S * NS_PER_S)
}

fn exponent_ns(text: &[u8]) -> Option<u64> {
    let seconds = real(text).filter(|seconds| (0.0..=LONGEST_S as f64).contains(seconds))?;
    Some((seconds * 1e9).round() as u64)
}

fn digits(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() <= 6 && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

/// `12.345678` in ns, exactly.
fn decimal_ns(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b""[..]),
    };
    let is_number = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
    if whole.is_empty() || whole.len() > 10 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let seconds: u64 = std::str::from_utf8(whole).ok()?.parse().ok()?;
    seconds.checked_mul(NS_PER_S)?.checked_add(time::fraction_ns(fraction).0)
}

/// Whether a length of time was written with a fraction of a second.
pub(super) fn has_fraction(text: &[u8]) -> bool {
    memchr::memchr3(b'.', b'e', b'E', text).is_some()
}

/// A moment in ns since 1970, and whether its zone is known: a time as servers and clouds write it, or seconds, ms, µs
/// or ns since 1970, which their sizes tell apart for all of the years from 2001 to 2286.
pub(super) fn moment(text: &[u8]) -> Option<(u64, bool)> {
    let text = text.trim_ascii();
    if let Some(number) = count(text).filter(|_| !text.contains(&b',')) {
        let ns = match number {
            1_000_000_000..=9_999_999_999 => number.checked_mul(NS_PER_S),
            1_000_000_000_000..=9_999_999_999_999 => number.checked_mul(1_000_000),
            1_000_000_000_000_000..=9_999_999_999_999_999 => number.checked_mul(1_000),
            1_000_000_000_000_000_000.. => Some(number),
            _ => None,
        };
        if let Some(ns) = ns {
            return Some((ns, true));
        }
    }
    let known = time::stamp(text).filter(|(_, rest)| rest.trim_ascii().is_empty()).map(|(stamp, _)| stamp);
    let other = || super::dates::moment(text).map(|stamp| (stamp.ns, !stamp.is_local));
    let portal = || of_portal(text).map(|ns| (ns, true));
    known.map(|stamp| (stamp.ns, !stamp.is_local)).or_else(portal).or_else(other)
}

/// `3/1/2026, 10:32:00.000 AM`: Azure's portal, in UTC. Only the half of the day shows that the month comes first.
fn of_portal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (date, clock) = text.split_once(", ")?;
    let (clock, half) = clock.rsplit_once([' ', '\u{202f}'])?;
    let mut parts = date.split('/');
    let (month, day, year) = (parts.next()?, parts.next()?, parts.next()?);
    let (hour, rest) = clock.split_once(':')?;
    let hour: u8 = hour.parse().ok().filter(|hour| (1..=12).contains(hour))?;
    let hour = match half {
        "AM" => hour % 12,
        "PM" => hour % 12 + 12,
        _ => return None,
    };
    let text = format!("{year}-{month:0>2}-{day:0>2}T{hour:02}:{rest}Z");
    let (stamp, rest) = time::stamp(text.as_bytes())?;
    (parts.next().is_none() && rest.is_empty()).then_some(stamp.ns)
}

/// `1.23 ms`, as the sys schema formats times; in ns. Three digits are all that it writes.
pub(super) fn formatted_ns(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let (number, unit) = text.rsplit_once(' ')?;
    let unit_ns = match unit {
        "ps" => 1e-3,
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        "d" => 86_400e9,
        "w" => 604_800e9,
        _ => return None,
    };
    let value = real(number.as_bytes()).filter(|value| (0.0..1e9).contains(value))? * unit_ns;
    Some(value.round() as u64)
}

/// How a statement begins, for texts that may be encoded.
const VERBS: [&str; 22] = [
    "select", "insert", "update", "delete", "replace", "with", "call", "set", "show", "create", "alter",
    "drop", "truncate", "begin", "commit", "rollback", "use", "load", "explain", "/*", "(", "--",
];

fn is_statement(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    VERBS
        .iter()
        .any(|verb| text.get(..verb.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(verb.as_bytes())))
}

/// The statement of a BLOB that a client wrote in hexadecimal (`0x…`, or as HEX() does) or in base 64 (as MySQL writes a
/// BLOB into JSON, or as `TO_BASE64()` does). `None` where the text is the statement itself: without a prefix it is
/// decoded only if a statement comes out.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let has_prefix = text.starts_with(b"0x") || text.starts_with(b"0X");
    if let Some(bytes) = hexadecimal(if has_prefix { &text[2..] } else { text })
        && (has_prefix || is_statement(&bytes))
    {
        return Some(bytes);
    }
    if let Some(bytes) = python(text).filter(|bytes| is_statement(bytes)) {
        return Some(bytes);
    }
    if let Some(rest) = text.strip_prefix(b"base64:") {
        let data =
            rest.strip_prefix(b"type").and_then(|rest| memchr::memchr(b':', rest).map(|at| &rest[at + 1..]));
        return base64(data.unwrap_or(rest));
    }
    if text.len() < 8 || is_statement(text) {
        return None;
    }
    base64(text).filter(|bytes| is_statement(bytes) && std::str::from_utf8(bytes).is_ok())
}

/// Whether a client wrote this in the place of a BLOB: `BLOB`, `[BLOB - 23 B]`, `<binary data>`; or the program that
/// wrote the table has taken it for text: `[B@1b6d3586` of Java, `System.Byte[]`, `[object Object]`.
pub(super) fn is_placeholder(text: &[u8]) -> bool {
    const LONGEST: usize = 40;
    const OBJECTS: [&[u8]; 3] = [b"System.Byte[]", b"[object Object]", b"[object Blob]"];
    const NAMES: [&[u8]; 6] = [b"longblob", b"mediumblob", b"tinyblob", b"blob", b"binary data", b"binary"];
    if text.len() > LONGEST || text.is_empty() {
        return false;
    }
    let java = text.strip_prefix(b"[B@").is_some_and(|rest| rest.iter().all(u8::is_ascii_hexdigit));
    if java || OBJECTS.contains(&text) || text.starts_with(b"<memory at 0x") {
        return true;
    }
    let pairs = [(b'[', b']'), (b'(', b')'), (b'<', b'>'), (b'{', b'}')];
    let inner = pairs.iter().find_map(|(open, close)| text.strip_prefix(&[*open])?.strip_suffix(&[*close]));
    let lower = inner.unwrap_or(text).to_ascii_lowercase();
    let Some(size) = NAMES.iter().find_map(|name| lower.strip_prefix(*name)) else { return false };
    // `BLOB - 1.2 KiB`, `BLOB (23 bytes)`.
    let is_size = matches!(size.first(), Some(b' ' | b'-' | b':' | b'('))
        && size.iter().any(u8::is_ascii_digit)
        && size.iter().all(|byte| byte.is_ascii_digit() || b" -:.,()bkmgiytes".contains(byte));
    match inner {
        Some(_) => size.is_empty() || is_size,
        None => text == b"BLOB" || is_size,
    }
}

/// How a client wrote each BLOB of a column, where a text alone does not say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Python,
    Hexadecimal,
    Base64,
}

impl Coding {
    /// Told by a text that is a statement, or an account, only once it is decoded.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let is_account = |bytes: &[u8]| memchr::memchr(b'@', bytes).is_some();
        [Self::Python, Self::Hexadecimal, Self::Base64].into_iter().find(|coding| {
            !is_statement(text)
                && coding.decoded(text).is_some_and(|bytes| {
                    is_statement(&bytes)
                        || is_account(&bytes) && (*coding == Self::Python || !is_account(text))
                })
        })
    }

    pub(super) fn decoded(self, text: &[u8]) -> Option<Vec<u8>> {
        let bytes = match self {
            Self::Python => python(text),
            Self::Hexadecimal => hexadecimal(text),
            Self::Base64 => base64(text),
        };
        bytes.filter(|bytes| std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0')))
    }
}

/// `b'select 1'`: bytes as Python prints them.
fn python(text: &[u8]) -> Option<Vec<u8>> {
    let quoted = text.strip_prefix(b"b")?;
    let quote = quoted.first().filter(|quote| matches!(quote, b'\'' | b'"'))?;
    let mut rest = quoted[1..].strip_suffix(&[*quote])?;
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some(first) = rest.first() {
        let (byte, length) = match rest {
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b'r', ..] => (b'\r', 2),
            [b'\\', b't', ..] => (b'\t', 2),
            [b'\\', b'x', high, low, ..] => (hexadecimal(&[b'0', b'0', *high, *low])?[1], 4),
            [b'\\', other, ..] => (*other, 2),
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    Some(bytes)
}

fn hexadecimal(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() < 4 || !text.len().is_multiple_of(2) || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    text.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// With the ends of lines that MySQL puts in after 76 letters.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0u32);
    let data = text.trim_ascii_end();
    let padding = data.iter().rev().take_while(|byte| **byte == b'=').count();
    for byte in &data[..data.len() - padding] {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'\n' | b'\r' => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (padding <= 2 && bits == 0 && held < 6 && !bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{count, decoded, duration_ns, formatted_ns, moment};

    #[test]
    fn numbers() {
        for (text, value) in [
            ("12", Some(12)),
            ("12.0", Some(12)),
            ("1.2e1", Some(12)),
            ("1,234", Some(1234)),
            ("18446744073709551615", Some(u64::MAX)),
        ] {
            assert_eq!(count(text.as_bytes()), value, "{text}");
        }
        for text in ["", "-1", "1.5", "1e999", "nan", "inf", "12,34", "99999999999999999999", "0x12", "1_000"]
        {
            assert_eq!(count(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn lengths_of_time() {
        for (text, ns) in [
            ("1.25", 1_250_000_000),
            ("2.5e-4", 250_000),
            ("00:00:01.250000", 1_250_000_000),
            ("838:59:59", 3_020_399_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(duration_ns(text.as_bytes()), Some(ns), "{text}");
        }
        for text in ["", "-1", "1e999", "nan", "00:61:00", "00:00:61", "1:2", "99999999", "a", "4:5:6:7"] {
            assert_eq!(duration_ns(text.as_bytes()), None, "{text}");
        }
        assert_eq!(formatted_ns(b"1.23 ms"), Some(1_230_000));
        assert_eq!(formatted_ns(b"2.5 m"), Some(150_000_000_000));
        assert_eq!(formatted_ns(b"7 ps"), Some(0));
        assert_eq!((formatted_ns(b"12"), formatted_ns(b"1e99 s"), formatted_ns(b"1 x")), (None, None, None));
    }

    #[test]
    fn moments_of_every_size() {
        let ns = 1_700_000_000_123_000_000;
        for text in ["1700000000123", "1700000000123000", "1700000000123000000", "2023-11-14T22:13:20.123Z"] {
            assert_eq!(moment(text.as_bytes()), Some((ns, true)), "{text}");
        }
        assert_eq!(moment(b"2023-11-14 22:13:20.123"), Some((ns, false)));
        assert_eq!(moment(b"11/14/2023, 10:13:20.123 PM"), Some((ns, true)));
        assert_eq!(moment(b"1/2/2024, 12:00:00 AM"), moment(b"2024-01-02T00:00:00Z"));
        assert_eq!(moment(b"20240102000000"), moment(b"2024-01-02 00:00:00"));
        for text in ["", "12", "yesterday", "1/31/2024 12:00", "1e300", "1/1/2024, 13:00:00 AM"] {
            assert_eq!(moment(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn blobs() {
        let is = |text: &str, statement: Option<&str>| {
            assert_eq!(decoded(text.as_bytes()).as_deref(), statement.map(str::as_bytes), "{text}");
        };
        is("0x53454C4543542031", Some("SELECT 1"));
        is("73656c6563742031", Some("select 1"));
        is("base64:type252:U0VMRUNUIDE=", Some("SELECT 1"));
        is("U0VMRUNUIDE=", Some("SELECT 1"));
        is("b'select \\'a\\'\\n\\x41\\\\'", Some("select 'a'\nA\\"));
        is("b\"select 'a'\"", Some("select 'a'"));
        for text in ["b'x'", "SELECT 1", "ROLLBACK", "rollback", "commitit", "0x", "12345678", "deadbeef", ""]
        {
            is(text, None);
        }
    }
}
