"""``apply --as FORM`` with a server that answers: its ranges and names count, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.option_lab import OptionLab, option_lab
from tests.servers import open_folder

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.needs("root")


@pytest.fixture(scope="module")
def lab() -> Iterator[OptionLab]:
    with open_folder() as folder, option_lab("mariadb-10.11", Path(folder) / "lab") as made:
        yield made


def test_a_patch_is_checked_against_the_server_and_holds_when_it_is_put_in(lab: OptionLab) -> None:
    before = lab.value("innodb_io_capacity")
    settings = ["server.innodb_io_capacity=700", "server.transaction_isolation=READ-COMMITTED"]
    weaker = ["--allow-weaker", "server.transaction_isolation"]
    done = lab.headrace("apply", *settings, *weaker, "--as", "mariadb-operator", code=0)
    text = yaml.safe_load(done.stdout)["spec"]["myCnf"]
    assert lab.value("innodb_io_capacity") == before
    assert lab.read() is None
    assert "another option file" in done.stderr
    lab.write("conf.d/zz-headrace.cnf", text)
    lab.restart()
    assert lab.value("innodb_io_capacity") == "700"
    assert lab.value("tx_isolation") == "READ-COMMITTED"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("server.innodb_io_capacity=5",), "of at least 100"),
        (("server.innodb_flush_log_at_trx_commit=2",), "--allow-weaker"),
        (("server.innodb_io_capacity=700", "--as", "mysql-operator"), "which mysql-operator does not run"),
        (("server.innodb_io_capacity=700", "--persist", "files"), "--as only prints"),
    ],
)
def test_what_a_dry_run_refuses_is_not_printed(lab: OptionLab, words: tuple[str, ...], says: str) -> None:
    form = () if "--as" in words else ("--as", "compose")
    done = lab.headrace("apply", *words, *form)
    assert done.returncode != 0
    assert done.stdout == ""
    assert says in " ".join(done.stderr.replace("│", " ").split())
