//! A server's reply to one request, packet by packet: the one state machine for all readers of replies.
//!
//! It gets payloads and counts rows; splitting bytes into packets is left to its callers, because they differ in
//! what they may skip: `answers` reads the driver's own connections and skips rows by their headers; the decoder of
//! captures reads other programs' connections, with gaps and in both dialects.
//!
//! Whether results end with EOF or, as in MySQL 5.7 and later, with an OK that has EOF's first byte is decided by
//! length: an EOF has 5 bytes and such an OK at least 7, so that sessions whose login was not captured are also
//! read.

use mysql_common::constants::CapabilityFlags;

use crate::Error;
use crate::frames::LARGEST_FRAME;
use crate::reader::Reader;

pub const OK: u8 = 0x00;
pub const LOCAL_FILE: u8 = 0xFB;
pub const END: u8 = 0xFE;
pub const ERROR: u8 = 0xFF;
pub const EOF_LENGTH: usize = 5;
pub const SHORTEST_OK: usize = 7;
/// MariaDB reports the progress of a long statement in errors of this number.
pub const PROGRESS: u16 = 0xFFFF;
const IN_TRANSACTION: u16 = 0x0001;
const MORE_RESULTS: u16 = 0x0008;
const CURSOR_EXISTS: u16 = 0x0040;
const SESSION_CHANGED: u16 = 0x4000;
const TRACK_SCHEMA: u8 = 1;
/// The servers' own limit is 4096.
const MOST_COLUMNS: u64 = 65_535;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// No request is pending.
    #[default]
    Idle,
    /// The first packet of a result.
    First,
    Columns {
        left: u64,
    },
    /// Rows follow, after an EOF or directly.
    ColumnsEnd,
    Rows,
    Prepared,
    /// Definitions of a prepared statement's parameters and columns, each list with an EOF or without.
    Definitions {
        left: u16,
        then: u16,
    },
    DefinitionsEnd {
        then: u16,
    },
    /// An EOF may come or not: it is not yet known which of the two this server does.
    MaybeEnd,
    /// Columns of a table, without their number.
    Fields,
    /// One packet of text.
    Text,
    Login,
}

/// What a packet means for the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    More,
    /// It was the definition of a result's column, and more follows.
    Column,
    /// The client sends a file now.
    File,
    Done,
}

/// A statement that the server has prepared.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    pub statement: u32,
    pub parameters: u16,
}

/// What both sides agreed on, as far as it was captured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dialect {
    pub flags: CapabilityFlags,
    pub deprecates_eof: Option<bool>,
    pub has_attributes: Option<bool>,
}

/// The state of a reply, and its content so far.
#[derive(Debug, Default)]
pub struct ReplyState {
    pub stage: Stage,
    /// Of all results.
    pub rows: u64,
    pub affected: Option<u64>,
    pub warnings: u16,
    pub error: Option<u16>,
    pub prepared: Option<Prepared>,
    /// The new default database.
    pub schema: Option<Vec<u8>>,
    /// The last status flags; they outlive the reply.
    status: u16,
}

impl ReplyState {
    pub fn expect(&mut self, stage: Stage) {
        *self = ReplyState { stage, status: self.status, ..ReplyState::default() };
    }

