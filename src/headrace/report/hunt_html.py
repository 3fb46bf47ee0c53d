"""A hunt's page: one file without a script, so that it opens wherever a browser is."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.analysis.resources import cores
from headrace.report import html
from headrace.report.hunt import heading, notes_text, settings_text, waits

if TYPE_CHECKING:
    from headrace.hunt import Hunt


def render(hunt: Hunt, flame_graph: str = "") -> str:
    """The page as text; ``flame_graph`` is an SVG that our own agent drew."""
    environment = html.environment()
    environment.filters |= {"settings": settings_text, "notes": notes_text, "waits": waits}
    return environment.get_template("hunt.html").render(
        hunt=hunt,
        heading=heading(hunt, is_named=False),
        is_provable=lambda finding: any(r.settings and r.is_faster for r in finding.hit.remedies),
        cores=_cores(hunt),
        blind=_blind(hunt),
        # As an image, so that no script of the picture is part of the page.
        flame_graph=base64.b64encode(flame_graph.encode()).decode(),
        css=html._resource(__package__, "templates/report.css")
        + html._resource(__package__, "templates/hunt.css"),
        csp="default-src 'none'; style-src 'unsafe-inline'; img-src data:",
        version=__version__,
    )


def _cores(hunt: Hunt) -> list[dict[str, Any]]:
    """A bar each: shares of its time in percent, the work stacked from the left."""
    found = []
    for core in cores(hunt.evidence.window)[1:]:
        parts = [("user", core.user), ("system", core.system), ("irq", core.irq), ("softirq", core.softirq)]
        parts += [("steal", core.steal), ("iowait", core.iowait)]
        title = ", ".join(f"{100 * share:.1f}% {name}" for name, share in parts if share >= 0.0005)
        found.append(
            {
                "name": core.name,
                "busy": f"{100 * core.busy:.0f}%",
                "title": f"{core.name}: {title or 'idle'}",
                "parts": [(name, f"{100 * share:.2f}") for name, share in parts if share >= 0.0005],
            }
        )
    return found


def _blind(hunt: Hunt) -> list[tuple[str, list[str]]]:
    why: dict[str, list[str]] = {}
    for blind in hunt.judgement.blind:
        why.setdefault(blind.missing, []).append(blind.rule.code)
    return sorted(why.items(), key=lambda pair: -len(pair[1]))
