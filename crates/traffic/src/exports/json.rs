//! Records out of JSON, however long it is: one document or many, with the records at its root or in an array of it.
//!
//! Where the records are is told by a path: empty for documents one after the other (JSON lines), `[]` for the elements
//! of an array, `events[]` for those of a member of the root, `results[][]` for arrays of `{"field":…,"value":…}`, or of a
//! time and a line (Loki's `values`). Of a record the values are kept by their paths, `mysql.slowlog.query`; everything else is only passed over. Nothing is
//! nested too deep, because nothing here calls itself.

use std::io::{self, Read};

use memchr::memchr3;

use super::bytes::Bytes;
use super::record::{Next, Record, Value};
use crate::slow_log::MAX_EVENT_BYTES;

/// Levels above a record, and in it; what is deeper is passed over.
const MOST_LEVELS: usize = 16;
const MOST_NAME_BYTES: usize = 512;
/// A number longer than this is none.
const MOST_NUMBER_BYTES: usize = 64;

pub(super) struct JsonRecords<R> {
    pub(super) bytes: Bytes<R>,
    wanted: Vec<u8>,
    /// Containers that are open above the next record.
    open: Vec<Open>,
    /// Values passed over since the record before, for what says whose the records are.
    path: Vec<u8>,
    scratch: Vec<u8>,
    /// The last value of each name that [`OUTER`] lists.
    pub(super) outer: Vec<u8>,
    is_scratch_cut: bool,
    /// The array at the path holds strings, not objects.
    pub(super) are_texts: bool,
}

/// The name that a text gets which has none.
const UNNAMED: &[u8] = b"message";
/// Loki's labels of the stream whose lines follow.
const LABELS: &[u8] = b"[].stream";
/// Names above the records that say which stream they are of.
const OUTER: [&[u8]; 2] = [b"logStream", b"logStreamName"];

struct Open {
    is_array: bool,
    /// Length of the path up to it.
    path: usize,
}

/// Why a text is no JSON, or why it could not be read.
enum Trouble {
    Broken(&'static str),
    Input(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Input(error)
    }
}

const CUT: Trouble = Trouble::Broken("a record that is cut off");
const STRAY: Trouble = Trouble::Broken("this is not JSON");

impl<R: Read> JsonRecords<R> {
    pub(super) fn new(bytes: Bytes<R>, wanted: &[u8]) -> Self {
        let (open, path, scratch) = (Vec::new(), Vec::new(), Vec::new());
        let (wanted, outer) = (wanted.to_vec(), Vec::new());
        Self { bytes, wanted, open, path, scratch, outer, is_scratch_cut: false, are_texts: false }
    }

    /// Reads the next record; one that is not whole leaves in it what there was.
    pub(super) fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        record.clear();
        let levels = self.open.len();
        match self.find(record) {
            Ok(true) => Ok(Next::Record),
            Ok(false) => Ok(Next::End),
            Err(Trouble::Input(error)) => Err(error),
            Err(Trouble::Broken(why)) => {
                self.recover(levels)?;
                Ok(Next::Broken(why))
            }
        }
    }

    /// The paths of records that there may be, the outermost first, as far as the input goes.
    pub(super) fn paths(&mut self, most: usize) -> Vec<Vec<u8>> {
        let mut paths: Vec<Vec<u8>> = Vec::new();
        loop {
            match self.step() {
                Ok(Some(b'{' | b'[')) => {
                    if !paths.contains(&self.path) {
                        paths.push(self.path.clone());
                    }
                    if paths.len() >= most {
                        return paths;
                    }
                    let is_array = self.bytes.peek().is_ok_and(|byte| byte == Some(b'['));
                    if self.enter(is_array).is_err() {
                        return paths;
                    }
                }
                Ok(Some(_)) => {}
                _ => return paths,
            }
        }
    }

    /// Goes to the next record that is wanted and reads it.
    fn find(&mut self, record: &mut Record) -> Result<bool, Trouble> {
        while let Some(byte) = self.step()? {
            if byte == b'"' {
                self.keep(record, UNNAMED)?;
                return Ok(true);
            }
            let is_container = matches!(byte, b'{' | b'[');
            if !is_container {
                continue;
            }
            if byte == b'{'
                && self.path.ends_with(LABELS)
                && self.wanted.starts_with(&self.path[..self.path.len() - LABELS.len()])
            {
                self.labels()?;
                self.after_value();
                continue;
            }
            if self.path == self.wanted {
                if byte == b'{' {
                    self.object(record)?;
                } else {
                    self.pairs(record)?;
                }
                self.after_value();
                return Ok(true);
            }
            if self.open.len() >= MOST_LEVELS || !self.wanted.starts_with(&self.path) {
                self.pass()?;
                self.after_value();
            } else {
                self.enter(byte == b'[')?;
            }
        }
        if self.open.is_empty() { Ok(false) } else { Err(self.ended()) }
    }

