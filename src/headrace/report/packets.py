"""The page of `headrace ladder --packets`.

``--json``: format, rungs (none), packets[] (rps, size, packets_s, knee, rounds), model, errors, steps[].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from headrace.analysis.ladder import duration
from headrace.analysis.packets import Limit, Size, Step, errors, fit, limits
from headrace.report import text
from headrace.report.parts import Cells, Column, Page, Part, Section, Table, method


def page_of(host: str, steps: Sequence[Step]) -> Page:
    found = limits(steps)
    plain = [each for each in found if not each.rps]
    model, (left_out, single) = fit(plain), errors(plain)
    tables: list[Part] = [_limits(found, left_out), _curve(steps)]
    worst = max(map(abs, single.values()), default=0.0)
    least = min(each.packets_s.estimate for each in plain)
    verdict = f"One core carries {text.count(least)} packets/s, both ends included."
    return Page(
        eyebrow="headrace ladder --packets",
        title="Packets per second",
        verdicts=[verdict],
        lead=f"Between two network namespaces of {host}, both ends on one core; UDP.",
        cautions=[],
        sections=[
            Section("limits", "Limits", "How many packets per second?", tables, "", brief=tables),
            Section("method", "Method", "How this was computed", [method(_method(worst))]),
        ],
        footer="headrace ladder --packets --json prints the numbers",
        data={
            "format": 1,
            "headline": verdict,
            "rungs": [],
            "packets": [asdict(each) for each in found],
            "model": asdict(model),
            "errors": {
                "from_the_others": [{"size": size, "error": error} for size, error in left_out.items()],
                "from_one": [
                    {"from": one, "size": size, "error": error} for (one, size), error in single.items()
                ],
            },
            "steps": [asdict(step) for step in steps],
        },
    )


def _name(size: Size) -> str:
    return f"{size[0]}/{size[1]} B"


def _limits(found: Sequence[Limit], left_out: dict[Size, float]) -> Table:
    rows: list[Cells] = []
    for each in found:
        rate = each.packets_s
        ends = (
            "–"
            if rate.low is None or rate.high is None
            else (f"{text.count(rate.low)} – {text.count(rate.high)}")
        )
        error = left_out.get(each.size) if not each.rps else None
        rows.append([
            _name(each.size), each.rps or "as it is", text.count(rate.estimate), ends,
            "–" if each.knee is None else f"{each.knee:.0%}", "–" if error is None else f"{error:+.0%}",
        ])  # fmt: skip
    columns = [Column("request/reply"), Column("RPS"), Column("packets/s", "n"), Column("95%", "n"),
               Column("answered up to", "n"), Column("predicted", "n")]  # fmt: skip
    return Table(columns, rows)


def _curve(steps: Sequence[Step]) -> Table:
    rows: list[Cells] = []
    first = min((step.round for step in steps), default=0)
    for step in (each for each in steps if each.round == first):
        core = max(step.cores, key=lambda core: core.softirq, default=None)
        times = [duration(ns) if ns is not None else "–" for ns in (step.p50_ns, step.p99_ns)]
        rows.append([
            _name(step.size), step.rps or "as it is", "no limit" if step.share is None else f"{step.share:.0%}",
            text.count(step.packets_s), *times,
            f"{core.name} {core.softirq:.0%} of {core.busy:.0%}" if core else "–",
            f"{step.dropped} / {step.socket_full} / {step.squeezed}",
        ])  # fmt: skip
    columns = [Column("request/reply"), Column("RPS", keep=2), Column("offered", "n"), Column("packets/s", "n"),
               Column("p50", "n", 1), Column("p99", "n"), Column("softirq of busy", "n", 1),
               Column("dropped / socket full / squeezed", "n", 3)]  # fmt: skip
    return Table(columns, rows, title="The first round")


def _method(worst: float) -> list[tuple[str, str]]:
    return [
        ("Limit", "What is answered if the client sends the next request when a reply comes, two packets per "
                  "request. A round is the unit; the interval is over rounds."),
        ("Predicted", "Each size from a cost per packet and per byte fitted to the others, against what was "
                      f"measured. From one other size, the largest error is {worst:.0%}."),
        ("Namespaces", "There is no card, and the receive work of a packet runs where it was sent, unless RPS "
                       "moves it. Steering interrupts another core, which may cost more than it brings."),
    ]  # fmt: skip
