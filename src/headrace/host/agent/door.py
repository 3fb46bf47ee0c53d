"""The only interface to the agent on a target: get one answer, follow its lines, or let it write a file."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from headrace.base.errors import CommandFailed, HeadraceError, TookTooLong
from headrace.base.model import OWNER_VARIABLE, Facts, ServerEndpoint, ServerLogin
from headrace.base.received import ANY, ASIDE_BYTES, OF_VERBS, BadContent, parsed
from headrace.host.agent.failures import failure
from headrace.host.agent.program import PROGRAM, install
from headrace.host.agent.seen import AT_ONCE, Seen, seen
from headrace.host.agent.stable import facts_hash
from headrace.host.target import Completed, Process, Target, to_the_end

#: An agent exits within this time after its last line.
ENDING_S = 60.0
#: How long a stopped agent may take to write what it has.
STOPPING_S = 5.0
#: A leased agent ends once it has heard nothing for this long, and how often it hears of us.
LEASE_S = 30.0
BEAT_S = 5.0
#: Verbs whose answer is the server's own.
OF_SERVER = frozenset({"explain", "histograms", "statements", "tables"})
#: Before a program that ends with us, and its arguments.
LEASED = ("leased", "--lease", f"{LEASE_S:.0f}s", "--")


class Agent:
    """The agent's binary on a target, created by ``install``.

    ``words`` are always a verb and its options, as on the command line. Every method raises the same error for the
    same exit code of the agent: see ``failures``.
    """

    def __init__(self, target: Target, path: str) -> None:
        self.target = target
        self.path = path

    @classmethod
    async def install(cls, target: Target) -> Agent:
        """Find the agent here, and copy it if the target is another machine without this exact version.

        Raises NotReady if there is none for the target's architecture.
        """
        return cls(target, await install(target))

    async def answer(
        self,
        *words: str,
        stdin: bytes = b"",
        timeout_s: float | None = 60.0,
        repeatable: bool = False,
        even_if_it_failed: bool = False,
    ) -> Any:
        """One JSON document. ``even_if_it_failed``: use JSON on standard output regardless of the exit code."""
        # A byte more, to tell what is too large from what just fits.
        most_bytes = OF_VERBS.get(words[0], ANY).size_bytes + 1
        done = await self._run(words, stdin, timeout_s, repeatable, most_bytes)
        if done.exit_code and not even_if_it_failed:
            raise self._failure(done.exit_code, done.error_text)
        try:
            return await self._document(words[0], done.text)
        except CommandFailed:
            if done.exit_code:
                raise self._failure(done.exit_code, done.error_text) from None
            raise

    async def _document(self, verb: str, text: str) -> Any:
        """The same; a large one beside the others, so that they are served meanwhile."""
        if len(text) > ASIDE_BYTES:
            return await asyncio.to_thread(self.document, verb, text)
        return self.document(verb, text)

    def document(self, verb: str, text: str) -> Any:
        """A verb's parsed output. Raises CommandFailed if it is not JSON, or more than the verb may print."""
        try:
            return parsed(text, OF_VERBS.get(verb, ANY))
        except BadContent as error:
            if not str(error).startswith("not JSON"):
                raise CommandFailed(f"{PROGRAM} {verb}: refused: {error}", place=self.target.name) from None
            said = text[-2000:].strip().splitlines()[-1:]
            what = f"printed what is not JSON: {said[0][:200]!r}" if said else "printed nothing"
            raise CommandFailed(f"{PROGRAM} {verb} {what}", place=self.target.name) from None

    async def text(
        self, *words: str, stdin: bytes = b"", timeout_s: float | None = 60.0, repeatable: bool = False
    ) -> str:
        """The output of a verb that does not print JSON: text for another program, or nothing."""
        done = await self._run(words, stdin, timeout_s, repeatable)
        if done.exit_code:
            raise self._failure(done.exit_code, done.error_text)
        return done.text

    async def read(self, path: str, *, root: str = "/") -> bytes:
        """A plain file of the target that others might have replaced by a link, a pipe, a device or another file.

        Raises FileNotFoundError, IsADirectoryError; Refused for what it is instead. At most 1 MiB. ``root``: where
        paths and links begin, such as /proc/PID/root.
        """
        return (await self.look([path], root=root))[path].plain(self.target.name)

    async def look(self, paths: Sequence[str], *, root: str = "/") -> dict[str, Seen]:
        """What is at each of these paths, one call for many: at most 1 MiB of a file, 8 MiB of a call."""
        found: dict[str, Seen] = {}
        for at in range(0, len(paths), AT_ONCE):
            part = tuple(dict.fromkeys(paths[at : at + AT_ONCE]))
            answer = await self.answer(
                "file", "--root", root, "--", *part, repeatable=True, even_if_it_failed=True
            )
            found |= seen(answer, part, self.target.name)
        return found

    async def version(self) -> str:
        return (await self.text("--version")).split()[-1]

    async def spawn(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        cpus: str = "",
        stdout_path: str | None = None,
        detached: bool = False,
    ) -> Process:
        """Start a verb and return; ``ended`` judges its exit code. It runs on ``cpus``; empty: all."""
        argv = [self.path, *words]
        argv = ["taskset", "-c", cpus, *argv] if cpus else argv
        try:
            return await self.target.spawn(argv, env=env, stdout_path=stdout_path, detached=detached)
        except CommandFailed as error:
            # The place is a path that cannot be written, otherwise the program.
            if error.place != self.target.name:
                raise
            raise self._failure(127, "") from error

    async def ended(self, process: Process, exit_code: int) -> None:
        """Raises the error if a spawned verb did not exit with 0."""
        if exit_code:
            raise self._failure(exit_code, await process.error_text())

    @contextlib.asynccontextmanager
    async def lines(
        self, *words: str, stdin: AsyncIterator[bytes] | None = None, is_leased: bool = False
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The JSON lines of a verb as they come; after the last one the exit code was 0.

        Leaving the context earlier ends the agent. ``stdin`` is passed to it, and its end ends the verb. Without
        one the verb has a lease; if it ``is_leased`` it keeps that itself.
        """
        own = stdin is not None or is_leased
        process = await self.spawn(*words) if own else await self.spawn(*LEASED, self.path, *words)
        feeding = asyncio.ensure_future(_beat(process) if stdin is None else _feed(process, stdin))
        ending: list[int] = []
        try:
            yield self._parsed(process, words[0], ending)
            if feeding.done():
                feeding.result()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            if not ending:
                await to_the_end(stop(process))

    def samples(self, *options: str) -> AbstractAsyncContextManager[AsyncIterator[dict[str, Any]]]:
        """What the sampler prints, until the context is left, or we are gone: within ``LEASE_S`` and a few seconds
        it ends by itself, whatever became of the connection.
        """
        return self.lines("sample", "--lease", f"{LEASE_S:.0f}s", *options, is_leased=True)

    @contextlib.asynccontextmanager
    async def leased(self, *argv: str) -> AsyncIterator[Process]:
        """Another program on the target, which ends with us as the sampler does; so does all that it starts."""
        process = await self.spawn(*LEASED, *argv)
        beating = asyncio.ensure_future(_beat(process))
        try:
            yield process
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await to_the_end(stop(process))

    async def _parsed(self, process: Process, verb: str, ending: list[int]) -> AsyncIterator[dict[str, Any]]:
        broken: CommandFailed | None = None
        async for line in process.lines():
            try:
                row = await self._document(verb, line)
                if not isinstance(row, dict):
                    raise CommandFailed(f"{PROGRAM} {verb} printed no object", place=self.target.name)
            except CommandFailed as error:
                # A truncated line means that the agent died: its exit code is more informative than the line.
                broken = error
                process.ignore_output()
                break
            yield row
        try:
            ending.append(await process.wait(STOPPING_S if broken else ENDING_S))
            await self.ended(process, ending[0])
        except TimeoutError:
            broken = broken or CommandFailed(
                f"{PROGRAM} {verb} did not end after its last line", place=self.target.name
            )
        if broken:
            raise broken

    async def facts(self, login: ServerLogin | None = None, *, thorough: bool = False) -> Facts:
        """The configuration of the host, and with ``login`` also of the server: ``thorough`` at any cost.

        The hash of two readings is equal unless the configuration changed.
        """
        options = ["--thorough"] if thorough else []
        data = await self.answer("facts", *options, *(login.argv if login else ()), repeatable=True)
        try:
            return Facts(facts_hash(data), data)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise CommandFailed(
                f"{PROGRAM} facts: refused: {error!r:.200}", place=self.target.name
            ) from error

    async def start_sampler(
        self,
        output: str,
        *,
        owner: str,
        interval_s: float = 1.0,
        endpoint: ServerEndpoint | None = None,
        cpus: str = "",
    ) -> Process:
        """Sample the host (and the server of ``endpoint``) into a file of the target until it gets TERM.

        Whole milliseconds; at least 10. A name that ends in ``.zst`` is compressed. ``cpus`` are those it may run
        on; empty: all.
        """
        words = ["sample", "--interval", f"{round(interval_s * 1000)}ms", "--output", output]
        if endpoint is not None:
            if endpoint.socket:
                words += ["--mysql-socket", endpoint.socket]
            else:
                words += ["--mysql-host", "127.0.0.1", "--mysql-port", str(endpoint.port)]
            words += ["--mysql-user", endpoint.user]
        return await self.spawn(*words, env={OWNER_VARIABLE: owner}, cpus=cpus, detached=True)

    async def explain(self, statement: str, database: str, login: ServerLogin) -> str:
        """The plan of a statement that only reads, as text; or why there is none. It is not executed."""
        options = [*login.argv, *(["--mysql-database", database] if database else [])]
        try:
            plan = await self.answer("explain", "--text", *options, stdin=statement.encode())
        except HeadraceError as error:
            return error.message
        return json.dumps(plan.get("plan", plan.get("rows")), indent=2)

    async def _run(
        self,
        words: tuple[str, ...],
        stdin: bytes,
        timeout_s: float | None,
        repeatable: bool,
        most_bytes: int | None = None,
    ) -> Completed:
        argv = [self.path, *words]
        try:
            return await self.target.run(
                argv,
                stdin=stdin,
                timeout_s=timeout_s,
                check=False,
                repeatable=repeatable,
                most_bytes=most_bytes,
            )
        except TookTooLong:
            if words[0] not in OF_SERVER:
                raise
            raise TookTooLong(
                f"the server did not answer within {timeout_s:g} s: it is busy, or what was asked for waits for "
                "a lock",
                place=self.target.name,
            ) from None

    def _failure(self, exit_code: int, error_text: str) -> HeadraceError:
        return failure(exit_code, error_text, self.target.name)


async def stop(process: Process) -> None:
    """Ask it to stop, then kill it; on a lost host it ends anyway."""
    process.ignore_output()
    with contextlib.suppress(HeadraceError, OSError, TimeoutError):
        await process.signal("TERM")
        await process.wait(STOPPING_S)
        return
    with contextlib.suppress(HeadraceError, OSError):
        await process.signal("KILL")


async def _beat(process: Process) -> None:
    # A connection that is lost shows in what is read.
    with contextlib.suppress(HeadraceError):
        while True:
            await process.write(b"\n")
            await asyncio.sleep(BEAT_S)


async def _feed(process: Process, stdin: AsyncIterator[bytes]) -> None:
    async for piece in stdin:
        await process.write(piece)
    await process.close_stdin()
