//! Lines of mysqlbinlog's output: the head of an event, and numbers in it.

use super::gtid::{Gtid, Source};

const DAY_S: u64 = 86_400;

/// The head of an event: `#261128 13:03:37 server id 7  end_log_pos 454 CRC32 0xe0d99d27`, a TAB, `Query`, TABs and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Seconds since 1970 in the zone of whoever ran mysqlbinlog.
    pub local_s: u64,
    pub server: u32,
    pub end: u64,
    /// What the event is, and more about it.
    pub what: &'a [u8],
}

impl<'a> Head<'a> {
    #[must_use]
    pub fn read(line: &'a [u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"#")?;
        let (date, rest) = rest.split_at_checked(6)?;
        let (clock, rest) = rest.strip_prefix(b" ")?.split_at_checked(8)?;
        let local_s = seconds(date, clock)?;
        let (server, rest) = number(rest.strip_prefix(b" server id ")?)?;
        let (end, rest) = number(rest.trim_ascii_start().strip_prefix(b"end_log_pos ")?)?;
        let rest = rest.trim_ascii_start();
        let rest = match rest.strip_prefix(b"CRC32 ") {
            Some(sum) => {
                &sum[sum.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(sum.len())..]
            }
            None => rest,
        };
        Some(Head { local_s, server: u32::try_from(server).ok()?, end, what: rest.trim_ascii() })
    }

    /// The number behind `key`, such as `exec_time=`; None without one.
    #[must_use]
    pub fn value(&self, key: &[u8]) -> Option<u64> {
        let at = memchr::memmem::find(self.what, key)?;
        number(&self.what[at + key.len()..]).map(|(value, _)| value)
    }
}

/// A number at the front, and the rest.
#[must_use]
pub fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some((value, &text[digits..]))
}

/// `261128` and `13:03:37` or ` 9:03:37`.
fn seconds(date: &[u8], clock: &[u8]) -> Option<u64> {
    let two = |text: &[u8], at: usize| {
        let pair = text.get(at..at + 2)?;
        let pair = if pair[0] == b' ' { &pair[1..] } else { pair };
        let is_number = pair.iter().all(u8::is_ascii_digit);
        is_number.then(|| pair.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    };
    let (year, month, day) = (two(date, 0)? + 2000, two(date, 2)?, two(date, 4)?);
    let (hour, minute, second) = (two(clock, 0)?, two(clock, 3)?, two(clock, 6)?);
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_clock = hour < 24 && minute < 60 && second < 61 && clock[2] == b':' && clock[5] == b':';
    if !is_date || !is_clock {
        return None;
    }
    // Years from March on, so that a leap day is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * DAY_S + hour * 3600 + minute * 60 + second)
}

/// `4ee93922-eb2f-11f1-8145-02fc00000001:nightly:3`, or MariaDB's `0-7-1`.
#[must_use]
pub fn gtid(text: &[u8]) -> Gtid {
    if let Some(at) = memchr::memrchr(b':', text) {
        let number = number(&text[at + 1..]).filter(|(_, rest)| rest.is_empty());
        return match (Source::parse(&text[..at]), number) {
            (Some(source), Some((number, _))) => Gtid::Mysql { source, number },
            _ => Gtid::None,
        };
    }
    let mut parts =
        text.split(|byte| *byte == b'-').map(|part| number(part).filter(|(_, rest)| rest.is_empty()));
    let [domain, server, sequence] = [(); 3].map(|()| parts.next().flatten().map(|(value, _)| value));
    match (
        domain.and_then(|value| u32::try_from(value).ok()),
        server.and_then(|value| u32::try_from(value).ok()),
    ) {
        (Some(domain), Some(server)) => {
            sequence.map_or(Gtid::None, |sequence| Gtid::MariaDb { domain, server, sequence })
        }
        _ => Gtid::None,
    }
}

/// The two names in `` `shop`.`orders` `` at the front, in which a backtick is doubled, and the rest.
#[must_use]
pub fn table(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>, &[u8])> {
    let (database, rest) = name(text)?;
    let (table, rest) = name(rest.strip_prefix(b".")?)?;
    Some((database, table, rest))
}

fn name(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"`")?;
    let mut name = Vec::new();
    loop {
        let end = memchr::memchr(b'`', rest)?;
        name.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(b"`") {
            Some(more) if !more.starts_with(b".") => {
                name.push(b'`');
                rest = more;
            }
            _ => return Some((name, rest)),
        }
    }
}

/// Decodes base64 without blanks, behind what `out` holds; false if it is not all base64.
pub fn base64(text: &[u8], out: &mut Vec<u8>) -> bool {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    for group in text.trim_ascii_end().chunks(4) {
        let letters = group.iter().take_while(|byte| **byte != b'=').count();
        if letters < 2 || !group[letters..].iter().all(|byte| *byte == b'=') || group.len() < 4 {
            return false;
        }
        let mut sum = 0_u32;
        for byte in &group[..letters] {
            let Some(value) = value(*byte) else { return false };
            sum = sum << 6 | u32::from(value);
        }
        sum <<= 6 * (4 - letters);
        out.extend_from_slice(&sum.to_be_bytes()[1..letters]);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{Head, base64, gtid, table};

    #[test]
    fn heads() {
        let line = b"#261128 13:03:37 server id 7  end_log_pos 454 CRC32 0xe0d99d27 \tQuery\tthread_id=5\texec_time=12\terror_code=0";
        let head = Head::read(line).unwrap();
        assert_eq!((head.local_s, head.server, head.end), (1_795_871_017, 7, 454));
        assert_eq!((head.value(b"exec_time="), head.value(b"xid=")), (Some(12), None));
        let old = Head::read(b"#120229  9:00:01 server id 1  end_log_pos 4 \tXid = 12").unwrap();
        assert_eq!((old.local_s, old.what), (1_330_506_001, &b"Xid = 12"[..]));
        for line in ["# at 4", "#261128 13:03:37", "#261328 13:03:37 server id 1  end_log_pos 1", "select 1"]
        {
            assert_eq!(Head::read(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(gtid(b"0-7-12").to_string(), "0-7-12");
        let text = "4ee93922-eb2f-11f1-8145-02fc00000001:nightly:3";
        assert_eq!(gtid(text.as_bytes()).to_string(), text);
        assert_eq!(gtid(b"AUTOMATIC").to_string(), "");
        let found = table(b"`a``b`.`c.d` mapped to number 3").unwrap();
        assert_eq!(found, (b"a`b".to_vec(), b"c.d".to_vec(), &b" mapped to number 3"[..]));
        let mut out = Vec::new();
        assert!(base64(b"aGVsbG8=", &mut out) && base64(b"IQ==", &mut out));
        assert_eq!(out, b"hello!");
        assert!(!base64(b"aGV", &mut out) && !base64(b"a*b=", &mut out) && !base64(b"=aaa", &mut out));
    }
}
