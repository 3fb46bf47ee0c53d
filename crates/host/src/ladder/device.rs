//! The device's rungs, in files without a name: nothing is left behind, however this process ends.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rand::{Rng as _, RngExt, SeedableRng, rngs::SmallRng};
use rustix::fs::{OFlags, fstatvfs};

use super::rung::{About, Missing, Rung, Rungs, time_each};
use crate::mountinfo;
use base::error::AgentError;
use base::stop::StopSignal;

pub const RUNGS: [&str; 8] = [
    "device_read",
    "device_read_32",
    "device_write",
    "device_sync_write",
    "commit_512",
    "commit_16k",
    "append_fsync",
    "device_1mb",
];
/// InnoDB's page.
const PAGE: usize = 16 << 10;
const MEGABYTE: usize = 1 << 20;
/// The alignment of an O_DIRECT buffer that suits every device.
const ALIGNMENT: usize = 4096;
const READERS: usize = 32;
/// The log is circular, like InnoDB's.
const LOG_BYTES: u64 = 16 << 20;
const SMALLEST: u64 = 16 << 20;
/// On a slow disk the file is as large as can be written in this time.
const FILL_TIME: Duration = Duration::from_secs(10);
/// Read to see whether a device answers.
const PROBE_BYTES: u64 = 8 << 20;
/// The growing file starts again at this size.
const LONGEST_APPEND: u64 = 64 << 20;

/// A buffer that O_DIRECT takes.
struct Aligned {
    start: NonNull<u8>,
    layout: Layout,
}

// It owns its memory, as a Vec does.
unsafe impl Send for Aligned {}

impl Aligned {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("a small power of two");
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        Self { start: start.unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    fn random(bytes: usize) -> Self {
        let mut buffer = Self::new(bytes);
        // A device that compresses, or that leaves out zeros, must not look fast.
        SmallRng::seed_from_u64(0x7261_6365).fill_bytes(buffer.bytes());
        buffer
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated with this size, initialised, and borrowed as we are.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and never given away.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// The files' directory, and the notes for every rung there.
pub struct Place {
    folder: PathBuf,
    pub file_system: String,
    pub source: String,
    spoiled_by: Vec<String>,
}

impl Place {
    /// Refuses anything but a directory: a device is never written to.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        let metadata = std::fs::metadata(folder)
            .map_err(|error| AgentError::Input(format!("--file {}: {error}", folder.display())))?;
        if !metadata.is_dir() {
            let message =
                format!("--file {} is no folder; only a file of our own is written", folder.display());
            return Err(AgentError::Refused(message).into());
        }
        let device = metadata.dev();
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let whole = folder.canonicalize()?;
        let mount = mountinfo::parse(&mounts)
            .into_iter()
            // Devices of btrfs and overlay have other numbers here than in stat.
            .filter(|mount| mount.device == number || whole.starts_with(&mount.mount_point))
            .max_by_key(|mount| (whole.starts_with(&mount.mount_point), mount.mount_point.len()));
        let (file_system, source) = mount.map_or_else(Default::default, |mount| (mount.kind, mount.source));
        let mut spoiled_by = vec![
            "caches below the file system (the controller's, the host's under a virtual machine) may answer"
                .to_owned(),
        ];
        if matches!(file_system.as_str(), "tmpfs" | "ramfs") {
            spoiled_by = vec![format!("{file_system} is memory: this is no device")];
        } else if source.starts_with("/dev/loop") || source.starts_with("/dev/zram") {
            spoiled_by.push(format!("{source} is a file or memory, not a device"));
        }
        Ok(Self { folder: folder.to_owned(), file_system, source, spoiled_by })
    }

    /// A file without a name (O_TMPFILE), or one that is unlinked immediately if the file system lacks that.
    fn file(&self, flags: OFlags) -> anyhow::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).mode(0o600);
        let unnamed = options.custom_flags((flags | OFlags::TMPFILE).bits() as i32).open(&self.folder);
        match unnamed {
            Err(error) if is_unsupported(&error) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write in {}", self.folder.display()));
            }
            Ok(file) => return Ok(file),
        }
        let path = self.folder.join(format!(".headrace-ladder-{}", std::process::id()));
        let file = options
            .create_new(true)
            .custom_flags(flags.bits() as i32)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        Ok(file)
    }
}

