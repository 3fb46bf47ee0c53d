//! The marks a file system leaves on a device, as `wipefs` sees them: it knows hundreds, we need not.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use base::error::AgentError;

struct Signature {
    kind: String,
    uuid: String,
}

/// Fail unless the device is of no use to anybody: opened by no mount, array, swap or other holder, and unmarked.
pub fn must_be_empty(device: &Path) -> anyhow::Result<()> {
    let refused = |why: String| Err(AgentError::Refused(format!("{}: {why}", device.display())).into());
    if !is_block_device(device)? {
        return refused("is no block device".into());
    }
    // An exclusive open is the kernel's own answer to "does anybody use it?"
    match open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => {}
        Err(Errno::BUSY) => return refused("is in use".into()),
        Err(error) => return Err(error).with_context(|| device.display().to_string()),
    }
    match signatures(device)?.first() {
        Some(found) => refused(format!("carries {} {}", found.kind, found.uuid)),
        None => Ok(()),
    }
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
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("wipefs")
        .args(arguments)
        .arg("--")
        .arg(device)
        // Debian keeps it where only root's own shell looks.
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .output()
        .context("wipefs (package util-linux)")?;
    let problem = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "wipefs {}: {}", device.display(), problem.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
