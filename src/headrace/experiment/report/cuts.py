"""What power cuts took from each treatment."""

from __future__ import annotations

from headrace.base.counted import counted
from headrace.experiment.report.view import View
from headrace.experiment.stats.cuts import Lost
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Key, Section, Table

SEE = (
    "Counted are transactions that the server had acknowledged before the power failed. The disk keeps what was "
    "flushed, and any part of the rest, by blocks of 4 KiB. It is a file behind qemu-storage-daemon: the losses "
    "are those that settings and file system allow; its speed says nothing about a real disk."
)


def section(view: View) -> Section:
    """Without parts where no power was cut."""
    taken = view.lost
    if not taken:
        return Section("cuts", "Power cuts", "What does a power cut take?", data={"power_cuts": []})
    data = {"power_cuts": [each.to_json() for each in taken]}
    parts = [_table(taken)]
    return Section("cuts", "Power cuts", "What does a power cut take?", parts, SEE, brief=parts, data=data)


def keys(view: View) -> list[Key]:
    """The key figures; none where no power was cut."""
    taken = view.lost
    if not taken:
        return []
    worst = max(taken, key=lambda each: each.per_cut.estimate)
    kept = sum(not each.cuts_that_lost for each in taken)
    return [
        Key(f"Lost a cut, {worst.treatment}", text.count(round(worst.per_cut.estimate)), _interval(worst)),
        Key("Most in one cut", text.count(max(each.most for each in taken)), "acknowledged transactions"),
        Key("Configurations that lost none", f"{kept} of {len(taken)}", "in these cuts"),
        Key(
            "Cuts",
            text.count(sum(each.cuts for each in taken)),
            f"in {counted(sum(each.trials for each in taken), 'trial')}",
        ),
    ]


def _table(taken: list[Lost]) -> Table:
    columns: tuple[Column, ...] = (
        Column("configuration", "code"), Column("trials", "n", keep=2), Column("cuts", "n"),
        Column("cuts that lost", "n"), Column("lost a cut", "n"), Column("interval", "n", keep=1),
        Column("most", "n"), Column("most [s]", "n"), Column("up again [s]", "n", keep=2),
    )  # fmt: skip
    if any(each.after for each in taken):
        columns = (*columns, Column("then", "wrap"))
    rows: list[Cells] = [
        [
            each.treatment,
            text.count(each.trials),
            text.count(each.cuts),
            Cell(text.count(each.cuts_that_lost), "worse" if each.cuts_that_lost else ""),
            text.count(round(each.per_cut.estimate)),
            _interval(each),
            text.count(each.most),
            f"{each.most_s:.2g}",
            "–" if each.recovery_s is None else f"{each.recovery_s:.2g}",
            *(
                [", ".join(f"{state}: {count}" for state, count in each.after.items())]
                if len(columns) > 9
                else []
            ),
        ]
        for each in taken
    ]
    return Table(columns, rows, is_stacked=True)


def _interval(each: Lost) -> str:
    low, high = each.per_cut.low, each.per_cut.high
    return "–" if low is None or high is None else f"{low:,.0f} – {high:,.0f}"
