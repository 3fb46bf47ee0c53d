"""A rollout's plan: which hosts change when, and how that is judged. Its id is a hash of all of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from headrace.base.errors import PlanError, Refused
from headrace.base.model import ServerLogin, Value
from headrace.base.watched import OF_CACHES
from headrace.fleet.host import FAN_OUT, FAN_OUT_JUMP, Host
from headrace.fleet.topology import links
from headrace.host.memcached.probe import EVERY_S
from headrace.host.memcached.probing import OF_PROBE, needed_s, responses, shows
from headrace.host.ranges import expand
from headrace.host.target import TargetSpec
from headrace.knobs import catalogue as knobs
from headrace.rollout.judge import Question
from headrace.rollout.rules import RestartRule, Rules, StageRule
from headrace.rollout.standing import cluster_size

FORMAT = 1
ID_LENGTH = 12
MOST_NAMED = 5
#: Why a host is left out that needs no change.
HAS_IT = "it already has these values"


#: How the clusters of Galera are called.
GALERA = "galera "


class Role(StrEnum):
    REPLICA = "replica"
    SOURCE = "source"  # others replicate from it
    ALONE = "alone"  # it does not replicate: as a source, it takes writes
    CACHE = "cache"  # it is there for its memcached server


@dataclass(frozen=True)
class Seen:
    """What one host said when the plan was made.

    ``links``: names of those it replicates with; ``now``: knob -> its value there.
    """

    host: Host
    role: Role
    identity: str
    links: tuple[str, ...]
    per_s: float
    now: Mapping[str, str]
    hostname: str = ""
    #: Equal for equal hosts; empty where it is not known.
    kind: str = ""
    restarts: bool = False
    #: The server's own id, which a new one at the same address does not have; empty where it has none that lasts.
    server_id: str = ""
    #: The cluster that it is a member of; empty without one. See ``cluster_of``.
    cluster: str = ""
    #: Its members by this one's account.
    cluster_size: int = 0
    #: Files that the change writes there.
    files: tuple[str, ...] = ()
    #: Gets a second by which its memcached server is probed.
    gets_per_s: float = 0.0


@dataclass(frozen=True)
class Member:
    """A host of the plan. ``spec`` and ``login`` are how it is reached: a plan is of machines, not of names."""

    name: str
    address: str
    role: Role
    group: str
    per_s: float
    now: Mapping[str, str]
    spec: Mapping[str, Any]
    login: Mapping[str, Any]
    #: The server's own id; empty where it has none that lasts.
    identity: str = ""
    #: The group or cluster that it is a member of, and how many members that had; empty and 0 without one.
    cluster: str = ""
    cluster_size: int = 0
    #: Its memcached server as seen from here, if the host is there for one, and gets a second of the probe.
    memcached: str = ""
    gets_per_s: float = 0.0

    @property
    def host(self) -> Host:
        login = ServerLogin(**self.login)
        return Host(self.name, TargetSpec(**self.spec), login=login, memcached=self.memcached)


@dataclass(frozen=True)
class Stage:
    """``is_judged``: its hosts serve, so on and off can be compared; an idle one is only watched.

    ``pairs``, of a change that takes a restart: the host that is changed first, and its equal; at most one pair
    of a replication group.
    """

    name: str
    hosts: tuple[str, ...]
    needs_approval: bool
    is_judged: bool
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Said:
    """An experiment's effect of the settings on one response: with them relative to without."""

    ratio: float
    low: float | None
    high: float | None
    verdict: str
    blocks: int


@dataclass(frozen=True)
class Expected:
    """The effect of these settings in an experiment.

    ``before``: knob -> its value there without them, None where that is not known. ``metric``: what the
    rollout judges that its throughput compares with; empty if nothing, and ``why`` says so.
    """

    experiment: str
    kind: str
    folder: str
    day: str
    workload: str
    treatment: str
    before: Mapping[str, str | None]
    responses: Mapping[str, Said]
    metric: str
    why: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Expected:
        """From ``to_json``. Raises KeyError, TypeError or AttributeError for anything else."""
        responses = {name: Said(**each) for name, each in content["responses"].items()}
        return cls(**{**content, "responses": responses})


