//! One connection: requests wait for their answers, which come in the same order.

use std::collections::VecDeque;
use std::net::SocketAddr;

use memchr::memchr;
use xxhash_rust::xxh3::xxh3_64;

use super::reply::{self, Reply};
use super::request::{self, COMMANDS, Quiet, Shape, UNKNOWN};
use super::table::{Asked, Fate, Table, Took};
use crate::coverage::Coverage;
use crate::stream::{Opened, Side};
use crate::wire::foreign;

/// Lines that are not whole, and requests that wait, of all sessions.
const MOST_HELD_BYTES: usize = 64 << 20;
/// A line of a client may name thousands of keys.
const LONGEST_REQUEST: usize = 1 << 20;
const LONGEST_REPLY: usize = 16 << 10;
/// Requests of one session that wait.
const MOST_WAITING: usize = 10_000;
/// How many comparisons may be spent on keys of one answer that come out of order.
const MOST_STEPS: usize = LONGEST_REQUEST;
const END_OF_LINE: u64 = 2;
const END_OF_LIST: u64 = b"END\r\n".len() as u64;
const REFUSED: &str = "refused by memcached";
const BINARY: &str = "memcached's binary protocol";

/// What all sessions share.
pub struct Shared {
    pub table: Table,
    pub coverage: Coverage,
    /// Name of the input, for places of damage.
    pub name: String,
    pub held_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Read,
    /// Until the client asks again.
    Lost,
    /// For good: another protocol, or what follows `watch` and `quit`.
    Left,
}

/// One direction.
#[derive(Default)]
struct Half {
    /// What came of a line that is not whole, and when it began.
    line: Vec<u8>,
    line_ns: u64,
    /// Bytes of a value that are to come, with its end of line.
    skip: u64,
}

/// A request that is not over.
struct Waiting {
    command: u8,
    quiet: Quiet,
    start_ns: u64,
    request_bytes: u64,
    asked: Vec<Asked>,
    /// Where the next key of an answer is looked for first.
    next: usize,
    steps: usize,
    opaque: Option<u64>,
    names_key: bool,
    vivifies: bool,
    recaches: bool,
}

impl Waiting {
    fn shape(&self) -> Shape {
        COMMANDS[usize::from(self.command)].1
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.asked.len() * size_of::<Asked>()
    }

    /// Whether an answer names the request that it is for, and that is this one; or does not have to.
    fn is_named(&self, line: &[u8], reply: Reply, table: &Table) -> bool {
        if self.shape() < Shape::MetaGet || self.shape() > Shape::MetaCount || reply == Reply::Failed {
            return true;
        }
        // Older versions say nothing more of what is not there.
        let may_lack = line == b"EN";
        let opaque = reply::token(line, b'O').map(xxh3_64);
        let key = reply::token(line, b'k').map(|key| table.hash(key));
        let asked = self.names_key.then(|| self.asked[0].hash);
        (opaque == self.opaque && key == asked) || (may_lack && opaque.is_none() && key.is_none())
    }

    /// What it means that nothing came.
    fn silent(&self) -> Fate {
        match (self.quiet, self.shape()) {
            (Quiet::Usually, Shape::MetaGet) => Fate::Missed,
            (Quiet::Usually, Shape::MetaSet) => Fate::Found,
            (Quiet::No, _) => Fate::Unanswered,
            _ => Fate::Silent,
        }
    }

    /// The key that a value is of.
    fn find(&mut self, hash: u64) -> Option<usize> {
        for ahead in 0..self.asked.len() {
            let at = (self.next + ahead) % self.asked.len();
            if self.asked[at].hash == hash && self.asked[at].fate == Fate::Unanswered {
                self.next = at + 1;
                return Some(at);
            }
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return None;
            }
        }
        None
    }
}

pub struct Session {
    client: SocketAddr,
    number: u64,
    state: State,
    is_midstream: bool,
    /// A line of the client was a request.
    has_asked: bool,
    has_spoken: [bool; 2],
    last: Option<Side>,
    halves: [Half; 2],
    waiting: VecDeque<Waiting>,
    /// A value comes, and its request is over with it.
    is_last_value: bool,
    requests: u64,
    unanswered: u64,
}

impl Session {
    pub fn new(opened: &Opened) -> Self {
        Self {
            client: opened.client,
            number: opened.session,
            state: if opened.is_midstream { State::Lost } else { State::Read },
            is_midstream: opened.is_midstream,
            has_asked: false,
            has_spoken: [false; 2],
            last: None,
            halves: [Half::default(), Half::default()],
            waiting: VecDeque::new(),
            is_last_value: false,
            requests: 0,
            unanswered: 0,
        }
    }

