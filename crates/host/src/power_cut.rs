//! A disk as it may be after its power failed, from a log of all that was written to it and flushed.
//!
//! The log has the format of the kernel's dm-log-writes (Documentation/admin-guide/device-mapper/log-writes.rst), which
//! QEMU's blklogwrites writes, too. What was written before the last flush is there. Of what came later a disk may
//! have kept any part: blocks of 4 KiB are kept or lost, each for itself, so a page of 16 KiB may be torn.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use base::error::AgentError;
use clap::Args;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use serde_json::json;

/// WRITE_LOG_MAGIC of dm-log-writes.
const MAGIC: u64 = 0x006a_7366_7773_6872;
/// Bits of an entry: a flush, a write that is on the disk when it is done, a discard (which has no data).
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
/// What a disk writes whole or not at all.
const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;
const COPY: usize = 1 << 20;
/// No single request of a kernel is larger.
const MOST_BYTES: u64 = 1 << 30;

#[derive(Args)]
pub struct PowerCutArguments {
    /// The log of the disk's writes and flushes
    #[arg(long)]
    log: PathBuf,
    /// The disk as flushed up to the entry FROM; it is brought forward to the last flush before AT
    #[arg(long)]
    disk: PathBuf,
    /// The disk after the cut: a new file
    #[arg(long)]
    out: PathBuf,
    /// Where the one before left off: entry and byte of the log, as printed
    #[arg(long, value_name = "ENTRY:BYTE", default_value = "0:0")]
    from: String,
    /// The entry before which the power fails
    #[arg(long)]
    at: u64,
    /// Selects what is kept of what was not flushed
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Make the disk, and print `from` for the next one with how much was kept and lost, as JSON.
///
/// # Errors
/// A log that is none, or ends before the entry; a position before the one reached.
pub fn run(arguments: &PowerCutArguments) -> anyhow::Result<()> {
    let mut log = Log::open(&arguments.log, &arguments.from)?;
    let disk = OpenOptions::new().write(true).read(true).open(&arguments.disk);
    let disk = disk.map_err(|error| AgentError::unreadable("", &arguments.disk, &error))?;
    let mut pending = Vec::new();
    let mut flushed = log.at;
    while log.at.entry < arguments.at {
        let entry = log.next(arguments.at)?;
        if entry.flags & FLUSH != 0 {
            for each in pending.drain(..) {
                write_all(&log, &disk, &each)?;
            }
            flushed = log.at;
        }
        if entry.bytes > 0 {
            pending.push(entry);
        }
    }
    let out = copy(&disk, &arguments.out)?;
    let mut random = StdRng::seed_from_u64(arguments.seed);
    // A cache that was lost, one that was saved, and any in between.
    let share = [0.0, 1.0, random.random::<f64>()][random.random_range(0..3)];
    let (mut kept, mut lost) = (0, 0);
    for each in &pending {
        if each.flags & FUA != 0 {
            write_all(&log, &out, each)?;
            kept += each.bytes;
            continue;
        }
        for piece in each.blocks() {
            if random.random::<f64>() < share {
                write_all(&log, &out, &piece)?;
                kept += piece.bytes;
            } else {
                lost += piece.bytes;
            }
        }
    }
    let from = format!("{}:{}", flushed.entry, flushed.byte);
    println!("{}", json!({ "from": from, "kept_bytes": kept, "lost_bytes": lost }));
    Ok(())
}

/// A place in the log: the next entry, and where it begins.
#[derive(Clone, Copy)]
struct Place {
    entry: u64,
    byte: u64,
}

/// A write of so many bytes at ``offset`` of the disk; ``data`` is where the log has them.
struct Entry {
    offset: u64,
    bytes: u64,
    flags: u64,
    data: u64,
}

impl Entry {
    /// The parts of it that are written whole or not at all.
    fn blocks(&self) -> impl Iterator<Item = Entry> + '_ {
        let mut done = 0;
        std::iter::from_fn(move || {
            (done < self.bytes).then(|| {
                let offset = self.offset + done;
                let bytes = (BLOCK - offset % BLOCK).min(self.bytes - done);
                let piece = Entry { offset, bytes, flags: self.flags, data: self.data + done };
                done += bytes;
                piece
            })
        })
    }
}

