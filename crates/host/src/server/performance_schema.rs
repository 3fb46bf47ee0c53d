//! performance_schema: what the server's statements and threads waited for, and which statements took the time.

use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::Values;
use mysql::{Connection, Error};

/// Not every second: the server visits all instances of all instruments for it, even disabled ones. 11 to
/// 50 ms of MySQL 8.0 with a pool of 32 MiB, 1.3 ms of MariaDB 10.11.
pub const MYSQL_WAITS: Kind = Kind::server(
    "mysql_waits",
    "count and time_ns by wait event, those that happened (performance_schema)",
    sample_waits,
)
.every(5);
/// Not every second, because the server sums up all its digests for it: up to 10,000 by default.
pub const STATEMENTS: Kind = Kind::server(
    "statements",
    "count, times, rows, errors, temporary tables of the 50 digests that took the most time (performance_schema)",
    sample_statements,
)
.every(10);

/// Two rows by their key; the server adds up its sessions for each.
pub const TEMPTABLE: Kind = Kind::server(
    "temptable",
    "bytes that temporary tables hold in memory and in mapped files, and those ever taken (MySQL, performance_schema)",
    sample_temptable,
)
.every(5);

/// Whether a row of `threads` is of a thread that replicates, also for a group. These have the user who started them,
/// and are queries or connections by their command, as sessions of clients are.
pub const REPLICATES: &str = "(NAME LIKE 'thread/sql/replica%' OR NAME LIKE 'thread/sql/slave%' \
    OR NAME LIKE 'thread/group_rpl/%')";

const WAITS: &str = "SELECT EVENT_NAME, COUNT_STAR, SUM_TIMER_WAIT \
    FROM performance_schema.events_waits_summary_global_by_event_name \
    WHERE COUNT_STAR > 0 AND EVENT_NAME <> 'idle'";

/// A digest is counted once per schema; the start of its hash identifies it.
const DIGESTS: &str = "SELECT LEFT(DIGEST, 16), SUM(COUNT_STAR), SUM(SUM_TIMER_WAIT), SUM(SUM_LOCK_TIME), \
    SUM(SUM_ROWS_EXAMINED), SUM(SUM_ROWS_SENT), SUM(SUM_ROWS_AFFECTED), \
    SUM(SUM_CREATED_TMP_DISK_TABLES), SUM(SUM_NO_INDEX_USED), \
    SUM(SUM_SORT_MERGE_PASSES), SUM(SUM_ERRORS), SUM(SUM_SELECT_FULL_JOIN), SUM(SUM_SELECT_FULL_RANGE_JOIN) \
    FROM performance_schema.events_statements_summary_by_digest \
    WHERE DIGEST IS NOT NULL GROUP BY DIGEST ORDER BY SUM(SUM_TIMER_WAIT) DESC LIMIT 50";
const DIGEST_METRICS: [&str; 12] = [
    "count",
    "time_ns",
    "lock_ns",
    "rows_examined",
    "rows_sent",
    "rows_affected",
    "tmp_disk_tables",
    "no_index_used",
    "sort_merge_passes",
    "errors",
    "full_joins",
    "range_joins",
];
const PS_PER_NS: u64 = 1000;
/// What is in use is below zero if it was taken before the instrument counted.
const TEMPTABLES: &str = "SELECT SUBSTRING_INDEX(EVENT_NAME, '_', -1), GREATEST(CURRENT_NUMBER_OF_BYTES_USED, 0), \
    COUNT_ALLOC, SUM_NUMBER_OF_BYTES_ALLOC \
    FROM performance_schema.memory_summary_global_by_event_name \
    WHERE EVENT_NAME IN ('memory/temptable/physical_ram', 'memory/temptable/physical_disk')";

fn sample_waits(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    let mut rows = read_rows(session, WAITS)?;
    if rows.is_empty() {
        let message = "no wait was counted: performance_schema.setup_instruments has no wait/% enabled";
        return Err(Trouble::Absent(message.to_owned()));
    }
    rows.iter_mut().for_each(|(_, numbers)| to_ns(numbers, &[1]));
    values.table(&["count", "time_ns"], &rows);
    Ok(())
}

fn sample_statements(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    let mut rows = read_rows(session, DIGESTS)?;
    if rows.is_empty() {
        let message = "no statement was counted: the consumer statements_digest of performance_schema is off";
        return Err(Trouble::Absent(message.to_owned()));
    }
    rows.iter_mut().for_each(|(_, numbers)| to_ns(numbers, &[1, 2]));
    values.table(&DIGEST_METRICS, &rows);
    Ok(())
}

fn sample_temptable(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    if session.connection.is_mariadb() {
        return Err(Trouble::Absent("MariaDB has no TempTable".to_owned()));
    }
    let rows = read_rows(session, TEMPTABLES)?;
    if rows.is_empty() {
        return Err(Trouble::Absent("this version has no TempTable".to_owned()));
    }
    values.table(&["bytes", "blocks_taken", "bytes_taken"], &rows);
    Ok(())
}

fn to_ns(numbers: &mut [u64], columns: &[usize]) {
    for &column in columns {
        if let Some(number) = numbers.get_mut(column) {
            *number /= PS_PER_NS;
        }
    }
}

/// A label and its numbers per row. Absent if performance_schema is off; its tables are merely empty then.
fn read_rows(session: &mut Session, sql: &str) -> Result<Vec<(String, Vec<u64>)>, Trouble> {
    if session.understood.performance_schema.is_none() {
        session.understood.performance_schema = Some(is_on(&mut session.connection)?);
    }
    if session.understood.performance_schema == Some(false) {
        let message = "performance_schema is off: it needs performance_schema=ON and a restart of the server";
        return Err(Trouble::Absent(message.to_owned()));
    }
    let mut rows = Vec::new();
    session.connection.query(sql, |columns, row| {
        let text = |column: usize| std::str::from_utf8(row.get(column)?).ok();
        let numbers = (1..columns.len()).map_while(|column| text(column)?.parse().ok()).collect();
        if let Some(label) = text(0) {
            rows.push((label.to_owned(), numbers));
        }
    })?;
    Ok(rows)
}

pub fn is_on(connection: &mut Connection) -> Result<bool, Error> {
    let mut is_on = false;
    connection.query("SELECT @@global.performance_schema", |_, row| is_on = row.get(0) == Some(b"1"))?;
    Ok(is_on)
}
