//! Creates the tables and fills them as clause 4.3.3 says.

use std::time::Instant;

use anyhow::Context;
use rand::RngExt;

use super::Options;
use super::random::{alphanumeric, data, digits, last_name_to_load, of_row, permuted_customer, zip};
use super::schema::{CUSTOMERS, DELIVERED, DISTRICTS, INDEXES, ITEMS, TABLES, create_statements};
use crate::load::bulk::{self, Effort, Filled, Part, Rows};
use crate::mix::mix;
use crate::script::Random;
use base::error::AgentError;
use base::stop::StopSignal;
use mysql::{self, Connection};

/// A tenth of a warehouse's rows in a large table is a few megabytes.
const PARTS_A_WAREHOUSE: u64 = DISTRICTS as u64;
const NEW_ORDERS: i64 = CUSTOMERS - DELIVERED;

/// Writes the rows of an item.
type Writer<'a> = Box<dyn Fn(u64, &mut Rows) + Sync + 'a>;

/// A table, how many items (see `Part`) it has, and how one is written.
struct Content<'a> {
    table: &'static str,
    columns: &'static str,
    items: u64,
    parts: u64,
    write: Writer<'a>,
}

/// Creates the tables, fills them, and indexes them; how many seconds the indexes and statistics took. The same seed
/// gives the same rows except for the times in them.
///
/// Refuses if one of the tables exists.
pub fn run(
    server: &mysql::Options,
    options: &Options,
    seed: u64,
    effort: &Effort,
    stop: &StopSignal,
) -> anyhow::Result<(Filled, f64)> {
    options.check().map_err(AgentError::Named)?;
    let mut connection = Connection::open(server)?;
    create_tables(&mut connection, options.foreign_keys)?;
    // The server's time, to match what the trials write later.
    let now = ask(&mut connection, "SELECT DATE_FORMAT(NOW(), '%Y-%m-%d %H:%i:%s')")?;
    let filled = fill(server, &Population { seed, now }, options.warehouses as u64, effort, stop)?;
    let filled_at = Instant::now();
    bulk::execute_all(server, &INDEXES.map(str::to_owned), effort, stop)?;
    // So statistics cover the full tables, and are not collected during a trial.
    Connection::open(server)?
        .query(&format!("ANALYZE TABLE {}", TABLES.join(", ")), |_, _| {})
        .context("cannot analyze the tables")?;
    Ok((filled, filled_at.elapsed().as_secs_f64()))
}

fn create_tables(connection: &mut Connection, foreign_keys: bool) -> anyhow::Result<()> {
    let mut existing = None;
    connection.query("SHOW TABLES LIKE 'tpcc\\_%'", |_, row| {
        let name = row.get(0).map(|name| String::from_utf8_lossy(name).into_owned());
        existing = name.filter(|name| TABLES.contains(&name.as_str())).or(existing.take());
    })?;
    if let Some(name) = existing {
        let message = format!("the table {name} exists; `drive clean` with this SPEC drops it");
        return Err(AgentError::Refused(message).into());
    }
    for sql in create_statements(foreign_keys) {
        connection.execute(&sql).with_context(|| format!("cannot {sql}"))?;
    }
    Ok(())
}

fn ask(connection: &mut Connection, sql: &str) -> anyhow::Result<String> {
    let mut answer = None;
    connection.query(sql, |_, row| {
        answer = row.get(0).map(|text| String::from_utf8_lossy(text).into_owned());
    })?;
    answer.with_context(|| format!("no answer to {sql}"))
}

fn fill(
    server: &mysql::Options,
    population: &Population,
    warehouses: u64,
    effort: &Effort,
    stop: &StopSignal,
) -> anyhow::Result<Filled> {
    let contents = contents(population, warehouses);
    // A part of every table in turn, so that connections rarely work on the same table.
    let turns = contents.iter().map(|content| content.parts).max().unwrap_or(0);
    let parts: Vec<Part<'_>> =
        (0..turns).flat_map(|turn| contents.iter().filter_map(move |content| content.part(turn))).collect();
    bulk::fill(server, &parts, effort, stop)
}

