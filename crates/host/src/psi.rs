//! /proc/pressure: how long tasks were stalled on CPU, memory or I/O. Kernel 4.20 and newer.

use anyhow::Context;

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
        let mut totals = [Totals { some: 0, full: None }; RESOURCES.len()];
        for (file, total) in self.files.iter_mut().zip(&mut totals) {
            *total = parse(file.read()?)?;
        }
        values.metric("some_total_us");
        for (resource, total) in RESOURCES.iter().zip(totals) {
            values.value(resource, total.some);
        }
        values.metric("full_total_us");
        for (resource, total) in RESOURCES.iter().zip(totals) {
            if let Some(full) = total.full {
                values.value(resource, full);
            }
        }
        Ok(())
    }
}

/// Microseconds since boot. Before 5.13 the file of the CPU has no `full` line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Totals {
    some: u64,
    full: Option<u64>,
}

fn parse(text: &str) -> anyhow::Result<Totals> {
    let total = |kind: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.rsplit_once("total=")?.1.trim_end().parse().ok()
    };
    Ok(Totals { some: total("some").context("the pressure file has no line `some`")?, full: total("full") })
}

#[cfg(test)]
mod tests {
    use super::{Totals, parse};

    #[test]
    fn totals_with_and_without_full() {
        let text = "some avg10=8.76 avg60=4.73 avg300=1.35 total=20113856\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse(text).unwrap(), Totals { some: 20_113_856, full: Some(7) });
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(parse(text).unwrap(), Totals { some: 5, full: None });
        assert!(parse("").is_err());
    }
}
