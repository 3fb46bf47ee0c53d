"""What an experiment says to people and programs: a page, a terminal table, and JSON.

build_report(folder, analysis)   writes report.html and report.json, returns the page's path
to_json(folder, analysis)        the content of report.json
terminal.result(folder, analysis)  the result table for a terminal
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.report import terminal
from headrace.report.jsonform import to_json

if TYPE_CHECKING:
    from headrace.analysis.result import Analysis
    from headrace.analysis.trials import Tables
    from headrace.store import ExperimentFolder

__all__ = ["build_report", "terminal", "to_json"]


def build_report(folder: ExperimentFolder, analysis: Analysis, tables: Tables | None = None) -> Path:
    """Write ``report.json`` and ``report.html`` into the experiment's folder; the path of the page. ``tables`` as
    in ``analyse_experiment``.

    Raises StoreError when the experiment's tables cannot be read, DiskFull when there is no room.
    """
    # Lazy: the progress display lives in this package, too, and must not wait for a page's libraries.
    import json

    from headrace.report import evidence, html

    found = evidence.gather(folder, analysis, tables)
    content = to_json(folder, analysis, found.responses)
    folder.write_output("report.json", json.dumps(content, indent=2, allow_nan=False) + "\n")
    return folder.write_output("report.html", html.render(folder, analysis, found))
