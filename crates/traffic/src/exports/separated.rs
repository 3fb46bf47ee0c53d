//! Records out of rows whose values are separated: CSV of any client, `mysql --batch`, SELECT … INTO OUTFILE, and the files
//! of the CSV engine.
//!
//! There is no one format. A quote in a quoted value is doubled (RFC 4180, what clients write) or has a backslash before
//! it (what servers write); without quotes, what separates is escaped by a backslash. Which one it is, the file's first
//! rows tell.

use std::io::{self, Read};

use memchr::{memchr, memchr2, memmem};

use super::bytes::Bytes;
use super::record::{Next, Record, Value, argument};
use super::shape::Shape;
use crate::slow_log::MAX_EVENT_BYTES;

const MOST_COLUMNS: usize = 256;
const ANOTHER_WIDTH: Next = Next::Broken("a row with another number of values than there are columns");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    /// Values may be in double quotes.
    pub(super) has_quotes: bool,
    /// A backslash says what the byte behind it means.
    pub(super) has_escapes: bool,
}

/// What clients write.
const QUOTED: Dialect = Dialect { delimiter: b',', has_quotes: true, has_escapes: false };
/// What servers and the command-line clients write.
const ESCAPED: Dialect = Dialect { delimiter: b'\t', has_quotes: false, has_escapes: true };

/// Files of the CSV engine, and SELECT ... INTO OUTFILE with commas and quotes.
pub(super) const SERVERS: Dialect = Dialect { delimiter: b',', has_quotes: true, has_escapes: true };

/// Of one column: nothing separates, and commas are text.
pub(super) const SINGLE: Dialect = Dialect { delimiter: 0, has_quotes: true, has_escapes: false };

impl Dialect {
    /// Those that a text may be written in.
    pub(super) fn all(text: &[u8]) -> impl Iterator<Item = Dialect> {
        let has_escapes = has_escaped_quotes(text);
        let quoted = [b',', b';', b'|', b'^', b'~', 0x01, 0x1f].map(|delimiter| Dialect {
            delimiter,
            has_escapes,
            ..QUOTED
        });
        // Clients that write tabs between quoted values escape nothing else.
        let tabs = Dialect { delimiter: b'\t', ..QUOTED };
        let first = if starts_quoted(text) { [tabs, ESCAPED] } else { [ESCAPED, tabs] };
        first.into_iter().chain(quoted)
    }
}

/// A name as servers write it: clients say `t.COUNT_STAR`, `Count Star` and `countStar` for it.
fn canonical(name: &[u8]) -> Vec<u8> {
    let name = argument(name.trim_ascii());
    let name = &name[memchr::memrchr(b'.', name).map_or(0, |at| at + 1)..];
    let mut out = Vec::with_capacity(name.len() + 4);
    for byte in name {
        let follows_small = out.last().is_some_and(u8::is_ascii_lowercase);
        match byte {
            b'`' | b'\'' | b'"' => {}
            b' ' | b'-' => out.push(b'_'),
            _ => {
                if byte.is_ascii_uppercase() && follows_small {
                    out.push(b'_');
                }
                out.push(*byte);
            }
        }
    }
    out
}

/// Whether the names are in quotes, or the values of the first row are.
fn starts_quoted(text: &[u8]) -> bool {
    let row = memchr(b'\n', text).map_or(&b""[..], |end| &text[end + 1..]);
    let row = &row[..memchr(b'\n', row).unwrap_or(row.len())];
    text.starts_with(b"\"") || (row.starts_with(b"\"") && memmem::find(row, b"\"\t\"").is_some())
}

/// Whether a quote behind a backslash does not end its value: what follows it is no end of a value.
fn has_escaped_quotes(text: &[u8]) -> bool {
    memmem::find_iter(text, b"\\\"").any(|at| {
        text.get(at + 2).is_some_and(|next| !matches!(next, b',' | b';' | b'|' | b'\n' | b'\r' | b'"'))
    })
}

pub(super) struct SeparatedRecords<R> {
    pub(super) bytes: Bytes<R>,
    dialect: Dialect,
    columns: Vec<Vec<u8>>,
    row: Vec<Cell>,
    /// The values of a row, one behind the other.
    text: Vec<u8>,
    is_cut: bool,
}

#[derive(Clone, Copy)]
struct Cell {
    from: usize,
    to: usize,
    is_quoted: bool,
}

/// How a row ended.
enum End {
    Line,
    Input,
    /// Inside of quotes.
    Inside,
}

