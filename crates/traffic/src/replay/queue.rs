//! From the reader to the threads: events as sessions need them, in queues whose bytes have one cap together.
//!
//! A queue may be as long as it likes, the cap is that of all. When it is reached the reader waits, but a session that
//! has nothing to do always gets its next event: whoever holds up the others can go on, so the reader never waits for
//! ever. Nothing is dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::kills::{Aim, SessionState};
use super::order::Step;
use crate::event::{Command, Event, Outcome};
use crate::measures::Measure;

/// The places of an event in the mail and in its session's queue, which may be twice as long as they are full.
const PLACES: usize = 2 * (size_of::<Delivery>() + size_of::<Box<Item>>());
/// A request that is longer is forgotten once it is on its way, except for what is shown of it.
const LONG_REQUEST: usize = 64 << 10;
const SHOWN_OF_LONG: usize = 16 << 10;

/// One event of a session, as it is to be sent.
#[derive(Debug)]
pub struct Item {
    /// In ns since the replay's start.
    pub at_ns: u64,
    /// Its place in the recording's own time, in ns since 1970: for people.
    pub recorded_ns: u64,
    /// Of its event among those played, from 1; or `answers::NO_NUMBER`.
    pub number: u64,
    pub request: Request,
    pub operation: u16,
    pub class: u32,
    pub expected: Expected,
    pub step: Step,
    /// What it takes of the memory.
    pub size: usize,
}

#[derive(Debug)]
pub enum Request {
    Query(Box<[u8]>),
    Kill(Box<Aim>),
    Prepare { statement: u32, text: Arc<[u8]> },
    Execute { is_bulk: bool, statement: Option<u32>, text: Arc<[u8]>, parameters: Box<[u8]> },
    ResetStatement(u32),
    Close(u32),
    InitDb(Box<[u8]>),
    ResetConnection,
    Ping,
    Quit,
}

/// What the recording says of the answer.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub outcome: Outcome,
    pub response_ns: Option<u64>,
    pub rows_sent: Option<u64>,
    pub rows_affected: Option<u64>,
    pub warnings: Option<u64>,
    pub checksum: Option<u64>,
}

/// A flag of a bulk execution: a result for each of its rows. Our logins do not ask for that.
pub const UNIT_RESULTS: u8 = 0x40;

impl Expected {
    pub fn of(event: &Event<'_>) -> Self {
        let (outcome, response_ns) = (event.outcome, event.response_ns);
        if event.command == Command::BulkExecute
            && event.parameters.first().is_some_and(|flags| flags & UNIT_RESULTS != 0)
        {
            return Expected { outcome, response_ns, ..Expected::NOTHING };
        }
        Expected {
            outcome,
            response_ns,
            rows_sent: event.measures.get(Measure::RowsSent),
            rows_affected: event.measures.get(Measure::RowsAffected),
            warnings: event.measures.get(Measure::Warnings),
            checksum: event.checksum,
        }
    }

    /// Nothing is known.
    pub const NOTHING: Expected = Expected {
        outcome: Outcome::Unknown,
        response_ns: None,
        rows_sent: None,
        rows_affected: None,
        warnings: None,
        checksum: None,
    };
}

/// What is before the parameters of an execution: command, number of the statement, flags, iterations.
const EXECUTION_HEAD: usize = 10;

impl Request {
    /// The length of the request on the wire, without the headers of its packets.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Request::Query(bytes) | Request::InitDb(bytes) => 1 + bytes.len(),
            Request::Prepare { text, .. } => 1 + text.len(),
            Request::Execute { text, parameters, .. } => {
                (EXECUTION_HEAD + parameters.len()).max(1 + text.len())
            }
            _ => EXECUTION_HEAD,
        }
    }

    /// The same for another session.
    pub fn copy(&self) -> Self {
        match self {
            Request::Query(text) => Request::Query(text.clone()),
            Request::Kill(aim) => Request::Kill(aim.clone()),
            Request::Prepare { statement, text } => {
                Request::Prepare { statement: *statement, text: Arc::clone(text) }
            }
            Request::Execute { is_bulk, statement, text, parameters } => Request::Execute {
                is_bulk: *is_bulk,
                statement: *statement,
                text: Arc::clone(text),
                parameters: parameters.clone(),
            },
            Request::ResetStatement(statement) => Request::ResetStatement(*statement),
            Request::Close(statement) => Request::Close(*statement),
            Request::InitDb(name) => Request::InitDb(name.clone()),
            Request::ResetConnection => Request::ResetConnection,
            Request::Ping => Request::Ping,
            Request::Quit => Request::Quit,
        }
    }

    /// It is on its way in a buffer of the connection: a second copy of a long one would wait for the answer.
    pub fn forget_long(&mut self) {
        let (bytes, kept) = match self {
            Request::Query(text) => (text, SHOWN_OF_LONG),
            Request::Execute { parameters, .. } => (parameters, 0),
            _ => return,
        };
        if bytes.len() > LONG_REQUEST {
            *bytes = bytes[..kept].into();
        }
    }
}

