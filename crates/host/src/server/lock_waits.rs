//! Which connection waits for which lock, on rows and metadata, with the holder if the server reports it.
//!
//! If it does not list the holders of metadata locks (MariaDB without the plugin metadata_lock_info), the holder is
//! guessed: the oldest open transaction from before the first wait. The output marks it as a guess.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::query::Named;
use super::running::{Running, class_of};
use mysql::{Connection, Error};

/// More pairs than anyone reads; a hot row has one for each waiting connection.
const MOST: usize = 100;
/// Pairs that are read, as the statements say: in a queue each waits for all that are ahead of it.
const MOST_READ: usize = 1000;
const NO_SUCH_TABLE: u16 = 1109;
/// From so many seconds on a transaction is listed that nobody waits for.
const LONG_S: u64 = 10;

#[derive(Debug, Serialize)]
pub struct Wait {
    /// `row` or `metadata`; `open` for the oldest transaction, which nobody need wait for.
    lock: &'static str,
    /// `database.table`; null if unknown.
    table: Option<String>,
    /// Ids of connections.
    waiter: u64,
    holder: Option<u64>,
    /// Whether the server names the holder; else it is the oldest transaction that was open before the wait.
    is_certain: bool,
    waiter_class: Option<String>,
    /// Null if the holder executes nothing, and its last statement is unknown.
    holder_class: Option<String>,
    holder_user: Option<String>,
    holder_host: Option<String>,
    /// How long its transaction has been open.
    holder_open_s: Option<u64>,
    /// How long it has done nothing; null while it executes.
    holder_idle_s: Option<u64>,
}

const MARIADB_ROWS: &str = "SELECT r.trx_mysql_thread_id AS waiter, b.trx_mysql_thread_id AS holder, \
    l.lock_table AS locked, \
    TIMESTAMPDIFF(SECOND, b.trx_started, NOW()) AS open_s \
    FROM information_schema.INNODB_LOCK_WAITS w \
    JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id \
    JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id \
    LEFT JOIN information_schema.INNODB_LOCKS l ON l.lock_id = w.requested_lock_id LIMIT 1000";
const MYSQL_ROWS: &str = "SELECT r.trx_mysql_thread_id AS waiter, b.trx_mysql_thread_id AS holder, \
    CONCAT(l.OBJECT_SCHEMA, '.', l.OBJECT_NAME) AS locked, \
    TIMESTAMPDIFF(SECOND, b.trx_started, NOW()) AS open_s \
    FROM performance_schema.data_lock_waits w \
    JOIN information_schema.INNODB_TRX r ON r.trx_id = w.REQUESTING_ENGINE_TRANSACTION_ID \
    JOIN information_schema.INNODB_TRX b ON b.trx_id = w.BLOCKING_ENGINE_TRANSACTION_ID \
    LEFT JOIN performance_schema.data_locks l ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID LIMIT 1000";
const MYSQL_METADATA: &str = "SELECT wt.PROCESSLIST_ID AS waiter, ht.PROCESSLIST_ID AS holder, \
    CONCAT(w.OBJECT_SCHEMA, '.', w.OBJECT_NAME) AS locked, \
    (SELECT TIMESTAMPDIFF(SECOND, x.trx_started, NOW()) \
     FROM information_schema.INNODB_TRX x WHERE x.trx_mysql_thread_id = ht.PROCESSLIST_ID LIMIT 1) AS open_s \
    FROM performance_schema.metadata_locks w \
    JOIN performance_schema.metadata_locks h ON h.OBJECT_TYPE = w.OBJECT_TYPE \
     AND h.OBJECT_SCHEMA <=> w.OBJECT_SCHEMA AND h.OBJECT_NAME <=> w.OBJECT_NAME AND h.LOCK_STATUS = 'GRANTED' \
     AND h.OWNER_THREAD_ID <> w.OWNER_THREAD_ID \
    JOIN performance_schema.threads wt ON wt.THREAD_ID = w.OWNER_THREAD_ID \
    JOIN performance_schema.threads ht ON ht.THREAD_ID = h.OWNER_THREAD_ID \
    WHERE w.LOCK_STATUS = 'PENDING' AND ht.PROCESSLIST_ID IS NOT NULL AND wt.PROCESSLIST_ID IS NOT NULL LIMIT 1000";
const MARIADB_METADATA: &str = "SELECT 0 AS waiter, THREAD_ID AS holder, \
    CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS locked, NULL AS open_s \
    FROM information_schema.METADATA_LOCK_INFO WHERE TABLE_NAME <> '' LIMIT 1000";
const TRANSACTIONS: &str = "SELECT trx_mysql_thread_id AS holder, \
    TIMESTAMPDIFF(SECOND, trx_started, NOW()) AS open_s \
    FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id <> 0 ORDER BY trx_started LIMIT 100";
/// The last statement of a connection, which the server keeps for idle ones.
const LAST: &str = "SELECT t.PROCESSLIST_ID AS id, LEFT(s.SQL_TEXT, 16384) AS text \
    FROM performance_schema.events_statements_current s JOIN performance_schema.threads t USING (THREAD_ID) \
    WHERE t.PROCESSLIST_ID IN ";

