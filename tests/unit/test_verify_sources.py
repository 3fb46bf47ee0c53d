"""Where production's numbers come from, and bad input of each kind."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.base.buckets import bucket_of
from headrace.base.effect import Verdict
from headrace.base.errors import PlanError, StoreError, TargetError
from headrace.change.panel import Window
from headrace.change.production import Observed, table
from headrace.change.production.gather import gather
from headrace.change.production.prometheus import Question, read
from headrace.change.verify import Question as Judged
from headrace.change.verify import verify
from headrace.cli.shell import main
from headrace.experiment.foreign import table as foreign_table
from headrace.fleet.host import Host
from headrace.host.target import TargetSpec
from headrace.rollout import rules
from headrace.rollout.book import Book
from headrace.rollout.plan import Role, Seen, make
from headrace.traffic.digests import table as tables
from headrace.traffic.digests.files import load_all
from tests.commands import headrace
from tests.production import AT_S, fleet

T0 = 1_772_000_000 // 60 * 60
Answer = Callable[[dict[str, str]], bytes]


@contextmanager
def server(answer: Answer, *, length: int | None = None, code: int = 200) -> Iterator[str]:
    """A Prometheus that says what it is told to; ``length`` is a Content-Length that is not true."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            words = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            body = answer(words)
            self.send_response(code)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def matrix(*series: tuple[dict[str, str], list[Any]], first: int = T0) -> bytes:
    """Values from ``first`` on, a minute apart; None is a point that is missing."""
    result = [
        {
            "metric": labels,
            "values": [[first + 60 * i, str(v)] for i, v in enumerate(values) if v is not None],
        }
        for labels, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def asked(body: bytes, minutes: int = 4, **options: Any) -> Observed:
    with server(lambda _: body) as url:
        return read(Question(url, "x_bucket", T0, T0 + 60 * minutes, **options))


def buckets(host: str, *values: list[Any], bounds: tuple[str, ...] = ("0.001", "0.01", "+Inf")) -> Any:
    return [({"instance": host, "le": le}, own) for le, own in zip(bounds, values, strict=True)]


def test_cumulative_buckets_become_increments() -> None:
    found = asked(matrix(*buckets("db1", [0, 10, 20, 30, 40], [0, 15, 30, 45, 60], [0, 16, 32, 48, 64])))
    [series] = found.series
    assert series.counts.tolist() == [[10, 5, 1]] * 4
    assert series.edges_ns.tolist() == [0, 1e6, 1e7, np.inf]
    assert series.start_s.tolist() == [T0 + 60 * i for i in range(4)]
    assert not found.notes


@pytest.mark.parametrize("bad", ["NaN", None, "+Inf", "-1"], ids=["NaN", "missing", "infinite", "negative"])
def test_what_is_not_a_number_is_a_gap(bad: Any) -> None:
    """A series that is stale ends in NaN, or its points are missing."""
    found = asked(matrix(*buckets("db1", [0, 10, bad, 30, 40], [0, 15, 30, 45, 60], [0, 16, 32, 48, 64])))
    [series] = found.series
    assert series.start_s.tolist() == [T0, T0 + 180]
    assert "gaps" in " ".join(found.notes)


def test_a_reset_is_a_gap_and_is_said() -> None:
    found = asked(matrix(*buckets("db1", [50, 60, 5, 15, 25], [50, 60, 5, 15, 25], [50, 60, 5, 15, 25])))
    assert found.series[0].start_s.tolist() == [T0, T0 + 120, T0 + 180]
    assert any("reset on db1" in note for note in found.notes)


def test_bounds_that_change_make_another_layout() -> None:
    old = buckets("db1", [0, 1, 2, None, None], [0, 2, 4, 6, 8], bounds=("0.001", "+Inf"))
    new = buckets("db1", [None, None, 0, 1, 2], bounds=("0.002",))
    found = asked(matrix(*old, *new))
    assert sorted(len(each.edges_ns) for each in found.series) == [3, 3]
    assert {each.edges_ns[1] for each in found.series} == {1e6, 2e6}


def test_buckets_that_contradict_each_other_are_a_gap() -> None:
    found = asked(matrix(*buckets("db1", [0, 10, 30, 40], [0, 15, 20, 45], [0, 16, 32, 60])), minutes=3)
    assert found.series[0].start_s.tolist() == [T0, T0 + 120]


def test_a_histogram_without_its_last_bucket_is_no_histogram() -> None:
    found = asked(matrix(*buckets("db1", [0, 1, 2], bounds=("0.1",))), minutes=2)
    assert not found.series
    assert "gaps" in found.notes[0]


def test_series_that_differ_in_other_labels_add_up_and_it_is_said() -> None:
    rows = [
        ({**labels, "handler": handler}, values)
        for handler in ("a", "b")
        for labels, values in buckets("db1", [0, 1, 2], [0, 2, 4], [0, 2, 4])
    ]
    found = asked(matrix(*rows), minutes=2)
    assert found.series[0].counts.tolist() == [[2, 2, 0]] * 2
    assert "handler" in found.notes[0]


def test_duplicate_labels_are_refused() -> None:
    rows = buckets("db1", [0, 1, 2], [0, 2, 4], [0, 2, 4])
    with pytest.raises(TargetError, match="same labels"):
        asked(matrix(*rows, rows[0]), minutes=2)


def test_a_counter_has_counts_only() -> None:
    found = asked(matrix(({"instance": "db1:9104"}, [5, 65, 125])), minutes=2)
    assert found.series[0].counts.tolist() == [[60], [60]]
    assert found.series[0].edges_ns.tolist() == [0, np.inf]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"status": "success", "data": {"resul',
        b'{"status": "error", "error": "bad_data"}',
        b'{"status": "success", "data": {"resultType": "vector", "result": []}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}}]}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"instance": "a"}, '
        b'"values": [[1]]}]}}',
        b"[1, 2]",
        b"<html>login</html>",
    ],
)
def test_other_answers_are_errors(body: bytes) -> None:
    with pytest.raises(TargetError, match=r"127\.0\.0\.1"):
        asked(body)


