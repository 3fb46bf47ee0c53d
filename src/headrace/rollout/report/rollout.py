"""A rollout as people see it: the plan before it is run, and where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from headrace.host.moved import unlike
from headrace.host.ranges import fold
from headrace.rollout.book import Book, State
from headrace.rollout.dry import Dry
from headrace.rollout.judge import TIME, Bound, Outcome, shown
from headrace.rollout.plan import Plan, Stage
from headrace.rollout.report import expected
from headrace.rollout.rules import RestartRule
from headrace.show.parts import Cell, Cells, Gap, Part, Sentence, Sentences, Table

LOOKS = {Outcome.PASS: "better", Outcome.FAIL: "worse", Outcome.INCONCLUSIVE: "unsure"}


def plan_parts(plan: Plan) -> Iterator[Part]:
    """Hosts in their order, then how it is judged."""
    rows: list[Cells] = []
    for stage in plan.stages:
        for place, name in enumerate(stage.hosts):
            member = plan.members[name]
            change = "; ".join(
                f"{knob}: {unlike(str(member.now.get(knob) or '?'), _text(value))[0]} -> {_text(value)}"
                for knob, value in plan.settings.items()
            )
            group = "" if member.group == name else f" of {member.group}"
            rows.append(
                [
                    Cell(stage.name if not place else "", style="bold"),
                    name,
                    f"{member.role}{group if member.role == 'replica' else ''}",
                    f"{member.per_s:,.0f}",
                    change,
                    _restarted(plan, stage, name),
                ]
            )
    columns = (
        ("stage", ""),
        ("host", ""),
        ("is", ""),
        (plan.load_unit, "n"),
        ("change", "wrap"),
        ("restart", "wrap"),
    )
    yield Table(columns, rows)
    yield Gap()
    yield Sentences([*_method(plan)])
    if lab := expected.plan_sentences(plan):
        yield Sentences(lab)
    yield from _left_out(plan)
    yield Sentence(f"plan {plan.id}", "strong")


def _method(plan: Plan) -> Iterator[str]:
    yield from _method_of_restarts(plan, plan.restart) if plan.restart else _method_of_pairs(plan)
    if plan.of_sessions and not plan.restart:
        yield (
            f"{', '.join(plan.of_sessions)}: connections that exist keep the old value until they reconnect, so "
            "only new ones are judged. With pools that never reconnect the verdict says nothing."
        )
    asked = [stage.name for stage in plan.stages if stage.needs_approval]
    if asked:
        yield f"Needs an approval: {', '.join(asked)}."
    idle_per_s = plan.rules.judge.idle_per_s
    watched = [stage for stage in plan.stages if not stage.is_judged]
    alone = [s.name for s in watched if any(plan.members[name].per_s >= idle_per_s for name in s.hosts)]
    idle = [stage.name for stage in watched if stage.name not in alone]
    quiet = [
        name
        for stage in plan.stages
        if stage.is_judged and not plan.restart
        for name in stage.hosts
        if plan.members[name].per_s < idle_per_s
    ]
    if alone:
        yield (
            "Only watched, not judged, because no equal host in service is still unchanged by then: "
            f"{', '.join(alone)}."
        )
    if idle:
        yield (
            f"Only watched, not judged, because fewer than {idle_per_s:g} {plan.load_unit} are too few to compare "
            f"times: {', '.join(idle)}."
        )
    if quiet:
        yield (
            "Idle now. Hosts that are idle when their stage is tried are changed after its verdict, and only "
            f"watched: {fold(quiet)}."
        )


def _restarted(plan: Plan, stage: Stage, name: str) -> str:
    if not plan.restart:
        return "no"
    partners = dict(stage.pairs)
    return f"yes, first, against {partners[name]}" if name in partners else "yes"


def _method_of_restarts(plan: Plan, how: RestartRule) -> Iterator[str]:
    timing, rule, question = plan.rules.timing, plan.rules.judge, plan.question()
    looks = ", ".join(map(str, rule.looks))
    yield (
        f"Each host: `{how.drain}` (on the {how.at}), the option file, `{how.restart}` (on the host), "
        f"`{how.put_back}` (on the {how.at}). Limits: {how.within_s:g} s for a drain or return, {how.start_s:g} s "
        "until the server answers. One host of a group at a time."
    )
    yield (
        "Stages in service: pairs of equal hosts, one of each pair chosen at random. Blocks of "
        f"{how.block_s:g} s, {how.before} before the restart. After the restart nothing counts until the "
        f"buffer pool is {how.warm:.0%} as warm as before (at most {how.warm_s:g} s). The pair's difference "
        "after the restart is compared with that before."
    )
    yield (
        f"Promoted when time per query is proven to rise by less than {rule.margin:.0%}, tested after "
        f"{looks} blocks, wrong at most {rule.alpha:.1%} of the time; undecided after {rule.looks[-1]} is "
        "inconclusive."
    )
    yield (
        "Undone on all hosts as soon as harm is proven (tested after each block, wrong at most "
        f"{question.harm_alpha:.1%} of the time per stage), if the server does not start with the change, or "
        "if a limit is passed that the host recovers from without it."
    )
    yield (
        f"Then the other hosts are restarted one by one. Each is watched for {timing.soak_s:g} s and keeps the "
        f"change. A host that loses contact with this command for {timing.lease_s:g} s {_alone(how)}."
    )


def _alone(how: RestartRule) -> str:
    """What a host does with a change that is not kept once nobody is heard."""
    if how.host_restarts:
        return (
            "restores its option file if the change is not kept, and runs these commands itself: drain, "
            "restart, return; it does not know about other hosts, so the drain command must fail if they "
            "cannot take its load"
        )
    return (
        "restores its option file if the change is not kept, and does not restart: a drained host stays out "
        "of service, and a host in service keeps its running server, until go or abort"
    )


def _method_of_pairs(plan: Plan) -> Iterator[str]:
    timing, rule, question = plan.rules.timing, plan.rules.judge, plan.question()
    looks = ", ".join(map(str, rule.looks))
    yield (
        f"Stages in service: pairs of blocks of {timing.block_s:g} s with and without the change on the same "
        f"host, in random order, {timing.wash_s:g} s left out after each switch."
    )
    limits = [f"{each.name} by no more than {each.most}" for each in question.watched]
    also = f" and nothing else to get worse by more than its limit ({'; '.join(limits)})" if limits else ""
    yield (
        f"Promoted when {question.response} is proven to rise by less than {rule.margin:.0%}{also}, tested after "
        f"{looks} pairs, wrong at most {rule.alpha:.1%} of the time; undecided after {rule.looks[-1]} is "
        "inconclusive."
    )
    if plan.of_caches:
        yield f"The probe runs here: {', '.join(_probes(plan))}."
    yield (
        "Undone on all hosts as soon as harm is proven (tested after each pair, wrong at most "
        f"{question.harm_alpha:.1%} of the time per stage), or a limit is passed that the host recovers from "
        "without the change."
    )
    yield (
        f"Then each host is watched for {timing.soak_s:g} s and keeps the change. A host that loses contact with "
        f"this command for {timing.lease_s:g} s undoes every unconfirmed change."
    )


def _probes(plan: Plan) -> Iterator[str]:
    """What the probe costs each server."""
    for member in plan.members.values():
        share = f"{member.gets_per_s / member.per_s:.2%} of its requests" if member.per_s else "it is idle"
        yield f"{member.name} {member.gets_per_s:.3g} gets/s ({share})"


def _left_out(plan: Plan) -> Iterator[Part]:
    if plan.left_out:
        yield Sentence("Not changed: " + "; ".join(f"{name}: {why}" for name, why in plan.left_out.items()))


def status_parts(book: Book) -> Iterator[Part]:
    """Each stage with its verdict, each host with its state."""
    state = book.state
    rows: list[Cells] = []
    for stage in book.plan.stages:
        word, why, look = standing(book, stage)
        rows.append([Cell(stage.name, style="bold"), Cell(word, look), why, str(measured(state, stage))])
    yield Table(
        (("stage", ""), ("verdict", ""), ("why", "wrap"), ("blocks" if book.plan.restart else "pairs", "n")),
        rows,
    )
    yield Gap()
    hosts: list[Cells] = [
        [
            name,
            state.host(name),
            state.kept.get(name, ""),
            state.why_left(name) or state.other.get(name, "") or state.idle.get(name, ""),
        ]
        for name in book.plan.members
    ]
    yield Table((("host", ""), ("state", ""), ("change", ""), ("note", "wrap")), hosts)
    if (how := book.plan.restart) and (names := sorted({*state.open, *state.out})):
        yield Sentence(
            f"{', '.join(names)}: a host that does not hear from `go` or `abort` for "
            f"{book.plan.rules.timing.lease_s:g} s {_alone(how)}. "
            "`headrace rollback --list -t HOST` shows what it did."
        )
    yield from expected.status_parts(book)
    yield Sentence(f"{book.plan.id}: {sentence(state)}", "strong")


def standing(book: Book, stage: Stage) -> tuple[str, str, str]:
    """A stage in a word, the reason, and the word's look."""
    state = book.state
    verdict = state.verdicts.get(stage.name)
    unjudged_by = state.unjudged_by(stage.name)
    if unjudged_by and stage.name in state.passed:
        reason = f"; {verdict['outcome']}: {verdict['reason']}" if verdict else ""
        return "watched", f"promoted by {unjudged_by} without a verdict{reason}", "unsure"
    if verdict:
        outcome = Outcome(verdict["outcome"])
        return str(outcome), str(verdict["reason"]), LOOKS.get(outcome, "")
    if stage.name in state.passed:
        why = "no equal host was left" if book.plan.restart else "it is idle"
        return "watched", f"nothing was judged: {why}", ""
    if stage.name in state.pairs or stage.name in state.moments:
        return "running", book.judged(stage).reason, ""
    approval = state.approvals.get(stage.name)
    if approval:
        until = datetime.fromtimestamp(approval["until"], UTC)
        return "approved", f"by {approval['by']}, until {until:%Y-%m-%d %H:%M} UTC", ""
    return ("needs approval" if stage.needs_approval else "to come"), "", ""


