//! Global transaction ids, and sets of them: what tells that transactions are missing between logs or inside of one.

use std::collections::BTreeMap;
use std::fmt;

/// More intervals than any honest log has; hostile ones cost no more.
const MOST_INTERVALS: usize = 100_000;
/// Gaps that are named; all are counted.
const NAMED_GAPS: usize = 3;

/// The id of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gtid {
    /// The log has none for it: before GTIDs, or `gtid_mode=OFF`.
    #[default]
    None,
    Mysql {
        source: Source,
        number: u64,
    },
    MariaDb {
        domain: u32,
        server: u32,
        sequence: u64,
    },
}

/// What MySQL counts transactions by: a server's UUID, since 8.3 with a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub uuid: [u8; 16],
    /// Filled up with zeros; empty without a tag.
    pub tag: [u8; 32],
}

impl Source {
    #[must_use]
    pub fn new(uuid: [u8; 16], tag: &[u8]) -> Option<Self> {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if tag.len() > 32 || !tag.iter().all(is_word) {
            return None;
        }
        let mut filled = [0; 32];
        filled[..tag.len()].copy_from_slice(tag);
        Some(Self { uuid, tag: filled })
    }

    /// As text: `3e11fa47-71ca-11e1-9e33-c80aa9429562`, `...:tag`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (uuid, tag) = match memchr::memchr(b':', text) {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, &b""[..]),
        };
        let digits: Vec<u8> = uuid.iter().copied().filter(|byte| *byte != b'-').collect();
        if uuid.len() != 36 || digits.len() != 32 {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Source::new(bytes, tag)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.uuid.iter().enumerate() {
            let dash = if matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(formatter, "{dash}{byte:02x}")?;
        }
        let tag = self.tag.split(|byte| *byte == 0).next().unwrap_or_default();
        if tag.is_empty() { Ok(()) } else { write!(formatter, ":{}", String::from_utf8_lossy(tag)) }
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gtid::None => Ok(()),
            Gtid::Mysql { source, number } => write!(formatter, "{source}:{number}"),
            Gtid::MariaDb { domain, server, sequence } => write!(formatter, "{domain}-{server}-{sequence}"),
        }
    }
}

/// Whose numbers are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Mysql(Source),
    /// MariaDB counts by domain; the server is only who wrote it.
    Domain(u32),
}

impl fmt::Display for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stream::Mysql(source) => source.fmt(formatter),
            Stream::Domain(domain) => write!(formatter, "domain {domain}"),
        }
    }
}

/// Numbers of each stream as intervals, ascending, ends included, never touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GtidSet {
    streams: BTreeMap<Stream, Vec<(u64, u64)>>,
    intervals: usize,
    /// There were more intervals than are kept: nothing is said about gaps any more.
    is_cut: bool,
}

impl GtidSet {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub fn add(&mut self, gtid: &Gtid) {
        match *gtid {
            Gtid::None => {}
            Gtid::Mysql { source, number } => self.add_range(Stream::Mysql(source), number, number),
            Gtid::MariaDb { domain, sequence, .. } => {
                self.add_range(Stream::Domain(domain), sequence, sequence);
            }
        }
    }

    /// Adds the numbers from `first` to `last`, which are nearly always the next ones.
    pub fn add_range(&mut self, stream: Stream, first: u64, last: u64) {
        if first > last || self.is_cut {
            return;
        }
        let ranges = self.streams.entry(stream).or_default();
        if let Some((from, to)) = ranges.last_mut()
            && first >= *from
            && first <= to.saturating_add(1)
        {
            *to = last.max(*to);
            return;
        }
        let begin = ranges.partition_point(|(_, to)| to.saturating_add(1) < first);
        let end = ranges.partition_point(|(from, _)| *from <= last.saturating_add(1));
        let touched = &ranges[begin..end.max(begin)];
        let merged = match (touched.first(), touched.last()) {
            (Some((from, _)), Some((_, to))) => (first.min(*from), last.max(*to)),
            _ => (first, last),
        };
        self.intervals = self.intervals + 1 - touched.len();
        ranges.splice(begin..end.max(begin), [merged]);
        self.is_cut = self.intervals > MOST_INTERVALS;
    }

