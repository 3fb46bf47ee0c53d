//! One thread of the proxy: its connections, each a socket to a client and one to the server. Where one side does not
//! take its bytes, nothing more is read from the other.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::leg::{Leg, Received};
use super::login::{Act, Login};
use super::shared::{Settings, Totals, error_packet};
use super::tap::{Missing, Tap};
use crate::stream::Side;
use base::clock::now_ns;
use engine::net::Address;

const EVENTS_AT_ONCE: usize = 256;
const RECEIVE_BUFFER: usize = 64 * 1024;
const WAKE: u64 = u64::MAX;
/// How often it is looked who takes too long.
const SWEEP_NS: u64 = 1_000_000_000;
/// Connecting to the server, and sending the last bytes to a client that left, may take so long.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connections on their way to a worker, and how to wake it.
pub struct Inbox {
    wake: OwnedFd,
    waiting: Mutex<Vec<(OwnedFd, SocketAddr)>>,
}

impl Inbox {
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox { wake, waiting: Mutex::new(Vec::new()) })
    }

    pub fn put(&self, socket: OwnedFd, client: SocketAddr) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((socket, client));
        self.wake();
    }

    pub fn wake(&self) {
        // It fails only where 2^64 wakes are waiting already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> Vec<(OwnedFd, SocketAddr)> {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// One side is gone; the other gets what still waits for it.
    Ending(Side),
}

struct Pair {
    session: u64,
    client: Leg,
    server: Leg,
    state: State,
    /// When it came into this state, where it must not stay in it.
    since_ns: u64,
    login: Option<Box<Login>>,
    missing: Missing,
}

