//! The samplers of a server: a statement each, and what of its rows are numbers.

use super::registry::Kind;
use super::values::{Values, is_json_number};
use crate::server::{is_denied, query_first};
use mysql::{Connection, Error, Row};

pub const MYSQL_STATUS: Kind =
    Kind::server("mysql_status", "the numbers of SHOW GLOBAL STATUS, names in lower case", sample_status);
pub const INNODB_METRICS: Kind = Kind::server(
    "innodb_metrics",
    "the enabled counters of information_schema.INNODB_METRICS (needs the privilege PROCESS)",
    sample_innodb,
);
/// Reads counters over a session.
pub type ServerSample = fn(&mut Session, &mut Values) -> Result<(), Trouble>;

/// Why a sampler has no values.
pub enum Trouble {
    Server(Error),
    /// This server has no such source, or does not fill it: it is asked again rarely.
    Absent(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        if is_denied(&error) {
            return Trouble::Absent(error.to_string());
        }
        Trouble::Server(error)
    }
}

/// A connection and what was learnt of the server behind it.
pub struct Session {
    pub connection: Connection,
    /// Which form of each statement this server understands.
    pub understood: Understood,
}

#[derive(Default)]
pub struct Understood {
    innodb: usize,
    pub replication: usize,
    /// Whether performance_schema is on, once that is known.
    pub performance_schema: Option<bool>,
}

impl Session {
    pub fn new(connection: Connection) -> Self {
        Self { connection, understood: Understood::default() }
    }
}

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
