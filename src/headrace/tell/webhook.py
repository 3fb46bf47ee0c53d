"""A webhook: the notice as JSON, signed as the Standard Webhooks specification says (``webhook-id``,
``webhook-timestamp``, ``webhook-signature: v1,...``), so that receivers can check it with its libraries.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headrace import __version__
from headrace.base.encode import json_text
from headrace.base.errors import PlanError
from headrace.show.notice import Notice
from headrace.tell import http
from headrace.tell.files import checked, secret, settings

if TYPE_CHECKING:
    from headrace.tell.kind import Teller


class Settings(BaseModel):
    """A webhook's TOML file. An address that is itself a secret is in ``url_file``."""

    model_config = ConfigDict(extra="forbid")
    url: str = ""
    url_file: str = ""
    secret_file: str = ""
    timeout_s: float = Field(10.0, gt=0, le=60)
    attempts: int = Field(3, ge=1, le=10)

    @model_validator(mode="after")
    def _one_address(self) -> Settings:
        if bool(self.url) == bool(self.url_file):
            raise ValueError("name url or url_file")
        return self


def opened(place: str) -> Teller:
    content, folder = settings(Path(place))
    own = checked(Settings, content, Path(place))
    url = own.url or secret(folder / own.url_file)
    http.refuse_other_schemes(url, place)
    key = _key(secret(folder / own.secret_file), str(folder / own.secret_file)) if own.secret_file else b""

    def tell(notice: Notice) -> None:
        body = json_text({"headrace": __version__, "notice": notice}).encode()
        http.post(
            url, body, headers(body, key), timeout_s=own.timeout_s, attempts=own.attempts
        )  # fmt: skip

    return tell


def headers(body: bytes, key: bytes) -> dict[str, str]:
    """The same for every attempt: a receiver sees by the id that it has it already."""
    name, at = f"msg_{uuid.uuid4().hex}", str(int(time.time()))
    found = {
        "Content-Type": "application/json",
        "User-Agent": f"headrace/{__version__}",
        "webhook-id": name,
        "webhook-timestamp": at,
    }
    if key:
        digest = hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
        found["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return found


def _key(text: str, place: str) -> bytes:
    """``whsec_`` and base64, as the specification writes a secret; any other line is the key itself."""
    if not text.startswith("whsec_"):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise PlanError("after whsec_ it is not base64", place=place) from None
