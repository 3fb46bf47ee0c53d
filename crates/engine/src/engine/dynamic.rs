//! Clients that come and go while the engine runs, and are assigned their work.

use std::cmp::Reverse;

use super::Engine;
use super::slot::{Slot, State};
use crate::client::{Assignment, Client, Failure, Turn};
use crate::recorder::Times;

/// A client that cannot connect delays its work this long; then its due operations fail.
const TIMEOUT_NS: u64 = 10_000_000_000;

/// Brings clients and their work to an engine.
pub trait WorkSource<C: Client> {
    /// Called before each round. Returns when it must be called again at the latest, in ns of the driver's clock.
    fn feed(&mut self, engine: &mut Engine<'_, C>, now: u64) -> u64;
}

/// Nothing is assigned: all clients exist from the start and choose for themselves.
impl<C: Client> WorkSource<C> for () {
    fn feed(&mut self, _engine: &mut Engine<'_, C>, _now: u64) -> u64 {
        u64::MAX
    }
}

impl<C: Client> Engine<'_, C> {
    /// Adds a client, to connect at `due_ns`; its place is its own until it has left.
    pub fn enter(&mut self, number: usize, client: C, due_ns: u64) -> usize {
        let mut slot = Slot::new(client, number, self.config.seed);
        let place = match self.vacant.pop() {
            Some(place) => {
                // A pause of the client that left this place stays void.
                slot.generation = self.slots[place].generation.wrapping_add(1);
                self.slots[place] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                self.net.make_room(self.slots.len());
                self.slots.len() - 1
            }
        };
        self.pauses.push(Reverse((due_ns, place, self.slots[place].generation)));
        place
    }

    /// The client at a place.
    pub fn client(&mut self, place: usize) -> &mut C {
        &mut self.slots[place].client
    }

    /// There is work for a client that may have waited for it.
    pub fn wake(&mut self, place: usize, now: u64) {
        if self.slots[place].state == State::Free && self.is_driving {
            self.take_turn(place, now);
        }
    }

    /// The number of clients.
    pub fn client_count(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// All clients have left and none will come: the load ended with the last operation, but not before `least_ns`.
    pub fn end(&mut self, least_ns: u64) {
        self.schedule.end_ns = self.recorder.last_end_ns().max(self.schedule.start_ns).max(least_ns);
    }

    /// A free client continues with its assigned work.
    pub(super) fn take_turn(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        match slot.client.turn(slot.since_ns) {
            Turn::Begin(Assignment { operation, intended_ns }) => {
                slot.operation = operation;
                if intended_ns <= now {
                    self.begin(place, intended_ns);
                } else {
                    slot.set_state(State::Resting);
                    self.pauses.push(Reverse((intended_ns, place, slot.generation)));
                }
            }
            Turn::Rest(until_ns) => {
                slot.set_state(State::Resting);
                self.pauses.push(Reverse((until_ns, place, slot.generation)));
            }
            turn @ (Turn::Held | Turn::Nothing) => {
                // Who rested before rests no more: it has to be asked, or woken.
                slot.set_state(State::Free);
                if turn == Turn::Held && !slot.is_queued {
                    slot.is_queued = true;
                    self.held.push(place);
                }
            }
            Turn::Over => self.take_leave(place, now),
        }
    }

    /// Asks the held clients again.
    pub(super) fn ask_held(&mut self, now: u64) {
        let held = std::mem::take(&mut self.held);
        for &place in &held {
            let slot = &mut self.slots[place];
            slot.is_queued = false;
            if slot.state == State::Free {
                // Its wait for others is not the driver's lateness.
                slot.since_ns = now;
                self.take_turn(place, now);
            }
        }
        if self.held.is_empty() {
            self.held = held;
            self.held.clear();
        }
    }

    fn take_leave(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        slot.since_ns = now;
        slot.set_state(State::Leaving);
        self.out.clear();
        slot.client.farewell(&mut self.out);
        let _ = self.send(place);
    }

    pub(super) fn vacate(&mut self, place: usize) {
        self.net.close(place);
        self.slots[place].tls = None;
        self.slots[place].set_state(State::Vacant);
        self.vacant.push(place);
    }

    /// A client has not been able to connect for too long: its due operations fail, since they were asked for.
    pub(super) fn give_up(&mut self, place: usize, failure: &Failure, now: u64) {
        let slot = &mut self.slots[place];
        if slot.down_since_ns.is_none_or(|since| now < since + TIMEOUT_NS) {
            return;
        }
        while let Some(Assignment { operation, intended_ns }) = slot.client.give_up(now) {
            self.recorder.error(operation, failure, false);
            self.recorder.failed(operation, Times { intended_ns, sent_ns: now, ended_ns: now });
        }
        if matches!(slot.client.turn(now), Turn::Over) {
            self.vacate(place);
        }
    }
}
