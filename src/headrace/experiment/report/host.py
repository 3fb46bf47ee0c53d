"""The host, in a few lines of its facts."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.errors import StoreError, TargetError
from headrace.base.model import Facts as HostFactsRead
from headrace.experiment.report.view import View
from headrace.host.facts import HostFacts
from headrace.show.parts import Facts, Heading, Part, Section, Sentence


def section(view: View) -> Section:
    return Section("host", "Host", "Which host?", lambda: _parts(view))


def _parts(view: View) -> Iterator[Part]:
    hashes = dict.fromkeys(r.facts_hash for r in view.records if r.facts_hash)
    if not hashes:
        yield Sentence("No facts were recorded.")
    for each in hashes:
        if len(hashes) > 1:
            numbers = ", ".join(str(r.number) for r in view.records if r.facts_hash == each)
            yield Heading(f"facts {each[:12]}: trials {numbers}")
        yield Facts(_known(view, each))


def _known(view: View, facts_hash: str) -> list[tuple[str, str]]:
    """A damaged facts file must not break the page."""
    try:
        return _digest(view.folder.facts(facts_hash))
    except StoreError as error:
        return [("facts", f"not known: {error.message}")]


def _digest(facts: HostFactsRead) -> list[tuple[str, str]]:
    """A host with missing facts still gets a report, which names them."""
    try:
        return list(HostFacts(facts).digest())
    except TargetError as error:
        return [("not known", error.message)]
