//! How much a recording asks of a driver: its busiest second, and what a request costs the threads that play.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::classes::{NONE, OPERATIONS, SESSION};
use super::kills::SessionState;
use super::order::{Order, Step};
use super::queue::{Budget, Expected, Item, Request};
use super::refusals::Halt;
use super::session::{Session, Shared};
use super::stats::ReplayStats;
use base::clock::{now_ns, thread_cpu_ns};
use engine::arrivals::Think;
use engine::needs::PING_CONNECTIONS;
use engine::net::Address;
use engine::{Engine, EngineConfig, Schedule, WorkSource};
use mysql::Options;
use mysql_common::constants::CapabilityFlags;

const SECOND_NS: u64 = 1_000_000_000;
/// Blocks that last longer hold nothing that is busy, however it is spread over them.
const LONGEST_BLOCK: u64 = 600;
/// Pings that are timed, and how long that may take.
const PINGS: usize = 1_500;
const LONGEST_NS: u64 = SECOND_NS;

/// Events in the busiest stretch of `width_ns` and in all, by the blocks' headers: within a block they are taken as
/// evenly spread.
pub fn busiest(
    blocks: impl Iterator<Item = (u64, u64, u32)>,
    (since, until): (u64, u64),
    width_ns: u64,
) -> (f64, f64) {
    let width_ns = width_ns.max(1);
    let mut bins: HashMap<u64, f64> = HashMap::new();
    let mut total = 0.0;
    for (first, last, events) in blocks {
        let length = last.saturating_sub(first) + 1;
        let rate = f64::from(events) / length as f64;
        let (from, to) = (first.max(since), first.saturating_add(length).min(until));
        if from >= to {
            continue;
        }
        total += rate * (to - from) as f64;
        let (begin, end) = (from / width_ns, (to - 1) / width_ns);
        if end - begin > LONGEST_BLOCK {
            continue;
        }
        for bin in begin..=end {
            let (start, stop) = ((bin * width_ns).max(from), ((bin + 1) * width_ns).min(to));
            *bins.entry(bin).or_default() += rate * (stop - start) as f64;
        }
    }
    (bins.into_values().fold(0.0, f64::max), total)
}

/// A server, and as whom it is asked.
pub struct Probe<'a> {
    pub address: &'a Address,
    pub account: &'a Options,
    pub capabilities: CapabilityFlags,
    pub max_allowed_packet: usize,
}

/// CPU of this thread for a request, in ns: pings, played as sessions are. None where the server did not answer enough.
pub fn request_cost_ns(probe: &Probe<'_>, stop: &AtomicBool) -> Option<f64> {
    let config = EngineConfig {
        address: probe.address.clone(),
        arrivals: None,
        is_assigned: true,
        think_ns: 0,
        think: Think::Constant,
        timeout_ns: LONGEST_NS,
        retries: 0,
        operations: OPERATIONS.len(),
        seed: 0,
    };
    let engine: Engine<'_, Session<'_>> = Engine::new(config, std::iter::empty(), stop).ok()?;
    let (budget, writes, closes) = (Budget::new(usize::MAX), Order::default(), Order::default());
    // A session of the replay would be refused the same, and says so.
    let is_refused = AtomicBool::new(false);
    let halt = Halt::new(&is_refused);
    let start_ns = now_ns();
    let schedule = Schedule { start_ns, window_start_ns: start_ns, end_ns: start_ns + LONGEST_NS };
    let shared = Rc::new(Shared {
        start_ns,
        end_ns: schedule.end_ns,
        is_closed_loop: true,
        is_checked: false,
        answer_writer: None,
        capabilities: probe.capabilities,
        max_allowed_packet: probe.max_allowed_packet,
        budget: &budget,
        writes: &writes,
        closes: &closes,
        halt: &halt,
        stats: RefCell::new(ReplayStats::default()),
    });
    let mut pings = Pings { account: probe.account, shared, has_begun: false };
    let cpu_ns = thread_cpu_ns();
    let outcome = engine.drive(schedule, &mut pings, |_| {});
    let cpu_ns = thread_cpu_ns() - cpu_ns;
    let answered = outcome.recorder.finish().lateness.count();
    (answered >= PINGS as u64 / 4).then(|| cpu_ns as f64 / answered as f64)
}

struct Pings<'a> {
    account: &'a Options,
    shared: Rc<Shared<'a>>,
    has_begun: bool,
}

impl<'a> WorkSource<Session<'a>> for Pings<'a> {
    fn feed(&mut self, engine: &mut Engine<'_, Session<'a>>, now: u64) -> u64 {
        if self.has_begun {
            if engine.client_count() == 0 {
                engine.end(0);
            }
            return u64::MAX;
        }
        self.has_begun = true;
        for number in 0..PING_CONNECTIONS {
            let account = self.account;
            let state = Arc::new(SessionState::default());
            let mut session =
                Session::new(Rc::clone(&self.shared), account, account.database.clone(), Arc::clone(&state));
            for ping in 0..=PINGS / PING_CONNECTIONS {
                let item = item(if ping == PINGS / PING_CONNECTIONS { Request::Quit } else { Request::Ping });
                self.shared.budget.take(&item);
                state.give();
                session.push(Box::new(item));
            }
            engine.enter(number, session, now);
        }
        u64::MAX
    }
}

fn item(request: Request) -> Item {
    Item {
        at_ns: 0,
        recorded_ns: 0,
        number: super::answers::NO_NUMBER,
        request,
        operation: SESSION,
        class: NONE,
        expected: Expected::NOTHING,
        step: Step::default(),
        size: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{SECOND_NS, busiest};

    #[test]
    fn the_busiest_second_of_blocks() {
        // 100/s for ten seconds, and 4,000 within half a second of the fourth.
        let second = |at: u64| (at * SECOND_NS, (at + 1) * SECOND_NS - 1, 100);
        let blocks = || (0..10).map(second).chain([(3 * SECOND_NS, 3 * SECOND_NS + SECOND_NS / 2, 4_000)]);
        let near = |(peak, total): (f64, f64), expected: (f64, f64)| {
            assert!((peak - expected.0).abs() < 1.0 && (total - expected.1).abs() < 1.0, "{peak} {total}");
        };
        near(busiest(blocks(), (0, u64::MAX), SECOND_NS), (4_100.0, 5_000.0));
        // Played twice as fast, two recorded seconds are one.
        near(busiest(blocks(), (0, u64::MAX), 2 * SECOND_NS), (4_200.0, 5_000.0));
        near(busiest(blocks(), (5 * SECOND_NS, 7 * SECOND_NS), SECOND_NS), (100.0, 200.0));
        near(busiest([(0, u64::MAX / 2, 7)].into_iter(), (0, u64::MAX), SECOND_NS), (0.0, 7.0));
        near(busiest([(5, 5, 3)].into_iter(), (0, u64::MAX), SECOND_NS), (3.0, 3.0));
    }
}
