"""Of a dump: what was read from where, what is missing, and what was not read."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.hunt.hunt import Hunt
from headrace.show.parts import Facts, Gap, Part, Section, Sentence

#: Files that were not read, shown in a terminal.
MOST_UNREAD = 8


def sections(hunt: Hunt) -> list[Section]:
    """One section for a dump; none where the agent watched."""
    origin = hunt.snapshot.origin
    if origin is None:
        return []
    return [
        Section(
            "origin",
            "Read",
            "What was read",
            list(_parts(hunt)),
            "Rules were evaluated on what these files have.",
            brief=[*_parts(hunt, MOST_UNREAD), Gap()],
            data={
                "read": [{"what": what, "where": where} for what, where in origin.read],
                "missing": list(origin.missing),
                "cautions": list(origin.cautions),
                "unread": list(origin.unread),
            },
        )
    ]


def footer(hunt: Hunt) -> str:
    if hunt.snapshot.origin is not None:
        return "read from what others saved; no host was asked"
    what = "server" if hunt.evidence.facts.only_sql else "host"
    return f"sampled once a second; nothing on the {what} was changed"


def _parts(hunt: Hunt, most: int | None = None) -> Iterator[Part]:
    origin = hunt.snapshot.origin
    assert origin is not None
    yield Sentence("Read:", "strong")
    yield Facts([(what, where) for what, where in origin.read])
    if origin.missing:
        yield Sentence("Missing; with it more rules would be evaluated:", "strong")
        for text in origin.missing:
            yield Sentence(f"  {text}", "aside")
    if origin.unread:
        yield Sentence("Not read:", "strong")
        for text in origin.unread[:most]:
            yield Sentence(f"  {text}", "aside")
        if most is not None and len(origin.unread) > most:
            yield Sentence(f"  and {len(origin.unread) - most} more: --json names all", "aside")
