//! `headrace-agent statements`: what the server executes now, and which statements took the most time, as one array.
//!
//! Rows with `id` are running statements, rows with `digest` are classes of them. A statement's own text holds
//! whatever its user wrote, so it is given only where it is asked for.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::performance_schema::is_on;
use super::query::{Named, named_server};
use mysql::{Connection, Error, ServerArguments};

const READ_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Args)]
pub struct StatementsArguments {
    #[command(flatten)]
    server: Box<ServerArguments>,
    /// Rows at most, of each kind
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Also the text of running statements, with the values in it
    #[arg(long)]
    with_text: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Statement {
    Running {
        id: u64,
        user: String,
        host: String,
        db: Option<String>,
        command: String,
        time_s: u64,
        state: String,
        /// Null where it was not asked for, or there is none.
        text: Option<String>,
    },
    Digest {
        digest: String,
        schema: Option<String>,
        /// As the server normalised it: without values.
        digest_text: Option<String>,
        count: u64,
        time_ns: u64,
    },
}

pub fn run(arguments: &StatementsArguments) -> anyhow::Result<()> {
    let options = named_server(&arguments.server, READ_TIMEOUT)?;
    let mut connection = Connection::open(&options)?;
    let is_on = is_on(&mut connection)?;
    let mut statements = running(&mut connection, is_on, arguments)?;
    if is_on {
        statements.extend(digests(&mut connection, arguments.limit)?);
    }
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, &statements)?;
    output.write_all(b"\n")?;
    Ok(output.flush()?)
}

/// The longest first. Not ourselves, and none that waits for its client or for events.
fn running(
    connection: &mut Connection,
    performance_schema: bool,
    arguments: &StatementsArguments,
) -> Result<Vec<Statement>, Error> {
    let uses_threads = performance_schema && !connection.is_mariadb();
    let (prefix, table) = if uses_threads {
        ("PROCESSLIST_", "performance_schema.threads")
    } else {
        ("", "information_schema.PROCESSLIST")
    };
    let text = if arguments.with_text { format!("LEFT({prefix}INFO, 16384)") } else { "NULL".to_owned() };
    let sql = format!(
        "SELECT {prefix}ID AS id, {prefix}USER AS user, {prefix}HOST AS host, {prefix}DB AS db, \
         {prefix}COMMAND AS command, {prefix}TIME AS time_s, {prefix}STATE AS state, {text} AS text FROM {table} \
         WHERE {prefix}ID <> CONNECTION_ID() AND {prefix}COMMAND NOT IN ('Sleep', 'Daemon') \
         ORDER BY {prefix}TIME DESC LIMIT {}",
        arguments.limit
    );
    let mut found = Vec::new();
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        let text = |name| row.text(&[name]).unwrap_or_default();
        found.push(Statement::Running {
            id: row.number(&["id"]).unwrap_or(0),
            user: text("user"),
            host: text("host"),
            db: row.text(&["db"]),
            command: text("command"),
            time_s: row.number(&["time_s"]).unwrap_or(0),
            state: text("state"),
            text: row.text(&["text"]),
        });
    })?;
    Ok(found)
}

fn digests(connection: &mut Connection, limit: u32) -> Result<Vec<Statement>, Error> {
    let sql = format!(
        "SELECT DIGEST, SCHEMA_NAME, DIGEST_TEXT, COUNT_STAR, SUM_TIMER_WAIT DIV 1000 AS time_ns \
         FROM performance_schema.events_statements_summary_by_digest \
         WHERE DIGEST IS NOT NULL ORDER BY SUM_TIMER_WAIT DESC LIMIT {limit}"
    );
    let mut found = Vec::new();
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        found.push(Statement::Digest {
            digest: row.text(&["DIGEST"]).unwrap_or_default(),
            schema: row.text(&["SCHEMA_NAME"]),
            digest_text: row.text(&["DIGEST_TEXT"]),
            count: row.number(&["COUNT_STAR"]).unwrap_or(0),
            time_ns: row.number(&["time_ns"]).unwrap_or(0),
        });
    })?;
    Ok(found)
}
