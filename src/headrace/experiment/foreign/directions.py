"""Whether more or less of a measurement is better, by its name; unknown where its name does not say so."""

from __future__ import annotations

import re

from headrace.experiment.foreign import names

_LESS = re.compile(
    r"(^|_)(latency|lat|response|duration|elapsed|time|wait|stall|errors?"
    r"|lag|jitter|lost|retransmits|runtime|misses)(_|$)"
    r"|_(ns|us|ms|s|sec|min)$|[(\[](ns|us|µs|μs|ms|s|sec|seconds|min)[)\]]$|^(ns|us|µs|μs|ms|s)[/_]op$"
)
_MORE = re.compile(
    r"(^|_)(iops|tps|qps|tpm|tpmc|nopm|throughput|ops|requests|transactions|queries|reads|writes)(_s)?$|(bit|b)_s$"
    r"|(^|_)(events|runs|goodput|items|elements|bytes|bits|fsyncs|rows|commits|pages|calls|messages|statements|ops_cpu|seeks|creates|stats|deletes|signs|verifications)_s$|cryptions_s$"
)
#: ``ns/op``: a time for each.
_UNIT = re.compile(r"ns|us|µs|μs|ms|s|sec|secs|seconds?|min|minutes?|cycles?")
_TIME = re.compile(r"s|secs?|seconds?|min|minutes?|h|hours?|sekunde|seconde|segundo|秒")
_DATA = re.compile(r"([kmgt]i?)?(b|bytes?|bits?)")
#: Words of the people who made the table: ``time (lower is better)``.
_SAID = re.compile(
    r"\b(higher|more|larger|bigger|greater|lower|less|smaller|fewer)[ _](is|are)[ _]better|[↑↓]"
)
_IS_MORE = re.compile(r"[hmbg↑]|lar")
#: A rate's spread is no rate.
_SPREAD = frozenset({"stddev", "sd", "std", "stdev", "variance", "var", "cv", "rsd"})
#: What is done, so that more of it in a time is better.
_DONE_WORD = frozenset(
    {
        "requests",
        "reqs",
        "req",
        "transactions",
        "tx",
        "txn",
        "txns",
        "trx",
        "queries",
        "query",
        "rows",
        "row",
        "inserts",
        "updates",
        "deletes",
        "selects",
        "reads",
        "writes",
        "commits",
        "operations",
        "operation",
        "op",
        "ops",
        "events",
        "messages",
        "msgs",
        "msg",
        "records",
        "documents",
        "docs",
        "items",
        "statements",
        "calls",
        "connections",
        "packets",
        "jobs",
        "iterations",
        "frames",
        "images",
        "pages",
        "keys",
        "lookups",
        "gets",
        "sets",
        "fsyncs",
        "runs",
        "elements",
        "tuples",
        "orders",
        "ios",
        "io",
        "points",
        "samples",
    }
)
# fmt: off
_LESS_WORD = re.compile(
    # Times and waits.
    r"latenc(y|ies)|lat|seconds|await|svctm|iowait|downtime|slowdown|loss|steal|delays?|waits?|waiting|durations?|elapsed|walltime|runtime|rtt|ttfb|pauses?|stalls?|p\d\d+"
    r"|\w*zeit(en)?|\w*dauer|\w*latenz(en)?|verzögerung\w*|wartezeit\w*|temps|durées?|duree|latences?|délais?|attente"
    r"|latencias?|tiempos?|duraci[oó]n|demoras?|esperas?|latenz[ae]|tempo|tempi|durata|attesa|latências?|duração|espera"
    r"|\w*tijd|duur|vertraging|czas\w*|opóźnieni\w*|doba|zpoždění|süre\w*|gecikme\w*|врем[яе]\w*|задержк\w*|длительность"
    r"|\w*(时间|時間|延迟|延遲|耗时|遅延|レイテンシ|지연|시간)\w*"
    # What it costs and takes.
    r"|costs?|prices?|usd|eur|gbp|dollars?|euros?|cents?|kosten|preis|coûts?|cout|prix|costos?|costes?|precio|prezzo"
    r"|watts?|joules?|kwh|energy|power|cpu|rss|memory|mem|swap|footprint|utili[sz]ation|overhead|amplification|wa|waf"
)
#: What goes wrong, also of what is done: ``failed_requests``.
_WRONG_WORD = re.compile(
    r"errors?|failures?|failed|fails|timeouts?|retry|retries|retried|retransmits?|miss|misses|missed|faults?|deadlocks?"
    r"|aborts?|aborted|rollbacks?|lost|drops?|dropped|lag|jitter|stddev|variance|spread|bloat|conflicts?|evictions?"
    r"|rejected|rejects|refused|killed|slow|backlog|degradation|regressions?|ping|temp|temperature|mispredicts?"
    r"|saturation|bounces?|restarts?|crashes|reconnects?|disconnects?|collisions?|violations?|switches|cv|rsd"
    r"|contention|fragmentation|throttled|stalled|blocked|swapped|cpi"
    r"|fehler\w*|ausfälle|fehlschläge|erreurs?|échecs|errores|fallos|errori|erros|falhas|ошиб\w*|сбо\w*|błęd\w*|chyb\w*"
    r"|\w*(错误|錯誤|失败|失敗|エラー|오류|실패)\w*"
)
_MORE_WORD = re.compile(
    r"throughput|goodput|bw|success|availability|uptime|apdex|fps|[gmt]?flops|iops|[tq]ps|tpm|tpmc|nopm|qphh?|rps|bandwidth|speedup|hits?|efficiency|ops"
    r"|durchsatz|débit|debit|rendimiento|rendimento|caudal|doorvoer|przepustowość|propustnost|пропускная|производительность"
    r"|\w*(吞吐|スループット|처리량)\w*"
)
# fmt: on
#: Words that may turn the meaning round.
_TURNED = frozenset(
    {
        "improvement",
        "gain",
        "reduction",
        "saved",
        "savings",
        "saving",
        "change",
        "diff",
        "difference",
        "delta",
        "idle",
        "free",
        "available",
        "headroom",
        "unused",
    }
)  # fmt: skip


