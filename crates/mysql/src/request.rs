//! Requests: statements in the server's format, prepared (binary) or as text.

use std::io::Write;

use crate::frames::{self, HEADER, LARGEST_FRAME};

const COMMAND_QUERY: u8 = 0x03;
const COMMAND_PING: u8 = 0x0E;
const COMMAND_EXECUTE: u8 = 0x17;
/// Command, statement id, no cursor, one iteration.
const EXECUTE_START: usize = 1 + 4 + 1 + 4;
const TYPE_LONGLONG: u8 = 0x08;
const TYPE_DOUBLE: u8 = 0x05;
const TYPE_VAR_STRING: u8 = 0xFD;

/// The type of a parameter; a request's values must be of these types, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Int,
    Float,
    Text,
}

/// A statement with `?` for its parameters, and the request that executes it, encoded except for its values.
#[derive(Clone, Debug)]
pub struct Statement {
    sql: String,
    types: Vec<Type>,
    /// The SQL around the parameters, for the text protocol.
    pieces: Vec<String>,
    template: Vec<u8>,
}

impl Statement {
    /// `types` has one for each `?` outside quotes and comments.
    pub fn new(sql: impl Into<String>, types: &[Type]) -> Result<Self, String> {
        let sql = sql.into();
        let pieces = split_at_parameters(&sql);
        if pieces.len() != types.len() + 1 {
            return Err(format!("{sql:?} has {} parameters, not {}", pieces.len() - 1, types.len()));
        }
        let template = template(types);
        Ok(Self { sql, types: types.to_vec(), pieces, template })
    }

    pub fn sql(&self) -> &str {
        &self.sql
    }

    pub fn parameters(&self) -> usize {
        self.types.len()
    }
}

/// The frame of an execution up to its values: length, command, id, flags, NULL bitmap, types.
fn template(types: &[Type]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes.extend_from_slice(&[COMMAND_EXECUTE, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    if types.is_empty() {
        return bytes;
    }
    bytes.resize(bytes.len() + types.len().div_ceil(8), 0);
    // Types are sent each time: the template then works on any connection, at two bytes per parameter.
    bytes.push(1);
    for kind in types {
        let code = match kind {
            Type::Int => TYPE_LONGLONG,
            Type::Float => TYPE_DOUBLE,
            Type::Text => TYPE_VAR_STRING,
        };
        bytes.extend_from_slice(&[code, 0]);
    }
    bytes
}

/// The SQL between its parameters. A `?` in a string, a quoted name or a comment is not one.
fn split_at_parameters(sql: &str) -> Vec<String> {
    let bytes = sql.as_bytes();
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        match bytes[at] {
            b'?' => {
                pieces.push(sql[start..at].to_owned());
                start = at + 1;
                at += 1;
            }
            quote @ (b'\'' | b'"' | b'`') => at += quoted_length(rest, quote),
            b'#' => at += line_length(rest),
            b'-' if rest.starts_with(b"--") && rest.get(2).is_none_or(u8::is_ascii_whitespace) => {
                at += line_length(rest);
            }
            b'/' if rest.starts_with(b"/*") => {
                at += rest[2..].windows(2).position(|pair| pair == b"*/").map_or(rest.len(), |end| end + 4);
            }
            _ => at += 1,
        }
    }
    pieces.push(sql[start..].to_owned());
    pieces
}

fn line_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len())
}

/// Quotes included. A doubled quote is read as two adjacent strings, with the same result.
fn quoted_length(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote != b'`' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

pub fn write_query(sql: &str, out: &mut Vec<u8>) {
    write_command(COMMAND_QUERY, sql.as_bytes(), out);
}

/// Returns the number of the answer's first packet, which continues those of the request.
pub fn write_command(command: u8, content: &[u8], out: &mut Vec<u8>) -> u8 {
    write_parts(command, &[content], out)
}

/// The same for content that comes in parts.
pub fn write_parts(command: u8, parts: &[&[u8]], out: &mut Vec<u8>) -> u8 {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, command]);
    for part in parts {
        out.extend_from_slice(part);
    }
    finish(out, start)
}

