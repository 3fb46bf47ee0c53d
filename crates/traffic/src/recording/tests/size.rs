//! How small a recording is: traffic made like sysbench's oltp_read_write, with everything that a capture knows.

use rand::rngs::Xoshiro256PlusPlus as Generator;
use rand::{RngExt, SeedableRng};

use super::with_literals;
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome, Sink};
use crate::measures::Measure;
use crate::recording::{Writer, WriterOptions};

const SESSIONS: u64 = 8;
const MIX: [(&str, usize); 9] = [
    ("BEGIN", 1),
    ("SELECT c FROM sbtest# WHERE id=?", 10),
    ("SELECT c FROM sbtest# WHERE id BETWEEN ? AND ?", 1),
    ("SELECT SUM(k) FROM sbtest# WHERE id BETWEEN ? AND ?", 1),
    ("SELECT DISTINCT c FROM sbtest# WHERE id BETWEEN ? AND ? ORDER BY c", 1),
    ("UPDATE sbtest# SET k=k+1 WHERE id=?", 1),
    ("UPDATE sbtest# SET c=? WHERE id=?", 1),
    ("INSERT INTO sbtest# (id, k, c, pad) VALUES (?, ?, ?, ?)", 1),
    ("COMMIT", 1),
];

fn digits(random: &mut Generator, groups: usize) -> String {
    let group = |_| format!("{:011}", random.random_range(0..100_000_000_000_u64));
    (0..groups).map(group).collect::<Vec<_>>().join("-")
}

/// A statement's text and parameters; in text protocol the parameters are in the text.
fn statement(random: &mut Generator, shape: &str, is_prepared: bool) -> (String, Vec<u8>) {
    let table = random.random_range(1..=4);
    let mut text = shape.replace('#', &table.to_string());
    let count = shape.matches('?').count();
    let mut types = vec![0; count.div_ceil(8)];
    types.push(1);
    let mut values = Vec::new();
    for index in 0..count {
        let is_text = shape.contains("SET c=") && index == 0 || shape.contains("pad") && index >= 2;
        let value = if is_text {
            digits(random, if index == 3 { 5 } else { 10 })
        } else {
            random.random_range(1..100_000).to_string()
        };
        if is_prepared {
            types.extend_from_slice(&[if is_text { 0xfd } else { 0x03 }, 0]);
            if is_text {
                values.push(u8::try_from(value.len()).unwrap());
                values.extend_from_slice(value.as_bytes());
            } else {
                values.extend_from_slice(&value.parse::<u32>().unwrap().to_le_bytes());
            }
        } else {
            text = text.replacen('?', &if is_text { format!("'{value}'") } else { value }, 1);
        }
    }
    if count == 0 || !is_prepared {
        return (text, Vec::new());
    }
    types.extend_from_slice(&values);
    (text, types)
}

/// Writes the traffic; bytes an event.
fn bytes_an_event(options: &WriterOptions, is_prepared: bool, events: u64) -> f64 {
    let mut random = Generator::seed_from_u64(7);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    let mut writer = Writer::create(&path, options).unwrap();
    let sequence: Vec<(usize, &str)> = MIX
        .iter()
        .enumerate()
        .flat_map(|(at, (shape, times))| std::iter::repeat_n((at, *shape), *times))
        .collect();
    let mut now = [1_800_000_000_000_000_000_u64; SESSIONS as usize];
    let mut steps = [0; SESSIONS as usize];
    for _ in 0..events {
        let session = (0..now.len()).min_by_key(|session| now[*session]).unwrap();
        let (number, shape) = sequence[steps[session] % sequence.len()];
        steps[session] += 1;
        let (text, parameters) = statement(&mut random, shape, is_prepared);
        let is_read = shape.starts_with("SELECT");
        let response_ns = 50_000 + random.random_range(0..200_000_u64) + 20_000 * number as u64;
        let rows = if shape.contains("BETWEEN") && !shape.contains("SUM") { 100 } else { u64::from(is_read) };
        let mut event = Event::new(now[session], session as u64 + 1, Command::Query);
        if !parameters.is_empty() {
            event.command = Command::Execute;
            event.statement = Some(u32::try_from(number).unwrap() + 1);
            event.parameter_count = u16::try_from(shape.matches('?').count()).unwrap();
        }
        event.outcome = Outcome::Ok;
        (event.user, event.host, event.database) = (b"sbtest", b"127.0.0.1", b"sbtest");
        (event.text, event.parameters) = (text.as_bytes(), &parameters);
        event.response_ns = Some(response_ns);
        event.first_byte_ns = Some(response_ns - if rows > 1 { random.random_range(0..20_000) } else { 0 });
        let request_bytes = if parameters.is_empty() { 5 + text.len() } else { 14 + parameters.len() };
        event.measures.set(Measure::RequestBytes, request_bytes as u64);
        event.measures.set(Measure::ResponseBytes, if is_read { 80 + 125 * rows } else { 11 });
        event.measures.set(Measure::Warnings, 0);
        if is_read {
            event.measures.set(Measure::RowsSent, rows);
            event.checksum = Some(random.random());
        } else {
            event.measures.set(Measure::RowsAffected, u64::from(shape.starts_with(['U', 'I'])));
        }
        now[session] += response_ns + random.random_range(5_000..40_000);
        writer.event(&event).unwrap();
    }
    let path = writer.path.clone();
    writer.finish(&Coverage::default()).unwrap();
    #[allow(clippy::cast_precision_loss)]
    let bytes = std::fs::metadata(path).unwrap().len() as f64 / events as f64;
    bytes
}

#[test]
fn an_event_of_sysbench_takes_less_than_60_bytes() {
    for is_prepared in [true, false] {
        for options in [with_literals(), WriterOptions::default()] {
            let bytes = bytes_an_event(&options, is_prepared, 20_000);
            let what =
                format!("prepared {is_prepared}, literals {}: {bytes:.1} bytes", options.with_literals);
            println!("{what}");
            assert!(bytes < if options.with_literals { 40.0 } else { 20.0 }, "{what}");
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn sizes_of_blocks() {
    for kib in [64, 128, 256, 512, 1024, 4096] {
        for compression_level in [1, 3, 6] {
            let options = WriterOptions { block_bytes: kib << 10, compression_level, ..with_literals() };
            let sizes = [true, false].map(|is_prepared| bytes_an_event(&options, is_prepared, 200_000));
            println!("{kib} KiB, level {compression_level}: {sizes:.1?} bytes an event");
        }
    }
}
