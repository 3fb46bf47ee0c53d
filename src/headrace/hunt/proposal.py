"""A whole configuration for one server: what the findings would set, and what its machine and its load ask for.

Each line says why, and which finding or measurement it rests on. Nothing weakens what survives a crash, and all
lines together fit into the memory that is there. It is a hypothesis, as each finding is: an experiment decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.base.errors import HostUnknown
from headrace.base.model import Value
from headrace.hunt.rules import Judgement, pool, redo, sizes
from headrace.hunt.rules.cause import begun
from headrace.hunt.rules.evidence import Evidence, NotEnough, size
from headrace.hunt.rules.rule import Finding, Remedy, Severity
from headrace.knobs.catalogue import find
from headrace.knobs.knob import Cost, value_text
from headrace.knobs.provider import Provider, managed_by

SERVER = "server."
POOL = "server.innodb_buffer_pool_size"
#: A larger pool, cache or log is worth a line from this share on.
WORTH_IT = 1.1
#: What a line rests on that is of no finding.
MACHINE = "the machine"
#: Said to be as they are: what survives a crash is not ours to trade.
DURABLE = ("innodb_flush_log_at_trx_commit", "sync_binlog", "innodb_doublewrite")


@dataclass(frozen=True)
class Line:
    """``knob`` (``NAME`` or ``NAME@INSTANCE``) is ``now``, empty if that is unknown, and would be ``value``.

    ``basis`` is the finding's id, or "the machine". Lines of one ``group`` are one remedy, and belong together.
    ``is_speed``: whether an experiment could show it; the others keep data or the server safe. ``way``: how a
    provider that manages the server lets it be changed; empty where headrace can.
    """

    knob: str
    now: str
    value: Value
    why: str
    basis: str
    group: str
    cost: Cost
    is_speed: bool
    way: str = ""

    @property
    def words(self) -> str:
        """``server.innodb_io_capacity=2000``, as the commands take it."""
        return f"{self.knob}={_text(self.value)}"


@dataclass(frozen=True)
class Proposal:
    """``left``: what is not proposed, and why. ``durable``: settings of durability, as the server has them.

    ``way``: how the provider of a managed server lets all of them be changed; empty without one.
    """

    lines: tuple[Line, ...]
    left: tuple[tuple[str, str], ...]
    durable: Mapping[str, str]
    way: str = ""

    @property
    def settings(self) -> dict[str, Value]:
        return {line.knob: line.value for line in self.lines}


def propose(evidence: Evidence, judgement: Judgement) -> Proposal:
    """The configuration for the server that was examined; no line where nothing asks for one."""
    lines: dict[str, Line] = {}
    left: list[tuple[str, str]] = []
    for finding in judgement.findings:
        _of_finding(finding, evidence, lines, left)
    for what, ask in _OF_MACHINE:
        try:
            for remedy, why in ask(evidence):
                if not set(remedy.settings) & set(lines):
                    _add(remedy, why, MACHINE, evidence, lines)
        except (NotEnough, HostUnknown) as error:
            left.append((what, f"unknown: {error}"))
    found = managed_by(evidence.facts.variables, evidence.facts.server_asked)
    if found is not None:
        _without_fixed(lines, left, evidence, found.provider)
    _fitted(lines, left, evidence)
    settings = {_variable(line, evidence): line for line in lines.values() if line.knob.startswith(SERVER)}
    way = ""
    if found is not None and settings:
        way = found.provider.how_all({name: _text(line.value) for name, line in settings.items()})
        for name, line in settings.items():
            lines[line.knob] = replace(line, way=found.provider.how(name, _text(line.value)))
    durable = {name: evidence.variable(name) for name in DURABLE if evidence.has_variable(name)}
    return Proposal(tuple(lines.values()), tuple(left), durable, way)


def _variable(line: Line, evidence: Evidence) -> str:
    return find(line.knob.partition("@")[0]).variable_on(evidence.vendor, evidence.version)


def _without_fixed(
    lines: dict[str, Line], left: list[tuple[str, str]], evidence: Evidence, provider: Provider
) -> None:
    """Takes out what does not apply there, with the rest of its remedy: half of one is another."""
    for line in [each for each in lines.values() if each.knob.startswith(SERVER)]:
        if (variable := _variable(line, evidence)) in provider.fixed:
            left.append((line.knob, provider.how(variable)))
            for name in [name for name, each in lines.items() if each.group == line.group]:
                del lines[name]


def _of_finding(
    finding: Finding, evidence: Evidence, lines: dict[str, Line], left: list[tuple[str, str]]
) -> None:
    """The first remedy of a finding that can be set, unless an earlier finding sets the same."""
    why = "its fix is work by hand"
    for remedy in finding.hit.remedies:
        if not remedy.settings:
            continue
        taken = [name for name in remedy.settings if name in lines]
        if remedy.weakens:
            why = f"would reduce durability: {'; '.join(remedy.weakens)}"
        elif remedy.cost in (Cost.REBOOT, Cost.REBUILD):
            why = f"takes a {remedy.cost}: {remedy.way or f'headrace prove {finding.id} --plan PLAN'}"
        elif not remedy.is_faster and finding.severity is not Severity.RISK:
            why = f"makes nothing faster, and shows more: {remedy.way or f'headrace apply {finding.id}'}"
        elif any(_text(lines[name].value) != _text(remedy.settings[name]) for name in taken):
            why = f"{lines[taken[0]].basis} sets {taken[0]}, too"
        elif taken:
            return
        else:
            said = begun(finding.hit.summary, finding.hit.subject)
            _add(remedy, said, finding.id, evidence, lines, is_speed=finding.promises_speed(remedy))
            return
    left.append((finding.id, why))


def _add(
    remedy: Remedy,
    why: str,
    basis: str,
    evidence: Evidence,
    lines: dict[str, Line],
    *,
    is_speed: bool = True,
) -> None:
    group = next(iter(remedy.settings)) if basis == MACHINE else basis
    for name, value in remedy.settings.items():
        knob, now = name.partition("@")[0], _now(evidence, name)
        if now != _text(value):
            cost = find(knob).cost_on(evidence.vendor, evidence.version, value)
            lines[name] = Line(name, now, value, why, basis, group, cost, is_speed)


def _now(evidence: Evidence, name: str) -> str:
    variable = name.removeprefix(SERVER)
    if variable != name:
        return evidence.variable(variable) if evidence.has_variable(variable) else ""
    setting = name.removeprefix("host.")
    return (evidence.facts.sysctl(setting) or "") if setting != name else ""


def _text(value: Value) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else value_text(value)


def _pool(evidence: Evidence) -> Iterator[tuple[Remedy, str]]:
    now, data = evidence.number("innodb_buffer_pool_size"), evidence.data_bytes
    wanted, idle = pool.growth(evidence)
    if wanted >= WORTH_IT * now and data > now:
        yield (
            Remedy({POOL: int(wanted)}),
            f"{size(data)} of data and indexes, and {size(idle)} of memory is idle.",
        )


def _redo(evidence: Evidence) -> Iterator[tuple[Remedy, str]]:
    now, wanted = redo.capacity_bytes(evidence), redo.wanted_bytes(evidence)
    if wanted >= WORTH_IT * now:
        yield (
            Remedy(redo.setting(evidence, wanted)),
            f"The redo log holds {size(now)}; an hour of this load, or twice its largest checkpoint age, is "
            f"{size(wanted)}.",
        )


def _capacity(evidence: Evidence) -> Iterator[tuple[Remedy, str]]:
    now = evidence.number("innodb_io_capacity")
    if now < sizes.FLASH_CAPACITY and sizes.is_flash(evidence) and (wanted := sizes.io_capacity(evidence)):
        yield Remedy(wanted), f"The data are on flash, and {now:,.0f} writes/s are a disk's limit."


def _tables(evidence: Evidence) -> Iterator[tuple[Remedy, str]]:
    now, used = evidence.number("table_open_cache"), evidence.status("open_tables")
    wanted = sizes.table_cache(evidence)
    if used >= sizes.CACHE_FULL * now and wanted >= WORTH_IT * now:
        yield (
            Remedy({"server.table_open_cache": wanted}),
            f"{used:,.0f} of {now:,.0f} table handlers are open.",
        )


def _definitions(evidence: Evidence) -> Iterator[tuple[Remedy, str]]:
    now, used = evidence.number("table_definition_cache"), evidence.status("open_table_definitions")
    if used >= sizes.CACHE_FULL * now and (wanted := sizes.definition_cache(evidence)):
        yield Remedy(wanted), f"{used:,.0f} of {now:,.0f} table definitions are in their cache."


#: Settings by the machine and its load, where no finding covers them: each yields the fix and its reason.
_OF_MACHINE: tuple[tuple[str, Callable[[Evidence], Iterator[tuple[Remedy, str]]]], ...] = (
    ("server.innodb_buffer_pool_size", _pool),
    ("the redo log", _redo),
    ("server.innodb_io_capacity", _capacity),
    ("server.table_open_cache", _tables),
    ("server.table_definition_cache", _definitions),
)
#: Bytes that one unit of a setting takes, for all sessions together.
_EACH = {
    "server.table_open_cache": float(sizes.TABLE_BYTES),
    "server.table_definition_cache": float(sizes.DEFINITION_BYTES),
    "server.max_connections": float(sizes.SESSION_BYTES),
    "server.innodb_log_buffer_size": 1.0,
    "server.temptable_max_ram": 1.0,
    "server.key_buffer_size": 1.0,
    "server.innodb_sort_buffer_size": 1.0,
}


def _fitted(lines: dict[str, Line], left: list[tuple[str, str]], evidence: Evidence) -> None:
    """Takes what other lines need from the growth of the pool, in place: each alone was given the idle memory."""
    line = lines.get(POOL)
    if line is None:
        return
    now, wanted = float(line.now or 0), float(_text(line.value))
    try:
        others = sum(_growth(each, evidence) for each in lines.values() if each.knob != POOL)
    except (NotEnough, HostUnknown) as error:
        others = 0.0
        left.append(("the memory of the other lines", f"unknown: {error}"))
    if wanted <= now or others <= 0:
        return
    step = pool.step_bytes(evidence)
    fits = max((wanted - others) // step * step, now)
    if fits < WORTH_IT * now:
        del lines[POOL]
        left.append((POOL, f"the other lines may take {size(others)} of the idle memory, so it cannot grow"))
    elif fits < wanted:
        said = f"{line.why} {size(others)} of it is left for the other lines."
        lines[POOL] = replace(line, value=int(fits), why=said)


def _growth(line: Line, evidence: Evidence) -> float:
    """Bytes that a line may take beyond today."""
    variable = line.knob.removeprefix(SERVER)
    is_of_session = variable in (*sizes.SESSION_BUFFERS, "binlog_cache_size", "tmp_table_size")
    each = sizes.sessions(evidence) if is_of_session else _EACH.get(line.knob, 0.0)
    if not each or not line.now:
        return 0.0
    return max(float(_text(line.value)) - float(line.now), 0.0) * each
