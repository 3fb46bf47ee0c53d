"""Does every source record what clients do? Six client libraries, a list of cases each, every source of traffic.

The server counts the statements and commands of each account (performance_schema), and every case has its own
account: these counts are compared with the events of each recording. What a source cannot have is declared in
`sources/declared.py` with its exact number; any other difference is UNEXPLAINED, and fails the bench. Then every
recording is replayed on a fresh copy of the data, and the classes whose answers differ are named.

    python benches/clients.py [LIBRARY ...]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.sources.answers import Replayed, replay
from benches.sources.declared import Difference, differences
from benches.sources.lab import (
    CASES,
    OF_CONNECTIONS,
    OF_EXECUTE,
    SOURCES,
    Counts,
    Pass,
    direct,
    prepare,
    proxied,
    recorded,
)
from benches.sources.libraries import LIBRARIES, Driver, Library, Missing
from tests.servers import Server, mariadb, open_folder

MINUTES = 8
NEEDS = {"tcpdump": "tcpdump", "mariadbd": "mariadb-server", "openssl": "openssl"}
NEEDS_ROOT = True

ALL_SOURCES = [source for sources in SOURCES.values() for source in sources]


def main() -> int:
    names = sys.argv[1:]
    unknown = set(names) - {library.name for library in LIBRARIES}
    if unknown:
        raise SystemExit(
            f"no library {', '.join(sorted(unknown))}; there are {', '.join(x.name for x in LIBRARIES)}"
        )
    differing: list[Difference] = []
    problems: list[str] = []
    with open_folder() as folder:
        certificate = made_certificate(folder)
        options = ("--max-allowed-packet=64M", "--local-infile=1", "--character-set-server=utf8mb4")
        witness = ("--performance-schema=ON", f"--ssl-cert={certificate[0]}", f"--ssl-key={certificate[1]}")
        with (
            mariadb(folder / "m", *options, *witness, "--log-output=FILE") as server,
            mariadb(folder / "c", *options) as copy,
        ):
            for library in LIBRARIES:
                if names and library.name not in names:
                    continue
                try:
                    driver = library.make()
                except Missing as reason:
                    print(f"\n{library.title}: skipped, {reason}", flush=True)
                    continue
                one(server, copy, library, driver, folder, certificate, differing, problems)
    legend(differing)
    for problem in problems:
        print(f"UNEXPLAINED {problem}")
    print(f"{len(problems)} unexplained")
    return 1 if problems else 0


def made_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "server.pem", folder / "server.key"
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run([*argv, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    key.chmod(0o644)
    return certificate, key


def one(
    server: Server, copy: Server, library: Library, driver: Driver, folder: Path, certificate: tuple[Path, Path],
    differing: list[Difference], problems: list[str],
) -> None:  # fmt: skip
    """A library through every source: its table, and what its replays answered."""
    place = folder / library.name
    place.mkdir()
    ways: tuple[Callable[[], Pass], ...] = (
        lambda: direct(server, library, driver, place),
        lambda: proxied(server, library, driver, place, None),
        lambda: proxied(server, library, driver, place, certificate),
    )
    passes: list[Pass] = []
    for way in ways:
        prepare(server, library.name)
        passes.append(way())
    found: dict[str, Counts] = {}
    for run in passes:
        problems += [f"{library.title}, {run.name}, {case}: {words}" for case, words in run.failed.items()]
        for source, path in run.recordings.items():
            found[source] = recorded(path, library.name)
            each = differences(library.title, run, source, found[source])
            differing += each
            problems += [shown(difference) for difference in each if not difference.reasons]
    table(library, driver, passes, found)
    for run in passes:
        for source in SOURCES[run.name]:
            answers = replay(copy, library, source, run.recordings[source])
            print(f"  replay of {source}: {said(answers)}", flush=True)
            problems += [f"{library.title}, replay of {source}: {words}" for words in answers.unexplained]
    shutil.rmtree(place)


def shown(difference: Difference) -> str:
    d = difference
    return (
        f"{d.client}, {d.source}, {d.case}: {d.kind} {d.found}, the server counted {d.counted} ({d.more:+})"
    )


def table(library: Library, driver: Driver, passes: list[Pass], found: dict[str, Counts]) -> None:
    """Statements by case, then every other command of all cases together."""
    counted = {source: run.executed for run in passes for source in SOURCES[run.name]}
    print(f"\n{library.title} {driver.version}: statements the server executed, and those in each recording")
    print(f"  {'':13} {'server':>7}" + "".join(f"{source:>14}" for source in ALL_SOURCES))

    def line(name: str, keys: list[tuple[str, str]]) -> None:
        cells = []
        for source in ALL_SOURCES:
            server, here = (sum(counts[key] for key in keys) for counts in (counted[source], found[source]))
            cells.append(f"{here}" if here == server else f"{here} ({here - server:+})")
        server = sum(counted["general log"][key] for key in keys)
        print(f"  {name:13} {server:>7}" + "".join(f"{cell:>14}" for cell in cells), flush=True)

    absent = passes[0].absent
    for case in CASES:
        if case in absent:
            print(f"  {case:13} {'-':>7}  {absent[case]}")
        else:
            line(case, [(case, "statement")])
    unlisted = {"statement", OF_EXECUTE, OF_CONNECTIONS}
    kinds = {kind for counts in (*counted.values(), *found.values()) for case, kind in +counts if case}
    for kind in sorted(kinds - unlisted):
        line(kind, [(case, kind) for case in CASES])
    for run in passes:
        for source, coverage in run.coverage.items():
            lost = {
                name: coverage[name]
                for name in ("tls_sessions", "midstream_sessions", "damaged", "dropped_packets", "gaps",
                             "unknown_statements", "unanswered")
                if coverage.get(name)
            }  # fmt: skip
            if lost:
                reasons = sorted({place["reason"] for place in coverage["places"]})
                print(
                    f"  {source}: {', '.join(f'{name} {n}' for name, n in lost.items())} {'; '.join(reasons)}"
                )


def said(answers: Replayed) -> str:
    words = [f"{answers.compared} answers compared, {answers.different} different"]
    words += [f"{number} {reason}" for reason, number in sorted(answers.declared.items())]
    words += [f"{len(answers.unexplained)} classes UNEXPLAINED"] if answers.unexplained else []
    words += [f"left out {name} {number}" for name, number in sorted(answers.skipped.items())]
    words += [f"invalid: {reason}" for reason in answers.invalid]
    return "; ".join(words)


def legend(differing: list[Difference]) -> None:
    """Every declared reason with its number of events, by source."""
    sums: Counter[tuple[str, str, str]] = Counter()
    for difference in differing:
        for reason, number in difference.reasons.items():
            sums[reason, difference.source, difference.kind] += number
    print("\nDeclared differences, in events:")
    for (reason, source, kind), number in sorted(sums.items()):
        print(f"  {number:+5} {kind:12} {source:12} {reason}")


if __name__ == "__main__":
    sys.exit(main())