impl Item {
    /// Whether it is something that the server answers.
    fn is_sent(&self) -> bool {
        !matches!(self.request, Request::Quit | Request::Close(_))
    }

    /// What it takes of the memory, but for a text that it may share with others.
    pub fn own_size(&self) -> usize {
        let content = match &self.request {
            Request::Query(bytes) | Request::InitDb(bytes) => bytes.len(),
            Request::Execute { parameters, .. } => parameters.len(),
            _ => 0,
        };
        PLACES + allocated(size_of::<Item>()) + if content > 0 { allocated(content) } else { 0 }
    }
}

/// What the allocator takes for so many bytes: its own word, in steps of two words.
const fn allocated(bytes: usize) -> usize {
    (bytes + size_of::<usize>()).next_multiple_of(2 * size_of::<usize>())
}

/// The bytes of all queues, and their cap.
pub struct Budget {
    cap: usize,
    used: AtomicUsize,
    largest: AtomicUsize,
    events: AtomicUsize,
}

/// Events count from when they are read until they are answered.
impl Budget {
    pub fn new(cap: usize) -> Self {
        Self { cap, used: AtomicUsize::new(0), largest: AtomicUsize::new(0), events: AtomicUsize::new(0) }
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether a session may get another event. `waiting` is how many it has.
    pub fn admits(&self, size: usize, waiting: usize) -> bool {
        waiting == 0 || self.used() + size <= self.cap
    }

    /// The same for a reader that has waited: it continues when it can do so for a while, not for every event.
    pub fn admits_many(&self, size: usize, waiting: usize) -> bool {
        waiting == 0 || (self.admits(size, waiting) && self.used() <= self.cap - self.cap / 8)
    }

    /// How far what sessions had to be given went beyond the cap.
    pub fn excess(&self) -> usize {
        self.largest().saturating_sub(self.cap)
    }

    pub fn is_half_full(&self) -> bool {
        self.used() > self.cap / 2
    }

    /// The most that there was at once.
    pub fn largest(&self) -> usize {
        self.largest.load(Ordering::Relaxed)
    }

    /// How many events wait.
    pub fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    pub fn take(&self, item: &Item) {
        let used = self.used.fetch_add(item.size, Ordering::Relaxed) + item.size;
        self.largest.fetch_max(used, Ordering::Relaxed);
        self.events.fetch_add(usize::from(item.is_sent()), Ordering::Relaxed);
    }

    /// It waits no more.
    pub fn begun(&self, item: &Item) {
        self.events.fetch_sub(usize::from(item.is_sent()), Ordering::Relaxed);
    }

    /// It is over.
    pub fn give_back(&self, item: &Item) {
        self.used.fetch_sub(item.size, Ordering::Relaxed);
    }
}

/// A session of the replay, as the reader sees it.
#[derive(Clone)]
pub struct Seat {
    /// Unique in the replay.
    pub key: u32,
    pub thread: usize,
    pub state: Arc<SessionState>,
}

/// A session that begins.
pub struct Opening {
    pub at_ns: u64,
    /// It connects so long before that: its login was not recorded, its first event was.
    pub lead_ns: u64,
    pub account: usize,
    pub database: Option<String>,
    pub state: Arc<SessionState>,
    pub step: Step,
}

pub enum Delivery {
    Open(u32, Box<Opening>),
    Event(u32, Box<Item>),
}

/// What the reader has for one thread.
#[derive(Default)]
pub struct Inbox {
    has_mail: AtomicBool,
    mail: Mutex<Vec<Delivery>>,
}

impl Inbox {
    /// Puts all of it in.
    pub fn put(&self, deliveries: &mut Vec<Delivery>) {
        if !deliveries.is_empty() {
            self.mail.lock().unwrap_or_else(PoisonError::into_inner).append(deliveries);
            self.has_mail.store(true, Ordering::Release);
        }
    }

    /// Takes what is there, into an empty vector.
    pub fn take(&self, into: &mut Vec<Delivery>) -> bool {
        if !self.has_mail.load(Ordering::Acquire) {
            return false;
        }
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *mail, into);
        self.has_mail.store(false, Ordering::Release);
        true
    }
}

/// How far the reader has come.
#[derive(Default)]
pub struct Progress {
    /// Whatever is due before this, in ns since the replay's start, is in the inboxes.
    pub read_until_ns: AtomicU64,
    /// Events that were read, and the reader's CPU so far.
    pub events: AtomicU64,
    pub cpu_ns: AtomicU64,
    /// There is no more.
    pub is_over: AtomicBool,
    /// No more is wanted: what is left of the recording is beyond the replay's end.
    pub is_enough: AtomicBool,
}
