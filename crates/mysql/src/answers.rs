//! The server's side of the wire, read as it comes: packets are counted by their headers, and only what says how a
//! reply goes on, or what a script asked for, is looked at. A result of any size takes no memory here.

use crate::Error;
use crate::checksum::RowsChecksum;
use crate::fields::Rows;
use crate::reader::Reader;

const HEADER: usize = 4;
const LARGEST_FRAME: usize = 0xFF_FFFF;
const OK: u8 = 0x00;
const LOCAL_FILE: u8 = 0xFB;
const END: u8 = 0xFE;
const ERROR: u8 = 0xFF;
/// A row that begins as an end does is at least 16 MiB long: its first value's length takes eight bytes.
const LONGEST_END: usize = 8;
const IN_TRANSACTION: u16 = 0x0001;
const MORE_RESULTS: u16 = 0x0008;
/// What a connection keeps of its buffer between replies: thousands of them share the memory.
const KEPT_BUFFER: usize = 4096;

/// Reads the replies of one connection, one at a time.
#[derive(Default)]
pub struct Answers {
    stage: Stage,
    /// Bytes of a packet that is not whole yet, or was not when its last byte came.
    partial: Vec<u8>,
    /// Bytes that are still to come of a frame nobody looks at.
    skip: usize,
    /// The frame before was full: the next one goes on with the same row.
    continues: bool,
    sequence: u8,
    keeps_rows: bool,
    is_binary: bool,
    in_transaction: bool,
    /// Rows are looked at for their checksum.
    checks_rows: bool,
    checksum: Option<RowsChecksum>,
    error: Option<Error>,
    pub rows: Rows,
    pub row_count: u64,
    pub affected_rows: u64,
    /// Of all results; None where a server says nothing of them.
    pub warnings: Option<u16>,
    pub bytes: u64,
    pub statement_id: u32,
}

#[derive(Clone, Copy, Default)]
enum Stage {
    /// Nothing was asked: the server has nothing to say.
    #[default]
    Idle,
    /// The first packet of a result.
    First,
    Columns {
        left: u64,
    },
    ColumnsEnd,
    Rows,
    Prepared,
    /// What a prepared statement's parameters and columns are, each list with an end.
    Definitions {
        left: u16,
        then: u16,
    },
    DefinitionsEnd {
        then: u16,
    },
}

impl Answers {
    /// Before a request goes out. `is_binary`: it is the execution of a prepared statement.
    pub fn expect(&mut self, keeps_rows: bool, is_binary: bool) {
        self.stage = Stage::First;
        self.start();
        self.keeps_rows = keeps_rows;
        self.is_binary = is_binary;
        self.rows.clear();
    }

    /// Before a request goes out whose rows are counted, and summed up in a checksum if `checks_rows`.
    pub fn expect_checked(&mut self, checks_rows: bool) {
        self.expect(false, false);
        self.checks_rows = checks_rows;
        self.checksum = checks_rows.then(RowsChecksum::default);
    }

    /// The checksum of the reply's rows; None where a row was too long to be looked at.
    pub fn checksum(&self) -> Option<u64> {
        self.checksum.map(RowsChecksum::value)
    }

    /// Before a COM_STMT_PREPARE goes out.
    pub fn expect_prepared(&mut self) {
        self.stage = Stage::Prepared;
        self.start();
        self.keeps_rows = false;
    }

    fn start(&mut self) {
        self.sequence = 1;
        self.row_count = 0;
        self.affected_rows = 0;
        self.warnings = None;
        self.bytes = 0;
        self.checks_rows = false;
        self.checksum = None;
        self.error = None;
    }

    /// Whether the last status said that a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// The error that ended the reply.
    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Takes what came. True when the reply is whole; an error when this is no reply: the connection is lost then.
    pub fn feed(&mut self, input: &[u8]) -> Result<bool, Error> {
        self.bytes += input.len() as u64;
        let skipped = self.skip.min(input.len());
        self.skip -= skipped;
        let input = &input[skipped..];
        if self.partial.is_empty() {
            let used = self.read(input)?;
            self.partial.extend_from_slice(&input[used..]);
        } else {
            let mut bytes = std::mem::take(&mut self.partial);
            bytes.extend_from_slice(input);
            let used = self.read(&bytes)?;
            bytes.drain(..used);
            if bytes.is_empty() {
                bytes.shrink_to(KEPT_BUFFER);
            }
            self.partial = bytes;
        }
        let is_done = matches!(self.stage, Stage::Idle);
        if is_done && (!self.partial.is_empty() || self.skip > 0) {
            return Err(self.unasked());
        }
        Ok(is_done)
    }

