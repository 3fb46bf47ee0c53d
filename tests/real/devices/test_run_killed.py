"""``kill -9`` of ``headrace run`` at random moments, again and again until its experiment is done.

Each trial changes sysctls of a namespace and makes a volume on a loop device. ``HEADRACE_KILLS`` says how many
kills, ``HEADRACE_SEED`` where chance begins.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.base.errors import NothingMeasured
from headrace.base.model import TrialState
from headrace.experiment.store import ExperimentFolder
from tests.bench import Bench
from tests.prestarted import Command, Starter, starter

KILLS = int(os.environ.get("HEADRACE_KILLS", "6"))
SEED = int(os.environ.get("HEADRACE_SEED", "0"))
SYSCTLS = ("/proc/sys/net/core/somaxconn", "/proc/sys/net/ipv4/tcp_fin_timeout")
#: A command begins its first trial within a second, a trial takes two or three, its write a tenth of one.
COMMAND_S, TRIAL_S, WRITE_S = 1.0, 2.5, 0.1
PLAN = """
name = "killed"
[target]
scratch = "{scratch}"
[design]
kind = "factorial"
baseline = "2001"
blocks = 2
[workload]
kind = "fio"
seconds = 0.2
rw = "randwrite"
size = "1M"
ioengine = "psync"
iodepth = 1
[volume]
device = "loop"
size = "40M"
[base]
"volume.filesystem" = "ext4"
"host.net.ipv4.tcp_fin_timeout" = 33
[factors.backlog]
knob = "host.net.core.somaxconn"
levels = [2001, 2002]
"""

pytestmark = pytest.mark.needs("root", "fio", "mkfs.ext4", "unshare", "nsenter")


@pytest.fixture
def inside() -> Iterator[list[str]]:
    """What goes before a command, so that it runs with a namespace's own sysctls."""
    argv = ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "ready\n"
        yield ["nsenter", f"--target={holder.pid}", "--net", "--"]
        holder.kill()


