//! A block of events while it is read: cursors walk the columns side by side, and an event borrows from the block.

use super::columns::{COLUMNS, CONNECTION, Column, Cursor, Malformed, measure_column, split, unzigzag};
use super::encode::{BULK_EXECUTE, Last, hole_columns, known, types_length};
use super::frame::{Header, MAX_UNPACKED_BYTES};
use super::template::{NUMBER_HOLE, PLAIN, STRING_HOLE, TEMPLATE};
use crate::event::{Command, Event, Outcome};
use crate::measures::Measure;

type Range = (usize, usize);

/// A session of the block: its number, that of its connection, the index of its names.
#[derive(Clone, Copy)]
struct Session {
    number: u64,
    connection: Option<u64>,
    names: usize,
}

/// One decompressed block and how far it was read.
pub struct Block {
    raw: Vec<u8>,
    cursors: [Cursor; COLUMNS],
    /// Events that were not read yet, the one whose start is known among them.
    left: u32,
    next_start_ns: u64,
    sessions: Vec<Session>,
    last_session: u64,
    names: Vec<[Range; 3]>,
    texts: Vec<Range>,
    last: Vec<Last>,
    /// Text and parameters of the current event, where they are put together from parts; and of all events so far.
    text: Vec<u8>,
    parameters: Vec<u8>,
    unpacked_bytes: usize,
    /// The event that was read last, without what it borrows: that is at these indexes.
    current: Event<'static>,
    current_names: usize,
    current_text: Option<Range>,
}

impl Block {
    /// `raw` is the payload that belongs to `header`, decompressed.
    pub fn new(header: &Header, raw: Vec<u8>) -> Result<Self, (Malformed, Vec<u8>)> {
        let cursors = match split(&raw) {
            Ok(cursors) => cursors,
            Err(malformed) => return Err((malformed, raw)),
        };
        let mut block = Block {
            raw,
            cursors,
            left: header.events,
            next_start_ns: header.first_ns,
            sessions: Vec::new(),
            last_session: 0,
            names: Vec::new(),
            texts: Vec::new(),
            last: Vec::new(),
            text: Vec::new(),
            parameters: Vec::new(),
            unpacked_bytes: 0,
            current: Event::new(0, 0, Command::Ping),
            current_names: 0,
            current_text: None,
        };
        match block.advance_start() {
            Ok(()) => Ok(block),
            Err(malformed) => Err((malformed, block.raw)),
        }
    }

    /// The buffer, to be used for another block.
    pub fn into_raw(self) -> Vec<u8> {
        self.raw
    }

    /// When the next event starts; None at the end.
    pub fn next_start_ns(&self) -> Option<u64> {
        (self.left > 0).then_some(self.next_start_ns)
    }

    /// Events that are still to come.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Reads the next event, which `event` then gives; false at the end.
    pub fn advance(&mut self) -> Result<bool, Malformed> {
        if self.left == 0 {
            return Ok(false);
        }
        let start_ns = self.next_start_ns;
        let session = self.read_session()?;
        let text = self.read_text()?;
        self.current_text = self.unpack_text(text)?;
        let mut event = Event::new(start_ns, session.number, Command::Ping);
        event.connection = session.connection;
        self.read_numbers(text, &mut event)?;
        self.left -= 1;
        self.advance_start()?;
        self.current = event;
        self.current_names = session.names;
        Ok(true)
    }

