"""What holds for every test, by the folder it is in: what it needs, which run it belongs to, who runs beside it.

A test that lacks something is skipped with one line. ``unit`` and ``agent`` need nothing but the build; a folder
of ``real`` needs what ``FOLDERS`` says, and a test that needs more says so with ``needs``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headrace.lab.vm.cache import PACKAGES
from tests import shared
from tests.folders import TESTS
from tests.programs import has

FOLDERS = {
    "real/server": ("mariadbd",),
    "real/ssh": ("sshd",),
    "real/vm": tuple(PACKAGES),
    "real/devices": ("root",),
    "real/browser": ("chromium",),
    "real/install": ("cargo",),
}
#: What is no program.
OTHER: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,
    "two CPUs": lambda: len(os.sched_getaffinity(0)) > 1,
    "FUSE": lambda: Path("/dev/fuse").exists(),
    "zram": lambda: Path("/sys/class/zram-control").exists(),
    "ray": lambda: importlib.util.find_spec("ray") is not None,
}
#: Files of ``real`` that ask for a rate or what is saturated: a neighbour would change it. They run one by one,
#: except for tests that are marked ``beside``.
ALONE = {
    "real/devices": ("test_hunt_devices",),
    "real/server": (
        "test_drive_stall",
        "test_hunt_planted",
        "test_hunt_steering",
        "test_judged_memcached",
        "test_ladder_packets",
        "test_race",
        "test_traffic_round",
    ),
    "real/ssh": ("test_rollout", "test_rollout_restart"),
}

#: Files that take minutes: begun first, so that none is left alone at the end.
LONG = (
    "test_option_matrix", "test_volumes_md", "test_tutorials", "test_rollout", "test_conformance",
    "test_rollout_lost",
    "test_matrix", "test_install", "test_ray", "test_rollout_restart", "test_ssh", "test_planted_rules",
    "test_index_trials", "test_cluster", "test_server", "test_duet", "test_sweep", "test_rules", "test_runner",
    "test_drive_plans", "test_ssh_commands", "test_rollout_galera", "test_sql_only", "test_index_applied",
    "test_apply_judge", "test_drive_workloads", "test_round_trip_host", "test_rollout_group",
    "test_proof_after_kill",
    "test_round_trip", "test_vm", "test_readme", "test_serve", "test_switchback", "test_ssh_lost", "test_tune",
    "test_loops", "test_rules_missing", "test_serve_command", "test_drive_protocol", "test_history",
    "test_archive_weeks", "test_archive", "test_report", "test_size_prove", "test_reboots", "test_crash_points",
    "test_kept_files", "test_many_tables", "test_docs_site", "test_fleet", "test_digests",
)  # fmt: skip

#: ``make torture`` sets it: every case, and the tests that are marked ``thorough``.
IS_THOROUGH = bool(os.environ.get("HEADRACE_TEST_ALL"))
MISSING = {name for name, there in OTHER.items() if not there()}

LONGEST_NAME = 1000
#: By these words `make test-real` finds the files outside `real` that it collects.
SAYS_SO = re.compile(r"mark\.slow|chromium")

#: Where tests that need no device keep their files: headrace syncs each, and a busy disk takes 3 to 30 ms for it.
MEMORY = "HEADRACE_TESTS_MEMORY"
MEMORY_BYTES = 2_000_000_000


# Hypothesis fails an example that takes 200 ms, and a busy machine takes that for any: no test asserts on a time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Processes that run tests beside each other have a journal each, and share what is made once. A test that
    asks for colours or for none says so itself.
    """
    os.environ.pop("NO_COLOR", None)
    if shared.PLACE not in os.environ:
        place = shared.open_place()
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))
        shm = Path("/dev/shm")
        if config.option.basetemp is None and shm.is_dir() and shutil.disk_usage(shm).free > MEMORY_BYTES:
            os.environ[MEMORY] = memory = tempfile.mkdtemp(prefix="hr-tests-", dir=shm)
            config.add_cleanup(lambda: shutil.rmtree(memory, ignore_errors=True))
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = tempfile.mkdtemp(prefix="headrace-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["HEADRACE_STATE"] = f"{folder}/state"


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """In memory, and gone with the test, where no server or device is needed. ``--basetemp`` keeps all on disk."""
    if MEMORY not in os.environ or folder_of(request.node).startswith("real"):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix=f"{tmp_path.name}-", dir=os.environ[MEMORY]))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks follow from the folder."""
    if len(item.name) > LONGEST_NAME:  # each process sends the names of all tests, and each result its own
        raise pytest.UsageError(f"{item.name[:100]}...: {len(item.name):,} characters of ids")
    folder = folder_of(item)
    needs = [
        *FOLDERS.get(folder, ()),
        *(name for mark in item.iter_markers("needs") for name in mark.args),
    ]
    if folder.startswith("real/") or "chromium" in needs:
        item.add_marker("real")
    if item.path.stem in ALONE.get(folder, ()) and not item.get_closest_marker("beside"):
        item.add_marker("alone")
    later = item.get_closest_marker("slow") or item.get_closest_marker("real")
    if later and not folder.startswith("real") and not SAYS_SO.search(item.path.read_text()):
        raise pytest.UsageError(
            f"{item.nodeid}: make test-real does not collect this file: say mark.slow in it"
        )
    if item.get_closest_marker("thorough") and not IS_THOROUGH:
        item.add_marker(pytest.mark.skip(reason="takes minutes: make torture"))
    lacking = [name for name in needs if name in MISSING or (name not in OTHER and not has(name))]
    if lacking:
        item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(lacking)}"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(LONG)))


def folder_of(item: pytest.Item) -> str:
    return item.path.parent.relative_to(TESTS).as_posix()
