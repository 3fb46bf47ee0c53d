//! A recording that may be shown: pseudonyms for what people and programs put into statements, and for who they are.

use std::io::Read;
use std::path::Path;

use anyhow::Context;

use super::edit::{Edited, options_like, refuse_same_file};
use super::encode::types_length;
use super::reader::Reader;
use super::writer::Writer;
use crate::event::{Command, Event, Sink};
use crate::sources;
use base::error::AgentError;
use mysql::reader::Reader as Bytes;
use mysql::types;

/// The key of a file, or a random one.
///
/// # Errors
/// The file cannot be read, or has not 32 bytes.
pub fn key(path: Option<&Path>) -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    let random = Path::new("/dev/urandom");
    let from = path.unwrap_or(random);
    let context = || format!("cannot read {}", from.display());
    let file = std::fs::File::open(from).with_context(context)?;
    let mut bytes = Vec::new();
    file.take(if path.is_some() { 33 } else { 32 }).read_to_end(&mut bytes).with_context(context)?;
    if bytes.len() != key.len() {
        let reason = format!("{} is no key: a key has 32 bytes and no line's end", from.display());
        return Err(AgentError::Input(reason).into());
    }
    key.copy_from_slice(&bytes);
    Ok(key)
}

/// Writes the same events with pseudonyms for literals, parameters, users and hosts. Names of databases, tables and
/// columns stay.
///
/// # Errors
/// A file cannot be read or written.
pub fn run(input: &Path, output: &Path, force: bool, key: &[u8; 32]) -> anyhow::Result<Edited> {
    refuse_same_file(output, &[input.to_owned()])?;
    let mut reader = Reader::open(input)?;
    let mut options = options_like(&[&reader], &[input.to_owned()], force, "anonymised")?;
    options.info.is_anonymised = true;
    let mut writer = Writer::create(output, &options)?;
    let mut pseudonyms = Pseudonyms { key: *key, ..Pseudonyms::default() };
    let (mut text, mut parameters) = (Vec::new(), Vec::new());
    let (mut user, mut host) = (Vec::new(), Vec::new());
    let mut kept = 0;
    while let Some(event) = reader.next()? {
        kept += u64::from(!event.is_state);
        pseudonyms.string(event.user, &mut user);
        pseudonyms.string(event.host, &mut host);
        text.clear();
        if is_statement(event.command) {
            sql::anonymise(event.text, key, &mut text);
        }
        let is_whole = pseudonyms.parameters(&event, &mut parameters);
        writer.event(&Event {
            user: &user,
            host: &host,
            text: &text,
            parameters: &parameters,
            is_cut: event.is_cut || !is_whole,
            // Rows are what they are; on anonymised data they would be others.
            checksum: None,
            ..event
        })?;
    }
    let mut coverage = sources::coverage_of(&reader, &input.display().to_string());
    coverage.events = kept;
    let totals = writer.finish(&coverage)?;
    Ok(Edited { totals, read: kept, kept, forgotten: 0 })
}

fn is_statement(command: Command) -> bool {
    matches!(
        command,
        Command::Query | Command::Prepare | Command::Execute | Command::Fetch | Command::ResetStatement
    ) || command == Command::Close
        || command == Command::Other(0xfa)
}

fn is_number(kind: u8) -> bool {
    use types::{DOUBLE, FLOAT, INT24, LONG, LONGLONG, SHORT, TINY};
    [TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE].contains(&kind)
}

/// Values get the pseudonyms that they would have as literals of a statement.
#[derive(Default)]
struct Pseudonyms {
    key: [u8; 32],
    literal: Vec<u8>,
    replaced: Vec<u8>,
}

impl Pseudonyms {
    fn string(&mut self, value: &[u8], out: &mut Vec<u8>) {
        out.clear();
        self.literal.clear();
        self.literal.push(b'\'');
        for &byte in value {
            if byte == b'\'' || byte == b'\\' {
                self.literal.push(b'\\');
            }
            self.literal.push(byte);
        }
        self.literal.push(b'\'');
        sql::anonymise_string(&self.literal, &self.key, &mut self.replaced);
        let inner =
            self.replaced.strip_prefix(b"'").and_then(|rest| rest.strip_suffix(b"'")).unwrap_or_default();
        let mut bytes = inner.iter();
        while let Some(&byte) = bytes.next() {
            out.push(if byte == b'\\' { bytes.next().copied().unwrap_or(byte) } else { byte });
        }
        if out.len() != value.len() {
            out.clear();
            out.resize(value.len(), b'x');
        }
    }

    /// A number as digits.
    fn number(&mut self, value: &str) -> &str {
        sql::anonymise(value.as_bytes(), &self.key, &mut self.replaced);
        std::str::from_utf8(&self.replaced).unwrap_or("0")
    }

