"""Settings on a live host: what is asked for, whether it may be, what stood there, what stands there now.

    settings_of    FINDING and KNOB[@INSTANCE]=VALUE -> knob -> value
    prepare        checked against the host's and the server's facts: a plan, or a refusal
    carry_out      the agent does it, all or nothing; the host undoes it itself unless somebody confirms
    write_ahead    only the files, for a restart of the server that the caller does next

Nothing here writes to a host but through the agent's journal.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headrace.base.errors import NotReady, PlanError, Refused
from headrace.base.model import ServerLogin, Value
from headrace.change import beyond, lost, persist
from headrace.change.persist import Lasting
from headrace.host.agent import Agent, Journal
from headrace.host.agent.journal import Applied
from headrace.host.facts import HostFacts
from headrace.knobs import catalogue as knobs
from headrace.knobs import servers
from headrace.knobs.catalogue import Cost, Durability, Instance, Kind, Knob
from headrace.knobs.change import in_words, refuse_managed, text_of
from headrace.knobs.instance import managed
from headrace.knobs.knob import size_bytes
from headrace.knobs.losses import loss_of
from headrace.knobs.servers import Listed

Settings = Mapping[str, Value]
#: What a finding's remedy sets; None where there is no such finding.
Remedies = Callable[[str], Settings | None]

OWNER = "apply"
#: What a connection copied when it was made.
KEPT = "connections that exist keep {} until they reconnect"
_READ_ONLY = r"\(server error 1238\b"
AFTER = {
    Cost.RESTART: "holds after the next restart of the server",
    Cost.REBOOT: "holds after the next boot",
}


class NeedsRestart(Refused):
    """The setting holds only after a restart, which nobody has allowed here."""


@dataclass(frozen=True)
class Step:
    """One setting of the plan. ``before`` is what stands there, ``changes`` what the agent does now: none
    where only a file makes it hold, and then ``note`` says when."""

    name: str
    knob: Knob
    instance: Instance | None
    value: str
    before: str
    changes: tuple[Mapping[str, str | None], ...]
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """``files``: path -> content, with ``--persist``. ``steps`` in the order they were asked for. ``also`` is what
    else these files change at the next start, a sentence each."""

    steps: tuple[Step, ...]
    files: Mapping[str, str]
    also: tuple[str, ...] = ()

    @property
    def changes(self) -> list[Mapping[str, str | None]]:
        live = [change for step in self.steps for change in step.changes]
        return [*live, *({"file": path, "content": content} for path, content in self.files.items())]


@dataclass(frozen=True)
class Result:
    """What became of one setting, as the host said it. ``after`` is None where only a file was written.

    ``also`` is what the kernel or the server changed along with it.
    """

    name: str
    before: str
    after: str | None
    note: str
    also: tuple[Applied, ...] = ()


@dataclass(frozen=True)
class Rollout:
    """``id`` names it for ``confirm`` and ``rollback``; ``confirmed``: it stays unless somebody rolls it back."""

    id: str
    results: tuple[Result, ...]
    files: tuple[str, ...]
    confirmed: bool


def settings_of(texts: Sequence[str], remedies: Remedies) -> dict[str, Value]:
    """What the command line asks for. Raises PlanError for a text that is neither, or two that contradict."""
    found: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if equals:
            one: Settings = {name.strip(): _typed(name.strip(), value.strip())}
        else:
            remedy = remedies(text)
            if not remedy:
                raise PlanError(
                    "no such finding, or no setting fixes it",
                    place=text,
                    hint="headrace hunt shows them; or write KNOB[@INSTANCE]=VALUE",
                )
            one = remedy
        for knob, wanted in one.items():
            if knob in found and found[knob] != wanted:
                raise PlanError(f"asked for as {found[knob]!r} and as {wanted!r}", place=knob)
            found[knob] = wanted
    return found


def _typed(name: str, text: str) -> Value:
    kind = knobs.find(name.partition("@")[0]).kind
    return [part for part in text.split(",") if part] if kind is Kind.LIST else text


async def prepare(
    agent: Agent,
    settings: Settings,
    login: ServerLogin | None,
    *,
    allow_weaker: Sequence[str] = (),
    allow_loss: Sequence[str] = (),
    allow_beyond: Sequence[str] = (),
    lasting: str = "",
) -> Plan:
    """The plan for these settings on this host. ``lasting`` is empty, ``files`` or ``tuned``.

    Raises PlanError for what does not fit the host or its server, Refused for what may not be done to it.
    """
    facts = HostFacts(await agent.facts(login))
    settings = spelled(settings, facts)
    steps = await steps_of(agent, settings, facts, allow_weaker=allow_weaker, persisted=bool(lasting))
    await must_be_harmless(agent, settings, facts, allow_loss, allow_beyond)
    files: dict[str, str] = {}
    also: list[str] = []
    if lasting:
        own = [Lasting(step.name, step.value, step.instance) for step in steps]
        for step in steps:
            if step.name.startswith("volume.mount_options"):
                raise Refused("cannot be made permanent: write it into /etc/fstab", place=step.name)
        files, also = await persist.files(agent, own, facts, tuned=lasting == "tuned")
        await persist.must_be_writable(agent.target, files)
    return Plan(tuple(steps), files, tuple(also))


def spelled(settings: Settings, facts: HostFacts) -> dict[str, Value]:
    """With the names that a number of a choice or set stands for, by which it is judged and compared."""
    vendor, version = facts.vendor, facts.server_version or ""

    def is_variable(name: str) -> bool:
        return name.startswith("server.") and "@" not in name  # an instance has none, and that is said later

    return {
        name: in_words(knobs.find(name), value, vendor, version) if is_variable(name) else value
        for name, value in settings.items()
    }


async def steps_of(
    agent: Agent, settings: Settings, facts: HostFacts, *, allow_weaker: Sequence[str], persisted: bool
) -> list[Step]:
    """Each setting as a step, checked against the host and its server. Raises as ``prepare`` does."""
    steps = []
    for name, value in settings.items():
        knob, instance = _target_of(name, value, facts)
        _must_be_allowed(name, knob, value, instance, facts, allow_weaker)
        steps.append(await _step(agent, name, knob, instance, value, facts, persisted=persisted))
    return steps


def _target_of(name: str, value: Value, facts: HostFacts) -> tuple[Knob, Instance | None]:
    base, _, instance_name = name.partition("@")
    knob = knobs.find(base)
    if name.startswith("workload."):
        raise PlanError("an option of a workload, not a setting of a host", place=name)
    knob = _as_there(knob, facts)
    knob.check(value)
    if base == "volume.mount_options":
        if not instance_name:
            raise PlanError("needs a mount point", place=name, hint=f"{base}@/mnt/data=noatime")
        return knob, None
    if base.startswith("server."):
        if instance_name:
            raise PlanError("a server's variable has no instances", place=name)
        return knob, None
    if not knob.location:
        raise Refused("cannot be changed on a live host", place=name, hint="prove it with headrace run")
    return knob, knobs.resolve(knob, instance_name, facts)


def _as_there(knob: Knob, facts: HostFacts) -> Knob:
    """Plugins and components bring variables that are in no list of the server; a record is then of another's."""
    vendor, version = facts.vendor, facts.server_version or ""
    if vendor is None or not knob.name.startswith("server.") or knob.applies(vendor, version):
        return knob
    name, own = knob.name.removeprefix("server."), servers.of(vendor, version)
    is_brought = own is not None and own.is_of(version) and facts.variable(name) is not None
    return knobs.unlisted(name) if is_brought else knob


