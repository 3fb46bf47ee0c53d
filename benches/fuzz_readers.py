"""Fuzz the Python readers of foreign bytes: each input must give an answer or one of our own errors.

    python benches/fuzz_readers.py [SECONDS] [READER ...]

Inputs are pieces of the tests' texts, cut, doubled, swapped and joined. A reader may take ten times the input and
64 MiB of memory, 10 seconds, and raise only errors that are made for people. What does not hold is printed with
its seed and kept in a directory; the exit code is 1. READER is the start of a name.
"""

# ruff: noqa: E501 - what programs write

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import re
import resource
import signal
import struct
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import pyarrow as pa  # noqa: E402
from tests import digests, outputs  # noqa: E402
from tests.unit.test_dumps import ETHTOOL, NODE, SLOW, TEXTS  # noqa: E402

from headrace.base import hdr, received, toml  # noqa: E402
from headrace.base.errors import HeadraceError  # noqa: E402
from headrace.capacity import capacity, catalogue  # noqa: E402
from headrace.capacity import table as demands  # noqa: E402
from headrace.experiment import plan  # noqa: E402
from headrace.experiment.foreign.outputs import read_outputs  # noqa: E402
from headrace.experiment.foreign.table import read_csv  # noqa: E402
from headrace.experiment.workloads.fio import read_snapshots  # noqa: E402
from headrace.fleet import inventory  # noqa: E402
from headrace.host import snapshot, stacks  # noqa: E402
from headrace.hunt.dumps.kinds import KINDS  # noqa: E402
from headrace.indexes.parsing import Unread, parse_one  # noqa: E402
from headrace.traffic.digests import files  # noqa: E402

MOST_S = 10
MOST_TIMES, MOST_MORE = 10, 64 << 20
#: Inputs are cut to this: what matters is their shape.
MOST_BYTES = 200_000

Read = Callable[[bytes, Path], object]


def text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass" if content.isascii() else "replace")


def in_file(read: Callable[[Path], object], suffix: str) -> Read:
    def run(content: bytes, folder: Path) -> object:
        path = folder / f"x{suffix}"
        path.write_bytes(content)
        return read(path)

    return run


def of_all_kinds(content: bytes, folder: Path) -> object:
    return [kind.read(text(content)) for kind in KINDS]


def a_statement(content: bytes, folder: Path) -> object:
    with contextlib.suppress(Unread):
        return parse_one(text(content))
    return None


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _output(found: object) -> bytes:
    return found.encode() if isinstance(found, str) else _json(found)


OUTPUTS = [_output(value) for name, value in vars(outputs).items() if name.isupper() and value and
           isinstance(value, str | dict | list) and name != "GOODS"]  # fmt: skip
CSV = (
    b'kernel,fs,tps,latency_ms\n6.1,xfs,1000,2.5\n6.1,ext4,900,2.75\n6.12,xfs,1100,"2,5"\n6.12,ext4,950,2.9\n'
)
TABLES = [CSV, CSV.replace(b",", b"\t"), CSV.replace(b",", b";"), b"| a | b | tps |\n|---|---|---|\n| 1 | 2 | 3.5k |\n",
          b"+---+-----+\n| a | tps |\n+---+-----+\n| x | 100 |\n+---+-----+\n", b'[{"a": 1, "tps": 3}, {"a": 2, "tps": 4}]']  # fmt: skip
PLANS = [path.read_bytes() for path in sorted((HERE.parent / "examples").glob("**/*.toml"))]
LINES = "\n".join(digests.lines(digests.traffic(1)[:60])).encode() + b"\n"
FLEETS = [b'[fleet]\nhosts = ["db[1-4]", "root@h:22"]\n[[fleet.groups]]\nhosts = ["x"]\nfan_out = 3\n',
          b"db1\ndb2 user=root\n# x\n[web]\nweb[01:50:2].example.com ansible_host=1.2.3.4\n[all:vars]\na=b\n",
          b'{"all": {"hosts": {"a": {"ansible_host": "1.2.3.4"}}, "children": {"x": {"hosts": {"b": null}}}}}',
          b"all:\n  hosts:\n    a:\n      ansible_port: 22\n  children: {x: {hosts: {b: }}}\n"]  # fmt: skip
STATEMENTS = [b"SELECT a, COUNT(*) FROM t JOIN u ON t.id = u.t_id WHERE a = 1 AND b IN (1, 2) GROUP BY a ORDER BY b LIMIT 5",
              b"UPDATE t SET a = (SELECT MAX(b) FROM u WHERE u.c LIKE 'x%') WHERE d BETWEEN 1 AND 2",
              b"REPLACE INTO t (a, b) VALUES (1, 'x'), (2, NULL)", b"DELETE t FROM t, u WHERE t.a = u.a /* x */"]  # fmt: skip
