//! What to drive: the SPEC, a JSON object. Every key but `workload` has a default; an unknown one is an error.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::script::Workload;
use crate::{memcached, oltp, sql, tpcc};
use base::error::AgentError;
use engine::arrivals::{Arrivals, Law, Piece, Think};

/// A file of people.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub workload: WorkloadSpec,
    #[serde(default = "one")]
    pub connections: usize,
    /// 0: automatic.
    #[serde(default)]
    pub threads: usize,
    #[serde(default)]
    pub warmup_s: f64,
    #[serde(default = "ten_seconds")]
    pub seconds: f64,
    #[serde(default)]
    pub pacing: Pacing,
    #[serde(default = "one_seed")]
    pub seed: u64,
    #[serde(default = "a_minute")]
    pub operation_timeout_s: f64,
    /// When the warm-up starts, in ns since the epoch; None: once all clients are connected.
    #[serde(default)]
    pub start_at_ns: Option<u64>,
    /// Print `ready` and wait for a line with `start_at_ns`.
    #[serde(default)]
    pub waits_for_start: bool,
    #[serde(default)]
    pub share: Share,
    #[serde(default = "ten_retries")]
    pub retries: u32,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum WorkloadSpec {
    Oltp(oltp::Options),
    Sql(sql::Options),
    Tpcc(tpcc::Options),
    Memcached(memcached::Options),
}

impl WorkloadSpec {
    /// The statements and scripts. Fails with what is wrong with the options.
    pub fn on_mysql(&self) -> Result<Arc<dyn Workload>, AgentError> {
        let made = match self {
            WorkloadSpec::Oltp(options) => oltp::workload(options).map(|made| Arc::new(made) as _),
            WorkloadSpec::Sql(options) => sql::workload(options).map(|made| Arc::new(made) as _),
            WorkloadSpec::Tpcc(options) => tpcc::workload(options).map(|made| Arc::new(made) as _),
            WorkloadSpec::Memcached(_) => Err("memcached is no MySQL server".to_owned()),
        };
        made.map_err(AgentError::Named)
    }

    /// How many tables it works on.
    pub fn tables(&self) -> usize {
        match self {
            WorkloadSpec::Oltp(options) => options.tables,
            // Those that `setup` creates are few.
            WorkloadSpec::Sql(options) => options.tables,
            WorkloadSpec::Tpcc(_) => tpcc::schema::TABLES.len(),
            WorkloadSpec::Memcached(_) => 0,
        }
    }

    /// Whether the workload itself says how long its clients rest.
    fn has_own_times(&self) -> bool {
        matches!(self, WorkloadSpec::Tpcc(options) if options.times == tpcc::Times::Specification)
    }
}

/// When operations start.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Pacing {
    /// Each client starts one when its last has ended and its think time is over. A stalled server gets no requests in
    /// the meantime, so the requests it would have delayed are not seen.
    Closed {
        #[serde(default)]
        think_time_s: f64,
        #[serde(default)]
        think_distribution: Think,
    },
    /// Operations start at scheduled times, regardless of the server.
    Open {
        #[serde(default)]
        arrivals: Law,
        #[serde(default)]
        rate_ops_s: Option<f64>,
        #[serde(default)]
        profile: Vec<Piece>,
    },
}

impl Default for Pacing {
    fn default() -> Self {
        Pacing::Closed { think_time_s: 0.0, think_distribution: Think::Constant }
    }
}

/// Which part of a load this driver is: connections and rates of the SPEC are those of the whole.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    pub index: usize,
    pub of: usize,
}

impl Default for Share {
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

impl Share {
    /// The clients of this driver, counted over all drivers.
    pub fn clients(self, connections: usize) -> std::ops::Range<usize> {
        let at = |index: usize| connections * index / self.of;
        at(self.index)..at(self.index + 1)
    }
}

impl Spec {
    /// Reads the SPEC from a file; `-` is standard input.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let mut text = String::new();
        let unreadable = |error: std::io::Error| AgentError::unreadable("the SPEC ", path, &error);
        if path == Path::new("-") {
            std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
        } else {
            text = base::door::read_to_string(path, MOST_BYTES).map_err(unreadable)?;
        }
        let wrong = |reason: String| AgentError::Named(format!("the SPEC {}: {reason}", path.display()));
        let spec: Spec = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        spec.check().map_err(wrong)?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), String> {
        let Share { index, of } = self.share;
        if of == 0 || index >= of {
            return Err(format!("share: there is no part {index} of {of}"));
        }
        if self.share.clients(self.connections).is_empty() {
            return Err(format!("connections = {}: not even one for each of {of} drivers", self.connections));
        }
        for (name, value, is_allowed) in [
            ("warmup_s", self.warmup_s, self.warmup_s >= 0.0),
            ("seconds", self.seconds, self.seconds > 0.0),
            ("operation_timeout_s", self.operation_timeout_s, self.operation_timeout_s > 0.0),
        ] {
            if !is_allowed || !value.is_finite() || value > 1e7 {
                return Err(format!("{name} = {value}: give a number of seconds"));
            }
        }
        match &self.pacing {
            Pacing::Closed { think_time_s, .. } if !(0.0..1e7).contains(think_time_s) => {
                Err(format!("pacing.think_time_s = {think_time_s}: give a number of seconds"))
            }
            Pacing::Closed { .. } => Ok(()),
            Pacing::Open { .. } if self.workload.has_own_times() => {
                Err("pacing: an open loop leaves no room for times = \"specification\"".to_owned())
            }
            Pacing::Open { .. } => self.arrivals(0, 1).map(drop),
        }
    }

