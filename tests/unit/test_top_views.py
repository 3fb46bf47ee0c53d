"""What `headrace top` shows: one moment in, lines out. Sizes, what stands out, what must not reach a terminal."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from inline_snapshot import snapshot

from headrace.base.model import Facts
from headrace.host.target import TargetSpec
from headrace.hunt.live import Feed, Link
from headrace.hunt.top import lines, screen
from headrace.hunt.top.jsonform import overview as overview_json
from headrace.hunt.top.past import point
from headrace.hunt.top.screen import SCREENS, Pages, Position, press
from headrace.hunt.top.shot import Shot, take
from tests.folders import ROOT

T0 = 1_795_263_972_000_000_000
TICKS = 12
STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def feed_of(cores: int = 4, hot: int | None = None, *, server: bool = True, name: str = "mariadbd") -> Feed:
    """A host with one device and one interface; core ``hot`` does nothing but packets."""
    feed = Feed(TargetSpec("local"), name="local")
    feed.facts = Facts(
        "0",
        {
            "hostname": "db1",
            "kernel": {"release": "6.1.0"},
            "cpu": {"online_count": cores},
            "memory": {"total_bytes": 64 << 30},
            "block_devices": [{"name": "nvme0n1", "kind": "disk", "driver": "nvme", "rotational": False}],
            "network_interfaces": [{"name": "eth0", "speed_mbit_s": 10_000, "driver": "ixgbe"}],
            "irqs": {"lines": [{"irq": 40, "device": "eth0-rx-0"}]},
            "server_settings": {"vendor": "mariadb", "version": "10.11.6", "variables": {}}
            if server
            else None,
        },
    )
    for tick in range(TICKS):
        for sampler, values in counters(cores, hot, tick, name).items():
            if sampler == "mysql_status" and not server:
                continue
            feed.ring.add({"t_ns": T0 + tick * 10**9, "sampler": sampler, "ok": True, "values": values})
        feed.ticks += 1
    feed.link = Link.LIVE
    return feed


def counters(cores: int, hot: int | None, t: int, name: str) -> dict[str, dict[str, dict[str, float]]]:
    each = {f"cpu{n}": shares(hot == n) for n in range(cores)}
    each["all"] = {state: sum(each[f"cpu{n}"][state] for n in range(cores)) for state in STATES}
    return {
        "cpu": {
            **{state: {cpu: each[cpu][state] * t for cpu in each} for state in STATES},
            "procs_running": {"": 2},
        },
        "softirqs": {"NET_RX": {f"cpu{n}": (90_000 if n == hot else 10) * t for n in range(cores)}},
        "interrupts": {"count": {f"40/cpu{n}": (30_000 if n == hot else 0) * t for n in range(cores)}},
        "memory": {"MemTotal": {"": 64 << 30}, "MemAvailable": {"": 16 << 30}, "Dirty": {"": 100 << 20}},
        "vmstat": {"pswpin": {"": 0}, "pswpout": {"": 0}},
        "psi": {"some_total_us": {"cpu": 20_000 * t, "io": 100_000 * t, "memory": 0}},
        "disk": {
            metric: {"nvme0n1": rate * t}
            for metric, rate in {
                "reads": 9000, "writes": 1000, "flushes": 50, "io_ms": 990, "read_ms": 1800, "write_ms": 50,
                "sectors_read": 288_000, "sectors_written": 32_000, "weighted_io_ms": 1850,
            }.items()
        },
        "network": {
            metric: {"eth0": rate * t}
            for metric, rate in {
                "rx_bytes": 25e6, "tx_bytes": 250e6, "rx_packets": 90_000, "tx_packets": 180_000,
                "rx_dropped": 3, "rx_errors": 0, "rx_fifo": 0, "tx_errors": 0, "tx_dropped": 0,
            }.items()
        },
        "snmp": {"Tcp.OutSegs": {"": 180_000 * t}, "Tcp.RetransSegs": {"": 5 * t}},
        "process": {
            "utime_ticks": {f"77/{name}": 150 * t}, "stime_ticks": {f"77/{name}": 30 * t},
            "rss_bytes": {f"77/{name}": 8 << 30},
        },
        "mysql_status": {
            metric: {"": value}
            for metric, value in {
                "questions": 12_000 * t, "com_select": 9000 * t, "com_update": 1500 * t, "com_commit": 800 * t,
                "threads_running": 6, "threads_connected": 64, "slow_queries": 0, "aborted_clients": 0,
                "innodb_buffer_pool_reads": 400 * t, "innodb_buffer_pool_read_requests": 20_000 * t,
                "innodb_rows_read": 50_000 * t, "innodb_rows_inserted": 0, "innodb_rows_updated": 1500 * t,
                "innodb_rows_deleted": 0, "innodb_row_lock_waits": 2 * t, "innodb_data_fsyncs": 900 * t,
                "innodb_os_log_written": 2_500_000 * t, "innodb_checkpoint_age": 80 << 20,
                "innodb_history_list_length": 1200,
            }.items()
        },
        "agent": {"cpu_ns": {"": 4e6 * t}},
    }  # fmt: skip


def shares(is_hot: bool) -> dict[str, float]:
    """Ticks a second of each state."""
    busy = (
        {"user": 1, "system": 2, "softirq": 95, "idle": 2}
        if is_hot
        else {"user": 30, "system": 9, "idle": 56}
    )
    return dict.fromkeys(STATES, 0.0) | busy | ({} if is_hot else {"iowait": 4, "steal": 1})


def shot_of(feed: Feed, age_s: float = 0.5) -> Shot:
    shot = take(feed, "12:00:00", age_s)
    assert shot is not None
    return shot


def text_of(shot: Shot | None, at: Position | None = None, width: int = 80, height: int = 24) -> str:
    drawn = screen.draw(shot, at or Position(), Pages(), width, height, "connecting to db1")
    assert len(drawn) == height
    assert max(line.cell_len for line in drawn) <= width
    return "\n".join(line.plain.rstrip() for line in drawn)


def test_the_overview_of_a_host_at_80_by_24() -> None:
    assert text_of(shot_of(feed_of())) == snapshot("""\
