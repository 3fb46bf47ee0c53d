//! What a server refuses for good: a login or a database that no retry brings. It ends the replay at once, because a
//! session without its database would read and write another one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use mysql::Error;
use serde_json::{Value, json};

use super::queue::Request;
use base::error::AgentError;

const NO_ACCESS_TO_DATABASE: u16 = 1044;
const NO_DATABASE_CHOSEN: u16 = 1046;
const UNKNOWN_DATABASE: u16 = 1049;
/// Of an account's limits, also of its connections, which become free again.
const OUT_OF_RESOURCES: u16 = 1226;
/// Refused before the login, at the login, and after it until the password is changed. 1040 and 1203 (too many
/// connections) pass.
const FOR_GOOD: [u16; 19] = [
    NO_ACCESS_TO_DATABASE,
    1045,
    UNKNOWN_DATABASE,
    1129,
    1130,
    1227,
    1251,
    1275,
    1524,
    1698,
    1820,
    1862,
    3032,
    3118,
    3159,
    3955,
    4031,
    4151,
    OUT_OF_RESOURCES,
];

/// What to do about an error of a server; None where its own words are enough.
pub fn hint(code: u16) -> Option<&'static str> {
    Some(match code {
        NO_ACCESS_TO_DATABASE => {
            "grant the account the database, or play its sessions in another one: --database-map RECORDED=NAME"
        }
        1045 | 1698 => {
            "check the user, the password, the host that the account is for, and whether it requires TLS (--mysql-tls); \
             other users: --user-map"
        }
        NO_DATABASE_CHOSEN => {
            "the recording does not know the sessions' database: give --mysql-database NAME"
        }
        UNKNOWN_DATABASE => {
            "restore the database, or play its sessions in another one: --database-map RECORDED=NAME"
        }
        1129 => "run FLUSH HOSTS on the server, or mariadb-admin flush-hosts",
        1130 => "create the account for this host, or replay on the server itself over its socket",
        1142 | 1143 | 1227 | 1370 => "grant the account what the recorded users could do",
        1146 | 1054 | 1305 | 1356 => "restore the data as of the beginning of the recording first",
        1251 | 1275 | 1524 => "use an account with mysql_native_password, caching_sha2_password or ed25519",
        1290 | 1836 => "the server only reads: make it writable, or replay with --read-only",
        1820 | 1862 => "change the account's password first",
        OUT_OF_RESOURCES => "raise the account's limits: ALTER USER ... WITH MAX_QUERIES_PER_HOUR 0",
        3032 => "SET GLOBAL offline_mode = OFF",
        3118 | 3955 | 4151 => "unlock the account: ALTER USER ... ACCOUNT UNLOCK",
        3159 => "the server wants TLS: --mysql-tls",
        _ => return None,
    })
}

/// The same for a statement, in which no name is mapped.
pub fn hint_of_statement(code: u16) -> Option<&'static str> {
    match code {
        NO_ACCESS_TO_DATABASE => Some("grant the account that database"),
        UNKNOWN_DATABASE => {
            Some("restore that database first: --database-map changes no names inside statements")
        }
        code => hint(code),
    }
}

/// What the server refused, and to whom.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The server's own; None where this side cannot do what the server asks for.
    code: Option<u16>,
    /// The server's own words.
    message: String,
    user: String,
    database: Option<String>,
}

impl Refusal {
    /// If another attempt would be refused as well.
    pub fn of_login(error: &Error, user: &str, database: Option<&str>) -> Option<Self> {
        let is_final = match error {
            Error::Server { code: OUT_OF_RESOURCES, message, .. } => {
                !message.contains("max_user_connections")
            }
            Error::Server { code, .. } => FOR_GOOD.contains(code),
            Error::Login(_) | Error::Tls(_) => true,
            _ => false,
        };
        let database = database.map(ToOwned::to_owned);
        is_final.then(|| Self {
            code: error.code(),
            message: error.to_string(),
            user: user.to_owned(),
            database,
        })
    }

