"""The file that names sources of the response times that clients measured.

[[clients]]
prometheus = "http://prometheus:9090"
query = 'app_db_seconds_bucket{env="prod"}'     # as of `headrace verify`

[[clients]]
csv = "/var/log/app/latencies.csv"              # lines that the application appends, as of `verify`

[[clients]]
hdr = "/var/log/app/latencies.hlog"             # an interval log of HdrHistogram, of one host
host = "db1"
unit = "ns"                                     # of its values

[[clients]]
statsd = "127.0.0.1:8125"                       # timers, such as app.db1.checkout:12.5|ms
pattern = "app.{host}.{class}"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from headrace.base import toml
from headrace.base.errors import PlanError
from headrace.change.production.prometheus import UNITS_NS


class Source(BaseModel):
    """One ``[[clients]]``. ``hosts``: what the source calls a host -> its name in the fleet, where they differ."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prometheus: str = ""
    query: str = ""
    host_label: str = "instance"
    class_label: str = ""
    unit: str = "s"
    csv: Path | None = None
    hdr: Path | None = None
    host: str = ""
    statsd: str = ""
    pattern: str = ""
    hosts: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_one(self) -> Source:
        kinds = [name for name in ("prometheus", "csv", "hdr", "statsd") if getattr(self, name)]
        if len(kinds) != 1:
            raise ValueError("name one of prometheus, csv, hdr and statsd")
        if self.hdr and not (self.host and "unit" in self.model_fields_set):
            # No line of such a log says either.
            raise ValueError("hdr needs host, and the unit of its values")
        if self.prometheus and not self.query:
            raise ValueError("prometheus needs query")
        if self.unit not in UNITS_NS:
            raise ValueError(f"unit is one of {', '.join(UNITS_NS)}")
        port = re.search(r":(\d{1,5})$", self.statsd)
        if self.statsd and ("{host}" not in self.pattern or not port or int(port[1]) > 65535):
            raise ValueError(
                "statsd needs ADDRESS:PORT, and a pattern with {host}, such as app.{host}.{class}"
            )
        return self

    @property
    def name(self) -> str:
        return self.prometheus or str(self.csv or self.hdr or f"statsd {self.statsd}")


def read_sources(path: Path) -> list[Source]:
    """The sources of a file. Raises PlanError."""
    try:
        content = toml.parse(toml.read(path))
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except ValueError as error:
        raise PlanError(f"not TOML: {error}", place=str(path)) from error
    tables = content.pop("clients", [])
    if content or not isinstance(tables, list) or not tables:
        raise PlanError("has [[clients]] and nothing else", place=str(path), hint="headrace docs serve")
    sources = []
    for number, table in enumerate(tables, 1):
        try:
            sources.append(Source.model_validate(table))
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise PlanError(
                f"{where}: {first['msg']}" if where else str(first["msg"]).removeprefix("Value error, "),
                place=f"{path}: source {number}",
            ) from None
    return sources
