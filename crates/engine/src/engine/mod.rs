//! One thread of the driver: its connections, when they start their operations, and how these end.
//!
//! Connections never wait for each other: `net` reports which of them have events, and the request that follows a
//! reply goes out before the next reply is read.

pub mod dynamic;
mod rounds;
mod slot;
#[cfg(test)]
mod tests;
mod turns;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::AtomicBool;

use self::slot::Slot;
use crate::arrivals::{Arrivals, Think};
use crate::client::Client;
use crate::net::{Address, Net};
use crate::recorder::Recorder;
use crate::schedule::Schedule;

/// What all clients of a thread share.
pub struct EngineConfig {
    pub address: Address,
    /// None in a closed loop.
    pub arrivals: Option<Arrivals>,
    /// Clients come and go, and `Client::turn` says what they start and when.
    pub is_assigned: bool,
    pub think_ns: u64,
    pub think: Think,
    pub timeout_ns: u64,
    pub retries: u32,
    /// How many operations the workload has; reconnects are counted under the number after the last.
    pub operations: usize,
    pub seed: u64,
}

pub struct Engine<'a, C> {
    config: EngineConfig,
    slots: Vec<Slot<C>>,
    net: Net,
    /// When resting and disconnected clients continue: instant, slot, its generation.
    pauses: BinaryHeap<Reverse<(u64, usize, u32)>>,
    /// Free clients of an open loop, the longest free first.
    free: VecDeque<usize>,
    next_arrival_ns: Option<u64>,
    /// Clients that let others go first, and places whose client has left.
    held: Vec<usize>,
    vacant: Vec<usize>,
    /// Places whose operation starts with the next submit.
    unsent: Vec<usize>,
    /// Operations in progress.
    busy: usize,
    schedule: Schedule,
    recorder: Recorder,
    /// From the agreed start on.
    is_driving: bool,
    /// Lost connections are reopened; before the trial a lost one ends everything.
    reconnects: bool,
    connections_lost: u64,
    stop: &'a AtomicBool,
    /// What a client sends; and on encrypted connections its bytes on the wire, and the decrypted input.
    out: Vec<u8>,
    wire: Vec<u8>,
    plain: Vec<u8>,
}

/// The results of a thread, in addition to its seconds.
pub struct Outcome {
    pub recorder: Recorder,
    pub connections_lost: u64,
    /// Operations in progress, or due in an open loop, when the driver was stopped.
    pub unfinished: u64,
    /// When the last operation ended, but not before the end of the schedule or the stop; of the driver's clock.
    pub end_ns: u64,
}

impl<'a, C: Client> Engine<'a, C> {
    /// `clients` come with their numbers, which seed their random generators.
    pub fn new(
        config: EngineConfig,
        clients: impl Iterator<Item = (usize, C)>,
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let slots = clients.map(|(number, client)| Slot::new(client, number, config.seed));
        let schedule = Schedule { start_ns: 0, window_start_ns: 0, end_ns: 0 };
        let recorder = Recorder::new(config.operations + 1, schedule);
        let slots: Vec<_> = slots.collect();
        Ok(Self {
            net: Net::open(slots.len(), config.arrivals.is_some())?,
            slots,
            pauses: BinaryHeap::new(),
            free: VecDeque::new(),
            next_arrival_ns: None,
            held: Vec::new(),
            vacant: Vec::new(),
            unsent: Vec::new(),
            busy: 0,
            schedule,
            recorder,
            is_driving: false,
            reconnects: false,
            connections_lost: 0,
            stop,
            out: Vec::new(),
            wire: Vec::new(),
            plain: Vec::new(),
            config,
        })
    }
}
