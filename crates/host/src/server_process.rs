//! /proc/PID/fd: how many files a server has open, and its limit.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::sample::sampler::{Kind, Sample};
use super::sample::values::Values;
use super::servers::Servers;

pub const SERVER_PROCESS: Kind = Kind::host(
    "server_process",
    "open files of each server process and their limit; label pid/name (/proc/PID/fd)",
    |host| Box::new(OpenFiles(Servers::new(&host.root))),
)
.every(10);

struct OpenFiles(Servers);

impl Sample for OpenFiles {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        let servers = self.0.now();
        values.metric("open_files");
        for (folder, label) in servers {
            if let Some(count) = open_files(&folder.join("fd")) {
                values.value(label, count);
            }
        }
        values.metric("open_files_limit");
        for (folder, label) in servers {
            let limits = fs::read_to_string(folder.join("limits")).unwrap_or_default();
            if let Some(limit) = soft_limit(&limits) {
                values.value(label, limit);
            }
        }
        Ok(())
    }
}

/// Since Linux 6.2 the folder's size is their number; before, each had to be listed.
fn open_files(folder: &Path) -> Option<u64> {
    match fs::metadata(folder).ok()?.size() {
        0 => Some(fs::read_dir(folder).ok()?.count() as u64),
        count => Some(count),
    }
}

/// Also None for `unlimited`.
fn soft_limit(limits: &str) -> Option<u64> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::{open_files, soft_limit};

    #[test]
    fn the_soft_limit_is_the_first_number() {
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            16384   524288   files\n";
        assert_eq!(soft_limit(limits), Some(16384));
        assert_eq!(soft_limit("Max open files            unlimited   unlimited   files\n"), None);
    }

    #[test]
    fn our_own_files_are_counted() {
        let count = || open_files("/proc/self/fd".as_ref()).unwrap();
        let before = count();
        let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        // Other tests open and close files meanwhile.
        assert!(count() >= before.saturating_sub(20) + files.len() as u64);
    }
}
