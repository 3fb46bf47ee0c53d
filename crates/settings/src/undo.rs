//! Recording what a caller is about to do, and undoing it: newest first, but what may hang last; each step is safe to repeat.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::deadline::Deadline;
use super::foreign::Foreign;
use super::journal::{Journal, Open, Undo};
use super::kernel_files::KernelFiles;
use super::keys::keys;
use super::mounts::{self, is_mounted};
use super::owner::{self, belongs_to};
use super::remove::{self, real_parent, scratch_of};
use super::restart::Pending;
use super::{arrays, loops, processes, remounts, signature, variables, whole_files, zram};
use base::error::AgentError;
use mysql::ServerArguments;

/// What became of one entry.
#[derive(Serialize)]
pub struct Undone {
    kind: &'static str,
    what: String,
    pub done: bool,
    pub error: Option<String>,
}

impl std::fmt::Display for Undone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.error {
            Some(error) => write!(f, "{}: not undone: {error}", self.what),
            None => write!(f, "{}: undone", self.what),
        }
    }
}

/// What happens to an entry whose value another program has set since. The value is never overwritten.
#[derive(Clone, Copy, PartialEq)]
pub enum Foreigners {
    /// The entry stays open, which is a failure.
    Keep,
    /// The entry is closed.
    Accept,
}

/// Who restarts a server whose files are back.
#[derive(Clone, Copy, PartialEq)]
pub enum Restarts {
    /// Not this call: entries with commands are the watcher's.
    Leave,
    /// This call, with the commands of the entry.
    CarryOut,
}

/// The folder below which `remove` is allowed; a request of its own, because it is not a change to undo.
#[derive(Deserialize)]
struct ScratchFolder {
    path: PathBuf,
}

/// Journal undo entries, each checked: undoing must bring back exactly what is there now.
pub fn record(journal: &mut Journal, owner: &str, requests: Vec<Value>) -> anyhow::Result<()> {
    let mut scratch = Vec::new();
    let mut entries: Vec<Undo> = Vec::new();
    for request in requests {
        let bad = |e: serde_json::Error| AgentError::Input(format!("{request}: {e}"));
        if request["kind"] == "scratch" {
            scratch.push(remove::scratch(&ScratchFolder::deserialize(&request).map_err(bad)?.path)?);
            continue;
        }
        let undo = checked(Undo::deserialize(&request).map_err(bad)?)?;
        if let Undo::Remove { path } = &undo {
            scratch_of(path, &[journal.content.scratch.as_slice(), &scratch].concat())?;
        }
        // Journaled before: then what is there now may be what the caller made.
        let known = journal.content.open.iter().any(|o| o.undo == undo) || entries.contains(&undo);
        if !known {
            must_be_absent(&undo)?;
        }
        entries.push(undo);
    }
    journal.add(owner, scratch, entries)?;
    Ok(())
}

/// The entry with real paths, as the kernel will show them.
fn checked(undo: Undo) -> anyhow::Result<Undo> {
    Ok(match undo {
        Undo::Mount { path } => Undo::Mount { path: real_parent(&path)? },
        Undo::Loop { backing } => Undo::Loop { backing: real_parent(&backing)? },
        Undo::Remove { path } => Undo::Remove { path: real_parent(&path)? },
        Undo::Wipe { device, uuid } if device.starts_with("/dev") && !uuid.is_empty() => {
            Undo::Wipe { device, uuid }
        }
        Undo::Zram { device } if zram::number(&device).is_some() => Undo::Zram { device },
        Undo::Array { uuid, name } if arrays::uuid(&uuid).is_some() && arrays::is_array_name(&name) => {
            Undo::Array { uuid, name }
        }
        Undo::Mapped { name } if arrays::is_mapped_name(&name) => Undo::Mapped { name },
        Undo::Process { mark } => Undo::Process { mark: owner::parse(&mark).map_err(AgentError::Input)? },
        other => return Err(AgentError::Input(format!("cannot be recorded: {other:?}")).into()),
    })
}