def test_an_answer_cut_short_is_an_error() -> None:
    whole = matrix(*buckets("db1", [0, 1], [0, 2], [0, 2]))
    with (
        server(lambda _: whole, length=len(whole) + 100) as url,
        pytest.raises(TargetError, match="cut short"),
    ):
        read(Question(url, "x", T0, T0 + 60))


def test_a_refusal_says_why() -> None:
    body = b'{"status": "error", "error": "too many points"}'
    with (
        server(lambda _: body, code=400) as url,
        pytest.raises(TargetError, match="HTTP 400: too many points"),
    ):
        read(Question(url, "x", T0, T0 + 60))


def test_a_connection_that_hangs_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TargetError, match="no answer within"):
            read(Question(url, "x", T0, T0 + 60, timeout_s=0.2))
    with pytest.raises(TargetError, match="cannot be reached"):
        read(Question(url, "x", T0, T0 + 60, timeout_s=0.2))


def test_an_answer_that_becomes_too_much_or_trickles_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "headrace.change.production.prometheus"
    monkeypatch.setattr(f"{source}.MOST_VALUES", 1000)
    asked(matrix(({"instance": "db1"}, [1, 2, 3])), minutes=2)
    many = b'{"status": "success", "data": {"resultType": "matrix", "result": [' + b"[]," * 1000 + b"[]]}}"
    with pytest.raises(TargetError, match="more than 1,000 values"):
        asked(many)
    monkeypatch.setattr(f"{source}.MOST_WAITS", 0)
    with pytest.raises(TargetError, match="no answer within"):
        asked(matrix(({"instance": "db1"}, [1, 2, 3])), minutes=2)


