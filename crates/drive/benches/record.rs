//! What the driver itself costs an operation: recording it (target: at most 60 ns), drawing a key, encoding a request.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use drive::digits::{C_LENGTH, groups};
use drive::script::Random;
use engine::Schedule;
use engine::keys::{Distribution, Keys};
use engine::recorder::{Recorder, Times};
use mysql::request::{Requests, Statement, Type};
use rand::{RngExt, SeedableRng};

fn record(criterion: &mut Criterion) {
    // Latencies as a server's: spread over two powers of ten, so that buckets are not always in the first cache.
    let mut random = Random::seed_from_u64(1);
    let latencies: Vec<u64> =
        (0..4096).map(|_| 50_000 + (random.random::<f64>().powi(8) * 5e6) as u64).collect();
    let schedule = Schedule { start_ns: 0, window_start_ns: 0, end_ns: u64::MAX };
    let mut recorder = Recorder::new(2, schedule);
    let mut place = 0;
    criterion.bench_function("record an operation", |bencher| {
        bencher.iter(|| {
            place = (place + 1) % latencies.len();
            let times = Times { intended_ns: 0, sent_ns: 100, ended_ns: latencies[place] };
            recorder.late(black_box(100));
            recorder.ended(black_box(0), black_box(times), 1, 200);
        });
    });
}

fn draw(criterion: &mut Criterion) {
    let laws = [
        ("uniform", Distribution::Uniform),
        ("pareto", Distribution::Pareto { h: 0.2 }),
        ("zipf", Distribution::Zipf { exponent: 0.8 }),
        ("gaussian", Distribution::Gaussian),
        ("special", Distribution::Special),
        ("hot", Distribution::Hot { keys: 0.01, operations: 0.75 }),
    ];
    let mut random = Random::seed_from_u64(1);
    for (name, law) in laws {
        let keys = Keys::new(&law, 1, 10_000_000).expect("a law with right parameters");
        criterion.bench_function(&format!("draw a key, {name}"), |bencher| {
            bencher.iter(|| black_box(keys.draw(&mut random)));
        });
    }
    criterion.bench_function("draw a c value of 119 characters", |bencher| {
        bencher.iter(|| black_box(groups::<C_LENGTH>(&mut random)));
    });
}

fn encode(criterion: &mut Criterion) {
    let statements =
        [Statement::new("SELECT c FROM sbtest1 WHERE id=?", &[Type::Int]).expect("one parameter")];
    let (mut out, mut keeps_rows) = (Vec::with_capacity(1024), false);
    criterion.bench_function("encode an execution", |bencher| {
        bencher.iter(|| {
            out.clear();
            let mut requests = Requests::new(&mut out, &statements, &[7], &mut keeps_rows);
            requests.execute(0).int(black_box(42));
        });
    });
}

criterion_group!(benches, record, draw, encode);
criterion_main!(benches);
