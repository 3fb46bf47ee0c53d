"""Which report belongs to which kind of experiment."""

from __future__ import annotations

from importlib import import_module

from headrace.experiment.store import ExperimentFolder
from headrace.show.parts import Page


def page_of(folder: ExperimentFolder) -> Page:
    """The report of a folder. Raises StoreError when its tables cannot be read."""
    from headrace.experiment import kinds

    module = kinds.of_design(folder.design).page
    page: Page = import_module(f"headrace.experiment.report.{module}").of_folder(folder)
    return page
