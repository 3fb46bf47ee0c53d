"""What users of pt-query-digest and PMM bring along: their options, and what replaces them here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from headrace.base.errors import PlanError
from headrace.cli.groups import WithCommands
from headrace.cli.shell import stderr

if TYPE_CHECKING:
    from headrace.traffic.digests.classes import Digest

#: pt-query-digest's option -> what to do here.
HINTS = {
    "--attribute-aliases": "users, hosts and databases have one name each: user, host, database",
    "--attribute-value-limit": "values are kept as they are",
    "--ask-pass": "--mysql-password-file FILE, or --mysql-defaults-file FILE",
    "--create-history-table": "--add-to FOLDER keeps a digest per day in files; no table is needed",
    "--create-review-table": "headrace digest review FOLDER CLASS --by NAME; no table is needed",
    "--daemonize": "let cron or systemd run headrace digest, or run headrace serve",
    "--defaults-file": "--mysql-defaults-file FILE",
    "--embedded-attributes": "--filter 'text~KEY' finds statements by a comment",
    "--expected-range": "--top N shows N classes",
    "--fingerprints": "every class is shown by its fingerprint",
    "--group-by": "--group class, table, user, host, database, session or command; comma-separated",
    "--inherit-attributes": "the database of a session is known from the log itself",
    "--interval": "headrace-agent digest --follow --every 1m writes a digest per interval",
    "--iterations": "headrace-agent digest --follow --every 1m writes a digest per interval",
    "--no-report": "--json prints everything for programs; --save FILE keeps it",
    "--no-version-check": "headrace calls nobody: leave it out",
    "--order-by": "--order sum, count, mean, p99, max, rows, sent, bytes, lock, errors; Query_time:sum is sum",
    "--outliers": "--top N, or --top 95%:N; --order p99 or max ranks by the slowest calls",
    "--output": "--json, or --html FILE; headrace record keeps the calls themselves",
    "--preserve-embedded-numbers": "--mode strict keeps digits that are part of a name",
    "--processlist": "headrace top watches a server; headrace record --interface captures its traffic",
    "--progress": "progress is shown on a terminal: leave it out",
    "--read-timeout": "headrace-agent digest --follow waits for more until it is stopped",
    "--report-all": "--top 100000 shows all classes",
    "--report-format": "--details N shows N classes in detail; --json has everything",
    "--report-histogram": "the detail of a class has its histogram: --details N",
    "--resume": "--add-to FOLDER adds the same digest once only",
    "--review": "headrace digest review FOLDER CLASS --by NAME --comment TEXT",
    "--run-time": "--since and --until; of live traffic: headrace record --duration 60s, then digest that",
    "--run-time-mode": "--since and --until",
    "--sample": "nothing is sampled: all calls count",
    "--show-all": "--json lists every user, host and database that is kept",
    "--timeline": "the course over time is in --html FILE",
    "--variations": "--json has the sample of each class",
    "--version-check": "headrace calls nobody: leave it out",
    "--watch-server": "--port PORT, of the server in the capture",
}
#: The same under another name: taken, and said.
ALIASES = {"--limit": "--top"}
#: Orders whose values add up, so that a share of them has a meaning.
ADDITIVE = ("sum", "count", "rows", "sent", "changed", "bytes", "lock", "errors")


class Command(WithCommands):
    """A command that answers an option of pt-query-digest with its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {name for parameter in self.params for name in parameter.opts}
        taken = list(args)
        for place, word in enumerate(args):
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if name in HINTS and name not in own:
                raise typer.BadParameter(f"{name} is an option of pt-query-digest; here: {HINTS[name]}")
            here = ALIASES.get(name)
            if here in own and name not in own:
                note = f"{name} is pt-query-digest's name for {here}"
                stderr().print(note, soft_wrap=True, highlight=False, markup=False)
                taken[place] = f"{here}{equals}{value}"
        found: list[str] = super().parse_args(ctx, taken)
        return found


@dataclass(frozen=True)
class Limit:
    """How many classes to show: ``most``, and no more than ``share`` of their order needs."""

    most: int = 10
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> Limit:
        """``20``, pt-query-digest's ``95%:20``, or ``95%`` without another bound. Raises BadParameter."""
        share, _, most = text.partition(":") if "%" in text else ("", "", text.removeprefix(":"))
        try:
            percent = float(share.removesuffix("%")) if share else None
            number = int(most) if most else 1_000_000
            is_valid = (
                bool(share or most)
                and number >= 0
                and (percent is None or (share.endswith("%") and 0 < percent <= 100))
            )
        except ValueError:
            is_valid = False
        if not is_valid:
            raise typer.BadParameter(f"--top {text!r}: a number such as 10, or pt-query-digest's 95%:10")
        return cls(number, percent / 100 if percent is not None else None)

    def of(self, digest: Digest, order: str) -> int:
        """The number of classes for a digest. Raises PlanError if a share of the order has no meaning."""
        if self.share is None:
            return self.most
        if order not in ADDITIVE:
            raise PlanError(
                f"--top with a percentage needs values that add up; --order {order} has none",
                hint=f"--order {', '.join(ADDITIVE)}, or a plain number",
            )
        from headrace.traffic.figures import ORDERS, ranked

        values = [ORDERS[order](each) for each in ranked(digest, order)]
        wanted, reached = self.share * sum(values), 0.0
        for number, value in enumerate(values, 1):
            reached += value
            if reached >= wanted * (1 - 1e-12):
                return min(number, self.most)
        return min(len(values), self.most)
