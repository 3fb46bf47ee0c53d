//! The processor's rungs: caches, memory, branches, locks.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::rung::{About, Missing, Rung, Rungs, nanoseconds};
use crate::{cpulist, meminfo};

/// Bytes of a cache line, or a multiple of it, on every processor that runs MySQL.
const LINE: usize = 64;
/// u32s in a line.
const STEP: usize = LINE / 4;
/// Enough steps that two clock readings (about 50 ns) do not affect the result.
const STEPS: usize = 20_000;
const BRANCHES: usize = 1 << 18;
const LOCKS: usize = 20_000;
const MEGABYTE: usize = 1 << 20;
/// The memory's working set: several times the last-level cache, but no burden on a server on the same host.
const MEMORY_AT_LEAST: usize = 64 << 20;
const MEMORY_AT_MOST: usize = 256 << 20;
/// Long enough that a thread which wants a lock has stopped spinning and sleeps.
const UNTIL_ASLEEP: Duration = Duration::from_micros(50);

/// Sizes of the data caches of CPU 0, in bytes; None for unknown or missing levels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caches {
    pub l1: Option<usize>,
    pub l2: Option<usize>,
    pub l3: Option<usize>,
}

impl Caches {
    pub fn read(root: &Path) -> Self {
        let mut caches = Self::default();
        let folder = root.join("sys/devices/system/cpu/cpu0/cache");
        for index in 0..8 {
            let line = |name: &str| {
                let text = std::fs::read_to_string(folder.join(format!("index{index}/{name}"))).ok()?;
                Some(text.trim().to_owned())
            };
            if line("type").is_none_or(|kind| kind == "Instruction") {
                continue;
            }
            let size = line("size").and_then(|text| size(&text));
            match line("level").as_deref() {
                Some("1") => caches.l1 = size,
                Some("2") => caches.l2 = size,
                Some("3") => caches.l3 = size,
                _ => {}
            }
        }
        caches
    }
}

/// `32K`, `1M`.
fn size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift).filter(|&size| size > 0)
}

/// The rungs for this processor, and those that cannot be measured.
pub fn rungs(root: &Path) -> Rungs {
    let caches = Caches::read(root);
    let mut rungs: Vec<Box<dyn Rung>> = Vec::new();
    let mut missing = Vec::new();
    let levels = [("l1", caches.l1, None), ("l2", caches.l2, caches.l1), ("l3", caches.l3, caches.l2)];
    for (rung, own, below) in levels {
        let reason = match (own, below) {
            (None, _) => Some(format!("the kernel names no {rung} cache of this processor")),
            (Some(own), Some(below)) if own / 2 < 2 * below => Some(
                "less than four times the cache before it: no working set falls into this one alone".into(),
            ),
            _ => None,
        };
        match (reason, own) {
            (None, Some(own)) => rungs.push(Box::new(Chase::new(rung, own / 2, false))),
            (reason, _) => missing.push(Missing { rung, reason: reason.unwrap_or_default() }),
        }
    }
    let wanted = (4 * caches.l3.or(caches.l2).unwrap_or(0)).clamp(MEMORY_AT_LEAST, MEMORY_AT_MOST);
    match available_bytes(root) {
        Some(free) if free < 8 * wanted => {
            for rung in ["memory", "memory_1mb"] {
                let reason = format!("needs {} MiB, and only {} MiB are available", wanted >> 20, free >> 20);
                missing.push(Missing { rung, reason });
            }
        }
        _ => {
            rungs.push(Box::new(Chase::new("memory", wanted, caches.l3.is_some_and(|l3| l3 * 2 > wanted))));
            rungs.push(Box::new(Stream::new(wanted)));
        }
    }
    rungs.push(Box::new(Branches::new()));
    rungs.push(Box::new(FreeLock(Mutex::new(0))));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus > 1 {
        rungs.push(Box::new(FoughtLock(Arc::new(Mutex::new(0)))));
        rungs.push(Box::new(HandOver));
    } else {
        for rung in ["mutex_contended", "mutex_handover"] {
            missing.push(Missing { rung, reason: "needs two CPUs, and this process may use one".to_owned() });
        }
    }
    (rungs, missing)
}

fn available_bytes(root: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    meminfo::parse(&text).find(|(name, _)| *name == "MemAvailable").map(|(_, bytes)| bytes as usize)
}

