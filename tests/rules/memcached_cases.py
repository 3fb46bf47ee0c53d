"""Cases of the rules about what memcached keeps."""

from __future__ import annotations

from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Severity
from tests.rules.caches import NAME, cached, process
from tests.rules.case import Case
from tests.rules.hosts import GIB, healthy, unwell

MIB = 1 << 20
YOUNG = {7: {"evicted": 400.0, "evicted_time": 90.0, "chunk_size": 384.0, "total_pages": 1000.0}}
OLD = {7: {**YOUNG[7], "evicted_time": 400_000.0}}
IDLE = {30: {"chunk_size": 20_000.0, "free_chunks": 20_000.0, "total_pages": 400.0, "evicted": 0.0}}
LARGE = {
    40: {"chunk_size": 300_000.0, "number": 100.0, "mem_requested": 3e7, "get_hits": 30.0, "evicted": 0.0},
}
TWICE = {"memory.MemTotal.": 64.0 * GIB}
SECOND = {
    "pid": 4712,
    "name": "10.0.0.5:11212",
    "why": "no answer within 3 s",
    "version": None,
    "settings": {},
    "is_restarted": False,
    "connections": None,
}


def unread() -> Evidence:
    """An older snapshot, whose headrace did not ask memcached."""
    return unwell(has_server=False, facts={"servers": [process()]})


SLOW = f"{NAME}: no answer within 3 s"

