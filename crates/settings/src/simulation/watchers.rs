//! The watchers of deadlines as processes: each takes its steps when it is awake, between the commands and in the middle
//! of one.
//!
//! What a watcher must never do is noted here, where it does it: to leave what it watches, to undo it before its
//! deadline, and to spin.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::Duration;

use crate::journal::{Open, read_open};
use crate::kernel_files::KernelFiles;
use crate::watcher::{Next, Watch};
use crate::world::model::{self, Course, Fault, Killed, Machine, Waits};

pub const STATE: &str = "/var/lib/headrace";
/// How long a process waits for the journal's lock.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// In one turn a watcher looks, undoes, looks again and makes sure.
const MOST_STEPS: usize = 20;

struct Process {
    owner: String,
    watch: Watch,
    next: Next,
    wakes: Duration,
    started: Duration,
    /// Since when it waits for a lock.
    waits: Option<Duration>,
}

/// What became of a step.
enum Stepped {
    On,
    /// Another process has the lock.
    Waits,
    Ended,
}

#[derive(Default)]
pub struct Watchers {
    all: RefCell<Vec<Process>>,
    /// Until when nothing undoes the changes of an owner but a command that is told to.
    promises: RefCell<BTreeMap<String, Duration>>,
    wrong: RefCell<Option<String>>,
}

fn machine<R>(work: impl FnOnce(&mut Machine) -> R) -> R {
    model::on(work).expect("a machine")
}

/// Look at the machine from outside: no call of the process that runs, and none that fails.
fn quietly<R>(work: impl FnOnce() -> R) -> R {
    let (course, tells) = machine(|machine| {
        (machine.change_course(Course::default()), std::mem::replace(&mut machine.tells, false))
    });
    let seen = work();
    machine(|machine| {
        machine.change_course(course);
        machine.tells = tells;
    });
    seen
}

fn open_of(owner: &str) -> Vec<Open> {
    let open = quietly(|| read_open(Path::new(STATE))).unwrap_or_default();
    open.into_iter().filter(|entry| entry.owner == owner && entry.deadline.is_some()).collect()
}

impl Watchers {
    /// Until `until` only its owner undoes it, or a call that undoes everything.
    pub fn promise(&self, owner: &str, until: Duration) {
        let mut promises = self.promises.borrow_mut();
        let promised = promises.entry(owner.to_owned()).or_default();
        *promised = until.max(*promised);
    }

    pub fn release(&self, owner: &str) {
        self.promises.borrow_mut().remove(owner);
    }

    pub fn release_all(&self) {
        self.promises.borrow_mut().clear();
    }

    /// What a watcher did that none may do.
    pub fn wrong(&self) -> Option<String> {
        self.wrong.borrow().clone()
    }

    fn blame(&self, text: String) {
        self.wrong.borrow_mut().get_or_insert(text);
    }

    /// What is left open that a living watcher should have undone, if nothing is in its way.
    pub fn watched(&self) -> Vec<Open> {
        machine(|machine| machine.watchers.clone()).iter().flat_map(|owner| open_of(owner)).collect()
    }

    /// Time passes in which nothing else happens.
    pub fn pass(&self, until: Duration, kernel: &KernelFiles) {
        while let Some((at, wakes)) = self.first_awake() {
            if wakes > until {
                break;
            }
            machine(|machine| machine.turn_to(wakes.max(machine.uptime())));
            self.turn(at, kernel);
        }
        machine(|machine| machine.turn_to(until));
    }

    /// A command is interrupted for a while: the watchers that are awake by then do its work, as far as the locks allow.
    pub fn meanwhile(&self, time: Duration, fault: Option<Fault>, kernel: &KernelFiles) {
        machine(|machine| machine.turn_to(machine.uptime() + time));
        let course = machine(|machine| machine.change_course(Course::new(fault)));
        machine(|machine| machine.waits_aside = true);
        let now = machine(|machine| machine.uptime());
        let mut at = 0;
        while self.count() > at {
            let before = self.count();
            if self.all.borrow()[at].wakes <= now {
                self.turn(at, kernel);
            }
            at += usize::from(self.count() == before);
        }
        machine(|machine| {
            machine.waits_aside = false;
            machine.change_course(course);
        });
    }

