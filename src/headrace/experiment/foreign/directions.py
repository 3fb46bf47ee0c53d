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
    r"|(^|_)(events|runs|goodput|items|elements|bytes|bits|fsyncs|rows|commits|pages|calls|messages|statements|ops_cpu)_s$"
)
# fmt: off
_LESS_WORD = re.compile(
    # Times and waits.
    r"latenc(y|ies)|lat|delays?|waits?|waiting|durations?|elapsed|walltime|runtime|rtt|ttfb|pauses?|stalls?|p\d\d+"
    r"|\w*zeit(en)?|\w*dauer|\w*latenz(en)?|verzögerung\w*|wartezeit\w*|temps|durées?|duree|latences?|délais?|attente"
    r"|latencias?|tiempos?|duraci[oó]n|demoras?|esperas?|latenz[ae]|tempo|tempi|durata|attesa|latências?|duração|espera"
    r"|\w*tijd|duur|vertraging|czas\w*|opóźnieni\w*|doba|zpoždění|süre\w*|gecikme\w*|врем[яе]\w*|задержк\w*|длительность"
    r"|\w*(时间|時間|延迟|延遲|耗时|遅延|レイテンシ|지연|시간)\w*"
    # What it costs and takes.
    r"|costs?|prices?|usd|eur|gbp|dollars?|euros?|cents?|kosten|preis|coûts?|cout|prix|costos?|costes?|precio|prezzo"
    r"|watts?|joules?|kwh|energy|power|cpu|rss|memory|mem|swap|footprint|utili[sz]ation|overhead|amplification|wa|waf"
    # What goes wrong.
    r"|errors?|failures?|failed|fails|timeouts?|retries|retransmits?|misses|faults?|deadlocks?|aborts?|rollbacks?|lost"
    r"|drops|dropped|fehler\w*|erreurs?|errores|errori|erros|lag|jitter|stddev|variance|spread|bloat"
)
_MORE_WORD = re.compile(
    r"throughput|goodput|iops|[tq]ps|tpm|tpmc|nopm|qphh?|rps|bandwidth|speedup|hits?|efficiency|ops"
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
    if _TURNED & set(names.words(name).split("_")):
        return None
    if _MORE.search(key):
        return True
    if _LESS.search(key):
        return False
    # Of ``tps per usd`` and ``tps/usd`` the first counts.
    first = re.split(r"/|(?<![^\W_])per(?![^\W_])", re.sub("[$€£]", " cost ", key))[0]
    own = names.words(first).split("_")
    more = any(map(_MORE_WORD.fullmatch, own))
    less = any(map(_LESS_WORD.fullmatch, own))
    if more == less:
        return None
    return more
