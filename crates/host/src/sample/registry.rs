//! The samplers: a new one is a file of its own and a line of `ALL`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::replies::{INNODB_METRICS, MYSQL_STATUS, ServerSample};
use super::values::Values;
use crate::process::Selection;
use crate::server::{innodb_mutex, innodb_status, performance_schema, processlist, replication};
use crate::{
    cgroup, diskstats, filesystems, interrupts, listen, md, meminfo, netdev, process, psi, server_process,
    snmp, softirqs, softnet, stat, thermal, threads, vmstat,
};
use base::error::AgentError;

/// Every sampler, in the order in which a tick reads them.
pub const ALL: [&Kind; 27] = [
    &stat::CPU,
    &interrupts::INTERRUPTS,
    &softirqs::SOFTIRQS,
    &softnet::SOFTNET,
    &diskstats::DISK,
    &meminfo::MEMORY,
    &vmstat::VMSTAT,
    &psi::PSI,
    &netdev::NETWORK,
    &snmp::SNMP,
    &process::PROCESS,
    &md::MD,
    &thermal::THERMAL,
    &threads::THREADS,
    &cgroup::CGROUP,
    &server_process::SERVER_PROCESS,
    &filesystems::FILE_SYSTEMS,
    &listen::LISTEN,
    &MYSQL_STATUS,
    &INNODB_METRICS,
    &innodb_mutex::INNODB_MUTEX,
    &innodb_status::INNODB_STATUS,
    &performance_schema::MYSQL_WAITS,
    &performance_schema::STATEMENTS,
    &processlist::PROCESSLIST,
    &replication::REPLICATION,
    &super::itself::AGENT,
];

/// A sampler's description of itself.
pub struct Kind {
    pub name: &'static str,
    pub doc: &'static str,
    pub source: Source,
    /// How often it samples at most; zero is every tick. First and last tick are sampled in any case.
    pub every: Duration,
    /// Whether it runs where no list of samplers is given.
    pub is_default: bool,
}

/// What a sampler reads, which decides the loop it runs in: a server may hang, the kernel's files do not.
pub enum Source {
    Host(fn(&Host) -> Box<dyn Sample>),
    Server(ServerSample),
}

impl Kind {
    pub const fn host(name: &'static str, doc: &'static str, open: fn(&Host) -> Box<dyn Sample>) -> Self {
        Self { name, doc, source: Source::Host(open), every: Duration::ZERO, is_default: true }
    }

    pub const fn server(name: &'static str, doc: &'static str, sample: ServerSample) -> Self {
        Self { name, doc, source: Source::Server(sample), every: Duration::ZERO, is_default: true }
    }

    /// What changes slowly, or costs the server more than a look.
    pub const fn every(self, seconds: u64) -> Self {
        Self { every: Duration::from_secs(seconds), ..self }
    }

    pub fn is_server(&self) -> bool {
        matches!(self.source, Source::Server(_))
    }
}

/// A sampler at work on the host.
pub trait Sample {
    /// Adds the counters of this moment. On an error nothing that was added is kept.
    ///
    /// An `io::Error` of the kind `NotFound` or `Unsupported` says that this host has no such source.
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()>;
}

/// What samplers need to know of where they run.
pub struct Host {
    pub root: PathBuf,
    pub processes: Selection,
    pub missed: Missed,
}

/// Ticks that each loop skipped because it was late.
#[derive(Clone, Default)]
pub struct Missed {
    pub host: Arc<AtomicU64>,
    pub server: Arc<AtomicU64>,
}

/// The samplers of a comma-separated list, in the order of `ALL`; without one all that can run.
pub fn select(list: Option<&str>, has_server: bool) -> anyhow::Result<Vec<&'static Kind>> {
    let Some(list) = list else {
        return Ok(ALL
            .into_iter()
            .filter(|kind| kind.is_default && (has_server || !kind.is_server()))
            .collect());
    };
    let names: Vec<&str> = list.split(',').map(str::trim).collect();
    for name in &names {
        let Some(kind) = ALL.into_iter().find(|kind| kind.name == *name) else {
            let known: Vec<&str> = ALL.into_iter().map(|kind| kind.name).collect();
            let message = format!("there is no sampler {name:?}; there are {}", known.join(", "));
            return Err(AgentError::Input(message).into());
        };
        if kind.is_server() && !has_server {
            let message = format!("the sampler {name} needs a server: give --mysql-socket or --mysql-host");
            return Err(AgentError::Input(message).into());
        }
    }
    Ok(ALL.into_iter().filter(|kind| names.contains(&kind.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::{ALL, select};

    #[test]
    fn names_are_unique_and_lists_are_checked() {
        let names: std::collections::HashSet<_> = ALL.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), ALL.len());
        let chosen = |list, has_server| {
            select(list, has_server).map(|kinds| kinds.iter().map(|kind| kind.name).collect::<Vec<_>>())
        };
        assert_eq!(chosen(Some("psi, cpu"), false).unwrap(), ["cpu", "psi"]);
        assert_eq!(chosen(None, true).unwrap().len(), ALL.len());
        assert!(!chosen(None, false).unwrap().contains(&"mysql_status"));
        assert!(chosen(Some("cpus"), true).unwrap_err().to_string().contains("\"cpus\""));
        assert!(chosen(Some("mysql_status"), false).unwrap_err().to_string().contains("--mysql-socket"));
    }
}