def _must_be_allowed(
    name: str,
    knob: Knob,
    value: Value,
    instance: Instance | None,
    facts: HostFacts,
    allow_weaker: Sequence[str],
) -> None:
    if knob.never:
        raise Refused(knob.never, place=name)
    refuse_managed(knob, value, facts)
    if instance and managed(instance, facts):
        raise Refused("the kernel manages this interrupt: it cannot be moved", place=name)
    allowed = {knob.name, name} & set(allow_weaker)
    vendor = facts.vendor if knob.name.startswith("server.") else None
    weaker = knobs.weakens_durability(knob.name, value, vendor, facts.server_version or "")
    if knob.durability is Durability.UNKNOWN:
        weaker = weaker or "headrace has no record of it, so whether it reduces durability is unknown"
    if weaker and not allowed:
        raise Refused(weaker, place=name, hint=f"if that is what you want: --allow-weaker {knob.name}")
    if knob.name.startswith("server."):
        _must_fit_server(name, knob, value, facts)


async def must_be_harmless(
    agent: Agent, settings: Settings, facts: HostFacts, allow_loss: Sequence[str], allow_beyond: Sequence[str]
) -> None:
    """Raises Refused for what no rollback brings back, and for what the machine cannot have, unless allowed."""
    vendor, version = facts.vendor, facts.server_version or ""
    for name, value in settings.items():
        knob = knobs.find(name.partition("@")[0])
        variable = knob.variable_on(vendor, version) if knob.name.startswith("server.") else ""
        loss = loss_of(variable, facts.variable(variable), value) if variable else None
        if loss and not {knob.name, name} & set(allow_loss):
            numbers = await lost.in_numbers(agent, loss, facts)
            words = f"cannot be undone: {loss.reason}" + (f" ({numbers})" if numbers else "")
            raise Refused(words, place=name, hint=f"if that is what you want: --allow-loss {knob.name}")
    for name, why in (await beyond.why_not(agent, settings, facts)).items():
        if name not in allow_beyond:
            words = f"not on this machine: {why}"
            raise Refused(words, place=name, hint=f"if that is what you want: --allow-beyond {name}")