@dataclass(frozen=True)
class Plan:
    settings: Mapping[str, Value]
    members: Mapping[str, Member]
    stages: tuple[Stage, ...]
    rules: Rules
    seed: int
    allow_weaker: tuple[str, ...] = ()
    lasting: str = ""
    #: Hosts that are not part of it, and why.
    left_out: Mapping[str, str] | None = None
    expected: Expected | None = None
    #: Hosts at a time, and those of them through one jump host: as in the fleet's file.
    fan_out: tuple[int, int] = (FAN_OUT, FAN_OUT_JUMP)

    @property
    def restart(self) -> RestartRule | None:
        """How a host gets the change; None: while it serves."""
        return self.rules.restart

    @property
    def block_s(self) -> float:
        return self.restart.block_s if self.restart else self.rules.timing.block_s

    @property
    def id(self) -> str:
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

    @property
    def of_sessions(self) -> tuple[str, ...]:
        """The settings that a connection copies when it is made, on one server or another."""
        return tuple(
            name for name in self.settings if knobs.find(name.partition("@")[0]).is_of_sessions(None, "")
        )

    @property
    def of_caches(self) -> bool:
        """Whether its hosts are there for memcached: then all of them are."""
        return any(member.memcached for member in self.members.values())

    @property
    def load_unit(self) -> str:
        return "requests/s" if self.of_caches else "queries/s"

    @property
    def percentile(self) -> str:
        """Of a probe's gets, by which caches are judged; empty if none has enough gets in a block."""
        # A line of the probe is a second of gets, and none is half in a block.
        whole_s = max(self.block_s - EVERY_S, 0.0)
        gets = min((each.gets_per_s for each in self.members.values()), default=0.0) * whole_s
        wanted = self.rules.judge.response
        return wanted if wanted and shows(wanted, gets) else "" if wanted else next(iter(responses(gets)), "")

    def question(self) -> Question:
        """Of each judged stage; the stages share the alpha of false rollbacks."""
        judged = max(sum(stage.is_judged for stage in self.stages), 1)
        rule = self.rules.judge
        question = Question(rule.looks, rule.alpha, rule.alpha / judged, rule.margin, rule.harm)
        if not self.of_caches:
            return question
        return replace(question, response=f"{self.percentile} of the probe's gets", watched=OF_CACHES)

    def is_on_first(self, stage: str, host: str, attempt: int) -> bool:
        """The lot of one pair: the same whenever the rollout is continued."""
        return _lot(f"{self.seed}/{stage}/{host}/{attempt}")

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "settings": dict(self.settings),
            "members": {name: _member_json(member) for name, member in self.members.items()},
            "stages": [_stage_json(stage) for stage in self.stages],
            "rules": _rules_json(self.rules),
            "seed": self.seed,
            "allow_weaker": list(self.allow_weaker),
            "lasting": self.lasting,
            "left_out": dict(self.left_out or {}),
            # A plan that was made before there was this keeps its id.
            **({"expected": self.expected.to_json()} if self.expected else {}),
            **({"fan_out": [*self.fan_out]} if self.fan_out != (FAN_OUT, FAN_OUT_JUMP) else {}),
        }

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Plan:
        """From ``to_json``. Raises KeyError, TypeError or ValueError for anything else."""
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}")
        members = {
            name: Member(**{**each, "role": Role(each["role"])}) for name, each in content["members"].items()
        }
        stages = tuple(
            Stage(
                **{
                    **each,
                    "hosts": tuple(each["hosts"]),
                    "pairs": tuple(map(tuple, each.get("pairs", ()))),
                }
            )
            for each in content["stages"]
        )
        return cls(
            content["settings"],
            members,
            stages,
            Rules(**content["rules"]),
            int(content["seed"]),
            tuple(content["allow_weaker"]),
            str(content["lasting"]),
            content["left_out"],
            Expected.of(content["expected"]) if "expected" in content else None,
            _fan_out(content.get("fan_out", (FAN_OUT, FAN_OUT_JUMP))),
        )


def _member_json(member: Member) -> dict[str, Any]:
    # A plan that was made before there were these keeps its id.
    later = {"identity", "cluster", "cluster_size", "memcached", "gets_per_s"}
    return {name: each for name, each in asdict(member).items() if each or name not in later}


def _fan_out(content: Any) -> tuple[int, int]:
    at_once, jump = map(int, content)
    if min(at_once, jump) < 1:
        raise ValueError(f"fan_out {content}")
    return at_once, jump


def _stage_json(stage: Stage) -> dict[str, Any]:
    found = asdict(stage)
    # A plan that was made before there were pairs keeps its id.
    return found if stage.pairs else {name: each for name, each in found.items() if name != "pairs"}


def _rules_json(rules: Rules) -> dict[str, Any]:
    found = rules.model_dump(mode="json", by_alias=True)
    for name in ("response", "gets_per_s"):
        if not found["judge"][name]:
            del found["judge"][name]
    return found if rules.restart else {name: each for name, each in found.items() if name != "restart"}


