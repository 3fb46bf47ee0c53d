"""Every target keeps the contract; and what only one of them promises."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.base.errors import PlanError, Refused, TargetError
from headrace.host.target import Target, TargetSpec, link, open_target
from headrace.host.target.fixture import FixtureTarget
from headrace.host.target.local import LocalTarget
from headrace.host.target.ssh import SshTarget
from tests import sshd
from tests.contracts.target import ReadsFiles, RunsCommands, gone, is_alive, pid_in


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running_sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


class TestLocal(RunsCommands):
    @pytest.fixture
    async def target(self) -> AsyncIterator[Target]:
        target = LocalTarget()
        await target.connect()
        yield target
        await target.close()

    async def test_who_we_are(self, target: Target) -> None:
        assert target.is_root == (os.geteuid() == 0)

    def test_ctrl_c_does_not_reach_a_command(self, place: Path) -> None:
        """A whole process group is interrupted, as a terminal does it; its commands must not notice."""
        script = f"""
import asyncio, pathlib, signal
from headrace.host.target.local import LocalTarget
# A test run in the background of a shell begins with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
async def main():
    target = LocalTarget()
    for name, detached in (("kept", False), ("detached", True)):
        process = await target.spawn(["sleep", "300"], detached=detached, stdout_path="/dev/null")
        pathlib.Path({str(place)!r}, name).write_text(f"{{process.pid}}\\n")
    await asyncio.sleep(300)
asyncio.run(main())
"""
        child = subprocess.Popen([sys.executable, "-c", script], process_group=0, stderr=subprocess.DEVNULL)
        pids = [asyncio.run(pid_in(place / name)) for name in ("kept", "detached")]
        try:
            os.killpg(child.pid, signal.SIGINT)
            child.wait(60)  # it ends at once, unless the machine is busy with something else
            assert all(is_alive(pid) for pid in pids)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)


class TestSsh(RunsCommands):
    @pytest.fixture
    async def target(self, server: sshd.Sshd) -> AsyncIterator[Target]:
        target = server.target()
        await target.connect()
        yield target
        await target.close()

    async def test_who_we_are(self, target: Target) -> None:
        assert target.is_root == (os.geteuid() == 0)

    async def test_a_half_sent_file_never_appears(self, target: Target, place: Path) -> None:
        """What a lost connection looks like to the host: standard input ends early."""
        with pytest.raises(TargetError, match="did not arrive whole"):
            async with target._writing(str(place / "file"), 1000, 0o644) as stdin:  # type: ignore[attr-defined]
                await stdin.write(b"x" * 500)
        assert list(place.iterdir()) == []


class TestSshCiphers:
    """AES-GCM costs a sixth of what ChaCha20 does; who chose for himself has what he chose."""

    @pytest.mark.parametrize(
        ("line", "cipher"),
        [
            ("", "aes256-gcm@openssh.com"),
            ("Ciphers chacha20-poly1305@openssh.com,aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"),
            ("Ciphers -aes*", "chacha20-poly1305@openssh.com"),
        ],
    )
    async def test_the_cipher(
        self, server: sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, cipher: str
    ) -> None:
        configure(tmp_path, monkeypatch, line)
        target = server.target()
        await target.connect()
        try:
            connection = target._link._connection
            assert connection is not None
            assert connection.get_extra_info("recv_cipher") == cipher
        finally:
            await target.close()


def configure(home: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """What this user's ``~/.ssh/config`` says of every host."""
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("\n ".join(["Host *", *lines]) + "\n")
    monkeypatch.setenv("HOME", str(home))


