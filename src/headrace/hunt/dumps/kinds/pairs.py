"""SHOW GLOBAL STATUS and SHOW GLOBAL VARIABLES: of the clients, mysqladmin and information_schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from headrace.hunt.dumps.piece import Piece, Said, Status, Variables, number_of, stamped
from headrace.hunt.dumps.tables import Table, bare_pairs, tables

NAME = "SHOW GLOBAL STATUS, SHOW GLOBAL VARIABLES"

#: Columns of a listing: those of SHOW and of information_schema. With more of them it is of a thread or user.
_COLUMNS = ({"variable_name", "value"}, {"variable_name", "variable_value"})
_HEADER = re.compile(r"variable_name|\A\s*[\[{][^}]*\"(Uptime|datadir)\"", re.IGNORECASE)
_WITHOUT_HEADER = re.compile(
    r"^(Uptime|Threads_running|Questions|version|datadir|max_connections)\t", re.MULTILINE
)
#: Names that only the one or the other has, in lower case.
_OF_STATUS = re.compile(
    r"(aborted_|bytes_|com_|handler_|uptime|threads_(connected|running|created)|questions|queries|created_tmp_|"
    r"innodb_(rows_|data_|pages_|os_log_|log_w|row_lock)|opened_|select_|sort_(merge|r|scan)|qcache_|key_(blocks|r|w))"
)
_OF_VARIABLES = re.compile(
    r"(version|datadir|basedir|hostname|port|socket|pid_file|server_id|sql_mode|tmpdir|character_set_|collation_|"
    r"max_connections|innodb_(buffer_pool_size|flush_|io_cap|log_f)|autocommit|wait_timeout|table_open_cache$)"
)
#: A name and its number, however a program writes pairs: quoted, in brackets, behind a colon, in columns of bars.
_PAIR = re.compile(
    r"(?<![\w.])['\"`]?([A-Z][A-Za-z0-9_]{2,63})['\"`]? *[:=,|│] *['\"]?(-?\d+(?:\.\d+)?)['\"]?"
    r"(?=[ \t]*(?:$|[,)\]};|│]))",
    re.MULTILINE,
)
#: Fewer of them are no listing of the status: a server has hundreds.
LEAST_PAIRS, LEAST_OF_STATUS = 20, 10
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:([.,'’ \u00a0\u202f])\d{3})(?:\1\d{3})*")
#: Names whose values are whole numbers on every server.
_COUNT = re.compile(
    r"(uptime|questions|queries|connections|bytes_\w+|com_\w+|handler_\w+|innodb_(rows|data|pages)_\w+|"
    r"select_\w+|max_connections|table_open_cache|innodb_(buffer_pool_size|log_file_size))$"
)
#: Fewer names are an example in a text, not a listing.
LEAST = 3
#: A listing of variables with one of these is whole: they are in the order of the alphabet.
_LAST_VARIABLE = "w"
#: Status variables that stay as they are while a server runs.
_CONSTANT = ("innodb_page_size", "innodb_buffer_pool_pages_total")


def read(text: str) -> list[Piece]:
    found: list[Piece] = []
    for at_s, part in stamped(text):
        # Most texts of a sosreport are none: to look at each of their lines takes long.
        own = tables(part, lambda columns: set(columns) in _COLUMNS) if _HEADER.search(part) else []
        listings = [_pairs(table) for table in own]
        if not listings and _WITHOUT_HEADER.search(part):
            listings = [dict(bare_pairs(part))]
        listings = [listing for listing in listings if len(listing) >= LEAST]
        listings = listings or _of_pairs(part)
        found += _pieces(listings, at_s if len(listings) == 1 else None)
    return found


def _of_pairs(text: str) -> list[dict[str, str]]:
    """Listings of the status in a form of no client: one ends where its first name comes again."""
    if "Uptime" not in text or "Questions" not in text:
        return []
    listings: list[dict[str, str]] = [{}]
    for name, value in _PAIR.findall(text):
        if name in listings[-1]:
            listings.append({})
        listings[-1][name] = value
    return [
        listing
        for listing in listings
        if len(listing) >= LEAST_PAIRS
        and sum(bool(_OF_STATUS.match(name.lower())) for name in listing) >= LEAST_OF_STATUS
    ]


def _pairs(table: Table) -> dict[str, str]:
    value = "value" if "value" in table.columns else "variable_value"
    return {
        row["variable_name"].strip(): row[value].strip()
        for row in table.rows
        if row.keys() >= {"variable_name", value}
    }


def _pieces(listings: Sequence[Mapping[str, str]], at_s: float | None) -> list[Piece]:
    found: list[Piece] = []
    statuses: list[Mapping[str, float]] = []
    for listing in listings:
        lower = {name.lower(): value for name, value in listing.items()}
        if mark := _grouped_by(lower):
            lower = {name: _ungrouped(value, mark) for name, value in lower.items()}
            found.append(Said(f"numbers have {mark!r} between their thousands, which is left out"))
        of_status = sum(bool(_OF_STATUS.match(name)) for name in lower)
        of_variables = sum(bool(_OF_VARIABLES.match(name)) for name in lower)
        if of_status > of_variables:
            statuses.append(numbers_of(lower))
        elif of_variables:
            found.append(Variables(lower, is_whole=_is_whole(lower)))
    if is_relative(statuses):
        statuses = summed(statuses)
        found.append(Said("status counters were printed as differences (-r) and are summed up"))
    return [*found, *(Status(values, at_s) for values in statuses)]


def _grouped_by(values: Mapping[str, str]) -> str:
    """What a client of a people's language writes between thousands: in a count, and so in the other numbers.

    ``1.234`` alone may be a fraction; a number of sessions or bytes is none.
    """
    for name, value in values.items():
        match = _GROUPED.fullmatch(value)
        if match and (_COUNT.match(name) or value.count(match[1]) > 1):
            return match[1]
    return ""


def _ungrouped(value: str, mark: str) -> str:
    match = _GROUPED.fullmatch(value)
    return value.replace(mark, "") if match and match[1] == mark else value


def _is_whole(names: Mapping[str, str]) -> bool:
    return "version" in names and any(name.startswith(_LAST_VARIABLE) for name in names) and len(names) > 100


def numbers_of(values: Mapping[str, str]) -> dict[str, float]:
    """The numbers among values of status variables, and states of semi-sync and Galera as 1 and 0."""
    found = {}
    for name, text in values.items():
        number = number_of(text)
        if number is None and name.startswith(("wsrep_", "rpl_semi_sync_")):
            number = {"ON": 1.0, "Primary": 1.0, "OFF": 0.0, "non-Primary": 0.0, "Disconnected": 0.0}.get(
                text
            )
        if number is not None:
            found[name] = number
    return found


def is_relative(statuses: Sequence[Mapping[str, float]]) -> bool:
    """Whether all but the first are differences (-r): that of a constant is 0, as it is not after a restart."""
    first, *rest = statuses or ({},)
    known = [name for name in _CONSTANT if first.get(name)]
    return bool(rest and known) and all(values.get(name) == 0 for values in rest for name in known)


def summed(statuses: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    total = dict(statuses[0])
    found: list[Mapping[str, float]] = [dict(total)]
    for values in statuses[1:]:
        for name, value in values.items():
            total[name] = total.get(name, 0.0) + value
        found.append(dict(total))
    return found