def measured(state: State, stage: Stage) -> int:
    """Pairs of blocks, or blocks of pairs after the change."""
    after = sum(moment.is_after for moment in state.moments.get(stage.name, ()))
    return len(state.pairs.get(stage.name, ())) + after


def sentence(state: State) -> str:
    """Where it stands."""
    if state.is_finished and not state.aborting:
        return "finished: every host of the plan keeps the change"
    if state.aborting:
        return f"taken back ({state.aborting}); {_restored(state)}"
    if state.paused:
        return f"waits: {state.paused}"
    return "running, or was killed: `headrace rollout go` continues" if state.is_started else "not started"


def _restored(state: State) -> str:
    if not state.is_aborted:
        return "not every host is restored yet: abort again"
    if state.other:
        return (
            f"every host is restored, but {'; '.join(f'{name}: {why}' for name, why in state.other.items())}"
        )
    return "every host is as before"


def to_json(book: Book) -> dict[str, Any]:
    state = book.state
    return {
        "id": book.plan.id,
        "plan": book.plan.to_json(),
        "state": sentence(state),
        "is_finished": state.is_finished,
        "is_aborted": state.is_aborted,
        "aborting": state.aborting,
        "paused": state.paused,
        "stages": {
            stage.name: {
                "verdict": state.verdicts.get(stage.name),
                "pairs": measured(state, stage),
                "passed": stage.name in state.passed,
                "effect": effect(state, stage),
            }
            for stage in book.plan.stages
        },
        "hosts": {name: state.host(name) for name in book.plan.members},
        "lab": expected.to_json(book),
        "events": book.events,
    }


