"""fio: JSON (``--output-format=json`` or ``json+``) and the terse form, of fio 2 and 3."""

from __future__ import annotations

import json
import re
from typing import Any

from headrace.base.counted import counted
from headrace.experiment.foreign.alike import meaning
from headrace.experiment.foreign.run import JSON_START, OtherVariant, Run, number, rows_of, text_of, within

NAME = "fio (--output-format=json or json+)"
#: The share of its time that a run must have lasted.
WHOLE = 0.95
#: The share of its requests that may come back with less than was asked for.
FEW_SHORT = 0.01
_FATAL = re.compile(r"^fio: (?!terminating)[^\n]*", re.MULTILINE)
#: All kinds of requests are one with --unified_rw_reporting.
_SIDES = ("read", "write", "trim", "mixed")
#: Other names of options that are settings.
_ALSO = {"bs": "blocksize", "rw": "readwrite"}
#: Options that are settings already, that say where files are, or what is written about a run.
_OF_NO_MATTER = re.compile(
    r"bs|blocksize|iodepth|rw|readwrite|ioengine|numjobs|name|description|filename|filename_format|directory|opendir"
    r"|unlink|randseed|group_reporting|new_group|stonewall|wait_for|exitall|thread|write_\w+_log|log_\w+"
    r"|per_job_logs|percentile_list|\w*lat_percentiles|disable_\w+|gtod_\w+|unified_rw_reporting|nice|mountpoint"
)
#: Options by which a job does more or less than its size.
_OTHER_AMOUNT = frozenset({
    "io_size", "io_limit", "loops", "number_ios", "offset", "fill_device", "filesize", "zonemode", "zonesize",
    "exitall", "time_based",
})  # fmt: skip
_TRY = "fio --output-format=json --output=FILE, and without --status-interval"


def read(text: str) -> list[Run] | None:
    """A run per group of jobs: groups run one after the other, and the jobs of one together."""
    contents = _objects(text)
    if contents is None:
        if re.search(r"^[2-5];fio-\d", text, re.MULTILINE):
            raise OtherVariant("fio's terse form, of which versions have different columns", _TRY)
        if re.search(r"^ *(read|write|trim) ?: *(IOPS=|io=)|^fio-\d.*\nStarting \d", text, re.MULTILINE):
            raise OtherVariant("fio's report for people", _TRY)
        return [Run(problem=f"it failed: {told[0][:120]}")] if (told := _FATAL.search(text)) else None
    if contents == []:
        return [Run(problem="its JSON is cut off")]
    if len(contents) > 1:
        # Each holds all that was done since the start: the last is the run, if it ended.
        raise OtherVariant(
            f"{len(contents)} reports of fio in one file, of several runs or of one with --status-interval",
            _TRY,
        )
    content = contents[0]
    if rows_of(content.get("client_stats")) or within(content, "client_stats"):
        raise OtherVariant("the report of fio --client", "each server's own JSON")
    jobs = rows_of(content.get("jobs"))
    if not jobs:
        return [Run(problem="it lists no jobs")]
    groups: dict[float, list[dict[str, Any]]] = {}
    for job in jobs:
        groups.setdefault(number(job, "groupid") or 0.0, []).append(job)
    stopped = re.search(r"^fio: (?:terminating on signal \d+|pid=\d+.* got signal=\d+)", text, re.MULTILINE)
    runs = [_run(content, group) for group in groups.values()]
    if stopped:
        return [Run(run.responses, run.settings, f"it was interrupted ({stopped[0]})") for run in runs]
    return runs


def _objects(text: str) -> list[dict[str, Any]] | None:
    """The reports of a file, behind fio's warnings; empty if the only one is cut off, None without one."""
    found: list[dict[str, Any]] = []
    decoder, start = json.JSONDecoder(), JSON_START.search(text)
    while start:
        try:
            content, end = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            return [] if '"fio version"' in text and not found else found or None
        if isinstance(content, dict) and "fio version" in content:
            found.append(content)
        elif not found and isinstance(content, dict):
            return None
        start = JSON_START.search(text, end)
    return found or None


def _run(content: dict[str, Any], jobs: list[dict[str, Any]]) -> Run:
    """Rates of the jobs are summed, and the worst job's percentile is taken: percentiles cannot be averaged."""
    found: dict[str, float] = {}
    for job in jobs:
        for side in _SIDES:
            if (number(job, side, "total_ios") or 0.0) > 0:
                _add(found, side, job[side])
    if not found:  # nothing was done, which is a result
        found = {f"{side}_iops": 0.0 for side in _sides(content, jobs)}
    options = [{**_table(content, "global options"), **_table(job, "job options")} for job in jobs]
    # With --group_reporting there is one entry for all jobs of a group.
    told = [int(count) for each in options if (count := str(each.get("numjobs", ""))).isdigit()]
    settings = {"jobs": str(max([len(jobs), *told]))}
    for name, key in {"block_size": "bs", "iodepth": "iodepth", "mode": "rw", "engine": "ioengine"}.items():
        keys = (key, _ALSO.get(key, key))
        values = sorted({str(each[own]) for each in options for own in keys if own in each})
        if values:
            settings[name] = ",".join(values)
    runtimes = [number(job, side, "runtime") or 0.0 for job in jobs for side in _SIDES]
    if max(runtimes) > 0:
        settings["duration_s"] = text_of(round(max(runtimes) / 1e3, 1))
    done = sum(number(job, side, "io_bytes") or 0.0 for job in jobs for side in _SIDES)
    seconds = max(runtimes) / 1e3
    problem = _problem(jobs) or _cut_short(options, seconds) or _unfinished(options, done, seconds)
    return Run(found, settings, problem, about=_about(content, options), work=done or None)