    /// The schedule of a thread of `threads` of this driver; None in a closed loop.
    pub fn arrivals(&self, thread: usize, threads: usize) -> Result<Option<Arrivals>, String> {
        // Drivers may have unequal numbers of threads. Counted like this, no two threads have the same number, which
        // would mean the same schedule, and even steps alternate.
        let (index, of) = (self.share.index + self.share.of * thread, self.share.of * threads);
        let (Pacing::Open { arrivals, .. }, Some(pieces)) = (&self.pacing, self.pieces()?) else {
            return Ok(None);
        };
        Arrivals::new(*arrivals, &pieces, index, of, self.seed).map(Some)
    }

    /// The rates of the whole load; None in a closed loop.
    pub fn pieces(&self) -> Result<Option<Vec<Piece>>, String> {
        let Pacing::Open { rate_ops_s, profile, .. } = &self.pacing else { return Ok(None) };
        match (rate_ops_s, profile.is_empty()) {
            // A piece that ends with the window might, through rounding, end a nanosecond before it, and start again.
            (Some(rate), true) => {
                Ok(Some(vec![Piece { seconds: 3600.0, from_ops_s: *rate, to_ops_s: *rate }]))
            }
            (None, false) => Ok(Some(profile.clone())),
            _ => Err("pacing: an open loop needs either rate_ops_s or a profile".to_owned()),
        }
    }

    /// Whether the schedule of an open loop has clearly more operations a second in the warm-up than in the window.
    pub fn has_faster_warmup(&self) -> bool {
        let Ok(Some(pieces)) = self.pieces() else { return false };
        let before = due_until(&pieces, self.warmup_s);
        let within = due_until(&pieces, self.warmup_s + self.seconds) - before;
        before * self.seconds > FASTER * within * self.warmup_s
    }

    /// Whether some last part of the warm-up has more than the window: the mean of all of it may hide a peak.
    pub fn has_peak_before(&self) -> bool {
        let Ok(Some(pieces)) = self.pieces() else { return false };
        let before = due_until(&pieces, self.warmup_s);
        let within = due_until(&pieces, self.warmup_s + self.seconds) - before;
        (1..=TAILS).any(|part| {
            let tail_s = self.warmup_s * f64::from(part) / f64::from(TAILS);
            let due = before - due_until(&pieces, self.warmup_s - tail_s);
            due * self.seconds > FASTER * within * tail_s
        })
    }
}

/// Parts of the warm-up, each to its end, in which a peak is looked for.
const TAILS: u32 = 64;

/// Operations that are due in so many seconds of a profile, which begins again when it ends.
fn due_until(pieces: &[Piece], length_s: f64) -> f64 {
    let whole = |piece: &Piece| (piece.from_ops_s + piece.to_ops_s) / 2.0 * piece.seconds;
    let round_s: f64 = pieces.iter().map(|piece| piece.seconds).sum();
    let rounds = (length_s / round_s).floor();
    let mut left_s = length_s - rounds * round_s;
    let mut due = rounds * pieces.iter().map(whole).sum::<f64>();
    for piece in pieces {
        let part_s = piece.seconds.min(left_s);
        let rise = (piece.to_ops_s - piece.from_ops_s) * part_s / piece.seconds;
        due += (piece.from_ops_s + rise / 2.0) * part_s;
        left_s -= part_s;
    }
    due
}

/// A rate that is higher by less is no other rate.
const FASTER: f64 = 1.05;

fn one() -> usize {
    1
}

fn one_seed() -> u64 {
    1
}

fn ten_seconds() -> f64 {
    10.0
}

fn a_minute() -> f64 {
    60.0
}

fn ten_retries() -> u32 {
    10
}

