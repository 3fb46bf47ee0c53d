//! The lines of JSON that `drive run` writes, merged over the threads: `start`, an `interval` for each operation
//! and second, `drain` for what ended after the window, `end`.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::engine::Outcome;
use crate::needs::Needs;
use crate::recorder::{Row, Second, Whole};
use crate::schedule::Schedule;
use crate::usage::{Used, max_rss_bytes};
use base::histogram::Sparse;
use base::output::Output;

const SECOND_NS: i64 = 1_000_000_000;
/// Operations that end later than this after the window are reported.
const WARN_DRAIN_NS: i64 = SECOND_NS;
/// A shorter remainder at the end is joined to the second before it: a rate over a few ms is noise.
const SHORTEST_ROW_NS: i64 = SECOND_NS / 2;
/// The p99 of the driver's own delay is worth a warning above this share of the median response, or above
/// `WARN_OWN_NS` where that is more, and makes a trial invalid above the share or `LARGEST_OWN_NS`: a thread with a
/// core of its own is woken in less, on most machines.
const LARGEST_OWN_SHARE: f64 = 0.05;
const WARN_OWN_NS: u64 = 50_000;
const LARGEST_OWN_NS: u64 = 200_000;
/// In place of `LARGEST_OWN_NS` where the threads had to wait for a core, and in a replay, which has a schedule to
/// keep.
const LARGEST_SHARED_NS: u64 = 1_000_000;
/// A thread that uses less of a core than this is not saturated, whatever an operation costs it.
const LEAST_BUSY_SHARE: f64 = 0.5;
/// Above it the driver waited for a core for much of the time, which adds to the latencies.
const WARN_WAITED_SHARE: f64 = 0.2;
/// Of the window's operations, those that a faster warm-up left over: a higher percentile, or most of them, is theirs.
const WARN_LEFT_SHARE: f64 = 0.01;
const LARGEST_LEFT_SHARE: f64 = 0.1;
const CONNECT: &str = "connect";
const INTERVAL: &str = "interval";
const DRAIN: &str = "drain";

/// What the `start` line says.
pub struct Title<'a> {
    pub operations: &'a [String],
    pub threads: usize,
    /// Its end is the planned one.
    pub schedule: Schedule,
    pub offset_ns: i64,
    /// How many connections there are at first.
    pub connections: usize,
    pub pacing: &'static str,
    /// More operations a second are due in the warm-up than in the window.
    pub has_faster_warmup: bool,
    /// They are in some last part of the warm-up, as in a peak just before the window.
    pub has_peak_before: bool,
    /// What the schedule needs of this machine's cores, where that was looked at.
    pub needs: Option<Needs>,
    /// What may fail for lack of something, in sentences.
    pub doubts: &'a [String],
}

/// A `Title::pacing` by which own delays are judged.
pub const CLOSED: &str = "closed";
pub const RECORDED: &str = "recorded";

/// The results of one thread.
pub struct ThreadEnd {
    pub whole: Whole,
    end_ns: u64,
    connections_lost: u64,
    unfinished: u64,
    used: Used,
}

impl ThreadEnd {
    pub fn new(outcome: Outcome, used: Used) -> Self {
        let Outcome { recorder, connections_lost, unfinished, end_ns } = outcome;
        Self { whole: recorder.finish(), end_ns, connections_lost, unfinished, used }
    }
}

/// An `interval` line, or a `drain` line.
#[derive(Serialize)]
struct Interval<'a> {
    kind: &'static str,
    t_s: f64,
    duration_s: f64,
    operation: &'a str,
    #[serde(flatten)]
    row: &'a Row,
}

/// A second of all threads that have reported it so far.
struct Gathered {
    threads: usize,
    rows: Vec<Row>,
}

pub struct Lines<'a> {
    output: &'a Output,
    title: &'a Title<'a>,
    /// Those of the workload, and `connect`.
    operations: Vec<&'a str>,
    gathered: BTreeMap<i64, Gathered>,
    /// Operations that ended after the window's planned end.
    drain: Option<Vec<Row>>,
    /// Of all operations of the window.
    response: Sparse,
    ends: Vec<ThreadEnd>,
    shows_progress: bool,
}

