//! io_uring: requests and receives are queued, and one system call a round submits them and waits.
//!
//! Every buffer that the kernel writes to or reads from belongs to a `Socket` that stays where it is, untouched,
//! until the kernel has reported that it is done with it: that is what makes the `unsafe` below sound.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{SendFlags, Shutdown, shutdown};

use super::address::Address;
use super::happened::Happened;
use base::clock::now_ns;

const ENTRIES: u32 = 1024;
/// The most sends that one call submits: each costs the kernel some microseconds.
const SENDS_AT_ONCE: usize = 8;
/// An empty socket buffer takes at least this much at once.
const SURELY_SENT: usize = 16 * 1024;
/// Small, because every connection has one; it grows where results are large.
const FIRST_BUFFER: usize = 4 * 1024;
const LARGEST_BUFFER: usize = 64 * 1024;
/// A socket keeps no larger buffer of what it sends: thousands may each send a long request once.
const KEPT_OUTPUT: usize = 16 * 1024;

/// IORING_RECVSEND_POLL_FIRST (Linux 5.19): the reply cannot have arrived when it is asked for, since the request
/// is only sent now.
const POLL_FIRST: u16 = 1;

const CONNECT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const KINDS: u64 = 4;

pub struct UringNet {
    ring: IoUring,
    /// Whether the kernel says that something waits to be taken.
    tells_waiting: bool,
    /// Under the number that completions carry. A closed socket stays until all its requests have returned.
    sockets: Vec<Option<Box<Socket>>>,
    vacant: Vec<usize>,
    /// Place of the client -> number of its socket.
    numbers: Vec<Option<usize>>,
    queued_sends: usize,
    /// Sends that the kernel has not returned, and those of them that were made since the last wait.
    sends_out: usize,
    new_sends: usize,
    /// When the last wait returned, and how many completions it brought: those that came later are the next one's.
    came_ns: u64,
    ready: usize,
    longest_unseen_ns: u64,
    /// The last received bytes are in this socket's buffer; its next receive waits until they were read.
    current: Option<(usize, usize)>,
}

struct Socket {
    fd: OwnedFd,
    /// None: closed.
    place: Option<usize>,
    input: Vec<u8>,
    /// Being sent, and how much of it has been sent.
    output: Vec<u8>,
    sent: usize,
    /// Sent after `output`.
    unsent: Vec<u8>,
    is_sending: bool,
    /// Requests that the kernel has not returned.
    outstanding: usize,
}