FIO = [
    _json(outputs.FIO),
    b'{"fio version": "fio-3.33", "timestamp_ms": 1, "jobs": []}\n{\n "a": {"b": 1}\n}\n',
]
DEMANDS = [b"host,time,resource,value\na,2026-01-01T00:00:00Z,cpu,1.5\na,2026-01-01T01:00:00Z,cpu,2.5\nb,2026-01-01T00:00:00Z,memory,1e9\n",
           b"host,group,cpus,memory_bytes,price\na,g,16,64GiB,100\nb,g,32,128GiB,\n"]  # fmt: skip
OFFERS = [b"name,cpus,memory,price\nm5.large,2,8GiB,0.096\nm5.xlarge,4,16GiB,0.192\n",
          b'{"products": {"a": {"sku": "a", "attributes": {"instanceType": "m5.large", "vcpu": "2"}}}, "terms": {}}']  # fmt: skip


#: Unpacked: zlib would hide what is changed.
HISTOGRAMS = [struct.pack(">iiiiqqd", 0x1C849313, 6, 0, 2, 1000, 10**12, 1.0) + b"\x09\x02\x80\x01\x04\x06",
              struct.pack(">iiiiqqd", 0x1C849341, 8, 0, 3, 1, 10**12, 1.0) + struct.pack(">ii", 5, 7)]  # fmt: skip


def _digest() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        from headrace.traffic.digests.lines import read_lines
        from headrace.traffic.digests.merge import merge
        from headrace.traffic.digests.table import write

        write(merge([read_lines(digests.lines(digests.traffic(1)), "x")]), Path(folder) / "d")
        return (Path(folder) / "d").read_bytes()


def _hunts() -> list[bytes]:
    return [path.read_bytes() for path in sorted((HERE.parent / "tests").rglob("*.hunt"))[:4]]


DUMPS = [each.encode() for each in (*TEXTS.values(), NODE, ETHTOOL, SLOW)]
#: Name -> how it is read, what it reads, and what else it may raise.
READERS: dict[str, tuple[Read, list[bytes], tuple[type[Exception], ...]]] = {
    "dump": (of_all_kinds, DUMPS, ()),
    "output": (in_file(lambda at: read_outputs([at], "{a}"), ".txt"), OUTPUTS, ()),
    "table": (in_file(lambda at: read_csv(at, ["a"], ["tps"]), ".csv"), TABLES, ()),
    "plan": (lambda content, _: plan.parse(text(content), "x"), PLANS, ()),
    "toml": (lambda content, _: toml.parse(text(content)), PLANS, (tomllib.TOMLDecodeError, ValueError)),
    "json": (lambda content, _: received.parsed(content), [_json(outputs.FIO), LINES], (received.BadContent,)),
    "lines": (in_file(files.load, ".jsonl"), [LINES], ()),
    "parquet": (in_file(files.load, ".parquet"), [_digest()], ()),
    "fleet-toml": (in_file(lambda at: inventory.load(str(at)), ".toml"), FLEETS[:1], ()),
    "fleet-list": (in_file(lambda at: inventory.load(str(at)), ".txt"), FLEETS, ()),
    "fleet-yaml": (in_file(lambda at: inventory.load(str(at)), ".yaml"), FLEETS[2:], ()),
    "statement": (a_statement, STATEMENTS, ()),
    "stacks": (lambda content, _: stacks.parse(text(content)), [b"a;b;c 10\nmariadbd;x y;z 3\n"], ()),
    "fio": (lambda content, _: list(read_snapshots(text(content).split("\n"), "x")), FIO, ()),
    "demands": (in_file(demands.read, ".csv"), DEMANDS, ()),
    "catalogue": (in_file(catalogue.read, ".csv"), OFFERS[:1], ()),
    "offers": (in_file(catalogue.read, ".json"), OFFERS[1:], ()),
    "capacity": (in_file(capacity.read_json, ".json"), [_json({"a": 1})], ()),
    "hunt": (in_file(snapshot.load, ".hunt"), _hunts(), ()),
    "hdr": (lambda content, _: hdr.decode(base64.b64encode(content).decode()), HISTOGRAMS, (ValueError,)),
}  # fmt: skip

TOKENS = [b"", b"=", b"[", b"]", b'"', b"\n", b"{}", b"{", b"}", b"nan", b"-1", b"1e400", b"9" * 30, b"true", b"null",
          b"\x00", b"\xff", b"\x1b[31m", b",", b";", b"\t", b"\r", b"0x", b"%", b"-", b".", b"1e", b"\xe2\x80\xae",
          b"\xc2\xb2", b"\xd9\xa3", b"inf", b"|", b"'", b"\\", b"#", b"[0-99999999]", b"1:2", b" " * 40, b"(" * 200,
          b"[" * 500, b"\xef\xbb\xbf", b"\xf0\x9f\x98\x80", b"1_0", b"2026-13-45", b"-0", b"*", b"&a", b"<<: *a"]  # fmt: skip
