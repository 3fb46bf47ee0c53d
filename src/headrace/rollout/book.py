"""A rollout on disk: ``plan.json``, and ``log.jsonl``.

The log has a line for each thing that happened, fsynced before the next is done. Its state is read from the log,
so a controller that was killed at any moment continues from there.

What stands on a host is known to the host's own journal. The log says which change was about to be made where.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from headrace.base.errors import Busy, Held, PlanError, Refused, StoreError, write_error
from headrace.base.state import state_path
from headrace.base.whole import make_folder, sync, write_whole
from headrace.fleet.runner import Turns
from headrace.rollout import approvals
from headrace.rollout.guards import Window, window_of
from headrace.rollout.judge import TIME, Judgement, Outcome, Pair, Switchback, Trial, judge
from headrace.rollout.paired import Moment, Paired
from headrace.rollout.plan import ID_LENGTH, Plan, Stage

FOLDER, LOG = "rollouts", "log.jsonl"
#: In a rollout's folder: who asked to take it back while another command held it.
STOP = "stop"


#: Events that leave the state as it is, because another one that follows says what came of them.
FOR_PEOPLE = frozenset({"command", "lost", "tripped"})


@dataclass
class State:
    """What the log says. ``open``: change ids by host that may stand there, ``kept``: those that were kept."""

    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    #: Of each stage the pairs, or blocks after a restart, that do not count: the host that was tried, and why.
    unused: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    #: Of changes that take a restart: blocks of pairs of hosts, by stage.
    moments: dict[str, list[Moment]] = field(default_factory=dict)
    #: Hosts that are out of service, or may be.
    out: set[str] = field(default_factory=set)
    #: Changes with which the server was, or may have been, restarted.
    restarted: set[str] = field(default_factory=set)
    #: Changes that are out of the option file, while the server may still have them: its restart had to wait.
    files_restored: set[str] = field(default_factory=set)
    #: By host, the buffer pool before its first restart: pages of data, misses per query.
    warmth: dict[str, tuple[float, float]] = field(default_factory=dict)
    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    usual: dict[str, list[Window]] = field(default_factory=dict)
    open: dict[str, list[str]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    #: Hosts that have troubles of their own, until the rollout is started again. Not those that were given up.
    aside: dict[str, str] = field(default_factory=dict)
    #: Hosts that a person gave up, and why: what they have is not known any more.
    gone: dict[str, str] = field(default_factory=dict)
    #: Hosts that are restored and have other values than when the plan was made, and which: not by our doing.
    other: dict[str, str] = field(default_factory=dict)
    #: Hosts without queries to compare, until the rollout is started again: they are changed after the verdict.
    idle: dict[str, str] = field(default_factory=dict)
    #: Stages that judge nothing because their hosts were idle, and serve now.
    serving: set[str] = field(default_factory=set)
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)
    approvals: dict[str, dict[str, Any]] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    is_started: bool = False
    #: Why all is taken back: harm, or a person; empty while it is not.
    aborting: str = ""
    is_harmful: bool = False
    is_aborted: bool = False
    is_finished: bool = False
    paused: str = ""

    def why_left(self, name: str) -> str:
        """Why nothing is done on this host any more; empty if something may be."""
        return self.gone.get(name) or self.aside.get(name, "")

    @property
    def is_over(self) -> bool:
        return self.is_finished or self.is_aborted

    def host(self, name: str) -> str:
        """One host's state in a word."""
        if name in self.gone:
            return "given up"
        if name in self.out:
            return "out of service"
        if self.open.get(name):
            return "changing"
        if name in self.kept:
            return "changed"
        if name in self.aside:
            return "aside"
        return "restored" if name in self.other else "as before"

    def take(self, event: dict[str, Any]) -> None:
        """Go on by one line of the log. Raises KeyError for one that this version does not know."""
        kind = event["kind"]
        taken = getattr(self, f"_take_{kind}", None)
        if taken:
            taken(event)
        elif kind not in FOR_PEOPLE:
            raise KeyError(f"no event is called {kind!r}")

    def _take_go(self, event: dict[str, Any]) -> None:
        self.is_started, self.paused = True, ""
        self.aside.clear()
        self.idle.clear()

    def _take_attempt(self, event: dict[str, Any]) -> None:
        key = event["stage"], event["host"]
        self.attempts[key] = self.attempts.get(key, 0) + 1

    def _take_before(self, event: dict[str, Any]) -> None:
        self.usual.setdefault(event["host"], []).append(window_of(event["off"]))

    def _take_pair(self, event: dict[str, Any]) -> None:
        on, off = window_of(event["on"]), window_of(event["off"])
        pair = Pair(event["host"], on.block, off.block)
        if why := on.why_unmeasured or off.why_unmeasured:
            self.unused.setdefault(event["stage"], []).append((event["host"], f"{event['host']}: {why}"))
        self.pairs.setdefault(event["stage"], []).append(pair)
        self.usual.setdefault(event["host"], []).append(off)

    def _take_moment(self, event: dict[str, Any]) -> None:
        changed, partner = window_of(event["changed"]), window_of(event["partner_did"])
        moment = Moment(event["host"], changed.block, partner.block, bool(event["is_after"]))
        for name, did in ((event["partner"], partner), (event["host"], changed)):
            if moment.is_after and moment.gaps[TIME] is None and (why := did.why_unmeasured):
                self.unused.setdefault(event["stage"], []).append((event["host"], f"{name}: {why}"))
                break
        self.moments.setdefault(event["stage"], []).append(moment)
        self.usual.setdefault(event["partner"], []).append(partner)
        if not moment.is_after:
            self.usual.setdefault(event["host"], []).append(changed)

    def _take_discarded(self, event: dict[str, Any]) -> None:
        """A pair of which one host has troubles of its own says nothing about the change."""
        for stage, moments in self.moments.items():
            self.moments[stage] = [each for each in moments if each.host != event["host"]]
            left = [each for each in self.unused.get(stage, ()) if each[0] != event["host"]]
            self.unused[stage] = left

    def _take_out(self, event: dict[str, Any]) -> None:
        self.out.add(event["host"])
        self.warmth.setdefault(event["host"], (float(event["pages"]), float(event["misses"])))

    def _take_in(self, event: dict[str, Any]) -> None:
        self.out.discard(event["host"])

    def _take_restarting(self, event: dict[str, Any]) -> None:
        if event["change"]:
            self.restarted.add(event["change"])

    def _take_file_restored(self, event: dict[str, Any]) -> None:
        self.files_restored.add(event["change"])

    def _take_applying(self, event: dict[str, Any]) -> None:
        self.open.setdefault(event["host"], []).append(event["change"])

    def _take_undone(self, event: dict[str, Any]) -> None:
        self._closed(event["host"], event["change"])
        if self.kept.get(event["host"]) == event["change"]:
            del self.kept[event["host"]]

    def _take_kept(self, event: dict[str, Any]) -> None:
        self._closed(event["host"], event["change"])
        self.kept[event["host"]] = event["change"]

    def _take_aside(self, event: dict[str, Any]) -> None:
        if event["host"] not in self.gone:
            self.aside[event["host"]] = event["why"]

    def _take_given_up(self, event: dict[str, Any]) -> None:
        name = event["host"]
        self.gone[name] = f"given up by {event['by']}: {event['why']}"
        self.aside.pop(name, None)
        self.open.pop(name, None)
        self.kept.pop(name, None)
        self.out.discard(name)

    def _take_other(self, event: dict[str, Any]) -> None:
        self.other[event["host"]] = event["why"]

    def _take_idle(self, event: dict[str, Any]) -> None:
        self.idle[event["host"]] = event["why"]

    def _take_serving(self, event: dict[str, Any]) -> None:
        self.serving.add(event["stage"])

    def _take_verdict(self, event: dict[str, Any]) -> None:
        self.verdicts[event["stage"]] = event

    def _take_approved(self, event: dict[str, Any]) -> None:
        self.approvals[event["stage"]] = event

    def _take_passed(self, event: dict[str, Any]) -> None:
        self.passed.append(event["stage"])

    def _take_paused(self, event: dict[str, Any]) -> None:
        self.paused = event["why"]

    def _take_aborting(self, event: dict[str, Any]) -> None:
        self.aborting = self.aborting or event["why"]
        self.is_harmful = self.is_harmful or bool(event.get("is_harmful"))

    def _take_aborted(self, event: dict[str, Any]) -> None:
        self.is_aborted = True

    def _take_finished(self, event: dict[str, Any]) -> None:
        self.is_finished = True

    def unjudged_by(self, stage: str) -> str:
        """Who promotes a stage without a verdict; empty if nobody does."""
        approval = self.approvals.get(stage, {})
        return str(approval["by"]) if approval.get("is_unjudged") else ""

    def _closed(self, host: str, change: str) -> None:
        left = [each for each in self.open.get(host, ()) if each != change]
        if left:
            self.open[host] = left
        else:
            self.open.pop(host, None)


