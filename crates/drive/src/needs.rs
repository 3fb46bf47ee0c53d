//! What an open loop needs of this machine's cores, before it starts: its busiest second, and what a request costs this
//! driver, timed with pings.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::mysql_client::MysqlClient;
use crate::reply::Reply;
use crate::run::thread_count;
use crate::script::{Choice, Random, Script, Step, Workload};
use crate::spec::Spec;
use base::clock::{now_ns, thread_cpu_ns};
use engine::arrivals::{Piece, Think};
use engine::needs::{Needs, PING_CONNECTIONS, cores, is_here};
use engine::net::Address;
use engine::{Engine, EngineConfig, Schedule};
use mysql::Options;
use mysql::request::{Requests, Statement};
use rustix::thread::sched_getaffinity;

const SECOND_NS: u64 = 1_000_000_000;
/// How long pings are timed, and the fewest that give a figure.
const LENGTH_NS: u64 = SECOND_NS / 5;
const FEWEST_PINGS: u64 = 100;

/// What the SPEC's schedule needs; None in a closed loop, which has none. Costs of long results, TLS and many
/// connections come on top.
pub fn of(
    spec: &Spec,
    workload: &dyn Workload,
    options: &Options,
    address: &Address,
    stop: &AtomicBool,
) -> Option<Needs> {
    let pieces = spec.pieces().ok()??;
    let (busiest_ops_s, mean_ops_s) = rates(&pieces, spec.warmup_s + spec.seconds);
    let statements = workload.requests() / spec.share.of as f64;
    Some(Needs {
        busiest_ops_s: busiest_ops_s * statements,
        mean_ops_s: mean_ops_s * statements,
        send_ns: request_cost_ns(options, address, stop),
        read_ns: 0.0,
        threads: thread_count(spec, spec.share.clients(spec.connections).len()),
        cores: cores(),
        shares_with_server: is_here(address) && !is_pinned(),
    })
}

/// Whether this process may use some of the machine's CPUs only: then others are the server's.
fn is_pinned() -> bool {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_cpu = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
    let online = stat.lines().filter(is_cpu).count();
    sched_getaffinity(None).is_ok_and(|own| (own.count() as usize) < online)
}

/// Arrivals in the busiest second and on average, over one round of the profile at most.
fn rates(pieces: &[Piece], length_s: f64) -> (f64, f64) {
    let (mut peak, mut total): (f64, f64) = (0.0, 0.0);
    // Of the second that is not full yet.
    let (mut arrivals, mut filled_s) = (0.0, 0.0);
    let mut left_s = length_s;
    for piece in pieces {
        let slope = (piece.to_ops_s - piece.from_ops_s) / piece.seconds;
        let end_s = piece.seconds.min(left_s);
        let mut at_s = 0.0;
        while at_s < end_s {
            let step_s = (end_s - at_s).min(1.0 - filled_s);
            let in_step = (piece.from_ops_s + slope * (at_s + step_s / 2.0)) * step_s;
            (arrivals, filled_s, total) = (arrivals + in_step, filled_s + step_s, total + in_step);
            at_s += step_s;
            if filled_s > 1.0 - 1e-9 {
                peak = peak.max(arrivals);
                (arrivals, filled_s) = (0.0, 0.0);
            }
        }
        left_s -= end_s;
        if left_s <= 0.0 {
            break;
        }
    }
    let mean = total / (length_s - left_s.max(0.0));
    (peak.max(mean).max(arrivals), mean)
}

/// CPU of this thread for a request, in ns; None where the server did not answer enough.
fn request_cost_ns(options: &Options, address: &Address, stop: &AtomicBool) -> Option<f64> {
    let config = EngineConfig {
        address: address.clone(),
        arrivals: None,
        is_assigned: false,
        think_ns: 0,
        think: Think::Constant,
        timeout_ns: SECOND_NS,
        retries: 0,
        operations: 1,
        seed: 0,
    };
    let pings: Arc<dyn Workload> = Arc::new(Pings([String::from("ping")]));
    let clients = (0..PING_CONNECTIONS)
        .map(|number| (number, MysqlClient::new(options, pings.clone(), number, PING_CONNECTIONS)));
    let mut engine = Engine::new(config, clients, stop).ok()?;
    engine.connect_all().ok()?;
    let start_ns = now_ns();
    let schedule = Schedule { start_ns, window_start_ns: start_ns, end_ns: start_ns + LENGTH_NS };
    let cpu_ns = thread_cpu_ns();
    let outcome = engine.drive(schedule, &mut (), |_| {});
    let cpu_ns = thread_cpu_ns() - cpu_ns;
    let sent = outcome.recorder.finish().unseen.count();
    (sent >= FEWEST_PINGS).then(|| cpu_ns as f64 / sent as f64)
}

/// Nothing but pings.
struct Pings([String; 1]);

impl Workload for Pings {
    fn operations(&self) -> &[String] {
        &self.0
    }

    fn statements(&self) -> &[Statement] {
        &[]
    }

    fn requests(&self) -> f64 {
        1.0
    }

    fn script(&self, _client: usize, _clients: usize) -> Box<dyn Script> {
        Box::new(Ping)
    }
}

struct Ping;

impl Script for Ping {
    fn choose(&mut self, _random: &mut Random) -> Choice {
        Choice { operation: 0, pause_ns: None }
    }

    fn step(&mut self, reply: Option<&Reply<'_>>, requests: &mut Requests<'_>, _random: &mut Random) -> Step {
        if reply.is_some() {
            return Step::Done;
        }
        requests.ping();
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::rates;
    use engine::arrivals::Piece;

    #[test]
    fn the_busiest_second_of_a_profile() {
        let piece = |seconds, from_ops_s, to_ops_s| Piece { seconds, from_ops_s, to_ops_s };
        let near = |pieces: &[Piece], length_s, expected: (f64, f64)| {
            let (peak, mean) = rates(pieces, length_s);
            assert!((peak - expected.0).abs() < 1e-6 && (mean - expected.1).abs() < 1e-6, "{peak} {mean}");
        };
        near(&[piece(3600.0, 500.0, 500.0)], 10.0, (500.0, 500.0));
        near(&[piece(3600.0, 500.0, 500.0)], 0.25, (500.0, 500.0));
        // The last second of the rise that is reached; a tenth of a second is no second.
        near(&[piece(10.0, 0.0, 100.0)], 5.0, (45.0, 25.0));
        near(
            &[piece(0.9, 100.0, 100.0), piece(0.1, 1000.0, 1000.0), piece(1.0, 0.0, 0.0)],
            60.0,
            (190.0, 95.0),
        );
    }
}