    pub fn merge(&mut self, other: &GtidSet) {
        self.is_cut |= other.is_cut;
        for (stream, ranges) in &other.streams {
            for (first, last) in ranges {
                self.add_range(*stream, *first, *last);
            }
        }
    }

    /// What `other` has and this has not.
    #[must_use]
    pub fn missing_of(&self, other: &GtidSet) -> Gaps {
        let mut gaps = Gaps::default();
        if self.is_cut || other.is_cut {
            return gaps;
        }
        for (stream, ranges) in &other.streams {
            let own = self.streams.get(stream).map_or(&[][..], Vec::as_slice);
            for (first, last) in ranges {
                let mut next = *first;
                let from = own.partition_point(|(_, to)| *to < *first);
                for (from, to) in own[from..].iter().take_while(|(from, _)| *from <= *last) {
                    gaps.add(*stream, next, from.saturating_sub(1));
                    next = to.saturating_add(1);
                }
                gaps.add(*stream, next, *last);
            }
        }
        gaps
    }

    /// The numbers between the first and the last of each stream that it lacks, from the last one of `before` on.
    #[must_use]
    pub fn holes_behind(&self, before: &GtidSet) -> Gaps {
        let mut gaps = Gaps::default();
        if self.is_cut {
            return gaps;
        }
        for (stream, ranges) in &self.streams {
            let last =
                before.streams.get(stream).and_then(|ranges| ranges.last()).map_or(0, |(_, last)| *last);
            for pair in ranges.windows(2).filter(|pair| pair[0].1 >= last) {
                gaps.add(*stream, pair[0].1 + 1, pair[1].0 - 1);
            }
        }
        gaps
    }
}

/// Numbers that are missing: how many, and the first of them by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    pub count: u64,
    named: Vec<(Stream, u64, u64)>,
    ranges: usize,
}

impl Gaps {
    fn add(&mut self, stream: Stream, first: u64, last: u64) {
        if first > last {
            return;
        }
        self.count = self.count.saturating_add((last - first).saturating_add(1));
        self.ranges += 1;
        if self.named.len() < NAMED_GAPS {
            self.named.push((stream, first, last));
        }
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (stream, first, last)) in self.named.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(formatter, "{comma}{stream}:{first}")?;
            if last > first {
                write!(formatter, "-{last}")?;
            }
        }
        let more = self.ranges - self.named.len();
        if more > 0 { write!(formatter, " and {more} more ranges") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Gtid, GtidSet, Source, Stream};
    use proptest::prelude::{prop_assert_eq, proptest};
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_is_what_was_added(ranges in proptest::collection::vec((1_u64..60, 0_u64..9), 0..30)) {
            let stream = Stream::Domain(0);
            let (mut set, mut plain) = (GtidSet::default(), BTreeSet::new());
            for (first, more) in &ranges {
                set.add_range(stream, *first, first + more);
                plain.extend(*first..=first + more);
            }
            let ranges = set.streams.get(&stream).cloned().unwrap_or_default();
            prop_assert_eq!(set.intervals, ranges.len());
            let kept: BTreeSet<u64> = ranges.iter().flat_map(|(first, last)| *first..=*last).collect();
            prop_assert_eq!(&kept, &plain);
            let whole = plain.first().zip(plain.last()).map_or(0, |(first, last)| last - first + 1);
            prop_assert_eq!(set.holes_behind(&GtidSet::default()).count, whole - plain.len() as u64);
            let mut all = GtidSet::default();
            all.add_range(stream, 1, 70);
            prop_assert_eq!(set.missing_of(&all).count, 70 - plain.len() as u64);
            prop_assert_eq!(all.missing_of(&set).count, 0);
        }
    }

    #[test]
    fn gaps_are_named() {
        let source = Source::parse(b"3e11fa47-71ca-11e1-9e33-c80aa9429562:nightly").unwrap();
        let mut set = GtidSet::default();
        for number in [1, 2, 4, 9] {
            set.add(&Gtid::Mysql { source, number });
        }
        assert_eq!(
            set.holes_behind(&GtidSet::default()).to_string(),
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:nightly:3, 3e11fa47-71ca-11e1-9e33-c80aa9429562:nightly:5-8"
        );
        assert_eq!(Source::parse(b"3e11fa47-71ca-11e1-9e33"), None);
    }
}
