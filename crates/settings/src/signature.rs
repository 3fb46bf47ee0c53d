//! The marks a file system leaves on a device, as `wipefs` sees them: it knows hundreds, we need not.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::Context;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::tools;
use base::error::AgentError;

struct Signature {
    kind: String,
    uuid: String,
}

/// Fail unless the device is unused: not opened by a mount, array, swap or other holder, and unmarked.
pub fn must_be_empty(device: &Path) -> anyhow::Result<()> {
    let refused = |why: String| Err(AgentError::Refused(format!("{}: {why}", device.display())).into());
    if !is_block_device(device)? {
        return refused("is no block device".into());
    }
    // An exclusive open is the kernel's own answer to "is it in use?"
    match open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => {}
        Err(Errno::BUSY) => return refused("is in use".into()),
        Err(error) => return Err(error).with_context(|| device.display().to_string()),
    }
    // Not to everybody's: InnoDB on a raw device opens it without O_EXCL, and such a device carries no signature.
    match writer(device)? {
        Writer::Found(who) => return refused(format!("is open for writing by process {who}")),
        Writer::Hidden(pid) => {
            return refused(format!("what process {pid} has open cannot be seen: it may be in use"));
        }
        Writer::None => {}
    }
    match signatures(device)?.first() {
        Some(found) => refused(format!("carries {} {}", found.kind, found.uuid)),
        None => Ok(()),
    }
}

/// The process that has a device open for writing.
enum Writer {
    None,
    Found(String),
    /// This process's descriptors cannot be read.
    Hidden(u32),
}

fn writer(device: &Path) -> anyhow::Result<Writer> {
    let number = device.metadata().with_context(|| device.display().to_string())?.rdev();
    let processes = fs::read_dir("/proc").context("/proc")?.flatten();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let folder = process.path();
        let descriptors = match fs::read_dir(folder.join("fd")) {
            Ok(descriptors) => descriptors,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(Writer::Hidden(pid)),
            // It has ended.
            Err(_) => continue,
        };
        for descriptor in descriptors.flatten() {
            // The link leads to the open file itself, even if its name now means another.
            let is_it = fs::metadata(descriptor.path())
                .is_ok_and(|file| file.file_type().is_block_device() && file.rdev() == number);
            let info = folder.join("fdinfo").join(descriptor.file_name());
            if is_it && fs::read_to_string(info).is_ok_and(|text| may_write(&text)) {
                let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
                return Ok(Writer::Found(format!("{pid} {}", name.trim())));
            }
        }
    }
    Ok(Writer::None)
}

/// Whether fdinfo's octal flags are those of O_WRONLY or O_RDWR.
fn may_write(fdinfo: &str) -> bool {
    let flags = fdinfo.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).is_some_and(|flags| flags & 0o3 != 0)
}

/// Wipe the file system `uuid` off the device; a note where there is nothing to wipe.
pub fn wipe(device: &Path, uuid: &str) -> anyhow::Result<Option<&'static str>> {
    if !device.exists() {
        return Ok(Some("it is gone, with our signature on it"));
    }
    let found = if is_block_device(device)? { signatures(device)? } else { vec![] };
    if found.is_empty() {
        return Ok(None);
    }
    // It was empty when this was journaled, but that may be long ago.
    if let Some(other) = found.iter().find(|s| !s.uuid.eq_ignore_ascii_case(uuid)) {
        let text = format!(
            "{}: carries {} {}, which is not ours ({uuid})",
            device.display(),
            other.kind,
            other.uuid
        );
        return Err(AgentError::Refused(text).into());
    }
    wipefs(&["--all", "--quiet"], device)?;
    Ok(None)
}

fn is_block_device(device: &Path) -> anyhow::Result<bool> {
    let metadata = device.metadata().with_context(|| device.display().to_string())?;
    Ok(metadata.file_type().is_block_device())
}

fn signatures(device: &Path) -> anyhow::Result<Vec<Signature>> {
    let text = wipefs(&["--no-act", "--parsable", "--noheadings", "--output", "TYPE,UUID"], device)?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    Ok(lines
        .map(|line| {
            let (kind, uuid) = line.split_once(',').unwrap_or((line, ""));
            Signature { kind: kind.to_owned(), uuid: uuid.to_owned() }
        })
        .collect())
}

fn wipefs(arguments: &[&str], device: &Path) -> anyhow::Result<String> {
    let name = device.to_str().with_context(|| format!("{}: not UTF-8", device.display()))?;
    let output = tools::output("util-linux", "wipefs", &[arguments, &["--", name]].concat())?;
    let problem = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "wipefs {name}: {}", problem.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
