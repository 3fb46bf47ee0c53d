//! Rows in the forms that a server accepts.

use std::io::Write;

/// How rows are sent, the cheapest for the server first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// One prepared INSERT, executed for many rows in binary form; only MariaDB (COM_STMT_BULK_EXECUTE).
    BulkExecute,
    /// LOAD DATA LOCAL INFILE: lines with tabs, a backslash escapes. Only if local_infile is on.
    LoadData,
    /// INSERT with many rows.
    Insert,
}

/// The binary type of a value, with the protocol's numbers: the type and whether it is unsigned.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Int,
    Text,
}

impl Kind {
    fn code(self) -> [u8; 2] {
        match self {
            Kind::Int => [0x08, 0],
            // A BLOB has no character set, so nothing is converted.
            Kind::Text => [0xFC, 0],
        }
    }
}

const IS_VALUE: u8 = 0;
const IS_NULL: u8 = 1;

/// The rows of a batch. A row is its values in the order of the columns, then `end`. A column whose first value in a
/// batch is `int` is never given `text` or `decimal` in that batch.
pub struct Rows {
    method: Method,
    bytes: Vec<u8>,
    count: u64,
    /// The index of the next value in its row.
    column: usize,
    /// The columns' types in binary form, from the first row of the batch.
    kinds: Vec<Kind>,
    kinds_start: usize,
}

impl Rows {
    pub fn new(method: Method) -> Self {
        Self { method, bytes: Vec::new(), count: 0, column: 0, kinds: Vec::new(), kinds_start: 0 }
    }

    pub fn int(&mut self, value: i64) {
        if self.method == Method::BulkExecute && self.kind(Kind::Int) == Kind::Int {
            self.bytes.push(IS_VALUE);
            self.bytes.extend_from_slice(&value.to_le_bytes());
            self.column += 1;
        } else {
            self.put(itoa::Buffer::new().format(value).as_bytes());
        }
    }

    /// A DECIMAL of `scale` digits after the point: (-1234, 2) is -12.34.
    pub fn decimal(&mut self, units: i64, scale: u32) {
        let one = 10_u64.pow(scale);
        let (whole, rest) = (units.unsigned_abs() / one, units.unsigned_abs() % one);
        let sign = if units < 0 { "-" } else { "" };
        let mut text = [0; 48];
        let mut space = &mut text[..];
        write!(space, "{sign}{whole}.{rest:0width$}", width = scale as usize).expect("at most 41 characters");
        let length = 48 - space.len();
        self.put(&text[..length]);
    }

    /// Text, or a date as text. It may hold any bytes.
    pub fn text(&mut self, text: &[u8]) {
        match self.method {
            Method::BulkExecute => self.put(text),
            Method::LoadData => {
                self.separate();
                self.escape(text);
            }
            Method::Insert => {
                self.separate();
                self.bytes.push(b'\'');
                self.escape(text);
                self.bytes.push(b'\'');
            }
        }
    }

    pub fn null(&mut self) {
        if self.method == Method::BulkExecute {
            self.kind(Kind::Text);
            self.column += 1;
        } else {
            self.separate();
        }
        self.bytes.extend_from_slice(match self.method {
            Method::BulkExecute => &[IS_NULL],
            Method::LoadData => b"\\N",
            Method::Insert => b"NULL",
        });
    }

    /// Ends a row.
    pub fn end(&mut self) {
        match self.method {
            Method::BulkExecute => {}
            Method::LoadData => self.bytes.push(b'\n'),
            Method::Insert => self.bytes.push(b')'),
        }
        self.count += 1;
        self.column = 0;
    }

    /// Puts a value that needs neither quotes nor escapes.
    fn put(&mut self, text: &[u8]) {
        if self.method == Method::BulkExecute {
            assert!(self.kind(Kind::Text) == Kind::Text, "a column that began with numbers");
            self.bytes.push(IS_VALUE);
            self.put_length(text.len());
            self.column += 1;
        } else {
            self.separate();
        }
        self.bytes.extend_from_slice(text);
    }

    /// A length-encoded integer.
    fn put_length(&mut self, length: usize) {
        let bytes = (length as u64).to_le_bytes();
        match length {
            0..=0xFA => self.bytes.push(bytes[0]),
            0xFB..=0xFFFF => {
                self.bytes.push(0xFC);
                self.bytes.extend_from_slice(&bytes[..2]);
            }
            _ => {
                self.bytes.push(0xFE);
                self.bytes.extend_from_slice(&bytes);
            }
        }
    }

    /// The type of the next column. The first row of a batch decides it.
    fn kind(&mut self, kind: Kind) -> Kind {
        if self.count > 0 {
            return self.kinds[self.column];
        }
        self.kinds.push(kind);
        let start = self.kinds_start + 2 * self.column;
        self.bytes[start..start + 2].copy_from_slice(&kind.code());
        kind
    }

