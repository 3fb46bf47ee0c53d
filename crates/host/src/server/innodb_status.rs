//! SHOW ENGINE INNODB STATUS: log positions, pending I/O, waits for latches, transactions.
//!
//! The text contains users' statements, so only numbers and names of latches are kept. A statement that imitates the
//! text can be counted as a transaction; the log and pending I/O are read after the last one.

use std::collections::BTreeMap;

use mysql::{Connection, Error};

use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::Values;

/// Not every second: InnoDB lists all its transactions for it, and meanwhile none can start or end.
pub const INNODB_STATUS: Kind = Kind::server(
    "innodb_status",
    "log positions, pending I/O, latch waiters, transactions (SHOW ENGINE INNODB STATUS; privilege PROCESS)",
    sample,
)
.every(5);

fn sample(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    let mut text = String::new();
    session.connection.query("SHOW ENGINE INNODB STATUS", |_, row| {
        text = row.get(2).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    })?;
    if text.is_empty() {
        return Err(Trouble::Absent("the server has no InnoDB".to_owned()));
    }
    let mut status = Status::parse(&text);
    if !session.connection.is_mariadb() {
        status.take_transactions(&mut session.connection)?;
    }
    status.write(values);
    Ok(())
}

/// MySQL leaves read-only transactions, such as a dump or a forgotten view, out of the text. The last column is the
/// oldest of those that can only have read, and keep their read view between statements.
const TRANSACTIONS: &str = "SELECT COUNT(*), \
    TIMESTAMPDIFF(SECOND, MIN(trx_started), NOW()), \
    TIMESTAMPDIFF(SECOND, MIN(CASE WHEN trx_isolation_level IN ('REPEATABLE READ', 'SERIALIZABLE') \
    AND trx_rows_locked = 0 AND trx_rows_modified = 0 THEN trx_started END), NOW()) \
    FROM information_schema.INNODB_TRX";

/// None for values that a version does not print.
#[derive(Debug, Default, PartialEq)]
struct Status {
    history_list_length: Option<u64>,
    lsn: Option<u64>,
    lsn_flushed: Option<u64>,
    checkpoint_lsn: Option<u64>,
    max_checkpoint_age: Option<u64>,
    pending_reads: Option<u64>,
    /// By kind: `LRU`, `flush list`, `single page`.
    pending_writes: BTreeMap<String, u64>,
    pending_aio_reads: Option<u64>,
    pending_aio_writes: Option<u64>,
    /// By file: `log`, `buffer pool`; no name if the server has one number.
    pending_fsyncs: BTreeMap<String, u64>,
    /// By latch: its name, the place that made it, or the place that waits for it.
    semaphore_waiters: BTreeMap<String, u64>,
    semaphore_longest_wait_s: Option<u64>,
    active_transactions: u64,
    lock_wait_transactions: u64,
    /// Those that wait for a table's AUTO_INCREMENT lock, which no counter of row locks has.
    autoinc_waiters: u64,
    oldest_transaction_s: Option<u64>,
    /// Of the transactions with a read view: only these keep old row versions from purge.
    oldest_read_view_s: Option<u64>,
    /// MySQL: threads inside InnoDB, and those that `innodb_thread_concurrency` holds outside.
    threads_inside: Option<u64>,
    threads_queued: Option<u64>,
}

impl Status {
    fn take_transactions(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let mut numbers = [None; 3];
        connection.query(TRANSACTIONS, |_, row| {
            let number = |column| std::str::from_utf8(row.get(column)?).ok()?.parse::<u64>().ok();
            numbers = [number(0), number(1), number(2)];
        })?;
        let [active, oldest_s, view_s] = numbers;
        self.active_transactions = self.active_transactions.max(active.unwrap_or(0));
        self.oldest_transaction_s = self.oldest_transaction_s.max(oldest_s);
        self.oldest_read_view_s = self.oldest_read_view_s.max(view_s);
        Ok(())
    }

