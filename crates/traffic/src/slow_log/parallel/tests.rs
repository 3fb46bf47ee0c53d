use std::io::Write;

use super::super::tests::{Seen, event, parsed, sample};
use super::*;
use crate::event::Event;

#[derive(Default)]
struct Keep(Vec<Seen>);

impl Sink for Keep {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self.0.push(Seen::of(event));
        Ok(())
    }
}

/// Reads in windows of a size; the events of all threads in the order of the log.
#[track_caller]
pub(in crate::slow_log) fn same(log: &[u8], window_bytes: u64, workers: usize) {
    let (expected, expected_coverage) = parsed(log);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(log).unwrap();
    let results = read_windows(&file, "log", workers, window_bytes, Keep::default).unwrap();
    let mut coverage = Coverage::default();
    let mut events = Vec::new();
    for (keep, part) in results {
        events.extend(keep.0);
        coverage.merge(&part);
    }
    if workers == 1 {
        assert_eq!(events, expected, "windows of {window_bytes}");
    } else {
        let key = |event: &Seen| format!("{event:?}");
        let sorted = |mut events: Vec<Seen>| {
            events.sort_by_key(key);
            events
        };
        assert_eq!(sorted(events), sorted(expected), "windows of {window_bytes}");
    }
    assert_eq!(coverage, expected_coverage, "windows of {window_bytes}");
}

#[test]
fn a_cut_at_every_byte_changes_nothing() {
    let log = sample();
    // Small windows cut everywhere; the others see to it that some hold many events.
    let few = (1..20).chain((20..log.len() as u64 + 40).step_by(17));
    for window_bytes in few {
        same(log.as_bytes(), window_bytes, 1);
    }
}

#[test]
fn threads_find_the_same_as_one() {
    let mut log = String::new();
    for round in 0..200 {
        log += &sample();
        log += &event(round % 60, round, &format!("select {}", "x".repeat(round as usize * 7)));
    }
    for window_bytes in [300, 1000, 4096, 10_000, 1 << 20] {
        for workers in [2, 3, 8] {
            same(log.as_bytes(), window_bytes, workers);
        }
    }
}

#[test]
fn an_empty_file_has_one_result() {
    same(b"", 100, 4);
}

#[test]
fn an_error_of_a_sink_ends_all_threads() {
    let mut file = tempfile::tempfile().unwrap();
    for round in 0..3000 {
        file.write_all(event(round % 60, round, "select 1").as_bytes()).unwrap();
    }
    let make = || |event: &Event<'_>| if event.session == 1500 { anyhow::bail!("full") } else { Ok(()) };
    let error = read_windows(&file, "log", 4, 1000, make).err().unwrap();
    assert_eq!(error.to_string(), "full");
}
