"""Results measured elsewhere: tables and the output of benchmarks, as rows of factor levels and responses.

``table`` reads tables as people keep them, ``outputs`` the files of benchmarks by ``formats/``. Each row is one
run that ended as it should: runs that failed or are incomplete are left out, named and counted. The order of runs
and their warm-up are unknown, and the analysis says so. Imports only ``errors``.
"""

from __future__ import annotations

from headrace.experiment.foreign.outputs import read_outputs
from headrace.experiment.foreign.row import Row, Table
from headrace.experiment.foreign.table import cells_of, number_columns, read_csv, read_tables

__all__ = ["Row", "Table", "cells_of", "number_columns", "read_csv", "read_outputs", "read_tables"]
