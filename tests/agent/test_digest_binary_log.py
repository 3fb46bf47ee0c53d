"""Binary logs through `headrace-agent digest` and `headrace digest`: figures, forms, gaps, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headrace.show import html, terminal
from headrace.traffic.digests import table as tables
from headrace.traffic.digests.binary_log import binary_log
from headrace.traffic.digests.classes import Digest, open_digest
from headrace.traffic.digests.lines import read_lines
from headrace.traffic.digests.merge import merge
from headrace.traffic.report.page import page_of
from headrace.traffic.report.words import View
from tests.folders import TESTS
from tests.programs import agent_path

CASES = TESTS / "cases" / "binlog"
ROW, TAGGED = CASES / "mariadb-row.000001", [CASES / f"mysql97-tagged.00000{n}" for n in (1, 2)]


def lines(*words: object, stdin: bytes = b"") -> list[str]:
    command = [agent_path(), "digest", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, input=stdin).stdout.decode().splitlines()


def digest(*words: object, stdin: bytes = b"") -> Digest:
    return open_digest(read_lines(lines(*words, stdin=stdin), "test"))


def figures(found: Digest) -> dict[str, Any]:
    """Everything but the names of sources."""
    data = dict(page_of(found, View(limit=1000)).data)
    data.pop("sources")
    log = dict(data["binary_log"])
    log["largest"] = [{**each, "log": ""} for each in log["largest"]]
    return {**data, "binary_log": log}


def shown(found: Digest, width: int = 200) -> str:
    out = io.StringIO()
    parts = [part for section in page_of(found, View()).sections for part in section.brief]
    Console(file=out, width=width, no_color=True).print(terminal.show(parts))
    return out.getvalue()


def test_rows_bytes_and_transactions_are_those_of_the_log() -> None:
    found = digest(ROW)
    by_name = {each.fingerprint: each for each in found.classes}
    assert by_name["INSERT INTO shop.orders (rows)"].number("rows_affected").sum == 11
    assert by_name["DELETE FROM shop.orders (rows)"].tables == ["shop.orders"]
    # Row events have no response time; statements have one in whole seconds.
    assert by_name["UPDATE shop.orders (rows)"].number("response_ns").count == 0
    log = binary_log(found)
    assert log is not None
    assert (log.count("count"), log.number("rows").sum, log.number("rows").most) == (11, 28, 9)
    # Every byte is in an event; what is of no transaction is of the log itself.
    of_log = sum(log.kinds[kind][1] for kind in ("Format_desc", "Gtid_list", "Binlog_checkpoint", "Rotate"))
    assert log.number("bytes").sum + of_log + len(b"\xfebin") == ROW.stat().st_size
    assert [each["gtid"] for each in log.largest[:2]] == ["0-7-6", "0-7-4"]
    assert log.untold
    assert not log.scanned


@pytest.mark.parametrize("form", ["gzip", "zstd", "pipe"])
def test_any_form_of_the_file_has_the_same_figures(tmp_path: Path, form: str) -> None:
    whole = figures(digest(ROW))
    if form == "pipe":
        assert figures(digest("-", stdin=ROW.read_bytes())) == whole
        return
    packed = tmp_path / f"log.{form}"
    if form == "gzip":
        packed.write_bytes(gzip.compress(ROW.read_bytes()))
    else:
        zstd = shutil.which("zstd") or pytest.skip("no zstd")
        subprocess.run([zstd, "-q", str(ROW), "-o", str(packed)], check=True)
    assert figures(digest(packed)) == whole


def test_parts_merge_to_the_whole() -> None:
    whole = digest(*TAGGED)
    parts = [read_lines(lines(each), "test") for each in TAGGED]
    merged = open_digest(merge(parts))
    assert figures(merged) == figures(whole)
    assert merge([merged.table]).equals(merged.table)


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    link, copy = tmp_path / "again", tmp_path / "copy.gz"
    link.symlink_to(ROW)
    copy.write_bytes(gzip.compress(ROW.read_bytes()))
    once, again = digest(ROW), digest(ROW, link, copy)
    assert {**figures(again), "coverage": {}} == {**figures(once), "coverage": {}}
    said = {place["input"]: place["reason"] for place in again.places}
    assert said[str(link)].startswith("left out: this file was named before")
    assert said[str(copy)].startswith(f"left out: {ROW} has all of it")


def test_a_saved_digest_keeps_it(tmp_path: Path) -> None:
    found = digest(*TAGGED)
    tables.write(found.table, tmp_path / "digest.parquet")
    assert figures(open_digest(tables.read(tmp_path / "digest.parquet"))) == figures(found)


def test_tables_without_a_key_are_named_where_the_log_tells() -> None:
    log = binary_log(digest(*TAGGED))
    assert log is not None
    assert {each.name: each.has_key for each in log.tables} == {
        "shop.orders": True, "shop.log_lines": False, "shop.copy": False,
    }  # fmt: skip
    # Nothing is updated in the copy: no replica searches it.
    assert [(each.name, each.found_rows) for each in log.scanned] == [("shop.log_lines", 5)]
    assert "no primary key: shop.log_lines (5 rows)" in shown(digest(*TAGGED))
    assert "primary keys: not told by this log" in shown(digest(ROW))


def test_what_is_missing_between_logs_is_said() -> None:
    assert binary_log(digest(*TAGGED)).gaps == ()  # type: ignore[union-attr]
    log = binary_log(digest(TAGGED[0], ROW))
    assert log is not None
    assert len(log.gaps) == 1
    assert "is followed by binlog.000002, but" in log.gaps[0]
    # Without the first log: what the second one says was executed before it is no gap of what was read.
    assert binary_log(digest(TAGGED[1])).gaps == ()  # type: ignore[union-attr]


def test_events_without_their_log_lose_nothing_silently(tmp_path: Path) -> None:
    bytes_ = ROW.read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(bytes_[:-100])
    found = digest(cut)
    assert found.coverage["damaged"] == 1
    assert "ends in the middle of an event" in shown(found)
    cut.write_bytes(bytes_[2000:])
    found = digest(cut)
    assert "a piece of a log" in shown(found)
    assert binary_log(found).count("unfinished") == 1  # type: ignore[union-attr]


def test_filters_choose_statements_and_transactions_with_them() -> None:
    log = binary_log(digest(ROW, "--filter", "text~log_lines"))
    assert log is not None
    assert log.count("count") == 5
    # The whole transaction counts, with its other statements.
    assert log.number("statements").most == 5


@pytest.mark.parametrize("path", [CASES / "mariadb-encrypted.000002", None])
def test_encrypted_logs_are_named_and_fail(tmp_path: Path, path: Path | None) -> None:
    if path is None:
        path = tmp_path / "binlog.000001"
        path.write_bytes(b"\xfdbin" + bytes(600))
    done = subprocess.run([agent_path(), "digest", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "is an encrypted binary log" in done.stderr
    assert "--read-from-remote-server" in done.stderr


def test_a_binary_log_cannot_be_recorded(tmp_path: Path) -> None:
    command = [agent_path(), "record", str(ROW), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "cannot be recorded" in done.stderr
    assert not (tmp_path / "out").exists()


def test_pages_and_terminals_say_what_a_replica_does() -> None:
    found = digest(ROW, *TAGGED)
    text = shown(found)
    for said in (
        "24 transactions over", "The largest transactions", "mariadb-row.000001:", "0-7-6",
        "row events have none (-)", "of bytes", "±1 s",
    ):  # fmt: skip
        assert said in text, said
    page = html.render(page_of(found, View()))
    assert "What a replica has to do" in page
    table = subprocess.run(
        [agent_path(), "digest", str(ROW), "--format", "table"], check=True, capture_output=True, text=True
    ).stdout
    assert "11 transactions" in table
    assert "UPDATE shop.log_lines (rows)" in table
    assert "not told by this log" in table


def test_no_value_of_a_row_is_shown() -> None:
    said = "\n".join(lines(ROW, *TAGGED))
    # Values of inserted rows; they are also in the statements that the logs have as text, without their literals.
    for value in ("a long text that stays", "in the second log", "12.34", "10101010101"):
        assert value not in said
    assert json.loads(said.splitlines()[0])["type"] == "digest"
