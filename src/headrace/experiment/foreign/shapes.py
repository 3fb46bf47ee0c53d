"""Tables in other shapes than one line per run: runs or levels side by side, one line per metric, means of several
runs, cells that hold for the lines below.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Collection, Sequence

from headrace.base.counted import counted
from headrace.base.errors import PlanError
from headrace.experiment.foreign import headers, names
from headrace.experiment.foreign.figures import names_a_summary
from headrace.experiment.foreign.grid import Grid
from headrace.experiment.foreign.nested import KEY
from headrace.experiment.foreign.units import parts

# fmt: off
#: Columns of one metric per line, and of its value.
METRICS = frozenset({
    "metric", "metric_name", "measure", "measurement", "variable", "kpi", "indicator", "name", "what", "key",
    "counter", "statistic", "stat", "type", "field", "parameter", "param", "response", "quantity", "attribute",
    "metrik", "messgröße", "kennzahl", "métrique", "métrica", "metrica", "показатель", "метрика", "指標", "指标",
})
# fmt: on
VALUES = frozenset(
    {
        "value",
        "val",
        "result",
        "reading",
        "metric_value",
        "number",
        "score",
        "wert",
        "valeur",
        "valor",
        "valore",
        "значение",
        "値",
        "值",
    }
)
UNITS = frozenset({
    "unit", "units", "uom", "unit_of_measure", "einheit", "einheiten", "unité", "unités", "unidad", "unidades",
    "unità", "unidade", "eenheid", "jednostka", "jednotka", "enhet", "enhed", "yksikkö", "birim", "единица",
    "единицы", "ед", "ед_изм", "単位", "单位", "單位", "단위",
})  # fmt: skip
#: How people name a mean, what spreads around it, and a number of runs, after the response's name or alone.
_MEAN = ("mean", "avg", "average")
_SPREADS = {
    **dict.fromkeys(("sd", "std", "stddev", "stdev", "std_dev", "standard_deviation"), "sd"),
    **dict.fromkeys(("se", "sem", "stderr", "std_err", "standard_error"), "se"),
    **dict.fromkeys(("var", "variance", "s2"), "var"),
    **dict.fromkeys(("cv", "rsd", "cov", "rel_sd", "relative_sd"), "cv"),
    **dict.fromkeys(("ci", "ci95", "ci_95", "95_ci", "conf_int"), "ci"),
}
#: What is told of several runs instead of a spread that can be used.
_RANGES = frozenset({"min", "max", "iqr", "median", "minimum", "maximum", "range", "p25", "p75", "mad"})
#: How other languages call runs side by side.
_RUNS = frozenset({
    "run", "rep", "trial", "pass", "lauf", "versuch", "messung", "durchlauf", "durchgang",
    "wiederholung", "essai", "passage", "mesure", "exécution", "corrida", "ejecución", "prueba",
    "repetición", "esecuzione", "prova", "execução", "rodada", "прогон", "замер", "запуск",
    "попытка", "повтор", "uruchomienie", "próba", "pomiar", "běh", "měření", "meting", "körning",
    "mätning", "mittaus", "ajo", "måling", "çalıştırma", "回目", "第次", "次", "第回", "回", "試行", "测试",
    "运行", "실행", "회", "measurement", "attempt", "replicate", "repetition", "round",
})  # fmt: skip
#: Bounds, alone or with the response's name.
_BOUNDS = re.compile(
    r"(ci_?(95)?_?)?(lo|low|lower|lcl|hi|high|upper|ucl)(_?(ci|bound|limit|95))*|[25]_5|97_5|p2_5|p97_5"
)
_COUNT = ("n", "runs", "count", "reps", "samples", "n_runs", "repeats", "replicates")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_SIDE = re.compile(
    r"(run|rep|repeat|trial|iter|iteration|sample|r|try|pass)?_?(\d+)(?:_run)?|(\d+)(st|nd|rd|th)(_(run|rep|trial|try|pass))?"
)
# fmt: off
#: Columns that tell repeats apart, or say how a run was made: no levels of another factor.
REPEATS = frozenset({
    "rep", "repeat", "replicate", "repetition", "run", "trial", "iteration", "iter", "no", "nr", "id", "seed",
    "block", "day", "date", "attempt", "pass", "round", "order", "n", "index", "number", "replica", "job",
    "test", "host",
})
SETTINGS = frozenset({
    "threads", "clients", "connections", "concurrency", "jobs", "numjobs", "duration", "duration_s",
    "runtime", "runtime_s", "block_size", "blocksize", "bs", "iodepth", "queue_depth", "warehouses",
    "terminals", "virtual_users", "vus", "percentile", "rate", "target_rate", "scale", "scalefactor",
    "elapsed", "walltime",
})
# fmt: on


def reshape(grid: Grid, factors: Sequence[str], responses: Sequence[str], others: Collection[str]) -> None:
    """Gives the grid one line per run with a column per response, in place; what was done is in its notes."""
    headers.first_table(grid, (*factors, *responses))
    headers.join(grid, factors, responses)
    _transpose(grid, (*factors, *responses))
    rename(grid, (*factors, *responses, *others))
    missing = [name for name in responses if name not in grid.header]
    if missing:
        _from_long(grid, missing)
        missing = [name for name in responses if name not in grid.header]
    for name in responses:
        _from_means(grid, name)
    missing = [name for name in responses if name not in grid.header]
    lost = [name for name in factors if name not in grid.header]
    if len(lost) == 1 and KEY in grid.header:
        grid.header[grid.header.index(KEY)] = lost[0]
        grid.notes.append(f"the keys of the JSON are the levels of {lost[0]}")
        lost = []
    if len(responses) == 1:
        if len(missing) == len(lost) == 1:
            _from_pivot(grid, lost[0], missing[0], {*factors, *others})
        else:
            _from_wide(grid, responses[0])
    _with_units(grid, responses)
    _fill_down(grid, factors, responses)


def _transpose(grid: Grid, wanted: Sequence[str]) -> None:
    """Runs side by side, below each other what they have: names stand in the first column."""
    first = [names.plain(row[0]) for _, row in grid.lines if row]
    there = [*first, *(names.plain(name) for name in grid.header[:1])]
    if len(grid.header) < 3 or not all(there.count(names.plain(name)) == 1 for name in wanted):
        return
    if all(names.plain(name) in map(names.plain, grid.header) for name in wanted):
        return
    rows = [grid.header, *(row for _, row in grid.lines)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    grid.header, grid.lines = columns[0], list(enumerate(columns[1:], 2))
    grid.notes.append("rows and columns are exchanged: names stand in the first column")


def rename(grid: Grid, wanted: Sequence[str]) -> None:
    """Gives columns whose names are written in another way the names that are asked for."""
    for name, at in names.columns(grid.header, wanted).items():
        if grid.header[at] != name:
            grid.notes.append(f"column {' '.join(grid.header[at].split())!r} is taken for {name}")
            grid.header[at] = name


def _column(grid: Grid, wanted: frozenset[str]) -> str | None:
    return next((name for name in grid.header if names.words(name) in wanted), None)


def _from_long(grid: Grid, missing: Sequence[str]) -> None:
    """One line per metric: ``fs, rep, metric, value``."""
    metric, value = _column(grid, METRICS), _column(grid, VALUES)
    if metric is None or value is None:
        return
    at, of = grid.header.index(metric), grid.header.index(value)
    same = {names.words(name): name for name in missing}
    for _, cells in grid.lines:
        if len(cells) == len(grid.header):
            cells[at] = same.get(names.words(cells[at]), cells[at])
    told = {cells[at].strip() for _, cells in grid.lines if len(cells) == len(grid.header)}
    if not set(missing) <= told:
        return
    unit = _column(grid, UNITS)
    with_unit = grid.header.index(unit) if unit is not None else -1
    kept = [i for i in range(len(grid.header)) if i not in (at, of, with_unit)]
    runs: dict[tuple[tuple[str, ...], int], tuple[int, dict[str, str]]] = {}
    times: dict[tuple[tuple[str, ...], str], int] = {}
    for number, cells in grid.lines:
        key = tuple(cells[i] for i in kept)
        name = cells[at].strip()
        # A key whose metric comes again is another run.
        turn = times[key, name] = times.get((key, name), -1) + 1
        runs.setdefault((key, turn), (number, {}))[1][name] = (
            f"{cells[of].strip()} {cells[with_unit].strip()}"
            if with_unit >= 0 and cells[of].strip()
            else cells[of]
        )
    metrics = sorted(told)
    grid.lines = [
        (n, [*key, *(found.get(name, "") for name in metrics)]) for (key, _), (n, found) in runs.items()
    ]
    grid.header = [grid.header[i] for i in kept] + metrics
    grid.notes.append(f"one line per {metric}: put together to {len(grid.lines)} runs")


def _from_means(grid: Grid, name: str) -> None:
    """A mean, its spread and a number per line: as many runs with this mean and this standard deviation."""
    spread, how = next(
        ((c, how) for word, how in _SPREADS.items() if (c := _of(grid, name, [word]))), ("", "")
    )
    mean = name if name in grid.header else _of(grid, name, _MEAN)
    count = _of(grid, name, _COUNT)
    is_mean = {*names.words(name).split("_")} & {*_MEAN, "median", "geomean"}
    ranges = [each for each in grid.header if each != name and _is_range(each, name)]
    if not spread and mean is not None and (((ranges or is_mean) and count) or len(ranges) > 1):
        told = f"several runs ({count})" if count else f"several runs or values ({', '.join(ranges[:3])})"
        grid.notes.append(f"each line sums up {told} and counts as one: their spread is not there")
    if not spread or mean is None:
        return
    if count is None:
        if mean == name:
            grid.notes.append(f"each line is a mean of runs whose number is not there: {spread} is not used")
            return
        raise PlanError(
            f"{mean} and {spread} without the number of runs behind them",
            hint=f"add a column n with it; or --response '{mean}' takes each line as one run",
        )
    places = [grid.header.index(column) for column in (mean, spread, count)]
    lines = []
    for number, cells in grid.lines:
        try:
            centre, width, runs = (float(cells[i]) for i in places)
        except (ValueError, IndexError):
            return
        if not (2 <= runs <= 10_000 and width >= 0 and runs == int(runs)):
            return
        deviation = math.sqrt(width) if how == "var" else width
        deviation *= centre / 100 if how == "cv" else _deviations(how, int(runs))
        lines += [(number, [*cells, repr(value)]) for value in _with(centre, deviation, int(runs))]
    if mean == name:
        grid.header[grid.header.index(name)] = f"{name} (mean)"
    grid.header, grid.lines = [*grid.header, name], lines
    assumed = {"ci": ", half the width of a 95% interval", "cv": ", in percent of it"}.get(how, "")
    grid.notes.append(
        f"each line is {count} runs: rebuilt with their {mean} and {spread}{assumed}, which is all that a "
        "comparison uses"
    )


def _is_range(column: str, name: str) -> bool:
    own, response = names.words(column), names.words(name)
    bare = own.removeprefix(f"{response}_").removesuffix(f"_{response}")
    return bare in _RANGES or bool(_BOUNDS.fullmatch(bare))


def _deviations(how: str, runs: int) -> float:
    """How many standard deviations a spread of this kind is long."""
    # Lazy: few tables have an interval.
    from scipy.special import stdtrit

    if how in ("sd", "var"):
        return 1.0
    return math.sqrt(runs) / (float(stdtrit(runs - 1, 0.975)) if how == "ci" else 1.0)


def _of(grid: Grid, name: str, endings: Sequence[str]) -> str | None:
    own = names.words(name)
    wanted = {f"{own}_{word}" for word in endings} | {f"{word}_{own}" for word in endings} | set(endings)
    return next((column for column in grid.header if column != name and names.words(column) in wanted), None)


def _with(centre: float, spread: float, count: int) -> list[float]:
    """``count`` values with exactly this mean and standard deviation (of a sample)."""
    usual = statistics.NormalDist()
    raw = [usual.inv_cdf((i + 0.5) / count) for i in range(count)]
    scale = math.sqrt(sum(value * value for value in raw) / (count - 1))
    return [centre + spread * value / scale for value in raw]


def _from_wide(grid: Grid, name: str) -> None:
    """Runs side by side: ``fs, run1, run2, run3``, three columns ``tps``, or one above three."""
    own = names.words(name)
    side, numbers = [], []
    for i, column in enumerate(grid.header):
        bare = re.sub(rf"^{re.escape(own)}_?(?=.)", "", names.words(column))
        word = re.sub(r"_(run|rep|trial|try|pass)$", "", bare)
        bare = str(_ORDINALS.index(word) + 1) + "_run" if word in _ORDINALS else bare
        if (found := _SIDE.fullmatch(bare)) and column != name:
            side.append(i)
            numbers.append(int(found[2] or found[3]))
    same = [i for i, column in enumerate(grid.header) if column == name]
    # pandas calls the second and third column of a name tps.1 and tps.2.
    if again := [
        i for i, column in enumerate(grid.header) if re.fullmatch(rf"{re.escape(name)}\.\d+", column)
    ]:
        same += again
    # A merged cell above several columns is exported as one name and empty ones.
    if len(same) == 1:
        for i in itertools.takewhile(lambda i: grid.header[i] == "", range(same[0] + 1, len(grid.header))):
            if any(i < len(row) and row[i].strip() for _, row in grid.lines):
                same.append(i)
    if len(side) < 2 and not same:
        side, numbers = _numbered(grid, name), []
    if len(same) > 1:
        side = same
    elif same or len(side) < 2:
        return
    elif (
        numbers
        and all(grid.header[i].strip().isdigit() for i in side)
        and numbers != [*range(1, len(side) + 1)]
    ):
        shown = ", ".join(grid.header[i] for i in side[:5])
        raise PlanError(
            f"columns {shown} may be levels, or runs of {name}",
            hint="--factor NAME, as the last factor, says that they are its levels",
        )
    _unpivot(grid, side, None, name)
    grid.notes.append(f"{len(side)} columns side by side are runs of {name}")


def _numbered(grid: Grid, name: str) -> list[int]:
    """Columns that other languages call runs: ``Lauf 1, Lauf 2``. Raises PlanError for an unknown word."""
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for i, column in enumerate(grid.header):
        cells = [row[i] for _, row in grid.lines if i < len(row)]
        found = re.fullmatch(r"(\D*?)[\s_#.-]*(\d+)(\D*)", column.strip()) or re.fullmatch(
            r"(run|rep|trial|pass)[\s_#.-]+([A-Ha-h])()", column.strip(), re.IGNORECASE
        )
        if found and (found[1] or found[3]) and cells and all(parts(cell) for cell in cells if cell.strip()):
            number = int(found[2]) if found[2].isdigit() else ord(found[2].lower()) - ord("a") + 1
            groups.setdefault((names.words(found[1]), names.words(found[3])), []).append((i, number))
    numbered = {
        words: each
        for words, each in groups.items()
        if len(each) > 1 and [n for _, n in each] in ([*range(1, len(each) + 1)], [*range(len(each))])
    }
    if len(numbered) != 1:
        return []
    ((words, each),) = numbered.items()
    if not _RUNS & {*words[0].split("_"), *words[1].split("_"), "".join(words)}:
        shown = ", ".join(grid.header[i] for i, _ in each[:5])
        raise PlanError(
            f"columns {shown} may be levels, or runs of {name}",
            hint="call runs run1, run2, ...; or --factor NAME, as the last factor, says that they are its levels",
        )
    return [i for i, _ in each]


def _from_pivot(grid: Grid, factor: str, response: str, used: Collection[str]) -> None:
    """Levels as columns: ``rep, xfs, ext4``."""
    side, kept = [], []
    for i, column in enumerate(grid.header):
        cells = [row[i].strip() for _, row in grid.lines if i < len(row) and row[i].strip()]
        known = names.plain(column) in REPEATS | SETTINGS
        is_number = bool(cells) and sum(parts(cell) is not None for cell in cells) >= 0.5 * len(cells)
        if column and column not in used and not known and is_number:
            side.append(i)
        elif column:
            kept.append(column)
    about = [i for i in side if _compares(grid.header[i], [grid.header[at] for at in side])]
    if len(side) - len(about) < 2:
        return
    side = [i for i in side if i not in about]
    kept += [grid.header[i] for i in about]
    shown = ", ".join(grid.header[i] for i in side[:5]) + (", ..." if len(side) > 5 else "")
    # ``tps_xfs``, ``tps[xfs]``: the level is what is left.
    own = re.escape(response)
    bare = [
        re.fullmatch(rf"{own}[\W_]+(.*?\w)\W*|(.*\w)[\W_]+{own}", grid.header[i], re.IGNORECASE) for i in side
    ]
    for i, found in zip(side, bare, strict=True):
        if found and all(bare):
            grid.header[i] = found[1] or found[2]
    grid.notes.append(
        f"columns {shown} are the levels of {factor}, and their cells {response}"
        + (f"; {', '.join(kept)} {'are' if len(kept) > 1 else 'is'} not" if kept else "")
    )
    _unpivot(grid, side, factor, response)


def _compares(column: str, columns: Sequence[str]) -> bool:
    """Whether a column has a figure about the others: ``Total``, ``xfs/ext4``."""
    halves = [half.strip() for half in re.split(r"/|÷|→|->|\bvs?\b\.?|\s-\s", column)]
    bare = re.sub(r"\W*%\W*$|^\W*%\W*", "", column)
    return names_a_summary(bare) or (len(halves) == 2 and {*halves} <= {*columns} - {column})


def _unpivot(grid: Grid, side: Sequence[int], factor: str | None, response: str) -> None:
    """One line for each cell of the columns ``side``."""
    kept = [i for i in range(len(grid.header)) if i not in side]
    grid.lines = [
        (number, [*(cells[i] for i in kept), *([grid.header[at]] if factor else []), cells[at]])
        for number, cells in grid.lines
        if len(cells) == len(grid.header)
        for at in side
    ]
    grid.header = [*(grid.header[i] for i in kept), *([factor] if factor else []), response]


#: What says that a cell is as the one above it.
_DITTO = re.compile(
    r"〃|〻|″|''|\"|”|“|-+\W?\"-+|[-—]+//[-—]+|同上|同じ|\^|↑|(ditto|dito|do|idem|id|same|s\. ?o)\.?", re.I
)


def _fill_down(grid: Grid, factors: Sequence[str], responses: Sequence[str]) -> None:
    """A level stands once, above empty cells (merged ones are exported so) or ditto marks."""
    at = [grid.header.index(name) for name in responses if name in grid.header]
    for name in factors:
        if name not in grid.header:
            continue
        place = grid.header.index(name)
        lines = [line for line in grid.lines if len(line[1]) == len(grid.header)]
        _without_ditto(grid, name, lines)
        empty = [(n, row) for n, row in lines if not row[place].strip() and any(row[i].strip() for i in at)]
        told = [row[place].strip() for _, row in lines]
        if not empty or not told[0]:
            continue
        # Where a level is repeated, an empty cell has another meaning.
        if any(early == late != "" for early, late in itertools.pairwise(told)):
            continue
        filled_in = [level for level in told if level]
        if len(factors) == 1 and len(set(filled_in)) < len(filled_in):
            continue
        last = ""
        filled = 0
        for _, row in lines:
            last = row[place].strip() or last
            others = [cell for i, cell in enumerate(row) if i not in at and i != place]
            is_total = bool(others) and not any(cell.strip() for cell in others)
            if not row[place].strip() and not is_total:
                row[place] = last
                filled += 1
        if filled:
            grid.notes.append(f"{name}: {filled} empty cells hold the level above them")


def _without_ditto(grid: Grid, name: str, lines: Sequence[tuple[int, list[str]]]) -> None:
    """The level above in the cells with a ditto mark, in place, unless the first of them has one."""
    place = grid.header.index(name)
    marked = [n for n, (_, row) in enumerate(lines) if _DITTO.fullmatch(row[place].strip())]
    if not marked or marked[0] == 0:
        return
    for n in marked:
        lines[n][1][place] = lines[n - 1][1][place]
    grid.notes.append(f"{name}: {counted(len(marked), 'cell')} with a ditto mark hold the level above")


def _with_units(grid: Grid, responses: Sequence[str]) -> None:
    """A column of units belongs to the numbers of the response that it names, or of the only one."""
    for name in responses:
        if name not in grid.header:
            continue
        named = {f"{names.words(name)}_{word}" for word in UNITS} | {
            f"{word}_{names.words(name)}" for word in UNITS
        }
        unit = _column(grid, frozenset(named)) or (_column(grid, UNITS) if len(responses) == 1 else None)
        if unit is None:
            continue
        at, of = grid.header.index(name), grid.header.index(unit)
        for _, cells in grid.lines:
            if len(cells) == len(grid.header) and cells[at].strip():
                cells[at] = f"{cells[at].strip()} {cells[of].strip()}".strip()
