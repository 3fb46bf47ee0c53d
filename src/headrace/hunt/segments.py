"""Segments of TCP that were lost, told from those that were only sent again."""

from __future__ import annotations

from headrace.host.window import Window

#: Lost segments of all that were sent, above which the network loses packets.
RETRANSMITTED = 0.01


def lost_segments(window: Window) -> float | None:
    """Retransmitted segments per second that had been lost.

    The peer reports what arrives twice (D-SACK, RFC 2883). On a busy host most does: an acknowledgement waits for
    a CPU, and the probe for a lost tail (RFC 8985) is faster.
    """
    again = window.rate("snmp", "Tcp.RetransSegs")
    if again is None:
        return None
    twice = [window.rate("snmp", f"TcpExt.TCPDSACK{kind}") or 0.0 for kind in ("Recv", "OfoRecv")]
    return max(again - sum(twice), 0.0)
