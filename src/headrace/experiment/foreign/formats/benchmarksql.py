"""BenchmarkSQL: what its terminals say at their end."""

from __future__ import annotations

import re
from datetime import datetime

from headrace.experiment.foreign.run import Run, closed, groups, text_of

NAME = "BenchmarkSQL"

_OURS = re.compile(r"jTPCC : Term-\d+,|Term-\d+, Running Average tpmTOTAL:")
_END = re.compile(r"^.*Term-\d+, Transaction Count += \d+[^\n]*\n?", re.MULTILINE)
_RATES = {"tpmc": r"Measured tpmC \(NewOrders\) = ([\d.]+)", "tpm": r"Measured tpmTOTAL = ([\d.]+)"}
_ABOUT = {
    "warehouses": r"Term-\d+, warehouses=(\d+)",
    "driver": r"Term-\d+, driver=(\S+)",
    "transactions_per_terminal": r"Term-\d+, runTxnsPerTerminal=(\d+)",
    "limit_per_minute": r"Term-\d+, limitTxnsPerMin=(\d+)",
    "new_order_weight": r"Term-\d+, newOrderWeight=(\d+)",
    "payment_weight": r"Term-\d+, paymentWeight=(\d+)",
}
_TIMES = re.compile(r"Session (?:Start|End) += (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_FAILED = re.compile(r"\b(?:ERROR|FATAL)\b +jTPCC[^\n]*|Unexpected SQLException[^\n]*|SQLException in [^\n]*")
#: A lost deadlock or two is part of a run; of more than this share of its transactions it is not.
FEW_ERRORS = 0.01


def read(text: str) -> list[Run] | None:
    if not _OURS.search(text):
        return None
    return [_run(part) for part in closed(_END, text) if _OURS.search(part)]


def _run(part: str) -> Run:
    settings = groups(part, {"terminals": r"Term-\d+, terminals=(\d+)"})
    about = groups(part, _ABOUT)
    count = re.search(r"Transaction Count += (\d+)", part)
    rates = {name: float(text) for name, text in groups(part, _RATES).items()}
    if not count or len(rates) < len(_RATES):
        return Run(
            {}, settings, "it does not say how many transactions it made: it was interrupted", about=about
        )
    times = [datetime.fromisoformat(text) for text in _TIMES.findall(part)]
    if len(times) == 2:
        settings["duration_s"] = text_of((times[1] - times[0]).total_seconds())
    failed = _FAILED.findall(part)
    problem = (
        f"{len(failed):,} errors in {int(count[1]):,} transactions: {failed[0][:80]}"
        if len(failed) > FEW_ERRORS * int(count[1])
        else ""
    )
    return Run(rates, settings, problem, about=about)
