//! The arguments that name a server, the same for every subcommand that needs one.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::options::{Endpoint, Options, Password, TlsMode, read_defaults};
use base::error::AgentError;

pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the server is. The password is never an argument or in the environment: other users can read those.
/// Files that record a server name its password file, never the password.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[command(next_help_heading = "Server")]
#[serde(default)]
pub struct ServerArguments {
    /// Unix socket of the server
    #[arg(long, value_name = "PATH", conflicts_with = "mysql_host")]
    mysql_socket: Option<PathBuf>,
    /// Host of the server
    #[arg(long, value_name = "HOST")]
    mysql_host: Option<String>,
    /// Its port [default: 3306]
    #[arg(long, value_name = "PORT")]
    mysql_port: Option<u16>,
    /// User to log in as [default: the operating system's]
    #[arg(long, value_name = "USER")]
    mysql_user: Option<String>,
    /// File that holds the password and nothing else
    #[arg(long, value_name = "FILE")]
    mysql_password_file: Option<PathBuf>,
    /// File as my.cnf: user, password, socket, host, port of its section [client]
    #[arg(long, value_name = "FILE")]
    mysql_defaults_file: Option<PathBuf>,
    /// Database to start in
    #[arg(long, value_name = "NAME")]
    mysql_database: Option<String>,
    /// Encryption, as --ssl-mode of the mysql client
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    mysql_tls: TlsMode,
    /// PEM file of the authorities that verify-ca and verify-identity trust
    #[arg(long, value_name = "FILE")]
    mysql_tls_ca: Option<PathBuf>,
}

impl ServerArguments {
    /// The same server for a later process in another directory and as another user: absolute paths, and the user by
    /// name.
    pub fn pinned(&self, options: &Options) -> anyhow::Result<Self> {
        let mut pinned = self.clone();
        let files = [
            &mut pinned.mysql_socket,
            &mut pinned.mysql_password_file,
            &mut pinned.mysql_defaults_file,
            &mut pinned.mysql_tls_ca,
        ];
        for path in files.into_iter().flatten() {
            *path = std::path::absolute(&*path)?;
        }
        pinned.mysql_user = Some(options.user.clone());
        Ok(pinned)
    }

    /// None if no server was named. Arguments override the defaults file. `read_timeout` limits one statement.
    pub fn options(&self, read_timeout: Duration) -> anyhow::Result<Option<Options>> {
        let mut defaults = match &self.mysql_defaults_file {
            Some(path) => read_defaults(path)?,
            None => Default::default(),
        };
        let port = match (self.mysql_port, defaults.get("port")) {
            (Some(port), _) => port,
            (None, Some(text)) => text
                .parse()
                .map_err(|_| AgentError::Input(format!("port {text:?} of the defaults file is no port")))?,
            (None, None) => 3306,
        };
        let tcp = |host: &String| Endpoint::Tcp { host: host.clone(), port };
        let endpoint = match (&self.mysql_socket, &self.mysql_host) {
            (Some(path), _) => Some(Endpoint::Socket(path.clone())),
            (None, Some(host)) => Some(tcp(host)),
            (None, None) => match (defaults.get("socket"), defaults.get("host")) {
                (Some(path), _) => Some(Endpoint::Socket(path.into())),
                (None, host) => host.map(tcp),
            },
        };
        let Some(endpoint) = endpoint else {
            if self.mysql_password_file.is_some() {
                let message = "--mysql-password-file needs a server: --mysql-socket or --mysql-host";
                return Err(AgentError::Input(message.to_owned()).into());
            }
            return Ok(None);
        };
        if matches!(self.mysql_tls, TlsMode::VerifyCa | TlsMode::VerifyIdentity)
            && self.mysql_tls_ca.is_none()
        {
            return Err(AgentError::Input("this --mysql-tls needs --mysql-tls-ca FILE".to_owned()).into());
        }
        if self.mysql_tls == TlsMode::VerifyIdentity && matches!(endpoint, Endpoint::Socket(_)) {
            let message = "--mysql-tls verify-identity needs --mysql-host: a socket has no name to check";
            return Err(AgentError::Input(message.to_owned()).into());
        }
        let password = match &self.mysql_password_file {
            Some(path) => Password::read(path)?,
            None => Password::new(defaults.remove("password").unwrap_or_default()),
        };
        let user = self.mysql_user.clone().or_else(|| defaults.remove("user"));
        Ok(Some(Options {
            endpoint,
            user: user.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "root".to_owned()),
            password,
            database: self.mysql_database.clone().or_else(|| defaults.remove("database")),
            tls: self.mysql_tls,
            tls_ca: self.mysql_tls_ca.clone(),
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout,
        }))
    }
}
