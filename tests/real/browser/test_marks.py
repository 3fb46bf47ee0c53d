"""A proven change on the charts of a host and of a query: number, effect, verdict and interval."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from headrace.history.archive.files import MINUTE_S
from headrace.web import app
from tests import browser
from tests.below import within
from tests.history import fill, site
from tests.served import on_loopback
from tests.unit.test_web_marks import tried
from tests.waiting import until

KEY = "key"


def test_every_chart_says_what_was_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    start = int(time.time()) // MINUTE_S * MINUTE_S - 5 * MINUTE_S
    _, host = tried()
    found = site(tmp_path, (host,), key=KEY)
    fill(found.reader.archive, host, start, 8)
    with on_loopback(app.application(found)) as (url, _), browser.page() as tab:
        within_session = within(tab, f"{url}/enter?key={KEY}")
        for page, figures in (
            (f"/host?host={host}", ["[data-chart*='metric=cpu']"]),
            (f"/query?host={host}&class=a&source=slow+log", ["[data-series]", "[data-heat]"]),
        ):
            # So that the end of the change is within what the history has.
            tab.open(f"{within_session}{page}&until={start + 8 * MINUTE_S}")
            for figure in figures:
                tab.evaluate(f'document.querySelector("{figure}").scrollIntoView()')
                text = f'document.querySelector("{figure} .marks")?.textContent || ""'
                until(partial(tab.evaluate, text), limit_s=60, what=f"{page} {figure}")
                said = tab.evaluate(text)
                assert said.startswith("kept: server.innodb_io_capacity=2000; time per query -1")
                assert " to " in said
                assert said.endswith("), pass")
        assert not tab.seen.errors
