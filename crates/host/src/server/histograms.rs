//! `headrace-agent histograms`: how often each latency occurred since the server started, as one JSON object.
//!
//! The difference of two of them is what happened in between. MySQL 8 counts in buckets 4.7% wide, for all
//! statements and for each digest (performance_schema). MariaDB's plugin `query_response_time` counts all
//! statements, in decades by default. Only buckets with a count are printed.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::performance_schema::is_on;
use super::query::{Named, literal, named_server, rows};
use crate::sample::ticker::now_ns;
use base::error::AgentError;
use mysql::{Connection, Error, ServerArguments};

const READ_TIMEOUT: Duration = Duration::from_secs(10);
const PS_PER_NS: u64 = 1000;
const NO_SUCH_TABLE: u16 = 1146;
/// `information_schema` answers so for a plugin's table that is not installed.
const UNKNOWN_TABLE: u16 = 1109;

#[derive(Args)]
pub struct HistogramsArguments {
    #[command(flatten)]
    server: Box<ServerArguments>,
    /// At most this many digests get a histogram of their own: those that took the most time
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    limit: u32,
}

/// (upper bound in ns, events); the last bucket has no bound.
type Bucket = (Option<f64>, u64);

#[derive(Serialize)]
struct Histograms {
    t_ns: u64,
    /// `performance_schema` or `query_response_time`.
    source: &'static str,
    version: String,
    /// The server's; a copied data directory has the same one. Empty if there is none.
    uuid: String,
    uptime_s: u64,
    /// All bounds of the source, so that an absent bucket is known to be an empty one.
    bounds_ns: Vec<Option<f64>>,
    all: Vec<Bucket>,
    digests: Vec<Digest>,
    /// Rows of the table of digests, and how many it can have.
    digest_rows: u64,
    digest_size: u64,
    /// Statements without a row of their own, because the table was full.
    digests_lost: u64,
}

#[derive(Serialize)]
struct Digest {
    schema: Option<String>,
    digest: String,
    text: Option<String>,
    count: u64,
    /// Unix time, by the server's clock.
    first_seen_s: f64,
    buckets: Vec<Bucket>,
}

pub fn run(arguments: &HistogramsArguments) -> anyhow::Result<()> {
    let mut connection = Connection::open(&named_server(&arguments.server, READ_TIMEOUT)?)?;
    let histograms = if connection.is_mariadb() {
        of_plugin(&mut connection)?
    } else {
        of_performance_schema(&mut connection, arguments.limit)?
    };
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, &histograms)?;
    output.write_all(b"\n")?;
    Ok(output.flush()?)
}

fn of_performance_schema(connection: &mut Connection, limit: u32) -> anyhow::Result<Histograms> {
    if !is_on(connection)? {
        return Err(absent("performance_schema is off, so this server counts no latencies"));
    }
    let uptime_s = status(connection, "Uptime")?;
    let mut digests = match top(connection, limit) {
        Err(error) if error.code() == Some(NO_SUCH_TABLE) => {
            return Err(absent("histograms of latencies need MySQL 8.0 or newer"));
        }
        found => found?,
    };
    for digest in &mut digests {
        digest.buckets = of_digest(connection, digest)?;
    }
    // After the digests: a statement that ends in between belongs to no digest yet, but none is counted in its
    // digest only.
    let t_ns = now_ns();
    let all = match buckets(connection, "FROM performance_schema.events_statements_histogram_global") {
        Err(error) if error.code() == Some(NO_SUCH_TABLE) => {
            return Err(absent("histograms of latencies need MySQL 8.0 or newer"));
        }
        found => found?,
    };
    let table = "SELECT COUNT(*), @@performance_schema_digests_size, @@server_uuid, @@version \
        FROM performance_schema.events_statements_summary_by_digest";
    let about = rows(connection, table)?.into_iter().next().unwrap_or_default();
    let cell = |i: usize| about.get(i).cloned().flatten().unwrap_or_default();
    Ok(Histograms {
        t_ns,
        source: "performance_schema",
        version: cell(3),
        uuid: cell(2),
        uptime_s,
        bounds_ns: all.iter().map(|(bound, _)| *bound).collect(),
        all: all.into_iter().filter(|(_, count)| *count > 0).collect(),
        digests,
        digest_rows: cell(0).parse().unwrap_or(0),
        digest_size: cell(1).parse().unwrap_or(0),
        digests_lost: status(connection, "Performance_schema_digest_lost")?,
    })
}

