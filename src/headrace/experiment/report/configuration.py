"""What was changed: the differences between configurations, and the values read back from the host."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.experiment.report import tables
from headrace.experiment.report.view import View
from headrace.show.parts import Cell, Cells, Column, Part, Section, Sentence, Table

#: With more configurations than this, they are the rows of the table and settings its columns.
MOST_ACROSS = 9


def section(view: View) -> Section:
    return Section("configuration", "Configuration", "What was changed?", lambda: _parts(view))


def _parts(view: View) -> Iterator[Part]:
    found = tables.differences(view.design, view.records)
    if found.cells:
        yield Sentence("Only settings that differ between configurations; bold: differs from the baseline.")
        yield _differences(found)
    else:
        yield Sentence("All treatments have the same settings.")
    applied = tables.applied(view.records)
    if applied:
        yield _applied(view, applied)


def _differences(found: tables.Differences) -> Table:
    if len(found.configurations) <= MOST_ACROSS:
        columns = [Column("setting"), *(Column(name) for name in found.configurations)]
        rows = [
            [Cell(knob, look="code"), *(_setting(*row[name]) for name in found.configurations)]
            for knob, row in found.cells.items()
        ]
    else:
        columns = [Column("configuration"), *(Column(knob, "code") for knob in found.cells)]
        rows = [
            [Cell(name), *(_setting(*row[name]) for row in found.cells.values())]
            for name in found.configurations
        ]
    return Table(columns, rows)


def _setting(value: str, differs: bool) -> Cell:
    return Cell(value, look="code changed" if differs else "code same")


def _applied(view: View, applied: list[tables.Applied]) -> Table:
    total = len({r.treatment for r in view.records if r.knobs})
    rows: list[Cells] = [
        [
            Cell(row.setting, look="code"),
            Cell(row.before, look="code"),
            Cell(row.after, look="code"),
            "all" if len(row.treatments) == total else ", ".join(row.treatments),
        ]
        for row in applied
    ]
    columns = (Column("setting"), Column("before"), Column("after"), Column("treatments", "wrap"))
    return Table(columns, rows, f"As read back from the host, before and after ({len(rows)})", is_folded=True)
