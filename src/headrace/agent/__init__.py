"""The agent on a target, and its journal: how Python reads a host and changes it."""

from headrace.agent.door import Agent, stop
from headrace.agent.failures import failure, words_of
from headrace.agent.journal import Applied, Journal, belongs_to, is_of_another_server, state_folder
from headrace.agent.program import find_binary

__all__ = [
    "Agent",
    "Applied",
    "Journal",
    "belongs_to",
    "failure",
    "find_binary",
    "is_of_another_server",
    "state_folder",
    "stop",
    "words_of",
]
