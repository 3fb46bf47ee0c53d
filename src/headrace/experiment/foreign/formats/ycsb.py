"""YCSB: the measurements at its end, as text and JSON; go-ycsb: its report."""

from __future__ import annotations

import re
from dataclasses import replace

from headrace.base.received import BadContent, an_object
from headrace.experiment.foreign.run import Run, closed, groups, pieces, stalls, text_of

NAME = "YCSB or go-ycsb"

_START = re.compile(r"^\[OVERALL\], RunTime\(ms\)", re.MULTILINE)
#: The first lines of a report, as a fork has them.
_TURNED = re.compile(
    r"^(\[OVERALL\], Throughput\(ops/sec\)[^\n]*\n)(\[OVERALL\], RunTime\(ms\)[^\n]*\n)", re.MULTILINE
)
_LINE = re.compile(r"^\[([^\]]+)\], ([^,]+), ([-\d.Ee+]+|NaN)\s*$", re.MULTILINE)
#: A latency of YCSB's: an average, an end, or any percentile (``hdrhistogram.percentiles``).
_LATENCY = re.compile(r"(Average|Min|Max|(\d[\d.]*)(?:st|nd|rd|th)?Percentile)Latency\((us|ms)\)")
_NAMES = {"Average": "mean_ms", "Min": "min_ms", "Max": "max_ms"}
#: Until version 0.2 there were numbers for what operations returned.
_GOOD = ("Return=OK", "Return=BATCHED_OK", "Return=0")
#: Share of a kind of operation that may fail.
FEW_ERRORS = 0.01


_GO = re.compile(r"^([A-Z_]+) +- (Takes\(s\): [^\n]*99th\(us\): [^\n]*\n)", re.MULTILINE)
_END_OF_GO = re.compile(r"^Run finished, takes [^\n]*\n(?:[A-Z_]+ +- Takes\(s\): [^\n]*\n?)*", re.MULTILINE)
_OURS = re.compile(r"^YCSB Client \d|site\.ycsb\.Client", re.MULTILINE)
_PROGRESS = re.compile(r"\b(\d+) sec: \d+ operations; ([\d.]+) current ops/sec")
#: A measurement in JSON, in an array or alone.
_OBJECT = re.compile(r"\{[^{}]*\"metric\"[^{}]*\"measurement\"[^{}]*\}")


def read(text: str) -> list[Run] | None:
    text = re.sub(r"^(\[[A-Z][\w-]*\]),(?=\S)", r"\1, ", _plain(text), flags=re.MULTILINE)
    if _GO.search(text) or re.search(r"^Run finished, takes ", text, re.MULTILINE):
        parts = [part for part in closed(_END_OF_GO, text) if _GO.search(part)] or [text]
        return [replace(run, about=_about(text) | dict(run.about)) for run in map(_of_go, parts)]
    settings = groups(text, {"threads": r"^Command line: .*-threads (\d+)"})
    about = _about(text)
    if objects := _OBJECT.findall(text):
        # The array's end is that of the run; objects one after the other have none.
        end = "" if not re.search(r"^\[ *\{", text, re.MULTILINE) or text.rstrip().endswith("]") else "cut"
        text = "\n".join([*map(_line, objects), end])
    first = re.search(r"^\[OVERALL\], (\w+)", text, re.MULTILINE)
    if first and first[1] == "Throughput":
        text = _TURNED.sub(r"\2\1", text)
    parts = pieces(_START, text)
    if not parts:
        return [Run({}, settings, "it has no results: it was interrupted")] if _OURS.search(text) else None
    runs = [_run(part) for part in parts]
    # Its progress stands above its results.
    if not runs[0].problem and (still := stalls(text[: text.index(parts[0])], _PROGRESS)):
        runs[0] = replace(runs[0], problem=still)
    return [
        replace(run, settings=settings | dict(run.settings), about=about | dict(run.about)) for run in runs
    ]


#: Properties that say what is done, of many that say where, and as whom.
_PROPERTIES = (
    r"(recordcount|operationcount|maxexecutiontime|fieldcount|fieldlength|fieldlengthdistribution|readallfields"
    r"|readproportion|updateproportion|insertproportion|scanproportion|readmodifywriteproportion"
    r"|requestdistribution|scanlengthdistribution|maxscanlength|insertorder|workload|target|batchsize|dotransactions)"
)


