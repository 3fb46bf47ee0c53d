//! Packets as tcpdump prints them with `-x`, `-X`, `-xx` or `-XX`: a line that begins with a time, then lines of hex.
//!
//! What a line of text says of its packet is not read, except for its time: everything else is in the bytes. A time has
//! a date with `-tt` and `-tttt`. Without one, days are counted from 2 January 1970; differences are right all the same.

use std::io::{BufRead, BufReader, Read};

use super::frame::{Frame, Frames};
use super::link::Link;
use crate::slow_log::time::stamp;

/// Longer lines are no tcpdump's; what follows in them is passed over.
const LONGEST_LINE: usize = 64 << 10;
/// More than a packet with segmentation offload has.
const LONGEST_PACKET: usize = 1 << 20;
/// So many lines with a time show what the times count from.
const LOOKED_AT: usize = 64;
const LOOKED_AT_BYTES: usize = 1 << 20;
/// So many that never go back cannot be differences by chance.
const ENOUGH: usize = 16;
const S_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * S_NS;

/// What a line begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    /// Since 1970; without a zone, as UTC.
    Moment { ns: u64, is_local: bool },
    /// Since midnight.
    Clock(u64),
    /// Since the first packet, or the one before.
    Relative(u64),
}

/// What the times of a text count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Moments { is_local: bool },
    Clocks,
    SinceFirst,
    SinceBefore,
    None,
}

pub struct Dump<R> {
    input: BufReader<R>,
    /// Lines that were looked at and not read yet, as they came.
    ahead: std::collections::VecDeque<Vec<u8>>,
    times: Times,
    offset: u64,
}

impl<R: Read> Dump<R> {
    /// Looks at so much of a text as shows what its times are.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(input: R) -> anyhow::Result<Self> {
        let mut dump = Self {
            input: BufReader::with_capacity(64 << 10, input),
            ahead: [].into(),
            times: Times::None,
            offset: 0,
        };
        let (mut relative, mut bytes) = (Vec::new(), 0);
        while relative.len() < LOOKED_AT && bytes < LOOKED_AT_BYTES {
            let Some(line) = dump.read_line()? else { break };
            bytes += line.len();
            let found = if is_hex(&line) { None } else { time_of(without_number(&line)) };
            dump.ahead.push_back(line);
            match found {
                Some(Stamp::Moment { is_local, .. }) => {
                    dump.times = Times::Moments { is_local };
                    return Ok(dump);
                }
                Some(Stamp::Clock(_)) => {
                    dump.times = Times::Clocks;
                    return Ok(dump);
                }
                Some(Stamp::Relative(ns)) => relative.push(ns),
                None => {}
            }
        }
        if relative.windows(2).any(|pair| pair[1] < pair[0]) {
            dump.times = Times::SinceBefore;
        } else if relative.len() >= ENOUGH {
            dump.times = Times::SinceFirst;
        }
        Ok(dump)
    }

    /// Whether packets have times, so that response times mean something.
    pub fn has_times(&self) -> bool {
        self.times != Times::None
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn read_line(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.input.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut line)?;
        Ok((!line.is_empty()).then_some(line))
    }

    fn next_line(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let line = match self.ahead.pop_front() {
            Some(line) => Some(line),
            None => self.read_line()?,
        };
        self.offset += line.as_ref().map_or(0, Vec::len) as u64;
        Ok(line)
    }

    /// What is to be known of the times.
    fn note(&self) -> Option<&'static str> {
        match self.times {
            Times::Moments { is_local: false } => None,
            Times::Moments { is_local: true } => Some("its times have no zone: they are read as UTC"),
            Times::Clocks => Some(
                "its times have no date: days are counted from 2 January 1970 (print with tcpdump -tttt)",
            ),
            Times::SinceFirst | Times::SinceBefore => Some(
                "its times count from its first packet: that is read as 2 January 1970 (print with tcpdump -tttt)",
            ),
            Times::None => Some(
                "its packets have no time that can be told, so nothing has a response time (print with tcpdump -tttt)",
            ),
        }
    }
}

