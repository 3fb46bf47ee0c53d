"""The tables of pages and of ``/api``: their columns and rows."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.experiment.store import ExperimentFolder
from headrace.history import questions
from headrace.history.archive.reader import Range
from headrace.history.archive.tables import PERFORMANCE_SCHEMA, PROCESS_LIST, SLOW_LOG
from headrace.history.collect.minute import finding_row, text_of
from headrace.history.collect.watched import Watched
from headrace.host.monitors import looks_at_server as looks_at_server
from headrace.hunt.rules.cause import limited_by
from headrace.hunt.rules.rule import Finding, at
from headrace.web import locks, marks, rates, said
from headrace.web.alerts import SERVE
from headrace.web.asked import RANGES, Asked
from headrace.web.listing import Column, Listing, Row, address
from headrace.web.site import Site, loaded, one_host

#: Rows of the list of classes on a page; ``/api`` gives up to the second number.
MOST_CLASSES, MOST_ROWS = 100, 100_000

#: What sums cannot say.
_OF_SINGLE_CALLS = frozenset({"p99_ns", "p99_change", "most_ns"})

#: Classes of headrace's own sessions and of other monitors, which are left out.
OWN_CLASSES = 100


async def hosts(site: Site, asked: Asked) -> Listing:
    """Each host with what limits it now, and the age of its last answer."""
    span = asked.span()
    names = site.names(asked)
    states = await site.ask(questions.states, site.reader, names, span)
    week = Range(span.until_s - RANGES["7d"], span.until_s).aligned()
    last = await site.ask(questions.last_states, site.reader, names, week)
    by_host: dict[str, list[Mapping[str, Any]]] = {}
    for row in states:
        by_host.setdefault(row["host"], []).append(row)
    rows = [_host_row(site, name, by_host.get(name, []), last.get(name), span.seconds) for name in names]
    order = {"lost": 0, "limited": 1, "waiting": 2, "not watched": 3, "ok": 4}
    rows.sort(key=lambda row: (order.get(row["state"], 9), -(row["limited"] or 0), row["host"]))
    columns = (
        Column("host", "Host", link=lambda row: asked.address("/host", host=row["host"], sort="")),
        Column("state", "State", "chip", "ok, limited, lost, waiting or not watched"),
        Column(
            "limiting",
            "Limited by",
            "text",
            "what limits the host now: the saturated resource, or the finding that work waits for",
        ),
        Column("sentence", "Verdict", "text"),
        Column("findings", "Findings", "n"),
        Column(
            "limited",
            "Limited",
            "share",
            "share of the watched minutes in which something limited the host",
        ),
        Column("watched", "Watched", "share", "share of the range's minutes with data"),
        Column("age_s", "Last answer", "age", "seconds since the host's last answer"),
        Column("tags", "Tags"),
    )
    return Listing(columns, rows, empty="No hosts.")


def _host_row(
    site: Site, name: str, states: Sequence[Row], last: Row | None, seconds: float
) -> dict[str, Any]:
    watched = site.watched(name)
    good = sum(row["minutes"] for row in states if row["state"] == "ok")
    limited = sum(row["minutes"] for row in states if row["limiting"])
    state, sentence, limiting = "not watched", "", ""
    age = time.time() - last["t_s"] - 60 if last and last["state"] == "ok" else None
    findings = len(loaded(last["findings"])) if last else None
    if last:
        sentence, limiting = last["sentence"] or last["problem"] or "", last["limiting"] or ""
    if watched is not None:
        state = "ok" if watched.is_fresh else "lost" if watched.feed.ticks or watched.problem else "waiting"
        if watched.is_fresh:
            age = max(time.monotonic() - watched.feed.heard_at, 0.0)
        elif watched.problem:
            sentence, limiting = watched.problem, ""
        if watched.verdict is not None and watched.is_fresh:
            sentence = watched.verdict.sentence
            limiting = limited_by(watched.verdict, watched.judgement)
            findings = len(watched.judgement.findings) if watched.judgement else None
            if refusal := watched.refusal:
                state, sentence = "lost", f"The server does not answer: {refusal}. Its host: {sentence}"
        elif watched.is_fresh and not last:
            state, sentence = "waiting", "the first minute is being sampled"
    if state == "ok" and limiting:
        state = "limited"
    return {
        "host": name,
        "state": state,
        "limiting": limiting,
        "sentence": sentence,
        "findings": findings,
        "limited": limited / good if good else None,
        "watched": min(60 * good / seconds, 1.0),
        "age_s": max(age, 0.0) if age is not None else None,
        "tags": ", ".join(sorted(watched.host.tags)) if watched else "",
    }


async def resources(site: Site, asked: Asked) -> Listing:
    """Utilisation, saturation and errors of each resource over the range."""
    [name] = one_host(site, asked)
    rows = await site.ask(questions.resources, site.reader, name, asked.span())
    shown = []
    for row in rows:
        minutes = row["minutes"] or 1
        level = (
            "saturated"
            if row["saturated"]
            else "busy"
            if row["busy"]
            else "unknown"
            if row["unknown"]
            else "fine"
        )
        shown.append(
            {
                **row,
                "name": f"{row['resource']} {row['instance']}".strip(),
                "level": level,
                "saturated_share": row["saturated"] / minutes,
                "erring_share": row["erring"] / minutes,
            }
        )
    columns = (
        Column("name", "Resource"),
        Column("level", "Worst level", "chip", "the worst of the range: saturated, busy, unknown, fine"),
        Column("used", "Used", "share", "mean utilisation"),
        Column("used_most", "Peak", "share", "highest minute"),
        Column("saturated_share", "Saturated", "share", "share of minutes at that level"),
        Column("erring_share", "Errors", "share", "share of minutes with errors"),
        Column("load", "Load, last"),
        Column("saturation", "Waiting, last"),
        Column("errors", "Errors, last"),
    )
    return Listing(columns, shown, empty="No minute of this range was sampled.")


async def findings(site: Site, asked: Asked) -> Listing:
    """What the rules found in the last minute, each with the command that tests it."""
    [name] = one_host(site, asked)
    watched = site.watched(name)
    if watched is not None and watched.judgement is not None:
        rows = [_with_test(_finding(found), watched) for found in watched.judgement.findings]
    else:
        last = await site.ask(questions.last_states, site.reader, [name], asked.span())
        rows = [{**UNKEPT, **row} for row in loaded(last.get(name, {}).get("findings"))]
    columns = (
        Column("severity", "Severity", "chip"),
        Column("id", "Finding", "code"),
        Column("title", "What"),
        Column("summary", "Numbers"),
        Column("fix", "Fix", "code"),
        Column("test", "Tested by", "code"),
        Column("refuted_if", "Refuted if"),
    )
    return Listing(columns, rows, "Each is a hypothesis, worst first.", "No findings.")


#: What the history does not keep of a finding.
UNKEPT: Mapping[str, Any] = {"why": "", "numbers": (), "next": "", "statement": ""}


def _finding(found: Finding) -> dict[str, Any]:
    """With the reason and the numbers, which the history does not keep."""
    numbers = [
        (number.what, str(number.value), text_of(number.what, str(number.value)))
        for number in found.hit.evidence
    ]
    return {**finding_row(found), "why": found.rule.why, "numbers": numbers}


def _with_test(row: dict[str, Any], watched: Watched) -> dict[str, Any]:
    """A fix that a running host takes is tested there: by a hunt, which saves the finding, and a proof of it."""
    is_dynamic = row.pop("is_dynamic")
    if row["test"] and not is_dynamic:
        return row
    login = watched.feed.login or watched.host.login
    target = ["-t", watched.feed.spec.address] if watched.feed.spec.kind != "local" else []
    own = login.argv if login else []
    where = shlex.join([*target, *own])
    if not row["test"]:
        return {**row, "next": at(row["next"], target, own)}
    return {**row, "test": f"headrace hunt {where} && {row['test']} --live {where}"}


async def chosen_source(site: Site, asked: Asked, names: Sequence[str]) -> tuple[str, list[str]]:
    """The source of classes that is shown, and all of them. Whole latencies are worth more than sums."""
    found = await site.ask(questions.sources, site.reader, names, asked.span())
    if asked.source:
        return asked.source, found
    preferred = [s for s in (SLOW_LOG, PERFORMANCE_SCHEMA, PROCESS_LIST) if s in found]
    for host in names:
        watched = site.watched(host)
        variables = (watched.feed.facts.data if watched and watched.feed.facts else {}).get(
            "server_settings"
        ) or {}
        limit = float((variables.get("variables") or {}).get("long_query_time") or 0)
        if limit > 0 and SLOW_LOG in preferred and len(preferred) > 1:
            preferred.remove(SLOW_LOG)  # it has only the slow ones
    return (preferred or found or [""])[0], found


async def one_class(site: Site, asked: Asked, source: str, name: str) -> Row | None:
    """A class's row in the list of classes."""
    asked = replace(asked, source=source, words="", sort="", with_own=True)
    rows = (await classes(site, asked, 1, only=name)).rows
    return rows[0] if rows else None


