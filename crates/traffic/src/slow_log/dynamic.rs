//! MariaDB logs an EXECUTE IMMEDIATE twice: first what it ran, then itself. The client sent one statement, so one event
//! is what counts, and what is replayed: the second, as every other source has it.
//!
//! What it ran sent nothing (`Bytes_sent: 0`; the EXECUTE IMMEDIATE sends the answer), and is not behind it in any
//! other number. What EXECUTE runs looks the same, but is logged instead of the EXECUTE; and what failed before it ran is
//! not logged. So only the thread's next event tells.

use memchr::memmem;

use super::boundary::{LINE_BYTES, Line, classify, ends_statement};
use super::header::{self, Header};
use crate::measures::Measure;

/// So much of the log is looked at: between the two are only statements of other threads that ended in the same instant.
const LOOK_BYTES: usize = 16 << 10;

/// Whether an event may be what an EXECUTE IMMEDIATE ran: most tell here that they are not.
pub(super) fn may_be_run(header: &Header<'_>) -> bool {
    header.measures.get(Measure::ResponseBytes) == Some(0)
}

/// Whether the thread's next event, which is in `after`, ran the event. `None`: more of the input is needed.
pub(super) fn is_run_by_next(header: &Header<'_>, after: &[u8], at_end: bool) -> Option<bool> {
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
        let text = &text[..text.len().min(LINE_BYTES)];
        if text.len() < LINE_BYTES && !at_end && memmem::find(text, b";\n").is_none() {
            return None;
        }
        return Some(is_same(header, &next) && sql::is_execute_immediate(text));
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

/// Whether both are of one statement that the client sent.
fn is_same(inner: &Header<'_>, outer: &Header<'_>) -> bool {
    let same = [Measure::RowsSent, Measure::RowsExamined, Measure::RowsAffected, Measure::LockNs];
    inner.thread == outer.thread
        && inner.timestamp_ns == outer.timestamp_ns
        && inner.query_ns <= outer.query_ns
        && same.iter().all(|measure| inner.measures.get(*measure) == outer.measures.get(*measure))
}
