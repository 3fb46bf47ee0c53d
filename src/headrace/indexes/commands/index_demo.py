"""`headrace demo indexes`: from a slow log to an index that is proved, applied and taken back."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headrace.base.errors import TargetError
from headrace.base.extras import require
from headrace.base.model import ServerLogin
from headrace.base.temporary import temporary_folder
from headrace.cli.shell import INCONCLUSIVE, on_target, print_json, stdout, tell

if TYPE_CHECKING:
    from headrace.indexes.demo import Shop

#: Rounds of the traffic for the log, and each time its effect is shown.
LOGGED, SHOWN = 5, 3


class DemoFailed(TargetError):
    """A command of the demo ended with an error."""


def demo_indexes(rows: int, blocks: int, as_json: bool) -> None:
    """Ends with exit code 15 if nothing is proved: the machine was too busy for a verdict."""
    require("pymysql")
    require("sqlglot")
    # On disk, and where another account may enter: as root the servers run as the user mysql.
    with temporary_folder(Path("/var/tmp")) as folder:
        folder.chmod(0o711)
        told = on_target("local", lambda host: _Demo(folder, rows, blocks, as_json).run(host), changes=True)
    if as_json:
        print_json(told)
    if not told["proved"]:
        raise typer.Exit(INCONCLUSIVE)


class _Demo:
    def __init__(self, folder: Path, rows: int, blocks: int, as_json: bool) -> None:
        self._folder = folder
        self._rows = rows
        self._blocks = blocks
        self._is_quiet = as_json
        self._told: dict[str, Any] = {"proved": []}

    async def run(self, host: Any) -> dict[str, Any]:
        from headrace.indexes import demo

        async with demo.shop(host, str(self._folder), self._rows, tell) as shop:
            before = await self._played(shop, LOGGED, "playing its traffic into a slow log")
            await self._found(shop)
            if await self._proved(shop):
                await self._applied(shop, before)
        self._say("", "The servers and their data are gone.")
        return self._told

    async def _played(self, shop: Shop, rounds: int, what: str) -> Mapping[str, float]:
        from headrace.indexes import demo

        tell(what)
        return await asyncio.to_thread(demo.play, shop.login, self._rows, rounds)

    async def _found(self, shop: Shop) -> None:
        page = await self._asked(shop.login, "indexes", shop.log)
        self._told |= {"candidates": page["candidates"], "redundant": page["redundant"]}
        self._told["hindrances"] = page["hindrances"]
        self._say("", "What the traffic lacks, by the slow log and the tables:")
        for each in page["candidates"]:
            self._say(
                f"  missing   {_index(each)}: its statements take {each['share_of_time']:.0%} of the time"
            )
        for each in page["redundant"]:
            place = f"{each['table']}, index {each['index']}"
            self._say(f"  surplus   {place}: {each['kept']} replaces it, for {each['why']}")
        for each in page["hindrances"]:
            self._say(f"  no index serves {each['predicate']}: {each['why']}")

    async def _proved(self, shop: Shop) -> bool:
        tell("trying the candidates on a copy of the server")
        page = await self._asked(
            shop.copy, "indexes", shop.log, "--prove", "--on-copy", "--blocks", str(self._blocks)
        )
        self._say("", "Tried on a copy:")
        for each in page["screening"]["candidates"]:
            if each["outcome"] != "used":
                self._say(f"  {_index(each)}: {each['outcome']}")
        proof = page.get("proof")
        if proof is not None:
            self._told |= {
                "proof": proof,
                "proved": [each for each in proof["candidates"] if each["is_proved"]],
            }
            self._say(f"  {page['headline']}")
        return bool(self._told["proved"])

    async def _applied(self, shop: Shop, before: Mapping[str, float]) -> None:
        from headrace.indexes import demo

        indexes = [_index(each) for each in self._told["proved"]]
        tell("applying what is proved, then playing the traffic again")
        for index in indexes:
            await self._asked(shop.login, "apply", f"index:{index}")
        after = await self._played(shop, SHOWN, "with the indexes")
        for index in indexes:
            await self._asked(shop.login, "rollback", "--index", index)
        again = await self._played(shop, SHOWN, "without them again")
        left = (await self._asked(shop.login, "rollback", "--list", server=False))["indexes"]
        self._told |= {"before_s": before, "with_s": after, "taken_back_s": again, "left": left}
        self._say(
            "", "Mean time of a call, in ms:", f"  {'':10}{'before':>10}{'with them':>12}{'taken back':>12}"
        )
        for name in before:
            three = (1e3 * each[name] for each in (before, after, again))
            self._say("  {:10}{:10.2f}{:12.2f}{:12.2f}".format(name, *three))
        rounds = [sum(demo.ROUND[name] * each[name] for name in each) for each in (before, after, again)]
        self._say("  {:10}{:10.0f}{:12.0f}{:12.0f}".format("a round", *(1e3 * each for each in rounds)))

    async def _asked(self, login: ServerLogin, *words: str, server: bool = True) -> Any:
        """What a command of headrace prints with ``--json``, with a state of its own. Raises DemoFailed."""
        from headrace.base.received import parsed

        words = (*words, *(login.argv if server else ()))
        self._say("", f"$ headrace {shlex.join(words)}")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace", *words, "--json",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "XDG_STATE_HOME": str(self._folder / "state")},
        )  # fmt: skip
        try:
            out, errors = await process.communicate()
        except asyncio.CancelledError:
            process.send_signal(signal.SIGKILL)  # its server goes with the demo
            await process.wait()
            raise
        if process.returncode:
            raise DemoFailed(f"headrace {words[0]} ended with {process.returncode}: {errors.decode()[-500:]}")
        return parsed(out)

    def _say(self, *lines: str) -> None:
        for line in lines if not self._is_quiet else ():
            stdout().print(line, soft_wrap=True, highlight=False, markup=False)


def _index(each: Mapping[str, Any]) -> str:
    columns: Sequence[str] = each["columns"]
    return f"{each['table']}({', '.join(columns)})"