    /// The parameters of an execution with their values replaced; false, and nothing, where they make no sense.
    fn parameters(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> bool {
        out.clear();
        if event.parameters.is_empty() {
            return true;
        }
        let count = usize::from(event.parameter_count);
        let length = types_length(u64::from(event.parameter_count), event.parameters.len() as u64);
        let (head, values) = event.parameters.split_at(usize::try_from(length).unwrap_or(0));
        if event.command != Command::Execute || head.is_empty() {
            return false;
        }
        out.extend_from_slice(head);
        let kinds = &head[count.div_ceil(8) + 1..];
        let stays = sql::kept_placeholders(event.text);
        let mut reader = Bytes { payload: values, at: 0 };
        for index in 0..count {
            if head[index / 8] & (1 << (index % 8)) != 0 {
                continue;
            }
            let from = reader.at;
            let (kind, is_unsigned) = (kinds[2 * index], kinds[2 * index + 1] & 0x80 != 0);
            if types::take_value(&mut reader, kind).is_err() || reader.at > values.len() {
                out.clear();
                return false;
            }
            let value = &values[from..reader.at];
            if is_number(kind) && stays.get(index) == Some(&true) {
                out.extend_from_slice(value);
            } else {
                self.value(kind, is_unsigned, value, out);
            }
        }
        true
    }

    /// One value with its length before it, where its type has one.
    fn value(&mut self, kind: u8, is_unsigned: bool, value: &[u8], out: &mut Vec<u8>) {
        match kind {
            types::NULL => {}
            types::TINY | types::SHORT | types::YEAR | types::LONG | types::INT24 | types::LONGLONG => {
                out.extend_from_slice(&self.integer(value, is_unsigned)[..value.len()]);
            }
            types::FLOAT => {
                let number = f32::from_le_bytes(value.try_into().unwrap_or_default());
                let replaced: f32 = self.number(&format!("{number:e}")).parse().unwrap_or(0.0);
                out.extend_from_slice(&replaced.to_le_bytes());
            }
            types::DOUBLE => {
                let number = f64::from_le_bytes(value.try_into().unwrap_or_default());
                let replaced: f64 = self.number(&format!("{number:e}")).parse().unwrap_or(0.0);
                out.extend_from_slice(&replaced.to_le_bytes());
            }
            types::TIMESTAMP | types::DATE | types::DATETIME => self.date(value, out),
            types::TIME => self.time(value, out),
            _ => {
                let (length, text) = split_length(value);
                out.extend_from_slice(length);
                let mut replaced = Vec::new();
                self.string(text, &mut replaced);
                out.extend_from_slice(&replaced);
            }
        }
    }

    /// Little-endian, as long as it was; zero stays zero.
    fn integer(&mut self, value: &[u8], is_unsigned: bool) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..value.len()].copy_from_slice(value);
        let unsigned = u64::from_le_bytes(bytes);
        let spare = 64 - 8 * u32::try_from(value.len()).unwrap_or(8);
        let signed = unsigned.cast_signed() << spare >> spare;
        let (is_negative, size) =
            if is_unsigned { (false, unsigned) } else { (signed < 0, signed.unsigned_abs()) };
        let most = u64::MAX >> (spare + u32::from(!is_unsigned));
        // A pseudonym has as many digits; where it is too large for the type it comes round.
        let replaced = self.number(&size.to_string()).parse::<u128>().unwrap_or(0) % (u128::from(most) + 1);
        let replaced = u64::try_from(replaced).unwrap_or(0);
        (if is_negative { replaced.wrapping_neg() } else { replaced }).to_le_bytes()
    }

    /// Length, year, month, day, and as much of a time as there is.
    fn date(&mut self, value: &[u8], out: &mut Vec<u8>) {
        let [length, rest @ ..] = value else {
            return;
        };
        out.push(*length);
        let start = out.len();
        out.extend_from_slice(rest);
        if rest.len() < 4 {
            return;
        }
        let year = u16::from_le_bytes([rest[0], rest[1]]);
        let mut replaced = Vec::new();
        self.string(format!("{year:04}-{:02}-{:02}", rest[2], rest[3]).as_bytes(), &mut replaced);
        let part = |range: std::ops::Range<usize>| {
            replaced.get(range).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u16>().ok())
        };
        if let (Some(year), Some(month), Some(day)) = (part(0..4), part(5..7), part(8..10)) {
            out[start..start + 2].copy_from_slice(&year.to_le_bytes());
            out[start + 2] = u8::try_from(month).unwrap_or(1);
            out[start + 3] = u8::try_from(day).unwrap_or(1);
        }
        if rest.len() >= 7 {
            self.clock(&mut out[start + 4..]);
        }
    }

    /// Length, sign, days, and a time of day: days become none.
    fn time(&mut self, value: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(value);
        if value.len() >= 9 {
            out[start + 2..start + 6].fill(0);
            self.clock(&mut out[start + 6..]);
        }
    }

    /// Hour, minute, second, and microseconds where there are any.
    fn clock(&mut self, clock: &mut [u8]) {
        let mut text = format!("{:02}:{:02}:{:02}", clock[0], clock[1], clock[2]);
        if let Some(Ok(micros)) = clock.get(3..7).map(TryInto::try_into) {
            text.push_str(&format!(".{:06}", u32::from_le_bytes(micros)));
        }
        let mut replaced = Vec::new();
        self.string(text.as_bytes(), &mut replaced);
        let part = |range: std::ops::Range<usize>| {
            replaced
                .get(range)
                .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u32>().ok())
                .unwrap_or(0)
        };
        for (place, below) in [24, 60, 60].into_iter().enumerate() {
            clock[place] = (part(3 * place..3 * place + 2) % below) as u8;
        }
        if let Some(micros) = clock.get_mut(3..7) {
            micros.copy_from_slice(&(part(9..15) % 1_000_000).to_le_bytes());
        }
    }
}

/// A length-encoded integer and what follows it.
fn split_length(value: &[u8]) -> (&[u8], &[u8]) {
    let length = match value.first() {
        Some(0xfc) => 3,
        Some(0xfd) => 4,
        Some(0xfe) => 9,
        Some(_) => 1,
        None => 0,
    };
    value.split_at(length.min(value.len()))
}
