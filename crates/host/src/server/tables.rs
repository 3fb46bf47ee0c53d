//! `headrace-agent tables`: size and indexes of named tables, one JSON line each.
//!
//! Only these tables are asked for, by name: a condition that the server must test on each table would open all of them.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::query::{Named, literal, named_server};
use base::error::AgentError;
use mysql::{Connection, Error, ServerArguments};

const READ_TIMEOUT: Duration = Duration::from_secs(10);
const MOST: usize = 50;

#[derive(Args)]
pub struct TablesArguments {
    #[command(flatten)]
    server: Box<ServerArguments>,
    /// DATABASE.TABLE; what the account may not see, or does not exist, has no line
    #[arg(required = true, value_name = "TABLE", value_parser = parse)]
    tables: Vec<Wanted>,
}

#[derive(Clone, Debug, PartialEq)]
struct Wanted {
    database: String,
    name: String,
}

#[derive(Serialize)]
struct Table<'a> {
    database: &'a str,
    table: &'a str,
    /// None: a view.
    engine: Option<String>,
    /// InnoDB estimates them.
    rows: Option<u64>,
    data_bytes: Option<u64>,
    index_bytes: Option<u64>,
    free_bytes: Option<u64>,
    indexes: Vec<Index>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Index {
    name: String,
    is_unique: bool,
    /// In the order of the index.
    columns: Vec<Column>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Column {
    /// None: an expression.
    name: Option<String>,
    /// Of a prefix index: its length in characters or bytes.
    prefix: Option<u64>,
    /// An estimate of the distinct values up to this column.
    cardinality: Option<u64>,
}

pub fn run(arguments: &TablesArguments) -> anyhow::Result<()> {
    if arguments.tables.len() > MOST {
        return Err(AgentError::Input(format!("at most {MOST} tables at a time")).into());
    }
    let mut connection = Connection::open(&named_server(&arguments.server, READ_TIMEOUT)?)?;
    let mut output = std::io::stdout().lock();
    for wanted in &arguments.tables {
        if let Some(table) = read(&mut connection, wanted)? {
            serde_json::to_writer(&mut output, &table)?;
            output.write_all(b"\n")?;
        }
    }
    Ok(output.flush()?)
}

fn read<'a>(connection: &mut Connection, wanted: &'a Wanted) -> Result<Option<Table<'a>>, Error> {
    let place = format!(
        "WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
        literal(&wanted.database),
        literal(&wanted.name)
    );
    let sql = format!(
        "SELECT ENGINE, TABLE_ROWS, DATA_LENGTH, INDEX_LENGTH, DATA_FREE FROM information_schema.TABLES {place}"
    );
    let mut table = None;
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        table = Some(Table {
            database: &wanted.database,
            table: &wanted.name,
            engine: row.text(&["ENGINE"]),
            rows: row.number(&["TABLE_ROWS"]),
            data_bytes: row.number(&["DATA_LENGTH"]),
            index_bytes: row.number(&["INDEX_LENGTH"]),
            free_bytes: row.number(&["DATA_FREE"]),
            indexes: Vec::new(),
        });
    })?;
    if let Some(table) = &mut table {
        table.indexes = indexes(connection, &place)?;
    }
    Ok(table)
}

fn indexes(connection: &mut Connection, place: &str) -> Result<Vec<Index>, Error> {
    let sql = format!(
        "SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART, CARDINALITY FROM information_schema.STATISTICS {place} \
         ORDER BY INDEX_NAME = 'PRIMARY' DESC, INDEX_NAME, SEQ_IN_INDEX"
    );
    let mut indexes: Vec<Index> = Vec::new();
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        let name = row.text(&["INDEX_NAME"]).unwrap_or_default();
        if indexes.last().is_none_or(|last| last.name != name) {
            let is_unique = row.number(&["NON_UNIQUE"]) == Some(0);
            indexes.push(Index { name, is_unique, columns: Vec::new() });
        }
        let column = Column {
            name: row.text(&["COLUMN_NAME"]),
            prefix: row.number(&["SUB_PART"]),
            cardinality: row.number(&["CARDINALITY"]),
        };
        if let Some(index) = indexes.last_mut() {
            index.columns.push(column);
        }
    })?;
    Ok(indexes)
}

fn parse(text: &str) -> Result<Wanted, String> {
    match text.split_once('.') {
        Some((database, name)) if !database.is_empty() && !name.is_empty() => {
            Ok(Wanted { database: database.to_owned(), name: name.to_owned() })
        }
        _ => Err("a table is DATABASE.TABLE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Wanted, parse};

    #[test]
    fn a_table_has_a_database() {
        let wanted = Wanted { database: "shop".to_owned(), name: "a.b".to_owned() };
        assert_eq!(parse("shop.a.b"), Ok(wanted));
        for text in ["", "orders", ".orders", "shop."] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
