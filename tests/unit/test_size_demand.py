"""The cost of a call, estimated from history, against a planted truth; and demands read from samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from typer.testing import CliRunner

from headrace.base.errors import HeadraceError
from headrace.capacity import demand, history
from headrace.capacity.commands.size import size_app
from headrace.capacity.history import History
from headrace.capacity.model import Demand, Resource
from headrace.capacity.report import demand as page
from headrace.capacity.report import words
from headrace.capacity.used import Part
from headrace.host.samples import Samples
from headrace.show import jsonform

TRUE = {"a": 0.001, "b": 0.0, "c": 0.0005}
BACKGROUND = 0.1


def calls_of(rng: np.random.Generator, steps: int) -> dict[str, np.ndarray[Any, Any]]:
    day = 1.6 + np.sin(np.arange(steps) * 2 * np.pi / 24)
    return {
        "a": 100 * rng.gamma(8, 1 / 8, steps),
        "b": 200 * rng.gamma(8, 1 / 8, steps) * day,
        "c": 300 * rng.gamma(8, 1 / 8, steps),
    }


def planted(seed: int, steps: int = 144, noise: float = 0.05, alike: float = 0.6) -> History:
    """Use that wanders around what the calls cost, as a cache or a checkpoint makes it."""
    rng = np.random.default_rng(seed)
    calls = calls_of(rng, steps)
    wander = np.zeros(steps)
    for t in range(1, steps):
        wander[t] = alike * wander[t - 1] + np.sqrt(1 - alike**2) * rng.standard_normal()
    use = BACKGROUND + np.sum([calls[name] * cost for name, cost in TRUE.items()], axis=0)
    return of(calls, np.maximum(use * (1 + noise * wander), 0))


def of(calls: Mapping[str, Any], cpu: Any, **more: Any) -> History:
    return History(Demand("db1", 0, 600, {Resource.CPU: np.asarray(cpu)}), dict(calls), **more)


def test_the_cost_of_a_call_is_found() -> None:
    found = demand.costs(planted(1))
    assert found.fits is not None
    assert found.fits["cpu"].explained > 0.5
    for name in ("a", "c"):
        cost = found.cost("cpu", name)
        assert cost is not None
        assert cost.estimate == pytest.approx(TRUE[name], rel=0.25)


@pytest.mark.parametrize("given", [{}, {"steps": 60}, {"steps": 300, "alike": 0.9}, {"noise": 0.2}], ids=str)
def test_intervals_cover_what_was_planted(given: dict[str, Any]) -> None:
    """Also where neighbouring steps are very alike, and for a class that costs nothing."""
    runs, held = 40, dict.fromkeys([*TRUE, "background"], 0)
    for seed in range(runs):
        found = demand.costs(planted(seed, **given))
        assert found.fits is not None
        wanted = {name: (found.cost("cpu", name), cost) for name, cost in TRUE.items()}
        wanted["background"] = (found.fits["cpu"].background, BACKGROUND)
        for name, (interval, cost) in wanted.items():
            assert interval is not None
            assert interval.low is not None
            assert interval.high is not None
            held[name] += interval.low - 1e-12 <= cost <= interval.high + 1e-12
    # 95% of 40 with three standard errors.
    assert min(held.values()) >= 33, held


def test_classes_that_always_come_together_are_one_cost() -> None:
    rng = np.random.default_rng(1)
    begin = 100 * rng.gamma(6, 1 / 6, 200)
    calls = {
        "begin": begin,
        "commit": begin * (1 + 0.001 * rng.standard_normal(200)),
        "select": 50 * rng.gamma(6, 1 / 6, 200),
    }
    use = 0.001 * calls["begin"] + 0.003 * calls["commit"] + 0.002 * calls["select"]
    found = demand.costs(of(calls, use * (1 + 0.02 * rng.standard_normal(200))))
    assert sorted(group.classes for group in found.groups) == [("commit", "begin"), ("select",)]
    assert found.cost("cpu", "begin") is None
    together = found.groups[[group.classes for group in found.groups].index(("commit", "begin"))]
    assert sum(together.shares) == pytest.approx(1)
    assert found.fits is not None
    cost = found.fits["cpu"].costs[found.groups.index(together)]
    assert cost.estimate == pytest.approx(0.002, rel=0.1)  # the mean of both
    assert any("played alone" in note for note in found.notes)


def test_a_class_that_is_the_sum_of_others_is_found() -> None:
    """No pair of them is alike; three together are."""
    rng = np.random.default_rng(2)
    first, second = (100 * rng.gamma(4, 1 / 4, 300) for _ in range(2))
    calls = {"first": first, "second": second, "commit": first + second}
    found = demand.costs(of(calls, 0.001 * (first + second) + 0.05 * rng.random(300)))
    assert any(len(group.classes) > 1 for group in found.groups)


def test_a_class_that_never_varies_is_background() -> None:
    rng = np.random.default_rng(3)
    calls = {"heartbeat": np.full(200, 10.0), "select": 100 * rng.gamma(4, 1 / 4, 200)}
    found = demand.costs(of(calls, 0.2 + 0.001 * calls["select"]))
    assert found.steady == ("heartbeat",)
    assert found.fits is not None
    assert found.fits["cpu"].background.estimate == pytest.approx(0.2, rel=0.02)
    alone = demand.costs(of({"heartbeat": calls["heartbeat"]}, np.full(200, 0.2)))
    assert "constant rate" in alone.refusal


def test_gaps_are_left_out_and_too_little_is_refused() -> None:
    rng = np.random.default_rng(4)
    rate = 100 * rng.gamma(4, 1 / 4, 100)
    cpu = 0.1 + 0.001 * rate
    rate[20:50], cpu[10:30] = np.nan, np.nan
    cost = demand.costs(of({"a": rate}, cpu)).cost("cpu", "a")
    assert cost is not None
    assert cost.estimate == pytest.approx(0.001, rel=1e-3)
    assert "too few" in demand.costs(of({"a": rate[:8]}, cpu[:8])).refusal
    assert "no calls were counted" in demand.costs(of({}, cpu)).refusal


def test_lock_time_has_an_interval_that_covers_what_was_planted() -> None:
    """Waits that wander from step to step, as one long transaction makes them; also of a group."""
    runs, held = 40, 0
    for seed in range(runs):
        given = planted(seed)
        rng = np.random.default_rng(100 + seed)
        waits = {"a": 0.002 * given.calls["a"] * rng.gamma(2, 1 / 2, 144)}
        found = demand.costs(replace(given, lock_s=waits))
        by_class = dict(zip([group.name for group in found.groups], found.locks, strict=True))
        assert by_class["b"] is None
        lock = by_class["a"]
        assert lock is not None
        assert lock.low is not None
        assert lock.high is not None
        assert 0 < lock.low < lock.estimate < lock.high
        held += lock.low <= 0.002 <= lock.high
    # 95% of 40 with three standard errors.
    assert held >= 33
    shown = json.loads(json.dumps(jsonform.render(page.page_of([found], [given])), allow_nan=False))
    assert shown["hosts"][0]["locks"][[group.name for group in found.groups].index("b")] is None


def test_lock_time_of_a_group_is_of_all_its_calls() -> None:
    rng = np.random.default_rng(1)
    begin = 100 * rng.gamma(6, 1 / 6, 200)
    calls = {"begin": begin, "commit": begin.copy()}
    waits = {"begin": 0 * begin, "commit": 0.004 * begin}
    found = demand.costs(of(calls, 0.001 * begin + 0.02 * rng.random(200), lock_s=waits))
    [lock] = found.locks
    assert lock is not None
    assert lock.estimate == pytest.approx(0.002)


def test_many_rare_classes_are_one() -> None:
    rng = np.random.default_rng(5)
    calls = {f"c{i}": rng.gamma(4, 1 / 4, 400) * (100 - i) for i in range(60)}
    found = demand.costs(of(calls, 0.001 * np.sum(list(calls.values()), axis=0)))
    assert len(found.groups) == demand.MOST_CLASSES + 1
    assert found.groups[-1].classes == (demand.OTHERS,)


# Samples.


def lines_of(seconds: int, reset_at: int = -1, gap: range = range(0)) -> list[dict[str, Any]]:
    """A host of two cores, half busy; 100 selects and 50 packets a second; the server restarts at ``reset_at``."""
    found = []
    for t in range(seconds):
        if t in gap:
            continue
        since = t if reset_at < 0 or t < reset_at else t - reset_at
        core = {"user": 50.0 * t, "idle": 50.0 * t, "system": 0.0, "softirq": 0.0}
        cpu = {state: {"all": 2 * value, "cpu0": value, "cpu1": value} for state, value in core.items()}
        samplers = {
            "cpu": cpu,
            "network": {
                "rx_packets": {"eth0": 20.0 * t, "lo": 1e6 * t},
                "tx_packets": {"eth0": 30.0 * t, "lo": 1e6 * t},
            },
            "disk": {
                "reads": {"vda": 7.0 * t, "vda1": 7.0 * t, "dm-0": 7.0 * t},
                "sectors_written": {"vda": 2.0 * t, "vda1": 2.0 * t, "dm-0": 2.0 * t},
            },
            "memory": {"MemTotal": {"": 4e9}, "MemAvailable": {"": 1e9}},
            "file_systems": {
                "size_bytes": {"/": 1e9, "/data": 1e9}, "available_bytes": {"/": 9e8, "/data": 2e8},
            },
            "mysql_status": {
                "com_select": {"": 100.0 * since}, "innodb_os_log_written": {"": 512.0 * since},
                "innodb_pages_written": {"": 3.0 * since}, "innodb_dblwr_pages_written": {"": 2.0 * since},
                "innodb_page_size": {"": 16_384.0},
            },
        }  # fmt: skip
        for sampler, values in samplers.items():
            found.append(
                {
                    "t_ns": (1_700_000_000 + t) * 10**9,
                    "sampler": sampler,
                    "ok": True,
                    "cost_ns": 1,
                    "values": values,
                }
            )
    return found


def write(path: Path, lines: list[dict[str, Any]], frame: int = 10**6) -> Path:
    """``frame``: lines per frame of zstd."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = [lines[at : at + frame] for at in range(0, len(lines), frame)]
    texts = ["".join(json.dumps(line) + "\n" for line in own).encode() for own in frames]
    path.write_bytes(b"".join(zstandard.ZstdCompressor().compress(each) for each in texts))
    return path


