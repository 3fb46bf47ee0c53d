//! `headrace-agent explain`: the plan of a statement that runs now, of the last one known of a digest, or of a
//! given one.

use std::io::{Read, Write};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::query::{SYNTAX_ERROR, named_server, rows};
use base::error::AgentError;
use mysql::{Connection, Error, Options, ServerArguments};
use sql;

const READ_TIMEOUT: Duration = Duration::from_secs(10);
const TIME_LIMIT_S: u64 = 3;
/// Allowed after EXPLAIN. A text that starts with anything else is not sent to the server.
const EXPLAINABLE: [&str; 6] = ["SELECT", "WITH", "INSERT", "REPLACE", "UPDATE", "DELETE"];
/// What a statement from outside may begin with: one that was captured and only reads.
const READS: [&str; 2] = ["SELECT", "WITH"];
/// A longer statement from outside is not explained.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// Where servers keep whole statements: MySQL 8 one per digest, MariaDB those of its history, if that is on.
const SAMPLES: [&str; 4] = [
    "SELECT QUERY_SAMPLE_TEXT, SCHEMA_NAME FROM performance_schema.events_statements_summary_by_digest",
    "SELECT SQL_TEXT, CURRENT_SCHEMA FROM performance_schema.events_statements_current",
    "SELECT SQL_TEXT, CURRENT_SCHEMA FROM performance_schema.events_statements_history",
    "SELECT SQL_TEXT, CURRENT_SCHEMA FROM performance_schema.events_statements_history_long",
];

#[derive(Args)]
pub struct ExplainArguments {
    #[command(flatten)]
    server: Box<ServerArguments>,
    /// The connection whose statement runs now: `id` of `headrace-agent statements`
    #[arg(long, value_name = "ID", required_unless_present_any = ["digest", "text"], conflicts_with = "digest")]
    thread: Option<u64>,
    /// A class of statements: `digest` of `headrace-agent statements`, or at least its first 16 digits
    #[arg(long, value_name = "DIGEST", value_parser = parse_digest)]
    digest: Option<String>,
    /// A statement that only reads, on standard input; it is not executed
    #[arg(long, conflicts_with_all = ["thread", "digest"])]
    text: bool,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "format", rename_all = "lowercase")]
enum Plan {
    Json { plan: Value },
    Traditional { rows: Vec<Map<String, Value>> },
}

pub fn run(arguments: &ExplainArguments) -> anyhow::Result<()> {
    let options = named_server(&arguments.server, READ_TIMEOUT)?;
    let plan = match (arguments.thread, &arguments.digest) {
        (Some(thread), _) => of_thread(&mut Connection::open(&options)?, thread)?,
        (None, Some(digest)) => of_digest(options, digest)?,
        (None, None) => of_input(&options)?,
    };
    if plan == (Plan::Traditional { rows: Vec::new() }) {
        anyhow::bail!("it executes no statement that has a plan");
    }
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, &plan)?;
    output.write_all(b"\n")?;
    Ok(output.flush()?)
}

/// SHOW EXPLAIN has FORMAT=JSON since MariaDB 10.9.
fn of_thread(connection: &mut Connection, thread: u64) -> Result<Plan, Error> {
    let statements = if connection.is_mariadb() {
        [format!("SHOW EXPLAIN FORMAT=JSON FOR {thread}"), format!("SHOW EXPLAIN FOR {thread}")]
    } else {
        [format!("EXPLAIN FORMAT=JSON FOR CONNECTION {thread}"), format!("EXPLAIN FOR CONNECTION {thread}")]
    };
    first_plan(connection, &statements)
}

fn first_plan(connection: &mut Connection, statements: &[String; 2]) -> Result<Plan, Error> {
    match plan(connection, &statements[0]) {
        Err(error) if error.code() == Some(SYNTAX_ERROR) => plan(connection, &statements[1]),
        other => other,
    }
}

/// The plan of a statement of this class that the server remembers with its values.
fn of_digest(mut options: Options, digest: &str) -> anyhow::Result<Plan> {
    let mut connection = Connection::open(&options)?;
    let Some((text, schema)) = sample_of(&mut connection, digest)? else {
        let message = format!(
            "the server remembers no whole statement of digest {digest}: explain one that runs, with --thread"
        );
        return Err(AgentError::Input(message).into());
    };
    if let Some(problem) = problem_of(&text) {
        return Err(AgentError::Refused(format!("digest {digest}: {problem}")).into());
    }
    options.database = schema.or(options.database);
    plan_of(&options, &text)
}

/// The plan of the statement on standard input.
fn of_input(options: &Options) -> anyhow::Result<Plan> {
    let mut text = String::new();
    std::io::stdin().lock().take(MAX_TEXT_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(AgentError::Input("the statement is longer than 1 MiB".to_owned()).into());
    }
    let text = text.trim().trim_end_matches(';');
    let begins_well = begins_with(without_comments(text), &READS);
    if !begins_well || !sql::is_read_only(text.as_bytes()) {
        return Err(AgentError::Refused("only statements that read are explained".to_owned()).into());
    }
    plan_of(options, without_comments(text))
}

