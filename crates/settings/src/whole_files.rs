//! Whole files that make a setting last: written in one piece, and put back or taken away in one piece.
//!
//! Only files of our own (`headrace` is in their name), in the folders where a host's administrator puts such files.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::foreign::Foreign;
use super::journal::sync_folder;
use super::world::fs::{self, File, OpenOptions, OpenOptionsExt};
use super::world::{self, Held};
use base::error::AgentError;

const LONGEST_BYTES: usize = 64 << 10;

/// Folder and ending; `*` is one name.
const PLACES: &[(&str, &str)] = &[
    ("/etc/sysctl.d", ".conf"),
    ("/etc/tmpfiles.d", ".conf"),
    ("/etc/udev/rules.d", ".rules"),
    ("/etc/systemd/system/*.d", ".conf"),
    ("/etc/mysql/*.d", ".cnf"),
    ("/etc/my.cnf.d", ".cnf"),
    ("/etc/tuned/headrace-*", "tuned.conf"),
    ("/etc/tuned/profiles/headrace-*", "tuned.conf"),
];

/// The content now; None where there is no such file.
pub fn read(root: &Path, path: &Path) -> anyhow::Result<Option<String>> {
    let Some(folder) = held(root, path)? else { return Ok(None) };
    folder.read(&name_of(path)).map_err(|error| explained(path, error))
}

/// The folders that must be made for it, the outermost first.
pub fn missing_folders(root: &Path, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut missing: Vec<PathBuf> = Vec::new();
    for folder in path.ancestors().skip(1) {
        if fs::exists(below(root, folder)).with_context(|| folder.display().to_string())? {
            break;
        }
        missing.insert(0, folder.to_owned());
    }
    if missing.len() > 1 {
        let text = format!("{}: this host has no {}", path.display(), missing[0].display());
        return Err(AgentError::Refused(text).into());
    }
    Ok(missing)
}

/// Write it whole: a reader sees the old content or the new one.
pub fn write(root: &Path, path: &Path, content: &str) -> anyhow::Result<()> {
    if content.len() > LONGEST_BYTES || content.contains('\0') {
        return Err(AgentError::Input(format!("{}: too long, or no text", path.display())).into());
    }
    if !is_allowed(path) {
        return Err(not_ours(path));
    }
    for folder in missing_folders(root, path)? {
        let above = folder.parent().unwrap_or(Path::new("/"));
        // Held until the folder is made: its path leads nowhere afterwards.
        let held = world::hold_folder(root, above).map_err(|error| explained(&folder, error))?;
        let above = held.path();
        let place = above.join(name_of(&folder));
        fs::create_dir(&place).with_context(|| folder.display().to_string())?;
        // Whatever the umask: a server reads its options as another user.
        world::open_to_readers(&place).with_context(|| folder.display().to_string())?;
        sync_folder(&above)?;
    }
    let Some(folder) = held(root, path)? else {
        return Err(io::Error::from(ErrorKind::NotFound)).with_context(|| path.display().to_string());
    };
    // What is there now is read once more: a pipe or somebody's file is refused, although it would be replaced.
    folder.read(&name_of(path)).map_err(|error| explained(path, error))?;
    let (target, draft) = (folder.path().join(name_of(path)), folder.path().join(".headrace.part"));
    let written = (|| {
        let mut file = new_file(&draft)?;
        world::dress(&file, &target)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &target)
    })();
    if let Err(error) = written {
        // Half a file under another name must not stay; where it cannot be removed there is none, either.
        let _ = fs::remove_file(&draft);
        return Err(error).with_context(|| path.display().to_string());
    }
    sync_folder(&folder.path())?;
    announce(root, path);
    Ok(())
}

