"""What differs between the families of servers, one file each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.base.model import Tool, Vendor
from headrace.lab.server.vendors.mariadb import MariaDB
from headrace.lab.server.vendors.mysql import MySQL


class Family(Protocol):
    """One family of servers. A program is looked for beside the server first, then on the target's path."""

    server: Tool
    client: Tool
    #: Client programs that can talk to the server, best first.
    clients: tuple[str, ...]
    #: The program that makes a new data folder, beside ``server`` itself; None where the server does it.
    installer: Tool | None

    def install_argv(
        self, server: str, installer: str | None, datadir: str, options: Mapping[str, str]
    ) -> list[str]:
        """The command that makes a data folder in which root needs no password."""

    def own_options(self) -> dict[str, str]:
        """Options that keep a private server to itself."""

    def loading_options(self, version: tuple[int, ...]) -> dict[str, str]:
        """Options for loading data fast; durability is given up until the load is done."""


FAMILIES: Mapping[Vendor, Family] = {
    Vendor.MARIADB: MariaDB(),
    Vendor.MYSQL: MySQL(),
    Vendor.PERCONA: MySQL(),
}
