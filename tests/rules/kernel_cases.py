"""Cases of the rules about mounts, control groups and the price of a system call."""

from __future__ import annotations

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import cores, unwell

BUSY_KERNEL = {"cpu.system.cpu3": 90.0, "cpu.user.cpu3": 5.0, "cpu.idle.cpu3": 3.0}
IBRS = {"mitigations.retbleed": "Mitigation: IBRS"}
ENTERS = {**cores(system=40.0, user=30.0, idle=28.0), "cpu.ctxt.": 80_000.0}


def objects(**counts: float) -> dict[str, float]:
    return {f"objects.{metric}.": count for metric, count in counts.items()}


CASES = [
    Case(
        "MEM23",
        "a core walks through what is left of them",
        lambda: unwell(rates=BUSY_KERNEL, gauges=objects(mounts=40.0, dying_groups=50_003.0)),
        ("",),
        ("50,003 control groups were removed and still exist", "of its busiest core"),
        steps=("systemd-cgtop", "drop_caches"),
        severity=Severity.COST,
    ),
    Case(
        "MEM23",
        "many that nobody feels",
        lambda: unwell(gauges=objects(mounts=40.0, dying_groups=9_000.0)),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "MEM23",
        "version 1 has only their number",
        lambda: unwell(
            gauges={**objects(mounts=40.0), "objects.groups_by_controller.memory": 61_000.0},
        ),
        ("",),
        ("61,000 memory control groups, of which most were probably removed",),
    ),
    Case(
        "MEM23",
        "version 1 beside a version 2 that only systemd uses",
        lambda: unwell(
            gauges={
                **objects(mounts=40.0, groups=180.0, dying_groups=0.0),
                "objects.groups_by_controller.memory": 61_000.0,
            },
        ),
        ("",),
        ("61,000 memory control groups, of which most were probably removed",),
    ),
    Case(
        "MEM23",
        "many that are in use",
        lambda: unwell(
            gauges={
                **objects(mounts=40.0, groups=60_990.0, dying_groups=10.0),
                "objects.groups_by_controller.memory": 61_000.0,
            },
        ),
    ),
    Case("MEM23", "a few", lambda: unwell(gauges=objects(mounts=40.0, dying_groups=120.0))),
    Case(
        "MEM23", "not counted", lambda: unwell(without=["objects"]), missing="control groups were not counted"
    ),
    Case(
        "FS15",
        "thousands, and the manager reads them",
        lambda: unwell(
            rates={"process.utime_ticks.1/systemd": 60.0, "process.stime_ticks.1/systemd": 20.0},
            gauges=objects(mounts=12_000.0),
        ),
        ("",),
        ("the host has 12,000 mounts; systemd use 0.8 CPUs",),
        steps=("findmnt", "Unmount"),
        severity=Severity.COST,
    ),
    Case(
        "FS15",
        "thousands at rest",
        lambda: unwell(gauges=objects(mounts=2_500.0)),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("FS15", "as many as usual", lambda: unwell(gauges=objects(mounts=60.0))),
    Case("FS15", "not counted", lambda: unwell(without=["objects"]), missing="mounts were not counted"),
    Case(
        "CPU16",
        "restricted at each call, and many calls",
        lambda: unwell(facts=IBRS, rates=ENTERS),
        ("",),
        ("branch prediction is restricted at each system call (retbleed)",),
        steps=("Leave the guards on", "Not affected"),
        severity=Severity.ADVICE,
    ),
    Case("CPU16", "restricted, and few calls", lambda: unwell(facts=IBRS, rates={"cpu.ctxt.": 40_000.0})),
    Case("CPU16", "newer guards", lambda: unwell(rates=ENTERS)),
]