def role_of(facts: Mapping[str, Any]) -> Role:
    """By replication as both vendors have it, and by MySQL's group replication. In a group with several primaries
    all of them are sources.
    """
    settings = facts.get("server_settings") or {}
    members = (settings.get("group") or {}).get("members") or ()
    if members:
        ids = {each["id"] for each in members}
        own = next((each for each in members if each["is_own"]), None)
        # A member that joins copies the log of any other one, which is no source for that.
        copies = [each for each in settings.get("replicas") or () if each.get("uuid") not in ids]
        takes_writes = own is not None and (own["role"], own["state"]) == ("PRIMARY", "ONLINE")
        is_source = takes_writes or bool(copies)
    else:
        is_source = bool(settings.get("replicas") or settings.get("replica_addresses"))
    if is_source:
        return Role.SOURCE
    return Role.REPLICA if settings.get("replication") else Role.ALONE


def cluster_of(facts: Mapping[str, Any]) -> str:
    """What all members of a MySQL group, or of a Galera cluster, have in common; empty for other servers. Members
    need not know each other by the names that the fleet knows them by. Clusters of Galera that were left with its
    default name count as one: then their hosts are changed one after the other.
    """
    variables = (facts.get("server_settings") or {}).get("variables") or {}
    if group := variables.get("group_replication_group_name"):
        return f"group {group}"
    is_galera = str(variables.get("wsrep_on") or "").upper() in ("ON", "1")
    return f"{GALERA}{variables.get('wsrep_cluster_name')}" if is_galera else ""


def identity_of(facts: Mapping[str, Any]) -> str:
    """What tells a server from one that takes its name and address: MySQL keeps an id with its data, MariaDB
    derives one from its network card and port. Empty where there is none.
    """
    variables = (facts.get("server_settings") or {}).get("variables") or {}
    return str(variables.get("server_uuid") or variables.get("server_uid") or "")


def seen_of(host: Host, facts: Mapping[str, Any], per_s: float, now: Mapping[str, str]) -> dict[str, Any]:
    """What ``Seen`` needs of a host's answer, as JSON."""
    return {
        "role": role_of(facts),
        **links(facts),
        "per_s": round(per_s, 1),
        "now": dict(now),
        "hostname": str(facts.get("hostname") or ""),
        "server_id": identity_of(facts),
        "cluster": cluster_of(facts),
        "cluster_size": cluster_size(facts),
        "login": asdict(host.login),
    }


def make(
    settings: Mapping[str, Value],
    seen: Sequence[Seen],
    rules: Rules,
    seed: int,
    *,
    allow_weaker: Sequence[str] = (),
    lasting: str = "",
    left_out: Mapping[str, str] | None = None,
    expected: Expected | None = None,
    fan_out: tuple[int, int] = (FAN_OUT, FAN_OUT_JUMP),
) -> Plan:
    """The plan over these hosts. Raises PlanError if a stage names what is not there, Refused if none is left."""
    if not any(each.restarts for each in seen):
        # How to restart is said for changes that take one.
        rules = rules.model_copy(update={"restart": None})
    groups = _groups(seen, [expand(text) for text in rules.restart.equal] if rules.restart else [])
    members = {
        each.host.name: Member(
            each.host.name,
            each.host.address,
            each.role,
            groups[each.host.name],
            each.per_s,
            each.now,
            asdict(each.host.spec),
            asdict(each.host.login),
            each.server_id,
            each.cluster,
            each.cluster_size,
            each.host.memcached,
            each.gets_per_s,
        )
        for each in seen
    }
    _refuse_mixed(members)
    _refuse_shared(settings, members)
    _refuse_shared_files(seen)
    stages, left = _stages(rules, members, left_out or {})
    out = {**(left_out or {}), **dict.fromkeys(left, "no stage takes it")}
    if rules.restart:
        stages = paired(stages, members, {each.host.name: each.kind for each in seen}, rules, seed)
    if not stages:
        whys = "; ".join(f"{name}: {why}" for name, why in out.items())
        raise Refused(
            f"no stage has a host{f': {whys}' if whys else ''}",
            hint="`headrace fleet status` with the same --fleet shows who answers, and as whom",
        )
    plan = Plan(settings, members, stages, rules, seed, tuple(allow_weaker), lasting, out, expected, fan_out)
    _refuse_short_blocks(plan)
    return plan


def _refuse_mixed(members: Mapping[str, Member]) -> None:
    kinds = {bool(each.memcached): each.name for each in members.values()}
    if len(kinds) > 1:
        raise Refused(
            f"{kinds[True]} is there for memcached, and {kinds[False]} is not: what is judged differs",
            hint="a plan each: --only NAMES, or --tag",
        )


