//! Moments as spreadsheets, languages and people write them: those that can be read in one way only.

use crate::slow_log::time::{self, Stamp};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// The moment of a date in another form than servers and clouds have. Nothing where day and month can be told apart by
/// nothing, or where a zone is known by a name only.
pub(super) fn moment(text: &[u8]) -> Option<Stamp> {
    let text = std::str::from_utf8(text).ok()?;
    epoch(text).or_else(|| iso(&digits(text)?)).or_else(|| comma(text)).or_else(|| written(text))
}

fn iso(text: &str) -> Option<Stamp> {
    let (stamp, rest) = time::stamp(text.as_bytes())?;
    rest.is_empty().then_some(stamp)
}

/// `1767348000.123`: seconds since 1970.
fn epoch(text: &str) -> Option<Stamp> {
    let (whole, fraction) = text.split_once('.')?;
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() != 10 || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let seconds: u64 = whole.parse().ok()?;
    Some(Stamp { ns: seconds * 1_000_000_000 + time::fraction_ns(fraction.as_bytes()).0, is_local: false })
}

/// `20260102100000` and `20260102T100000Z`.
fn digits(text: &str) -> Option<String> {
    let rest = text.get(8..)?;
    let rest = rest.strip_prefix('T').unwrap_or(rest);
    let (date, clock) = (&text[..8], rest.get(..6)?);
    if !date.bytes().chain(clock.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (day, time) = ((&date[..4], &date[4..6], &date[6..]), (&clock[..2], &clock[2..4], &clock[4..]));
    Some(format!("{}-{}-{}T{}:{}:{}{}", day.0, day.1, day.2, time.0, time.1, time.2, &rest[6..]))
}

/// `2026-01-02 10:00:00,123`, as Java and Python log it.
fn comma(text: &str) -> Option<Stamp> {
    let (before, after) = text.split_once(',')?;
    (before.len() == 19 && after.starts_with(|first: char| first.is_ascii_digit()))
        .then(|| iso(&format!("{before}.{after}")))?
}

/// `Fri, 02 Jan 2026 10:00:00 GMT`, `02-Jan-2026 10:00:00`, `02.01.2026 10:00:00`, `13/1/2026 10:00:00`.
fn written(text: &str) -> Option<Stamp> {
    let mut parts = Parts::default();
    for word in text.split([' ', '\u{202f}']).flat_map(|word| word.strip_suffix(',').or(Some(word))) {
        parts.take(word)?;
    }
    parts.stamp()
}

#[derive(Default)]
struct Parts {
    year: Option<u32>,
    month: Option<u32>,
    day: Option<u32>,
    clock: Option<String>,
    half: Option<bool>,
    zone: String,
    /// Two numbers that can both be months.
    either: Option<(u32, u32)>,
}

impl Parts {
    fn take(&mut self, word: &str) -> Option<()> {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "" | "mon" | "tue" | "wed" | "thu" | "fri" | "sat" | "sun" => Some(()),
            "am" | "pm" => put(&mut self.half, lower == "pm"),
            "utc" | "gmt" | "z" => self.zone("Z"),
            _ if word.contains(':') => put(&mut self.clock, word.to_owned()),
            _ if word.starts_with('+') || (word.starts_with('-') && self.clock.is_some()) => self.zone(word),
            _ => self.date(word),
        }
    }

    fn zone(&mut self, zone: &str) -> Option<()> {
        self.zone.is_empty().then(|| zone.clone_into(&mut self.zone))
    }

    fn date(&mut self, word: &str) -> Option<()> {
        let separator = ['.', '/', '-'].into_iter().find(|each| word.contains(*each));
        let Some(separator) = separator else { return self.part(word) };
        let parts: Vec<&str> = word.split(separator).collect();
        let [first, second, year] = parts.as_slice() else { return None };
        if month(second).is_some() || month(first).is_some() {
            return parts.iter().try_for_each(|part| self.part(part));
        }
        let (first, second) = (small(first)?, small(second)?);
        // With dots the day comes first everywhere; else one that is no month shows it.
        let (day, month) = match (separator, first > 12, second > 12) {
            ('.', _, false) | (_, true, false) => (first, second),
            (_, false, true) if separator != '.' => (second, first),
            (_, false, false) => {
                put(&mut self.either, (first, second))?;
                return self.part(year);
            }
            _ => return None,
        };
        put(&mut self.day, day)?;
        put(&mut self.month, month)?;
        self.part(year)
    }

    /// A year, a day, or a month's name.
    fn part(&mut self, text: &str) -> Option<()> {
        match (month(text), text.len()) {
            (Some(number), _) => put(&mut self.month, number),
            (None, 4) => put(&mut self.year, text.parse().ok()?),
            (None, _) => put(&mut self.day, small(text)?),
        }
    }

    fn stamp(mut self) -> Option<Stamp> {
        if let Some((month, day)) = self.either {
            // Where the day has two halves, the month comes first.
            self.half?;
            put(&mut self.month, month)?;
            put(&mut self.day, day)?;
        }
        let clock = self.clock?;
        let (hour, rest) = clock.split_once(':')?;
        let hour = match (small(hour)?, self.half) {
            (hour @ 1..=12, Some(is_afternoon)) => hour % 12 + if is_afternoon { 12 } else { 0 },
            (hour, None) => hour,
            _ => return None,
        };
        let date = format!("{}-{:02}-{:02}", self.year?, self.month?, self.day?);
        iso(&format!("{date}T{hour:02}:{rest}{}", self.zone))
    }
}

/// Nothing where there is one already: such a text is something else.
fn put<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.is_none().then(|| *place = Some(value))
}

fn month(text: &str) -> Option<u32> {
    let text = text.to_ascii_lowercase();
    let at = MONTHS.iter().position(|name| text == *name || text == name[..3])?;
    u32::try_from(at + 1).ok()
}

fn small(text: &str) -> Option<u32> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_that_can_be_read_in_one_way() {
        for (text, is_local) in [
            ("2026-01-02 10:00:00,000", true),
            ("1767348000.0", false),
            ("20260102100000", true),
            ("20260102T100000Z", false),
            ("Fri Jan 02 10:00:00 UTC 2026", false),
            ("Fri, 02 Jan 2026 10:00:00 GMT", false),
            ("Fri, 2 Jan 2026 12:00:00 +0200", false),
            ("02-Jan-2026 10:00:00", true),
            ("January 2, 2026 10:00:00 AM", true),
            ("02.01.2026 10:00:00", true),
            ("01/02/2026 10:00:00 AM", true),
        ] {
            assert_eq!(
                moment(text.as_bytes()),
                Some(Stamp { ns: 1_767_348_000_000_000_000, is_local }),
                "{text}"
            );
        }
        let noon = moment(b"13/1/2026 12:00:00 PM").map(|stamp| stamp.ns);
        assert_eq!(noon, moment(b"1/13/2026 12:00:00").map(|stamp| stamp.ns));
        assert!(noon.is_some());
    }

    #[test]
    fn what_has_two_meanings_has_none() {
        for text in [
            "1/2/2026 10:00:00",
            "02.13.2026 10:00:00",
            "Jan 02 10:00:00",
            "46024.4166",
            "10:00:00",
            "",
            "Fri Jan 02 10:00:00 CET 2026",
            "2 Jan Feb 2026 10:00:00",
            "1/2/26 10:00:00",
            "02-01-2026 25:00:00",
        ] {
            assert_eq!(moment(text.as_bytes()), None, "{text}");
        }
    }
}