def test_samples_become_demands(tmp_path: Path) -> None:
    [found] = history.read(write(tmp_path / "db1.jsonl.zst", lines_of(121)))
    assert (found.host, found.demand.step_s, found.demand.start_s) == ("db1", 5, 1_700_000_000)
    steady = {
        Resource.CPU: 1.0, Resource.SOFTIRQ: 0.0, Resource.PACKETS: 50.0, Resource.READS: 7.0,
        Resource.WRITE_BYTES: 1024.0, Resource.LOG_BYTES: 512.0, Resource.MEMORY: 3e9, Resource.SPACE: 8e8,
    }  # fmt: skip
    for resource, value in steady.items():
        np.testing.assert_allclose(found.demand.used[resource], value, rtol=1e-6, err_msg=resource)
    np.testing.assert_allclose(found.parts[Part.USER], 1.0)
    np.testing.assert_allclose(found.parts[Part.PAGE_WRITES], 3.0)
    np.testing.assert_allclose(found.parts[Part.PAGE_BYTES], 5 * 16_384.0)
    assert found.limits == {
        Resource.CPU: 2.0, Resource.SOFTIRQ: 1.0, Resource.MEMORY: 4e9, Resource.SPACE: 1e9,
    }  # fmt: skip
    assert (list(found.calls), found.source) == (["select"], "commands")
    np.testing.assert_allclose(found.calls["select"], 100.0)


