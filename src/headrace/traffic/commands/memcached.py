"""The command ``digest memcached``: summarises what clients ask of memcached, from captured packets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headrace.base.errors import PlanError, Refused
from headrace.cli.options import grouped
from headrace.cli.shell import Json, PageFile, TargetOption, on_target, say, stderr, write_page

#: How long an interface is captured if nothing is said.
DURATION = "30s"
Captures = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CAPTURE]...", help="Captures (pcap, pcapng) on the target.", show_default=False),
]


@dataclass(frozen=True)
class Asked:
    """What is captured, and what may be shown of keys."""

    target: TargetOption = "local"
    interface: Annotated[
        str,
        typer.Option(metavar="NAME", help="Capture packets on this interface of the target; any: all."),
    ] = ""
    duration: Annotated[
        str, typer.Option(metavar="TIME", help=f"How long to capture [{DURATION}].", show_default=False)
    ] = ""
    port: Annotated[
        list[int] | None,
        typer.Option("--port", help="Port of memcached; repeatable [11211].", show_default=False),
    ] = None
    key_words: Annotated[
        list[str] | None,
        typer.Option(
            "--key-words",
            metavar="WORD,...",
            help="Words of your keys to show beside common ones; all: all words, which may be names of people.",
        ),
    ] = None
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Show hot keys themselves instead of hashes.")
    ] = False

    def argv(self, sources: list[str]) -> list[str]:
        options = [("--port", str(each)) for each in self.port or ()]
        options += [("--key-words", each) for each in self.key_words or ()]
        if self.interface:
            options += [("--interface", self.interface), ("--duration", self.duration or DURATION)]
        words = [word for pair in options for word in pair]
        return [*words, *(["--show-keys"] if self.show_keys else []), "--", *sources]


@grouped
def memcached(
    asked: Asked,
    sources: Captures = None,
    top: Annotated[int, typer.Option("--top", "-n", min=0, metavar="N", help="Rows of the table.")] = 15,
    as_json: Json = False,
    page: PageFile = None,
) -> None:
    """Summarise memcached traffic by command and pattern of key.

    Text and meta protocol, from captured packets: requests, hits, sizes of values, latency.
    """
    from headrace.traffic import traffic
    from headrace.traffic.report.memcached import page_of

    if bool(sources) == bool(asked.interface):
        raise typer.BadParameter("name a CAPTURE on the target, or an --interface")
    if asked.duration and not asked.interface:
        raise typer.BadParameter("--duration is for an --interface")
    if "-" in (sources or []):
        raise typer.BadParameter("a pipe is read by `headrace-agent memcached -`")

    def work(host: Any) -> Any:
        return traffic.memcached(host, asked.argv(sources or []))

    requests = on_target(asked.target, work)
    shown = page_of(requests, top)
    say(shown, as_json)
    if page:
        write_page(page, shown, is_private=True)
    if requests["unreadable"]:
        raise PlanError(requests["unreadable"], place=", ".join(requests["sources"]))
    if requests["ended"]:
        raise Refused(requests["ended"])
    if asked.show_keys:
        stderr().print("keys are shown: they may name people", highlight=False, markup=False)
