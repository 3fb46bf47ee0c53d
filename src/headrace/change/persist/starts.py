"""What only a start shows of a server's options, tried before it is promised: an engine that does not open, a
value that the start changes, a server that is up and cannot answer."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from headrace.base.errors import NotReady, Refused
from headrace.base.model import Vendor
from headrace.change.persist.line import Line
from headrace.change.persist.units import unit_of
from headrace.host.facts import HostFacts
from headrace.knobs.servers import Listed, in_any, of
from headrace.lab.server.next_start import NextStart
from headrace.lab.server.option_files import Word, of_arguments
from headrace.lab.server.trial_start import REDO, Trial, is_of_engine, try_start

#: Global, but each statement depends on them.
_OF_ALL = frozenset(
    {
        "global_connection_memory_limit",
        "global_connection_memory_tracking",
        "max_tmp_total_space_usage",
        "open_files_limit",
        "schema_definition_cache",
        "stored_program_definition_cache",
        "table_definition_cache",
        "table_open_cache",
        "tablespace_definition_cache",
        "temptable_max_mmap",
        "temptable_max_ram",
        "temptable_use_mmap",
        "thread_stack",
    }
)
_LOGS = frozenset({"innodb_log_file_size", "innodb_redo_log_capacity"})
_TEXTS = frozenset({"character_set_server", "collation_server"})
#: Without a plugin that manages keys the server ends with these, or cannot write what they encrypt.
_ENCRYPTS = re.compile(r"encrypt_(binlog|tmp_files|tmp_disk_tables)|aria_encrypt_tables"
                       r"|innodb_encrypt_(log|tables|temporary_tables)")  # fmt: skip
_KEY_PLUGINS = ("file_key_management", "hashicorp_key_management", "aws_key_management")
#: These need a keyring that is there before the engine opens: a component of it has no variables.
_NEEDS_KEYRING = re.compile(r"innodb_(redo|undo)_log_encrypt")
#: Plugins of authentication that MySQL has built in.
_FACTORS = re.compile(
    r"(?:(?:\*|caching_sha2_password|sha256_password|mysql_native_password)(?::\w+)?|,|\s)*"
)
#: Options that name engines, and the engines that are in every build: others come with plugins.
_NAMES_ENGINES = frozenset({"default_storage_engine", "default_tmp_storage_engine", "enforce_storage_engine",
                            "gtid_pos_auto_engines", "storage_engine"})  # fmt: skip
_BUILT_IN = frozenset({"", "innodb", "myisam", "memory", "csv", "mrg_myisam", "aria", "null"})
_PORTS = frozenset({"port", "extra_port", "admin_port", "mysqlx_port"})
_FIRST_FREE_PORT = 1024
_ADDRESSES = frozenset({"bind_address", "admin_address", "mysqlx_bind_address"})
_ANYWHERE = frozenset({"*", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost"})
#: Values that every server has; of other time zones its tables must tell, which a start reads.
_KNOWN = {
    "character_set_filesystem": re.compile("binary|latin1|utf8(mb[34])?"),
    "default_time_zone": re.compile(r"system|\+(0?\d|1[0-2]):[0-5]\d|\+13:00|-(0?\d|1[0-2]):[0-5]\d"),
}
#: Files and ciphers of TLS.
_IS_SECURE = re.compile(
    r"(admin_)?(ssl_(ca|capath|cert|key|cipher|crl|crlpath)|tls_ciphersuites)|ssl_fips_mode"
)
#: Of sessions, but about other servers, the log, plugins, what an empty server lacks, or no fault of a start.
_NOT_OURS = re.compile(
    r"wsrep_|debug|pseudo_|gtid_|binlog_|sql_log_|log_|slow_|rpl_|replica|slave|server_id|time_zone|lc_|proxy|rand_seed"
    r"|(transaction|tx)_read_only|.*_engine|.*insert_id|identity|timestamp|skip_replication"
)


async def at_its_limits(start: NextStart, lines: Sequence[Line], facts: HostFacts) -> NextStart:
    """As the next start is begun: with the limit of open files that our drop-in gives its unit, if it has one.

    Raises Refused for a limit that no process of this machine gets, NotReady where only a start as root shows it.
    """
    line = next((each for each in lines if each.option == "open_files_limit"), None)
    wanted = _number(line.wanted) if line else None
    if line is None or wanted is None or facts.vendor is None:
        return start
    most = (await start.target.read("/proc/sys/fs/nr_open")).decode().strip()
    if most.isdigit() and wanted > int(most):
        raise Refused(
            f"asked for {line.wanted}: no process here gets a limit of open files above fs.nr_open, {most}",
            place=line.name,
            hint="raise host.fs.nr_open first, or ask for less",
        )
    if unit_of(facts) is not None:
        return start.limited(int(wanted))
    hard = start.process.started_with[1]
    is_by_root = any(word.option == "user" for word in of_arguments(start.process.arguments))
    if is_by_root and hard and wanted > int(hard):
        raise NotReady(
            f"asked for {line.wanted}, above {hard}, the limit of open files of what starts the server as root: "
            "whether that may raise it shows only when it does",
            place=line.name,
            hint=f"let what starts it set the limit (`ulimit -n {int(wanted)}`), then run this again",
        )
    return start


async def must_start(
    start: NextStart,
    path: str,
    words: Sequence[Word],
    lines: Sequence[Line],
    facts: HostFacts,
    is_so: Callable[[Line, str], bool],
) -> None:
    """Raises Refused where the server would not start or answer with these lines, or make another value of one.

    Raises NotReady where that could not be tried for one that nothing but a start shows.
    """
    for line in lines:
        await _must_be_had(start, line, facts)
    await _must_have_room(start, lines, facts)
    own = of(facts.vendor, facts.server_version or "")
    asked: dict[str, Line] = {}
    unseen = ""
    of_redo = [line for line in lines if line.option in REDO and facts.vendor is not Vendor.MARIADB]
    answering = [line for line in lines if may_starve(line.variable, line.wanted, facts)]
    for line in lines:
        listed = own.variables.get(line.variable) if own else None
        at_start = listed is None or not listed.is_dynamic
        # MySQL takes seconds for it, and a running one changes such a value as its start does.
        if is_of_engine(line.option, line.wanted) and (
            at_start or facts.vendor is Vendor.MARIADB or line in of_redo
        ):
            asked[line.variable] = line
            unseen = unseen or (line.name if at_start else "")
    tried = list(dict.fromkeys([*asked.values(), *of_redo, *answering]))
    if not tried:
        return
    trial = await try_start(start, words, list(asked), is_tried)
    if trial.untried:
        if unseen:
            raise NotReady(
                f"whether the server starts with it could not be tried: {trial.untried}",
                place=unseen,
                hint="a start on an empty folder would show it; apply it without --persist, or mend that first",
            )
        return
    _judge(trial, path, tried)
    for variable, line in asked.items():
        got = trial.values.get(variable)
        if got is not None and not is_so(line, got):
            raise Refused(
                f"asked for {line.wanted}, but the next start makes it {got}, as one on an empty folder did",
                place=line.name,
                hint="another option limits it, or the engine does",
            )


async def _must_be_had(start: NextStart, line: Line, facts: HostFacts) -> None:
    """Raises Refused for what only a start in its own place asks for and ends without, NotReady for what cannot be
    known: neither the binary's help nor a start on an empty folder opens a port or reads a certificate."""
    wanted = line.wanted.strip().lower()
    if _ENCRYPTS.fullmatch(line.option) and wanted not in ("off", "0", "false"):
        if not any(name.startswith(_KEY_PLUGINS) for name in facts.variables):
            raise Refused(
                "the server has no plugin that manages keys: it would not start, or not write what it encrypts",
                place=line.name,
                hint="load one first, such as file_key_management",
            )
    elif line.option in _NAMES_ENGINES and (other := set(re.split(r"[\s,]+", wanted)) - _BUILT_IN):
        raise NotReady(
            f"whether the next start has an engine {min(other)} shows only when it does: not every build has it, "
            "and a plugin may bring it too late",
            place=line.name,
            hint="write it by hand and restart the server when somebody can watch it",
        )
    elif _NEEDS_KEYRING.fullmatch(line.option) and wanted not in ("off", "0", "false"):
        raise NotReady(
            "whether the server has a keyring before its engine opens shows only a start: it ends without one",
            place=line.name,
            hint="ALTER INSTANCE ROTATE INNODB MASTER KEY shows whether it has one now",
        )
    elif (
        (known := _KNOWN.get(line.option)) is not None
        and not known.fullmatch(wanted)
        and wanted != (facts.variable(line.variable) or "").lower()
    ):
        raise NotReady(
            f"whether the server has this {line.option} shows only a start: it ends without it",
            place=line.name,
            hint="apply it without --persist first: a server that has taken it has it",
        )
    elif line.option == "authentication_policy" and not _FACTORS.fullmatch(wanted):
        raise NotReady(
            "whether the server has these plugins when it starts shows only a start: it ends without them",
            place=line.name,
            hint="write it by hand and restart the server when somebody can watch it",
        )
    elif line.option == "proxy_protocol_networks" and not all(map(_is_network, wanted.split(","))):
        raise Refused("the server would not start: not all of these are networks", place=line.name)
    elif line.option in _PORTS and wanted.isdigit() and int(wanted):
        if int(wanted) < _FIRST_FREE_PORT:
            raise Refused("the server's user may not open a port below 1024", place=line.name)
        if int(wanted) in await _listening(start) and facts.variable(line.variable) != wanted:
            raise Refused(
                f"something listens on port {wanted} already: the server would not start", place=line.name
            )
    elif _IS_SECURE.fullmatch(line.option) or (line.option in _ADDRESSES and wanted not in _ANYWHERE):
        raise NotReady(
            "whether the server starts with it shows only when it does: it ends where its library does not take "
            "the value, or the host lacks the address",
            place=line.name,
            hint="write it by hand and restart the server when somebody can watch it",
        )