    /// Reads whole packets; how many bytes they took.
    fn read(&mut self, input: &[u8]) -> Result<usize, Error> {
        let mut at = 0;
        while !matches!(self.stage, Stage::Idle) {
            let [a, b, c, sequence, ..] = input[at..] else { break };
            let length = u32::from_le_bytes([a, b, c, 0]) as usize;
            if sequence != self.sequence {
                return Err(Error::Malformed("a packet is out of order"));
            }
            let rest = &input[at + HEADER..];
            // A row is only counted; its first byte and its length tell it from an error and from the end.
            let is_counted = matches!(self.stage, Stage::Rows)
                && !(self.keeps_rows || (self.checks_rows && length < LARGEST_FRAME && !self.continues))
                && (self.continues || (length > LONGEST_END && rest.first().is_some_and(|b| *b != ERROR)));
            if is_counted {
                if !self.continues {
                    self.row_count += 1;
                }
                self.continues = length == LARGEST_FRAME;
                // The sum of the others would pass for that of all.
                self.checksum = None;
                let here = length.min(rest.len());
                self.skip = length - here;
                at += HEADER + here;
            } else {
                if rest.len() < length {
                    break;
                }
                if length == LARGEST_FRAME {
                    return Err(Error::Malformed("a row that is to be kept is larger than 16 MiB"));
                }
                self.take(&rest[..length])?;
                at += HEADER + length;
            }
            self.sequence = self.sequence.wrapping_add(1);
        }
        Ok(at)
    }

    /// One whole packet.
    fn take(&mut self, payload: &[u8]) -> Result<(), Error> {
        let first = *payload.first().ok_or(Error::Malformed("an empty packet"))?;
        if first == ERROR {
            match Error::from_packet(payload) {
                malformed @ Error::Malformed(_) => return Err(malformed),
                error => self.error = Some(error),
            }
            self.stage = Stage::Idle;
            return Ok(());
        }
        let is_end = first == END && payload.len() <= LONGEST_END;
        self.stage = match self.stage {
            Stage::Idle => return Err(self.unasked()),
            Stage::First => return self.take_first(first, payload),
            Stage::Columns { left } => {
                if self.keeps_rows {
                    self.rows.add_column(payload)?;
                }
                if left == 1 { Stage::ColumnsEnd } else { Stage::Columns { left: left - 1 } }
            }
            Stage::ColumnsEnd if is_end => Stage::Rows,
            Stage::Rows if is_end => {
                self.add_warnings(u16::from_le_bytes(Reader { payload, at: 1 }.array()?));
                // Only the first result is kept; there is no second but after CALL.
                self.keeps_rows = false;
                let mut reader = Reader { payload, at: 3 };
                self.take_status(u16::from_le_bytes(reader.array()?))
            }
            Stage::Rows => {
                self.row_count += 1;
                if let Some(checksum) = &mut self.checksum {
                    checksum.add(payload);
                }
                match (self.keeps_rows, self.is_binary) {
                    (true, true) => self.rows.add_binary_row(payload)?,
                    (true, false) => self.rows.add_text_row(payload)?,
                    (false, _) => {}
                }
                Stage::Rows
            }
            Stage::Prepared => self.take_prepared(payload)?,
            Stage::Definitions { left: 1, then } => Stage::DefinitionsEnd { then },
            Stage::Definitions { left, then } => Stage::Definitions { left: left - 1, then },
            Stage::DefinitionsEnd { then } if is_end => definitions(then, 0),
            Stage::ColumnsEnd | Stage::DefinitionsEnd { .. } => {
                return Err(Error::Malformed("the columns do not end"));
            }
        };
        Ok(())
    }

    fn take_first(&mut self, first: u8, payload: &[u8]) -> Result<(), Error> {
        let mut reader = Reader { payload, at: 0 };
        self.stage = match first {
            OK => {
                reader.at = 1;
                self.affected_rows += reader.length()?;
                reader.length()?;
                let status = u16::from_le_bytes(reader.array()?);
                if let Ok(warnings) = reader.array() {
                    self.add_warnings(u16::from_le_bytes(warnings));
                }
                self.take_status(status)
            }
            LOCAL_FILE => return Err(Error::Malformed("a request for a file of ours")),
            _ => {
                let count = reader.length()?;
                // MySQL's own limit is 4096.
                if reader.at != payload.len() || count > 4096 {
                    return Err(Error::Malformed("the number of columns"));
                }
                Stage::Columns { left: count }
            }
        };
        Ok(())
    }

    fn take_status(&mut self, status: u16) -> Stage {
        self.in_transaction = status & IN_TRANSACTION != 0;
        if status & MORE_RESULTS != 0 { Stage::First } else { Stage::Idle }
    }

    fn add_warnings(&mut self, count: u16) {
        self.warnings = Some(self.warnings.unwrap_or(0).saturating_add(count));
    }

