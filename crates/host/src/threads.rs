//! /proc/PID/task: CPU time of each thread of the servers, and where in the kernel their threads wait.
//!
//! Of a server with 2,000 threads 32 are read per tick, so that it costs no more than one with 32: up to half are
//! those that used most CPU time when they were last read; the others take turns, which takes a minute. Counters
//! lose nothing; states and waits are those of each thread's last reading.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::sample::sampler::{Host, Kind, Sample};
use super::sample::source::numbers;
use super::sample::values::Values;
use super::servers::Servers;

pub const THREADS: Kind = Kind::host(
    "threads",
    "CPU and run queue time by tid/name, states, kernel waits by name/wchan of the servers' threads, in turn",
    |host: &Host| Box::new(Threads::new(Servers::new(&host.root))),
);

/// 25 to 40 us each: about 0.1% of a core at 1 Hz.
const LOOKS: usize = 32;
/// At most this many of them for busy threads.
const BUSY: usize = LOOKS / 2;

struct Threads {
    servers: Servers,
    /// Folders of threads that this round has not read yet, the last first.
    due: Vec<(u32, PathBuf)>,
    /// The last reading of each thread, and its round.
    seen: BTreeMap<u32, Seen>,
    /// Threads that used CPU time between their last two readings, and how many ticks; those with most first.
    busy: Vec<(u32, PathBuf, u64)>,
    round: u64,
    text: String,
}

struct Seen {
    name: String,
    /// CPU time so far.
    ticks: u64,
    state: char,
    /// Where in the kernel it waits; None if it runs, or without permission.
    wchan: Option<String>,
    round: u64,
}

impl Threads {
    fn new(servers: Servers) -> Self {
        Self {
            servers,
            due: Vec::new(),
            seen: BTreeMap::new(),
            busy: Vec::new(),
            round: 0,
            text: String::new(),
        }
    }

    fn begin_round(&mut self) {
        // A thread that was in no folder of the round before has ended.
        let last = self.round;
        self.seen.retain(|_, seen| seen.round == last);
        self.round += 1;
        for (folder, _) in self.servers.now() {
            let tasks = std::fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
            self.due.extend(
                tasks.filter_map(|task| Some((task.file_name().to_str()?.parse().ok()?, task.path()))),
            );
        }
        self.due.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// Utime, stime and run queue time of a thread; None if it ended.
    fn look(&mut self, tid: u32, folder: &Path) -> Option<[u64; 3]> {
        read(folder.join("stat"), &mut self.text)?;
        // The name may hold spaces and parentheses, so the last parenthesis ends it.
        let (start, end) = (self.text.find('(')? + 1, self.text.rfind(')')?);
        let name = self.text.get(start..end)?.to_owned();
        let mut fields = self.text.get(end + 2..)?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        // Fields 14 and 15 of proc(5); the state is field 3.
        let utime_ticks = fields.nth(10)?.parse().ok()?;
        let stime_ticks = fields.next()?.parse().ok()?;
        let runqueue_ns = read(folder.join("schedstat"), &mut self.text)
            .and_then(|()| numbers(&self.text).nth(1))
            .unwrap_or(0);
        let wchan = read(folder.join("wchan"), &mut self.text)
            .map(|()| self.text.trim().to_owned())
            .filter(|place| !place.is_empty() && place != "0");
        let ticks = utime_ticks + stime_ticks;
        self.seen.insert(tid, Seen { name, ticks, state, wchan, round: self.round });
        Some([utime_ticks, stime_ticks, runqueue_ns])
    }
}

impl Sample for Threads {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        if self.due.is_empty() {
            self.begin_round();
        }
        let mut rows = BTreeMap::new();
        let mut busy = Vec::new();
        let again: Vec<_> =
            std::mem::take(&mut self.busy).into_iter().map(|(tid, folder, _)| (tid, folder)).collect();
        let mut looks = 0;
        let mut again = again.into_iter();
        while looks < LOOKS {
            let Some((tid, folder)) = again.next().or_else(|| self.due.pop()) else { break };
            if rows.contains_key(&tid) {
                continue;
            }
            looks += 1;
            let before = self.seen.get(&tid).map(|seen| seen.ticks);
            let Some(counters) = self.look(tid, &folder) else {
                self.seen.remove(&tid);
                continue;
            };
            let used = before.map_or(0, |before| self.seen[&tid].ticks.saturating_sub(before));
            if used > 0 {
                busy.push((tid, folder, used));
            }
            rows.insert(tid, (format!("{tid}/{}", self.seen[&tid].name), counters));
        }
        busy.sort_unstable_by_key(|(_, _, used)| std::cmp::Reverse(*used));
        busy.truncate(BUSY);
        self.busy = busy;
        let rows: Vec<_> = rows.into_values().collect();
        values.table(&["utime_ticks", "stime_ticks", "runqueue_ns"], &rows);
        let mut states = BTreeMap::<String, u64>::new();
        let (mut waiting, mut blocked) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
        for seen in self.seen.values() {
            *states.entry(seen.state.to_string()).or_default() += 1;
            if let (Some(wchan), 'S' | 'D') = (&seen.wchan, seen.state) {
                let label = format!("{}/{wchan}", seen.name);
                if seen.state == 'D' {
                    *blocked.entry(label.clone()).or_default() += 1;
                }
                *waiting.entry(label).or_default() += 1;
            }
        }
        for (metric, counts) in [("states", states), ("waiting", waiting), ("blocked", blocked)] {
            values.metric(metric);
            for (label, count) in counts {
                values.value(&label, count);
            }
        }
        Ok(())
    }
}