def _must_fit_server(name: str, knob: Knob, value: Value, facts: HostFacts) -> None:
    vendor, version = facts.vendor, facts.server_version or ""
    if vendor is None:
        raise NotReady(
            facts.server_silence or "no server login was given",
            place=name,
            hint="start it, or mend the login; nothing was changed"
            if facts.server_silence
            else "name it: --mysql-socket or --mysql-host",
        )
    variable = knob.variable_on(vendor, version)
    is_there = variable == "allocator" or facts.variable(variable) is not None
    if not knob.applies(vendor, version) and (not is_there or knob.durability is not Durability.UNKNOWN):
        hint = knob.formerly or _which_brings(knob, facts)
        raise PlanError(f"{vendor} {version} has no such variable", place=name, hint=hint)
    knob.check_on(vendor, version, value)
    if not is_there:
        hint = _which_brings(knob, facts)
        raise PlanError(f"this {vendor} {version} has no such variable", place=name, hint=hint)


def _which_brings(knob: Knob, facts: HostFacts) -> str | None:
    """What to do about a variable that the server does not have: whoever spelled it right lacks its plugin."""
    if knob.durability is not Durability.UNKNOWN and not knob.listed_on(
        facts.vendor, facts.server_version or ""
    ):
        return None
    return "if a plugin or a component brings it: load that first, then run this again"


async def _step(
    agent: Agent,
    name: str,
    knob: Knob,
    instance: Instance | None,
    value: Value,
    facts: HostFacts,
    *,
    persisted: bool,
) -> Step:
    text = text_of(knob, value)
    if name.startswith("volume.mount_options@"):
        mount = name.partition("@")[2]
        return Step(name, knob, None, text, "", ({"mount": mount, "options": text},))
    if instance is None:
        vendor, version = facts.vendor, facts.server_version or ""
        variable = knob.variable_on(vendor, version)
        text = text_of(knob.on(vendor, version), value)
        before = (facts.server_allocator if variable == "allocator" else facts.variable(variable)) or ""
        cost = knob.cost_on(vendor, version, before, value)
        listed = knob.listed_on(vendor, version)
        is_listed = listed is not None and listed.is_variable
        is_live = cost is Cost.DYNAMIC or (knob.durability is Durability.UNKNOWN and not is_listed)
        if is_live:
            _must_be_whole(name, text, listed)
            changes = ({"variable": variable, "value": text},)
            is_kept = knob.is_of_sessions(vendor, version) and text != before
            return Step(name, knob, None, text, before, changes, KEPT.format(before) if is_kept else "")
        if cost is Cost.REBUILD:
            raise Refused("decided when the data directory is made", place=name)
        if not persisted:
            raise _needs_restart(name, cost)
        return Step(name, knob, None, text, before, (), AFTER[cost])
    befores = []
    for path in instance.paths:
        try:
            befores.append((await agent.target.read(path)).decode("utf-8", "replace").strip())
        except (OSError, ValueError) as error:
            raise PlanError(f"this host does not have {path}", place=name) from error
    shown = ", ".join(dict.fromkeys(befores))
    return Step(
        name, knob, instance, text, shown, tuple({"path": path, "value": text} for path in instance.paths)
    )


def _must_be_whole(name: str, text: str, listed: Listed | None) -> None:
    """Raises PlanError for a number that the server would round: a change that is not what was asked is undone."""
    number = size_bytes(text) if re.fullmatch(r"\d+[KMGTPEkmgtpe]?", text) else 0
    if listed is not None and (rest := number % listed.step):
        raise PlanError(
            f"asked for {text}, but it takes whole blocks of {listed.step}, so it would be {number - rest}",
            place=name,
            hint=f"ask for {number - rest} or {number - rest + listed.step}",
        )


def new_id(now: datetime | None = None) -> str:
    """Names sort by time and never meet again."""
    return f"{(now or datetime.now(UTC)):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Made:
    """A change that ``apply`` made, and when, by the host's clock."""

    id: str
    at_s: float


