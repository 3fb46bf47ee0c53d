"""OpenMetrics in the folder that node_exporter's textfile collector reads: one file per subject, replaced in one
step.

The lines are also valid for Prometheus's older text format, which that collector parses: gauges only, no
timestamps.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.errors import PlanError
from headrace.show import text
from headrace.show.notice import Conclusion, Notice
from headrace.tell.files import write_whole

if TYPE_CHECKING:
    from headrace.tell.kind import Teller

#: Metric -> its help. Equal in every file: the collector refuses two of one name that differ.
_HELP = {
    "headrace_verdict": "1 for the current verdict, 0 for the others.",
    "headrace_verdict_time_seconds": "When the verdict was sent, Unix time.",
    "headrace_verdict_ratio": "Effect as a ratio; absent if it is not known.",
    "headrace_verdict_ratio_low": "Lower end of the ratio's interval.",
    "headrace_verdict_ratio_high": "Upper end of the ratio's interval.",
    "headrace_verdict_count": "Hosts by state, settings that differ, points, changes.",
}

_Sample = tuple[Mapping[str, str], float]


def opened(place: str) -> Teller:
    folder = Path(place)
    if not folder.is_dir():
        raise PlanError(
            "no such directory", place=place, hint="that of node_exporter --collector.textfile.directory"
        )
    return lambda notice: write_whole(folder / file_name(notice), content(notice, time.time()))


def file_name(notice: Notice) -> str:
    """One per subject, so that its next verdict replaces this one."""
    key = hashlib.sha256(f"{notice.kind}\0{notice.subject}".encode()).hexdigest()[:8]
    return f"headrace_{re.sub(r'[^a-z0-9]+', '_', notice.kind.lower())}_{key}.prom"


def content(notice: Notice, now_s: float) -> str:
    lines = []
    for name, help_ in _HELP.items():
        samples = list(_samples(name, notice, now_s))
        if not samples:
            continue
        lines += [f"# HELP {name} {help_}", f"# TYPE {name} gauge"]
        for labels, value in samples:
            named = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
            lines.append(f"{name}{{{named}}} {value!r}")
    return "\n".join([*lines, "# EOF", ""])


def _samples(name: str, notice: Notice, now_s: float) -> Iterator[_Sample]:
    about = {"kind": notice.kind, "subject": notice.subject}
    if name == "headrace_verdict":
        for each in Conclusion:
            yield {**about, "verdict": str(each)}, float(each is notice.conclusion)
    elif name == "headrace_verdict_time_seconds":
        yield about, round(now_s, 3)
    elif name == "headrace_verdict_count":
        for what, count in notice.counts.items():
            yield {**about, "of": what}, float(count)
    else:
        attribute = {"ratio": "estimate", "low": "low", "high": "high"}[name.rpartition("_")[2]]
        seen = set()
        for told in notice.effects:
            value = getattr(told.ratio, attribute)
            key = (told.subject, told.response)
            if value is None or not math.isfinite(value) or key in seen:
                continue
            seen.add(key)
            yield {**about, "of": told.subject, "response": told.response}, float(value)


def _escaped(label: str) -> str:
    # text.clean may make backslashes; these are escaped like any other.
    return text.clean(label).replace("\\", "\\\\").replace('"', '\\"')
