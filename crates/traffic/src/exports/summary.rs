//! Rows of performance_schema.events_statements_summary_by_digest and of sys.statement_analysis: what a server summed up.

use memchr::memmem;

use super::record::{Record, Value, shown};
use super::rows::Read;
use super::shape::Shape;
use super::values::{count, decoded, formatted_ns, moment};
use crate::coverage::Coverage;
use crate::event::{Sink, Summary};
use crate::measures::{Measure, Measures, Unit};

const PS_PER_NS: u64 = 1000;
/// What servers put at the end of a text that they cut.
const ELLIPSIS: &[u8] = b"...";
/// The sys schema leaves out the middle of a statement.
const MIDDLE: &[u8] = b" ... ";
/// Servers cut samples at `performance_schema_max_sql_text_length`, which is 1,024 unless it was set.
const SAMPLE_BYTES: usize = 1024;

#[rustfmt::skip]
const MEASURES: [(Measure, &[&str]); 9] = [
    (Measure::LockNs, &["sum_lock_time", "lock_latency"]),
    (Measure::RowsSent, &["sum_rows_sent", "rows_sent"]),
    (Measure::RowsExamined, &["sum_rows_examined", "rows_examined"]),
    (Measure::RowsAffected, &["sum_rows_affected", "rows_affected"]),
    (Measure::Warnings, &["sum_warnings", "warn_count"]),
    (Measure::TmpTables, &["sum_created_tmp_tables", "tmp_tables"]),
    (Measure::TmpDiskTables, &["sum_created_tmp_disk_tables", "tmp_disk_tables"]),
    (Measure::SortMergePasses, &["sum_sort_merge_passes", "sort_merge_passes"]),
    // A statement sets it once, however many of its tables were read whole.
    (Measure::IsFullScan, &["sum_no_index_used"]),
];

pub(super) struct Summaries<'n> {
    name: &'n str,
    shape: Shape,
    coverage: Coverage,
    sum_ns: u128,
    roomless_ns: u128,
    roomless: u64,
    first_ns: u64,
    last_ns: u64,
    has_local_times: bool,
    is_rounded: bool,
    has_quantiles: bool,
    cut: u64,
}

impl<'n> Summaries<'n> {
    pub(super) fn new(name: &'n str, shape: Shape) -> Self {
        Self {
            name,
            shape,
            coverage: Coverage::default(),
            sum_ns: 0,
            roomless_ns: 0,
            roomless: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            has_local_times: false,
            is_rounded: false,
            has_quantiles: false,
            cut: 0,
        }
    }

    /// Gives one row.
    pub(super) fn row(&mut self, record: &Record, sink: &mut dyn Sink) -> anyhow::Result<Read> {
        let Some(calls) = record.text(&["count_star", "exec_count"]).and_then(count) else {
            return Ok(Err("a row without the number of its calls"));
        };
        let Some(sum_ns) = self.time(record, &["sum_timer_wait", "total_latency"]) else {
            return Ok(Err("a row without the sum of its times"));
        };
        if calls == 0 {
            // Emptied by hand; no call is no class.
            return Ok(Ok(()));
        }
        let text = record.text(&["digest_text", "query"]).filter(|text| *text != b"NULL");
        let digest = record.text(&["digest"]).unwrap_or_default();
        let is_cut = text.is_some_and(|text| is_cut(text, self.shape));
        let text = text.map(unfolded);
        if text.is_none() && !digest.is_empty() && digest != b"NULL" {
            return Ok(Err("a row without the text of its digest"));
        }
        self.cut += u64::from(is_cut);
        let sample = self.sample(record);
        let first_ns = self.moment(record, "first_seen");
        let last_ns = self.moment(record, "last_seen");
        if first_ns > 0 {
            self.first_ns = self.first_ns.min(first_ns);
        }
        self.last_ns = self.last_ns.max(last_ns);
        let quantiles_ns =
            [&["quantile_95"][..], &["quantile_99"], &["quantile_999"]].map(|names| self.time(record, names));
        self.has_quantiles |= quantiles_ns.iter().any(Option::is_some);
        let shown_id = shown(digest, 64);
        let summary = Summary {
            text: text.as_deref(),
            cut_id: if is_cut { shown_id.as_bytes() } else { b"" },
            sample: sample.as_ref().map(|(text, start_ns, took_ns)| (text.as_slice(), *start_ns, *took_ns)),
            database: record.text(&["schema_name", "db"]).filter(|name| *name != b"NULL").unwrap_or_default(),
            count: calls,
            failed: record.text(&["sum_errors", "err_count"]).and_then(count),
            sum_ns,
            min_ns: self.time(record, &["min_timer_wait"]),
            max_ns: self.time(record, &["max_timer_wait", "max_latency"]),
            quantiles_ns,
            measures: self.measures(record),
            first_ns,
            last_ns,
        };
        self.sum_ns += u128::from(sum_ns);
        if text.is_none() {
            self.roomless_ns += u128::from(sum_ns);
            self.roomless += calls;
        }
        self.coverage.events += calls;
        self.coverage.summarised_events += calls;
        sink.summary(&summary)?;
        Ok(Ok(()))
    }

