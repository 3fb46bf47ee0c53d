"""When two texts of a setting mean the same, and which settings differ between hosts by their nature."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from headrace.base.model import Vendor
from headrace.knobs import servers
from headrace.knobs.knob import size_bytes

#: Names of servers, accounts and places, which are a host's own. Paths of data files also hold sizes: compared.
OWN = re.compile(
    r"server_u?u?id|hostname|report_\w+|pid_file|socket|port|extra_port|\w*_port|basedir|datadir|tmpdir"
    r"|(?!\w*data_file_path)\w+_(dir|file|path|basename|directory)|\w*log_bin_index|relay_log(_index)?|log_error"
    r"|\w*bind_address|\w*_address|\w*_addresses|wsrep_node_\w+|wsrep_start_position|group_replication_group_seeds"
    r"|gtid_\w*(pos|state|purged|executed|owned)|auto_increment_offset|innodb_version|version\w*|large_page_size"
    r"|timestamp|last_\w+|insert_id|identity|rand_seed\d|pseudo_\w+|error_count|warning_count|license|system_time_zone"
    r"|(ssl|tls|admin_ssl|admin_tls|mysqlx_ssl)_(ca|cert|key|crl|capath|crlpath)\w*|in_transaction|proxy_user|external_user"
)
#: What depends on the size of the memory, or is counted by the kernel.
OWN_SYSCTLS = re.compile(
    r"kernel\.(hostname|domainname|random\..*|ns_last_pid|threads-max|keys\..*|sched_domain.*|osrelease|version)"
    r"|fs\.(file-max|file-nr|inode-.*|dentry-state|epoll\..*|inotify\.max_user_(watches|instances))"
    r"|user\..*|vm\.(user_reserve_kbytes|admin_reserve_kbytes|lowmem_reserve_ratio)"
    r"|net\.ipv4\.(tcp_mem|udp_mem|tcp_max_orphans|tcp_fastopen_key)|net\.netfilter\.nf_conntrack_count"
)
#: They say who may write, which follows from who is the source.
BY_ROLE = frozenset({"read_only", "super_read_only", "transaction_read_only"})
#: Values with which the server is asked to choose itself.
AUTOMATIC = {
    "back_log": {"-1", "0"},
    "host_cache_size": {"-1"},
    "innodb_open_files": {"-1", "0"},
    "innodb_read_ahead_threshold": {"-1"},
    "max_heap_table_size": {"0"},
    "open_files_limit": {"0"},
    "table_definition_cache": {"-1"},
    "thread_cache_size": {"-1"},
    "thread_pool_size": {"0"},
    "innodb_purge_threads": {"0"},
    "innodb_buffer_pool_instances": {"0"},
    "innodb_thread_sleep_delay": {"0"},
}
#: A second name of a variable -> its first one; the pairs with other words for roles follow a rule.
ALIASES = {
    "log_slow_query": "slow_query_log",
    "log_slow_query_time": "long_query_time",
    "log_slow_min_examined_row_limit": "min_examined_row_limit",
    "tx_isolation": "transaction_isolation",
    "tx_read_only": "transaction_read_only",
}
_SIZES = re.compile(r"size|buffer|packet|stack|length|bytes|cache|limit|memory")
#: No word for a switch: a server warns, and turns it off.
_NO_SWITCH = frozenset({"", "yes", "no"})
_FRACTION = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?"
_SWITCH = {"on": "1", "true": "1", "yes": "1", "off": "0", "false": "0", "no": "0"}
_NAMES = {"utf8": "utf8mb3"}
#: A size is rounded to a block, at most this large: MariaDB's tables in memory are of whole blocks of 16 KiB.
_ROUNDED_TO, _BLOCKS = 4096, tuple(2**power for power in range(3, 15))


def plain_value(text: str) -> str:
    """One spelling of a value: ``1G`` and ``1073741824``, ``ON`` and ``1``, words of a list in order."""
    text = " ".join(text.split()).lower()
    text = _SWITCH.get(text, text)
    if re.fullmatch(r"[0-9]+[kmgtpe]", text):
        return str(size_bytes(text))
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        whole, _, part = text.partition(".")
        part = part.rstrip("0")
        return f"{int(whole)}.{part}" if part else str(int(whole))
    if "," in text and "=" not in text:
        return ",".join(sorted(_NAMES.get(word.strip(), word.strip()) for word in text.split(",")))
    return _NAMES.get(text, text)


def is_own(variable: str) -> bool:
    """Whether a server's variable differs between hosts by its nature."""
    return OWN.fullmatch(variable) is not None


