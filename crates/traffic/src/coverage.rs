//! What a source could see and what it could not: every report of traffic begins with this.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many places of damage are kept with their reason; all are counted.
const KEPT_PLACES: usize = 20;

/// The damage of a slow log's head with nothing behind it.
pub(crate) const NO_STATEMENT: &str = "an event without a statement";
/// A few of them may be a log's own.
const MANY_DAMAGED: u64 = 10;

/// How many different names are kept apart; their number may be a stranger's choice.
const KEPT_NAMES: usize = 100;
const OTHER_NAMES: &str = "others";

/// Counts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Named(BTreeMap<String, u64>);

impl Named {
    pub fn add(&mut self, name: &str, count: u64) {
        if let Some(known) = self.0.get_mut(name) {
            *known += count;
        } else if count > 0 {
            let name = if self.0.len() < KEPT_NAMES { name } else { OTHER_NAMES };
            *self.0.entry(name.to_owned()).or_default() += count;
        }
    }

    pub fn merge(&mut self, other: &Named) {
        other.0.iter().for_each(|(name, count)| self.add(name, *count));
    }

    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// The names that are kept apart, with their counts.
    pub fn names(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count)).filter(|(name, _)| *name != OTHER_NAMES)
    }

    /// `22 ESP, 3 ARP`: the largest first.
    #[must_use]
    pub fn listed(&self) -> String {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), name.as_str()));
        let listed: Vec<_> = all.iter().map(|(name, count)| format!("{count} {name}")).collect();
        listed.join(", ")
    }
}

/// `1 packet`, `3 packets`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

const UNKNOWN_SESSIONS: &str = "that began before the capture and show no request";
const CUT_SESSIONS: &str = "of which the capture cut the packets (`tcpdump -s 0` keeps them whole)";

/// Counts of what was read and what was missed. All counts add, so that parts merge exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Coverage {
    /// Events given to the sink.
    pub events: u64,
    /// Bytes of the input after decompression, and those that no event could be made of.
    pub bytes: u64,
    pub skipped_bytes: u64,
    /// Lines, packets or frames that made no sense.
    pub damaged: u64,
    /// Events that were there and could not be read, as far as anything tells: those of damaged blocks, and what
    /// clients said while their session was not understood. There may be more.
    pub lost_events: u64,
    /// Events of logs that have only one statement or session in so many (Percona Server's log_slow_rate_limit), and how
    /// many of all these stand for.
    pub sampled_events: u64,
    pub represented_events: u64,
    /// Statements that the server left out of its slow log and only counted (log_throttle_queries_not_using_indexes), and
    /// their response time, as far as it says. No event is made of them.
    pub throttled_events: u64,
    pub throttled_ns: u64,
    /// Of logs that people or programs changed since: header lines that are not as a server writes them, statements without
    /// their `;`, events whose time or account cannot be read, lines of other logs between events. All but the last were
    /// read.
    pub touched_lines: u64,
    pub unterminated_events: u64,
    pub unread_times: u64,
    pub unread_accounts: u64,
    /// Events that are older than what their log said of the database: it may have changed in between, and is not known.
    pub unknown_databases: u64,
    pub other_lines: u64,
    /// Of the events, those that are there twice, in one file or in several.
    pub repeated_events: u64,
    /// Of the events, those that a server summed up itself: nothing is known of a single one.
    pub summarised_events: u64,
    /// The first of them, and notes on whole inputs.
    pub places: Vec<Place>,
    /// Sessions seen; of these, encrypted ones and ones that began before the capture did.
    pub sessions: u64,
    pub tls_sessions: u64,
    pub midstream_sessions: u64,
    /// Began before the capture, too, but the server said who they are and what they prepared.
    pub joined_sessions: u64,
    /// Replicas that fetch the binary log: recognised, and left alone from there on.
    pub replication_sessions: u64,
    /// Sessions of which only one direction was captured, so that no request could be matched with its answer.
    pub one_sided_sessions: u64,
    /// Sessions that a balancer announced with a header of the PROXY protocol, by its kind. Those whose header names a
    /// client have that client's address.
    pub proxied_sessions: Named,
    /// Sessions that are not MySQL's classic protocol, by what they speak instead.
    pub foreign_sessions: Named,
    /// Executions of statements whose prepare was not seen, or what they bind could not be told behind a gap.
    pub unknown_statements: u64,
    /// Executions in such sessions whose values cannot be told: their types were sent before the capture.
    pub unbound_executions: u64,
    /// Requests whose answer was never seen whole.
    pub unanswered: u64,
    /// Packets in all, and those of them that are TCP of the servers.
    pub packets: u64,
    pub server_packets: u64,
    /// Packets that the kernel or the capture says it lost.
    pub dropped_packets: u64,
    /// Packets cut by the snap length.
    pub cut_packets: u64,
    pub retransmitted_packets: u64,
    /// Holes in TCP streams that nothing filled, and their bytes where the sequence numbers tell.
    pub gaps: u64,
    pub gap_bytes: u64,
    /// Packets that are no TCP of the servers looked for, and what they are.
    pub other_packets: u64,
    pub other_kinds: Named,
    /// Packets that came in a tunnel, by that.
    pub tunnels: Named,
}

