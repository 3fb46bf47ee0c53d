//! `drive check`: which limits of this host and of the server a load would hit, before it starts.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

use anyhow::Context;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::spec::Spec;
use base::error::AgentError;
use mysql::{Connection, Endpoint, Options};

/// Open files of the driver in addition to its connections, generously.
const OWN_FILES: u64 = 64;
/// Open files of a server in addition to connections and tables: logs, listening sockets, temporary tables.
const SERVER_FILES: u64 = 100;

/// What a load needs from the server and from this host.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Of this driver; the server counts those of the others once they are connected.
    pub connections: u64,
    /// Prepared statements; 0 if nothing is prepared.
    pub statements_per_connection: u64,
    pub tables: u64,
}

impl Wanted {
    /// Fails with what is wrong with the SPEC.
    pub fn of(spec: &Spec) -> Result<Self, AgentError> {
        let workload = spec.workload.on_mysql()?;
        let prepared = if workload.is_prepared() { workload.statements().len() } else { 0 };
        Ok(Self {
            connections: spec.share.clients(spec.connections).len() as u64,
            statements_per_connection: prepared as u64,
            tables: spec.workload.tables() as u64,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The load cannot run.
    Error,
    /// It can, but its results may be misleading.
    Warning,
}

/// One limit: its value, what the load needs, and how to raise it if that is more.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub ok: bool,
    pub severity: Severity,
    /// A count; bytes for `buffer_pool`.
    pub found: u64,
    pub needed: u64,
    pub message: String,
    /// The command that fixes it; none if the limit suffices.
    pub fix: Option<String>,
}

/// Prints the findings on a SPEC as a JSON array.
pub fn run(spec: &Spec, options: &Options) -> anyhow::Result<()> {
    let findings = findings(options, &Wanted::of(spec)?)?;
    base::output::print_line(serde_json::to_string_pretty(&findings)?)?;
    Ok(())
}

/// Compares what is wanted with the server's limits, this process's and this host's.
pub fn findings(options: &Options, wanted: &Wanted) -> anyhow::Result<Vec<Finding>> {
    let server = Server::ask(options)?;
    let host = Host::read(Path::new("/"), &options.endpoint)?;
    Ok(judge(&server, &host, wanted))
}

/// The server's limits and how much of them is in use. 0 means no limit.
#[derive(Clone, Debug)]
struct Server {
    account: String,
    max_connections: u64,
    connected: u64,
    /// Of the account; the server's for all accounts if `has_own_limit` is false.
    max_user_connections: u64,
    has_own_limit: bool,
    connected_as_us: u64,
    open_files_limit: u64,
    back_log: u64,
    max_prepared_stmt_count: u64,
    prepared: u64,
    table_open_cache: u64,
    thread_cache_size: u64,
    /// False if a thread pool serves the connections.
    has_thread_each: bool,
    buffer_pool_bytes: u64,
    /// Of the database's tables and indexes in InnoDB, as far as the server's statistics know.
    data_bytes: u64,
}

impl Server {
    fn ask(options: &Options) -> anyhow::Result<Self> {
        let mut connection = Connection::open(options)?;
        if !connection.is_mariadb() {
            // By default MySQL's sizes may be a day old.
            connection.execute("SET SESSION information_schema_stats_expiry = 0")?;
        }
        let limits = row(
            &mut connection,
            "SELECT CURRENT_USER(), @@max_connections, @@session.max_user_connections, \
             @@global.max_user_connections, @@open_files_limit, @@back_log, @@max_prepared_stmt_count, \
             @@table_open_cache, @@thread_cache_size, @@thread_handling, @@innodb_buffer_pool_size",
        )?;
        let connected_as_us = row(
            &mut connection,
            "SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1)",
        )?;
        let data = row(
            &mut connection,
            "SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND engine = 'InnoDB'",
        )?;
        let status = "SHOW GLOBAL STATUS LIKE";
        let connected = row(&mut connection, &format!("{status} 'Threads_connected'"))?;
        let prepared = row(&mut connection, &format!("{status} 'Prepared_stmt_count'"))?;
        let of_account = number(&limits, 2)?;
        Ok(Self {
            account: quote_account(limits.first().map_or("", String::as_str)),
            max_connections: number(&limits, 1)?,
            // Without this connection, which is closed by then.
            connected: number(&connected, 1)?.saturating_sub(1),
            max_user_connections: of_account,
            has_own_limit: of_account != number(&limits, 3)?,
            connected_as_us: number(&connected_as_us, 0)?.saturating_sub(1),
            open_files_limit: number(&limits, 4)?,
            back_log: number(&limits, 5)?,
            max_prepared_stmt_count: number(&limits, 6)?,
            prepared: number(&prepared, 1)?,
            table_open_cache: number(&limits, 7)?,
            thread_cache_size: number(&limits, 8)?,
            has_thread_each: limits.get(9).is_some_and(|handling| handling == "one-thread-per-connection"),
            buffer_pool_bytes: number(&limits, 10)?,
            data_bytes: number(&data, 0)?,
        })
    }
}

/// The one row of a statement, as text.
fn row(connection: &mut Connection, sql: &str) -> anyhow::Result<Vec<String>> {
    let mut cells = Vec::new();
    connection
        .query(sql, |columns, row| {
            let text = |column| String::from_utf8_lossy(row.get(column).unwrap_or_default()).into_owned();
            cells = (0..columns.len()).map(text).collect();
        })
        .with_context(|| format!("cannot ask the server: {sql}"))?;
    Ok(cells)
}

fn number(cells: &[String], column: usize) -> anyhow::Result<u64> {
    let text = cells.get(column).context("the server gave no answer to what its limits are")?;
    text.parse().with_context(|| format!("{text:?} is no limit of a server"))
}

/// 'user'@'host' as ALTER USER takes it.
fn quote_account(account: &str) -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    match account.rsplit_once('@') {
        Some((user, host)) => format!("{}@{}", quote(user), quote(host)),
        None => quote(account),
    }
}

/// This host's limits, and whether the server is on it.
#[derive(Clone, Debug)]
struct Host {
    files_soft: u64,
    files_hard: u64,
    is_tcp: bool,
    has_server: bool,
    somaxconn: u64,
    syn_backlog: u64,
    ports: u64,
}

impl Host {
    /// From the /proc below `root`; the limits of open files are this process's.
    fn read(root: &Path, endpoint: &Endpoint) -> anyhow::Result<Self> {
        let read = |name: &str| -> anyhow::Result<Vec<u64>> {
            let path = root.join("proc/sys/net").join(name);
            let context = || format!("cannot read {}", path.display());
            let text = std::fs::read_to_string(&path).with_context(context)?;
            text.split_whitespace().map(str::parse).collect::<Result<_, _>>().with_context(context)
        };
        let one = |name| -> anyhow::Result<u64> {
            read(name)?.first().copied().with_context(|| format!("{name} is empty"))
        };
        let range = read("ipv4/ip_local_port_range")?;
        let [low, high] = range[..] else { anyhow::bail!("ip_local_port_range is no range: {range:?}") };
        let files = getrlimit(Resource::Nofile);
        Ok(Self {
            files_soft: files.current.unwrap_or(u64::MAX),
            files_hard: files.maximum.unwrap_or(u64::MAX),
            is_tcp: matches!(endpoint, Endpoint::Tcp { .. }),
            has_server: is_here(endpoint),
            somaxconn: one("core/somaxconn")?,
            syn_backlog: one("ipv4/tcp_max_syn_backlog")?,
            ports: (high + 1).saturating_sub(low),
        })
    }
}

/// Whether an endpoint is on this host: only a host's own addresses can be bound.
fn is_here(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Socket(_) => true,
        Endpoint::Tcp { host, port } => {
            (host.as_str(), *port).to_socket_addrs().is_ok_and(|mut addresses| {
                addresses.any(|address| {
                    let ip: IpAddr = address.ip();
                    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
                })
            })
        }
    }
}

