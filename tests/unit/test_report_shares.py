"""Each kind of operation in a report, and the figure by which a workload is known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.experiment import report
from headrace.experiment.frozen import Design
from headrace.experiment.plan import WorkloadTable
from headrace.experiment.report import tables
from headrace.experiment.report.page import page_of
from headrace.experiment.report.view import View
from headrace.experiment.stats.result import Analysis
from headrace.experiment.stats.study import analyse_experiment
from headrace.experiment.store import RECONNECT, ExperimentFolder
from headrace.show import terminal
from tests import synthetic
from tests.written import printed

KINDS = ("new_order", "payment")


def made(path: Path, **more: Any) -> tuple[ExperimentFolder, Analysis]:
    effects = {"STOCK": 1.0, "POOL": 2.0}
    shape = {"effects": effects, "blocks": 3, "seconds": 8, "workload": "tpcc", "operations": KINDS, **more}
    folder = synthetic.make(path, synthetic.Shape(**shape))
    return folder, analyse_experiment(folder)


def test_the_whole_is_the_sum_of_its_kinds(tmp_path: Path) -> None:
    _, analysis = made(tmp_path / "x")
    assert set(analysis.operations) == set(KINDS)
    for whole in analysis.summaries:
        shares = [share.summary for share in tables.shares(analysis, whole.treatment)]
        found = [summary for summary in shares if summary]
        assert len(found) == 2
        assert sum(s.operations for s in found) == whole.operations
        # Both are done as often in this experiment, so the geometric means add up, too.
        assert sum(s.throughput_ops_s.estimate for s in found) == pytest.approx(
            whole.throughput_ops_s.estimate
        )


def test_new_order_transactions_a_minute(tmp_path: Path) -> None:
    folder, analysis = made(tmp_path / "x")
    (stock,) = [s for s in analysis.operations["new_order"] if s.treatment == "STOCK"]
    rate = tables.per_minute(folder.design, tables.shares(analysis, "STOCK"))
    assert rate is not None
    assert stock.throughput_ops_s.low is not None
    assert rate.estimate == pytest.approx(60 * stock.throughput_ops_s.estimate)
    assert rate.low == pytest.approx(60 * stock.throughput_ops_s.low)
    page = report.write(page_of(View(folder, analysis)), folder).read_text()
    assert "New-Order TPM" in page
    assert "not tpmC" in page
    assert f"{rate.estimate:,.0f}" in page
    content = json.loads((folder.path / "report.json").read_text())
    (told,) = [t for t in content["treatments"] if t["treatment"] == "STOCK"]
    assert told["per_minute"]["rate"]["estimate"] == rate.estimate
    assert told["per_minute"]["name"] == "New-Order TPM"
    assert {s["operation"] for s in told["shares"]} == set(KINDS)
    assert all(s["latency_ns"]["p90"]["estimate"] > 0 for s in told["shares"])


def test_the_terminal_shows_the_figure_and_p90_of_each_kind(tmp_path: Path) -> None:
    folder, analysis = made(tmp_path / "x")
    shown = printed(terminal.render(page_of(View(folder, analysis))), width=80)
    assert re.search(r"p90 ms +TPM +(new_order +payment|payment +new_order)", shown), shown
    rate = tables.per_minute(folder.design, tables.shares(analysis, "POOL"))
    assert rate
    assert re.search(rf"POOL +{rate.estimate:,.0f} ", shown), shown


def test_other_workloads_have_no_such_figure(tmp_path: Path) -> None:
    folder, analysis = made(tmp_path / "x", workload="sql")
    assert tables.per_minute(folder.design, tables.shares(analysis, "STOCK")) is None
    page = report.write(page_of(View(folder, analysis)), folder).read_text()
    assert "Each kind of operation" in page
    # Not in the packed chart library, which holds any three letters.
    assert "TPM" not in re.sub(r"<script\b[^>]*>[^<]*</script>", "", page)


def test_one_kind_alone_is_the_whole(tmp_path: Path) -> None:
    folder, analysis = made(tmp_path / "x", operations=("transaction",))
    assert analysis.operations == {}
    assert "Each kind of operation" not in report.write(page_of(View(folder, analysis)), folder).read_text()


def test_reconnects_are_no_kind_of_operation(tmp_path: Path) -> None:
    folder, analysis = made(tmp_path / "x", operations=("transaction", RECONNECT))
    other, without = made(tmp_path / "y", operations=("transaction",))
    assert analysis.operations == {}
    assert [s.operations for s in analysis.summaries] == [s.operations for s in without.summaries]
    paces = [View(*made).evidence.paces for made in ((folder, analysis), (other, without))]
    for trial, pace in paces[0].items():
        np.testing.assert_array_equal(pace.mean, paces[1][trial].mean)


def test_a_closed_loop_is_called_one(tmp_path: Path) -> None:
    folder, _ = made(tmp_path / "x")
    closed = folder.design
    assert not closed.is_open_loop

    def offering(options: dict[str, Any]) -> Design:
        return replace(closed, workload=WorkloadTable(kind="oltp", seconds=1, **options))

    assert offering({"rate": 50}).is_open_loop
    assert offering({"profile": [{"seconds": 1}]}).is_open_loop
    one_closed = (replace(closed.treatments[0], settings={"workload.rate": 0}), closed.treatments[1])
    assert not replace(offering({"rate": 50}), treatments=one_closed).is_open_loop


@pytest.mark.parametrize("rate", [0, 50])
def test_response_times_say_whose_they_are(tmp_path: Path, rate: int) -> None:
    folder, analysis = made(tmp_path / "x", latency_kind="response", options={"rate": rate})
    shown = printed(terminal.render(page_of(View(folder, analysis))), width=120)
    page = report.write(page_of(View(folder, analysis)), folder).read_text()
    assert ("closed loop" in shown) == (rate == 0)
    assert ("is one long operation per client" in page) == (rate == 0)