impl<'a> Lines<'a> {
    /// Writes the `start` line.
    pub fn begin(output: &'a Output, title: &'a Title<'a>, shows_progress: bool) -> anyhow::Result<Self> {
        let schedule = title.schedule;
        let operations = title.operations.iter().map(String::as_str).chain([CONNECT]).collect();
        let lines = Self {
            output,
            title,
            operations,
            gathered: BTreeMap::new(),
            drain: None,
            response: Sparse::default(),
            ends: Vec::new(),
            shows_progress: shows_progress || std::io::stderr().is_terminal(),
        };
        lines.write(&json!({
            "kind": "start",
            "agent_version": env!("CARGO_PKG_VERSION"),
            "window_start_ns": lines.epoch_ns(schedule.window_start_ns),
            "window_end_ns": lines.epoch_ns(schedule.end_ns),
            "operations": title.operations,
            "connections": title.connections,
            "threads": title.threads,
            "pacing": title.pacing,
            "needs": title.needs.as_ref().map(Needs::to_json),
            "doubts": title.doubts,
        }))?;
        if lines.shows_progress {
            title.needs.iter().for_each(|needs| eprintln!("{}", needs.sentence()));
            title.doubts.iter().for_each(|doubt| eprintln!("{doubt}"));
        }
        Ok(lines)
    }

    /// Takes a second of one thread; writes the seconds that are complete.
    pub fn add(&mut self, second: Second) -> anyhow::Result<()> {
        if second.number >= 0 {
            for row in &second.rows[..second.rows.len() - 1] {
                self.response.add(&row.response);
            }
        }
        let rows = vec![Row::default(); self.operations.len()];
        if second.is_drain {
            for (sum, row) in self.drain.get_or_insert(rows).iter_mut().zip(&second.rows) {
                sum.add(row);
            }
            return Ok(());
        }
        let gathered = self.gathered.entry(second.number).or_insert(Gathered { threads: 0, rows });
        gathered.threads += 1;
        for (sum, row) in gathered.rows.iter_mut().zip(&second.rows) {
            sum.add(row);
        }
        let is_whole = gathered.threads == self.title.threads;
        if is_whole && self.shows_progress && self.end_of(second.number) <= self.planned_end() {
            self.show(second.number);
        }
        // The latest two are held back: the last may be too short for a row of its own.
        while let Some((number, first)) = self.gathered.first_key_value()
            && first.threads == self.title.threads
            && self.gathered.get(&(number + 2)).is_some_and(|next| next.threads == self.title.threads)
        {
            let (number, first) = self.gathered.pop_first().expect("looked at just now");
            self.write_rows(number, self.end_of(number), &first.rows)?;
        }
        Ok(())
    }

    pub fn end_thread(&mut self, end: ThreadEnd) {
        self.ends.push(end);
    }

    /// Writes the rest and the `end` line.
    /// `also` has further members of the line; its lists `invalid` and `warnings` are added to ours.
    pub fn finish(mut self, was_stopped: bool, also: Map<String, Value>) -> anyhow::Result<()> {
        let end_ns = self.ends.iter().map(|end| end.end_ns).max().expect("a trial has a thread");
        let drained_ns = self.since_window(end_ns);
        // Without a drain the load did not end as planned: it was stopped, or the recording ended.
        let end_ns = if self.drain.is_some() { self.planned_end() } else { drained_ns };
        self.join_short_rest(end_ns);
        let rest = std::mem::take(&mut self.gathered);
        let last = rest.keys().next_back().copied();
        for (number, Gathered { rows, .. }) in rest {
            let until = if Some(number) == last { end_ns } else { self.end_of(number) };
            self.write_rows(number, until, &rows)?;
        }
        if let Some(rows) = self.drain.take() {
            self.write_lines(DRAIN, (end_ns, drained_ns), &rows)?;
        }
        self.write_end(end_ns, drained_ns - end_ns, was_stopped, also)
    }

