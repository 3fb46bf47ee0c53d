"""Files that benchmarks wrote, as rows: which tool, which runs in it, and whether they can be compared."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.base.counted import counted
from headrace.base.errors import PlanError
from headrace.experiment.foreign import logs
from headrace.experiment.foreign import names as names_of
from headrace.experiment.foreign.alike import DURATIONS, meaning, unified
from headrace.experiment.foreign.brought import are_alike, brought_along
from headrace.experiment.foreign.confounded import confounded
from headrace.experiment.foreign.formats import FORMATS
from headrace.experiment.foreign.row import Row, Table
from headrace.experiment.foreign.run import OtherVariant, Run, documents
from headrace.experiment.foreign.table import decoded

#: What a reader that knows its own form stumbles on: a number, a line or a key that is cut off.
_DAMAGED = (ArithmeticError, AttributeError, csv.Error, LookupError, RecursionError, TypeError, ValueError)
#: Files or runs named in a note or an error.
MOST_NAMED = 3
#: So many numbers that are all equal in two runs are no coincidence.
LEAST_NUMBERS = 4


@dataclass(frozen=True)
class _Placed:
    """A run and where it is from: the file, its number there if there are several, the levels in the name."""

    place: str
    levels: Mapping[str, str]
    run: Run


def read_outputs(
    paths: Sequence[Path],
    names: str,
    responses: Collection[str] = (),
    factors: Collection[str] = (),
    mixed: Collection[str] = (),
) -> Table:
    """A row for each run of any known benchmark.

    ``names`` takes levels from the file's path, as in ``results/{kernel}/{filesystem}-{threads}.json``: braces
    match the text in between. What a run says of itself (``threads``, ``duration_s``, ...) is also a level.
    Runs that failed or are incomplete, and those in which a response of ``responses`` is 0, are left out and
    named. Raises PlanError for a name that does not match, an unknown benchmark, no run that is left, a
    response that some runs lack, and runs that differ in what is neither in ``factors`` nor in ``mixed``.
    """
    pattern = _pattern(names)
    placed = []
    for path in paths:
        match = pattern.search(str(path))
        if match is None:
            raise PlanError(f"the name does not fit {names!r}", place=str(path), hint="see --names")
        placed += _runs(path, match.groupdict())
    good = [each for each in placed if not each.run.problem]
    notes = _failed([each for each in placed if each.run.problem], len(placed))
    if not good:
        raise PlanError("no run is left: " + "; ".join(notes), hint="run them again until they end well")
    notes += _copies(good)
    _check_responses(good, responses)
    notes += _assumed(good)
    good, zeros = _without_zeros(good, responses, factors)
    _check_alike(good, {*factors, *mixed})
    notes += brought_along([(each.run.about, _all(each), each.place) for each in good], factors, mixed)
    lines = [(each.place, _all(each)) for each in good]
    # File names on some systems have no capitals, and people forget them on the others.
    named = list(good[0].levels)
    own = [name for name in named if name in factors or not factors]
    alike = unified(lines, own) + confounded(lines, own, responses, named)
    rows = (
        Row(place, levels, _positive(each.run.responses))
        for (place, levels), each in zip(lines, good, strict=True)
    )
    return Table(tuple(rows), tuple(notes + zeros + alike))


def _pattern(names: str) -> re.Pattern[str]:
    parts = re.split(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", names)
    if len(parts) == 1:
        raise PlanError(
            f"--names {names!r} has no factor in braces", hint="such as 'fio-{filesystem}-{chunk}.json'"
        )
    try:
        return re.compile(
            "".join(re.escape(part) if i % 2 == 0 else f"(?P<{part}>[^/]+?)" for i, part in enumerate(parts))
            + "$"
        )
    except re.error as error:
        raise PlanError(f"--names {names!r}: a factor appears twice") from error


def _runs(path: Path, levels: Mapping[str, str]) -> list[_Placed]:
    text, ended = logs.parted(logs.plain(decoded(path)[0]))
    if not text.strip():
        return [_Placed(str(path), levels, Run(problem="the file is empty: nothing ran, or it was killed"))]
    variants = dict.fromkeys((text, logs.flush(text), logs.unnamed(text)))
    runs: list[Run] = next(filter(None, (_read(path, each) for each in variants)), [])
    if runs:
        # What ended the program that wrote the last of them.
        if ended and not runs[-1].problem:
            runs[-1] = replace(runs[-1], problem=f"the log says {ended!r} at its end")
        count = len(runs)
        return [
            _Placed(f"{path}, run {number}" if count > 1 else str(path), levels, run)
            for number, run in enumerate(runs, 1)
        ]
    if text.lstrip().startswith(("{", "[")) and len(documents(text)) > 1:
        raise PlanError(
            "several results in JSON in one file", place=str(path), hint="write a file for each run"
        )
    raise PlanError(
        f"not the output of {', '.join(tool.NAME for tool in FORMATS)}",
        place=str(path),
        hint="make a table of it, with a line per run: headrace import table.csv --factor ... --response ...",
    )


def _read(path: Path, text: str) -> list[Run]:
    for tool in FORMATS:
        try:
            runs: list[Run] | None = tool.read(text)
        except OtherVariant as variant:
            raise PlanError(f"{variant}: not read", place=str(path), hint=variant.hint) from variant
        except _DAMAGED as error:
            raise PlanError(
                f"looks like {tool.NAME}, and is damaged: {str(error)[:200]}",
                place=str(path),
                hint="run it again, or make a table of what can be read",
            ) from error
        if runs:
            return runs
    return []


def _named(places: Sequence[str]) -> str:
    more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
    return f"{', '.join(places[:MOST_NAMED])}{more}"


def _failed(runs: Sequence[_Placed], of: int) -> list[str]:
    """One sentence per problem."""
    by_problem: dict[str, list[str]] = {}
    for each in runs:
        by_problem.setdefault(each.run.problem, []).append(each.place)
    return [
        f"{len(places)} of {counted(of, 'run')} left out: {problem} ({_named(places)})"
        for problem, places in by_problem.items()
    ]


def _copies(runs: Sequence[_Placed]) -> list[str]:
    """A note on runs with every number of an earlier one. They count: only a person knows which was measured."""
    first: dict[tuple[tuple[tuple[str, str], ...], tuple[tuple[str, float], ...]], str] = {}
    pairs = []
    for each in runs:
        about = {**each.run.about, **each.run.settings}
        own = (tuple(sorted(about.items())), tuple(sorted(each.run.responses.items())))
        early = first.setdefault(own, each.place)
        if early != each.place and len({*each.run.responses.values()}) >= LEAST_NUMBERS:
            pairs.append(f"{each.place} that of {early}")
    if not pairs:
        return []
    what = (
        f"{counted(len(pairs), 'run')} {'has' if len(pairs) == 1 else 'have'} every number of an earlier one"
    )
    return [f"{what} ({_named(pairs)}): copies are not measurements"]


def _assumed(runs: Sequence[_Placed]) -> list[str]:
    """One sentence per thing that had to be taken for granted."""
    by_sentence: dict[str, list[str]] = {}
    for each in runs:
        if each.run.assumed:
            by_sentence.setdefault(each.run.assumed, []).append(each.place)
    return [f"taken for granted: {said} ({_named(places)})" for said, places in by_sentence.items()]


def _check_responses(runs: Sequence[_Placed], responses: Collection[str]) -> None:
    for name in responses:
        without = [each for each in runs if name not in each.run.responses]
        if not without:
            continue
        there = ", ".join(sorted({response for each in without for response in each.run.responses}))
        raise PlanError(
            f"{len(without)} of {len(runs)} runs have no {name}; they have {there or 'nothing'}",
            place=_named([each.place for each in without]),
            hint="name a response that every run has, or leave these files out",
        )


def _without_zeros(
    runs: Sequence[_Placed], responses: Collection[str], factors: Collection[str]
) -> tuple[list[_Placed], list[str]]:
    """The runs whose responses are above 0, and a note on the others: an effect is a ratio, and 0 has none."""
    notes = []
    left = list(runs)
    for name in responses:
        zero = [each for each in left if each.run.responses[name] <= 0]
        if not zero:
            continue
        levels = sorted({_levels_of(each, factors) for each in zero})
        notes.append(
            f"{name} is 0 in {len(zero)} of {counted(len(left), 'run')} "
            f"({_named([each.place for each in zero])}): "
            f"{_named(levels)} did nothing, worse than any ratio can say: they are not among the ratios"
        )
        left = [each for each in left if each.run.responses[name] > 0]
        if not left:
            raise PlanError(f"{name} is 0 in every run", hint="there is nothing to compare")
    return left, notes


def _levels_of(placed: _Placed, factors: Collection[str]) -> str:
    """``filesystem=xfs, threads=16``."""
    known = _all(placed)
    return ", ".join(f"{name}={known[name]}" for name in factors if name in known)


def _all(placed: _Placed) -> dict[str, str]:
    """What is known of a run: the levels in its file's name say more than it does itself."""
    return {**placed.run.about, **placed.run.settings, **placed.levels}


