"""HammerDB: the log of TPROC-C and TPROC-H."""

from __future__ import annotations

import re

from headrace.experiment.foreign.run import Run, groups, text_of

NAME = "HammerDB"

#: Until version 4 the transactions stood before the new orders.
_ACHIEVED = re.compile(
    r"System achieved (?:(\d+) NOPM from (\d+) [^\n]{1,20}? TPM|(\d+) [^\n]{1,20}? TPM at (\d+) NOPM)"
)
_QUERIES = re.compile(
    r"Geometric mean of query times[^\n]*?is \W?([\d.]+)|geomean of ([\d.]+) seconds", re.IGNORECASE
)
_OURS = re.compile(r"^Vuser \d+:|HammerDB CLI|TEST RESULT :", re.MULTILINE)
_VERSION = {"hammerdb_version": r"HammerDB CLI v([\d.]+)"}
_ABOUT = {
    "minutes": r"Timing test period of (\d+) in minutes",
    "rampup_minutes": r"Beginning rampup time of (\d+) minutes",
    "warehouses": r"Warehouses = (\d+)",
    "database": r"TEST RESULT : System achieved (?:\d+ NOPM from )?\d+ ([^\n]{1,20}?) TPM",
}
_MEASURED = re.compile(r"Taking start Transaction Count(.*?)Taking end Transaction Count", re.DOTALL)
_ACTIVE = re.compile(r"(\d+) Active Virtual Users configured")


def read(text: str) -> list[Run] | None:
    """Each test result of a log; a log with a user that failed has none that counts."""
    achieved = list(_ACHIEVED.finditer(text))
    queries = [float(match[1] or match[2]) for match in _QUERIES.finditer(text)]
    if not achieved and not queries:
        return [Run(problem="it has no test result: it was interrupted")] if _OURS.search(text) else None
    failed = re.findall(r"FINISHED FAILED|ERROR[^\n]*|Error in Virtual User[^\n]*", text)
    users = _ACTIVE.findall(text)
    ended = "ALL VIRTUAL USERS COMPLETE" in text
    problem = (
        f"{len(failed)} virtual users or statements failed: {failed[0][:80]}"
        if failed
        else ""
        if ended
        else "it does not say that its users have finished"
    )
    runs = []
    start = 0
    for number, match in enumerate(achieved):
        nopm, tpm = float(match[1] or match[4]), float(match[2] or match[3])
        settings = {"virtual_users": users[number]} if len(users) == len(achieved) else {}
        own = groups(text[start : match.end()], _ABOUT)
        measured = _MEASURED.search(text[start : match.end()])
        if measured and nopm and (still := re.search(r"^0 \S+ tpm\s*$", measured[1], re.MULTILINE)):
            problem = problem or f"its counter stood still while it was measured: {still[0]}"
        start = match.end()
        if minutes := own.pop("minutes", ""):
            settings["duration_s"] = text_of(60 * float(minutes))
        about = groups(text, _VERSION) | own
        runs.append(Run({"nopm": nopm, "tpm": tpm}, settings, problem, about=about))
    return runs + [
        Run({"geomean_s": seconds}, {}, problem, about=groups(text, _VERSION)) for seconds in queries
    ]
