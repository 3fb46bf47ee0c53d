"""An index as a change: what `apply`, `rollback` and `journal` do with one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import typer

from headrace.cli.shell import print_json, stdout, tell
from headrace.errors import PlanError
from headrace.extras import require
from headrace.model import ServerLogin

#: What an index begins with among the settings of `apply`.
MARK = "index:"


def is_index(settings: list[str]) -> bool:
    return any(each.startswith(MARK) for each in settings)


def apply_index(
    settings: list[str], target: str, login: ServerLogin, *, dry_run: bool, alone: bool, as_json: bool
) -> None:
    """``alone``: no option of settings was given."""
    _may(target, login)
    if len(settings) != 1:
        raise typer.BadParameter("an index is applied by itself: one at a time, and no setting with it")
    if not alone:
        raise typer.BadParameter(
            "--judge, --confirm-within, --persist and --as are for settings: `rollback --index` undoes an index"
        )
    from headrace.indexes import applied
    from headrace.indexes.session import opened

    index = applied.index_of(settings[0].removeprefix(MARK))
    if dry_run:
        with opened(login) as session:
            lines = applied.statements(session, index)
        if as_json:
            print_json({"statements": lines})
        for line in lines if not as_json else ():
            stdout().print(f"{line};", soft_wrap=True, highlight=False, markup=False)
        return
    entry = applied.make(login, index, tell)
    if as_json:
        print_json(vars(entry))
    else:
        _line(f"{index.place} has the index {index.name}, built hidden and then shown")


def undo_index(written: str, target: str, login: ServerLogin, *, as_json: bool) -> None:
    _may(target, login)
    from headrace.indexes import applied

    entry, was_there = applied.undo(login, written.removeprefix(MARK), tell)
    if as_json:
        print_json({"index": vars(entry.index), "was_there": was_there})
    else:
        what = "dropped" if was_there else "not there any more, or with other columns: left as it is"
        _line(f"{entry.index.place}, index {entry.index.name}: {what}")


def journalled() -> list[dict[str, Any]]:
    """What `journal` shows of indexes; nothing without the package that makes them."""
    from headrace import extras

    if extras.is_missing("pymysql"):
        return []
    from headrace.indexes import applied

    return [vars(entry) for entry in applied.journalled()]


def show_journalled(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        index = entry["index"]
        at = datetime.fromtimestamp(entry["at_s"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        _line(
            f"index {entry['state']}  {index.database}.{index.table}({', '.join(index.columns)})"
            f" on {entry['server']}, {at}"
        )


def _may(target: str, login: ServerLogin) -> None:
    require("pymysql")
    if target != "local":
        raise PlanError("an index is made from this machine: without --target", place=target)
    if not login.is_named:
        raise typer.BadParameter(
            "the server is not named: --mysql-socket, --mysql-host or --mysql-defaults-file"
        )


def _line(text: str) -> None:
    from headrace.report.text import clean

    stdout().print(clean(text), soft_wrap=True, highlight=False, markup=False)
