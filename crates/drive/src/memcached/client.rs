//! The memcached client of one connection: one request at a time.

use rand::RngExt;

use super::replies::{Refusal, RefusalKind, Replies, Reply};
use super::{Memcached, Operation};
use engine::client::{Choice, Client, Failure, MALFORMED, Progress, Random};

/// The text protocol has no error numbers: these are from the binary protocol in the same cases
/// (protocol_binary.h), far below MySQL's.
const TOO_LARGE: u16 = 3;
const INVALID_ARGUMENTS: u16 = 4;
const UNKNOWN_COMMAND: u16 = 129;
const OUT_OF_MEMORY: u16 = 130;
const INTERNAL_ERROR: u16 = 132;

pub struct MemcachedClient<'a> {
    workload: &'a Memcached,
    replies: Replies,
    phase: Phase,
    /// The operation that was chosen last.
    chosen: Operation,
    /// The item of the current operation.
    item: u64,
    /// Its reply so far.
    bytes: u64,
    /// The requested key, while a reply is compared with it.
    key: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// There is no login, but stalled servers and servers other than memcached also accept connections: only one that
    /// has answered is used.
    Greeting,
    Idle,
    Working,
}

impl<'a> MemcachedClient<'a> {
    pub fn new(workload: &'a Memcached) -> Self {
        Self {
            workload,
            replies: Replies::default(),
            phase: Phase::Greeting,
            chosen: Operation::Get,
            item: 0,
            bytes: 0,
            key: Vec::new(),
        }
    }

    /// A reply is complete.
    fn take(&mut self, reply: Reply) -> Progress {
        match (self.phase, self.chosen, reply) {
            (Phase::Greeting, _, Reply::Version) => {
                self.phase = Phase::Idle;
                Progress::Ready
            }
            (Phase::Working, Operation::Get, Reply::Value) => {
                self.key.clear();
                self.workload.items.write_key(self.item, &mut self.key);
                if self.key != self.replies.key() {
                    return malformed("the value of another key");
                }
                self.end(1)
            }
            (Phase::Working, Operation::Get, Reply::Miss)
            | (Phase::Working, Operation::Set, Reply::Stored) => self.end(0),
            (Phase::Working, _, Reply::Refused(refusal)) if refusal.kind == RefusalKind::Server => {
                self.phase = Phase::Idle;
                Progress::Failed(failure(refusal))
            }
            // A server that did not understand a `set` reads the value as more commands.
            (_, _, Reply::Refused(refusal)) => Progress::Broken(failure(refusal)),
            _ => malformed("the reply to another request"),
        }
    }

    fn end(&mut self, rows: u64) -> Progress {
        self.phase = Phase::Idle;
        Progress::Ended { rows, bytes: self.bytes }
    }
}

impl Client for MemcachedClient<'_> {
    fn connected(&mut self, out: &mut Vec<u8>) -> Progress {
        self.replies = Replies::default();
        self.phase = Phase::Greeting;
        out.extend_from_slice(b"version\r\n");
        Progress::Waiting
    }

    fn receive(&mut self, mut input: &[u8], _out: &mut Vec<u8>, _random: &mut Random) -> Progress {
        if matches!(self.phase, Phase::Idle) {
            return malformed("an unexpected reply");
        }
        self.bytes += input.len() as u64;
        match self.replies.next(&mut input) {
            Err(what) => malformed(what),
            Ok(Some(reply)) if input.is_empty() => self.take(reply),
            // The error is more helpful than the fact that more bytes follow.
            Ok(Some(Reply::Refused(refusal))) => Progress::Broken(failure(refusal)),
            Ok(Some(_)) => malformed("more than one reply"),
            Ok(None) => Progress::Waiting,
        }
    }

    fn choose(&mut self, random: &mut Random) -> Choice {
        let is_get = random.random::<f64>() < self.workload.get_share;
        self.chosen = if is_get { Operation::Get } else { Operation::Set };
        let kinds = self.workload.kinds();
        let operation = usize::from(kinds[0] != self.chosen);
        Choice { operation, pause_ns: None }
    }

    fn begin(&mut self, out: &mut Vec<u8>, random: &mut Random) -> Progress {
        self.item = self.workload.keys.draw(random) as u64;
        self.bytes = 0;
        self.phase = Phase::Working;
        match self.chosen {
            Operation::Get => self.workload.items.write_get(self.item, out),
            Operation::Set => self.workload.items.write_set(self.item, out),
        }
        Progress::Waiting
    }
}

fn malformed(what: &'static str) -> Progress {
    Progress::Broken(Failure::new(MALFORMED, format!("memcached sent {what}")))
}

fn failure(refusal: Refusal) -> Failure {
    let code = match refusal.kind {
        RefusalKind::Command => UNKNOWN_COMMAND,
        RefusalKind::Client => INVALID_ARGUMENTS,
        RefusalKind::Server if refusal.message.contains("out of memory") => OUT_OF_MEMORY,
        RefusalKind::Server if refusal.message.contains("too large") => TOO_LARGE,
        RefusalKind::Server => INTERNAL_ERROR,
    };
    Failure::new(code, refusal.message)
}

