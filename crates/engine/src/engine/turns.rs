//! A client's turn: an event on its connection, or something that is due.

use std::cmp::Reverse;
use std::io::{self, Read, Write};

use rand::RngExt;
use rustls::ClientConnection;

use super::Engine;
use super::slot::State;
use crate::client::{CANNOT_CONNECT, CONNECTION_LOST, Client, Failure, Progress, Turn};
use crate::net::Happened;
use crate::recorder::Times;
use base::clock::now_ns;

/// Pauses between attempts to reconnect: they double up to the longest, and each is shortened by a random part so that
/// thousands of clients do not reconnect in the same instant.
const FIRST_BACK_OFF_NS: u64 = 10_000_000;
const LONGEST_BACK_OFF_NS: u64 = 1_000_000_000;

impl<C: Client> Engine<'_, C> {
    /// Starts to connect.
    pub(super) fn connect(&mut self, place: usize, now: u64) -> io::Result<()> {
        let slot = &mut self.slots[place];
        slot.since_ns = now;
        slot.set_state(State::Connecting);
        self.net.connect(place, &self.config.address)
    }

    /// Handles an event on a connection. Fails if one is lost before the trial.
    pub(super) fn react(&mut self, place: usize, happened: Happened) -> Result<(), Failure> {
        match happened {
            Happened::Connected => {
                let slot = &mut self.slots[place];
                slot.set_state(State::LoggingIn);
                self.out.clear();
                let progress = slot.client.connected(&mut self.out);
                self.follow(place, progress, now_ns())
            }
            Happened::Received if self.slots[place].state == State::Leaving => Ok(()),
            Happened::Received => self.receive(place),
            Happened::Closed => {
                let failure = Failure::new(CONNECTION_LOST, "the server closed the connection");
                self.connection_broke(place, failure)
            }
            Happened::Broken(error) => {
                let failure = match self.slots[place].state {
                    State::Connecting => cannot_connect(&error),
                    _ => lost(&error),
                };
                self.connection_broke(place, failure)
            }
        }
    }

    fn receive(&mut self, place: usize) -> Result<(), Failure> {
        // Not the current time: the driver's work on replies of the same batch is not the server's.
        let slot = &mut self.slots[place];
        let now = self.net.arrived_ns().max(slot.since_ns);
        self.out.clear();
        let progress = match &mut slot.tls {
            None => slot.client.receive(self.net.bytes(), &mut self.out, &mut slot.random),
            Some(session) => {
                self.wire.clear();
                let opened = open(session, self.net.bytes(), &mut self.plain, &mut self.wire);
                if let Err(error) = opened.and_then(|()| self.net.send(place, &self.wire)) {
                    return self.connection_broke(place, lost(&error));
                }
                if self.plain.is_empty() {
                    return Ok(());
                }
                slot.client.receive(&self.plain, &mut self.out, &mut slot.random)
            }
        };
        self.follow(place, progress, now)
    }

    /// Does what a client's progress asks for. `now` is when the reply arrived.
    fn follow(&mut self, place: usize, progress: Progress, now: u64) -> Result<(), Failure> {
        match progress {
            Progress::Waiting => self.send(place),
            Progress::Encrypt(session) => {
                self.send(place)?;
                let slot = &mut self.slots[place];
                // The send may have found the connection closed.
                if slot.state == State::Down {
                    return Ok(());
                }
                slot.tls = Some(session);
                self.out.clear();
                slot.client.encrypted(&mut self.out);
                self.send(place)
            }
            Progress::Ready => {
                self.send(place)?;
                if self.slots[place].state != State::Down {
                    self.logged_in(place, now);
                }
                Ok(())
            }
            Progress::Ended { rows, bytes } => {
                let slot = &self.slots[place];
                self.recorder.ended(slot.operation, slot.times(now), rows, bytes);
                self.busy -= 1;
                self.set_free(place, now);
                Ok(())
            }
            Progress::Failed(failure) => {
                let slot = &mut self.slots[place];
                let is_retried = failure.is_lost_race && slot.retries_left > 0;
                self.recorder.error(slot.operation, &failure, is_retried);
                if is_retried {
                    slot.retries_left -= 1;
                    self.out.clear();
                    let progress = slot.client.begin(&mut self.out, &mut slot.random);
                    return self.follow(place, progress, now);
                }
                self.recorder.failed(slot.operation, slot.times(now));
                self.busy -= 1;
                self.set_free(place, now);
                Ok(())
            }
            Progress::Broken(failure) => self.connection_broke(place, failure),
        }
    }

    /// Sends what the client wrote.
    pub(super) fn send(&mut self, place: usize) -> Result<(), Failure> {
        if self.out.is_empty() {
            return Ok(());
        }
        if !self.net.queues() {
            self.stamp_sends();
        }
        let sent = match &mut self.slots[place].tls {
            None => self.net.send(place, &self.out),
            Some(session) => {
                self.wire.clear();
                seal(session, &self.out, &mut self.wire).and_then(|()| self.net.send(place, &self.wire))
            }
        };
        if self.net.is_full() {
            self.stamp_sends();
            self.net.submit();
        }
        sent.or_else(|error| self.connection_broke(place, lost(&error)))
    }

    /// Queued requests are sent now. Operations start when their requests go to the kernel, not when they are queued:
    /// the time in between is the driver's lateness.
    pub(super) fn stamp_sends(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let now = now_ns();
        for place in self.unsent.drain(..) {
            let slot = &mut self.slots[place];
            if !std::mem::take(&mut slot.is_unsent) {
                continue;
            }
            slot.sent_ns = now;
            self.recorder.late(now.saturating_sub(slot.intended_ns.max(slot.since_ns)));
            if self.config.is_assigned {
                self.recorder.lagged(now.saturating_sub(slot.intended_ns));
            } else if self.config.arrivals.is_none() {
                // In a closed loop no request was due earlier than it is sent.
                slot.intended_ns = now;
            }
        }
    }

    fn logged_in(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        slot.back_off_ns = 0;
        slot.down_since_ns = None;
        if self.is_driving {
            let times = Times { intended_ns: slot.since_ns, sent_ns: slot.since_ns, ended_ns: now };
            self.recorder.connected(times);
            self.set_free(place, now);
        } else {
            slot.set_state(State::Free);
        }
    }

    /// A client may start its next operation.
    pub(super) fn set_free(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        slot.since_ns = now;
        slot.set_state(State::Free);
        slot.is_unsent = false;
        if self.config.is_assigned {
            self.take_turn(place, now);
        } else if self.config.arrivals.is_some() {
            match self.next_arrival_ns {
                Some(arrival) if arrival <= now => {
                    self.next_arrival_ns = self.arrival_after();
                    self.choose_and_begin(place, arrival);
                }
                _ if !slot.is_queued => {
                    slot.is_queued = true;
                    self.free.push_back(place);
                }
                _ => {}
            }
        } else if now < self.schedule.end_ns {
            // A client that lost its connection while it rested does not start another rest: if the server closes
            // connections that rest that long, it would never send anything.
            let due_ns = match slot.rests_until_ns {
                Some(due_ns) => due_ns,
                None => now + slot.choose_with_pause(self.config.think, self.config.think_ns),
            };
            if due_ns <= now {
                self.begin(place, due_ns);
            } else {
                slot.rests_until_ns = Some(due_ns);
                slot.set_state(State::Resting);
                self.pauses.push(Reverse((due_ns, place, slot.generation)));
            }
        }
    }

    /// The next instant of the open loop's schedule, unless that is past its end.
    pub(super) fn arrival_after(&mut self) -> Option<u64> {
        let arrival = self.schedule.start_ns + self.config.arrivals.as_mut()?.next()?;
        (arrival < self.schedule.end_ns).then_some(arrival)
    }

    pub(super) fn choose_and_begin(&mut self, place: usize, intended_ns: u64) {
        self.slots[place].operation = self.slots[place].choose();
        self.begin(place, intended_ns);
    }

    /// Starts the chosen operation.
    pub(super) fn begin(&mut self, place: usize, intended_ns: u64) {
        if intended_ns >= self.schedule.end_ns {
            return;
        }
        let slot = &mut self.slots[place];
        slot.rests_until_ns = None;
        slot.intended_ns = intended_ns;
        slot.sent_ns = intended_ns.max(slot.since_ns);
        slot.is_unsent = true;
        self.unsent.push(place);
        slot.retries_left = self.config.retries;
        slot.set_state(State::Busy);
        self.busy += 1;
        self.out.clear();
        let progress = slot.client.begin(&mut self.out, &mut slot.random);
        let now = slot.sent_ns;
        // A lost connection is an error only before the trial.
        let _ = self.follow(place, progress, now);
    }

    /// The connection is lost: an error before the trial; later the client reconnects.
    fn connection_broke(&mut self, place: usize, failure: Failure) -> Result<(), Failure> {
        if !self.reconnects {
            return Err(failure);
        }
        self.lose(place, failure, now_ns());
        Ok(())
    }

    /// Closes the connection; the current operation fails.
    pub(super) fn lose(&mut self, place: usize, failure: Failure, now: u64) {
        let slot = &mut self.slots[place];
        let is_open = matches!(slot.state, State::Busy | State::Free | State::Resting);
        if is_open && slot.client.lost() {
            self.busy -= usize::from(slot.state == State::Busy);
            slot.set_state(State::Down);
            if self.config.is_assigned && matches!(slot.client.turn(now), Turn::Over) {
                self.vacate(place);
            } else {
                self.rest_before_connecting(place, now);
            }
            return;
        }
        match slot.state {
            State::Busy => {
                let failure = slot.client.first_failure().unwrap_or(failure);
                self.recorder.error(slot.operation, &failure, false);
                self.recorder.failed(slot.operation, slot.times(now));
                self.busy -= 1;
                self.connections_lost += 1;
            }
            State::Connecting | State::LoggingIn => {
                self.connect_failed(place, &failure);
                return;
            }
            State::Free | State::Resting => self.connections_lost += 1,
            State::Leaving => {
                self.vacate(place);
                return;
            }
            State::Down | State::Vacant => {}
        }
        self.rest_before_connecting(place, now);
    }

    pub(super) fn connect_failed(&mut self, place: usize, failure: &Failure) {
        let now = now_ns();
        let slot = &self.slots[place];
        let times = Times { intended_ns: slot.since_ns, sent_ns: slot.since_ns, ended_ns: now };
        self.recorder.connect_failed(times, failure);
        self.rest_before_connecting(place, now);
        if self.config.is_assigned {
            self.give_up(place, failure, now);
        }
    }

    fn rest_before_connecting(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        self.net.close(place);
        slot.tls = None;
        slot.is_unsent = false;
        slot.set_state(State::Down);
        slot.down_since_ns.get_or_insert(now);
        let rest_ns = slot.back_off_ns / 2 + slot.random.random_range(0..=slot.back_off_ns / 2);
        slot.back_off_ns = (slot.back_off_ns * 2).clamp(FIRST_BACK_OFF_NS, LONGEST_BACK_OFF_NS);
        self.pauses.push(Reverse((now + rest_ns, place, slot.generation)));
    }
}

