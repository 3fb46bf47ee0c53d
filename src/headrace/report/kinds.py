"""Which report belongs to which kind of experiment."""

from __future__ import annotations

from importlib import import_module

from headrace.report.parts import Page
from headrace.store import ExperimentFolder


def page_of(folder: ExperimentFolder) -> Page:
    """The report of a folder. Raises StoreError when its tables cannot be read."""
    from headrace.experiment import kinds

    package = kinds.of_design(folder.design).page
    page: Page = import_module(f"headrace.report.{package}.page").of_folder(folder)
    return page
