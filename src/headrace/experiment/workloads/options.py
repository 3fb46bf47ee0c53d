"""Options of workloads: typed, each with a default and a description, checked before anything runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from headrace.base.errors import PlanError
from headrace.base.meant import meant
from headrace.base.model import Option, Value
from headrace.experiment.plan.tables import MOST_TERABYTES, DesignTable, WorkloadTable
from headrace.experiment.plan.where import value_text

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


class Options(BaseModel):
    """The options of one kind of workload, or a table in them.

    Strict: ``"8"`` is not an integer, 1 is not a boolean. A table with several kinds is a union of them, each with
    a ``kind`` of one ``Literal``. A validator of a whole table raises ValueError with a text that starts with the
    key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def ascending(table: OptionsT, low: str, high: str) -> OptionsT:
    """The table, for a validator of it: ``high`` is at least ``low``."""
    if getattr(table, low) > getattr(table, high):
        raise ValueError(f"{high} = {getattr(table, high)}: must be at least {low}, {getattr(table, low)}")
    return table


class OptionDoc(NamedTuple):
    """One option for people: ``type`` names the type or the allowed values; ``default`` None is the tool's.

    The keys of a table follow it, each with its ``name`` indented by two more blanks.
    """

    name: str
    type: str
    default: Value | None
    doc: str


class Described:
    """The name of an annotated type in messages and documentation."""

    def __init__(self, text: str) -> None:
        self.text = text


def _to_bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if not match:
        raise PydanticCustomError("size", "no size")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _of_some_machine(size: int) -> int:
    if size > MOST_TERABYTES * 1024**4:
        raise PydanticCustomError("no_machine", f"at most {MOST_TERABYTES}T: no machine has that")
    return size


def _comma_list(value: object) -> object:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return value


#: Bytes, written as a number or as ``16K``, ``1.5G`` (powers of 1024).
Size = Annotated[
    int,
    BeforeValidator(_to_bytes),
    AfterValidator(_of_some_machine),
    Ge(1),
    Described("a size in bytes, such as 16K or 2G"),
]

#: Shown as the default of a key that has none.
REQUIRED = "required"

#: Words separated by commas, or a list of them.
CommaList = Annotated[str, BeforeValidator(_comma_list)]

OptionsT = TypeVar("OptionsT", bound=Options)


def parse(kind: str, model: type[OptionsT], given: Mapping[str, Option]) -> OptionsT:
    """Check a plan's options; hyphens in names count as underscores.

    Raises PlanError with the key, the value and the allowed values, for the first invalid option.
    """
    values = {name.replace("-", "_"): value for name, value in given.items()}
    if len(values) != len(given):
        raise PlanError(f"workload: {', '.join(given)}: an option is given twice")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # A missing key may be a misspelt one.
        unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
        raise _plan_error(kind, model, [*unknown, *problems][0]) from None


def docs(model: type[Options]) -> list[OptionDoc]:
    """The documentation of a kind's options, its own before shared ones, a table's keys below it."""
    return list(_docs(model, ""))


def _docs(model: type[BaseModel], indent: str) -> Iterator[OptionDoc]:
    for name, field in _own_first(model):
        default = REQUIRED if field.is_required() else _as_written(field.default)
        key = indent + (field.alias or name)
        yield OptionDoc(key, _allowed(field.annotation, field.metadata), default, field.description or "")
        tables = _tables(field.annotation)
        for table in tables:
            if len(tables) == 1:
                yield from _docs(table, indent + "  ")
                continue
            yield OptionDoc(f'{indent}  kind = "{_kind_of(table)}"', "a table", REQUIRED, table.__doc__ or "")
            for row in _docs(table, indent + "    "):
                if row.name.strip() != "kind":
                    yield row


