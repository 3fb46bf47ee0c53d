"""sysbench's OLTP operations by headrace's driver, on tables like sysbench's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from headrace.base.model import Value
from headrace.experiment.workloads.drive.options import Keys, ServerDriveOptions
from headrace.experiment.workloads.drive.workload import ServerDriven
from headrace.experiment.workloads.options import Described

_Count = Annotated[int, Field(ge=0, le=100_000)]


class OltpOptions(ServerDriveOptions, Keys):
    """Names and defaults of what an operation does are sysbench's."""

    script: Literal[
        "point_select",
        "read_only",
        "read_write",
        "write_only",
        "update_index",
        "update_non_index",
        "insert",
        "delete",
        "study",
    ] = Field(
        "read_write",
        description="the operation, as sysbench's oltp_ script of that name; "
        "`study`: insert, select and update by key, each its own transaction",
    )
    tables: Annotated[int, Field(ge=1, le=10_000)] = Field(1, description="number of tables")
    table_size: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(10_000, description="rows of each table")
    prepared: bool = Field(True, description="prepared statements; otherwise text")
    transactions: bool = Field(True, description="BEGIN and COMMIT around the statements of an operation")
    point_selects: _Count = Field(10, description="point selects per operation")
    simple_ranges: _Count = Field(1, description="simple range selects per operation")
    sum_ranges: _Count = Field(1, description="SUM range selects per operation")
    order_ranges: _Count = Field(1, description="ORDER BY range selects per operation")
    distinct_ranges: _Count = Field(1, description="DISTINCT range selects per operation")
    range_size: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(100, description="rows of a range select")
    index_updates: _Count = Field(1, description="updates of the indexed column per operation")
    non_index_updates: _Count = Field(1, description="updates of another column per operation")
    delete_inserts: _Count = Field(1, description="pairs of delete and insert per operation")
    secondary: bool = Field(False, description="a secondary index instead of the primary key")
    create_secondary: bool = Field(True, description="an index on column k")
    storage_engine: Annotated[str, Field(pattern=r"^\w+$"), Described("a storage engine's name")] = Field(
        "innodb", description="storage engine of the tables"
    )


#: Options that change the tables' rows. Others only change the load.
_DATASET = ("tables", "table_size", "secondary", "create_secondary", "storage_engine")

_LOAD = (
    "script",
    "prepared",
    "transactions",
    "point_selects",
    "simple_ranges",
    "sum_ranges",
    "order_ranges",
    "distinct_ranges",
    "range_size",
    "index_updates",
    "non_index_updates",
    "delete_inserts",
)


class Oltp(ServerDriven[OltpOptions]):
    """The one operation has the script's name; with transactions it is one of them."""

    kind = "oltp"
    Options = OltpOptions

    def dataset(self) -> Mapping[str, Value]:
        return {"loader": self.kind, **{name: getattr(self.options, name) for name in _DATASET}}

    def load(self) -> dict[str, Any]:
        own = {name: getattr(self.options, name) for name in (*_LOAD, *_DATASET)}
        return {**own, "distribution": self.options.law()}