async def classes(site: Site, asked: Asked, most: int = MOST_ROWS, only: str = "") -> Listing:
    """Query classes by time, with the change against the range before; ``only``: this one."""
    names, span = site.names(asked), asked.span()
    source, sources = await chosen_source(site, asked, names)
    if not source:
        return Listing(
            class_columns(asked, ""),
            [],
            empty=_why_no_classes(site, names),
            extra={"source": "", "sources": []},
        )
    ask, reader = site.ask, site.reader
    totals = await ask(questions.class_totals, reader, names, span, source)
    before = {
        row["class"]: row for row in await ask(questions.class_totals, reader, names, span.before(), source)
    }
    times = await rates.times(site, names, span, source)
    watched = (*rates.summed(times), await ask(questions.watched_s, reader, names, span.before()))
    total = sum(_weight(row) for row in totals) or 1
    columns = class_columns(asked, source)
    hosts = logged(site, names)
    # Not every source has every column, and an address keeps its order when the source is changed.
    by = asked.sort if asked.sort in {column.name for column in columns} else ""
    by = by or ("threads" if source == PROCESS_LIST else "load")
    listing = Listing(
        columns,
        [
            _class_row(row, before.get(row["class"]), source, watched, total)
            for row in totals
            if not only or row["class"] == only
        ],
        " ".join(filter(None, (said.note(source, hosts), *said.unread(hosts)))),
        said.empty(source, sources, has_classes=bool(totals), words=asked.words, with_own=asked.with_own),
        {"source": source, "sources": sources},
    )
    # Texts and percentiles are read of those that are shown, where that is known without them.
    if not asked.words and by not in ("text", "tables", "p99_ns", "p99_change"):
        listing = listing.sorted(by, descending=asked.descending).cut(most + OWN_CLASSES)
    rows = listing.rows
    names_of_rows = [row["class"] for row in rows] if len(rows) < len(totals) or only else None
    texts = await ask(questions.texts, reader, names, span, source, names_of_rows)
    reviews = await ask(site.reviews.states, source)
    rows = [{**row, "review": reviews.get(row["class"], "")} for row in rows]
    listing = replace(listing, rows=[row for row in rows if is_wanted(asked, with_text(row, texts))])
    if by in ("p99_ns", "p99_change"):
        await _complete(site, names, span, source, listing.rows, times)
        return listing.sorted(by, descending=asked.descending).cut(most)
    kept = listing.sorted(by, descending=asked.descending).cut(most)
    # The page of one class has charts instead.
    await _complete(site, names, span, source, kept.rows, times, with_sparks=not only)
    return kept


