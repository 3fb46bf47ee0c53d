"""Which lines of a table are runs, not failed ones, warm-ups, summaries or units."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence

from headrace.experiment.foreign import failures, names, sums
from headrace.experiment.foreign.alike import Line
from headrace.experiment.foreign.figures import WEAK, names_a_summary
from headrace.experiment.foreign.units import is_absent, parts

# fmt: off
#: Columns that say how a run ended: by a word, by a code, as good or bad, by a count, in free text.
STATUS = frozenset({
    "status", "state", "result", "outcome", "verdict", "passed", "ok", "success", "error", "errors", "failed",
    "error_message", "message", "reason", "final_state", "conclusion", "end", "ended",
})
CODES = frozenset({
    "exit_code", "exitcode", "exit", "rc", "returncode", "return_code", "exit_status", "signal", "retval",
    "ret", "errno",
})
GOOD = frozenset({
    "ok", "success", "passed", "valid", "is_valid", "completed", "complete", "finished", "successful",
    "succeeded", "usable", "include", "included", "keep", "accepted",
})
BAD = frozenset({
    "failed", "aborted", "killed", "crashed", "invalid", "oom", "timed_out", "timeout", "interrupted",
    "excluded", "exclude", "discard", "discarded", "incomplete", "truncated", "is_error", "has_error",
    "outlier", "skipped", "skip", "ignored", "ignore", "rejected",
})
# fmt: on
#: Words for how a run ended, also beside others (``run_status``) and in other languages.
_STATES = frozenset(
    {
        "status",
        "state",
        "outcome",
        "verdict",
        "completion",
        "validity",
        "quality",
        "health",
        "pass",
        "conclusion",
        "статус",
        "результат",
        "состояние",
        "statut",
        "état",
        "estado",
        "stato",
        "durum",
        "stav",
        "zustand",
        "resultado",
        "résultat",
        "ergebnis",
        "状态",
        "状態",
        "結果",
        "结果",
        "狀態",
        "상태",
        "결과",
    }
)  # fmt: skip
_OF_ERRORS = frozenset({
    "rate", "ratio", "count", "n", "num", "number", "of", "pct", "percent", "percentage", "s", "sec", "per",
    "total", "requests", "transactions", "queries", "share",
})  # fmt: skip
# fmt: off
REMARKS = frozenset({
    "comment", "comments", "note", "notes", "remark", "remarks", "bemerkung", "kommentar", "commentaire",
    "nota", "info", "備考", "备注", "備註", "コメント", "メモ", "비고", "메모", "observaciones", "observações",
    "примечание", "примечания", "комментарий", "коммент", "uwagi", "opmerking", "opmerkingen", "notiz", "notizen",
    "hinweis", "anmerkung", "anmerkungen", "bemerkungen", "remarque", "remarques", "osservazioni", "poznámka",
    "obs",
})
# fmt: on
PHASES = frozenset({"phase", "stage", "period", "step", "kind", "type"})
_FAILED = re.compile(
    r"(fail|err(?!ors?\b.*\b0\b)|abort|kill|time ?out|timed|interrupt|incomplete|crash|cancel|invalid|oom|skip|"
    r"broken|panic|segfault|core dump|truncat|dnf|did not|fatal|stopped|dead|hung|hang|unfinished|"
    r"not (ok|complete|finished|valid|success)|abgebroch|fehl|échou|echou|échec|annul|fallid|falló|fallo|"
    r"cancelad|falhou|fallit|interrott|mislukt|błąd|chyba|selhal|ошиб|сбой|отмен|прерван|"
    r"помилк|невдал|başarısız|hata|失败|失敗|错误|錯誤|エラー|异常|異常|中断|中止|오류|실패|"
    r"❌|✗|✘|✖|⛔|🔴|👎|nok\b|ko\b|no ok|bad\b)\w*",
    re.IGNORECASE,
)
_IN_TEXT = re.compile(
    r"\b(crash|kill|oom\b|abort|fail|interrupt|timed? ?out|incomplete|invalid|segfault|did not finish|truncat"
    r"|ignore\b|disregard|discard|do not (use|count)|don't (use|count)|exclude|outlier|abgebroch|fehlgeschlag"
    r"|ungültig|verwerfen|ausreißer|échou|à ignorer|invalide|fallid|falló|descartar|fallit|ошиб|сбой|прерван"
    r"|выброс|не учитывать)\w*"
    r"|失败|失敗|無効|无效|作废|エラー|中断|中止|忽略|異常|异常|실패|오류|무효",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(no|not|none|never|without|0|zero|kein\w*)\s+(\w+\s+)?$", re.IGNORECASE)
_WARM = re.compile(
    r"(warm|ramp|burn|pre|cool)[\s_-]?(up|down|in|ing|heat|fill|condition)\w*(?:[\s_#-]*\d+)?|aufw(ä|ae)rm\w*|прогрев\w*|разогрев\w*|"
    r"预热|預熱|ウォームアップ|暖機|chauffe|calentamiento|riscaldamento|opwarm\w*|rozgrzewka|ısınma",
    re.IGNORECASE,
)
_PREPARE = re.compile(
    r"(prepare|preparation|load|loading|setup|cleanup|init\w*|ramp|priming|prime)$", re.IGNORECASE
)
#: What a row of types has, below the header.
_TYPES = frozenset({
    "varchar", "string", "str", "text", "char", "chr", "fct", "object", "category", "enum", "nvarchar", "utf8",
    "int", "int64", "bigint", "i64", "float", "double", "numeric", "nominal", "factor", "-",
})  # fmt: skip
#: How people and schedulers say that a run ended well; beside these any other word says that it did not.
_WELL = frozenset(
    {
        "ok",
        "okay",
        "success",
        "successful",
        "succeeded",
        "done",
        "complete",
        "completed",
        "finished",
        "pass",
        "passed",
        "good",
        "valid",
        "full",
        "exit",
        "exited",
        "normal",
        "clean",
        "fine",
        "ended",
        "green",
        "accepted",
        "completed ok",
        "0",
        "0.0",
        "yes",
        "y",
        "true",
        "100%",
        "1/1",
        "✓",
        "✔",
        "✅",
        "👍",
        "🟢",
        "☑",
        "fertig",
        "erfolgreich",
        "erfolg",
        "gut",
        "beendet",
        "terminé",
        "réussi",
        "succès",
        "bon",
        "éxito",
        "exitoso",
        "completado",
        "terminado",
        "correcto",
        "concluído",
        "sucesso",
        "completato",
        "riuscito",
        "успех",
        "успешно",
        "готово",
        "завершено",
        "завершен",
        "ок",
        "成功",
        "完成",
        "完了",
        "正常",
        "成功済み",
        "通过",
        "성공",
        "완료",
        "정상",
        "gelukt",
        "klaar",
        "goed",
        "zakończono",
        "sukces",
        "hotovo",
        "úspěch",
        "tamam",
        "başarılı",
    }
)
#: Columns of the moment at which a run ended.
_END = re.compile(
    r"(run_|job_|test_)?(end|ended|finish|finished|completed|stop|stopped)(_(at|time|ts|timestamp|date|on))?"
)
_YES = frozenset({"1", "yes", "true", "y", "x", "ja", "t"})
_NO = frozenset({"0", "no", "false", "n", "nein", "f"})


def runs_of(
    lines: Sequence[Line], factors: Collection[str], responses: Collection[str]
) -> tuple[list[Line], list[str]]:
    """The lines that are runs, and a note on each kind that is left out."""
    left: list[Line] = list(lines)
    used = {*factors, *responses}
    markers = _markers(lines, factors, responses)
    totals = sums.of_others(lines, factors, responses)
    compared = sums.of_two_levels(lines, factors)
    counted, notes = failures.counted(lines, used)
    told = _told(lines, used)
    said = _said(lines, used)
    ends = _ends(lines, used)
    shares = _shares(lines, used)
    kinds: tuple[tuple[str, Callable[[dict[str, str]], bool]], ...] = (
        (
            "repeats the header",
            lambda cells: all(cell.strip().casefold() == name.casefold() for name, cell in cells.items()),
        ),
        ("sums up others", lambda cells: _is_summary(cells, factors, markers)),
        ("compares two levels", lambda cells: any(cells[name].strip() in compared for name in factors)),
        ("has units instead of numbers", lambda cells: _is_units(cells, factors, responses)),
        (
            "is a run that failed",
            lambda cells: _has_failed(cells, used) or any(not _is_nothing(cells[name]) for name in told),
        ),
        (
            "does not say that it ended well, where most do",
            lambda cells: (
                any(not _went_well(cells[name]) for name in said)
                or any(is_absent(cells[name]) for name in ends)
            ),
        ),
        (
            "succeeded in part, where most runs did wholly",
            lambda cells: any(failures.count(cells[name]) < 0.99 * whole for name, whole in shares.items()),
        ),
        (
            f"counts errors ({', '.join(counted)}), where most runs have none",
            lambda cells: any(failures.count(cells[name]) for name in counted),
        ),
        ("is a warm-up, or prepares a run", lambda cells: _is_warm_up(cells, used)),
        *_of_cells(lines, used, responses),
    )
    for what, is_one in kinds:
        out = [place for place, cells in left if is_one(cells)]
        if out:
            named = ", ".join(place.rpartition(":")[2] for place in out[:5])
            more = f" and {len(out) - 5} more" if len(out) > 5 else ""
            notes.append(
                f"1 line left out, because it {what}: line {named}"
                if len(out) == 1
                else f"{len(out)} lines left out, each of which {what}: {named}{more}"
            )
            left = [line for line in left if not is_one(line[1])]
    if out := [place.rpartition(":")[2] for place, _ in left if place in totals]:
        notes.append(
            f"line{'s' * (len(out) > 1)} {', '.join(out[:5])} left out: the mean, the sum or the spread of the "
            "others, without a level of its own"
        )
        left = [line for line in left if line[0] not in totals]
    far, told_far = sums.far(left, factors, responses)
    left, notes = [line for line in left if line[0] not in far], notes + told_far
    notes += sums.single(left, factors)
    for name in factors:
        bare = [place.rpartition(":")[2] for place, cells in left if not cells[name].strip()]
        if bare and len(bare) < len(left):
            notes.append(
                f"{name} is empty in line{'s' * (len(bare) > 1)} {', '.join(bare[:5])}: counted as a level"
            )
    return left, notes


#: Columns that number the repeats.
_NUMBERS = frozenset({
    "rep", "repeat", "replicate", "repetition", "run", "trial", "iteration", "iter", "no", "nr", "n", "index",
    "number", "attempt", "pass", "round", "replica", "order",
})  # fmt: skip


def _numbered(lines: Sequence[Line], used: Collection[str]) -> list[str]:
    """Columns that number repeats, with words in a few lines at most: those are figures about the others."""
    return [
        name
        for name in (lines[0][1] if lines else ())
        if name not in used
        and names.plain(name) in _NUMBERS
        and 0 < sum(_is_word(cells[name]) for _, cells in lines) < 0.5 * len(lines)
    ]


def _of_cells(
    lines: Sequence[Line], used: Collection[str], responses: Collection[str]
) -> tuple[tuple[str, Callable[[dict[str, str]], bool]], ...]:
    """Kinds of lines that a single cell tells."""
    numbered = _numbered(lines, used)
    return (
        (
            "says behind its number that it failed",
            lambda cells: any(_fails_behind(cells[name]) for name in responses),
        ),
        (
            f"has a word where others have their number ({', '.join(numbered)})",
            lambda cells: any(_is_word(cells[name]) for name in numbered),
        ),
    )


def _is_word(text: str) -> bool:
    return not is_absent(text) and not re.fullmatch(r"\W*\d.*|[^\W\d]*[\s_#.-]*\d+[a-z]?", text.strip(), re.I)


def _fails_behind(text: str) -> bool:
    """``1000 (failed)``, ``1000 (timeout after 60 s)``."""
    behind = re.search(r"\(([^)]*)\)", text)
    return behind is not None and bool(_FAILED.match(behind[1].strip()) or _IN_TEXT.search(behind[1]))


def _markers(lines: Sequence[Line], factors: Collection[str], responses: Collection[str]) -> list[str]:
    """Columns in which a few lines are named as summaries; where most are, the word means something else."""
    found = []
    for name in lines[0][1] if lines else ():
        # N is no, not a number of runs.
        if name in responses or (name not in factors and _key(name) in STATUS | GOOD | BAD | CODES):
            continue
        texts = [cells[name].strip() for _, cells in lines]
        summaries = {text for text in set(texts) if names_a_summary(text)}
        if not 0 < sum(text in summaries for text in texts) <= 0.5 * len(texts):
            continue
        if name not in factors or not all(_is_a_level(text, texts, summaries) for text in summaries):
            found.append(name)
    return found


def _is_a_level(text: str, texts: Sequence[str], summaries: Collection[str]) -> bool:
    """Whether a word has as many runs as levels have: ``all`` beside ``none``."""
    others = sorted(texts.count(each) for each in set(texts) - set(summaries))
    own = texts.count(text)
    usual = others[len(others) // 2]
    return own >= usual and (own > 1 or (names.words(text) in WEAK and text not in texts[-3:]))


def _is_summary(cells: dict[str, str], factors: Collection[str], markers: Collection[str]) -> bool:
    if not any(names_a_summary(cells[name]) for name in markers):
        return False
    # A level of that name stands beside the other factors' levels.
    return (
        len(factors) == 1
        or any(not cells[name].strip() for name in factors)
        or any(name not in factors and names_a_summary(cells[name]) for name in markers)
    )


def _is_units(cells: dict[str, str], factors: Collection[str], responses: Collection[str]) -> bool:
    told = [cells[name].strip().strip("()[]") for name in responses]
    levels = [cells[name].strip().strip("()[]<> ").casefold() for name in factors]
    has_no_level = all(not text or text in _TYPES or not text.strip("-—") for text in levels)
    return bool(told) and has_no_level and all(text and not _is_plain(text) for text in told)


def _is_plain(text: str) -> bool:
    return (is_absent(text) and text.strip("-") != "") or (
        parts(text) is not None and not re.fullmatch(r"1?\s*/\s*\w+", text)
    )


def _has_failed(cells: dict[str, str], used: Collection[str]) -> bool:
    for name, cell in cells.items():
        text = cell.strip()
        if name in used or not text:
            continue
        key = _key(name)
        if (
            key in CODES
            and re.sub(r"^\w+[=: ]+", "", text) not in ("0", "0.0", "-")
            and text.casefold() not in ("none", "ok", "success")
        ):
            return True
        if key in STATUS and _FAILED.match(text):
            return True
        if key in GOOD and text.casefold() in _NO:
            return True
        if key in BAD and text.casefold() in _YES:
            return True
        if key in REMARKS and any(
            not _DENIED.search(text[: found.start()]) for found in _IN_TEXT.finditer(text)
        ):
            return True
    return False


@functools.lru_cache(4096)
def _key(column: str) -> str:
    """What a column says of how a run ended, whatever stands before it: ``was_killed``, ``process_exit_code``."""
    own = re.sub(r"^(is|was|has|did|run|test|final|job)_(?=.)", "", names.plain(column))
    parts_of = set(own.split("_"))
    if own in STATUS | CODES | GOOD | BAD | REMARKS:
        return own
    if {"exit", "return"} & parts_of and {"code", "status", "value"} & parts_of:
        return "exit_code"
    return "status" if parts_of & _STATES else own


_TELLS = frozenset(
    {"error", "errors", "exception", "failure", "stderr", "errmsg", "err", "fehler", "erreur", "ошибка"}
)


def _is_nothing(text: str) -> bool:
    return (is_absent(text) and not _FAILED.match(text.strip())) or text.strip().casefold() in (
        "0",
        "ok",
        "no",
        "false",
    )


def _told(lines: Sequence[Line], used: Collection[str]) -> list[str]:
    """Columns in which a few runs have the text of an error, and the others nothing."""
    found = []
    for name in lines[0][1] if lines else ():
        if name in used or not _TELLS & set(names.plain(name).split("_")):
            continue
        texts = [cells[name] for _, cells in lines]
        has_numbers = any(parts(text) for text in texts if not _is_nothing(text))
        if not has_numbers and 2 * sum(map(_is_nothing, texts)) > len(texts):
            found.append(name)
    return found


_SUCCEEDED = frozenset(
    {"success", "succeeded", "ok", "complete", "completed", "completion", "progress", "done"}
)


def _went_well(text: str) -> bool:
    """``ok``, ``Completed in 60 s``; not ``completed 43%``, ``exited (137)``, ``done with errors``."""
    bare = text.strip().strip(".!").casefold()
    first, _, rest = bare.partition(" ")
    if bare in _WELL or not rest:
        return bare in _WELL
    tells_more = re.search(r"\d%|\([1-9]\d*\)$|\bpart|\bbut\b", rest) or any(
        _FAILED.match(word) for word in re.split(r"\W+", rest)
    )
    return first.strip(",;:-") in _WELL and not tells_more


def _said(lines: Sequence[Line], used: Collection[str]) -> list[str]:
    """Columns in which most runs say that they ended well."""
    return [
        name
        for name in (lines[0][1] if lines else ())
        if name not in used
        and _key(name) in STATUS
        and 2 * sum(_went_well(cells[name]) for _, cells in lines) > len(lines)
        # 0 and 1 of a flag, or a count.
        and not all(parts(cells[name]) for _, cells in lines)
    ]


def _ends(lines: Sequence[Line], used: Collection[str]) -> list[str]:
    """Columns of the moment at which a run ended, where most have one."""
    return [
        name
        for name in (lines[0][1] if lines else ())
        if name not in used
        and _END.fullmatch(names.plain(name))
        and 2 * sum(not is_absent(cells[name]) for _, cells in lines) > len(lines)
    ]


def _shares(lines: Sequence[Line], used: Collection[str]) -> dict[str, float]:
    """Columns of the share that succeeded, with the value of most runs."""
    found = {}
    for name in lines[0][1] if lines else ():
        own = set(names.plain(name).split("_"))
        is_share = "%" in name or bool(own & _OF_ERRORS & {"rate", "ratio", "pct", "percent", "share"})
        is_share = is_share or all(cells[name].strip().endswith("%") for _, cells in lines)
        if name in used or not own & _SUCCEEDED or not is_share:
            continue
        values = sorted(failures.count(cells[name]) for _, cells in lines)
        usual = values[len(values) // 2]
        if 2 * values.count(usual) > len(values):
            found[name] = usual
    return found


def _is_warm_up(cells: dict[str, str], used: Collection[str]) -> bool:
    for name, cell in cells.items():
        if name in used:
            continue
        text, key = cell.strip(), names.plain(name)
        if _WARM.fullmatch(text) or (key in PHASES and _PREPARE.match(text)):
            return True
        yes = _YES if key.startswith("is_") else _YES - {"1", "t"}
        if _WARM.fullmatch(key.removeprefix("is_").replace("_", "")) and text.casefold() in yes:
            return True
    return False