fn is_unsupported(error: &std::io::Error) -> bool {
    // Old kernels and some network file systems take the flag for a write to a folder.
    [rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::ISDIR, rustix::io::Errno::INVAL]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The rungs that a folder's file system can show. The files live as long as these.
pub fn rungs(place: &Place, size_bytes: u64, stop: &StopSignal) -> anyhow::Result<Rungs> {
    let mut missing = Vec::new();
    let mut rungs: Vec<Box<dyn Rung>> = Vec::new();
    let log = place.file(OFlags::empty())?;
    refuse_small(&log, size_bytes, &place.folder)?;
    match filled(place, size_bytes, stop) {
        Ok((file, size_bytes)) => {
            let file = Arc::new(file);
            let mut spoiled_by = place.spoiled_by.clone();
            spoiled_by.extend(answered_above(&file, size_bytes)?);
            let new = |rung, bytes| Box::new(Direct::new(rung, &file, size_bytes, bytes, &spoiled_by));
            rungs.push(new("device_read", PAGE));
            rungs.push(Box::new(Parallel { one: *new("device_read_32", PAGE) }));
            rungs.push(new("device_write", PAGE));
            rungs.push(new("device_sync_write", PAGE));
            rungs.push(new("device_1mb", MEGABYTE));
        }
        Err(error) => {
            let direct = RUNGS.into_iter().filter(|rung| rung.starts_with("device"));
            missing.extend(direct.map(|rung| Missing { rung, reason: format!("{error:#}") }));
        }
    }
    write_all(&log, LOG_BYTES)?;
    let log = Arc::new(log);
    for (rung, bytes) in [("commit_512", 512), ("commit_16k", PAGE)] {
        rungs.push(Box::new(Commit::new(rung, &log, bytes, &place.spoiled_by)));
    }
    rungs.push(Box::new(Append {
        file: place.file(OFlags::empty())?,
        buffer: Aligned::random(4096),
        at: 0,
        longest: LONGEST_APPEND,
        spoiled_by: place.spoiled_by.clone(),
    }));
    Ok((rungs, missing))
}

/// A ladder must not fill a server's disk.
fn refuse_small(file: &File, size_bytes: u64, folder: &Path) -> anyhow::Result<()> {
    let room = fstatvfs(file)?;
    let (free, all) = (room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize);
    let needed = size_bytes + LOG_BYTES + LONGEST_APPEND;
    if free < needed + all / 20 {
        let message = format!(
            "{} has {} MiB free; {} MiB and 5% of the file system are needed: name another --file or a smaller --file-size",
            folder.display(),
            free >> 20,
            needed >> 20
        );
        return Err(AgentError::Refused(message).into());
    }
    Ok(())
}

/// A file of random bytes that no page cache holds, and its size: as much as was written in time.
fn filled(place: &Place, size_bytes: u64, stop: &StopSignal) -> anyhow::Result<(File, u64)> {
    let file = place.file(OFlags::DIRECT).context("no O_DIRECT here")?;
    let mut buffer = Aligned::random(MEGABYTE);
    let end = Instant::now() + FILL_TIME;
    let mut written = 0;
    while written < size_bytes && (written < SMALLEST || Instant::now() < end) {
        if stop.is_set() {
            bail!("stopped");
        }
        file.write_all_at(buffer.bytes(), written).context("cannot write with O_DIRECT")?;
        written += MEGABYTE as u64;
    }
    file.sync_all()?;
    Ok((file, written))
}

/// Reports reads with O_DIRECT that no device answers. Some file systems accept the flag and still cache, such as ZFS;
/// others run in another process. `read_bytes` of proc_pid_io(5) counts only what devices were asked for.
fn answered_above(file: &File, size_bytes: u64) -> anyhow::Result<Option<String>> {
    let Some(before) = read_from_devices() else { return Ok(None) };
    let mut buffer = Aligned::new(MEGABYTE);
    let bytes = PROBE_BYTES.min(size_bytes);
    for at in (0..bytes).step_by(MEGABYTE) {
        file.read_exact_at(buffer.bytes(), at)?;
    }
    let counted = read_from_devices().map_or(bytes, |after| after.saturating_sub(before));
    Ok((counted < bytes / 2).then(|| {
        format!(
            "of {} MiB read with O_DIRECT the kernel asked devices for {} MiB: a cache or another process answers",
            bytes >> 20,
            counted >> 20
        )
    }))
}

/// Of this thread; None where the kernel does not count it.
fn read_from_devices() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

fn write_all(file: &File, bytes: u64) -> anyhow::Result<()> {
    let mut buffer = Aligned::random(MEGABYTE);
    for at in (0..bytes).step_by(MEGABYTE) {
        file.write_all_at(buffer.bytes(), at)?;
    }
    Ok(file.sync_all()?)
}

/// Reads or writes with O_DIRECT within the file: at random, except for 1 MB, which is sequential.
struct Direct {
    rung: &'static str,
    file: Arc<File>,
    size_bytes: u64,
    buffer: Aligned,
    random: SmallRng,
    at: u64,
    spoiled_by: Vec<String>,
}

impl Direct {
    fn new(
        rung: &'static str,
        file: &Arc<File>,
        size_bytes: u64,
        bytes: usize,
        spoiled_by: &[String],
    ) -> Self {
        Self {
            rung,
            file: Arc::clone(file),
            size_bytes,
            buffer: Aligned::random(bytes),
            random: SmallRng::seed_from_u64(bytes as u64),
            at: 0,
            spoiled_by: spoiled_by.to_vec(),
        }
    }

    fn next(&mut self) -> u64 {
        let bytes = self.buffer.layout.size() as u64;
        let places = self.size_bytes / bytes;
        self.at = if self.rung == "device_1mb" { self.at + 1 } else { self.random.random_range(0..places) };
        self.at % places * bytes
    }

    fn once(&mut self) -> anyhow::Result<()> {
        let at = self.next();
        match self.rung {
            "device_write" => self.file.write_all_at(self.buffer.bytes(), at)?,
            "device_sync_write" => {
                self.file.write_all_at(self.buffer.bytes(), at)?;
                self.file.sync_data()?;
            }
            _ => self.file.read_exact_at(self.buffer.bytes(), at)?,
        }
        Ok(())
    }

    fn how(&self) -> &'static str {
        match self.rung {
            "device_read" => "reads of 16 KiB at random places, one at a time",
            "device_read_32" => {
                "reads of 16 KiB at random places, 32 threads: the time for each of all reads"
            }
            "device_write" => "writes of 16 KiB at random places, one at a time, without a sync",
            "device_sync_write" => "writes of 16 KiB at random places, each with fdatasync",
            _ => "reads of 1 MiB one after the other",
        }
    }
}

