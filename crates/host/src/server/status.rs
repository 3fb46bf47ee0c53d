//! SHOW GLOBAL STATUS and the counters of InnoDB: rows of a name and a number.

use super::query::query_first;
use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::{Values, is_json_number};
use mysql::Row;

pub const MYSQL_STATUS: Kind =
    Kind::server("mysql_status", "the numbers of SHOW GLOBAL STATUS, names in lower case", sample_status);
pub const INNODB_METRICS: Kind = Kind::server(
    "innodb_metrics",
    "the enabled counters of information_schema.INNODB_METRICS (needs the privilege PROCESS)",
    sample_innodb,
);

/// MariaDB has a column ENABLED since 10.4, MySQL and older MariaDB have STATUS.
const INNODB_STATEMENTS: [&str; 2] = [
    "SELECT NAME, COUNT FROM information_schema.INNODB_METRICS WHERE STATUS = 'enabled'",
    "SELECT NAME, COUNT FROM information_schema.INNODB_METRICS WHERE ENABLED = 1",
];

fn sample_status(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    let mut name = String::new();
    session.connection.query("SHOW GLOBAL STATUS", |_, row| write_number(row, &mut name, values))?;
    Ok(())
}

fn sample_innodb(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    let mut name = String::new();
    query_first(&mut session.connection, &INNODB_STATEMENTS, &mut session.understood.innodb, |_, row| {
        write_number(row, &mut name, values);
    })?;
    Ok(())
}

/// A row of name and value, where the value is a number. `name` is a buffer.
fn write_number(row: &Row<'_>, name: &mut String, values: &mut Values) {
    let (Some(key), Some(value)) = (row.get(0), row.get(1)) else { return };
    let (Ok(key), Ok(number)) = (std::str::from_utf8(key), std::str::from_utf8(value)) else { return };
    if is_json_number(value) {
        name.clear();
        name.push_str(key);
        name.make_ascii_lowercase();
        values.metric(name);
        values.number_text("", number);
    }
}
