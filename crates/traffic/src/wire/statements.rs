//! The prepared statements of a session, and what an execution binds to their parameters.

use std::collections::BTreeMap;

use mysql::Error;
use mysql::frames::write_length;
use mysql::reader::Reader;
use mysql::types::take_value;

use crate::numbers::Numbers;

/// Statements that one session may keep; servers allow 16,382 in all by default.
const MOST_STATEMENTS: usize = 65_536;
/// MariaDB's number for the statement that was prepared last.
pub const LAST: u32 = u32::MAX;
const BULK_HAS_TYPES: u16 = 128;

#[derive(Debug, Default)]
pub struct Statement {
    pub text: Vec<u8>,
    /// Only the beginning of the text is kept.
    pub is_cut: bool,
    pub parameters: u16,
    /// Two bytes a parameter, as the first execution gave them.
    types: Vec<u8>,
    /// Parameters sent ahead of the execution, by their places.
    long: BTreeMap<u16, Vec<u8>>,
    long_bytes: usize,
    /// Of these, what the session's sum has.
    counted_bytes: usize,
    /// Data sent ahead was more than we keep.
    is_long_cut: bool,
    /// Bytes of the packets that carried it.
    pub ahead_bytes: u64,
}

/// What an execution binds.
#[derive(Debug, PartialEq, Eq)]
pub enum Bound {
    /// The request has it as it should be, from this offset.
    AsSent(usize),
    /// It is in the buffer given.
    Rewritten,
}

#[derive(Debug, Default)]
pub struct Statements {
    by_id: Numbers<u32, Statement>,
    last: u32,
    bytes: usize,
    /// Data sent ahead for all of them, but for what the one that was given out last has changed since.
    long_bytes: usize,
    given_out: u32,
}

impl Statements {
    pub fn clear(&mut self) {
        *self = Statements::default();
    }

    /// False where it is not kept, because the session has more than `most_bytes` of them or too many.
    pub fn insert(&mut self, id: u32, text: (&[u8], bool), parameters: u16, most_bytes: usize) -> bool {
        let (text, is_cut) = text;
        self.last = id;
        self.remove(id);
        if self.by_id.len() >= MOST_STATEMENTS || self.bytes + text.len() > most_bytes {
            return false;
        }
        self.bytes += text.len();
        self.by_id.insert(id, Statement { text: text.to_vec(), is_cut, parameters, ..Statement::default() });
        true
    }

    pub fn remove(&mut self, id: u32) {
        if let Some(statement) = self.by_id.remove(&self.resolve(id)) {
            self.bytes -= statement.text.len();
            self.long_bytes -= statement.counted_bytes;
        }
    }

    pub fn get(&self, id: u32) -> Option<&Statement> {
        self.by_id.get(&id)
    }

    /// And how many bytes were sent ahead for the others.
    pub fn get_mut(&mut self, id: u32) -> Option<(&mut Statement, usize)> {
        if let Some(last) = self.by_id.get_mut(&self.given_out) {
            self.long_bytes = self.long_bytes - last.counted_bytes + last.long_bytes;
            last.counted_bytes = last.long_bytes;
        }
        self.given_out = id;
        let statement = self.by_id.get_mut(&id)?;
        let others = self.long_bytes - statement.counted_bytes;
        Some((statement, others))
    }

    pub fn resolve(&self, id: u32) -> u32 {
        if id == LAST { self.last } else { id }
    }
}

impl Statement {
    /// A piece of a parameter, sent ahead.
    pub fn add_long(&mut self, parameter: u16, piece: &[u8], most_bytes: usize) {
        if self.long_bytes + piece.len() > most_bytes {
            self.is_long_cut = true;
            return;
        }
        self.long_bytes += piece.len();
        self.long.entry(parameter).or_default().extend_from_slice(piece);
    }

    pub fn forget_long(&mut self) {
        self.long = BTreeMap::new();
        self.long_bytes = 0;
        self.is_long_cut = false;
        self.ahead_bytes = 0;
    }

