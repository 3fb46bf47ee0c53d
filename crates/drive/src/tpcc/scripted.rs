//! Tests of the transactions, each run against a scripted server.

use std::sync::LazyLock;

use rand::SeedableRng;

use super::random::of_row;
use super::statements;
use super::transaction::{Place, Transaction};
use super::{Home, Kind, Options, Times, workload};
use crate::reply::Reply;
use crate::script::{Random, Script, Step, Workload};
use crate::tpcc::delivery::Delivery;
use crate::tpcc::new_order::NewOrder;
use crate::tpcc::order_status::OrderStatus;
use crate::tpcc::payment::Payment;
use crate::tpcc::stock_level::StockLevel;
use mysql::fields::Rows;
use mysql::request::{Requests, Statement};

const PLACE: Place = Place { warehouse: 2, district: 7, warehouses: 5 };
const MISSING: &[&[&str]] = &[];

/// A scripted server's answer: rows, or how many were changed.
enum Said {
    Rows(&'static [&'static [&'static str]]),
    Changed(u64),
}

/// A server on which everything succeeds. Every name belongs to four customers; all have `credit`.
fn well(sql: &str, credit: &'static str) -> Said {
    let good: &[&[&str]] = &[&["GC", "first"]];
    let bad: &[&[&str]] = &[&["BC", "first"]];
    match sql {
        "BEGIN" | "COMMIT" | "ROLLBACK" => Said::Changed(0),
        _ if sql.starts_with("SELECT d_next_o_id") => Said::Rows(&[&["3001", "0.1000"]]),
        _ if sql.starts_with("SELECT s_quantity") => {
            Said::Rows(&[&["15", "abcdefghijklmnopqrstuvwx", "data"]])
        }
        _ if sql.starts_with("SELECT i_price") && sql.ends_with("100001") => Said::Rows(MISSING),
        _ if sql.starts_with("SELECT i_price") => Said::Rows(&[&["12.34", "name", "data"]]),
        _ if sql.starts_with("SELECT c_discount") => Said::Rows(&[&["0.1", "BAR", "GC", "0.1"]]),
        _ if sql.starts_with("SELECT c_id") => Said::Rows(&[&["11"], &["22"], &["33"], &["44"]]),
        _ if sql.starts_with("SELECT c_credit") => Said::Rows(if credit == "BC" { bad } else { good }),
        _ if sql.starts_with("SELECT c_data") => Said::Rows(&[&["old data"]]),
        _ if sql.starts_with("SELECT c_balance") => Said::Rows(&[&["-10.00", "first", "OE", "last"]]),
        _ if sql.starts_with("SELECT w_name") => Said::Rows(&[&["house", "street"]]),
        _ if sql.starts_with("SELECT o_id") => Said::Rows(&[&["2999", "2026-01-01", "3"]]),
        _ if sql.starts_with("SELECT ol_i_id") => Said::Rows(&[&["1"], &["2"]]),
        _ if sql.starts_with("SELECT no_o_id") => Said::Rows(&[&["2101"]]),
        _ if sql.starts_with("SELECT o_c_id") => Said::Rows(&[&["77"]]),
        _ if sql.starts_with("SELECT SUM(ol_amount)") => Said::Rows(&[&["123.45"]]),
        _ if sql.starts_with("SELECT COUNT(DISTINCT") => Said::Rows(&[&["9"]]),
        _ if sql.starts_with("UPDATE tpcc_order_line") => Said::Changed(10),
        _ if !sql.starts_with("SELECT") => Said::Changed(1),
        _ => panic!("nobody knows what to say to {sql}"),
    }
}

/// Runs a transaction whose input is already drawn; the statements as text, and how it ended.
fn play(transaction: &mut dyn Transaction, mut server: impl FnMut(&str) -> Said) -> (Vec<String>, Step) {
    static STATEMENTS: LazyLock<Vec<Statement>> = LazyLock::new(|| statements::all().unwrap());
    let mut heard: Vec<String> = Vec::new();
    let (mut rows, mut changed, mut row_count) = (Rows::default(), 0, 0);
    loop {
        let (mut out, mut keeps_rows) = (Vec::new(), false);
        let mut requests = Requests::new(&mut out, &STATEMENTS, &[], &mut keeps_rows);
        let step = if heard.is_empty() {
            transaction.begin(&mut requests);
            Step::Wait
        } else {
            let reply = Reply::new(changed, row_count, &rows);
            transaction.advance(&reply, &mut requests).unwrap_or_else(Step::Failed)
        };
        if step != Step::Wait {
            assert!(out.is_empty(), "an end asks for nothing");
            return (heard, step);
        }
        let sql = String::from_utf8(out[5..].to_vec()).unwrap();
        (changed, row_count) = (0, 0);
        rows.clear();
        match server(&sql) {
            Said::Changed(count) => changed = count,
            Said::Rows(said) => {
                row_count = said.len() as u64;
                if keeps_rows {
                    keep(&mut rows, said);
                }
            }
        }
        heard.push(sql);
        assert!(heard.len() < 200, "no end in sight");
    }
}

fn keep(rows: &mut Rows, said: &[&[&str]]) {
    for _ in 0..said.first().map_or(0, |row| row.len()) {
        // A column of text; see fields.rs.
        rows.add_column(b"\x03def\0\0\0\x01a\0\x0c\x2d\0\0\x01\0\0\xfd\0\0\0\0\0").unwrap();
    }
    for row in said {
        let mut payload = Vec::new();
        for text in *row {
            // A length of two bytes, whatever it is.
            payload.push(0xFC);
            payload.extend_from_slice(&(text.len() as u16).to_le_bytes());
            payload.extend_from_slice(text.as_bytes());
        }
        rows.add_text_row(&payload).unwrap();
    }
}

/// Draws and runs transactions until one `is_wanted`.
fn play_until<T: Transaction + Default>(
    credit: &'static str,
    is_wanted: impl Fn(&[String]) -> bool,
) -> (Vec<String>, Step) {
    let mut random = of_row(3, 1, 4);
    let mut transaction = T::default();
    for _ in 0..5000 {
        transaction.draw(&PLACE, &mut random);
        let (heard, step) = play(&mut transaction, |sql| well(sql, credit));
        if is_wanted(&heard) {
            return (heard, step);
        }
    }
    panic!("none of 5,000 was the one");
}

fn count(heard: &[String], start: &str) -> usize {
    heard.iter().filter(|sql| sql.starts_with(start)).count()
}

fn ends_with(heard: &[String], last: &str) -> bool {
    heard.last().is_some_and(|sql| sql == last)
}

#[test]
fn a_new_order_is_whole() {
    let (heard, step) = play_until::<NewOrder>("GC", |heard| ends_with(heard, "COMMIT"));
    assert_eq!(step, Step::Done);
    let lines = count(&heard, "INSERT INTO tpcc_order_line");
    assert!((5..=15).contains(&lines));
    assert_eq!(heard.len(), 7 + 4 * lines, "{heard:#?}");
    for start in ["UPDATE tpcc_stock", "SELECT s_quantity", "SELECT i_price"] {
        assert_eq!(count(&heard, start), lines);
    }
    let order = heard.iter().find(|sql| sql.starts_with("INSERT INTO tpcc_orders")).unwrap();
    assert!(order.contains("VALUES (3001, ") && order.contains(&format!("NULL, {lines}, ")), "{order}");
}

#[test]
fn a_stock_below_ten_is_filled_up() {
    let mut transaction = NewOrder::default();
    transaction.draw(&PLACE, &mut of_row(3, 1, 4));
    let (heard, _) = play(&mut transaction, |sql| well(sql, "GC"));
    for sql in heard.iter().filter(|sql| sql.starts_with("UPDATE tpcc_stock")) {
        let number = |after: &str| -> i64 {
            let rest = &sql[sql.find(after).unwrap() + after.len()..];
            rest[..rest.find([',', ' ']).unwrap_or(rest.len())].parse().unwrap()
        };
        let taken = number("s_ytd = s_ytd + ");
        assert_eq!(number("s_quantity = "), if taken <= 5 { 15 - taken } else { 106 - taken }, "{sql}");
    }
}

#[test]
fn one_new_order_of_a_hundred_does_all_of_its_work_and_is_rolled_back() {
    let (heard, step) = play_until::<NewOrder>("GC", |heard| ends_with(heard, "ROLLBACK"));
    assert_eq!(step, Step::Done);
    let lines = count(&heard, "INSERT INTO tpcc_order_line");
    assert_eq!(count(&heard, "UPDATE tpcc_stock"), lines);
    assert_eq!(count(&heard, "SELECT i_price"), lines + 1);
    assert!(heard.iter().any(|sql| sql.starts_with("INSERT INTO tpcc_orders")));
    assert!(!heard.iter().any(|sql| sql.starts_with("SELECT s_quantity") && sql.contains("100001")));

    let mut random = of_row(5, 5, 5);
    let mut transaction = NewOrder::default();
    let rolled_back = (0..20_000).filter(|_| {
        transaction.draw(&PLACE, &mut random);
        ends_with(&play(&mut transaction, |sql| well(sql, "GC")).0, "ROLLBACK")
    });
    let rolled_back = rolled_back.count();
    // 200 expected, with a standard deviation of 14.
    assert!((140..=260).contains(&rolled_back), "{rolled_back}");
}

#[test]
fn stock_is_locked_in_one_order_and_one_line_of_a_hundred_is_remote() {
    let mut random = of_row(6, 6, 6);
    let mut transaction = NewOrder::default();
    let (mut lines, mut remote) = (0, 0);
    for _ in 0..3000 {
        transaction.draw(&PLACE, &mut random);
        let (heard, _) = play(&mut transaction, |sql| well(sql, "GC"));
        let locks: Vec<(i64, i64)> = heard
            .iter()
            .filter(|sql| sql.starts_with("SELECT s_quantity"))
            .map(|sql| {
                let numbers = sql.split("s_w_id = ").nth(1).unwrap();
                let (warehouse, item) = numbers.split_once(" AND s_i_id = ").unwrap();
                (warehouse.parse().unwrap(), item.strip_suffix(" FOR UPDATE").unwrap().parse().unwrap())
            })
            .collect();
        assert!(locks.is_sorted(), "{locks:?}");
        let here = locks.iter().filter(|(warehouse, _)| *warehouse != PLACE.warehouse).count();
        let is_local =
            heard.iter().any(|sql| sql.starts_with("INSERT INTO tpcc_orders") && sql.ends_with(", 1)"));
        assert_eq!(is_local, here == 0);
        lines += locks.len();
        remote += here;
    }
    let share = remote as f64 / lines as f64;
    assert!((0.008..0.012).contains(&share), "{share}");
}

#[test]
fn a_payment_finds_the_customer_in_the_middle() {
    let (heard, step) = play_until::<Payment>("GC", |heard| count(heard, "SELECT c_id") == 1);
    assert_eq!((step, heard.len()), (Step::Done, 9));
    // The second of four.
    assert!(heard[4].starts_with("SELECT c_credit") && heard[4].ends_with("c_id = 22 FOR UPDATE"));
    assert!(heard[7].starts_with("INSERT INTO tpcc_history"));
    assert!(heard[7].contains("VALUES (22, ") && heard[7].ends_with(", 'house    street')"), "{}", heard[7]);
    assert_eq!(heard[8], "COMMIT");
}

#[test]
fn bad_credit_is_remembered_in_front_and_never_longer_than_its_column() {
    let (heard, _) = play_until::<Payment>("BC", |heard| count(heard, "SELECT c_id") == 0);
    let update = heard.iter().find(|sql| sql.contains("c_data = ")).unwrap();
    assert!(update.contains(" old data' WHERE"), "{update}");

    let long: &'static str = "x".repeat(500).leak();
    let row: &'static [&'static str] = vec![long].leak();
    let rows: &'static [&'static [&'static str]] = vec![row].leak();
    let mut payment = Payment::default();
    payment.draw(&PLACE, &mut of_row(1, 1, 1));
    let (heard, step) = play(&mut payment, |sql| match sql {
        _ if sql.starts_with("SELECT c_data") => Said::Rows(rows),
        _ => well(sql, "BC"),
    });
    let update = heard.iter().find(|sql| sql.contains("c_data = ")).unwrap();
    let data = update.split('\'').nth(1).unwrap();
    assert_eq!((data.len(), step), (500, Step::Done));
    assert!(data.ends_with('x') && data.starts_with(|first: char| first.is_ascii_digit()), "{data}");
}

#[test]
fn payments_are_by_name_and_remote_as_often_as_they_should() {
    let mut random = of_row(8, 8, 8);
    let mut payment = Payment::default();
    let (mut by_name, mut remote) = (0, 0);
    for _ in 0..10_000 {
        payment.draw(&PLACE, &mut random);
        let (heard, _) = play(&mut payment, |sql| well(sql, "GC"));
        by_name += count(&heard, "SELECT c_id");
        let lock = heard.iter().find(|sql| sql.starts_with("SELECT c_credit")).unwrap();
        remote += usize::from(!lock.contains("c_w_id = 2 "));
    }
    assert!((5800..6200).contains(&by_name), "{by_name}");
    assert!((1380..1620).contains(&remote), "{remote}");
}

#[test]
fn an_order_status_reads_the_last_order() {
    let (heard, step) = play_until::<OrderStatus>("GC", |heard| count(heard, "SELECT c_id") == 1);
    assert_eq!((step, heard.len()), (Step::Done, 6));
    assert!(heard[2].ends_with("c_id = 22"));
    assert!(heard[4].ends_with("ol_o_id = 2999"));
}

#[test]
fn a_delivery_serves_ten_districts_and_skips_empty_ones() {
    let mut delivery = Delivery::default();
    delivery.draw(&PLACE, &mut of_row(1, 1, 1));
    let (heard, step) = play(&mut delivery, |sql| well(sql, "GC"));
    assert_eq!((step, heard.len()), (Step::Done, 2 + 7 * 10));
    assert!(heard[7].contains("c_balance = c_balance + 12345 * 0.01"), "{}", heard[7]);
    assert!(heard[7].ends_with("c_d_id = 1 AND c_id = 77"), "{}", heard[7]);

    let (heard, step) = play(&mut delivery, |sql| match sql {
        _ if sql.starts_with("SELECT no_o_id") && sql.contains("no_d_id = 4 ") => Said::Rows(MISSING),
        _ => well(sql, "GC"),
    });
    assert_eq!((step, heard.len()), (Step::Done, 2 + 7 * 9 + 1));
}

#[test]
fn a_stock_level_looks_at_twenty_orders_of_the_own_district() {
    let (heard, step) = play_until::<StockLevel>("GC", |_| true);
    assert_eq!((step, heard.len()), (Step::Done, 4));
    assert!(heard[1].ends_with("d_w_id = 2 AND d_id = 7"));
    assert!(heard[2].contains("ol_o_id >= 2981 AND ol_o_id < 3001"), "{}", heard[2]);
}

#[test]
fn transactions_have_as_many_requests_as_their_rules_say() {
    fn check<T: Transaction + Default>(kind: Kind) {
        let mut random = of_row(4, 4, 4);
        let mut transaction = T::default();
        let mut requests = 0;
        for number in 0..5_000 {
            transaction.draw(&PLACE, &mut random);
            // Every tenth customer has bad credit (clause 4.3.3.1).
            let credit = if number % 10 == 0 { "BC" } else { "GC" };
            requests += play(&mut transaction, |sql| well(sql, credit)).0.len();
        }
        let (mean, rule) = (requests as f64 / 5_000.0, kind.rule());
        assert!((mean / rule.requests - 1.0).abs() < 0.02, "{}: {mean}", rule.name);
    }
    check::<NewOrder>(Kind::NewOrder);
    check::<Payment>(Kind::Payment);
    check::<OrderStatus>(Kind::OrderStatus);
    check::<Delivery>(Kind::Delivery);
    check::<StockLevel>(Kind::StockLevel);
}

/// Every statement that must find a row gets none: every transaction fails.
#[test]
fn a_missing_row_is_a_failure() {
    fn check<T: Transaction + Default>(credit: &'static str) {
        let mut random = of_row(9, 9, 9);
        let mut transaction = T::default();
        for _ in 0..20 {
            transaction.draw(&PLACE, &mut random);
            let (whole, _) = play(&mut transaction, |sql| well(sql, credit));
            for (place, sql) in whole.iter().enumerate() {
                let mut at = 0;
                let (heard, step) = play(&mut transaction, |sql| {
                    at += 1;
                    match well(sql, credit) {
                        Said::Rows(_) if at == place + 1 => Said::Rows(MISSING),
                        Said::Changed(1) if at == place + 1 => Said::Changed(0),
                        said => said,
                    }
                });
                let may_be_missing =
                    ["BEGIN", "COMMIT", "ROLLBACK", "INSERT", "SELECT no_o_id", "SELECT COUNT(D"];
                if may_be_missing.iter().any(|start| sql.starts_with(start))
                    || sql.ends_with("i_id = 100001")
                    || sql.starts_with("UPDATE tpcc_order_line")
                {
                    assert_eq!(step, Step::Done, "{sql}");
                } else {
                    assert!(matches!(step, Step::Failed(_)), "{sql}");
                    assert_eq!(heard.len(), place + 1);
                }
            }
        }
    }
    check::<NewOrder>("GC");
    check::<Payment>("GC");
    check::<Payment>("BC");
    check::<OrderStatus>("GC");
    check::<Delivery>("GC");
    check::<StockLevel>("GC");
}

#[test]
fn begun_anew_a_transaction_is_the_same() {
    fn check<T: Transaction + Default>() {
        let mut random = of_row(2, 2, 2);
        let mut transaction = T::default();
        for _ in 0..50 {
            transaction.draw(&PLACE, &mut random);
            let whole = play(&mut transaction, |sql| well(sql, "GC"));
            // The missing row represents any failure half-way.
            let mut left = whole.0.len() / 2;
            play(&mut transaction, |sql| match left.checked_sub(1) {
                Some(rest) => {
                    left = rest;
                    well(sql, "GC")
                }
                None => Said::Changed(0),
            });
            assert_eq!(play(&mut transaction, |sql| well(sql, "GC")), whole);
        }
    }
    check::<NewOrder>();
    check::<Payment>();
    check::<OrderStatus>();
    check::<Delivery>();
    check::<StockLevel>();
}

fn script(times: Times) -> Box<dyn Script> {
    workload(&Options { warehouses: 2, times, ..Options::default() }).unwrap().script(0, 4)
}

#[test]
fn the_mix_has_the_shares_of_clause_5_2_3() {
    let (mut random, mut script) = (Random::seed_from_u64(1), script(Times::None));
    let mut counts = [0_i32; 5];
    for _ in 0..100_000 {
        let choice = script.choose(&mut random);
        assert_eq!(choice.pause_ns, None);
        counts[choice.operation] += 1;
    }
    for (count, expected) in counts.iter().zip([45_000, 43_000, 4000, 4000, 4000]) {
        // The largest standard deviation is 157.
        assert!((count - expected).abs() < 700, "{counts:?}");
    }
}

#[test]
fn times_are_keying_and_a_cut_exponential() {
    let (mut random, mut script) = (Random::seed_from_u64(1), script(Times::Specification));
    let mut last = None;
    let mut think_s = [(0.0, 0_u32, 0.0_f64); 5];
    for _ in 0..200_000 {
        let choice = script.choose(&mut random);
        let pause_s = choice.pause_ns.unwrap() as f64 / 1e9;
        let thought_s = pause_s - [18.0, 3.0, 2.0, 2.0, 2.0][choice.operation];
        assert!(thought_s > -1e-6);
        if let Some(last) = last.replace(choice.operation) {
            let (sum, count, longest) = &mut think_s[last];
            *sum += thought_s;
            *count += 1;
            *longest = longest.max(thought_s);
        }
    }
    for ((sum, count, longest), mean) in think_s.into_iter().zip([12.0, 12.0, 10.0, 5.0, 5.0]) {
        let found = sum / f64::from(count);
        assert!((found / mean - 1.0).abs() < 0.06, "{found} {mean}");
        assert!(longest > 5.0 * mean && longest <= 10.0 * mean + 1e-6, "{longest} {mean}");
    }
}

#[test]
fn clients_share_out_warehouses_and_districts() {
    // Ten clients per warehouse: each district once.
    let mut all: Vec<_> = (0..30).map(|client| Home::of(client, 30, 3)).collect();
    assert!(all.iter().all(|home| home.count == 1));
    all.sort_by_key(|home| (home.first, home.district));
    let places: Vec<_> = all.iter().map(|home| (home.first, home.district)).collect();
    assert_eq!(places, (0..30).map(|n| (n / 10 + 1, n % 10 + 1)).collect::<Vec<_>>());
    // Fewer clients than warehouses: each warehouse has exactly one client.
    for (clients, warehouses) in [(4, 10), (1, 7), (3, 3), (8, 100)] {
        let mut owned: Vec<_> = (0..clients)
            .flat_map(|client| {
                let home = Home::of(client, clients, warehouses);
                (0..home.count).map(move |number| home.first + home.step * number)
            })
            .collect();
        owned.sort_unstable();
        assert_eq!(owned, (1..=warehouses).collect::<Vec<_>>());
    }
}

#[test]
fn options_are_checked_and_operations_have_their_names() {
    for warehouses in [0, -1, i64::MAX] {
        assert!(workload(&Options { warehouses, ..Options::default() }).is_err());
    }
    let options: Options = serde_json::from_str(r#"{"warehouses":3,"times":"specification"}"#).unwrap();
    assert_eq!(options, Options { warehouses: 3, times: Times::Specification, foreign_keys: false });
    assert!(serde_json::from_str::<Options>(r#"{"warehouse":3}"#).is_err());
    let workload = workload(&options).unwrap();
    assert_eq!(workload.operations(), ["new_order", "payment", "order_status", "delivery", "stock_level"]);
    for kind in [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel] {
        assert_eq!(kind.rule().kind, kind);
    }
}
