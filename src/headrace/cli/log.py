"""The log as a way out: a record has no control character, whatever its message or its traceback quotes."""

from __future__ import annotations

import logging


class CleanLines(logging.Formatter):
    """Lines stay lines; the rest of what hosts and browsers sent cannot move a cursor or hide a word."""

    def format(self, record: logging.LogRecord) -> str:
        from headrace.show.text import clean

        return "\n".join(map(clean, super().format(record).split("\n")))


def log_cleanly() -> None:
    """For what no library has a handler of its own: Python prints such records as they are."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(CleanLines())
