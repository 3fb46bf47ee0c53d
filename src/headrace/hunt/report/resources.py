"""What is saturated: every resource and each core."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.host.cores import cores
from headrace.hunt.hunt import Hunt
from headrace.hunt.report.words import waits
from headrace.hunt.resources import Level, ResourceUsage
from headrace.show.parts import (
    Bars,
    Cell,
    Column,
    Gap,
    Heading,
    Part,
    Section,
    Sentence,
    Span,
    Table,
    Words,
)

_STYLES = {
    Level.SATURATED: "bold red",
    Level.BUSY: "yellow",
    Level.UNKNOWN: "magenta",
    Level.FINE: "green",
}

#: A terminal lists this many healthy resources and counts the rest.
MOST_FINE = 6

_SHARES = ("user", "system", "irq", "softirq", "steal", "iowait")


def section(hunt: Hunt, *, everything: bool) -> Section:
    return Section(
        "resources",
        "Resources",
        "What is saturated?",
        lambda: _parts(hunt),
        "Utilisation, saturation and errors of each resource over the window, worst first.",
        list(_brief(hunt, everything)),
        {"resources": [_json(use) for use in hunt.verdict.uses]},
    )


def _parts(hunt: Hunt) -> Iterator[Part]:
    rows = [
        [
            Cell(use.name),
            Cell(use.level, str(use.level)),
            Cell(_used(use) or "–", look="n"),
            Cell(_load(use)),
            Cell(waits(use)),
        ]
        for use in hunt.verdict.uses
    ]
    columns = (
        Column("resource"), Column("level"), Column("used", "n"), Column("load", "wrap"),
        Column("waiting, errors, limit", "wrap"),
    )  # fmt: skip
    yield Table(columns, rows, look="uses")
    if hunt.evidence.has_host and (found := cores(hunt.evidence.window)[1:]):
        yield Heading("Each core")
        lines = []
        for core in found:
            shares = [(n, getattr(core, n)) for n in _SHARES if getattr(core, n) >= 0.0005]
            title = ", ".join(f"{100 * share:.1f}% {name}" for name, share in shares)
            parts = [(f"part-{name}", 100 * share) for name, share in shares]
            lines.append((core.name, parts, f"{100 * core.busy:.0f}%", f"{core.name}: {title or 'idle'}"))
        named = [(f"part-{name}", name + (" (idle)" if name == "iowait" else "")) for name in _SHARES]
        yield Bars(lines, named)


def _used(use: ResourceUsage) -> str:
    return "" if use.utilisation is None else f"{100 * use.utilisation:.0f}%"


def _load(use: ResourceUsage) -> Words:
    return [use.load, *(Span(trap, "trap") for trap in use.traps)]


def _brief(hunt: Hunt, everything: bool) -> Iterator[Part]:
    rows, fine = [], 0
    for use in hunt.verdict.uses:
        fine += use.level is Level.FINE
        if use.level is Level.FINE and fine > MOST_FINE and not everything:
            continue
        level = Cell(use.level, style=_STYLES[use.level])
        rows.append([level, Cell(use.name), Cell(_used(use)), Cell(use.load), Cell(waits(use))])
        rows += [[Cell("")] * 3 + [Cell(trap, style="dim"), Cell("")] for trap in use.traps]
    columns = (("", ""), ("resource", ""), ("used", "n"), ("load", ""), ("waiting, errors", ""))
    yield Table(columns, rows)
    if fine > MOST_FINE and not everything:
        yield Sentence(f"and {fine - MOST_FINE} more healthy ones: --all", "aside")
    yield Gap()


def _json(use: ResourceUsage) -> dict[str, object]:
    shown = ("name", "level", "utilisation", "load", "saturation", "errors", "limit", "traps", "users")
    found: dict[str, object] = {name: getattr(use, name) for name in shown}
    return found | {"numbers": {k: v for k, v in use.numbers.items() if v == v}}
