//! The twelve consistency conditions of clause 3.3.2, each as one query that counts what violates it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::Options;
use base::error::AgentError;
use mysql::{self, Connection};

/// Concurrent queries, on a connection each.
const MOST_CONNECTIONS: usize = 4;

/// The result of one condition.
#[derive(Debug, Serialize)]
pub struct Condition {
    /// Its number in clause 3.3.2.
    pub condition: usize,
    pub holds: bool,
    /// How many warehouses, districts, orders, order lines or customers violate it.
    pub violations: u64,
    pub what: &'static str,
}

struct Check {
    what: &'static str,
    sql: &'static str,
}

/// The sum of a customer's delivered order lines.
macro_rules! delivered {
    () => {
        "COALESCE((SELECT SUM(ol_amount) FROM tpcc_orders \
         STRAIGHT_JOIN tpcc_order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL), 0)"
    };
}

/// In the order of their numbers. Indexed rows are looked up one by one, in primary key order: on every server that is
/// faster than its own plans for a few hundred thousand groups, and needs no temporary table.
const CHECKS: [Check; 12] = [
    Check {
        what: "warehouses: w_ytd = sum(d_ytd)",
        sql: "SELECT COUNT(*) FROM tpcc_warehouse \
              WHERE NOT w_ytd <=> (SELECT SUM(d_ytd) FROM tpcc_district WHERE d_w_id = w_id)",
    },
    Check {
        what: "districts: d_next_o_id - 1 = max(o_id) = max(no_o_id), the last where there is a new order",
        sql: "SELECT COUNT(*) FROM tpcc_district \
              WHERE NOT d_next_o_id - 1 <=> \
              (SELECT MAX(o_id) FROM tpcc_orders WHERE o_w_id = d_w_id AND o_d_id = d_id) \
              OR d_next_o_id - 1 <> \
              (SELECT MAX(no_o_id) FROM tpcc_new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)",
    },
    Check {
        what: "districts: max(no_o_id) - min(no_o_id) + 1 = number of new orders",
        sql: "SELECT COUNT(*) FROM (SELECT no_w_id FROM tpcc_new_order GROUP BY no_w_id, no_d_id \
              HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)) AS gaps",
    },
    Check {
        what: "districts: sum(o_ol_cnt) = number of order lines",
        sql: "SELECT COUNT(*) FROM tpcc_district WHERE \
              COALESCE((SELECT SUM(o_ol_cnt) FROM tpcc_orders WHERE o_w_id = d_w_id AND o_d_id = d_id), 0) <> \
              (SELECT COUNT(*) FROM tpcc_order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)",
    },
    Check {
        what: "orders: o_carrier_id is null if and only if there is a new order",
        sql: "SELECT COUNT(*) FROM tpcc_orders WHERE (o_carrier_id IS NULL) <> \
              EXISTS (SELECT 1 FROM tpcc_new_order WHERE no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id)",
    },
    Check {
        what: "orders: o_ol_cnt = number of order lines",
        sql: "SELECT COUNT(*) FROM tpcc_orders WHERE o_ol_cnt <> (SELECT COUNT(*) FROM tpcc_order_line \
              WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id)",
    },
    Check {
        what: "order lines: ol_delivery_d is null if and only if the order's o_carrier_id is",
        sql: "SELECT COUNT(*) FROM tpcc_orders \
              STRAIGHT_JOIN tpcc_order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
              WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    },
    // The history has no useful index: only these checks read it.
    Check {
        what: "warehouses: w_ytd = sum(h_amount)",
        sql: "SELECT COUNT(*) FROM tpcc_warehouse \
              LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS paid FROM tpcc_history GROUP BY h_w_id) AS h \
              ON h_w_id = w_id WHERE NOT w_ytd <=> paid",
    },
    Check {
        what: "districts: d_ytd = sum(h_amount)",
        sql: "SELECT COUNT(*) FROM tpcc_district \
              LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid FROM tpcc_history GROUP BY h_w_id, h_d_id) AS h \
              ON h_w_id = d_w_id AND h_d_id = d_id WHERE NOT d_ytd <=> paid",
    },
    Check {
        what: "customers: c_balance = sum(ol_amount) of delivered lines - sum(h_amount)",
        sql: concat!(
            "SELECT COUNT(*) FROM tpcc_customer \
             LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM tpcc_history \
             GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h \
             ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
             WHERE c_balance <> ",
            delivered!(),
            " - COALESCE(paid, 0)"
        ),
    },
    // As the specification writes it, without the deliveries, it is true until the first delivery.
    Check {
        what: "districts: number of orders - number of new orders = 2100 + sum(c_delivery_cnt)",
        sql: "SELECT COUNT(*) FROM tpcc_district WHERE NOT \
              (SELECT COUNT(*) FROM tpcc_orders WHERE o_w_id = d_w_id AND o_d_id = d_id) - \
              (SELECT COUNT(*) FROM tpcc_new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) <=> \
              2100 + (SELECT SUM(c_delivery_cnt) FROM tpcc_customer WHERE c_w_id = d_w_id AND c_d_id = d_id)",
    },
    Check {
        what: "customers: c_balance + c_ytd_payment = sum(ol_amount) of delivered lines",
        sql: concat!("SELECT COUNT(*) FROM tpcc_customer WHERE c_balance + c_ytd_payment <> ", delivered!()),
    },
];

/// Checks all conditions, several concurrently; nothing may write to the tables meanwhile. In the order of their
/// numbers.
pub fn run(server: &mysql::Options, options: &Options) -> anyhow::Result<Vec<Condition>> {
    let found = count(&mut Connection::open(server)?, "SELECT COUNT(*) FROM tpcc_warehouse")?;
    // Empty tables violate nothing.
    if found != options.warehouses as u64 {
        let message = format!("the tables have {found} warehouses, the SPEC says {}", options.warehouses);
        return Err(AgentError::Input(message).into());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let conditions = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores.min(MOST_CONNECTIONS))
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<()> {
                    let mut connection = Connection::open(server)?;
                    while let Some((index, check)) = take(&next) {
                        let violations = count(&mut connection, check.sql)?;
                        let what = check.what;
                        let holds = violations == 0;
                        let condition = Condition { condition: index + 1, holds, violations, what };
                        conditions.lock().map_err(|_| anyhow!("another check panicked"))?.push(condition);
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a check panicked"))?)
    })?;
    let mut conditions = conditions.into_inner().map_err(|_| anyhow!("a check panicked"))?;
    conditions.sort_by_key(|condition| condition.condition);
    Ok(conditions)
}

/// The next unstarted check; the long ones, which are at the end, first.
fn take(next: &AtomicUsize) -> Option<(usize, &'static Check)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    let index = CHECKS.len().checked_sub(place + 1)?;
    Some((index, &CHECKS[index]))
}

fn count(connection: &mut Connection, sql: &str) -> anyhow::Result<u64> {
    let mut value = None;
    connection
        .query(sql, |_, row| value = row.get(0).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()))
        .with_context(|| sql.to_owned())?;
    value.with_context(|| format!("no number came of {sql}"))
}
