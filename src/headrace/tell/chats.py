"""Chats and mail by Apprise: one address per line in a file of its own format, because addresses hold tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base import extras
from headrace.base.errors import PlanError, TargetError
from headrace.base.temporary import temporary_folder
from headrace.show.notice import Conclusion, Notice
from headrace.tell import picture, words

if TYPE_CHECKING:
    from headrace.tell.kind import Teller

#: Conclusion -> Apprise's kind of message, which services colour.
_KINDS = {
    Conclusion.WORSE: "failure",
    Conclusion.NOT_ENOUGH_DATA: "warning",
    Conclusion.BETTER: "success",
    Conclusion.RAISED: "warning",
    Conclusion.RESOLVED: "success",
}


def opened(place: str) -> Teller:
    extras.require("apprise")
    import apprise

    if not Path(place).is_file():
        raise PlanError("no such file", place=place, hint="one Apprise address per line; headrace docs tell")
    config = apprise.AppriseConfig()
    # As a path: an address here would be fetched.
    config.add(str(Path(place).resolve()))
    services = config.services()
    if not services:
        raise PlanError("no address in it that Apprise understands", place=place)
    return lambda notice: _tell(services, notice)


def _tell(services: list[Any], notice: Notice) -> None:
    """Raises TargetError with the names of the services that refused it; their addresses hold tokens."""
    failed = []
    with temporary_folder() as folder:
        attached = picture.drawn(notice, folder / "verdict.png")
        for service in services:
            if not _sent(service, notice, attached):
                failed.append(str(service.service_name or "a service"))
    if failed:
        raise TargetError(
            f"{len(failed)} of {len(services)} refused it: {', '.join(failed)}",
            hint="`apprise -vv -c FILE -b test` says why",
        )


def _sent(service: Any, notice: Notice, attached: Path | None) -> bool:
    import apprise

    one = apprise.Apprise()
    one.add(service)
    found = one.notify(
        title=words.title(notice),
        body=words.plain(notice),
        notify_type=_KINDS.get(notice.conclusion, "info"),
        body_format=apprise.NotifyFormat.TEXT,
        attach=str(attached) if attached and service.attachment_support else None,
    )
    return bool(found)
