"""Forms of listings that no client of MySQL prints by itself, and pages of exporters of other versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.base.errors import StoreError
from headrace.hunt.dumps.kinds import KINDS
from headrace.hunt.dumps.piece import Piece, Status, Threads, Unread, Variables
from headrace.hunt.hunt import Hunt, examine, saved

STATUS = {f"Com_x{n}": str(n) for n in range(30)} | {
    "Uptime": "1000", "Questions": "5000", "Threads_running": "3", "Last_query_cost": "0.500000",
    "Rsa_public_key": "", "Slave_running": "OFF",
}  # fmt: skip
NUMBERS = {name.lower(): float(value) for name, value in STATUS.items() if value[:1].isdigit()}


def read(text: str) -> list[Piece]:
    return [piece for kind in KINDS for piece in kind.read(text)]


def boxed(bar: str = "|", top: str = "+-+", middle: str = "+-+", between: str = "") -> str:
    """A table of two columns, with these characters for its lines."""

    def line(marks: str) -> str:
        left, dash, right = (marks[0], marks[1], marks[-1])
        return f"{left}{dash * 22}{marks[2] if len(marks) > 3 else left}{dash * 12}{right}\n"

    rows = [f"{bar} {name:<20} {bar} {value:<10} {bar}\n" for name, value in STATUS.items()]
    title = f"{bar} {'Variable_name':<20} {bar} {'Value':<10} {bar}\n"
    return line(top) + title + line(middle) + (line(between) if between else "").join(rows) + line(middle)


def lines(form: str) -> str:
    return "".join(form.format(name, value) for name, value in STATUS.items())


FORMS: dict[str, Callable[[], str]] = {
    "in a terminal": lambda: f"MariaDB [(none)]> show global status;\n{boxed()}36 rows in set (0.001 sec)\n",
    "drawn": lambda: boxed("│", "┌─┬┐", "├─┼┤"),
    "mycli": lambda: boxed("│", "╒═╤╕", "╞═╪╡", "├─┼┤"),
    "heavy": lambda: boxed("┃", "┏━┳┓", "┣━╋┫"),
    "in colours": lambda: boxed().replace("| ", "\x1b[36m|\x1b[0m "),
    "quoted": lambda: "".join(f"> {line}\n" for line in boxed().splitlines()),
    "a container's log": lambda: "".join(
        f"2026-11-29T12:00:00.123456789Z {line}\n" for line in boxed().splitlines()
    ),
    "Markdown": lambda: "| Variable_name | Value |\n|:---|---:|\n" + lines("| {} | {} |\n"),
    "psql": lambda: " Variable_name | Value\n---------------+-------\n" + lines(" {} | {}\n"),
    "bars": lambda: "Variable_name|Value\n" + lines("{}|{}\n"),
    "a last tab": lambda: "Variable_name\tValue\t\n" + lines("{}\t{}\t\n"),
    "INSERT": lambda: lines("INSERT INTO `t` (`Variable_name`, `Value`) VALUES ('{}', '{}');\n"),
    "one INSERT": lambda: "INSERT INTO `t` VALUES\n" + lines("\t('{}', '{}'),\n"),
    "YAML": lambda: lines("{}: {}\n"),
    "assignments": lambda: lines("{} = {}\n"),
    "a dictionary of Python": lambda: repr(STATUS),
    "tuples of Python": lambda: repr(tuple(STATUS.items())),
    "lists in JSON": lambda: json.dumps([list(pair) for pair in STATUS.items()]),
    "columns and rows in JSON": lambda: json.dumps(
        {"columns": ["Variable_name", "Value"], "rows": [list(pair) for pair in STATUS.items()]}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_listing_in_any_form_is_the_listing(form: str) -> None:
    (status,) = read(FORMS[form]())
    assert isinstance(status, Status)
    assert status.values.items() >= NUMBERS.items()


def test_two_listings_without_a_client_are_two() -> None:
    again = "".join(f"{name}: {value}\n" for name, value in (STATUS | {"Uptime": "1030"}).items())
    found = [piece for piece in read(FORMS["YAML"]() + again) if isinstance(piece, Status)]
    assert [status.values["uptime"] for status in found] == [1000, 1030]


def test_settings_of_a_program_are_no_status() -> None:
    assert read("".join(f"Option_{n}: {n}\n" for n in range(60)) + "Uptime: 5\nQuestions: 7\n") == []


def test_settings_and_sessions_are_read_from_drawn_tables_too() -> None:
    names = {f"innodb_flush_x{n}": "ON" for n in range(9)} | {"version": "8.0.39", "datadir": "/d/"}
    rows = "".join(f"│ {name:<20} │ {value:<9} │\n" for name, value in names.items())
    (found,) = read(f"┌──┬──┐\n│ Variable_name │ Value │\n├──┼──┤\n{rows}└──┴──┘\n")
    assert isinstance(found, Variables)
    assert found.values["version"] == "8.0.39"
    columns = ("Id", "User", "Host", "db", "Command", "Time", "State", "Info")
    row = ("7", "app", "h", "d", "Query", "3", "Sending", "SELECT 1")
    (sessions,) = read(f"│ {' │ '.join(columns)} │\n├──┼──┤\n│ {' │ '.join(row)} │\n")
    assert isinstance(sessions, Threads)
    assert sessions.rows[0]["info"] == "SELECT 1"


def page(seconds: int, *, old: bool = False, clock: bool = True, stamp: str = "") -> str:
    """A page of node_exporter on two CPUs that are 95% busy, with 100 reads/s."""
    total, ms = ("", 1000) if old else ("_total", 1)
    name = "node_cpu" if old else "node_cpu_seconds_total"
    cpus = [
        (f'{name}{{cpu="{"cpu" if old else ""}{cpu}",mode="{mode}"}}', 1000 + share * seconds)
        for cpu in range(2)
        for mode, share in (("user", 0.95), ("idle", 0.05), ("system", 0.0))
    ]
    unit = "ms" if old else "seconds_total"
    disk = [
        (f'node_disk_reads_completed{total}{{device="sda"}}', 100 * seconds),
        (f'node_disk_{"bytes_read" if old else "read_bytes_total"}{{device="sda"}}', 1e6 * seconds),
        (f'node_disk_io_time_{unit}{{device="sda"}}', 0.1 * ms * seconds),
        (f'node_disk_read_time_{unit}{{device="sda"}}', 0.2 * ms * seconds),
    ]
    rest: list[tuple[str, float]] = [("node_procs_running", 7)]
    if clock:
        rest.append(("node_time" if old else "node_time_seconds", 1_764_346_200 + seconds))
    return "".join(f"{series} {value}{stamp}\n" for series, value in (*cpus, *disk, *rest))


PAGES: dict[str, Callable[[int], str]] = {
    "today's": page,
    "of 0.15": lambda s: page(s, old=True),
    "with times": lambda s: page(s, stamp=f" {1_764_346_200_000 + 1000 * s}"),
    "OpenMetrics": lambda s: f"# TYPE node_cpu_seconds counter\n{page(s, stamp=' 1764346200.123')}# EOF\n",
    "without a clock": lambda s: page(s, clock=False),
    "with headers": lambda s: f"HTTP/1.1 200 OK\nContent-Type: text/plain\n\n{page(s)}",
}


def checked(hunt: Hunt) -> None:
    uses = {use.name: use for use in hunt.verdict.uses}
    assert hunt.verdict.sentence.startswith("CPU time limits this host: 95% of 2 CPUs")
    assert uses["block sda"].load.startswith("100 reads/s")
    assert uses["block sda"].saturation.endswith("2.00 ms per read")


@pytest.mark.parametrize("form", PAGES)
def test_pages_of_any_version_are_the_same_host(tmp_path: Path, form: str) -> None:
    for number in range(2):
        (tmp_path / f"{number}.prom").write_text(PAGES[form](10 * number + 100))
    checked(examine(saved(tmp_path)))


def test_two_pages_in_one_file_are_two(tmp_path: Path) -> None:
    path = tmp_path / "both.prom"
    path.write_text(page(100) + page(110))
    checked(examine(saved(path)))


def test_metrics_of_several_hosts_are_not_added_up() -> None:
    both = "".join(page(100).replace("{", f'{{instance="{host}:9100",') for host in ("db1", "db2"))
    (found,) = read(both)
    assert isinstance(found, Unread)
    assert "2 hosts (db1, db2)" in found.why


def sadf(name: str = "db1", load: str = "cpu-load") -> str:
    states = {
        "cpu": "all",
        "user": 80.0,
        "system": 15.0,
        "nice": 0.0,
        "iowait": 0.0,
        "steal": 0.0,
        "idle": 5.0,
    }
    statistics = [
        {"timestamp": {"date": "2026-11-29", "time": f"12:{n}0:00", "interval": 600}, load: [states]}
        for n in range(1, 3)
    ]
    host = {"nodename": name, "number-of-cpus": 4, "statistics": statistics}
    return json.dumps({"sysstat": {"hosts": [host]}})


def test_programs_that_watched_two_hosts_are_not_one_host(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(sadf(load="cpu-load-all"))
    assert "95% busy" in examine(saved(tmp_path)).verdict.sentence
    (tmp_path / "b.json").write_text(sadf("db1.example.com"))
    saved(tmp_path)
    (tmp_path / "c.json").write_text(sadf("db2"))
    with pytest.raises(StoreError, match="2 hosts: db1, db2"):
        saved(tmp_path)


def test_a_file_without_a_time_is_of_the_end_of_what_programs_printed(tmp_path: Path) -> None:
    """It was unpacked much later."""
    (tmp_path / "sar.json").write_text(sadf())
    (tmp_path / "meminfo").write_text("MemTotal: 8388608 kB\nMemFree: 99 kB\nMemAvailable: 4194304 kB\n")
    snapshot = saved(tmp_path)
    assert snapshot.seconds == 1200
    assert snapshot.started_at.startswith("2026-11-29T12:00:00")


def test_sizes_for_people_are_sizes(tmp_path: Path) -> None:
    path = tmp_path / "sar.txt"
    path.write_text(
        "Linux 6.1.0 (db1) \t11/29/26 \t_x86_64_\t(4 CPU)\n\n"
        "12:00:00  tps  rkB/s  wkB/s  dkB/s  areq-sz  aqu-sz  await  %util DEV\n"
        "12:10:00  100.00  5.0M  1.0M  0.0k  60.0k  0.50  5.00  30.0% sda\n"
        "12:20:00  100.00  5.0M  1.0M  0.0k  60.0k  0.50  5.00  30.0% sda\n"
    )
    (use,) = [use for use in examine(saved(path)).verdict.uses if use.name == "block sda"]
    assert use.load == "100 requests/s (reads and writes not told apart), 6.3 MB/s"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<svg>\n", "a picture"),
        ("mysql_up 0\n", "did not reach its server"),
        ('windows_cpu_time_total{core="0,0",mode="idle"} 5\n', "another exporter"),
        ("# HELP redis_up x\nredis_up 1\n", "another exporter"),
        ("Uptime: 9  Threads: 3  Questions: 50  Slow queries: 0  Opens: 17\n", "extended-status"),
    ],
)
def test_what_has_no_counters_is_named(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(StoreError, match=what):
        saved(path)
