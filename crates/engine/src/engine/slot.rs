//! A client's place in the engine: the state of its connection, and its current operation.

use rand::{RngExt, SeedableRng};
use rustls::ClientConnection;

use crate::arrivals::Think;
use crate::client::{Client, Random};
use crate::recorder::Times;

pub(super) struct Slot<C> {
    pub(super) client: C,
    pub(super) random: Random,
    pub(super) tls: Option<Box<ClientConnection>>,
    pub(super) state: State,
    /// Counts the states: a pause that was for an earlier one is void.
    pub(super) generation: u32,
    pub(super) is_queued: bool,
    pub(super) operation: usize,
    pub(super) intended_ns: u64,
    pub(super) sent_ns: u64,
    /// The operation has started, but its first request has not reached the kernel.
    pub(super) is_unsent: bool,
    /// When the client became free, or started to connect.
    pub(super) since_ns: u64,
    pub(super) retries_left: u32,
    pub(super) back_off_ns: u64,
    /// When the chosen operation of a closed loop starts; set from its choice to its start.
    pub(super) rests_until_ns: Option<u64>,
    /// Since when there is no connection.
    pub(super) down_since_ns: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No client is here.
    Vacant,
    Down,
    Connecting,
    LoggingIn,
    Free,
    Resting,
    Busy,
    /// The client has said goodbye; the server closes the connection.
    Leaving,
}

impl<C: Client> Slot<C> {
    pub(super) fn new(client: C, number: usize, seed: u64) -> Self {
        Slot {
            client,
            random: Random::seed_from_u64(seed.wrapping_mul(0x9E37_79B9).wrapping_add(number as u64)),
            tls: None,
            state: State::Down,
            generation: 0,
            is_queued: false,
            operation: 0,
            intended_ns: 0,
            sent_ns: 0,
            is_unsent: false,
            since_ns: 0,
            retries_left: 0,
            back_off_ns: 0,
            rests_until_ns: None,
            down_since_ns: None,
        }
    }

    pub(super) fn set_state(&mut self, state: State) {
        self.state = state;
        self.generation = self.generation.wrapping_add(1);
    }

    pub(super) fn choose(&mut self) -> usize {
        self.client.choose(&mut self.random).operation
    }

    /// Chooses the next operation of a closed loop; how long the client rests before it, in ns.
    pub(super) fn choose_with_pause(&mut self, think: Think, think_ns: u64) -> u64 {
        let choice = self.client.choose(&mut self.random);
        self.operation = choice.operation;
        match (choice.pause_ns, think) {
            (Some(pause_ns), _) => pause_ns,
            (None, Think::Constant) => think_ns,
            (None, Think::Exponential) => self.exponential(think_ns),
        }
    }

    pub(super) fn times(&self, now: u64) -> Times {
        Times { intended_ns: self.intended_ns, sent_ns: self.sent_ns, ended_ns: now }
    }

    fn exponential(&mut self, mean_ns: u64) -> u64 {
        let unit: f64 = self.random.sample(rand_distr::Exp1);
        (unit * mean_ns as f64) as u64
    }
}
