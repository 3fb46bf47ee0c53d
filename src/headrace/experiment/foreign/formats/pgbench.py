"""pgbench: the report at its end."""

from __future__ import annotations

import re

from headrace.experiment.foreign.run import OtherVariant, Run, groups, stalls

NAME = "pgbench"

_PROGRESS = re.compile(r"^progress: ([\d.]+) s, ([\d.]+) tps", re.MULTILINE)
_ABOUT = {
    "pgbench_version": r"^pgbench \(([^)]+)\)",
    "partition_method": r"^partition method: (\w+)",
    "partitions": r"^partitions: (\d+)",
    "transactions_per_client": r"^number of transactions per client: (\d+)",
}
_TPS = re.compile(r"^tps = ([\d.]+) \(([^)\n]*)\)", re.MULTILINE)
_LOG = re.compile(r"(\d+ \d+ \d+ \d+ \d{10} \d+( \d+)*\n){3}|(\d{10}( \d+){5,}\n)+$")


def read(text: str) -> list[Run] | None:
    if _LOG.match(text):
        raise OtherVariant("pgbench's log of transactions (-l)", "the report that pgbench prints at its end")
    if (
        re.search(r"^(vacuuming\.\.\.|creating primary keys\.\.\.)\n", text, re.MULTILINE)
        and "tps = " not in text
    ):
        return [Run(problem="it prepared data (pgbench -i), and measured nothing")]
    if not re.search(r"^(pgbench \(|transaction type: |pgbench: )", text, re.MULTILINE):
        return None
    parts = re.split(r"^(?=pgbench \(|transaction type: )", text, flags=re.MULTILINE)
    # Its progress stands above its report.
    whole = [""]
    for part in parts:
        is_report = "number of transactions" in part or "pgbench: error" in part
        whole[-1] += part
        whole += [""] if is_report else []
    parts = whole[:-1] or [text]
    # The version and the type of the transactions stand above the same report.
    return [_run(part) for part in parts]


def _run(part: str) -> Run:
    found: dict[str, float] = {}
    # Since PostgreSQL 14 without the time of the connections; before, two lines.
    tps = _TPS.findall(part)
    chosen = next(
        (value for value, how in tps if "excluding" in how or "without" in how), tps[0][0] if tps else None
    )
    if chosen is not None:
        found["tps"] = float(chosen)
    for name, pattern in {
        "mean_ms": r"latency average(?: =|:) ([\d.]+) ms",
        "sd_ms": r"latency stddev(?: =|:) ([\d.]+) ms",
    }.items():
        if match := re.search(pattern, part):
            found[name] = float(match[1])
    settings = {}
    for name, pattern in {
        "clients": r"number of clients: (\d+)",
        "scale": r"scaling factor: (\d+)",
        "duration_s": r"duration: (\d+) s",
        "mode": r"query mode: (\w+)",
        "threads": r"number of threads: (\d+)",
        "script": r"transaction type: (.+)",
    }.items():
        if match := re.search(pattern, part):
            settings[name] = match[1]
    about = groups(part, _ABOUT)
    if "rate limit schedule lag" in part:
        about["rate_limited"] = "1"
    if re.search(r"\(including reconnection|^average connection time", part, re.MULTILINE):
        about["reconnects"] = "1"
    return Run(found, settings, _problem(part, found), about=about)


def _problem(part: str, found: dict[str, float]) -> str:
    if error := re.search(
        r"^pgbench: (?:error|fatal): ([^\n]*)"
        r"|^(Run was aborted[^\n]*|[Cc]lient \d+ (?:script \d+ )?aborted[^\n]*"
        r"|WARNING:  terminating connection [^\n]*|server closed the connection[^\n]*)",
        part,
        re.MULTILINE,
    ):
        return f"it failed: {(error[1] or error[2])[:120]}"
    done = re.search(r"actually processed: (\d+)(?:/(\d+))?", part)
    kinds = " ".join(how for _, how in _TPS.findall(part))
    is_half = "including connections" in kinds and "excluding connections" not in kinds
    if "tps" not in found or done is None or is_half:
        return "it has no report at its end: it was interrupted"
    if done[2] and int(done[1]) < int(done[2]):
        return f"only {done[1]} of {done[2]} transactions were processed"
    failed = re.search(r"number of failed transactions: (\d+)", part)
    if failed and int(failed[1]) > 0.01 * max(int(done[1]), 1):
        return f"{failed[1]} transactions failed"
    skipped = re.search(r"number of transactions skipped: (\d+)", part)
    if skipped and int(skipped[1]) > 0.01 * max(int(done[1]), 1):
        return f"{skipped[1]} transactions were skipped, as they were too late (--latency-limit)"
    return stalls(part, _PROGRESS) if found["tps"] > 0 else ""
