//! The model of a host, and the agent's commands on it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::watchers::{STATE, Watchers};
use crate::journal::{Journal, Open, Undo, read_open};
use crate::kernel_files::KernelFiles;
use crate::world::model::{self, Chance, Fault, FaultKind, Killed, Machine};
use crate::{Caller, JournalCommand, Rollback, Root, State, answer, history, keys, remounts};
use mysql::ServerArguments;

const ROOT: &str = "/host";
const SYSCTL: &str = "/etc/sysctl.d/90-headrace.conf";
const OPTIONS: &str = "/etc/mysql/conf.d/zz-headrace.cnf";
const FSTAB: &str = "/etc/fstab";
/// Faults come within so many system calls; a command makes 20 to 200.
const CALLS: usize = 150;

/// Values of everything that can be changed; a key that does not exist has none.
pub type Values = BTreeMap<String, String>;

/// How a command ended, as its caller sees it.
#[derive(Debug)]
#[expect(dead_code, reason = "what was said is for whoever replays a seed")]
pub enum Answer {
    Done,
    /// It failed although nothing went wrong on the machine: it has changed nothing that it was asked to.
    Refused(String),
    /// Something went wrong on the machine. What it printed, if it came so far.
    Failed(Option<Value>, String),
    Killed,
}

/// A host at rest.
pub struct Rest {
    pub values: Values,
    /// Keys of what stays open because a stranger's value is there, which a command has said.
    pub reported: Vec<String>,
    /// The owners of what is kept, oldest first.
    pub kept: Vec<String>,
}

/// The next command is interrupted before some of its calls, for a while in which the watchers do their work.
#[derive(Default)]
struct Interruptions {
    before: Vec<(u64, Duration)>,
    /// What goes wrong for the watchers then.
    fault: Option<Fault>,
}

pub struct Host {
    kernel: KernelFiles,
    pub watchers: Rc<Watchers>,
    interruptions: Cell<Interruptions>,
}

/// A change as the agent takes it, by its key.
pub type Change = (String, String);

/// What owners ask for.
pub fn changes(chance: &mut Chance) -> Vec<Change> {
    let all: [(&str, &[&str]); 16] = [
        ("/proc/sys/vm/swappiness", &["1", "5", "10"]),
        ("/proc/sys/vm/dirty_ratio", &["5", "10"]),
        ("/proc/sys/vm/dirty_bytes", &["1000000", "2000000"]),
        ("/sys/block/sda/queue/scheduler", &["none", "kyber"]),
        ("/sys/block/sda/queue/read_ahead_kb", &["64", "511", "4096"]),
        ("/sys/block/sda/queue/max_sectors_kb", &["512", "256"]),
        ("max_connections", &["100", "300"]),
        ("innodb_io_capacity", &["500", "1000", "4000"]),
        ("innodb_io_capacity_max", &["1500", "8000"]),
        ("init_connect", &["SET @a='x'", ""]),
        ("mount /data atime", &["noatime"]),
        ("mount /data lazytime", &["lazytime"]),
        ("mount /data commit", &["commit=30", "commit=60"]),
        ("mount /place atime", &["noatime", "relatime"]),
        ("mount /place commit", &["commit=60"]),
        ("mount /place discard", &["discard"]),
    ];
    let mut chosen: Vec<Change> = vec![];
    for _ in 0..1 + chance.below(3) {
        let (key, values) = chance.pick(&all);
        let value = chance.pick(values);
        if chosen.iter().all(|(other, _)| other != key) {
            chosen.push(((*key).to_owned(), (*value).to_owned()));
        }
    }
    if chance.one_in(3) {
        let files: Vec<Change> = chosen.iter().filter_map(|(key, value)| file_of(key, value)).collect();
        chosen.extend(files);
    }
    chosen
}

