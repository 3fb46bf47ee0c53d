"""The README's commands and its plan, as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.folders import ROOT
from tests.servers import open_folder


def readme_commands() -> list[list[str]]:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    # The host of the example is not there: this one, and not for a minute; nor are 20 for a run.
    blocks = [block.replace("-t root@db1", "--duration 2s").replace("20m", "30s") for block in blocks]
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line.split() for line in lines if line.startswith(".venv/bin/headrace ")]


def readme_plan() -> str:
    found = re.search(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert found
    return found[1]


def test_the_readmes_commands_work(tmp_path: Path) -> None:
    with open_folder() as scratch:
        # The README's own plan, only shorter, and not in the folder that another test's experiment may use.
        plan = f'{shortened(readme_plan())}\n[target]\nscratch = "{scratch}"\n'
        (tmp_path / "pool.toml").write_text(plan)
        must_work(tmp_path)


def shortened(plan: str) -> str:
    for old, new in (
        ("blocks = 5", "blocks = 2"),
        ("seconds = 10", "seconds = 2"),
        ("warmup_s = 5", "warmup_s = 0"),
    ):
        assert old in plan
        plan = plan.replace(old, new)
    return plan.replace("400_000", "2_000").replace("tables = 4", "tables = 1")


def must_work(folder: Path) -> None:
    commands = readme_commands()
    assert len(commands) >= 8
    shipped = {path.stem for path in (ROOT / "src/headrace/examples").glob("*.toml")}
    for command in commands:
        if command[1] == "run" and command[2] in shipped:
            # Minutes each; test_sweep and test_drive_plans run short ones.
            command = [command[0], "plan", "show", command[2]]
        elif command[1:3] == ["lab", "up"]:
            # tests/real/vm boots machines, and takes them down again.
            command = [command[0], "lab", "status"]
        elif command[1] == "hunt":
            # Servers of other tests run beside this one, and one of several must be chosen.
            command = [*command, "--host-only"]
        answer = subprocess.run(
            [str(Path(sys.executable).with_name("headrace")), *command[1:]],
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=300,
            check=False,
        )
        assert answer.returncode == 0, (command, answer.stdout, answer.stderr)
