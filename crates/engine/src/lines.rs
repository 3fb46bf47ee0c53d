//! The lines of JSON that `drive run` writes, merged over the threads: `start`, an `interval` for each operation
//! and second, `end`.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::engine::{Outcome, Schedule};
use crate::recorder::{Errors, Row, Second};
use crate::usage::{Used, max_rss_bytes};
use base::histogram::Sparse;
use base::output::Output;

const SECOND_NS: i64 = 1_000_000_000;
/// A rest at the end that is shorter is joined to the second before it: a rate over some ms is noise.
const SHORTEST_ROW_NS: i64 = SECOND_NS / 2;
/// Above it the driver did not keep its own schedule, and its times answer another question.
const LARGEST_LATENESS_NS: u64 = 1_000_000;
/// Above it a thread is so busy that replies wait for it.
const LARGEST_CPU_SHARE: f64 = 0.85;
/// Above it the driver waited for a core for a good part of the time: what it adds to latencies is not nothing.
const WARN_WAITED_SHARE: f64 = 0.2;
const CONNECT: &str = "connect";

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
}

/// What one thread leaves.
pub struct ThreadEnd {
    errors: Errors,
    lateness: Sparse,
    pub lag: Sparse,
    end_ns: u64,
    connections_lost: u64,
    unfinished: u64,
    used: Used,
}

impl ThreadEnd {
    pub fn new(outcome: Outcome, used: Used) -> Self {
        let Outcome { recorder, connections_lost, unfinished, end_ns } = outcome;
        let (errors, lateness, lag) = recorder.finish();
        Self { errors, lateness, lag, end_ns, connections_lost, unfinished, used }
    }
}

/// An `interval` line.
#[derive(Serialize)]
struct Interval<'a> {
    kind: &'static str,
    t_s: f64,
    duration_s: f64,
    operation: &'a str,
    #[serde(flatten)]
    row: &'a Row,
}

/// A second of all threads, or of as many as have given it.
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
        }))?;
        Ok(lines)
    }

    /// Takes a second of one thread; writes what is whole.
    pub fn add(&mut self, second: Second) -> anyhow::Result<()> {
        let rows = vec![Row::default(); self.operations.len()];
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
    /// `also` is what else there is to say of the whole; its lists `invalid` and `warnings` are added to ours.
    pub fn finish(mut self, was_stopped: bool, also: Map<String, Value>) -> anyhow::Result<()> {
        let end_ns = self.ends.iter().map(|end| end.end_ns).max().expect("a trial has a thread");
        let end_ns = self.since_window(end_ns);
        self.join_short_rest(end_ns);
        let rest = std::mem::take(&mut self.gathered);
        let last = rest.keys().next_back().copied();
        for (number, Gathered { rows, .. }) in rest {
            let until = if Some(number) == last { end_ns } else { self.end_of(number) };
            self.write_rows(number, until, &rows)?;
        }
        self.write_end(end_ns, was_stopped, also)
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
        for (operation, row) in self.operations.iter().zip(rows) {
            // A trial in which nobody had to reconnect says nothing of it.
            if *operation == CONNECT && row.count + row.errors == 0 {
                continue;
            }
            let (t_s, duration_s) = (seconds(start_ns), seconds(end_ns - start_ns));
            self.write(&Interval { kind: "interval", t_s, duration_s, operation, row })?;
        }
        Ok(())
    }

    fn write_end(&self, end_ns: i64, was_stopped: bool, also: Map<String, Value>) -> anyhow::Result<()> {
        let mut errors: BTreeMap<(usize, u16), (&str, u64)> = BTreeMap::new();
        let mut lateness = Sparse::default();
        for end in &self.ends {
            lateness.add(&end.lateness);
            for ((operation, code), (message, count)) in &end.errors {
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
        let (invalid, warnings) = judge(&lateness, busiest, waited, was_stopped);
        let mut line = json!({
            "kind": "end",
            "window_start_ns": self.epoch_ns(self.title.schedule.window_start_ns),
            // Stopped in the warm-up: there was no window.
            "window_end_ns": self.epoch_ns(self.title.schedule.window_start_ns) + end_ns.max(0),
            "cpu_user_s": seconds((cpu_ns - system_ns) as i64),
            "cpu_system_s": seconds(system_ns as i64),
            "busiest_thread": busiest,
            "waited_for_cpu": waited,
            "max_rss_bytes": max_rss_bytes(),
            "lateness": summary(&lateness),
            "errors": errors,
            "connections_lost": self.ends.iter().map(|end| end.connections_lost).sum::<u64>(),
            "unfinished": unfinished,
            "invalid": invalid,
            "warnings": warnings,
        });
        for (key, value) in also {
            match (line.get_mut(&key).and_then(Value::as_array_mut), value) {
                (Some(list), Value::Array(more)) => list.extend(more),
                (_, value) => line[&key] = value,
            }
        }
        self.write(&line)
    }

    /// Of the thread that has most of it.
    fn largest_share(&self, value: fn(&Used) -> u64) -> f64 {
        let share = |used: &Used| value(used) as f64 / used.elapsed_ns.max(1) as f64;
        self.ends.iter().map(|end| share(&end.used)).fold(0.0, f64::max)
    }

    fn write(&self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.output.write(&bytes)
    }

    /// What a second brought, for a person.
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

/// Why this driver's numbers must not be believed, and what a reader should know.
fn judge(lateness: &Sparse, busiest: f64, waited: f64, was_stopped: bool) -> (Vec<String>, Vec<String>) {
    let (mut invalid, mut warnings) = (Vec::new(), Vec::new());
    if let Some(p99_ns) = lateness.percentile_ns(0.99)
        && p99_ns > LARGEST_LATENESS_NS
    {
        let ms = p99_ns as f64 / 1e6;
        invalid.push(format!(
            "the driver was late: p99 {ms:.2} ms after an operation could be sent (limit 1 ms)"
        ));
    }
    if busiest > LARGEST_CPU_SHARE {
        let percent = busiest * 100.0;
        invalid.push(format!(
            "the driver was saturated: a thread used {percent:.0}% of a core (limit 85%); give it more threads"
        ));
    }
    if waited > WARN_WAITED_SHARE {
        let percent = waited * 100.0;
        warnings
            .push(format!("the driver waited for a core {percent:.0}% of the time: latencies include that"));
    }
    if was_stopped {
        invalid.push("stopped before its end".to_owned());
    }
    (invalid, warnings)
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