/// A packet whose lines are coming.
#[derive(Default)]
struct Packet {
    bytes: Vec<u8>,
    time_ns: u64,
    offset: u64,
    is_damaged: bool,
    /// A line with a time announced it.
    is_begun: bool,
}

/// Reads a text to its end.
pub fn read<R: Read>(dump: &mut Dump<R>, frames: &mut impl Frames) -> anyhow::Result<()> {
    let mut packet = Packet::default();
    let mut item = 0;
    let mut clock = Clock::default();
    if let Some(note) = dump.note() {
        frames.note(note);
    }
    let times = dump.times;
    loop {
        let offset = dump.offset;
        let Some(line) = dump.next_line()? else { break };
        if let Some((at, bytes)) = hex(&line) {
            if at == 0 && !packet.bytes.is_empty() {
                // A line of text between two packets is missing: the time of the second is not known.
                finish(&mut packet, &mut item, frames)?;
                packet = Packet { offset, is_damaged: true, is_begun: true, ..Packet::default() };
            }
            packet.is_damaged |= at != packet.bytes.len() || packet.bytes.len() > LONGEST_PACKET;
            if !packet.is_damaged {
                packet.bytes.extend_from_slice(&bytes);
            }
            packet.is_begun = true;
            continue;
        }
        let line = without_number(&line);
        let found = time_of(line);
        let is_head = found.is_some()
            || (times == Times::None && line.first().is_some_and(|byte| !byte.is_ascii_whitespace()));
        if is_head {
            finish(&mut packet, &mut item, frames)?;
            packet = Packet { time_ns: clock.time_ns(found, times), offset, ..Packet::default() };
        }
    }
    finish(&mut packet, &mut item, frames)
}

fn finish(packet: &mut Packet, item: &mut u64, frames: &mut impl Frames) -> anyhow::Result<()> {
    let Packet { bytes, time_ns, offset, is_damaged, is_begun } = std::mem::take(packet);
    if !is_begun {
        return Ok(());
    }
    *item += 1;
    if is_damaged {
        frames.damage(offset, *item, bytes.len() as u64, "a packet of which not all lines are here");
        return Ok(());
    }
    let frame =
        Frame { time_ns, link: link_of(&bytes), data: &bytes, wire_bytes: bytes.len(), offset, item: *item };
    frames.frame(&frame)
}

/// From what a line says to ns since 1970.
#[derive(Default)]
struct Clock {
    days: u64,
    last_ns: u64,
}

impl Clock {
    fn time_ns(&mut self, found: Option<Stamp>, times: Times) -> u64 {
        match (found, times) {
            (Some(Stamp::Moment { ns, .. }), _) => ns,
            (Some(Stamp::Clock(ns)), _) => {
                // Midnight, not a packet that was captured a moment too late.
                if self.last_ns > ns + DAY_NS / 2 {
                    self.days += 1;
                }
                self.last_ns = ns;
                DAY_NS * (1 + self.days) + ns
            }
            (Some(Stamp::Relative(ns)), Times::SinceBefore) => {
                self.last_ns = self.last_ns.saturating_add(ns);
                DAY_NS + self.last_ns
            }
            (Some(Stamp::Relative(ns)), Times::SinceFirst) => DAY_NS + ns,
            _ => 0,
        }
    }
}

/// A line behind the number of its packet, which `tcpdump -#` pads to five columns and puts two blanks behind.
fn without_number(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|byte| **byte == b' ').count();
    let digits = line[blanks..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_number = (1..=10).contains(&digits) && blanks + digits >= 5;
    line[blanks + digits..].strip_prefix(b"  ").filter(|_| is_number).unwrap_or(line)
}