def with_text(row: Row, texts: Mapping[str, Row]) -> dict[str, Any]:
    """The row of a class with its text and tables."""
    assert isinstance(row, dict)
    text = texts.get(row["class"])
    row["text"] = (text or {}).get("text") or "text unknown"
    row["tables"] = ", ".join(map(str, loaded(text["tables"]) if text else []))
    row["looks_at_server"] = looks_at_server(row["text"], row["tables"])
    return row


def is_wanted(asked: Asked, row: Row) -> bool:
    """Whether a class has the words that are searched for, and is of the workload."""
    if row["looks_at_server"] and not asked.with_own:
        return False
    wanted = _spelt_alike(asked.words)
    return not wanted or any(wanted in _spelt_alike(row[key]) for key in ("text", "class", "tables"))


#: Sources write the same statement with other blanks, cases and quotes.
_SPELLING = re.compile(r"[\s`]+")


def _spelt_alike(text: str) -> str:
    return _SPELLING.sub("", text).lower()


def _weight(row: Row) -> float:
    return float(row["time_ns"] or 0) or float(row["seen"] or 0)


def logged(site: Site, names: Sequence[str]) -> list[said.Logged]:
    """What the servers of watched hosts tell of their statements now."""
    found = [watched for name in names if (watched := site.watched(name)) is not None]
    asked = site.collector.slow_log
    return [said.logged(each.name, each.feed.facts, asked, each.log_problem) for each in found]


