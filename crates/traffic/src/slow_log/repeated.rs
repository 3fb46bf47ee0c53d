//! What MariaDB logs more than once. The client sent one statement: one event counts, and is replayed, the last one.
//!
//! - An EXECUTE IMMEDIATE is there twice: first what it ran, then itself, in no number below it. What EXECUTE runs looks
//!   the same, but is logged instead of the EXECUTE; and what failed before it ran is not logged.
//! - Rows in bulk are one event where they are inserted. Where they are changed or deleted, each row is logged, with the
//!   time and the rows since the bulk's beginning, and none of the values.
//!
//! In both the first has sent nothing (`Bytes_sent: 0`), because the answer comes behind. Only the thread's next event
//! tells.

use memchr::{memchr, memmem};

use super::boundary::{LINE_BYTES, Line, classify, ends_statement};
use super::header::{self, Header};
use crate::measures::Measure;

/// So much of the log is looked at: between the two are only statements of other threads that ended in the same instant.
const LOOK_BYTES: usize = 16 << 10;

/// Whether an event may come again: most tell here that they do not.
pub(super) fn may_be(header: &Header<'_>) -> bool {
    header.measures.get(Measure::ResponseBytes) == Some(0)
}

/// Whether the statement, with its end, comes again in the thread's next event. That is in `after`; `None`: more of the
/// input is needed.
pub(super) fn by_next(header: &Header<'_>, statement: &[u8], after: &[u8], at_end: bool) -> Option<bool> {
    let Some(thread) = header.thread else { return Some(false) };
    let window = &after[..after.len().min(LOOK_BYTES)];
    for found in memmem::find_iter(window, format!("\n# Thread_id: {thread} ").as_bytes()) {
        let start = first_line(&after[..=found]);
        let is_firm = start == 0 || ends_statement(&after[..start]);
        if !is_firm || classify(&after[start..], at_end) != Line::First {
            continue;
        }
        let Some((next, body)) = header::parse(&after[start..], at_end) else {
            return (after.len() - start > LINE_BYTES).then_some(false);
        };
        let text = &after[start + body..];
        let wanted = statement.len().max(LINE_BYTES);
        if text.len() < wanted && !at_end && memmem::find(text, b";\n").is_none() {
            return None;
        }
        let is_later = next.timestamp_ns == header.timestamp_ns && next.query_ns >= header.query_ns;
        let is_row = || is_next_row(header, &next) && is_bulk(statement) && text.starts_with(statement);
        let is_whole = || has_same_rows(header, &next) && sql::is_execute_immediate(text);
        return Some(is_later && (is_row() || is_whole()));
    }
    (at_end || after.len() > LOOK_BYTES).then_some(false)
}

/// Where a header begins whose line of the thread begins at the end of `before`: with that of the user, or of the time.
fn first_line(before: &[u8]) -> usize {
    let line_before =
        |end: usize| memchr::memrchr(b'\n', &before[..end.saturating_sub(1)]).map_or(0, |at| at + 1);
    let user = line_before(before.len());
    let time = line_before(user);
    if before[time..].starts_with(b"# Time: ") { time } else { user }
}

/// Only what is executed in bulk is logged without its values.
fn is_bulk(statement: &[u8]) -> bool {
    memchr(b'?', statement).is_some() && !sql::kept_placeholders(statement).is_empty()
}

fn has_same_rows(first: &Header<'_>, next: &Header<'_>) -> bool {
    let same = [Measure::RowsSent, Measure::RowsExamined, Measure::RowsAffected, Measure::LockNs];
    same.iter().all(|measure| first.measures.get(*measure) == next.measures.get(*measure))
}

/// Whether the next of one bulk can have these numbers; those of another bulk mostly begin lower.
fn is_next_row(first: &Header<'_>, next: &Header<'_>) -> bool {
    let more = [Measure::RowsExamined, Measure::RowsAffected]
        .map(|measure| (first.measures.get(measure), next.measures.get(measure)));
    may_be(next)
        && more.iter().all(|(first, next)| first <= next)
        && more.iter().any(|(first, next)| first < next)
}