impl Rung for Direct {
    fn about(&self) -> About {
        let method = format!("O_DIRECT {} in {} MiB of random bytes", self.how(), self.size_bytes >> 20);
        let mut spoiled_by = self.spoiled_by.clone();
        if self.rung == "device_write" {
            spoiled_by.push("a write without a sync may end in a volatile cache of the device".to_owned());
        }
        About { rung: self.rung, method, operations_per_repetition: 1, spoiled_by }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        time_each(until, into, || self.once())
    }
}

/// Many readers at once; a repetition is the mean over a slice of the round.
struct Parallel {
    one: Direct,
}

impl Rung for Parallel {
    fn about(&self) -> About {
        let mut about = self.one.about();
        about
            .spoiled_by
            .push("32 threads need CPU, too: a very fast device does more with io_uring".to_owned());
        about
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        const SLICES: u32 = 5;
        let stop = AtomicBool::new(false);
        let done = AtomicU64::new(0);
        let slice = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(50)) / SLICES;
        std::thread::scope(|scope| {
            let mut readers = Vec::new();
            for _ in 0..READERS {
                let mut reader = Direct::new(
                    self.one.rung,
                    &self.one.file,
                    self.one.size_bytes,
                    PAGE,
                    &self.one.spoiled_by,
                );
                reader.random = SmallRng::seed_from_u64(self.one.random.random());
                let (stop, done) = (&stop, &done);
                readers.push(scope.spawn(move || -> anyhow::Result<()> {
                    while !stop.load(Ordering::Relaxed) {
                        reader.once()?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                }));
            }
            for _ in 0..SLICES {
                let (start, before) = (Instant::now(), done.load(Ordering::Relaxed));
                std::thread::sleep(slice);
                let reads = done.load(Ordering::Relaxed) - before;
                if reads > 0 {
                    into.push(start.elapsed().as_nanos() as f64 / reads as f64);
                }
            }
            stop.store(true, Ordering::Relaxed);
            readers.into_iter().try_for_each(|reader| match reader.join() {
                Ok(result) => result,
                Err(_) => bail!("a reading thread failed"),
            })
        })
    }
}

