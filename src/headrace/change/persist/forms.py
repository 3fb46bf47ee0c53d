"""Settings in the form of what owns a server's option files: an image, an operator, Ansible or NixOS.

    patch(Form.COMPOSE, options=[Option("innodb_io_capacity", "700")], sysctls={})

Nothing is written to a host: the text goes where the files are made. What a form cannot hold is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.base.encode import json_text
from headrace.base.errors import Refused
from headrace.change.form import Form
from headrace.change.persist.options import FILE
from headrace.lab.server.option_files import quoted

NAME = "headrace"
#: Read by the images of MySQL, MariaDB and Percona after their own options.
_FOLDER = "/etc/mysql/conf.d"


@dataclass(frozen=True)
class Option:
    """A line under [mysqld]; ``value`` is None for an option that stands alone, such as ``skip_log_bin``."""

    name: str
    value: str | None

    @property
    def line(self) -> str:
        return self.name if self.value is None else f"{self.name} = {quoted(self.value)}"


def patch(form: Form, options: Sequence[Option], sysctls: Mapping[str, str]) -> str:
    """The text of the patch. Raises Refused for a host's setting where the form has no host, and for a value that
    would be no line of an option file."""
    if sysctls and not form.has_host:
        raise Refused(
            f"is the host's, and {form} describes a server alone",
            place=f"host.{next(iter(sysctls))}",
            hint="--as ansible or --as nixos for the host, or apply it there with --persist files",
        )
    for option in options:
        if option.value is not None and not option.value.isprintable():
            raise Refused("holds a letter that cannot be printed", place=f"server.{option.name}")
    return _FORMS[form](options, sysctls)


def _section(options: Sequence[Option], indent: str) -> str:
    return "".join(f"{indent}{line}\n" for line in ["[mysqld]", *(option.line for option in options)])


def _compose(options: Sequence[Option], _: Mapping[str, str]) -> str:
    # Compose replaces variables in every value.
    text = _section(options, "      ").replace("$", "$$")
    return (
        f"# docker compose -f compose.yaml -f this-file up -d; replace db by the service's name.\n"
        f"# Options in the service's `command:` are stronger than this file.\n"
        f"services:\n  db:\n    configs:\n      - source: {NAME}\n        target: {_FOLDER}/{FILE}\n"
        f"configs:\n  {NAME}:\n    content: |\n{text}"
    )


def _kubernetes(options: Sequence[Option], _: Mapping[str, str]) -> str:
    return (
        f"# Mount it: volumeMounts with mountPath {_FOLDER}/{FILE} and subPath {FILE}.\n"
        f"# Options in the container's `args:` are stronger. A pod reads it when it starts.\n"
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {NAME}-mysql\ndata:\n  {FILE}: |\n"
        f"{_section(options, '    ')}"
    )


def _operator(resource: str, version: str, kind: str, path: Sequence[str]) -> Callable[..., str]:
    def made(options: Sequence[Option], _: Mapping[str, str]) -> str:
        *above, last = path
        text = "".join(f"{'  ' * depth}{key}:\n" for depth, key in enumerate(above))
        depth = len(above)
        text += f"{'  ' * depth}{last}: |\n{_section(options, '  ' * (depth + 1))}"
        return (
            f"# kubectl patch {resource} NAME --type merge --patch-file this-file\n"
            f"# {'.'.join(path)} is one text, which this replaces: add the lines that are there already.\n"
            f"apiVersion: {version}\nkind: {kind}\n{text}"
        )

    return made


def _ansible(options: Sequence[Option], sysctls: Mapping[str, str]) -> str:
    tasks = ["# Tasks: a server takes the options at its next start.\n"]
    for option in options:
        value = "" if option.value is None else f"    value: {_unsafe(quoted(option.value))}\n"
        tasks.append(
            f"- name: {_text(f'{option.name} of the database server')}\n  become: true\n"
            f"  community.general.ini_file:\n    path: {_FOLDER}/{FILE}\n    section: mysqld\n"
            f"    option: {option.name}\n{value}"
            f"    allow_no_value: {_bool(option.value is None)}\n    mode: '0644'\n"
        )
    for name, value in sysctls.items():
        tasks.append(
            f"- name: {_text(name)}\n  become: true\n  ansible.posix.sysctl:\n    name: {_text(name)}\n"
            f"    value: {_unsafe(value)}\n    sysctl_file: /etc/sysctl.d/99-zz-{NAME}.conf\n"
        )
    return "".join(tasks)


def _unsafe(value: str) -> str:
    """A text in which Ansible looks for no variables."""
    has_template = any(mark in value for mark in ("{{", "{%", "{#"))
    return f"!unsafe {_text(value)}" if has_template else _text(value)


def _text(value: str) -> str:
    """A scalar of YAML: a text of JSON is one."""
    return json_text(value)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _nixos(options: Sequence[Option], sysctls: Mapping[str, str]) -> str:
    lines = [
        # `skip_NAME = true` is what a server takes for the option alone.
        f"  services.mysql.settings.mysqld.{_nix(option.name)} = "
        f"{'true' if option.value is None else _nix(quoted(option.value))};\n"
        for option in options
    ]
    lines += [f"  boot.kernel.sysctl.{_nix(name)} = {_nix(value)};\n" for name, value in sysctls.items()]
    return f"# A module: add it to `imports` of configuration.nix.\n{{\n{''.join(lines)}}}\n"


def _nix(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${") + '"'


_FORMS: dict[Form, Callable[[Sequence[Option], Mapping[str, str]], str]] = {
    Form.COMPOSE: _compose,
    Form.KUBERNETES: _kubernetes,
    Form.PERCONA_XTRADB_OPERATOR: _operator(
        "pxc", "pxc.percona.com/v1", "PerconaXtraDBCluster", ("spec", "pxc", "configuration")
    ),
    Form.PERCONA_SERVER_OPERATOR: _operator(
        "ps", "ps.percona.com/v1", "PerconaServerMySQL", ("spec", "mysql", "configuration")
    ),
    Form.MARIADB_OPERATOR: _operator("mariadb", "k8s.mariadb.com/v1alpha1", "MariaDB", ("spec", "myCnf")),
    Form.MYSQL_OPERATOR: _operator(
        "innodbcluster", "mysql.oracle.com/v2", "InnoDBCluster", ("spec", "mycnf")
    ),
    Form.ANSIBLE: _ansible,
    Form.NIXOS: _nixos,
}
