"""Options of workloads: what a plan may write, and what it is told when it writes something else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.text import Text

from headrace.base.errors import PlanError
from headrace.base.model import Option
from headrace.experiment.workloads import KINDS, make_workload, option_docs
from headrace.experiment.workloads.options import REQUIRED
from tests.folders import ROOT

READ: dict[str, Any] = {"name": "read", "statements": [{"sql": "SELECT 1"}]}
PARAMETER = "workload.operations[0].statements[0].parameters[0]"


def piece(**keys: Any) -> dict[str, Any]:
    """A profile of one piece; a key that is None is left out."""
    whole = {"seconds": 1, "from_ops_s": 1, "to_ops_s": 1, **keys}
    return {"profile": [{key: value for key, value in whole.items() if value is not None}]}


def operation(**keys: Any) -> dict[str, Any]:
    return {"operations": [{**READ, **keys}]}


def parameter(given: Any) -> dict[str, Any]:
    return operation(statements=[{"sql": "SELECT ?", "parameters": [given]}])


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("oltp", piece(seconds="x"), "workload.profile[0].seconds = 'x': must be a number, above 0"),
        ("oltp", piece(seconds=None), "workload.profile[0].seconds: a number, above 0"),
        (
            "oltp",
            piece(until=1),
            "workload.profile[0].until = 1: no such key; there are seconds, from_ops_s, to_ops_s",
        ),
        ("oltp", piece(from_ops_s=0, to_ops_s=0), "no operation would ever start"),
        ("oltp", {**piece(), "rate": 5}, "workload.profile: already sets the rate"),
        ("oltp", {"profile": [3]}, "workload.profile[0] = 3: must be a table"),
        ("oltp", {"profile": 3}, "workload.profile = 3: must be a list of tables"),
        ("oltp", {"rate": 5, "think_time_s": 1}, "workload.think_time_s = 1: only in a closed loop"),
        ("oltp", {"rate": float("nan")}, "workload.rate = nan: must be a number"),
        ("oltp", {"clients": ["nobody"]}, "workload.clients: target 'nobody': must be local, user@host"),
        ("oltp", {"clients": "local"}, "workload.clients = 'local': must be a list, each a text"),
        ("oltp", {"clients": ["local"] * 2}, "workload.connections = 1: fewer than the 2 clients"),
        ("tpcc", {"times": "specification", "rate": 5}, 'workload.times = "specification": determines when'),
        ("sql", {}, "workload.operations: a list of at least one table is required"),
        ("sql", {"operation": [READ]}, "operations = "),
        ("sql", {"operations": [READ, READ]}, "workload.operations: two have the name 'read'"),
        ("sql", operation(name="connect"), "workload.operations[0].name: 'connect' is the name"),
        ("sql", operation(name="a;b"), "workload.operations[0].name = 'a;b': must be a name of letters"),
        ("sql", operation(weight=0), "workload.operations[0].weight = 0: must be a number, above 0"),
        ("sql", operation(wieght=1), "weight = 1"),
        (
            "sql",
            operation(statements=[]),
            "workload.operations[0].statements = []: must be a list of at least",
        ),
        (
            "sql",
            parameter({"kind": "int", "min": 2, "max": 1}),
            f"{PARAMETER}.max = 1: must be at least min, 2",
        ),
        ("sql", parameter({"kind": "int", "min": 2}), f"{PARAMETER}.max: an integer of at most 64 bits is"),
        (
            "sql",
            parameter({"kind": "int", "min": 2**63, "max": 2**63}),
            f"{PARAMETER}.min = {2**63}: must be",
        ),
        (
            "sql",
            parameter({"kind": "int", "min": 1, "max": 2, "distribution": "zip"}),
            f"{PARAMETER}.distribution",
        ),
        (
            "sql",
            parameter({"kind": "itn"}),
            f"{PARAMETER}.kind = 'itn': must be one of int, float, text, choice",
        ),
        ("sql", parameter({"min": 2}), f"{PARAMETER}.kind: must be one of int, float, text, choice"),
        (
            "sql",
            parameter({"kind": "text", "min_length": 5, "max_length": 4}),
            f"{PARAMETER}.max_length = 4:",
        ),
        (
            "sql",
            parameter({"kind": "choice", "values": []}),
            f"{PARAMETER}.values = []: must be a list of at",
        ),
        (
            "sql",
            parameter({"kind": "choice", "values": [True]}),
            f"{PARAMETER}.values[0] = True: must be a text",
        ),
        ("sql", parameter({"kind": "same", "as": 0}), f"{PARAMETER}.as = 0: must be below 0"),
        ("sql", parameter(7), f"{PARAMETER} = 7: must be a table with kind = int, float"),
        (
            "memcached",
            {"key_bytes": {"min": 9, "max": 3}},
            "workload.key_bytes.max = 3: must be at least min, 9",
        ),
        ("memcached", {"value_bytes": {"kind": "fixed"}}, "workload.value_bytes.bytes: an integer"),
        (
            "memcached",
            {"value_bytes": {"kind": "some"}},
            "workload.value_bytes.kind = 'some': must be one of",
        ),
    ],
)
def test_a_wrong_option_names_its_key(kind: str, options: dict[str, Option], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        make_workload(kind, options)
    assert message in str(caught.value)


def test_the_keys_of_a_table_are_documented_below_it() -> None:
    docs = {doc.name: doc for doc in option_docs("sql")}
    names = list(docs)
    assert names.index("operations") < names.index("  statements") < names.index("    parameters")
    assert names.index("    parameters") < names.index('      kind = "int"') < names.index("        min")
    assert (
        docs["    parameters"].type == "a list of tables with kind = int, float, text, choice, sequence, same"
    )
    assert docs["  name"].default == REQUIRED
    assert "        as" in names  # as a plan writes it


def test_what_is_special_is_documented_before_what_all_have() -> None:
    names = [doc.name for doc in option_docs("oltp")]
    assert names[0] == "script"
    assert names.index("storage_engine") < names.index("connections")


def test_a_default_that_is_a_table_is_shown_as_a_plan_writes_it() -> None:
    defaults = {doc.name: doc.default for doc in option_docs("memcached")}
    assert defaults["value_bytes"] == '{ kind = "fixed", bytes = 100 }'


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_would_be_taken_for_markup(kind: str) -> None:
    """The terminal takes a word in brackets for a colour, and shows nothing of it."""
    for text in (text for doc in option_docs(kind) for text in (doc.name, doc.type, doc.doc)):
        assert Text.from_markup(text).plain == text


@pytest.mark.parametrize("kind", ["oltp", "sql", "tpcc", "memcached"])
def test_the_guide_names_every_option_with_its_default(kind: str) -> None:
    guide = ROOT / "docs" / "reference" / "workloads.md"
    _, _, section = guide.read_text().partition("# Workloads")
    for doc in option_docs(kind):
        key = (doc.name.partition(" = ")[2] or doc.name).strip(' "')
        assert re.search(rf"\b{key}\b", section), doc.name
    for name, default in re.findall(r"^\| `(\w+)` \| `?([^|`]+)`? \|", section, flags=re.MULTILINE):
        known = [doc.default for doc in option_docs(kind) if doc.name == name]
        shown = default.strip().strip('"')
        assert not known or shown in (_written(known[0]), "64M" if name == "memory" else None), name


def _written(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