/// What exists already was not made by this change, and undoing would remove it.
fn must_be_absent(undo: &Undo) -> anyhow::Result<()> {
    let present = match undo {
        Undo::Mount { path } if is_mounted(path)? => format!("{}: is mounted already", path.display()),
        Undo::Loop { backing } if !loops::of(backing)?.is_empty() => {
            format!("{}: has a loop device already", backing.display())
        }
        Undo::Remove { path } if path.symlink_metadata().is_ok() => {
            format!("{}: exists already", path.display())
        }
        Undo::Zram { device } if Path::new("/sys/block").join(device).exists() => {
            format!("{device}: exists already")
        }
        Undo::Array { name, .. } if Path::new("/sys/block").join(name).exists() => {
            format!("{name}: exists already")
        }
        Undo::Mapped { name } if arrays::is_mapped(Path::new("/"), name)? => {
            format!("{name}: exists already")
        }
        Undo::Wipe { device, .. } => return signature::must_be_empty(device),
        _ => return Ok(()),
    };
    Err(AgentError::Refused(present).into())
}

/// Undo the open entries of `whose` (everybody's without), newest first; one that fails stays open.
pub fn rollback(
    journal: &mut Journal,
    whose: Option<&str>,
    kernel: &KernelFiles,
    foreign: Foreigners,
) -> anyhow::Result<Vec<Undone>> {
    let is_chosen = |entry: &Open| whose.is_none_or(|owner| belongs_to(&entry.owner, owner));
    let mut undone = rollback_those(journal, kernel, foreign, Restarts::Leave, is_chosen)?;
    for line in &journal.content.damaged {
        let what = format!("line {line} of the journal");
        let error = Some("damaged: what it held was not undone".to_owned());
        undone.push(Undone { kind: "damaged", what, done: false, error });
    }
    Ok(undone)
}

/// As `rollback`, of the entries that are chosen.
pub fn rollback_those(
    journal: &mut Journal,
    kernel: &KernelFiles,
    foreign: Foreigners,
    restarts: Restarts,
    is_chosen: impl Fn(&Open) -> bool,
) -> anyhow::Result<Vec<Undone>> {
    let mut entries: Vec<Open> = journal.content.open.iter().filter(|e| is_chosen(e)).cloned().collect();
    entries.reverse();
    entries.sort_by_key(|entry| turn(&entry.undo));
    let holder = journal.holder_pid()?;
    // What is undone in part can no longer be confirmed. Where the disk is full this cannot be noted.
    let pending: Vec<u64> = entries.iter().filter(|e| e.deadline.is_some()).map(|e| e.id).collect();
    if let Some(first) = entries.iter().find(|entry| entry.deadline.as_ref().is_some_and(|d| !d.has_passed()))
    {
        let _ = journal.set_deadline(&first.owner, pending, &Deadline::passed());
    }
    let mut undone = Vec::new();
    // Never an older one before a newer one of the same key, nor its mark: the newer one's undo, repeated, would bring
    // back what the older one had made.
    let mut held: Vec<String> = Vec::new();
    let mut unmarked = Vec::new();
    // A server that hangs is waited for once, because everybody else waits for the journal meanwhile.
    let mut silent: Vec<ServerArguments> = Vec::new();
    for entry in entries {
        let (subject, keys) = (subject(&entry.undo), keys(&entry.undo));
        let result = match ended_with_its_boot(&entry) {
            _ if keys.iter().any(|key| held.contains(key)) => {
                Err(anyhow::anyhow!("a later change of the same setting must be undone first"))
            }
            Ok(true) => Ok(Some("the host was booted since".to_owned())),
            Ok(false) if login(&entry.undo).is_some_and(|login| silent.contains(login)) => {
                Err(anyhow::anyhow!("its server did not answer for the change before"))
            }
            Ok(false) => perform(&entry, journal, kernel, holder, restarts),
            Err(error) => Err(error),
        };
        if let (Err(error), Some(login)) = (&result, login(&entry.undo))
            && is_silence(error)
        {
            silent.push(login.clone());
        }
        let (what, error) = match result {
            Ok(None) => (subject, None),
            Ok(Some(note)) => (format!("{subject} ({note})"), None),
            Err(error) if foreign == Foreigners::Accept && error.is::<Foreign>() => {
                (format!("{subject} (given up: {error})"), None)
            }
            Err(error) => (subject, Some(format!("{error:#}"))),
        };
        if error.is_some() {
            held.extend(keys);
        } else if !unmarked.is_empty() || journal.done(&entry.owner, entry.id).is_err() {
            unmarked.push((undone.len(), entry.owner, entry.id));
        }
        undone.push(Undone { kind: kind(&entry.undo), what, done: error.is_none(), error });
    }
    // On a full disk there is room for the marks once a volume's file is gone.
    let mut failure = None;
    for (index, owner, id) in unmarked {
        if failure.is_none() {
            failure = journal.done(&owner, id).err().map(|error| format!("{error:#}"));
        }
        if let Some(error) = &failure {
            undone[index].done = false;
            undone[index].error = Some(format!("undone, but this cannot be noted: {error}"));
        }
    }
    journal.tidy()?;
    Ok(undone)
}