def is_more_better(name: str) -> bool | None:
    """True or False where a name says so; None where it says neither, or both."""
    key = name.lower()
    if told := _SAID.search(key):
        return bool(_IS_MORE.match(told[0]))
    if _TURNED & set(names.words(name).split("_")):
        return None
    # Of ``tps per usd`` and ``tps/usd`` the first counts.
    first, per = _cut(re.sub("[$€£]", " cost ", key))
    own = names.words(first).split("_")
    wrong = any(map(_WRONG_WORD.fullmatch, own))
    less = wrong or any(map(_LESS_WORD.fullmatch, own))
    if per and _TIME.fullmatch(per):
        # What is done in a time, unless it is what goes wrong or what is paid.
        more = bool(_DONE_WORD & set(own) or _DATA.fullmatch(own[-1]) or any(map(_MORE_WORD.fullmatch, own)))
        return None if more == less else more
    if per:
        key = first
    if _MORE.search(key) and not _SPREAD & set(own):
        return not wrong
    if _LESS.search(key) or (per and _UNIT.fullmatch(own[-1])):
        return False
    more = any(map(_MORE_WORD.fullmatch, own)) and not _SPREAD & set(own)
    if more == less:
        return None
    return more


def _cut(key: str) -> tuple[str, str]:
    """``requests_per_sec`` as ``requests`` and ``sec``; nothing behind where it is no rate."""
    bare = re.sub(r"^(\w+)ps$", r"\1/s", key) if re.fullmatch(r"[kmgt]i?bps", key) else key
    parts = re.split(r"/|(?<![^\W_])per(?![^\W_])", bare, maxsplit=1)
    return (parts[0], names.words(parts[1])) if len(parts) > 1 and parts[0] else (bare, "")
