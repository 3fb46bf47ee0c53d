"""Candidates: the indexes that statements would have used, one for as many of them as possible.

A candidate begins with the columns that are compared with values, then has one range or the order, so that a
server reads few rows, in the order in which it needs them. It is a hypothesis: what it brings is known when it was
tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.base.counted import counted
from headrace.indexes import names
from headrace.indexes.parsing import Unread
from headrace.indexes.schema import MOST_KEY_BYTES, Index, Schema, Table
from headrace.indexes.statement import Hindrance, Reading, Statement, Use, read

#: A table of fewer rows is read faster than an index that leads to it.
FEW_ROWS = 1_000
#: A statement that examines at most so many rows for each that it sends or changes has what it needs.
GOOD_RATIO = 10.0
#: Groups are fewer than their rows whatever the plan: only with about one row for each has it nothing to gain.
GOOD_GROUPS_RATIO = 2.0
MOST_COLUMNS = 5
#: Bytes of an entry beside its columns and the primary key's: header, pointers, pages two thirds full.
ENTRY_BYTES = 20


@dataclass(frozen=True)
class Reason:
    """Why a statement would use a candidate: the columns it finds rows by, and those that spare a sort."""

    statement: Statement
    found_by: tuple[str, ...]
    sorted_by: tuple[str, ...] = ()

    @property
    def use(self) -> str:
        words = [f"find rows by {', '.join(self.found_by)}"] if self.found_by else []
        words += [f"spare the sort by {', '.join(self.sorted_by)}"] if self.sorted_by else []
        return " and ".join(words)


@dataclass(frozen=True)
class Candidate:
    """``extends`` is an existing index that it replaces, being longer. ``cautions`` are what speaks against it."""

    table: Table
    columns: tuple[str, ...]
    reasons: tuple[Reason, ...]
    extends: str = ""
    cautions: tuple[str, ...] = ()

    @property
    def time_ns(self) -> int:
        """What the calls of its statements took: an upper bound of what it can save on reads."""
        return sum(each.time_ns for each in {reason.statement for reason in self.reasons})

    @property
    def place(self) -> str:
        """As `headrace apply` and `headrace prove` take it."""
        return f"{self.table.full_name}({','.join(map(names.written, self.columns))})"

    @property
    def use(self) -> str:
        """A statement may need a table several times, as in a UNION, for different columns."""
        return ", or to ".join(dict.fromkeys(reason.use for reason in self.reasons))

    @property
    def name(self) -> str:
        return f"hr_{'_'.join(self.columns)}"[:64]

    @property
    def ddl(self) -> str:
        parts = ", ".join(names.quoted(self.table.columns[name].name) for name in self.columns)
        place = f"{names.quoted(self.table.database)}.{names.quoted(self.table.name)}"
        return (
            f"ALTER TABLE {place} ADD INDEX {names.quoted(self.name)} ({parts}), ALGORITHM=INPLACE, LOCK=NONE"
        )

    @property
    def size_bytes(self) -> int | None:
        """A rough size on disk; None if the server does not say how many rows there are."""
        if self.table.rows is None:
            return None
        columns = {*self.columns, *self.table.primary}
        width = sum(min(key_bytes(self.table, name), 40) for name in columns)
        return int(self.table.rows * (width + ENTRY_BYTES) * 1.5)


@dataclass(frozen=True)
class _Offer:
    """What one statement asks of one table: the columns compared, in any order, then those of ``tail``."""

    table: Table
    equal: tuple[str, ...]
    tail: tuple[str, ...]
    reason: Reason
    #: Whether the tail is an order, in which all columns go one way.
    is_ordered: bool = False


@dataclass
class _Merged:
    """A candidate while statements join it; the columns within a group may stand in any order."""

    table: Table
    groups: list[tuple[str, ...]]
    tail: tuple[str, ...]
    reasons: list[Reason]


@dataclass(frozen=True)
class Advice:
    """What was read, and what follows from it."""

    candidates: tuple[Candidate, ...]
    hindrances: tuple[tuple[Statement, Hindrance], ...]
    #: Statement -> why it was not read, or what of it is unknown.
    unread: tuple[tuple[Statement, str], ...]
    unknown: tuple[tuple[Statement, str], ...]
    #: Statements with the reason why nothing is advised.
    content: tuple[tuple[Statement, str], ...]


def candidates(statements: Iterable[Statement], schema: Schema) -> Advice:
    wanted: list[_Offer] = []
    hindrances: list[tuple[Statement, Hindrance]] = []
    unread: list[tuple[Statement, str]] = []
    unknown: list[tuple[Statement, str]] = []
    content: list[tuple[Statement, str]] = []
    for statement in statements:
        try:
            reading = read(statement, schema)
        except Unread as error:
            unread.append((statement, str(error)))
            continue
        unknown += [(statement, each) for each in reading.unknown]
        if not _finds_well(statement, reading):
            hindrances += [(statement, each) for each in reading.hindrances]
            hindrances += [(statement, each) for use in reading.uses for each in _long(use)]
        offers, why_none = _of_statement(statement, reading)
        wanted += offers
        if not offers and why_none:
            content.append((statement, why_none))
    return Advice(tuple(_merged(wanted)), tuple(hindrances), tuple(unread), tuple(unknown), tuple(content))


def _ratio(statement: Statement) -> float | None:
    """Rows examined for each that is sent or changed."""
    if statement.examined is None or statement.sent is None or not statement.calls:
        return None
    # A call that sends nothing had to find that out: one row a call is what it may examine at least.
    return statement.examined / max(statement.sent, statement.calls)


def _finds_well(statement: Statement, reading: Reading) -> bool:
    """Whether a statement of one table reads about what it sends: what could hinder it does not.

    Of joins and derived tables servers do not count all rows.
    """
    ratio = _ratio(statement)
    return (
        ratio is not None
        and ratio <= GOOD_RATIO
        and len(reading.uses) == 1
        and not reading.uses[0].is_derived
    )


def _of_statement(statement: Statement, reading: Reading) -> tuple[list[_Offer], str]:
    """What it asks for, and why it asks for nothing if that is so."""
    little = ""
    ratio = _ratio(statement)
    if ratio is not None:
        good = GOOD_GROUPS_RATIO if any(use.group for use in reading.uses) else GOOD_RATIO
        if ratio <= good:
            little = f"examines {ratio:,.1f} rows for each that it sends or changes"
    offers, why_none = [], little
    for use in reading.uses:
        if use.hint:
            why_none = why_none or f"{use.hint} allows no other index of {use.table.full_name}"
            continue
        # MariaDB does not count the rows that it reads into a join buffer, nor MySQL those for a derived table.
        if little and not use.joined and not use.is_derived:
            continue
        asked = _offers(use, reading, statement)
        if not asked:
            why_none = why_none or _prefix_only(use)
            continue
        problems = [(offer, _unneeded(offer)) for offer in asked]
        if not little:
            offers += [offer for offer, problem in problems if not problem]
        elif not problems[0][1]:
            offers.append(problems[0][0])
        why_none = why_none or next((problem for _, problem in problems if problem), "")
    return offers, why_none


def _offers(use: Use, reading: Reading, statement: Statement) -> list[_Offer]:
    """What a table needs when its rows are sought by those of the others, when a join begins with it, or both."""
    inner = _offer(use, statement)
    alone = _offer(replace(use, joined=()), statement)
    others = [each for each in reading.uses if each.scope == use.scope and each.alias != use.alias]
    if inner is None or alone is None or inner == alone or not others or use.is_sought:
        return [inner] if inner else []
    is_narrow = bool(use.equal or use.ranges)
    if not any(each.equal or each.ranges for each in others):
        # The join begins here, and what it joins would stand between the values and a range or an order.
        begins = (is_narrow or _is_for_order(use)) and (alone.tail or _unneeded(inner))
        return [alone] if begins else [inner]
    if not is_narrow:
        return [inner]
    # Which table a join begins with is not known where each has a range, nor where the rows of this one can be
    # sought already. An index whose first columns are compared with values serves either way.
    if _unneeded(inner) or not (use.equal or any(each.equal for each in others)):
        return [inner, alone]
    first = _offer(replace(use, joined=(), ranges=(), order=(), group=()), statement)
    return [inner, first] if first else [inner]


def _offer(use: Use, statement: Statement) -> _Offer | None:
    def is_short(name: str) -> bool:
        return not use.table.columns[name].is_long

    named = (name for name in dict.fromkeys((*use.equal, *use.joined)) if is_short(name))
    equal = _fitting(use.table, named)[:MOST_COLUMNS]
    ranges = tuple(name for name in use.ranges if name not in equal and is_short(name))
    if _fitting(use.table, (*equal, *ranges[:1])) != (*equal, *ranges[:1]):
        ranges = ()
    room = MOST_COLUMNS - len(equal)
    sorts = _sorts(use, equal)[:room]
    sorts = _fitting(use.table, (*equal, *sorts))[len(equal) :]
    if sorts and not equal and _groups_in_vain(use, sorts):
        sorts = ()
    if sorts and all(map(is_short, sorts)) and (not ranges or ranges[0] == sorts[0]):
        reason = Reason(statement, (*equal, *ranges[:1]), sorts)
        return _Offer(use.table, equal, sorts, reason, is_ordered=_is_for_order(use))
    if ranges and room:
        return _Offer(use.table, equal, ranges[:1], Reason(statement, (*equal, ranges[0])))
    return _Offer(use.table, equal, (), Reason(statement, equal)) if equal else None


def _fitting(table: Table, names: Iterable[str]) -> tuple[str, ...]:
    """Those of which a key has room for all."""
    kept, room = list[str](), MOST_KEY_BYTES
    for name in names:
        if (taken := key_bytes(table, name)) <= room:
            kept.append(name)
            room -= taken
    return tuple(kept)


def _groups_in_vain(use: Use, sorts: tuple[str, ...]) -> bool:
    """Few groups of all rows: an index without the other columns of the statement reads rows out of order."""
    if use.order and use.has_limit:
        return False
    has_few = all(use.table.columns[name].has_few_values for name in sorts)
    return has_few and not use.columns <= {*sorts, *use.table.primary}


def _sorts(use: Use, equal: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that spare a sort: an order in one direction with a LIMIT, or groups."""
    if use.listed & set(equal):
        return ()  # each value of the list has an order of its own
    if _is_for_order(use):
        return tuple(name for name, _ in use.order if name not in equal)
    return tuple(name for name in use.group if name not in equal)


