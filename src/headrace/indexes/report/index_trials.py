"""What `headrace indexes --screen` and `--prove` add to its page.

``--json``: screening: candidates[] (table, columns[], outcome, build_s, total_s, size_bytes, words, statements[]
(statement, chosen, keys_before[], rows_read_before, rows_read_with, seconds_before, seconds_with, problem)),
not_run[] (statement, why), cleaned[].
proof: verdict, seed, share_run, whole, saved, cost (ratio or share, low, high), reads[] (statement, verdict,
ratio, low, high, blocks, answers), writes[] (table, verb, verdict, ratio, low, high, blocks, time_s), candidates[]
(table, columns[], is_proved, is_needed, left_out, size_bytes, build_s), not_run[] (statement, why).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.base.counted import counted
from headrace.base.intervals import Interval
from headrace.indexes.copies import Built
from headrace.indexes.judging import Judged
from headrace.indexes.proving import LeftOut, Proof
from headrace.indexes.screening import Outcome, Screened, Screening, Seen
from headrace.indexes.statement import Statement
from headrace.indexes.verdicts import Effect, Verdict
from headrace.lab.volumes.device import size_text
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Page, Part, Section, Sentences, Table

WIDTH = 70
_CHIPS = {
    Verdict.FASTER: "better",
    Verdict.SLOWER: "worse",
    Verdict.SAME: "equivalent",
    Verdict.NOT_ENOUGH_DATA: "unsure",
}


def with_screening(page: Page, screening: Screening, cleaned: Sequence[Built]) -> Page:
    """The page with what screening found in front."""
    parts: list[Part] = [_outcomes(screening), *map(_seen, screening.screened), *_not_run(screening.refused)]
    section = Section("screen", "Screened", "Does the optimiser use them?", parts, brief=parts)
    cautions = [
        f"dropped what an earlier run had left: {each.database}.{each.table}, index {each.name}"
        for each in cleaned
    ]
    return replace(
        page,
        verdicts=[_screen_headline(screening)],
        cautions=[*page.cautions, *cautions],
        sections=[section, *page.sections],
        data={
            **page.data,
            "headline": _screen_headline(screening),
            "screening": _screening_data(screening, cleaned),
        },
    )


def with_proof(page: Page, proof: Proof) -> Page:
    """The page with the proof in front."""
    parts: list[Part] = [
        _candidates(proof),
        _reads(proof),
        *_writes(proof),
        *_not_run(proof.refused),
        Sentences(
            [
                f"Loads are the examples of the log, one of each class, together "
                f"{proof.share_run:.0%} of the time. Other values of the same class may behave otherwise.",
                "Times are those that a client on this machine sees, the median of a turn. Intervals hold "
                "together at 95%; a block counts once. Within 5% is the same.",
                "Writes delete, insert and change 300 rows in a transaction that is rolled back, with the indexes "
                "and after they were dropped; the quickest of nine times counts. Purge and checkpoints are "
                "not in it.",
            ]
        ),
    ]
    section = Section("proof", "Proof", "What do they bring and cost?", parts, brief=parts)
    return replace(
        page,
        verdicts=[headline(proof)],
        sections=[section, *page.sections],
        data={**page.data, "headline": headline(proof), "proof": _proof_data(proof)},
    )


def _screen_headline(screening: Screening) -> str:
    used, all_ = len(screening.used), len(screening.screened)
    seconds = sum(each.total_s for each in screening.screened)
    of = "the candidate" if all_ == 1 else f"{used} of {all_} candidates"
    if all_ == 1:
        words = f"The optimiser uses {of}" if used else f"{of} is not worth a proof".capitalize()
        return f"{words} (screened in {seconds:.1f} s)."
    return f"The optimiser uses {of} and gains by them (screened in {seconds:.1f} s)."


def headline(proof: Proof) -> str:
    """The verdict in a sentence."""
    if not proof.are_answers_same:
        wrong = sum(each.is_wrong for each in proof.reads)
        return (
            f"Answers differ with the indexes ({wrong} of {counted(len(proof.reads), 'statement')}): "
            "not proved."
        )
    costs = [
        f"{_more(each.effect)} per {each.verb} of {each.table}"
        for each in proof.writes
        if each.time_ns and each.effect.verdict is not Verdict.NOT_ENOUGH_DATA
    ]
    size = sum(each.size_bytes or 0 for each in proof.left_out)
    words = f"{share_of(proof.worth.saved)} of the recorded time"
    more = "".join(f"; {cost}" for cost in costs) + (f"; {size_text(size)}" if size else "")
    if proof.proved:
        names = ", ".join(f"{each.table.full_name} ({', '.join(each.columns)})" for each in proof.proved)
        return f"Proved: {names}. Saves {words}{more}."
    if proof.worth.pays is False:
        return f"Not worth it: saves {words}{more}."
    if proof.whole.verdict is Verdict.SAME:
        return f"Makes no difference: saves {words}{more}."
    if proof.worth.pays is None:
        return f"Not enough data: saves {words}, costs {share_of(proof.worth.cost)}{more}."
    return f"The set saves {words}, but no candidate is proved to be needed{more}."


def _more(effect: Effect) -> str:
    ratio = effect.ratio
    if ratio.low is None or ratio.high is None:
        return "an unknown amount"
    return f"{ratio.estimate - 1:+.1%} ({ratio.low - 1:+.1%} to {ratio.high - 1:+.1%})"


def share_of(share: Interval) -> str:
    if share.low is None or share.high is None:
        return "an unknown share"
    return f"{share.estimate:.1%} ({share.low:.1%} to {share.high:.1%})"


def _outcomes(screening: Screening) -> Table:
    rows: list[Cells] = [
        [
            f"{each.candidate.table.full_name} ({', '.join(each.candidate.columns)})",
            Cell(
                f"{each.outcome}{': ' + each.words if each.words else ''}",
                chip="better" if each.outcome is Outcome.USED else "unsure",
            ),
            text.count(each.build_s),
            size_text(each.size_bytes) if each.size_bytes is not None else "unknown",
            text.count(each.total_s),
        ]
        for each in screening.screened
    ]
    columns = (
        Column("candidate", "wrap"), Column("outcome", "wrap"), Column("build s", "n", 2), Column("size", "n", 1),
        Column("screened in s", "n", 2),
    )  # fmt: skip
    return Table(columns, rows)


def _seen(screened: Screened) -> Table:
    rows: list[Cells] = [
        [
            text.short(each.statement.name, WIDTH),
            each.problem or ("yes" if each.is_chosen else "no"),
            _keys(each),
            text.count(each.before.rows_read if each.before else None),
            text.count(each.after.rows_read if each.after else None),
            text.milliseconds(each.before.seconds * 1e9 if each.before else None),
            text.milliseconds(each.after.seconds * 1e9 if each.after else None),
        ]
        for each in screened.seen
    ]
    columns = (
        Column("statement", "wrap"), Column("chosen", "wrap"), Column("uses now", "wrap", 2),
        Column("rows read now", "n"), Column("with it", "n"), Column("ms now", "n", 1), Column("with it", "n", 1),
    )  # fmt: skip
    table = screened.candidate.table.full_name
    return Table(columns, rows, f"{table} ({', '.join(screened.candidate.columns)})", is_folded=not rows)


def _keys(seen: Seen) -> str:
    return ", ".join(seen.keys_before) or ("no index" if seen.before else "")


def _candidates(proof: Proof) -> Table:
    several = len(proof.left_out) > 1
    rows: list[Cells] = [
        [
            f"{each.candidate.table.full_name} ({', '.join(each.candidate.columns)})",
            Cell(_standing(each, proof), chip="better" if _is_proved(each, proof) else "unsure"),
            _range(each.effect.ratio),
            size_text(each.size_bytes) if each.size_bytes is not None else "unknown",
            text.count(each.build_s),
        ]
        for each in proof.left_out
    ]
    columns = (
        Column("candidate", "wrap"), Column("verdict", "wrap"),
        Column("time without this one" if several else "time without it", "n"),
        Column("size", "n"), Column("build s", "n", 1),
    )  # fmt: skip
    return Table(columns, rows)


def _is_proved(each: LeftOut, proof: Proof) -> bool:
    return each.candidate in proof.proved


def _standing(each: LeftOut, proof: Proof) -> str:
    if _is_proved(each, proof):
        return "proved"
    if not proof.are_answers_same:
        return "not proved: answers differ"
    if each.is_needed is None:
        return "not enough data"
    if not each.is_needed:
        return "not needed: the whole is no slower without it"
    return "not worth its writes" if proof.worth.pays is False else "not enough data"


def _range(ratio: Interval) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.estimate:.2f}x" if ratio.estimate == ratio.estimate else "–"
    return f"{ratio.estimate:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


def _reads(proof: Proof) -> Table:
    rows: list[Cells] = [
        [
            text.short(each.statement.name, WIDTH),
            Cell(each.effect.verdict.value, chip=_CHIPS[each.effect.verdict]),
            _range(each.effect.ratio),
            str(each.effect.blocks),
            Cell(each.answers, chip="worse") if each.is_wrong else each.answers,
        ]
        for each in proof.reads
    ]
    rows.append(
        [
            "the whole",
            Cell(proof.whole.verdict.value, chip=_CHIPS[proof.whole.verdict]),
            _range(proof.whole.ratio),
            str(proof.whole.blocks),
            "",
        ]
    )
    columns = (
        Column("statement", "wrap"), Column("verdict"), Column("time with them", "n"), Column("blocks", "n", 2),
        Column("answers", "wrap", 1),
    )  # fmt: skip
    return Table(columns, rows, "Statements with all candidates relative to none")


def _writes(proof: Proof) -> list[Part]:
    rows: list[Cells] = [
        [
            f"{each.verb} of {each.table}",
            Cell(each.effect.verdict.value, chip=_CHIPS[each.effect.verdict]),
            _range(each.effect.ratio),
            str(each.effect.blocks),
            "yes" if each.time_ns else "no",
        ]
        for each in proof.writes
    ]
    columns = (
        Column("write"), Column("verdict"), Column("time with them", "n"), Column("blocks", "n", 2),
        Column("in the traffic", "", 1),
    )  # fmt: skip
    return [Table(columns, rows, "Writes with all candidates relative to none")] if rows else []


def _not_run(refused: Sequence[tuple[Statement, str]]) -> list[Part]:
    rows: list[Cells] = [[text.short(statement.name, WIDTH), why] for statement, why in refused]
    columns = (Column("statement", "wrap"), Column("why", "wrap"))
    return [Table(columns, rows, "Statements that were not run")] if rows else []


def _screening_data(screening: Screening, cleaned: Sequence[Built]) -> dict[str, Any]:
    return {
        "candidates": [
            {
                "table": each.candidate.table.full_name, "columns": list(each.candidate.columns),
                "outcome": each.outcome.value, "build_s": each.build_s, "total_s": each.total_s,
                "size_bytes": each.size_bytes, "words": each.words or None,
                "statements": [
                    {
                        "statement": seen.statement.name, "chosen": seen.is_chosen,
                        "keys_before": list(seen.keys_before),
                        "rows_read_before": seen.before.rows_read if seen.before else None,
                        "rows_read_with": seen.after.rows_read if seen.after else None,
                        "seconds_before": seen.before.seconds if seen.before else None,
                        "seconds_with": seen.after.seconds if seen.after else None,
                        "problem": seen.problem or None,
                    }
                    for seen in each.seen
                ],
            }
            for each in screening.screened
        ],
        "not_run": [{"statement": statement.name, "why": why} for statement, why in screening.refused],
        "cleaned": [{"table": f"{each.database}.{each.table}", "index": each.name} for each in cleaned],
    }  # fmt: skip


def _proof_data(proof: Proof) -> dict[str, Any]:
    return {
        "verdict": proof.whole.verdict.value,
        "pays": proof.worth.pays,
        "seed": proof.seed,
        "share_run": proof.share_run,
        "whole": _effect_data(proof.whole),
        "saved": _interval_data(proof.worth.saved),
        "cost": _interval_data(proof.worth.cost),
        "reads": [
            {"statement": each.statement.name, "answers": each.answers, **_effect_data(each.effect)}
            for each in proof.reads
        ],
        "writes": [
            {
                "table": each.table,
                "verb": each.verb,
                "time_s": each.time_ns / 1e9,
                **_effect_data(each.effect),
            }
            for each in proof.writes
        ],
        "candidates": [
            {
                "table": each.candidate.table.full_name,
                "columns": list(each.candidate.columns),
                "is_proved": _is_proved(each, proof),
                "is_needed": each.is_needed,
                "left_out": _effect_data(each.effect),
                "size_bytes": each.size_bytes,
                "build_s": each.build_s,
            }
            for each in proof.left_out
        ],
        "not_run": [{"statement": statement.name, "why": why} for statement, why in proof.refused],
    }


def _effect_data(effect: Effect) -> dict[str, Any]:
    ratio = effect.ratio
    return {
        "verdict": effect.verdict.value, "ratio": ratio.estimate, "low": ratio.low, "high": ratio.high,
        "blocks": effect.blocks,
    }  # fmt: skip


def _interval_data(share: Interval) -> dict[str, Any]:
    return {"share": share.estimate, "low": share.low, "high": share.high}


def judged_lines(found: Judged) -> list[str]:
    """An index that was judged on a live server, in sentences."""

    def words(effect: Effect) -> str:
        return f"{effect.verdict.value}, {_more(effect)} in {counted(effect.blocks, 'block')}"

    return [
        f"statements of the table, in one mix: {words(found.whole)}",
        *(f"  {text.short(each.text, WIDTH)}: {words(each.effect)}" for each in found.classes),
    ]


def judged_data(found: Judged) -> dict[str, Any]:
    return {
        "whole": _effect_data(found.whole),
        "classes": [
            {"statement": each.text, "time_s": each.time_s, **_effect_data(each.effect)}
            for each in found.classes
        ],
    }