fn virtual_timers(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join("proc/cpuinfo")).ok()?;
    let is_guest = text.lines().any(|line| line.starts_with("flags") && line.ends_with(" hypervisor"))
        || text.contains(" hypervisor ");
    is_guest.then(|| "a virtual machine: CPUs and caches may be shared, and be taken away".to_owned())
}

/// Conditions that distort every rung on this host.
pub fn spoiled_everywhere(root: &Path) -> Vec<String> {
    let mut spoiled: Vec<String> = virtual_timers(root).into_iter().collect();
    let clock = root.join("sys/devices/system/clocksource/clocksource0/current_clocksource");
    if let Ok(clock) = std::fs::read_to_string(clock)
        && matches!(clock.trim(), "hpet" | "acpi_pm" | "xen" | "jiffies" | "refined-jiffies")
    {
        spoiled.push(format!("clock source {}: reading the time is a slow system call", clock.trim()));
    }
    if cfg!(debug_assertions) {
        spoiled
            .push("this agent was built without optimisation: the processor's rungs are too long".to_owned());
    }
    if let Ok(online) = std::fs::read_to_string(root.join("sys/devices/system/cpu/online"))
        && let Ok(load) = std::fs::read_to_string(root.join("proc/loadavg"))
        && let (Some(cpus), Some(load)) =
            (cpulist::parse(&online), load.split(' ').next().and_then(|load| load.parse::<f64>().ok()))
        && load > 0.7 * cpus.len() as f64
    {
        spoiled.push(format!("a load of {load} on {} CPUs at the start: others had their share", cpus.len()));
    }
    spoiled
}

/// A chain of dependent loads through all lines of a working set in a random order, so that no load can start before
/// the previous one has ended and no prefetcher can predict it.
struct Chase {
    rung: &'static str,
    chain: Vec<u32>,
    at: u32,
    is_partly_cached: bool,
}

impl Chase {
    fn new(rung: &'static str, bytes: usize, is_partly_cached: bool) -> Self {
        let mut chase = Self { rung, chain: cycle(bytes / LINE), at: 0, is_partly_cached };
        // The first walk warms the caches.
        chase.walk((bytes / LINE).min(4_000_000));
        chase
    }

    fn walk(&mut self, steps: usize) {
        let chain = black_box(&self.chain[..]);
        let mut at = self.at;
        for _ in 0..steps {
            at = chain[at as usize];
        }
        self.at = black_box(at);
    }
}

/// One cycle through all lines (Sattolo's shuffle); the first u32 of a line holds the place of the next.
fn cycle(lines: usize) -> Vec<u32> {
    let mut random = SmallRng::seed_from_u64(0x6865_6164);
    let mut order: Vec<u32> = (0..lines as u32).collect();
    for i in (1..lines).rev() {
        order.swap(i, random.random_range(0..i));
    }
    let mut chain = vec![0; lines * STEP];
    for (line, next) in order.into_iter().enumerate() {
        chain[line * STEP] = next * STEP as u32;
    }
    chain
}