/// Whether a request executes a prepared statement: its rows come in the binary protocol then.
pub fn is_execution(request: &[u8]) -> bool {
    request.get(HEADER) == Some(&COMMAND_EXECUTE)
}

/// Where a script writes its next request: exactly one call of `query` or `execute` per step.
pub struct Requests<'a> {
    out: &'a mut Vec<u8>,
    statements: &'a [Statement],
    ids: &'a [u32],
    keeps_rows: &'a mut bool,
}

impl<'a> Requests<'a> {
    /// `ids` are this connection's numbers of the prepared statements; none if everything is sent as text.
    pub fn new(
        out: &'a mut Vec<u8>,
        statements: &'a [Statement],
        ids: &'a [u32],
        keeps_rows: &'a mut bool,
    ) -> Self {
        Self { out, statements, ids, keeps_rows }
    }

    /// Sends nothing that the server would have to work for.
    pub fn ping(&mut self) {
        write_command(COMMAND_PING, b"", self.out);
    }

    /// Sends text as it is.
    pub fn query(&mut self, sql: &str) {
        write_query(sql, self.out);
    }

    /// Executes a statement of the workload, given by its index there. The values follow, one call each; the
    /// request is complete when the returned value is dropped.
    pub fn execute(&mut self, place: usize) -> Values<'_> {
        let start = self.out.len();
        let statement = &self.statements[place];
        let id = self.ids.get(place);
        match id {
            Some(id) => {
                self.out.extend_from_slice(&statement.template);
                self.out[start + HEADER + 1..start + HEADER + 5].copy_from_slice(&id.to_le_bytes());
            }
            None => {
                self.out.extend_from_slice(&[0, 0, 0, 0, COMMAND_QUERY]);
                self.out.extend_from_slice(statement.pieces[0].as_bytes());
            }
        }
        Values { out: self.out, start, statement, given: 0, is_text: id.is_none() }
    }

    /// Keep the rows of this request's reply; by default they are only counted.
    pub fn keep_rows(&mut self) {
        *self.keeps_rows = true;
    }
}

/// The values of a request, in the order of the statement's parameters.
pub struct Values<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    statement: &'a Statement,
    given: usize,
    is_text: bool,
}

impl Values<'_> {
    pub fn int(&mut self, value: i64) -> &mut Self {
        self.expect(Type::Int);
        if self.is_text {
            write!(self.out, "{value}").expect("a Vec takes all");
        } else {
            self.out.extend_from_slice(&value.to_le_bytes());
        }
        self.next()
    }

    pub fn float(&mut self, value: f64) -> &mut Self {
        self.expect(Type::Float);
        if self.is_text {
            write!(self.out, "{value:e}").expect("a Vec takes all");
        } else {
            self.out.extend_from_slice(&value.to_le_bytes());
        }
        self.next()
    }

    pub fn text(&mut self, value: &[u8]) -> &mut Self {
        self.expect(Type::Text);
        if self.is_text {
            write_quoted(value, self.out);
        } else {
            frames::write_length(value.len(), self.out);
            self.out.extend_from_slice(value);
        }
        self.next()
    }

    pub fn null(&mut self) -> &mut Self {
        if self.is_text {
            self.out.extend_from_slice(b"NULL");
        } else {
            self.out[self.start + HEADER + EXECUTE_START + self.given / 8] |= 1 << (self.given % 8);
        }
        self.next()
    }

    fn expect(&self, kind: Type) {
        assert_eq!(self.statement.types.get(self.given), Some(&kind), "{}", self.statement.sql);
    }

    fn next(&mut self) -> &mut Self {
        self.given += 1;
        if self.is_text {
            self.out.extend_from_slice(self.statement.pieces[self.given].as_bytes());
        }
        self
    }
}

impl Drop for Values<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.given, self.statement.types.len(), "{}", self.statement.sql);
        }
        finish(self.out, self.start);
    }
}

