"""MariaDB: 10.6 and newer."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.base.model import Tool


class MariaDB:
    server = Tool("mariadbd", "mariadb-server", ("--no-defaults", "--version"))
    client = Tool("mariadb", "mariadb-client", ("--no-defaults", "--version"))
    clients: tuple[str, ...] = ("mariadb", "mysql")
    installer: Tool | None = Tool("mariadb-install-db", "mariadb-server")

    def install_argv(
        self, server: str, installer: str | None, datadir: str, options: Mapping[str, str]
    ) -> list[str]:
        assert installer is not None
        # Other authentication methods bind the account to a user of the operating system; headrace's clients
        # run as another one. Names would be resolved for a grant that nothing uses.
        return [
            installer,
            "--no-defaults",
            f"--datadir={datadir}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            *(f"--{name}={value}" for name, value in options.items()),
        ]

    def own_options(self) -> dict[str, str]:
        return {}

    def loading_options(self, version: tuple[int, ...]) -> dict[str, str]:
        return {"innodb_log_file_size": "1G"}
