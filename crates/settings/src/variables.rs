//! Variables of a live server: read, set, read back, and put back from what the journal says alone.

use std::time::Duration;

use anyhow::Context;

use super::foreign::{self, Foreign};
use super::journal::{Open, ServerStart, Undo, VariableValue};
use super::world::{self, Connection, since_boot};
use base::error::AgentError;
use mysql::ServerArguments;

/// A buffer pool that becomes smaller must first write pages; the statement itself returns sooner.
pub const STATEMENT: Duration = Duration::from_secs(60);
/// How long the server may take to let go of an earlier change (a buffer pool that is still resized).
const TIMEOUT: Duration = Duration::from_secs(20);

/// MySQL resizes in the background, and tells the old size until it is done.
pub const SETTLING: &[&str] = &["innodb_buffer_pool_size"];

/// Longer than any value set by hand.
const LONGEST_BYTES: usize = 64 << 10;

/// ER_UNKNOWN_SYSTEM_VARIABLE.
const UNKNOWN_VARIABLE: u16 = 1193;

/// ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED: once we are gone, there is room for one.
const NO_ROOM: [u16; 3] = [1040, 1203, 1226];

/// What our session has of its own, because global values may be among those that we set: an undo must not depend on
/// them. Quotes and backslashes mean what we think they mean, whatever init_connect has set. A server lacks some.
const SESSION: &[(&str, &str)] = &[
    ("max_execution_time", "0"),
    ("max_statement_time", "0"),
    ("sql_big_selects", "1"),
    ("sql_mode", "''"),
    ("sql_select_limit", "18446744073709551615"),
    ("wait_timeout", "28800"),
];

/// Setting one of these may move the others: servers keep them in order.
const COUPLED: &[(&str, &[&str])] = &[
    ("binlog_cache_size", &["max_binlog_cache_size"]),
    ("binlog_stmt_cache_size", &["max_binlog_stmt_cache_size"]),
    ("character_set_connection", &["collation_connection"]),
    ("character_set_database", &["collation_database"]),
    ("character_set_server", &["collation_server"]),
    ("collation_connection", &["character_set_connection"]),
    ("collation_database", &["character_set_database"]),
    ("collation_server", &["character_set_server"]),
    ("innodb_io_capacity", &["innodb_io_capacity_max"]),
    ("innodb_io_capacity_max", &["innodb_io_capacity"]),
    ("innodb_max_dirty_pages_pct", &["innodb_max_dirty_pages_pct_lwm"]),
    ("innodb_max_dirty_pages_pct_lwm", &["innodb_max_dirty_pages_pct"]),
    ("max_binlog_cache_size", &["binlog_cache_size"]),
    ("max_binlog_stmt_cache_size", &["binlog_stmt_cache_size"]),
    ("read_only", &["super_read_only"]),
    ("super_read_only", &["read_only"]),
];

/// The first may never be above the second.
pub const PAIRS: &[(&str, &str)] = &[
    ("binlog_cache_size", "max_binlog_cache_size"),
    ("binlog_stmt_cache_size", "max_binlog_stmt_cache_size"),
    ("innodb_io_capacity", "innodb_io_capacity_max"),
    ("innodb_max_dirty_pages_pct_lwm", "innodb_max_dirty_pages_pct"),
];

/// A logged-in session on the server whose variables are set.
pub struct Server {
    connection: Connection,
    login: ServerArguments,
}

impl Server {
    pub fn connect(login: &ServerArguments) -> anyhow::Result<Server> {
        let Some(options) = login.options(STATEMENT)? else {
            let text = "a server variable needs --mysql-socket, --mysql-host or --mysql-defaults-file";
            return Err(AgentError::Input(text.to_owned()).into());
        };
        let mut connection =
            Connection::open(&options).with_context(|| format!("the server at {}", options.endpoint))?;
        for (name, value) in SESSION {
            match connection.execute(&format!("SET SESSION {name} = {value}")) {
                Err(error) if error.code() != Some(UNKNOWN_VARIABLE) => {
                    return Err(error).context("the server");
                }
                _ => {}
            }
        }
        connection.execute("SET NAMES utf8mb4").context("the server")?;
        Ok(Server { connection, login: login.pinned(&options)? })
    }

