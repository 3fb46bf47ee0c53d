//! Rows as the command-line client prints them for people: one field a line (`\G`), or in a frame. Values are not escaped, so that
//! a statement has its ends of lines: what tells is where names, and bars, stand.

use std::io::{self, Read};

use memchr::{memchr, memmem};

use super::bytes::Bytes;
use super::record::{Next, Record, Value};
use crate::pieces::without_return;
use crate::slow_log::MAX_EVENT_BYTES;

/// A row is not longer.
const MOST_BYTES: usize = 2 * MAX_EVENT_BYTES;
/// What a client says before its output.
const LINES_BEFORE: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Vertical,
    Framed,
}

impl Form {
    pub(super) fn of(head: &[u8]) -> Option<Form> {
        head.split(|byte| *byte == b'\n').take(LINES_BEFORE).map(without_return).find_map(|line| {
            if is_marker(line) {
                return Some(Form::Vertical);
            }
            is_border(line).then_some(Form::Framed)
        })
    }
}

/// `*************************** 1. row ***************************`
fn is_marker(line: &[u8]) -> bool {
    let inner = line.trim_ascii();
    inner.len() > 20
        && inner.starts_with(b"***")
        && inner.ends_with(b"***")
        && memmem::find(inner, b". row *").is_some()
}

/// `+-----+-----+`
fn is_border(line: &[u8]) -> bool {
    line.len() > 4
        && line.starts_with(b"+-")
        && line.ends_with(b"-+")
        && line.iter().all(|byte| matches!(byte, b'+' | b'-'))
}

/// `2 rows in set (0.01 sec)`
fn is_count(line: &[u8]) -> bool {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && (line[digits..].starts_with(b" row in set") || line[digits..].starts_with(b" rows in set"))
}

pub(super) struct PrintedRecords<R> {
    pub(super) bytes: Bytes<R>,
    form: Form,
    line: Vec<u8>,
    /// The line is the marker of the next row.
    is_at_row: bool,
    /// Of a frame: where its bars are, in characters.
    bars: Vec<usize>,
    names: Vec<Vec<u8>>,
}

impl<R: Read> PrintedRecords<R> {
    pub(super) fn new(bytes: Bytes<R>, form: Form) -> Self {
        Self { bytes, form, line: Vec::new(), is_at_row: false, bars: Vec::new(), names: Vec::new() }
    }

    pub(super) fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        record.clear();
        match self.form {
            Form::Vertical => self.vertical(record),
            Form::Framed => self.framed(record),
        }
    }

    /// Reads the next line without its end; false at the end of the input.
    fn read_line(&mut self) -> io::Result<bool> {
        let is_any = self.bytes.read_line(&mut self.line, MOST_BYTES)?.is_some();
        self.line.truncate(without_return(&self.line).len());
        Ok(is_any)
    }

    fn vertical(&mut self, record: &mut Record) -> io::Result<Next> {
        while !self.is_at_row {
            if !self.read_line()? {
                return Ok(Next::End);
            }
            self.is_at_row = is_marker(&self.line);
        }
        self.is_at_row = false;
        // Names end in one column.
        let mut width = None;
        let mut field: Option<(Vec<u8>, Vec<u8>)> = None;
        while self.read_line()? {
            self.is_at_row = is_marker(&self.line);
            if self.is_at_row || is_count(&self.line) {
                break;
            }
            let column = width.or_else(|| memchr(b':', &self.line));
            match (column.and_then(|column| name(&self.line, column)), &mut field) {
                (Some(found), _) => {
                    width = column;
                    let value = self.line.get(column.unwrap_or(0) + 2..).unwrap_or_default().to_vec();
                    if let Some((name, value)) = field.replace((found.to_vec(), value)) {
                        push(record, &name, &value);
                    }
                }
                (None, Some((_, value))) if value.len() + self.line.len() < MOST_BYTES => {
                    value.push(b'\n');
                    value.extend_from_slice(&self.line);
                }
                (None, Some(_)) => record.is_cut = true,
                (None, None) => {}
            }
        }
        let Some((name, value)) = field else { return Ok(Next::Broken("a row without fields")) };
        push(record, &name, &value);
        Ok(Next::Record)
    }

    fn framed(&mut self, record: &mut Record) -> io::Result<Next> {
        loop {
            if !self.read_line()? {
                return Ok(Next::End);
            }
            if is_border(&self.line) {
                let bars = |line: &[u8]| (0..line.len()).filter(|at| line[*at] == b'+').collect();
                let bars: Vec<usize> = bars(&self.line);
                if self.bars != bars {
                    self.bars = bars;
                    self.names.clear();
                }
                continue;
            }
            if self.bars.is_empty() || !self.line.starts_with(b"|") {
                continue;
            }
            let Some(cells) = self.row()? else {
                return Ok(Next::Broken("a row that does not fit its frame"));
            };
            if self.names.is_empty() {
                self.names = cells;
                continue;
            }
            for (name, value) in self.names.iter().zip(&cells) {
                push(record, name, value);
            }
            return Ok(Next::Record);
        }
    }

    /// The cells of the row that the line begins: it goes on in the next line until it is as wide as its frame.
    fn row(&mut self) -> io::Result<Option<Vec<Vec<u8>>>> {
        let width = self.bars.last().map_or(0, |last| last + 1);
        let mut text = String::from_utf8_lossy(&self.line).into_owned();
        let mut count = text.chars().count();
        while count < width && text.len() < MOST_BYTES {
            if !self.read_line()? || is_border(&self.line) {
                return Ok(None);
            }
            let more = String::from_utf8_lossy(&self.line);
            count += 1 + more.chars().count();
            text.push('\n');
            text.push_str(&more);
        }
        if count != width || !text.ends_with('|') {
            return Ok(None);
        }
        let characters: Vec<char> = text.chars().collect();
        let cell = |bars: &[usize]| {
            characters[bars[0] + 1..bars[1]].iter().collect::<String>().trim().as_bytes().to_vec()
        };
        Ok(self
            .bars
            .iter()
            .all(|bar| characters[*bar] == '|')
            .then(|| self.bars.windows(2).map(cell).collect()))
    }
}

/// The name whose colon is in this column.
fn name(line: &[u8], column: usize) -> Option<&[u8]> {
    if line.get(column) != Some(&b':') || !matches!(line.get(column + 1), None | Some(b' ')) {
        return None;
    }
    let name = line[..column].trim_ascii_start();
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    (!name.is_empty() && name.iter().all(is_of_name)).then_some(name)
}

fn push(record: &mut Record, name: &[u8], value: &[u8]) {
    record.push(name, if value == b"NULL" { Value::Null } else { Value::Text(value) });
}