struct Pair {
    waiter: u64,
    holder: u64,
    table: Option<String>,
    open_s: Option<u64>,
}

/// All current waits. `connections` are the running ones, `waits_for_rows` how many wait for a row.
pub fn read(
    connection: &mut Connection,
    performance_schema: bool,
    connections: &[Running],
    waits_for_rows: u64,
) -> Result<Vec<Wait>, Error> {
    let mut waits = Vec::new();
    if waits_for_rows > 0 {
        let sql = if connection.is_mariadb() { MARIADB_ROWS } else { MYSQL_ROWS };
        waits.extend(nearest(pairs(connection, sql)?).into_iter().map(|pair| ("row", pair, true)));
    }
    let waiters: Vec<&Running> = connections.iter().filter(|one| one.waits_for_metadata()).collect();
    if !waiters.is_empty() {
        let known = metadata(connection, performance_schema, &waiters)?;
        waits.extend(known.into_iter().map(|(pair, is_certain)| ("metadata", pair, is_certain)));
    }
    waits.truncate(MOST);
    described(connection, performance_schema, connections, waits)
}

/// The oldest transaction, if it has been open for long: what it keeps from being purged holds up all, though nobody
/// waits for its locks.
pub fn oldest(
    connection: &mut Connection,
    performance_schema: bool,
    connections: &[Running],
) -> Result<Option<Wait>, Error> {
    let first = pairs(connection, TRANSACTIONS)?.into_iter().next();
    let long = first.filter(|pair| pair.open_s.is_some_and(|open_s| open_s >= LONG_S));
    let found = long.map(|pair| ("open", pair, true)).into_iter().collect();
    Ok(described(connection, performance_schema, connections, found)?.pop())
}

