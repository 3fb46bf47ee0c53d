"""Load on HTTP: k6, wrk, ab, siege."""

from __future__ import annotations

import re
from typing import Any

from headrace.experiment.foreign.run import (
    OtherVariant,
    Run,
    groups,
    known,
    number,
    parsed,
    pieces,
    text_of,
    within,
)

NAME = "k6, wrk, ab or siege"

#: Share of the requests that may fail, and of its time that a run must have lasted.
FEW_ERRORS, WHOLE = 0.01, 0.95
_ABOUT_AB = {
    "server": r"^Server Hostname:\s+(\S+)",
    "path": r"^Document Path:\s+(\S+)",
    "document_bytes": r"^Document Length:\s+(\d+) bytes",
    "tls": r"^SSL/TLS Protocol:\s+(\S+)",
}
_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def read(text: str) -> list[Run] | None:
    for begins, reader in (
        (r"^Running \d+(?:\.\d+)?[smh] test @ ", _wrk),
        (r"^This is ApacheBench", _ab),
    ):
        if parts := pieces(re.compile(begins, re.MULTILINE), text):
            return [reader(part) for part in parts]
    if runs := _sieges(text):
        return runs
    if found := re.search(r"^unable to connect to [^\n]*", text, re.MULTILINE):
        return [Run(problem=f"it failed: {found[0][:120]}")]
    if (
        re.search(r"^ +http_reqs\.*: +\d|execution: local\n", text, re.MULTILINE)
        or '"type":"Point"' in text[:2000]
    ):
        raise OtherVariant("k6's summary for people, or its points", "k6 run --summary-export=FILE")
    content = parsed(text)
    if within(content, "metrics", "http_reqs") is not None:
        return [_k6(content["metrics"])]
    return None


def _k6(metrics: dict[str, Any]) -> Run:
    def of(metric: str, key: str) -> float | None:
        """k6 1.0 writes the values one level deeper."""
        deeper = number(metrics, metric, "values", key)
        return deeper if deeper is not None else number(metrics, metric, key)

    found = known(
        requests_s=of("http_reqs", "rate"),
        mean_ms=of("http_req_duration", "avg"),
        p50_ms=of("http_req_duration", "med"),
        min_ms=of("http_req_duration", "min"),
        max_ms=of("http_req_duration", "max"),
    )
    tails = metrics.get("http_req_duration")
    tails = within(tails, "values") or tails
    for name in tails if isinstance(tails, dict) else ():
        tail = re.fullmatch(r"p\((\d[\d.]*)\)", name)
        if tail and (value := of("http_req_duration", name)) is not None:
            found[f"p{float(tail[1]):g}_ms"] = value
    failed = of("http_req_failed", "rate")
    failed = failed if failed is not None else of("http_req_failed", "value")
    problem = "" if "requests_s" in found else "it has no rate of requests"
    if failed is not None and failed > FEW_ERRORS:
        problem = f"{failed:.1%} of its requests failed"
    passed = of("checks", "rate")
    passed = passed if passed is not None else of("checks", "value")
    if passed is None and (tried := (of("checks", "passes") or 0.0) + (of("checks", "fails") or 0.0)):
        passed = (of("checks", "passes") or 0.0) / tried
    if not problem and passed is not None and 1 - passed > FEW_ERRORS:
        problem = f"{1 - passed:.1%} of its checks failed"
    dropped = of("dropped_iterations", "count") or 0.0
    if not problem and dropped > FEW_ERRORS * (dropped + (of("iterations", "count") or 0.0)):
        problem = f"{dropped:,.0f} iterations were dropped: it could not start them in time"
    vus = of("vus_max", "max") or of("vus_max", "value")
    settings = {"clients": text_of(vus)} if vus is not None else {}
    done, rate = of("http_reqs", "count"), found.get("requests_s")
    if done and rate:
        settings["duration_s"] = text_of(round(done / rate, 1))
    return Run(found, settings, problem, work=done or None)


#: What some cannot say.
_EARLY = "that {} was not stopped early: its report is as that of a shorter run"
_SIEGE = re.compile(r"^\{?[ \t]*\"?transactions\"?:\s+(\d+)", re.MULTILINE | re.IGNORECASE)


def _sieges(text: str) -> list[Run]:
    """siege, as JSON and, before version 4.1, for people: the same names with spaces."""
    if "availability" not in text.lower():
        if re.search(r"^\*\* SIEGE [\d.]+|^The server is now under siege|siege aborted", text, re.MULTILINE):
            return [Run(problem="it has no report at its end: it was interrupted, or aborted")]
        return []
    about = groups(text, {"clients": r"^\*\* Preparing (\d+) concurrent users"})
    return [_siege(part, about) for part in pieces(_SIEGE, text)]


