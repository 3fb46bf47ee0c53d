//! Where a server's binary log stood when a recording began: data that are restored to there answer a replay as they
//! answered the recorded clients.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::error::AgentError;
use mysql::{Connection, ServerArguments};
use serde::{Deserialize, Serialize};

/// The longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// `ER_PARSE_ERROR`.
const SYNTAX: u16 = 1064;
/// In the order in which servers of all versions know at least one: MySQL 8.4 has only the second.
const ASKED: [&str; 2] = ["SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"];

/// Just before the first event could be recorded. `problem` says why the rest is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Position {
    pub at_ns: u64,
    pub log: String,
    pub offset: u64,
    /// `MySQL`: the executed set; `MariaDB`: the last of each domain in its binary log.
    pub gtid: String,
    pub problem: String,
}

/// The server that the arguments name; None if they name none.
///
/// # Errors
/// The server does not let us in.
pub fn connect(login: &ServerArguments) -> anyhow::Result<Option<Connection>> {
    let Some(options) = login.options(ANSWER)? else { return Ok(None) };
    let opened = Connection::open(&options);
    let unreachable = |error| AgentError::Unreachable(format!("the server at {}: {error}", options.endpoint));
    Ok(Some(opened.map_err(unreachable)?))
}

/// Where its binary log stands. What it does not tell is a problem of the position, and none of the recording.
pub fn ask(connection: &mut Connection) -> Position {
    let mut position = Position { at_ns: now_ns(), ..Position::default() };
    let mut refused = None;
    for sql in ASKED {
        match status(connection, sql, &mut position) {
            Ok(()) => {
                refused = None;
                break;
            }
            // Of two errors the one that is not about a statement of other versions.
            Err(error) if refused.is_some() && error.code() == Some(SYNTAX) => {}
            Err(error) => refused = Some(error),
        }
    }
    if let Some(error) = refused {
        position.problem = error.to_string();
    } else if position.log.is_empty() {
        "the server writes no binary log".clone_into(&mut position.problem);
    } else if connection.is_mariadb() {
        // Without the right to read it the file and its offset still say where.
        let _ = connection.query("SELECT @@global.gtid_binlog_pos", |_, row| {
            position.gtid = row.get(0).map(text).unwrap_or_default();
        });
    }
    position
}

fn status(connection: &mut Connection, sql: &str, position: &mut Position) -> Result<(), mysql::Error> {
    connection.query(sql, |columns, row| {
        for (index, column) in columns.iter().enumerate() {
            let cell = row.get(index).map(text).unwrap_or_default();
            match column.as_str() {
                "File" => position.log = cell,
                "Position" => position.offset = cell.parse().unwrap_or(0),
                "Executed_Gtid_Set" => position.gtid = cell.replace('\n', ""),
                _ => {}
            }
        }
    })
}

fn text(cell: &[u8]) -> String {
    String::from_utf8_lossy(cell).into_owned()
}

/// The time of day.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
