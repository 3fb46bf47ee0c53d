//! A recording that may be shown: pseudonyms for what people and programs put into statements, and for who they are.

use std::io::Read;
use std::path::Path;

use super::edit::{Edited, options_like, refuse_same_file};
use super::encode::types_length;
use super::place::Destination;
use super::reader::Reader;
use super::writer::Writer;
use crate::commands::PROCESS_KILL;
use crate::event::{Command, Event, Sink};
use crate::sources;
use base::error::AgentError;
use mysql::reader::Reader as Bytes;
use mysql::types;
use sql::Scheme;

/// The key of a file, or a random one.
///
/// # Errors
/// The file cannot be read, or has not 32 bytes.
pub fn key(path: Option<&Path>) -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    let random = Path::new("/dev/urandom");
    let from = path.unwrap_or(random);
    let unreadable = |error: std::io::Error| AgentError::unreadable("the key ", from, &error);
    let opened = path.map_or_else(|| std::fs::File::open(random), |path| base::door::open(path, true));
    let file = opened.map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(if path.is_some() { 33 } else { 32 }).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() != key.len() {
        let reason = format!("{} is no key: a key has 32 bytes and no line's end", from.display());
        return Err(AgentError::Named(reason).into());
    }
    key.copy_from_slice(&bytes);
    Ok(key)
}

/// Writes the same events with pseudonyms for literals, parameters, users and hosts. Names of databases, tables and
/// columns stay.
///
/// # Errors
/// A file cannot be read or written.
pub fn run(input: &Path, output: &Destination<'_>, scheme: &Scheme) -> anyhow::Result<Edited> {
    refuse_same_file(output.path, &[input.to_owned()])?;
    let mut reader = Reader::open(input)?;
    let mut options = options_like(&[&reader], &[input.to_owned()], output.force, "anonymised")?;
    options.info.is_anonymised = true;
    // Files and hosts are often named after people, customers and machines.
    options.info.sources = vec!["anonymised".to_owned()];
    options.info.host.clear();
    let mut writer = Writer::create(output.path, &options)?;
    let mut pseudonyms = Pseudonyms { scheme: *scheme, ..Pseudonyms::default() };
    let (mut text, mut parameters) = (Vec::new(), Vec::new());
    let (mut user, mut host) = (Vec::new(), Vec::new());
    let mut kept = 0;
    while let Some(event) = reader.next()? {
        output.check(kept)?;
        kept += u64::from(!event.is_state);
        pseudonyms.string(event.user, &mut user);
        pseudonyms.string(event.host, &mut host);
        text.clear();
        if event.command.has_text() {
            sql::anonymise(event.text, event.is_cut, scheme, &mut text);
        }
        let is_whole = pseudonyms.parameters(&event, &mut parameters);
        writer.event(&Event {
            user: &user,
            host: &host,
            text: &text,
            parameters: &parameters,
            is_cut: event.is_cut || !is_whole,
            connection: event.connection.map(|connection| pseudonyms.connection(connection)),
            statement: pseudonyms.statement(&event),
            // Rows are what they are; on anonymised data they would be others.
            checksum: None,
            ..event
        })?;
    }
    let mut coverage = sources::coverage_of(&reader, &input.display().to_string());
    coverage.events = kept;
    coverage.places.iter_mut().for_each(|place| "anonymised".clone_into(&mut place.input));
    let totals = writer.finish(&coverage)?;
    Ok(Edited { totals, read: kept, kept, forgotten: 0 })
}

fn is_number(kind: u8) -> bool {
    use types::{DOUBLE, FLOAT, INT24, LONG, LONGLONG, SHORT, TINY};
    [TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE].contains(&kind)
}

/// Values get the pseudonyms that they would have as literals of a statement.
#[derive(Default)]
struct Pseudonyms {
    scheme: Scheme,
    replaced: Vec<u8>,
}

impl Pseudonyms {
    fn string(&mut self, value: &[u8], out: &mut Vec<u8>) {
        sql::anonymise_name(value, &self.scheme, out);
    }

    /// A number as digits.
    fn number(&mut self, value: &str) -> &str {
        sql::anonymise(value.as_bytes(), false, &self.scheme, &mut self.replaced);
        std::str::from_utf8(&self.replaced).unwrap_or("0")
    }

    /// A connection has the pseudonym that it has in a KILL.
    fn connection(&mut self, connection: u64) -> u64 {
        self.number(&connection.to_string()).parse().unwrap_or(0)
    }

    /// Of COM_PROCESS_KILL the number is a connection's.
    fn statement(&mut self, event: &Event<'_>) -> Option<u32> {
        match event.command {
            Command::Other(PROCESS_KILL) => {
                event.statement.and_then(|named| u32::try_from(self.connection(named.into())).ok())
            }
            _ => event.statement,
        }
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
                let replaced: Option<f32> = self.float(f64::from(number), &number.to_string()).parse().ok();
                let replaced = replaced.filter(|replaced| replaced.is_finite()).unwrap_or(number);
                out.extend_from_slice(&replaced.to_le_bytes());
            }
            types::DOUBLE => {
                let number = f64::from_le_bytes(value.try_into().unwrap_or_default());
                let replaced: Option<f64> = self.float(number, &number.to_string()).parse().ok();
                let replaced = replaced.filter(|replaced| replaced.is_finite()).unwrap_or(number);
                out.extend_from_slice(&replaced.to_le_bytes());
            }
            types::TIMESTAMP | types::DATE | types::DATETIME => self.date(value, out),
            types::TIME => self.time(value, out),
            _ => {
                let (length, text) = split_length(value);
                let mut replaced = Vec::new();
                self.string(text, &mut replaced);
                if replaced.len() == text.len() {
                    out.extend_from_slice(length);
                } else {
                    put_length(out, replaced.len());
                }
                out.extend_from_slice(&replaced);
            }
        }
    }

    /// A number that a client sent in binary, `plain` without an exponent, as a statement would have it: some clients send
    /// every number so, and 5 is 5.
    fn float(&mut self, number: f64, plain: &str) -> &str {
        let is_usual = number == 0.0 || (1e-5..1e17).contains(&number.abs());
        let short = format!("{number:e}");
        self.number(if is_usual { plain } else { &short })
    }

    /// Little-endian, as long as it was; zero stays zero.
    fn integer(&mut self, value: &[u8], is_unsigned: bool) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..value.len()].copy_from_slice(value);
        let unsigned = u64::from_le_bytes(bytes);
        let bits = 8 * u32::try_from(value.len()).unwrap_or(8);
        let spare = 64 - bits;
        let (number, least, end) = if is_unsigned {
            (i128::from(unsigned), 0, 1_i128 << bits)
        } else {
            (
                i128::from(unsigned.cast_signed() << spare >> spare),
                -(1_i128 << (bits - 1)),
                1_i128 << (bits - 1),
            )
        };
        let replaced = self.number(&number.to_string()).parse().unwrap_or(0_i128);
        // Only one in order can be too large for the type.
        let replaced = replaced.clamp(least, end - 1).to_le_bytes();
        replaced[..8].try_into().unwrap_or_default()
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
        if value.len() >= 9 && !self.scheme.order.dates {
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

/// A length-encoded integer, of a text that is a number.
fn put_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(length @ ..=250) => out.push(length),
        _ => {
            out.push(0xfc);
            out.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
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
