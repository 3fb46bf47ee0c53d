//! A digest of binary logs for a terminal: transactions, what is missing, and the classes with the most bytes.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::group::read_key;
use super::lines::Source;
use super::listing::Listing;
use super::table::{clean, seconds, write_source};
use super::transactions::{Large, Transactions, word};
use crate::measures::Measure;

/// The largest transactions and the tables without a key that are listed.
const LISTED: usize = 5;
const NAME_CHARACTERS: usize = 60;

impl Listing<'_> {
    /// As `table`, for binary logs.
    pub(super) fn changes_table(
        &self,
        transactions: &Transactions,
        source: &Source,
        top: usize,
        width: usize,
    ) -> String {
        let mut out = String::new();
        write_source(&mut out, source, width);
        self.write_whole(&mut out, transactions);
        for gap in transactions.gaps().1 {
            let _ = writeln!(out, "Gap      {}", clean(gap.as_bytes(), 400));
        }
        for (name, rows) in transactions.scanned().into_iter().take(LISTED) {
            let name = clean(name, NAME_CHARACTERS);
            let _ =
                writeln!(out, "No key   {name}: {rows} rows were updated or deleted without a primary key");
        }
        if transactions.changes_rows() && !transactions.tells_keys() {
            let _ = writeln!(out, "Keys     not told by this log; binlog_row_metadata=FULL would");
        }
        for large in transactions.largest.iter().take(LISTED) {
            write_large(&mut out, large, width);
        }
        let all = self.totals.measures.sum(Measure::EventBytes);
        let _ = writeln!(
            out,
            "\n{:>4}  {:34} {:>9} {:>6} {:>10} {:>10} {:>7}  what (by bytes: row events have no time)",
            "rank", "id", "bytes", "share", "rows", "statements", "errors"
        );
        let listed = self.listed.iter().map(|(key, class)| (Some(*key), class.stats(self.shift)));
        let others = self.others.as_deref().map(|others| (None, Cow::Borrowed(others)));
        for (rank, (key, stats)) in (1..).zip(listed.chain(others).take(top)) {
            let (parts, fingerprint) =
                key.map_or_else(Default::default, |key| read_key(&self.digest.options.group, key));
            let id = fingerprint
                .map_or_else(|| "-".to_owned(), |found| sql::class_id(self.digest.options.mode, found));
            let mut what =
                if key.is_none() { "all classes that found no room ".to_owned() } else { String::new() };
            for (dimension, value) in parts {
                let _ = write!(what, "{}={} ", dimension.name(), clean(value, NAME_CHARACTERS));
            }
            what.push_str(&clean(fingerprint.unwrap_or_default(), width));
            let bytes = stats.measures.sum(Measure::EventBytes);
            let share = if all > 0 { bytes as f64 / all as f64 } else { 0.0 };
            let rows = stats
                .measures
                .get(Measure::RowsAffected)
                .map_or_else(|| "-".to_owned(), |rows| rows.sum.to_string());
            let line = format!(
                "{rank:>4}  {id:34} {:>9} {:>6} {rows:>10} {:>10} {:>7}  {what}",
                size(bytes as f64),
                format!("{:.1}%", share * 100.0),
                stats.count,
                stats.failed,
            );
            let cut: String = line.chars().take(width).collect();
            let _ = writeln!(out, "{}", cut.trim_end());
        }
        let count = self.listed.len() + usize::from(self.others.is_some());
        if count > top {
            let _ = writeln!(out, "      and {} more", count - top);
        }
        out
    }

    fn write_whole(&self, out: &mut String, transactions: &Transactions) {
        let span_s = self.span_ns().map_or(0.0, |(start_ns, end_ns)| (end_ns - start_ns) as f64 / 1e9);
        let rate =
            |value: f64| if span_s > 0.0 { format!(" ({:.1}/s)", value / span_s) } else { String::new() };
        let bytes = transactions.bytes.sum_ns as f64;
        let _ = write!(
            out,
            "Counted  {} transactions{} over {}, {} rows{}, {} of events",
            transactions.count,
            rate(transactions.count as f64),
            seconds(span_s),
            transactions.rows.sum_ns,
            rate(transactions.rows.sum_ns as f64),
            size(bytes),
        );
        if span_s > 0.0 {
            let _ = write!(out, " ({}/s)", size(bytes / span_s));
        }
        let rest = [
            (transactions.unfinished, "without their beginning or end"),
            (transactions.rolled_back, "rolled back"),
            (self.digest.filtered, "events left out by filters"),
        ];
        for (count, what) in rest.into_iter().filter(|(count, _)| *count > 0) {
            let _ = write!(out, ", {count} {what}");
        }
        out.push('\n');
    }
}

fn write_large(out: &mut String, large: &Large, width: usize) {
    let name = large.log.rsplit('/').next().unwrap_or_default();
    let rows = large.rows.map_or_else(|| "-".to_owned(), |rows| rows.to_string());
    let mut line = format!(
        "Largest  {:>9} {rows:>9} rows {:>6} statements  {}:{} {}",
        size(large.bytes as f64),
        large.statements,
        clean(name.as_bytes(), NAME_CHARACTERS),
        large.position,
        large.gtid,
    );
    for (kind, table, ..) in large.changes.iter().take(3) {
        let _ = write!(line, " {} {}", word(*kind), clean(table, NAME_CHARACTERS));
    }
    let cut: String = line.chars().take(width).collect();
    let _ = writeln!(out, "{}", cut.trim_end());
}

/// Bytes with three digits and their unit.
fn size(bytes: f64) -> String {
    let (value, unit) = match bytes {
        value if value >= 1e9 => (value / 1e9, "GB"),
        value if value >= 1e6 => (value / 1e6, "MB"),
        value if value >= 1e3 => (value / 1e3, "kB"),
        value => return format!("{value:.0} B"),
    };
    let decimals = if value >= 100.0 { 0 } else { 1 };
    format!("{value:.decimals$} {unit}")
}
