//! What a recording says of itself.

use serde::{Deserialize, Serialize};

use super::position::{Position, now_ns};
use crate::coverage::{Coverage, Named};

/// Stands at the beginning of each session of recording, and again, with its totals, at the end of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Counts the recordings into this file, from 0.
    pub segment: u32,
    /// Whether statements have their literals; without, they are strict fingerprints.
    pub with_literals: bool,
    /// Whether literals, users and hosts were replaced by pseudonyms.
    pub is_anonymised: bool,
    /// Files or interfaces that the events came from, and what had been done to them before.
    pub sources: Vec<String>,
    /// Name of the host that wrote it, its kernel and its clock source.
    pub host: String,
    pub kernel: String,
    pub clock_source: String,
    pub agent_version: String,
    /// When the recording began, by that host's clock.
    pub created_ns: u64,
    /// Of the server whose traffic it is; None where nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// None where the recorder was killed before it could say.
    pub totals: Option<Totals>,
}

/// What was written from the beginning of a segment to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    pub events: u64,
    /// Of these, the ones that only restore a session's state.
    pub state_events: u64,
    /// Came after later ones had been written: they are in blocks of their own, and are read in their place.
    pub late_events: u64,
    /// Started before an earlier event of their session, by a coarse clock: moved forward to its start.
    pub moved_events: u64,
    /// Too large to keep: their statement and parameters are missing.
    pub oversized_events: u64,
    /// Statements of which a password was removed.
    pub redacted_events: u64,
    /// At most so many sessions were open at once; sessions whose end is not in the recording count until its end.
    pub most_sessions: Option<u64>,
    /// The longest statement with its parameters, before anything was taken from it.
    pub longest_bytes: Option<u64>,
    /// The sessions' databases, with the events in each; those that the server refused are left out.
    pub databases: Named,
    pub coverage: Coverage,
}

impl Info {
    /// What this machine can say of itself.
    #[must_use]
    pub fn of_this_host() -> Self {
        let read =
            |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        Info {
            host: read("/proc/sys/kernel/hostname"),
            kernel: read("/proc/sys/kernel/osrelease"),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            created_ns: now_ns(),
            ..Info::default()
        }
    }
}
