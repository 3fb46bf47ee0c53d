"""Private servers: MariaDB, MySQL and Percona Server, started from a treatment, with data of their own."""

from __future__ import annotations

from headrace.lab.server.dataset import build_dataset, dataset_folder, restore_dataset
from headrace.lab.server.process import PrivateServer
from headrace.lab.server.program import required_tools
from headrace.lab.server.spec import LAYOUT_VARIABLES, Change, ServerSpec

__all__ = [
    "LAYOUT_VARIABLES",
    "Change",
    "PrivateServer",
    "ServerSpec",
    "build_dataset",
    "dataset_folder",
    "required_tools",
    "restore_dataset",
]