/// Puts the length of the payload into its frame. Most requests are far below 16 MiB; a longer one is cut into frames.
/// Returns the number that comes after the last frame's.
fn finish(out: &mut Vec<u8>, start: usize) -> u8 {
    let length = out.len() - start - HEADER;
    if length < LARGEST_FRAME {
        let header = u32::try_from(length).expect("24 bits").to_le_bytes();
        out[start..start + 3].copy_from_slice(&header[..3]);
        1
    } else {
        let payload = out.split_off(start + HEADER);
        out.truncate(start);
        let mut number = 0;
        frames::encode(&payload, &mut number, out);
        number
    }
}

/// A string literal, valid under every sql_mode except NO_BACKSLASH_ESCAPES.
fn write_quoted(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    for byte in value {
        match byte {
            0 => out.extend_from_slice(b"\\0"),
            b'\'' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            _ => out.push(*byte),
        }
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::{Requests, Statement, Type, split_at_parameters, write_command};

    fn request(statement: &Statement, ids: &[u32], give: impl FnOnce(&mut super::Values<'_>)) -> Vec<u8> {
        let (mut out, mut keeps_rows) = (vec![], false);
        let statements = std::slice::from_ref(statement);
        let mut requests = Requests::new(&mut out, statements, ids, &mut keeps_rows);
        give(&mut requests.execute(0));
        out
    }

    #[test]
    fn an_execution_byte_by_byte() {
        let statement = Statement::new(
            "UPDATE t SET a=?, b=?, c=? WHERE d=?",
            &[Type::Int, Type::Text, Type::Float, Type::Int],
        )
        .unwrap();
        let bytes = request(&statement, &[0x0102_0304], |values| {
            values.int(-2).text(b"xy").float(1.5).null();
        });
        let mut expected = vec![0x17, 4, 3, 2, 1, 0, 1, 0, 0, 0, 0b1000, 1, 8, 0, 0xFD, 0, 5, 0, 8, 0];
        expected.extend((-2_i64).to_le_bytes());
        expected.extend([2, b'x', b'y']);
        expected.extend(1.5_f64.to_le_bytes());
        assert_eq!(bytes[..4], [u8::try_from(expected.len()).unwrap(), 0, 0, 0]);
        assert_eq!(bytes[4..], expected);
    }

    #[test]
    fn the_same_as_text() {
        let statement = Statement::new("SELECT ?, '?', ?", &[Type::Int, Type::Text]).unwrap();
        let bytes = request(&statement, &[], |values| {
            values.int(7).text(b"it's\\\0");
        });
        assert_eq!(bytes[4..], *b"\x03SELECT 7, '?', 'it\\'s\\\\\\0'");
    }

    #[test]
    fn a_long_text_is_cut_into_frames() {
        let statement = Statement::new("SELECT ?", &[Type::Text]).unwrap();
        let long = vec![b'x'; 17 << 20];
        let bytes = request(&statement, &[1], |values| {
            values.text(&long);
        });
        assert_eq!(bytes[..4], [0xFF, 0xFF, 0xFF, 0]);
        let second = 4 + 0xFF_FFFF;
        assert_eq!(bytes[second + 3], 1);
        assert_eq!(bytes.len(), 8 + 1 + 4 + 1 + 4 + 1 + 1 + 2 + 9 + long.len());
    }

    #[test]
    fn the_answers_number_follows_the_frames_of_the_request() {
        const FULL: usize = 0xFF_FFFF;
        // With the command's byte: just below one frame, one and an empty one, the same with two.
        for (length, number) in [(0, 1), (FULL - 2, 1), (FULL - 1, 2), (FULL, 2), (2 * FULL - 1, 3)] {
            assert_eq!(write_command(3, &vec![b'x'; length], &mut Vec::new()), number, "{length}");
        }
    }

    #[test]
    fn parameters_are_not_what_strings_and_comments_hold() {
        let sql = "SELECT '?''?', \"?\\\"?\", `?`, ? /* ? */ -- ?\n, ? # ?\n--?";
        let pieces = split_at_parameters(sql);
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces.join("?"), sql);
        assert!(Statement::new("SELECT ?", &[]).is_err());
        for odd in ["'", "/*", "`a", "\"\\", "--", "#"] {
            assert_eq!(split_at_parameters(odd), [odd]);
        }
    }
}
