//! Stock-Level (clause 2.8): how many items of a district's last 20 orders are short in its warehouse.

use rand::RngExt;

use super::statements::Sql;
use super::transaction::{Place, Transaction};
use crate::reply::Reply;
use crate::script::{Random, Step};
use mysql::request::Requests;

/// How many orders are checked.
const LAST_ORDERS: i64 = 20;

#[derive(Clone, Copy, Default)]
enum Turn {
    #[default]
    Begin,
    NextOrderNumber,
    LowStock,
    End,
}

#[derive(Default)]
pub struct StockLevel {
    warehouse: i64,
    /// The client's own, always the same.
    district: i64,
    threshold: i64,
    turn: Turn,
}

impl Transaction for StockLevel {
    fn draw(&mut self, place: &Place, random: &mut Random) {
        self.warehouse = place.warehouse;
        self.district = place.district;
        self.threshold = random.random_range(10..=20);
    }

    fn begin(&mut self, requests: &mut Requests<'_>) {
        requests.query("BEGIN");
        self.turn = Turn::Begin;
    }

    fn advance(&mut self, reply: &Reply<'_>, requests: &mut Requests<'_>) -> Result<Step, &'static str> {
        self.turn = match self.turn {
            Turn::Begin => {
                requests.keep_rows();
                requests.execute(Sql::NextOrderNumber as usize).int(self.warehouse).int(self.district);
                Turn::NextOrderNumber
            }
            Turn::NextOrderNumber => {
                let next = reply.int(0, 0).ok_or("no such district")?;
                requests
                    .execute(Sql::LowStock as usize)
                    .int(self.warehouse)
                    .int(self.district)
                    .int(next - LAST_ORDERS)
                    .int(next)
                    .int(self.threshold);
                Turn::LowStock
            }
            Turn::LowStock => {
                requests.query("COMMIT");
                Turn::End
            }
            Turn::End => return Ok(Step::Done),
        };
        Ok(Step::Wait)
    }
}
