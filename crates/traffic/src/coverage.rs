//! What a source could see and what it could not: every report of traffic begins with this.

use serde::{Deserialize, Serialize};

/// How many places of damage are kept with their reason; all are counted.
const KEPT_PLACES: usize = 20;

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
    /// The first of them, and notes on whole inputs.
    pub places: Vec<Place>,
    /// Sessions seen; of these, encrypted ones and ones that began before the capture did.
    pub sessions: u64,
    pub tls_sessions: u64,
    pub midstream_sessions: u64,
    /// Replicas that fetch the binary log: recognised, and left alone from there on.
    pub replication_sessions: u64,
    /// Executions of statements whose prepare was not seen, or what they bind could not be told behind a gap.
    pub unknown_statements: u64,
    /// Requests whose answer was never seen whole.
    pub unanswered: u64,
    pub packets: u64,
    /// Packets that the kernel or the capture says it lost.
    pub dropped_packets: u64,
    /// Packets cut by the snap length.
    pub cut_packets: u64,
    pub retransmitted_packets: u64,
    /// Holes in TCP streams that nothing filled, and their bytes where the sequence numbers tell.
    pub gaps: u64,
    pub gap_bytes: u64,
    /// Packets that are no TCP of the servers looked for.
    pub other_packets: u64,
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
        if self.keeps_places() {
            self.places.push(Place { input: input.to_owned(), offset, item, reason: reason.into() });
        }
    }

    /// Keeps what is to be known of an input and is no damage, if there is room.
    pub fn note(&mut self, input: &str, reason: impl Into<String>) {
        if self.keeps_places() {
            self.places.push(Place { input: input.to_owned(), offset: 0, item: 0, reason: reason.into() });
        }
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
        self.places.extend(other.places.iter().cloned());
        self.places.truncate(KEPT_PLACES);
        self.sessions += other.sessions;
        self.tls_sessions += other.tls_sessions;
        self.midstream_sessions += other.midstream_sessions;
        self.replication_sessions += other.replication_sessions;
        self.unknown_statements += other.unknown_statements;
        self.unanswered += other.unanswered;
        self.packets += other.packets;
        self.dropped_packets += other.dropped_packets;
        self.cut_packets += other.cut_packets;
        self.retransmitted_packets += other.retransmitted_packets;
        self.gaps += other.gaps;
        self.gap_bytes += other.gap_bytes;
        self.other_packets += other.other_packets;
    }
}
