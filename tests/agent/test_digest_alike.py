"""The same events give the same digest: whatever the order, the number of threads, a file, gzip or a pipe."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
from pathlib import Path

from tests.programs import agent_path

NAMES = ("search_tmp_", "orders_", "cart-é", "t")
#: Of the header line, and of no class: they name the source.
SOURCES = ("inputs", "source", "host", "made_ns")


def event(chance: random.Random, number: int, seconds: float) -> str:
    """A statement with a generated name; some are long, have several lines or text that looks like a header."""
    table = f"`{chance.choice(NAMES)}{chance.randrange(10**6):x}`"
    text = chance.choice(
        (
            f"select a from {table} where id = {number}",
            f"insert into {table} values ('{'x' * chance.choice((3, 300, 9_000))}')",
            f"update {table}\nset a = 'it''s\n# Time: {number}'\nwhere b = {chance.random()}",
            "select 'common' from t where id = 7",
        )
    )
    return (
        f"# User@Host: app[app] @ web{number % 3} [10.0.0.{number % 3}]  Id: {number % 17}\n"
        f"# Query_time: {seconds:.6f}  Lock_time: 0.000010 Rows_sent: {number % 5}  Rows_examined: {number}\n"
        f"use shop;\nSET timestamp={1_780_000_000 + number};\n{text};\n"
    )


def log(chance: random.Random) -> list[str]:
    """More classes than a digest lists, and one slow class of few events."""
    events = [event(chance, n, chance.random() / 100) for n in range(4_000)]
    slow = [
        event(random.Random(n), n, 20.0).rpartition(";\n")[0].rpartition("\n")[0]
        + "\nselect sleep(1) from slow_one;\n"
        for n in range(5)
    ]
    return events + slow


def digest(*words: object, stdin: bytes = b"") -> list[str]:
    command = [agent_path(), "digest", "--classes", "200", *map(str, words)]
    out = subprocess.run(command, check=True, capture_output=True, input=stdin).stdout.decode()
    lines = []
    for line in out.splitlines():
        content = json.loads(line)
        for name in SOURCES:
            content.pop(name, None)
        lines.append(json.dumps(content, sort_keys=True))
    return lines


def test_a_log_read_in_any_way_has_the_same_digest(tmp_path: Path) -> None:
    text = "".join(log(random.Random(11))).encode()
    plain, packed = tmp_path / "slow.log", tmp_path / "slow.log.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text, 1))
    one = digest("--workers", 1, plain)
    assert len(one) > 100
    for workers in (2, 8):
        assert digest("--workers", workers, plain) == one, workers
    assert digest(packed) == one
    assert digest("-", stdin=text) == one


def test_any_order_lists_the_same_classes_with_the_same_totals(tmp_path: Path) -> None:
    events = log(random.Random(12))
    found = set()
    for seed in range(3):
        random.Random(seed).shuffle(events)
        path = tmp_path / f"{seed}.log"
        path.write_text("".join(events))
        for words in (("--workers", 1, path), ("--workers", 2, path)):
            rows = [json.loads(line) for line in digest(*words)]
            classes = [row for row in rows if "fingerprint" in row]
            found.add(json.dumps([[row["fingerprint"], row.get("count")] for row in classes], sort_keys=True))
            assert "slow_one" in classes[0]["fingerprint"]
    assert len(found) == 1
