//! Order-Status (clause 2.6): the last order of a customer, who is found as in Payment.

use rand::RngExt;

use super::schema::DISTRICTS;
use super::statements::Sql;
use super::transaction::{Place, Transaction, Who};
use crate::reply::Reply;
use crate::script::{Random, Step};
use mysql::request::Requests;

#[derive(Clone, Copy, Default)]
enum Turn {
    #[default]
    Begin,
    CustomersByName,
    StateOfCustomer,
    LastOrder,
    LinesOfOrder,
    End,
}

#[derive(Default)]
pub struct OrderStatus {
    warehouse: i64,
    district: i64,
    who: Who,
    turn: Turn,
    /// Known once the customer is found.
    customer: i64,
}

impl OrderStatus {
    fn execute(&self, sql: Sql, last: i64, requests: &mut Requests<'_>) {
        requests.execute(sql as usize).int(self.warehouse).int(self.district).int(last);
    }

    fn state_of_customer(&mut self, customer: i64, requests: &mut Requests<'_>) -> Turn {
        self.customer = customer;
        self.execute(Sql::StateOfCustomer, customer, requests);
        Turn::StateOfCustomer
    }
}

impl Transaction for OrderStatus {
    fn draw(&mut self, place: &Place, random: &mut Random) {
        self.warehouse = place.warehouse;
        self.district = random.random_range(1..=DISTRICTS);
        self.who = Who::draw(random);
    }

    fn begin(&mut self, requests: &mut Requests<'_>) {
        requests.query("BEGIN");
        self.turn = Turn::Begin;
    }

    fn advance(&mut self, reply: &Reply<'_>, requests: &mut Requests<'_>) -> Result<Step, &'static str> {
        self.turn = match self.turn {
            Turn::Begin => match self.who {
                Who::Number(customer) => self.state_of_customer(customer, requests),
                Who::Name(name) => {
                    Who::ask(name, (self.warehouse, self.district), requests);
                    Turn::CustomersByName
                }
            },
            Turn::CustomersByName => self.state_of_customer(Who::middle(reply)?, requests),
            Turn::StateOfCustomer if reply.rows != 1 => return Err("no such customer"),
            Turn::StateOfCustomer => {
                requests.keep_rows();
                self.execute(Sql::LastOrder, self.customer, requests);
                Turn::LastOrder
            }
            Turn::LastOrder => {
                let order = reply.int(0, 0).ok_or("a customer without an order")?;
                self.execute(Sql::LinesOfOrder, order, requests);
                Turn::LinesOfOrder
            }
            Turn::LinesOfOrder if reply.rows == 0 => return Err("an order without lines"),
            Turn::LinesOfOrder => {
                requests.query("COMMIT");
                Turn::End
            }
            Turn::End => return Ok(Step::Done),
        };
        Ok(Step::Wait)
    }
}