def _why_no_classes(site: Site, names: Sequence[str]) -> str:
    problems = {w.listed_problem or w.problem for n in names if (w := site.watched(n)) is not None} - {""}
    why = f" Now: {'; '.join(sorted(problems)[:3])}" if problems else ""
    unread = "".join(f" {each}" for each in said.unread(logged(site, names)))
    return f"No statement was counted or seen in this range.{why}{unread}"


def _class_row(
    row: Row, before: Row | None, source: str, times: tuple[float, float, float], total: float
) -> dict[str, Any]:
    now_s, looks, before_s = times
    calls, time_ns = row["calls"], row["time_ns"]
    load = time_ns / 1e9 / now_s if time_ns is not None and now_s else None
    load_before = (
        before["time_ns"] / 1e9 / before_s if before and before["time_ns"] is not None and before_s else None
    )
    mean = time_ns / row["timed"] if time_ns is not None and row["timed"] else None
    mean_before = (
        before["time_ns"] / before["timed"] if before and before["time_ns"] and before["timed"] else None
    )
    return {
        "class": row["class"],
        "source": source,
        "text": "",
        "tables": "",
        "databases": ", ".join(sorted(filter(None, row["databases"]))),
        "hosts": ", ".join(sorted(row["hosts"])),
        "share": _weight(row) / total,
        "load": load,
        "load_change": questions.share_change(load, load_before),
        "calls_s": calls / now_s if calls is not None and now_s else None,
        "mean_ns": mean,
        "mean_change": questions.share_change(mean, mean_before),
        "most_ns": row["most_ns"],
        "rows_examined": row["rows_examined"] / calls if row["rows_examined"] is not None and calls else None,
        "rows_sent": row["rows_sent"] / calls if row["rows_sent"] is not None and calls else None,
        "errors": row["errors"],
        "threads": row["seen"] / looks if row["seen"] is not None and looks else None,
        "p99_ns": None,
        "p99_change": None,
        "is_new": before is None,
    }  # fmt: skip


