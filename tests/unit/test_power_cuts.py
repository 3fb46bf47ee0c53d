"""The store when power fails at any change of a file: nothing that was acknowledged is lost, nothing is torn.

The disk is the model of ``tests/power_model.py``; ``HEADRACE_SEED`` selects what each cut leaves.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.base.model import Facts, TrialState
from headrace.experiment.plan import TargetTable
from headrace.experiment.store import ExperimentFolder, TrialDraft, TrialRecord
from headrace.host import arrow
from tests.agent.test_store import DESIGN, record
from tests.power_model import SEED, Promised
from tests.unit.test_crash_points import short
from tests.unit.test_loops import Bench

FACTS = Facts("f" * 64, {"hostname": "lab1"})
DISTURBED = replace(record(1), state=TrialState.INVALID, reason="disturbed", facts_hash=FACTS.hash)
GOOD = replace(record(1), facts_hash=FACTS.hash)


@dataclass(frozen=True)
class State:
    """What of an experiment can be read; None: there is none."""

    trials: tuple[TrialRecord, ...] = ()
    aside: tuple[int, ...] = ()
    addresses: tuple[str, ...] = ()
    report: str = ""


def begun(folder: ExperimentFolder, number: int) -> TrialDraft:
    draft = folder.begin_trial(number)
    (draft.raw / "out.txt").write_text(f"{number}\n" * 100)
    return draft


def commit(folder: ExperimentFolder, own: TrialRecord) -> None:
    begun(folder, own.number).commit(own, arrow.empty_data())


def work(root: Path, promised: Promised[State | None]) -> None:
    """Each operation of a store, with what it has promised when it returns."""

    def now(**more: object) -> None:
        promised.now(replace(promised.states[-1] or State(), **more))  # type: ignore[arg-type]

    own = ExperimentFolder.create(root / "experiments" / "e", 'name = "t"\n', DESIGN)
    now()
    own.save_facts(FACTS)
    commit(own, DISTURBED)
    now(trials=(DISTURBED,))
    commit(own, record(2))
    now(trials=(DISTURBED, record(2)))
    commit(own, GOOD)
    now(trials=(GOOD, record(2)))
    own.remove_trial(2)
    now(trials=(GOOD,))
    other = ExperimentFolder.create(root / "other", "", DESIGN)
    commit(other, record(3))
    own.adopt_trial(other, 3, lambda told: replace(told, machine="db1"))
    now(trials=(GOOD, replace(record(3), machine="db1")))
    own.set_aside(3)
    now(trials=(GOOD,), aside=(3,))
    own.renew(replace(DESIGN, target=TargetTable(addresses=["root@a", "root@b"])))
    now(addresses=("root@a", "root@b"))
    for text in ("first\n" * 100, "second\n" * 100):
        own.write_output("report.html", text)
        now(report=text)


def found(root: Path) -> State | None:
    """Raises StoreError for what is torn."""
    path = root / "experiments" / "e"
    if not path.exists():
        return None
    folder = ExperimentFolder.open(path)
    assert folder.plan_text() == 'name = "t"\n'
    for each in folder.trials():
        read_all(folder, each)
        raw = folder.trial_path(each.number) / "raw" / "out.txt"
        assert raw.read_text() == f"{each.number}\n" * 100
    report = path / "report.html"
    # In the model one move is two changes: what has just been set aside may still be there, too.
    aside = {int(p.parent.name[:4]) for p in path.glob("set-aside/*/trial.json")}
    return State(
        tuple(folder.trials()),
        tuple(aside - {each.number for each in folder.trials()}),
        tuple(folder.design.target.addresses),
        report.read_text() if report.exists() else "",
    )


def read_all(folder: ExperimentFolder, each: TrialRecord) -> None:
    if each.facts_hash:
        assert folder.facts(each.facts_hash).data
    folder.latency_rows(each.number)
    for name in ("intervals", "samples"):
        pq.read_table(folder.trial_path(each.number) / f"{name}.parquet")


def test_no_operation_of_the_store_loses_or_tears_what_it_has_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, promised = tmp_path / "live", Promised[State | None](None)
    live.mkdir()
    with promised.cut(live, 8, monkeypatch):
        work(live, promised)
    for cut, place, known in promised.cuts(tmp_path):
        assert found(place) in known, cut


def test_what_a_killed_run_had_renamed_stays_once_another_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, promised = tmp_path / "live", Promised[State | None](None)
    (live / "experiments").mkdir(parents=True)
    other = ExperimentFolder.create(live / "other", 'name = "t"\n', DESIGN)
    commit(other, record(2))
    with promised.cut(live, 8, monkeypatch):
        # It was killed before it synced these names.
        other.trial_path(2).rename(other.path / "facts" / "moved")
        other.path.rename(live / "experiments" / "e")
        own = ExperimentFolder.open(live / "experiments" / "e")
        (own.path / "facts" / "moved").rename(own.trial_path(2))
        own.discard_drafts()
        promised.now(State((record(2),)))
    for cut, place, known in promised.cuts(tmp_path):
        assert len(known) == 2 or found(place) in known, cut


# The command: power fails in it, and then it continues.

Trials = tuple[TrialRecord, ...]
#: Of so many cuts, one is continued.
EVERY = 60


@pytest.mark.parametrize("kind", ["ladder", "duet"])
def test_a_run_continues_after_a_cut_with_all_that_it_had_stored(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = made(kind, tmp_path / "live", monkeypatch)
    live.host.fates[2] = ["disturb"]
    promised = Promised[Trials](())
    with noted(promised, monkeypatch), promised.cut(live.output.parent, 1, monkeypatch):
        live.sound("--json")
    whole = live.trials()
    for number, (cut, place, known) in enumerate(promised.cuts(tmp_path)):
        stored = stored_in(place / "out")
        assert stored in known, cut
        # The whole command takes long, unlike reading what is there.
        if number % EVERY == SEED % EVERY:
            again = made(kind, place, monkeypatch)
            again.sound("--json")
            assert again.trials() == whole, cut
            assert not done(kind, stored) & set(again.host.measured), cut
            assert not list(again.output.rglob(".*.part")), cut


def made(kind: str, folder: Path, patch: pytest.MonkeyPatch) -> Bench:
    if kind == "ladder":
        return short(folder, patch)
    folder.mkdir(exist_ok=True)
    return Bench(kind, folder, patch)


def done(kind: str, stored: Trials) -> set[int]:
    """The trials that are not measured again: of a duet, whose pair is there."""
    good = [each for each in stored if each.state is TrialState.COMPLETE]
    pairs = Counter(each.block for each in good)
    return {each.number for each in good if kind != "duet" or pairs[each.block] == 2}


@contextlib.contextmanager
def noted(promised: Promised[Trials], patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trials are promised when they are stored, until they are removed."""
    commit, remove = TrialDraft.commit, ExperimentFolder.remove_trial
    trials: dict[int, TrialRecord] = {}

    def committed(draft: TrialDraft, own: TrialRecord, data: arrow.TrialData) -> None:
        commit(draft, own, data)
        trials[own.number] = own
        promised.now(tuple(trials[n] for n in sorted(trials)))

    def removed(folder: ExperimentFolder, number: int) -> None:
        remove(folder, number)
        if trials.pop(number, None):
            promised.now(tuple(trials[n] for n in sorted(trials)))

    with patch.context() as inner:
        inner.setattr(TrialDraft, "commit", committed)
        inner.setattr(ExperimentFolder, "remove_trial", removed)
        yield


def stored_in(path: Path) -> Trials:
    """The trials, each read to its end."""
    if not path.exists():
        return ()
    folder = ExperimentFolder.open(path)
    for each in folder.trials():
        read_all(folder, each)
        assert (folder.trial_path(each.number) / "raw" / "stdout.txt").read_text() == "begun\n"
    if (path / "report.json").exists():
        json.loads((path / "report.json").read_text())
    return tuple(folder.trials())
