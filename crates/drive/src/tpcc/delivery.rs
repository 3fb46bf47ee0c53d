//! Delivery (clause 2.7): the oldest undelivered order of each of the ten districts, all in one transaction, while the
//! client waits. In the specification it is queued.

use rand::RngExt;

use super::schema::DISTRICTS;
use super::statements::Sql;
use super::transaction::{Place, Transaction, changed, hundredths};
use crate::reply::Reply;
use crate::script::{Random, Step};
use mysql::request::Requests;

#[derive(Clone, Copy, Default)]
enum Turn {
    #[default]
    Begin,
    OldestNewOrder,
    DeleteNewOrder,
    LockOrder,
    DeliverOrder,
    DeliverLines,
    AmountOfOrder,
    DeliverToCustomer,
    End,
}

#[derive(Default)]
pub struct Delivery {
    warehouse: i64,
    carrier: i64,
    turn: Turn,
    /// All clients serve the districts in this order, so that they cannot deadlock.
    district: i64,
    order: i64,
    customer: i64,
}

impl Delivery {
    fn next_district(&mut self, requests: &mut Requests<'_>) -> Turn {
        self.district += 1;
        if self.district > DISTRICTS {
            requests.query("COMMIT");
            return Turn::End;
        }
        requests.keep_rows();
        requests.execute(Sql::OldestNewOrder as usize).int(self.warehouse).int(self.district);
        Turn::OldestNewOrder
    }

    fn execute_on_order(&self, sql: Sql, requests: &mut Requests<'_>) {
        requests.execute(sql as usize).int(self.warehouse).int(self.district).int(self.order);
    }
}

impl Transaction for Delivery {
    fn draw(&mut self, place: &Place, random: &mut Random) {
        self.warehouse = place.warehouse;
        self.carrier = random.random_range(1..=10);
    }

    fn begin(&mut self, requests: &mut Requests<'_>) {
        requests.query("BEGIN");
        self.turn = Turn::Begin;
        self.district = 0;
    }

    fn advance(&mut self, reply: &Reply<'_>, requests: &mut Requests<'_>) -> Result<Step, &'static str> {
        self.turn = match self.turn {
            Turn::Begin => self.next_district(requests),
            // All orders of this district are delivered.
            Turn::OldestNewOrder if reply.kept_rows() == 0 => self.next_district(requests),
            Turn::OldestNewOrder => {
                self.order = reply.int(0, 0).ok_or("no_o_id is no number")?;
                self.execute_on_order(Sql::DeleteNewOrder, requests);
                Turn::DeleteNewOrder
            }
            Turn::DeleteNewOrder => {
                changed(reply)?;
                requests.keep_rows();
                self.execute_on_order(Sql::LockOrder, requests);
                Turn::LockOrder
            }
            Turn::LockOrder => {
                self.customer = reply.int(0, 0).ok_or("a new order without an order")?;
                let mut values = requests.execute(Sql::DeliverOrder as usize);
                values.int(self.carrier).int(self.warehouse).int(self.district).int(self.order);
                Turn::DeliverOrder
            }
            Turn::DeliverOrder => {
                changed(reply)?;
                self.execute_on_order(Sql::DeliverLines, requests);
                Turn::DeliverLines
            }
            Turn::DeliverLines => {
                requests.keep_rows();
                self.execute_on_order(Sql::AmountOfOrder, requests);
                Turn::AmountOfOrder
            }
            Turn::AmountOfOrder => {
                let amount = reply.bytes(0, 0).and_then(hundredths).ok_or("an order without lines")?;
                let mut values = requests.execute(Sql::DeliverToCustomer as usize);
                values.int(amount).int(self.warehouse).int(self.district).int(self.customer);
                Turn::DeliverToCustomer
            }
            Turn::DeliverToCustomer => {
                changed(reply)?;
                self.next_district(requests)
            }
            Turn::End => return Ok(Step::Done),
        };
        Ok(Step::Wait)
    }
}
