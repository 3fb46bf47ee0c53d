//! The configuration and content of a live server, read over a dedicated connection.
//!
//! Nothing is written and every statement has a time limit: sizes make a server open every table, which is given up
//! if it takes too long, for example with 100,000 tables.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::counters::{self, Counter};
use super::files::ReadError;
use super::origins;
use super::place::{self, Place};
use super::processes::Server;
use super::redact;
use super::stale::{self, Stale};
use crate::server::galera::{self, Node};
use crate::server::group::{self, Group};
use crate::server::query::rows;
use crate::server::replication::{self, Channel, Replica};
use crate::server::running::class_of;
use mysql::{Connection, Error, Options};

/// With more tables, sizes are left out: opening them takes the server seconds and evicts others from its cache.
const MOST_TABLES: u64 = 10_000;
/// The longest that one statement may take, by the server's own clock.
const STATEMENT_LIMIT_S: u64 = 3;
/// The same where a user wants all of it.
const THOROUGH_LIMIT_S: u64 = 60;

/// What MariaDB and MySQL answer when it ran out.
const TOO_LONG: [u16; 2] = [1969, 3024];

fn statement_limit_s(is_thorough: bool) -> u64 {
    if is_thorough { THOROUGH_LIMIT_S } else { STATEMENT_LIMIT_S }
}

/// The limit by our own clock, for a server that ignores its own.
pub fn read_timeout(is_thorough: bool) -> Duration {
    Duration::from_secs(statement_limit_s(is_thorough) + 2)
}

const SYSTEM_SCHEMAS: &str = "('mysql', 'information_schema', 'performance_schema', 'sys')";
/// Variables that hold statement texts, which may contain literals.
const STATEMENTS: [&str; 3] = ["init_connect", "init_replica", "init_slave"];

#[derive(Serialize)]
pub struct Settings {
    /// `mariadb`, `mysql` or `percona`.
    vendor: &'static str,
    version: String,
    version_text: String,
    version_comment: String,
    /// SHOW GLOBAL VARIABLES, without values that look like passwords; truncated ones are read as `@@GLOBAL`.
    variables: BTreeMap<String, String>,
    /// The classes of the statements of `init_connect`, without values; empty without one.
    init_connect: Vec<String>,
    /// Variables that a SET GLOBAL changed since the start, sorted; on MySQL only those that sessions do not have.
    /// Null if unknown.
    set_since_start: Option<Vec<String>>,
    /// MySQL: the content of mysqld-auto.cnf (SET PERSIST).
    persisted: Option<BTreeMap<String, String>>,
    /// Names of the active ones, sorted.
    plugins: Option<Vec<String>>,
    /// Without the system schemas; null if it took too long.
    engines: Option<Vec<Engine>>,
    /// InnoDB's part of it if `engines` is null, from InnoDB's own statistics.
    innodb_size: Option<Engine>,
    tables_without_primary_key: Option<u64>,
    /// The fullest AUTO_INCREMENT columns; null if the tables were not read.
    auto_increment: Option<Vec<Counter>>,
    /// Tables of which half or more has changed since their statistics were calculated; null if they were not read.
    stale_statistics: Option<Vec<Stale>>,
    /// The file that holds all sessions' temporary InnoDB tables, which only a restart makes smaller.
    temporary_tablespace_bytes: Option<u64>,
    /// One entry per channel; null without the privilege.
    replication: Option<Vec<Channel>>,
    /// The connected ones; null without the privilege.
    replicas: Option<Vec<Replica>>,
    /// Where they connect from.
    replica_addresses: Option<Vec<String>>,
    /// MySQL's group replication; null without it, or without the privilege.
    group: Option<Group>,
    /// Galera; null on a server that is no node.
    galera: Option<Node>,
    performance_schema: Option<PerformanceSchema>,
    /// The server's process on this host; null if it is elsewhere or unknown.
    pid: Option<u32>,
    place: Place,
    privileges_missing: Vec<&'static str>,
}

/// Rows and sizes are the engine's estimates.
#[derive(Serialize)]
struct Engine {
    engine: String,
    tables: u64,
    rows: Option<u64>,
    data_bytes: Option<u64>,
    index_bytes: Option<u64>,
}

