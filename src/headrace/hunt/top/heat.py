"""Interrupts and softirqs by core, as a table with the highest in red."""

from __future__ import annotations

from rich.text import Text

from headrace.hunt.top import lines
from headrace.hunt.top.lines import DIM, HEADING, HOT, WARM, rate
from headrace.hunt.top.shot import Shot
from headrace.show.text import clean

NAME_WIDTH = 22
CELL_WIDTH = 6
#: Below this rate per second an interrupt is housekeeping.
NOISE_S = 1.0


def draw(shot: Shot, width: int, height: int) -> list[Text]:
    """Rows are sources, columns are cores; with many cores, one character per core instead of a number."""
    window = shot.now
    softirqs = {kind: window.rates("softirqs", kind) for kind in window.metrics("softirqs")}
    softirqs = {kind: rates for kind, rates in softirqs.items() if not kind.startswith("headrace_")}
    interrupts: dict[str, dict[str, float]] = {}
    for label, value in window.rates("interrupts", "count").items():
        line, _, cpu = label.rpartition("/")
        interrupts.setdefault(line, {})[cpu] = value
    named = shot.interrupts
    interrupts = {f"{line} {named.get(line, '')}".strip(): rates for line, rates in interrupts.items()}
    cores = [f"cpu{n}" for n in sorted({_number(c) for rates in softirqs.values() for c in rates})]
    cores = cores or [f"cpu{n}" for n in sorted({_number(c) for r in interrupts.values() for c in r})]
    if not cores:
        return [Text("waiting for two samples", DIM)]
    drawn: list[Text] = []
    for title, sources in (("softirqs a second", softirqs), ("interrupts a second", interrupts)):
        shown = {kind: rates for kind, rates in sources.items() if sum(rates.values()) >= NOISE_S}
        rows = sorted(shown.items(), key=lambda pair: -sum(pair[1].values()))
        drawn += _table(title, rows, cores, width, max(height - len(drawn) - 2, 3))
        drawn += [Text()] if rows else [Text("  none", DIM), Text()]
    return drawn[:height]


def _number(cpu: str) -> int:
    digits = cpu.removeprefix("cpu")
    return int(digits) if digits.isdigit() else 0


def _table(
    title: str, rows: list[tuple[str, dict[str, float]]], cores: list[str], width: int, most: int
) -> list[Text]:
    name = min(NAME_WIDTH, width // 3)
    room = width - name - 9
    as_numbers = len(cores) * (CELL_WIDTH + 1) <= room
    heading = Text(f"{title:<{name}}", HEADING).append(f"{'all':>8} ", HEADING)
    if as_numbers:
        heading.append("".join(f" {core.removeprefix('cpu'):>{CELL_WIDTH}}" for core in cores), HEADING)
    else:
        heading.append(f" cpu0 … {cores[-1]}, one character each", DIM)
    drawn = [heading]
    for source, rates in rows[:most]:
        total = sum(rates.values())
        line = lines.fit(Text(clean(source)), name).append(f"{rate(total):>8} ")
        values = [rates.get(core, 0.0) for core in cores]
        if as_numbers:
            for value in values:
                line.append(
                    f" {rate(value, CELL_WIDTH) if value else '·':>{CELL_WIDTH}}",
                    _style(value, total, values),
                )
        else:
            line.append(" ")
            groups = -(-len(values) // max(room - 1, 1))
            for start in range(0, len(values), groups):
                value = max(values[start : start + groups])
                glyph = lines.block(value / max(values)) if value else "·"
                line.append(glyph if glyph != " " else "▁", _style(value, total, values))
        drawn.append(line)
    return drawn


def _style(value: float, total: float, values: list[float]) -> str:
    """Red if one of several cores does nearly all of a lot of work."""
    if not value:
        return DIM
    share = value / total
    if len(values) > 1 and share >= 0.8 and total >= 1000:
        return HOT
    return WARM if len(values) > 1 and share >= 2 / len(values) and total >= 100 else ""
