"""The memcached servers of the host: two lines each, and the core that the network keeps busy."""

from __future__ import annotations

from rich.text import Text

from headrace.host.cores import cores as all_cores
from headrace.hunt import hot_cores
from headrace.hunt.memcached import Cache, caches
from headrace.hunt.top import lines
from headrace.hunt.top.lines import DIM, HOT, WARM, duration, gibibytes, percent, rate
from headrace.hunt.top.shot import Shot
from headrace.show.text import clean

#: Of the connections that it takes, from which on there is hardly room for a restart of its clients.
NEARLY_ALL = 0.8
#: Servers that are shown: the busiest.
MOST_SHOWN = 8


def draw(shot: Shot, width: int) -> list[Text]:
    """Nothing without memcached on the host."""
    found = sorted(caches(shot.facts, shot.now), key=lambda cache: -(cache.requests_s or 0.0))
    if not found:
        runs = any(server.get("program") == "memcached" for server in shot.facts.servers)
        return [Text("memcached  waiting for its statistics", DIM)] if runs else []
    drawn: list[Text] = []
    for cache in found[:MOST_SHOWN]:
        drawn += lines.flow("memcached  ", _parts(cache), width)
    if len(found) > MOST_SHOWN:
        drawn.append(Text(f"memcached  {len(found) - MOST_SHOWN} more", DIM))
    return [*drawn, *_interrupts(shot, width)]


def _parts(cache: Cache) -> list[lines.Cell]:
    name = (clean(cache.name), "bold")
    why = [(clean(f"not read: {cache.why}"), HOT)] if cache.why else []
    if not cache.is_read:
        return [name, *(why or [("waiting for its statistics", DIM)])]
    evictions, hits = cache.rate("evictions"), cache.hit_rate
    used, limit = cache.last("curr_connections"), cache.last("max_connections")
    is_full = bool(limit and used is not None and used >= NEARLY_ALL * limit)
    refused = cache.rate("rejected_connections")
    of_limit = f" of {rate(limit)}" if limit else ""
    answer = cache.answer_s
    parts: list[lines.Cell] = [
        name,
        *why,
        (f"{rate(cache.requests_s)} requests/s", "bold"),
        f"hits {'–' if hits is None else f'{hits:.1%}'}",
        (f"evictions {rate(evictions)}/s", WARM if evictions else DIM),
        (f"connections {rate(used)}{of_limit}", HOT if is_full else ""),
        *([(f"{rate(refused)} refused/s", HOT)] if refused else ()),
        f"{gibibytes(cache.last('bytes'))} of {gibibytes(cache.last('limit_maxbytes'))}",
        f"{rate(cache.cpus)} CPUs",
        (f"answers its own host in {duration(None if answer is None else 1e3 * answer)} ms", DIM),
    ]
    return [*parts, *([("it was restarted", WARM)] if cache.is_restarted else ())]


def _interrupts(shot: Shot, width: int) -> list[Text]:
    """Whether one core serves the network for all: it slows a cache down while the host has room."""
    each = all_cores(shot.now)[1:]
    if len(each) < 2:
        return []
    most = max(each, key=lambda core: core.softirq + core.irq)
    rest = [core for core in each if core is not most]
    mean = sum(core.softirq + core.irq for core in rest) / len(rest)
    is_hot = any(one.core is most and one.by_interrupts for one in hot_cores.hot(each))
    parts: list[lines.Cell] = [
        (
            f"most on core {most.name.removeprefix('cpu')}: {percent(most.softirq + most.irq)} of its time "
            f"({percent(most.busy)} busy)",
            HOT if is_hot else "",
        ),
        f"{percent(mean)} on the other{'s' if len(rest) > 1 else ''}",
        ("5: which", DIM),
    ]
    return lines.flow("interrupts  ", parts, width)
