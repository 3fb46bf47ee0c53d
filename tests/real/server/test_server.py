"""Private servers and golden copies, with the real MariaDB and the real MySQL 8.0."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import socket
import stat
import tempfile
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import (
    Busy,
    CommandFailed,
    DiskFull,
    NotReady,
    PlanError,
    Refused,
    ServerStartFailed,
    StoreError,
)
from headrace.base.model import ServerEndpoint, Tool, Value, Vendor
from headrace.host.target import Completed, Process, Target
from headrace.host.target.local import LocalTarget
from headrace.lab.server import (
    PrivateServer,
    ServerSpec,
    build_dataset,
    dataset_folder,
    process,
    restore_dataset,
)
from headrace.lab.server.allocator import find_allocator
from headrace.lab.server.program import Program
from tests import sshd
from tests.contracts.target import gone
from tests.mysqld import find_mysqld
from tests.programs import has
from tests.traces import processes_of

TABLE = b"""
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(900)) ENGINE=InnoDB;
INSERT INTO t (text) VALUES (REPEAT('x', 900));
"""
DOUBLE = b"INSERT INTO t (text) SELECT text FROM t;"
ROWS = 2**9


async def load(endpoint: ServerEndpoint) -> None:
    command = ["mariadb", "--no-defaults", f"--socket={endpoint.socket}", "--user=root", endpoint.database]
    await LocalTarget().run(command, stdin=TABLE + DOUBLE * 9)


@dataclass
class Bench:
    """One vendor's server, its golden copy, and a folder that the server's account may enter."""

    vendor: Vendor
    binary: str | None
    golden: str
    folder: Path
    target: Target = field(default_factory=LocalTarget)
    owner: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex}")
    servers: list[PrivateServer] = field(default_factory=list)

    def spec(self, *, allocator: str = "system", port: int = 0, **variables: Value) -> ServerSpec:
        return ServerSpec(self.vendor, self.binary, variables, allocator, port)

    async def restored(self, name: str = "data", *, verify: bool = False) -> str:
        datadir = f"{self.folder}/{name}"
        await restore_dataset(self.target, self.golden, datadir, owner=self.owner, verify=verify)
        return datadir

    async def server(self, name: str = "data", **options: Any) -> PrivateServer:
        """A server on restored data, not started yet."""
        datadir = await self.restored(name)
        server = PrivateServer(
            self.target, self.spec(**options), datadir, f"{self.folder}/{name}.run", self.owner
        )
        self.servers.append(server)
        return server

    def processes(self) -> list[int]:
        """What runs in this test's name."""
        return processes_of(self.owner)


_golden: dict[Vendor, tuple[str | None, str]] = {}


def golden_copy(vendor: Vendor, place: Path) -> tuple[str | None, str]:
    """The binary of a vendor and its golden copy, made once a session."""
    if vendor not in _golden:
        binary = None
        if vendor is Vendor.MYSQL:
            found = find_mysqld()
            if isinstance(found, str):
                pytest.skip(found)
            binary = str(found)
        spec = ServerSpec(vendor, binary)

        async def build() -> str:
            target = LocalTarget()
            folder = await dataset_folder(target, spec, f"{place}/datasets", {"rows": ROWS})
            await build_dataset(target, spec, folder, "test-golden", load)
            return folder

        _golden[vendor] = (binary, asyncio.run(build()))
    return _golden[vendor]


async def make_bench(vendor: Vendor, place: Path) -> AsyncIterator[Bench]:
    folder = Path(tempfile.mkdtemp(dir=place))
    folder.chmod(0o755)
    binary, golden = await asyncio.to_thread(golden_copy, vendor, place)
    bench = Bench(vendor, binary, golden, folder)
    yield bench
    for server in bench.servers:
        await server.stop(discard=True)
    # A server that crashes asks addr2line where: that may outlive it for a moment.
    for pid in bench.processes():
        await gone(pid)
    assert bench.processes() == []
    shutil.rmtree(folder)


