"""Eight real servers, two sources with three replicas each, through `fleet` and `rollout` from end to end.

    python benches/fleet8.py [--server mysql] [--cut-s 600] [--kills 50] [--block-s 3] [--json FILE]

Every host has a network namespace with an sshd and a MariaDB or MySQL 9.7 in it, and load from the driver.
Differences and findings are planted: all must be found, and no other. Then four rollouts: one that helps, with an
experiment as its evidence and the controller's way to a host cut in every stage; one that harms; one that does
nothing, with the controller killed at random moments; one that helps and takes a restart, in pairs. A watcher that
does not go through headrace reads every server's values all the time: what it saw decides.

As root. Ctrl-C ends all of it. The exit code is 1 if anything was not as it must be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.eight import (
    CACHE,
    IDLE,
    LARGE,
    NAMES,
    PATIENCE_S,
    SMALL,
    SOMAXCONN,
    Fleet,
    operations,
    servers,
    setup,
)  # fmt: skip
from benches.eight.restarts import restarts
from benches.eight.rollouts import Results, Rollout
from tests.database_fleet import MARIADB, MYSQL
from tests.traces import commands
from tests.waiting import until

from headrace.host.agent.door import LEASE_S

#: Beyond what was promised, for a machine that is busy with both ends of eight hosts.
SLACK_S = 5.0

VENDORS = {"mariadb": MARIADB, "mysql": MYSQL}
PARTS = ("ask", "helps", "harms", "nothing", "restarts")

STAGES = """
[timing]
block_s = {block_s}
wash_s = 0.5
soak_s = {block_s}
lease_s = {lease_s}
sample_s = 0.1
[judge]
alpha = 0.01
looks = [8, 16, 32, 64]
margin = 0.2
[limits]
times = 50
fewer = 50
"""
PLAN = """
name = "opens"
[target]
scratch = "{scratch}"
[design]
kind = "factorial"
baseline = "{small}"
blocks = 4
[workload]
kind = "sql"
connections = 1
seconds = 2
warmup_s = 1
prepared = false
setup = [
{setup}
]
{operations}
[volume]
device = "directory"
[base]
"server.innodb_file_per_table" = false
[factors.cache]
knob = "server.table_open_cache"
levels = [{small}, {large}]
"""


def ask(fleet: Fleet, results: Results) -> None:
    """Facts, drift and hunt: what was planted, and nothing else."""
    began = time.monotonic()
    states = {host: row["state"] for host, row in fleet.fleet("facts")["hosts"].items()}
    ok = sum(state == "ok" for state in states.values())
    seconds = time.monotonic() - began
    results.add("fleet facts", "8 hosts answer", f"{ok} of {len(states)}, {seconds:.0f} s", ok == len(NAMES))
    _drift(fleet, results)
    _hunt(fleet, results)


def _drift(fleet: Fleet, results: Results) -> None:
    answer = fleet.fleet("drift")
    found = {
        *(
            (host, row["name"])
            for row in answer["differences"]
            for each in row["values"][1:]
            for host in each["hosts"]
        ),
        *((host, f"{row['between']}: {row['name']}") for row in answer["own"] for host in row["hosts"]),
        *((row["replica"], "failover") for row in answer["failovers"]),
    }
    host, _ = SOMAXCONN
    planted = {
        ("db2", "data directory: options"),
        ("db3", "sort_buffer_size"),
        ("db4", "file: vm.swappiness"),
        ("db5", "long_query_time"), ("db5", "nowhere: long_query_time"),
        ("db6", "innodb_buffer_pool_size"), ("db6", "failover"),
        ("db7", "max_connections"), ("db7", "file: max_connections"), ("db7", "failover"),
        (host, "net.core.somaxconn"),
    }  # fmt: skip
    if fleet.vendor is MYSQL:
        # MySQL records a session's SET in the same place, so a SET GLOBAL of such a variable cannot be told apart.
        planted.remove(("db5", "nowhere: long_query_time"))
    missing, more = planted - found, found - planted
    results.add(
        "fleet drift: planted differences",
        f"{len(planted)} found, 0 invented",
        f"{len(planted & found)} found, {len(more)} invented"
        + (f"; missing {sorted(missing)}" if missing else "")
        + (f"; invented {sorted(more)}" if more else ""),
        not missing and not more,
    )


def _hunt(fleet: Fleet, results: Results) -> None:
    answer = fleet.fleet("hunt", "--duration", "8s")
    hosts = {row["code"]: set(row["hosts"]) for row in answer["findings"]}
    # The buffers of one host, and the small cache of all.
    wanted = {"SESS01": {"db3"}, "SESS06": set(NAMES)}
    if fleet.vendor is MYSQL:
        del wanted["SESS01"]  # from 8.0.12 on a sort takes only what it needs
    missing = [code for code, own in wanted.items() if hosts.get(code) != own]
    costly = {row["code"] for row in answer["findings"] if row["severity"] in ("bottleneck", "cost", "risk")}
    # STMT: what the load is, and of a load that changes by chance.
    more = [
        row["code"]
        for row in answer["odd"]
        if row["code"] in costly - set(wanted) and not row["code"].startswith("STMT")
    ]
    odd = ", ".join(f"{row['code']} {row['few']}: {' '.join(row['hosts'])}" for row in answer["odd"])
    results.add(
        "fleet hunt: planted findings",
        f"{len(wanted)} found on their hosts, no other odd one that costs",
        f"{len(wanted) - len(missing)} found, {len(more)} invented (odd: {odd})",
        not missing and not more and not answer["no_server"],
    )


#: The host's own sshd, and when it is cut off: in a block of the trial, or while it is watched before it is kept.
CUTS = (("one", "trial"), ("10%", "soak"), ("replicas", "trial"), ("sources", "soak"))


def helps(fleet: Fleet, results: Results, options: argparse.Namespace) -> Rollout:
    """Promoted to all, with the way to a host cut in every stage."""
    rollout = Rollout(
        fleet, CACHE, (SMALL, LARGE), stages(fleet, options), experiment(fleet) if options.lab else None
    )
    plan = rollout.plan()
    results.add(
        "rollout that helps: stages",
        "one, 10%, replicas, sources",
        ", ".join(f"{stage['name']} {len(stage['hosts'])}" for stage in plan["stages"]),
        [stage["name"] for stage in plan["stages"]] == [name for name, _ in CUTS],
        lab=plan.get("expected"),
    )
    before = len(results.rows)
    is_over = threading.Event()
    wanted = [(stage, moment) for stage, moment in CUTS if stage in options.cut_in]
    cutting = threading.Thread(
        target=cut, args=(rollout, plan, results, options, wanted, is_over), daemon=True
    )
    cutting.start()
    code = rollout.finish(PATIENCE_S + len(wanted) * options.cut_s)
    is_over.set()
    cutting.join(options.cut_s + 60)
    cuts = len(results.rows) - before
    results.add("cuts", f"{len(wanted)}", f"{cuts}", cuts == len(wanted))
    values = fleet.values(CACHE)
    promoted = sum(value == LARGE for value in values.values())
    results.add(
        "rollout that helps: promoted",
        "to 8 hosts, exit code 0",
        f"to {promoted}, exit code {code}",
        code == 0 and promoted == len(NAMES),
    )
    status = rollout.status
    wins = {name: stage["verdict"]["is_win"] for name, stage in status["stages"].items() if stage["verdict"]}
    effects = {name: stage["effect"] for name, stage in status["stages"].items()}
    results.add(
        "rollout that helps: a win",
        "claimed in some stage",
        str(effects),
        any(wins.values()) and len(wins) == 4,
    )
    print(fleet.run("rollout", "status", rollout.id))
    results.rows[-1]["lab"] = status.get("lab")
    return rollout


def cut(
    rollout: Rollout,
    plan: Mapping[str, Any],
    results: Results,
    options: argparse.Namespace,
    cuts: Sequence[tuple[str, str]],
    is_over: threading.Event,
) -> None:
    """Once in each of these stages: the host must take the change back by itself within its lease."""
    hosts = {stage["name"]: set(stage["hosts"]) for stage in plan["stages"]}
    for stage, moment in cuts:
        if not wait_for_event(rollout, hosts[stage], stage if moment == "soak" else "", is_over):
            return
        name = rollout.events("applying")[-1]["host"]
        name = name if name in hosts[stage] else next(iter(hosts[stage]))
        watcher, place = rollout.fleet.watchers[name], rollout.fleet.places[name]
        until(lambda w=watcher: w.value(CACHE) == LARGE, pause_s=0.05)  # type: ignore[misc]
        place.cut()
        began = time.monotonic()
        limit = options.lease_s + SLACK_S
        while watcher.value(CACHE) == LARGE and time.monotonic() < began + limit + 30:
            time.sleep(0.05)
        took = time.monotonic() - began
        time.sleep(max(0.0, began + options.cut_s - time.monotonic()))
        still = watcher.stretches(CACHE, LARGE, time.time() - options.cut_s + limit)
        place.join()
        results.add(
            f"way to {name} cut for {options.cut_s:g} s, stage {stage}, {moment}",
            f"as before within {options.lease_s:g} s (+{SLACK_S:g})",
            f"after {took:.1f} s" + (f", then changed again for {max(still):.0f} s" if still else ""),
            took <= limit and not still,
        )


def wait_for_event(rollout: Rollout, hosts: set[str], stage: str, is_over: threading.Event) -> bool:
    """Until a host of the stage is being changed; with ``stage`` only after its verdict. Whether it was."""
    while not is_over.is_set():
        events = rollout.events()
        first = 0
        if stage:
            verdicts = [n for n, e in enumerate(events) if e["kind"] == "verdict" and e["stage"] == stage]
            first = verdicts[0] if verdicts else len(events)
        open_ones = [event for event in events[first:] if event["kind"] in ("applying", "undone", "kept")]
        if open_ones and open_ones[-1]["kind"] == "applying" and open_ones[-1]["host"] in hosts:
            return True
        time.sleep(0.05)
    return False


def harms(fleet: Fleet, results: Results, options: argparse.Namespace) -> None:
    """Taken back; no other host ever had it, and no client of them noticed."""
    rollout = Rollout(fleet, CACHE, (LARGE, SMALL), stages(fleet, options))
    before, errors = time.time() - 30, fleet.errors()
    rollout.plan()
    code = rollout.finish()
    end = time.time()
    tried = {event["host"] for event in rollout.events("applying")}
    values = fleet.values(CACHE)
    status = rollout.status
    pairs = len(rollout.events("pair"))
    results.add(
        "rollout that harms",
        "exit code 13, every host as before",
        f"exit code {code}, {pairs} pairs: {status['aborting'] or status['state']}",
        code == 13 and set(values.values()) == {LARGE},
    )
    bound = options.block_s + 0.5 + options.lease_s
    longest = max(rollout.longest(name) for name in tried)
    results.add(
        "harmful value, longest at a time",
        f"{bound:g} s (+{SLACK_S:g})",
        f"{longest:.1f} s",
        longest <= bound + SLACK_S,
    )
    others = [name for name in NAMES if name not in tried]
    had = [name for name in others if fleet.watchers[name].stretches(CACHE, SMALL, rollout.began)]
    ratios = {
        n: fleet.watchers[n].per_s(rollout.began, end) / fleet.watchers[n].per_s(before, rollout.began)
        for n in others
    }
    failed = {name: count - errors[name] for name, count in fleet.errors().items() if count > errors[name]}
    low = min(ratios.values())
    results.add("the other hosts meanwhile", "never had it, no failed query, at least 80% of the queries/s",
                f"{len(had)} of {len(others)} had it, {sum(failed.values())} failed, {low:.0%} on the slowest",
                not had and not failed and low > 0.8, ratios=ratios)  # fmt: skip


def nothing(fleet: Fleet, results: Results, options: argparse.Namespace) -> None:
    """No win, however often the controller is killed; a host that was on trial is as before within its lease."""
    rollout = Rollout(fleet, IDLE, (200, 300), stages(fleet, options))
    rollout.plan()
    late: list[str] = []
    killed = 0
    for _ in range(options.kills):
        process = rollout.go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(random.uniform(0.5, 6 * options.block_s))
        if process.poll() is not None:
            process.communicate()
            status = rollout.status
            if status["is_finished"] or status["is_aborted"] or not rollout.approved(status):
                break
            continue
        process.kill()
        process.communicate()
        killed += 1
        end = time.monotonic() + options.lease_s + SLACK_S
        while (left := unkept(rollout)) and time.monotonic() < end:
            time.sleep(0.1)
        late += left
    results.add(
        f"controller killed {killed} times",
        f"nothing unconfirmed stands after {options.lease_s:g} s (+{SLACK_S:g})",
        f"{len(late)} late {late or ''}",
        not late,
    )
    code = rollout.finish()
    status = rollout.status
    wins = [name for name, stage in status["stages"].items() if (stage["verdict"] or {}).get("is_win")]
    values = set(fleet.values(IDLE).values())
    results.add(
        "rollout that does nothing",
        "promoted, no win claimed",
        f"exit code {code}, wins: {wins or 'none'}",
        code == 0 and not wins and values == {300},
    )
    fleet.run("rollout", "abort", rollout.id)
    time.sleep(1)
    results.add(
        "abort",
        "all as before",
        str(set(fleet.values(IDLE).values())),
        set(fleet.values(IDLE).values()) == {200},
    )


def unkept(rollout: Rollout) -> list[str]:
    """Hosts with the new value that the log does not call kept."""
    states = rollout.status["hosts"]
    values = rollout.fleet.values(rollout.setting)
    return [
        name for name, value in values.items() if value == rollout.values[1] and states[name] != "changed"
    ]


def left_behind(fleet: Fleet, results: Results) -> None:
    """Programs of ours on the hosts once no controller is connected, and open changes."""
    mark = f"{fleet.found.hosts.disk}/home/.cache/headrace/agent-".encode()
    end = time.monotonic() + LEASE_S + SLACK_S
    while (left := [c for c in commands().values() if c[0].startswith(mark)]) and time.monotonic() < end:
        time.sleep(1)
    results.add(
        "agents left on the hosts",
        f"none after {LEASE_S:g} s (+{SLACK_S:g})",
        f"{len(left)} {left or ''}",
        not left,
    )
    answers = fleet.fleet("status")["answers"]["open changes"]
    results.add(
        "open changes",
        "none on 8",
        str(answers),
        [(a["value"], len(a["hosts"])) for a in answers] == [("none", 8)],
    )
    errors = fleet.errors()
    results.add("failed queries of all clients", "0", str(sum(errors.values())), not any(errors.values()))


def stages(fleet: Fleet, options: argparse.Namespace) -> Path:
    path = fleet.folder / "stages.toml"
    path.write_text(STAGES.format(block_s=options.block_s, lease_s=options.lease_s))
    return path


def experiment(fleet: Fleet) -> Path:
    """A small one of the same change, on a private server."""
    lines = []
    for each in operations():
        [statement] = each["statements"]
        lines.append(
            f'[[workload.operations]]\nname = "{each["name"]}"\nstatements = [{{ sql = "{statement["sql"]}" }}]'
        )
    text = PLAN.format(
        scratch=fleet.folder / "scratch", small=SMALL, large=LARGE, operations="\n".join(lines),
        setup=",\n".join(json.dumps(each) for each in setup()),
    )  # fmt: skip
    plan, folder = fleet.folder / "opens.toml", fleet.folder / "opens"
    plan.write_text(text)
    fleet.run("run", str(plan), "-o", str(folder))
    return folder


def work(fleet: Fleet, results: Results, options: argparse.Namespace) -> None:
    """The parts that were asked for."""
    parts = options.parts
    good = None
    if "ask" in parts:
        ask(fleet, results)
    if "helps" in parts:
        good = helps(fleet, results, options)
    elif "harms" in parts:
        for name in NAMES:
            fleet.found.sql(name, f"SET GLOBAL {CACHE} = {LARGE}")
        time.sleep(1)
    if "harms" in parts:
        harms(fleet, results, options)
    if "nothing" in parts:
        nothing(fleet, results, options)
    if good:
        fleet.run("rollout", "abort", good.id)
        time.sleep(1)
        values = set(fleet.values(CACHE).values())
        results.add("abort of the one that helped", "all as before", str(values), values == {SMALL})
    if "restarts" in parts:
        restarts(fleet, results)
    left_behind(fleet, results)


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = Results()
    code = 130
    try:
        with tempfile.TemporaryDirectory(prefix="hr-fleet8-", dir="/var/tmp") as place:
            Path(place).chmod(0o755)
            with servers(Path(place), VENDORS[options.server]) as fleet:
                work(fleet, results, options)
                if options.keep:
                    shutil.copytree(fleet.folder / "state", options.keep / "state")
                    if (folder := fleet.folder / "opens").exists():
                        shutil.copytree(folder, options.keep / "opens")
        code = int(not all(row["holds"] for row in results.rows))
    except KeyboardInterrupt:
        print("stopped; all servers and namespaces are gone")
    print(results.table())
    if options.json:
        options.json.write_text(json.dumps({"rows": results.rows, "code": code}, indent=1, default=str))
    return code


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--cut-s", type=float, default=600.0, help="how long the way to a host is cut, in every stage"
    )
    stages_of_cuts = [stage for stage, _ in CUTS]
    parser.add_argument(
        "--cut-in", nargs="*", choices=stages_of_cuts, default=stages_of_cuts, help="these stages"
    )
    parser.add_argument("--kills", type=int, default=50, help="of the controller, at random moments")
    parser.add_argument("--server", choices=VENDORS, default="mariadb")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="of all that is done")
    parser.add_argument(
        "--no-lab",
        dest="lab",
        action="store_false",
        help="without the experiment before the rollout that helps",
    )
    parser.add_argument("--block-s", type=float, default=3.0)
    parser.add_argument(
        "--lease-s", type=float, default=10.0, help="how long a host waits for its controller"
    )
    parser.add_argument("--json", type=Path, help="where the rows are written")
    parser.add_argument("--keep", type=Path, help="a folder for the rollouts and the experiment")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
