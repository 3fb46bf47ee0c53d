//! The machine: its parts, its clock, and what goes wrong at which system call.

use std::cell::RefCell;
use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::chance::Chance;
use super::disk::Disk;
use super::kernel::{self, Kernel};
use super::server::{self, Servers};

/// Of each place a line: its name, and its options at a boot.
const FSTAB: &str = "/host/etc/fstab";

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// What a killed process unwinds with.
pub struct Killed;

/// What a process unwinds with that would wait for a lock.
pub struct Waits;

/// What a system call is, as far as it can fail in ways of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    Look,
    Open,
    Create,
    Read,
    Write,
    Cut,
    Sync,
    Rename,
    Remove,
    MakeFolder,
    /// Anything but a write on a file of the kernel, which has no disk that could fail.
    Get,
    /// A write to a file of the kernel.
    Set,
    Lock,
    /// A remount, or what asks for one.
    Mount,
    /// A statement to a server, or the login.
    Ask,
    Start,
}

impl Call {
    fn errors(self) -> &'static [Errno] {
        match self {
            Call::Look | Call::Read | Call::Cut | Call::Remove => &[Errno::IO],
            Call::Open => &[Errno::MFILE, Errno::IO],
            Call::Create => &[Errno::MFILE, Errno::NOSPC, Errno::IO],
            Call::Write | Call::Sync | Call::Rename | Call::MakeFolder => &[Errno::NOSPC, Errno::IO],
            Call::Get => &[Errno::MFILE, Errno::NOMEM],
            Call::Set => &[Errno::IO, Errno::BUSY],
            Call::Mount => &[Errno::MFILE, Errno::NOMEM, Errno::IO, Errno::BUSY],
            Call::Ask => &[Errno::CONNRESET],
            Call::Lock => &[Errno::NOLCK],
            Call::Start => &[Errno::AGAIN, Errno::MFILE],
        }
    }
}

/// What happens at the `at`-th system call from now, counted from 1.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub at: u64,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    Kill,
    /// An error that fits the call. `lasting`: every later call that can fail this way does so, too.
    Error {
        lasting: bool,
    },
}

/// What others do while the process that runs is interrupted for a while.
pub type Meanwhile = Rc<dyn Fn(Duration)>;

/// The process that runs now: its calls, and what goes wrong with them.
#[derive(Default)]
pub struct Course {
    pub calls: u64,
    /// Whether the fault has happened.
    pub went_wrong: bool,
    fault: Option<Fault>,
    /// An error that stays until `disarm`.
    stuck: Option<Errno>,
    /// Before which of its calls it is interrupted, and for how long; what others do then.
    pub interruptions: Vec<(u64, Duration)>,
    pub meanwhile: Option<Meanwhile>,
}

impl Course {
    pub fn new(fault: Option<Fault>) -> Course {
        Course { fault, ..Course::default() }
    }

    /// Whether it is interrupted before the next call: for how long, and by what.
    fn interruption(&mut self) -> Option<(Duration, Meanwhile)> {
        let at = self.interruptions.iter().position(|(at, _)| *at == self.calls + 1)?;
        Some((self.interruptions.swap_remove(at).1, self.meanwhile.clone()?))
    }
}

