"""What every target promises. A test class for an implementation inherits one of these and gives ``target``.

``ReadsFiles`` holds for all, ``RunsCommands`` for those that are alive. Real commands, real files: the
``place`` fixture is an empty folder that the target sees under the same path as the test does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.base.errors import CommandFailed, TargetError
from headrace.host.target import Target, command
from tests.traces import commands

ODD_NAMES = ["with space", "it's", 'a "quote"', "new\nline", "$HOME `id` \\n", "ünï 文字", "-dash", "*"]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between the open and the read
        return False
    return state != "Z"


async def gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def pid_in(path: Path) -> int:
    """The pid that a command writes to a file, once it is there."""
    for _ in range(500):
        if path.exists() and path.read_text().endswith("\n"):
            break
        await asyncio.sleep(0.02)
    return int(path.read_text())


def modes_under(folder: Path, part: str) -> set[int]:
    """The modes of the files whose name has this part. A draft may be gone between the list and the look."""
    modes = set()
    for path in folder.glob(f"*{part}*"):
        with suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                modes.add(stat.S_IMODE(status.st_mode))
    return modes


class ReadsFiles:
    async def test_read_gives_the_bytes(self, target: Target, place: Path) -> None:
        content = bytes(range(256)) * 40
        (place / "file").write_bytes(content)
        assert await target.read(str(place / "file")) == content

    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_read_takes_any_name(self, target: Target, place: Path, name: str) -> None:
        (place / name).write_text("x")
        assert await target.read(str(place / name)) == b"x"
        assert await target.exists(str(place / name))

    async def test_a_missing_file_is_file_not_found(self, target: Target, place: Path) -> None:
        (place / "file").touch()
        for path in (place / "nothing", place / "no" / "folder", place / "file" / "inside"):
            with pytest.raises(FileNotFoundError):
                await target.read(str(path))
            with pytest.raises(FileNotFoundError):
                await target.get(str(path), place / "copy")
            assert not await target.exists(str(path))
        assert not (place / "copy").exists()

    async def test_a_folder_cannot_be_read(self, target: Target, place: Path) -> None:
        with pytest.raises(TargetError, match="directory"):
            await target.read(str(place))
        assert await target.exists(str(place))

    async def test_what_is_fetched_is_read_by_nobody_else(
        self, target: Target, place: Path, tmp_path: Path
    ) -> None:
        """Whatever the umask, and while it comes."""
        source, copy = place / "source", tmp_path / "copy"
        source.write_bytes(bytes(20_000_000))
        before = os.umask(0)
        try:
            fetching = asyncio.create_task(target.get(str(source), copy))
            modes = set()
            while not fetching.done():
                modes |= modes_under(tmp_path, "copy")
                await asyncio.sleep(0)
            await fetching
        finally:
            os.umask(before)
        assert modes | modes_under(tmp_path, "copy") == {0o600}

    async def test_get_copies_whole_and_replaces(self, target: Target, place: Path, tmp_path: Path) -> None:
        content = os.urandom(3_000_000)
        (place / "source").write_bytes(content)
        copy = tmp_path / "copy here"
        copy.write_text("old")
        await target.get(str(place / "source"), copy)
        assert copy.read_bytes() == content
        assert not [p for p in tmp_path.iterdir() if p.name.endswith(".part")]


class RunsCommands(ReadsFiles):
    async def test_run_gives_both_outputs_and_the_exit_code(self, target: Target) -> None:
        script = "echo out; echo err >&2; exit 3"
        completed = await target.run(["sh", "-c", script], check=False)
        assert (completed.exit_code, completed.stdout, completed.stderr) == (3, b"out\n", b"err\n")
        assert completed.argv == ("sh", "-c", script)

    async def test_a_failure_says_which_command_how_and_its_last_words(self, target: Target) -> None:
        with pytest.raises(CommandFailed, match=r"exit 3.*exit code 3: it broke") as caught:
            await target.run(["sh", "-c", "echo it broke >&2; exit 3"])
        assert caught.value.place == target.name

    async def test_a_signal_is_a_negative_exit_code(self, target: Target) -> None:
        completed = await target.run(["sh", "-c", "kill -SEGV $$"], check=False)
        assert completed.exit_code == -signal.SIGSEGV
        with pytest.raises(CommandFailed, match="SIGTERM"):
            await target.run(["sh", "-c", "kill -TERM $$"])

    async def test_a_missing_program_is_127(self, target: Target) -> None:
        for program in ("headrace-no-such-program", "/no/such/program"):
            completed = await target.run([program, "x"], check=False)
            assert completed.exit_code == 127
            assert "not found" in completed.error_text
            with pytest.raises(CommandFailed, match="127"):
                await target.run([program])
            with pytest.raises(CommandFailed, match="not found"):
                await target.spawn([program])

    async def test_a_file_that_is_no_program_is_126(self, target: Target, place: Path) -> None:
        (place / "text").write_text("hello")
        assert (await target.run([str(place / "text")], check=False)).exit_code == 126

    async def test_stdin_arrives_whole_and_ends(self, target: Target) -> None:
        content = os.urandom(1_000_000)
        assert (await target.run(["cat"], stdin=content)).stdout == content
        assert (await target.run(["cat"])).stdout == b""

    async def test_a_command_need_not_read_its_stdin(self, target: Target) -> None:
        assert (await target.run(["true"], stdin=b"x" * 5_000_000)).exit_code == 0

    @pytest.mark.parametrize("word", [*ODD_NAMES, ""])
    async def test_arguments_and_environment_arrive_untouched(self, target: Target, word: str) -> None:
        argv = ["sh", "-c", 'printf "%s|%s" "$1" "$ODD"', "sh", word]
        assert (await target.run(argv, env={"ODD": word})).text == f"{word}|{word}"

    async def test_the_environment_is_added_to_the_targets_own(self, target: Target) -> None:
        printed = (await target.run(["env"], env={"HEADRACE_TEST": "1"})).text.splitlines()
        assert "HEADRACE_TEST=1" in printed
        assert any(line.startswith("PATH=") and "/sbin" in line for line in printed)
        assert "HEADRACE_TEST=1" not in (await target.run(["env"])).text

    async def test_a_large_output_on_both_streams_at_once(self, target: Target) -> None:
        script = "head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2; head -c 5000000 /dev/zero"
        completed = await target.run(["sh", "-c", script])
        assert (len(completed.stdout), len(completed.stderr)) == (10_000_000, 5_000_000)

    async def test_the_time_limit_kills_the_children_too(self, target: Target, place: Path) -> None:
        script = f"sleep 300 & echo $! >{place}/pid; wait"
        with pytest.raises(CommandFailed, match="longer than"):
            await target.run(["sh", "-c", script], timeout_s=0.5)
        assert await gone(await pid_in(place / "pid"))

    async def test_the_time_limit_holds_when_only_a_child_is_left(self, target: Target, place: Path) -> None:
        script = f"sleep 300 & echo $! >{place}/pid"
        with pytest.raises(CommandFailed, match="longer than"):
            await target.run(["sh", "-c", script], timeout_s=0.5)
        assert await gone(await pid_in(place / "pid"))

    async def test_cancelling_the_caller_kills_the_command(self, target: Target, place: Path) -> None:
        script = f"sleep 300 & echo $! >{place}/pid; wait"
        task = asyncio.create_task(target.run(["sh", "-c", script], timeout_s=None))
        child = await pid_in(place / "pid")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await gone(child)

    async def test_cancelling_at_once_leaves_nothing_behind(self, target: Target) -> None:
        word = f"3{time.time_ns()}"  # seconds to sleep, and how to find the process
        for delay_s in (0, 0.001, 0.005, 0.02):
            task = asyncio.create_task(target.run(["sleep", word], timeout_s=None))
            await asyncio.sleep(delay_s)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.sleep(0.2)
        assert [b"sleep", word.encode(), b""] not in commands().values()

    async def test_many_at_once(self, target: Target) -> None:
        answers = await asyncio.gather(*(target.run(["echo", str(n)]) for n in range(20)))
        assert [answer.text for answer in answers] == [f"{n}\n" for n in range(20)]

    async def test_lines_come_while_the_command_runs(self, target: Target) -> None:
        process = await target.spawn(["sh", "-c", "echo one; read x; echo two $x; printf three"])
        lines = process.lines()
        assert await anext(lines) == "one"
        await process.close_stdin()
        assert [line async for line in lines] == ["two", "three"]
        assert await process.wait() == 0

    async def test_long_and_many_lines(self, target: Target) -> None:
        process = await target.spawn(["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; seq 200000"])
        lengths = [len(line) async for line in process.lines()]
        assert lengths[0] == 3_000_000
        assert len(lengths) == 200_001

    async def test_waiting_before_reading_does_not_deadlock(self, target: Target) -> None:
        process = await target.spawn(["head", "-c", "5000000", "/dev/zero"])
        assert await process.wait(20) == 0
        assert [len(line) async for line in process.lines()] == [5_000_000]

    async def test_a_fast_writer_waits_for_its_reader(self, target: Target, place: Path) -> None:
        script = f"head -c 30000000 /dev/zero; echo done >{place}/done"
        process = await target.spawn(["sh", "-c", script])
        await asyncio.sleep(0.5)
        assert not (place / "done").exists()
        assert await process.wait(20) == 0

    async def test_what_nobody_will_read_is_not_kept(self, target: Target, place: Path) -> None:
        script = f"head -c 5000000 /dev/zero; touch {place}/done; sleep 300"
        process = await target.spawn(["sh", "-c", script])
        process.ignore_output()
        while not (place / "done").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        await process.signal("KILL")
        await process.wait(20)
        assert [line async for line in process.lines()] == []

    async def test_more_than_a_caller_takes_is_not_kept(self, target: Target) -> None:
        with pytest.raises(CommandFailed, match="printed more than 2 MiB"):
            await target.run(["cat", "/dev/zero"], most_bytes=2 << 20)
        assert (
            len((await target.run(["head", "-c", "2097152", "/dev/zero"], most_bytes=2 << 20)).stdout)
            == 2 << 20
        )

    async def test_what_prints_for_ever_is_ended(
        self, target: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(command, "MOST_BYTES", 3 << 20)
        for script in ("exec cat /dev/zero", "exec cat /dev/zero >&2"):
            with pytest.raises(CommandFailed, match="printed more than 3 MiB"):
                await target.run(["sh", "-c", script])
        monkeypatch.setattr(command, "MOST_LINE_BYTES", 3 << 20)
        process = await target.spawn(["sh", "-c", "echo first; exec cat /dev/zero"])
        lines = process.lines()
        assert await anext(lines) == "first"
        with pytest.raises(CommandFailed, match="printed a line of more than 3 MiB"):
            await anext(lines)
        await process.signal("KILL")

    async def test_the_pid_is_the_real_one(self, target: Target) -> None:
        process = await target.spawn(["sleep", "300"], env={"HEADRACE_OWNER": "contract"})
        folder = Path(f"/proc/{process.pid}")
        await asyncio.sleep(0.2)  # over SSH the pid is told just before the program replaces the shell
        assert (folder / "cmdline").read_bytes() == b"sleep\x00300\x00"
        assert b"HEADRACE_OWNER=contract" in (folder / "environ").read_bytes().split(b"\0")
        await process.signal("KILL")
        assert await process.wait(10) == -signal.SIGKILL

    async def test_wait_has_a_time_limit_and_leaves_the_process_alone(self, target: Target) -> None:
        process = await target.spawn(["sleep", "300"])
        with pytest.raises(TimeoutError):
            await process.wait(0.1)
        assert is_alive(process.pid)
        await process.signal("TERM")
        assert await process.wait(10) == -signal.SIGTERM
        await process.signal("TERM")  # it has ended: nothing happens

    async def test_a_signal_reaches_the_children(self, target: Target, place: Path) -> None:
        process = await target.spawn(["sh", "-c", f"sleep 300 & echo $! >{place}/pid; wait"])
        child = await pid_in(place / "pid")
        await process.signal("TERM")
        assert await process.wait(10) == -signal.SIGTERM
        assert await gone(child)

    async def test_an_unknown_signal_is_refused(self, target: Target) -> None:
        process = await target.spawn(["sleep", "300"])
        with pytest.raises(ValueError, match="SIGTERM"):
            await process.signal("SIGTERM")
        await process.signal("KILL")
        await process.wait(10)

    async def test_error_text_keeps_the_end(self, target: Target) -> None:
        process = await target.spawn(["sh", "-c", "seq 100000 >&2; echo last >&2"])
        assert await process.wait(20) == 0
        text = await process.error_text()
        assert text.endswith("99999\n100000\nlast\n")
        assert len(text) <= 64 * 1024

    async def test_output_goes_to_files_of_the_target(self, target: Target, place: Path) -> None:
        out, err = place / "it's out", place / "err"
        out.write_text("something longer that stood here before")
        process = await target.spawn(
            ["sh", "-c", "echo out; echo err >&2"], stdout_path=str(out), stderr_path=str(err)
        )
        assert await process.wait(10) == 0
        assert (out.read_text(), err.read_text()) == ("out\n", "err\n")
        assert [line async for line in process.lines()] == []

    async def test_an_output_replaces_a_link_and_never_follows_it(self, target: Target, place: Path) -> None:
        """As an account may have planted one in a folder that root writes to."""
        (place / "victim").write_text("of the system")
        for name, leads_to in (("out", "victim"), ("err", "/dev/full")):
            (place / name).symlink_to(leads_to)
        os.mkfifo(place / "pipe")
        argv = ["sh", "-c", "echo out; echo err >&2"]
        for out, err in (("out", "err"), ("pipe", "err")):
            process = await target.spawn(argv, stdout_path=str(place / out), stderr_path=str(place / err))
            assert await process.wait(10) == 0
            assert ((place / out).read_text(), (place / err).read_text()) == ("out\n", "err\n")
        assert (place / "victim").read_text() == "of the system"

    async def test_an_output_path_that_cannot_be_written(self, target: Target, place: Path) -> None:
        with pytest.raises(CommandFailed, match="cannot"):
            await target.spawn(["true"], stdout_path=str(place / "no" / "folder"))

    async def test_close_ends_what_was_not_detached(self, target: Target, place: Path) -> None:
        kept = await target.spawn(["sleep", "300"])
        detached = await target.spawn(
            ["sleep", "300"],
            stdout_path=str(place / "out"),
            stderr_path=str(place / "err"),
            detached=True,
        )
        try:
            assert os.getsid(detached.pid) == detached.pid
            await target.close()
            assert await gone(kept.pid)
            assert is_alive(detached.pid)
        finally:
            os.kill(detached.pid, signal.SIGKILL)

    async def test_write_makes_and_replaces_a_file(self, target: Target, place: Path) -> None:
        for content in (b"", b"new", os.urandom(2_000_000)):
            await target.write(str(place / "file"), content, mode=0o640)
            assert (place / "file").read_bytes() == content
            assert stat.S_IMODE((place / "file").stat().st_mode) == 0o640
        assert [p.name for p in place.iterdir()] == ["file"]

    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_write_takes_any_name(self, target: Target, place: Path, name: str) -> None:
        await target.write(str(place / name), b"x")
        assert (place / name).read_bytes() == b"x"
        assert len(list(place.iterdir())) == 1

    async def test_a_reader_sees_the_old_file_or_the_new(self, target: Target, place: Path) -> None:
        path = place / "file"
        old, new = b"o" * 2_000_000, b"n" * 2_000_000
        path.write_bytes(old)
        task = asyncio.create_task(target.write(str(path), new))
        seen = set()
        while not task.done():
            seen.add(path.read_bytes())
            await asyncio.sleep(0)
        await task
        assert seen <= {old, new}
        assert path.read_bytes() == new

    async def test_a_write_that_fails_leaves_nothing(self, target: Target, place: Path) -> None:
        (place / "folder" / "inside").mkdir(parents=True)
        for path in (place / "no" / "file", place / "folder"):
            with pytest.raises(TargetError, match="cannot be written"):
                await target.write(str(path), b"x" * 1_000_000)
        assert [p.name for p in place.iterdir()] == ["folder"]
        assert [p.name for p in (place / "folder").iterdir()] == ["inside"]

    async def test_put_copies_whole_with_its_mode(self, target: Target, place: Path, tmp_path: Path) -> None:
        source = tmp_path / "a source"
        source.write_bytes(os.urandom(3_000_000))
        await target.put(source, str(place / "copy"), mode=0o755)
        assert (place / "copy").read_bytes() == source.read_bytes()
        assert os.access(place / "copy", os.X_OK)
        with pytest.raises(FileNotFoundError):
            await target.put(tmp_path / "nothing", str(place / "other"))
        assert [p.name for p in place.iterdir()] == ["copy"]
