//! Reads the server's side of the driver's connections as it arrives: packets are counted by their headers, and
//! only those that decide how a reply continues (`reply`), or that a script asked for, are decoded. Results of any
//! size need no memory.

use crate::Error;
use crate::checksum::RowsChecksum;
use crate::fields::Rows;
use crate::frames::{HEADER, LARGEST_FRAME};
use crate::reader::Reader;
use crate::reply::{
    Dialect, END, EOF_LENGTH, ERROR, LOCAL_FILE, OK, PROGRESS, ReplyState, SHORTEST_OK, Stage, Step,
};

/// The servers' own limit.
const MOST_COLUMNS: u64 = 4096;
/// How much of its buffer a connection keeps between replies: thousands of them share the memory.
const KEPT_BUFFER: usize = 4096;

/// Reads the replies of one connection, one at a time.
pub struct Answers {
    reply: ReplyState,
    dialect: Dialect,
    /// Bytes of a packet that arrived in pieces.
    partial: Vec<u8>,
    /// Missing bytes of a frame that is skipped.
    skip: usize,
    /// The last frame was full: the next one continues the same row.
    continues: bool,
    sequence: u8,
    keeps_rows: bool,
    is_binary: bool,
    /// Rows are read for their checksum.
    checks_rows: bool,
    checksum: Option<RowsChecksum>,
    error: Option<Error>,
    pub rows: Rows,
    pub bytes: u64,
}

impl Default for Answers {
    fn default() -> Self {
        Answers {
            reply: ReplyState::default(),
            // Our logins never ask for the other (`protocol::capabilities`).
            dialect: Dialect { deprecates_eof: Some(false), ..Dialect::default() },
            partial: Vec::new(),
            skip: 0,
            continues: false,
            sequence: 0,
            keeps_rows: false,
            is_binary: false,
            checks_rows: false,
            checksum: None,
            error: None,
            rows: Rows::default(),
            bytes: 0,
        }
    }
}

impl Answers {
    /// Call before sending a request. `is_binary`: it executes a prepared statement.
    pub fn expect(&mut self, keeps_rows: bool, is_binary: bool) {
        self.start(Stage::First);
        self.keeps_rows = keeps_rows;
        self.is_binary = is_binary;
        self.rows.clear();
    }

    /// Call before sending a request whose rows are counted, and added to a checksum if `checks_rows`.
    pub fn expect_checked(&mut self, checks_rows: bool) {
        self.expect(false, false);
        self.checks_rows = checks_rows;
        self.checksum = checks_rows.then(RowsChecksum::default);
    }

    /// The checksum of the reply's rows; None if a row was too long to be read.
    pub fn checksum(&self) -> Option<u64> {
        self.checksum.map(RowsChecksum::value)
    }

    /// The number of the answer's first packet, if the request took more than one (`request::write_command`).
    pub fn begin_at(&mut self, number: u8) {
        self.sequence = number;
    }

    /// Call before sending a COM_STMT_PREPARE.
    pub fn expect_prepared(&mut self) {
        self.start(Stage::Prepared);
        self.keeps_rows = false;
    }

    fn start(&mut self, stage: Stage) {
        self.reply.expect(stage);
        self.sequence = 1;
        self.bytes = 0;
        self.checks_rows = false;
        self.checksum = None;
        self.error = None;
    }

    /// Rows of all results.
    pub fn row_count(&self) -> u64 {
        self.reply.rows
    }

    pub fn affected_rows(&self) -> u64 {
        self.reply.affected.unwrap_or(0)
    }

    /// Of all results; None if the reply ended in an error.
    pub fn warnings(&self) -> Option<u16> {
        self.reply.error.is_none().then_some(self.reply.warnings)
    }

    /// The number of the prepared statement; 0 if there is none.
    pub fn statement_id(&self) -> u32 {
        self.reply.prepared.map_or(0, |prepared| prepared.statement)
    }