async def made(agent: Agent, change: str) -> Made:
    """The change of this id, kept or still open; ``last`` is the latest. Raises PlanError."""
    journal = Journal(agent, OWNER)
    found: dict[str, float] = {}
    entries = [entry for kept in await journal.history() for entry in kept["entries"]]
    for entry in [*entries, *await journal.entries()]:
        owner, _, name = str(entry["owner"]).partition("/")
        if owner == OWNER and name:
            found[name] = max(found.get(name, 0.0), entry["t_ns"] / 1e9)
    if change == "last" and found:
        change = max(found, key=lambda name: found[name])
    if change not in found:
        raise PlanError(
            f"no change {change} on this host",
            place=agent.target.name,
            hint="headrace rollback --list lists them",
        )
    return Made(change, found[change])


def journal_of(agent: Agent, rollout_id: str, state: str | None = None) -> Journal:
    return Journal(agent, f"{OWNER}/{rollout_id}", state)


async def carry_out(
    agent: Agent,
    plan: Plan,
    login: ServerLogin | None,
    *,
    confirm_within_s: float | None = None,
    state: str | None = None,
    rollout_id: str = "",
) -> Rollout:
    """Apply the plan, all of it or nothing. Without ``confirm_within_s`` it is kept at once.

    A caller that must find the change again whatever happens gives its ``rollout_id``.

    Raises Refused, Busy or TargetError; then the host is as it was, or the journal still holds how to restore it.
    """
    rollout_id = rollout_id or new_id()
    journal = journal_of(agent, rollout_id, state)
    keep = confirm_within_s is None
    plan, done = await _changed(journal, plan, login, confirm_within_s)
    applied = iter(done)
    results = []
    for step in plan.steps:
        rows = [next(applied) for _ in step.changes]
        before = ", ".join(dict.fromkeys(row.before for row in rows)) if rows else step.before
        after = ", ".join(dict.fromkeys(row.after for row in rows)) if rows else None
        also = tuple(one for row in rows for one in row.also)
        results.append(Result(step.name, before, after, step.note, also))
    # Where everything held already there is nothing to confirm.
    keep = keep or all(e["owner"] != journal.owner for e in await journal.entries())
    return Rollout(rollout_id, tuple(results), tuple(plan.files), keep)


async def _changed(
    journal: Journal, plan: Plan, login: ServerLogin | None, confirm_within_s: float | None
) -> tuple[Plan, list[Applied]]:
    """Make all changes of the plan; the plan as it was carried out.

    Of a plugin's variable no list says whether it takes a restart: the server does, before anything is changed.
    """
    while True:
        try:
            return plan, await journal.change(
                plan.changes, login=login, confirm_within_s=confirm_within_s, keep=confirm_within_s is None
            )
        except Refused as error:
            late = next((step for step in plan.steps if _is_read_only(step, error.message)), None)
            if late is None:
                raise
            if not plan.files:
                raise _needs_restart(late.name, Cost.RESTART) from error
            waiting = replace(late, changes=(), note=AFTER[Cost.RESTART])
            plan = replace(plan, steps=tuple(waiting if each is late else each for each in plan.steps))


def _is_read_only(step: Step, said: str) -> bool:
    variable = str(step.changes[0].get("variable", "")) if step.changes else ""
    is_unknown = bool(variable) and step.knob.durability is Durability.UNKNOWN
    return is_unknown and re.search(rf"\b{re.escape(variable)}\b.*{_READ_ONLY}", said, re.DOTALL) is not None


def _needs_restart(name: str, cost: Cost) -> Refused:
    refused = NeedsRestart if cost is Cost.RESTART else Refused
    return refused(
        f"takes a {cost}, which headrace does not do to a live server",
        place=name,
        hint="--persist saves it, and it takes effect after the next one",
    )


async def write_ahead(
    agent: Agent,
    plan: Plan,
    login: ServerLogin,
    *,
    confirm_within_s: float,
    commands: Mapping[str, Any] | None,
    rollout_id: str,
) -> None:
    """Write what lasts, for a restart of the server that comes next: it brings the server's variables.

    The host takes the files back unless somebody confirms. With ``commands`` it then restarts the server by them.
    """
    # What is no variable cannot be read from the server: then it counts that it was restarted.
    waiting = [step.name.removeprefix("server.") for step in plan.steps if step.note == AFTER[Cost.RESTART]]
    restart = {"restart": [name for name in waiting if name != "allocator"]}
    own = [change for change in plan.changes if "variable" not in change]
    changes = [{**restart, "commands": dict(commands)} if commands else restart, *own]
    journal = journal_of(agent, rollout_id)
    await journal.change(changes, login=login, confirm_within_s=confirm_within_s)