    /// Reads what a COM_STMT_EXECUTE binds: `body` is the whole request, with its first byte. What was sent ahead is
    /// used up. The form that comes out is that of `Event::parameters`.
    pub fn bind(&mut self, body: &[u8], attributes: bool, out: &mut Vec<u8>) -> Result<Bound, Error> {
        out.clear();
        let long = std::mem::take(&mut self.long);
        let is_cut = self.is_long_cut;
        self.forget_long();
        if is_cut {
            return Err(Error::Malformed("data sent ahead of an execution is more than is kept"));
        }
        let own = usize::from(self.parameters);
        if own == 0 {
            return Ok(Bound::Rewritten);
        }
        let mut reader = Reader { payload: body, at: 10 };
        let mut count = own;
        if attributes {
            // Attributes of the query are behind the parameters. Servers read the number of both whether the flag for
            // it is set or not, and Connector/Python does not set it.
            count = usize::try_from(reader.length()?).unwrap_or(usize::MAX);
            if count < own || count > usize::from(u16::MAX) {
                return Err(Error::Malformed("the number of parameters"));
            }
        }
        let start = reader.at;
        let nulls = reader.take(count.div_ceil(8))?;
        let [has_types] = reader.array()?;
        if has_types == 1 {
            self.take_types(&mut reader, count, attributes)?;
        }
        if self.types.len() != 2 * own {
            return Err(Error::Malformed("an execution without types"));
        }
        let is_as_sent = has_types == 1 && !attributes && long.is_empty();
        if !is_as_sent {
            out.extend_from_slice(&nulls[..own.div_ceil(8)]);
            // The bits of attributes are not the parameters'.
            *out.last_mut().expect("it has parameters") &= u8::MAX >> (7 - (own - 1) % 8);
            out.push(1);
            out.extend_from_slice(&self.types);
        }
        for place in 0..own {
            if let Some(data) = long.get(&(place as u16)) {
                out[place / 8] &= !(1 << (place % 8));
                write_length(data.len(), out);
                out.extend_from_slice(data);
            } else if nulls[place / 8] & (1 << (place % 8)) == 0 {
                let value = take_value(&mut reader, self.types[2 * place])?;
                if !is_as_sent {
                    out.extend_from_slice(value);
                }
            }
        }
        // Servers do not look behind the last value, where mysql2 for Node has a byte per NULL and per long text.
        if is_as_sent && reader.at < body.len() {
            out.extend_from_slice(&body[start..reader.at]);
        }
        let is_whole = reader.at == body.len();
        Ok(if is_as_sent && is_whole { Bound::AsSent(start) } else { Bound::Rewritten })
    }

    fn take_types(&mut self, reader: &mut Reader<'_>, count: usize, named: bool) -> Result<(), Error> {
        self.types.clear();
        let own = 2 * usize::from(self.parameters);
        if !named {
            self.types.extend_from_slice(reader.take(own)?);
            return Ok(());
        }
        for _ in 0..count {
            let kind = reader.take(2)?;
            reader.text()?;
            if self.types.len() < own {
                self.types.extend_from_slice(kind);
            }
        }
        Ok(())
    }

    /// Reads what a COM_STMT_BULK_EXECUTE binds: flags, types (always), then the rows as they were sent.
    pub fn bind_bulk(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<Bound, Error> {
        out.clear();
        self.forget_long();
        let mut reader = Reader { payload: body, at: 5 };
        let flags = u16::from_le_bytes(reader.array()?);
        if flags & BULK_HAS_TYPES != 0 {
            self.types.clear();
            self.types.extend_from_slice(reader.take(2 * usize::from(self.parameters))?);
            return Ok(Bound::AsSent(5));
        }
        if self.types.len() != 2 * usize::from(self.parameters) {
            return Err(Error::Malformed("an execution without types"));
        }
        out.extend_from_slice(&(flags | BULK_HAS_TYPES).to_le_bytes());
        out.extend_from_slice(&self.types);
        out.extend_from_slice(reader.rest());
        Ok(Bound::Rewritten)
    }
}

/// Where the text of a COM_QUERY begins behind its attributes.
pub fn text_start(body: &[u8]) -> Result<usize, Error> {
    let mut reader = Reader { payload: body, at: 1 };
    let count = usize::try_from(reader.length()?).unwrap_or(usize::MAX);
    reader.length()?;
    if count == 0 {
        return Ok(reader.at);
    }
    if count > usize::from(u16::MAX) {
        return Err(Error::Malformed("the number of attributes"));
    }
    let nulls = reader.take(count.div_ceil(8))?;
    let [has_types] = reader.array()?;
    if has_types != 1 {
        return Err(Error::Malformed("attributes without types"));
    }
    let mut kinds = Vec::with_capacity(count);
    for _ in 0..count {
        kinds.push(reader.take(2)?[0]);
        reader.text()?;
    }
    for (place, kind) in kinds.into_iter().enumerate() {
        if nulls[place / 8] & (1 << (place % 8)) == 0 {
            take_value(&mut reader, kind)?;
        }
    }
    Ok(reader.at)
}

#[cfg(test)]
mod tests {
    use super::Statements;

    #[test]
    fn what_is_sent_ahead_is_limited_for_all_statements_of_a_session_together() {
        let mut statements = Statements::default();
        for id in 1..=3 {
            assert!(statements.insert(id, (b"insert into t values (?)", false), 1, 1000));
        }
        let mut add = |id: u32, bytes: usize| {
            let (statement, others) = statements.get_mut(id).unwrap();
            statement.add_long(0, &vec![0; bytes], 100 - others);
            statement.is_long_cut
        };
        assert_eq!((add(1, 30), add(2, 60), add(3, 20), add(1, 10)), (false, false, true, false));
        assert_eq!(statements.get_mut(3).unwrap().1, 100);
        statements.get_mut(2).unwrap().0.forget_long();
        assert_eq!(statements.get_mut(3).unwrap().1, 40);
        statements.remove(1);
        assert_eq!(statements.get_mut(3).unwrap().1, 0);
        statements.clear();
        assert!(statements.get_mut(3).is_none());
    }
}
