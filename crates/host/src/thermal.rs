//! /sys/devices/system/cpu/cpuN/thermal_throttle: how often a CPU slowed itself down to stay cool.

use std::path::Path;

use anyhow::Context;

use super::sample::sampler::{Kind, Sample};
use super::sample::source::KeptFile;
use super::sample::values::Values;

pub const THERMAL: Kind = Kind::host(
    "thermal",
    "times each CPU was throttled for heat; x86 hardware only (/sys/devices/system/cpu/cpu*/thermal_throttle)",
    |host| Box::new(Thermal { folder: host.root.join("sys/devices/system/cpu"), cpus: Vec::new() }),
);

const COUNTS: [&str; 2] = ["core_throttle_count", "package_throttle_count"];

struct Thermal {
    folder: std::path::PathBuf,
    cpus: Vec<(String, [KeptFile; COUNTS.len()])>,
}

impl Sample for Thermal {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        if self.cpus.is_empty() {
            self.cpus = find(&self.folder)?;
        }
        let result = write(&mut self.cpus, values);
        if result.is_err() {
            // A CPU was taken offline: its files are gone. The next tick looks again.
            self.cpus.clear();
        }
        result
    }
}

fn find(folder: &Path) -> anyhow::Result<Vec<(String, [KeptFile; COUNTS.len()])>> {
    let context = || format!("cannot read {}", folder.display());
    let mut cpus = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        let throttle = entry.path().join("thermal_throttle");
        if let Some(name) = entry.file_name().to_str().filter(|_| throttle.is_dir()) {
            cpus.push((name.to_owned(), COUNTS.map(|count| KeptFile::new(&throttle, count))));
        }
    }
    if cpus.is_empty() {
        let message = format!("no thermal_throttle under {}", folder.display());
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, message).into());
    }
    Ok(cpus)
}

fn write(cpus: &mut [(String, [KeptFile; COUNTS.len()])], values: &mut Values) -> anyhow::Result<()> {
    for (column, name) in COUNTS.iter().enumerate() {
        values.metric(name);
        for (cpu, files) in &mut *cpus {
            let text = files[column].read()?;
            values
                .value(cpu, text.trim_end().parse().with_context(|| format!("{name} of {cpu} is {text:?}"))?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Thermal;
    use crate::sample::sampler::Sample;
    use crate::sample::values::{Values, collect};
    use serde_json::json;
    use std::fs;

    #[test]
    fn counts_of_each_cpu_and_absence_is_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let mut thermal = Thermal { folder: root.path().to_owned(), cpus: Vec::new() };
        let error = thermal.sample(&mut Values::default()).unwrap_err();
        let io = error.downcast_ref::<std::io::Error>().unwrap();
        assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
        for (cpu, core) in [("cpu0", "3"), ("cpu1", "4")] {
            let folder = root.path().join(cpu).join("thermal_throttle");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("core_throttle_count"), format!("{core}\n")).unwrap();
            fs::write(folder.join("package_throttle_count"), "7\n").unwrap();
        }
        let values = collect(|values| thermal.sample(values).unwrap());
        assert_eq!(
            values,
            json!({
                "core_throttle_count": {"cpu0": 3, "cpu1": 4}, "package_throttle_count": {"cpu0": 7, "cpu1": 7}
            })
        );
    }
}
