"""Programs that every system has: ``dd``, ``perf stat`` and ``openssl speed``, by their reports for people."""

from __future__ import annotations

import re

from headrace.experiment.foreign.run import OtherVariant, Run, pieces, text_of

NAME = "dd, perf stat or openssl speed"

#: ``67108864 bytes (67 MB, 64 MiB) copied, 0.0583 s, 1.1 GB/s``, without the megabytes in short copies.
_COPIED = re.compile(r"^(\d+) bytes? (?:\([^)\n]*\) )?copied, ([\d.e+-]+) s, [^\n]*$", re.MULTILINE)
_RECORDS = re.compile(r"^\d+\+\d+ records in\s*\n\d+\+\d+ records out\s*\n", re.MULTILINE)
_PERF = re.compile(r"^ *Performance counter stats for ([^\n]*):\s*$", re.MULTILINE)
_COUNTER = re.compile(r"^ *([\d.,]+) +(?:(msec|ns) +)?([\w:/.,=-]+?)(?::u)? +(?:#|\(|$)", re.MULTILINE)
_ELAPSED = re.compile(r"^ *([\d.,]+)(?: \+- +[\d.,]+)? +seconds time elapsed", re.MULTILINE)
_SPEED = re.compile(r"^The 'numbers' are in 1000s of bytes per second processed\.\s*\ntype ", re.MULTILINE)
_SIGNS = re.compile(r"^ +(sign +verify|encrypt +decrypt|op) +(\S+/s)(?: +(\S+/s))?\s*$", re.MULTILINE)

_RATES = {
    "sign/s": "signs_s",
    "verify/s": "verifications_s",
    "encr./s": "encryptions_s",
    "decr./s": "decryptions_s",
}


def read(text: str) -> list[Run] | None:
    if re.search(r"^\d[\d.]*(,|;)(msec)?\1(task|cpu)-clock\1", text, re.MULTILINE):
        raise OtherVariant("perf stat -x, which has no time of the whole command", "perf stat without -x")
    if '"counter-value"' in text and '"event-runtime"' in text:
        raise OtherVariant("perf stat -j, which has no time of the whole command", "perf stat without -j")
    if re.search(r"^\+(H|F\d?):\d+:", text, re.MULTILINE) and "\n+F:" in text:
        raise OtherVariant("openssl speed -mr", "openssl speed without -mr")
    if parts := pieces(_PERF, text):
        return [_perf(part) for part in parts]
    if _SPEED.search(text) or (
        _SIGNS.search(text) and re.search(r"^(version: |OpenSSL \d)", text, re.MULTILINE)
    ):
        return _openssl(text)
    if re.search(r"^Doing \S.* for \d+s", text, re.MULTILINE):
        return [Run(problem="it has no table at its end: it was interrupted")]
    if _COPIED.search(text) and _RECORDS.search(text):
        return _dd(text)
    if error := re.search(r"^dd: [^\n]*", text, re.MULTILINE):
        return [Run(problem=f"it failed: {error[0][:120]}")]
    return None


def _dd(text: str) -> list[Run]:
    """A run per copy. A copy that was stopped reports as a shorter one does: they differ in their bytes."""
    runs, start = [], 0
    for copied in _COPIED.finditer(text):
        error = re.search(r"^dd: [^\n]*", text[start : copied.start()], re.MULTILINE)
        # ``status=progress`` writes over its own line.
        is_progress = _RECORDS.search(text[start : copied.start()]) is None
        if is_progress:
            continue
        seconds = float(copied[2])
        rate = {"mb_s": int(copied[1]) / seconds / 1e6} if seconds > 0 else {}
        problem = f"it failed: {error[0][:120]}" if error else "" if rate else "it took no time"
        runs.append(Run({**rate, "elapsed_s": seconds}, {"bytes": copied[1]}, problem))
        start = copied.end()
    return runs or [Run(problem="it has no report at its end: it was interrupted")]


def _perf(part: str) -> Run:
    elapsed = _ELAPSED.search(part)
    if elapsed is None:
        return Run(problem="it has no time at its end: it was interrupted")
    counted = {"elapsed_s": float(elapsed[1].replace(",", ""))}
    for value, unit, event in _COUNTER.findall(part[: elapsed.start()]):
        name = re.sub(r"\W+", "_", event).strip("_")
        if re.fullmatch(r"[\d,]+(\.\d+)?", value) and name:
            counted[f"{name}_ms" if unit == "msec" else f"{name}_ns" if unit == "ns" else name] = float(
                value.replace(",", "")
            )
    for side in ("user", "sys"):
        if told := re.search(rf"^ +([\d.]+)(?: \+- [\d.]+)? +seconds {side}", part, re.MULTILINE):
            counted[f"{side}_s"] = float(told[1])
    head = part.partition("\n")[0]
    runs = re.search(r"\((\d+) runs\)", head)
    problem = (
        ""
        if re.search(r"^ +[\d.]+(?: \+- +[\d.]+)? +seconds sys|\( *\+-", part, re.MULTILINE)
        else "its report is cut off"
    )
    return Run(
        counted,
        {"repeats": runs[1] if runs else "1"},
        problem,
        assumed="that the command ended well: perf stat does not say so",
        about={"command": re.sub(r" \(\d+ runs\):?$|:$", "", head.partition(" for ")[2])},
    )


def _openssl(text: str) -> list[Run]:
    """A run per algorithm: thousands of bytes a second by the size of a block, or signatures a second."""
    runs = []
    seconds = set(re.findall(r"^Doing .* for (\d+)s", text, re.MULTILINE))
    settings = {"duration_s": text_of(float(max(seconds, key=float)))} if seconds else {}
    for table in _SPEED.finditer(text):
        header, *rows = text[table.end() - len("type ") :].splitlines()
        # The last number of a file without a line end may be a part of one; k stands behind each but the smallest.
        sizes = re.findall(r"(\d+) bytes", header)
        for row in rows:
            cells = re.match(r"(\S.*?) +((?:[\d.]+k?(?: +|$))+)$", row)
            if cells is None:
                break
            values = [float(value) for value in cells[2].replace("k", "").split()]
            rates = {f"block_{size}_mb_s": value / 1e3 for size, value in zip(sizes, values, strict=False)}
            is_whole = len(values) == len(sizes) and (cells[2].rstrip().endswith("k") or f"{row}\n" in text)
            problem = "" if is_whole else "its table is cut off"
            runs.append(Run(rates, {**settings, "algorithm": cells[1].strip()}, problem))
    for table in _SIGNS.finditer(text):
        names = [_RATES.get(name, "ops_s") for name in (table[2], table[3]) if name]
        for row in text[table.end() :].splitlines()[1:]:
            cells = re.match(r" *(\S.*?) +(?:[\d.]+s +)+((?:[\d.]+(?: +|$))+)$", row)
            if cells is None:
                break
            values = [float(value) for value in cells[2].split()]
            is_whole = len(values) == len(names) and f"{row}\n" in text
            problem = "" if is_whole else "its table is cut off"
            own = {**settings, "algorithm": cells[1].strip()}
            runs.append(Run(dict(zip(names, values, strict=False)), own, problem))
    return runs or [Run(problem="its table is cut off")]