impl<R: Read> SeparatedRecords<R> {
    /// The first row has the names where none are given.
    pub(super) fn new(mut bytes: Bytes<R>, dialect: Dialect, columns: &[&str]) -> io::Result<Self> {
        bytes.skip_mark()?;
        let columns: Vec<Vec<u8>> = columns.iter().map(|name| name.as_bytes().to_vec()).collect();
        let has_names = columns.is_empty();
        let mut records = Self { bytes, dialect, columns, row: Vec::new(), text: Vec::new(), is_cut: false };
        if has_names {
            records.read_row()?;
            records.columns =
                records.row.iter().map(|cell| records.text[cell.from..cell.to].to_vec()).collect();
            // A statement has names in it as well.
            let are_names = records.columns.iter().all(|name| name.len() <= 64 && !name.contains(&b'('));
            if are_names && Shape::of(&records.header()).is_none() {
                records.columns.iter_mut().for_each(|name| *name = canonical(name));
            }
        }
        Ok(records)
    }

    /// The names, as a record without values.
    pub(super) fn header(&self) -> Record {
        let mut record = Record::default();
        self.columns.iter().for_each(|name| record.push(name, Value::Null));
        record
    }

    /// The values of the next row without names: `None` at the end.
    pub(super) fn values(&mut self) -> io::Result<Option<Vec<Vec<u8>>>> {
        if self.bytes.peek()?.is_none() {
            return Ok(None);
        }
        self.read_row()?;
        Ok(Some(self.row.iter().map(|cell| self.text[cell.from..cell.to].to_vec()).collect()))
    }