def _refuse_short_blocks(plan: Plan) -> None:
    if not plan.of_caches or plan.percentile or not any(stage.is_judged for stage in plan.stages):
        return
    wanted = plan.rules.judge.response or OF_PROBE[-1]
    slowest = min(plan.members.values(), key=lambda each: each.gets_per_s)
    raise Refused(
        f"{slowest.gets_per_s:.3g} gets/s of the probe are too few in a block of {plan.block_s:g} s for {wanted}",
        place=slowest.name,
        hint=f"block_s = {needed_s(wanted, slowest.gets_per_s) + EVERY_S:g} in [timing], or gets_per_s in [judge]",
    )


def _refuse_shared(settings: Mapping[str, Value], members: Mapping[str, Member]) -> None:
    """A setting of the machine would change all of its servers at once, with one of them judged."""
    of_machine = [name for name in settings if not name.startswith("server.")]
    first: dict[str, str] = {}
    for member in members.values():
        other = first.setdefault(member.address, member.name)
        if of_machine and other != member.name:
            raise Refused(
                f"{of_machine[0]} is a setting of the machine, and both {other} and {member.name} run on it",
                place=member.address,
                hint="leave all but one of them out: --only NAME",
            )


def _refuse_shared_files(seen: Sequence[Seen]) -> None:
    """One server's option file would be the other's next start, and could not be taken back for one alone."""
    first: dict[tuple[str, str], str] = {}
    for each in seen:
        for path in each.files:
            other = first.setdefault((each.host.address, path), each.host.name)
            if other != each.host.name:
                raise Refused(
                    f"{other} and {each.host.name} run on one machine and both read {path}: what is written for "
                    "one would be the other's next start",
                    place=each.host.address,
                    hint="give each a directory of its own (!includedir in its own main file), or leave all but "
                    "one of them out: --only NAME",
                )


def _groups(seen: Sequence[Seen], equal: Sequence[Sequence[str]]) -> dict[str, str]:
    """Host -> the first host of its replication group: joined by any name that both know, by the cluster that both
    are in, or said to be equal.
    """
    parent: dict[str, str] = {}

    def find(node: str) -> str:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for each in seen:
        own = f"host {each.host.name}"
        here = ("", "localhost", "127.0.0.1", "::1")
        names = {each.host.name, each.host.spec.host, each.hostname, *each.links} - set(here)
        known = [f"identity {each.identity}", *([f"cluster {each.cluster}"] if each.cluster else [])]
        for name in [*names, *known]:
            parent[find(name)] = find(own)
    there = {each.host.name for each in seen}
    for names_of_one in equal:
        own_names = [name for name in names_of_one if name in there]
        for name in own_names[1:]:
            parent[find(f"host {name}")] = find(f"host {own_names[0]}")
    first: dict[str, str] = {}
    return {each.host.name: first.setdefault(find(f"host {each.host.name}"), each.host.name) for each in seen}


def _stages(
    rules: Rules, members: Mapping[str, Member], left_out: Mapping[str, str]
) -> tuple[tuple[Stage, ...], list[str]]:
    left = list(members)
    stages: list[Stage] = []
    for rule in rules.stage:
        named = _named(rule, members, left_out)
        there = [members[name] for name in left]
        if rule.hosts:
            hosts = [name for name in named if name in left]
        else:
            hosts = _taken(rule.take, there, members, rules.judge.idle_per_s)
        left = [name for name in left if name not in hosts]
        # A host that takes writes is never changed without somebody's word, whatever the file says. What a cache
        # loses is elsewhere.
        takes_writes = any(members[name].role not in (Role.REPLICA, Role.CACHE) for name in hosts)
        serves = any(members[name].per_s >= rules.judge.idle_per_s for name in hosts)
        if hosts:
            stages.append(Stage(rule.name, tuple(hosts), rule.approval or takes_writes, serves))
    return tuple(stages), left


def _named(rule: StageRule, members: Mapping[str, Member], left_out: Mapping[str, str]) -> list[str]:
    """The hosts that a stage names, each once. Raises PlanError for one that cannot take part."""
    named = list(dict.fromkeys(expand(rule.hosts)))
    unknown = {name: left_out.get(name, "not in the fleet") for name in named if name not in members}
    lost = [f"{name}: {why}" for name, why in unknown.items() if why != HAS_IT]
    if lost:
        why = "; ".join(lost)
        raise PlanError(f"hosts cannot take part: {why}", place=f"stage {rule.name}")
    return named


