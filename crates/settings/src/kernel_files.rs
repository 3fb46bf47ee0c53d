//! Files of /sys and /proc/sys: read, write, verify, and the value that brings the old state back.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::foreign;
use super::journal::{FileValue, Open};
use super::world::fs;
use base::error::AgentError;
use host::cpulist;

/// Writing one of these changes the others, which sit in the same folder or have a whole path.
///
/// A new scheduler sets the depth and the writeback throttling again and drops the old one's tunables;
/// vm.dirty_ratio and vm.dirty_bytes are two ways to say one thing, as are vm.overcommit_ratio and
/// vm.overcommit_kbytes; intel_pstate's `performance` governor takes the energy preference along; with huge pages the
/// kernel computes anew how much memory stays free, and raises what the administrator has set.
const COUPLED: &[(&str, &[&str])] = &[
    ("queue/scheduler", &["nr_requests", "wbt_lat_usec", "iosched"]),
    ("queue/max_sectors_kb", &["read_ahead_kb"]),
    ("vm/dirty_ratio", &["dirty_bytes"]),
    ("vm/dirty_bytes", &["dirty_ratio"]),
    ("vm/dirty_background_ratio", &["dirty_background_bytes"]),
    ("vm/dirty_background_bytes", &["dirty_background_ratio"]),
    ("vm/overcommit_ratio", &["overcommit_kbytes"]),
    ("vm/overcommit_kbytes", &["overcommit_ratio"]),
    ("cpufreq/scaling_governor", &["energy_performance_preference"]),
    (HUGE_PAGES, &["/proc/sys/vm/min_free_kbytes"]),
];
const HUGE_PAGES: &str = "transparent_hugepage/enabled";

/// Files of /sys that are no settings: they act, or they tell the kernel what is not so.
const NEVER: &[(&str, &str)] = &[
    (
        "/queue/write_cache",
        "the kernel would send no more flushes: what was synced may be lost in a power cut",
    ),
    ("/sys/power/", "it acts instead of setting"),
    ("/uevent", "it acts instead of setting"),
    ("/unbind", "it acts instead of setting"),
    ("/sysrq", "it acts instead of setting"),
    ("/core_pattern", "it names a program that runs as root"),
    ("/kernel/modprobe", "it names a program that runs as root"),
    ("/hotplug", "it names a program that runs as root"),
];

/// The kernel's own files, below a root that is `/` except in tests.
pub struct KernelFiles {
    root: PathBuf,
}

