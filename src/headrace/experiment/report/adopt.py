"""How to apply the winner: as a command, or as files to copy; what it costs, and how to undo it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.base.effect import Effect
from headrace.base.errors import PlanError
from headrace.base.model import Treatment, Value
from headrace.change.persist import SYSCTL, TUNED
from headrace.experiment.report.view import View
from headrace.experiment.stats.headline import best_proven
from headrace.experiment.stats.trials import THROUGHPUT
from headrace.knobs import catalogue as knobs
from headrace.knobs.catalogue import Cost, Kind, Knob
from headrace.knobs.change import text_of
from headrace.show import text
from headrace.show.parts import Cell, Cells, Details, Lines, Note, Part, Section, Sentence, Span, Table

SEE = (
    "The configuration with the best proven throughput. Try it on one host first: headrace apply undoes "
    "everything automatically unless you confirm in time."
)

#: What a knob needs before its value holds.
_NEEDS = {
    Cost.DYNAMIC: "at once",
    Cost.RESTART: "restart of the server",
    Cost.REMOUNT: "remount",
    Cost.REBUILD: "a new file system or data directory",
    Cost.REBOOT: "reboot",
}

#: Prefixes of settings of the experiment, not of the host.
_OF_THE_EXPERIMENT = ("workload.", "machine.")


@dataclass(frozen=True)
class Setting:
    """One setting of the winner, with what the baseline had instead ("" if nothing)."""

    name: str
    knob: Knob
    value: Value
    before: str

    @property
    def text(self) -> str:
        return text_of(self.knob, self.value)

    @property
    def written(self) -> str:
        """As a person writes it: 1G, where the kernel wants bytes."""
        return str(self.value) if self.knob.kind is Kind.SIZE else self.text

    @property
    def variable(self) -> str:
        """The server's variable; empty if it is none."""
        name = self.name.removeprefix("server.")
        return name if name != self.name and name != "allocator" else ""


def section(view: View) -> Section:
    """Empty if nothing is proven better."""
    return Section(
        "adopt",
        "Apply it",
        "How do you apply the winner?",
        lambda: _parts(view),
        SEE,
        data={"adopt": [_to_json(view, effect) for effect in winners(view)]},
    )


def _to_json(view: View, effect: Effect) -> dict[str, object]:
    found = _found(view, effect)
    return {
        "treatment": effect.treatment,
        "condition": effect.condition,
        "settings": {one.name: one.value for one in found},
        "command": _command(found),
    }


def commands(view: View) -> str:
    """How to apply the winner of each condition, and how to undo it; empty if there is nothing to set."""
    found = dict.fromkeys(_command(own) for effect in winners(view) if (own := _found(view, effect)))
    return "".join(found)


def _found(view: View, effect: Effect) -> list[Setting]:
    design = view.design
    return settings_of(design.treatment(effect.treatment), design.treatment(effect.baseline), design.base)


def winners(view: View) -> list[Effect]:
    """For each condition the treatment that the headline names."""
    if view.design.cuts_power:
        return []
    effects = [e for e in view.analysis.effects if e.response == THROUGHPUT]
    conditions = dict.fromkeys(e.condition for e in effects)
    best = (best_proven(effects, condition, view.design.asked) for condition in conditions)
    return [effect for effect in best if effect]


def settings_of(winner: Treatment, baseline: Treatment, base: Mapping[str, Value]) -> list[Setting]:
    """What the winner sets otherwise than its baseline; settings of the experiment itself are left out."""
    old = {**base, **baseline.settings}
    found = []
    for name, value in {**base, **winner.settings}.items():
        if old.get(name) == value or name.startswith(_OF_THE_EXPERIMENT):
            continue
        try:
            knob = knobs.find(name.partition("@")[0])
        except PlanError:
            continue
        before = Setting(name, knob, old[name], "").written if name in old else ""
        found.append(Setting(name, knob, value, before))
    return found


def _parts(view: View) -> Iterator[Part]:
    best = winners(view)
    for effect in best:
        found = _found(view, effect)
        where = f" with {effect.condition}" if effect.condition and len(best) > 1 else ""
        ratio = f"{text.ratio(effect.ratio.estimate)} times the throughput ({text.between(effect.ratio)})"
        yield Sentence([Span(effect.treatment, "strong"), f"{where}: {ratio} of {effect.baseline}."])
        if not found:
            yield Sentence(
                "It differs only in the workload or the machine: there is nothing to set on a host."
            )
            continue
        yield _table(found)
        if weak := [one for one in found if one.knob.weakness(one.value)]:
            told = "; ".join(f"{one.name}: {one.knob.weakness(one.value)}" for one in weak)
            yield Note(f"It reduces durability: {told}.", is_attention=True)
        yield from _ways(found)


def _table(found: list[Setting]) -> Table:
    rows: list[Cells] = [
        [
            Cell(one.name, look="code"),
            Cell(one.before or "default", look="code"),
            Cell(one.written, look="code"),
            _NEEDS[one.knob.cost],
        ]
        for one in found
    ]
    return Table((("setting", ""), ("baseline", ""), ("winner", ""), ("takes effect", "wrap")), rows)


def _ways(found: list[Setting]) -> Iterator[Part]:
    yield Details("As a command, and how to undo it", [Lines(_command(found))], is_open=True)
    if server := [one for one in found if one.variable]:
        content = "[mysqld]\n" + "".join(f"{one.variable} = {one.written}\n" for one in server)
        yield Details("As a server option file", [Lines(content)])
    if host := [one for one in found if one.knob.sysctl]:
        content = "".join(f"{one.knob.sysctl} = {one.text}\n" for one in host)
        yield Details(["As ", Span(SYSCTL, "code")], [Lines(content)])
        tuned = "[main]\nsummary=What headrace proved\n\n[sysctl]\n"
        tuned += "".join(f"{one.knob.sysctl}={one.text}\n" for one in host)
        yield Details(f"As the TuneD profile {TUNED}", [Lines(tuned)])


def _command(found: list[Setting]) -> str:
    """The lines to type; settings that no running host can take are named as a comment."""
    asked, by_hand = [], []
    for one in found:
        if one.knob.never or one.knob.cost in (Cost.REBUILD, Cost.REMOUNT, Cost.REBOOT):
            by_hand.append(f"{one.name} = {one.written}")
            continue
        instance = "" if "@" in one.name or not one.knob.placeholder else f"@{one.knob.placeholder.upper()}"
        weak = f" --allow-weaker {shlex.quote(one.name)}" if one.knob.weakness(one.value) else ""
        asked.append(shlex.quote(f"{one.name}{instance}={one.written}") + weak)
    lines = []
    if asked:
        joined = " \\\n    ".join(["headrace apply", *asked, "--confirm-within 5m --persist files"])
        lines += [
            joined,
            "headrace apply --confirm            # keep it",
            "headrace rollback --last    # or undo it, now or later",
        ]
    if by_hand:
        lines += [
            "# by hand: in /etc/fstab, or when the volume or the server is created again:",
            *(f"#   {text.clean(line)}" for line in by_hand),
        ]
    return "\n".join(lines) + "\n"