/// One place in the input and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Name of the input (a file, an interface).
    pub input: String,
    /// Byte offset in the decompressed input.
    pub offset: u64,
    /// Line in a log, counted from 1; packet or frame in a capture; 0 and no offset for the whole input.
    pub item: u64,
    pub reason: String,
}

impl Coverage {
    /// Whether the place of the next damage will be kept.
    pub fn keeps_places(&self) -> bool {
        self.places.len() < KEPT_PLACES
    }

    /// Counts one damage and keeps its place if there is room.
    pub fn damage(&mut self, input: &str, offset: u64, item: u64, reason: impl Into<String>) {
        self.damaged += 1;
        self.place(input, offset, item, reason);
    }

    /// Keeps a place that is to be known, if there is room.
    pub fn place(&mut self, input: &str, offset: u64, item: u64, reason: impl Into<String>) {
        if self.keeps_places() {
            self.places.push(Place { input: input.to_owned(), offset, item, reason: reason.into() });
        }
    }

    /// Counts statements that a server left out of its log. What it says of them may be anything: sums do not overflow.
    pub fn throttled(&mut self, events: u64, took_ns: Option<u64>) {
        self.throttled_events = self.throttled_events.saturating_add(events);
        self.throttled_ns = self.throttled_ns.saturating_add(took_ns.unwrap_or(0));
    }

    /// Keeps what is to be known of an input and is no damage: places of damage make room for it.
    pub fn note(&mut self, input: &str, reason: impl Into<String>) {
        self.places.push(Place { input: input.to_owned(), offset: 0, item: 0, reason: reason.into() });
        self.limit_places();
    }

    fn limit_places(&mut self) {
        while self.places.len() > KEPT_PLACES {
            let last = self.places.iter().rposition(|place| place.item > 0);
            self.places.remove(last.unwrap_or(KEPT_PLACES));
        }
    }

    /// Says of a log that is mostly heads without statements why that may be: then the rest is as doubtful.
    pub fn note_mixed_lines(&mut self) {
        let is_headless = |place: &&Place| place.reason == NO_STATEMENT;
        let headless = self.places.iter().filter(is_headless).count();
        if self.damaged < self.events.max(MANY_DAMAGED) || 2 * headless <= self.places.len() {
            return;
        }
        let Some(place) = self.places.iter().find(is_headless) else { return };
        let (input, said) = (place.input.clone(), counted(self.damaged, "damaged place"));
        let events = counted(self.events, "event");
        let reason = format!(
            "{said} to {events}: lines of this log seem to be shuffled, sorted or filtered, so heads may have \
             statements of others; digest the log as the server wrote it"
        );
        self.note(&input, reason);
    }

    /// Why there is nothing at all, where packets came and none of them could be read: that must not look like an idle
    /// server.
    #[must_use]
    pub fn unreadable(&self) -> Option<String> {
        if self.events > 0 {
            return None;
        }
        if self.packets == 0 {
            return self.unreadable_log();
        }
        if self.server_packets == 0 {
            let mut kinds = self.other_kinds.clone();
            kinds.add("cut inside their headers", self.cut_packets);
            kinds.add("damaged", self.damaged);
            // Each packet of IP was counted once, however many fragments it came in.
            kinds.add("further fragments of these", self.packets.saturating_sub(kinds.total()));
            let hint = self.places.iter().find(|place| place.item == 0 && place.reason.contains("--port"));
            let hint = hint.map_or(String::new(), |place| format!("; {}", place.reason));
            return Some(format!(
                "none of the {} packets is one of a server on the ports that were read: {}{hint}",
                self.packets,
                kinds.listed()
            ));
        }
        let mut why = self.foreign_sessions.clone();
        why.add("encrypted (TLS)", self.tls_sessions);
        why.add("of which only one direction was captured", self.one_sided_sessions);
        // Sessions of one direction began before the capture as well.
        let unknown = self.sessions.saturating_sub(why.total());
        let is_cut = self.cut_packets > 0 && self.gap_bytes > 0;
        let missed = self.midstream_sessions + self.joined_sessions;
        let is_known = missed.saturating_sub(self.one_sided_sessions) >= unknown;
        if is_known && (is_cut || self.skipped_bytes > 0) {
            why.add(if is_cut { CUT_SESSIONS } else { UNKNOWN_SESSIONS }, unknown);
        }
        let is_all = self.sessions > 0 && why.total() >= self.sessions;
        let is_cache = self.foreign_sessions.get("memcached") > 0;
        let hint = if is_cache { "; `headrace digest memcached` reads memcached" } else { "" };
        is_all
            .then(|| format!("none of the {} sessions could be read: {}{hint}", self.sessions, why.listed()))
    }

