//! What makes a class: its key, one dimension after another, as bytes that are compared whole.

use std::borrow::Cow;

use crate::event::{Command, Event};
use sql::{self, Mode};

/// One way to tell events apart. Their order here is their order in keys and in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Dimension {
    // Also by the names that pt-query-digest and PMM have for them.
    #[value(aliases = ["fingerprint", "queryid"])]
    Class,
    #[value(aliases = ["users", "username"])]
    User,
    #[value(aliases = ["hosts", "client_host"])]
    Host,
    #[value(aliases = ["databases", "db", "schema"])]
    Database,
    /// All tables of the statement.
    #[value(alias = "tables")]
    Table,
    Session,
    Command,
}

impl Dimension {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Class => "class",
            Dimension::User => "user",
            Dimension::Host => "host",
            Dimension::Database => "database",
            Dimension::Table => "table",
            Dimension::Session => "session",
            Dimension::Command => "command",
        }
    }
}

/// The fingerprint of an event, into `out`. True where any statement of its shape has the same one.
pub fn fingerprint(mode: Mode, event: &Event<'_>, out: &mut Vec<u8>) -> bool {
    match event.command {
        Command::Query => sql::fingerprint_of_shape(mode, event.text, event.is_cut, out),
        Command::Execute | Command::BulkExecute if !event.text.is_empty() => {
            sql::fingerprint_of_shape(mode, event.text, event.is_cut, out)
        }
        Command::Rows => {
            out.clear();
            out.extend_from_slice(event.text);
            false
        }
        command => {
            out.clear();
            out.extend_from_slice(b"administrator command: ");
            out.extend_from_slice(command_name(command).as_bytes());
            false
        }
    }
}

/// The tables of a fingerprint, or of the class of changes to rows.
#[must_use]
pub fn tables(fingerprint: &[u8]) -> Vec<Vec<u8>> {
    sql::tables(fingerprint.strip_suffix(b" (rows)").unwrap_or(fingerprint))
}

/// By the byte of the protocol.
#[rustfmt::skip]
const NAMES: [&str; 0x20] = [
    "Sleep", "Quit", "Init DB", "Query", "Field List", "Create DB", "Drop DB", "Refresh",
    "Shutdown", "Statistics", "Processlist", "Connect", "Kill", "Debug", "Ping", "Time",
    "Delayed insert", "Change user", "Binlog Dump", "Table Dump", "Connect Out", "Register Slave",
    "Prepare", "Execute", "Long Data", "Close stmt", "Reset stmt", "Set option", "Fetch", "Daemon",
    "Binlog Dump GTID", "Reset Connection",
];

/// A command as servers write it into their logs.
#[must_use]
pub fn command_name(command: Command) -> Cow<'static, str> {
    let byte = match command {
        Command::Connect => 0x0b,
        Command::Quit => 0x01,
        Command::InitDb => 0x02,
        Command::Query => 0x03,
        Command::Ping => 0x0e,
        Command::ChangeUser => 0x11,
        Command::Prepare => 0x16,
        Command::Execute => 0x17,
        Command::BulkExecute => return Cow::Borrowed("Bulk execute"),
        Command::Rows => return Cow::Borrowed("Rows"),
        Command::Close => 0x19,
        Command::ResetStatement => 0x1a,
        Command::Fetch => 0x1c,
        Command::ResetConnection => 0x1f,
        Command::Other(byte) => byte,
    };
    match NAMES.get(usize::from(byte)) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("Command {byte}")),
    }
}

/// Writes the key of an event into `out`: each dimension but the class with its length before it, the fingerprint last.
pub fn write_key(
    group: &[Dimension],
    event: &Event<'_>,
    fingerprint: &[u8],
    tables: &[u8],
    out: &mut Vec<u8>,
) {
    out.clear();
    for dimension in group {
        match dimension {
            Dimension::Class => {}
            Dimension::User => push(out, event.user),
            Dimension::Host => push(out, event.host),
            Dimension::Database => push(out, event.database),
            Dimension::Table => push(out, tables),
            Dimension::Session => push(out, event.session.to_string().as_bytes()),
            Dimension::Command => push(out, command_name(event.command).as_bytes()),
        }
    }
    if group.contains(&Dimension::Class) {
        out.extend_from_slice(fingerprint);
    }
}

