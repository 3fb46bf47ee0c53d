//! The target of fuzzers: a whole client, to which a server may send anything. Compiled for `cargo fuzz` only.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;

use super::memcached::Memcached;
use super::memcached::client::MemcachedClient;
use super::mysql_client::MysqlClient;
use super::tpcc;
use engine::client::{Client, Progress, Random};
use mysql::frames::encode;
use mysql::options::{Password, TlsMode};
use mysql::{Endpoint, Options};

/// Bytes of a packet's header; the last is its sequence number.
const HEADER: usize = 4;

/// Login, preparation and TPC-C's transactions. `data` is a list of the server's messages: an even byte for a
/// payload, which gets a valid header, or an odd one for raw bytes; a length of two bytes, little-endian; the bytes.
///
/// # Panics
///
/// That is what it looks for.
pub fn mysql(mut data: &[u8]) {
    let options = Options {
        endpoint: Endpoint::Socket("/nowhere".into()),
        user: "u".to_owned(),
        password: Password::new(*b"secret"),
        database: Some("d".to_owned()),
        tls: TlsMode::Disabled,
        tls_ca: None,
        connect_timeout: Duration::MAX,
        read_timeout: Duration::MAX,
    };
    let workload = Arc::new(tpcc::workload(&tpcc::Options::default()).expect("defaults are allowed"));
    let mut client = MysqlClient::new(&options, workload, 0, 1);
    let mut random = Random::seed_from_u64(1);
    let mut out = Vec::new();
    let mut progress = client.connected(&mut out);
    let mut sequence = 0;
    loop {
        match progress {
            Progress::Waiting => {}
            Progress::Ready | Progress::Ended { .. } | Progress::Failed(_) => {
                client.choose(&mut random);
                progress = client.begin(&mut out, &mut random);
                continue;
            }
            Progress::Broken(_) | Progress::Encrypt(_) => return,
        }
        // A server's packet numbers continue those of the packet that it answers.
        if out.len() >= HEADER {
            sequence = out[HEADER - 1].wrapping_add(1);
            out.clear();
        }
        let [kind, low, high, rest @ ..] = data else { return };
        let (said, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        data = rest;
        let mut input = Vec::new();
        if kind % 2 == 0 {
            encode(said, &mut sequence, &mut input);
        } else {
            input.extend_from_slice(said);
        }
        progress = client.receive(&input, &mut out, &mut random);
    }
}

/// memcached's replies. `data` is a list of pieces: a length of one byte, the bytes.
///
/// # Panics
///
/// That is what it looks for.
pub fn memcached(mut data: &[u8]) {
    let options = serde_json::from_str(r#"{"address": "/nowhere", "keys": 3}"#).expect("it is a SPEC's");
    let workload = Memcached::new(&options).expect("defaults are allowed");
    let mut client = MemcachedClient::new(&workload);
    let mut random = Random::seed_from_u64(1);
    let mut out = Vec::new();
    let mut progress = client.connected(&mut out);
    loop {
        match progress {
            Progress::Waiting => {}
            Progress::Ready | Progress::Ended { .. } | Progress::Failed(_) => {
                client.choose(&mut random);
                progress = client.begin(&mut out, &mut random);
                continue;
            }
            Progress::Broken(_) | Progress::Encrypt(_) => return,
        }
        out.clear();
        let [length, rest @ ..] = data else { return };
        let (said, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        data = rest;
        progress = client.receive(said, &mut out, &mut random);
    }
}