/// The time with which a line begins.
fn time_of(line: &[u8]) -> Option<Stamp> {
    if let Some(rest) = line.strip_prefix(b" ") {
        return clock(rest).map(Stamp::Relative);
    }
    if let Some(ns) = clock(line) {
        return Some(Stamp::Clock(ns));
    }
    if line.get(4) == Some(&b'-') {
        let (found, rest) = stamp(line)?;
        return rest.starts_with(b" ").then_some(Stamp::Moment { ns: found.ns, is_local: found.is_local });
    }
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=10).contains(&digits) {
        return None;
    }
    let seconds: u64 = std::str::from_utf8(&line[..digits]).ok()?.parse().ok()?;
    Some(Stamp::Moment { ns: seconds * S_NS + fraction(&line[digits..])?, is_local: false })
}

/// `HH:MM:SS.` and a fraction, before a blank.
fn clock(text: &[u8]) -> Option<u64> {
    let two = |at: usize| {
        let [tens, ones] = *text.get(at..)?.first_chunk::<2>()?;
        (tens.is_ascii_digit() && ones.is_ascii_digit())
            .then(|| u64::from(tens - b'0') * 10 + u64::from(ones - b'0'))
    };
    let (hours, minutes, seconds) = (two(0)?, two(3)?, two(6)?);
    if text[2] != b':' || text[5] != b':' || minutes > 59 || seconds > 60 {
        return None;
    }
    Some((hours * 3600 + minutes * 60 + seconds) * S_NS + fraction(text.get(8..)?)?)
}

/// `.` and six digits, or nine, before a blank.
fn fraction(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b".")?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_end = text.get(1 + digits).is_some_and(|byte| *byte == b' ');
    let value: u64 = std::str::from_utf8(&text[1..1 + digits]).ok()?.parse().ok()?;
    match digits {
        6 => Some(value * 1000),
        9 => Some(value),
        _ => None,
    }
    .filter(|_| is_end)
}

fn is_hex(line: &[u8]) -> bool {
    hex(line).is_some()
}

/// Whether a text of tcpdump begins with this line of a packet's bytes.
#[must_use]
pub fn is_first_hex(line: &[u8]) -> bool {
    hex(line).is_some_and(|(at, bytes)| at == 0 && !bytes.is_empty())
}

/// Whether this is a text of tcpdump that has lines of packets and no bytes of them: without an option, or with `-A`.
#[must_use]
pub fn is_without_bytes(text: &[u8]) -> bool {
    let is_packet = |line: &[u8]| {
        let words: Vec<_> =
            line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).take(9).collect();
        let ip = words.iter().position(|word| matches!(*word, b"IP" | b"IP6"));
        let is_packet = ip.is_some_and(|at| {
            words.get(at + 2) == Some(&&b">"[..])
                && words.get(at + 3).is_some_and(|word| word.ends_with(b":"))
        });
        is_packet && (time_of(line).is_some() || ip == Some(0))
    };
    text.split(|byte| *byte == b'\n').any(is_packet) && !text.split(|byte| *byte == b'\n').any(is_first_hex)
}

/// The place of a line's bytes in the packet, and these: groups of two, one blank between. Two blanks end them, and
/// letters follow.
fn hex(line: &[u8]) -> Option<(usize, Vec<u8>)> {
    let line = line.trim_ascii_start();
    let rest = line.strip_prefix(b"0x")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if !(4..=8).contains(&digits) || rest.get(digits) != Some(&b':') {
        return None;
    }
    let at = usize::from_str_radix(std::str::from_utf8(&rest[..digits]).ok()?, 16).ok()?;
    let mut text = rest[digits + 1..].trim_ascii_start();
    let mut bytes = Vec::with_capacity(16);
    while bytes.len() < 16 {
        let Some(pair) = text.first_chunk::<2>().filter(|pair| pair.iter().all(u8::is_ascii_hexdigit)) else {
            break;
        };
        bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
        text = &text[2..];
        match text {
            [b' ', second, ..] if second.is_ascii_hexdigit() => text = &text[1..],
            [next, ..] if next.is_ascii_hexdigit() => {}
            _ => break,
        }
    }
    (!bytes.is_empty()).then_some((at, bytes))
}

