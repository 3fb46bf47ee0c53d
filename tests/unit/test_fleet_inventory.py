"""Where a fleet's hosts come from: files of our own, and those that people have already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import PlanError
from headrace.fleet.inventory import load, only
from headrace.host.target import TargetSpec


def test_a_range_of_names_is_a_fleet() -> None:
    fleet = load("db[1-3],root@other:2222")
    assert list(fleet.hosts) == ["db1", "db2", "db3", "other:2222"]
    assert fleet.hosts["db1"].spec == TargetSpec("ssh", host="db1", reconnect_s=20.0)
    assert fleet.hosts["other:2222"].spec.user == "root"
    assert (fleet.fan_out, fleet.fan_out_jump) == (64, 8)


def test_a_group_overrides_the_fleet_and_a_host_has_the_tags_of_all_its_lists(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(
        """
        [fleet]
        hosts = ["db[1-4]"]
        user = "root"
        tags = ["prod"]
        jump = "gate"
        fan_out = 8
        mysql = { socket = "/run/mysqld/mysqld.sock" }
        [[fleet.groups]]
        hosts = ["db[2-4]", "::1"]
        port = 2222
        tags = ["replica"]
        [[fleet.groups]]
        files = ["more.txt"]
        user = "dba"
        sudo = true
        mysql = { defaults_file = "~/.my.cnf" }
        """
    )
    (tmp_path / "more.txt").write_text("web[01-02]  # a comment\n\n# another\n")
    fleet = load(str(file))
    assert list(fleet.hosts) == ["db1", "db2", "db3", "db4", "::1", "web01", "web02"]
    first, second, last = (fleet.hosts[name] for name in ("db1", "db2", "web02"))
    assert (first.spec.port, second.spec.port, second.spec.jump) == (None, 2222, "gate")
    assert (sorted(first.tags), sorted(second.tags)) == (["prod"], ["prod", "replica"])
    assert (last.spec.user, last.spec.sudo, last.login.defaults_file) == ("dba", True, "~/.my.cnf")
    assert first.login.socket == "/run/mysqld/mysqld.sock"
    assert fleet.hosts["::1"].spec.host == "::1"
    assert fleet.fan_out == 8
    assert list(only(fleet, tags=("prod", "!replica")).hosts) == ["db1", "web01", "web02"]
    assert list(only(fleet, "db[3-4]").hosts) == ["db3", "db4"]
    with pytest.raises(PlanError, match="not in the fleet: db9"):
        only(fleet, "db9")
    with pytest.raises(PlanError, match="no host of the fleet has these tags"):
        only(fleet, tags=("eu",))


def ansible(tmp_path: Path, content: Any) -> str:
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(content))
    return str(file)


def test_an_inventory_of_ansible(tmp_path: Path) -> None:
    variables = {
        "db1": {"ansible_host": "10.0.0.1", "ansible_port": "2201", "ansible_user": "dba"},
        "db2": {"ansible_ssh_host": "10.0.0.2", "ansible_become": "yes"},
        "db3": {"ansible_ssh_common_args": "-o ProxyJump=gate:22 -o ControlMaster=no"},
        "db4": {"ansible_host": "{{ lookup('dns', 'db4') }}"},
        "win": {"ansible_connection": "winrm"},
    }
    content = {
        "_meta": {"hostvars": variables},
        "all": {"children": ["ungrouped", "mysql"]},
        "mysql": {"children": ["sources", "replicas"]},
        "sources": {"hosts": ["db1"]},
        "replicas": {"hosts": ["db2", "db3", "db4", "db5"]},
        "circle": {"children": ["circle"]},
        "ungrouped": {"hosts": ["win"]},
    }
    hosts = load(ansible(tmp_path, content)).hosts
    assert set(hosts) == {"db1", "db2", "db3", "db4", "db5", "win"}
    db1 = hosts["db1"]
    assert (db1.spec.host, db1.spec.port, db1.spec.user) == ("10.0.0.1", 2201, "dba")
    assert db1.tags == {"mysql", "sources"}
    assert hosts["db2"].spec.sudo
    assert hosts["db3"].spec.jump == "gate:22"
    assert "template that was not resolved" in hosts["db4"].why_not
    assert "winrm" in hosts["win"].why_not
    assert not hosts["db5"].why_not


def test_a_group_that_names_a_host_leaves_it_where_its_list_says_it_is(tmp_path: Path) -> None:
    """Otherwise what the name leads to would be asked, or changed, as another account."""
    variables = {
        "db1": {"ansible_host": "10.0.0.1", "ansible_port": "2201", "ansible_user": "dba"},
        "db2": {"ansible_host": "{{ lookup('dns', 'db2') }}"},
    }
    ansible(tmp_path, {"_meta": {"hostvars": variables}})
    (tmp_path / "fleet.toml").write_text(
        """
        [fleet]
        files = ["inventory.json"]
        hosts = ["root@db3"]
        [[fleet.groups]]
        hosts = ["db[1-3]"]
        user = "group"
        tags = ["replica"]
        sudo = true
        """
    )
    hosts = load(str(tmp_path / "fleet.toml")).hosts
    db1 = hosts["db1"]
    assert (db1.spec.host, db1.spec.port, db1.spec.user) == ("10.0.0.1", 2201, "dba")
    assert db1.spec.sudo
    assert all(host.tags == {"replica"} for host in hosts.values())
    assert "template that was not resolved" in hosts["db2"].why_not
    assert (hosts["db3"].spec.host, hosts["db3"].spec.user) == ("db3", "root")


def test_targets_of_prometheus_are_hosts_without_the_exporters_port(tmp_path: Path) -> None:
    groups = [
        {"targets": ["db1:9104", "db2:9104"], "labels": {"dc": "eu", "__path__": "/x"}},
        {"targets": ["db1:9100", "[::1]:9100"], "labels": {"role": "replica"}},
    ]
    for name, text in (
        ("sd.json", json.dumps(groups)),
        ("sd.yml", "- targets: ['db1:9104', 'db2:9104']\n  labels: {dc: eu}\n"
                   "- targets: ['db1:9100', '[::1]:9100']\n  labels: {role: replica}\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
        hosts = load(str(tmp_path / name)).hosts
        assert set(hosts) == {"db1", "db2", "[::1]"}
        assert hosts["db1"].tags == {"dc=eu", "role=replica"}
        assert (hosts["db1"].spec.port, hosts["[::1]"].spec.host) == (None, "::1")


def test_one_machine_under_two_names_is_asked_once(tmp_path: Path) -> None:
    variables = {name: {"ansible_host": "10.0.0.1"} for name in ("db1", "db1-old")}
    hosts = load(ansible(tmp_path, {"_meta": {"hostvars": variables}})).hosts
    assert hosts["db1-old"].why_not == "already listed as db1"
    assert not hosts["db1"].why_not


def test_servers_of_one_machine_have_names_and_logins_of_their_own(tmp_path: Path) -> None:
    text = "[fleet]\nuser = 'root'\n"
    for name, port in (("orders", 3306), ("users", 3307), ("again", 3307)):
        login = f"{{ host = '127.0.0.1', port = {port} }}"
        text += f"[[fleet.groups]]\nhosts = ['{name}=db1.example']\nmysql = {login}\n"
    path = tmp_path / "fleet.toml"
    path.write_text(text + "[[fleet.groups]]\nhosts = ['machine=db1.example']\n")
    hosts = load(str(path)).hosts
    assert {name: host.login.port for name, host in hosts.items() if not host.why_not} == {
        "orders": 3306,
        "users": 3307,
    }
    assert {host.spec.host for host in hosts.values()} == {"db1.example"}
    assert hosts["again"].why_not == "already listed as users"
    # Which server this is, is not said.
    assert hosts["machine"].why_not == "already listed as orders"


def test_one_name_for_two_servers_is_refused_and_a_group_overrides_the_fleet(tmp_path: Path) -> None:
    group = "[[fleet.groups]]\nhosts = ['{}']\nmysql = {{ socket = '/{}.sock' }}\n"
    path = tmp_path / "fleet.toml"
    path.write_text("[fleet]\n" + group.format("o=db1", "a") + group.format("o=db1", "b"))
    with pytest.raises(PlanError, match="two hosts are named o, with different servers"):
        load(str(path))
    path.write_text("[fleet]\nhosts = ['db1']\nmysql = { socket = '/a.sock' }\n" + group.format("db1", "b"))
    assert load(str(path)).hosts["db1"].login.socket == "/b.sock"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("fleet.toml", "[fleet]\nhost = ['db1']", "fleet.host: extra inputs"),
        ("fleet.toml", "[fleet]\nhosts = ['db1']\nport = 70000", "fleet.port: "),
        ("fleet.toml", "[flet]\n", "has no \\[fleet\\]"),
        ("fleet.toml", "[fleet]\nhosts = ['db1=']", "write ADDRESS, or NAME=ADDRESS"),
        ("fleet.toml", "[fleet]\n", "has no hosts"),
        ("fleet.toml", "[fleet", "not TOML"),
        ("a.json", "{", "not JSON"),
        ("a.json", '{"db1": 1}', "ansible-inventory"),
        ("a.json", '[{"target": 1}]', "file_sd"),
        ("a.yml", "a: [", "not YAML"),
        ("a.txt", "db[1-", "brackets"),
        ("a.txt", "\n", "has no hosts"),
        ("a.txt", "\xff\xfe", "has no hosts|target|text"),
    ],
)
def test_a_wrong_list_is_refused_with_its_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(PlanError, match=said):
        load(str(tmp_path / name))


def test_a_missing_file_is_no_host_of_that_name() -> None:
    with pytest.raises(PlanError, match="no such file"):
        load("fleet.toml")


def test_groups_that_share_children_are_read_once(tmp_path: Path) -> None:
    file = tmp_path / "inventory.json"
    # 2 ** 40 ways lead from the first group to the host.
    layers: dict[str, Any] = {
        f"{side}{n}": {"children": [f"a{n + 1}", f"b{n + 1}"]} for n in range(40) for side in "ab"
    }
    file.write_text(json.dumps({**layers, "a40": {"hosts": ["db1"]}, "b40": {"children": ["a0"]}}))
    host = load(str(file)).hosts["db1"]
    assert {"a0", "b39", "a40"} <= host.tags


KEYS = ", ".join(f"k{n}: 1" for n in range(10))
COPIES = [f"- &a0 {{{KEYS}}}", *(f"- &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 10))]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("f.yaml", "[" * 100_000, "too deeply nested"),
        ("f.yaml", "\n".join(COPIES), "copies more than 100,000 keys"),
        ("f.yaml", "- targets: [{a: b}]\n", "is a dict, not text"),
        ("f.yaml", "- labels: {l: &l [a, b]}\n  targets: [*l]\n", "is a list, not text"),
        ("f.yaml", "- targets: " + "9" * 10_000 + "\n", "not YAML that is read"),
        ("f.json", "[" * 100_000, "deeper than 100 levels"),
        ("f.json", '[{"targets": ["a"], "labels": {"l": NaN}}]', "NaN is not a number"),
        ("f.json", '[{"targets": "db1"}]', "targets a list"),
    ],
)
def test_a_list_that_would_become_anything_is_refused(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PlanError, match=said):
        load(str(tmp_path / name))


def test_a_huge_list_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "f.yaml").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(PlanError, match="cannot be read"):
        load(str(tmp_path / "f.yaml"))


def test_a_host_is_there_for_its_memcached(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(
        '[fleet]\nhosts = ["root@cache1", "here=local"]\nmemcached = ":11211"\n'
        '[[fleet.groups]]\nhosts = ["ns=exec:nsenter -t 12 -n"]\nmemcached = "10.0.0.1:11212"\n'
        '[[fleet.groups]]\nhosts = ["second=root@cache1"]\nmemcached = ":11212"\n'
    )
    hosts = load(str(path)).hosts
    assert {name: each.memcached for name, each in hosts.items()} == {
        "cache1": "cache1:11211",
        "here": "127.0.0.1:11211",
        "ns": "10.0.0.1:11212",
        "second": "cache1:11212",
    }
    assert hosts["ns"].spec.path == "exec:nsenter -t 12 -n"
    # Two of its servers, not two names of one.
    assert not hosts["second"].why_not
    path.write_text('[fleet]\nhosts = ["exec:nsenter -t 12 -n"]\nmemcached = ":11211"\n')
    with pytest.raises(PlanError, match="has no address of its own"):
        load(str(path))
