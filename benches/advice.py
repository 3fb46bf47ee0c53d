"""A stock MariaDB under three loads, configured by MySQLTuner, pt-variable-advisor and `headrace prove --auto`:
throughput and p99 of each beside the stock server, in interleaved blocks, with intervals.

    python benches/advice.py                     # write-heavy, read-mostly and many connections
    python benches/advice.py write --budget 20   # one load; prove starts no step after 20 minutes

Advice is taken at its word, after the load ran for a minute: a value as written, twice the present one
where it only says "more than". Advice without a value changes nothing, so it is printed and not measured.

Needs root, MariaDB, and the Debian packages mysqltuner and percona-toolkit. About an hour a load without --budget.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.planted import ACCOUNT, AGENT, advised, require_advisers
from tests.servers import Server, mariadb

#: 1.6 million rows are about 400 MB, which the stock pool of 128 MiB does not hold.
DATA = {"tables": 4, "table_size": 400_000}
LOADS: dict[str, dict[str, Any]] = {
    "write": {
        "script": "read_write",
        "point_selects": 2,
        "simple_ranges": 0,
        "sum_ranges": 0,
        "order_ranges": 0,
        "distinct_ranges": 0,
        "index_updates": 3,
        "non_index_updates": 3,
        "connections": 16,
    },
    "read": {"script": "read_only", "connections": 8},
    "connections": {"script": "point_select", "connections": 140},
}
SECONDS, WARM_S, LOOK_S = 10, 5, 60
BLOCKS = 5
#: What a broken-off command may take to restore the host.
RESTORE_S = 120

PLAN = """name = "{name}"
[design]
kind = "cumulative"
baseline = "STOCK"
blocks = {blocks}
[design.rungs]
STOCK = []
{rungs}
[workload]
kind = "oltp"
seconds = {seconds}
warmup_s = {warm}
{workload}
[volume]
device = "loop"
size = "{volume}"
[base]
"volume.filesystem" = "ext4"
{bundles}
"""


def plan(
    path: Path, name: str, load: dict[str, Any], bundles: dict[str, dict[str, Any]], volume: str = "6G"
) -> Path:
    workload = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {**DATA, **load}.items())
    rungs = "\n".join(f"{key} = [{json.dumps(key.lower())}]" for key in bundles)
    tables = "\n".join(
        "\n".join(
            [f"[bundles.{key.lower()}]", *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in knobs.items())]
        )
        for key, knobs in bundles.items()
    )
    text = PLAN.format(
        name=name,
        blocks=BLOCKS,
        rungs=rungs,
        seconds=SECONDS,
        warm=WARM_S,
        workload=workload,
        bundles=tables,
        volume=volume,
    )
    path.write_text(text)
    return path


@contextlib.contextmanager
def loaded(server: Server, load: dict[str, Any]) -> Iterator[None]:
    """Under this load, which has run for a minute."""
    connections = load["connections"]
    options = {key: value for key, value in load.items() if key != "connections"}
    spec = {
        "workload": {"kind": "oltp", **DATA, **options},
        "connections": connections,
        "seconds": 10 * LOOK_S,
    }
    argv = ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "sbtest"]
    server.sql("DROP DATABASE IF EXISTS sbtest", "CREATE DATABASE sbtest", *ACCOUNT)
    text = json.dumps(spec)
    subprocess.run(
        [AGENT, "drive", "load", "-", *argv], input=text, text=True, check=True, stdout=subprocess.DEVNULL
    )
    with subprocess.Popen(
        [AGENT, "drive", "run", "-", *argv], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin
        process.stdin.write(text)
        process.stdin.close()
        time.sleep(LOOK_S)
        try:
            yield
        finally:
            process.kill()


#: As in `innodb_buffer_pool_size (>= 1.2G) if possible.` and `table_definition_cache (400) > 598`.
ADVICE = re.compile(
    r"^\s+(?P<name>[a-z][a-z_-]+)\s*(?:should be|\([\d.]+[KMG]?\))?\s*\(?\s*(?P<sign>>=|[>=~])\s*"
    r"(?P<value>[\d.]+|ON|OFF)(?P<unit>[KMG]?)",
    re.MULTILINE,
)


def settings(text: str) -> dict[str, Any]:
    """The values in MySQLTuner's recommendations, as knobs."""
    found: dict[str, Any] = {}
    for match in ADVICE.finditer(text):
        name, value = match["name"].replace("-", "_"), match["value"]
        if value in ("ON", "OFF"):
            found[f"server.{name}"] = value
        else:
            size = float(value) * 1024 ** " KMG".index(match["unit"] or " ")
            found[f"server.{name}"] = int(size * (2 if match["sign"] == ">" else 1))
    return found


def proven(folder: Path, name: str, load: dict[str, Any], budget: float | None) -> dict[str, Any]:
    """What prove keeps; it runs only once per folder."""
    kept = folder / f"{name}-kept.json"
    if not kept.exists():
        kept.write_text(json.dumps(proof(folder, name, load, budget)))
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def proof(folder: Path, name: str, load: dict[str, Any], budget: float | None) -> dict[str, Any]:
    path = plan(folder / f"{name}.toml", name, load, {})
    argv = [*headrace("prove"), "--auto", "--plan", str(path), "--json", "-o", str(folder / f"{name}-proof")]
    if budget:
        argv += ["--budget", f"{budget}m"]
    kept: dict[str, Any] = json.loads(run(argv))["kept"]
    return kept


def headrace(verb: str) -> list[str]:
    return [sys.executable, "-m", "headrace", verb]


def run(argv: list[str], stdout: int | None = subprocess.PIPE) -> str:
    """Its output. Unlike subprocess.run, which kills: on Ctrl-C it may restore the host first."""
    with subprocess.Popen(argv, text=True, stdout=stdout) as process:
        try:
            output, _ = process.communicate()
        except KeyboardInterrupt:
            process.terminate()
            process.wait(RESTORE_S)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return output


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("loads", nargs="*", default=list(LOADS), help=f"of {', '.join(LOADS)}")
    parser.add_argument("--budget", type=float, help="minutes for prove, a load")
    parser.add_argument("--output", type=Path, help="keep experiments and reports here")
    options = parser.parse_args()
    if unknown := set(options.loads) - set(LOADS):
        raise SystemExit(f"no load {', '.join(unknown)}; there are {', '.join(LOADS)}")
    require_advisers()
    with tempfile.TemporaryDirectory(prefix="hr-advice-", dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        folder = Path(name)
        folder.chmod(0o755)
        kept = options.output or folder
        kept.mkdir(parents=True, exist_ok=True)
        for load in options.loads:
            compare(folder, kept, load, options.budget)


def compare(folder: Path, kept: Path, name: str, budget: float | None) -> None:
    load = LOADS[name]
    with mariadb(folder / name, "--innodb-buffer-pool-size=128M") as server, loaded(server, load):
        texts = advised(server)
    for adviser, text in texts.items():
        print(f"{name}: {adviser} says\n{text.strip()}\n", flush=True)
    bundles = {"MYSQLTUNER": settings(texts["MySQLTuner"]), "HEADRACE": proven(kept, name, load, budget)}
    bundles = {key: knobs for key, knobs in bundles.items() if knobs}
    for key, knobs in bundles.items():
        print(f"{name}: {key} sets {knobs}", flush=True)
    path = plan(kept / f"{name}-all.toml", f"{name}-all", load, bundles)
    run([*headrace("run"), str(path), "-o", str(kept / f"{name}-all")], stdout=None)


if __name__ == "__main__":
    main()
