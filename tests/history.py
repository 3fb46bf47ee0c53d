"""A small history of hosts, and the pages on it, without an agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher

from headrace.fleet.host import Host
from headrace.history.archive.files import MINUTE_S, Archive
from headrace.history.archive.reader import Reader
from headrace.history.archive.tables import TABLES
from headrace.history.collect.collector import Collector
from headrace.history.collect.minute import change_rows, lost_row, table_of, text_row
from headrace.host.target import TargetSpec
from headrace.web.auth import Auth
from headrace.web.provider import Provider
from headrace.web.proxied import Proxy
from headrace.web.sessions import Audit, Sessions
from headrace.web.site import Site
from headrace.web.users import Role, Users

PASSWORD = "correct horse battery"
SECRET = b"s" * 48
#: A login in a test is not to take as long as one in front of a guesser.
FAST = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
SLOW = "slow log"
NO_AUTH = Auth()


def write(archive: Archive, table: str, host: str, t_s: int, rows: Sequence[dict[str, Any]]) -> None:
    archive.write(TABLES[table], host, "m", t_s, table_of(TABLES[table], rows, t_s))


def kinds(archive: Archive, table: str = "classes") -> Counter[str]:
    """How many files of each kind there are."""
    return Counter(file.kind for file in archive.files(table))


def state(limiting: str = "", sentence: str = "No bottleneck found.", **more: Any) -> dict[str, Any]:
    return {
        **lost_row(""),
        "state": "ok",
        "limiting": limiting,
        "sampled_s": 60.0,
        "sentence": sentence,
        **more,
    }


def query(name: str, calls: int, mean_ns: float, **more: Any) -> dict[str, Any]:
    return {
        "source": SLOW, "class": name, "database": "shop", "calls": calls, "timed": calls,
        "time_ns": calls * mean_ns, "rows_examined": 10 * calls, "rows_sent": calls, "errors": 0,
        "most_ns": int(mean_ns * 2), **more,
    }  # fmt: skip


def fill(archive: Archive, host: str, start_s: int, minutes: int, text: str = "select ?") -> None:
    """Each minute one more call of class ``a``, and one bucket further."""
    for i in range(minutes):
        t_s = start_s + i * MINUTE_S
        write(archive, "classes", host, t_s, [query("a", i + 1, 1e6), query("b", 5, 2e6)])
        write(
            archive,
            "buckets",
            host,
            t_s,
            [{"source": SLOW, "class": "a", "bucket": 1000 + i, "count": i + 1}],
        )
        write(
            archive,
            "texts",
            host,
            t_s,
            [text_row(SLOW, "a", text, [text]), text_row(SLOW, "b", "commit", [])],
        )
        metric = {"metric": "cpu", "label": "busy", "n": 1, "sum": i / 100, "least": i / 100, "most": i / 100}
        write(archive, "metrics", host, t_s, [metric])
        used = {
            "resource": "cpu",
            "instance": "",
            "minutes": 1,
            "used_minutes": 1,
            "used_sum": 0.5,
            "used_most": 0.5,
        }
        flags = {
            "saturated": 0,
            "busy": 0,
            "unknown": 0,
            "erring": 0,
            "load": text,
            "saturation": "",
            "errors": "",
        }
        write(archive, "resources", host, t_s, [used | flags])
        write(archive, "states", host, t_s, [state(sentence=text)])
    change = {
        "kind": "settings",
        "what": text,
        "before": text,
        "after": text,
        "who": text,
        "at_s": start_s + 1,
    }
    write(archive, "changes", host, start_s, change_rows([change]))
    example = {"source": SLOW, "class": "a", "text": text, "database": text, "took_ns": 5}
    write(archive, "examples", host, start_s, [example])


def site(
    root: Path, hosts: Sequence[str] = ("db1",), *, key: str = "", secure: bool = False, auth: Auth = NO_AUTH
) -> Site:
    """The pages' site with one user of each role; nothing is collected."""
    archive = Archive(root / "history")
    archive.create()
    users = Users(root / "users", FAST)
    if not key:
        for role in Role:
            users.put(role.word, role, PASSWORD)
    watched = [Host(name, TargetSpec("local"), why_not="a test watches nothing") for name in hosts]
    experiments = root / "experiments"
    experiments.mkdir(exist_ok=True)
    return Site(
        Reader(archive),
        Collector(archive, watched),
        Sessions(users, SECRET, key, auth.oidc, of_start=SECRET),
        Audit(root / "audit.log"),
        experiments,
        secure,
        Proxy(auth.proxy, users) if auth.proxy else None,
        Provider(auth.oidc, SECRET) if auth.oidc else None,
    )