fn read(path: PathBuf, text: &mut String) -> Option<()> {
    text.clear();
    File::open(path).ok()?.read_to_string(text).ok()?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::{LOOKS, Sample, Servers, Threads};
    use crate::sample::values::collect;
    use serde_json::json;
    use std::fs;
    use std::path::Path;

    fn write_thread(root: &Path, tid: u32, name: &str, state: char, utime: u64, wchan: &str) {
        let task = root.join(format!("proc/10/task/{tid}"));
        fs::create_dir_all(&task).unwrap();
        fs::write(root.join("proc/10/comm"), "mariadbd\n").unwrap();
        fs::write(root.join("proc/10/stat"), "").unwrap();
        let stat =
            format!("{tid} ({name}) {state} 1 1 1 0 -1 4194304 99 0 0 0 {utime} 5 0 0 20 0 1 0 195802\n");
        fs::write(task.join("stat"), stat).unwrap();
        fs::write(task.join("schedstat"), format!("1000 {} 7\n", 100 * tid)).unwrap();
        fs::write(task.join("wchan"), wchan).unwrap();
    }

    #[test]
    fn threads_have_counters_and_waits() {
        let root = tempfile::tempdir().unwrap();
        write_thread(root.path(), 11, "conn) (1", 'S', 70, "futex_wait_queue");
        write_thread(root.path(), 12, "ib_log", 'D', 80, "jbd2_log_wait_commit");
        write_thread(root.path(), 13, "conn", 'R', 90, "0");
        let mut threads = Threads::new(Servers::new(root.path()));
        let values = collect(|values| threads.sample(values).unwrap());
        assert_eq!(values["utime_ticks"], json!({"11/conn) (1": 70, "12/ib_log": 80, "13/conn": 90}));
        assert_eq!(values["runqueue_ns"]["12/ib_log"], 1200);
        assert_eq!(values["states"], json!({"D": 1, "R": 1, "S": 1}));
        assert_eq!(
            values["waiting"],
            json!({"conn) (1/futex_wait_queue": 1, "ib_log/jbd2_log_wait_commit": 1})
        );
        assert_eq!(values["blocked"], json!({"ib_log/jbd2_log_wait_commit": 1}));
    }

    #[test]
    fn threads_at_work_are_looked_at_on_every_tick() {
        let root = tempfile::tempdir().unwrap();
        for tid in 100..400 {
            write_thread(root.path(), tid, "conn", 'S', 1, "ep_poll");
        }
        let mut threads = Threads::new(Servers::new(root.path()));
        for utime in 0..30 {
            write_thread(root.path(), 333, "hot", 'R', 100 * utime, "0");
            let values = collect(|values| threads.sample(values).unwrap());
            let looked = values["utime_ticks"].as_object().unwrap();
            assert!(looked.len() <= LOOKS);
            // It was found in the first two rounds of ten ticks.
            assert!(utime < 21 || looked.contains_key("333/hot"), "{utime}");
        }
    }

    #[test]
    fn many_threads_are_looked_at_in_turn_and_those_that_ended_are_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let count = 2 * LOOKS as u32 + 10;
        for tid in 100..100 + count {
            write_thread(root.path(), tid, "conn", 'S', 1, "ep_poll");
        }
        let mut threads = Threads::new(Servers::new(root.path()));
        let mut looked = 0;
        for _ in 0..3 {
            let values = collect(|values| threads.sample(values).unwrap());
            looked += values["utime_ticks"].as_object().unwrap().len();
        }
        assert_eq!(looked, count as usize);
        assert_eq!(threads.seen.len(), count as usize);
        for tid in 110..100 + count {
            fs::remove_dir_all(root.path().join(format!("proc/10/task/{tid}"))).unwrap();
        }
        for _ in 0..2 {
            collect(|values| threads.sample(values).unwrap());
        }
        assert_eq!(threads.seen.len(), 10);
    }
}
