//! SHOW REPLICA STATUS: what a replica has read and applied, and the states of its threads.

use serde::Serialize;

use super::group::{self, Group};
use super::query::{Named, query_first, rows};
use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::Values;
use mysql::{Connection, Error};

pub const REPLICATION: Kind = Kind::server(
    "replication",
    "lag, positions, relay space and threads' states of each channel; nothing on a server that is no replica",
    sample,
);

/// MySQL 8.0.22 added SHOW REPLICA STATUS; 8.4 removed SHOW SLAVE STATUS.
const MYSQL: [&str; 2] = ["SHOW REPLICA STATUS", "SHOW SLAVE STATUS"];
/// Understood by every MariaDB since 10.0; SHOW SLAVE STATUS would show the default channel only.
const MARIADB: [&str; 1] = ["SHOW ALL SLAVES STATUS"];

/// One channel of a replica. `source_log_file` and `read_position` are what was fetched from the source's log,
/// `exec_log_file` and `exec_position` what was applied.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Channel {
    pub channel: String,
    pub source_host: Option<String>,
    pub source_port: Option<u64>,
    pub source_server_id: Option<u64>,
    /// MySQL's; MariaDB's servers have none.
    pub source_uuid: Option<String>,
    pub source_log_file: Option<String>,
    pub read_position: Option<u64>,
    pub exec_log_file: Option<String>,
    pub exec_position: Option<u64>,
    pub relay_space_bytes: Option<u64>,
    /// `Yes`, `No`, `Connecting`, `Preparing`.
    pub io_running: Option<String>,
    pub sql_running: Option<String>,
    pub io_state: Option<String>,
    pub sql_state: Option<String>,
    /// None if the server does not know it: its threads are stopped or connecting.
    pub lag_s: Option<u64>,
    pub delay_s: Option<u64>,
    /// Whether it asks its source for what it lacks by GTID, so that relay logs are fetched again after a crash.
    pub is_by_gtid: Option<bool>,
    /// MariaDB: `optimistic`, `conservative`, ...
    pub parallel_mode: Option<String>,
    pub last_io_errno: Option<u64>,
    pub last_sql_errno: Option<u64>,
}

/// Every channel, with the one of MySQL's group replication; empty on a server that is not a replica. `understood` remembers
/// which statement the server supports, `group` the name of its group: empty without one, None before it was asked.
pub fn channels(
    connection: &mut Connection,
    understood: &mut usize,
    group: &mut Option<String>,
) -> Result<Vec<Channel>, Error> {
    let statements: &[&str] = if connection.is_mariadb() { &MARIADB } else { &MYSQL };
    let mut channels = Vec::new();
    query_first(connection, statements, understood, |columns, row| {
        channels.push(Channel::from_row(Named::new(columns, row)));
    })?;
    if connection.is_mariadb() {
        return Ok(channels);
    }
    if group.is_none() {
        *group = Some(group::name(connection)?);
    }
    if let Some(name) = group.as_deref().filter(|name| !name.is_empty()) {
        // An account that may not read performance_schema still sees the other channels.
        if let Ok(found) = group::read(connection, name) {
            // The recovery channel counts only while a member catches up.
            channels.retain(|channel| !channel.channel.starts_with("group_replication_"));
            channels.extend(Channel::of_group(&found));
        }
    }
    Ok(channels)
}

impl Channel {
    fn from_row(row: Named<'_>) -> Self {
        Self {
            channel: row.text(&["Channel_Name", "Connection_name"]).unwrap_or_default(),
            source_host: row.text(&["Source_Host", "Master_Host"]),
            source_port: row.number(&["Source_Port", "Master_Port"]),
            source_server_id: row.number(&["Source_Server_Id", "Master_Server_Id"]),
            source_uuid: row.text(&["Source_UUID", "Master_UUID"]),
            source_log_file: row.text(&["Source_Log_File", "Master_Log_File"]),
            read_position: row.number(&["Read_Source_Log_Pos", "Read_Master_Log_Pos"]),
            exec_log_file: row.text(&["Relay_Source_Log_File", "Relay_Master_Log_File"]),
            exec_position: row.number(&["Exec_Source_Log_Pos", "Exec_Master_Log_Pos"]),
            relay_space_bytes: row.number(&["Relay_Log_Space"]),
            io_running: row.text(&["Replica_IO_Running", "Slave_IO_Running"]),
            sql_running: row.text(&["Replica_SQL_Running", "Slave_SQL_Running"]),
            io_state: row.text(&["Replica_IO_State", "Slave_IO_State"]),
            sql_state: row.text(&["Replica_SQL_Running_State", "Slave_SQL_Running_State", "Slave_SQL_State"]),
            lag_s: row.number(&["Seconds_Behind_Source", "Seconds_Behind_Master"]),
            delay_s: row.number(&["SQL_Delay"]),
            is_by_gtid: row.text(&["Auto_Position", "Using_Gtid"]).map(|told| !matches!(&*told, "0" | "No")),
            parallel_mode: row.text(&["Parallel_Mode"]),
            last_io_errno: row.number(&["Last_IO_Errno"]),
            last_sql_errno: row.number(&["Last_SQL_Errno"]),
        }
    }

