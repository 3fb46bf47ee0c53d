//! Tables without the names of their columns: files of the CSV engine and SELECT … INTO OUTFILE. Their first row tells.

use super::shape::Shape;
use super::values::{count, duration_ns, moment};
use crate::commands;

/// Of mysql.slow_log: MySQL up to 5.5 has the first 11, MySQL 12, MariaDB all.
const SLOW: [&str; 13] = [
    "start_time",
    "user_host",
    "query_time",
    "lock_time",
    "rows_sent",
    "rows_examined",
    "db",
    "last_insert_id",
    "insert_id",
    "server_id",
    "sql_text",
    "thread_id",
    "rows_affected",
];
const GENERAL: [&str; 6] = ["event_time", "user_host", "thread_id", "server_id", "command_type", "argument"];
/// Of the summary, in all versions.
const SUMMARY: [&str; 27] = [
    "schema_name",
    "digest",
    "digest_text",
    "count_star",
    "sum_timer_wait",
    "min_timer_wait",
    "avg_timer_wait",
    "max_timer_wait",
    "sum_lock_time",
    "sum_errors",
    "sum_warnings",
    "sum_rows_affected",
    "sum_rows_sent",
    "sum_rows_examined",
    "sum_created_tmp_disk_tables",
    "sum_created_tmp_tables",
    "sum_select_full_join",
    "sum_select_full_range_join",
    "sum_select_range",
    "sum_select_range_check",
    "sum_select_scan",
    "sum_sort_merge_passes",
    "sum_sort_range",
    "sum_sort_rows",
    "sum_sort_scan",
    "sum_no_index_used",
    "sum_no_good_index_used",
];
/// Behind those, MySQL 8 has up to four numbers before these; MariaDB and older ones have the first two.
const SUMMARY_END: [&str; 8] = [
    "first_seen",
    "last_seen",
    "quantile_95",
    "quantile_99",
    "quantile_999",
    "query_sample_text",
    "query_sample_seen",
    "query_sample_timer_wait",
];
const MOST_BETWEEN: usize = 4;

/// What a row without names is of, and the names.
pub(super) fn of(values: &[Vec<u8>]) -> Option<(Shape, Vec<&'static str>)> {
    if is_slow(values) {
        return Some((Shape::SlowRow, SLOW[..values.len()].to_vec()));
    }
    if is_general(values) {
        return Some((Shape::GeneralRow, GENERAL.to_vec()));
    }
    summary(values).map(|columns| (Shape::Summary, columns))
}

fn is_slow(values: &[Vec<u8>]) -> bool {
    let is_time = |value: &Vec<u8>| value.contains(&b':') && duration_ns(value).is_some();
    (11..=SLOW.len()).contains(&values.len())
        && is_moment(&values[0])
        && is_time(&values[2])
        && is_time(&values[3])
        && values[4..6].iter().chain(&values[7..10]).all(|value| count(value).is_some())
}

fn is_general(values: &[Vec<u8>]) -> bool {
    values.len() == GENERAL.len()
        && is_moment(&values[0])
        && values[2..4].iter().all(|value| count(value).is_some())
        && commands::is_name(&values[4])
}

fn summary(values: &[Vec<u8>]) -> Option<Vec<&'static str>> {
    let numbers = values.get(3..SUMMARY.len())?;
    let is_digest = is_null(&values[1])
        || (matches!(values[1].len(), 32 | 64) && values[1].iter().all(u8::is_ascii_hexdigit));
    if !is_digest || !numbers.iter().all(|value| count(value).is_some()) {
        return None;
    }
    let rest = &values[SUMMARY.len()..];
    let between = rest.iter().take(MOST_BETWEEN + 1).position(|value| is_moment(value))?;
    let end = &rest[between..];
    if end.len() != 2 && end.len() != SUMMARY_END.len() {
        return None;
    }
    let unnamed = std::iter::repeat_n("-", between);
    Some(SUMMARY.into_iter().chain(unnamed).chain(SUMMARY_END.into_iter().take(end.len())).collect())
}

fn is_null(value: &[u8]) -> bool {
    matches!(value, b"NULL" | b"\\N" | b"")
}

/// A date and a time, not a number.
fn is_moment(value: &[u8]) -> bool {
    value.contains(&b':') && moment(value).is_some()
}