    /// The input ends inside of what it began: that is said once.
    fn ended(&mut self) -> Trouble {
        self.open.clear();
        self.path.clear();
        Trouble::Broken("it ends before what it began is closed")
    }

    /// Passes over one thing outside of records. Gives `{` or `[` where a container begins, which is not taken yet, and `"`
    /// where a text is a record.
    fn step(&mut self) -> Result<Option<u8>, Trouble> {
        let Some(byte) = self.skip_blanks(true)? else { return Ok(None) };
        match byte {
            b'}' | b']' => {
                self.bytes.take(1);
                let open = self.open.pop().ok_or(STRAY)?;
                self.path.truncate(open.path);
                if open.is_array != (byte == b']') {
                    return Err(STRAY);
                }
                self.after_value();
                Ok(Some(b' '))
            }
            // A member's name, or a text that is no record.
            b'"' if self.open.last().is_some_and(|open| !open.is_array) => {
                self.string(MOST_NAME_BYTES)?;
                if !self.path.is_empty() {
                    self.path.push(b'.');
                }
                self.path.extend_from_slice(&self.scratch);
                self.colon()?;
                self.value_of_member()
            }
            b'{' | b'[' if self.open.last().is_none_or(|open| open.is_array) => Ok(Some(byte)),
            b'"' if self.are_texts && self.path == self.wanted => Ok(Some(byte)),
            _ if self.open.last().is_some_and(|open| open.is_array) => {
                self.scalar(MOST_NAME_BYTES)?;
                Ok(Some(b' '))
            }
            _ => Err(STRAY),
        }
    }

    fn value_of_member(&mut self) -> Result<Option<u8>, Trouble> {
        let byte = self.skip_blanks(false)?.ok_or(CUT)?;
        if matches!(byte, b'{' | b'[') {
            return Ok(Some(byte));
        }
        let is_outer = OUTER.iter().any(|name| self.path.ends_with(name));
        self.scalar(MOST_NAME_BYTES)?;
        if is_outer {
            self.outer.clone_from(&self.scratch);
        }
        self.after_value();
        Ok(Some(b' '))
    }

    /// The path after a value is that of the container around it.
    fn after_value(&mut self) {
        let length = self.open.last().map_or(0, |open| open.path + if open.is_array { 2 } else { 0 });
        self.path.truncate(length);
    }

    fn enter(&mut self, is_array: bool) -> Result<(), Trouble> {
        if self.open.len() >= 2 * MOST_LEVELS {
            self.pass()?;
            self.after_value();
            return Ok(());
        }
        self.bytes.take(1);
        self.open.push(Open { is_array, path: self.path.len() });
        if is_array {
            self.path.extend_from_slice(b"[]");
        }
        Ok(())
    }

    /// A record that is an object: its values, by their paths.
    fn object(&mut self, record: &mut Record) -> Result<(), Trouble> {
        let (mut name, mut levels) = (Vec::new(), Vec::new());
        self.bytes.take(1);
        let mut is_first = true;
        loop {
            let byte = self.skip_blanks(false)?.ok_or(CUT)?;
            match byte {
                b'}' => {
                    self.bytes.take(1);
                    let Some(length) = levels.pop() else { return Ok(()) };
                    name.truncate(length);
                    is_first = false;
                    continue;
                }
                b',' if !is_first => {
                    self.bytes.take(1);
                    if self.skip_blanks(false)? != Some(b'"') {
                        return Err(if self.bytes.peek()?.is_none() { CUT } else { STRAY });
                    }
                }
                b'"' if is_first => {}
                _ => return Err(STRAY),
            }
            self.string(MOST_NAME_BYTES)?;
            let length = name.len();
            if length > 0 {
                name.push(b'.');
            }
            name.extend_from_slice(&self.scratch);
            self.colon()?;
            is_first = self.member(record, &mut name, length, &mut levels)?;
        }
    }

    /// The value of a member of a record; true if it is an object, which was entered.
    fn member(
        &mut self,
        record: &mut Record,
        name: &mut Vec<u8>,
        length: usize,
        levels: &mut Vec<usize>,
    ) -> Result<bool, Trouble> {
        match self.skip_blanks(false)?.ok_or(CUT)? {
            b'{' if levels.len() < MOST_LEVELS && name.len() < MOST_NAME_BYTES => {
                self.bytes.take(1);
                levels.push(length);
                return Ok(true);
            }
            b'{' => self.pass()?,
            b'[' => self.first_of_list(record, name)?,
            _ => self.keep(record, name)?,
        }
        name.truncate(length);
        Ok(false)
    }

