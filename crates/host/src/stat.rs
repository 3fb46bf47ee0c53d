//! /proc/stat: where each CPU spent its time, and the kernel's own totals.

use anyhow::ensure;

use super::sample::sampler::Kind;
use super::sample::source::{numbers, text};
use super::sample::values::Values;

pub const CPU: Kind = Kind::host(
    "cpu",
    "time of each CPU by kind, in ticks; context switches, interrupts, forks (/proc/stat)",
    |host| text(&host.root, "proc/stat", write),
);

/// Older kernels have fewer: steal came with 2.6.11, guest with 2.6.24, guest_nice with 2.6.33.
const TIMES: [&str; 10] =
    ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"];
const TOTALS: [&str; 5] = ["ctxt", "intr", "processes", "procs_running", "procs_blocked"];

fn write(text: &str, values: &mut Values) -> anyhow::Result<()> {
    let mut cpus = Vec::new();
    let mut totals = [None; TOTALS.len()];
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        if name.starts_with("cpu") {
            let mut times = [0; TIMES.len()];
            let mut count = 0;
            for (time, number) in times.iter_mut().zip(numbers(rest)) {
                *time = number;
                count += 1;
            }
            cpus.push((if name == "cpu" { "all" } else { name }, Times { times, count }));
        } else if let Some(position) = TOTALS.iter().position(|total| *total == name) {
            totals[position] = numbers(rest).next();
        }
    }
    ensure!(!cpus.is_empty(), "no line of /proc/stat starts with cpu");
    values.table(&TIMES, &cpus);
    for (name, total) in TOTALS.iter().zip(totals) {
        if let Some(total) = total {
            values.single(name, total);
        }
    }
    Ok(())
}

struct Times {
    times: [u64; TIMES.len()],
    count: usize,
}

impl AsRef<[u64]> for Times {
    fn as_ref(&self) -> &[u64] {
        &self.times[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::sample::values::{Values, collect};
    use serde_json::json;

    #[test]
    fn a_kernel_of_today() {
        let text = "\
cpu  10713 0 6522 371777 1336 0 152 90 0 0
cpu0 4158 0 2646 188296 226 0 16 42 0 0
cpu3 6555 0 3875 183480 1109 0 135 47 0 0
intr 423241 0 0 17 0
ctxt 831480
btime 1795226592
processes 12199
procs_running 4
procs_blocked 0
softirq 333005 0 32889
";
        let values = collect(|values| write(text, values).unwrap());
        assert_eq!(values["user"], json!({"all": 10713, "cpu0": 4158, "cpu3": 6555}));
        assert_eq!(values["steal"], json!({"all": 90, "cpu0": 42, "cpu3": 47}));
        assert_eq!(values["guest_nice"], json!({"all": 0, "cpu0": 0, "cpu3": 0}));
        assert_eq!(values["intr"], json!({"": 423241}));
        assert_eq!(values["procs_running"], json!({"": 4}));
        assert_eq!(values.as_object().unwrap().len(), 15);
    }

    #[test]
    fn a_column_the_kernel_does_not_have_is_not_zero() {
        let values = collect(|values| write("cpu  1 2 3 4 5 6 7 8\n", values).unwrap());
        assert_eq!(values["steal"], json!({"all": 8}));
        assert!(values.get("guest").is_none());
    }

    #[test]
    fn something_else_is_an_error() {
        assert!(write("", &mut Values::default()).is_err());
        assert!(write("hello\n", &mut Values::default()).is_err());
    }
}
