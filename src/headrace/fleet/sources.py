"""Lists of hosts as other tools keep them: plain lists, Ansible's inventory, Prometheus's file_sd.

Each reader yields ``Entry``: a name, and what its source says about it. ``inventory`` adds the values that the
fleet's file has for all hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.base.errors import PlanError
from headrace.base.extras import missing
from headrace.base.received import BadContent, Bound, parsed
from headrace.base.whole import read_plain
from headrace.host.ranges import expand

#: A list of the most hosts that a fleet has; of YAML, a megabyte takes seconds and a hundred megabytes of memory.
OF_JSON, MOST_YAML_BYTES = Bound(64 << 20, 5_000_000), 4 << 20
#: What ``<<`` copies in a file: ten levels of ten copies of ten keys would fill any memory.
MOST_MERGED = 100_000


@dataclass(frozen=True)
class Entry:
    """``values``: keys of a host's table in a fleet's file. ``why_not``: why this host cannot be reached."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    why_not: str = ""


def read(path: Path) -> list[Entry]:
    """The hosts of a file, by its content: JSON of Ansible or file_sd, YAML of file_sd, else a plain list."""
    is_yaml = path.suffix in (".yml", ".yaml")
    try:
        text = read_plain(path, MOST_YAML_BYTES if is_yaml else OF_JSON.size_bytes).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise PlanError(f"cannot be read: {why}", place=str(path)) from error
    if is_yaml:
        return list(_file_sd(_yaml(text, path), path))
    if path.suffix == ".json" or text.lstrip()[:1] in ("{", "["):
        try:
            content = parsed(text, OF_JSON)
        except BadContent as error:
            raise PlanError(f"cannot be read: {error}", place=str(path)) from error
        if isinstance(content, dict):
            return list(_ansible(content, path))
        return list(_file_sd(content, path))
    return list(_lines(text))


def _lines(text: str) -> Iterator[Entry]:
    """A host or a range a line; what follows ``#`` is a comment."""
    for line in text.splitlines():
        yield from (Entry(name) for name in expand(line.partition("#")[0]))


def _yaml(text: str, path: Path) -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise missing("yaml") or error from error

    class Bounded(yaml.SafeLoader):  # type: ignore[misc]
        merged = 0

        def flatten_mapping(self, node: Any) -> None:
            for key, value in node.value:
                if key.tag != "tag:yaml.org,2002:merge":
                    continue
                for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(each, yaml.MappingNode):
                        self.flatten_mapping(each)
                        self.merged += len(each.value)
                    # Before they are copied.
                    if self.merged > MOST_MERGED:
                        raise yaml.YAMLError(f"`<<` copies more than {MOST_MERGED:,} keys")
            super().flatten_mapping(node)

    try:
        return yaml.load(text, Bounded)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        why = "too deeply nested" if isinstance(error, RecursionError) else error
        raise PlanError(f"not YAML that is read: {why}", place=str(path)) from error


def _file_sd(content: Any, path: Path) -> Iterator[Entry]:
    """Prometheus's groups of targets. Their port is an exporter's, not sshd's; labels become tags."""
    groups = content if isinstance(content, list) else None
    if groups is None or not all(isinstance(group, dict) and "targets" in group for group in groups):
        raise PlanError(
            "neither an Ansible inventory nor a file_sd of Prometheus",
            place=str(path),
            hint="`ansible-inventory --list` prints the one; the other is a list of {targets, labels}",
        )
    tags: dict[str, set[str]] = {}
    for group in groups:
        labels, targets = group.get("labels") or {}, group["targets"] or ()
        # A list would be written out as text, and in YAML a list of ten others, ten times, is one line.
        if not isinstance(labels, dict) or not isinstance(targets, list | tuple):
            raise PlanError("labels must be a table, and targets a list", place=str(path))
        if nested := next((each for each in (*labels.values(), *targets) if not _is_plain(each)), None):
            raise PlanError(f"a target or label is a {type(nested).__name__}, not text", place=str(path))
        own = {f"{name}={value}" for name, value in labels.items() if not str(name).startswith("__")}
        for target in targets:
            # One host may have several exporters.
            tags.setdefault(_without_port(str(target)), set()).update(own)
    yield from (Entry(name, tags=frozenset(own)) for name, own in tags.items())


def _is_plain(value: object) -> bool:
    return not isinstance(value, list | tuple | dict | set)


def _without_port(target: str) -> str:
    """``db1:9104`` -> ``db1``, ``[::1]:9104`` -> ``[::1]``, ``http://db1:9104/metrics`` -> ``db1``."""
    rest = target.partition("://")[2] or target
    rest = rest.partition("/")[0]
    match = re.fullmatch(r"(\[[^]]+\]|[^:]+)(:\d+)?", rest)
    return match[1] if match else rest


#: Ansible's variables (and their names before 2.0) -> our keys.
_ANSIBLE = {
    "host": ("ansible_host", "ansible_ssh_host"),
    "port": ("ansible_port", "ansible_ssh_port"),
    "user": ("ansible_user", "ansible_ssh_user"),
    "identity_file": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
}
_ANSIBLE_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")


def _ansible(content: Mapping[str, Any], path: Path) -> Iterator[Entry]:
    """The output of ``ansible-inventory --list``. Groups become tags, also those that a group belongs to."""
    groups = {name: group for name, group in content.items() if name != "_meta" and isinstance(group, dict)}
    if not groups and "_meta" not in content:
        raise PlanError("not the output of `ansible-inventory --list`", place=str(path))
    variables = (content.get("_meta") or {}).get("hostvars") or {}
    tags: dict[str, set[str]] = {str(name): set() for name in variables}
    for name in groups:
        for host in _members(groups, name):
            tags.setdefault(host, set()).add(name)
    for host, own in tags.items():
        yield _ansible_host(host, variables.get(host) or {}, frozenset(own - {"all", "ungrouped"}))


def _members(groups: Mapping[str, Any], name: str) -> Iterator[str]:
    """Hosts of a group and of all below it, each of which is visited once: they may share children."""
    found = [name]
    seen = {name}
    for each in found:
        group = groups.get(each) or {}
        yield from map(str, group.get("hosts") or ())
        below = dict.fromkeys(str(child) for child in group.get("children") or ())
        found += [child for child in below if child not in seen]
        seen |= below.keys()


def _ansible_host(name: str, variables: Mapping[str, Any], tags: frozenset[str]) -> Entry:
    values: dict[str, Any] = {}
    for key, names in _ANSIBLE.items():
        found = next((variables[each] for each in names if variables.get(each) not in (None, "")), None)
        if found is not None:
            values[key] = int(found) if key == "port" and str(found).isdigit() else str(found)
    if template := next((text for text in values.values() if "{{" in str(text)), None):
        return Entry(name, {}, tags, f"its inventory has a template that was not resolved: {template}")
    if variables.get("ansible_connection") == "local":
        values["host"] = "local"
    elif (kind := variables.get("ansible_connection", "ssh")) not in ("ssh", "smart", "paramiko"):
        return Entry(name, {}, tags, f"its connection is {kind}, not SSH")
    if _is_true(variables.get("ansible_become")) and variables.get("ansible_become_user", "root") == "root":
        values["sudo"] = True
    if jump := _jump([str(variables[each]) for each in _ANSIBLE_ARGUMENTS if variables.get(each)]):
        values["jump"] = jump
    return Entry(name, values, tags)


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1")


def _jump(arguments: Sequence[str]) -> str:
    match = re.search(r"(?:-J\s*|ProxyJump[= ])['\"]?([^\s'\"]+)", " ".join(arguments))
    return match[1] if match else ""
