//! The numbers that sources give for an event: one table, which slow logs, digests, recordings, filters and JSON
//! iterate. A new measure is one row here, at the end: its place is its place in recordings.
//!
//! Captures set theirs in `wire`, slow logs every one whose key they write.

use std::fmt;

/// What a measure's numbers are, and so how slow logs write them and filters take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Bytes,
    /// Slow logs write seconds.
    Ns,
    /// 0 or 1; slow logs write No or Yes.
    Flag,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// As digests, recordings, filters and JSON name it, with its unit last where that is not a count.
    pub name: &'static str,
    pub unit: Unit,
}

macro_rules! measures {
    ($($(#[$doc:meta])* $measure:ident $name:literal $unit:ident [$($key:literal),*],)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Measure {
            $($(#[$doc])* $measure,)+
        }

        impl Measure {
            pub const ALL: [Measure; [$($name),+].len()] = [$(Measure::$measure),+];

            /// The measure that a key of a slow log's header gives.
            #[inline]
            #[must_use]
            pub fn of_slow_log(key: &[u8]) -> Option<Measure> {
                match key {
                    $($($key => Some(Measure::$measure),)*)+
                    _ => None,
                }
            }
        }

        const TABLE: [Row; Measure::ALL.len()] = [$(Row { name: $name, unit: Unit::$unit }),+];
    };
}

// Measure, its name, its unit, the keys by which slow logs give it. MySQL writes the keys named after status variables
// with log_slow_extra, Percona Server and MariaDB the others, some only with log_slow_verbosity.
measures! {
    /// Waits for locks of tables, in some versions for those of rows as well.
    LockNs "lock_ns" Ns [b"Lock_time"],
    RowsSent "rows_sent" Count [b"Rows_sent"],
    RowsExamined "rows_examined" Count [b"Rows_examined"],
    RowsAffected "rows_affected" Count [b"Rows_affected"],
    /// Of the request on the wire, packet headers included.
    RequestBytes "request_bytes" Bytes [],
    /// Of the answer on the wire, packet headers included.
    ResponseBytes "response_bytes" Bytes [b"Bytes_sent"],
    Warnings "warnings" Count [],
    TmpTables "tmp_tables" Count [b"Tmp_tables", b"Created_tmp_tables"],
    TmpDiskTables "tmp_disk_tables" Count [b"Tmp_disk_tables", b"Created_tmp_disk_tables"],
    SortMergePasses "sort_merge_passes" Count [b"Merge_passes", b"Sort_merge_passes"],
    /// A table was read whole, without an index.
    IsFullScan "is_full_scan" Flag [b"Full_scan"],
    /// A join read a table whole for each row of another.
    IsFullJoin "is_full_join" Flag [b"Full_join"],
    /// Waits for locks of rows.
    RowLockNs "row_lock_ns" Ns [b"InnoDB_rec_lock_wait"],
    /// Pages that InnoDB had to read from storage.
    PagesRead "pages_read" Count [b"Pages_read", b"InnoDB_IO_r_ops"],
    /// Of its events in a binary log, before compression.
    EventBytes "event_bytes" Bytes [],
}

impl Measure {
    #[inline]
    #[must_use]
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

/// The measures of one event. What its source does not know is unknown, never zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Measures {
    /// A bit for each measure that is known; the values of the others are 0.
    known: u32,
    values: [u64; Measure::ALL.len()],
}

const _: () = assert!(Measure::ALL.len() <= u32::BITS as usize, "a bit for each");

impl Measures {
    /// Those with these bits are known and 0.
    #[inline]
    #[must_use]
    pub fn of_zeros(known: u32) -> Self {
        Self { known, ..Self::default() }
    }

    #[inline]
    #[must_use]
    pub fn get(&self, measure: Measure) -> Option<u64> {
        (self.known & (1 << measure as u32) != 0).then_some(self.values[measure as usize])
    }

    #[inline]
    pub fn set(&mut self, measure: Measure, value: impl Into<Option<u64>>) {
        let value = value.into();
        let bit = 1 << measure as u32;
        self.known = if value.is_some() { self.known | bit } else { self.known & !bit };
        self.values[measure as usize] = value.unwrap_or(0);
    }

    /// A bit for each measure that is known, by its place in the table.
    #[inline]
    #[must_use]
    pub fn known(&self) -> u32 {
        self.known
    }

    /// Those that are known.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (Measure, u64)> + '_ {
        places(self.known).map(|place| (Measure::ALL[place], self.values[place]))
    }
}

impl FromIterator<(Measure, u64)> for Measures {
    fn from_iter<I: IntoIterator<Item = (Measure, u64)>>(pairs: I) -> Self {
        let mut measures = Measures::default();
        pairs.into_iter().for_each(|(measure, value)| measures.set(measure, value));
        measures
    }
}

/// The places of the bits that are set, ascending.
#[inline]
pub fn places(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then_some(bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        place
    })
}

impl fmt::Debug for Measures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter().map(|(measure, value)| (measure.name(), value))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Measure, Measures, Unit};

    #[test]
    fn a_name_says_its_unit_because_readers_of_digests_have_only_the_name() {
        for measure in Measure::ALL {
            let (name, unit) = (measure.name(), measure.row().unit);
            assert_eq!(name.ends_with("_ns"), unit == Unit::Ns, "{name}");
            assert_eq!(name.ends_with("_bytes"), unit == Unit::Bytes, "{name}");
            assert_eq!(name.starts_with("is_"), unit == Unit::Flag, "{name}");
        }
    }

    /// A recording has measures by their places: these must never move.
    #[test]
    fn places_in_recordings() {
        let names = Measure::ALL.map(Measure::name);
        let first = [
            "lock_ns",
            "rows_sent",
            "rows_examined",
            "rows_affected",
            "request_bytes",
            "response_bytes",
            "warnings",
        ];
        assert_eq!(names[..first.len()], first);
    }

    #[test]
    fn unknown_is_not_zero() {
        let mut measures = Measures::default();
        measures.set(Measure::Warnings, 0);
        measures.set(Measure::RowsSent, 7);
        assert_eq!(measures.iter().collect::<Vec<_>>(), [(Measure::RowsSent, 7), (Measure::Warnings, 0)]);
        measures.set(Measure::RowsSent, None);
        assert_eq!((measures.get(Measure::RowsSent), measures.get(Measure::Warnings)), (None, Some(0)));
        assert_eq!(measures, [(Measure::Warnings, 0)].into_iter().collect());
    }
}