class TestSshPatience:
    """A user who wants to give up sooner says so in ``~/.ssh/config``."""

    @pytest.fixture
    def silent(self) -> Iterator[int]:
        """The port of a host that takes connections and says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            yield listening.getsockname()[1]

    async def test_a_host_that_does_not_answer_the_call(
        self, server: sshd.Sshd, silent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        configure(tmp_path, monkeypatch, "ConnectTimeout 1")
        target = SshTarget("127.0.0.1", port=silent, keys=[server.key], known_hosts=server.known_hosts)
        with pytest.raises(TargetError, match="no answer within 1 s"):
            await target.connect()

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            ((), (link.KEEPALIVE_S, link.KEEPALIVE_COUNT)),
            (("ServerAliveInterval 2", "ServerAliveCountMax 1"), (2, 1)),
            (("ServerAliveInterval 60",), (link.KEEPALIVE_S, link.KEEPALIVE_COUNT)),
        ],
        ids=["default", "earlier", "later"],
    )
    async def test_a_link_that_falls_silent(
        self,
        server: sshd.Sshd,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        lines: tuple[str, ...],
        expected: tuple[float, int],
    ) -> None:
        configure(tmp_path, monkeypatch, *lines)
        target = server.target()
        await target.connect()
        try:
            connection = target._link._connection
            assert connection is not None
            assert (connection._keepalive_interval, connection._keepalive_count_max) == expected
        finally:
            await target.close()


class TestSshRefusals:
    async def test_an_unknown_host_key(self, server: sshd.Sshd, tmp_path: Path) -> None:
        (tmp_path / "known_hosts").write_text("")
        with pytest.raises(TargetError, match="is not in") as caught:
            await server.target(known_hosts=tmp_path / "known_hosts").connect()
        assert "fingerprint" in str(caught.value.hint)

    @pytest.mark.parametrize("way", ["itself", "on the way"])
    async def test_no_file_of_known_hosts_means_no_known_host(
        self, server: sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        (tmp_path / ".ssh").mkdir()
        config = f"Host near\n HostName 127.0.0.1\n Port {server.port}\n UserKnownHostsFile none\n"
        (tmp_path / ".ssh" / "config").write_text(config + "Host far\n ProxyJump near\n")
        monkeypatch.setenv("HOME", str(tmp_path))
        host, known_hosts = ("near", None) if way == "itself" else ("far", server.known_hosts)
        target = SshTarget(host, user=sshd.user(), keys=[server.key], known_hosts=known_hosts)
        with pytest.raises(TargetError, match="nothing to check the key of near against"):
            await target.connect()
        await target.close()

    async def test_a_changed_host_key(self, server: sshd.Sshd, tmp_path: Path) -> None:
        other = sshd.make_key(tmp_path / "other").with_suffix(".pub").read_text()
        (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {other}")
        with pytest.raises(TargetError, match="is not the one in") as caught:
            await server.target(known_hosts=tmp_path / "known_hosts").connect()
        assert caught.value.place == server.target().name

    async def test_a_wrong_user_key(self, server: sshd.Sshd, tmp_path: Path) -> None:
        with pytest.raises(TargetError, match="refuses this user or key") as caught:
            await server.target(key=sshd.make_key(tmp_path / "stranger")).connect()
        assert f"ssh -p {server.port} " in str(caught.value.hint)

    async def test_a_missing_user_key(self, server: sshd.Sshd, tmp_path: Path) -> None:
        with pytest.raises(TargetError, match="no such file") as caught:
            await server.target(key=tmp_path / "nothing").connect()
        assert caught.value.place == str(tmp_path / "nothing")

    async def test_nobody_listens(self, server: sshd.Sshd) -> None:
        gone_server = sshd.Sshd(1, server.home, server.key, server.known_hosts)
        with pytest.raises(TargetError, match="cannot connect") as caught:
            await gone_server.target().connect()
        assert "127.0.0.1:1" in str(caught.value.place)

    async def test_not_connected(self, server: sshd.Sshd) -> None:
        with pytest.raises(TargetError, match="not connected"):
            await server.target().run(["true"])

    async def test_too_many_sessions_say_what_to_do(self, tmp_path: Path) -> None:
        with sshd.running_sshd(tmp_path, "MaxSessions 2") as small:
            target = small.target()
            await target.connect()
            processes = [await target.spawn(["sleep", "300"]) for _ in range(2)]
            with pytest.raises(TargetError, match="another session") as caught:
                await target.run(["true"])
            assert "MaxSessions" in str(caught.value.hint)
            for process in processes:
                os.kill(process.pid, signal.SIGKILL)
                await process.wait(10)
            assert (await target.run(["true"])).exit_code == 0
            await target.close()

    async def test_a_login_shell_that_lets_nobody_in(self, tmp_path: Path) -> None:
        force = "ForceCommand echo this account is closed; exit 1"
        with sshd.running_sshd(tmp_path, force) as closed, pytest.raises(TargetError, match="is closed"):
            await closed.target().connect()

    @pytest.mark.parametrize("does", ["yes", "sleep 1000", "while :; do printf x; sleep 1; done"])
    async def test_a_host_that_never_says_what_it_should_is_left_within_two_seconds(
        self, tmp_path: Path, does: str
    ) -> None:
        with sshd.running_sshd(tmp_path, f"ForceCommand {does}") as hostile:
            target = hostile.target()
            asking = asyncio.ensure_future(target.connect())
            await asyncio.sleep(1)
            assert not asking.done()
            began = asyncio.get_running_loop().time()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await target.close()
            assert asyncio.get_running_loop().time() - began < 2

    async def test_a_host_that_drops_the_connection_is_one_error(self, tmp_path: Path) -> None:
        with (
            sshd.running_sshd(tmp_path, "ForceCommand kill -9 $PPID") as drops,
            pytest.raises(TargetError),
        ):
            await asyncio.wait_for(drops.target().connect(), 60)

    async def test_what_a_login_shell_prints_first_is_dropped(self, tmp_path: Path) -> None:
        force = 'ForceCommand echo "Welcome! headrace-"; eval "$SSH_ORIGINAL_COMMAND"'
        with sshd.running_sshd(tmp_path, force) as chatty:
            target = chatty.target()
            await target.connect()
            assert (await target.run(["echo", "hello"])).text == "hello\n"
            process = await target.spawn(["sleep", "300"])
            assert is_alive(process.pid)
            await target.close()
            assert await gone(process.pid)


class TestFixture(ReadsFiles):
    """``place`` is a folder of the saved host; its own paths start at the fixture's root."""

    @pytest.fixture
    async def target(self, tmp_path: Path) -> Target:
        (tmp_path / "proc").mkdir()
        return _Rooted(tmp_path)

    async def test_everything_else_is_refused(self, target: Target, place: Path) -> None:
        fixture = FixtureTarget(place.parent)
        await fixture.connect()
        (place / "source").touch()
        for attempt in (
            fixture.run(["true"]),
            fixture.run(["headrace-agent", "journal", "show"]),
            fixture.spawn(["true"]),
            fixture.write("/file", b""),
            fixture.put(place / "source", "/file"),
        ):
            with pytest.raises(Refused, match="saved host"):
                await attempt
        assert not (place.parent / "file").exists()

    async def test_a_link_never_leads_to_this_machine(self, place: Path) -> None:
        (place.parent / "sys").symlink_to("/sys")
        with pytest.raises(Refused, match="leads out"):
            await FixtureTarget(place.parent).read("/sys/kernel/mm/transparent_hugepage/enabled")

    async def test_a_folder_that_is_no_host(self, tmp_path: Path) -> None:
        with pytest.raises(TargetError, match="not a saved host"):
            await FixtureTarget(tmp_path).connect()


