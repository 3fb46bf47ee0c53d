//! What the kernel's own tracing records: the counters of its buffers (tracefs, `per_cpu/cpuN/stats`).
//!
//! A buffer without a tracer and without enabled events is not read: a host with 128 CPUs has 128 files of each.

use std::path::PathBuf;

use super::facts::files::{Files, Folder};
use super::facts::tracing::instances;
use super::mountinfo;
use super::sample::sampler::{Host, Kind, Sample};
use super::sample::values::Values;

pub const TRACING: Kind = Kind::host(
    "tracing",
    "events that the kernel's own tracing recorded or lost, by buffer (tracefs); top is the main one",
    |host: &Host| Box::new(Tracing { root: host.root.clone() }),
)
.every(10);

struct Tracing {
    root: PathBuf,
}

/// What was written is in the buffer, overwritten, read, or found no room.
const COUNTED: [&str; 4] = ["entries", "overrun", "dropped events", "read events"];

impl Sample for Tracing {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        let is_live = self.root.as_os_str() == "/";
        let files = Files::open((!is_live).then_some(self.root.as_path()))?;
        let host = files.root();
        let mounts = mountinfo::parse(&host.text("proc/self/mountinfo").unwrap_or_default());
        let found = instances(&host, &mounts).unwrap_or_default();
        // Not mounted is an answer, too: nothing traces.
        values.single("buffers", found.len() as u64);
        values.metric("events");
        for (name, folder) in found {
            if is_used(&folder) {
                values.value(&name, recorded(&folder));
            }
        }
        match files.into_errors().first() {
            Some(error) => anyhow::bail!("cannot read {}: {}", error.path, error.error),
            None => Ok(()),
        }
    }
}

fn is_used(buffer: &Folder) -> bool {
    buffer.line("current_tracer").is_some_and(|tracer| tracer != "nop")
        // X: some of them.
        || buffer.line("events/enable").is_some_and(|enabled| enabled != "0")
}

fn recorded(buffer: &Folder) -> u64 {
    let cpus = buffer.join("per_cpu");
    cpus.names("").iter().filter_map(|cpu| Some(sum(&cpus.text(&format!("{cpu}/stats"))?))).sum()
}

fn sum(stats: &str) -> u64 {
    let number = |line: &str| {
        let (name, number) = line.split_once(": ")?;
        COUNTED.contains(&name).then(|| number.trim().parse::<u64>().ok())?
    };
    stats.lines().filter_map(number).sum()
}

#[cfg(test)]
mod tests {
    use super::{Sample, Tracing};
    use crate::sample::values::collect;
    use serde_json::{Value, json};
    use std::fs;
    use std::path::Path;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn sample(root: &Path) -> Value {
        let mut tracing = Tracing { root: root.to_owned() };
        collect(|values| tracing.sample(values).unwrap())
    }

    #[test]
    fn a_buffer_counts_what_it_lost_too_and_an_unused_one_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(sample(root.path()), json!({"buffers": {"": 0}}));
        let mount = "40 23 0:12 / /sys/kernel/tracing rw - tracefs tracefs rw\n";
        write(root.path(), "proc/self/mountinfo", mount);
        let stats = "entries: 5\noverrun: 70\ncommit overrun: 0\nbytes: 400\noldest event ts:  9.5\nnow ts: 10.1\n\
                     dropped events: 3\nread events: 2\n";
        for (buffer, tracer, events) in
            [("", "nop", "0"), ("/instances/a", "function", "0"), ("/instances/b", "nop", "X")]
        {
            let folder = format!("sys/kernel/tracing{buffer}");
            write(root.path(), &format!("{folder}/current_tracer"), tracer);
            write(root.path(), &format!("{folder}/events/enable"), events);
            write(root.path(), &format!("{folder}/per_cpu/cpu0/stats"), stats);
        }
        write(root.path(), "sys/kernel/tracing/instances/b/per_cpu/cpu1/stats", "entries: 1000\n");
        assert_eq!(sample(root.path()), json!({"buffers": {"": 3}, "events": {"a": 80, "b": 1080}}));
    }
}
