"""An annotation in Grafana: the change, or the moment of telling, with the verdict as its text and tags."""

from __future__ import annotations

import json
import time
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from headrace.show.notice import Notice
from headrace.tell import http, words
from headrace.tell.files import checked, secret, settings

if TYPE_CHECKING:
    from headrace.tell.kind import Teller


class Settings(BaseModel):
    """Grafana's TOML file. Without a dashboard the annotation belongs to the organisation."""

    model_config = ConfigDict(extra="forbid")
    url: str
    token_file: str
    dashboard_uid: str = ""
    panel_id: int | None = Field(None, ge=1)
    tags: list[str] = Field(default_factory=list, max_length=50)
    timeout_s: float = Field(10.0, gt=0, le=60)
    attempts: int = Field(3, ge=1, le=10)


def opened(place: str) -> Teller:
    content, folder = settings(Path(place))
    own = checked(Settings, content, Path(place))
    http.refuse_other_schemes(own.url, place)
    headers = {
        "Authorization": f"Bearer {secret(folder / own.token_file)}",
        "Content-Type": "application/json",
    }
    url = f"{own.url.rstrip('/')}/api/annotations"

    def tell(notice: Notice) -> None:
        body = json.dumps(annotation(notice, own)).encode()
        http.post(url, body, headers, timeout_s=own.timeout_s, attempts=own.attempts)

    return tell


def annotation(notice: Notice, own: Settings) -> dict[str, object]:
    at_s = time.time() if notice.at_s is None else notice.at_s
    found: dict[str, object] = {
        "time": round(at_s * 1000),
        "tags": ["headrace", notice.kind, str(notice.conclusion), *own.tags],
        # Grafana shows the text as HTML.
        "text": escape(f"{words.title(notice)}\n{words.plain(notice)}"),
    }
    if own.dashboard_uid:
        found["dashboardUID"] = own.dashboard_uid
    if own.panel_id is not None:
        found["panelId"] = own.panel_id
    return found