/// A text without the comments before its first word. Those that servers execute (`/*!`, `/*M!`) are not comments.
fn without_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let next = if rest.starts_with("/*") && !rest.starts_with("/*!") && !rest.starts_with("/*M!") {
            rest.split_once("*/").map(|(_, after)| after)
        } else if rest.starts_with("-- ") || rest.starts_with('#') {
            rest.split_once('\n').map(|(_, after)| after)
        } else {
            return rest;
        };
        // Nothing follows a comment without an end.
        rest = next.unwrap_or_default().trim_start();
    }
}

fn plan_of(options: &Options, text: &str) -> anyhow::Result<Plan> {
    let mut connection = Connection::open(options)?;
    // A plan may cost reads of constant tables and subqueries, but must never write.
    connection.execute("SET SESSION TRANSACTION READ ONLY")?;
    let limit = if connection.is_mariadb() {
        format!("SET SESSION max_statement_time = {TIME_LIMIT_S}")
    } else {
        format!("SET SESSION max_execution_time = {}", TIME_LIMIT_S * 1000)
    };
    connection.execute(&limit)?;
    Ok(first_plan(&mut connection, &[format!("EXPLAIN FORMAT=JSON {text}"), format!("EXPLAIN {text}")])?)
}

fn sample_of(connection: &mut Connection, digest: &str) -> Result<Option<(String, Option<String>)>, Error> {
    for table in SAMPLES {
        let sql = format!("{table} WHERE DIGEST LIKE '{digest}%' LIMIT 1");
        // If this server lacks a table or column, try the next source.
        let sample = match rows(connection, &sql) {
            Err(Error::Server { .. }) => continue,
            sample => sample?,
        };
        if let Some([Some(text), schema]) = sample.first().map(Vec::as_slice) {
            return Ok(Some((text.clone(), schema.clone())));
        }
    }
    Ok(None)
}

/// Why a text must not or cannot be explained.
fn problem_of(text: &str) -> Option<&'static str> {
    if !begins_with(text.trim_start(), &EXPLAINABLE) {
        return Some("its statement is none that can be explained");
    }
    // The server cuts what it remembers at performance_schema_max_sql_text_length.
    text.ends_with("...").then_some("the server remembers only the beginning of its statement")
}

fn begins_with(text: &str, words: &[&str]) -> bool {
    let first = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    words.iter().any(|word| first.eq_ignore_ascii_case(word))
}

fn plan(connection: &mut Connection, sql: &str) -> Result<Plan, Error> {
    let mut plan = Plan::Traditional { rows: Vec::new() };
    connection.query(sql, |columns, row| {
        let text = |column| row.get(column).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        if columns.len() == 1
            && let Some(Ok(value)) = text(0).map(|text| serde_json::from_str(&text))
        {
            plan = Plan::Json { plan: value };
        } else if let Plan::Traditional { rows } = &mut plan {
            let cells = columns.iter().enumerate();
            rows.push(
                cells.map(|(at, name)| (name.clone(), text(at).map_or(Value::Null, Value::String))).collect(),
            );
        }
    })?;
    Ok(plan)
}

fn parse_digest(text: &str) -> Result<String, String> {
    let is_digest = (16..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digest { Ok(text.to_owned()) } else { Err("a digest has 16 to 64 hexadecimal digits".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::{READS, begins_with, parse_digest, problem_of, without_comments};

    #[test]
    fn comments_go_but_not_those_that_servers_execute() {
        for text in [
            "SELECT 1",
            "/* app:a */ select 1",
            "-- x\n# y\n/*a*//*b*/ SELECT 1",
            "with a as (select 1) table a",
        ] {
            assert!(begins_with(without_comments(text), &READS), "{text}");
        }
        for text in
            ["/*!ANALYZE*/ SELECT 1", "/*M!100100 DELETE*/ SELECT", "/* SELECT 1", "--", "DELETE FROM t", ""]
        {
            assert!(!begins_with(without_comments(text), &READS), "{text}");
        }
    }

    #[test]
    fn only_what_explain_takes_and_only_whole_is_sent() {
        assert_eq!(problem_of(" select * from t"), None);
        assert_eq!(problem_of("WITH a AS (SELECT 1) SELECT * FROM a"), None);
        for text in ["DROP TABLE t", "ANALYZE SELECT 1", "FOR CONNECTION 7", "", "/* x */ SET GLOBAL a = 1"] {
            assert!(problem_of(text).is_some(), "{text}");
        }
        assert!(problem_of("SELECT * FROM t WHERE a IN (1, 2, ...").is_some());
    }

    #[test]
    fn a_digest_is_hexadecimal() {
        assert!(parse_digest("880caaa1d9ba5793").is_ok());
        for text in ["880caaa1d9ba579", "880caaa1d9ba5793' OR 1", ""] {
            assert!(parse_digest(text).is_err());
        }
    }
}
