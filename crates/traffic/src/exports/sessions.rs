//! Numbers of sessions where an export holds what several servers wrote: each of them counts its threads from 1.

use std::collections::HashMap;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::event::{Event, Sink};

/// Servers that are told apart; further ones are known by a hash only.
const MOST_SERVERS: usize = 4096;
/// Sessions of all but the first server have this bit; numbers of threads are below it.
const MIXED: u64 = 1 << 63;

/// Servers by the order in which they were seen.
#[derive(Default)]
pub(super) struct Servers {
    known: HashMap<Box<[u8]>, u64>,
}

impl Servers {
    /// Whether something else than one server was seen.
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// 0 for the first one.
    pub(super) fn number(&mut self, name: &[u8]) -> u64 {
        if let Some(number) = self.known.get(name) {
            return *number;
        }
        if self.known.len() >= MOST_SERVERS {
            return xxh3_64(name) | MIXED;
        }
        let number = self.known.len() as u64;
        self.known.insert(name.into(), number);
        number
    }
}

/// The number of a session among those of all servers.
pub(super) fn session(server: u64, session: u64) -> u64 {
    if server == 0 { session } else { xxh3_64_with_seed(&session.to_le_bytes(), server) | MIXED }
}

/// Gives an event of one of several servers.
pub(super) fn give(event: &Event<'_>, server: u64, sink: &mut dyn Sink) -> anyhow::Result<()> {
    if server == 0 {
        return sink.event(event);
    }
    // KILL on one server must not be taken for one on another.
    sink.event(&Event { session: session(server, event.session), connection: None, ..event.clone() })
}

#[cfg(test)]
mod tests {
    use super::{Servers, session};

    #[test]
    fn threads_of_two_servers_are_two_sessions() {
        let mut servers = Servers::default();
        let numbers = [&b"a"[..], b"b", b"a"].map(|name| servers.number(name));
        assert_eq!(numbers, [0, 1, 0]);
        assert_eq!(session(0, 7), 7);
        assert!(session(1, 7) != 7 && session(1, 7) != session(2, 7) && session(1, 7) == session(1, 7));
    }
}
