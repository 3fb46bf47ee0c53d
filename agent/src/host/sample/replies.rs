//! The samplers of a server: a statement each, and what of its rows are numbers.

use super::registry::{Kind, Source};
use super::values::{Values, is_json_number};
use crate::mysql::{Connection, Error, Row};

pub const MYSQL_STATUS: Kind = Kind {
    name: "mysql_status",
    doc: "the numbers of SHOW GLOBAL STATUS, names in lower case",
    source: Source::Server(sample_status),
};
pub const INNODB_METRICS: Kind = Kind {
    name: "innodb_metrics",
    doc: "the enabled counters of information_schema.INNODB_METRICS (needs the privilege PROCESS)",
    source: Source::Server(sample_innodb),
};
pub const REPLICATION: Kind = Kind {
    name: "replication",
    doc: "lag in s and whether both threads run, of each channel; nothing on a server that is no replica",
    source: Source::Server(sample_replication),
};

/// Reads counters over a session.
pub type ServerSample = fn(&mut Session, &mut Values) -> Result<(), Error>;

/// A connection and what was learnt of the server behind it.
pub struct Session {
    connection: Connection,
    innodb: usize,
    replication: usize,
}

impl Session {
    pub fn new(connection: Connection) -> Self {
        Self { connection, innodb: 0, replication: 0 }
    }
}

const UNKNOWN_COLUMN: u16 = 1054;
const SYNTAX_ERROR: u16 = 1064;

/// MariaDB has a column ENABLED since 10.4, MySQL and older MariaDB have STATUS.
const INNODB_STATEMENTS: [&str; 2] = [
    "SELECT NAME, COUNT FROM information_schema.INNODB_METRICS WHERE STATUS = 'enabled'",
    "SELECT NAME, COUNT FROM information_schema.INNODB_METRICS WHERE ENABLED = 1",
];
/// SHOW REPLICA STATUS came with MySQL 8.0.22; SHOW SLAVE STATUS went with 8.4.
const MYSQL_REPLICATION: [&str; 2] = ["SHOW REPLICA STATUS", "SHOW SLAVE STATUS"];
/// Understood by every MariaDB since 10.0; SHOW SLAVE STATUS would show the default channel only.
const MARIADB_REPLICATION: [&str; 1] = ["SHOW ALL SLAVES STATUS"];

fn sample_status(session: &mut Session, values: &mut Values) -> Result<(), Error> {
    let mut name = String::new();
    session.connection.query("SHOW GLOBAL STATUS", |_, row| write_number(row, &mut name, values))
}

fn sample_innodb(session: &mut Session, values: &mut Values) -> Result<(), Error> {
    let mut name = String::new();
    query_first(&mut session.connection, &INNODB_STATEMENTS, &mut session.innodb, |_, row| {
        write_number(row, &mut name, values);
    })
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

fn sample_replication(session: &mut Session, values: &mut Values) -> Result<(), Error> {
    let statements: &[&str] =
        if session.connection.is_mariadb() { &MARIADB_REPLICATION } else { &MYSQL_REPLICATION };
    let mut channels = Vec::new();
    query_first(&mut session.connection, statements, &mut session.replication, |columns, row| {
        channels.push(Replica::from_row(columns, row));
    })?;
    values.metric("lag_s");
    for channel in &channels {
        // NULL where the lag is not known: the threads do not run, or are connecting.
        if let Some(lag_s) = &channel.lag_s {
            values.number_text(&channel.name, lag_s);
        }
    }
    values.metric("io_running");
    for channel in &channels {
        values.value(&channel.name, channel.io_running.into());
    }
    values.metric("sql_running");
    for channel in &channels {
        values.value(&channel.name, channel.sql_running.into());
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Replica {
    name: String,
    lag_s: Option<String>,
    io_running: bool,
    sql_running: bool,
}

impl Replica {
    /// The columns' names differ between vendors and versions, so they are looked up.
    fn from_row(columns: &[String], row: &Row<'_>) -> Self {
        let text = |names: &[&str]| -> Option<String> {
            let column = columns.iter().position(|column| names.contains(&column.as_str()))?;
            Some(String::from_utf8_lossy(row.get(column)?).into_owned())
        };
        let lag_s = text(&["Seconds_Behind_Source", "Seconds_Behind_Master"]);
        let is_running = |names: &[&str]| text(names).is_some_and(|state| state == "Yes");
        Self {
            name: text(&["Channel_Name", "Connection_name"]).unwrap_or_default(),
            lag_s: lag_s.filter(|lag| is_json_number(lag.as_bytes())),
            io_running: is_running(&["Replica_IO_Running", "Slave_IO_Running"]),
            sql_running: is_running(&["Replica_SQL_Running", "Slave_SQL_Running"]),
        }
    }
}

/// Runs the first of the statements that this server understands, beginning with the one that it did last time.
fn query_first(
    connection: &mut Connection,
    statements: &[&str],
    understood: &mut usize,
    mut on_row: impl FnMut(&[String], &Row<'_>),
) -> Result<(), Error> {
    loop {
        match connection.query(statements[*understood], &mut on_row) {
            Err(error)
                if matches!(error.code(), Some(UNKNOWN_COLUMN | SYNTAX_ERROR))
                    && *understood + 1 < statements.len() =>
            {
                *understood += 1;
            }
            result => return result,
        }
    }
}
