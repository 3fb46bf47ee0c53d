"""The list of commands."""

from __future__ import annotations

from collections.abc import Mapping

#: What people come for -> its commands, in the order of ``headrace --help``.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Look": ("hunt", "top", "facts", "doctor", "fleet", "serve", "collect", "rules", "knobs", "latencies"),
    "Test": (
        *("demo", "run", "propose", "prove", "tune", "status", "report", "compare", "plan"),
        *("import", "watch", "lab"),
    ),
    "Change": ("apply", "rollback", "rollout", "verify"),
    "Traffic": ("record", "recording", "digest", "replay", "indexes"),
    "Plan ahead": ("size",),
    "Elsewhere": ("docs", "tell", "mcp"),
}

#: Module below ``headrace`` -> its commands and their summaries. Only the module of the given command is
#: imported: importing all forty takes as long as starting Python and typer.
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "host.command": {
        "doctor": "Check whether a machine is ready.",
        "facts": "Show how a host and its servers are configured.",
    },
    "hunt.commands.hunt": {
        "hunt": "Find what limits a host, why, and what would help.",
        "rules": "List the rules that hunt evaluates, and explain one.",
    },
    "hunt.commands.collect": {
        "collect": "Print a shell script for hosts where nothing may be installed.",
    },
    "fleet.command": {
        "fleet": "Query many hosts at once, and compare them.",
    },
    "rollout.command": {
        "rollout": "Change a fleet in stages; each stage is judged.",
    },
    "hunt.commands.top": {
        "top": "A live view of a host and its server.",
    },
    "web.command": {
        "serve": "Web pages of hosts, queries, experiments and changes.",
    },
    "experiment.commands.prove": {
        "prove": "Test the fixes for findings on a workload; keep what is proven.",
    },
    "experiment.commands.propose": {
        "propose": "A whole configuration for this server, each line with its reason.",
    },
    "change.commands.changes": {
        "apply": "Change settings of a live host, reversibly.",
        "rollback": "Restore original values, and list changes.",
        "knobs": "List settings and their current values.",
    },
    "experiment.commands.experiments": {
        "run": "Run a plan of any kind, or continue it.",
        "demo": "Tune a stock MariaDB and prove the gain.",
        "report": "Analyse an experiment and write its report.",
        "status": "Show an experiment's progress.",
        "compare": "Compare two experiments.",
        "plan": "Inspect plan files without running them.",
    },
    "experiment.commands.tune": {
        "tune": "Search many knobs, then confirm the best.",
    },
    "experiment.commands.watch": {
        "watch": "Detect changes in a series of results.",
    },
    "change.commands.verify": {
        "verify": "Compare production before and after a change.",
    },
    "tell.command": {
        "tell": "Send a verdict to chats, mail, dashboards and pipelines.",
    },
    "mcp.command": {
        "mcp": "Serve saved evidence to AI assistants.",
    },
    "experiment.commands.imports": {
        "import": "Analyse results measured elsewhere: tables, benchmark output.",
    },
    "traffic.commands.recording": {
        "record": "Record what clients send, or a server's latency histograms.",
        "recording": "Inspect, cut, merge, filter and anonymise recordings.",
    },
    "traffic.commands.digest": {
        "digest": "Summarise traffic by query class.",
    },
    "indexes.commands.indexes": {
        "indexes": "Find the indexes that traffic lacks, and those too many.",
    },
    "traffic.commands.replay": {
        "replay": "Replay recorded traffic on a server, and compare its answers.",
    },
    "capacity.commands.size": {
        "size": "When hosts are full, and which databases can share one.",
    },
    "hunt.commands.latencies": {
        "latencies": "Measure this machine's latencies, from CPU cache to commit.",
    },
    "lab.command": {
        "lab": "Virtual machines with a chosen kernel, disks and network.",
    },
    "cli.docs": {
        "docs": "Open or search the documentation.",
    },
}
