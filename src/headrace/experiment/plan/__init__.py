"""The plan file: user-written TOML, as checked tables."""

from headrace.experiment.plan.file import Plan, PlanFile, load, parse
from headrace.experiment.plan.problems import describe
from headrace.experiment.plan.sweep import SweepTable
from headrace.experiment.plan.tables import (
    ALL,
    AS_IS,
    AUTO,
    BLOCKS_PER_START,
    NONE,
    RESPONSE_NAMES,
    SWITCHBACK_BLOCKS,
    VM,
    WASHOUT_S,
    DesignTable,
    FactorTable,
    MachineTable,
    ServerTable,
    Settings,
    TargetTable,
    VolumeTable,
    WorkloadTable,
    size_in_bytes,
)
from headrace.experiment.plan.tune import KnobRange, TuneTable

__all__ = [
    "ALL",
    "AS_IS",
    "AUTO",
    "BLOCKS_PER_START",
    "NONE",
    "RESPONSE_NAMES",
    "SWITCHBACK_BLOCKS",
    "VM",
    "WASHOUT_S",
    "DesignTable",
    "FactorTable",
    "KnobRange",
    "MachineTable",
    "Plan",
    "PlanFile",
    "ServerTable",
    "Settings",
    "SweepTable",
    "TargetTable",
    "TuneTable",
    "VolumeTable",
    "WorkloadTable",
    "describe",
    "load",
    "parse",
    "size_in_bytes",
]