class Book:
    """One rollout's folder."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan
        #: Logins at a time, of whatever is done to its hosts.
        self.logins = Turns(*plan.fan_out)
        self.events = _read(folder / LOG)
        self.state = State()
        for number, event in enumerate(self.events, start=1):
            try:
                self.state.take(event)
            except (KeyError, TypeError, AttributeError) as error:
                raise StoreError(
                    f"line {number} cannot be understood: {error!r}",
                    place=str(folder / LOG),
                    hint="the hosts' own journals show what is changed there: headrace rollback --list -t HOST",
                ) from error

    @classmethod
    def make(cls, plan: Plan) -> Book:
        """Write a plan down; the same plan again is the same rollout."""
        folder = root() / plan.id
        with errors(folder):
            make_folder(folder, 0o700)
            text = json.dumps(plan.to_json(), indent=1, sort_keys=True)
            write_whole(folder / "plan.json", text, 0o600)
            sync(folder.parent)  # whoever made it may have been killed before that
        return cls(folder, plan)

    @classmethod
    def open(cls, name: str) -> Book:
        """The rollout of this id, or the beginning of one. Raises PlanError, or StoreError if it was changed."""
        found = [folder for folder in folders() if name and folder.name.startswith(name)]
        if len(found) != 1:
            words = "no such rollout" if not found else "more than one rollout begins with that"
            raise PlanError(words, place=name, hint="headrace rollout status lists them")
        path = found[0] / "plan.json"
        try:
            plan = Plan.of(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"cannot be read: {error}", place=str(path)) from error
        if plan.id != found[0].name:
            raise StoreError("the plan was changed after it got its id", place=str(path), hint="plan again")
        return cls(found[0], plan)

    def judged(self, stage: Stage) -> Judgement:
        """What the stage's trial says so far."""
        hosts = [changed for changed, _ in stage.pairs] if stage.pairs else stage.hosts
        judged = judge(self.plan.question(), self.trial([stage]), hosts)
        unused = self.state.unused.get(stage.name, ())
        if not unused or judged.outcome is Outcome.FAIL:
            return judged
        trial = self.trial([stage])
        words = f"{len(unused)} of {trial.tried} {trial.unit} do not count: {unused[-1][1]}"
        return replace(judged, reason=f"{judged.reason}; {words}")

    def trial(self, stages: Sequence[Stage]) -> Trial:
        """What was measured in these stages, in the order of the plan."""
        if self.plan.restart:
            return Paired([each for stage in stages for each in self.state.moments.get(stage.name, ())])
        return Switchback([each for stage in stages for each in self.state.pairs.get(stage.name, ())])

    def note(self, kind: str, **more: Any) -> None:
        """On disk when this returns."""
        event = {"t": round(time.time(), 3), "kind": kind, **more}
        path = self.folder / LOG
        with errors(path):
            is_new = not path.exists()
            with path.open("ab") as file:
                file.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                sync(self.folder)
        self.events.append(event)
        self.state.take(event)

    def approve(self, stage: str, by: str, *, unjudged: bool = False) -> None:
        """Approve one stage for a limited time, once those before it have passed; ``unjudged``: also without a
        verdict, once it was tried and has none. Under ``hold``.
        """
        names = [each.name for each in self.plan.stages]
        if stage not in names:
            raise PlanError(f"no such stage: it has {', '.join(names)}", place=stage)
        if self.state.is_over or self.state.aborting:
            raise Refused("this rollout is over", place=self.plan.id)
        before = [name for name in names[: names.index(stage)] if name not in self.state.passed]
        if before:
            raise Refused(f"{', '.join(before)} must pass first", place=stage)
        own = self.plan.stages[names.index(stage)]
        if unjudged and not self.lacks_verdict(own):
            verdict = (self.state.verdicts.get(stage) or {}).get("outcome")
            why = "it is only watched" if not own.is_judged else verdict or "it was not tried yet"
            raise Refused(
                f"neither inconclusive nor idle: {why}", place=stage, hint="approve it without --unjudged"
            )
        more = {"is_unjudged": True} if unjudged else {}
        self.note(
            "approved", stage=stage, by=by, **approvals.given(self.plan.rules.timing.approval_s), **more
        )

    def lacks_verdict(self, stage: Stage) -> bool:
        """Whether it was tried and has none, so that only a person can promote it."""
        verdict = (self.state.verdicts.get(stage.name) or {}).get("outcome")
        is_idle = verdict is None and any(name in self.state.idle for name in stage.hosts)
        return verdict == Outcome.INCONCLUSIVE or is_idle or stage.name in self.state.serving

    def unjudged_command(self, stage: Stage) -> str:
        """What promotes it without a verdict."""
        return f"headrace rollout approve {self.plan.id} --stage '{stage.name}' --unjudged"

    def ask_to_stop(self, by: str) -> None:
        """Ask the controller that holds this rollout to take everything back."""
        with errors(self.folder / STOP):
            write_whole(self.folder / STOP, by)

    def stop_asked(self) -> str:
        """Who asked; empty if nobody did."""
        try:
            return (self.folder / STOP).read_text(encoding="utf-8", errors="replace")[:200] or "unknown"
        except FileNotFoundError:
            return ""

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """One command at a time on each plan, one rollout on each host. Raises Held, Busy. Reads the log again."""
        with contextlib.ExitStack() as held:
            names = [self.plan.id, *sorted({member.address for member in self.plan.members.values()})]
            with errors(root()):
                make_folder(lock_of("any").parent, 0o700)
                for name in names:
                    file = held.enter_context(lock_of(name).open("a+"))
                    _lock(file, name, self.plan.id)
                _trim(self.folder / LOG)
                sync(self.folder)  # the log may be new, and its writer killed before that
            again = Book(self.folder, self.plan)
            self.events, self.state = again.events, again.state
            yield


