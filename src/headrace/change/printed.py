"""A change that is printed instead of made, for a server whose option files belong to something else.

The checks are those of a dry run as far as they go: with a server that answers, its ranges, what weakens it and
what it refuses; without one, what the catalogue knows. What was not checked is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.errors import PlanError, Refused
from headrace.base.model import ServerLogin, Vendor
from headrace.change import apply as rollout
from headrace.change.form import Form
from headrace.change.persist.forms import Option, patch
from headrace.change.persist.options import OPTION_OF
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.knobs import catalogue as knobs
from headrace.knobs.change import text_of
from headrace.knobs.servers import of

_SWITCH = {"ON": True, "1": True, "TRUE": True, "OFF": False, "0": False, "FALSE": False}
_UNSEEN = "whether another option file, or the command line, sets the same is not known here"


@dataclass(frozen=True)
class Printed:
    """The patch, and what nobody checked."""

    text: str
    unchecked: tuple[str, ...]


async def checked(
    agent: Agent,
    settings: rollout.Settings,
    login: ServerLogin,
    form: Form,
    *,
    allow_weaker: Sequence[str] = (),
    allow_loss: Sequence[str] = (),
    allow_beyond: Sequence[str] = (),
) -> Printed:
    """The patch for a server that answers; raises as ``rollout.prepare`` does."""
    facts = HostFacts(await agent.facts(login))
    settings = rollout.spelled(settings, facts)
    steps = await rollout.steps_of(agent, settings, facts, allow_weaker=allow_weaker, persisted=True)
    await rollout.must_be_harmless(agent, settings, facts, allow_loss, allow_beyond)
    if facts.vendor and form.vendors and facts.vendor not in form.vendors:
        raise PlanError(f"the server is {facts.vendor}, which {form} does not run", place="--as")
    values = {step.name: step.value for step in steps}
    return Printed(_patch(form, values, facts.vendor, facts.server_version or ""), (_UNSEEN,))


def unchecked(settings: rollout.Settings, form: Form, *, allow_weaker: Sequence[str] = ()) -> Printed:
    """The same without a server: the catalogue alone says what may be. Raises PlanError or Refused."""
    vendor = next(iter(form.vendors)) if len(form.vendors) == 1 else None
    values: dict[str, str] = {}
    for name, value in settings.items():
        knob = knobs.find(name)
        if knob.never:
            raise Refused(knob.never, place=name)
        knob.check(value)
        weaker = knobs.weakens_durability(name, value, vendor)
        if knob.durability is knobs.Durability.UNKNOWN:
            weaker = weaker or "headrace has no record of it, so whether it reduces durability is unknown"
        if weaker and name not in allow_weaker:
            raise Refused(weaker, place=name, hint=f"if that is what you want: --allow-weaker {name}")
        if knob.cost is knobs.Cost.REBUILD:
            raise Refused("decided when the data directory is made", place=name)
        values[name] = text_of(knob, value)
    missing = (
        "no server was asked: its ranges, names and current values are not checked (--mysql-host, --target)"
    )
    return Printed(_patch(form, values, vendor, ""), (missing, _UNSEEN))


def _patch(form: Form, values: rollout.Settings, vendor: Vendor | None, version: str) -> str:
    options: list[Option] = []
    sysctls: dict[str, str] = {}
    for name, value in values.items():
        knob = knobs.find(name.partition("@")[0])
        if name.startswith("server."):
            options.append(_option(name, knob.variable_on(vendor, version), str(value), vendor, version))
        elif knob.sysctl:
            sysctls[knob.sysctl] = str(value)
        else:
            raise Refused(
                f"is set on its host: {form} has no place for it", place=name, hint="--persist files, there"
            )
    return patch(form, options, sysctls)


def _option(name: str, variable: str, value: str, vendor: Vendor | None, version: str) -> Option:
    """Raises Refused for a variable that no option sets, PlanError for a switch whose option is a name."""
    if variable == "allocator":
        raise Refused(
            "is an environment variable of the image, not an option",
            place=name,
            hint="set LD_PRELOAD there",
        )
    own = of(vendor, version)
    listed = own.variables.get(variable) if own else None
    if listed and not listed.option:
        raise Refused(
            f"{variable} is a variable, but no option: a server with it in a file does not start", place=name
        )
    option = (listed.option if listed else OPTION_OF.get(variable, variable)).replace("-", "_")
    if option == "log_bin" and value.upper() in _SWITCH:
        if _SWITCH[value.upper()]:
            raise PlanError("in a file its value is the name of the logs: write that by hand", place=name)
        return Option("skip_log_bin", None)
    return Option(option, value)
