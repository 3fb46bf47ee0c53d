//! Stores every item once, and deletes exactly these: over several connections, with many requests per batch.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Shutdown, SocketAddrUnix, SocketFlags, connect, shutdown};
use serde_json::json;

use super::items::Items;
use super::replies::{Replies, Reply};
use super::{Memcached, Options};
use crate::load::progress::Progress;
use base::error::AgentError;
use base::stop::StopSignal;
use engine::net::Address;

/// Requests per batch. Its replies (at most about 50 bytes each) fit into the smallest socket buffers, so that server
/// and client never wait for each other to read.
const BATCH: u64 = 128;
/// How much is sent at a time.
const PIECE_BYTES: usize = 256 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// A stalled server must not block us.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(100);

/// Stores all items, and prints what it did as one JSON object.
pub fn run(options: &Options, shows_progress: bool) -> anyhow::Result<()> {
    let workload = Memcached::new(options)?;
    let stop = StopSignal::install()?;
    let start = Instant::now();
    let work = Work {
        items: &workload.items,
        write: Items::write_set,
        good: &[Reply::Stored],
        words: ["store", "stored"],
    };
    let mut progress = Progress::new(shows_progress, work.items.count());
    let result = work.all(&options.address()?, &stop, |items| progress.tick(items, items));
    progress.end();
    let Done { bytes, connections } = result?;
    let summary = json!({
        "rows": work.items.count(),
        "bytes": bytes,
        "connections": connections,
        "seconds": start.elapsed().as_secs_f64(),
    });
    base::output::print_line(summary)?;
    Ok(())
}

/// Deletes the items that `run` stores, if they exist. Everything else in the cache stays.
pub fn clean(options: &Options) -> anyhow::Result<()> {
    let workload = Memcached::new(options)?;
    let stop = StopSignal::install()?;
    let good = &[Reply::Deleted, Reply::NotFound];
    let work =
        Work { items: &workload.items, write: Items::write_delete, good, words: ["delete", "deleted"] };
    work.all(&options.address()?, &stop, |_| {}).map(drop)
}

/// A request for each item.
struct Work<'a> {
    items: &'a Items,
    write: fn(&Items, u64, &mut Vec<u8>),
    /// The replies that mean success.
    good: &'a [Reply],
    /// The verb and its participle, for messages.
    words: [&'static str; 2],
}

struct Done {
    /// Bytes sent to the server.
    bytes: u64,
    connections: usize,
}

/// What the connections share.
#[derive(Default)]
struct Shared {
    next: AtomicU64,
    done: AtomicU64,
    bytes: AtomicU64,
    is_over: AtomicBool,
}

