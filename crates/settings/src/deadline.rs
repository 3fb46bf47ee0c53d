//! Until when a change must be confirmed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::world::{since_boot, since_epoch};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deadline {
    /// By the calendar, for people.
    pub t_ns: u64,
    /// By the clock since boot, which cannot be set.
    pub uptime_ns: u64,
}

impl Deadline {
    /// Of changes that are undone unless the process that makes or confirms them finishes.
    pub fn passed() -> Deadline {
        Deadline { t_ns: nanoseconds(since_epoch()), uptime_ns: 0 }
    }

    pub fn has_passed(&self) -> bool {
        since_boot().as_nanos() >= u128::from(self.uptime_ns)
    }

    pub fn after(patience: Duration) -> Deadline {
        Deadline {
            t_ns: nanoseconds(since_epoch() + patience),
            uptime_ns: nanoseconds(since_boot() + patience),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
