"""No rule uses a host for a server that runs elsewhere, nor the reverse; and a server's own mounts are its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from headrace.base.errors import HostUnknown
from headrace.base.model import Facts
from headrace.host.facts import HostFacts
from headrace.host.samples import Samples
from headrace.host.snapshot import Snapshot
from headrace.hunt.hunt import Hunt, examine
from headrace.hunt.report.page import page_of
from headrace.hunt.rules import Evidence
from tests.rules.hosts import saved, unwell

#: As the agent says it of real servers: tests/real/server/test_where.py.
TUNNEL = {"program": "socat", "pid": 71}
ELSEWHERE = {
    "answer": "elsewhere",
    "pid": None,
    "namespaces": [],
    "answered_by": TUNNEL,
    "evidence": ["process 1322 has no thread of the number that serves the connection"],
    "missing": "",
}
UNKNOWN = {**ELSEWHERE, "answer": "unknown", "answered_by": None, "missing": "root"}
HERE = {**ELSEWHERE, "answer": "here", "pid": 1322, "answered_by": None}
CONTAINER = {**HERE, "answer": "namespace", "namespaces": ["mnt", "net", "pid"]}
#: The data directory of the server.
DATA = unwell().data_directory
#: A host where everything is wrong, and its server.
BAD_HOST: dict[str, Any] = {
    "facts": {"block_devices.nvme1n1.queue.scheduler": "bfq", "file_systems./.kind": "overlay"},
    "rates": {"vmstat.pswpin": 5_000.0, "vmstat.pswpout": 5_000.0, "psi.some_total_us.io": 9e5},
}
BAD_SERVER: dict[str, Any] = {
    "status_rates": {"select_full_join": 500.0, "questions": 1e3, "handler_read_rnd_next": 2e6},
    "variables": {"innodb_flush_log_at_trx_commit": "2", "innodb_buffer_pool_size": str(1 << 40)},
}


def asked(snapshot: Snapshot, place: Mapping[str, Any], at: str = "127.0.0.1:3307") -> Snapshot:
    settings = {**snapshot.facts.data["server_settings"], "place": place, "pid": place["pid"]}
    data = {**snapshot.facts.data, "server_asked": at, "server_settings": settings}
    return replace(snapshot, facts=Facts("0" * 16, data))


def only(snapshot: Snapshot, *, server: bool) -> Samples:
    is_own = {"mysql_status", "innodb_metrics", "statements", "mysql_waits"}
    return Samples.of(row for row in snapshot.samples.rows() if (row[1] in is_own) is server)


def mixed(host: Snapshot, server: Snapshot, place: Mapping[str, Any]) -> Hunt:
    """One snapshot's host with the other's server."""
    rows = [*only(host, server=False).rows(), *only(server, server=True).rows()]
    data = {**host.facts.data, "server_settings": server.facts.data["server_settings"]}
    both = replace(host, facts=Facts("0" * 16, data), samples=Samples.of(rows), activity=server.activity)
    return examine(asked(both, place))


def findings(hunt: Hunt) -> list[tuple[str, str, str]]:
    return [(f.id, str(f.severity), f.hit.summary) for f in hunt.judgement.findings]


@pytest.mark.parametrize("place", [ELSEWHERE, UNKNOWN], ids=["elsewhere", "unknown"])
def test_findings_about_a_server_are_the_same_on_every_host(place: Mapping[str, Any]) -> None:
    hosts = [saved(), saved(**BAD_HOST)]
    for server in (saved(), saved(**BAD_SERVER)):
        one, other = (mixed(host, server, place) for host in hosts)
        assert findings(one) == findings(other)
        assert [each.code for each in one.judgement.silent] == [each.code for each in other.judgement.silent]
        assert one.verdict.causes == other.verdict.causes
        assert one.verdict.sentence == other.verdict.sentence
        assert one.verdict.uses == other.verdict.uses
        assert one.verdict.limiting is None


def test_where_the_server_runs_is_said_first() -> None:
    hunt = mixed(saved(), saved(**BAD_SERVER), ELSEWHERE)
    first = "The server at 127.0.0.1:3307 does not run on this host: socat (pid 71) answers there."
    assert hunt.verdict.sentence.startswith(first)
    assert page_of(hunt).verdicts[0].startswith(first)
    unknown = mixed(saved(), saved(**BAD_SERVER), UNKNOWN).verdict.sentence
    assert unknown.startswith("The server at 127.0.0.1:3307 is not known to run on this host")
    assert "what would tell: root." in unknown


def test_many_threads_of_another_host_do_not_wait_for_each_other_here() -> None:
    """A server that fills its own CPUs was said to wait for locks, because this host's were idle."""
    busy = saved(status={"threads_running": 40.0})
    here = examine(asked(busy, HERE))
    assert "wait on each other" in here.verdict.sentence or here.finding("LOCK01") is not None
    away = examine(asked(busy, ELSEWHERE))
    assert "wait on each other" not in away.verdict.sentence
    assert away.finding("LOCK01") is None