/// The server that an entry is about.
fn login(undo: &Undo) -> Option<&ServerArguments> {
    match undo {
        Undo::Variable { login, .. } | Undo::Restart { login, .. } => Some(login),
        _ => None,
    }
}

/// Whether a server took the connection and said nothing, as one does that is stopped or swaps.
fn is_silence(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(mysql::Error::Timeout(_))))
}

/// Entries of a lower turn are undone before all of a higher one.
fn turn(undo: &Undo) -> u8 {
    match undo {
        // They keep mounts busy, and a `mount` still under way would win over us.
        Undo::Process { .. } => 0,
        Undo::Setting { .. } | Undo::Variable { .. } | Undo::File { .. } | Undo::Restart { .. } => 1,
        // On a dead disk the kernel may never return from these. By then the host has its settings back.
        _ => 2,
    }
}

fn kind(undo: &Undo) -> &'static str {
    match undo {
        Undo::Mount { .. } => "mount",
        Undo::Loop { .. } => "loop",
        Undo::Zram { .. } => "zram",
        Undo::Array { .. } => "array",
        Undo::Mapped { .. } => "mapped",
        Undo::Process { .. } => "process",
        Undo::Remove { .. } => "remove",
        Undo::Wipe { .. } => "wipe",
        Undo::Setting { .. } => "setting",
        Undo::Variable { .. } => "variable",
        Undo::File { .. } => "file",
        Undo::Remount { .. } => "remount",
        Undo::Restart { .. } => "restart",
    }
}

/// What the undo will do, for people.
pub fn subject(undo: &Undo) -> String {
    match undo {
        Undo::Mount { path } => format!("unmount {}", path.display()),
        Undo::Loop { backing } => format!("detach {}", backing.display()),
        Undo::Zram { device } => format!("remove {device}"),
        Undo::Array { name, .. } => format!("stop {name}"),
        Undo::Mapped { name } => format!("remove {name}"),
        Undo::Process { mark } => format!("end the processes of {mark}"),
        Undo::Remove { path } => format!("remove {}", path.display()),
        Undo::Wipe { device, .. } => format!("wipe {}", device.display()),
        Undo::Setting { restore } => {
            restore.first().map_or(String::new(), |first| format!("{} = {}", first.path, first.value))
        }
        Undo::Variable { restore, .. } => {
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "NULL".to_owned());
            restore.first().map_or(String::new(), |first| format!("{} = {}", first.name, value(&first.value)))
        }
        Undo::File { path, content: Some(_), .. } => format!("restore {}", path.display()),
        Undo::File { path, content: None, .. } => format!("remove {}", path.display()),
        Undo::Remount { path, options } => format!("remount {} {options}", path.display()),
        Undo::Restart { restore, .. } => {
            let names: Vec<&str> = restore.iter().map(|value| value.name.as_str()).collect();
            format!("restart the server for {}", names.join(", "))
        }
    }
}

/// Whether a reboot has undone this change. `sdb`, `zram1` or a sysctl may have another owner by now, so the
/// undo would harm. Files on disk are still there, and what udev puts together again is known by its UUID or name.
fn ended_with_its_boot(entry: &Open) -> anyhow::Result<bool> {
    // A server may run on another machine, or have been told to persist what was set.
    let lasts = matches!(
        entry.undo,
        Undo::Remove { .. }
            | Undo::Wipe { .. }
            | Undo::Array { .. }
            | Undo::Mapped { .. }
            | Undo::File { .. }
            | Undo::Variable { .. }
            | Undo::Restart { .. }
    );
    Ok(!lasts && !entry.lasts && entry.is_of_another_boot()?)
}

