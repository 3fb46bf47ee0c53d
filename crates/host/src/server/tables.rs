//! `headrace-agent tables`: size, columns and indexes of named tables, one JSON line each.
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
    fields: Vec<Field>,
    indexes: Vec<Index>,
    foreign_keys: Vec<ForeignKey>,
}

/// A column of the table.
#[derive(Debug, PartialEq, Serialize)]
struct Field {
    name: String,
    /// As `varchar(64)`.
    kind: String,
    is_nullable: bool,
    /// Of texts.
    collation: Option<String>,
    /// The most bytes of a text.
    most_bytes: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Index {
    name: String,
    is_unique: bool,
    /// BTREE, FULLTEXT, SPATIAL ...
    kind: String,
    /// False: invisible (MySQL) or ignored (MariaDB), so that no plan uses it.
    is_used: bool,
    /// In the order of the index.
    columns: Vec<Column>,
}

/// A constraint that refers to another table and needs an index on its columns.
#[derive(Debug, PartialEq, Serialize)]
struct ForeignKey {
    name: String,
    columns: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Column {
    /// None: an expression.
    name: Option<String>,
    /// Of a prefix index: its length in characters or bytes.
    prefix: Option<u64>,
    /// An estimate of the distinct values up to this column.
    cardinality: Option<u64>,
    is_descending: bool,
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
            fields: Vec::new(),
            indexes: Vec::new(),
            foreign_keys: Vec::new(),
        });
    })?;
    if let Some(table) = &mut table {
        table.fields = fields(connection, &place)?;
        table.indexes = indexes(connection, &place)?;
        table.foreign_keys = foreign_keys(connection, &place)?;
    }
    Ok(table)
}

fn fields(connection: &mut Connection, place: &str) -> Result<Vec<Field>, Error> {
    let sql = format!(
        "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLLATION_NAME, CHARACTER_OCTET_LENGTH \
         FROM information_schema.COLUMNS {place} ORDER BY ORDINAL_POSITION"
    );
    let mut fields = Vec::new();
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        fields.push(Field {
            name: row.text(&["COLUMN_NAME"]).unwrap_or_default(),
            kind: row.text(&["COLUMN_TYPE"]).unwrap_or_default(),
            is_nullable: row.text(&["IS_NULLABLE"]).as_deref() == Some("YES"),
            collation: row.text(&["COLLATION_NAME"]),
            most_bytes: row.number(&["CHARACTER_OCTET_LENGTH"]),
        });
    })?;
    Ok(fields)
}

fn foreign_keys(connection: &mut Connection, place: &str) -> Result<Vec<ForeignKey>, Error> {
    let sql = format!(
        "SELECT CONSTRAINT_NAME, COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE {place} \
         AND REFERENCED_TABLE_NAME IS NOT NULL ORDER BY CONSTRAINT_NAME, ORDINAL_POSITION"
    );
    let mut keys: Vec<ForeignKey> = Vec::new();
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        let name = row.text(&["CONSTRAINT_NAME"]).unwrap_or_default();
        if keys.last().is_none_or(|last| last.name != name) {
            keys.push(ForeignKey { name, columns: Vec::new() });
        }
        if let Some(key) = keys.last_mut() {
            key.columns.extend(row.text(&["COLUMN_NAME"]));
        }
    })?;
    Ok(keys)
}

fn indexes(connection: &mut Connection, place: &str) -> Result<Vec<Index>, Error> {
    // All columns: those that say whether plans use it differ by vendor and version.
    let sql = format!(
        "SELECT * FROM information_schema.STATISTICS {place} \
         ORDER BY INDEX_NAME = 'PRIMARY' DESC, INDEX_NAME, SEQ_IN_INDEX"
    );
    let mut indexes: Vec<Index> = Vec::new();
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        let name = row.text(&["INDEX_NAME"]).unwrap_or_default();
        if indexes.last().is_none_or(|last| last.name != name) {
            let is_unique = row.number(&["NON_UNIQUE"]) == Some(0);
            let is_hidden = row.text(&["IS_VISIBLE"]).as_deref() == Some("NO")
                || row.text(&["IGNORED"]).as_deref() == Some("YES");
            let kind = row.text(&["INDEX_TYPE"]).unwrap_or_default();
            indexes.push(Index { name, is_unique, kind, is_used: !is_hidden, columns: Vec::new() });
        }
        let column = Column {
            name: row.text(&["COLUMN_NAME"]),
            prefix: row.number(&["SUB_PART"]),
            cardinality: row.number(&["CARDINALITY"]),
            is_descending: row.text(&["COLLATION"]).as_deref() == Some("D"),
        };
        if let Some(index) = indexes.last_mut() {
            index.columns.push(column);
        }
    })?;
    Ok(indexes)
}

/// `DATABASE.TABLE`, either between backticks or not: without them a database has no dot.
fn parse(text: &str) -> Result<Wanted, String> {
    name(text, Some('.'))
        .and_then(|(database, rest)| Some(Wanted { database, name: name(rest.strip_prefix('.')?, None)?.0 }))
        .filter(|wanted| !wanted.database.is_empty() && !wanted.name.is_empty())
        .ok_or_else(|| "a table is DATABASE.TABLE".to_owned())
}

/// The name at the beginning, and what is behind it; without backticks it goes on to `end`.
fn name(text: &str, end: Option<char>) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('`') else {
        let at = end.map_or(Some(text.len()), |end| text.find(end))?;
        return Some((text[..at].to_owned(), &text[at..]));
    };
    let mut at = 0;
    loop {
        at += quoted[at..].find('`')?;
        if !quoted[at + 1..].starts_with('`') {
            let rest = &quoted[at + 1..];
            return (end.is_some() || rest.is_empty()).then(|| (quoted[..at].replace("``", "`"), rest));
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::{Wanted, parse};

    #[test]
    fn a_table_has_a_database() {
        let wanted = Wanted { database: "shop".to_owned(), name: "a.b".to_owned() };
        assert_eq!(parse("shop.a.b"), Ok(wanted));
        for (text, database, name) in [
            ("`shop.eu`.orders", "shop.eu", "orders"),
            ("`a``b`.`c.d`", "a`b", "c.d"),
            ("shop.`a``b`", "shop", "a`b"),
        ] {
            let wanted = Wanted { database: database.to_owned(), name: name.to_owned() };
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
        for text in ["", "orders", ".orders", "shop.", "`shop`", "`shop.t", "shop.`t`x", "``.t", "`a`t"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
