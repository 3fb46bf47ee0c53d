//! /sys/class/powercap/intel-rapl:*: the energy that each processor and its memory used (RAPL; Intel, and AMD since
//! Linux 5.8). Virtual machines have none.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::sample::sampler::{Kind, Sample};
use super::sample::source::KeptFile;
use super::sample::values::Values;

pub const POWERCAP: Kind = Kind::host(
    "powercap",
    "energy in microjoules of each processor package and its memory, and where it wraps; hardware only, read as root \
     (/sys/class/powercap/intel-rapl:*)",
    |host| Box::new(Powercap { folder: host.root.join("sys/class/powercap"), zones: Vec::new() }),
);

struct Powercap {
    folder: PathBuf,
    zones: Vec<Zone>,
}

struct Zone {
    label: String,
    energy: KeptFile,
    range: u64,
}

impl Sample for Powercap {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        if self.zones.is_empty() {
            self.zones = find(&self.folder)?;
        }
        let result = write(&mut self.zones, values);
        if result.is_err() {
            // The driver may have been loaded again. The next tick looks again.
            self.zones.clear();
        }
        result.map_err(of_root)
    }
}

/// Packages, and of their parts only the memory: cores are part of a package, and `psys` is all of them again.
fn find(folder: &Path) -> anyhow::Result<Vec<Zone>> {
    let context = || format!("cannot read {}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(context)? {
        names.extend(entry.with_context(context)?.file_name().into_string());
    }
    names.sort_unstable();
    let mut zones = Vec::new();
    for name in &names {
        // `intel-rapl-mmio:0` is the package of `intel-rapl:0` again.
        let Some(number) = name.strip_prefix("intel-rapl:") else { continue };
        let (package, part) =
            number.split_once(':').map_or((number, None), |(package, part)| (package, Some(part)));
        let outer = text(&folder.join(format!("intel-rapl:{package}/name")))?;
        if !outer.starts_with("package") {
            continue;
        }
        let zone = folder.join(name);
        let label = if part.is_some() {
            let inner = text(&zone.join("name"))?;
            if inner != "dram" {
                continue;
            }
            format!("{outer}/{inner}")
        } else {
            outer
        };
        let range = number_of(&text(&zone.join("max_energy_range_uj"))?, "max_energy_range_uj", &label)?;
        zones.push(Zone { label, energy: KeptFile::new(&zone, "energy_uj"), range });
    }
    if zones.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, format!("no package under {}", folder.display())).into());
    }
    Ok(zones)
}

fn write(zones: &mut [Zone], values: &mut Values) -> anyhow::Result<()> {
    values.metric("energy_uj");
    for zone in &mut *zones {
        values.value(&zone.label, number_of(zone.energy.read()?, "energy_uj", &zone.label)?);
    }
    values.metric("max_energy_range_uj");
    for zone in zones {
        values.value(&zone.label, zone.range);
    }
    Ok(())
}

fn text(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim_end().to_owned())
}

fn number_of(text: &str, file: &str, label: &str) -> anyhow::Result<u64> {
    text.trim_end().parse().with_context(|| format!("{file} of {label} is {text:?}"))
}

/// Without root it will not become readable by the next tick, so it counts as absent: it is tried once a minute.
fn of_root(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(io) if io.kind() == ErrorKind::PermissionDenied => {
            let message = format!("{error:#}: only root may read it (CVE-2020-8694)");
            Error::new(ErrorKind::Unsupported, message).into()
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::{Powercap, of_root};
    use crate::sample::sampler::Sample;
    use crate::sample::values::{Values, collect};
    use anyhow::Context;
    use serde_json::json;
    use std::fs;
    use std::io::{Error, ErrorKind};
    use std::path::Path;

    fn zone(root: &Path, id: &str, name: &str, energy: &str) {
        let folder = root.join(id);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("name"), format!("{name}\n")).unwrap();
        fs::write(folder.join("energy_uj"), energy).unwrap();
        fs::write(folder.join("max_energy_range_uj"), "262143328850\n").unwrap();
    }

    #[test]
    fn packages_and_their_memory_once_each() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("intel-rapl")).unwrap();
        zone(root.path(), "intel-rapl:0", "package-0", "100\n");
        zone(root.path(), "intel-rapl:0:0", "core", "60\n");
        zone(root.path(), "intel-rapl:0:1", "dram", "30\n");
        zone(root.path(), "intel-rapl:1", "package-1", "200\n");
        zone(root.path(), "intel-rapl:1:0", "dram", "40\n");
        zone(root.path(), "intel-rapl:2", "psys", "500\n");
        zone(root.path(), "intel-rapl-mmio:0", "package-0", "100\n");
        let mut powercap = Powercap { folder: root.path().to_owned(), zones: Vec::new() };
        let values = collect(|values| powercap.sample(values).unwrap());
        assert_eq!(
            values["energy_uj"],
            json!({"package-0": 100, "package-0/dram": 30, "package-1": 200, "package-1/dram": 40})
        );
        let ranges = values["max_energy_range_uj"].as_object().unwrap();
        assert_eq!(ranges.len(), 4);
        assert!(ranges.values().all(|range| *range == json!(262_143_328_850_u64)));
        // The same files are read again; one that is damaged is an error.
        fs::write(root.path().join("intel-rapl:0/energy_uj"), "7\n").unwrap();
        let values = collect(|values| powercap.sample(values).unwrap());
        assert_eq!(values["energy_uj"]["package-0"], json!(7));
        fs::write(root.path().join("intel-rapl:0/energy_uj"), "many\n").unwrap();
        let error = powercap.sample(&mut Values::default()).unwrap_err();
        assert!(format!("{error:#}").contains("energy_uj of package-0 is \"many\\n\""), "{error:#}");
    }

    #[test]
    fn a_host_without_it_and_one_that_keeps_it_for_root_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let kind_of = |error: &anyhow::Error| error.downcast_ref::<Error>().unwrap().kind();
        for folder in ["gone", "empty", "other"] {
            let folder = root.path().join(folder);
            if !folder.ends_with("gone") {
                fs::create_dir_all(&folder).unwrap();
            }
            if folder.ends_with("other") {
                zone(&folder, "dtpm", "dtpm", "1\n");
            }
            let error = Powercap { folder, zones: Vec::new() }.sample(&mut Values::default()).unwrap_err();
            assert_eq!(kind_of(&error), ErrorKind::NotFound);
        }
        // Tests may run as root, whom nothing is refused.
        let refused = Err::<(), _>(Error::from(ErrorKind::PermissionDenied)).context("cannot read energy_uj");
        let error = of_root(refused.unwrap_err());
        assert_eq!(kind_of(&error), ErrorKind::Unsupported);
        assert!(error.to_string().starts_with("cannot read energy_uj: "), "{error}");
        assert!(error.to_string().contains("only root"), "{error}");
    }
}
