"""The page of `headrace size measure`: what a call of each query class costs, each played alone.

``--json``: format, headline, recording, host, seconds, blocks, classes[] (name, text, share, per_s, costs
{resource: {estimate, low, high}}), notes[].
"""

from __future__ import annotations

from headrace.base.intervals import Interval
from headrace.capacity.measure import COSTS, Class, Measured
from headrace.capacity.report.words import cost, name
from headrace.capacity.used import Part as CpuPart
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Page, Part, Section, Table, method


def page_of(found: Measured) -> Page:
    tables: list[Part] = [_table(found)]
    return Page(
        eyebrow="headrace size measure",
        title="What a call costs",
        verdicts=[_verdict(found)],
        lead=f"Each class of {text.short(found.recording, 60)} played alone on {found.host}, {found.blocks} times "
             f"for {found.seconds:g} s.",
        cautions=found.notes,
        sections=[
            Section(
                "cost", "Cost of a call", "What does one call cost?", tables,
                "Use with the class minus that of the idle host, divided by its calls; 95% intervals over blocks. "
                "The CPU is that of the server's process, because the replay uses some of the host's: it is not "
                "split into user, system and softirq, and network interrupts are not in it. Waits for locks are "
                "not measured. headrace size demand estimates all of these from history.",
                brief=tables,
            ),
            _method(),
        ],
        footer="headrace size measure --json prints the numbers",
        data={
            "format": 1,
            "headline": _verdict(found),
            "recording": found.recording,
            "host": found.host,
            "seconds": found.seconds,
            "blocks": found.blocks,
            "classes": found.classes,
            "notes": found.notes,
        },
    )  # fmt: skip


def _verdict(found: Measured) -> str:
    dearest = max(found.classes, key=_cpu)
    if not _cpu(dearest):
        return "No class uses a measurable part of the CPU."
    shown = cost(CpuPart.SERVER, _cpu(dearest))
    return f"A call of {text.short(dearest.text, 60)} costs most CPU: {shown}."


def _cpu(each: Class) -> float:
    found = each.costs.get(CpuPart.SERVER)
    return found.estimate if found is not None else 0.0


def _table(found: Measured) -> Table:
    shown = [each for each in COSTS if any(each in row.costs for row in found.classes)]
    rows: list[Cells] = [
        [
            Cell(text.short(each.text, 60), note=each.name),
            f"{each.share:.0%}",
            text.count(each.per_s),
            *(_cell(resource, each.costs.get(resource)) for resource in shown),
        ]
        for each in found.classes
    ]
    columns = [
        Column("class", "wrap"), Column("of the time", "n", 2), Column("calls/s", "n", 1),
        *(Column(name(each), "n", number) for number, each in enumerate(shown)),
    ]  # fmt: skip
    return Table(columns, rows)


def _cell(resource: str, found: Interval | None) -> str | Cell:
    if found is None:
        return "–"
    if found.low is None:
        return cost(resource, found.estimate)
    return Cell(
        cost(resource, found.estimate), note=f"{cost(resource, found.low)} – {cost(resource, found.high)}"
    )


def _method() -> Section:
    lines = [
        ("Alone", "The recording is split by class. What a session needs to be played (its database, prepared "
                  "statements) stays with each part."),
        ("Blocks", "Each plays every class alone and leaves the host idle once, in random order."),
        ("Assumed", "A class costs the same beside the others. In a busy server a call wakes fewer threads, and "
                    "finds less in the caches."),
    ]  # fmt: skip
    return Section("method", "Method", "How this was computed", [method(lines)])
