//! The rounds of a thread: events on its connections, what is due, what has taken too long.

use std::cmp::Reverse;
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::thread::set_current_timer_slack;

use super::dynamic::WorkSource;
use super::slot::State;
use super::turns::cannot_connect;
use super::{Engine, Outcome};
use crate::client::{CANNOT_CONNECT, Client, Failure, NO_ANSWER};
use crate::net::Happened;
use crate::recorder::{Recorder, Second, Times};
use crate::schedule::Schedule;
use crate::weight::take_weight;
use base::clock::now_ns;

/// How often deadlines, the end of a second and the stop flag are checked.
const HOUSEKEEPING_NS: u64 = 20_000_000;
/// Concurrent logins per thread: a login takes 16 KiB here, and a place in the server's backlog.
const LOGINS_AT_ONCE: usize = 32;
/// The longest that one attempt to connect and log in may take.
const CONNECT_LIMIT_NS: u64 = 10_000_000_000;
/// How often held clients are asked again: the ones they wait for may be on another thread.
const HELD_NS: u64 = 50_000;
/// How long the server may take to close a connection after the client's goodbye.
const FAREWELL_NS: u64 = 1_000_000_000;

impl<C: Client> Engine<'_, C> {
    /// Connects all clients; stops at the first failure.
    pub fn connect_all(&mut self) -> Result<(), Failure> {
        let mut begun = 0;
        let mut done = 0;
        let mut last_begun_ns = now_ns();
        while done < self.slots.len() {
            while begun < self.slots.len() && begun - done < LOGINS_AT_ONCE {
                let now = now_ns();
                match self.connect(begun, now) {
                    Ok(()) => last_begun_ns = now,
                    // The backlog of a unix socket is full: the server must first accept the earlier ones.
                    Err(error)
                        if error.kind() == ErrorKind::WouldBlock
                            && now - last_begun_ns < CONNECT_LIMIT_NS =>
                    {
                        break;
                    }
                    Err(error) => return Err(cannot_connect(&error)),
                }
                begun += 1;
            }
            self.net.wait(now_ns() + HOUSEKEEPING_NS);
            while let Some((place, happened)) = self.net.pop() {
                self.react(place, happened)?;
            }
            let now = now_ns();
            for slot in &self.slots[done..begun] {
                if slot.state != State::Free && now - slot.since_ns > CONNECT_LIMIT_NS {
                    return Err(Failure::new(NO_ANSWER, "the server did not log us in within 10 s"));
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::new(CANNOT_CONNECT, "stopped while connecting"));
            }
            // Logins end in roughly the order they started: those at the front make room for the next.
            while done < begun && self.slots[done].state == State::Free {
                done += 1;
            }
        }
        Ok(())
    }

    /// Runs until every operation that started, or was due, before the end of the schedule has ended.
    /// `over` gets each second when it is over, without a gap; `feed` brings clients and their work if these are
    /// assigned.
    pub fn drive(
        mut self,
        schedule: Schedule,
        feed: &mut impl WorkSource<C>,
        mut over: impl FnMut(Second),
    ) -> Outcome {
        // The default slack ends a wait up to 50 us late. If the kernel refuses less, it stays.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        take_weight(self.slots.len());
        self.schedule = schedule;
        self.recorder = Recorder::new(self.config.operations + 1, schedule);
        self.pauses.push(Reverse((schedule.start_ns, usize::MAX, 0)));
        self.reconnects = true;
        let mut next_round_ns = 0;
        loop {
            let now = now_ns();
            let fed_ns = feed.feed(&mut self, now);
            self.go_on(now);
            if now >= next_round_ns {
                self.end_seconds(now, &mut over);
                next_round_ns = (now + HOUSEKEEPING_NS).min(self.recorder.second_end_ns());
                if !self.keep_house(now) {
                    break;
                }
            }
            self.stamp_sends();
            self.net.wait(self.next_due_ns(now).min(next_round_ns).min(fed_ns));
            // A reply belongs to the second in which it arrived.
            self.end_seconds(self.net.came_ns(), &mut over);
            let mut replies = 0;
            while let Some((place, happened)) = self.net.pop() {
                replies += u32::from(matches!(happened, Happened::Received) && !self.net.is_stamped());
                self.react(place, happened).expect("a lost connection is made anew");
            }
            self.recorder.unseen(self.net.longest_unseen_ns(), replies);
        }
        let end_ns = self.recorder.last_end_ns().max(self.schedule.end_ns);
        self.end_seconds(end_ns, &mut over);
        over(self.recorder.take_second());
        let mut unfinished = self.busy as u64;
        // Arrivals are left only if the driver was stopped.
        self.next_arrival_ns = self.next_arrival_ns.filter(|arrival| *arrival < self.schedule.end_ns);
        while self.next_arrival_ns.is_some() {
            unfinished += 1;
            self.next_arrival_ns = self.arrival_after();
        }
        Outcome { recorder: self.recorder, connections_lost: self.connections_lost, unfinished, end_ns }
    }

    /// Passes on the seconds that are over at `now`.
    fn end_seconds(&mut self, now: u64, over: &mut impl FnMut(Second)) {
        while now >= self.recorder.second_end_ns() {
            over(self.recorder.take_second());
        }
    }

    /// Starts what is due: clients that have rested, and arrivals for which a client is free.
    fn go_on(&mut self, now: u64) {
        while let Some(Reverse((due, place, generation))) = self.pauses.peek().copied()
            && due <= now
        {
            self.pauses.pop();
            if place == usize::MAX {
                self.start_driving(now);
            } else if self.slots[place].generation == generation {
                match self.slots[place].state {
                    State::Resting if self.config.is_assigned => self.take_turn(place, now),
                    State::Resting => self.begin(place, due),
                    State::Down => {
                        if let Err(error) = self.connect(place, now) {
                            self.connect_failed(place, &cannot_connect(&error));
                        }
                    }
                    _ => {}
                }
            }
        }
        self.ask_held(now);
        while let Some(arrival) = self.next_arrival_ns
            && arrival <= now
            && let Some(place) = self.take_free()
        {
            self.next_arrival_ns = self.arrival_after();
            self.choose_and_begin(place, arrival);
        }
    }

    fn start_driving(&mut self, now: u64) {
        self.is_driving = true;
        self.next_arrival_ns = self.arrival_after();
        for place in 0..self.slots.len() {
            if self.slots[place].state == State::Free {
                self.set_free(place, now);
            }
        }
    }

    /// Checks deadlines and the stop flag; whether there is anything left to do.
    fn keep_house(&mut self, now: u64) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            self.schedule.end_ns = self.schedule.end_ns.min(now.max(self.schedule.start_ns));
            return false;
        }
        for place in 0..self.slots.len() {
            let slot = &self.slots[place];
            match slot.state {
                State::Busy if now > slot.sent_ns + self.config.timeout_ns => {
                    let seconds = Duration::from_nanos(self.config.timeout_ns).as_secs_f64();
                    self.lose(place, Failure::new(NO_ANSWER, format!("no answer within {seconds} s")), now);
                }
                State::Connecting | State::LoggingIn if now > slot.since_ns + CONNECT_LIMIT_NS => {
                    self.lose(place, Failure::new(NO_ANSWER, "no login within 10 s"), now);
                }
                State::Leaving if now > slot.since_ns + FAREWELL_NS => self.vacate(place),
                _ => {}
            }
        }
        if now < self.schedule.end_ns {
            return true;
        }
        // The last operation may take this long, and may have to reconnect first.
        if now > self.schedule.end_ns + self.config.timeout_ns {
            self.give_up_arrivals(now);
        }
        self.busy > 0 || self.next_arrival_ns.is_some()
    }

    /// Operations that were due and never found a free client: they were asked for and not served.
    fn give_up_arrivals(&mut self, now: u64) {
        let failure = Failure::new(NO_ANSWER, "no client was free until the end of the trial");
        while let Some(arrival) = self.next_arrival_ns {
            // Only a client without an operation may choose: another would lose track of its own.
            let operation = match self.slots.iter_mut().find(|slot| slot.state != State::Busy) {
                Some(slot) => slot.choose(),
                None => self.slots[0].operation,
            };
            self.recorder.error(operation, &failure, false);
            self.recorder.failed(operation, Times { intended_ns: arrival, sent_ns: now, ended_ns: now });
            self.next_arrival_ns = self.arrival_after();
        }
    }

    fn take_free(&mut self) -> Option<usize> {
        while let Some(place) = self.free.pop_front() {
            self.slots[place].is_queued = false;
            // It may have lost its connection while it waited here.
            if self.slots[place].state == State::Free {
                return Some(place);
            }
        }
        None
    }

    /// The next instant at which a client continues without an event.
    fn next_due_ns(&self, now: u64) -> u64 {
        let pause = self.pauses.peek().map(|Reverse((due, _, _))| *due);
        let arrival = self.next_arrival_ns.filter(|_| !self.free.is_empty());
        let held = (!self.held.is_empty()).then_some(now + HELD_NS);
        [pause, arrival, held].into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}
