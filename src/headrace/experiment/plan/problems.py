"""What is wrong in a plan's tables, in own words: each problem with its key, its value and its fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from headrace.base.errors import HeadraceError
from headrace.base.meant import meant
from headrace.experiment.plan.where import assigned, value_text
from headrace.knobs import catalogue

#: A plan's own tables, and what a key is in.
_TOP = (
    *("name", "description", "target", "machine", "design", "workload", "volume", "server"),
    *("base", "bundles", "factors", "sweep", "tune"),
)


@dataclass(frozen=True)
class Problem:
    """``key`` with dots; ``value`` as in the plan, or empty; ``fix``: what to write instead, if known."""

    key: str
    value: str
    reason: str
    fix: str | None = None

    def __str__(self) -> str:
        return f"{self.key}{f' = {self.value}' if self.value else ''}: {self.reason}"


def describe(error: ValidationError) -> str:
    """The problems, one line per key."""
    return "\n".join(dict.fromkeys(map(str, found(error))))


def found(
    error: ValidationError, content: Mapping[str, Any] | None = None, tables: Mapping[str, Any] | None = None
) -> list[Problem]:
    """Every problem once. ``content`` is the whole plan, ``tables`` its tables, to find what was meant."""
    by_key: dict[str, Problem] = {}
    for problem in error.errors(include_url=False):
        # Unions repeat a problem for each member, with the member's type in the location: drop those parts.
        loc = [str(part) for part in problem["loc"] if not _is_type_name(str(part))]
        key = ".".join(loc)
        value = problem["input"]
        is_whole = isinstance(value, dict | BaseModel) or problem["type"] == "missing"
        reason, fix = _reason(problem, loc, content or {}, tables or {})
        if key in by_key and (by_key[key].fix or not fix):
            continue
        by_key[key] = Problem(key, "" if is_whole or _is_secret(key) else repr(value), reason, fix)
    # A key with a wrong name is also missing under its right one: once is enough.
    named = {
        p.fix.partition(" = ")[0] for p in by_key.values() if p.fix and p.reason.startswith("no such key")
    }
    kept = [
        p
        for p in by_key.values()
        if not (
            p.reason.startswith("this key is required") and {p.key.rpartition(".")[2], f"[{p.key}]"} & named
        )
    ]
    # What is wrong with a part is also said of the whole.
    kept = [p for p in kept if not any(other.key.startswith(f"{p.key}.") for other in kept)]
    return sorted(kept, key=lambda p: p.fix is None)


def _is_secret(key: str) -> bool:
    """Whether a value may be what nobody else should read: errors end up in logs and tickets."""
    return bool(re.search(r"(?i)passw|passphrase|secret|token|credential|(^|[._])(pwd|pass)$", key))


def _is_type_name(part: str) -> bool:
    return bool(re.fullmatch(r"(str|int|float|bool|list|dict)(\[.*\])?|tagged-union.*|function-.*", part))


def _reason(
    problem: Any, loc: list[str], content: Mapping[str, Any], tables: Mapping[str, Any]
) -> tuple[str, str | None]:
    kind, value, name = problem["type"], problem["input"], loc[-1] if loc else ""
    context = problem.get("ctx", {})
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown(loc, value, content, tables)
    if isinstance(value, dict) and loc and loc[0] in ("base", "bundles") and name in _AREAS:
        return "a knob's name is in quotes, because its dots are part of it", _knob(name, value)
    if kind == "missing":
        return _missing(loc, value, content)
    if (
        isinstance(value, dict)
        and loc
        and loc[0] == "factors"
        and (told := _in_factors(problem, loc, content))
    ):
        return told
    if kind == "literal_error" or kind == "enum":
        choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        near = meant(str(value), choices)
        return f"must be one of {', '.join(choices)}", f'{name} = "{near}"' if near else None
    if kind == "string_pattern_mismatch":
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", str(value)).strip("-.")[:100] or "my-plan"
        return "must be letters, digits, dots, _ and -, because it names a directory", f'{name} = "{plain}"'
    if (limit := _LIMITS.get(kind)) is not None:
        is_number = kind in ("greater_than_equal", "less_than_equal")
        # A limit is allowed, and seldom what is meant: one block compares nothing.
        limit_itself = f"{name} = {next(iter(context.values()))}" if is_number else None
        fix = _share(name, value) or _EXAMPLES.get(name) or limit_itself
        return limit.format(*context.values()), fix
    if loc and loc[0] == "factors" and len(loc) < 3 and kind in _TABLE_TYPES:
        return "must be a table for each factor", _factors(loc, value)
    for types, words in _TYPES:
        if kind in types:
            return words, _as(words, name, value) or _EXAMPLES.get(name)
    said = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    if other := re.match(r"(\w+) = .*: only for a design of kind = ", said):
        # Five runs are five blocks to most people.
        return said, f"blocks = {value['runs']}" if other[1] == "runs" and isinstance(value, dict) else None
    # Our own words may begin with the key.
    return said if re.match(r"[a-z_]+( = .*)?: ", said) else f"must be {said}", None


def _in_factors(problem: Any, loc: list[str], content: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """A table in a factor, or the factor's own."""
    value = problem["input"]
    if len(loc) > 4 and loc[2] == "levels":
        return (
            "a level holds knobs and their values, and no levels of its own",
            "a table [factors.NAME] for each factor; [[design.exclude]] leaves out what must not run together",
        )
    if len(loc) == 4 and loc[2] == "levels":
        what = "a level of several knobs has a name, and no knob stands beside levels"
        return what, _level(loc[1], value, content)
    if len(loc) == 2 and problem["type"] == "value_error":
        return _of_factor(str(problem["msg"]), value)
    return None


