"""SHOW ENGINE INNODB STATUS alone: what a DBA reads in it is a finding, and what it lacks is not guessed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.hunt.dumps.kinds.innodb import read
from headrace.hunt.dumps.piece import Numbered
from headrace.hunt.hunt import examine, saved

TEXTS = Path(__file__).parents[2] / "crates/host/src/server/texts"
MYSQL, MARIADB = (
    (TEXTS / f"innodb-status-{name}.txt").read_text() for name in ("mysql-8.0", "mariadb-10.11")
)
OLD = "ACTIVE 7200 sec"
HISTORY = "History list length 4821337"
LATCH = (
    "--Thread 140 has waited at row0sel.cc line 3758 for {}.00 seconds the semaphore:\n"
    "S-lock on RW-latch at 0x7e created in file btr0sea.cc line 196\n"
    "a writer (thread id 139) has reserved it in mode  exclusive\n"
)
LOG = re.compile(r"^---\nLOG\n---\n.*?(?=^-----)", re.MULTILINE | re.DOTALL)
DEADLOCK = (
    "------------------------\nLATEST DETECTED DEADLOCK\n------------------------\n2026-11-21 12:{} 0x7f\n"
)


def mysql(*changes: tuple[str, str]) -> str:
    """The real text with changes, each of a pattern's first match."""
    text = MYSQL
    for pattern, new in changes:
        assert re.search(pattern, text, re.MULTILINE), pattern
        text = re.sub(pattern, lambda _, new=new: new, text, count=1, flags=re.MULTILINE)  # type: ignore[misc]
    return text


def latch(seconds: int) -> str:
    return mysql((r"^OS WAIT ARRAY INFO: signal", LATCH.format(seconds) + "OS WAIT ARRAY INFO: signal"))


def log(text: str) -> str:
    assert LOG.search(MYSQL)
    return LOG.sub(f"---\nLOG\n---\n{text}", MYSQL)


def waits(seconds: int) -> str:
    return mysql((r"^-+ TRX HAS BEEN WAITING \d+ SEC", f"------- TRX HAS BEEN WAITING {seconds} SEC"))


def pool(hits: str, reads: str, free: int) -> str:
    return mysql(
        (
            r"^Buffer pool hit rate \d+ / 1000|^No buffer pool page gets.*",
            f"Buffer pool hit rate {hits} / 1000",
        ),
        (r"^[\d.]+ reads/s, [\d.]+ creates/s", f"{reads} reads/s, 0.00 creates/s"),
        (r"^Free buffers +\d+", f"Free buffers       {free}"),
    )


def queue(inside: int, waiting: int) -> str:
    said = f"{inside} queries inside InnoDB, {waiting} queries in queue"
    return mysql((r"^\d+ queries inside InnoDB, \d+ queries in queue", said))


XTRADB = (
    "Log sequence number {}\nLog flushed up to   {}\nLast checkpoint at  {}\nMax checkpoint age    80826164\n"
    "Checkpoint age target 78300347\nModified age          75000000\nCheckpoint age        78000000\n"
)
BULK = "---TRANSACTION 6156, ACTIVE 0 sec setting auto-inc lock\nLOCK WAIT "