    /// Joins the seconds that are too short, or behind the end, to the one before them.
    fn join_short_rest(&mut self, end_ns: i64) {
        while self.gathered.len() > 1
            && let Some(last) = self.gathered.last_entry()
            && end_ns - last.key() * SECOND_NS < SHORTEST_ROW_NS
            // The window does not begin in a row of the warm-up.
            && *last.key() != 0
        {
            let rest = last.remove();
            let mut before = self.gathered.last_entry().expect("there were two");
            for (sum, row) in before.get_mut().rows.iter_mut().zip(&rest.rows) {
                sum.add(row);
            }
        }
    }

    fn write_rows(&self, number: i64, end_ns: i64, rows: &[Row]) -> anyhow::Result<()> {
        let start_ns = (number * SECOND_NS).max(self.since_window(self.title.schedule.start_ns));
        self.write_lines(INTERVAL, (start_ns, end_ns), rows)
    }

    fn write_lines(
        &self,
        kind: &'static str,
        (start_ns, end_ns): (i64, i64),
        rows: &[Row],
    ) -> anyhow::Result<()> {
        for (operation, row) in self.operations.iter().zip(rows) {
            // Without reconnects, or without operations after the window, there is no line about them.
            if (*operation == CONNECT || kind == DRAIN) && row.count + row.errors == 0 {
                continue;
            }
            let (t_s, duration_s) = (seconds(start_ns), seconds(end_ns - start_ns));
            self.write(&Interval { kind, t_s, duration_s, operation, row })?;
        }
        Ok(())
    }

    fn write_end(
        &self,
        end_ns: i64,
        drain_ns: i64,
        was_stopped: bool,
        also: Map<String, Value>,
    ) -> anyhow::Result<()> {
        let mut errors: BTreeMap<(usize, u16), (&str, u64)> = BTreeMap::new();
        let (mut lateness, mut unseen) = (Sparse::default(), Sparse::default());
        for end in &self.ends {
            lateness.add(&end.whole.lateness);
            unseen.add(&end.whole.unseen);
            for ((operation, code), (message, count)) in &end.whole.errors {
                errors.entry((*operation, *code)).or_insert((message, 0)).1 += count;
            }
        }
        let errors: Vec<_> = errors
            .into_iter()
            .map(|((operation, code), (message, count))| {
                json!({"operation": self.operations[operation], "code": code, "message": message, "count": count})
            })
            .collect();
        let total = |value: fn(&Used) -> u64| self.ends.iter().map(|end| value(&end.used)).sum::<u64>();
        let cpu_ns = total(|used| used.cpu_ns);
        let system_ns = total(|used| used.system_ns);
        let busiest = self.largest_share(|used| used.cpu_ns);
        let waited = self.largest_share(|used| used.waited_ns);
        let unfinished: u64 = self.ends.iter().map(|end| end.unfinished).sum();
        let mut judged = self.own_delay(&lateness, &unseen, busiest, waited).judge();
        let left_over: u64 = self.ends.iter().map(|end| end.whole.left_over).sum();
        let left_behind: u64 = self.ends.iter().map(|end| end.whole.left_behind).sum();
        // A server that cannot keep up is as far behind at the end: that is the window's own doing.
        let is_made_up_for = 2 * left_behind < left_over;
        let is_planned = self.title.has_faster_warmup || (self.title.has_peak_before && is_made_up_for);
        let is_queue = is_made_up_for && left_over > self.title.connections as u64;
        if is_planned || (is_queue && self.title.pacing != CLOSED) {
            judged.warm_up(left_over, self.response.count(), is_planned);
        }
        if was_stopped {
            judged.invalid.push("stopped before its end".to_owned());
        }
        if drain_ns > WARN_DRAIN_NS {
            judged.warnings.push(format!(
                "the last operation ended {:.1} s after the window: it counts in the latencies, not in the throughput",
                seconds(drain_ns)
            ));
        }
        let mut line = json!({
            "kind": "end",
            "window_start_ns": self.epoch_ns(self.title.schedule.window_start_ns),
            // Stopped in the warm-up: there was no window.
            "window_end_ns": self.epoch_ns(self.title.schedule.window_start_ns) + end_ns.max(0),
            "drain_s": seconds(drain_ns.max(0)),
            "cpu_user_s": seconds((cpu_ns - system_ns) as i64),
            "cpu_system_s": seconds(system_ns as i64),
            "busiest_thread": busiest,
            "waited_for_cpu": waited,
            "max_rss_bytes": max_rss_bytes(),
            "lateness": summary(&lateness),
            "unseen": summary(&unseen),
            "errors": errors,
            "connections_lost": self.ends.iter().map(|end| end.connections_lost).sum::<u64>(),
            "unfinished": unfinished,
            "left_over": left_over,
            "invalid": judged.invalid,
            "warnings": judged.warnings,
        });
        for (key, value) in also {
            match (line.get_mut(&key).and_then(Value::as_array_mut), value) {
                (Some(list), Value::Array(more)) => list.extend(more),
                (_, value) => line[&key] = value,
            }
        }
        self.write(&line)
    }

