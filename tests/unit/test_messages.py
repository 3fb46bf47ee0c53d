"""Messages in numbers and names: one thing has no plural, and a place is named once."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

import pytest

from headrace.base.counted import counted
from headrace.base.errors import HeadraceError, placed
from tests.folders import ROOT


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (1, ("host",), "1 host"), (0, ("host",), "0 hosts"), (2, ("class", "classes"), "2 classes"),
        (1, ("class", "classes"), "1 class"), (12_345, ("row",), "12,345 rows"),
    ],
)  # fmt: skip
def test_numbers_of_things(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


@pytest.mark.parametrize(
    ("place", "message", "text"),
    [
        ("db1", "no route", "db1: no route"),
        ("127.0.0.11", "127.0.0.11: connection refused", "127.0.0.11: connection refused"),
        ("db1", "db1 does not answer", "db1 does not answer"),
        ("db1", "db10: no route", "db1: db10: no route"),
        ("db1", "db1", "db1"),
        (None, "no route", "no route"),
        ("", "no route", "no route"),
    ],
)
def test_a_place_is_named_once(place: str | None, message: str, text: str) -> None:
    assert placed(place, message) == text
    assert str(HeadraceError(message, place=place)) == text


SOURCE = ROOT / "src" / "headrace"

ONE = re.compile(
    r"(?:^|[\"'( ])1 (?:more )?(?:hosts|trials|classes|statements|points|blocks|sessions|connections|levels|cells|"
    r"servers|pairs|files|devices|processes|threads|predictions|times|warnings)\b(?! (?:\+|=))"
)
#: What the agent says, and what tells of a text of before.
LEFT = {"tests/unit/test_digests.py", "tests/unit/test_import.py", "tests/unit/test_messages.py"}


def test_no_expected_text_has_one_of_several() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("tests/unit", "tests/rules", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md") and str(path.relative_to(ROOT)) not in LEFT
        for line in path.read_text().splitlines()
        for match in ONE.finditer(line)
    ]
    assert not found


#: What is counted in messages. Times and sizes have their own words.
NOUNS = (
    "hosts|trials|classes|statements|points|blocks|sessions|connections|levels|cells|servers|"
    "pairs|files|devices|processes|threads|predictions|warnings|rows|lines|events|calls|"
    "rules|looks|queries|runs|rollouts|turns|passes|treatments|snapshots|queues|candidates|"
    "tables|indexes|replicas|nodes|errors|samples|weeks|days|objects|packages|databases|"
    "observations|stacks|members|jobs|clients|rounds|operations|experiments|knobs|values|columns|"
    "instances|sorts|consumers|plays"
)
AFTER = re.compile(
    rf"^ (?:(?:more|other|older|rarer|control|earlier|receive) )*({NOUNS})\b(?!/)(?! (?:on|with) )"
)
#: A condition on the number itself: the singular is worded elsewhere, or cannot occur.
KNOWS = re.compile(r"== 1|!= 1|> 1\b|>= 2|> [A-Z]{2}|> most|< ")
#: Numbers with the names of many things that may be of one, by file: each until it is gone.
STILL = {
    "experiment/stats/audit.py": 1,
    "experiment/stats/headline.py": 3,
    "experiment/stats/study.py": 1,
    "change/verify.py": 1,
    "change/beyond.py": 1,
    "traffic/commands/digest.py": 2,
    "traffic/digests/lines.py": 1,
    "experiment/kinds/decided.py": 2,
    "experiment/pool.py": 1,
    "experiment/runner.py": 1,
    "experiment/foreign/alike.py": 1,
    "experiment/foreign/clocks.py": 1,
    "experiment/foreign/drawn.py": 1,
    "experiment/foreign/failures.py": 1,
    "experiment/foreign/outputs.py": 1,
    "experiment/foreign/shapes.py": 3,
    "experiment/foreign/table.py": 2,
    "indexes/copies.py": 1,
    "experiment/plan/tables.py": 1,
    "change/production/digested.py": 1,
    "change/production/histograms.py": 2,
    "base/received.py": 1,
    "traffic/report/words.py": 1,
    "experiment/report/effects/choices.py": 1,
    "experiment/report/effects/words.py": 1,
    "rollout/report/expected.py": 1,
    "experiment/report/method.py": 1,
    "experiment/report/numbers.py": 1,
    "experiment/report/settle.py": 1,
    "experiment/report/switchback.py": 1,
    "experiment/report/trials.py": 1,
    "experiment/report/history/page.py": 1,
    "experiment/report/history/words.py": 3,
    "hunt/top/lists.py": 1,
    "experiment/report/proof.py": 1,
    "rollout/report/rollout.py": 5,
    "capacity/report/full.py": 1,
    "experiment/report/tune/words.py": 3,
    "hunt/rules/capacity.py": 1,
    "hunt/rules/cpu.py": 2,
    "hunt/rules/interrupts.py": 1,
    "hunt/rules/md.py": 3,
    "hunt/rules/planning.py": 2,
    "hunt/rules/queues.py": 1,
    "hunt/rules/replication.py": 1,
    "capacity/demand.py": 1,
    "capacity/plan.py": 1,
    "rollout/expected.py": 2,
    "experiment/workloads/drive/lines.py": 1,
    "experiment/workloads/tables.py": 1,
}


def uncounted(source: str) -> Iterator[tuple[int, str]]:
    """Whole numbers in f-strings with a noun in the plural behind them, whatever the number is."""
    tree = ast.parse(source)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for number, text in itertools.pairwise(node.values):
            if not (isinstance(number, ast.FormattedValue) and isinstance(text, ast.Constant)):
                continue
            form = ast.unparse(number.format_spec).strip("f'\"") if number.format_spec else ""
            name = ast.unparse(number.value)
            is_fixed = re.fullmatch(r"[a-z.]*[A-Z][A-Z_0-9]+", name) or name.endswith(("name", "counted"))
            if form not in ("", ",") or is_fixed or not AFTER.match(str(text.value)):
                continue
            if not any(KNOWS.search(test) for test in _tests_above(node, above)):
                yield node.lineno, f"{{{name}}}{str(text.value)[:30]}"


def _tests_above(node: ast.AST, above: dict[ast.AST, ast.AST]) -> Iterator[str]:
    while node in above and not isinstance(node, ast.FunctionDef):
        node = above[node]
        if isinstance(node, ast.If | ast.IfExp):
            yield ast.unparse(node.test)


def test_numbers_of_things_go_through_one_place() -> None:
    found = {
        str(path.relative_to(SOURCE)): list(uncounted(path.read_text()))
        for path in sorted(SOURCE.rglob("*.py"))
    }
    counts = {path: len(lines) for path, lines in found.items() if lines}
    more = {path: found[path] for path, count in counts.items() if count > STILL.get(path, 0)}
    assert not more, f"headrace.base.counted.counted(number, 'noun'): {more}"
    assert counts == STILL, "fewer than before: shorten the list"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('f"{len(x)} hosts"', 1), ('f"{n:,} rows of {m} tables"', 2), ('f"{share:.1f} calls"', 0),
        ('f"{n} hosts" if n > 1 else "one"', 0), ('f"{MOST} hosts"', 0), ('f"{rate} rows/s"', 0),
    ],
)  # fmt: skip
def test_a_number_without_its_place_would_be_found(source: str, count: int) -> None:
    assert len(list(uncounted(source))) == count