class Experiment:
    """One experiment, and what of it was seen on the disk and said by the command."""

    def __init__(
        self, bench: Bench, inside: list[str], headrace: Starter, chance: random.Random, found: Counter[str]
    ) -> None:
        self.bench, self.inside, self.headrace, self.chance, self.found = (
            bench,
            inside,
            headrace,
            chance,
            found,
        )
        self.trials = bench.output / "trials"
        self.before = self.sysctls()
        #: Of each trial its files and what is in them, as they were when the trial was first seen.
        self.seen: dict[str, dict[str, str]] = {}
        self.story: list[object] = []

    def sysctls(self) -> list[str]:
        cat = [*self.inside, "cat", *SYSCTLS]
        return subprocess.run(cat, check=True, capture_output=True, text=True).stdout.split()

    def start(self) -> Command:
        return Command(self.headrace, ["run", str(self.bench.plan), "-o", str(self.bench.output)])

    def kill(self) -> bool:
        """Begin or continue it, and kill it. Whether it was still running."""
        process = self.start()
        moment = self.wait(process)
        whom, kill = self.chance.choice((("the command", os.kill), ("its group", os.killpg)))
        if process.poll() is None:
            kill(process.pid, signal.SIGKILL)
        code, error = process.wait()
        self.story.append((moment, whom, code, error[-600:]))
        # It may have ended by itself between the question and the kill.
        was_running = code == -signal.SIGKILL
        if was_running:
            self.count(error)
        self.compare(error)
        if not was_running:
            self.check_end(code, error)
        return was_running

    def finish(self) -> None:
        code, error = self.start().wait()
        self.story.append(("undisturbed", code, error[-600:]))
        self.compare(error)
        self.check_end(code, error)

    def wait(self, process: Command) -> str:
        """Until the moment of the kill; what that is near to."""
        moment = self.chance.choices(("anything", "a trial", "a write", "a report"), (2, 3, 4, 1))[0]
        waits: dict[str, tuple[str, float]] = {
            "a trial": (".*.part", TRIAL_S),
            "a write": (".*.part/intervals.parquet", WRITE_S),
            "a report": ("../.report.*", WRITE_S),
        }
        if moment == "anything":
            time.sleep(self.chance.uniform(0, COMMAND_S))
            return moment
        pattern, within_s = waits[moment]
        begun = set(self.trials.glob(pattern))
        # Ignore drafts left behind by an earlier, killed command.
        while process.poll() is None and not set(self.trials.glob(pattern)) - begun:
            begun &= set(self.trials.glob(pattern))
            time.sleep(0.001)
        time.sleep(self.chance.uniform(0, within_s))
        return moment

    def count(self, error: str) -> None:
        """What the kill hit."""
        folder, on_disk = self.bench.output, len(list(self.trials.glob("[0-9]*")))
        drafts = [path for path in self.trials.glob(".*.part") if path.is_dir()]
        is_write = any((draft / "intervals.parquet").exists() for draft in drafts)
        self.found.update(
            {
                "kills": 1,
                "trials acknowledged before": told(error),
                "in a trial": bool(drafts) and not is_write,
                "in the write of a trial": is_write,
                "between the rename and the word": on_disk > told(error),
                "in the making of the folder": folder.with_name(f".{folder.name}.part").exists(),
                "in the write of a report": any(folder.glob(".report.*")),
                "with a change of the host": self.is_changed(),
            }
        )

    def is_changed(self) -> bool:
        journal = self.bench.folder / "state" / "journal.jsonl"
        return journal.exists() and journal.stat().st_size > 0

    def compare(self, error: str) -> None:
        """What was said is there, what was there before is the same, and what is new is whole."""
        if not self.bench.output.exists():
            assert not self.seen, self.story
            return
        now = {path.name: content_of(path) for path in sorted(self.trials.glob("[0-9]*"))}
        for number, files in self.seen.items():
            assert now.get(number) == files, (number, self.story)
        assert len(now) >= told(error), (list(now), self.story)
        folder = ExperimentFolder.open(self.bench.output)
        for record in folder.trials():
            assert record.state is TrialState.COMPLETE, (record, self.story)
            assert folder.latency_rows(record.number).num_rows, (record, self.story)
        with folder.database() as tables:
            counted = tables.sql("SELECT count(DISTINCT trial) FROM samples").fetchall()
        assert counted == [(len(now),)], self.story
        self.seen = now

    def check_end(self, code: int, error: str) -> None:
        """It is as if nobody had killed it, and so is the host."""
        # On a busy machine every trial may be invalid: that is no matter of restoring and continuing.
        is_busy = code == NothingMeasured.exit_code and "another program" in error
        assert code == 0 or is_busy, (code, self.story)
        design = ExperimentFolder.open(self.bench.output).design
        assert [int(number) for number in self.seen] == [spec.number for spec in design.trials], self.story
        assert json.loads((self.bench.output / "report.json").read_text()), self.story
        assert "</html>" in (self.bench.output / "report.html").read_text(), self.story
        assert not list(self.bench.output.rglob(".*.part")), self.story
        self.check_host()

    def check_host(self) -> None:
        assert self.sysctls() == self.before, self.story
        assert self.bench.traces() == [], self.story
        assert not list(self.bench.folder.glob("temporary/headrace-*")), self.story
        assert not self.is_changed(), self.story

    def roll_back(self) -> None:
        """Whoever comes next finds the host as it was."""
        code, error = Command(self.headrace, ["rollback", "--everyone"]).wait()
        assert code == 0, (error, self.story)
        self.found["rolled back instead of continued"] += 1
        self.check_host()


def content_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def told(error: str) -> int:
    """How many trials the command has said to be done, those of earlier commands included."""
    return max(map(int, re.findall(r"^(?:\[|continuing: )(\d+)(?:/| of)", error, re.MULTILINE)), default=0)


def test_killed_at_random_moments_every_trial_is_there_once_and_the_host_as_before(
    bench: Callable[[str], Bench], inside: list[str], tmp_path: Path
) -> None:
    chance, found = random.Random(SEED), Counter[str]()
    one = bench(PLAN)
    (tmp_path / "temporary").mkdir()
    with starter(tmp_path, {**one.env, "TMPDIR": str(tmp_path / "temporary")}, inside) as headrace:
        while found["kills"] < KILLS:
            found["experiments"] += 1
            one.output = tmp_path / f"out{found['experiments']}"
            experiment = Experiment(one, inside, headrace, chance, found)
            while found["kills"] < KILLS and experiment.kill():
                if chance.random() < 0.1:
                    experiment.roll_back()
            experiment.finish()
            shutil.rmtree(one.output)
            print(dict(found), flush=True)
    assert KILLS < 50 or found["in the write of a trial"] > KILLS / 20, (
        "most came elsewhere: this tested nothing"
    )