    /// The event that `advance` has read. Not to be called before that.
    pub fn event(&self) -> Event<'_> {
        let slice = |(start, end): Range| &self.raw[start..end];
        let [user, host, database] = self.names[self.current_names];
        Event {
            user: slice(user),
            host: slice(host),
            database: slice(database),
            text: self.current_text.map_or(&self.text[..], slice),
            parameters: &self.parameters,
            ..self.current
        }
    }

    fn advance_start(&mut self) -> Result<(), Malformed> {
        if self.left > 0 {
            let delta = self.varint(Column::Start)?;
            self.next_start_ns = self.next_start_ns.checked_add(delta).ok_or(Malformed)?;
        }
        Ok(())
    }

    fn varint(&mut self, column: Column) -> Result<u64, Malformed> {
        self.cursors[column as usize].varint(&self.raw)
    }

    fn bytes(&mut self, column: Column, length: u64) -> Result<Range, Malformed> {
        self.cursors[column as usize].bytes(length)
    }

    fn read_session(&mut self) -> Result<Session, Malformed> {
        let code = self.varint(Column::Session)?;
        let index = if code == 0 {
            let coded = self.varint(Column::NewSession)?;
            self.last_session = unzigzag(self.last_session, coded);
            let connection = self.read_connection()?;
            self.sessions.push(Session { number: self.last_session, connection, names: usize::MAX });
            self.sessions.len() - 1
        } else {
            usize::try_from(code - 1).map_err(|_| Malformed)?
        };
        match self.varint(Column::Who)? {
            0 => {}
            1 => {
                let mut ranges = [(0, 0); 3];
                for range in &mut ranges {
                    let length = self.varint(Column::Names)?;
                    *range = self.bytes(Column::Names, length)?;
                }
                self.names.push(ranges);
                self.sessions.get_mut(index).ok_or(Malformed)?.names = self.names.len() - 1;
            }
            code => {
                let names = usize::try_from(code - 2).map_err(|_| Malformed)?;
                self.sessions.get_mut(index).ok_or(Malformed)?.names = names;
            }
        }
        let session = *self.sessions.get(index).ok_or(Malformed)?;
        if session.names < self.names.len() { Ok(session) } else { Err(Malformed) }
    }

    /// Of the session that is new. Earlier versions did not write any.
    fn read_connection(&mut self) -> Result<Option<u64>, Malformed> {
        if self.cursors[CONNECTION].is_at_end() {
            return Ok(None);
        }
        match self.cursors[CONNECTION].varint(&self.raw)? {
            0 => Ok(None),
            1 => Ok(Some(unzigzag(self.last_session, self.cursors[CONNECTION].varint(&self.raw)?))),
            _ => Err(Malformed),
        }
    }

    fn read_text(&mut self) -> Result<usize, Malformed> {
        let code = self.varint(Column::Text)?;
        if code == 0 {
            let length = self.varint(Column::TextLength)?;
            let range = self.bytes(Column::TextBytes, length)?;
            if range.0 == range.1 {
                return Err(Malformed);
            }
            self.texts.push(range);
            self.last.push(Last::default());
            return Ok(self.texts.len() - 1);
        }
        let index = usize::try_from(code - 1).map_err(|_| Malformed)?;
        if index < self.texts.len() { Ok(index) } else { Err(Malformed) }
    }

    /// Where the text is in the block, or None where it was put together.
    fn unpack_text(&mut self, text: usize) -> Result<Option<Range>, Malformed> {
        let (start, end) = self.texts[text];
        match self.raw[start] {
            PLAIN => return Ok(Some((start + 1, end))),
            TEMPLATE => {}
            _ => return Err(Malformed),
        }
        self.text.clear();
        let mut at = start + 1;
        while let Some(found) = memchr::memchr2(NUMBER_HOLE, STRING_HOLE, &self.raw[at..end]) {
            self.text.extend_from_slice(&self.raw[at..at + found]);
            let (length, bytes) = hole_columns(self.raw[at + found]);
            let length = self.cursors[length as usize].varint(&self.raw)?;
            let (hole_start, hole_end) = self.cursors[bytes as usize].bytes(length)?;
            self.text.extend_from_slice(&self.raw[hole_start..hole_end]);
            at += found + 1;
        }
        self.text.extend_from_slice(&self.raw[at..end]);
        Ok(None)
    }

    fn read_numbers(&mut self, text: usize, event: &mut Event<'static>) -> Result<(), Malformed> {
        let mut last = std::mem::take(&mut self.last[text]);
        let known = last.known ^ self.varint(Column::Known)?;
        last.known = known;
        last.command ^= self.varint(Column::Command)?;
        last.outcome ^= self.varint(Column::Outcome)?;
        last.parameter_count ^= self.varint(Column::ParameterCount)?;
        let coded = self.varint(Column::ParameterLength)?;
        last.parameter_length = unzigzag(last.parameter_length, coded);
        event.command = command(last.command)?;
        event.outcome = outcome(last.outcome)?;
        event.parameter_count = u16::try_from(last.parameter_count).map_err(|_| Malformed)?;
        event.is_state = known & known::STATE != 0;
        event.is_cut = known & known::CUT != 0;
        self.read_parameters(&mut last)?;
        let text_bytes = self.current_text.map_or(self.text.len(), |(start, end)| end - start);
        last.expect_length(text_bytes as u64 + self.parameters.len() as u64);
        // Parts can be used again and again: a small block must not make endless work.
        self.unpacked_bytes += text_bytes + self.parameters.len();
        if self.unpacked_bytes > MAX_UNPACKED_BYTES {
            return Err(Malformed);
        }

        if known & known::RESPONSE != 0 {
            event.response_ns = Some(self.varint(Column::Response)?);
        }
        if known & known::FIRST_BYTE != 0 {
            let coded = self.varint(Column::FirstByte)?;
            // Coded from the first byte to the whole response: the other way round is the same with the sign changed.
            event.first_byte_ns = Some(event.response_ns.unwrap_or(0).wrapping_sub(unzigzag(0, coded)));
        }
        if known & known::STATEMENT != 0 {
            last.statement = unzigzag(last.statement, self.varint(Column::Statement)?);
            event.statement = Some(u32::try_from(last.statement).map_err(|_| Malformed)?);
        }
        // Those of a later version, behind ours, are not read.
        for measure in Measure::ALL {
            let place = measure as usize;
            if known >> known::FIRST_MEASURE & (1 << place) != 0 {
                let coded = self.cursors[measure_column(place)].varint(&self.raw)?;
                last.measures[place] = unzigzag(last.measures[place], coded);
                event.measures.set(measure, last.measures[place]);
            }
        }
        if known & known::CHECKSUM != 0 {
            if known & known::SAME_CHECKSUM == 0 {
                let (start, end) = self.bytes(Column::Checksum, 8)?;
                last.checksum = u64::from_le_bytes(self.raw[start..end].try_into().expect("8 bytes"));
            }
            event.checksum = Some(last.checksum);
        }
        self.last[text] = last;
        Ok(())
    }

    fn read_parameters(&mut self, last: &mut Last) -> Result<(), Malformed> {
        let types = types_length(last.parameter_count, last.parameter_length);
        if last.known & known::SAME_TYPES == 0 {
            last.types = self.bytes(Column::ParameterTypes, types)?;
        } else if (last.types.1 - last.types.0) as u64 != types {
            return Err(Malformed);
        }
        let (start, end) = self.bytes(Column::ParameterValues, last.parameter_length - types)?;
        self.parameters.clear();
        self.parameters.extend_from_slice(&self.raw[last.types.0..last.types.1]);
        self.parameters.extend_from_slice(&self.raw[start..end]);
        Ok(())
    }
}

fn command(code: u64) -> Result<Command, Malformed> {
    Ok(match code {
        0 => Command::Connect,
        1 => Command::Quit,
        2 => Command::Query,
        3 => Command::Prepare,
        4 => Command::Execute,
        5 => Command::Fetch,
        6 => Command::Close,
        7 => Command::ResetStatement,
        8 => Command::InitDb,
        9 => Command::ChangeUser,
        10 => Command::ResetConnection,
        11 => Command::Ping,
        12 => Command::Rows,
        BULK_EXECUTE => Command::BulkExecute,
        code => {
            Command::Other(code.checked_sub(256).and_then(|byte| u8::try_from(byte).ok()).ok_or(Malformed)?)
        }
    })
}

fn outcome(code: u64) -> Result<Outcome, Malformed> {
    Ok(match code {
        0 => Outcome::Unknown,
        1 => Outcome::Ok,
        2 => Outcome::Unanswered,
        code => Outcome::Error(u16::try_from(code - 3).map_err(|_| Malformed)?),
    })
}
