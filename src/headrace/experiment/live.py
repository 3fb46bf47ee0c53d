"""How a running host is watched while its settings are tried: a counter of it, or a probe of its memcached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tomli_w

from headrace.base.errors import Refused
from headrace.base.model import ServerLogin
from headrace.base.percentiles import PERCENTILES
from headrace.experiment import plan as plans
from headrace.experiment.plan import AS_IS
from headrace.host.memcached.probing import IDLE_PER_S, OF_PROBE, fair, needed_s, responses, shows

NO_LOGIN = ServerLogin()


@dataclass(frozen=True)
class Watch:
    """How a running host is watched: by a counter of it or of the MySQL server of ``login``, or with
    ``memcached`` by a probe of that server, which asks for ``gets_per_s`` keys a second."""

    login: ServerLogin = NO_LOGIN
    counter: str = "mysql_status.questions"
    memcached: str = ""
    gets_per_s: float = 0.0

    @property
    def workload(self) -> dict[str, Any]:
        if self.memcached:
            return {"kind": "probe", "address": self.memcached, "gets_per_s": float(self.gets_per_s)}
        login = self.login
        options = {
            "mysql_socket": login.socket,
            "mysql_host": login.host,
            "mysql_port": login.port or 0,
            "mysql_user": login.user,
            "mysql_password_file": login.password_file,
            "mysql_defaults_file": login.defaults_file,
            "mysql_tls": login.tls,
            "mysql_tls_ca": login.tls_ca,
        }
        own = {key: value for key, value in options.items() if value}
        return {"kind": "observe", "counter": self.counter, **own}


def live_plan(target: str, watch: Watch, *, seconds: float, settle_s: float, seed: int = 1) -> plans.Plan:
    """The plan of an experiment on the running host, under the load that it has: see docs/howto/prove.md."""
    content = {
        "name": "live",
        "target": {"address": target},
        "design": {"kind": "cumulative", "baseline": AS_IS, "seed": seed, "rungs": {AS_IS: []}},
        "workload": {**watch.workload, "seconds": seconds, "warmup_s": settle_s},
    }
    return plans.parse(tomli_w.dumps(content), "the live host")


@dataclass(frozen=True)
class Probing:
    """A server's probe, with what it costs: ``said`` states that."""

    watch: Watch
    response: str
    said: str


def probing(address: str, seconds: float, gets_per_s: float | None = None, response: str = "") -> Probing:
    """How the memcached at this address is probed in turns of so many seconds. ``response``: what was asked for.

    Takes a look at it, of 2 s. Raises NotReady with why it is not read, and Refused for an idle one, one without
    connections left, and where a turn would have too few gets for the percentile, or for any.
    """
    found = fair(address, gets_per_s)
    rate, per_s = found.looked.requests_per_s, found.gets_per_s
    if rate < IDLE_PER_S:
        raise Refused(
            f"it is idle: {rate:.1f} requests/s (limit {IDLE_PER_S:g}), which show no change of its host",
            place=address,
        )
    able = responses(per_s * seconds)
    wanted = response or next(iter(able), OF_PROBE[-1])
    if wanted in PERCENTILES and not shows(wanted, per_s * seconds):
        raise Refused(
            f"{per_s:.3g} gets/s make {per_s * seconds:.0f} in a turn, too few for {wanted}",
            place=address,
            hint=f"--duration {needed_s(wanted, per_s)}s, or more gets: --gets",
        )
    by = f"the {wanted} of their response times" if wanted in PERCENTILES else wanted
    said = (
        f"the probe asks memcached {found.looked.version} for {per_s:.3g} keys/s, {per_s / rate:.2%} of its "
        f"{rate:,.0f} requests/s; judged by {by}"
    )
    return Probing(Watch(memcached=address, gets_per_s=round(per_s, 3)), wanted, said)
