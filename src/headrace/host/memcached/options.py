"""What a memcached process was started with: where it listens, and what keeps a reader out.

memcached has no option file of its own: distributions turn /etc/memcached.conf into arguments, so the command line
is all that it was told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

DEFAULT_PORT = 11211
#: Letters of options that take a value, as in memcached 1.6's own list.
_WITH_VALUE = frozenset("apsUmculPfntDRbBIYeoN")
#: Long names of the options that are read here -> their letters.
_LONG = {
    "port": "p", "unix-socket": "s", "udp-port": "U", "listen": "l", "protocol": "B",
    "enable-sasl": "S", "enable-ssl": "Z", "auth-file": "Y",
}  # fmt: skip
_ANY = frozenset(("0.0.0.0", "*", "inaddr_any", ""))


@dataclass(frozen=True)
class Started:
    """``addresses``: ``HOST:PORT`` or a socket's path, as one may ask there; ``locked``: why the text protocol
    without a login is not spoken, empty if it is."""

    addresses: tuple[str, ...]
    locked: str = ""


def started(command_line: Sequence[str]) -> Started:
    """The first word is the program's name."""
    given: dict[str, list[str]] = {}
    for letter, value in _options(command_line[1:]):
        given.setdefault(letter, []).append(value)
    listen = [each.strip() for value in given.get("l", []) for each in value.split(",")]
    open_ones = [each.removeprefix("notls:") for each in listen if each.startswith("notls:")]
    locked = _locked(given, bool(open_ones))
    if path := given.get("s", [""])[-1]:
        return Started((path,), locked)
    port = given.get("p", [str(DEFAULT_PORT)])[-1]
    hosts = open_ones if open_ones and "Z" in given else [each.removeprefix("notls:") for each in listen]
    addresses = (_address(each, port) for each in hosts or [""])
    return Started(tuple(each for each in addresses if each), locked)


def _locked(given: Mapping[str, Sequence[str]], has_open_listener: bool) -> str:
    protocol = given.get("B", [""])[-1].lower()
    if "Z" in given and not has_open_listener:
        return "it speaks TLS alone (-Z), which is not read"
    if "S" in given:
        return "it demands a login by SASL (-S), which is not read"
    if "Y" in given:
        return "it demands a login (-Y), which is not read"
    return (
        "it speaks the binary protocol alone (-B binary), which is not read" if protocol == "binary" else ""
    )


def _address(listen: str, port: str) -> str:
    """Empty for a port that is off, chosen at random, or no number."""
    host = listen
    if listen.startswith("["):
        host, _, own = listen[1:].partition("]")
        port = own.removeprefix(":") or port
    elif listen.count(":") == 1:
        host, _, port = listen.partition(":")
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        return ""
    host = "127.0.0.1" if host.lower() in _ANY else "::1" if host == "::" else host
    return f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}"


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Letters with their values, as getopt_long reads them; long names that are not read here are left out."""
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            letter = _LONG.get(name, "")
            if letter in _WITH_VALUE and letter and not has_value:
                value = next(rest, "")
            if letter:
                yield letter, value
        elif word.startswith("-"):
            for at, letter in enumerate(word[1:], start=2):
                if letter in _WITH_VALUE:
                    yield letter, word[at:] or next(rest, "")
                    break
                yield letter, ""
