"""What a replica has to do: the transactions of binary logs, the largest, the tables, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.base.counted import counted
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Gap, Heading, Part, Section, Sentence, Table
from headrace.traffic import figures as traffic
from headrace.traffic.digests.binary_log import SPREADS, BinaryLog, ChangedTable, binary_log
from headrace.traffic.digests.classes import Digest
from headrace.traffic.report.words import clock, duration, percent, short_number, size

#: Rows of the tables on a terminal, and on a page.
MOST_SHORT, MOST_SHOWN = 5, 50
#: Gaps that are listed on a terminal.
MOST_GAPS = 5
#: Tables that are named in a sentence.
MOST_NAMED = 6

_LABELS = {
    "rows": "rows", "bytes": "bytes", "statements": "statements", "duration_ns": "duration", "lag_ns": "lag",
}  # fmt: skip


def sections(digest: Digest) -> list[Section]:
    """One section, or none without a binary log."""
    found = binary_log(digest)
    if found is None:
        return []
    return [
        Section(
            "replica",
            "Transactions",
            "What a replica has to do",
            lambda: _parts(digest, found, MOST_SHOWN),
            brief=[*_parts(digest, found, MOST_SHORT), Gap()],
        )
    ]


def _parts(digest: Digest, found: BinaryLog, limit: int) -> Iterator[Part]:
    yield Sentence(overall(digest, found), "verdict")
    for line in gap_lines(found):
        yield Sentence(line, "attention")
    if line := key_line(found):
        yield Sentence(line, "attention" if found.scanned else "aside")
    for line in notes(found):
        yield Sentence(line, "aside")
    if found.number("bytes").count:
        yield _sizes(found)
    if found.largest:
        yield Heading("The largest transactions")
        yield _largest(digest, found, limit)
    if found.tables:
        yield Heading("Tables whose rows change")
        yield _tables(found, limit)
        if len(found.tables) > limit:
            rest = sum(each.bytes for each in found.tables[limit:])
            yield Sentence(f"and {counted(len(found.tables) - limit, 'more table')}, {size(rest)}", "aside")


# -- In words ---------------------------------------------------------------------------------------------------


def overall(digest: Digest, found: BinaryLog) -> str:
    """Transactions, rows and bytes, and how many of each per second."""
    span_s = digest.span_s
    bytes_, rows = found.number("bytes").sum, found.number("rows").sum

    def rate(value: float, form: str = "") -> str:
        if not span_s:
            return ""
        shown = size(value / span_s) if form else short_number(value / span_s)
        return f" ({shown}/s)"

    over = f" over {text.seconds(span_s)}" if span_s else ""
    parts = [f"{counted(found.count('count'), 'transaction')}{over}{rate(found.count('count'))}"]
    parts.append(f"{size(bytes_)} of events{rate(bytes_, 'size')}")
    if found.number("rows").count:
        parts.append(
            f"{counted(rows, 'row')}{rate(rows)} in {counted(found.number('rows').count, 'transaction')} with rows"
        )
    if packed := found.count("compressed_bytes"):
        ratio = found.count("expanded_bytes") / packed
        change = f"{ratio:.1f}x smaller" if ratio >= 1 else f"{1 / ratio:.1f}x larger than it was"
        parts.append(f"{size(packed)} of it is compressed, {change}")
    for name, what in (("rolled_back", "rolled back"), ("prepared", "prepared (XA)")):
        if number := found.count(name):
            parts.append(f"{number:,} {what}")
    return "; ".join(parts)


def gap_lines(found: BinaryLog) -> list[str]:
    """What is missing: logs, GTIDs, ends of transactions."""
    lines = [f"gap: {gap}" for gap in found.gaps[:MOST_GAPS]]
    if (more := found.count("gap_count") - len(lines)) > 0:
        lines.append(f"gap: {more:,} more")
    if number := found.count("unfinished"):
        which = counted(number, "transaction has its", "transactions have their")
        lines.append(f"unfinished: {which} beginning or end outside of what was read; not counted above")
    return lines


def key_line(found: BinaryLog) -> str:
    """Which tables a replica may have to read for each row, as far as the log tells."""
    if scanned := found.scanned:
        named = ", ".join(f"{each.name} ({counted(each.found_rows, 'row')})" for each in scanned[:MOST_NAMED])
        more = f" and {len(scanned) - MOST_NAMED} more" if len(scanned) > MOST_NAMED else ""
        return (
            f"no primary key: {named}{more}. For each updated or deleted row a replica searches the table: by "
            "another index if there is one, else by reading it"
        )
    if found.untold:
        return (
            "primary keys: not told by this log. binlog_row_metadata=FULL would write them (MySQL 8.0, MariaDB "
            "10.5); the server's information_schema tells them now"
        )
    return ""


def notes(found: BinaryLog) -> Iterator[str]:
    """How exact the times are."""
    durations = found.number("duration_ns").count
    at_least = found.count("at_least")
    if durations and at_least == durations:
        yield (
            "durations: this log has no times of commits, only starts of statements in whole seconds. Shown is "
            "the time from the first statement to the last one: at least that"
        )
    elif durations:
        part = f"; of {at_least:,} only the time to the last statement" if at_least else ""
        yield f"durations: from the start of the first statement (whole seconds) to the commit, so ±1 s{part}"
    if found.number("lag_ns").count:
        yield (
            "lag: from the commit on the first server to the commit on the server that wrote this log, by their "
            "two clocks"
        )


# -- Tables -----------------------------------------------------------------------------------------------------


def _form(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name == "duration_ns":
        return "<1 s" if value < 1e9 else text.seconds(value / 1e9)
    if name == "lag_ns":
        return duration(value)
    return size(value) if name == "bytes" else short_number(value)


def _sizes(found: BinaryLog) -> Table:
    """Of one transaction: minimum, mean, percentiles, maximum."""
    columns = [
        Column("per transaction"), Column("transactions", "n", 2), Column("min", "n", 3), Column("mean", "n"),
        Column("p50", "n", 1), Column("p95", "n"), Column("max", "n"),
    ]  # fmt: skip
    rows: list[Cells] = []
    for name in SPREADS:
        number = found.number(name)
        if not number.count:
            continue
        bounds = (number.least, number.most)
        middle, high = (traffic.value_at(found.buckets(name), p, *bounds) for p in ("p50", "p95"))
        # A mean of whole seconds would look more exact than it is.
        mean = None if name == "duration_ns" else number.sum / number.count
        values = (number.least, mean, middle, high, number.most)
        is_at_least = name == "duration_ns" and found.count("at_least") == number.count
        label = _LABELS[name] + (", at least" if is_at_least else "")
        rows.append([Cell(label), Cell(f"{number.count:,}"), *(Cell(_form(name, value)) for value in values)])
    return Table(columns, rows)


def _largest(digest: Digest, found: BinaryLog, limit: int) -> Table:
    whole = found.number("bytes").sum
    columns = [
        Column("#", "n"), Column("bytes", "n"), Column("of all", "n", 3), Column("rows", "n"),
        Column("stmts", "n", 4), Column("took", "n", 1), Column("started (UTC)", "", 5), Column("where", "", 2),
        Column("GTID", "", 6), Column("changes"),
    ]  # fmt: skip
    rows: list[Cells] = []
    for rank, each in enumerate(found.largest[:limit], 1):
        took = each["duration_s"]
        if took is None or (each["is_at_least"] and not took):
            shown = "–"
        else:
            shown = ("≥ " if each["is_at_least"] else "") + _form("duration_ns", took * 1e9)
        rows.append(
            [
                Cell(str(rank), style="dim"),
                Cell(size(each["bytes"]), style="bold"),
                Cell(percent(each["bytes"] / whole if whole else None)),
                Cell("-" if each["rows"] is None else f"{each['rows']:,}"),
                Cell(f"{each['statements']:,}"),
                Cell(shown),
                Cell(clock(each["start_ns"])),
                Cell(f"{str(each['log']).rsplit('/', 1)[-1]}:{each['position']}"),
                Cell(each["gtid"] or "–"),
                Cell(_changes(each)),
            ]
        )
    return Table(columns, rows, is_cut=True)


def _changes(large: Mapping[str, Any]) -> str:
    said = []
    for kind, table, rows, size_bytes in large["changes"]:
        many = "rows not counted" if rows is None else counted(rows, "row")
        said.append(f"{kind} {table or '(unknown table)'} {many}, {size(size_bytes)}")
    if large["fingerprint"]:
        said.append(str(large["fingerprint"]))
    return "; ".join(said)


def _tables(found: BinaryLog, limit: int) -> Table:
    whole = sum(each.bytes for each in found.tables)
    columns = [
        Column("of bytes", "n"), Column("bytes", "n", 1), Column("inserted", "n"), Column("updated", "n"),
        Column("deleted", "n"), Column("primary key"), Column("table"),
    ]  # fmt: skip
    rows: list[Cells] = []
    for each in found.tables[:limit]:
        key = {True: "yes", False: "none", None: "not told"}[each.has_key]
        rows.append(
            [
                Cell(percent(each.bytes / whole if whole else None), style="bold"),
                Cell(size(each.bytes)),
                *(Cell(_rows(each, kind)) for kind in ("insert", "update", "delete")),
                Cell(key, style="red" if each.is_scanned else "dim"),
                Cell(each.name),
            ]
        )
    return Table(columns, rows, is_cut=True)


def _rows(table: ChangedTable, kind: str) -> str:
    statements, rows = table.kinds.get(kind, (0, 0))
    if not statements:
        return "–"
    return "?" if not rows and table.uncounted else short_number(rows)


# -- For programs -----------------------------------------------------------------------------------------------


def to_json(digest: Digest) -> dict[str, Any] | None:
    """None without a binary log; times in ns, rows and bytes as numbers."""
    found = binary_log(digest)
    if found is None:
        return None
    span_s = digest.span_s or None
    told: dict[str, Any] = {
        "transactions": found.count("count"),
        **{
            name: found.count(name)
            for name in ("rolled_back", "prepared", "unfinished", "logs", "relay_logs")
        },
        "rows_a_second": found.number("rows").sum / span_s if span_s and found.number("rows").count else None,
        "bytes_a_second": found.number("bytes").sum / span_s if span_s else None,
        "log_bytes": found.count("log_bytes"),
        "compressed_bytes": found.count("compressed_bytes"),
        "expanded_bytes": found.count("expanded_bytes"),
        "durations_at_least": found.count("at_least"),
        "largest": [dict(each) for each in found.largest],
        "tables": [
            {
                "table": each.name,
                **{kind: {"statements": of[0], "rows": of[1]} for kind, of in each.kinds.items()},
                "bytes": each.bytes,
                "uncounted_statements": each.uncounted,
                "has_primary_key": each.has_key,
                "is_scanned": each.is_scanned,
            }
            for each in found.tables
        ],
        "events": {name: {"count": count, "bytes": size} for name, (count, size) in found.kinds.items()},
        "gap_count": found.count("gap_count"),
        "gaps": list(found.gaps),
    }
    for name in SPREADS:
        number = found.number(name)
        if number.count:
            shown = {
                p: traffic.value_at(found.buckets(name), p, number.least, number.most)
                for p in ("p50", "p95", "p99")
            }
            told[f"{name.removesuffix('_ns')}_per_transaction" + ("_ns" if name.endswith("_ns") else "")] = {
                "transactions": number.count, "sum": number.sum, "min": number.least, **shown, "max": number.most,
            }  # fmt: skip
    return told
