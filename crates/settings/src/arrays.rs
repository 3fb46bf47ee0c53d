//! md arrays and mapped devices (dm), found by what makes them ours: after a reboot they have other numbers.

use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::io::Errno;

use super::busy::put;
use super::tools;

/// How long to retry a busy array, and to await its removal by the kernel.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Where version 1.2 of md's superblock is on a member, and what it begins with: mdp_superblock_1 of md_p.h.
const SUPERBLOCK_OFFSET: u64 = 4096;
const SUPERBLOCK_MAGIC: u32 = 0xa92b_4efc;
const SUPERBLOCK_VERSION: u32 = 1;

pub type Uuid = [u8; 16];

/// A UUID of 32 hexadecimal digits; between them `-`, or the `:` of mdadm.
pub fn uuid(text: &str) -> Option<Uuid> {
    let mut bytes = [0; 16];
    let mut digits = text.bytes().filter(|byte| !b"-:".contains(byte));
    for byte in &mut bytes {
        let mut digit = || char::from(digits.next()?).to_digit(16);
        *byte = u8::try_from(digit()? * 16 + digit()?).ok()?;
    }
    digits.next().is_none().then_some(bytes)
}

/// `md0`, `md127`: a name that the kernel itself gives.
pub fn is_array_name(name: &str) -> bool {
    is_numbered(name, "md")
}

/// A name of ours in the device mapper: `headrace` and characters that no program reads as an option or a pattern.
pub fn is_mapped_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.starts_with("headrace") && name.len() < 128 && name.chars().all(plain)
}

fn is_numbered(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind).is_some_and(|number| !number.is_empty() && number.parse::<u32>().is_ok())
}

/// Stop the array whose members carry this UUID, whatever it is called by now.
///
/// An empty array of that name is left from a killed mdadm.
pub fn stop(root: &Path, own: &str, name: &str) -> anyhow::Result<Option<String>> {
    let own = uuid(own).context("not a UUID")?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    let mut note = None;
    loop {
        let arrays = arrays_of(root, &own, name)?;
        let Some(array) = arrays.first() else { return Ok(note) };
        let called = array.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if Instant::now() > deadline {
            // An empty array holds nothing; opening its name keeps it there.
            anyhow::ensure!(members(array).is_empty(), "{called}: the kernel has not stopped it");
            return Ok(note);
        }
        match put(&array.join("md/array_state"), "clear") {
            Err(error) if !is_gone(&error) => return Err(error),
            _ => {}
        }
        if called != name {
            note = Some(format!("it was {called} by now"));
        }
        if !arrays_of(root, &own, name)?.is_empty() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The folders of our arrays in /sys/block.
fn arrays_of(root: &Path, own: &Uuid, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let folder = root.join("sys/block");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())?.flatten() {
        let called = entry.file_name().to_string_lossy().into_owned();
        let array = entry.path();
        if !called.starts_with("md") || !array.join("md").is_dir() {
            continue;
        }
        let members = members(&array);
        let is_shell = members.is_empty() && called == name && is_unused(&array);
        if is_shell || members.iter().any(|member| carries(root, member, own)) {
            found.push(array);
        }
    }
    Ok(found)
}

/// The kernel's names of an array's members, running or not.
fn members(array: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(array.join("md")) else { return vec![] };
    let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_prefix("dev-")?.to_owned());
    entries.flatten().filter_map(name).collect()
}

fn is_unused(array: &Path) -> bool {
    let state = fs::read_to_string(array.join("md/array_state")).unwrap_or_default();
    matches!(state.trim(), "clear" | "inactive")
}

/// Whether the superblock on a member has our UUID. What cannot be read is not known to be ours.
fn carries(root: &Path, member: &str, own: &Uuid) -> bool {
    let mut head = [0; 32];
    // sysfs has no `/` in names.
    let path = root.join("dev").join(member.replace('!', "/"));
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut head, SUPERBLOCK_OFFSET));
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    read.is_ok() && word(0) == SUPERBLOCK_MAGIC && word(4) == SUPERBLOCK_VERSION && head[16..] == own[..]
}

fn is_gone(error: &anyhow::Error) -> bool {
    let gone =
        |e: &Error| e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(Errno::NODEV.raw_os_error());
    error.downcast_ref::<Error>().is_some_and(gone)
}

/// Take a mapped device away, whatever its number is by now.
pub fn unmap(root: &Path, name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(is_mapped_name(name), "{name}: not a name of ours");
    if !is_mapped(root, name)? {
        return Ok(());
    }
    let output = tools::output("dmsetup", "dmsetup", &["remove", "--retry", "--", name])?;
    let problem = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success() || !is_mapped(root, name)?, "{name}: {}", problem.trim());
    remove_nodes(root, name);
    Ok(())
}

/// Where no udev runs LVM makes `/dev/mapper/GROUP-VOLUME` and `/dev/GROUP/VOLUME` itself, and nobody else takes
/// them away.
fn remove_nodes(root: &Path, name: &str) {
    let folder = root.join("dev");
    // Ignore errors: the device is gone, so a remaining node is dead.
    let _ = fs::remove_file(folder.join("mapper").join(name));
    let Some((group, volume)) = name.rsplit_once('-') else { return };
    let link = folder.join(group).join(volume);
    if link.is_symlink() && !link.exists() {
        let _ = fs::remove_file(link);
        let _ = fs::remove_dir(folder.join(group));
    }
}

