"""TPC-C by headrace's driver. docs/reference/tpcc.md lists the differences from the specification."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from headrace.base.errors import WorkloadFailed
from headrace.base.model import Value
from headrace.experiment.workloads.drive.options import ServerDriveOptions
from headrace.experiment.workloads.drive.workload import ServerDriven
from headrace.experiment.workloads.workload import Context, Measurement


class TpccOptions(ServerDriveOptions):
    """The size of the database, and the terminals' times."""

    warehouses: Annotated[int, Field(ge=1, le=100_000)] = Field(
        1, description="warehouses, of about 110 MB each"
    )
    times: Literal["none", "specification"] = Field(
        "none",
        description="keying and think times: those of the specification (10 connections per warehouse), or none",
    )

    foreign_keys: bool = Field(False, description="the foreign keys of the schema, which the server checks")

    @model_validator(mode="after")
    def _has_one_kind_of_times(self) -> TpccOptions:
        if self.times == "specification" and (self.is_open or self.think_time_s):
            raise ValueError(
                'times = "specification": determines when operations start; remove rate, profile, '
                "think_time_s"
            )
        return self


class Tpcc(ServerDriven[TpccOptions]):
    """The five transactions are the operations; consistency is checked after the load and after each trial."""

    kind = "tpcc"
    Options = TpccOptions

    def dataset(self) -> Mapping[str, Value]:
        o = self.options
        return {"loader": self.kind, "warehouses": o.warehouses, "foreign_keys": o.foreign_keys}

    def load(self) -> dict[str, Any]:
        o = self.options
        return {"warehouses": o.warehouses, "times": o.times, "foreign_keys": o.foreign_keys}

    async def prepare(self, context: Context) -> None:
        await super().prepare(context)
        await self._verify(context, "after the load")

    async def run(self, context: Context) -> Measurement:
        measured = await super().run(context)
        await self._verify(context, "after the trial")
        return measured

    async def _verify(self, context: Context, when: str) -> None:
        answer = await self._ask(context, "verify", await self._subject(context))
        violated = [
            f"condition {c['condition']} of clause 3.3.2, {c['what']}: {c['violations']:,} times violated"
            for c in json.loads(answer.stdout)
            if not c["holds"]
        ]
        if violated:
            raise WorkloadFailed(f"the database is inconsistent {when}: {'; '.join(violated)}")
