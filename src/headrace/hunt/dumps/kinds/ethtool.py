"""``ethtool -S`` of network cards: packets that a cloud held back by a limit of its own.

The text itself has no interface's name: the command stands before it, as in ``headrace collect`` and on terminals.
"""

from __future__ import annotations

import re

from headrace.hunt.dumps.piece import Numbered, Piece, Said, stamped

NAME = "ethtool -S"

#: A command, a prompt before it or not, to the next one.
_CARD = re.compile(r"^(?:\S*[#$] ?)?(?:sudo )?ethtool (?:-S|--statistics) ([\w.:@-]{1,15}) *$", re.MULTILINE)
_TITLE = re.compile(r"^NIC statistics: *$", re.MULTILINE)
#: What Amazon's driver counts, and what is left of its tracked connections.
_AMAZON = re.compile(
    r"^ *((?:bw_in|bw_out|pps|conntrack|linklocal)_allowance_exceeded|conntrack_allowance_available): (\d{1,20})$",
    re.MULTILINE,
)
#: Of a queue of virtio.
_QUEUE = re.compile(r"^ *\w*ratelimit_packets: (\d{1,20})$", re.MULTILINE)
_UNNAMED = (
    "an output of ethtool -S does not say of which interface it is: it is not used; write the command before it, "
    "as in `ethtool -S eth0`"
)


def read(text: str) -> list[Piece]:
    found: list[Piece] = []
    for at_s, part in stamped(text):
        cards = list(_CARD.finditer(part))
        ends = [*(match.start() for match in cards[1:]), len(part)]
        for match, end in zip(cards, ends, strict=False):
            own = part[match.end() : end]
            numbers = {name: {match[1]: float(count)} for name, count in _AMAZON.findall(_whole(own))}
            # A sum of the first queues would be too small.
            if own.endswith("\n\n") and (queues := _QUEUE.findall(own)):
                numbers["ratelimit_packets"] = {match[1]: float(sum(map(int, queues)))}
            if numbers:
                found.append(Numbered("allowance", numbers, at_s))
        before = part[: cards[0].start()] if cards else part
        if _TITLE.search(before) and (_AMAZON.search(before) or _QUEUE.search(before)):
            found.append(Said(_UNNAMED))
    return found


def _whole(text: str) -> str:
    """Without a last line that is cut off."""
    return text[: text.rfind("\n") + 1]
