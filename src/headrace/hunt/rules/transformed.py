"""Rules about work on pages beside reading and writing them: compressing, encrypting, copying; and Aria's own
cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.base.model import Vendor
from headrace.hunt.rules import sizes
from headrace.hunt.rules.evidence import MIB, Evidence, Number, number, share, size
from headrace.hunt.rules.redo import checkpoint_age
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: CPU time of one page of 16 KiB with zlib at level 6, on a core of 3 GHz: compressed and decompressed.
COMPRESS_US, DECOMPRESS_US = 300.0, 60.0
#: Share of the server's CPU time, and CPUs, that it must take to be worth a word.
OF_SERVER, CPUS = 0.1, 0.1
#: Pages per second that the doublewrite buffer takes, and that one of its writes should at least have.
COPIED_S, BATCH = 200.0, 2.0
#: The default of innodb_doublewrite_pages since MySQL 8.4.
DOUBLEWRITE_PAGES = 128
#: Share of the redo log that waits for pages where flushing is behind.
BEHIND = 0.50
#: Pages per second that background encryption changes or reads from files.
ENCRYPTED_S = 50.0
ROTATION_IOPS = 100
#: Pages per second that Aria reads from files, as a share of all that it looks for.
ARIA_READS_S, ARIA_READS = 200.0, 0.02
#: CPU time of one that it reads from a file or writes to one, where the kernel has the file in memory: 3 to 6 us
#: for both (benches/planted.py, small Aria cache).
ARIA_PAGE_US = 1.5
ARIA_CPUS = 0.02
#: The default of aria_pagecache_buffer_size, and the most that is asked for.
ARIA_CACHE, LARGEST_ARIA_CACHE = 128 * MIB, 2048 * MIB


@rule(
    "POOL11",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MariaDB, Aria System Variables: aria_pagecache_buffer_size; Aria Status Variables: "
    "Aria_pagecache_reads, Aria_pagecache_read_requests; Aria Storage Engine: internal temporary tables",
    refute="With the larger cache, Aria_pagecache_reads falls, but throughput and p99 are equivalent.",
    applies_to={Vendor.MARIADB: Versions()},
)
def aria_cache_too_small(evidence: Evidence) -> Iterator[Match]:
    """Aria's pages do not fit into their cache.

    MariaDB's temporary tables on disk are Aria tables. What its page cache cannot hold goes to a file, and comes
    back from there page by page. The buffer pool does not help them.
    """
    reads, asked = (evidence.status_rate(f"aria_pagecache_{name}") for name in ("reads", "read_requests"))
    cache = evidence.number("aria_pagecache_buffer_size")
    if reads < ARIA_READS_S or reads < ARIA_READS * asked:
        return
    writes = evidence.status_rate("aria_pagecache_writes")
    used = evidence.server_cpus
    moving = (reads + writes) * ARIA_PAGE_US / 1e6
    most = min(cache + 0.25 * sizes.spare_bytes(evidence), LARGEST_ARIA_CACHE)
    wanted = sizes.power_of_two(max(4 * cache, ARIA_CACHE), most)
    on_disk = evidence.status_rate("created_tmp_disk_tables")
    fewer = Remedy(
        steps=(
            "Keep temporary tables in memory (SESS03), or give the statements an index for GROUP BY or DISTINCT.",
        ),
        label="fewer temporary tables on disk",
    )
    larger = Remedy({"server.aria_pagecache_buffer_size": wanted}, label="a larger cache")
    yield Match(
        "",
        f"{reads:,.0f} of {asked:,.0f} Aria pages/s are read from files; the page cache has {size(cache)}, and "
        f"{on_disk:,.0f} temporary tables/s are created on disk.",
        (
            number("Aria_pagecache_reads/s", reads, ",.0f"),
            number("Aria_pagecache_read_requests/s", asked, ",.0f"),
            number("Aria_pagecache_writes/s", writes, ",.0f"),
            number("CPUs for moving them", f"about {moving:.2f} of the server's {used:.2f}"),
            number("aria_pagecache_buffer_size", size(cache)),
            number("Created_tmp_disk_tables/s", on_disk, ",.1f"),
        ),
        (larger, fewer) if wanted > cache else (fewer,),
        None if moving >= max(ARIA_CPUS, OF_SERVER * used) else Severity.HOUSEKEEPING,
    )


@rule(
    "POOL12",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Monitoring InnoDB Table Compression at Runtime: INNODB_CMP, compress_time, "
    "uncompress_time; MariaDB, InnoDB Page Compression: Innodb_num_pages_page_compressed",
    refute="With the busiest tables uncompressed, CPU time per statement and p99 are equivalent.",
)
def pages_are_compressed(evidence: Evidence) -> Iterator[Match]:
    """Compressing pages takes much of the server's CPU time.

    Compression saves space and reads. A change of a page that does not fit its compressed size any more compresses
    the page again, or splits it; a page that comes back into the pool is decompressed. It pays for tables that are
    read rarely, not for those that everything uses.
    """
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    used = evidence.server_cpus
    for found in (_compressed_tables(evidence), _compressed_pages(evidence)):
        taken = found.packing + found.unpacking
        if taken < max(CPUS, OF_SERVER * used):
            continue
        yield Match(
            found.what,
            f"pages of tables with {found.what} take {taken:.1f} CPUs to compress and decompress: "
            f"{share(taken / max(used, taken))} of what the server uses.",
            (*found.numbers, number("CPUs of the server", used, ".2f")),
            (*_less_compression(evidence, found), _without_compression(found)),
        )


@dataclass(frozen=True)
class _Compression:
    """``packing``, ``unpacking``: CPUs that compressing and decompressing take; ``undo``: the option without."""

    what: str
    undo: str
    packing: float
    unpacking: float
    numbers: tuple[Number, ...]


def _compressed_tables(evidence: Evidence) -> _Compression:
    """The server measures the time of these itself."""
    metrics = ("compress_ops", "compress_ops_ok", "compress_s", "uncompress_ops", "uncompress_s")
    packed, fitting, packing, unpacked, unpacking = (
        sum(evidence.window.rates("innodb_cmp", metric).values()) for metric in metrics
    )
    in_vain = max(1 - fitting / packed, 0.0) if packed else 0.0
    numbers = (
        number("compressed/s", f"{packed:,.0f}, {share(in_vain)} of them in vain"),
        number("compressing", f"{packing:.2f} s per second"),
        number("decompressed/s", unpacked, ",.0f"),
        number("decompressing", f"{unpacking:.2f} s per second"),
    )
    return _Compression("ROW_FORMAT=COMPRESSED", "ROW_FORMAT=DYNAMIC", packing, unpacking, numbers)


def _compressed_pages(evidence: Evidence) -> _Compression:
    """MariaDB counts these pages; their time is an estimate."""
    packed, unpacked = (
        evidence.window.rate("mysql_status", f"innodb_num_pages_page_{name}") or 0.0
        for name in ("compressed", "decompressed")
    )
    numbers = (
        number("pages compressed/s", packed, ",.0f"),
        number("pages decompressed/s", unpacked, ",.0f"),
        number("assumed time of one", f"{COMPRESS_US:.0f} and {DECOMPRESS_US:.0f} us"),
    )
    packing, unpacking = packed * COMPRESS_US / 1e6, unpacked * DECOMPRESS_US / 1e6
    return _Compression("PAGE_COMPRESSED=1", "PAGE_COMPRESSED=0", packing, unpacking, numbers)


def _less_compression(evidence: Evidence, found: _Compression) -> Iterator[Remedy]:
    """Level 1 takes a third of the time of level 6, for pages a tenth larger."""
    algorithm = "innodb_compression_algorithm"
    is_zlib = not evidence.has_variable(algorithm) or evidence.variable(algorithm) == "zlib"
    if is_zlib and found.packing >= found.unpacking and evidence.number("innodb_compression_level") > 1:
        yield Remedy({"server.innodb_compression_level": 1}, label="less compression")


def _without_compression(found: _Compression) -> Remedy:
    return Remedy(
        steps=(
            f"Find the busiest tables with {found.what}: sys.schema_table_statistics, or the statements above.",
            f"ALTER TABLE ... {found.undo}, if the device and the buffer pool have room for them.",
        ),
        label="uncompressed tables",
    )


@rule(
    "FLUSH10",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Doublewrite Buffer Configuration: innodb_doublewrite_pages; "
    "Innodb_dblwr_pages_written, Innodb_dblwr_writes",
    refute="With more pages per write, pages flushed per second, throughput and p99 are equivalent.",
    applies_to={Vendor.MYSQL: Versions(since="8.0.20"), Vendor.PERCONA: Versions(since="8.0.20")},
)
def few_pages_per_doublewrite(evidence: Evidence) -> Iterator[Match]:
    """The doublewrite buffer is written and synced for nearly every single page.

    Each thread collects innodb_doublewrite_pages before it writes and syncs them once. With one page for each, a
    page costs two writes and two syncs. The default was the number of write threads, 4, until 8.4 made it 128.
    """
    pages, writes = (evidence.status_rate(f"innodb_dblwr_{name}") for name in ("pages_written", "writes"))
    batch = evidence.number("innodb_doublewrite_pages")
    if pages < COPIED_S or batch >= BATCH or writes * BATCH <= pages:
        return
    age, most = checkpoint_age(evidence)
    waits = evidence.status_rate("innodb_buffer_pool_wait_free")
    limiting = evidence.verdict.limiting
    is_behind = (most > 0 and age >= BEHIND * most) or waits > 0
    is_felt = is_behind or (limiting is not None and limiting.resource == "block")
    yield Match(
        "",
        f"{pages:,.0f} pages/s go through the doublewrite buffer in {writes:,.0f} writes: "
        f"innodb_doublewrite_pages is {batch:.0f}.",
        (
            number("Innodb_dblwr_pages_written/s", pages, ",.0f"),
            number("Innodb_dblwr_writes/s", writes, ",.0f"),
            number("innodb_doublewrite_pages", batch, ".0f"),
            number("checkpoint age", f"{size(age)} of {size(most)}"),
        ),
        (Remedy({"server.innodb_doublewrite_pages": DOUBLEWRITE_PAGES}),),
        None if is_felt else Severity.HOUSEKEEPING,
    )


@rule(
    "FLUSH11",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MariaDB, InnoDB Background Encryption Threads; innodb_encryption_rotation_iops; "
    "Innodb_encryption_rotation_pages_modified, Innodb_encryption_rotation_pages_read_from_disk",
    refute="With innodb_encryption_threads at 0 for the time being, throughput and p99 are equivalent.",
    applies_to={Vendor.MARIADB: Versions()},
)
def pages_are_encrypted_again(evidence: Evidence) -> Iterator[Match]:
    """Background threads encrypt or decrypt the tables.

    After a change of innodb_encrypt_tables or of a key's version every page is read, changed, logged and written.
    innodb_encryption_rotation_iops limits that; without a moderate limit it competes with the application for the
    device, the pool and the redo log.
    """
    threads = evidence.number("innodb_encryption_threads")
    if threads <= 0:
        return
    modified, read = (
        evidence.status_rate(f"innodb_encryption_rotation_pages_{name}")
        for name in ("modified", "read_from_disk")
    )
    if modified + read < ENCRYPTED_S:
        return
    iops = evidence.number("innodb_encryption_rotation_iops")
    limiting = evidence.verdict.limiting
    is_felt = limiting is not None and limiting.resource in ("block", "cpu")
    slower = (
        (Remedy({"server.innodb_encryption_rotation_iops": ROTATION_IOPS}, label="slower"),)
        if iops > ROTATION_IOPS
        else ()
    )
    pause = Remedy(
        steps=(
            "SET GLOBAL innodb_encryption_threads = 0 until there is little load, and back then.",
            "How far it is: information_schema.INNODB_TABLESPACES_ENCRYPTION, "
            "KEY_ROTATION_PAGE_NUMBER of KEY_ROTATION_MAX_PAGE_NUMBER.",
        ),
        label="later",
    )
    yield Match(
        "",
        f"{threads:.0f} background threads encrypt or decrypt {modified:,.0f} pages/s, and read {read:,.0f} from "
        "files for that.",
        (
            number("pages changed/s", modified, ",.0f"),
            number("pages read from files/s", read, ",.0f"),
            number("innodb_encryption_threads", threads, ".0f"),
            number("innodb_encryption_rotation_iops", iops, ",.0f"),
        ),
        (*slower, pause),
        None if is_felt else Severity.HOUSEKEEPING,
    )