/// The file that makes a change last.
fn file_of(key: &str, value: &str) -> Option<Change> {
    match key {
        "/proc/sys/vm/swappiness" => Some((SYSCTL.to_owned(), format!("vm.swappiness = {value}\n"))),
        "max_connections" => Some((OPTIONS.to_owned(), format!("max_connections = {value}\n"))),
        _ => None,
    }
}

/// What strangers set: nothing that an owner asks for, and no default.
pub fn strangers() -> Vec<Change> {
    [
        ("/proc/sys/vm/swappiness", "77"),
        ("/proc/sys/vm/dirty_ratio", "33"),
        ("/proc/sys/vm/dirty_bytes", "7777777"),
        ("/sys/block/sda/queue/read_ahead_kb", "7776"),
        ("/sys/block/sda/queue/nr_requests", "77"),
        ("/sys/block/sda/queue/scheduler", "mq-deadline"),
        ("max_connections", "777"),
        ("innodb_io_capacity", "177"),
        ("innodb_io_capacity_max", "7777"),
        (SYSCTL, "vm.swappiness = 88\n"),
        ("mount /data atime", "strictatime"),
        ("mount /data commit", "commit=77"),
        ("mount /data flags", "noexec"),
        ("mount /place atime", "strictatime"),
        ("mount /place commit", "commit=77"),
        ("mount /place flags", "nosuid"),
        (FSTAB, "/data noatime,commit=60\n/place strictatime\n"),
        (FSTAB, "/data lazytime\n/place noatime,discard\n"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

impl Host {
    pub fn new(seed: u64) -> Host {
        model::swap(Some(Machine::new(seed)));
        let kernel = KernelFiles::new(Path::new(ROOT));
        Host { kernel, watchers: Rc::default(), interruptions: Cell::default() }
    }

    pub fn end(&self) {
        model::swap(None);
    }

    fn machine<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        model::on(work).expect("a machine")
    }

    /// It runs a kernel before Linux 5.2.
    pub fn is_old(&self) {
        self.machine(|machine| machine.kernel.is_old = true);
    }

    pub fn trace(&self, tells: bool) {
        self.machine(|machine| machine.tells = tells);
    }

    fn tell(&self, text: impl FnOnce() -> String) {
        self.machine(|machine| machine.tell(text));
    }

    pub fn uptime(&self) -> Duration {
        self.machine(|machine| machine.uptime())
    }

    pub fn state(&self) -> Values {
        self.machine(|machine| {
            let mut values = machine.kernel.values().clone();
            let files = machine.disk.files_below(&Path::new(ROOT).join("etc"));
            let name = |path: &Path| path.to_string_lossy().trim_start_matches(ROOT).to_owned();
            // A draft that a killed call left is not a value.
            let files = files.into_iter().filter(|(path, _)| !path.ends_with(".headrace.part"));
            values.extend(files.map(|(path, text)| (name(&path), text)));
            values.extend(machine.kernel.mounts.iter().flat_map(|mount| mount.values()));
            for server in &machine.servers.all {
                let set = server.variables.iter().filter_map(|(name, value)| Some((name, value.clone()?)));
                values.extend(set.map(|(name, value)| (format!("{name} of {}", server.uuid), value)));
            }
            values
        })
    }

    /// The key of what is named so now: a variable is one of the server that answers.
    pub fn key(&self, name: &str) -> String {
        if name.starts_with('/') || name.starts_with("mount ") {
            return name.to_owned();
        }
        self.machine(|machine| format!("{name} of {}", machine.servers.current().uuid))
    }

    pub fn fault(chance: &mut Chance) -> Option<Fault> {
        let kind = match chance.below(6) {
            0 | 1 => FaultKind::Kill,
            2 => FaultKind::Error { lasting: chance.one_in(2) },
            _ => return None,
        };
        Some(Fault { at: 1 + chance.below(CALLS) as u64, kind })
    }

    /// Interrupt the next command, at calls and for times that chance names. Whether something goes wrong for
    /// a watcher in that.
    pub fn interrupt(&self, chance: &mut Chance, may_go_wrong: bool) -> bool {
        let before = (0..1 + chance.below(3))
            .map(|_| {
                (1 + chance.below(CALLS) as u64, Duration::from_secs(*chance.pick(&[0, 0, 0, 1, 6, 35, 70])))
            })
            .collect();
        let fault = if may_go_wrong && chance.one_in(4) { Host::fault(chance) } else { None };
        let fault = fault.map(|fault| Fault { at: 1 + fault.at % 20, ..fault });
        self.interruptions.set(Interruptions { before, fault });
        fault.is_some()
    }

    fn command(&self, name: &str, fault: Option<Fault>, command: &JournalCommand, input: &Value) -> Answer {
        let Interruptions { before, fault: theirs } = self.interruptions.take();
        self.tell(|| format!("{name} {input} {fault:?}, interrupted {before:?} {theirs:?}"));
        self.machine(|machine| {
            machine.arm(fault);
            if !before.is_empty() {
                let (watchers, kernel) = (self.watchers.clone(), KernelFiles::new(Path::new(ROOT)));
                machine.course.interruptions = before;
                machine.course.meanwhile =
                    Some(Rc::new(move |time| watchers.meanwhile(time, theirs, &kernel)));
            }
        });
        let mut out = Vec::new();
        let ended =
            catch_unwind(AssertUnwindSafe(|| answer(command, &mut input.to_string().as_bytes(), &mut out)));
        let (calls, went_wrong) = self.machine(|machine| (machine.course.calls, machine.course.went_wrong));
        // Killed before it was reported.
        let unheard = fault.is_some_and(|f| f.kind == FaultKind::Kill && f.at == calls + 1);
        self.machine(|machine| {
            machine.disarm();
            machine.course.interruptions.clear();
            machine.course.meanwhile = None;
        });
        let printed = serde_json::from_slice(&out).ok();
        let answer = match ended {
            Err(payload) if !payload.is::<Killed>() => resume_unwind(payload),
            Err(_) => Answer::Killed,
            Ok(_) if unheard => Answer::Killed,
            Ok(Ok(())) => Answer::Done,
            Ok(Err(error)) if went_wrong || printed.is_some() => {
                Answer::Failed(printed, format!("{error:#}"))
            }
            Ok(Err(error)) => Answer::Refused(format!("{error:#}")),
        };
        self.tell(|| format!("  {answer:?}"));
        answer
    }

    pub fn apply(
        &self,
        fault: Option<Fault>,
        owner: &str,
        changes: &[Change],
        confirm_within: Option<Duration>,
        keep: bool,
    ) -> Answer {
        let input = Value::Array(asked(changes));
        let (caller, root) = (caller(owner), root());
        let login = json!({"mysql_socket": "/run/mysqld.sock", "mysql_user": "root"});
        let server: Box<ServerArguments> = Box::new(serde_json::from_value(login).expect("a login"));
        let command = JournalCommand::Apply { caller, root, confirm_within, keep, server };
        self.command(&format!("apply {owner} {confirm_within:?}"), fault, &command, &input)
    }

    pub fn confirm(&self, fault: Option<Fault>, owner: &str) -> Answer {
        let command = JournalCommand::Confirm { caller: caller(owner), root: root() };
        self.command(&format!("confirm {owner}"), fault, &command, &Value::Null)
    }

    pub fn extend(&self, fault: Option<Fault>, owner: &str, confirm_within: Duration) -> Answer {
        let command = JournalCommand::Extend { caller: caller(owner), root: root(), confirm_within };
        self.command(&format!("extend {owner} {confirm_within:?}"), fault, &command, &Value::Null)
    }

    fn rollback(&self, fault: Option<Fault>, kept: Option<&str>, accept_foreign: bool) -> Answer {
        let command = JournalCommand::Rollback(Rollback {
            state: State { dir: STATE.into() },
            owner: None,
            everyone: kept.is_none(),
            kept: kept.map(str::to_owned),
            overdue: false,
            accept_foreign,
            restart_within: None,
            root: root(),
        });
        self.command(&format!("rollback {kept:?}"), fault, &command, &Value::Null)
    }

    pub fn rollback_kept(&self, fault: Option<Fault>, id: &str) -> Answer {
        self.rollback(fault, Some(id), false)
    }

    pub fn rollback_everyone(&self, fault: Option<Fault>) -> Answer {
        self.rollback(fault, None, false)
    }

    /// Somebody else sets something.
    pub fn set(&self, name: &str, value: &str) {
        self.tell(|| format!("a stranger: {name} = {value}"));
        self.machine(|machine| match name {
            SYSCTL | OPTIONS | FSTAB => machine.disk.put(Path::new(&format!("{ROOT}{name}")), value),
            path if path.starts_with('/') => {
                machine.kernel.set(path, value).expect("a value that the kernel takes")
            }
            name if name.starts_with("mount ") => {
                let point = name.split(' ').nth(1).unwrap_or_default();
                let mount = machine.kernel.mount_at(point).expect("a mount");
                mount.set(value).expect("an option that it takes");
            }
            name => machine.servers.current().set(name, Some(value)).expect("a value that the server takes"),
        });
    }

    pub fn restart_server(&self) {
        self.tell(|| "the server is started again".to_owned());
        self.machine(Machine::restart_server);
    }

    /// Another server answers, or none for a while.
    pub fn fail_over(&self, chance: &mut Chance) {
        self.machine(|machine| {
            if chance.one_in(2) {
                machine.servers.answering = 1 - machine.servers.answering;
            } else {
                machine.servers.is_down = !machine.servers.is_down;
            }
            let servers = &machine.servers;
            let (which, is_down) = (servers.answering, servers.is_down);
            machine.tell(|| format!("server {which} answers, down: {is_down}"));
        });
    }

    pub fn boot(&self, power_cut: bool) {
        self.tell(|| format!("boot, power cut: {power_cut}"));
        self.machine(|machine| machine.boot(power_cut));
        self.watchers.release_all();
    }

    pub fn kill_a_watcher(&self, chance: &mut Chance) {
        self.machine(|machine| {
            if !machine.watchers.is_empty() {
                let at = chance.below(machine.watchers.len());
                machine.watchers.remove(at);
            }
        });
    }

    /// Time passes, in which the watchers do their work.
    pub fn pass(&self, time: Duration, fault: Option<Fault>) {
        let until = self.machine(|machine| machine.uptime() + time);
        self.tell(|| format!("{time:?} pass {fault:?}"));
        self.machine(|machine| machine.arm(fault));
        self.watchers.pass(until, &self.kernel);
        self.machine(Machine::disarm);
    }

    pub fn went_wrong(&self) -> bool {
        self.machine(|machine| machine.course.went_wrong)
    }

    /// Everything works again, and the next call recovers the host.
    pub fn at_rest(&self) -> Result<Rest, String> {
        self.pass(Duration::from_secs(200), None);
        // By then the living watchers have undone what can be undone.
        let is_down = self.machine(|machine| machine.servers.is_down);
        let mut watched = if is_down { vec![] } else { self.watchers.watched() };
        let (reported, open) = self.recover()?;
        watched.retain(|entry| !open.contains(entry));
        if let Some(entry) = watched.first() {
            return Err(format!("the watcher of {} let a deadline pass: {entry:?}", entry.owner));
        }
        if let Some(wrong) = self.watchers.wrong() {
            return Err(wrong);
        }
        Ok(Rest { values: self.state(), reported, kept: self.history() })
    }

    /// Whoever comes next recovers the host. The keys of what stays open because a stranger's value is there, and its
    /// entries.
    fn recover(&self) -> Result<(Vec<String>, Vec<Open>), String> {
        self.machine(|machine| machine.servers.is_down = false);
        let mut failures = vec![];
        match self.rollback(None, None, false) {
            Answer::Done => {}
            Answer::Failed(Some(printed), _) => {
                let rows = printed.as_array().cloned().unwrap_or_default();
                let failed = rows.iter().filter(|row| row["done"] == false);
                failures.extend(failed.filter_map(|row| row["error"].as_str().map(str::to_owned)));
            }
            other => return Err(format!("the host is not recovered: {other:?}")),
        }
        let is_foreign = |error: &str| error.contains("it is left as it is");
        // Below what a stranger set.
        let is_held = |error: &String| error.contains("must be undone first");
        if let Some(other) = failures.iter().find(|error| !is_foreign(error) && !is_held(error)) {
            return Err(format!("not undone, and no stranger's value is why: {other}"));
        }
        let open = self.open();
        if open.len() != failures.len() {
            return Err(format!("{} entries are open, and reported are {failures:?}", open.len()));
        }
        let before = self.state();
        match self.rollback(None, None, true) {
            Answer::Done
                if self.open().is_empty() && (self.state() == before || failures.iter().any(is_held)) => {}
            other => return Err(format!("what a stranger set is not accepted: {other:?}")),
        }
        Ok((open.iter().flat_map(|entry| keys_of(&entry.undo)).collect(), open))
    }

    /// Two lines by one owner, of which the first may fail: 1 if it does. The second is there in any case.
    pub fn lines_after_a_failure(&self, fault: Fault) -> usize {
        let mut journal = Journal::open(Path::new(STATE)).expect("a journal");
        self.machine(|machine| machine.arm(Some(fault)));
        let entry = || vec![Undo::Mount { path: "/scratch".into() }];
        let first = journal.add("a", vec![], entry());
        self.machine(Machine::disarm);
        journal.add("b", vec![], entry()).expect("a second line");
        let open = self.open();
        assert_eq!(open.iter().filter(|entry| entry.owner == "b").count(), 1, "{fault:?}: {first:?}");
        journal.all_done("b", open.iter().map(|entry| entry.id).collect()).expect("a mark");
        journal.tidy().expect("an empty journal");
        usize::from(first.is_err())
    }

    pub fn open(&self) -> Vec<Open> {
        read_open(Path::new(STATE)).expect("a journal that can be read")
    }

    /// The owners of what is kept, oldest first.
    pub fn history(&self) -> Vec<String> {
        let sets = history::read(Path::new(STATE)).expect("a history that can be read");
        sets.into_iter().map(|set| set.owner).collect()
    }
}

/// Changes as the agent takes them: options of one mount are one change.
fn asked(changes: &[Change]) -> Vec<Value> {
    let mut asked: Vec<Value> = vec![];
    for (key, value) in changes {
        let point = key.strip_prefix("mount ").and_then(|rest| rest.split_once(' ')).map(|(point, _)| point);
        let before = asked.iter_mut().find(|other| point.is_some_and(|point| other["mount"] == point));
        match (point, before) {
            (Some(_), Some(before)) => {
                before["options"] =
                    format!("{},{value}", before["options"].as_str().unwrap_or_default()).into();
            }
            (Some(point), None) => asked.push(json!({"mount": point, "options": value})),
            _ if [SYSCTL, OPTIONS].contains(&key.as_str()) => {
                asked.push(json!({"file": key, "content": value}))
            }
            _ if key.starts_with('/') => asked.push(json!({"path": key, "value": value})),
            _ => asked.push(json!({"variable": key, "value": value})),
        }
    }
    asked
}

/// The keys of an entry; of a mount each kind of option is one.
fn keys_of(undo: &Undo) -> Vec<String> {
    match undo {
        Undo::Remount { path, options } => {
            let key = |option: &str| format!("mount {} {}", path.display(), remounts::kind(option));
            options.split(',').map(key).collect()
        }
        undo => keys::keys(undo),
    }
}

fn caller(owner: &str) -> Caller {
    Caller { state: State { dir: STATE.into() }, owner: owner.to_owned() }
}

fn root() -> Root {
    Root { root: PathBuf::from(ROOT) }
}
