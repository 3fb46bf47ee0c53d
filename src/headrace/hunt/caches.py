"""The memcached servers of the evidence, for rules about them: each is looked at for itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator

from headrace.hunt.memcached import Cache
from headrace.hunt.memcached import caches as all_caches
from headrace.hunt.rules.evidence import Evidence, NotEnough
from headrace.hunt.rules.rule import Match, Remedy

#: Sources that most of these rules cite.
PROTOCOL = "memcached, doc/protocol.txt"
MANUAL = "memcached(1)"


def known(evidence: Evidence) -> list[Cache]:
    """All that the snapshot names, read or not; empty without memcached.

    Raises NotEnough if one runs there and nobody asked it: an older snapshot, or a trial.
    """
    # A server alone was asked by SQL: its host, and what else runs there, is not known.
    if not evidence.has_host:
        return []
    found = list(all_caches(evidence.facts, evidence.window))
    if not found and any(server.get("program") == "memcached" for server in evidence.facts.servers):
        raise NotEnough("memcached runs on this host, and its statistics were not read")
    return found


def of_each(
    evidence: Evidence, check: Callable[[Cache], Iterable[Match]], *, known_already: Iterable[Match] = ()
) -> Iterator[Match]:
    """What ``check`` yields for each server that was read, after what is ``known_already`` of others.

    One that lacks a number does not silence the others; NotEnough is raised where nothing is found and one of them
    could not be judged.
    """
    missing = ""
    first = list(known_already)
    yield from first
    is_found = bool(first)
    named = {hit.subject for hit in first}
    for cache in known(evidence):
        if cache.name in named:
            continue
        if not cache.is_read:
            missing = missing or f"{cache.name}: {cache.why or 'not read'}"
            continue
        try:
            hits = list(check(cache))
        except NotEnough as error:
            missing = missing or str(error)
            continue
        is_found = is_found or bool(hits)
        yield from hits
    if missing and not is_found:
        raise NotEnough(missing)


def rate(cache: Cache, metric: str) -> float:
    """A counter's growth per second. Raises NotEnough."""
    return _needed(cache, metric, cache.rate(metric))


def growth(cache: Cache, metric: str) -> float:
    """A counter's growth over the window. Raises NotEnough."""
    return _needed(cache, metric, cache.growth(metric))


def last(cache: Cache, metric: str) -> float:
    """The newest value. Raises NotEnough."""
    return _needed(cache, metric, cache.last(metric))


def setting(cache: Cache, name: str) -> str:
    """As ``stats settings`` has it. Raises NotEnough."""
    if name not in cache.settings:
        raise NotEnough(f"{cache.name} has no setting {name} (stats settings)")
    return cache.settings[name]


def setting_number(cache: Cache, name: str) -> float:
    """A setting that is a number. Raises NotEnough."""
    text = setting(cache, name)
    try:
        return float(text)
    except ValueError:
        raise NotEnough(f"{cache.name}: {name} is {text!r}, not a number") from None


def _needed(cache: Cache, metric: str, value: float | None) -> float:
    if value is None:
        why = "it was restarted in the window" if cache.is_restarted else cache.why
        raise NotEnough(f"{cache.name}: {metric} was not read twice" + (f": {why}" if why else ""))
    return value


def by_hand(*steps: str, label: str = "") -> Remedy:
    """What a person does: no knob changes memcached."""
    return Remedy(steps=steps, label=label)


def look(cache: Cache, what: str = "") -> str:
    """The command that shows a person the same statistics."""
    host, _, port = cache.name.rpartition(":")
    is_path = cache.name.startswith("/")
    where = f"-U {shlex.quote(cache.name)}" if is_path else f"{host.strip('[]')} {port}"
    return f"printf 'stats{f' {what}' if what else ''}\\r\\nquit\\r\\n' | nc {where}"