def _missing(loc: list[str], value: Any, content: Mapping[str, Any]) -> tuple[str, str | None]:
    """A key that its table lacks."""
    name = loc[-1]
    if len(loc) == 3 and loc[0] == "factors" and loc[1] in _AREAS and isinstance(value, dict) and value:
        inner_name, levels = next(iter(value.items()))
        return _DOTTED, _factor(f"{loc[1]}.{inner_name}", levels)
    given = value if isinstance(value, dict) else {}
    near = meant(name, [str(key) for key in given])
    # ``duration`` is one of the names that others give to ``seconds``.
    near = near or next((str(key) for key in given if key != "kind" and meant(str(key), [name])), None)
    inner = next((str(key) for key, each in given.items() if isinstance(each, dict)), "")
    if name == "kind" and loc[:-1] == ["workload"] and inner and len(given) == 1:
        return "this key is required: a workload is one table", f'[workload] with kind = "{inner}"'
    example = _EXAMPLES.get(".".join(loc[-2:])) or _EXAMPLES.get(name)
    example = _baseline(content) if name == "baseline" else example
    if near is None:
        return "this key is required", example
    value = given[near]
    number = _as("a number", name, value) if name == "seconds" and isinstance(value, str) else None
    return (
        f"this key is required; {near} is another tool's name for it",
        number or f"{name} = {value_text(value)}",
    )


def _of_factor(message: str, factor: Mapping[str, Any]) -> tuple[str, str | None]:
    """A factor whose table does not fit together."""
    levels = factor.get("levels")
    one = levels[0] if isinstance(levels, list) and len(levels) == 1 else None
    reason = message.removeprefix("Value error, ")
    if one is not None and isinstance(factor.get("knob"), str):
        return f"must be {reason}", f'a second level, or [base] "{factor["knob"]}" = {value_text(one)}'
    values = list(levels.values()) if isinstance(levels, dict) else []
    if (
        isinstance(factor.get("knob"), str)
        and len(values) > 1
        and not any(isinstance(v, dict) for v in values)
    ):
        return f"must be {reason}", f'knob = "{factor["knob"]}" and levels = {value_text(values)}'
    return f"must be {reason}", 'knob = "server.NAME" and levels = ["VALUE", "VALUE"]'


def _baseline(content: Mapping[str, Any]) -> str:
    """The first level of every factor."""
    first = {
        name: names[0] for name, factor in content.get("factors", {}).items() if (names := _names(factor))
    }
    if len(first) == 1:
        return f"baseline = {value_text(next(iter(first.values())))}"
    return (
        f"baseline = {assigned(first)}" if first else 'baseline = "LEVEL", which the others are compared with'
    )


#: Tables that stand for a whole design: nothing of another table belongs there.
_OWN_DESIGN = ("sweep", "tune")

_DOTTED = "a factor is a table of its own, with the knob in it"
_AREAS = ("server", "host", "volume", "machine", "workload")


def _knob(name: str, value: Mapping[str, Any]) -> str:
    """The knob that was written without quotes, so that TOML read its dots as tables."""
    inner: object = value
    while isinstance(inner, Mapping) and inner:
        key, inner = next(iter(inner.items()))
        name = f"{name}.{key}"
    return f'"{name}" = {value_text(inner)}'


_LIMITS = {
    "greater_than_equal": "must be at least {}",
    "greater_than": "must be above {}",
    "less_than_equal": "must be at most {}",
    "less_than": "must be below {}",
    "too_short": "must have at least {1} entries",
    "too_long": "must have at most {1} entries",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {} characters",
    "finite_number": "must be a finite number",
}

_TABLE_TYPES = ("dict_type", "model_type", "model_attributes_type", "mapping_type")

