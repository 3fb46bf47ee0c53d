//! New-Order (clause 2.4): an order of 5 to 15 items; 1% name an item that does not exist, and are rolled back
//! after the rest of their work.

use rand::RngExt;

use super::random::{CUSTOMER_ID, ITEM_ID};
use super::schema::{DISTRICTS, ITEMS};
use super::statements::Sql;
use super::transaction::{Place, Transaction, changed, hundredths};
use crate::reply::Reply;
use crate::script::{Random, Step};
use mysql::request::Requests;

/// All locking reads come before the first plain one: its snapshot is then never older than a row that is locked
/// later, which a server with `innodb_snapshot_isolation` would refuse.
#[derive(Clone, Copy)]
enum Turn {
    Begin,
    LockDistrict,
    TakeOrderNumber,
    LockStock(usize),
    TakeStock(usize),
    CustomerOfOrder,
    InsertOrder,
    InsertNewOrder,
    Item(usize),
    InsertOrderLine(usize),
    End,
}

#[derive(Clone, Copy)]
struct Line {
    supply_warehouse: i64,
    item: i64,
    quantity: i64,
    dist_info: [u8; 24],
}

pub struct NewOrder {
    warehouse: i64,
    district: i64,
    customer: i64,
    lines: Vec<Line>,
    /// The last line's item does not exist.
    is_rolled_back: bool,
    turn: Turn,
    order: i64,
}

impl Default for NewOrder {
    fn default() -> Self {
        Self {
            warehouse: 0,
            district: 0,
            customer: 0,
            lines: Vec::with_capacity(15),
            is_rolled_back: false,
            turn: Turn::Begin,
            order: 0,
        }
    }
}

impl NewOrder {
    /// The lines that can be served.
    fn valid_lines(&self) -> usize {
        self.lines.len() - usize::from(self.is_rolled_back)
    }

    fn is_remote(&self, line: &Line) -> i64 {
        i64::from(line.supply_warehouse != self.warehouse)
    }

    /// Continues with the stock of this line, or after the last line with the next step.
    fn stock_from(&mut self, line: usize, requests: &mut Requests<'_>) -> Turn {
        if line == self.valid_lines() {
            let mut values = requests.execute(Sql::CustomerOfOrder as usize);
            values.int(self.warehouse).int(self.district).int(self.customer);
            return Turn::CustomerOfOrder;
        }
        let Line { supply_warehouse, item, .. } = self.lines[line];
        requests.keep_rows();
        requests.execute(Sql::LockStock as usize).int(self.district).int(supply_warehouse).int(item);
        Turn::LockStock(line)
    }

    fn take_stock(
        &mut self,
        line: usize,
        reply: &Reply<'_>,
        requests: &mut Requests<'_>,
    ) -> Result<Turn, &'static str> {
        let stock = reply.int(0, 0).ok_or("no stock of an item")?;
        let dist_info = reply.bytes(0, 1).and_then(|text| text.try_into().ok());
        self.lines[line].dist_info = dist_info.ok_or("s_dist_xx is not 24 letters")?;
        let line_now = self.lines[line];
        let left = stock - line_now.quantity;
        let quantity = if left >= 10 { left } else { left + 91 };
        requests
            .execute(Sql::TakeStock as usize)
            .int(quantity)
            .int(line_now.quantity)
            .int(self.is_remote(&line_now))
            .int(line_now.supply_warehouse)
            .int(line_now.item);
        Ok(Turn::TakeStock(line))
    }

    fn insert_order(&self, requests: &mut Requests<'_>) {
        let is_local = self.lines.iter().all(|line| self.is_remote(line) == 0);
        requests
            .execute(Sql::InsertOrder as usize)
            .int(self.order)
            .int(self.district)
            .int(self.warehouse)
            .int(self.customer)
            .int(self.lines.len() as i64)
            .int(is_local.into());
    }

    /// Continues with the item of this line, or ends.
    fn item_from(&self, line: usize, requests: &mut Requests<'_>) -> Turn {
        let Some(Line { item, .. }) = self.lines.get(line) else {
            requests.query("COMMIT");
            return Turn::End;
        };
        requests.keep_rows();
        requests.execute(Sql::Item as usize).int(*item);
        Turn::Item(line)
    }

    fn insert_line(
        &self,
        line: usize,
        reply: &Reply<'_>,
        requests: &mut Requests<'_>,
    ) -> Result<Turn, &'static str> {
        if reply.kept_rows() == 0 {
            if line < self.valid_lines() {
                return Err("no such item");
            }
            requests.query("ROLLBACK");
            return Ok(Turn::End);
        }
        let price = reply.bytes(0, 0).and_then(hundredths).ok_or("i_price is no price")?;
        let Line { supply_warehouse, item, quantity, dist_info } = &self.lines[line];
        requests
            .execute(Sql::InsertOrderLine as usize)
            .int(self.order)
            .int(self.district)
            .int(self.warehouse)
            .int(line as i64 + 1)
            .int(*item)
            .int(*supply_warehouse)
            .int(*quantity)
            .int(quantity * price)
            .text(dist_info);
        Ok(Turn::InsertOrderLine(line))
    }
}

