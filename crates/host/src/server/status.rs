//! SHOW GLOBAL STATUS and the counters of InnoDB: rows of a name and a number.

use super::query::query_first;
use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::{Values, is_json_number};
use mysql::Row;

pub const MYSQL_STATUS: Kind = Kind::server(
    "mysql_status",
    "the numbers of SHOW GLOBAL STATUS, names in lower case; states of semi-sync and Galera as 1 and 0",
    sample_status,
);
pub const INNODB_METRICS: Kind = Kind::server(
    "innodb_metrics",
    "the enabled counters of information_schema.INNODB_METRICS (needs the privilege PROCESS)",
    sample_innodb,
);

/// MariaDB has a column ENABLED since 10.4, MySQL and older MariaDB have STATUS.
const INNODB_STATEMENTS: [&str; 2] = [
    "SELECT NAME, COUNT FROM information_schema.INNODB_METRICS WHERE STATUS = 'enabled'",
    "SELECT NAME, COUNT FROM information_schema.INNODB_METRICS WHERE ENABLED = 1",
];

fn sample_status(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    let mut name = String::new();
    session.connection.query("SHOW GLOBAL STATUS", |_, row| write_number(row, &mut name, values))?;
    Ok(())
}

fn sample_innodb(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    let mut name = String::new();
    query_first(&mut session.connection, &INNODB_STATEMENTS, &mut session.understood.innodb, |_, row| {
        write_number(row, &mut name, values);
    })?;
    Ok(())
}

/// A row of name and value, if the value is a number or a state. `name` is a buffer.
fn write_number(row: &Row<'_>, name: &mut String, values: &mut Values) {
    let (Some(key), Some(value)) = (row.get(0), row.get(1)) else { return };
    let (Ok(key), Ok(text)) = (std::str::from_utf8(key), std::str::from_utf8(value)) else { return };
    let number = if is_json_number(value) { Some(text) } else { state(key, text) };
    if let Some(number) = number {
        name.clear();
        name.push_str(key);
        name.make_ascii_lowercase();
        values.metric(name);
        values.number_text("", number);
    }
}

/// Whether semi-synchronous replication or a cluster is up; both report it as a word.
fn state(name: &str, text: &str) -> Option<&'static str> {
    let is_state = ["wsrep_", "rpl_semi_sync_"]
        .iter()
        .any(|prefix| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)));
    match text {
        "ON" | "Primary" if is_state => Some("1"),
        "OFF" | "non-Primary" | "Disconnected" if is_state => Some("0"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::state;

    #[test]
    fn states_of_replication_and_clusters_are_numbers() {
        for (name, text, number) in [
            ("Rpl_semi_sync_master_status", "OFF", Some("0")),
            ("Rpl_semi_sync_source_status", "ON", Some("1")),
            ("wsrep_cluster_status", "Primary", Some("1")),
            ("wsrep_cluster_status", "non-Primary", Some("0")),
            ("wsrep_cluster_status", "Disconnected", Some("0")),
            ("wsrep_ready", "OFF", Some("0")),
            ("wsrep_local_state_comment", "Synced", None),
            ("Compression", "OFF", None),
            ("é", "ON", None),
        ] {
            assert_eq!(state(name, text), number, "{name} {text}");
        }
    }
}
