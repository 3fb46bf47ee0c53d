//! What client and server are told, as JSON on standard input: a token must not be in an argument.

use std::io::Read;
use std::net::IpAddr;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::message::{LARGEST, SMALLEST, Token};
use base::error::AgentError;

#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// 32 hexadecimal digits: the server answers nobody else.
    pub token: Token,
    /// Of the server.
    pub address: IpAddr,
    /// 0: the server takes a free one and says which.
    #[serde(default)]
    pub port: u16,
    /// The server ends after this time in any case.
    pub most_s: f64,
    #[serde(default)]
    pub server: End,
    #[serde(default)]
    pub client: End,
    /// Bytes of the requests and of their replies, in the order in which they are measured.
    #[serde(default)]
    pub sizes: Vec<(usize, usize)>,
    #[serde(default)]
    pub step_s: f64,
    /// Rates of the steps, as shares of what was answered without a limit.
    #[serde(default)]
    pub shares: Vec<f64>,
    /// Flows of each thread of the client: what the hash that spreads packets over queues and CPUs sees.
    #[serde(default = "one")]
    pub flows: usize,
    /// Requests on their way at most, of each thread, where the rate has no limit.
    #[serde(default = "window")]
    pub window: u64,
    /// Only of `pair`: CPUs that get received packets, as a mask; empty leaves the kernel's setting.
    #[serde(default)]
    pub rps: String,
    /// The CPU that would get them: what interrupting it takes is measured before the first step.
    #[serde(default)]
    pub interrupt: Option<usize>,
    /// Only of the server that `pair` starts: its interface is made, and has to be set up.
    #[serde(default)]
    pub is_inside: bool,
}

/// Threads of one end, and where they run.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    #[serde(default = "one")]
    pub threads: usize,
    /// Thread after thread gets the next one; empty: wherever the kernel puts them.
    #[serde(default)]
    pub cpus: Vec<usize>,
}

impl Default for End {
    fn default() -> Self {
        Self { threads: 1, cpus: Vec::new() }
    }
}

fn one() -> usize {
    1
}

fn window() -> u64 {
    64
}

pub fn read() -> anyhow::Result<Spec> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the SPEC")?;
    parse(&text)
}

fn parse(text: &str) -> anyhow::Result<Spec> {
    let spec: Spec =
        serde_json::from_str(text).map_err(|error| AgentError::Input(format!("this is no SPEC: {error}")))?;
    let is_right = |end: &End| (1..=256).contains(&end.threads) && end.cpus.iter().all(|cpu| *cpu < 1024);
    let checks = [
        ((1.0..=86_400.0).contains(&spec.most_s), "most_s must be from 1 to 86400"),
        (spec.sizes.is_empty() || (0.05..=600.0).contains(&spec.step_s), "step_s must be from 0.05 to 600"),
        (is_right(&spec.server) && is_right(&spec.client), "threads must be from 1 to 256, CPUs below 1024"),
        ((1..=1024).contains(&spec.flows), "flows must be from 1 to 1024"),
        ((1..=4096).contains(&spec.window), "window must be from 1 to 4096"),
        (spec.shares.iter().all(|share| (0.01..=4.0).contains(share)), "shares must be from 0.01 to 4"),
        (spec.interrupt.is_none_or(|cpu| cpu < 1024), "interrupt must be a CPU below 1024"),
        (
            spec.rps.chars().all(|letter| letter.is_ascii_hexdigit() || letter == ','),
            "rps must be a mask of CPUs",
        ),
    ];
    if let Some((_, message)) = checks.iter().find(|(is_right, _)| !is_right) {
        return Err(AgentError::Input((*message).to_owned()).into());
    }
    let allowed = SMALLEST..=LARGEST;
    if let Some(size) = spec.sizes.iter().find(|(a, b)| !allowed.contains(a) || !allowed.contains(b)) {
        let message = format!(
            "{}/{} bytes: requests and replies have {SMALLEST} to {LARGEST}, so that each is one packet",
            size.0, size.1
        );
        return Err(AgentError::Input(message).into());
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::parse;

    const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";

    fn with(more: &str) -> String {
        format!(r#"{{"token":"{TOKEN}","address":"127.0.0.1","most_s":5{more}}}"#)
    }

    #[test]
    fn defaults_are_one_thread_and_one_flow() {
        let spec = parse(&with("")).unwrap();
        assert_eq!((spec.server.threads, spec.client.threads, spec.flows, spec.port), (1, 1, 1, 0));
        assert!(!spec.is_inside && spec.rps.is_empty());
    }

    #[test]
    fn what_would_harm_or_mean_nothing_is_refused() {
        for (more, why) in [
            (r#","sizes":[[64,9000]],"step_s":1"#, "64/9000 bytes"),
            (r#","sizes":[[8,64]],"step_s":1"#, "8/64 bytes"),
            (r#","sizes":[[64,64]]"#, "step_s"),
            (r#","flows":0"#, "flows"),
            (r#","window":0"#, "window"),
            (r#","client":{"threads":1000}"#, "threads"),
            (r#","shares":[9.0]"#, "shares"),
            (r#","rps":"3; rm""#, "mask"),
            (r#","interrupt":1024"#, "interrupt"),
            (r#","speed":1"#, "unknown field"),
        ] {
            let error = parse(&with(more)).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(parse(&with("").replace("00010203", "0001")).is_err());
    }
}
