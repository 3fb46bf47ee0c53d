//! Shared by the five transactions: where they happen, their customer, and their steps.

use rand::RngExt;

use super::random::{CUSTOMER_ID, last_name, last_name_to_ask};
use super::statements::Sql;
use crate::reply::Reply;
use crate::script::{Random, Step};
use mysql::request::Requests;

/// A transaction: its input and its progress. An error is a missing row that must exist.
pub trait Transaction {
    /// Draws the input. A restarted transaction keeps it.
    fn draw(&mut self, place: &Place, random: &mut Random);

    /// Writes the first request.
    fn begin(&mut self, requests: &mut Requests<'_>);

    /// Takes the reply to the last request and writes the next.
    fn advance(&mut self, reply: &Reply<'_>, requests: &mut Requests<'_>) -> Result<Step, &'static str>;
}

/// Where a client works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub warehouse: i64,
    pub district: i64,
    /// The number of warehouses.
    pub warehouses: i64,
}

impl Place {
    /// Another warehouse; this one if there is no other.
    pub fn other_warehouse(&self, random: &mut Random) -> i64 {
        if self.warehouses == 1 {
            return self.warehouse;
        }
        let other = random.random_range(1..self.warehouses);
        if other < self.warehouse { other } else { other + 1 }
    }
}

/// A customer of a district: 60% are asked for by last name, 40% by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Number(i64),
    /// The number of a last name.
    Name(i64),
}

impl Default for Who {
    fn default() -> Self {
        Who::Number(1)
    }
}

impl Who {
    pub fn draw(random: &mut Random) -> Self {
        if random.random_range(1..=100) <= 60 {
            Who::Name(last_name_to_ask(random))
        } else {
            Who::Number(CUSTOMER_ID.draw(random))
        }
    }

    /// Requests all customers with this last name.
    pub fn ask(name: i64, (warehouse, district): (i64, i64), requests: &mut Requests<'_>) {
        requests.keep_rows();
        let mut values = requests.execute(Sql::CustomersByName as usize);
        values.int(warehouse).int(district).text(last_name(name).bytes());
    }

    /// The one in the middle by first name: at n/2, rounded up, counted from one.
    pub fn middle(reply: &Reply<'_>) -> Result<i64, &'static str> {
        let place = reply.kept_rows().div_ceil(2).checked_sub(1).ok_or("no customer of this last name")?;
        reply.int(place, 0).ok_or("c_id is no number")
    }
}

/// Checks that an update matched its row.
pub fn changed(reply: &Reply<'_>) -> Result<(), &'static str> {
    if reply.affected_rows == 1 { Ok(()) } else { Err("an update did not change exactly one row") }
}

/// A decimal with two digits after the point, in hundredths: `12.34` is 1234. None for anything else.
pub fn hundredths(text: &[u8]) -> Option<i64> {
    let (whole, rest) = std::str::from_utf8(text).ok()?.split_once('.')?;
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if rest.len() != 2 || !is_number(rest) || !is_number(whole.strip_prefix('-').unwrap_or(whole)) {
        return None;
    }
    // Without the point it is the number itself.
    [whole, rest].concat().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Place, hundredths};
    use crate::tpcc::random::of_row;

    #[test]
    fn decimals_in_hundredths() {
        for (text, value) in
            [("12.34", 1234), ("0.05", 5), ("-0.05", -5), ("-12.34", -1234), ("100.00", 10_000)]
        {
            assert_eq!(hundredths(text.as_bytes()), Some(value));
        }
        for text in [
            "",
            "12",
            "12.3",
            "12.345",
            ".50",
            "-.50",
            "--1.00",
            "1-.00",
            "1.-5",
            "1e3.00",
            "9".repeat(30).as_str(),
        ] {
            assert_eq!(hundredths(text.as_bytes()), None, "{text}");
        }
        assert_eq!(hundredths(b"99999999999999999999.00"), None);
    }

    #[test]
    fn another_warehouse_is_any_but_the_own() {
        let mut random = of_row(1, 1, 1);
        let place = Place { warehouse: 3, district: 1, warehouses: 5 };
        let mut counts = [0; 6];
        for _ in 0..4000 {
            counts[place.other_warehouse(&mut random) as usize] += 1;
        }
        assert_eq!((counts[0], counts[3]), (0, 0));
        assert!([1, 2, 4, 5].iter().all(|warehouse| counts[*warehouse] > 850), "{counts:?}");
        assert_eq!(Place { warehouse: 1, district: 1, warehouses: 1 }.other_warehouse(&mut random), 1);
    }
}
