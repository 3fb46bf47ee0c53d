"""What rollouts did to hosts, with what was proven: rows of the list of changes, and marks on every chart.

A rollout switches its change on and off in blocks; a host's journal has each switch. Here a host has one row for
the start of its trial and one for the end, with the verdict of its stage and the interval that decided it.
The changes of an experiment's trials, which are undone after each, are one row for its start and one for its end.
What it only prepares for itself, a volume and a private server, is no change of the host. A setting that a server
shows under two names changed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from headrace.base.errors import PlanError, StoreError
from headrace.history.archive.reader import Range
from headrace.host.moved import unlike
from headrace.knobs.values import is_second_name
from headrace.rollout.book import LOG, Book, folders
from headrace.rollout.plan import Stage
from headrace.rollout.report import rollout as report

Row = dict[str, Any]

#: Words of a stage that say nothing of an effect yet.
OPEN = ("to come", "needs approval", "approved")
#: Who changes a host for the trials of an experiment: its name and the start of its design's hash.
EXPERIMENT = re.compile(r"headrace-(?P<name>.+)-[0-9a-f]{12}")
#: Who prepares what only its trials use.
PREPARES = re.compile(EXPERIMENT.pattern + r"/.+")
#: An experiment whose changes are further apart was continued.
PAUSE_S = 900.0


def with_rollouts(
    rows: Sequence[Mapping[str, Any]], books: Sequence[Book], names: Sequence[str], span: Range
) -> list[Row]:
    """The changes of these hosts, newest first; rollouts and experiments have rows of their own."""
    own = tuple(f"/{book.plan.id}-" for book in books)
    kept = [
        {**row, **_NOTHING}
        for row in _without_trials(_once(rows))
        if not any(each in (row["who"] or "") for each in own)
    ]
    ours = [row for book in books for row in _rows(book, names) if span.since_s <= row["at_s"] < span.until_s]
    found = sorted(kept + ours, key=lambda row: -row["at_s"])
    return [{**row, "mark": _mark(row)} for row in found]


def books_since(since_s: float) -> list[Book]:
    """Rollouts that did anything since then. A log that did not grow is not read again."""
    found = []
    for folder in folders():
        try:
            status = (folder / LOG).stat()
            if status.st_mtime < since_s:
                continue
            seen = status.st_mtime_ns, status.st_size
            if (known := _read.get(folder)) is None or known[0] != seen:
                _read[folder] = known = seen, Book.open(folder.name)
        except (OSError, PlanError, StoreError):
            continue  # planned only, or damaged: its own page says so
        found.append(known[1])
    return found


_read: dict[Path, tuple[tuple[int, int], Book]] = {}
_NOTHING = {"verdict": "", "response": "", "effect": "", "rollout": ""}


def _rows(book: Book, names: Sequence[str]) -> Iterator[Row]:
    for stage in book.plan.stages:
        for host in stage.hosts:
            if host in names:
                yield from _of_host(book, stage, host)


def of_stages(book: Book, names: Sequence[str]) -> list[Row]:
    """Newest first: of each stage when the first of these hosts was on trial, and when the last one ended."""
    marked: list[Row] = []
    for stage in book.plan.stages:
        hosts = [host for host in stage.hosts if host in names]
        rows = [row for host in hosts for row in _of_host(book, stage, host)]
        about = {"stage": stage.name, "hosts": ", ".join(hosts)}
        begun = [row for row in rows if row["kind"] == "on trial"]
        ended = [row for row in rows if row["kind"] != "on trial"]
        if begun:
            # Said of the end, if there is one.
            first = min(begun, key=lambda row: float(row["at_s"]))
            marked.append({**first, **about, **({"verdict": "", "effect": ""} if ended else {})})
        if ended:
            marked.append({**max(ended, key=lambda row: float(row["at_s"])), **about})
    marked.sort(key=lambda row: -float(row["at_s"]))
    return [{**row, "mark": _mark(row)} for row in marked]


def _once(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without second names of a setting, and without what experiments prepare."""
    names: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        names.setdefault(_moment(row), {})[str(row["what"])] = ""
    return [
        row
        for row in rows
        if not PREPARES.fullmatch(row["who"] or "")
        and not (row["kind"] == "settings" and is_second_name(str(row["what"]), names[_moment(row)]))
    ]


def _moment(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["host"], row["kind"], int(row["at_s"]), row["before"], row["after"]


def _without_trials(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """All rows but those of experiments, which have one where their trials start and one where they end."""
    trials: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: float(row["at_s"])):
        if EXPERIMENT.fullmatch(row["who"] or ""):
            trials.setdefault((row["host"], row["who"]), []).append(row)
        else:
            yield row
    for each in trials.values():
        breaks = [
            i for i, (one, next_) in enumerate(pairwise(each), 1) if next_["at_s"] - one["at_s"] > PAUSE_S
        ]
        for start, end in pairwise([0, *breaks, len(each)]):
            yield from _of_trials(each[start:end])


def _of_trials(rows: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    found = EXPERIMENT.fullmatch(rows[0]["who"])
    assert found is not None
    settings = sorted({str(row["what"]) for row in rows if row["after"]})
    row = {
        **rows[0], "what": ", ".join(settings) or "nothing kept", "before": "", "after": "",
        "who": f"experiment {found['name']}",
    }  # fmt: skip
    yield {**row, "kind": "trials"}
    if rows[-1]["at_s"] > rows[0]["at_s"]:
        yield {**row, "kind": "trials over", "at_s": rows[-1]["at_s"]}


def _of_host(book: Book, stage: Stage, host: str) -> Iterator[Row]:
    plan, state = book.plan, book.state
    events = [each for each in book.events if each.get("host") == host]
    word, _, _ = report.standing(book, stage)
    row = {
        "host": host,
        "what": report.settings(plan),
        "before": ", ".join(
            unlike(str(value), str(plan.settings.get(knob, "")))[0]
            for knob, value in plan.members[host].now.items()
        ),
        "after": ", ".join(str(value) for value in plan.settings.values()),
        "who": f"rollout {plan.id}",
        "verdict": "" if word in OPEN else word,
        "response": plan.question().response,
        "effect": report.effect(state, stage) or "",
        "rollout": plan.id,
    }
    ends = [{**row, "kind": "kept", "at_s": each["t"]} for each in events if each["kind"] == "kept"]
    undone = [each["t"] for each in events if each["kind"] == "undone"]
    if state.aborting and undone and host not in state.kept and not state.open.get(host):
        back = {"before": row["after"], "after": row["before"], "kind": "taken back", "at_s": undone[-1]}
        ends.append({**row, **back})
    yield from ends
    starts = [each["t"] for each in events if each["kind"] == "applying"]
    if starts:
        # One line of a chart says what was proven: the end, if there is one.
        yield {
            **row,
            **({"verdict": "", "effect": ""} if ends else {}),
            "kind": "on trial",
            "at_s": starts[0],
        }


def _mark(row: Mapping[str, Any]) -> str:
    """What a chart says of it; empty if nothing was proven, so that its number is enough."""
    if not row["verdict"]:
        return ""
    effect = f"{row['response']} {row['effect']}, " if row["effect"] else ""
    return f"{row['kind']}: {row['what']}; {effect}{row['verdict']}"