@pytest.fixture(params=[Vendor.MARIADB, Vendor.MYSQL])
async def bench(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Bench]:
    """A bench of each vendor."""
    if request.param is Vendor.MYSQL and platform.machine() != "x86_64":
        pytest.skip("the MySQL of the tests is for x86_64")
    async for made in make_bench(request.param, folder):
        yield made


@pytest.fixture
async def mariadb(folder: Path) -> AsyncIterator[Bench]:
    """For what does not depend on the vendor."""
    async for made in make_bench(Vendor.MARIADB, folder):
        yield made


async def rows(server: PrivateServer) -> int:
    return int((await server.query("SELECT COUNT(*) FROM headrace.t"))[0][0])


async def ended(server: PrivateServer) -> None:
    async with asyncio.timeout(10):
        while await server.alive():
            pass  # it waits by itself


# --- starting and stopping


async def test_it_starts_as_asked_and_stops_cleanly(bench: Bench) -> None:
    server = await bench.server(innodb_buffer_pool_size="64M", innodb_flush_neighbors=2, max_connections=77)
    endpoint = await server.start()
    assert await server.alive()
    assert await rows(server) == ROWS
    assert (endpoint.vendor, endpoint.port, endpoint.user) == (bench.vendor, 0, "root")
    changes = {n: (c.before, c.after, c.honoured) for n, c in server.settings.items() if n != "allocator"}
    assert changes == {
        "innodb_buffer_pool_size": ("134217728", str(64 << 20), True),
        "innodb_flush_neighbors": ("1" if bench.vendor is Vendor.MARIADB else "0", "2", True),
        "max_connections": ("151", "77", True),
    }
    assert await server.variables(["skip_networking", "no_such"]) == {"skip_networking": "ON"}
    assert await server.stop() == 0
    assert not await server.alive()
    assert bench.processes() == []


async def test_it_carries_the_owners_mark_and_meets_no_system_wide_server(bench: Bench) -> None:
    server = await bench.server()
    endpoint = await server.start()
    assert server.pid in bench.processes()
    process = Path(f"/proc/{server.pid}")
    arguments = process.joinpath("cmdline").read_text().split("\0")
    assert arguments[1:-1] == [f"--defaults-file={bench.folder}/data.run/my.cnf"]
    opened = [os.readlink(p) for p in process.joinpath("fd").iterdir()]
    assert not [
        p for p in opened if p.startswith(("/var/lib/mysql", "/var/log", "/run/mysqld", "/etc/mysql"))
    ]
    assert any(p.startswith(f"{bench.folder}/data/") for p in opened)
    run_folder = Path(endpoint.socket).parent.stat()
    assert stat.S_IMODE(run_folder.st_mode) == 0o700
    uid = int(process.joinpath("status").read_text().split("Uid:")[1].split()[0])
    assert uid == run_folder.st_uid
    assert uid != 0


async def test_an_unknown_variable_is_named(bench: Bench) -> None:
    server = await bench.server(innodb_no_such_thing=1)
    with pytest.raises(ServerStartFailed, match="it has no variable innodb_no_such_thing") as caught:
        await server.start()
    lines = caught.value.message.splitlines()
    assert any("unknown variable 'innodb_no_such_thing=1'" in line for line in lines[1:])
    assert len(lines) <= 16
    assert not await server.alive()
    assert await server.stop() not in (None, 0)


async def test_a_wrong_value_is_named(bench: Bench) -> None:
    server = await bench.server(innodb_flush_method="sideways")
    with pytest.raises(ServerStartFailed, match="innodb_flush_method = 'sideways'"):
        await server.start()


async def test_a_value_that_the_server_changed_is_seen(bench: Bench) -> None:
    server = await bench.server(max_connections=0)
    await server.start()
    change = server.settings["max_connections"]
    assert (change.asked, change.honoured) == ("0", False)
    assert change.after in ("1", "10")


async def test_values_reach_the_server_as_they_are(bench: Bench) -> None:
    odd = "SET @a = \"x # [mysqld] \\\\ 'y'\", @b = 'ü'"
    server = await bench.server(init_connect=odd)
    await server.start()
    assert (await server.variables(["init_connect"]))["init_connect"] == odd
    assert server.settings["init_connect"].honoured