    /// A member as a replica of its group's primary; None for a primary that is online. The lag of one that still recovers,
    /// that the others have expelled, or that was not started as a member is unknown.
    fn of_group(group: &Group) -> Option<Self> {
        let own = group.members.iter().find(|member| member.is_own)?;
        let is_online = own.state == "ONLINE";
        if is_online && own.role == "PRIMARY" {
            return None;
        }
        let primary = group.members.iter().find(|member| member.role == "PRIMARY" && !member.is_own);
        let is_applying = group.applier.as_deref() == Some("ON");
        let yes = |is_so: bool| Some(if is_so { "Yes" } else { "No" }.to_owned());
        Some(Self {
            channel: group::APPLIER.to_owned(),
            source_host: primary.map(|member| member.host.clone()),
            source_port: primary.and_then(|member| member.port),
            source_uuid: primary.map(|member| member.id.clone()),
            io_running: yes(is_online),
            sql_running: yes(is_applying),
            lag_s: (is_online && is_applying).then(|| group.lag_s.unwrap_or(0)),
            ..Self::default()
        })
    }
}

/// A replica that is connected to this server. `host` is the name that it gave (`report_host`), empty without one.
#[derive(Debug, PartialEq, Serialize)]
pub struct Replica {
    pub server_id: u64,
    pub host: String,
    pub port: Option<u64>,
    pub uuid: Option<String>,
}

/// MySQL 8.0.22 added SHOW REPLICAS; MariaDB only has the older name.
const REPLICAS: [&str; 2] = ["SHOW REPLICAS", "SHOW SLAVE HOSTS"];

/// The connected replicas; None if the account may not list them.
pub fn replicas(connection: &mut Connection) -> Option<Vec<Replica>> {
    let statements: &[&str] = if connection.is_mariadb() { &REPLICAS[1..] } else { &REPLICAS };
    let mut replicas = Vec::new();
    query_first(connection, statements, &mut 0, |columns, row| {
        let row = Named::new(columns, row);
        let Some(server_id) = row.number(&["Server_Id"]) else { return };
        replicas.push(Replica {
            server_id,
            host: row.text(&["Host"]).unwrap_or_default(),
            port: row.number(&["Port"]),
            uuid: row.text(&["Replica_UUID", "Slave_UUID"]),
        });
    })
    .ok()?;
    Some(replicas)
}

/// The addresses from which replicas fetch the binary log: a replica that gave no name is found by its address.
pub fn replica_addresses(connection: &mut Connection) -> Option<Vec<String>> {
    let sql = "SELECT HOST FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
    let hosts = rows(connection, sql).ok()?;
    let mut hosts: Vec<String> = hosts.into_iter().flatten().flatten().map(without_port).collect();
    hosts.sort_unstable();
    hosts.dedup();
    Some(hosts)
}

/// `db2:41234` -> `db2`; an IPv6 address keeps its colons.
fn without_port(host: String) -> String {
    match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name.to_owned(),
        _ => host,
    }
}

/// The number at the end of a log's name: `binlog.000042` is 42. Positions of two files are compared by it.
pub fn file_number(name: &str) -> Option<u64> {
    name.rsplit_once('.')?.1.parse().ok()
}

fn sample(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    let understood = &mut session.understood;
    let found = channels(&mut session.connection, &mut understood.replication, &mut understood.group)?;
    write(&found, values);
    if understood.group.as_ref().is_some_and(|name| !name.is_empty()) {
        // Whoever counts a server's queries subtracts ours: a sample of a group member makes two.
        values.single("statements", 2);
    }
    Ok(())
}

/// Positions as the number of the file and the byte in it. States are counts of threads, by what they do.
fn write(channels: &[Channel], values: &mut Values) {
    type Read = fn(&Channel) -> Option<u64>;
    let metrics: [(&str, Read); 9] = [
        ("lag_s", |channel| channel.lag_s),
        ("delay_s", |channel| channel.delay_s),
        ("io_running", |channel| is_yes(&channel.io_running)),
        ("sql_running", |channel| is_yes(&channel.sql_running)),
        ("read_file", |channel| file_number(channel.source_log_file.as_deref()?)),
        ("read_position_bytes", |channel| channel.read_position),
        ("exec_file", |channel| file_number(channel.exec_log_file.as_deref()?)),
        ("exec_position_bytes", |channel| channel.exec_position),
        ("relay_space_bytes", |channel| channel.relay_space_bytes),
    ];
    for (metric, read) in metrics {
        values.metric(metric);
        for channel in channels {
            if let Some(number) = read(channel) {
                values.value(&channel.channel, number);
            }
        }
    }
    type State = fn(&Channel) -> &Option<String>;
    let states: [(&str, State); 2] =
        [("io_state", |channel| &channel.io_state), ("sql_state", |channel| &channel.sql_state)];
    for (metric, state) in states {
        values.metric(metric);
        for channel in channels {
            if let Some(state) = state(channel).as_deref().filter(|state| !state.is_empty()) {
                values.value(&label(&channel.channel, state), 1);
            }
        }
    }
}

