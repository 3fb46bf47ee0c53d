//! /proc/PID: CPU time, memory, I/O and context switches of the processes that matter.
//!
//! Reading every process fully every second costs more than all other samplers together. So database servers,
//! memcached, load tools and headrace itself are *followed*: listed on every tick. Any other process is listed
//! when it is first seen, and again whenever a check finds that it used CPU time since the last one; unlisted
//! processes used none. The first tick looks at all; after it at most `IDLE_LOOKS` idle processes are checked per tick,
//! in turn, so that a host with thousands of them costs no more; there a process that wakes up may be listed some
//! ticks late.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Context;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

use super::facts::cgroup::parse_groups;
use super::sample::sampler::{Host, Kind, Sample};
use super::sample::selection::Listing;
use super::sample::source::numbers;
use super::sample::values::Values;

pub const PROCESS: Kind = Kind::host(
    "process",
    "CPU, memory, I/O, switches of followed processes and of those that use CPU; label pid/name (/proc/PID); in_group by pid and path of the control group",
    |host| Box::new(Processes::new(host)),
);

/// Idle processes checked per tick, 4 us each.
const IDLE_LOOKS: usize = 128;
/// The most process files kept open; fewer if the limit of open files (usually 1024) is low.
const KEPT_FILES: u64 = 400;
/// Threads of a process whose switches are read per tick on average, 10 us each: a server with 64 threads is
/// read on every fourth tick. They are counters, so nothing is lost in between.
const THREADS_PER_TICK: u64 = 16;
/// A process stays in its control group as a rule, and readers keep a minute.
const GROUP_TICKS: u64 = 10;

const METRICS: [&str; 9] = [
    "utime_ticks",
    "stime_ticks",
    "rss_bytes",
    "threads",
    "read_bytes",
    "write_bytes",
    "voluntary_switches",
    "involuntary_switches",
    "start_ticks",
];

struct Processes {
    root: PathBuf,
    folder: Option<File>,
    listing: Listing,
    names: HashSet<String>,
    known: HashMap<u32, Process>,
    kept_files: u64,
    kept_limit: u64,
    tick: u64,
    /// Where the round over the idle processes continues.
    next_idle: u32,
    pids: Vec<u32>,
    rows: Vec<(Rc<str>, Row)>,
    /// `pid/path` of the control groups that are read on this tick.
    groups: Vec<String>,
    text: Vec<u8>,
}

type Row = [Option<u64>; METRICS.len()];

/// The state of a process between ticks.
struct Process {
    stat: Option<File>,
    start_ticks: u64,
    label: Rc<str>,
    cpu_ticks: Option<u64>,
    is_followed: bool,
    is_active: bool,
    /// The tick from which on its control group is read again.
    group_due: u64,
    switches: Switches,
}

impl Processes {
    fn new(host: &Host) -> Self {
        Self {
            root: host.root.clone(),
            folder: None,
            listing: host.processes.listing,
            names: host.processes.names.clone(),
            known: HashMap::new(),
            kept_files: 0,
            kept_limit: getrlimit(Resource::Nofile)
                .current
                .map_or(KEPT_FILES, |limit| KEPT_FILES.min(limit / 2)),
            tick: 0,
            next_idle: 0,
            pids: Vec::new(),
            rows: Vec::new(),
            groups: Vec::new(),
            text: Vec::new(),
        }
    }

    /// Reads every process that is due on this tick.
    fn walk(&mut self, folder: &File) -> io::Result<()> {
        let mut pids = std::mem::take(&mut self.pids);
        list_numbers(folder, &mut pids)?;
        if self.known.len() > pids.len() {
            self.known.retain(|pid, _| pids.binary_search(pid).is_ok());
        }
        self.kept_files = self.known.values().filter(|process| process.stat.is_some()).count() as u64;
        let mut idle_looks = 0;
        let mut next_idle = 0;
        for &pid in &pids {
            let is_busy =
                self.known.get(&pid).is_some_and(|process| process.is_followed || process.is_active);
            if !is_busy && self.listing != Listing::All {
                if pid < self.next_idle {
                    continue;
                }
                // An idle server must be known from the first sample on: it may be the only one.
                if idle_looks == IDLE_LOOKS && self.tick > 0 {
                    next_idle = if next_idle == 0 { pid } else { next_idle };
                    continue;
                }
                idle_looks += 1;
            }
            if self.look(folder, pid).is_none() {
                self.known.remove(&pid);
            }
        }
        self.next_idle = next_idle;
        self.pids = pids;
        Ok(())
    }