/// A file that nobody has open: what a killed writer left is removed first. So is a link or a pipe that somebody
/// planted where others may write: root would write to what it leads to, or wait for its reader.
fn new_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        // An empty folder is no more than a name; one with content is somebody's.
        Err(error) if error.kind() == ErrorKind::IsADirectory => fs::remove_dir(path)?,
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Fail if the file's content is neither `wrote` nor the original: it was written from outside since.
pub fn check_foreign(root: &Path, path: &Path, original: Option<&str>, wrote: &str) -> anyhow::Result<()> {
    let now = read(root, path)?;
    if now.as_deref() == original || now.as_deref().unwrap_or_default() == wrote {
        return Ok(());
    }
    let text = format!("{}: neither what was written nor the original stands in it", path.display());
    Err(Foreign(text).into())
}

/// Put back the content, or take the file away with the folders that were made for it and are empty.
pub fn restore(root: &Path, path: &Path, content: Option<&str>, made: &[PathBuf]) -> anyhow::Result<()> {
    let is_there = read(root, path)?.as_deref() == content;
    match content {
        Some(text) if !is_there => write(root, path, text)?,
        None if !is_there => {
            let folder = held(root, path)?;
            match folder.map(|folder| fs::remove_file(folder.path().join(name_of(path)))) {
                Some(Err(error)) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| path.display().to_string());
                }
                _ => {}
            }
        }
        _ => {}
    }
    // Also if it existed: its writer or remover may have been killed before this. Else a power cut brings the
    // other one back, and the boot after that applies it.
    let folder = below(root, path.parent().unwrap_or(Path::new("/")));
    if fs::exists(&folder).with_context(|| folder.display().to_string())? {
        sync_folder(&folder)?;
    }
    if content.is_none() && !is_there {
        announce(root, path);
    }
    for folder in made.iter().rev() {
        match fs::remove_dir(below(root, folder)) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {
                return Err(error).with_context(|| folder.display().to_string());
            }
            _ => {}
        }
    }
    Ok(())
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The folder of an allowed path, held so that no link leads elsewhere, now or later; None where there is none.
fn held(root: &Path, path: &Path) -> anyhow::Result<Option<Held>> {
    if !is_allowed(path) {
        return Err(not_ours(path));
    }
    match world::hold_folder(root, path.parent().unwrap_or(Path::new("/"))) {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(explained(path, error)),
    }
}

fn not_ours(path: &Path) -> anyhow::Error {
    AgentError::Refused(format!("{}: not a file that headrace may write", path.display())).into()
}

/// What is no plain file is refused for what it is.
fn explained(path: &Path, error: io::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::PermissionDenied || error.kind() == ErrorKind::IsADirectory {
        return AgentError::Refused(format!("{}: {error}", path.display())).into();
    }
    anyhow::Error::from(error).context(path.display().to_string())
}

fn name_of(path: &Path) -> OsString {
    path.file_name().unwrap_or_default().to_owned()
}

fn is_allowed(path: &Path) -> bool {
    let words = |p: &Path| -> Option<Vec<String>> {
        p.components()
            .map(|part| match part {
                Component::RootDir => Some(String::new()),
                Component::Normal(name) => Some(name.to_str()?.to_owned()),
                _ => None,
            })
            .collect()
    };
    let (Some(folder), Some(name)) =
        (path.parent().and_then(words), path.file_name().and_then(|n| n.to_str()))
    else {
        return false;
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    path.to_str().is_some_and(|text| text.contains("headrace") && text.chars().all(|c| plain(c) || c == '/'))
        && PLACES.iter().any(|(place, ending)| {
            let pattern = words(Path::new(place)).unwrap_or_default();
            let ours = pattern.iter().any(|part| part.starts_with("headrace"));
            pattern.len() == folder.len()
                && pattern.iter().zip(&folder).all(|(p, f)| fits(p, f))
                && if ours { name == *ending } else { name.contains("headrace") && name.ends_with(ending) }
        })
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            name.len() > start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        None => pattern == name,
    }
}

