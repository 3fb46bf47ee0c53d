//! What may differ between the threads of a server: what traces them, and the priority of their I/O.

use std::collections::BTreeMap;

use super::files::Folder;

/// 20 us each; of a server with more threads the first are read.
const MOST: usize = 2_000;
/// `IOPRIO_WHO_PROCESS` means a thread; the class is above 13 bits of data, of which 3 are the level.
const WHO_THREAD: libc::c_int = 1;
const CLASS_SHIFT: u32 = 13;
const LEVEL_MASK: i64 = 7;

pub struct Tasks {
    /// 0 if nothing traces them; `None` if it is unknown.
    pub tracer_pid: Option<u32>,
    pub traced: Option<u64>,
    /// Only of a running host: no file has it.
    pub io_priorities: Option<BTreeMap<String, u64>>,
}

pub fn read(process: &Folder, live: bool) -> Tasks {
    let folder = process.join("task");
    let mut threads: Vec<String> = folder.names("").into_iter().take(MOST).collect();
    let mut tracers = Vec::new();
    for thread in &threads {
        tracers.extend(tracer(&folder.join(thread)));
    }
    if tracers.is_empty() {
        tracers.extend(tracer(process));
    }
    threads.retain(|_| live);
    let mut priorities = BTreeMap::new();
    for priority in threads.iter().filter_map(|thread| io_priority(thread.parse().ok()?)) {
        *priorities.entry(priority).or_default() += 1;
    }
    let traced = tracers.iter().filter(|&&pid| pid != 0).count() as u64;
    Tasks {
        tracer_pid: tracers.iter().copied().find(|&pid| pid != 0).or(tracers.first().copied()),
        traced: (!tracers.is_empty()).then_some(traced),
        io_priorities: (!priorities.is_empty()).then_some(priorities),
    }
}

/// The value of a line `Key:  value` of /proc/PID/status.
pub fn status_value<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
}

fn tracer(thread: &Folder) -> Option<u32> {
    status_value(&thread.text("status")?, "TracerPid")?.parse().ok()
}

/// `None` if the thread has ended.
fn io_priority(thread: libc::c_int) -> Option<String> {
    // SAFETY: takes and returns numbers only.
    let value = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_THREAD, thread) };
    (value >= 0).then(|| name(value))
}

fn name(value: libc::c_long) -> String {
    let level = value & LEVEL_MASK;
    match value >> CLASS_SHIFT {
        0 => "none".to_owned(),
        1 => format!("realtime/{level}"),
        2 => format!("best-effort/{level}"),
        3 => "idle".to_owned(),
        class => format!("{class}/{level}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{name, read};
    use crate::facts::files::Files;
    use std::fs;
    use std::path::Path;

    fn write(root: &Path, thread: &str, tracer: &str) {
        let folder = root.join(thread);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("status"), format!("Name:\tx\nTracerPid:\t{tracer}\n")).unwrap();
    }

    #[test]
    fn a_single_traced_thread_is_found() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "", "0");
        write(root.path(), "task/7", "0");
        write(root.path(), "task/8", "4711");
        let files = Files::open(Some(root.path())).unwrap();
        let tasks = read(&files.root(), false);
        assert_eq!((tasks.tracer_pid, tasks.traced), (Some(4711), Some(1)));
        assert_eq!(tasks.io_priorities, None, "of a saved host");
    }

    #[test]
    fn without_a_folder_of_threads_the_process_is_one() {
        let root = tempfile::tempdir().unwrap();
        let found = |root: &Path| {
            let files = Files::open(Some(root)).unwrap();
            let tasks = read(&files.root(), false);
            (tasks.tracer_pid, tasks.traced)
        };
        assert_eq!(found(root.path()), (None, None));
        write(root.path(), "", "0");
        assert_eq!(found(root.path()), (Some(0), Some(0)));
    }

    #[test]
    fn every_thread_of_ours_has_a_priority() {
        let files = Files::open(None).unwrap();
        let tasks = read(&files.root().join("proc/self"), true);
        assert!(tasks.io_priorities.unwrap().values().sum::<u64>() >= 1);
        assert_eq!(tasks.tracer_pid.is_some(), tasks.traced.is_some());
    }

    #[test]
    fn priorities_have_the_names_of_ionice() {
        let priority = |class: i64, level: i64| name((class << 13) | level);
        assert_eq!(priority(0, 4), "none");
        assert_eq!(priority(1, 0), "realtime/0");
        assert_eq!(priority(2, 7), "best-effort/7");
        assert_eq!(priority(3, 7), "idle");
        // Newer kernels keep a hint above the level.
        assert_eq!(name((2 << 13) | (1 << 3) | 6), "best-effort/6");
    }
}