impl UringNet {
    pub fn open(clients: usize) -> io::Result<Self> {
        // Completions are processed while waiting for them, not in interrupts of other work (Linux 6.1).
        let deferred = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES);
        let tells_waiting = deferred.is_ok();
        // Linux 5.19 and later: at least without interrupts.
        let ring = deferred
            .or_else(|_| IoUring::builder().setup_coop_taskrun().build(ENTRIES))
            .or_else(|_| IoUring::new(ENTRIES))?;
        // Timeouts of a wait came with Linux 5.11; without them epoll is the better choice.
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(Self {
            ring,
            tells_waiting,
            sockets: Vec::new(),
            vacant: Vec::new(),
            numbers: vec![None; clients],
            queued_sends: 0,
            sends_out: 0,
            new_sends: 0,
            came_ns: now_ns(),
            ready: 0,
            longest_unseen_ns: 0,
            current: None,
        })
    }

    pub fn make_room(&mut self, clients: usize) {
        self.numbers.resize(clients, None);
    }

    pub fn connect(&mut self, place: usize, address: &Address) -> io::Result<()> {
        let fd = address.connect()?;
        let raw = Fd(fd.as_raw_fd());
        let socket = Box::new(Socket {
            fd,
            place: Some(place),
            input: vec![0; FIRST_BUFFER],
            output: Vec::new(),
            sent: 0,
            unsent: Vec::new(),
            is_sending: false,
            outstanding: 0,
        });
        let number = match self.vacant.pop() {
            Some(number) => number,
            None => {
                self.sockets.push(None);
                self.sockets.len() - 1
            }
        };
        self.sockets[number] = Some(socket);
        self.numbers[place] = Some(number);
        let flags = u32::from(PollFlags::OUT.bits());
        self.push(number, CONNECT, opcode::PollAdd::new(raw, flags).build());
        Ok(())
    }

    pub fn send(&mut self, place: usize, bytes: &[u8]) -> io::Result<()> {
        let Some(number) = self.numbers[place] else { return Ok(()) };
        let Some(socket) = &mut self.sockets[number] else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        if socket.is_sending {
            socket.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        socket.output.clear();
        socket.output.extend_from_slice(bytes);
        socket.sent = 0;
        self.push_send(number);
        Ok(())
    }

    pub fn is_full(&self) -> bool {
        self.queued_sends >= SENDS_AT_ONCE
    }

    pub fn came_ns(&self) -> u64 {
        self.came_ns
    }

    pub fn longest_unseen_ns(&self) -> u64 {
        self.longest_unseen_ns
    }

    pub fn close(&mut self, place: usize) {
        let Some(number) = self.numbers[place].take() else { return };
        let Some(socket) = &mut self.sockets[number] else { return };
        socket.place = None;
        // Requests that the kernel still holds then return with an error.
        let _ = shutdown(&socket.fd, Shutdown::Both);
        self.free_if_returned(number);
    }

    pub fn wait(&mut self, until_ns: u64) {
        self.receive_again();
        let left_ns = until_ns.saturating_sub(now_ns()).max(1);
        let limit = Timespec::new().sec(left_ns / 1_000_000_000).nsec((left_ns % 1_000_000_000) as u32);
        let arguments = SubmitArgs::new().timespec(&limit);
        self.queued_sends = 0;
        // Sends complete in the call that submits them: without counting them it would return for these only, and
        // be called again immediately. Earlier sends are not waited for, since replies would wait with them.
        let wanted = if self.sends_out == self.new_sends { self.new_sends + 1 } else { 1 };
        self.new_sends = 0;
        let was_waiting = !self.tells_waiting || self.ring.submission().taskrun();
        // The time is over, a signal arrived, or there are too many completions: `pop` handles each case.
        let _ = self.ring.submitter().submit_with_args(wanted, &arguments);
        let now = now_ns();
        self.longest_unseen_ns = if was_waiting { now - self.came_ns } else { 0 };
        self.came_ns = now;
        self.ready = self.ring.completion().len();
    }

    pub fn pop(&mut self) -> Option<(usize, Happened)> {
        self.receive_again();
        while self.ready > 0 {
            self.ready -= 1;
            let entry = self.ring.completion().next()?;
            let number = (entry.user_data() / KINDS) as usize;
            let Some(socket) = &mut self.sockets[number] else { continue };
            socket.outstanding -= 1;
            self.sends_out -= usize::from(entry.user_data() % KINDS == SEND);
            let Some(place) = socket.place else {
                self.free_if_returned(number);
                continue;
            };
            let happened = match entry.user_data() % KINDS {
                CONNECT => self.connected(number),
                RECEIVE => self.received(number, entry.result()),
                _ => self.sent(number, entry.result()),
            };
            match happened {
                Ok(Some(happened)) => return Some((place, happened)),
                Ok(None) => {}
                Err(error) => return Some((place, Happened::Broken(error))),
            }
        }
        None
    }

    pub fn bytes(&self) -> &[u8] {
        match self.current.and_then(|(number, count)| Some((self.sockets[number].as_ref()?, count))) {
            Some((socket, count)) => &socket.input[..count],
            None => &[],
        }
    }

    fn connected(&mut self, number: usize) -> io::Result<Option<Happened>> {
        let Some(socket) = &self.sockets[number] else { return Ok(None) };
        socket_error(&socket.fd)??;
        // From now on the kernel does the waiting; a non-blocking socket would return immediately with nothing.
        fcntl_setfl(&socket.fd, OFlags::empty())?;
        self.push_receive(number);
        Ok(Some(Happened::Connected))
    }

    fn received(&mut self, number: usize, result: i32) -> io::Result<Option<Happened>> {
        match usize::try_from(result) {
            Ok(0) => Ok(Some(Happened::Closed)),
            Ok(count) => {
                self.current = Some((number, count));
                Ok(Some(Happened::Received))
            }
            Err(_) if is_interrupted(result) => {
                self.push_receive(number);
                Ok(None)
            }
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        }
    }

    fn sent(&mut self, number: usize, result: i32) -> io::Result<Option<Happened>> {
        let Some(socket) = &mut self.sockets[number] else { return Ok(None) };
        socket.is_sending = false;
        match usize::try_from(result) {
            Ok(count) => socket.sent += count,
            Err(_) if is_interrupted(result) => {}
            Err(_) => return Err(io::Error::from_raw_os_error(-result)),
        }
        if socket.sent == socket.output.len() {
            if socket.unsent.is_empty() {
                if socket.output.capacity() > KEPT_OUTPUT {
                    socket.output = Vec::new();
                    socket.sent = 0;
                }
                return Ok(None);
            }
            socket.output.clear();
            std::mem::swap(&mut socket.output, &mut socket.unsent);
            socket.sent = 0;
        }
        self.push_send(number);
        Ok(None)
    }

    /// Receives again on the socket whose bytes were read.
    fn receive_again(&mut self) {
        let Some((number, count)) = self.current.take() else { return };
        let Some(socket) = &mut self.sockets[number] else { return };
        if socket.place.is_none() {
            self.free_if_returned(number);
            return;
        }
        if count == socket.input.len() && count < LARGEST_BUFFER {
            socket.input.resize(LARGEST_BUFFER, 0);
        }
        self.push_receive(number);
    }

    fn push_receive(&mut self, number: usize) {
        let Some(socket) = &mut self.sockets[number] else { return };
        let length = socket.input.len() as u32;
        let entry = opcode::Recv::new(Fd(socket.fd.as_raw_fd()), socket.input.as_mut_ptr(), length)
            .ioprio(POLL_FIRST)
            .build();
        self.push(number, RECEIVE, entry);
    }

    fn push_send(&mut self, number: usize) {
        let Some(socket) = &mut self.sockets[number] else { return };
        socket.is_sending = true;
        let rest = &socket.output[socket.sent..];
        self.sends_out += 1;
        self.new_sends += usize::from(rest.len() <= SURELY_SENT);
        let entry = opcode::Send::new(Fd(socket.fd.as_raw_fd()), rest.as_ptr(), rest.len() as u32)
            .flags(SendFlags::NOSIGNAL.bits() as i32)
            .build();
        self.queued_sends += 1;
        self.push(number, SEND, entry);
    }

    fn push(&mut self, number: usize, kind: u64, entry: squeue::Entry) {
        let Some(socket) = &mut self.sockets[number] else { return };
        socket.outstanding += 1;
        let entry = entry.user_data(number as u64 * KINDS + kind);
        loop {
            // SAFETY: the buffer of a receive is `input`, that of a send `output`. Neither is touched, moved or
            // freed while the request is outstanding: `received` and `sent` end that, and `free_if_returned`
            // keeps a closed socket until nothing is outstanding.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.submit();
        }
    }

    /// Submits what is queued to the kernel, without waiting.
    pub fn submit(&mut self) {
        self.queued_sends = 0;
        // Interrupted, or too many completions wait: the entries stay queued for the next time.
        let _ = self.ring.submit();
    }

    fn free_if_returned(&mut self, number: usize) {
        let is_looked_at = self.current.is_some_and(|(current, _)| current == number);
        if !is_looked_at
            && self.sockets[number].as_ref().is_some_and(|s| s.place.is_none() && s.outstanding == 0)
        {
            self.sockets[number] = None;
            self.vacant.push(number);
        }
    }
}

impl Drop for UringNet {
    /// The kernel must have returned every buffer before it is freed.
    fn drop(&mut self) {
        self.current = None;
        for place in 0..self.numbers.len() {
            self.close(place);
        }
        while self.sockets.iter().flatten().any(|socket| socket.outstanding > 0) {
            self.wait(now_ns() + 10_000_000);
            while self.pop().is_some() {}
        }
    }
}

fn is_interrupted(result: i32) -> bool {
    [Errno::INTR, Errno::AGAIN].iter().any(|error| error.raw_os_error() == -result)
}
