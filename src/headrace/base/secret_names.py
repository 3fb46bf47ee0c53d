"""Which settings hold secrets, by their names: as the agent decides, in crates/host/src/facts/redact.rs."""

from __future__ import annotations

import re

_SECRETS = re.compile("pass|pwd|secret|token|credential|sst_auth|access_key|filekey|_headers|http_proxy")
#: They speak of passwords and tokens and hold none: rules for them, their plugins, sizes of words.
_RULES = re.compile(
    "validate_password|sha2_password_|sha256_password_|native_password_|old_passwords|expired_password|token_size"
    "|password_(check|errors|history|length|lifetime|require_current|reuse|validation)"
)


def announces_secret(name: str) -> bool:
    """Whether the name announces a secret: what is left of it without the rules for passwords."""
    return _SECRETS.search(_RULES.sub(" ", name.lower().replace("-", "_"))) is not None
