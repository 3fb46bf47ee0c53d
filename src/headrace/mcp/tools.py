"""The tools: each reads something that was saved, and returns evidence with its id, effects and intervals."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from headrace.base.encode import plain
from headrace.base.errors import NothingMeasured, PlanError
from headrace.experiment import report
from headrace.experiment.stats import history as histories
from headrace.experiment.stats.study import points_of
from headrace.experiment.store import ExperimentFolder
from headrace.fleet.runs import last_answers
from headrace.mcp.library import Library, id_of
from headrace.mcp.untrusted import Own, marked, own, untrusted, word
from headrace.traffic import figures as traffic

#: Of one answer.
MOST_FINDINGS, MOST_CLASSES, MOST_POINTS, MOST_DIFFERENCES = 50, 50, 1000, 200

Answer = dict[str, Any]


@dataclass(frozen=True)
class Tools:
    """The methods are the tools; a docstring is what an assistant is told."""

    library: Library

    def list_evidence(self) -> Answer:
        """List saved experiments, hunts (saved hosts) and digests of traffic. The text of a path is what the tools
        take; `not_listed` counts names that cannot be shown as they are."""
        entries = list(self.library.entries())
        shown = [each for each in entries if untrusted(each.path)["untrusted"] == each.path]
        return {
            "evidence": [{"kind": Own(each.kind), "path": untrusted(each.path)} for each in shown],
            "not_listed": len(entries) - len(shown),
        }

    def experiment(self, path: str) -> Answer:
        """The verdict of an experiment: each effect as a ratio to its baseline with an interval, and the commands
        that apply the winner and undo it (a person runs them)."""
        with self.library.copied(path) as place:
            found = report.of(ExperimentFolder.open(place)).notice
        if found is None:
            raise NothingMeasured("it has no verdict", place=path)
        commands = found.next.replace(str(place), str(self.library.root / path))
        return {
            "id": word(found.id),
            "kind": word(found.kind),
            "conclusion": Own(found.conclusion),
            "subject": untrusted(found.subject),
            "headline": untrusted(found.headline),
            "effects": [
                {
                    "of": untrusted(each.subject),
                    "response": word(each.response),
                    "ratio": plain(each.ratio),
                    "verdict": Own(each.verdict),
                }
                for each in found.effects
            ],
            "commands_for_a_person": untrusted(commands),
        }

    def hunt_findings(self, path: str) -> Answer:
        """What a saved hunt found to limit a host: findings with numbers, remedies and how to refute each."""
        from headrace.host.snapshot import load
        from headrace.hunt.hunt import examine
        from headrace.hunt.report.findings import to_json

        with self.library.opened(path) as place:
            hunt = examine(load(place))
            name = id_of(place)
        found = hunt.judgement.findings
        return {
            "id": Own(name),
            "host": untrusted(hunt.evidence.facts.hostname or hunt.snapshot.target),
            "started_at": untrusted(hunt.snapshot.started_at),
            "seconds": hunt.snapshot.seconds,
            "verdict": untrusted(hunt.verdict.sentence),
            "finding_count": len(found),
            "findings": [_finding(to_json(hunt, each)) for each in found[:MOST_FINDINGS]],
        }

    def query_classes(self, path: str, count: int = 10, order: str = "sum") -> Answer:
        """The top query classes of a saved digest: calls, share of time, percentiles in ns, and a statement."""
        from headrace.traffic.digests.classes import open_digest
        from headrace.traffic.digests.files import load_each
        from headrace.traffic.report.jsonform import to_json
        from headrace.traffic.report.words import View

        if order not in traffic.ORDERS:
            raise PlanError(f"order is one of {', '.join(traffic.ORDERS)}", place=order[:100])
        with self.library.opened(path) as place:
            tables = list(load_each(place))
            name = id_of(place)
        if len(tables) != 1:
            raise PlanError(f"the file has {len(tables)} digests, not one", place=path)
        content = to_json(open_digest(tables[0]), View(order, min(max(count, 1), MOST_CLASSES)))
        return {
            "id": Own(name),
            "coverage": {k: v for k, v in content["coverage"].items() if isinstance(v, int)},
            "class_count": content["class_count"],
            "classes": [_class(each) for each in content["classes"]],
        }

    def fleet_drift(self) -> Answer:
        """How hosts differ from each other and from their own files, by the last answers of `headrace fleet drift`
        on this machine."""
        from headrace.fleet.drift import Collected
        from headrace.fleet.evidence import ranked
        from headrace.fleet.report import drift as words

        collected, ages = Collected(), {}
        for outcome in last_answers("drift"):
            collected.add(outcome.host, outcome.answer)
            ages[outcome.host] = round(max(time.time() - outcome.at, 0.0))
        if not ages:
            raise NothingMeasured("no host has answered yet", hint="headrace fleet drift --fleet HOSTS")
        found = collected.drift()
        content = words.to_json(found, ranked(found, None))
        return {
            "age_s": {untrusted(host)["untrusted"]: age for host, age in ages.items()},
            "settings_compared": content["settings_compared"],
            "differences": marked(content["differences"][:MOST_DIFFERENCES]),
            "unlike_their_files": marked(content["own"][:MOST_DIFFERENCES]),
            "slower_after_a_failover": marked(content["failovers"]),
        }

    def history(self, paths: list[str], response: str = "throughput", treatment: str = "") -> Answer:
        """Changes of level over experiments given in order of time, told from noise."""
        if not 1 <= len(paths) <= MOST_POINTS:
            raise PlanError(f"name 1 to {MOST_POINTS} experiments")
        points = [self._points(path, treatment, response) for path in paths]
        found = histories.watch(points, is_higher_better=response == "throughput")
        from headrace.experiment.report.history import words

        return {
            "headline": untrusted(words.headline(found)),
            "noise": found.noise,
            "changes": [
                {
                    "from": untrusted(each.name),
                    "path": untrusted(paths[each.at]),
                    "ratio": plain(each.ratio),
                    "p": each.p,
                    "verdict": Own(each.verdict),
                }
                for each in found.changes
            ],
        }

    def _points(self, path: str, treatment: str, response: str) -> histories.Point:
        with self.library.copied(path) as place:
            return points_of(ExperimentFolder.open(place), treatment, response)


def _finding(content: dict[str, Any]) -> Answer:
    """The rule's own words are headrace's; numbers and settings name what is on the host."""
    ours: dict[str, Literal[True]] = dict.fromkeys(
        ("title", "severity", "confidence", "why", "refute", "disputed", "source"), True
    )
    return {key: own(plain(value)) if key in ours else marked(value) for key, value in content.items()}


def _class(content: dict[str, Any]) -> Answer:
    kept = ("calls", "calls_a_second", "share_of_response_time", "failed", "response_ns")
    return {
        **{key: plain(content[key]) for key in kept},
        "id": untrusted(content["id"]),
        "statement": untrusted(content["fingerprint"]),
        "tables": marked(content["tables"]),
        "errors": marked(content["errors"]),
    }
