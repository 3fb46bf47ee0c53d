//! Every crash point of one round of each command: the N-th system call kills the agent or fails, for every N.
//!
//! As SQLite tests itself (sqlite.org/testing.html). The seeds of `simulation` meet some of these by chance; here none is
//! left out, and after each the machine continues, loses its power or boots.

use std::time::Duration;

use super::expected::Expected;
use super::host::{Answer, Change, Host, Values};
use crate::world::model::{Fault, FaultKind};

const OWNER: &str = "apply/1";
const TIMEOUT: Duration = Duration::from_secs(3);
const LATER: Duration = Duration::from_secs(6);

/// A kernel file with companions, a plain one, a server's variable, a mount, and both files that make them last.
fn changes() -> Vec<Change> {
    [
        ("/sys/block/sda/queue/scheduler", "none"),
        ("/proc/sys/vm/swappiness", "5"),
        ("max_connections", "300"),
        ("mount /place atime", "noatime"),
        ("mount /place commit", "commit=60"),
        ("/etc/sysctl.d/90-headrace.conf", "vm.swappiness = 5\n"),
        ("/etc/mysql/conf.d/zz-headrace.cnf", "max_connections = 300\n"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Apply,
    Keep,
    Confirm,
    Rollback,
    RollbackKept,
    Deadline,
    Extend,
}

/// What follows a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aftermath {
    Nothing,
    Boot,
    PowerCut,
    /// One more command, which may take for durable what the killed one did not sync.
    CommandAndPowerCut,
}

struct Round {
    host: Host,
    expected: Expected,
    changes: Vec<Change>,
}

impl Round {
    /// The seed is for what a write that is cut short and a power cut leave.
    fn new(seed: u64) -> Round {
        Round::of(seed, changes())
    }

    fn of(seed: u64, changes: Vec<Change>) -> Round {
        let host = Host::new(seed);
        let expected = Expected::new(host.state());
        Round { host, expected, changes }
    }

    fn applied(&mut self, before: &Values, heard: bool) {
        let changes: Vec<Change> =
            self.changes.iter().map(|(name, value)| (self.host.key(name), value.clone())).collect();
        self.expected.applied(OWNER, &changes, [before, &self.host.state()], heard);
    }

    fn apply(&mut self, fault: Option<Fault>, keep: bool) -> Answer {
        let patience = (!keep).then_some(TIMEOUT);
        let before = self.host.state();
        let answer = self.host.apply(fault, OWNER, &self.changes, patience, keep);
        match &answer {
            Answer::Refused(_) => return answer,
            Answer::Done => self.applied(&before, true),
            _ => self.applied(&before, false),
        }
        if keep {
            self.maybe(&answer, |expected| expected.confirmed(OWNER), |world| world.confirmed(OWNER));
        }
        answer
    }

    fn maybe(
        &mut self,
        answer: &Answer,
        done: impl Fn(&mut Expected),
        perhaps: impl Fn(&mut super::expected::World),
    ) {
        match answer {
            Answer::Done => done(&mut self.expected),
            Answer::Refused(_) => {}
            _ => self.expected.perhaps(perhaps),
        }
    }

    /// All that comes before the step works.
    fn prepare(&mut self, step: Step) {
        let before = match step {
            Step::Apply | Step::Keep => return,
            Step::Confirm | Step::Rollback | Step::Deadline | Step::Extend => self.apply(None, false),
            Step::RollbackKept => self.apply(None, true),
        };
        assert!(matches!(before, Answer::Done), "{before:?}");
    }

    /// Whether the fault was reached.
    fn run(&mut self, step: Step, fault: Fault) -> bool {
        let answer = self.answer(step, Some(fault));
        let reached = self.host.went_wrong() || matches!(answer, Answer::Killed);
        if step == Step::Extend {
            // Whatever became of it, the latest of its deadlines is over by then.
            self.host.pass(LATER, None);
            self.expected.undone(OWNER);
        }
        reached
    }

    fn answer(&mut self, step: Step, fault: Option<Fault>) -> Answer {
        match step {
            Step::Apply => self.apply(fault, false),
            Step::Keep => self.apply(fault, true),
            Step::Confirm => {
                let answer = self.host.confirm(fault, OWNER);
                self.maybe(&answer, |expected| expected.confirmed(OWNER), |world| world.confirmed(OWNER));
                answer
            }
            Step::Rollback | Step::RollbackKept => {
                let answer = self.host.rollback_kept(fault, OWNER);
                self.maybe(&answer, |expected| expected.undone(OWNER), |world| world.reopened(OWNER));
                answer
            }
            Step::Deadline => {
                self.host.pass(LATER, fault);
                self.expected.undone(OWNER);
                Answer::Done
            }
            Step::Extend => self.host.extend(fault, OWNER, TIMEOUT),
        }
    }
}

/// One fault at one call, and what follows. Whether the call was reached.
fn crash(step: Step, fault: Fault, aftermath: Aftermath) -> Result<bool, String> {
    // Another seed for each point: between two writes all would lose the same.
    let mut round = Round::new(fault.at);
    round.prepare(step);
    let reached = round.run(step, fault);
    if aftermath == Aftermath::CommandAndPowerCut {
        round.host.rollback_kept(None, "nobody");
    }
    if aftermath != Aftermath::Nothing {
        round.host.boot(aftermath != Aftermath::Boot);
        round.expected.started(&round.host.state(), |key| !key.starts_with("/etc/"));
    }
    let recovered = round.host.at_rest().and_then(|rest| match rest.reported.first() {
        // Nobody else set anything: half of what we wrote must not be taken for it.
        Some(key) => Err(format!("{key} is taken for a stranger's")),
        None => round.expected.check(rest),
    });
    round.host.end();
    recovered.map(|()| reached).map_err(|error| format!("{step:?} {fault:?} then {aftermath:?}: {error}"))
}

fn all_points(kinds: &[FaultKind], aftermaths: &[Aftermath]) {
    let steps = [
        Step::Apply,
        Step::Keep,
        Step::Confirm,
        Step::Rollback,
        Step::RollbackKept,
        Step::Deadline,
        Step::Extend,
    ];
    for step in steps {
        for kind in kinds {
            for aftermath in aftermaths {
                let mut at = 1;
                while crash(step, Fault { at, kind: *kind }, *aftermath)
                    .unwrap_or_else(|error| panic!("{error}"))
                {
                    at += 1;
                }
                let fewest = if step == Step::Extend { 10 } else { 30 };
                assert!(at > fewest, "{step:?} has {at} system calls: this tested nothing");
            }
        }
    }
}

#[test]
fn a_boot_before_the_confirmation_counts_as_none() {
    let mut round = Round::new(1);
    round.prepare(Step::Confirm);
    round.host.boot(false);
    let answer = round.host.confirm(None, OWNER);
    assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    assert!(round.host.open().is_empty(), "whoever comes next undoes it");
    round.host.end();
}

#[test]
fn a_restart_of_the_server_before_the_confirmation_counts_as_none() {
    let mut round = Round::of(1, vec![("max_connections".to_owned(), "300".to_owned())]);
    round.prepare(Step::Confirm);
    round.host.set("/etc/mysql/conf.d/zz-headrace.cnf", "max_connections = 200\n");
    round.host.restart_server();
    let answer = round.host.confirm(None, OWNER);
    assert!(matches!(&answer, Answer::Refused(why) if why.contains("restarted since")), "{answer:?}");
    round.host.end();
}

/// Also if the same call had files, which make others last, and fstab now says what was set.
#[test]
fn after_a_boot_a_mount_has_the_options_of_fstab() {
    let mut round = Round::new(1);
    round.prepare(Step::Confirm);
    round.host.set("/etc/fstab", "/place noatime,commit=60\n");
    round.host.boot(false);
    let rest = round.host.at_rest().expect("a host at rest");
    let options = ["mount /place atime", "mount /place commit"].map(|key| rest.values[key].as_str());
    assert_eq!((options, rest.reported), (["noatime", "commit=60"], vec![]));
    round.host.end();
}

/// A write that was refused half way leaves nothing before the next line.
#[test]
fn the_line_after_half_a_line_is_read() {
    let round = Round::new(1);
    let mut lines = 0;
    for at in 1..40 {
        let fault = Fault { at, kind: FaultKind::Error { lasting: false } };
        lines += round.host.lines_after_a_failure(fault);
    }
    round.host.end();
    assert!(lines > 0, "no line was refused: this tested nothing");
}

/// What was made, or undone, in part when something went wrong can be kept only if it is whole.
#[test]
fn a_part_of_a_change_is_not_confirmed() {
    // All of them, and each kind by itself: one that is refused keeps the others.
    for beginning in ["", "/proc/", "max_", "mount "] {
        let is_chosen = |(name, _): &Change| name.starts_with(beginning);
        let changes: Vec<Change> = changes().into_iter().filter(is_chosen).collect();
        for kind in [FaultKind::Kill, FaultKind::Error { lasting: true }] {
            only_whole(&changes, Step::Apply, kind);
            only_whole(&changes, Step::Rollback, kind);
        }
    }
}

fn only_whole(changes: &[Change], step: Step, kind: FaultKind) {
    let made = |round: &Round| -> Vec<Option<String>> {
        changes.iter().map(|(name, _)| round.host.state().get(&round.host.key(name)).cloned()).collect()
    };
    let mut round = Round::of(1, changes.to_vec());
    round.prepare(Step::Confirm);
    assert!(matches!(round.host.confirm(None, OWNER), Answer::Done));
    let (whole, mut refused, mut seed) = (made(&round), 0, 0);
    // Which error it is, chance says: each point has several.
    let tries = if kind == FaultKind::Kill { 1 } else { 4 };
    for at in (1..).flat_map(|at| std::iter::repeat_n(at, tries)) {
        seed += 1;
        let mut round = Round::of(seed, changes.to_vec());
        round.prepare(step);
        let fault = Fault { at, kind };
        let answer = round.answer(step, Some(fault));
        if !matches!(answer, Answer::Killed) && !round.host.went_wrong() {
            break;
        }
        match round.host.confirm(None, OWNER) {
            Answer::Done => assert_eq!(made(&round), whole, "{step:?} {fault:?}"),
            _ => refused += 1,
        }
    }
    assert!(refused > 10, "{step:?} {kind:?}: {refused} were refused: this tested nothing");
    round.host.end();
}

#[test]
fn killed_at_every_system_call_nothing_acknowledged_is_lost() {
    all_points(&[FaultKind::Kill], &[Aftermath::PowerCut, Aftermath::CommandAndPowerCut]);
}

#[test]
#[ignore = "minutes: `make test-real` runs it"]
fn after_every_fault_at_every_system_call_nothing_acknowledged_is_lost() {
    let kinds = [FaultKind::Kill, FaultKind::Error { lasting: false }, FaultKind::Error { lasting: true }];
    let aftermaths =
        [Aftermath::Nothing, Aftermath::Boot, Aftermath::PowerCut, Aftermath::CommandAndPowerCut];
    all_points(&kinds, &aftermaths);
}
