"""A digest for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.traffic import figures as traffic
from headrace.traffic.digests.table import SUMMARISED
from headrace.traffic.report import binary_log
from headrace.traffic.report.words import View

if TYPE_CHECKING:
    from headrace.traffic.digests.classes import Digest, QueryClass


def to_json(digest: Digest, view: View) -> dict[str, Any]:
    """Everything that a page shows; times in ns, shares from 0 to 1, captured text unchanged."""
    shown = traffic.ranked(digest, view.order)[: view.limit]
    return {
        "mode": digest.mode,
        "group": list(digest.group),
        "sources": [{"name": name, "host": host} for name, host in digest.sources],
        "filters": [dict(each) for each in digest.filters],
        "first_ns": digest.first_ns,
        "last_ns": digest.last_ns,
        "span_s": digest.span_s,
        "has_whole_seconds": digest.has_whole_seconds,
        "coverage": {**digest.coverage, "places": [dict(place) for place in digest.places]},
        "all": _class(digest, digest.all, view),
        "binary_log": binary_log.to_json(digest),
        "class_count": len(digest.classes),
        "classes_alike_but_for_names": digest.alike_but_for_names[0],
        "classes": [_class(digest, each, view) for each in shown],
    }


def _attribute(each: QueryClass, name: str) -> dict[str, Any]:
    found = traffic.attribute(each, name)
    known = {"count": each.number(name).count, "sum": found.total, "least": found.least, "most": found.most}
    return {**known, "mean": found.mean, "p95": found.p95, "stddev": found.deviation}


def _class(digest: Digest, each: QueryClass, view: View) -> dict[str, Any]:
    timed = each.number("response_ns")
    objective = traffic.satisfaction(each, view.objective_ns) if view.objective_ns else None
    told: dict[str, Any] = {
        "calls": each.count,
        "summarised_calls": each.number(SUMMARISED).count,
        "calls_a_second": each.count / digest.span_s if digest.span_s else None,
        "share_of_response_time": traffic.share(each, digest.all),
        "failed": each.failed,
        "unanswered": each.number("unanswered").count,
        "errors": {label.text: label.count for label in each.labels.get("error", ())},
        "response_ns": {
            "calls": timed.count,
            "sum": timed.sum,
            "mean": traffic.mean_ns(each),
            "stddev": traffic.deviation(each),
            "min": timed.least,
            **{name: traffic.percentile_ns(each, name) for name in traffic.PERCENTILES},
            "max": timed.most,
            "few_beyond": [name for name in traffic.PERCENTILES if traffic.is_thin(each.response, name)],
        },
        "variance_to_mean_s": traffic.dispersion_s(each),
        "buckets": [
            list(map(int, pair)) for pair in zip(each.response.buckets, each.response.counts, strict=True)
        ],
        **{name: _attribute(each, name) for name in each.measures},
        "first_ns": each.number("start_ns").least,
        "last_ns": each.number("start_ns").most,
    }
    if each.first_byte.total:
        first = each.number("first_byte_ns")
        told["first_byte_ns"] = {
            **vars(first),
            **{
                name: traffic.value_at(each.first_byte, name, first.least, first.most)
                for name in traffic.PERCENTILES
            },
        }
    if objective and view.objective_ns:
        told["apdex"] = {"objective_ns": view.objective_ns, "score": objective.score, **vars(objective)}
    for kind in ("user", "host", "database"):
        labels = each.labels.get(kind, ())
        told[f"{kind}s"] = [
            {"name": label.text, "calls": label.count, "sum_ns": label.sum_ns} for label in labels
        ]
    if each is not digest.all:
        head: dict[str, Any] = {"id": each.texts.get("id"), "key": each.key, "fingerprint": each.fingerprint}
        head |= {"verb": each.texts.get("verb"), "tables": each.tables, "sample": each.sample or None}
        told = {**head, **told}
        if each.name in view.plans:
            told["plan"] = view.plans[each.name]
    return told