    fn separate(&mut self) {
        let separator: &[u8] = match (self.method, self.column) {
            (Method::LoadData, 0) => b"",
            (Method::LoadData, _) => b"\t",
            (_, 0) if self.count > 0 => b",(",
            (_, 0) => b"(",
            (_, _) => b",",
        };
        self.bytes.extend_from_slice(separator);
        self.column += 1;
    }

    fn escape(&mut self, text: &[u8]) {
        if !text.iter().any(|byte| escape(*byte).is_some()) {
            self.bytes.extend_from_slice(text);
            return;
        }
        for byte in text {
            match escape(*byte) {
                Some(letter) => self.bytes.extend_from_slice(&[b'\\', letter]),
                None => self.bytes.push(*byte),
            }
        }
    }

    /// Starts a batch: the start of its statement, and how many columns a row has.
    pub(super) fn start(&mut self, head: &[u8], columns: usize) {
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
        self.count = 0;
        self.column = 0;
        self.kinds.clear();
        self.kinds_start = self.bytes.len();
        if self.method == Method::BulkExecute {
            self.bytes.resize(self.kinds_start + 2 * columns, 0);
        }
    }

    /// Drops the bytes, which were sent; the rows still count.
    pub(super) fn clear_bytes(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

/// The letter that represents this byte after a backslash, both in a line and in a quoted text.
fn escape(byte: u8) -> Option<u8> {
    match byte {
        0 => Some(b'0'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\t' => Some(b't'),
        b'\\' | b'\'' => Some(byte),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Method, Rows};

    fn written(method: Method) -> Vec<u8> {
        let mut rows = Rows::new(method);
        rows.start(b"", 6);
        for number in [-7, 8] {
            rows.int(number);
            rows.decimal(-5 * number, 2);
            rows.decimal(number * 1234, 4);
            rows.text(b"it's\ta\\b\n\0");
            rows.text(b"");
            rows.null();
            rows.end();
        }
        assert_eq!(rows.count(), 2);
        rows.bytes().to_vec()
    }

    #[test]
    fn rows_as_lines_and_as_tuples() {
        let lines = "-7\t0.35\t-0.8638\tit\\'s\\ta\\\\b\\n\\0\t\t\\N\n8\t-0.40\t0.9872\tit\\'s\\ta\\\\b\\n\\0\t\t\\N\n";
        assert_eq!(String::from_utf8(written(Method::LoadData)).unwrap(), lines);
        let tuples = "(-7,0.35,-0.8638,'it\\'s\\ta\\\\b\\n\\0','',NULL),(8,-0.40,0.9872,'it\\'s\\ta\\\\b\\n\\0','',NULL)";
        assert_eq!(String::from_utf8(written(Method::Insert)).unwrap(), tuples);
    }

    #[test]
    fn rows_in_binary() {
        let mut wanted = vec![8, 0, 0xFC, 0, 0xFC, 0, 0xFC, 0, 0xFC, 0, 0xFC, 0];
        for (number, decimals) in [(-7_i64, [&b"0.35"[..], b"-0.8638"]), (8, [b"-0.40", b"0.9872"])] {
            wanted.push(0);
            wanted.extend(number.to_le_bytes());
            for text in [decimals[0], decimals[1], b"it's\ta\\b\n\0", b""] {
                wanted.extend([0, text.len() as u8]);
                wanted.extend(text);
            }
            wanted.push(1);
        }
        assert_eq!(written(Method::BulkExecute), wanted);
    }

    #[test]
    fn a_column_may_begin_with_null() {
        let mut rows = Rows::new(Method::BulkExecute);
        rows.start(b"", 1);
        rows.null();
        rows.end();
        rows.int(12);
        rows.end();
        assert_eq!(rows.bytes(), b"\xfc\0\x01\0\x0212");
    }

    #[test]
    fn long_texts_and_the_largest_numbers() {
        for (length, head) in
            [(250, &b"\xfa"[..]), (251, b"\xfc\xfb\0"), (70_000, b"\xfe\x70\x11\x01\0\0\0\0\0")]
        {
            let mut rows = Rows::new(Method::BulkExecute);
            rows.start(b"", 1);
            rows.text(&vec![b'x'; length]);
            assert_eq!(&rows.bytes()[3..3 + head.len()], head);
            assert_eq!(rows.bytes().len(), 3 + head.len() + length);
        }
        let mut rows = Rows::new(Method::LoadData);
        rows.start(b"", 1);
        rows.decimal(i64::MIN, 18);
        rows.decimal(i64::MAX, 0);
        assert_eq!(rows.bytes(), b"-9.223372036854775808\t9223372036854775807.0");
    }

    #[test]
    #[should_panic(expected = "a column that began with numbers")]
    fn a_column_of_numbers_takes_no_text() {
        let mut rows = Rows::new(Method::BulkExecute);
        rows.start(b"", 1);
        rows.int(1);
        rows.end();
        rows.text(b"x");
    }
}
