//! From the threads that pass bytes on to the one that decodes them: copies in batches, bounded in bytes. Where the
//! decoder does not keep up, bytes are left out of the recording and counted; traffic never waits for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::event::Sink;
use crate::guard::Pulse;
use crate::stream::{Opened, Side, Streams};
use crate::wire::Decoder;

/// A batch goes out when it has so many bytes, or is so old.
const BATCH: usize = 128 * 1024;
pub const BATCH_NS: u64 = 10_000_000;
/// Buffers that are kept to be filled again.
const MOST_USED: usize = 16;
/// Bytes before the content of a record: time, session, length, kind.
const HEAD: usize = 8 + 8 + 4 + 1;
const TICK: Duration = Duration::from_millis(200);

const OPENED: u8 = 0;
const CLOSED: u8 = 1;
const CLIENT: u8 = 2;
const SERVER: u8 = 3;
const CLIENT_GAP: u8 = 4;
const SERVER_GAP: u8 = 5;

/// Bytes that wait, and what was left out.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: AtomicUsize,
    /// Advances with every decoded record.
    pub pulse: Pulse,
    /// Buffers of batches that were decoded, to be filled again.
    used: Mutex<Vec<Vec<u8>>>,
    pub gaps: AtomicU64,
    pub gap_bytes: AtomicU64,
}

impl Queue {
    fn take_buffer(&self) -> Vec<u8> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        self.waiting.fetch_sub(buffer.len(), Relaxed);
        buffer.clear();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() < MOST_USED {
            used.push(buffer);
        }
    }
}

/// Bytes of a session that the decoder will not see, by side.
#[derive(Debug, Default)]
pub struct Missing([u64; 2]);

/// One thread's way to the decoder.
pub struct Tap {
    batch: Vec<u8>,
    begun_ns: u64,
    sender: Sender<Vec<u8>>,
    queue: Arc<Queue>,
    most_bytes: usize,
    is_dead: bool,
}

impl Tap {
    pub fn new(sender: Sender<Vec<u8>>, queue: Arc<Queue>, most_bytes: usize) -> Self {
        Tap { batch: Vec::new(), begun_ns: 0, sender, queue, most_bytes, is_dead: false }
    }

    pub fn opened(&mut self, time_ns: u64, session: u64, client: SocketAddr) {
        self.push(time_ns, session, OPENED, client.to_string().as_bytes());
    }

    pub fn bytes(&mut self, time_ns: u64, session: u64, from: Side, bytes: &[u8], missing: &mut Missing) {
        let waiting = self.queue.waiting.load(Relaxed) + self.batch.len();
        if self.is_dead || waiting + bytes.len() > self.most_bytes {
            let missing = &mut missing.0[from as usize];
            if *missing == 0 {
                self.queue.gaps.fetch_add(1, Relaxed);
            }
            *missing += bytes.len() as u64;
            self.queue.gap_bytes.fetch_add(bytes.len() as u64, Relaxed);
            return;
        }
        self.gaps(time_ns, session, missing);
        self.push(time_ns, session, if from == Side::Client { CLIENT } else { SERVER }, bytes);
    }

    pub fn closed(&mut self, time_ns: u64, session: u64, missing: &mut Missing) {
        self.gaps(time_ns, session, missing);
        self.push(time_ns, session, CLOSED, &[]);
    }

    /// Hands over what is old enough; how long it may wait otherwise.
    pub fn flush(&mut self, now_ns: u64) -> Option<u64> {
        if self.batch.is_empty() {
            return None;
        }
        let age = now_ns.saturating_sub(self.begun_ns);
        if age < BATCH_NS {
            return Some(BATCH_NS - age);
        }
        self.hand_over();
        None
    }

    pub fn hand_over(&mut self) {
        let batch = std::mem::replace(&mut self.batch, self.queue.take_buffer());
        let length = batch.len();
        self.queue.waiting.fetch_add(length, Relaxed);
        if self.sender.send(batch).is_err() {
            self.queue.waiting.fetch_sub(length, Relaxed);
            self.is_dead = true;
        }
    }

    fn gaps(&mut self, time_ns: u64, session: u64, missing: &mut Missing) {
        for (kind, count) in [CLIENT_GAP, SERVER_GAP].into_iter().zip(std::mem::take(&mut missing.0)) {
            if count > 0 {
                self.push(time_ns, session, kind, &count.to_le_bytes());
            }
        }
    }

    fn push(&mut self, time_ns: u64, session: u64, kind: u8, content: &[u8]) {
        if self.is_dead {
            return;
        }
        if self.batch.is_empty() {
            self.begun_ns = time_ns;
        }
        self.batch.extend_from_slice(&time_ns.to_le_bytes());
        self.batch.extend_from_slice(&session.to_le_bytes());
        self.batch.extend_from_slice(&u32::try_from(content.len()).unwrap_or(0).to_le_bytes());
        self.batch.push(kind);
        self.batch.extend_from_slice(content);
        if self.batch.len() >= BATCH {
            self.hand_over();
        }
    }
}

/// The decoder's end: takes batches until all taps are gone. `tick` is called now and then.
pub fn drain<S: Sink>(
    batches: &Receiver<Vec<u8>>,
    queue: &Queue,
    decoder: &mut Decoder<S>,
    server: SocketAddr,
    mut tick: impl FnMut(&mut S) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut turn = 0_u32;
    loop {
        match batches.recv_timeout(TICK) {
            Ok(batch) => {
                let result = feed(&batch, decoder, server, &queue.pulse);
                queue.give_back(batch);
                result?;
                turn = turn.wrapping_add(1);
                if turn.is_multiple_of(64) {
                    tick(decoder.sink())?;
                }
            }
            Err(RecvTimeoutError::Timeout) => tick(decoder.sink())?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn feed<S: Sink>(
    mut batch: &[u8],
    decoder: &mut Decoder<S>,
    server: SocketAddr,
    pulse: &Pulse,
) -> anyhow::Result<()> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    while let Some((head, rest)) = batch.split_at_checked(HEAD) {
        let (time_ns, session) = (number(&head[..8]), number(&head[8..16]));
        let length = head[16..20].try_into().map_or(0, u32::from_le_bytes) as usize;
        let (content, rest) = rest.split_at(length.min(rest.len()));
        batch = rest;
        pulse.beat();
        match head[20] {
            OPENED => {
                let client = std::str::from_utf8(content).ok().and_then(|text| text.parse().ok());
                let client = client.unwrap_or(server);
                decoder.opened(time_ns, &Opened { session, client, server, is_midstream: false })?;
            }
            CLOSED => decoder.closed(time_ns, session)?,
            CLIENT => decoder.bytes(time_ns, session, Side::Client, content)?,
            SERVER => decoder.bytes(time_ns, session, Side::Server, content)?,
            CLIENT_GAP => decoder.gap(time_ns, session, Side::Client, Some(number(content)))?,
            _ => decoder.gap(time_ns, session, Side::Server, Some(number(content)))?,
        }
    }
    Ok(())
}
