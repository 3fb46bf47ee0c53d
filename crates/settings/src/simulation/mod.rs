//! The journal's own code on a model of a machine, by seeds: several owners, deadlines, strangers, boots, and at any
//! system call a kill, an error, or the work of the watchers.
//!
//! A run does a few things at random and then lets the host come to rest: the next call recovers it. Then every key
//! has the value that was confirmed last, or its original, or what a stranger set, which was reported; and what was
//! confirmed is kept. `HEADRACE_SIMULATE=RUNS` says how many runs, `HEADRACE_SIMULATE=FIRST..END` which of them;
//! `HEADRACE_SEED=SEED` runs one and tells its steps.

mod crash_points;
mod expected;
mod host;
mod watchers;

use std::time::Duration;

use crate::world::model::Chance;
use expected::Expected;
use host::{Answer, Host};

/// In `cargo test`, which has seconds.
const RUNS: u64 = 500;
/// One cause shows in many seeds: a few of them are told, so that another cause does not hide behind it.
const MOST_FAILURES: usize = 5;

/// What one run is made of.
struct Run {
    chance: Chance,
    host: Host,
    expected: Expected,
    owners: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut chance = Chance(seed);
        let host = Host::new(chance.next());
        if chance.one_in(4) {
            host.is_old();
        }
        let expected = Expected::new(host.state());
        Run { chance, host, expected, owners: vec![] }
    }

    fn step(&mut self) {
        match self.chance.below(19) {
            0..5 => self.apply(),
            5..8 => self.confirm(),
            8..11 => self.rollback(),
            11..13 => self.stranger(),
            13 => self.pass(),
            18 => self.extend(),
            14 => self.host.kill_a_watcher(&mut self.chance),
            15 => self.host.fail_over(&mut self.chance),
            16 => {
                self.host.restart_server();
                self.started(|key| key.contains(" of "));
            }
            _ => {
                let power_cut = self.chance.one_in(2);
                self.host.boot(power_cut);
                self.started(|key| !key.starts_with("/etc/"));
            }
        }
    }

    fn apply(&mut self) {
        let owner = format!("apply/{}", self.owners.len() + 1);
        self.owners.push(owner.clone());
        let mut changes = host::changes(&mut self.chance);
        let keep = self.chance.one_in(3);
        let patience = (!keep).then(|| Duration::from_secs(*self.chance.pick(&[5, 60])));
        let fault = Host::fault(&mut self.chance);
        self.interrupt();
        let (before, began) = (self.host.state(), self.host.uptime());
        let answer = self.host.apply(fault, &owner, &changes, patience, keep);
        self.heard(&answer);
        changes.iter_mut().for_each(|(name, _)| *name = self.host.key(name));
        let now = self.host.state();
        match answer {
            Answer::Done => {
                self.expected.applied(&owner, &changes, [&before, &now], true);
                if let Some(patience) = patience {
                    self.host.watchers.promise(&owner, began + patience);
                }
                if keep {
                    self.expected.confirmed(&owner);
                }
            }
            Answer::Refused(_) => {}
            Answer::Failed(..) | Answer::Killed => {
                self.expected.applied(&owner, &changes, [&before, &now], false);
                if keep {
                    self.expected.perhaps(|world| world.confirmed(&owner));
                }
            }
        }
    }

    fn confirm(&mut self) {
        let Some(owner) = self.any_owner() else { return };
        self.interrupt();
        let answer = self.host.confirm(Host::fault(&mut self.chance), &owner);
        self.heard(&answer);
        self.host.watchers.release(&owner);
        match answer {
            Answer::Done => self.expected.confirmed(&owner),
            Answer::Refused(_) => {}
            Answer::Failed(..) | Answer::Killed => {
                self.expected.perhaps(|world| world.confirmed(&owner));
            }
        }
    }

    fn extend(&mut self) {
        let Some(owner) = self.any_owner() else { return };
        let patience = Duration::from_secs(*self.chance.pick(&[5, 60]));
        self.interrupt();
        let (fault, began) = (Host::fault(&mut self.chance), self.host.uptime());
        let answer = self.host.extend(fault, &owner, patience);
        self.heard(&answer);
        if let Answer::Done = answer {
            self.host.watchers.promise(&owner, began + patience);
        }
    }

    /// The watchers do their work while the next command is in the middle of its own.
    fn interrupt(&mut self) {
        if self.chance.one_in(2) && self.host.interrupt(&mut self.chance, true) {
            // One may be killed, or fail, in its work.
            self.expected.disturbed();
        }
    }

    fn rollback(&mut self) {
        self.host.watchers.release_all();
        match self.chance.below(4) {
            0 => {
                self.interrupt();
                let answer = self.host.rollback_everyone(Host::fault(&mut self.chance));
                self.heard(&answer);
                if let Answer::Done = answer {
                    self.expected.undone_everything();
                }
            }
            1 => {
                let Some(last) = self.host.history().pop() else { return };
                self.interrupt();
                let answer = self.host.rollback_kept(Host::fault(&mut self.chance), "last");
                // Where there was something overdue to undo, that was the last.
                if !matches!(answer, Answer::Done) || !self.host.history().contains(&last) {
                    self.undone(&answer, &last);
                }
            }
            _ => {
                let Some(owner) = self.any_owner() else { return };
                self.interrupt();
                let answer = self.host.rollback_kept(Host::fault(&mut self.chance), &owner);
                self.undone(&answer, &owner);
            }
        }
    }

    fn heard(&mut self, answer: &Answer) {
        // One that did what it was asked to may have failed to undo what was overdue.
        if matches!(answer, Answer::Failed(..) | Answer::Killed) || self.host.went_wrong() {
            self.expected.disturbed();
        }
    }

    fn undone(&mut self, answer: &Answer, owner: &str) {
        self.heard(answer);
        match answer {
            Answer::Done => self.expected.undone(owner),
            Answer::Refused(_) => {}
            Answer::Failed(..) | Answer::Killed => self.expected.perhaps(|world| world.reopened(owner)),
        }
    }

    fn stranger(&mut self) {
        let before = self.host.state();
        let change = self.chance.pick(&host::strangers()).clone();
        self.host.set(&change.0, &change.1);
        self.expected.foreign(&before, &self.host.state(), &self.host.key(&change.0));
    }

    /// The server that answers, or all of the machine: then that server, too.
    fn started(&mut self, whose: impl Fn(&str) -> bool) {
        let server = self.host.key("");
        self.expected.started(&self.host.state(), |key| {
            whose(key) && (!key.contains(" of ") || key.ends_with(&server))
        });
    }

    fn pass(&mut self) {
        let time = Duration::from_secs(*self.chance.pick(&[1, 6, 70]));
        self.host.pass(time, Host::fault(&mut self.chance));
        // A watcher may have been killed in its work.
        self.expected.disturbed();
    }

    fn any_owner(&mut self) -> Option<String> {
        (!self.owners.is_empty()).then(|| self.chance.pick(&self.owners).clone())
    }
}

