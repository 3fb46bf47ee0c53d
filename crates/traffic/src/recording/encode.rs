//! A block of events while it is written: each field in a column of its own, as the difference from what the same
//! statement had last time, so that what repeats costs next to nothing.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64;

use super::columns::{COLUMNS, CONNECTION, Column, join, measure_column, put_varint, zigzag};
use super::frame::MAX_BLOCK_BYTES;
use super::template::{NUMBER_HOLE, plain, split};
use crate::event::{Command, Event, Outcome};
use crate::measures::Measure;

/// A split may double the bytes of a statement of nothing but numbers; a longer one is kept as it is, so that it fits
/// into a block.
const MAX_SPLIT_BYTES: usize = MAX_BLOCK_BYTES / 4;

/// Bits of the column `Known`: which numbers an event has, and which of its parts are those of the last time.
pub mod known {
    pub const RESPONSE: u64 = 1;
    pub const FIRST_BYTE: u64 = 1 << 1;
    pub const STATEMENT: u64 = 1 << 2;
    pub const CHECKSUM: u64 = 1 << 3;
    pub const STATE: u64 = 1 << 4;
    pub const SAME_CHECKSUM: u64 = 1 << 5;
    pub const SAME_TYPES: u64 = 1 << 6;
    pub const CUT: u64 = 1 << 7;
    /// From here on a bit for each measure, in the order of their table.
    pub const FIRST_MEASURE: u32 = 8;
}

/// What the last event with the same text had: the prediction for the next. Encoder and decoder keep it alike.
#[derive(Clone)]
pub struct Last {
    pub known: u64,
    pub command: u64,
    pub outcome: u64,
    pub statement: u64,
    pub measures: [u64; Measure::ALL.len()],
    pub checksum: u64,
    pub parameter_count: u64,
    pub parameter_length: u64,
    /// Range of the parameters' null bitmap and types.
    pub types: (usize, usize),
    /// Bytes of text and parameters.
    pub length: u64,
}

impl Default for Last {
    fn default() -> Self {
        let mut measures = [0; Measure::ALL.len()];
        // A packet's header and the command's byte: what a statement's first request has besides its text.
        measures[Measure::RequestBytes as usize] = 5;
        Last {
            known: 0,
            command: 0,
            outcome: 0,
            statement: 0,
            measures,
            checksum: 0,
            parameter_count: 0,
            parameter_length: 0,
            types: (0, 0),
            length: 0,
        }
    }
}

impl Last {
    /// Moves the prediction of the request's bytes by what text and parameters are longer than the last time.
    pub fn expect_length(&mut self, length: u64) {
        let request_bytes = &mut self.measures[Measure::RequestBytes as usize];
        *request_bytes = request_bytes.wrapping_add(length).wrapping_sub(self.length);
        self.length = length;
    }
}

/// As it was when it had no name of its own here.
pub const BULK_EXECUTE: u64 = 256 + 0xfa;

pub fn command_code(command: Command) -> u64 {
    match command {
        Command::Connect => 0,
        Command::Quit => 1,
        Command::Query => 2,
        Command::Prepare => 3,
        Command::Execute => 4,
        Command::Fetch => 5,
        Command::Close => 6,
        Command::ResetStatement => 7,
        Command::InitDb => 8,
        Command::ChangeUser => 9,
        Command::ResetConnection => 10,
        Command::Ping => 11,
        Command::Rows => 12,
        Command::BulkExecute => BULK_EXECUTE,
        Command::Other(byte) => 256 + u64::from(byte),
    }
}

pub fn outcome_code(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Unknown => 0,
        Outcome::Ok => 1,
        Outcome::Unanswered => 2,
        Outcome::Error(code) => 3 + u64::from(code),
    }
}

/// How many bytes the null bitmap, the mark and the types of so many parameters take, if there are that many.
pub fn types_length(parameter_count: u64, length: u64) -> u64 {
    let types = parameter_count.div_ceil(8) + 1 + 2 * parameter_count;
    if parameter_count > 0 && types <= length { types } else { 0 }
}

/// The hash is the key.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are keys")
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Byte strings that were seen, found by their hash. The strings themselves are in a column.
#[derive(Default)]
struct Dictionary {
    indexes: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    ranges: Vec<(usize, usize)>,
}

impl Dictionary {
    /// The index of the string; `Err` with its new one where it was appended to `column`.
    fn find_or_add(&mut self, text: &[u8], column: &mut Vec<u8>) -> Result<usize, usize> {
        let hash = xxh3_64(text);
        if let Some(&index) = self.indexes.get(&hash) {
            let (start, end) = self.ranges[index];
            if &column[start..end] == text {
                return Ok(index);
            }
        }
        let index = self.ranges.len();
        self.indexes.insert(hash, index);
        self.ranges.push((column.len(), column.len() + text.len()));
        column.extend_from_slice(text);
        Err(index)
    }

