//! Where a server is and how to log in.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::door;
use base::error::AgentError;

/// A file of people.
const MOST_BYTES: u64 = 1 << 20;

pub struct Options {
    pub endpoint: Endpoint,
    pub user: String,
    pub password: Password,
    /// The database to start in.
    pub database: Option<String>,
    pub tls: TlsMode,
    /// PEM file of the authorities that `verify-ca` and `verify-identity` trust.
    pub tls_ca: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// The longest that one statement may take; a stalled server must not block its client forever.
    pub read_timeout: Duration,
}

impl Options {
    /// The same server with another account.
    pub fn for_account(&self, user: String, password: Password) -> Self {
        Self {
            endpoint: self.endpoint.clone(),
            user,
            password,
            database: self.database.clone(),
            tls: self.tls,
            tls_ca: self.tls_ca.clone(),
            connect_timeout: self.connect_timeout,
            read_timeout: self.read_timeout,
        }
    }
}

#[derive(Clone)]
pub enum Endpoint {
    Socket(PathBuf),
    Tcp { host: String, port: u16 },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Socket(path) => write!(f, "{}", path.display()),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// As the mysql client's --ssl-mode. The first two never check who the server is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum TlsMode {
    /// Never encrypt
    Disabled,
    /// Encrypt TCP where the server can
    #[default]
    Preferred,
    /// Encrypt or fail; any certificate will do
    Required,
    /// Also check that an authority of --mysql-tls-ca signed the certificate
    VerifyCa,
    /// Also check that the certificate names the host (as subject alternative name)
    VerifyIdentity,
}

/// A password that cannot be logged by accident.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password(Vec<u8>);

impl Password {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Reads a file that contains only the password; a trailing line end is not part of it.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let mut bytes = door::read(path, MOST_BYTES)
            .map_err(|error| AgentError::unreadable("the password file ", path, &error))?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        Ok(Self(bytes))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// The options of the section `[client]` of a my.cnf: `user`, `password`, `socket`, `host`, `port` and the rest.
pub fn read_defaults(path: &Path) -> anyhow::Result<HashMap<String, String>> {
    let text = door::read_to_string(path, MOST_BYTES)
        .map_err(|error| AgentError::unreadable("the defaults file ", path, &error))?;
    parse_defaults(&text).map_err(|line| {
        AgentError::Input(format!("{}:{line}: neither a section, an option nor a comment", path.display()))
            .into()
    })
}

/// An error is the number of the line. Directives (`!include`) are not followed.
fn parse_defaults(text: &str) -> Result<HashMap<String, String>, usize> {
    let mut options = HashMap::new();
    let mut is_client = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';', '!']) {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            is_client = section.split_once(']').ok_or(number + 1)?.0.trim() == "client";
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(number + 1);
        }
        if is_client {
            options.insert(name.replace('_', "-"), parse_value(value.trim()));
        }
    }
    Ok(options)
}

/// Quotes, escapes and a comment at the end, as MySQL reads them.
pub fn parse_value(text: &str) -> String {
    let mut value = String::new();
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\\', _) => match characters.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some('b') => value.push('\u{8}'),
                Some('s') => value.push(' '),
                Some(other @ ('\\' | '"' | '\'')) => value.push(other),
                Some(other) => value.extend(['\\', other]),
                None => value.push('\\'),
            },
            ('#', None) => return value.trim_end().to_owned(),
            ('"' | '\'', None) if value.is_empty() => quote = Some(character),
            (_, Some(open)) if open == character => return value,
            _ => value.push(character),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::{Password, parse_defaults};
    use proptest::prelude::{any, proptest};

    #[test]
    fn the_client_section_and_no_other() {
        let text = "\
# comment
!includedir /etc/mysql/conf.d
[mysqld]
user = mysql
[client]
user=monitor
password = \"a#b\\\\c'd\"   # a comment
socket = /run/a b.sock # another
default_character_set=utf8mb4
skip-ssl
[mysqldump]
user=other
";
        let options = parse_defaults(text).unwrap();
        assert_eq!(options["user"], "monitor");
        assert_eq!(options["password"], "a#b\\c'd");
        assert_eq!(options["socket"], "/run/a b.sock");
        assert_eq!(options["default-character-set"], "utf8mb4");
        assert_eq!(options["skip-ssl"], "");
        assert_eq!(options.len(), 5);
        assert_eq!(parse_defaults("[client]\n\nhello world\n"), Err(3));
        assert_eq!(parse_defaults("[client"), Err(1));
    }

    #[test]
    fn a_password_file_may_end_with_a_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        for (content, password) in [("x y\n", "x y"), ("x\r\n", "x"), ("x\n\n", "x\n"), ("", "")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(Password::read(&path).unwrap(), Password::new(password));
        }
        assert_eq!(format!("{:?}", Password::new("secret")), "Password(..)");
    }

    proptest! {
        #[test]
        fn no_defaults_file_can_break_the_parser(text in any::<String>()) {
            let _ = parse_defaults(&text);
            let _ = parse_defaults(&format!("[client]\na={text}"));
        }
    }
}