    fn parse(text: &str) -> Self {
        let mut status = Self::default();
        status.read_semaphores(section(text, "SEMAPHORES", false));
        status.read_transactions(section(text, "TRANSACTIONS", true));
        status.read_file_io(section(text, "FILE I/O", true));
        status.read_log(section(text, "LOG", true));
        status.read_buffer_pool(section(text, "BUFFER POOL AND MEMORY", true));
        status.read_row_operations(section(text, "ROW OPERATIONS", true));
        status
    }

    fn read_semaphores(&mut self, text: &str) {
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if !line.starts_with("--Thread ") {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let after = |word: &str| words.iter().position(|w| *w == word).and_then(|at| words.get(at + 1));
            let place = match (after("at"), after("line")) {
                (Some(file), Some(line)) => format!("{file}:{line}"),
                _ => "unknown".to_owned(),
            };
            let waited_s = after("for").and_then(|seconds| seconds.split('.').next()?.parse::<u64>().ok());
            self.semaphore_longest_wait_s = self.semaphore_longest_wait_s.max(waited_s);
            let latch = lines.peek().and_then(|next| latch(next)).unwrap_or(place);
            *self.semaphore_waiters.entry(latch).or_default() += 1;
        }
    }

    fn read_transactions(&mut self, text: &str) {
        let mut age_s = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("History list length ") {
                self.history_list_length = self.history_list_length.or(first_number(rest));
            } else if line.starts_with("---TRANSACTION ") {
                age_s = None;
                let Some((_, active)) = line.split_once(", ACTIVE ") else { continue };
                // `ACTIVE (PREPARED) 3 sec committing`
                let active = active.strip_prefix("(PREPARED) ").unwrap_or(active);
                self.active_transactions += 1;
                age_s = first_number(active);
                self.oldest_transaction_s = self.oldest_transaction_s.max(age_s);
                self.autoinc_waiters += u64::from(active.ends_with(" setting auto-inc lock"));
            } else if line.starts_with("LOCK WAIT ") {
                self.lock_wait_transactions += 1;
            } else if line.starts_with("Trx read view will not see trx with id ") {
                self.oldest_read_view_s = self.oldest_read_view_s.max(age_s);
            }
        }
    }

    fn read_file_io(&mut self, text: &str) {
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("Pending normal aio reads:") {
                let (reads, writes) = rest.split_once("aio writes:").unwrap_or((rest, ""));
                self.pending_aio_reads = sum_or_list(reads);
                self.pending_aio_writes = sum_or_list(writes);
            } else if let Some(rest) = line.strip_prefix("Pending flushes (fsync)") {
                for part in rest.split(';') {
                    let (name, number) = part.split_once(':').unwrap_or(("", part));
                    if let Some(number) = first_number(number) {
                        self.pending_fsyncs.insert(name.trim().to_owned(), number);
                    }
                }
            }
        }
    }

    fn read_log(&mut self, text: &str) {
        for line in text.lines() {
            for (name, field) in [
                ("Log sequence number", &mut self.lsn),
                ("Log flushed up to", &mut self.lsn_flushed),
                ("Last checkpoint at", &mut self.checkpoint_lsn),
                ("Max checkpoint age", &mut self.max_checkpoint_age),
            ] {
                if let Some(rest) = line.strip_prefix(name) {
                    *field = field.or(first_number(rest));
                }
            }
        }
    }

    /// The sums of all pools come first; with several pools each has such lines again.
    fn read_buffer_pool(&mut self, text: &str) {
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("Pending reads") {
                self.pending_reads = self.pending_reads.or(first_number(rest));
            } else if let Some(rest) =
                line.strip_prefix("Pending writes:").filter(|_| self.pending_writes.is_empty())
            {
                for part in rest.split(',') {
                    if let Some((name, number)) = part.trim().rsplit_once(' ')
                        && let Ok(number) = number.parse()
                    {
                        self.pending_writes.insert(name.to_owned(), number);
                    }
                }
            }
        }
    }

    /// `8 queries inside InnoDB, 24 queries in queue`
    fn read_row_operations(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((inside, rest)) = line.split_once(" queries inside InnoDB, ") {
                self.threads_inside = self.threads_inside.or(first_number(inside));
                self.threads_queued = self.threads_queued.or(first_number(rest));
            }
        }
    }

    fn write(&self, values: &mut Values) {
        let age = |lsn: u64| Some(lsn.saturating_sub(self.checkpoint_lsn?));
        let singles = [
            ("history_list_length", self.history_list_length),
            ("lsn", self.lsn),
            ("lsn_flushed", self.lsn_flushed),
            ("checkpoint_lsn", self.checkpoint_lsn),
            ("checkpoint_age_bytes", self.lsn.and_then(age)),
            ("max_checkpoint_age_bytes", self.max_checkpoint_age),
            ("pending_reads", self.pending_reads),
            ("pending_aio_reads", self.pending_aio_reads),
            ("pending_aio_writes", self.pending_aio_writes),
            ("semaphore_longest_wait_s", self.semaphore_longest_wait_s),
            ("active_transactions", Some(self.active_transactions)),
            ("lock_wait_transactions", Some(self.lock_wait_transactions)),
            ("autoinc_waiters", Some(self.autoinc_waiters)),
            ("oldest_transaction_s", Some(self.oldest_transaction_s.unwrap_or(0))),
            ("oldest_read_view_s", Some(self.oldest_read_view_s.unwrap_or(0))),
            ("threads_inside", self.threads_inside),
            ("threads_queued", self.threads_queued),
        ];
        for (metric, number) in singles {
            if let Some(number) = number {
                values.single(metric, number);
            }
        }
        for (metric, numbers) in [
            ("pending_writes", &self.pending_writes),
            ("pending_fsyncs", &self.pending_fsyncs),
            ("semaphore_waiters", &self.semaphore_waiters),
        ] {
            values.metric(metric);
            for (label, number) in numbers {
                values.value(label, *number);
            }
        }
    }
}