    /// The value as the server prints it; None is NULL.
    pub fn read(&mut self, name: &str) -> anyhow::Result<Option<String>> {
        let asked = self.ask(&format!("SELECT @@GLOBAL.{}", checked_name(name)?), 0);
        let value = asked.map_err(|error| -> anyhow::Error {
            match error.code() {
                Some(_) => AgentError::Refused(format!("{name}: {error}")).into(),
                None => anyhow::Error::new(error).context("the server"),
            }
        })?;
        if value.as_ref().is_some_and(|text| text.contains(char::REPLACEMENT_CHARACTER)) {
            let text = format!("{name}: its value is no text, and could not be written back");
            return Err(AgentError::Refused(text).into());
        }
        Ok(value)
    }

    /// Refuse values that could not be restored later: each is set to what it is, which changes nothing.
    pub fn prove_way_back(&mut self, values: &[VariableValue]) -> anyhow::Result<()> {
        for VariableValue { name, value } in values {
            // To set one to itself would give it the default collation. Its name is one that the server knows.
            if name.starts_with("character_set_") && values.len() > 1 {
                continue;
            }
            let written = self.write(name, value.as_deref());
            let seen = self.read(name)?;
            let why = match written {
                Err(error) => format!("{error:#}"),
                Ok(()) if is(value.as_deref(), seen.as_deref()) => continue,
                Ok(()) => format!("the server makes it {}", shown(seen.as_deref())),
            };
            let value = shown(value.as_deref());
            let text =
                format!("{name}: its value {value} could not be restored, so nothing was changed: {why}");
            return Err(AgentError::Refused(text).into());
        }
        Ok(())
    }

    /// Undo a change at once that locks new sessions of this account out: later nothing could undo it.
    pub fn prove_new_session(&mut self, values: &[VariableValue]) -> anyhow::Result<()> {
        let Err(cause) = Server::connect(&self.login).and_then(|mut server| server.start()) else {
            return Ok(());
        };
        let code = cause.chain().find_map(|cause| cause.downcast_ref::<mysql::Error>()?.code());
        if code.is_some_and(|code| NO_ROOM.contains(&code)) {
            return Ok(());
        }
        for VariableValue { name, value } in values {
            self.write(name, value.as_deref())?;
        }
        let name = values.first().map_or("", |value| &value.name);
        let text =
            format!("{name}: it was undone, because a new session could not have undone it: {cause:#}");
        Err(AgentError::Refused(text).into())
    }

    /// Whether it says that it has no such variable: a plugin or component that is taken away takes its own along.
    fn lacks(&mut self, name: &str) -> bool {
        let asked = checked_name(name).map(|name| self.ask(&format!("SELECT @@GLOBAL.{name}"), 0));
        matches!(asked, Ok(Err(error)) if error.code() == Some(UNKNOWN_VARIABLE))
    }

    /// One column of the only row of an answer.
    fn ask(&mut self, sql: &str, column: usize) -> Result<Option<String>, mysql::Error> {
        let mut found = None;
        self.connection.query(sql, |_, row| {
            found = row.get(column).map(|value| String::from_utf8_lossy(value).into_owned());
        })?;
        Ok(found)
    }

    /// Which server this is, and when it started.
    pub fn start(&mut self) -> anyhow::Result<ServerStart> {
        // MySQL; MariaDB since 10.5.26; any other, by where it is.
        let names =
            ["@@GLOBAL.server_uuid", "@@GLOBAL.server_uid", "CONCAT_WS(' ', @@hostname, @@port, @@datadir)"];
        let mut server = None;
        for name in names {
            match self.ask(&format!("SELECT {name}"), 0) {
                Ok(found) => server = found,
                Err(error) if error.code() == Some(UNKNOWN_VARIABLE) => continue,
                Err(error) => return Err(error).context("the server"),
            }
            break;
        }
        let server = server.context("the server does not say which one it is")?;
        // Both count from the clock at which a statement begins: within one second the difference is exact.
        loop {
            let now = self.ask("SELECT UNIX_TIMESTAMP()", 0).context("the server")?;
            let uptime = self.ask("SHOW GLOBAL STATUS LIKE 'Uptime'", 1).context("the server")?;
            if now == self.ask("SELECT UNIX_TIMESTAMP()", 0).context("the server")? {
                let number = |text: Option<String>| text.and_then(|text| text.parse::<i64>().ok());
                let started_s = number(now).zip(number(uptime)).map(|(now, uptime)| now - uptime);
                let started_s = started_s.context("the server does not say since when it runs")?;
                return Ok(ServerStart { server, started_s });
            }
        }
    }

