//! Servers behind one address: the statements that this crate sends, and what a start, a failover and a lost connection do.

use std::collections::BTreeMap;
use std::time::Duration;

use mysql::Error;

/// Of a server: NULL is None.
type Variables = BTreeMap<String, Option<String>>;

const UNKNOWN_VARIABLE: u16 = 1193;
const WRONG_VALUE: u16 = 1231;
/// Where a start reads its files.
pub const FOLDER: &str = "/host/etc/mysql/conf.d";

pub struct Servers {
    pub all: Vec<Server>,
    /// Which one answers; the others have been failed over from.
    pub answering: usize,
    pub is_down: bool,
}

pub struct Server {
    pub uuid: String,
    started: Duration,
    /// Connections of an earlier start are gone.
    pub starts: u32,
    pub variables: Variables,
}

impl Servers {
    pub fn new(now: Duration) -> Servers {
        let server = |number: u32| Server {
            uuid: format!("uuid-{number}"),
            started: now - Duration::from_secs(500),
            starts: 0,
            variables: defaults(),
        };
        Servers { all: vec![server(1), server(2)], answering: 0, is_down: false }
    }

    pub fn current(&mut self) -> &mut Server {
        &mut self.all[self.answering]
    }
}

fn defaults() -> Variables {
    [
        ("max_connections", Some("151")),
        ("innodb_io_capacity", Some("200")),
        ("innodb_io_capacity_max", Some("2000")),
        ("slow_query_log", Some("0")),
        ("init_connect", Some("")),
        ("init_replica", None),
    ]
    .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
    .into()
}

impl Server {
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), Error> {
        if !self.variables.contains_key(name) {
            return Err(refused(UNKNOWN_VARIABLE));
        }
        let number = |name: &str| self.variables[name].as_ref().and_then(|text| text.parse::<u64>().ok());
        let wanted = value.and_then(|text| text.parse::<u64>().ok());
        let value = match (name, wanted) {
            ("max_connections", Some(n)) => Some(n.clamp(10, 100_000).to_string()),
            // Neither may pass the other.
            ("innodb_io_capacity", Some(n)) => {
                Some(n.min(number("innodb_io_capacity_max").unwrap_or(n)).to_string())
            }
            ("innodb_io_capacity_max", Some(n)) => {
                Some(n.max(number("innodb_io_capacity").unwrap_or(n)).to_string())
            }
            ("slow_query_log", _) => match value {
                Some("ON" | "1") => Some("1".to_owned()),
                Some("OFF" | "0") => Some("0".to_owned()),
                _ => return Err(refused(WRONG_VALUE)),
            },
            ("init_connect", _) => Some(value.unwrap_or_default().to_owned()),
            ("init_replica", _) => value.map(str::to_owned),
            _ => return Err(refused(WRONG_VALUE)),
        };
        self.variables.insert(name.to_owned(), value);
        Ok(())
    }
}

fn refused(code: u16) -> Error {
    Error::Server { code, state: "HY000".to_owned(), message: "as a server would".to_owned() }
}

impl Server {
    /// As at its start, with the lines of its files.
    pub fn start(&mut self, now: Duration, files: &str) {
        (self.started, self.variables) = (now, defaults());
        self.starts += 1;
        for line in files.lines() {
            if let Some((name, value)) = line.split_once(" = ") {
                let _ = self.set(name, Some(value));
            }
        }
    }
}

impl Server {
    /// What a statement gives: the cells of its only row.
    pub fn run(&mut self, now: Duration, sql: &str) -> Result<Vec<Option<String>>, Error> {
        let server = self;
        let words: Vec<&str> = sql.splitn(5, ' ').collect();
        match words.as_slice() {
            ["SELECT", "UNIX_TIMESTAMP()"] => Ok(vec![Some(now.as_secs().to_string())]),
            ["SHOW", "GLOBAL", "STATUS", ..] => {
                let up = now.as_secs() - server.started.as_secs();
                Ok(vec![Some("Uptime".to_owned()), Some(up.to_string())])
            }
            ["SELECT", "@@GLOBAL.server_uuid"] => Ok(vec![Some(server.uuid.clone())]),
            ["SELECT", name] => {
                let name = name.strip_prefix("@@GLOBAL.").unwrap_or_default();
                server
                    .variables
                    .get(name)
                    .map(|value| vec![value.clone()])
                    .ok_or_else(|| refused(UNKNOWN_VARIABLE))
            }
            ["SET", "GLOBAL", name, "=", literal] => {
                let text = match literal.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
                    Some(quoted) => Some(quoted.replace("''", "'").replace("\\\\", "\\")),
                    None => (*literal != "NULL").then(|| (*literal).to_owned()),
                };
                server.set(name, text.as_deref()).map(|()| vec![])
            }
            ["SET", "NAMES" | "SESSION", ..] => Ok(vec![]),
            _ => Err(refused(1064)),
        }
    }
}
