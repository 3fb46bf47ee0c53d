//! The list of threads: their states and durations; never what they execute.

use std::collections::BTreeMap;

use super::performance_schema::{REPLICATES, is_on};
use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::Values;

pub const PROCESSLIST: Kind = Kind::server(
    "processlist",
    "threads by command, by state where they do not sleep, the longest time_s by command, those at work for clients, and the number of our own connection",
    sample,
);

/// Takes no lock of the server; empty where performance_schema is off.
///
/// A state here is a stage, and a login has no stage. A connection without a user is still logging in: it is reported
/// as in the process list, as `Connect` and `login`. What replicates is a `Query` or a `Connect`, too.
fn threads() -> String {
    format!(
        "SELECT CASE WHEN {REPLICATES} THEN '{REPLICA}' \
         WHEN NAME = 'thread/sql/one_connection' AND PROCESSLIST_USER IS NULL THEN 'Connect' \
         ELSE PROCESSLIST_COMMAND END AS command, \
         IF(NAME = 'thread/sql/one_connection' AND PROCESSLIST_USER IS NULL, 'login', PROCESSLIST_STATE) AS state, \
         COUNT(*), MAX(PROCESSLIST_TIME) \
         FROM performance_schema.threads \
         WHERE PROCESSLIST_COMMAND IS NOT NULL AND PROCESSLIST_ID <> CONNECTION_ID() \
         GROUP BY command, state"
    )
}
/// The command of what replicates.
const REPLICA: &str = "Replica";
/// In MySQL it takes the mutex of the list of threads, which every new connection needs, while it builds its rows;
/// in MariaDB a shared lock.
const PROCESSES: &str = "SELECT COMMAND, STATE, COUNT(*), MAX(TIME) FROM information_schema.PROCESSLIST \
    WHERE ID <> CONNECTION_ID() GROUP BY COMMAND, STATE";

/// States of threads that wait for work, not for a resource.
const IDLE: [&str; 5] = ["Sleep", "Daemon", "Binlog Dump", "Binlog Dump GTID", "Slave_IO"];

/// Commands of threads that serve no client, or do nothing.
const NOT_SERVING: [&str; 9] = [
    REPLICA,
    "Sleep",
    "Daemon",
    "Binlog Dump",
    "Binlog Dump GTID",
    "Slave_IO",
    "Slave_SQL",
    "Slave_worker",
    "Connect",
];
/// Some of MySQL's threads that replicate are queries by their command; in these states they wait.
const REPLICATING: [&str; 3] =
    ["Waiting for an event from Coordinator", "Replica has read all", "Slave has read all"];

struct Group {
    command: String,
    state: String,
    threads: u64,
    longest_s: u64,
}

impl Group {
    fn serves(&self) -> bool {
        !NOT_SERVING.contains(&self.command.as_str())
            && !REPLICATING.iter().any(|state| self.state.starts_with(state))
    }
}

fn sample(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    // MariaDB's own list is cheap, and its performance_schema is usually off.
    let uses_threads = !session.connection.is_mariadb() && {
        let known = session.understood.performance_schema;
        let is_on = known.map_or_else(|| is_on(&mut session.connection), Ok)?;
        session.understood.performance_schema = Some(is_on);
        is_on
    };
    let statement = if uses_threads { threads() } else { PROCESSES.to_owned() };
    let mut groups = Vec::new();
    session.connection.query(&statement, |_, row| {
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
    values.single("own", u64::from(session.connection.id()));
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
    values.single("serving", groups.iter().filter(|group| group.serves()).map(|group| group.threads).sum());
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
                "serving": {"": 6},
                "threads": {"Daemon": 1, "Execute": 2, "Query": 4, "Sleep": 40},
                "states": {"statistics": 1, "updating": 5},
                "longest_s": {"Execute": 1, "Query": 9},
            })
        );
    }

    #[test]
    fn threads_that_replicate_serve_nobody() {
        let group = |command: &str, state: &str, threads| Group {
            command: command.to_owned(),
            state: state.to_owned(),
            threads,
            longest_s: 0,
        };
        let groups = [
            group("Query", "executing", 3),
            // MySQL's workers are queries on a replica, and connect for ever in a group.
            group("Query", "Waiting for an event from Coordinator", 4),
            group("Query", "Replica has read all relay log; waiting for more updates", 1),
            group("Connect", "Waiting for an event from Coordinator", 4),
            group("Connect", "waiting for handler commit", 1),
            group("Slave_SQL", "Slave has read all relay log", 1),
            group("Slave_worker", "Opening tables", 1),
        ];
        assert_eq!(collect(|values| write(&groups, values))["serving"], json!({"": 3}));
    }
}