    /// Whether a variable has the wanted value, also where the server says it in other words: by number, or by a mode
    /// that stands for others. What it makes of the text it shows in our own session, of which nobody else knows.
    pub fn has(&mut self, name: &str, wanted: &str, seen: Option<&str>) -> anyhow::Result<bool> {
        let Some(seen) = seen else { return Ok(false) };
        if same(wanted, seen) || !may_be_in_other_words(name, wanted, seen) {
            return Ok(same(wanted, seen));
        }
        let name = checked_name(name)?;
        let ours = format!("SELECT @@SESSION.{name}");
        let made = self.ask(&ours, 0).and_then(|before| {
            self.connection.execute(&format!("SET SESSION {name} = @@GLOBAL.{name}"))?;
            let made = literal(name, wanted).ok().map_or(Ok(None), |literal| {
                self.connection.execute(&format!("SET SESSION {name} = {literal}"))?;
                self.ask(&ours, 0)
            });
            let back = before.unwrap_or_default().replace('\\', "\\\\").replace('\'', "''");
            // It was empty when our strings began to mean what they do.
            self.connection.execute(&format!("SET SESSION {name} = '{back}'"))?;
            made
        });
        match made {
            Ok(made) => Ok(made.is_some_and(|made| same(&made, seen))),
            // No variable of sessions, or it takes no such value: then nothing tells that they are the same.
            Err(error) if error.code().is_some() => Ok(false),
            Err(error) => Err(anyhow::Error::new(error).context("the server")),
        }
    }

    /// Statements of clients so far.
    pub fn questions(&mut self) -> anyhow::Result<u64> {
        let count = self.ask("SHOW GLOBAL STATUS LIKE 'Questions'", 1).context("the server")?;
        count.and_then(|text| text.parse().ok()).context("the server does not count its statements")
    }

    /// How to reach it later.
    pub fn login(&self) -> &ServerArguments {
        &self.login
    }

    /// How to bring back the value and what is coupled with it.
    pub fn undo(&mut self, name: &str, before: Option<&str>) -> anyhow::Result<Undo> {
        let value = |name: &str, value: Option<&str>| VariableValue {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        };
        let mut restore = vec![value(name, before)];
        let coupled = COUPLED.iter().find(|(one, _)| *one == name).map_or(&[][..], |(_, others)| others);
        for other in coupled {
            // This server may not have it.
            if let Ok(now) = self.read(other) {
                restore.push(value(other, now.as_deref()));
            }
        }
        Ok(Undo::Variable { login: self.login.clone(), restore, start: Some(self.start()?) })
    }

    pub fn write(&mut self, name: &str, value: Option<&str>) -> anyhow::Result<()> {
        let literal = value.map_or(Ok("NULL".to_owned()), |value| literal(name, value))?;
        let statement = format!("SET GLOBAL {} = {literal}", checked_name(name)?);
        self.connection.execute(&statement).map_err(|error| match error.code() {
            Some(_) => {
                AgentError::Refused(format!("{name}: cannot be set to {}: {error}", shown(value))).into()
            }
            None => anyhow::Error::new(error).context("the server"),
        })?;
        Ok(())
    }

    /// The values of now, in the order of `values`.
    pub fn read_all(&mut self, values: &[VariableValue]) -> anyhow::Result<Vec<Option<String>>> {
        values.iter().map(|value| self.read(&value.name)).collect()
    }

