//! The proxy's command line.

use std::path::PathBuf;
use std::time::Duration;

use base::duration::parse_duration;
use clap::Args;
use mysql::options::TlsMode;

#[derive(Args)]
pub struct ProxyArguments {
    /// Address and port that clients connect to; port 0 picks one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) listen: String,
    /// The server
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with = "server_socket",
        required_unless_present = "server_socket"
    )]
    pub(super) server: Option<String>,
    /// The server's Unix socket; needs root, since it connects there as a user without a name
    #[arg(long, value_name = "PATH")]
    pub(super) server_socket: Option<PathBuf>,
    /// Recording to write (mode 0600)
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Keep literals of statements in the recording; passwords are removed always
    #[arg(long, requires = "output")]
    pub(super) with_literals: bool,
    /// Write over a recording that is there
    #[arg(long, requires = "output")]
    pub(super) force: bool,
    /// JSON lines of events to write, with all literals; "-" is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub(super) events: Option<PathBuf>,
    /// Sum up the rows of every answer, so that a replay can compare them
    #[arg(long)]
    pub(super) checksums: bool,
    /// PEM file of a certificate with its chain: encryption of clients ends here
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "no_tls")]
    pub(super) tls_cert: Option<PathBuf>,
    /// PEM file of its key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
    /// Tell clients that the server cannot encrypt
    #[arg(long)]
    pub(super) no_tls: bool,
    /// Encryption on the way to the server
    #[arg(long, value_enum, value_name = "MODE", default_value = "disabled")]
    pub(super) server_tls: TlsMode,
    /// PEM file of the authorities that verify-ca and verify-identity trust
    #[arg(long, value_name = "FILE")]
    pub(super) server_tls_ca: Option<PathBuf>,
    /// Threads that pass bytes on [default: one a core]
    #[arg(long, value_name = "COUNT")]
    pub(super) threads: Option<usize>,
    /// Clients at once; more are told "Too many connections" [default: 10000, or as many as the limit of open files allows]
    #[arg(long, value_name = "COUNT")]
    pub(super) max_sessions: Option<usize>,
    /// Bytes that may wait to be decoded, in MiB; what comes while they do is left out of the recording, and counted
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub(super) queue_mib: usize,
    /// Time that open connections have to end by themselves when it is told to stop
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub(super) grace: Duration,
}
