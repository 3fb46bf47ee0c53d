"""A fleet of real database servers, a source and its replicas, each with an sshd in its own namespaces.

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
import pytest

from tests import sshd
from tests.fleet import Fleet, Host, fleet, wait_for
from tests.networks import Namespace
from tests.servers import find_server, free_port
from tests.shared import made_once

PROGRAMS = ("unshare", "mariadbd", "mariadb-install-db")
READY_S = 180.0
#: Each host has its own mounted there, if it has one.
DROP_IN = "/etc/mysql/conf.d"
#: Explicit where the server would derive it from another setting.
OPTIONS = {
    "user": "root",
    "bind_address": "127.0.0.1",
    "log_bin": "binlog",
    "innodb_buffer_pool_size": "64M",
    "innodb_buffer_pool_chunk_size": "1M",
    "innodb_io_capacity": "200",
    "innodb_io_capacity_max": "4000",
    "max_connections": "100",
    "general_log_file": "{name}.log",
    "report_host": "{name}",
    "skip_name_resolve": "",
}


@dataclass(frozen=True)
class Vendor:
    """``replicate``: statements that make a server a replica of ``{host}`` and ``{port}``."""

    kind: str
    options: Mapping[str, str]
    install: Sequence[str]
    replicate: Sequence[str]

    def program(self) -> str:
        found = find_server(self.kind)
        if isinstance(found, str):
            pytest.skip(found)
        return str(found)


MARIADB = Vendor(
    "mariadb-10.11",
    {"binlog_format": "ROW", "innodb_log_file_size": "16M"},
    ("--skip-test-db", "--auth-root-authentication-method=normal"),
    (
        "CHANGE MASTER TO MASTER_HOST='{host}', MASTER_PORT={port}, MASTER_USER='copy', MASTER_PASSWORD='copy', "
        "MASTER_USE_GTID=slave_pos",
        "START SLAVE",
    ),
)
MYSQL = Vendor(
    "mysql-9.7",
    {
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "mysqlx": "OFF",
        "secure_file_priv": "NULL",
        "innodb_redo_log_capacity": "32M",
    },
    ("--initialize-insecure",),
    (
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='{host}', SOURCE_PORT={port}, SOURCE_USER='copy', "
        "SOURCE_PASSWORD='copy', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
        "START REPLICA",
    ),
)


@dataclass
class Databases:
    """``inventory`` is an Ansible inventory with the hosts' names; ``ports`` are their servers'."""

    hosts: Fleet
    inventory: Path
    ports: dict[str, int] = field(default_factory=dict)
    vendor: Vendor = MARIADB

    @property
    def toml(self) -> str:
        """A fleet of the inventory's hosts, with a login at each server."""
        return str(self.inventory.with_name("fleet.toml"))

    def sql(self, name: str, *statements: str) -> None:
        socket = self.hosts.own_disk(self.host(name)) / "s"
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
    vendor: Vendor = MARIADB,
    copied: bool = False,
) -> Iterator[Databases]:
    """The first is the source of all others; ``options``, ``sysctls`` and ``mounts`` are planted, by host.

    With ``drop_in`` each server also reads a folder of option files of its own. With ``groups`` the first of each
    is the source of the others in it. ``places`` are networks of the hosts' own; with ``copied`` the
    servers may copy their data from each other.
    """
    groups = groups or [names]
    sources = [group[0] for group in groups]
    program = vendor.program()
    data = made_once(f"fleet-{vendor.kind}", lambda fresh: _install(vendor, program, fresh))
    with fleet(folder, []) as hosts:
        found = Databases(hosts, folder / "inventory.json", vendor=vendor)
        for number, name in enumerate(names, start=1):
            place = places[name] if places else None
            host = hosts.add(name, place)
            taken = {*found.ports.values(), *(each.port for each in hosts.hosts)}
            found.ports[name] = port = next(port for port in iter(free_port, 0) if port not in taken)
            disk = hosts.own_disk(host)
            shutil.copytree(data, disk / "mysql")
            if copied:
                # By a daemon of rsync, which is nobody.
                subprocess.run(["chown", "-R", "nobody", disk / "mysql"], check=True)
            own = {"server_id": str(number), "port": str(port), **OPTIONS, **vendor.options}
            own |= options.get(name, {})
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
                f"[client]\npassword = secret\n[{Path(program).name}]\n" + "\n".join(lines) + "\n"
            )
            (disk / "sysctl.d").mkdir()
            (disk / "sysctl.d" / "50-db.conf").write_text(sysctls.get(name, ""))
            host.script = _script(host, program, hosts.disk, mounts.get(name, ""))
            host.start()
        for host in hosts.hosts:
            wait_for(host)
            _ready(found, host.name)
        for group in groups:
            _replicate(found, vendor, group)
        _write_inventory(found, sources)
        yield found


def _install(vendor: Vendor, program: str, folder: Path) -> None:
    argv = [program if vendor is MYSQL else "mariadb-install-db"]
    argv += ["--no-defaults", f"--datadir={folder}", "--user=root", *vendor.install]
    temporary = folder.with_name(f"{folder.name}.tmp")
    temporary.mkdir(exist_ok=True)
    subprocess.run(argv, check=True, capture_output=True, env={**os.environ, "TMPDIR": str(temporary)})
    # Two servers of one name would refuse each other as replicas.
    (folder / "auto.cnf").unlink(missing_ok=True)


def _script(host: Host, program: str, disk: Path, mount_options: str) -> str:
    """The host's own script, with its own sysctl.d, its data on a mount, and a server."""
    start = [
        f"mount --bind {disk}/sysctl.d /etc/sysctl.d",
        f"if [ -d {DROP_IN} ]; then mount --bind {disk}/conf.d {DROP_IN}; fi",
        f"mount --bind {disk}/mysql {disk}/mysql",
        *([f"mount -o remount,bind,{mount_options} {disk}/mysql"] if mount_options else []),
        f"{program} --defaults-file={disk}/my.cnf --datadir={disk}/mysql --socket={disk}/s"
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


def _replicate(found: Databases, vendor: Vendor, names: Sequence[str]) -> None:
    source, *replicas = names
    found.sql(
        source,
        "CREATE USER copy@'%' IDENTIFIED BY 'copy'",
        "GRANT REPLICATION SLAVE ON *.* TO copy@'%'",
    )
    at = {"host": found.host(source).at, "port": found.ports[source]}
    for name in replicas:
        found.sql(name, *(statement.format(**at) for statement in vendor.replicate))


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
    toml = f'[fleet]\nknown_hosts = "{found.hosts.known_hosts}"\nfiles = ["{found.inventory.name}"]\n'
    toml += f'[fleet.mysql]\nsocket = "{found.hosts.disk}/s"\nuser = "root"\n'
    Path(found.toml).write_text(toml)
