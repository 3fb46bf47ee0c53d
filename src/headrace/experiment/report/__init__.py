"""Reports for people and programs: every report is a list of parts, which render to HTML, to a terminal and to
JSON.

of(folder)            the report of an experiment's folder, whatever its kind write(page, folder)   report.html and
report.json in the folder
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.experiment.store import ExperimentFolder
    from headrace.show.parts import Page

__all__ = ["of", "write"]


def of(folder: ExperimentFolder) -> Page:
    """The report of a folder. Raises StoreError when its tables cannot be read."""
    from headrace.experiment.report import kinds

    return kinds.page_of(folder)


def write(page: Page, folder: ExperimentFolder) -> Path:
    """Write ``report.json`` and ``report.html`` into the experiment's folder; the path of the page.

    Raises DiskFull when there is no room.
    """
    # Lazy: the progress display is also in this package and must not wait for a page's libraries.
    from headrace.base.encode import json_text
    from headrace.show import html, jsonform

    content = json_text(jsonform.render(page), indent=2) + "\n"
    folder.write_output("report.json", content)
    return folder.write_output("report.html", html.render(page))
