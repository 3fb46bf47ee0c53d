"""The agent on a target, and its journal: how Python reads a host and changes it."""

from headrace.host.agent.door import Agent, stop
from headrace.host.agent.failures import failure, words_of
from headrace.host.agent.journal import Applied, Journal, belongs_to, is_of_another_server, state_folder
from headrace.host.agent.program import find_binary

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