    /// Reads one process and adds its row if it is listed. None if it ended in the meantime.
    fn look(&mut self, folder: &File, pid: u32) -> Option<()> {
        let opened = self.read_stat(folder, pid)?;
        let stat = parse_stat(&self.text)?;
        let process = self.known.entry(pid).or_insert_with(|| Process::new(stat.start_ticks));
        if process.start_ticks != stat.start_ticks {
            *process = Process::new(stat.start_ticks);
        }
        if opened.is_some() && self.kept_files < self.kept_limit {
            process.stat = opened;
            self.kept_files += 1;
        }
        // A process changes its name when it executes another program.
        let name = stable_name(stat.name);
        if process.label.split_once('/').is_none_or(|(_, known)| known.as_bytes() != name) {
            let name = String::from_utf8_lossy(name);
            process.label = format!("{pid}/{name}").into();
            process.is_followed = self.names.contains(name.as_ref()) || pid == std::process::id();
        }
        let cpu_ticks = stat.utime_ticks + stat.stime_ticks;
        let before = process.cpu_ticks.replace(cpu_ticks);
        process.is_active = before.is_some_and(|before| before != cpu_ticks);
        let is_listed = match self.listing {
            Listing::All => true,
            Listing::Followed => process.is_followed,
            Listing::Active => process.is_followed || process.is_active || before.is_none(),
        };
        if !is_listed {
            return Some(());
        }
        let mut row: Row = [None; METRICS.len()];
        row[0] = Some(stat.utime_ticks);
        row[1] = Some(stat.stime_ticks);
        row[2] = Some(stat.rss_pages * page_size() as u64);
        row[3] = Some(stat.threads);
        // Listed once, so that all CPU time of a process that started after the first tick is seen.
        row[8] = before.is_none().then_some(stat.start_ticks);
        let threads = stat.threads;
        // The first reading of a process that is not followed is only the baseline of its CPU time.
        if process.is_followed || process.is_active {
            (row[4], row[5]) = read_io(folder, pid, &mut self.text);
            if self.tick.is_multiple_of(threads.div_ceil(THREADS_PER_TICK).max(1)) {
                (row[6], row[7]) = process.switches.read(folder, pid, threads, &mut self.text).unzip();
            }
        }
        // One that starts in the window may have ended before it is seen to use CPU time.
        let is_new = before.is_none() && self.tick > 0;
        if (process.is_followed || process.is_active || is_new) && self.tick >= process.group_due {
            process.group_due = self.tick + GROUP_TICKS;
            self.groups.extend(read_group(folder, pid, &mut self.text));
        }
        self.rows.push((process.label.clone(), row));
        Some(())
    }

    /// Reads /proc/PID/stat into `text`; returns the file if it had to be opened.
    fn read_stat(&mut self, folder: &File, pid: u32) -> Option<Option<File>> {
        if let Some(file) = self.known.get(&pid).and_then(|process| process.stat.as_ref()) {
            if read_file(file, &mut self.text).is_ok() {
                return Some(None);
            }
            // The process with this id has ended; another may have the id by now.
            self.known.remove(&pid);
            self.kept_files -= 1;
        }
        let file = open(folder, format_args!("{pid}/stat"))?;
        read_file(&file, &mut self.text).ok()?;
        Some(Some(file))
    }
}

impl Sample for Processes {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => {
                let path = self.root.join("proc");
                File::open(&path).with_context(|| format!("cannot read {}", path.display()))?
            }
        };
        self.rows.clear();
        self.groups.clear();
        self.walk(&folder).context("cannot list /proc")?;
        self.folder = Some(folder);
        self.tick += 1;
        for (column, name) in METRICS.iter().enumerate() {
            values.metric(name);
            for (label, row) in &self.rows {
                if let Some(number) = row[column] {
                    values.value(label, number);
                }
            }
        }
        values.metric("in_group");
        self.groups.iter().for_each(|label| values.value(label, 1));
        Ok(())
    }
}

impl Process {
    fn new(start_ticks: u64) -> Self {
        Self {
            stat: None,
            start_ticks,
            label: "".into(),
            cpu_ticks: None,
            is_followed: false,
            is_active: false,
            group_due: 0,
            switches: Switches::default(),
        }
    }
}

