"""The verdict with its cause: a saturated resource, the findings that explain it, and work that waits elsewhere.

The resources alone say where the hardware stands. What a user asks is why their statements are slow: because all
connections are taken, a row is locked, or another program uses the CPUs. The findings know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from headrace.hunt import server_alone, sessions
from headrace.hunt.resources import PRESSURE_HIGH, STEAL_HIGH, Verdict
from headrace.hunt.rules import at_work
from headrace.hunt.rules.cluster import OF_A_GROUP
from headrace.hunt.rules.evidence import Evidence, Number, number
from headrace.hunt.rules.locks import OLD_TRANSACTION
from headrace.hunt.rules.rule import Finding, Judgement, Severity
from headrace.hunt.users import SERVERS

#: Rules whose findings mean that work waits for something that is not hardware, or is refused: the most complete
#: standstill first.
ELSEWHERE = (
    "REPL15", "REPL17", "REPL16", "REPL18",
    "HOST05", "HOST08", "HOST07",
    "FS13", "HOST04", "REPL12", "LOCK14", "LOCK12", "SESS08", "LIM08", "LOCK04", "REPL13", "BLOG04", "LOCK19",
    "LOCK13", "LOCK03",
    "LOCK02", "LOCK05", "LOCK17", "LOCK15", "LOCK11", "LOCK16", "LOCK18", "TCP02", "NET12", "NET15", "BLK20",
    "SESS15",
    "SESS19", "SESS18", "WAIT02", "WAIT01", "STMT04", "STMT10", "REDO02", "REDO03", "REDO05", "POOL03", "FLUSH01",
    "LIM05", "LIM07", "FS14", "BLK15", "BLK16", "BLK19", "BLK17", "BLK21", "HOST06", "HOST09", "TCP07", "CPU03",
    "CPU12", "LOCK08", "REPL11", "REPL19", "REPL14", "REPL10", "REPL01", "LOCK20",
    "MEMC27", "MEMC20", "MEMC11", "MEMC30", "MEMC10", "MEMC23", "MEMC25",
)  # fmt: skip
#: Kind of resource -> rules whose findings explain why it is saturated, the surest first.
EXPLAINS = {
    "cpu": (
        "HOST01", "CPU13", "CPU15", "CPU14", "CPU03", "CPU02", "POOL13", "POOL01", "SESS02", "SESS03", "SESS04",
        "SESS21", "HOST08", "HOST07", "NET13", "NET14",
        "SESS05", "SESS20", "SESS06", "SESS07", "STAT02", "STAT03", "STAT07", "STAT08", "STAT09", "STMT09",
        "POOL12", "POOL11", "FLUSH11", "STMT08", "STMT06", "STMT07", "STMT02", "SESS11", "STMT01",
        "SESS12", "STMT05", "SESS10", "SESS16", "SESS14", "CPU11", "LOCK07", "LOCK20", "LOCK09", "MEM15", "CPU10",
    ),
    "core": ("NET01", "IRQ01", "IRQ03", "NET13", "NET14", "NET04", "STMT09", "CPU01"),
    "softirq": ("NET13", "NET14", "NET02", "NET01", "IRQ01"),
    "block": (
        "BLK20", "HOST02", "HOST09", "BLK18", "BLK19", "HOST06",
        "LIM05", "STMT09", "FLUSH11", "POOL13", "POOL01", "POOL08", "POOL15", "POOL09", "STMT06", "STMT07",
        "STMT02", "SESS11", "SESS12", "SESS03", "SESS21", "SESS10", "STMT05", "POOL10", "POOL11", "MEM13", "MEM01",
        "READ01", "REDO02", "REDO01", "FLUSH10", "FLUSH06", "POOL04", "FLUSH02", "FS14", "FS01", "RAID06",
        "RAID01", "MEM19", "BLK06",
    ),
    "memory": ("MEM21", "MEM22", "HOST03", "POOL02", "SESS01", "STAT06", "MEM01", "MEM18", "MEM12"),
    "network": ("NET15", "NET11", "NET07"),
    "tcp": ("NET15", "TCP02", "NET10", "TCP03"),
}  # fmt: skip
#: Rules whose findings limit the host, or the server, although no resource as a whole is saturated: named where
#: nothing else is, for "nothing limits this host" would be wrong.
ALONE = (
    "CPU01", "CPU13", "HOST01", "HOST03", "MEM11", "MEM01", "MEM18", "NET07", "NET11", "NET01", "NET04", "IRQ01",
    "IRQ03", "TCP03",
)  # fmt: skip
#: Rules about pages that are read again, and about I/O that is waited for.
PAGES, IO = ("POOL13", "POOL01", "POOL08"), ("MEM19", "BLK06")
#: Rules whose findings slow every statement although nothing is saturated.
SLOWS = (*PAGES, *IO)
#: CPU time of a page that is read again: the call, the copy, the other page's eviction. A low estimate: reads from
#: a pool of an eighth of the data took 80 us more a page on two CPUs (benches/planted.py, small pool).
PAGE_US = 30.0
#: Shares of the servers' CPU time, and of all CPUs, that pages must take to explain anything.
PAGING_OF_SERVER, PAGING_OF_HOST = 0.1, 0.02
#: Rules about what the server executes.
STATEMENTS = ("STMT01", "STMT02", "STMT05", "SESS11", "SESS12", "CPU10")
#: Of these the first that fits, where nothing but SQL is known: what makes statements work more than they need to.
SLOW_SQL = (
    "STMT02", "SESS11", "WAIT03", "SESS12", "SESS03", "STMT03", "SESS02", "SESS04", "SESS05", "SESS06", "SESS07",
    "WAIT02", "STMT05", "STMT01",
)  # fmt: skip
#: Of these, what has not stopped anybody yet.
RISKS_OF_SQL = ("LOCK17", "SESS08", "LOCK10")
#: A node or member in such a state serves nobody: what its few sessions do comes after.
OUT_OF_SERVICE = ("REPL15", "REPL17", "REPL16", "REPL12")
#: Rules about sessions that wait for one thing -> what the sentence about sessions calls it, if it names it.
SAID_BY_SESSIONS = {
    "LOCK02": (sessions.ROW,),
    "LOCK04": (sessions.METADATA,),
    "LOCK05": (sessions.TABLE,),
    "LOCK12": (sessions.WHOLE, sessions.FLUSH),
    "LOCK15": (sessions.APPLICATION,),
    "LOCK18": (sessions.QUERY_CACHE,),
}
#: Rules about sessions that wait for what others hold: of one connection that several name, one sentence tells.
OF_A_HOLDER = ("LOCK02", "LOCK04", "LOCK17")
#: Why sessions wait for their login, where nothing but SQL is known.
OF_LOGINS = ("SESS15", "SESS19", "SESS05", "SESS14", "SESS16", "SESS09")
#: Rules about what memcached costs the database behind it, although it is fast itself: the most first.
COSTS_BEHIND = (
    "MEMC14", "MEMC05", "MEMC06", "MEMC02", "MEMC01", "MEMC07", "MEMC22", "MEMC08", "MEMC21", "MEMC03", "MEMC04",
    "MEMC13",
)  # fmt: skip
#: Named in the sentence at most, of each kind.
MOST = 2
#: Connections per second that are refused now; less often it was in the past.
REFUSED_S = 0.1


def conclude(evidence: Evidence, judgement: Judgement) -> Verdict:
    """The verdict of the resources, with the causes that findings show in its sentence."""
    if not evidence.has_host:
        return _of_server(evidence, judgement)
    verdict = evidence.verdict
    limiting = verdict.limiting
    waiting = _first([f for f in _of(judgement, ELSEWHERE) if _stops_work_now(evidence, f)])
    explains = EXPLAINS.get(limiting.resource, ()) if limiting is not None else SLOWS
    why = [f for f in _of(judgement, explains) if _explains(evidence, verdict, f)]
    # Of several neighbours the largest, so that there is room for another cause.
    largest = max((f for f in why if f.rule.code == "HOST01"), key=lambda f: _cpus(evidence, f), default=None)
    why = [f for f in why if f is largest or f.rule.code != "HOST01"]
    # Several rules may name the same statement: the first does.
    named = next((f for f in why if f.rule.code in STATEMENTS), None)
    why = [f for f in why if f is named or f.rule.code not in STATEMENTS]
    why = sorted(why, key=lambda finding: _is_lesser_neighbour(evidence, finding))[:MOST]
    why = [finding for finding in why if finding not in waiting]
    if (
        limiting is None
        and not waiting
        and not why
        and (evidence.load is None or evidence.load.worst is None)
    ):
        waiting = [f for f in _of(judgement, ALONE) if f.severity is Severity.LIMIT][:MOST]
    parts = _sentences(waiting)
    if waiting and limiting is not None:
        parts.append(f"Also, {_lower(verdict.sentence)}")
    elif waiting or (limiting is None and evidence.load is not None and evidence.load.worst is not None):
        if not waiting:
            parts.append(_waits_of_sessions(evidence))
        sentence = verdict.sentence
        for nothing in ("Nothing limits this host", "Nothing is saturated"):
            sentence = sentence.replace(nothing, "No hardware is saturated", 1)
        parts.append(sentence)
    else:
        parts.append(verdict.sentence)
    if why:
        lead = "Cause:" if limiting is not None else "Statements wait:"
        parts.append(" ".join((lead, _said(why[0]), *(_sentence(finding) for finding in why[1:]))))
    if limiting is None and not waiting and (hint := _hint(judgement, why)):
        lead, finding = hint
        parts.append(f"{lead}: {_said(finding)}")
        why = [*why, finding]
    if refusal := refusal_of(evidence):
        parts.insert(0, refusal)
    causes = tuple(finding.id for finding in (*waiting, *why))
    return replace(verdict, sentence=" ".join(parts), causes=causes)


def _waits_of_sessions(evidence: Evidence) -> str:
    """What most of the sessions that wait wait for, where no finding says it."""
    load = evidence.load
    if load is None or load.worst is None:
        return ""
    return f"{load.worst.sessions:.1f} of {load.active:.1f} active sessions wait for {load.worst.name} on average."


def _of_server(evidence: Evidence, judgement: Judgement) -> Verdict:
    """Of a server alone: what its sessions do, why, and that nothing else is known."""
    verdict, load = evidence.verdict, evidence.load
    waiting = [f for f in _of(judgement, ELSEWHERE) if _stops_work_now(evidence, f)]
    is_work = load is None or load.worst is None or load.executing >= 1
    codes = dict.fromkeys((*SLOW_SQL, *EXPLAINS["cpu"], *EXPLAINS["block"])) if is_work else {}
    if load is not None and load.worst is not None and load.worst.name == sessions.LOGIN:
        codes = dict.fromkeys((*OF_LOGINS, *codes))
    costs = (Severity.LIMIT, Severity.COST)
    why = [f for f in _of(judgement, codes) if f.severity in costs and f not in waiting]
    named = next((f for f in why if f.rule.code in STATEMENTS), None)
    why = [f for f in why if f is named or f.rule.code not in STATEMENTS]
    risks = [f for f in _of(judgement, RISKS_OF_SQL) if f not in (*waiting, *why)]
    risks = [f for f in risks if f.severity is Severity.RISK and _said_by(f, judgement) is None]
    causes = _first([*waiting, *why, *risks])
    # The sessions' sentence has said what these are about.
    said = {share.name for share in sessions.named(load)} if load is not None else set()
    brief = [f.id for f in causes if said.intersection(SAID_BY_SESSIONS.get(f.rule.code, ()))]
    says = verdict.sentence.removesuffix(".") + f" ({', '.join(brief)})." if brief else verdict.sentence
    # Of a connection that the sessions' sentence names, there is nothing more to say.
    told = [f for f in causes if f.id in brief]
    again = [
        f.id for group in _by_holder(causes) for f in group if told and group[0] in told and f not in told
    ]
    says = says.replace(f"({', '.join(brief)})", f"({', '.join([*brief, *again])})") if again else says
    others = [f for f in causes if f.id not in (*brief, *again)]
    is_idle = load is not None and load.active < sessions.IDLE
    first = [f for f in others if f.rule.code in OUT_OF_SERVICE or (is_idle and f.severity is Severity.LIMIT)]
    more = _sentences([f for f in others if f not in first])
    parts = [
        evidence.apart,
        refusal_of(evidence),
        *_sentences(first),
        says,
        *more,
        server_alone.not_known(evidence.facts),
    ]
    return replace(
        verdict, sentence=" ".join(filter(None, parts)), causes=tuple(finding.id for finding in causes)
    )


def _hint(judgement: Judgement, why: list[Finding]) -> tuple[str, Finding] | None:
    """What to look at where nothing is saturated and nothing is seen to stop work, with the words before it.

    Of another program's I/O nobody knows what it costs the server while the device has room.
    """
    if beside := _of(judgement, ("HOST02",)):
        return "Some of the I/O is not from the server", beside[0]
    behind = [finding for finding in _of(judgement, COSTS_BEHIND) if finding.severity is Severity.COST]
    if behind and not why:
        return "What memcached costs", behind[0]
    blind = [finding for finding in _of(judgement, ("STAT01",)) if finding.severity is Severity.ADVICE]
    return ("Statement waits are not recorded", blind[0]) if blind and not why else None


def causes_first(judgement: Judgement, verdict: Verdict) -> Judgement:
    """The findings that the sentence names in its order, then the others, worst first; one for each cause."""
    judgement = _one_per_cause(judgement, verdict)
    order = {finding: place for place, finding in enumerate(verdict.causes)}
    findings = sorted(judgement.findings, key=lambda finding: order.get(finding.id, len(order)))
    return replace(judgement, findings=tuple(findings))


def _one_per_cause(judgement: Judgement, verdict: Verdict) -> Judgement:
    """Without findings that say less about what another one says; that has them as evidence."""
    also: dict[str, list[Number]] = {}
    dropped = set()
    for finding in judgement.findings:
        said_by = _said_by(finding, judgement)
        if said_by is not None and finding.id not in verdict.causes:
            dropped.add(finding.id)
            also.setdefault(said_by.id, []).append(number(f"also {finding.id}", finding.hit.summary))
    kept = [finding for finding in judgement.findings if finding.id not in dropped]
    return replace(
        judgement,
        findings=tuple(
            replace(f, hit=replace(f.hit, evidence=(*f.hit.evidence, *also.get(f.id, ())))) for f in kept
        ),
    )


def _said_by(finding: Finding, judgement: Judgement) -> Finding | None:
    """A finding that says the same and more."""
    code, others = finding.rule.code, [f for f in judgement.findings if f.id != finding.id]
    if code == "LOCK01":  # threads wait for each other: these know what for
        return next((f for f in _of(judgement, ELSEWHERE) if f.severity is Severity.LIMIT), None)
    if code == "TCP02":  # a full queue of another program's port: memcached's own rule knows whose it is
        own = _of(judgement, ("MEMC27",))
        return next((f for f in own if f.hit.subject.endswith(f":{finding.hit.subject}")), None)
    if code == "REPL02" and finding.hit.subject.startswith(OF_A_GROUP):  # a member that is not online
        return next(iter(_of(judgement, ("REPL17",))), None)
    if code == "STMT01":  # the class that takes most of the time
        same = [f for f in others if f.rule.code in ("STMT02", "STMT05")]
        return next((f for f in same if f.hit.subject == finding.hit.subject), None)
    if code == "LOCK09" and _is_held(finding):  # by the transaction that others wait for
        return next(iter(_of(judgement, ("LOCK17",))), None)
    if code == "LOCK10":  # the transaction that others wait for, or that keeps old row versions
        held = [f for f in _of(judgement, ("LOCK17", "LOCK09")) if f.rule.code == "LOCK17" or _is_held(f)]
        return next(iter(held), None)
    if code == "SESS12":  # rows that scans read, of which a class examines most
        scanned = _exact(finding, "Handler_read_rnd_next/s")
        scans = [f for f in others if f.rule.code == "STMT02"]
        return next((f for f in scans if 2 * _exact(f, "rows examined/s") >= scanned > 0), None)
    return None


def _is_held(finding: Finding) -> bool:
    """Whether it is an old transaction that keeps purge from old row versions."""
    return any(each.label == OLD_TRANSACTION for each in finding.hit.remedies[:1])


def _exact(finding: Finding, what: str) -> float:
    return next((each.exact or 0.0 for each in finding.hit.evidence if each.what == what), 0.0)


def limited_by(verdict: Verdict, judgement: Judgement | None) -> str:
    """In a word: the saturated resource, or the finding in the sentence for which work waits elsewhere; empty if
    nothing limits the host."""
    if verdict.limiting is not None:
        return verdict.limiting.name
    findings = judgement.findings if judgement is not None else ()
    stops = {finding.id for finding in findings if finding.severity is Severity.LIMIT}
    return next((cause for cause in verdict.causes if cause in stops), "")


def refusal_of(evidence: Evidence) -> str:
    """What the server said instead of letting us in, where that is the problem itself."""
    if is_full(evidence.window.errors.get("mysql_status", "")):
        return "The server refuses connections: it has reached max_connections."
    return ""


def is_full(error: str) -> bool:
    """Whether a login was refused because all connections are taken."""
    return "1040" in error or "Too many connections" in error


def _explains(evidence: Evidence, verdict: Verdict, finding: Finding) -> bool:
    """Whether it is strong enough to be a cause: neither a little stolen time nor a few pages fill the CPUs."""
    if finding.rule.code == "CPU02":
        limiting = verdict.limiting
        return limiting is not None and limiting.numbers.get("steal", 0.0) >= STEAL_HIGH
    if finding.rule.code in IO and verdict.limiting is None:
        waited = evidence.window.rate("psi", "some_total_us", "io") or 0.0
        return waited / 1e6 >= PRESSURE_HIGH
    if finding.rule.code == "CPU10" and not (
        evidence.window.rates("statements", "time_ns") or evidence.executed(1)
    ):
        return False  # it names no statement, and who uses the CPUs is said already
    if finding.rule.code in PAGES and (verdict.limiting is None or verdict.limiting.resource == "cpu"):
        pages_s = evidence.window.rate("mysql_status", "innodb_buffer_pool_reads") or 0.0
        paging, host = pages_s * PAGE_US / 1e6, len(evidence.cores)
        if paging < max(PAGING_OF_SERVER * (_servers(evidence) or host), PAGING_OF_HOST * host):
            return False
    return finding.severity in (Severity.LIMIT, Severity.COST)


def _is_lesser_neighbour(evidence: Evidence, finding: Finding) -> bool:
    """Whether it is another program that uses the CPUs less than the servers do."""
    if finding.rule.code != "HOST01":
        return False
    return _servers(evidence) > _cpus(evidence, finding)


def _servers(evidence: Evidence) -> float:
    """What the database servers use."""
    return sum(program.cpus for program in evidence.programs if program.is_server)


def _cpus(evidence: Evidence, finding: Finding) -> float:
    """What the program or the control group that a finding names uses."""
    of_programs = {program.name: program.cpus for program in evidence.programs}
    of_groups = {group.name: group.cpus for group in evidence.control_groups}
    return max(of_programs.get(finding.hit.subject, 0.0), of_groups.get(finding.hit.subject, 0.0))


def _of(judgement: Judgement, codes: Iterable[str]) -> list[Finding]:
    """The findings of these rules, in the order of the codes."""
    order = list(codes)
    found = [finding for finding in judgement.findings if finding.rule.code in order]
    return sorted(found, key=lambda finding: order.index(finding.rule.code))


def _stops_work_now(evidence: Evidence, finding: Finding) -> bool:
    if finding.rule.code == "SESS08":
        refused = evidence.window.rate("mysql_status", "connection_errors_max_connections")
        if refused is None:  # before MySQL 5.6: then only whether all of them are taken is known
            now = evidence.window.gauge("mysql_status", "threads_connected")
            return now is not None and now.last >= evidence.number("max_connections")
        return (
            refused >= REFUSED_S
            or at_work.failed_where_all_are_taken(evidence) >= REFUSED_S * evidence.window.seconds
        )
    if finding.rule.code == "LOCK17" and finding.severity is Severity.COST:
        return True  # nobody waits for its locks, but every read walks over what it keeps
    if finding.rule.code in ("REPL16", "REPL17"):
        return True  # readers get old data, or it takes writes which its group does not have
    return finding.severity is Severity.LIMIT


def _by_holder(findings: Iterable[Finding]) -> list[list[Finding]]:
    """The findings in their order; those that name the same connection as the holder are one group."""
    groups: list[list[Finding]] = []
    for finding in findings:
        holder = _holder(finding)
        group = next((each for each in groups if holder and holder == _holder(each[0])), None)
        if group is None:
            groups.append([finding])
        else:
            group.append(finding)
    return groups


def _holder(finding: Finding) -> str:
    """The number of the connection that others wait for; empty if the finding names none."""
    if finding.rule.code not in OF_A_HOLDER:
        return ""
    told = next((str(each.value) for each in finding.hit.evidence if each.what == "holder"), "")
    found = re.search(r"\bconnection (\d+)", told)
    return found[1] if found else ""


def _first(findings: Iterable[Finding]) -> list[Finding]:
    """As many as the sentence names; several about one connection count as one."""
    return [finding for group in _by_holder(findings)[:MOST] for finding in group]


def _sentences(findings: Iterable[Finding]) -> list[str]:
    return [_sentence(*group) for group in _by_holder(findings)]


def _said(finding: Finding, *also: Finding) -> str:
    """The finding's own sentence and its name: ``8.0 sessions wait for a metadata lock (LOCK04).`` ``also``: the
    names of others that say the same."""
    return f"{finding.hit.summary.rstrip('.')} ({', '.join(each.id for each in (finding, *also))})."


def _sentence(finding: Finding, *also: Finding) -> str:
    """The same at the beginning of a sentence; variables, devices and programs keep their names."""
    return begun(_said(finding, *also), finding.hit.subject)


def begun(text: str, subject: str) -> str:
    """As the beginning of a sentence: a name stays as it is, also one of a device that is called otherwise:
    ``data (dm-0)``."""
    first = text.split(" ", 1)[0]
    is_name = "_" in first or first.rstrip(",:") in subject or first in SERVERS
    is_name = is_name or bool(subject and text.startswith(f"{first} ({subject})"))
    return text if is_name else f"{text[:1].upper()}{text[1:]}"


def _lower(sentence: str) -> str:
    """A sentence to follow a comma; abbreviations keep their capitals."""
    first = sentence.split(" ", 1)[0]
    return sentence if first.isupper() else f"{sentence[:1].lower()}{sentence[1:]}"
