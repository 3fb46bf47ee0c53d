//! /proc/pressure: how long tasks were stalled on CPU, memory or I/O. Kernel 4.20 and newer.

use anyhow::{anyhow, ensure};

use super::sample::sampler::{Host, Kind, Sample};
use super::sample::source::KeptFile;
use super::sample::values::Values;

pub const PSI: Kind = Kind::host(
    "psi",
    "time in us that some or all tasks waited for cpu, memory, io (/proc/pressure)",
    |host| Box::new(Pressure::new(host)),
);

const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

struct Pressure {
    files: [KeptFile; RESOURCES.len()],
}

impl Pressure {
    fn new(host: &Host) -> Self {
        Self { files: RESOURCES.map(|resource| KeptFile::new(&host.root.join("proc/pressure"), resource)) }
    }
}

impl Sample for Pressure {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        let mut totals = [Totals::default(); RESOURCES.len()];
        let mut missing = None;
        for (file, total) in self.files.iter_mut().zip(&mut totals) {
            // What one file lacks makes nothing unknown of the others.
            match file.read().and_then(parse) {
                Ok(found) => *total = found,
                Err(error) => missing = Some(error),
            }
        }
        if totals.iter().all(|total| *total == Totals::default()) {
            return Err(missing.unwrap_or_else(|| anyhow!("/proc/pressure has no resource")));
        }
        let kinds = [
            ("some_total_us", totals.map(|total| total.some)),
            ("full_total_us", totals.map(|total| total.full)),
        ];
        for (metric, totals) in kinds {
            values.metric(metric);
            for (resource, total) in RESOURCES.iter().zip(totals) {
                if let Some(us) = total {
                    values.value(resource, us);
                }
            }
        }
        Ok(())
    }
}

/// Microseconds since boot. Before Linux 5.13 the CPU's file has no `full` line. A missing line is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    some: Option<u64>,
    full: Option<u64>,
}

fn parse(text: &str) -> anyhow::Result<Totals> {
    let total = |kind: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some(kind))?;
        line.rsplit_once("total=")?.1.trim_end().parse().ok()
    };
    let found = Totals { some: total("some"), full: total("full") };
    ensure!(found != Totals::default(), "the pressure file has neither a line `some` nor `full`");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{Pressure, RESOURCES, Totals, parse};
    use crate::sample::sampler::Sample;
    use crate::sample::source::KeptFile;
    use crate::sample::values::collect;
    use serde_json::json;

    #[test]
    fn totals_with_and_without_full() {
        let some = "some avg10=8.76 avg60=4.73 avg300=1.35 total=20113856\n";
        let full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let both = Totals { some: Some(20_113_856), full: Some(7) };
        assert_eq!(parse(&format!("{some}{full}")).unwrap(), both);
        assert_eq!(parse(some).unwrap(), Totals { full: None, ..both });
        assert_eq!(parse(full).unwrap(), Totals { some: None, ..both });
        assert!(parse("").is_err());
    }

    #[test]
    fn a_file_without_a_line_costs_no_other_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/pressure");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cpu"), "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n").unwrap();
        std::fs::write(folder.join("io"), "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n").unwrap();
        let values = collect(|values| {
            let files = RESOURCES.map(|resource| KeptFile::new(&folder, resource));
            Pressure { files }.sample(values).unwrap();
        });
        assert_eq!(values["some_total_us"], json!({"io": 5}));
        assert_eq!(values["full_total_us"], json!({"cpu": 7}));
    }
}