struct Log {
    file: File,
    entries: u64,
    sector: u64,
    at: Place,
}

impl Log {
    fn open(path: &Path, from: &str) -> anyhow::Result<Self> {
        let file = File::open(path).map_err(|error| AgentError::unreadable("", path, &error))?;
        let mut head = [0; 28];
        let whole = file.read_exact_at(&mut head, 0);
        if whole.is_err() || word(&head, 0) != MAGIC {
            let what = format!("{}: no log of a disk's writes", path.display());
            return Err(AgentError::Named(what).into());
        }
        let sector = u64::from(u32::from_le_bytes([head[24], head[25], head[26], head[27]]));
        if !(SECTOR..=1 << 20).contains(&sector) {
            return Err(AgentError::Damaged(format!("{}: sectors of {sector} bytes", path.display())).into());
        }
        let place =
            from.split_once(':').and_then(|(entry, byte)| Some((entry.parse().ok()?, byte.parse().ok()?)));
        let (entry, byte) =
            place.ok_or_else(|| AgentError::Input(format!("--from {from}: not ENTRY:BYTE")))?;
        let at = Place { entry, byte: if entry == 0 { sector } else { byte } };
        Ok(Self { file, entries: word(&head, 16), sector, at })
    }

    /// The next entry; the log must have more than ``most`` of them.
    fn next(&mut self, most: u64) -> anyhow::Result<Entry> {
        if self.at.entry >= self.entries {
            let what = format!("the log ends after {} entries, and {most} were asked for", self.entries);
            return Err(AgentError::Input(what).into());
        }
        let mut head = [0; 32];
        self.file.read_exact_at(&mut head, self.at.byte)?;
        let flags = word(&head, 16);
        let bytes = word(&head, 8).saturating_mul(self.sector);
        if bytes > MOST_BYTES && flags & DISCARD == 0 {
            return Err(AgentError::Damaged(format!("entry {}: {bytes} bytes", self.at.entry)).into());
        }
        let offset = word(&head, 0).saturating_mul(self.sector);
        let data = self.at.byte + self.sector;
        let stored = if flags & DISCARD == 0 { bytes } else { 0 };
        self.at = Place { entry: self.at.entry + 1, byte: data + stored };
        Ok(Entry { offset, bytes, flags, data })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

/// What a discard leaves may be anything: zeros, as most disks have it.
fn write_all(log: &Log, disk: &File, entry: &Entry) -> io::Result<()> {
    let mut buffer = vec![0; COPY.min(usize::try_from(entry.bytes).unwrap_or(COPY))];
    let mut done = 0;
    while done < entry.bytes {
        let many = buffer.len().min(usize::try_from(entry.bytes - done).unwrap_or(COPY));
        if entry.flags & DISCARD == 0 {
            log.file.read_exact_at(&mut buffer[..many], entry.data + done)?;
        }
        disk.write_all_at(&buffer[..many], entry.offset + done)?;
        done += many as u64;
    }
    Ok(())
}

/// A new file with the same content and the same holes.
fn copy(disk: &File, path: &Path) -> anyhow::Result<File> {
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    let out = made.map_err(|error| AgentError::unwritable(path, error))?;
    let size = disk.metadata()?.len();
    out.set_len(size)?;
    let mut buffer = vec![0; COPY];
    let mut at = 0;
    while let Some(start) = place(disk, SeekFrom::Data(at))? {
        at = place(disk, SeekFrom::Hole(start))?.unwrap_or(size);
        let mut done = start;
        while done < at {
            let many = buffer.len().min(usize::try_from(at - done).unwrap_or(COPY));
            disk.read_exact_at(&mut buffer[..many], done)?;
            out.write_all_at(&buffer[..many], done)?;
            done += many as u64;
        }
    }
    Ok(out)
}

fn place(disk: &File, sought: SeekFrom) -> anyhow::Result<Option<u64>> {
    match seek(disk, sought) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A log of writes `(offset in sectors, sectors, byte, flags)`; flag 1 without sectors is a flush.
    fn log_of(path: &Path, writes: &[(u64, u64, u8, u64)]) {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[16..24].copy_from_slice(&(writes.len() as u64).to_le_bytes());
        bytes[24..28].copy_from_slice(&512_u32.to_le_bytes());
        for (offset, sectors, byte, flags) in writes {
            let mut head = vec![0; 512];
            for (at, value) in [offset, sectors, flags].into_iter().enumerate() {
                head[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
            }
            bytes.extend(head);
            if flags & DISCARD == 0 {
                bytes.extend(vec![*byte; usize::try_from(*sectors).unwrap() * 512]);
            }
        }
        fs::write(path, bytes).unwrap();
    }

    /// The disk after a cut, one character a block of 4 KiB: `.` never written.
    fn after(folder: &Path, at: u64, seed: u64) -> String {
        let (disk, out) = (folder.join("disk"), folder.join(format!("cut-{at}-{seed}")));
        File::create(&disk).unwrap().set_len(8 * BLOCK).unwrap();
        let from = "0:0".to_owned();
        run(&PowerCutArguments { log: folder.join("log"), disk, out: out.clone(), from, at, seed }).unwrap();
        let bytes = fs::read(out).unwrap();
        bytes.chunks(4096).map(|block| if block[0] == 0 { '.' } else { char::from(block[0]) }).collect()
    }

    #[test]
    fn what_was_flushed_is_there_and_of_the_rest_any_part_by_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let writes =
            [(0, 16, b'a', 0), (0, 0, 0, FLUSH), (0, 16, b'b', 0), (32, 8, b'f', FUA), (16, 16, b'c', 0)];
        log_of(&folder.path().join("log"), &writes);
        let found: Vec<String> = (0..600).map(|seed| after(folder.path(), 5, seed)).collect();
        for each in &found {
            let blocks: Vec<char> = each.chars().collect();
            assert!(blocks[..2].iter().all(|c| "ab".contains(*c)), "{each}");
            assert!(blocks[2..4].iter().all(|c| ".c".contains(*c)), "{each}");
            assert_eq!(blocks[4..], ['f', '.', '.', '.'], "{each}");
        }
        for possible in ["aa..f...", "bbccf...", "ab..f...", "aa.cf..."] {
            assert!(found.iter().any(|each| each == possible), "{possible} of {found:?}");
        }
        assert_eq!(after(folder.path(), 2, 1), "aa......");
    }

    #[test]
    fn a_discard_leaves_zeros() {
        let folder = tempfile::tempdir().unwrap();
        log_of(&folder.path().join("log"), &[(0, 16, b'a', 0), (8, 8, 0, DISCARD), (0, 0, 0, FLUSH)]);
        assert_eq!(after(folder.path(), 3, 1), "a.......");
    }

    #[test]
    fn a_later_cut_goes_on_where_the_one_before_left_off() {
        let folder = tempfile::tempdir().unwrap();
        let writes = [(0, 8, b'a', 0), (0, 0, 0, FLUSH), (8, 8, b'b', 0), (0, 0, 0, FLUSH), (16, 8, b'c', 0)];
        log_of(&folder.path().join("log"), &writes);
        let mut log = Log::open(&folder.path().join("log"), "0:0").unwrap();
        log.next(5).unwrap();
        log.next(5).unwrap();
        let (disk, out) = (folder.path().join("disk"), folder.path().join("out"));
        // As the cut before left it: the first write is not made again.
        File::create(&disk).unwrap().set_len(8 * BLOCK).unwrap();
        let from = format!("{}:{}", log.at.entry, log.at.byte);
        let log = folder.path().join("log");
        run(&PowerCutArguments { log, disk, out: out.clone(), from, at: 4, seed: 1 }).unwrap();
        let bytes = fs::read(out).unwrap();
        assert_eq!((bytes[0], bytes[4096]), (0, b'b'));
    }

    #[test]
    fn a_log_that_is_none_or_too_short_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, b"short").unwrap();
        assert!(Log::open(&path, "0:0").is_err());
        log_of(&path, &[(0, 0, 0, FLUSH)]);
        assert!(Log::open(&path, "x").is_err());
        let mut log = Log::open(&path, "0:0").unwrap();
        log.next(1).unwrap();
        assert!(log.next(2).is_err());
    }
}