def test_a_restart_is_no_negative_rate_and_a_gap_no_zero(tmp_path: Path) -> None:
    lines = lines_of(200, reset_at=63, gap=range(100, 140))
    [found] = history.read(write(tmp_path / "db1.jsonl.zst", lines))
    selects = found.calls["select"]
    cpu = found.demand.used[Resource.CPU]
    assert np.nanmin(selects) > 50
    assert np.nanmax(selects) < 101
    assert 7 <= np.isnan(cpu).sum() <= 9
    assert np.isnan(selects).sum() == np.isnan(cpu).sum()
    np.testing.assert_allclose(cpu[np.isfinite(cpu)], 1.0)
    assert any("not watched" in note for note in found.notes)


def test_digests_that_are_sampled_seldom_set_the_steps(tmp_path: Path) -> None:
    """Every 10 s, at odd times: a step ends with a sample, so that none is read in its neighbour."""
    lines = lines_of(301)
    for t in range(3, 301, 10):
        count = {"cold": 40.0 * t, **({"late": 500.0 * (t - 103)} if t > 103 else {})}
        lock_ns = {name: 3e6 * value for name, value in count.items()}
        line = {
            "t_ns": (1_700_000_000 + t) * 10**9 + 5 * 10**8,
            "sampler": "statements",
            "ok": True,
            "cost_ns": 1,
        }
        lines.append({**line, "values": {"count": count, "lock_ns": lock_ns}})
    lines.sort(key=lambda line: int(line["t_ns"]))
    [found] = history.read(write(tmp_path / "db1.jsonl.zst", lines))
    assert (found.demand.step_s, found.source) == (10, "digests")
    late = found.calls["late"]
    assert set(np.round(late[np.isfinite(late)]).tolist()) == {0.0, 500.0}
    np.testing.assert_allclose(found.calls["cold"][np.isfinite(late)], 40.0)
    assert np.isfinite(late).sum() >= 28
    np.testing.assert_allclose(found.lock_s["late"], 0.003 * late)