/// The text beneath a title between two lines of dashes, as far as the next one; empty without it. A title may
/// occur more than once, if a statement imitates it.
fn section<'a>(text: &'a str, title: &str, is_last_wanted: bool) -> &'a str {
    let head = format!("-\n{title}\n-");
    let title_at = if is_last_wanted { text.rfind(&head) } else { text.find(&head) };
    let Some(start) = title_at.map(|at| at + head.len()) else { return "" };
    let body = text[start..].split_once('\n').map_or("", |(_, body)| body);
    // Each title is in capitals, between two lines of dashes.
    let mut end = 0;
    let mut lines = body.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let is_rule = line.len() > 3 && line.trim_end().bytes().all(|byte| byte == b'-');
        let is_title = |next: &&str| next.chars().all(|c| !c.is_lowercase()) && next.len() > 3;
        if is_rule && lines.peek().is_some_and(is_title) {
            break;
        }
        end += line.len();
    }
    &body[..end]
}

/// `Mutex at 0x7f, Mutex LOG_SYS created log0log.cc:862, lock var 1`, or
/// `S-lock on RW-latch at 0x7f created in file buf0buf.cc line 791`.
fn latch(line: &str) -> Option<String> {
    let word = |text: &str| text.split([' ', ',']).next().filter(|word| is_name(word)).map(str::to_owned);
    if let Some((_, rest)) = line.split_once(", Mutex ") {
        return word(rest);
    }
    if let Some((_, rest)) = line.split_once("created in file ") {
        let (file, rest) = rest.split_once(" line ")?;
        return Some(format!("{}:{}", word(file.rsplit('/').next()?)?, first_number(rest)?));
    }
    // Older mutexes have no name, only a place.
    word(line.split_once("created file ")?.1)
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:&>-".contains(&byte))
}