def _own_first(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The fields, the class's own before the inherited."""
    for owner in model.__mro__:
        for name in vars(owner).get("__annotations__", {}):
            if name in model.model_fields:
                yield name, model.model_fields[name]


def _as_written(default: Any) -> Any:
    """A default in plan syntax."""
    if isinstance(default, BaseModel):
        cells = (f"{key} = {json.dumps(value)}" for key, value in default.model_dump(by_alias=True).items())
        return f"{{ {', '.join(cells)} }}"
    return default


class _Place(NamedTuple):
    """The location of a problem in the options: its key for people, its table, and the allowed values."""

    key: str
    table: type[BaseModel]
    annotation: Any
    metadata: Sequence[Any]
    doc: str


def _find(model: type[BaseModel], location: Sequence[int | str]) -> _Place:
    place = _Place("workload", model, model, (), "")
    for part in location:
        tables = _tables(place.annotation)
        if isinstance(part, int):
            annotation, metadata = _parted(_element(place.annotation))
            place = place._replace(key=f"{place.key}[{part}]", annotation=annotation, metadata=metadata)
        elif len(tables) > 1:  # the kind, which pydantic inserts between a table and its key
            table = next(t for t in tables if _kind_of(t) == part)
            place = place._replace(table=table, annotation=table)
        elif tables:
            fields = tables[0].model_fields
            field = next((f for n, f in fields.items() if part in _names(n, f)), None)
            key = f"{place.key}.{part}"
            if field is None:
                return _Place(key, tables[0], None, (), "")
            place = _Place(key, tables[0], field.annotation, field.metadata, field.description or "")
        # The rest names the member of a union of plain types, which are described as one.
    return place


def _plan_error(kind: str, model: type[Options], problem: ErrorDetails) -> PlanError:
    place, reason, value = _find(model, problem["loc"]), problem["type"], problem["input"]
    given = f"{place.key} = {_shown(value)}"
    if reason == "extra_forbidden":
        return _unknown(kind, model, place, str(problem["loc"][-1]), value)
    if reason == "missing":
        text = f"{_allowed(place.annotation, place.metadata)} is required: {place.doc}"
        return PlanError(f"{place.key}: {text}")
    if reason in ("union_tag_invalid", "union_tag_not_found"):
        kinds = "one of " + ", ".join(_kind_of(table) for table in _tables(place.annotation))
        tag = value.get("kind") if isinstance(value, Mapping) else None
        return PlanError(
            f"{place.key}.kind" + (f" = {tag!r}" if tag is not None else "") + f": must be {kinds}"
        )
    if reason == "value_error":
        is_table = _element(place.annotation) is None and _tables(place.annotation)
        return PlanError(f"{place.key}{'.' if is_table else ': '}{problem['ctx']['error']}")
    if reason == "no_machine":
        return PlanError(f"{given}: {problem['msg']}")
    return PlanError(
        f"{given}: must be {_allowed(place.annotation, place.metadata)}",
        hint=_fix(place.key, value, place.annotation, place.metadata),
    )


def _unknown(kind: str, model: type[Options], place: _Place, name: str, value: object) -> PlanError:
    """An option that the workload, or a table in it, does not have."""
    known = [field.alias or own for own, field in place.table.model_fields.items()]
    is_option = place.table is model
    near = meant(name, [*known, *(WorkloadTable.model_fields if is_option else ())])
    what = f"{kind} has no such option" if is_option else "no such key"
    given = f"{place.key} = {_shown(value)}"
    if near and is_option and near in model.model_fields and isinstance(value, str):
        # 10G of data is no number of rows.
        field = model.model_fields[near]
        if (
            int in _members(field.annotation)
            and str not in _members(field.annotation)
            and not value.strip().isdigit()
        ):
            short = _fix(near, value, field.annotation, field.metadata)
            return PlanError(f"{given}: {what}", hint=short or f"{near} = {_some(field.default)}")
    if near:
        return PlanError(f"{given}: {what}", hint=f"{near} = {value_text(value)}")
    if is_option and name in DesignTable.model_fields:
        return PlanError(f"{given}: it belongs in [design]", hint=f"[design] {name} = {value_text(value)}")
    hint = f"`headrace plan options {kind}` lists them" if is_option else None
    return PlanError(f"{given}: {what}; there are {', '.join(known)}", hint=hint)


def _some(default: object) -> object:
    return default if isinstance(default, int) and default else 1


def _fix(key: str, value: object, annotation: Any, metadata: Sequence[Any]) -> str | None:
    """The value as it must be written, if that can be known."""
    name = key.rpartition(".")[2]
    members = _members(annotation)
    if choices := [str(c) for m in members if get_origin(m) is Literal for c in get_args(m)]:
        near = meant(str(value), choices)
        return f'{name} = "{near or choices[0]}"'
    if isinstance(value, list) and len(value) > 1 and {int, float} & {*members}:
        return f'{name} = {value[0]}, or a factor: knob = "workload.{name}", levels = {value_text(value)}'
    number = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*s?\s*", value) if isinstance(value, str) else None
    if number and (float in members or (int in members and "." not in number[1])):
        return f"{name} = {number[1]}"
    if int in members and isinstance(value, str) and (short := re.fullmatch(r"(\d+)([kKmM])", value)):
        return f"{name} = {int(short[1]) * (1000 if short[2] in 'kK' else 1_000_000)}"
    if name == "clients" and isinstance(value, int):
        return f"connections = {value}"
    if bool in members and str(value).lower() in ("on", "off", "yes", "no", "1", "0"):
        return f"{name} = {'true' if str(value).lower() in ('on', 'yes', '1') else 'false'}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        for rule in metadata:
            if isinstance(rule, Ge) and value < rule.ge:  # type: ignore[operator]
                return f"{name} = {rule.ge}"
            if isinstance(rule, Le) and value > rule.le:  # type: ignore[operator]
                return f"{name} = {rule.le}"
        return f'{name} = "{value}"' if str in members else None
    return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _names(name: str, field: FieldInfo) -> tuple[str, ...]:
    if isinstance(field.validation_alias, AliasChoices):
        return tuple(str(choice) for choice in field.validation_alias.choices)
    return (field.alias or name,)


def _parted(annotation: Any) -> tuple[Any, Sequence[Any]]:
    """A type and what ``Annotated`` adds to it."""
    if get_origin(annotation) is Annotated:
        plain, *metadata = get_args(annotation)
        rules = [r for m in metadata for r in (m.metadata if isinstance(m, FieldInfo) else [m])]
        return plain, rules
    return annotation, ()


def _members(annotation: Any) -> list[Any]:
    """The allowed types, without ``Annotated`` and without the None of an omitted option."""
    plain, _ = _parted(annotation)
    if get_origin(plain) in (Union, UnionType):
        return [member for a in get_args(plain) if a is not type(None) for member in _members(a)]
    return [plain]


def _element(annotation: Any) -> Any:
    """A list's element type; None if a list is not allowed."""
    (*_, last) = _members(annotation)
    return get_args(last)[0] if get_origin(last) is list else None


def _tables(annotation: Any) -> list[type[BaseModel]]:
    """The tables allowed there, or in a list there; empty if a table is not allowed."""
    if (element := _element(annotation)) is not None:
        return _tables(element)
    return [m for m in _members(annotation) if isinstance(m, type) and issubclass(m, BaseModel)]


def _kind_of(table: type[BaseModel]) -> str:
    return str(get_args(table.model_fields["kind"].annotation)[0])


_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}


def _allowed(annotation: Any, metadata: Sequence[Any]) -> str:
    described = [rule.text for rule in metadata if isinstance(rule, Described)]
    if described:
        return described[-1]
    element, tables, members = _element(annotation), _tables(annotation), _members(annotation)
    if tables:
        text = "a table" if element is None else "a list of tables"
        return text + (f" with kind = {', '.join(map(_kind_of, tables))}" if len(tables) > 1 else "")
    if element is not None:
        return f"a list, each {_allowed(*_parted(element))}"
    if get_origin(members[0]) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(members[0]))
    text = " or ".join(_WORDS[member] for member in members)
    for rule in metadata:
        if isinstance(rule, Ge):
            text += f", at least {_number(rule.ge)}"
        elif isinstance(rule, Gt):
            text += f", above {_number(rule.gt)}"
        elif isinstance(rule, Le):
            text += f", at most {_number(rule.le)}"
        elif isinstance(rule, Lt):
            text += f", below {_number(rule.lt)}"
    return text


def _number(limit: Any) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"
