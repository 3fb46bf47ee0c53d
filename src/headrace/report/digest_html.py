"""A digest's page: one file, no network request, every captured text cleaned and escaped.

Its size is bounded: classes beyond ``MOST_ROWS`` are a number, and only the first ``MOST_DETAILS`` have a section.
"""

from __future__ import annotations

import html as entities
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from headrace import __version__
from headrace.analysis import traffic
from headrace.report import charts, digest_charts, html, text
from headrace.report.digest import (
    View,
    apdex_text,
    class_lines,
    clock,
    coverage_lines,
    duration,
    overall,
    percent,
    place_text,
    short_number,
)

if TYPE_CHECKING:
    from headrace.digests.classes import Digest, QueryClass

MOST_ROWS = 200
MOST_DETAILS = 20
#: Of a sample and of a plan, characters.
MOST_SAMPLE, MOST_PLAN = 4_000, 20_000
MOST_LABELS = 12


def render(digest: Digest, view: View) -> str:
    """The page as text."""
    page = _Page(digest, view)
    scripts = []
    if page.charts:
        scripts = [
            html._resource(__package__, "vendored/plotly.min.js"),
            html._resource(__package__, "templates/report.js"),
        ]
    hashes = " ".join(f"'sha256-{html._digest(script)}'" for script in scripts)
    environment = html.environment()
    environment.filters |= {"percent": percent, "number": short_number, "lines": _lines}
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return environment.get_template("digest.html").render(
        page=page,
        digest=digest,
        view=view,
        csp=f"{policy}; script-src {hashes}" if scripts else policy,
        css=html._resource(__package__, "templates/report.css")
        + html._resource(__package__, "templates/digest.css"),
        scripts=scripts,
        version=__version__,
        apdex_spec=traffic.TOLERATED,
    )


def _lines(captured: str) -> Markup:
    """Captured text that keeps its lines, for ``<pre>``."""
    return Markup(entities.escape(text.clean_lines(captured)))


