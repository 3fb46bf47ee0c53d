//! What a client's turn is: something came for it, or something is due.

use std::cmp::Reverse;
use std::io;

use rand::RngExt;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Engine, FIRST_BACK_OFF_NS, LONGEST_BACK_OFF_NS, Slot, State};
use crate::drive::client::{CANNOT_CONNECT, CONNECTION_LOST, Client, Failure, Progress};
use crate::drive::clock::now_ns;
use crate::drive::link::{Link, Received};
use crate::drive::recorder::Times;
use crate::drive::spec::Think;

impl<C: Client> Engine<'_, C> {
    /// Begins to connect.
    pub(super) fn connect(&mut self, place: usize, now: u64) -> Result<(), Failure> {
        let slot = &mut self.slots[place];
        slot.since_ns = now;
        slot.set_state(State::Connecting);
        let made = Link::connect(&self.rules.address).and_then(|link| {
            epoll::add(&self.epoll, &link, EventData::new_u64(place as u64), EventFlags::OUT)?;
            Ok(link)
        });
        match made {
            Ok(link) => {
                slot.waits_to_write = true;
                slot.link = Some(link);
                Ok(())
            }
            Err(error) => Err(Failure::new(CANNOT_CONNECT, error.to_string())),
        }
    }

    /// Something came on a connection, or it takes more. Fails where connecting has failed before the trial.
    pub(super) fn react(&mut self, place: u64, flags: EventFlags) -> Result<(), Failure> {
        let place = place as usize;
        // An event of a connection that was closed for one before it in the same batch.
        let slot = &mut self.slots[place];
        let Some(link) = &mut slot.link else { return Ok(()) };
        if slot.state == State::Connecting {
            if let Err(error) = link.connect_error() {
                return self.connection_broke(place, Failure::new(CANNOT_CONNECT, error.to_string()));
            }
            slot.set_state(State::LoggingIn);
            self.out.clear();
            let progress = slot.client.connected(&mut self.out);
            return self.follow(place, progress, 0);
        }
        if flags.contains(EventFlags::OUT)
            && let Err(error) = link.flush().map(|()| self.watch(place))
        {
            return self.connection_broke(place, lost(&error));
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP) {
            return self.receive(place);
        }
        Ok(())
    }

    fn receive(&mut self, place: usize) -> Result<(), Failure> {
        let slot = &mut self.slots[place];
        let Some(link) = &mut slot.link else { return Ok(()) };
        let count = match link.receive(&mut self.buffer, &mut self.plain) {
            Ok(Received::Bytes(count)) => count,
            Ok(Received::Nothing) => return Ok(()),
            Ok(Received::Closed) => {
                return self.connection_broke(
                    place,
                    Failure::new(CONNECTION_LOST, "the server closed the connection"),
                );
            }
            Err(error) => return self.connection_broke(place, lost(&error)),
        };
        // After the bytes are here, before they are looked at: our own work is not the server's.
        let now = now_ns();
        let input = if link.is_encrypted() { &self.plain[..count] } else { &self.buffer[..count] };
        self.out.clear();
        let progress = slot.client.receive(input, &mut self.out, &mut slot.random);
        self.follow(place, progress, now)
    }

    /// Does what a client's progress asks for. `now` is when it came.
    fn follow(&mut self, place: usize, progress: Progress, now: u64) -> Result<(), Failure> {
        match progress {
            Progress::Waiting => self.send(place),
            Progress::Encrypt(session) => {
                self.send(place)?;
                let slot = &mut self.slots[place];
                let Some(link) = &mut slot.link else { return Ok(()) };
                link.encrypt(session);
                self.out.clear();
                slot.client.encrypted(&mut self.out);
                self.send(place)
            }
            Progress::Ready => {
                self.send(place)?;
                self.logged_in(place, now);
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
                let is_mended = failure.is_lost_race && slot.retries_left > 0;
                self.recorder.error(slot.operation, &failure, is_mended);
                if is_mended {
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
    fn send(&mut self, place: usize) -> Result<(), Failure> {
        let Some(link) = &mut self.slots[place].link else { return Ok(()) };
        match link.send(&self.out) {
            Ok(()) => {
                self.watch(place);
                Ok(())
            }
            Err(error) => self.connection_broke(place, lost(&error)),
        }
    }

    /// Waits for room to send only while something waits to be sent.
    fn watch(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        let Some(link) = &slot.link else { return };
        if slot.waits_to_write != link.is_blocked() {
            slot.waits_to_write = link.is_blocked();
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, slot.waits_to_write);
            epoll::modify(&self.epoll, link, EventData::new_u64(place as u64), flags)
                .expect("a socket that epoll knows");
        }
    }

    fn logged_in(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        slot.back_off_ns = 0;
        if self.is_driving {
            let times = Times { intended_ns: slot.since_ns, sent_ns: slot.since_ns, ended_ns: now };
            self.recorder.connected(times);
            self.set_free(place, now);
        } else {
            slot.set_state(State::Free);
        }
    }

    /// A client may begin its next operation.
    pub(super) fn set_free(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        slot.since_ns = now;
        slot.set_state(State::Free);
        if self.rules.arrivals.is_some() {
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
            let choice = slot.client.choose(&mut slot.random);
            slot.operation = choice.operation;
            let pause_ns = match (choice.pause_ns, self.rules.think) {
                (Some(pause), _) => pause,
                (None, Think::Constant) => self.rules.think_ns,
                (None, Think::Exponential) => slot.exponential(self.rules.think_ns),
            };
            if pause_ns == 0 {
                self.begin(place, now);
            } else {
                slot.set_state(State::Resting);
                self.pauses.push(Reverse((now + pause_ns, place, slot.generation)));
            }
        }
    }

    pub(super) fn choose_and_begin(&mut self, place: usize, intended_ns: u64) {
        self.slots[place].operation = self.slots[place].choose();
        self.begin(place, intended_ns);
    }

    /// Begins the chosen operation.
    pub(super) fn begin(&mut self, place: usize, intended_ns: u64) {
        if intended_ns >= self.schedule.end_ns {
            return;
        }
        let slot = &mut self.slots[place];
        slot.intended_ns = intended_ns;
        slot.retries_left = self.rules.retries;
        slot.set_state(State::Busy);
        self.busy += 1;
        self.out.clear();
        let progress = slot.client.begin(&mut self.out, &mut slot.random);
        let now = now_ns();
        slot.sent_ns = now;
        self.recorder.late(now - intended_ns.max(slot.since_ns).min(now));
        // Only before the trial does a lost connection end anything.
        let _ = self.follow(place, progress, now);
    }

    /// The connection is gone: before the trial that ends it, later the client reconnects.
    fn connection_broke(&mut self, place: usize, failure: Failure) -> Result<(), Failure> {
        if !self.reconnects {
            return Err(failure);
        }
        self.lose(place, failure, now_ns());
        Ok(())
    }

    /// Closes the connection, and with it fails the operation at work.
    pub(super) fn lose(&mut self, place: usize, failure: Failure, now: u64) {
        let slot = &mut self.slots[place];
        match slot.state {
            State::Busy => {
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
            State::Down => {}
        }
        self.rest_before_connecting(place, now);
    }

    pub(super) fn connect_failed(&mut self, place: usize, failure: &Failure) {
        let now = now_ns();
        let slot = &self.slots[place];
        let times = Times { intended_ns: slot.since_ns, sent_ns: slot.since_ns, ended_ns: now };
        self.recorder.connect_failed(times, failure);
        self.rest_before_connecting(place, now);
    }

    fn rest_before_connecting(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        // Closing it takes it out of the epoll, too.
        slot.link = None;
        slot.set_state(State::Down);
        let rest_ns = slot.back_off_ns / 2 + slot.random.random_range(0..=slot.back_off_ns / 2);
        slot.back_off_ns = (slot.back_off_ns * 2).clamp(FIRST_BACK_OFF_NS, LONGEST_BACK_OFF_NS);
        self.pauses.push(Reverse((now + rest_ns, place, slot.generation)));
    }
}

impl<C: Client> Slot<C> {
    pub(super) fn set_state(&mut self, state: State) {
        self.state = state;
        self.generation = self.generation.wrapping_add(1);
    }

    pub(super) fn choose(&mut self) -> usize {
        self.client.choose(&mut self.random).operation
    }

    fn times(&self, now: u64) -> Times {
        Times { intended_ns: self.intended_ns, sent_ns: self.sent_ns, ended_ns: now }
    }

    fn exponential(&mut self, mean_ns: u64) -> u64 {
        let unit: f64 = self.random.sample(rand_distr::Exp1);
        (unit * mean_ns as f64) as u64
    }
}

fn lost(error: &io::Error) -> Failure {
    Failure::new(CONNECTION_LOST, error.to_string())
}
