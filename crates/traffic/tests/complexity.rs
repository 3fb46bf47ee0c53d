//! Work grows with the length of what is read and no faster, whatever is in it: a log holds what clients sent, and a
//! capture or a recording may come from an attacker.

use std::io::{self, Read};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use traffic::digest::{Digest, DigestOptions};
use traffic::event::Event;
use traffic::packets::{PacketOptions, read as read_packets};
use traffic::recording::{Reader as Recording, Writer, WriterOptions};
use traffic::stream::{Opened, Side, Streams};
use traffic::wire::Decoder;
use traffic::{digest, general_log, slow_log};

/// Pieces as a pipe gives them.
struct Pieces<'d>(&'d [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(buffer.len()).min(self.0.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// The least of a few, because neighbours on the machine cost CPU time as well.
fn least_cost(mut work: impl FnMut()) -> Duration {
    let cost = |work: &mut dyn FnMut()| {
        let begun = cpu_time();
        work();
        cpu_time().saturating_sub(begun)
    };
    (0..2).map(|_| cost(&mut work)).min().unwrap_or_default()
}

/// Four times the input takes four times as long where the work is linear, sixteen times where it is quadratic. The
/// limit is 2.5 times for twice the input.
fn must_be_linear(name: &str, length: usize, input: impl Fn(usize) -> Vec<u8>, read: impl Fn(&[u8])) {
    let (short, long) = (input(length), input(4 * length));
    let is_linear = (0..5).any(|_| {
        let (short, long) = (least_cost(|| read(&short)), least_cost(|| read(&long)));
        long <= short * 25 / 4 + Duration::from_millis(10)
    });
    assert!(is_linear, "{name}");
}

const TIME: &str = "# Time: 2026-01-31T12:00:00.000000Z\n";
const USER: &str = "# User@Host: a[a] @ h []  Id: 5\n";
const QUERY: &str = "# Query_time: 1.0  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 1\n";

/// Lines that a search for an end, or for the next event, may read again and again; `N` is another number each time.
const SLOW_PARTS: &[&str] = &[
    "#\n",
    "# a\n",
    "# a: b\n",
    "# a: b ",
    "# Time: x\n",
    "# User@Host: x\n",
    "# User@Host: a[a] @ h []\n",
    "# Time: 2026-01-31T12:00:00.000000Z\n",
    "# Query_time: x\n",
    "# Query_time: 1\nselect 1;\n",
    "# administrator command: Ping;\n",
    "# Time: x\n# Query_time: 1\nN;\n",
    "'\n# Time: 2026-01-31T12:00:00.000000Z\n",
    "/*\n# User@Host: a[a] @ h []\n",
    "Time                 Id Command    Argument\n",
    "Tcp port: 3306\n",
    "SET timestamp=1;\n",
    "use a;\n",
    "use a",
    ";\n",
    "\n",
    "a",
];

const GENERAL_PARTS: &[&str] = &[
    "2026-01-31T12:00:00.000000Z\t    7 Query\tselect 1\n",
    "2026-01-31T12:00:00.000000Z\t    N Connect\ta@h on d\n",
    "2026-01-31T12:00:00.000000Z\t    N Quit\t\n",
    "2026-01-31T12:00:00.000000Z\t    7 Init DB\tdN\n",
    "\t\t    7 Query\ta\n",
    "2026-01-31T12:00:00.000000Z\t    7 Query\n",
    "2026",
    "2026\n",
    "\t",
    "          1 Query     [N] a\n",
    "Time                 Id Command    Argument\n",
    "Tcp port: 3306\n",
    "\n",
    "a",
];

fn of_length(around: [&str; 2], part: &str, length: usize) -> Vec<u8> {
    let mut text = around[0].to_owned();
    let mut number = 10_000;
    while text.len() < length {
        text.push_str(&part.replace('N', &number.to_string()));
        number += 1;
    }
    (text + around[1]).into_bytes()
}

fn logs(parts: &[&str], before: &str, read: impl Fn(Pieces<'_>)) {
    for part in parts {
        for around in [["", ""], [before, ""], [before, "select 1;\n"]] {
            for piece_bytes in [usize::MAX, 4096] {
                let name = format!("{part:?} in {around:?} by {piece_bytes}");
                let input = |length| of_length(around, part, length);
                must_be_linear(&name, 24 << 10, input, |log| read(Pieces(log, piece_bytes)));
            }
        }
    }
}

#[test]
fn a_slow_log_four_times_as_long_is_four_times_the_work() {
    logs(SLOW_PARTS, &[TIME, USER, QUERY].concat(), |log| {
        let coverage = slow_log::read(log, "log", &mut |_: &Event<'_>| Ok(())).unwrap();
        assert!(coverage.skipped_bytes <= coverage.bytes);
    });
}

#[test]
fn a_general_log_four_times_as_long_is_four_times_the_work() {
    logs(GENERAL_PARTS, "2026-01-31T12:00:00.000000Z\t    7 Query\tselect 1\n", |log| {
        let coverage = general_log::read(log, "log", &mut |_: &Event<'_>| Ok(())).unwrap();
        assert!(coverage.skipped_bytes <= coverage.bytes);
    });
}

/// Longer than a header may be: what is given up must not be read again from its next line, whatever that looks like.
#[test]
fn a_header_that_does_not_end_is_given_up_once() {
    for part in ["#\n", "# a: b\n", "# Time: x\n"] {
        let input = |length| of_length([QUERY, ""], part, length);
        must_be_linear(part, 2 * slow_log::MAX_HEADER_BYTES, input, |log| {
            let coverage = slow_log::read(Pieces(log, 64 << 10), "log", &mut |_: &Event<'_>| Ok(())).unwrap();
            assert_eq!(coverage.bytes, log.len() as u64);
            assert!(coverage.damaged > 0 && coverage.skipped_bytes > log.len() as u64 / 2);
        });
    }
}

#[derive(Default)]
struct Bytes(u64);

impl Streams for Bytes {
    fn opened(&mut self, _: u64, _: &Opened) -> anyhow::Result<()> {
        Ok(())
    }

    fn bytes(&mut self, _: u64, _: u64, _: Side, bytes: &[u8]) -> anyhow::Result<()> {
        self.0 += bytes.len() as u64;
        Ok(())
    }

    fn gap(&mut self, _: u64, _: u64, _: Side, _: Option<u64>) -> anyhow::Result<()> {
        Ok(())
    }

    fn closed(&mut self, _: u64, _: u64) -> anyhow::Result<()> {
        Ok(())
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        self.closed(0, session)
    }
}

/// A capture of raw IP, a millisecond between the packets: from port, to port, sequence, acknowledged, flags, bytes.
fn capture(packets: impl Iterator<Item = (u16, u16, u32, u32, u8, usize)>) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 101] {
        file.extend(word.to_le_bytes());
    }
    for (number, (from, to, sequence, acknowledged, flags, length)) in packets.enumerate() {
        let total = 40 + length;
        let micros = number as u64 * 1000;
        for word in [(micros / 1_000_000) as u32, (micros % 1_000_000) as u32, total as u32, total as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0x45, 0]);
        file.extend((total as u16).to_be_bytes());
        file.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        file.extend(from.to_be_bytes());
        file.extend(to.to_be_bytes());
        file.extend(sequence.to_be_bytes());
        file.extend(acknowledged.to_be_bytes());
        file.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        file.resize(file.len() + length, b'x');
    }
    file
}

const ACK: u8 = 0x10;
const SYN: u8 = 0x02;

#[test]
fn a_capture_four_times_as_long_is_four_times_the_work() {
    type Packet = (u16, u16, u32, u32, u8, usize);
    type Shape = fn(u32) -> Packet;
    let shapes: [(&str, Shape); 7] = [
        ("holes before every packet", |i| (5000, 3306, 1000 + 3 * i, 1, ACK, 1)),
        ("from the last to the first", |i| (5000, 3306, 900_000 - 3 * i, 1, ACK, 1)),
        ("the same again", |i| (5000, 3306, 1000 + i % 2, 1, ACK, 1)),
        ("each side waits for the other", |i| match i % 2 {
            0 => (5000, 3306, 1000 + 4 * i, 9000 + 4 * i, ACK, 2),
            _ => (3306, 5000, 1000 + 4 * i, 9000 + 4 * i, ACK, 2),
        }),
        ("new connections", |i| ((5000 + i % 50_000) as u16, 3306, i, 0, SYN, 0)),
        ("one connection asked for again", |i| (5000, 3306, i.wrapping_mul(7919), 0, SYN, 0)),
        ("another's numbers", |i| (5000, 3306, i.wrapping_mul(0x9E37_79B9), i, ACK, 8)),
    ];
    for (name, shape) in shapes {
        let input = |packets: usize| capture((0..packets as u32).map(shape));
        must_be_linear(name, 4000, input, |file| {
            let options = PacketOptions { max_held_bytes: 64 << 10, ..PacketOptions::default() };
            read_packets(file, "capture", &options, &mut Bytes::default()).unwrap();
        });
    }
}

/// A session that sends every parameter of a statement ahead of its execution.
fn sent_ahead(parameters: u16) -> Vec<(Side, Vec<u8>)> {
    // 4.1, with a challenge, without EOF and without definitions.
    let flags = 0x0300_8200_u32.to_le_bytes();
    let mut said = Vec::new();
    let mut say = |side: Side, sequence: u8, parts: &[&[u8]]| {
        let payload = parts.concat();
        let mut packet = (payload.len() as u32).to_le_bytes();
        packet[3] = sequence;
        said.push((side, [&packet[..], &payload].concat()));
    };
    let greeting: [&[u8]; 6] =
        [b"\x0a8\0\x07\0\0\0abcdefgh\0", &flags[..2], b"\x2d\x02\0", &flags[2..], b"\x15", &[0; 10]];
    say(Side::Server, 0, &[&greeting.concat(), b"ijklmnopqrst\0mysql_native_password\0"]);
    say(Side::Client, 1, &[&flags, &[0, 0, 0, 1, 45], &[0; 23], b"app\0\0"]);
    say(Side::Server, 2, &[b"\0\0\0\x02\0\0\0"]);
    say(Side::Client, 0, &[b"\x16select ?"]);
    say(Side::Server, 1, &[b"\0\x07\0\0\0\0\0", &parameters.to_le_bytes(), b"\0\0\0\0"]);
    for parameter in 0..parameters {
        say(Side::Client, 0, &[b"\x18\x07\0\0\0", &parameter.to_le_bytes(), b"x"]);
    }
    let nulls = vec![0_u8; usize::from(parameters).div_ceil(8)];
    let types = b"\xfc\0".repeat(parameters.into());
    say(Side::Client, 0, &[b"\x17\x07\0\0\0\0\x01\0\0\0", &nulls, b"\x01", &types]);
    say(Side::Server, 1, &[b"\0\0\0\x02\0\0\0"]);
    said
}

#[test]
fn four_times_the_parameters_are_four_times_the_work() {
    let address = || std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let input = |count: usize| (count as u16).to_le_bytes().to_vec();
    must_be_linear("sent ahead", 8000, input, |count| {
        let said = sent_ahead(u16::from_le_bytes(count.try_into().unwrap()));
        let mut longest = 0;
        let mut decoder = Decoder::new(|event: &Event<'_>| {
            longest = longest.max(event.parameters.len());
            Ok(())
        });
        let opened = Opened { session: 1, client: address(), server: address(), is_midstream: false };
        decoder.opened(0, &opened).unwrap();
        for (side, bytes) in &said {
            decoder.bytes(1, 1, *side, bytes).unwrap();
        }
        let coverage = decoder.finish().unwrap();
        assert_eq!(coverage.damaged, 0, "{coverage:?}");
        assert!(longest > 16_000, "every parameter is in the execution");
    });
}

/// Recordings are blocks that are found by their magic and kept by their checksums: garbage between them is searched.
#[test]
fn a_recording_four_times_as_long_is_four_times_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one");
    let options = WriterOptions { block_bytes: 4 << 10, ..WriterOptions::default() };
    let mut writer = Writer::create(&path, &options).unwrap();
    for number in 0..2000 {
        let mut event = Event::new(number * 1_000_000, number % 7, traffic::event::Command::Query);
        let text = format!("select {number} from t{number}");
        event.text = text.as_bytes();
        traffic::event::Sink::event(&mut writer, &event).unwrap();
    }
    writer.finish(&traffic::coverage::Coverage::default()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let magic = &whole[..8];
    let shapes: [(&str, Vec<u8>); 4] = [
        ("whole blocks", whole.clone()),
        ("beginnings of blocks", whole[..64].to_vec()),
        ("magics", magic.to_vec()),
        ("blocks without their ends", whole[..whole.len() / 2 + 7].to_vec()),
    ];
    for (name, part) in shapes {
        let input = |length: usize| part.iter().copied().cycle().take(length).collect::<Vec<u8>>();
        must_be_linear(name, 128 << 10, input, |file| {
            let Ok(mut reader) = Recording::of_bytes(file.to_vec()) else { return };
            while let Ok(Some(_)) = reader.next() {}
        });
    }
}

/// Classes, names and slices, each new with every event, and what becomes of them when it is written.
#[test]
fn a_digest_of_four_times_the_events_is_four_times_the_work() {
    /// When, the text and the user of an event, by its number.
    type Shape = fn(u64) -> (u64, String, String);
    let shapes: [(&str, Shape); 4] = [
        ("new classes", |i| (i, format!("select c{i} from t{i}"), "u".to_owned())),
        ("new users", |i| (i, "select 1".to_owned(), format!("u{i}"))),
        ("later and later", |i| (i * 3_600_000_000_000, "select 1".to_owned(), "u".to_owned())),
        ("earlier and earlier", |i| ((1 << 60) - i * 1_000_000_000, "select 1".to_owned(), "u".to_owned())),
    ];
    for (name, shape) in shapes {
        let input = |count: usize| (count as u64).to_le_bytes().to_vec();
        must_be_linear(name, 4000, input, |count| {
            let count = u64::from_le_bytes(count.try_into().unwrap());
            let mut digest = Digest::new(&DigestOptions::default());
            for number in 0..count {
                let (start_ns, text, user) = shape(number);
                let mut event = Event::new(start_ns, number, traffic::event::Command::Query);
                (event.text, event.user, event.response_ns) =
                    (text.as_bytes(), user.as_bytes(), Some(1000 + number));
                digest.count(&event);
            }
            digest.write_lines(&digest::lines::Source::default(), &mut io::sink()).unwrap();
        });
    }
}