#[derive(Serialize)]
struct PerformanceSchema {
    enabled: bool,
    wait_instruments_enabled: Option<u64>,
    statement_digests: Option<bool>,
    /// Names of the enabled consumers, sorted.
    consumers: Option<Vec<String>>,
}

/// None if the server cannot be reached; each part that fails is an entry of `errors`.
pub fn read(
    options: &Options,
    is_thorough: bool,
    servers: &[Server],
    hostname: Option<&str>,
    errors: &mut Vec<ReadError>,
) -> Option<Settings> {
    let mut asked = Asked {
        place: options.endpoint.to_string(),
        errors,
        missing: Vec::new(),
        is_lost: false,
        is_thorough,
    };
    let mut connection = asked.known("log in", "", Connection::open(options))?;
    asked.limit(&mut connection);
    let (variables, init_connect) = asked.variables(&mut connection)?;
    let text = |name: &str| variables.get(name).cloned().unwrap_or_default();
    let place = place::read(&mut connection, &variables, servers, hostname);
    let version_text = text("version");
    let is_percona = text("version_comment").contains("Percona");
    Some(Settings {
        vendor: match (connection.is_mariadb(), is_percona) {
            (true, _) => "mariadb",
            (false, true) => "percona",
            (false, false) => "mysql",
        },
        version: number_of(&version_text),
        version_comment: text("version_comment"),
        version_text,
        plugins: asked.plugins(&mut connection),
        set_since_start: asked.quietly(&mut connection, origins::set_since_start),
        persisted: asked.quietly(&mut connection, origins::persisted),
        replication: asked.replication(&mut connection),
        replicas: asked.quietly(&mut connection, replication::replicas),
        replica_addresses: asked.quietly(&mut connection, replication::replica_addresses),
        group: asked.group(&mut connection, &text("group_replication_group_name")),
        galera: asked.quietly(&mut connection, |connection| galera::read(connection).ok().flatten()),
        performance_schema: asked.performance_schema(&mut connection, &text("performance_schema")),
        // Last and most expensive: if time runs out here, everything else is known.
        engines: None,
        innodb_size: None,
        tables_without_primary_key: None,
        auto_increment: None,
        stale_statistics: None,
        temporary_tablespace_bytes: None,
        pid: place.pid,
        place,
        privileges_missing: Vec::new(),
        init_connect,
        variables,
    })
    .map(|mut settings| {
        asked.process_privilege(&mut connection);
        settings.temporary_tablespace_bytes = asked.temporary_tablespace(&mut connection);
        if asked.sees_all_tables(&mut connection) && asked.has_few_tables(&mut connection) {
            settings.engines = asked.engines(&mut connection);
        }
        if settings.engines.is_none() {
            let page_bytes = settings.variables.get("innodb_page_size").and_then(|size| size.parse().ok());
            settings.innodb_size = asked.innodb_size(&mut connection, page_bytes.unwrap_or(16384));
        }
        let tables =
            settings.engines.as_ref().map(|engines| engines.iter().map(|engine| engine.tables).sum());
        settings.tables_without_primary_key =
            tables.and_then(|tables: u64| Some(tables.saturating_sub(asked.primary_keys(&mut connection)?)));
        if settings.engines.is_some() {
            settings.auto_increment = asked.auto_increment(&mut connection);
            settings.stale_statistics =
                asked.stale_statistics(&mut connection, settings.version.starts_with("5."));
        }
        settings.privileges_missing = asked.missing;
        settings
    })
}

/// What went wrong so far, and with which server.
struct Asked<'a> {
    place: String,
    errors: &'a mut Vec<ReadError>,
    missing: Vec<&'static str>,
    /// The connection is unusable.
    is_lost: bool,
    is_thorough: bool,
}

