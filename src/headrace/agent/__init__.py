"""The agent on a target, and its journal: how Python reads a host and changes it."""

from headrace.agent.door import Agent, stop
from headrace.agent.failures import failure, words_of
from headrace.agent.journal import Applied, Journal, Undone
from headrace.agent.program import PROGRAM, find_binary

__all__ = [
    "PROGRAM",
    "Agent",
    "Applied",
    "Journal",
    "Undone",
    "failure",
    "find_binary",
    "stop",
    "words_of",
]
