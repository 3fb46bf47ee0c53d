"""Before the first trial: does the load fit through the limits of the server and of the machines that drive it?

Checks a server without data for each distinct set of limits among the treatments: that takes seconds, while a
trial that hits a limit may come only after hours.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace

from headrace.base.errors import NotReady
from headrace.base.model import ServerEndpoint, Treatment, Value
from headrace.base.temporary import temporary_folder
from headrace.experiment import workloads
from headrace.experiment.trial import Lab, restore, server_spec
from headrace.host.target import to_the_end
from headrace.lab.server import PrivateServer

#: Server variables that limit a load. Others, such as a large buffer pool, would only slow the start.
LIMITS = frozenset(
    {
        "back_log",
        "max_connections",
        "max_prepared_stmt_count",
        "max_user_connections",
        "open_files_limit",
        "table_open_cache",
        "thread_cache_size",
        "thread_handling",
    }
)


async def preflight(lab: Lab, tell: Callable[[str], None]) -> None:
    """Report limits that may distort the load of a treatment; raises NotReady for one that makes it impossible."""
    found: dict[workloads.Finding, list[str]] = {}
    for limits, loads in _by_limits(lab).items():
        async with _server(lab, json.loads(limits)) as endpoint:
            for treatments in loads:
                for finding in await _findings(lab, treatments[0], endpoint):
                    found.setdefault(finding, []).extend(treatment.name for treatment in treatments)
    found = _largest(found)
    blocking = {finding: names for finding, names in found.items() if finding.is_blocking}
    for finding, names in found.items():
        if finding not in blocking:
            tell(f"pre-flight: {finding.message}{_of(lab, names)}; {_remedy(finding)}")
    if blocking:
        raise NotReady(
            "the load does not fit: "
            + "; ".join(f"{finding.message}{_of(lab, names)}" for finding, names in blocking.items()),
            place=", ".join(dict.fromkeys(finding.place for finding in blocking)),
            hint="; ".join(dict.fromkeys(_remedy(finding) for finding in blocking)),
        )


def _largest(found: Mapping[workloads.Finding, list[str]]) -> dict[workloads.Finding, list[str]]:
    """For each limit, the finding with the highest requirement, which suffices for every treatment."""
    largest: dict[tuple[str, str], tuple[workloads.Finding, list[str]]] = {}
    for finding, names in sorted(found.items(), key=lambda item: -item[0].needed):
        largest.setdefault((finding.place, finding.check), (finding, []))[1].extend(names)
    return dict(largest.values())


def _by_limits(lab: Lab) -> Mapping[str, list[list[Treatment]]]:
    """Limits, as JSON -> the treatments with them, one list per distinct load."""
    found: dict[str, dict[str, list[Treatment]]] = {}
    for treatment in lab.design.treatments:
        variables = server_spec(lab.design, treatment).variables
        limits = {name: value for name, value in sorted(variables.items()) if name in LIMITS}
        load = json.dumps(lab.design.options_of(treatment), sort_keys=True)
        found.setdefault(json.dumps(limits), {}).setdefault(load, []).append(treatment)
    return {limits: list(loads.values()) for limits, loads in found.items()}


@contextlib.asynccontextmanager
async def _server(lab: Lab, limits: Mapping[str, Value]) -> AsyncIterator[ServerEndpoint]:
    treated = server_spec(lab.design, lab.design.treatments[0])
    datadir = f"{lab.scratch}/preflight"
    remove = ["rm", "-rf", "--one-file-system", "--", datadir]
    await lab.journal.record([{"kind": "process", "mark": lab.owner}])
    await lab.target.run(remove)
    server = PrivateServer(
        lab.target,
        replace(treated, variables=limits, allocator="system"),
        datadir=datadir,
        rundir=f"{lab.scratch}/run",
        owner=lab.owner,
        network_host=lab.network_host,
    )
    try:
        await server.initialise()
        endpoint = await server.start()
        await server.query(f"CREATE DATABASE {endpoint.database}")
        yield endpoint
    finally:
        await to_the_end(server.stop(discard=True))
        await to_the_end(restore(lab.journal))
        await to_the_end(lab.target.run(remove))


async def _findings(lab: Lab, treatment: Treatment, endpoint: ServerEndpoint) -> list[workloads.Finding]:
    plan = lab.design.workload
    workload = workloads.make_workload(plan.kind, lab.design.options_of(treatment))
    clients = tuple(lab.clients[address] for address in workloads.driven_from(workload)[0])
    # The driver's messages are in the findings; its other output is not needed.
    with temporary_folder() as raw:
        context = workloads.Context(
            lab.target, lab.owner, "", endpoint, plan.seconds, plan.warmup_s, raw, clients
        )
        return await workloads.preflight(workload, context)


def _remedy(finding: workloads.Finding) -> str:
    """The command, or the plan's setting if headrace itself starts the server."""
    variable = re.match(r"(?:SET GLOBAL )?(\w+) = (\d+)", finding.fix)
    return f'[base] "server.{variable[1]}" = {variable[2]}' if variable else finding.fix


def _of(lab: Lab, names: list[str]) -> str:
    return "" if len(names) == len(lab.design.treatments) else f", in {', '.join(names)}"
