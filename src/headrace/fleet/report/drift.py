"""What differs between hosts, as a table that folds them, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.base.counted import counted
from headrace.base.effect import Verdict
from headrace.fleet.drift import Area, Between, Difference, Drift, OwnDrift
from headrace.fleet.evidence import Measured, Ranked
from headrace.fleet.folded import named
from headrace.fleet.report.hosts import Roll
from headrace.fleet.runner import State
from headrace.host.ranges import fold
from headrace.show.notice import Conclusion, Notice, Told
from headrace.show.parts import Cell, Cells, Gap, Heading, Note, Part, Sentence, Sentences, Table

#: Longer values are cut on a terminal.
MOST_VALUE = 60
WHAT = {
    Between.FILE: "running differs from the file: changes with the next start",
    Between.PERSISTED: "running differs from SET PERSIST: changes with the next start",
    Between.BOTH: "SET PERSIST overrides the file",
    Between.NOWHERE: "set while running and in no file: lost with the next start",
}


def parts(drift: Drift, rows: Sequence[Ranked], *, everything: bool = False) -> Iterator[Part]:
    yield Gap()
    if drift.hosts < 2:
        yield Note("there are not two hosts to compare", is_attention=True)
    else:
        yield Sentence(_headline(drift, rows), "verdict")
    for gap, hosts in drift.gaps.items():
        yield Note(f"{named(hosts, drift.hosts)}: {gap}", is_attention=True)
    quiet = [row for row in rows if row.loss_hosts == 0]
    shown = rows if everything else [row for row in rows if row.loss_hosts != 0]
    if shown:
        yield Gap()
        yield _table(shown, any(row.measured for row in shown))
    if quiet and not everything:
        names = ", ".join(row.difference.name for row in quiet)
        yield Sentence(f"no cost was measured for {names} (--all shows them)", "aside")
    if drift.own:
        yield Gap()
        yield Heading("Running, in files, persisted")
        yield _own(drift.own)
    if drift.failovers:
        yield Gap()
        yield Heading("Slower after a failover")
        yield Sentences(
            [
                f"{found.replica} in place of {found.source}: {'; '.join(found.reasons)}"
                for found in drift.failovers
            ]
        )


def _headline(drift: Drift, rows: Sequence[Ranked]) -> str:
    odd = {host for row in rows for host in row.difference.odd}
    masked = f"{len(drift.masked)} that are specific to a host are left out"
    if not rows:
        return f"The hosts agree in all {drift.compared} settings; {masked}."
    return (
        f"{len(rows)} of {drift.compared} settings differ, on {len(odd)} of "
        f"{counted(drift.hosts, 'host')}; {masked}."
    )


def _table(rows: Sequence[Ranked], has_measured: bool) -> Table:
    cells: list[Cells] = []
    for row in rows:
        difference = row.difference
        groups = difference.groups if difference.usual is None else difference.groups[1:]
        for number, (value, hosts) in enumerate(groups):
            own = [each for each in row.measured if each.value == value]
            cells.append(
                [
                    Cell(fold(hosts), style="bold"),
                    f"{_name(difference)} = {_cut(value)}",
                    _usual(difference) if number == 0 else "",
                    *([_said(own[0]) if own else ""] if has_measured else []),
                ]
            )
    columns = [("hosts", "wrap"), ("setting", "wrap"), ("the others", "wrap")]
    return Table([*columns, *([("measured", "wrap")] if has_measured else [])], cells)


def _name(difference: Difference) -> str:
    """The area is said where the name does not."""
    is_plain = difference.area in (Area.VARIABLE, Area.SYSCTL)
    return difference.name if is_plain else f"{difference.area} {difference.name}"


def _usual(difference: Difference) -> str:
    if difference.usual is None:
        return "no value is usual"
    return f"{_cut(difference.usual)} on {len(difference.groups[0][1])}"


def _said(measured: Measured) -> str:
    """``costs 9% (6 to 12) of throughput: io of 3 May 2026``."""
    ratio = measured.ratio
    where = f"{measured.experiment} of {measured.day}"
    if measured.verdict is Verdict.NOT_ENOUGH_DATA:
        return f"not enough data in {where}"
    if measured.verdict is Verdict.EQUIVALENT:
        return f"costs nothing that could be seen in {where}"
    percent = sorted(100 * (each - 1) for each in (ratio.low, ratio.high) if each is not None)
    span = f" ({' to '.join(sorted((f'{abs(each):.0f}' for each in percent), key=int))})" if percent else ""
    verb = "costs" if measured.verdict is Verdict.WORSE else "gains"
    return f"{verb} {abs(100 * (ratio.estimate - 1)):.0f}%{span} of {measured.response} in {where}"


def _own(found: Sequence[OwnDrift]) -> Table:
    rows: list[Cells] = [
        [
            Cell(fold(each.hosts), style="bold"),
            f"{each.name} = {_cut(each.running)}",
            f"{_cut(each.named)} ({each.file})" if each.file else "",
            WHAT[each.between],
        ]
        for each in sorted(found, key=lambda each: (list(Between).index(each.between), each.name))
    ]
    return Table((("hosts", "wrap"), ("now", "wrap"), ("lasting", "wrap"), ("", "wrap")), rows)


def _cut(value: str) -> str:
    value = value or "(empty)"
    return value if len(value) <= MOST_VALUE else f"{value[: MOST_VALUE - 1]}…"


def notice(drift: Drift, rows: Sequence[Ranked], roll: Roll) -> Notice:
    """Worse if a difference is measured to cost something, or a replica would be slower after a failover. If the
    odd hosts are the faster ones, the usual value is what costs.
    """
    measured = [(row.difference.name, each.of_slower) for row in rows for each in row.measured]
    verdicts = {each.verdict for _, each in measured}
    if drift.hosts < 2:
        conclusion, said = Conclusion.NOT_ENOUGH_DATA, "There are not two hosts to compare."
    else:
        said = _headline(drift, rows)
        if Verdict.WORSE in verdicts or drift.failovers:
            conclusion = Conclusion.WORSE
        else:
            conclusion = Conclusion.DIFFERENT if rows or drift.own else Conclusion.NOTHING_FOUND
    return Notice(
        kind="fleet drift",
        subject=counted(roll.total, "host"),
        conclusion=conclusion,
        headline=said,
        effects=tuple(
            Told(
                f"{name} = {_cut(each.value)}, not {_cut(each.usual)}",
                each.response,
                each.ratio,
                each.verdict,
            )
            for name, each in measured
        ),
        counts={
            **{f"hosts {state}": roll.states[state] for state in State},
            "settings that differ": len(rows),
            "settings unlike their file": len(drift.own),
            "replicas slower after a failover": len(drift.failovers),
        },
    )


def to_json(drift: Drift, rows: Sequence[Ranked]) -> dict[str, Any]:
    return {
        "hosts_compared": drift.hosts,
        "settings_compared": drift.compared,
        "masked": list(drift.masked),
        "gaps": [{"why": why, "hosts": list(hosts)} for why, hosts in drift.gaps.items()],
        "differences": [
            {
                "area": str(row.difference.area),
                "name": row.difference.name,
                "usual": row.difference.usual,
                "values": [{"value": value, "hosts": list(hosts)} for value, hosts in row.difference.groups],
                "loss_hosts": row.loss_hosts,
                "measured": [_measured_json(each) for each in row.measured],
            }
            for row in rows
        ],
        "own": [
            {
                "between": each.between.name.lower(),
                "area": str(each.area),
                "name": each.name,
                "running": each.running,
                "lasting": each.named,
                "file": each.file,
                "hosts": list(each.hosts),
            }
            for each in drift.own
        ],
        "failovers": [
            {"replica": each.replica, "source": each.source, "reasons": list(each.reasons)}
            for each in drift.failovers
        ],
    }


def _measured_json(measured: Measured) -> dict[str, Any]:
    ratio = measured.ratio
    return {
        "experiment": measured.experiment,
        "day": measured.day,
        "response": measured.response,
        "value": measured.value,
        "relative_to": measured.usual,
        "ratio": ratio.estimate,
        "low": ratio.low,
        "high": ratio.high,
        "verdict": str(measured.verdict),
    }
