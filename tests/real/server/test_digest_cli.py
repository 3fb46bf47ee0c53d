"""``headrace digest`` from the command line: digests, real logs read by the agent, errors, plans."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.base.errors import HeadraceError
from headrace.host.agent import find_binary
from tests import digests, sshd
from tests.commands import headrace
from tests.digests import START_NS, Event, Shape
from tests.servers import Server, mariadb

DAY_NS = 86_400 * 10**9


def lines_file(path: Path, events: list[Event], shape: Shape | None = None) -> str:
    path.write_text("\n".join(digests.lines(events, shape)) + "\n")
    return str(path)


def asked(*arguments: str) -> Any:
    answer = headrace("digest", *arguments, "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_partial_digests_of_many_hosts_merge_exactly(tmp_path: Path) -> None:
    events = digests.traffic(1, 3_000)
    whole = asked(lines_file(tmp_path / "whole", events))
    parts = []
    for number in range(3):
        part = lines_file(tmp_path / f"{number}.jsonl", events[number::3], Shape(host=f"db{number}"))
        answer = headrace("digest", part, "--save", str(tmp_path / f"host{number}.parquet"))
        assert answer.returncode == 0, answer.stderr
        assert "saved: " in answer.stderr
        parts.append(str(tmp_path / f"host{number}.parquet"))
    merged = asked(*parts)
    assert {source["host"] for source in merged.pop("sources")} == {"db0", "db1", "db2"}
    whole.pop("sources")
    assert merged == whole


def test_the_terminal_and_the_page(tmp_path: Path) -> None:
    source = lines_file(tmp_path / "a", digests.traffic(1, 1_000))
    page = tmp_path / "page.html"
    answer = headrace(
        "digest", source, "--objective", "2ms", "--order", "max", "-n", "3", "--html", str(page)
    )
    assert answer.returncode == 0, answer.stderr
    assert "apdex" in answer.stdout
    assert "\x1b" not in answer.stdout
    assert page.stat().st_mode & 0o777 == 0o600
    assert "Classes by the slowest call" in page.read_text()


def test_two_digests_are_compared(tmp_path: Path) -> None:
    before = lines_file(tmp_path / "before", digests.traffic(1, 2_000))
    after = lines_file(tmp_path / "after", digests.traffic(1, 2_000, slower=2))
    told = asked("compare", before, after)
    ratios = [each["ratios"]["mean"] for each in told["classes"]]
    assert all(ratio == pytest.approx(2, rel=0.01) for ratio in ratios)
    assert "significance" in told["note"]
    assert "no significance" in " ".join(headrace("digest", "compare", before, after).stdout.split())


def test_client_and_server_stand_side_by_side(tmp_path: Path) -> None:
    events = digests.traffic(1, 2_000)
    server = lines_file(tmp_path / "server", events)
    slower = [Event(e.start_ns, e.klass, (e.response_ns or 0) + 10**6) for e in events]
    client = lines_file(tmp_path / "client", slower)
    told = asked("both-ends", client, server)
    assert all(each["is_same_calls"] for each in told["classes"])
    first = told["classes"][0]
    apart = first["client"]["mean_ns"] - first["server"]["mean_ns"]
    assert apart == pytest.approx(10**6)
    assert "network + client" in headrace("digest", "both-ends", client, server).stdout


def test_a_history_grows_and_remembers_reviews(tmp_path: Path) -> None:
    folder = str(tmp_path / "history")
    for day in range(2):
        events = [Event(START_NS + day * DAY_NS + n * 10**9, n % (2 + day)) for n in range(30)]
        source = lines_file(tmp_path / f"{day}", events)
        assert headrace("digest", source, "--add-to", folder).returncode == 0
    again = headrace("digest", source, "--add-to", folder)
    assert again.returncode == 5
    assert "already in the history" in again.stderr
    shown = headrace("digest", "history", folder).stdout
    assert "2026-03-01" in shown
    assert "2026-03-02" in shown
    noted = headrace(
        "digest",
        "review",
        folder,
        "0000000000000002",
        "--by",
        "ann",
        "--comment",
        "wants an index",
    )
    assert noted.returncode == 0, noted.stderr
    assert "reviewed by ann" in noted.stdout
    told = asked("history", folder)
    by_name = {each["class"]["class"][-1]: each for each in told["classes"]}
    assert by_name["2"]["first_day"] == "2026-03-02"
    assert by_name["2"]["review"]["comment"] == "wants an index"
    assert by_name["0"]["review"] is None
    assert list(by_name["0"]["by_day"]) == ["2026-03-01", "2026-03-02"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "SOURCE"),
        (["compare", "a"], 2, "AFTER"),
        (["both-ends", "a"], 2, "SERVER"),
        (["--order", "size", "a"], 2, "one of sum"),
        (["--objective", "10", "a"], 2, "10ms"),
        (["--objective", "-1ms", "a"], 2, "10ms"),
        (["{digest}", "--since", "2026-01-01T00:00:00Z"], 3, "cannot be filtered"),
        (["{digest}", "--save", "{digest}/a.parquet"], 2, "cannot be written"),
        (["{digest}", "{pt}"], 9, "its mode is pt"),
        (["compare", "{digest}", "{pt}"], 9, "cannot be compared with"),
        (["{digest}", "--explain"], 2, "needs a server"),
        (["history", "{folder}"], 9, "it has no digest yet"),
        (["{cut}"], 9, "ends before its last line"),
        (["{folder}/no-such.log"], 1, "no-such.log"),
    ],
)
def test_errors_are_one_line_with_their_exit_code(
    arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    names = {"folder": str(tmp_path / "empty")}
    (tmp_path / "empty").mkdir()
    names["digest"] = lines_file(tmp_path / "strict", [Event(START_NS)])
    names["pt"] = lines_file(tmp_path / "pt", [Event(START_NS)], Shape(mode="pt"))
    names["cut"] = str(tmp_path / "cut")
    (tmp_path / "cut").write_text("\n".join(digests.lines([Event(START_NS)])[:-1]))
    answer = headrace("digest", *[each.format(**names) for each in arguments])
    if code == 1:  # what the agent says of a file that is not there is its own
        assert answer.returncode not in (0, 2)
    else:
        assert answer.returncode == code, answer.stderr
    assert said in " ".join(answer.stderr.split())
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr


# -- Real logs --------------------------------------------------------------------------------------------------


def queries(seed: int, n: int) -> list[str]:
    """Statements of a shop, some of which fail."""
    draw = random.Random(seed)
    kinds: list[Callable[[], str]] = [
        lambda: f"SELECT name FROM t WHERE id = {draw.randrange(5000)}",
        lambda: f"SELECT COUNT(*) FROM t WHERE price IN ({', '.join('7' * draw.randrange(1, 9))})",
        lambda: f"INSERT INTO t (name, price) VALUES ('it''s {draw.randrange(99)}', {draw.randrange(99)})",
        lambda: "SELECT nothing FROM t",
        lambda: f"/* app:shop */ UPDATE t SET price = price + 1 WHERE id = {draw.randrange(50)}",
    ]
    return [draw.choice(kinds)() for _ in range(n)]


@dataclass(frozen=True)
class Shop:
    server: Server
    log: str


@pytest.fixture(scope="module")
def shop(folder: Path) -> Iterator[Shop]:
    """A server that wrote every statement of two users into its slow log, and still runs."""
    options = ("--slow-query-log=1", "--long-query-time=0", "--slow-query-log-file=slow.log")
    with mariadb(folder / "m", *options, "--log-slow-verbosity=query_plan") as server:
        server.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(30), price INT, KEY (price))",
        )
        for seed in range(2):
            with (
                contextlib.closing(
                    pymysql.connect(
                        unix_socket=server.socket,
                        user="root",
                        ssl_disabled=True,
                        database="shop",
                        autocommit=True,
                    )
                ) as connection,
                connection.cursor() as cursor,
            ):
                for query in queries(seed, 300):
                    with contextlib.suppress(pymysql.Error):
                        cursor.execute(query)
                        cursor.fetchall()
        [log] = folder.rglob("slow.log")
        copy = folder / "slow.log"
        # As it is now: what the tests ask is logged, too.
        copy.write_bytes(log.read_bytes())
        yield Shop(server, str(copy))


def test_a_real_slow_log_is_counted_exactly(shop: Shop) -> None:
    told = asked(shop.log, "-n", "100")
    calls = {each["fingerprint"]: each["calls"] for each in told["classes"]}
    sent = [query for seed in range(2) for query in queries(seed, 300)]
    for mark, sent_mark in (
        ("select name from t", "SELECT name"),
        ("update t set", "UPDATE"),
        ("insert into t", "INSERT"),
    ):
        [found] = [n for fingerprint, n in calls.items() if fingerprint.startswith(mark)]
        assert found == sum(sent_mark in query for query in sent)
    assert sum(calls.values()) == told["all"]["calls"] == Path(shop.log).read_text().count("# Query_time:")
    assert "it''s" not in json.dumps([each["fingerprint"] for each in told["classes"]])


def test_parts_of_a_real_log_merge_to_what_the_agent_says_of_the_whole(shop: Shop, tmp_path: Path) -> None:
    from headrace.traffic.digests.lines import read_lines
    from headrace.traffic.digests.merge import merge

    def told(path: Path) -> Any:
        answer = subprocess.run([str(find_binary()), "digest", str(path)], capture_output=True, check=True)
        return read_lines(answer.stdout.splitlines(), str(path))

    whole = Path(shop.log).read_bytes()
    head, *entries = whole.split(b"# User@Host")
    parts = []
    for number in range(3):
        path = tmp_path / f"{number}.log"
        # Every part has the whole preamble and its own entries.
        path.write_bytes(b"# User@Host".join([head, *entries[number::3]]))
        parts.append(told(path))
    ours, agents = merge(parts), told(Path(shop.log))
    skip = ("coverage", "source")  # the preamble was read three times
    left, right = ([row for row in table.to_pylist() if row["part"] not in skip] for table in (ours, agents))
    # Without its line of time an entry is at the one before it: only times may differ.
    assert [row for row in left if row["part"] in ("latency", "label")] == [
        row for row in right if row["part"] in ("latency", "label")
    ]


def test_pt_mode_has_the_classes_counts_and_ids_of_pt_query_digest(shop: Shop) -> None:
    program = shutil.which("pt-query-digest")
    if program is None:
        pytest.skip("pt-query-digest is not installed")
    argv = [program, "--limit", "100%", "--output", "json", "--no-version-check", shop.log]
    theirs = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    expected = {each["checksum"]: each["query_count"] for each in theirs["classes"]}
    ours = asked(shop.log, "--mode", "pt", "-n", "1000")
    assert {each["id"]: each["calls"] for each in ours["classes"]} == expected


def test_standard_input_and_filters_reach_the_agent(shop: Shop) -> None:
    argv = [
        str(Path(sys.executable).with_name("headrace")),
        "digest",
        "-",
        "--json",
        "--filter",
        "text~price",
    ]
    answer = subprocess.run(argv, input=Path(shop.log).read_bytes(), capture_output=True, check=True)
    told = json.loads(answer.stdout)
    assert 0 < told["all"]["calls"] < asked(shop.log)["all"]["calls"]
    assert told["coverage"]["filtered"] > 0
    assert headrace("digest", shop.log, "--filter", "nonsense").returncode == 2


def test_samples_are_explained_but_never_executed(shop: Shop) -> None:
    login = ("--explain", "--mysql-socket", shop.server.socket, "--mysql-user", "root")
    before = shop.server.sql("SELECT COUNT(*), SUM(price) FROM shop.t")
    told = asked(shop.log, "--details", "20", "-n", "20", *login)
    plans = {each["fingerprint"]: each.get("plan", "") for each in told["classes"]}
    [plan] = [plan for fingerprint, plan in plans.items() if fingerprint.startswith("select count(*)")]
    assert "query_block" in plan
    [refused] = [plan for fingerprint, plan in plans.items() if fingerprint.startswith("insert")]
    assert "only statements that read" in refused
    assert shop.server.sql("SELECT COUNT(*), SUM(price) FROM shop.t") == before


@pytest.mark.needs("sshd")
async def test_a_host_digests_its_own_log_and_sends_the_table(shop: Shop, tmp_path: Path) -> None:
    from headrace.traffic import traffic
    from headrace.traffic.digests.classes import open_digest

    folder = tmp_path / "sshd"
    folder.mkdir()
    with sshd.running_sshd(folder) as server:
        target = server.target()
        await target.connect()
        try:
            found = open_digest(await traffic.digest(target, [shop.log], ["--mode", "pt"]))
            with pytest.raises(HeadraceError, match=r"no-such\.log"):
                await traffic.digest(target, ["/no-such.log"], [])
        finally:
            await target.close()
    assert found.all.count == Path(shop.log).read_text().count("# Query_time:")
    assert found.mode == "pt"


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM t", "/*!ANALYZE*/ SELECT 1", "/*M!100000 DELETE FROM t*/ SELECT 1", "SELECT 1; DELETE FROM t",
        "SELECT * FROM t INTO OUTFILE '/tmp/headrace-never'", "SELECT * FROM t FOR UPDATE", "ANALYZE SELECT 1", "",
    ],
)  # fmt: skip
def test_nothing_but_reads_is_explained(shop: Shop, text: str) -> None:
    argv = [
        str(find_binary()),
        "explain",
        "--text",
        "--mysql-socket",
        shop.server.socket,
        "--mysql-user",
        "root",
    ]
    answer = subprocess.run(
        [*argv, "--mysql-database", "shop"], input=text, text=True, capture_output=True, check=False
    )
    assert answer.returncode == 5, (answer.stdout, answer.stderr)
    assert "only statements that read" in answer.stderr