async def _complete(
    site: Site,
    names: Sequence[str],
    span: Range,
    source: str,
    rows: Sequence[Row],
    times: Sequence[rates.Time],
    *,
    with_sparks: bool = True,
) -> None:
    """p99 and sparklines of the classes that are shown."""
    wanted = [row["class"] for row in rows]
    now = await site.ask(questions.percentiles, site.reader, names, span, source, wanted, 0.99)
    before = (
        await site.ask(questions.percentiles, site.reader, names, span.before(), source, wanted, 0.99)
        if now
        else {}
    )
    sparks = wanted[:MOST_CLASSES] if with_sparks else []
    _, series = await site.ask(questions.class_series, site.reader, names, span, source, sparks)
    for row in rows:
        assert isinstance(row, dict)
        row["p99_ns"] = now.get(row["class"])
        row["p99_change"] = questions.share_change(now.get(row["class"]), before.get(row["class"]))
        points = rates.over_time(series.get(row["class"], []), times)
        key = "threads" if source == PROCESS_LIST else "load"
        row["spark"] = [None if p is None else p[key] for p in points]


def class_columns(asked: Asked, source: str) -> Sequence[Column]:
    def link(row: Row) -> str:
        return asked.address("/query", source=row["source"], **{"class": row["class"], "sort": "", "q": ""})

    first = (
        Column("text", "Statement", "code", link=link),
        Column("share", "Share", "share", "of all response time in the range"),
    )
    rest = (
        Column("review", "Review", "chip", "reviewed, to do or ignore, as noted by users"),
        Column("hosts", "Hosts", is_below=True),
        Column("databases", "Databases", is_below=True),
        Column("tables", "Tables", is_below=True),
        Column("class", "Class", "code", is_below=True),
    )
    if source == PROCESS_LIST:
        middle: tuple[Column, ...] = (
            Column("threads", "Threads", "n", "threads executing it, on average"),
            Column("most_ns", "Longest", "ms", "longest time that a thread was seen executing it"),
            Column("spark", "Over time", "spark"),
        )
        return (*first, *middle, *rest)
    middle = (
        Column("load", "Load", "n", "response time per second: how many calls were active on average"),
        Column("load_change", "× before", "ratio", "load relative to the range before"),
        Column("spark", "Over time", "spark", "load of each point"),
        Column("calls_s", "Calls/s", "n", "of all hosts together, in the time that was watched"),
        Column("mean_ns", "Mean", "ms"),
        Column("p99_ns", "p99", "ms", "99th percentile of all calls of the range"),
        Column("p99_change", "× before", "ratio", "p99 relative to the range before"),
        Column("most_ns", "Slowest", "ms"),
        Column("rows_examined", "Examined", "n", "rows examined per call"),
        Column("rows_sent", "Sent", "n", "rows sent per call"),
        Column("errors", "Errors", "n"),
    )
    if source == PERFORMANCE_SCHEMA:
        middle = tuple(column for column in middle if column.name not in _OF_SINGLE_CALLS)
    return (*first, *middle, *rest)


async def changes(site: Site, asked: Asked) -> Listing:
    """What changed on the hosts: settings, restarts, versions, and what headrace applied."""
    names, span = site.names(asked), asked.span()
    known = await site.ask(questions.changes, site.reader, names, span)
    rows = marks.with_rollouts(known, await asyncio.to_thread(marks.books_since, span.since_s), names, span)
    columns = (
        Column("at_s", "When", "time"),
        Column("host", "Host", link=lambda row: asked.address("/host", host=row["host"])),
        Column("kind", "Kind", "chip"),
        Column("what", "What", "code"),
        Column("before", "Before", "code"),
        Column("after", "After", "code"),
        Column("verdict", "Verdict", "chip", "verdict of the rollout's stage on this host"),
        Column(
            "effect",
            "Effect on time",
            "text",
            "time per query, or a percentile of gets: with the change, relative to without; the interval decides",
        ),
        Column("who", "By", link=lambda row: row["rollout"] and address("/rollout", id=row["rollout"])),
    )
    return Listing(columns, rows, empty="No changes are known in this range.")


