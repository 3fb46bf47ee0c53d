"""Rules about what memcached keeps: evictions, slab classes, expiry, hit rate, sizes and the memory for it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.hunt.caches import MANUAL, PROTOCOL, by_hand, growth, known, last, look, of_each, rate, setting
from headrace.hunt.memcached import Cache, SlabClass
from headrace.hunt.rules.evidence import MIB, Evidence, NotEnough, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Severity, rule

#: Items per second that are more than the odd one.
SOME_S = 1.0
#: An item that was used within this time would probably have been used again.
YOUNG_S = 3600.0
#: Memory that other classes hold free, as a share of all: a page is 1 MiB, so less than a few pages says nothing.
IDLE_SHARE, IDLE_BYTES = 0.1, 3 * MIB
#: Shares of items that leave without having been read.
MOSTLY, MANY = 0.5, 0.3
#: Fewer gets than this make no hit rate.
SOME_GETS, GETS_BEFORE = 1_000, 10_000
#: How much a hit rate falls that is no chance, and below which most gets find nothing.
FALL, LOW_HITS = 0.1, 0.5
#: Stored per miss, below which clients do not store what they had to fetch elsewhere.
STORED = 0.5
#: Items above this size take a worker longer to send than all of a small request.
LARGE_BYTES = 64 * 1024
#: Memory that the caches of a host may take of it, so that the kernel and connections keep some.
OF_MEMORY = 0.9
#: Items per bucket at which the table grows, and at which it cannot have grown: assoc.c.
FULL_TABLE = 3.0


@rule(
    "MEMC01",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{PROTOCOL}, Item statistics: evicted, evicted_time, age",
    refute="With more memory, as many items are evicted as young, or the hit rate stays as it is.",
)
def evicts_young_items(evidence: Evidence) -> Iterator[Match]:
    """Items are evicted soon after they were last used.

    memcached drops the item that was unused for longest to make room for a new one. evicted_time says how long
    that was: minutes mean that items are dropped which would probably have been asked for again, and each costs
    a query of the database behind. Days mean that eviction costs nothing.
    """

    def check(cache: Cache) -> Iterator[Match]:
        evictions = rate(cache, "evictions")
        if evictions < SOME_S:
            return
        evicting = [each for each in cache.classes if (each.rate("evicted") or 0.0) > 0]
        ages = [(age, each) for each in evicting if (age := each.last("evicted_time")) is not None]
        if not ages:
            raise NotEnough(f"{cache.name}: evicted_time of its slab classes was not read (stats items)")
        age, youngest = min(ages, key=lambda pair: pair[0])
        if age >= YOUNG_S:
            return
        limit = last(cache, "limit_maxbytes")
        yield Match(
            cache.name,
            f"{cache.name} evicts {evictions:,.0f} items/s, some {age:,.0f} s after they were last used.",
            (
                number("evictions/s", evictions, ",.1f"),
                number("slab class", youngest.number),
                number("evicted_time, s", age, ",.0f"),
                number("limit_maxbytes", size(limit)),
                number("items", last(cache, "curr_items"), ",.0f"),
            ),
            (
                by_hand(
                    f"Start it with more memory: -m, now {limit / MIB:,.0f}.",
                    f"Watch evicted_time: {look(cache, 'items')}",
                    label="more memory",
                ),
                by_hand("Store less: shorter lifetimes, smaller or compressed values.", label="fewer bytes"),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC02",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{PROTOCOL}, Slab statistics: free_chunks; {MANUAL}, slab_reassign, slab_automove; slab_automove.c",
    refute="With pages moved to the class that evicts, its evictions go on at the same rate.",
)
def slabs_are_unbalanced(evidence: Evidence) -> Iterator[Match]:
    """A slab class evicts while others hold free memory.

    Memory is given to classes of item sizes page by page. When the sizes of what clients store change, the old
    classes keep their pages and the new one has to evict with most of the memory free. slab_automove moves pages,
    but only away from classes with free pages, some seconds apart.
    """

    def check(cache: Cache) -> Iterator[Match]:
        classes = cache.classes
        starving = [each for each in classes if _lost(each) >= SOME_S]
        if not starving:
            rate(cache, "evictions")  # raises NotEnough
            return
        idle = [(_free(each), each) for each in classes if each not in starving]
        free = sum(part for part, _ in idle)
        limit = last(cache, "limit_maxbytes")
        if free < max(IDLE_SHARE * limit, IDLE_BYTES):
            return
        most, holder = max(idle, key=lambda pair: pair[0])
        worst = max(starving, key=_lost)
        moves = setting(cache, "slab_automove")
        yield Match(
            cache.name,
            f"{cache.name} evicts {_lost(worst):,.0f} items/s of slab class {worst.number} while other classes "
            f"hold {size(free)} free, {share(free / limit)} of its memory.",
            (
                number(f"class {worst.number}, evicted and refused/s", _lost(worst), ",.1f"),
                number(f"class {worst.number}, pages", worst.last("total_pages") or 0, ",.0f"),
                number(f"class {holder.number}, free", size(most)),
                number("free in other classes", size(free)),
                number("slab_automove", moves),
                number("slab_reassign", cache.settings.get("slab_reassign", "unknown")),
            ),
            (
                by_hand(
                    f"Move pages now: slabs reassign {holder.number} {worst.number}, repeated per page; then "
                    f"{look(cache, 'slabs')}",
                    "This needs slab_reassign, which is on since 1.5 unless -o no_slab_reassign is given.",
                    label="pages",
                ),
                by_hand(
                    "Start it with -o slab_automove=1."
                    if moves == "0"
                    else "Restart it: the pages are given out anew, by the sizes that are stored today.",
                    label="automove" if moves == "0" else "restart",
                ),
            ),
        )

    yield from of_each(evidence, check)


def _lost(each: SlabClass) -> float:
    """Items per second that a class had no room for."""
    return (each.rate("evicted") or 0.0) + (each.rate("outofmemory") or 0.0)


def _free(each: SlabClass) -> float:
    return (each.last("free_chunks") or 0.0) * (each.last("chunk_size") or 0.0)


@rule(
    "MEMC03",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{PROTOCOL}: evicted_unfetched, evictions",
    refute="Without storing these, the hit rate falls: they would have been asked for later.",
)
def evicts_what_nobody_read(evidence: Evidence) -> Iterator[Match]:
    """Most evicted items were never read.

    They took the room of others, and the work to make and send them, for nothing: bulk loads, crawlers, keys that
    hold a time or a session that does not return.
    """

    def check(cache: Cache) -> Iterator[Match]:
        evictions, unread = rate(cache, "evictions"), rate(cache, "evicted_unfetched")
        if evictions < SOME_S or unread < MOSTLY * evictions:
            return
        yield Match(
            cache.name,
            f"{cache.name}: {share(unread / evictions)} of {evictions:,.0f} evicted items/s were never read.",
            (
                number("evictions/s", evictions, ",.1f"),
                number("evicted_unfetched/s", unread, ",.1f"),
                number("cmd_set/s", rate(cache, "cmd_set"), ",.1f"),
            ),
            (
                by_hand(
                    "Find who stores them: the memcached command `watch evictions` prints keys and their age.",
                    "Do not store what is asked for once, or give it a short lifetime.",
                ),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC04",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{PROTOCOL}: expired_unfetched, total_items",
    refute="With a longer lifetime, or without storing these, neither the hit rate nor sets change.",
)
def expires_what_nobody_read(evidence: Evidence) -> Iterator[Match]:
    """Many items expire without having been read.

    Their lifetime is shorter than the time to the next get, so that each is made and stored for nothing; or nobody
    asks for them at all. The crawler counts them when it takes them away, which may be later.
    """

    def check(cache: Cache) -> Iterator[Match]:
        unread, stored = rate(cache, "expired_unfetched"), rate(cache, "total_items")
        if unread < SOME_S or unread < MANY * stored:
            return
        yield Match(
            cache.name,
            f"{cache.name}: {unread:,.0f} items/s expire and were never read; {stored:,.0f} are stored.",
            (
                number("expired_unfetched/s", unread, ",.1f"),
                number("stored/s", stored, ",.1f"),
                number("get_expired/s", cache.rate("get_expired") or 0.0, ",.1f"),
            ),
            (
                by_hand(
                    "If clients ask for them afterwards (get_expired grows): give them a longer lifetime.",
                    f"If they do not: do not store them. {look(cache)}",
                ),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC05",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{PROTOCOL}: cmd_get, get_hits, get_misses, get_flushed, get_expired",
    refute="The misses of the window are keys that the application asks for only once, whatever is cached.",
)
def hit_rate_fell(evidence: Evidence) -> Iterator[Match]:
    """The hit rate is much lower than it was since the server's start.

    What misses is asked of the database instead. A release that changes how keys are made, a flush, a restart of
    part of a pool or a change of the servers' list does this at once; it passes when the cache is warm again, or
    does not if the new keys never repeat.
    """

    def check(cache: Cache) -> Iterator[Match]:
        gets = growth(cache, "cmd_get")
        now, before = cache.hit_rate, cache.hit_rate_before
        if now is None or gets < SOME_GETS or before is None or before[1] < GETS_BEFORE:
            return
        if before[0] - now < FALL:
            return
        misses = rate(cache, "get_misses")
        yield Match(
            cache.name,
            f"{cache.name}: {share(now)} of gets hit, {share(before[0])} did before: {misses:,.0f} misses/s.",
            (
                number("hit rate", share(now)),
                number("hit rate before", share(before[0])),
                number("gets before", before[1], ",.0f"),
                number("misses/s", misses, ",.1f"),
                number("evictions/s", cache.rate("evictions") or 0.0, ",.1f"),
                number("cmd_flush", cache.growth("cmd_flush") or 0.0, ",.0f"),
            ),
            (
                by_hand(
                    "See which keys miss: the memcached command `watch fetchers` prints keys and whether they "
                    "were found (status not_found), by their prefix.",
                    "Compare them with those of before the last release, and the clients' lists of servers.",
                ),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC06",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{PROTOCOL}: get_misses, cmd_set, cmd_touch",
    refute="With what missed stored, the hit rate stays: each key is asked for only once.",
)
def misses_are_not_stored(evidence: Evidence) -> Iterator[Match]:
    """Most gets find nothing, and clients do not store what they then fetch elsewhere.

    A cache in front of a database is filled by its misses. Where far fewer items are stored than missed, the same
    keys miss again: an answer of "nothing there" is not cached, values are refused as too large, or the client
    writes to another server than it reads from.
    """

    def check(cache: Cache) -> Iterator[Match]:
        gets, misses = growth(cache, "cmd_get"), growth(cache, "get_misses")
        sets = growth(cache, "cmd_set")
        if gets < SOME_GETS or misses < (1 - LOW_HITS) * gets or sets >= STORED * misses:
            return
        yield Match(
            cache.name,
            f"{cache.name}: {share(misses / gets)} of gets miss, and for 100 misses {100 * sets / misses:,.0f} "
            "items are stored.",
            (
                number("gets/s", rate(cache, "cmd_get"), ",.1f"),
                number("misses/s", rate(cache, "get_misses"), ",.1f"),
                number("sets/s", rate(cache, "cmd_set"), ",.1f"),
            ),
            (
                by_hand(
                    "Find the keys: the memcached command `watch fetchers` prints those that were not found.",
                    "Store that nothing is there, too, with a short lifetime; compare the servers that clients "
                    "read from with those that they write to.",
                ),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC07",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{PROTOCOL}: store_too_large; {MANUAL}, -I",
    refute="With a larger -I the items are stored, but nobody asks for them.",
)
def items_are_too_large(evidence: Evidence) -> Iterator[Match]:
    """Values are refused because they are larger than item_size_max.

    Many clients ignore that error, so that every get of such a key misses and the value is made again each time.
    """

    def check(cache: Cache) -> Iterator[Match]:
        refused = growth(cache, "store_too_large")
        if refused <= 0:
            return
        limit = cache.settings.get("item_size_max", "")
        shown = size(float(limit)) if limit.isdecimal() else "unknown"
        yield Match(
            cache.name,
            f"{cache.name} refused {refused:,.0f} values larger than item_size_max ({shown}).",
            (
                number("store_too_large", refused, ",.0f"),
                number("since its start", last(cache, "store_too_large"), ",.0f"),
                number("item_size_max", shown),
            ),
            (
                by_hand("Compress or split these values in the client.", label="smaller values"),
                by_hand("Start it with a larger -I, such as -I 4m.", label="larger items"),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC08",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{PROTOCOL}, Slab statistics: get_hits; Item statistics: mem_requested, number",
    refute="With these values compressed or split, the p99 of small gets is equivalent.",
)
def large_items_take_the_time(evidence: Evidence) -> Iterator[Match]:
    """Most of what is sent are large items.

    A worker thread serves many connections, one after the other. While it sends a value of hundreds of kilobytes,
    which takes several turns, small gets on its other connections wait, and the network card is filled by few
    requests.
    """

    def check(cache: Cache) -> Iterator[Match]:
        sent = rate(cache, "bytes_written")
        large = [
            (hits * item, hits, each)
            for each in cache.classes
            if (item := each.item_bytes) is not None
            and item >= LARGE_BYTES
            and (hits := each.rate("get_hits") or 0.0) > 0
        ]
        by_large, hits = sum(part for part, _, _ in large), sum(part for _, part, _ in large)
        gets = rate(cache, "get_hits")
        if not large or sent < MIB or by_large < MOSTLY * sent or hits >= MOSTLY * gets:
            return
        _, _, most = max(large, key=lambda each: each[0])
        yield Match(
            cache.name,
            f"{cache.name}: {share(hits / gets)} of hits are items of {size(LARGE_BYTES)} and more; they are "
            f"{share(min(by_large / sent, 1.0))} of the {size(sent)}/s that it sends.",
            (
                number("sent/s", size(sent)),
                number("hits of large items/s", hits, ",.1f"),
                number("hits/s", gets, ",.1f"),
                number(f"class {most.number}, mean item", size(most.item_bytes)),
            ),
            (
                by_hand("Compress or split these values in the client.", label="smaller values"),
                by_hand("Give them a memcached of their own.", label="apart"),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC09",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=f"{MANUAL}, -m: item memory alone; buffers of connections and the hash table come on top",
    refute="With all of its items stored, the host neither swaps nor kills a process.",
)
def memory_is_promised_twice(evidence: Evidence) -> Iterator[Match]:
    """Caches may grow beyond the memory that there is.

    -m limits items alone; the hash table and the buffers of connections come on top. A cache fills slowly, so that
    this shows weeks after a start: then memory is swapped, which makes every get as slow as a disk, or the kernel
    kills the process and all of its items are lost.
    """
    found = [cache for cache in known(evidence) if cache.last("limit_maxbytes") is not None]
    unread = [cache for cache in known(evidence) if cache not in found]
    total = evidence.memory_bytes() if found or unread else 0.0
    need = {cache.name: last(cache, "limit_maxbytes") + (cache.last("hash_bytes") or 0.0) for cache in found}
    is_found = False
    for cache in found:
        limit = (cache.process.get("cgroup") or {}).get("memory_max_bytes")
        if isinstance(limit, int | float) and 0 < limit < total and need[cache.name] > OF_MEMORY * limit:
            is_found = True
            yield _too_much(cache.name, f"{cache.name} may", need[cache.name], limit, "its control group")
    if (asked := sum(need.values())) > OF_MEMORY * total > 0:
        is_found = True
        one = len(found) == 1
        who = f"{found[0].name} may" if one else f"{len(found)} memcached servers together may"
        yield _too_much(found[0].name if one else "", who, asked, total, "this host")
    if unread and not is_found:
        raise NotEnough(f"{unread[0].name}: {unread[0].why or 'not read'}")


def _too_much(subject: str, who: str, asked: float, there: float, place: str) -> Match:
    return Match(
        subject,
        f"{who} store {size(asked)}, and {place} has {size(there)}.",
        (number("-m and hash table", size(asked)), number("memory", size(there))),
        (
            by_hand(
                f"Start it with a smaller -m: all together at most {size(OF_MEMORY * there)}, less what "
                "connections and other programs need.",
                "See what it uses now: grep -E 'VmRSS|VmSwap' /proc/$(pidof -s memcached)/status",
            ),
        ),
    )


@rule(
    "MEMC10",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=f"proc_pid_status(5), VmSwap; {MANUAL}, -k",
    refute="With its memory back from swap, p99 of gets is as before.",
)
def cache_is_swapped(evidence: Evidence) -> Iterator[Match]:
    """Part of a cache is in swap.

    A get of an item there waits for a disk, and so does every other connection of that worker thread, and whoever
    needs the lock that it holds.
    """
    caches = known(evidence)
    if not caches:
        return
    swapped = [(cache, cache.process.get("swap_bytes")) for cache in caches]
    if all(amount is None for _, amount in swapped):
        raise NotEnough("how much of memcached is in swap was not read")
    read = evidence.window.rate("vmstat", "pswpin")
    for cache, amount in swapped:
        if not amount or amount < MIB:
            continue
        yield Match(
            cache.name,
            f"{size(amount)} of {cache.name} is in swap"
            + (f", and {read:,.0f} pages/s are read back on this host." if read else "."),
            (
                number("in swap", size(amount)),
                number("pages read from swap/s", "unknown" if read is None else read, ",.1f"),
                number("resident", size(cache.process.get("rss_bytes"))),
            ),
            (
                by_hand("Start it with a smaller -m, or move other programs away.", label="less memory"),
                by_hand("Start it with -k, which locks its memory (ulimit -l must allow it).", label="lock"),
            ),
            Severity.LIMIT if read is not None and read >= SOME_S else None,
        )


@rule(
    "MEMC11",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{PROTOCOL}: store_no_memory, Item statistics: outofmemory; {MANUAL}, -M",
    refute="With more memory or with evictions on, as many writes are refused.",
)
def writes_are_refused(evidence: Evidence) -> Iterator[Match]:
    """Writes fail because there is no memory for them.

    With -M nothing is evicted and a full cache stores nothing new. Without it the slab class has no page, and
    every item in it is in use.
    """

    def check(cache: Cache) -> Iterator[Match]:
        refused = max(cache.growth("store_no_memory") or 0.0, _refused(cache))
        if refused <= 0:
            rate(cache, "cmd_set")  # raises NotEnough
            return
        evictions = setting(cache, "evictions")
        yield Match(
            cache.name,
            f"{cache.name} refused {refused:,.0f} writes for lack of memory.",
            (
                number("refused", refused, ",.0f"),
                number("evictions", evictions),
                number("limit_maxbytes", size(last(cache, "limit_maxbytes"))),
                number("stored bytes", size(last(cache, "bytes"))),
            ),
            (
                by_hand(
                    "Start it without -M, so that it evicts what was unused for longest."
                    if evictions == "off"
                    else f"Find the slab class: outofmemory in {look(cache, 'items')}",
                    label="evict" if evictions == "off" else "",
                ),
                by_hand("Start it with a larger -m.", label="more memory"),
            ),
        )

    yield from of_each(evidence, check)


def _refused(cache: Cache) -> float:
    """Of all slab classes over the window."""
    per_second = sum(each.rate("outofmemory") or 0.0 for each in cache.classes)
    return per_second * cache.window.seconds


@rule(
    "MEMC12",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source=f"{MANUAL}, lru_crawler, lru_maintainer; memcached, doc/new_lru.txt",
    refute="With both threads on, neither the hit rate nor p99 changes.",
)
def background_threads_are_off(evidence: Evidence) -> Iterator[Match]:
    """The threads that take expired items away and sort the others are off.

    Without the crawler an expired item keeps its memory until somebody asks for it, or until it reaches the end of
    the list: others are evicted meanwhile. Without the maintainer each get sorts its item itself, under a lock.
    """

    def check(cache: Cache) -> Iterator[Match]:
        named = {"lru_crawler": "lru_crawler", "lru_maintainer_thread": "lru_maintainer"}
        off = [name for name in named if setting(cache, name) == "no"]
        if not off:
            return
        evictions = cache.rate("evictions")
        yield Match(
            cache.name,
            f"{cache.name} runs without {' and '.join(named[name] for name in off)}.",
            (
                *(number(name, "no") for name in off),
                number("evictions/s", "unknown" if evictions is None else evictions, ",.1f"),
                number("items", last(cache, "curr_items"), ",.0f"),
            ),
            (by_hand(f"Start it without -o {','.join(f'no_{named[name]}' for name in off)}."),),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC13",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"memcached, assoc.c: the table grows at 1.5 items a bucket; {MANUAL}, hashpower, no_hashexpand",
    refute="With a larger table, p99 and CPU per get are equivalent.",
)
def hash_table_is_too_small(evidence: Evidence) -> Iterator[Match]:
    """There are many more items than buckets in the hash table.

    The table doubles at 1.5 items a bucket. With no_hashexpand, or where there was no memory for it, every get
    walks along a chain.
    """

    def check(cache: Cache) -> Iterator[Match]:
        items, power = last(cache, "curr_items"), last(cache, "hash_power_level")
        chain = items / 2**power
        if chain < FULL_TABLE or last(cache, "hash_is_expanding"):
            return
        yield Match(
            cache.name,
            f"{cache.name} has {chain:,.1f} items in each bucket of its hash table.",
            (
                number("items", items, ",.0f"),
                number("hash_power_level", power, ",.0f"),
                number("items a bucket", chain, ",.1f"),
            ),
            (
                by_hand(
                    f"Start it without -o no_hashexpand, or with -o hashpower={int(items).bit_length()}: 2 to "
                    "that power buckets of 8 bytes."
                ),
            ),
        )

    yield from of_each(evidence, check)


@rule(
    "MEMC14",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{PROTOCOL}: flush_all, cmd_flush; {MANUAL}, -F",
    refute="Nobody asked for what was there before, so the hit rate is as before.",
)
def cache_was_flushed(evidence: Evidence) -> Iterator[Match]:
    """The whole cache was invalidated during the window.

    flush_all makes every item invalid at once, whoever stored it. Until the cache is filled again each get is a
    query of the database, all at the same time.
    """

    def check(cache: Cache) -> Iterator[Match]:
        flushes = growth(cache, "cmd_flush")
        if flushes <= 0:
            return
        yield Match(
            cache.name,
            f"{cache.name} was flushed {flushes:,.0f} times in the window.",
            (
                number("cmd_flush", flushes, ",.0f"),
                number("since its start", last(cache, "cmd_flush"), ",.0f"),
                number("misses/s", rate(cache, "get_misses"), ",.1f"),
            ),
            (
                by_hand(
                    "Find who sends flush_all: deployments and tests often do. A version number in the keys "
                    "does the same for those keys alone.",
                    "Forbid it: start with -F.",
                ),
            ),
        )

    yield from of_each(evidence, check)