    /// Whether the last status said that a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.reply.in_transaction()
    }

    /// The error that ended the reply.
    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Takes received bytes. True when the reply is complete; an error if this is not a reply: then the connection
    /// is lost.
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
        let is_done = self.reply.stage == Stage::Idle;
        if is_done && (!self.partial.is_empty() || self.skip > 0) {
            return Err(self.unasked());
        }
        Ok(is_done)
    }

    /// Reads whole packets; how many bytes they took.
    fn read(&mut self, input: &[u8]) -> Result<usize, Error> {
        let mut at = 0;
        while self.reply.stage != Stage::Idle {
            let [a, b, c, sequence, ..] = input[at..] else { break };
            let length = u32::from_le_bytes([a, b, c, 0]) as usize;
            if sequence != self.sequence {
                return Err(Error::Malformed("a packet is out of order"));
            }
            let rest = &input[at + HEADER..];
            let first = rest.first().filter(|_| length > 0);
            // Our servers end the columns: the packet in that place is not a row.
            let is_row = self.continues
                || (self.reply.stage == Stage::Rows
                    && first.is_some_and(|first| self.reply.is_row(*first, length)));
            let is_looked_at =
                self.keeps_rows || (self.checks_rows && length < LARGEST_FRAME && !self.continues);
            if is_row && !is_looked_at {
                if !self.continues {
                    self.reply.row(&mut self.dialect);
                }
                self.continues = length == LARGEST_FRAME;
                // A partial checksum would pass for a complete one.
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
                if is_row {
                    self.row(&rest[..length])?
                } else {
                    self.take(&rest[..length])?
                }
                at += HEADER + length;
            }
            self.sequence = self.sequence.wrapping_add(1);
        }
        Ok(at)
    }

    /// A complete row that is read.
    fn row(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.reply.row(&mut self.dialect);
        if let Some(checksum) = &mut self.checksum {
            checksum.add(payload);
        }
        match (self.keeps_rows, self.is_binary) {
            (true, true) => self.rows.add_binary_row(payload),
            (true, false) => self.rows.add_text_row(payload),
            (false, _) => Ok(()),
        }
    }

    /// A complete packet that is not a row.
    fn take(&mut self, payload: &[u8]) -> Result<(), Error> {
        let stage = self.reply.stage;
        check(stage, payload)?;
        match self.reply.take(payload, payload.len(), &mut self.dialect)? {
            Step::Column if self.keeps_rows => self.rows.add_column(payload)?,
            Step::More | Step::Column => {}
            Step::File => return Err(Error::Malformed("a request for a file of ours")),
            Step::Done => {
                self.reply.stage = Stage::Idle;
                if self.reply.error.is_some() {
                    self.error = Some(Error::from_packet(payload));
                }
            }
        }
        // Only the first result is kept; there is no second but after CALL.
        self.keeps_rows &= stage != Stage::Rows;
        Ok(())
    }

    /// An unexpected packet. Prefers the server's own error, which it may send before it closes.
    fn unasked(&self) -> Error {
        match self.partial.get(HEADER..) {
            Some(payload) if payload.first() == Some(&ERROR) => Error::from_packet(payload),
            _ => Error::Malformed("an unexpected packet"),
        }
    }
}

/// Refuses what none of our logins asks for: results that end differently or have no definitions, and progress
/// reports.
fn check(stage: Stage, payload: &[u8]) -> Result<(), Error> {
    let bad = match (stage, payload) {
        (_, [ERROR, code @ ..]) if code.starts_with(&PROGRESS.to_le_bytes()) => "a report of progress",
        (_, [ERROR, ..]) => return Ok(()),
        (Stage::First, [OK, ..]) if payload.len() < SHORTEST_OK => "a packet is too short",
        (Stage::First, [OK | LOCAL_FILE, ..]) => return Ok(()),
        (Stage::First, [END, ..]) => "an EOF packet without a result set",
        (Stage::First, _) => {
            let mut reader = Reader { payload, at: 0 };
            if (1..=MOST_COLUMNS).contains(&reader.length()?) {
                return reader.end();
            }
            "the number of columns"
        }
        (Stage::ColumnsEnd | Stage::Rows, [END, ..]) if payload.len() != EOF_LENGTH => "the end of a result",
        _ => return Ok(()),
    };
    Err(Error::Malformed(bad))
}

#[cfg(test)]
mod tests {
    use super::Answers;
    use crate::Error;
    use crate::fields::Cell;
    use crate::frames::encode;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    const IN_TRANSACTION: u16 = 0x0001;
    const MORE_RESULTS: u16 = 0x0008;
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
                assert_eq!((answers.row_count(), answers.affected_rows()), (*rows, *affected));
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
    fn what_no_login_of_ours_asks_for_loses_the_connection() {
        const OK_AS_END: &[u8] = &[0xFE, 0, 0, 2, 0, 0, 0];
        let begun = [&[1][..], COLUMN, END];
        let cases: [&[&[u8]]; 19] = [
            &[&[0]],
            &[&[0, 1]],
            &[&[0, 1, 0, 2, 0, 0]],
            &[&[0, 2]],
            // Numbers of columns: none, too many, with a byte behind or before it that says whether definitions
            // follow.
            &[&[0xFC, 0, 0]],
            &[&[0xFC, 0x01, 0x10]],
            &[&[0xFC, 0xFF, 0xFF]],
            &[&[2, 1]],
            &[&[2, 0]],
            &[&[1, 2]],
            &[&[0xFC, 1]],
            &[b"\xfb/etc/passwd"],
            &[b"\xff\xff\xff\x01\x01\x02\0\0\0"],
            &[END],
            &[OK_AS_END],
            &[&[1], COLUMN, OK_AS_END],
            &[&[1], COLUMN, b"\x01y"],
            &[begun[0], begun[1], begun[2], OK_AS_END],
            &[begun[0], begun[1], begun[2], &[0xFE; 12]],
        ];
        for payloads in cases {
            for (keeps_rows, step) in [(false, 1), (false, 1000), (true, 1)] {
                let mut answers = Answers::default();
                answers.expect(keeps_rows, false);
                let got = feed(&mut answers, &wire(payloads), step);
                assert!(matches!(got, Err(Error::Malformed(_))), "{payloads:?}: {got:?}");
            }
        }
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
        assert_eq!(answers.row_count(), 2);
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
                assert_eq!(answers.statement_id(), 9);
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
                prop_assert_eq!(answers.row_count(), rows.len() as u64);
                prop_assert_eq!(answers.rows.count(), if keeps_rows { rows.len() } else { 0 });
            }
        }
    }
}
