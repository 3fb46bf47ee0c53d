"""SHOW REPLICA STATUS of each vendor and version, in each client's form, is judged as a replica that is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.hunt.hunt import examine, saved

NEW = {
    "Replica_IO_State": "Waiting for source to send event", "Source_Host": "10.0.0.5",
    "Source_Log_File": "binlog.000142", "Read_Source_Log_Pos": "912345678",
    "Relay_Source_Log_File": "binlog.000139", "Replica_IO_Running": "Yes", "Replica_SQL_Running": "Yes",
    "Exec_Source_Log_Pos": "4", "Relay_Log_Space": "3221225472", "Seconds_Behind_Source": "5120",
    "Last_IO_Errno": "0", "Last_IO_Error": "", "Last_SQL_Errno": "0", "Source_UUID": "3e11fa47", "SQL_Delay": "0",
    "Replica_SQL_Running_State": "Reading event", "Auto_Position": "1", "Channel_Name": "",
}  # fmt: skip
OF_MARIADB = {"Source_UUID": None, "Auto_Position": None, "Channel_Name": None, "Using_Gtid": "Slave_Pos"}
#: MySQL 5.5 has neither a delay nor errors of its own for each thread.
OLD = {"Source_UUID": None, "Auto_Position": None, "Channel_Name": None, "SQL_Delay": None}
NULL = {"Seconds_Behind_Source": "NULL"}
STOPPED = {**NULL, "Replica_SQL_Running": "No"}


def old_names(row: dict[str, str]) -> dict[str, str]:
    """As MySQL until 8.0.21, and MariaDB."""
    return {
        re.sub("^Replica_", "Slave_", name).replace("Source", "Master"): value for name, value in row.items()
    }


def row(**changes: str | None) -> dict[str, str]:
    return {name: value for name, value in {**NEW, **changes}.items() if value is not None}


def vertical(*rows: dict[str, str]) -> str:
    return "".join(
        f"*************************** {number}. row ***************************\n"
        + "".join(f"{name:>30}: {value}\n" for name, value in each.items())
        for number, each in enumerate(rows, 1)
    )


def tabbed(*rows: dict[str, str], mark: str = "\t") -> str:
    lines = [list(rows[0]), *(list(each.values()) for each in rows)]
    return "".join(f"{mark.join(line)}\n" for line in lines)


def boxed(each: dict[str, str]) -> str:
    widths = [max(len(name), len(value)) for name, value in each.items()]
    bar = "+" + "".join("-" * (width + 2) + "+" for width in widths)
    lines = (each.keys(), each.values())
    name, value = (
        "|" + "".join(f" {cell:<{width}} |" for cell, width in zip(line, widths, strict=True))
        for line in lines
    )
    return f"{bar}\n{name}\n{bar}\n{value}\n{bar}\n"


LATE = "the replica is at least 5,120 s behind, apply-bound"
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "MySQL 8.4": (vertical(row()), {"REPL01": LATE}),
    "MySQL 5.7": (vertical(old_names(row())), {"REPL01": LATE}),
    "5.5 of any vendor": (vertical(old_names(row(**OLD))), {"REPL01": LATE}),
    "MariaDB": (vertical(old_names(row(**OF_MARIADB))), {"REPL01": LATE}),
    "tabbed": (tabbed(row()), {"REPL01": LATE}),
    "CSV": (tabbed(row(Last_IO_Error="x"), mark=","), {"REPL01": LATE}),
    "boxed": (boxed(row()), {"REPL01": LATE}),
    "of pt-stalk": (f"TS 1700000000.1 2023-11-14 22:13:20\n{vertical(row())}", {"REPL01": LATE}),
    "two channels": (
        vertical(row(Channel_Name="a", Seconds_Behind_Source="0"), row(Channel_Name="b")), {"REPL01@b": LATE},
    ),
    "two sources of MariaDB": (
        vertical(
            {"Connection_name": "a", **old_names(row(**OF_MARIADB, Seconds_Behind_Source="0"))},
            {"Connection_name": "b", **old_names(row(**OF_MARIADB))},
        ),
        {"REPL01@b": LATE},
    ),
    "late on purpose": (vertical(row(SQL_Delay="5400")), {}),
    "in time": (vertical(row(Seconds_Behind_Source="0")), {}),
    "stopped by somebody": (vertical(row(**STOPPED)), {"REPL02": "without an error: stopped by somebody"}),
    "stopped by an error": (
        vertical(row(**STOPPED, Last_SQL_Errno="1062")), {"REPL02": "error 1062 (a row that it has to insert is"},
    ),
    "not connected": (
        vertical(row(**NULL, Replica_IO_Running="Connecting", Last_IO_Errno="2003")),
        {"REPL02": "the replica's I/O thread is not running: error 2003 (the source cannot be reached)"},
    ),
    "the log is gone": (
        vertical(row(**NULL, Replica_IO_Running="No", Last_IO_Errno="1236")), {"REPL02": "error 1236 (the source"},
    ),
    "nobody knows how far": (vertical(row(**NULL)), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_saved_replica_is_judged(tmp_path: Path, name: str) -> None:
    text, expected = CASES[name]
    (tmp_path / "replica.txt").write_text(text)
    found = examine(saved(tmp_path / "replica.txt"))
    said = {finding.id: finding.hit.summary for finding in found.judgement.findings}
    assert said.keys() == expected.keys()
    assert all(part in said[key] for key, part in expected.items())
    assert "the dump has nothing of its host" in found.verdict.sentence


def test_what_a_replica_does_not_know_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "replica.txt").write_text(vertical(row(**NULL)))
    blind = {
        each.rule.code: each.missing for each in examine(saved(tmp_path / "replica.txt")).judgement.blind
    }
    assert "does not say how far" in blind["REPL01"]