def _taken(take: str, left: Sequence[Member], members: Mapping[str, Member], idle_per_s: float) -> list[str]:
    replicas = [member for member in left if member.role is Role.REPLICA]
    caches = [member for member in left if member.role is Role.CACHE]
    others = [*replicas, *caches]
    serving = [member.name for member in others if member.per_s >= idle_per_s]
    if take == "idle":
        idle = sorted((m for m in others if m.per_s < idle_per_s), key=lambda member: member.per_s)
        return [member.name for member in idle[:1]]
    if take == "one":
        return serving[:1]
    if take == "replicas":
        return _names(replicas)
    if take == "caches":
        return _names(caches)
    if take == "sources":
        return _names(member for member in left if member not in others)
    share = int(take.removesuffix("%")) / 100
    every = sum(member.role in (Role.REPLICA, Role.CACHE) for member in members.values())
    # Of all replicas, or caches; a few are not worth a stage that the next one repeats.
    count = math.ceil(share * every)
    return serving[:count] if len(others) > count else []


def _names(members: Iterable[Member]) -> list[str]:
    return [member.name for member in members]


def paired(
    stages: Sequence[Stage],
    members: Mapping[str, Member],
    kinds: Mapping[str, str],
    rules: Rules,
    seed: int,
) -> tuple[Stage, ...]:
    """The stages with a pair of equal hosts per replication group; no earlier stage changes the partner. Who of
    the two is changed first is decided by lot: a partner of a later stage then takes the place of a host, unless
    the file names that host.

    Raises Refused if hosts that serve would be changed before any pair was compared, unless the rules allow it.
    Without a pair a stage is only watched.
    """
    rule = rules.restart
    assert rule is not None
    equal = [set(expand(text)) for text in rule.equal]
    named = {each.name for each in rules.stage if each.hosts}
    serving = [name for name, each in members.items() if each.per_s >= rules.judge.idle_per_s]

    def why_unequal(one: str, other: str) -> str:
        first, second = members[one], members[other]
        if first.group != second.group:
            return "of another replication group"
        if first.role is not second.role:
            return f"a {second.role}"
        if other not in serving:
            return f"idle ({second.per_s:g} queries/s)"
        is_said = any(one in each and other in each for each in equal)
        is_alike = bool(kinds[one]) and kinds[one] == kinds[other]
        return "" if is_said or is_alike else "another machine, system or server"

    hosts = [list(stage.hosts) for stage in stages]
    unchanged = [name for name in members if not any(name in own for own in hosts)]
    found: list[tuple[Stage, tuple[tuple[str, str], ...]]] = []
    for number, stage in enumerate(stages):
        pairs: list[tuple[str, str]] = []
        # One that is idle has no times to compare.
        for name in [each for each in hosts[number] if each in serving and stage.is_judged]:
            if any(members[name].group == members[other].group for other, _ in pairs):
                continue
            later = [*(other for own in hosts[number:] for other in own), *unchanged]
            partner = next((other for other in later if other != name and not why_unequal(name, other)), None)
            if partner is None:
                continue
            is_within = partner in hosts[number]
            changed = name
            is_free = is_within or (stage.name not in named and partner not in unchanged)
            if is_free and _lot(f"{seed}/pair/{name}/{partner}"):
                changed, partner = partner, name
                if not is_within:
                    _swap(hosts, name, changed)
            pairs.append((changed, partner))
        if stage.is_judged and not pairs and not rule.alone and not any(own for _, own in found):
            first = next(name for name in stage.hosts if name in serving)
            others = [*(other for own in hosts[number:] for other in own if other != first), *unchanged]
            raise _no_equal(stage, first, {other: why_unequal(first, other) for other in others[:MOST_NAMED]})
        found.append((stage, tuple(pairs)))
    return tuple(
        replace(stage, hosts=tuple(own), pairs=pairs, is_judged=bool(pairs))
        for (stage, pairs), own in zip(found, hosts, strict=True)
    )


def _no_equal(stage: Stage, host: str, others: Mapping[str, str]) -> Refused:
    why = "; ".join(f"{other} is {unequal}" for other, unequal in others.items())
    return Refused(
        f"no other host equals {host}, so the change cannot be judged ({why or 'there is none'})",
        place=f"stage {stage.name}",
        hint="[restart] equal = [...] names hosts that are; alone = true changes them and only watches",
    )


def _swap(hosts: Sequence[list[str]], one: str, other: str) -> None:
    for own in hosts:
        own[:] = [other if name == one else one if name == other else name for name in own]


def _lot(text: str) -> bool:
    return bool(hashlib.sha256(text.encode()).digest()[0] & 1)
