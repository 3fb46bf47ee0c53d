//! Counts of requests by command and pattern, by key and by client, all in bounded memory.

use std::collections::HashMap;
use std::net::IpAddr;

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::pattern::{self, Shown};
use super::request::{COMMANDS, Shape};
use crate::digest::seeded::Seeded;
use base::histogram::{Histogram, Sparse};

/// Patterns of all commands that are counted apart.
const MOST_CLASSES: usize = 1000;
const LONGEST_KEY: usize = 250;
/// Keys that are counted at once: an error of one request in so many, at most.
const COUNTED_KEYS: usize = 1024;
/// Keys that are told, and the share of all that each has at least.
const TOLD_KEYS: usize = 20;
const HOT_SHARE: f64 = 0.01;
const MOST_CLIENTS: usize = 65_536;
const TOLD_CLIENTS: usize = 10;

/// How one key of a request fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Found,
    Missed,
    Refused,
    Failed,
    /// Nothing was to be answered, and nothing was.
    Silent,
    Unanswered,
}

#[derive(Default)]
struct Class {
    command: u8,
    pattern: Box<str>,
    requests: u64,
    keys: u64,
    /// By `Fate`.
    fates: [u64; 6],
    request_bytes: u64,
    response_bytes: u64,
    time_ns: u64,
    latency: Histogram,
    values: Histogram,
    /// The last request counted here, so that one with many keys counts once.
    last: u64,
}

struct Counted {
    class: u32,
    requests: u64,
    name: Option<Box<[u8]>>,
}

/// Frequent keys, by Misra and Gries: no count is too high, and none too low by more than `taken`.
struct Hot {
    seed: Seeded,
    keys: HashMap<u64, Counted>,
    all: u64,
    taken: u64,
}

impl Hot {
    fn add(&mut self, hash: u64, class: u32, key: Option<&[u8]>) {
        self.all += 1;
        if let Some(known) = self.keys.get_mut(&hash) {
            known.requests += 1;
        } else if self.keys.len() < COUNTED_KEYS {
            self.keys.insert(hash, Counted { class, requests: 1, name: key.map(Box::from) });
        } else {
            self.taken += 1;
            self.keys.retain(|_, counted| {
                counted.requests -= 1;
                counted.requests > 0
            });
        }
    }
}

/// What one request took.
pub struct Took {
    pub latency_ns: Option<u64>,
    pub request_bytes: u64,
}

/// One key of a request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub hash: u64,
    pub class: u32,
    pub bytes: u16,
    pub fate: Fate,
    /// Of the value that came or was sent.
    pub value_bytes: Option<u64>,
    pub response_bytes: u64,
}

pub struct Table {
    shown: Shown,
    names_keys: bool,
    classes: Vec<Class>,
    found: HashMap<Vec<u8>, u32, Seeded>,
    scratch: Vec<u8>,
    hot: Hot,
    hidden_keys: u64,
    requests: u64,
    latency: Histogram,
    time_ns: u64,
    clients: HashMap<IpAddr, u64>,
    has_more_clients: bool,
    pub span_ns: Option<(u64, u64)>,
}

impl Table {
    pub fn new(shown: Shown, names_keys: bool) -> Self {
        Self {
            shown,
            names_keys,
            classes: Vec::new(),
            found: HashMap::with_hasher(Seeded::new()),
            scratch: Vec::new(),
            hot: Hot { seed: Seeded::new(), keys: HashMap::new(), all: 0, taken: 0 },
            hidden_keys: 0,
            requests: 0,
            latency: Histogram::default(),
            time_ns: 0,
            clients: HashMap::new(),
            has_more_clients: false,
            span_ns: None,
        }
    }