fn first_number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// `[0, 3, 1, 0] ,` or ` 4,`: one number per thread, or a single one.
fn sum_or_list(text: &str) -> Option<u64> {
    let list =
        text.trim_start().strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(list, _)| list);
    match list {
        Some(list) => Some(list.split(',').filter_map(first_number).fold(0, u64::saturating_add)),
        None => first_number(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{Status, latch};
    use crate::sample::values::collect;
    use proptest::prelude::{any, proptest};
    use serde_json::json;

    const MARIADB: &str = include_str!("texts/innodb-status-mariadb-10.11.txt");
    const MYSQL: &str = include_str!("texts/innodb-status-mysql-8.0.txt");

    #[test]
    fn mariadb_10_11() {
        let values = collect(|values| Status::parse(MARIADB).write(values));
        assert_eq!(
            values,
            json!({
                "history_list_length": {"": 957}, "lsn": {"": 18_742_848}, "lsn_flushed": {"": 18_741_212},
                "checkpoint_lsn": {"": 44404}, "checkpoint_age_bytes": {"": 18_742_848 - 44404},
                "pending_reads": {"": 0}, "pending_fsyncs": {"": 0},
                "pending_writes": {"LRU": 0, "flush list": 0},
                "active_transactions": {"": 14}, "lock_wait_transactions": {"": 1}, "autoinc_waiters": {"": 0},
                "oldest_transaction_s": {"": 2}, "oldest_read_view_s": {"": 0},
            })
        );
    }

    #[test]
    fn mysql_8_0() {
        let values = collect(|values| Status::parse(MYSQL).write(values));
        assert_eq!(
            values,
            json!({
                "history_list_length": {"": 378}, "lsn": {"": 48_829_835}, "lsn_flushed": {"": 48_788_357},
                "checkpoint_lsn": {"": 30_839_833}, "checkpoint_age_bytes": {"": 48_829_835 - 30_839_833},
                "pending_reads": {"": 0}, "pending_aio_reads": {"": 0}, "pending_aio_writes": {"": 0},
                "pending_fsyncs": {"log": 1, "buffer pool": 0},
                "pending_writes": {"LRU": 0, "flush list": 0, "single page": 0},
                "active_transactions": {"": 4}, "lock_wait_transactions": {"": 1}, "autoinc_waiters": {"": 0},
                "oldest_transaction_s": {"": 3}, "oldest_read_view_s": {"": 0}, "threads_inside": {"": 0}, "threads_queued": {"": 0},
            })
        );
    }

    #[test]
    fn a_latch_has_its_name_or_the_place_that_made_it() {
        for (line, name) in [
            ("Mutex at 0x7f01, Mutex LOG_SYS created log0log.cc:862, lock var 1", "LOG_SYS"),
            ("S-lock on RW-latch at 0x7f01 created in file buf0buf.cc line 791", "buf0buf.cc:791"),
            (
                "X-lock (wait_ex) on RW-latch at 0x7 created in file /src/btr/btr0sea.cc line 196",
                "btr0sea.cc:196",
            ),
            ("Mutex at 0x7f01 created file trx0sys.cc:120, lock var 1", "trx0sys.cc:120"),
        ] {
            assert_eq!(latch(line).as_deref(), Some(name));
        }
        assert_eq!(latch("Mutex at 0x7f01, Mutex \u{1b}[2J created x"), None);
        assert_eq!(latch("something else"), None);
    }

    /// The form of the lines is that of sync0arr.cc; no wait lasted long enough here to catch one.
    #[test]
    fn waiters_are_counted_by_latch_and_versions_that_say_more_are_read() {
        let text = "-----\nSEMAPHORES\n----------\nOS WAIT ARRAY INFO: reservation count 7\n\
            --Thread 139 has waited at buf0flu.cc line 1209 for 0 seconds the semaphore:\n\
            Mutex at 0x7f, Mutex FLUSH_LIST created buf0buf.cc:1350, lock var 1\n\
            --Thread 140 has waited at row0sel.cc line 3758 for 12.00 seconds the semaphore:\n\
            S-lock on RW-latch at 0x7e created in file btr0sea.cc line 196\n\
            a writer (thread id 139) has reserved it in mode  exclusive\n\
            --Thread 141 has waited at row0sel.cc line 3758 for 1 seconds the semaphore:\n\
            S-lock on RW-latch at 0x7e created in file btr0sea.cc line 196\n\
            ------------\nTRANSACTIONS\n------------\nHistory list length 5\n--------\nFILE I/O\n--------\n\
            Pending normal aio reads: [1, 2] , aio writes: [0, 4] ,\nPending flushes (fsync) log: 0; buffer pool: 3\n\
            ---\nLOG\n---\nLog sequence number 900\nLog flushed up to   890\nLast checkpoint at  100\n\
            Max checkpoint age    7782360\nCheckpoint age target 7539162\n\
            ----------------------\nBUFFER POOL AND MEMORY\n----------------------\nPending reads      6\n\
            Pending writes: LRU 1, flush list 2, single page 0\n----------------------\n\
            INDIVIDUAL BUFFER POOL INFO\n----------------------\n---BUFFER POOL 0\nPending reads 5\n\
            --------------\nROW OPERATIONS\n--------------\n8 queries inside InnoDB, 24 queries in queue\n";
        let status = Status::parse(text);
        let waiters: Vec<_> = status.semaphore_waiters.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(waiters, [("FLUSH_LIST", 1), ("btr0sea.cc:196", 2)]);
        assert_eq!(status.semaphore_longest_wait_s, Some(12));
        assert_eq!((status.pending_aio_reads, status.pending_aio_writes), (Some(3), Some(4)));
        assert_eq!((status.pending_reads, status.max_checkpoint_age), (Some(6), Some(7_782_360)));
        assert_eq!(status.pending_fsyncs["buffer pool"], 3);
        assert_eq!((status.threads_inside, status.threads_queued), (Some(8), Some(24)));
    }

    #[test]
    fn waiters_for_numbers_are_no_waiters_for_rows() {
        // MariaDB 10.11: two INSERT ... SELECT behind a third.
        let text = "------------\nTRANSACTIONS\n------------\nHistory list length 5\n\
            ---TRANSACTION 30, ACTIVE 1 sec setting auto-inc lock\nmysql tables in use 2, locked 2\nLOCK WAIT 3 lock struct(s)\n\
            ---TRANSACTION 29, ACTIVE 1 sec setting auto-inc lock\nLOCK WAIT 3 lock struct(s)\n\
            ---TRANSACTION 28, ACTIVE 1 sec inserting\n\
            insert into t select 'setting auto-inc lock'\n--------\nFILE I/O\n--------\n";
        let status = Status::parse(text);
        assert_eq!((status.autoinc_waiters, status.lock_wait_transactions), (2, 2));
    }

    #[test]
    fn no_statement_is_kept_and_an_imitated_log_is_not_believed() {
        let forged = "update t set a='\n---\nLOG\n---\nLog sequence number 1\nLast checkpoint at 1\n'";
        let status = Status::parse(&MYSQL.replace("update sbtest.sbtest1 set k=k+1 where id=7", forged));
        assert_eq!((status.lsn, status.checkpoint_lsn), (Some(48_829_835), Some(30_839_833)));
        let line = collect(|values| status.write(values)).to_string();
        assert!(!line.contains("sbtest"));
    }

    proptest! {
        #[test]
        fn no_text_can_break_the_parser(text in any::<String>(), cut in 0..6000_usize) {
            let end = (0..=cut.min(MYSQL.len())).rev().find(|at| MYSQL.is_char_boundary(*at)).unwrap_or(0);
            collect(|values| Status::parse(&format!("{}{text}", &MYSQL[..end])).write(values));
            collect(|values| Status::parse(&format!("-\nLOG\n-\nLog sequence number {text}")).write(values));
        }
    }
}
