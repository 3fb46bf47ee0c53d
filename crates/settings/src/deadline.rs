//! Until when a change must be confirmed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deadline {
    /// By the calendar, for people.
    pub t_ns: u64,
    /// By the clock since boot, which nobody sets.
    pub uptime_ns: u64,
}

impl Deadline {
    pub fn after(patience: Duration) -> Deadline {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanoseconds = |t: Duration| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX);
        Deadline { t_ns: nanoseconds(now + patience), uptime_ns: nanoseconds(uptime() + patience) }
    }
}

/// The time since boot, suspended or not.
pub fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}
