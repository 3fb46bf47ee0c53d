"""Histograms of HdrHistogram: what other programs wrote is read whole, and anything else is refused."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.hdr import decode


def encoded(
    counts: dict[int, int],
    *,
    digits: int = 2,
    lowest: int = 1,
    version: int = 2,
    width: int = 8,
    offset: int = 0,
) -> str:
    """As the library writes it. ``counts``: by the bucket's number."""
    if version == 2:
        body, at = b"", 0
        for index in sorted(counts):
            if index > at:
                body += _zigzag(at - index)
            body += _zigzag(counts[index])
            at = index + 1
        cookies = 0x1C849313, 0x1C849314
    else:
        words = [counts.get(index, 0) for index in range(max(counts, default=0) + 1)]
        body = struct.pack(f">{len(words)}{ {2: 'h', 4: 'i', 8: 'q'}[width] }", *words)
        cookies = 0x1C849301 | width << 4, 0x1C849302 | width << 4
    head = struct.pack(">iiiiqqd", cookies[0], len(body), offset, digits, lowest, 3_600_000_000_000, 1.0)
    packed = zlib.compress(head + body)
    return base64.b64encode(struct.pack(">ii", cookies[1], len(packed)) + packed).decode()


def _zigzag(number: int) -> bytes:
    word = (number << 1 ^ number >> 63) & (1 << 64) - 1
    found = bytearray()
    while len(found) < 8 and word >= 0x80:
        found.append(word & 0x7F | 0x80)
        word >>= 7
    return bytes([*found, word])


def value_of(index: int, digits: int, lowest: int) -> int:
    """The highest value of a bucket, by going through all before it."""
    half = 1
    while half * 2 < 2 * 10**digits:
        half *= 2
    width, value = 1 << (lowest.bit_length() - 1), 0
    for each in range(index + 1):
        if each >= 2 * half and each % half == 0:
            width *= 2
        value += width
    return value - 1


@pytest.mark.parametrize(("version", "width"), [(2, 8), (1, 2), (1, 4), (1, 8)])
@given(
    counts=st.dictionaries(st.integers(0, 3000), st.integers(1, 30_000), max_size=20),
    digits=st.integers(1, 3),
    lowest=st.sampled_from([1, 1000]),
)
def test_what_is_encoded_is_decoded(
    version: int, width: int, counts: dict[int, int], digits: int, lowest: int
) -> None:
    counts = {index % (500 if digits < 2 else 3001): count for index, count in counts.items()}
    text = encoded(counts, digits=digits, lowest=lowest, version=version, width=width)
    assert decode(text) == [(value_of(index, digits, lowest), counts[index]) for index in sorted(counts)]


def test_a_log_of_another_program() -> None:
    """The first interval of jHiccup's log in HdrHistogram's tests; the log says its maximum: 2.769 ms."""
    found = decode(
        "HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZkKmcCAEf2CsI="
    )
    assert sum(count for _, count in found) == 741
    assert round(found[-1][0] / 1e6, 3) == 2.769


BOMB = base64.b64encode(struct.pack(">ii", 0x1C849314, 99_999) + zlib.compress(bytes(40 << 20))).decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cut off"),
        ("!!!", "no base64"),
        ("é", "no base64"),
        (base64.b64encode(b"x" * 40).decode(), "no histogram"),
        (base64.b64encode(struct.pack(">ii", 0x1C849319, 4) + b"xxxx").decode(), "before 2.1"),
        (encoded({1: 1})[:-12], "cut off|damaged|base64"),
        (encoded({1: 1}, offset=3), "shifted"),
        (encoded({1: 1}, digits=9), "header cannot be"),
        (encoded({1: 1}, lowest=0), "header cannot be"),
        (encoded({1 << 21: 1}), "more buckets"),
        (encoded({9000: 1}), "counts or values cannot be"),
        ("A" * (5 << 20), "4 MiB"),
        (BOMB, "16 MiB"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode(text)


@given(content=st.binary(max_size=200))
def test_no_bytes_raise_anything_else(content: bytes) -> None:
    for cookie in (0x1C849313, 0x1C849381):
        head = struct.pack(">iiiiqqd", cookie, len(content), 0, 2, 1, 1000, 1.0)
        try:
            found = decode(base64.b64encode(head + content).decode())
        except ValueError:
            continue
        assert all(value >= 0 and count > 0 for value, count in found)
