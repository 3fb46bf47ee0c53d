"""Names of hosts and users that a ``ProxyCommand`` would take for options or for more words."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import TargetError
from headrace.host.target import TargetSpec, open_target
from headrace.host.target.link import NotLetIn


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a ``ProxyCommand`` was called with, a line per word."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    words = tmp_path / "words"
    proxy = tmp_path / "proxy"
    proxy.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{words}\n")
    proxy.chmod(0o755)
    (tmp_path / ".ssh" / "config").write_text(f"Host *\n  ProxyCommand {proxy} -W %h:%p -l %r gate\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    return words


@pytest.mark.parametrize(
    ("host", "user"),
    [
        ("-oProxyCommand=reboot", "root"),
        ("db1 -oProxyCommand=reboot", "root"),
        ("db1\t-F/tmp/config", "root"),
        ("$(reboot)", "root"),
        ("db1;reboot", "root"),
        ("db1", "-oProxyCommand=reboot"),
        ("db1", "root -oProxyCommand=reboot"),
        ("db1", "root\\"),
    ],
)
async def test_no_name_becomes_an_option_of_the_way_there(called: Path, host: str, user: str) -> None:
    with pytest.raises(NotLetIn, match="not a host's name, or not a user's"):
        await open_target(TargetSpec("ssh", host=host, user=user)).connect()
    assert not called.exists()


@pytest.mark.parametrize(("host", "user"), [("db-1.example.com", "CORP\\ann"), ("fe80::1%eth0", "svc$")])
async def test_names_as_they_are_given_go_that_way(called: Path, host: str, user: str) -> None:
    with pytest.raises(TargetError) as caught:
        await open_target(TargetSpec("ssh", host=host, user=user)).connect()
    assert not isinstance(caught.value, NotLetIn)
    assert called.read_text().splitlines()[1] == f"{host}:22"


@pytest.mark.parametrize("hop", ["-x", "a;b", "u'@gate"])
async def test_nor_does_one_of_a_jump_host(called: Path, hop: str) -> None:
    with pytest.raises(NotLetIn):
        await open_target(TargetSpec("ssh", host="db1", user="root", jump=hop)).connect()
    assert not called.exists()