def _is_for_order(use: Use) -> bool:
    return use.has_limit and len({is_descending for _, is_descending in use.order}) == 1


def _long(use: Use) -> Iterable[Hindrance]:
    """Columns that are compared, and of which an index can only hold a prefix, where none does."""
    beside = [name for name in (*use.equal, *use.joined) if not use.table.columns[name].is_long]
    for name in (*use.equal, *use.ranges):
        column = use.table.columns[name]
        if not column.is_long or column.kind.lower() in ("json", "geometry"):
            continue
        prefixes = [
            part for index in use.table.indexes for part in index.parts if (part.name or "").lower() == name
        ]
        if not prefixes:
            why, most = "an index holds a prefix of it at most, which no candidate has", 10
        elif all(part.tells_little(use.table.rows) for part in prefixes):
            most = max(part.prefix or 0 for part in prefixes)
            why = f"its first {counted(most, 'character')}, which an index has, tell few rows apart"
        else:
            continue
        columns = ", ".join([*beside[: MOST_COLUMNS - 1], f"{column.name}({2 * most})"])
        yield Hindrance(
            use.table.full_name, name, f"{name}, of type {column.kind}", why, f"try ADD INDEX ({columns})"
        )


def _prefix_only(use: Use) -> str:
    """Why a column is offered no index of its whole; empty if that is not so."""
    for name in (*use.equal, *use.joined, *use.ranges):
        column = use.table.columns[name]
        if not column.is_long:
            continue
        for index in use.table.indexes:
            first = index.parts[0]
            if index.is_used and (first.name or "").lower() == name and first.prefix is not None:
                return f"{index.name} of {use.table.full_name} has a prefix of {column.name}"
        return (
            f"{use.table.full_name}.{column.name} is of type {column.kind}, of which an index holds a prefix "
            f"at most, as in ADD INDEX ({column.name}(20))"
        )
    return ""


