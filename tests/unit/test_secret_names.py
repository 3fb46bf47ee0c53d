"""Only passwords are secrets, not the rules for them: one list for the agent, its script and dumps."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.base.secret_names import announces_secret
from headrace.knobs import servers

ROOT = Path(__file__).parents[2]
SECRETS = {
    "report_password", "wsrep_sst_auth", "keyring_migration_password", "s3_access_key", "s3_secret_key",
    "file_key_management_filekey", "hashicorp_key_management_token", "keyring_hashicorp_secret_id",
    "authentication_ldap_simple_bind_root_pwd", "telemetry.otel_exporter_otlp_traces_headers",
    "feedback_http_proxy", "loose-report-password", "report-pass",
}  # fmt: skip
RULES = {
    "validate_password.length", "validate-password-policy", "validate_password_dictionary_file",
    "caching_sha2_password_digest_rounds", "sha256_password_proxy_users", "mysql_native_password_proxy_users",
    "default_password_lifetime", "disconnect_on_expired_password", "generated_random_password_length",
    "innodb_ft_min_token_size", "ngram_token_size", "max_password_errors", "old_passwords",
    "password_history", "password_require_current", "password_reuse_interval", "strict_password_validation",
    "password_reuse_check_interval", "simple_password_check_digits", "cracklib_password_check_dictionary",
    "key_buffer_size", "ssl_key",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_one(name: str) -> None:
    assert announces_secret(name)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_for_secrets_is_none(name: str) -> None:
    assert not announces_secret(name)


def test_of_all_variables_of_four_servers_only_the_known_ones_are_kept_back() -> None:
    kept = set()
    for path in Path(servers.__file__).parent.glob("*.json"):
        kept |= {
            name for name in re.findall(r'^"(\w+)": \{', path.read_text(), re.M) if announces_secret(name)
        }
    assert kept == {"feedback_http_proxy", "report_password", "wsrep_sst_auth"}


@pytest.mark.skipif(shutil.which("awk") is None, reason="no awk")
def test_the_script_of_dumps_decides_the_same() -> None:
    script = (ROOT / "src/headrace/hunt/dumps/collect.sh").read_text()
    function = script[script.index("function secret(text)") :]
    function = function[: function.index("function clean")]
    names = sorted(SECRETS | RULES)
    said = subprocess.run(
        ["awk", function + '{ print (secret($0) ? "kept back" : "shown") }'],
        input="\n".join(names), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.split("\n")[:-1] == ["kept back" if name in SECRETS else "shown" for name in names]


def test_the_agent_has_the_same_words() -> None:
    text = (ROOT / "crates/host/src/facts/redact.rs").read_text()
    secrets, rules = (
        re.findall(r'"([a-z0-9_]+)"', found)
        for found in re.findall(r"^const \w+: \[&str; \d+\] =\s*\[(.*?)\];", text, re.M | re.S)
    )
    assert len(secrets) == 10
    assert len(rules) == 15
    assert all(announces_secret(f"x{word}x") for word in secrets)
    assert not any(announces_secret(word) for word in rules)