/// Undo one entry; what was done already is not an error. The note tells what a person should know.
fn perform(
    entry: &Open,
    journal: &mut Journal,
    kernel: &KernelFiles,
    holder: Option<u32>,
    restarts: Restarts,
) -> anyhow::Result<Option<String>> {
    match &entry.undo {
        Undo::Mount { path } => mounts::unmount_all(path),
        Undo::Loop { backing } => loops::detach_all(backing).map(|()| None),
        Undo::Zram { device } => zram::remove(device).map(|()| None),
        Undo::Array { uuid, name } => arrays::stop(kernel.root(), uuid, name),
        Undo::Mapped { name } => arrays::unmap(kernel.root(), name).map(|()| None),
        Undo::Process { mark } => {
            let count = processes::end_all(mark, holder)?;
            Ok((count > 0).then(|| format!("{count} ended")))
        }
        Undo::Remove { path } => remove::remove(path, &journal.content.scratch).map(|()| None),
        Undo::Wipe { device, uuid } => Ok(signature::wipe(device, uuid)?.map(str::to_owned)),
        Undo::Restart { login, start, restore, commands, .. } => {
            let pending = Pending { login, start, restore, commands: commands.as_deref() };
            if restarts == Restarts::CarryOut { pending.carry_out(journal, entry) } else { pending.left() }
        }
        _ => perform_change(entry, kernel),
    }
}

