"""`headrace serve`: hosts, queries, experiments and changes as pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.base.model import ServerLogin
from headrace.cli.groups import WithCommands
from headrace.cli.options import DAY_S, NO_LOGIN, duration, grouped, size_option
from headrace.cli.shell import app, opened_places, run_until_signal, stderr, stdout

if TYPE_CHECKING:
    from headrace.fleet.host import Host
    from headrace.history.archive.files import Archive
    from headrace.history.archive.mirror import Mirror
    from headrace.show.notice import Notice
    from headrace.web.app import Listen
    from headrace.web.looks import Looking
    from headrace.web.site import Site
    from headrace.web.users import Users

PORT = 8306


@dataclass(frozen=True)
class Doors:
    """Where the pages listen, and who may see them."""

    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS:PORT", help="Where to listen; any address but loopback needs TLS and users."
        ),
    ] = f"127.0.0.1:{PORT}"
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further host name that browsers use for this server."),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain (PEM).")
    ] = None
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key (PEM).")] = None
    users: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Users with their roles [users in --data].")
    ] = None
    auth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Users of a reverse proxy or an OpenID Connect provider (TOML)."),
    ] = None


@dataclass(frozen=True)
class Storage:
    """What is kept, and how long."""

    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of the history [~/.local/state/headrace/history]."),
    ] = None
    keep_s: Annotated[
        float,
        duration(
            "--keep", text="How long days are kept.", least_s=DAY_S, most_s=36_500 * DAY_S, default="400d"
        ),
    ] = 400.0 * DAY_S
    max_size: Annotated[
        int, size_option("--max-size", text="Maximum size of the history; 0: no limit.", default="20G")
    ] = 20 << 30
    mirror: Annotated[
        str,
        typer.Option(
            metavar="URI",
            help="Copy the history to this object store (s3://bucket/prefix); fill an empty --data from it.",
        ),
    ] = ""
    catalogue: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Hosts, as for headrace size merge: which databases could share one is shown.",
        ),
    ] = None
    clients: Annotated[
        Path | None,
        typer.Option(
            "--clients",
            metavar="FILE",
            help="Sources of response times that clients measure (TOML): Prometheus, CSV, HdrHistogram, statsd.",
        ),
    ] = None
    slow_log: Annotated[
        str,
        typer.Option("--slow-log", metavar="auto|off|PATH", help="Slow log that is digested on the hosts."),
    ] = "auto"
    examples: Annotated[
        bool,
        typer.Option(
            "--examples", help="Keep one call per class and minute of the slow log, with its values."
        ),
    ] = False
    plans: Annotated[
        bool,
        typer.Option(
            "--plans",
            help="Get the plans of the busiest classes with EXPLAIN: each once per hour, and when its time "
            "per call doubles or halves.",
        ),
    ] = False
    clock_is_right: Annotated[
        bool,
        typer.Option(
            "--clock-is-right",
            help="The clock may be far ahead of the history: delete by its age what this clock calls too old.",
        ),
    ] = False


@dataclass(frozen=True)
class Alerting:
    """Who is told what stands out."""

    tell: Annotated[
        list[str] | None,
        typer.Option(
            "--tell",
            metavar="KIND:PLACE",
            help="Send alerts there, such as webhook:FILE or apprise:FILE (headrace docs alerts); repeatable.",
        ),
    ] = None
    quiet: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[DAYS ]FROM-TO",
            help="Quiet hours, in this machine's time: 22:00-07:00, or 'sat,sun 00:00-24:00'; repeatable.",
        ),
    ] = None
    full_within_s: Annotated[
        float,
        duration(
            "--full-within",
            text="Tell of disks that will be full so soon.",
            least_s=0,
            most_s=3650 * DAY_S,
            default="3d",
        ),
    ] = 3.0 * DAY_S
    link: Annotated[
        str, typer.Option("--link", metavar="URL", help="Address of these pages, for links in alerts.")
    ] = ""


ANY_DOORS, ANY_STORAGE, ANY_ALERTING = Doors(), Storage(), Alerting()


serve_app = typer.Typer(cls=WithCommands, rich_markup_mode=None)
user_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Who may see the pages.")
serve_app.add_typer(user_app, name="user")
app.add_typer(serve_app, name="serve")


@serve_app.callback(
    invoke_without_command=True,
    epilog="Example: headrace serve --fleet fleet.toml; headrace serve user add ann --role operator",
)
@grouped
def serve(
    fleet: Annotated[
        str,
        typer.Option(
            "--fleet", "-f", help="A fleet's file, a list of hosts, or names: db[1-40] [this host]."
        ),
    ] = "",
    experiments: Annotated[
        Path, typer.Option(metavar="DIR", help="Experiments below this directory are shown.")
    ] = Path("."),
    doors: Doors = ANY_DOORS,
    storage: Storage = ANY_STORAGE,
    alerting: Alerting = ANY_ALERTING,
    login: ServerLogin = NO_LOGIN,
) -> None:
    """Collect data from hosts every minute, and show it as web pages. Changes nothing on the hosts."""
    from headrace.base.extras import require_all

    require_all("web")
    from headrace.base.arrow import without_pandas
    from headrace.base.state import state_path
    from headrace.history.archive.files import Archive
    from headrace.web.auth import Auth, read
    from headrace.web.lean import few_arenas
    from headrace.web.users import Users

    few_arenas()
    without_pandas()
    archive = Archive(storage.data or state_path("history"))
    archive.create()
    users = Users(doors.users or archive.root / "users")
    auth = read(doors.auth) if doors.auth else Auth()
    if auth.oidc:
        require_all("oidc")
    listen = _listen(doors, users, has_others=bool(auth))
    if storage.catalogue is not None:
        from headrace.capacity import catalogue

        # Better now than when the page is asked for.
        catalogue.read(storage.catalogue)
    hosts = _hosts(fleet, login)
    tellers = _tellers(alerting)
    with archive.held():
        mirror = _mirror(archive, storage.mirror) if storage.mirror else None
        site = _site(archive, hosts, users, auth, experiments, storage, listen, mirror)
        if alerting.tell:
            site.looking = _looking(site, alerting, tellers)
        _run(site, listen, doors)


def _tellers(alerting: Alerting) -> dict[str, Callable[[Notice], None]]:
    """Place -> what tells it. Raises PlanError."""
    from headrace.base.errors import PlanError
    from headrace.web.alerts import quiet_of

    for word in alerting.quiet or ():
        quiet_of(word)
    if not alerting.tell:
        if alerting.quiet or alerting.link:
            raise PlanError(
                "quiet hours and a link are of alerts, and nobody is told", hint="--tell KIND:PLACE"
            )
        return {}
    return {place.name: place.tell for place in opened_places(alerting.tell, as_json=False)}


def _looking(site: Site, alerting: Alerting, tellers: Mapping[str, Callable[[Notice], None]]) -> Looking:
    from headrace.web.alerts import Alerts, quiet_of
    from headrace.web.looks import Looking

    alerts = Alerts(
        site.reader.archive.root / "alerts.jsonl",
        tellers,
        [quiet_of(word) for word in alerting.quiet or ()],
        full_within_days=alerting.full_within_s / DAY_S,
        link=alerting.link,
    )
    return Looking(alerts, site.collector, site.reader)


def _mirror(archive: Archive, address: str) -> Mirror:
    """The copy in an object store, after an empty history was filled from it."""
    from headrace.history.archive.mirror import Mirror

    mirror = Mirror(archive, address)
    if count := mirror.restore():
        files = f"{count:,} file{'' if count == 1 else 's'}"
        stderr().print(
            f"the history was empty: {files} restored from {address}", highlight=False, markup=False
        )
    return mirror


@dataclass(frozen=True)
class UsersFile:
    """Where users are."""

    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="As of `headrace serve` [~/.local/state/headrace/history]."
        ),
    ] = None
    users: Annotated[
        Path | None, typer.Option("--users", metavar="FILE", help="As of `headrace serve` [users in --data].")
    ] = None

    def open(self) -> Users:
        from headrace.base.extras import require_all
        from headrace.base.state import state_path
        from headrace.history.archive.files import Archive

        require_all("web")
        from headrace.web.users import Users

        archive = Archive(self.data or state_path("history"))
        archive.create()
        return Users(self.users or archive.root / "users")


UserName = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]


@user_app.command("add", epilog="Example: headrace serve user add ann --role operator")
@grouped
def user_add(
    name: UserName,
    role: Annotated[
        str, typer.Option("--role", metavar="ROLE", help="viewer, operator or approver.")
    ] = "viewer",
    no_password: Annotated[
        bool, typer.Option("--no-password", help="The user logs in only through a reverse proxy.")
    ] = False,
    file: UsersFile = UsersFile(),
) -> None:
    """Add a user, or change role and password, which is asked for or read from standard input."""
    users = file.open()
    from headrace.web.users import Role

    given = Role.of(role)
    password: str | None = None
    if no_password:
        pass
    elif sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    users.put(name, given, password)
    stderr().print(f"{name} is {given.word} in {users.path}", highlight=False, markup=False)


@user_app.command("remove", epilog="Example: headrace serve user remove ann")
@grouped
def user_remove(name: UserName, file: UsersFile = UsersFile()) -> None:
    """Remove a user, whose next request is refused."""
    file.open().remove(name)
    stderr().print(f"removed: {name}", highlight=False, markup=False)


def _listen(doors: Doors, users: object, *, has_others: bool) -> Listen:
    """Where to listen. Raises Refused for an address that others reach without TLS and users.

    ``has_others``: a reverse proxy or a provider knows users.
    """
    from headrace.base.errors import PlanError, Refused
    from headrace.web.app import Listen
    from headrace.web.auth import is_loopback
    from headrace.web.users import Users

    assert isinstance(users, Users)
    address, _, port = doors.listen.rpartition(":")
    address = address.strip("[]")
    if not address or not port.isdigit() or not 0 <= int(port) < 65536:
        raise PlanError("not ADDRESS:PORT", place=doors.listen, hint=f"127.0.0.1:{PORT}")
    if bool(doors.tls_cert) != bool(doors.tls_key):
        raise PlanError("TLS needs a certificate and its key", hint="--tls-cert FILE --tls-key FILE")
    if not is_loopback(address):
        if not doors.tls_cert:
            raise Refused(
                "other machines can reach this address, so it needs TLS",
                place=doors.listen,
                hint="--tls-cert FILE --tls-key FILE",
            )
        if not users.all() and not has_others:
            raise Refused(
                "other machines can reach this address, so it needs users", place=doors.listen,
                hint="headrace serve user add NAME --role viewer",
            )  # fmt: skip
    for path in (doors.tls_cert, doors.tls_key):
        if path and not path.is_file():
            raise PlanError("no such file", place=str(path))
    return Listen(address, int(port), str(doors.tls_cert or ""), str(doors.tls_key or ""))


def _hosts(fleet: str, login: ServerLogin) -> list[Host]:
    import socket

    from headrace.fleet.host import Host
    from headrace.fleet.inventory import load
    from headrace.host.target import TargetSpec

    if not fleet:
        return [Host(socket.gethostname() or "local", TargetSpec("local"), login=login)]
    # Options for all are defaults that the file overrides.
    named = {name: value for name, value in vars(login).items() if value}
    return list(load(fleet, {"mysql": named} if named else None).hosts.values())


def _site(
    archive: object,
    hosts: list[Host],
    users: object,
    auth: object,
    experiments: Path,
    storage: Storage,
    listen: Listen,
    mirror: Mirror | None = None,
) -> Site:
    import secrets

    from headrace.history.archive.files import Archive
    from headrace.history.archive.reader import Reader
    from headrace.history.archive.rollup import Keep
    from headrace.history.archive.sums import Sums
    from headrace.history.collect.collector import Collector
    from headrace.history.collect.sources import read_sources
    from headrace.web.auth import Auth
    from headrace.web.proxied import Proxy
    from headrace.web.sessions import Audit, Sessions, secret_of
    from headrace.web.site import Site
    from headrace.web.users import Users

    assert isinstance(archive, Archive)
    assert isinstance(users, Users)
    assert isinstance(auth, Auth)
    provider = None
    if auth.oidc:
        from headrace.web.provider import Provider

        provider = Provider(auth.oidc, secret_of(archive.root / "secret"))
    keep = Keep(storage.keep_s, storage.max_size)
    key = "" if users.all() or auth else secrets.token_urlsafe(24)
    collector = Collector(
        archive,
        hosts,
        keep,
        slow_log=storage.slow_log,
        with_examples=storage.examples,
        with_plans=storage.plans,
        mirror=mirror,
        clients=read_sources(storage.clients) if storage.clients else (),
    )
    if storage.clock_is_right:
        collector.elapsed.trust_clock()
    return Site(
        Reader(archive, Sums(archive.root)),
        collector,
        Sessions(users, secret_of(archive.root / "secret"), key, auth.oidc),
        Audit(archive.root / "audit.log"),
        experiments.resolve(),
        bool(listen.certificate) or bool(auth.oidc and auth.oidc.is_secure),
        Proxy(auth.proxy, users) if auth.proxy else None,
        provider,
        storage.catalogue,
    )


def _run(site: Site, listen: Listen, doors: Doors) -> None:
    from headrace.web.app import application, serve

    # Under these names only: a page elsewhere cannot make its own name point here.
    named = {*(doors.name or ()), *([site.provider.settings.host] if site.provider else [])}
    names = frozenset({"localhost", "127.0.0.1", "::1", listen.address, *named})
    if listen.certificate:
        names = frozenset(named)

    def ready(url: str) -> None:
        way = f"/enter?key={site.sessions.key}" if site.sessions.key else "/"
        stdout().print(f"{url}{way}", soft_wrap=True, highlight=False, markup=False)
        count = len(site.collector.hosts)
        stderr().print(
            f"watching {count} host{'' if count == 1 else 's'}; history in {site.reader.archive.root}",
            soft_wrap=True, highlight=False, markup=False,
        )  # fmt: skip

    run_until_signal(
        lambda: serve(application(site, names), listen, ready),
        stopping="stopping ...",
        stopped="stopped; the history is kept",
    )
