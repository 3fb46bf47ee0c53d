//! The database servers and memcached that run on the host; the list is refreshed from time to time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const PROGRAMS: [&str; 3] = ["mariadbd", "memcached", "mysqld"];
/// Reading the names of 1,000 processes takes some milliseconds.
const LOOK_EVERY: Duration = Duration::from_secs(10);

pub struct Servers {
    proc: PathBuf,
    /// Process and `pid/program`.
    found: Vec<(PathBuf, String)>,
    looked: Option<Instant>,
}

impl Servers {
    pub fn new(root: &Path) -> Self {
        Self { proc: root.join("proc"), found: Vec::new(), looked: None }
    }

    /// The folder in /proc and the label of each. One that started within the last 10 s may be missing.
    pub fn now(&mut self) -> &[(PathBuf, String)] {
        let is_due = self.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        let before = self.found.len();
        self.found.retain(|(folder, _)| folder.join("stat").exists());
        if is_due || self.found.len() < before {
            self.looked = Some(Instant::now());
            self.look();
        }
        &self.found
    }

    fn look(&mut self) {
        self.found.clear();
        for entry in fs::read_dir(&self.proc).into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if PROGRAMS.contains(&comm.trim_end()) {
                self.found.push((entry.path(), format!("{pid}/{}", comm.trim_end())));
            }
        }
        self.found.sort();
    }
}