def is_second_name(variable: str, variables: Mapping[str, str]) -> bool:
    """Whether this is a second name of another variable, so that one difference is not counted twice."""
    newer = variable.replace("slave", "replica").replace("master", "source")
    return ALIASES.get(variable) in variables or (newer != variable and newer in variables)


def without_host(value: str, hostname: str | None) -> str:
    """A value with the host's name in it, such as a log's: the name is no difference."""
    for name in {hostname or "", (hostname or "").partition(".")[0]}:
        if len(name) > 2:
            value = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "HOST", value)
    return value


def means_the_same(variable: str, running: str, named: str, variables: Mapping[str, str]) -> bool:
    """Whether a server that is given ``named`` runs with ``running``: it rounds, and chooses what is left to it.

    True also where the two cannot be compared: a number against the word of a list.
    """
    is_value, was_named = plain_value(running), plain_value(named)
    if running.upper() in ("ON", "OFF") and named.strip().lower() in _NO_SWITCH:
        was_named = "0"
    elif _is_number(is_value):
        was_named = _counted(named, has_fraction="." in running) or was_named
    if is_value == was_named or "<removed>" in (is_value, was_named):
        return True
    if (as_set := _as_set(variable, running, named)) is not None:
        return as_set
    if "/" in running + named and "=" not in running + named and "," not in running + named:
        folder = variables.get("datadir", "")
        return _place(running, folder) == _place(named, folder)
    if was_named in AUTOMATIC.get(variable, ()) or variable == "open_files_limit":
        return True
    if variable == "log_bin":
        # The option is the name of the files.
        return (is_value == "1") == (was_named != "0")
    if variable == "wsrep_provider_options":
        # All that the provider has is in it; without one it is empty.
        has = _pairs(is_value, ";")
        return not has or all(has.get(name) == text for name, text in _pairs(was_named, ";").items())
    if variable.startswith("optimizer_") and (as_flags := _as_flags(is_value, was_named)) is not None:
        return as_flags
    if (choice := _choice(variable, was_named)) is not None:
        return choice == is_value
    if _is_number(is_value) and _is_number(was_named):
        return _is_rounded(variable, float(is_value), float(was_named), variables)
    # A choice may be named by its number.
    return _is_number(is_value) != _is_number(was_named) and not {is_value, was_named} & {"0", "1"}


def is_at_its_end(variable: str, running: str, named: str, variables: Mapping[str, str]) -> bool:
    """Whether a server was given more, or less, than it takes, and runs with the most or least."""
    has, given = plain_value(running), _counted(named, has_fraction="." in running)
    if not _is_number(has) or not _is_number(given):
        return False
    version = variables.get("version", "")
    vendor = Vendor.MARIADB if "mariadb" in version.lower() else Vendor.MYSQL
    own = servers.listed(vendor, version, variable)
    return any(
        (each.low is not None and float(given) < float(has) == each.low)
        or (each.high is not None and float(given) > float(has) == each.high)
        for each in ((own,) if own else servers.in_any(variable))
    )


#: sql/sys_vars.cc, expand_sql_mode: modes that stand for others, of both families; then what each adds.
_QUOTES = {"PIPES_AS_CONCAT", "ANSI_QUOTES", "IGNORE_SPACE"}
_NO_OPTIONS = {*_QUOTES, "NO_KEY_OPTIONS", "NO_TABLE_OPTIONS", "NO_FIELD_OPTIONS"}
_MODES = {
    "ANSI": {"REAL_AS_FLOAT", *_QUOTES},
    "ORACLE": {*_NO_OPTIONS, "NO_AUTO_CREATE_USER", "SIMULTANEOUS_ASSIGNMENT"},
    "MSSQL": _NO_OPTIONS,
    "POSTGRESQL": _NO_OPTIONS,
    "DB2": _NO_OPTIONS,
    "MAXDB": {*_NO_OPTIONS, "NO_AUTO_CREATE_USER"},
    "MYSQL323": {"HIGH_NOT_PRECEDENCE"},
    "MYSQL40": {"HIGH_NOT_PRECEDENCE"},
    "TRADITIONAL": {
        "STRICT_TRANS_TABLES",
        "STRICT_ALL_TABLES",
        "NO_ZERO_IN_DATE",
        "NO_ZERO_DATE",
        "ERROR_FOR_DIVISION_BY_ZERO",
        "NO_ENGINE_SUBSTITUTION",
    },
}
#: What only some servers add: MySQL since 5.7 the one, MariaDB and MySQL 5.7 the other.
_SOME_ADD = {"ANSI": "ONLY_FULL_GROUP_BY", "TRADITIONAL": "NO_AUTO_CREATE_USER"}


