//! Files of the kernel: what they take, how they print it, and what they change along.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::io::Errno;

use super::mounts::Mount;

const SCHEDULERS: [&str; 3] = ["none", "mq-deadline", "kyber"];
const QUEUE: &str = "/sys/block/sda/queue";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MOUNTS: &str = "/proc/self/mountinfo";

/// The part of a path that the kernel answers for.
pub fn path_in(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let text = text.strip_prefix("/host").unwrap_or(text);
    (text.is_empty() || text.starts_with("/proc") || text.starts_with("/sys")).then_some(text)
}

pub struct Kernel {
    values: BTreeMap<String, String>,
    pub mounts: Vec<Mount>,
    /// Before Linux 5.2: a file system cannot be configured apart from its place.
    pub is_old: bool,
    boot: u32,
}

impl Kernel {
    pub fn new() -> Kernel {
        let mut kernel = Kernel { values: BTreeMap::new(), mounts: vec![], is_old: false, boot: 0 };
        kernel.boot();
        kernel
    }

    /// As after a boot: everything is at its default.
    pub fn boot(&mut self) {
        self.boot += 1;
        self.mounts = Mount::all();
        let queue = |name: &str| format!("{QUEUE}/{name}");
        self.values = [
            ("/proc/sys/vm/swappiness".to_owned(), "60"),
            ("/proc/sys/vm/dirty_ratio".to_owned(), "20"),
            ("/proc/sys/vm/dirty_bytes".to_owned(), "0"),
            (queue("read_ahead_kb"), "128"),
            (queue("max_sectors_kb"), "1280"),
            (queue("scheduler"), "mq-deadline"),
        ]
        .map(|(path, value)| (path, value.to_owned()))
        .into();
        self.new_scheduler("mq-deadline");
    }

    fn new_scheduler(&mut self, name: &str) {
        self.values.retain(|path, _| !path.contains("/iosched/"));
        let mut put =
            |path: &str, value: &str| self.values.insert(format!("{QUEUE}/{path}"), value.to_owned());
        put("scheduler", name);
        put("nr_requests", if name == "none" { "1023" } else { "256" });
        match name {
            "mq-deadline" => put("iosched/read_expire", "500"),
            "kyber" => put("iosched/read_lat_nsec", "2000000"),
            _ => None,
        };
    }

    pub fn is_folder(&self, path: &str) -> bool {
        let inside = |file: &String| file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        self.values.keys().any(inside)
    }

    /// The names in a folder.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let name = |path: &String| path.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned);
        self.values.keys().filter_map(name).filter(|name| !name.contains('/')).collect()
    }

    /// What reading the file gives.
    pub fn text(&self, path: &str) -> Option<String> {
        if path == BOOT_ID {
            return Some(format!("boot-{}\n", self.boot));
        }
        if path == MOUNTS {
            return Some(self.mounts.iter().zip(1..).map(|(mount, number)| mount.line(number)).collect());
        }
        let value = self.values.get(path)?;
        if path.ends_with("/scheduler") {
            let shown = SCHEDULERS.map(|s| if s == value { format!("[{s}]") } else { s.to_owned() });
            return Some(shown.join(" ") + "\n");
        }
        Some(format!("{value}\n"))
    }

    /// All values, for comparison.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    pub fn mount_at(&mut self, point: &str) -> Result<&mut Mount, Errno> {
        self.mounts.iter_mut().find(|mount| mount.point == point).ok_or(Errno::INVAL)
    }

    pub fn set(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        let Some(old) = self.values.get(path).cloned() else { return Err(Errno::NOENT) };
        let text = text.trim();
        let name = path.rsplit('/').next().unwrap_or(path);
        if name == "scheduler" {
            if !SCHEDULERS.contains(&text) {
                return Err(Errno::INVAL);
            }
            if text != old {
                self.new_scheduler(text);
            }
            return Ok(());
        }
        let number: u64 = text.parse().map_err(|_| Errno::INVAL)?;
        let (low, high) = match name {
            "swappiness" => (0, 200),
            "dirty_ratio" => (0, 100),
            "dirty_bytes" => (8192, u64::MAX),
            "nr_requests" => (4, 1023),
            _ => (0, u64::MAX),
        };
        if !(low..=high).contains(&number) {
            return Err(Errno::INVAL);
        }
        // In units of a page.
        let number = if name == "read_ahead_kb" { number & !3 } else { number };
        let changed = number.to_string() != old;
        self.values.insert(path.to_owned(), number.to_string());
        let folder = &path[..path.len() - name.len()];
        let along = match name {
            "dirty_ratio" => Some(("dirty_bytes", "0")),
            "dirty_bytes" => Some(("dirty_ratio", "0")),
            "max_sectors_kb" => Some(("read_ahead_kb", "256")),
            _ => None,
        };
        if let Some((other, value)) = along.filter(|_| changed) {
            self.values.insert(format!("{folder}{other}"), value.to_owned());
        }
        Ok(())
    }
}
