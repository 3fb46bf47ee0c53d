"""What `headrace latencies` measured of a device without load is kept for the next hunt of the same target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.hunt.ladder.ladder import ALONE, remember, remembered
from headrace.hunt.ladder.published import Ladder, Rung


def measured(device: str | None, read_ms: float, spoiled_by: tuple[str, ...] = ()) -> Ladder:
    ns = 1e6 * read_ms
    rung = Rung(ALONE, "16 KB random read", ns, ns, ns, ns, ns, 0.95, 100, "", (), None, None)
    return Ladder((rung,), {}, spoiled_by, {}, None, device)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "headrace" / "alone.json"


def test_each_target_has_its_devices() -> None:
    remember("root@db1", measured("/dev/nvme0n1", 0.09))
    remember("root@db1", measured("sdb", 0.4))
    remember("root@db2", measured("nvme0n1", 0.2))
    assert remembered("root@db1") == {"nvme0n1": 0.09, "sdb": 0.4}
    assert remembered("local") == {}


def test_a_disturbed_table_is_not_kept() -> None:
    remember("local", measured("vda", 3.0, ("other programs used 90% of the CPUs",)))
    remember("local", measured(None, 3.0))
    assert remembered("local") == {}


@pytest.mark.parametrize("text", ["", "[]", '{"local": {"vda": "x"}}', '{"local": {"vda": -1}}'])
def test_a_damaged_file_is_ignored(text: str, state: Path) -> None:
    state.parent.mkdir()
    state.write_text(text)
    found: dict[str, Any] = remembered("local")
    assert found == {}