def _about(content: dict[str, Any], options: list[dict[str, Any]]) -> dict[str, str]:
    """The version, and every option that says how requests were made; not where, nor what was written of it."""
    about: dict[str, str] = {}
    if isinstance(version := content.get("fio version"), str):
        about["fio_version"] = version.removeprefix("fio-")
    for name in sorted({name for each in options for name in each}):
        values = sorted({str(each.get(name, "not said")) for each in options})
        if name == "filename" and all(value.startswith("/dev/") for value in values):
            about["device"] = ",".join(values)
        elif not _OF_NO_MATTER.fullmatch(name):
            about[name.replace("-", "_")] = ",".join(values) or "1"
    return about


def _cut_short(options: list[dict[str, Any]], seconds: float) -> str:
    """A run that was to last for a time, whatever it has done, and did not."""
    asked = [
        float(option["runtime"].rstrip("s"))
        for option in options
        if "time_based" in option and re.fullmatch(r"\d+(\.\d+)?s?", str(option.get("runtime")))
    ]
    if len(asked) < len(options) or any("exitall" in option for option in options):
        return ""
    return f"it ran for {seconds:.1f} of {max(asked):g} s" if seconds < WHOLE * max(asked) else ""


def _unfinished(options: list[dict[str, Any]], done: float, seconds: float) -> str:
    """A run that was to do so much, or last for so long, and did neither."""
    whole = 0.0
    for option in options:
        size, asked = meaning(str(option.get("size"))), str(option.get("runtime"))
        if (
            not isinstance(size, tuple)
            or size[0] != "bytes"
            or not re.fullmatch(r"\d+s?", asked)
            or seconds >= WHOLE * float(asked.rstrip("s"))
            or _OTHER_AMOUNT & set(option)
        ):
            return ""
        whole += float(size[1])
    told = f"it did {done / 2**20:,.0f} of {whole / 2**20:,.0f} MiB, in a part of its time"
    return told if 0 < done < WHOLE * whole else ""


def _sides(content: dict[str, Any], jobs: list[dict[str, Any]]) -> list[str]:
    modes = {
        str(within(source, part, "rw") or "")
        for source, part in ((content, "global options"), (jobs[0], "job options"))
    }
    return [side for side in _SIDES if any(side in mode or mode in ("rw", "randrw") for mode in modes)]


def _table(content: dict[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _add(found: dict[str, float], side: str, part: dict[str, Any]) -> None:
    found[f"{side}_iops"] = found.get(f"{side}_iops", 0.0) + (number(part, "iops") or 0.0)
    # fio counts KiB.
    found[f"{side}_mib_s"] = found.get(f"{side}_mib_s", 0.0) + (number(part, "bw") or 0.0) / 1024
    # fio 2 has microseconds, and another name for them. With lat_percentiles they are of the time since a request
    # was made, which its submission is a part of.
    for key, of_ms, kind in (
        ("clat_ns", 1e6, ""), ("clat", 1e3, ""), ("lat_ns", 1e6, "lat_"), ("lat", 1e3, "lat_"),
    ):  # fmt: skip
        percentiles = within(part, key, "percentile")
        for percent in percentiles if isinstance(percentiles, dict) else ():
            value = number(percentiles, percent)
            if value is not None and re.fullmatch(r"\d{1,3}(\.\d+)?", percent):
                name = f"{side}_{kind}p{float(percent):g}_ms"
                found[name] = max(found.get(name, 0.0), value / of_ms)


def _problem(jobs: list[dict[str, Any]]) -> str:
    errors = [int(code) for job in jobs if (code := number(job, "error"))]
    if errors:
        return f"{len(errors)} of {counted(len(jobs), 'job')} ended with error {errors[0]}"
    missing = [job for job in jobs if number(job, "error") is None]
    if missing:
        return "a job does not say whether it ended without an error"
    total = sum(number(job, side, "total_ios") or 0.0 for job in jobs for side in _SIDES)
    wrong = sum(number(job, "total_err") or 0.0 for job in jobs)
    short = sum(number(job, side, "short_ios") or 0.0 for job in jobs for side in _SIDES)
    if wrong or short > FEW_SHORT * total:
        return f"{wrong or short:,.0f} requests {'failed' if wrong else 'were cut short'}"
    idle = [job for job in jobs if not any(number(job, side, "total_ios") for side in _SIDES)]
    if 0 < len(idle) < len(jobs):
        return f"{len(idle)} of {counted(len(jobs), 'job')} did nothing"
    dropped = sum((number(job, side, "drop_ios") or 0.0) for job in jobs for side in _SIDES)
    return f"{dropped:,.0f} requests were dropped" if dropped else ""