    pub fn bytes(&mut self, time_ns: u64, from: Side, bytes: &[u8], shared: &mut Shared) {
        if bytes.is_empty() {
            return;
        }
        let is_turn = self.last.replace(from) != Some(from);
        self.has_spoken[from as usize] = true;
        if !self.has_asked && self.state != State::Left {
            self.look(from, bytes, shared);
        }
        if self.state == State::Lost && from == Side::Client && is_turn && request::is_request(bytes) {
            self.state = State::Read;
        }
        if self.state != State::Read {
            shared.coverage.skipped_bytes += bytes.len() as u64;
            return;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.state != State::Read {
                shared.coverage.skipped_bytes += rest.len() as u64;
                return;
            }
            rest = match self.halves[from as usize].skip {
                0 => self.line(time_ns, from, rest, shared),
                left => self.value(time_ns, from, rest, left, shared),
            };
        }
    }

    /// Whether the first bytes are another protocol's.
    fn look(&mut self, from: Side, bytes: &[u8], shared: &mut Shared) {
        let half = &self.halves[from as usize];
        let other = match (from, self.is_midstream, bytes[0]) {
            _ if half.skip > 0 || !half.line.is_empty() => None,
            // Nothing of memcached begins so, and no record of TLS otherwise.
            (_, false, 0x16) | (_, true, 0x14..=0x17) if bytes.get(1).is_none_or(|version| *version == 3) => {
                Some(foreign::TLS)
            }
            (_, false, 0x80 | 0x81) => Some(BINARY),
            (_, true, 0x80 | 0x81) if foreign::protocol(from, bytes) == Some("memcached") => Some(BINARY),
            (Side::Server, false, _) if self.has_spoken[Side::Client as usize] => None,
            (Side::Server, false, _) if bytes.starts_with(b"ERROR ") => Some(REFUSED),
            // An answer of memcached: only this direction was captured.
            (Side::Server, false, _) => match foreign::protocol(from, bytes) {
                Some("memcached") => None,
                other => Some(other.unwrap_or(foreign::UNKNOWN)),
            },
            _ => None,
        };
        if let Some(other) = other {
            self.leave(other, shared);
        }
    }

    fn leave(&mut self, protocol: &str, shared: &mut Shared) {
        self.state = State::Left;
        if protocol == foreign::TLS {
            shared.coverage.tls_sessions += 1;
        } else {
            shared.coverage.foreign_sessions.add(protocol, 1);
        }
    }

