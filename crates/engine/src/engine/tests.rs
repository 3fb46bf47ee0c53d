//! Whose delay is whose, against a server that knows how long it kept each request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::{Engine, EngineConfig};
use crate::arrivals::Think;
use crate::client::{Choice, Client, Progress, Random};
use crate::net::Address;
use crate::recorder::{Row, Whole};
use crate::schedule::Schedule;
use base::clock::now_ns;
use base::histogram::{Sparse, bucket_bounds};

const MS: u64 = 1_000_000;
const CLIENTS: usize = 32;
/// What a client does with a reply.
const WORK: Duration = Duration::from_micros(500);

/// Asks with one byte, is answered with one, and thinks hard about each answer.
struct Slow;

impl Client for Slow {
    fn connected(&mut self, _out: &mut Vec<u8>) -> Progress {
        Progress::Ready
    }

    fn receive(&mut self, _input: &[u8], _out: &mut Vec<u8>, _random: &mut Random) -> Progress {
        let begin = Instant::now();
        while begin.elapsed() < WORK {}
        Progress::Ended { rows: 0, bytes: 1 }
    }

    fn choose(&mut self, _random: &mut Random) -> Choice {
        Choice { operation: 0, pause_ns: None }
    }

    fn begin(&mut self, out: &mut Vec<u8>, _random: &mut Random) -> Progress {
        out.push(b'?');
        Progress::Waiting
    }
}

/// Runs `CLIENTS` in a closed loop against a server that behaves as `play` says.
fn drive(
    seconds: f64,
    play: impl FnOnce(Vec<TcpStream>) -> Vec<u64> + Send + 'static,
) -> (Row, Whole, Vec<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let streams = (0..CLIENTS).map(|_| listener.accept().unwrap().0).collect();
        play(streams)
    });
    let config = EngineConfig {
        address,
        arrivals: None,
        is_assigned: false,
        think_ns: 0,
        think: Think::Constant,
        timeout_ns: 10_000 * MS,
        retries: 0,
        operations: 1,
        seed: 1,
    };
    let stop = AtomicBool::new(false);
    let mut engine = Engine::new(config, (0..CLIENTS).map(|number| (number, Slow)), &stop).unwrap();
    engine.connect_all().unwrap();
    let start_ns = now_ns() + MS;
    let end_ns = start_ns + (seconds * 1e9) as u64;
    let mut all = Row::default();
    let schedule = Schedule { start_ns, window_start_ns: start_ns, end_ns };
    let outcome = engine.drive(schedule, &mut (), |second| all.add(&second.rows[0]));
    (all, outcome.recorder.finish(), server.join().unwrap())
}

fn mean_ns(histogram: &Sparse) -> f64 {
    let sum: f64 = histogram.buckets.iter().map(|&(b, n)| bucket_bounds(b).0 as f64 * n as f64).sum();
    sum / histogram.count() as f64
}

/// Like a group commit: when all have asked, all are answered.
fn release_at_once(mut streams: Vec<TcpStream>) -> Vec<u64> {
    let mut kept_ns = Vec::new();
    loop {
        let mut asked_ns = Vec::new();
        for stream in &mut streams {
            match stream.read(&mut [0]) {
                Ok(1) => asked_ns.push(now_ns()),
                _ => return kept_ns,
            }
        }
        thread::sleep(Duration::from_millis(5));
        for (stream, asked_ns) in streams.iter_mut().zip(asked_ns) {
            kept_ns.push(now_ns() - asked_ns);
            let _ = stream.write_all(b"!");
        }
    }
}

#[test]
fn work_on_replies_that_came_together_is_not_the_servers() {
    let round_ns = (CLIENTS as u64 * WORK.as_nanos() as u64) as f64;
    // A busy machine adds delays that the engine did not cause, so some attempts are allowed. Stamped when they are looked
    // at, replies come half a round late on average in every one of them.
    let is_apart = (0..20).any(|_| {
        let (row, whole, kept_ns) = drive(0.2, release_at_once);
        // Each next operation could have begun when the replies came: that is lateness.
        let late_ns = mean_ns(&whole.lateness);
        assert!(late_ns > round_ns / 4.0, "a mean lateness of {late_ns} ns");
        let server_ns = kept_ns.iter().sum::<u64>() as f64 / kept_ns.len() as f64;
        [&row.response, &row.service].iter().all(|times| mean_ns(times) - server_ns < round_ns / 4.0)
    });
    assert!(is_apart, "work on some replies is in the times of others");
}