    fn take_prepared(&mut self, payload: &[u8]) -> Result<Stage, Error> {
        let mut reader = Reader { payload, at: 0 };
        if reader.array()? != [OK] {
            return Err(Error::Malformed("the reply to a prepare"));
        }
        self.statement_id = u32::from_le_bytes(reader.array()?);
        let columns = u16::from_le_bytes(reader.array()?);
        let parameters = u16::from_le_bytes(reader.array()?);
        Ok(definitions(parameters, columns))
    }

    /// Something came that nobody asked for. A server that shuts us out says why before it closes.
    fn unasked(&self) -> Error {
        match self.partial.get(HEADER..) {
            Some(payload) if payload.first() == Some(&ERROR) => Error::from_packet(payload),
            _ => Error::Malformed("a packet that nobody asked for"),
        }
    }
}

fn definitions(now: u16, then: u16) -> Stage {
    match (now, then) {
        (0, 0) => Stage::Idle,
        (0, left) => Stage::Definitions { left, then: 0 },
        (left, then) => Stage::Definitions { left, then },
    }
}

#[cfg(test)]
mod tests {
    use super::{Answers, IN_TRANSACTION, MORE_RESULTS};
    use crate::Error;
    use crate::fields::Cell;
    use crate::frames::encode;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    const COLUMN: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x2d\0\0\x01\0\0\xfd\0\0\0\0\0";
    const END: &[u8] = &[0xFE, 0, 0, 2, 0];

    fn ok(affected: u8, status: u16) -> Vec<u8> {
        let [low, high] = status.to_le_bytes();
        vec![0, affected, 0, low, high, 0, 0]
    }

    fn wire(payloads: &[&[u8]]) -> Vec<u8> {
        let (mut bytes, mut sequence) = (Vec::new(), 1);
        for payload in payloads {
            encode(payload, &mut sequence, &mut bytes);
        }
        bytes
    }

    /// Feeds the bytes in pieces; true when the last one ended the reply, and none before it did.
    fn feed(answers: &mut Answers, bytes: &[u8], step: usize) -> Result<bool, Error> {
        let mut pieces = bytes.chunks(step).peekable();
        while let Some(piece) = pieces.next() {
            let is_done = answers.feed(piece)?;
            if pieces.peek().is_none() {
                return Ok(is_done);
            }
            assert!(!is_done, "done before its end");
        }
        Ok(false)
    }

    #[test]
    fn replies_of_every_kind_in_pieces_of_every_size() {
        let long = vec![b'x'; 300];
        let error = b"\xff\xbd\x04#40001Deadlock found";
        let cases: [(Vec<u8>, u64, u64); 5] = [
            (wire(&[&ok(3, 2)]), 0, 3),
            (wire(&[&[1], COLUMN, END, b"\x02ab", &[&[0xFC, 0x2C, 1], &long[..]].concat(), END]), 2, 0),
            (wire(&[&[2], COLUMN, COLUMN, END, END]), 0, 0),
            (wire(&[&[1], COLUMN, END, b"\x01y", error]), 1, 0),
            // CALL: a result, another, and the end of the procedure.
            (
                wire(&[&[1], COLUMN, END, b"\x01y", &[0xFE, 0, 0, 8, 0], &ok(1, MORE_RESULTS), &ok(2, 0)]),
                1,
                3,
            ),
        ];
        for (bytes, rows, affected) in &cases {
            for step in 1..=bytes.len() {
                let mut answers = Answers::default();
                answers.expect(false, false);
                assert!(feed(&mut answers, bytes, step).unwrap(), "{bytes:?} in {step}");
                assert_eq!((answers.row_count, answers.affected_rows), (*rows, *affected));
                assert_eq!(answers.bytes, bytes.len() as u64);
            }
        }
    }

    #[test]
    fn an_error_is_kept_and_ends_the_reply() {
        let mut answers = Answers::default();
        answers.expect(false, false);
        assert!(answers.feed(&wire(&[b"\xff\xbd\x04#40001Deadlock found"])).unwrap());
        assert_eq!(answers.take_error().unwrap().code(), Some(1213));
        assert!(answers.take_error().is_none());
    }

    #[test]
    fn an_error_that_is_cut_short_loses_the_connection() {
        let mut answers = Answers::default();
        answers.expect(false, false);
        assert!(matches!(answers.feed(&wire(&[b"\xff\xbd"])), Err(Error::Malformed(_))));
    }

    #[test]
    fn rows_are_kept_when_asked() {
        let mut answers = Answers::default();
        answers.expect(true, true);
        let bytes = wire(&[&[1], COLUMN, END, b"\0\0\x02ab", b"\0\x04", END]);
        assert!(feed(&mut answers, &bytes, 3).unwrap());
        assert_eq!(answers.rows.count(), 2);
        assert_eq!(answers.rows.cell(0, 0), Some(Cell::Bytes(b"ab")));
        assert_eq!(answers.rows.cell(1, 0), Some(Cell::Null));
    }