def _is_network(text: str) -> bool:
    if text.strip() in ("", "*", "localhost"):
        return True
    try:
        return ipaddress.ip_network(text.strip(), strict=False) is not None
    except ValueError:
        return False


async def _listening(start: NextStart) -> set[int]:
    """The TCP ports on which somebody listens where the server is."""
    tables = [f"/proc/{start.process.pid}/net/tcp", f"/proc/{start.process.pid}/net/tcp6"]
    answer = await start.target.run(["cat", *tables], check=False, repeatable=True)
    rows = [line.split() for line in answer.text.splitlines()]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == "0A"}


async def _must_have_room(start: NextStart, lines: Sequence[Line], facts: HostFacts) -> None:
    """Raises Refused for files that the next start makes, and their file system has no room for."""
    datadir = start.now.values.get("datadir", "")
    for line in lines:
        more = made_at_start(line, start.now.values)
        if more <= 0 or not datadir:
            continue
        home = start.now.values.get("innodb_log_group_home_dir", "") if line.option in _LOGS else ""
        folder = posixpath.join(datadir, home)
        ask = [*start.process.as_server(is_root=start.target.is_root), "df", "-Pk", folder]
        answer = await start.target.run(ask, check=False, repeatable=True)
        left = answer.text.splitlines()[-1].split()[-3:][:1] if answer.text.strip() else []
        if left and left[0].isdigit() and int(left[0]) * 1024 < more:
            raise Refused(
                f"asked for {line.wanted}: the next start would write {more >> 20} MiB more in {folder}, "
                f"which has {int(left[0]) >> 10} MiB left, and not come up",
                place=line.name,
                hint="free some space, or ask for less",
            )


