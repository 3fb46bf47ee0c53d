//! Level-triggered epoll with its own timer: epoll_wait only takes whole milliseconds.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::address::Address;
use super::happened::Happened;
use super::stamps::{Stamps, ask};
use base::clock::now_ns;

const EVENTS_AT_ONCE: usize = 512;
const RECEIVE_BUFFER: usize = 64 * 1024;
const TIMER: u64 = u64::MAX;

pub struct EpollNet {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// What the timer is set to; 0 once it has fired.
    timer_ns: u64,
    sockets: Vec<Option<Socket>>,
    events: Vec<Event>,
    looked_at: usize,
    /// When the last wait returned, and how long before that the previous one returned.
    came_ns: u64,
    longest_unseen_ns: u64,
    buffer: Vec<u8>,
    received: usize,
    /// None: the kernel is not asked when a reply arrived.
    stamps: Option<Stamps>,
    stamped_ns: Option<u64>,
}

struct Socket {
    fd: OwnedFd,
    is_connecting: bool,
    /// What the socket has not taken yet.
    unsent: Vec<u8>,
    waits_to_write: bool,
}

impl EpollNet {
    pub fn open(clients: usize, is_stamped: bool) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        Ok(Self {
            epoll,
            timer,
            timer_ns: 0,
            sockets: (0..clients).map(|_| None).collect(),
            events: Vec::with_capacity(EVENTS_AT_ONCE),
            looked_at: 0,
            came_ns: now_ns(),
            longest_unseen_ns: 0,
            buffer: vec![0; RECEIVE_BUFFER],
            received: 0,
            stamps: is_stamped.then(Stamps::new),
            stamped_ns: None,
        })
    }

    pub fn make_room(&mut self, clients: usize) {
        self.sockets.resize_with(clients, || None);
    }

    pub fn connect(&mut self, place: usize, address: &Address) -> io::Result<()> {
        let fd = address.connect()?;
        if self.stamps.is_some() {
            ask(&fd);
        }
        epoll::add(&self.epoll, &fd, EventData::new_u64(place as u64), EventFlags::OUT)?;
        self.sockets[place] =
            Some(Socket { fd, is_connecting: true, unsent: Vec::new(), waits_to_write: true });
        Ok(())
    }

    pub fn send(&mut self, place: usize, bytes: &[u8]) -> io::Result<()> {
        let Some(socket) = &mut self.sockets[place] else { return Ok(()) };
        if socket.unsent.is_empty() {
            let count = send_now(&socket.fd, bytes)?;
            socket.unsent.extend_from_slice(&bytes[count..]);
        } else {
            socket.unsent.extend_from_slice(bytes);
        }
        self.watch(place)
    }

    pub fn close(&mut self, place: usize) {
        // Closing the descriptor also removes it from the epoll.
        self.sockets[place] = None;
    }

    pub fn came_ns(&self) -> u64 {
        self.came_ns
    }

    pub fn longest_unseen_ns(&self) -> u64 {
        self.longest_unseen_ns
    }

    /// When the last received bytes had arrived, by the kernel's stamp.
    pub fn stamped_ns(&self) -> Option<u64> {
        self.stamped_ns
    }

    pub fn wait(&mut self, until_ns: u64) {
        if until_ns != self.timer_ns {
            self.timer_ns = until_ns;
            let value = Timespec {
                tv_sec: (until_ns / 1_000_000_000) as i64,
                tv_nsec: (until_ns % 1_000_000_000) as i64,
            };
            let spec = Itimerspec { it_interval: Timespec::default(), it_value: value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec).expect("a timer of our own");
        }
        self.events.clear();
        self.looked_at = 0;
        self.longest_unseen_ns = now_ns() - self.came_ns;
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => unreachable!("epoll_wait on an epoll of our own: {error}"),
        }
        self.came_ns = now_ns();
        if let Some(stamps) = &mut self.stamps {
            stamps.follow();
        }
    }

    pub fn pop(&mut self) -> Option<(usize, Happened)> {
        while let Some(Event { data, flags }) = self.events.get(self.looked_at).copied() {
            self.looked_at += 1;
            if data.u64() == TIMER {
                // It stays readable until it is set again.
                self.timer_ns = 0;
                continue;
            }
            let place = data.u64() as usize;
            match self.look(place, flags) {
                Ok(Some(happened)) => return Some((place, happened)),
                Ok(None) => {}
                Err(error) => return Some((place, Happened::Broken(error))),
            }
        }
        None
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.received]
    }

    fn look(&mut self, place: usize, flags: EventFlags) -> io::Result<Option<Happened>> {
        // It may have been closed for an event before this one.
        let Some(socket) = &mut self.sockets[place] else { return Ok(None) };
        if socket.is_connecting {
            socket_error(&socket.fd)??;
            socket.is_connecting = false;
            self.watch(place)?;
            return Ok(Some(Happened::Connected));
        }
        if flags.contains(EventFlags::OUT) {
            let count = send_now(&socket.fd, &socket.unsent)?;
            socket.unsent.drain(..count);
            if socket.unsent.is_empty() {
                // Thousands may each send a long request once.
                socket.unsent = Vec::new();
            }
            self.watch(place)?;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(None);
        }
        let Some(socket) = &self.sockets[place] else { return Ok(None) };
        let received = match &self.stamps {
            Some(stamps) => stamps.receive(&socket.fd, &mut self.buffer),
            None => match recv(&socket.fd, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((count, _)) => Ok((count, None)),
                Err(error) => Err(error.into()),
            },
        };
        match received {
            Ok((0, _)) => Ok(Some(Happened::Closed)),
            Ok((count, stamped_ns)) => {
                self.received = count;
                self.stamped_ns = stamped_ns;
                Ok(Some(Happened::Received))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for room to send only while something waits to be sent.
    fn watch(&mut self, place: usize) -> io::Result<()> {
        let Some(socket) = &mut self.sockets[place] else { return Ok(()) };
        let is_blocked = !socket.unsent.is_empty();
        if socket.is_connecting || socket.waits_to_write == is_blocked {
            return Ok(());
        }
        socket.waits_to_write = is_blocked;
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, is_blocked);
        Ok(epoll::modify(&self.epoll, &socket.fd, EventData::new_u64(place as u64), flags)?)
    }
}

/// How many bytes the socket took.
pub fn send_now(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match send(socket, &bytes[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}
