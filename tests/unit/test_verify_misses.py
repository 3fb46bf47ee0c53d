"""Misses of a cache before and after a change: how many there are decides what a change did to the database."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import headrace.change.commands.verify  # noqa: F401 - registers the command
from headrace.base.effect import Verdict
from headrace.change.panel import MISS_RATE
from headrace.change.production import Gets, served
from headrace.change.verify import Change, Question, Verified, verify
from headrace.cli.shell import app
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive
from headrace.history.archive.tables import GETS, HITS, METRICS
from tests.production import AT_S, CELL_S, fleet, waves, window
from tests.unit.test_verify_served import put, watched

CHANGE_S = 20_500 * DAY_S + 10 * HOUR_S
HOSTS = ("c1", "c2", "c3", "c4"), ("k1", "k2", "k3", "k4")


def caches(seed: int, effect: float = 0.0, share: float = 0.05, gets: int = 30_000) -> list[Gets]:
    """Stretches of five minutes, 24 on each side: waves that all share, each host's own, and chance."""
    rng = np.random.default_rng(seed)
    names = (*HOSTS[0], *HOSTS[1])
    start = (AT_S + CELL_S * np.arange(-24, 24)).astype(np.float64)
    logs = np.log(share) + 0.1 * waves(rng, 1, 48, 0.6) + 0.05 * waves(rng, len(names), 48, 0.6)
    logs += (start >= AT_S) * effect * (np.arange(len(names)) < 4)[:, None]
    asked = rng.poisson(gets, logs.shape)
    missed = rng.binomial(asked, np.exp(logs))
    return [
        Gets(name, start, start + CELL_S, asked[i].astype(float), missed[i].astype(float))
        for i, name in enumerate(names)
    ]


def looked(gets: list[Gets], seed: int = 1, responses: tuple[str, ...] = (MISS_RATE,)) -> Verified:
    series = fleet(np.random.default_rng(seed), [*HOSTS[0], *HOSTS[1]], (24, 24), changed=HOSTS[0])
    return verify(series, Question(*HOSTS, window(24, 24), responses=responses), gets, with_parts=False)


def misses(found: Verified) -> Change:
    return next(each for each in found.fleet if each.response == MISS_RATE)


def test_more_misses_are_worse_and_fewer_better() -> None:
    for effect, said in ((0.2, Verdict.WORSE), (-0.2, Verdict.BETTER)):
        found = misses(looked(caches(7, effect)))
        assert found.verdict is said
        assert found.ratio.low is not None
        assert found.ratio.high is not None
        assert found.ratio.low <= np.exp(effect) <= found.ratio.high
        assert found.before == pytest.approx(0.05, rel=0.1)


def test_of_unchanged_caches_at_most_one_in_twenty_is_claimed() -> None:
    series = looked(caches(0)).fleet
    assert len(series) == 1
    claimed = sum(
        misses(looked(caches(seed))).verdict in (Verdict.WORSE, Verdict.BETTER) for seed in range(120)
    )
    assert claimed <= 12, claimed


def test_few_misses_are_chance_and_that_is_said() -> None:
    found = misses(looked(caches(3, share=0.00001, gets=3_000)))
    assert found.verdict is Verdict.NOT_ENOUGH_DATA
    assert found.missing == "too few misses: it needs 10 per host and block"


def test_hosts_without_a_cache_have_no_such_response() -> None:
    found = looked([], responses=("throughput", "p50", MISS_RATE))
    assert [each.response for each in found.fleet] == ["throughput", "p50"]
    assert found.claims == 2


def history(root: Path, factor: float) -> Path:
    """Two servers on each of two hosts, of which one was changed: every get of the second port is a hit."""
    archive = Archive(root / "history")
    rng = np.random.default_rng(5)
    for minute in range(-60, 61):
        for host in ("cache1", "cache2"):
            t_s = CHANGE_S + MINUTE_S * minute
            watched(archive, host, t_s)
            share = 0.1 * rng.uniform(0.97, 1.03) * (factor if host == "cache1" and minute > 0 else 1.0)
            put(archive, METRICS, host, t_s, [
                {"metric": GETS, "label": ":11211", "n": 1, "sum": 200.0},
                {"metric": HITS, "label": ":11211", "n": 1, "sum": 1 - share},
                {"metric": GETS, "label": ":11212", "n": 1, "sum": 300.0},
                {"metric": HITS, "label": ":11212", "n": 1, "sum": 1.0},
                {"metric": GETS, "label": ":11213", "n": 1, "sum": 0.0},
            ])  # fmt: skip
    return archive.root


def test_the_history_knows_them_by_host(tmp_path: Path) -> None:
    [one, _] = served.observe([history(tmp_path, 1.0)], CHANGE_S + 20.0).gets
    assert one.gets.tolist() == [500.0 * 300] * len(one.start_s)
    assert one.misses.sum() / one.gets.sum() == pytest.approx(0.1 * 200 / 500, rel=0.02)


def test_the_command_says_that_a_cache_misses_more(tmp_path: Path) -> None:
    command = ["verify", str(history(tmp_path, 2.0)), "--at", str(CHANGE_S + 20.0), "--control", "cache2"]
    result = CliRunner().invoke(app, [*command, "--settle", "0s"])
    assert result.exit_code == 13, result.output
    assert "miss-rate is worse: 1.99" in " ".join(result.output.split())
    alone = CliRunner().invoke(app, [*command, "--response", MISS_RATE, "--json"])
    assert alone.exit_code == 13
    assert '"miss-rate"' in alone.stdout
    refused = CliRunner().invoke(app, [*command, "--response", MISS_RATE, "--class", "get"])
    assert refused.exit_code == 2
    assert "leave out --class" in " ".join(refused.output.split())