def _unneeded(offer: _Offer) -> str:
    """Why no index is needed; empty if one may be."""
    table, equal, tail = offer.table, offer.equal, offer.tail
    if table.engine is None:
        return f"{table.full_name} is a view"
    if table.rows is not None and table.rows < FEW_ROWS:
        return f"{table.full_name} has about {counted(table.rows, 'row')}"
    for index in table.indexes:
        if index.is_plain and index.is_used and _serves(index, offer):
            return f"{index.name} of {table.full_name} serves it"
    many = tuple(name for name in equal if not table.columns[name].has_few_values)
    if many and many != equal and not tail and (why := _unneeded(replace(offer, equal=many))):
        return f"{why}, but for columns with few values"
    if len(equal) == 1 and not tail and table.columns[equal[0]].has_few_values:
        return f"{table.full_name}.{equal[0]} has few values ({table.columns[equal[0]].kind})"
    return ""


def _serves(index: Index, offer: _Offer) -> bool:
    equal, tail, width = offer.equal, offer.tail, len(offer.equal)
    columns = index.columns
    if index.is_unique and columns and len(columns) == len(index.parts) and set(columns) <= set(equal):
        return True
    if not tail and equal and set(index.found_by[:width]) == set(equal):
        return True
    whole = offer.table.whole_columns(index)
    has_both = set(whole[:width]) == set(equal) and whole[width : width + len(tail)] == tail
    return has_both and (not offer.is_ordered or index.order_from(width, len(tail)))