impl Rung for Chase {
    fn about(&self) -> About {
        let bytes = self.chain.len() * 4;
        let mut spoiled_by = Vec::new();
        if self.rung == "l3" || self.rung == "memory" {
            spoiled_by
                .push("pages of 4 KiB: walks of the page table are part of it, as in a server".to_owned());
            spoiled_by
                .push("other cores (in a virtual machine: other guests) share the last cache".to_owned());
        }
        if self.is_partly_cached {
            spoiled_by
                .push("the working set is less than twice the last cache: part of it is cached".to_owned());
        }
        About {
            rung: self.rung,
            method: format!(
                "dependent loads through {} lines of {LINE} bytes in random order, a working set of {} KiB",
                bytes / LINE,
                bytes >> 10
            ),
            operations_per_repetition: STEPS,
            spoiled_by,
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        // Work between two rounds has evicted our lines from the small caches.
        if self.chain.len() * 4 <= 8 << 20 {
            self.walk(self.chain.len() / STEP);
        }
        repeat(until, into, STEPS, || self.walk(STEPS));
        Ok(())
    }
}

/// Times batches of `operations` and pushes the mean of each.
fn repeat(until: Instant, into: &mut Vec<f64>, operations: usize, mut batch: impl FnMut()) {
    loop {
        let start = Instant::now();
        batch();
        let end = Instant::now();
        into.push(nanoseconds(end - start) / operations as f64);
        if end >= until {
            return;
        }
    }
}

/// 1 MB after 1 MB of a region that is larger than the caches.
struct Stream {
    region: Vec<u64>,
    at: usize,
}

impl Stream {
    fn new(bytes: usize) -> Self {
        // Written, because pages that were never written all map to the same page of zeros.
        Self { region: (0..bytes as u64 / 8).collect(), at: 0 }
    }
}

impl Rung for Stream {
    fn about(&self) -> About {
        About {
            rung: "memory_1mb",
            method: format!(
                "one thread adds up 1 MiB, each time the next of {} MiB",
                self.region.len() * 8 / MEGABYTE
            ),
            operations_per_repetition: 1,
            spoiled_by: vec!["one thread: several together read faster".to_owned()],
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        repeat(until, into, 1, || {
            let words = MEGABYTE / 8;
            let piece = black_box(&self.region[self.at..self.at + words]);
            black_box(piece.iter().fold(0_u64, |sum, &word| sum.wrapping_add(word)));
            self.at = if self.at + 2 * words <= self.region.len() { self.at + words } else { 0 };
        });
        Ok(())
    }
}

/// The same loop over bits in a random and in a regular order; half of the random ones are mispredicted.
struct Branches {
    random: Vec<u8>,
    regular: Vec<u8>,
}

impl Branches {
    fn new() -> Self {
        let mut random = SmallRng::seed_from_u64(0x7261_6365);
        Self {
            random: (0..BRANCHES).map(|_| u8::from(random.random::<bool>())).collect(),
            regular: (0..BRANCHES).map(|i| (i % 2) as u8).collect(),
        }
    }

