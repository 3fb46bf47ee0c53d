//! The owner's commands for its server, as a caller gives them and the journal keeps them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use base::error::AgentError;

const LONGEST_S: f64 = 86_400.0;

/// How the owner takes the server out of service, restarts it and returns it: shell commands that may be run again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    pub drain: String,
    pub restart: String,
    #[serde(rename = "return")]
    pub put_back: String,
    pub environment: BTreeMap<String, String>,
    /// Of a drain or a return, seconds; `start_s` until the server answers and its replication has caught up.
    pub within_s: f64,
    pub start_s: f64,
    /// A server with fewer queries per second is out of service.
    pub idle_per_s: f64,
    pub lag_s: f64,
}

impl Commands {
    pub fn check(&self) -> anyhow::Result<()> {
        let is_time = |s: f64| s > 0.0 && s <= LONGEST_S;
        let texts = [&self.drain, &self.restart, &self.put_back];
        if !is_time(self.within_s) || !is_time(self.start_s) || texts.iter().any(|text| text.is_empty()) {
            return Err(AgentError::Input("restart: a command or its limit is missing".to_owned()).into());
        }
        Ok(())
    }
}
