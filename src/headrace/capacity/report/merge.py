"""The page of a merge: how many hosts, at which cost and risk, who shares a host, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.base.counted import counted
from headrace.base.intervals import Interval
from headrace.capacity.cost import PENALTY, Scored, Use
from headrace.capacity.model import Capacity
from headrace.capacity.plan import Merged, PlannedHost
from headrace.capacity.report.words import amount, name
from headrace.capacity.together import DRAWS
from headrace.show import text
from headrace.show.charts import Row as BarRow
from headrace.show.charts import ladder
from headrace.show.notice import Conclusion, Notice
from headrace.show.parts import (
    Cell,
    Cells,
    Chart,
    Column,
    Facts,
    Key,
    Page,
    Part,
    Row,
    Section,
    Sentences,
    Table,
    method,
)

#: Bars of more hosts are not read; the fullest ones are shown.
MOST_BARS = 40


def page_of(found: Merged) -> Page:
    return Page(
        eyebrow="headrace size merge",
        title=f"{_databases(found.databases)} onto {_hosts(len(found.hosts))}",
        verdicts=[headline(found)],
        lead=_lead(found),
        keys=list(_keys(found)),
        cautions=found.cautions,
        sections=[
            Section("fit", "", "What does not fit", _unfit(found), brief=_unfit(found)),
            Section(
                "peaks", "Peaks", "How full is each host at its peak?", lambda: _bars(found),
                "100% is the knee: the load at which the objective is no longer kept. Each bar is the fullest "
                "resource of a host, with its 95% interval over days, growth and limits.",
            ),
            Section(
                "plan", "Plan", "Which databases share a host?", [_plan(found)],
                brief=[_plan(found), *([Sentences([lead])] if (lead := _lead(found)) else [])],
            ),
            Section(
                "assumed", "Assumed", "What does the plan assume?",
                [Sentences(found.assumptions)] if found.assumptions else [],
            ),
            Section("cost", "Cost", "What does it cost?", lambda: _cost(found), brief=list(_cost(found))),
            Section(
                "choice", "Choice", "Why this plan, and not more room?", [_candidates(found)],
                f"A host that is too full counts as {PENALTY:g} of its monthly prices. The regret of a plan is "
                "what it costs more than the best plan of a scenario.",
                brief=[_candidates(found)],
            ),
            Section("notes", "", "Assumptions", brief=[Sentences(found.notes)] if found.notes else []),
            _method(found),
        ],
        footer="headrace size merge --json prints the numbers",
        data=_data(found),
        notice=Notice(
            kind="size merge",
            subject=_databases(found.databases),
            conclusion=Conclusion.DECIDED if found.fits else Conclusion.WORSE,
            headline=headline(found),
            counts={"databases": found.databases, "hosts": len(found.hosts), "unplaced": len(found.unplaced)},
        ),
    )  # fmt: skip


def headline(found: Merged) -> str:
    if found.unplaced:
        said = f"No: no host is found for {len(found.unplaced)} of {_databases(found.databases)}."
    elif found.over:
        said = (
            f"No: {_hosts(len(found.over))} of {len(found.hosts)} would be too full at the joint peak with "
            f"more than {_percent(found.asked.risk)} chance."
        )
    else:
        fit = "fits" if found.databases == 1 else "fit"
        said = f"Yes: {_databases(found.databases)} {fit} onto {_hosts(len(found.hosts))}."
    if found.averages < len(found.hosts) or found.unplaced:
        said += f" Averages alone would suggest {found.averages}."
    return said


def _lead(found: Merged) -> str:
    said = []
    if found.solution.is_proven:
        said.append("No plan under these rules is better.")
    elif (gap := found.solution.gap) is not None:
        said.append(f"It is at most {_percent(max(gap, 0))} above the best plan under these rules.")
    elif not found.unplaced:
        said.append("How much better the best plan could be is not known.")
    if found.is_stopped:
        said.append("The search was stopped early.")
    return " ".join(said)


def _hosts(count: int) -> str:
    return f"{count} host" if count == 1 else f"{count} hosts"


def _databases(count: int) -> str:
    return f"{count} database" if count == 1 else f"{count} databases"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.1 or share == 0 else f"{100 * share:.1f}%"


def _risk(share: float) -> str:
    """None of so many draws may still be this much (the rule of three: Hanley & Lippman-Hand 1983, JAMA 249)."""
    return _percent(share) if share > 0 else f"<{100 * 3 / DRAWS:.2g}%"


def _money(found: Merged, value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f} {found.currency}".strip()


def _keys(found: Merged) -> Iterator[Key]:
    yield Key(
        "Hosts", f"{found.databases} → {len(found.hosts)}", "databases → hosts", "" if found.fits else "worse"
    )
    before = _total(found.before, found.databases, "price")
    yield Key(
        "A month", _money(found, found.price), "" if before is None else f"today {_money(found, before)}"
    )
    yield Key(
        "Power",
        "unknown" if found.watts is None else f"{found.watts:,.0f} W",
        "" if (today := _watts_today(found)) is None else f"today {today}",
    )
    if found.hosts:
        risk = max(host.risk for host in found.hosts)
        yield Key(
            "Fullest host",
            _risk(risk),
            "chance of exceeding the knee",
            "worse" if risk > found.asked.risk else "better",
        )


def _watts_today(found: Merged) -> str | None:
    """Measured rather than from the catalogue: that is of whole hosts, so the two are not subtracted."""
    if found.watts_today is not None:
        mean, most = found.watts_today.mean, found.watts_today.most
        return f"{mean:,.0f} W on average, at most {most:,.0f} W (processors and memory, measured)"
    today = _total(found.before, found.databases, "watts")
    return None if today is None else f"{today:,.0f} W"


def _total(hosts: Sequence[PlannedHost], databases: int, name: str) -> float | None:
    """Today's sum; None if some host is unknown."""
    values = [getattr(host.capacity, name) for host in hosts]
    return None if len(values) < databases or None in values else sum(values)