    /// Whether the last status said that a transaction is open.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.status & IN_TRANSACTION != 0
    }

    /// Whether the last status said that the rows wait in a cursor.
    #[must_use]
    pub fn has_cursor(&self) -> bool {
        self.status & CURSOR_EXISTS != 0
    }

    /// Whether a packet is a row, by its first byte and its length. A row with the first byte of an end is at least
    /// 16 MiB long: the length of its first value takes eight bytes.
    #[inline]
    #[must_use]
    pub fn is_row(&self, first: u8, length: usize) -> bool {
        matches!(self.stage, Stage::Rows | Stage::ColumnsEnd)
            && (first < END || (first == END && length == LARGEST_FRAME))
    }

    /// Counts a row.
    #[inline]
    pub fn row(&mut self, dialect: &mut Dialect) {
        if self.stage == Stage::ColumnsEnd {
            dialect.deprecates_eof.get_or_insert(true);
            self.stage = Stage::Rows;
        }
        self.rows += 1;
    }

    /// Takes a packet that is not a row (`is_row`). `payload` may be only its start, `length` is the whole.
    pub fn take(&mut self, payload: &[u8], length: usize, dialect: &mut Dialect) -> Result<Step, Error> {
        let first = *payload.first().ok_or(Error::Malformed("an empty packet"))?;
        if first == ERROR && self.stage != Stage::Text {
            return self.take_error(payload);
        }
        // MySQL 4.1 ends columns with the first byte alone.
        let is_eof = first == END && matches!(length, 1 | EOF_LENGTH);
        self.stage = match self.stage {
            Stage::Idle | Stage::MaybeEnd => return Err(Error::Malformed("an unexpected packet")),
            Stage::First => return self.take_first(first, payload, length, dialect),
            Stage::Columns { left } => {
                self.stage = if left == 1 { Stage::ColumnsEnd } else { Stage::Columns { left: left - 1 } };
                return Ok(Step::Column);
            }
            Stage::ColumnsEnd if is_eof => {
                dialect.deprecates_eof = Some(false);
                let status = self.take_eof(payload)?;
                if status & CURSOR_EXISTS != 0 {
                    return Ok(self.after_result(status));
                }
                Stage::Rows
            }
            Stage::ColumnsEnd | Stage::Rows | Stage::Fields if first == END => {
                dialect.deprecates_eof.get_or_insert(!is_eof);
                let status = if is_eof { self.take_eof(payload)? } else { self.take_ok(payload, dialect)?.1 };
                return Ok(self.after_result(status));
            }
            Stage::ColumnsEnd | Stage::Rows => return Err(Error::Malformed("a row")),
            Stage::Fields => Stage::Fields,
            Stage::Text => return Ok(Step::Done),
            Stage::Login if first == OK && length >= SHORTEST_OK => {
                self.take_ok(payload, dialect)?;
                return Ok(Step::Done);
            }
            // Another plugin, another factor, or what a plugin says: PAM's questions and SASL's texts begin as they like.
            Stage::Login => Stage::Login,
            Stage::Prepared => return self.take_prepared(payload, dialect),
            Stage::Definitions { left: 1, then } => return Ok(self.after_definitions(then, dialect)),
            Stage::Definitions { left, then } => Stage::Definitions { left: left - 1, then },
            Stage::DefinitionsEnd { then } if is_eof => {
                dialect.deprecates_eof = Some(false);
                return Ok(self.definitions(then, 0));
            }
            Stage::DefinitionsEnd { then } if dialect.deprecates_eof.is_none() && then > 0 => {
                dialect.deprecates_eof = Some(true);
                if then == 1 {
                    return Ok(Step::Done);
                }
                Stage::Definitions { left: then - 1, then: 0 }
            }
            Stage::DefinitionsEnd { .. } => return Err(Error::Malformed("the definitions do not end")),
        };
        Ok(Step::More)
    }

    fn take_error(&mut self, payload: &[u8]) -> Result<Step, Error> {
        let [_, low, high, ..] = *payload else { return Err(Error::Malformed("an error")) };
        let code = u16::from_le_bytes([low, high]);
        if code == PROGRESS {
            return Ok(Step::More);
        }
        self.error = Some(code);
        Ok(Step::Done)
    }

    fn take_first(
        &mut self,
        first: u8,
        payload: &[u8],
        length: usize,
        dialect: &Dialect,
    ) -> Result<Step, Error> {
        match first {
            OK if length >= SHORTEST_OK => {
                let (affected, status) = self.take_ok(payload, dialect)?;
                self.affected = Some(self.affected.unwrap_or(0).saturating_add(affected));
                return Ok(self.after_result(status));
            }
            // Commands that set something may be answered with the packet that ends rows.
            END => {
                let status = if length == EOF_LENGTH {
                    self.take_eof(payload)?
                } else {
                    self.take_ok(payload, dialect)?.1
                };
                return Ok(self.after_result(status));
            }
            LOCAL_FILE => return Ok(Step::File),
            _ => {}
        }
        let (left, has_definitions) = take_column_count(payload)?;
        self.stage = if has_definitions { Stage::Columns { left } } else { Stage::ColumnsEnd };
        Ok(Step::More)
    }

    fn after_result(&mut self, status: u16) -> Step {
        if status & MORE_RESULTS == 0 {
            return Step::Done;
        }
        self.stage = Stage::First;
        Step::More
    }

    fn take_eof(&mut self, payload: &[u8]) -> Result<u16, Error> {
        if payload.len() == 1 {
            self.status = 0;
            return Ok(0);
        }
        let mut reader = Reader { payload, at: 1 };
        let warnings = u16::from_le_bytes(reader.array()?);
        // The EOF behind the columns counts the same warnings as the one behind the rows.
        if self.stage != Stage::ColumnsEnd {
            self.warnings = self.warnings.saturating_add(warnings);
        }
        self.status = u16::from_le_bytes(reader.array()?);
        Ok(self.status)
    }

    /// Affected rows and status.
    fn take_ok(&mut self, payload: &[u8], dialect: &Dialect) -> Result<(u64, u16), Error> {
        let mut reader = Reader { payload, at: 1 };
        let affected = reader.length()?;
        reader.length()?;
        let status = u16::from_le_bytes(reader.array()?);
        self.status = status;
        self.warnings = self.warnings.saturating_add(u16::from_le_bytes(reader.array()?));
        if status & SESSION_CHANGED != 0 && dialect.flags.contains(CapabilityFlags::CLIENT_SESSION_TRACK) {
            // A truncated or malformed list does not invalidate what precedes it.
            if let Ok(Some(schema)) = tracked_schema(&mut reader) {
                self.schema = Some(schema.to_vec());
            }
        }
        Ok((affected, status))
    }

    fn take_prepared(&mut self, payload: &[u8], dialect: &Dialect) -> Result<Step, Error> {
        let mut reader = Reader { payload, at: 0 };
        if reader.array()? != [OK] {
            return Err(Error::Malformed("the answer to a prepare"));
        }
        let statement = u32::from_le_bytes(reader.array()?);
        let columns = u16::from_le_bytes(reader.array()?);
        let parameters = u16::from_le_bytes(reader.array()?);
        self.prepared = Some(Prepared { statement, parameters });
        // A filler, the warnings, and whether definitions follow, if the client can do without them.
        reader.at += 1;
        self.warnings = u16::from_le_bytes(reader.array().unwrap_or_default());
        let has_none = dialect.flags.contains(CapabilityFlags::CLIENT_OPTIONAL_RESULTSET_METADATA)
            && matches!(reader.array(), Ok([0]));
        Ok(if has_none { Step::Done } else { self.definitions(parameters, columns) })
    }

    fn definitions(&mut self, now: u16, then: u16) -> Step {
        self.stage = match (now, then) {
            (0, 0) => return Step::Done,
            (0, left) => Stage::Definitions { left, then: 0 },
            (left, then) => Stage::Definitions { left, then },
        };
        Step::More
    }

    fn after_definitions(&mut self, then: u16, dialect: &Dialect) -> Step {
        match dialect.deprecates_eof {
            Some(true) => return self.definitions(then, 0),
            None if then == 0 => self.stage = Stage::MaybeEnd,
            Some(false) | None => self.stage = Stage::DefinitionsEnd { then },
        }
        Step::More
    }
}

/// The number of columns, and whether their definitions follow: that flag byte may be on either side.
fn take_column_count(payload: &[u8]) -> Result<(u64, bool), Error> {
    let bad = Error::Malformed("the number of columns");
    let (flag, count) = match payload {
        [0, rest @ ..] => (0, rest),
        [1, rest @ ..] if rest.first().is_some_and(|count| *count > 1) => (1, rest),
        _ => (1, payload),
    };
    let mut reader = Reader { payload: count, at: 0 };
    let count = reader.length()?;
    let flag = match reader.rest() {
        [] => flag,
        [flag @ (0 | 1)] => *flag,
        _ => return Err(bad),
    };
    if (1..=MOST_COLUMNS).contains(&count) { Ok((count, flag == 1)) } else { Err(bad) }
}

/// The new default database from the session's state changes.
fn tracked_schema<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Error> {
    reader.text()?;
    let mut changes = Reader { payload: reader.text()?, at: 0 };
    let mut schema = None;
    while !changes.rest().is_empty() {
        let [kind] = changes.array()?;
        let mut change = Reader { payload: changes.text()?, at: 0 };
        if kind == TRACK_SCHEMA {
            schema = Some(change.text()?);
        }
    }
    Ok(schema)
}