#[cfg(test)]
mod tests {
    use super::{MALFORMED, MemcachedClient};
    use crate::memcached::{Memcached, Options};
    use engine::client::{Client, Failure, Progress, Random};
    use proptest::prelude::{any, prop, proptest};
    use rand::SeedableRng;

    fn workload(get_share: f64) -> Memcached {
        let options = serde_json::json!({
            "address": "127.0.0.1:1", "keys": 1, "get_share": get_share, "key_bytes": {"min": 4, "max": 4},
            "value_bytes": {"kind": "fixed", "bytes": 2},
        });
        Memcached::new(&serde_json::from_value::<Options>(options).unwrap()).unwrap()
    }

    fn random() -> Random {
        Random::seed_from_u64(1)
    }

    /// A client of the only item, with a request out.
    fn asking(workload: &Memcached) -> MemcachedClient<'_> {
        let mut client = MemcachedClient::new(workload);
        let mut out = Vec::new();
        client.connected(&mut out);
        assert_eq!(out, b"version\r\n");
        out.clear();
        assert!(matches!(client.receive(b"VERSION 1\r\n", &mut out, &mut random()), Progress::Ready));
        client.choose(&mut random());
        assert!(matches!(client.begin(&mut out, &mut random()), Progress::Waiting));
        assert!(out.starts_with(b"get hr:0\r\n") || out.starts_with(b"set hr:0 0 0 2\r\n"));
        client
    }

    /// What comes of an answer that comes in one piece.
    fn answer(get_share: f64, bytes: &[u8]) -> Progress {
        asking(&workload(get_share)).receive(bytes, &mut Vec::new(), &mut random())
    }

    #[test]
    fn operations_that_end_well() {
        let ended = |share, bytes: &[u8]| match answer(share, bytes) {
            Progress::Ended { rows, bytes } => (rows, bytes),
            _ => panic!("{}", bytes.escape_ascii()),
        };
        assert_eq!(ended(1.0, b"VALUE hr:0 0 2\r\nab\r\nEND\r\n"), (1, 25));
        assert_eq!(ended(1.0, b"END\r\n"), (0, 5));
        assert_eq!(ended(0.0, b"STORED\r\n"), (0, 8));
    }

    #[test]
    fn a_server_error_leaves_the_connection() {
        for (line, code) in [
            ("SERVER_ERROR out of memory storing object", 130),
            ("SERVER_ERROR object too large for cache", 3),
            ("SERVER_ERROR backend failure", 132),
        ] {
            match answer(0.0, format!("{line}\r\n").as_bytes()) {
                Progress::Failed(failure) => assert_eq!(failure, Failure::new(code, line)),
                _ => panic!("{line}"),
            }
        }
    }

    #[test]
    fn what_ends_a_connection() {
        let broken = |progress| match progress {
            Progress::Broken(failure) => failure.code,
            _ => 0,
        };
        assert_eq!(broken(answer(0.0, b"CLIENT_ERROR bad data chunk\r\nERROR\r\n")), 4);
        assert_eq!(broken(answer(1.0, b"ERROR\r\n")), 129);
        assert_eq!(broken(answer(0.0, b"SERVER_ERROR backend failure\r\nSTORED\r\n")), 132);
        for bytes in [
            &b"STORED\r\n"[..],
            b"VERSION 1\r\n",
            b"END\r\nEND\r\n",
            b"END\r\nx",
            b"VALUE hr:1 0 2\r\nab\r\nEND\r\n",
            b"\n",
        ] {
            assert_eq!(broken(answer(1.0, bytes)), MALFORMED, "{}", bytes.escape_ascii());
        }
        assert_eq!(broken(answer(0.0, b"END\r\n")), MALFORMED);
    }

    #[test]
    fn nothing_may_come_unasked() {
        let workload = workload(1.0);
        for bytes in [&b"E"[..], b"END\r\n", b"SERVER_ERROR x\r\n"] {
            let mut client = asking(&workload);
            let mut out = Vec::new();
            assert!(matches!(client.receive(b"END\r\n", &mut out, &mut random()), Progress::Ended { .. }));
            match client.receive(bytes, &mut out, &mut random()) {
                Progress::Broken(failure) => assert_eq!(failure.code, MALFORMED),
                _ => panic!("{}", bytes.escape_ascii()),
            }
        }
    }

    #[test]
    fn it_begins_anew_on_a_new_connection() {
        let workload = workload(1.0);
        let mut client = asking(&workload);
        let mut out = Vec::new();
        assert!(matches!(
            client.receive(b"VALUE hr:0 0 9\r\nab", &mut out, &mut random()),
            Progress::Waiting
        ));
        client.connected(&mut out);
        assert!(matches!(client.receive(b"VERSION 1\r\n", &mut out, &mut random()), Progress::Ready));
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_no_panic(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10), share in 0..2_u8,
        ) {
            let workload = workload(f64::from(share));
            let mut client = asking(&workload);
            for piece in pieces {
                let progress = client.receive(&piece, &mut Vec::new(), &mut random());
                if matches!(progress, Progress::Broken(_)) {
                    break;
                }
            }
        }
    }
}
