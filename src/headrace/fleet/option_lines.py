"""What a start makes of one line of an option file, by the list of that server's own options.

The binary is not asked here, because a fleet is read with one command a host. The rules are those of my_getopt.cc;
``tests/real/server/test_option_files.py`` compares them with binaries. Where a list cannot tell, that is said.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.base.model import Vendor
from headrace.knobs.servers import Listed, ServerList
from headrace.knobs.values import plain_value
from headrace.lab.server.option_files import Word, is_ambiguous, unwrapped

#: Their variables of all have themselves for a maximum.
_PLUGINS = (
    "innodb_", "aria_", "mysqlx_", "ndb_", "caching_sha2_", "feedback_", "group_replication_", "myisam_",
)  # fmt: skip
#: Of sessions, and a list does not say so.
_LIMITED = frozenset({"max_allowed_packet", "max_user_connections", "net_buffer_length"})
_TRUE, _FALSE = frozenset({"1", "on", "true"}), frozenset({"0", "off", "false"})
#: What turns a plugin on or off takes numbers, and the starts of these words.
_WORDS_OF_PLUGINS = _TRUE | _FALSE | {"2", "3", "force", "force_plus_permanent"}
#: What is written with a sign, though a list has no value below zero.
_SIGNED = ("debug_", "innodb_autoinc_lock_mode", "performance_schema_max_digest_length",
           "performance_schema_max_sql_text_length", "tcp_keepalive_")  # fmt: skip
#: Texts that may not be empty, nor the 0 of ``skip-``.
_NO_SKIP = frozenset(
    {
        "chroot", "date_format", "datetime_format", "default_authentication_plugin", "ft_boolean_syntax",
        "innodb_ft_aux_table", "protocol_version", "time_format", "upgrade", "version_comment",
    }
)  # fmt: skip
_LOCALES = (
    "character_set_filesystem",
    "character_set_server",
    "collation_server",
    "lc_messages",
    "lc_time_names",
)
CHARACTER_SETS = frozenset(
    {
        "armscii8", "ascii", "big5", "binary", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852",
        "cp866", "cp932", "dec8", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "geostd8", "greek",
        "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7", "macce",
        "macroman", "sjis", "swe7", "tis620", "ucs2", "ujis", "utf16", "utf16le", "utf32", "utf8",
        "utf8mb3", "utf8mb4",
    }
)  # fmt: skip
_ONLY_FIRST = (
    "defaults_file",
    "defaults_extra_file",
    "defaults_group_suffix",
    "no_defaults",
    "print_defaults",
)
#: MariaDB looks for it before the others, so its start will do where that is also one of theirs.
_EARLY = "max_connections"
#: strtoull, then one letter; what follows that is not looked at.
_INTEGER = re.compile(r"\s*[+-]?\d+([kmgtpe].*)?", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def lowered(value: str, most: str) -> bool:
    """Whether a value is above a maximum."""
    found = [plain_value(each) for each in (value, most)]
    return all(each.isdigit() for each in found) and int(found[0]) > int(found[1])


@dataclass(frozen=True)
class Made:
    """``option`` in its full name, and the ``value`` that it gets; None if it gets none.

    ``most`` is what it has at most from here on, if that also lowers the value that it has. ``trouble`` is why no
    start gets past the line, or may not, in words; empty if it does.
    """

    option: str
    value: str | None
    trouble: str = ""
    most: str | None = None


def made_of(word: Word, known: Collection[str], own: ServerList, *, by_start: bool) -> Made:
    """What a server of this list makes of a word. ``known`` are the names of its options and variables."""
    name, is_found, prefixes = unwrapped(word, known, by_start=by_start, vendor=own.vendor)
    if not is_found and by_start and len(name) > 4 and _EARLY.startswith(name):
        name, is_found = _EARLY, True
    is_loose = "loose_" in prefixes
    last = prefixes[-1] if prefixes else ""
    rows = [each for each in own.variables.values() if each.option.replace("-", "_") == name]
    # A variable of another name may say more of what the option takes.
    listed = max(rows, key=lambda each: len(each.names), default=None)
    if name.startswith(_ONLY_FIRST) and not is_loose:
        return Made(name, None, "it counts only before all other arguments: no start gets past it")
    if not is_found:
        return Made(name, word.value, "" if is_loose else _unknown(word, name, own, by_start=by_start))
    if name in own.ignored:
        return Made(name, None)
    if last == "maximum_":
        return _limited(word, name, listed, own, is_loose=is_loose)
    if last == "autoset_":
        why = "" if name == "open_files_limit" else f"{name} may not take autoset: a start may end there"
        return Made(name, None, why)
    if last in ("skip_", "disable_", "enable_"):
        return _switched(word, name, last, listed)
    if listed is None or (not listed.option and name not in own.unlisted):
        return Made(name, "ON" if word.value is None else word.value)
    made = _valued(word, name, listed, own)
    # A value that is not taken is an error in its log then, and it goes on with the one before.
    is_skipped = is_loose and own.vendor is Vendor.MARIADB and word.value is not None and name not in _LOCALES
    return Made(name, None) if made.trouble and is_skipped else made


def _unknown(word: Word, name: str, own: ServerList, *, by_start: bool) -> str:
    if by_start and is_ambiguous(word, own.variables):
        return f"{name} may be several options"
    # Anything may stand there.
    name = name if len(name) < 65 else f"{name[:60]}..."
    return f"{name} is not an option that {own.name} lists: a start ends there, unless a plugin brings it"


def _limited(word: Word, name: str, listed: Listed | None, own: ServerList, *, is_loose: bool) -> Made:
    """``maximum-x``: the limit of a session's own value; a plugin's variable of all is set itself."""
    is_plugins = name.startswith(_PLUGINS)
    has_none = listed is not None and listed.kind in ("switch", "number")
    if has_none and is_loose and own.vendor is Vendor.MARIADB and not is_plugins:
        return Made(name, None)
    if listed is not None and listed.kind == "switch" and not (is_plugins and listed.is_variable):
        return Made(name, None, f"{name} is a switch and has no maximum: a start may end there")
    if listed is not None and listed.kind == "number" and own.vendor is Vendor.MARIADB:
        return Made(name, None, f"{name} takes fractions and has no maximum: no start gets past it")
    if listed is None or listed.is_of_sessions or name in _LIMITED:
        lowers = own.vendor is Vendor.MYSQL and not own.version.startswith(("5.", "8.0."))
        return Made(name, None, most=word.value if lowers else None)
    if is_plugins or not listed.is_variable:
        return Made(name, word.value)
    if is_loose and own.vendor is Vendor.MARIADB:
        return Made(name, None)  # an error in its log, and it goes on
    return Made(name, None, f"{name} has no maximum that could be set: no start gets past it")


def _switched(word: Word, name: str, prefix: str, listed: Listed | None) -> Made:
    """``skip-x``, ``disable-x`` and ``enable-x``: of an option that is no switch they are 0 and 1."""
    if name == "ansi":
        return Made(name, None, "ansi takes no skip, disable or enable: no start gets past it")
    if name in _NO_SKIP or (name in _LOCALES and listed is not None and listed.kind != "switch"):
        return Made(name, None, f"{name} is not a switch: a start may end there")
    is_on = (prefix == "enable_") != (word.value == "0")
    return Made(name, "ON" if is_on else "OFF")


def _valued(word: Word, name: str, listed: Listed, own: ServerList) -> Made:
    value = word.value
    if value is None:
        needs_one = listed.kind in ("integer", "number", "set", "text", "choice") and name not in _ALONE
        is_free = name.startswith("mysqlx_") and listed.kind == "integer"
        why = (
            "it lacks its value: no start gets past it" if needs_one and listed.option and not is_free else ""
        )
        return Made(name, "ON", why)
    if name == "skip_name_resolve" and own.vendor is Vendor.MYSQL and value == "0":
        return Made(name, "ON")  # of numbers this word takes no notice
    if listed.kind == "switch" and name not in ("log_bin", "external_locking"):
        low = value.strip().lower()
        is_word = low in _WORDS_OF_PLUGINS or (not low and own.vendor is Vendor.MARIADB)
        if not listed.is_variable and not is_word:
            return Made(name, value, f"{name} may not take that word: a start may end there")
        # Any other word is a warning, and off.
        is_off = low not in _TRUE if listed.is_variable else not low
        return Made(name, "OFF" if is_off else value)
    why = _why_not(name, value, listed, own)
    return Made(name, value, f"{name} cannot be that, {why}: no start gets past it" if why else "")


def _why_not(name: str, value: str, listed: Listed, own: ServerList) -> str:
    is_mariadb = own.vendor is Vendor.MARIADB
    if name in _LOCALES and listed.kind != "switch":
        return _no_locale(name, value)
    if not value and name in _NO_SKIP:
        return "empty"
    if not value and listed.kind in ("integer", "number", "choice"):
        return "" if is_mariadb else "empty"
    if listed.kind == "integer":
        if value and not _INTEGER.fullmatch(value):
            return "no whole number"
        is_negative = value.strip().startswith("-") and value.strip().strip("-0") != ""
        is_checked = is_mariadb and (listed.low or 0) >= 0 and not name.startswith(_SIGNED)
        return "below zero" if is_checked and is_negative else ""
    if listed.kind == "number":
        return "" if _NUMBER.fullmatch(value) else "no number"
    if listed.kind == "choice" and listed.names:
        return _no_choice(value, listed.names)
    if listed.kind == "set" and listed.names and value and value.strip().lower() != "default":
        if value.strip().isdigit():
            return "" if int(value) < 2 ** len(listed.names) else "above the sum of its words"
        words = [each.partition("=")[0].strip() for each in value.split(",")]
        names = (*listed.names, "all", "default", "none")
        return next((why for each in words if each and (why := _no_choice(each, names))), "")
    return ""


def _no_choice(value: str, names: Sequence[str]) -> str:
    low = value.strip().lower()
    if low.isdigit():
        return "" if int(low) < len(names) else f"it has {len(names)} to choose from"
    fits = [each for each in names if each.lower().startswith(low)]
    exact = [each for each in fits if each.lower() == low]
    return "" if exact or len(fits) == 1 else "none of its words"


def _no_locale(name: str, value: str) -> str:
    low = value.strip().lower()
    if name.startswith("lc_"):
        return "" if re.fullmatch(r"[a-z]{2,3}_[a-z]{2}", low) else "no locale"
    if name.startswith("collation_"):
        is_one = low.partition("_")[0] in CHARACTER_SETS or low.startswith("uca1400_")
        return "" if is_one else "no collation"
    return "" if low in CHARACTER_SETS else "no character set"


def charset_trouble(charset: str, collation: str) -> str:
    """Why a server does not start with both; a collation belongs to one character set."""
    names = [
        {"utf8": "utf8mb3"}.get(each.lower(), each.lower()) for each in (charset, collation.partition("_")[0])
    ]
    if not charset or not collation or names[0] == names[1] or names[1] == "uca1400":
        return ""
    return f"collation {collation} is not of character set {charset}: no start gets past it"


#: Options that may stand without a value, though they are no switches.
_ALONE = frozenset(
    {
        "alter_algorithm", "auto_increment_increment", "auto_increment_offset", "concurrent_insert",
        "delay_key_write", "event_scheduler", "explain_format", "group_replication_consistency",
        "gtid_executed_compression_period", "innodb_adaptive_hash_index_parts",
        "innodb_api_bk_commit_interval", "innodb_api_trx_level", "innodb_compression_algorithm",
        "innodb_compression_failure_threshold_pct", "innodb_compression_pad_pct_max", "innodb_doublewrite",
        "innodb_encrypt_tables", "innodb_fast_shutdown", "innodb_flush_log_at_timeout",
        "innodb_flush_log_at_trx_commit", "innodb_flush_neighbors", "innodb_ft_aux_table",
        "innodb_ft_num_word_optimize", "innodb_ft_server_stopword_table", "innodb_ft_user_stopword_table",
        "innodb_log_spin_wait_delay", "innodb_max_undo_log_size", "innodb_page_cleaners",
        "innodb_page_size", "innodb_purge_batch_size", "innodb_purge_rseg_truncate_frequency",
        "innodb_purge_threads", "innodb_rollback_segments", "innodb_segment_reserve_factor",
        "innodb_spin_wait_delay", "innodb_sync_array_size", "innodb_tmpdir", "log_bin",
        "log_bin_compress_min_len", "log_error", "log_isam", "log_warnings", "lower_case_table_names",
        "max_points_in_geometry", "max_recursive_iterations", "max_sp_recursion_depth",
        "myisam_recover_options", "old_alter_table", "rpl_semi_sync_slave_kill_conn_timeout",
        "secondary_engine_cost_threshold", "select_into_buffer_size", "select_into_disk_sync_delay",
        "transaction_write_set_extraction", "wsrep_reject_queries", "wsrep_sync_wait",
    }
)  # fmt: skip


def options_of(own: ServerList) -> frozenset[str]:
    """The names that may stand in an option file of this server, with underscores."""
    named = {each.option.replace("-", "_") for each in own.variables.values() if each.option}
    return frozenset(named | own.unlisted | own.ignored)
