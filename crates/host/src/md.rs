//! /sys/block/md*/md: whether an array is being checked, rebuilt or reshaped while a trial runs.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::Context;

use super::sample::sampler::{Kind, Sample};
use super::sample::values::Values;

pub const MD: Kind = Kind::host(
    "md",
    "1 while an md array resyncs, recovers, checks, repairs or reshapes, else 0 (/sys/block/md*/md/sync_action)",
    |host| Box::new(Arrays { folder: host.root.join("sys/block") }),
);

struct Arrays {
    folder: PathBuf,
}

impl Sample for Arrays {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        let context = || format!("cannot read {}", self.folder.display());
        values.metric("sync_active");
        for entry in fs::read_dir(&self.folder).with_context(context)? {
            let name = entry.with_context(context)?.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with("md")) else { continue };
            let path = self.folder.join(name).join("md/sync_action");
            match fs::read_to_string(&path) {
                Ok(action) => values.value(name, u64::from(is_active(action.trim_end()))),
                // RAID 0 and linear arrays have nothing to synchronise, and no such file.
                Err(error) if error.kind() == ErrorKind::NotFound => values.value(name, 0),
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        }
        Ok(())
    }
}

fn is_active(action: &str) -> bool {
    !matches!(action, "idle" | "frozen")
}

#[cfg(test)]
mod tests {
    use super::Arrays;
    use crate::sample::sampler::Sample;
    use crate::sample::values::{Values, collect};
    use serde_json::json;
    use std::fs;

    #[test]
    fn arrays_of_every_kind() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/block");
        for (name, action) in
            [("md0", None), ("md1", Some("idle")), ("md127", Some("resync")), ("md2", Some("frozen"))]
        {
            fs::create_dir_all(folder.join(name).join("md")).unwrap();
            if let Some(action) = action {
                fs::write(folder.join(name).join("md/sync_action"), format!("{action}\n")).unwrap();
            }
        }
        fs::create_dir_all(folder.join("sda")).unwrap();
        let mut arrays = Arrays { folder: folder.clone() };
        let values = collect(|values| arrays.sample(values).unwrap());
        assert_eq!(values, json!({"sync_active": {"md0": 0, "md1": 0, "md127": 1, "md2": 0}}));
        fs::remove_dir_all(&folder).unwrap();
        assert!(arrays.sample(&mut Values::default()).is_err());
    }
}
