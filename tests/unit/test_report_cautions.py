"""What a report cautions against: blocks that were not measured together, trials that were selected."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.base.model import TrialState
from headrace.experiment import report, store
from headrace.experiment.report import tables
from headrace.experiment.report.page import page_of
from headrace.experiment.report.view import View
from headrace.experiment.stats.study import analyse_experiment
from headrace.show import terminal
from tests import synthetic
from tests.written import LADDER, Outline, Written, printed


def moved(
    records: list[store.TrialRecord], number: int, later_s: float, **more: Any
) -> list[store.TrialRecord]:
    """The same trials, but that one was measured (again) so much later."""
    changed = []
    for record in records:
        if record.number == number:
            times_ns = {name: t + int(later_s * 1e9) for name, t in record.times_ns.items()}
            record = replace(record, times_ns=times_ns, **more)
        changed.append(record)
    return changed


def test_blocks_that_share_their_time_and_host_need_no_caution(ladder: Written) -> None:
    assert tables.cautions(ladder.folder.trials()) == []
    assert ladder.json["cautions"] == []


def test_trials_selected_by_the_drivers_delay_are_a_caution(ladder: Written) -> None:
    records = ladder.folder.trials()
    names = list(dict.fromkeys(r.treatment for r in records))

    def late(treatment: str, number: int) -> list[store.TrialRecord]:
        own = [r.number for r in records if r.treatment == treatment and r.state is TrialState.COMPLETE]
        reason = "the driver was late: p99 2.10 ms of its own delay"
        return [
            replace(r, state=TrialState.INVALID, reason=reason) if r.number in own[:number] else r
            for r in records
        ]

    assert tables.cautions(late(names[1], 1)) == []
    (caution,) = tables.cautions(late(names[1], 2))
    assert caution.startswith("the load driver itself made 2 of ")
    assert f"trials of {names[1]} invalid, and 0 of " in caution
    # All alike: nothing is selected.
    alike = [replace(r, state=TrialState.INVALID, reason="the driver was saturated") for r in records]
    assert not any("selected" in text for text in tables.cautions(alike))


def test_a_block_measured_over_days_is_a_caution(ladder: Written, tmp_path: Path) -> None:
    records = ladder.folder.trials()
    in_3 = next(r for r in records if r.block == 3 and r.state is TrialState.COMPLETE)
    caution = "trials of block 3 were measured 3 days apart: pairing cannot cancel what changed in between"
    assert tables.cautions(moved(records, in_3.number, 3 * 86_400 + 400)) == [caution]
    two = moved(moved(records, in_3.number, 3 * 86_400 + 400), 1, 7200)
    assert tables.cautions(two)[0].startswith("trials of blocks 1, 3 were measured up to 3 days apart")
    # Trials of 30 s: ten minutes are 20 of them.
    assert len(tables.cautions(moved(records, 45, 900))) == 1
    assert tables.cautions(moved(records, 45, 300)) == []
    # What is not analysed may have been measured at any time.
    assert tables.cautions(moved(records, in_3.number, 9e5, state=TrialState.INVALID)) == []

    folder = synthetic.make(tmp_path / "e", replace(LADDER, gap_trial=0, reset_trial=0))
    (late,) = [r for r in moved(records, in_3.number, 3 * 86_400 + 400) if r.number == in_3.number]
    path = folder.trial_path(late.number) / "trial.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"times_ns": late.times_ns}))
    analysis = analyse_experiment(folder)
    written = page_of(View(folder, analysis))
    page = report.write(written, folder).read_text()
    assert f"Caution: {caution}." in Outline(page).text
    assert caution in printed(terminal.render(written), width=200)
    assert json.loads((folder.path / "report.json").read_text())["cautions"] == [caution]
    # The order of execution is that of the clock.
    cells = re.findall(r'class="cell [^"]*" title="trial (\d+),', page)
    numbers = [r.number for r in records if r.block == 3]
    numbers.remove(late.number)
    start = cells.index(str(numbers[0]))
    assert cells[start : start + 9] == [*map(str, numbers), str(late.number)]


def test_a_failed_trial_without_an_end_is_no_gap(ladder: Written) -> None:
    records = [
        replace(r, times_ns={"started": r.times_ns["started"]}) if r.state is TrialState.FAILED else r
        for r in ladder.folder.trials()
    ]
    assert tables.cautions(records) == []


def test_a_host_or_program_that_changed_within_a_block_is_a_caution(ladder: Written) -> None:
    records = ladder.folder.trials()
    facts = [replace(r, facts_hash="e" * 64) if r.number > 40 else r for r in records]
    assert tables.cautions(facts) == [
        "trials of block 5 ran on a host with different facts: pairing cannot cancel what changed in between"
    ]
    upgraded = [
        replace(r, versions=r.versions | {"mariadbd": "11.4"}) if r.number > 40 else r for r in records
    ]
    assert tables.cautions(upgraded) == [
        "trials of block 5 ran with different versions of mariadbd: pairing cannot cancel what changed in "
        "between"
    ]
    between = [replace(r, facts_hash="e" * 64) if r.block > 3 else r for r in records]
    assert tables.cautions(between) == []


def test_versions_that_are_the_treatments_own_are_no_caution(ladder: Written) -> None:
    records = [
        replace(r, versions=r.versions | {"mariadbd": "11.4"}) if r.treatment == "ALL" else r
        for r in ladder.folder.trials()
    ]
    assert tables.cautions(records) == []