class _Page:
    """What the template reads, in the page's order."""

    def __init__(self, digest: Digest, view: View) -> None:
        self._digest, self._view = digest, view
        self.figures = html.Figures()
        self.ranked = traffic.ranked(digest, view.order)
        self.charts = self._charts()

    @cached_property
    def title(self) -> str:
        names = [name for name, _ in self._digest.sources]
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        return ", ".join(names[:2]) + more

    @cached_property
    def lead(self) -> str:
        digest = self._digest
        group = f" by {', '.join(digest.group)}" if digest.group != ("class",) else ""
        when = f"{clock(digest.first_ns)} to {clock(digest.last_ns)} UTC" if digest.span_s else "no times"
        hosts = sorted({host for _, host in digest.sources if host})
        return " · ".join([when, f"{digest.mode} fingerprints{group}", *hosts[:4]])

    @cached_property
    def sentence(self) -> str:
        return overall(self._digest, View(objective_ns=self._view.objective_ns))

    @cached_property
    def coverage(self) -> list[tuple[str, bool]]:
        return coverage_lines(self._digest)

    @cached_property
    def places(self) -> list[str]:
        return [place_text(place) for place in self._digest.places]

    @cached_property
    def keys(self) -> list[dict[str, str]]:
        """The figures to take away."""
        digest, every = self._digest, self._digest.all
        rate = every.count / digest.span_s if digest.span_s else None
        span = text.seconds(digest.span_s) if digest.span_s else "no times"
        cards = [
            {
                "title": "Calls",
                "value": short_number(every.count),
                "note": f"{short_number(rate)}/s over {span}",
            }
        ]
        if every.total_ns:
            value = f"{text.milliseconds(traffic.percentile_ns(every, 'p99'))} ms"
            mean = text.milliseconds(traffic.mean_ns(every))
            most = text.milliseconds(every.number("response_ns").most)
            cards.append(
                {"title": "p99 response time", "value": value, "note": f"mean {mean}, max {most} ms"}
            )
        cards.append({"title": "Classes", "value": f"{len(digest.classes):,}", "note": self._concentration()})
        failed = percent(every.failed / every.count) if every.count else "–"
        kind = "attention" if every.failed else ""
        unanswered = every.number("unanswered").count
        note = f"{every.failed:,} calls" + (f", {unanswered:,} unanswered" if unanswered else "")
        cards.append({"title": "Failed", "value": failed, "note": note, "kind": kind})
        found = traffic.satisfaction(every, self._view.objective_ns) if self._view.objective_ns else None
        if found:
            aim = duration(self._view.objective_ns or 0)
            cards.append(
                {
                    "title": f"Apdex at {aim}",
                    "value": f"{found.score:.3f}",
                    "note": f"{percent(found.satisfied)} within",
                }
            )
        return [{"kind": "", **card} for card in cards]

    def _concentration(self) -> str:
        """How few classes make most of the response time."""
        whole = self._digest.all.total_ns
        if not whole:
            return ""
        sums = np.cumsum([each.total_ns for each in self._digest.classes])
        few = int(np.searchsorted(sums, 0.8 * whole)) + 1
        return f"{few} of them take 80% of the time"

    def _charts(self) -> dict[str, Any]:
        digest = self._digest
        found: dict[str, Any] = {}
        if digest.span_s and any(len(each.slices.start_ns) > 0 for each in digest.classes):
            found["time"] = self.figures.add(digest_charts.over_time(digest))
            if digest.all.total_ns:
                found["load"] = self.figures.add(digest_charts.load(digest, digest.classes))
        if digest.heat and digest.all.response.total:
            found["heat"] = self.figures.add(digest_charts.heat_map(digest))
        return found

    @cached_property
    def legend(self) -> list[tuple[str, str, str]]:
        """(colour token, number, class) of the chart of load."""
        shown = self._digest.classes[: digest_charts.MOST_LINES]
        found = [
            (charts.LINE_COLOURS[n], str(n + 1), text.short(each.fingerprint, 60))
            for n, each in enumerate(shown)
        ]
        if len(self._digest.classes) > len(shown):
            found.append(("@{muted}", "", "all others"))
        return found

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return [self._row(rank, each) for rank, each in enumerate(self.ranked[:MOST_ROWS], 1)]

    @cached_property
    def rest(self) -> tuple[int, float | None]:
        """Classes without a row, and their share of the response time."""
        left = self.ranked[MOST_ROWS:]
        whole = self._digest.all.total_ns
        return len(left), sum(each.total_ns for each in left) / whole if whole else None

    def _row(self, rank: int, each: QueryClass) -> dict[str, Any]:
        digest, timed = self._digest, each.number("response_ns")
        sent, examined = each.number("rows_sent"), each.number("rows_examined")
        share = traffic.share(each, digest.all)
        return {
            "rank": rank,
            "has_section": rank <= MOST_DETAILS,
            "fingerprint": text.short(each.fingerprint, 300),
            "share": share,
            "bar": f"{100 * share:.1f}" if share is not None else "0",
            "calls": each.count,
            "rate": each.count / digest.span_s if digest.span_s else None,
            "mean": traffic.mean_ns(each),
            "percentiles": [
                (traffic.percentile_ns(each, name), traffic.is_thin(each.response, name))
                for name in ("p50", "p95", "p99")
            ],
            "most": timed.most,
            "spread": traffic.dispersion_s(each),
            "sent": sent.sum / sent.count if sent.count else None,
            "examined": examined.sum / examined.count if examined.count else None,
            "failed": each.failed,
            "spark": self._spark(each),
        }

    def _spark(self, each: QueryClass) -> Markup:
        digest = self._digest
        if not digest.span_s or digest.first_ns is None or digest.last_ns is None:
            return Markup("")
        course = traffic.course(each, digest.first_ns, digest.last_ns, digest.slice_ns, 64)
        return digest_charts.sparkline(digest_charts.rates(course, digest))

    @cached_property
    def sections(self) -> list[dict[str, Any]]:
        return [self._section(rank, each) for rank, each in enumerate(self.ranked[:MOST_DETAILS], 1)]

    def _section(self, rank: int, each: QueryClass) -> dict[str, Any]:
        digest = self._digest
        marks = {name: traffic.percentile_ns(each, name) for name in ("p50", "p95", "p99")}
        sample = each.sample
        told = str(sample.get("text") or "")
        is_cut = int(sample.get("text_bytes") or 0) > len(told.encode()) or len(told) > MOST_SAMPLE
        who = "@".join(str(sample[key]) for key in ("user", "host") if sample.get(key))
        took = sample.get("response_ns")
        about = [
            f"{text.milliseconds(took)} ms" if took is not None else "",
            clock(sample.get("start_ns")),
            who,
        ]
        course = None
        if digest.first_ns is not None and digest.last_ns is not None and len(each.slices.start_ns) > 1:
            course = traffic.course(each, digest.first_ns, digest.last_ns, digest.slice_ns, 128)
        return {
            "rank": rank,
            "fingerprint": each.fingerprint,
            "lines": [pair for pair in class_lines(digest, each, self._view) if pair[0] not in _IN_TABLES],
            "distribution": digest_charts.distribution(each.response, marks),
            "marks": [(name, value) for name, value in marks.items() if value is not None],
            "calls": digest_charts.sparkline(digest_charts.rates(course, digest), 300, 40) if course else "",
            "times": digest_charts.sparkline(course.mean_ns, 300, 40) if course else "",
            "peaks": (
                int(course.count.max()),
                float(np.nanmax(course.mean_ns)),
                text.seconds(course.width_ns / 1e9),
            )
            if course
            else None,
            "labels": [
                (
                    title,
                    [(one.text, one.count, one.sum_ns) for one in found[:MOST_LABELS]],
                    len(found) - MOST_LABELS,
                )
                for title, kind in (
                    ("user", "user"),
                    ("host", "host"),
                    ("database", "database"),
                    ("error", "error"),
                )
                if (found := each.labels.get(kind, ()))
            ],
            "count": each.count,
            "total_ns": each.total_ns,
            "sample": told[:MOST_SAMPLE] + (" ..." if is_cut else ""),
            "about": ", ".join(part for part in about if part),
            "plan": self._view.plans.get(each.name, "")[:MOST_PLAN],
            "apdex": apdex_text(each, self._view.objective_ns),
        }


#: Lines of the terminal's detail that the page shows as tables.
_IN_TABLES = ("users", "hosts", "databases", "apdex")
