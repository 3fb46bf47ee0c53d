"""Names of columns as people write them: ``TPS``, ``tps (1/s)``, ``**tps**``, ``result.tps``."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence

_UNIT = re.compile(r"(?<=[^\s(\[])\s*[(\[][^)\]]*[)\]]\s*$")


@functools.lru_cache(4096)
def plain(name: str) -> str:
    """A name without its unit, case, spaces and marks: equal for names that mean the same column."""
    return words(_UNIT.sub("", name.replace("*", "").replace("`", "").strip()))


def unit_of(header: Sequence[str], name: str) -> str:
    """The unit in a column's own header: ``ms`` of ``lat (ms)``; empty without one, or if several fit."""
    alike = [own for own in header if own == name or plain(own) == plain(name)]
    found = _UNIT.search(alike[0].replace("*", "")) if len(alike) == 1 else None
    return found[0].strip(" ()[]") if found else ""


#: Words that only count, or give the unit: ``num_threads``, ``thread_count``, ``elapsed_s``.
_BESIDE = frozenset({
    "n", "num", "number", "of", "no", "nr", "count", "total", "s", "sec", "secs", "seconds", "ms", "min", "test",
    "run", "level", "anzahl", "zahl", "nombre", "numero", "número", "numéro", "nb", "liczba", "aantal", "antal",
    "počet", "число", "количество",
})  # fmt: skip
_SAME = {
    "nthreads": "threads",
    "thread": "threads",
    "client": "clients",
    "nclients": "clients",
    "conns": "connections",
    "connection": "connections",
    "io_size": "block_size",
    "iosize": "block_size",
    "record_size": "block_size",
    "elapsed_time": "elapsed",
    "wall": "walltime",
    "wall_time": "walltime",
    "wall_clock": "walltime",
    "qd": "iodepth",
    "io_depth": "iodepth",
    "nwarehouses": "warehouses",
    "warehouse": "warehouses",
    "workers": "threads",
    "parallelism": "threads",
    "users": "clients",
    "nproc": "threads",
    "procs": "threads",
    "processes": "threads",
    "hilos": "threads",
    "hebras": "threads",
    "fils": "threads",
    "потоки": "threads",
    "потоков": "threads",
    "スレッド数": "threads",
    "スレッド": "threads",
    "线程数": "threads",
    "线程": "threads",
    "并发数": "concurrency",
    "并发": "concurrency",
    "並列数": "concurrency",
    "verbindungen": "connections",
    "connexions": "connections",
    "conexiones": "connections",
    "clientes": "clients",
    "depth": "iodepth",
    "qdepth": "iodepth",
    "length": "duration",
    "длительность": "duration",
    "持续时间": "duration",
    "実行時間": "duration",
    "laufzeit": "duration",
    "dauer": "duration",
    "durée": "duration",
    "duración": "duration",
    "durata": "duration",
}


@functools.lru_cache(4096)
def setting(name: str) -> str:
    """A setting's name, whatever counts it or gives its unit: ``threads`` of ``num_threads`` and ``# threads``."""
    # Of ``config.threads`` the last part.
    own = plain(name.rpartition(".")[2])
    kept = "_".join(word for word in own.split("_") if word not in _BESIDE) or own
    joined = own.replace("run_time", "runtime")
    kept = "runtime" if joined.startswith("runtime") else kept
    return _SAME.get(kept, kept)


def words(text: str) -> str:
    """Words in lower case, joined by underscores."""
    return re.sub(r"[\W_]+", "_", unicodedata.normalize("NFKC", text).casefold()).strip("_")


def columns(header: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """Name -> its only column; those that are not there, or could be several, are left out."""
    found = {}
    for name in wanted:
        if name in header:
            found[name] = header.index(name)
            continue
        alike = [i for i, own in enumerate(header) if own not in wanted and plain(own) == plain(name)]
        # A value within another of JSON.
        inner = [i for i, own in enumerate(header) if own.rpartition(".")[2] == name and own not in wanted]
        for places in (alike, inner):
            if len(places) == 1:
                found[name] = places[0]
                break
    return found
