"""What runs say of how, on what and with which version they were made: repeats may not differ in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from headrace.base.errors import PlanError
from headrace.experiment.foreign.alike import ALIKE, meaning

#: Numbers that were measured, or that hardly matter where they differ by little.
_MEASURED = ("_per_transaction", "_bytes", "_share")
MOST_SHOWN, MOST_LETTERS = 3, 80
#: What a run that does not say it has.
UNKNOWN = "not said"


def brought_along(
    runs: Sequence[tuple[Mapping[str, str], Mapping[str, str], str]],
    factors: Collection[str],
    allowed: Collection[str],
) -> list[str]:
    """A note on each setting that changes with a factor alone.

    ``runs``: what each says of itself, all that is known of it (the levels of ``factors``), and its place. Raises
    PlanError for one that differs between runs of the same levels, which are no repeats of each other.
    """
    notes: list[str] = []
    unlike: dict[str, str] = {}
    for name in sorted({name for about, _, _ in runs for name in about} - {*factors, *allowed}):
        by_levels: dict[tuple[str, ...], dict[str, str]] = {}
        for about, known, place in runs:
            levels = tuple(known.get(factor, "") for factor in factors)
            by_levels.setdefault(levels, {}).setdefault(about.get(name, UNKNOWN), place)
        for levels, own in by_levels.items():
            if len(own) > 1 and not _are_one(name, list(own)):
                said = ", ".join(f"{factor}={level}" for factor, level in zip(factors, levels, strict=True))
                unlike.setdefault(name, f"runs of {said} differ in {name}: {_shown(own)}")
        if name in unlike:
            continue
        values = {value: place for own in by_levels.values() for value, place in own.items()}
        if len(values) > 1 and not _are_one(name, list(values)) and not _is_level(by_levels):
            notes.append(
                f"{name} changes with {' and '.join(factors)} ({_shown(values)}): an effect may be an effect of it"
            )
    if unlike:
        first, *others = unlike
        also = f"; they differ in {', '.join(others)}, too" if others else ""
        allow = " ".join(f"--mixed {name}" for name in unlike)
        raise PlanError(
            unlike[first] + also,
            hint=f"--factor {first} makes it a factor; {allow} compares them all the same",
        )
    return notes


def are_alike(texts: Sequence[str]) -> bool:
    """Whether all are numbers that differ by little."""
    try:
        values = [float(text) for text in texts]
    except ValueError:
        return False
    return min(values) > 0 and max(values) <= (1 + ALIKE) * min(values)


def _are_one(name: str, texts: Sequence[str]) -> bool:
    return len({meaning(text) for text in texts}) == 1 or (name.endswith(_MEASURED) and are_alike(texts))


def _is_level(by_levels: Mapping[tuple[str, ...], Mapping[str, str]]) -> bool:
    """Whether a factor says the same: ``{fsync}`` is 1 where the setting is."""
    return any(
        all(meaning(levels[at]) == meaning(next(iter(own))) for levels, own in by_levels.items())
        for at in range(len(next(iter(by_levels))))
    )


def _shown(values: Mapping[str, str]) -> str:
    """``16 in a.log; 32 in b.log``."""
    shown = [f"{value[:MOST_LETTERS]} in {place}" for value, place in list(values.items())[:MOST_SHOWN]]
    return "; ".join([*shown, "..."] if len(values) > MOST_SHOWN else shown)