    /// How many live: some were started, some killed.
    fn count(&self) -> usize {
        let (owners, now) = machine(|machine| (machine.watchers.clone(), machine.uptime()));
        let mut all = self.all.borrow_mut();
        all.retain(|process| owners.contains(&process.owner));
        for owner in owners {
            if all.iter().all(|process| process.owner != owner) {
                let (watch, next) =
                    (Watch::new(Path::new(STATE), &owner), Next::Look { after: Duration::ZERO });
                all.push(Process { owner, watch, next, wakes: now, started: now, waits: None });
            }
        }
        all.sort_by(|one, other| one.owner.cmp(&other.owner));
        all.len()
    }

    fn first_awake(&self) -> Option<(usize, Duration)> {
        self.count();
        let all = self.all.borrow();
        all.iter().map(|process| process.wakes).enumerate().min_by_key(|(_, wakes)| *wakes)
    }

    /// All that one watcher does before it sleeps or waits. Others work side by side with it.
    fn turn(&self, at: usize, kernel: &KernelFiles) {
        let mut process = self.all.borrow_mut().swap_remove(at);
        let began = machine(|machine| machine.uptime());
        let mut steps = 0;
        let stepped = loop {
            let stepped = self.step(&mut process, kernel);
            steps += 1;
            if steps > MOST_STEPS {
                self.blame(format!("the watcher of {} spins", process.owner));
                break Stepped::Ended;
            }
            if !matches!(stepped, Stepped::On) || process.wakes > machine(|machine| machine.uptime()) {
                break stepped;
            }
        };
        machine(|machine| machine.turn_to(began));
        match stepped {
            Stepped::Ended => {
                machine(|machine| machine.watchers.retain(|other| *other != process.owner));
            }
            _ => self.all.borrow_mut().push(process),
        }
    }

    fn step(&self, process: &mut Process, kernel: &KernelFiles) -> Stepped {
        let began = machine(|machine| machine.uptime());
        machine(|machine| machine.tell(|| format!("  watcher of {}: {:?}", process.owner, process.next)));
        // One that has waited too long is told so: its clock runs, and the lock stays taken.
        let is_tired = process.waits.is_some_and(|since| began >= since + LOCK_WAIT);
        let waits_aside = machine(|machine| machine.waits_aside);
        machine(|machine| machine.waits_aside = waits_aside && !is_tired);
        let kept = if process.next == Next::Undo { self.kept(began) } else { vec![] };
        let next = process.next;
        let ended = catch_unwind(AssertUnwindSafe(|| process.watch.step(next, kernel)));
        machine(|machine| machine.waits_aside = waits_aside);
        for (owner, count) in kept {
            if open_of(&owner).len() < count {
                self.blame(format!(
                    "the watcher of {} undid changes of {owner} before their deadline",
                    process.owner
                ));
            }
        }
        match ended {
            Ok(Next::Leave) => {
                let left = open_of(&process.owner).len();
                if left > 0 && began < process.started + DAY {
                    self.blame(format!(
                        "the watcher of {} left although {left} changes are open",
                        process.owner
                    ));
                }
                Stepped::Ended
            }
            Ok(next) => {
                (process.next, process.waits) = (next, None);
                process.wakes = machine(|machine| machine.uptime());
                if let Next::Look { after } = next {
                    process.wakes += after;
                }
                Stepped::On
            }
            Err(payload) if payload.is::<Waits>() => {
                process.waits.get_or_insert(began);
                process.wakes = began;
                Stepped::Waits
            }
            Err(payload) if payload.is::<Killed>() => Stepped::Ended,
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Owners whose changes must stay for now, and how many those are.
    fn kept(&self, now: Duration) -> Vec<(String, usize)> {
        let promises = self.promises.borrow();
        let owners = promises.iter().filter(|(_, until)| **until > now).map(|(owner, _)| owner);
        owners.map(|owner| (owner.clone(), open_of(owner).len())).collect()
    }
}
