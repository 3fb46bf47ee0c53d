//! Payment (clause 2.5): a customer pays at a district; 60% are found by last name, 15% belong to another warehouse.

use std::io::Write;

use rand::RngExt;

use super::schema::DISTRICTS;
use super::statements::Sql;
use super::transaction::{Place, Transaction, Who, changed};
use crate::reply::Reply;
use crate::script::{Random, Step};
use mysql::request::Requests;

/// The length limit of C_DATA.
const LONGEST_DATA: usize = 500;

#[derive(Clone, Copy, Default)]
enum Turn {
    #[default]
    Begin,
    PayWarehouse,
    PayDistrict,
    CustomersByName,
    LockCustomer,
    DataOfCustomer,
    PayCustomer,
    NamesOfPlace,
    InsertHistory,
    End,
}

#[derive(Default)]
pub struct Payment {
    warehouse: i64,
    district: i64,
    customer_warehouse: i64,
    customer_district: i64,
    who: Who,
    amount_hundredths: i64,
    turn: Turn,
    /// Known once the customer is found.
    customer: i64,
}

impl Payment {
    fn lock_customer(&mut self, customer: i64, requests: &mut Requests<'_>) -> Turn {
        self.customer = customer;
        requests.keep_rows();
        self.execute_on_customer(Sql::LockCustomer, requests);
        Turn::LockCustomer
    }

    fn execute_on_customer(&self, sql: Sql, requests: &mut Requests<'_>) {
        let mut values = requests.execute(sql as usize);
        values.int(self.customer_warehouse).int(self.customer_district).int(self.customer);
    }

    fn pay_customer(&self, requests: &mut Requests<'_>) {
        requests
            .execute(Sql::PayCustomer as usize)
            .int(self.amount_hundredths)
            .int(self.amount_hundredths)
            .int(self.customer_warehouse)
            .int(self.customer_district)
            .int(self.customer);
    }

    /// Data about the payment is prepended to C_DATA of a customer with bad credit.
    fn pay_bad_customer(&self, data: &[u8], requests: &mut Requests<'_>) {
        let amount = self.amount_hundredths;
        let mut longer = Vec::with_capacity(data.len() + 64);
        write!(
            longer,
            "{} {} {} {} {} {}.{:02} ",
            self.customer,
            self.customer_district,
            self.customer_warehouse,
            self.district,
            self.warehouse,
            amount / 100,
            amount % 100
        )
        .expect("a Vec takes all");
        longer.extend_from_slice(data);
        longer.truncate(LONGEST_DATA);
        requests
            .execute(Sql::PayBadCustomer as usize)
            .int(amount)
            .int(amount)
            .text(&longer)
            .int(self.customer_warehouse)
            .int(self.customer_district)
            .int(self.customer);
    }

    fn insert_history(&self, reply: &Reply<'_>, requests: &mut Requests<'_>) -> Result<(), &'static str> {
        let missing = "no such warehouse or district";
        let warehouse_name = reply.bytes(0, 0).ok_or(missing)?;
        let district_name = reply.bytes(0, 1).ok_or(missing)?;
        requests
            .execute(Sql::InsertHistory as usize)
            .int(self.customer)
            .int(self.customer_district)
            .int(self.customer_warehouse)
            .int(self.district)
            .int(self.warehouse)
            .int(self.amount_hundredths)
            .text(&[warehouse_name, b"    ", district_name].concat());
        Ok(())
    }
}

impl Transaction for Payment {
    fn draw(&mut self, place: &Place, random: &mut Random) {
        self.warehouse = place.warehouse;
        self.district = random.random_range(1..=DISTRICTS);
        let is_remote = random.random_range(1..=100) > 85;
        (self.customer_warehouse, self.customer_district) = if is_remote {
            (place.other_warehouse(random), random.random_range(1..=DISTRICTS))
        } else {
            (self.warehouse, self.district)
        };
        self.who = Who::draw(random);
        self.amount_hundredths = random.random_range(100..=500_000);
    }

    fn begin(&mut self, requests: &mut Requests<'_>) {
        requests.query("BEGIN");
        self.turn = Turn::Begin;
    }

    fn advance(&mut self, reply: &Reply<'_>, requests: &mut Requests<'_>) -> Result<Step, &'static str> {
        self.turn = match self.turn {
            Turn::Begin => {
                let mut values = requests.execute(Sql::PayWarehouse as usize);
                values.int(self.amount_hundredths).int(self.warehouse);
                Turn::PayWarehouse
            }
            Turn::PayWarehouse => {
                changed(reply)?;
                let mut values = requests.execute(Sql::PayDistrict as usize);
                values.int(self.amount_hundredths).int(self.warehouse).int(self.district);
                Turn::PayDistrict
            }
            Turn::PayDistrict => {
                changed(reply)?;
                match self.who {
                    Who::Number(customer) => self.lock_customer(customer, requests),
                    Who::Name(name) => {
                        Who::ask(name, (self.customer_warehouse, self.customer_district), requests);
                        Turn::CustomersByName
                    }
                }
            }
            Turn::CustomersByName => self.lock_customer(Who::middle(reply)?, requests),
            Turn::LockCustomer => {
                if reply.bytes(0, 0).ok_or("no such customer")? == b"BC" {
                    requests.keep_rows();
                    self.execute_on_customer(Sql::DataOfCustomer, requests);
                    Turn::DataOfCustomer
                } else {
                    self.pay_customer(requests);
                    Turn::PayCustomer
                }
            }
            Turn::DataOfCustomer => {
                self.pay_bad_customer(reply.bytes(0, 0).ok_or("no data of the customer")?, requests);
                Turn::PayCustomer
            }
            Turn::PayCustomer => {
                changed(reply)?;
                requests.keep_rows();
                requests.execute(Sql::NamesOfPlace as usize).int(self.warehouse).int(self.district);
                Turn::NamesOfPlace
            }
            Turn::NamesOfPlace => {
                self.insert_history(reply, requests)?;
                Turn::InsertHistory
            }
            Turn::InsertHistory => {
                requests.query("COMMIT");
                Turn::End
            }
            Turn::End => return Ok(Step::Done),
        };
        Ok(Step::Wait)
    }
}
