"""The user's own statements as operations: SQL with typed parameters and weights, from the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from headrace.base.model import Value
from headrace.experiment.store import RECONNECT
from headrace.experiment.workloads.drive.options import Keys, ServerDriveOptions
from headrace.experiment.workloads.drive.workload import ServerDriven
from headrace.experiment.workloads.options import Described, Options, ascending

_INT64 = 2**63
_Int64 = Annotated[int, Field(ge=-_INT64, lt=_INT64), Described("an integer of at most 64 bits")]
_Length = Annotated[int, Field(ge=0, le=16_000_000)]


class _AsWritten(Options):
    def spec(self) -> dict[str, Any]:
        """As the driver reads it."""
        return self.model_dump()


class IntParameter(Keys):
    """a whole number from `min` to `max`"""

    kind: Literal["int"]
    min: _Int64 = Field(description="the smallest")
    max: _Int64 = Field(description="the largest")

    @model_validator(mode="after")
    def _ascends(self) -> IntParameter:
        return ascending(self, "min", "max")

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "min": self.min, "max": self.max, "distribution": self.law()}


class FloatParameter(_AsWritten):
    """a number from `min` to `max`, all equally likely"""

    kind: Literal["float"]
    min: float = Field(description="the smallest")
    max: float = Field(description="the largest")

    @model_validator(mode="after")
    def _ascends(self) -> FloatParameter:
        return ascending(self, "min", "max")


class TextParameter(_AsWritten):
    """random letters and digits"""

    kind: Literal["text"]
    min_length: _Length = Field(description="minimum length")
    max_length: _Length = Field(description="the most")

    @model_validator(mode="after")
    def _ascends(self) -> TextParameter:
        return ascending(self, "min_length", "max_length")


class ChoiceParameter(_AsWritten):
    """one of several values, all equally likely; repeat a value to make it more likely"""

    kind: Literal["choice"]
    values: Annotated[
        list[str | int | float], Field(min_length=1), Described("a list of at least one text or number")
    ] = Field(description="the values")


class SequenceParameter(_AsWritten):
    """a whole number that is unique over all clients, for new keys"""

    kind: Literal["sequence"]
    start: Annotated[int, Field(ge=0, lt=_INT64)] = Field(1, description="the first")


class SameParameter(Options):
    """the value of an earlier parameter of this operation"""

    kind: Literal["same"]
    parameter: Annotated[int, Field(ge=0)] = Field(
        alias="as", description="which one, counted from 0 over all statements of the operation"
    )

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "as": self.parameter}


_Parameter = Annotated[
    IntParameter | FloatParameter | TextParameter | ChoiceParameter | SequenceParameter | SameParameter,
    Field(discriminator="kind"),
]


class Statement(Options):
    """A statement of an operation."""

    sql: Annotated[str, Field(min_length=1), Described("a statement")] = Field(
        description="the statement, with ? for each parameter"
    )
    parameters: list[_Parameter] = Field([], description="the value of each ?, in order")

    def spec(self) -> dict[str, Any]:
        return {"sql": self.sql, "parameters": [parameter.spec() for parameter in self.parameters]}


class Operation(Options):
    """One kind of work, counted and timed as a whole."""

    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$"),
        Described("a name of letters, digits, blanks, dots, _ and -"),
    ] = Field(description="its name in tables and charts")
    weight: Annotated[float, Field(gt=0, le=1e9)] = Field(1.0, description="its relative frequency")
    transaction: bool = Field(False, description="BEGIN and COMMIT around its statements")
    statements: Annotated[list[Statement], Field(min_length=1), Described("a list of at least one table")] = (
        Field(description="its statements, in order")
    )

    @field_validator("name")
    @classmethod
    def _is_free(cls, value: str) -> str:
        if value == RECONNECT:
            raise ValueError(f"{value!r} is the name under which reconnects are counted")
        return value

    @model_validator(mode="after")
    def _refers_to_earlier(self) -> Operation:
        before = 0
        for i, statement in enumerate(self.statements):
            for j, parameter in enumerate(statement.parameters):
                if isinstance(parameter, SameParameter) and parameter.parameter >= before:
                    raise ValueError(
                        f"statements[{i}].parameters[{j}].as = {parameter.parameter}: "
                        f"must be below {before}, the number of parameters before it"
                    )
                before += 1
        return self

    def spec(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "weight": self.weight,
            "transaction": self.transaction,
            "statements": [statement.spec() for statement in self.statements],
        }


class SqlOptions(ServerDriveOptions):
    """The operations, and the tables that they need."""

    setup: list[str] = Field([], description="statements that create the data, each once, in order")
    tables: Annotated[int, Field(ge=0, le=10_000)] = Field(
        0, description="tables sbtest1, sbtest2, ... like those of the workload oltp, loaded before the setup"
    )
    table_size: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(10_000, description="rows of each of these")
    prepared: bool = Field(True, description="prepared statements; otherwise text")
    operations: Annotated[list[Operation], Field(min_length=1), Described("a list of at least one table")] = (
        Field(description="the operations of the clients, one table each")
    )

    @field_validator("operations")
    @classmethod
    def _has_names_of_its_own(cls, value: list[Operation]) -> list[Operation]:
        names = [operation.name for operation in value]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two have the name {twice!r}")
        return value


class Sql(ServerDriven[SqlOptions]):
    """The operations are the plan's."""

    kind = "sql"
    Options = SqlOptions

    def dataset(self) -> Mapping[str, Value]:
        o = self.options
        # Without tables their size is irrelevant, and must not require another copy of the data.
        size = {"table_size": o.table_size} if o.tables else {}
        return {"loader": self.kind, "setup": o.setup, "tables": o.tables, **size}

    def load(self) -> dict[str, Any]:
        o = self.options
        return {
            "prepared": o.prepared,
            "setup": o.setup,
            "tables": o.tables,
            "table_size": o.table_size,
            "operations": [operation.spec() for operation in o.operations],
        }