/// Those who read such files only when told. Not there, or not of use: then nobody has read them, either.
fn announce(root: &Path, path: &Path) {
    if root != Path::new("/") {
        return;
    }
    let command: &[&str] = if path.starts_with("/etc/systemd") {
        &["systemctl", "daemon-reload"]
    } else if path.starts_with("/etc/udev") {
        &["udevadm", "control", "--reload"]
    } else {
        return;
    };
    let _ = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_our_own_files_in_known_places() {
        for good in [
            "/etc/sysctl.d/90-headrace.conf",
            "/etc/udev/rules.d/90-headrace.rules",
            "/etc/systemd/system/mariadb.service.d/headrace.conf",
            "/etc/mysql/mariadb.conf.d/zz-headrace.cnf",
            "/etc/my.cnf.d/zz-headrace.cnf",
            "/etc/tuned/headrace-mysql/tuned.conf",
            "/etc/tuned/profiles/headrace-mysql/tuned.conf",
        ] {
            assert!(is_allowed(Path::new(good)), "{good}");
        }
        for bad in [
            "/etc/sysctl.d/10-network.conf",
            "/etc/sysctl.d/headrace.sh",
            "/etc/sysctl.d/../cron.d/headrace.conf",
            "/etc/cron.d/headrace.conf",
            "/etc/headrace.conf",
            "/etc/systemd/system/headrace.service",
            "/etc/systemd/system/.d/headrace.conf",
            "/etc/mysql/my.cnf",
            "/etc/mysql/headrace.d/x.cnf",
            "/etc/tuned/headrace-mysql/script.sh",
            "etc/sysctl.d/headrace.conf",
            "/etc/sysctl.d/head race-headrace.conf",
        ] {
            assert!(!is_allowed(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        fs::create_dir_all(root.path().join("elsewhere")).unwrap();
        fs::create_dir(&etc).unwrap();
        std::os::unix::fs::symlink(root.path().join("elsewhere"), etc.join("sysctl.d")).unwrap();
        let path = Path::new("/etc/sysctl.d/90-headrace.conf");
        assert!(write(root.path(), path, "x").is_err());
        assert_eq!(fs::read_dir(root.path().join("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn what_lies_under_the_drafts_name_is_replaced_and_never_written_to() {
        let root = tempfile::tempdir().unwrap();
        let (folder, victim) = (root.path().join("etc/sysctl.d"), root.path().join("victim"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(&victim, "of the system").unwrap();
        let (path, draft) = (Path::new("/etc/sysctl.d/90-headrace.conf"), folder.join(".headrace.part"));
        let plants: [&dyn Fn(); 4] = [
            &|| fs::write(&draft, "what a killed writer left, and longer").unwrap(),
            &|| std::os::unix::fs::symlink(&victim, &draft).unwrap(),
            &|| std::os::unix::fs::symlink("nowhere", &draft).unwrap(),
            &|| fs::hard_link(&victim, &draft).unwrap(),
        ];
        for (number, plant) in plants.iter().enumerate() {
            plant();
            write(root.path(), path, &format!("{number}\n")).unwrap();
            assert_eq!(read(root.path(), path).unwrap(), Some(format!("{number}\n")));
            assert_eq!(fs::read_to_string(&victim).unwrap(), "of the system");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "plant {number}");
            assert!(!folder.join("nowhere").exists());
        }
    }

    #[test]
    fn a_folder_that_was_made_goes_with_the_file_and_one_that_was_used_since_stays() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/systemd/system")).unwrap();
        let path = Path::new("/etc/systemd/system/mariadb.service.d/headrace.conf");
        for used in [false, true] {
            let made = missing_folders(root.path(), path).unwrap();
            write(root.path(), path, "[Service]\n").unwrap();
            assert_eq!(read(root.path(), path).unwrap().as_deref(), Some("[Service]\n"));
            let folder = root.path().join("etc/systemd/system/mariadb.service.d");
            if used {
                fs::write(folder.join("theirs.conf"), "").unwrap();
            }
            restore(root.path(), path, None, &made).unwrap();
            assert_eq!(folder.exists(), used);
        }
        assert!(missing_folders(root.path(), Path::new("/etc/mysql/x.d/headrace.cnf")).is_err());
    }
}