def _unfit(found: Merged) -> list[Part]:
    lines = [f"{name}: {why}" for name, why in found.unplaced.items()]
    lines += [
        f"{host.name} ({', '.join(host.databases)}): {name(host.first.resource)} is at {_share(host.first)} "
        "of its knee"
        for host in found.over
        if host.first
    ]
    return [Sentences(lines)] if lines else []


def _share(use: Use) -> str:
    return f"{_percent(use.share.estimate)} ({text.between(use.share, _percent)})"


def _bars(found: Merged) -> Iterator[Part]:
    planned = _chart(found, found.hosts, "Planned hosts")
    yield Row([_chart(found, found.before, "Today"), planned]) if found.before else planned


def _chart(found: Merged, hosts: Sequence[PlannedHost], title: str) -> Chart:
    fullest = sorted(
        (h for h in hosts if h.first), key=lambda h: h.first.share.estimate if h.first else 0.0, reverse=True
    )[:MOST_BARS]
    rows = []
    for host in fullest:
        use = host.first
        assert use is not None
        colour = "@{worse}" if host.risk > found.asked.risk else "@{better}"
        share = use.share
        percent = Interval(
            100 * share.estimate, 100 * (share.low or share.estimate), 100 * (share.high or share.estimate)
        )
        rows.append(
            BarRow(
                f"{text.short(host.name, 18)} {name(use.resource)}",
                percent,
                colour,
                hint=f"{host.name}: {_share(use)}",
            )
        )
    top = max(
        (100 * (h.first.share.high or h.first.share.estimate) for h in fullest if h.first), default=100.0
    )
    figure = ladder(rows, "% of the knee at peak", max(top, 110.0))
    figure["layout"]["shapes"] = [
        {"type": "line", "x0": 100, "x1": 100, "y0": 0, "y1": 1, "yref": "paper",
         "line": {"color": "@{ink}", "width": 1.2, "dash": "dash"}}
    ]  # fmt: skip
    more = f", the {MOST_BARS} fullest of {len(hosts)}" if len(hosts) > MOST_BARS else f", {len(hosts)}"
    return Chart(figure, f"{title}{more}")


def _plan(found: Merged) -> Table:
    rows: list[Cells] = []
    has_bursts = any(host.capacity.burst for host in found.hosts)
    for host in found.hosts:
        use = host.first
        rows.append(
            [
                host.name,
                host.capacity.name,
                ", ".join(host.databases),
                "–" if use is None else name(use.resource),
                "–" if use is None else _percent(use.share.estimate),
                "–" if use is None else text.between(use.share, _percent),
                Cell(_risk(host.risk), "worse" if host.risk > found.asked.risk else ""),
                "–" if host.after_failure is None else _percent(host.after_failure),
                *([_bursts(host.capacity)] if has_bursts else []),
                _money(found, host.capacity.price),
            ]
        )
    columns = (
        Column("host"), Column("type"), Column("databases", "wrap"), Column("fullest", "", 1),
        Column("of knee", "n"), Column("95%", "n", 2), Column("risk", "n"),
        Column("if one fails", "n", 2, small="of its planned load"),
        *([Column("bursts to", "n", 4, small="not planned with")] if has_bursts else []),
        Column("a month", "n", 3),
    )  # fmt: skip
    return Table(columns, rows)


def _bursts(capacity: Capacity) -> str:
    """What it has for a while only."""
    return ", ".join(amount(r, most) for r, most in capacity.burst.items()) or "–"