pub(super) fn cannot_connect(error: &io::Error) -> Failure {
    Failure::new(CANNOT_CONNECT, error.to_string())
}

fn lost(error: &io::Error) -> Failure {
    Failure::new(CONNECTION_LOST, error.to_string())
}

/// Decrypts the input; the TLS session's own answers go to `wire`.
fn open(
    session: &mut ClientConnection,
    mut bytes: &[u8],
    plain: &mut Vec<u8>,
    wire: &mut Vec<u8>,
) -> io::Result<()> {
    plain.clear();
    while !bytes.is_empty() && session.read_tls(&mut bytes)? > 0 {
        let state = session.process_new_packets().map_err(io::Error::other)?;
        let start = plain.len();
        plain.resize(start + state.plaintext_bytes_to_read(), 0);
        session.reader().read_exact(&mut plain[start..])?;
    }
    write_all(session, wire)
}

/// Encrypts the output.
fn seal(session: &mut ClientConnection, bytes: &[u8], wire: &mut Vec<u8>) -> io::Result<()> {
    // A request of megabytes exceeds the session's default buffer.
    session.set_buffer_limit(None);
    session.writer().write_all(bytes)?;
    write_all(session, wire)
}

fn write_all(session: &mut ClientConnection, wire: &mut Vec<u8>) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(wire)?;
    }
    Ok(())
}