/// Every table, the small ones first.
fn contents(population: &Population, warehouses: u64) -> [Content<'_>; 9] {
    let districts = warehouses * DISTRICTS as u64;
    let customers = districts * CUSTOMERS as u64;
    [
        Content {
            table: "tpcc_item",
            columns: "i_id, i_im_id, i_name, i_price, i_data",
            items: ITEMS as u64,
            parts: PARTS_A_WAREHOUSE,
            write: Box::new(|item, rows| population.item(item, rows)),
        },
        Content {
            table: "tpcc_warehouse",
            columns: "w_id, w_name, w_street_1, w_street_2, w_city, w_state, w_zip, w_tax, w_ytd",
            items: warehouses,
            parts: 1,
            write: Box::new(|item, rows| population.warehouse(item, rows)),
        },
        Content {
            table: "tpcc_district",
            columns: "d_w_id, d_id, d_name, d_street_1, d_street_2, d_city, d_state, d_zip, d_tax, d_ytd, d_next_o_id",
            items: districts,
            parts: 1,
            write: Box::new(|item, rows| population.district(item, rows)),
        },
        Content {
            table: "tpcc_stock",
            columns: "s_w_id, s_i_id, s_quantity, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, \
                      s_dist_07, s_dist_08, s_dist_09, s_dist_10, s_ytd, s_order_cnt, s_remote_cnt, s_data",
            items: warehouses * ITEMS as u64,
            parts: warehouses * PARTS_A_WAREHOUSE,
            write: Box::new(|item, rows| population.stock(item, rows)),
        },
        Content {
            table: "tpcc_order_line",
            columns: "ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d, ol_quantity, \
                      ol_amount, ol_dist_info",
            items: customers,
            parts: warehouses * PARTS_A_WAREHOUSE,
            write: Box::new(|item, rows| population.order_lines(item, rows)),
        },
        Content {
            table: "tpcc_customer",
            columns: "c_w_id, c_d_id, c_id, c_last, c_middle, c_first, c_street_1, c_street_2, c_city, c_state, c_zip, \
                      c_phone, c_since, c_credit, c_credit_lim, c_discount, c_balance, c_ytd_payment, \
                      c_payment_cnt, c_delivery_cnt, c_data",
            items: customers,
            parts: warehouses * PARTS_A_WAREHOUSE,
            write: Box::new(|item, rows| population.customer(item, rows)),
        },
        Content {
            table: "tpcc_history",
            columns: "h_id, h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_date, h_amount, h_data",
            items: customers,
            parts: warehouses,
            write: Box::new(|item, rows| population.history(item, rows)),
        },
        Content {
            table: "tpcc_orders",
            columns: "o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local",
            items: customers,
            parts: warehouses,
            write: Box::new(|item, rows| population.order(item, rows)),
        },
        Content {
            table: "tpcc_new_order",
            columns: "no_w_id, no_d_id, no_o_id",
            items: districts * NEW_ORDERS as u64,
            parts: warehouses,
            write: Box::new(|item, rows| population.new_order(item, rows)),
        },
    ]
}

impl Content<'_> {
    fn part(&self, number: u64) -> Option<Part<'_>> {
        let size = self.items / self.parts;
        (number < self.parts).then(|| Part {
            table: self.table.to_owned(),
            columns: self.columns,
            items: number * size..(number + 1) * size,
            write: &*self.write,
        })
    }
}

/// The content of the rows. Items are counted from 0 over all warehouses.
struct Population {
    seed: u64,
    now: String,
}

/// An initial order. Two tables must agree on it.
struct Order {
    warehouse: i64,
    district: i64,
    number: i64,
    lines: i64,
    /// For its other random values.
    random: Random,
}

impl Order {
    fn is_delivered(&self) -> bool {
        self.number <= DELIVERED
    }
}

impl Population {
    /// The generator of an item's row. A table's number is its index in TABLES.
    fn random(&self, table: &str, item: u64) -> Random {
        let number = TABLES.iter().position(|name| *name == table).unwrap_or(TABLES.len());
        of_row(self.seed, number as u64, item)
    }

    fn item(&self, item: u64, rows: &mut Rows) {
        let mut random = self.random("tpcc_item", item);
        rows.int(item as i64 + 1);
        rows.int(random.random_range(1..=10_000));
        rows.text(alphanumeric::<24>(&mut random, 14).bytes());
        rows.decimal(random.random_range(100..=10_000), 2);
        rows.text(data(&mut random).bytes());
        rows.end();
    }

    fn warehouse(&self, item: u64, rows: &mut Rows) {
        let mut random = self.random("tpcc_warehouse", item);
        rows.int(item as i64 + 1);
        rows.text(alphanumeric::<10>(&mut random, 6).bytes());
        address(&mut random, rows);
        rows.decimal(random.random_range(0..=2000), 4);
        rows.decimal(300_000 * 100, 2);
        rows.end();
    }

    fn district(&self, item: u64, rows: &mut Rows) {
        let mut random = self.random("tpcc_district", item);
        let (warehouse, district) = split(item, DISTRICTS);
        rows.int(warehouse + 1);
        rows.int(district + 1);
        rows.text(alphanumeric::<10>(&mut random, 6).bytes());
        address(&mut random, rows);
        rows.decimal(random.random_range(0..=2000), 4);
        rows.decimal(30_000 * 100, 2);
        rows.int(CUSTOMERS + 1);
        rows.end();
    }

    fn stock(&self, item: u64, rows: &mut Rows) {
        let mut random = self.random("tpcc_stock", item);
        let (warehouse, number) = split(item, ITEMS);
        rows.int(warehouse + 1);
        rows.int(number + 1);
        rows.int(random.random_range(10..=100));
        for _ in 0..DISTRICTS {
            rows.text(alphanumeric::<24>(&mut random, 24).bytes());
        }
        for _ in 0..3 {
            rows.int(0);
        }
        rows.text(data(&mut random).bytes());
        rows.end();
    }