impl Pair {
    fn leg(&mut self, side: Side) -> &mut Leg {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

pub struct Worker {
    epoll: OwnedFd,
    inbox: Arc<Inbox>,
    settings: Arc<Settings>,
    totals: Arc<Totals>,
    tap: Tap,
    pairs: Vec<Option<Box<Pair>>>,
    free: Vec<usize>,
    /// Places that are free once the events at hand are through: some may be for who was there before.
    freed: Vec<usize>,
    buffer: Vec<u8>,
    plain: Vec<u8>,
    swept_ns: u64,
}

impl Worker {
    pub fn new(
        inbox: Arc<Inbox>,
        settings: Arc<Settings>,
        totals: Arc<Totals>,
        tap: Tap,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inbox.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Worker {
            epoll,
            inbox,
            settings,
            totals,
            tap,
            pairs: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            buffer: vec![0; RECEIVE_BUFFER],
            plain: Vec::new(),
            swept_ns: 0,
        })
    }

    /// Works until it is told to stop, and then until its connections are over or time is up.
    pub fn run(mut self) -> io::Result<()> {
        if matches!(self.settings.server, Address::Unix(_)) {
            super::nameless::take()?;
        }
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_AT_ONCE);
        loop {
            let now = now_ns();
            let stop_ns = self.totals.stop_ns.load(Relaxed);
            let is_empty = self.pairs.len() == self.free.len();
            if stop_ns > 0 && (is_empty || now >= stop_ns) {
                break;
            }
            if now.saturating_sub(self.swept_ns) >= SWEEP_NS {
                self.sweep(now);
            }
            let mut wait_ns = self.tap.flush(self.settings.epoch(now)).unwrap_or(SWEEP_NS);
            if stop_ns > 0 {
                wait_ns = wait_ns.min(stop_ns.saturating_sub(now));
            }
            let wait = Timespec { tv_sec: 0, tv_nsec: wait_ns.min(999_999_999) as i64 };
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let (data, flags) = (event.data.u64(), event.flags);
                if data == WAKE {
                    for (socket, client) in self.inbox.take() {
                        self.enter(socket, client);
                    }
                    continue;
                }
                let side = if data & 1 == 0 { Side::Client } else { Side::Server };
                let place = (data >> 1) as usize;
                if self.ready(place, side, flags).is_err() {
                    self.fail(place, side);
                }
                self.watch(place);
            }
            self.free.append(&mut self.freed);
        }
        for place in 0..self.pairs.len() {
            self.close(place);
        }
        for _ in self.inbox.take() {
            self.totals.active.fetch_sub(1, Relaxed);
        }
        self.tap.hand_over();
        Ok(())
    }

    fn enter(&mut self, socket: OwnedFd, client: SocketAddr) {
        let session = self.totals.sessions.fetch_add(1, Relaxed) + 1;
        let now = now_ns();
        self.tap.opened(self.settings.epoch(now), session, client);
        let mut missing = Missing::default();
        let server = match self.settings.server.connect() {
            Ok(server) => server,
            Err(_) => {
                let mut leg = Leg::new(socket);
                self.refuse_unreachable(&mut leg);
                self.tap.closed(self.settings.epoch(now), session, &mut missing);
                self.totals.active.fetch_sub(1, Relaxed);
                return;
            }
        };
        super::descriptors::keep_alive(&server);
        let rules = self.settings.rules;
        let pair = Pair {
            session,
            client: Leg::new(socket),
            server: Leg::new(server),
            state: State::Connecting,
            since_ns: now,
            login: rules.touch_logins().then(|| Box::new(Login::new(rules))),
            missing,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        self.pairs[place] = Some(Box::new(pair));
        self.watch(place);
    }

    fn refuse_unreachable(&self, leg: &mut Leg) {
        self.totals.unreachable.fetch_add(1, Relaxed);
        let _ = leg.send(&error_packet(1105, "HY000", "the capture proxy cannot reach the server"));
    }

    /// An error means that this side is broken.
    fn ready(&mut self, place: usize, side: Side, flags: EventFlags) -> io::Result<()> {
        let Some(pair) = self.pairs.get_mut(place).and_then(Option::as_mut) else { return Ok(()) };
        if pair.state == State::Connecting {
            if side == Side::Server {
                socket_error(&pair.server.fd)??;
                pair.state = State::Open;
            }
            return Ok(());
        }
        if flags.contains(EventFlags::OUT) {
            pair.leg(side).flush()?;
        }
        if let State::Ending(ended) = pair.state {
            if side != ended && !pair.leg(side).is_blocked() {
                self.close(place);
            }
            return Ok(());
        }
        let is_read = pair.leg(side).watched.is_some_and(|watched| watched.contains(EventFlags::IN));
        if !is_read || !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut plain = std::mem::take(&mut self.plain);
        let result = self.read(place, side, &mut buffer, &mut plain);
        (self.buffer, self.plain) = (buffer, plain);
        result
    }

    fn read(&mut self, place: usize, side: Side, buffer: &mut [u8], plain: &mut Vec<u8>) -> io::Result<()> {
        let Some(pair) = self.pairs[place].as_mut() else { return Ok(()) };
        let received = pair.leg(side).receive(buffer, plain)?;
        let bytes = match received {
            Received::Plain(count) => &buffer[..count],
            Received::Decrypted => &plain[..],
            Received::Nothing => return Ok(()),
            Received::Ended => {
                self.fail(place, side);
                return Ok(());
            }
        };
        if bytes.is_empty() {
            return Ok(());
        }
        self.totals.bytes[side as usize].fetch_add(bytes.len() as u64, Relaxed);
        let time_ns = self.settings.epoch(now_ns());
        if pair.login.is_some() {
            return self.log_in(place, side, time_ns, bytes);
        }
        // Sent before it is copied: the traffic comes first.
        let sent = pair.leg(other(side)).send(bytes);
        self.tap.bytes(time_ns, pair.session, side, bytes, &mut pair.missing);
        if sent.is_err() {
            self.fail(place, other(side));
        }
        Ok(())
    }

    fn log_in(&mut self, place: usize, from: Side, time_ns: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(pair) = self.pairs[place].as_mut() else { return Ok(()) };
        let Some(login) = &mut pair.login else { return Ok(()) };
        let mut acts = std::collections::VecDeque::from(login.take(from, bytes));
        while let Some(act) = acts.pop_front() {
            match act {
                Act::Send(to, bytes) => pair.leg(to).send(&bytes)?,
                Act::Record(side, bytes) => {
                    self.tap.bytes(time_ns, pair.session, side, &bytes, &mut pair.missing);
                }
                Act::Encrypt(side, bytes) => {
                    let tls = self.settings.tls(side)?;
                    let mut plain = Vec::new();
                    pair.leg(side).encrypt(tls, &bytes, &mut plain)?;
                    if let (false, Some(login)) = (plain.is_empty(), &mut pair.login) {
                        acts.extend(login.take(side, &plain));
                    }
                }
                Act::Over(side, bytes) => {
                    pair.login = None;
                    if !bytes.is_empty() {
                        pair.leg(other(side)).send(&bytes)?;
                        self.tap.bytes(time_ns, pair.session, side, &bytes, &mut pair.missing);
                    }
                }
                Act::Refuse(reason) => {
                    self.totals.refused.fetch_add(1, Relaxed);
                    let reason = format!("the capture proxy: {reason}");
                    let _ = pair.client.send(&error_packet(1043, "08S01", &reason));
                    self.fail(place, Side::Server);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// One side is gone: the other gets what waits for it, and the connection ends.
    fn fail(&mut self, place: usize, side: Side) {
        let Some(pair) = self.pairs[place].as_mut() else { return };
        if pair.state == State::Connecting && side == Side::Server {
            self.totals.unreachable.fetch_add(1, Relaxed);
            let text = "the capture proxy cannot reach the server";
            let _ = pair.client.send(&error_packet(1105, "HY000", text));
        }
        pair.leg(other(side)).end();
        if matches!(pair.state, State::Ending(_)) || !pair.leg(other(side)).is_blocked() {
            return self.close(place);
        }
        pair.state = State::Ending(side);
        pair.since_ns = now_ns();
    }

    fn close(&mut self, place: usize) {
        let Some(mut pair) = self.pairs[place].take() else { return };
        self.tap.closed(self.settings.epoch(now_ns()), pair.session, &mut pair.missing);
        self.totals.active.fetch_sub(1, Relaxed);
        self.freed.push(place);
    }

    /// Watches for what is of use now: a side is read only while the other takes its bytes.
    fn watch(&mut self, place: usize) {
        let Some(pair) = self.pairs.get_mut(place).and_then(Option::as_mut) else { return };
        let mut is_lost = false;
        for side in [Side::Client, Side::Server] {
            let is_other_blocked = pair.leg(other(side)).is_blocked();
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, pair.state == State::Open && !is_other_blocked);
            let is_connecting = pair.state == State::Connecting && side == Side::Server;
            let is_ended = pair.state == State::Ending(side);
            flags.set(EventFlags::OUT, is_connecting || (pair.leg(side).is_blocked() && !is_ended));
            let leg = pair.leg(side);
            let data = EventData::new_u64((place as u64) << 1 | side as u64);
            let wanted = (!flags.is_empty()).then_some(flags);
            let result = match (leg.watched, wanted) {
                (before, after) if before == after => continue,
                (None, Some(flags)) => epoll::add(&self.epoll, leg.fd.as_fd(), data, flags),
                (Some(_), Some(flags)) => epoll::modify(&self.epoll, leg.fd.as_fd(), data, flags),
                // Not watched at all: a hang-up that may not be handled yet would be reported again and again.
                (_, None) => epoll::delete(&self.epoll, leg.fd.as_fd()),
            };
            leg.watched = wanted;
            is_lost |= result.is_err();
        }
        if is_lost {
            self.close(place);
        }
    }

    /// Ends who takes too long to connect or to take the last bytes.
    fn sweep(&mut self, now: u64) {
        self.swept_ns = now;
        for place in 0..self.pairs.len() {
            let Some(pair) = &self.pairs[place] else { continue };
            let is_late = now.saturating_sub(pair.since_ns) > TIMEOUT.as_nanos() as u64;
            match pair.state {
                State::Connecting if is_late => self.fail(place, Side::Server),
                State::Ending(_) if is_late => self.close(place),
                _ => {}
            }
        }
        self.free.append(&mut self.freed);
    }
}

impl Settings {
    fn tls(&self, side: Side) -> io::Result<Connection> {
        let no = || io::Error::other("TLS is not set up");
        Ok(match side {
            Side::Client => {
                let config = self.client_tls.clone().ok_or_else(no)?;
                ServerConnection::new(config).map_err(io::Error::other)?.into()
            }
            Side::Server => {
                let config = self.server_tls.clone().ok_or_else(no)?;
                ClientConnection::new(config, self.server_name.clone()).map_err(io::Error::other)?.into()
            }
        })
    }
}
