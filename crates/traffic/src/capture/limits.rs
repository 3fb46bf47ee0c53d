//! When a capture ends by itself: rather that than slow the host down.

use std::fmt;
use std::time::Duration;

use base::error::AgentError;

/// How long a share must stay above its limit, so that a burst does not end a capture.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Lost packets below this number say nothing about a share.
const FEW_PACKETS: u64 = 1000;

/// What a capture may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// CPU time of this process, as a share of one core.
    pub max_cpu_share: f64,
    /// Packets lost, as a share of those that came.
    pub max_drop_share: f64,
    /// Memory that must stay available on the host, in bytes.
    pub min_available_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_cpu_share: 0.25, max_drop_share: 0.05, min_available_bytes: 256 << 20 }
    }
}

/// Why a capture ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    Asked,
    Duration,
    Size,
    InterfaceDown,
    Cpu { share: f64 },
    Drops { share: f64 },
    Memory { available_bytes: u64 },
}

impl Ended {
    /// Whether it ended by itself, before it was to.
    #[must_use]
    pub fn is_early(&self) -> bool {
        !matches!(self, Ended::Asked | Ended::Duration | Ended::Size)
    }

    /// The error of a capture that ended by itself: what it saw is not all that was asked for.
    ///
    /// # Errors
    /// It did.
    pub fn as_asked(&self, name: &str) -> Result<(), AgentError> {
        let said = format!("the capture on {name} ended by itself: {self}");
        match self {
            Ended::Asked | Ended::Duration | Ended::Size => Ok(()),
            Ended::InterfaceDown => Err(AgentError::Unreachable(said)),
            Ended::Cpu { .. } | Ended::Drops { .. } | Ended::Memory { .. } => Err(AgentError::Refused(said)),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Asked => write!(f, "it was asked to stop"),
            Ended::Duration => write!(f, "its time was over"),
            Ended::Size => write!(f, "it had captured as much as it was to"),
            Ended::InterfaceDown => write!(f, "the interface went down"),
            Ended::Cpu { share } => {
                write!(f, "it used {:.0}% of a core, more than it may", share * 100.0)
            }
            Ended::Drops { share } => {
                write!(f, "it lost {:.1}% of the packets, more than it may", share * 100.0)
            }
            Ended::Memory { available_bytes } => {
                write!(f, "the host had only {} MiB of memory left", available_bytes >> 20)
            }
        }
    }
}

/// Its state; all but the memory count from the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    pub elapsed: Duration,
    pub cpu: Duration,
    pub packets: u64,
    pub dropped: u64,
    /// Where the host tells it.
    pub available_bytes: Option<u64>,
}

/// Compares costs with limits, over the last few seconds.
pub struct Watch {
    limits: Limits,
    since: Costs,
}

impl Watch {
    pub fn new(limits: Limits, start: Costs) -> Self {
        Self { limits, since: start }
    }

    pub fn check(&mut self, now: Costs) -> Option<Ended> {
        if let Some(available_bytes) = now.available_bytes
            && available_bytes < self.limits.min_available_bytes
        {
            return Some(Ended::Memory { available_bytes });
        }
        let elapsed = now.elapsed.saturating_sub(self.since.elapsed);
        if elapsed < TIMEOUT {
            return None;
        }
        let cpu_share = now.cpu.saturating_sub(self.since.cpu).as_secs_f64() / elapsed.as_secs_f64();
        let packets = now.packets - self.since.packets;
        let drop_share = (now.dropped - self.since.dropped) as f64 / packets.max(1) as f64;
        self.since = now;
        if cpu_share > self.limits.max_cpu_share {
            return Some(Ended::Cpu { share: cpu_share });
        }
        (packets >= FEW_PACKETS && drop_share > self.limits.max_drop_share)
            .then_some(Ended::Drops { share: drop_share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(elapsed_s: u64, cpu_ms: u64, packets: u64, dropped: u64) -> Costs {
        let (elapsed, cpu) = (Duration::from_secs(elapsed_s), Duration::from_millis(cpu_ms));
        Costs { elapsed, cpu, packets, dropped, available_bytes: Some(1 << 30) }
    }

    #[test]
    fn ends_when_it_costs_too_much_for_long() {
        let mut watch = Watch::new(Limits::default(), Costs::default());
        assert_eq!(watch.check(costs(1, 900, 10, 0)), None, "a burst");
        assert_eq!(watch.check(costs(5, 1250, 10_000, 500)), None, "both at their limits");
        assert_eq!(watch.check(costs(10, 3000, 20_000, 500)), Some(Ended::Cpu { share: 0.35 }));
        assert_eq!(watch.check(costs(15, 3000, 30_000, 1500)), Some(Ended::Drops { share: 0.1 }));
        assert_eq!(watch.check(costs(20, 3000, 30_100, 1600)), None, "too few to tell");
    }

    #[test]
    fn ends_at_once_without_memory() {
        let mut watch = Watch::new(Limits::default(), Costs::default());
        let now = Costs { available_bytes: Some(200 << 20), ..Costs::default() };
        let ended = watch.check(now);
        assert_eq!(ended, Some(Ended::Memory { available_bytes: 200 << 20 }));
        assert!(ended.is_some_and(|ended| ended.is_early() && ended.to_string().contains("200 MiB")));
        assert_eq!(watch.check(Costs::default()), None, "a host that does not tell");
    }
}