fn is_yes(state: &Option<String>) -> Option<u64> {
    Some(u64::from(state.as_deref() == Some("Yes")))
}

/// `channel/state`; the state alone for the default channel, which has no name.
fn label(channel: &str, state: &str) -> String {
    if channel.is_empty() { state.to_owned() } else { format!("{channel}/{state}") }
}

#[cfg(test)]
mod tests {
    use super::{Channel, Group, file_number, without_port, write};
    use crate::sample::values::collect;
    use crate::server::group::Member;
    use serde_json::json;

    #[test]
    fn a_log_is_known_by_its_number() {
        assert_eq!(file_number("binlog.000042"), Some(42));
        assert_eq!(file_number("host.example-bin.001000"), Some(1000));
        assert_eq!(file_number("binlog"), None);
        assert_eq!(file_number(""), None);
    }

    #[test]
    fn an_address_of_a_client_ends_with_its_port() {
        for (address, host) in [
            ("db2:41234", "db2"),
            ("10.0.0.2:1", "10.0.0.2"),
            ("fe80::1:2:50000", "fe80::1:2"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(without_port(address.to_owned()), host);
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let running = Channel {
            source_log_file: Some("b.000002".to_owned()),
            read_position: Some(900),
            exec_log_file: Some("b.000001".to_owned()),
            exec_position: Some(300),
            io_running: Some("Yes".to_owned()),
            sql_running: Some("Yes".to_owned()),
            sql_state: Some("Reading event from the relay log".to_owned()),
            lag_s: Some(7),
            delay_s: Some(3),
            ..Channel::default()
        };
        let stopped = Channel {
            channel: "east".to_owned(),
            io_running: Some("Connecting".to_owned()),
            sql_running: Some("No".to_owned()),
            io_state: Some("Connecting to master".to_owned()),
            ..Channel::default()
        };
        let values = collect(|values| write(&[running, stopped], values));
        assert_eq!(
            values,
            json!({
                "lag_s": {"": 7}, "delay_s": {"": 3}, "io_running": {"": 1, "east": 0}, "sql_running": {"": 1, "east": 0},
                "read_file": {"": 2}, "read_position_bytes": {"": 900},
                "exec_file": {"": 1}, "exec_position_bytes": {"": 300},
                "io_state": {"east/Connecting to master": 1},
                "sql_state": {"Reading event from the relay log": 1},
            })
        );
    }

    fn group(state: &str, role: &str, applier: &str, lag_s: Option<u64>) -> Group {
        let member = |id: &str, state: &str, role: &str| Member {
            id: id.to_owned(),
            host: format!("db{id}"),
            port: Some(3306),
            state: state.to_owned(),
            role: role.to_owned(),
            is_own: id == "2",
        };
        let members = vec![member("1", "ONLINE", "PRIMARY"), member("2", state, role)];
        Group { name: "g".to_owned(), members, applier: Some(applier.to_owned()), lag_s }
    }

    #[test]
    fn a_secondary_is_a_replica_of_its_groups_primary() {
        let channel = Channel::of_group(&group("ONLINE", "SECONDARY", "ON", Some(7))).expect("a channel");
        assert_eq!(channel.source_host.as_deref(), Some("db1"));
        assert_eq!(channel.source_uuid.as_deref(), Some("1"));
        assert_eq!(
            (channel.io_running.as_deref(), channel.sql_running.as_deref()),
            (Some("Yes"), Some("Yes"))
        );
        assert_eq!(channel.lag_s, Some(7));
        let idle = Channel::of_group(&group("ONLINE", "SECONDARY", "ON", None)).expect("a channel");
        assert_eq!(idle.lag_s, Some(0));
    }

    #[test]
    fn a_member_that_applies_nothing_has_no_lag() {
        for (state, applier, io) in [
            ("RECOVERING", "ON", "No"),
            ("ERROR", "OFF", "No"),
            ("UNREACHABLE", "ON", "No"),
            ("OFFLINE", "OFF", "No"),
            ("ONLINE", "OFF", "Yes"),
        ] {
            let channel = Channel::of_group(&group(state, "SECONDARY", applier, Some(0))).expect("a channel");
            assert_eq!((channel.lag_s, channel.io_running.as_deref()), (None, Some(io)), "{state} {applier}");
        }
    }

    #[test]
    fn a_primary_replicates_from_nobody() {
        assert_eq!(Channel::of_group(&group("ONLINE", "PRIMARY", "ON", Some(0))), None);
        assert_eq!(Channel::of_group(&Group::default()), None);
    }
}