async def test_no_answer_within_the_limit_ends_it(mariadb: Bench) -> None:
    server = await mariadb.server()
    with pytest.raises(ServerStartFailed, match=r"no query was answered within 0\.01 s"):
        await server.start(timeout_s=0.01)
    assert mariadb.processes() == []


async def test_a_cancelled_start_leaves_no_process(mariadb: Bench) -> None:
    server = await mariadb.server()
    start = asyncio.create_task(server.start())
    while True:
        await asyncio.sleep(0.01)
        if mariadb.processes() or start.done():
            break
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert mariadb.processes() == []


async def test_a_killed_server_is_noticed(bench: Bench) -> None:
    server = await bench.server()
    await server.start()
    os.kill(server.pid, signal.SIGKILL)
    assert not await server.alive()
    assert (await server.last_words()).startswith("it was killed by SIGKILL")
    with pytest.raises(CommandFailed):
        await server.query("SELECT 1")
    assert await server.stop() == -signal.SIGKILL


async def test_a_crash_is_quoted_from_the_log(mariadb: Bench) -> None:
    server = await mariadb.server()
    await server.start()
    os.kill(server.pid, signal.SIGSEGV)
    await ended(server)
    assert "got signal 11" in await server.last_words()
    # Its account may put a pipe there, to which nobody writes.
    Path(server.error_log).unlink()
    os.mkfifo(server.error_log)
    async with asyncio.timeout(20):
        await server.last_words()
        await server.save_error_log(mariadb.folder / "kept.log")