fn push(out: &mut Vec<u8>, part: &[u8]) {
    let part = &part[..part.len().min(u16::MAX.into())];
    out.extend_from_slice(&(part.len() as u16).to_le_bytes());
    out.extend_from_slice(part);
}

/// The values of the dimensions but the class, in their order, and the fingerprint.
pub type Key<'a> = (Vec<(Dimension, &'a [u8])>, Option<&'a [u8]>);

/// A key taken apart.
pub fn read_key<'a>(group: &[Dimension], mut key: &'a [u8]) -> Key<'a> {
    let mut parts = Vec::new();
    for dimension in group.iter().filter(|dimension| **dimension != Dimension::Class) {
        let Some((length, rest)) = key.split_first_chunk::<2>() else { break };
        let Some((part, rest)) = rest.split_at_checked(u16::from_le_bytes(*length).into()) else { break };
        parts.push((*dimension, part));
        key = rest;
    }
    (parts, group.contains(&Dimension::Class).then_some(key))
}

#[cfg(test)]
mod tests {
    use super::{Dimension, command_name, fingerprint, read_key, write_key};
    use crate::event::{Command, Event};
    use sql::Mode;

    #[test]
    fn a_key_is_taken_apart_again() {
        let event = Event { user: b"app", host: b"", ..Event::new(1, 42, Command::Query) };
        let group =
            [Dimension::Class, Dimension::User, Dimension::Host, Dimension::Table, Dimension::Session];
        let mut key = Vec::new();
        write_key(&group, &event, b"select ?", b"a.t,u", &mut key);
        let (parts, fingerprint) = read_key(&group, &key);
        let values: Vec<_> = parts.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [b"app".as_slice(), b"", b"a.t,u", b"42"]);
        assert_eq!(fingerprint, Some(b"select ?".as_slice()));
        write_key(&group[..1], &event, b"select ?", b"", &mut key);
        assert_eq!(key, b"select ?");
        assert_eq!(read_key(&group[1..], b"\xff\xffcut").1, None);
    }

    #[test]
    fn a_class_has_no_values() {
        let text = b"select c from t where id = 31415926 and name = 'Wilhelmina'";
        for command in
            [Command::Query, Command::Prepare, Command::Execute, Command::BulkExecute, Command::InitDb]
        {
            for mode in [Mode::Strict, Mode::Pt] {
                let mut out = Vec::new();
                fingerprint(mode, &Event { text, ..Event::new(1, 1, command) }, &mut out);
                let class = String::from_utf8_lossy(&out).into_owned();
                assert!(!class.is_empty() && !class.contains("3141") && !class.contains("ilhel"), "{class}");
            }
        }
    }

    #[test]
    fn commands_have_the_names_of_the_logs() {
        assert_eq!(command_name(Command::InitDb), "Init DB");
        assert_eq!(command_name(Command::Other(0x18)), "Long Data");
        assert_eq!(command_name(Command::Other(200)), "Command 200");
    }

    #[test]
    fn rows_in_bulk_are_of_their_statements_class() {
        let text = b"INSERT INTO t VALUES (?, ?)";
        let event = Event { text, ..Event::new(1, 1, Command::BulkExecute) };
        let mut out = Vec::new();
        fingerprint(Mode::Strict, &event, &mut out);
        assert_eq!(out, b"insert into t values (?+)");
        fingerprint(Mode::Strict, &Event { text: b"", ..event }, &mut out);
        assert_eq!(out, b"administrator command: Bulk execute");
    }
}