fn judge(server: &Server, host: &Host, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = connections(server, wanted);
    findings.extend(files(server, host, wanted));
    findings.extend(backlog(server, host, wanted));
    findings.extend(caches(server, wanted));
    if host.is_tcp {
        findings.push(at_least(
            ("ephemeral_ports", Severity::Error, "local ports for connections to the server"),
            host.ports,
            wanted.connections,
            |_| "sysctl -w net.ipv4.ip_local_port_range='1024 65535'".to_owned(),
        ));
    }
    findings.push(buffer_pool(server));
    findings
}

/// A limit that must be at least `needed`.
fn at_least(
    (check, severity, what): (&'static str, Severity, &str),
    found: u64,
    needed: u64,
    fix: impl Fn(u64) -> String,
) -> Finding {
    let ok = found >= needed;
    let message = if ok {
        format!("{check}: {found} {what} are enough for {needed}")
    } else {
        format!("{check}: {found} {what}, but {needed} are needed")
    };
    Finding { check, ok, severity, found, needed, message, fix: (!ok).then(|| fix(needed)) }
}

fn connections(server: &Server, wanted: &Wanted) -> Vec<Finding> {
    let unlimited = |limit: u64| if limit == 0 { u64::MAX } else { limit };
    let mut findings = vec![at_least(
        ("max_connections", Severity::Error, "connections at most"),
        server.max_connections,
        wanted.connections + server.connected,
        |needed| format!("SET GLOBAL max_connections = {needed}"),
    )];
    // No limit, no number.
    if server.max_user_connections > 0 {
        findings.push(at_least(
            ("max_user_connections", Severity::Error, "connections at most of this account"),
            unlimited(server.max_user_connections),
            wanted.connections + server.connected_as_us,
            |needed| {
                if server.has_own_limit {
                    format!("ALTER USER {} WITH MAX_USER_CONNECTIONS {needed}", server.account)
                } else {
                    format!("SET GLOBAL max_user_connections = {needed}")
                }
            },
        ));
    }
    findings.push(at_least(
        ("max_prepared_stmt_count", Severity::Error, "prepared statements at most"),
        server.max_prepared_stmt_count,
        wanted.statements_per_connection * wanted.connections + server.prepared,
        |needed| format!("SET GLOBAL max_prepared_stmt_count = {needed}"),
    ));
    findings
}

fn files(server: &Server, host: &Host, wanted: &Wanted) -> Vec<Finding> {
    let own = at_least(
        ("open_files", Severity::Error, "open files at most of the driver"),
        host.files_soft,
        wanted.connections + OWN_FILES,
        |needed| {
            if needed <= host.files_hard {
                format!("ulimit -Sn {needed}")
            } else {
                format!("ulimit -Hn {needed} && ulimit -Sn {needed}   # as root")
            }
        },
    );
    let of_server = at_least(
        ("server_open_files", Severity::Error, "open files at most of the server"),
        server.open_files_limit,
        wanted.connections + server.connected + wanted.tables + SERVER_FILES,
        |needed| {
            format!(
                "open_files_limit = {needed} in its [mysqld], LimitNOFILE={needed} in its systemd unit, and a restart"
            )
        },
    );
    vec![own, of_server]
}

/// All clients may connect in the same moment, for example after the server restarts.
fn backlog(server: &Server, host: &Host, wanted: &Wanted) -> Vec<Finding> {
    let what = "connections may wait to be taken";
    let mut findings = vec![at_least(
        ("back_log", Severity::Warning, what),
        server.back_log,
        wanted.connections,
        |needed| format!("back_log = {needed} in the server's [mysqld], and a restart"),
    )];
    if host.has_server {
        findings.push(at_least(
            ("net.core.somaxconn", Severity::Warning, what),
            host.somaxconn,
            wanted.connections,
            |needed| {
                format!(
                    "sysctl -w net.core.somaxconn={needed}   # and restart the server, which listens anew"
                )
            },
        ));
        if host.is_tcp {
            findings.push(at_least(
                ("net.ipv4.tcp_max_syn_backlog", Severity::Warning, "handshakes may be open"),
                host.syn_backlog,
                wanted.connections,
                |needed| format!("sysctl -w net.ipv4.tcp_max_syn_backlog={needed}"),
            ));
        }
    }
    findings
}

fn caches(server: &Server, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = vec![at_least(
        ("table_open_cache", Severity::Warning, "tables stay open"),
        server.table_open_cache,
        wanted.tables * wanted.connections,
        |needed| format!("SET GLOBAL table_open_cache = {needed}"),
    )];
    if server.has_thread_each {
        findings.push(at_least(
            ("thread_cache_size", Severity::Warning, "threads wait for new connections"),
            server.thread_cache_size,
            wanted.connections,
            |needed| format!("SET GLOBAL thread_cache_size = {needed}"),
        ));
    }
    findings
}

/// Neither is wrong, but the user must know which of the two it is.
fn buffer_pool(server: &Server) -> Finding {
    let (data, pool) = (server.data_bytes, server.buffer_pool_bytes);
    let mebibytes = |bytes: u64| bytes >> 20;
    let sizes = format!("{} MiB of data, {} MiB of buffer pool", mebibytes(data), mebibytes(pool));
    let ok = data <= pool;
    let message = match (data, ok) {
        (0, _) => {
            format!("buffer_pool: the database has no data yet; the buffer pool has {} MiB", mebibytes(pool))
        }
        (_, true) => format!("buffer_pool: {sizes}: reads are measured from memory, not from disk"),
        (_, false) => format!("buffer_pool: {sizes}: reads are measured from disk, too"),
    };
    Finding {
        check: "buffer_pool",
        ok,
        severity: Severity::Warning,
        found: pool,
        needed: data,
        message,
        // Pages have overhead: an eighth more than the data, in the server's unit of 128 MiB.
        fix: (!ok).then(|| {
            let size = (data + data / 8).next_multiple_of(128 << 20);
            format!("SET GLOBAL innodb_buffer_pool_size = {size}")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, Host, Server, Wanted, is_here, judge, quote_account};
    use mysql::Endpoint;

    const WANTED: Wanted = Wanted { connections: 100, statements_per_connection: 10, tables: 4 };

    fn server() -> Server {
        Server {
            account: "'u'@'%'".to_owned(),
            max_connections: 103,
            connected: 3,
            max_user_connections: 0,
            has_own_limit: false,
            connected_as_us: 2,
            open_files_limit: 10_000,
            back_log: 100,
            max_prepared_stmt_count: 1005,
            prepared: 5,
            table_open_cache: 400,
            thread_cache_size: 100,
            has_thread_each: true,
            buffer_pool_bytes: 1 << 30,
            data_bytes: 1 << 20,
        }
    }

    fn host() -> Host {
        Host {
            files_soft: 1024,
            files_hard: 4096,
            is_tcp: true,
            has_server: true,
            somaxconn: 4096,
            syn_backlog: 512,
            ports: 28_232,
        }
    }

    fn found(server: &Server, host: &Host, wanted: &Wanted, check: &str) -> Finding {
        let mut findings = judge(server, host, wanted);
        let place = findings.iter().position(|finding| finding.check == check).unwrap();
        findings.swap_remove(place)
    }

    #[test]
    fn what_is_just_enough_is_enough() {
        let findings = judge(&server(), &host(), &WANTED);
        assert_eq!(findings.len(), 11);
        for finding in &findings {
            assert!(finding.ok && finding.fix.is_none(), "{finding:?}");
        }
    }

    /// One too few of each, and the command that fixes it.
    #[test]
    fn each_limit_has_its_command() {
        let one_less = |change: fn(&mut Server, &mut Host), check: &str| {
            let (mut server, mut host) = (server(), host());
            change(&mut server, &mut host);
            let finding = found(&server, &host, &WANTED, check);
            assert!(!finding.ok && finding.found < finding.needed, "{finding:?}");
            finding.fix.unwrap()
        };
        assert_eq!(
            one_less(|s, _| s.max_connections = 102, "max_connections"),
            "SET GLOBAL max_connections = 103"
        );
        assert_eq!(
            one_less(|s, _| s.max_user_connections = 101, "max_user_connections"),
            "SET GLOBAL max_user_connections = 102"
        );
        assert_eq!(
            one_less(|s, _| (s.max_user_connections, s.has_own_limit) = (7, true), "max_user_connections"),
            "ALTER USER 'u'@'%' WITH MAX_USER_CONNECTIONS 102"
        );
        assert_eq!(
            one_less(|s, _| s.max_prepared_stmt_count = 1004, "max_prepared_stmt_count"),
            "SET GLOBAL max_prepared_stmt_count = 1005"
        );
        assert_eq!(one_less(|_, h| h.files_soft = 163, "open_files"), "ulimit -Sn 164");
        let hard = one_less(|_, h| (h.files_soft, h.files_hard) = (100, 100), "open_files");
        assert!(hard.starts_with("ulimit -Hn 164 && ulimit -Sn 164"));
        assert!(
            one_less(|s, _| s.open_files_limit = 206, "server_open_files").contains("open_files_limit = 207")
        );
        assert!(one_less(|s, _| s.back_log = 99, "back_log").contains("back_log = 100"));
        assert!(
            one_less(|_, h| h.somaxconn = 99, "net.core.somaxconn")
                .starts_with("sysctl -w net.core.somaxconn=100")
        );
        let syn = "net.ipv4.tcp_max_syn_backlog";
        assert_eq!(one_less(|_, h| h.syn_backlog = 99, syn), format!("sysctl -w {syn}=100"));
        assert_eq!(
            one_less(|s, _| s.table_open_cache = 399, "table_open_cache"),
            "SET GLOBAL table_open_cache = 400"
        );
        assert_eq!(
            one_less(|s, _| s.thread_cache_size = 99, "thread_cache_size"),
            "SET GLOBAL thread_cache_size = 100"
        );
        assert!(one_less(|_, h| h.ports = 99, "ephemeral_ports").contains("ip_local_port_range"));
        let pool = one_less(|s, _| s.data_bytes = 2 << 30, "buffer_pool");
        assert_eq!(pool, format!("SET GLOBAL innodb_buffer_pool_size = {}", (2_u64 << 30) + (256 << 20)));
    }

    #[test]
    fn what_is_of_no_concern_is_not_said() {
        let far = Host { is_tcp: false, has_server: false, ..host() };
        let pool = Server { has_thread_each: false, ..server() };
        let checks: Vec<&str> = judge(&pool, &far, &WANTED).iter().map(|finding| finding.check).collect();
        let all = [
            "max_connections",
            "max_prepared_stmt_count",
            "open_files",
            "server_open_files",
            "back_log",
            "table_open_cache",
            "buffer_pool",
        ];
        assert_eq!(checks, all);
    }

    #[test]
    fn memory_or_disk() {
        let message =
            |data_bytes| found(&Server { data_bytes, ..server() }, &host(), &WANTED, "buffer_pool").message;
        assert!(message(0).contains("no data yet"));
        assert!(message(1 << 30).contains("from memory"));
        assert!(message((1 << 30) + 1).contains("from disk"));
    }

    #[test]
    fn where_the_server_is() {
        let tcp = |host: &str| Endpoint::Tcp { host: host.to_owned(), port: 3306 };
        assert!(is_here(&Endpoint::Socket("/run/s".into())));
        assert!(is_here(&tcp("127.0.0.1")) && is_here(&tcp("::1")));
        // A documentation address (RFC 5737), which no host has.
        assert!(!is_here(&tcp("192.0.2.1")));
    }

    #[test]
    fn accounts_are_quoted() {
        assert_eq!(quote_account("u@%"), "'u'@'%'");
        assert_eq!(quote_account("o'x@y@10.%"), "'o''x@y'@'10.%'");
    }

    #[test]
    fn a_host_of_which_a_file_is_missing_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::Socket("/run/s".into());
        assert!(Host::read(folder.path(), &endpoint).is_err());
        let net = folder.path().join("proc/sys/net");
        std::fs::create_dir_all(net.join("core")).unwrap();
        std::fs::create_dir_all(net.join("ipv4")).unwrap();
        std::fs::write(net.join("core/somaxconn"), "4096\n").unwrap();
        std::fs::write(net.join("ipv4/tcp_max_syn_backlog"), "512\n").unwrap();
        std::fs::write(net.join("ipv4/ip_local_port_range"), "32768\t60999\n").unwrap();
        let host = Host::read(folder.path(), &endpoint).unwrap();
        assert_eq!((host.somaxconn, host.syn_backlog, host.ports), (4096, 512, 28_232));
        std::fs::write(net.join("ipv4/ip_local_port_range"), "32768\n").unwrap();
        assert!(Host::read(folder.path(), &endpoint).is_err());
    }
}