def test_a_login_that_failed_takes_no_process_for_its_server() -> None:
    data = {**unwell().raw, "server_asked": "db9:3306", "server_settings": None}
    facts = HostFacts(Facts("", data))
    assert facts.server_process is None
    assert facts.server_place is not None
    assert not facts.server_place.is_on_host


def test_a_word_that_a_newer_agent_has_is_unknown_never_here() -> None:
    for answer in ("sandboxed", "unknown", None):
        data = {**unwell().raw, "server_asked": "/s"}
        data["server_settings"] = {**data["server_settings"], "pid": 1322, "place": {"answer": answer}}
        facts = HostFacts(Facts("", data))
        place = facts.server_place
        assert place is not None
        assert not place.is_on_host
        assert (place.missing == "a newer headrace") is (answer != "unknown")
        assert (facts.server_pid, facts.server_process, facts.server_allocator) == (None, None, None)


@pytest.mark.parametrize(
    ("pid", "name", "works_in", "answer"),
    [
        (1322, "db1", "/var/lib/mysql", "here"),
        (1322, "bastion", "/var/lib/mysql", "unknown"),
        (1322, "db1", "/srv/other", "unknown"),
        (None, "db1", "/var/lib/mysql", "unknown"),
    ],
)
def test_facts_of_an_older_agent_say_where_only_with_evidence(
    pid: int | None, name: str, works_in: str, answer: str
) -> None:
    settings = {**unwell().raw["server_settings"], "pid": pid, "place": None}
    process = {"pid": 1322, "program": "mysqld", "working_directory": works_in}
    facts = {
        "agent_version": "0.0.1", "hostname": name, "servers": [process],
        "server_settings": {**settings, "variables": {**settings["variables"], "hostname": "db1"}},
    }  # fmt: skip
    place = HostFacts(Facts("", facts)).server_place
    assert place is not None
    assert (place.answer, place.pid) == (answer, pid if answer == "here" else None)


def contained() -> Snapshot:
    """Its data directory is a tmpfs in its own mount namespace; this host has its root there."""
    snapshot = asked(saved(), CONTAINER)
    own = {
        **snapshot.facts.data["file_systems"][0],
        "mount_point": DATA,
        "kind": "tmpfs",
        "block_device": None,
        "size_bytes": 1 << 30,
        "available_bytes": 1 << 20,
    }
    servers = [
        {**server, "namespaces": ["mnt", "net", "pid"], "file_systems": [own]}
        for server in snapshot.facts.data["servers"]
    ]
    return replace(snapshot, facts=Facts("0" * 16, {**snapshot.facts.data, "servers": servers}))


def test_a_servers_own_mounts_are_named_with_their_namespace() -> None:
    hunt = examine(contained())
    evidence = hunt.evidence
    assert (evidence.data_file_system or {})["kind"] == "tmpfs"
    assert evidence.room(evidence.data_directory) == (1 << 30, 1 << 20), "not what this host has there"
    assert evidence.device_of(evidence.data_directory) is None
    tmpfs, full = hunt.finding("FS10"), hunt.finding("FS06")
    assert full is not None
    assert full.hit.summary.endswith("in the mount namespace of process 1322.")
    assert any(f"/proc/1322/root{DATA}" in number.value for number in full.hit.evidence)
    assert tmpfs is None or "mount namespace" in tmpfs.hit.summary
    assert not any("volume.mount_options" in name for f in hunt.judgement.findings
                   for remedy in f.hit.remedies for name in remedy.settings)  # fmt: skip


def test_a_process_that_is_no_servers_is_not_its() -> None:
    """Whoever asks for the host of a server that is elsewhere gets no other."""
    evidence = Evidence.of(asked(saved(), ELSEWHERE))
    for ask in (lambda: evidence.process, lambda: evidence.rows("servers"), lambda: evidence.cores):
        with pytest.raises(HostUnknown):
            ask()
    assert evidence.window.server_pid is None