def _about(text: str) -> dict[str, str]:
    """The workload, by the command line of YCSB or the properties that go-ycsb prints."""
    about = dict(re.findall(rf'^"?{_PROPERTIES}"?="?([^"\n]*)"?$', text, re.MULTILINE))
    if command := re.search(r"^Command line: (.*)$", text, re.MULTILINE):
        about |= dict(re.findall(rf"-p {_PROPERTIES}=(\S+)", command[1]))
        about |= groups(command[1], {"target": r"-target (\S+)", "db": r"-db (\S+)"})
        if files := re.findall(r"-P (\S+)", command[1]):
            about["workload_file"] = " ".join(file.rpartition("/")[2] for file in files)
        about["phase"] = "load" if re.search(r"-load\b", command[1]) else "run"
    return about


def _mix(done: dict[str, float]) -> dict[str, str]:
    """Which kinds of operations a run had, and how large a share of them were reads."""
    own = {
        kind: count
        for kind, count in done.items()
        if not kind.startswith(("CLEANUP", "Intended")) and not kind.endswith("-FAILED")
    }
    share = own.get("READ", 0.0) / max(sum(own.values()), 1.0)
    return {"operations": " ".join(sorted(own)), "read_share": f"{share:.2g}"} if own else {}


def _plain(text: str) -> str:
    """go-ycsb's other styles (``outputstyle=json`` or ``table``) as its lines: the run ends in the same words."""
    if '"Takes(s)":"' not in text and not re.search(r"^\| +OPERATION +\|.*TAKES\(S\)", text, re.MULTILINE):
        return text
    lines = []
    header: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if '"Takes(s)":"' in line:
            told = [
                dict(re.findall(r'"([^"]+)":"([^"]*)"', each)) for each in re.findall(r"\{[^{}]*\}", line)
            ]
            cut = not line.rstrip().endswith("]")
        elif line.lstrip().startswith("| OPERATION") or (header and line.startswith("|")):
            # Its titles are in capitals.
            titles = [re.sub(r"TH\(US\)", "th(us)", cell) for cell in cells]
            names = {"OPERATION": "Operation", "COUNT": "Count", "OPS": "OPS", "TAKES(S)": "Takes(s)"}
            if cells[0] == "OPERATION":
                header = [names.get(cell, cell.capitalize() if "th" not in cell else cell) for cell in titles]
                continue
            told, cut = (
                [dict(zip(header, cells, strict=False))],
                len(cells) != len(header) or not line.endswith("|"),
            )
        else:
            if not line.startswith("+-"):
                lines.append(line)
            continue
        for each in () if cut else told:
            takes = each.pop("Takes(s)", "")
            rest = [f"{key}: {value}" for key, value in each.items() if key != "Operation"]
            lines.append(f"{each.get('Operation')} - " + ", ".join([f"Takes(s): {takes}", *rest]))
    return "\n".join([*lines, ""])


def _of_go(text: str) -> Run:
    """What stands below "Run finished": the lines above are of the run so far."""
    settings = {}
    if threads := re.search(r"^\"?threadcount\"?=\"?(\d+)", text, re.MULTILINE):
        settings["threads"] = threads[1]
    before, finished, end = text.partition("Run finished, takes ")
    if not finished:
        return Run({}, settings, "it does not say that its run has finished: it was interrupted")
    found: dict[str, float] = {}
    failed, rate = 0.0, 0.0
    by_kind: dict[str, float] = {}
    kinds = [kind for kind, _ in _GO.findall(end)]
    if len(kinds) > len({*kinds}):
        return Run({}, settings, "another run begins right behind it: they cannot be told apart in one file")
    for kind, told in _GO.findall(end):
        cells = dict(re.findall(r"([\w.]+(?:\((?:s|us)\))?): ([\d.]+)", told))
        count = float(cells.get("Count", 0))
        if kind.endswith("_ERROR"):
            failed += count
            continue
        if kind == "TOTAL":
            continue
        by_kind[kind] = count
        rate += float(cells.get("OPS", 0))
        settings["duration_s"] = text_of(round(float(cells.get("Takes(s)", 0)), 1))
        for name, value in cells.items():
            if tail := re.fullmatch(r"(?:(Avg|Min|Max)|([\d.]+)th)\(us\)", name):
                ours = f"p{float(tail[2]):g}" if tail[2] else {"Avg": "mean"}.get(tail[1], tail[1].lower())
                found[f"{kind.lower()}_{ours}_ms"] = float(value) / 1e3
    done = sum(by_kind.values())
    if not done or {kind for kind, _ in _GO.findall(before)} - {kind for kind, _ in _GO.findall(end)}:
        return Run(found, settings, "its results are cut off")
    problem = f"{failed:,.0f} of {done:,.0f} operations failed" if failed > FEW_ERRORS * done else ""
    return Run({"ops_s": rate, **found}, settings, problem, about=_mix(by_kind), work=done)