def _check_alike(runs: Sequence[_Placed], allowed: Collection[str]) -> None:
    """Raises PlanError if runs differ in how they ran, and not by a factor."""
    settings = {name for each in runs for name in each.run.settings if name not in each.levels}
    for name in sorted(settings - set(allowed)):
        values: dict[str, list[str]] = {}
        for each in runs:
            values.setdefault(each.run.settings.get(name, "unknown"), []).append(each.place)
        if (
            len(values) < 2
            or (names_of.setting(name) in DURATIONS and (are_alike(list(values)) or _did_the_same(runs)))
            or _is_a_level(runs, name)
        ):
            continue
        shown = "; ".join(
            f"{value} in {_named(places)}" for value, places in list(values.items())[:MOST_NAMED]
        )
        raise PlanError(
            f"the runs differ in {name}: {shown}",
            hint=f"--factor {name} makes it a factor; --mixed {name} compares them all the same",
        )


def _is_a_level(runs: Sequence[_Placed], setting: str) -> bool:
    """Whether a level of the file's name says the same: ``{chunk}`` is 16k where the block size is."""
    return any(
        all(
            setting in each.run.settings
            and meaning(each.levels[factor]) == meaning(each.run.settings[setting])
            for each in runs
        )
        for factor in runs[0].levels
    )


def _did_the_same(runs: Sequence[_Placed]) -> bool:
    """Whether all ended when so much was done: then their time is a result."""
    return len({each.run.work for each in runs}) == 1 and runs[0].run.work is not None


def _positive(responses: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in responses.items() if value > 0 and math.isfinite(value)}