async def running(site: Site, asked: Asked) -> Listing:
    """Statements that run now, the longest first. Without their values."""
    [name] = one_host(site, asked)
    watched = site.watched(name)
    rows = [row for row in (watched.listed if watched else []) if "id" in row]
    shown = [
        {
            "id": row["id"], "user": row.get("user"), "client": row.get("host"), "database": row.get("db"),
            "command": row.get("command"), "time_s": row.get("time_s"), "state": row.get("state"),
            "class": row.get("class") or "", "examined": row.get("examined_rows"),
        }
        for row in rows
    ]  # fmt: skip
    columns = (
        Column("id", "Connection", "n"),
        Column("time_s", "For", "age"),
        Column("state", "State"),
        Column("class", "Statement", "code"),
        Column("user", "User"),
        Column("client", "From"),
        Column("database", "Database"),
        Column("examined", "Examined", "n"),
    )
    return Listing(columns, shown, _look_note(site, name), locks.no_look(site, name, "Nothing was running."))


def _look_note(site: Site, name: str) -> str:
    watched = site.watched(name)
    if watched is None or not watched.listed_at_s:
        return ""
    return f"Seen {max(time.time() - watched.listed_at_s, 0):.0f} s ago."


async def alerts(site: Site, asked: Asked) -> Listing:
    """Those that stand first."""
    names = {*site.names(asked), *(() if asked.host else (SERVE,))}
    known = site.looking.alerts.known if site.looking is not None else []
    rows = [
        {
            "state": "resolved" if each.resolved_s else "raised",
            "host": each.host,
            "kind": each.kind,
            "what": each.what,
            "said": each.said,
            "since_s": each.since_s,
            "until_s": each.resolved_s or None,
            "told_s": each.told_s or None,
        }
        for each in known
        if each.host in names
    ]
    columns = (
        Column("kind", "Alert"),
        Column("state", "State", "chip", "raised while it stands, then resolved"),
        Column("host", "Host"),
        Column("what", "What", "code", "the resource, finding, query class, channel or file system"),
        Column("said", "Message"),
        Column("since_s", "Since", "time"),
        Column("until_s", "Until", "time"),
        Column("told_s", "Told", "time", "when the first place had it; empty if no place was told"),
    )
    if site.looking is None:
        return Listing(columns, [], "", "Nobody is told: start headrace serve with --tell KIND:PLACE.")
    return Listing(columns, rows, " ".join(site.looking.remarks(names)), "No alerts.")


async def experiments(site: Site, asked: Asked) -> Listing:
    """Experiments below the directory that is served, newest first."""
    rows = await site.ask(_experiment_rows, site)
    columns = (
        Column("name", "Experiment", link=lambda row: address("/experiment", id=row["id"])),
        Column("state", "State", "chip"),
        Column("kind", "Kind"),
        Column("done", "Trials", "n", "trials on disk"),
        Column("planned", "Planned", "n", "trials at most"),
        Column("changed_s", "Last change", "time"),
        Column("id", "Directory", "code"),
    )
    return Listing(columns, rows, empty=f"No experiment below {site.experiments}.")


def _experiment_rows(site: Site) -> list[dict[str, Any]]:
    rows = []
    for path in site.experiment_folders():
        identity = str(path.relative_to(site.experiments))
        try:
            folder = ExperimentFolder.open(path)
            done = sum(1 for each in (path / "trials").iterdir() if each.name.isdigit())
            planned = len(folder.design.trials)
            report = path / "report.html"
            state = "done" if report.is_file() else "all trials" if done >= planned else "unfinished"
            name, kind = folder.design.name, folder.design.experiment
            changed = max(
                (path / "trials").stat().st_mtime, report.stat().st_mtime if report.is_file() else 0.0
            )
        except Exception as error:
            name, state, kind, done, planned, changed = (
                identity,
                "unreadable",
                str(error)[:200],
                None,
                None,
                None,
            )
        rows.append(
            {
                "name": name,
                "state": state,
                "kind": kind,
                "done": done,
                "planned": planned,
                "changed_s": changed,
                "id": identity,
            }
        )
    return rows
