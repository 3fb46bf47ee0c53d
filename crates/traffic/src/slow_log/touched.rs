//! Header lines that were changed after the server wrote them, by people who paste logs into tickets and wikis or by programs
//! that ship them: the `#` is missing (a bug in Percona Server wrote such lines, too), spaces are collapsed, doubled or turned
//! into tabs, upper and lower case differ, a long line is wrapped. The key before the colon still identifies the line, because
//! no statement begins like that.
//!
//! Such a line can begin an event, but is never a firm boundary: it counts only outside of literals, and reading in parallel
//! never starts there. Only lines that do not have the server's form are examined like this.

use super::values::begins_with_seconds;
use super::{account, time};
use crate::pieces::{BYTE_ORDER_MARK, LINE_BYTES, without_return};

/// The most characters (spaces and `#`) before a key.
const MOST_MARKS: usize = 64;
/// The keys of all servers, except those with a prefix in `PREFIXES`.
const KEYS: [&[u8]; 59] = [
    b"Time",
    b"Id",
    b"User@Host",
    b"Query_time",
    b"Lock_time",
    b"Rows_sent",
    b"Rows_examined",
    b"Rows_affected",
    b"Rows_read",
    b"Thread_id",
    b"Schema",
    b"QC_hit",
    b"Last_errno",
    b"Killed",
    b"Bytes_sent",
    b"Bytes_received",
    b"Tmp_tables",
    b"Tmp_disk_tables",
    b"Tmp_table_sizes",
    b"Tmp_table",
    b"Tmp_table_on_disk",
    b"Full_scan",
    b"Full_join",
    b"Filesort",
    b"Filesort_on_disk",
    b"Merge_passes",
    b"Priority_queue",
    b"Stored_routine",
    b"Pages_accessed",
    b"Pages_read",
    b"Pages_prefetched",
    b"Pages_updated",
    b"Old_rows_read",
    b"Pages_read_time",
    b"Engine_time",
    b"Log_slow_rate_type",
    b"Log_slow_rate_limit",
    b"Errno",
    b"Read_first",
    b"Read_last",
    b"Read_key",
    b"Read_next",
    b"Read_prev",
    b"Read_rnd",
    b"Read_rnd_next",
    b"Sort_merge_passes",
    b"Sort_range_count",
    b"Sort_rows",
    b"Sort_scan_count",
    b"Created_tmp_disk_tables",
    b"Created_tmp_tables",
    b"Count_hit_tmp_table_size",
    b"Start",
    b"End",
    b"Bytes_read",
    b"Rows_changed",
    b"Stored_procedure",
    b"Execution_plan",
    b"Statement_type",
];
const PREFIXES: [&[u8]; 2] = [b"InnoDB_", b"Profile_"];
const LONGEST_KEY: usize = 40;
/// How much of a line is needed to tell whether it belongs to a header.
pub(super) const LOOK_BYTES: usize = MOST_MARKS + LONGEST_KEY + 4;

/// The key as servers write it.
pub(super) fn canonical(key: &[u8]) -> Option<&'static [u8]> {
    KEYS.into_iter().find(|known| known.eq_ignore_ascii_case(key.trim_ascii()))
}

/// Whether this can be a key in another case or with spaces: servers write `Rows_sent`, `InnoDB_trx_id`, `QC_hit`.
pub(super) fn is_changed(key: &[u8]) -> bool {
    match key {
        [b'Q', b'C', ..] => false,
        [first, second, .., last] => {
            !first.is_ascii_uppercase() || second.is_ascii_uppercase() || last.is_ascii_whitespace()
        }
        _ => false,
    }
}

/// A header line without the characters before its key; `None` for any other line.
pub(super) fn fields(line: &[u8]) -> Option<&[u8]> {
    let rest = &line[marks(line)..];
    is_key(&rest[..key_length(rest)?]).then_some(rest)
}

/// Whether a header line begins with this key and a colon. Called for every line of every header, so it does not search the
/// list of keys: the colon already ends this one.
#[inline]
pub(super) fn begins_with(line: &[u8], key: &[u8]) -> bool {
    let rest = &line[marks(line)..];
    rest.get(..key.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(key))
}

fn is_key(key: &[u8]) -> bool {
    let begins =
        |prefix: &&[u8]| key.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix));
    canonical(key).is_some() || PREFIXES.iter().any(begins)
}

/// Length of the key at the beginning of a text, without its colon.
fn key_length(text: &[u8]) -> Option<usize> {
    let is_of_key = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'@');
    let length = text.iter().take(LONGEST_KEY).take_while(is_of_key).count();
    (length > 0 && text.get(length) == Some(&b':')).then_some(length)
}