#[cfg(test)]
mod tests {
    use super::Spec;

    const DRIVERS: [usize; 2] = [4, 2];

    /// The arrivals of the first second, of each thread of two drivers with unequal numbers of threads.
    fn arrivals(law: &str) -> Vec<Vec<u64>> {
        let mut all = Vec::new();
        for (index, threads) in DRIVERS.into_iter().enumerate() {
            let spec: Spec = serde_json::from_str(&format!(
                r#"{{"workload": {{"kind": "oltp"}}, "connections": 8, "share": {{"index": {index}, "of": 2}},
                    "pacing": {{"kind": "open", "arrivals": "{law}", "rate_ops_s": 800}}}}"#
            ))
            .unwrap();
            for thread in 0..threads {
                let own = spec.arrivals(thread, threads).unwrap().unwrap();
                all.push(own.take_while(|at_ns| *at_ns < 1_000_000_000).collect());
            }
        }
        all
    }

    #[test]
    fn a_warm_up_is_compared_with_the_window_by_what_is_due() {
        let is_faster = |warmup_s: f64, pacing: &str| {
            let text = format!(
                r#"{{"workload": {{"kind": "oltp"}}, "connections": 4, "warmup_s": {warmup_s}, "seconds": 4,
                    "pacing": {pacing}}}"#
            );
            serde_json::from_str::<Spec>(&text).unwrap().has_faster_warmup()
        };
        let fall = r#"{"kind": "open", "profile": [{"seconds": 3, "from_ops_s": 800, "to_ops_s": 800},
            {"seconds": 4, "from_ops_s": 100, "to_ops_s": 100}]}"#;
        assert!(is_faster(3.0, fall));
        assert!(!is_faster(0.0, fall));
        // The window begins with a second of the higher rate, and the profile comes again.
        assert!(!is_faster(7.0, &fall.replace("\"seconds\": 4", "\"seconds\": 0.1")));
        let rise = r#"{"kind": "open", "profile": [{"seconds": 7, "from_ops_s": 0, "to_ops_s": 700}]}"#;
        assert!(!is_faster(3.0, rise));
        assert!(!is_faster(3.0, r#"{"kind": "open", "rate_ops_s": 100}"#));
        assert!(!is_faster(3.0, r#"{"kind": "closed"}"#));
    }

    #[test]
    fn a_peak_at_the_end_of_a_slow_warm_up_is_found() {
        let found = |pacing: &str| {
            let text = format!(
                r#"{{"workload": {{"kind": "oltp"}}, "connections": 4, "warmup_s": 10, "seconds": 4, "pacing": {pacing}}}"#
            );
            let spec = serde_json::from_str::<Spec>(&text).unwrap();
            (spec.has_faster_warmup(), spec.has_peak_before())
        };
        let peak = r#"{"kind": "open", "profile": [{"seconds": 9.5, "from_ops_s": 5, "to_ops_s": 5},
            {"seconds": 0.5, "from_ops_s": 1500, "to_ops_s": 1500}, {"seconds": 4, "from_ops_s": 100, "to_ops_s": 100}]}"#;
        assert_eq!(found(peak), (false, true));
        // A peak that is over long before.
        let early = r#"{"kind": "open", "profile": [{"seconds": 0.1, "from_ops_s": 1500, "to_ops_s": 1500},
            {"seconds": 9.9, "from_ops_s": 5, "to_ops_s": 5}, {"seconds": 4, "from_ops_s": 100, "to_ops_s": 100}]}"#;
        assert_eq!(found(early), (false, false));
        assert_eq!(found(r#"{"kind": "open", "rate_ops_s": 100}"#), (false, false));
        assert_eq!(found(r#"{"kind": "closed"}"#), (false, false));
    }

    #[test]
    fn threads_of_unequal_drivers_have_schedules_of_their_own() {
        let schedules = arrivals("poisson");
        // In units of its own rate: the same schedule at twice the rate is not a different one.
        let mean_ns = |index: usize| if index < DRIVERS[0] { 10_000_000.0 } else { 5_000_000.0 };
        let firsts: Vec<_> = schedules.iter().enumerate().map(|(i, s)| s[0] as f64 / mean_ns(i)).collect();
        for (i, first) in firsts.iter().enumerate() {
            assert!(firsts[..i].iter().all(|other| (other - first).abs() > 1e-6), "{firsts:?}");
        }
    }

    #[test]
    fn even_steps_of_unequal_drivers_lie_between_each_other() {
        let mut all = arrivals("constant").concat();
        all.sort_unstable();
        assert_eq!(all.len(), 800);
        assert!(all.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(1_250_000) < 10));
    }
}