/// What the bytes begin with: `-x` leaves the link layer out, `-xx` does not, and neither says which it is.
fn link_of(bytes: &[u8]) -> Link {
    let is_ip = |at: usize| ip_length(bytes.get(at..).unwrap_or_default());
    let is_all = |at: usize| is_ip(at).is_some_and(|length| length == bytes.len() - at);
    let half = |at: usize| bytes.get(at..at + 2);
    let is_network = |at: usize| {
        matches!(
            half(at),
            Some([0x08, 0] | [0x86, 0xdd] | [0x81, 0] | [0x88, 0x47 | 0x64 | 0xa8] | [0x08, 6])
        )
    };
    if is_all(0) {
        return Link::Raw;
    }
    // Shorter packets are padded, so the length of IP need not be that of the rest.
    let fits = |at: usize, start: usize| {
        is_network(at) && (!matches!(half(at), Some([0x08, 0] | [0x86, 0xdd])) || is_ip(start).is_some())
    };
    if fits(12, 14) {
        return Link::Ethernet;
    }
    if fits(14, 16) {
        return Link::Cooked;
    }
    if fits(0, 20) {
        return Link::Cooked2;
    }
    match is_ip(0) {
        Some(_) => Link::Raw,
        // A tag whose EtherType belongs to the link layer, which is left out.
        None if matches!(half(2), Some([0x08, 0] | [0x86, 0xdd])) && is_ip(4).is_some() => Link::Tagged,
        None if matches!(
            bytes,
            [2 | 10 | 24 | 28 | 30, 0, 0, 0, ..] | [0, 0, 0, 2 | 10 | 24 | 28 | 30, ..]
        ) =>
        {
            Link::Loopback
        }
        // ARP and others without a header of their link.
        None => Link::NoIp,
    }
}

/// The length that a header of IP gives, if it is one.
fn ip_length(bytes: &[u8]) -> Option<usize> {
    let length = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    match bytes.first()? {
        0x45..=0x4f if bytes.len() >= 20 => Some(length(2)),
        0x60..=0x6f if bytes.len() >= 40 => Some(length(4) + 40),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_every_form() {
        let moment = |ns, is_local| Some(Stamp::Moment { ns, is_local });
        for (line, expected) in [
            ("2026-11-28 07:05:14.622922 IP a > b", moment(1_795_849_514_622_922_000, true)),
            ("1795849514.622922 IP a > b", moment(1_795_849_514_622_922_000, false)),
            ("1795849514.622922001 IP a > b", moment(1_795_849_514_622_922_001, false)),
            ("07:05:14.622922 IP a > b", Some(Stamp::Clock(25_514_622_922_000))),
            (" 00:00:00.000100 IP a > b", Some(Stamp::Relative(100_000))),
            ("IP 127.0.0.1.44872 > 127.0.0.1.33306: tcp 0", None),
            ("    127.0.0.1.44872 > 127.0.0.1.33306: Flags [S]", None),
            ("10.0.0.1.40000 > 10.0.0.2.3306: tcp 5", None),
            ("12:30 lunch", None),
        ] {
            assert_eq!(time_of(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn bytes_of_a_line() {
        for (line, expected) in [
            ("\t0x0000:  4500 003c a5", Some((0, vec![0x45, 0, 0, 0x3c, 0xa5]))),
            ("\t0x0010:  4500  E.", Some((16, vec![0x45, 0]))),
            // What is printed beside the bytes may look like some.
            (
                "\t0x0010:  3030 3030 3030 3030 3030 3030 3030 3030  0000000000000000\r",
                Some((16, vec![0x30; 16])),
            ),
            ("        0x0020:  ab  ab", Some((32, vec![0xab]))),
            ("0x0000 4500", None),
            ("select 0x0000: 4500", None),
        ] {
            assert_eq!(hex(line.as_bytes()), expected, "{line}");
        }
    }
}