impl Transaction for NewOrder {
    fn draw(&mut self, place: &Place, random: &mut Random) {
        self.warehouse = place.warehouse;
        self.district = random.random_range(1..=DISTRICTS);
        self.customer = CUSTOMER_ID.draw(random);
        let count = random.random_range(5..=15);
        self.is_rolled_back = random.random_range(0..100) == 0;
        self.lines.clear();
        for _ in 0..count {
            let item = ITEM_ID.draw(random);
            let is_remote = random.random_range(0..100) == 0;
            let supply_warehouse = if is_remote { place.other_warehouse(random) } else { self.warehouse };
            let quantity = random.random_range(1..=10);
            self.lines.push(Line { supply_warehouse, item, quantity, dist_info: [0; 24] });
        }
        if self.is_rolled_back
            && let Some(last) = self.lines.last_mut()
        {
            last.item = ITEMS + 1;
        }
        // All clients lock stock in the same order, so that they wait for each other but cannot deadlock.
        let valid = self.valid_lines();
        self.lines[..valid].sort_unstable_by_key(|line| (line.supply_warehouse, line.item));
    }

    fn begin(&mut self, requests: &mut Requests<'_>) {
        requests.query("BEGIN");
        self.turn = Turn::Begin;
    }

    fn advance(&mut self, reply: &Reply<'_>, requests: &mut Requests<'_>) -> Result<Step, &'static str> {
        self.turn = match self.turn {
            Turn::Begin => {
                requests.keep_rows();
                requests.execute(Sql::LockDistrict as usize).int(self.warehouse).int(self.district);
                Turn::LockDistrict
            }
            Turn::LockDistrict => {
                self.order = reply.int(0, 0).ok_or("no such district")?;
                requests.execute(Sql::TakeOrderNumber as usize).int(self.warehouse).int(self.district);
                Turn::TakeOrderNumber
            }
            Turn::TakeOrderNumber => {
                changed(reply)?;
                self.stock_from(0, requests)
            }
            Turn::LockStock(line) => self.take_stock(line, reply, requests)?,
            Turn::TakeStock(line) => {
                changed(reply)?;
                self.stock_from(line + 1, requests)
            }
            Turn::CustomerOfOrder if reply.rows != 1 => return Err("no such customer"),
            Turn::CustomerOfOrder => {
                self.insert_order(requests);
                Turn::InsertOrder
            }
            Turn::InsertOrder => {
                let mut values = requests.execute(Sql::InsertNewOrder as usize);
                values.int(self.order).int(self.district).int(self.warehouse);
                Turn::InsertNewOrder
            }
            Turn::InsertNewOrder => self.item_from(0, requests),
            Turn::Item(line) => self.insert_line(line, reply, requests)?,
            Turn::InsertOrderLine(line) => self.item_from(line + 1, requests),
            Turn::End => return Ok(Step::Done),
        };
        Ok(Step::Wait)
    }
}