def _lock(file: TextIO, name: str, own: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        other = file.read(200).strip() or "another command"
        raise (Held if name == own else Busy)(
            f"{other} works on {name}", place=own, hint="one rollout at a time: wait, or end the other one"
        ) from None
    file.truncate(0)
    file.write(f"rollout {own}")
    file.flush()


def lock_of(name: str) -> Path:
    """The file that is locked while something is done to a plan or a host."""
    return root() / ".locks" / urllib.parse.quote(name, safe="")


def root() -> Path:
    return state_path(FOLDER)


def every() -> list[Book]:
    """All rollouts, the latest last; one that cannot be read is left out."""
    found = []
    for folder in folders():
        with contextlib.suppress(PlanError, StoreError):
            found.append(Book.open(folder.name))
    return found


def folders() -> Sequence[Path]:
    """Of all rollouts, the latest last."""
    if not root().is_dir():
        return []
    plans = [
        each for each in root().iterdir() if len(each.name) == ID_LENGTH and (each / "plan.json").exists()
    ]
    return sorted(plans, key=lambda each: (each / "plan.json").stat().st_mtime)


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            if line:
                events.append(json.loads(line))
        except ValueError as error:
            # The last line may have been cut off by a crash; it was not acted upon.
            if number == len(lines):
                break
            raise StoreError(f"line {number} cannot be read: {error}", place=str(path)) from error
    return events


def _trim(path: Path) -> None:
    """Drop half a line at the end, so that the next one is whole."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


@contextlib.contextmanager
def errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error