impl Asked<'_> {
    /// Notes an error, or the missing privilege behind it.
    fn known<T>(&mut self, what: &str, privilege: &'static str, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.is_lost = !matches!(error, Error::Server { .. });
                if error.is_denied() && !privilege.is_empty() && !self.missing.contains(&privilege) {
                    self.missing.push(privilege);
                }
                let is_cut_short =
                    !self.is_thorough && error.code().is_some_and(|code| TOO_LONG.contains(&code));
                let hint = if is_cut_short { "; --thorough waits longer" } else { "" };
                self.errors
                    .push(ReadError { path: self.place.clone(), error: format!("{what}: {error}{hint}") });
                None
            }
        }
    }

    fn ask(
        &mut self,
        connection: &mut Connection,
        what: &str,
        privilege: &'static str,
        sql: &str,
    ) -> Option<Vec<Vec<Option<String>>>> {
        if self.is_lost {
            return None;
        }
        let answer = rows(connection, sql);
        self.known(what, privilege, answer)
    }

    fn limit(&mut self, connection: &mut Connection) {
        // All answers are kept; of hundreds of thousands of tables they may be larger than the limit of one.
        if !self.is_thorough {
            connection.limit_in_total();
        }
        let limit_s = statement_limit_s(self.is_thorough);
        let settings: &[String] = if connection.is_mariadb() {
            &[format!("SET SESSION max_statement_time = {limit_s}")]
        } else {
            &[
                format!("SET SESSION max_execution_time = {}", limit_s * 1000),
                // Otherwise MySQL 8 stores the sizes it looked up in its own tables.
                "SET SESSION information_schema_stats_expiry = 0".to_owned(),
            ]
        };
        for setting in settings {
            // An old server without it is limited only by our own clock.
            let _ = connection.execute(setting);
        }
    }

    /// Their values, and the classes of the statements that each login executes.
    fn variables(&mut self, connection: &mut Connection) -> Option<(BTreeMap<String, String>, Vec<String>)> {
        let rows = self.ask(connection, "variables", "", "SHOW GLOBAL VARIABLES")?;
        let mut values = Vec::new();
        for row in rows {
            let mut cells = row.into_iter();
            let (Some(Some(name)), Some(value)) = (cells.next(), cells.next()) else { continue };
            let shown = value.unwrap_or_default();
            let whole = if origins::may_be_cut(&shown) && !self.is_lost {
                origins::whole(connection, &name)
            } else {
                None
            };
            values.push((name, whole.unwrap_or(shown)));
        }
        let logins = values.iter().find(|(name, _)| name == "init_connect");
        let logins = logins.map(|(_, text)| classes_of(text)).unwrap_or_default();
        let pair = |(name, value): (String, String)| {
            let is_statement = STATEMENTS.contains(&name.as_str()) && !value.is_empty();
            let value = if is_statement {
                redact::REMOVED.to_owned()
            } else {
                redact::value(&name, &value).to_owned()
            };
            (name, value)
        };
        Some((values.into_iter().map(pair).collect(), logins))
    }

    /// Optional values that few accounts may read: it is not an error if they are missing.
    fn quietly<T>(
        &mut self,
        connection: &mut Connection,
        ask: impl FnOnce(&mut Connection) -> Option<T>,
    ) -> Option<T> {
        if self.is_lost { None } else { ask(connection) }
    }

    fn plugins(&mut self, connection: &mut Connection) -> Option<Vec<String>> {
        let sql = "SELECT PLUGIN_NAME FROM information_schema.PLUGINS WHERE PLUGIN_STATUS = 'ACTIVE'";
        let mut names: Vec<String> =
            self.ask(connection, "plugins", "", sql)?.into_iter().flatten().flatten().collect();
        names.sort_unstable();
        Some(names)
    }

    fn replication(&mut self, connection: &mut Connection) -> Option<Vec<Channel>> {
        if self.is_lost {
            return None;
        }
        let privilege = if connection.is_mariadb() { "REPLICA MONITOR" } else { "REPLICATION CLIENT" };
        let channels = replication::channels(connection, &mut 0, &mut None);
        self.known("replication", privilege, channels)
    }

    fn group(&mut self, connection: &mut Connection, name: &str) -> Option<Group> {
        if name.is_empty() {
            return None;
        }
        self.quietly(connection, |connection| group::read(connection, name).ok())
    }

    fn performance_schema(
        &mut self,
        connection: &mut Connection,
        setting: &str,
    ) -> Option<PerformanceSchema> {
        let enabled = match setting {
            "ON" | "1" => true,
            "" => return None,
            _ => false,
        };
        let mut read = |sql: &str| {
            let privilege = "SELECT ON performance_schema.*";
            if enabled { self.ask(connection, "performance_schema", privilege, sql) } else { None }
        };
        let counted = read(
            "SELECT COUNT(*) FROM performance_schema.setup_instruments WHERE NAME LIKE 'wait/%' AND ENABLED = 'YES'",
        );
        let wait_instruments_enabled =
            counted.and_then(|rows| rows.first()?.first()?.as_deref()?.parse().ok());
        let names =
            read("SELECT NAME FROM performance_schema.setup_consumers WHERE ENABLED = 'YES' ORDER BY NAME");
        let consumers: Option<Vec<String>> = names.map(|rows| rows.into_iter().flatten().flatten().collect());
        let statement_digests =
            consumers.as_ref().map(|names| names.iter().any(|name| name == "statements_digest"));
        Some(PerformanceSchema { enabled, wait_instruments_enabled, statement_digests, consumers })
    }

    /// Without it only our own statements are listed, and InnoDB's tables are denied.
    fn process_privilege(&mut self, connection: &mut Connection) {
        let sql = "SELECT NAME FROM information_schema.INNODB_METRICS LIMIT 1";
        self.ask(connection, "InnoDB's metrics", "PROCESS", sql);
    }

    /// An account that may not read all tables sees only some or none, without an error.
    fn sees_all_tables(&mut self, connection: &mut Connection) -> bool {
        let Some(rows) = self.ask(connection, "grants", "", "SHOW GRANTS") else { return false };
        let sees_all = rows.into_iter().flatten().flatten().any(|grant| {
            let grants_all = |(privileges, place): (&str, &str)| {
                let privileges = privileges.strip_prefix("GRANT ").unwrap_or_default();
                place.starts_with("*.* ")
                    && privileges.split(", ").any(|name| ["SELECT", "ALL PRIVILEGES"].contains(&name))
            };
            // The privileges of a role are not listed: assume that they suffice.
            grant.split_once(" ON ").is_none_or(grants_all)
        });
        if !sees_all {
            self.missing.push("SELECT ON *.*");
        }
        sees_all
    }

    /// Summing sizes makes the server open every table; counting opens none.
    fn has_few_tables(&mut self, connection: &mut Connection) -> bool {
        if self.is_thorough {
            return true;
        }
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN {SYSTEM_SCHEMAS}"
        );
        let Some(rows) = self.ask(connection, "number of tables", "", &sql) else { return false };
        let count = rows.first().and_then(|row| row.first()?.as_deref()?.parse::<u64>().ok());
        let Some(count) = count.filter(|count| *count > MOST_TABLES) else { return true };
        let error = format!(
            "sizes of the tables: not read, because {count} tables would have to be opened; --thorough reads them"
        );
        self.errors.push(ReadError { path: self.place.clone(), error });
        false
    }

    fn engines(&mut self, connection: &mut Connection) -> Option<Vec<Engine>> {
        let sql = format!(
            "SELECT ENGINE, COUNT(*), SUM(TABLE_ROWS), SUM(DATA_LENGTH), SUM(INDEX_LENGTH) \
             FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN {SYSTEM_SCHEMAS} AND ENGINE IS NOT NULL \
             AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') GROUP BY ENGINE ORDER BY ENGINE"
        );
        let rows = self.ask(connection, "sizes of the tables", "", &sql)?;
        let engine = |row: Vec<Option<String>>| {
            let number = |column: usize| row.get(column)?.as_deref()?.parse().ok();
            let (rows, data_bytes, index_bytes) = (number(2), number(3), number(4));
            Some(Engine { engine: row.first()?.clone()?, tables: number(1)?, rows, data_bytes, index_bytes })
        };
        Some(rows.into_iter().filter_map(engine).collect())
    }

    fn auto_increment(&mut self, connection: &mut Connection) -> Option<Vec<Counter>> {
        let mut read = |sql: &str| {
            let sql = format!("{sql} AND TABLE_SCHEMA NOT IN {SYSTEM_SCHEMAS}");
            self.ask(connection, "AUTO_INCREMENT columns", "", &sql)
        };
        Some(counters::fullest(read(counters::COLUMNS)?, read(counters::NEXT)?))
    }

    fn stale_statistics(&mut self, connection: &mut Connection, is_old: bool) -> Option<Vec<Stale>> {
        let sql = stale::sql(connection.is_mariadb() || is_old);
        let changed = self.ask(connection, "age of InnoDB's statistics", "PROCESS", &sql)?;
        // The table of statistics is the server's own, which few accounts may read.
        let sql = stale::sql_of_files(connection.is_mariadb());
        let has_files = (connection.is_mariadb() || !is_old) && !self.is_lost;
        let files = if has_files { rows(connection, &sql).unwrap_or_default() } else { Vec::new() };
        Some(stale::tables(changed, files))
    }

    /// In MySQL 8 it holds only the undo logs of temporary tables; each session's tables have their own file.
    fn temporary_tablespace(&mut self, connection: &mut Connection) -> Option<u64> {
        let sql = if connection.is_mariadb() {
            "SELECT FILE_SIZE FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME = 'innodb_temporary'"
        } else {
            "SELECT TOTAL_EXTENTS * EXTENT_SIZE FROM information_schema.FILES \
             WHERE TABLESPACE_NAME = 'innodb_temporary'"
        };
        let rows = self.ask(connection, "temporary tablespace", "PROCESS", sql)?;
        rows.first()?.first()?.as_deref()?.parse().ok()
    }

    /// The sizes that InnoDB keeps of its tables for the optimiser, or of their files: even a server that is too busy
    /// to open its tables, or has too many, returns these immediately. None if neither may be read.
    fn innodb_size(&mut self, connection: &mut Connection, page_bytes: u64) -> Option<Engine> {
        let statistics = "SELECT COUNT(*), SUM(n_rows), SUM(clustered_index_size), SUM(sum_of_other_index_sizes) \
             FROM mysql.innodb_table_stats WHERE database_name NOT IN ('mysql', 'sys')";
        let table = if connection.is_mariadb() { "INNODB_SYS_TABLESPACES" } else { "INNODB_TABLESPACES" };
        let files = format!(
            "SELECT COUNT(*), NULL, SUM(FILE_SIZE), 0 FROM information_schema.{table} \
             WHERE NAME LIKE '%/%' AND NAME NOT LIKE 'mysql/%' AND NAME NOT LIKE 'sys/%'"
        );
        for (sql, unit) in [(statistics.to_owned(), page_bytes), (files, 1)] {
            if self.is_lost {
                return None;
            }
            // Only the error of the sizes themselves is reported.
            let Ok(found) = rows(connection, &sql) else { continue };
            let number = |column: usize| found.first()?.get(column)?.as_deref()?.parse::<u64>().ok();
            if let (Some(tables @ 1..), Some(data)) = (number(0), number(2)) {
                return Some(Engine {
                    engine: "InnoDB".to_owned(),
                    tables,
                    rows: number(1),
                    data_bytes: Some(data * unit),
                    index_bytes: number(3).map(|size| size * unit),
                });
            }
        }
        None
    }

    fn primary_keys(&mut self, connection: &mut Connection) -> Option<u64> {
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.STATISTICS WHERE INDEX_NAME = 'PRIMARY' \
             AND SEQ_IN_INDEX = 1 AND TABLE_SCHEMA NOT IN {SYSTEM_SCHEMAS}"
        );
        let rows = self.ask(connection, "primary keys", "", &sql)?;
        rows.first()?.first()?.as_deref()?.parse().ok()
    }
}

/// `10.11.6-MariaDB-log` -> `10.11.6`.
fn number_of(version: &str) -> String {
    version.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

/// The class of each statement of a text: without values no semicolon is in a string.
fn classes_of(text: &str) -> Vec<String> {
    let classes = class_of(text).unwrap_or_default();
    classes.split(';').map(str::trim).filter(|class| !class.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{class_of, classes_of, number_of};

    #[test]
    fn statements_of_a_login_lose_their_values() {
        let text = "SET NAMES utf8mb4; INSERT INTO audit.logins VALUES (USER(), 'a;b'); DO SLEEP(0.02);";
        let classes = classes_of(text);
        assert_eq!(classes.len(), 3, "{classes:?}");
        assert_eq!(classes[2], class_of("DO SLEEP(0.5)").unwrap());
        assert!(!classes.concat().contains("a;b"), "{classes:?}");
        assert!(classes_of("").is_empty());
    }

    #[test]
    fn a_version_is_its_numbers() {
        for (text, number) in [
            ("10.11.19-MariaDB-0+deb12u1-log", "10.11.19"),
            ("8.0.31", "8.0.31"),
            ("8.4.2-2", "8.4.2"),
            ("", ""),
        ] {
            assert_eq!(number_of(text), number);
        }
    }
}