def _cost(found: Merged) -> Iterator[Part]:
    rows: list[tuple[str, str]] = [("a month", _money(found, found.price))]
    before = _total(found.before, found.databases, "price")
    if before is not None:
        rows.append(("today", _money(found, before)))
    rows.append(
        ("power", "unknown: no watts in the catalogue" if found.watts is None else f"{found.watts:,.0f} W")
    )
    if (today := _watts_today(found)) is not None:
        rows.append(("power today", today))
    kinds: dict[str, int] = {}
    for host in found.hosts:
        kinds[host.capacity.name] = kinds.get(host.capacity.name, 0) + 1
    rows.append(("to buy", ", ".join(f"{n} × {name}" for name, n in sorted(kinds.items())) or "nothing"))
    if found.worth is None:
        rows.append(("queries", "not known of every host"))
    else:
        worth = found.worth
        unit = found.currency or "price unit"
        rows.append(("queries/s at the daily peak", _estimate(worth.queries)))
        rows.append(("queries/s at the knee", _estimate(worth.at_knee)))
        if worth.per_price is not None:
            rows.append((f"queries/s per {unit} a month", _estimate(worth.per_price)))
        if worth.per_watt is not None:
            rows.append(("queries/s per watt", _estimate(worth.per_watt)))
    yield Facts(rows)


def _estimate(found: Interval) -> str:
    return f"{text.count(found.estimate)} ({text.between(found, text.count)})"


def _candidates(found: Merged) -> Table:
    def cells(each: Scored) -> Cells:
        return [
            each.name,
            str(each.hosts),
            _money(found, each.price),
            _risk(each.too_full),
            text.count(each.mean_regret),
            text.count(each.worst_regret),
        ]

    columns = (
        Column("plan"), Column("hosts", "n"), Column("a month", "n"),
        Column("any host too full", "n", small="chance"),
        Column("mean regret", "n"), Column("regret in the worst 5%", "n", 1),
    )  # fmt: skip
    return Table(columns, [cells(each) for each in found.candidates])


def _method(found: Merged) -> Section:
    memory = (
        "Databases of one server share its buffer pool, so their working sets add up step by step."
        if found.asked.is_one_server
        else "Each database keeps its own server, so its largest memory counts at any time."
    )
    failure = (
        "Any one host may fail: what can move of its load is then shared by the other members of each group."
        if found.asked.survives
        else "No host is planned to fail."
    )
    lines = (
        (
            "Joint peaks:",
            "CPU, packets and device requests of a host's databases are added step by step. Peaks that coincide "
            "count together; averages and the sum of single peaks are not used.",
        ),
        ("Memory:", memory),
        ("The redo log", "counts with the sum of its streams, which group commit makes smaller."),
        ("Groups:", f"two members of a replication group never share a host. {failure}"),
        (
            "A day's peak",
            f"is the load that it exceeds for {_percent(1 - found.asked.quantile)} of its time. The largest of "
            f"the next {counted(found.asked.ahead_days, 'day')} follows a Gumbel law; its interval "
            "is from days drawn again.",
        ),
        (
            "Risk",
            "is the chance that a host passes a knee, over all draws of days, growth, limits and knees.",
        ),
        (
            "Search:",
            f"{found.solution.solver}, {found.solution.seconds:.0f} s; bound {found.solution.bound:,.4g}, "
            f"plan {found.solution.placement.price:,.4g}.",
        ),
    )
    return Section("method", "Method", "How to read it", [method(lines)])


def _data(found: Merged) -> dict[str, object]:
    def host(each: PlannedHost) -> dict[str, object]:
        return {
            "name": each.name,
            "type": each.capacity.name,
            "databases": each.databases,
            "risk": each.risk,
            "after_failure": each.after_failure,
            "price": each.capacity.price,
            "watts": each.capacity.watts,
            "burst": each.capacity.burst,
            "peaks": {
                use.resource: {"peak": use.peak, "share_of_knee": use.share, "risk": use.risk}
                for use in each.uses
            },
        }

    return {
        "format": 1,
        "headline": headline(found),
        "fits": found.fits,
        "hosts": [host(each) for each in found.hosts],
        "unplaced": found.unplaced,
        "before": [host(each) for each in found.before],
        "price": found.price,
        "currency": found.currency,
        "watts": found.watts,
        "watts_today": found.watts_today,
        "worth": found.worth,
        "growth": found.asked.growth,
        "averages_ask_for": found.averages,
        "bound": None if found.unplaced else found.solution.bound,
        "gap": found.solution.gap,
        "is_proven": found.solution.is_proven,
        "is_stopped": found.is_stopped,
        "solver": found.solution.solver,
        "plans": found.candidates,
        "notes": found.notes,
    }
