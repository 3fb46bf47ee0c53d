"""A fleet of real database servers: sshd and MariaDB in namespaces of their own, with a source and its replicas.

Every host has its data, option file and sysctl.d at the same places, so that only what a test plants differs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pymysql

from tests import sshd
from tests.fleet import Fleet, Host, fleet, wait_for
from tests.networks import Namespace
from tests.servers import free_port
from tests.shared import made_once

PROGRAMS = ("unshare", "mariadbd", "mariadb-install-db")
READY_S = 60.0
#: Each host has its own mounted there, if it has one.
DROP_IN = "/etc/mysql/conf.d"
#: Explicit where the server would derive it from another setting.
OPTIONS = {
    "user": "root",
    "bind_address": "127.0.0.1",
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "innodb_buffer_pool_size": "64M",
    "innodb_buffer_pool_chunk_size": "1M",
    "innodb_log_file_size": "16M",
    "innodb_io_capacity": "200",
    "innodb_io_capacity_max": "4000",
    "max_connections": "100",
    "general_log_file": "{name}.log",
    "report_host": "{name}",
    "skip_name_resolve": "",
}


@dataclass
class Databases:
    """``inventory`` is an Ansible inventory with the hosts' names; ``ports`` are their servers'."""

    hosts: Fleet
    inventory: Path
    ports: dict[str, int] = field(default_factory=dict)

    def sql(self, name: str, *statements: str) -> None:
        host = next(host for host in self.hosts.hosts if host.name == name)
        socket = self.hosts.own_disk(host) / "s"
        with contextlib.closing(pymysql.connect(unix_socket=str(socket), user="root")) as connection:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            connection.commit()

    def ssh_config(self) -> str:
        """A ~/.ssh/config that knows the hosts by their names."""
        return "".join(
            f"Host {host.name}\n  HostName {host.at}\n  Port {host.port}\n  User {sshd.user()}\n"
            f"  IdentityFile {self.hosts.key}\n  UserKnownHostsFile {self.hosts.known_hosts}\n"
            for host in self.hosts.hosts
        )

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts.hosts if host.name == name)


@contextlib.contextmanager
def databases(
    folder: Path,
    names: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, str]],
    sysctls: Mapping[str, str],
    mounts: Mapping[str, str],
    drop_in: bool = False,
    groups: Sequence[Sequence[str]] = (),
    places: Mapping[str, Namespace] | None = None,
) -> Iterator[Databases]:
    """The first is the source of all others; ``options``, ``sysctls`` and ``mounts`` are planted, by host.

    With ``drop_in`` each server also reads a folder of option files of its own. With ``groups`` the first of each
    is the source of the others in it. ``places`` are networks of the hosts' own.
    """
    groups = groups or [names]
    sources = [group[0] for group in groups]
    data = made_once("fleet-mariadb", _install)
    with fleet(folder, []) as hosts:
        found = Databases(hosts, folder / "inventory.json")
        for number, name in enumerate(names, start=1):
            place = places[name] if places else None
            host = hosts.add(name, place)
            taken = {*found.ports.values(), *(each.port for each in hosts.hosts)}
            found.ports[name] = port = next(port for port in iter(free_port, 0) if port not in taken)
            disk = hosts.own_disk(host)
            shutil.copytree(data, disk / "mysql")
            own = {"server_id": str(number), "port": str(port), **OPTIONS, **options.get(name, {})}
            # Not /tmp: a server that starts removes what another has there of temporary tables.
            own["tmpdir"] = f"{hosts.disk}/tmp"
            (disk / "tmp").mkdir()
            if place:
                own["bind_address"] = place.address
            if name not in sources:
                own.setdefault("read_only", "1")
            lines = [f"{key} = {value.format(name=name)}" if value else key for key, value in own.items()]
            lines += [f"!includedir {DROP_IN}"] if drop_in else []
            (disk / "conf.d").mkdir()
            (disk / "my.cnf").write_text(
                "[client]\npassword = secret\n[mariadbd]\n" + "\n".join(lines) + "\n"
            )
            (disk / "sysctl.d").mkdir()
            (disk / "sysctl.d" / "50-db.conf").write_text(sysctls.get(name, ""))
            host.script = _script(host, hosts.disk, mounts.get(name, ""))
            host.start()
        for host in hosts.hosts:
            wait_for(host)
            _ready(found, host.name)
        for group in groups:
            _replicate(found, group)
        _write_inventory(found, sources)
        yield found


def _install(folder: Path) -> None:
    argv = ["mariadb-install-db", "--no-defaults", f"--datadir={folder}", "--user=root", "--skip-test-db",
            "--auth-root-authentication-method=normal"]  # fmt: skip
    temporary = folder.with_name(f"{folder.name}.tmp")
    temporary.mkdir(exist_ok=True)
    subprocess.run(argv, check=True, capture_output=True, env={**os.environ, "TMPDIR": str(temporary)})


def _script(host: Host, disk: Path, mount_options: str) -> str:
    """The host's own script, with its own sysctl.d, its data on a mount, and a server."""
    start = [
        f"mount --bind {disk}/sysctl.d /etc/sysctl.d",
        f"if [ -d {DROP_IN} ]; then mount --bind {disk}/conf.d {DROP_IN}; fi",
        f"mount --bind {disk}/mysql {disk}/mysql",
        *([f"mount -o remount,bind,{mount_options} {disk}/mysql"] if mount_options else []),
        f"mariadbd --defaults-file={disk}/my.cnf --datadir={disk}/mysql --socket={disk}/s"
        f" >>{disk}/error.log 2>&1 & exec",
    ]
    return host.script.replace("exec", "; ".join(start), 1)


def _ready(found: Databases, name: str) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            found.sql(name, "SELECT 1")
            return
        except pymysql.err.OperationalError:
            log = found.hosts.own_disk(found.host(name)) / "error.log"
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.1)


def _replicate(found: Databases, names: Sequence[str]) -> None:
    source, *replicas = names
    found.sql(
        source,
        "CREATE USER copy@'%' IDENTIFIED BY 'copy'",
        "GRANT REPLICATION SLAVE ON *.* TO copy@'%'",
    )
    for name in replicas:
        found.sql(
            name,
            f"CHANGE MASTER TO MASTER_HOST='{found.host(source).at}', MASTER_PORT={found.ports[source]}, "
            "MASTER_USER='copy', MASTER_PASSWORD='copy', MASTER_USE_GTID=slave_pos",
            "START SLAVE",
        )


def _write_inventory(found: Databases, sources: Sequence[str]) -> None:
    names = [host.name for host in found.hosts.hosts]
    variables = {
        host.name: {
            "ansible_host": host.at,
            "ansible_port": host.port,
            "ansible_user": sshd.user(),
            "ansible_ssh_private_key_file": str(found.hosts.key),
        }
        for host in found.hosts.hosts
    }
    replicas = [name for name in names if name not in sources]
    groups = {"source": {"hosts": list(sources)}, "replicas": {"hosts": replicas}}
    found.inventory.write_text(json.dumps({"_meta": {"hostvars": variables}, **groups}))