    /// Until all hold: the second may be what keeps the first from its place, or the server still be at work.
    fn restore(&mut self, values: &[VariableValue]) -> anyhow::Result<()> {
        let deadline = since_boot() + TIMEOUT;
        loop {
            // Before we look: a process that was stopped for longer than our patience after a write must look again.
            let is_over = since_boot() > deadline;
            let mut wrong = None;
            for VariableValue { name, value } in values {
                let seen = self.read(name)?;
                if is(value.as_deref(), seen.as_deref()) {
                    continue;
                }
                wrong = Some(match self.write(name, value.as_deref()) {
                    Ok(()) => {
                        let (value, seen) = (shown(value.as_deref()), shown(seen.as_deref()));
                        format!("{name}: set back to {value}, but the server made it {seen}")
                    }
                    Err(error) => format!("{error:#}"),
                });
            }
            match wrong {
                None => return Ok(()),
                Some(text) if is_over => return Err(AgentError::Refused(text).into()),
                Some(_) => world::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// Put back the values of an entry on the server that the journal names, unless they ended with its start. A note says so.
pub fn restore(
    login: &ServerArguments,
    values: &[VariableValue],
    start: Option<&ServerStart>,
    entry: &Open,
) -> anyhow::Result<Option<String>> {
    let mut server = Server::connect(login)?;
    let (mut ours, mut became) = (values, entry.became.as_slice());
    if let Some(start) = start {
        let now = server.start()?;
        if now.server != start.server {
            let text = format!("another server answers now: {}, and it was {}", now.server, start.server);
            return Err(Foreign(text).into());
        }
        if now.started_s != start.started_s {
            if !entry.lasts {
                return Ok(Some("the server was restarted since".to_owned()));
            }
            // It started with our file: what was written is ours again, and the others are what the start made them.
            (ours, became) = (&values[..values.len().min(1)], &[]);
        }
    }
    if let Some(gone) = values.iter().find(|value| server.lacks(&value.name)) {
        let text = format!(
            "{}: the server has no such variable any more: what brought it was taken away",
            gone.name
        );
        return Err(Foreign(text).into());
    }
    let now = server.read_all(values)?;
    let values_now: Vec<foreign::Value<'_>> = values
        .iter()
        .zip(&now)
        .map(|(v, now)| foreign::Value { name: &v.name, original: v.value.as_deref(), now: now.as_deref() })
        .collect();
    foreign::check(&values_now, became, &entry.wrote, |_, wanted, seen| same(wanted, seen))?;
    server.restore(ours).map(|()| None)
}

/// Refuse to keep a change of which the original is back, or of another start of the server, or of another server.
pub fn must_not_be_restored(
    login: &ServerArguments,
    values: &[VariableValue],
    start: Option<&ServerStart>,
) -> anyhow::Result<()> {
    let mut server = Server::connect(login)?;
    let refused = |text: String| Err(AgentError::Refused(text).into());
    let Some(VariableValue { name, value }) = values.first() else { return Ok(()) };
    let now = server.start()?;
    if start.is_some_and(|start| start.server != now.server) {
        return refused(format!("{name}: another server answers now: {}", now.server));
    }
    if start.is_some_and(|start| start.started_s != now.started_s) {
        return refused(format!("{name}: the server was restarted since, which undid what was set"));
    }
    if is(value.as_deref(), server.read(name)?.as_deref()) {
        return refused(format!("{name} is {} again: what was set was undone", shown(value.as_deref())));
    }
    Ok(())
}

/// Whether a variable has this value; None is NULL.
pub fn is(wanted: Option<&str>, seen: Option<&str>) -> bool {
    match (wanted, seen) {
        (Some(wanted), Some(seen)) => same(wanted, seen),
        (wanted, seen) => wanted == seen,
    }
}

fn shown(value: Option<&str>) -> String {
    value.map_or("NULL".to_owned(), |text| format!("{text:?}"))
}

/// A component's variable begins with the component's name: `validate_password.length`.
fn checked_name(name: &str) -> anyhow::Result<&str> {
    let plain = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if name.len() > 64 || name.split('.').count() > 2 || !name.split('.').all(plain) {
        return Err(AgentError::Input(format!("{name:?} is no name of a variable")).into());
    }
    Ok(name)
}

/// The value as SQL takes it: a number bare, anything else quoted.
fn literal(name: &str, value: &str) -> anyhow::Result<String> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_decimal = value
        .strip_prefix('-')
        .unwrap_or(value)
        .split_once('.')
        .is_some_and(|(whole, part)| digits(whole) && digits(part) && value.len() < 20);
    if is_decimal || integer(value).is_some() {
        return Ok(value.to_owned());
    }
    if value.len() > LONGEST_BYTES {
        let text = format!("{name}: a value of {} bytes is longer than {LONGEST_BYTES}", value.len());
        return Err(AgentError::Input(text).into());
    }
    // Without NO_BACKSLASH_ESCAPES, which `connect` sees to, these are all that need an escape.
    let escaped = value.replace('\\', "\\\\").replace('\'', "''").replace('\0', "\\0");
    Ok(format!("'{escaped}'"))
}

/// What fits a server's integers, signed or unsigned.
fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse::<i128>().ok().filter(|_| plain)?;
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&number).then_some(number)
}

/// Whether the server may print the wanted value in other words. A number for a number is another value.
fn may_be_in_other_words(name: &str, wanted: &str, seen: &str) -> bool {
    let is_number = |text: &str| text.trim().parse::<f64>().is_ok();
    let is_list = name == "sql_mode" || seen.contains([',', '=']);
    !is_number(seen) && (is_number(wanted) || is_list || name.starts_with("character_set_"))
}

/// Whether the server's text says the wanted value.
pub fn same(wanted: &str, seen: &str) -> bool {
    let plain = |text: &str| match text.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" => "1".to_owned(),
        "off" | "false" | "no" => "0".to_owned(),
        other => other.to_owned(),
    };
    let (wanted, seen) = (plain(wanted), plain(seen));
    if wanted == seen {
        return true;
    }
    // Not as floating point: max_binlog_cache_size differs from its limit in the last four of 20 digits.
    if let (Some(one), Some(other)) = (integer(&wanted), integer(&seen)) {
        return one == other;
    }
    if let (Ok(one), Ok(other)) = (wanted.parse::<f64>(), seen.parse::<f64>()) {
        return one == other;
    }
    // optimizer_switch takes some of its switches and prints all of them; sets come in the server's own order.
    let parts: Vec<&str> = seen.split(',').collect();
    if let Some(number) = integer(&wanted).filter(|_| seen.contains('=')) {
        let bits = parts.iter().enumerate().map(|(at, part)| i128::from(part.ends_with("=on")) << at.min(64));
        return bits.sum::<i128>() == number;
    }
    let named: Vec<&str> = wanted.split(',').collect();
    named.iter().all(|part| parts.contains(part)) && (wanted.contains('=') || named.len() == parts.len())
}