pub struct Machine {
    pub chance: Chance,
    pub disk: Disk,
    pub kernel: Kernel,
    pub servers: Servers,
    /// Owners whose watcher lives.
    pub watchers: Vec<String>,
    /// What was said on standard error.
    pub said: Vec<String>,
    pub course: Course,
    pub up: Duration,
    booted_at: Duration,
    /// The process that runs is interrupted where it would wait for a lock, so that others can run.
    pub waits_aside: bool,
    next_handle: u64,
    pub locks: Vec<(usize, u64, bool)>,
    /// Every call is told on standard output.
    pub tells: bool,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        let mut chance = Chance(seed);
        // Minutes, hours, days, weeks.
        let unit = *chance.pick(&[60, 3_600, 86_400, 604_800]);
        let up = Duration::from_secs(unit) + Duration::from_secs(chance.below(7 * unit as usize) as u64);
        let booted_at = Duration::from_secs(1_700_000_000);
        Machine {
            chance,
            disk: Disk::new(),
            kernel: Kernel::new(),
            servers: Servers::new(booted_at + up),
            watchers: vec![],
            said: vec![],
            course: Course::default(),
            up,
            booted_at,
            waits_aside: false,
            next_handle: 0,
            locks: vec![],
            tells: false,
        }
    }

    /// From now on the calls are counted again, and one of them goes wrong.
    pub fn arm(&mut self, fault: Option<Fault>) {
        self.course = Course::new(fault);
    }

    /// Everything works from now on.
    pub fn disarm(&mut self) {
        (self.course.fault, self.course.stuck) = (None, None);
    }

    /// Another process runs. The course of the one that ran.
    pub fn change_course(&mut self, to: Course) -> Course {
        std::mem::replace(&mut self.course, to)
    }

    pub fn turn_to(&mut self, to: Duration) {
        self.up = to;
    }

    pub fn now(&self) -> Duration {
        self.booted_at + self.up
    }

    pub fn uptime(&self) -> Duration {
        self.up
    }

    /// The machine starts again. `power_cut`: what was not synced may be lost.
    pub fn boot(&mut self, power_cut: bool) {
        if power_cut {
            self.disk.cut_power(&mut self.chance);
        } else {
            self.disk.sync_all();
        }
        self.booted_at += self.up + Duration::from_secs(60);
        self.up = Duration::from_secs(30);
        self.watchers.clear();
        self.locks.clear();
        self.kernel.boot();
        for line in self.disk.text_below(Path::new("/host/etc/sysctl.d")).lines() {
            if let Some((name, value)) = line.split_once(" = ") {
                let _ = self.kernel.set(&format!("/proc/sys/{}", name.replace('.', "/")), value);
            }
        }
        let fstab = self.disk.files_below(Path::new(FSTAB)).into_values().next().unwrap_or_default();
        for (point, options) in fstab.lines().filter_map(|line| line.split_once(' ')) {
            for option in options.split(',') {
                let _ = self.kernel.mount_at(point).and_then(|mount| mount.set(option));
            }
        }
        self.restart_server();
    }

    fn verdict(&mut self, call: Call, place: &Path) -> Verdict {
        self.course.calls += 1;
        let is_kernel = kernel::path_in(place).is_some() && call != Call::Set;
        let call = if is_kernel { Call::Get } else { call };
        let mut verdict = Verdict::Go;
        if let Some(errno) = self.course.stuck.filter(|errno| call.errors().contains(errno)) {
            verdict = Verdict::Fail(errno);
        } else if let Some(fault) = self.course.fault.filter(|fault| fault.at == self.course.calls) {
            verdict = match fault.kind {
                FaultKind::Kill => Verdict::Kill,
                FaultKind::Error { lasting } => {
                    let errno = *self.chance.pick(call.errors());
                    self.course.stuck = lasting.then_some(errno);
                    Verdict::Fail(errno)
                }
            };
        }
        self.course.went_wrong |= !matches!(verdict, Verdict::Go);
        self.tell(|| format!("    {call:?} {}{verdict}", place.display()));
        verdict
    }

    pub fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.tells {
            println!("{}", text());
        }
    }

    pub fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }
}

#[derive(Clone, Copy)]
enum Verdict {
    Go,
    Fail(Errno),
    Kill,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Go => Ok(()),
            Verdict::Fail(errno) => write!(f, " -> {errno:?}"),
            Verdict::Kill => f.write_str(" -> killed"),
        }
    }
}

/// Put a machine in the place of this thread's real one; the one that was there.
pub fn swap(machine: Option<Machine>) -> Option<Machine> {
    MACHINE.replace(machine)
}

/// Do something with the machine; None where it is the real one.
pub fn on<R>(work: impl FnOnce(&mut Machine) -> R) -> Option<R> {
    MACHINE.with_borrow_mut(|machine| machine.as_mut().map(work))
}

pub fn is_model() -> bool {
    on(|_| ()).is_some()
}

/// Every system call comes by here. It does not return where the process is killed.
pub fn call(kind: Call, place: &Path) -> io::Result<()> {
    if let Some((time, meanwhile)) = on(|machine| machine.course.interruption()).flatten() {
        meanwhile(time);
    }
    match on(|machine| machine.verdict(kind, place)) {
        None | Some(Verdict::Go) => Ok(()),
        Some(Verdict::Fail(errno)) => Err(errno.into()),
        Some(Verdict::Kill) => resume_unwind(Box::new(Killed)),
    }
}

impl Machine {
    /// The server that answers starts again, with its files.
    pub fn restart_server(&mut self) {
        self.turn_to(self.uptime() + Duration::from_secs(2));
        let (now, files) = (self.now(), self.disk.text_below(Path::new(server::FOLDER)));
        self.servers.current().start(now, &files);
    }
}
