//! Options of a mounted file system, as far as a remount can change them.

use std::ffi::CString;
use std::path::Path;

use anyhow::Context;
use rustix::mount::MountFlags;

use super::foreign::Foreign;
use super::journal::Undo;
use super::mounts::is_mounted;
use super::world::{self, fs};
use base::error::AgentError;
use host::mountinfo::{self, Mount};

/// MS_NOSYMFOLLOW, since Linux 5.10.
const NOSYMFOLLOW: u32 = 1 << 8;
const LAZYTIME: u32 = 1 << 25;

/// The flags of a mount that `remount` keeps. One that a later kernel prints, and we do not know, would be dropped.
const OWN: &[&str] = &[
    "rw",
    "ro",
    "nosuid",
    "nodev",
    "noexec",
    "nodiratime",
    "nosymfollow",
    "idmapped",
    "noatime",
    "relatime",
    "strictatime",
];

/// The mount's own, not the file system's: one of them holds.
const ACCESS_TIMES: &[&str] = &["noatime", "relatime", "strictatime"];

/// The mount's options now, of those that a remount can change, as `remount` takes them.
pub fn read(path: &Path) -> anyhow::Result<String> {
    let mount = find(path)?;
    let mut options = vec![access_time(&mount).to_owned()];
    options.push(if has(&mount, "lazytime") { "lazytime" } else { "nolazytime" }.to_owned());
    options.push(if has(&mount, "sync") { "sync" } else { "async" }.to_owned());
    if matches!(mount.kind.as_str(), "ext4" | "ext3" | "btrfs") {
        // As it is written: btrfs has two ways to discard.
        let discard = mount.super_options.iter().find(|o| kind(o) == "discard");
        options.push(discard.cloned().unwrap_or_else(|| "nodiscard".to_owned()));
        let commit = mount.super_options.iter().find(|o| o.starts_with("commit="));
        // The kernel does not print its default: 5 s (ext4), 30 s (btrfs).
        let default = if mount.kind == "btrfs" { "commit=30" } else { "commit=5" };
        options.push(commit.cloned().unwrap_or_else(|| default.to_owned()));
    }
    Ok(options.join(","))
}

/// How to go back from `wanted`: the same kinds of options, with their values of now.
pub fn undo(path: &Path, wanted: &str, before: &str) -> Undo {
    let kinds: Vec<&str> = wanted.split(',').map(kind).collect();
    let options: Vec<&str> = before.split(',').filter(|o| kinds.contains(&kind(o))).collect();
    Undo::Remount { path: path.to_owned(), options: options.join(",") }
}

/// Whether all the wanted options hold.
pub fn holds(wanted: &str, now: &str) -> bool {
    let is = |option: &str, seen: &str| option == seen || option == "discard" && seen == "discard=async";
    wanted.split(',').all(|option| now.split(',').any(|seen| is(option, seen)))
}

/// Fail if the mount was given an option from outside since: neither one of `wrote` nor one of `original`.
pub fn check_foreign(path: &Path, wrote: &str, original: &str) -> anyhow::Result<()> {
    let now = read(path)?;
    for option in now.split(',') {
        let of_kind = |options: &str| options.split(',').find(|o| kind(o) == kind(option)).map(str::to_owned);
        let (Some(ours), Some(before)) = (of_kind(wrote), of_kind(original)) else { continue };
        if option != ours && option != before {
            let text = format!(
                "it is mounted with {option}: neither what was set ({ours}) nor the original ({before})"
            );
            return Err(Foreign(text).into());
        }
    }
    Ok(())
}

/// Refuse to keep options of which an original is back: they were undone, which could not be noted on a full disk.
pub fn must_not_be_restored(path: &Path, wrote: &str, original: &str) -> anyhow::Result<()> {
    if !is_mounted(path)? {
        return Ok(());
    }
    let now = read(path)?;
    let is_back = |option: &&str| !holds(option, wrote) && holds(option, &now);
    match original.split(',').find(is_back) {
        Some(option) => {
            let text = format!("{} is mounted with {option} again: what was set was undone", path.display());
            Err(AgentError::Refused(text).into())
        }
        None => Ok(()),
    }
}

/// Whether a remount can give this mount these options.
pub fn check(path: &Path, wanted: &str) -> anyhow::Result<()> {
    let mount = find(path)?;
    let alike = must_be_as_writable(path, &mount);
    if alike.is_err() && wanted.split(',').any(is_of_the_whole) && !world::can_reconfigure(path)? {
        return alike;
    }
    if let Some(unknown) = mount.options.iter().find(|option| !OWN.contains(&option.as_str())) {
        let text = format!("{}: a remount might not keep its option {unknown}", path.display());
        return Err(AgentError::Refused(text).into());
    }
    let now = read(path)?;
    let known: Vec<&str> = now.split(',').map(kind).collect();
    for option in wanted.split(',') {
        let plain = option.chars().all(|c| c.is_ascii_alphanumeric() || c == '=');
        let value = option.strip_prefix("commit=");
        let bad_value = value.is_some_and(|v| !v.parse::<u32>().is_ok_and(|s| (1..=300).contains(&s)));
        if !plain || bad_value || kind(option).is_empty() || !known.contains(&kind(option)) {
            let text = format!(
                "{}: a remount cannot make it {option}; it takes effect when the file system is mounted again",
                path.display()
            );
            return Err(AgentError::Refused(text).into());
        }
    }
    Ok(())
}