CASES = {
    "nothing wrong": (MYSQL, set(), "4 transactions open, 1 of them wait for row locks"),
    "MariaDB, nothing wrong": (MARIADB, set(), "957 old row versions wait for purge"),
    "a row waits for 44 s": (
        waits(44), {"LOCK02"}, "1 transaction waits for row locks, one for 44 s (LOCK02)",
    ),
    "a row waits for a moment": (waits(0), set(), ""),
    "waits in us are no seconds": (waits(0).replace("WAITING 0 SEC", "WAITING 900000 us"), set(), ""),
    "old, nobody waits": (
        mysql((r"ACTIVE 0 sec$", OLD)), {"LOCK10"}, "oldest transaction is 7,200 s old (LOCK10)",
    ),
    "old, and a row waits": (
        waits(44).replace("ACTIVE 0 sec\n", f"{OLD}\n", 1), {"LOCK02", "LOCK17"},
        "has been open for 7,200 s, and 1.0 sessions wait for rows behind it (LOCK17)",
    ),
    "history": (mysql((r"^History list length \d+", HISTORY)), {"LOCK09"}, "4,821,337 old row versions wait"),
    "history that an old one holds": (
        mysql((r"^History list length \d+", HISTORY), (r"ACTIVE 0 sec$", OLD)), {"LOCK09"},
        "the oldest transaction is 7,200 s old (LOCK09)",
    ),
    "a latch for minutes": (
        latch(241), {"LOCK14"}, "waited 241 s for an InnoDB latch; most threads wait at btr0sea",
    ),
    "a latch for a moment": (latch(1), set(), "a thread has waited 1 s for a latch"),
    "misses": (pool("921", "4120.33", 3), {"POOL15"}, "4,120 pages/s are read from files"),
    "misses while it warms up": (pool("921", "4120.33", 7000), set(), ""),
    "few reads": (pool("921", "4.00", 3), set(), ""),
    "threads outside": (queue(8, 61), {"LOCK08"}, "61 statements wait to enter InnoDB"),
    "nobody outside": (queue(8, 0), set(), ""),
    "a log nearly full, in one number": (
        log(XTRADB.format(79829835, 79829835, 1829835)), {"REDO02"}, "the checkpoint is 74 of 77 MiB behind",
    ),
    # MySQL 5.1: high and low half.
    "a log nearly full, in two numbers": (
        log(XTRADB.format("84 79829835", "84 79829835", "84 1829835")), {"REDO02"}, "is 74 of 77 MiB behind",
    ),
    "over the end of the low half": (
        log(XTRADB.format("85 1829835", "85 1829835", "84 4294000000")), set(),
        "the checkpoint is 3 of 77 MiB behind",
    ),
    "a log of unknown size": (MYSQL, set(), "of an unknown size of the log"),
    "for a number": (
        mysql((r"^---TRANSACTION 6156, ACTIVE 0 sec\n", BULK)), {"LOCK11"},
        "1 transaction waits for a table's AUTO_INCREMENT lock (LOCK11)",
    ),
    "a deadlock": (
        mysql((r"^-+\nTRANSACTIONS\n", DEADLOCK.format("20:08") + "------------\nTRANSACTIONS\n")), set(),
        "the last deadlock was 540 s before",
    ),
    # The clock was set between the two.
    "a deadlock of the future": (
        mysql((r"^-+\nTRANSACTIONS\n", DEADLOCK.format("40:08") + "------------\nTRANSACTIONS\n")), set(), "open",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_text_alone_is_judged(tmp_path: Path, name: str) -> None:
    text, codes, says = CASES[name]
    (tmp_path / "innodb.txt").write_text(text)
    found = examine(saved(tmp_path / "innodb.txt"))
    assert {finding.rule.code for finding in found.judgement.findings} == codes
    assert says in found.verdict.sentence
    assert "future" not in name or "deadlock" not in found.verdict.sentence


def test_three_texts_with_waits_are_an_average(tmp_path: Path) -> None:
    for second in range(3):
        (tmp_path / f"{second}.txt").write_text(MYSQL.replace("12:29:08", f"12:29:0{second}"))
    said = examine(saved(tmp_path)).verdict.sentence
    assert "1.0 transactions wait for row locks" in said


def test_the_last_section_is_read_and_one_that_is_cut_off_is_not() -> None:
    (whole,), cut = read(queue(3, 4)), read(queue(3, 4).partition("END OF INNODB")[0])
    assert isinstance(whole, Numbered)
    assert whole.numbers["threads_queued"] == {"": 4.0}
    assert all("threads_queued" not in piece.numbers for piece in cut if isinstance(piece, Numbered))
