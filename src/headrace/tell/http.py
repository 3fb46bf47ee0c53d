"""One POST that is repeated while that can help, and that never shows a secret."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import IO, Any

from headrace.base.errors import PlanError, TargetError

#: Seconds before the second, third ... attempt.
WAITS_S = (1.0, 4.0, 9.0)
#: More of an answer is not read.
MOST_BYTES = 65536
#: The server may accept the same message later: too many requests, or its own trouble.
_LATER = (408, 425, 429, 500, 502, 503, 504)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the signature or the token to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect())


def refuse_other_schemes(url: str, place: str) -> None:
    """Raises PlanError; without the address, which may hold a token."""
    found = urllib.parse.urlsplit(url)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise PlanError("its address is not http:// or https://", place=place)


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    attempts: int,
) -> None:
    """Send it. Raises TargetError, which names the host and the reason only."""
    host = urllib.parse.urlsplit(url).hostname or ""
    for attempt in range(1, attempts + 1):
        request = urllib.request.Request(url, body, dict(headers), method="POST")
        try:
            with _OPENER.open(request, timeout=timeout_s) as reply:
                reply.read(MOST_BYTES)
            return
        except urllib.error.HTTPError as error:
            why, may_help = f"HTTP {error.code}", error.code in _LATER
            error.close()
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            why = f"no answer within {timeout_s:g} s" if isinstance(reason, TimeoutError) else _why(reason)
            may_help = not isinstance(error, ValueError)
        if not may_help or attempt == attempts:
            tried = f", {attempt} attempts" if attempt > 1 else ""
            raise TargetError(f"{why}{tried}", place=host)
        time.sleep(WAITS_S[min(attempt, len(WAITS_S)) - 1])


def _why(reason: object) -> str:
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    # Other errors may quote the address.
    return type(reason).__name__
