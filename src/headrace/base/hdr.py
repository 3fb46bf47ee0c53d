"""Histograms of HdrHistogram, as its interval logs have them: base64 of a compressed array of counts.

    decode("HISTFAAAAEV42pNpmSzM...")  ->  [(1_003, 12), (2_047, 4), ...]

The format is that of HdrHistogram 2.1 and later (encodings V1 and V2): two big-endian headers, zlib between them,
and counts per bucket, in V2 as ZigZag LEB128 where a negative number is a run of empty buckets. The buckets follow
from the lowest value and the significant digits in the header.
Source: https://github.com/HdrHistogram/HdrHistogram, AbstractHistogram.java.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
import zlib
from collections.abc import Iterator

#: An encoded histogram, and what it may become: 5 digits over 64 bits are 8 M counts, of which no log has as many.
MOST_TEXT, MOST_BYTES, MOST_COUNTS = 4 << 20, 16 << 20, 1 << 20
#: A count or a value above it is none.
MOST_COUNT, MOST_VALUE = 1 << 53, 1 << 62
_COMPRESSED = {0x1C849302: "V1", 0x1C849304: "V2"}
_PLAIN = {0x1C849301: "V1", 0x1C849303: "V2"}
_OLD = (0x1C849308, 0x1C849309)
_HEADER = struct.Struct(">iiiiqqd")
_WORDS = {2: "h", 4: "i", 8: "q"}
MOST_DIGITS = 5


def decode(text: str) -> list[tuple[int, int]]:
    """(highest value of the bucket, count) for each bucket with counts, ascending. Raises ValueError."""
    if len(text) > MOST_TEXT:
        raise ValueError("a histogram of more than 4 MiB")
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("no base64") from None
    payload = _unpacked(content)
    if len(payload) < _HEADER.size:
        raise ValueError("a histogram that is cut off")
    cookie, length, offset, digits, lowest, _, _ = _HEADER.unpack_from(payload)
    version = _PLAIN.get(cookie & ~0xF0)
    counts = payload[_HEADER.size : _HEADER.size + max(length, 0)]
    if version is None:
        raise ValueError("no histogram of HdrHistogram 2.1 or later")
    if offset:
        raise ValueError("a histogram whose buckets are shifted, as of doubles that resize themselves")
    if not (0 <= digits <= MOST_DIGITS and 1 <= lowest < MOST_VALUE) or len(counts) != length:
        raise ValueError("a histogram that is cut off, or whose header cannot be")
    words = _zigzag(counts) if version == "V2" else _fixed(counts, (cookie & 0xF0) >> 4 & 0xE)
    return list(_values(words, digits, lowest))


def _unpacked(content: bytes) -> bytes:
    if len(content) < 8:
        raise ValueError("a histogram that is cut off")
    cookie, length = struct.unpack_from(">ii", content)
    if cookie & ~0xF0 in _OLD:
        raise ValueError("a histogram of HdrHistogram before 2.1")
    if cookie & ~0xF0 in _PLAIN:
        return content
    if cookie & ~0xF0 not in _COMPRESSED:
        raise ValueError("no histogram of HdrHistogram 2.1 or later")
    unpacker = zlib.decompressobj()
    try:
        payload = unpacker.decompress(content[8 : 8 + max(length, 0)], MOST_BYTES)
    except zlib.error:
        raise ValueError("a histogram that is damaged") from None
    if not unpacker.eof:
        raise ValueError("a histogram that is cut off, or of more than 16 MiB")
    return payload


def _zigzag(content: bytes) -> Iterator[tuple[int, int]]:
    """(index, count) of each bucket with counts."""
    at = index = 0
    while at < len(content):
        word = shift = 0
        while True:
            if at >= len(content):
                raise ValueError("a histogram that is cut off")
            byte = content[at]
            at += 1
            # The ninth byte has eight bits of the number.
            word |= (byte if shift == 56 else byte & 0x7F) << shift
            if byte < 0x80 or shift == 56:
                break
            shift += 7
        number = (word >> 1) ^ -(word & 1)
        if number > 0:
            yield index, number
        index += max(-number, 1)
        if index > MOST_COUNTS:
            raise ValueError("a histogram of more buckets than any has")


def _fixed(content: bytes, width: int) -> Iterator[tuple[int, int]]:
    if width not in _WORDS or len(content) % width or len(content) // width > MOST_COUNTS:
        raise ValueError("a histogram whose header cannot be")
    numbers = struct.unpack(f">{len(content) // width}{_WORDS[width]}", content)
    return ((index, number) for index, number in enumerate(numbers) if number)


def _values(words: Iterator[tuple[int, int]], digits: int, lowest: int) -> Iterator[tuple[int, int]]:
    unit = lowest.bit_length() - 1
    half_bits = max(math.ceil(math.log2(2 * 10**digits)), 1) - 1
    half = 1 << half_bits
    for index, count in words:
        bucket = max((index >> half_bits) - 1, 0)
        within = index - bucket * half
        highest = ((within + 1) << (bucket + unit)) - 1
        if not 0 < count <= MOST_COUNT or highest > MOST_VALUE:
            raise ValueError("a histogram whose counts or values cannot be")
        yield highest, count