    /// A log of which nothing could be read, though there is more in it than what a server writes when it begins one.
    fn unreadable_log(&self) -> Option<String> {
        let is_any = self.lost_events + self.summarised_events + self.throttled_events > 0;
        if is_any || self.damaged == 0 || self.skipped_bytes < self.bytes.div_ceil(2) {
            return None;
        }
        let first = self.places.iter().find(|place| place.item > 0).or(self.places.first());
        let why = first
            .map_or(String::new(), |place| format!("; the first: {}, line {}", place.reason, place.item));
        Some(format!(
            "no event could be read: {} of {} bytes make no sense{why}",
            self.skipped_bytes, self.bytes
        ))
    }

    /// Adds the counts of another part of the same traffic.
    pub fn merge(&mut self, other: &Coverage) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.skipped_bytes += other.skipped_bytes;
        self.damaged += other.damaged;
        self.lost_events += other.lost_events;
        self.sampled_events += other.sampled_events;
        self.represented_events += other.represented_events;
        self.throttled(other.throttled_events, Some(other.throttled_ns));
        self.touched_lines += other.touched_lines;
        self.unterminated_events += other.unterminated_events;
        self.unread_times += other.unread_times;
        self.unread_accounts += other.unread_accounts;
        self.unknown_databases += other.unknown_databases;
        self.other_lines += other.other_lines;
        self.repeated_events += other.repeated_events;
        self.summarised_events += other.summarised_events;
        self.places.extend(other.places.iter().cloned());
        self.limit_places();
        self.sessions += other.sessions;
        self.tls_sessions += other.tls_sessions;
        self.midstream_sessions += other.midstream_sessions;
        self.joined_sessions += other.joined_sessions;
        self.replication_sessions += other.replication_sessions;
        self.one_sided_sessions += other.one_sided_sessions;
        self.proxied_sessions.merge(&other.proxied_sessions);
        self.foreign_sessions.merge(&other.foreign_sessions);
        self.unknown_statements += other.unknown_statements;
        self.unbound_executions += other.unbound_executions;
        self.unanswered += other.unanswered;
        self.packets += other.packets;
        self.server_packets += other.server_packets;
        self.dropped_packets += other.dropped_packets;
        self.cut_packets += other.cut_packets;
        self.retransmitted_packets += other.retransmitted_packets;
        self.gaps += other.gaps;
        self.gap_bytes += other.gap_bytes;
        self.other_packets += other.other_packets;
        self.other_kinds.merge(&other.other_kinds);
        self.tunnels.merge(&other.tunnels);
    }
}

#[cfg(test)]
mod tests {
    use super::Coverage;

    #[test]
    fn sessions_of_which_nothing_was_understood_are_named() {
        let joined = Coverage {
            packets: 9,
            server_packets: 9,
            sessions: 3,
            midstream_sessions: 3,
            ..Coverage::default()
        };
        // They may have said nothing.
        assert_eq!(joined.unreadable(), None);
        let spoken = Coverage { skipped_bytes: 100, one_sided_sessions: 2, ..joined.clone() };
        let why = spoken.unreadable().unwrap();
        assert!(
            why.contains("2 of which only one direction") && why.contains("1 that began before"),
            "{why}"
        );
        let cut = Coverage { cut_packets: 9, gap_bytes: 800, ..joined.clone() };
        assert!(cut.unreadable().unwrap().contains("tcpdump -s 0"));
        // One that was seen to begin is waited for.
        assert_eq!(Coverage { sessions: 4, ..spoken }.unreadable(), None);
        let mut log = Coverage { bytes: 900, skipped_bytes: 800, ..Coverage::default() };
        log.damage("a.log", 0, 1, "nothing here is an event of a slow log");
        assert!(
            log.unreadable().unwrap().contains("800 of 900 bytes make no sense; the first: nothing here")
        );
        for read in [
            Coverage { events: 1, ..log.clone() },
            Coverage { skipped_bytes: 10, ..log.clone() },
            Coverage { summarised_events: 5, ..log.clone() },
        ] {
            assert_eq!(read.unreadable(), None);
        }
    }

    #[test]
    fn mixed_lines_are_said_whatever_the_places() {
        let mut mixed = Coverage { events: 30, ..Coverage::default() };
        for item in 1..40 {
            mixed.damage("slow.log", item, item, super::NO_STATEMENT);
        }
        let mut filtered = Coverage { events: 100, ..mixed.clone() };
        mixed.note_mixed_lines();
        assert!(mixed.places.last().unwrap().reason.starts_with("39 damaged places to 30 events"));
        assert_eq!(mixed.places.len(), super::KEPT_PLACES);
        filtered.note_mixed_lines();
        assert!(filtered.places.iter().all(|place| place.item > 0));
        filtered.merge(&mixed);
        assert!(filtered.places.iter().any(|place| place.item == 0), "no damage takes a note's place");
    }
}