def test_long_times_are_asked_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.change.production.prometheus.MOST_POINTS", 3)
    asked_for = []

    def answer(words: dict[str, str]) -> bytes:
        start, end = int(float(words["start"])), int(float(words["end"]))
        asked_for.append((end - start) // 60 + 1)
        values = [(at - T0) // 6 for at in range(start, end + 1, 60)]
        return matrix(({"instance": "db1"}, values), first=start)

    with server(answer) as url:
        found = read(Question(url, "x", T0, T0 + 420))
    assert asked_for == [3, 3, 2]
    assert found.series[0].counts.ravel().tolist() == [10] * 7


def test_only_http_is_an_address() -> None:
    with pytest.raises(PlanError, match="not an http"):
        read(Question("file:///etc/passwd", "x", 0, 600))


@pytest.mark.parametrize(
    "url", ["http://ann:hunter2@prom:9090", "http://ann:hunter2/x@prom", "https://hunter2@prom"]
)
def test_a_password_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(PlanError, match="credentials") as caught:
        read(Question(url, "x", 0, 600))
    assert "hunter2" not in str(caught.value)


# -- CSV --------------------------------------------------------------------------------------------------------


def test_csv_of_buckets(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "time,seconds,host,class,le_ms,count\n"
        "2026-03-01T10:00:00Z,60,db1,get,1,5\n2026-03-01T10:00,60,db1,get,inf,2\n1772359260,60,db1,get,2,1\n"
    )
    [series] = table.read([path]).series
    assert series.edges_ns.tolist() == [0, 1e6, 2e6, np.inf]
    assert series.counts.tolist() == [[5, 0, 2], [0, 1, 0]]
    assert (series.host, series.query_class) == ("db1", "get")


def test_files_that_leave_empty_buckets_out_share_their_bounds(tmp_path: Path) -> None:
    """The slow tail of one side must not end in a bucket without an end because the other side has none."""
    a, b, c = (tmp_path / f"{name}.csv" for name in "abc")
    a.write_text("time,seconds,le_ms,count\n0,60,1,5\n0,60,8,1\n60,60,1,3\n")
    b.write_text("time,seconds,le_ms,count\n120,60,1,5\n180,60,2,1\n")
    first, second = table.read([a, b]).series
    assert first.edges_ns.tolist() == second.edges_ns.tolist() == [0, 1e6, 2e6, 8e6, np.inf]
    assert second.counts.tolist() == [[5, 0, 0, 0], [0, 1, 0, 0]]
    c.write_text("time,seconds,le_ms,count\n120,60,1,5\n120,60,4,0\n180,60,1,1\n180,60,4,0\n")
    assert table.read([a, c]).series[1].edges_ns.tolist() == [0, 1e6, 4e6, np.inf]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("time,seconds,count\n", "no rows"),
        ("time,count\n1,2\n", "no column 'seconds'"),
        ("time,seconds,count\nyesterday,60,1\n", "a.csv:2"),
        ("time,seconds,count\n1,60,NaN\n", "count is NaN"),
        ("time,seconds,count\n1,60,-3\n", "count is -3"),
        ("time,seconds,count\n1,0,3\n", "not a length of time"),
        ("time,seconds,count\nnan,60,3\n", "not a time"),
        ("time,seconds,count,le_ms\n1,60,3,-1\n", "not a latency"),
        ("time,seconds,count,le_ms,le_s\n1,60,3,1,1\n", "two bounds"),
        ("time,seconds,count\n1,60\n", "a.csv:2"),
        ("time,seconds,count\n1,60,3\n31,60,3\n", "overlap"),
    ],
)
def test_bad_csv_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(PlanError, match=said):
        table.read([path])


def test_two_files_of_the_same_stretch_would_count_it_twice(tmp_path: Path) -> None:
    head = "time,seconds,host,class,count\n"
    a, b, c, later = (tmp_path / f"{name}.csv" for name in ("a", "b", "c", "later"))
    a.write_text(f"{head}0,60,db1,get,3\n60,60,db1,get,3\n")
    b.write_text(f"{head}90,60,db1,get,3\n")
    c.write_text(f"{head}0,60,db2,get,3\n0,60,db1,put,3\n120,60,db1,get,3\n")
    later.write_text(f"{head}180,60,db1,get,3\n")
    for twice in ([a, b], [a, a]):
        with pytest.raises(PlanError, match="stretches of db1 overlap") as caught:
            table.read(twice)
        assert str(a) in str(caught.value)
        with pytest.raises(PlanError, match="stretches of db1 overlap"):
            gather([], [str(each) for each in twice], [str(later)], None, None)
    assert len(table.read([a, c]).series) == 4
    assert len(gather([], [str(a), str(c)], [str(later)], 180.0, None)[0].series) == 5