    fn clear(&mut self) {
        self.indexes.clear();
        self.ranges.clear();
    }
}

/// Columns that grow until the block is full.
pub struct Encoder {
    columns: [Vec<u8>; COLUMNS],
    events: u32,
    bytes: usize,
    /// Text and parameters as a reader has to put them together again.
    unpacked_bytes: usize,
    splits: bool,
    span_ns: Option<(u64, u64)>,
    /// Session, with its connection, to its index; for each index who it is.
    sessions: HashMap<(u64, Option<u64>), usize>,
    session_names: Vec<usize>,
    last_session: u64,
    names: Dictionary,
    texts: Dictionary,
    last: Vec<Last>,
    scratch: Vec<u8>,
}

impl Encoder {
    /// `splits` where statements have literals: a fingerprint has none to split off.
    pub fn new(splits: bool) -> Self {
        Encoder {
            columns: [const { Vec::new() }; COLUMNS],
            events: 0,
            bytes: 0,
            unpacked_bytes: 0,
            splits,
            span_ns: None,
            sessions: HashMap::new(),
            session_names: Vec::new(),
            last_session: 0,
            names: Dictionary::default(),
            texts: Dictionary::default(),
            last: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Text and parameters of all events: a reader takes no block in which they are longer than its limit.
    pub fn unpacked_bytes(&self) -> usize {
        self.unpacked_bytes
    }

    pub fn events(&self) -> u32 {
        self.events
    }

    /// Bytes of the columns so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Start of the first and of the last event; zeros without any.
    pub fn span_ns(&self) -> (u64, u64) {
        self.span_ns.unwrap_or_default()
    }

    /// The block's payload; the encoder is empty again.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        join(&self.columns, out);
        for column in &mut self.columns {
            column.clear();
        }
        self.events = 0;
        self.bytes = 0;
        self.unpacked_bytes = 0;
        self.span_ns = None;
        self.sessions.clear();
        self.session_names.clear();
        self.last_session = 0;
        self.names.clear();
        self.texts.clear();
        self.last.clear();
    }

    /// Appends an event. Its start is not before that of the last one.
    pub fn push(&mut self, event: &Event<'_>) {
        let (first, previous) = self.span_ns.unwrap_or((event.start_ns, event.start_ns));
        debug_assert!(event.start_ns >= previous, "events of a block are in order");
        self.put(Column::Start, event.start_ns.wrapping_sub(previous));
        self.span_ns = Some((first, event.start_ns));
        self.put_session(event);
        let text = self.put_text(event);
        self.unpacked_bytes += event.text.len() + event.parameters.len();
        self.put_numbers(event, text);
        self.events += 1;
        self.bytes = self.columns.iter().map(Vec::len).sum();
    }

    fn put(&mut self, column: Column, value: u64) {
        put_varint(&mut self.columns[column as usize], value);
    }

    /// Code 0 is the next new session; who it is stands there when it is new or has changed.
    fn put_session(&mut self, event: &Event<'_>) {
        let mut entry = std::mem::take(&mut self.scratch);
        entry.clear();
        for name in [event.user, event.host, event.database] {
            put_varint(&mut entry, name.len() as u64);
            entry.extend_from_slice(name);
        }
        let names = self.names.find_or_add(&entry, &mut self.columns[Column::Names as usize]);
        self.scratch = entry;
        let index = if let Some(&index) = self.sessions.get(&(event.session, event.connection)) {
            self.put(Column::Session, index as u64 + 1);
            index
        } else {
            let index = self.session_names.len();
            self.sessions.insert((event.session, event.connection), index);
            // No index is this: the first event of a session always says who it is.
            self.session_names.push(usize::MAX);
            self.put(Column::Session, 0);
            self.put(Column::NewSession, zigzag(self.last_session, event.session));
            self.last_session = event.session;
            put_connection(&mut self.columns[CONNECTION], event);
            index
        };
        let code = match names {
            Ok(names) if self.session_names[index] == names => 0,
            Ok(names) => names as u64 + 2,
            Err(_) => 1,
        };
        self.put(Column::Who, code);
        let (Ok(names) | Err(names)) = names;
        self.session_names[index] = names;
    }

    fn put_text(&mut self, event: &Event<'_>) -> usize {
        let mut template = std::mem::take(&mut self.scratch);
        // A prepared statement's literals are in its parameters.
        if self.splits && event.command == Command::Query && event.text.len() <= MAX_SPLIT_BYTES {
            split(event.text, &mut template, |kind, hole| {
                let (length, bytes) = hole_columns(kind);
                put_varint(&mut self.columns[length as usize], hole.len() as u64);
                self.columns[bytes as usize].extend_from_slice(hole);
            });
        } else {
            plain(event.text, &mut template);
        }
        let found = self.texts.find_or_add(&template, &mut self.columns[Column::TextBytes as usize]);
        let length = template.len() as u64;
        self.scratch = template;
        match found {
            Ok(index) => {
                self.put(Column::Text, index as u64 + 1);
                index
            }
            Err(index) => {
                self.put(Column::Text, 0);
                self.put(Column::TextLength, length);
                self.last.push(Last::default());
                index
            }
        }
    }

    fn put_numbers(&mut self, event: &Event<'_>, text: usize) {
        let mut last = std::mem::take(&mut self.last[text]);
        let count = u64::from(event.parameter_count);
        let types = usize::try_from(types_length(count, event.parameters.len() as u64)).expect("a length");
        let (types, values) = event.parameters.split_at(types);
        let type_column = &mut self.columns[Column::ParameterTypes as usize];
        let has_same_types = &type_column[last.types.0..last.types.1] == types;
        if !has_same_types {
            last.types = (type_column.len(), type_column.len() + types.len());
            type_column.extend_from_slice(types);
        }
        self.columns[Column::ParameterValues as usize].extend_from_slice(values);

        let known = known_bits(event, &last, has_same_types);
        self.put(Column::Known, known ^ last.known);
        last.known = known;
        let command = command_code(event.command);
        self.put(Column::Command, command ^ last.command);
        last.command = command;
        let outcome = outcome_code(event.outcome);
        self.put(Column::Outcome, outcome ^ last.outcome);
        last.outcome = outcome;
        self.put(Column::ParameterCount, count ^ last.parameter_count);
        last.parameter_count = count;
        let length = event.parameters.len() as u64;
        self.put(Column::ParameterLength, zigzag(last.parameter_length, length));
        last.parameter_length = length;

        last.expect_length(event.text.len() as u64 + length);
        if let Some(response) = event.response_ns {
            self.put(Column::Response, response);
        }
        if let Some(first_byte) = event.first_byte_ns {
            self.put(Column::FirstByte, zigzag(first_byte, event.response_ns.unwrap_or(0)));
        }
        if let Some(statement) = event.statement.map(u64::from) {
            self.put(Column::Statement, zigzag(last.statement, statement));
            last.statement = statement;
        }
        for (measure, value) in event.measures.iter() {
            let last = &mut last.measures[measure as usize];
            put_varint(&mut self.columns[measure_column(measure as usize)], zigzag(*last, value));
            *last = value;
        }
        if let Some(checksum) = event.checksum {
            if known & known::SAME_CHECKSUM == 0 {
                self.columns[Column::Checksum as usize].extend_from_slice(&checksum.to_le_bytes());
            }
            last.checksum = checksum;
        }
        self.last[text] = last;
    }
}

/// 0 where it is not known; or 1 and how far it is from the session's number, which in logs is the same.
fn put_connection(column: &mut Vec<u8>, event: &Event<'_>) {
    put_varint(column, event.connection.is_some().into());
    if let Some(connection) = event.connection {
        put_varint(column, zigzag(event.session, connection));
    }
}

/// Where the lengths and the bytes of holes of a kind stand.
pub fn hole_columns(kind: u8) -> (Column, Column) {
    if kind == NUMBER_HOLE {
        (Column::NumberLength, Column::NumberBytes)
    } else {
        (Column::StringLength, Column::StringBytes)
    }
}

fn known_bits(event: &Event<'_>, last: &Last, has_same_types: bool) -> u64 {
    let bits = [
        (known::RESPONSE, event.response_ns.is_some()),
        (known::FIRST_BYTE, event.first_byte_ns.is_some()),
        (known::STATEMENT, event.statement.is_some()),
        (known::CHECKSUM, event.checksum.is_some()),
        (known::STATE, event.is_state),
        (known::CUT, event.is_cut),
        (known::SAME_CHECKSUM, event.checksum == Some(last.checksum)),
        (known::SAME_TYPES, has_same_types),
    ];
    let measures = u64::from(event.measures.known()) << known::FIRST_MEASURE;
    bits.into_iter().filter(|(_, is_set)| *is_set).fold(measures, |all, (bit, _)| all | bit)
}
