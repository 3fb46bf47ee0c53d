"""What a hunt says about whole hosts: through the real agent, kept word for word in tests/hosts/golden.

``HEADRACE_GOLDEN=write pytest tests/unit/test_golden_hosts.py`` writes them anew, to be read before they are kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from headrace.hunt import hunt
from headrace.hunt.resources import Level
from tests.folders import TESTS
from tests.golden_hosts import HOSTS

GOLDEN = TESTS / "hosts" / "golden"


def said(found: hunt.Hunt) -> dict[str, Any]:
    """What a reader acts on. Resources that are fine are left out, but for the CPUs."""
    uses = [
        use for use in found.verdict.uses if use.level is not Level.FINE or use.name == "cpu" or use.traps
    ]
    return {
        "sentence": found.verdict.sentence,
        "limiting": found.verdict.limiting.name if found.verdict.limiting else None,
        "levels": {use.name: str(use.level) for use in uses},
        "traps": {use.name: list(use.traps) for use in uses if use.traps},
        "findings": {finding.id: str(finding.severity) for finding in found.judgement.findings},
    }


@pytest.mark.parametrize("name", HOSTS)
def test_a_saved_host_has_its_golden_verdict(name: str, tmp_path: Path) -> None:
    snapshot = HOSTS[name](tmp_path / name)
    assert not snapshot.errors.keys() - {"psi"}, "only an old kernel's pressure may be missing"
    found = said(hunt.examine(snapshot))
    path = GOLDEN / f"{name}.json"
    if os.environ.get("HEADRACE_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(path.read_text())


#: Hosts without a fault, quiet, busy, and as they are installed: nothing there limits or costs anything.
HEALTHY = ("idle", "nvme-healthy", "nvme-with-noise", "nvme-as-it-came", "nvme-looks-full")


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_host_hears_of_no_limit_and_no_cost(name: str) -> None:
    kept = json.loads((GOLDEN / f"{name}.json").read_text())
    assert not {"bottleneck", "cost"} & set(kept["findings"].values())


def test_every_golden_file_has_its_host() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(HOSTS)