def test_a_spreadsheet_s_csv_is_read_as_import_reads_it(tmp_path: Path) -> None:
    """Semicolons, decimal commas and Windows' encoding; each is said."""
    path = tmp_path / "a.csv"
    path.write_bytes("time;seconds;host;le_ms;count\n0;60;däb1;0,5;5\n60;60;däb1;1;2\n".encode("cp1252"))
    found = table.read([path])
    assert found.hosts == ["däb1"]
    assert found.series[0].edges_ns.tolist() == [0, 5e5, 1e6, np.inf]
    assert ["decimal commas" in note for note in found.notes].count(True) == 1
    assert any("Windows-1252" in note for note in found.notes)


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_paths = Counter[Path]()
    known = foreign_table.decoded
    monkeypatch.setattr(
        foreign_table, "decoded", lambda path, needed: read_paths.update([path]) or known(path, needed)
    )
    for name, at in (("a", 0), ("b", 120)):
        (tmp_path / f"{name}.csv").write_text(f"time,seconds,count\n{at},60,3\n")
    gather([], [str(tmp_path / "a.csv")], [str(tmp_path / "b.csv")], None, None)
    assert list(read_paths.values()) == [1, 1]


def test_sides_that_overlap_are_refused(tmp_path: Path) -> None:
    for name, at in (("a", 0), ("b", 30)):
        (tmp_path / f"{name}.csv").write_text(f"time,seconds,count\n{at},60,3\n")
    a, b = str(tmp_path / "a.csv"), str(tmp_path / "b.csv")
    with pytest.raises(PlanError, match="overlap"):
        gather([], [a], [b], None, None)
    with pytest.raises(PlanError, match="both sides at once"):
        gather(["http://127.0.0.1:9"], [], [], None, None)
    with pytest.raises(PlanError, match="time of the change is unknown"):
        gather([a], [], [], None, None)


# -- The command ------------------------------------------------------------------------------------------------


def written(path: Path, effect: float) -> Path:
    """A fleet of two changed and two control hosts."""
    hosts = ["db1", "db2", "db3", "db4"]
    quiet: dict[str, Any] = {"common": 0.01, "own": 0.01, "spread": 0.0}
    found = fleet(np.random.default_rng(1), hosts, (14, 14), changed=hosts[:2], effect=effect, **quiet)
    with path.open("w") as file:
        file.write("time,seconds,host,le_ns,count\n")
        for each in found:
            for i, at in enumerate(each.start_s):
                for j in np.flatnonzero(each.counts[i]):
                    file.write(f"{at},300,{each.host},{each.edges_ns[j + 1]},{each.counts[i][j]}\n")
    return path


def test_earlier_weeks_are_the_controls_where_there_are_no_hosts(tmp_path: Path) -> None:
    """A batch makes every week slower at that hour."""
    rows = ["time,seconds,host,le_ms,count"]
    for k, i in itertools.product(range(5), range(-20, 21)):
        slow = 9000 if i >= 0 else 1000
        for le, count in ((1, 10_000 - slow + 11 * k), (1.02, slow + 7 * (i % 4))):
            rows.append(f"{AT_S + 300 * i - k * 604_800},300,db1,{le},{count}")
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    verify = ("verify", str(tmp_path / "a.csv"), "--at", str(AT_S), "--settle", "1s", "--json")
    found = json.loads(headrace(*verify, "--weeks", "4").stdout)
    assert found["control"] == [f"db1, {k} week{'s' * (k > 1)} earlier" for k in range(1, 5)]
    [calls] = [each for each in found["fleet"] if each["response"] == "throughput"]
    assert calls["verdict"] == "equivalent"
    one = json.loads(headrace(*verify, "--weeks", "1").stdout)
    assert {each["verdict"] for each in one["fleet"]} == {"not enough data"}
    assert "at least 2 are needed" in json.dumps(one)
    for wrong in (("--control", "db1"), ("--window", "200h")):
        assert headrace(*verify, "--weeks", "4", *wrong).returncode == 2