overview  db1 · 4 CPUs · Linux 6.1.0 · mariadb 10.11.6             live 12:00:00
No hardware is saturated: the CPUs are 61% idle, but 6 active server threads use
only 1.8 CPUs: they wait on each other (locks or hot code paths).
cpu  █ user   ▓ system   ░ irq   ▒ softirq   × steal   · iowait
  0 ▕████████▓▓▓·                ▏ 39%     2 ▕████████▓▓▓·                ▏ 39%
  1 ▕████████▓▓▓·                ▏ 39%     3 ▕████████▓▓▓·                ▏ 39%
mem  ██████████···· 75% of 64.0 GiB, 100 MiB dirty, swap 0 pages/s
tasks waited  2% of the time for cpu, 10% of the time for io,
              0% of the time for memory, 2 runnable
device    reads/s writes/s   MB/s  ms/r  ms/w queue %util
nvme0n1     9,000    1,000  163.8  0.20  0.05   1.9   99% %util is not a limit
interface  in pkt/s out pkt/s in Mbit/s out Mbit/s lost/s
eth0         90,000      180k     200.0    2,000.0    3.0 20% of 10,000 Mbit/s
tcp  180k segments/s out, 5.0 retransmitted, – refused
server  12,000 questions/s, select 9,000, update 1,500, commit 800
threads 6 running, 64 connected, 0 slow/s, 0 aborted/s
innodb  pool 400 misses/s of 20,000 (2.00%),
        rows/s 50,000 read 0 inserted 1,500 updated 0 deleted,
        row lock waits 2.0/s, fsyncs 900/s, log 2.5 MB/s, checkpoint age 80 MiB,
        history 1,200



1overview 2threads 3sql 4list 5irqs 6findings 7locks  ? help q quit p pause\
""")


def test_the_screen_in_the_docs_is_the_one_that_is_drawn() -> None:
    page = (ROOT / "docs" / "reference" / "top.md").read_text()
    assert f"```\n{text_of(shot_of(feed_of()))}\n```" in page


def test_the_interrupts_of_a_host_whose_packets_all_land_on_one_core() -> None:
    assert text_of(shot_of(feed_of(hot=2)), Position("interrupts"), height=9) == snapshot("""\
interrupts  db1 · 4 CPUs · Linux 6.1.0 · mariadb 10.11.6           live 12:00:00
softirqs a second          all       0      1      2      3
NET_RX                  90,030      10     10 90,000     10

interrupts a second        all       0      1      2      3
40 eth0-rx-0            30,000       ·      · 30,000      ·


