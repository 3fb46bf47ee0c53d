//! Where the values of a server's variables come from, and values that SHOW truncates.

use std::collections::{BTreeMap, HashSet};

use super::redact;
use crate::server::query::rows;
use mysql::Connection;

/// The length at which MySQL's SHOW VARIABLES truncates a value; MariaDB shows all of it.
const CUT_AT: usize = 1024;

/// Whether it may be truncated. Counted in characters, as the server does.
pub fn may_be_cut(value: &str) -> bool {
    value.len() >= CUT_AT && value.chars().count() == CUT_AT
}

/// A variable's whole value.
pub fn whole(connection: &mut Connection, name: &str) -> Option<String> {
    let is_plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte));
    if !is_plain {
        return None;
    }
    let rows = rows(connection, &format!("SELECT @@GLOBAL.{name}")).ok()?;
    rows.into_iter().next()?.into_iter().next()?
}

const SESSION_VARIABLES: &str = "SELECT VARIABLE_NAME FROM performance_schema.variables_by_thread WHERE THREAD_ID = \
     (SELECT THREAD_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = CONNECTION_ID())";

/// The variables that a SET GLOBAL changed since the server started; on MariaDB without those that have their default
/// again. MySQL records the SET of every session in the same place, so there only variables without a session value
/// are known.
pub fn set_since_start(connection: &mut Connection) -> Option<Vec<String>> {
    let sql = if connection.is_mariadb() {
        "SELECT LOWER(VARIABLE_NAME) FROM information_schema.SYSTEM_VARIABLES \
         WHERE GLOBAL_VALUE_ORIGIN = 'SQL' AND NOT (GLOBAL_VALUE <=> DEFAULT_VALUE)"
    } else {
        // Values that the server set itself have no user.
        "SELECT VARIABLE_NAME FROM performance_schema.variables_info \
         WHERE VARIABLE_SOURCE = 'DYNAMIC' AND SET_USER IS NOT NULL"
    };
    let mut names: Vec<String> = rows(connection, sql).ok()?.into_iter().flatten().flatten().collect();
    if !connection.is_mariadb() {
        let of_sessions = rows(connection, SESSION_VARIABLES).ok()?;
        // Without performance_schema none is listed.
        let of_sessions: HashSet<String> = of_sessions.into_iter().flatten().flatten().collect();
        if of_sessions.is_empty() {
            return None;
        }
        names.retain(|name| !of_sessions.contains(name));
    }
    names.sort_unstable();
    Some(names)
}

/// What SET PERSIST has written, without values that look like passwords. MariaDB has no such file.
pub fn persisted(connection: &mut Connection) -> Option<BTreeMap<String, String>> {
    if connection.is_mariadb() {
        return None;
    }
    let sql = "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.persisted_variables";
    let pair = |row: Vec<Option<String>>| {
        let mut cells = row.into_iter();
        let name = cells.next()??;
        let value = cells.next()?.unwrap_or_default();
        let value = redact::value(&name, &value).to_owned();
        Some((name, value))
    };
    Some(rows(connection, sql).ok()?.into_iter().filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::may_be_cut;

    #[test]
    fn a_value_may_be_cut_where_show_cuts() {
        for (count, expected) in [(0, false), (1023, false), (1024, true), (1025, false)] {
            assert_eq!(may_be_cut(&"x".repeat(count)), expected);
            assert_eq!(may_be_cut(&"ü".repeat(count)), expected, "in characters");
        }
    }
}