    /// Reads the next record.
    pub(super) fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        record.clear();
        loop {
            if self.bytes.peek()?.is_none() {
                return Ok(Next::End);
            }
            let end = self.read_row()?;
            if matches!(end, End::Inside) {
                return Ok(Next::Broken("a row that is cut off"));
            }
            let is_blank =
                self.row.len() == 1 && self.row[0].from == self.row[0].to && !self.row[0].is_quoted;
            if is_blank && self.columns.len() > 1 {
                continue;
            }
            if self.row.len() != self.columns.len() {
                let is_cut = matches!(end, End::Input) && self.row.len() < self.columns.len();
                return Ok(if is_cut { Next::Broken("a row that is cut off") } else { ANOTHER_WIDTH });
            }
            for (name, cell) in self.columns.iter().zip(&self.row) {
                let mut text = &self.text[cell.from..cell.to];
                // People put blanks around a bar.
                if self.dialect.delimiter == b'|' && !cell.is_quoted {
                    text = text.trim_ascii();
                }
                let is_null = !cell.is_quoted && matches!(text, b"NULL" | b"\\N");
                record.push(name, if is_null { Value::Null } else { Value::Text(text) });
            }
            record.is_cut |= self.is_cut;
            return Ok(Next::Record);
        }
    }

    fn read_row(&mut self) -> io::Result<End> {
        self.row.clear();
        self.text.clear();
        self.text.shrink_to(1 << 20);
        self.is_cut = false;
        loop {
            let from = self.text.len();
            let is_quoted = self.dialect.has_quotes && self.bytes.peek()? == Some(b'"');
            if is_quoted && !self.quoted()? {
                return Ok(End::Inside);
            }
            let to = if is_quoted { Some(self.text.len()) } else { None };
            let end = self.plain(from)?;
            // Behind its quotes nothing belongs to a value.
            let to = to.unwrap_or(self.text.len());
            if self.row.len() < MOST_COLUMNS {
                self.row.push(Cell { from, to, is_quoted });
            }
            match end {
                Some(byte) if byte == self.dialect.delimiter => {}
                Some(_) => return Ok(End::Line),
                None => return Ok(End::Input),
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.text.len() < 2 * MAX_EVENT_BYTES {
            self.text.push(byte);
        } else {
            self.is_cut = true;
        }
    }

    fn keep_all(&mut self, count: usize) {
        let room = (2 * MAX_EVENT_BYTES).saturating_sub(self.text.len());
        self.is_cut |= count > room;
        self.text.extend_from_slice(&self.bytes.ahead()[..count.min(room)]);
        self.bytes.take(count);
    }

    /// A value in quotes, up to its end; false if there is none.
    fn quoted(&mut self) -> io::Result<bool> {
        self.bytes.take(1);
        loop {
            if self.bytes.peek()?.is_none() {
                return Ok(false);
            }
            let ahead = self.bytes.ahead();
            let found =
                if self.dialect.has_escapes { memchr2(b'"', b'\\', ahead) } else { memchr(b'"', ahead) };
            self.keep_all(found.unwrap_or(ahead.len()));
            if found.is_none() {
                continue;
            }
            if self.bytes.next()? == Some(b'\\') {
                self.escaped()?;
                continue;
            }
            if self.bytes.peek()? != Some(b'"') {
                return Ok(true);
            }
            self.bytes.take(1);
            self.keep(b'"');
        }
    }

    /// A value up to what ends it, which is taken and given; `None` at the end of the input.
    fn plain(&mut self, from: usize) -> io::Result<Option<u8>> {
        while let Some(byte) = self.bytes.next()? {
            match byte {
                b'\n' => {
                    if self.text.len() > from && self.text.last() == Some(&b'\r') {
                        self.text.pop();
                    }
                    return Ok(Some(byte));
                }
                b'\\' if self.dialect.has_escapes => self.escaped()?,
                byte if byte == self.dialect.delimiter => return Ok(Some(byte)),
                byte => self.keep(byte),
            }
        }
        Ok(None)
    }

    fn escaped(&mut self) -> io::Result<()> {
        let Some(byte) = self.bytes.next()? else { return Ok(()) };
        match byte {
            b'n' => self.keep(b'\n'),
            b't' => self.keep(b'\t'),
            b'r' => self.keep(b'\r'),
            b'0' => self.keep(0),
            // NULL, told by the pair.
            b'N' => {
                self.keep(b'\\');
                self.keep(b'N');
            }
            byte => self.keep(byte),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialect, SeparatedRecords};
    use crate::exports::bytes::Bytes;
    use crate::exports::record::{Next, Record};

    fn rows(
        text: &str,
        dialect: Dialect,
        columns: &[&str],
    ) -> Vec<Result<Vec<Option<String>>, &'static str>> {
        let bytes = Bytes::with_buffer(text.as_bytes(), 5);
        let mut records = SeparatedRecords::new(bytes, dialect, columns).unwrap();
        let (mut record, mut found) = (Record::default(), Vec::new());
        loop {
            match records.next(&mut record).unwrap() {
                Next::Record => {
                    let text = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
                    found.push(Ok(record.iter().map(|(_, value)| value.text().map(text)).collect()));
                }
                Next::Broken(why) => found.push(Err(why)),
                Next::End => return found,
            }
        }
    }

    fn row(values: &[&str]) -> Result<Vec<Option<String>>, &'static str> {
        Ok(values.iter().map(|value| (*value != "NULL").then(|| (*value).to_owned())).collect())
    }

    const CSV: Dialect = Dialect { delimiter: b',', has_quotes: true, has_escapes: false };
    const SERVER: Dialect = Dialect { delimiter: b',', has_quotes: true, has_escapes: true };
    const TABS: Dialect = Dialect { delimiter: b'\t', has_quotes: false, has_escapes: true };

    #[test]
    fn every_client_has_its_own() {
        let text = "\u{feff}a,\"b\"\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\nNULL,\"C:\\\"\n2";
        assert_eq!(
            rows(text, CSV, &[]),
            [row(&["1", "x, \"y\"\nz"]), row(&["NULL", "C:\\"]), Err("a row that is cut off")]
        );
        assert_eq!(rows("\"a\\\"b\\n\",\\N\n", SERVER, &["a", "b"]), [row(&["a\"b\n", "NULL"])]);
        // `mysql --batch` and INTO OUTFILE.
        assert_eq!(rows("a\tb\nx\\ty\\nz\\\\\tNULL\n", TABS, &[]), [row(&["x\ty\nz\\", "NULL"])]);
        assert_eq!(rows("x\\\ty\\\nz\t\\N\n1\t2\t3\n", TABS, &["a", "b"])[0], row(&["x\ty\nz", "NULL"]));
        assert!(rows("1\t2\t3\n", TABS, &["a", "b"])[0].is_err());
        assert!(rows("1,\"x", CSV, &["a", "b"])[0].is_err());
    }

    #[test]
    fn the_dialect_is_told_by_the_text() {
        let first = |text: &[u8]| Dialect::all(text).find(|dialect| dialect.delimiter == b',').unwrap();
        assert!(first(b"\"a\\\"b\",1").has_escapes);
        assert!(!first(b"a,b\n1,\"C:\\\"\n").has_escapes);
    }
}
