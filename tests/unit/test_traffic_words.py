"""What ``headrace digest`` and ``headrace recording`` say of sources that are empty or not there."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import traffic
from headrace.cli import digest, recording
from headrace.errors import PlanError


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "no.log: bad input: No such file or directory (os error 2)",
            "db1: cannot read no.log: No such file",
        ),
        # Errors of anything else than a source stay as they are.
        ("--since: bad input: give UTC", "db1: --since: bad input: give UTC"),
    ],
)
def test_a_source_that_is_not_there_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, message: str, said: str
) -> None:
    async def digest_hosts(*_: Any) -> Any:
        raise PlanError(message, place="db1")

    monkeypatch.setattr(traffic, "digest_hosts", digest_hosts)
    with pytest.raises(PlanError) as caught:
        digest._digest_hosts(["no.log"], digest.Question())
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(("an_event", "said"), [(None, "883 bytes"), (572.0, "883 bytes, 572.0 per event")])
def test_a_recording_without_events_has_no_bytes_per_event(an_event: float | None, said: str) -> None:
    sized = {"bytes": 883, "bytes_per_event": an_event}
    info: dict[str, Any] = {
        **sized, "file": "a.rec", "first_start_ns": None, "last_start_ns": None, "segments": [], "events": 0,
        "blocks": {"events": 0, "has_index": True}, "coverage": {},
    }  # fmt: skip
    assert dict(recording._rows_of_info(info))["size"] == said