fn described(
    connection: &mut Connection,
    performance_schema: bool,
    connections: &[Running],
    waits: Vec<(&'static str, Pair, bool)>,
) -> Result<Vec<Wait>, Error> {
    let idle = holders(connection, performance_schema, &waits)?;
    let of_connection = |id: u64| connections.iter().find(|one| one.id() == id).and_then(Running::class);
    Ok(waits
        .into_iter()
        .map(|(lock, pair, is_certain)| {
            let holder = idle.iter().find(|holder| holder.id == pair.holder);
            Wait {
                lock,
                table: pair.table,
                waiter: pair.waiter,
                holder: (pair.holder != 0).then_some(pair.holder),
                is_certain,
                waiter_class: of_connection(pair.waiter),
                holder_class: of_connection(pair.holder).or_else(|| holder?.last.clone()),
                holder_user: holder.map(|holder| holder.user.clone()),
                holder_host: holder.map(|holder| holder.host.clone()),
                holder_open_s: pair.open_s,
                holder_idle_s: holder.and_then(|holder| holder.idle_s),
            }
        })
        .collect())
}

fn pairs(connection: &mut Connection, sql: &str) -> Result<Vec<Pair>, Error> {
    let mut waiting = Vec::new();
    connection.query(sql, |columns, row| {
        let row = Named::new(columns, row);
        waiting.push(Pair {
            waiter: row.number(&["waiter"]).unwrap_or(0),
            holder: row.number(&["holder"]).unwrap_or(0),
            table: row.text(&["locked"]).map(|name| name.replace('`', "")),
            open_s: row.number(&["open_s"]),
        });
    })?;
    Ok(waiting)
}

/// Without holders that wait for another holder of the same waiter: they are only further ahead in its queue.
///
/// One that waits for somebody else is kept: it has one lock and waits for another. So is everyone in a circle. If not
/// all pairs were read, nobody knows which of the two it is, and none that waits is kept.
fn nearest(pairs: Vec<Pair>) -> Vec<Pair> {
    let mut holders: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for pair in &pairs {
        holders.entry(pair.waiter).or_default().insert(pair.holder);
    }
    let is_cut = pairs.len() >= MOST_READ;
    let is_queued = |pair: &Pair| {
        let others = &holders[&pair.waiter];
        holders
            .get(&pair.holder)
            .is_some_and(|ahead| is_cut || (!ahead.is_disjoint(others) && !ahead.contains(&pair.waiter)))
    };
    pairs.into_iter().filter(|pair| !is_queued(pair)).collect()
}

/// One pair per waiter, with the holder that the server names, or with the oldest transaction that was open before.
fn metadata(
    connection: &mut Connection,
    performance_schema: bool,
    waiters: &[&Running],
) -> Result<Vec<(Pair, bool)>, Error> {
    let is_waiter = |id: u64| waiters.iter().any(|one| one.id() == id);
    if performance_schema && !connection.is_mariadb() {
        // A waiting statement may hold a weaker lock on the same table.
        let named = pairs(connection, MYSQL_METADATA)?;
        return Ok(named.into_iter().filter(|pair| !is_waiter(pair.holder)).map(|p| (p, true)).collect());
    }
    if connection.is_mariadb() {
        match pairs(connection, MARIADB_METADATA) {
            Ok(locks) => {
                let held: Vec<Pair> = locks.into_iter().filter(|lock| !is_waiter(lock.holder)).collect();
                let of = |waiter: &&Running| {
                    held.iter().find(|lock| waiter.uses(lock.table.as_deref().unwrap_or_default())).map(
                        |lock| Pair {
                            waiter: waiter.id(),
                            holder: lock.holder,
                            table: lock.table.clone(),
                            open_s: None,
                        },
                    )
                };
                let known: Vec<_> = waiters.iter().filter_map(of).map(|pair| (pair, true)).collect();
                if !known.is_empty() {
                    return Ok(known);
                }
            }
            // The plugin is not installed.
            Err(Error::Server { code: NO_SUCH_TABLE, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let longest_s = waiters.iter().map(|one| one.time_s()).max().unwrap_or(0);
    let oldest = pairs(connection, TRANSACTIONS)?
        .into_iter()
        .find(|pair| !is_waiter(pair.holder) && pair.open_s.is_some_and(|open_s| open_s >= longest_s));
    Ok(waiters
        .iter()
        .map(|waiter| {
            let holder = oldest.as_ref();
            let pair = Pair {
                waiter: waiter.id(),
                holder: holder.map_or(0, |pair| pair.holder),
                table: waiter.table(),
                open_s: holder.and_then(|pair| pair.open_s),
            };
            (pair, false)
        })
        .collect())
}

struct Holder {
    id: u64,
    user: String,
    host: String,
    idle_s: Option<u64>,
    last: Option<String>,
}

fn holders(
    connection: &mut Connection,
    performance_schema: bool,
    found: &[(&'static str, Pair, bool)],
) -> Result<Vec<Holder>, Error> {
    let mut ids: Vec<u64> = found.iter().map(|(_, pair, _)| pair.holder).filter(|&id| id != 0).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let list = format!("({})", ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", "));
    let mut holders = Vec::new();
    let sql = if performance_schema && !connection.is_mariadb() {
        format!(
            "SELECT PROCESSLIST_ID AS id, PROCESSLIST_USER AS user, PROCESSLIST_HOST AS host, \
             PROCESSLIST_COMMAND AS command, PROCESSLIST_TIME AS time_s FROM performance_schema.threads \
             WHERE PROCESSLIST_ID IN {list}"
        )
    } else {
        format!(
            "SELECT ID AS id, USER AS user, HOST AS host, COMMAND AS command, TIME AS time_s \
             FROM information_schema.PROCESSLIST WHERE ID IN {list}"
        )
    };
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        let is_idle = row.text(&["command"]).as_deref() == Some("Sleep");
        holders.push(Holder {
            id: row.number(&["id"]).unwrap_or(0),
            user: row.text(&["user"]).unwrap_or_default(),
            host: row.text(&["host"]).unwrap_or_default(),
            idle_s: is_idle.then(|| row.number(&["time_s"])).flatten(),
            last: None,
        });
    })?;
    if performance_schema {
        connection.query(&format!("{LAST}{list}"), |columns, row| {
            let row = Named::new(columns, row);
            let (id, text) = (row.number(&["id"]), row.text(&["text"]));
            if let Some(holder) = holders.iter_mut().find(|holder| Some(holder.id) == id) {
                holder.last = text.and_then(|text| class_of(&text)).or(holder.last.take());
            }
        })?;
    }
    Ok(holders)
}

#[cfg(test)]
mod tests {
    use super::{MOST_READ, Pair, nearest};

    fn found(pairs: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let pair = |&(waiter, holder)| Pair { waiter, holder, table: None, open_s: None };
        nearest(pairs.iter().map(pair).collect()).iter().map(|pair| (pair.waiter, pair.holder)).collect()
    }

    #[test]
    fn in_a_queue_for_one_lock_all_wait_for_the_one_that_has_it() {
        assert_eq!(found(&[(2, 1), (3, 2), (3, 1), (4, 3), (4, 2), (4, 1)]), [(2, 1), (3, 1), (4, 1)]);
    }

    #[test]
    fn a_holder_that_waits_for_another_lock_still_holds_others_up() {
        // 3 has a lock that 4 and 5 want, and waits in the queue for 1; 5 is behind 4.
        let pairs = [(2, 1), (3, 1), (3, 2), (4, 3), (5, 3), (5, 4)];
        assert_eq!(found(&pairs), [(2, 1), (3, 1), (4, 3), (5, 3)]);
    }

    #[test]
    fn of_a_queue_that_was_cut_only_those_who_wait_for_its_head_are_known() {
        let whole = (2..60).flat_map(|waiter| (1..waiter).rev().map(move |holder| (waiter, holder)));
        let cut: Vec<_> = whole.take(MOST_READ).collect();
        assert_ne!(cut.last().map(|pair| pair.1), Some(1));
        assert!(found(&cut).iter().all(|pair| pair.1 == 1));
    }

    #[test]
    fn a_circle_is_kept() {
        assert_eq!(found(&[(1, 2), (2, 1)]), [(1, 2), (2, 1)]);
        assert_eq!(found(&[(1, 2), (2, 3), (3, 1)]), [(1, 2), (2, 3), (3, 1)]);
    }
}
