"""Statements as their tables see them: which columns each compares, orders, groups and reads.

A statement that cannot be read is named with the reason and never guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from headrace.indexes import hindered
from headrace.indexes.parsing import Unread, conjuncts, counted_columns, index_hint, parse_one
from headrace.indexes.schema import Schema, Table


@dataclass(frozen=True)
class Statement:
    """A class of statements with an example of it, and what its calls cost together.

    ``examined``, ``sent`` and ``sent_bytes`` are None where the source does not have them; ``sent`` counts rows
    sent or changed.
    """

    name: str
    text: str
    database: str = ""
    calls: int = 0
    time_ns: int = 0
    examined: int | None = None
    sent: int | None = None
    sent_bytes: int | None = None


@dataclass(frozen=True)
class Hindrance:
    """A predicate that no index on its column serves as it is written."""

    table: str
    column: str
    predicate: str
    why: str
    rewrite: str = ""


@dataclass(frozen=True)
class Use:
    """How a statement uses one of its tables. Columns are in lower case, in the order of the text."""

    table: Table
    alias: str
    #: Compared with one value or a list of them.
    equal: tuple[str, ...] = ()
    #: Of these, with a list: then an index has the rows of each value in an order of their own.
    listed: frozenset[str] = frozenset()
    #: Equal to a column of another table.
    joined: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    #: (column, descending).
    order: tuple[tuple[str, bool], ...] = ()
    group: tuple[str, ...] = ()
    columns: frozenset[str] = frozenset()
    has_limit: bool = False
    is_written: bool = False
    #: Read for a derived table or a table expression. MySQL does not count rows that it reads to fill these.
    is_derived: bool = False
    #: `FORCE INDEX (k)`: what allows these indexes and no other.
    hint: str = ""
    #: The SELECT of the statement that has it: tables of one are joined with each other.
    scope: int = 0
    #: Its rows are sought by those of another table: that of an outer query, a derived one, or the side that an
    #: outer join keeps whole. So no join begins with it.
    is_sought: bool = False


@dataclass(frozen=True)
class Reading:
    """What one statement asks of its tables."""

    uses: tuple[Use, ...] = ()
    hindrances: tuple[Hindrance, ...] = ()
    #: Tables that the schema does not have, columns that could be of several.
    unknown: tuple[str, ...] = ()


@dataclass
class _Source:
    """A table while its scope is read."""

    table: Table
    alias: str
    equal: dict[str, None] = field(default_factory=dict)
    #: Compared with NULL, which often most rows have.
    null: dict[str, None] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    joined: dict[str, None] = field(default_factory=dict)
    ranges: dict[str, None] = field(default_factory=dict)
    order: list[tuple[str, bool]] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    hint: str = ""
    is_sought: bool = False


def read(statement: Statement, schema: Schema) -> Reading:
    """Raises Unread with the reason."""
    tree = parse_one(statement.text)
    scopes = _scopes(tree)
    if isinstance(tree, exp.Update | exp.Delete):
        known = {id(each.expression) for each in scopes}
        inside = (each for each in tree.find_all(exp.Select, exp.SetOperation) if _is_outermost(each))
        scopes += [scope for each in inside if id(each) not in known for scope in _scopes(each)]
    readings = [_scope(each, statement.database, schema) for each in scopes]
    if isinstance(tree, exp.Update | exp.Delete):
        readings.append(_changed(tree, statement.database, schema))
    return Reading(
        tuple(replace(use, scope=at) for at, reading in enumerate(readings) for use in reading.uses),
        tuple(dict.fromkeys(each for reading in readings for each in reading.hindrances)),
        tuple(dict.fromkeys(each for reading in readings for each in reading.unknown)),
    )


def _is_outermost(query: exp.Expr) -> bool:
    return query.find_ancestor(exp.Select, exp.SetOperation) is None


def _scopes(tree: exp.Expr) -> list[Scope]:
    try:
        return list(traverse_scope(tree))
    except SqlglotError as error:
        raise Unread(str(error)[:120]) from error


def _scope(scope: Scope, database: str, schema: Schema) -> Reading:
    select = scope.expression
    if not isinstance(select, exp.Select):
        return Reading()
    tables = {alias: source for alias, source in scope.sources.items() if isinstance(source, exp.Table)}
    reader = _Reader(tables, database, schema, has_other=len(tables) < len(scope.sources))
    conditions = [select.args["where"].this] if select.args.get("where") else []
    joins = select.args.get("joins") or ()
    reader.joins(_first_alias(select), joins, conditions)
    for join in joins:
        reader.using(join, scope)
    reader.conditions(conditions)
    reader.sorting(select)
    reader.extreme(select)
    for column in scope.columns:
        reader.read(column)
    if select.is_star:
        reader.read_all()
    has_limit = select.args.get("limit") is not None
    return reader.reading(has_limit, is_derived=_is_derived(select))


def _is_derived(select: exp.Expr) -> bool:
    above = select.find_ancestor(exp.Subquery, exp.CTE)
    if above is None:
        return False
    return isinstance(above, exp.CTE) or isinstance(above.parent, exp.From | exp.Join) or _is_derived(above)


def _first_alias(select: exp.Select) -> str:
    first = select.args.get("from_")
    return str(first.this.alias_or_name) if first is not None else ""


def _changed(tree: exp.Update | exp.Delete, database: str, schema: Schema) -> Reading:
    """The tables of UPDATE and DELETE, whose scope the parser does not resolve."""
    tables = {
        table.alias_or_name: table
        for table in tree.find_all(exp.Table)
        if table.find_ancestor(exp.Subquery, exp.Select) is None
    }
    reader = _Reader(tables, database, schema, has_other=False)
    where = tree.args.get("where")
    conditions = [where.this] if where else []
    joins = [join for join in tree.find_all(exp.Join) if join.find_ancestor(exp.Subquery, exp.Select) is None]
    reader.joins(next(iter(tables), ""), joins, conditions)
    reader.conditions(conditions)
    reader.sorting(tree)
    written = [tree.this.alias_or_name] if isinstance(tree.this, exp.Table) else list(tables)
    return reader.reading(has_limit=tree.args.get("limit") is not None, written=written)


class _Reader:
    """Collects what one scope asks of its tables."""

    def __init__(
        self, tables: Mapping[str, exp.Table], database: str, schema: Schema, has_other: bool
    ) -> None:
        self._own = tables, database, schema, has_other
        self._sources: dict[str, _Source] = {}
        #: Tables whose rows an outer join may lack.
        self._optional: set[str] = set()
        self._is_extreme = False
        self._hindrances: list[Hindrance] = []
        self._unknown: dict[str, None] = {}
        #: Whether a column may belong to a derived table.
        self._has_other = has_other
        for alias, node in tables.items():
            table = schema.table(node.db or database, node.name)
            if table is None:
                self._unknown[f"table {node.db + '.' if node.db else ''}{node.name}"] = None
                self._has_other = True
            else:
                self._sources[alias.lower()] = _Source(table, alias, hint=index_hint(node))
                if table.engine is None:
                    self._unknown[f"the tables behind the view {table.full_name}"] = None

    def reading(
        self, has_limit: bool, written: list[str] | None = None, *, is_derived: bool = False
    ) -> Reading:
        names = {name.lower() for name in written or ()}
        self._hinted()
        for source in self._sources.values():
            source.equal |= source.null  # behind the others
        uses = tuple(
            Use(
                source.table,
                source.alias,
                tuple(source.equal),
                frozenset(source.listed),
                tuple(name for name in source.joined if name not in source.equal),
                tuple(name for name in source.ranges if name not in source.equal),
                tuple(source.order),
                tuple(source.group),
                frozenset(source.columns),
                has_limit or self._is_extreme,
                alias in names,
                is_derived,
                source.hint,
                is_sought=source.is_sought,
            )
            for alias, source in self._sources.items()
        )
        return Reading(uses, tuple(self._hindrances), tuple(self._unknown))

    def _hinted(self) -> None:
        for source in self._sources.values():
            used = [*source.equal, *source.joined, *source.ranges, *source.group]
            if source.hint and used:
                self._hindrances.append(
                    Hindrance(
                        source.table.full_name, used[0], source.hint, "the hint allows no other index",
                        "take the hint out, and name the index in it that the server is to use if it errs",
                    )
                )  # fmt: skip

    def _owner(self, node: exp.Column) -> tuple[_Source, str] | None:
        """The table of a column; None for one of another scope or of a derived table."""
        name = node.name.lower()
        if node.table:
            source = self._sources.get(node.table.lower())
            return (source, name) if source and name in source.table.columns else None
        owners = [source for source in self._sources.values() if name in source.table.columns]
        if len(owners) == 1:
            return owners[0], name
        if owners:
            self._unknown[f"column {node.name}, which several tables have"] = None
        return None

    def read(self, node: exp.Column) -> None:
        if owner := self._owner(node):
            owner[0].columns.add(owner[1])

    def read_all(self) -> None:
        for source in self._sources.values():
            source.columns |= set(source.table.columns)

    def joins(self, first: str, joins: Iterable[exp.Join], where: list[exp.Expr]) -> None:
        """What joins compare. That of an outer join finds rows only of the side that may lack them, unless WHERE
        compares a column of that side: then rows that are lacking drop out, and servers join as usual."""
        compared = self._apart(where)
        before = {first.lower()}
        for join in joins:
            name, on = join.alias_or_name.lower(), join.args.get("on")
            side = str(join.args.get("side") or "").upper()
            optional = {name} if side == "LEFT" else before if side == "RIGHT" else set[str]()
            self._optional |= optional
            before = before | {name}
            if on is None:
                continue
            is_outer = bool(optional) and isinstance(join.this, exp.Table | exp.Subquery)
            if not is_outer or any(
                each.equal or each.ranges or each.joined
                for alias, each in compared._sources.items()
                if alias in optional
            ):
                self.conditions([on])
            else:
                self._take(self._apart([on]), optional)

    def _apart(self, conditions: list[exp.Expr]) -> _Reader:
        """What these conditions alone ask of the same tables."""
        reader = _Reader(*self._own)
        reader._optional = self._optional
        reader.conditions(conditions)
        return reader

    def _take(self, other: _Reader, aliases: Collection[str]) -> None:
        names = {source.table.full_name for alias, source in self._sources.items() if alias in aliases}
        self._hindrances += [each for each in other._hindrances if each.table in names]
        self._unknown |= other._unknown
        for alias in self._sources.keys() & set(aliases):
            mine, theirs = self._sources[alias], other._sources[alias]
            mine.is_sought = True
            mine.equal |= theirs.equal
            mine.null |= theirs.null
            mine.joined |= theirs.joined
            mine.ranges |= theirs.ranges
            mine.listed |= theirs.listed

    def using(self, join: exp.Join, scope: Scope) -> None:
        names = [name.name.lower() for name in join.args.get("using") or ()]
        if str(join.args.get("method") or "").upper() == "NATURAL":
            names = self._common(join.alias_or_name, scope)
        for name in names:
            for source in self._sources.values():
                if name in source.table.columns:
                    source.joined[name] = None
                    source.is_sought |= self._has_other

    def _common(self, alias: str, scope: Scope) -> list[str]:
        """Columns of a table or derived table that another one has as well."""
        columns: dict[str, set[str]] = {}
        for name, source in scope.sources.items():
            if isinstance(source, Scope) and isinstance(source.expression, exp.Query):
                columns[name] = {each.lower() for each in source.expression.named_selects}
            elif known := self._sources.get(name.lower()):
                columns[name] = set(known.table.columns)
        others = set[str]().union(*(each for name, each in columns.items() if name != alias))
        return sorted(columns.get(alias, set()) & others)

    def extreme(self, select: exp.Select) -> None:
        """The least or greatest value of all rows is the first one in an order."""
        values = [each.unalias() for each in select.expressions]
        is_plain = not any(select.args.get(name) for name in ("group", "order", "distinct", "joins", "limit"))
        if not (is_plain and values and all(isinstance(each, exp.Min | exp.Max) for each in values)):
            return
        owners = [self._owner(each.this) if isinstance(each.this, exp.Column) else None for each in values]
        if len({(id(owner[0]), owner[1]) for owner in owners if owner}) == 1 and all(owners) and owners[0]:
            owners[0][0].order.append((owners[0][1], False))
            self._is_extreme = True

    def sorting(self, tree: exp.Expr) -> None:
        """Order and groups count only if all of their columns are of one table: no index has those of two."""
        order = tree.args.get("order")
        keys = [(each.this, bool(each.args.get("desc"))) for each in order.expressions] if order else []
        owners = [self._owner(key) if isinstance(key, exp.Column) else None for key, _ in keys]
        if keys and all(owners) and len({id(owner[0]) for owner in owners if owner}) == 1:
            for owner, (_, is_descending) in zip(owners, keys, strict=True):
                if owner:
                    owner[0].order.append((owner[1], is_descending))
            if (
                len({is_descending for _, is_descending in keys}) == 2
                and tree.args.get("limit")
                and owners[0]
            ):
                self._two_ways(owners[0][0], tree.args["order"])
        group = tree.args.get("group")
        keys_of_groups = group.expressions if group else []
        if not group and tree.args.get("distinct") is not None:
            keys_of_groups = [each.unalias() for each in tree.expressions]
        elif (
            not group
            and len(tree.expressions) == 1
            and (values := counted_columns(tree.expressions[0].unalias()))
        ):
            keys_of_groups = values
        groups = [self._owner(key) if isinstance(key, exp.Column) else None for key in keys_of_groups]
        if groups and all(groups) and len({id(owner[0]) for owner in groups if owner}) == 1:
            for owner in groups:
                if owner:
                    owner[0].group.append(owner[1])

    def _two_ways(self, source: _Source, order: exp.Expr) -> None:
        if rewrite := hindered.two_ways(source.table, source.equal, source.order):
            why = "it goes up and down, and an index does so only if its columns do"
            self._hinder((source, source.order[0][0]), order, why, rewrite)

    def conditions(self, conditions: list[exp.Expr]) -> None:
        for condition in conditions:
            for predicate in conjuncts(condition):
                self._predicate(predicate)

    def _predicate(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Or):
            self._alternatives(node)
        elif isinstance(node, exp.EQ | exp.NullSafeEQ):
            self._equal(node)
        elif isinstance(node, exp.In):
            self._in(node)
        elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            owner = self._owner(node.this) if isinstance(node.this, exp.Column) else None
            # Of an outer join it finds rows that are not there.
            if owner and owner[0].alias.lower() not in self._optional:
                owner[0].null[owner[1]] = None
        elif isinstance(node, exp.Between) and not _columns(node.this):
            self._between(node)
        elif isinstance(node, exp.Between):
            self._compared(node, node.this, "ranges", [node.args["low"], node.args["high"]])
        elif isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE):
            self._ranging(node)
        elif isinstance(node, exp.Like) and not node.args.get("negate"):
            self._like(node)
        elif isinstance(node, exp.Func) and not isinstance(
            node, exp.Connector | exp.Exists | exp.MatchAgainst
        ):
            self._by_function(node)

    def _between(self, node: exp.Between) -> None:
        """One value between two columns. An index bounds either, and often half of all rows are on one side."""
        low, high = node.args["low"], node.args["high"]
        owner = self._owner(low) if isinstance(low, exp.Column) else None
        if owner and isinstance(high, exp.Column) and self._owner(high):
            pair = f"({owner[1]}, {high.name.lower()})"
            self._hinder(
                owner, node, "a value is between two columns, and an index bounds one side only",
                f"an index on {pair}; of periods that do not overlap, ORDER BY {owner[1]} DESC LIMIT 1 of those"
                " that have begun",
            )  # fmt: skip

    def _ranging(self, node: exp.Binary) -> None:
        column, other = (node.this, node.expression)
        if isinstance(column, exp.Tuple) and isinstance(other, exp.Tuple):
            self._row_range(node, column, other)
            return
        if not _columns(column):
            column, other = other, column
        if not _columns(other):
            self._compared(node, column, "ranges", [other])
        elif isinstance(other, exp.Subquery) and self._is_apart(other):
            self._compared(node, column, "ranges", [])

    def _is_apart(self, query: exp.Subquery) -> bool:
        """Whether a subquery needs no row of these tables, so that it has one answer for all."""
        inside = {table.alias_or_name.lower() for table in query.find_all(exp.Table)}
        return all(
            not column.table or column.table.lower() in inside or column.table.lower() not in self._sources
            for column in _columns(query)
        )

    def _by_function(self, node: exp.Func) -> None:
        """A function says which rows are wanted, as REGEXP, FIND_IN_SET or JSON_CONTAINS do."""
        name = hindered.function(node)
        for column in {each.sql(): each for each in _columns(node)}.values():
            owner = self._owner(column)
            if owner and not (name.startswith("ST_") and owner[0].table.has_spatial(owner[1])):
                why = f"{name} decides for each row"
                self._hinder(owner, node, why, self._instead(owner, hindered.instead(node, owner[1])))

    def _instead(self, owner: tuple[_Source, str], rewrite: str) -> str:
        names = " or ".join(each.name for each in owner[0].table.indexes if each.has_expression)
        return f"{names} may be of this expression, which EXPLAIN tells; else {rewrite}" if names else rewrite

    def _equal(self, node: exp.Binary) -> None:
        left, right = node.this, node.expression
        if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
            for pair in zip(left.expressions, right.expressions, strict=False):
                self._equal(exp.EQ(this=pair[0].copy(), expression=pair[1].copy()))
            return
        if not _columns(left):
            left, right = right, left
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            self._joined(node, left, right)
        elif isinstance(right, exp.Column) and _columns(left):
            self._compared(node, left, "joined", [])
            self._add(right, "joined")
            self._sought(right, left)
        elif not _columns(right):
            self._compared(node, left, "equal", [right])
        elif isinstance(left, exp.Column):
            self._add(left, "joined")
            self._sought(left, right)

    def _sought(self, column: exp.Column, by: exp.Expr) -> None:
        """Marks the column's table if what it is compared with is of no table of this scope."""
        owner = self._owner(column)
        if owner and not any(self._owner(each) for each in _columns(by)):
            owner[0].is_sought = True

    def _row_range(self, node: exp.Expr, left: exp.Tuple, right: exp.Tuple) -> None:
        """Servers look for such rows one after the other, though the first columns would bound them."""
        first, value = left.expressions[0], right.expressions[0]
        if not _columns(first):
            first, value = value, first
        if isinstance(first, exp.Column) and (owner := self._owner(first)):
            name = owner[1]
            self._hinder(
                owner,
                node,
                "rows are compared as a whole, which is not a range",
                f"{name} > x OR ({name} = x AND the next column > y)",
            )

    def _joined(self, node: exp.Expr, left: exp.Column, right: exp.Column) -> None:
        owners = [owner for owner in (self._owner(left), self._owner(right)) if owner]
        if len(owners) == 1:
            owners[0][0].is_sought = True
        if len(owners) == 2 and owners[0][0] is owners[1][0]:
            self._hinder(
                owners[0],
                node,
                "two columns of the same row are compared",
                "a generated column that has the result, with an index",
            )
            return
        sides = [owner[0].table.columns[owner[1]] for owner in owners]
        why = hindered.unlike(sides[0], sides[1]) if len(sides) == 2 else ""
        for owner, column, other in zip(owners, sides, reversed(sides), strict=True):
            if why and not hindered.is_kept(column, other):
                self._hinder(owner, node, why, "give both columns the same type and collation")
            else:
                owner[0].joined[owner[1]] = None

    def _in(self, node: exp.In) -> None:
        columns = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if node.args.get("query") is not None:
            for column in columns:
                self._add(column, "joined")
                if isinstance(column, exp.Column) and (owner := self._owner(column)):
                    owner[0].is_sought = True
            return
        if node.expressions and not _columns(node.this) and any(_columns(each) for each in node.expressions):
            # A value in a list of columns is an OR over them.
            either = [exp.EQ(this=each.copy(), expression=node.this.copy()) for each in node.expressions]
            self._predicate(exp.or_(*either))
            return
        if not node.expressions or any(_columns(each) for each in node.expressions):
            return
        is_row = isinstance(node.this, exp.Tuple)
        for at, column in enumerate(columns):
            values = [
                each.expressions[at] if isinstance(each, exp.Tuple) else each for each in node.expressions
            ]
            if is_row and not all(isinstance(each, exp.Tuple) for each in node.expressions):
                continue
            self._compared(node, column, "equal", values)
            if len(values) > 1 and isinstance(column, exp.Column) and (owner := self._owner(column)):
                owner[0].listed.add(owner[1])

    def _like(self, node: exp.Like) -> None:
        pattern = node.expression
        if isinstance(pattern, exp.Concat) and pattern.expressions and not _columns(pattern):
            pattern = pattern.expressions[0]
        if isinstance(pattern, exp.Introducer | exp.Collate):  # _utf8mb4'ab%', or 'ab%' COLLATE utf8mb4_bin
            pattern = pattern.expression if isinstance(pattern, exp.Introducer) else pattern.this
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            if not _columns(pattern):
                self._unknown[f"how the pattern of LIKE begins: {node.sql(dialect='mysql')[:80]}"] = None
            return
        if pattern.this[:1] in ("%", "_"):
            if isinstance(node.this, exp.Column) and (owner := self._owner(node.this)):
                self._hinder(
                    owner,
                    node,
                    "the pattern begins with a wildcard",
                    "a FULLTEXT index, or a column with the text reversed",
                )
            return
        if isinstance(node.this, exp.Column) and (owner := self._owner(node.this)):
            column = owner[0].table.columns[owner[1]]
            if not column.is_text and not column.is_binary:
                self._hinder(
                    owner,
                    node,
                    f"each row's {column.kind} is converted to a text",
                    f"{owner[1]} >= the first value AND {owner[1]} < the one after the last",
                )
                return
        self._compared(node, node.this, "ranges", [pattern])

    def _alternatives(self, node: exp.Or) -> None:
        """What all alternatives compare bounds their rows; no single index serves OR over several columns."""
        common: dict[tuple[str, str], bool] | None = None
        for branch in node.flatten():
            bounds = self._bounds(branch.unnest())
            if common is None:
                common = bounds
            else:
                common = {place: common[place] and bounds[place] for place in common.keys() & bounds.keys()}
        if common:
            for (alias, name), is_equal in sorted(common.items()):
                source = self._sources[alias]
                if is_equal:
                    source.equal[name] = None
                    source.listed.add(name)
                else:
                    source.ranges[name] = None
            return
        columns = {column.sql(): column for column in node.find_all(exp.Column)}.values()
        rewrite = "UNION ALL of one SELECT for each, where the rows cannot be the same"
        if len({id(owner[0]) for owner in map(self._owner, columns) if owner}) == 1:
            rewrite = f"an index for each, which servers can merge (index_merge), or {rewrite}"
        for column in columns:
            if owner := self._owner(column):
                self._hinder(
                    owner,
                    node,
                    "OR over several conditions",
                    rewrite,
                )

    def _bounds(self, branch: exp.Expr) -> dict[tuple[str, str], bool]:
        """(alias, column) -> whether one alternative compares it with a value, and not with a range."""
        reader = self._apart([branch])
        found = {(alias, name): False for alias, each in reader._sources.items() for name in each.ranges}
        return found | {
            (alias, name): True
            for alias, each in reader._sources.items()
            for name in (*each.equal, *each.null)
        }

    def _compared(self, node: exp.Expr, side: exp.Expr, as_what: str, values: list[exp.Expr]) -> None:
        side = side.unnest()
        if isinstance(side, exp.Column):
            owner = self._owner(side)
            if owner and (why := hindered.cast(owner[0].table.columns[owner[1]], values)):
                self._hinder(owner, node, why, "write the value between quotes")
            elif owner:
                getattr(owner[0], as_what)[owner[1]] = None
            return
        for column in _columns(side):
            if owner := self._owner(column):
                rewrite = self._instead(owner, hindered.rewrite(side, owner[1]))
                self._hinder(owner, node, f"{hindered.function(side)} is applied to the column", rewrite)

    def _add(self, node: exp.Expr, as_what: str) -> None:
        if isinstance(node, exp.Column) and (owner := self._owner(node)):
            getattr(owner[0], as_what)[owner[1]] = None

    def _hinder(self, owner: tuple[_Source, str], node: exp.Expr, why: str, rewrite: str) -> None:
        source, name = owner
        text = node.sql(dialect="mysql")
        self._hindrances.append(
            Hindrance(
                source.table.full_name, name, text if len(text) <= 120 else f"{text[:117]}...", why, rewrite
            )
        )


def _columns(node: exp.Expr) -> list[exp.Column]:
    return list(node.find_all(exp.Column))