/// Remount with these options, everything else as it is.
pub fn remount(path: &Path, options: &str) -> anyhow::Result<()> {
    let mount = find(path)?;
    let place = || format!("{}: remount with {options}", path.display());
    let mut own = own_flags(&mount);
    if let Some(wanted) = options.split(',').find(|o| ACCESS_TIMES.contains(o)) {
        own = without_access_times(own) | access_flag(wanted);
        // MS_BIND: only this mount's flags, nothing of the file system itself.
        world::remount(path, own | MountFlags::BIND, c"").with_context(place)?;
    }
    let rest: Vec<&str> = options.split(',').filter(|o| is_of_the_whole(o)).collect();
    if rest.is_empty() {
        return Ok(());
    }
    if world::can_reconfigure(path).with_context(place)? {
        return world::reconfigure(path, &whole_options(&mount, &rest)).with_context(place);
    }
    remount_both(path, &mount, own, &rest).with_context(place)
}

/// Whether it is an option of the file system, not of this place.
fn is_of_the_whole(option: &str) -> bool {
    !ACCESS_TIMES.contains(&option)
}

fn has(mount: &Mount, flag: &str) -> bool {
    mount.super_options.iter().any(|option| option == flag)
}

/// The options asked for, plus the file system's present flags: some file systems drop a flag that is not named.
fn whole_options(mount: &Mount, asked: &[&str]) -> Vec<String> {
    let is_asked = |flag: &str| asked.iter().any(|option| kind(option) == flag);
    let stay = ["ro", "lazytime", "sync"].into_iter().filter(|flag| has(mount, flag) && !is_asked(flag));
    stay.chain(asked.iter().copied()).map(str::to_owned).collect()
}

/// For kernels that change both or neither.
fn remount_both(path: &Path, mount: &Mount, own: MountFlags, asked: &[&str]) -> anyhow::Result<()> {
    // These two are flags of the file system: what was asked for, or what it has.
    let is_on = |flag: &str| {
        let option = asked.iter().rev().find(|option| kind(option) == flag);
        option.map_or_else(|| has(mount, flag), |option| *option == flag)
    };
    let mut flags = own;
    flags.set(MountFlags::from_bits_retain(LAZYTIME), is_on("lazytime"));
    flags.set(MountFlags::SYNCHRONOUS, is_on("sync"));
    must_be_as_writable(path, mount)?;
    let data: Vec<&str> =
        asked.iter().copied().filter(|option| !["lazytime", "sync"].contains(&kind(option))).collect();
    Ok(world::remount(path, flags, &CString::new(data.join(","))?)?)
}

/// Refuse what an old kernel cannot do: a kill between two remounts would leave a read-only place writable.
fn must_be_as_writable(path: &Path, mount: &Mount) -> anyhow::Result<()> {
    let is_read_only = mount.options.iter().any(|option| option == "ro");
    if is_read_only == has(mount, "ro") {
        return Ok(());
    }
    let what = if is_read_only { "read-only" } else { "writable" };
    let text = format!(
        "{}: it is {what}, and its file system is not: before Linux 5.2 a remount makes both the same",
        path.display()
    );
    Err(AgentError::Refused(text).into())
}

fn find(path: &Path) -> anyhow::Result<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    // The last one of a path is what lies on top.
    mountinfo::parse(&text)
        .into_iter()
        .rev()
        .find(|m| Path::new(&m.mount_point) == path)
        .ok_or_else(|| AgentError::Refused(format!("{}: nothing is mounted there", path.display())).into())
}

/// Options of one kind exclude each other.
pub fn kind(option: &str) -> &str {
    match option {
        "noatime" | "relatime" | "strictatime" => "atime",
        "lazytime" | "nolazytime" => "lazytime",
        "sync" | "async" => "sync",
        "discard" | "discard=async" | "discard=sync" | "nodiscard" => "discard",
        _ if option.starts_with("commit=") => "commit",
        _ => "",
    }
}

fn access_time(mount: &Mount) -> &'static str {
    let has = |name: &str| mount.options.iter().any(|o| o == name);
    if has("noatime") {
        "noatime"
    } else if has("relatime") {
        "relatime"
    } else {
        "strictatime"
    }
}

fn access_flag(option: &str) -> MountFlags {
    match option {
        "noatime" => MountFlags::NOATIME,
        "relatime" => MountFlags::RELATIME,
        _ => MountFlags::STRICTATIME,
    }
}

fn without_access_times(flags: MountFlags) -> MountFlags {
    flags - (MountFlags::NOATIME | MountFlags::RELATIME | MountFlags::STRICTATIME)
}

/// A remount sets all of them: what is not named would be taken away.
fn own_flags(mount: &Mount) -> MountFlags {
    let mut flags = access_flag(access_time(mount));
    for option in &mount.options {
        flags |= match option.as_str() {
            "ro" => MountFlags::RDONLY,
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "nodiratime" => MountFlags::NODIRATIME,
            "nosymfollow" => MountFlags::from_bits_retain(NOSYMFOLLOW),
            _ => continue,
        };
    }
    if mount.super_options.iter().any(|o| o == "dirsync") {
        flags |= MountFlags::DIRSYNC;
    }
    flags
}
