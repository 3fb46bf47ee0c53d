"""Merges digests of parts into the digest of the whole: exactly, in any order and number of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import StoreError
from headrace.traffic.digests.table import (
    ALL,
    MOST_CLASS_SLICES,
    MOST_ERRORS,
    MOST_LARGEST,
    MOST_NAMES,
    MOST_NAMES_OF_ALL,
    MOST_PLACES,
    MOST_SLICES,
    OTHER_ERRORS,
    TABLE,
)

if TYPE_CHECKING:
    import duckdb

#: Slices nest, so narrower ones add up to wider ones.
_NUMBERS = """
    SELECT part, class, slice_ns, name, bucket, NULL AS text, CAST(SUM(count) AS BIGINT) AS count,
           CAST(SUM(sum) AS DECIMAL(38, 0)) AS sum, MIN(least) AS least, MAX(most) AS most
    FROM (SELECT * REPLACE (CASE part WHEN 'slice' THEN slice_ns - slice_ns % $slice_ns
                                      WHEN 'heat' THEN slice_ns - slice_ns % $heat_slice_ns END AS slice_ns)
          FROM parts WHERE part NOT IN ('text', 'label', 'header', 'place', 'largest'))
    GROUP BY part, class, slice_ns, name, bucket
"""
#: The sample is the slowest call; ties by the earliest, then by the smallest text.
_TEXTS = """
    SELECT part, class, NULL AS slice_ns, name, NULL AS bucket, best.text AS text, NULL AS count, NULL AS sum,
           best.least AS least, -best.negative AS most
    FROM (SELECT part, class, name, MIN({'negative': -most, 'least': least, 'text': text}) AS best
          FROM parts WHERE part = 'text' GROUP BY part, class, name)
"""
#: A name among the lowest up to the bound in the whole is also among them in every part, so its count is complete.
_LABELS = """
    WITH added AS (
        SELECT class, name, text, CAST(SUM(count) AS BIGINT) AS count, SUM(sum) AS sum, MIN(least) AS least
        FROM parts WHERE part = 'label' GROUP BY class, name, text
    ), placed AS (
        SELECT *, row_number() OVER (PARTITION BY class, name, least IS NULL ORDER BY least, text) AS place,
               CASE WHEN name = 'error' THEN $errors WHEN class = $all THEN $names_of_all ELSE $names END AS room
        FROM added
    ), kept AS (
        SELECT class, name, count, sum,
               CASE WHEN least IS NULL OR place <= room THEN text WHEN name = 'error' THEN $other END AS text,
               CASE WHEN place <= room THEN least END AS least
        FROM placed
    )
    SELECT 'label' AS part, class, NULL AS slice_ns, name, NULL AS bucket, text,
           CAST(SUM(count) AS BIGINT) AS count, CAST(SUM(sum) AS DECIMAL(38, 0)) AS sum,
           MIN(least) AS least, NULL AS most
    FROM kept WHERE text IS NOT NULL GROUP BY class, name, text
"""
_PLACES = """
    SELECT part, class, NULL, name, NULL, NULL, CAST(SUM(count) AS BIGINT), NULL, NULL, NULL
    FROM parts WHERE part = 'place' GROUP BY part, class, name ORDER BY name LIMIT $places
"""
#: The largest of the whole are among the largest of the parts.
_LARGEST = """
    SELECT DISTINCT part, class, CAST(NULL AS BIGINT), name, NULL, NULL, CAST(NULL AS BIGINT), sum, NULL, NULL
    FROM parts WHERE part = 'largest' ORDER BY sum DESC, name LIMIT $largest
"""
_HEADER = """
    SELECT part, class, NULL, name, NULL, MIN(text), NULL, NULL, MIN(least),
           CASE name WHEN 'slice_ns' THEN $slice_ns WHEN 'heat_slice_ns' THEN $heat_slice_ns ELSE MAX(most) END
    FROM parts WHERE part = 'header' GROUP BY part, class, name
"""
_WHOLE = f"""
    SELECT * FROM (({_NUMBERS}) UNION ALL ({_TEXTS}) UNION ALL ({_LABELS})
                   UNION ALL ({_PLACES}) UNION ALL ({_LARGEST}) UNION ALL ({_HEADER}))
    ORDER BY part, class, slice_ns, name, bucket, text
"""


def merge(parts: Sequence[pa.Table], places: Sequence[str] = ()) -> pa.Table:
    """Merge digests (``table.TABLE``), in canonical row order.

    Raises StoreError if their modes or groups differ, or their numbers cannot be added; ``places`` names the
    parts in that error.
    """
    import duckdb

    if not parts:
        raise ValueError("nothing to merge")
    _check_alike(parts, places)
    try:
        with duckdb.connect(":memory:") as connection:
            connection.register("parts", pa.concat_tables(parts))
            values = {
                **_widths(connection), "all": ALL, "other": OTHER_ERRORS, "errors": MOST_ERRORS,
                "names": MOST_NAMES, "names_of_all": MOST_NAMES_OF_ALL, "places": MOST_PLACES,
                "largest": MOST_LARGEST,
            }  # fmt: skip
            return connection.sql(_WHOLE, params=values).to_arrow_table().cast(TABLE)
    except (duckdb.Error, pa.ArrowException, TypeError, ValueError) as error:
        raise StoreError(
            f"damaged: it cannot be added up: {str(error).splitlines()[0]}", place=", ".join(places) or None
        ) from error


def header(table: pa.Table) -> dict[str, dict[str, object]]:
    """Name -> text, least and most from a digest's header."""
    import pyarrow.compute as pc

    rows = table.filter(pc.equal(table["part"], "header")).to_pylist()
    return {row["name"]: row for row in rows}


def _check_alike(parts: Sequence[pa.Table], places: Sequence[str]) -> None:
    first = header(parts[0])
    for number, part in enumerate(parts[1:], 1):
        found = header(part)
        for key in ("mode", "group"):
            ours, theirs = (each.get(key, {}).get("text") for each in (first, found))
            if ours != theirs:
                raise StoreError(
                    f"its {key} is {theirs}, that of {places[0] if places else 'the first'} is {ours}",
                    place=places[number] if places else None,
                    hint="digest the source again with the same --mode, --fold-names and --group",
                )


def _widths(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """The widths that the agent would have chosen for the whole."""
    widths = {}
    sql = "SELECT MIN(least), MAX(most) FROM parts WHERE part = 'header' AND name = 'start_ns'"
    [(first_ns, last_ns)] = connection.sql(sql).fetchall()
    for name in ("slice_ns", "heat_slice_ns"):
        sql = "SELECT MAX(most) FROM parts WHERE part = 'header' AND name = $name"
        [(widest,)] = connection.sql(sql, params={"name": name}).fetchall()
        width = widest or 1
        while first_ns is not None and last_ns // width - first_ns // width + 1 > MOST_SLICES:
            width *= 2
        widths[name] = width
    while _class_slices(connection, widths["slice_ns"]) > MOST_CLASS_SLICES:
        widths["slice_ns"] *= 2
    return widths


def _class_slices(connection: duckdb.DuckDBPyConnection, width_ns: int) -> int:
    sql = """SELECT COUNT(*) FROM (SELECT DISTINCT class, slice_ns // $width FROM parts
             WHERE part = 'slice' AND name = 'response_ns')"""
    [(found,)] = connection.sql(sql, params={"width": width_ns}).fetchall()
    return int(found)
