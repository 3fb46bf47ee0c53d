//! TPC-C after revision 5.11 of the public specification. `docs/reference/tpcc.md` says what differs.

pub mod consistency;
mod delivery;
pub mod load;
mod new_order;
mod order_status;
mod payment;
mod random;
pub mod schema;
#[cfg(test)]
mod scripted;
mod statements;
mod stock_level;
mod transaction;

use rand::RngExt;
use serde::Deserialize;

use self::delivery::Delivery;
use self::new_order::NewOrder;
use self::order_status::OrderStatus;
use self::payment::Payment;
use self::schema::{DISTRICTS, MOST_WAREHOUSES};
use self::stock_level::StockLevel;
use self::transaction::{Place, Transaction};
use crate::reply::Reply;
use crate::script::{Choice, Random, Script, Step, Workload};
use mysql::request::{Requests, Statement};

const SECOND_NS: f64 = 1e9;

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub warehouses: i64,
    pub times: Times,
    /// Declare the foreign keys, which the server then checks at every insert.
    pub foreign_keys: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { warehouses: 1, times: Times::None, foreign_keys: false }
    }
}

impl Options {
    /// Fails with what is wrong.
    fn check(&self) -> Result<(), String> {
        if (1..=MOST_WAREHOUSES).contains(&self.warehouses) {
            return Ok(());
        }
        Err(format!("warehouses = {}: must be from 1 to {MOST_WAREHOUSES}", self.warehouses))
    }
}

/// How long clients rest.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// According to the trial's pacing.
    #[default]
    None,
    /// Clause 5.2.5: keying times, and think times that are exponential and cut at ten times their mean.
    Specification,
}

/// A kind of transaction; its number is its index among the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// A kind's parameters from clause 5.2.
struct Rule {
    kind: Kind,
    name: &'static str,
    /// Its share of all transactions.
    percent: u32,
    /// Requests of one, on average.
    requests: f64,
    keying_s: f64,
    mean_think_s: f64,
}

#[rustfmt::skip]
const RULES: [Rule; 5] = [
    Rule { kind: Kind::NewOrder, name: "new_order", percent: 45, requests: 47.0, keying_s: 18.0, mean_think_s: 12.0 },
    Rule { kind: Kind::Payment, name: "payment", percent: 43, requests: 8.7, keying_s: 3.0, mean_think_s: 12.0 },
    Rule { kind: Kind::OrderStatus, name: "order_status", percent: 4, requests: 5.6, keying_s: 2.0, mean_think_s: 10.0 },
    Rule { kind: Kind::Delivery, name: "delivery", percent: 4, requests: 72.0, keying_s: 2.0, mean_think_s: 5.0 },
    Rule { kind: Kind::StockLevel, name: "stock_level", percent: 4, requests: 4.0, keying_s: 2.0, mean_think_s: 5.0 },
];

impl Kind {
    fn draw(random: &mut Random) -> Self {
        let mut point = random.random_range(0..100);
        for rule in &RULES {
            if point < rule.percent {
                return rule.kind;
            }
            point -= rule.percent;
        }
        unreachable!("the shares are 100 percent")
    }

    fn rule(self) -> &'static Rule {
        &RULES[self as usize]
    }

    /// Exponential, cut at ten times the mean (clause 5.2.5.4).
    fn think_s(self, random: &mut Random) -> f64 {
        // Above 0 and up to 1, so that the logarithm is finite.
        let share = 1.0 - random.random::<f64>();
        self.rule().mean_think_s * (-share.ln()).min(10.0)
    }
}

/// The workload; made by `workload`.
pub struct Tpcc {
    options: Options,
    operations: Vec<String>,
    statements: Vec<Statement>,
}

/// Fails with what is wrong with the options.
pub fn workload(options: &Options) -> Result<Tpcc, String> {
    options.check()?;
    Ok(Tpcc {
        options: options.clone(),
        operations: RULES.iter().map(|rule| rule.name.to_owned()).collect(),
        statements: statements::all()?,
    })
}

impl Workload for Tpcc {
    fn operations(&self) -> &[String] {
        &self.operations
    }

    fn statements(&self) -> &[Statement] {
        &self.statements
    }

    fn requests(&self) -> f64 {
        RULES.iter().map(|rule| rule.requests * f64::from(rule.percent) / 100.0).sum()
    }

    fn script(&self, client: usize, clients: usize) -> Box<dyn Script> {
        Box::new(Terminal {
            home: Home::of(client as i64, clients as i64, self.options.warehouses),
            times: self.options.times,
            kind: Kind::NewOrder,
            is_new: true,
            new_order: NewOrder::default(),
            payment: Payment::default(),
            order_status: OrderStatus::default(),
            delivery: Delivery::default(),
            stock_level: StockLevel::default(),
        })
    }
}

/// The warehouses of a client, and its district. Ten clients per warehouse are one for each district, as in the
/// specification; fewer clients than warehouses divide these among themselves, so that all data is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Home {
    first: i64,
    step: i64,
    count: i64,
    district: i64,
    warehouses: i64,
}

impl Home {
    fn of(client: i64, clients: i64, warehouses: i64) -> Self {
        let first = client % warehouses + 1;
        Self {
            first,
            step: clients,
            count: ((warehouses - first) / clients + 1).max(1),
            district: client / warehouses % DISTRICTS + 1,
            warehouses,
        }
    }

    fn draw(&self, random: &mut Random) -> Place {
        let warehouse = self.first + self.step * random.random_range(0..self.count);
        Place { warehouse, district: self.district, warehouses: self.warehouses }
    }
}

/// One client.
struct Terminal {
    home: Home,
    times: Times,
    /// The current transaction.
    kind: Kind,
    /// It has not chosen yet.
    is_new: bool,
    new_order: NewOrder,
    payment: Payment,
    order_status: OrderStatus,
    delivery: Delivery,
    stock_level: StockLevel,
}

impl Terminal {
    fn transaction(&mut self) -> &mut dyn Transaction {
        match self.kind {
            Kind::NewOrder => &mut self.new_order,
            Kind::Payment => &mut self.payment,
            Kind::OrderStatus => &mut self.order_status,
            Kind::Delivery => &mut self.delivery,
            Kind::StockLevel => &mut self.stock_level,
        }
    }
}

impl Script for Terminal {
    fn choose(&mut self, random: &mut Random) -> Choice {
        // A client starts as if it had worked before: otherwise all would send at the end of the same keying time.
        let last = if self.is_new { Kind::draw(random) } else { self.kind };
        self.is_new = false;
        self.kind = Kind::draw(random);
        let place = self.home.draw(random);
        self.transaction().draw(&place, random);
        let pause_ns = match self.times {
            Times::None => None,
            Times::Specification => {
                let pause_s = last.think_s(random) + self.kind.rule().keying_s;
                Some((pause_s * SECOND_NS) as u64)
            }
        };
        Choice { operation: self.kind as usize, pause_ns }
    }

    fn step(&mut self, reply: Option<&Reply<'_>>, requests: &mut Requests<'_>, _random: &mut Random) -> Step {
        let transaction = self.transaction();
        match reply {
            None => {
                transaction.begin(requests);
                Step::Wait
            }
            Some(reply) => transaction.advance(reply, requests).unwrap_or_else(Step::Failed),
        }
    }
}