    /// The call that the server kept, if it kept it whole: then it tells the class better than the digest does.
    fn sample(&mut self, record: &Record) -> Option<(Vec<u8>, u64, Option<u64>)> {
        let text = record.text(&["query_sample_text"])?;
        if text.len() >= SAMPLE_BYTES || text.ends_with(ELLIPSIS) || text == b"NULL" {
            return None;
        }
        let decoded = decoded(text).unwrap_or_else(|| text.to_vec());
        let start_ns = self.moment(record, "query_sample_seen");
        Some((decoded, start_ns, self.time(record, &["query_sample_timer_wait"])))
    }

    /// A time in ns: a number is in ps, of the sys schema it has its unit.
    fn time(&mut self, record: &Record, names: &[&str]) -> Option<u64> {
        let text = record.text(names)?;
        if let Some(ps) = count(text) {
            return Some(ps / PS_PER_NS);
        }
        let ns = formatted_ns(text)?;
        self.is_rounded = true;
        Some(ns)
    }

    fn moment(&mut self, record: &Record, name: &str) -> u64 {
        let Some((ns, has_zone)) = record.text(&[name]).and_then(moment) else { return 0 };
        self.has_local_times |= !has_zone;
        ns
    }

    fn measures(&mut self, record: &Record) -> Measures {
        let known = MEASURES.iter().filter_map(|(measure, names)| {
            let value = match measure.row().unit {
                Unit::Ns => self.time(record, names),
                _ => record.get(names).and_then(Value::text).and_then(count),
            };
            Some((*measure, value?))
        });
        known.collect()
    }

    /// What was seen, and what such a summary cannot tell: said before anything else.
    pub(super) fn finish(mut self) -> Coverage {
        let mut notes = Vec::new();
        if self.roomless_ns * 20 > self.sum_ns {
            let share = self.roomless_ns as f64 / self.sum_ns as f64 * 100.0;
            notes.push(format!(
                "{share:.0}% of the time ({} calls) is of statements that found no room in the server's table \
                 (performance_schema_digests_size) and have no text: the ranking is of the rest",
                self.roomless
            ));
        }
        let span = match (self.first_ns, self.last_ns) {
            (u64::MAX, _) | (_, 0) => String::new(),
            (first_ns, last_ns) => format!(", first seen {} and last seen {}", date(first_ns), date(last_ns)),
        };
        let percentiles = if self.has_quantiles {
            "percentiles are the server's own, from buckets 5% wide, and only of single statements"
        } else {
            "percentiles are not in this export"
        };
        notes.push(format!(
            "a summary that the server made{span}, since its start or the last TRUNCATE of the table; {percentiles}"
        ));
        if self.has_local_times {
            notes.push("its times have no zone and are taken as UTC".to_owned());
        }
        if self.is_rounded {
            notes.push(
                "its times are rounded to three digits: x$statement_analysis has them exactly".to_owned(),
            );
        }
        if self.cut > 0 {
            let texts = if self.cut == 1 { "1 text is" } else { &format!("{} texts are", self.cut) };
            notes.push(format!(
                "{texts} cut by the server: such classes are told apart by the server's digest"
            ));
        }
        for note in notes {
            self.coverage.note(self.name, note);
        }
        self.coverage
    }
}

/// Whether the text of a digest is only a part of it.
fn is_cut(text: &[u8], shape: Shape) -> bool {
    let has_gap = shape == Shape::Analysis && memmem::find(text, MIDDLE).is_some();
    has_gap || (text.ends_with(ELLIPSIS) && !text.ends_with(b"(...)"))
}

/// The text of a digest with lists in place of what the server folded, so that its class is that of the statement.
fn unfolded(text: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr2(b'(', b'/', rest) {
        let (plain, special) = rest.split_at(at);
        found.extend_from_slice(plain);
        rest = if let Some(rest) = special.strip_prefix(b"(...)") {
            found.extend_from_slice(b"(?, ?)");
            rest
        } else if let Some(rest) = special.strip_prefix(b"/* , ... */") {
            rest
        } else {
            found.push(special[0]);
            &special[1..]
        };
    }
    found.extend_from_slice(rest);
    found
}

fn date(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let days = (seconds / 86_400) as i64;
    // Howard Hinnant's civil calendar, the other way round.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let of_year_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_year_era + of_year_era / 4 - of_year_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = of_year_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60)
}