/// The context switches of a process. The kernel keeps them per thread, so those of ended threads must be
/// remembered: the sum of a server with a new thread for each connection would otherwise decrease.
#[derive(Default)]
struct Switches {
    of_thread: HashMap<u32, (u64, u64)>,
    ended: (u64, u64),
    threads: Vec<u32>,
}

impl Switches {
    /// Voluntary and involuntary switches of all threads, ended ones as they were last seen.
    fn read(&mut self, folder: &File, pid: u32, threads: u64, text: &mut Vec<u8>) -> Option<(u64, u64)> {
        self.threads.clear();
        if threads == 1 && self.of_thread.len() <= 1 {
            self.threads.push(pid);
        } else {
            list_numbers(&open(folder, format_args!("{pid}/task"))?, &mut self.threads).ok()?;
        }
        for &thread in &self.threads {
            let Some(file) = open(folder, format_args!("{pid}/task/{thread}/status")) else { continue };
            let switches = read_file(&file, text).ok().and_then(|()| parse_switches(text));
            self.of_thread.extend(switches.map(|switches| (thread, switches)));
        }
        let (live, ended) = (&self.threads, &mut self.ended);
        self.of_thread.retain(|thread, switches| {
            let is_live = live.binary_search(thread).is_ok();
            if !is_live {
                *ended = (ended.0 + switches.0, ended.1 + switches.1);
            }
            is_live
        });
        let sum = |a: (u64, u64), b: &(u64, u64)| (a.0 + b.0, a.1 + b.1);
        (!self.of_thread.is_empty()).then(|| self.of_thread.values().fold(self.ended, sum))
    }
}

struct Stat<'a> {
    name: &'a [u8],
    utime_ticks: u64,
    stime_ticks: u64,
    threads: u64,
    start_ticks: u64,
    rss_pages: u64,
}

/// `12 (name) S 1 ...`: the name may hold spaces and parentheses, so the last parenthesis ends it.
fn parse_stat(text: &[u8]) -> Option<Stat<'_>> {
    let start = text.iter().position(|byte| *byte == b'(')? + 1;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(text.get(end + 2..)?).ok()?.split_ascii_whitespace();
    // Numbers as in proc(5), where the state is field 3.
    let mut field = 3;
    let mut next = |number: usize| {
        let value = fields.nth(number - field)?.parse().ok();
        field = number + 1;
        value
    };
    Some(Stat {
        name: text.get(start..end)?,
        utime_ticks: next(14)?,
        stime_ticks: next(15)?,
        threads: next(20)?,
        start_ticks: next(22)?,
        rss_pages: next(24)?,
    })
}

/// A kernel worker's name without what it is doing at the moment: `kworker/u8:1-writeback` is `kworker/u8:1`.
fn stable_name(name: &[u8]) -> &[u8] {
    let colon = name.starts_with(b"kworker/").then(|| name.iter().position(|byte| *byte == b':')).flatten();
    let end =
        colon.and_then(|colon| Some(colon + name[colon..].iter().position(|byte| b"-+".contains(byte))?));
    &name[..end.unwrap_or(name.len())]
}

/// Bytes that a process made the block layer read and write; nothing without permission (another user's process).
fn read_io(folder: &File, pid: u32, text: &mut Vec<u8>) -> (Option<u64>, Option<u64>) {
    match open(folder, format_args!("{pid}/io")).map(|file| read_file(&file, text)) {
        Some(Ok(())) => (find_number(text, "\nread_bytes:"), find_number(text, "\nwrite_bytes:")),
        _ => (None, None),
    }
}

/// `pid/path` of its control group; none if it is in the root.
fn read_group(folder: &File, pid: u32, text: &mut Vec<u8>) -> Option<String> {
    read_file(&open(folder, format_args!("{pid}/cgroup"))?, text).ok()?;
    let groups = parse_groups(std::str::from_utf8(text).ok()?);
    // Version 2 and systemd name the service; without both, any controller's group tells it from others.
    let named = ["", "name=systemd"].into_iter().filter_map(|name| groups.get(name));
    let path = named.chain(groups.values()).find(|path| path.len() > 1)?;
    Some(format!("{pid}{path}"))
}

fn parse_switches(status: &[u8]) -> Option<(u64, u64)> {
    let voluntary = find_number(status, "\nvoluntary_ctxt_switches:")?;
    Some((voluntary, find_number(status, "\nnonvoluntary_ctxt_switches:")?))
}

/// The number after `key`, searched from the end, where the kernel puts it.
fn find_number(text: &[u8], key: &str) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    numbers(text.rsplit_once(key)?.1.lines().next()?).next()
}