    pub fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.hot.seed.seed())
    }

    /// Counts a key that is asked for.
    pub fn asked(&mut self, command: u8, key: &[u8], is_encoded: bool) -> Asked {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.push(command);
        if key.len() > LONGEST_KEY {
            scratch.extend_from_slice(b"(longer than 250 bytes)");
        } else if is_encoded {
            scratch.extend_from_slice(b"<base64>");
        } else {
            self.hidden_keys += u64::from(pattern::fold(key, &self.shown, &mut scratch));
        }
        let class = self.class(&scratch);
        self.scratch = scratch;
        let hash = self.hash(key);
        self.hot.add(hash, class, self.names_keys.then(|| &key[..key.len().min(LONGEST_KEY)]));
        let bytes = key.len().min(usize::from(u16::MAX)) as u16;
        Asked { hash, class, bytes, fate: Fate::Unanswered, value_bytes: None, response_bytes: 0 }
    }

    /// What a request without a key counts as.
    pub fn keyless(&mut self, command: u8) -> Asked {
        let class = self.class(&[command]);
        Asked { hash: 0, class, bytes: 0, fate: Fate::Unanswered, value_bytes: None, response_bytes: 0 }
    }

    fn class(&mut self, name: &[u8]) -> u32 {
        if let Some(class) = self.found.get(name) {
            return *class;
        }
        let others = [&name[..1], b"(other patterns)"].concat();
        let is_full = self.classes.len() >= MOST_CLASSES && name.len() > 1 && name != others;
        if is_full {
            return self.class(&others);
        }
        let class = self.classes.len() as u32;
        let pattern = String::from_utf8_lossy(&name[1..]).into();
        self.classes.push(Class { command: name[0], pattern, ..Class::default() });
        self.found.insert(name.to_vec(), class);
        class
    }

    /// Counts a request that is over, with the keys it asked for.
    pub fn over(&mut self, took: &Took, asked: &[Asked]) {
        self.requests += 1;
        if let Some(latency_ns) = took.latency_ns {
            self.latency.record(latency_ns);
            self.time_ns = self.time_ns.saturating_add(latency_ns);
        }
        let share_ns = took.latency_ns.unwrap_or(0) / asked.len().max(1) as u64;
        // What belongs to no key counts with the first.
        let keys: u64 = asked.iter().map(|each| u64::from(each.bytes)).sum();
        let mut rest = took.request_bytes.saturating_sub(keys);
        for each in asked {
            let class = &mut self.classes[each.class as usize];
            class.keys += u64::from(each.bytes > 0);
            class.fates[each.fate as usize] += 1;
            class.request_bytes += u64::from(each.bytes) + std::mem::take(&mut rest);
            class.response_bytes += each.response_bytes;
            class.time_ns = class.time_ns.saturating_add(share_ns);
            if let Some(bytes) = each.value_bytes {
                class.values.record(bytes);
            }
            if class.last != self.requests {
                class.last = self.requests;
                class.requests += 1;
                if let Some(latency_ns) = took.latency_ns {
                    class.latency.record(latency_ns);
                }
            }
        }
    }

    pub fn client(&mut self, client: IpAddr, requests: u64) {
        if let Some(known) = self.clients.get_mut(&client) {
            *known += requests;
        } else if self.clients.len() < MOST_CLIENTS {
            self.clients.insert(client, requests);
        } else {
            self.has_more_clients = true;
        }
    }

    pub fn seen(&mut self, time_ns: u64) {
        let (first, last) = self.span_ns.unwrap_or((time_ns, time_ns));
        self.span_ns = Some((first.min(time_ns), last.max(time_ns)));
    }

    /// All that was counted; nothing is, afterwards.
    pub fn take_json(&mut self) -> Value {
        let hot = self.hot_json();
        let (first_ns, last_ns) = self.span_ns.unzip();
        let mut classes = std::mem::take(&mut self.classes);
        classes.sort_by(|a, b| {
            let by = |class: &Class| (class.time_ns, class.requests);
            by(b).cmp(&by(a)).then_with(|| (a.command, &a.pattern).cmp(&(b.command, &b.pattern)))
        });
        let mut clients: Vec<_> = self.clients.iter().collect();
        clients.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let busiest: Vec<_> = clients
            .iter()
            .take(TOLD_CLIENTS)
            .map(|(at, requests)| json!({"address": at, "requests": requests}))
            .collect();
        let all_ns = self.time_ns;
        json!({
            "first_ns": first_ns,
            "last_ns": last_ns,
            "requests": self.requests,
            "keys": self.hot.all,
            "keys_with_hidden_words": self.hidden_keys,
            "latency_ns": of(&self.latency.take()),
            "clients": {"count": clients.len(), "has_more": self.has_more_clients, "busiest": busiest},
            "hot_keys": hot,
            "classes": classes.iter_mut().map(|class| class.take_json(all_ns)).collect::<Vec<_>>(),
        })
    }

    fn hot_json(&self) -> Value {
        let Hot { keys, all, taken, .. } = &self.hot;
        let share = |requests: u64| requests as f64 / (*all).max(1) as f64;
        let mut hot: Vec<_> = keys
            .iter()
            .filter(|(_, key)| share(key.requests + taken) >= HOT_SHARE && key.requests > 1)
            .collect();
        hot.sort_by_key(|(hash, key)| (std::cmp::Reverse(key.requests), **hash));
        let told: Vec<_> = hot
            .iter()
            .take(TOLD_KEYS)
            .map(|(hash, key)| {
                json!({
                    "hash": format!("{:012x}", *hash >> 16),
                    "key": key.name.as_ref().map(|name| String::from_utf8_lossy(name)),
                    "pattern": self.classes[key.class as usize].pattern,
                    "requests_least": key.requests,
                    "requests_most": key.requests + taken,
                    "share_least": share(key.requests),
                    "share_most": share(key.requests + taken),
                })
            })
            .collect();
        json!({"share_from": HOT_SHARE, "more": hot.len().saturating_sub(TOLD_KEYS), "keys": told})
    }
}

impl Class {
    fn take_json(&mut self, all_ns: u64) -> Value {
        let (command, shape) = COMMANDS[usize::from(self.command)];
        let [found, missed, refused, failed, silent, unanswered] = self.fates;
        let looked_up = found + missed;
        let is_known = looked_up > 0 && (shape.looks_up() || shape == Shape::MetaDebug);
        json!({
            "command": command,
            "pattern": self.pattern,
            "requests": self.requests,
            "keys": self.keys,
            "found": found,
            "missed": missed,
            "refused": refused,
            "failed": failed,
            "silent": silent,
            "unanswered": unanswered,
            "hit_rate": is_known.then(|| found as f64 / looked_up as f64),
            "request_bytes": self.request_bytes,
            "response_bytes": self.response_bytes,
            "value_bytes": of(&self.values.take()),
            "latency_ns": of(&self.latency.take()),
            "time_ns": self.time_ns,
            "share_of_time": (all_ns > 0).then(|| self.time_ns as f64 / all_ns as f64),
        })
    }
}

fn of(values: &Sparse) -> Value {
    let at = |share| values.percentile_ns(share);
    json!({"count": values.count(), "p50": at(0.5), "p99": at(0.99), "max": values.max_ns})
}