#[cfg(test)]
mod tests {
    use super::{checked_name, literal, may_be_in_other_words, same};

    #[test]
    fn values_as_servers_print_them() {
        for (wanted, seen) in [
            ("on", "1"),
            ("OFF", "0"),
            ("90", "90.000000"),
            ("mrr=off", "a=on,mrr=off,b=on"),
            ("B,A", "a,b"),
            ("5", "a=on,mrr=off,b=on"),
            ("0", "a=off,b=off"),
        ] {
            assert!(same(wanted, seen), "{wanted} {seen}");
        }
        for (wanted, seen) in [("4", "a=on,mrr=off,b=on"), ("13", "a=on,mrr=off,b=on"), ("5", "a,b")] {
            assert!(!same(wanted, seen), "{wanted} {seen}");
        }
        let near = ("18446744073709547520", "18446744073709551615");
        for (wanted, seen) in [near, ("1", "2"), ("on", "2"), ("a", "a,b"), ("mrr=on", "a=on,mrr=off")] {
            assert!(!same(wanted, seen), "{wanted} {seen}");
        }
    }

    #[test]
    fn only_words_are_asked_for_in_a_session() {
        for (name, wanted, seen) in [
            ("sql_mode", "ANSI", "REAL_AS_FLOAT,ANSI"),
            ("sql_mode", "0", ""),
            ("tx_isolation", "1", "READ-COMMITTED"),
            ("optimizer_switch", "default", "a=on,b=off"),
            ("character_set_server", "utf8", "utf8mb3"),
        ] {
            assert!(may_be_in_other_words(name, wanted, seen), "{name} {wanted} {seen}");
        }
        for (name, wanted, seen) in [
            ("innodb_io_capacity", "5000", "2000"),
            ("long_query_time", "0.1", "10.000000"),
            ("tx_isolation", "SERIALIZABLE", "READ-COMMITTED"),
        ] {
            assert!(!may_be_in_other_words(name, wanted, seen), "{name} {wanted} {seen}");
        }
    }

    #[test]
    fn nothing_but_a_value_gets_into_a_statement() {
        assert_eq!(literal("x", "134217728").unwrap(), "134217728");
        assert_eq!(literal("x", "-1.5").unwrap(), "-1.5");
        assert_eq!(literal("x", "ROW").unwrap(), "'ROW'");
        assert_eq!(literal("x", "1;2").unwrap(), "'1;2'");
        assert_eq!(literal("x", "1.2.3").unwrap(), "'1.2.3'");
        assert_eq!(literal("x", "18446744073709551615").unwrap(), "18446744073709551615");
        assert_eq!(literal("x", "18446744073709551616").unwrap(), "'18446744073709551616'");
        assert_eq!(literal("x", "a\\' OR 1\n\0").unwrap(), "'a\\\\'' OR 1\n\\0'");
        assert!(literal("x", &"a".repeat(1 << 20)).is_err());
        for bad in ["", "a b", "a`", "a;b", ".a", "a.", "a.b.c"] {
            assert!(checked_name(bad).is_err(), "{bad:?}");
        }
        assert!(checked_name("validate_password.length").is_ok());
    }
}
