//! The cost of sampling itself: the agent is a process of the host it measures.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};

use super::sampler::{Host, Kind, Missed, Sample};
use super::source::{KeptFile, numbers};
use super::values::Values;

pub const AGENT: Kind = Kind::host(
    "agent",
    "ticks missed by the host's and by the server's loop, ticks skipped to spare them, memory and CPU time of the agent itself",
    |host: &Host| {
        Box::new(Itself {
            missed: host.missed.clone(),
            // Its own process is never in a fixture.
            memory: KeptFile::new("/".as_ref(), "proc/self/statm"),
        })
    },
);

struct Itself {
    missed: Missed,
    memory: KeptFile,
}

impl Sample for Itself {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        values.metric("missed_ticks");
        values.value("", self.missed.host.load(Ordering::Relaxed));
        values.value("server", self.missed.server.load(Ordering::Relaxed));
        values.metric("spared_ticks");
        for (sampler, ticks) in &*self.missed.spared.lock().unwrap_or_else(PoisonError::into_inner) {
            values.value(sampler, *ticks);
        }
        if let Some(pages) = numbers(self.memory.read()?).nth(1) {
            values.single("rss_bytes", pages * page_size() as u64);
        }
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        values.single("cpu_ns", cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64);
        Ok(())
    }
}
