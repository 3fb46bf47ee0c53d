"""``headrace serve`` as a command: where it refuses to listen, its users, what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.web.users import Role, Users
from tests.unit.test_extras import headrace_without

PASSWORD = "correct horse battery"


def user(folder: Path, verb: str, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return serve(folder, *arguments, words=("serve", "user", verb), typed=typed)


def serve(
    folder: Path, *arguments: str, words: Sequence[str] = ("serve",), typed: str = ""
) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "headrace", *words, "--data", str(folder / "history"), *arguments]
    env = {**os.environ, "HOME": str(folder)}
    return subprocess.run(argv, capture_output=True, text=True, input=typed, env=env, timeout=60, check=False)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8306", "db.example.com:8306"])
def test_an_address_that_others_reach_needs_tls(tmp_path: Path, address: str) -> None:
    answer = serve(tmp_path, "--listen", address)
    assert answer.returncode == 5, answer.stderr
    assert "needs TLS" in answer.stderr


def test_and_users(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("")
    answer = serve(
        tmp_path, "--listen", "0.0.0.0:0", "--tls-cert", f"{tmp_path}/c.pem", "--tls-key", f"{tmp_path}/c.pem"
    )
    assert answer.returncode == 5, answer.stderr
    assert "needs users" in answer.stderr
    assert "user add" in answer.stderr


@pytest.mark.parametrize("address", ["", "8306", "localhost", "127.0.0.1:x", "127.0.0.1:99999"])
def test_what_is_no_address(tmp_path: Path, address: str) -> None:
    assert serve(tmp_path, "--listen", address).returncode == 3


def test_a_history_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """As one of another user, or on a read-only file system: it ended with a stack of Python's calls."""
    (tmp_path / "history" / "lock").mkdir(parents=True)
    answer = serve(tmp_path, "--listen", "127.0.0.1:0")
    assert answer.returncode == 9, answer.stderr
    assert "history/lock: cannot be written: Is a directory" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_user_is_added_and_removed(tmp_path: Path) -> None:
    typed = f"{PASSWORD}\n"
    answer = user(tmp_path, "add", "ann", "--role", "operator", typed=typed)
    assert answer.returncode == 0, answer.stderr
    users = Users(tmp_path / "history" / "users")
    assert users.all() == {"ann": Role.OPERATOR}
    assert users.verify("ann", PASSWORD)
    assert PASSWORD not in answer.stdout + answer.stderr
    assert user(tmp_path, "add", "bob", "--role", "root", typed=typed).returncode == 3
    assert user(tmp_path, "remove", "ann").returncode == 0
    assert not users.all()
    assert user(tmp_path, "remove", "ann").returncode == 3


def test_a_user_whom_only_a_proxy_names(tmp_path: Path) -> None:
    answer = user(tmp_path, "add", "ann", "--role", "viewer", "--no-password")
    assert answer.returncode == 0, answer.stderr
    users = Users(tmp_path / "history" / "users")
    assert users.all() == {"ann": Role.VIEWER}
    assert users.path.read_text() == "ann viewer -\n"


PROXY = '[proxy]\naddresses = ["10.0.0.7"]\nuser_header = "Remote-User"\n'
PROVIDER = (
    '[oidc]\nissuer = "https://id.x"\nclient_id = "h"\nurl = "https://db.x"\nroles = {dba = "viewer"}\n'
)


@pytest.mark.parametrize(
    ("content", "arguments", "code", "said"),
    [
        # What crosses the network in the clear can be read and changed on its way, a proxy's header, too.
        (PROXY, ["--listen", "0.0.0.0:0"], 5, "needs TLS"),
        (PROXY.replace("10.0.0.7", "127.0.0.1"), [], 5, "every account on this machine"),
        ("[oidc]\nclient_secret = 'do not print'", [], 3, "auth.toml: oidc."),
    ],
)
def test_others_who_know_users(
    tmp_path: Path, content: str, arguments: list[str], code: int, said: str
) -> None:
    path = tmp_path / "auth.toml"
    path.touch(mode=0o600)
    path.write_text(content)
    answer = serve(tmp_path, "--auth", str(path), *arguments)
    assert answer.returncode == code, answer.stderr
    assert said in answer.stderr
    assert "do not print" not in answer.stderr


def test_a_provider_without_the_extra(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    path.touch(mode=0o600)
    path.write_text(PROVIDER)
    arguments = ["serve", "--data", str(tmp_path / "history"), "--auth", str(path)]
    answer = headrace_without("authlib", arguments=arguments)
    assert answer.returncode == 4, answer.stderr
    assert "pip install 'headrace[oidc]'" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_without_the_extra_it_is_named(tmp_path: Path) -> None:
    answer = headrace_without("starlette", arguments=["serve", "--data", str(tmp_path)])
    assert answer.returncode == 4, answer.stderr
    assert "pip install 'headrace[web]'" in answer.stderr
    assert "Traceback" not in answer.stderr