/// Whether the device mapper has a device of this name.
pub fn is_mapped(root: &Path, name: &str) -> anyhow::Result<bool> {
    let folder = root.join("sys/block");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    Ok(entries.flatten().any(|entry| {
        let text = fs::read_to_string(entry.path().join("dm/name")).unwrap_or_default();
        is_numbered(&entry.file_name().to_string_lossy(), "dm-") && text.trim() == name
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "00112233-4455-6677-8899-aabbccddeeff";

    fn host() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/block")).unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        root
    }

    fn superblock(set: &Uuid) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes.extend(SUPERBLOCK_MAGIC.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(set);
        bytes.resize(8192, 0);
        bytes
    }

    fn array(root: &Path, name: &str, state: &str, members: &[(&str, &[u8])]) {
        let folder = root.join("sys/block").join(name).join("md");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("array_state"), state).unwrap();
        for (member, content) in members {
            fs::create_dir(folder.join(format!("dev-{member}"))).unwrap();
            let device = root.join("dev").join(member.replace('!', "/"));
            fs::create_dir_all(device.parent().unwrap()).unwrap();
            fs::write(device, content).unwrap();
        }
    }

    /// The kernel's part: an array that is cleared goes away.
    fn kernel(root: &Path) -> impl FnOnce() -> Vec<String> + use<> {
        let block = root.join("sys/block");
        move || {
            let mut gone = Vec::new();
            for _ in 0..100 {
                for entry in fs::read_dir(&block).unwrap().flatten() {
                    let state = fs::read_to_string(entry.path().join("md/array_state")).unwrap_or_default();
                    if state.starts_with("clear") {
                        let _ = fs::remove_dir_all(entry.path());
                        gone.push(entry.file_name().to_string_lossy().into_owned());
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            gone
        }
    }

    #[test]
    fn uuids_as_they_are_written() {
        let bytes = uuid(OURS).unwrap();
        assert_eq!(bytes[..3], [0, 0x11, 0x22]);
        assert_eq!(uuid("00112233:44556677:8899aabb:ccddeeff"), Some(bytes));
        for wrong in
            ["", "00", "00112233-4455-6677-8899-aabbccddeeff0", "zz112233-4455-6677-8899-aabbccddeeff"]
        {
            assert_eq!(uuid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_array_is_found_by_its_members_whatever_it_is_called() {
        let root = host();
        let (ours, theirs) = (superblock(&uuid(OURS).unwrap()), superblock(&[7; 16]));
        array(root.path(), "md127", "active", &[("vdb", &ours), ("mapper!x", &ours)]);
        array(root.path(), "md0", "active", &[("vdc", &theirs)]);
        array(root.path(), "md1", "inactive", &[("vdd", b"short")]);
        let kernel = std::thread::spawn(kernel(root.path()));
        assert_eq!(stop(root.path(), OURS, "md0").unwrap().unwrap(), "it was md127 by now");
        assert_eq!(kernel.join().unwrap(), ["md127"]);
        let state = |name: &str| root.path().join("sys/block").join(name).join("md/array_state");
        assert_eq!(fs::read_to_string(state("md0")).unwrap(), "active");
        assert_eq!(fs::read_to_string(state("md1")).unwrap(), "inactive");
        assert_eq!(stop(root.path(), OURS, "md0").unwrap(), None);
    }

    #[test]
    fn what_was_only_begun_is_found_by_its_name() {
        let root = host();
        array(root.path(), "md0", "inactive", &[]);
        array(root.path(), "md5", "inactive", &[]);
        let kernel = std::thread::spawn(kernel(root.path()));
        assert_eq!(stop(root.path(), OURS, "md0").unwrap(), None);
        assert_eq!(kernel.join().unwrap(), ["md0"]);
        assert!(root.path().join("sys/block/md5").exists());
    }

    #[test]
    fn an_array_that_does_not_stop_is_an_error() {
        let root = host();
        array(root.path(), "md3", "active", &[("vdb", &superblock(&uuid(OURS).unwrap()))]);
        let error = stop(root.path(), OURS, "md0").unwrap_err();
        assert!(error.to_string().contains("md3: the kernel has not stopped it"), "{error:#}");
    }

    #[test]
    fn names_of_ours_only() {
        for (name, good) in
            [("md0", true), ("md127", true), ("md", false), ("md_x", false), ("../md0", false)]
        {
            assert_eq!(is_array_name(name), good, "{name}");
        }
        for (name, good) in [("headrace_0a-volume", true), ("vg-root", false), ("headrace x", false)] {
            assert_eq!(is_mapped_name(name), good, "{name}");
        }
    }

    #[test]
    fn a_mapped_device_is_known_by_its_name() {
        let root = host();
        let folder = root.path().join("sys/block/dm-4/dm");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("name"), "headrace-1\n").unwrap();
        assert!(is_mapped(root.path(), "headrace-1").unwrap());
        assert!(!is_mapped(root.path(), "headrace-2").unwrap());
        unmap(root.path(), "headrace-2").unwrap();
        assert!(unmap(root.path(), "vg-root").is_err());
    }
}
