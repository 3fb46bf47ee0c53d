//! `drive load` and `drive clean`: create and drop the tables of a SPEC.

pub mod bulk;
pub mod progress;
mod rows;
mod sbtest;
mod workers;

use std::time::Instant;

use anyhow::Context;
use serde_json::json;

use self::bulk::Effort;
use self::sbtest::Tables;
use super::spec::{Spec, WorkloadSpec};
use super::{oltp, sql, tpcc};
use base::error::AgentError;
use base::stop::StopSignal;
use mysql::{Connection, Options};

/// Creates and fills the tables of the SPEC, and prints what it did as one JSON object.
pub fn run(spec: &Spec, options: &Options, shows_progress: bool) -> anyhow::Result<()> {
    let stop = StopSignal::install()?;
    let start = Instant::now();
    let effort = Effort { shows_progress, ..Effort::default() };
    let mut summary = json!({});
    if let Some(tables) = sbtest_tables(spec)? {
        let (filled, index_s) = tables.load(options, &effort, &stop)?;
        summary = json!({
            "tables": tables.count,
            "rows": filled.rows,
            "bytes": filled.bytes,
            "method": filled.method,
            "connections": filled.connections,
            "index_s": index_s,
        });
    }
    if let WorkloadSpec::Tpcc(workload) = &spec.workload {
        let (filled, index_s) = tpcc::load::run(options, workload, spec.seed, &effort, &stop)?;
        summary = json!({
            "tables": tpcc::schema::TABLES.len(),
            "rows": filled.rows,
            "bytes": filled.bytes,
            "method": filled.method,
            "connections": filled.connections,
            "index_s": index_s,
        });
    }
    if let WorkloadSpec::Sql(sql::Options { setup, .. }) = &spec.workload {
        let mut connection = Connection::open(options)?;
        for statement in setup {
            connection.query(statement, |_, _| {}).with_context(|| format!("setup: cannot {statement}"))?;
        }
        summary["setup"] = json!(setup.len());
    }
    summary["seconds"] = json!(start.elapsed().as_secs_f64());
    base::output::print_line(summary)?;
    Ok(())
}

/// Drops the tables that `run` creates for the SPEC, those that exist.
pub fn clean(spec: &Spec, options: &Options) -> anyhow::Result<()> {
    let mut tables: Vec<String> = sbtest_tables(spec)?.map_or(Vec::new(), |tables| tables.names().collect());
    if let WorkloadSpec::Sql(sql::Options { setup, .. }) = &spec.workload {
        tables.extend(setup.iter().filter_map(|statement| created_table(statement)));
    }
    if matches!(spec.workload, WorkloadSpec::Tpcc(_)) {
        tables.extend(tpcc::schema::TABLES.map(str::to_owned));
    }
    let mut connection = Connection::open(options)?;
    connection.execute("SET foreign_key_checks = 0")?;
    for table in tables {
        connection
            .execute(&format!("DROP TABLE IF EXISTS {table}"))
            .with_context(|| format!("cannot drop the table {table}"))?;
    }
    Ok(())
}

/// None if the SPEC has none of sysbench's tables.
fn sbtest_tables(spec: &Spec) -> Result<Option<Tables>, AgentError> {
    match &spec.workload {
        WorkloadSpec::Oltp(options) => Tables::new(options, spec.seed).map(Some),
        WorkloadSpec::Tpcc(_)
        | WorkloadSpec::Memcached(_)
        | WorkloadSpec::Sql(sql::Options { tables: 0, .. }) => Ok(None),
        WorkloadSpec::Sql(sql::Options { tables, table_size, .. }) => {
            let options =
                oltp::Options { tables: *tables, table_size: *table_size, ..oltp::Options::default() };
            Tables::new(&options, spec.seed).map(Some)
        }
    }
}

/// The name, as written, of the table that a CREATE TABLE creates.
fn created_table(statement: &str) -> Option<String> {
    let mut rest = statement.trim_start();
    let mut word = |wanted: &str| {
        let (first, after) = rest.split_at_checked(wanted.len())?;
        let is_word = first.eq_ignore_ascii_case(wanted) && after.starts_with(char::is_whitespace);
        is_word.then(|| rest = after.trim_start())
    };
    word("CREATE")?;
    word("TABLE")?;
    if word("IF").is_some() {
        word("NOT")?;
        word("EXISTS")?;
    }
    let mut is_quoted = false;
    let end = rest.find(|character: char| {
        is_quoted ^= character == '`';
        !is_quoted && (character.is_whitespace() || character == '(')
    })?;
    (end > 0).then(|| rest[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::created_table;

    #[test]
    fn names_of_created_tables() {
        let of = |statement| created_table(statement);
        assert_eq!(of("CREATE TABLE a(b INT)").unwrap(), "a");
        assert_eq!(of("\n create  table if not exists `a b`.`c(d` \n(x INT)").unwrap(), "`a b`.`c(d`");
        assert_eq!(of("CREATE TABLE iffy LIKE other").unwrap(), "iffy");
        for other in
            ["CREATE TABLESPACE a (", "INSERT INTO a VALUES (1)", "CREATE TABLE", "", "CREATE TABLE (a INT)"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