def _as_set(variable: str, running: str, named: str) -> bool | None:
    """Whether a set of words is the running one, by its number or by modes that stand for others.

    None for a variable that is no set, or a number whose words are not known.
    """
    listed = [each.names for each in servers.in_any(variable) if each.kind == "set"]
    if not listed or variable.startswith("optimizer_"):
        return None
    has = _words(running)
    number = named.strip()
    if not number.isdigit():
        if variable != "sql_mode":
            return None
        return _is_expanded(has, _words(named))
    if running.strip().isdigit():
        return None
    meant = []
    for names in dict.fromkeys(listed):
        bits = [name.upper() for at, name in enumerate(names) if int(number) >> at & 1]
        if int(number) >> len(names) == 0:
            meant.append(_is_expanded(has, set(bits)) if variable == "sql_mode" else has == set(bits))
    return any(meant)


def _words(text: str) -> set[str]:
    return {word.strip().upper() for word in text.split(",") if word.strip()}


def _is_expanded(has: set[str], modes: set[str]) -> bool:
    least = modes.union(*(_MODES.get(mode, set()) for mode in modes))
    most = least | {added for mode, added in _SOME_ADD.items() if mode in modes}
    return least <= has <= most


def _place(text: str, folder: str) -> str:
    """A path in one spelling; a relative one begins in the data directory."""
    return posixpath.normpath(posixpath.join(folder, text.strip())) if text.strip() else ""


def _as_flags(running: str, named: str) -> bool | None:
    """Whether the flags that are named run, or all that a number's bits say: a server prints them in their order.

    None for what names no flags.
    """
    if "=" in named:
        flags = _pairs(running, ",")
        return all(
            flag == "default" or flags.get(name, flag) == flag for name, flag in _pairs(named, ",").items()
        )
    if "=" not in running or not named.isdigit():
        return None
    values = list(_pairs(running, ",").values())
    return int(named) == sum(1 << at for at, value in enumerate(values) if value == "1")


def _pairs(text: str, between: str) -> dict[str, str]:
    """``a=1;b=2`` by name, each value in one spelling."""
    found = (part.partition("=") for part in text.split(between) if "=" in part)
    return {name.strip(): plain_value(value) for name, _, value in found}


def _choice(variable: str, named: str) -> str | None:
    """The choice that a number or the start of its name stands for; None unless all known servers agree on it."""
    found: set[str] = set()
    # A server in which it is only an option does not list its names.
    for listed in (each for each in servers.in_any(variable) if each.is_variable):
        names = [plain_value(name) for name in listed.names] if listed.kind == "choice" else []
        if named.isdigit():
            fits = names[int(named) :][:1]
        else:
            fits = [name for name in names if named and name.startswith(named)]
        found.add(fits[0] if len(fits) == 1 else "")
    return found.pop() or None if len(found) == 1 else None


def _counted(named: str, *, has_fraction: bool) -> str:
    """A number as a server takes it out of a text, and no more than it takes: ``+85``, ``10Mb``, nothing for 0.

    Empty for what it would refuse.
    """
    text = named.strip()
    if has_fraction:
        return plain_value(f"{float(text):f}") if re.fullmatch(_FRACTION, text) else ""
    if not text:
        return "0"
    if match := re.fullmatch(r"([+-]?)([0-9]+)(?:([KMGTPEkmgtpe]).*)?", text):
        count = size_bytes(match[2] + (match[3] or ""))
        return str(-count if match[1] == "-" else count)
    return ""


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) is not None


def _is_rounded(variable: str, running: float, named: float, variables: Mapping[str, str]) -> bool:
    if variable == "innodb_buffer_pool_size":
        chunk = float(variables.get("innodb_buffer_pool_chunk_size") or 0)
        if not chunk:
            # A MariaDB without chunks takes whole MiB.
            return running == named // (1 << 20) * (1 << 20)
        instances = float(variables.get("innodb_buffer_pool_instances") or 1) or 1.0
        return 0 <= running - named < chunk * instances
    if _SIZES.search(variable) is None or min(running, named) < _ROUNDED_TO:
        return False
    return any(running in (named // block * block, -(-named // block) * block) for block in _BLOCKS)