    #[test]
    fn a_row_of_20_mib_is_counted_and_takes_no_memory() {
        // Its length begins with 0xFE, as the packet does that ends the rows.
        let mut row = vec![0xFE];
        row.extend_from_slice(&(20_u64 << 20).to_le_bytes());
        row.resize(9 + (20 << 20), b'x');
        let bytes = wire(&[&[1], COLUMN, END, &row, b"\x01y", END]);
        let mut answers = Answers::default();
        answers.expect(false, false);
        assert!(feed(&mut answers, &bytes, 60_000).unwrap());
        assert_eq!(answers.row_count, 2);
        assert!(answers.partial.capacity() < 100);
    }

    #[test]
    fn prepared_statements_have_ids() {
        let definition = |columns: u8, parameters: u8| [0, 9, 0, 0, 0, columns, 0, parameters, 0, 0, 0, 0];
        let cases: [Vec<u8>; 3] = [
            wire(&[&definition(0, 0)]),
            wire(&[&definition(0, 2), COLUMN, COLUMN, END]),
            wire(&[&definition(1, 1), COLUMN, END, COLUMN, END]),
        ];
        for bytes in &cases {
            for step in 1..=bytes.len() {
                let mut answers = Answers::default();
                answers.expect_prepared();
                assert!(feed(&mut answers, bytes, step).unwrap());
                assert_eq!(answers.statement_id, 9);
            }
        }
    }

    #[test]
    fn the_status_says_whether_a_transaction_is_open() {
        let mut answers = Answers::default();
        answers.expect(false, false);
        answers.feed(&wire(&[&ok(0, IN_TRANSACTION)])).unwrap();
        assert!(answers.in_transaction());
        answers.expect(false, false);
        answers.feed(&wire(&[&ok(0, 2)])).unwrap();
        assert!(!answers.in_transaction());
    }

    #[test]
    fn what_nobody_asked_for_loses_the_connection() {
        let mut answers = Answers::default();
        let goodbye = b"\x25\0\0\0\xff\xbf\x0f#HY000The client was disconnected";
        let error = answers.feed(goodbye).unwrap_err();
        assert_eq!(error.code(), Some(4031));
        let mut answers = Answers::default();
        answers.expect(false, false);
        let error = answers.feed(&wire(&[&ok(0, 0), &ok(0, 0)])).unwrap_err();
        assert!(matches!(error, Error::Malformed(_)));
    }

    proptest! {
        #[test]
        fn no_bytes_can_break_it(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            step in 1..50_usize,
            keeps_rows in any::<bool>(),
            is_binary in any::<bool>(),
            is_prepare in any::<bool>(),
        ) {
            let mut answers = Answers::default();
            if is_prepare { answers.expect_prepared() } else { answers.expect(keeps_rows, is_binary) }
            for piece in bytes.chunks(step) {
                if !matches!(answers.feed(piece), Ok(false)) { break }
            }
        }

        /// With right headers random payloads get further.
        #[test]
        fn no_payloads_can_break_it(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10),
            start in 0..3_usize,
            step in 1..50_usize,
            keeps_rows in any::<bool>(),
            is_binary in any::<bool>(),
        ) {
            let mut all: Vec<&[u8]> = [&[][..], &[&[1_u8][..], COLUMN, END], &[&[2], COLUMN, COLUMN, END]][start].to_vec();
            all.extend(payloads.iter().map(Vec::as_slice));
            let mut answers = Answers::default();
            answers.expect(keeps_rows, is_binary);
            for piece in wire(&all).chunks(step) {
                if !matches!(answers.feed(piece), Ok(false)) { break }
            }
        }

        #[test]
        fn the_size_of_the_pieces_makes_no_difference(
            rows in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..250), 0..20),
            step in 1..100_usize,
        ) {
            let rows: Vec<Vec<u8>> = rows.iter().map(|row| [&[row.len() as u8], &row[..]].concat()).collect();
            let mut payloads: Vec<&[u8]> = vec![&[1], COLUMN, END];
            payloads.extend(rows.iter().map(Vec::as_slice));
            payloads.push(END);
            for keeps_rows in [false, true] {
                let mut answers = Answers::default();
                answers.expect(keeps_rows, false);
                prop_assert!(feed(&mut answers, &wire(&payloads), step).unwrap());
                prop_assert_eq!(answers.row_count, rows.len() as u64);
                prop_assert_eq!(answers.rows.count(), if keeps_rows { rows.len() } else { 0 });
            }
        }
    }
}