fn open(folder: &File, path: std::fmt::Arguments) -> Option<File> {
    let mut name = [0; 64];
    let mut rest = &mut name[..];
    rest.write_fmt(path).ok()?;
    let length = 64 - rest.len();
    openat(folder, &name[..length], OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok().map(File::from)
}

fn read_file(file: &File, text: &mut Vec<u8>) -> io::Result<()> {
    text.resize(4096, 0);
    // One read is enough: the kernel writes these files in one piece, and none is that long.
    let length = file.read_at(text, 0)?;
    text.truncate(length);
    if length == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// The entries of a folder that are numbers, sorted.
fn list_numbers(folder: &File, numbers: &mut Vec<u32>) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 8192];
    numbers.clear();
    seek(folder, SeekFrom::Start(0))?;
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        numbers.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Processes, parse_stat, stable_name};
    use crate::sample::sampler::{Host, Missed, Sample};
    use crate::sample::selection::{Listing, Selection};
    use crate::sample::values::collect;
    use serde_json::{Value, json};
    use std::collections::HashSet;
    use std::fs;
    use std::path::Path;

    fn write_process(root: &Path, pid: u32, name: &str, utime: u64, threads: &[(u32, u64)]) {
        let folder = root.join(format!("proc/{pid}"));
        let _ = fs::remove_dir_all(&folder);
        for (thread, switches) in threads {
            let task = folder.join(format!("task/{thread}"));
            fs::create_dir_all(&task).unwrap();
            let status = format!(
                "Name:\t{name}\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t1\n"
            );
            fs::write(task.join("status"), status).unwrap();
        }
        let count = threads.len();
        let stat = format!(
            "{pid} ({name}) S 1 1 1 0 -1 4194304 99 0 0 0 {utime} 5 0 0 20 0 {count} 0 195802 3133440 383 18446744073709551615\n"
        );
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("io"), "rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 8192\n").unwrap();
    }

    fn sampler(root: &Path, listing: Listing) -> Processes {
        let processes = Selection::new(listing, "mariadbd");
        Processes::new(&Host { root: root.to_owned(), processes, missed: Missed::default() })
    }

    fn sample(sampler: &mut Processes) -> Value {
        collect(|values| sampler.sample(values).unwrap())
    }

    #[test]
    fn a_name_may_hold_anything() {
        let stat =
            parse_stat(b"7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22\n").unwrap();
        assert_eq!(stat.name, b"a) b (c)");
        assert_eq!((stat.utime_ticks, stat.stime_ticks), (11, 12));
        assert_eq!((stat.threads, stat.start_ticks, stat.rss_pages), (17, 19, 21));
        assert!(parse_stat(b"7 (cut").is_none());
        assert!(parse_stat(b"").is_none());
    }

    #[test]
    fn a_worker_keeps_its_name_whatever_it_does() {
        for (name, stable) in [
            ("kworker/u8:1-writeback", "kworker/u8:1"),
            ("kworker/0:2H+kblockd", "kworker/0:2H"),
            ("kworker/1:0", "kworker/1:0"),
            ("kworker/R-rcu_gp", "kworker/R-rcu_gp"),
            ("my-program:a-b", "my-program:a-b"),
        ] {
            assert_eq!(stable_name(name.as_bytes()), stable.as_bytes());
        }
    }

    #[test]
    fn followed_processes_are_always_listed_and_others_when_they_used_cpu() {
        let root = tempfile::tempdir().unwrap();
        write_process(root.path(), 10, "mariadbd", 100, &[(10, 1), (11, 2)]);
        write_process(root.path(), 20, "idle one", 7, &[(20, 3)]);
        let mut processes = sampler(root.path(), Listing::Active);
        let first = sample(&mut processes);
        assert_eq!(first["utime_ticks"], json!({"10/mariadbd": 100, "20/idle one": 7}));
        assert_eq!(first["rss_bytes"]["10/mariadbd"], 383 * rustix::param::page_size());
        assert_eq!(first["read_bytes"], json!({"10/mariadbd": 4096}));
        assert_eq!(first["voluntary_switches"], json!({"10/mariadbd": 3}));
        assert_eq!(sample(&mut processes)["utime_ticks"], json!({"10/mariadbd": 100}));
        // The file is kept open, so a fixture must be written in place.
        let stat = root.path().join("proc/20/stat");
        fs::write(&stat, fs::read_to_string(&stat).unwrap().replace(" 7 5 ", " 9 5 ")).unwrap();
        let third = sample(&mut processes);
        assert_eq!(third["utime_ticks"], json!({"10/mariadbd": 100, "20/idle one": 9}));
        assert_eq!(third["voluntary_switches"], json!({"10/mariadbd": 3, "20/idle one": 3}));
        fs::remove_dir_all(root.path().join("proc/20")).unwrap();
        assert_eq!(sample(&mut processes)["utime_ticks"], json!({"10/mariadbd": 100}));
    }

    #[test]
    fn the_control_group_of_those_at_work_is_read_now_and_then() {
        let root = tempfile::tempdir().unwrap();
        write_process(root.path(), 10, "mariadbd", 100, &[(10, 1)]);
        write_process(root.path(), 20, "idle", 7, &[(20, 3)]);
        let groups =
            |pid: u32, text: &str| fs::write(root.path().join(format!("proc/{pid}/cgroup")), text).unwrap();
        groups(10, "0::/system.slice/mariadb.service\n");
        groups(20, "0::/user.slice/session-3.scope\n");
        let mut processes = sampler(root.path(), Listing::Active);
        let first = sample(&mut processes);
        assert_eq!(first["in_group"], json!({"10/system.slice/mariadb.service": 1}));
        assert_eq!(sample(&mut processes).get("in_group"), None);
        // One that starts now is read at once, also with controllers of version 1; one in the root has no group.
        write_process(root.path(), 30, "cc1", 1, &[(30, 1)]);
        groups(30, "9:name=systemd:/\n4:cpu,cpuacct:/ci/job\n0::/\n");
        write_process(root.path(), 40, "cc2", 1, &[(40, 1)]);
        groups(40, "0::/\n");
        assert_eq!(sample(&mut processes)["in_group"], json!({"30/ci/job": 1}));
        let again = (0..super::GROUP_TICKS)
            .map(|_| sample(&mut processes))
            .filter(|values| values.get("in_group") == Some(&json!({"10/system.slice/mariadb.service": 1})));
        assert_eq!(again.count(), 1);
    }

    #[test]
    fn switches_of_a_thread_that_ended_stay_in_the_sum() {
        let root = tempfile::tempdir().unwrap();
        write_process(root.path(), 10, "mariadbd", 100, &[(10, 1), (11, 50)]);
        let mut processes = sampler(root.path(), Listing::Followed);
        assert_eq!(sample(&mut processes)["voluntary_switches"], json!({"10/mariadbd": 51}));
        fs::remove_dir_all(root.path().join("proc/10/task/11")).unwrap();
        assert_eq!(sample(&mut processes)["voluntary_switches"], json!({"10/mariadbd": 51}));
    }

    #[test]
    fn thousands_of_idle_processes_are_looked_at_in_turn() {
        let root = tempfile::tempdir().unwrap();
        for pid in 1..=600 {
            write_process(root.path(), pid, "idle", 1, &[(pid, 0)]);
        }
        write_process(root.path(), 700, "mariadbd", 1, &[(700, 0)]);
        let mut processes = sampler(root.path(), Listing::Active);
        let mut listed = || {
            let values = sample(&mut processes);
            values["utime_ticks"].as_object().unwrap().keys().cloned().collect::<HashSet<_>>()
        };
        assert_eq!(listed().len(), 601, "the first look is at all of them");
        for pid in 1..=600 {
            let path = root.path().join(format!("proc/{pid}/stat"));
            let stat = fs::read_to_string(&path).unwrap().replace(" 1 5 0 0 20 ", " 2 5 0 0 20 ");
            fs::write(path, stat).unwrap();
        }
        let mut seen = HashSet::new();
        for _ in 0..5 {
            let woken = listed();
            assert!(woken.len() <= super::IDLE_LOOKS + 1);
            seen.extend(woken);
        }
        assert_eq!(seen.len(), 601);
        assert_eq!(
            sample(&mut sampler(root.path(), Listing::All))["threads"].as_object().unwrap().len(),
            601
        );
    }

    #[test]
    fn ourselves() {
        let mut processes = sampler("/".as_ref(), Listing::Followed);
        let values = sample(&mut processes);
        let prefix = format!("{}/", std::process::id());
        let mut threads = values["threads"].as_object().unwrap().iter();
        let (label, threads) = threads.find(|(label, _)| label.starts_with(&prefix)).unwrap();
        assert!(threads.as_u64().unwrap() > 1);
        assert!(values["voluntary_switches"][label].as_u64().is_some());
    }
}