def _line(measurement: str) -> str:
    """``{"metric": "READ", "measurement": "Operations", "value": 9}`` as the text has it."""
    try:
        told = an_object(measurement)
    except BadContent:
        return ""
    return f"[{told.get('metric')}], {told.get('measurement')}, {told.get('value')}"


def _run(part: str) -> Run:
    found: dict[str, float] = {}
    settings: dict[str, str] = {}
    done: dict[str, float] = {}
    failed: dict[str, float] = {}
    milliseconds = 0.0
    for kind, what, text in _LINE.findall(part):
        value = float(text)
        if value != value:
            continue
        if (kind, what) == ("OVERALL", "Throughput(ops/sec)"):
            found["ops_s"] = value
        elif (kind, what) == ("OVERALL", "RunTime(ms)"):
            milliseconds = value
            settings["duration_s"] = text_of(round(value / 1e3, 1))
        elif (latency := _LATENCY.fullmatch(what)) and kind not in ("CLEANUP", "OVERALL"):
            ours = f"p{float(latency[2]):g}_ms" if latency[2] else _NAMES[latency[1]]
            found[f"{kind.lower()}_{ours}"] = value / (1e3 if latency[3] == "us" else 1.0)
        elif what == "Operations":
            done[kind] = value
        if what.startswith("Return=") and what not in _GOOD:
            failed[kind] = failed.get(kind, 0.0) + value
        elif what == "Operations" and kind.endswith("-FAILED"):
            failed[kind.removesuffix("-FAILED")] = value
    # Not the sum of its operations: a read that is modified and written is counted three times.
    done_in_all = found.get("ops_s", 0.0) * milliseconds / 1e3
    work = float(f"{done_in_all:.0f}") or None
    there = _counted(done)
    lacks = there < (1 - FEW_ERRORS) * done_in_all
    assumed = (
        f"that kinds of operations were left out by hand: it tells of {there:,.0f} of {done_in_all:,.0f}"
        if lacks
        else ""
    )
    return Run(found, settings, _problem(found, done, failed, part), assumed, _mix(done), work)


def _problem(found: dict[str, float], done: dict[str, float], failed: dict[str, float], part: str) -> str:
    if "ops_s" not in found or not done or not _is_whole(part, done, found["ops_s"]):
        return "its results are cut off"
    for kind, count in failed.items():
        all_of_it = max(done.get(kind, 0.0) + done.get(f"{kind}-FAILED", 0.0), 1.0)
        if count > FEW_ERRORS * all_of_it:
            return f"{count:,.0f} of {all_of_it:,.0f} operations {kind} failed"
    return ""


def _is_whole(part: str, done: dict[str, float], ops_s: float) -> bool:
    """Whether the last kind of operation is whole. Kinds end with what they returned or with their histogram, but
    for the cleanup and what failed; if one of these is the last, all operations have to be there.
    """
    lines = [line for line in part.splitlines() if line.startswith("[")]
    if re.match(r"\[[^\]]+\], (Return=|>?\d+, )", lines[-1]):
        return True
    told = _LINE.findall(part)
    names: dict[str, list[str]] = {}
    for kind, what, _ in told:
        names.setdefault(kind, []).append(what)
    last = told[-1][0]
    runtime = next((float(text) for kind, what, text in told if what == "RunTime(ms)"), None)
    if runtime is None:
        return False
    others = [
        [what for what in own if not what.startswith("Return=")]
        for kind, own in names.items()
        if kind != last
    ]
    return (
        bool(_LINE.match(lines[-1]))
        and (last == "CLEANUP" or last.endswith("-FAILED"))
        and names[last] in others
        and _counted(done) >= (1 - FEW_ERRORS) * ops_s * runtime / 1e3
    )


def _counted(done: dict[str, float]) -> float:
    """The operations whose results are there; a read that is modified and written is one of each of the others."""
    others = ("CLEANUP", "READ-MODIFY-WRITE", "Intended")
    return sum(count for kind, count in done.items() if not kind.startswith(others))