@pytest.mark.parametrize("name", ["stdout.log", "error.log"])
async def test_a_log_that_is_a_pipe_ends_the_start(
    mariadb: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    server = await mariadb.server()
    monkeypatch.setattr(process, "LOOK_AT_LOGS_S", 0.2)
    clear = server._make_rundir

    async def planted(program: Program) -> None:
        await clear(program)
        place = Path(server.error_log).with_name(name)
        os.mkfifo(place)
        own = place.parent.stat()
        os.chown(place, own.st_uid, own.st_gid)

    monkeypatch.setattr(server, "_make_rundir", planted)
    async with asyncio.timeout(20):
        with pytest.raises(ServerStartFailed, match=f"instead of its log {name} there is a pipe"):
            await server.start()


async def test_restart_keeps_the_data_and_discard_kills(bench: Bench) -> None:
    server = await bench.server()
    await server.start()
    first = server.pid
    await server.query("DELETE FROM headrace.t WHERE id = 1")
    await server.restart()
    assert server.pid != first
    assert await rows(server) == ROWS - 1
    assert await server.stop(discard=True) == -signal.SIGKILL


async def test_two_servers_stand_beside_each_other(bench: Bench) -> None:
    one, two = await bench.server("one"), await bench.server("two")
    await asyncio.gather(one.start(), two.start())
    await one.query("TRUNCATE headrace.t")
    assert (await rows(one), await rows(two)) == (0, ROWS)
    assert await one.stop() == 0
    assert await two.alive()


async def test_one_run_folder_serves_one_server(mariadb: Bench) -> None:
    server = await mariadb.server()
    await server.start()
    with pytest.raises(Busy, match="running already"):
        await server.start()
    other = PrivateServer(
        mariadb.target, mariadb.spec(), f"{mariadb.folder}/x", f"{mariadb.folder}/data.run", "o"
    )
    with pytest.raises(Busy, match=f"process {server.pid}"):
        await other.start()
    assert await rows(server) == ROWS


async def test_the_loopback_port(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = await bench.server(port=port)
        with pytest.raises(Busy, match=f"port {port} is in use by .*process {os.getpid()}"):
            await server.start()
    assert (await server.start()).port == port
    client = "mysql" if not has("mariadb") else "mariadb"
    command = [
        client,
        "--no-defaults",
        "--protocol=tcp",
        "-h127.0.0.1",
        f"-P{port}",
        "-uroot",
        "-BNe",
        "SELECT 7",
    ]
    assert (await bench.target.run(command)).text == "7\n"
    listening = await bench.target.run(["ss", "-Hltn", f"sport = :{port}"])
    assert [line.split()[3] for line in listening.text.splitlines()] == [f"127.0.0.1:{port}"]


async def test_a_long_socket_path_is_refused_before_anything_happens(mariadb: Bench) -> None:
    fits = "/" + "x" * (107 - len("//sock"))
    PrivateServer(mariadb.target, mariadb.spec(), "/d", fits, "o")
    with pytest.raises(PlanError, match="108 bytes; the kernel allows 107"):
        PrivateServer(mariadb.target, mariadb.spec(), "/d", fits + "x", "o")


async def test_folders_of_others_are_refused(mariadb: Bench) -> None:
    strange = mariadb.folder / "strange"
    strange.mkdir()
    strange.joinpath("letters").write_text("dear")
    await mariadb.restored()
    with pytest.raises(Refused, match="letters"):
        await PrivateServer(
            mariadb.target, mariadb.spec(), f"{mariadb.folder}/data", str(strange), "o"
        ).start()
    with pytest.raises(Refused, match="letters"):
        await PrivateServer(
            mariadb.target, mariadb.spec(), str(strange), f"{mariadb.folder}/run", "o"
        ).initialise()
    with pytest.raises(Refused, match="did not create"):
        await restore_dataset(mariadb.target, mariadb.golden, str(strange))
    assert strange.joinpath("letters").read_text() == "dear"


@pytest.mark.needs("root")
async def test_a_folder_that_the_servers_account_cannot_enter(mariadb: Bench) -> None:
    closed = mariadb.folder / "closed"
    closed.mkdir(mode=0o700)
    server = PrivateServer(mariadb.target, mariadb.spec(), "/d", f"{closed}/run", "o")
    with pytest.raises(NotReady, match="the server's account cannot reach it"):
        await server.start()


# --- programs and allocators


async def test_another_vendors_binary_is_refused(mariadb: Bench) -> None:
    binary = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    spec = ServerSpec(Vendor.MYSQL, binary)
    with pytest.raises(PlanError, match=r"server.vendor = 'mysql', but \S+mariadbd is mariadb 1"):
        await PrivateServer(mariadb.target, spec, "/d", "/r", "o").start()


@pytest.mark.parametrize(
    ("binary", "says"),
    [("/nowhere/mariadbd", "no program /nowhere"), ("/bin/true", "does not report its version")],
)
async def test_no_server_where_the_plan_says(mariadb: Bench, binary: str, says: str) -> None:
    with pytest.raises(NotReady, match=says):
        await PrivateServer(mariadb.target, ServerSpec(Vendor.MARIADB, binary), "/d", "/r", "o").start()


async def require(target: Target, kind: str) -> str:
    """The library of an allocator; the test is skipped where there is none."""
    try:
        return (await find_allocator(target, kind)).path
    except NotReady as error:
        pytest.skip(error.message)


async def test_a_missing_allocator_is_named_with_its_package(
    mariadb: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.lab.server import allocator

    absent = (("libabsent.so.9",), Tool("libabsent.so.9", "libabsent9"))
    monkeypatch.setattr(allocator, "_LIBRARIES", {"jemalloc": absent})
    with pytest.raises(NotReady, match="jemalloc is not installed") as caught:
        await find_allocator(mariadb.target, "jemalloc")
    assert caught.value.hint == "apt-get install -y libabsent9"


@pytest.mark.parametrize("kind", ["jemalloc", "tcmalloc"])
async def test_the_allocator_is_really_mapped(bench: Bench, kind: str) -> None:
    await require(bench.target, kind)
    server = await bench.server(allocator=kind)
    await server.start()
    maps = Path(f"/proc/{server.pid}/maps").read_text()
    change = server.settings["allocator"]
    assert change.after is not None
    name, version, library = change.after.split()
    assert (name, change.honoured, change.before) == (kind, True, "system")
    assert library in maps
    assert version[0].isdigit()


async def test_an_inherited_allocator_is_taken_away(mariadb: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    library = await require(mariadb.target, "jemalloc")
    server = await mariadb.server()
    monkeypatch.setenv("LD_PRELOAD", library)
    await server.start()
    assert "jemalloc" not in Path(f"/proc/{server.pid}/maps").read_text()


async def test_an_allocator_that_was_not_mapped_fails_the_start(
    mariadb: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.lab.server import process
    from headrace.lab.server.allocator import AllocatorLibrary

    async def another(_target: Target, _kind: str) -> AllocatorLibrary:
        return AllocatorLibrary("jemalloc", "/usr/lib/x86_64-linux-gnu/libz.so.1", "")

    monkeypatch.setattr(process, "find_allocator", another)
    server = await mariadb.server(allocator="jemalloc")
    with pytest.raises(ServerStartFailed, match="asked for the allocator jemalloc, but"):
        await server.start()
    assert mariadb.processes() == []


# --- golden copies


async def test_a_restore_gives_the_same_bytes_after_a_run_changed_them(bench: Bench) -> None:
    server = await bench.server()
    await server.start()
    await server.query("INSERT INTO headrace.t (text) SELECT text FROM headrace.t")
    assert await server.stop() == 0
    compare = ["diff", "-rq", f"{bench.golden}/data", f"{bench.folder}/data"]
    assert "headrace/t.ibd differ" in (await bench.target.run(compare, check=False)).text
    await bench.restored(verify=True)
    assert (await bench.target.run(compare)).text == ""
    names = {p.name for p in Path(bench.golden, "data").iterdir()}
    assert not {"ib_buffer_pool", "ibtmp1", "binlog.000001"} & names


async def test_other_redo_logs_open_the_golden_copy(bench: Bench) -> None:
    name = "innodb_log_file_size" if bench.vendor is Vendor.MARIADB else "innodb_redo_log_capacity"
    for size_mib in (16, 300):
        server = await bench.server(
            **{name: f"{size_mib}M", "innodb_temp_data_file_path": "ibtmp1:16M:autoextend"}
        )
        await server.start()
        assert server.settings[name].after == str(size_mib << 20)
        assert await rows(server) == ROWS
        assert await server.stop() == 0
        assert "crash recovery" not in Path(server.error_log).read_text(errors="replace").lower()


async def test_a_layout_of_its_own(mariadb: Bench) -> None:
    spec = mariadb.spec(innodb_page_size="4k")
    folder = await dataset_folder(mariadb.target, spec, str(mariadb.folder), {"rows": ROWS})
    assert Path(folder).name != Path(mariadb.golden).name
    Path(f"{folder}.part/data/left").mkdir(parents=True)  # as a killed build leaves it
    await build_dataset(mariadb.target, spec, folder, mariadb.owner, load)
    await restore_dataset(mariadb.target, folder, f"{mariadb.folder}/data", verify=True)
    server = PrivateServer(
        mariadb.target, spec, f"{mariadb.folder}/data", f"{mariadb.folder}/run", mariadb.owner
    )
    mariadb.servers.append(server)
    await server.start()
    assert await server.variables(["innodb_page_size"]) == {"innodb_page_size": "4096"}
    with pytest.raises(Busy, match="already exists here"):
        await build_dataset(mariadb.target, spec, folder, mariadb.owner, load)


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_an_interrupted_build_leaves_nothing(mariadb: Bench, how: str) -> None:
    loading = asyncio.Event()

    async def never_ends(_: ServerEndpoint) -> None:
        loading.set()
        await asyncio.sleep(0 if how == "fails" else 60)
        raise ValueError("the load went wrong")

    folder = f"{mariadb.folder}/set"
    build = asyncio.create_task(
        build_dataset(mariadb.target, mariadb.spec(), folder, mariadb.owner, never_ends)
    )
    await loading.wait()
    if how == "is cancelled":
        build.cancel()
    with pytest.raises((ValueError, asyncio.CancelledError)):
        await build
    assert mariadb.processes() == []
    assert list(mariadb.folder.iterdir()) == []


async def test_a_changed_golden_copy_is_refused(mariadb: Bench) -> None:
    copy = mariadb.folder / "copy"
    await mariadb.target.run(["cp", "-a", mariadb.golden, str(copy)])
    table = next(copy.glob("data/headrace/*.ibd"))
    before = table.stat()
    content = bytearray(table.read_bytes())
    content[5000] ^= 1
    table.write_bytes(content)
    with pytest.raises(StoreError, match=r"was changed after it was built: headrace/t\.ibd"):
        await restore_dataset(mariadb.target, str(copy), f"{mariadb.folder}/data")
    # A change that hides itself is found by reading everything.
    os.utime(table, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StoreError, match="the copy differs"):
        await restore_dataset(mariadb.target, str(copy), f"{mariadb.folder}/data", verify=True)
    table.unlink()
    with pytest.raises(StoreError, match="was changed"):
        await restore_dataset(mariadb.target, str(copy), f"{mariadb.folder}/data")
    assert {p.name for p in mariadb.folder.iterdir()} == {"copy"}
    with pytest.raises(StoreError, match="no data set"):
        await restore_dataset(mariadb.target, f"{mariadb.folder}/none", f"{mariadb.folder}/data")


@pytest.mark.needs("root")
async def test_a_full_disk_is_found_before_anything_is_written(mariadb: Bench) -> None:
    small = mariadb.folder / "small"
    small.mkdir()
    await mariadb.target.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0755", "tmpfs", str(small)])
    try:
        with pytest.raises(DiskFull, match=r"needs \d+ MiB, 8 MiB are free"):
            await restore_dataset(mariadb.target, mariadb.golden, f"{small}/data")
        assert list(small.iterdir()) == []
    finally:
        await mariadb.target.run(["umount", str(small)])


# --- other accounts, other hosts


class AsNobody(LocalTarget):
    """This machine as an ordinary user sees it: every command runs as nobody."""

    PREFIX = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")

    def __init__(self) -> None:
        super().__init__()
        self.name, self.is_root = "nobody", False

    async def run(self, argv: Sequence[str], **options: Any) -> Completed:
        return await super().run([*self.PREFIX, *argv], **options)

    async def spawn(self, argv: Sequence[str], **options: Any) -> Process:
        return await super().spawn([*self.PREFIX, *argv], **options)

    async def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        await self.run(["sh", "-c", 'cat > "$0" && chmod "$1" "$0"', path, f"{mode:o}"], stdin=content)


@pytest.mark.needs("root")
async def test_all_of_it_as_an_ordinary_user(mariadb: Bench) -> None:
    os.chown(mariadb.folder, 65534, 65534)
    mariadb.target, mariadb.golden = AsNobody(), f"{mariadb.folder}/set"
    await build_dataset(mariadb.target, mariadb.spec(), mariadb.golden, mariadb.owner, load)
    server = await mariadb.server(max_connections=9)
    await server.start()
    assert Path(f"/proc/{server.pid}").stat().st_uid == 65534
    assert Path(f"{mariadb.folder}/data/ibdata1").stat().st_uid == 65534
    assert await rows(server) == ROWS
    assert await server.stop() == 0
    await mariadb.restored(verify=True)


@pytest.mark.needs("sshd")
async def test_it_is_the_same_over_ssh(mariadb: Bench) -> None:
    with sshd.running_sshd(mariadb.folder) as running:
        mariadb.target = running.target()
        await mariadb.target.connect()
        try:
            server = await mariadb.server(max_connections=33)
            await server.start()
            assert server.settings["max_connections"].after == "33"
            assert await rows(server) == ROWS
            os.kill(server.pid, signal.SIGKILL)
            await ended(server)
            await mariadb.restored(verify=True)
            await server.start()
            assert await server.stop() == 0
        finally:
            for server in mariadb.servers:
                await server.stop(discard=True)
            await mariadb.target.close()
        mariadb.servers.clear()