fn marks(line: &[u8]) -> usize {
    let begin = if line.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let is_mark = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'#');
    begin + line[begin..].iter().take(MOST_MARKS).take_while(is_mark).count()
}

/// Whether a changed header line can begin with this byte. This rejects most lines of statements.
#[inline]
pub(super) fn may_begin(first: u8) -> bool {
    matches!(first, b'#' | b' ' | b'\t' | b'T' | b't' | b'U' | b'u' | b'Q' | b'q' | 0xef)
}

/// Whether the first line of `text`, which does not have the server's form, begins an event nevertheless. `None`: the buffer
/// ends too early to tell.
pub(super) fn begins_event(text: &[u8], at_end: bool) -> Option<bool> {
    let unknown = at_end.then_some(false);
    if text.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(text) {
        return unknown;
    }
    let marks = marks(text);
    let rest = &text[marks..];
    let key: &[u8] = match rest.first() {
        Some(b'T' | b't') => b"time:",
        Some(b'U' | b'u') => b"user@host:",
        Some(b'Q' | b'q') => b"query_time:",
        None if marks < MOST_MARKS => return unknown,
        _ => return Some(false),
    };
    let length = rest.len().min(key.len());
    if !rest[..length].eq_ignore_ascii_case(&key[..length]) {
        return Some(false);
    }
    if length < key.len() {
        return unknown;
    }
    let window = &rest[length..rest.len().min(LINE_BYTES)];
    let value = match memchr::memchr(b'\n', window) {
        Some(end) => without_return(&window[..end]),
        None if rest.len() >= LINE_BYTES => return Some(false),
        None if !at_end => return None,
        None => window,
    };
    Some(is_value(key, value.trim_ascii()))
}

fn is_value(key: &[u8], value: &[u8]) -> bool {
    match key {
        b"time:" => time::stamp(value).is_some_and(|(_, rest)| {
            rest.is_empty() || user(rest).is_some_and(|account| account::parse(account).is_some())
        }),
        b"user@host:" => account::parse(value).is_some(),
        _ => begins_with_seconds(value),
    }
}

/// The account, if one follows on the same line, as before MySQL 5.1.
pub(super) fn user(rest: &[u8]) -> Option<&[u8]> {
    let rest = fields(rest)?;
    let (key, account) = rest.split_at(b"User@Host:".len().min(rest.len()));
    key.eq_ignore_ascii_case(b"User@Host:").then(|| account.trim_ascii_start())
}

/// Whether a header line was wrapped after this text: then the value of its last key begins the next line.
pub(super) fn is_wrapped(line: &[u8], next: &[u8]) -> bool {
    let Some(before) = line.trim_ascii_end().strip_suffix(b":") else { return false };
    let begin = before.iter().rposition(|byte| matches!(byte, b' ' | b'\t' | b'#')).map_or(0, |at| at + 1);
    let value = next.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    is_key(&before[begin..])
        && (value.first().is_some_and(u8::is_ascii_digit) || matches!(value, b"Yes" | b"No"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_begin_an_event() {
        for line in [
            "#Time: 2024-01-31T12:00:00Z",
            "Time: 240131 12:00:00",
            "  # Time: 240131 12:00:00",
            "\t#\ttime:   2024-01-31T12:00:00Z",
            "## Time: 2024-01-31T12:00:00Z",
            "\u{feff}# Time: 2024-01-31T12:00:00Z",
            "USER@HOST: a[a] @ b []",
            "#User@Host: a[a] @  [::1]  Id:  3",
            "Query_time: 1.5  Lock_time: 0",
        ] {
            assert_eq!(begins_event(line.as_bytes(), true), Some(true), "{line}");
            assert_eq!(begins_event(line.as_bytes(), false), None, "{line}");
            assert_eq!(begins_event(format!("{line}\r\n").as_bytes(), false), Some(true), "{line}");
        }
        for line in [
            "Time: flies",
            "  Times: 1",
            "update t",
            "user@host: me",
            "Query_time: x",
            "",
            "# a",
            "\u{feff}x",
        ] {
            assert_eq!(begins_event(format!("{line}\n").as_bytes(), false), Some(false), "{line}");
        }
    }

    #[test]
    fn keys_of_any_case_behind_any_marks() {
        for line in ["  Tmp_tables: 1", "#tmp_tables: 1", "\t# TMP_TABLES:1", "#   InnoDB_IO_r_ops: 6"] {
            assert!(fields(line.as_bytes()).is_some(), "{line}");
        }
        for line in ["select 1", "Tmp_tables 1", "label: begin", "use x;", "SET timestamp=1;", "", ":"] {
            assert_eq!(fields(line.as_bytes()), None, "{line}");
        }
    }
}