def test_a_directory_is_hosts_and_their_files_follow_each_other(tmp_path: Path) -> None:
    lines = lines_of(240)
    half = len(lines) // 2
    write(tmp_path / "db1.jsonl.zst", lines)
    write(tmp_path / "db2" / "1.jsonl.zst", lines[:half])
    write(tmp_path / "db2" / "2.jsonl.zst", lines[half:])
    one, two = history.read(tmp_path)
    assert (one.host, two.host) == ("db1", "db2")
    np.testing.assert_allclose(one.demand.used[Resource.PACKETS], two.demand.used[Resource.PACKETS])


def test_a_file_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = write(tmp_path / "db1.jsonl.zst", lines_of(400), frame=500)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    [found] = history.read(path)
    assert 0 < found.demand.steps < 79


def test_the_command_prints_costs(tmp_path: Path) -> None:
    lines = lines_of(600)
    rng = np.random.default_rng(1)
    selects, user = 0.0, 0.0
    for line in lines:
        if line["sampler"] == "cpu":
            rate = 100 * rng.gamma(4, 1 / 4)
            selects, user = selects + rate, user + 0.2 * rate
            line["values"]["user"] = {"all": 2 * user, "cpu0": user, "cpu1": user}
            idle = 100.0 * (line["t_ns"] / 1e9 - 1_700_000_000) - user
            line["values"]["idle"] = {"all": 2 * idle, "cpu0": idle, "cpu1": idle}
        elif line["sampler"] == "mysql_status":
            line["values"]["com_select"][""] = selects
    source = write(tmp_path / "db1.jsonl.zst", lines)
    ran = CliRunner().invoke(size_app, ["demand", str(source), "--json"])
    assert ran.exit_code == 0, ran.output
    [found] = json.loads(ran.stdout)["hosts"]
    [cost] = found["fits"]["cpu"]["costs"]
    assert cost["low"] <= 0.004 <= cost["high"]
    assert cost["estimate"] == pytest.approx(0.004, rel=0.1)
    shown = CliRunner().invoke(size_app, ["demand", str(source), "--html", str(tmp_path / "d.html")])
    assert "select" in shown.output
    assert "4.0 ms" in shown.output or "ms" in shown.output