    /// What this driver added to the times of its operations.
    fn own_delay(&self, lateness: &Sparse, unseen: &Sparse, busiest: f64, waited: f64) -> OwnDelay {
        let p99 = |delays: &Sparse| delays.percentile_ns(0.99).unwrap_or(0);
        let operations = |end: &ThreadEnd| end.whole.lateness.count();
        let queued_ns = self.ends.iter().map(|end| queued_p99_ns(&end.used, operations(end)));
        OwnDelay {
            pacing: self.title.pacing,
            late_p99_ns: p99(lateness),
            unseen_p99_ns: p99(unseen),
            queued_p99_ns: queued_ns.max().unwrap_or(0),
            response_p50_ns: self.response.percentile_ns(0.5).unwrap_or(0),
            operations: self.ends.iter().map(operations).sum(),
            waited_ns: self.ends.iter().map(|end| end.used.waited_ns).sum(),
            busiest,
            waited,
        }
    }

    /// The largest value of any thread.
    fn largest_share(&self, value: fn(&Used) -> u64) -> f64 {
        let share = |used: &Used| value(used) as f64 / used.elapsed_ns.max(1) as f64;
        self.ends.iter().map(|end| share(&end.used)).fold(0.0, f64::max)
    }

    fn write(&self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.output.write(&bytes)
    }

    /// A second's results, for people.
    fn show(&self, number: i64) {
        let Some(Gathered { rows, .. }) = self.gathered.get(&number) else { return };
        let mut all = Row::default();
        rows.iter().take(rows.len() - 1).for_each(|row| all.add(row));
        let p99_ms = all.response.percentile_ns(0.99).map_or(0.0, |ns| ns as f64 / 1e6);
        let phase = if number < 0 { "warm-up" } else { "" };
        let left = (self.planned_end() / SECOND_NS - number - 1).max(0);
        eprintln!(
            "{number:5} s {phase:7} {:10} operations/s  p99 {p99_ms:9.3} ms  {:6} errors  {left} s left",
            all.count, all.errors
        );
    }

    fn end_of(&self, number: i64) -> i64 {
        (number + 1) * SECOND_NS
    }

    fn planned_end(&self) -> i64 {
        self.since_window(self.title.schedule.end_ns)
    }

    fn since_window(&self, time_ns: u64) -> i64 {
        time_ns as i64 - self.title.schedule.window_start_ns as i64
    }

    fn epoch_ns(&self, time_ns: u64) -> i64 {
        time_ns as i64 + self.title.offset_ns
    }
}

/// A histogram in a few numbers.
pub fn summary(histogram: &Sparse) -> Value {
    json!({
        "count": histogram.count(),
        "p50_ns": histogram.percentile_ns(0.5),
        "p99_ns": histogram.percentile_ns(0.99),
        "max_ns": histogram.max_ns,
    })
}

/// How long a reply waits for a busy thread, by its p99: replies that come independently, each with the same work
/// (M/D/1, whose tail is nearly exponential).
fn queued_p99_ns(used: &Used, operations: u64) -> u64 {
    let share = (used.cpu_ns as f64 / used.elapsed_ns.max(1) as f64).min(0.999);
    if operations == 0 || share < LEAST_BUSY_SHARE {
        return 0;
    }
    let work_ns = used.cpu_ns as f64 / operations as f64;
    (work_ns / (2.0 * (1.0 - share)) * (100.0 * share).ln()) as u64
}