    fn customer(&self, item: u64, rows: &mut Rows) {
        let mut random = self.random("tpcc_customer", item);
        let (warehouse, district, customer) = split_by_district(item, CUSTOMERS);
        rows.int(warehouse);
        rows.int(district);
        rows.int(customer);
        rows.text(last_name_to_load(customer, &mut random).bytes());
        rows.text(b"OE");
        rows.text(alphanumeric::<16>(&mut random, 8).bytes());
        address(&mut random, rows);
        rows.text(digits::<16>(&mut random).bytes());
        rows.text(self.now.as_bytes());
        rows.text(if random.random_range(0..10) == 0 { b"BC" } else { b"GC" });
        rows.decimal(50_000 * 100, 2);
        rows.decimal(random.random_range(0..=5000), 4);
        rows.decimal(-1000, 2);
        rows.decimal(1000, 2);
        rows.int(1);
        rows.int(0);
        rows.text(alphanumeric::<500>(&mut random, 300).bytes());
        rows.end();
    }

    fn history(&self, item: u64, rows: &mut Rows) {
        let mut random = self.random("tpcc_history", item);
        let (warehouse, district, customer) = split_by_district(item, CUSTOMERS);
        rows.int(item as i64 + 1);
        for _ in 0..2 {
            rows.int(warehouse);
            rows.int(district);
        }
        rows.int(customer);
        rows.text(self.now.as_bytes());
        rows.decimal(1000, 2);
        rows.text(alphanumeric::<24>(&mut random, 12).bytes());
        rows.end();
    }

    fn order_of(&self, item: u64) -> Order {
        let mut random = self.random("tpcc_orders", item);
        let (warehouse, district, number) = split_by_district(item, CUSTOMERS);
        Order { warehouse, district, number, lines: random.random_range(5..=15), random }
    }

    fn order(&self, item: u64, rows: &mut Rows) {
        let mut order = self.order_of(item);
        let district_key = mix(self.seed ^ mix((order.warehouse * DISTRICTS + order.district) as u64));
        rows.int(order.warehouse);
        rows.int(order.district);
        rows.int(order.number);
        rows.int(permuted_customer(district_key, order.number));
        rows.text(self.now.as_bytes());
        if order.is_delivered() {
            rows.int(order.random.random_range(1..=10));
        } else {
            rows.null();
        }
        rows.int(order.lines);
        rows.int(1);
        rows.end();
    }

    fn order_lines(&self, item: u64, rows: &mut Rows) {
        let order = self.order_of(item);
        let mut random = self.random("tpcc_order_line", item);
        for number in 1..=order.lines {
            rows.int(order.warehouse);
            rows.int(order.district);
            rows.int(order.number);
            rows.int(number);
            rows.int(random.random_range(1..=ITEMS));
            rows.int(order.warehouse);
            if order.is_delivered() {
                rows.text(self.now.as_bytes());
            } else {
                rows.null();
            }
            rows.int(5);
            rows.decimal(if order.is_delivered() { 0 } else { random.random_range(1..=999_999) }, 2);
            rows.text(alphanumeric::<24>(&mut random, 24).bytes());
            rows.end();
        }
    }

    fn new_order(&self, item: u64, rows: &mut Rows) {
        let (warehouse, district, number) = split_by_district(item, NEW_ORDERS);
        rows.int(warehouse);
        rows.int(district);
        rows.int(DELIVERED + number);
        rows.end();
    }
}

/// Two streets, city, state and ZIP code.
fn address(random: &mut Random, rows: &mut Rows) {
    for _ in 0..3 {
        rows.text(alphanumeric::<20>(random, 10).bytes());
    }
    rows.text(alphanumeric::<2>(random, 2).bytes());
    rows.text(zip(random).bytes());
}

/// The group of an item in groups of `size`, and its place in the group, both from 0.
fn split(item: u64, size: i64) -> (i64, i64) {
    (item as i64 / size, item as i64 % size)
}

/// Warehouse, district and place in the district, from 1, of an item of which each district has `size`.
fn split_by_district(item: u64, size: i64) -> (i64, i64, i64) {
    let (district, place) = split(item, size);
    let (warehouse, district) = split(district as u64, DISTRICTS);
    (warehouse + 1, district + 1, place + 1)
}

#[cfg(test)]
mod tests {
    use super::{CUSTOMERS, DISTRICTS, NEW_ORDERS, split_by_district};

    #[test]
    fn items_are_counted_through_districts_and_warehouses() {
        assert_eq!(split_by_district(0, CUSTOMERS), (1, 1, 1));
        assert_eq!(split_by_district(2999, CUSTOMERS), (1, 1, 3000));
        assert_eq!(split_by_district(3000, CUSTOMERS), (1, 2, 1));
        let a_warehouse = (DISTRICTS * CUSTOMERS) as u64;
        assert_eq!(split_by_district(a_warehouse - 1, CUSTOMERS), (1, 10, 3000));
        assert_eq!(split_by_district(a_warehouse, CUSTOMERS), (2, 1, 1));
        assert_eq!(split_by_district(9000 + 900 + 1, NEW_ORDERS), (2, 2, 2));
    }
}