1overview 2threads 3sql 4list 5irqs 6findings 7locks  ? help q quit p pause\
""")


def test_128_cores_fit_and_the_hot_one_is_named() -> None:
    text = text_of(shot_of(feed_of(cores=128, hot=77)))
    assert "Core cpu77 limits this host" in text
    assert " 77 ▕" in text
    assert "98%!" in text
    assert text.count("█") >= 1
    assert "server" in text
    wide = text_of(shot_of(feed_of(cores=128, hot=77)), width=200, height=60)
    assert sum(line.count("▕") for line in wide.splitlines()) >= 128


@pytest.mark.parametrize(
    ("width", "height", "name"),
    list(itertools.product((20, 40, 80, 139, 140, 200), (3, 10, 24, 60), SCREENS)),
)
def test_every_screen_fits_every_terminal(width: int, height: int, name: str) -> None:
    for cores in (1, 16, 129):
        text_of(shot_of(feed_of(cores, hot=0)), Position(name), width, height)


def test_a_name_cannot_command_the_terminal_or_hide() -> None:
    text = text_of(shot_of(feed_of(name="evil\x1b[2J\u202edb")), Position("threads"), width=120)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "evil\\x1b[2J\\u202edb" in text
    shot = replace(
        shot_of(feed_of()),
        listed={"processlist": [{"id": 7, "time_s": 12, "text": "SELECT '\x1b]0;owned\x07'"}]},
    )
    text = text_of(shot, Position("processlist"), width=120)
    assert "\x1b" not in text
    assert "SELECT '\\x1b]0;owned\\x07'" in text


def test_what_is_not_known_is_a_dash_or_a_word_and_never_a_zero() -> None:
    feed = feed_of(server=False)
    assert "none specified: --mysql-socket" in text_of(shot_of(feed))
    feed = feed_of()
    feed.ring.add({"t_ns": T0 + TICKS * 10**9, "sampler": "mysql_status", "ok": False, "error": "refused"})
    text = text_of(shot_of(feed))
    assert text.splitlines()[1] == "server unreachable: refused", "said before what limits the host"
    assert text.count("unreachable") == 1
    figures = point(shot_of(feed), 0.0).figures
    assert {key for key, value in figures.items() if value is not None} <= {"cpu", "io"}
    assert figures["cpu"] is not None
    assert point(shot_of(feed_of()), 0.0).figures["history"] == 1200
    assert "the server is unreachable: refused" in text_of(shot_of(feed), Position("processlist"))
    assert lines.rate(None) == lines.percent(None) == lines.duration(None) == lines.gibibytes(None) == "–"


def test_a_lost_connection_is_said_and_the_last_numbers_stay() -> None:
    feed = feed_of()
    feed.link, feed.problem = Link.LOST, "connection reset"
    text = text_of(shot_of(feed, age_s=7), width=120)
    assert "lost (7 s): connection reset" in text.splitlines()[0]
    assert "questions/s" in text
    assert "no sample for 5 s" in text_of(shot_of(feed_of(), age_s=5))
    assert "connecting to db1" in text_of(None)


def test_before_the_second_sample_nothing_is_shown() -> None:
    feed = feed_of()
    feed.ticks = 1
    assert take(feed, "12:00:00", 0) is None


def test_keys() -> None:
    def after(*keys: str, rows: int = 3) -> Position:
        at = Position()
        for key in keys:
            at = press(key, at, [f"row {n}" for n in range(rows)])
        return at

    assert [after(str(n)).screen for n in range(1, 8)] == list(SCREENS)
    assert after("9") == after("x") == after("0") == Position()
    assert after("4", "j", "down").row == 2
    assert after("4", "j", "j", "j", "j").row == 2
    assert after("4", "j", "up", "k").row == 0
    assert after("4", "down", rows=0).row == 0
    assert after("4", "s").sort == "user"
    assert after("4", "s", "s", "s").sort == "time"
    assert after("6", "j", "enter").page == "row 1"
    assert after("6", "enter", rows=0).page == ""
    assert after("6", "j", "enter", "down", "down", "up").top == 1
    assert after("6", "enter", "escape") == Position("findings")
    assert after("6", "escape") == after("6", "h") == Position()
    assert after("?").help
    assert not after("question_mark", "j").help
    assert after("?", "7") == Position("locks")
    assert after("4", "j", "?", "j").row == 2
    assert after("6", "j", "enter", "?", "escape").page == "row 1"
    assert after("?", "?") == Position()


def test_the_chosen_row_is_always_in_sight() -> None:
    rows = [{"id": n, "time_s": 100 - n, "text": f"SELECT {n}"} for n in range(50)]
    shot = replace(shot_of(feed_of()), listed={"processlist": rows})
    assert "SELECT 0" in text_of(shot, Position("processlist"))
    text = text_of(shot, Position("processlist", row=40))
    assert "SELECT 40" in text
    assert "SELECT 41" not in text


def test_statements_by_what_they_cost() -> None:
    rows = [
        {"digest": "a", "text": "SELECT cheap", "calls": 1000, "time_s": 0.01, "rows_examined": 1000},
        {"digest": "b", "text": "SELECT dear", "calls": 2, "time_s": 1.5, "rows_examined": 9e6},
    ]
    shot = replace(shot_of(feed_of()), listed={"statements": rows})
    body = text_of(shot, Position("statements"), width=120).splitlines()
    assert "SELECT dear" in body[2]
    assert " 750 " in body[2]
    assert "SELECT cheap" in text_of(shot, Position("statements", order=1), width=120).splitlines()[2]


def test_statements_and_threads_from_the_samplers() -> None:
    feed = feed_of()
    for tick in (0, 10):
        values = {
            "count": {"ab12": 50 * tick},
            "time_ns": {"ab12": 2e9 * tick},
            "rows_examined": {"ab12": 9e5 * tick},
        }
        feed.ring.add(
            {"t_ns": T0 + (tick + 1) * 10**9, "sampler": "statements", "ok": True, "values": values}
        )
    values = {"threads": {"Query": 3, "Sleep": 40}, "states": {"updating": 3}, "longest_s": {"Query": 7}}
    feed.ring.add({"t_ns": T0 + 11 * 10**9, "sampler": "processlist", "ok": True, "values": values})
    body = text_of(shot_of(feed), Position("statements"), width=120).splitlines()
    assert "digest ab12" in body[2]
    assert [body[2].split()[n] for n in range(4)] == ["2.000", "50", "40.0", "900k"]
    feed.listed["statements"] = [{"digest": "ab12", "text": "SELECT `x`"}]
    assert "SELECT `x`" in text_of(shot_of(feed), Position("statements"), width=120)
    text = text_of(shot_of(feed), Position("processlist"))
    assert "threads  40 Sleep, 3 Query" in text
    assert "longest  7 s Query" in text


def test_bars_round_their_ends_together() -> None:
    for user, system in itertools.product(range(0, 101, 7), repeat=2):
        if user + system <= 100:
            bar = lines.bar([("user", user / 100), ("system", system / 100)], 13)
            assert bar.cell_len == 13
            assert len(bar.plain.rstrip()) == round((user + system) / 100 * 13)


def test_memcached_has_its_line_and_a_core_that_is_full_of_interrupts_is_told() -> None:
    feed = feed_of(hot=2, server=False)
    name, numbers = "127.0.0.1:11211", {"cmd_get": 1000, "get_hits": 900, "evictions": 5, "cmd_set": 100}
    for tick in (0, 5, 10):
        values = {metric: {name: rate * tick} for metric, rate in numbers.items()}
        values |= {
            "uptime": {name: 100 + tick},
            "curr_connections": {name: 900},
            "max_connections": {name: 1024},
        }
        feed.ring.add({"t_ns": T0 + tick * 10**9, "sampler": "memcached", "ok": True, "values": values})
    row = {"pid": 9, "name": name, "settings": {}, "version": "1.6.18"}
    locked = {"pid": 8, "name": "/run/m.sock", "settings": {}, "why": "it demands a login (-Y)"}
    assert feed.facts is not None
    feed.facts = Facts("0", {**feed.facts.data, "memcached": {"instances": [row, locked]}})
    text = " ".join(text_of(shot_of(feed), width=100, height=40).split())
    assert f"{name}, 1,100 requests/s, hits 90.0%, evictions 5.0/s, connections 900 of 1,024" in text
    assert "/run/m.sock, not read: it demands a login (-Y)" in text
    assert "most on core 2: 95% of its time (98% busy), 0% on the others" in text
    assert "none specified" not in text
    found: Any = overview_json(shot_of(feed))["memcached"]
    assert [each["not_read"] for each in found] == ["it demands a login (-Y)", None]
    assert found[1]["hit_rate"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.01, "<0.1"),
        (0.5, "0.5"),
        (12.4, "12"),
        (99_999, "99,999"),
        (250_000, "250k"),
        (1.3e6, "1.30M"),
    ],
)
def test_rates_are_short(value: float, shown: str) -> None:
    assert lines.rate(value) == shown


def test_json_has_the_same_numbers() -> None:
    found: dict[str, Any] = overview_json(shot_of(feed_of()))
    assert found["devices"][0]["reads"] == pytest.approx(9000)
    assert found["server"]["rates_s"]["com_select"] == pytest.approx(9000)
    assert found["server"]["threads_running"] == 6
    assert found["network"]["eth0"]["rx_packets"] == pytest.approx(90_000)
    assert len(found["cpus"]) == 5
    assert overview_json(shot_of(feed_of(server=False)))["server"] is None