fn simulate(seed: u64, tells: bool) -> Result<(), String> {
    let mut run = Run::new(seed);
    run.host.trace(tells);
    for _ in 0..3 + run.chance.below(7) {
        run.step();
    }
    if run.chance.one_in(2) {
        run.host.interrupt(&mut run.chance, false);
    }
    let rested = run.host.at_rest().and_then(|rest| run.expected.check(rest));
    run.host.end();
    rested
}

/// The seeds that `HEADRACE_SIMULATE` names.
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("HEADRACE_SIMULATE").unwrap_or_else(|_| RUNS.to_string());
    let (first, end) = text.split_once("..").unwrap_or(("0", &text));
    let number = |text: &str| text.parse().expect("HEADRACE_SIMULATE=RUNS or HEADRACE_SIMULATE=FIRST..END");
    number(first)..number(end)
}

#[test]
fn at_rest_every_key_is_confirmed_original_or_reported() {
    if let Some(seed) = std::env::var("HEADRACE_SEED").ok().and_then(|text| text.parse().ok()) {
        simulate(seed, true).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    let failures: Vec<String> = seeds()
        .filter_map(|seed| {
            let error = simulate(seed, false).err()?;
            Some(format!(
                "{error}\nHEADRACE_SEED={seed} cargo test -p headrace-settings at_rest -- --nocapture"
            ))
        })
        .take(MOST_FAILURES)
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
