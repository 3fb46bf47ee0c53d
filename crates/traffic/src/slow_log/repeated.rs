//! Statements that MariaDB logs more than once though the client sent one. Only the last event is counted and replayed.
//!
//! - EXECUTE IMMEDIATE is logged twice: first the statement that it ran, then itself, with numbers at least as high. What
//!   EXECUTE runs looks the same, but is logged in place of the EXECUTE. A statement that failed before it ran is not logged.
//! - A bulk insert is one event. A bulk update or delete is one event per row, with the time and rows since the bulk began
//!   and without values.
//!
//! In both cases the earlier events have sent nothing (`Bytes_sent: 0`), because the answer comes last. Only the thread's
//! next event tells which case it is.

use memchr::{memchr, memmem};

use super::boundary::{LINE_BYTES, Line, classify, ends_statement};
use super::header::{self, Header};
use crate::measures::Measure;

/// How far the log is searched: only statements of other threads that ended at the same instant lie between the two.
const LOOK_BYTES: usize = 16 << 10;

/// Whether an event can be logged again. This rules out most events.
pub(super) fn may_be(header: &Header<'_>) -> bool {
    header.measures.get(Measure::ResponseBytes) == Some(0)
}

/// Whether the statement, with its terminator, is repeated in the thread's next event, which is in `after`. `None`: more
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

/// Where a header begins whose `Thread_id` line begins at the end of `before`: at its `User@Host` or its `Time` line.
fn first_line(before: &[u8]) -> usize {
    let line_before =
        |end: usize| memchr::memrchr(b'\n', &before[..end.saturating_sub(1)]).map_or(0, |at| at + 1);
    let user = line_before(before.len());
    let time = line_before(user);
    if before[time..].starts_with(b"# Time: ") { time } else { user }
}

/// Only bulk statements are logged without their values.
fn is_bulk(statement: &[u8]) -> bool {
    memchr(b'?', statement).is_some() && !sql::kept_placeholders(statement).is_empty()
}

fn has_same_rows(first: &Header<'_>, next: &Header<'_>) -> bool {
    let same = [Measure::RowsSent, Measure::RowsExamined, Measure::RowsAffected, Measure::LockNs];
    same.iter().all(|measure| first.measures.get(*measure) == next.measures.get(*measure))
}

/// Whether the next event of the same bulk can have these numbers. Those of another bulk usually start lower.
fn is_next_row(first: &Header<'_>, next: &Header<'_>) -> bool {
    let more = [Measure::RowsExamined, Measure::RowsAffected]
        .map(|measure| (first.measures.get(measure), next.measures.get(measure)));
    may_be(next)
        && more.iter().all(|(first, next)| first <= next)
        && more.iter().any(|(first, next)| first < next)
}

#[cfg(test)]
mod tests {
    use super::super::parallel;
    use super::super::tests::{of_mariadb, parsed};

    #[test]
    fn execute_immediate_is_one_event() {
        let immediate = |sent_bytes| of_mariadb(5, sent_bytes, "/* a */ EXECUTE immediate 'select 2'");
        let (ran, other) = (of_mariadb(5, 0, "select 2"), of_mariadb(6, 30, "select 3"));
        let last = of_mariadb(5, 30, "select 4");
        let itself = "/* a */ EXECUTE immediate 'select 2'";
        for (log, expected) in [
            // As the server writes it; with a new second and another thread between the two.
            (format!("{ran}{}{last}", immediate(50)), vec![itself, "select 4"]),
            (format!("{ran}{other}# Time: 240131 12:00:01\n{}", immediate(50)), vec!["select 3", itself]),
            // What failed before it ran is logged once, and what EXECUTE ran, too.
            (format!("{last}{}", immediate(50)), vec!["select 4", itself]),
            (format!("{ran}{ran}{last}"), vec!["select 2", "select 2", "select 4"]),
            (format!("{ran}{}", immediate(50).replace("401;", "402;")), vec!["select 2", itself]),
            (
                format!("{ran}{}", immediate(50).replace("Rows_sent: 1", "Rows_sent: 0")),
                vec!["select 2", itself],
            ),
            (format!("{ran}{}", of_mariadb(55, 50, itself)), vec!["select 2", itself]),
            // Too far away to be told.
            (
                format!("{ran}{}{}", other.repeat(100), immediate(50)),
                [&["select 2"][..], &["select 3"; 100], &[itself]].concat(),
            ),
            (ran.clone(), vec!["select 2"]),
        ] {
            let (events, coverage) = parsed(log.as_bytes());
            let texts: Vec<_> = events.iter().map(|event| event.text.as_str()).collect();
            assert_eq!(texts, expected, "{log}");
            assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{coverage:?}");
            for window_bytes in [1, 77, 300, 5000] {
                parallel::tests::same(log.as_bytes(), window_bytes, 1);
            }
        }
    }

    #[test]
    fn rows_in_bulk_are_one_event() {
        // Time and rows are those since the bulk's beginning.
        let row = |number: u32, statement: &str| {
            of_mariadb(5, 0, statement)
                .replace("0.000040", &format!("0.0000{number}0"))
                .replace("Rows_examined: 2", &format!("Rows_examined: {}", number * 4))
                .replace("Rows_affected: 0", &format!("Rows_affected: {number}"))
        };
        let update = "UPDATE t SET b=? WHERE a=?";
        let bulk = [row(1, update), row(2, update), row(3, update)].concat();
        let other = of_mariadb(6, 30, "select 3");
        let other_bulk = row(9, "DELETE FROM t WHERE a=?");
        let literal = "UPDATE t SET b='?'";
        for (log, expected) in [
            (bulk.clone(), vec![(update, 30_000)]),
            (bulk.replacen("SET t", "use `d`;\nSET t", 1) + &bulk, vec![(update, 30_000); 2]),
            ([row(1, update), other, row(2, update)].concat(), vec![("select 3", 41_000), (update, 20_000)]),
            (bulk.clone() + &other_bulk, vec![(update, 30_000), ("DELETE FROM t WHERE a=?", 90_000)]),
            // Bulks of one row, and what EXECUTE runs.
            (row(1, update).repeat(2), vec![(update, 10_000); 2]),
            (row(1, literal) + &row(2, literal), vec![(literal, 10_000), (literal, 20_000)]),
        ] {
            let (events, _) = parsed(log.as_bytes());
            let found: Vec<_> =
                events.iter().map(|event| (event.text.as_str(), event.response_ns.unwrap_or(0))).collect();
            assert_eq!(found, expected, "{log}");
            for window_bytes in [1, 77, 300, 5000] {
                parallel::tests::same(log.as_bytes(), window_bytes, 1);
            }
        }
    }
}
