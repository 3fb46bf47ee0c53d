//! How fast the wire is read: bytes a second of answers with many rows, events a second of short ones. Targets: 800
//! MB/s and 2 million events/s, so that a capture is digested at 300 MB/s.

use std::hint::black_box;
use std::net::SocketAddr;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use traffic::event::Event;
use traffic::measures::Measure;
use traffic::stream::{Opened, Side, Streams};
use traffic::wire::{Decoder, WireOptions};

const COLUMN: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x2d\0\0\x01\0\0\xfd\0\0\0\0\0";
const EOF: &[u8] = &[0xFE, 0, 0, 2, 0];
/// Payload of one packet of TCP on Ethernet, and of one that the kernel put together.
const SEGMENTS: [usize; 2] = [1448, 32_000];

fn packet(sequence: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
    out.push(sequence);
    out.extend_from_slice(payload);
}

/// An answer with so many rows of so many bytes.
fn answer(rows: usize, row_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet(1, &[1], &mut bytes);
    packet(2, COLUMN, &mut bytes);
    packet(3, EOF, &mut bytes);
    for row in 0..rows {
        packet((row + 4) as u8, &vec![b'x'; row_bytes], &mut bytes);
    }
    packet((rows + 4) as u8, EOF, &mut bytes);
    bytes
}

fn feed(requests: &[Vec<u8>], answer: &[u8], segment: usize, checksum: bool) -> u64 {
    let mut events = 0;
    let sink = |event: &Event<'_>| {
        events += u64::from(event.measures.get(Measure::RowsSent) > Some(0));
        Ok(())
    };
    let mut decoder = Decoder::with_options(sink, WireOptions { checksum, ..WireOptions::default() });
    let address = SocketAddr::from(([127, 0, 0, 1], 3306));
    let opened = Opened { session: 1, client: address, server: address, is_midstream: true };
    decoder.opened(0, &opened).expect("the sink never fails");
    for request in requests {
        decoder.bytes(1, 1, Side::Client, request).expect("the sink never fails");
        for piece in answer.chunks(segment) {
            decoder.bytes(2, 1, Side::Server, piece).expect("the sink never fails");
        }
    }
    decoder.finish().expect("the sink never fails");
    events
}

fn requests(count: usize) -> Vec<Vec<u8>> {
    let mut request = Vec::new();
    packet(0, b"\x03SELECT c FROM sbtest1 WHERE id=500123", &mut request);
    vec![request; count]
}

fn wire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire");
    for (name, row_bytes, checksum) in [
        ("rows of 120 bytes", 120, false),
        ("rows of 20 bytes", 20, false),
        ("checksums of rows of 120 bytes", 120, true),
    ] {
        for segment in SEGMENTS {
            let (requests, answer) = (requests(10), answer(50_000, row_bytes));
            group.throughput(Throughput::Bytes(10 * answer.len() as u64));
            group.bench_function(format!("{name}, {segment} bytes at once"), |bencher| {
                bencher.iter(|| assert_eq!(feed(&requests, black_box(&answer), segment, checksum), 10));
            });
        }
    }
    let (requests, answer) = (requests(100_000), answer(1, 120));
    group.throughput(Throughput::Elements(100_000));
    group.bench_function("point selects", |bencher| {
        bencher.iter(|| assert_eq!(feed(&requests, black_box(&answer), 1448, false), 100_000));
    });
    group.finish();
}

criterion_group!(benches, wire);
criterion_main!(benches);