def _merged(wanted: Iterable[_Offer]) -> list[Candidate]:
    """One candidate for all that its columns serve, those with the most time first."""
    by_table: dict[tuple[str, str], list[_Offer]] = {}
    for each in wanted:
        by_table.setdefault((each.table.database, each.table.name), []).append(each)
    merged = [candidate for group in by_table.values() for candidate in _of_table(group)]
    return sorted(merged, key=lambda each: (-each.time_ns, each.table.full_name, each.columns))


def _of_table(wanted: Sequence[_Offer]) -> list[Candidate]:
    # The longest first: shorter ones may be served by its beginning, in whatever order that has its columns.
    kept: list[_Merged] = []
    for offer in sorted(
        wanted,
        key=lambda each: (
            -len(each.equal) - len(each.tail),
            -each.reason.statement.time_ns,
            each.equal,
            each.tail,
        ),
    ):
        for place in kept:
            groups = _together(place, offer)
            if groups is not None:
                place.groups = groups
                if not any(_says_all(each, offer.reason) for each in place.reasons):
                    place.reasons.append(offer.reason)
                break
        else:
            kept.append(
                _Merged(offer.table, [offer.equal] if offer.equal else [], offer.tail, [offer.reason])
            )
    return [_candidate(place) for place in kept]


def _says_all(one: Reason, other: Reason) -> bool:
    is_inside = set(other.found_by) <= set(one.found_by) and not other.sorted_by
    return one.statement == other.statement and is_inside