CASES = [
    Case(
        "MEMC01",
        "young items",
        cached({"evictions": 400.0}, classes=YOUNG),
        (NAME,),
        (f"{NAME} evicts 400 items/s, some 90 s after they were last used.",),
        steps=("-m, now 1,024", "printf 'stats items\\r\\nquit\\r\\n' | nc 10.0.0.5 11211"),
        severity=None,
    ),
    Case("MEMC01", "old items", cached({"evictions": 400.0}, classes=OLD)),
    Case("MEMC01", "the odd one", cached({"evictions": 0.2}, classes=YOUNG)),
    Case("MEMC01", "no memcached", healthy),
    Case("MEMC01", "not asked", unread, missing="its statistics were not read"),
    Case("MEMC01", "does not answer", cached(without="*", why="no answer within 3 s"), missing=SLOW),
    Case(
        "MEMC01",
        "one of two does not answer",
        cached({"evictions": 400.0}, classes=YOUNG, beside=(SECOND,)),
        (NAME,),
    ),
    Case(
        "MEMC01",
        "the other one may",
        cached(beside=(SECOND,)),
        missing="10.0.0.5:11212: no answer within 3 s",
    ),
    Case(
        "MEMC01",
        "restarted in the window",
        cached(without=("evictions",), is_restarted=True),
        missing=f"{NAME}: evictions was not read twice: it was restarted in the window",
    ),
    Case(
        "MEMC02",
        "pages elsewhere",
        cached({"evictions": 400.0}, classes=YOUNG | IDLE),
        (NAME,),
        ("evicts 400 items/s of slab class 7 while other classes hold 381 MiB free, 37% of its memory.",),
        steps=("slabs reassign 30 7",),
    ),
    Case(
        "MEMC02",
        "no automove",
        cached({"evictions": 400.0}, classes=YOUNG | IDLE, settings={"slab_automove": "0"}),
        (NAME,),
        steps=("slab_automove=1",),
    ),
    Case("MEMC02", "full everywhere", cached({"evictions": 400.0}, classes=YOUNG)),
    Case("MEMC02", "nobody evicts", cached(classes=IDLE)),
    Case(
        "MEMC03",
        "never read",
        cached({"evictions": 400.0, "evicted_unfetched": 300.0}, classes=OLD),
        (NAME,),
        ("75% of 400 evicted items/s were never read",),
        steps=("watch evictions",),
    ),
    Case("MEMC03", "read before", cached({"evictions": 400.0, "evicted_unfetched": 90.0}, classes=OLD)),
    Case(
        "MEMC04",
        "never read",
        cached({"expired_unfetched": 150.0}),
        (NAME,),
        ("150 items/s expire and were never read; 220 are stored.",),
    ),
    Case("MEMC04", "few of them", cached({"expired_unfetched": 20.0})),
    Case(
        "MEMC05",
        "other keys",
        cached({"get_hits": 2_000.0, "get_misses": 3_000.0, "cmd_set": 2_900.0}),
        (NAME,),
        ("40% of gets hit, 96% did before: 3,000 misses/s.",),
        steps=("watch fetchers",),
    ),
    Case("MEMC05", "as before", cached()),
    Case("MEMC05", "just started", cached(starts={"cmd_get": 0.0, "get_hits": 0.0}, rates={"get_hits": 1.0})),
    Case(
        "MEMC06",
        "asked for and not stored",
        cached({"get_hits": 1_000.0, "get_misses": 4_000.0, "cmd_set": 100.0}),
        (NAME,),
        # 2.5 for 100: rounded half to even.
        ("80% of gets miss, and for 100 misses 2 items are stored.",),
    ),
    Case("MEMC06", "stored", cached({"get_hits": 1_000.0, "get_misses": 4_000.0, "cmd_set": 3_900.0})),
    Case(
        "MEMC07",
        "refused",
        cached({"store_too_large": 0.5}),
        (NAME,),
        ("refused 30 values larger than item_size_max (1 MiB).",),
        steps=("-I 4m",),
    ),
    Case("MEMC07", "none", cached()),
    Case(
        "MEMC08",
        "few and large",
        cached({"bytes_written": 10e6}, classes=LARGE),
        (NAME,),
        ("0.62% of hits are items of 64 KiB and more; they are 90% of the 9.54 MiB/s that it sends.",),
    ),
    Case("MEMC08", "beside much else", cached({"bytes_written": 80e6}, classes=LARGE)),
    Case(
        "MEMC08",
        "nothing else",
        cached({"bytes_written": 10e6, "get_hits": 40.0}, classes=LARGE),
    ),
    Case(
        "MEMC09",
        "the host",
        cached(values={"limit_maxbytes": 62.0 * GIB}),
        (NAME,),
        ("may store 62 GiB, and this host has 62.7 GiB.",),
    ),
    Case(
        "MEMC09",
        "its control group",
        cached(server={"cgroup": {"memory_max_bytes": GIB}}),
        (NAME,),
        ("may store 1 GiB, and its control group has 1 GiB.",),
    ),
    Case("MEMC09", "room", cached()),
    Case("MEMC09", "does not answer", cached(without="*", why="no answer within 3 s"), missing=SLOW),
    Case(
        "MEMC10",
        "read back",
        cached(server={"swap_bytes": 300 * MIB}, host={"vmstat.pswpin.": 80.0}),
        (NAME,),
        (f"300 MiB of {NAME} is in swap, and 80 pages/s are read back on this host.",),
        severity=Severity.LIMIT,
    ),
    Case(
        "MEMC10",
        "never read back",
        cached(server={"swap_bytes": 300 * MIB}),
        (NAME,),
        (f"300 MiB of {NAME} is in swap.",),
        severity=Severity.RISK,
    ),
    Case("MEMC10", "resident", cached()),
    Case("MEMC10", "not known", cached(server={"swap_bytes": None}), missing="was not read"),
    Case(
        "MEMC11",
        "no evictions",
        cached({"store_no_memory": 20.0}, settings={"evictions": "off"}),
        (NAME,),
        ("refused 1,200 writes for lack of memory.",),
        steps=("without -M",),
    ),
    Case(
        "MEMC11",
        "a class without a page",
        cached(classes={7: {**YOUNG[7], "evicted": 0.0, "outofmemory": 2.0}}),
        (NAME,),
        ("refused 120 writes",),
        steps=("outofmemory",),
    ),
    Case("MEMC11", "none", cached()),
    Case(
        "MEMC12",
        "no crawler",
        cached(settings={"lru_crawler": "no"}),
        (NAME,),
        ("runs without lru_crawler.",),
        steps=("-o no_lru_crawler",),
    ),
    Case(
        "MEMC12",
        "neither",
        cached(settings={"lru_crawler": "no", "lru_maintainer_thread": "no"}),
        (NAME,),
        steps=("-o no_lru_crawler,no_lru_maintainer",),
    ),
    Case("MEMC12", "both on", cached()),
    Case(
        "MEMC12",
        "an old version",
        cached(settings={"lru_maintainer_thread": None}),
        missing=f"{NAME} has no setting lru_maintainer_thread",
    ),
    Case(
        "MEMC13",
        "long chains",
        cached(values={"curr_items": 1_500_000.0, "hash_power_level": 16.0}),
        (NAME,),
        ("22.9 items in each bucket",),
        steps=("hashpower=21",),
    ),
    Case(
        "MEMC13",
        "growing now",
        cached(values={"curr_items": 1e6, "hash_power_level": 16.0, "hash_is_expanding": 1.0}),
    ),
    Case("MEMC14", "flushed", cached({"cmd_flush": 0.05}), (NAME,), ("was flushed 3 times in the window.",)),
    Case("MEMC14", "not flushed", cached()),
]
