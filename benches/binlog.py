"""`headrace-agent digest` on a binary log, and `mariadb-binlog -v | pt-query-digest --type binlog`, in one run.

Target: 10 times as fast, from the file to the classes. A private MariaDB writes the log in row format: `orders`
with a primary key and `log_lines` without one; inserts, updates and deletes of 1 to 200 rows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.digest import Run, best, met, run

MINUTES = 4
NEEDS = {
    "pt-query-digest": "percona-toolkit",
    "mariadbd": "mariadb-server",
    "mariadb-binlog": "mariadb-client",
}

LOG_MB = int(os.environ.get("HEADRACE_BENCH_MB", "64"))
#: The pipe to pt-query-digest is slow: it gets a log of this size, whose rate is that of the whole.
PT_MB = 8
RATIO = 10.0


def main() -> None:
    agent = os.environ.get("HEADRACE_AGENT") or str(Path(sys.executable).parent / "headrace-agent")
    with tempfile.TemporaryDirectory(prefix="hr-bench-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        log, part = folder / "binlog", folder / "part"
        write(folder / "server", {log: LOG_MB, part: PT_MB})
        text = folder / "text"
        with text.open("wb") as out:
            subprocess.run(["mariadb-binlog", "-v", str(part)], check=True, stdout=out)
        ours = best([agent, "digest", str(log), "-o", str(folder / "digest.jsonl")], log)
        ours_text = best([agent, "digest", str(text), "-o", str(folder / "text.jsonl")], text)
        theirs = pipe(f"mariadb-binlog -v {part} | pt-query-digest --no-version-check --type binlog", part)
        tool = run(["mariadb-binlog", "-v", str(part)], part)
    for title, found in (
        ("headrace-agent digest, binary log", ours),
        ("headrace-agent digest, text of mariadb-binlog -v", ours_text),
        ("mariadb-binlog -v", tool),
        ("mariadb-binlog -v | pt-query-digest --type binlog", theirs),
    ):
        print(
            f"  {title:50} {found.mb_s:8.1f} MB/s  {found.wall_s:7.2f} s for {found.bytes / 1e6:.0f} MB  "
            f"{found.memory_mb:6.1f} MB memory"
        )
    ratio = ours.mb_s / theirs.mb_s
    print(f"binary log: {ratio:.0f}x the pipe (target {RATIO:.0f}x: {met(ratio >= RATIO)})")


def pipe(command: str, file: Path) -> Run:
    start = time.monotonic()
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.DEVNULL)
    return Run(time.monotonic() - start, 0.0, 0.0, file.stat().st_size)


def write(folder: Path, wanted: dict[Path, int]) -> None:
    """Binary logs of at least so many MB, each by a server of its own start."""
    folder.mkdir()
    shutil.chown(folder, "mysql", "mysql")
    as_mysql = ["setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups"]
    data, socket = folder / "data", folder / "s"
    install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db"]
    access = ["--auth-root-authentication-method=normal"]
    subprocess.run([*as_mysql, *install, *access], check=True, stdout=subprocess.DEVNULL)
    server = subprocess.Popen(
        [
            *as_mysql, "mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--skip-networking",
            f"--log-bin={data}/binlog", "--binlog-format=ROW", "--server-id=1", "--max-binlog-size=1G",
            "--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0",
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    client = ["mariadb", "--no-defaults", "-uroot", f"--socket={socket}"]
    try:
        while subprocess.run([*client, "-e", "select 1"], capture_output=True, check=False).returncode:
            if server.poll() is not None:
                raise SystemExit("mariadbd ended")
            time.sleep(0.1)
        subprocess.run([*client, "-e", "".join(SCHEMA)], check=True)
        for number, (path, size_mb) in enumerate(wanted.items()):
            subprocess.run([*client, "-e", "reset master"], check=True)
            log = data / "binlog.000001"
            feed = subprocess.Popen([*client, "shop"], stdin=subprocess.PIPE)
            assert feed.stdin is not None
            for part in statements(number):
                feed.stdin.write(part)
                if log.stat().st_size > size_mb * 1e6:
                    break
            feed.stdin.close()
            if feed.wait():
                raise SystemExit("the client failed")
            subprocess.run([*client, "-e", "flush binary logs"], check=True)
            shutil.copyfile(log, path)
    finally:
        server.terminate()
        server.wait()


SCHEMA = (
    "create database shop; use shop;",
    "create table orders (id int not null auto_increment primary key, customer varchar(40), price decimal(10,2),"
    " placed datetime, note text);",
    "create table log_lines (at datetime, line varchar(200));",
)


def statements(seed: int) -> Iterator[bytes]:
    """Transactions, some hundred at a time: many small ones, some of 200 rows."""
    number = seed
    while True:
        said = []
        for _ in range(200):
            number += 1
            rows = ", ".join(
                f"('customer {n}', {n % 100}.50, now(), '{'note ' * (n % 12)}')"
                for n in range(number, number + (200 if number % 20 == 0 else 3))
            )
            said.append(
                f"begin; insert into orders (customer, price, placed, note) values {rows};"
                f"update orders set price = price + 1 where id between {number} and {number + 4};"
                f"delete from orders where id = {number % 50000};"
                f"insert into log_lines values (now(), 'line {number}'); commit;"
            )
        # The client runs what it has at the end of a line.
        yield "".join([*said, "\n"]).encode()


if __name__ == "__main__":
    main()
