//! The sampler interface; the lists of samplers are in `lib.rs` and `server/mod.rs`, next to the modules.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::selection::Selection;
use super::session::ServerSample;
use super::values::Values;
use base::error::AgentError;

/// A sampler's description of itself.
pub struct Kind {
    pub name: &'static str,
    pub doc: &'static str,
    pub source: Source,
    /// How often it samples at most; zero is every tick. First and last tick are sampled in any case.
    pub every: Duration,
    /// Whether it runs if no list of samplers is given.
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

    /// Values that change slowly, or are expensive for the server.
    pub const fn every(self, seconds: u64) -> Self {
        Self { every: Duration::from_secs(seconds), ..self }
    }

    pub fn is_server(&self) -> bool {
        matches!(self.source, Source::Server(_))
    }
}

/// A sampler at work on the host.
pub trait Sample {
    /// Adds the current counters. On an error everything that was added is dropped.
    ///
    /// An `io::Error` of the kind `NotFound` or `Unsupported` says that this host has no such source.
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()>;
}

/// What samplers must know about the host.
pub struct Host {
    pub root: PathBuf,
    pub processes: Selection,
    pub missed: Missed,
}

/// Ticks that each loop skipped because it was late, and those that samplers skipped because of what they cost.
#[derive(Clone, Default)]
pub struct Missed {
    pub host: Arc<AtomicU64>,
    pub server: Arc<AtomicU64>,
    pub spared: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl Missed {
    pub fn spare(&self, sampler: &'static str) {
        *self.spared.lock().unwrap_or_else(PoisonError::into_inner).entry(sampler).or_default() += 1;
    }
}

/// Those of `all` in a comma-separated list, in the order of `all`; without a list all that can run.
///
/// # Errors
/// For an unknown name, and for a server's sampler without a server.
pub fn select(
    all: &[&'static Kind],
    list: Option<&str>,
    has_server: bool,
) -> anyhow::Result<Vec<&'static Kind>> {
    let kinds = all.iter().copied();
    let Some(list) = list else {
        return Ok(kinds.filter(|kind| kind.is_default && (has_server || !kind.is_server())).collect());
    };
    let names: Vec<&str> = list.split(',').map(str::trim).collect();
    for name in &names {
        let Some(kind) = all.iter().find(|kind| kind.name == *name) else {
            let known: Vec<&str> = all.iter().map(|kind| kind.name).collect();
            let message = format!("there is no sampler {name:?}; there are {}", known.join(", "));
            return Err(AgentError::Input(message).into());
        };
        if kind.is_server() && !has_server {
            let message = format!("the sampler {name} needs a server: give --mysql-socket or --mysql-host");
            return Err(AgentError::Input(message).into());
        }
    }
    Ok(kinds.filter(|kind| names.contains(&kind.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::select;
    use crate::samplers;

    #[test]
    fn names_are_unique_and_lists_are_checked() {
        let all = samplers();
        let names: std::collections::HashSet<_> = all.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), all.len());
        let chosen = |list, has_server| {
            select(&all, list, has_server).map(|kinds| kinds.iter().map(|kind| kind.name).collect::<Vec<_>>())
        };
        assert_eq!(chosen(Some("psi, cpu"), false).unwrap(), ["cpu", "psi"]);
        assert_eq!(chosen(None, true).unwrap().len(), all.len());
        assert!(!chosen(None, false).unwrap().contains(&"mysql_status"));
        assert!(chosen(Some("cpus"), true).unwrap_err().to_string().contains("\"cpus\""));
        assert!(chosen(Some("mysql_status"), false).unwrap_err().to_string().contains("--mysql-socket"));
    }
}