@pytest.mark.parametrize(
    ("resource", "value", "shown"),
    [
        ("cpu", 0.0, "0 µs"),
        ("cpu", 12.3e-6, "12.3 µs"),
        ("cpu", 999.7e-6, "1 ms"),
        ("cpu_user", 0.0155, "15.5 ms"),
        ("cpu", 0.9997, "1 s"),
        ("cpu", 1.55, "1.55 s"),
        ("cpu", 1234.5, "1,234 s"),
        ("packets", 12_345.0, "12,345"),
        ("packets", 1.25, "1.25"),
    ],
)
def test_costs_have_a_unit_that_fits(resource: str, value: float, shown: str) -> None:
    assert words.cost(resource, value) == shown


def test_an_idle_host_was_sampled() -> None:
    calls = calls_of(np.random.default_rng(1), 144)
    assert "idle all the time" in demand.costs(of(calls, np.zeros(144))).refusal
    assert "no resource was sampled" in demand.costs(of(calls, np.full(144, np.nan))).refusal
    some = np.where(np.arange(144) < 3, 1.0, np.nan)
    assert "too few of the steps" in demand.costs(of(calls, some)).refusal


def test_hostile_texts_are_shown_as_text(tmp_path: Path) -> None:
    from headrace.show import html

    given = planted(1)
    hostile = History(given.demand, given.calls, {"a": "<script>alert(1)</script>\x1b[31m"})
    content = html.render(page.page_of([demand.costs(hostile)], [hostile]))
    assert "<script>alert(1)" not in content


def test_a_gauge_holds_between_its_samples_and_not_in_a_gap(tmp_path: Path) -> None:
    """Space every 8 s, in steps of 5 s; nothing for a minute."""
    sampled = {(1_700_000_000 + t) * 10**9 for t in range(1, 241, 8) if not 100 <= t < 160}
    lines = [line for line in lines_of(241) if line["sampler"] != "file_systems" or line["t_ns"] in sampled]
    [found] = history.read(write(tmp_path / "db1.jsonl.zst", lines))
    assert found.demand.step_s == 5
    space = found.demand.used[Resource.SPACE]
    assert np.isfinite(space[:20]).all()
    assert np.isnan(space[22:32]).all()
    assert np.isfinite(space[33:]).all()


def test_no_samples_are_no_host() -> None:
    empty = Samples.of([])
    assert history.of_samples("db1", empty, np.array([0.0, 5.0])).demand.steps == 0


@pytest.mark.parametrize(
    "lines",
    [
        [[]],
        [{"t_ns": "x"}],
        [{"t_ns": 10**30, "sampler": "cpu", "ok": True, "cost_ns": 1, "values": {}}],
        [{"t_ns": 1, "sampler": "cpu", "ok": True, "cost_ns": 1, "values": {"user": 3}}],
        [{"t_ns": t, "sampler": "cpu", "ok": True, "cost_ns": 1, "values": {}} for t in (1, 9 * 10**18)],
        [{"t_ns": t * 10**9, "sampler": "cpu", "ok": True, "cost_ns": 1, "values": {"user": {"all": 1e308 * t}}}
         for t in range(100)],
    ],
    ids=["list", "words", "huge time", "no labels", "centuries", "huge values"],
)  # fmt: skip
def test_damaged_samples_are_an_error_or_no_result(tmp_path: Path, lines: list[Any]) -> None:
    source = write(tmp_path / "db1.jsonl.zst", lines)
    for verb in ("demand", "full"):
        ran = CliRunner().invoke(size_app, [verb, str(source), "--json"])
        assert ran.exit_code == 0 or isinstance(ran.exception, HeadraceError), repr(ran.exception)


def test_a_wrong_clock_takes_no_memory(tmp_path: Path) -> None:
    lines = [*lines_of(2), {**lines_of(1)[0], "t_ns": 9 * 10**18}]
    with pytest.raises(HeadraceError, match="steps"):
        history.read(write(tmp_path / "db1.jsonl.zst", lines), step_s=1)
