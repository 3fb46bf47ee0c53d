"""`apply --persist files` as root, beside an account that changes what our option file's name means."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.agent.test_file_door import SECRET, flipping, plant
from tests.option_lab import OWN, option_lab

#: Rounds; `make torture` makes 100.
ROUNDS = int(os.environ.get("HEADRACE_TRUST", "4"))
MYSQL = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root gives folders to another account")


@pytest.mark.thorough
def test_nothing_foreign_is_read_or_written_and_nothing_hangs(folder: Path) -> None:
    with option_lab("mariadb-10.11", folder / "lab") as lab:
        lab.clear()
        conf = lab.etc / "conf.d"
        secret = folder / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        name = lab.etc / OWN
        plant(lambda at: at.write_text("# Written by headrace\n"), name)
        aside = lab.etc / "aside"
        aside.mkdir()
        plants = [aside / each for each in ("link", "pipe", "second", "folder", "zero")]
        plant(lambda at: at.symlink_to(secret), plants[0])
        plant(os.mkfifo, plants[1])
        os.link(secret, plants[2])
        plant(os.mkdir, plants[3])
        plant(lambda at: at.symlink_to("/dev/zero"), plants[4])
        for each in (conf, aside):
            os.chown(each, MYSQL, MYSQL)
        codes: dict[int, int] = {}
        with flipping(name, *plants):
            for number in range(ROUNDS):
                began = time.monotonic()
                done = lab.headrace(
                    "apply", f"server.max_connections={80 + number % 9}", "--persist", "files"
                )
                assert time.monotonic() - began < 120
                codes[done.returncode] = codes.get(done.returncode, 0) + 1
                assert "$6$" not in done.stdout + done.stderr
                lab.headrace("rollback", "--last")
                assert secret.read_text() == SECRET
                assert secret.stat().st_mode & 0o777 == 0o600
        for path in [*conf.iterdir(), *aside.iterdir()]:
            if path.is_file() and not path.is_symlink() and path.stat().st_ino != secret.stat().st_ino:
                assert "$6$" not in path.read_text()
        # Done, refused, or not ready as the files are no plain ones; or the binary itself, as its account, waited.
        assert set(codes) <= {0, 1, 4, 5, 6}, codes