    /// A list with one value in it is that value; Elasticsearch answers in such lists. Numbers are the bytes of a text that
    /// is no UTF-8, or has control characters, as journald writes it.
    fn first_of_list(&mut self, record: &mut Record, name: &[u8]) -> Result<(), Trouble> {
        self.bytes.take(1);
        match self.skip_blanks(false)?.ok_or(CUT)? {
            b'{' | b'[' | b']' => {}
            b'0'..=b'9' => {
                self.scalar(MOST_NUMBER_BYTES)?;
                let first = self.scratch.clone();
                match self.bytes_of_list()? {
                    Some(text) => {
                        record.push(name, Value::Text(&text));
                        record.is_cut |= text.len() >= MAX_EVENT_BYTES;
                    }
                    None => record.push(name, Value::Text(&first)),
                }
            }
            _ => self.keep(record, name)?,
        }
        self.pass_rest(1)
    }

    /// The numbers of a list, the first of which was read, as bytes; `None` where it is one number, or one is none.
    fn bytes_of_list(&mut self) -> Result<Option<Vec<u8>>, Trouble> {
        let mut text = Vec::new();
        loop {
            let number = std::str::from_utf8(&self.scratch).ok().and_then(|number| number.parse::<u8>().ok());
            let Some(byte) = number else { return Ok(None) };
            if text.len() < MAX_EVENT_BYTES {
                text.push(byte);
            }
            match self.skip_blanks(true)?.ok_or(CUT)? {
                b'0'..=b'9' => self.scalar(MOST_NUMBER_BYTES)?,
                b']' => return Ok((text.len() > 1).then_some(text)),
                _ => return Ok(None),
            }
        }
    }

    /// The labels of a stream: together they name it.
    fn labels(&mut self) -> Result<(), Trouble> {
        let mut labels = Record::default();
        self.object(&mut labels)?;
        self.outer.clear();
        for (_, value) in labels.iter() {
            if !self.outer.is_empty() {
                self.outer.push(b' ');
            }
            self.outer.extend_from_slice(value.text().unwrap_or_default());
        }
        self.outer.truncate(MOST_NAME_BYTES);
        Ok(())
    }

    /// Keeps a value that is no container.
    fn keep(&mut self, record: &mut Record, name: &[u8]) -> Result<(), Trouble> {
        let is_text = self.bytes.peek()? == Some(b'"');
        let kept = self.scalar(MAX_EVENT_BYTES);
        let is_null = !is_text && self.scratch == b"null";
        if is_text || kept.is_ok() {
            // Of a text that is cut off there is its beginning, which may tell what this is.
            record.push(name, if is_null { Value::Null } else { Value::Text(&self.scratch) });
            record.is_cut |= self.is_scratch_cut;
        }
        kept
    }

    /// A record that is an array of `{"field": name, "value": value}`, or of two texts: a time and a line.
    fn pairs(&mut self, record: &mut Record) -> Result<(), Trouble> {
        self.bytes.take(1);
        let mut pair = Record::default();
        let mut names = [b"ts".as_slice(), b"line"].into_iter();
        loop {
            match self.skip_blanks(true)?.ok_or(CUT)? {
                b']' => {
                    self.bytes.take(1);
                    return Ok(());
                }
                b'{' => {
                    pair.clear();
                    let read = self.object(&mut pair);
                    if let (Some(name), Some(value)) = (pair.text(&["field"]), pair.get(&["value"])) {
                        record.push(name, value);
                        record.is_cut |= pair.is_cut;
                    }
                    read?;
                }
                b'[' => self.pass()?,
                b'"' => match names.next() {
                    Some(name) => self.keep(record, name)?,
                    None => self.scalar(0)?,
                },
                _ => {
                    names.next();
                    self.scalar(MOST_NAME_BYTES)?;
                }
            }
        }
    }

    /// Passes over a container, however deep.
    fn pass(&mut self) -> Result<(), Trouble> {
        self.bytes.take(1);
        self.pass_rest(1)
    }

    fn pass_rest(&mut self, mut levels: u64) -> Result<(), Trouble> {
        while levels > 0 {
            match self.skip_blanks(true)?.ok_or(CUT)? {
                b'{' | b'[' => {
                    self.bytes.take(1);
                    levels += 1;
                }
                b'}' | b']' => {
                    self.bytes.take(1);
                    levels -= 1;
                }
                b':' => self.bytes.take(1),
                _ => self.scalar(0)?,
            }
        }
        Ok(())
    }

