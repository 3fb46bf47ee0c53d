//! Running statements: their connections, their classes without values, their tables.

use serde::Serialize;

use super::performance_schema::REPLICATES;
use super::query::Named;
use mysql::{Connection, Error};

/// The longest statement text that a class is made from.
const TEXT_BYTES: usize = 16_384;
/// The longest class that is printed.
const CLASS_BYTES: usize = 1_024;

#[derive(Serialize)]
pub struct Running {
    id: u64,
    user: String,
    host: String,
    db: Option<String>,
    command: String,
    time_s: u64,
    state: String,
    /// Null if it was not requested or is missing.
    text: Option<String>,
    /// The statement without its values, and the tables that it names.
    class: Option<String>,
    tables: Vec<String>,
    /// Rows that it has read so far; null if the server does not report it.
    examined_rows: Option<u64>,
}

impl Running {
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether it waits for a table's definition.
    pub fn waits_for_metadata(&self) -> bool {
        self.state.to_ascii_lowercase().contains("metadata lock")
    }

    pub fn time_s(&self) -> u64 {
        self.time_s
    }

    pub fn class(&self) -> Option<String> {
        self.class.clone()
    }

    /// `database.table` of the first table that it names.
    pub fn table(&self) -> Option<String> {
        Some(self.whole(self.tables.first()?))
    }

    pub fn uses(&self, table: &str) -> bool {
        self.tables.iter().any(|name| self.whole(name).eq_ignore_ascii_case(table))
    }

    fn whole(&self, table: &str) -> String {
        match &self.db {
            Some(db) if !table.contains('.') => format!("{db}.{table}"),
            _ => table.to_owned(),
        }
    }
}

/// The longest first, without our own and those that wait for their client or for events.
pub fn running(
    connection: &mut Connection,
    performance_schema: bool,
    limit: u32,
    with_text: bool,
) -> Result<Vec<Running>, Error> {
    let uses_threads = performance_schema && !connection.is_mariadb();
    let (prefix, user, table) = if uses_threads {
        let user = format!("IF({REPLICATES}, 'system user', PROCESSLIST_USER)");
        ("PROCESSLIST_", user, "performance_schema.threads")
    } else {
        ("", "USER".to_owned(), "information_schema.PROCESSLIST")
    };
    let examined = if connection.is_mariadb() { "EXAMINED_ROWS" } else { "NULL" };
    let sql = format!(
        "SELECT {prefix}ID AS id, {user} AS user, {prefix}HOST AS host, {prefix}DB AS db, \
         {prefix}COMMAND AS command, {prefix}TIME AS time_s, {prefix}STATE AS state, \
         LEFT({prefix}INFO, {TEXT_BYTES}) AS text, {examined} AS examined FROM {table} \
         WHERE {prefix}ID <> CONNECTION_ID() AND {prefix}COMMAND NOT IN ('Sleep', 'Daemon') \
         ORDER BY {prefix}TIME DESC LIMIT {}",
        limit
    );
    let mut statements = Vec::new();
    connection.query(&sql, |columns, row| {
        let row = Named::new(columns, row);
        let text = |name| row.text(&[name]).unwrap_or_default();
        let own = row.text(&["text"]);
        statements.push(Running {
            id: row.number(&["id"]).unwrap_or(0),
            user: text("user"),
            host: text("host"),
            db: row.text(&["db"]),
            command: text("command"),
            time_s: row.number(&["time_s"]).unwrap_or(0),
            state: text("state"),
            class: own.as_deref().and_then(class_of),
            tables: own.as_deref().map(tables_of).unwrap_or_default(),
            text: own.filter(|_| with_text),
            examined_rows: row.number(&["examined"]),
        });
    })?;
    Ok(statements)
}

/// A statement without its values, truncated for people.
pub fn class_of(text: &str) -> Option<String> {
    let mut class = Vec::new();
    sql::fingerprint(sql::Mode::Strict, text.as_bytes(), true, &mut class);
    let mut class = String::from_utf8_lossy(&class).into_owned();
    if class.len() > CLASS_BYTES {
        let end = (0..=CLASS_BYTES).rev().find(|&at| class.is_char_boundary(at)).unwrap_or(0);
        class.truncate(end);
        class.push_str(" ...");
    }
    (!class.is_empty()).then_some(class)
}

/// The tables that it names.
pub fn tables_of(text: &str) -> Vec<String> {
    let names = sql::tables(text.as_bytes()).into_iter().take(8);
    names.map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::{CLASS_BYTES, class_of, tables_of};

    #[test]
    fn a_class_has_no_values_and_is_short() {
        let secret = "SELECT * FROM users WHERE token = 'hunter2' AND id IN (1, 2, 3)";
        let class = class_of(secret).unwrap();
        assert!(!class.contains("hunter2") && class.contains("users"), "{class}");
        assert_eq!(tables_of(secret), ["users"]);
        let long = format!("SELECT {} FROM t", "a + ".repeat(2000));
        assert!(class_of(&long).unwrap().len() <= CLASS_BYTES + 4);
        // A text that ends within a string shows nothing of that string.
        assert!(!class_of("SELECT * FROM t WHERE a = 'hunter2 and more").unwrap().contains("hunter2"));
        assert_eq!(class_of(""), None);
    }
}
