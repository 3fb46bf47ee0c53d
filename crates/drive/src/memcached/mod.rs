//! memcached as a workload: `get` and `set` on items that `drive load` stores.
//!
//! It speaks the classic text protocol (doc/protocol.txt of memcached): every memcached, every proxy before one and
//! every server that only looks like one has it. The meta commands need version 1.6 and save some bytes; the binary
//! protocol is deprecated.
//!
//! A `get` that finds nothing has succeeded: a cache may miss. `rows` counts the hits, so the misses are `count` -
//! `rows`. A `set` has no rows.

pub mod client;
mod items;
pub mod load;
mod replies;

use serde::Deserialize;

use self::items::{Items, KeyBytes, ValueBytes};
use base::error::AgentError;
use engine::keys::{Distribution, Keys};
use engine::net::Address;
use mysql::Endpoint;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// `host:port`, or the path of a Unix socket.
    pub address: String,
    /// The number of items.
    #[serde(default = "ten_thousand")]
    pub keys: u64,
    #[serde(default)]
    pub distribution: Distribution,
    #[serde(default)]
    pub key_bytes: KeyBytes,
    #[serde(default)]
    pub value_bytes: ValueBytes,
    /// Share of the operations that read; the others write.
    #[serde(default = "nine_of_ten")]
    pub get_share: f64,
}

/// Shared by the clients of all threads.
pub struct Memcached {
    items: Items,
    keys: Keys,
    get_share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Get,
    Set,
}

impl Memcached {
    /// Fails with what is wrong with the options.
    pub fn new(options: &Options) -> Result<Self, AgentError> {
        Self::make(options).map_err(AgentError::Named)
    }

    fn make(options: &Options) -> Result<Self, String> {
        let Options { keys, distribution, get_share, .. } = options;
        let last = i64::try_from(*keys).map_err(|_| format!("keys = {keys}: too many"))? - 1;
        if !(0.0..=1.0).contains(get_share) {
            return Err(format!("get_share = {get_share}: must be a share from 0 to 1"));
        }
        Ok(Self {
            keys: Keys::new(distribution, 0, last).map_err(|reason| format!("keys = {keys}: {reason}"))?,
            items: Items::new(*keys, options.key_bytes, options.value_bytes)?,
            get_share: *get_share,
        })
    }

    /// Only the operations that occur in the load.
    fn kinds(&self) -> &'static [Operation] {
        match self.get_share {
            1.0 => &[Operation::Get],
            0.0 => &[Operation::Set],
            _ => &[Operation::Get, Operation::Set],
        }
    }

    /// The names of the operations: what is counted and has a latency.
    pub fn operations(&self) -> Vec<String> {
        let name = |kind: &Operation| match kind {
            Operation::Get => "get".to_owned(),
            Operation::Set => "set".to_owned(),
        };
        self.kinds().iter().map(name).collect()
    }
}

impl Options {
    /// Looks a name up.
    pub fn address(&self) -> anyhow::Result<Address> {
        Ok(Address::found(&self.endpoint().map_err(AgentError::Named)?)?)
    }

    fn endpoint(&self) -> Result<Endpoint, String> {
        let address = &self.address;
        if address.starts_with('/') {
            return Ok(Endpoint::Socket(address.into()));
        }
        let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match parts {
            Some((host, port)) if !host.is_empty() => {
                // An IPv6 address has colons of its own.
                let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                Ok(Endpoint::Tcp { host: bare.unwrap_or(host).to_owned(), port })
            }
            _ => Err(format!("address = {address:?}: give host:port or the path of a socket, from / on")),
        }
    }
}

fn ten_thousand() -> u64 {
    10_000
}

fn nine_of_ten() -> f64 {
    0.9
}

#[cfg(test)]
mod tests {
    use super::{Memcached, Options};
    use serde_json::{Value, json};

    fn options(changes: Value) -> Options {
        let mut whole = json!({"address": "127.0.0.1:11211"});
        for (key, value) in changes.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn addresses() {
        for (text, found) in [
            ("127.0.0.1:11211", "127.0.0.1:11211"),
            ("cache.example.org:1", "cache.example.org:1"),
            ("[::1]:11211", "::1:11211"),
            ("/run/memcached.sock", "/run/memcached.sock"),
        ] {
            assert_eq!(options(json!({"address": text})).endpoint().unwrap().to_string(), found);
        }
        for text in ["", "localhost", ":11211", "localhost:", "localhost:http", "localhost:65536", "a.sock"] {
            assert!(options(json!({"address": text})).endpoint().is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (changes, reason) in [
            (json!({"keys": 0}), "keys = 0: "),
            (json!({"keys": u64::MAX}), "too many"),
            (json!({"get_share": 1.1}), "get_share = 1.1"),
            (json!({"distribution": {"kind": "zipf", "exponent": -1.0}}), "exponent = -1"),
            (json!({"key_bytes": {"min": 9, "max": 251}}), "key_bytes.max = 251"),
            (json!({"key_bytes": {"min": 9, "max": 8}}), "key_bytes.min = 9"),
            (json!({"keys": 10_001, "key_bytes": {"min": 7, "max": 8}}), "need 8 bytes"),
            (json!({"value_bytes": {"kind": "fixed", "bytes": 0}}), "value_bytes"),
            (json!({"value_bytes": {"kind": "uniform", "min": 2, "max": 1}}), "value_bytes"),
            (json!({"value_bytes": {"kind": "exponential", "mean": 0, "max": 1}}), "value_bytes"),
        ] {
            let error = Memcached::make(&options(changes.clone())).err().unwrap_or_default();
            assert!(error.contains(reason), "{changes}: {error:?}");
        }
        assert!(
            Memcached::make(&options(json!({"keys": 10_000, "key_bytes": {"min": 7, "max": 7}}))).is_ok()
        );
    }

    #[test]
    fn an_operation_that_never_comes_is_none() {
        let of = |share: f64| Memcached::make(&options(json!({"get_share": share}))).unwrap().operations();
        assert_eq!(of(0.0), ["set"]);
        assert_eq!(of(0.5), ["get", "set"]);
        assert_eq!(of(1.0), ["get"]);
    }
}