    /// A text, number, boolean or null, into `scratch`; of a text so many bytes at most.
    fn scalar(&mut self, most: usize) -> Result<(), Trouble> {
        if self.bytes.peek()? == Some(b'"') {
            return self.string(most);
        }
        self.scratch.clear();
        self.is_scratch_cut = false;
        while let Some(byte) = self.bytes.peek()? {
            if !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') {
                break;
            }
            self.bytes.take(1);
            if self.scratch.len() > MOST_NUMBER_BYTES {
                return Err(STRAY);
            }
            self.scratch.push(byte);
        }
        if self.bytes.peek()?.is_none() && !self.open.is_empty() {
            return Err(CUT);
        }
        let is_one = matches!(self.scratch.as_slice(), b"true" | b"false" | b"null" | b"NaN")
            || self.scratch.first().is_some_and(|first| *first == b'-' || first.is_ascii_digit());
        if is_one { Ok(()) } else { Err(STRAY) }
    }

    /// A text, into `scratch`, so many bytes of it at most.
    fn string(&mut self, most: usize) -> Result<(), Trouble> {
        self.scratch.clear();
        self.is_scratch_cut = false;
        self.bytes.take(1);
        loop {
            if self.bytes.peek()?.is_none() {
                return Err(CUT);
            }
            let ahead = self.bytes.ahead();
            let found = memchr3(b'"', b'\\', b'\n', ahead);
            let plain = &ahead[..found.unwrap_or(ahead.len())];
            let room = most.saturating_sub(self.scratch.len());
            self.is_scratch_cut |= plain.len() > room;
            self.scratch.extend_from_slice(&plain[..plain.len().min(room)]);
            let length = plain.len();
            let special = found.map(|at| ahead[at]);
            self.bytes.take(length);
            match special {
                None => {}
                Some(b'"') => {
                    self.bytes.take(1);
                    return Ok(());
                }
                // A line that was cut, and the next one: this end of line is not taken.
                Some(b'\n') => return Err(Trouble::Broken("a text is not closed in its line")),
                Some(_) => {
                    self.bytes.take(1);
                    self.escape(most)?;
                }
            }
        }
    }

    fn escape(&mut self, most: usize) -> Result<(), Trouble> {
        let byte = self.bytes.next()?.ok_or(CUT)?;
        let letter = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.code()?,
            _ => return Err(STRAY),
        };
        let mut buffer = [0; 4];
        let encoded = letter.encode_utf8(&mut buffer).as_bytes();
        if self.scratch.len() + encoded.len() <= most {
            self.scratch.extend_from_slice(encoded);
        } else {
            self.is_scratch_cut = true;
        }
        Ok(())
    }

    /// `\u` and four digits, or two such that are one letter; half a letter is replaced.
    fn code(&mut self) -> Result<char, Trouble> {
        let first = self.four_digits()?;
        let is_high = (0xd800..0xdc00).contains(&first);
        if !is_high {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if self.bytes.peek()? != Some(b'\\') {
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        self.bytes.take(1);
        if self.bytes.next()?.ok_or(CUT)? != b'u' {
            return Err(STRAY);
        }
        let second = self.four_digits()?;
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second.wrapping_sub(0xdc00) & 0x3ff);
        let is_low = (0xdc00..0xe000).contains(&second);
        Ok(char::from_u32(code).filter(|_| is_low).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_digits(&mut self) -> Result<u32, Trouble> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.bytes.next()?.ok_or(CUT)?;
            code = code * 16 + char::from(byte).to_digit(16).ok_or(STRAY)?;
        }
        Ok(code)
    }

    fn colon(&mut self) -> Result<(), Trouble> {
        match self.skip_blanks(false)? {
            Some(b':') => {
                self.bytes.take(1);
                Ok(())
            }
            Some(_) => Err(STRAY),
            None => Err(CUT),
        }
    }

    /// The next byte that is no blank (nor comma), not taken.
    fn skip_blanks(&mut self, with_commas: bool) -> io::Result<Option<u8>> {
        while let Some(byte) = self.bytes.peek()? {
            // 0x1e begins each text of a JSON sequence, 0 ends each message of GELF.
            let is_blank =
                matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x1e | 0) || (with_commas && byte == b',');
            if !is_blank {
                return Ok(Some(byte));
            }
            self.bytes.take(1);
        }
        Ok(None)
    }

    /// Goes on at the next line that begins a container, in what was open before the record that is broken.
    fn recover(&mut self, levels: usize) -> io::Result<()> {
        self.open.truncate(levels);
        self.after_value();
        loop {
            while let Some(byte) = self.bytes.next()? {
                if byte == b'\n' {
                    break;
                }
            }
            match self.skip_blanks(true)? {
                Some(b'{' | b'[' | b'}' | b']') => return Ok(()),
                // The end is told by what is still open, which was said.
                None => {
                    self.open.clear();
                    self.path.clear();
                    return Ok(());
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
