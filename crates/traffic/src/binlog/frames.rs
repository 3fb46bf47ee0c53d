//! Events as a log has them, one after the other: headers, lengths, checksums, and where to go on behind damage.

use std::io::{self, Read};

use flate2::Crc;

use super::kinds;
use crate::input::is_damage;

/// What a log begins with.
pub const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// What one begins with that MySQL's `binlog_encryption` encrypted.
pub const ENCRYPTED_MAGIC: [u8; 4] = [0xfd, b'b', b'i', b'n'];
pub const HEADER_BYTES: usize = 19;
const CHECKSUM_BYTES: usize = 4;
/// Of a longer event only the beginning is read.
pub const MOST_EVENT_BYTES: usize = 64 << 20;
/// What is kept of those.
const KEPT_OF_LARGE_BYTES: usize = 64 << 10;
const FIRST_BUFFER_BYTES: usize = 256 << 10;
const INNER_BUFFER_BYTES: usize = 16 << 10;
/// So many bytes, and four times what was read, may be summed up for checksums that are wrong: a hostile log costs no
/// more.
const DOUBT_BYTES: u64 = 256 << 20;

const TOO_LONG: &str = "an event that is longer than the log";

pub const IN_USE: u16 = 0x1;
pub const ARTIFICIAL: u16 = 0x20;
pub const RELAY: u16 = 0x40;

/// The header of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub time_s: u32,
    pub kind: u8,
    pub server: u32,
    pub length: u32,
    /// Position of the next event in the log that it was written to first, modulo 2^32; 0 where none tells it.
    pub end: u32,
    pub flags: u16,
}

impl Header {
    /// None if no server writes such a header.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = Header {
            time_s: word(0),
            kind: bytes[4],
            server: word(5),
            length: word(9),
            end: word(13),
            flags: u16::from_le_bytes([bytes[17], bytes[18]]),
        };
        let has_length = header.length as usize >= HEADER_BYTES && header.length < 0x8000_0000;
        (has_length && kinds::name(header.kind).is_some()).then_some(header)
    }

    /// Whether `next` follows this one in a log.
    fn is_before(&self, next: &Header) -> bool {
        next.end != 0 && next.end.wrapping_sub(next.length) == self.end
    }

    /// Whether it is a whole event that begins a log.
    fn is_description(&self) -> bool {
        self.kind == kinds::FORMAT_DESCRIPTION && (76..1024).contains(&self.length)
    }
}

/// Whether these first bytes of an input are a piece of a log, without its beginning: headers that follow each other.
#[must_use]
pub fn is_piece(head: &[u8]) -> bool {
    // Text has no zero byte; a header has several.
    if memchr::memchr(0, &head[..head.len().min(4096)]).is_none() {
        return false;
    }
    (0..head.len().saturating_sub(HEADER_BYTES)).any(|at| links(&head[at..]) >= 2)
}

/// How many headers in a row follow each other, from the first byte on; 3 at most.
fn links(bytes: &[u8]) -> usize {
    let Some(mut last) = Header::read(bytes) else { return 0 };
    let (mut at, mut count) = (last.length as usize, 0);
    while count < 3 {
        let Some(next) = bytes.get(at..).and_then(Header::read).filter(|next| last.is_before(next)) else {
            break;
        };
        (at, count, last) = (at + next.length as usize, count + 1, next);
    }
    count
}

/// What comes next in a log.
#[derive(Debug)]
pub enum Frame<'a> {
    /// A log begins: its magic.
    Begin,
    Event(Event<'a>),
    /// So many bytes from `offset` on are no event that can be read.
    Damage {
        offset: u64,
        bytes: u64,
        reason: &'static str,
    },
    /// The input ends in the middle of an event, of which so many bytes are there; or it is damaged, and why.
    Cut {
        offset: u64,
        bytes: u64,
        problem: Option<String>,
    },
    End,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub header: Header,
    /// Offset in the input.
    pub offset: u64,
    /// Behind the header, without the checksum. Of an event that is too large only the beginning.
    pub body: &'a [u8],
    pub is_cut: bool,
}

/// Takes a log apart.
pub struct Frames<R> {
    input: R,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Of `buffer[from]` in the input.
    offset: u64,
    /// The input ended; with what problem, if it is damaged.
    ended: Option<Option<String>>,
    /// Whether events end in a checksum; None until a description or a checksum told.
    has_checksums: Option<bool>,
    last: Option<Header>,
    doubtful_bytes: u64,
    /// Nothing in the input tells where events begin but their lengths.
    is_inner: bool,
}