    #[inline(never)]
    fn walk(bits: &[u8]) -> u64 {
        let mut sum = 0;
        for &bit in bits {
            // The black boxes keep the compiler from using a conditional move, which has no prediction.
            if bit == 1 {
                sum = black_box(sum + 1);
            } else {
                sum = black_box(sum + 3);
            }
        }
        sum
    }
}

impl Rung for Branches {
    fn about(&self) -> About {
        About {
            rung: "branch_mispredict",
            method: format!(
                "a loop over {BRANCHES} random bits less the same over alternating ones, for each of the half that is guessed wrong"
            ),
            operations_per_repetition: BRANCHES / 2,
            spoiled_by: vec!["a difference of two times: a busy CPU makes it wide".to_owned()],
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        let time = |bits: &[u8]| {
            let start = Instant::now();
            black_box(Self::walk(black_box(bits)));
            nanoseconds(start.elapsed())
        };
        loop {
            let regular = time(&self.regular);
            let random = time(&self.random);
            into.push((random - regular) / (BRANCHES / 2) as f64);
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }
}

/// Lock and unlock without contention.
struct FreeLock(Mutex<u64>);

fn lock_often(lock: &Mutex<u64>) {
    for _ in 0..LOCKS {
        let mut guard = black_box(lock).lock().unwrap_or_else(PoisonError::into_inner);
        *guard = black_box(*guard + 1);
    }
}

impl Rung for FreeLock {
    fn about(&self) -> About {
        About {
            rung: "mutex",
            method: "lock, add 1, unlock, with no other thread (a futex mutex as in glibc)".to_owned(),
            operations_per_repetition: LOCKS,
            spoiled_by: vec![],
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        repeat(until, into, LOCKS, || lock_often(&self.0));
        Ok(())
    }
}

/// Two threads that want the same lock all the time.
struct FoughtLock(Arc<Mutex<u64>>);

impl Rung for FoughtLock {
    fn about(&self) -> About {
        About {
            rung: "mutex_contended",
            method: "two threads lock, add 1, unlock without a pause: the time for each of all these turns, where both had at least 1% of them"
                .to_owned(),
            operations_per_repetition: LOCKS,
            spoiled_by: vec![
                "a thread may take the lock many times in a row: a turn is not always a hand-over".to_owned(),
                "two CPUs of one core, or far apart, differ much".to_owned(),
            ],
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        let stop = AtomicBool::new(false);
        let others = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let rival = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                    *guard += 1;
                    others.fetch_add(1, Ordering::Relaxed);
                }
            });
            while others.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
            loop {
                let (start, before) = (Instant::now(), others.load(Ordering::Relaxed));
                lock_often(&self.0);
                let end = Instant::now();
                let rivals = others.load(Ordering::Relaxed) - before;
                // Otherwise the rival had no CPU, and there was no contention.
                if rivals >= LOCKS as u64 / 100 {
                    into.push(nanoseconds(end - start) / (LOCKS as u64 + rivals) as f64);
                }
                if end >= until {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            rival.join().map_err(|_| anyhow::anyhow!("the second thread failed"))
        })
    }
}

/// From the unlock of one thread to the moment at which another thread, asleep on the lock, gets it.
struct HandOver;

impl Rung for HandOver {
    fn about(&self) -> About {
        About {
            rung: "mutex_handover",
            method: format!(
                "a thread sleeps for a lock; from the holder's unlock, {} us later, until the sleeper has it",
                UNTIL_ASLEEP.as_micros()
            ),
            operations_per_repetition: 1,
            spoiled_by: vec![
                "a waking thread must get a CPU: idle states and busy CPUs are part of it".to_owned(),
            ],
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        let lock = Mutex::new(());
        let origin = Instant::now();
        // Rounds that the holder has begun, that the sleeper is about to wait in, and that it has finished.
        let (begun, near, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let taken_ns = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let mut round = 0;
                while !stop.load(Ordering::Acquire) {
                    if begun.load(Ordering::Acquire) == round {
                        std::hint::spin_loop();
                        continue;
                    }
                    round += 1;
                    near.store(round, Ordering::Release);
                    let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
                    taken_ns.store(origin.elapsed().as_nanos() as u64, Ordering::Release);
                    drop(guard);
                    done.store(round, Ordering::Release);
                }
            });
            let mut round = 0;
            loop {
                let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
                round += 1;
                begun.store(round, Ordering::Release);
                wait_for(&near, round);
                let asleep = Instant::now() + UNTIL_ASLEEP;
                while Instant::now() < asleep {
                    std::hint::spin_loop();
                }
                let released_ns = origin.elapsed().as_nanos() as u64;
                drop(guard);
                wait_for(&done, round);
                into.push(taken_ns.load(Ordering::Acquire).saturating_sub(released_ns) as f64);
                if Instant::now() >= until {
                    break;
                }
            }
            stop.store(true, Ordering::Release);
            sleeper.join().map_err(|_| anyhow::anyhow!("the second thread failed"))
        })
    }
}

fn wait_for(counter: &AtomicU64, value: u64) {
    let mut spins = 0_u32;
    while counter.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
        spins += 1;
        // The other thread may need this CPU.
        if spins.is_multiple_of(10_000) {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Branches, Caches, STEP, cycle, size};

    #[test]
    fn a_chain_visits_every_line_once() {
        for lines in [1, 2, 3, 500] {
            let chain = cycle(lines);
            let mut seen = vec![false; lines];
            let mut at = 0;
            for _ in 0..lines {
                assert!(!std::mem::replace(&mut seen[at / STEP], true));
                at = chain[at] as usize;
            }
            assert_eq!(at, 0);
            assert!(seen.into_iter().all(|seen| seen));
        }
    }

    #[test]
    fn both_loops_do_the_same_work() {
        let branches = Branches::new();
        assert_eq!(branches.random.len(), branches.regular.len());
        let ones: usize = branches.random.iter().map(|&bit| usize::from(bit)).sum();
        assert!((0.49..0.51).contains(&(ones as f64 / branches.random.len() as f64)), "{ones}");
        assert_eq!(Branches::walk(&[0, 1, 1]), 5);
    }

    #[test]
    fn caches_are_those_of_data() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/devices/system/cpu/cpu0/cache");
        for (index, level, kind, size) in [
            (0, "1", "Data", "48K"),
            (1, "1", "Instruction", "32K"),
            (2, "2", "Unified", "2048K"),
            (3, "3", "Unified", "32M"),
        ] {
            let folder = folder.join(format!("index{index}"));
            std::fs::create_dir_all(&folder).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                std::fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        }
        let caches = Caches { l1: Some(48 << 10), l2: Some(2 << 20), l3: Some(32 << 20) };
        assert_eq!(Caches::read(root.path()), caches);
        assert_eq!(Caches::read(&root.path().join("none")), Caches::default());
        assert_eq!((size("0K"), size("K"), size("4X")), (None, None, None));
    }
}