    /// Passes over bytes of a value; gives what is behind them.
    fn value<'a>(
        &mut self,
        time_ns: u64,
        from: Side,
        bytes: &'a [u8],
        left: u64,
        shared: &mut Shared,
    ) -> &'a [u8] {
        let here = left.min(bytes.len() as u64) as usize;
        self.halves[from as usize].skip = left - here as u64;
        if from == Side::Client {
            return &bytes[here..];
        }
        // The last two are the end of a line; if not, this was no value.
        let is_wrong = |(byte, end): (&u8, u64)| match end {
            1 => *byte != b'\n',
            2 => *byte != b'\r',
            _ => false,
        };
        let ends = (left - here as u64 + 1..=left).rev();
        if bytes[..here].iter().zip(ends).skip(here.saturating_sub(2)).any(is_wrong) {
            self.lose("a value without an end", shared);
        } else if left == here as u64 && std::mem::take(&mut self.is_last_value) {
            self.over(time_ns, shared);
        }
        &bytes[here..]
    }

    /// Takes a line, or a part of one; gives what is behind it.
    fn line<'a>(&mut self, time_ns: u64, from: Side, bytes: &'a [u8], shared: &mut Shared) -> &'a [u8] {
        let end = memchr(b'\n', bytes);
        let here = end.map_or(bytes.len(), |end| end + 1);
        let half = &mut self.halves[from as usize];
        let start_ns = if half.line.is_empty() { time_ns } else { half.line_ns };
        let most = if from == Side::Client { LONGEST_REQUEST } else { LONGEST_REPLY };
        if half.line.len() + here > most {
            self.lose("a line that is too long", shared);
            return &bytes[here..];
        }
        if end.is_none() {
            half.line_ns = start_ns;
            half.line.extend_from_slice(bytes);
            shared.held_bytes += here;
            self.check_held(shared);
            return &[];
        }
        let mut held = std::mem::take(&mut half.line);
        shared.held_bytes -= held.len();
        let whole = if held.is_empty() {
            &bytes[..here]
        } else {
            held.extend_from_slice(&bytes[..here]);
            &held
        };
        let line = &whole[..whole.len() - 1];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match from {
            Side::Client => self.request(start_ns, line, whole.len() as u64, shared),
            Side::Server => self.reply(time_ns, line, whole.len() as u64, shared),
        }
        if self.state == State::Read && held.capacity() <= LONGEST_REPLY {
            held.clear();
            self.halves[from as usize].line = held;
        }
        &bytes[here..]
    }

    fn check_held(&mut self, shared: &mut Shared) {
        if shared.held_bytes > MOST_HELD_BYTES {
            self.lose("too much that waits for answers", shared);
        }
    }

    fn request(&mut self, start_ns: u64, line: &[u8], bytes: u64, shared: &mut Shared) {
        let parsed = request::parse(line);
        if parsed.command == UNKNOWN && !std::mem::replace(&mut self.has_asked, true) {
            let name =
                if line.starts_with(b"*") { Some("Redis") } else { foreign::protocol(Side::Client, line) };
            return self.leave(name.unwrap_or(foreign::UNKNOWN), shared);
        }
        self.has_asked = true;
        shared.table.seen(start_ns);
        let table = &mut shared.table;
        let mut asked: Vec<Asked> =
            parsed.keys.iter().map(|key| table.asked(parsed.command, key, parsed.is_encoded)).collect();
        if asked.is_empty() {
            asked.push(table.keyless(parsed.command));
        }
        asked[0].value_bytes = parsed.value;
        let skip = parsed.value.map_or(0, |value| value + END_OF_LINE);
        self.halves[Side::Client as usize].skip = skip;
        let waiting = Waiting {
            command: parsed.command,
            quiet: parsed.quiet,
            start_ns,
            request_bytes: bytes + skip,
            asked,
            next: 0,
            steps: 0,
            opaque: parsed.opaque.map(xxh3_64),
            names_key: parsed.names_key && !parsed.keys.is_empty(),
            vivifies: parsed.vivifies,
            recaches: parsed.recaches,
        };
        if waiting.shape() == Shape::Last {
            self.end_of(waiting, Some(Fate::Silent), None, shared);
            self.state = State::Left;
            return;
        }
        shared.held_bytes += waiting.held_bytes();
        self.waiting.push_back(waiting);
        if self.waiting.len() > MOST_WAITING {
            if self.waiting[0].quiet == Quiet::No {
                return self.lose("too many requests that wait for answers", shared);
            }
            self.pass_silent(shared);
        }
        self.check_held(shared);
    }

    fn reply(&mut self, time_ns: u64, line: &[u8], bytes: u64, shared: &mut Shared) {
        let found = loop {
            let Some(first) = self.waiting.front() else {
                return self.lose("an answer to no request", shared);
            };
            let is_its = |reply: &Reply| {
                reply::is_told(first.quiet, first.shape(), line, *reply)
                    && first.is_named(line, *reply, &shared.table)
            };
            match reply::read(first.shape(), line).filter(is_its) {
                Some(reply) => break reply,
                None if first.quiet == Quiet::No => {
                    return self.lose("an answer that does not fit its request", shared);
                }
                None => self.pass_silent(shared),
            }
        };
        let hash = |key: Option<&[u8]>| key.map_or(0, |key| shared.table.hash(key));
        let first = &mut self.waiting[0];
        let is_list = matches!(first.shape(), Shape::Get | Shape::Lines);
        let mut at = 0;
        let fate = match reply_fate(first, line, found) {
            Some(fate) => fate,
            None if matches!(found, Reply::Value(_)) => {
                match first.find(hash(line.split(|byte| *byte == b' ').nth(1))) {
                    Some(found) => at = found,
                    None => return self.lose("a value of a key that was not asked for", shared),
                }
                Fate::Found
            }
            None => {
                first.asked[0].response_bytes += bytes;
                return;
            }
        };
        let asked = &mut first.asked[at];
        asked.response_bytes += bytes;
        let value = if let Reply::Value(value) = found { Some(value) } else { None };
        if let Some(value) = value {
            asked.response_bytes += value + END_OF_LINE;
            asked.value_bytes = (fate == Fate::Found).then_some(value);
            asked.fate = fate;
            self.halves[Side::Server as usize].skip = value + END_OF_LINE;
            self.is_last_value = !is_list;
            return;
        }
        first
            .asked
            .iter_mut()
            .filter(|asked| asked.fate == Fate::Unanswered)
            .for_each(|asked| asked.fate = fate);
        self.over(time_ns, shared);
    }

    /// The first request was answered.
    fn over(&mut self, time_ns: u64, shared: &mut Shared) {
        if let Some(waiting) = self.waiting.pop_front() {
            shared.held_bytes -= waiting.held_bytes();
            self.end_of(waiting, None, Some(time_ns), shared);
        }
    }

    /// The first request will not be answered any more.
    fn pass_silent(&mut self, shared: &mut Shared) {
        if let Some(waiting) = self.waiting.pop_front() {
            shared.held_bytes -= waiting.held_bytes();
            let fate = waiting.silent();
            let is_unanswered = fate == Fate::Unanswered;
            shared.coverage.unanswered += u64::from(is_unanswered);
            self.unanswered += u64::from(is_unanswered);
            self.end_of(waiting, Some(fate), None, shared);
        }
    }

    fn end_of(&mut self, mut waiting: Waiting, rest: Option<Fate>, end_ns: Option<u64>, shared: &mut Shared) {
        for asked in waiting.asked.iter_mut().filter(|asked| asked.fate == Fate::Unanswered) {
            asked.fate = rest.unwrap_or(Fate::Unanswered);
        }
        let latency_ns = end_ns.map(|end| end.saturating_sub(waiting.start_ns));
        let took = Took { latency_ns, request_bytes: waiting.request_bytes };
        shared.table.over(&took, &waiting.asked);
        shared.coverage.events += 1;
        self.requests += 1;
    }

    fn give_up(&mut self, shared: &mut Shared) {
        while !self.waiting.is_empty() {
            self.pass_silent(shared);
        }
        for half in &mut self.halves {
            shared.held_bytes -= half.line.len();
            shared.coverage.skipped_bytes += half.line.len() as u64;
            *half = Half::default();
        }
        self.is_last_value = false;
    }

    fn lose(&mut self, why: &str, shared: &mut Shared) {
        self.give_up(shared);
        self.state = State::Lost;
        let reason =
            format!("{why}: the connection of {} is read again from its next request on", self.client);
        let name = std::mem::take(&mut shared.name);
        shared.coverage.damage(&name, 0, self.number, reason);
        shared.name = name;
    }

    /// Bytes are missing. Of a value nothing is read but how long it is; and a packet that was cut in the value that it
    /// ends with has nothing else that is missing.
    pub fn gap(&mut self, time_ns: u64, from: Side, missing: Option<u64>, shared: &mut Shared) {
        if self.state != State::Read {
            return;
        }
        let skip = &mut self.halves[from as usize].skip;
        let is_list = self.waiting.front().is_some_and(|first| first.shape() == Shape::Get);
        match missing {
            Some(missing) if missing <= *skip => {
                *skip -= missing;
                if *skip == 0 && from == Side::Server && std::mem::take(&mut self.is_last_value) {
                    self.over(time_ns, shared);
                }
            }
            Some(missing)
                if from == Side::Server && is_list && *skip > 0 && missing == *skip + END_OF_LIST =>
            {
                *skip = 0;
                self.reply(time_ns, b"END", END_OF_LIST, shared);
            }
            _ => self.lose("missing bytes", shared),
        }
    }

    /// Nothing more comes.
    pub fn end(&mut self, shared: &mut Shared) {
        self.give_up(shared);
        let is_silent = match self.has_spoken {
            [true, false] => self.unanswered > 0,
            [false, true] => true,
            _ => false,
        };
        shared.coverage.one_sided_sessions += u64::from(is_silent && self.state != State::Left);
        shared.table.client(self.client.ip(), self.requests);
    }
}

/// What an answer means for all keys of its request that it has not named; None for one that goes on.
fn reply_fate(first: &Waiting, line: &[u8], found: Reply) -> Option<Fate> {
    match (found, first.shape()) {
        (Reply::Failed, _) => Some(Fate::Failed),
        (Reply::Refused, _) => Some(Fate::Refused),
        (Reply::Missed, _) | (Reply::End, Shape::Get) => Some(Fate::Missed),
        (Reply::More, _) | (Reply::Value(_), Shape::Get) => None,
        (Reply::Value(_) | Reply::Done, Shape::MetaGet) => {
            // It was not there, and the server made it for this client to fill.
            let has = |flag| reply::token(line, flag).is_some();
            let is_empty = found == Reply::Value(0) || !first.recaches;
            let is_made = first.vivifies && has(b'W') && !has(b'X') && is_empty;
            Some(if is_made { Fate::Missed } else { Fate::Found })
        }
        (Reply::Value(_) | Reply::Done | Reply::End, _) => Some(Fate::Found),
    }
}
