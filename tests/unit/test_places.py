"""Where a server's paths lie, if its data directory is a link to another volume."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.base.model import Facts
from headrace.host.facts import HostFacts
from headrace.host.places import below_overlay, mount_of_server, real_path


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/var/lib/mysql", "/data/mysql"),
        ("/var/lib/mysql/", "/data/mysql/"),
        ("/var/lib/mysql/binlog/b.1", "/data/mysql/binlog/b.1"),
        ("/var/lib/mysql-files", "/var/lib/mysql-files"),
        ("/tmp", "/tmp"),
    ],
)
def test_what_lies_behind_the_link_is_there(path: str, real: str) -> None:
    assert real_path(path, "/var/lib/mysql/", "/data/mysql") == real


@pytest.mark.parametrize("working", [None, "", "/data/mysql (deleted)"])
def test_without_its_working_directory_a_path_is_as_it_is_written(working: object) -> None:
    assert real_path("/var/lib/mysql/a", "/var/lib/mysql", working) == "/var/lib/mysql/a"
    assert real_path("/var/lib/mysql/a", None, "/data") == "/var/lib/mysql/a"
    assert real_path("/data/a", "./data", "/data") == "/data/a"


def test_the_mount_of_a_linked_data_directory_is_the_one_that_it_leads_to() -> None:
    def mount(point: str, device: str) -> dict[str, Any]:
        return {"mount_point": point, "kind": "ext4", "block_device": device}

    server = {
        "pid": 7,
        "program": "mariadbd",
        "datadir": "/var/lib/mysql",
        "working_directory": "/data/mysql",
    }
    facts = HostFacts(
        Facts("", {"servers": [server], "file_systems": [mount("/", "sda"), mount("/data", "sdb")]})
    )
    assert (facts.server_file_system_of("/var/lib/mysql") or {})["block_device"] == "sdb"
    assert (facts.server_file_system_of("/var/log") or {})["block_device"] == "sda"


@pytest.mark.parametrize(
    ("working", "number", "kind"),
    [
        # As it was started.
        ("/data", "8:17", "xfs"),
        # Something was mounted over it since then.
        ("/data", "254:0", "ext4"),
        # Its file system was unmounted behind it: nobody can say where it is.
        ("/", "0:39", None),
        # It is starting.
        ("/", "254:0", "xfs"),
        # An agent that does not say it, or may not look.
        ("/data", None, "xfs"),
    ],
)
def test_what_was_mounted_over_a_server_s_data_is_not_where_it_writes(
    working: str, number: str | None, kind: str | None
) -> None:
    mounts = [
        {"mount_point": "/", "kind": "ext4", "device_number": "254:0"},
        {"mount_point": "/data", "kind": "xfs", "device_number": "8:17"},
        {"mount_point": "/data/redo", "kind": "zfs", "device_number": "0:50"},
    ]
    process = {"working_directory": working, "working_device_number": number}
    assert (mount_of_server("/data", mounts, process) or {}).get("kind") == kind
    # A subvolume's number is in no list of mounts.
    assert mount_of_server("/data", [{**each, "kind": "btrfs"} for each in mounts], process)
    if working != "/":
        assert (mount_of_server("/data/redo", mounts, process) or {})["kind"] == "zfs"


OVERLAY = {"mount_point": "/", "kind": "overlay", "super_options": ["rw", "upperdir=/var/lib/docker/o/diff"]}
ROOT = {"mount_point": "/", "kind": "ext4", "block_device": "sda"}
DOCKER = {"mount_point": "/var/lib/docker", "kind": "xfs", "block_device": "sdb"}


def test_what_a_container_writes_to_its_overlay_is_on_the_hosts_disk() -> None:
    assert below_overlay(OVERLAY, [ROOT, DOCKER]) == DOCKER
    assert below_overlay(OVERLAY, [ROOT]) == ROOT
    assert below_overlay(ROOT, [ROOT]) is None
    assert below_overlay({**OVERLAY, "super_options": ["lowerdir=/a"]}, [ROOT]) is None


def test_in_the_container_itself_the_hosts_paths_mean_nothing() -> None:
    assert below_overlay(OVERLAY, [OVERLAY, DOCKER]) is None