NUMBER = re.compile(rb"\d+")


def changed(some: list[bytes], rng: random.Random) -> bytes:
    content = bytearray(rng.choice(some))
    if len(content) > 4000 and rng.random() < 0.8:
        # A piece of it: more inputs a second.
        lines = bytes(content).splitlines(keepends=True)
        if len(lines) > 20:
            first = rng.randrange(len(lines) - 10)
            content = bytearray(b"".join(lines[first : first + rng.randint(5, 60)]))
    for _ in range(rng.choice((1, 1, 2, 3, 5, 9))):
        a = rng.randrange(len(content) + 1)
        b = min(len(content), a + rng.choice((0, 1, 2, 5, 20, 200)))
        match rng.randrange(7):
            case 0:
                content[a:b] = rng.choice(TOKENS)
            case 1:
                content[a:b] = bytes(rng.randrange(256) for _ in range(rng.randint(0, 4)))
            case 2:
                content[a:a] = content[a:b] * rng.choice((1, 2, 30))
            case 3:
                other = rng.choice(some)
                c = rng.randrange(len(other) + 1)
                content[a:b] = other[c : c + rng.choice((1, 5, 40, 400))]
            case 4 if found := list(NUMBER.finditer(content, a, a + 200))[:1]:
                content[slice(*found[0].span())] = rng.choice(TOKENS) if rng.random() < 0.5 else str(
                    rng.choice((0, 1, 2**31, 2**53, 2**63, 2**64, 10**400, rng.randrange(1000)))
                ).encode()  # fmt: skip
            case 5:
                content = content[:a]
            case _ if content:
                content[a - 1] ^= 1 << rng.randrange(8)
    return bytes(content[:MOST_BYTES])


class Slow(Exception):
    """It takes too long."""


def _slow(*_: object) -> None:
    raise Slow


def used_bytes() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[0]) * os.sysconf("SC_PAGESIZE")


@contextlib.contextmanager
def bounds(size: int) -> Iterator[None]:
    """Address space as much as is allowed; what was given back before is counted as used."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes() + MOST_TIMES * size + MOST_MORE, hard))
    signal.setitimer(signal.ITIMER_REAL, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def fuzz(name: str, seconds: float, seed: int, kept: Path) -> tuple[int, dict[str, str]]:
    """How many inputs, and what did not hold: where -> what."""
    read, corpus, may = READERS[name]
    rng, count, wrong = random.Random(seed), 0, dict[str, str]()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for each in corpus:
            with contextlib.suppress(HeadraceError, *may):
                read(each, Path(folder))  # what it imports is none of an input's
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            content = changed(corpus, rng)
            count += 1
            try:
                with bounds(len(content)):
                    read(content, Path(folder))
            except (HeadraceError, *may):
                continue
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                at = traceback.extract_tb(error.__traceback__)
                ours = next((f for f in reversed(at) if "/headrace/" in f.filename), at[-1])
                place = f"{Path(ours.filename).name}:{ours.lineno} {type(error).__name__}"
                if place not in wrong:
                    wrong[place] = str(error)[:120]
                    (kept / f"{name}-{len(wrong)}").write_bytes(content)
                    print(
                        f"  {name}: {place}: {str(error)[:120]!r}, kept as {kept}/{name}-{len(wrong)}",
                        flush=True,
                    )
    return count, wrong


def main() -> int:
    seconds = float(sys.argv[1]) if sys.argv[1:] else 600.0
    wanted = [n for n in READERS if READERS[n][1] and (not sys.argv[2:] or n.startswith(tuple(sys.argv[2:])))]
    kept = Path(tempfile.mkdtemp(prefix="headrace-fuzz-"))
    pa.set_cpu_count(1)
    signal.signal(signal.SIGALRM, _slow)
    all_inputs = problems = 0
    for number, name in enumerate(wanted):
        seed = random.SystemRandom().randrange(2**32)
        began = time.monotonic()
        count, wrong = fuzz(name, seconds / len(wanted), seed, kept)
        print(f"{name}: {count:,} inputs in {time.monotonic() - began:.0f} s (seed {seed}), {len(wrong)} places do "
              f"not hold; {number + 1} of {len(wanted)} readers", flush=True)  # fmt: skip
        all_inputs, problems = all_inputs + count, problems + len(wrong)
    print(f"{all_inputs:,} inputs, {problems} places do not hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