    /// If the session cannot go on behind the answer to this request: its database is another than recorded.
    pub fn of_answer(error: &Error, request: &Request, user: &str) -> Option<Self> {
        let code = error.code()?;
        let database = match request {
            Request::InitDb(name) => Some(name.to_vec()),
            Request::Query(text) => sql::used_database(text),
            _ => None,
        };
        let is_of_database =
            database.is_some() && [NO_ACCESS_TO_DATABASE, UNKNOWN_DATABASE, 1045].contains(&code);
        if !is_of_database && ![1820, 1862].contains(&code) {
            return None;
        }
        let database = database.map(|name| String::from_utf8_lossy(&name).into_owned());
        Some(Self { code: Some(code), message: error.to_string(), user: user.to_owned(), database })
    }

    /// The server's words first; then what comes of it.
    pub fn with(&self, consequence: &str) -> String {
        let Self { message, user, database, .. } = self;
        let place = database.as_ref().map_or(String::new(), |name| format!(", database {name}"));
        let hint = self.code.and_then(hint).map_or(String::new(), |hint| format!(". Try: {hint}"));
        format!("{message}: the server refused user {user}{place}, {consequence}{hint}")
    }

    pub fn sentence(&self) -> String {
        self.with("so the replay ended")
    }

    pub fn to_json(&self) -> Value {
        json!({
            "code": self.code,
            "message": self.message,
            "user": self.user,
            "database": self.database,
            "hint": self.code.and_then(hint),
        })
    }
}

/// Before anything is sent.
impl From<Refusal> for anyhow::Error {
    fn from(refusal: Refusal) -> Self {
        AgentError::Unreachable(refusal.with("so nothing was sent")).into()
    }
}

/// The first refusal ends the replay.
pub struct Halt<'a> {
    stop: &'a AtomicBool,
    refusal: OnceLock<Refusal>,
}

impl<'a> Halt<'a> {
    pub fn new(stop: &'a AtomicBool) -> Self {
        Self { stop, refusal: OnceLock::new() }
    }

    pub fn refused(&self, refusal: Refusal) {
        let _ = self.refusal.set(refusal);
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.get()
    }
}

#[cfg(test)]
mod tests {
    use super::{Halt, Refusal, hint};
    use crate::replay::queue::Request;
    use mysql::Error;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn server(code: u16, message: &str) -> Error {
        Error::Server { code, state: "42000".to_owned(), message: message.to_owned() }
    }

    #[test]
    fn what_no_retry_brings_is_final() {
        let is_final = |error| Refusal::of_login(&error, "app", Some("shop")).is_some();
        for code in [1044, 1045, 1049, 1129, 1130, 1251, 1524, 1698, 1820, 1862, 3118, 3159, 4151] {
            assert!(is_final(server(code, "")), "{code}");
            assert!(hint(code).is_some(), "{code}");
        }
        assert!(is_final(Error::Login("the server wants the plugin x".to_owned())));
        assert!(is_final(Error::Tls("the certificate expired".to_owned())));
        assert!(is_final(server(1226, "exceeded the 'max_queries_per_hour' resource (current value: 5)")));
        // Connections become free again, and a server comes up again.
        assert!(!is_final(server(1226, "exceeded the 'max_user_connections' resource")));
        assert!(!is_final(server(1040, "Too many connections")));
        assert!(!is_final(server(1203, "")));
        assert!(!is_final(Error::Closed));
    }

    #[test]
    fn a_session_does_not_go_on_in_another_database() {
        let is_final = |code, request: &Request| {
            Refusal::of_answer(&server(code, "Unknown database 'x'"), request, "app")
                .map(|found| found.sentence())
        };
        let query = |text: &str| Request::Query(text.as_bytes().into());
        let words = is_final(1049, &Request::InitDb(b"x".as_slice().into())).unwrap();
        assert!(words.starts_with("Unknown database 'x' (server error 1049"), "{words}");
        assert!(words.contains("user app, database x") && words.contains("--database-map"), "{words}");
        assert!(is_final(1044, &query("USE x")).is_some());
        assert!(is_final(1820, &query("SELECT 1")).is_some());
        // The session is where it was.
        assert!(is_final(1049, &query("SELECT * FROM x.t")).is_none());
        assert!(is_final(1146, &query("use x")).is_none());
    }

    #[test]
    fn the_first_refusal_is_kept() {
        let stop = AtomicBool::new(false);
        let halt = Halt::new(&stop);
        for user in ["first", "second"] {
            halt.refused(Refusal::of_login(&server(1045, "no"), user, None).unwrap());
        }
        assert!(stop.load(Ordering::Relaxed));
        assert!(halt.refusal().unwrap().sentence().contains("user first, so"));
    }
}