/// What the driver added to its operations' times, and why.
#[derive(Clone, Default)]
struct OwnDelay {
    pacing: &'static str,
    late_p99_ns: u64,
    unseen_p99_ns: u64,
    queued_p99_ns: u64,
    response_p50_ns: u64,
    operations: u64,
    /// All threads, ready without a core.
    waited_ns: u64,
    /// Shares of the time: of the busiest thread, and of the one that waited longest for a core.
    busiest: f64,
    waited: f64,
}

/// Why this driver's numbers must not be believed, and what a reader should know.
#[derive(Default)]
struct Judged {
    invalid: Vec<String>,
    warnings: Vec<String>,
}

impl Judged {
    /// Operations that were due in the warm-up and sent in the window, and all that succeeded in the window.
    /// Whether the server was slow in the warm-up may depend on the treatment, so only the plan's rates make it invalid.
    fn warm_up(&mut self, left_over: u64, operations: u64, is_planned: bool) {
        let share = left_over as f64 / operations.max(left_over).max(1) as f64;
        if share < WARN_LEFT_SHARE {
            return;
        }
        let is_invalid = is_planned && share >= LARGEST_LEFT_SHARE;
        let list = if is_invalid { &mut self.invalid } else { &mut self.warnings };
        let (why, help) = if is_planned {
            (", at its higher rate,", "give the warm-up the window's rate")
        } else {
            (", in which the server could not keep up,", "a longer warm-up helps")
        };
        list.push(format!(
            "{left_over} operations, {:.0}% of the window's, were due in the warm-up{why} and still waiting when the \
             window began: their wait is in its latencies; {help}",
            share * 100.0
        ));
    }
}

impl OwnDelay {
    fn judge(&self) -> Judged {
        let mut judged = Judged::default();
        // A closed loop's operations start when they are sent: no send can be late.
        let own_ns = match self.pacing {
            CLOSED => self.unseen_p99_ns,
            _ => self.late_p99_ns.max(self.unseen_p99_ns),
        };
        let relative_ns = (LARGEST_OWN_SHARE * self.response_p50_ns as f64) as u64;
        let warn_ns = relative_ns.max(WARN_OWN_NS);
        // Enough waiting for the latest hundredth of the operations: then the delay is the host's. It depends on the
        // load there, and with it on the treatment, whose trials must not be chosen by that.
        let lacks_core = self.waited_ns > self.operations / 100 * warn_ns;
        let is_shared = lacks_core || self.pacing == RECORDED;
        let limit_ns = relative_ns.max(if is_shared { LARGEST_SHARED_NS } else { LARGEST_OWN_NS });
        let ms = |ns: u64| ns as f64 / 1e6;
        if own_ns > limit_ns && !(lacks_core && self.pacing == CLOSED) {
            judged.invalid.push(format!(
                "the driver was late: p99 {:.2} ms of its own delay (limit {:.2} ms)",
                ms(own_ns),
                ms(limit_ns)
            ));
        } else if own_ns > warn_ns && self.pacing != RECORDED {
            judged.warnings.push(format!(
                "the driver's own delay has a p99 of {:.2} ms, beside a median response of {:.2} ms",
                ms(own_ns),
                ms(self.response_p50_ns)
            ));
        }
        if self.queued_p99_ns > warn_ns && !lacks_core {
            let percent = self.busiest * 100.0;
            judged.invalid.push(format!(
                "the driver was saturated: a thread used {percent:.0}% of a core, which keeps replies waiting for \
                 {:.2} ms (p99; limit {:.2} ms); give it more threads",
                ms(self.queued_p99_ns),
                ms(warn_ns)
            ));
        }
        if self.waited > WARN_WAITED_SHARE {
            let percent = self.waited * 100.0;
            judged.warnings.push(format!(
                "the driver waited for a core {percent:.0}% of the time: latencies include that"
            ));
        }
        judged
    }
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::{CLOSED, Judged, OwnDelay, RECORDED, queued_p99_ns};
    use crate::usage::Used;

