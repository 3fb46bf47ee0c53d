//! The rung to the server, and the settings that are shown next to the rungs.

use std::time::Instant;

use serde::Serialize;

use super::rung::{About, Rung, time_each};
use mysql::{Connection, Endpoint, Options};

pub struct RoundTrip {
    connection: Connection,
    about: About,
}

impl RoundTrip {
    pub fn new(connection: Connection, options: &Options) -> Self {
        let path = match &options.endpoint {
            Endpoint::Socket(_) => "its Unix socket",
            Endpoint::Tcp { .. } => "TCP",
        };
        let about = About {
            rung: "server",
            method: format!("SELECT 1 over {path}, one connection, text protocol: parser and network"),
            operations_per_repetition: 1,
            spoiled_by: vec!["what else the server does meanwhile is part of it".to_owned()],
        };
        Self { connection, about }
    }
}

impl Rung for RoundTrip {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        time_each(until, into, || Ok(self.connection.query("SELECT 1", |_, _| {})?))
    }
}

/// What the ladder's rungs are compared with. A value that the server does not report (another vendor, no
/// privilege) is null.
#[derive(Debug, Default, Serialize)]
pub struct ServerFacts {
    pub is_local: bool,
    pub buffer_pool_bytes: Option<u64>,
    /// Of the files of all InnoDB tablespaces.
    pub data_bytes: Option<u64>,
    /// Reads that missed the buffer pool, and all reads, since the server started.
    pub pool_misses: Option<u64>,
    pub pool_requests: Option<u64>,
    pub flush_log_at_trx_commit: Option<u64>,
    pub log_bin: Option<u64>,
    pub sync_binlog: Option<u64>,
}

impl ServerFacts {
    pub fn ask(connection: &mut Connection, options: &Options) -> Self {
        let is_local = match &options.endpoint {
            Endpoint::Socket(_) => true,
            Endpoint::Tcp { host, .. } => {
                host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            }
        };
        let files = if connection.is_mariadb() {
            "SELECT SUM(FILE_SIZE) FROM information_schema.INNODB_SYS_TABLESPACES"
        } else {
            "SELECT SUM(FILE_SIZE) FROM information_schema.INNODB_TABLESPACES"
        };
        let mut ask = |sql: &str| number(connection, sql);
        Self {
            is_local,
            buffer_pool_bytes: ask("SELECT @@GLOBAL.innodb_buffer_pool_size"),
            data_bytes: ask(files),
            pool_misses: ask("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_reads'"),
            pool_requests: ask("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'"),
            flush_log_at_trx_commit: ask("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit"),
            log_bin: ask("SELECT @@GLOBAL.log_bin"),
            sync_binlog: ask("SELECT @@GLOBAL.sync_binlog"),
        }
    }
}

/// The last column of the first row.
fn number(connection: &mut Connection, sql: &str) -> Option<u64> {
    let mut value = None;
    connection
        .query(sql, |names, row| {
            let cell = names.len().checked_sub(1).and_then(|last| row.get(last)).unwrap_or_default();
            value = value.or_else(|| std::str::from_utf8(cell).ok()?.parse().ok());
        })
        .ok()?;
    value
}