_TYPES = (
    (("string_type",), "must be text, in quotes"),
    (("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "must be a whole number"),
    (("float_type", "float_parsing"), "must be a number"),
    (("bool_type", "bool_parsing"), "must be true or false, without quotes"),
    (("list_type",), "must be a list, in [ ]"),
    (_TABLE_TYPES, "must be a table"),
)

#: Keys whose values are shares of 1, which people write in percent.
_SHARES = frozenset({"alpha", "equivalence"})


def _share(name: str, value: object) -> str | None:
    """5, or ``5%``, as 0.05."""
    told = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%?\s*", str(value))
    return f"{name} = {float(told[1]) / 100:g}" if told and name in _SHARES and float(told[1]) >= 1 else None


def _factors(loc: list[str], value: object) -> str:
    """What stands in the place of a factor's table, or of all of them: ``[[factors]]`` has their names inside."""
    first = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else {}
    if len(loc) == 2:
        return _factor(loc[1], value)
    if not isinstance(first.get("name"), str):
        return "[factors.NAME]"
    written = _factor(first["name"], first.get("levels"))
    return written.replace('"server.NAME"', value_text(first["knob"])) if "knob" in first else written


def _factor(name: str, value: object) -> str:
    """The table of a factor that was written as its knob, or as its levels."""
    knob = value if isinstance(value, str) and "." in value else "server.NAME"
    if own := next((each for each in (name, f"server.{name}") if "_" in name and _is_knob(each)), ""):
        knob, name = own, name.rpartition(".")[2]
    levels = value_text(value) if isinstance(value, list) and len(value) > 1 else '["VALUE", "VALUE"]'
    return f'[factors.{name}] with knob = "{knob}" and levels = {levels}'


_EXAMPLES = {
    "seed": "seed = 1",
    "name": 'name = "pool-size"',
    "design": '[design] with kind = "factorial", baseline and blocks',
    "workload": '[workload] with kind = "oltp" and seconds = 30',
    "design.kind": 'kind = "factorial"',
    "workload.kind": 'kind = "oltp"',
    "blocks": "blocks = 5",
    "seconds": "seconds = 30",
    "levels": "levels = [...] with the values to compare",
}


def _as(words: str, name: str, value: object) -> str | None:
    """The value in the type that it must have, if it can be read as one."""
    text = str(value).strip()
    if "number" in words and (share := _share(name, value)):
        return share
    if words.startswith("must be text") and isinstance(value, list) and value and isinstance(value[0], str):
        return f"{name} = {value_text(str(value[0]))}"
    if words.startswith("must be a list") and isinstance(value, str):
        several = [part.strip() for part in re.split(r",|;|\.\.+", value) if part.strip()]
        if len(several) > 1:
            return f"{name} = {value_text(several)}"
    if words.startswith("must be text") and not isinstance(value, dict | list):
        return f'{name} = "{str(value).lower() if isinstance(value, bool) else value}"'
    if words.startswith("must be a list") and isinstance(value, str | int | float):
        # Two levels are the fewest: the next error would say so.
        return f"{name} = [{value_text(value)}" + (', "..."]' if name == "levels" else "]")
    if "number" in words and (parts := re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)) and text:
        hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        return f"{name} = {hours * 3600 + minutes * 60 + seconds}"
    number = re.match(r"(\d+)(\.\d+)?\s*(s|sec|seconds?|m|min|minutes?|h|hours?)?$", text)
    if "number" in words and number:
        unit = {"m": 60, "h": 3600}.get((number[3] or "s")[0], 1)
        exact = float(number[1] + (number[2] or "")) * unit
        return f"{name} = {round(exact) if 'whole' in words or exact == int(exact) else exact:g}"
    if words.startswith("must be true") and text.lower() in ("yes", "no", "on", "off", "0", "1"):
        return f"{name} = {'true' if text.lower() in ('yes', 'on', '1') else 'false'}"
    return None


#: How other tools are told which server to use.
_LOGIN = frozenset(
    {"uri", "url", "dsn", "socket", "host", "port", "user", "username", "defaults_file", "database"}
)


def _unknown(
    loc: list[str], value: Any, content: Mapping[str, Any], tables: Mapping[str, Any]
) -> tuple[str, str | None]:
    """A key that its table does not have."""
    name = loc[-1]
    if len(loc) == 3 and loc[0] == "factors" and loc[1] in _AREAS:
        return _DOTTED, _factor(f"{loc[1]}.{name}", value)
    if len(loc) == 3 and loc[0] == "factors" and (name == "when" or isinstance(value, dict)):
        return _in_factor(loc[1], name, value, content)
    if _is_secret(".".join(loc)) or (loc[0] == "server" and name in _LOGIN):
        return "no such key: a plan holds no login", "delete it; the servers of a plan are its own"
    own = _keys(loc[:-1], tables)
    near = meant(name, own)
    if near:
        written = (
            _header(near, value)
            if len(loc) == 1 and isinstance(value, dict)
            else _share(near, value) or f"{near} = {value_text(value)}"
        )
        return "no such key", written
    if re.match(r"(server|host|volume|machine)\.", name):
        return (
            "no such key here: a setting of every treatment belongs in [base]",
            f'[base] "{name}" = {value_text(value)}',
        )
    if loc == ["server", "version"]:
        return "no such key: the version is that of the program", 'binary = "/path/of/another/mysqld"'
    if loc[0] in ("server", "volume") and len(loc) == 2 and _is_knob(f"{loc[0]}.{name}"):
        fix = f'[base] "{loc[0]}.{name}" = {value_text(value)}'
        return f"no such key here: a setting of the {loc[0]} belongs in [base], with its area", fix
    tables = {table: model for table, model in tables.items() if table not in _OWN_DESIGN}
    others = [table for table, model in tables.items() if name in model.model_fields and [table] != loc[:-1]]
    if others and isinstance(value, dict) and len(value) == 1:
        # ``[response] metric = "tps"``: the table's only value.
        value = next(iter(value.values()))
    if others:
        return f"no such key here: it belongs in [{others[0]}]", f"[{others[0]}] {name} = {value_text(value)}"
    for table, model in tables.items():
        if near := meant(name, [n for n in model.model_fields if n != "name"]):
            return f"no such key here: [{table}] has {near}", f"[{table}] {near} = {value_text(value)}"
    return f"no such key; there are {', '.join(own)}" if own else "no such key", None


def _in_factor(factor: str, name: str, value: Any, content: Mapping[str, Any]) -> tuple[str, str | None]:
    """A table within a factor's: one of its levels, or a condition."""
    own = content.get("factors", {}).get(factor, {})
    if name != "when" and "levels" not in own and all(isinstance(each, dict) for each in own.values()):
        return (
            "no such key here: the levels of a factor are a table of their own",
            f"[factors.{factor}.levels]",
        )
    return (
        "no such key: a factor is part of every treatment; what must not run is left out with [[design.exclude]]",
        _excluded(factor, value, content),
    )


def _is_knob(name: str) -> bool:
    try:
        catalogue.find(name)
    except HeadraceError:
        return False
    return True


def _header(table: str, value: Mapping[str, Any]) -> str:
    inner = next(iter(value), "NAME")
    return f"[{table}.{inner}]" if table in ("factors", "bundles") else f"[{table}]"


def _keys(table: list[str], tables: Mapping[str, Any]) -> list[str]:
    if not table:
        return list(_TOP)
    if table[0] == "factors":
        return ["knob", "levels"]
    model = tables.get(table[0])
    return list(model.model_fields) if model is not None else []


def _level(factor: str, value: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """A level that was written as a table in a list."""
    knob = content.get("factors", {}).get(factor, {}).get("knob", "server.NAME")
    names = [each if _is_knob(each) and "." in each else f"server.{each}" for each in value]
    own = dict.fromkeys([knob if n == 0 and "_" not in each else each for n, each in enumerate(names)])
    setting = ", ".join(
        f'"{name}" = {value_text(each)}' for name, each in zip(own, value.values(), strict=False)
    )
    return f"[factors.{factor}.levels] with a line for each, such as small = {{ {setting} }}"


def _excluded(factor: str, condition: object, content: Mapping[str, Any]) -> str:
    """``when`` as the combinations that are left out, in the plan's own levels."""
    factors = content.get("factors", {})
    own = _names(factors.get(factor, {}))
    form = "[[design.exclude]] for each combination that is left out"
    if not isinstance(condition, dict) or len(own) < 2:
        return f'{form}, such as {{ {factor} = "LEVEL", OTHER = "LEVEL" }}'
    left_out = [
        {other: level, factor: mine}
        for other, wanted in condition.items()
        for level in _names(factors.get(other, {}))
        if level not in ([str(w) for w in wanted] if isinstance(wanted, list) else [str(wanted)])
        for mine in own[1:]
    ]
    if not left_out:
        return f'{form}, such as {{ {factor} = "{own[-1]}", OTHER = "LEVEL" }}'
    return (
        "[design] exclude = [" + ", ".join(map(assigned, left_out)) + f'], which leaves {factor} = "{own[0]}"'
    )


def _names(factor: object) -> list[str]:
    levels = factor.get("levels", {}) if isinstance(factor, dict) else {}
    return [str(level).lower() if isinstance(level, bool) else str(level) for level in levels]