/// The digests without their buckets. The statements that a full table sums up have no digest and are left out.
fn top(connection: &mut Connection, limit: u32) -> Result<Vec<Digest>, Error> {
    let sql = format!(
        "SELECT SCHEMA_NAME, DIGEST, LEFT(DIGEST_TEXT, 1024) AS text, COUNT_STAR, \
         UNIX_TIMESTAMP(FIRST_SEEN) AS first_seen \
         FROM performance_schema.events_statements_summary_by_digest \
         WHERE DIGEST IS NOT NULL ORDER BY SUM_TIMER_WAIT DESC LIMIT {limit}"
    );
    let mut digests = Vec::new();
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        digests.push(Digest {
            schema: row.text(&["SCHEMA_NAME"]),
            digest: row.text(&["DIGEST"]).unwrap_or_default(),
            text: row.text(&["text"]),
            count: row.number(&["COUNT_STAR"]).unwrap_or(0),
            first_seen_s: row.text(&["first_seen"]).and_then(|text| text.parse().ok()).unwrap_or(0.0),
            buckets: Vec::new(),
        });
    })?;
    Ok(digests)
}

/// One look-up by the table's key; a condition on the digest alone would read the histograms of all.
fn of_digest(connection: &mut Connection, digest: &Digest) -> Result<Vec<Bucket>, Error> {
    let schema = digest.schema.as_ref().map_or("IS NULL".to_owned(), |name| format!("= {}", literal(name)));
    let from = format!(
        "FROM performance_schema.events_statements_histogram_by_digest \
         WHERE SCHEMA_NAME {schema} AND DIGEST = {} AND COUNT_BUCKET > 0",
        literal(&digest.digest)
    );
    buckets(connection, &from)
}

fn buckets(connection: &mut Connection, from: &str) -> Result<Vec<Bucket>, Error> {
    let mut counted = Vec::new();
    let sql = format!("SELECT BUCKET_TIMER_HIGH, COUNT_BUCKET {from} ORDER BY BUCKET_NUMBER");
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        let high = row.number(&["BUCKET_TIMER_HIGH"]).filter(|high| *high < u64::MAX);
        let bound = high.map(|ps| ps as f64 / PS_PER_NS as f64);
        counted.push((bound, row.number(&["COUNT_BUCKET"]).unwrap_or(0)));
    })?;
    Ok(counted)
}

fn of_plugin(connection: &mut Connection) -> anyhow::Result<Histograms> {
    let uptime_s = status(connection, "Uptime")?;
    let t_ns = now_ns();
    let found = match rows(connection, "SELECT TIME, COUNT FROM information_schema.QUERY_RESPONSE_TIME") {
        Err(error) if matches!(error.code(), Some(UNKNOWN_TABLE | NO_SUCH_TABLE)) => {
            return Err(absent(
                "MariaDB counts latencies by the plugin query_response_time: INSTALL SONAME 'query_response_time'",
            ));
        }
        found => found?,
    };
    let counting = "SELECT @@query_response_time_stats, @@version";
    let about = rows(connection, counting)?.into_iter().next().unwrap_or_default();
    if about.first().cloned().flatten().as_deref() != Some("1") {
        return Err(absent("it does not count: SET GLOBAL query_response_time_stats = ON"));
    }
    let all: Vec<Bucket> = found.iter().filter_map(|row| plugin_bucket(row)).collect();
    Ok(Histograms {
        t_ns,
        source: "query_response_time",
        version: about.get(1).cloned().flatten().unwrap_or_default(),
        uuid: String::new(),
        uptime_s,
        bounds_ns: all.iter().map(|(bound, _)| *bound).collect(),
        all: all.into_iter().filter(|(_, count)| *count > 0).collect(),
        digests: Vec::new(),
        digest_rows: 0,
        digest_size: 0,
        digests_lost: 0,
    })
}

/// `0.000010` seconds and a count; the last row is `TOO LONG`.
fn plugin_bucket(row: &[Option<String>]) -> Option<Bucket> {
    let [Some(time), Some(count)] = row else { return None };
    let bound = time.trim().parse::<f64>().ok().map(|seconds| (seconds * 1e9).round());
    Some((bound, count.trim().parse().ok()?))
}

fn status(connection: &mut Connection, name: &str) -> Result<u64, Error> {
    let values = rows(connection, &format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
    Ok(values.first().and_then(|row| row.get(1)?.as_deref()?.parse().ok()).unwrap_or(0))
}

fn absent(why: &str) -> anyhow::Error {
    AgentError::Input(why.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::{literal, plugin_bucket};

    fn row(time: &str, count: &str) -> Vec<Option<String>> {
        vec![Some(time.to_owned()), Some(count.to_owned())]
    }

    #[test]
    fn the_plugin_s_seconds_become_ns() {
        assert_eq!(plugin_bucket(&row("      0.000010", " 7 ")), Some((Some(10_000.0), 7)));
        assert_eq!(plugin_bucket(&row("TOO LONG", "1")), Some((None, 1)));
        assert_eq!(plugin_bucket(&row("1.0", "x")), None);
    }

    #[test]
    fn a_name_is_no_statement() {
        assert_eq!(literal("a'b"), "_utf8mb4 0x612762");
        assert_eq!(literal(""), "''");
    }
}