@pytest.mark.parametrize(("effect", "code"), [(0.5, 13), (-0.5, 0)])
def test_the_command_exits_with_13_if_it_is_worse(
    effect: float,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, page = written(tmp_path / "a.csv", effect), tmp_path / "a.html"
    words = ["verify", str(source), "--at", str(AT_S), "--control", "db[3-4]", "--json", "--html", str(page)]
    monkeypatch.setattr("sys.argv", ["headrace", *words])
    from headrace.cli import load

    load("verify")
    with pytest.raises(SystemExit) as ended:
        main()
    said = json.loads(capsys.readouterr().out)
    assert (ended.value.code or 0) == code
    verdicts = {each["response"]: each["verdict"] for each in said["fleet"]}
    assert verdicts["p50"] == ("worse" if code else "better")
    assert said["control"] == ["db3", "db4"]
    assert "Over time" in page.read_text()


def rolled_out(state: Path, monkeypatch: pytest.MonkeyPatch, *made: tuple[str, float, float | None]) -> str:
    """A rollout that gave hosts a change at a time, and took it back at another; its id."""
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    hosts = [Host(name, TargetSpec("ssh", host=name, user="root")) for name, _, _ in made]
    seen = [Seen(each, Role.REPLICA, each.name, (), 100.0, {}) for each in hosts]
    book = Book.make(make({"server.innodb_io_capacity": "2000"}, seen, rules.load(None), 1))
    for name, start_s, end_s in made:
        for kind, at_s in (("applying", start_s), ("undone", end_s)):
            if at_s is not None:
                monkeypatch.setattr("headrace.rollout.book.time.time", lambda at_s=at_s: at_s)
                book.note(kind, host=name, change=f"{name}-1")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return book.plan.id


def test_a_control_that_a_rollout_changed_meanwhile_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path / "a.csv", 0.5)
    plan = rolled_out(
        tmp_path,
        monkeypatch,
        ("db4", AT_S + 1800.0, None),
        # Changed long before the window, a host is the same throughout: a good control.
        ("db3", AT_S - 10 * 86_400.0, None),
        ("db1", AT_S - 2400.0, AT_S - 1800.0),
    )
    words = ("verify", str(source), "--at", str(AT_S), "--json", "--control")
    found = json.loads(headrace(*words, "db[3-4]").stdout)
    assert found["control"] == ["db3"]
    at = datetime.fromtimestamp(AT_S + 1800, UTC)
    change = f"changed it at {at:%Y-%m-%d %H:%M:%S} UTC (server.innodb_io_capacity=2000)"
    assert f"db4 is left out of the controls: rollout {plan} {change}" in found["notes"]
    assert any(
        note.startswith(f"db1 differs in more than this change: rollout {plan}") for note in found["notes"]
    )
    assert not any(note.startswith("db2 ") for note in found["notes"])
    refused = headrace(*words, "db4")
    assert refused.returncode == 5, refused
    assert "no control is left: rollouts changed all of them" in " ".join(refused.stderr.split())


def test_the_change_that_is_verified_is_not_one_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path / "a.csv", 0.5)
    rolled_out(tmp_path, monkeypatch, ("db1", AT_S + 10.0, None), ("db2", AT_S + 200.0, None))
    found = json.loads(
        headrace("verify", str(source), "--at", str(AT_S), "--json", "--control", "db[3-4]").stdout
    )
    assert not any("rollout" in note for note in found["notes"])


