"""MySQL 8 and newer, and Percona Server."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.base.model import Tool


class MySQL:
    server = Tool("mysqld", "mysql-server", ("--no-defaults", "--version"))
    client = Tool("mysql", "mysql-client", ("--no-defaults", "--version"))
    clients: tuple[str, ...] = ("mysql", "mariadb")
    installer: Tool | None = None

    def install_argv(
        self, server: str, installer: str | None, datadir: str, options: Mapping[str, str]
    ) -> list[str]:
        return [
            server,
            "--no-defaults",
            "--initialize-insecure",
            f"--datadir={datadir}",
            *(f"--{name}={value}" for name, value in options.items()),
        ]

    def own_options(self) -> dict[str, str]:
        # The X plugin would open a port and a socket of its own; loose_ because a build may lack it.
        return {"loose_mysqlx": "0"}

    def loading_options(self, version: tuple[int, ...]) -> dict[str, str]:
        # innodb_redo_log_capacity came in 8.0.30 and replaced the number and the size of the log files.
        if version >= (8, 0, 30):
            return {"innodb_redo_log_capacity": "1G"}
        return {"innodb_log_file_size": "512M"}