def _siege(part: str, about: dict[str, str]) -> Run:
    said = {
        name.lower().replace(" ", "_"): float(value)
        for name, value in re.findall(r"^\{?[ \t]*\"?([A-Za-z_ ]+?)\"?:\s+([\d.]+)", part, re.MULTILINE)
    }
    if "transaction_rate" not in said or "shortest_transaction" not in said:
        return Run(problem="its report is cut off")
    measured = {"transactions_s": said["transaction_rate"], "max_ms": said["longest_transaction"] * 1e3}
    if mean := said.get("response_time", 0.0):
        # Seconds, unless another unit stands behind.
        measured["mean_ms"] = mean * (1.0 if re.search(r"response.time\"?:\s+[\d.]+ ms", part, re.I) else 1e3)
    lost = said.get("failed_transactions", 0.0)
    problem = (
        f"{lost:,.0f} transactions failed"
        if lost > FEW_ERRORS * max(said.get("transactions", 0.0), 1)
        else ""
    )
    if not problem and said.get("availability", 100.0) < 100 * (1 - FEW_ERRORS):
        problem = f"only {said['availability']:g}% of its transactions succeeded"
    settings = {"duration_s": text_of(round(said.get("elapsed_time", 0.0), 1))}
    return Run(
        measured,
        settings,
        problem,
        _EARLY.format("siege"),
        about=about,
    )


def _wrk(part: str) -> Run:
    found: dict[str, float] = {}
    rate = re.search(r"^Requests/sec:\s+([\d.]+)", part, re.MULTILINE)
    if rate:
        found["requests_s"] = float(rate[1])
    latency = re.search(r"^ +Latency +([\d.]+)(us|ms|s|m)\b +\S+ +([\d.]+)(us|ms|s|m)\b", part, re.MULTILINE)
    if latency:
        found |= {
            "mean_ms": float(latency[1]) * _MS[latency[2]],
            "max_ms": float(latency[3]) * _MS[latency[4]],
        }
    for share, value, unit in re.findall(
        r"^ +(\d+(?:\.\d+)?)%\s+([\d.]+)(us|ms|s|m)\s*$", part, re.MULTILINE
    ):
        found[f"p{float(share):g}_ms"] = float(value) * _MS[unit]
    settings = {}
    if duration := re.match(r"Running ([\d.]+)([smh])", part):
        settings["duration_s"] = text_of(float(duration[1]) * _SECONDS[duration[2]])
    if threads := re.search(r"(\d+) threads and (\d+) connections", part):
        settings |= {"threads": threads[1], "connections": threads[2]}
    done = re.search(r"^ +(\d+) requests in +(\d+\.?\d*)([smh])", part, re.MULTILINE)
    if rate is None or done is None or "Transfer/sec:" not in part:
        return Run(found, settings, "it has no rate at its end: it was interrupted")
    if duration and float(done[2]) * _SECONDS[done[3]] < WHOLE * float(settings["duration_s"]):
        return Run(found, settings, f"it was stopped after {done[2]}{done[3]} of {settings['duration_s']} s")
    bad = [int(count) for count in re.findall(r"(?:connect|read|write|timeout) (\d+)", part)]
    bad += [int(count) for count in re.findall(r"Non-2xx or 3xx responses: (\d+)", part)]
    problem = f"{sum(bad):,} requests failed" if sum(bad) > FEW_ERRORS * int(done[1]) else ""
    return Run(found, settings, problem, about=groups(part, {"url": r"^Running \S+ test @ (\S+)"}))


def _ab(part: str) -> Run:
    found: dict[str, float] = {}
    for name, pattern in {
        "requests_s": r"^Requests per second:\s+([\d.]+)",
        "mean_ms": r"^Time per request:\s+([\d.]+) \[ms\] \(mean\)\s*$",
    }.items():
        if match := re.search(pattern, part, re.MULTILINE):
            found[name] = float(match[1])
    for share, value in re.findall(r"^\s+(\d+)%\s+(\d+)(?: \(longest request\))?\s*$", part, re.MULTILINE):
        found["max_ms" if share == "100" else f"p{share}_ms"] = float(value)
    settings = {}
    if match := re.search(r"^Concurrency Level:\s+(\d+)", part, re.MULTILINE):
        settings["connections"] = match[1]
    done = re.search(r"^Complete requests:\s+(\d+)", part, re.MULTILINE)
    seconds = re.search(r"^Time taken for tests:\s+([\d.]+) seconds", part, re.MULTILINE)
    if done and seconds:
        # A run is of so many requests (-n), a round number, or of a time (-t), after which it has any number.
        is_counted = int(done[1]) % 10 == 0
        settings |= (
            {"requests": done[1]} if is_counted else {"duration_s": text_of(round(float(seconds[1]), 1))}
        )
    if "requests_s" not in found or done is None or "max_ms" not in found:
        return Run(found, settings, "its report is cut off")
    # Only its progress tells a run that was stopped: the report is as that of fewer requests.
    if "\nCompleted " in part and "\nFinished " not in part:
        return Run(found, settings, "it was interrupted: its progress does not end with Finished")
    bad = re.findall(r"^(?:Failed requests|Non-2xx responses|Write errors):\s+(\d+)", part, re.MULTILINE)
    failed = sum(int(count) for count in bad)
    problem = f"{failed:,} requests failed" if failed > FEW_ERRORS * int(done[1]) else ""
    about = groups(part, _ABOUT_AB)
    if re.search(r"^Keep-Alive requests:", part, re.MULTILINE):
        about["keep_alive"] = "1"
    # With -q it says "done", and else "Finished" on standard error.
    told = "requests" in settings or re.search(r"^Finished |\(be patient\)\.*done", part, re.MULTILINE)
    return Run(found, settings, problem, "" if told else _EARLY.format("ab"), about=about)