/// Overwrites a record, then fdatasync: the device's part of a commit.
struct Commit {
    rung: &'static str,
    file: Arc<File>,
    buffer: Aligned,
    at: u64,
    spoiled_by: Vec<String>,
}

impl Commit {
    fn new(rung: &'static str, file: &Arc<File>, bytes: usize, spoiled_by: &[String]) -> Self {
        Self {
            rung,
            file: Arc::clone(file),
            buffer: Aligned::random(bytes),
            at: 0,
            spoiled_by: spoiled_by.to_vec(),
        }
    }
}

impl Rung for Commit {
    fn about(&self) -> About {
        let bytes = self.buffer.layout.size();
        About {
            rung: self.rung,
            method: format!(
                "{bytes} bytes through the page cache over an old part of a file of {} MiB, then fdatasync, as InnoDB's log",
                LOG_BYTES >> 20
            ),
            operations_per_repetition: 1,
            spoiled_by: self.spoiled_by.clone(),
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        time_each(until, into, || {
            self.file.write_all_at(self.buffer.bytes(), self.at)?;
            self.file.sync_data()?;
            self.at = (self.at + self.buffer.layout.size() as u64) % LOG_BYTES;
            Ok(())
        })
    }
}

/// A file that grows, and fsync: the file system's journal is part of it.
struct Append {
    file: File,
    buffer: Aligned,
    at: u64,
    longest: u64,
    spoiled_by: Vec<String>,
}

impl Rung for Append {
    fn about(&self) -> About {
        About {
            rung: "append_fsync",
            method: "4 KiB at the end of a growing file, then fsync, as a binary log with sync_binlog=1"
                .to_owned(),
            operations_per_repetition: 1,
            spoiled_by: self.spoiled_by.clone(),
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        loop {
            let end = self.at + self.buffer.layout.size() as u64;
            if end > self.longest {
                // Between two measurements, so that none of them includes freeing its blocks.
                self.file.set_len(0)?;
                self.at = 0;
                continue;
            }
            time_each(Instant::now(), into, || {
                self.file.write_all_at(self.buffer.bytes(), self.at)?;
                Ok(self.file.sync_all()?)
            })?;
            self.at = end;
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Aligned, Append, Place, Rung, answered_above, filled, read_from_devices};
    use base::stop::StopSignal;

    #[test]
    fn however_long_it_is_measured_the_growing_file_stays_small() {
        let (buffer, longest) = (Aligned::random(4096), 5 * 4096);
        let file = tempfile::tempfile().unwrap();
        let mut rung = Append { file, buffer, at: 0, longest, spoiled_by: Vec::new() };
        let mut took = Vec::new();
        while took.len() < 23 {
            rung.measure(Instant::now() + Duration::from_millis(5), &mut took).unwrap();
            assert!(rung.file.metadata().unwrap().len() <= longest);
        }
    }

    #[test]
    fn reads_that_no_device_answers_are_told() {
        let said = |folder: &str| {
            let place = Place::new(folder.as_ref()).unwrap();
            let (file, bytes) = filled(&place, 16 << 20, &StopSignal::install().unwrap()).ok()?;
            answered_above(&file, bytes).unwrap()
        };
        if read_from_devices().is_none() {
            return;
        }
        // Memory takes O_DIRECT since Linux 6.6.
        if let Some(text) = said("/dev/shm") {
            assert!(
                text.contains("of 8 MiB read with O_DIRECT the kernel asked devices for 0 MiB"),
                "{text}"
            );
        }
        assert_eq!(said("/var/tmp"), None);
    }
}