impl Work<'_> {
    /// Sends all requests; `on_tick` gets the number of answered items ten times per second. Returns the first
    /// error; a stop signal is also one.
    fn all(
        &self,
        address: &Address,
        stop: &StopSignal,
        mut on_tick: impl FnMut(u64),
    ) -> anyhow::Result<Done> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // Two per processor: while the server works on one batch, another is prepared.
        let connections = self.items.count().div_ceil(BATCH).min(2 * processors as u64) as usize;
        let opened: Result<Vec<File>, _> = (0..connections).map(|_| open(address)).collect();
        let sockets = opened
            .map_err(|error| AgentError::Unreachable(format!("cannot connect to {address}: {error}")))?;
        let shared = Shared::default();
        let mut failure = None;
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for socket in &sockets {
                let (sender, shared) = (sender.clone(), &shared);
                scope.spawn(move || {
                    // The receiver lives until all senders are gone.
                    let _ = sender.send(self.part(socket, shared));
                });
            }
            drop(sender);
            loop {
                match receiver.recv_timeout(TICK) {
                    Ok(Err(error)) => _ = failure.get_or_insert(error),
                    Ok(Ok(())) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                on_tick(shared.done.load(Relaxed));
                if failure.is_none() && stop.is_set() {
                    failure = Some(AgentError::Stopped("asked to stop".to_owned()).into());
                }
                if failure.is_some() && !shared.is_over.swap(true, Relaxed) {
                    // Wakes the waiting threads. A socket that broke in the meantime needs no waking.
                    sockets.iter().for_each(|socket| _ = shutdown(socket, Shutdown::Both));
                }
            }
        });
        let Shared { done, bytes, .. } = shared;
        let (done, all) = (done.into_inner(), self.items.count());
        match failure {
            Some(error) => Err(error.context(format!("{done} of {all} items are {}", self.words[1]))),
            None => Ok(Done { bytes: bytes.into_inner(), connections }),
        }
    }

    /// One connection's share: the next batch, until there is none.
    fn part(&self, mut socket: &File, shared: &Shared) -> anyhow::Result<()> {
        let mut replies = Replies::default();
        let mut out = Vec::new();
        let mut input = vec![0; READ_BYTES];
        while !shared.is_over.load(Relaxed) {
            let first = shared.next.fetch_add(BATCH, Relaxed);
            let batch = first..first.saturating_add(BATCH).min(self.items.count());
            if batch.is_empty() {
                break;
            }
            let context =
                || format!("cannot {} the items {} to {}", self.words[0], batch.start, batch.end - 1);
            for item in batch.clone() {
                (self.write)(self.items, item, &mut out);
                if out.len() >= PIECE_BYTES || item + 1 == batch.end {
                    socket.write_all(&out).map_err(explain).with_context(context)?;
                    shared.bytes.fetch_add(out.len() as u64, Relaxed);
                    out.clear();
                }
            }
            self.hear(socket, &batch, &mut replies, &mut input).with_context(context)?;
            shared.done.fetch_add(batch.end - batch.start, Relaxed);
        }
        Ok(())
    }

    /// Reads the replies to a batch.
    fn hear(
        &self,
        mut socket: &File,
        batch: &std::ops::Range<u64>,
        replies: &mut Replies,
        input: &mut [u8],
    ) -> anyhow::Result<()> {
        let mut item = batch.start;
        while item < batch.end {
            let count = match socket.read(input) {
                // With a timeout set, a signal interrupts a read regardless of SA_RESTART: signal(7).
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count.map_err(explain)?,
            };
            if count == 0 {
                return Err(failed("the server closed the connection".to_owned()));
            }
            let mut rest = &input[..count];
            while !rest.is_empty() {
                match replies.next(&mut rest) {
                    Err(what) => return Err(failed(format!("memcached sent {what}"))),
                    Ok(None) => {}
                    Ok(Some(reply)) if item < batch.end && self.good.contains(&reply) => item += 1,
                    Ok(Some(Reply::Refused(refusal))) => {
                        let mut key = Vec::new();
                        self.items.write_key(item, &mut key);
                        let key = String::from_utf8_lossy(&key);
                        return Err(failed(format!("{key}: {}", refusal.message)));
                    }
                    Ok(Some(_)) => {
                        return Err(failed("memcached sent the reply to another request".to_owned()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A blocking connection. A file, because it reads and writes a socket of any family.
fn open(address: &Address) -> io::Result<File> {
    let socket = address.socket(SocketFlags::empty())?;
    // The timeout of a send also applies to a connect: socket(7).
    set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_LIMIT))?;
    let connected = match address {
        Address::Unix(path) => connect(&socket, &SocketAddrUnix::new(path)?),
        Address::Tcp(address) => connect(&socket, address),
    };
    connected.map_err(|error| match io::Error::from(error) {
        error if is_timeout(&error) => no_answer(CONNECT_LIMIT),
        error => error,
    })?;
    set_socket_timeout(&socket, Timeout::Send, Some(ANSWER_LIMIT))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_LIMIT))?;
    Ok(File::from(socket))
}

/// Not an `io::Error`: a broken pipe to a dead server would pass for a reader that closed the pipe (`| head`).
fn explain(error: io::Error) -> AgentError {
    let error = if is_timeout(&error) { no_answer(ANSWER_LIMIT) } else { error };
    AgentError::Unreachable(error.to_string())
}

fn failed(why: String) -> anyhow::Error {
    AgentError::Unreachable(why).into()
}

fn is_timeout(error: &io::Error) -> bool {
    // A connect over TCP reports a timeout as EINPROGRESS.
    error.kind() == ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}

fn no_answer(limit: Duration) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("no answer within {} s", limit.as_secs()))
}
