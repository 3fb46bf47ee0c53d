"""A plan's options for every workload of the driver: connections, pacing, keys, clients."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from headrace.base.counted import counted
from headrace.base.errors import PlanError
from headrace.experiment.workloads.options import Options
from headrace.host.target import TargetSpec


class Piece(Options):
    """A part of a profile."""

    seconds: Annotated[float, Field(gt=0, lt=1e9)] = Field(description="how long it lasts")
    from_ops_s: Annotated[float, Field(ge=0, le=1e9)] = Field(
        description="operations per second at its start"
    )
    to_ops_s: Annotated[float, Field(ge=0, le=1e9)] = Field(
        description="operations per second at its end; in between the rate changes linearly"
    )


class DriveOptions(Options):
    """How operations are started. If several clients drive the load, each takes its share of each number."""

    connections: Annotated[int, Field(ge=1, le=100_000)] = Field(
        1, description="connections, over all clients"
    )
    threads: Annotated[int, Field(ge=0, le=1024)] = Field(
        0, description="threads per driver, each serving many connections; 0: automatic"
    )
    rate: Annotated[float, Field(ge=0, le=1e9)] = Field(
        0.0,
        description=(
            "operations per second, started regardless of the server (open loop); 0: a connection starts one "
            "when its previous one has ended (closed loop)"
        ),
    )
    arrivals: Literal["poisson", "constant"] = Field(
        "poisson", description="arrivals in an open loop: random as from many users, or evenly spaced"
    )
    profile: list[Piece] = Field(
        [], description="a changing rate instead of `rate`; repeats, and starts with the warm-up"
    )
    think_time_s: Annotated[float, Field(ge=0, le=1e6)] = Field(
        0.0, description="mean pause of a connection between operations, in a closed loop"
    )
    think_distribution: Literal["constant", "exponential"] = Field(
        "constant", description="whether all pauses are equal"
    )
    operation_timeout_s: Annotated[float, Field(gt=0, le=1e6)] = Field(
        60.0,
        description="an operation without an answer for this long is an error, and its connection is reopened",
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(
        1, description="seed of all randomness in the load; each block has its own, made of it"
    )

    @model_validator(mode="after")
    def _is_one_loop(self) -> DriveOptions:
        if self.rate and self.profile:
            raise ValueError("profile: already sets the rate; remove workload.rate")
        if self.profile and not any(piece.from_ops_s + piece.to_ops_s for piece in self.profile):
            raise ValueError("profile: no operation would ever start")
        if self.think_time_s and self.is_open:
            raise ValueError(
                f"think_time_s = {self.think_time_s:g}: only in a closed loop, without rate and profile"
            )
        return self

    @property
    def is_open(self) -> bool:
        return bool(self.rate or self.profile)

    def pacing(self) -> dict[str, Any]:
        """The SPEC's ``pacing``."""
        if self.profile:
            pieces = [piece.model_dump() for piece in self.profile]
            return {"kind": "open", "arrivals": self.arrivals, "profile": pieces}
        if self.rate:
            return {"kind": "open", "arrivals": self.arrivals, "rate_ops_s": self.rate}
        return {
            "kind": "closed",
            "think_time_s": self.think_time_s,
            "think_distribution": self.think_distribution,
        }


class ServerDriveOptions(DriveOptions):
    """Options of a workload on a MySQL-family server."""

    retries: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        10, description="retries of an operation after a deadlock or lock wait timeout"
    )
    clients: list[str] = Field(
        [],
        description="machines that share the load: local, user@host[:port]; none: the server's own",
    )
    separate_cores: bool = Field(
        True,
        description="on the server's machine, with four cores or more: a quarter for the driver, the others for "
        "the server",
    )
    server_address: str = Field(
        "",
        description="where clients on other machines reach the server; empty: the host of the target's address",
    )

    @field_validator("clients")
    @classmethod
    def _are_targets(cls, value: list[str]) -> list[str]:
        for address in value:
            try:
                is_fixture = TargetSpec.parse(address).kind == "fixture"
            except PlanError as error:
                raise ValueError(error.message) from None
            if is_fixture:
                raise ValueError(f"{address!r}: a saved host runs nothing")
        return value

    @model_validator(mode="after")
    def _has_a_connection_each(self) -> ServerDriveOptions:
        if len(self.clients) > self.connections:
            raise ValueError(
                f"connections = {self.connections}: fewer than the {counted(len(self.clients), 'client')}"
            )
        return self


class Keys(Options):
    """The distribution of keys, as part of other options."""

    distribution: Literal["uniform", "pareto", "zipf", "gaussian", "special", "hot"] = Field(
        "uniform",
        description="the distribution of keys; `gaussian` and `special` (the default of sysbench 1.0) favour the "
        "middle ones",
    )
    pareto_h: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="pareto: the share h of the keys gets the share 1 - h of the operations"
    )
    zipf_exponent: Annotated[float, Field(gt=0, le=10)] = Field(
        0.8, description="zipf: key number n is hit in proportion to 1 / n to this power"
    )
    hot_keys: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.01, description="hot: the share of the keys that is hot"
    )
    hot_operations: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.75, description="hot: the share of the operations that goes to them"
    )

    def law(self) -> dict[str, Any]:
        """The SPEC's distribution."""
        parameters: dict[str, dict[str, float]] = {
            "pareto": {"h": self.pareto_h},
            "zipf": {"exponent": self.zipf_exponent},
            "hot": {"keys": self.hot_keys, "operations": self.hot_operations},
        }
        return {"kind": self.distribution, **parameters.get(self.distribution, {})}
