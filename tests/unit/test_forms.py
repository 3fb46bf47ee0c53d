"""Settings as patches for images, operators, Ansible and NixOS: each is parsed again and holds what was asked."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace.change.commands.changes  # noqa: F401  (its commands)
from headrace.base.errors import Refused
from headrace.base.model import Vendor
from headrace.change.form import Form
from headrace.change.persist.forms import Option, patch
from headrace.change.printed import _option, unchecked
from headrace.cli.shell import app
from headrace.lab.server.option_files import Copies, Start, reading
from tests.folders import ROOT

yaml = pytest.importorskip("yaml")

HARD = "SET @a='x#y $HOME ${b} \\d {{ c }}'"
OPTIONS = [Option("innodb_io_capacity", "700"), Option("skip_log_bin", None), Option("init_connect", HARD)]


class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
    """That of Ansible: ``!unsafe`` is a text."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def words(text: str) -> dict[str, str | None]:
    """What a server reads in an option file."""
    start = Start(Vendor.MARIADB, "10.11", ("--defaults-file=/f",))
    return {w.option: w.value for w in reading(Copies({"/f": text.encode()}), start).words}


WANTED = {"innodb_io_capacity": "700", "skip_log_bin": None, "init_connect": HARD}
CONFIGURATION = {
    Form.KUBERNETES: ("ConfigMap", ("data", "zz-headrace.cnf")),
    Form.PERCONA_XTRADB_OPERATOR: ("PerconaXtraDBCluster", ("spec", "pxc", "configuration")),
    Form.PERCONA_SERVER_OPERATOR: ("PerconaServerMySQL", ("spec", "mysql", "configuration")),
    Form.MARIADB_OPERATOR: ("MariaDB", ("spec", "myCnf")),
    Form.MYSQL_OPERATOR: ("InnoDBCluster", ("spec", "mycnf")),
}


@pytest.mark.parametrize("form", CONFIGURATION)
def test_a_resource_holds_the_option_file(form: Form) -> None:
    kind, path = CONFIGURATION[form]
    found: Any = yaml.safe_load(patch(form, OPTIONS, {}))
    assert found["kind"] == kind
    assert "/" in found["apiVersion"] or found["apiVersion"] == "v1"
    for key in path:
        found = found[key]
    assert words(found) == WANTED


def test_compose_gets_a_file_beside_its_command() -> None:
    found = yaml.safe_load(patch(Form.COMPOSE, OPTIONS, {}))
    [config] = found["services"]["db"]["configs"]
    assert config["target"] == "/etc/mysql/conf.d/zz-headrace.cnf"
    text = found["configs"][config["source"]]["content"]
    assert re.sub(r"\$\$", "", text).count("$") == 0, "compose would put its own variables in"
    assert words(text.replace("$$", "$")) == WANTED


def test_ansible_gets_tasks() -> None:
    tasks = yaml.load(patch(Form.ANSIBLE, OPTIONS, {"vm.swappiness": "1"}), Loader)
    options = [task["community.general.ini_file"] for task in tasks if "community.general.ini_file" in task]
    lines = [f"{o['option']} = {o['value']}" if "value" in o else o["option"] for o in options]
    assert words("[mysqld]\n" + "\n".join(lines)) == WANTED
    assert [o["allow_no_value"] for o in options] == [False, True, False]
    assert tasks[-1]["ansible.posix.sysctl"]["value"] == "1"
    assert "!unsafe" in patch(Form.ANSIBLE, OPTIONS, {})
    assert "!unsafe" not in patch(Form.ANSIBLE, OPTIONS[:2], {})


def test_nixos_gets_a_module() -> None:
    text = patch(Form.NIXOS, OPTIONS, {"vm.swappiness": "1"})
    found = dict(re.findall(r'^  ([\w.]+\."[^"]+") = (.*);$', text, re.MULTILINE))
    assert found['services.mysql.settings.mysqld."innodb_io_capacity"'] == '"700"'
    assert found['services.mysql.settings.mysqld."skip_log_bin"'] == "true"
    assert found['boot.kernel.sysctl."vm.swappiness"'] == '"1"'
    value = found['services.mysql.settings.mysqld."init_connect"']
    assert re.search(r"(?<!\\)\$\{", value) is None, "Nix would put a variable in"
    bare = value[1:-1].replace("\\${", "${").replace('\\"', '"').replace("\\\\", "\\")
    assert words(f"[mysqld]\ninit_connect = {bare}") == {"init_connect": HARD}
    assert text.count("{\n") == 1
    assert text.endswith("}\n")


def test_a_container_has_no_sysctls_of_its_host() -> None:
    with pytest.raises(Refused, match="is the host's") as refused:
        unchecked({"host.vm.swappiness": "1"}, Form.COMPOSE)
    assert "--as ansible" in str(refused.value.hint)
    with pytest.raises(Refused, match="cannot be printed"):
        patch(Form.COMPOSE, [Option("init_connect", "a\nport = 1")], {})


def test_what_a_dry_run_refuses_is_refused_without_a_server() -> None:
    with pytest.raises(Refused, match="are lost in a power cut") as refused:
        unchecked({"server.innodb_flush_log_at_trx_commit": "2"}, Form.KUBERNETES)
    assert "--allow-weaker" in str(refused.value.hint)
    name = "server.innodb_flush_log_at_trx_commit"
    assert unchecked({name: "2"}, Form.KUBERNETES, allow_weaker=[name]).text
    with pytest.raises(Refused, match="when the data directory is made"):
        unchecked({"server.innodb_page_size": "8K"}, Form.KUBERNETES)


@pytest.mark.parametrize(
    ("vendor", "version", "variable", "value", "line"),
    [
        (
            Vendor.MARIADB,
            "10.11.6",
            "tx_isolation",
            "READ-COMMITTED",
            "transaction_isolation = READ-COMMITTED",
        ),
        (Vendor.MYSQL, "8.0.31", "time_zone", "+00:00", "default_time_zone = +00:00"),
        (None, "", "time_zone", "+00:00", "default_time_zone = +00:00"),
        (None, "", "log_bin", "OFF", "skip_log_bin"),
    ],
)
def test_an_option_has_the_name_that_a_file_needs(
    vendor: Vendor | None, version: str, variable: str, value: str, line: str
) -> None:
    assert _option(f"server.{variable}", variable, value, vendor, version).line == line


def test_the_command_prints_the_patch_alone() -> None:
    done = CliRunner().invoke(app, ["apply", "server.innodb_io_capacity=700", "--as", "mysql-operator"])
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.stdout)["spec"]["mycnf"] == "[mysqld]\ninnodb_io_capacity = 700\n"
    assert "not checked: no server was asked" in done.stderr


def test_the_example_of_the_docs() -> None:
    page = (ROOT / "docs/howto/containers.md").read_text()
    found = re.search(r"^headrace (apply .* --as mysql-operator) > patch.yaml$", page, re.MULTILINE)
    assert found is not None
    done = CliRunner().invoke(app, shlex.split(found[1]))
    assert done.exit_code == 0, done.output
    text = yaml.safe_load(done.stdout)["spec"]["mycnf"]
    assert words(text) == {"innodb_io_capacity": "2000", "transaction_isolation": "READ-COMMITTED"}
    table = re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)))
    assert {str(form) for form in Form} <= set(table)