def made_at_start(line: Line, now: Mapping[str, str]) -> int:
    """Bytes of new files, beyond those of now."""
    if line.option in _LOGS:
        count = now.get("innodb_log_files_in_group", "1") if line.option == "innodb_log_file_size" else "1"
        before = now.get(line.option, "0")
        number = _number(line.wanted)
        if number is None or not before.isdigit():
            return 0
        return (int(number) - int(before)) * (int(count) if count.isdigit() else 1)
    if line.option == "innodb_temp_data_file_path":
        sizes = re.findall(r"(?<!:max):(\d+[kmgtKMGT]?)(?=[:;]|$)", line.wanted)
        return int(sum(_number(size) or 0 for size in sizes))
    return 0


def _judge(trial: Trial, path: str, tried: Sequence[Line]) -> None:
    if not trial.problems:
        return
    what = "start, but not answer statements" if trial.is_up else "not start"
    raise Refused(
        f"with {', '.join(line.text for line in tried)} in {path} the server would {what}: "
        f"{'; '.join(trial.problems[:2])}",
        place=tried[0].name,
        hint="nothing was written; a start on an empty folder showed it",
    )


def is_tried(option: str, value: str | None) -> bool:
    """Whether a start on an empty folder may have this option."""
    return is_of_engine(option, value) or _decides_answers(option)


def _decides_answers(variable: str) -> bool:
    if variable in _OF_ALL or variable in _TEXTS:
        return True
    if variable.startswith(("innodb_", "aria_")) or _NOT_OURS.match(variable):
        return False
    return any(each.is_of_sessions and each.kind != "text" for each in in_any(variable))


def may_starve(variable: str, wanted: str, facts: HostFacts) -> bool:
    """Whether statements may fail for want of what this gives: less than the server has by default."""
    if not _decides_answers(variable):
        return False
    own = of(facts.vendor, facts.server_version or "")
    found = [own.variables[variable]] if own and variable in own.variables else in_any(variable, facts.vendor)
    return any(_is_below(wanted, each) for each in found)


def _is_below(wanted: str, listed: Listed) -> bool:
    if listed.kind not in ("integer", "number") or listed.default is None:
        return False
    asked, usual = _number(wanted), _number(listed.default)
    # A default of 0 is most often no limit at all.
    return asked is not None and usual is not None and (asked < usual or (usual == 0 and asked > 0))


def _number(text: str) -> float | None:
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kmgtpe]?)", text.strip().lower())
    return float(found[1]) * 1024.0 ** "_kmgtpe".index(found[2] or "_") if found else None
