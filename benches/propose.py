"""What `headrace propose` sets, beside MySQLTuner's advice, MySQL's innodb_dedicated_server and a stock MariaDB.

    python benches/propose.py                       # five loads, three sizes of data
    python benches/propose.py read insert --rows 400000

Each load runs for a minute on a stock server, while propose looks for half a minute and MySQLTuner after it. Their
settings are taken at their word and then tested: interleaved blocks of trials on new servers, throughput and p99
with intervals, in one plan a cell. The values of innodb_dedicated_server are those that a real MySQL 8.0 takes on
this machine; MariaDB has them under the same or the older name.

Needs root, MariaDB, and the Debian packages mysqltuner and percona-toolkit. About 6 minutes a cell.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.advice import headrace, loaded, plan, run, settings
from benches.planted import advised, require_advisers
from tests.servers import mariadb, open_folder, started

LOADS: dict[str, dict[str, Any]] = {
    "read": {"script": "read_only", "connections": 8},
    "write": {"script": "read_write", "connections": 16, "point_selects": 2, "index_updates": 3},
    "insert": {"script": "insert", "connections": 16},
    "update": {"script": "update_index", "connections": 32},
    "connections": {"script": "point_select", "connections": 140},
}
#: Of each of four tables: about 25, 100 and 300 MB each. The stock pool has 128 MiB.
ROWS = (100_000, 400_000, 1_200_000)
LOOK = "30s"
#: The redo log of innodb_dedicated_server is laid out on it.
VOLUME = "24G"
#: The name that MariaDB has for what MySQL sets.
OLDER = {"innodb_redo_log_capacity": "innodb_log_file_size"}


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("loads", nargs="*", default=list(LOADS), help=f"of {', '.join(LOADS)}")
    parser.add_argument("--rows", type=int, action="append", help="of each table; more than once for more")
    parser.add_argument("--output", type=Path, help="keep plans, experiments and reports here")
    options = parser.parse_args()
    if unknown := set(options.loads) - set(LOADS):
        raise SystemExit(f"no load {', '.join(unknown)}; there are {', '.join(LOADS)}")
    require_advisers()
    with tempfile.TemporaryDirectory(prefix="hr-propose-", dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        kept = options.output or Path(name)
        kept.mkdir(parents=True, exist_ok=True)
        dedicated = dedicated_server()
        print(f"innodb_dedicated_server sets {dedicated}", flush=True)
        for load in options.loads:
            for rows in options.rows or ROWS:
                cell(kept, f"{load}-{rows}", {**LOADS[load], "table_size": rows}, dedicated)


def dedicated_server() -> dict[str, Any]:
    """What a real MySQL 8.0 with that option takes on this machine."""
    names = ("innodb_buffer_pool_size", "innodb_redo_log_capacity")
    with open_folder() as folder, started("mysql", folder / "s", "--innodb-dedicated-server=ON") as server:
        # A size that is given is not the option's.
        server.argv = [word for word in server.argv if not word.startswith("--innodb-buffer-pool-size")]
        server.restart()
        values = {name: int(str(server.sql(f"SELECT @@{name}")[0][0])) for name in names}
    return {f"server.{OLDER.get(name, name)}": value for name, value in values.items()}


def cell(kept: Path, name: str, load: dict[str, Any], dedicated: dict[str, Any]) -> None:
    proposed, tuner = looked_at(load)
    bundles = {"MYSQLTUNER": tuner, "DEDICATED": dedicated, "PROPOSED": proposed}
    for key, knobs in bundles.items():
        print(f"{name}: {key} sets {knobs or 'nothing'}", flush=True)
    bundles = {key: knobs for key, knobs in bundles.items() if knobs}
    path = plan(kept / f"{name}.toml", name, load, bundles, VOLUME)
    run([*headrace("run"), str(path), "-o", str(kept / name)], stdout=None)


def looked_at(load: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of propose, which a private server has, and those of MySQLTuner."""
    with open_folder() as folder, mariadb(folder / "s", "--innodb-buffer-pool-size=128M") as server:
        login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
        with loaded(server, load):
            lines = json.loads(run([*headrace("propose"), "--duration", LOOK, "--json", *login]))["lines"]
            tuner = settings(advised(server)["MySQLTuner"])
    ours = {line["knob"]: line["value"] for line in lines if line["is_speed"]}
    return {knob: value for knob, value in ours.items() if knob.startswith("server.")}, tuner


if __name__ == "__main__":
    main()
