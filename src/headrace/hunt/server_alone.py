"""The verdict on a server of which only SQL is known: what its sessions do and wait for, and what nobody knows.

A managed server, one behind a proxy or on another machine: the host that asks is not its host, so nothing here
uses one. How busy CPUs and disks are is unknown unless whoever asks gives their number.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.base.counted import counted
from headrace.host.activity import Activity
from headrace.host.facts import GIB, HostFacts
from headrace.host.window import Window
from headrace.hunt.resources import Level, ResourceUsage, Verdict
from headrace.hunt.sessions import Load, running, sentence

MIB = 1 << 20
#: The resource whose use is what sessions do.
SESSIONS = "sessions"
#: What lists all sessions on every vendor's server; and what MySQL asks for as well.
GRANT = "GRANT PROCESS ON *.* TO the account of this login"
GRANT_SCHEMA = "GRANT SELECT ON performance_schema.* TO the account of this login"


def usage(load: Load | None) -> ResourceUsage | None:
    """The sessions as a resource: saturated if many wait for one thing. None where nobody looked."""
    if load is None:
        return None
    waits = ", ".join(
        f"{share.sessions:.1f} wait for {share.name}" for share in load.waits if share.sessions >= 0.05
    )
    return ResourceUsage(
        SESSIONS,
        "",
        Level.SATURATED if load.worst is not None else Level.FINE,
        None,
        load=f"{load.active:.1f} active on average, {load.executing:.1f} of them execute",
        saturation=waits,
        numbers={"active": load.active, "executing": load.executing},
    )


def with_sessions(verdict: Verdict, load: Load | None) -> Verdict:
    """A host's verdict with the sessions among its resources; what limits it stays the hardware's affair."""
    own = usage(load)
    if own is None:
        return verdict
    order = list(Level)
    uses = sorted((own, *verdict.uses), key=lambda use: order.index(use.level))
    return replace(verdict, uses=tuple(uses))


def judge(load: Load | None, activity: Activity | None, window: Window, facts: HostFacts) -> Verdict:
    """The verdict without a host. ``load`` is None where the list of threads was not read."""
    missing = facts.privileges_missing
    blind = ResourceUsage(SESSIONS, "", Level.UNKNOWN, None, saturation=_why_blind(activity, missing))
    uses = [usage(load) or blind if "PROCESS" not in missing else blind, *_unknown(facts)]
    if uses[0] is blind:
        running_now = _running(window, facts)
        waits = f"What sessions wait for is unknown: {blind.saturation}."
        says = f"{running_now} {waits}" if running_now else f"{waits} {_transactions(window)}"
    else:
        assert load is not None
        says = sentence(load, activity, facts.given_cpus)
    return Verdict(says, None, tuple(uses))


def _why_blind(activity: Activity | None, missing: tuple[str, ...]) -> str:
    if "PROCESS" in missing:
        return f"the account lacks PROCESS, so it sees no session but its own; {GRANT}"
    why = activity.error if activity is not None else ""
    if "denied" in why and "'threads'" in why:
        return f"the account may not read performance_schema.threads; {GRANT_SCHEMA}"
    if activity is not None and activity.looks and not why:
        return f"{counted(activity.looks, 'process list')} says too little of an average: several tell"
    return f"the list of threads was not read{f' ({why})' if why else ''}"


def _running(window: Window, facts: HostFacts) -> str:
    replicas = len(facts.replicas or ())
    # An account without PROCESS sees its own threads alone.
    counted = running(window.kept("processlist", lambda label: False), replicas)
    if counted is None:
        return ""
    fed = f", without those that feed its {replicas} replicas" if replicas > 1 else ""
    fed = ", without the one that feeds its replica" if replicas == 1 else fed
    others = (
        "threads that replicate" if facts.replicas is not None else "threads that replicate or feed replicas"
    )
    # The sampler's own is one of them.
    return (
        f"At most {max(counted - 1, 0.0):.1f} sessions are active on average: as many threads run{fed}, and "
        f"{others} and the server's own tasks may be among them."
    )


def _transactions(window: Window) -> str:
    """Where not even the number of sessions is known: what InnoDB says of its transactions."""
    opened = window.gauge("innodb_status", "active_transactions")
    oldest = window.gauge("innodb_status", "oldest_transaction_s")
    if opened is None or oldest is None:
        return "How many are active is unknown, too."
    waiting = window.gauge("innodb_status", "lock_wait_transactions")
    form = ",.0f" if len(window.values("innodb_status", "active_transactions")) == 1 else ",.1f"
    rows = f", {waiting.mean:{form}} of them wait for row locks" if waiting and waiting.mean >= 0.05 else ""
    said = [f"the oldest was open for {oldest.high:.0f} s"]
    history = window.gauge("innodb_status", "history_list_length")
    if history is not None:
        said.append(f"{history.last:,.0f} old row versions wait for purge")
    deadlock = window.gauge("innodb_status", "deadlock_age_s")
    if deadlock is not None:
        said.append(f"the last deadlock was {deadlock.last:,.0f} s before")
    age, most = (
        window.last("innodb_status", f"{name}_bytes") for name in ("checkpoint_age", "max_checkpoint_age")
    )
    if age is not None:
        of = f" of {most / MIB:,.0f}" if most else ""
        said.append(
            f"the checkpoint is {age / MIB:,.0f}{of} MiB behind"
            + ("" if most else ", of an unknown size of the log")
        )
    latches = window.gauge("innodb_status", "semaphore_longest_wait_s")
    if latches is not None and latches.high > 0:
        said.append(f"a thread has waited {latches.high:.0f} s for a latch")
    return f"InnoDB has {opened.mean:{form}} transactions open{rows}; {'; '.join(said)}."


def _unknown(facts: HostFacts) -> list[ResourceUsage]:
    cpus, memory = facts.given_cpus, facts.given_memory_bytes
    return [
        ResourceUsage("cpu", "", Level.UNKNOWN, None, saturation=facts.only_sql,
                      limit=f"{cpus} CPUs, as given" if cpus else ""),
        ResourceUsage("block", "", Level.UNKNOWN, None, saturation=facts.only_sql),
        ResourceUsage("memory", "", Level.UNKNOWN, None, saturation=facts.only_sql,
                      limit=f"{memory / GIB:.1f} GiB, as given" if memory else ""),
    ]  # fmt: skip


def not_known(facts: HostFacts) -> str:
    """What a verdict without a host has to end with."""
    wanted = ["--cpus 8"] if facts.given_cpus is None else []
    wanted += ["--memory 64G"] if facts.given_memory_bytes is None else []
    what = "the number of its CPUs" if facts.given_cpus is None else ""
    if facts.given_memory_bytes is None:
        what = f"{what} and the size of its memory help" if what else "the size of its memory helps"
    else:
        what += " helps"
    more = f"; {what}: {' '.join(wanted)}" if wanted else ""
    return f"How busy its CPUs, memory and disks are is unknown: {facts.only_sql}{more}."
