//! `headrace-agent statements`: what the server executes now, who waits for whose lock, and which statements took the
//! most time, as one array; with `--every` one line repeatedly.
//!
//! Rows with `id` are running statements, rows with `lock` waits, rows with `digest` classes of statements. A
//! statement's own text contains its user's values, so it is printed only on request; its class has no values.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::lock_waits::{self, Wait};
use super::patience::Patience;
use super::performance_schema::is_on;
use super::query::{Named, is_the_last, named_server, open_session, rows};
use super::running::{Running, running, tables_of};
use crate::sample::ticker::{Ticker, now_ns};
use base::duration::parse_duration;
use base::stop::StopSignal;
use mysql::{Connection, Error, Options, ServerArguments};

const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The part of the time that the server may spend on our queries: 1%.
const COST_PART: u32 = 100;

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
    /// Again and again: one line each time, rarer where it costs the server more than 1% of the time; classes at
    /// the end
    #[arg(long, value_parser = parse_duration, requires = "duration")]
    every: Option<Duration>,
    /// How long, with --every
    #[arg(long, value_parser = parse_duration, requires = "every")]
    duration: Option<Duration>,
    /// With --every never rarer, whatever it costs the server
    #[arg(long, requires = "every")]
    thorough: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Statement {
    Running(Running),
    Wait(Wait),
    Digest {
        digest: String,
        schema: Option<String>,
        /// As the server normalised it: without values.
        digest_text: Option<String>,
        tables: Vec<String>,
        count: u64,
        time_ns: u64,
    },
}

/// One line of `--every`.
#[derive(Serialize)]
struct Line {
    t_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Looks that were left out before this one, to spare the server.
    #[serde(skip_serializing_if = "is_zero")]
    spared: u64,
    statements: Vec<Statement>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub fn run(arguments: &StatementsArguments) -> anyhow::Result<()> {
    let options = named_server(&arguments.server, READ_TIMEOUT)?;
    let mut output = std::io::stdout().lock();
    if let (Some(every), Some(duration)) = (arguments.every, arguments.duration) {
        return follow(&options, arguments, every, duration, &mut output);
    }
    let mut connection = open_session(&options)?;
    let is_on = is_on(&mut connection)?;
    let mut statements = now(&mut connection, is_on, arguments, false)?;
    if is_on {
        statements.extend(digests(&mut connection, arguments.limit)?);
    }
    serde_json::to_writer(&mut output, &statements)?;
    output.write_all(b"\n")?;
    Ok(output.flush()?)
}

fn follow(
    options: &Options,
    arguments: &StatementsArguments,
    every: Duration,
    duration: Duration,
    output: &mut impl Write,
) -> anyhow::Result<()> {
    let every = every.max(Duration::from_millis(100));
    let last = u64::try_from(duration.as_nanos() / every.as_nanos()).unwrap_or(u64::MAX);
    let stop = StopSignal::install()?;
    let mut patience = Patience::of(every, stop.clone());
    let mut ticker = Ticker::start(every, last, stop, Arc::default())?;
    let mut session: Option<(Connection, bool)> = None;
    let mut rests_until = Instant::now();
    let mut spared = 0;
    loop {
        let start = Instant::now();
        if start >= rests_until || ticker.is_last() {
            let began_ns = now_ns();
            let (statements, error) =
                match look(options, arguments, &mut patience, &mut session, ticker.is_last()) {
                    Ok(statements) => (statements, None),
                    Err(error) => {
                        session = None;
                        (Vec::new(), Some(error.to_string()))
                    }
                };
            let t_ns = began_ns + u64::try_from(patience.waited.as_nanos()).unwrap_or_default();
            serde_json::to_writer(
                &mut *output,
                &Line { t_ns, error, spared: std::mem::take(&mut spared), statements },
            )?;
            output.write_all(b"\n")?;
            output.flush()?;
            if !arguments.thorough {
                rests_until = start + start.elapsed().saturating_sub(patience.waited) * COST_PART;
            }
        } else {
            spared += 1;
        }
        if !ticker.wait()? {
            return Ok(());
        }
    }
}

fn look(
    options: &Options,
    arguments: &StatementsArguments,
    patience: &mut Patience,
    session: &mut Option<(Connection, bool)>,
    is_last: bool,
) -> Result<Vec<Statement>, Error> {
    let mut gives_back = false;
    patience.waited = Duration::ZERO;
    if session.is_none() {
        let mut connection = patience.open(|| open_session(options))?;
        let is_on = is_on(&mut connection)?;
        gives_back = is_the_last(&mut connection)?;
        *session = Some((connection, is_on));
    }
    let Some((connection, is_on)) = session else { return Ok(Vec::new()) };
    let mut statements = now(connection, *is_on, arguments, is_last)?;
    if is_last && *is_on {
        statements.extend(digests(connection, arguments.limit)?);
    }
    if gives_back {
        *session = None;
    }
    Ok(statements)
}

/// Running statements, and lock waits among them; `with_oldest`: also the oldest transaction.
fn now(
    connection: &mut Connection,
    performance_schema: bool,
    arguments: &StatementsArguments,
    with_oldest: bool,
) -> Result<Vec<Statement>, Error> {
    let running = running(connection, performance_schema, arguments.limit, arguments.with_text)?;
    let waits_for_rows = rows(connection, "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")?
        .first()
        .and_then(|row| row.get(1)?.as_deref()?.parse().ok())
        .unwrap_or(0);
    let mut waits = match lock_waits::read(connection, performance_schema, &running, waits_for_rows) {
        // An account that may not read the locks still gets the statements.
        Err(Error::Server { .. }) => Vec::new(),
        waits => waits?,
    };
    if with_oldest {
        waits.extend(lock_waits::oldest(connection, performance_schema, &running).unwrap_or_default());
    }
    let running = running.into_iter().map(Statement::Running);
    Ok(running.chain(waits.into_iter().map(Statement::Wait)).collect())
}

fn digests(connection: &mut Connection, limit: u32) -> Result<Vec<Statement>, Error> {
    let sql = format!(
        "SELECT DIGEST, SCHEMA_NAME, DIGEST_TEXT, COUNT_STAR, SUM_TIMER_WAIT DIV 1000 AS time_ns \
         FROM performance_schema.events_statements_summary_by_digest \
         WHERE DIGEST IS NOT NULL ORDER BY SUM_TIMER_WAIT DESC LIMIT {limit}"
    );
    let mut classes = Vec::new();
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        let text = row.text(&["DIGEST_TEXT"]);
        classes.push(Statement::Digest {
            digest: row.text(&["DIGEST"]).unwrap_or_default(),
            schema: row.text(&["SCHEMA_NAME"]),
            tables: text.as_deref().map(tables_of).unwrap_or_default(),
            digest_text: text,
            count: row.number(&["COUNT_STAR"]).unwrap_or(0),
            time_ns: row.number(&["time_ns"]).unwrap_or(0),
        });
    })?;
    Ok(classes)
}