def _together(place: _Merged, offer: _Offer) -> list[tuple[str, ...]] | None:
    """The groups of a candidate, cut so that it begins with what is offered; None if that cannot be."""
    left, cut = set(offer.equal), list[tuple[str, ...]]()
    for position, group in enumerate(place.groups):
        rest = place.groups[position:]
        if not left:
            return _begun(cut, rest, place.tail, offer.tail)
        inside = tuple(name for name in group if name in left)
        outside = tuple(name for name in group if name not in left)
        left -= set(inside)
        if outside:
            if left or not inside:
                return None
            return _begun([*cut, inside], [outside, *rest[1:]], place.tail, offer.tail)
        cut.append(group)
    if left:
        # Compared with a value where the candidate has its range or its order.
        return cut if not offer.tail and left == set(place.tail[:1]) else None
    return _begun(cut, [], place.tail, offer.tail)


def _begun(
    cut: list[tuple[str, ...]], rest: list[tuple[str, ...]], tail: tuple[str, ...], wanted: tuple[str, ...]
) -> list[tuple[str, ...]] | None:
    """All groups, with those of ``rest`` in the order of ``wanted``, which stands at their beginning."""
    for position, group in enumerate(rest):
        if not wanted:
            return [*cut, *rest[position:]]
        taken: list[tuple[str, ...]] = []
        while wanted and wanted[0] in group and (wanted[0],) not in taken:
            taken.append((wanted[0],))
            wanted = wanted[1:]
        others = tuple(name for name in group if (name,) not in taken)
        if not taken or (others and wanted):
            return None
        cut = [*cut, *taken, *([others] if others else [])]
    return cut if wanted == tail[: len(wanted)] else None


def _candidate(place: _Merged) -> Candidate:
    table = place.table
    columns = (*(name for group in place.groups for name in _by_values(table, group)), *place.tail)
    columns = _without_primary(table, columns)
    reasons = sorted(place.reasons, key=lambda each: -each.statement.time_ns)
    return Candidate(
        table, columns, tuple(reasons), _extended(table, columns), tuple(_cautions(table, columns))
    )


def _without_primary(table: Table, columns: tuple[str, ...]) -> tuple[str, ...]:
    """InnoDB appends the primary key's columns itself."""
    is_innodb = (table.engine or "").lower() == "innodb"
    for width in range(min(len(columns) - 1, len(table.primary)), 0, -1):
        if is_innodb and columns[-width:] == table.primary[:width]:
            return columns[:-width]
    return columns


def _extended(table: Table, columns: tuple[str, ...]) -> str:
    """The existing index that a longer one replaces; empty if there is none."""
    for index in table.indexes:
        is_whole = index.is_plain and len(index.columns) == len(index.parts) and not index.is_unique
        goes_up = not any(part.is_descending for part in index.parts)
        if is_whole and goes_up and index.columns == columns[: len(index.columns)]:
            return index.name
    return ""


def _by_values(table: Table, group: tuple[str, ...]) -> list[str]:
    """Within a group, columns of which more values are known come first: more statements can use the beginning."""
    return sorted(group, key=lambda name: (table.columns[name].has_few_values, -(table.values_of(name) or 0)))


def _cautions(table: Table, columns: tuple[str, ...]) -> Iterable[str]:
    if (total := sum(key_bytes(table, name) for name in columns)) > MOST_KEY_BYTES:
        yield f"a key may have {total:,} bytes, and InnoDB allows {MOST_KEY_BYTES:,}: index a prefix"
    if table.rows is None:
        yield "the server does not say how many rows the table has"
    if table.engine and table.engine.lower() != "innodb":
        yield f"the table is of {table.engine}: adding an index locks it"
    if len(table.indexes) >= 8:
        yield (
            f"the table has {counted(len(table.indexes), 'index', 'indexes')} already, and each costs "
            "every write"
        )


_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8, "date": 3, "datetime": 8,
          "timestamp": 7, "float": 4, "double": 8, "year": 1, "enum": 2, "decimal": 8, "time": 6}  # fmt: skip


def key_bytes(table: Table, name: str) -> int:
    """The most bytes of a column in a key."""
    column = table.columns.get(name)
    if column is None:
        return 8
    if column.most_bytes is not None and not column.kind.startswith(("enum", "set")):
        return column.most_bytes
    return _BYTES.get(column.kind.lower().partition("(")[0].partition(" ")[0], 8)