impl<R: Read> Frames<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            from: 0,
            to: 0,
            offset: 0,
            ended: None,
            has_checksums: None,
            last: None,
            doubtful_bytes: 0,
            is_inner: false,
        }
    }

    /// Of the events in a compressed transaction: they have no checksums of their own.
    pub fn inner(input: R) -> Self {
        let buffer = vec![0; INNER_BUFFER_BYTES];
        Self { has_checksums: Some(false), is_inner: true, buffer, ..Self::new(input) }
    }

    /// Whether MySQL encrypted the log.
    ///
    /// # Errors
    /// As with `next`.
    pub fn is_encrypted(&mut self) -> io::Result<bool> {
        self.room_for(ENCRYPTED_MAGIC.len())?;
        Ok(self.offset == 0 && self.bytes().starts_with(&ENCRYPTED_MAGIC))
    }

    #[cfg(test)]
    pub fn room_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// How much was taken.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// # Errors
    /// The input cannot be read. Damage is no error.
    pub fn next(&mut self) -> io::Result<Frame<'_>> {
        if self.room_for(MAGIC.len() + HEADER_BYTES)? < HEADER_BYTES {
            return Ok(self.rest());
        }
        if self.is_beginning() {
            self.take(MAGIC.len());
            (self.last, self.has_checksums) = (None, None);
            return Ok(Frame::Begin);
        }
        let Some(header) = Header::read(self.bytes()) else {
            return self.search("no header of an event");
        };
        if header.length as usize > MOST_EVENT_BYTES {
            return self.large(header);
        }
        let length = header.length as usize;
        if self.room_for(length)? < length {
            if self.is_inner || self.is_expected(&header) {
                return Ok(self.rest());
            }
            return self.search(TOO_LONG);
        }
        if let Err(reason) = self.check(&header)? {
            let follows = self.follows(&header)?;
            if !follows || self.is_inner {
                return self.search(reason);
            }
            let offset = self.offset;
            self.last = Some(header);
            self.take(length);
            return Ok(Frame::Damage { offset, bytes: length as u64, reason });
        }
        let sum_bytes = self.sum_bytes(&header);
        let (begin, offset) = (self.from, self.offset);
        self.take(length);
        self.last = Some(header);
        let body = &self.buffer[begin + HEADER_BYTES..begin + length - sum_bytes];
        Ok(Frame::Event(Event { header, offset, body, is_cut: false }))
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    fn take(&mut self, count: usize) {
        self.from += count;
        self.offset += count as u64;
    }

    /// Whether a log begins here: the magic, and behind it a description (or nothing, in a log without events).
    fn is_beginning(&self) -> bool {
        let bytes = self.bytes();
        bytes.starts_with(&MAGIC)
            && (self.offset == 0
                || Header::read(&bytes[MAGIC.len()..]).is_some_and(|header| header.is_description()))
    }

    /// Reads until so many bytes are there or the input ends; gives how many are. Room grows as bytes come: a length
    /// that is written somewhere allocates nothing.
    fn room_for(&mut self, count: usize) -> io::Result<usize> {
        while self.to - self.from < count && self.ended.is_none() {
            if self.to == self.buffer.len() {
                self.buffer.copy_within(self.from..self.to, 0);
                self.to -= self.from;
                self.from = 0;
                if self.to > self.buffer.len() / 2 || self.buffer.is_empty() {
                    self.buffer.resize((self.buffer.len() * 2).max(FIRST_BUFFER_BYTES), 0);
                }
            }
            match self.input.read(&mut self.buffer[self.to..]) {
                Ok(0) => self.ended = Some(None),
                Ok(read) => self.to += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_damage(&error) => self.ended = Some(Some(error.to_string())),
                Err(error) => return Err(error),
            }
        }
        Ok(self.to - self.from)
    }

    /// What is left where the input ends.
    fn rest(&mut self) -> Frame<'_> {
        let problem = self.ended.as_mut().and_then(Option::take);
        let (offset, bytes) = (self.offset, self.to - self.from);
        if bytes == MAGIC.len() && offset == 0 && self.bytes() == MAGIC {
            self.take(bytes);
            return Frame::Begin;
        }
        self.take(bytes);
        if bytes == 0 && problem.is_none() {
            return Frame::End;
        }
        Frame::Cut { offset, bytes: bytes as u64, problem }
    }

    /// Whether an event is where the last one said that the next would be.
    fn is_expected(&self, header: &Header) -> bool {
        match &self.last {
            Some(last) => last.is_before(header),
            None => header.end != 0 && u64::from(header.end) == self.offset + u64::from(header.length),
        }
    }

    /// Whether behind the event there is another one that says so, or the end of the input.
    fn follows(&mut self, header: &Header) -> io::Result<bool> {
        let length = header.length as usize;
        let there = self.room_for(length + HEADER_BYTES)?;
        if there <= length {
            return Ok(there == length);
        }
        let bytes = self.bytes();
        let next = bytes.get(length..).and_then(Header::read);
        Ok(next.is_some_and(|next| header.is_before(&next)) || bytes[length..].starts_with(&MAGIC))
    }

    /// Whether the whole event that is there is one; else why not.
    fn check(&mut self, header: &Header) -> io::Result<Result<(), &'static str>> {
        if self.is_inner {
            return Ok(Ok(()));
        }
        let length = header.length as usize;
        if header.kind == kinds::FORMAT_DESCRIPTION {
            return Ok(self.describe(header));
        }
        if self.has_checksums != Some(false) {
            if self.doubtful_bytes > DOUBT_BYTES.saturating_add(4 * self.offset) {
                return Ok(Err("its checksum was not looked at, because so many before are wrong"));
            }
            if self.has_sum(length) {
                // A piece without a description tells by its checksums that it has some.
                self.has_checksums = Some(true);
                return Ok(Ok(()));
            }
            self.doubtful_bytes += length as u64;
            if self.has_checksums == Some(true) {
                return Ok(Err("its checksum is wrong"));
            }
        }
        let is_event = self.last.as_ref().is_some_and(|last| last.is_before(header))
            || header.flags & ARTIFICIAL != 0
            || self.follows(header)?;
        if !is_event {
            return Ok(Err("an event that does not fit between its neighbours"));
        }
        if self.holds_beginning(length) && !self.follows(header)? {
            return Ok(Err("the log ends in the middle of an event, and another begins"));
        }
        if self.has_checksums.is_none() {
            self.has_checksums = Some(false);
        }
        Ok(Ok(()))
    }

    /// Whether another log begins in the event at hand: pieces of logs may have been joined, of which one was cut off.
    fn holds_beginning(&self, length: usize) -> bool {
        let event = &self.bytes()[..length];
        memchr::memmem::find_iter(event, &MAGIC).any(|at| {
            let header = Header::read(&event[at + MAGIC.len()..]);
            header.is_some_and(|header| header.is_description() && header.end == 4 + header.length)
        })
    }

    fn has_sum(&self, length: usize) -> bool {
        let Some((event, sum)) = self.bytes()[..length].split_last_chunk::<CHECKSUM_BYTES>() else {
            return false;
        };
        let mut crc = Crc::new();
        crc.update(event);
        event.len() >= HEADER_BYTES && crc.sum() == u32::from_le_bytes(*sum)
    }

    /// Takes from a description whether events have checksums, and checks its own.
    fn describe(&mut self, header: &Header) -> Result<(), &'static str> {
        let length = header.length as usize;
        let event = &self.buffer[self.from..self.from + length];
        if !header.is_description() {
            return Err("a description of the log that is too short or too long");
        }
        let is_old = !knows_checksums(&event[HEADER_BYTES + 2..HEADER_BYTES + 52]);
        match event[length - CHECKSUM_BYTES - 1] {
            0 | 255 => self.has_checksums = Some(false),
            // Servers without checksums never have this byte here: if the version is an old one, it is damaged.
            1 => {
                let sum = &event[length - CHECKSUM_BYTES..];
                let mut crc = Crc::new();
                crc.update(&event[..HEADER_BYTES - 2]);
                // The server sums up the log's beginning before it marks it as in use.
                crc.update(&[(header.flags & !IN_USE) as u8, (header.flags >> 8) as u8]);
                crc.update(&event[HEADER_BYTES..length - CHECKSUM_BYTES]);
                self.has_checksums = Some(true);
                if crc.sum().to_le_bytes() != sum {
                    return Err("the checksum of the log's description is wrong");
                }
            }
            _ if is_old => self.has_checksums = Some(false),
            _ => return Err("a description of the log with an unknown kind of checksum"),
        }
        Ok(())
    }

    /// Bytes at the end of an event that are not its own.
    fn sum_bytes(&self, header: &Header) -> usize {
        let has_sum =
            self.has_checksums == Some(true) && header.length as usize >= HEADER_BYTES + CHECKSUM_BYTES;
        if has_sum { CHECKSUM_BYTES } else { 0 }
    }

    /// An event that is not kept whole: its checksum is looked at as it passes.
    fn large(&mut self, header: Header) -> io::Result<Frame<'_>> {
        if !self.is_inner && !self.is_expected(&header) {
            return self.search("an event of more than 64 MiB that does not follow the one before");
        }
        let (offset, length) = (self.offset, header.length as usize);
        let mut kept = vec![0; 0];
        let mut crc = Crc::new();
        let (mut left, mut sum) = (length, Vec::new());
        while left > 0 {
            let there = self.room_for(left.min(FIRST_BUFFER_BYTES / 2))?.min(left);
            if there == 0 {
                let problem = self.ended.as_mut().and_then(Option::take);
                return Ok(Frame::Cut { offset, bytes: (length - left) as u64, problem });
            }
            let bytes = &self.buffer[self.from..self.from + there];
            kept.extend_from_slice(&bytes[..there.min(KEPT_OF_LARGE_BYTES.saturating_sub(kept.len()))]);
            let of_event = there.min(left.saturating_sub(CHECKSUM_BYTES));
            crc.update(&bytes[..of_event]);
            sum.extend_from_slice(&bytes[of_event..]);
            self.take(there);
            left -= there;
        }
        self.last = Some(header);
        if self.has_checksums == Some(true) && sum != crc.sum().to_le_bytes() {
            return Ok(Frame::Damage { offset, bytes: length as u64, reason: "its checksum is wrong" });
        }
        // What passed is behind `from`, or is overwritten: there is room for the beginning.
        self.keep(&kept);
        let body = &self.buffer[self.from - kept.len() + HEADER_BYTES..self.from];
        Ok(Frame::Event(Event { header, offset, body, is_cut: true }))
    }

    /// Puts bytes in front of what is not taken yet.
    fn keep(&mut self, kept: &[u8]) {
        if self.from < kept.len() {
            let there = self.to - self.from;
            self.buffer.resize(self.buffer.len().max(kept.len() + there), 0);
            self.buffer.copy_within(self.from..self.to, kept.len());
            (self.from, self.to) = (kept.len(), kept.len() + there);
        }
        self.buffer[self.from - kept.len()..self.from].copy_from_slice(kept);
    }

    /// Skips to the next place where an event is followed by one that says so.
    fn search(&mut self, reason: &'static str) -> io::Result<Frame<'_>> {
        let begin = self.offset;
        if self.is_inner {
            while self.room_for(1)? > 0 {
                self.take(self.to - self.from);
            }
            return Ok(Frame::Damage { offset: begin, bytes: self.offset - begin, reason });
        }
        self.take(1);
        loop {
            if self.room_for(MAGIC.len() + HEADER_BYTES)? < HEADER_BYTES {
                self.take(self.to - self.from);
                if reason == TOO_LONG {
                    let problem = self.ended.as_mut().and_then(Option::take);
                    return Ok(Frame::Cut { offset: begin, bytes: self.offset - begin, problem });
                }
                break;
            }
            if self.is_beginning() {
                break;
            }
            if let Some(header) = Header::read(self.bytes()) {
                // A length that is not true must not make the rest of the log wait in memory.
                let is_near = (header.length as usize) < FIRST_BUFFER_BYTES / 2 && header.end != 0;
                if is_near && self.follows(&header)? && self.to - self.from > header.length as usize {
                    break;
                }
                let is_next = self.last.as_ref().is_some_and(|last| last.is_before(&header));
                if is_near && is_next && self.room_for(header.length as usize)? == header.length as usize {
                    break;
                }
            }
            self.take(1);
        }
        Ok(Frame::Damage { offset: begin, bytes: self.offset - begin, reason })
    }
}

/// The body of an event of which nothing tells whether it ends in a checksum: it does if that is right.
#[must_use]
pub fn without_sum(event: &[u8]) -> &[u8] {
    let whole = &event[HEADER_BYTES.min(event.len())..];
    let Some((summed, sum)) = event.split_last_chunk::<CHECKSUM_BYTES>() else { return whole };
    let mut crc = Crc::new();
    crc.update(summed);
    let has_sum = summed.len() >= HEADER_BYTES && crc.sum() == u32::from_le_bytes(*sum);
    if has_sum { &summed[HEADER_BYTES..] } else { whole }
}

/// Whether a server of this version can write checksums: MySQL since 5.6.1, MariaDB since 5.3.
fn knows_checksums(version: &[u8]) -> bool {
    let text = String::from_utf8_lossy(version.split(|byte| *byte == 0).next().unwrap_or_default());
    let mut numbers =
        text.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0_u32));
    let version = [(); 3].map(|()| numbers.next().unwrap_or(0));
    if text.contains("MariaDB") { version >= [5, 3, 0] } else { version >= [5, 6, 1] }
}
