"""Servers that scripts take out of service, restart and return, and clients that leave one that is drained."""

from __future__ import annotations

import contextlib
import threading
import time

import pymysql

from tests.database_fleet import Databases

TABLE = "CREATE TABLE own (id INT AUTO_INCREMENT PRIMARY KEY, c INT)"
#: In mode 1 of innodb_autoinc_lock_mode such a statement locks the table's counter from its first row to its end:
#: one at a time. In mode 2 all of them run at a time.
INSERT = (
    "INSERT INTO own (c) SELECT SLEEP(IF(n = 1, 0, {sleep_s})) FROM (SELECT 1 AS n UNION ALL SELECT 2) AS two"
)
DRAIN = """#!/bin/sh
echo drain >>{disk}/service.log
[ ! -e {disk}/stuck ] || exit 3
touch {disk}/drained
"""
RETURN = """#!/bin/sh
echo return >>{disk}/service.log
rm -f {disk}/drained
"""
RESTART = """#!/bin/sh
echo restart >>{disk}/service.log
rm -rf {disk}/until-restart
kill $(cat {disk}/mysql/*.pid)
while [ -e {disk}/s ]; do sleep 0.05; done
setsid {program} --defaults-file={disk}/my.cnf --datadir={disk}/mysql --socket={disk}/s >>{disk}/error.log 2>&1 &
server=$!
while kill -0 $server; do
  mariadb-admin --no-defaults --user=root --socket={disk}/s ping && exit 0
  sleep 0.05
done
exit 1
"""


def put_scripts(found: Databases, name: str) -> None:
    """``drain``, ``return`` and ``restart`` on the host's own disk; each call is a line of its ``service.log``."""
    disk = found.hosts.own_disk(found.host(name))
    for verb, text in (("drain", DRAIN), ("return", RETURN), ("restart", RESTART)):
        (disk / verb).write_text(text.format(disk=found.hosts.disk, program=found.vendor.program()))
        (disk / verb).chmod(0o755)


class Clients:
    """Of one host; they leave when it is drained, as behind a load balancer. ``errors``: what else they saw.
    ``sql``: another statement, for servers that take no writes.
    """

    def __init__(
        self, found: Databases, name: str, threads: int = 4, sleep_s: float = 0.005, sql: str = ""
    ) -> None:
        disk = found.hosts.own_disk(found.host(name))
        self.socket, self.drained = disk / "s", disk / "drained"
        self.sql = sql or INSERT.format(sleep_s=sleep_s)
        self.errors: list[str] = []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        while not self.is_over.is_set():
            if self.drained.exists():
                time.sleep(0.02)
                continue
            try:
                with (
                    contextlib.closing(
                        pymysql.connect(unix_socket=str(self.socket), user="root", database="shop")
                    ) as connection,
                    connection.cursor() as cursor,
                ):
                    while not self.drained.exists() and not self.is_over.is_set():
                        cursor.execute(self.sql)
                        connection.commit()
            except pymysql.Error as error:
                self.errors.append(str(error))
                time.sleep(0.1)

    def end(self) -> None:
        self.is_over.set()
        for thread in self.threads:
            thread.join()