def test_a_server_is_asked_and_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the selector to the verdict: one host becomes twice as slow at a known time, one does not."""
    rng = np.random.default_rng(1)
    bounds = 0.0005 * 1.02 ** np.arange(250)

    def answer(words: dict[str, str]) -> bytes:
        assert words["query"] == 'calls_bucket{env="prod"}'
        start, end = float(words["start"]), float(words["end"])
        times = np.arange(start, end + 1, 60)
        rows = []
        for host, factor in (("db1:9104", 2.0), ("db2:9104", 1.0)):
            own = np.zeros((len(times), len(bounds) + 1))
            for i, at in enumerate(times):
                median = 0.004 * (factor if at > AT_S else 1.0)
                found = np.searchsorted(bounds, rng.lognormal(np.log(median), 0.4, 2000))
                own[i] = np.bincount(found, minlength=len(bounds) + 1)
            total = own.cumsum(axis=0).cumsum(axis=1)
            for j, le in enumerate([*map(str, bounds), "+Inf"]):
                pairs = [[at, str(v)] for at, v in zip(times.tolist(), total[:, j].tolist(), strict=True)]
                rows.append({"metric": {"instance": host, "le": le}, "values": pairs})
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}}).encode()

    with server(answer) as url:
        words = [
            "--query",
            'calls_bucket{env="prod"}',
            "--at",
            str(AT_S),
            "--control",
            "db2",
            "--window",
            "1h",
        ]
        monkeypatch.setattr("sys.argv", ["headrace", "verify", url, *words, "--json"])
        from headrace.cli import load

        load("verify")
        with pytest.raises(SystemExit) as ended:
            main()
    said = json.loads(capsys.readouterr().out)
    assert ended.value.code == 13
    p90 = next(each for each in said["fleet"] if each["response"] == "p90")
    assert p90["verdict"] == "worse"
    assert p90["ratio"]["low"] <= 2 <= p90["ratio"]["high"]


# -- Digests ----------------------------------------------------------------------------------------------------


def lines(start_s: int, host: str, slow_ns: int) -> str:
    """A digest of an hour with two classes, as the agent writes it."""
    rng = np.random.default_rng(start_s)
    made = {
        name: np.unique(bucket_of(rng.lognormal(np.log(at), 0.3, 4000).astype(np.int64)), return_counts=True)
        for name, at in (("a" * 16, 1_000_000), ("b" * 16, slow_ns))
    }
    return "\n".join(json.dumps(line) for line in digest_lines(start_s, host, made)) + "\n"


def digest_lines(start_s: int, host: str, made: dict[str, Any]) -> Iterator[dict[str, Any]]:
    first, last = start_s * 10**9, (start_s + 3600) * 10**9
    yield {
        "type": "digest", "version": 1, "mode": "strict", "group": ["class"], "measures": [],
        "slice_ns": 2**6 * 10**9,
        "heat_slice_ns": 2**6 * 10**9, "first_ns": first, "last_ns": last, "inputs": ["slow.log"], "host": host,
        "filter": None, "filtered": 0, "undated": 0, "others": 0, "coverage": {"events": 8000}, "events": 8000,
    }  # fmt: skip
    whole: Counter[int] = Counter()
    for buckets_of, counts in made.values():
        whole.update(dict(zip(buckets_of.tolist(), counts.tolist(), strict=True)))
    pairs = {"": sorted(whole.items())} | {
        name: list(zip(b.tolist(), c.tolist(), strict=True)) for name, (b, c) in made.items()
    }
    for name, own in pairs.items():
        count = sum(n for _, n in own)
        common = {
            "count": count, "timed": count, "response_sum_ns": count, "response_min_ns": 1, "response_max_ns": 2,
            "response_sum_squares": "1", "first_ns": first, "last_ns": last, "failed": 0, "unanswered": 0,
            "buckets": own, "errors": {}, "users": [], "hosts": [], "databases": [],
        }  # fmt: skip
        if not name:
            yield {"type": "totals", **common}
            slices = [[start_s // 64 * 64 + 64 * i, [[b, 100] for b, _ in own[::9]]] for i in range(57)]
            yield {"type": "heat", "slices": slices}
        else:
            text = f"select {name}"
            own_words = {"id": name, "key": {"class": name}, "fingerprint": text, "verb": "select"}
            yield {"type": "class", **own_words, "tables": [], "slices": [], **common}
    yield {"type": "end", "classes": len(made)}


def test_digests_of_each_host_and_hour_are_blocks(tmp_path: Path) -> None:
    """As `--every` writes them: several digests in one file stay apart."""
    before: list[str] = []
    after: list[str] = []
    for host in ("db1", "db2", "db3"):
        for side, name, hours, slow in (
            (before, "b", range(4), 8_000_000),
            (after, "a", range(5, 9), 4_000_000),
        ):
            path = tmp_path / f"{host}.{name}.jsonl"
            path.write_text("".join(lines(T0 + 3600 * hour, host, slow) for hour in hours))
            side.append(str(path))
    found, at_s = gather([], before, after, None, None)
    assert at_s == T0 + 5 * 3600
    assert found.hosts == ["db1", "db2", "db3"]
    assert {each.query_class for each in found.series} == {"select " + "a" * 16, "select " + "b" * 16}
    assert all(len(each.start_s) == 8 for each in found.series)
    judged = verify(
        found.series, Judged(("db1", "db2", "db3"), (), Window(at_s, T0 + 4 * 3600, at_s, T0, T0 + 9 * 3600))
    )
    by_name = {each.response: each for each in judged.fleet}
    assert by_name["p90"].verdict is Verdict.BETTER
    assert by_name["p90"].ratio.estimate == pytest.approx(0.5, abs=0.05)
    same = judged.classes["select " + "a" * 16][1]
    assert same.ratio.estimate == pytest.approx(1, abs=0.05)
    assert same.verdict in (Verdict.EQUIVALENT, Verdict.NOT_ENOUGH_DATA)


def test_a_host_in_two_kinds_of_sources_is_refused_where_they_overlap(tmp_path: Path) -> None:
    digest, after = tmp_path / "db1.jsonl", tmp_path / "after.jsonl"
    digest.write_text(lines(T0, "db1", 8_000_000))
    after.write_text(lines(T0 + 7200, "db1", 8_000_000))
    csv = tmp_path / "c.csv"

    def gathered(host: str, start: int) -> list[str]:
        csv.write_text(f"time,seconds,host,class,count\n{start},60,{host},get,3\n")
        return gather([], [str(digest), str(csv)], [str(after)], None, None)[0].hosts

    with pytest.raises(PlanError, match="db1 is in tables and in digests at the same time"):
        gathered("db1", T0 + 600)
    assert gathered("db2", T0 + 600) == ["db2", "db1"]
    # Before, and between the two.
    assert gathered("db1", T0 - 600) == gathered("db1", T0 + 5000) == ["db1"]


def test_two_servers_that_both_ask_a_host_are_refused() -> None:
    def answer(words: dict[str, str]) -> bytes:
        times = np.arange(float(words["start"]), float(words["end"]) + 1, 60)
        pairs = [[at, str(i)] for i, at in enumerate(times.tolist())]
        rows = [{"metric": {"instance": "db1"}, "values": pairs}]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}}).encode()

    with server(answer) as one, server(answer) as other:
        ask = Question(one, "calls", AT_S - 600, AT_S + 600)
        assert gather([one, one], [], [], AT_S, ask)[0].hosts == ["db1"]
        with pytest.raises(PlanError, match=r"db1 is in http.* and in http.* at the same time"):
            gather([one, other], [], [], AT_S, ask)


def test_a_digest_that_contains_the_change_has_slices_without_classes(tmp_path: Path) -> None:
    path = tmp_path / "db1.jsonl"
    path.write_text(lines(T0, "db1", 8_000_000))
    found, _ = gather([str(path)], [], [], T0 + 1800.0, None)
    assert {each.query_class for each in found.series} == {""}
    assert "mix is not held fixed" in found.notes[0]


def test_a_digest_of_several_hosts_is_refused(tmp_path: Path) -> None:
    for host in ("db1", "db2"):
        (tmp_path / f"{host}.jsonl").write_text(lines(T0, host, 8_000_000))
    both = tmp_path / "both.parquet"
    tables.write(load_all([tmp_path / "db1.jsonl", tmp_path / "db2.jsonl"]), both)
    with pytest.raises(StoreError, match="2 hosts"):
        gather([], [str(both)], [], T0 + 9999.0, None)


def test_of_a_sparse_file_of_a_terabyte_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "x.csv").open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setattr(foreign_table, "at_most", lambda *_: pytest.fail("it was read"))
    with pytest.raises(PlanError, match="larger than 256 MiB"):
        foreign_table.decoded(tmp_path / "x.csv")
