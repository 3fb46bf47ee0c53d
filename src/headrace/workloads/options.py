"""Options of workloads: typed, with a default and a sentence each, checked before anything runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from headrace.errors import PlanError
from headrace.model import Value

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


class Options(BaseModel):
    """The options of one kind of workload. Strict: ``"8"`` is no integer and 1 is no truth value."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OptionDoc(NamedTuple):
    """One option for people: ``type`` names the type or the allowed values; ``default`` None is the tool's."""

    name: str
    type: str
    default: Value | None
    doc: str


class Described:
    """What an annotated type is called in messages and documentation."""

    def __init__(self, text: str) -> None:
        self.text = text


def _to_bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if not match:
        raise PydanticCustomError("size", "no size")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _comma_list(value: object) -> object:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return value


#: Bytes, written as a number or as ``16K``, ``1.5G`` (powers of 1024).
Size = Annotated[int, BeforeValidator(_to_bytes), Ge(1), Described("a size in bytes, such as 16K or 2G")]

#: Words separated by commas, or a list of them.
CommaList = Annotated[str, BeforeValidator(_comma_list)]

OptionsT = TypeVar("OptionsT", bound=Options)


def parse(kind: str, model: type[OptionsT], given: Mapping[str, Value]) -> OptionsT:
    """Check a plan's options; a hyphen in a name is the same as an underscore.

    Raises PlanError with the key, the value and what is allowed, for the first option that is wrong.
    """
    values = {name.replace("-", "_"): value for name, value in given.items()}
    if len(values) != len(given):
        raise PlanError(f"workload: {', '.join(given)}: an option is given twice")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _plan_error(kind, model, values, error) from None


def docs(model: type[Options]) -> list[OptionDoc]:
    """The documentation of a kind's options, in the order they are declared."""
    return [
        OptionDoc(name, _allowed(field), field.default, field.description or "")
        for name, field in model.model_fields.items()
    ]


def _plan_error(
    kind: str, model: type[Options], given: Mapping[str, Value], error: ValidationError
) -> PlanError:
    problem = error.errors(include_url=False)[0]
    name = str(problem["loc"][0])
    value = given[name]
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, model.model_fields, n=1)
        return PlanError(
            f"workload.{name} = {value!r}: {kind} has no such option; it has {', '.join(model.model_fields)}",
            hint=f"did you mean {near[0]}?" if near else None,
        )
    field = next(f for n, f in model.model_fields.items() if name in _names(n, f))
    return PlanError(f"workload.{name} = {value!r}: must be {_allowed(field)}")


def _names(name: str, field: FieldInfo) -> tuple[str, ...]:
    if isinstance(field.validation_alias, AliasChoices):
        return tuple(str(choice) for choice in field.validation_alias.choices)
    return (name,)


def _allowed(field: FieldInfo) -> str:
    described = [rule.text for rule in field.metadata if isinstance(rule, Described)]
    if described:
        return described[-1]
    annotation: Any = field.annotation
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(annotation))
    plain = next((a for a in get_args(annotation) if a is not type(None)), annotation)
    text = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}[plain]
    for rule in field.metadata:
        if isinstance(rule, Ge):
            text += f", at least {rule.ge}"
        elif isinstance(rule, Gt):
            text += f", above {rule.gt}"
        elif isinstance(rule, Le):
            text += f", at most {rule.le}"
        elif isinstance(rule, Lt):
            text += f", below {rule.lt}"
    return text
