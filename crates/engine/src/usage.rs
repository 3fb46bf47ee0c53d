//! The CPU time of a thread of the driver, and how long it waited for a core.

use std::fs;

use base::clock::{now_ns, thread_cpu_ns};

/// Of one thread between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub cpu_ns: u64,
    /// The part of `cpu_ns` spent in the kernel.
    pub system_ns: u64,
    /// Ready to run, without a core.
    pub waited_ns: u64,
    pub elapsed_ns: u64,
}

/// The counters of the calling thread, as they were at the start.
pub struct Usage(Used);

impl Usage {
    pub fn begin() -> Self {
        Self(read())
    }

    /// The usage since.
    pub fn end(&self) -> Used {
        let (start, end) = (self.0, read());
        Used {
            cpu_ns: end.cpu_ns - start.cpu_ns,
            // Both are estimates from ticks of 10 ms: over a short time their difference may exceed the total.
            system_ns: end.system_ns.saturating_sub(start.system_ns).min(end.cpu_ns - start.cpu_ns),
            waited_ns: end.waited_ns.saturating_sub(start.waited_ns),
            elapsed_ns: end.elapsed_ns - start.elapsed_ns,
        }
    }
}

fn read() -> Used {
    // proc(5): utime and stime are fields 14 and 15; the name before them may hold spaces, but ends with `)`.
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let ticks: Vec<u64> = stat
        .rsplit(')')
        .next()
        .map(|rest| rest.split_whitespace().skip(11).take(2).filter_map(|text| text.parse().ok()).collect())
        .unwrap_or_default();
    let cpu_ns = thread_cpu_ns();
    let system_ns = match ticks[..] {
        [user, system] if user + system > 0 => cpu_ns / (user + system) * system,
        _ => 0,
    };
    // Second field: time spent waiting on a run queue. Not on every kernel.
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited_ns = schedstat.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    Used { cpu_ns, system_ns, waited_ns, elapsed_ns: now_ns() }
}

/// The most memory that this process ever held.
pub fn max_rss_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