    const US: u64 = 1000;

    /// An open loop of fast operations on a thread with a core of its own.
    fn open() -> OwnDelay {
        OwnDelay { pacing: "open", response_p50_ns: 300 * US, operations: 100_000, ..OwnDelay::default() }
    }

    fn counts(judged: &Judged) -> (usize, usize) {
        (judged.invalid.len(), judged.warnings.len())
    }

    #[test]
    fn own_delays_are_judged_beside_the_response() {
        let late = |late_us: u64, response_p50_us: u64| {
            let own = OwnDelay { late_p99_ns: late_us * US, response_p50_ns: response_p50_us * US, ..open() };
            counts(&own.judge())
        };
        assert_eq!(late(40, 300), (0, 0));
        assert_eq!(late(60, 300), (0, 1));
        assert_eq!(late(300, 300), (1, 0));
        assert_eq!(late(240, 5_000), (0, 0));
        assert_eq!(late(300, 5_000), (1, 0));
        assert_eq!(late(900, 20_000), (0, 0));
        assert_eq!(late(1_100, 20_000), (1, 0));
    }

    #[test]
    fn in_a_closed_loop_only_replies_can_be_late() {
        let own = OwnDelay { pacing: CLOSED, late_p99_ns: 5_000 * US, ..open() };
        assert_eq!(counts(&own.judge()), (0, 0));
        assert_eq!(counts(&OwnDelay { unseen_p99_ns: 300 * US, ..own }.judge()), (1, 0));
    }

    #[test]
    fn a_delay_of_the_host_does_not_choose_trials() {
        let own = OwnDelay { unseen_p99_ns: 500 * US, waited_ns: 100_000 * US, ..open() };
        assert_eq!(counts(&own.judge()), (0, 1));
        let closed = OwnDelay { pacing: CLOSED, unseen_p99_ns: 5_000 * US, ..own.clone() };
        assert_eq!(counts(&closed.judge()), (0, 1));
        assert_eq!(counts(&OwnDelay { unseen_p99_ns: 1_100 * US, ..own }.judge()), (1, 0));
    }

    #[test]
    fn what_a_faster_warm_up_left_over_is_said_and_must_not_decide() {
        let left_over = |count, is_planned| {
            let mut judged = Judged::default();
            judged.warm_up(count, 1000, is_planned);
            counts(&judged)
        };
        assert_eq!(
            [0, 9, 10, 99, 100, 2000].map(|count| left_over(count, true)),
            [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0)]
        );
        // A server that was slow until it was warm: said, and no reason to leave its trials out.
        assert_eq!([9, 10, 2000].map(|count| left_over(count, false)), [(0, 0), (0, 1), (0, 1)]);
    }

    #[test]
    fn a_replay_has_a_millisecond() {
        let own = OwnDelay { pacing: RECORDED, late_p99_ns: 900 * US, ..open() };
        assert_eq!(counts(&own.judge()), (0, 0));
        assert_eq!(counts(&OwnDelay { late_p99_ns: 1_100 * US, ..own }.judge()), (1, 0));
    }

    #[test]
    fn a_busy_thread_is_judged_by_the_wait_for_it() {
        let queued = |share: f64| {
            let used = Used { cpu_ns: (share * 1e9) as u64, elapsed_ns: 1_000_000_000, ..Used::default() };
            queued_p99_ns(&used, (share * 1e9) as u64 / (8 * US))
        };
        assert_eq!(queued(0.3), 0);
        // 8 us of work: a mean wait of 8 / (2 x 0.2) x 0.8 = 16 us, and a tail of 4.4 times 20 us.
        assert!(queued(0.8).abs_diff(87_600) < 1_000, "{}", queued(0.8));
        let own = |response_p50_us: u64| OwnDelay {
            queued_p99_ns: queued(0.9),
            response_p50_ns: response_p50_us * US,
            ..open()
        };
        assert!(own(300).judge().invalid[0].contains("the driver was saturated"));
        assert_eq!(counts(&own(5_000).judge()), (0, 0));
    }
}