/// Undo what `apply` did. A value that was set from outside since is left, which fails with `Foreign`.
pub fn perform_change(entry: &Open, kernel: &KernelFiles) -> anyhow::Result<Option<String>> {
    match &entry.undo {
        Undo::Setting { restore } => {
            kernel.check_foreign(restore, entry)?;
            // After a boot the companions are what the boot made them.
            let ours = if entry.is_of_another_boot()? { restore.len().min(1) } else { restore.len() };
            Ok(kernel.restore(&restore[..ours])?.map(str::to_owned))
        }
        Undo::Variable { login, restore, start } => variables::restore(login, restore, start.as_ref(), entry),
        Undo::File { path, content, made } => {
            whole_files::check_foreign(kernel.root(), path, content.as_deref(), &entry.wrote)?;
            whole_files::restore(kernel.root(), path, content.as_deref(), made).map(|()| None)
        }
        Undo::Remount { path, options } if is_mounted(path)? => {
            remounts::check_foreign(path, &entry.wrote, options)?;
            remounts::remount(path, options).map(|()| None)
        }
        Undo::Remount { .. } => Ok(Some("it is not mounted any more".to_owned())),
        other => anyhow::bail!("no change of a setting: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::journal::this_boot;
    use super::*;
    use serde_json::json;

    fn journal() -> (tempfile::TempDir, Journal, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir(top.join("scratch")).unwrap();
        let journal = Journal::open(&top.join("state")).unwrap();
        (folder, journal, top)
    }

    #[test]
    fn a_reboot_ends_what_only_the_running_kernel_knew() {
        let (_keep, mut journal, top) = journal();
        let file = top.join("sys/block/sdb/queue/scheduler");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "kyber").unwrap();
        let kernel = KernelFiles::new(&top);
        let restore = json!([{"path": "/sys/block/sdb/queue/scheduler", "value": "none"}]);
        let undo: Undo = serde_json::from_value(json!({"kind": "setting", "restore": restore})).unwrap();
        for (boot_id, expected) in [("an-earlier-boot".to_owned(), "kyber"), (this_boot().unwrap(), "none")] {
            let (wrote, undo) = ("kyber".to_owned(), undo.clone());
            let entry = Open {
                id: 7,
                owner: "a".into(),
                t_ns: 0,
                boot_id,
                deadline: None,
                wrote,
                became: vec![],
                lasts: false,
                undo,
            };
            journal.content.open.push(entry);
            let undone = rollback(&mut journal, Some("a"), &kernel, Foreigners::Keep).unwrap();
            assert!(undone[0].error.is_none(), "{:?}", undone[0].error);
            assert_eq!(fs::read_to_string(&file).unwrap().trim(), expected);
        }
    }

    #[test]
    fn entries_are_undone_newest_first_and_only_the_owners() {
        let (_keep, mut journal, top) = journal();
        let scratch = top.join("scratch");
        let folder = |name: &str| json!({"kind": "remove", "path": scratch.join(name)});
        record(&mut journal, "a", vec![json!({"kind": "scratch", "path": scratch}), folder("1")]).unwrap();
        record(&mut journal, "a/part", vec![folder("1/2")]).unwrap();
        record(&mut journal, "b", vec![folder("3")]).unwrap();
        fs::create_dir_all(scratch.join("1/2")).unwrap();
        fs::create_dir(scratch.join("3")).unwrap();

        let kernel = KernelFiles::new(&top);
        let undone = rollback(&mut journal, Some("a/part"), &kernel, Foreigners::Keep).unwrap();
        assert_eq!(undone.len(), 1);
        assert!(scratch.join("1").exists() && !scratch.join("1/2").exists());
        let undone = rollback(&mut journal, Some("a"), &kernel, Foreigners::Keep).unwrap();
        assert_eq!(undone.len(), 1);
        assert!(!scratch.join("1").exists() && scratch.join("3").exists());
        assert_eq!(rollback(&mut journal, Some("a"), &kernel, Foreigners::Keep).unwrap().len(), 0);
        assert_eq!(rollback(&mut journal, None, &kernel, Foreigners::Keep).unwrap().len(), 1);
        assert!(!scratch.join("3").exists());
        assert_eq!(fs::metadata(top.join("state/journal.jsonl")).unwrap().len(), 0);
    }

    #[test]
    fn an_older_change_waits_for_the_newer_one_of_its_key() {
        let (_keep, mut journal, top) = journal();
        fs::create_dir(top.join("sys")).unwrap();
        let kernel = KernelFiles::new(&top);
        let mut change = |values: &[(&str, &str)], wrote: &str| {
            let restore: Vec<Value> = values.iter().map(|(p, v)| json!({"path": p, "value": v})).collect();
            let undo = serde_json::from_value(json!({"kind": "setting", "restore": restore})).unwrap();
            journal.add_change("a", None, wrote, false, undo).unwrap();
        };
        change(&[("/sys/x", "1")], "2");
        change(&[("/sys/y", "1"), ("/sys/x", "2")], "5");
        fs::write(top.join("sys/x"), "2").unwrap();
        for (theirs, left) in [("9", "2"), ("1", "1")] {
            fs::write(top.join("sys/y"), theirs).unwrap();
            let undone = rollback(&mut journal, Some("a"), &kernel, Foreigners::Keep).unwrap();
            assert_eq!(undone.iter().filter(|each| each.done).count(), if theirs == "9" { 0 } else { 2 });
            assert_eq!(fs::read_to_string(top.join("sys/x")).unwrap().trim(), left);
        }
    }

    #[test]
    fn settings_are_back_before_a_device_is_touched() {
        let (_keep, mut journal, top) = journal();
        fs::create_dir(top.join("sys")).unwrap();
        fs::write(top.join("sys/x"), "2").unwrap();
        let restore = json!([{"path": "/sys/x", "value": "1"}]);
        let setting = serde_json::from_value(json!({"kind": "setting", "restore": restore})).unwrap();
        journal.add_change("a", None, "2", false, setting).unwrap();
        let scratch = top.join("scratch");
        let requests = vec![
            json!({"kind": "scratch", "path": scratch}),
            json!({"kind": "remove", "path": scratch.join("file")}),
            json!({"kind": "mount", "path": scratch.join("volume")}),
        ];
        record(&mut journal, "a", requests).unwrap();
        let undone = rollback(&mut journal, Some("a"), &KernelFiles::new(&top), Foreigners::Keep).unwrap();
        assert_eq!(undone.iter().map(|each| each.kind).collect::<Vec<_>>(), ["setting", "mount", "remove"]);
        assert!(undone.iter().all(|each| each.done));
    }

    #[test]
    fn a_file_that_was_written_since_is_left() {
        let (_keep, mut journal, top) = journal();
        let file = top.join("etc/sysctl.d/90-headrace.conf");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let path = PathBuf::from("/etc/sysctl.d/90-headrace.conf");
        let undo = Undo::File { path, content: Some("before".to_owned()), made: vec![] };
        journal.add_change("a", None, "ours", false, undo).unwrap();
        for (now, left) in [("another's", "another's"), ("ours", "before")] {
            fs::write(&file, now).unwrap();
            let undone =
                rollback(&mut journal, Some("a"), &KernelFiles::new(&top), Foreigners::Keep).unwrap();
            assert_eq!(undone[0].done, now == "ours");
            assert_eq!(fs::read_to_string(&file).unwrap(), left);
        }
    }

    #[test]
    fn one_that_fails_stays_and_the_others_are_undone() {
        let (_keep, mut journal, top) = journal();
        let scratch = top.join("scratch");
        fs::create_dir(scratch.join("way")).unwrap();
        let entry = |name: &str| json!({"kind": "remove", "path": scratch.join(name)});
        let requests =
            vec![json!({"kind": "scratch", "path": scratch}), entry("a"), entry("way/b"), entry("c")];
        record(&mut journal, "a", requests).unwrap();
        for name in ["a", "c"] {
            fs::write(scratch.join(name), "").unwrap();
        }
        fs::remove_dir(scratch.join("way")).unwrap();
        std::os::unix::fs::symlink("/etc", scratch.join("way")).unwrap();

        let undone = rollback(&mut journal, None, &KernelFiles::new(&top), Foreigners::Keep).unwrap();
        assert_eq!(undone.iter().map(|u| u.done).collect::<Vec<_>>(), [true, false, true]);
        assert!(!scratch.join("a").exists() && !scratch.join("c").exists());
        assert_eq!(journal.content.open.len(), 1);
        fs::remove_file(scratch.join("way")).unwrap();
        assert!(rollback(&mut journal, None, &KernelFiles::new(&top), Foreigners::Keep).unwrap()[0].done);
    }

    #[test]
    fn what_exists_is_not_ours_to_undo() {
        let (_keep, mut journal, top) = journal();
        let scratch = top.join("scratch");
        fs::write(scratch.join("theirs"), "").unwrap();
        for (entry, why) in [
            (json!({"kind": "remove", "path": scratch.join("theirs")}), "exists already"),
            (json!({"kind": "remove", "path": top.join("elsewhere")}), "not below a scratch"),
            (json!({"kind": "mount", "path": "/proc"}), "is mounted already"),
            (json!({"kind": "setting", "restore": []}), "cannot be recorded"),
            (json!({"kind": "sledge", "path": "/x"}), "unknown variant"),
            (json!({"kind": "mount"}), "missing field"),
            (json!({"kind": "zram", "device": "../vda"}), "cannot be recorded"),
            (json!({"kind": "array", "uuid": "u", "name": "md0"}), "cannot be recorded"),
            (json!({"kind": "mapped", "name": "vg-root"}), "cannot be recorded"),
            (json!({"kind": "wipe", "device": "/etc/passwd", "uuid": "u"}), "cannot be recorded"),
        ] {
            let requests = vec![json!({"kind": "scratch", "path": scratch}), entry];
            let error = record(&mut journal, "a", requests).unwrap_err();
            assert!(error.to_string().contains(why), "{error:#}");
            assert!(journal.content.open.is_empty());
        }
    }

    #[test]
    fn an_entry_recorded_twice_may_exist_the_second_time() {
        let (_keep, mut journal, top) = journal();
        let scratch = top.join("scratch");
        let requests = || {
            vec![
                json!({"kind": "scratch", "path": scratch}),
                json!({"kind": "remove", "path": scratch.join("x")}),
            ]
        };
        record(&mut journal, "a", requests()).unwrap();
        fs::write(scratch.join("x"), "").unwrap();
        record(&mut journal, "a", requests()).unwrap();
        assert_eq!(
            rollback(&mut journal, Some("a"), &KernelFiles::new(&top), Foreigners::Keep).unwrap().len(),
            2
        );
    }
}
