//! Statements that differ between vendors and versions, and rows whose columns are looked up by name.

use std::time::Duration;

use base::error::AgentError;
use mysql::{Connection, Error, Options, Row, ServerArguments};

const UNKNOWN_COLUMN: u16 = 1054;
pub const SYNTAX_ERROR: u16 = 1064;
const NO_SUCH_TABLE: u16 = 1146;
/// Replaces the limit that the server sets for its application, which may abort every reading of a busy server. Longer
/// than we wait ourselves.
const STATEMENT_LIMIT_S: u64 = 10;

/// A row whose columns are looked up by name: names differ between vendors and versions, and so does their order.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    columns: &'a [String],
    row: &'a Row<'a>,
}

impl<'a> Named<'a> {
    pub fn new(columns: &'a [String], row: &'a Row<'a>) -> Self {
        Self { columns, row }
    }

    /// The first column of one of these names. None if it is missing or NULL.
    pub fn text(&self, names: &[&str]) -> Option<String> {
        let is_wanted = |column: &String| names.iter().any(|name| column.eq_ignore_ascii_case(name));
        let column = self.columns.iter().position(is_wanted)?;
        Some(String::from_utf8_lossy(self.row.get(column)?).into_owned())
    }

    pub fn number(&self, names: &[&str]) -> Option<u64> {
        self.text(names)?.parse().ok()
    }
}

/// The server of a command that requires one.
pub fn named_server(server: &ServerArguments, read_timeout: Duration) -> anyhow::Result<Options> {
    let message = "no server was named: give --mysql-socket or --mysql-host";
    server.options(read_timeout)?.ok_or_else(|| AgentError::Input(message.to_owned()).into())
}

/// Opens a session that reads what the server reports. `trx_started` is in the host's time zone, so `NOW()` must be too.
pub fn open_session(options: &Options) -> Result<Connection, Error> {
    let mut connection = Connection::open(options)?;
    connection.execute("SET SESSION time_zone = 'SYSTEM'")?;
    let limit = if connection.is_mariadb() {
        format!("SET SESSION max_statement_time = {STATEMENT_LIMIT_S}")
    } else {
        format!("SET SESSION max_execution_time = {}", STATEMENT_LIMIT_S * 1000)
    };
    // An old server has no limit.
    let _ = connection.execute(&limit);
    Ok(connection)
}

/// Whether ours is the connection that the server keeps for an administrator when all others are taken.
///
/// It is given back as soon as it has been used: whoever has to repair the server needs it.
///
/// # Errors
/// The connection is of no more use.
pub fn is_the_last(connection: &mut Connection) -> Result<bool, Error> {
    let mut number = |sql: &str| match rows(connection, sql) {
        Ok(rows) => Ok(rows.first().and_then(|row| row.last()?.as_deref()?.parse::<u64>().ok())),
        Err(Error::Server { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let connected = number("SHOW GLOBAL STATUS LIKE 'Threads_connected'")?;
    let most = number("SHOW GLOBAL VARIABLES LIKE 'max_connections'")?;
    Ok(connected.zip(most).is_some_and(|(connected, most)| connected > most))
}

/// A string for a statement. In hexadecimal, so that no quote and no sql_mode matters.
pub fn literal(text: &str) -> String {
    let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    if digits.is_empty() { "''".to_owned() } else { format!("_utf8mb4 0x{digits}") }
}

/// All rows of a statement, as text.
pub fn rows(connection: &mut Connection, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
    let mut rows = Vec::new();
    connection.query(sql, |columns, row| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        rows.push((0..columns.len()).map(|column| row.get(column).map(text)).collect());
    })?;
    Ok(rows)
}

/// Runs the first of the statements that this server understands, starting with the last one that worked.
pub fn query_first(
    connection: &mut Connection,
    statements: &[&str],
    understood: &mut usize,
    mut on_row: impl FnMut(&[String], &Row<'_>),
) -> Result<(), Error> {
    loop {
        match connection.query(statements[*understood], &mut on_row) {
            Err(error)
                if matches!(error.code(), Some(UNKNOWN_COLUMN | SYNTAX_ERROR | NO_SUCH_TABLE))
                    && *understood + 1 < statements.len() =>
            {
                *understood += 1;
            }
            result => return result,
        }
    }
}
