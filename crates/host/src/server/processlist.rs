//! The list of threads: their states and durations; never what they execute.

use std::collections::BTreeMap;

use super::performance_schema::is_on;
use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::Values;

pub const PROCESSLIST: Kind = Kind::server(
    "processlist",
    "threads by command, by state where they do not sleep, and the longest time_s by command",
    sample,
);

/// Takes no lock of the server; empty where performance_schema is off.
///
/// A state here is a stage, and a login has no stage. A connection without a user is still logging in: it is reported
/// as in the process list, as `Connect` and `login`.
const THREADS: &str = "SELECT \
    IF(NAME = 'thread/sql/one_connection' AND PROCESSLIST_USER IS NULL, 'Connect', PROCESSLIST_COMMAND) AS command, \
    IF(NAME = 'thread/sql/one_connection' AND PROCESSLIST_USER IS NULL, 'login', PROCESSLIST_STATE) AS state, \
    COUNT(*), MAX(PROCESSLIST_TIME) \
    FROM performance_schema.threads \
    WHERE PROCESSLIST_COMMAND IS NOT NULL AND PROCESSLIST_ID <> CONNECTION_ID() \
    GROUP BY command, state";
/// In MySQL it takes the mutex of the list of threads, which every new connection needs, while it builds its rows;
/// in MariaDB a shared lock.
const PROCESSES: &str = "SELECT COMMAND, STATE, COUNT(*), MAX(TIME) FROM information_schema.PROCESSLIST \
    WHERE ID <> CONNECTION_ID() GROUP BY COMMAND, STATE";

/// States of threads that wait for work, not for a resource.
const IDLE: [&str; 5] = ["Sleep", "Daemon", "Binlog Dump", "Binlog Dump GTID", "Slave_IO"];

struct Group {
    command: String,
    state: String,
    threads: u64,
    longest_s: u64,
}

fn sample(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    // MariaDB's own list is cheap, and its performance_schema is usually off.
    let uses_threads = !session.connection.is_mariadb() && {
        let known = session.understood.performance_schema;
        let is_on = known.map_or_else(|| is_on(&mut session.connection), Ok)?;
        session.understood.performance_schema = Some(is_on);
        is_on
    };
    let statement = if uses_threads { THREADS } else { PROCESSES };
    let mut groups = Vec::new();
    session.connection.query(statement, |_, row| {
        let text = |column| row.get(column).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        groups.push(Group {
            command: text(0),
            state: text(1),
            threads: text(2).parse().unwrap_or(0),
            // A clock that was set back makes it negative.
            longest_s: text(3).parse().unwrap_or(0),
        });
    })?;
    write(&groups, values);
    Ok(())
}

fn write(groups: &[Group], values: &mut Values) {
    let mut threads = BTreeMap::<&str, u64>::new();
    let mut states = BTreeMap::<&str, u64>::new();
    let mut longest_s = BTreeMap::<&str, u64>::new();
    for group in groups {
        *threads.entry(&group.command).or_default() += group.threads;
        if !IDLE.contains(&group.command.as_str()) {
            *states.entry(&group.state).or_default() += group.threads;
            let longest = longest_s.entry(&group.command).or_default();
            *longest = group.longest_s.max(*longest);
        }
    }
    for (metric, numbers) in [("threads", threads), ("states", states), ("longest_s", longest_s)] {
        values.metric(metric);
        for (label, number) in numbers {
            values.value(label, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Group, write};
    use crate::sample::values::collect;
    use serde_json::json;

    #[test]
    fn sleepers_are_counted_and_have_no_state() {
        let group = |command: &str, state: &str, threads, longest_s| Group {
            command: command.to_owned(),
            state: state.to_owned(),
            threads,
            longest_s,
        };
        let groups = [
            group("Sleep", "", 40, 9000),
            group("Query", "updating", 3, 7),
            group("Query", "statistics", 1, 9),
            group("Execute", "updating", 2, 1),
            group("Daemon", "Waiting on empty queue", 1, 100_000),
        ];
        assert_eq!(
            collect(|values| write(&groups, values)),
            json!({
                "threads": {"Daemon": 1, "Execute": 2, "Query": 4, "Sleep": 40},
                "states": {"statistics": 1, "updating": 5},
                "longest_s": {"Execute": 1, "Query": 9},
            })
        );
    }
}