impl KernelFiles {
    pub fn new(root: &Path) -> KernelFiles {
        KernelFiles { root: root.to_owned() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What can be said about a change before any file is written. `others`: whether this call sets that path, too.
    pub fn check(&self, path: &str, value: &str, others: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        if value.contains(['\n', '\0']) || value.trim().is_empty() {
            return Err(AgentError::Input(format!("{path}: {value:?} is not one line of text")).into());
        }
        if let Err(error) = self.read(path) {
            let missing = AgentError::Refused(format!("{path}: this host has no such setting"));
            return Err(if is_gone(&error) { missing.into() } else { error });
        }
        if is_of_a_pair(path) && coupled(path).iter().any(|name| others(&sibling(path, name))) {
            let text = format!("{path}: two settings of this call contradict each other");
            return Err(AgentError::Input(text).into());
        }
        match interrupt_of(path) {
            Some(irq) => self.must_be_movable(path, irq),
            None => Ok(()),
        }
    }

    /// The kernel spreads the interrupts of NVMe and of some network devices itself and refuses to move them.
    fn must_be_movable(&self, path: &str, irq: &str) -> anyhow::Result<()> {
        let state = self.root.join(format!("sys/kernel/debug/irq/irqs/{irq}"));
        // Without debugfs only the write tells.
        if fs::read_to_string(state).is_ok_and(|text| text.contains("IRQD_AFFINITY_MANAGED")) {
            let text = format!("{path}: interrupt {irq} is managed by the kernel and cannot be moved");
            return Err(AgentError::Refused(text).into());
        }
        Ok(())
    }

    /// What the file says, of a choice the chosen word.
    pub fn chosen(&self, path: &str) -> anyhow::Result<String> {
        Ok(chosen(&self.read(path)?).to_owned())
    }

    /// The values that bring back the state of `path` and of all that is coupled with it, in order.
    pub fn restoring(&self, path: &str, before: &str) -> anyhow::Result<Vec<FileValue>> {
        let mut values = vec![FileValue { path: path.to_owned(), value: chosen(before).to_owned() }];
        for name in coupled(path) {
            let sibling = sibling(path, name);
            for file in self.files_at(&sibling)? {
                if let Some(value) = self.readable(&file)? {
                    values.push(FileValue { path: file, value });
                }
            }
        }
        // Of a pair of which one is 0 because the other is set, 0 is not a value that can be written.
        if is_of_a_pair(path) && values[0].value == "0" && values.iter().any(|v| v.value != "0") {
            values.rotate_left(1);
        }
        Ok(values)
    }

    /// The value of a file; None where it cannot be read: it is not supported by this device, or gone with it. Then
    /// it cannot be changed, either.
    fn readable(&self, path: &str) -> anyhow::Result<Option<String>> {
        match self.chosen(path) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.downcast_ref().is_some_and(is_passing) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The file itself, or the writable files of a folder.
    fn files_at(&self, path: &str) -> anyhow::Result<Vec<String>> {
        let failed = |error| anyhow::Error::new(error).context(path.to_owned());
        let entries = match fs::read_dir(self.below_root(path)) {
            Ok(entries) => entries,
            Err(error) if is_passing(&error) => return Err(failed(error)),
            Err(_) => return Ok(vec![path.to_owned()]),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            match entry.metadata() {
                Ok(found) if found.is_file() && !found.permissions().readonly() => {
                    files.push(format!("{path}/{}", entry.file_name().to_string_lossy()));
                }
                Err(error) if is_passing(&error) => return Err(failed(error)),
                _ => {}
            }
        }
        files.sort();
        Ok(files)
    }

    /// The values of now, in the order of `values`; None where there is no such file (any more).
    pub fn read_all(&self, values: &[FileValue]) -> anyhow::Result<Vec<Option<String>>> {
        values.iter().map(|value| self.readable(&value.path)).collect()
    }

    /// Fail if one of these values was set from outside since `entry` was journaled.
    pub fn check_foreign(&self, values: &[FileValue], entry: &Open) -> anyhow::Result<()> {
        let now = self.read_all(values)?;
        // After a boot a file has set again what was written; its effect on the others was not recorded.
        let noted = if entry.is_of_another_boot()? { &[][..] } else { entry.became.as_slice() };
        let became = noted.iter().map(Some).chain(std::iter::repeat(None));
        // A value that vanished with its device cannot be anyone else's; an empty one was never set.
        let is_set = |now: &Option<String>| now.as_ref().is_some_and(|text| !text.is_empty());
        let there: Vec<_> = values.iter().zip(&now).zip(became).filter(|((_, now), _)| is_set(now)).collect();
        let values_now: Vec<foreign::Value<'_>> = there
            .iter()
            .map(|((v, now), _)| foreign::Value {
                name: &v.path,
                original: Some(&v.value),
                now: now.as_deref(),
            })
            .collect();
        let became: Vec<Option<String>> = there.iter().filter_map(|(_, became)| became.cloned()).collect();
        foreign::check(&values_now, &became, &entry.wrote, same)
    }

    /// Put values back; a note where the file has gone with its device.
    pub fn restore(&self, values: &[FileValue]) -> anyhow::Result<Option<&'static str>> {
        let Some((first, companions)) = values.split_first() else { return Ok(None) };
        let Some(stands) = self.stands(first)? else { return Ok(Some("it is gone with its device")) };
        if stands && companions.iter().all(|v| matches!(self.stands(v), Ok(Some(true) | None))) {
            return Ok(None);
        }
        // Written even where it already has the value: that is what brings its companions along (dirty_ratio, dirty_bytes).
        self.write_back(first)?;
        for companion in companions {
            if self.stands(companion)? == Some(false) {
                self.write_back(companion)?;
            }
        }
        Ok(None)
    }

    /// Refuse to keep a change of which the original is back: it was undone, which could not be noted on a full disk.
    pub fn must_not_be_restored(&self, values: &[FileValue]) -> anyhow::Result<()> {
        match values.first() {
            Some(first) if self.stands(first)? == Some(true) => {
                let FileValue { path, value } = first;
                Err(AgentError::Refused(format!("{path} is {value:?} again: what was set was undone")).into())
            }
            _ => Ok(()),
        }
    }

    /// Whether a file has this value; nothing where there is no such file (any more).
    fn stands(&self, FileValue { path, value }: &FileValue) -> anyhow::Result<Option<bool>> {
        match self.read(path) {
            Ok(now) => Ok(Some(same(path, value, &now))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write_back(&self, value: &FileValue) -> anyhow::Result<()> {
        self.write(&value.path, &value.value)?;
        self.must_hold(value)
    }

    fn must_hold(&self, FileValue { path, value }: &FileValue) -> anyhow::Result<()> {
        let now = self.read(path)?;
        if same(path, value, &now) {
            return Ok(());
        }
        let now = chosen(&now);
        Err(AgentError::Refused(format!("{path}: wrote {value:?} back, but the kernel made it {now:?}"))
            .into())
    }

    /// Refuse what could not be restored later: the value that an undo writes first is written now, which changes
    /// nothing.
    pub fn prove_way_back(&self, values: &[FileValue]) -> anyhow::Result<()> {
        let Some(first) = values.first() else { return Ok(()) };
        let FileValue { path, value } = first;
        // Its present value changes something, too. It is one of a choice, so the kernel takes it back.
        if path.ends_with(HUGE_PAGES) {
            return Ok(());
        }
        self.write(path, value).and_then(|()| self.must_hold(first)).map_err(|error| {
            let text = format!(
                "{path}: its value {value:?} could not be restored, so nothing was changed: {error:#}"
            );
            AgentError::Refused(text).into()
        })
    }

    fn below_root(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The real file of a path, which must be a setting of the kernel also after following symbolic links.
    fn resolve(&self, path: &str) -> anyhow::Result<PathBuf> {
        let refused = |why: &str| AgentError::Refused(format!("{path}: {why}"));
        let below = |p: &Path, root: &Path| p.strip_prefix(root).is_ok_and(is_setting);
        if !below(Path::new(path), Path::new("/")) || path.split('/').any(|part| part == "..") {
            return Err(
                refused("only files of /sys, /proc/sys and affinities of /proc/irq may be set").into()
            );
        }
        if let Some((_, why)) = NEVER.iter().find(|(part, _)| path.contains(part)) {
            return Err(refused(why).into());
        }
        let io = |e: std::io::Error| anyhow::Error::new(e).context(path.to_owned());
        let root = fs::canonicalize(&self.root).map_err(io)?;
        let real = fs::canonicalize(self.below_root(path)).map_err(io)?;
        if !below(&real, &root) {
            return Err(refused("a symbolic link leads elsewhere").into());
        }
        if !fs::metadata(&real).map_err(io)?.is_file() {
            return Err(refused("is not a file").into());
        }
        Ok(real)
    }

    fn read(&self, path: &str) -> anyhow::Result<String> {
        let real = self.resolve(path)?;
        let bytes = fs::read(&real).map_err(|e| anyhow::Error::new(e).context(path.to_owned()))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub fn write(&self, path: &str, value: &str) -> anyhow::Result<()> {
        let real = self.resolve(path)?;
        // The kernel takes one write as one value: no second write may follow.
        let line = format!("{value}\n");
        let put = |mut file: fs::File| {
            file.write_all(line.as_bytes())?;
            // Of a plain file, in tests, the rest of a longer value must go; the kernel's own have no length.
            let _ = file.set_len(line.len() as u64);
            Ok(())
        };
        fs::OpenOptions::new().write(true).open(&real).and_then(put).map_err(|error| {
            let accepted = match self.read(path) {
                _ if interrupt_of(path).is_some() && is_io_error(&error) => {
                    "; the kernel does not let this interrupt be moved (it may be managed)".to_owned()
                }
                Ok(now) if now.contains('[') => format!("; accepted: {}", now.replace(['[', ']'], "")),
                Ok(now) => format!("; it stays {now:?}"),
                Err(_) => String::new(),
            };
            AgentError::Refused(format!("{path}: cannot be set to {value:?}: {error}{accepted}")).into()
        })
    }
}

fn coupled(path: &str) -> &'static [&'static str] {
    COUPLED.iter().find(|(end, _)| path.ends_with(end)).map_or(&[], |(_, names)| names)
}

/// Whether writing it makes its companion 0: two ways to say one thing, of which only one can be in force.
fn is_of_a_pair(path: &str) -> bool {
    path.contains("/vm/dirty_") || path.contains("/vm/overcommit_")
}

fn sibling(path: &str, name: &str) -> String {
    if name.starts_with('/') {
        return name.to_owned();
    }
    format!("{}/{name}", path.rsplit_once('/').map_or("", |(folder, _)| folder))
}

/// Whether a path below the root is a setting of the kernel.
fn is_setting(path: &Path) -> bool {
    path.starts_with("sys")
        || path.starts_with("proc/sys")
        || path.to_str().is_some_and(|text| interrupt_of(&format!("/{text}")).is_some())
}

/// The number in `/proc/irq/24/smp_affinity_list`.
fn interrupt_of(path: &str) -> Option<&str> {
    let (irq, name) = path.strip_prefix("/proc/irq/")?.split_once('/')?;
    let known = matches!(name, "smp_affinity" | "smp_affinity_list");
    (known && !irq.is_empty() && irq.bytes().all(|b| b.is_ascii_digit())).then_some(irq)
}

fn is_io_error(error: &std::io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::IO)
}

/// Whether a failure is of this process or this moment: it says nothing about the file.
fn is_passing(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| {
        e.kind() == ErrorKind::NotFound
            || rustix::io::Errno::from_io_error(e)
                .is_some_and(|errno| errno == rustix::io::Errno::NODEV || errno == rustix::io::Errno::NXIO)
    })
}

/// Of `none [mq-deadline] kyber` the one in use; any other text is itself.
fn chosen(text: &str) -> &str {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(word, _)| word)
}

/// Whether the kernel's text says the wanted value: it prints choices, masks, lists and booleans its own way.
pub fn same(path: &str, wanted: &str, seen: &str) -> bool {
    let (wanted, seen) = (chosen(wanted).trim(), chosen(seen).trim());
    if wanted == seen || wanted.split_whitespace().eq(seen.split_whitespace()) {
        return true;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_mask =
        name.ends_with("_cpus") || name == "smp_affinity" || name.ends_with("_rxqs") || name == "cpumask";
    if is_mask {
        let digits = |mask: &str| mask.replace(',', "").trim_start_matches('0').to_ascii_lowercase();
        return digits(wanted) == digits(seen);
    }
    if name.ends_with("_list") {
        let sorted = |text: &str| {
            let mut cpus = cpulist::parse(text)?;
            cpus.sort_unstable();
            cpus.dedup();
            Some(cpus)
        };
        return sorted(wanted).is_some() && sorted(wanted) == sorted(seen);
    }
    matches!((wanted, seen), ("1" | "y", "Y") | ("0" | "n", "N"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Applied, Change, Hands};
    use crate::journal::{Journal, Undo};
    use mysql::ServerArguments;

    /// A fake host: plain files, so writes do what plain files do.
    struct Host {
        folder: tempfile::TempDir,
        journal: Journal,
    }

    impl Host {
        fn new(files: &[(&str, &str)]) -> Host {
            let folder = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = folder.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, format!("{text}\n")).unwrap();
            }
            let journal = Journal::open(&folder.path().join("state")).unwrap();
            Host { folder, journal }
        }

        fn apply(&mut self, changes: &[(&str, &str)]) -> anyhow::Result<Vec<Applied>> {
            let changes: Vec<Change> = changes
                .iter()
                .map(|(p, v)| Change::Kernel { path: (*p).into(), value: (*v).into() })
                .collect();
            let (kernel, login) = (KernelFiles::new(self.folder.path()), ServerArguments::default());
            Hands::new(&kernel, &login).apply(&mut self.journal, "a", &changes, None)
        }

        fn text(&self, path: &str) -> String {
            std::fs::read_to_string(self.folder.path().join(path)).unwrap().trim().to_owned()
        }
    }

    #[test]
    fn a_setting_is_journaled_with_its_original_then_written() {
        let mut host = Host::new(&[("sys/block/d/queue/scheduler", "[none] mq-deadline")]);
        let applied = host.apply(&[("/sys/block/d/queue/scheduler", "mq-deadline")]).unwrap();
        assert_eq!(
            applied,
            [Applied {
                path: "/sys/block/d/queue/scheduler".into(),
                before: "none".into(),
                after: "mq-deadline".into(),
                also: vec![]
            }]
        );
        assert_eq!(host.text("sys/block/d/queue/scheduler"), "mq-deadline");
        let Undo::Setting { restore } = &host.journal.content.open[0].undo else { panic!() };
        assert_eq!(restore[0].value, "none");
    }

    #[test]
    fn what_already_stands_is_neither_journaled_nor_written() {
        let mut host =
            Host::new(&[("sys/a", "always [madvise] never"), ("proc/sys/net/ipv4/tcp_rmem", "1\t2\t3")]);
        let applied = host.apply(&[("/sys/a", "madvise"), ("/proc/sys/net/ipv4/tcp_rmem", "1 2 3")]).unwrap();
        assert!(applied.iter().all(|a| a.before == a.after));
        assert!(host.journal.content.open.is_empty());
        assert_eq!(host.text("sys/a"), "always [madvise] never");
    }

    #[test]
    fn a_call_that_fails_leaves_nothing_half_applied() {
        let mut host = Host::new(&[("sys/a", "1"), ("sys/b", "2")]);
        // Two names of one file: the last write undoes the first, as the kernel does with coupled files.
        std::fs::hard_link(host.folder.path().join("sys/a"), host.folder.path().join("sys/c")).unwrap();
        let error = host.apply(&[("/sys/a", "5"), ("/sys/b", "6"), ("/sys/c", "7")]).unwrap_err();
        assert!(error.to_string().contains(r#"/sys/a: wrote "5", but a later setting"#), "{error:#}");
        assert_eq!((host.text("sys/a"), host.text("sys/b")), ("1".into(), "2".into()));
        assert!(host.journal.content.open.is_empty());
    }

    #[test]
    fn paths_that_leave_the_kernels_trees_are_refused() {
        let mut host = Host::new(&[("sys/a", "1"), ("etc/b", "2"), ("proc/c", "3")]);
        std::os::unix::fs::symlink("../etc/b", host.folder.path().join("sys/link")).unwrap();
        for path in ["/etc/b", "/sys/../etc/b", "/sys/link", "/proc/c", "sys/a", "/sys", "/system/x"] {
            let error = host.apply(&[(path, "9")]).unwrap_err();
            assert!(error.downcast_ref::<AgentError>().is_some(), "{path}: {error:#}");
        }
        assert_eq!(host.text("etc/b"), "2");
        assert!(host.apply(&[("/sys/missing", "9")]).unwrap_err().to_string().contains("/sys/missing"));
        for value in ["", " ", "a\nb"] {
            assert!(host.apply(&[("/sys/a", value)]).is_err(), "{value:?}");
        }
    }

    #[test]
    fn of_a_coupled_pair_the_one_that_was_set_is_restored_first() {
        for (share, amount) in [("dirty_ratio", "dirty_bytes"), ("overcommit_ratio", "overcommit_kbytes")] {
            for (ratio, bytes, first) in [("20", "0", share), ("0", "4096000", amount)] {
                let [share, amount] = [share, amount].map(|name| format!("proc/sys/vm/{name}"));
                let mut host = Host::new(&[(&share, ratio), (&amount, bytes)]);
                let [share, amount] = [share, amount].map(|path| format!("/{path}"));
                host.apply(&[(&amount, "8192000")]).unwrap();
                let Undo::Setting { restore } = &host.journal.content.open[0].undo else { panic!() };
                assert!(restore[0].path.ends_with(first), "{restore:?}");
                assert_eq!(restore.len(), 2, "{restore:?}");
                let both = [(&*amount, "1"), (&*share, "2")];
                assert!(host.apply(&both).unwrap_err().to_string().contains("contradict"));
            }
        }
    }

    #[test]
    fn a_schedulers_companions_are_remembered_and_restored() {
        let mut host = Host::new(&[
            ("sys/block/d/queue/scheduler", "none [mq-deadline]"),
            ("sys/block/d/queue/nr_requests", "64"),
            ("sys/block/d/queue/iosched/read_expire", "100"),
        ]);
        host.apply(&[("/sys/block/d/queue/scheduler", "none")]).unwrap();
        // What the kernel does behind our back.
        std::fs::write(host.folder.path().join("sys/block/d/queue/nr_requests"), "128\n").unwrap();
        std::fs::write(host.folder.path().join("sys/block/d/queue/iosched/read_expire"), "500\n").unwrap();
        let Undo::Setting { restore } = host.journal.content.open[0].undo.clone() else { panic!() };
        KernelFiles::new(host.folder.path()).restore(&restore).unwrap();
        assert_eq!(host.text("sys/block/d/queue/scheduler"), "mq-deadline");
        assert_eq!(host.text("sys/block/d/queue/nr_requests"), "64");
        assert_eq!(host.text("sys/block/d/queue/iosched/read_expire"), "100");
    }

    #[test]
    fn with_huge_pages_the_memory_that_stays_free_comes_back() {
        let enabled = "sys/kernel/mm/transparent_hugepage/enabled";
        let mut host =
            Host::new(&[(enabled, "[always] madvise never"), ("proc/sys/vm/min_free_kbytes", "65536")]);
        let always = FileValue { path: format!("/{enabled}"), value: "always".into() };
        KernelFiles::new(host.folder.path()).prove_way_back(&[always]).unwrap();
        assert_eq!(host.text(enabled), "[always] madvise never", "to write it would act");
        host.apply(&[(&format!("/{enabled}"), "never")]).unwrap();
        // What the kernel does behind our back.
        std::fs::write(host.folder.path().join("proc/sys/vm/min_free_kbytes"), "3500\n").unwrap();
        let Undo::Setting { restore } = host.journal.content.open[0].undo.clone() else { panic!() };
        KernelFiles::new(host.folder.path()).restore(&restore).unwrap();
        assert_eq!(host.text(enabled), "always");
        assert_eq!(host.text("proc/sys/vm/min_free_kbytes"), "65536");
    }

    #[test]
    fn a_setting_of_a_device_that_is_gone_counts_as_restored() {
        let host = Host::new(&[("sys/a", "1")]);
        let gone = FileValue { path: "/sys/block/loop99/queue/scheduler".into(), value: "none".into() };
        assert!(KernelFiles::new(host.folder.path()).restore(&[gone]).unwrap().is_some());
    }

    #[test]
    fn the_kernels_ways_to_print_a_value() {
        for (path, wanted, seen) in [
            ("/sys/q/scheduler", "none", "[none] kyber"),
            ("/sys/q/rps_cpus", "3", "00000000,00000003"),
            ("/sys/q/xps_cpus", "0", "00"),
            ("/sys/q/write_cache", "write back", "write back"),
            ("/sys/module/x/parameters/y", "1", "Y"),
            ("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456", "4096\t131072\t6291456"),
        ] {
            assert!(same(path, wanted, seen), "{path} {wanted} {seen}");
        }
        for (path, wanted, seen) in [
            ("/sys/q/scheduler", "kyber", "[none] kyber"),
            ("/sys/q/read_ahead_kb", "5", "4"),
            ("/sys/q/read_ahead_kb", "1", "10"),
            ("/sys/q/rps_cpus", "3", "30"),
        ] {
            assert!(!same(path, wanted, seen), "{path} {wanted} {seen}");
        }
    }
}