def effect(state: State, stage: Stage) -> str | None:
    """The interval of time per query with the change relative to without."""
    bounds = (state.verdicts.get(stage.name) or {}).get("bounds") or {}
    return shown(Bound(**bounds[TIME]), TIME) if TIME in bounds else None


def settings(plan: Plan) -> str:
    return ", ".join(f"{knob}={_text(value)}" for knob, value in plan.settings.items())


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def dry_parts(dry: Dry) -> Iterator[Part]:
    """What a dry run says beside its rates."""
    counted = (
        f"{len({each.host for each in dry.moments})} pairs of hosts"
        if dry.moments
        else f"{len(dry.pairs)} pairs"
    )
    yield Sentence(f"{counted}, {dry.blocks} blocks; {len(dry.tripped)} of them passed a fixed limit")
    if dry.moments:
        yield Sentence(
            "Nothing was restarted: the effects of a restart itself (an emptier cache, a new memory layout) "
            "and a drift slower than these blocks are not covered."
        )
    if dry.tripped:
        yield Sentences([*dry.tripped])
    if dry.lost:
        yield Sentence("Not measured completely: " + "; ".join(f"{k}: {v}" for k, v in dry.lost.items()))


def list_parts(books: Sequence[Book]) -> Iterator[Part]:
    """A line per rollout."""
    rows: list[Cells] = [
        [
            Cell(book.plan.id, style="bold"),
            settings(book.plan),
            str(len(book.plan.members)),
            sentence(book.state),
        ]
        for book in books
    ]
    if rows:
        yield Table((("id", ""), ("settings", "wrap"), ("hosts", "n"), ("state", "wrap")), rows)
    else:
        yield Sentence("no rollout was planned here")