class _Rooted(FixtureTarget):
    """Takes the paths that the contract uses, those of this machine, as paths of the saved host."""

    def _inside(self, path: str) -> Path:
        return super()._inside(str(Path(path).relative_to(self._folder)))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("local", TargetSpec("local")),
        ("root@db1", TargetSpec("ssh", host="db1", user="root")),
        ("dba@10.0.0.7:2222", TargetSpec("ssh", host="10.0.0.7", user="dba", port=2222)),
        ("root@[fd00::7]:22", TargetSpec("ssh", host="fd00::7", user="root", port=22)),
        ("/proc", TargetSpec("fixture", path="/proc")),
    ],
)
def test_addresses(address: str, expected: TargetSpec) -> None:
    assert TargetSpec.parse(address) == expected
    assert TargetSpec.parse(expected.address) == expected


@pytest.mark.parametrize(
    "address", ["", "db1", "root@", "root@db1:0", "root@db1:99999", "root@db1:x", "/no/such"]
)
def test_addresses_that_mean_nothing(address: str) -> None:
    with pytest.raises(PlanError, match="must be"):
        TargetSpec.parse(address)


def test_open_target_takes_each_kind(tmp_path: Path) -> None:
    assert open_target(TargetSpec.parse("local")).name == "local"
    assert open_target(TargetSpec.parse(str(tmp_path))).name == str(tmp_path)
    spec = TargetSpec.parse("dba@db1:2222", identity_file="~/key", known_hosts="~/known")
    assert open_target(spec).name == "dba@db1:2222"


def test_asyncssh_is_not_imported_for_a_local_target() -> None:
    script = (
        "import sys; from headrace.host.target import TargetSpec, open_target;"
        "open_target(TargetSpec('local')); print('asyncssh' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout == "False\n"
